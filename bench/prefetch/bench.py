"""Objects of a bucket, read from a server that is shaped like an object store.

- `sequential`: one object from its beginning to its end, as fast as it comes; `paced`: by a consumer of 100 MB/s.
- `random`: two thousand reads of 64 KiB; `small`: a thousand objects of 10 kB; `get`: the same into files.
- `disk-cold`, `disk-warm`: a second pass over the large object, from the disk, beside a plain file there.
- `startup`: a small object, listed and read by a command line.
- `group-by`: a group-by over CSV; `columns`: three of forty columns of Parquet; `q1`, `q6`: TPC-H's.
- `auto-…`: the same with the defaults, and with block and window from five runs before.

The formats are the shapes: `25-400` is 25 MB/s a connection and 400 MB/s in all, `90-1000` accordingly, both 30 ms to
the first byte; `far` is 150 ms away, with 10 MB/s a connection and 400 MB/s in all, for `auto-…` alone; `loopback` is
neither late nor slow. The server is `shaped.rs`, compiled here; it counts requests and
bytes, which the tables have beside time and memory. It takes processor time of the same machine.
"""

import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import urllib.request
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "prefetch"
BUCKET = "bench"

SHAPES = {"25-400": (30, 25, 400), "90-1000": (30, 90, 1000), "far": (150, 10, 400), "loopback": (0, 1e6, 1e6)}
RANDOM_READS, SMALL_OBJECTS, SMALL_BYTES = 2000, 1000, 10_000
# Hadoop's streams, by what `fs.s3a.input.stream.type` calls them.
S3A = {"s3a": "classic", "s3a-prefetch": "prefetch", "s3a-analytics": "analytics"}
# What its heap may be: as much as Tidemill's reader has for all that is fetched ahead, unless told otherwise.
JAVA_HEAP = "-Xmx512m"
# Of which one connection is all that they have: at 25 MB/s two gigabytes take 80 seconds.
PYTHON_READERS = ["synchronous", "boto3", "boto3-download", "s3fs", "pyarrow", "obstore", "obstore-stream"]
QUERY_ENGINES = ["pyarrow", "pyarrow-pre-buffer", "polars", "duckdb"]
# With as little ahead as there may be: a megabyte, in pieces of 64 KiB.
PLAIN = ["--read-memory", "1M", "--read-block", "64K", "--read-window", "64K"]
AUTO_CASES = [
    ("group-by", "lines.csv", []),
    ("group-by", "lines.csv", ["--read-memory", "64M"]),
    ("columns", "columns.parquet", []),
]
# What past runs choose, and after how many of them it is measured.
AUTO, AUTO_RUNS = ["--read-block", "auto", "--read-window", "auto", "--stats"], 5


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


def hadoop(settings: Settings) -> list | None:
    """Hadoop's S3A as a command, without its words; none without Java and Maven."""
    if not (shutil.which("java") and shutil.which("mvn")):
        say("no `java` or no `mvn`: Hadoop's S3A is left out (it needs a JDK of version 17 or later, and Maven)")
        return None
    classes = harness.java_classpath(settings.cache, HERE / "peers" / "hadoop", "prefetch-hadoop")
    temporary = settings.scratch() / "hadoop"
    temporary.mkdir(exist_ok=True)
    return ["java", JAVA_HEAP, f"-Djava.io.tmpdir={temporary}", "-cp", classes, "tidemill.Peers"]


def tools(endpoint: str) -> dict[str, list]:
    """Other command lines, without their words; those of which there is a program for this machine."""
    [site] = (HERE / "tools" / ".venv" / "lib").glob("python*/site-packages")
    commands = {
        "s5cmd": [site / "s5cmd" / "bin" / "s5cmd", "--endpoint-url", endpoint],
        "aws": [HERE / "tools" / ".venv" / "bin" / "aws"],
    }
    return {name: [*environment(endpoint), *words] for name, words in commands.items() if words[0].is_file()}


def unseen(command: list) -> list:
    """The same, of which nobody takes what it writes."""
    return ["sh", "-c", 'exec "$@" > /dev/null', "sh", *command]


