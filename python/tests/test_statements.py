"""Statements that are no SELECT: COPY … TO and EXPLAIN ANALYZE."""

import pytest

import tidemill as tm


@pytest.fixture
def trips(tmp_path):
    path = tmp_path / "trips.csv"
    path.write_text("day,who\n1,ann\n1,bob\n2,eve\n")
    return path


def test_copy_writes_files_and_gives_what_was_written(trips, tmp_path):
    out = tmp_path / "out.parquet"
    written = tm.query(f"COPY (SELECT * FROM '{trips}') TO '{out}'")
    assert isinstance(written, tm.Written)
    assert (written.files, written.rows, written.paths) == (1, 3, [str(out)])
    assert written.coverage["complete"]
    rows = tm.query(f"SELECT who FROM '{out}' ORDER BY who").fetchall()
    assert rows == [("ann",), ("bob",), ("eve",)]
    with pytest.raises(tm.OutputExistsError):
        tm.query(f"COPY '{trips}' TO '{out}'")
    assert tm.query(f"COPY '{trips}' TO '{out}' (OVERWRITE_OR_IGNORE)").rows == 3
    assert tm.query(f"COPY '{trips}' TO '{out}'", overwrite=True).rows == 3
    folders = tm.query(
        f"COPY '{trips}' TO '{tmp_path / 'by'}' (FORMAT csv, PARTITION_BY (day), HEADER false)"
    )
    assert folders.files == 2
    assert (tmp_path / "by" / "day=2" / "data_0.csv").read_text() == "2,eve\n"


def test_copy_reads_parameters_and_variables(tmp_path):
    out = tmp_path / "out.csv"
    numbers = {"n": [1, 2, 3]}
    tm.query(f"COPY (SELECT n FROM numbers WHERE n > ?) TO '{out}'", params=[1])
    assert numbers and out.read_text() == "n\n2\n3\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "b.csv"}, "COPY names its output itself, and `output` is beside it"),
        ({"format": "csv"}, "COPY names its output itself, and `format` is beside it"),
        ({"compression": "zstd"}, "COPY names its output itself, and `compression` is"),
        ({"no_header": True}, "COPY names its output itself, and `no_header` is beside it"),
        ({"progressive": True}, "COPY writes one result"),
    ],
)
def test_copy_refuses_options_that_it_says_itself(trips, tmp_path, options, message):
    out = tmp_path / "out.csv"
    with pytest.raises(tm.UsageError, match=message):
        tm.query(f"COPY '{trips}' TO '{out}'", **options)
    assert not out.exists()


def test_copy_is_explained_with_its_output(trips, tmp_path):
    out = tmp_path / "out.csv"
    plan = tm.explain(f"COPY '{trips}' TO '{out}'")
    assert plan.sink == f"one csv file, `{out}`"
    assert not out.exists()


def test_explain_analyze_runs_the_query_and_measures_it(trips):
    result = tm.query(f"EXPLAIN ANALYZE SELECT day, count(*) FROM '{trips}' GROUP BY day")
    lines = [line for (line,) in result.fetchall()]
    assert lines[0].startswith("path: partial tables")
    measured = lines[lines.index("measured:") + 1 :]
    assert "  map: 3 rows in, 3 rows out" in measured
    assert "  result: 2 rows" in measured
    assert result.coverage["rows"]["done"] == 3
    table = {"n": [1, 2]}
    measured = tm.query("EXPLAIN ANALYZE SELECT * FROM table_of_two", table_of_two=table)
    assert measured.fetchall()[-1] == ("  result: 2 rows",)


def test_glob_lists_files_that_are_sources(trips, tmp_path):
    (tmp_path / "other.csv").write_text("x\n1\n")
    files = tm.query(f"FROM glob('{tmp_path}/*.csv')").fetchall()
    assert files == [(str(tmp_path / "other.csv"),), (str(trips),)]
    assert tm.query(f"SELECT count(*) FROM '{files[1][0]}'").fetchall() == [(3,)]
    assert tm.query("FROM glob('nothing/*.csv')").fetchall() == []


def test_samples_of_objects_have_so_many_rows():
    numbers = {"n": list(range(1000))}
    sql = "SELECT n FROM numbers USING SAMPLE 10 ROWS ORDER BY n"
    first, again = (tm.query(sql, numbers=numbers).fetchall() for _ in range(2))
    assert len(first) == 10
    assert first == again
