"""Files of apache/parquet-testing, if there is a checkout of it; and the judge itself."""

import math
import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet import expected, judge
from parquet.rows import difference, rows

ROOT = os.environ.get("PARQUET_TESTING_DIR")


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("TIDEMILL_JOB_LOG", "off")


@pytest.mark.skipif(not ROOT, reason="PARQUET_TESTING_DIR names no checkout of parquet-testing")
def test_files_of_other_writers_have_the_rows_of_other_readers():
    root = pathlib.Path(ROOT).resolve()
    found = judge.files(root)
    assert len(found) > 50, root
    verdicts = [judge.judged(root, path) for path in found]
    failed = [str(verdict) for verdict in verdicts if verdict.kind == "FAILED"]
    assert not failed + judge.unused(verdicts), "\n".join(failed)


TABLE = pa.table(
    {
        "n": pa.array([1, 2, None, 2], pa.int32()),
        "t": ["a", "it's", None, "a"],
        "d": pa.array([0.0, -0.0, math.nan, None]),
        "at": pa.array([1, 2, 3, None], pa.timestamp("ms")),
        "l": [[1, None], [], None, [2]],
        "s": [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}, {"a": None, "b": "y"}],
        "m": pa.array([[("k", 1)], [], None, [("k", None)]], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(TABLE, path)
    return path


def test_equal_rows_are_the_same(tmp_path, file):
    verdict = judge.judged(tmp_path, file, with_filters=True)
    assert (verdict.kind, verdict.said) == ("same", [])


def wrong_table(table):
    return table.set_column(0, "n", pa.array([1, 2, None, 3], pa.int32()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.slice(1), "3 rows, not 4"),
        (wrong_table, "instead of"),
    ],
)
def test_different_rows_fail(tmp_path, file, monkeypatch, change, said):
    read = judge.read_tidemill
    monkeypatch.setattr(judge, "read_tidemill", lambda path: change(read(path)))
    verdict = judge.judged(tmp_path, file)
    assert verdict.kind == "FAILED"
    assert any(said in line for line in verdict.said), verdict


def test_wrong_count_of_a_filter_fails(tmp_path, file, monkeypatch):
    ask = judge.ask
    monkeypatch.setattr(judge, "ask", lambda sql: ask(sql.replace("= 2", "= 7")))
    verdict = judge.judged(tmp_path, file, with_filters=True)
    assert verdict.said == ['0 rows where "n" = 2, not 2']


def test_refusals_and_differences_must_be_expected(tmp_path, file, monkeypatch):
    def kind():
        return judge.judged(tmp_path, file).kind

    monkeypatch.setattr(judge, "OTHERS", {"other": lambda path: wrong_table(TABLE)})
    assert kind() == "FAILED"
    monkeypatch.setattr(expected, "DIFFERENT", [("data/a.*", "other", "counts otherwise")])
    assert kind() == "differs"
    # A file that should be refused must not be read.
    monkeypatch.setattr(expected, "REFUSED", {"data/*": "the footer cannot be read"})
    assert kind() == "FAILED"
    file.write_bytes(file.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")
    assert kind() == "refused"
    monkeypatch.setattr(expected, "REFUSED", {"data/*": "another cause"})
    assert kind() == "FAILED"
    monkeypatch.setattr(expected, "SKIPPED", {"data/*": "too large"})
    assert kind() == "skipped"


def test_unused_expectation_is_reported(tmp_path, file, monkeypatch):
    monkeypatch.setattr(expected, "DIFFERENT", [])
    monkeypatch.setattr(expected, "SKIPPED", {})
    monkeypatch.setattr(expected, "REFUSED", {"data/none": "a cause"})
    verdicts = [judge.judged(tmp_path, file)]
    assert judge.unused(verdicts) == ["no file needs the entry data/none"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (pa.array([0.0]), pa.array([-0.0]), False),
        (pa.array([math.nan]), pa.array([-math.nan]), True),
        (pa.array([1], pa.int8()), pa.array([1], pa.int64()), True),
        (pa.array([1000], pa.timestamp("ms")), pa.array([1], pa.timestamp("s")), True),
        (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("s")), False),
        (pa.array(["a"]), pa.array(["a"], pa.string_view()), True),
        (pa.array([b"a"]), pa.array(["a"]), False),
        (pa.array([None, 1]), pa.array([1, None]), True),
        (pa.array([1, 1]), pa.array([1, 2]), False),
        (pa.array([[1], [2]]).slice(1), pa.array([[2]]), True),
        (TABLE["m"].chunk(0).slice(3), TABLE["m"].chunk(0).slice(3), True),
    ],
)
def test_values_of_different_readers_are_compared(one, other, is_same):
    tables = [rows(pa.table({"x": array})) for array in (one, other)]
    assert (difference(*tables) is None) is is_same
