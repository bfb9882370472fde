"""How many bytes pass the driver and the head of a Ray cluster for each gigabyte that is read.

    python3 bench/cluster/bytes.py [--without 336] [--folder FOLDER] [--json FILE]

The Python is one that has Ray and tidemill. A cluster is started here: a head without cores, and four raylets of one core
each, which have all workers; this process is the driver, at the head. Asked is, of JSON lines of some 250 bytes:

- `40 groups`, a count and a sum, of 1 GB in 32 files, as a cluster of four threads cuts it;
- the same of 3.4 and 336 GB, which are 100 and 10,000 files of 32 MiB: links to the same ones. The engine cuts some eight
  tasks for each thread of a cluster, so it is told of 13 threads and of 1,600, which leave each file a task of its own;
- the same of 1 GB in 10,000 files, which are put together to as many splits as before;
- `5.9 million groups` of 1 GB: tables that pass the driver, and tables that go through a scratch folder;
- `all rows` of 1 GB, to a CSV file for each of 40 countries and to one file: by the driver, and by workers.

`job`, `tasks` and `parts` are what the package hands to Ray and is given back: the job's description (put into the
store, once a query), the tasks (arguments of calls) and what comes of them. `driver`, `raylet` and `head` are what the
kernel counts of the connections of this process, of the head's raylet and of its control service (GCS), in and out
together, while the query runs: Ray's own messages with it, of which there are some while nothing runs as well (`idle`,
bytes a second). Tables of more than 100 kB come by way of the raylet, others in the answer to a call.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.cluster_utils import Cluster

import tidemill as tm
import tidemill._options as options
from tidemill.ray import RayJob, connect, disconnect

FILE_BYTES = 32 << 20
FILES = 32
FEW = "SELECT country, count(*) AS n, sum(revenue) AS revenue FROM '{files}' GROUP BY country"
ROWS = "SELECT * FROM '{files}'"
MANY = "SELECT visit, count(*) AS n, sum(revenue) AS revenue FROM '{files}' GROUP BY visit"


class Counted:
    """Workers that count what goes to them and comes back."""

    def __init__(self, workers: RayJob, threads: int | None) -> None:
        self.workers = workers
        self.threads = threads
        self.job = self.tasks = self.task_bytes = self.part_bytes = 0

    def reach(self) -> tuple[int, int, int, bool]:
        machines, workers, threads, is_here = self.workers.reach()
        return machines, workers, self.threads or threads, is_here

    def begin(self, job: bytes, secrets: Any, *more: Any) -> None:
        self.job += len(job) + sum(len(name) + len(value) for name, value in secrets.items())
        self.workers.begin(job, secrets, *more)

    def submit(self, number: int, attempt: int, size: int, name: str, content: bytes) -> None:
        self.tasks += 1
        self.task_bytes += len(content) + len(name)
        self.workers.submit(number, attempt, size, name, content)

    def next(self, seconds: float) -> Any:
        done = self.workers.next(seconds)
        if done is not None and done[2] is not None:
            self.part_bytes += len(done[2])
        return done

    def end(self) -> None:
        self.workers.end()


class Connections:
    """What the kernel counts of processes' connections, looked at twice a second."""

    def __init__(self, processes: dict[int, str]) -> None:
        self.processes = processes
        self.seen: dict[tuple[str, str, str], int] = {}
        self.is_over = threading.Event()

    def look(self) -> None:
        told = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
        lines = told.splitlines()
        for ends, counts in zip(lines[::2], lines[1::2], strict=False):
            process = re.search(r"pid=(\d+)", ends)
            name = process and self.processes.get(int(process[1]))
            if not name:
                continue
            here, there = ends.split()[3:5]
            found = re.findall(r"bytes_(?:acked|received):(\d+)", counts)
            self.seen[name, here, there] = sum(map(int, found))

    def __enter__(self) -> Connections:
        self.look()
        self.before = dict(self.seen)
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.is_over.wait(0.5):
            self.look()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()
        self.look()
        self.sums: dict[str, int] = defaultdict(int)
        for (name, *ends), count in self.seen.items():
            self.sums[name] += count - self.before.get((name, *ends), 0)


def processes(cluster: Cluster) -> dict[int, str]:
    """This process and the head's."""
    found = {os.getpid(): "driver"}
    for kind, infos in cluster.head_node.all_processes.items():
        for info in infos:
            if "raylet" in kind:
                found[info.process.pid] = "raylet"
            elif "gcs" in kind:
                found[info.process.pid] = "head"
    return found


