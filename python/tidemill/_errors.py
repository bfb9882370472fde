"""Exceptions: one base class, and Python's own where it has one."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any


class TidemillError(Exception):
    """Base class of all errors of this package."""


class UsageError(TidemillError, ValueError):
    """The SQL, the job or an option cannot be carried out as it is worded."""


class NotFoundError(TidemillError, FileNotFoundError):
    """No file where one was named."""


class OutputExistsError(TidemillError, FileExistsError):
    """An output exists, and ``overwrite`` was not asked for."""


class InputOutputError(TidemillError, OSError):
    """The operating system refused to read or write."""


class CorruptFileError(TidemillError):
    """A file is damaged, or changed while it was read."""


class BadRecordError(TidemillError, ValueError):
    """There are more malformed records than ``max_bad`` allows.

    Attributes
    ----------
    records : list of dict
        The first few, each with ``path``, ``line``, ``offset``, ``column`` and ``reason``.
    """

    records: list[dict[str, Any]]


class MemoryLimitError(TidemillError, MemoryError):
    """The memory budget is too small, even with spilling."""


class MissingPackageError(TidemillError, ModuleNotFoundError):
    """A package that a method converts to is not installed."""


class InternalError(TidemillError, RuntimeError):
    """A fault of this package; please report it."""


def in_python(message: str) -> str:
    """Name options as Python has them: ``--max-bad`` becomes ``max_bad=``.

    >>> in_python("--max-bad N skips such records")
    'max_bad=N skips such records'
    >>> in_python("hint: --overwrite replaces it")
    'hint: overwrite=True replaces it'
    """
    message = message.replace("--overwrite", "overwrite=True")
    return re.sub(
        r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)[ =]?",
        lambda found: found[1].replace("-", "_") + "=",
        message,
    )


def warn(message: str) -> None:
    """Warn, at the line of the caller's that is outside of this package."""
    here = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    warnings.warn(in_python(message), RuntimeWarning, stacklevel=level)
