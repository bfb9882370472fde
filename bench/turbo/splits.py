"""What many small tasks cost: the same bytes in 100,000 splits and in about 100.

    TIDEMILL=… python3 bench/turbo/splits.py FOLDER [--small 10000] [--large 10000000] [--rounds 5] [--threads 2] [--json FILE]

FOLDER is what `prepare.py --kinds small` filled: 1,000 files of 1 MB, in the page cache. All of them are read, with a deadline of
an hour; how many splits there were is what the coverage says. Beside them the exact run without a deadline, which cuts as it
likes, one with `--split-bytes` of a file each, and one whose 1 GB is in 100 files.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import common
from common import digits, table
from harness import spread


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    binary = common.tidemill()
    files = sorted((given.folder / "small").glob("*.csv"))
    if not files:
        sys.exit(f"error: no files in `{given.folder}/small`\nhint: make them with `prepare.py --kinds small`")
    print(common.head(["python3", "bench/turbo/splits.py", *sys.argv[1:]]) + "\n")
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch_name:
        scratch = Path(scratch_name)
        os.environ["TIDEMILL_HOME"] = f"{scratch}/home"
        # Ten files in one: what a split of 10 MB reads.
        joined = scratch / "joined"
        joined.mkdir()
        for number in range(0, len(files), 10):
            with open(joined / f"{number:04}.csv", "wb") as written:
                for place, path in enumerate(files[number : number + 10]):
                    text = path.read_bytes()
                    written.write(text if place == 0 else text[text.index(b"\n") + 1 :])
        hour = ["--deadline", "1h"]
        ways = {
            "1,000 files, exact": (files[0].parent, []),
            f"1,000 files, splits of {given.small:,} B": (files[0].parent, [*hour, "--split-bytes", str(given.small)]),
            f"1,000 files, splits of {given.large:,} B": (files[0].parent, [*hour, "--split-bytes", str(given.large)]),
            f"100 files, splits of {given.large:,} B": (joined, [*hour, "--split-bytes", str(given.large)]),
            f"100 files, splits of {given.small:,} B": (joined, [*hour, "--split-bytes", str(given.small)]),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        splits, answers = {}, {}
        common.cache([*files, *joined.iterdir()], False)
        for turn in range(given.rounds + 1):
            for way, (folder, flags) in ways.items():
                coverage = scratch / "coverage.json"
                sql = f"SELECT key, count(*) AS n, sum(value) AS value FROM '{folder}/*.csv' GROUP BY key ORDER BY key"
                command = [binary, "query", sql, "--format", "csv", "--threads", given.threads, "--no-intervals", "--coverage", coverage, *flags]
                if not flags:
                    command.remove("--no-intervals")
                took, status, said = common.timed(command, 600, scratch / "answer.csv")
                if status != 0:
                    sys.exit(f"error: {' '.join(map(str, command))}: status {status}: {said}")
                splits[way] = json.loads(coverage.read_text())["splits"]["total"]
                answers[way] = (scratch / "answer.csv").read_text()
                if turn > 0:
                    times[way].append(took)
                print(f"  {way}: {took:.2f} s", file=sys.stderr, flush=True)
        if len(set(answers.values())) > 1:
            sys.exit("error: the answers differ")
        rows, base = [], times[f"1,000 files, splits of {given.large:,} B"]
        for way, taken in times.items():
            more = [one - other for one, other in zip(taken, base)]
            rows.append([way, f"{splits[way]:,}", spread(taken), digits_signed(common.median(more))])
        print(table(["read as", "splits", "s", "more than in large splits, s"], rows))
        common.keep(given.json, dict(times=times, splits=splits))


def digits_signed(value: float) -> str:
    return ("−" if value < 0 else "+") + digits(abs(value))


if __name__ == "__main__":
    main()
