"""Checks an answer: `check.py CASE KEY SOURCE ANSWER`; prints what is wrong with it, or nothing.

Runs in the peers' environment. DuckDB works out the right numbers, once, in words that no engine is measured by
(windows, sorts and joins), and keeps them beside the Parquet file. Exact answers are compared by sums, plain and bound
to the keys; estimates by how far they are off.
"""

import json
import os
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

# A list's values, where its elements are structs of them.
VALUES = "[e.value for e in a]"
SUMS = "sum({0})::DOUBLE, sum({0} * (k + 1))::DOUBLE"


def ranked(order: str, value: str, most: int = 3) -> str:
    """Sums of the first values by an order, as of a list of them."""
    return (
        f"SELECT {SUMS.format('s')}, sum(n) FROM (SELECT k, sum({value}) AS s, count(*) AS n FROM (SELECT {{key}} AS k, {value}, "
        f"row_number() OVER (PARTITION BY {{key}} ORDER BY {order}) AS place FROM {{rows}}) WHERE place <= {most} GROUP BY k)"
    )


def by_key(call: str) -> str:
    return f"SELECT {SUMS.format('s')} FROM (SELECT {{key}} AS k, {call} AS s FROM {{rows}} GROUP BY {{key}})"


def of_pairs(column: str, call: str) -> str:
    """By the different pairs of a group and a value."""
    return f"SELECT {SUMS.format('s')} FROM (SELECT k, {call} AS s FROM (SELECT {{key}} AS k, {column}, count(*) AS n FROM {{rows}} GROUP BY ALL) GROUP BY k)"


LISTED = f"SELECT {SUMS.format('list_sum(a)')}, sum(len(a)) FROM answer"
LENGTHS = "SELECT sum(len(a)), sum(len(a) * (k + 1)) FROM answer"
PLAIN = f"SELECT {SUMS.format('a')} FROM answer"
ELEMENTS = f"SELECT {SUMS.format('list_sum(a)')} FROM answer"

# The answer's numbers, the right ones, and how far apart they may be, as a share.
EXACT = {
    "unique_exact": (PLAIN, of_pairs("user_id", "count(*)"), 0),
    "count_distinct": (PLAIN, of_pairs("user_id", "count(*)"), 0),
    "maximum": (LISTED, ranked("x DESC", "x"), 1e-9),
    "minimum": (LISTED, ranked("x", "x"), 1e-9),
    "maximum_weighted": (LISTED, ranked("x DESC", "user_id"), 0),
    "sample": (LENGTHS, by_key("least(3, count(*))"), 0),
    "weighted_sample": (LENGTHS, by_key("least(3, count(*))"), 0),
    "distinct_values": (LISTED, of_pairs("category", "sum(category)"), 0),
    "distinct_sample": (LENGTHS, of_pairs("user_id", "least(3, count(*))"), 0),
    "collect": (LISTED, by_key("sum(x)"), 1e-9),
    "bootstrap_sum": (f"SELECT {SUMS.format('a.sum')} FROM answer", by_key("sum(x)"), 1e-9),
    "histogram": (f"SELECT {SUMS.format('list_sum(counts)')} FROM answer", by_key("count(*)"), 0),
    "sum_of_lists": (ELEMENTS, by_key("list_sum([sum(parts[1]), sum(parts[2]), sum(parts[3])])"), 1e-9),
    "avg_of_lists": (ELEMENTS, by_key("list_sum([avg(parts[1]), avg(parts[2]), avg(parts[3])])"), 1e-9),
    # Rows by how often their value occurs; of many values an estimate.
    "inverse_histogram": (
        f"SELECT {SUMS.format('list_sum([e.times * e.values for e in a])')} FROM answer",
        by_key("count(*)"),
        0.05,
    ),
}


def main() -> None:
    case, key, source, path = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    # What is read lies in memory as it is in the file.
    answer = pa.ipc.open_file(pa.memory_map(path)).read_all()
    duckdb.register("arrow", answer)
    select = "*"
    if case == "histogram":
        is_map = pa.types.is_map(answer["a"].type)
        select = "k, map_values(a) AS counts" if is_map else "k, [e.count for e in a] AS counts"
    elif case in ("maximum_weighted", "weighted_sample") and pa.types.is_struct(answer["a"].type.value_type):
        # With the weights, which the peers do not give.
        select = f"k, {VALUES} AS a"
    duckdb.execute(f"CREATE TEMP VIEW answer AS SELECT {select} FROM arrow")
    wrong = check(case, key, source, answer)
    if wrong:
        print(wrong)


