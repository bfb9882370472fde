"""Comparison of two answers as multisets of rows."""

from __future__ import annotations

import collections
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from parquet.rows import column

# Relative tolerance between numbers of which one is floating; the second of columns of 32 bits.
TOLERANCE, TOLERANCE_FLOAT = 1e-9, 1e-6
# Rows without an equal one of which every pair is tried, and rows that are compared at all.
PAIRS_MAX, ROWS_MAX = 1_000, 200_000
# Rows that a verdict quotes, and characters of a row.
QUOTED_MAX, ROW_CHARACTERS = 20, 1_000
MONTH_NANOS, DAY_NANOS = 30 * 86_400 * 10**9, 86_400 * 10**9

Row = tuple[Any, ...]


@dataclass
class Difference:
    """A difference of two answers: a sentence, and rows that only one of them has."""

    text: str
    expected: list[str]
    actual: list[str]


def values(array: pa.ChunkedArray) -> list[Any]:
    """The values of a column in a form that is independent of the engine."""
    try:
        found = column(array)
    except (AttributeError, pa.ArrowException, ValueError):
        # Unions, which only DuckDB has.
        found = array.to_pylist()
    return [canonical(value) for value in found]


def canonical(value: Any) -> Any:
    """Turn intervals and durations into lengths, and lists into tuples."""
    if isinstance(value, pa.MonthDayNano):
        return ("interval", value.months * MONTH_NANOS + value.days * DAY_NANOS + value.nanoseconds)
    if isinstance(value, tuple):
        if value[:1] == ("duration",) and len(value) == 2:
            return ("interval", value[1])
        return tuple(canonical(part) for part in value)
    if isinstance(value, list):
        return tuple(canonical(part) for part in value)
    if isinstance(value, dict):
        return tuple((key, canonical(part)) for key, part in value.items())
    return value


def table_rows(table: pa.Table) -> list[Row]:
    """All rows of an answer."""
    columns = [values(part) for part in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def is_same(one: Any, other: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether two values are the same, floating numbers within a tolerance."""
    if is_number(one) and is_number(other):
        if not isinstance(one, float) and not isinstance(other, float):
            return one == other
        try:
            one, other = float(one), float(other)
        except OverflowError:
            return False
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=0.0) or (
            # What is left of a difference that ought to be zero.
            0.0 in (one, other) and abs(one - other) < 1e-12
        )
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            is_same(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    return type(one) is type(other) and one == other


def key(value: Any) -> Any:
    """A key that equal values share, and most values within the tolerance."""
    if is_number(value):
        if isinstance(value, float) and not math.isfinite(value):
            return ("number", str(value))
        if value == int(value):
            return ("number", str(int(value)))
        return ("number", f"{float(value):.12g}")
    if isinstance(value, tuple):
        return tuple(key(part) for part in value)
    return (type(value).__name__, repr(value))


def tolerance(*tables: pa.Table) -> float:
    """The tolerance between two answers, which depends on the types of their columns."""
    kinds = " ".join(str(kind) for table in tables for kind in table.schema.types)
    is_single = any(word in kinds.replace("<", " ").split() for word in ("float", "halffloat"))
    return TOLERANCE_FLOAT if is_single or "float>" in kinds or "float," in kinds else TOLERANCE


def difference(expected: pa.Table, actual: pa.Table) -> Difference | None:
    """Describe how an answer differs from the expected one as a multiset of rows."""
    if expected.num_columns != actual.num_columns:
        text = f"{actual.num_columns} columns, not {expected.num_columns}"
        return Difference(text, quoted(expected), quoted(actual))
    if expected.num_rows != actual.num_rows and max(expected.num_rows, actual.num_rows) > ROWS_MAX:
        text = f"{actual.num_rows} rows, not {expected.num_rows}"
        return Difference(text, quoted(expected), quoted(actual))
    if expected.num_rows > ROWS_MAX:
        expected, actual = expected.slice(0, 0), actual.slice(0, 0)
    allowed = tolerance(expected, actual)
    missing, extra = unmatched(table_rows(expected), table_rows(actual), allowed)
    if not missing and not extra:
        return None
    text = f"{len(missing)} of {expected.num_rows} rows are missing"
    if expected.num_rows != actual.num_rows:
        text = f"{actual.num_rows} rows, not {expected.num_rows}"
    return Difference(text, quoted_rows(missing), quoted_rows(extra))


def unmatched(
    expected: Sequence[Row], actual: Sequence[Row], allowed: float = TOLERANCE
) -> tuple[list[Row], list[Row]]:
    """Return the rows of each answer that have no equal one in the other."""
    counts = collections.Counter(map(key, actual))
    missing = []
    for row in expected:
        row_key = key(row)
        if counts[row_key] > 0:
            counts[row_key] -= 1
        else:
            missing.append(row)
    extra = []
    for row in actual:
        row_key = key(row)
        if counts[row_key] > 0:
            counts[row_key] -= 1
            extra.append(row)
    if not missing or not extra or not any_floating(missing + extra):
        return missing, extra
    if max(len(missing), len(extra)) > PAIRS_MAX:
        return unmerged(missing, extra, allowed)
    still_missing = []
    for row in missing:
        found = next((index for index, it in enumerate(extra) if is_same(row, it, allowed)), None)
        if found is None:
            still_missing.append(row)
        else:
            del extra[found]
    return still_missing, extra


def unmerged(missing: list[Row], extra: list[Row], allowed: float) -> tuple[list[Row], list[Row]]:
    """Match rows in the order of their values, and return those without an equal one."""
    missing, extra = sorted(missing, key=rank), sorted(extra, key=rank)
    rest: tuple[list[Row], list[Row]] = ([], [])
    one = other = 0
    while one < len(missing) and other < len(extra):
        if is_same(missing[one], extra[other], allowed):
            one, other = one + 1, other + 1
        elif rank(missing[one]) < rank(extra[other]):
            rest[0].append(missing[one])
            one += 1
        else:
            rest[1].append(extra[other])
            other += 1
    return rest[0] + missing[one:], rest[1] + extra[other:]


def rank(value: Any) -> Any:
    """A key that sorts values of any type, numbers by their size."""
    if is_number(value):
        return ("", -math.inf if math.isnan(value) else float(value), "")
    if isinstance(value, tuple):
        return ("tuple", 0.0, tuple(rank(part) for part in value))
    return (type(value).__name__, 0.0, repr(value))


def any_floating(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(any_floating(part) for part in value)
    return isinstance(value, float)


def has_same_order(expected: pa.Table, actual: pa.Table) -> bool:
    """Return whether two answers, equal as multisets, have their rows in one order."""
    if expected.num_rows > ROWS_MAX:
        return True
    allowed = tolerance(expected, actual)
    pairs = zip(table_rows(expected), table_rows(actual), strict=True)
    return all(is_same(one, other, allowed) for one, other in pairs)


def quoted(table: pa.Table) -> list[str]:
    """The first rows of an answer as text."""
    return quoted_rows(table_rows(table.slice(0, QUOTED_MAX)))


def quoted_rows(rows: Sequence[Row]) -> list[str]:
    texts = [text(row) for row in rows[:QUOTED_MAX]]
    return [it if len(it) <= ROW_CHARACTERS else it[:ROW_CHARACTERS] + "…" for it in texts]


def text(value: Any) -> str:
    """A value for people: decimals as numbers, times as what they count."""
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(text, value)) + ")"
    return "NULL" if value is None else repr(value)