def prepare(folder: Path) -> None:
    """Write 1 GB of JSON lines, if it is not there, and what is made of it."""
    few = folder / "events"
    few.mkdir(parents=True, exist_ok=True)
    chance = random.Random(5)
    countries = [f"country {number}" for number in range(40)]
    for number in range(FILES):
        path = few / f"{number:02}.json"
        if path.exists():
            continue
        with path.with_suffix(".new").open("w") as out:
            size = 0
            for row in range(1 << 20):
                visit = number << 20 | row
                size += out.write(
                    f'{{"ts":"2026-11-{1 + row % 28:02}T{row % 24:02}:00:00Z","visit":"v{visit * 2654435761 % (1 << 32):010}",'
                    f'"country":"{countries[chance.randrange(40)]}","revenue":{chance.randrange(10**6) / 100},'
                    f'"page":"/product/{row % 977}","agent":"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101"}}\n'
                )
                if size > FILE_BYTES - 300:
                    break
        path.with_suffix(".new").rename(path)
    for tasks in (100, 10_000):
        links = folder / f"linked-{tasks}"
        if not links.exists():
            links.mkdir()
            for number in range(tasks):
                os.link(few / f"{number % FILES:02}.json", links / f"{number:05}.json")
    small = folder / "small"
    if not small.exists():
        small.mkdir()
        lines = (line for path in sorted(few.glob("*.json")) for line in path.open())
        for number in range(10_000):
            size, text = 0, []
            while size < 100_000 and (line := next(lines, None)):
                text.append(line)
                size += len(line)
            (small / f"{number:05}.json").write_text("".join(text))


def asked(
    sql: str, files: Path, named: dict[int, str], threads: int | None, to: str = "out.csv", **more: Any
) -> dict[str, Any]:
    """Ask, and count."""
    counted = Counted(connect("ray", memory=None).job(), threads)
    usual = options.on
    given = usual(None) | {"workers": counted} | {name: str(value) for name, value in more.items()}
    options.on = lambda *_: given  # type: ignore[assignment]
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder, Connections(named) as connections:
            written = tm.query(sql.format(files=f"{files}/*.json"), on="ray", output=f"{folder}/{to}", progress=False)
            seconds = time.monotonic() - began
    finally:
        options.on = usual
    gigabytes = written.coverage["bytes"]["done"] / 1e9
    return {
        "gigabytes": gigabytes,
        "tasks": counted.tasks,
        "job": counted.job,
        "task_bytes": counted.task_bytes,
        "part_bytes": counted.part_bytes,
        "a_gigabyte": (counted.job + counted.task_bytes + counted.part_bytes) / gigabytes,
        "seconds": seconds,
        **{name: connections.sums[name] for name in ("driver", "raylet", "head")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="the input, kept; default: one that is removed")
    parser.add_argument("--without", default="", help="rows of the table by their words, comma between")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    place = tempfile.TemporaryDirectory(prefix="tidemill-bytes-")
    folder = given.folder or Path(place.name)
    prepare(folder)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(4):
        cluster.add_node(num_cpus=1, object_store_memory=256 << 20)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, namespace="tidemill", log_to_driver=False, logging_level="error")
    named = processes(cluster)
    # Workers start, and connections are there.
    tm.query(FEW.format(files=f"{folder}/events/00.json"), on="ray", progress=False).to_pylist()
    with Connections(named) as idle:
        time.sleep(10)
    scratch = folder / "scratch"
    ways: dict[str, tuple[str, Path, int | None, dict[str, Any]]] = {
        "40 groups": (FEW, folder / "events", None, {}),
        "40 groups, 100 tasks": (FEW, folder / "linked-100", 13, {}),
        "40 groups, 336 GB": (FEW, folder / "linked-10000", 1600, {}),
        "40 groups, 10,000 files": (FEW, folder / "small", None, {}),
        "5.9 million groups, by the driver": (MANY, folder / "events", None, {"scratch_above": 1 << 40}),
        "5.9 million groups, scratch": (MANY, folder / "events", None, {"scratch": scratch}),
        "all rows to 40 files, by the driver": (
            ROWS,
            folder / "events",
            None,
            {"scratch_above": 1 << 40, "to": "{country}.csv"},
        ),
        "all rows to 40 files": (ROWS, folder / "events", None, {"scratch": scratch, "to": "{country}.csv"}),
        "all rows to one file": (ROWS, folder / "events", None, {"scratch": scratch}),
    }
    left_out = [word for word in given.without.split(",") if word]
    rows = []
    for name, (sql, files, threads, more) in ways.items():
        if any(word in name for word in left_out):
            continue
        rows.append({"way": name, **asked(sql, files, named, threads, **more)})
        print(rows[-1], file=sys.stderr, flush=True)
    disconnect()
    ray.shutdown()
    cluster.shutdown()
    place.cleanup()
    kilobytes = lambda count: f"{count / 1000:,.1f}"  # noqa: E731
    print(f"`python3 bench/cluster/bytes.py {' '.join(sys.argv[1:])}`; in kB, `idle` in bytes a second\n")
    print("| | GB | tasks | job | tasks | parts | together a GB | driver | raylet | head | of them a GB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        sockets = [row["driver"], row["raylet"], row["head"]]
        print(
            f"| {row['way']} | {row['gigabytes']:.3g} | {row['tasks']:,} | "
            + " | ".join(kilobytes(row[key]) for key in ("job", "task_bytes", "part_bytes", "a_gigabyte"))
            + f" | {' | '.join(map(kilobytes, sockets))} | {kilobytes(sum(sockets) / row['gigabytes'])} |"
        )
    a_second = [f"{idle.sums[name] / 10:,.0f}" for name in ("driver", "raylet", "head")]
    print(f"| idle, a second | | | | | | | {' | '.join(a_second)} | |")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
