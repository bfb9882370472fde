"""The ways in which a statement can be answered, and the files that they read."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import math
import os
import pathlib
import random
import subprocess
import zlib
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet

import tidemill as tm

from .grammar import DUCKDB, IN_ORDER, TIDEMILL, Compound, E, Select, Statement
from .values import NESTED, PER_SECOND, TIMES, Table

# Avro has no unsigned numbers of 64 bits, and is written without nanoseconds.
NOT_IN_AVRO = {"ubig", "at_ns"}
FORMATS = ("parquet", "csv", "tsv", "json", "arrow", "avro", "rowfile", "object")
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def binary() -> str:
    """The program."""
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    return os.environ.get("TIDEMILL", str(REPOSITORY / target / "release" / "tidemill"))


@dataclass(frozen=True)
class Way:
    """How a statement is asked."""

    format: str = "parquet"
    cuts: int = 1
    threads: int | None = None
    memory: str | None = None
    # As the plan likes it, or DataFusion's for what has a path of its own.
    path: str = "own"
    door: str = "python"

    def __str__(self) -> str:
        """Show what is out of the ordinary."""
        return ", ".join(
            f"{name} {value}" for name, value in vars(self).items() if value != getattr(Way, name)
        ) or "parquet"  # fmt: skip

    def smaller(self) -> list[Way]:
        """Ways that are more ordinary."""
        return [
            replace(self, **{name: getattr(Way, name)})
            for name, value in vars(self).items()
            if value != getattr(Way, name)
        ]


def random_way(chance: random.Random, statement: Statement, tables: dict[str, Table]) -> Way:
    """A way in which this can be asked."""
    formats = list(FORMATS)
    used = tables_of(statement, tables)
    if len(used) > 1:
        # A schema of text files is said for the whole statement.
        formats = [name for name in formats if name not in ("csv", "tsv", "json")]
    kinds = set().union(*(tables[name].kinds() for name in used))
    if kinds & set(NESTED):
        formats = [name for name in formats if name not in ("csv", "tsv")]
    if kinds & NOT_IN_AVRO:
        formats = [name for name in formats if name != "avro"]
    way = Way(
        format=chance.choice(formats),
        cuts=chance.choice((1, 1, 3)),
        threads=chance.choice((None, 1, 3)),
        memory=chance.choice((None, None, "64M")),
        path=chance.choice(("own", "own", "engine")) if beside(statement) else "own",
        door="program" if chance.random() < 0.06 else "python",
    )
    if way.format == "object":
        way = replace(way, cuts=1, door="python")
    return way


def tables_of(statement: Statement, tables: dict[str, Table]) -> list[str]:
    """The tables that a statement names."""
    text = statement.sql(TIDEMILL)
    return [name for name in tables if f"{{{name}}}" in text]


def beside(statement: Statement) -> Select | None:
    """The statement with a column more, for which it has to go DataFusion's way."""
    if isinstance(statement, Compound) or statement.kind == "windows" or statement.distinct:
        return None
    if statement.keys or any(item.is_aggregate() for item in statement.items):
        return statement.beside(E("beside", "approx_percentile_cont_with_weight(1, 1, 0.5)"))
    return statement.beside(E("beside", "row_number() OVER ()"))


# Text


def _moment(number: int, unit: str) -> str:
    per = PER_SECOND[unit]
    seconds, part = divmod(number, per)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    return moment.isoformat() + (f".{part:0{digits}}" if digits else "")


def _plain(value: Any, kind: str) -> Any:
    if value is None or kind in NESTED:
        return value
    if kind == "day":
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=value)).isoformat()
    if kind in TIMES:
        return _moment(value, TIMES[kind]) + ("Z" if kind == "zoned" else "")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {"nan": "NaN"}.get(str(value), str(value))
    if isinstance(value, (bool, str)):
        return value
    return format(value, "f") if not isinstance(value, int) else str(value)


def as_csv(table: Table, delimiter: str) -> bytes:
    """A table as CSV."""
    out = io.StringIO(newline="")

    def field(value: object) -> str:
        if value is None:
            return ""
        if value == "" and isinstance(value, str):
            return '""'
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if any(sign in text for sign in ('"', "\n", "\r", delimiter)) or text[:1] in (
            " ",
            "\ufeff",
        ):
            return '"' + text.replace('"', '""') + '"'
        return text

    out.write(delimiter.join(name for name, _ in table.columns) + "\n")
    for row in table.rows:
        cells = (_plain(cell, kind) for cell, (_, kind) in zip(row, table.columns, strict=True))
        out.write(delimiter.join(map(field, cells)) + "\n")
    return out.getvalue().encode()


