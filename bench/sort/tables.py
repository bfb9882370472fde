"""The sort of a table of 16 columns beside DuckDB and Polars, with the same memory, in turn.

    TIDEMILL=target/release/tidemill PEERS=VENV/bin/python \\
        python3 bench/sort/tables.py FOLDER [--rows 6000000] [--rounds 3] [--memory 64,256,1024,8192]
                                     [--orders two,ascending,few,texts] [--without polars]

FOLDER takes the input, outputs and spills. PEERS is a Python with the peers (`pip install duckdb
polars`), and makes the input. Each measurement is a process of its own that reads a Parquet file and
writes one, compressed by zstd, with two threads and so many MiB of memory; Polars has no limit of
memory, and is run once for each order. Wall time, processor time and peak resident memory are what
`wait4` says, bytes written the kernel's count. That the outputs have the rows of the input, in order,
is checked.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ORDERS = {"two": "k1,k2", "ascending": "id", "few": "method", "texts": "path,day"}

MAKE = """
import duckdb, sys
duckdb.execute("set enable_progress_bar=false")
rows, path = sys.argv[1:]
duckdb.execute(f\"\"\"copy (select (hash(i*7+1)%1000)::int k1, (hash(i*13+5)%10000000)::bigint k2,
  hash(i)%1000000 a1, (hash(i+1)%1000)/10.0 a2, i id, (i*17)%256 a4,
  'user-'||(hash(i*3)%500000) name, ['GET','POST','PUT','DELETE'][1+(hash(i)%4)::int] "method",
  'https://example.org/path/'||(hash(i*5)%20000) path, md5(i::varchar)[1:16] code,
  timestamp '2026-01-01'+interval (i) millisecond ts, date '2026-01-01'+(i%365)::int "day",
  (hash(i*9)%2)=0 b, (hash(i*11)%100000)/7.0 f1, (hash(i*15)%100000)::int n1, (hash(i*19)%100)::int n2
  from range({rows}) t(i)) to '{path}' (format parquet, row_group_size 100000)\"\"\")
"""
DUCKDB = """
import duckdb, sys
source, output, by, memory, spill = sys.argv[1:]
c = duckdb.connect(config={'temp_directory': spill})
c.execute(f"set threads=2; set memory_limit='{memory}MiB'; set preserve_insertion_order=false; set enable_progress_bar=false")
c.execute(f"copy (select * from '{source}' order by {by}) to '{output}' (format parquet, compression zstd)")
"""
POLARS = """
import polars, sys
source, output, by = sys.argv[1:4]
polars.scan_parquet(source).sort(by.split(',')).sink_parquet(output, compression='zstd')
"""
CHECK = """
import duckdb, sys
source, output, by = sys.argv[1:]
of = lambda path: duckdb.sql(f"select count(*), bit_xor(hash(t)) from '{path}' t").fetchall()
if of(source) != of(output):
    sys.exit('other rows came out')
keys = ', '.join(f'{key}, lag({key}) over (order by row_at) p_{key}' for key in by.split(','))
now, before = by, ', '.join(f'p_{key}' for key in by.split(','))
wrong = duckdb.sql(f\"\"\"select count(*) from (select {keys}, row_at from
  (select *, file_row_number row_at from read_parquet('{output}', file_row_number = true)))
  where row_at > 0 and row({before}) > row({now})\"\"\").fetchall()[0][0]
if wrong:
    sys.exit(f'{wrong} rows are out of order')
"""


def run(command: list[str], memory: str | None) -> dict[str, float]:
    began = time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "POLARS_MAX_THREADS": "2"})
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        return {"failed": float(status), "said": said.decode(errors="replace")[-200:]}  # type: ignore[dict-item]
    return {
        "wall": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "rss": usage.ru_maxrss / 1024,
        "written": usage.ru_oublock * 512 / 1e6,
    }


def cache(path: Path) -> None:
    # In pieces: what this process holds would count as its children's.
    with path.open("rb") as file:
        while file.read(1 << 22):
            pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="64,256,1024,8192")
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--without", default="")
    given = parser.parse_args()
    ours = os.environ.get("TIDEMILL", str(ROOT / "target" / "release" / "tidemill"))
    python = os.environ.get("PEERS", "python3")
    given.folder.mkdir(parents=True, exist_ok=True)
    source = given.folder / f"table-{given.rows}.parquet"
    if not source.exists():
        subprocess.run([python, "-c", MAKE, str(given.rows), str(source)], check=True)
    print(f"{given.rows:,} rows, {source.stat().st_size / 1e6:.0f} MB, load average {os.getloadavg()[0]:.1f}")
    spill = given.folder / "spill"
    spill.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(spill)
    for order in given.orders.split(","):
        by = ORDERS[order]
        for memory in given.memory.split(","):
            outputs = {name: str(given.folder / f"out-{name}.parquet") for name in ("tidemill", "duckdb", "polars")}
            commands = {
                "tidemill": [ours, "sort", "--by", by, str(source), "-o", outputs["tidemill"], "--overwrite"]
                + ["--memory", f"{memory}MiB", "--threads", "2"],
                "duckdb": [python, "-c", DUCKDB, str(source), outputs["duckdb"], by, memory, str(spill)],
                "polars": [python, "-c", POLARS, str(source), outputs["polars"], by],
            }
            if memory != given.memory.split(",")[-1]:
                del commands["polars"]
            commands = {name: words for name, words in commands.items() if name not in given.without.split(",")}
            rounds: list[dict[str, dict[str, float]]] = []
            for _ in range(given.rounds):
                cache(source)
                rounds.append({name: run(words, memory) for name, words in commands.items()})
            if "failed" not in rounds[-1]["tidemill"]:
                subprocess.run([python, "-c", CHECK, str(source), outputs["tidemill"], by], check=True)
            for name in commands:
                measured = [one[name] for one in rounds]
                line = f"{order:<10} {memory:>5} MiB  {name:<9}"
                if any("failed" in one for one in measured):
                    print(f"{line} failed: {measured[-1].get('said', '')}", flush=True)
                    continue
                wall = [one["wall"] for one in measured]
                line += f" wall {statistics.median(wall):6.2f} ({min(wall):.2f}-{max(wall):.2f})"
                for key, unit in [("cpu", "s"), ("rss", "MB"), ("written", "MB")]:
                    line += f"  {key} {statistics.median(one[key] for one in measured):.1f} {unit}"
                print(line, flush=True)
            for output in outputs.values():
                Path(output).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
