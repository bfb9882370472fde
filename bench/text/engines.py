"""One engine over one file: `engines.py ENGINE DATA COLUMNS THREADS FILE`.

Every engine is asked for the same sums over the columns, so that it has to make a value of
each field: of numbers the sum, of texts the bytes, of times the first and the last, of truth
values how many are true, and of each column how many values it has. It is told the columns
and their types (a schema costs it nothing to infer), and only those that are asked for where
its reader takes such a list. Prints a JSON line: the seconds of work, imports left out, and
the answer as `[rows, [count, ...] per column]`.

`NA` (CSV) and `-` (access logs) mean null, in each engine's own words:

- DuckDB, chDB and Polars have an option for it.
- DataFusion has one that does not work (apache/datafusion issue 25213): its query turns the
  string into null before it casts, in the columns where one occurs.

An access log is read as CSV with spaces between the fields; the time is then two of them, put
together and parsed by the query, and the request is one, which the query splits.
"""

import json
import os
import sys
import time
from pathlib import Path

CASES = json.loads((Path(__file__).resolve().parent / "cases.json").read_text())
REQUEST = ["method", "path", "protocol"]
# Columns of the flights in which `NA` occurs.
WITH_NA = {"dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"}


class Task:
    def __init__(self, data: str, columns: str, threads: int, file: str):
        self.data, self.threads, self.file = data, threads, file
        self.format = CASES[data]["format"]
        self.wanted = [(name.split("/"), kind) for name, kind in CASES[data][columns]]
        # The fields of a record as they stand in a CSV file or an access log.
        self.fields = [(name, kind) for name, kind in CASES[data].get("all", [])]
        if self.format == "access":
            numbers = {"status", "bytes"}
            names = "ip ident user day zone request status bytes referrer user_agent".split()
            self.fields = [(name, "int" if name in numbers else "text") for name in names]
        self.null = {"csv": "NA", "access": "-"}.get(self.format)

    def tree(self) -> dict:
        """The wanted columns, nested as the data is: `{key: kind or tree}`."""
        root: dict = {}
        for path, kind in self.wanted:
            node = root
            for key in path[:-1]:
                node = node.setdefault(key, {})
            node[path[-1]] = kind
        return root

    def select(self, column, sums: dict) -> str:
        """A SELECT list: `column(path, kind)` names one, `sums` has a kind's aggregates."""
        parts = ["count(*)"]
        for path, kind in self.wanted:
            value = column(path, kind)
            parts += [f"count({value})", *(text.format(value) for text in sums[kind])]
        return ", ".join(parts)


def quoted(path: list[str]) -> str:
    return ".".join(f'"{key}"' for key in path)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def duckdb(task: Task):
    import duckdb

    def run() -> list:
        types = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "text": "VARCHAR", "time": "TIMESTAMP"}

        def struct(tree: dict) -> str:
            return "STRUCT(" + ", ".join(f'"{k}" {kind(v)}' for k, v in tree.items()) + ")"

        def kind(of) -> str:
            return struct(of) if isinstance(of, dict) else types[of]

        def columns(pairs) -> str:
            return "{" + ", ".join(f"{literal(name)}: {literal(kind(of))}" for name, of in pairs) + "}"

        def column(path: list[str], kind: str) -> str:
            if task.format == "access" and kind == "time":
                return "strptime(day || ' ' || zone, '[%d/%b/%Y:%H:%M:%S %z]')"
            if task.format == "access" and path[0] in REQUEST:
                return f"split_part(request, ' ', {1 + REQUEST.index(path[0])})"
            return quoted(path)

        sums = {
            "int": ["sum({})"], "float": ["sum({})"], "bool": ["count(*) FILTER ({})"],
            "text": ["sum(strlen({}))"], "time": ["epoch_us(min({}))", "epoch_us(max({}))"],
        }
        source = literal(task.file)
        if task.format == "json":
            source = f"read_json({source}, format = 'newline_delimited', columns = {columns(task.tree().items())})"
        else:
            how = "header = true, delim = ','" if task.format == "csv" else "header = false, delim = ' '"
            source = (
                f"read_csv({source}, auto_detect = false, {how}, quote = '\"', escape = '\"', "
                f"nullstr = '{task.null}', columns = {columns(task.fields)})"
            )
        connection = duckdb.connect()
        connection.execute(f"SET threads = {task.threads}")
        return list(connection.execute(f"SELECT {task.select(column, sums)} FROM {source}").fetchone())

    return run


