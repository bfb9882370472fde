"""Python in processes of its own."""

import subprocess
import sys
import textwrap

# Standard input as a pipe that stays open. `feed(n)` writes n rows to it, so many that a query
# over them is past its plan, in a thread of its own; `end()` closes it.
#
# `interrupt()` is the first thing inside a `try`: a signal is sent once the pipe has been read
# empty, as far as anything was fed, and the main thread stands still, or once something else is
# so. Should it come before the wait that it is meant for, the outcome is the same.
PIPE = """
import array, fcntl, os, signal, sys, termios, threading, time
import tidemill as tm

# A shell that starts the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
_reading, _writing = os.pipe()
os.dup2(_reading, 0)
_feeder = None

def _feed(rows):
    data = b"x\\n" + b"1\\n" * rows
    while data:
        data = data[os.write(_writing, data):]

def feed(rows=200_000):
    global _feeder
    _feeder = threading.Thread(target=_feed, args=(rows,), daemon=True)
    _feeder.start()

def end():
    if _feeder is not None:
        _feeder.join()
    os.close(_writing)

def _is_waiting(main, seen):
    frame = sys._current_frames()[main]
    now = (id(frame), frame.f_lasti)
    seen[:] = [now, seen[1] + 1 if now == seen[0] else 0]
    unread = array.array("i", [0])
    fcntl.ioctl(_reading, termios.FIONREAD, unread)
    return seen[1] >= 20 and unread[0] == 0 and not (_feeder and _feeder.is_alive())

def interrupt(when=None, number=signal.SIGINT):
    def send():
        wait_for(main, when)
        os.kill(os.getpid(), number)

    main = threading.get_ident()
    threading.Thread(target=send, daemon=True).start()

def wait_for(main, when=None):
    seen = [None, 0]
    while not (when() if when else _is_waiting(main, seen)):
        time.sleep(0.002)

csv = dict(source_format="csv")
"""


def run_script(text, **options):
    """Run Python in a process of its own."""
    text = textwrap.dedent(text).replace("PIPE\n", PIPE)
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
