"""The other engines, which are asked for answers: whichever of them this Python can import.

They have the files of `data` as tables without a suffix. A statement has them as files in quotes,
which DuckDB understands; for the others the name of the table stands in their place.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

from .entries import DATA

Rows = tuple[list[str], list[list[Any]]]

# Their types, in words that PostgreSQL and ClickHouse share; DuckDB and Spark read them off.
TABLES = {
    "requests": "id bigint, ts timestamp, user_id bigint, method text, url text, status bigint, "
    "ms double, bytes bigint, ip text, agent text",
    "users": "user_id bigint, name text, email text, country text, plan text, signed_up date, "
    "score double, tags text",
    "orders": "order_id bigint, user_id bigint, day date, sku text, qty bigint, price double, "
    "paid bool, detail text",
    "readings": "sensor text, ts timestamp, value double",
    "prices": "sku text, since date, price double",
    "sales": "region text, year bigint, quarter bigint, amount bigint",
    "wide": "shop text, jan bigint, feb bigint, mar bigint",
    "employees": "id bigint, name text, manager_id bigint",
}
CLICKHOUSE = {
    "bigint": "Nullable(Int64)",
    "text": "Nullable(String)",
    "double": "Nullable(Float64)",
    "timestamp": "Nullable(DateTime('UTC'))",
    "bool": "Nullable(Bool)",
    " date": " Nullable(Date)",
}
EVENTS = (
    "id Int64, ts DateTime('UTC'), kind String, tags Array(String), nums Array(Int64), "
    "device Tuple(os Nullable(String), version Nullable(Int64))"
)
SETTINGS = {
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_denormals": "1",
    "output_format_json_named_tuples_as_objects": "1",
    "session_timezone": "'UTC'",
}
FILE = re.compile(r"'(\w+)\.(csv|json)'")


def with_tables(statement: str) -> str:
    return FILE.sub(r"\1", statement).strip().rstrip(";")


class Duckdb:
    """DuckDB, in `data`."""

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect()

    def ask(self, statement: str) -> Rows:
        here = os.getcwd()
        os.chdir(DATA)
        try:
            cursor = self.connection.cursor()
            cursor.execute("SET TimeZone = 'UTC'")
            # The arrow of its manuals up to version 1.
            cursor.execute("SET lambda_syntax = 'ENABLE_SINGLE_ARROW'")
            relation = cursor.execute(statement)
            names = [column[0] for column in relation.description]
            return names, [list(row) for row in relation.fetchall()]
        finally:
            os.chdir(here)


class Postgresql:
    """A PostgreSQL at PGHOST and PGPORT, whose temporary tables are all that is written."""

    def __init__(self) -> None:
        import psycopg

        self.connection = psycopg.connect(autocommit=True)
        self.connection.execute("SET TimeZone = 'UTC'")
        for name, columns in TABLES.items():
            columns = columns.replace("double", "double precision")
            self.connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
            command = f"COPY {name} FROM STDIN (FORMAT csv, HEADER)"
            with self.connection.cursor().copy(command) as to:
                to.write((DATA / f"{name}.csv").read_text())

    def ask(self, statement: str) -> Rows:
        found = self.connection.execute(with_tables(statement))
        names = [column.name for column in found.description or []]
        return names, [list(row) for row in found.fetchall()]


class Spark:
    """Spark, in this process's own Java."""

    def __init__(self) -> None:
        import logging

        from pyspark.sql import SparkSession

        logging.getLogger("SQLQueryContextLogger").disabled = True

        maker = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        maker = maker.config("spark.sql.session.timeZone", "UTC")
        maker = maker.config("spark.sql.shuffle.partitions", "1")
        self.session = maker.getOrCreate()
        self.session.sparkContext.setLogLevel("FATAL")
        for name in TABLES:
            table = self.session.read.csv(
                str(DATA / f"{name}.csv"),
                header=True,
                inferSchema=True,
                escape='"',
                timestampFormat="yyyy-MM-dd HH:mm:ss",
            )
            table.createOrReplaceTempView(name)
        events = self.session.read.json(str(DATA / "events.json"))
        events.withColumn("ts", events["ts"].cast("timestamp")).createOrReplaceTempView("events")

    def ask(self, statement: str) -> Rows:
        found = self.session.sql(with_tables(statement))
        return found.columns, [list(row) for row in found.collect()]


class Clickhouse:
    """ClickHouse, as chdb has it within this process."""

    def __init__(self) -> None:
        from chdb import session

        self.session = session.Session()
        for name, columns in TABLES.items():
            for one, other in CLICKHOUSE.items():
                columns = columns.replace(one, other)
            self.make(name, columns, f"{name}.csv", "CSVWithNames")
        self.make("events", EVENTS, "events.json", "JSONEachRow")

    def make(self, name: str, columns: str, file: str, kind: str) -> None:
        """Make a table of a file."""
        quoted = columns.replace("'", "\\'")
        self.session.query(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
        source = f"file('{DATA / file}', '{kind}', '{quoted}')"
        self.session.query(f"INSERT INTO {name} SELECT * FROM {source}")

    def ask(self, statement: str) -> Rows:
        settings = ", ".join(f"{name} = {value}" for name, value in SETTINGS.items())
        found = self.session.query(f"{with_tables(statement)} SETTINGS {settings}", "JSONCompact")
        made = json.loads(str(found))
        kinds = [column["type"] for column in made["meta"]]

        def value(kind: str, one: Any) -> Any:
            if isinstance(one, str) and kind.removeprefix("Nullable(").startswith("DateTime"):
                return one.replace(" ", "T")
            return one

        rows = [[value(k, v) for k, v in zip(kinds, row, strict=True)] for row in made["data"]]
        if made.get("totals"):
            rows.append([value(k, v) for k, v in zip(kinds, made["totals"], strict=True)])
        return [column["name"] for column in made["meta"]], rows


MAKERS = {"duckdb": Duckdb, "postgresql": Postgresql, "spark": Spark, "clickhouse": Clickhouse}
