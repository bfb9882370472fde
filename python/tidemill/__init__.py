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

from tidemill._errors import (
    BadRecordError,
    CorruptFileError,
    InputOutputError,
    InternalError,
    MemoryLimitError,
    NotFoundError,
    OutputExistsError,
    TidemillError,
    UsageError,
)
from tidemill._jobs import jobs
from tidemill._result import Batch, Result, Schema, Written
from tidemill._run import query, read_text, run
from tidemill._tidemill import __version__

__all__ = [
    "BadRecordError",
    "Batch",
    "CorruptFileError",
    "InputOutputError",
    "InternalError",
    "MemoryLimitError",
    "NotFoundError",
    "OutputExistsError",
    "Result",
    "Schema",
    "TidemillError",
    "UsageError",
    "Written",
    "__version__",
    "jobs",
    "query",
    "read_text",
    "run",
]
