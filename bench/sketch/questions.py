"""What is asked of tables, in each engine's words; Polars' are in `peer_polars.py`.

Each answer has a column `k`, the group, and `a`, the aggregate; where an engine has no list of ranks, `b` too.
`{key}` is the column to group by. What a peer has no word for is left out of its list, and said in bench/README.md.
"""

# A million groups (of ten rows each, on the average), a hundred, and one.
KEYS = ["million", "hundred", "one"]

# What each reads beside the key.
COLUMNS = {
    "unique": ["user_id"],
    "hll_sketch": ["user_id"],
    "unique_exact": ["user_id"],
    "count_distinct": ["user_id"],
    "quantile": ["x"],
    "histogram": ["x"],
    "top_k": ["word"],
    "top_k_weighted": ["word", "weight"],
    "maximum": ["x"],
    "minimum": ["x"],
    "maximum_weighted": ["user_id", "x"],
    "sample": ["user_id"],
    "weighted_sample": ["user_id", "weight"],
    "distinct_values": ["category"],
    "distinct_sample": ["user_id"],
    "inverse_histogram": ["user_id"],
    "bootstrap_sum": ["x", "user_id"],
    "collect": ["x"],
    "sum_of_lists": ["parts"],
    "avg_of_lists": ["parts"],
}


def of(calls: dict[str, str]) -> dict[str, str]:
    return {case: f"SELECT {{key}} AS k, {call} AS a FROM {{source}} GROUP BY {{key}}" for case, call in calls.items()}


TIDEMILL = of({
    "unique": "unique(user_id)",
    "hll_sketch": "hll_sketch(user_id)",
    "unique_exact": "unique_exact(user_id)",
    "count_distinct": "count(DISTINCT user_id)",
    "quantile": "quantile(x, 0.5, 0.95)",
    "histogram": "histogram(x, 20)",
    "top_k": "top_k(word, 5)",
    "top_k_weighted": "top_k(word, 5, weight)",
    "maximum": "maximum(x, 3)",
    "minimum": "minimum(x, 3)",
    "maximum_weighted": "maximum(user_id, 3, x)",
    "sample": "sample(user_id, 3)",
    "weighted_sample": "weighted_sample(user_id, 3, weight)",
    "distinct_values": "distinct_values(category, 100)",
    "distinct_sample": "distinct_sample(user_id, 3)",
    "inverse_histogram": "inverse_histogram(user_id)",
    "bootstrap_sum": "bootstrap_sum(x, user_id)",
    "collect": "collect(x, 2000000000)",
    "sum_of_lists": "sum(parts)",
    "avg_of_lists": "avg(parts)",
})

EDGES = ", ".join(str(5 * bar) for bar in range(1, 21))
ELEMENTS = [f"parts[{place}]" for place in (1, 2, 3)]

DUCKDB = of({
    "unique": "approx_count_distinct(user_id)",
    "unique_exact": "count(DISTINCT user_id)",
    "count_distinct": "count(DISTINCT user_id)",
    "quantile": "approx_quantile(x, [0.5, 0.95])",
    # Its edges have to be known before.
    "histogram": f"histogram(x, [{EDGES}])",
    "top_k": "approx_top_k(word, 5)",
    "maximum": "max(x, 3)",
    "minimum": "min(x, 3)",
    "maximum_weighted": "arg_max(user_id, x, 3)",
    "sample": "arg_min(user_id, random(), 3)",
    "weighted_sample": "arg_max(user_id, pow(random(), 1.0 / weight), 3)",
    "distinct_values": "list(DISTINCT category)",
    "collect": "list(x)",
    # How long lists are has to be known before.
    "sum_of_lists": f"[{', '.join(f'sum({element})' for element in ELEMENTS)}]",
    "avg_of_lists": f"[{', '.join(f'avg({element})' for element in ELEMENTS)}]",
})
DUCKDB |= {
    "top_k_weighted": "SELECT k, arg_max({{'value': word, 'weight': n}}, n, 5) AS a FROM "
    "(SELECT {key} AS k, word, sum(weight) AS n FROM {source} GROUP BY ALL) GROUP BY k",
    "distinct_sample": "SELECT k, arg_min({{'value': user_id, 'count': n}}, hash(user_id), 3) AS a FROM "
    "(SELECT {key} AS k, user_id, count(*) AS n FROM {source} GROUP BY ALL) GROUP BY k",
    "inverse_histogram": "SELECT k, list({{'times': n, 'values': v}}) AS a FROM (SELECT k, n, count(*) AS v FROM "
    "(SELECT {key} AS k, user_id, count(*) AS n FROM {source} GROUP BY ALL) GROUP BY ALL) GROUP BY k",
}

PEERS = {
    "duckdb": list(DUCKDB),
    "polars": [case for case in COLUMNS if case not in ("hll_sketch", "weighted_sample", "bootstrap_sum")],
}
