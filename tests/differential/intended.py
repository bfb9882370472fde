"""Where tidemill and DuckDB are meant to differ: README.md has the list, this is its code.

Each rule is told the statement, the way, and both outcomes, and says whether it explains them.
An outcome is a table or an exception.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable

import pyarrow as pa

from .grammar import DUCKDB, TIDEMILL, Statement
from .ways import Way

Outcome = pa.Table | Exception

RULES: list[tuple[str, Callable[[str, Way, Outcome, Outcome], bool]]] = []


def rule(name: str) -> Callable[[Callable[[str, Way, Outcome, Outcome], bool]], None]:
    """Add a rule."""

    def add(holds: Callable[[str, Way, Outcome, Outcome], bool]) -> None:
        RULES.append((name, holds))

    return add


def explained(statement: Statement, way: Way, ours: Outcome, theirs: Outcome) -> str | None:
    """The name of the intended difference that this is."""
    text = f"{statement.sql(DUCKDB)}\n{statement.sql(TIDEMILL)}"
    return next((name for name, holds in RULES if holds(text, way, ours, theirs)), None)


def _says(outcome: Outcome, pattern: str) -> bool:
    return isinstance(outcome, Exception) and re.search(pattern, str(outcome)) is not None


@rule("a sum of integers is a BIGINT")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """DuckDB's is a HUGEINT: beyond 64 bits there is an answer where tidemill has an error."""
    return _says(ours, r"(?i)overflow|out of range|does not fit|beyond") and "sum(" in text


@rule("a fault of DuckDB's own")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """It cannot plan what it has planned before, nor what it makes of comparisons of one list."""
    return _says(theirs, "BindBuiltinScalarFunction did not return|Invalid type for BETWEEN")


@rule("a time beyond nanoseconds is met, or left out before")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Statistics of a format rule out rows that another format meets."""
    return "at_ns" in text and "WHERE" in text and _says(ours, r"does not fit TIMESTAMP\(9\)")


@rule("which rows an error is found in")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Whether a cast of DuckDB's comes to a row that a condition leaves out depends on its plan."""
    return _says(theirs, r"(?i)out of range|could not|conversion") and not _says(
        theirs, "(?i)overflow|higher precision"
    )


@rule("differences of nanoseconds")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Those of more than 292 years are an error; DuckDB's have microseconds."""
    return "at_ns" in text and _says(ours, "times of nanoseconds are at most 292 years apart")


@rule("times of nanoseconds beside others")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """DuckDB compares both as nanoseconds, which end in 2262, and calls their ends infinite."""
    return "at_ns" in text and _says(theirs, "higher precision|infinite timestamps")


@rule("distances beyond the end of a type")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """A frame may reach further than any key can be: DuckDB adds them in the key's type."""
    return "RANGE BETWEEN" in text and _says(
        theirs, "Overflow in (addition|subtraction)|out of range|Out of Range"
    )


