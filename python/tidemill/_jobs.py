"""The job log: ``jobs``."""

from __future__ import annotations

import json
from typing import Any, Literal, overload

from tidemill import _tidemill
from tidemill._errors import UsageError

_RUNS = {"list": 0, "show": 1, "top": 0, "compare": 2}


@overload
def jobs(
    what: Literal["list"] = "list",
    /,
    *,
    since: str | None = None,
    name: str | None = None,
    last: int = 20,
) -> list[dict[str, Any]]: ...
@overload
def jobs(what: Literal["show"], run: str, /) -> dict[str, Any]: ...
@overload
def jobs(what: Literal["top"], /, *, since: str = "7d", last: int = 20) -> dict[str, Any]: ...
@overload
def jobs(what: Literal["compare"], a: str, b: str, /) -> dict[str, Any]: ...


def jobs(
    what: str = "list",
    /,
    *runs: str,
    since: str | None = None,
    name: str | None = None,
    last: int | None = None,
) -> list[dict[str, Any]] | dict[str, Any]:
    """Say what ran, what it cost, and what a change saved.

    Every query and job, from Python and from the command line, is kept in the job log.

    Parameters
    ----------
    what : {"list", "show", "top", "compare"}
        ``list``: the last runs, newest first. ``show``: one run in full. ``top``: mappers and
        reducers by processor time. ``compare``: the change from one run, or group of runs, to
        another.
    *runs : str
        For ``show`` the run. For ``compare`` two groups, each a run, a comma list of runs, a
        job's name, or a job's name with a period: ``"visitors@7d"``,
        ``"visitors@2026-11-01..2026-11-08"``.
    since : str, optional
        For ``list`` and ``top``: runs that started since then, ``"7d"`` or ``"2026-11-01"``
        (UTC). Default: for ``top`` the last seven days, for ``list`` all.
    name : str, optional
        For ``list``: only runs of the job of this name.
    last : int, optional
        For ``list`` and ``top``: how many at most. Default: 20.

    Returns
    -------
    list of dict or dict
        A list for ``list``; a dictionary otherwise.

    Raises
    ------
    UsageError
        If there is no such run or job, or a time is not understood.

    Examples
    --------
    >>> import pyarrow, tidemill as tm
    >>> _ = pyarrow.table(tm.query("SELECT 1 AS one"))
    >>> run = tm.jobs(last=1)[0]
    >>> run["mapper"], run["outcome"]
    ('SELECT 1 AS one', 'done')
    >>> tm.jobs("show", run["id"])["via"]
    'python'
    """
    if what not in _RUNS:
        raise UsageError(f"unknown report `{what}`\nreports: {', '.join(_RUNS)}")
    if len(runs) != _RUNS[what]:
        raise UsageError(f"`{what}` takes {_RUNS[what]} runs or groups of runs, not {len(runs)}")
    given = {"since": since, "name": name, "last": last}
    known = {"list": {"since", "name", "last"}, "top": {"since", "last"}}.get(what, set())
    for option, value in given.items():
        if value is not None and option not in known:
            raise UsageError(f"`{option}` means nothing to `{what}`")
    if last is not None and last < 1:
        raise UsageError(f"`last` must be at least 1, not {last}")
    if what == "top" and since is None:
        since = "7d"
    count = 20 if last is None else last
    report: list[dict[str, Any]] | dict[str, Any]
    report = json.loads(_tidemill.jobs(what, list(runs), since, name, count))
    return report
