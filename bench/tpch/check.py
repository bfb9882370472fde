"""Checks an answer against DuckDB's: `check.py CASE FOLDER ANSWER`. Prints what is wrong with it, if anything."""

import datetime
import decimal
import math
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
from queries import TABLES, sql  # noqa: E402


def same(found, expected) -> bool:
    if isinstance(expected, (int, float, decimal.Decimal)) and isinstance(found, (int, float, decimal.Decimal)):
        # Quotients of decimals have as many places as an engine gives them.
        return math.isclose(float(found), float(expected), rel_tol=1e-6, abs_tol=1e-4)
    if isinstance(found, datetime.datetime) and isinstance(expected, datetime.date):
        return found == datetime.datetime.combine(expected, datetime.time())
    return found == expected


def main() -> None:
    case, folder, answer = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    tables = {table: f"read_parquet('{folder / table}.parquet')" for table in TABLES}
    expected = duckdb.sql(sql(case, tables)).fetchall()
    with pa.OSFile(answer) as file, pa.ipc.open_file(file) as reader:
        rows = [tuple(row.values()) for row in reader.read_all().to_pylist()]
    if len(rows) != len(expected):
        print(f"{len(rows)} rows instead of {len(expected)}")
        return
    for number, (found, wanted) in enumerate(zip(rows, expected)):
        if len(found) != len(wanted) or not all(map(same, found, wanted)):
            print(f"row {number} is {found}, not {wanted}")
            return


if __name__ == "__main__":
    main()
