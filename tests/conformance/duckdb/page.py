"""The page "Differences from DuckDB" of the docs, made from the list of intended differences."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable

from . import machinery
from .intended import HAND_OVER, INTENDED, Intended

PATH = pathlib.Path(__file__).parents[3] / "docs" / "differences-from-duckdb.md"

HEAD = """\
# Differences from DuckDB

Most SQL of DuckDB has the same answer here. This page has the queries whose answer is another one
on purpose, and what is refused by its name. It is made from the list of intended differences by
which DuckDB's own test suite judges this product (`make conformance WHAT=duckdb`); a test runs each
example on both. [Coming from DuckDB](coming-from.md#duckdb) has what one writes in either of them.

## Other answers

| difference | query | DuckDB | here |
| --- | --- | --- | --- |
"""

REFUSED = """
## Refused by name

Types, functions and statements that belong to a database with storage of its own, or to DuckDB's
internals, are refused with a message that names them: {kinds}.
"""


def text(entries: Iterable[Intended] = INTENDED) -> str:
    """Return the page."""
    rows = {}
    for entry in entries:
        if entry.page != HAND_OVER and (entry.reason not in rows or not rows[entry.reason].example):
            rows[entry.reason] = entry
    lines = [row(entry) for entry in rows.values()]
    kinds = sorted(machinery.KINDS, key=str.lower)
    return HEAD + "".join(lines) + REFUSED.format(kinds=", ".join([*kinds, "macros"]))


def row(entry: Intended) -> str:
    """Return a difference as a row of the table."""
    page, _, heading = entry.page.partition("#")
    link = f"[{page.removesuffix('.md')}]({page}{anchor(heading)})"
    cells = [code(it) for it in entry.example] if entry.example else [""] * 3
    return f"| {entry.reason} ({link}) | {' | '.join(cells)} |\n"


def anchor(heading: str) -> str:
    """Return the fragment by which a page calls a heading."""
    if not heading:
        return ""
    return "#" + re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def code(value: str) -> str:
    """Return a text as code in a cell of a table."""
    value = " ".join(value.split()).replace("|", "\\|")
    return f"`` {value} ``" if "`" in value else f"`{value}`"
