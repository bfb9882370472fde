"""Kinds of columns, values at the edge of each, and random tables of them.

A table keeps dates and times as whole numbers of their unit, so that no library's own objects
stand between a value and what is compared.
"""

from __future__ import annotations

import decimal
import random
import struct
from dataclasses import dataclass

import pyarrow as pa

INTEGERS = {
    "tiny": (pa.int8(), -(2**7), 2**7 - 1),
    "small": (pa.int16(), -(2**15), 2**15 - 1),
    "int": (pa.int32(), -(2**31), 2**31 - 1),
    "big": (pa.int64(), -(2**63), 2**63 - 1),
    "utiny": (pa.uint8(), 0, 2**8 - 1),
    "uint": (pa.uint32(), 0, 2**32 - 1),
    "ubig": (pa.uint64(), 0, 2**64 - 1),
    # Small numbers, with which arithmetic is safe, and keys that meet.
    "calm": (pa.int32(), -20, 20),
    # Unlike in all rows of a table.
    "id": (pa.int64(), 0, 2**63 - 1),
}
# Digits and scale.
DECIMALS = {"price": (9, 2), "exact": (18, 6), "wide": (38, 10), "whole": (38, 0)}
# How many of the unit are a second, and the years that are safe to write as text.
TIMES = {"at": "us", "at_s": "s", "at_ms": "ms", "at_ns": "ns", "zoned": "us"}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

ARROW = {name: kind for name, (kind, _, _) in INTEGERS.items()}
ARROW |= {name: pa.decimal128(*digits) for name, digits in DECIMALS.items()}
ARROW |= {name: pa.timestamp(unit) for name, unit in TIMES.items()}
ARROW |= {
    "zoned": pa.timestamp("us", "UTC"),
    "flag": pa.bool_(),
    "double": pa.float64(),
    "real": pa.float32(),
    # Eighths, whose sums are exact in any order.
    "tame": pa.float64(),
    "text": pa.string(),
    "word": pa.string(),
    "day": pa.date32(),
    "nums": pa.list_(pa.int64()),
    "record": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "records": pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
}
NESTED = ("nums", "record", "records")

_DOUBLES = (
    0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.5, 1.5, 2.5, 1e-20, 1e16, -1e16, 1e26, 1e300, -1e300,
    5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308,
    float("inf"), float("-inf"), float("nan"), 9007199254740993.0, 123456789.123456789,
)  # fmt: skip
_TEXTS = (
    "", " ", "a", "A", "b", "ab", "aB", "NULL", "null", "NaN", "0", "-0", "1e5", "007", "true",
    "a,b", "a;b", 'say "x"', '"', '""', "'", "it's", "a\tb", "a\nb", "a\r\nb", "\n", "\\", "\\n",
    "a\\", "%", "_", "a%b", " a ", "a ", " a", "é", "e\u0301", "ß", "İ", "\u0131", "ǅ", "日本語",
    "😀", "\u200b", "\ufeff", "\u0000", "{}", "[1]", '{"a":1}', "#", "--", "-", "=1", "x" * 12,
    "x" * 13, "y" * 300,
)  # fmt: skip
_WORDS = ("ann", "bob", "cy", "dee", "a", "ab", "rome", "oslo", "")
_DAYS = (-719162, 2932896, 0, -1, 1, 59, 60, 365, 11016, 20000, 19782, -25509, 20780)
_SECONDS = (
    0, -1, 1, 59, 60, 86399, 86400, -86400, 951782399, 951782400, 1709164800, 1900000000,
    253402300799, -62135596800, 4102444800, -2208988800, 1774744200, 1793066399,
)  # fmt: skip


def _number(chance: random.Random, kind: str) -> int:
    _, low, high = INTEGERS[kind]
    pick = chance.random()
    if pick < 0.25:
        return chance.choice((low, high, low + 1, high - 1))
    if pick < 0.75:
        return max(low, min(high, chance.randint(-3, 5)))
    return chance.randint(low, high)


