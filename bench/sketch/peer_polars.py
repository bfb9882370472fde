"""Polars: `peer_polars.py CASE KEY INPUT OUTPUT`, lazily, on its streaming engine."""

import json
import sys
import time

import polars as pl

started = time.perf_counter()
case, key, source, output = sys.argv[1:]
rows = pl.scan_parquet(source).rename({key: "k"})
user, x, word, weight = (pl.col(name) for name in ("user_id", "x", "word", "weight"))
elements = [pl.col("parts").list.get(place, null_on_oob=True) for place in range(3)]
AGGREGATES = {
    "unique": [user.approx_n_unique()],
    "unique_exact": [user.n_unique()],
    "count_distinct": [user.n_unique()],
    "quantile": [x.quantile(0.5, "linear"), x.quantile(0.95, "linear").alias("b")],
    "histogram": [(x / 5).floor().cast(pl.Int64).value_counts()],
    "maximum": [x.top_k(3)],
    "minimum": [x.bottom_k(3)],
    "maximum_weighted": [user.top_k_by("x", 3)],
    "sample": [user.shuffle().head(3)],
    "distinct_values": [pl.col("category").unique()],
    "collect": [x],
}
if case in ("top_k", "top_k_weighted"):
    total = pl.len() if case == "top_k" else weight.sum()
    pairs = rows.group_by("k", "word").agg(total.cast(pl.Int64).alias("count"))
    entry = pl.struct(pl.col("word").alias("value"), "count")
    query = pairs.group_by("k").agg(entry.top_k_by("count", 5).alias("a"))
elif case == "distinct_sample":
    pairs = rows.group_by("k", "user_id").agg(pl.len().alias("count")).with_columns(h=user.hash())
    query = pairs.group_by("k").agg(pl.struct(user.alias("value"), "count").bottom_k_by("h", 3).alias("a"))
elif case == "inverse_histogram":
    pairs = rows.group_by("k", "user_id").agg(pl.len().alias("times"))
    entries = pairs.group_by("k", "times").agg(pl.len().alias("values"))
    query = entries.group_by("k").agg(pl.struct("times", "values").alias("a"))
elif case in ("sum_of_lists", "avg_of_lists"):
    sums = [(e.sum() if case == "sum_of_lists" else e.mean()).alias(f"a{place}") for place, e in enumerate(elements)]
    query = rows.group_by("k").agg(*sums).select("k", pl.concat_list("a0", "a1", "a2").alias("a"))
else:
    first, *others = AGGREGATES[case]
    query = rows.group_by("k").agg(first.alias("a"), *others)

query.collect(engine="streaming").write_ipc(output, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
print(json.dumps({"work_s": time.perf_counter() - started}))
