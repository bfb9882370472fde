"""How soon an answer is within 5 and 1 % of the exact one, beside the exact run and peers' samples.

    TIDEMILL=… PEERS=… python3 bench/turbo/errors.py FOLDER [--bytes 10000000000] [--kinds flights,access,events]
        [--questions job,pages,…] [--samples 0.1,0.3,1,3,10] [--seeds 5] [--rounds 3] [--cold]
        [--without duckdb,polars,chdb] [--split-bytes 64k] [--json FILE]

FOLDER is what `prepare.py` filled. For each question (`questions.py`): the exact run (median of the rounds), then
answers of growing samples, of deadlines of a hundredth to a tenth of the exact time, and with `--error`, each with
several seeds. Time is the whole process's, from before its start to after its end.

- **error**: the median over the exact answer's groups of |answer − exact| / |exact|, for each measure; a group that is
  missing has an error of 100 %; groups whose exact measure is 0 or null are left out. Of several seeds the median.
- **hold**: of all intervals (both bounds) of all groups and seeds, how many percent hold the exact number, by measure.
  One-sided bounds are counted apart.
- **bounded**: of the groups that were found, how many have an interval.
- **found**: of the exact answer's groups.
- **to 5 %**: the time at which the error falls below, between the two samples around it, by straight lines through
  the logarithms; `<` where the smallest sample is below, and none where the largest is not.

With `--cold` the files are dropped from the page cache before each run, otherwise they are read into it once before each
question. DuckDB samples with `TABLESAMPLE SYSTEM`, Polars reads the wanted columns and samples their frame, chDB ends at
`max_execution_time`. What they count and sum is multiplied here by one over the share: the one that was asked for, of
chDB the rows that it read over all rows, which its user would not know. Their time is without their imports.
"""

import argparse
import csv
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import common
from common import INCOMPLETE, digits, median, table
from questions import FLAGS, PATTERNS, QUESTIONS, Question

DEADLINES = [1 / 100, 1 / 50, 1 / 20, 1 / 10]
DEADLINE_MS_MIN = 80
ERRORS = ["5%", "1%"]

Rows = dict[tuple, dict[str, float | None]]


def ours(question: Question, rows: list[dict[str, str]]) -> Rows:
    def number(text: str | None) -> float | None:
        return float(text) if text else None

    return {
        tuple(row[key] for key in question.keys): {
            name: number(text) for name, text in row.items() if name not in question.keys
        }
        for row in rows
    }


class Measuring:
    def __init__(self, given, question: Question, scratch: Path):
        self.given, self.question, self.scratch = given, question, scratch
        self.folder = given.folder / f"{question.kind}-{given.bytes}"
        self.files = sorted(self.folder.glob(PATTERNS[question.kind]))
        if not self.files:
            sys.exit(f"error: no {question.kind} in `{self.folder}`\nhint: make them with `prepare.py`")
        self.binary = common.tidemill()
        self.measured: list[dict] = []

    def tidemill(self, flags: list[str]) -> tuple[float, Rows, dict]:
        """The time, the answer and the coverage."""
        if self.given.cold:
            common.cache(self.files, True)
        coverage = self.scratch / "coverage.json"
        sql = self.question.sql(f"'{self.folder}/{PATTERNS[self.question.kind]}'")
        command = [self.binary, "query", sql, "--format", "csv", "--coverage", coverage]
        command += [*FLAGS[self.question.kind], *flags]
        if flags and self.given.split_bytes:
            command += ["--split-bytes", self.given.split_bytes]
        took, status, said = common.timed(command, self.given.timeout, self.scratch / "answer.csv")
        if status not in (0, INCOMPLETE) or (status == INCOMPLETE and not flags):
            sys.exit(f"error: {' '.join(map(str, command))}: status {status}: {said}")
        with open(self.scratch / "answer.csv", newline="") as file:
            rows = ours(self.question, list(csv.DictReader(file)))
        return took, rows, json.loads(coverage.read_text())

    def peer(self, engine: str, what: list[str]) -> tuple[float, Rows, dict]:
        if self.given.cold:
            common.cache(self.files, True)
        here = Path(__file__).resolve().parent
        command = [os.environ["PEERS"], here / "peer.py", engine, self.question.kind, self.question.name, self.folder, *what]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=self.given.timeout)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
        found = json.loads(done.stdout.splitlines()[-1])
        keys = len(self.question.keys)
        rows = {tuple(row[:keys]): dict(zip(self.question.measures, row[keys:])) for row in found["rows"]}
        return found["work_s"], rows, found


