"""Tables and lists of a run's verdicts."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import machinery
from .judge import OUTCOMES, FileVerdict, is_failure

# Groups of refusals that the summary lists, and names in the messages of a group.
GROUPS_MAX, NAMES_MAX = 40, 8
# Rows of an answer that are printed, and characters of a row.
ROWS_MAX, ROW_CHARACTERS = 3, 300
COLUMNS = ("queries", *OUTCOMES, "unexplained", "order")


def counts_by_directory(verdicts: Iterable[dict[str, Any]]) -> dict[str, collections.Counter[str]]:
    """Count the outcomes of each directory."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for verdict in verdicts:
        count = counts[verdict["file"].split("/")[0] if "/" in verdict["file"] else "."]
        if verdict["outcome"] == "answered":
            count["answered"] += 1
            continue
        count["queries"] += 1
        count[verdict["outcome"]] += 1
        count["unexplained"] += verdict["outcome"] == "different" and "reason" not in verdict
        count["order"] += "order" in verdict
    return counts


def directory_table(verdicts: Sequence[dict[str, Any]]) -> str:
    """The table by directory: counts of each outcome, and the share of equal answers."""
    counts = counts_by_directory(verdicts)
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    has_errors = bool(total["answered"])
    columns = (*COLUMNS, "answered") if has_errors else COLUMNS
    head = ["directory", *columns, "same %"]
    lines = [head]
    for name, count in [*sorted(counts.items()), ("total", total)]:
        share = 100 * count["same"] / max(count["queries"], 1)
        lines.append([name, *(f"{count[column]:,}" for column in columns), f"{share:.1f}"])
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def share_by_place(verdicts: Iterable[dict[str, Any]]) -> str:
    """The share of equal answers where a query in a loop counts once."""
    places: dict[tuple[str, int], set[str]] = collections.defaultdict(set)
    for verdict in verdicts:
        if verdict["outcome"] != "answered":
            places[verdict["file"], verdict["line"]].add(verdict["outcome"])
    same = sum(outcomes == {"same"} for outcomes in places.values())
    share = 100 * same / max(len(places), 1)
    return f"{share:.1f} % of {len(places):,} queries are same where one in a loop counts once"


def machinery_table(verdicts: Sequence[dict[str, Any]]) -> str:
    """Counts of queries by the machinery that they need, and shares of equal answers without."""
    counts = collections.Counter(kind for it in verdicts for kind in it.get("needs", []))
    lines = [f"{count:6,}  {kind}" for kind, count in counts.most_common()]
    queries = [verdict for verdict in verdicts if verdict["outcome"] != "answered"]
    for kinds, words in ((set(machinery.MAIN_KINDS), "the main kinds"), (set(counts), "any kind")):
        others = [verdict for verdict in queries if not kinds & set(verdict.get("needs", []))]
        same = sum(verdict["outcome"] == "same" for verdict in others)
        share = 100 * same / max(len(others), 1)
        lines.append(f"{share:.1f} % of {len(others):,} queries that do not need {words} are same")
    lines[-2] += f" ({', '.join(machinery.MAIN_KINDS)})"
    return "\n".join(lines)


def message_pattern(message: str) -> str:
    """The first line of a message, with names, texts and numbers replaced."""
    first = (message.strip().splitlines() or [""])[0]
    first = re.sub(r"`[^`]*`", "`…`", first)
    first = re.sub(r"'[^']*'", "'…'", first)
    first = re.sub(r'"[^"]*"', '"…"', first)
    return re.sub(r"\d+(\.\d+)?", "N", first)[:200]


def first_name(message: str) -> str:
    """The first name in a message."""
    found = re.search(r"`([^`]*)`", message.strip().splitlines()[0] if message.strip() else "")
    return found[1][:40] if found else ""


def group_by_message(verdicts: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The verdicts by the pattern of their message, the largest group first."""
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for verdict in verdicts:
        groups[message_pattern(verdict["message"])].append(verdict)
    return [group for _, group in sorted(groups.items(), key=lambda it: (-len(it[1]), it[0]))]


def refusal_list(
    verdicts: Sequence[dict[str, Any]], examples: int = 0, limit: int = GROUPS_MAX
) -> str:
    """The most frequent refusals, each with the names in its messages and some examples."""
    lines = []
    for group in group_by_message(it for it in verdicts if it["outcome"] == "refused")[:limit]:
        lines.append(f"{len(group):6,}  {message_pattern(group[0]['message'])}")
        names = collections.Counter(first_name(verdict["message"]) for verdict in group)
        most = [f"{it} {count}" for it, count in names.most_common(NAMES_MAX) if it]
        if most:
            lines.append(f"        {', '.join(most)}")
        # From as many files as there are.
        distinct = list({verdict["file"]: verdict for verdict in group}.values())
        for verdict in (distinct + group)[:examples]:
            lines.append(f"        {verdict['file']}:{verdict['line']}: {one_line(verdict['sql'])}")
    return "\n".join(lines)


def failure_list(verdicts: Iterable[dict[str, Any]]) -> str:
    """The verdicts that make a run fail by file, the file with the most of them first."""
    files: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for verdict in verdicts:
        if is_failure(verdict):
            files[verdict["file"]].append(verdict)
    lines = []
    for name, group in sorted(files.items(), key=lambda it: (-len(it[1]), it[0])):
        lines.append(f"{len(group):6,}  {name}")
        lines += map(description, group)
    return "\n".join(lines)


def description(verdict: dict[str, Any]) -> str:
    """A verdict with its query and both answers."""
    head = f"{verdict['file']}:{verdict['line']}: {verdict['outcome']}"
    lines = [f"{head}: {verdict.get('message', '')}", f"    {one_line(verdict['sql'], 600)}"]
    if "reason" in verdict:
        lines.append(f"    intended: {verdict['reason']}")
    if verdict.get("settings"):
        lines.append(f"    settings: {verdict['settings']}")
    if "types" in verdict:
        expected, actual = verdict["types"]
        lines.append(f"    types: {', '.join(expected)}; {', '.join(actual)}")
    for name, rows in (("duckdb:  ", "expected"), ("tidemill:", "actual")):
        for row in verdict.get(rows, [])[:ROWS_MAX]:
            lines.append(f"    {name} {one_line(row, ROW_CHARACTERS)}")
    return "\n".join(lines)


def left_out_files(files: Iterable[FileVerdict]) -> str:
    """The files of which all or the rest was left out, by reason."""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for file in files:
        if file.left_out:
            reasons[file.left_out].append(file.name)
    return "\n".join(
        f"{len(names):6,}  {reason}: {', '.join(names[:3])}{', …' if names[3:] else ''}"
        for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
    )


def one_line(sql: str, limit: int = 200) -> str:
    words = " ".join(sql.split())
    return words if len(words) <= limit else words[:limit] + "…"
