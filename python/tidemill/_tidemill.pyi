"""The native module; use the `tidemill` package instead."""

from collections.abc import Callable
from typing import Any, final

from tidemill._formats import NamedObject
from tidemill._options import JobText, LimitOptions, SinkOptions, SourceOptions

__all__ = [
    "RawBatch",
    "RawResult",
    "RawSchema",
    "RawSource",
    "RawStream",
    "RawWritten",
    "__version__",
    "check",
    "check_schema",
    "convert",
    "explain_job",
    "explain_query",
    "head",
    "jobs",
    "leave_python",
    "merge",
    "merge_partial",
    "query",
    "read_job",
    "read_text",
    "register_format",
    "run",
    "run_partial",
    "salvage",
    "schema",
]

__version__: str

@final
class RawSchema:
    def columns(self) -> list[tuple[str, str, str, bool]]: ...
    def capsule(self) -> object: ...

@final
class RawBatch:
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> RawSchema: ...
    def rows(self) -> list[dict[str, Any]]: ...
    def capsules(self) -> tuple[object, object]: ...

@final
class RawResult:
    @property
    def schema(self) -> RawSchema: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def coverage(self) -> str: ...
    @property
    def coverage_line(self) -> str | None: ...
    @property
    def failure(self) -> BaseException | None: ...
    def stream(self, requested_schema: object | None = None) -> object: ...
    def next_batch(self) -> RawBatch | None: ...
    def peek(self, count: int, chars_max: int) -> tuple[list[list[str | None]], bool]: ...
    def close(self) -> None: ...

@final
class RawStream:
    @property
    def schema(self) -> RawSchema: ...
    def next_batch(self) -> RawBatch | None: ...
    def stream(self) -> object: ...

@final
class RawWritten:
    @property
    def files(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def paths(self) -> list[str]: ...
    @property
    def root(self) -> str: ...
    @property
    def coverage(self) -> str: ...
    @property
    def coverage_line(self) -> str: ...

@final
class RawSource:
    @property
    def schema(self) -> RawSchema: ...
    @property
    def format(self) -> str: ...
    @property
    def files(self) -> int: ...
    @property
    def bytes(self) -> int | None: ...

def query(
    sql: str,
    source: SourceOptions,
    sink: SinkOptions,
    limits: LimitOptions,
    objects: list[NamedObject],
) -> RawResult | RawWritten: ...
def read_text(
    url: str,
    columns: list[str] | None,
    condition: str | None,
    source: SourceOptions,
    limits: LimitOptions,
) -> RawResult: ...
def head(url: str, rows: int, source: SourceOptions, limits: LimitOptions) -> RawResult: ...
def run(job: JobText, sink: SinkOptions, limits: LimitOptions) -> RawResult | RawWritten: ...
def run_partial(job: JobText, out: str, overwrite: bool, limits: LimitOptions) -> RawWritten: ...
def merge(
    partials: list[str], sink: SinkOptions, limits: LimitOptions
) -> RawResult | RawWritten: ...
def merge_partial(
    partials: list[str], out: str, overwrite: bool, limits: LimitOptions
) -> RawWritten: ...
def convert(
    urls: list[str],
    select: str | None,
    condition: str | None,
    skip_existing: bool,
    source: SourceOptions,
    sink: SinkOptions,
    limits: LimitOptions,
) -> tuple[RawWritten, int]: ...
def check(urls: list[str], storage_options: list[tuple[str, str]]) -> list[str]: ...
def salvage(
    url: str, out: str, overwrite: bool, storage_options: list[tuple[str, str]]
) -> str: ...
def check_schema(
    old: str, new: str, old_options: SourceOptions, new_options: SourceOptions
) -> list[tuple[str, str]]: ...
def schema(url: str, source: SourceOptions) -> RawSource: ...
def explain_query(
    sql: str, source: SourceOptions, limits: LimitOptions, objects: list[NamedObject]
) -> tuple[str, str]: ...
def explain_job(job: JobText, sink: SinkOptions, limits: LimitOptions) -> tuple[str, str]: ...
def read_job(job: JobText) -> tuple[str, str]: ...
def jobs(what: str, runs: list[str], since: str | None, name: str | None, last: int) -> str: ...
def leave_python() -> None: ...
def register_format(
    name: str,
    suffix: str | None,
    reader: Callable[..., Any] | None,
    writer: Callable[..., Any] | None,
    is_splittable: bool,
    takes_columns: bool,
) -> None: ...
