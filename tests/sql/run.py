"""Asks Tidemill for the answers, and judges what comes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .answers import difference, records
from .entries import DATA, Entry

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# How many statements are asked at a time.
TOGETHER = 2
# Ends the text of a message that has no hint.
WITHOUT_HINT = " (no hint)"


def binary() -> str:
    """The program, as the other tests find it."""
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    return os.environ.get("TIDEMILL", str(REPOSITORY / target / "release" / "tidemill"))


@dataclass
class Said:
    """What the program said to a statement."""

    status: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The first line of an error, without its `error: `."""
        for line in self.err.splitlines():
            if line.startswith("error: "):
                return line.removeprefix("error: ").strip()
        return ""

    @property
    def hint(self) -> str:
        """The first line of its hint."""
        for line in self.err.splitlines():
            if line.startswith("hint: "):
                return line.removeprefix("hint: ").strip()
        return ""


@dataclass
class Verdict:
    """What became of an entry: its kind, and what is wrong, if anything is."""

    entry: Entry
    said: Said
    kind: str
    wrong: str | None

    def __str__(self) -> str:
        said = self.said.out if self.said.status == 0 else self.said.err
        head = f"{self.entry.place}: {self.wrong}\n{self.entry.statement}"
        return f"{head}\n[exit {self.said.status}]\n{said}"


def ask(entry: Entry, program: str, home: str) -> Said:
    """Ask one statement, in the folder of the data."""
    known = {**os.environ, "TIDEMILL_HOME": home, "TIDEMILL_JOB_LOG": "off", "TZ": "UTC"}
    # What stands behind `--` may begin with a comment of SQL's.
    command = [program, "query", "--format", "csv", *entry.flags, "--", entry.statement]
    made = subprocess.run(
        command, cwd=DATA, env=known, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    out, err = made.stdout.decode(errors="replace"), made.stderr.decode(errors="replace")
    return Said(made.returncode, out, err)


def refused(said: Said) -> str | None:
    """What is wrong with a refusal: it has a status of its own, a message and a hint."""
    if said.status == 0:
        return "was answered"
    if said.status not in (1, 2):
        return f"ended with status {said.status}"
    if "panicked" in said.err or "Traceback" in said.err:
        return "panicked"
    if not said.message:
        return "has no message"
    return None if said.hint else "has no hint"


def answered(entry: Entry, said: Said) -> str | None:
    """What tells the answer from the one that is expected."""
    if said.status != 0:
        return f"refused: {said.message or said.err.strip()}"
    if entry.ours is None:
        return "no answer is written down; `--ask` asks for one"
    came = records(said.out)
    numbers = entry.ours.engines == ["clickhouse"]
    return difference(entry.ours.lines, came if entry.ours.names else came[1:], numbers)


def judged(entry: Entry, said: Said) -> Verdict:
    """What becomes of an entry."""
    texts = entry.texts
    if "pending" in texts:
        wrong = refused(said)
        if said.status == 0:
            right = answered(entry, said) is None
            wrong = "is pending, and is answered " + ("now" if right else "wrongly")
        elif wrong == "has no hint" and texts["pending"].endswith(WITHOUT_HINT):
            wrong = None
        return Verdict(entry, said, "pending", wrong)
    if "error" in texts:
        wrong = refused(said)
        if wrong == "has no hint" and texts["error"].endswith(WITHOUT_HINT):
            wrong = None
        if wrong is None and texts["error"].removesuffix(WITHOUT_HINT) not in said.err:
            wrong = f"has another message than `{texts['error']}`"
        if wrong is None and texts.get("hint", "") not in said.err:
            wrong = f"has another hint than `{texts['hint']}`"
        return Verdict(entry, said, "refused", wrong)
    wrong = answered(entry, said)
    if "fault" in texts:
        wrong = None if wrong is not None else "is marked as a fault, and is right now"
        return Verdict(entry, said, "fault", wrong)
    if "differs" in texts:
        theirs = entry.answers[1]
        if wrong is None and difference(theirs.lines, entry.answers[0].lines) is None:
            wrong = "is marked as different, and both answers are the same"
        return Verdict(entry, said, "differs", wrong)
    return Verdict(entry, said, "pass", wrong)


def together(entries: Sequence[Entry], program: str | None = None) -> list[Verdict]:
    """Judge many, a few at a time."""
    program = program or binary()
    with tempfile.TemporaryDirectory(prefix="sql-") as home:
        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(lambda one: judged(one, ask(one, program, home)), entries))
