"""Polars: `peer_polars.py CASE FORMAT INPUT OUTPUT`, lazily, on its streaming engine.

The five commonest destinations, in the quickest of the forms tried (at 10 million
rows): over text, counts per group in the same pass, from which a list expression
takes five; over Parquet, where a second pass is cheap, a second grouping joined to
the first.
"""

import json
import sys
import time

import polars as pl

started = time.perf_counter()
case, format, source, output = sys.argv[1:]
if format == "csv":
    flights = pl.scan_csv(source, null_values="NA")
elif format == "json":
    flights = pl.scan_ndjson(source)
else:
    flights = pl.scan_parquet(source)

KEYS = ["origin", "year", "month", "day"]
FLIGHTS = pl.len().alias("flights")
SKETCHES = [
    pl.col("tailnum").drop_nulls().approx_n_unique().alias("aircraft"),
    FLIGHTS,
    pl.col("dep_delay").quantile(0.5).alias("median_delay"),
    pl.col("dep_delay").quantile(0.95).alias("p95"),
]


def job():
    if format == "parquet":
        counts = flights.group_by([*KEYS, "dest"]).agg(FLIGHTS)
        top = pl.col("dest").top_k_by("flights", 5).str.join(" ").alias("top")
        return flights.group_by(KEYS).agg(*SKETCHES).join(counts.group_by(KEYS).agg(top), on=KEYS)
    pair = pl.element().struct
    five = pair.field("dest").top_k_by(pair.field("count"), 5).str.join(" ")
    counts = pl.col("dest").value_counts().alias("counts")
    top = pl.col("counts").list.eval(five).list.first().alias("top")
    return flights.group_by(KEYS).agg(*SKETCHES, counts).with_columns(top).drop("counts")


query = {
    "job": job,
    "sketches": lambda: flights.group_by(KEYS).agg(*SKETCHES),
    "sums": lambda: flights.group_by(KEYS).agg(FLIGHTS, pl.col("distance").sum()),
    "count": lambda: flights.select(FLIGHTS),
}[case]

query().collect(engine="streaming").write_csv(output)
print(json.dumps({"work_s": time.perf_counter() - started}))
