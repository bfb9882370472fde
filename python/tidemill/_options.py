"""Options, checked and in the form in which the native module takes them."""

from __future__ import annotations

import datetime
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from tidemill import _progress, _tidemill
from tidemill._errors import UsageError
from tidemill._schema import Schema, quoted
from tidemill._tidemill import RawSchema

if TYPE_CHECKING:
    from tidemill._formats import NamedObject, SourceObject

#: A time: text such as ``"7s"``, a number of seconds, or what `datetime` has.
Deadline = str | float | datetime.timedelta

#: A share: text such as ``"10%"``, or a number from 0 to 1.
Share = str | float


class Workers(Protocol):
    """Processes elsewhere that read a query's splits."""

    def reach(self) -> tuple[int, int, int, bool]:
        """How many machines, workers and threads there are, and whether all are on this machine."""
        ...

    def begin(
        self,
        job: bytes,
        secrets: Mapping[str, str],
        paths: Sequence[str],
        files: Sequence[Any] = (),
    ) -> None:
        """Say what all tasks that follow are of."""
        ...

    def submit(self, number: int, attempt: int, size: int, name: str, content: bytes) -> None:
        """Hand in a task."""
        ...

    def next(self, seconds: float) -> tuple[int, int, bytes | None, str | None, str] | None:
        """Give what became of a task; None where nothing has after so long."""
        ...

    def end(self) -> None:
        """End all tasks of the job."""
        ...


class WorkersOnDemand:
    """Workers of the cluster that are started when there is something for them to do.

    A query that runs on this machine after all takes no core of the cluster, and waits for none.
    """

    def __init__(self, address: str, memory: int | None) -> None:
        self._address = address
        self._memory = memory
        self._job: Workers | None = None

    def _connected(self) -> Workers:
        if self._job is None:
            from tidemill import ray

            self._job = ray.connect(self._address, memory=self._memory).job()
        return self._job

    def reach(self) -> tuple[int, int, int, bool]:
        """Say how many there are, once they have started."""
        return self._connected().reach()

    def begin(
        self,
        job: bytes,
        secrets: Mapping[str, str],
        paths: Sequence[str],
        files: Sequence[Any] = (),
    ) -> None:
        """Say what all tasks that follow are of."""
        self._connected().begin(job, secrets, paths, files)

    def submit(self, number: int, attempt: int, size: int, name: str, content: bytes) -> None:
        """Hand in a task."""
        self._connected().submit(number, attempt, size, name, content)

    def next(self, seconds: float) -> tuple[int, int, bytes | None, str | None, str] | None:
        """Give what became of a task; None where nothing has after so long."""
        return self._connected().next(seconds)

    def end(self) -> None:
        """End all tasks of the job, if it has begun."""
        if self._job is not None:
            self._job.end()


class OnOptions(TypedDict):
    """Who reads the splits."""

    workers: Workers | None
    master: str | None
    may_run_here: bool
    max_attempts: int | None
    scratch: str | None
    scratch_above: str | None


class SourceOptions(TypedDict):
    """How files are read."""

    source_format: str | None
    schema: str | None
    layouts: str | None
    promote: list[str]
    recover: bool
    columns: RawSchema | None
    null: list[str]
    header: bool | None
    delimiter: int | None
    quote: int | None
    quoted: bool | None
    escape: int | None
    comment: int | None
    skip_lines: int | None
    header_row: int | None
    strict: bool | None
    mismatch: str | None
    framing: str | None
    log_format: str | None
    source_exec: list[str]
    files: list[str]
    storage_options: list[tuple[str, str]]


class SinkOptions(TypedDict):
    """Where a result goes."""

    output: str | None
    format: str | None
    compression: str | None
    overwrite: bool | None
    max_files: int | None
    sink_exec: list[str]
    no_header: bool
    storage_options: list[tuple[str, str]]


