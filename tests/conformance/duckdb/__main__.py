"""Runs files of a checkout, and prints a table by directory.

Examples
--------
In `tests`::

    DUCKDB_DIR=/data/duckdb python -m conformance.duckdb
    python -m conformance.duckdb --root /data/duckdb --dirs join subquery --report verdicts.jsonl
    python -m conformance.duckdb --root /data/duckdb --files 'join/asof/*' --show
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from . import page, report
from .intended import INTENDED, Intended
from .judge import DIRECTORIES, FileVerdict, TimeLimits, find_files, is_failure, judge_all


def main() -> int:
    """Run as the flags say."""
    parser = argparse.ArgumentParser(prog="python -m conformance.duckdb")
    flag = parser.add_argument
    flag("--root", default=os.environ.get("DUCKDB_DIR"), help="a checkout; default: DUCKDB_DIR")
    flag("--dirs", nargs="+", default=DIRECTORIES, metavar="DIR", help="directories of test/sql")
    flag(
        "--files",
        default="*",
        metavar="PATTERN",
        help="files whose path matches, or contains, this",
    )
    flag("--processes", type=int, default=2, metavar="N", help="files at a time; default: 2")
    flag(
        "--query-seconds", type=float, default=20, metavar="S", help="limit of a query; default: 20"
    )
    flag(
        "--file-seconds", type=float, default=120, metavar="S", help="limit of a file; default: 120"
    )
    flag("--errors", action="store_true", help="also run statements that DuckDB refuses")
    flag("--report", type=pathlib.Path, metavar="FILE", help="write each verdict as a line of JSON")
    flag("--show", action="store_true", help="print each query that is not answered alike")
    flag(
        "--groups",
        type=int,
        default=report.GROUPS_MAX,
        metavar="N",
        help=f"messages of refusals to list, the most frequent first; default: {report.GROUPS_MAX}",
    )
    flag("--examples", type=int, default=0, metavar="N", help="queries for each of these messages")
    flag(
        "--write-page",
        action="store_true",
        help="write docs/differences-from-duckdb.md, and no more",
    )
    arguments = parser.parse_args()
    if arguments.write_page:
        page.PATH.write_text(page.text())
        return 0
    if not arguments.root:
        parser.error("DUCKDB_DIR names no checkout of duckdb/duckdb")
    root = pathlib.Path(arguments.root).resolve()
    paths = find_files(root, arguments.dirs, arguments.files)
    if not paths:
        parser.error(f"`{root}` has no such files in test/sql")
    limits = TimeLimits(arguments.query_seconds, arguments.file_seconds)
    files: list[FileVerdict] = []
    with contextlib.ExitStack() as stack:
        output = arguments.report and stack.enter_context(arguments.report.open("w"))
        for file in judge_all(
            root, paths, processes=arguments.processes, limits=limits, with_errors=arguments.errors
        ):
            files.append(file)
            if output:
                for verdict in file.verdicts:
                    output.write(json.dumps(verdict, ensure_ascii=False) + "\n")
                output.flush()
            print(f"[{len(files)}/{len(paths)}] {file.name}: {file_summary(file)}", flush=True)
    return print_summary(arguments, files)


def file_summary(file: FileVerdict) -> str:
    """The outcomes of a file in a line."""
    counts = collections.Counter(verdict["outcome"] for verdict in file.verdicts)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    left_out = f"left out: {file.left_out}" if file.left_out else ""
    return "; ".join(filter(None, [outcomes, left_out]))


def print_summary(arguments: argparse.Namespace, files: list[FileVerdict]) -> int:
    """Print the summary of a run, and return the status."""
    files.sort(key=lambda file: file.name)
    verdicts = [verdict for file in files for verdict in file.verdicts]
    verdicts.sort(key=lambda verdict: (verdict["file"], verdict["number"]))
    print("\n# Refusals\n")
    print(report.refusal_list(verdicts, arguments.examples, arguments.groups))
    print("\n# Files that are left out, or their rest\n", report.left_out_files(files), sep="\n")
    uncounted = sum((collections.Counter(file.uncounted) for file in files), collections.Counter())
    print("\n# Records that are not counted\n")
    for reason, count in uncounted.most_common():
        print(f"{count:6,}  {reason}")
    if arguments.show:
        print("\n# Queries that are not answered alike\n")
        for verdict in verdicts:
            if verdict["outcome"] != "same" or "order" in verdict:
                print(report.description(verdict))
    print("\n# Failures by file\n", report.failure_list(verdicts), sep="\n")
    print(
        "\n# Queries that need DuckDB's own machinery\n", report.machinery_table(verdicts), sep="\n"
    )
    print("\n# By directory\n", report.directory_table(verdicts), sep="\n")
    print(f"\n{report.share_by_place(verdicts)}")
    is_whole = arguments.files == "*" and set(arguments.dirs) >= set(DIRECTORIES)
    stale = stale_entries(files) if is_whole else []
    for entry in stale:
        print(f"FAILED: no query needs the entry `{entry.reason}` of intended.py")
    failure_count = sum(map(is_failure, verdicts))
    print(f"\n{failure_count} failures of {len(verdicts)} queries")
    return 1 if failure_count or stale else 0


def stale_entries(
    files: Sequence[FileVerdict], entries: Sequence[Intended] = INTENDED
) -> list[Intended]:
    """The intended differences that no query of a run over everything needs.

    None if a file was cut off, whose other queries may need them. An entry with an example is for
    the documentation, too, and is never stale.
    """
    if any(file.is_cut_off for file in files):
        return []
    used_entries = set().union(*(file.used_entries for file in files))
    return [entry for entry in entries if entry not in used_entries and not entry.example]


if __name__ == "__main__":
    sys.exit(main())
