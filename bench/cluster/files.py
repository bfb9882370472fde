"""How a file that programs find by name comes to all workers of a Ray cluster.

    python3 bench/cluster/files.py [--machines 4] [--workers 8] [--megabytes 100] [--json FILE]

The Python is one that has Ray and tidemill. A cluster of so many raylets is started here, each with a store of its own
and so many worker processes of one core. A web server of this process has the file, and counts how often it is asked
for and how many bytes it sends.

- `a job`: from the call to its answer; a program of each task reads the file that it finds. Once with a session that
  has not seen the file, once more, and once with a program that reads nothing, which is what the tasks themselves take.
- `to the last worker`: the file alone, once it has been fetched: from its first byte read to the last worker that
  knows where it is. As it is, and for comparison with all machines asking for pieces in one order, with one object in
  the place of pieces, with a file that all have, and with each worker fetching it from the server itself.

`sent` is what the raylet of the driver's machine sent to others, in times the file, and `others` what the others sent,
as the kernel counts it for their connections. The rows of what is joined are a part of the job's description, which is one
object and goes as such.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.cluster_utils import Cluster

import tidemill as tm
from tidemill.ray import _files, _workers, connect, disconnect

MIB = 1 << 20


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A web server with one file, which counts what it sends."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.sent = 0
        self.asked = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers ranges of the file."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        content = self.server.content
        start, end, status = 0, len(content), 200
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found:
            start, status = int(found[1]), 206
            end = min(end, int(found[2]) + 1) if found[2] else end
        self.send_response(status)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        if found:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.end_headers()
        with self.server.lock:
            self.server.asked += 1
            self.server.sent += end - start
        self.wfile.write(memoryview(content)[start:end])

    def log_message(self, *_: object) -> None:
        pass


def raylets(cluster: Cluster) -> list[int]:
    """The processes of the machines, the driver's first."""
    nodes = cluster.list_all_nodes()
    nodes.sort(key=lambda node: not node.head)
    return [node.all_processes["raylet"][0].process.pid for node in nodes]


def sent(processes: list[int]) -> list[int]:
    """What each process has sent by its connections."""
    text = subprocess.run(["ss", "-tinpH"], check=True, capture_output=True, text=True).stdout
    bytes_of = dict.fromkeys(processes, 0)
    process = None
    for line in text.splitlines():
        if not line.startswith(("\t", " ")):
            found = re.search(r"pid=(\d+)", line)
            process = int(found[1]) if found else None
        elif process in bytes_of:
            found = re.search(r"bytes_acked:(\d+)", line)
            bytes_of[process] += int(found[1]) if found else 0
    return [bytes_of[process] for process in processes]


def keep(worker: Any, file: _files.SharedFile, piece_bytes: int, one_order: bool) -> None:
    """Have a worker find a file, put together if no other of its machine has."""
    before = _files.PIECE_BYTES, _files._order
    _files.PIECE_BYTES = piece_bytes
    if one_order:
        _files._order = lambda _, file: list(range(len(file.pieces)))
    try:
        worker._path(file)
    finally:
        _files.PIECE_BYTES, _files._order = before