class LimitOptions(TypedDict):
    """What a run may take, and what shows its progress."""

    memory: str | None
    threads: int | None
    max_bad: str | None
    spill_dirs: list[str]
    priority: str | None
    display: _progress.Display | None


class TurboOptions(TypedDict):
    """When an answer may rest on a part of the input, as the command line's texts."""

    deadline: str | None
    drop: str | None
    error: str | None
    sample: str | None
    find: str | None
    seed: str | None
    confidence: str | None
    split_bytes: str | None
    as_seen: bool
    no_intervals: bool


class JobText(TypedDict):
    """A job: the file ``path``, or else ``text``, which is TOML or JSON."""

    path: str | None
    text: str
    is_json: bool
    origin: str
    overrides: list[tuple[str, str]]
    storage_options: list[tuple[str, str]]
    files: list[str]
    objects: list[NamedObject]


class Limits(TypedDict, total=False):
    """What every run takes."""

    memory: str | int | None
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    threads: int | None
    priority: str | None
    progress: bool | None


class IdFiles(TypedDict, total=False):
    """What `ids` takes."""

    input_format: str | None
    column: str | None
    signed: bool
    sorted: bool
    storage_options: Mapping[str, object] | None
    memory: str | int | None
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    threads: int | None
    progress: bool | None


class Reading(Limits, total=False):
    """What `query` takes."""

    source_format: str | None
    schema: str | Mapping[str, str] | Schema | None
    layouts: str | None
    promote: str | Sequence[str]
    recover: bool
    null: str | Sequence[str]
    header: bool | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    comment: str | None
    skip_lines: int | None
    header_row: int | None
    strict: bool | None
    mismatch: str | None
    framing: str | None
    log_format: str | None
    source_exec: str | Sequence[str]
    storage_options: Mapping[str, object] | None
    read_block: str | int | None
    read_window: str | int | None
    read_memory: str | int | None
    read_cache: str | int | None
    read_cache_dir: str | os.PathLike[str] | None
    max_bad: str | int | None


class Turbo(TypedDict, total=False):
    """What `query` and `run` take for an answer that may rest on a part of the input."""

    deadline: Deadline | None
    drop: Share | None
    error: Share | None
    sample: Share | None
    find: int | None
    seed: int | None
    confidence: Share | None
    split_bytes: str | int | None
    as_seen: bool
    no_intervals: bool


class Writing(TypedDict, total=False):
    """What goes with ``output``."""

    format: str | None
    compression: str | None
    overwrite: bool | None
    max_files: int | None
    sink_exec: str | Sequence[str]
    no_header: bool


class QueryWriting(Reading, Turbo, Writing, total=False):
    """What `query` takes with ``output``."""

    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    params: Mapping[str, object] | Sequence[object] | None
    replacement_scans: bool | None
    on: str | None
    max_attempts: int | None
    scratch: str | os.PathLike[str] | None
    scratch_above: str | int | None


class MergeWriting(Limits, Writing, total=False):
    """What `merge` takes with ``output``."""

    storage_options: Mapping[str, object] | None


class JobWriting(MergeWriting, Turbo, total=False):
    """What `run` takes."""

    source: SourceObject | None
    sources: Mapping[str, SourceObject] | None
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    set: Mapping[str, Any] | None
    on: str | None
    max_attempts: int | None
    scratch: str | os.PathLike[str] | None
    scratch_above: str | int | None
    read_block: str | int | None
    read_window: str | int | None
    read_memory: str | int | None
    read_cache: str | int | None
    read_cache_dir: str | os.PathLike[str] | None
    max_bad: str | int | None


