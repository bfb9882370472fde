"""The machine's own limits: memory, newlines, the page cache, the disk.

Each is the simplest loop that does it (`limits.rs`), on one core and on every
core. A limit is a rate that nothing on this machine is likely to exceed, so a
benchmark's rate over it is a share of the possible.
"""

import json

import harness
from harness import Failure, Report, Settings, say

MEANING = {
    "copy": "memory copy, 256 MiB to another buffer (bytes copied)",
    "newlines": "count newlines in 256 MiB of memory",
    "read": "read() a file in the page cache, 1 MiB blocks",
    "scan": "the same, and count its newlines",
    "disk_write_fsync": "write a file in 1 MiB blocks, then fsync",
    "disk_read_cold": "read it back, dropped from the page cache",
}
FILE_MIB = 512


def run(settings: Settings, report: Report) -> None:
    if settings.list_only:
        print(f"limits: {', '.join(MEANING)}")
        return
    program = harness.limits_program(settings)
    if program is None or settings.prepare_only:
        return
    say("measuring the machine's limits ...")
    path = settings.scratch() / "limits-input"
    line = b"2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
    block = line * ((1 << 20) // len(line))
    found: dict[tuple[str, bool], list[dict]] = {}
    try:
        with open(path, "wb") as file:
            for _ in range(FILE_MIB):
                file.write(block)
        # Rounds outside, limits inside: the same interleaving as the engines get.
        for _ in range(settings.rounds):
            for limit in ("copy", "newlines", "read", "scan"):
                for threads in (1, 0):
                    command = [program, limit, threads, 2]
                    command += [path] if limit in ("read", "scan") else []
                    # The first repeat of each process touches its pages for the first time.
                    measured = lines(command, settings)[1:]
                    found.setdefault((limit, threads == 0), []).extend(measured)
    finally:
        path.unlink(missing_ok=True)
    for _ in range(min(3, settings.rounds)):
        for result in lines([program, "disk", settings.limits_disk_mib, settings.scratch()], settings):
            found.setdefault((result["limit"], False), []).append(result)

    rows = []
    for limit, meaning in MEANING.items():
        rates = {
            every: [r["bytes"] / r["work_s"] / 1e9 for r in found[limit, every]]
            for every in (False, True)
            if (limit, every) in found
        }
        if rates:
            cells = [harness.spread(rates[every]) if every in rates else "" for every in (False, True)]
            rows.append([limit, *cells, meaning])
    body = [[row[0], row[3], row[1], row[2]] for row in rows]
    report.print("\n## limits: what this machine can do at most\n\nGB/s, median (min–max).\n")
    report.print(harness.table(["limit", "what is done", "one core", "every core"], body, 2))
    content = {f"{limit}{'_every_core' if every else ''}": r for (limit, every), r in found.items()}
    report.add("limits", content)


def lines(command: list, settings: Settings) -> list[dict]:
    printed = harness.measure(command, settings).stdout
    results = [json.loads(line) for line in printed.splitlines()]
    if not results:
        raise Failure(f"`{command[0]}` printed nothing")
    return results
