"""The demo's job over 10 million flights, as CSV, JSON lines and Parquet.

Four cases: `job` is the demo's, `sketches` the same without its list of commonest
destinations (for which DataFusion has no aggregate and reads the input twice),
`sums` plain counts and sums, `count` nothing but `count(*)`.
"""

import json
import subprocess
from pathlib import Path

import harness
from harness import BENCH, Case, Engine, Failure, Report, Run, Settings, say

HERE = BENCH / "flights"
FORMATS = ["csv", "json", "parquet"]
PEERS = ["duckdb", "polars", "datafusion", "chdb"]
SOURCE_ROWS = 336_776

BY = "origin, year, month, day"
SKETCHES = (
    "unique(tailnum) AS aircraft, count(*) AS flights, "
    "quantile(dep_delay, 0.5) AS median_delay, quantile(dep_delay, 0.95) AS p95"
)
# What tidemill is asked; each peer's own words are in `peer_*.py`.
CASES = {
    "job": f"SELECT {BY}, {SKETCHES}, top_k(dest, 5) AS top FROM {{source}} GROUP BY {BY}",
    "sketches": f"SELECT {BY}, {SKETCHES} FROM {{source}} GROUP BY {BY}",
    "sums": f"SELECT {BY}, count(*) AS flights, sum(distance) AS distance FROM {{source}} GROUP BY {BY}",
    "count": "SELECT count(*) AS flights FROM {source}",
}

# The columns that a case needs: of a Parquet file an engine reads only these.
KEYS = ["origin", "year", "month", "day"]
COLUMNS = {
    "job": [*KEYS, "tailnum", "dep_delay", "dest"],
    "sketches": [*KEYS, "tailnum", "dep_delay"],
    "sums": [*KEYS, "distance"],
    "count": [],
}


def tidemill_command(binary: Path, sql: str, format: str, source: Path, output: Path) -> list:
    """The one place that knows tidemill's command line."""
    quoted = "'" + str(source).replace("'", "''") + "'"
    command = [binary, "query", sql.format(source=quoted)]
    command += ["--format", "csv", "-o", output, "--overwrite"]
    if format == "csv":
        command += ["--null", "NA"]
    return command


def copies(settings: Settings) -> int:
    return -(-settings.rows // SOURCE_ROWS)


def prepare(settings: Settings) -> Path:
    """Makes the data set if it is not there. Returns its folder."""
    folder = settings.cache / f"flights-{copies(settings) * SOURCE_ROWS}"
    folder.mkdir(parents=True, exist_ok=True)
    files = [*(f"flights.{format}" for format in FORMATS), "columns.json"]
    if not all((folder / file).exists() for file in files):
        say(f"making {copies(settings) * SOURCE_ROWS:,} flights in `{folder}` ...")
        command = [harness.peers_python(), HERE / "prepare.py"]
        command += [harness.peers_site_packages(), copies(settings), folder]
        if subprocess.run([str(word) for word in command]).returncode != 0:
            raise Failure("the data set could not be written (see above)")
    return folder


def cases(settings: Settings, folder: Path, binaries: dict[str, Path]) -> list[Case]:
    limits = harness.limits_program(settings)
    reference = None
    found: list[Case] = []

    def checker(case: str):
        def check(run: Run, engine: Engine) -> str | None:
            nonlocal reference
            if engine.limit:
                return check_limit(run)
            if reference is None:
                from_file = load_reference()
                reference = from_file(harness.peers_site_packages(), copies(settings))
            answer = reference.check(case, engine.output)
            run.accuracy = answer.accuracy
            return answer.wrong

        return check

    def check_limit(run: Run) -> str | None:
        result = json.loads(run.stdout)
        if result["limit"] == "read":
            return None
        lines = copies(settings) * SOURCE_ROWS
        return None if result["newlines"] - lines in (0, 1) else f"{result['newlines']} lines"

    column_bytes = json.loads((folder / "columns.json").read_text())
    for case, sql in CASES.items():
        for format in FORMATS:
            source = folder / f"flights.{format}"
            engines = {}
            file_bytes = source.stat().st_size
            input_bytes = file_bytes
            if format == "parquet":
                input_bytes = sum(column_bytes[name] for name in COLUMNS[case])
            if limits and input_bytes:
                limit = "read" if format == "parquet" else "scan"
                engines["limit"] = Engine([limits, limit, 0, 1, source], limit=True)
            for name, binary in binaries.items():
                output = settings.scratch() / f"{name}.{case}.{format}.csv"
                command = tidemill_command(binary, sql, format, source, output)
                engines[name] = Engine(command, output, ours=True)
            words = [case, format, source]
            engines |= harness.peer_engines(HERE, PEERS, words, f"{case}.{format}.csv", settings)
            found.append(Case(case, format, source, input_bytes, file_bytes, engines, checker(case)))
    return harness.select(found, settings.only, settings.without)


def accuracy_table(results: list[dict]) -> str | None:
    rows = []
    for result in results:
        for name, runs in result["runs"].items():
            worst: dict[str, float] = {}
            for run in runs:
                for key, value in run["accuracy"].items():
                    pick = min if key == "top_exact_share" else max
                    worst[key] = pick(value, worst.get(key, value))
            if worst:
                cells = [
                    f"{100 * worst[key]:.1f} %" if key in worst else ""
                    for key in ("aircraft_error_rms", "aircraft_error_max", "top_exact_share")
                ]
                rows.append([result["case"], result["format"], name, *cells])
    head = ["case", "format", "engine", "aircraft, rms", "aircraft, worst", "top 5 exact"]
    return harness.table(head, rows, 3) if rows else None


def load_reference():
    import sys

    sys.path.insert(0, str(HERE))
    from reference import Reference

    return Reference


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        binaries = {"tidemill": Path("tidemill"), **settings.extra_binaries}
        names = list(CASES), FORMATS, [*binaries, *PEERS]
        print("flights: " + "; ".join(", ".join(kind) for kind in names))
        return
    binaries = {} if settings.prepare_only else harness.tidemill_binaries(settings)
    harness.peers_python()
    folder = prepare(settings)
    if settings.prepare_only:
        return
    results = []
    rows = copies(settings) * SOURCE_ROWS
    for case in cases(settings, folder, binaries):
        say(f"{case.name}, {case.variant}: {case.input_bytes / 1e6:.0f} MB")
        result = harness.compare(case, settings)
        results.append(result)
        report.failed = report.failed or bool(result["failures"])
        report.add("flights", {"rows": rows, "folder": folder.name, "results": results})
    report.print(
        f"\n## flights: the demo's job over {rows:,} rows\n\n"
        f"Rounds after a warm-up, engines in turn: {settings.rounds}. Figures: median (min–max). "
        f"Peers: {', '.join(f'{peer} {harness.peer_version(peer)}' for peer in PEERS)}.\n"
    )
    report.print(harness.comparison_tables(results))
    accuracy = accuracy_table(results)
    if accuracy:
        report.print(
            "\nHow close the answers are: the error of the number of aircraft over the groups, and "
            "the share of groups\nwhose five commonest destinations are the true ones.\n"
        )
        report.print(accuracy)
