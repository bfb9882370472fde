"""The verbs: ``query``, ``read_text`` and ``run``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill import _tidemill
from tidemill._errors import UsageError
from tidemill._result import Result, Written


def query(
    sql: str,
    *,
    source_format: str | None = None,
    schema: str | None = None,
    layouts: str | None = None,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    max_bad: str | int | None = None,
) -> Result:
    r"""Answer SQL straight over files.

    The query is planned when this returns, and computed in the background from then on.

    Parameters
    ----------
    sql : str
        One ``SELECT``. A file, a URL, a pattern, a folder or ``-`` (standard input) stands in
        single quotes where SQL has a table: ``FROM 'logs/*.json.zst'``,
        ``FROM 's3://bucket/logs/*.csv'``.
    source_format : str, optional
        ``csv``, ``tsv``, ``json``, ``access-log``, ``syslog``, ``logfmt``, ``parquet`` or
        ``lines`` where the suffix does not tell.
    schema : str, optional
        Column types that override the inferred ones: ``"id BIGINT, ts TIMESTAMP"``.
    layouts : str, optional
        Whether the files may have different columns: ``union`` (the default: they are unified by
        name) or ``same`` (only the first file is looked at beforehand).
    null : str or sequence of str
        Strings that mean null, besides the empty field.
    header : bool, optional
        Whether the first record names the columns. Default: true.
    delimiter, quote, escape, comment : str, optional
        Single characters; ``quote=""`` turns quoting off.
    strict : bool, optional
        Whether the grammar of JSON values that are not read is checked too. Default: false.
    mismatch : str, optional
        What to do with a value of text that is not of its column's type: ``error`` (the
        default: its record is malformed) or ``null``.
    framing : str, optional
        How the records of a system log are told apart: ``lines`` (the default) or ``octets``
        (each begins with its length).
    storage_options : mapping, optional
        How ``s3://``, ``http://`` and ``https://`` are reached, beyond what the environment's
        ``AWS_*`` variables say: ``{"region": "eu-west-1", "timeout": "10s"}``.
    memory : str or int, optional
        The memory budget: ``"512M"``, ``"50%"``, or bytes. Default: half of the machine's.
    threads : int, optional
        Default: the machine's cores.
    max_bad : str or int, optional
        How many malformed records to skip: ``100`` or ``"1%"``. Default: none.

    Returns
    -------
    Result

    Raises
    ------
    UsageError
        For SQL or options that cannot be carried out.
    NotFoundError
        If a file is not there.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,user\n/,ann\n/,bob\n/buy,ann\n")
    >>> result = tm.query(f"SELECT page, unique(user) AS users FROM '{path}' GROUP BY page "
    ...                   "ORDER BY page")
    >>> pyarrow.table(result).to_pylist()
    [{'page': '/', 'users': 2}, {'page': '/buy', 'users': 1}]
    >>> result.coverage["rows"]["done"]
    3
    """
    source = _source(
        source_format,
        schema,
        layouts,
        null,
        header,
        delimiter,
        quote,
        escape,
        comment,
        strict,
        mismatch,
        framing,
        storage_options,
    )
    return Result(_tidemill.query(sql, source, _limits(memory, threads, max_bad)))


def read_text(
    url: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    format: str | None = None,
    schema: str | None = None,
    layouts: str | None = None,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    max_bad: str | int | None = None,
) -> Result:
    r"""Read log text as an Arrow stream, its rows in the order of the input.

    Only the columns asked for are parsed.

    Parameters
    ----------
    url : path or str
        A file, a URL, a pattern, a folder or ``-`` (standard input); ``.gz .zst .bz2 .xz`` are
        decompressed.
    columns : sequence of str, optional
        Names, in the order wanted; ``"a.b"`` is field ``b`` of column ``a``. Default: all.
    where : str, optional
        A condition in SQL: rows that do not fulfil it are left out, mostly before they are
        parsed.
    format : str, optional
        ``csv``, ``tsv``, ``json``, ``access-log``, ``syslog``, ``logfmt`` or ``lines`` where
        the suffix does not tell.
    schema, layouts, null, header, delimiter, quote, escape, comment, strict, mismatch, framing : optional
        As in `query`.
    storage_options : mapping, optional
        As in `query`.
    memory, threads, max_bad : optional
        As in `query`.

    Returns
    -------
    Result

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.log")
    >>> _ = path.write_text('{"user": {"name": "ann", "id": 1}, "ms": 20}\n'
    ...                     '{"user": {"name": "bob", "id": 2}, "ms": 7}\n')
    >>> result = tm.read_text(path, columns=["user.name", "ms"], where="ms > 10", format="json")
    >>> pyarrow.table(result).to_pylist()
    [{'user.name': 'ann', 'ms': 20}]
    """
    path = os.fspath(url)
    source = _source(
        format,
        schema,
        layouts,
        null,
        header,
        delimiter,
        quote,
        escape,
        comment,
        strict,
        mismatch,
        framing,
        storage_options,
    )
    limits = _limits(memory, threads, max_bad)
    wanted = None if columns is None else list(columns)
    return Result(_tidemill.read_text(path, wanted, where, source, limits))


def _source(
    source_format: str | None,
    schema: str | None,
    layouts: str | None,
    null: str | Sequence[str],
    header: bool | None,
    delimiter: str | None,
    quote: str | None,
    escape: str | None,
    comment: str | None,
    strict: bool | None,
    mismatch: str | None,
    framing: str | None,
    storage_options: Mapping[str, object] | None,
) -> dict[str, Any]:
    return {
        "source_format": source_format,
        "schema": schema,
        "layouts": layouts,
        "null": [null] if isinstance(null, str) else list(null),
        "header": header,
        "delimiter": _character("delimiter", delimiter),
        "quote": _character("quote", quote) if quote else None,
        "quoted": None if quote is None else quote != "",
        "escape": _character("escape", escape),
        "comment": _character("comment", comment),
        "strict": strict,
        "mismatch": mismatch,
        "framing": framing,
        "storage_options": _storage(storage_options),
    }


def _storage(options: Mapping[str, object] | None) -> list[tuple[str, str]]:
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


def run(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,
    output: str | os.PathLike[str] | None = None,
    format: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    max_bad: str | int | None = None,
) -> Result | Written:
    r"""Run a job: a source, a map, tables and a sink.

    Parameters
    ----------
    job : path, str or mapping
        The path of a job file; its text, if a ``str`` has a line break in it; or the same
        tree as a mapping.
    set : mapping, optional
        Keys of the job to replace: ``{"source.url": "logs/2026-12-*"}``.
    output : path or str, optional
        Where the result goes instead of the job's ``sink.url``.
    format, overwrite, max_files : optional
        As in the job's ``[sink]``.
    storage_options : mapping, optional
        As in `query`, for the job's sources and its sink, over what the job says.
    memory, threads, max_bad : optional
        As in the job's ``[run]``, and as in `query`.

    Returns
    -------
    Written or Result
        `Written` once the files are in place, if the job or ``output`` names a sink;
        otherwise a `Result`.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hits.csv").write_text("page,user\n/,ann\n/,bob\n/buy,ann\n")
    >>> written = tm.run({
    ...     "source": {"url": str(folder / "hits.csv")},
    ...     "tables": {"by": ["page"], "users": "unique(user)"},
    ...     "sink": {"url": str(folder / "out" / "{page}.csv")},
    ... })
    >>> written.files, written.rows
    (2, 2)
    >>> sorted(path.name for path in (folder / "out").iterdir())
    ['%2F.csv', '%2Fbuy.csv']
    """
    path, text, is_json = None, "", False
    if isinstance(job, Mapping):
        text, is_json = json.dumps(job), True
    elif isinstance(job, str) and "\n" in job:
        text = job
    else:
        path = os.fspath(job)
    overrides = [(key, _toml(key, value)) for key, value in (set or {}).items()]
    sink = {
        "output": None if output is None else os.fspath(output),
        "format": format,
        "overwrite": overwrite,
        "max_files": max_files,
        "storage_options": _storage(storage_options),
    }
    limits = _limits(memory, threads, max_bad)
    done = _tidemill.run(path, text, is_json, overrides, sink, limits)
    return Written._of(done) if isinstance(done, _tidemill.RawWritten) else Result(done)


def _limits(
    memory: str | int | None, threads: int | None, max_bad: str | int | None
) -> dict[str, Any]:
    if threads is not None and threads < 1:
        raise UsageError(f"`threads` must be at least 1, not {threads}")
    return {
        "memory": None if memory is None else str(memory),
        "threads": threads,
        "max_bad": None if max_bad is None else str(max_bad),
    }


def _character(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if len(text) != 1 or not text.isascii():
        raise UsageError(f"`{name}` must be one ASCII character, not `{text}`")
    return ord(text)


def _toml(key: str, value: object) -> str:
    try:
        # JSON's scalars and lists are TOML's.
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise UsageError(f"`{key}` cannot be set to a {type(value).__name__}") from None
