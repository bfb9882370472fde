"""Jobs: what a job file says, as an object."""

from __future__ import annotations

import json
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypedDict, cast, overload

from tidemill import _formats, _lazy_frames, _options, _tidemill
from tidemill._errors import UsageError
from tidemill._explain import Explain
from tidemill._formats import ArrowObject, LazyFrame, NamedObject, SourceObject
from tidemill._result import Result, Written

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tidemill._options import JobText


class TextOptions(TypedDict, total=False):
    """``[source.options]``: how the files of a source are read."""

    header: bool | None
    delimiter: str | None
    quote: str | None
    escape: str | None
    comment: str | None
    skip_lines: int | None
    header_row: int | None
    null: str | Sequence[str] | None
    strict: bool | None
    mismatch: str | None
    framing: str | None
    log_format: str | None


class _NeedsUrl(TypedDict):
    url: str | os.PathLike[str]


class SourceSection(TypedDict, total=False):
    """``[source]``: what a job reads; a ``url``, an ``exec``, or both."""

    url: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    name: str | None
    format: str | None
    schema: str | None
    layouts: str | None
    promote: str | Sequence[str] | None
    recover: bool | None
    exec: str | Sequence[str] | None
    options: TextOptions | None
    storage_options: Mapping[str, object] | None
    read_block: str | int | None
    read_window: str | int | None
    read_memory: str | int | None
    read_cache: str | int | None
    read_cache_dir: str | os.PathLike[str] | None


class MapSection(TypedDict):
    """``[map]``: what becomes of each record."""

    sql: str


class SinkSection(_NeedsUrl, total=False):
    """``[sink]``: where the result goes."""

    format: str | None
    compression: str | None
    overwrite: bool | None
    max_files: int | None
    null: str | None
    header: bool | None
    exec: str | Sequence[str] | None
    storage_options: Mapping[str, object] | None


class RunSection(TypedDict, total=False):
    """``[run]``: what a run may take."""

    memory: str | int | None
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    max_bad: str | int | None
    threads: int | None
    priority: str | None
    max_attempts: int | None
    scratch: str | os.PathLike[str] | None
    scratch_above: str | int | None


class TurboSection(TypedDict, total=False):
    """``[turbo]``: when the answer may rest on a part of the input."""

    deadline: _options.Deadline | None
    drop: _options.Share | None
    error: _options.Share | None
    sample: _options.Share | None
    find: int | None
    seed: int | None
    confidence: _options.Share | None
    split_bytes: str | int | None
    as_seen: bool | None
    no_intervals: bool | None


