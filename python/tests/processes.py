"""Python in processes of its own."""

import subprocess
import sys
import textwrap

# Standard input as a pipe that stays open. `feed(n)` writes n rows to it, so many that a query
# over them is past its plan, in a thread of its own; `end()` closes it.
PIPE = """
import os, signal, sys, threading
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

def interrupt():
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()

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
