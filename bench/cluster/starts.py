"""How many tasks a second go through workers of a Ray cluster that is warm.

    python3 bench/cluster/starts.py [--workers 1,2,4] [--tasks 5000] [--json FILE]

The Python is one that has Ray and tidemill. A cluster of so many workers of one core each is started here. A query over
a small file is asked once by way of a recorder, which keeps its job and its task; then that task (a file of one row: a
task that reads next to nothing) is handed in so many times, and it is measured how long it takes until all parts are
back: what a task costs beside its bytes. `alone` is the same without Ray: the tasks one after the other in this
process, in the engine.

`s of processor` is this process's and the workers' user and system time a task; Ray's own processes are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

import tidemill as tm
from tidemill import _tidemill
from tidemill.ray import RayJob, RayWorkers, disconnect

TICKS = os.sysconf("SC_CLK_TCK")


class Recorder:
    """Workers that keep what they are given."""

    def __init__(self, workers: RayJob) -> None:
        self.workers = workers
        self.job: tuple[bytes, Any, Any] | None = None
        self.task: tuple[Any, ...] | None = None

    def reach(self) -> tuple[int, int, int, bool]:
        return self.workers.reach()

    def begin(self, job: bytes, secrets: Any, paths: Any) -> None:
        self.job = (job, secrets, paths)
        self.workers.begin(job, secrets, paths)

    def submit(self, *task: Any) -> None:
        self.task = task
        self.workers.submit(*task)

    def next(self, seconds: float) -> Any:
        return self.workers.next(seconds)

    def end(self) -> None:
        self.workers.end()


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def of_ray() -> float:
    """The processor time of Ray's own processes on this machine."""
    seconds = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
                if b"/ray/" in command and b"ray::" not in command:
                    seconds += processor_seconds(int(folder.name))
            except OSError:
                pass
    return seconds


def recorded(sql: str, workers: RayJob) -> Recorder:
    import tidemill._options as options

    recorder = Recorder(workers)
    on = options.on(None) | {"workers": recorder}
    before, options.on = options.on, lambda *_: on
    try:
        tm.query(sql, on="ray").to_pylist()
    finally:
        options.on = before
    return recorder


def measured(workers: RayWorkers, recorder: Recorder, tasks: int) -> dict[str, float]:
    assert recorder.job is not None and recorder.task is not None
    job = workers.job()
    # The scratch folder that it had is gone by now.
    job.begin(*recorder.job[:2], [])
    _, _, size, name, content = recorder.task
    processes = [os.getpid(), *(process for _, process in workers.places())]

    def run(count: int) -> None:
        handed, done = 0, 0
        ahead = 64 * len(workers.places())
        while done < count:
            while handed < min(count, done + ahead):
                job.submit(handed, 0, size, name, content)
                handed += 1
            if job.next(1.0) is not None:
                done += 1

    run(200)
    own, others = sum(map(processor_seconds, processes)), of_ray()
    began = time.perf_counter()
    run(tasks)
    seconds = time.perf_counter() - began
    own, others = sum(map(processor_seconds, processes)) - own, of_ray() - others
    job.end()
    return {
        "starts_per_s": tasks / seconds,
        "own_us": own / tasks * 1e6,
        "ray_us": others / tasks * 1e6,
    }


def alone(recorder: Recorder, tasks: int) -> dict[str, float]:
    assert recorder.job is not None and recorder.task is not None
    worker = _tidemill.RawWorker(recorder.job[0], 1 << 30, 1, [], {})
    task = recorder.task[4]
    worker.run(task)
    own, began = processor_seconds(os.getpid()), time.perf_counter()
    for _ in range(tasks):
        worker.run(task)
    seconds = time.perf_counter() - began
    own = processor_seconds(os.getpid()) - own
    return {"starts_per_s": tasks / seconds, "own_us": own / tasks * 1e6, "ray_us": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    path = Path(tempfile.mkdtemp(), "one.csv")
    path.write_text("k,x\na,1\n")
    kinds = {
        "a count": f"SELECT count(*) AS n FROM '{path}'",
        "groups": f"SELECT k, count(*) AS n, sum(x) AS x FROM '{path}' GROUP BY k",
        "rows": f"SELECT k, x * 2 AS x FROM '{path}' WHERE x > 0",
    }
    rows = []
    for count in [int(text) for text in arguments.workers.split(",")]:
        ray.init(
            num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level="error"
        )
        workers = RayWorkers("ray", memory=256 << 20)
        # A worker has up to four cores; one each is asked for here.
        for kind, sql in kinds.items():
            recorder = recorded(sql, workers.job())
            if count == 1:
                rows.append({"workers": "alone", "kind": kind, **alone(recorder, arguments.tasks)})
            found = measured(workers, recorder, arguments.tasks)
            rows.append({"workers": len(workers.places()), "kind": kind, **found})
        workers.close()
        disconnect()
        ray.shutdown()
    print(f"`python3 bench/cluster/starts.py {' '.join(sys.argv[1:])}`\n")
    print("| workers | task | starts a second | ours, µs of processor a task | Ray's, µs |")
    print("| ---: | --- | ---: | ---: | ---: |")
    for row in rows:
        print(
            f"| {row['workers']} | {row['kind']} | {row['starts_per_s']:,.0f} | "
            f"{row['own_us']:.0f} | {row['ray_us']:.0f} |"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
