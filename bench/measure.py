"""Runs one command and prints what it cost, as one line of JSON.

    python3 -I -S measure.py SECONDS_MAX STDOUT STDERR PROGRAM ARGUMENT...

A process of its own, and a lean one, for one reason: on Linux a child's peak
resident memory (`ru_maxrss`) starts at the peak of the process that started it,
so a harness that has read a data set would hide any child leaner than itself.
Started from here the floor is this interpreter's, about 10 MB, and it is printed
(`rss_floor_bytes`) so that nobody takes it for a result.

The command gets a process group of its own, which is killed whole when the time
is up or when this process is told to stop.
"""

import os
import resource
import signal
import sys
import time

# macOS counts ru_maxrss in bytes, Linux in KiB.
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


def main() -> int:
    seconds_max, stdout, stderr, *command = sys.argv[1:]
    to_file = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    pid = 0
    timed_out = False

    def stop(number, _frame):
        nonlocal timed_out
        timed_out = timed_out or number == signal.SIGALRM
        if pid:
            os.killpg(pid, signal.SIGKILL)

    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    for number in signals:
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, float(seconds_max))

    start = time.perf_counter()
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, stdout, to_file, 0o644),
                (os.POSIX_SPAWN_OPEN, 2, stderr, to_file, 0o644),
            ],
            setpgroup=0,
            setsigdef=signals,
        )
    except OSError as error:
        print(f"measure.py: cannot start `{command[0]}`: {error.strerror}", file=sys.stderr)
        return 2
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0)

    print(
        f'{{"exit": {os.waitstatus_to_exitcode(status)}, "timed_out": {str(timed_out).lower()}, '
        f'"wall_s": {wall:.6f}, "user_s": {usage.ru_utime:.6f}, "sys_s": {usage.ru_stime:.6f}, '
        f'"rss_bytes": {usage.ru_maxrss * RSS_UNIT_BYTES}, "rss_floor_bytes": {floor}, '
        # POSIX does not say how large a block is; Linux counts 512 bytes.
        f'"disk_read_bytes": {usage.ru_inblock * 512}}}'
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
