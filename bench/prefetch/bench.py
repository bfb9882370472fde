"""Objects of a bucket, read from a server that is shaped like an object store.

- `sequential`: one object from its beginning to its end, as fast as it comes; `paced`: by a consumer of 100 MB/s.
- `random`: two thousand reads of 64 KiB; `small`: a thousand objects of 10 kB.
- `group-by`: a group-by over CSV; `columns`: three of forty columns of Parquet; `q1`, `q6`: TPC-H's.

The formats are the shapes: `25-400` is 25 MB/s a connection and 400 MB/s in all, `90-1000` accordingly, both 30 ms to
the first byte; `loopback` is neither late nor slow. The server is `shaped.rs`, compiled here; it counts requests and
bytes, which the tables have beside time and memory. It takes processor time of the same machine.
"""

import contextlib
import functools
import json
import os
import statistics
import subprocess
import urllib.request
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "prefetch"
BUCKET = "bench"

SHAPES = {"25-400": (30, 25, 400), "90-1000": (30, 90, 1000), "loopback": (0, 1e6, 1e6)}
RANDOM_READS, SMALL_OBJECTS, SMALL_BYTES = 2000, 1000, 10_000
# Of which one connection is all that they have: at 25 MB/s two gigabytes take 80 seconds.
PYTHON_READERS = ["synchronous", "boto3", "boto3-download", "s3fs", "pyarrow", "obstore", "obstore-stream"]
PARQUET_ENGINES = ["pyarrow", "pyarrow-pre-buffer", "polars", "duckdb"]
# With as little ahead as there may be: a megabyte, in pieces of 64 KiB.
PLAIN = ["--read-memory", "1M", "--read-block", "64K", "--read-window", "64K"]


class Server:
    """The shaped server over the cache's folder, and what it has counted."""

    def __init__(self, program: Path, folder: Path, shape: tuple):
        words = [program, folder, *shape]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        self.endpoint = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    def counted(self) -> tuple[int, int]:
        """Requests and bytes since the last time."""
        requests, sent = urllib.request.urlopen(f"{self.endpoint}/?stats").read().split()
        return int(requests), int(sent)


def environment(endpoint: str) -> list:
    """What has the command line read from the server."""
    names = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
    }
    return ["env", *(f"{name}={value}" for name, value in names.items())]


# ------------------------------------------------------------------------------------ data


