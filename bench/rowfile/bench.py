"""Formats for rows: in memory and on disk, strings alone, and one whole job.

- `wide`, `flights`, `access`: rows are written and read, all columns and three of them, in
  memory or with a file between. Three programs have the formats: Rust's (`peers/`), Python's
  (`peers.py`) and Java's (`java/`). Each reads the same Arrow file into objects of its own, then
  does what it is told, one step at a time, so that every format is measured in every round and
  never two at once.
- `strings`: a column of strings, beside two versions of Flink and `writeUTF` in JMH.
- `promotion`: a group-by over events whose input is a blob, JSON, a struct or columns.
"""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "rowfile"
FULL_ROWS = 10_000_000


@dataclasses.dataclass
class Data:
    """Rows, how many of them, and the three columns for those who read few."""

    rows: int
    about: str
    few: str


DATA = {
    "wide": Data(30_000, "wide events of 39 columns", "event_id,path,duration"),
    "flights": Data(60_000, "flights of 19 columns", "year,arr_delay,minute"),
    "access": Data(60_000, "entries of an access log, 11 columns", "ip,method,referrer"),
}
WAYS = ["memory", "disk"]
OTHERS = ["strings", "promotion"]
STEPS = ["encode", "decode", "few"]

# Which program has which format with which codecs, in the order of the tables.
RUST = {
    "tidemill": ["none", "lz4", "zstd1", "zstd3", "zstd6", "zstd9", "zstd12"],
    "tidemill-view": ["none", "zstd1", "zstd3"],
    "arrow-avro": ["none", "zstd3", "deflate"],
    "arrow-ipc": ["none", "lz4", "zstd3"],
    "parquet": ["none", "lz4", "zstd1", "zstd3"],
    "json-lines": ["none"],
    "copy": ["none"],
}
PYTHON = {
    "fastavro": ["none", "zstd3", "deflate"],
    "pickle": ["none"],
    "pickle-batch": ["none"],
    "python-json": ["none"],
}
JAVA = {"java-each": ["none"], "java-stream": ["none"]}
CODECS = ["none", "lz4", "zstd1", "zstd3", "zstd6", "zstd9", "zstd12", "deflate"]
# On disk, what says nothing new is left out.
MEMORY_ONLY = {"tidemill zstd6", "tidemill zstd9", "tidemill zstd12", "copy none"}

FLINK = {"flink-1.9.3": "1.9.3", "flink-2.3.0": "2.3.0"}
STRINGS = [*FLINK, "write-utf"]
ALPHABETS = {"ascii": 1, "cyrillic": 2, "chinese": 3}
LENGTHS = [1, 4, 16, 128, 16384]

PROMOTION_ROWS = 500_000
PROMOTION = {
    "pickle": ["none", "zstd1"],
    "java": ["none"],
    "duckdb": ["none", "lz4", "zstd1"],
    "nested": ["none", "lz4", "zstd1"],
    "promoted": ["none", "lz4", "zstd1"],
}
SHAPES = {"pickle": "a", "java": "a", "duckdb": "b", "nested": "c", "promoted": "d"}


# ------------------------------------------------------------------ programs


def rust_program() -> Path:
    return harness.cargo_program(HERE / "peers", "bench-rowfile", "the formats")


def java_command(settings: Settings, flink: str = FLINK["flink-2.3.0"]) -> list:
    """How to run a class of `java/`, which is built with this version of Flink if it is not yet."""
    classpath = harness.java_classpath(settings.cache, HERE / "java", f"rowfile-java-{flink}", {"flink.version": flink})
    return [
        "java",
        # As Arrow's library asks for.
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "-XX:+UseSerialGC",
        "-Xmx6g",
        "-cp",
        classpath,
    ]


