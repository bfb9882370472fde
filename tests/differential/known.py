"""Faults that are known and being mended: for the time being, and empty otherwise.

Unlike intended.py this is no list of what is right. Each entry is a pattern over the statement's
text and one over what differs (or the error); a new fault is reported even where a known one
could be in the way, as long as it does not look the same.
"""

from __future__ import annotations

import re

# (name, pattern of the statement, pattern of the difference)
KNOWN: list[tuple[str, str, str]] = []


def known(statement: str, says: str) -> str | None:
    """The name of the known fault that this looks like."""
    for name, pattern, difference in KNOWN:
        if re.search(pattern, statement, re.S) and re.search(difference, says, re.S):
            return name
    return None
