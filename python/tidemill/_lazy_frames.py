"""Polars' lazy frames, which are computed while they are read."""

from __future__ import annotations

import inspect
import sys
from typing import Any

#: Rows of a batch of a lazy frame, at most.
BATCH_ROWS = 65_536


def is_lazy_frame(value: object) -> bool:
    """Return true for a LazyFrame of Polars, which need not be installed."""
    polars: Any = sys.modules.get("polars")
    # Whatever is one has imported it.
    return polars is not None and isinstance(value, polars.LazyFrame)


def to_arrow_source(value: object) -> object:
    """Give a lazy frame as what exports Arrow data, and everything else as it is.

    Polars computes the frame in batches while the stream is read. Where its version has no such
    streams, all rows are computed now, and held.
    """
    if not is_lazy_frame(value):
        return value
    frame: Any = value
    batches = getattr(frame, "collect_batches", None)
    if batches is not None and "lazy" in inspect.signature(batches).parameters:
        stream: object = batches(chunk_size=BATCH_ROWS, lazy=True)
        if hasattr(stream, "__arrow_c_stream__"):
            return stream
    try:
        table: object = frame.collect(engine="streaming")
    except TypeError:
        table = frame.collect()
    return table
