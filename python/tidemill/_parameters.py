"""Values for ``$1``, ``?`` and ``:name`` in SQL, in the native module's form."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill._errors import UsageError, encodable

#: A value: its kind, its text, and what a list holds.
Given = tuple[str, str, list[Any]]

#: What ``params=`` takes.
Params = Mapping[str, object] | Sequence[object]

_DIGITS_MAX = 76


def given(params: Params | None) -> list[tuple[str, Given]]:
    """Give the parameters by their names: those of ``$1`` and the first ``?`` are called ``1``.

    >>> given({"day": "2026-11-20", "$n": 5})
    [('day', ('text', '2026-11-20', [])), ('n', ('number', '5', []))]
    >>> given([None, [1, 2.5]])
    [('1', ('null', '', [])), ('2', ('list', '', [('number', '1', []), ('number', '2.5', [])]))]
    """
    if params is None:
        return []
    if isinstance(params, Mapping):
        named = [
            (encodable(str(name).lstrip("$:"), "a parameter's name"), value)
            for name, value in params.items()
        ]
    elif isinstance(params, str | bytes) or not hasattr(params, "__getitem__"):
        raise UsageError(
            f"`params` must be a mapping or a sequence, not {type(params).__name__}\n"
            "hint: params={'day': '2026-11-20'} for :day, params=['2026-11-20'] for ? or $1"
        )
    else:
        named = [(str(number), value) for number, value in enumerate(params, start=1)]
    return [(name, _value(value, name)) for name, value in named]


def _value(value: Any, name: str) -> Given:
    kind, text = _one(value, name)
    if kind == "list":
        return kind, text, [_value(item, name) for item in value]
    return kind, text, []


def _one(value: Any, name: str) -> tuple[str, str]:
    # pandas' nulls, of which one is a datetime.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return "null", ""
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    if isinstance(value, int):
        return _integer(int(value), name)
    if isinstance(value, float):
        value = float(value)
        return ("number", repr(value)) if math.isfinite(value) else ("cast DOUBLE", str(value))
    if isinstance(value, str):
        return "text", encodable(str.__str__(value), f"parameter `{name}`")
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value).hex()
    if isinstance(value, decimal.Decimal):
        return _decimal(value, name)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            return "timestamp", value.isoformat()
        return "timestamptz", value.astimezone(datetime.timezone.utc).isoformat()
    if isinstance(value, datetime.date):
        return "date", value.isoformat()
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise UsageError(
                f"parameter `{name}` is a time of day with a zone, which SQL has no type for\n"
                "hint: value.replace(tzinfo=None), or a datetime"
            )
        return "time", value.isoformat()
    if isinstance(value, datetime.timedelta):
        # pandas' own kind of it has nanoseconds.
        parts = value.microseconds * 1000 + getattr(value, "nanoseconds", 0)
        return "interval", f"{value.days} days {value.seconds}.{parts:09} seconds"
    if isinstance(value, tuple) and hasattr(value, "months") and hasattr(value, "nanoseconds"):
        # An `Interval`, or PyArrow's own.
        return "interval", _interval(*value)
    if isinstance(value, uuid.UUID):
        return "text", str(value)
    if isinstance(value, list | tuple):
        return "list", ""
    # A number of NumPy's.
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        item = value.item()
        if type(item) is not type(value):
            return _one(item, name)
    raise UsageError(
        f"parameter `{name}` is of type {type(value).__name__}, which no value of SQL is\n"
        "hint: values are None, bool, int, float, str, bytes, Decimal, date, datetime, time, "
        "timedelta, Interval, and lists of these"
    )


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """Write an interval as SQL does.

    >>> _interval(14, -3, -1_500_000_000)
    '14 months -3 days -1.500000000 seconds'
    """
    sign, parts = "-" if nanoseconds < 0 else "", abs(nanoseconds)
    seconds = f"{sign}{parts // 10**9}.{parts % 10**9:09}"
    return f"{months} months {days} days {seconds} seconds"


def _integer(value: int, name: str) -> tuple[str, str]:
    if -(2**63) <= value < 2**64:
        return "number", str(value)
    return _decimal(decimal.Decimal(value), name)


def _decimal(value: decimal.Decimal, name: str) -> tuple[str, str]:
    if not value.is_finite():
        raise UsageError(
            f"parameter `{name}` is {value}, which no DECIMAL is\n"
            "hint: float(value) is a DOUBLE, None is null"
        )
    _, digits, exponent = value.as_tuple()
    behind = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), behind, 1)
    if precision > _DIGITS_MAX:
        raise UsageError(
            f"parameter `{name}` is a number of {precision} digits; {_DIGITS_MAX} is the most"
        )
    return f"cast DECIMAL({precision}, {behind})", format(value, "f")
