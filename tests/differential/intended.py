"""Where tidemill and DuckDB are meant to differ: README.md has the list, this is its code.

Each rule is told the statement, the way, and both outcomes, and says whether it explains them.
An outcome is a table or an exception.
"""

from __future__ import annotations

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


@rule("which rows an error is found in")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Whether an operand that overflows is computed at all depends on the order of a plan."""
    if _says(theirs, "(?i)overflow") or _says(ours, "(?i)nanosecond|timestamp"):
        # Arithmetic that wraps is a fault, not a matter of order, and so are times out of reach.
        return False
    return _says(ours, r"(?i)overflow|out of range") or _says(
        theirs, r"(?i)out of range|cannot|could not|conversion"
    )


@rule("times beyond nanoseconds beside them")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """A column of both has no type: an error in DuckDB too, once such a row is met."""
    return _says(ours, r"does not fit TIMESTAMP\(9\)") and "at_ns" in text


@rule("parts of nanoseconds before 1970")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    # The last nanosecond before 1970 is in 1970 there, and the first and last of all are infinite.
    return re.search(r"(date_part\([^()]*|CAST\([^()]*)at_ns", text) is not None


@rule("an estimate of many unique values")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Beyond some 1,500 values `unique` is within a few hundredths, and the coverage says so."""
    if "unique(" not in text or not isinstance(ours, pa.Table) or not isinstance(theirs, pa.Table):
        return False
    if ours.shape != theirs.shape:
        return False
    return all(
        one == other or (_is_many(one) and _is_many(other) and abs(one - other) <= other * 0.05)
        for left, right in zip(ours.columns, theirs.columns, strict=True)
        for one, other in zip(
            sorted(left.to_pylist(), key=repr), sorted(right.to_pylist(), key=repr), strict=True
        )
    )


def _is_many(count: object) -> bool:
    return isinstance(count, int) and count > 1000


@rule("what is refused")
def _(text: str, way: Way, ours: Outcome, theirs: Outcome) -> bool:
    """Each is an error that says what to write instead."""
    return _says(
        ours,
        "cannot stand in a select list|is by a constant text|for logical boolean operation",
    )
