"""Joins: the 22 queries of TPC-H over Parquet, scale 1 for each ten million `--rows`.

Every answer is checked against DuckDB's.
"""

import subprocess
import sys
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "tpch"
PEERS = ["duckdb", "datafusion"]


def queries():
    """The queries; the peers' scripts import the same file."""
    sys.path.insert(0, str(HERE))
    import queries

    return queries


def tidemill_command(binary: Path, case: str, folder: Path, output: Path) -> list:
    words = queries()
    quoted = {table: "'" + str(folder / f"{table}.parquet").replace("'", "''") + "'" for table in words.TABLES}
    return [binary, "query", words.sql(case, quoted), "--format", "arrow", "-o", output, "--overwrite"]


def prepare(settings: Settings) -> Path:
    """Makes the tables if they are not there. Returns their folder."""
    scale = settings.rows / 10_000_000
    folder = settings.cache / f"tpch-{scale:g}"
    if not folder.exists():
        say(f"making the tables of TPC-H at scale {scale:g} in `{folder}` ...")
        partial = folder.with_name(folder.name + ".tmp")
        harness.peers_python()
        command = [harness.VENV / "bin" / "tpchgen-cli", "parquet", "--quiet", "-s", f"{scale:g}"]
        command += ["--output-dir", partial]
        if subprocess.run([str(word) for word in command]).returncode != 0:
            raise Failure("the tables could not be written (see above)")
        partial.rename(folder)
    return folder


def cases(settings: Settings, folder: Path, binaries: dict[str, Path]) -> list[Case]:
    python = harness.VENV / "bin" / "python"
    found: list[Case] = []

    def checker(case: str):
        def check(run: Run, engine: Engine) -> str | None:
            command = [python, "-I", HERE / "check.py", case, folder, engine.output]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode != 0:
                return done.stderr.strip().splitlines()[-1]
            return done.stdout.strip() or None

        return check

    for case, text in queries().QUERIES.items():
        tables = [table for table in queries().TABLES if "{" + table + "}" in text]
        files = [folder / f"{table}.parquet" for table in tables]
        largest = max(files, key=lambda file: file.stat().st_size)
        engines = {}
        for name, binary in binaries.items():
            output = settings.scratch() / f"{name}.{case}.arrow"
            engines[name] = Engine(tidemill_command(binary, case, folder, output), output, ours=True)
        engines |= harness.peer_engines(HERE, PEERS, [case, folder], f"{case}.arrow", settings)
        # Which columns are read is the engines' own affair: no rate is given.
        found.append(Case(case, "parquet", largest, 0, largest.stat().st_size, engines, checker(case)))
    return harness.select(found, settings.only, settings.without)


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        binaries = {"tidemill": Path("tidemill"), **settings.extra_binaries}
        print("tpch: " + "; ".join(", ".join(kind) for kind in (queries().QUERIES, ["parquet"], [*binaries, *PEERS])))
        return
    binaries = {} if settings.prepare_only else harness.tidemill_binaries(settings)
    harness.peers_python()
    folder = prepare(settings)
    if settings.prepare_only:
        return
    results = []
    for case in cases(settings, folder, binaries):
        say(case.name)
        result = harness.compare(case, settings)
        results.append(result)
        report.failed = report.failed or bool(result["failures"])
        report.add("tpch", {"folder": folder.name, "results": results})
    report.print(
        f"\n## tpch: {folder.name}\n\n"
        f"Rounds after a warm-up, engines in turn: {settings.rounds}. Figures: median (min–max). "
        f"Peers: {', '.join(f'{peer} {harness.peer_version(peer)}' for peer in PEERS)}.\n"
    )
    report.print(harness.comparison_tables(results))
