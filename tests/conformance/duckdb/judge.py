"""Runs files in processes of their own, and gathers the verdicts."""

from __future__ import annotations

import fnmatch
import multiprocessing
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from . import machinery, worker
from .intended import INTENDED, Intended

DIRECTORIES = (
    "aggregate cast conjunction cte filter function join limit order overflow pivot projection "
    "select setops subquery topn window"
).split()
OUTCOMES = ("same", "refused", "different", "not compared", "internal", "no end")
ENGINE = "conformance.duckdb.engine:run_query"
# Queries without an end after which the rest of a file is left out.
HANGS_MAX = 5


@dataclass(frozen=True)
class TimeLimits:
    """Time that a query and a file may take."""

    query_seconds: float = 20
    file_seconds: float = 120

    def for_query(self, sql: str) -> float | None:
        """Return the limit of a query; None for none."""
        return self.query_seconds

    def for_file(self) -> float | None:
        """Return the limit of a file; None for none."""
        return self.file_seconds


@dataclass
class FileVerdict:
    """The verdicts on a file's queries."""

    name: str
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    # Why the file, or the rest of it, was left out.
    left_out: str = ""
    uncounted: dict[str, int] = field(default_factory=dict)
    # Intended differences that cover one of the verdicts.
    used_entries: set[Intended] = field(default_factory=set)

    @property
    def directory(self) -> str:
        """The directory that the file counts for."""
        return self.name.split("/")[0]


def find_files(
    root: pathlib.Path, directories: Sequence[str], pattern: str = "*"
) -> list[pathlib.Path]:
    """The files of some directories whose path matches a pattern."""
    tests = root / "test" / "sql"
    found = [path for name in directories for path in sorted((tests / name).rglob("*.test"))]
    wanted = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    return [it for it in found if fnmatch.fnmatchcase(it.relative_to(tests).as_posix(), wanted)]


def judge_all(
    root: pathlib.Path,
    paths: Sequence[pathlib.Path],
    *,
    processes: int = 2,
    limits: TimeLimits | None = None,
    engine: str = ENGINE,
    with_errors: bool = False,
    entries: Sequence[Intended] = INTENDED,
) -> Iterator[FileVerdict]:
    """Judge files, several at a time, and yield the verdict on each once it is there."""
    limits = limits or TimeLimits()
    pool = ThreadPoolExecutor(processes)
    try:
        runs = [
            pool.submit(judge_file, root, path, limits, engine, with_errors, entries)
            for path in paths
        ]
        for run in as_completed(runs):
            yield run.result()
    finally:
        # After Ctrl-C the files that are under way are finished, and no others.
        pool.shutdown(cancel_futures=True)


def judge_file(
    root: pathlib.Path,
    path: pathlib.Path,
    limits: TimeLimits,
    engine: str = ENGINE,
    with_errors: bool = False,
    entries: Sequence[Intended] = INTENDED,
) -> FileVerdict:
    """Judge a file; a query without an end ends its process, and another goes on behind it."""
    tests = root / "test" / "sql"
    verdict = FileVerdict(
        path.relative_to(tests).as_posix() if tests in path.parents else path.name
    )
    deadline = None if limits.for_file() is None else time.monotonic() + limits.for_file()
    judged_count = hangs = 0
    while True:
        seconds = limits.for_query("") or 3600
        task = worker.Task(root, path, engine, judged_count, seconds, with_errors)
        in_flight = run_process(task, verdict, limits, deadline)
        if in_flight is None:
            break
        hangs += 1
        judged_count = in_flight
        if hangs == HANGS_MAX:
            verdict.left_out = f"{hangs} queries ended the process"
            break
    verdict.verdicts = [it for it in verdict.verdicts if it["outcome"] != "uncounted"]
    names = machinery.macro_names(path.read_text(errors="replace"))
    for query in verdict.verdicts:
        query["file"] = verdict.name
        if kinds := machinery.needed_machinery(query, names):
            query["needs"] = kinds
    verdict.used_entries = explain(verdict.verdicts, entries)
    return verdict


def run_process(
    task: worker.Task, verdict: FileVerdict, limits: TimeLimits, deadline: float | None
) -> int | None:
    """Run a process, and return the number of the query at which it had to be ended, if any."""
    # The folder is the parent's: a child that is killed cannot remove it.
    folder = tempfile.mkdtemp(prefix="duckdb-suite-")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["conformance.duckdb.worker"])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=worker.run, args=(task, there, folder), daemon=True)
    try:
        process.start()
        there.close()
        return follow(process, here, verdict, limits, deadline)
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        here.close()
        shutil.rmtree(folder, ignore_errors=True)


def follow(
    process: Any,
    connection: Connection,
    verdict: FileVerdict,
    limits: TimeLimits,
    deadline: float | None,
) -> int | None:
    """Read the messages of a process until it ends or has to be ended."""
    asking: dict[str, Any] | None = None
    while True:
        limit = None if asking is None else limits.for_query(asking["sql"])
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        waits = [seconds for seconds in (limit, left) if seconds is not None]
        if not connection.poll(min(waits) if waits else None):
            if asking is not None and limit is not None and (left is None or limit <= left):
                message = f"no answer within {limit:g} s"
                verdict.verdicts.append(asking | {"outcome": "no end", "message": message})
                return asking["number"]
            verdict.left_out = "the rest of the file: its time limit"
            return None
        try:
            word, content = connection.recv()
        except EOFError:
            process.join()
            if asking is None:
                verdict.left_out = (
                    f"the process ended with status {process.exitcode} outside of Tidemill"
                )
                return None
            message = f"the process ended with status {process.exitcode}"
            verdict.verdicts.append(asking | {"outcome": "internal", "message": message})
            return asking["number"]
        if word == "asking":
            asking = content
        elif word == "comparing":
            asking = None
        elif word == "judged":
            asking = None
            verdict.verdicts.append(content)
        else:
            verdict.left_out = content["reason"]
            verdict.uncounted = content["uncounted"]
            return None


def explain(
    verdicts: Iterable[dict[str, Any]], entries: Sequence[Intended] = INTENDED
) -> set[Intended]:
    """Note the reason of each different answer that an entry covers; return these entries.

    Removes the unmatched rows from the verdicts, of which the quoted ones stay.
    """
    used_entries = set()
    for verdict in verdicts:
        if verdict["outcome"] == "different":
            entry = next((entry for entry in entries if entry.covers(verdict)), None)
            if entry is not None:
                verdict["reason"] = entry.reason
                used_entries.add(entry)
        verdict.pop("unmatched", None)
    return used_entries


def is_failure(verdict: dict[str, Any]) -> bool:
    """Return whether a verdict makes the run fail."""
    if verdict["outcome"] == "different":
        return "reason" not in verdict
    return verdict["outcome"] in ("not compared", "internal", "no end")
