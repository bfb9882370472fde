"""A group-by over files on a server shaped like an object store, by each of some binaries in turn.

    python3 bench/prefetch/measure.py FOLDER BINARY… [--rounds 5] [--first-byte-ms 30]
                                      [--connection-mbs 25] [--total-mbs 400]

FOLDER holds `flights.csv` and any number of Parquet files of the same columns, as
`bench/flights` makes them. The server (`shaped.rs`, compiled here with `rustc`) is on
loopback and counts the requests and the bytes that it sends. Binaries take turns within a
round; medians are printed, with the least and the most, peak memory, and what the link
alone needs for the bytes.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent

QUERIES = {
    ".csv": "SELECT origin, count(*) AS n, sum(distance) AS d FROM '{url}' GROUP BY origin ORDER BY origin",
    ".parquet": "SELECT origin, sum(dep_delay) AS late, sum(distance) AS d FROM '{url}' GROUP BY origin ORDER BY origin",
}


def run(binary: str, sql: str, home: str) -> tuple[float, int, bytes]:
    """Seconds, peak resident kilobytes and the answer of one run."""
    environment = {**os.environ, "TIDEMILL_HOME": home}
    began = time.monotonic()
    process = subprocess.Popen(
        [binary, "query", sql, *(["--null", "NA"] if ".csv" in sql else [])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"`{binary}` failed on: {sql}")
    return time.monotonic() - began, usage.ru_maxrss, answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first-byte-ms", type=float, default=30)
    parser.add_argument("--connection-mbs", type=float, default=25)
    parser.add_argument("--total-mbs", type=float, default=400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{scratch}/shaped"
        subprocess.run(["rustc", "--edition", "2024", "-O", "-o", program, HERE / "shaped.rs"], check=True)
        shape = [str(given.first_byte_ms), str(given.connection_mbs), str(given.total_mbs)]
        server = subprocess.Popen([program, given.folder, *shape], stdout=subprocess.PIPE, text=True)
        try:
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            measure(given, url, f"{scratch}/home")
        finally:
            server.kill()


def measure(given: argparse.Namespace, url: str, home: str) -> None:
    def counted() -> tuple[int, int]:
        requests, sent = urllib.request.urlopen(f"{url}/?stats").read().split()
        return int(requests), int(sent)

    for path in sorted(given.folder.iterdir()):
        if path.suffix not in QUERIES:
            continue
        sql = QUERIES[path.suffix].format(url=f"{url}/{path.name}")
        found: dict[str, list] = {binary: [] for binary in given.binaries}
        for number in range(given.rounds + 1):
            for binary in given.binaries:
                counted()
                seconds, peak, answer = run(binary, sql, home)
                # The first round warms up.
                if number > 0:
                    found[binary].append((seconds, peak, *counted(), answer))
        if len({row[-1] for rows in found.values() for row in rows}) != 1:
            raise SystemExit(f"answers differ over {path.name}")
        for binary, rows in found.items():
            seconds = [row[0] for row in rows]
            sent = max(row[3] for row in rows)
            print(
                f"{path.name} {binary}: {statistics.median(seconds):.3f} s "
                f"({min(seconds):.3f} to {max(seconds):.3f}), {max(row[1] for row in rows) / 1000:.0f} MB, "
                f"{max(row[2] for row in rows)} requests, {sent / 1e6:.1f} MB sent, "
                f"link {sent / 1e6 / given.total_mbs:.3f} s"
            )


if __name__ == "__main__":
    main()
