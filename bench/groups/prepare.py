"""Writes the rows to group: `prepare.py ROWS FOLDER [billion]`. Runs in the peers' environment, for DuckDB.

Everything is drawn from a hash of the row's number and the column's name, so the same number of
rows is the same data. A file is renamed into its place once it is whole.

`ten`, in the shape of db-benchmark's groupby task (K = 100; no nulls, unsorted):

- `id1`, `id2`: 100 strings `id001` …; `id3`: ROWS/100 strings `id0000000001` …
- `id4`, `id5`: 100 integers; `id6`: ROWS/100 integers
- `v1`: 1 to 5, `v2`: 1 to 15, `v3`: 0 to 100 with six decimals

`keys`, one column per number of groups (1, 10 … 10 million; no more than there are rows):

- `u…`: integers, all equally likely; `z…`: integers, the r-th as likely as 1/r; `n…`: as `u…`, one in ten null
- `s…`: the integers of `u…` as text of 1 to 8 bytes; `l…`: as text of 40 bytes
- `v`: integers below 1000

`stations`: `name;temperature` of 413 stations, ten times as many rows, CSV only.

`billion`, where it is asked for: a hundred times as many rows, `k` of ten times as many integers as ROWS, `v` below
1000; and the numbers that an answer must add up to, as JSON.
"""

import json
import os
import sys
from pathlib import Path

import duckdb

COUNTS = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
ROW_GROUP = 1_000_000


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    duckdb.execute("SET preserve_insertion_order = true")
    write(folder / "ten.parquet", ten(rows))
    write(folder / "ten.csv", f"SELECT * FROM '{folder / 'ten.parquet'}'")
    write(folder / "keys.parquet", keys(rows))
    write(folder / "stations.csv", stations(10 * rows), "DELIMITER ';'")
    if "billion" in sys.argv[3:]:
        billion(100 * rows, 10 * rows, folder)
    sizes = {name: column_bytes(folder / name) for name in ("ten.parquet", "keys.parquet")}
    (folder / "columns.json").write_text(json.dumps(sizes, indent=1) + "\n")


def draw(column: str, count: int) -> str:
    """0 to `count` - 1."""
    return f"(hash(i, '{column}') % {count})::BIGINT"


def ten(rows: int) -> str:
    many = max(1, rows // 100)
    return f"""
        SELECT format('id{{:03d}}', 1 + {draw("id1", 100)}) AS id1,
               format('id{{:03d}}', 1 + {draw("id2", 100)}) AS id2,
               format('id{{:010d}}', 1 + {draw("id3", many)}) AS id3,
               1 + {draw("id4", 100)} AS id4,
               1 + {draw("id5", 100)} AS id5,
               1 + {draw("id6", many)} AS id6,
               1 + {draw("v1", 5)} AS v1,
               1 + {draw("v2", 15)} AS v2,
               {draw("v3", 100_000_000)} / 1e6 AS v3
        FROM range({rows}) AS t(i)
    """


def keys(rows: int) -> str:
    columns = []
    for count in COUNTS:
        if count > rows:
            continue
        uniform = draw(f"u{count}", count)
        # By inversion: of a continuous density 1/x from 1 to count + 1.
        zipf = f"floor(exp({draw(f'z{count}', 1 << 52)} / {1 << 52}.0 * ln({count + 1})))::BIGINT - 1"
        columns += [
            f"{uniform} AS u{count}",
            f"{zipf} AS z{count}",
            f"CASE WHEN {draw(f'n{count}', 10)} > 0 THEN {uniform} END AS n{count}",
            f"{uniform}::VARCHAR AS s{count}",
            f"format('https://example.org/pages/{{:013d}}', {uniform}) AS l{count}",
        ]
    return f"SELECT {', '.join(columns)}, {draw('v', 1000)} AS v FROM range({rows}) AS t(i)"


def stations(rows: int) -> str:
    return f"""
        SELECT format('Station {{}}', {draw("station", 413)}) AS station,
               round(({draw("temperature", 2000)} - 1000) / 10, 1) AS temperature
        FROM range({rows}) AS t(i)
    """


def billion(rows: int, groups: int, folder: Path) -> None:
    path = folder / "billion.parquet"
    write(path, f"SELECT {draw('k', groups)} AS k, {draw('v', 1000)} AS v FROM range({rows}) AS t(i)")
    query = f"SELECT count(DISTINCT k), sum(k)::BIGINT, count(*), sum(v)::BIGINT FROM '{path}'"
    names = ["groups", "keys", "rows", "values"]
    sums = dict(zip(names, duckdb.execute(query).fetchone()))
    (folder / "billion.json").write_text(json.dumps(sums, indent=1) + "\n")


def column_bytes(path: Path) -> dict[str, int]:
    """The compressed bytes of each column: what a query has to read of the file."""
    query = "SELECT path_in_schema, sum(total_compressed_size)::BIGINT FROM parquet_metadata(?) GROUP BY ALL"
    return dict(duckdb.execute(query, [str(path)]).fetchall())


def write(path: Path, query: str, options: str = "") -> None:
    if path.exists():
        return
    print(f"writing {path} ...", file=sys.stderr, flush=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    if path.suffix == ".parquet":
        form = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
    else:
        form = ", ".join(filter(None, ["FORMAT csv, HEADER", options]))
    try:
        duckdb.execute(f"COPY ({query}) TO '{partial}' ({form})")
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
