"""A peer's answer: `peer.py ENGINE KIND QUESTION FOLDER [SHARE SEED | SECONDS]`. Runs in the peers' environment.

Prints one line of JSON: `work_s`, without the imports; `rows`, keys and measures; `share`, what part of the
input the engine says it has looked at, if it says; `says`, what it says of the answer's precision.
ENGINE is `duckdb` (`TABLESAMPLE SYSTEM` of SHARE), `polars` (a sample of SHARE of the wanted columns) or
`chdb` (`max_execution_time` of SECONDS, `timeout_overflow_mode = 'break'`). Without a share or a time the
answer is exact. Nothing is scaled here.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from questions import PATTERNS, question  # noqa: E402

ENGINE, KIND, NAME, FOLDER, *WHAT = sys.argv[1:]
QUESTION = question(KIND, NAME)
PATTERN = f"{FOLDER}/{PATTERNS[KIND]}"
# The fields of an access log, as text separated by spaces has them.
FIELDS = ["ip", "ident", "user", "at", "zone", "request", "status", "bytes", "referrer", "agent"]


def duckdb():
    import duckdb

    started = time.perf_counter()
    types = {name: "BIGINT" if name in ("status", "bytes") else "VARCHAR" for name in FIELDS}
    read = {
        "flights": f"read_csv('{PATTERN}', nullstr = 'NA')",
        "access": f"read_csv('{PATTERN}', delim = ' ', quote = '\"', escape = '\\', header = false, columns = {types})",
        "events": f"read_ndjson('{PATTERN}')",
    }[KIND]
    sample = f" TABLESAMPLE SYSTEM ({100 * float(WHAT[0])}%) REPEATABLE ({WHAT[1]})" if WHAT else ""
    words = dict(QUESTION.duckdb)
    source = f"{read}{sample}"
    if KIND == "access":
        source = f"(SELECT split_part(request, ' ', 2) AS path, status, bytes FROM {source})"
    rows = duckdb.execute(QUESTION.sql(source, words)).fetchall()
    return started, rows, None, "nothing"


def polars():
    import polars as pl

    started = time.perf_counter()
    if KIND == "flights":
        scan = pl.scan_csv(PATTERN, null_values="NA", infer_schema_length=10_000)
    elif KIND == "access":
        types = {name: pl.Int64 if name in ("status", "bytes") else pl.String for name in FIELDS}
        scan = pl.scan_csv(PATTERN, separator=" ", has_header=False, schema=types)
        scan = scan.with_columns(pl.col("request").str.split(" ").list.get(1).alias("path"))
    else:
        scan = pl.scan_ndjson(PATTERN, infer_schema_length=1_000)
    measures = {
        "n": pl.len(),
        "aircraft": pl.col("tailnum").drop_nulls().approx_n_unique(),
        "median_delay": pl.col("dep_delay").quantile(0.5),
        "p95": pl.col("dep_delay").quantile(0.95),
        "distance": pl.col("distance").sum(),
        "delay": pl.col("dep_delay").mean(),
        "bytes": pl.col("bytes").sum(),
        "mean": pl.col("bytes").mean(),
        "revenue": pl.col("revenue").sum(),
        "duration": pl.col("duration_ms").mean(),
    }
    columns = {
        "job": ["tailnum", "dep_delay"], "carriers": ["distance", "dep_delay"], "pages": ["bytes"],
        "statuses": ["bytes"], "customers": ["revenue", "duration_ms"], "countries": ["revenue", "duration_ms"],
    }[NAME]
    if WHAT:
        # A frame that is not read yet has no `sample`.
        frame = scan.select(*QUESTION.keys, *columns).collect(engine="streaming")
        scan = frame.sample(fraction=float(WHAT[0]), seed=int(WHAT[1])).lazy()
    found = scan.group_by(QUESTION.keys).agg(*(measures[name].alias(name) for name in QUESTION.measures))
    rows = found.collect(engine="streaming").rows()
    return started, rows, None, "nothing"


def chdb():
    from chdb import session

    started = time.perf_counter()
    settings = "schema_inference_make_columns_nullable = 1, format_csv_null_representation = 'NA'"
    source = f"file('{PATTERN}', '{dict(flights='CSVWithNames', events='JSONEachRow').get(KIND)}')"
    if KIND == "access":
        structure = ", ".join(f"{name} {'Int64' if name in ('status', 'bytes') else 'String'}" for name in FIELDS)
        source = f"file('{PATTERN}', 'CustomSeparated', '{structure}')"
        source = f"(SELECT splitByChar(' ', request)[2] AS path, status, bytes FROM {source})"
        settings = "format_custom_field_delimiter = ' ', format_custom_escaping_rule = 'CSV'"
    if WHAT:
        settings += f", max_execution_time = {float(WHAT[0])}, timeout_overflow_mode = 'break'"
    settings += ", prefer_column_name_to_alias = 1"
    sql = QUESTION.sql(source, QUESTION.chdb)
    answer = session.Session().query(f"{sql} SETTINGS {settings}", "JSONCompact")
    taken = json.loads(answer.bytes())
    said = f"read {taken['statistics']['rows_read']:,} rows, {taken['statistics']['bytes_read']:,} bytes"
    return started, taken["data"], taken["statistics"]["rows_read"], said


def number(value):
    return float(value) if value is not None and not isinstance(value, float) else value


def main() -> None:
    started, rows, read, says = {"duckdb": duckdb, "polars": polars, "chdb": chdb}[ENGINE]()
    work_s = time.perf_counter() - started
    keys = len(QUESTION.keys)
    rows = [[*map(str, row[:keys]), *map(number, row[keys:])] for row in rows]
    print(json.dumps({"work_s": work_s, "rows": rows, "rows_read": read, "says": says}))


if __name__ == "__main__":
    main()
