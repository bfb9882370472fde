"""What so many workers would take, and what would be in the way: a model of measured figures.

    python3 bench/cluster/model.py [--input 100T] [--file 128M] [--starts 3500] …

Prints a Markdown table. What is measured on this machine is put in by flags; the defaults are those
of ``docs/cluster.md``, whose table this is. It leaves out whoever is slower than others, and what a
network does when all talk at once.
"""

import argparse
import math

#: What the engine does (crates/source/src/splits/split.rs, crates/query/src/tasks).
SPLITS_MAX = 1 << 18
SPLITS_PER_TASK = 64
TASKS_PER_THREAD = 8
RANGES_PER_THREAD = 4
RANGES_MAX = 1 << 12
PART_BYTES_MAX = 4 << 20
THREADS = 4
INDEX_BYTES = 10

UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def size(text):
    """Read a number with a decimal unit."""
    return float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)


def seconds(value):
    """Write a time for people."""
    if value < 0.95:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if value < 20 else f"{value:,.0f} s"


def times(workers, groups, of):
    """How long each part of a run takes, by itself."""
    threads = workers * THREADS
    splits = min(SPLITS_MAX, max(of.input / (32 << 20), of.input / of.file))
    tasks = math.ceil(max(min(threads * TASKS_PER_THREAD, splits), splits / SPLITS_PER_TASK))
    # A task meets so many of the groups; keys are not in order.
    rows = of.input / tasks / of.row
    met = groups * -math.expm1(-rows / groups)
    part = met * of.state
    is_parted = part > PART_BYTES_MAX
    read = of.input / (workers * min(THREADS * of.core, of.network))
    found = {
        "listing": of.input / of.file / 1000 * of.page,
        "dealing": tasks / of.starts,
        "reading": read,
    }
    if is_parted:
        ranges = min(RANGES_MAX, 1 << (threads * RANGES_PER_THREAD - 1).bit_length())
        bytes_moved = 2 * tasks * part
        pieces = tasks * ranges
        found["scratch"] = bytes_moved / (workers * of.network)
        found["pieces"] = pieces * of.piece / min(threads, ranges)
        found["merging"] = tasks * met * of.group / min(threads, ranges)
        # Where each range begins in each file, there and back.
        found["driver's index"] = 2 * pieces * INDEX_BYTES / of.network
    else:
        found["driver's merge"] = tasks * met * of.group
        found["driver's bytes"] = tasks * part / of.network
    return tasks, part, found


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--input", type=size, default=100e12, help="bytes in all")
    add("--file", type=size, default=128e6, help="bytes of a file")
    add("--row", type=size, default=250, help="bytes of a row")
    add("--core", type=size, default=3.06e9, help="bytes a core reads a second")
    add("--network", type=size, default=1.25e9, help="bytes a worker's network has a second")
    add("--starts", type=float, default=3500, help="tasks a driver deals a second")
    add("--group", type=float, default=1e-6, help="seconds to merge a group")
    add("--state", type=size, default=40, help="bytes of a group on its way")
    add("--page", type=float, default=0.05, help="seconds for 1,000 names of a bucket")
    add("--piece", type=float, default=20e-6, help="seconds to open a piece of a scratch file")
    of = parser.parse_args()
    print("| workers | groups | tasks | a part | longest | then | reading |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for groups in (1_000, 100_000_000):
        for workers in (64, 1_000, 4_000):
            tasks, part, found = times(workers, groups, of)
            others = sorted(found.items(), key=lambda it: -it[1])
            first, second = others[:2]
            print(
                f"| {workers:,} | {groups:,} | {tasks:,} | {part / 1e6:,.2g} MB"
                f" | {first[0]}, {seconds(first[1])} | {second[0]}, {seconds(second[1])}"
                f" | {seconds(found['reading'])} |"
            )


if __name__ == "__main__":
    main()
