"""Writes the rows to aggregate: `prepare.py ROWS FOLDER`. Runs in the peers' environment, for DuckDB.

Everything is drawn from a hash of the row's number and the column's name, so the same number of rows is the same data.

- `million`: ROWS/10 integers; `hundred`: 100; `one`: 0
- `user_id`: ROWS/4 integers; `category`: 20; `weight`: 1 to 100
- `x`: doubles from 0 to 100, hardly one of them twice
- `word`: 100,000 texts, the r-th as likely as 1/r
- `parts`: lists of one to three integers below 100
"""

import json
import os
import sys
from pathlib import Path

import duckdb

ROW_GROUP = 1_000_000
WORDS = 100_000


def draw(column: str, count: int) -> str:
    """0 to `count` - 1."""
    return f"(hash(i, '{column}') % {count})::BIGINT"


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    share = f"({draw('word', 1 << 52)} / {1 << 52}.0)"
    parts = ", ".join(draw(f"part {place}", 100) for place in range(3))
    query = f"""
        SELECT {draw("million", max(1, rows // 10))} AS million,
               {draw("hundred", 100)} AS hundred,
               0::BIGINT AS one,
               {draw("user", max(1, rows // 4))} AS user_id,
               {draw("category", 20)} AS category,
               1 + {draw("weight", 100)} AS weight,
               100 * ({draw("x", 1 << 52)} / {1 << 52}.0) AS x,
               -- By inversion: of a continuous density 1/x.
               format('word {{:d}}', floor(exp({share} * ln({WORDS + 1})))::BIGINT) AS word,
               list_slice([{parts}], 1, 1 + {draw("parts", 3)}) AS parts
        FROM range({rows}) AS t(i)
    """
    path = folder / "table.parquet"
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        duckdb.execute(f"COPY ({query}) TO '{partial}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sizes = duckdb.execute(
        f"SELECT split_part(path_in_schema, ',', 1), sum(total_compressed_size)::BIGINT FROM parquet_metadata('{path}') GROUP BY 1"
    ).fetchall()
    (folder / "columns.json").write_text(json.dumps(dict(sizes), indent=1) + "\n")


if __name__ == "__main__":
    main()
