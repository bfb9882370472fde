"""DataFusion's Python package: `peer_datafusion.py CASE FORMAT INPUT OUTPUT`.

DataFusion has no aggregate for the commonest values, so `job` reads the input
twice: once for the sketches, once for counts per destination, ranked by a window.
`sketches` is the same without the list, in one pass.

Its CSV reader has no null string that works: `null_regex` reaches the inference of
the schema but not the reader (apache/datafusion issue 25213), so the query turns
`NA` into null itself.
"""

import json
import sys
import time

from datafusion import SessionContext

started = time.perf_counter()
case, format, source, output = sys.argv[1:]
context = SessionContext()
if format == "csv":
    context.register_csv("flights", source)
elif format == "json":
    context.register_json("flights", source)
else:
    context.register_parquet("flights", source)

# `dep_delay` holds an `NA` among the first 1000 rows, so it is inferred as text.
tailnum = "nullif(tailnum, 'NA')" if format == "csv" else "tailnum"
delay = "try_cast(dep_delay AS BIGINT)" if format == "csv" else "dep_delay"
SKETCHES = f"""
    SELECT origin, year, month, day,
           approx_distinct({tailnum}) AS aircraft,
           count(*) AS flights,
           approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY {delay}) AS median_delay,
           approx_percentile_cont(0.95) WITHIN GROUP (ORDER BY {delay}) AS p95
    FROM flights GROUP BY origin, year, month, day
"""
query = {
    "job": f"""
        WITH sketches AS ({SKETCHES}),
        counts AS (
            SELECT origin, year, month, day, dest, count(*) AS flights
            FROM flights GROUP BY origin, year, month, day, dest
        ),
        ranked AS (
            SELECT *, row_number() OVER (
                PARTITION BY origin, year, month, day ORDER BY flights DESC
            ) AS rank
            FROM counts
        ),
        tops AS (
            SELECT origin, year, month, day, string_agg(dest, ' ' ORDER BY rank) AS top
            FROM ranked WHERE rank <= 5 GROUP BY origin, year, month, day
        )
        SELECT * FROM sketches JOIN tops USING (origin, year, month, day)
    """,
    "sketches": SKETCHES,
    "sums": """
        SELECT origin, year, month, day, count(*) AS flights, sum(distance) AS distance
        FROM flights GROUP BY origin, year, month, day
    """,
    "count": "SELECT count(*) AS flights FROM flights",
}[case]

context.sql(query).write_csv(output, with_header=True)
print(json.dumps({"work_s": time.perf_counter() - started}))
