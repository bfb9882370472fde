"""Comparison of two answers as multisets of rows.

Each row has a key: whole numbers, decimals, texts and times to the last digit, floating numbers
rounded to twelve digits. The first pass reads both answers in slices and keeps a hash of 64 bits
for each key. The second pass fetches only the rows whose hash occurs more often in one answer than
in the other, and matches those with floating numbers within a tolerance. So any number of rows is
compared, in about 100 bytes for each row besides the answers themselves.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from parquet.rows import column

# Relative tolerance if one of two numbers is floating; the second in columns of 32 bits or fewer.
TOLERANCE, TOLERANCE_FLOAT = 1e-9, 1e-6
# Largest distance from zero of a sum of floating numbers that is zero without rounding.
ZERO_DISTANCE = 1e-12
# Significant digits up to which a decimal and a floating number may have the same key.
KEY_DIGITS = 12
# Rows that are converted to Python's values at a time.
SLICE_ROWS = 65_536
# Unmatched rows of an answer of which every pair is tried, and those that are matched at all.
PAIRS_MAX, UNMATCHED_ROWS_MAX = 1_000, 200_000
# Rows that a verdict quotes, and characters of a row.
QUOTED_ROWS_MAX, ROW_CHARACTERS = 20, 1_000
MONTH_NANOS, DAY_NANOS = 30 * 86_400 * 10**9, 86_400 * 10**9

Row = tuple[Any, ...]


class TooManyRowsError(Exception):
    """More rows differ in floating numbers than are matched within the tolerance."""


@dataclass
class Difference:
    """A difference of two answers: a sentence, and the rows that only one of them has."""

    message: str
    expected: list[Row]
    actual: list[Row]
    # False if there are further rows that only one answer has.
    is_complete: bool = True

    @property
    def rows(self) -> tuple[list[Row], list[Row]]:
        """The rows of both answers."""
        return self.expected, self.actual


def column_values(array: pa.ChunkedArray) -> list[Any]:
    """The values of a column in a form that is independent of the engine."""
    try:
        values = column(array)
    except (AttributeError, pa.ArrowException, ValueError):
        # Unions, which only DuckDB has.
        values = array.to_pylist()
    return [canonical_value(value) for value in values]


def canonical_value(value: Any) -> Any:
    """Turn intervals and durations into lengths, and lists into tuples."""
    if isinstance(value, pa.MonthDayNano):
        return ("interval", value.months * MONTH_NANOS + value.days * DAY_NANOS + value.nanoseconds)
    if isinstance(value, tuple):
        if value[:1] == ("duration",) and len(value) == 2:
            return ("interval", value[1])
        if has_given_names(value):
            value = tuple(("", part) for _, part in value)
        return tuple(canonical_value(part) for part in value)
    if isinstance(value, list):
        return tuple(canonical_value(part) for part in value)
    if isinstance(value, dict):
        return canonical_value(tuple(value.items()))
    return value


def has_given_names(fields: tuple[Any, ...]) -> bool:
    """Return whether these are the names and values of a struct whose fields nobody named.

    It is a TUPLE of DuckDB's, whose names are Arrow's, or a row of Tidemill's.
    """
    if not fields or not all(isinstance(part, tuple) and len(part) == 2 for part in fields):
        return False
    given = ("element{}", 1), ("{}", 1), ("c{}", 0)
    names = [name for name, _ in fields]
    return any(
        names == [name.format(first + place) for place in range(len(names))]
        for name, first in given
    )


def table_rows(table: pa.Table) -> list[Row]:
    """All rows of an answer."""
    columns = [column_values(part) for part in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def iter_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of an answer, of which one slice at a time is converted."""
    if table.num_rows <= SLICE_ROWS or not table.num_columns:
        yield from table_rows(table)
        return
    for start in range(0, table.num_rows, SLICE_ROWS):
        places = np.arange(start, min(start + SLICE_ROWS, table.num_rows))
        try:
            # A slice of a list column would convert the items of the whole column; a copy does not.
            part = table.take(pa.array(places))
        except pa.ArrowNotImplementedError:
            # Views of texts within lists, structs and unions.
            part = table.slice(start, len(places))
        yield from table_rows(part)


def head_rows(table: pa.Table) -> list[Row]:
    """The first rows of an answer."""
    return table_rows(table.slice(0, QUOTED_ROWS_MAX))


