"""A table of a hundred million groups over four workers, beside one process: the same groups, and what it took.

    TIDEMILL=target/release/tidemill python3 bench/cluster/groups.py [--groups 100000000] [--memory 512M] [--folder FOLDER]

The Python is one that has Ray, tidemill, PyArrow and NumPy. The input is written first: so many distinct keys of 64 bits, one
in five of which is in two of 64 Parquet files. `SELECT key, count(*) AS n, sum(x) AS x … GROUP BY key` goes to a Parquet file,
once by one process and once by four workers (raylets of this machine with a core each), with so much memory for each of
them and a scratch folder. Of both answers are compared: groups, the sums of `n` and `x`, the keys' sum and exclusive or, and a
checksum of all rows in their order.

Printed are seconds, the most memory (VmHWM) of the program, of its Python and of the workers, and the most bytes that the
scratch folder and the files for what does not fit memory held, looked at twice a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

FILES = 64
SQL = "SELECT key, count(*) AS n, sum(x) AS x FROM '{files}' GROUP BY key"


def keys(first: int, count: int) -> np.ndarray:
    """Keys of 64 bits for numbers; other numbers have other keys."""
    with np.errstate(over="ignore"):
        mixed = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def prepare(folder: Path, groups: int) -> dict[str, int]:
    """Write the input, and tell what the answer has to have."""
    folder.mkdir(parents=True, exist_ok=True)
    each = groups // FILES
    for number in range(FILES):
        path = folder / f"{number:02}.parquet"
        if path.exists():
            continue
        again = ((number + 1) % FILES) * each
        own = np.concatenate([keys(number * each, each), keys(again, each // 5)])
        table = pa.table({"key": own, "x": (own & 0x3FF).astype(np.int32)})
        parquet.write_table(table, path, row_group_size=1 << 17, use_dictionary=False)
    return {"groups": each * FILES, "n": (each + each // 5) * FILES}


def summed(path: Path) -> dict[str, int]:
    """What is compared of an answer."""
    found = dict.fromkeys(("groups", "n", "x", "keys", "keys_xor", "rows_crc"), 0)
    for batch in parquet.ParquetFile(path).iter_batches(1 << 20):
        columns = [batch.column(name).to_numpy() for name in ("key", "n", "x")]
        key, n, x = (column.astype(np.int64) for column in columns)
        found["groups"] += len(key)
        found["n"] += int(n.sum())
        found["x"] += int(x.sum())
        found["keys"] = (found["keys"] + int(key.view(np.uint64).sum(dtype=np.uint64))) % (1 << 64)
        found["keys_xor"] ^= int(np.bitwise_xor.reduce(key.view(np.uint64)))
        rows = np.ascontiguousarray(np.stack([key, n, x], axis=1))
        found["rows_crc"] = zlib.crc32(rows.tobytes(), found["rows_crc"])
    return found


def held(folder: Path) -> int:
    """Bytes of the files below a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except OSError:
                pass
    return total


def unnamed(number: int, folder: Path) -> int:
    """Bytes of the files that a process has open and that have no name any more: what it spilled."""
    total, seen = 0, set()
    try:
        for entry in os.scandir(f"/proc/{number}/fd"):
            name = os.readlink(entry.path)
            if name.startswith(str(folder)) and name.endswith(" (deleted)"):
                found = os.stat(entry.path)
                total += 0 if found.st_ino in seen else found.st_size
                seen.add(found.st_ino)
    except OSError:
        pass
    return total


def memory() -> dict[int, tuple[int, str, int]]:
    """The most memory of each process, by number: its parent, its command and bytes."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            command = (status.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "VmHWM" in lines:
            size = int(lines["VmHWM"].split()[0]) * 1024
            found[int(status.parent.name)] = (int(lines["PPid"]), command, size)
    return found


def is_below(number: int, above: int, processes: dict[int, tuple[int, str, int]]) -> bool:
    """Whether a process was started by another, or by one that it started."""
    while number in processes and number != above:
        number = processes[number][0]
    return number == above


def watched(words: list[str], environment: dict[str, str], scratch: Path, spilled: Path) -> dict[str, float]:
    """Run the program, and look at what it takes."""
    began = time.monotonic()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    most = dict.fromkeys(("program", "python", "workers", "scratch", "spilled"), 0.0)
    while process.poll() is None:
        processes, spilled_now = memory(), 0
        for number, (parent, command, size) in processes.items():
            name = None
            if number == process.pid:
                name = "program"
            elif parent == process.pid:
                name = "python"
            elif command.startswith("ray::Worker") and is_below(number, os.getpid(), processes):
                name = "workers"
            if name is not None:
                most[name] = max(most[name], size)
                spilled_now += unnamed(number, spilled)
        most["scratch"] = max(most["scratch"], held(scratch))
        most["spilled"] = max(most["spilled"], spilled_now)
        time.sleep(0.5)
    assert process.returncode == 0, process.stderr.read()
    return {"seconds": time.monotonic() - began, **most}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=100_000_000)
    parser.add_argument("--memory", default="512M")
    parser.add_argument("--folder", type=Path, help="for the input and all else, kept; default: one that is removed")
    given = parser.parse_args()
    binary = os.environ.get("TIDEMILL", "target/release/tidemill")
    place = tempfile.TemporaryDirectory(prefix="tidemill-groups-")
    folder = given.folder or Path(place.name)
    expected = prepare(folder / "input", given.groups)
    scratch, spilled = folder / "scratch", folder / "spilled"
    scratch.mkdir(exist_ok=True)
    spilled.mkdir(exist_ok=True)
    environment = {**os.environ, "TIDEMILL_PYTHON": sys.executable, "TIDEMILL_HOME": str(folder / "home")}
    # Workers spill where their environment says.
    environment["TMPDIR"] = os.environ["TMPDIR"] = str(spilled)
    words = [binary, "query", SQL.format(files=f"{folder}/input/*.parquet"), "--memory", given.memory, "--overwrite"]
    here, there = folder / "here.parquet", folder / "there.parquet"
    rows = {"one process": watched([*words, "--output", str(here)], environment, scratch, spilled)}

    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 256 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=256 << 20)
    cluster.wait_for_nodes()
    environment["RAY_ADDRESS"] = cluster.address
    on = ["--on", "ray", "--scratch", str(scratch), "--output", str(there)]
    rows["four workers"] = watched([*words, *on], environment, scratch, spilled)
    cluster.shutdown()
    ray.shutdown()
    one, other = summed(here), summed(there)
    left = held(scratch)
    is_same = one == other and left == 0 and all(one[name] == value for name, value in expected.items())
    print(f"`python3 bench/cluster/groups.py {' '.join(sys.argv[1:])}`: input of {held(folder / 'input') / 1e9:.2f} GB\n")
    print("| | s | program, MB | its Python, MB | a worker, MB | scratch, GB | spilled, GB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, row in rows.items():
        sizes = [f"{row[key] / 1e6:,.0f}" for key in ("program", "python", "workers")]
        sizes += [f"{row[key] / 1e9:.2f}" for key in ("scratch", "spilled")]
        print(f"| {name} | {row['seconds']:.0f} | {' | '.join(sizes)} |")
    print(f"\n{one}\n{'the same' if is_same else f'OTHER: {other}, expected {expected}, left {left} bytes'}")
    place.cleanup()
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