def prepare(settings: Settings) -> Path:
    """The folder whose folder `bench` is the bucket: a file of 200 bytes a row of `--rows`, Parquet, small objects, CSV."""
    folder = settings.cache / f"prefetch-{settings.rows}"
    bucket = folder / BUCKET
    (bucket / "small").mkdir(parents=True, exist_ok=True)
    large = bucket / "large.bin"
    if not large.exists():
        say(f"making objects of {settings.rows * 200 / 1e9:.1f} GB in `{folder}` ...")
        partial = large.with_suffix(".tmp")
        with open(partial, "wb") as out:
            left = settings.rows * 200
            while left > 0:
                left -= out.write(os.urandom(min(1 << 24, left)))
        partial.rename(large)
    for number in range(SMALL_OBJECTS):
        path = bucket / "small" / f"{number:04}.bin"
        if not path.exists():
            path.write_bytes(os.urandom(SMALL_BYTES))
    columns = bucket / "columns.parquet"
    if not columns.exists():
        say("making a Parquet file of forty columns ...")
        partial = columns.with_suffix(".tmp")
        command = [harness.peers_python(HERE), HERE / "prepare.py", settings.rows // 2, partial]
        subprocess.run([str(word) for word in command], check=True)
        partial.rename(columns)
    lines = bucket / "lines.csv"
    if not lines.exists():
        say("making a CSV file ...")
        partial = lines.with_suffix(".tmp")
        with open(partial, "w") as out:
            out.write("k,n,text\n")
            for row in range(settings.rows):
                out.write(f"{row * 7919 % 1000},{row * 104729 % 1000003},{row:064}\n")
        partial.rename(lines)
    tpch = harness.load("tpch").prepare(settings)
    lineitem = bucket / "lineitem.parquet"
    if not lineitem.exists():
        lineitem.hardlink_to(tpch / "lineitem.parquet")
    return folder


# ----------------------------------------------------------------------------------- cases


@functools.cache
def tidemill_python() -> Path | None:
    """A Python that has Tidemill's package: `$TIDEMILL_PYTHON`, or the one that the tests have made."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or harness.ROOT / "target")
    path = Path(os.environ.get("TIDEMILL_PYTHON") or target / "venv" / "bin" / "python")
    try:
        asked = subprocess.run([path, "-I", "-c", "import tidemill; tidemill.open"], capture_output=True)
    except OSError:
        asked = None
    if asked is None or asked.returncode != 0:
        say("no Python with `tidemill.open` (TIDEMILL_PYTHON names one): `tidemill-python` is left out")
        return None
    return path


def cases(settings: Settings, folder: Path, binaries: dict[str, Path], servers: dict[str, Server]) -> list[Case]:
    bucket = folder / BUCKET
    python = [HERE / ".venv" / "bin" / "python", "-I", HERE / "readers.py"]
    # Built and looked for when the first case asks for them.
    rust = Path("peers")
    own_python = None
    if not (settings.list_only or settings.prepare_only):
        rust = harness.cargo_program(HERE / "peers", "bench-prefetch", "the readers")
        own_python = tidemill_python()
    found: list[Case] = []

    def counting(server: Server, check):
        """A check that has the server's counts with the run's figures."""

        def checked(run: Run, engine: Engine) -> str | None:
            requests, sent = server.counted()
            run.accuracy = {"requests": float(requests), "fetched_bytes": float(sent)}
            return check(run)

        return checked

    def bytes_are(expected: int):
        def check(run: Run) -> str | None:
            read = harness.last_json(run.stdout).get("bytes", expected)
            return None if read == expected else f"{read:,} bytes of {expected:,}"

        return check

    def agree():
        first: list = []

        def check(run: Run) -> str | None:
            answer = harness.last_json(run.stdout).get("answer")
            answer = answer if answer is not None else of_csv(run.stdout)
            first.append(answer)
            return None if answer == first[0] else f"{str(answer)[:60]}, the first one {str(first[0])[:60]}"

        return check

    def case(name: str, shape: str, path: Path, input_bytes: int, engines: dict[str, list], check) -> None:
        made = {
            engine: Engine(words, ours=engine in binaries or engine.startswith("tidemill"))
            for engine, words in engines.items()
        }
        found.append(Case(name, shape, path, input_bytes, path.stat().st_size, made, counting(servers[shape], check)))

    for shape, server in servers.items():
        endpoint = server.endpoint
        own = {name: [*environment(endpoint), binary] for name, binary in binaries.items()}
        large, size = bucket / "large.bin", settings.rows * 200
        for name, rate in (("sequential", 0), ("paced", 100)):
            if name == "paced" and shape == "loopback":
                continue
            engines = {}
            if rate == 0:
                engines |= {f"{ours} cat": [*words, "cat", f"s3://{BUCKET}/large.bin"] for ours, words in own.items()}
            engines["tidemill-rust"] = [rust, "sequential", "tidemill", endpoint, "large.bin", rate]
            if own_python:
                engines["tidemill-python"] = [own_python, *python[1:], "sequential", "tidemill-python", endpoint, "large.bin", rate]
            engines["object_store"] = [rust, "sequential", "object_store", endpoint, "large.bin", rate]
            for reader in PYTHON_READERS:
                if rate == 0 or reader != "boto3-download":
                    engines[reader] = [*python, "sequential", reader, endpoint, "large.bin", rate]
            case(name, shape, large, size, engines, bytes_are(size))
        engines = {
            f"{'tidemill-rust' if reader == 'tidemill' else reader}": [rust, "random", reader, endpoint, "large.bin", RANDOM_READS]
            for reader in ("tidemill", "object_store")
        }
        case("random", shape, large, RANDOM_READS << 16, engines, bytes_are(RANDOM_READS << 16))
        engines = {f"{ours} cat": [*words, "cat", f"s3://{BUCKET}/small/"] for ours, words in own.items()}
        engines |= {reader: [*python, "small", reader, endpoint, "small/"] for reader in ("s3fs", "boto3", "obstore")}
        case("small", shape, bucket / "small" / "0000.bin", SMALL_OBJECTS * SMALL_BYTES, engines, bytes_are(SMALL_OBJECTS * SMALL_BYTES))
        if shape == "loopback":
            continue
        lines = bucket / "lines.csv"
        sql = f"SELECT k, count(*) AS n, sum(n) AS s FROM 's3://{BUCKET}/lines.csv' GROUP BY k ORDER BY k"
        engines = {ours: [*words, "query", sql] for ours, words in own.items()}
        case("group-by", shape, lines, lines.stat().st_size, engines, agree())
        for name, key in (("columns", "columns.parquet"), ("q1", "lineitem.parquet"), ("q6", "lineitem.parquet")):
            sql = questions().SQL[name].format(table=f"'s3://{BUCKET}/{key}'")
            engines = {ours: [*words, "query", sql] for ours, words in own.items()}
            if "tidemill" in own:
                engines["tidemill, hardly ahead"] = [*own["tidemill"], "query", *PLAIN, sql]
            engines |= {engine: [*python, "query", engine, endpoint, key, name] for engine in PARQUET_ENGINES}
            case(name, shape, bucket / key, 0, engines, agree())
    return harness.select(found, settings.only, settings.without)


def questions():
    """The queries; the readers import the same file."""
    import sys

    sys.path.insert(0, str(HERE))
    import queries

    return queries


def of_csv(text: str) -> list:
    """The answer of the command line, as the readers print theirs."""

    def value(word: str):
        try:
            return float(word)
        except ValueError:
            return word

    return questions().settled([[value(word) for word in line.split(",")] for line in text.splitlines()[1:]])


# ---------------------------------------------------------------------------------- tables


def tables(results: list[dict]) -> str:
    rows = []
    for result in results:
        first = next(iter(result["runs"].values()), None)
        for name, runs in result["runs"].items():
            median = lambda of: statistics.median(map(of, runs))  # noqa: E731
            work, fetched = median(lambda run: run["work_s"]), median(lambda run: run["accuracy"]["fetched_bytes"])
            rows.append([
                result["case"],
                result["format"],
                name,
                harness.spread([run["work_s"] for run in runs]),
                harness.digits(result["input_bytes"] / 1e6 / work) if result["input_bytes"] else "",
                harness.digits(fetched / 1e6),
                f"{median(lambda run: run['accuracy']['requests']):.0f}",
                harness.digits(median(lambda run: run["rss_bytes"]) / 1e6),
                harness.digits(1e9 * median(lambda run: run["cpu_s"]) / fetched) if fetched else "",
                harness.spread(harness.paired(runs, first, "work_s")),
            ])
        for name, failure in result["failures"].items():
            told = failure.splitlines()[0].replace("|", "\\|")
            rows.append([result["case"], result["format"], name, f"failed: {told}"[:90], *[""] * 6])
    head = ["case", "shape", "reader", "s", "MB/s", "fetched MB", "requests", "peak RSS MB", "CPU s a GB", "times the first"]
    return harness.table(head, rows, 3)


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        names = ["sequential", "paced", "random", "small", "group-by", "columns", "q1", "q6"]
        engines = ["tidemill", *settings.extra_binaries, *PYTHON_READERS, *PARQUET_ENGINES]
        print("prefetch: " + "; ".join(", ".join(kind) for kind in (names, SHAPES, engines)))
        return
    binaries = {} if settings.prepare_only else harness.tidemill_binaries(settings)
    harness.peers_python(HERE)
    folder = prepare(settings)
    if settings.prepare_only:
        return
    program = settings.cache / "bin" / "shaped"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["rustc", "--edition", "2024", "-O", "-o", str(program), str(HERE / "shaped.rs")])
    if done.returncode != 0:
        raise Failure("`bench/prefetch/shaped.rs` does not compile (see above)")
    with contextlib.ExitStack() as stack:
        servers = {}
        for shape, words in SHAPES.items():
            server = Server(program, folder, words)
            stack.callback(server.process.kill)
            servers[shape] = server
        results = []
        for case in cases(settings, folder, binaries, servers):
            servers[case.variant].counted()
            results.append(harness.compare(case, settings))
            report.add("prefetch", {"results": results})
        report.failed |= any(result["failures"] for result in results)
        report.print("## prefetch\n\n" + tables(results))