def fetch(worker: Any, url: str) -> None:
    """Have a worker fetch the file by itself."""
    with urllib.request.urlopen(url) as answer, tempfile.TemporaryFile() as out:
        while piece := answer.read(MIB):
            out.write(piece)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--json")
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    count = options.machines * options.workers

    # A process for each core, of whom none is gone without because the machine is slow.
    _workers._CORES = 1
    _workers._START_SECONDS = 600.0
    _workers._OTHERS_SECONDS = 600.0
    store = max(2 * size, 300 * MIB)
    node = {"num_cpus": options.workers, "object_store_memory": store}
    cluster = Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False}
    )
    for _ in range(options.machines - 1):
        cluster.add_node(**node)
    cluster.wait_for_nodes()
    ray.init(
        address=cluster.address, namespace="tidemill", log_to_driver=False, logging_level="error"
    )
    figures: dict[str, Any] = {"machines": options.machines, "workers": count, "bytes": size}
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        content = os.urandom(size)
        server = Server(content)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/ip_geo.dat"
        for file in range(2 * count):
            Path(folder, f"{file}.txt").write_text("line\n" * 10)
        workers = connect("ray", memory=256 * MIB)
        assert len(workers._actors) == count, len(workers._actors)

        def job(script: str, files: list[str]) -> dict[str, Any]:
            return {
                "files": files,
                "source": {"url": f"{folder}/*.txt", "exec": ["sh", "-c", script]},
                "tables": {"by": "line", "n": "count()"},
            }

        def run(script: str, files: list[str]) -> float:
            began = time.monotonic()
            answer = tm.run(job(script, files), on="ray", memory=256 * MIB).to_pylist()
            assert answer == [{"line": "line", "n": 20 * count}], answer
            return time.monotonic() - began

        with_file = f"test $(wc -c < ip_geo.dat) = {size} && cat"
        small = Path(folder, "small.dat")
        small.write_text("small")
        run("cat", [str(small)])
        figures["empty_seconds"] = run("cat", [str(small)])
        figures["first_seconds"] = run(with_file, [url])
        figures["asked"], figures["read_times"] = server.asked, server.sent / size
        written = ray.get([actor.written.remote() for actor in workers._actors])
        figures["written"] = sum(len(own) for own in written) - options.machines
        figures["again_seconds"] = run(with_file, [url])
        rows += [
            ("a job whose program reads nothing", f"{figures['empty_seconds']:.2f}", "", "", ""),
            (
                "a job whose program reads the file",
                f"{figures['first_seconds']:.2f}",
                f"{figures['read_times']:.2f}",
                "",
                "",
            ),
            ("again, in the same session", f"{figures['again_seconds']:.2f}", "", "", ""),
        ]

        path = Path(folder, "ip_geo.dat")
        processes = raylets(cluster)

        pieces = _files.PIECE_BYTES

        def handed(name: str, piece_bytes: int = pieces, one_order: bool = False) -> None:
            """To the last worker, of a file that nobody has."""
            path.write_bytes(os.urandom(size))
            os.sync()
            _files.PIECE_BYTES = piece_bytes
            handed_to(name, one_order)
            _files.PIECE_BYTES = pieces

        def handed_to(name: str, one_order: bool = False) -> None:
            before = sent(processes)
            began = time.monotonic()
            found = path.stat()
            file = ("ip_geo.dat", str(path), path.name, found.st_size, found.st_mtime_ns, False)
            [shared] = workers.shelf.put([file])
            put = time.monotonic() - began
            asked = (keep, shared, _files.PIECE_BYTES, one_order)
            ray.get([actor.__ray_call__.remote(*asked) for actor in workers._actors])
            took = time.monotonic() - began
            after = sent(processes)
            moved = [(now - then) / size for now, then in zip(after, before, strict=True)]
            figures[name] = {"seconds": took, "put_seconds": put, "sent": moved}
            rows.append(
                (
                    name,
                    f"{took:.2f}",
                    "1.00",
                    f"{moved[0]:.2f}",
                    " ".join(f"{one:.2f}" for one in moved[1:]),
                )
            )

        handed("to the last worker, in pieces")
        handed_to("the same once all machines have it")
        handed("in pieces, all machines in one order", one_order=True)
        handed("as one object", piece_bytes=size)
        before = server.sent
        began = time.monotonic()
        ray.get([actor.__ray_call__.remote(fetch, url) for actor in workers._actors])
        figures["fetch_seconds"] = time.monotonic() - began
        figures["fetch_times"] = (server.sent - before) / size
        rows.append(
            (
                "each worker fetches it itself",
                f"{figures['fetch_seconds']:.2f}",
                f"{figures['fetch_times']:.2f}",
                "",
                "",
            )
        )
        disconnect()
    ray.shutdown()
    cluster.shutdown()
    print(f"{' '.join(sys.argv)}\n")
    print("| | s | source read, times | sent by the driver's machine, times | by the others |")
    print("| --- | --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