def errors(question: Question, exact: Rows, answer: Rows) -> dict[str, float]:
    """The median over the groups, by measure."""
    found = {}
    for name in question.measures:
        each = []
        for key, row in exact.items():
            if not row[name]:
                continue
            estimate = answer.get(key, {}).get(name)
            each.append(1.0 if estimate is None else abs(estimate - row[name]) / abs(row[name]))
        found[name] = median(each) if each else math.nan
    return found


def bounds(question: Question, exact: Rows, answer: Rows) -> dict[str, dict[str, int]]:
    """Of each measure: groups, those with an interval, those whose interval holds, and one-sided bounds."""
    found = {}
    for name in question.measures:
        counts = dict(groups=0, intervals=0, hold=0, sided=0, sided_hold=0)
        for key, row in answer.items():
            truth = exact.get(key, {}).get(name)
            if truth is None:
                continue
            counts["groups"] += 1
            low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
            # An answer is written with fewer digits than it has.
            slack = 1e-9 * abs(truth)
            holds = (low is None or low <= truth + slack) and (high is None or truth - slack <= high)
            if low is not None and high is not None:
                counts["intervals"] += 1
                counts["hold"] += holds
            elif low is not None or high is not None:
                counts["sided"] += 1
                counts["sided_hold"] += holds
        found[name] = counts
    return found


def scaled(question: Question, answer: Rows, share: float) -> Rows:
    def one(name: str, value: float | None) -> float | None:
        return value / share if value is not None and name in question.totals else value

    return {key: {name: one(name, value) for name, value in row.items()} for key, row in answer.items()}


def crossing(points: list[tuple[float, float]], error: float) -> str | tuple[str, float]:
    """The time at which the error falls below a bound, of (time, error) by growing samples."""
    if points[0][1] <= error:
        return "< ", points[0][0]
    for (t1, e1), (t2, e2) in itertools.pairwise(points):
        if e2 <= error < e1:
            part = (math.log(e1) - math.log(error)) / (math.log(e1) - math.log(max(e2, 1e-9)))
            return "", math.exp(math.log(t1) + part * (math.log(t2) - math.log(t1)))
    return "", math.nan


def percent(share: float) -> str:
    return "" if math.isnan(share) else f"{100 * share:.3g} %"


