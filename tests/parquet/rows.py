"""Rows of Arrow tables as Python values that compare equal whichever reader the table is from."""

from __future__ import annotations

import collections
import decimal
import math
import uuid
from collections.abc import Hashable, Sequence
from typing import Any

import pyarrow as pa

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DIGITS = decimal.Context(prec=100)

Row = tuple[Hashable, ...]


def rows(table: pa.Table) -> list[Row]:
    """All rows of a table."""
    columns = [column(part) for part in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def difference(one: Sequence[Row], other: Sequence[Row]) -> str | None:
    """Describe how two multisets of rows differ."""
    # `repr` tells NaN and the sign of zero apart as values do not.
    counts, others = (collections.Counter(map(repr, rows)) for rows in (one, other))
    if counts == others:
        return None
    if len(one) != len(other):
        return f"{len(one)} rows, not {len(other)}"
    (more,), (less,) = list(counts - others)[:1], list(others - counts)[:1]
    return f"{more[:200]} instead of {less[:200]}"


def column(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column; times become their distance from an epoch in nanoseconds."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in column(chunk)]
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        values = column(array.storage)
        if kind.extension_name == "arrow.uuid":
            return [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
        return values
    if pa.types.is_dictionary(kind):
        return column(array.dictionary_decode())
    if pa.types.is_nested(kind):
        return nested(array)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        bits = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        word, step = str(kind).split("[")[0].rstrip("0123456789"), NANOS[kind.unit]
        values = array.cast(bits).to_pylist()
        return [None if value is None else (word, value * step) for value in values]
    if pa.types.is_date32(kind):
        values = array.cast(pa.int32()).to_pylist()
        return [None if value is None else ("date", value) for value in values]
    if pa.types.is_decimal(kind):
        values = array.to_pylist()
        return [None if value is None else value.normalize(DIGITS) for value in values]
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).to_pylist()
        # The bits of a NaN say nothing.
        return [math.nan if value is not None and math.isnan(value) else value for value in values]
    if pa.types.is_string_view(kind):
        return array.cast(pa.string()).to_pylist()
    if pa.types.is_binary_view(kind):
        return array.cast(pa.binary()).to_pylist()
    return array.to_pylist()


def nested(array: pa.Array) -> list[Any]:
    """The values of structs as pairs of name and value, of lists and maps as tuples."""
    kind, is_there = array.type, array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        fields = [column(array.field(index)) for index in range(kind.num_fields)]
        values = [
            tuple((name, field[row]) for name, field in zip(names, fields, strict=True))
            for row in range(len(array))
        ]
    elif pa.types.is_fixed_size_list(kind):
        items, size = column(array.values), kind.list_size
        starts = range(array.offset * size, (array.offset + len(array)) * size, size)
        values = [tuple(items[start : start + size]) for start in starts]
    else:
        offsets = array.offsets.to_pylist() or [0]
        if pa.types.is_map(kind):
            keys, items = column(array.keys), column(array.items)
            # Both begin at the first entry of the array.
            items, first = list(zip(keys, items, strict=True)), offsets[0]
            if len(items) == offsets[-1] - first:
                offsets = [offset - first for offset in offsets]
        else:
            items = column(array.values)
        ends = offsets[1:]
        values = [tuple(items[start:end]) for start, end in zip(offsets, ends, strict=False)]
    return [value if there else None for value, there in zip(values, is_there, strict=True)]
