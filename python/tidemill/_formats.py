"""Formats of the user's own, and objects as sources."""

from __future__ import annotations

import atexit
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict

from tidemill import _lazy_frames, _options, _tidemill
from tidemill._errors import UsageError
from tidemill._result import Batch
from tidemill._schema import Schema

# The engine's threads must not be in a reader of the user's when the interpreter ends.
atexit.register(_tidemill.leave_python)
# What was fetched and is to be kept is written before, which takes no longer than this.
atexit.register(_tidemill.flush_read_cache, 5.0)


# Options that no list of rows is meant for, however alike its name: `errors=[…]` is a source.
_NEVER_LISTS = frozenset(_options.Turbo.__annotations__)


class _Stream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class _Array(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


class LazyFrame(Protocol):
    """A lazy frame of Polars."""

    def collect_schema(self) -> Any:
        """Say which columns it has."""
        ...


#: What exports Arrow data: a table or a stream.
ArrowObject = _Stream | _Array

#: What can be a source: also a LazyFrame of Polars, rows that are dictionaries, and columns by
#: their names.
SourceObject = ArrowObject | LazyFrame | Sequence[Mapping[str, Any]] | Mapping[str, Iterable[Any]]


class Batches:
    """The batches of a file that a registered writer is to write.

    Exports ``__arrow_c_stream__``, so that ``pyarrow.RecordBatchReader.from_stream(batches)`` and
    ``polars.DataFrame(batches)`` work; or iterate over them. They can be read once.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> def write(path, batches):
    ...     rows = sum(len(batch) for batch in batches)
    ...     _ = pathlib.Path(path).write_text(f"{batches.schema.names} {rows}")
    >>> tm.register_format("tally", writer=write)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tally")
    >>> _ = tm.query("SELECT 1 AS one UNION ALL SELECT 2", output=path)
    >>> path.read_text()
    "['one'] 2"
    """

    def __init__(self, raw: _tidemill.RawStream) -> None:
        self._raw = raw

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema(self._raw.schema)

    def __iter__(self) -> Iterator[Batch]:
        """Read the rows as batches."""
        while (batch := self._raw.next_batch()) is not None:
            yield Batch(batch)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow PyCapsule; they can be exported once."""
        return self._raw.stream()


def register_format(
    name: str,
    *,
    reader: Callable[..., Any] | None = None,
    writer: Callable[[str, Batches], None] | None = None,
    suffix: str | None = None,
    splittable: bool = False,
) -> None:
    r"""Add a format of your own, which then is as good as ``csv`` in every query and job.

    Parameters
    ----------
    name : str
        What it is called: lower-case letters, digits, ``-`` and ``_``. A format registered
        before under this name is replaced.
    reader : callable, optional
        ``reader(path, start, end)`` gives the records of the file, or of those bytes of it, as an
        Arrow stream (a ``pyarrow.Table`` or ``RecordBatchReader``, a ``polars.DataFrame`` or
        ``LazyFrame``, …) or as an iterable of such objects. If it has a parameter ``columns``, that
        is a list of the columns that are wanted, or ``None`` for a look at the schema; giving
        others too is fine. Several threads call it at once. For its columns every file is looked at
        beforehand by one call, of which only the schema is used.
    writer : callable, optional
        ``writer(path, batches)`` makes the file ``path``, which is not there yet, of all
        `Batches`. The file appears at its place with all others of its run.
    suffix : str, optional
        What the names of such files end in, without the dot. Default: ``name``.
    splittable : bool, optional
        Whether ``reader`` can be asked for a part of a file: the records that *begin* in the bytes
        from ``start`` up to, not including, ``end``. Default: false, and it is asked for whole
        files.

    Raises
    ------
    UsageError
        For a name or a suffix that another format has.

    Examples
    --------
    A format of fixed-width records: two bytes of a state, four of a count.

    >>> import pathlib, tempfile, pyarrow as pa, tidemill as tm
    >>> def read(path, start, end):
    ...     data = pathlib.Path(path).read_bytes()[start:end]
    ...     records = [data[at : at + 6] for at in range(0, len(data), 6)]
    ...     return pa.table({
    ...         "state": [record[:2].decode() for record in records],
    ...         "count": [int(record[2:]) for record in records],
    ...     })
    >>> tm.register_format("fixed", reader=read)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "counts.fixed")
    >>> _ = path.write_text("TX0003NY0004TX0005")
    >>> sql = f"SELECT state, sum(count) AS n FROM '{path}' GROUP BY state ORDER BY state"
    >>> tm.query(sql).to_pylist()
    [{'state': 'NY', 'n': 4}, {'state': 'TX', 'n': 8}]
    """
    takes_columns = reader is not None and _takes_columns(reader)
    read = None if reader is None else _without_lazy_frames(reader)
    _tidemill.register_format(name, suffix, read, writer, splittable, takes_columns)


def _without_lazy_frames(reader: Callable[..., Any]) -> Callable[..., Any]:
    """Have a reader's lazy frame computed while it is read."""

    def read(*arguments: Any, **options: Any) -> Any:
        return _lazy_frames.to_arrow_source(reader(*arguments, **options))

    return read


