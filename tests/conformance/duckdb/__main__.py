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
import json
import os
import pathlib
import sys

from . import report
from .intended import INTENDED
from .judge import DIRECTORIES, TimeLimits, find_files, is_failure, judge_all


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
    flag("--errors", action="store_true", help="also ask what DuckDB refuses")
    flag("--report", type=pathlib.Path, metavar="FILE", help="write each verdict as a line of JSON")
    flag("--show", action="store_true", help="print each query that is not answered alike")
    flag(
        "--groups",
        type=int,
        default=report.GROUPS_MAX,
        metavar="N",
        help="refusals that are listed",
    )
    flag("--examples", type=int, default=0, metavar="N", help="queries for each of these refusals")
    arguments = parser.parse_args()
    if not arguments.root:
        parser.error("DUCKDB_DIR names no checkout of duckdb/duckdb")
    root = pathlib.Path(arguments.root).resolve()
    paths = find_files(root, arguments.dirs, arguments.files)
    if not paths:
        parser.error(f"`{root}` has no such files in test/sql")
    limits = TimeLimits(arguments.query_seconds, arguments.file_seconds)
    done, verdicts = [], []
    lines = arguments.report.open("w") if arguments.report else None
    for file in judge_all(
        root, paths, processes=arguments.processes, limits=limits, with_errors=arguments.errors
    ):
        done.append(file)
        verdicts += file.verdicts
        for verdict in file.verdicts:
            if lines:
                lines.write(json.dumps(verdict, ensure_ascii=False) + "\n")
        if lines:
            lines.flush()
        counts = collections.Counter(verdict["outcome"] for verdict in file.verdicts)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        left_out = f"left out: {file.left_out}" if file.left_out else ""
        said = "; ".join(filter(None, [summary, left_out]))
        print(f"[{len(done)}/{len(paths)}] {file.name}: {said}", flush=True)
    if lines:
        lines.close()
    return finish(arguments, done, verdicts)


def finish(arguments: argparse.Namespace, done: list, verdicts: list) -> int:
    """Print the summary of a run, and return the status."""
    done.sort(key=lambda file: file.name)
    verdicts.sort(key=lambda verdict: (verdict["file"], verdict["number"]))
    used_entries = set().union(*(file.used_entries for file in done))
    print(
        "\n# Refusals\n",
        report.refusal_list(verdicts, arguments.examples, arguments.groups),
        sep="\n",
    )
    print("\n# Files that are left out, or their rest\n", report.left_out_files(done), sep="\n")
    uncounted = sum((collections.Counter(file.uncounted) for file in done), collections.Counter())
    print("\n# Records that are not counted\n")
    for reason, count in uncounted.most_common():
        print(f"{count:6,}  {reason}")
    print("\n# Queries that are not answered alike\n" if arguments.show else "\n# Failures\n")
    for verdict in verdicts:
        is_other = verdict["outcome"] != "same" or "order" in verdict
        if is_failure(verdict) or (arguments.show and is_other):
            print(report.description(verdict))
    print(
        "\n# Queries that need DuckDB's own machinery\n", report.machinery_table(verdicts), sep="\n"
    )
    print("\n# By directory\n", report.directory_table(verdicts), sep="\n")
    print(f"\n{report.share_by_place(verdicts)}")
    is_whole = arguments.files == "*" and set(arguments.dirs) >= set(DIRECTORIES)
    # An entry with an example of its own is for the documentation, too.
    unused = [entry for entry in INTENDED if entry not in used_entries]
    stale = [entry for entry in unused if is_whole and not entry.example]
    for entry in stale:
        print(f"FAILED: no query needs the entry `{entry.reason}` of intended.py")
    failures = sum(map(is_failure, verdicts))
    print(f"\n{failures} failures of {len(verdicts)} queries")
    return 1 if failures or stale else 0


if __name__ == "__main__":
    sys.exit(main())
