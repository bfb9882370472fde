"""The judge itself on small files of our own; and the suite, if there is a checkout of it."""

import decimal
import math
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading

import duckdb
import pyarrow as pa
import pytest

import tidemill as tm
from conformance.duckdb import __main__ as command_line
from conformance.duckdb import intended, judge, machinery, page, report, rows, sqllogic
from conformance.duckdb.judge import (
    FileVerdict,
    TimeLimits,
    explain,
    find_files,
    is_failure,
    judge_all,
    judge_file,
)

ROOT = os.environ.get("DUCKDB_DIR")
# A small part of the suite.
SHORT = ("conjunction", "limit", "select")
TIDEMILL = "conformance.duckdb.engine:run_query"
FAULTY = "conformance.duckdb.test_duckdb:run_faulty_query"
# The path of a FIFO, which a query that never ends keeps open.
FIFO_VARIABLE = "JUDGE_TEST_FIFO"
# Far more than a killed process needs to end: reached only if it does not.
LIVENESS_SECONDS = 300
DUCKDB_MAJOR = int(duckdb.__version__.split(".")[0])


class Patience(TimeLimits):
    """No limits, except for queries that never end, which have no time at all."""

    def for_query(self, sql):
        return 0 if "hang" in sql else None

    def for_file(self):
        return None


def run_faulty_query(sql, tables):
    """Answer as DuckDB does, except for queries that name a fault."""
    if "hang" in sql or "outlast" in sql:
        if path := os.environ.get(FIFO_VARIABLE):
            fifo = open(path, "w")
            fifo.write(f"{os.getcwd()}\n")
            fifo.flush()
        threading.Event().wait()
    if "wrong" in sql:
        return pa.table({"x": [41]})
    if "refuse" in sql:
        raise tm.UsageError("`x` is not supported\nhint: write y")
    if "internal" in sql:
        raise tm.UsageError("internal error: no such field")
    if "fault" in sql:
        raise tm.InternalError("a bug")
    if "foreign" in sql:
        raise KeyError("x")
    if "crash" in sql:
        os._exit(134)
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        answer = connection.execute(sql).to_arrow_table()
    if "backwards" in sql:
        return answer.take(pa.array(range(answer.num_rows)[::-1]))
    if "off_by_one" in sql:
        column = answer.column(0).to_pylist()
        # One value is off by more.
        return pa.table({"x": [value + (9 if value == 300 else 1) for value in column]})
    return answer


def write_suite(root, text):
    """Write a suite of one file; returns its path."""
    path = root / "test" / "sql" / "select" / "a.test"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def judge_text(tmp_path):
    """Judge a file of some text in a suite of its own; returns its verdict."""

    def judge_suite(text, *, engine=FAULTY, entries=(), **options):
        path = write_suite(tmp_path, text)
        return judge_file(tmp_path, path, Patience(), engine, entries=entries, **options)

    return judge_suite


def outcomes(verdict):
    return [one["outcome"] for one in verdict.verdicts]


TABLES = """
statement ok
CREATE TABLE t AS SELECT i, i % 3 AS g FROM range(10) r(i);

statement ok
CREATE VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g
"""

QUERIES = """
query II
SELECT * FROM t WHERE i > 4
----
ignored

query II rowsort
SELECT g, n FROM v

query II
SELECT t.i, v.n FROM t JOIN v USING (g) ORDER BY ALL

query I
WITH t2 AS (SELECT max(i) AS m FROM t) SELECT m FROM t2
"""


def test_tidemill_answers_over_the_tables_of_duckdb(judge_text):
    verdict = judge_text(TABLES + QUERIES, engine=TIDEMILL)
    assert outcomes(verdict) == ["same"] * 4, verdict
    assert not any("order" in one for one in verdict.verdicts)


def test_a_table_called_as_an_argument_is_found(judge_text):
    text = "statement ok\nCREATE TABLE sample AS SELECT 7 AS x\n\nquery I\nSELECT x FROM sample\n"
    assert outcomes(judge_text(text, engine=TIDEMILL)) == ["same"]


