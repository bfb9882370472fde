"""Columns: their names and types."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any

from tidemill import _table
from tidemill._tidemill import RawSchema, RawSource
from tidemill._words import counted, human_bytes


class Schema:
    """Columns with their types.

    Iterating gives pairs of name and type, so that ``dict(schema)`` works. Exports
    ``__arrow_c_schema__``, so that ``pyarrow.schema(schema)`` works. Functions that take
    ``schema=`` take one.

    Examples
    --------
    >>> import tidemill as tm
    >>> schema = tm.query("SELECT 1 AS id, 'a' AS letter").schema
    >>> schema.names
    ['id', 'letter']
    >>> dict(schema)
    {'id': 'BIGINT', 'letter': 'TEXT'}
    >>> schema.to_sql()
    '"id" BIGINT, "letter" TEXT'
    """

    def __init__(self, raw: RawSchema) -> None:
        self._raw = raw
        self._columns = raw.columns()

    @property
    def names(self) -> list[str]:
        """The columns' names in order."""
        return [name for name, *_ in self._columns]

    @property
    def types(self) -> list[str]:
        """The columns' types in order, in SQL's words."""
        return [sql_type for _, sql_type, *_ in self._columns]

    def to_sql(self) -> str:
        """Write the columns as SQL does, and ``--schema`` takes them, but for structs."""
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self)

    def __len__(self) -> int:
        """Count the columns."""
        return len(self._columns)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Go through names and types."""
        return zip(self.names, self.types, strict=True)

    def __eq__(self, other: object) -> bool:
        """Compare names and types."""
        if not isinstance(other, Schema):
            return NotImplemented
        return self._columns == other._columns

    def __hash__(self) -> int:
        """Hash names and types."""
        return hash(tuple(self._columns))

    def __repr__(self) -> str:
        """Show names and types."""
        return f"Schema({', '.join(f'{name} {kind}' for name, kind in self)})"

    def _repr_html_(self) -> str:
        """Show names and types in a notebook."""
        columns = [("column", "", False), ("type", "", False)]
        return _table.as_html(columns, [[name, kind] for name, kind in self], [])

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[object, ...]]:
        """Pickle the columns."""
        return _restored_schema, (self._raw.to_ipc(),)

    def __arrow_c_schema__(self) -> object:
        """Export the schema as an Arrow PyCapsule."""
        return self._raw.capsule()


class SourceSchema(Schema):
    r"""The columns of files, and what is known of these before a query.

    Attributes
    ----------
    url : str
        What was asked for.
    format : str
        The files' format.
    files : int
        How many files.
    bytes : int or None
        Their size as stored; none for standard input.

    Examples
    --------
    >>> import pathlib, tempfile, tidemill as tm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "hits.csv")
    >>> _ = path.write_text("page,ms\n/,7\n/buy,12\n")
    >>> found = tm.schema(path)
    >>> print(str(found).partition(": ")[2])
    csv, 20 B
      page  TEXT
      ms    BIGINT
    """

    url: str
    format: str
    files: int
    bytes: int | None

    def __init__(self, url: str, raw: RawSource) -> None:
        super().__init__(raw.schema)
        self.url = url
        self.format = raw.format
        self.files = raw.files
        self.bytes = raw.bytes

    def __reduce__(self) -> tuple[Callable[..., Schema], tuple[object, ...]]:
        """Pickle the columns, and what is known of the files."""
        about = (self.url, self.format, self.files, self.bytes)
        return _restored_source_schema, (self._raw.to_ipc(), *about)

    def to_dict(self) -> dict[str, Any]:
        """Give the same as ``tidemill schema --format json``."""
        columns = [
            {"name": name, "type": sql_type, "arrow": arrow_type}
            for name, sql_type, arrow_type, _ in self._columns
        ]
        return {
            "url": self.url,
            "format": self.format,
            "files": self.files,
            "bytes": self.bytes or 0,
            "columns": columns,
        }

    def __str__(self) -> str:
        """Write it as ``tidemill schema`` does."""
        width = max((len(name) for name in self.names), default=0)
        lines = (f"  {name:<{width}}  {kind}" for name, kind in self)
        return "\n".join([f"{self.url}: {self._about()}", *lines])

    def _repr_html_(self) -> str:
        """Show the columns in a notebook."""
        about = f"{html.escape(self.url)}: {html.escape(self._about())}"
        columns = [("column", "", False), ("type", "", False)]
        return _table.as_html(columns, [[name, kind] for name, kind in self], [about])

    def _about(self) -> str:
        about = [self.format]
        if self.files != 1:
            about.append(counted(self.files, "file"))
        if self.bytes is not None:
            about.append(human_bytes(self.bytes))
        return ", ".join(about)


def _restored_schema(columns: bytes) -> Schema:
    """Give the columns of a pickle."""
    return Schema(RawSchema.from_ipc(columns))


def _restored_source_schema(
    columns: bytes, url: str, format: str, files: int, size: int | None
) -> SourceSchema:
    """Give the columns of files of a pickle."""
    schema = SourceSchema.__new__(SourceSchema)
    Schema.__init__(schema, RawSchema.from_ipc(columns))
    schema.url, schema.format, schema.files, schema.bytes = url, format, files, size
    return schema


def quoted(name: str) -> str:
    """Write a name as an SQL identifier that stands for exactly it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
