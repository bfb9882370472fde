"""Checks an answer: `check.py CASE SOURCE ANSWER`; prints what is wrong with it, or nothing.

Runs in the peers' environment. The right answer is worked out by PyArrow, once, from the
Parquet file, and kept beside it. Answers of up to a million groups are compared value by value; of
larger ones the number of rows, the sum of every column, and a sum that binds values to keys.
"""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from questions import KEYS, WINDOWS  # noqa: E402

COMPARED_ROWS_MAX = 1_000_000
TOLERANCE = 1e-9
# Of the estimates: how many ranks of a hundred a median may be off, and the share of a count.
MEDIAN_RANKS = 0.1
DIFFERENT = 0.35


def main() -> None:
    case, source, path = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if case == "billion":
        wrong = check_billion(source, path)
        if wrong:
            print(wrong)
        return
    answer = pa.ipc.open_file(path).read_all()
    wrong = check_sketches(source, answer) if case == "sketches" else check(case, source, answer)
    if wrong:
        print(wrong)


def check(case: str, source: Path, answer: pa.Table) -> str | None:
    right = kept(case, source)
    if answer.num_rows != right.num_rows:
        return f"{answer.num_rows:,} rows for {right.num_rows:,}"
    if answer.num_columns != right.num_columns:
        return f"columns {', '.join(answer.column_names)}"
    answer = answer.rename_columns(right.column_names).cast(right.schema)
    keys = KEYS.get(case) or [right.column_names[0]]
    if right.num_rows > COMPARED_ROWS_MAX:
        return different(digest(answer, keys), digest(right, keys))
    of_rows = case == "q8" or case in WINDOWS
    order = [(name, "ascending") for name in (right.column_names if of_rows else keys)]
    return different(answer.sort_by(order), right.sort_by(order) if of_rows else right)


def different(answer: pa.Table, right: pa.Table) -> str | None:
    for name in right.column_names:
        ours, theirs = answer[name], right[name]
        if not pa.types.is_floating(ours.type):
            same = ours.combine_chunks().equals(theirs.combine_chunks())
        else:
            if ours.null_count != theirs.null_count:
                return f"nulls in `{name}`"
            ours, theirs = pc.fill_null(ours, 0.0), pc.fill_null(theirs, 0.0)
            distance = pc.abs(pc.subtract(ours, theirs))
            scale = pc.max_element_wise(pc.abs(theirs), 1.0)
            same = pc.max(pc.divide(distance, scale)).as_py() <= TOLERANCE
        if not same:
            return f"wrong values in `{name}`"
    return None


def digest(table: pa.Table, keys: list[str]) -> pa.Table:
    """One row: sums of all columns, and of the first integer key times each value."""
    sums = {}
    integers = [name for name in keys if pa.types.is_integer(table[name].type)]
    weight = table[integers[-1]].cast(pa.float64()) if integers else None
    for name in table.column_names:
        column = table[name]
        if pa.types.is_string(column.type):
            # Every text ends with its number.
            column = pc.replace_substring_regex(column, "^.*[^0-9]", "").cast(pa.int64())
        sums[name] = pc.sum(column.cast(pa.float64())).as_py()
        if weight is not None and name not in keys:
            sums[f"{name} by key"] = pc.sum(pc.multiply(column.cast(pa.float64()), weight)).as_py()
    return pa.table({name: [value] for name, value in sums.items()})


def kept(case: str, source: Path) -> pa.Table:
    path = source.parent / "answers" / f"{case}.parquet"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        pq.write_table(work_out(case, source), partial)
        partial.replace(path)
    return pq.read_table(path)


def grouped(rows: pa.Table, keys: list[str], aggregates: list) -> pa.Table:
    """Sorted by key, columns in the order of what is asked."""
    answer = rows.group_by(keys).aggregate([(name, how, options) for name, how, options in aggregates])
    return answer.sort_by([(key, "ascending") for key in keys])


def work_out(case: str, source: Path) -> pa.Table:
    if case == "stations":
        options = pyarrow.csv.ParseOptions(delimiter=";")
        rows = pyarrow.csv.read_csv(source, parse_options=options)
        how = [("temperature", name, None) for name in ("min", "mean", "max")]
        return grouped(rows, ["station"], how).rename_columns(["station", "low", "mean", "high"])
    if case not in KEYS:
        rows = pq.read_table(source.parent / "keys.parquet", columns=[case, "v"])
        count_all = pc.CountOptions(mode="all")
        return grouped(rows, [case], [("v", "count", count_all), ("v", "sum", None)])
    keys = KEYS[case]
    values = [("v1", "sum", None), ("v2", "sum", None), ("v3", "sum", None)]
    means = [("v1", "mean", None), ("v2", "mean", None), ("v3", "mean", None)]
    rows = pq.read_table(source.parent / "ten.parquet", columns=list(dict.fromkeys([*keys, "v1", "v2", "v3"])))
    if case in ("q1", "q2"):
        return grouped(rows, keys, values[:1])
    if case == "q3":
        return grouped(rows, keys, [values[0], means[2]])
    if case == "q4":
        return grouped(rows, keys, means)
    if case == "q5":
        return grouped(rows, keys, values)
    if case == "q6":
        spread = grouped(rows, keys, [("v3", "stddev", pc.VarianceOptions(ddof=1))])
        return pa.table([spread[0], spread[1], medians(rows, keys), spread[2]], ["id4", "id5", "median", "sd"])
    if case == "q7":
        ends = grouped(rows, keys, [("v1", "max", None), ("v2", "min", None)])
        return pa.table([ends[0], pc.subtract(ends[1], ends[2])], ["id3", "range"])
    if case == "q8":
        return largest_two(rows)
    if case in WINDOWS:
        return windows(case, rows)
    if case == "q9":
        return correlations(rows, keys)
    answer = rows.group_by(keys).aggregate(
        [("v3", "sum", None), ("v3", "count", pc.CountOptions(mode="all"))]
    )
    if answer.num_rows > COMPARED_ROWS_MAX:
        return answer
    return answer.sort_by([(key, "ascending") for key in keys])


