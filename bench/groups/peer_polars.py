"""Polars: `peer_polars.py CASE FORMAT INPUT MEMORY OUTPUT`, lazily, on its streaming engine."""

import json
import sys
import time
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).parent))
from questions import KEYS  # noqa: E402

started = time.perf_counter()
case, format, source, _, output = sys.argv[1:]
if format == "csv":
    rows = pl.scan_csv(source, separator=";" if case == "stations" else ",")
else:
    rows = pl.scan_parquet(source)

v1, v2, v3 = pl.col("v1"), pl.col("v2"), pl.col("v3")
temperature = pl.col("temperature")
AGGREGATES = {
    "q1": [v1.sum()],
    "q2": [v1.sum()],
    "q3": [v1.sum(), v3.mean()],
    "q4": [v1.mean(), v2.mean(), v3.mean()],
    "q5": [v1.sum(), v2.sum(), v3.sum()],
    "q6": [v3.median().alias("median"), v3.std().alias("sd")],
    "q7": [(v1.max() - v2.min()).alias("range")],
    "q8": [v3.top_k(2)],
    "q9": [(pl.corr("v1", "v2") ** 2).alias("r2")],
    "q10": [v3.sum(), pl.len().alias("n")],
}
WINDOWS = {
    "w1": ["id6", v3, v3.mean().over("id6").alias("mean")],
    "w2": ["id6", v3, v3.shift(1).over("id6", order_by="v3").alias("before")],
    "w3": ["id3", v1, v1.rank("min").over("id3").alias("place")],
}
if case == "sketches":
    query = rows.group_by("id3").agg(
        v3.quantile(0.5).alias("median"), v2.approx_n_unique().alias("different")
    )
elif case == "stations":
    query = rows.group_by("station").agg(
        temperature.min().alias("low"), temperature.mean().alias("mean"), temperature.max().alias("high")
    )
elif case in WINDOWS:
    query = rows.select(WINDOWS[case])
elif case in AGGREGATES:
    query = rows.group_by(KEYS[case]).agg(*AGGREGATES[case])
    if case == "q8":
        query = query.explode("v3")
else:
    query = rows.group_by(case).agg(pl.len().alias("n"), pl.col("v").sum())

query.collect(engine="streaming").write_ipc(output, compression="uncompressed")
print(json.dumps({"work_s": time.perf_counter() - started}))
