"""Where tidemill and DuckDB are meant to differ: README.md has the list, this is its code.

Each rule is told the statement, the way, and both outcomes, and says whether it explains them.
An outcome is a table or an exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from .grammar import DUCKDB, Statement
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
    text = statement.sql(DUCKDB)
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
    errors = r"(?i)overflow|out of range|cannot|could not|conversion"
    return (_says(ours, r"(?i)overflow|out of range") and "+" in text + "*-") or _says(
        theirs, errors
    )
