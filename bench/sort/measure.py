"""The sort of lines beside GNU sort and databases, with the same memory, in turn.

    cargo build --release -p tidemill-sort --example bench
    python3 bench/sort/measure.py FOLDER [--bytes 1000000000] [--memory-share 4] [--rounds 3]
                                  [--kinds records,words,…] [--cold] [--peers duckdb,polars,datafusion]

FOLDER takes inputs, outputs and spills: five times `--bytes`. Each measurement is a process of its
own, whose wall time, processor time and peak resident memory `wait4` says; blocks read from and
written to the disk are the kernel's count for it. Both get a `--memory-share`-th of the input as
memory, and two threads. The outputs of a round are compared byte by byte. With `--cold` the input is
dropped from the page cache before each run. Peers read the lines as a column of one CSV file and write one; PEERS is a
Python that has them (`pip install duckdb polars datafusion`). Polars has no limit of memory.
"""

import argparse
import filecmp
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Inputs, and the options that each is sorted with.
KINDS = {
    "records": [],
    "records-by-key": ["--records", "100", "--key", "0..10"],
    "words": [],
    "integers": ["-n"],
    "sorted": [],
    "reversed": [],
    "few": [],
    "skewed": [],
}
# GNU sort has no records of a fixed size; by the key alone, it is told where it ends.
THEIRS = {"records-by-key": ["-k1.1,1.10", "-s"]}

# Each with a separator that no line has.
PEERS = {
    "duckdb": """
import duckdb, sys
source, output, kind, memory, spill = sys.argv[1:]
c = duckdb.connect(config={'temp_directory': spill})
c.execute(f"set threads=2; set memory_limit='{memory}'; set preserve_insertion_order=false")
c.execute("set enable_progress_bar=false")
of = 'BIGINT' if kind == 'integers' else 'VARCHAR'
lines = f"read_csv('{source}', header=false, delim='\\x01', quote='', escape='', columns={{'line': '{of}'}}, auto_detect=false)"
c.execute(f"copy (select line from {lines} order by line) to '{output}' (format csv, header false, delim '\\x01', quote '')")
""",
    "polars": """
import polars, sys
source, output, kind = sys.argv[1:4]
schema = {'line': polars.Int64 if kind == 'integers' else polars.String}
form = dict(separator='\\x01', quote_char=None)
lines = polars.scan_csv(source, has_header=False, schema=schema, **form)
lines.sort('line').sink_csv(output, include_header=False, separator='\\x01', quote_style='never')
""",
    "datafusion": """
import datafusion, os, pyarrow, sys
source, output, kind, memory, spill = sys.argv[1:]
runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_specified(spill).with_fair_spill_pool(int(memory[:-3]) << 10)
config = datafusion.SessionConfig().with_target_partitions(2)
c = datafusion.SessionContext(config, runtime)
schema = pyarrow.schema([('line', pyarrow.int64() if kind == 'integers' else pyarrow.string())])
c.register_csv('lines', source, schema=schema, has_header=False, delimiter='\\x01', file_extension='')
c.sql('select line from lines order by line').write_csv(output + '.csv')
os.rename(output + '.csv', output)
""",
}


def run(command: list[str]) -> dict[str, float]:
    began = time.monotonic()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stderr=quiet, env={**os.environ, "LC_ALL": "C", "POLARS_MAX_THREADS": "2"})
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        return {}
    return {
        "wall": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "rss": usage.ru_maxrss / 1024,
        "read": usage.ru_inblock * 512 / 1e6,
        "written": usage.ru_oublock * 512 / 1e6,
    }


def cache(path: Path, cold: bool) -> None:
    with path.open("rb") as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(1 << 22):
                pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--memory-share", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--peers", default="")
    given = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    ours = str(target / "release" / "examples" / "bench")
    python = os.environ.get("PEERS", "python3")
    memory = f"{int(given.bytes / given.memory_share / 1024)}K"
    peers = given.peers.split(",") if given.peers else []
    print(f"{given.bytes / 1e9:g} GB, -S {memory}, load average {os.getloadavg()[0]:.1f}")
    for kind in given.kinds.split(","):
        source = given.folder / f"{kind.removesuffix('-by-key')}-{given.bytes}"
        if not source.exists():
            subprocess.run([ours, "generate", kind.removesuffix("-by-key"), str(given.bytes), source], check=True)
        names = ["tidemill", "gnu", *([] if kind == "records-by-key" else peers)]
        outputs = {name: given.folder / f"out-{name}" for name in names}
        common = ["-S", memory, "--parallel=2", "-T", str(given.folder), str(source)]
        commands = {
            "tidemill": [ours, "sort", *KINDS[kind], *common, "-o", str(outputs["tidemill"])],
            "gnu": ["sort", *THEIRS.get(kind, KINDS[kind]), *common, "-o", str(outputs["gnu"])],
        }
        for name in names[2:]:
            words = [str(source), str(outputs[name]), kind, f"{memory}iB", str(given.folder)]
            commands[name] = [python, "-c", PEERS[name], *words]
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(given.rounds):
            for output in outputs.values():
                output.unlink(missing_ok=True)
            for name, command in commands.items():
                cache(source, given.cold)
                rounds[name].append(run(command))
                # Readers of CSV take the CR of the records' ends away, and DataFusion writes quotes around commas.
                is_same = kind != "records-by-key" and (name == "gnu" or kind != "records") and name != "datafusion"
                if is_same and rounds[name][-1] and not filecmp.cmp(outputs["tidemill"], outputs[name], shallow=False):
                    raise SystemExit(f"{kind}: the output of {name} differs")
        for output in outputs.values():
            output.unlink(missing_ok=True)
        for name, measured in rounds.items():
            if not all(measured):
                print(f"{kind:<15} {name:<10} failed", flush=True)
                continue
            wall = [one["wall"] for one in measured]
            line = f"{kind:<15} {name:<10} wall {statistics.median(wall):7.2f} ({min(wall):.2f}-{max(wall):.2f})"
            for key, unit in [("cpu", "s"), ("rss", "MB"), ("read", "MB"), ("written", "MB")]:
                line += f"  {key} {statistics.median(one[key] for one in measured):.1f} {unit}"
            ratio = statistics.median(its["wall"] / own["wall"] for own, its in zip(rounds["tidemill"], measured))
            print(f"{line}  {ratio:.2f} times", flush=True)


if __name__ == "__main__":
    main()
