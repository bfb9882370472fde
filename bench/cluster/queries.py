"""From prompt to prompt on a cluster: 1 kB, 1 GB and 10 GB, beside one process and beside peers.

    TIDEMILL=… python3 bench/cluster/queries.py FOLDER [--rounds 3] [--workers 2] [--without spark,daft,raydata] [--json FILE]

The Python is one that has Ray and tidemill; FOLDER is what `bench/turbo/prepare.py --kinds events` filled: JSON lines of 40
columns in 100 files of 100 MB. `PEERS` is a Python with pyspark, daft and ray; each is asked the same, in a process of its own.

- `local`: `tidemill query`, no cluster.
- `cold`: `tidemill query --on ray`, which starts a cluster for itself.
- `warm`: the same over a cluster that is there (`RAY_ADDRESS`): a process in Python connects to it.
- `session`: `tm.query(sql, on="ray")` in a Python that has asked before: actors are there.

Time is the whole process's, but for `session`; of peers too, of which `within` is the part behind their imports and the start of their
sessions. `processor` is user and system time of our own processes (the command, its Python and the workers), and Ray's own apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

SQL = "SELECT country, count(*) AS n, sum(revenue) AS revenue FROM '{files}' GROUP BY country ORDER BY country"
TICKS = os.sysconf("SC_CLK_TCK")

SPARK = """
import sys, time
from pyspark.sql import SparkSession
workers, files = sys.argv[1], sys.argv[2]
began = time.perf_counter()
session = SparkSession.builder.master(f"local-cluster[{workers},1,4096]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("ERROR")
started = time.perf_counter()
session.read.schema("country STRING, revenue DOUBLE").json(files).createOrReplaceTempView("events")
rows = session.sql("SELECT country, count(*) AS n, sum(revenue) AS revenue FROM events GROUP BY country ORDER BY country").collect()
print(time.perf_counter() - started, len(rows))
"""

DAFT = """
import sys, time, os
import ray
ray.init(num_cpus=int(sys.argv[1]), include_dashboard=False, log_to_driver=False)
import daft
daft.set_runner_ray()
started = time.perf_counter()
events = daft.read_json(sys.argv[2])
found = events.groupby("country").agg(daft.col("country").count().alias("n"), daft.col("revenue").sum()).sort("country").to_pydict()
print(time.perf_counter() - started, len(found["n"]))
"""

RAYDATA = """
import sys, time
import ray
ray.init(num_cpus=int(sys.argv[1]), include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
from ray.data.aggregate import Count, Sum
started = time.perf_counter()
import glob
events = ray.data.read_json(sorted(glob.glob(sys.argv[2])), lines=True).select_columns(["country", "revenue"])
found = events.groupby("country").aggregate(Count(), Sum("revenue")).take_all()
print(time.perf_counter() - started, len(found))
"""

PEERS = {"spark": SPARK, "daft": DAFT, "raydata": RAYDATA}


def processor(pattern: str | None) -> float:
    """Processor time of Ray's processes on this machine: its own, or its workers."""
    seconds = 0.0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            is_worker = command.startswith(b"ray::")
            if (is_worker and pattern == "workers") or (not is_worker and pattern == "ray" and b"/ray/" in command):
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                seconds += (int(fields[11]) + int(fields[12])) / TICKS
        except OSError:
            pass
    return seconds


def timed(words: list[str], environment: dict[str, str], timeout: float) -> tuple[float, float, str]:
    """Time, processor time with that of children, and what it wrote."""
    began = time.perf_counter()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return float("nan"), float("nan"), ""
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        print(f"{words[:3]}: {err[-800:]}", file=sys.stderr)
        return float("nan"), float("nan"), ""
    return seconds, 0.0, out


def median(values: list[float]) -> str:
    known = [value for value in values if value == value]
    return f"{statistics.median(known):.3g}" if known else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sizes", default="1kB,1GB,10GB")
    parser.add_argument("--without", default="")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    binary = os.environ.get("TIDEMILL", "target/release/tidemill")
    peers_python = os.environ.get("PEERS")
    events = sorted((given.folder / "events-10000000000").glob("*.json"))
    if len(events) < 100:
        sys.exit(f"error: no events of 10 GB in `{given.folder}`\nhint: make them with `bench/turbo/prepare.py --kinds events`")
    scratch = Path(tempfile.mkdtemp(prefix="tidemill-cluster-"))
    lines = events[0].open().read(1 << 22).splitlines()[:-1]
    # One without a number would make the column a text.
    first = next(line for line in lines if json.loads(line).get("revenue") is not None)
    (scratch / "small.json").write_text(first + "\n")
    gigabyte = scratch / "gigabyte"
    gigabyte.mkdir()
    for path in events[:10]:
        (gigabyte / path.name).symlink_to(path)
    inputs = {"1kB": f"{scratch}/small.json", "1GB": f"{gigabyte}/*.json", "10GB": f"{given.folder}/events-10000000000/*.json"}
    environment = {**os.environ, "TIDEMILL_PYTHON": sys.executable, "TIDEMILL_HOME": str(scratch / "home")}
    environment.pop("RAY_ADDRESS", None)
    import resource

    rows: list[dict[str, object]] = []

    def note(size: str, way: str, seconds: list[float], within: list[float], own: list[float], rays: list[float]) -> None:
        rows.append(dict(size=size, way=way, s=median(seconds), within=median(within), processor=median(own), ray=median(rays)))
        print(f"  {size} {way}: {median(seconds)} s, {median(own)} s of processor", file=sys.stderr, flush=True)

    def children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    for size in given.sizes.split(","):
        files = inputs[size]
        sql = SQL.format(files=files)
        for path in events if size == "10GB" else events[:10]:
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass
        seconds, own = [], []
        for _ in range(given.rounds):
            before = children()
            seconds.append(timed([binary, "query", sql], environment, given.timeout)[0])
            own.append(children() - before)
        note(size, "local", seconds, [], own, [])
        groups = len(subprocess.run([binary, "query", sql], env=environment, capture_output=True, text=True).stdout.splitlines()) - 1
        seconds = [timed([binary, "query", sql, "--on", "ray"], environment, given.timeout)[0] for _ in range(min(2, given.rounds))]
        note(size, "cold", seconds, [], [], [])
        import ray

        import tidemill as tm
        from tidemill.ray import disconnect

        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": given.workers, "include_dashboard": False})
        ray.init(address=cluster.address, namespace="tidemill", log_to_driver=False, logging_level="error")
        there = {**environment, "RAY_ADDRESS": cluster.address}
        seconds = [timed([binary, "query", sql, "--on", "ray"], there, given.timeout)[0] for _ in range(given.rounds)]
        note(size, "warm", seconds, [], [], [])
        tm.query(sql, on="ray").to_pylist()
        seconds, own, rays = [], [], []
        for _ in range(given.rounds):
            mine = time.process_time()
            workers, others = processor("workers"), processor("ray")
            began = time.perf_counter()
            tm.query(sql, on="ray").to_pylist()
            seconds.append(time.perf_counter() - began)
            own.append(time.process_time() - mine + processor("workers") - workers)
            rays.append(processor("ray") - others)
        note(size, "session", seconds, [], own, rays)
        disconnect()
        ray.shutdown()
        cluster.shutdown()
        for peer, script in PEERS.items():
            if peers_python is None or peer in given.without.split(","):
                continue
            seconds, within = [], []
            for _ in range(given.rounds if size != "10GB" else 1):
                took, _, out = timed([peers_python, "-c", script, str(given.workers), files], environment, given.timeout)
                seconds.append(took)
                within.append(float(out.split()[0]) if out.split() else float("nan"))
                if out.split() and int(out.split()[1]) != groups:
                    print(f"{peer}: {out.split()[1]} groups where {groups} were expected", file=sys.stderr)
            note(size, peer, seconds, within, [], [])
    print(f"`python3 bench/cluster/queries.py FOLDER {' '.join(sys.argv[2:])}`\n")
    print("| input | way | s | of that within | processor s | Ray's |\n| ---: | --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['size']} | {row['way']} | {row['s']} | {row['within']} | {row['processor']} | {row['ray']} |")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