@rule("the other side of nothing")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Where the first side of EXCEPT or INTERSECT is never true, the second is not computed."""
    is_empty = isinstance(ours, pa.Table) and ours.num_rows == 0
    return (
        is_empty
        and _says(theirs, "(?i)overflow")
        and re.search("EXCEPT|INTERSECT", text) is not None
    )


@rule("a condition that is never true")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """What it stands above is computed all the same, so that there is a table to merge."""
    is_empty = isinstance(theirs, pa.Table) and theirs.num_rows == 0
    return is_empty and isinstance(ours, Exception) and "WHERE false" in text


@rule("a subquery that nothing is asked of")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """An aggregate without groups is one row, and then nothing else of it is computed."""
    unused = [alias for alias in re.findall(r"\) AS (a\d+)", text) if f"{alias}." not in text]
    return isinstance(ours, pa.Table) and bool(unused) and _says(theirs, "(?i)overflow")


@rule("times beyond nanoseconds beside them")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """A column of both has no type: an error in DuckDB too, once such a row is met."""
    return _says(ours, r"does not fit TIMESTAMP\(9\)") and "at_ns" in text


@rule("parts of nanoseconds before 1970")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    # The last nanosecond before 1970 is in 1970 there, and the first and last of all are infinite.
    # A column of a subquery may be such a time.
    is_truncated = "at_ns" in text and "date_trunc(" in text
    return is_truncated or re.search(r"(date_part\([^()]*|CAST\([^()]*)at_ns", text) is not None


@rule("the first and last nanoseconds")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """The least and the greatest of 64 bits are infinite times in DuckDB."""
    answers = [str(outcome) for outcome in (ours, theirs)]
    return "at_ns" in text and any(
        re.search(r"922337203685477580[78]|1677-09-21|2262-04-11|out of range", answer)
        for answer in answers
    )


@rule("an estimate of many unique values")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Beyond some 1,500 values `unique` is within a few hundredths, and the coverage says so."""

    def near(one: object, other: object) -> bool:
        are_counts = isinstance(one, int) and isinstance(other, int)
        return are_counts and min(one, other) > 1000 and abs(one - other) <= other * 0.05

    return "unique(" in text and _alike(ours, theirs, near)


@rule("decimals of 38 digits beside finer ones")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """DuckDB keeps the digits before the point, and cuts places; a `sum` has 38 digits."""

    def near(one: object, other: object) -> bool:
        are_decimals = isinstance(one, decimal.Decimal) and isinstance(other, decimal.Decimal)
        return are_decimals and round(one, 2) == round(other, 2)

    return "sum(" in text and "UNION" in text and _alike(ours, theirs, near)


@rule("nanoseconds and an interval")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """DuckDB rounds to microseconds before it adds."""

    def near(one: object, other: object) -> bool:
        are_times = isinstance(one, datetime.datetime) and isinstance(other, datetime.datetime)
        return are_times and abs(one - other) <= datetime.timedelta(microseconds=1)

    return "INTERVAL" in text and "at_ns" in text and _alike(ours, theirs, near)


@rule("what is divided by a zero that stands for both")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Of -0.0 and 0.0 either may be kept by a key, and dividing by it shows which."""

    def near(one: object, other: object) -> bool:
        are_floats = isinstance(one, float) and isinstance(other, float)
        return are_floats and math.isinf(one) and one == -other

    keys = r"EXCEPT|INTERSECT|UNION|DISTINCT|GROUP BY|(min|max|greatest|least)\("
    return " / " in text and re.search(keys, text) is not None and _alike(ours, theirs, near)


def _alike(ours: Outcome, theirs: Outcome, near: Callable[[object, object], bool]) -> bool:
    """Whether the values of each column, in order, are equal or near."""
    if not isinstance(ours, pa.Table) or not isinstance(theirs, pa.Table):
        return False
    return ours.shape == theirs.shape and all(
        one == other or (_is_nan(one) and _is_nan(other)) or near(one, other)
        for left, right in zip(ours.columns, theirs.columns, strict=True)
        for one, other in zip(
            sorted(_values(left), key=_place), sorted(_values(right), key=_place), strict=True
        )
    )


def _values(column: pa.ChunkedArray) -> list[object]:
    """Python's values of a column; of times beyond Python's their numbers."""
    try:
        return column.to_pylist()
    except OverflowError:
        return column.cast(pa.int64()).to_pylist()


def _place(value: object) -> tuple[bool, float, str]:
    """Where a value stands among others: near numbers are next to one another."""
    is_number = isinstance(value, int | float | decimal.Decimal) and not _is_nan(value)
    if isinstance(value, float) and math.isinf(value):
        # Either of them may stand where a rule says that the other is as good.
        value = math.inf
    return (is_number, float(value) if is_number else 0, "" if is_number else str(value))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@rule("what is refused")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Each is an error that says what to write instead."""
    return _says(
        ours,
        "cannot stand in a select list|is by a constant|for logical boolean operation",
    )
