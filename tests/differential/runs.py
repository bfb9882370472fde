"""Seeds judged one after the other, and in several processes at once."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import tempfile
import time
from collections import Counter

from .judge import Judge, cases, name_of
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
