"""How late an answer with a deadline is, with and without inputs that stall.

    TIDEMILL=… python3 bench/turbo/deadlines.py FOLDER [--bytes 10000000000] [--kinds flights,access,events]
        [--deadlines 0.2:1000,1:300,5:100] [--stalls none,lease,program,program-same,server] [--cold] [--json FILE]

FOLDER is what `prepare.py` filled. `0.2:1000` is a thousand runs with a deadline of 0.2 s. Late is the time from before the
process is started to after it was waited for, less the deadline; negative where the answer was there before. The
question is the first of the kind's with few groups, the seed another in each run. Where reading all takes less than the
deadline, a run is early; the share that was read tells.

- `none`: the files as they are.
- `lease`: four of the files are leased by this process, which does not give them back: whoever opens one waits for up to 45 s
  (`/proc/sys/fs/lease-break-time`). It is what a network's file system that hangs looks like. (A FIFO is refused: it is no
  regular file.)
- `program`: the files go through `cat`, and every tenth of them (not the first) through one that sleeps behind its first kilobyte.
- `program-same`: the same with `--layouts same`, in which only the first file, which does not stall, is looked at beforehand; of CSV.
- `server`: an S3 server on the loopback of this machine has the files, and one request in ten for bytes stops behind its
  first kilobyte. Of the files only the first 64: a server in Python is slow.

Beside how late: `missed` answers, more than 200 ms late; `failed` runs, which ended neither with 0 nor with 3, as do those
that are killed when they are 15 s late. After three of them no more are run.
"""

import argparse
import fcntl
import http.server
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import common
from common import INCOMPLETE, median, percentile, table
from questions import FLAGS, PATTERNS, question

QUESTIONS = {"flights": "carriers", "access": "statuses", "events": "countries"}
MISSED_S = 0.2
LEASES = 4
LATE_MAX_S = 15
SERVED_FILES = 64


class Server(http.server.BaseHTTPRequestHandler):
    """As much of S3 as reading takes: one bucket `data`, listed whole, and ranges of objects."""

    protocol_version = "HTTP/1.1"
    files: dict[str, Path] = {}
    released = threading.Event()
    draw = random.Random(1)

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        name = urllib.parse.unquote(url.path).removeprefix("/data").lstrip("/")
        asked = dict(urllib.parse.parse_qsl(url.query))
        if not name:
            prefix = asked.get("prefix", "")
            listed = "".join(
                f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;1&quot;</ETag>"
                f"<Size>{path.stat().st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                for key, path in self.files.items()
                if key.startswith(prefix)
            )
            body = f'<?xml version="1.0"?><ListBucketResult><Name>data</Name><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>'
            return self.answer(200, body.encode(), {"Content-Type": "application/xml"})
        if name not in self.files:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
        size = self.files[name].stat().st_size
        first, last = 0, size - 1
        ranged = self.headers.get("Range")
        if ranged:
            begin, _, end = ranged.removeprefix("bytes=").partition("-")
            first = int(begin) if begin else size - int(end)
            last = min(int(end), size - 1) if begin and end else size - 1
        body = b""
        if self.command == "GET":
            with open(self.files[name], "rb") as file:
                file.seek(first)
                body = file.read(last - first + 1)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        if ranged:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        self.answer(206 if ranged else 200, body, headers, length=last - first + 1, may_stall=bool(ranged))

    def answer(self, status: int, body: bytes, headers: dict, length: int | None = None, may_stall: bool = False) -> None:
        stalls = may_stall and self.draw.random() < 0.1
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[:1024] if stalls else body)
            if stalls:
                self.wfile.flush()
                self.released.wait(60)
                self.close_connection = True
        except OSError:
            self.close_connection = True


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_) -> None:
        pass


