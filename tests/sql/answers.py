"""Answers as text: how a value is written, and when two answers are the same.

Rows are CSV as Tidemill writes it, and a null is the word NULL, so that it is seen. Numbers are
compared as numbers, to nine digits; times as times, whether a T or a space stands in them; lists
and structs as the JSON that they are. All else is compared to the letter.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from typing import Any

TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d(?::?\d\d)?)?")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|Infinity)|NaN|nan")


def written(value: Any, inside: bool = False) -> Any:
    """A value of another engine as Tidemill would write it."""
    if value is None:
        return None if inside else "NULL"
    if isinstance(value, bool):
        return value if inside else str(value).lower()
    if isinstance(value, int):
        return value if inside else str(value)
    if isinstance(value, float):
        return value if inside else repr(value)
    if isinstance(value, decimal.Decimal):
        return float(value) if inside else format(value, "f")
    if isinstance(value, datetime.datetime):
        text = value.isoformat().replace("+00:00", "Z")
        return text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        made = {str(written(k, True)): written(v, True) for k, v in value.items()}
        return made if inside else json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ndarray":
        made = [written(v, True) for v in value]
        return made if inside else json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def as_lines(rows: list[list[Any]]) -> list[str]:
    """Rows of another engine as they stand in a file."""

    def cell(value: Any) -> str:
        text = str(written(value))
        plain = value is None or (text not in ("", "NULL") and not set(text) & set(',"\n\r'))
        return text if plain else '"' + text.replace('"', '""') + '"'

    return [",".join(map(cell, row)) for row in rows]


def cells(line: str) -> list[str | None]:
    """One line of CSV: a null is None, be it nothing or the word NULL; text in quotes is text."""
    found: list[str | None] = []
    at = 0
    while True:
        if line.startswith('"', at):
            end = at + 1
            while not (line.startswith('"', end) and not line.startswith('""', end)):
                if end >= len(line):
                    raise ValueError(f"a quote that does not end: {line}")
                end += 2 if line.startswith('""', end) else 1
            found.append(line[at + 1 : end].replace('""', '"'))
            at = end + 1
        else:
            end = line.find(",", at)
            end = len(line) if end < 0 else end
            word = line[at:end]
            found.append(None if word in ("", "NULL") else word)
            at = end
        if at >= len(line):
            return found
        if line[at] != ",":
            raise ValueError(f"`{line[at:]}` follows a quoted value: {line}")
        at += 1


def records(text: str) -> list[str]:
    """Cut CSV into its records: a line end within quotes is one of a value."""
    found: list[str] = []
    for line in text.split("\n"):
        if found and found[-1].count('"') % 2:
            found[-1] += "\n" + line
        else:
            found.append(line)
    if found and not found[-1]:
        found.pop()
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values are one."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if one is None or other is None or isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if not isinstance(one, (list, dict)) and not isinstance(other, (list, dict)):
        return same_text(str(one), str(other))
    return False


def same_text(one: str, other: str) -> bool:
    if one == other:
        return True
    if NUMBER.fullmatch(one) and NUMBER.fullmatch(other):
        # A zero before others is part of a text, as in a postal code.
        if any(re.match(r"[+-]?0\d", text) for text in (one, other)):
            return False
        a, b = float(one), float(other)
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    times = TIME.fullmatch(one), TIME.fullmatch(other)
    if times[0] and times[1]:
        first, second = ((*m.group(1, 2), (m[3] or "").rstrip("0"), m[4]) for m in times)
        return first == second
    if one[:1] in "[{" and other[:1] == one[:1]:
        try:
            return same(json.loads(one), json.loads(other))
        except ValueError:
            return False
    return False


def difference(wanted: list[str], came: list[str], numbers: bool = False) -> str | None:
    """What tells two answers apart; None where they are the same.

    A null that is alone in its line comes as an empty text does.

    Where truth values are numbers, true is 1.
    """
    truth = {"1": "true", "0": "false"} if numbers else {}
    wanted = records("\n".join([*wanted, ""]))
    for number, (one, other) in enumerate(zip(wanted, came, strict=False), 1):
        left, right = cells(one), cells(other)
        if left == [None] and right == [""]:
            continue
        if len(left) != len(right) or not all(
            a is b or (a is not None and b is not None and (same_text(a, b) or truth.get(a) == b))
            for a, b in zip(left, right, strict=True)
        ):
            return f"row {number}: `{other}` came, `{one}` was wanted"
    if len(wanted) != len(came):
        return f"{len(came)} rows came, {len(wanted)} were wanted"
    return None
