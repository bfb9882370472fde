"""What comes out of a run."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill._tidemill import RawBatch, RawResult, RawSchema, RawWritten

_SHOWN = 20


class Schema:
    """The columns of a result.

    Exports ``__arrow_c_schema__``, so that ``pyarrow.schema(result.schema)`` works.
    """

    def __init__(self, raw: RawSchema) -> None:
        self._raw = raw

    @property
    def names(self) -> list[str]:
        """The columns' names in order."""
        return [name for name, _ in self._raw.columns()]

    @property
    def types(self) -> list[str]:
        """The columns' types in order, in SQL's words."""
        return [sql_type for _, sql_type in self._raw.columns()]

    def __len__(self) -> int:
        """Count the columns."""
        return len(self._raw.columns())

    def __repr__(self) -> str:
        """Show names and types."""
        return f"Schema({', '.join(f'{name} {kind}' for name, kind in self._raw.columns())})"

    def __arrow_c_schema__(self) -> object:
        """Export the schema as an Arrow PyCapsule."""
        return self._raw.capsule()


class Batch:
    """Some rows of a result.

    Exports ``__arrow_c_array__``, so that ``pyarrow.record_batch(batch)`` works.
    """

    def __init__(self, raw: RawBatch) -> None:
        self._raw = raw

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._raw.num_rows

    def __len__(self) -> int:
        """Count the rows."""
        return self._raw.num_rows

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Export the rows as Arrow PyCapsules."""
        return self._raw.capsules()


class Result:
    """The rows of a query, computed while they are read, once.

    A result is an Arrow stream (``__arrow_c_stream__``): hand it to ``pyarrow.table``,
    ``polars.DataFrame``, ``pandas.DataFrame.from_arrow`` or DuckDB, or iterate over its
    batches. A result that is dropped stops its run.

    Examples
    --------
    >>> import pyarrow, tidemill as tm
    >>> result = tm.query("SELECT 1 AS x UNION ALL SELECT 2 ORDER BY x")
    >>> sum(batch.num_rows for batch in result)
    2
    >>> result.coverage["complete"]
    True
    """

    def __init__(self, raw: RawResult) -> None:
        self._raw = raw

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema(self._raw.schema)

    @property
    def coverage(self) -> dict[str, Any] | None:
        """What the result rests on; ``None`` before all rows have been read."""
        return json.loads(self._raw.coverage)

    def __iter__(self) -> Iterator[Batch]:
        """Read the rows as batches."""
        while (batch := self._raw.next_batch()) is not None:
            yield Batch(batch)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow PyCapsule; they can be exported once."""
        return self._raw.stream(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Export the columns as an Arrow PyCapsule."""
        return self._raw.schema.capsule()

    def __repr__(self) -> str:
        """Show the columns; no row is computed for it."""
        return f"Result({', '.join(self.schema.names)})"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook; they stay in the result."""
        names = self.schema.names
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        if self._raw.is_taken():
            return f"<table><tr>{head}</tr></table><p>the rows have been handed over</p>"
        lines, more = self._raw.peek(_SHOWN)
        rows = [json.loads(line) for line in lines.splitlines()]
        cells = (
            "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in names) for row in rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        rest = f"<p>the first {_SHOWN} rows</p>" if more else ""
        return f"<table><tr>{head}</tr>{body}</table>{rest}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Written:
    """What a job has written to its sink.

    Attributes
    ----------
    files : int
        How many files; 0 for standard output.
    rows : int
        Rows in all of them.
    bytes : int
        Bytes in all of them.
    paths : list of str
        The first few paths.
    root : str
        The folder that holds them.
    coverage : dict
        What the result rests on.
    """

    files: int
    rows: int
    bytes: int
    paths: list[str]
    root: str
    coverage: dict[str, Any]

    @classmethod
    def _of(cls, raw: RawWritten) -> Written:
        return cls(raw.files, raw.rows, raw.bytes, raw.paths, raw.root, json.loads(raw.coverage))