def source(
    *,
    source_format: str | None,
    schema: str | Mapping[str, str] | Schema | None,
    layouts: str | None,
    promote: str | Sequence[str],
    recover: bool,
    null: str | Sequence[str],
    header: bool | None,
    delimiter: str | None,
    quote: str | None,
    escape: str | None,
    comment: str | None,
    skip_lines: int | None,
    header_row: int | None,
    strict: bool | None,
    mismatch: str | None,
    framing: str | None,
    log_format: str | None,
    source_exec: str | Sequence[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    storage_options: Mapping[str, object] | None,
) -> SourceOptions:
    """Say how files are read."""
    columns = None
    if isinstance(schema, Schema):
        columns, schema = schema._raw, None
    elif isinstance(schema, Mapping):
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in schema.items())
    return {
        "source_format": source_format,
        "schema": schema,
        "layouts": layouts,
        "promote": _words(promote),
        "recover": recover,
        "columns": columns,
        "null": [null] if isinstance(null, str) else list(null),
        "header": header,
        "delimiter": _character("delimiter", delimiter),
        "quote": _character("quote", quote) if quote else None,
        "quoted": None if quote is None else quote != "",
        "escape": _character("escape", escape),
        "comment": _character("comment", comment),
        "skip_lines": _lines("skip_lines", skip_lines),
        "header_row": _lines("header_row", header_row),
        "strict": strict,
        "mismatch": mismatch,
        "framing": framing,
        "log_format": log_format,
        "source_exec": _words(source_exec),
        "files": paths(files),
        "storage_options": storage(storage_options),
    }


def paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Give one path or several as texts."""
    several = [files] if isinstance(files, str | os.PathLike) else files
    return [os.fspath(file) for file in several]


def sink(
    *,
    output: str | os.PathLike[str] | None = None,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    storage_options: Mapping[str, object] | None = None,
    has_output: bool = True,
) -> SinkOptions:
    """Say where a result goes."""
    if max_files is not None and max_files < 1:
        raise UsageError(f"`max_files` must be at least 1, not {max_files}")
    if not has_output and output is None:
        given = {
            "format": format,
            "compression": compression,
            "overwrite": overwrite,
            "max_files": max_files,
            "sink_exec": sink_exec or None,
            "no_header": no_header or None,
        }
        for name, value in given.items():
            if value is not None:
                raise UsageError(
                    f"`{name}` means nothing without `output`\n"
                    "hint: name the file to write with output=, or leave it out"
                )
    return {
        "output": None if output is None else os.fspath(output),
        "format": format,
        "compression": compression,
        "overwrite": overwrite,
        "max_files": max_files,
        "sink_exec": _words(sink_exec),
        "no_header": bool(no_header),
        "storage_options": storage(storage_options),
    }


def limits(
    memory: str | int | None = None,
    threads: int | None = None,
    max_bad: str | int | None = None,
    progress: bool | None = False,
    what: str = "rows",
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    priority: str | None = None,
) -> LimitOptions:
    """Say what a run may take, and whether its progress is shown: bytes, and ``what``."""
    if threads is not None and threads < 1:
        raise UsageError(f"`threads` must be at least 1, not {threads}")
    return {
        "memory": None if memory is None else str(memory),
        "threads": threads,
        "max_bad": None if max_bad is None else str(max_bad),
        "spill_dirs": _folders(spill_dir),
        "priority": priority,
        "display": _progress.display(progress, what),
    }


def turbo(
    *,
    deadline: Deadline | None,
    drop: Share | None,
    error: Share | None,
    sample: Share | None,
    find: int | None,
    seed: int | None,
    confidence: Share | None,
    split_bytes: str | int | None,
    as_seen: bool,
    no_intervals: bool,
) -> TurboOptions:
    """Say when an answer may rest on a part of the input."""
    return {
        "deadline": seconds("deadline", deadline),
        "drop": _said("drop", drop),
        "error": _said("error", error),
        "sample": _said("sample", sample),
        "find": _said("find", find),
        "seed": _said("seed", seed),
        "confidence": _said("confidence", confidence),
        "split_bytes": _said("split_bytes", split_bytes),
        "as_seen": bool(as_seen),
        "no_intervals": bool(no_intervals),
    }


def seconds(name: str, time: object) -> str | None:
    """Say a time as the command line takes it.

    >>> seconds("deadline", 1.5), seconds("deadline", datetime.timedelta(minutes=2))
    ('1.5s', '120s')
    """
    if isinstance(time, datetime.timedelta):
        time = time.total_seconds()
    if time is None or isinstance(time, str):
        return time
    if isinstance(time, bool) or not isinstance(time, numbers.Real):
        raise UsageError(
            f"`{name}` must be a str, a number of seconds or a timedelta, not {type(time).__name__}"
        )
    text = f"{float(time):.9f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}s"


def _said(name: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        # It may be a source of the caller's that is called as the option is.
        raise UsageError(
            f"`{name}` must be a str or a number, not {type(value).__name__}\n"
            f"hint: `{name}` is an option; a source needs another name"
        )
    return str(value)


def storage(options: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Say how stores are reached."""
    pairs = []
    for name, value in (options or {}).items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif not isinstance(value, str | int | float):
            raise UsageError(
                f"storage option `{name}` must be a str, a number or a bool, not "
                f"{type(value).__name__}"
            )
        pairs.append((name, str(value)))
    return pairs


