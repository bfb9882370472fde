"""The sort of lines beside GNU sort, with the same memory, in turn.

    cargo build --release -p tidemill-sort --example bench
    python3 bench/sort/measure.py FOLDER [--bytes 1000000000] [--memory-share 4] [--rounds 3]
                                  [--kinds records,words,…] [--cold]

FOLDER takes inputs, outputs and spills: five times `--bytes`. Each measurement is a process of its
own, whose wall time, processor time and peak resident memory `wait4` says; blocks read from and
written to the disk are the kernel's count for it. Both get a `--memory-share`-th of the input as
memory, and two threads. The outputs of a round are compared byte by byte. With `--cold` the input is
dropped from the page cache before each run.
"""

import argparse
import filecmp
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Inputs, and the options that each is sorted with.
KINDS = {
    "records": [],
    "records-by-key": ["--records", "100", "--key", "0..10"],
    "words": [],
    "integers": ["-n"],
    "sorted": [],
    "reversed": [],
    "few": [],
    "skewed": [],
}
# GNU sort has no records of a fixed size; by the key alone, it is told where it ends.
THEIRS = {"records-by-key": ["-k1.1,1.10", "-s"]}


def run(command: list[str]) -> dict[str, float]:
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "LC_ALL": "C"})
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return {
        "wall": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "rss": usage.ru_maxrss / 1024,
        "read": usage.ru_inblock * 512 / 1e6,
        "written": usage.ru_oublock * 512 / 1e6,
    }


def cache(path: Path, cold: bool) -> None:
    with path.open("rb") as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(1 << 22):
                pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--memory-share", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cold", action="store_true")
    given = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    ours = str(target / "release" / "examples" / "bench")
    memory = f"{int(given.bytes / given.memory_share / 1024)}K"
    print(f"{given.bytes / 1e9:g} GB, -S {memory}, load average {os.getloadavg()[0]:.1f}")
    for kind in given.kinds.split(","):
        source = given.folder / f"{kind.removesuffix('-by-key')}-{given.bytes}"
        if not source.exists():
            subprocess.run([ours, "generate", kind.removesuffix("-by-key"), str(given.bytes), source], check=True)
        outputs = [given.folder / "out-ours", given.folder / "out-gnu"]
        common = ["-S", memory, "--parallel=2", "-T", str(given.folder), str(source)]
        commands = [
            [ours, "sort", *KINDS[kind], *common, "-o", str(outputs[0])],
            ["sort", *THEIRS.get(kind, KINDS[kind]), *common, "-o", str(outputs[1])],
        ]
        rounds = []
        for _ in range(given.rounds):
            for output in outputs:
                output.unlink(missing_ok=True)
            measured = []
            for command in commands:
                cache(source, given.cold)
                measured.append(run(command))
            if kind != "records-by-key" and not filecmp.cmp(*outputs, shallow=False):
                raise SystemExit(f"{kind}: the outputs differ")
            rounds.append(measured)
        for output in outputs:
            output.unlink(missing_ok=True)
        for index, name in enumerate(["tidemill", "gnu"]):
            values = {key: [measured[index][key] for measured in rounds] for key in rounds[0][0]}
            wall = values["wall"]
            line = f"{kind:<15} {name:<9} wall {statistics.median(wall):7.2f} ({min(wall):.2f}-{max(wall):.2f})"
            for key, unit in [("cpu", "s"), ("rss", "MB"), ("read", "MB"), ("written", "MB")]:
                line += f"  {key} {statistics.median(values[key]):.1f} {unit}"
            print(line)
        ratio = [theirs["wall"] / ours_["wall"] for ours_, theirs in rounds]
        print(f"{kind:<15} ratio     {statistics.median(ratio):.2f} ({min(ratio):.2f}-{max(ratio):.2f})", flush=True)


if __name__ == "__main__":
    main()
