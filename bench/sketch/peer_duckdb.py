"""DuckDB: `peer_duckdb.py CASE KEY INPUT OUTPUT`."""

import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
from questions import DUCKDB  # noqa: E402

started = time.perf_counter()
case, key, source, output = sys.argv[1:]
duckdb.execute("SET preserve_insertion_order = false")
query = DUCKDB[case].format(key=key, source=f"read_parquet('{source}')")
batches = duckdb.sql(query).fetch_record_batch(1_000_000)
with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, batches.schema) as writer:
    for batch in batches:
        writer.write_batch(batch)
print(json.dumps({"work_s": time.perf_counter() - started}))