def _takes_columns(reader: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reader).parameters
    except (TypeError, ValueError):
        return False
    return "columns" in parameters


class NamedObject(TypedDict):
    """An object that is a source."""

    name: str
    object: object
    is_table: bool
    read_mark: _tidemill.ReadMark | None


def objects(named: Mapping[str, object], options: frozenset[str]) -> list[NamedObject]:
    """Say what objects are sources, by their names in SQL."""
    return [_object(name, value, options) for name, value in named.items()]


def variable(name: str, value: object) -> NamedObject:
    """Say what a variable is as a source."""
    try:
        return _object(name, value, frozenset())
    except UsageError as error:
        raise UsageError(
            f"{error}\nhint: it is the variable `{name}`; replacement_scans=False looks at none"
        ) from None


def is_arrow(value: object) -> bool:
    """Return true for what exports Arrow data."""
    kind = type(value)
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")


def is_read_once(value: object) -> bool:
    """Return true for an iterator, which gives no rows a second time, and no error."""
    return hasattr(type(value), "__next__")


# The marks of the iterators that are alive, by their ids; the reference tells one from a later
# object of the same id.
_marks: dict[int, tuple[weakref.ref[object], _tidemill.ReadMark]] = {}


def read_mark(value: object) -> _tidemill.ReadMark | None:
    """Give the mark of an object that is read once, the same one as long as the object lives."""
    if not is_read_once(value):
        return None
    key = id(value)
    reference, mark = _marks.get(key, (None, None))
    if reference is not None and reference() is value:
        return mark
    mark = _tidemill.ReadMark()

    def forget(dead: weakref.ref[object]) -> None:
        # Another object may have the id by now.
        if _marks.get(key, (None,))[0] is dead:
            del _marks[key]

    try:
        _marks[key] = (weakref.ref(value, forget), mark)
    except TypeError:
        # No weak references to it: the mark is its owner's, a job's or a run's, to keep.
        pass
    return mark


def refuse_read_streams(named: Sequence[NamedObject]) -> None:
    """Refuse streams that an earlier run has read: they have no rows left."""
    for one in named:
        mark = one["read_mark"]
        if mark is not None and mark.is_read:
            name = one["name"]
            raise UsageError(
                f"`{name}` is a stream, which an earlier run has read\n"
                "hint: give each run a stream of its own, or a table: "
                f"{name}=pyarrow.table(stream)"
            )


def _object(name: str, value: object, options: frozenset[str]) -> NamedObject:
    original, value = value, _lazy_frames.to_arrow_source(value)
    kind = type(value)
    if not is_arrow(value):
        rows = _rows(name, value)
        if rows is not None and _nearest(name, options - _NEVER_LISTS) is None:
            table = Batches(_tidemill.table_of_rows(name, rows))
            return {"name": name, "object": table, "is_table": True, "read_mark": None}
        value = _converted(name, value, options)
        kind = type(value)
    # What is in memory as a whole can be read any number of times.
    is_table = any(
        hasattr(kind, attribute) for attribute in ("num_rows", "height", "iloc")
    ) and not isinstance(value, Batches)
    mark = None if is_table else read_mark(original)
    return {"name": name, "object": value, "is_table": is_table, "read_mark": mark}


def _converted(name: str, value: object, options: frozenset[str]) -> object:
    kind = type(value)
    is_column = hasattr(kind, "to_frame")
    if hasattr(kind, "iloc") and not is_column:
        # pandas before 2.2, which exports no streams.
        import pyarrow

        return pyarrow.Table.from_pandas(value, preserve_index=False)
    hint = (
        "give a pyarrow.Table, a DataFrame of pandas or Polars, a list of dicts, or anything with "
        "Arrow's stream"
    )
    if hasattr(kind, "collect"):
        hint = f"collect it first: {name}=….collect()"
    if is_column:
        hint = f"make a table of it: {name}=….to_frame()"
    near = _nearest(name, options)
    if near is not None:
        hint = f"did you mean the option `{near}`?"
    raise UsageError(
        f"`{name}` is a {kind.__name__}, which is no source: it holds no Arrow data\nhint: {hint}"
    )


def _rows(name: str, value: object) -> Iterable[object] | None:
    """Give the rows of a list of dictionaries, or of a dictionary of columns; none of others."""
    if isinstance(value, list | tuple):
        return value if all(isinstance(row, Mapping) for row in value[:1]) else None
    if not isinstance(value, Mapping):
        return None
    columns = {}
    for column, values in value.items():
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise UsageError(
                f"`{name}`, column `{column}`: expected a list, found {type(values).__name__}\n"
                "hint: a dict is a source as columns by their names; [row] is one row"
            )
        columns[column] = values
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"`{column}` has {length}" for column, length in lengths.items())
        raise UsageError(f"`{name}`: its columns are not of one length: {said}")
    return _Rows(columns)


class _Rows:
    """The rows of columns, made while they are read, any number of times."""

    def __init__(self, columns: Mapping[Any, Any]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[dict[Any, Any]]:
        names = list(self._columns)
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))


def _nearest(name: str, options: frozenset[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name, sorted(options), n=1)
    return near[0] if near else None