def measure(given, question: Question, scratch: Path, kept: list) -> None:
    it = Measuring(given, question, scratch)
    if not given.cold:
        common.cache(it.files, False)
    size = sum(path.stat().st_size for path in it.files)
    times = []
    for turn in range(given.rounds + (0 if given.cold else 1)):
        took, exact, _ = it.tidemill([])
        if given.cold or turn > 0:
            times.append(took)
    exact_s = median(times)
    rows, crossings = [], []
    cached = "cold" if given.cold else "warm"
    print(f"\n### {question.kind}, {question.name}: {size / 1e9:.3g} GB in {len(it.files)} files, {cached}\n")
    print(f"`{question.sql('…')}`\n\nExact: {digits(exact_s)} s, {len(exact):,} groups.\n")
    kept.append(dict(kind=question.kind, question=question.name, cached=cached, exact_s=times, groups=len(exact)))

    def add(engine: str, what: str, runs: list[tuple[float, Rows, float, str]], is_point: bool) -> tuple | None:
        taken = median([run[0] for run in runs])
        each = [errors(question, exact, run[1]) for run in runs]
        held = [bounds(question, exact, run[1]) for run in runs]
        found = median([sum(key in exact for key in run[1]) / len(exact) for run in runs])
        row = [engine, what, digits(taken), percent(taken / exact_s), percent(median([run[2] for run in runs]))]
        error = {name: median([one[name] for one in each]) for name in question.measures}
        row += [percent(error[name]) for name in question.measures]
        total = {key: sum(one[name][key] for one in held for name in one) for key in ("groups", "intervals", "hold", "sided", "sided_hold")}
        # Of the measures that have intervals at all.
        of = sum(one[name]["groups"] for one in held for name in one if any(other[name]["intervals"] for other in held))
        by_measure = {name: [sum(one[name][key] for one in held) for key in ("hold", "intervals")] for name in question.measures}
        row += [" / ".join(f"{100 * hold / count:.1f}" for hold, count in by_measure.values() if count)]
        row += [percent(total["intervals"] / of) if of else ""]
        row += [percent(total["sided_hold"] / total["sided"]) if total["sided"] else "", percent(found)]
        rows.append([*row, runs[0][3]])
        kept.append(dict(
            kind=question.kind, question=question.name, cached=cached, engine=engine, what=what, times_s=[run[0] for run in runs],
            shares=[run[2] for run in runs], errors=each, bounds=held, found=found,
        ))
        print(f"  {engine} {what}: {digits(taken)} s", file=sys.stderr, flush=True)
        return (taken, error) if is_point else None

    def own(what: str, flags: list[str], is_point: bool) -> tuple | None:
        runs = []
        for seed in range(given.seeds):
            took, answer, coverage = it.tidemill([*flags, "--seed", str(seed)])
            sampled = coverage.get("sampled") or {"share": 1.0}
            runs.append((took, answer, sampled["share"], "scaled" if sampled.get("scaled") else "not scaled"))
        return add("tidemill", what, runs, is_point)

    points = [own(f"--sample {share:g}%", ["--sample", f"{share:g}%"], True) for share in given.samples]
    for part in DEADLINES:
        ms = max(1, round(1000 * exact_s * part))
        # In less the files cannot even be listed and looked into.
        if ms < DEADLINE_MS_MIN:
            continue
        try:
            own(f"--deadline {ms}ms", ["--deadline", f"{ms}ms"], False)
        except RuntimeError as failure:
            # Nothing is known of the files by then: an error, and no answer.
            if "before the deadline" not in str(failure):
                raise
            rows.append(["tidemill", f"--deadline {ms}ms", "no answer", *[""] * (len(question.measures) + 7)])
    for error in ERRORS:
        # Where nothing has an interval there is nothing to wait for.
        own(f"--error {error}", ["--error", error], False)
    for name in question.measures:
        row = ["tidemill", name]
        for error in (0.05, 0.01):
            sign, at = crossing([(taken, each[name]) for taken, each in points], error)
            row += ["", ""] if math.isnan(at) else [f"{sign}{digits(at)}", f"{sign}{percent(at / exact_s)}"]
        crossings.append(row)

    for engine in given.peers:
        try:
            took, answer, said = it.peer(engine, [])
            add(engine, "exact", [(took, answer, 1.0, said["says"])], False)
            all_rows, theirs_s = said["rows_read"], took
            if engine == "chdb":
                for part in [1 / 20, 1 / 5, 1 / 2]:
                    runs = []
                    for _ in range(min(3, given.seeds)):
                        took, answer, said = it.peer(engine, [f"{theirs_s * part:.3f}"])
                        share = max(said["rows_read"], 1) / all_rows
                        runs.append((took, scaled(question, answer, share), share, said["says"]))
                    add(engine, f"max_execution_time = {theirs_s * part:.2g}", runs, False)
                continue
            for share in given.samples:
                runs = []
                for seed in range(min(3, given.seeds)):
                    took, answer, said = it.peer(engine, [str(share / 100), str(seed)])
                    runs.append((took, scaled(question, answer, share / 100), share / 100, said["says"]))
                add(engine, f"sample of {share:g} %", runs, False)
        except (RuntimeError, subprocess.TimeoutExpired) as failure:
            print(f"{engine} failed: {failure}", file=sys.stderr)
            rows.append([engine, "failed", *[""] * (len(question.measures) + 7), str(failure)[:80].replace("|", "\\|")])
    names = [f"error of {name}" for name in question.measures]
    print(table(["engine", "asked for", "s", "of exact", "read", *names, "hold, %", "bounded", "one-sided hold", "found", "says"], rows, 2))
    print()
    print(table(["engine", "measure", "s to 5 %", "of exact", "s to 1 %", "of exact"], crossings, 2), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=10_000_000_000)
    parser.add_argument("--kinds", default="flights,access,events")
    parser.add_argument("--questions", default=",".join(question.name for question in QUESTIONS))
    parser.add_argument("--samples", default="0.1,0.3,1,3,10")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--without", default="")
    parser.add_argument("--split-bytes")
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.samples = [float(share) for share in given.samples.split(",")]
    given.peers = [peer for peer in common.peers() if peer not in given.without.split(",")]
    print(common.head(["python3", "bench/turbo/errors.py", *sys.argv[1:]]))
    kept: list[dict] = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TIDEMILL_HOME"] = f"{scratch}/home"
        for question in QUESTIONS:
            if question.kind in given.kinds.split(",") and question.name in given.questions.split(","):
                measure(given, question, Path(scratch), kept)
                common.keep(given.json, kept)


if __name__ == "__main__":
    main()
