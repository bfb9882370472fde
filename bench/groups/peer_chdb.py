"""chDB, ClickHouse's engine in this process: `peer_chdb.py CASE FORMAT INPUT MEMORY OUTPUT`."""

import json
import sys
import time
from pathlib import Path

import chdb

sys.path.insert(0, str(Path(__file__).parent))
from questions import sql  # noqa: E402

started = time.perf_counter()
case, format, source, memory, output = sys.argv[1:]
name = {"csv": "CSVWithNames", "parquet": "Parquet"}[format]
query = sql(case, "chdb", f"file('{source}', '{name}')")
settings = "output_format_arrow_compression_method = 'none'"
if memory != "-":
    limit = int(memory) * 1_000_000
    settings += f", max_memory_usage = {limit}, max_bytes_before_external_group_by = {limit // 2}"
if case == "stations":
    settings += ", format_csv_delimiter = ';'"
chdb.query(f"{query} INTO OUTFILE '{output}' TRUNCATE FORMAT Arrow SETTINGS {settings}")
print(json.dumps({"work_s": time.perf_counter() - started}))