def _decimal(chance: random.Random, kind: str) -> decimal.Decimal:
    digits, scale = DECIMALS[kind]
    pick = chance.random()
    if pick < 0.15:
        unscaled = chance.choice((-1, 1)) * (10**digits - 1)
    elif pick < 0.6:
        unscaled = chance.randint(-4, 4) * 10**scale
    else:
        unscaled = chance.randint(-(10 ** min(digits, 12)), 10 ** min(digits, 12))
    return decimal.Decimal(unscaled).scaleb(-scale, context=_CONTEXT)


_CONTEXT = decimal.Context(prec=80)


def _time(chance: random.Random, kind: str) -> int:
    unit = TIMES[kind]
    per = PER_SECOND[unit]
    if unit == "ns":
        pick = chance.random()
        if pick < 0.15:
            return chance.choice((-(2**63) + 1, 2**63 - 1, -1, 1, 999_999_999, 1_000_000_001))
        seconds = chance.choice([s for s in _SECONDS if abs(s) < 9_000_000_000])
    else:
        seconds = chance.choice(_SECONDS)
        if chance.random() < 0.5:
            seconds = chance.randint(-(10**9), 2 * 10**9)
    if per == 1 or chance.random() < 0.5:
        return seconds * per
    part = chance.choice((1, per // 2, per - 1, 1000 % per, chance.randrange(per)))
    return seconds * per + part


def value(chance: random.Random, kind: str) -> object:
    """One value of a kind; null now and then."""
    if chance.random() < 0.12:
        return None
    if kind in INTEGERS:
        return _number(chance, kind)
    if kind in DECIMALS:
        return _decimal(chance, kind)
    if kind in TIMES:
        return _time(chance, kind)
    if kind == "flag":
        return chance.random() < 0.5
    if kind == "double":
        return chance.choice(_DOUBLES) if chance.random() < 0.8 else chance.gauss(0, 1000)
    if kind == "real":
        number = chance.choice(_DOUBLES)
        if abs(number) > 3.4e38 and number not in (float("inf"), float("-inf")):
            number = 3.4028234663852886e38
        return struct.unpack("f", struct.pack("f", number))[0]
    if kind == "tame":
        return chance.randint(-800, 800) / 8
    if kind == "text":
        text = chance.choice(_TEXTS)
        return text + chance.choice(_TEXTS) if chance.random() < 0.2 else text
    if kind == "word":
        return chance.choice(_WORDS)
    if kind == "day":
        return chance.choice(_DAYS) if chance.random() < 0.6 else chance.randint(-30000, 40000)
    if kind == "nums":
        return [value(chance, "calm") for _ in range(chance.randrange(4))]
    if kind == "record":
        return {"a": value(chance, "calm"), "b": value(chance, "text")}
    if kind == "records":
        return [value(chance, "record") for _ in range(chance.randrange(3))]
    raise ValueError(kind)


@dataclass(frozen=True)
class Table:
    """Rows of columns; `columns` are pairs of a name and a kind."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[object, ...], ...]

    def arrow(self) -> pa.Table:
        """The table as PyArrow's."""
        arrays = []
        for at, (_, kind) in enumerate(self.columns):
            cells = [row[at] for row in self.rows]
            if kind == "day":
                arrays.append(pa.array(cells, pa.int32()).cast(pa.date32()))
            elif kind in TIMES:
                arrays.append(pa.array(cells, pa.int64()).cast(ARROW[kind]))
            else:
                arrays.append(pa.array(cells, ARROW[kind]))
        schema = pa.schema([(name, ARROW[kind]) for name, kind in self.columns])
        return pa.table(arrays, schema=schema)

    def kinds(self) -> set[str]:
        """The kinds of its columns."""
        return {kind for _, kind in self.columns}


def table(chance: random.Random, rows: int, nested: bool) -> Table:
    """A table whose column `id` tells its rows apart."""
    kinds = [kind for kind in ARROW if kind != "id" and (nested or kind not in NESTED)]
    # Each table can be joined and grouped.
    chosen = ["calm", "word", *chance.sample(kinds, chance.randint(2, 6))]
    columns = [("id", "id")]
    for kind in chosen:
        columns.append((f"{kind}{sum(1 for _, other in columns if other == kind) or ''}", kind))
    ids = chance.sample(range(rows * 3), rows)
    made = tuple(
        (ids[row], *(value(chance, kind) for _, kind in columns[1:])) for row in range(rows)
    )
    return Table(tuple(columns), made)