def chdb(task: Task):
    import chdb

    def run() -> list:
        types = {"int": "Int64", "float": "Float64", "bool": "Bool", "text": "String", "time": "DateTime64(6, \\'UTC\\')"}

        def kind(of) -> str:
            if isinstance(of, dict):
                return "Tuple(" + ", ".join(f"`{k}` {kind(v)}" for k, v in of.items()) + ")"
            return f"Nullable({types[of]})"

        def column(path: list[str], kind: str) -> str:
            if task.format == "access" and kind == "time":
                return "parseDateTime(concat(day, zone), '[%d/%b/%Y:%H:%i:%S%z]', 'UTC')"
            if task.format == "access" and path[0] in REQUEST:
                return f"splitByChar(' ', assumeNotNull(request))[{1 + REQUEST.index(path[0])}]"
            if task.format == "access" and path[0] in ("referrer", "user_agent"):
                return f"nullIf({path[0]}, '-')"  # in quotes it is no null to its reader
            return ".".join(f"`{key}`" for key in path)

        micros = "toUnixTimestamp64Micro(toDateTime64({}({{}}), 6, 'UTC'))"
        sums = {
            "int": ["sum({})"], "float": ["sum({})"], "bool": ["countIf({})"],
            "text": ["sum(length({}))"], "time": [micros.format("min"), micros.format("max")],
        }
        pairs = task.tree().items() if task.format == "json" else task.fields
        structure = ", ".join(f"`{name}` {kind(of)}" for name, of in pairs)
        format = {"csv": "CSVWithNames", "json": "JSONEachRow", "access": "CustomSeparated"}[task.format]
        settings = {
            "max_threads": task.threads,
            "max_parsing_threads": task.threads,
            "date_time_input_format": "'best_effort'",
        }
        if task.null:
            settings["format_csv_null_representation"] = literal(task.null)
        if task.format == "access":
            settings["format_custom_field_delimiter"] = "' '"
            settings["format_custom_escaping_rule"] = "'CSV'"
        if task.format == "json":
            settings["input_format_skip_unknown_fields"] = 1
            settings["input_format_json_ignore_unknown_keys_in_named_tuple"] = 1
        given = ", ".join(f"{name} = {value}" for name, value in settings.items())
        query = (
            f"SELECT {task.select(column, sums)} FROM file({literal(task.file)}, '{format}', '{structure}') "
            f"SETTINGS {given}"
        )
        return json.loads(chdb.query(query, "JSONCompactEachRow").bytes())

    return run


