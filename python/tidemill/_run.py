"""The verbs: ``query``, ``read_text``, ``head``, ``schema``, ``explain``, ``run``, ``merge``."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from tidemill import _formats, _job, _options, _parameters, _replacements, _tidemill
from tidemill._answers import Answers
from tidemill._errors import UsageError, encodable
from tidemill._explain import Explain
from tidemill._formats import SourceObject
from tidemill._job import Job
from tidemill._parameters import Params
from tidemill._result import Result, Written
from tidemill._schema import Schema, SourceSchema
from tidemill._tidemill import RawAnswers

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = str | os.PathLike[str]

_QUERY_OPTIONS = frozenset(_options.QueryWriting.__annotations__) | {"output", "progressive"}


@overload
def query(
    sql: str,
    *,
    params: Params | None = None,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
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
    output: None = None,
    progressive: Literal[False] = False,
    progress: bool | None = None,
    replacement_scans: bool | None = None,
    **objects: SourceObject,
) -> Result: ...
@overload
def query(
    sql: str,
    *,
    params: Params | None = None,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
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
    output: None = None,
    progressive: Literal[True],
    progress: bool | None = None,
    replacement_scans: bool | None = None,
    **objects: SourceObject,
) -> Answers: ...
@overload
def query(
    sql: str,
    *,
    params: Params | None = None,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
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
    output: Path,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    progressive: Literal[False] = False,
    progress: bool | None = None,
    replacement_scans: bool | None = None,
    **objects: SourceObject,
) -> Written: ...


# An object may be called as an option is, as far as types can tell.
def query(  # type: ignore[misc]  # pyright: ignore[reportInconsistentOverload]
    sql: str,
    *,
    params: Params | None = None,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
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
    output: Path | None = None,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    progressive: bool = False,
    progress: bool | None = None,
    replacement_scans: bool | None = None,
    **objects: SourceObject,
) -> Result | Written | Answers:
    r"""Answer SQL straight over files, and over what is in memory.

    The query is planned when this returns, and computed in the background from then on.

    Parameters
    ----------
    sql : str
        One ``SELECT``. A file, a URL, a pattern, a folder or ``-`` (standard input) stands in
        single quotes where SQL has a table: ``FROM 'logs/*.json.zst'``,
        ``FROM 's3://bucket/logs/*.csv'``. Or ``COPY (SELECT …) TO 'out.parquet'``, which writes
        the rows as ``output`` does.
    params : mapping or sequence, optional
        Values for ``:name`` and ``$name`` by their names, or for ``?`` and ``$1`` in their order:
        None, bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, `Interval`,
        and lists of these, of which one behind ``IN`` is what is looked among. A value is never
        read as SQL.
    source_format : str, optional
        ``csv``, ``tsv``, ``json``, ``access-log``, ``syslog``, ``logfmt``, ``parquet``,
        ``arrow``, ``avro``, ``rowfile`` or ``lines`` where the suffix does not tell.
    schema : str, mapping or Schema, optional
        Column types that override the inferred ones: ``"id BIGINT, ts TIMESTAMP"``, or
        ``{"id": "BIGINT"}``.
    layouts : str, optional
        Whether the files may have different columns: ``union`` (the default: they are unified by
        name) or ``same`` (only the first file is looked at beforehand).
    promote : str or sequence of str, optional
        Columns whose records' fields become columns: of a struct, or of JSON in a string;
        ``"input=in_"`` puts ``in_`` before their names.
    recover : bool, optional
        Whether to read every whole block of a rowfile that is damaged or was cut off; the coverage
        is not complete then, and says what was left out. Default: such a file is an error.
    null : str or sequence of str
        Strings that mean null, besides the empty field.
    header : bool, optional
        Whether the first record names the columns. Default: true.
    delimiter, quote, escape, comment : str, optional
        Single characters; ``quote=""`` turns quoting off.
    skip_lines : int, optional
        Lines at the beginning of each file that are neither header nor records, whatever is in
        them: titles above a header. Default: 0.
    header_row : int, optional
        The line of each file that names the columns, the first being 1; those above it are
        skipped. Not together with ``skip_lines``. Default: the first.
    strict : bool, optional
        Whether the grammar of JSON values that are not read is checked too. Default: false.
    mismatch : str, optional
        What to do with a value of text that is not of its column's type: ``error`` (the
        default: its record is malformed) or ``null``. The values that became null are counted, in a
        warning and in the coverage's ``mismatches``.
    framing : str, optional
        How the records of a system log are told apart: ``lines`` (the default) or ``octets``
        (each begins with its length).
    log_format : str, optional
        What the lines of an access log look like: Apache's ``LogFormat`` or nginx's
        ``log_format`` as it stands in the server's configuration, named patterns
        (``%{IP:ip} %{INT:ms:int}``), or a nickname such as ``vhost_combined``. Default: a sample
        tells.
    source_exec : str or sequence of str, optional
        A program that each file's bytes go through before they are read, and its arguments.
    files : path or sequence of paths, optional
        Files and URLs that the programs of ``source_exec`` and ``sink_exec`` find by the last part
        of their names. Each run of a program then has a working folder of its own. A cluster is
        given them once a machine.
    storage_options : mapping, optional
        How ``s3://``, ``http://`` and ``https://`` are reached, beyond what the environment's
        ``AWS_*`` variables say: ``{"region": "eu-west-1", "timeout": "10s"}``.
    read_block, read_window, read_memory : str or int, optional
        How far these are read ahead: what a request fetches (default: ``"8M"``), how far ahead of a
        place (``"256M"``), and the memory for all of it (a sixteenth of ``memory``). The first two
        may be ``"auto"``: what the runs before on the same bucket or server suggest.
    read_cache : str or int, optional
        How much of what was fetched is kept on a disk, for later runs: ``"10G"``. Default: nothing.
    read_cache_dir : path or str, optional
        The folder that it is kept in. Default: ``tidemill/objects`` in the user's cache folder.
    memory : str or int, optional
        The memory budget: ``"512M"``, ``"50%"``, or bytes. Default: half of the machine's.
    spill_dir : path, str, or sequence of these, optional
        Folders that take what does not fit memory: what is spilled goes round them, and one that is
        full is left out. Default: the temporary folder (``TMPDIR``, else ``/tmp``).
    threads : int, optional
        Default: the machine's cores.
    priority : str, optional
        Which runs on this machine go first: ``"high"`` before ``"normal"`` before ``"low"``, which
        takes only the cores that the others leave. Default: ``"normal"``.
    max_bad : str or int, optional
        How many malformed records to skip: ``100`` or ``"1%"``. Default: none.
    deadline : str, number or timedelta, optional
        Answer within this time of the call, by what was read until then: ``"7s"``, or seconds.
        With this and the next three the answer may rest on a part of the input: counts and sums are
        scaled up to the whole, and ``x_low`` and ``x_high`` stand behind each column ``x`` that is
        an estimate. ``result.coverage["complete"]`` is false then.
    drop : str or float, optional
        Leave out up to this share of the bytes, ``"10%"`` or ``0.1``: those that are the last to
        come, and what cannot be read.
    error : str or float, optional
        Read until every interval that is shown is within this share of its number.
    sample : str or float, optional
        Read this share of the input, drawn at random.
    find : int, optional
        Give the first so many rows that are found anywhere, in no order; of a query that does not
        group.
    seed : int, optional
        What the drawing begins with; equal seeds read the same splits in the same order.
        Default: 0.
    confidence : str or float, optional
        The share of all intervals that hold the exact number. Default: ``"95%"``.
    split_bytes : str or int, optional
        The bytes of a split. Default: a 4096th of the input, from 16 KiB to 1 MiB.
    as_seen : bool, optional
        Give the counts and sums of what was seen, not scaled up to the whole.
    no_intervals : bool, optional
        Leave out the columns of bounds.
    on : str, optional
        Read on a Ray cluster: ``ray://host:port``, or ``ray`` for the one that ``RAY_ADDRESS``
        names or that the process is connected to, or else one that is started here; ``auto`` is
        ``ray``, but what cannot run there runs here, with a warning. ``memory`` is each worker's
        then. Needs ``pip install tidemill[ray]``. Or have a master run it, without Ray here:
        ``http://host:port``, or ``master`` for the one that ``tidemill cluster up`` started on this
        machine. This process alone, if left out.
    max_attempts : int, optional
        With ``on``: fail once so many workers ended over the same splits. Default: 4.
    scratch : path or str, optional
        With ``on``: where tables and rows go that are too many to be sent, on their way from worker
        to worker: a folder that all machines see, or ``s3://bucket/prefix``. What is put there is
        removed in the end. Default: the first of ``spill_dir`` where all workers are on this
        machine; else none, and all pass this process.
    scratch_above : str or int, optional
        With ``on``: a task's tables and rows of more go by way of ``scratch``. Default:
        ``"4 MiB"``.
    output : path or str, optional
        Write the result to a file, or to one file per value with columns in braces:
        ``"out/{day}.csv"``.
    format : str, optional
        How ``output`` is written: ``csv``, ``tsv``, ``json``, ``parquet``, ``arrow``, ``avro``,
        ``rowfile`` or ``text``. Default: what its suffix says.
    compression : str, optional
        How ``output`` is compressed, as far as its format has it: ``none``, ``gzip``, ``zstd``,
        ``bzip2``, ``xz``, ``snappy``, ``brotli``, ``lz4`` or ``deflate``, with a level if wanted:
        ``zstd:9``. Default: what the suffix says of text (``out.csv.gz``), zstd in Parquet and
        rowfiles, deflate in Avro.
    overwrite : bool, optional
        Replace existing files of the names that are written. Default: false.
    max_files : int, optional
        The most files that a name with columns may stand for. Default: 10,000.
    sink_exec : str or sequence of str, optional
        A program that each file's bytes go through once they are in the format, and its
        arguments.
    no_header : bool, optional
        Leave the names of columns out of ``csv``, ``tsv`` and ``text``. Default: false.
    progressive : bool, optional
        Give the answers as they stand while the query runs, one after the other, the last of which
        is the result: ``for answer in tm.query(sql, progressive=True)``. Default: false.
    progress : bool, optional
        Show how far the run is while it is waited for. Default: in a notebook and where
        standard error is a terminal, after half a second.
    replacement_scans : bool, optional
        Whether a table that is neither a file nor among ``objects`` may be a variable of the
        caller's: ``FROM df``. Default: true, unless the environment has
        ``TIDEMILL_REPLACEMENT_SCANS=off``.
    **objects
        Sources by name: tables and streams of Arrow, pandas, Polars, DuckDB, a `Result`, or
        whatever else exports Arrow's stream: ``tm.query("SELECT … FROM df", df=df)``. Their rows
        are shared, not copied. A stream is read once. A LazyFrame of Polars is a stream that Polars
        computes, in batches, while it is read. A list of dicts is a table too, and a dict of lists;
        their columns' types are found over all rows.

    Returns
    -------
    Result, Written or Answers
        `Written` once the files are in place, with ``output`` and of a ``COPY … TO``; `Answers`
        with ``progressive``; otherwise a `Result`.

    Raises
    ------
    UsageError
        For SQL or options that cannot be carried out.
    NotFoundError
        If a file is not there.
    OutputExistsError
        If ``output`` is there already.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,user\n/,ann\n/,bob\n/buy,ann\n")
    >>> result = tm.query(f"SELECT page, unique(user) AS users FROM '{path}' GROUP BY page "
    ...                   "ORDER BY page")
    >>> result.to_pylist()
    [{'page': '/', 'users': 2}, {'page': '/buy', 'users': 1}]
    >>> result.coverage["rows"]["done"]
    3

    A file joined with a table in memory:

    >>> names = pyarrow.table({"page": ["/", "/buy"], "name": ["start", "shop"]})
    >>> sql = f"SELECT name, count() AS hits FROM '{path}' JOIN names USING (page) GROUP BY name"
    >>> sorted(row["name"] for row in tm.query(sql).to_pylist())
    ['shop', 'start']

    Values beside the SQL, and rows that are Python's own:

    >>> rows = [{"user": "ann", "age": 31}, {"user": "bob", "age": None}]
    >>> tm.query("SELECT user FROM rows WHERE age > :age", params={"age": 30}).to_pylist()
    [{'user': 'ann'}]
    """
    source = _options.source(
        source_format=source_format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=recover,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        files=files,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    sql, given = encodable(sql, "the SQL"), _parameters.given(params)
    sink = _options.sink(
        output=output,
        format=format,
        compression=compression,
        overwrite=overwrite,
        max_files=max_files,
        sink_exec=sink_exec,
        no_header=no_header,
        storage_options=storage_options,
        has_output=_tidemill.is_copy(sql),
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
    named = _formats.objects(objects, _QUERY_OPTIONS)
    if _replacements.are_wanted(replacement_scans):
        named += _replacements.found(sql, given, list(objects), sys._getframe(1))
    if progressive and output is not None:
        message = (
            "answers as they stand are not written: `progressive` and `output` do not go together"
        )
        raise UsageError(message)
    where = _options.on(on, memory, max_attempts, scratch, scratch_above)
    _formats.refuse_read_streams(named)
    done = _tidemill.query(sql, given, source, sink, limits, turbo, progressive, named, where)
    if isinstance(done, RawAnswers):
        return Answers(done)
    return _job.result_or_written(done)


def read_text(
    url: Path,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
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
    progress: bool | None = None,
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
    layouts : str, optional
        As in `query`.
    promote : str or sequence of str, optional
        As in `query`.
    schema, null, header, delimiter, quote, escape, comment, strict, mismatch : optional
        As in `query`.
    framing, log_format, skip_lines, header_row : optional
        As in `query`.
    source_exec : str or sequence of str, optional
        As in `query`.
    storage_options : mapping, optional
        As in `query`.
    memory, spill_dir, threads, priority, max_bad, progress : optional
        As in `query`.

    Returns
    -------
    Result

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.log")
    >>> _ = path.write_text('{"user": {"name": "ann", "id": 1}, "ms": 20}\n'
    ...                     '{"user": {"name": "bob", "id": 2}, "ms": 7}\n')
    >>> result = tm.read_text(path, columns=["user.name", "ms"], where="ms > 10", format="json")
    >>> result.to_pylist()
    [{'user.name': 'ann', 'ms': 20}]
    """
    source = _options.source(
        source_format=format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=False,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    limits = _options.limits(
        memory, threads, max_bad, progress, spill_dir=spill_dir, priority=priority
    )
    wanted = None if columns is None else list(columns)
    return Result(_tidemill.read_text(os.fspath(url), wanted, where, source, limits))


def head(
    url: Path,
    rows: int = 10,
    *,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: str | os.PathLike[str] | None = None,
    max_bad: str | int | None = None,
    progress: bool | None = None,
) -> Result:
    r"""Take the first rows of files.

    Parameters
    ----------
    url : path or str
        A file, a URL, a pattern, a folder or ``-`` (standard input).
    rows : int
        How many at most.
    layouts, recover : optional
        As in `query`.
    promote : str or sequence of str, optional
        As in `query`.
    source_format, schema, null, header, delimiter, quote, escape, comment, strict : optional
        As in `query`.
    skip_lines, header_row : optional
        As in `query`.
    mismatch, framing, log_format, source_exec, storage_options, max_bad, progress : optional
        As in `query`. A malformed record counts where it is read, which may be behind the last row.

    Returns
    -------
    Result

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,user\n/,ann\n/,bob\n/buy,ann\n")
    >>> tm.head(path, rows=1).to_pylist()
    [{'page': '/', 'user': 'ann'}]
    """
    if rows < 0:
        raise UsageError(f"`rows` must be at least 0, not {rows}")
    source = _options.source(
        source_format=source_format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=recover,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    limits = _options.limits(max_bad=max_bad, progress=progress)
    return Result(_tidemill.head(os.fspath(url), rows, source, limits))


def schema(
    url: Path,
    *,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    storage_options: Mapping[str, object] | None = None,
    read_block: str | int | None = None,
    read_window: str | int | None = None,
    read_memory: str | int | None = None,
    read_cache: str | int | None = None,
    read_cache_dir: str | os.PathLike[str] | None = None,
) -> SourceSchema:
    r"""Find the columns of files and their types.

    Parameters
    ----------
    url : path or str
        A file, a URL, a pattern, a folder or ``-`` (standard input).
    layouts, recover : optional
        As in `query`.
    promote : str or sequence of str, optional
        As in `query`.
    source_format, schema, null, header, delimiter, quote, escape, comment, strict : optional
        As in `query`.
    skip_lines, header_row : optional
        As in `query`.
    mismatch, framing, log_format, source_exec, storage_options : optional
        As in `query`.

    Returns
    -------
    SourceSchema
        The columns, and the files' ``format``, number and size.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,ms\n/,7\n/buy,12\n")
    >>> found = tm.schema(path)
    >>> dict(found), found.format, found.bytes
    ({'page': 'TEXT', 'ms': 'BIGINT'}, 'csv', 20)
    >>> tm.query(f"SELECT sum(ms) AS ms FROM '{path}'", schema=found).to_pylist()
    [{'ms': 19}]
    """
    source = _options.source(
        source_format=source_format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=recover,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    path = os.fspath(url)
    return SourceSchema(path, _tidemill.schema(path, source))


def explain(
    sql: str,
    *,
    params: Params | None = None,
    source_format: str | None = None,
    schema: str | Mapping[str, str] | Schema | None = None,
    layouts: str | None = None,
    promote: str | Sequence[str] = (),
    recover: bool = False,
    null: str | Sequence[str] = (),
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    escape: str | None = None,
    comment: str | None = None,
    skip_lines: int | None = None,
    header_row: int | None = None,
    strict: bool | None = None,
    mismatch: str | None = None,
    framing: str | None = None,
    log_format: str | None = None,
    source_exec: str | Sequence[str] = (),
    files: Path | Sequence[Path] = (),
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
    cluster: str | None = None,
    on: str | None = None,
    max_attempts: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    scratch_above: str | int | None = None,
    replacement_scans: bool | None = None,
    **objects: SourceObject,
) -> Explain:
    r"""Say how SQL would be run, and do not run it.

    The parameters are those of `query`; of a job, `Job.explain` says the same.

    Parameters
    ----------
    cluster : str, optional
        What the query would take on so many cores and disks, such as ``"cores=1000,disks=200"``;
        also ``disk=200MB/s``, ``machines=32``, ``network=1.25GB/s`` of each machine, ``bytes=1TB``
        and ``groups=1e6``. For that it is run for about a second, over a sample of its input.

    Returns
    -------
    Explain

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,ms\n/,7\n/buy,12\n")
    >>> plan = tm.explain(f"SELECT page, sum(ms) FROM '{path}' GROUP BY page")
    >>> plan.path, plan.mergeable, list(plan.steps)
    ('partial tables', True, ['map', 'tables', 'finish'])
    >>> print(str(plan).splitlines()[0])
    path: partial tables (one aggregation over one source)

    What it would take on a cluster is measured here, so that it is another each time.

    >>> sql = f"SELECT page, sum(ms) FROM '{path}' GROUP BY page"
    >>> plan = tm.explain(sql, cluster="cores=1000,disks=200")
    >>> [(outlook["bytes"], outlook["cores"]) for outlook in plan.forecast["outlooks"][:2]]
    [(20, 1000), (1000000000000, 1000)]
    """
    source = _options.source(
        source_format=source_format,
        schema=schema,
        layouts=layouts,
        promote=promote,
        recover=recover,
        null=null,
        header=header,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        comment=comment,
        skip_lines=skip_lines,
        header_row=header_row,
        strict=strict,
        mismatch=mismatch,
        framing=framing,
        log_format=log_format,
        source_exec=source_exec,
        files=files,
        storage_options=_options.read_ahead(
            storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir
        ),
    )
    limits = _options.limits(memory, threads, max_bad, spill_dir=spill_dir)
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
    sql, given = encodable(sql, "the SQL"), _parameters.given(params)
    named = _formats.objects(objects, _QUERY_OPTIONS)
    if _replacements.are_wanted(replacement_scans):
        named += _replacements.found(sql, given, list(objects), sys._getframe(1))
    where = _options.on(on, memory, max_attempts, scratch, scratch_above)
    explained = _tidemill.explain_query(sql, given, source, limits, turbo, named, cluster, where)
    return Explain._of(*explained)


@overload
def run(
    job: Path | Mapping[str, Any] | Job,
    *,
    output: None = None,
    partial: None = None,
    **options: Unpack[_options.JobWriting],
) -> Result | Written: ...
@overload
def run(
    job: Path | Mapping[str, Any] | Job,
    *,
    output: Path,
    partial: None = None,
    **options: Unpack[_options.JobWriting],
) -> Written: ...
@overload
def run(
    job: Path | Mapping[str, Any] | Job,
    *,
    output: None = None,
    partial: Path,
    **options: Unpack[_options.JobWriting],
) -> Written: ...


def run(
    job: Path | Mapping[str, Any] | Job,
    *,
    source: SourceObject | None = None,
    sources: Mapping[str, SourceObject] | None = None,
    set: Mapping[str, Any] | None = None,
    output: Path | None = None,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    files: Path | Sequence[Path] = (),
    partial: Path | None = None,
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
    r"""Run a job: a source, a map, tables and a sink.

    Parameters
    ----------
    job : path, str, mapping or Job
        The path of a job file; its text, if a ``str`` has a line break in it; the same
        tree as a mapping; or a `Job`.
    source : table or stream, optional
        What is read in the place of the job's only source, whatever that is called: a table or
        stream in memory, as in `query`. A job without a ``source`` may be given one.
    sources : mapping, optional
        The same of several by their names: ``{"users": df}`` takes the place of the source
        ``users``, or is the table that the map calls so.
    set : mapping, optional
        Keys of the job to replace: ``{"source.url": "logs/2026-12-*"}``.
    output : path or str, optional
        Where the result goes instead of the job's ``sink.url``.
    format, compression, overwrite, max_files, sink_exec : optional
        As in the job's ``[sink]``.
    no_header : bool, optional
        As in `query`; ``header = false`` in the job's ``[sink]``.
    files : path or sequence of paths, optional
        As in `query`, beside the job's ``files``.
    partial : path or str, optional
        Write the partial table to this file, for `merge`, instead of the result.
    storage_options : mapping, optional
        As in `query`, for the job's sources and its sink, over what the job says.
    memory, spill_dir, threads, priority, max_bad : optional
        As in the job's ``[run]``, and as in `query`.
    deadline, drop, error, sample, find, seed, confidence, split_bytes : optional
        As in the job's ``[turbo]``, and as in `query`.
    as_seen, no_intervals : bool, optional
        As in the job's ``[turbo]``, and as in `query`.
    on : str, optional
        As in `query`.
    max_attempts, scratch, scratch_above : optional
        As in the job's ``[run]``, and as in `query`.
    progress : bool, optional
        As in `query`.

    Returns
    -------
    Written or Result
        `Written` once the files are in place, if the job or ``output`` names a sink, or with
        ``partial``; otherwise a `Result`.

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

    Over a table in memory:

    >>> hits = {"page": ["/", "/", "/buy"], "user": ["ann", "bob", "ann"]}
    >>> tm.run({"tables": {"by": ["page"], "users": "unique(user)"}}, source=hits).fetchall()
    [('/', 2), ('/buy', 1)]
    """
    return _job.carry_out(
        job,
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


def _files(partial: Path) -> list[str]:
    """Name the files that a path or a pattern stands for; itself, if there are none."""
    path = os.fspath(partial)
    if isinstance(partial, str) and glob.has_magic(path) and not os.path.exists(path):
        return sorted(glob.glob(path)) or [path]
    return [path]


@overload
def merge(
    partials: Path | Sequence[Path],
    *,
    output: None = None,
    partial: None = None,
    allow_repeats: bool = False,
    **options: Unpack[_options.Limits],
) -> Result: ...
@overload
def merge(
    partials: Path | Sequence[Path],
    *,
    output: Path,
    partial: None = None,
    allow_repeats: bool = False,
    **options: Unpack[_options.MergeWriting],
) -> Written: ...
@overload
def merge(
    partials: Path | Sequence[Path],
    *,
    output: None = None,
    partial: Path,
    allow_repeats: bool = False,
    **options: Unpack[_options.MergeWriting],
) -> Written: ...


def merge(
    partials: Path | Sequence[Path],
    *,
    output: Path | None = None,
    format: str | None = None,
    compression: str | None = None,
    overwrite: bool | None = None,
    max_files: int | None = None,
    sink_exec: str | Sequence[str] = (),
    no_header: bool = False,
    partial: Path | None = None,
    allow_repeats: bool = False,
    storage_options: Mapping[str, object] | None = None,
    memory: str | int | None = None,
    spill_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    threads: int | None = None,
    priority: str | None = None,
    progress: bool | None = None,
) -> Result | Written:
    r"""Merge partial tables, all from the same job, and finish them.

    Parameters
    ----------
    partials : path or sequence of paths
        What ``run(job, partial=…)`` or ``tidemill run JOB --partial`` has written. Text with ``*``,
        ``?`` or ``[…]`` that is no file's name is a pattern, of all such files by their names.
    output, format, compression, overwrite, max_files, sink_exec, storage_options : optional
        As in `query`.
    no_header : bool, optional
        As in `query`.
    partial : path or str, optional
        Write one partial table of them all to this file, instead of the result.
    allow_repeats : bool, default False
        Whether the rows of one run may be in several of the tables, and count as often.
    memory, spill_dir, threads, priority, progress : optional
        As in `query`.

    Returns
    -------
    Result or Written
        `Written` with ``output`` or ``partial``, otherwise a `Result`.

    Raises
    ------
    UsageError
        If two are not of the same job, or hold the rows of one run.
    CorruptFileError
        If a file is no partial table.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> job = tm.Job(
    ...     source={"url": folder / "hits.csv"}, tables={"by": "page", "users": "unique(user)"}
    ... )
    >>> for day, users in [("monday", "ann\n/,bob"), ("tuesday", "bob\n/,eve")]:
    ...     _ = (folder / f"{day}.csv").write_text(f"page,user\n/,{users}\n")
    ...     url = {"source.url": str(folder / f"{day}.csv")}
    ...     _ = job.run(set=url, partial=folder / f"{day}.part")
    >>> tm.merge([folder / "monday.part", folder / "tuesday.part"]).to_pylist()
    [{'page': '/', 'users': 3}]
    """
    several = [partials] if isinstance(partials, str | os.PathLike) else partials
    paths = [path for one in several for path in _files(one)]
    limits = _options.limits(
        memory, threads, progress=progress, spill_dir=spill_dir, priority=priority
    )
    if partial is not None:
        _job.only_partial(output, format, compression, max_files, sink_exec, no_header)
        written = _tidemill.merge_partial(
            paths, bool(allow_repeats), os.fspath(partial), bool(overwrite), limits
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
        has_output=False,
    )
    return _job.result_or_written(_tidemill.merge(paths, bool(allow_repeats), sink, limits))
