"""Processes of a cluster killed at random moments: the same bytes, or nothing.

    python3 tests/cluster/kills.py [--runs 200] [--seed N] [--tidemill PATH]

Each run asks one of a few queries on a cluster of four machines (processes of this one), while one
of these is killed with SIGKILL at a random moment: a worker's process (`worker`), a machine's
raylet with all that is on it (`machine`), or the program that asked (`driver`). After a worker or a
machine the answer is the one of one machine, byte by byte; after a driver there is no output, or a
whole one, and asking again gives it. The counts are printed; the exit status is 1 where one of it
does not hold.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray.cluster_utils import Cluster

import tidemill as tm
from tidemill.ray import connect, disconnect

STATEMENTS = [
    "SELECT k, count(*) AS n, sum(x) AS x FROM '{files}' GROUP BY k ORDER BY k",
    "SELECT user, count(*) AS n, min(note) AS note FROM '{files}' GROUP BY user",
    "SELECT k, collect(user, 3) AS first, top_k(user, 2) AS top FROM '{files}' GROUP BY k",
    "SELECT k, x FROM '{files}' WHERE user < 400",
]
MEMORY = 80 << 20


def write(folder: pathlib.Path, draw: random.Random) -> str:
    for file in range(8):
        rows = ["k,user,x,note"]
        rows += [
            f"{draw.choice('abcdefgh')},{draw.randrange(20_000)},{draw.random():.6f},"
            + ('"two\nlines, 1,2"' if draw.random() < 0.1 else "one")
            for _ in range(60_000)
        ]
        (folder / f"{file}.csv").write_text("\n".join(rows) + "\n")
    return str(folder / "*.csv")


class Kills:
    def __init__(self, tidemill: str, draw: random.Random) -> None:
        self.tidemill = tidemill
        self.draw = draw
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tidemill-kills-"))
        logs = self.folder / "logs"
        logs.mkdir()
        self.files = write(logs, draw)
        self.here = []
        for number, statement in enumerate(STATEMENTS):
            path = self.folder / f"here-{number}.csv"
            tm.query(statement.format(files=self.files), output=path)
            self.here.append(path.read_bytes())
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": MEMORY,
                "include_dashboard": False,
            },
        )
        self.nodes = [self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in "123"]
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, namespace="tidemill", log_to_driver=False)
        # How long a query takes undisturbed.
        began = time.monotonic()
        self.ask(0)
        self.seconds = time.monotonic() - began
        began = time.monotonic()
        self.ask(1)
        self.seconds = min(self.seconds, time.monotonic() - began)

    def ask(self, number: int) -> bytes:
        path = self.folder / "there.csv"
        sql = STATEMENTS[number].format(files=self.files)
        tm.query(sql, output=path, overwrite=True, on="ray")
        return path.read_bytes()

    def worker(self, number: int) -> str:
        workers = connect("ray", memory=None)
        workers.look()
        process = self.draw.choice(workers.places())[1]
        after = self.draw.uniform(0, 1.2 * self.seconds)
        killer = threading.Timer(after, os.kill, (process, signal.SIGKILL))
        killer.start()
        found = self.ask(number)
        killer.join()
        return "same" if found == self.here[number] else "OTHER BYTES"

    def machine(self, number: int) -> str:
        place = self.draw.randrange(len(self.nodes))
        node = self.nodes[place]
        after = self.draw.uniform(0, 1.2 * self.seconds)
        kill = lambda: self.cluster.remove_node(node, allow_graceful=False)  # noqa: E731
        killer = threading.Timer(after, kill)
        killer.start()
        found = self.ask(number)
        killer.join()
        # The next run has four machines again.
        disconnect()
        self.nodes[place] = self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        self.cluster.wait_for_nodes()
        return "same" if found == self.here[number] else "OTHER BYTES"

    def driver(self, number: int) -> str:
        disconnect()
        path = self.folder / "driven.csv"
        path.unlink(missing_ok=True)
        sql = STATEMENTS[number].format(files=self.files)
        words = [self.tidemill, "query", sql, "--on", "ray", "-o", str(path)]
        environment = {
            **os.environ,
            "RAY_ADDRESS": self.cluster.address,
            "TIDEMILL_PYTHON": sys.executable,
            "TIDEMILL_HOME": str(self.folder / "home"),
        }
        asked = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            asked.wait(self.draw.uniform(0.05, 5.0))
        except subprocess.TimeoutExpired:
            asked.kill()
        status = asked.wait()
        if path.exists():
            if path.read_bytes() != self.here[number]:
                return "IN PART"
            return "whole" if status == 0 else "whole, killed behind it"
        if status == 0:
            return "NO OUTPUT"
        again = subprocess.run(words, env=environment, capture_output=True)
        if again.returncode != 0 or path.read_bytes() != self.here[number]:
            return f"NOT AGAIN: {again.stderr.decode()[-300:]}"
        return "nothing, and again the same"

    def close(self) -> None:
        disconnect()
        ray.shutdown()
        self.cluster.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--tidemill", default="tidemill")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    kills = Kills(arguments.tidemill, random.Random(arguments.seed))
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    kinds = ["worker", "worker", "machine", "driver"]
    for run in range(arguments.runs):
        kind, number = kinds[run % len(kinds)], kills.draw.randrange(len(STATEMENTS))
        try:
            outcome = getattr(kills, kind)(number)
        except Exception as error:
            outcome = f"FAILED: {type(error).__name__}: {error}"
        counts[kind, outcome] += 1
        if outcome[0].isupper():
            print(f"run {run}, {kind}, query {number}: {outcome}", flush=True)
    kills.close()
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{count:5} {kind}: {outcome}")
    return int(any(outcome[0].isupper() for _, outcome in counts))


if __name__ == "__main__":
    sys.exit(main())