def cases(
    settings: Settings, folder: Path, binaries: dict[str, Path], servers: dict[str, Server], cleanup: contextlib.ExitStack
) -> list[Case]:
    bucket = folder / BUCKET
    python = [HERE / ".venv" / "bin" / "python", "-I", HERE / "readers.py"]
    rust = harness.cargo_program(HERE / "peers", "bench-prefetch", "the readers")
    own_python = tidemill_python()
    java = hadoop(settings)
    found: list[Case] = []

    def counting(server: Server, check):
        """A check that has the server's counts with the run's figures."""

        def checked(run: Run, engine: Engine) -> str | None:
            requests, sent = server.counted()
            run.accuracy = {"requests": float(requests), "fetched_bytes": float(sent)}
            return check(run, engine)

        return checked

    def bytes_are(expected: int):
        def check(run: Run, _engine: Engine) -> str | None:
            # What does not say it has been sent it.
            told = harness.last_json(run.stdout).get("bytes")
            read = min(int(run.accuracy["fetched_bytes"]), expected) if told is None else told
            return None if read == expected else f"{read:,} bytes of {expected:,}"

        return check

    def files_are(expected: int):
        """What was written into the folder that is the command's last word, which is removed."""

        def check(_run: Run, engine: Engine) -> str | None:
            written = [path for path in Path(str(engine.command[-1])).rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in written)
            shutil.rmtree(engine.command[-1], ignore_errors=True)
            return None if size == expected else f"{size:,} bytes of {expected:,} in {len(written):,} files"

        return check

    def printed(run: Run, _engine: Engine) -> str | None:
        return None if run.stdout else "it said nothing"

    def agree():
        first: list = []

        def check(run: Run, _engine: Engine) -> str | None:
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
        if shape != "loopback" and "tidemill" in own:
            for name, key, words in AUTO_CASES:
                command = [*own["tidemill"], "query", *words, questions().SQL[name].format(table=f"'s3://{BUCKET}/{key}'")]
                home = settings.scratch() / "reads" / f"{shape}-{name}-{len(words)}"
                cleanup.callback(shutil.rmtree, home, ignore_errors=True)
                engines = {"tidemill": command, "tidemill auto": ["env", f"TIDEMILL_HOME={home}", *command[:-1], *AUTO, command[-1]]}
                label = f"auto-{name}" + ("-64M" if words else "")
                case(label, shape, bucket / key, (bucket / key).stat().st_size if key == "lines.csv" else 0, engines, agree())
        if shape == "far":
            continue
        large, size = bucket / "large.bin", settings.rows * 200
        for name, rate in (("sequential", 0), ("paced", 100)):
            if name == "paced" and shape == "loopback":
                continue
            engines = {}
            if rate == 0:
                engines |= {f"{ours} cat": unseen([*words, "cat", f"s3://{BUCKET}/large.bin"]) for ours, words in own.items()}
            engines["tidemill-rust"] = [rust, "sequential", "tidemill", endpoint, "large.bin", rate]
            if own_python:
                engines["tidemill-python"] = [own_python, *python[1:], "sequential", "tidemill-python", endpoint, "large.bin", rate]
            engines["object_store"] = [rust, "sequential", "object_store", endpoint, "large.bin", rate]
            for reader in PYTHON_READERS:
                if rate == 0 or reader != "boto3-download":
                    engines[reader] = [*python, "sequential", reader, endpoint, "large.bin", rate]
            if java:
                engines |= {name: [*java, "sequential", kind, endpoint, "large.bin", rate] for name, kind in S3A.items()}
            case(name, shape, large, size, engines, bytes_are(size))
        engines = {
            f"{'tidemill-rust' if reader == 'tidemill' else reader}": [rust, "random", reader, endpoint, "large.bin", RANDOM_READS]
            for reader in ("tidemill", "object_store")
        }
        if java:
            # The prefetching stream fetches two blocks of 8 MiB for each, 34 GB in all.
            without = {name: kind for name, kind in S3A.items() if kind != "prefetch"}
            engines |= {name: [*java, "random", kind, endpoint, "large.bin", RANDOM_READS] for name, kind in without.items()}
        case("random", shape, large, RANDOM_READS << 16, engines, bytes_are(RANDOM_READS << 16))
        other = tools(endpoint)
        engines = {f"{ours} cat": unseen([*words, "cat", f"s3://{BUCKET}/small/"]) for ours, words in own.items()}
        if "s5cmd" in other:
            engines["s5cmd cat"] = unseen([*other["s5cmd"], "cat", f"s3://{BUCKET}/small/*"])
        engines |= {reader: [*python, "small", reader, endpoint, "small/"] for reader in ("s3fs", "boto3", "obstore")}
        case("small", shape, bucket / "small" / "0000.bin", SMALL_OBJECTS * SMALL_BYTES, engines, bytes_are(SMALL_OBJECTS * SMALL_BYTES))
        into = {name: f"{settings.scratch() / ('get-' + name)}/" for name in [*own, *other]}
        for path in into.values():
            shutil.rmtree(path, ignore_errors=True)
        engines = {f"{ours} get": [*words, "get", f"s3://{BUCKET}/small/", "-o", into[ours]] for ours, words in own.items()}
        if "s5cmd" in other:
            engines["s5cmd cp"] = [*other["s5cmd"], "--log", "error", "cp", f"s3://{BUCKET}/small/*", into["s5cmd"]]
        if "aws" in other:
            engines["aws cp"] = [*other["aws"], "s3", "cp", "--quiet", "--recursive", f"s3://{BUCKET}/small/", into["aws"]]
        small = bucket / "small" / "0000.bin"
        case("get", shape, small, SMALL_OBJECTS * SMALL_BYTES, engines, files_are(SMALL_OBJECTS * SMALL_BYTES))
        if shape == "loopback":
            url = f"s3://{BUCKET}/small/0000.bin"
            engines = {f"{name} ls": [*words, "ls", url] for name, words in own.items()}
            engines |= {f"{name} cat": [*words, "cat", url] for name, words in own.items()}
            if "s5cmd" in other:
                engines |= {f"s5cmd {verb}": [*other["s5cmd"], verb, url] for verb in ("ls", "cat")}
            if "aws" in other:
                engines["aws ls"] = [*other["aws"], "s3", "ls", url]
                engines["aws cp"] = [*other["aws"], "s3", "cp", url, "-"]
            case("startup", shape, small, 0, engines, printed)
            kept = settings.scratch() / "read-cache"
            for state in ("cold", "warm"):
                engines = {
                    "tidemill-rust": [rust, "disk", "tidemill", endpoint, "large.bin", kept, state],
                    "file": [rust, "disk", "file", endpoint, large, kept, state],
                }
                case(f"disk-{state}", shape, large, size, engines, bytes_are(size))
            cleanup.callback(shutil.rmtree, kept, ignore_errors=True)
            continue
        lines = bucket / "lines.csv"
        sql = questions().SQL["group-by"].format(table=f"'s3://{BUCKET}/lines.csv'")
        engines = {ours: [*words, "query", sql] for ours, words in own.items()}
        engines |= {
            engine: [*python, "query", engine, endpoint, "lines.csv", "group-by"]
            for engine in QUERY_ENGINES
            if engine != "pyarrow-pre-buffer"
        }
        case("group-by", shape, lines, lines.stat().st_size, engines, agree())
        for name, key in (("columns", "columns.parquet"), ("q1", "lineitem.parquet"), ("q6", "lineitem.parquet")):
            sql = questions().SQL[name].format(table=f"'s3://{BUCKET}/{key}'")
            engines = {ours: [*words, "query", sql] for ours, words in own.items()}
            if "tidemill" in own:
                engines["tidemill, hardly ahead"] = [*own["tidemill"], "query", *PLAIN, sql]
            engines |= {engine: [*python, "query", engine, endpoint, key, name] for engine in QUERY_ENGINES}
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


