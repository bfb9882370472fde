"""Runs each file in a process of its own, and gathers the verdicts."""

from __future__ import annotations

import fnmatch
import multiprocessing
import pathlib
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
# Queries that end the process of a file, or have no end, after which the rest is left out.
PROCESS_ENDS_MAX = 5


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
    # The reason if the file, or the rest of it, did not run; empty if all of it did.
    left_out: str = ""
    # True if the process of the file ended before the file, or had to be ended.
    is_cut_off: bool = False
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
    paths = [path for name in directories for path in sorted((tests / name).rglob("*.test"))]
    glob = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    return [it for it in paths if fnmatch.fnmatchcase(it.relative_to(tests).as_posix(), glob)]


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
    """Judge files, several at a time, and yield each verdict as soon as its file has ended."""
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
        # After Ctrl-C the files that have begun are finished, and no others.
        pool.shutdown(cancel_futures=True)


def judge_file(
    root: pathlib.Path,
    path: pathlib.Path,
    limits: TimeLimits,
    engine: str = ENGINE,
    with_errors: bool = False,
    entries: Sequence[Intended] = INTENDED,
) -> FileVerdict:
    """Judge a file; another process goes on behind a query that ended the process or has no end."""
    tests = root / "test" / "sql"
    verdict = FileVerdict(
        path.relative_to(tests).as_posix() if tests in path.parents else path.name
    )
    deadline = None if limits.for_file() is None else time.monotonic() + limits.for_file()
    judged_count = process_ends = 0
    while True:
        seconds = limits.for_query("") or 3600
        task = worker.Task(root, path, engine, judged_count, seconds, with_errors)
        last_number = run_process(task, verdict, limits, deadline)
        if last_number is None:
            break
        process_ends += 1
        judged_count = last_number
        if process_ends == PROCESS_ENDS_MAX:
            verdict.left_out = f"{process_ends} queries ended the process"
            verdict.is_cut_off = True
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
    """Run a process; return the number of the query that ended it or has no end, if any."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["conformance.duckdb.worker"])
    # The folder is the parent's: a child that is killed cannot remove it.
    with tempfile.TemporaryDirectory(prefix="duckdb-suite-", ignore_cleanup_errors=True) as folder:
        receiver, sender = context.Pipe(duplex=False)
        with receiver:
            process = context.Process(target=worker.run, args=(task, sender, folder), daemon=True)
            with sender:
                process.start()
            try:
                return follow(process, receiver, verdict, limits, deadline)
            finally:
                if process.is_alive():
                    process.kill()
                process.join()


def follow(
    process: Any,
    receiver: Connection,
    verdict: FileVerdict,
    limits: TimeLimits,
    deadline: float | None,
) -> int | None:
    """Read the messages of a process until it ends or has to be ended."""
    question: dict[str, Any] | None = None
    while True:
        limit = None if question is None else limits.for_query(question["sql"])
        seconds_left = None if deadline is None else max(deadline - time.monotonic(), 0)
        waits = [seconds for seconds in (limit, seconds_left) if seconds is not None]
        try:
            if not receiver.poll(min(waits) if waits else None):
                if (
                    question is not None
                    and limit is not None
                    and (seconds_left is None or limit <= seconds_left)
                ):
                    message = f"no answer within {limit:g} s"
                    verdict.verdicts.append(question | {"outcome": "no end", "message": message})
                    return question["number"]
                verdict.left_out = "the rest of the file: its time limit"
                verdict.is_cut_off = True
                return None
            word, content = receiver.recv()
        except (EOFError, OSError):
            # A process that is killed within a message leaves a part of it.
            process.join()
            message = f"the process ended with status {process.exitcode}"
            if question is None:
                verdict.left_out = f"{message} outside of Tidemill"
                verdict.is_cut_off = True
                return None
            verdict.verdicts.append(question | {"outcome": "internal", "message": message})
            return question["number"]
        if word == "question":
            question = content
        elif word == "answer":
            question = None
        elif word == "verdict":
            question = None
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
