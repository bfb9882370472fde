"""Faults that are known and being mended: for the time being, and empty otherwise.

Unlike intended.py this is no list of what is right. Each entry is a pattern over the statement's
text and one over what differs (or the error); a new fault is reported even where a known one
could be in the way, as long as it does not look the same.
"""

from __future__ import annotations

import re

# (name, pattern of the statement, pattern of the difference)
KNOWN: list[tuple[str, str, str]] = [
    ("a UNION takes the first branch's type", r" (UNION|INTERSECT|EXCEPT) ", r""),
    ("times beyond nanoseconds fail", r"", 
     r"to Nanosecond|nanoseconds have to be|to Timestamp\(ns\)|Timestamp -?\d+ out of range"),
    ("two spellings of one key are refused", r"", r"unique expression names"),
    ("sorts at 64M", r"", r"Additional allocation failed"),
    ("DOUBLE against DECIMAL", r"", r"Cannot cast to Decimal|too large to store in a Decimal"),
    ("count(DISTINCT) is not mergeable", r"", r"called with DISTINCT"),
    ("subqueries in a select list", r"", r"does not support logical expression"),
    ("WHERE false has no partial table", r"", r"the query reads no source"),
    ("IN (SELECT) below an expression", r"IN \(SELECT", r"rows and|row "),
    ("CASE WHEN NULL takes the first branch's type", r"CASE WHEN CAST\(NULL", r"None and "),
    ("a NaN with a sign is the smallest", r"[-/*]", r"\bnan\b|NaN|True and False|False and True"),
    ("count(DISTINCT) of -0.0 and 0.0", r"count\(DISTINCT", r": \d+ and \d+ "),
    ("JSON has null for inf and NaN", r"", r"^converted.*None and (inf|-inf|nan).*json"),
    ("CASE WHEN NULL takes the first branch's type", r"CASE WHEN CAST\(NULL", r"."),
    ("nullif of 0.0 and -0.0", r"nullif", r": -?0\.0 and None"),
    ("min and max of NaN by path", r"(min|max)\(", r"\bnan\b|inf\b"),
    ("integer arithmetic wraps", r"[-+*]", r"refuses: .*[Oo]verflow"),
]


def known(statement: str, says: str) -> str | None:
    """The name of the known fault that this looks like."""
    for name, pattern, difference in KNOWN:
        if re.search(pattern, statement, re.S) and re.search(difference, says, re.S):
            return name
    return None
