"""Intervals that `datetime.timedelta` does not hold."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """An INTERVAL in its three parts, none of which is converted into another.

    An INTERVAL of days and shorter units is a ``datetime.timedelta`` in Python. One with months, or
    with a fraction of a microsecond, is an `Interval`, which equals the ``pyarrow.MonthDayNano`` of
    the same parts. Both are values for ``params=``.

    Attributes
    ----------
    months : int
        Months; a year is 12 of them.
    days : int
        Days.
    nanoseconds : int
        Hours and shorter units.

    Examples
    --------
    >>> import tidemill as tm
    >>> tm.query("SELECT INTERVAL '1 year 2 days' AS long, INTERVAL '36 hours' AS short").fetchone()
    (Interval(months=12, days=2, nanoseconds=0), datetime.timedelta(days=1, seconds=43200))
    >>> sql = "SELECT DATE '2026-01-31' + :span AS day"
    >>> tm.query(sql, params={"span": tm.Interval(months=1)}).fetchone()
    (datetime.date(2026, 2, 28),)
    """

    months: int = 0
    days: int = 0
    nanoseconds: int = 0