def trained(case: Case) -> None:
    """Has the runs before, whose settings the measured ones start from."""
    command = [str(word) for word in case.engines["tidemill auto"].command]
    shutil.rmtree(command[1].partition("=")[2], ignore_errors=True)
    for _ in range(AUTO_RUNS):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"`{case.name}` does not run: {done.stderr.strip()}")
    say(f"  {case.name}, {case.variant}: {done.stderr.strip().splitlines()[-1]}")


def plot(folder: Path, servers: dict[str, Server]) -> None:
    """Draws what reading ahead does over time, on the slower of the shapes."""
    own_python = tidemill_python()
    if not own_python:
        raise Failure("the plots are of queries in Python\nhint: TIDEMILL_PYTHON names one that has the package `tidemill`")
    rust = harness.cargo_program(HERE / "peers", "bench-prefetch", "the readers")
    shape = "25-400"
    words = [harness.peers_python(HERE), HERE / "plots.py", rust, own_python, servers[shape].endpoint, SHAPES[shape][2], folder]
    if subprocess.run([str(word) for word in words]).returncode != 0:
        raise Failure("`bench/prefetch/plots.py` has failed (see above)")


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        names = ["sequential", "paced", "random", "small", "get", "startup", "disk-cold", "disk-warm", "group-by", "columns", "q1", "q6"]
        names += ["auto-group-by", "auto-group-by-64M", "auto-columns"]
        engines = ["tidemill", *settings.extra_binaries, *PYTHON_READERS, *S3A, *QUERY_ENGINES]
        print("prefetch: " + "; ".join(", ".join(kind) for kind in (names, SHAPES, engines)))
        return
    binaries = {} if settings.prepare_only or settings.plots else harness.tidemill_binaries(settings)
    harness.peers_python(HERE)
    harness.peers_python(HERE / "tools")
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
        if settings.plots:
            plot(settings.plots, servers)
            return
        results = []
        for case in cases(settings, folder, binaries, servers, stack):
            if case.name.startswith("auto-") and "tidemill auto" in case.engines:
                trained(case)
            servers[case.variant].counted()
            results.append(harness.compare(case, settings))
            report.add("prefetch", {"results": results})
        report.failed |= any(result["failures"] for result in results)
        report.print("## prefetch\n\n" + tables(results))
