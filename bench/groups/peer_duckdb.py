"""DuckDB: `peer_duckdb.py CASE FORMAT INPUT MEMORY OUTPUT`; MEMORY in MB, or `-` for what it takes by itself."""

import json
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
from questions import sql  # noqa: E402

started = time.perf_counter()
case, format, source, memory, output = sys.argv[1:]
read = {
    "csv": f"read_csv('{source}')",
    "stations": f"read_csv('{source}', delim = ';')",
    "parquet": f"read_parquet('{source}')",
}["stations" if case == "stations" else format]
duckdb.execute("SET preserve_insertion_order = false")
if memory != "-":
    duckdb.execute(f"SET memory_limit = '{memory}MB'")
    duckdb.execute(f"SET temp_directory = '{output}.spills'")
batches = duckdb.sql(sql(case, "duckdb", read)).fetch_record_batch(1_000_000)
with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, batches.schema) as writer:
    for batch in batches:
        writer.write_batch(batch)
print(json.dumps({"work_s": time.perf_counter() - started}))
