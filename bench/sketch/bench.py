"""Sketches, exact sets, and each of the tables' aggregates, beside their peers.

- `hll`: HyperLogLog in Rust, Java and Python: nanoseconds for an insert, a merge, an estimate, and bytes; the
  formats are `log2m-11` and `log2m-14`.
- `sets`: two sets of ids, built, combined, written and opened; the formats `random-…` and `dense-…` say of how many.
- `pauses`: the longest of many inserts of a thousand ids each while a set grows.
- `unique`, `top_k`, …: an aggregate over ten million rows by a million groups, a hundred, and one.

`accuracy.py` beside this file measures and draws how far HyperLogLog's estimates are off; it measures no time.
"""

import dataclasses
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import harness
from harness import BENCH, ROOT, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "sketch"

RUST_HLL = ["tidemill", "tidemill-each", "cardinality-estimator", "hyperloglogplus", "hashset"]
JAVA_HLL = ["datasketches-java-4", "datasketches-java-8", "java-hll"]
PYTHON_HLL = ["tidemill-python", "datasketches-python-4", "datasketches-python-8", "python-set"]
RUST_SETS = ["tidemill", "tidemill-ids", "tidemill-idset", "roaring", "hashset", "hashbrown"]
PYTHON_SETS = ["pyroaring", "numpy", "python-set"]
PAUSES = ["tidemill", "hashset", "hashbrown"]
TABLES = ["duckdb", "polars"]
# Of numbers: they have no way to random ids.
DENSE_ONLY = {"tidemill-idset", "bitset"}
# More would not fit into memory: a hundred million random ids take a compressed set 10 to 21 GB.
RANDOM_IDS_MAX = {"roaring": 10_000_000, "pyroaring": 10_000_000}
IDS_MAX = {"python-set": 10_000_000}
OURS = {"tidemill", "tidemill-each", "tidemill-python", "tidemill-ids", "tidemill-idset"}
# Error of an estimate at which it is taken for wrong, in standard errors.
ERRORS_MAX = 5

# A step, its column, and how many of its unit are one of what the peers print.
COLUMNS = {
    "hll": [
        ("integers", "integer ns", 1),
        ("strings", "string ns", 1),
        ("merge", "merge µs", 1e-3),
        ("estimate after a merge", "estimate after it µs", 1e-3),
        ("estimate", "estimate ns", 1),
        ("serialize", "serialize µs", 1e-3),
        ("deserialize", "deserialize µs", 1e-3),
    ],
    "sets": [
        ("build", "build ms", 1e3),
        ("union", "union ms", 1e3),
        ("intersection", "intersection ms", 1e3),
        ("in both", "how many in both ms", 1e3),
        ("write", "write ms", 1e3),
        ("open", "open ms", 1e3),
    ],
    "pauses": [("half", "half of them µs", 1), ("99.9 %", "99.9 % of them µs", 1), ("longest", "longest µs", 1)],
}
SIZES = {"hll": [("bytes", "bytes", 1), ("memory", "in memory", 1)], "sets": [("memory", "memory MB", 1e-6), ("disk", "disk MB", 1e-6)], "pauses": []}


class Programs:
    """What runs a peer, built or installed when it is asked for first."""

    def __init__(self, settings: Settings):
        self.settings = settings

    @functools.cached_property
    def rust(self) -> list:
        return [harness.cargo_program(HERE / "peers", "bench-sketch", "the sketches")]

    @functools.cached_property
    def java(self) -> list:
        classpath = harness.java_classpath(self.settings.cache, HERE / "java", "sketch-java")
        return ["java", "-XX:+UseSerialGC", "-Xmx6g", "-cp", classpath]

    @functools.cached_property
    def python(self) -> list:
        return [harness.peers_python(HERE), "-I", HERE / "peers.py"]

    @functools.cached_property
    def tidemill_python(self) -> list:
        return [tidemill_python(), "-I", HERE / "peers.py"]

    def command(self, words: list) -> list:
        """Of words that name one of the above first."""
        return [*getattr(self, words[0]), *words[1:]]


