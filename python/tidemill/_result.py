"""What comes out of a run."""

from __future__ import annotations

import asyncio
import html
import importlib
import itertools
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tidemill import _table
from tidemill._coverage import Coverage
from tidemill._cursor import Cursor, Row
from tidemill._errors import MissingPackageError, UsageError
from tidemill._open import ReadStats
from tidemill._schema import Schema
from tidemill._tidemill import RawBatch, RawResult, RawWritten
from tidemill._words import counted, grouped, human_bytes

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from typing_extensions import Self

T = TypeVar("T")

#: The first rows, whether there are more, and how many there are if that is known.
_Peeked = tuple[list[list[str | None]], bool, int | None]

_ROWS_SHOWN = 20
_ROWS_IN_REPR = 10
# How wide a result is where nothing says how wide it may be.
_REPR_WIDTH = 100
_TERMINAL_CELL_CHARS = 80
_NOTEBOOK_CELL_CHARS = 400


class Batch:
    """Some rows of a result.

    Exports ``__arrow_c_array__``, so that ``pyarrow.record_batch(batch)`` works.

    Examples
    --------
    >>> import tidemill as tm
    >>> for batch in tm.query("SELECT 1 AS one"):
    ...     print(len(batch), batch.to_pylist())
    1 [{'one': 1}]
    """

    def __init__(self, raw: RawBatch) -> None:
        self._raw = raw

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._raw.num_rows

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema(self._raw.schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Give the rows as dictionaries of Python's own objects; see `Result.to_pylist`."""
        return self._raw.rows()

    def to_tuples(self) -> list[Row]:
        """Give the rows as tuples of Python's own objects; see `Result.fetchall`."""
        return self._raw.tuples()

    def __len__(self) -> int:
        """Count the rows."""
        return self._raw.num_rows

    def __repr__(self) -> str:
        """Show the columns and the number of rows."""
        return f"Batch({counted(self.num_rows, 'row')} of {', '.join(self.schema.names)})"

    def __reduce__(self) -> tuple[Callable[[bytes], Batch], tuple[bytes]]:
        """Pickle the rows."""
        return _restored_batch, (self._raw.to_ipc(),)

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Export the rows as Arrow PyCapsules."""
        return self._raw.capsules()

    def __arrow_c_schema__(self) -> object:
        """Export the columns as an Arrow PyCapsule."""
        return self._raw.schema.capsule()


class Result:
    """The rows of a query, computed while they are read.

    A result is an Arrow stream (``__arrow_c_stream__``): hand it to ``pyarrow.table``,
    ``polars.DataFrame``, ``pandas.DataFrame.from_arrow`` or DuckDB, or iterate over its
    batches; in a coroutine with ``async for``. It can be read again, from the first row, as long
    as its rows take no more than a quarter of the ``memory`` of its run. `show`, and looking at it
    in a terminal or a notebook, leave its rows where they are. A result that is closed or dropped
    stops its run; several may be read at the same time, from any threads. Pickling waits for all
    rows, and holds them with the coverage.

    Examples
    --------
    >>> import tidemill as tm
    >>> result = tm.query("SELECT 1 AS x UNION ALL SELECT 2 ORDER BY x")
    >>> result
         x
    BIGINT
    ------
         1
         2
    2 rows
    >>> result.to_pylist()
    [{'x': 1}, {'x': 2}]
    >>> result.coverage["complete"]
    True

    A batch at a time, in bounded memory:

    >>> with tm.query("SELECT 1 AS x UNION ALL SELECT 2") as result:
    ...     sum(batch.num_rows for batch in result)
    2

    As tuples, one after the other:

    >>> result = tm.query("SELECT 1 AS x UNION ALL SELECT 2 ORDER BY x")
    >>> result.fetchone(), result.fetchall()
    ((1,), [(2,)])

    Without keeping an event loop from anything else:

    >>> import asyncio
    >>> async def ask():
    ...     result = await tm.query("SELECT 1 AS x")  # all rows are there then
    ...     async for batch in result:
    ...         print(batch.to_pylist())
    >>> asyncio.run(ask())
    [{'x': 1}]
    """

    def __init__(self, raw: RawResult) -> None:
        self._raw = raw
        self._cursor = Cursor(raw)

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema(self._raw.schema)

    @property
    def description(self) -> list[tuple[str, str, None, None, None, None, None]]:
        """The columns as Python's database API describes them: name, type in SQL's words, None.

        Examples
        --------
        >>> import tidemill as tm
        >>> [column[0] for column in tm.query("SELECT 1 AS id, 'a' AS letter").description]
        ['id', 'letter']
        """
        return [(name, kind, None, None, None, None, None) for name, kind in self.schema]

    @property
    def coverage(self) -> Coverage:
        """What the result rests on; waits until all rows are there, as it is known then.

        They stay in the result. In a coroutine, ``await result`` waits without keeping an event
        loop from anything else.

        Raises
        ------
        UsageError
            If the rows take more than is kept of them, and have not been read yet; if the result
            was closed, or its run has failed, before they were there.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 1 AS one").coverage["complete"]
        True
        """
        coverage: Coverage = json.loads(self._raw.final_coverage())
        return coverage

    @property
    def stats(self) -> ReadStats | None:
        """What reading remote files did until the last row was there; None before.

        What else this process reads of them at the same time is counted too.
        """
        stats = self._raw.stats
        return None if stats is None else ReadStats(**stats)

    def to_arrow(self) -> pyarrow.Table:
        """Read all rows into a PyArrow table, without copying them.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        MissingPackageError
            If PyArrow is not installed.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 1 AS one").to_arrow().column("one").to_pylist()
        [1]
        """
        arrow = _package("pyarrow", "to_arrow()", "pyarrow")
        table: pyarrow.Table = self._taken_by(arrow.table)
        return table

    def to_polars(self) -> polars.DataFrame:
        """Read all rows into a Polars data frame, without copying most of them.

        Returns
        -------
        polars.DataFrame

        Raises
        ------
        MissingPackageError
            If Polars is not installed.
        UsageError
            For a column of intervals, which Polars has no type for; the difference of two
            times is no such column.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 1 AS one").to_polars().rows()
        [(1,)]
        """
        package = _package("polars", "to_polars()", "polars")
        for name, kind in self.schema:
            if kind.rstrip("[]") == "INTERVAL":
                # Polars would panic.
                raise UsageError(
                    f"Polars has no type for column `{name}`, which is {kind}\n"
                    "hint: extract(epoch FROM x) is its length in seconds"
                )
        frame: polars.DataFrame = self._taken_by(package.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Read all rows into a pandas data frame.

        Whole numbers and booleans of which some are null become pandas' ``Int64``, ``boolean``
        and so on, and within lists, structs and maps Python's own: as floats, large numbers
        would no longer be what they were.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        MissingPackageError
            If pandas or PyArrow, which it converts with, is not installed.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 1 AS one, 'a' AS letter").to_pandas()
           one letter
        0    1      a
        """
        package = _package("pandas", "to_pandas()", "pandas pyarrow")
        arrow = _package("pyarrow", "to_pandas()", "pandas pyarrow")
        table: pyarrow.Table = _for_pandas(arrow, self._taken_by(arrow.table))
        nullable = {
            getattr(arrow, f"{sign}int{bits}")(): getattr(package, f"{letter}Int{bits}Dtype")()
            for sign, letter in (("", ""), ("u", "U"))
            for bits in (8, 16, 32, 64)
        }
        nullable[arrow.bool_()] = package.BooleanDtype()
        # Else pandas gets whole numbers beside a null within a list or struct as floats.
        nested = any(arrow.types.is_nested(field.type) for field in table.schema)
        frame: pandas.DataFrame = table.to_pandas(integer_object_nulls=nested)
        for i, column in enumerate(table.columns):
            if column.null_count and column.type in nullable:
                frame.isetitem(i, column.to_pandas(types_mapper=nullable.get))
        return frame

    def arrow(self) -> pyarrow.Table:
        """Read all rows into a PyArrow table: `to_arrow` by its short name."""
        return self.to_arrow()

    def df(self) -> pandas.DataFrame:
        """Read all rows into a pandas data frame: `to_pandas` by its short name."""
        return self.to_pandas()

    def pl(self) -> polars.DataFrame:
        """Read all rows into a Polars data frame: `to_polars` by its short name."""
        return self.to_polars()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Read all rows as dictionaries of Python's own objects.

        Needs no other package. Numbers are ``int``, ``float`` or ``decimal.Decimal``; dates and
        times are those of ``datetime``; lists are ``list``, structs and maps ``dict``. An INTERVAL
        is a ``datetime.timedelta``, or an `Interval` if it has months, nanoseconds, or more days
        than a ``timedelta``.

        Returns
        -------
        list of dict

        Raises
        ------
        UsageError
            For a value that Python has no object for, such as a date after the year 9999.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT DATE '2026-11-01' AS day, [1, 2] AS list").to_pylist()
        [{'day': datetime.date(2026, 11, 1), 'list': [1, 2]}]
        """
        return [row for batch in self for row in batch.to_pylist()]

    def fetchone(self) -> Row | None:
        """Fetch the next row as a tuple; None after the last.

        `fetchone`, `fetchmany` and `fetchall` move one cursor, which starts at the first row, and
        is independent of every other way to read the result. Values are those of `to_pylist`.

        Returns
        -------
        tuple or None

        Raises
        ------
        UsageError
            For a value that Python has no object for; if the result is closed; if its rows have
            been read in another way, and were too many to be kept. The cursor stays where it was.

        Examples
        --------
        >>> import tidemill as tm
        >>> result = tm.query("SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 ORDER BY x")
        >>> result.fetchone()
        (1,)
        >>> result.fetchall()
        [(2,), (3,)]
        >>> result.fetchone() is None
        True
        """
        rows = self._cursor.fetch(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int = 1) -> list[Row]:
        """Fetch the next rows as tuples, in bounded memory; an empty list after the last.

        Parameters
        ----------
        size : int
            How many at most; fewer come at the end only.

        Returns
        -------
        list of tuple

        Raises
        ------
        UsageError
            As `fetchone`.

        Examples
        --------
        >>> import tidemill as tm
        >>> result = tm.query("SELECT 1 AS x UNION ALL SELECT 2 UNION ALL SELECT 3 ORDER BY x")
        >>> while rows := result.fetchmany(2):
        ...     print(rows)
        [(1,), (2,)]
        [(3,)]
        """
        if size < 0:
            raise UsageError(f"`size` must be at least 0, not {size}")
        return self._cursor.fetch(size)

    def fetchall(self) -> list[Row]:
        """Fetch all rows that the cursor has not fetched yet, as tuples.

        Returns
        -------
        list of tuple

        Raises
        ------
        UsageError
            As `fetchone`.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 'ann' AS user, 7 AS pages").fetchall()
        [('ann', 7)]
        """
        return self._cursor.fetch(None)

    def show(self, rows: int = _ROWS_SHOWN) -> None:
        """Print the first rows; they stay in the result.

        On a terminal, columns that do not fit are left out, and named.

        Parameters
        ----------
        rows : int
            How many at most.

        Raises
        ------
        UsageError
            If the rows have been read, and were too many to be kept.

        Examples
        --------
        >>> import tidemill as tm
        >>> tm.query("SELECT 'ann' AS user, 1.5 AS seconds").show()
        user  seconds
        TEXT   DOUBLE
        ----  -------
        ann       1.5
        1 row
        """
        if rows < 1:
            raise UsageError(f"`rows` must be at least 1, not {rows}")
        width = shutil.get_terminal_size().columns if _is_terminal() else None
        print(self._text(self._peek(rows, _TERMINAL_CELL_CHARS), width))

    def close(self) -> None:
        """Stop the run; rows that have not been read are lost.

        Examples
        --------
        >>> import tidemill as tm
        >>> result = tm.query("SELECT 1 AS one")
        >>> result.close()
        >>> result.to_pylist()
        Traceback (most recent call last):
        tidemill._errors.UsageError: this result is closed
        """
        # First the run: a thread that waits for its rows holds the cursor.
        self._raw.close()
        self._cursor.clear()

    def __enter__(self) -> Self:
        """Give the result, to be closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the result."""
        self.close()

    async def __aenter__(self) -> Self:
        """Give the result, to be closed at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the result; an event loop goes on while its run ends."""
        self._raw.stop()
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __iter__(self) -> Iterator[Batch]:
        """Read the rows as batches, from the first on."""
        for number in itertools.count():
            batch = self._raw.batch(number)
            if batch is None:
                return
            yield Batch(batch)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Read the rows as batches; an event loop goes on meanwhile."""
        for number in itertools.count():
            batch = await self._waited(self._raw.batch, number)
            if batch is None:
                return
            yield Batch(batch)

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait until all rows are there; an event loop goes on meanwhile."""
        return self._filled().__await__()

    async def _filled(self) -> Self:
        await self._waited(self._raw.wait)
        return self

    async def _waited(self, wait: Callable[..., T], *arguments: object) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, wait, *arguments)
        except asyncio.CancelledError:
            # The thread that waits ends with the run.
            self._raw.stop()
            raise

    def __reduce__(self) -> tuple[Callable[[bytes, str], Result], tuple[bytes, str]]:
        """Pickle the rows and the coverage; both are waited for, and stay in the result.

        Raises
        ------
        UsageError
            If the rows are too many to be kept, or the result is closed.

        Examples
        --------
        >>> import pickle, tidemill as tm
        >>> pickle.loads(pickle.dumps(tm.query("SELECT 1 AS one"))).fetchall()
        [(1,)]
        """
        rows = self._raw.to_ipc()
        return _restored_result, (rows, self._raw.final_coverage())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow PyCapsule."""
        return self._raw.stream(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Export the columns as an Arrow PyCapsule."""
        return self._raw.schema.capsule()

    def __repr__(self) -> str:
        """Show the first rows, which are waited for and stay in the result.

        Where another thread waits for rows already its columns, and where an event loop is
        running the same until the first rows are there: it must not stand still for a message in a
        log.
        """
        return self._seen(waits=not _is_in_an_event_loop())

    def __str__(self) -> str:
        """Show the same, and wait for the first rows in an event loop too."""
        return self._seen(waits=True)

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook; they stay in the result."""
        if not self._raw.is_open:
            notes = ["the rows have been taken", *map(html.escape, self._said())]
            notes = _with_warnings(notes, self._known_coverage())
            return _table.as_html(self._columns(), [], notes)
        cells, has_more, known = self._peek(_ROWS_SHOWN, _NOTEBOOK_CELL_CHARS)
        notes = [_count(len(cells), has_more, known), *map(html.escape, self._said())]
        return _table.as_html(self._columns(), cells, _with_warnings(notes, self._known_coverage()))

    def _seen(self, *, waits: bool) -> str:
        if not self._raw.is_open:
            return self._without_rows("; its rows have been taken")
        peeked = self._raw.peek(_ROWS_IN_REPR, _TERMINAL_CELL_CHARS, waits, False)
        if peeked is None:
            return self._without_rows("; its rows are to come")
        width = shutil.get_terminal_size().columns if _is_terminal() else _REPR_WIDTH
        return self._text(peeked, width)

    def _without_rows(self, why: str) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.schema)
        return f"{type(self).__name__}({columns}{why})"

    def _text(self, peeked: _Peeked, width: int | None) -> str:
        cells, has_more, known = peeked
        text = _table.as_text(self._columns(), cells, width)
        return text + "\n".join([_count(len(cells), has_more, known), *self._said()])

    def _peek(self, rows: int, chars: int) -> _Peeked:
        peeked = self._raw.peek(rows, chars, True, True)
        # None is where something is not waited for.
        assert peeked is not None
        return peeked

    def _columns(self) -> list[_table.Column]:
        return self._raw.schema.shown()

    def _said(self) -> list[str]:
        # What rests on no file has nothing to say.
        coverage = self._known_coverage()
        if coverage is None or (coverage["complete"] and not coverage["files"]):
            return []
        line = self._raw.coverage_line
        return [] if line is None else [line]

    def _known_coverage(self) -> Coverage | None:
        coverage: Coverage | None = json.loads(self._raw.coverage)
        return coverage

    def _taken_by(self, consumer: Callable[[Result], T]) -> T:
        try:
            return consumer(self)
        except Exception:
            # Ctrl-C that the consumer has made an error of is raised by this call.
            failure = self._failure()
            if failure is None:
                raise
        raise failure

    def _failure(self) -> BaseException | None:
        return self._raw.failure


def _restored_batch(rows: bytes) -> Batch:
    """Give the rows of a pickle."""
    return Batch(RawBatch.from_ipc(rows))


def _restored_result(rows: bytes, coverage: str) -> Result:
    """Give the result of a pickle, all rows of which are there."""
    return Result(RawResult.from_ipc(rows, coverage))


def _package(name: str, method: str, install: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    raise MissingPackageError(
        f"`{method}` needs the package `{name}`\nhint: pip install {install}", name=name
    )


def _for_pandas(arrow: Any, table: pyarrow.Table) -> pyarrow.Table:
    """Give a table that PyArrow makes a data frame of, which it does of no list of views."""
    for i, column in enumerate(table.schema):
        kind = _without_views(arrow, column.type) if arrow.types.is_nested(column.type) else None
        if kind is not None and kind != column.type:
            table = table.set_column(i, column.with_type(kind), table.column(i).cast(kind))
    return table


def _without_views(arrow: Any, kind: pyarrow.DataType) -> pyarrow.DataType:
    """Give a type whose text and bytes lie one behind the other, of any length together."""
    types = arrow.types

    def field(inner: pyarrow.Field) -> pyarrow.Field:
        return inner.with_type(_without_views(arrow, inner.type))

    if types.is_string_view(kind):
        return arrow.large_string()
    if types.is_binary_view(kind):
        return arrow.large_binary()
    if types.is_struct(kind):
        return arrow.struct([field(inner) for inner in kind])
    if types.is_map(kind):
        return arrow.map_(field(kind.key_field), field(kind.item_field), kind.keys_sorted)
    if types.is_list(kind):
        return arrow.list_(field(kind.value_field))
    if types.is_large_list(kind):
        return arrow.large_list(field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return arrow.list_(field(kind.value_field), kind.list_size)
    return kind


def _is_terminal() -> bool:
    # Where there is no standard output it is None.
    return sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]


def _is_in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _count(rows: int, has_more: bool, known: int | None) -> str:
    if not has_more:
        return counted(rows, "row")
    if known is not None:
        return f"the first {grouped(rows)} of {counted(known, 'row')}"
    return f"the first {counted(rows, 'row')}; there are more"


def _with_warnings(notes: list[str], coverage: Coverage | None) -> list[str]:
    if coverage is None or (coverage["complete"] and not coverage["rows"]["rejected"]):
        return notes
    return [*notes[:-1], f"!{notes[-1]}"]


@dataclass(frozen=True)
class Written:
    r"""What a run has written.

    Attributes
    ----------
    files : int
        How many files; 0 for standard output.
    rows : int
        Rows in all of them; of a partial table its groups.
    bytes : int
        Bytes in all of them.
    paths : list of str
        The first few paths.
    root : str
        The folder that holds them.
    coverage : Coverage
        What the result rests on.
    stats : ReadStats
        What reading remote files did; what else this process read of them at the same time is
        counted too.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "one.csv")
    >>> written = tm.query("SELECT 1 AS one", output=path)
    >>> written.files, written.rows, path.read_text()
    (1, 1, 'one\n1\n')
    """

    files: int
    rows: int
    bytes: int
    paths: list[str]
    root: str
    coverage: Coverage = field(repr=False)
    _line: str = field(repr=False, compare=False)
    stats: ReadStats = field(default=ReadStats(), repr=False, compare=False)

    @classmethod
    def _of(cls, raw: RawWritten) -> Written:
        coverage: Coverage = json.loads(raw.coverage)
        stats = ReadStats(**raw.stats)
        of = (raw.files, raw.rows, raw.bytes, raw.paths, raw.root, coverage, raw.coverage_line)
        return cls(*of, stats)

    def __str__(self) -> str:
        """Say it as the command line does."""
        what = "standard output"
        if self.files == 1:
            what = f"`{self.paths[0]}`"
        elif self.files > 1:
            what = f"{grouped(self.files)} files in `{self.root}`"
        size = human_bytes(self.bytes)
        return f"wrote {what}: {counted(self.rows, 'row')}, {size}\n{self._line}"
