"""chDB, ClickHouse's engine in this process: `peer_chdb.py CASE FORMAT INPUT OUTPUT`."""

import json
import sys
import time
from pathlib import Path

import chdb

sys.path.insert(0, str(Path(__file__).parent))
from questions import sql  # noqa: E402

started = time.perf_counter()
case, format, source, output = sys.argv[1:]
name = {"csv": "CSVWithNames", "parquet": "Parquet"}[format]
query = sql(case, "chdb", f"file('{source}', '{name}')")
settings = "output_format_arrow_compression_method = 'none'"
if case == "stations":
    settings += ", format_csv_delimiter = ';'"
chdb.query(f"{query} INTO OUTFILE '{output}' TRUNCATE FORMAT Arrow SETTINGS {settings}")
print(json.dumps({"work_s": time.perf_counter() - started}))
