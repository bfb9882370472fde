"""Formats for rows, in memory on one thread: encode, decode all, decode 3 columns.

One Rust program (`peers/`) has the formats; it reads its input into memory, checks what comes
back value by value, and then runs the rounds, in each of them every format once. Figures are
the thread's processor time.
"""

import json
import os
import statistics
import subprocess
from pathlib import Path

import harness
from harness import BENCH, ROOT, Failure, Report, Settings, say

HERE = BENCH / "rowfile"
CODECS = {
    "none": ["tidemill", "tidemill-view", "arrow-avro", "arrow-ipc", "parquet", "json-lines", "copy"],
    "lz4": ["tidemill", "arrow-ipc", "parquet"],
    "zstd": ["tidemill", "parquet"],
    "zstd3": ["tidemill", "arrow-avro", "arrow-ipc", "parquet"],
    "deflate": ["arrow-avro"],
}
ROWS = 100_000
FULL_ROWS = 10_000_000


def build() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / "bench-rowfile"
    say("building the formats (some minutes the first time) ...")
    command = ["cargo", "build", "--release", "--target-dir", target]
    environment = {name: value for name, value in os.environ.items() if name != "RUSTFLAGS"}
    try:
        done = subprocess.run([str(word) for word in command], cwd=HERE / "peers", env=environment)
    except OSError as error:
        raise Failure("no `cargo`: the formats cannot be built") from error
    if done.returncode != 0:
        raise Failure("`bench/rowfile/peers` does not compile (see above)")
    return target / "release" / "peers"


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        print("rowfile: wide; " + ", ".join(CODECS) + "; " + ", ".join(CODECS["none"]))
        return
    program = build()
    rows = max(1000, ROWS * settings.rows // FULL_ROWS)
    path = settings.cache / f"rowfile-wide-{rows}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        if subprocess.run([program, "generate", "wide", str(rows), partial]).returncode != 0:
            raise Failure(f"`{path}` could not be written (see above)")
        partial.replace(path)
    if settings.prepare_only:
        return
    table = []
    for codec, names in CODECS.items():
        names = [name for name in names if name not in settings.without]
        wanted = set(settings.only)
        if wanted & set(CODECS) and codec not in wanted:
            continue
        say(f"wide, {codec}")
        command = [program, "measure", settings.rounds, path, codec, ",".join(names)]
        found: dict[str, dict[str, list[dict]]] = {}
        for line in harness.measure(command, settings).stdout.splitlines():
            answer = json.loads(line)
            name = answer["format"]
            if "failed" in answer:
                report.failed = True
                say(f"  {name}: FAILED: {answer['failed']}")
                found.pop(name, None)
            else:
                found.setdefault(name, {}).setdefault(answer["step"], []).append(answer)
        report.add("rowfile", {"codec": codec, "results": found})
        for name, steps in found.items():
            row = [codec, name]
            for step in ("encode", "decode", "decode-few"):
                row.append(harness.spread([1e9 * run["cpu_s"] / run["rows"] for run in steps[step]]))
            size = statistics.median(run["bytes"] / run["rows"] for run in steps["encode"])
            table.append([*row, harness.digits(size)])
    report.print(f"\n## rowfile: {rows} wide events in memory, one thread\n")
    head = ["codec", "format", "encode ns/row", "decode ns/row", "3 columns ns/row", "bytes/row"]
    report.print(harness.table(head, table, 2))
