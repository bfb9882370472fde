"""DataFusion's Python package: `peer_datafusion.py CASE FORMAT INPUT MEMORY OUTPUT`; see `peer_duckdb.py`."""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionContext

sys.path.insert(0, str(Path(__file__).parent))
from questions import sql  # noqa: E402

started = time.perf_counter()
case, format, source, memory, output = sys.argv[1:]
runtime = RuntimeEnvBuilder()
if memory != "-":
    runtime = runtime.with_disk_manager_os().with_fair_spill_pool(int(memory) * 1_000_000)
context = SessionContext(runtime=runtime)
if format == "csv":
    context.register_csv("rows", source, delimiter=";" if case == "stations" else ",")
else:
    context.register_parquet("rows", source)
frame = context.sql(sql(case, "datafusion", "rows"))
schema = pa.schema(frame.schema())
with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, schema) as writer:
    for batch in frame.execute_stream():
        writer.write_batch(batch.to_pyarrow())
print(json.dumps({"work_s": time.perf_counter() - started}))