def check(case: str, key: str, source: Path, answer: pa.Table) -> str | None:
    groups = kept(source, f"{key}-groups", f"SELECT count(DISTINCT {key}) FROM '{source}'")[0]
    if answer.num_rows != groups:
        return f"{answer.num_rows:,} groups for {groups:,}"
    if case in EXACT:
        asked, right, tolerance = EXACT[case]
        right = kept(source, f"{key}-{case}", right.format(key=key, rows=f"'{source}'"))
        found = numbers(asked)
        wrong = different(found, right, tolerance)
        if wrong:
            return wrong
    if case in ("sample", "weighted_sample"):
        return strangers("SELECT k, unnest(a) AS v FROM answer", key, source, "user_id")
    if case == "distinct_sample":
        entries = "SELECT k, e.value AS v, e.count AS n FROM (SELECT k, unnest(a) AS e FROM answer)"
        wrong = numbers(
            f"SELECT count(*) FROM ({entries}) AS e LEFT JOIN (SELECT {key} AS k, user_id AS v, count(*) AS n "
            f"FROM '{source}' GROUP BY ALL) AS r USING (k, v) WHERE r.n IS DISTINCT FROM e.n"
        )
        return f"{wrong[0]} wrong counts" if wrong[0] else None
    if case in ("top_k", "top_k_weighted"):
        return check_top(case, key, source, answer)
    if case == "unique":
        right = exact_pairs(key, source)
        error = numbers(f"SELECT sqrt(avg(power(a / n - 1, 2))) FROM answer JOIN ({right}) USING (k)")[0]
        return f"counts are off by {error:.1%}, root mean square" if error > 0.1 else None
    if case == "hll_sketch":
        return "empty sketches" if numbers("SELECT count(*) FROM answer WHERE octet_length(a::BLOB) < 4 OR a IS NULL")[0] else None
    if case == "quantile":
        return check_quantiles(key, answer)
    return None


def exact_pairs(key: str, source: Path) -> str:
    return f"SELECT {key} AS k, count(DISTINCT user_id) AS n FROM '{source}' GROUP BY ALL"


def check_quantiles(key: str, answer: pa.Table) -> str | None:
    """Of values that are evenly from 0 to 100; ten of a group say little about the end."""
    first, second = ("a", "b") if "b" in answer.column_names else ("a[1]", "a[2]")
    median, end = numbers(f"SELECT avg({first})::DOUBLE, avg({second})::DOUBLE FROM answer")
    distance = 8 if key == "million" else 1
    low = 89 if key == "million" else 95
    if abs(median - 50) > 1 or abs(end - low) > distance:
        return f"ranks 0.5 and 0.95 are {median:.2f} and {end:.2f} on the average"
    return None


def check_top(case: str, key: str, source: Path, answer: pa.Table) -> str | None:
    """What share of the possible the listed words have, by their true counts or weights."""
    values = VALUES if pa.types.is_struct(answer["a"].type.value_type) else "a"
    total = "count(*)" if case == "top_k" else "sum(weight)"
    pairs = f"SELECT {key} AS k, word AS v, {total} AS n FROM '{source}' GROUP BY ALL"
    best = kept(
        source,
        f"{key}-{case}",
        f"SELECT sum(n), count(*) FROM (SELECT n, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS p FROM ({pairs})) WHERE p <= 5",
    )
    found = numbers(
        f"SELECT sum(n), count(*) FROM (SELECT k, unnest({values}) AS v FROM answer) JOIN ({pairs}) USING (k, v)"
    )
    share = found[0] / best[0]
    if found[1] > best[1] or share < 0.97:
        return f"{found[1]} words for {best[1]}, {share:.1%} of the possible"
    return None


def strangers(entries: str, key: str, source: Path, column: str) -> str | None:
    found = numbers(f"SELECT count(*) FROM ({entries}) AS e ANTI JOIN (SELECT {key} AS k, {column} AS v FROM '{source}') AS r USING (k, v)")
    return f"{found[0]} values are not in their groups" if found[0] else None


def numbers(query: str) -> list:
    return [float(value) if value is not None else float("nan") for value in duckdb.execute(query).fetchone()]


def different(found: list, right: list, tolerance: float) -> str | None:
    for ours, theirs in zip(found, right):
        if not abs(ours - theirs) <= tolerance * abs(theirs):
            return f"sums are {found}, not {right}"
    return None


def kept(source: Path, name: str, query: str) -> list:
    path = source.parent / "answers" / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        partial.write_text(json.dumps(numbers(query)))
        partial.replace(path)
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()