def read_ahead(
    options: Mapping[str, object] | None,
    read_block: str | int | None,
    read_window: str | int | None,
    read_memory: str | int | None,
    read_cache: str | int | None,
    read_cache_dir: str | os.PathLike[str] | None,
) -> Mapping[str, object] | None:
    """Say how stores are reached, how far they are read ahead, and what is kept."""
    ahead = {
        "read_block": read_block,
        "read_window": read_window,
        "read_memory": read_memory,
        "read_cache": read_cache,
        "read_cache_dir": None if read_cache_dir is None else os.fspath(read_cache_dir),
    }
    given = {name: value for name, value in ahead.items() if value is not None}
    return {**(options or {}), **given} if given else options


def _folders(
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
) -> list[str]:
    if spill_dir is None:
        return []
    if isinstance(spill_dir, str | os.PathLike):
        spill_dir = [spill_dir]
    return [os.fsdecode(folder) for folder in spill_dir]


def _words(program: str | Sequence[str]) -> list[str]:
    if isinstance(program, str):
        return [program] if program else []
    return list(program)


def _character(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if len(text) != 1 or not text.isascii():
        raise UsageError(f"`{name}` must be one ASCII character, not `{text}`")
    return ord(text)


def _lines(name: str, count: int | None) -> int | None:
    if count is not None and count < 0:
        raise UsageError(f"`{name}` is a number of lines, not {count}")
    return count


def on(
    on: str | None,
    memory: str | int | None = None,
    max_attempts: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    scratch_above: str | int | None = None,
) -> OnOptions:
    """Give who reads the splits, by what ``on`` names."""
    of_workers: OnOptions = {
        "workers": None,
        "master": None,
        "may_run_here": on == "auto",
        "max_attempts": max_attempts,
        "scratch": None if scratch is None else os.fspath(scratch),
        "scratch_above": None if scratch_above is None else str(scratch_above),
    }
    if on is None:
        for name in ("max_attempts", "scratch", "scratch_above"):
            if of_workers[name] is not None:
                message = (
                    f"`{name}` is of workers on a cluster\nhint: name one by `on`, or leave it out"
                )
                raise UsageError(message)
        return of_workers
    if max_attempts is not None and max_attempts < 1:
        raise UsageError(f"`max_attempts={max_attempts}` is no number of attempts: at least 1")
    if on == "master" or on.startswith(("http://", "https://")):
        return {**of_workers, "master": on}
    if on not in ("ray", "auto") and not on.startswith("ray://"):
        message = (
            f"`on={on!r}` names no cluster\nhint: ray, ray:// with a host and its port, or auto; "
            "a master's address, http:// or https://, or master"
        )
        raise UsageError(message)
    budget = None if memory is None else _tidemill.memory_bytes(str(memory))
    if on == "auto":
        return {**of_workers, "workers": WorkersOnDemand("ray", budget)}
    from tidemill import ray

    return {**of_workers, "workers": ray.connect(on, memory=budget).job()}