class Job:
    r"""A job: a source, a map, tables and a sink, by the names of a job file.

    A job is checked when it is made: an unknown key is an error that names the nearest known
    one. Two jobs are equal if they say the same. ``None`` is the same as nothing.

    Parameters
    ----------
    name : str, optional
        What people call it.
    files : path or sequence of paths, optional
        Files and URLs that the programs of ``exec`` find by the last part of their names.
    source : mapping, sequence of mappings, or table, optional
        A table or stream in memory, as in `query`: what exports Arrow data, or a LazyFrame of
        Polars. Or ``url`` (one, or a list), and ``name``, ``format``, ``schema``, ``layouts``,
        ``promote`` and ``exec`` (lists), ``recover``, ``options`` (a mapping: ``header``,
        ``delimiter``, …) and ``storage_options``; ``read_block``, ``read_window``,
        ``read_memory``, ``read_cache`` and ``read_cache_dir``. Each of several needs a ``name``.
    map : mapping, optional
        ``sql``. Default: every row of the only source as it is.
    tables : mapping, optional
        ``by``: the columns to group by, and for each computed column its expression.
    sink : mapping, optional
        ``url``, and ``format``, ``compression``, ``overwrite``, ``max_files``, ``null``,
        ``header``, ``exec`` and ``storage_options``.
    run : mapping, optional
        ``memory``, ``spill_dir`` (one or a list), ``threads``, ``priority`` and ``max_bad``.
    turbo : mapping, optional
        ``deadline``, ``drop``, ``error``, ``sample``, ``find``, ``seed``, ``confidence``,
        ``split_bytes``, ``as_seen`` and ``no_intervals``: when the answer may rest on a part of the
        input, as in `query`.

    Raises
    ------
    UsageError
        For anything that a job file may not say either.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hits.csv").write_text("page,user\n/,ann\n/,bob\n/buy,ann\n")
    >>> job = tm.Job(
    ...     name="visitors",
    ...     source={"url": folder / "hits.csv"},
    ...     tables={"by": "page", "users": "unique(user)"},
    ... )
    >>> job.sql
    'SELECT "page", unique(user) AS "users" FROM "source" GROUP BY "page"'
    >>> job.run().to_pylist()
    [{'page': '/', 'users': 2}, {'page': '/buy', 'users': 1}]

    The same of a table in memory:

    >>> job.run(source=[{"page": "/", "user": "eve"}]).fetchall()
    [('/', 1)]
    >>> tm.Job(source={"url": "hits.csv", "fromat": "csv"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill._errors.UsageError: job: unknown key `fromat` in `[source]`; did you mean `format`?
    keys: name, url, format, schema, layouts, promote, recover, exec, options, storage_options, ...
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        source: SourceSection | Sequence[SourceSection] | ArrowObject | LazyFrame | None = None,
        map: MapSection | None = None,
        tables: Mapping[str, str | Sequence[str]] | None = None,
        sink: SinkSection | None = None,
        run: RunSection | None = None,
        turbo: TurboSection | None = None,
        # Not Python's to refuse: the engine names the nearest known key.
        **unknown: NoReturn,
    ) -> None:
        tree = {
            "name": name,
            "files": files,
            "source": source,
            "map": map,
            "tables": tables,
            "sink": sink,
            "run": run,
            "turbo": turbo,
            **unknown,
        }
        tree, objects = _without_objects(tree)
        self._tree: dict[str, Any] = _plain(tree, "job")
        self._objects: dict[str, object] = {}
        _, self._sql = _tidemill.read_job(_with_names(text_of(self), objects))
        self._objects = objects
        self._marks = _marks_of(objects)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Job:
        r"""Read a job file, or standard input for ``-``.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "job.toml")
        >>> _ = path.write_text("[source]\nurl = 'logs/*.json'\n")
        >>> tm.Job.from_file(path)
        Job(source={'url': 'logs/*.json'})
        """
        return cls._read(text_of(os.fspath(path), is_path=True))

    @classmethod
    def from_toml(cls, text: str) -> Job:
        r"""Read the text of a job file.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.Job.from_toml("[source]\nurl = 'logs/*.json'\n").to_dict()
        {'source': {'url': 'logs/*.json'}}
        """
        return cls._read(text_of(text, is_path=False))

    @classmethod
    def _read(cls, text: JobText) -> Job:
        tree, sql = _tidemill.read_job(text)
        job = cls.__new__(cls)
        job._tree = json.loads(tree)
        job._objects = {}
        job._marks = {}
        job._sql = sql
        return job

    @property
    def name(self) -> str | None:
        """What people call it."""
        name: str | None = self._tree.get("name")
        return name

    @property
    def sql(self) -> str:
        """The job as one SQL query."""
        return self._sql

    def to_dict(self) -> dict[str, Any]:
        """Give the job's keys: ``Job(**job.to_dict())`` is the same job.

        Examples
        --------
        >>> import tidemill as tm
        >>> job = tm.Job(source={"url": "logs/*.json"})
        >>> tm.Job(**job.to_dict() | {"sink": {"url": "out.csv"}})
        Job(source={'url': 'logs/*.json'}, sink={'url': 'out.csv'})
        """
        tree: dict[str, Any] = json.loads(json.dumps(self._tree))
        return {**tree, **self._objects}

    def to_toml(self) -> str:
        """Write the text of a job file.

        Raises
        ------
        UsageError
            If its source is a table in memory, which no text has.

        Examples
        --------
        >>> import tidemill as tm
        >>> print(tm.Job(
        ...     source={"url": "logs/*.json", "options": {"null": ["NA", "-"]}},
        ...     tables={"by": ["day"], "hits": "count()"},
        ... ).to_toml(), end="")
        [source]
        url = "logs/*.json"
        options = { null = ["NA", "-"] }
        <BLANKLINE>
        [tables]
        by = ["day"]
        hits = "count()"
        """
        if self._objects:
            raise UsageError(
                "the job's source is in memory, which no job file has\n"
                "hint: name a file in `source`, and give the table to run(source=…)"
            )
        plain = {key: value for key, value in self._tree.items() if isinstance(value, str)}
        parts = [_toml_lines(plain)] if plain else []
        for key, value in self._tree.items():
            if isinstance(value, dict):
                parts.append(f"[{key}]\n{_toml_lines(value)}")
            elif isinstance(value, list):
                parts.extend(f"[[{key}]]\n{_toml_lines(section)}" for section in value)
        return "\n".join(parts)

    @overload
    def run(
        self,
        *,
        output: None = None,
        partial: None = None,
        **options: Unpack[_options.JobWriting],
    ) -> Result | Written: ...
    @overload
    def run(
        self,
        *,
        output: str | os.PathLike[str],
        partial: None = None,
        **options: Unpack[_options.JobWriting],
    ) -> Written: ...
    @overload
    def run(
        self,
        *,
        output: None = None,
        partial: str | os.PathLike[str],
        **options: Unpack[_options.JobWriting],
    ) -> Written: ...

    def run(
        self,
        *,
        source: SourceObject | None = None,
        sources: Mapping[str, SourceObject] | None = None,
        set: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        format: str | None = None,
        compression: str | None = None,
        overwrite: bool | None = None,
        max_files: int | None = None,
        sink_exec: str | Sequence[str] = (),
        no_header: bool = False,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        partial: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        read_block: str | int | None = None,
        read_window: str | int | None = None,
        read_memory: str | int | None = None,
        read_cache: str | int | None = None,
        read_cache_dir: str | os.PathLike[str] | None = None,
        memory: str | int | None = None,
        spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        threads: int | None = None,
        priority: str | None = None,
        max_bad: str | int | None = None,
        deadline: _options.Deadline | None = None,
        drop: _options.Share | None = None,
        error: _options.Share | None = None,
        sample: _options.Share | None = None,
        find: int | None = None,
        seed: int | None = None,
        confidence: _options.Share | None = None,
        split_bytes: str | int | None = None,
        as_seen: bool = False,
        no_intervals: bool = False,
        on: str | None = None,
        max_attempts: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        scratch_above: str | int | None = None,
        progress: bool | None = None,
    ) -> Result | Written:
        """Run the job: the same as `tidemill.run`.

        Examples
        --------
        >>> import tidemill as tm
        >>> job = tm.Job(map={"sql": "SELECT 1 AS one"})
        >>> job.run().to_pylist()
        [{'one': 1}]
        """
        return carry_out(
            self,
            source=source,
            sources=sources,
            set=set,
            output=output,
            format=format,
            compression=compression,
            overwrite=overwrite,
            max_files=max_files,
            sink_exec=sink_exec,
            no_header=no_header,
            files=files,
            partial=partial,
            storage_options=storage_options,
            read_block=read_block,
            read_window=read_window,
            read_memory=read_memory,
            read_cache=read_cache,
            read_cache_dir=read_cache_dir,
            memory=memory,
            spill_dir=spill_dir,
            threads=threads,
            priority=priority,
            max_bad=max_bad,
            deadline=deadline,
            drop=drop,
            error=error,
            sample=sample,
            find=find,
            seed=seed,
            confidence=confidence,
            split_bytes=split_bytes,
            as_seen=as_seen,
            no_intervals=no_intervals,
            on=on,
            max_attempts=max_attempts,
            scratch=scratch,
            scratch_above=scratch_above,
            progress=progress,
        )

    def explain(
        self,
        *,
        source: SourceObject | None = None,
        sources: Mapping[str, SourceObject] | None = None,
        set: Mapping[str, Any] | None = None,
        output: str | os.PathLike[str] | None = None,
        format: str | None = None,
        compression: str | None = None,
        overwrite: bool | None = None,
        max_files: int | None = None,
        sink_exec: str | Sequence[str] = (),
        no_header: bool = False,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        storage_options: Mapping[str, object] | None = None,
        read_block: str | int | None = None,
        read_window: str | int | None = None,
        read_memory: str | int | None = None,
        read_cache: str | int | None = None,
        read_cache_dir: str | os.PathLike[str] | None = None,
        memory: str | int | None = None,
        spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        threads: int | None = None,
        max_bad: str | int | None = None,
        deadline: _options.Deadline | None = None,
        drop: _options.Share | None = None,
        error: _options.Share | None = None,
        sample: _options.Share | None = None,
        find: int | None = None,
        seed: int | None = None,
        confidence: _options.Share | None = None,
        split_bytes: str | int | None = None,
        as_seen: bool = False,
        no_intervals: bool = False,
        on: str | None = None,
        max_attempts: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        scratch_above: str | int | None = None,
    ) -> Explain:
        r"""Say how the job would be run, and what would be written, and do not run it.

        The parameters are those of `run`.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
        >>> _ = path.write_text("page,user\n/,ann\n")
        >>> job = tm.Job(source={"url": path}, tables={"by": "page", "hits": "count()"})
        >>> job.explain(output="{page}.csv").sink
        'one csv file for each `page`, `{page}.csv`'
        """
        text, tree = _tidemill.explain_job(
            text_of(
                self,
                source=source,
                sources=sources,
                set=set,
                files=files,
                storage_options=_options.read_ahead(
                    storage_options,
                    read_block,
                    read_window,
                    read_memory,
                    read_cache,
                    read_cache_dir,
                ),
            ),
            _options.sink(
                output=output,
                format=format,
                compression=compression,
                overwrite=overwrite,
                max_files=max_files,
                sink_exec=sink_exec,
                no_header=no_header,
                storage_options=storage_options,
            ),
            _options.limits(memory, threads, max_bad, spill_dir=spill_dir),
            _options.turbo(
                deadline=deadline,
                drop=drop,
                error=error,
                sample=sample,
                find=find,
                seed=seed,
                confidence=confidence,
                split_bytes=split_bytes,
                as_seen=as_seen,
                no_intervals=no_intervals,
            ),
            _options.on(on, memory, max_attempts, scratch, scratch_above),
        )
        return Explain._of(text, tree)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same."""
        if not isinstance(other, Job):
            return NotImplemented
        return _canonical(self._tree) == _canonical(other._tree) and _same(
            self._objects, other._objects
        )

    def __hash__(self) -> int:
        """Hash what the job says."""
        return hash((_canonical(self._tree), *map(id, self._objects.values())))

    def __repr__(self) -> str:
        """Show what the job says, as Python, but for what may be secret in it."""
        shown = {key: repr(value) for key, value in without_secrets(self._tree).items()}
        shown |= {key: f"<{type(value).__name__}>" for key, value in self._objects.items()}
        return f"Job({', '.join(f'{key}={value}' for key, value in shown.items())})"


