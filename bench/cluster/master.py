"""What a master costs: a query of 1 kB from prompt to prompt, several at once, and tasks a second.

    TIDEMILL=target/release/tidemill python3 bench/cluster/master.py [--workers 2] [--rounds 50] [--json FILE]

The Python is one that has Ray and tidemill. A cluster of so many workers of one core each is started here, and `tidemill
cluster up` on it. Times of queries are the whole process's, `tidemill query … --on master`, beside those of the same query
without a cluster. Tasks a second are what `starts.py` measures, by an actor that holds the workers, as a master does.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

PROGRAM = os.environ.get("TIDEMILL", "target/release/tidemill")


class Starts:
    """Holds workers, and measures how many tasks a second go through them."""

    def measured(self, sql: str, tasks: int) -> dict[str, float]:
        sys.path.insert(0, str(Path(__file__).parent))
        import starts

        from tidemill.ray import RayWorkers

        workers = RayWorkers("ray", memory=256 << 20)
        try:
            return starts.measured(workers, starts.recorded(sql, workers.job()), tasks)
        finally:
            workers.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    path = folder / "small.csv"
    path.write_text("k,x\n" + "".join(f"{row % 7},{row}\n" for row in range(170)))
    sql = f"SELECT k, count(*) AS n, sum(x) AS x FROM '{path}' GROUP BY k ORDER BY k"
    ray.init(
        num_cpus=arguments.workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    rows: list[tuple[str, str]] = []
    figures: dict[str, Any] = {"workers": arguments.workers}
    starts = ray.remote(num_cpus=0)(Starts).remote()
    one = folder / "one.csv"
    one.write_text("k,x\na,1\n")
    for kind, statement in [
        ("a count", f"SELECT count(*) AS n FROM '{one}'"),
        ("groups", f"SELECT k, count(*) AS n, sum(x) AS x FROM '{one}' GROUP BY k"),
        ("rows", f"SELECT k, x * 2 AS x FROM '{one}' WHERE x > 0"),
    ]:
        found = ray.get(starts.measured.remote(statement, arguments.tasks))
        figures[f"starts_per_s {kind}"] = found["starts_per_s"]
        rows.append((f"task starts a second, {kind}", f"{found['starts_per_s']:,.0f}"))
    ray.kill(starts)
    environment = {
        **os.environ,
        "TIDEMILL_HOME": str(folder / "home"),
        "TIDEMILL_PYTHON": sys.executable,
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
    }

    def run(*words: str) -> float:
        began = time.perf_counter()
        subprocess.run([PROGRAM, *words], check=True, capture_output=True, env=environment)
        return time.perf_counter() - began

    up = run("cluster", "up", "--allow-paths", str(folder))
    rows.append(("`tidemill cluster up`", f"{up:.1f} s"))
    try:
        for kind, words in [("through the master", ("--on", "master")), ("one process", ())]:
            run("query", sql, *words)
            times = sorted(run("query", sql, *words) for _ in range(arguments.rounds))
            middle, most = statistics.median(times), times[int(len(times) * 0.95)]
            figures[f"prompt_ms {kind}"] = [time * 1e3 for time in times]
            rows.append(
                (f"1 kB from prompt to prompt, {kind}", f"{middle * 1e3:.0f} ms; 95 % within {most * 1e3:.0f}")
            )
        with ThreadPoolExecutor(arguments.clients) as pool:
            began = time.perf_counter()
            count = arguments.rounds * arguments.clients
            list(pool.map(lambda _: run("query", sql, "--on", "master"), range(count)))
            rate = count / (time.perf_counter() - began)
        figures["queries_per_s"] = rate
        rows.append((f"queries a second, {arguments.clients} clients at once", f"{rate:.0f}"))
    finally:
        run("cluster", "down")
        ray.shutdown()
    print(f"`python3 bench/cluster/master.py {' '.join(sys.argv[1:])}`\n")
    print(f"| {arguments.workers} workers | |\n| --- | ---: |")
    for name, value in rows:
        print(f"| {name} | {value} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
