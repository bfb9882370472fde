"""chDB, ClickHouse's engine in this process: `peer_chdb.py CASE FORMAT INPUT OUTPUT`."""

import json
import sys
import time

import chdb

started = time.perf_counter()
case, format, source, output = sys.argv[1:]
name = {"csv": "CSVWithNames", "json": "JSONEachRow", "parquet": "Parquet"}[format]
read = f"FROM file('{source}', '{name}') GROUP BY origin, year, month, day"

SKETCHES = """
    SELECT origin, year, month, day,
           uniqHLL12(tailnum) AS aircraft,
           count() AS flights,
           quantilesTDigest(0.5, 0.95)(dep_delay) AS q,
           q[1] AS median_delay, q[2] AS p95
"""
query = {
    "job": f"SELECT * EXCEPT q FROM ({SKETCHES}, topK(5)(dest) AS top {read})",
    "sketches": f"SELECT * EXCEPT q FROM ({SKETCHES} {read})",
    "sums": f"SELECT origin, year, month, day, count() AS flights, sum(distance) AS distance {read}",
    "count": f"SELECT count() AS flights FROM file('{source}', '{name}')",
}[case]

settings = "schema_inference_make_columns_nullable = 1, format_csv_null_representation = 'NA'"
chdb.query(f"{query} INTO OUTFILE '{output}' TRUNCATE FORMAT CSVWithNames SETTINGS {settings}")
print(json.dumps({"work_s": time.perf_counter() - started}))