# Storage options of which nobody makes a secret, and what they look like; another text may be a
# secret that stands in the wrong place.
_PLAIN_OPTIONS = {
    "allow_http": r"true|false",
    "connect_timeout": r"[0-9.]+ *[a-z]*",
    "max_retries": r"[0-9]+",
    "region": r"auto|[a-z]{2}(-[a-z]+)+-[0-9]",
    "retry_timeout": r"[0-9.]+ *[a-z]*",
    "skip_signature": r"true|false",
    "timeout": r"[0-9.]+ *[a-z]*",
    "virtual_hosted_style_request": r"true|false",
}


def _shown(name: str, value: Any) -> Any:
    pattern = _PLAIN_OPTIONS.get(name)
    is_plain = pattern is not None and re.fullmatch(pattern, str(value).lower()) is not None
    return value if is_plain else "***"


def without_secrets(value: Any) -> Any:
    """Leave out what may be secret in storage options and in URLs."""
    if isinstance(value, Mapping):
        return {
            key: {name: _shown(name, option) for name, option in inner.items()}
            if key == "storage_options" and isinstance(inner, Mapping)
            else without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [without_secrets(inner) for inner in value]
    if isinstance(value, str):
        value = re.sub(r"(?<=://)[^\s'\"`/?#]*@", "", value)
        value = re.sub(r"(https?://[^\s'\"`?#]*)[?#][^\s'\"`]*", r"\1?…", value)
        # A `?` that no name and `=` follow is a pattern's.
        return re.sub(r"(s3a?://[^\s'\"`]*?\?(?=[\w.-]+=))[^\s'\"`]*", r"\1…", value)
    return value


def text_of(
    job: str | os.PathLike[str] | Mapping[str, Any] | Job,
    *,
    is_path: bool | None = None,
    source: SourceObject | None = None,
    sources: Mapping[str, SourceObject] | None = None,
    set: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, object] | None = None,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> JobText:
    """Give a job as the native module takes it."""
    objects: dict[str, object] = {}
    text: JobText = {
        "path": None,
        "text": "",
        "is_json": False,
        "origin": "job",
        "overrides": [(key, _toml_override(key, value)) for key, value in (set or {}).items()],
        "storage_options": _options.storage(storage_options),
        "files": _options.paths(files),
        "objects": [],
    }
    if isinstance(job, Job):
        text["text"], text["is_json"] = json.dumps(job._tree), True
        objects = job._objects
    elif isinstance(job, Mapping):
        tree, objects = _without_objects(job)
        text["text"], text["is_json"] = json.dumps(_plain(tree, "job")), True
    elif is_path is False or (is_path is None and isinstance(job, str) and "\n" in job):
        text["text"] = str(job)
    else:
        text["path"] = os.fspath(job)
    if source is not None:
        objects = {**objects, _ONLY_SOURCE: source}
    if sources is not None:
        objects = {**objects, **sources}
    text["objects"] = _formats.objects(objects, frozenset())
    if isinstance(job, Job):
        for named in text["objects"]:
            # A mark that only the job keeps: of an object to which there are no weak references.
            name = named["name"]
            if named["read_mark"] is not None and objects[name] is job._objects.get(name):
                named["read_mark"] = job._marks[name]
    return text


#: The name that stands for a job's only source.
_ONLY_SOURCE = "source"


def _without_objects(tree: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, object]]:
    """Take a source that is in memory out of a job's tree."""
    source = tree.get(_ONLY_SOURCE)
    if not (
        _formats.is_arrow(source)
        or _lazy_frames.is_lazy_frame(source)
        or hasattr(type(source), "iloc")
    ):
        return dict(tree), {}
    rest = {key: value for key, value in tree.items() if key != _ONLY_SOURCE}
    return rest, {_ONLY_SOURCE: source}