@pytest.mark.parametrize(
    ("query", "outcome", "message"),
    [
        ("SELECT 42 AS wrong", "different", "1 of 1 rows are missing"),
        ("SELECT 41, 'wrong'", "different", "1 columns, not 2"),
        ("FROM range(2) AS wrong", "different", "1 rows, not 2"),
        ("SELECT 1 AS refuse", "refused", "`x` is not supported\nhint: write y"),
        ("SELECT 1 AS internal", "internal", "internal error: no such field"),
        ("SELECT 1 AS fault", "internal", "a bug"),
        ("SELECT 1 AS foreign_", "internal", "'x'"),
        ("SELECT 1 AS crash", "internal", "the process ended with status 134"),
        ("SELECT 1 AS hang", "no end", "no answer within 0 s"),
    ],
)
def test_a_fault_is_reported_and_the_next_query_is_asked(judge_text, query, outcome, message):
    verdict = judge_text(f"{TABLES}\nquery I\n{query}\n\nquery I\nSELECT count(*) FROM t\n")
    assert outcomes(verdict) == [outcome, "same"], verdict
    assert verdict.verdicts[0]["message"] == message
    assert is_failure(verdict.verdicts[0]) is (outcome != "refused")
    assert not verdict.left_out


def test_rows_of_both_answers_are_quoted(judge_text):
    (verdict,) = judge_text("query I\nSELECT 42 AS wrong\n").verdicts
    assert (verdict["expected"], verdict["actual"]) == (["(42)"], ["(41)"])
    assert "duckdb:   (42)\n    tidemill: (41)" in report.description(verdict)


@pytest.mark.parametrize(
    ("head", "order", "is_noted"),
    [
        ("query I", "ORDER BY backwards", True),
        ("query I nosort", "ORDER BY backwards", True),
        ("query I rowsort", "ORDER BY backwards", False),
        ("query I", "", False),
    ],
)
def test_another_order_is_noted_where_the_query_sets_one(judge_text, head, order, is_noted):
    sql = f"SELECT * FROM (VALUES (1), (2)) v(backwards) {order}"
    (verdict,) = judge_text(f"{head}\n{sql}\n").verdicts
    assert verdict["outcome"] == "same"
    assert ("order" in verdict) is is_noted
    if is_noted:
        assert (verdict["expected"], verdict["actual"]) == (["(1)", "(2)"], ["(2)", "(1)"])


def test_a_query_in_its_order_is_not_noted(judge_text):
    (verdict,) = judge_text("query I\nFROM range(3) t(x) ORDER BY x DESC\n").verdicts
    assert verdict["outcome"] == "same"
    assert "order" not in verdict


