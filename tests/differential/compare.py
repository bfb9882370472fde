"""When are two results the same?

Cells become plain Python values that say nothing of the type that carried them: whole numbers
and decimals exactly, floats to nine places (sums may be added in another order), -0.0 as 0.0,
times as nanoseconds since 1970.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from .values import PER_SECOND

Row = tuple[Any, ...]


def _number(number: decimal.Decimal) -> object:
    whole = number.to_integral_value()
    return int(whole) if number == whole else number.normalize(decimal.Context(prec=80))


def cells(column: pa.ChunkedArray | pa.Array) -> list[object]:
    """The values of a column."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return [cell for chunk in column.chunks for cell in cells(chunk)]
    if pa.types.is_dictionary(kind):
        return cells(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        per = 10**9 // PER_SECOND[kind.unit]
        numbers = column.cast(pa.timestamp(kind.unit)).cast(pa.int64()).to_pylist()
        return [None if number is None else ("time", number * per) for number in numbers]
    if pa.types.is_date32(kind):
        numbers = column.cast(pa.int32()).to_pylist()
        return [None if number is None else ("day", number) for number in numbers]
    if pa.types.is_date64(kind):
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else ("day", number // 86_400_000) for number in numbers]
    if pa.types.is_struct(kind):
        valid = column.is_valid().to_pylist()
        fields = [(kind.field(at).name, cells(part)) for at, part in enumerate(column.flatten())]
        return [
            {name: values[row] for name, values in fields} if is_valid else None
            for row, is_valid in enumerate(valid)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lists: list[object] = []
        for row in range(len(column)):
            scalar = column[row]
            lists.append(cells(scalar.values) if scalar.is_valid else None)
        return lists
    if pa.types.is_decimal(kind):
        return [None if cell is None else _number(cell) for cell in column.to_pylist()]
    if pa.types.is_floating(kind):
        return [None if cell is None else cell + 0.0 for cell in column.to_pylist()]
    return list(column.to_pylist())


def rows(table: pa.Table) -> list[Row]:
    """The rows of a table."""
    columns = [cells(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def finite(of: list[Row]) -> list[Row]:
    """The rows with nulls for floats that are no numbers."""
    return [
        tuple(None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row)
        for row in of
    ]


def _key(cell: object) -> tuple[Any, ...]:
    if cell is None:
        return (9,)
    if isinstance(cell, bool):
        return (0, cell)
    if isinstance(cell, float) and math.isnan(cell):
        return (2,)
    if isinstance(cell, (int, float, decimal.Decimal)):
        # Near enough that what differs by rounding alone stands together.
        return (1, float(f"{cell:.6g}"), cell)
    if isinstance(cell, str):
        return (3, cell)
    if isinstance(cell, tuple):
        return (4, cell)
    if isinstance(cell, dict):
        return (5, *(_key(part) for part in cell.values()))
    if isinstance(cell, list):
        return (6, *(_key(part) for part in cell))
    return (7, repr(cell))


def in_order(found: Sequence[Row]) -> list[Row]:
    """Rows in an order that does not depend on who gave them."""
    return sorted(found, key=lambda row: [_key(cell) for cell in row])


def same_cell(one: object, two: object, exactly: bool = False) -> bool:
    """Whether two cells are the same."""
    if one is None or two is None:
        return one is two
    if isinstance(one, bool) != isinstance(two, bool):
        return False
    if isinstance(one, float) or isinstance(two, float):
        if not isinstance(one, (int, float, decimal.Decimal)):
            return False
        if not isinstance(two, (int, float, decimal.Decimal)):
            return False
        first, second = float(one), float(two)
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second)
        if exactly:
            return first == second
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-300)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(
            same_cell(one[name], two[name], exactly) for name in one
        )
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(
            same_cell(a, b, exactly) for a, b in zip(one, two, strict=True)
        )
    return (type(one) is type(two) and one == two) or _whole(one) == _whole(two) is not None


def _whole(cell: object) -> object:
    return cell if isinstance(cell, (int, decimal.Decimal)) else None


def difference(
    one: Sequence[Row], two: Sequence[Row], ordered: bool, exactly: bool = False
) -> str | None:
    """What tells two results apart; none if nothing does."""
    if len(one) != len(two):
        return f"{len(one)} rows and {len(two)} rows"
    if not ordered:
        one, two = in_order(one), in_order(two)
    for number, (first, second) in enumerate(zip(one, two, strict=True)):
        if len(first) != len(second):
            return f"{len(first)} columns and {len(second)} columns"
        for at, (a, b) in enumerate(zip(first, second, strict=True)):
            if not same_cell(a, b, exactly):
                return f"row {number}, column {at + 1}: {a!r} and {b!r}"
    return None
