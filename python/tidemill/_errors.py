"""Exceptions: one base class, and Python's own where it has one."""

from __future__ import annotations

import errno
import os
import re
import sys
import warnings
from typing import Any, TypeVar

T = TypeVar("T")


class TidemillError(Exception):
    """Base class of all errors of this package."""

    def __str__(self) -> str:
        """Give the message, which `OSError` would make up from its other attributes."""
        return str(self.args[0]) if self.args else ""


class UsageError(TidemillError, ValueError):
    """The SQL, the job or an option cannot be carried out as it is worded."""


class _FileError(TidemillError):
    # The error's own, and not those of `OSError`, which are lost in pickling.
    errno: int | None = None
    filename: str | None = None


class NotFoundError(_FileError, FileNotFoundError):
    """No file where one was named, which is in ``filename``."""

    errno: int | None = errno.ENOENT


class OutputExistsError(_FileError, FileExistsError):
    """An output, in ``filename``, exists, and ``overwrite`` was not asked for."""

    errno: int | None = errno.EEXIST


class InputOutputError(_FileError, OSError):
    """The operating system, or a store, refused to read or write.

    ``filename`` says what; ``errno`` is the operating system's number, where it gave one.
    """


class CorruptFileError(TidemillError):
    """A file is damaged, or changed while it was read."""


class CorruptBytesError(TidemillError, ValueError):
    """Bytes that are no sketch, set or id space: damaged, cut short, or of another kind."""


class UncertainEstimateError(TidemillError, ValueError):
    """A number whose error may be all there is to it.

    Attributes
    ----------
    estimate : Estimate
        The number all the same.
    """

    estimate: Any = None


class BadRecordError(TidemillError, ValueError):
    """There are more malformed records than ``max_bad`` allows.

    Attributes
    ----------
    records : list of dict
        The first few, each with ``path``, ``line``, ``row``, ``offset``, ``column`` and ``reason``.
        In formats that have no lines ``line`` is None, and ``row`` the number of the row; elsewhere
        ``row`` is.
    """

    records: list[dict[str, Any]]


class MemoryLimitError(TidemillError, MemoryError):
    """The memory budget is too small, even with spilling."""


class OutOfRangeError(TidemillError, OverflowError):
    """A result, such as a sum, does not fit its type."""


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
    >>> in_python("leave --drop and --as-seen out, or stop by --deadline 7s")
    'leave drop= and as_seen=True out, or stop by deadline="7s"'
    >>> in_python("its ETag is no MD5 sum: --no-verify compares none")
    'its ETag is no MD5 sum: verify=False compares none'
    >>> in_python("made by `tidemill run JOB --partial OUT`")
    'made by `tm.run(job, partial=OUT)`'
    """
    message = message.replace("`tidemill run JOB --partial OUT`", "`tm.run(job, partial=OUT)`")
    message = message.replace("--overwrite", "overwrite=True")
    message = message.replace("--no-verify", "verify=False").replace(
        "--no-header", "no_header=True"
    )
    message = message.replace("--salvage", "recover=True")
    message = message.replace("--signed", "signed=True")
    message = message.replace("--as-seen", "as_seen=True")
    message = message.replace("--no-intervals", "no_intervals=True")
    message = re.sub(r"--(deadline|drop|error|sample) (\d+[a-z%]+)", r'\1="\2"', message)
    message = re.sub(
        r"`(as-seen|no-intervals|split-bytes)`",
        lambda found: found[0].replace("-", "_"),
        message,
    )
    # What follows a flag is its value, unless it is a word of the sentence.
    return re.sub(
        r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?: (?!(?:and|end|or|out)\b)|=)?",
        lambda found: found[1].replace("-", "_") + "=",
        message,
    )


def encodable(text: T, name: str) -> T:
    """Give a text back, unless UTF-8 has not all of it. What is no text is for others to refuse.

    >>> encodable("caf\u00e9", "`sql`")
    'caf\u00e9'
    """
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{name} has a surrogate, {text[error.start]!a}, which no UTF-8 has, "
                f"at character {error.start + 1}\n"
                "hint: text.encode(errors='surrogateescape') gives the bytes it is from"
            ) from None
    return text


def warn(message: str) -> None:
    """Warn, at the line of the caller's that is outside of this package."""
    here = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    warnings.warn(in_python(message), RuntimeWarning, stacklevel=level)
