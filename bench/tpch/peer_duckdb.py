"""DuckDB: `peer_duckdb.py CASE FOLDER OUTPUT`."""

import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
from queries import TABLES, sql  # noqa: E402

started = time.perf_counter()
case, folder, output = sys.argv[1:]
tables = {table: f"read_parquet('{Path(folder) / table}.parquet')" for table in TABLES}
batches = duckdb.sql(sql(case, tables)).fetch_record_batch(1_000_000)
with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, batches.schema) as writer:
    for batch in batches:
        writer.write_batch(batch)
print(json.dumps({"work_s": time.perf_counter() - started}))