def test_a_worker_ends_with_its_parent(tmp_path):
    path = write_suite(tmp_path / "suite", "query I\nSELECT 1 AS outlast\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The parent opens the FIFO, too: if it fails, the FIFO is closed and the test does not wait.
    program = (
        "import os, pathlib\n"
        f"fifo = open(os.environ[{FIFO_VARIABLE!r}], 'w')\n"
        "from conformance.duckdb import judge, test_duckdb\n"
        f"judge.judge_file(pathlib.Path({str(tmp_path / 'suite')!r}), pathlib.Path({str(path)!r}),"
        f" test_duckdb.Patience(), {FAULTY!r})\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {FIFO_VARIABLE: str(fifo)},
    )
    try:
        with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
            folder = read_fifo(reader)
            assert folder, "the query was not run"
            assert parent.poll() is None
            parent.send_signal(signal.SIGKILL)
            # The end of the file: both writers have ended, the parent and the worker.
            assert read_fifo(reader) == b""
    finally:
        parent.kill()
        parent.wait()
    assert not os.path.exists(folder.decode().strip())


def read_fifo(reader):
    """Return the next bytes of a FIFO, none at its end."""
    poller = select.poll()
    poller.register(reader, select.POLLIN | select.POLLHUP)
    assert poller.poll(LIVENESS_SECONDS * 1000), "no process writes, and one of them has not ended"
    return reader.read(4096)


def test_a_message_that_is_cut_short_is_the_end_of_the_process():
    class Receiver:
        def poll(self, seconds):
            return True

        def recv(self):
            raise OSError("got end of file during message")

    class Process:
        exitcode = -9

        def join(self):
            pass

    verdict = FileVerdict("a.test")
    assert judge.follow(Process(), Receiver(), verdict, Patience(), None) is None
    assert verdict.left_out == "the process ended with status -9 outside of Tidemill"
    assert verdict.is_cut_off


def test_answers_by_settings_that_only_duckdb_has_are_asked_for_without_them(judge_text):
    text = """
statement ok
SET default_null_order = 'nulls_first'

query I
SELECT x FROM (VALUES (1), (NULL)) t(x) ORDER BY x LIMIT 1

query I
SELECT 42 AS wrong
"""
    one, other = judge_text(text).verdicts
    assert (one["outcome"], one["settings"]) == ("same", {"default_null_order": "NULLS_FIRST"})
    assert other["outcome"] == "different"


DAY = 86_400 * 10**9
INFINITE_DATE = ("date", 2**31 - 1)
BARS = tuple(
    (("low", low), ("high", low + 1.0), ("count", count)) for low, count in [(1.0, 2), (2.0, 4)]
)


@pytest.mark.parametrize(
    ("rule", "theirs", "ours", "is_alike"),
    [
        (intended.numbers_within(1), (2, "a"), (1, "a"), True),
        (intended.numbers_within(1), (2, "a"), (0, "a"), False),
        (intended.numbers_within(1), (2, "a"), (1, "b"), False),
        (intended.numbers_within(1), (2**60 + 3,), (2**60 + 1,), False),
        (intended.numbers_within(1), ((1, 2),), ((1, 3),), True),
        (intended.numbers_within(1), (None,), (0,), False),
        (intended.is_cut, (2,), (1,), True),
        (intended.is_cut, (-2,), (-1,), True),
        (intended.is_cut, (1,), (2,), False),
        (intended.is_cut, (-1,), (-2,), False),
        (intended.is_cut, (0,), (1,), False),
        (intended.is_cut, (2.0,), (1.0,), False),
        (intended.is_iso_time, ("2026-02-01 11:00:00",), ("2026-02-01T11:00:00",), True),
        (intended.is_iso_time, ("2026-02-01 11:00:00",), ("2026-02-01T11:00:01",), False),
        (intended.is_iso_time, ("2026-02-01 11:00:00",), ("2026-02-01T11:00:00Z",), False),
        (intended.is_iso_time, ("a",), ("b",), False),
        (intended.is_mondays_for_weeks, (0,), (1,), True),
        (intended.is_mondays_for_weeks, (-1,), (-2,), True),
        (intended.is_mondays_for_weeks, (1,), (0,), False),
        (intended.is_date_of_time, (("timestamp", DAY),), (("date", 1),), True),
        (intended.is_date_of_time, (("timestamp", DAY + 1),), (("date", 1),), False),
        (intended.is_null_of_nan, (math.nan,), (None,), True),
        (intended.is_null_of_nan, (None,), (math.nan,), False),
        (intended.is_null_of_nan, (1.0,), (None,), False),
        (intended.is_estimate, (1033,), (1000,), True),
        (intended.is_estimate, (1100,), (1000,), False),
        (intended.is_estimate, (1,), (0,), False),
        (intended.is_histogram, (((1, 2), (2, 1), (3, 3)),), (BARS,), True),
        (intended.is_histogram, (((1, 2), (2, 4)),), (BARS,), True),
        (intended.is_histogram, (((1, 3), (2, 3)),), (BARS,), False),
        (intended.is_histogram, (((1, 2), (2, 4), (9, 1)),), (BARS,), False),
        (intended.is_histogram, ((),), (BARS,), False),
        (intended.is_list_with_null, ((1, 2),), ((1, None, 2),), True),
        (intended.is_list_with_null, ((1, 2),), ((1, None, 2, None),), False),
        (intended.is_list_with_null, ((1, 2),), ((2, 1, None),), False),
        (intended.is_truncated_tenth, (decimal.Decimal("24.7"),), (24.75,), True),
        (intended.is_truncated_tenth, (decimal.Decimal("24.8"),), (24.75,), False),
        (intended.is_row_of_infinite_time, (INFINITE_DATE, None), (INFINITE_DATE, 7), True),
        (intended.is_row_of_infinite_time, (INFINITE_DATE, 6), (INFINITE_DATE, 7), False),
        (intended.is_row_of_infinite_time, (("date", 1), None), (("date", 1), 7), False),
        (intended.is_year_of_365_days, (2 * 31_104_000_000,), (2 * 31_557_600_000,), True),
        (intended.is_year_of_365_days, (31_104_000_000,), (31_557_600_001,), False),
        (intended.is_hash, (0,), (2**63,), True),
        (intended.is_hash, (2**63,), (0,), False),
        (intended.is_hash, (None,), (2**63,), False),
        (intended.is_offset_of_zero, (("timezone_hour", 15),), (("timezone_hour", 0),), True),
        (intended.is_offset_of_zero, (("hour", 24),), (("hour", 0),), False),
        (intended.same_after(intended.json_text), ('"b"',), ("b",), True),
        (intended.same_after(intended.json_text), ("1",), ("2",), False),
    ],
)
def test_values_are_alike_by_the_rule_of_an_entry(rule, theirs, ours, is_alike):
    assert intended.are_alike(theirs, ours, rule) is is_alike


@pytest.mark.parametrize(
    ("rule", "expected", "actual", "is_alike"),
    [
        (intended.by_value(intended.numbers_within(1)), [(1,), (5,)], [(6,), (1,)], True),
        (intended.by_value(intended.numbers_within(1)), [(1,)], [(1,), (1,)], False),
        (intended.by_value(intended.numbers_within(1)), [(1,), (1,)], [(1,)], False),
        (intended.by_value(intended.numbers_within(1)), [(1,), (5,)], [(1,), (7,)], False),
        (intended.one_of((1, 2), (None, 3)), [(1, 8), (None, 8)], [(2, 8), (3, 8)], True),
        (intended.one_of((1, 2), (None, 3)), [(1, 8), (None, 9)], [(3, 8), (2, 9)], False),
        (intended.exactly([], [(None,)]), [], [(None,)], True),
        (intended.exactly([], [(None,)]), [], [(None,), (None,)], False),
    ],
)
def test_all_rows_are_compared_by_the_rule_of_an_entry(rule, expected, actual, is_alike):
    assert rule(expected, actual) is is_alike


ONE_MORE = intended.by_value(intended.numbers_within(1))


@pytest.mark.parametrize(("count", "is_covered"), [(30, True), (31, False)])
def test_an_entry_looks_at_all_rows(judge_text, count, is_covered):
    # More rows than a verdict quotes, of which one at the end may be another difference.
    text = f"query I\nSELECT 10 * x FROM range({count}) AS off_by_one(x)\n"
    entry = intended.Intended("one more", "sql.md", ONE_MORE, sql="off_by_one")
    (verdict,) = judge_text(text, entries=[entry]).verdicts
    assert len(verdict["expected"]) == rows.QUOTED_ROWS_MAX
    assert is_failure(verdict) is not is_covered


def test_an_entry_covers_no_difference_of_more_rows_than_it_sees(judge_text):
    count = intended.EXPLAINED_ROWS_MAX + 1
    entry = intended.Intended("one more", "sql.md", ONE_MORE, sql="off_by_one")
    text = f"query I\nSELECT 10 * x FROM range({count}) AS off_by_one(x)\n"
    assert is_failure(judge_text(text, entries=[entry]).verdicts[0])


def test_what_duckdb_refuses_is_not_counted(judge_text):
    text = """
query I
SELECT nothing

statement error
SELECT nothing
----
Binder Error

query T
EXPLAIN SELECT 1

query I
SELECT random()

query I
SELECT 1

query I
SELECT 1
"""
    verdict = judge_text(text)
    assert [one["sql"] for one in verdict.verdicts] == ["SELECT 1"]
    assert verdict.uncounted == {
        "query that DuckDB refuses": 1,
        "query of another kind than SELECT: EXPLAIN": 1,
        "query to which DuckDB has another answer each time": 1,
        "query that was asked before on the same tables": 1,
    }


def test_answers_to_what_duckdb_refuses_are_reported_on_demand(judge_text):
    text = "statement error\nSELECT 1 AS wrong, nothing\n\nstatement error\nSELECT refuse\n"
    verdict = judge_text(text, with_errors=True)
    assert outcomes(verdict) == ["answered"]
    assert "nothing" in verdict.verdicts[0]["duckdb"]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("loop i 1 3\n\nquery I\nSELECT {i}\n\nendloop", ["SELECT 1", "SELECT 2"]),
        ("foreach t <signed> !hugeint\n\nquery I\nSELECT 1::${t}\n\nendloop", 4),
        ("foreach a,b x,1 y,2\n\nquery I\nSELECT {b} AS {a}\n\nendloop", 2),
        (
            "loop i 0 2\n\nloop j 0 2\n\nonlyif i=1&&j=0\nquery I\nSELECT {i}{j}\n\n"
            "endloop\n\nendloop",
            ["SELECT 10"],
        ),
        (
            "loop i 0 3\n\nskipif i<>1\ncontinue\n\nquery I\nSELECT {i}\n\nendloop",
            ["SELECT 0", "SELECT 2"],
        ),
        ("skipif duckdb\nquery I\nSELECT 1\n\nonlyif duckdb\nquery I\nSELECT 2", ["SELECT 2"]),
        ("mode skip\n\nquery I\nSELECT 1\n\nmode unskip\n\nquery I\nSELECT 2", ["SELECT 2"]),
        ("query I\nSELECT 1\n\nhalt\n\nquery I\nSELECT 2", ["SELECT 1"]),
        ("query T\nSELECT '#'\n----\n#\n# not a comment\n\nquery I\nSELECT 2", 2),
        ("require icu\n\nrequire vector_size 512\n\nquery I\nSELECT 1", ["SELECT 1"]),
        ("require no_such_extension\n\nquery I\nSELECT 1", "require no_such_extension"),
        ("require-env NAME\n\nquery I\nSELECT 1", "require-env NAME"),
        ("loop i 0 2\n\nquery I\nSELECT 1", "line 1: the loop has no `endloop`"),
        ("test-env N 3\n\nset variable M 4\n\nquery I\nSELECT {N}{M}", ["SELECT 34"]),
        ("statement ok\nCREATE TABLE u(x int)\n\nrestart\n\nquery I\nSELECT x FROM u", []),
        (
            "load {TEST_DIR}/a.db\n\nstatement ok\nCREATE TABLE u(x int)\n\nrestart\n\n"
            "query I\nSELECT x FROM u",
            ["SELECT x FROM u"],
        ),
        ("statement ok con1\nBEGIN\n\nquery I con1\nSELECT 1\n\nquery I nosort a\nSELECT 2", 2),
    ],
)
def test_commands_of_a_file(judge_text, text, queries):
    verdict = judge_text(text + "\n")
    if isinstance(queries, str):
        assert (verdict.left_out, verdict.verdicts) == (queries, [])
        return
    assert not verdict.left_out
    found = [one["sql"] for one in verdict.verdicts]
    assert (len(found) if isinstance(queries, int) else found) == queries
    assert set(outcomes(verdict)) <= {"same"}


