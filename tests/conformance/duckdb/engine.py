"""Tidemill as the judge asks it: one query over tables in memory."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import tidemill as tm

MEMORY = "2GiB"
# Arguments of `tm.query`, by whose names no table can be passed.
ARGUMENTS = frozenset(tm.query.__kwdefaults__ or ()) | {"sql"}


def run_query(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return Tidemill's answer to a query over the tables that it names."""
    passed_tables = {name: table for name, table in tables.items() if name not in ARGUMENTS}
    scanned_tables = {name: table for name, table in tables.items() if name in ARGUMENTS}
    if not scanned_tables:
        return tm.query(sql, memory=MEMORY, replacement_scans=False, **passed_tables).to_arrow()
    # A table that is called like an argument becomes a global variable of the caller, which
    # `tm.query` finds.
    caller = types.FunctionType(_call_with_globals.__code__, scanned_tables)
    return caller(tm.query, sql, {"memory": MEMORY, **passed_tables}).to_arrow()


def _call_with_globals(query_: Any, sql_: str, arguments_: Mapping[str, Any]) -> Any:
    # `tm.query` looks at local variables first, and no argument is called like one of these.
    return query_(sql_, replacement_scans=True, **arguments_)


def error_outcome(error: BaseException) -> str:
    """Return whether an error is a refusal or a fault of Tidemill's own."""
    message = str(error).lower()
    if isinstance(error, tm.InternalError) or not isinstance(error, tm.TidemillError):
        return "internal"
    return "internal" if "internal error" in message or "panicked" in message else "refused"
