#!/usr/bin/env python3
"""Runs the benchmarks: `python3 bench/run.py [BENCHMARK...]`, or `make bench`.

See bench/README.md for what is measured and how to read the tables.
"""

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness  # noqa: E402
from harness import BENCH, Failure, Report, Settings, say  # noqa: E402

# In the order in which they run when none is named.
BENCHMARKS = ["limits", "flights", "groups", "tpch", "text", "rowfile", "sketch", "prefetch"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Side-by-side benchmarks of tidemill and its peers.",
        epilog="Environment: TIDEMILL names the binary to measure (default: "
        "target/release/tidemill, under CARGO_TARGET_DIR if set); XDG_CACHE_HOME the folder "
        "that holds the data (about 7.6 GB).",
    )
    parser.add_argument(
        "benchmarks", nargs="*", metavar="BENCHMARK", help=f"any of: {', '.join(BENCHMARKS)} (default: all)"
    )
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="measured rounds after the warm-up (default: 5)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORDS",
        help="cases, formats and engines to run, comma-separated: `--only job,csv,tidemill,duckdb`",
    )
    parser.add_argument("--without", action="append", default=[], metavar="ENGINES", help="engines to leave out, comma-separated")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=PATH",
        help="measure another tidemill binary too, as NAME: before against after in one run",
    )
    parser.add_argument("--rows", type=positive, default=10_000_000, metavar="N", help="size of the data set, rounded up to whole copies of the source (default: 10000000)")
    parser.add_argument("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="where data and scratch files live (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS", help="longest time for one run (default: 900)")
    parser.add_argument("--disk-mib", type=positive, default=1024, metavar="N", help="size of the file of the disk's limits (default: 1024)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every single measurement to FILE")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="of `prefetch`: draw what reading ahead does over time into FOLDER, measure nothing")
    parser.add_argument("--prepare-only", action="store_true", help="install the peers, make the data, measure nothing")
    parser.add_argument("--list", action="store_true", help="list cases, formats and engines, run nothing")
    return parser.parse_args()


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tidemill" / "bench"


def words(values: list[str]) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def also(values: list[str]) -> dict[str, Path]:
    binaries = {}
    for value in values:
        name, _, path = value.partition("=")
        if not name or not path or name == "tidemill":
            raise Failure(f"`--also {value}` is not NAME=PATH with a name of its own")
        binaries[name] = Path(path).expanduser().resolve()
    return binaries


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = arguments()
    unknown = [name for name in args.benchmarks if name not in BENCHMARKS]
    if unknown:
        raise Failure(f"no benchmark `{unknown[0]}`\nhint: there are: {', '.join(BENCHMARKS)}")
    settings = Settings(
        rounds=args.rounds,
        only=words(args.only),
        without=set(words(args.without)),
        rows=args.rows,
        cache=args.cache.expanduser().resolve(),
        timeout_s=args.timeout,
        extra_binaries=also(args.also),
        prepare_only=args.prepare_only,
        list_only=args.list,
        limits_disk_mib=args.disk_mib,
        plots=args.plots.expanduser().resolve() if args.plots else None,
    )
    if settings.plots and args.benchmarks != ["prefetch"]:
        raise Failure("`--plots` is of `prefetch` alone\nhint: `bench/run.py prefetch --plots FOLDER`")
    command = shlex.join(["bench/run.py", *sys.argv[1:]])
    report = Report(args.json.resolve() if args.json else None, command)
    load_before = report.content["machine"]["load_before"]
    measuring = not (settings.prepare_only or settings.list_only or settings.plots)
    if measuring:
        if load_before > 0.5:
            say(f"warning: the machine is busy (load {load_before}): these figures will not compare")
        report.print(f"`{command}`\n{harness.machine_line(report.content['machine'])}")
    for name in args.benchmarks or BENCHMARKS:
        harness.load(name).run(settings, report)
    if measuring:
        steal = report.content["machine"].get("steal_s")
        if steal:
            report.print(f"\nThe hypervisor took {steal} CPU seconds from this machine during the run.")
    return 1 if report.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        say(f"error: {failure}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
