"""Rowfiles: reading them as what they are, and writing them."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import IO, Any, NamedTuple

from tidemill import _lazy_frames, _options, _rowtypes, _tidemill
from tidemill._errors import UsageError
from tidemill._result import Batch, Result
from tidemill._schema import Schema
from tidemill._words import counted, human_bytes

Path = str | os.PathLike[str]

#: A file, or several.
Source = Path | IO[bytes] | Sequence[Path | IO[bytes]]


class RowFileBlock(NamedTuple):
    """A block of a rowfile.

    Attributes
    ----------
    offset : int
        Where it begins in the file.
    bytes : int
        Its bytes in the file.
    rows : int
        Its rows.
    first_row : int
        Rows of the file before it.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "one.rowfile")
    >>> _ = tm.query("SELECT 1 AS one", output=path)
    >>> (block,) = tm.read_rowfile(path).files[0].blocks
    >>> block.rows, block.first_row
    (1, 0)
    """

    offset: int
    bytes: int
    rows: int
    first_row: int


class RowFile:
    """What the header and the footer of a rowfile say.

    Attributes
    ----------
    path : str
        The path, as messages show it.
    bytes : int
        The file's size.
    num_rows : int
        All of its rows.
    schema : Schema
        Its columns.
    metadata : dict
        What its writer said about it.
    compression : str
        How its blocks are compressed: ``"zstd:1"``, ``"lz4"``, ``"none"``.
    blocks : list of RowFileBlock
        Its blocks.
    unfinished_bytes : int
        Bytes at its end of an append that is under way, or was killed. They are not read.
    damages : list of tuple
        Where it is damaged and how, looked for with ``recover=True`` only.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ids.rowfile")
    >>> with tm.RowFileWriter(path, tm.query("SELECT 1 AS id").schema) as writer:
    ...     writer.write({"id": id} for id in range(10))
    >>> (file,) = tm.read_rowfile(path).files
    >>> file
    RowFile(10 rows of id in 1 block, zstd:1)
    >>> file.statistics("id").to_pylist()
    [{'min': 0, 'max': 9, 'nulls': 0}]
    """

    def __init__(self, raw: _tidemill.RawRowfile) -> None:
        self._raw = raw
        self.path = raw.path
        self.bytes = raw.bytes
        self.num_rows = raw.num_rows
        self.schema = Schema(raw.schema)
        self.metadata = raw.metadata
        self.compression = raw.compression
        self.blocks = [RowFileBlock(*block) for block in raw.blocks]
        self.unfinished_bytes = raw.unfinished_bytes
        self.damages = raw.damages

    def statistics(self, column: str) -> Batch | None:
        """Give what the footer knows of a column, in a row for each block.

        Parameters
        ----------
        column : str
            Its name; of a field of a struct the path: ``"user.id"``.

        Returns
        -------
        Batch or None
            The columns ``min`` (no value is smaller), ``max`` (no value is larger; both null
            where nothing is known) and ``nulls`` (how many values are null). ``None`` for a column
            without an order, and if the writer kept none.

        Raises
        ------
        UsageError
            If there is no such column.
        """
        raw = self._raw.statistics(column)
        return None if raw is None else Batch(raw)

    def __repr__(self) -> str:
        """Show the columns and how much there is."""
        rows, blocks = counted(self.num_rows, "row"), counted(len(self.blocks), "block")
        return f"RowFile({rows} of {', '.join(self.schema.names)} in {blocks}, {self.compression})"

    def __str__(self) -> str:
        """Say it for people."""
        return f"{self.path}: {self!r}, {human_bytes(self.bytes)}"


class RowFileResult(Result):
    """The rows of rowfiles: a `Result`, and what is known of the files.

    A pickle of it holds the rows alone, and becomes a `Result`.

    Attributes
    ----------
    files : list of RowFile
        The files, in the order of their rows.
    num_rows : int
        The rows that are read.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ids.rowfile")
    >>> with tm.RowFileWriter(path, tm.query("SELECT 1 AS id").schema) as writer:
    ...     writer.write([{"id": 1}, {"id": 2}])
    >>> result = tm.read_rowfile(path)
    >>> result.num_rows
    2
    >>> result.to_pylist()
    [{'id': 1}, {'id': 2}]
    """

    def __init__(
        self,
        raw: _tidemill.RawResult,
        files: list[_tidemill.RawRowfile],
        num_rows: int,
        kind: type | None,
    ) -> None:
        super().__init__(raw)
        self.files = [RowFile(file) for file in files]
        self.num_rows = num_rows
        self._kind = kind

    def rows(self) -> Iterator[Any]:
        """Read the rows one by one.

        Returns
        -------
        iterator
            Instances of the dataclass that was given as ``schema``, else dictionaries.

        Examples
        --------
        >>> import dataclasses, pathlib, tempfile, tidemill as tm
        >>> @dataclasses.dataclass
        ... class Visit:
        ...     user: str
        ...     pages: list[str]
        >>> path = pathlib.Path(tempfile.mkdtemp(), "visits.rowfile")
        >>> with tm.RowFileWriter(path) as writer:
        ...     writer.write(Visit("ann", ["/", "/buy"]))
        >>> for visit in tm.read_rowfile(path, schema=Visit).rows():
        ...     print(visit)
        Visit(user='ann', pages=['/', '/buy'])
        """
        rows = (row for batch in self for row in batch.to_pylist())
        return rows if self._kind is None else map(_rowtypes.maker(self._kind), rows)


def read_rowfile(
    source: Source,
    *,
    columns: Sequence[str] | None = None,
    schema: object | None = None,
    recover: bool = False,
    blocks: Sequence[int] | None = None,
    byte_range: tuple[int, int] | None = None,
    batch_rows: int = 8192,
    storage_options: Mapping[str, object] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> RowFileResult:
    r"""Read rowfiles as what they are: with each type as it was written, or as a schema says.

    Headers and footers are read when this returns, and rows in the background from then on, by
    all cores, in their order. A query over the same files (``FROM 'events.rowfile'``) sees them as
    SQL does, and filters.

    Parameters
    ----------
    source : path, file or sequence of these
        A path, a URL (``s3://``, ``https://``), a pattern or a folder, a file object that is open
        in binary mode and can seek, or several of these.
    columns : sequence of str, optional
        Names of the columns wanted, in this order; no others are decoded. Default: all.
    schema : schema of Arrow's, dataclass or dict, optional
        What to read the rows as, by the names of its fields: fields that only the file has are
        skipped, ones that only the schema has take their default or null, and types widen. A
        dataclass stands for its fields (their defaults are the defaults, and `rows` gives its
        instances); a dict is a schema as the header of a file has it. In a ``pyarrow.Schema`` a
        field's metadata say more: ``rowfile.aliases`` and ``rowfile.default``, both JSON; see
        ``docs/rowfile.md``. Default: that of the first file.
    recover : bool, optional
        Whether to read every whole block of a file that is damaged or was cut off. What was left
        out is said by `Result.coverage`, which is not complete then. Default: such a file is an
        error.
    blocks : sequence of int, optional
        The blocks wanted of the one file, the first being 0.
    byte_range : tuple of int, optional
        Only blocks of the one file that begin in these bytes: ``(start, end)``. Ranges that follow
        one another read every row once.
    batch_rows : int, optional
        Rows of a batch at most.
    storage_options : mapping, optional
        How stores are reached, beyond what the environment says.
    threads : int, optional
        How many threads decode. Default: one for each core.
    progress : bool, optional
        Whether to show how far it is; by default, if it takes long and somebody looks.

    Returns
    -------
    RowFileResult

    Raises
    ------
    NotFoundError
        If there is no such file.
    CorruptFileError
        For what is no rowfile, is damaged, or was cut off.
    UsageError
        For a schema that the data cannot be read with, listing every conflict; for unknown columns.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "visits.rowfile")
    >>> _ = tm.query("SELECT 'ann' AS user, 7 AS pages, 1.5 AS seconds", output=path)
    >>> tm.read_rowfile(path, columns=["pages", "user"]).to_pylist()
    [{'pages': 7, 'user': 'ann'}]

    As a schema that came later:

    >>> import pyarrow as pa
    >>> schema = pa.schema([
    ...     pa.field("visitor", pa.string(), metadata={"rowfile.aliases": '["user"]'}),
    ...     pa.field("pages", pa.float64()),
    ...     pa.field("country", pa.string()),
    ... ])
    >>> tm.read_rowfile(path, schema=schema).to_pylist()
    [{'visitor': 'ann', 'pages': 7.0, 'country': None}]
    """
    if batch_rows < 1:
        raise UsageError(f"`batch_rows` must be at least 1, not {batch_rows}")
    many = isinstance(source, Sequence) and not isinstance(source, str)
    files = source if many else [source]
    raw, opened, num_rows = _tidemill.read_rowfile(
        [_file(file) for file in files],  # type: ignore[arg-type,union-attr]
        None if columns is None else _names(columns),
        None if schema is None else _rowtypes.given(schema),
        None if blocks is None else list(blocks),
        byte_range,
        batch_rows,
        recover,
        _options.storage(storage_options),
        _options.limits(threads=threads, progress=progress),
    )
    is_whole = columns is None and isinstance(schema, type) and _rowtypes.is_dataclass(schema)
    kind = schema if is_whole and isinstance(schema, type) else None
    return RowFileResult(raw, opened, num_rows, kind)


def _names(columns: Sequence[str]) -> list[str]:
    if isinstance(columns, str):
        raise UsageError(f"`columns` must be a list: columns=['{columns}']")
    return list(columns)


def _file(file: Path | IO[bytes]) -> tuple[str, object | None]:
    if isinstance(file, str | os.PathLike):
        return os.fspath(file), None
    if hasattr(file, "read") and hasattr(file, "seek"):
        name = getattr(file, "name", None)
        return name if isinstance(name, str) else f"<{type(file).__name__}>", file
    raise UsageError(
        f"a {type(file).__name__} is no file to read\n"
        'hint: give a path, a URL, a file opened with "rb", or several of these'
    )


class RowFileWriter:
    """Writes a rowfile, whole or not at all.

    Rows are gathered, and encoded and written a block at a time. The file appears at its place
    when the writer is closed; until then it has a name of its own beside it. The end of a ``with``
    block closes the writer; an exception in it leaves nothing, and a file that was appended to as
    it was. Of a process that is killed a hidden file stays (``.NAME.PROCESS-0.unfinished``), whose
    whole blocks ``read_rowfile(…, recover=True)`` reads.

    Parameters
    ----------
    path : str or path
        The file.
    schema : schema of Arrow's, dataclass or dict, optional
        The columns; see `read_rowfile`. Default: those of what is written first, which must be
        Arrow data or an instance of a dataclass then.
    compression : str, optional
        ``"zstd:1"`` to ``"zstd:22"``, ``"lz4"`` or ``"none"``. Default: ``"zstd:1"``, and that of
        the file if it is appended to.
    metadata : dict of str, optional
        What the header says besides.
    append : bool, optional
        Whether to add to the file if there is one. Readers see what is added when the writer is
        closed, and nothing of it before. One writer at a time may append.
    overwrite : bool, optional
        Whether to replace the file if there is one.
    block_bytes : int, optional
        Bytes of a block before compression, about. Default: 1 MiB.

    Raises
    ------
    OutputExistsError
        If there is a file, and neither ``append`` nor ``overwrite`` was asked for.
    InputOutputError
        If another writer is appending to the file, or the system refuses.
    CorruptFileError
        If what is appended to is no rowfile, or damaged.

    Examples
    --------
    Dataclasses, whose types say what the columns are:

    >>> import dataclasses, pathlib, tempfile, tidemill as tm
    >>> @dataclasses.dataclass
    ... class Visit:
    ...     user: str
    ...     pages: list[str]
    ...     seconds: float | None = None
    >>> path = pathlib.Path(tempfile.mkdtemp(), "visits.rowfile")
    >>> with tm.RowFileWriter(path) as writer:
    ...     writer.write(Visit("ann", ["/", "/buy"], 12.5))
    ...     writer.write([Visit("bob", [])])
    >>> tm.query(f"SELECT user, seconds FROM '{path}'").to_pylist()
    [{'user': 'ann', 'seconds': 12.5}, {'user': 'bob', 'seconds': None}]

    Arrow data of any kind, and more of it later:

    >>> import pyarrow as pa
    >>> path = path.with_name("ids.rowfile")
    >>> with tm.RowFileWriter(path, compression="lz4", metadata={"made": "by hand"}) as writer:
    ...     writer.write(pa.table({"id": [1, 2, 3]}))
    >>> with tm.RowFileWriter(path, append=True) as writer:
    ...     writer.write({"id": 4})
    >>> tm.read_rowfile(path).to_arrow()["id"].to_pylist()
    [1, 2, 3, 4]
    """

    def __init__(
        self,
        path: Path,
        schema: object | None = None,
        *,
        compression: str | None = None,
        metadata: Mapping[str, str] | None = None,
        append: bool = False,
        overwrite: bool = False,
        block_bytes: int = 1 << 20,
    ) -> None:
        self._raw: _tidemill.RawRowfileWriter | None = None
        self.path = os.fspath(path)
        if "://" in self.path:
            raise UsageError(
                f"`{self.path}` is not on this machine\n"
                "hint: tm.query(…, output=…) writes there; or write here and copy the file"
            )
        if append and overwrite:
            raise UsageError("`append` adds to a file, `overwrite` replaces it; give one of them")
        if block_bytes < 1:
            raise UsageError(f"`block_bytes` must be at least 1, not {block_bytes}")
        self._raw = _tidemill.RawRowfileWriter(
            self.path,
            None if schema is None else _rowtypes.given(schema),
            compression,
            None if metadata is None else dict(metadata),
            append,
            block_bytes,
            overwrite,
        )

    @property
    def schema(self) -> Schema | None:
        """The columns; ``None`` before they are known, and once the writer is closed."""
        raw = self._writer().schema
        return None if raw is None else Schema(raw)

    @property
    def num_rows(self) -> int:
        """The rows of the file so far, those included that were there before."""
        return self._writer().num_rows

    def write(self, rows: object) -> None:
        """Add rows.

        Parameters
        ----------
        rows : object
            Arrow data: a batch, a table, a reader, a result, a data frame of Polars, lazy or not,
            or of pandas (without its index). Or one row: a ``dict``, or an instance of a dataclass.
            Or an iterable of any of these.

        Raises
        ------
        UsageError
            For a value that its column does not take, naming row and field. Rows before it have
            been added.

        Examples
        --------
        >>> import pathlib, tempfile, tidemill as tm
        >>> path = pathlib.Path(tempfile.mkdtemp(), "ids.rowfile")
        >>> columns = {"fields": [{"name": "id", "type": "uint8"}]}
        >>> with tm.RowFileWriter(path, columns) as writer:
        ...     writer.write([{"id": 255}, {"id": 256}])
        Traceback (most recent call last):
        tidemill._errors.UsageError: row 1, field `id`: expected uint8, found 256 (int)
        >>> path.exists()
        False
        """
        raw = self._writer()
        rows = _lazy_frames.to_arrow_source(rows)
        if _is_arrow(rows):
            raw.write_arrow(_arrow(rows))
        elif isinstance(rows, Mapping) or _is_instance(rows):
            self._write_rows(raw, rows, [rows])
        elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
            iterator = iter(rows)
            for given in iterator:
                first = _lazy_frames.to_arrow_source(given)
                if _is_arrow(first):
                    raw.write_arrow(_arrow(first))
                else:
                    self._write_rows(raw, first, chain([first], iterator))
        else:
            raise UsageError(
                f"a {type(rows).__name__} is no rows\n"
                "hint: write Arrow data, a dict, a dataclass's instance, or an iterable of these"
            )

    def _write_rows(
        self, raw: _tidemill.RawRowfileWriter, first: object, rows: Iterable[object]
    ) -> None:
        if not raw.has_schema and _is_instance(first):
            raw.declare(_rowtypes.given(type(first)))
        raw.write_rows(rows)

    def flush(self) -> None:
        """Write the rows that wait as a block of their own, which can be recovered from then on."""
        self._writer().flush()

    def close(self) -> None:
        """Make the file whole, and put it at its place; a second time does nothing.

        Raises
        ------
        OutputExistsError
            If another file has been put there meanwhile.
        UsageError
            If nothing says what the columns are.
        """
        self._writer().close()

    def abort(self) -> None:
        """Give up: nothing is left of a new file, and one that was there is as it was."""
        self._writer().abort()

    def _writer(self) -> _tidemill.RawRowfileWriter:
        if self._raw is None:
            raise UsageError("this writer was never opened")
        return self._raw

    def __enter__(self) -> RowFileWriter:
        """Give the writer, to be closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the writer, or give up if there was an exception."""
        if kind is None:
            self.close()
        else:
            self.abort()

    async def __aenter__(self) -> RowFileWriter:
        """Give the writer, to be closed at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the writer, or give up if there was an exception; an event loop goes on."""
        end = self.close if kind is None else self.abort
        await asyncio.get_running_loop().run_in_executor(None, end)

    def __del__(self) -> None:
        """Give up what was never closed."""
        raw = getattr(self, "_raw", None)
        if raw is not None and raw.is_waiting:
            warnings.warn(
                f"`{self.path}` was never closed, and is not written", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        """Show the path."""
        return f"RowFileWriter({self.path!r})"


def _is_arrow(value: object) -> bool:
    kind = type(value)
    return any(hasattr(kind, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "iloc"))


def _arrow(value: object) -> object:
    if not hasattr(type(value), "iloc"):
        return value
    # A row's number in a frame is no column of it.
    import pyarrow

    return pyarrow.Table.from_pandas(value, preserve_index=False)


def _is_instance(value: object) -> bool:
    return _rowtypes.is_dataclass(type(value))