def in_runs(rows: pa.Table, keys: list[str], value_order: str) -> tuple[pa.Array, list[int]]:
    """The values sorted within their keys, and how many each key has."""
    order = [*((key, "ascending") for key in keys), ("v3", value_order)]
    rows = rows.select([*keys, "v3"]).sort_by(order)
    counts = rows.group_by(keys, use_threads=False).aggregate([("v3", "count")])
    return rows["v3"].combine_chunks(), counts["v3_count"].to_pylist()


def medians(rows: pa.Table, keys: list[str]) -> pa.Array:
    values, counts = in_runs(rows, keys, "ascending")
    low, high, start = [], [], 0
    for count in counts:
        low.append(start + (count - 1) // 2)
        high.append(start + count // 2)
        start += count
    return pc.divide(pc.add(values.take(pa.array(low)), values.take(pa.array(high))), 2.0)


def largest_two(rows: pa.Table) -> pa.Table:
    values, counts = in_runs(rows, ["id6"], "descending")
    keys = pc.unique(rows["id6"]).sort()
    which, groups, start = [], [], 0
    for group, count in enumerate(counts):
        taken = min(2, count)
        which += range(start, start + taken)
        groups += [group] * taken
        start += count
    answer = pa.table([keys.take(pa.array(groups)), values.take(pa.array(which))], ["id6", "v3"])
    return answer.sort_by([("id6", "ascending"), ("v3", "ascending")])


def windows(case: str, rows: pa.Table) -> pa.Table:
    key, order = ("id3", "v1") if case == "w3" else ("id6", "v3")
    rows = rows.sort_by([(key, "ascending"), (order, "ascending")])
    keys, values = rows[key].combine_chunks(), rows[order].combine_chunks()
    if case == "w1":
        means = rows.group_by(["id6"]).aggregate([("v3", "mean")])
        answers = rows.select(["id6"]).join(means, "id6").sort_by("id6")["v3_mean"]
        return pa.table([keys, values, answers], ["id6", "v3", "mean"])
    answers, group, last, place, rank, total = [], None, None, 0, 0, 0
    waiting = 0
    amounts = rows["v1"].to_pylist()
    for of, value, amount in zip(keys.to_pylist(), values.to_pylist(), amounts):
        if of != group or value != last:
            # All equals have the total of the last of them.
            answers += [total] * waiting if case == "w4" else []
            waiting = 0
        if of != group:
            group, last, place, total = of, None, 0, 0
        place += 1
        rank = rank if value == last else place
        total += amount
        waiting += 1
        if case != "w4":
            answers.append(last if case == "w2" else rank)
        last = value
    answers += [total] * waiting if case == "w4" else []
    return pa.table([keys, values, pa.array(answers)], [key, order, WINDOWS[case].split(" AS ")[1].split()[0]])


def correlations(rows: pa.Table, keys: list[str]) -> pa.Table:
    x, y = rows["v1"], rows["v2"]
    products = {"xy": pc.multiply(x, y), "xx": pc.multiply(x, x), "yy": pc.multiply(y, y)}
    for name, column in products.items():
        rows = rows.append_column(name, column)
    sums = grouped(rows, keys, [(n, "sum", None) for n in ("v1", "v2", "xy", "xx", "yy")] + [("v1", "count", None)])
    r2 = []
    for x, y, xy, xx, yy, n in zip(*(sums[i].to_pylist() for i in range(2, 8))):
        # In whole numbers until the last division: exact.
        r2.append((n * xy - x * y) ** 2 / ((n * xx - x * x) * (n * yy - y * y)))
    return pa.table([sums[0], sums[1], pa.array(r2)], ["id2", "id4", "r2"])


def check_sketches(source: Path, answer: pa.Table) -> str | None:
    """Over evenly distributed values, so that ranks are known: 0 to 100, and fifteen of them."""
    right = kept("q3", source)
    if answer.num_rows != right.num_rows:
        return f"{answer.num_rows:,} rows for {right.num_rows:,}"
    mean = pc.mean(answer["median"]).as_py()
    if abs(mean - 50) > 100 * MEDIAN_RANKS:
        return f"the medians are {mean} on the average"
    different = pc.mean(answer["different"]).as_py()
    if abs(different - 15) > 15 * DIFFERENT:
        return f"{different} different values on the average"
    return None


def check_billion(source: Path, path: str) -> str | None:
    """By sums, a batch at a time."""
    right = json.loads(source.with_suffix(".json").read_text())
    found = dict.fromkeys(right, 0)
    with pa.memory_map(path) as file:
        answer = pa.ipc.open_file(file)
        for index in range(answer.num_record_batches):
            k, n, v = (column.cast(pa.int64()) for column in answer.get_batch(index).columns)
            found["groups"] += len(k)
            found["keys"] += pc.sum(pc.multiply(k, n)).as_py()
            found["rows"] += pc.sum(n).as_py()
            found["values"] += pc.sum(v).as_py()
    return None if found == right else f"{found} for {right}"


if __name__ == "__main__":
    main()
