"""Exceptions: one base class, and Python's own where it has one."""

from __future__ import annotations

import re
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
