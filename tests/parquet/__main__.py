"""Compares all files of a checkout, and prints a table.

Examples
--------
In `tests`::

    PARQUET_TESTING_DIR=/data/parquet-testing python -m parquet
    python -m parquet --root /data/parquet-testing --only int96
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import sys

from .judge import files, judged, unused

KINDS = ("same", "differs", "refused", "skipped", "FAILED")


def main() -> int:
    """Run as the flags say."""
    parser = argparse.ArgumentParser(prog="python -m parquet")
    flag = parser.add_argument
    root = os.environ.get("PARQUET_TESTING_DIR")
    flag("--root", default=root, help="a checkout; default: PARQUET_TESTING_DIR")
    flag("--only", default="", help="files whose name contains a text")
    flag("--no-filters", action="store_true", help="read files and compare their rows only")
    arguments = parser.parse_args()
    if not arguments.root:
        parser.error("PARQUET_TESTING_DIR names no checkout of apache/parquet-testing")
    root = pathlib.Path(arguments.root).resolve()
    found = [path for path in files(root) if arguments.only in str(path)]
    if not found:
        parser.error(f"`{root}` has no such files")
    verdicts = []
    for path in found:
        verdicts.append(judged(root, path, with_filters=not arguments.no_filters))
        print(verdicts[-1], flush=True)
    counts = collections.Counter(verdict.kind for verdict in verdicts)
    print(", ".join(f"{counts[kind]} {kind}" for kind in KINDS), f"of {len(verdicts)} files")
    stale = [] if arguments.only else unused(verdicts)
    for line in stale:
        print(f"FAILED   {line}")
    return 1 if counts["FAILED"] or stale else 0


if __name__ == "__main__":
    sys.exit(main())
