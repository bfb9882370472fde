"""How the files of statements are written and read; README.md has it in words.

A file is a list of blocks with blank lines between them. A block is a statement and then marks,
lines that begin with ``-->``; what follows a mark of an answer is the answer. A block of lines
that begin with ``# `` alone is a comment.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field

FOLDER = pathlib.Path(__file__).resolve().parent
DATA = FOLDER / "data"
ENGINES = ("duckdb", "postgresql", "spark", "clickhouse")
MARK = "-->"
# Marks with a text of their own: `--> pending: what is missing`.
TEXTS = ("flags", "pending", "fault", "differs", "error", "hint")


@dataclass
class Answer:
    """Rows as they stand in the file, and who gave them."""

    engines: list[str]
    names: bool
    lines: list[str]

    def mark(self) -> str:
        return " ".join([*self.engines, *(["names"] if self.names else [])])


@dataclass
class Entry:
    """One statement, and what is expected of it."""

    file: pathlib.Path
    line: int
    statement: str
    comment: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    @property
    def dialect(self) -> str:
        return self.file.parent.name

    @property
    def place(self) -> str:
        return f"{self.dialect}/{self.file.name}:{self.line}"

    @property
    def flags(self) -> list[str]:
        return self.texts.get("flags", "").split()

    @property
    def ours(self) -> Answer | None:
        """The answer that Tidemill is to give."""
        return self.answers[0] if self.answers else None

    def text(self) -> str:
        """Write it as it stands in a file."""
        lines = [*self.comment, *self.statement.split("\n")]
        lines += [f"{MARK} {key}: {self.texts[key]}" for key in TEXTS if key in self.texts]
        for answer in self.answers:
            lines += [f"{MARK} {answer.mark()}", *answer.lines]
        return "\n".join(lines) + "\n"


def blocks(text: str) -> list[tuple[int, list[str]]]:
    """Cut a text at its blank lines; each piece with the number of its first line."""
    found: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            inside = False
        elif inside:
            found[-1][1].append(line)
        else:
            found.append((number, [line]))
            inside = True
    return found


def entry_of(file: pathlib.Path, number: int, lines: list[str]) -> Entry:
    """Read one block."""
    place = f"{file}:{number}"
    comment = []
    while lines and lines[0].startswith("#"):
        comment.append(lines.pop(0))
    statement = []
    while lines and not lines[0].startswith(MARK):
        statement.append(lines.pop(0))
    entry = Entry(file, number, "\n".join(statement), comment)
    for line in lines:
        if not line.startswith(MARK):
            if not entry.answers:
                raise ValueError(f"{place}: `{line}` follows no mark of an answer")
            entry.answers[-1].lines.append(line)
            continue
        mark = line[len(MARK) :].strip()
        key, colon, text = mark.partition(":")
        if colon and key in TEXTS:
            if key in entry.texts:
                raise ValueError(f"{place}: `{key}` stands twice")
            entry.texts[key] = text.strip()
            continue
        words = mark.replace(",", " ").split()
        unknown = [word for word in words if word not in (*ENGINES, "tidemill", "names")]
        if unknown or not words:
            known = ", ".join((*TEXTS, *ENGINES, "tidemill", "names"))
            raise ValueError(f"{place}: `{line}` is no mark; there are {known}")
        engines = [word for word in words if word != "names"]
        entry.answers.append(Answer(engines, "names" in words, []))
    if "differs" in entry.texts and len(entry.answers) != 2:
        raise ValueError(f"{place}: `differs` wants two answers, of tidemill and of another")
    if "differs" not in entry.texts and len(entry.answers) > 1:
        raise ValueError(f"{place}: two answers, and no mark `differs`")
    return entry


def read(file: pathlib.Path) -> list[Entry | str]:
    """Read a file: its entries, and its comments between them."""
    found: list[Entry | str] = []
    for number, lines in blocks(file.read_text()):
        if all(line.startswith("#") for line in lines):
            found.append("\n".join(lines) + "\n")
        else:
            found.append(entry_of(file, number, lines))
    return found


def write(file: pathlib.Path, content: list[Entry | str]) -> None:
    """Write a file anew."""
    file.write_text("\n".join(x if isinstance(x, str) else x.text() for x in content))


def files() -> list[pathlib.Path]:
    """All files of statements."""
    return [file for engine in ENGINES for file in sorted((FOLDER / engine).glob("*.sql"))]