def test_conditions_compare_numbers_and_texts():
    assert sqllogic.condition_holds("i>=10", {"i": "10"}) and not sqllogic.condition_holds(
        "i<9", {"i": "10"}
    )
    assert sqllogic.condition_holds("x<>b", {"x": "a"}) and not sqllogic.condition_holds(
        "missing=1", {}
    )


SECONDS = pa.array([86400], pa.duration("s"))
# More digits than a double has.
DIGITS = decimal.Decimal("0.123456789012345678901234567890")
LAST_DIGIT = decimal.Decimal("1e-30")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (pa.array([1], pa.int8()), pa.array([1.0]), True),
        (pa.array([1.0]), pa.array([1.0 + 1e-12]), True),
        (pa.array([1.0]), pa.array([1.0 + 1e-7]), False),
        (pa.array([1.1], pa.float32()), pa.array([1.1]), True),
        (pa.array([math.nan, 1]), pa.array([1, math.nan]), True),
        (pa.array([2**53]), pa.array([2**53 + 1]), False),
        (pa.array([2**53 + 1]), pa.array([2.0**53]), True),
        (pa.array([DIGITS]), pa.array([DIGITS + LAST_DIGIT]), False),
        (pa.array([DIGITS]), pa.array([DIGITS], pa.decimal128(38, 30)), True),
        (pa.array([DIGITS]), pa.array([float(DIGITS)]), True),
        (pa.array([DIGITS]), pa.array([float(DIGITS) * 1.001]), False),
        (pa.array([[DIGITS]]), pa.array([[DIGITS + LAST_DIGIT]]), False),
        (pa.array([decimal.Decimal(2**53)]), pa.array([2**53 + 1]), False),
        (pa.array([decimal.Decimal("0.5")]), pa.array([0.5]), True),
        (pa.array([0.0]), pa.array([1e-13]), True),
        (pa.array([0.0]), pa.array([1e-11]), False),
        (pa.array([True]), pa.array([1]), False),
        (pa.array(["1"]), pa.array([1]), False),
        (pa.array([None, 1]), pa.array([0, 1]), False),
        (pa.array([1, 1, 2]), pa.array([1, 2, 2]), False),
        (pa.array([1, 2]), pa.array([2, 1]), True),
        (pa.array([[1.0, None]]), pa.array([[1.0 + 1e-13, None]]), True),
        (pa.array([{"a": 1}]), pa.array([{"a": 2}]), False),
        (pa.array([{"element1": 1, "element2": 2}]), pa.array([{"c0": 1, "c1": 2}]), True),
        (pa.array([{"element1": 1, "element2": 2}]), pa.array([{"1": 1, "2": 2}]), True),
        (pa.array([{"element1": 1, "element2": 2}]), pa.array([{"1": 2, "2": 1}]), False),
        (pa.array([{"element1": 1, "b": 2}]), pa.array([{"1": 1, "b": 2}]), False),
        (pa.array([1000], pa.timestamp("ms", "UTC")), pa.array([1], pa.timestamp("s")), True),
        (pa.array([(0, 1, 0)], pa.month_day_nano_interval()), SECONDS, True),
        (pa.array([b"a"]), pa.array(["a"]), False),
    ],
)  # fmt: skip
def test_values_of_both_engines_are_compared(one, other, is_same):
    found = rows.difference(pa.table({"x": one}), pa.table({"y": other}))
    assert (found is None) is is_same, found