def _marks_of(objects: Mapping[str, object]) -> dict[str, _tidemill.ReadMark]:
    """Give the marks of the objects that are read once."""
    marks = {name: _formats.read_mark(value) for name, value in objects.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


def _with_names(text: JobText, objects: Mapping[str, object]) -> JobText:
    """Have a job read by the names of its sources in memory, whose rows are left alone."""
    named: list[NamedObject] = [
        {"name": name, "object": None, "is_table": False, "read_mark": None} for name in objects
    ]
    text["objects"] = named
    return text


def _same(some: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """Return true if both hold the same objects."""
    return some.keys() == others.keys() and all(some[name] is others[name] for name in some)


def _plain(value: object, key: str) -> Any:
    """Copy a value as JSON has it, without what is none."""
    if isinstance(value, Mapping):
        below = {str(name): (f"{key}.{name}", entry) for name, entry in value.items()}
        return {
            name: _plain(entry, path.removeprefix("job."))
            for name, (path, entry) in below.items()
            if entry is not None
        }
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if key == "turbo.deadline" and not isinstance(value, bool):
        value = _options.seconds(key, value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"`{key}` is no text: {error}") from None
        return value
    if not isinstance(value, bool | int | str) and hasattr(type(value), "__index__"):
        return operator.index(cast(SupportsIndex, value))
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(entry, key) for entry in value if entry is not None]
    shown = repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
    hint = ""
    if _formats.is_arrow(value) or hasattr(type(value), "iloc"):
        hint = "\nhint: a table in memory is given to run(source=…), or run(sources={name: …})"
    raise UsageError(f"`{key}` cannot be {shown}{hint}")


def _canonical(tree: dict[str, Any]) -> str:
    """Write the same for jobs that say the same."""

    def section(value: dict[str, Any]) -> dict[str, Any]:
        one_or_several = {
            key: [entry] if key == "null" and isinstance(entry, str) else entry
            for key, entry in value.items()
        }
        return {
            key: section(entry) if isinstance(entry, dict) else entry
            for key, entry in sorted(one_or_several.items())
        }

    same = {key: section(value) for key, value in tree.items() if isinstance(value, dict)}
    sources = tree.get("source", [])
    same["source"] = {"list": [section(one) for one in _listed(sources)]}
    if "tables" in tree:
        # Its columns are in the order of the result.
        columns = [entry for entry in tree["tables"].items() if entry[0] != "by"]
        same["tables"] = {"by": _listed(tree["tables"].get("by", [])), "columns": columns}
    return json.dumps([tree.get("name"), sorted(same.items())])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _toml_lines(table: dict[str, Any]) -> str:
    return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in table.items())


