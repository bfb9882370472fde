"""Tables that SQL names and that are variables of whoever calls."""

from __future__ import annotations

import os
from types import FrameType

from tidemill import _formats, _tidemill
from tidemill._errors import UsageError
from tidemill._parameters import Given

VARIABLE = "TIDEMILL_REPLACEMENT_SCANS"


def are_wanted(asked: bool | None) -> bool:
    """Say whether variables are looked at: as the call says, else the environment."""
    if asked is not None:
        return asked
    said = os.environ.get(VARIABLE, "").strip().lower()
    if said in ("", "on", "1", "true"):
        return True
    if said in ("off", "0", "false"):
        return False
    raise UsageError(f"{VARIABLE}: `{said}` is neither `on` nor `off`")


def found(
    sql: str, parameters: list[tuple[str, Given]], names: list[str], frame: FrameType
) -> list[_formats.NamedObject]:
    """Give the variables of a frame that are tables of the SQL, which are neither files nor named.

    A variable of the function comes before one of its module.
    """
    sources = []
    for written, name in _tidemill.unknown_tables(sql, parameters, names):
        for variables in (frame.f_locals, frame.f_globals):
            # Outside of quotes, SQL takes capitals for small letters.
            known = next((it for it in (written, name) if it in variables), None)
            if known is not None:
                source = _formats.variable(known, variables[known])
                source["name"] = name
                sources.append(source)
                break
    return sources
