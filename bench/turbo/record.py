"""A table that sharpens on a terminal, as frames of text.

    TIDEMILL=… python3 bench/turbo/record.py [--columns 100] [--lines 30] [--frames 4] [--interrupt SECONDS] -- WORDS

Runs `tidemill WORDS` on a pseudo-terminal of so many columns and lines, follows what it writes there, and prints what stood on
it at so many moments: the first at which a table was drawn, the end, and between them evenly. A moment is one at which
nothing more came for a hundredth of a second. What a terminal would do that is not in here is an error. Standard
library only.

docs/turbo.md has, in a folder with a `hits.csv` of 250,000,000 rows made as there:

    python3 bench/turbo/record.py -- query "SELECT page, count() AS views, avg(ms) AS ms, max(ms) AS slowest \
        FROM 'hits.csv' GROUP BY page ORDER BY page"
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import unicodedata

import common

SETTLED_SECONDS = 0.01

# What moves the cursor or takes something away; colours and what a terminal is asked for change no text.
SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Terminal:
    """The text on a terminal, as far as our programs move in it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.rest = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        text = self.rest + self.decoder.decode(data)
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                if found is None:
                    self.rest = text[at:]
                    if len(self.rest) > 32:
                        raise ValueError(f"an escape sequence that is not known: {self.rest[:32]!r}")
                    return
                self.move(found[1], found[2])
                at = found.end()
                continue
            self.put(text[at])
            at += 1

    def move(self, what: str, command: str) -> None:
        count = int(what) if what.isdigit() else 1
        match command:
            case "A":
                self.row = max(0, self.row - count)
            case "B":
                self.down(count)
            case "J" if what in ("", "0"):
                del self.rows[self.row + 1 :]
                del self.rows[self.row][self.column :]
            case "K" if what in ("", "0"):
                del self.rows[self.row][self.column :]
            case "K" if what == "2":
                self.rows[self.row].clear()
            case "m":
                pass
            case "h" | "l" if what.startswith("?"):
                pass
            case _:
                raise ValueError(f"an escape sequence that is not known: {what}{command}")

    def down(self, count: int) -> None:
        self.row += count
        while len(self.rows) <= self.row:
            self.rows.append([])

    def put(self, character: str) -> None:
        match character:
            case "\n":
                self.down(1)
            case "\r":
                self.column = 0
            case "\x07":
                pass
            case _ if character < " ":
                raise ValueError(f"a control character that is not known: {character!r}")
            case _:
                width = 0 if unicodedata.combining(character) else 1
                width += unicodedata.east_asian_width(character) in "WF"
                if self.column + width > self.columns:
                    self.down(1)
                    self.column = 0
                row = self.rows[self.row]
                row.extend(" " * (self.column - len(row)))
                row[self.column : self.column + width] = [character, *[""] * (width - 1)]
                self.column += width

    def text(self) -> str:
        rows = ["".join(row).rstrip() for row in self.rows[-self.lines :]]
        return "\n".join(rows).rstrip("\n")


def record(command: list[str], columns: int, lines: int, interrupt: float | None) -> list[tuple[float, str]]:
    """What stood on a terminal, each with its time; the last is the end."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color")
        for name in ("PAGER", "NO_COLOR", "COLUMNS", "LINES"):
            os.environ.pop(name, None)
        # Not before the terminal has its size.
        sys.stdin.readline()
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    settings = termios.tcgetattr(terminal)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    os.write(terminal, b"\n")
    began, screen, frames = time.monotonic(), Terminal(columns, lines), []
    while True:
        elapsed = time.monotonic() - began
        if interrupt is not None and elapsed > interrupt:
            os.kill(child, signal.SIGINT)
            interrupt = None
        ready, _, _ = select.select([terminal], [], [], SETTLED_SECONDS)
        if ready:
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:
                break
            if not data:
                break
            screen.write(data)
        elif screen.text() != (frames[-1][1] if frames else ""):
            frames.append((elapsed, screen.text()))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    frames.append((time.monotonic() - began, screen.text() + (f"\n[exit {status}]" if status else "")))
    return frames


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--lines", type=int, default=30)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--interrupt", type=float, metavar="SECONDS")
    parser.add_argument("words", nargs="+")
    given = parser.parse_args()
    command = [str(common.tidemill()), *given.words]
    frames = record(command, given.columns, given.lines, given.interrupt)
    tables = [frame for frame in frames[:-1] if "Ctrl-C" in frame[1]]
    count = min(max(given.frames - 1, 1), len(tables))
    chosen = [tables[place * len(tables) // count] for place in range(count)] + frames[-1:]
    print(f"{len(tables)} frames; after {frames[-1][0]:.1f} s the end", file=sys.stderr)
    for seconds, text in chosen:
        print(f"--- {seconds:.1f} s ---\n{text}")


if __name__ == "__main__":
    main()
