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
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter

from .judge import Case, Judge, cases, name_of
from .minimise import minimised, report

STATEMENTS_PER_SEED = 12


def judged(judge: Judge, seed: int, count: int, shrink: bool) -> list[str]:
    """Judges a seed; gives what there is to say of each difference that is new."""
    found = []
    for case in cases(seed, count):
        judge.counts["cases"] += 1
        judge.counts[f"check {case.check}"] += 1
        says = judge.difference(case)
        if says is None:
            continue
        name = name_of(case, says)
        if name is not None:
            judge.counts[f"known: {name}"] += 1
            continue
        judge.counts["DIFFERENT"] += 1
        # The generator goes on with these tables.
        if shrink:
            case, says = minimised(judge, case, says)
        found.append(f"seed {seed}: {report(judge, case, says)}")
    return found


def worker(number: int, arguments: argparse.Namespace, results: multiprocessing.SimpleQueue) -> None:
    """Judges seed after seed until the time is over."""
    end = time.monotonic() + arguments.seconds
    seed = arguments.seed + number
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        os.environ["TIDEMILL_HOME"] = os.path.join(folder, "home")
        os.environ["TIDEMILL_JOB_LOG"] = "off"
        judge = Judge(pathlib.Path(folder))
        while time.monotonic() < end:
            for text in judged(judge, seed, STATEMENTS_PER_SEED, not arguments.no_shrink):
                results.put(("found", text))
            judge.counts["seeds"] += 1
            seed += arguments.processes
        judge.close()
    results.put(("counts", (judge.counts, time.process_time())))


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


def together(arguments: argparse.Namespace) -> tuple[list[str], Counter[str]]:
    """Several processes at once."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    started = [
        context.Process(target=worker, args=(number, arguments, results))
        for number in range(arguments.processes)
    ]
    for process in started:
        process.start()
    found: list[str] = []
    counts: Counter[str] = Counter()
    left, seconds = len(started), 0.0
    while left:
        if results.empty():
            # One that died says nothing more, and is a difference too.
            dead = [process for process in started if process.exitcode not in (None, 0)]
            if dead:
                for process in started:
                    process.terminate()
                found.append(f"a process ended with {dead[0].exitcode}")
                print(found[-1], flush=True)
                break
            time.sleep(0.1)
            continue
        kind, what = results.get()
        if kind == "found":
            found.append(what)
            print(what, flush=True)
        else:
            counts += what[0]
            seconds += what[1]
            left -= 1
    for process in started:
        process.join()
    print(f"{seconds:.0f} seconds of processor time")
    return found, counts


if __name__ == "__main__":
    sys.exit(main())
