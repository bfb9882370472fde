"""A driver killed in each phase of its commit: nothing of it is seen, or what is seen is finished.

    python3 tests/cluster/commits.py [--tidemill PATH] [--kinds file,files,rows,…,objects-sent]

The program asks a cluster of this machine's processes and writes a file, several, several that
workers write (`rows`), a folder that it converts to, an object of several parts, several objects,
or several that workers send. It is killed with SIGKILL before its
first operation on what it writes, in the next run before its second, and so on to the last
(`watched.py`; of a bucket: before each request, and before each operation on what it keeps in the
state folder).

After each kill: before the manifest has its name there is nothing; behind that, what is there is
whole, and the next run to that place gives the rest. Asked again, the bytes are those of one
machine, and nothing is left. The counts are printed; the exit status is 1 where one of it does not
hold.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "remote"))

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402
from watched import Watched, is_there  # noqa: E402

from faulty import Proxy, Stall  # noqa: E402

FEW = "SELECT k, count(*) AS n, sum(x) AS x FROM '{logs}/*.csv' GROUP BY k"
MANY = "SELECT k, x, note FROM '{logs}/*.csv'"

#: For each kind of output the words behind the program's name, without `--on`.
KINDS = {
    "file": ("query", FEW, "-o", "{out}/groups.csv"),
    "files": ("query", FEW, "-o", "{out}/{{k}}/groups.csv"),
    "rows": ("query", MANY, "-o", "{out}/{{k}}/rows.csv"),
    "folder": ("convert", "{logs}/*.csv", "{out}/", "--format", "json"),
    "object": ("query", MANY, "-o", "s3://out/deep/rows.csv"),
    "objects": ("query", MANY + " WHERE k < 'c' OR x < 2", "-o", "s3://out/{{k}}.csv"),
    "objects-sent": ("query", MANY, "-o", "s3://out/{{k}}.csv"),
}

#: Those that workers write, however few rows there are.
BY_WORKERS = ("rows", "objects-sent")
BUCKET = "out"

#: What is said while a cluster still ends the workers of a driver that was killed.
NO_CORE = "no core of the cluster is free"


def write(folder: pathlib.Path) -> None:
    """Write what is read: some 15 MB, so that rows are an object of two parts."""
    folder.mkdir()
    for file in range(5):
        rows = (
            f"{'abcdefgh'[row % 8]},{row % 977},{'a note of some length ' * 3}"
            for row in range(40_000)
        )
        (folder / f"{file}.csv").write_text("k,x,note\n" + "\n".join(rows) + "\n")


class Commits:
    """Runs that are killed."""

    def __init__(self, tidemill: str, address: str, folder: pathlib.Path) -> None:
        self.tidemill = tidemill
        self.folder = folder
        self.out = folder / "out"
        self.home = folder / "home"
        self.logs = folder / "logs"
        write(self.logs)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.proxy = Proxy("http://{}:{}".format(*self.server.get_host_and_port()))
        self.proxy.__enter__()
        self.s3: Any = boto3.client(
            "s3",
            endpoint_url=f"http://{self.proxy.upstream}",
            aws_access_key_id="key-id",
            aws_secret_access_key="hush-hush",
            region_name="us-east-1",
        )
        self.s3.create_bucket(Bucket=BUCKET)
        self.environment = {
            **os.environ,
            "RAY_ADDRESS": address,
            "TIDEMILL_PYTHON": sys.executable,
            "TIDEMILL_HOME": str(self.home),
            "TIDEMILL_JOB_LOG": "off",
            "AWS_ACCESS_KEY_ID": "key-id",
            "AWS_SECRET_ACCESS_KEY": "hush-hush",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
        }
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def close(self) -> None:
        """End the servers."""
        self.proxy.__exit__(None, None, None)
        self.server.stop()

    def words(self, kind: str, on: str | None = "ray", is_over: bool = True) -> list[str]:
        """The program's words."""
        words = [word.format(logs=self.logs, out=self.out) for word in KINDS[kind]]
        words += ["--overwrite"] if is_over else []
        if on is not None and kind in BY_WORKERS:
            words += ["--scratch", str(self.folder / "scratch"), "--scratch-above", "0"]
        return [self.tidemill, *words, *([] if on is None else ["--on", on])]

    def run(self, words: list[str]) -> None:
        """Have a run that is not killed."""
        while True:
            done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
            if NO_CORE not in done.stderr:
                break
        assert done.returncode == 0, done.stderr

    def seen(self, kind: str) -> dict[str, bytes]:
        """What is there under its name."""
        if not kind.startswith("object"):
            files = (path for path in self.out.rglob("*") if path.is_file())
            below = ((str(path.relative_to(self.out)), path) for path in files)
            return {name: path.read_bytes() for name, path in below if ".tidemill-" not in name}
        found = self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        read = lambda key: self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()  # noqa: E731
        return {item["Key"]: read(item["Key"]) for item in found}

    def left(self, kind: str) -> list[str]:
        """What is there of runs that should have gone."""
        if not kind.startswith("object"):
            return [path.name for path in self.out.rglob(".tidemill-*")]
        uploads = self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        kept = self.home / "uploads"
        names = [path.name for path in kept.iterdir()] if kept.exists() else []
        return [*(upload["Key"] for upload in uploads), *names]

    def clear(self, kind: str) -> None:
        """Have nothing there."""
        shutil.rmtree(self.out, ignore_errors=True)
        if kind.startswith("object"):
            for key in self.seen(kind):
                self.s3.delete_object(Bucket=BUCKET, Key=key)

    def next_run(self, kind: str) -> None:
        """Have another run write to the same place, and take away what it wrote."""
        url = f"s3://{BUCKET}/zz.csv" if kind.startswith("object") else f"{self.out}/zz.csv"
        self.run([self.tidemill, "query", "SELECT 1 AS one", "-o", url])
        if kind.startswith("object"):
            self.s3.delete_object(Bucket=BUCKET, Key="zz.csv")
        else:
            (self.out / "zz.csv").unlink()

    def here(self, kind: str) -> dict[str, bytes]:
        """What one machine writes."""
        self.clear(kind)
        self.run(self.words(kind, on=None))
        found = self.seen(kind)
        self.clear(kind)
        return found

    def killed(
        self,
        kind: str,
        here: dict[str, bytes],
        *,
        operation: int | Callable[[str, str], bool] | None = None,
        request: int | Callable[[Any], bool] | None = None,
        is_again: bool = True,
    ) -> tuple[str, str] | None:
        """Kill a run there; say at what, and what came of it. None where it has ended before."""
        self.clear(kind)
        log = self.folder / "log"
        # It is killed before the server has the request.
        killed: list[str] = []
        counted = [0]
        started: list[Watched] = []

        def rule(asked: Any) -> Stall | None:
            counted[0] += 1
            is_it = request(asked) if callable(request) else counted[0] - 1 == request
            if request is None or killed or not is_it:
                return Stall() if killed else None
            killed.append(f"{asked.method} {', '.join(asked.query) or 'an object'}")
            started[0].process.kill()
            return Stall()

        # Nothing is asked before workers are there.
        self.proxy.rules = [rule]
        folders = [self.out] if not kind.startswith("object") else [self.home / "uploads"]
        started.append(
            Watched(
                self.words(kind, is_over=False),
                folders,
                environment=self.environment,
                kill_at=operation,
                log=log,
            )
        )
        status = started[0].wait()
        self.proxy.rules = []
        if started[0].was_killed:
            name, path = started[0].operations[-1]
            killed.append(f"{name} {_phase(path)}")
        if not killed:
            said = log.read_text()
            if NO_CORE in said:
                # Of the one before it they are not free yet.
                return self.killed(
                    kind, here, operation=operation, request=request, is_again=is_again
                )
            assert status == 0, said
            return None
        return killed[0], self.judged(kind, here, started[0].operations, is_again)

    def judged(
        self, kind: str, here: dict[str, bytes], done: list[tuple[str, str]], is_again: bool
    ) -> str:
        """What came of a run that was killed before the last of these."""
        renames = ("rename", "renameat", "renameat2")
        before = done[:-1] if not kind.startswith("object") else done
        is_committed = any(n in renames and p.endswith("manifest.tmp") for n, p in before)
        first = self.seen(kind)
        if any(here.get(name) != content for name, content in first.items()):
            return f"IN PART: {list(first)}"
        if first and not is_committed:
            return f"SEEN BEFORE IT WAS COMMITTED: {list(first)}"
        self.next_run(kind)
        then = self.seen(kind)
        if then not in ({}, here):
            return f"NOT FINISHED: {list(then)} of {list(here)}"
        if first and not then:
            return "TAKEN AWAY"
        if left := self.left(kind):
            return f"LEFT: {left}"
        if is_again:
            self.run(self.words(kind))
            if self.seen(kind) != here:
                return f"NOT AGAIN: {list(self.seen(kind))}"
        if not then:
            return "nothing"
        return "whole" if first == here else "finished by the next run"

    def phases(self, kind: str) -> Iterator[tuple[str, str]]:
        """Kill a run before each of its operations and requests."""
        here = self.here(kind)
        ways = ["operation", "request"] if kind.startswith("object") else ["operation"]
        for way in ways:
            number = 0
            while (found := self.killed(kind, here, **{way: number})) is not None:
                yield found
                number += 1
        self.clear(kind)


