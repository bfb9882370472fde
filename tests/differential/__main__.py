"""Runs the judge for a given time, or over given seeds, or shows one case again.

Examples
--------
With the package's own Python, in `tests`::

    python -m differential --seconds 3600 --processes 2
    python -m differential --seed 17 --count 200
    python -m differential --show 'c-jt...'
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import sys
import tempfile

from .judge import Case, Judge
from .minimise import report
from .runs import STATEMENTS_PER_SEED, judged, together


def main() -> int:
    """Run as the flags say."""
    parser = argparse.ArgumentParser(prog="python -m differential")
    parser.add_argument("--seconds", type=float, help="how long; default: one seed alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="the first seed; default: a fresh one")
    parser.add_argument("--count", type=int, default=STATEMENTS_PER_SEED, help="of statements")
    parser.add_argument("--no-shrink", action="store_true", help="show what differs as it is")
    parser.add_argument("--show", metavar="CASE", help="show a case again")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 40)
    print(f"seed {arguments.seed}", flush=True)
    if arguments.show or arguments.seconds is None:
        with tempfile.TemporaryDirectory(prefix="differential-") as folder:
            os.environ["TIDEMILL_HOME"] = os.path.join(folder, "home")
            judge = Judge(pathlib.Path(folder))
            if arguments.show:
                case = Case.from_text(arguments.show)
                says = judge.difference(case)
                print(report(judge, case, says or "no difference"))
                found = [says] if says else []
            else:
                found = judged(judge, arguments.seed, arguments.count, not arguments.no_shrink)
                print(*found, sep="\n")
            counts = judge.counts
            judge.close()
    else:
        found, counts = together(arguments)
    for name, count in sorted(counts.items()):
        print(f"{count:8} {name}")
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