@functools.cache
def tidemill_python() -> Path | None:
    """A Python that has Tidemill's package and NumPy: `$TIDEMILL_PYTHON`, or the one that the tests have made."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    path = Path(os.environ.get("TIDEMILL_PYTHON") or target / "venv" / "bin" / "python")
    code = "import numpy, tidemill; tidemill.Hll"
    try:
        asked = subprocess.run([path, "-I", "-c", code], capture_output=True)
    except OSError:
        asked = None
    if asked is None or asked.returncode != 0:
        say("no Python with `tidemill.Hll` (TIDEMILL_PYTHON names one): `tidemill-python` is left out")
        return None
    return path


# --------------------------------------------------------------------- cases


def questions():
    """How a question is put to an engine; the peers' scripts import the same file."""
    sys.path.insert(0, str(HERE))
    import questions

    return questions


def structures(settings: Settings) -> list[Case]:
    """What each peer measures by itself, a process for a peer and round."""
    found = []

    def case(name: str, variant: str, engines: dict[str, list], check) -> None:
        made = {
            engine: Engine(words, ours=engine in OURS, limit=engine == "copy") for engine, words in engines.items()
        }
        found.append(Case(name, variant, Path(), 0, 1, made, check))

    values = max(1000, settings.rows // 10)
    for log2m in (11, 14):
        engines = {peer: ["rust", "hll", peer, log2m, values] for peer in RUST_HLL}
        engines |= {peer: ["java", "tidemill.bench.Sketches", "hll", peer, log2m, values] for peer in JAVA_HLL}
        for peer in PYTHON_HLL:
            program = "tidemill_python" if peer == "tidemill-python" else "python"
            if program == "python" or settings.list_only or tidemill_python():
                engines[peer] = [program, "hll", peer, log2m, values]
        case("hll", f"log2m-{log2m}", engines, estimates_of(values))
    for kind in ("random", "dense"):
        for count in (max(1000, settings.rows // 10), settings.rows, 10 * settings.rows):
            # One folder for all: it is made anew for each run.
            folder = settings.cache / "scratch" / "sets"
            engines = {peer: ["rust", "sets", peer, kind, count, folder] for peer in [*RUST_SETS, "copy"]}
            engines["bitset"] = ["java", "tidemill.bench.Bits", count, folder]
            engines |= {peer: ["python", "sets", peer, kind, count, folder] for peer in PYTHON_SETS}
            engines = {
                peer: words
                for peer, words in engines.items()
                if (kind == "dense" or peer not in DENSE_ONLY)
                and (kind == "dense" or count <= RANDOM_IDS_MAX.get(peer, count))
                and count <= IDS_MAX.get(peer, count)
            }
            case("sets", f"{kind}-{count}", engines, same_sets())
    count = 10 * settings.rows
    engines = {peer: ["rust", "pauses", peer, count] for peer in PAUSES}
    case("pauses", f"thousands-{count}", engines, length_of(count))
    return found


def estimates_of(values: int):
    def check(run: Run, _: Engine) -> str | None:
        found = json.loads(run.stdout)
        most = ERRORS_MAX * found["error"] * values
        wrong = [estimate for estimate in found["estimates"] if not abs(estimate - values) <= most]
        return f"an estimate of {wrong[0]:,.0f} for {values:,}" if wrong else None

    return check


def same_sets():
    """Each peer has checked its sets against the ids; that the ids are the same is left."""
    first: dict[str, object] = {}

    def check(run: Run, engine: Engine) -> str | None:
        if engine.limit:
            return None
        found = json.loads(run.stdout)
        answer = {key: found[key] for key in ("both", "either", "parity")}
        return None if first.setdefault("answer", answer) == answer else f"{answer}, others {first['answer']}"

    return check


def length_of(count: int):
    def check(run: Run, _: Engine) -> str | None:
        length = json.loads(run.stdout)["length"]
        return None if length == count else f"{length:,} ids for {count:,}"

    return check


def prepare(settings: Settings) -> Path:
    """Makes the tables' data set if it is not there. Returns its folder."""
    folder = settings.cache / f"sketch-{settings.rows}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "columns.json").exists():
        say(f"making {settings.rows:,} rows in `{folder}` ...")
        command = [harness.peers_python(), HERE / "prepare.py", settings.rows, folder]
        if subprocess.run([str(word) for word in command]).returncode != 0:
            raise Failure("the data set could not be written (see above)")
    return folder


def tidemill_command(binary: Path, case: str, key: str, source: Path, output: Path) -> list:
    """The one place that knows tidemill's command line."""
    quoted = "'" + str(source).replace("'", "''") + "'"
    sql = questions().TIDEMILL[case].format(key=key, source=quoted)
    return [binary, "query", sql, "--format", "arrow", "-o", output, "--overwrite"]


def tables(settings: Settings, folder: Path, binaries: dict[str, Path]) -> list[Case]:
    python = harness.VENV / "bin" / "python"
    source = folder / "table.parquet"
    column_bytes = {} if settings.list_only else json.loads((folder / "columns.json").read_text())
    file_bytes = 1 if settings.list_only else source.stat().st_size
    found = []
    asked = questions()

    def checker(case: str, key: str):
        def check(run: Run, engine: Engine) -> str | None:
            command = [python, "-I", HERE / "check.py", case, key, source, engine.output]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode != 0:
                return done.stderr.strip().splitlines()[-1]
            return done.stdout.strip() or None

        return check

    for case, columns in asked.COLUMNS.items():
        for key in asked.KEYS:
            input_bytes = sum(column_bytes.get(column, 0) for column in [key, *columns])
            engines = {}
            for name, binary in binaries.items():
                output = settings.scratch() / f"{name}.{case}.{key}.arrow"
                engines[name] = Engine(tidemill_command(binary, case, key, source, output), output, ours=True)
            peers = [peer for peer in TABLES if case in asked.PEERS[peer]]
            words = [case, key, source]
            engines |= harness.peer_engines(HERE, peers, words, f"{case}.{key}.arrow", settings)
            found.append(Case(case, key, source, input_bytes, file_bytes, engines, checker(case, key)))
    return found


# ----------------------------------------------------------------- measuring


def in_rounds(case: Case, programs: Programs, settings: Settings) -> dict:
    """A process for each peer in each round; what it printed is what counts."""
    runs: dict[str, list[dict]] = {}
    failures: dict[str, str] = {}
    others = wall = 0.0
    folder = settings.scratch() / "sets"
    # Of a hundred million ids a peer takes minutes, in which it is warm long since.
    first = 1 if case.variant.endswith("-100000000") else 0
    for turn in range(first, settings.rounds + 1):
        for name, engine in case.engines.items():
            if name in failures:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                run = harness.measure(programs.command(engine.command), settings)
                wrong = case.check(run, engine)
                if wrong:
                    raise Failure(f"wrong answer: {wrong}")
            except Failure as failure:
                failures[name] = str(failure)
                runs.pop(name, None)
                say(f"  {case.name}, {case.variant}, {name}: FAILED: {failure}")
                continue
            label = f"round {turn} of {settings.rounds}" if turn else "warm-up"
            say(f"  {case.name}, {case.variant}, {label}: {name} {run.wall_s:.2f} s")
            if turn:
                others, wall = others + run.others_cpu_s, wall + run.wall_s
                found = json.loads(run.stdout)
                steps = next(found[unit] for unit in ("ns", "s", "us") if unit in found)
                sizes = {key: found[key] for key, _, _ in SIZES[case.name] if key in found}
                runs.setdefault(name, []).append({"steps": steps, "sizes": sizes, "wall_s": run.wall_s, "rss_bytes": run.rss_bytes})
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "case": case.name,
        "format": case.variant,
        "runs": runs,
        "failures": failures,
        "others": others / wall / harness.cores() if wall else 0.0,
    }


def structure_tables(result: dict) -> str:
    columns, sizes = COLUMNS[result["case"]], SIZES[result["case"]]
    rows, ratios = [], []
    for name, runs in result["runs"].items():
        cells = []
        for step, _, unit in columns:
            values = [run["steps"][step] * unit for run in runs if step in run["steps"]]
            cells.append(harness.spread(values) if values else "")
        for size, _, unit in sizes:
            values = [run["sizes"][size] * unit for run in runs if size in run["sizes"]]
            cells.append(harness.digits(statistics.median(values)) if values else "")
        rows.append([name, *cells])
    for name, failure in result["failures"].items():
        first = failure.splitlines()[0].replace("|", "\\|")
        rows.append([name, f"failed: {first}"[:90], *[""] * (len(columns) + len(sizes) - 1)])
    text = harness.table(["", *(title for _, title, _ in [*columns, *sizes])], rows)
    ours = next((name for name in ("tidemill", "tidemill-python") if name in result["runs"]), None)
    for name, theirs in result["runs"].items():
        # Within Python its own package is compared.
        mine = "tidemill-python" if "python" in name and "tidemill-python" in result["runs"] else ours
        if mine is None or name in OURS and name != "tidemill-ids":
            continue
        cells = []
        for step, _, _ in columns:
            pairs = zip(result["runs"][mine], theirs)
            values = [a["steps"][step] / b["steps"][step] for a, b in pairs if b["steps"].get(step)]
            cells.append(harness.spread(values) if values else "")
        ratios.append([f"{mine} / {name}", *cells])
    if ratios:
        text += "\n\nRatios of times, paired by round; below 1 tidemill is the faster one:\n\n"
        text += harness.table(["", *(title.rsplit(" ", 1)[0] for _, title, _ in columns)], ratios)
    share = 100 * result["others"]
    text += f"\n\nOther processes took {share:.0f} % of this machine's CPU time during the runs"
    return text + (": these figures will not compare." if share > 5 else ".")


def copy_speed(settings: Settings, report: Report) -> None:
    """What the machine copies at most: beside a union, that is a share of the possible."""
    program = harness.limits_program(settings)
    if program is None:
        return
    runs = []
    for _ in range(settings.rounds):
        printed = harness.measure([program, "copy", 1, 2], settings).stdout
        # The first touches its pages for the first time.
        runs += [json.loads(line) for line in printed.splitlines()][1:]
    rates = [run["bytes"] / run["work_s"] / 1e9 for run in runs]
    report.print(f"\nMemory is copied at {harness.spread(rates)} GB/s on one core (`limits`).")


def run(settings: Settings, report: Report) -> None:
    binaries = {"tidemill": Path("tidemill"), **settings.extra_binaries}
    listed = structures(settings) + tables(dataclasses.replace(settings, list_only=True), Path(), binaries)
    if settings.list_only:
        kinds = (
            dict.fromkeys(case.name for case in listed),
            dict.fromkeys(case.variant for case in listed),
            dict.fromkeys(name for case in listed for name in case.engines),
        )
        print("sketch: " + "; ".join(", ".join(kind) for kind in kinds))
        return
    chosen = [case for case in harness.select(listed, settings.only, settings.without) if any(not engine.limit for engine in case.engines.values())]
    programs = Programs(settings)
    if settings.prepare_only:
        for case in chosen:
            if case.name in COLUMNS:
                [programs.command(engine.command) for engine in case.engines.values()]
        harness.peers_python()
        prepare(settings)
        return
    results = []

    def note(result: dict) -> None:
        results.append(result)
        report.failed = report.failed or bool(result["failures"])
        report.add("sketch", {"rows": settings.rows, "results": results})

    pins = harness.peer_versions(HERE)
    for case in [case for case in chosen if case.name in COLUMNS]:
        say(f"{case.name}, {case.variant}")
        result = in_rounds(case, programs, settings)
        note(result)
        report.print(
            f"\n## sketch: {case.name}, {case.variant}\n\n"
            f"Rounds after a warm-up (none of 100,000,000 ids), in turn: {settings.rounds}. Figures: median (min–max). "
            f"Python's: {', '.join(f'{name} {version}' for name, version in pins.items())}.\n"
        )
        report.print(structure_tables(result))
        if case.name == "sets":
            copy_speed(settings, report)
    if not any(case.name not in COLUMNS for case in chosen):
        return
    binaries = harness.tidemill_binaries(settings)
    harness.peers_python()
    folder = prepare(settings)
    wanted = {(case.name, case.variant): set(case.engines) for case in chosen}
    measured = []
    for case in tables(settings, folder, binaries):
        engines = {name: engine for name, engine in case.engines.items() if name in wanted.get((case.name, case.variant), ())}
        if not engines:
            continue
        case.engines = engines
        say(f"{case.name}, {case.variant}: {case.input_bytes / 1e6:.0f} MB")
        result = harness.compare(case, settings)
        measured.append(result)
        note(result)
    report.print(
        f"\n## sketch: {settings.rows:,} rows, aggregated by {max(1, settings.rows // 10):,} groups, by 100 and by one\n\n"
        f"Rounds after a warm-up, engines in turn: {settings.rounds}. Figures: median (min–max). "
        f"Peers: {', '.join(f'{peer} {harness.peer_version(peer)}' for peer in TABLES)}.\n"
    )
    report.print(harness.comparison_tables(measured))
