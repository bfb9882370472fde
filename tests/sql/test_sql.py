"""Every statement of the corpus, asked of the built program."""

import functools
import pathlib

import pytest

from sql.answers import as_lines, cells, difference, same_text
from sql.entries import Entry, entry_of, files, read
from sql.run import Said, judged, together

ENTRIES = {file: [one for one in read(file) if isinstance(one, Entry)] for file in files()}
ALL = [(file, number) for file, entries in ENTRIES.items() for number in range(len(entries))]


@functools.cache
def verdicts(file):
    return together(ENTRIES[file])


@pytest.mark.parametrize(
    ("file", "number"), ALL, ids=[ENTRIES[file][number].place for file, number in ALL]
)
def test_the_answer_is_the_one_that_is_written_down(file, number):
    verdict = verdicts(file)[number]
    assert verdict.wrong is None, str(verdict)


def test_files_are_written_as_they_are_read():
    for file in files():
        content = read(file)
        text = "\n".join(x if isinstance(x, str) else x.text() for x in content)
        assert text == file.read_text(), f"{file}: `python -m sql --record` writes it in order"


def test_no_statement_stands_twice_in_a_dialect():
    seen = {}
    for entries in ENTRIES.values():
        for entry in entries:
            key = (entry.dialect, " ".join(entry.statement.split()), *entry.flags)
            assert key not in seen, f"{entry.place} and {seen[key]}: {entry.statement}"
            seen[key] = entry.place


FILE = pathlib.Path("duckdb/a.sql")
ERROR = "error: `x` is not supported\nhint: write y\n"


@pytest.mark.parametrize(
    ("marks", "status", "out", "err", "wrong"),
    [
        ("--> duckdb\n1", 0, "a\n1\n", "", None),
        ("--> duckdb\n1", 0, "a\n2\n", "", "row 1: `2` came, `1` was wanted"),
        ("--> duckdb\n1", 0, "a\n1\n1\n", "", "2 rows came, 1 were wanted"),
        ("--> duckdb\n1", 2, "", ERROR, "refused: `x` is not supported"),
        ("--> duckdb names\na\n1", 0, "a\n1\n", "", None),
        ("--> duckdb names\nb\n1", 0, "a\n1\n", "", "row 1: `a` came, `b` was wanted"),
        ("--> duckdb", 0, "a\n", "", None),
        ("--> duckdb\nNULL", 0, "a\n\n", "", None),
        ('--> duckdb\n""', 0, "a\n\n", "", 'row 1: `` came, `""` was wanted'),
        ("--> pending: x\n--> duckdb\n1", 2, "", ERROR, None),
        ("--> pending: x\n--> duckdb\n1", 0, "a\n1\n", "", "is pending, and is answered now"),
        ("--> pending: x\n--> duckdb\n1", 0, "a\n2\n", "", "is pending, and is answered wrongly"),
        ("--> pending: x\n--> duckdb\n1", 101, "", ERROR, "ended with status 101"),
        ("--> pending: x\n--> duckdb\n1", 2, "", "error: x\n", "has no hint"),
        ("--> error: `x` is not\n--> hint: write y", 2, "", ERROR, None),
        ("--> error: `x` is not", 0, "a\n1\n", "", "was answered"),
        ("--> error: `z` is not", 2, "", ERROR, "has another message than ``z` is not`"),
        ("--> error: `x`\n--> hint: write z", 2, "", ERROR, "has another hint than `write z`"),
        ("--> fault: x\n--> duckdb\n1", 0, "a\n2\n", "", None),
        ("--> fault: x\n--> duckdb\n1", 0, "a\n1\n", "", "is marked as a fault, and is right now"),
        ("--> differs: x\n--> tidemill\n1\n--> spark\n2", 0, "a\n1\n", "", None),
        (
            "--> differs: x\n--> tidemill\n1\n--> spark\n1", 0, "a\n1\n", "",
            "is marked as different, and both answers are the same",
        ),
    ],
)  # fmt: skip
def test_a_verdict(marks, status, out, err, wrong):
    entry = entry_of(FILE, 1, ["SELECT 1", *marks.split("\n")])
    assert judged(entry, Said(status, out, err)).wrong == wrong


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1", "1.0", True),
        ("0.30000000000000004", "0.3", True),
        ("1", "1.0001", False),
        ("01", "1", False),
        ("2026-03-01 10:00:00", "2026-03-01T10:00:00.000", True),
        ("2026-03-01T10:00:00", "2026-03-01T10:00:00Z", False),
        ("[1, 2]", "[1,2.0]", True),
        ('{"a":1}', '{"b":1}', False),
        ('{"a":null}', '{"a":"NULL"}', False),
        ("abc", "ABC", False),
    ],
)
def test_values_are_the_same(one, other, same):
    assert same_text(one, other) is same


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("a,,NULL", ["a", None, None]),
        ('"a,""b""","",c', ['a,"b"', "", "c"]),
        ("", [None]),
    ],
)
def test_a_line_of_an_answer(line, values):
    assert cells(line) == values


def test_a_null_and_an_empty_text_are_told_apart():
    assert as_lines([[None], [""], [None, ""]]) == ["NULL", '""', 'NULL,""']
    assert difference(["1,NULL"], ['1,""']) is not None
    assert difference(['1,""'], ["1,"]) is not None
    # Alone in its line a null comes in quotes, so that the line is seen.
    assert difference(["NULL"], ['""']) is None
    assert difference(['""'], [""]) is not None


def test_truth_is_one_where_it_is_a_number():
    assert difference(["1,0,2"], ["true,false,2"], numbers=True) is None
    assert difference(["1"], ["false"], numbers=True) is not None
    assert difference(["1"], ["true"]) is not None