class Session:
    """A program that answers requests, a line each."""

    def __init__(self, name: str, command: list, settings: Settings):
        self.name = name
        self.complaints = open(settings.scratch() / f"rowfile-{name}.stderr", "w+")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            text=True,
        )

    def ask(self, step: str, format: str, codec: str, path: Path | None) -> dict:
        try:
            print(step, format, codec, path or "-", file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.complaints.seek(0)
            last = "\n".join(self.complaints.read().strip().splitlines()[-12:])
            raise Failure(f"the {self.name} program ended: {last or 'nothing on standard error'}")
        return json.loads(line)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def disk_read_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
        return 0

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.complaints.close()


# ---------------------------------------------------------------------- data


def write_whole(path: Path, write) -> None:
    """Lets `write` make a file or folder under another name, which it has when it is whole."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    say(f"writing {path} ...")
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(partial)
        partial.replace(path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def do(command: list) -> None:
    if subprocess.run([str(word) for word in command], stdout=sys.stderr).returncode != 0:
        raise Failure("the data could not be written (see above)")


def scaled(rows: int, settings: Settings) -> int:
    return max(1000, rows * settings.rows // FULL_ROWS)


def data_file(data: str, settings: Settings, program: Path) -> Path | None:
    """The rows as an Arrow file, or `None` if they cannot be had."""
    rows = scaled(DATA[data].rows, settings)
    path = settings.cache / f"rowfile-{data}-{rows}.arrow"
    if path.exists():
        return path
    prepare = [harness.peers_python(), HERE / "prepare.py", data]
    if data == "wide":
        write_whole(path, lambda to: do([program, "generate", "wide", rows, to]))
    elif data == "flights":
        one_copy = dataclasses.replace(settings, rows=1)
        source = harness.load("flights").prepare(one_copy) / "flights.parquet"
        write_whole(path, lambda to: do([*prepare, source, rows, to]))
    else:
        text = harness.load("text")
        source = text.samples() / text.SAMPLES["access"]
        if not source.is_file():
            say(f"no `{source}` (TIDEMILL_LOGS names another folder): `access` is left out")
            return None
        write_whole(path, lambda to: do([*prepare, source, rows, to]))
    return path


def promotion_folder(settings: Settings, program: Path) -> Path:
    rows = scaled(PROMOTION_ROWS, settings)
    path = settings.cache / f"rowfile-promotion-{rows}"
    prepare = [harness.peers_python(), HERE / "prepare.py"]
    if path.exists() and path.stat().st_mtime < program.stat().st_mtime:
        # Its rowfiles may be of an older format.
        shutil.rmtree(path)

    def write(folder: Path) -> None:
        folder.mkdir()
        do([program, "promotion", rows, folder])
        plain, lines = folder / "plain.arrow", folder / "lines"
        do([*prepare, "pickles", plain, lines])
        do([*prepare, "blobs", plain, lines, *(folder / f"pickle-{codec}.parquet" for codec in PROMOTION["pickle"])])
        do([*java_command(settings), "tidemill.bench.Promotion", "blobs", plain, lines])
        do([*prepare, "blobs", plain, lines, folder / "java-none.arrow"])
        plain.unlink()
        lines.unlink()

    write_whole(path, write)
    return path


# ----------------------------------------------------------- memory and disk


@dataclasses.dataclass(frozen=True)
class Coder:
    program: str
    format: str
    codec: str

    def __str__(self) -> str:
        return f"{self.format} {self.codec}"


def coders(way: str, chosen: "Chosen") -> list[Coder]:
    programs = {"Rust": RUST, "Python": PYTHON, "Java": JAVA}
    found = [
        Coder(program, format, codec)
        for program, formats in programs.items()
        for format, codecs in formats.items()
        for codec in codecs
        if chosen.format(format) and chosen.codec(codec)
    ]
    found = [coder for coder in found if way == "memory" or str(coder) not in MEMORY_ONLY]
    return sorted(found, key=lambda coder: CODECS.index(coder.codec))


def compare(data: str, way: str, chosen: "Chosen", file: Path, program: Path, settings: Settings) -> dict:
    """Measures every format. Returns the answers by coder and step, and the failures."""
    wanted = coders(way, chosen)
    commands = {
        "Rust": lambda: [program, "serve", file, DATA[data].few],
        "Python": lambda: [harness.peers_python(), "-I", HERE / "peers.py", file, DATA[data].few],
        "Java": lambda: [*java_command(settings), "tidemill.bench.Peers", file, data],
    }
    sessions: dict[str, Session] = {}
    runs: dict[str, dict[str, list[dict]]] = {}
    failures: dict[str, str] = {}
    folder = settings.scratch() / "rowfile"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cold = True

    def step(name: str, coder: Coder) -> dict | None:
        nonlocal cold
        session = sessions[coder.program]
        path = None if way == "memory" else folder / f"{coder.format}.{coder.codec}"
        if path and name in ("decode", "few"):
            drop_from_cache(path)
            before = session.disk_read_bytes()
        answer = session.ask(name, coder.format, coder.codec, path)
        if "failed" in answer:
            failures[str(coder)] = answer["failed"]
            runs.pop(str(coder), None)
            say(f"  {data}, {way}, {coder}: FAILED: {answer['failed']}")
            return None
        if path and name == "decode" and session.disk_read_bytes() - before < 0.9 * answer["bytes"]:
            cold = False
        return answer

    try:
        for name in dict.fromkeys(coder.program for coder in wanted):
            sessions[name] = Session(name, commands[name](), settings)
        for coder in wanted:
            step("check", coder)
        busy, wall, own = harness.busy_s(), time.monotonic(), sum(s.cpu_s() for s in sessions.values())
        for turn in range(1, settings.rounds + 1):
            say(f"  {data}, {way}, round {turn} of {settings.rounds}")
            for coder in wanted:
                for name in STEPS:
                    if str(coder) in failures:
                        break
                    answer = step(name, coder)
                    if answer:
                        runs.setdefault(str(coder), {}).setdefault(name, []).append(answer)
        wall = time.monotonic() - wall
        own = sum(s.cpu_s() for s in sessions.values()) - own
        others = 0.0 if busy is None else max(0.0, (harness.busy_s() or 0) - busy - own)
    finally:
        for session in sessions.values():
            session.close()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "data": data,
        "way": way,
        "runs": runs,
        "failures": failures,
        "others": others / wall / harness.cores(),
        "cold": cold,
    }


def drop_from_cache(path: Path) -> None:
    """Asks the kernel to forget a file, which has to be on the disk."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rate(runs: list[dict]) -> list[float]:
    """Thousands of rows in a second of processor time."""
    return [run["rows"] / run["cpu_s"] / 1e3 for run in runs]


def bytes_per_row(steps: dict[str, list[dict]]) -> float:
    return statistics.median(run["bytes"] / run["rows"] for run in steps["encode"])


def memory_table(result: dict) -> str:
    plain = result["runs"].get("tidemill none")
    head = ["codec", "format", "bytes/row", "encode k rows/s", "decode k rows/s", "3 columns k rows/s"]
    if plain:
        head += ["encode GB/s", "decode GB/s"]
    rows = []
    for coder, steps in result["runs"].items():
        format, codec = coder.split()
        row = [codec, format, "" if format == "copy" else harness.digits(bytes_per_row(steps))]
        row += [harness.spread(rate(steps[step])) for step in STEPS]
        if format in ("copy", *PYTHON, *JAVA) and format != "fastavro":
            # It has no way to decode less than a row.
            row[-1] = f"({row[-1]})" if format != "copy" else ""
        if plain:
            for step in ("encode", "decode"):
                row.append(harness.digits(bytes_per_row(plain) * statistics.median(rate(steps[step])) / 1e6))
        rows.append(row)
    return harness.table(head, rows, 2)


def disk_table(result: dict) -> str:
    rows = []
    for coder, steps in result["runs"].items():
        format, codec = coder.split()
        row = [codec, format, harness.digits(bytes_per_row(steps))]
        for step in STEPS:
            row.append(harness.spread([1e3 * run["work_s"] for run in steps[step]]))
            row.append(harness.digits(1e3 * statistics.median(run["cpu_s"] for run in steps[step])))
        rows.append(row)
    head = ["codec", "format", "bytes/row", "write ms", "CPU", "read ms", "CPU", "3 columns ms", "CPU"]
    return harness.table(head, rows, 2)


def speedups(result: dict, ours: str, theirs: str, step: str) -> list[float]:
    """How many times as fast as another one of ours is, round by round."""
    runs = result["runs"]
    if ours not in runs or theirs not in runs:
        return []
    key = "cpu_s" if result["way"] == "memory" else "work_s"
    return harness.paired(runs[theirs][step], runs[ours][step], key)


def ratio_table(result: dict) -> str | None:
    rows = []
    for theirs, steps in result["runs"].items():
        format, codec = theirs.split()
        ours = f"tidemill {'zstd3' if codec == 'deflate' else codec}"
        if format.startswith("tidemill") or format == "copy" or ours not in result["runs"]:
            continue
        size = bytes_per_row(result["runs"][ours]) / bytes_per_row(steps)
        row = [ours, theirs, harness.digits(size)]
        row += [harness.spread(speedups(result, ours, theirs, step)) for step in STEPS]
        rows.append(row)
    head = ["ours", "theirs", "size", "encode", "decode", "3 columns"]
    return harness.table(head, rows, 2) if rows else None


def goals(result: dict) -> str | None:
    """The goals for wide events in memory, and what came of them."""
    runs = result["runs"]
    rows: list[list[str]] = []

    def goal(text: str, found: list[float], wanted: float, at_most: bool = False) -> None:
        if found:
            middle = statistics.median(found)
            met = middle <= wanted if at_most else middle >= wanted
            sign = "≤" if at_most else "≥"
            rows.append([text, f"{sign} {wanted:g}", harness.spread(found), "met" if met else "missed"])

    def size(ours: str, theirs: str) -> list[float]:
        return [bytes_per_row(runs[ours]) / bytes_per_row(runs[theirs])] if ours in runs and theirs in runs else []

    for ours, theirs, wanted in [
        ("tidemill none", "arrow-avro none", 1.5),
        ("tidemill-view none", "arrow-avro none", 1.5),
        ("tidemill zstd3", "arrow-avro zstd3", 1.5),
        ("tidemill none", "java-each none", 20),
        ("tidemill none", "java-stream none", 20),
    ]:
        for step in ("encode", "decode"):
            goal(f"{step}, {ours}: times as fast as {theirs}", speedups(result, ours, theirs, step), wanted)
    for ours, theirs in [("tidemill none", "arrow-avro none"), ("tidemill zstd3", "arrow-avro zstd3")]:
        goal(f"size, {ours} over {theirs}", size(ours, theirs), 1, at_most=True)
    deflate = "arrow-avro deflate"
    levels = [coder for coder in runs if coder.startswith("tidemill zstd")]
    if deflate in runs and levels:

        def distance(ours: str) -> float:
            found = statistics.median(speedups(result, ours, deflate, "encode"))
            return max(found, 1 / found)

        nearest = min(levels, key=distance)
        times = harness.digits(statistics.median(speedups(result, nearest, deflate, "encode")))
        goal(f"size, {nearest} (encodes at {times} times the speed) over {deflate}", size(nearest, deflate), 1, at_most=True)
        goal(f"size, tidemill zstd3 over {deflate}", size("tidemill zstd3", deflate), 1, at_most=True)
    for ours in ("tidemill none", "tidemill-view none", "tidemill lz4", "tidemill zstd1"):
        if ours in runs and "tidemill none" in runs:
            width = bytes_per_row(runs["tidemill none"])
            for step in ("encode", "decode"):
                goal(f"{step}, {ours}: GB/s of uncompressed rows", [width * r / 1e6 for r in rate(runs[ours][step])], 1)
    return harness.table(["goal", "wanted", "found", ""], rows, 2) if rows else None


# ------------------------------------------------------------------- strings


def string_count(alphabet: str, length: int) -> int:
    """How many strings an operation of `java/…/Strings.java` has: the same rule as there."""
    return max(16, min(4096, (256 << 10) // (length * ALPHABETS[alphabet])))


def measure_strings(chosen: "Chosen", program: Path, settings: Settings) -> dict:
    found: dict[str, dict[str, list[float]]] = {}

    def add(alphabet: str, length: int, column: str, ns: float) -> None:
        found.setdefault(f"{alphabet} {length}", {}).setdefault(column, []).append(ns)

    if chosen.format("tidemill"):
        say("  strings, tidemill")
        run = harness.measure([program, "strings", settings.rounds], settings)
        for line in run.stdout.splitlines():
            answer = json.loads(line)
            for step in ("encode", "decode"):
                add(answer["alphabet"], answer["length"], f"{step} tidemill {answer['way']}", answer[f"{step}_ns"])
    for name in STRINGS:
        if not chosen.format(name):
            continue
        say(f"  strings, {name} (some 50 seconds)")
        output = settings.scratch() / "jmh.json"
        prefix = "utf" if name == "write-utf" else "flink"
        command = [*java_command(settings, FLINK.get(name, FLINK["flink-2.3.0"])), "org.openjdk.jmh.Main"]
        command += [f"tidemill.bench.Strings.{prefix}", "-foe", "true", "-f", 2]
        command += ["-wi", 4, "-w", "80ms", "-i", 5, "-r", "80ms", "-rf", "json", "-rff", output]
        harness.measure(command, settings)
        for result in json.loads(output.read_text()):
            step = "encode" if result["benchmark"].endswith("Write") else "decode"
            alphabet, length = result["params"]["alphabet"], int(result["params"]["length"])
            cost = result["secondaryMetrics"]
            for forks in zip(cost["cpuNs"]["rawData"], cost["operations"]["rawData"]):
                for cpu_ns, operations in zip(*forks):
                    ns = cpu_ns / operations / string_count(alphabet, length)
                    add(alphabet, length, f"{step} {name}", ns)
    return found


def strings_table(found: dict, step: str) -> str:
    columns = {
        f"{step} tidemill file": "tidemill",
        f"{step} tidemill file-offsets": "tidemill, offsets",
        f"{step} tidemill row": "tidemill, a row each",
        f"{step} flink-2.3.0": "Flink 2.3.0",
        f"{step} flink-1.9.3": "Flink 1.9.3",
        f"{step} write-utf": "writeUTF" if step == "encode" else "readUTF",
    }
    if step == "encode":
        del columns["encode tidemill file-offsets"]
    columns = {key: title for key, title in columns.items() if any(key in row for row in found.values())}
    rows = [
        [*case.split(), *(harness.spread(row[key]) if key in row else "" for key in columns)]
        for case, row in found.items()
    ]
    return harness.table(["characters", "length", *columns.values()], rows, 2)


# ----------------------------------------------------------------- promotion


def promotion_case(folder: Path, chosen: "Chosen", settings: Settings) -> Case:
    expected = sorted((folder / "expected.csv").read_text().splitlines())

    def check(run: Run, engine: Engine) -> str | None:
        found = sorted(engine.output.read_text().splitlines())
        different = next(((a, b) for a, b in zip(found, expected) if a != b), None)
        if different or len(found) != len(expected):
            return f"`{different[0]}`, expected `{different[1]}`" if different else f"{len(found)} lines"
        return None

    python = harness.VENV / "bin" / "python"
    binaries = harness.tidemill_binaries(settings)
    engines: dict[str, Engine] = {}
    for name, codecs in PROMOTION.items():
        for codec in codecs:
            if not (chosen.format(name) and chosen.codec(codec)):
                continue
            output = settings.scratch() / f"{name}.{codec}.csv"
            if name == "java":
                source = folder / "java-none.arrow"
                command = [*java_command(settings), "tidemill.bench.Promotion", "group", source, output]
            elif name in ("pickle", "duckdb"):
                source = folder / f"{'json' if name == 'duckdb' else name}-{codec}.parquet"
                command = [python, "-I", HERE / "promotion.py", name, 1, source, output]
            else:
                for binary, path in binaries.items():
                    source = folder / f"{name}-{codec}.rowfile"
                    command = tidemill_command(path, name, source, output)
                    engines[f"{name} {codec}" if binary == "tidemill" else f"{name} {codec} {binary}"] = Engine(
                        command, output, ours=True, input=source
                    )
                continue
            engines[f"{name} {codec}"] = Engine(command, output, input=source)
    return Case("promotion", "files", folder / "expected.csv", 0, 1, engines, check)


def tidemill_command(binary: Path, shape: str, source: Path, output: Path) -> list:
    """The one place that knows tidemill's command line."""
    page, query, member = ("page", "query", "logged_in")
    if shape == "nested":
        page, query, member = (f"input['{name}']" for name in (page, query, member))
        # A page is never null, so that SQL takes no notice of an input that is.
        page = f"CASE WHEN input IS NOT NULL THEN {page} END"
    quoted = "'" + str(source).replace("'", "''") + "'"
    sql = (
        f"SELECT country, {page} AS page, count(*) AS events, count({query}) AS queries, "
        f"count(*) FILTER (WHERE {member}) AS members FROM {quoted} GROUP BY country, {page}"
    )
    return [binary, "query", sql, "--threads", 1, "--format", "csv", "-o", output, "--overwrite"]


def promotion_tables(result: dict, case: Case, rows: int) -> str:
    table = []
    for name, runs in result["runs"].items():
        shape, codec = name.split()[:2]
        size = case.engines[name].input.stat().st_size
        table.append([
            f"({SHAPES[shape]})",
            name,
            harness.digits(size / 1e6),
            harness.digits(size / rows),
            harness.spread([run["cpu_s"] for run in runs]),
            harness.spread([run["wall_s"] for run in runs]),
            harness.spread([run["work_s"] for run in runs]),
        ])
    head = ["", "input", "file MB", "bytes/event", "CPU s", "wall s", "work s"]
    text = harness.table(head, table, 2)
    peers = [name for name in result["runs"] if SHAPES[name.split()[0]] in "ab"]
    ours = [name for name in result["runs"] if SHAPES[name.split()[0]] == "d"]
    if not peers or not ours:
        return text

    def cost(name: str) -> float:
        return statistics.median(run["cpu_s"] for run in result["runs"][name])

    best = {
        "the best of (a) and (b)": min(peers, key=cost),
        **{
            f"the best of ({shape})": min(found, key=cost)
            for shape in "ab"
            if (found := [name for name in peers if SHAPES[name.split()[0]] == shape])
        },
    }
    ratios = []
    for mine in ours:
        for title, theirs in best.items():
            found = harness.paired(result["runs"][mine], result["runs"][theirs], "cpu_s")
            ratios.append([mine, f"{theirs}, {title}", harness.spread(found), "met" if statistics.median(found) <= 0.7 else "missed"])
    return text + "\n\nCPU of (d) over the others, by round; the goal is 0.7:\n\n" + harness.table(
        ["(d)", "over", "CPU", ""], ratios, 2
    )


# ----------------------------------------------------------------- selection


@dataclasses.dataclass
class Chosen:
    """What `--only` and `--without` leave: words of a kind are alternatives, kinds must all hold."""

    only: set[str]
    without: set[str]

    def __post_init__(self):
        known = {word for kind in self.kinds().values() for word in kind}
        for word in sorted(self.only - known):
            kinds = "; ".join(f"{kind}: {', '.join(words)}" for kind, words in self.kinds().items())
            raise Failure(f"`--only` knows no `{word}`\nhint: {kinds}")

    @staticmethod
    def kinds() -> dict[str, list[str]]:
        formats = [*RUST, *PYTHON, *JAVA, *STRINGS, *PROMOTION]
        return {
            "cases": [*DATA, *OTHERS],
            "ways": WAYS,
            "codecs": CODECS,
            "formats": list(dict.fromkeys(formats)),
        }

    def _keeps(self, kind: str, word: str) -> bool:
        wanted = self.only & set(self.kinds()[kind])
        return word not in self.without and (not wanted or word in wanted)

    def case(self, word: str) -> bool:
        return self._keeps("cases", word)

    def way(self, word: str) -> bool:
        return self._keeps("ways", word)

    def codec(self, word: str) -> bool:
        return self._keeps("codecs", word)

    def format(self, word: str) -> bool:
        return self._keeps("formats", word)


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        print("rowfile: " + "; ".join(", ".join(words) for words in Chosen.kinds().values()))
        return
    chosen = Chosen(set(settings.only), settings.without)
    program = rust_program()
    harness.peers_python()
    results: dict[str, object] = {}
    for data in filter(chosen.case, DATA):
        file = data_file(data, settings, program)
        if file is None or settings.prepare_only:
            continue
        for way in filter(chosen.way, WAYS):
            say(f"{data}, {way}")
            result = compare(data, way, chosen, file, program, settings)
            results[f"{data} {way}"] = result
            report.failed = report.failed or bool(result["failures"])
            report.add("rowfile", results)
            print_rows(result, settings, report)
    if chosen.case("strings"):
        if settings.prepare_only:
            for version in FLINK.values():
                java_command(settings, version)
        else:
            found = results["strings"] = measure_strings(chosen, program, settings)
            report.add("rowfile", results)
            for step, title in (("encode", "Encoding"), ("decode", "Decoding")):
                report.print(f"\n## rowfile: strings alone\n\n{title}, ns for a string:\n" if step == "encode" else f"\n{title}:\n")
                report.print(strings_table(found, step))
    if chosen.case("promotion"):
        folder = promotion_folder(settings, program)
        if settings.prepare_only:
            return
        case = promotion_case(folder, chosen, settings)
        result = results["promotion"] = harness.compare(case, settings)
        report.failed = report.failed or bool(result["failures"])
        report.add("rowfile", results)
        rows = scaled(PROMOTION_ROWS, settings)
        report.print(f"\n## rowfile: a group-by over {rows:,} wide events, one thread\n")
        report.print(promotion_tables(result, case, rows))


def print_rows(result: dict, settings: Settings, report: Report) -> None:
    data, way = result["data"], result["way"]
    rows = scaled(DATA[data].rows, settings)
    place = "in memory" if way == "memory" else "with a file between"
    report.print(
        f"\n## rowfile: {rows:,} {DATA[data].about}, {place}, one thread\n\n"
        f"Rounds: {settings.rounds}. Figures: median (min–max).\n"
    )
    report.print(memory_table(result) if way == "memory" else disk_table(result))
    for coder, failure in result["failures"].items():
        report.print(f"\n`{coder}` failed: {failure}")
    if way == "disk":
        report.print(
            "\nFiles were dropped from the page cache before each reading."
            if result["cold"]
            else "\nThe kernel did not drop every file from the page cache: some readings are from memory."
        )
    ratios = ratio_table(result)
    if ratios:
        report.print("\nOurs beside theirs, by round: size over size, and how many times as fast.\n")
        report.print(ratios)
    if data == "wide" and way == "memory":
        found = goals(result)
        if found:
            report.print(f"\nGoals:\n\n{found}")
    others = 100 * result["others"]
    report.print(
        f"\nOther processes took {others:.0f} % of this machine's CPU time during the rounds"
        + (": these figures will not compare." if others > 5 else ".")
    )
