"""Numbers as people read them, in the command line's words."""

from __future__ import annotations


def grouped(number: int) -> str:
    """Write a count with thousands separators.

    >>> grouped(10103280)
    '10,103,280'
    """
    return f"{number:,}"


def human_bytes(size: float) -> str:
    """Write a size in decimal units.

    >>> human_bytes(999), human_bytes(9994), human_bytes(99960), human_bytes(932e6)
    ('999 B', '9.99 kB', '100 kB', '932 MB')
    """
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    unit = 0
    while size >= 999.5 and unit + 1 < len(units):
        size /= 1000
        unit += 1
    digits = 0 if unit == 0 or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {units[unit]}"


def human_duration(seconds: float) -> str:
    """Write a time in its largest unit.

    >>> human_duration(1.4), human_duration(80), human_duration(200), human_duration(7200)
    ('1 second', '80 seconds', '3 minutes', '2 hours')
    """
    for unit, length in (("hour", 3600.0), ("minute", 60.0), ("second", 1.0)):
        count = round(seconds / length)
        if seconds >= 1.5 * length or unit == "second":
            break
    return f"{count} {unit}{'' if count == 1 else 's'}"


def counted(count: int, what: str) -> str:
    """Write a count of things.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{grouped(count)} {what}{'' if count == 1 else 's'}"