def rows_at(table: pa.Table, places: Sequence[int]) -> list[Row]:
    """The rows at some places, which are in ascending order."""
    wanted = set(places)
    return [row for place, row in enumerate(iter_rows(table)) if place in wanted]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def is_same(left: Any, right: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether two values are the same; within a tolerance if one of them is floating."""
    if is_number(left) and is_number(right):
        if not isinstance(left, float) and not isinstance(right, float):
            return left == right
        try:
            left, right = float(left), float(right)
        except OverflowError:
            return False
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        if 0.0 in (left, right):
            return abs(left - right) < ZERO_DISTANCE
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=0.0)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(
            is_same(a, b, tolerance) for a, b in zip(left, right, strict=True)
        )
    return type(left) is type(right) and left == right


def is_same_row(left: Row, right: Row, tolerances: Sequence[float]) -> bool:
    """Return whether two rows are the same, each column within its own tolerance."""
    return all(map(is_same, left, right, tolerances))


def value_key(value: Any) -> Any:
    """A key that two values share only if they are the same in the sense of `is_same`.

    Floating numbers within the tolerance of each other may have different keys, and so may a
    floating number and a decimal of more than `KEY_DIGITS` digits.
    """
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return ("number", str(value))
        if value == int(value):
            return ("number", str(int(value)))
        return ("number", f"{value:.{KEY_DIGITS}g}")
    if isinstance(value, int):
        return ("number", str(value))
    if isinstance(value, decimal.Decimal):
        if value == int(value):
            return ("number", str(int(value)))
        # `normalize` would round to the 28 digits of the default context.
        digits = f"{value:f}".rstrip("0")
        if len(digits.lstrip("-0.").replace(".", "")) <= KEY_DIGITS:
            return ("number", f"{float(value):.{KEY_DIGITS}g}")
        return ("decimal", digits)
    if isinstance(value, tuple):
        return tuple(map(value_key, value))
    return (type(value).__name__, repr(value))


def has_type(kind: pa.DataType, is_wanted: Any) -> bool:
    """Return whether a type or a part of it satisfies a predicate."""
    return is_wanted(kind) or any(
        has_type(kind.field(index).type, is_wanted) for index in range(kind.num_fields)
    )


def is_single(kind: pa.DataType) -> bool:
    return pa.types.is_float32(kind) or pa.types.is_float16(kind)


def column_tolerances(expected: pa.Table, actual: pa.Table) -> list[float]:
    """The tolerance of each column, which depends on its types in both answers."""
    kinds = zip(expected.schema.types, actual.schema.types, strict=True)
    return [
        TOLERANCE_FLOAT if any(has_type(kind, is_single) for kind in pair) else TOLERANCE
        for pair in kinds
    ]


def floating_columns(expected: pa.Table, actual: pa.Table) -> list[bool]:
    """Return for each column whether it has floating numbers in one of the answers."""
    kinds = zip(expected.schema.types, actual.schema.types, strict=True)
    return [any(has_type(kind, pa.types.is_floating) for kind in pair) for pair in kinds]


def difference(expected: pa.Table, actual: pa.Table) -> Difference | None:
    """Describe how an answer differs from the expected one as a multiset of rows.

    Raises
    ------
    TooManyRowsError
        More than `UNMATCHED_ROWS_MAX` rows would have to be matched within the tolerance.
    """
    if expected.num_columns != actual.num_columns:
        message = f"{actual.num_columns} columns, not {expected.num_columns}"
        if max(expected.num_rows, actual.num_rows) > UNMATCHED_ROWS_MAX:
            return Difference(message, head_rows(expected), head_rows(actual), is_complete=False)
        return Difference(message, table_rows(expected), table_rows(actual))
    hashes, other_hashes = row_hashes(expected), row_hashes(actual)
    missing_counts, extra_counts = hash_surpluses(hashes, other_hashes)
    missing_count, extra_count = sum(missing_counts.values()), sum(extra_counts.values())
    if not missing_count and not extra_count:
        return None
    is_floating = floating_columns(expected, actual)
    is_complete = max(missing_count, extra_count) <= UNMATCHED_ROWS_MAX
    if not is_complete and any(is_floating) and expected.num_rows == actual.num_rows:
        raise TooManyRowsError(
            f"{missing_count:,} of {expected.num_rows:,} rows would have to be matched within the "
            "tolerance of floating numbers"
        )
    limit = UNMATCHED_ROWS_MAX if is_complete else QUOTED_ROWS_MAX
    missing = rows_at(expected, places_of(hashes, missing_counts, limit))
    extra = rows_at(actual, places_of(other_hashes, extra_counts, limit))
    if is_complete and any(is_floating):
        missing, extra = unmatched_rows(
            missing, extra, column_tolerances(expected, actual), is_floating
        )
        missing_count = len(missing)
        if not missing and not extra:
            return None
    message = f"{missing_count} of {expected.num_rows} rows are missing"
    if expected.num_rows != actual.num_rows:
        message = f"{actual.num_rows} rows, not {expected.num_rows}"
    return Difference(message, missing, extra, is_complete)


def row_hashes(table: pa.Table) -> np.ndarray:
    """The hash of each row's key."""
    hashes = (hash(value_key(row)) for row in iter_rows(table))
    return np.fromiter(hashes, np.int64, table.num_rows)


def hash_surpluses(left: np.ndarray, right: np.ndarray) -> tuple[dict[int, int], dict[int, int]]:
    """Return how often each hash occurs more often on the left, and more often on the right."""
    distinct, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    counts = np.bincount(places[: len(left)], minlength=len(distinct))
    counts = counts - np.bincount(places[len(left) :], minlength=len(distinct))
    more, less = counts > 0, counts < 0
    return (
        dict(zip(distinct[more].tolist(), counts[more].tolist(), strict=True)),
        dict(zip(distinct[less].tolist(), (-counts[less]).tolist(), strict=True)),
    )


def places_of(hashes: np.ndarray, counts: dict[int, int], limit: int) -> list[int]:
    """The first places of some hashes, each as often as it is counted."""
    remaining = dict(counts)
    places: list[int] = []
    for place in np.flatnonzero(np.isin(hashes, np.fromiter(counts, np.int64, len(counts)))):
        if len(places) == limit:
            break
        row_hash = int(hashes[place])
        if remaining[row_hash] > 0:
            remaining[row_hash] -= 1
            places.append(int(place))
    return places


def unmatched_rows(
    missing: list[Row],
    extra: list[Row],
    tolerances: Sequence[float],
    is_floating: Sequence[bool],
) -> tuple[list[Row], list[Row]]:
    """Match rows within the tolerances, and return those of each answer that have no match."""
    if max(len(missing), len(extra)) > PAIRS_MAX:
        missing, extra = merge_rows(missing, extra, tolerances, is_floating)
    if max(len(missing), len(extra)) > PAIRS_MAX:
        return missing, extra
    still_missing, rest = [], list(extra)
    for row in missing:
        place = next((i for i, it in enumerate(rest) if is_same_row(row, it, tolerances)), None)
        if place is None:
            still_missing.append(row)
        else:
            del rest[place]
    return still_missing, rest


def merge_rows(
    missing: list[Row],
    extra: list[Row],
    tolerances: Sequence[float],
    is_floating: Sequence[bool],
) -> tuple[list[Row], list[Row]]:
    """Match rows in sorted order, and return those of each answer that have no match.

    Rows whose sort key is cut between two neighbouring floating numbers may stay without a match
    that they have; no row gets a match that is not the same.
    """
    left = sorted(((sort_key(row, is_floating), row) for row in missing), key=first_item)
    right = sorted(((sort_key(row, is_floating), row) for row in extra), key=first_item)
    rest: tuple[list[Row], list[Row]] = ([], [])
    i = j = 0
    while i < len(left) and j < len(right):
        if is_same_row(left[i][1], right[j][1], tolerances):
            i, j = i + 1, j + 1
        elif left[i][0] <= right[j][0]:
            rest[0].append(left[i][1])
            i += 1
        else:
            rest[1].append(right[j][1])
            j += 1
    return rest[0] + [row for _, row in left[i:]], rest[1] + [row for _, row in right[j:]]


def first_item(pair: tuple[Any, Row]) -> Any:
    return pair[0]


def sort_key(row: Row, is_floating: Sequence[bool]) -> tuple[Any, ...]:
    """A key that sorts rows by the exact columns, then by floating ones to six digits, then all."""
    pairs = list(zip(row, is_floating, strict=True))
    exact = tuple(sortable_value(value) for value, floating in pairs if not floating)
    inexact = [value for value, floating in pairs if floating]
    rounded = tuple(sortable_value(value, "{:.6g}") for value in inexact)
    return exact, rounded, tuple(map(sortable_value, inexact))


def sortable_value(value: Any, rounding: str = "") -> Any:
    """A key that sorts values of any type, numbers by their size."""
    if is_number(value):
        number = -math.inf if value != value else value
        return ("", float(rounding.format(float(number))) if rounding else number, ())
    if isinstance(value, tuple):
        return ("tuple", 0, tuple(sortable_value(part, rounding) for part in value))
    return (type(value).__name__, 0, (repr(value),))


def has_same_order(expected: pa.Table, actual: pa.Table) -> bool:
    """Return whether two answers, equal as multisets, have their rows in one order."""
    tolerances = column_tolerances(expected, actual)
    pairs = zip(iter_rows(expected), iter_rows(actual), strict=True)
    return all(is_same_row(left, right, tolerances) for left, right in pairs)


def quote_rows(rows: Sequence[Row]) -> list[str]:
    """The first of some rows as text."""
    texts = [format_value(row) for row in rows[:QUOTED_ROWS_MAX]]
    return [it if len(it) <= ROW_CHARACTERS else it[:ROW_CHARACTERS] + "…" for it in texts]


def quote_head(table: pa.Table) -> list[str]:
    """The first rows of an answer as text."""
    return quote_rows(head_rows(table))


def format_value(value: Any) -> str:
    """A value for people: decimals as numbers, times as what they count."""
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(format_value, value)) + ")"
    return "NULL" if value is None else repr(value)
