"""Exact counts, unique counts, top lists and reports from log files of any size.

>>> import tidemill as tm
>>> result = tm.query("SELECT 1 AS one, 'a' AS letter")
>>> result.schema.names
['one', 'letter']

Results go without copying into whatever speaks Arrow:

>>> import pyarrow
>>> pyarrow.table(result).to_pylist()
[{'one': 1, 'letter': 'a'}]
"""

from typing import TYPE_CHECKING, Any

from tidemill._answers import Answers
from tidemill._convert import Checked, Salvaged, check, check_schema, convert, salvage
from tidemill._coverage import Coverage
from tidemill._errors import (
    BadRecordError,
    CorruptBytesError,
    CorruptFileError,
    InputOutputError,
    InternalError,
    MemoryLimitError,
    MissingPackageError,
    NotFoundError,
    OutOfRangeError,
    OutputExistsError,
    TidemillError,
    UncertainEstimateError,
    UsageError,
)
from tidemill._explain import Explain
from tidemill._files import Copied, Entry, Usage, cat, du, get, ls, put, stat
from tidemill._formats import Batches, register_format
from tidemill._hll import Estimate, Hll
from tidemill._id_files import ids
from tidemill._ids import IdSet, IdSpace
from tidemill._interval import Interval
from tidemill._job import Job
from tidemill._jobs import jobs
from tidemill._open import File, ReadStats, open, read_stats
from tidemill._result import Batch, Result, Written
from tidemill._rowfile import (
    RowFile,
    RowFileBlock,
    RowFileResult,
    RowFileWriter,
    read_rowfile,
)
from tidemill._run import explain, head, merge, query, read_text, run, schema
from tidemill._schema import Schema, SourceSchema
from tidemill._sort import sort, sort_files
from tidemill._tidemill import __version__

if TYPE_CHECKING:
    from tidemill._fsspec import TidemillFileSystem as TidemillFileSystem
    from tidemill._fsspec import TidemillHttpFileSystem as TidemillHttpFileSystem

__all__ = [
    "Answers",
    "BadRecordError",
    "Batch",
    "Batches",
    "Checked",
    "Copied",
    "CorruptBytesError",
    "CorruptFileError",
    "Coverage",
    "Entry",
    "Estimate",
    "Explain",
    "File",
    "Hll",
    "IdSet",
    "IdSpace",
    "InputOutputError",
    "InternalError",
    "Interval",
    "Job",
    "MemoryLimitError",
    "MissingPackageError",
    "NotFoundError",
    "OutOfRangeError",
    "OutputExistsError",
    "ReadStats",
    "Result",
    "RowFile",
    "RowFileBlock",
    "RowFileResult",
    "RowFileWriter",
    "Salvaged",
    "Schema",
    "SourceSchema",
    "TidemillError",
    "UncertainEstimateError",
    "Usage",
    "UsageError",
    "Written",
    "__version__",
    "cat",
    "check",
    "check_schema",
    "convert",
    "du",
    "explain",
    "get",
    "head",
    "ids",
    "jobs",
    "ls",
    "merge",
    "open",
    "put",
    "query",
    "read_rowfile",
    "read_stats",
    "read_text",
    "register_format",
    "run",
    "salvage",
    "schema",
    "sort",
    "sort_files",
    "stat",
]


def __getattr__(name: str) -> Any:
    # They need fsspec, which need not be installed.
    if name in ("TidemillFileSystem", "TidemillHttpFileSystem"):
        try:
            from tidemill import _fsspec
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "fsspec":
                raise
            raise MissingPackageError(
                f"`{name}` needs the package `fsspec`\nhint: pip install fsspec", name="fsspec"
            ) from None
        return getattr(_fsspec, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