def test_the_tolerance_of_a_float_is_that_of_its_column_only():
    single = pa.array([1.0], pa.float32())
    expected = pa.table({"a": single, "b": [1.0]})
    assert rows.difference(expected, pa.table({"a": [1.0 + 1e-7], "b": [1.0]})) is None
    assert rows.difference(expected, pa.table({"a": [1.0], "b": [1.0 + 1e-7]}))


def test_many_floating_rows_are_matched_within_the_tolerance():
    exact = [0.1 * number for number in range(2 * rows.PAIRS_MAX)]
    near = [value * (1 + 5e-11) for value in reversed(exact)]
    places = list(range(len(exact)))
    expected = pa.table({"x": exact, "i": places})
    assert rows.difference(expected, pa.table({"x": near, "i": places[::-1]})) is None
    near[7], wrong = 6e6, (6e6, places[::-1][7])
    found = rows.difference(expected, pa.table({"x": near, "i": places[::-1]}))
    assert found.actual == [wrong]
    assert found.expected == [(exact[-8], places[-8])]


@pytest.fixture
def small_slices(monkeypatch):
    """Limits of the comparison that are small enough for a test to exceed them."""
    monkeypatch.setattr(rows, "SLICE_ROWS", 10)
    monkeypatch.setattr(rows, "PAIRS_MAX", 20)
    monkeypatch.setattr(rows, "UNMATCHED_ROWS_MAX", 100)


