"""Reads files with each reader, and judges what comes."""

from __future__ import annotations

import datetime
import fnmatch
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.parquet

import tidemill as tm

from . import expected
from .rows import Row, column, difference, rows

FOLDERS = ("data", "data/aes256", "data/geospatial", "bad_data")
# The filters that are tried on a file.
COLUMNS_MAX, VALUES_MAX = 8, 3
PATTERN = "*.parquet*"


def ask(sql: str) -> pa.Table:
    """Tidemill's answer as a table."""
    return pa.table(tm.query(sql, source_format="parquet"))


def quoted(path: pathlib.Path) -> str:
    """A file's name in SQL, in which brackets are a pattern."""
    return "'" + str(path).replace("'", "''") + "'"


def read_tidemill(path: pathlib.Path) -> pa.Table:
    return ask(f"SELECT * FROM {quoted(path)}")


def read_pyarrow(path: pathlib.Path) -> pa.Table:
    return pa.parquet.ParquetFile(path).read()


def read_duckdb(path: pathlib.Path) -> pa.Table:
    with duckdb.connect() as connection:
        # Otherwise the zone of this machine is that of the columns.
        connection.execute("SET timezone = 'UTC'")
        return connection.sql(f"FROM read_parquet({quoted(path)})").to_arrow_table()


OTHERS: dict[str, Callable[[pathlib.Path], pa.Table]] = {
    "pyarrow": read_pyarrow,
    "duckdb": read_duckdb,
}


@dataclass
class Verdict:
    """The verdict on a file, with what each reader said."""

    name: str
    kind: str
    said: list[str] = field(default_factory=list)
    # The entries of `expected` that were needed.
    used: set[object] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.kind:8} {self.name:60} {'; '.join(self.said)}".rstrip()


def files(root: pathlib.Path) -> list[pathlib.Path]:
    """The files of a checkout."""
    return sorted(path for folder in FOLDERS for path in (root / folder).glob(PATTERN))


def judged(root: pathlib.Path, path: pathlib.Path, *, with_filters: bool = False) -> Verdict:
    """Read a file with every reader, and compare."""
    name = path.relative_to(root).as_posix()
    if skipped := expected.first_match(expected.SKIPPED, name):
        return Verdict(name, "skipped", [skipped[1]], {skipped[0]})
    others = {} if fnmatch.fnmatchcase(name, expected.NOT_ASKED) else OTHERS
    refusal = expected.first_match(expected.REFUSED, name)
    try:
        table = read_tidemill(path)
    except tm.TidemillError as error:
        message = " ".join(str(error).split("\n")[0].split())
        if refusal and refusal[1] in message:
            return Verdict(name, "refused", [message.replace(str(root) + "/", "")], {refusal[0]})
        return Verdict(name, "FAILED", [message])
    if refusal:
        return Verdict(name, "FAILED", [f"is read, and was to be refused: {refusal[1]}"])
    verdict = Verdict(name, "same")
    own = rows(table)
    for reader, read in others.items():
        try:
            theirs = rows(read(path))
        except Exception as error:
            verdict.said.append(f"{reader} refuses it: {first_line(error)}")
            continue
        differs, known = difference(own, theirs), expected.reason(name, reader)
        if differs and known:
            verdict.kind = "differs" if verdict.kind == "same" else verdict.kind
            verdict.said.append(f"{reader} {known[1]}")
            verdict.used.add(known[0])
        elif differs:
            verdict.kind = "FAILED"
            verdict.said.append(f"{reader}: {differs}")
    wrong = counts(path, table, own, with_filters=with_filters)
    if wrong:
        verdict.kind = "FAILED"
        verdict.said.extend(wrong)
    return verdict


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


def counts(path: pathlib.Path, table: pa.Table, own: list[Row], *, with_filters: bool) -> list[str]:
    """Compare `count(*)`, alone and with filters, with the rows that were read."""
    wrong = []
    tests = [("true", len(own))]
    if with_filters:
        tests += filters(table)
    for condition, expected_count in tests:
        sql = f"SELECT count(*) AS n FROM {quoted(path)} WHERE {condition}"
        if condition == "true":
            sql = f"SELECT count(*) AS n FROM {quoted(path)}"
        try:
            found = ask(sql)["n"][0].as_py()
        except tm.TidemillError as error:
            wrong.append(f"{condition}: {first_line(error)}")
            continue
        if found != expected_count:
            wrong.append(f"{found} rows where {condition}, not {expected_count}")
    return wrong


def filters(table: pa.Table) -> list[tuple[str, int]]:
    """Conditions on single columns, each with the number of rows that satisfy it."""
    found = []
    names = [name for name in table.column_names if table.column_names.count(name) == 1]
    for name in names[:COLUMNS_MAX]:
        values = [value for value in column(table[name]) if value is not None]
        distinct = list(dict.fromkeys(values))
        # The first, the last, and one in between.
        some = distinct[:: max(len(distinct) // VALUES_MAX, 1)][:VALUES_MAX]
        for value in some:
            literal = sql_literal(value, table.schema.field(name).type)
            if literal is not None:
                escaped = name.replace('"', '""')
                found.append((f'"{escaped}" = {literal}', values.count(value)))
    return found


def sql_literal(value: object, kind: pa.DataType) -> str | None:
    """A value in SQL, if it is of a type that is written simply."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_date32(kind) and isinstance(value, tuple):
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=value[1])
        return f"DATE '{day.isoformat()}'"
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    return None


def unused(verdicts: list[Verdict]) -> list[str]:
    """Entries of `expected` that no file needed."""
    used = set().union(*(verdict.used for verdict in verdicts))
    entries: list[object] = [*expected.SKIPPED, *expected.REFUSED]
    entries += [(pattern, reader) for pattern, reader, _ in expected.DIFFERENT]
    return [f"no file needs the entry {entry}" for entry in entries if entry not in used]