class Leases:
    """Write leases on files, which keep others from opening them."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.held: list[int] = []
        # Told that somebody wants to open it, this process does nothing.
        signal.signal(signal.SIGIO, signal.SIG_IGN)

    def take(self) -> None:
        """Anew before each run: one that was broken is gone after 45 s."""
        self.drop()
        for path in self.paths:
            file = os.open(path, os.O_RDWR)
            for _ in range(500):
                try:
                    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                    break
                except BlockingIOError:
                    # Who opened it before has not let it go yet.
                    time.sleep(0.01)
            else:
                sys.exit(f"error: no lease on `{path}`: others have it open")
            self.held.append(file)

    def drop(self) -> None:
        for file in self.held:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            os.close(file)
        self.held = []


def sources(kind: str, stall: str, files: list[Path], scratch: Path, leases: Leases) -> tuple[str, list[str]]:
    """The source's name, and flags."""
    pattern = PATTERNS[kind]
    suffix = Path(pattern).suffix
    if stall == "none":
        return f"{files[0].parent}/{pattern}", []
    if stall == "server":
        Server.files = {path.name: path for path in files[:SERVED_FILES]}
        server = Listener(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "endpoint_url": f"http://127.0.0.1:{server.server_port}", "allow_http": "true",
            "skip_signature": "true", "region": "us-east-1",
        }
        flags = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
        return f"s3://data/{pattern}", flags
    if stall.startswith("program"):
        program = 'case "$TIDEMILL_FILE" in *7.*) head -c 1024; exec sleep 30;; *) exec cat;; esac'
        flags = [word for part in ("sh", "-c", program) for word in ("--source-exec", part)]
        flags += ["--layouts", "same"] if stall == "program-same" else []
        form = [] if kind == "access" else ["--source-format", suffix.removeprefix(".")]
        return f"{files[0].parent}/{pattern}", [*flags, *form]
    folder = scratch / f"{kind}-leased"
    folder.mkdir()
    # Not the first: by it the columns are told.
    leased = {len(files) * (number + 1) // (LEASES + 1) for number in range(LEASES)}
    for number, path in enumerate(files):
        if number in leased:
            shutil.copyfile(path, folder / path.name)
            leases.paths.append(folder / path.name)
        else:
            (folder / path.name).symlink_to(path.resolve())
    return f"{folder}/{pattern}", []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=10_000_000_000)
    parser.add_argument("--kinds", default="flights,access,events")
    parser.add_argument("--deadlines", default="0.2:1000,1:300,5:100")
    parser.add_argument("--stalls", default="none,lease,program,program-same,server")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    binary = common.tidemill()
    print(common.head(["python3", "bench/turbo/deadlines.py", *sys.argv[1:]]) + "\n")
    rows, kept = [], []
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch_name:
        scratch = Path(scratch_name)
        os.environ["TIDEMILL_HOME"] = f"{scratch}/home"
        for kind in given.kinds.split(","):
            files = sorted((given.folder / f"{kind}-{given.bytes}").glob(PATTERNS[kind]))
            if not files:
                sys.exit(f"error: no {kind} of {given.bytes} bytes in `{given.folder}`\nhint: make them with `prepare.py`")
            if not given.cold:
                common.cache(files, False)
            for stall in given.stalls.split(","):
                if stall == "program-same" and kind != "flights":
                    continue  # `layouts` is of CSV.
                leases = Leases()
                source, flags = sources(kind, stall, files, scratch, leases)
                sql = question(kind, QUESTIONS[kind]).sql(f"'{source}'")
                for spec in given.deadlines.split(","):
                    deadline, _, runs = spec.partition(":")
                    late, shares, groups, failed, said = [], [], [], 0, ""
                    for seed in range(int(runs)):
                        if given.cold:
                            common.cache(files, True)
                        leases.take()
                        coverage = scratch / "coverage.json"
                        coverage.unlink(missing_ok=True)
                        command = [binary, "query", sql, "--format", "csv", "--deadline", f"{deadline}s", "--seed", str(seed)]
                        command += ["--coverage", coverage, *FLAGS[kind], *flags]
                        took, status, told = common.timed(command, float(deadline) + LATE_MAX_S, scratch / "answer.csv")
                        late.append(took - float(deadline))
                        if status not in (0, INCOMPLETE):
                            failed, said = failed + 1, told
                            if failed == 3:
                                break
                            continue
                        groups.append(max(0, (scratch / "answer.csv").read_text().count("\n") - 1))
                        sampled = json.loads(coverage.read_text()).get("sampled") or {"share": 1.0}
                        shares.append(sampled["share"])
                    leases.drop()
                    if failed:
                        print(f"{kind} {stall} {deadline} s: {failed} of {len(late)} failed, at last with: {said[-600:]}", file=sys.stderr)
                    times = [f"{1000 * of(late):+.0f}" for of in (median, lambda it: percentile(it, 0.99), max)]
                    missed = sum(one > MISSED_S for one in late)
                    read = f"{100 * median(shares):.3g} %" if shares else ""
                    found = f"{min(groups)}" if groups else ""
                    rows.append([kind, stall, f"{deadline} s", str(len(late)), *times, str(missed), str(failed), read, found])
                    kept.append(dict(kind=kind, stall=stall, deadline_s=float(deadline), late_s=late, shares=shares, failed=failed))
                    common.keep(given.json, kept)
                    print(f"  {kind} {stall} {deadline} s: {times}", file=sys.stderr, flush=True)
    head = ["input", "stalls", "deadline", "runs", "late ms, median", "99 %", "worst", "missed", "failed", "read", "groups at least"]
    print(table(head, rows, 3))


if __name__ == "__main__":
    main()
