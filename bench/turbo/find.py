"""How soon one row among a thousand files is found: `--find 1`, over seeds.

    TIDEMILL=… python3 bench/turbo/find.py FOLDER [--seeds 50] [--cold] [--json FILE]

FOLDER is what `prepare.py --kinds small` filled: 1,000 files of 1 MB, and in the middle of the last of them the only row with
the key `needle`. Reading all of it is the same query without `--find`; `LIMIT 1` reads the files in their order. One row is
anywhere with equal chances, so that its mean is half of reading all.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import common
from common import digits, median, percentile, table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    binary = common.tidemill()
    files = sorted((given.folder / "small").glob("*.csv"))
    if not files:
        sys.exit(f"error: no files in `{given.folder}/small`\nhint: make them with `prepare.py --kinds small`")
    print(common.head(["python3", "bench/turbo/find.py", *sys.argv[1:]]) + "\n")
    sql = f"SELECT * FROM '{files[0].parent}/*.csv' WHERE key = 'needle'"
    seeded = [["--find", "1", "--seed", str(seed)] for seed in range(given.seeds)]
    ways = {"all of it": [(sql, [])] * 5, "`LIMIT 1`": [(f"{sql} LIMIT 1", [])] * 5, "`--find 1`": [(sql, flags) for flags in seeded]}
    rows, kept = [], {}
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        os.environ["TIDEMILL_HOME"] = f"{scratch}/home"
        common.cache(files, False)
        for way, runs in ways.items():
            kept[way] = []
            for asked, flags in runs:
                if given.cold:
                    common.cache(files, True)
                command = [binary, "query", asked, "--format", "csv", *flags]
                took, status, said = common.timed(command, 600, Path(scratch) / "answer.csv")
                answer = (Path(scratch) / "answer.csv").read_text()
                if status != 0 or answer != "key,value\nneedle,1\n":
                    sys.exit(f"error: {' '.join(map(str, command))}: status {status}: {answer[:100]} {said}")
                kept[way].append(took)
            mean = statistics.fmean(kept[way])
            share = mean / statistics.fmean(kept["all of it"])
            spread = [digits(of(kept[way])) for of in (min, median, lambda it: percentile(it, 0.99), max)]
            rows.append([way, str(len(runs)), digits(mean), f"{100 * share:.0f} %", *spread])
    print(table(["", "runs", "mean s", "of reading all", "least", "median", "99 %", "most"], rows))
    common.keep(given.json, kept)


if __name__ == "__main__":
    main()
