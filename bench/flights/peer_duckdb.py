"""DuckDB: `peer_duckdb.py CASE FORMAT INPUT OUTPUT`."""

import json
import sys
import time

import duckdb

started = time.perf_counter()
case, format, source, output = sys.argv[1:]
read = {
    "csv": f"read_csv('{source}', nullstr = 'NA')",
    "json": f"read_ndjson('{source}')",
    "parquet": f"read_parquet('{source}')",
}[format]

# Both quantiles from one sketch: the list form is the quicker way to ask for two.
SKETCHES = f"""
    SELECT origin, year, month, day, aircraft, flights, q[1] AS median_delay, q[2] AS p95 {{top_out}}
    FROM (
        SELECT origin, year, month, day,
               approx_count_distinct(tailnum) AS aircraft,
               count(*) AS flights,
               approx_quantile(dep_delay, [0.5, 0.95]) AS q
               {{top}}
        FROM {read}
        GROUP BY origin, year, month, day
    )
"""
query = {
    "job": SKETCHES.format(top=", approx_top_k(dest, 5) AS top", top_out=", top"),
    "sketches": SKETCHES.format(top="", top_out=""),
    "sums": f"""
        SELECT origin, year, month, day, count(*) AS flights, sum(distance) AS distance
        FROM {read} GROUP BY origin, year, month, day
    """,
    "count": f"SELECT count(*) AS flights FROM {read}",
}[case]

duckdb.execute(f"COPY ({query}) TO '{output}' (FORMAT csv, HEADER)")
print(json.dumps({"work_s": time.perf_counter() - started}))
