"""What is asked, in each engine's words; Polars' are in `peer_polars.py`.

A question is plain SQL where all engines understand the same; what only some do stands in
braces and is filled in by `sql`.
"""

# Where an engine's function has another name.
WORDS = {"chdb": {"median": "quantileExactInclusive(0.5)", "stddev": "stddevSamp"}}

TEN = {
    "q1": "SELECT id1, sum(v1) AS v1 FROM {source} GROUP BY id1",
    "q2": "SELECT id1, id2, sum(v1) AS v1 FROM {source} GROUP BY id1, id2",
    "q3": "SELECT id3, sum(v1) AS v1, avg(v3) AS v3 FROM {source} GROUP BY id3",
    "q4": "SELECT id4, avg(v1) AS v1, avg(v2) AS v2, avg(v3) AS v3 FROM {source} GROUP BY id4",
    "q5": "SELECT id6, sum(v1) AS v1, sum(v2) AS v2, sum(v3) AS v3 FROM {source} GROUP BY id6",
    "q6": "SELECT id4, id5, {median}(v3) AS median, {stddev}(v3) AS sd FROM {source} GROUP BY id4, id5",
    "q7": "SELECT id3, max(v1) - min(v2) AS range FROM {source} GROUP BY id3",
    "q8": "SELECT id6, v3 FROM (SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) "
    "AS place FROM {source}) AS ranked WHERE place <= 2",
    "q9": "SELECT id2, id4, power(corr(v1, v2), 2) AS r2 FROM {source} GROUP BY id2, id4",
    "q10": "SELECT id1, id2, id3, id4, id5, id6, sum(v3) AS v3, count(*) AS n FROM {source} "
    "GROUP BY id1, id2, id3, id4, id5, id6",
}

# Windows over partitions: all rows are the answer.
WINDOWS = {
    "w1": "SELECT id6, v3, avg(v3) OVER (PARTITION BY id6) AS mean FROM {source}",
    "w2": "SELECT id6, v3, lag(v3) OVER (PARTITION BY id6 ORDER BY v3) AS before FROM {source}",
    "w3": "SELECT id3, v1, rank() OVER (PARTITION BY id3 ORDER BY v1) AS place FROM {source}",
    "w4": "SELECT id6, v3, sum(v1) OVER (PARTITION BY id6 ORDER BY v3) AS total FROM {source}",
}

# The keys of each, the first columns of its answer.
KEYS = {
    "w1": ["id6"],
    "w2": ["id6"],
    "w3": ["id3", "v1"],
    "w4": ["id6"],
    "q1": ["id1"],
    "q2": ["id1", "id2"],
    "q3": ["id3"],
    "q4": ["id4"],
    "q5": ["id6"],
    "q6": ["id4", "id5"],
    "q7": ["id3"],
    "q8": ["id6"],
    "q9": ["id2", "id4"],
    "q10": ["id1", "id2", "id3", "id4", "id5", "id6"],
}

# Sketches: each engine's own, so only their error is checked.
SKETCHES = {
    "tidemill": "SELECT id3, quantile(v3, 0.5) AS median, unique(v2) AS different FROM {source} GROUP BY id3",
    "duckdb": "SELECT id3, approx_quantile(v3, 0.5) AS median, approx_count_distinct(v2) AS different "
    "FROM {source} GROUP BY id3",
    "datafusion": "SELECT id3, approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY v3) AS median, "
    "approx_distinct(v2) AS different FROM {source} GROUP BY id3",
    "chdb": "SELECT id3, quantileTDigest(0.5)(v3) AS median, uniqHLL12(v2) AS different "
    "FROM {source} GROUP BY id3",
}

STATIONS = (
    "SELECT station, min(temperature) AS low, avg(temperature) AS mean, max(temperature) AS high "
    "FROM {source} GROUP BY station"
)


def sql(case: str, engine: str, source: str) -> str:
    """The case's question to an engine that reads `source`."""
    if case == "sketches":
        text = SKETCHES[engine]
    elif case == "stations":
        text = STATIONS
    elif case == "billion":
        text = "SELECT k, count(*) AS n, sum(v) AS v FROM {source} GROUP BY k"
    elif case in TEN or case in WINDOWS:
        text = (TEN | WINDOWS)[case]
    else:
        text = f"SELECT {case}, count(*) AS n, sum(v) AS v FROM {{source}} GROUP BY {case}"
    if engine == "chdb" and case == "w2":
        # Its `lag` ends with a zero where there is no row.
        text = text.replace("lag(v3)", "lag(toNullable(v3))")
    words = {"median": "median", "stddev": "stddev"} | WORDS.get(engine, {})
    return text.format(source=source, **words)
