"""What these measurements share: the binary, the page cache, timing a process. Standard library only."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

import harness  # noqa: E402

# What an answer from a part of the input ends with.
INCOMPLETE = 3


def tidemill() -> Path:
    """`$TIDEMILL`, else the release build."""
    try:
        settings = harness.Settings(0, [], set(), 0, Path(), 0, {}, False, False, 0)
        return harness.tidemill_binaries(settings)["tidemill"]
    except harness.Failure as failure:
        sys.exit(f"error: {failure}")


def peers() -> list[str]:
    """The peers that `$PEERS`, a Python, has; the others are named on standard error."""
    python = os.environ.get("PEERS")
    if python is None:
        print("no PEERS (a Python with duckdb, polars and chdb): peers are left out", file=sys.stderr)
        return []
    found = []
    for peer in ["duckdb", "polars", "chdb"]:
        if subprocess.run([python, "-c", f"import {peer}"], capture_output=True).returncode == 0:
            found.append(peer)
        else:
            print(f"`{python}` has no {peer}: it is left out", file=sys.stderr)
    return found


def cache(files: list[Path], is_cold: bool) -> None:
    """Drops files from the page cache, or reads them into it."""
    block = bytearray(1 << 22)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            if is_cold:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.readinto(block):
                    pass


def timed(command: list, timeout_s: float, output: Path) -> tuple[float, int, str]:
    """The seconds from before a command is started to after it was waited for, its status, what it said."""
    with open(output, "wb") as written, open(f"{output}.said", "wb") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command], stdout=written, stderr=said, stdin=subprocess.DEVNULL
        )
        # `wait` with a time would look every 50 ms.
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            status = process.wait()
            took = time.monotonic() - began
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return took, status, Path(f"{output}.said").read_text(errors="replace")


def percentile(values: list[float], share: float) -> float:
    """The smallest that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def head(command: list[str]) -> str:
    """What was run, and on what."""
    line = harness.machine_line(harness.machine())
    return f"`{' '.join(command)}`\n\n{line}"


def keep(path: Path | None, content) -> None:
    """Writes every single measurement, if that was asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n")


digits, table, median = harness.digits, harness.table, statistics.median