def _toml_key(key: str) -> str:
    is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else _toml_scalar(key)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        entries = ", ".join(f"{_toml_key(key)} = {_toml(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    if isinstance(value, str) and "\n" in value and "'''" not in value:
        is_plain = all(c in "\n\t" or (c.isprintable() and c != "\x7f") for c in value)
        if is_plain:
            return f"'''\n{value}'''"
    return _toml_scalar(value)


def _toml_scalar(value: object) -> str:
    # JSON's scalars are TOML's, but for one character that JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_override(key: str, value: object) -> str:
    return _toml(_plain(value, key))


def carry_out(
    job: str | os.PathLike[str] | Mapping[str, Any] | Job,
    *,
    source: SourceObject | None,
    sources: Mapping[str, SourceObject] | None,
    set: Mapping[str, Any] | None,
    output: str | os.PathLike[str] | None,
    format: str | None,
    compression: str | None,
    overwrite: bool | None,
    max_files: int | None,
    sink_exec: str | Sequence[str],
    no_header: bool,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    partial: str | os.PathLike[str] | None,
    storage_options: Mapping[str, object] | None,
    read_block: str | int | None,
    read_window: str | int | None,
    read_memory: str | int | None,
    read_cache: str | int | None,
    read_cache_dir: str | os.PathLike[str] | None,
    memory: str | int | None,
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    threads: int | None,
    priority: str | None,
    max_bad: str | int | None,
    deadline: _options.Deadline | None,
    drop: _options.Share | None,
    error: _options.Share | None,
    sample: _options.Share | None,
    find: int | None,
    seed: int | None,
    confidence: _options.Share | None,
    split_bytes: str | int | None,
    as_seen: bool,
    no_intervals: bool,
    on: str | None,
    max_attempts: int | None,
    scratch: str | os.PathLike[str] | None,
    scratch_above: str | int | None,
    progress: bool | None,
) -> Result | Written:
    """Run a job, for `run` and `Job.run`."""
    reading = _options.read_ahead(
        storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
    )
    text = text_of(
        job, source=source, sources=sources, set=set, storage_options=reading, files=files
    )
    limits = _options.limits(
        memory, threads, max_bad, progress, spill_dir=spill_dir, priority=priority
    )
    turbo = _options.turbo(
        deadline=deadline,
        drop=drop,
        error=error,
        sample=sample,
        find=find,
        seed=seed,
        confidence=confidence,
        split_bytes=split_bytes,
        as_seen=as_seen,
        no_intervals=no_intervals,
    )
    _formats.refuse_read_streams(text["objects"])
    if partial is not None:
        only_partial(output, format, compression, max_files, sink_exec, no_header)
        written = _tidemill.run_partial(
            text,
            os.fspath(partial),
            bool(overwrite),
            limits,
            turbo,
            _options.on(on, memory, max_attempts, scratch, scratch_above),
        )
        return Written._of(written)
    sink = _options.sink(
        output=output,
        format=format,
        compression=compression,
        overwrite=overwrite,
        max_files=max_files,
        sink_exec=sink_exec,
        no_header=no_header,
        storage_options=storage_options,
    )
    where = _options.on(on, memory, max_attempts, scratch, scratch_above)
    return result_or_written(_tidemill.run(text, sink, limits, turbo, where))


def result_or_written(done: _tidemill.RawResult | _tidemill.RawWritten) -> Result | Written:
    """Give what a run has come to."""
    return Written._of(done) if isinstance(done, _tidemill.RawWritten) else Result(done)


def only_partial(
    output: str | os.PathLike[str] | None,
    format: str | None,
    compression: str | None,
    max_files: int | None,
    sink_exec: str | Sequence[str],
    no_header: bool,
) -> None:
    """Refuse what a partial table has not."""
    given = {
        "output": output,
        "format": format,
        "compression": compression,
        "max_files": max_files,
        "sink_exec": sink_exec or None,
        "no_header": no_header or None,
    }
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"`{name}` means nothing with `partial`: a partial table is one file\n"
                "hint: merge() finishes it and writes the result"
            )