def _phase(path: str) -> str:
    """What an operation is on, in words that do not depend on the run."""
    name = pathlib.PurePath(path).name
    if name.startswith(".tidemill-") or pathlib.PurePath(path).parent.name == "uploads":
        return "the staging folder"
    return "a staged file" if name.isdigit() or name.startswith("part-") else name


def main() -> int:
    """Run as the flags say."""
    from same import start

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidemill", default="tidemill")
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    if not is_there():
        print("this machine does not tell of a process's calls (seccomp's user_notif)")
        return 0
    import ray

    tidemill = shutil.which(arguments.tidemill) or arguments.tidemill
    with tempfile.TemporaryDirectory(prefix="tidemill-commits-") as folder:
        stop = start(3)
        address = ray.get_runtime_context().gcs_address
        commits = Commits(tidemill, address, pathlib.Path(folder))
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        try:
            for kind in arguments.kinds.split(","):
                for at, outcome in commits.phases(kind):
                    print(f"{kind}, killed before {at}: {outcome}", flush=True)
                    counts[kind, outcome.partition(":")[0]] += 1
        finally:
            commits.close()
            stop()
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{count:5} {kind}: {outcome}")
    return int(any(outcome[0].isupper() for _, outcome in counts))


if __name__ == "__main__":
    sys.exit(main())