def polars(task: Task):
    os.environ["POLARS_MAX_THREADS"] = str(task.threads)
    import polars as pl

    def run() -> list:
        # Times are read as text: no reader of Polars takes them with a zone.
        types = {"int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean, "text": pl.String, "time": pl.String}

        def kind(of):
            return pl.Struct({k: kind(v) for k, v in of.items()}) if isinstance(of, dict) else types[of]

        if task.format == "json":
            rows = pl.scan_ndjson(task.file, schema={name: kind(of) for name, of in task.tree().items()})
        else:
            rows = pl.scan_csv(
                task.file,
                has_header=task.format == "csv",
                separator="," if task.format == "csv" else " ",
                schema={name: kind(of) for name, of in task.fields},
                null_values=task.null,
            )

        def column(path: list[str], kind: str):
            if kind == "time" and task.format == "access":
                both = pl.concat_str("day", "zone")
                return both.str.to_datetime("[%d/%b/%Y:%H:%M:%S%z]", time_unit="us", time_zone="UTC")
            if task.format == "access" and path[0] in REQUEST:
                parts = pl.col("request").str.split_exact(" ", 2)
                return parts.struct.field(f"field_{REQUEST.index(path[0])}")
            value = pl.col(path[0])
            for key in path[1:]:
                value = value.struct.field(key)
            if kind == "time":
                fraction = "%.f" if task.format == "json" else ""
                value = value.str.to_datetime(f"%Y-%m-%dT%H:%M:%S{fraction}%#z", time_unit="us", time_zone="UTC")
            return value

        parts = [pl.len()]
        for path, kind in task.wanted:
            value = column(path, kind)
            parts.append(value.count())
            if kind in ("int", "float", "bool"):
                parts.append(value.sum())
            elif kind == "text":
                parts.append(value.str.len_bytes().cast(pl.Int64).sum())
            else:
                parts += [value.min().dt.epoch("us"), value.max().dt.epoch("us")]
        parts = [part.alias(str(index)) for index, part in enumerate(parts)]
        return list(rows.select(parts).collect(engine="streaming").row(0))

    return run


def datafusion(task: Task):
    os.environ["TOKIO_WORKER_THREADS"] = str(task.threads)
    import pyarrow as pa
    from datafusion import SessionConfig, SessionContext

    def run() -> list:
        types = {
            "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "text": pa.string_view(),
            "time": pa.timestamp("us", tz="+00:00"),
        }

        def kind(of):
            return pa.struct([(k, kind(v)) for k, v in of.items()]) if isinstance(of, dict) else types[of]

        def field(name: str, of):
            # What may be a null string is text until the query has looked.
            text = task.format == "access" or (task.format == "csv" and name in WITH_NA)
            return pa.field(name, types["text"] if text else kind(of))

        def column(path: list[str], kind: str) -> str:
            name = path[-1]
            if task.format == "access" and kind == "time":
                return "to_timestamp_micros(concat(day, zone), '[%d/%b/%Y:%H:%M:%S%z]')"
            if task.format == "access" and name in REQUEST:
                return f"split_part(request, ' ', {1 + REQUEST.index(name)})"
            value = quoted(path[:1]) + "".join(f"[{literal(key)}]" for key in path[1:])
            if task.format == "access" or (task.format == "csv" and name in WITH_NA):
                value = f"nullif({value}, {literal(task.null)})"
                if kind == "int":
                    value = f"CAST({value} AS BIGINT)"
            return value

        micros = "CAST(to_timestamp_micros({}({{}})) AS BIGINT)"
        sums = {
            "int": ["sum({})"], "float": ["sum({})"], "bool": ["count(*) FILTER (WHERE {})"],
            "text": ["sum(octet_length({}))"], "time": [micros.format("min"), micros.format("max")],
        }
        # A file of text is read by as many tasks as there are partitions.
        config = SessionConfig().with_target_partitions(task.threads)
        context = SessionContext(config)
        if task.format == "json":
            schema = pa.schema([field(name, of) for name, of in task.tree().items()])
            extension = os.path.splitext(task.file)[1]
            context.register_json("rows", task.file, schema=schema, file_extension=extension)
        else:
            schema = pa.schema([field(name, of) for name, of in task.fields])
            context.register_csv(
                "rows", task.file, schema=schema,
                has_header=task.format == "csv", delimiter="," if task.format == "csv" else " ",
                file_extension=os.path.splitext(task.file)[1],
            )
        table = context.sql(f"SELECT {task.select(column, sums)} FROM rows").to_arrow_table()
        return [column[0].as_py() for column in table.columns]

    return run


ENGINES = {"duckdb": duckdb, "polars": polars, "datafusion": datafusion, "chdb": chdb}


def main() -> None:
    engine, data, columns, threads, file = sys.argv[1:]
    task = Task(data, columns, int(threads), file)
    run = ENGINES[engine](task)
    started = time.perf_counter()
    flat = [0 if value is None else value for value in run()]
    work_s = time.perf_counter() - started
    answer, at = [flat[0]], 1
    for _, kind in task.wanted:
        length = 3 if kind == "time" else 2
        answer.append(flat[at : at + length])
        at += length
    print(json.dumps({"work_s": work_s, "answer": answer}))


if __name__ == "__main__":
    main()