@pytest.mark.parametrize("changed_rows", [0, 1, 40, 100, 101, 995])
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.list_(pa.int64()), pa.list_(pa.string_view())]
)
def test_all_rows_of_a_long_answer_are_compared(small_slices, kind, changed_rows):
    values = range(995)
    changed = [-value - 1 if value < changed_rows else value for value in values][::-1]

    def table(numbers):
        column = pa.array(numbers, pa.int64())
        if pa.types.is_list(kind):
            offsets = pa.array(range(len(numbers) + 1), pa.int32())
            items = column if pa.types.is_integer(kind.value_type) else column.cast(pa.string())
            return pa.table({"x": pa.ListArray.from_arrays(offsets, items.cast(kind.value_type))})
        return pa.table({"x": column.cast(kind)})

    found = rows.difference(table(values), table(changed))
    if not changed_rows:
        assert found is None
        return
    assert found.message == f"{changed_rows} of 995 rows are missing"
    assert found.is_complete is (changed_rows <= rows.UNMATCHED_ROWS_MAX)
    length = changed_rows if found.is_complete else rows.QUOTED_ROWS_MAX
    assert [len(part) for part in found.rows] == [length, length]


def test_floating_rows_are_not_compared_beyond_a_limit(small_slices):
    exact = [0.1 * number for number in range(300)]
    near = [value * (1 + 5e-11) for value in exact]
    with pytest.raises(rows.TooManyRowsError, match="of 300 rows"):
        rows.difference(pa.table({"x": exact}), pa.table({"x": near}))
    assert rows.difference(pa.table({"x": exact}), pa.table({"x": exact[::-1]})) is None
    found = rows.difference(pa.table({"x": exact}), pa.table({"x": near[1:]}))
    assert found.message == "299 rows, not 300"


