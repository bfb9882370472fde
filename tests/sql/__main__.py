"""Asks every statement, and shows what came where something else was wanted.

Examples
--------
In `tests`::

    python -m sql --binary ../target/release/tidemill
    python -m sql --brief sql/duckdb/times.sql
    python -m sql --pending
    python -m sql --record
    python -m sql --ask sql/spark/times.sql
    python -m sql --against duckdb
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from .answers import as_lines, difference
from .entries import ENGINES, Answer, Entry, files, read, write
from .run import WITHOUT_HINT, Verdict, answered, binary, refused, together

KINDS = ("pass", "refused", "differs", "pending", "fault", "fail")


def table(verdicts: list[Verdict]) -> str:
    """How many of each kind there are, by dialect."""
    lines = ["dialect      " + "".join(f"{kind:>9}" for kind in (*KINDS, "all"))]
    for dialect in (*ENGINES, "all"):
        mine = [one for one in verdicts if dialect in ("all", one.entry.dialect)]
        kinds = ["fail" if one.wrong else one.kind for one in mine]
        if mine:
            counts = "".join(f"{kinds.count(kind):9}" for kind in KINDS)
            lines.append(f"{dialect:13}{counts}{len(mine):9}")
    return "\n".join(lines)


def record(verdict: Verdict) -> bool:
    """Write the marks of an entry as things are; answers stay as they are."""
    entry, said = verdict.entry, verdict.said
    before = dict(entry.texts)
    wrong = answered(entry, said)
    if said.status == 0:
        for key in ("pending", "fault", "error", "hint"):
            entry.texts.pop(key, None)
        if wrong is not None:
            entry.texts["fault"] = " ".join(wrong.split())
    elif "error" in entry.texts:
        entry.texts["error"] = said.message
        if "hint" in entry.texts:
            entry.texts["hint"] = said.hint
    else:
        entry.texts.pop("fault", None)
        without = WITHOUT_HINT if refused(said) == "has no hint" else ""
        entry.texts["pending"] = " ".join(said.message.split()) + without
    return entry.texts != before


def asked(entries: list[Entry], name: str | None) -> None:
    """Write down the answers of entries that have none: their dialect's, or those of another."""
    from .engines import MAKERS

    engines = {}
    for entry in entries:
        if any(answer.lines for answer in entry.answers) or "error" in entry.texts:
            continue
        who = name or entry.dialect
        if who not in engines:
            engines[who] = MAKERS[who]()
        try:
            names, rows = engines[who].ask(entry.statement)
        except Exception as error:
            says = str(error).strip().splitlines()[0][:300]
            print(f"{entry.place}: {who}: {says}\n{entry.statement}\n")
            continue
        with_names = any(answer.names for answer in entry.answers)
        lines = [*as_lines([names] if with_names else []), *as_lines(rows)]
        entry.answers = [Answer([who], with_names, lines)]


def confirmed(entries: list[Entry], name: str) -> None:
    """Ask another engine for the answers of others, and note where it gives the same."""
    from .engines import MAKERS

    engine = MAKERS[name]()
    same = others = 0
    for entry in entries:
        if not entry.answers or name in entry.answers[-1].engines or entry.flags:
            continue
        answer = entry.answers[-1]
        try:
            lines = as_lines(engine.ask(entry.statement)[1])
        except Exception:
            continue
        says = difference(answer.lines[1 if answer.names else 0 :], lines)
        if says is None:
            same += 1
            answer.engines.append(name)
        else:
            others += 1
            print(f"{entry.place}: {name}: {says}\n{entry.statement}\n")
    print(f"{name}: {same} answers are the same, {others} are others")


def against(entries: list[Entry], name: str) -> int:
    """Ask an engine again for the answers that it gave."""
    from .engines import MAKERS

    engine = MAKERS[name]()
    asked_again = wrong = 0
    for entry in entries:
        for answer in entry.answers:
            if name not in answer.engines:
                continue
            asked_again += 1
            try:
                names, rows = engine.ask(entry.statement)
                lines = as_lines(rows)
                if answer.names:
                    lines = [*as_lines([names]), *lines]
                says = difference(answer.lines, lines)
            except Exception as error:
                says = str(error).strip().splitlines()[0]
            if says:
                wrong += 1
                print(f"{entry.place}: {name}: {says}\n{entry.statement}\n")
    print(f"{name}: {asked_again} answers, {wrong} of them others now")
    return wrong


def main() -> int:
    """Run as the flags say."""
    parser = argparse.ArgumentParser(prog="python -m sql")
    flag = parser.add_argument
    flag("--binary", default=binary(), help="the program; default: the built one")
    flag("--brief", action="store_true", help="one line for each failure")
    flag("--pending", action="store_true", help="list what is not yet answered")
    flag("--record", action="store_true", help="rewrite the marks as things are")
    flag("--ask", action="store_true", help="ask engines for the answers that are missing")
    flag("--engine", choices=ENGINES, help="which one to ask; default: the dialect's own")
    flag("--also", choices=ENGINES, help="note where an engine gives the answers of others")
    flag("--against", choices=ENGINES, help="ask an engine again for the answers that it gave")
    flag("--against-duckdb", dest="against", action="store_const", const="duckdb")
    flag("files", nargs="*", type=pathlib.Path, help="default: all")
    arguments = parser.parse_args()
    contents = {file: read(file.resolve()) for file in arguments.files or files()}
    entries = [one for content in contents.values() for one in content if isinstance(one, Entry)]
    if arguments.ask or arguments.also:
        if arguments.ask:
            asked(entries, arguments.engine)
        else:
            confirmed(entries, arguments.also)
        for file, content in contents.items():
            write(file, content)
        return 0
    if arguments.against:
        return 1 if against(entries, arguments.against) else 0
    if arguments.pending:
        for entry in entries:
            for key in ("fault", "pending"):
                if key in entry.texts:
                    print(f"{entry.place}: {key}: {entry.texts[key]}")
        return 0
    verdicts = together(entries, arguments.binary)
    failures = [one for one in verdicts if one.wrong]
    if arguments.record:
        marked = [one for one in verdicts if one.wrong or one.kind in ("pending", "fault")]
        changed = [record(one) for one in marked].count(True)
        for file, content in contents.items():
            write(file, content)
        print(f"{changed} entries have other marks now")
    for one in failures:
        print(f"{one.entry.place}: {one.wrong}" if arguments.brief else f"{one}\n")
    print(table(verdicts))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
