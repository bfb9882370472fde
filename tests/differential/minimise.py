"""From a case that differs to the least one that still does, and to one command that shows it."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pyarrow as pa

import tidemill as tm

from . import grammar
from .judge import Case, Judge, name_of
from .ways import as_csv, as_json, disguise, tables_of


def minimised(judge: Judge, case: Case, says: str, tries: int = 800) -> tuple[Case, str]:
    """The smallest case found in so many tries that shows what the first one did."""
    name = name_of(case, says)
    is_error = says.startswith("error")
    improved = True
    while improved and tries > 0:
        improved = False
        for smaller in case.smaller():
            tries -= 1
            if tries <= 0:
                break
            found = judge.difference(smaller)
            # A fault is not to turn into another one that is simpler to show.
            if (
                found is not None
                and found.startswith("error") == is_error
                and name_of(smaller, found) == name
            ):
                case, says, improved = smaller, found, True
                break
    return case, says


def _shown(answer: object) -> str:
    if isinstance(answer, pa.Table):
        try:
            rows = answer.slice(0, 4).to_pylist()
        except OverflowError:
            # Python has no such date.
            return str(answer.slice(0, 4))
        return f"{rows[:3]}{' ...' if len(rows) > 3 else ''}"
    return str(answer).splitlines()[0] if str(answer) else type(answer).__name__


def command(judge: Judge, case: Case) -> str:
    """One command that shows a difference: the shell's where text can carry it, or our own."""
    own = f"python -m differential --show {shlex.quote(case.text())}"
    if case.check != "oracle" or len(tables_of(case.statement, case.tables)) != 1:
        return own
    for format in ("csv", "json"):
        way = replace(case.way, format=format, cuts=1, door="program")
        told = replace(case, way=way)
        try:
            if judge.difference(told) is None:
                continue
        except (tm.TidemillError, ValueError, pa.ArrowException):
            continue
        place = judge.at(case.tables)
        (name,) = tables_of(case.statement, case.tables)
        table = case.tables[name]
        text = (as_csv(table, ",") if format == "csv" else as_json(table)).decode()
        if "\0" in text or len(text) > 2000 or disguise(table, format) != "plain":
            continue
        sql = place.sql(case.statement, way).replace(place.path(name, format, 1), f"t.{format}")
        words = place.command(sql, way, place.schema(name))
        words[0] = "tidemill"
        return f"printf %s {shlex.quote(text)} > t.{format}; {shlex.join(words)}"
    return own


def report(judge: Judge, case: Case, says: str) -> str:
    """What there is to say of a difference."""
    lines = [f"{case.check}, {case.way}: {says}"]
    for name in tables_of(case.statement, case.tables):
        table = case.tables[name]
        lines.append(f"  {name}: {dict(table.columns)}")
        lines += [f"    {row}" for row in table.rows[:5]]
    lines.append(f"  {case.statement.sql(grammar.TIDEMILL)}")
    place = judge.at(case.tables)
    if case.check == "oracle":
        for who, ask in (("DuckDB", judge._theirs), ("tidemill", judge._ours)):
            lines.append(f"  {who}: {_shown(ask(place, case.statement, case.way))}")
    lines.append(f"  $ {command(judge, case)}")
    return "\n".join(lines)