def test_an_answer_that_is_not_compared_fails():
    assert is_failure(different(outcome="not compared"))


def test_the_order_of_all_rows_of_a_long_answer_is_compared(small_slices):
    values = list(range(100))
    expected = pa.table({"x": values})
    assert rows.has_same_order(expected, pa.table({"x": values}))
    assert not rows.has_same_order(expected, pa.table({"x": [*values[:98], 99, 98]}))


def different(**fields):
    verdict = {"file": "cast/a.test", "number": 1, "line": 1, "sql": "SELECT typeof(1)"}
    verdict |= {"outcome": "different", "message": "1 of 1 rows are missing"}
    verdict |= {"types": [["string"], ["string_view"]]}
    verdict |= {"unmatched": ([("INTEGER",)], [("BIGINT",)])}
    return verdict | {"expected": ["('INTEGER')"], "actual": ["('BIGINT')"]} | fields


def are_any_rows(expected, actual):
    return True


@pytest.mark.parametrize(
    ("matchers", "is_covered"),
    [
        ({"sql": r"typeof\("}, True),
        ({"sql": r"typeof\(", "file": "cast/*"}, True),
        ({"sql": r"typeof\(", "file": "join/*"}, False),
        ({"types": "string; string_view"}, True),
        ({"types": "string_view; string"}, False),
        ({"places": "cast/a.test:1,7 join/b.test:2"}, True),
        ({"places": "cast/a.test:7 join/b.test:1"}, False),
        ({"sql": r"typeof\(", "is_alike": ONE_MORE}, False),
    ],
)
def test_an_unexplained_difference_fails(matchers, is_covered):
    rule = {"is_alike": are_any_rows}
    entry = intended.Intended("types have other names", "sql.md", **rule | matchers)
    verdict = different()
    used = explain([verdict], [entry])
    assert is_failure(verdict) is not is_covered
    assert used == ({entry} if is_covered else set())
    assert "unmatched" not in verdict


def test_a_difference_whose_rows_are_not_all_known_is_not_covered():
    verdict = different()
    del verdict["unmatched"]
    assert not explain([verdict], [intended.Intended("any", "sql.md", are_any_rows)])


def test_an_entry_that_no_query_needs_is_stale_once_all_files_ran_to_their_end():
    entries = [
        intended.Intended(name, "sql.md", are_any_rows, example=example)
        for name, example in [("used", None), ("unused", None), ("documented", ("1", "1", "2"))]
    ]
    files = [FileVerdict("a.test", used_entries={entries[0]}), FileVerdict("b.test")]
    assert command_line.stale_entries(files, entries) == [entries[1]]
    files[1].is_cut_off = True
    assert command_line.stale_entries(files, entries) == []


def test_every_intended_difference_has_a_page_and_a_matcher():
    docs = pathlib.Path(__file__).parents[3] / "docs"
    for entry in intended.INTENDED:
        assert entry.sql or entry.types or entry.places, entry
        page, _, heading = entry.page.partition("#")
        lines = (docs / page).read_text().splitlines()
        headings = [line.lstrip("#").strip() for line in lines if line.startswith("#")]
        assert not heading or heading in headings, f"{entry.page} of `{entry.reason}`"