# The text before, between and behind the objects of a JSON file, and between their members.
LAYOUTS = (
    ("", "\n", "\n", ","),
    ("", "\n", "\n", ","),
    ("", "", "", ","),
    ("", ",\n", ",\n", ","),
    ("\x1e", "\n\x1e", "\n", ","),
    ("[", ",\n", "]\n", ","),
    ("", "\n", "\n", ",\n  "),
)


def as_json(table: Table, layout: int | None = None) -> bytes:
    """A table as JSON in one of the layouts; by default in the one that its rows draw."""
    if layout is None:
        layout = zlib.crc32(repr(table.rows).encode()) % len(LAYOUTS)
    before, between, behind, comma = LAYOUTS[layout]
    objects = []
    for row in table.rows:
        pieces = []
        for cell, (name, kind) in zip(row, table.columns, strict=True):
            plain = _plain(cell, kind)
            is_number = (
                isinstance(cell, (int, float, decimal.Decimal))
                and not isinstance(cell, bool)
                and kind != "day"
                and kind not in TIMES
                and plain not in ("NaN", "inf", "-inf")
            )
            text = plain if is_number else json.dumps(plain, ensure_ascii=False)
            pieces.append(f'"{name}":{text}')
        objects.append("{" + comma.join(pieces) + "}")
    if not objects:
        return b""
    return (before + between.join(objects) + behind).encode()


# Lines above the header of a disguised CSV file.
TITLES = ("Events of one run", "")


def disguise(table: Table, format: str) -> str:
    """Return the shape in which another program leaves text files of this table.

    ``nuls``: NUL bytes up to the end of the last block. ``gzip``: compressed and padded with NUL
    bytes. ``titles``: lines above the header. ``rotated``: JSON with a rotated log's name. All
    files of one table have the same shape, which its rows draw.
    """
    shapes = {
        "csv": ("plain", "plain", "nuls", "gzip", "titles"),
        "tsv": ("plain", "plain", "nuls", "gzip"),
        "json": ("plain", "plain", "nuls", "gzip", "rotated"),
    }.get(format, ("plain",))
    shape = shapes[zlib.crc32(repr((format, table.rows)).encode()) % len(shapes)]
    # A log without records does not tell its format, and a table has up to three files.
    return "plain" if shape == "rotated" and len(table.rows) < 3 else shape


def disguised(text: bytes, shape: str) -> bytes:
    """Return the bytes of a text file in a shape."""
    # NUL bytes right behind a record take it with them.
    if shape == "nuls" and text.endswith(b"\n"):
        return text + bytes(-len(text) % 512)
    if shape == "gzip":
        return gzip.compress(text, mtime=0) + bytes(100)
    if shape == "titles":
        return "".join(f"{title}\n" for title in TITLES).encode() + text
    return text


