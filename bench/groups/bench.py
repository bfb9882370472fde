"""Grouping: the ten questions of db-benchmark, and cost against the number of groups.

`q1` to `q10` over ten million rows of db-benchmark's shape, `sketches` (a median and a number of
different values for each of 100,000 groups), `stations` (413 groups of ten times as many rows of text),
`w1` to `w4`
(windows over 100,000 partitions of the ten million rows), and `u1` to `l10000000`: a count and a sum by one
key of so many values. The format `half` is Parquet with
about half of the memory that tidemill takes by itself; `billion` (only where `--only` names it) is a hundred times
as many rows, of ten times as many groups as `u10000000`, with one GB.
"""

import json
import subprocess
import sys
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "groups"
PEERS = ["duckdb", "polars", "datafusion", "chdb"]
FILES = ["ten.parquet", "ten.csv", "keys.parquet", "stations.csv", "columns.json"]

# What each question reads of the file.
COLUMNS = {
    "q1": ["id1", "v1"],
    "q2": ["id1", "id2", "v1"],
    "q3": ["id3", "v1", "v3"],
    "q4": ["id4", "v1", "v2", "v3"],
    "q5": ["id6", "v1", "v2", "v3"],
    "q6": ["id4", "id5", "v3"],
    "q7": ["id3", "v1", "v2"],
    "q8": ["id6", "v3"],
    "q9": ["id2", "id4", "v1", "v2"],
    "q10": ["id1", "id2", "id3", "id4", "id5", "id6", "v3"],
    "sketches": ["id3", "v2", "v3"],
    "w1": ["id6", "v3"],
    "w2": ["id6", "v3"],
    "w3": ["id3", "v1"],
    "w4": ["id6", "v1", "v3"],
}
# About half of what tidemill takes of memory where it may, in MB.
HALF = {"q3": 68, "q10": 600, "sketches": 160, "w2": 210, "u1000000": 68, "u10000000": 160, "s10000000": 200, "l10000000": 400}
BILLION_MB = 1000
KINDS = {"u": "uniform", "z": "zipf", "n": "nulls", "s": "short", "l": "long"}
COUNTS = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]


def questions():
    """How a question is put to an engine; the peers' scripts import the same file."""
    sys.path.insert(0, str(HERE))
    import questions

    return questions


def tidemill_command(binary: Path, case: str, source: Path, memory: int | None, output: Path) -> list:
    quoted = "'" + str(source).replace("'", "''") + "'"
    command = [binary, "query", questions().sql(case, "tidemill", quoted)]
    if case == "stations":
        command += ["--delimiter", ";"]
    if memory:
        command += ["--memory", f"{memory}MB"]
    return [*command, "--format", "arrow", "-o", output, "--overwrite"]


def prepare(settings: Settings) -> Path:
    """Makes the data set if it is not there. Returns its folder."""
    folder = settings.cache / f"groups-{settings.rows}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [*FILES, *(["billion.parquet", "billion.json"] if "billion" in settings.only else [])]
    if not all((folder / file).exists() for file in wanted):
        say(f"making {settings.rows:,} rows in `{folder}` ...")
        command = [harness.peers_python(), HERE / "prepare.py", settings.rows, folder]
        command += ["billion"] if "billion" in settings.only else []
        if subprocess.run([str(word) for word in command]).returncode != 0:
            raise Failure("the data set could not be written (see above)")
    return folder


def names() -> dict[str, list[str]]:
    """The formats of each case."""
    cases = {case: ["parquet", "csv"] for case in COLUMNS}
    cases["billion"] = ["half"]
    cases["stations"] = ["csv"]
    for kind in KINDS:
        cases |= {f"{kind}{count}": ["parquet"] for count in COUNTS}
    for case in HALF:
        cases[case].append("half")
    return cases


def cases(settings: Settings, folder: Path, binaries: dict[str, Path]) -> list[Case]:
    python = harness.VENV / "bin" / "python"
    column_bytes = json.loads((folder / "columns.json").read_text())
    found: list[Case] = []

    def checker(case: str, source: Path):
        def check(run: Run, engine: Engine) -> str | None:
            command = [python, "-I", HERE / "check.py", case, source, engine.output]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode != 0:
                return done.stderr.strip().splitlines()[-1]
            return done.stdout.strip() or None

        return check

    for case, formats in names().items():
        if case[0] in KINDS and case[1:].isdigit() and int(case[1:]) > settings.rows:
            continue
        if case == "billion" and "billion" not in settings.only:
            continue
        for format in formats:
            name = case if case in ("stations", "billion") else "ten" if case in COLUMNS else "keys"
            memory = None if format != "half" else BILLION_MB if case == "billion" else HALF[case]
            if memory:
                # Of fewer rows less.
                memory = max(68, memory * settings.rows // 10_000_000)
            stored = "parquet" if memory else format
            source = folder / f"{name}.{stored}"
            input_bytes = file_bytes = source.stat().st_size
            if stored == "parquet" and case != "billion":
                columns = COLUMNS.get(case) or [case, "v"]
                input_bytes = sum(column_bytes[source.name][column] for column in columns)
            engines = {}
            for name, binary in binaries.items():
                output = settings.scratch() / f"{name}.{case}.{format}.arrow"
                engines[name] = Engine(tidemill_command(binary, case, source, memory, output), output, ours=True)
            words = [case, stored, source, memory or "-"]
            # Polars takes no limit, and has no frame of a row's equals.
            peers = [peer for peer in PEERS if peer != "polars" or not memory and case != "w4"]
            engines |= harness.peer_engines(HERE, peers, words, f"{case}.{format}.arrow", settings)
            found.append(Case(case, format, source, input_bytes, file_bytes, engines, checker(case, source)))
    return harness.select(found, settings.only, settings.without)


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        binaries = {"tidemill": Path("tidemill"), **settings.extra_binaries}
        print("groups: " + "; ".join(", ".join(kind) for kind in (names(), ["parquet", "csv", "half"], [*binaries, *PEERS])))
        return
    binaries = {} if settings.prepare_only else harness.tidemill_binaries(settings)
    harness.peers_python()
    folder = prepare(settings)
    if settings.prepare_only:
        return
    results = []
    for case in cases(settings, folder, binaries):
        say(f"{case.name}, {case.variant}: {case.input_bytes / 1e6:.0f} MB")
        result = harness.compare(case, settings)
        results.append(result)
        report.failed = report.failed or bool(result["failures"])
        report.add("groups", {"rows": settings.rows, "folder": folder.name, "results": results})
    report.print(
        f"\n## groups: {settings.rows:,} rows\n\n"
        f"Rounds after a warm-up, engines in turn: {settings.rounds}. Figures: median (min–max). "
        f"Peers: {', '.join(f'{peer} {harness.peer_version(peer)}' for peer in PEERS)}.\n"
    )
    report.print(harness.comparison_tables(results))