def test_the_page_of_the_docs_has_the_intended_differences():
    assert page.PATH.read_text() == page.text(), "run python -m conformance.duckdb --write-page"


EXAMPLES = [entry for entry in intended.INTENDED if entry.example]


@pytest.mark.skipif(DUCKDB_MAJOR < 2, reason="the examples are for DuckDB 2")
@pytest.mark.parametrize("entry", EXAMPLES, ids=[entry.reason for entry in EXAMPLES])
def test_an_example_has_the_two_answers(entry):
    query, theirs, ours = entry.example
    with duckdb.connect() as connection:
        ((answer,),) = connection.execute(query).fetchall()
    assert str(answer) == theirs
    assert str(tm.query(query).fetchone()[0]) == ours


def test_the_summary_lists_failures_by_file():
    refused = different(outcome="refused", file="join/c.test")
    verdicts = [different(file="join/b.test", line=line) for line in (1, 2)]
    lines = report.failure_list([different(), *verdicts, refused]).splitlines()
    heads = [line.split() for line in lines if line.endswith(".test")]
    assert heads == [["2", "join/b.test"], ["1", "cast/a.test"]]


def test_the_summary_groups_refusals_by_their_pattern():
    refused = [
        different(outcome="refused", message=f"unknown function `{name}` at line {line}\nhint: x")
        for line, name in enumerate(["a", "a", "b"])
    ]
    assert report.refusal_list(refused).splitlines() == [
        "     3  unknown function `…` at line N",
        "        a 2, b 1",
    ]
    table = report.directory_table(
        [*refused, different(), different(file="join/b.test", outcome="same")]
    )
    assert [line.split()[:4] for line in table.splitlines()[1:]] == [
        ["cast", "4", "0", "3"],
        ["join", "1", "1", "0"],
        ["total", "5", "1", "3"],
    ]


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT 1::VARIANT", ["VARIANT"]),
        ("SELECT '101'::BIT, bit_count(5)", ["BIT"]),
        ("SELECT bit_count(5), 1 AS bits", []),
        ("SELECT sum(x) EXPORT_STATE FROM t", ["states of aggregates"]),
        ("SELECT twice(2) FROM t", ["macros"]),
        ("SELECT twice_as(2) FROM t", []),
        ("WITH a AS (INSERT INTO t VALUES (1) RETURNING x) FROM a", ["statements within WITH"]),
        ("SELECT 1 UNION (SELECT 2)", []),
    ],
)
def test_needed_machinery_is_recognised(sql, kinds):
    names = machinery.macro_names("CREATE OR REPLACE MACRO main.Twice(x) AS 2 * x")
    verdict = different(sql=sql, outcome="refused")
    assert machinery.needed_machinery(verdict, names) == kinds
    assert machinery.needed_machinery(verdict | {"outcome": "same"}, names) == []


def test_a_query_in_a_loop_counts_once_and_is_same_if_all_are():
    verdicts = [different(outcome="same"), different(outcome="same"), different(line=2)]
    assert report.share_by_place(verdicts).startswith("50.0 % of 2 queries")
    assert report.share_by_place([*verdicts, different()]).startswith("0.0 % of 2 queries")


def test_queries_that_need_no_machinery_are_counted_apart():
    verdicts = [
        different(outcome="same"),
        different(outcome="refused", needs=["BIT"]),
        different(outcome="refused", needs=["rowid"]),
    ]
    lines = report.machinery_table(verdicts).splitlines()
    assert lines[-2].startswith("50.0 % of 2 queries") and lines[-1].startswith("100.0 % of 1 ")


@pytest.mark.skipif(not ROOT, reason="DUCKDB_DIR names no checkout of duckdb/duckdb")
def test_part_of_the_suite_has_no_failure():
    root = pathlib.Path(ROOT).resolve()
    paths = find_files(root, SHORT)
    assert paths, root
    files = list(judge_all(root, paths, limits=Patience()))
    verdicts = [verdict for file in files for verdict in file.verdicts]
    assert len(verdicts) > 30
    failed = [report.description(verdict) for verdict in verdicts if is_failure(verdict)]
    assert not failed, "\n".join(failed)