class Place:
    """A folder with the files of some tables."""

    def __init__(self, folder: pathlib.Path, tables: dict[str, Table]):
        self.folder = folder
        self.tables = tables
        self.arrow = {name: table.arrow() for name, table in tables.items()}
        self.made: dict[tuple[str, str, int], str] = {}

    def write(self, name: str, format: str, path: pathlib.Path, rows: range) -> None:
        """Write a part of a table as a file."""
        table = self.tables[name]
        arrow = self.arrow[name].slice(rows.start, len(rows))
        if format in ("csv", "tsv", "json"):
            part = replace(table, rows=table.rows[rows.start : rows.stop])
            shape = disguise(table, format)
            if format == "json":
                # The content of a log tells that it is JSON if it has an object per line.
                text = as_json(part, 0 if shape == "rotated" else None)
            else:
                text = as_csv(part, "," if format == "csv" else "\t")
            path.write_bytes(disguised(text, shape))
        elif format == "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, arrow.schema) as writer:
                writer.write_table(arrow, max_chunksize=7)
        else:
            first = path if format == "parquet" else path.with_suffix(".parquet")
            pa.parquet.write_table(arrow, first, row_group_size=max(1, len(rows) // 2 + 1))
            if first != path:
                tm.convert(first, path, progress=False)
                first.unlink()

    def path(self, name: str, format: str, cuts: int) -> str:
        """The path of a table's files, which are written if they are not there."""
        key = (name, format, cuts)
        if key not in self.made:
            count = len(self.tables[name].rows)
            folder = self.folder / f"{name}-{format}-{cuts}"
            folder.mkdir(parents=True, exist_ok=True)
            shape = disguise(self.tables[name], format)
            pattern = {"gzip": f"*.{format}.gz", "rotated": "app.log.*"}.get(shape, f"*.{format}")
            for cut in range(cuts):
                rows = range(count * cut // cuts, count * (cut + 1) // cuts)
                self.write(name, format, folder / pattern.replace("*", str(cut)), rows)
            self.made[key] = f"{folder}/{pattern if cuts > 1 else pattern.replace('*', '0')}"
        return self.made[key]

    def schema(self, name: str) -> dict[str, str]:
        """The types of a table's columns in the words of `schema`."""
        return dict(tm.schema(self.path(name, "parquet", 1)))

    def sql(self, statement: Statement, way: Way) -> str:
        """The statement's text for tidemill."""
        asked = beside(statement) if way.path == "engine" else None
        text = (asked or statement).sql(TIDEMILL)
        for name in self.tables:
            if f"{{{name}}}" in text:
                place = (
                    name if way.format == "object" else f"'{self.path(name, way.format, way.cuts)}'"
                )
                text = text.replace(f"{{{name}}}", place)
        return text

    def reading(self, statement: Statement, way: Way) -> dict[str, int]:
        """Return the options with which the disguised files of a statement are read."""
        used = tables_of(statement, self.tables)
        shape = disguise(self.tables[used[0]], way.format) if used else "plain"
        # The NUL bytes at the end of each file are a malformed record.
        options = {"titles": {"skip_lines": len(TITLES)}, "nuls": {"max_bad": 99}}
        return options.get(shape, {})

    def schema_for(self, statement: Statement, way: Way) -> dict[str, str] | None:
        """What is said of the types where the files do not tell."""
        if way.format not in ("csv", "tsv", "json"):
            return None
        used = tables_of(statement, self.tables)
        return self.schema(used[0]) if used else None

    def ask(self, statement: Statement, way: Way) -> pa.Table:
        """Tidemill's answer."""
        sql = self.sql(statement, way)
        schema = self.schema_for(statement, way)
        reading = self.reading(statement, way)
        if way.door == "program":
            table = self._program(sql, way, schema, reading)
        else:
            options: dict[str, Any] = {"schema": schema, "memory": way.memory, **reading}
            if way.threads is not None:
                options["threads"] = way.threads
            if way.format == "object":
                options |= {name: self.arrow[name] for name in tables_of(statement, self.tables)}
            table = tm.query(sql, progress=False, **options).to_arrow()
        if way.path == "engine":
            table = table.select(range(len(statement.items)))
        return table

    def command(self, sql: str, way: Way, schema: dict[str, str] | None) -> list[str]:
        """The program's words."""
        words = [binary(), "query", sql]
        if schema:
            types = ", ".join(f"{name} {kind}" for name, kind in schema.items())
            words += ["--schema", types]
        if way.threads:
            words += ["--threads", str(way.threads)]
        if way.memory:
            words += ["--memory", way.memory]
        return words

    def _program(
        self, sql: str, way: Way, schema: dict[str, str] | None, reading: dict[str, int]
    ) -> pa.Table:
        words = [*self.command(sql, way, schema), "--format", "arrow"]
        for name, value in reading.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run(words, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise tm.TidemillError(done.stderr.decode(errors="replace").removeprefix("error: "))
        with pa.ipc.open_stream(done.stdout) as reader:
            return reader.read_all()

    def oracle(
        self,
        statement: Statement,
        way: Way,
        connection: duckdb.DuckDBPyConnection,
        is_wide: bool = False,
        in_order: bool = False,
    ) -> pa.Table:
        """DuckDB's answer; with integers of 128 bits in the place of those of 64, or with the
        conditions of each AND and OR asked in the order in which they are written.
        """
        tables = self.arrow
        text = statement.sql(IN_ORDER if in_order else DUCKDB)
        if is_wide:
            text = text.replace(" AS BIGINT)", " AS HUGEINT)")
        for name in tables_of(statement, self.tables):
            connection.register(name, tables[name])
            text = text.replace(f"{{{name}}}", name)
        return connection.sql(text).to_arrow_table()


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB of our own, which looks at nothing of this machine."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection
