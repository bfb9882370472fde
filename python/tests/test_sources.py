"""Objects as sources, and formats of the user's own."""

import datetime as dt
import json
import pathlib
import struct
import subprocess
import sys
import threading

import pandas
import polars
import pyarrow as pa
import pytest

import tidemill as tm
import tidemill.ray

PEOPLE = {"who": ["ann", "bob", None], "age": [31, 47, 5]}


class UnknownLazyFrame:
    """What is computed by a call, and is no frame of Polars."""

    def collect(self):
        return []


def events(folder):
    lines = "".join(f"{who},{n}\n" for n, who in enumerate(["ann", "bob", "joe"] * 1000))
    (folder / "events.csv").write_text(f"who,n\n{lines}")
    return f"'{folder / 'events.csv'}'"


def sorted_rows(result):
    return sorted(result.to_pylist(), key=str)


@pytest.mark.parametrize(
    "make",
    [
        pa.table,
        lambda rows: pa.record_batch(rows),
        lambda rows: pa.table(rows).to_reader(),
        pandas.DataFrame,
        polars.DataFrame,
        lambda rows: polars.DataFrame(rows).lazy(),
        lambda rows: polars.DataFrame(rows, schema_overrides={"who": polars.Categorical}),
        lambda rows: pandas.DataFrame(rows).astype({"who": "category"}),
        lambda rows: tm.query("SELECT * FROM t", t=pa.table(rows)),
    ],
    ids=[
        "table",
        "batch",
        "reader",
        "pandas",
        "polars",
        "lazy",
        "categories",
        "category",
        "result",
    ],
)
def test_an_object_is_a_source_by_its_name(make):
    sql = "SELECT who, max(age) AS age, count() AS n FROM df GROUP BY who"
    result = tm.query(sql, df=make(PEOPLE))
    assert sorted_rows(result) == [
        {"who": "ann", "age": 31, "n": 1},
        {"who": "bob", "age": 47, "n": 1},
        {"who": None, "age": 5, "n": 1},
    ]
    assert result.coverage["mergeable"]
    assert result.coverage["rows"]["done"] == 3


def nested(count):
    """Rows with records in records, in lists, and with nulls at each level."""
    records = [
        None
        if n % 7 == 0
        else {"i": n, "in": None if n % 5 == 0 else {"x": n, "y": [{"z": n}] * (n % 3)}}
        for n in range(count)
    ]
    return {"n": list(range(count)), "r": records, "l": [[record] for record in records]}


@pytest.mark.parametrize("offset, length", [(0, 3), (1, 1), (3, 40), (99, 1), (50, 0), (13, 87)])
def test_a_slice_of_records_in_records_is_read_as_its_rows(offset, length):
    table = pa.table(nested(100))
    sliced = table.slice(offset, length)
    expected = sliced.to_pylist()
    assert tm.query("SELECT * FROM t", t=sliced).to_pylist() == expected
    assert tm.query("SELECT * FROM t", t=sliced.to_reader(max_chunksize=7)).to_pylist() == expected
    batches = sliced.to_batches()
    if batches:
        # A batch, and a slice of a slice.
        assert tm.query("SELECT * FROM t", t=batches[0]).to_pylist() == expected
        assert tm.query("SELECT * FROM t", t=batches[0].slice(1)).to_pylist() == expected[1:]
        array = batches[0].to_struct_array().slice(1)
        assert tm.query("SELECT * FROM t", t=array).to_pylist() == expected[1:]


def test_a_table_is_joined_with_a_file_and_may_be_named_twice(tmp_path):
    people = polars.DataFrame(PEOPLE)
    sql = f"SELECT age, count() AS n FROM {events(tmp_path)} JOIN p USING (who) GROUP BY age"
    assert tm.explain(sql, p=people).path == "partial tables"
    assert sorted_rows(tm.query(sql, p=people)) == [{"age": 31, "n": 1000}, {"age": 47, "n": 1000}]
    twice = tm.query("SELECT a.age + b.age AS s FROM p a JOIN p b USING (who)", p=people)
    assert sorted_rows(twice) == [{"s": 62}, {"s": 94}]


def test_a_stream_is_read_once_and_not_gathered(tmp_path):
    made = []

    def batches():
        for number in range(200):
            made.append(number)
            yield pa.record_batch({"n": list(range(number * 1000, number * 1000 + 1000))})

    schema = pa.schema({"n": pa.int64()})
    stream = pa.RecordBatchReader.from_batches(schema, batches())
    result = tm.query("SELECT n FROM s", s=stream, memory="64M")
    first = next(iter(result))
    assert first.num_rows == 1000 and len(made) < 200
    result = None
    with pytest.raises(tm.UsageError, match="`s` is a stream and can be read only once"):
        stream = pa.RecordBatchReader.from_batches(schema, iter([]))
        tm.query("SELECT * FROM s a JOIN s b USING (n)", s=stream).to_pylist()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: polars.scan_parquet(path),
        lambda path: polars.read_parquet(path).lazy(),
    ],
    ids=["scanned", "in memory"],
)
def test_a_lazy_frame_is_computed_in_batches_while_it_is_read(make, tmp_path):
    path = tmp_path / "n.parquet"
    polars.DataFrame({"n": range(500_000)}).write_parquet(path)
    frame = make(path).filter(polars.col("n") % 2 == 0).with_columns(k=polars.col("n") % 3)
    result = tm.query("SELECT n FROM frame", frame=frame)
    batches = [batch.num_rows for batch in result]
    assert sum(batches) == 250_000 and max(batches) <= 65_536
    sql = "SELECT k, count() AS n, sum(n) AS total FROM frame GROUP BY k ORDER BY k"
    groups = [[n for n in range(0, 500_000, 2) if n % 3 == k] for k in range(3)]
    expected = [{"k": k, "n": len(it), "total": sum(it)} for k, it in enumerate(groups)]
    # As a variable, and again: each query computes it anew.
    for _ in range(2):
        assert tm.query(sql).to_pylist() == expected
    labels = {"k": [0, 2], "name": ["a", "b"]}
    joined = "SELECT name, count() AS n FROM frame JOIN labels USING (k) GROUP BY name ORDER BY 1"
    assert tm.query(joined, frame=frame, labels=labels).fetchall() == [("a", 83_334), ("b", 83_333)]
    with pytest.raises(tm.UsageError, match=r"only once(.|\n)*collect"):
        tm.query("SELECT * FROM frame a JOIN frame b USING (n)").to_pylist()
    twice = tm.query("SELECT count() AS n FROM t a JOIN t b USING (n)", t=frame.collect())
    assert twice.fetchone() == (250_000,)


def test_a_lazy_frame_that_fails_is_told():
    def broken(frame):
        raise ValueError("no more today")

    with pytest.raises(polars.exceptions.ColumnNotFoundError):
        tm.query("SELECT * FROM f", f=polars.LazyFrame(PEOPLE).select("nobody"))
    frame = polars.LazyFrame(PEOPLE).map_batches(broken, validate_output_schema=False)
    with pytest.raises(tm.TidemillError, match="no more today"):
        tm.query("SELECT count() FROM f", f=frame).to_pylist()


def test_a_lazy_frame_of_a_version_without_streams_is_collected(monkeypatch):
    monkeypatch.delattr(polars.LazyFrame, "collect_batches")
    frame = polars.LazyFrame(PEOPLE)
    # All of it is in memory, so that it can be read twice.
    twice = tm.query("SELECT a.age + b.age AS s FROM f a JOIN f b USING (who)", f=frame)
    assert sorted_rows(twice) == [{"s": 62}, {"s": 94}]


def test_lazy_frames_are_taken_where_frames_are(tmp_path):
    frame = polars.LazyFrame(PEOPLE)
    with tm.RowFileWriter(tmp_path / "a.rowfile") as writer:
        writer.write(frame)
        writer.write([frame, frame.collect()])
    assert tm.query(f"SELECT count() AS n FROM '{tmp_path}/a.rowfile'").fetchone() == (9,)
    tm.register_format("lazily", reader=lambda path, start, end: frame)
    (tmp_path / "a.lazily").write_text("x")
    assert tm.query(f"SELECT sum(age) AS n FROM '{tmp_path}/a.lazily'").fetchone() == (83,)


def test_a_reader_may_yield_lazy_frames(tmp_path):
    frame = polars.LazyFrame({"n": [1, 2]})

    def read(path, start, end):
        yield frame
        yield polars.DataFrame({"n": [3]})
        yield frame.filter(polars.col("n") > 1)

    tm.register_format("lazyparts", reader=read)
    path = tmp_path / "a.lazyparts"
    path.write_text("x")
    rows = tm.query(f"SELECT n FROM '{path}' ORDER BY n").fetchall()
    assert rows == [(1,), (2,), (2,), (3,)]


def test_an_error_of_the_producer_is_told():
    def batches():
        yield pa.record_batch({"n": [1]})
        raise ValueError("no more today")

    stream = pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), batches())
    with pytest.raises(tm.TidemillError, match="no more today"):
        tm.query("SELECT sum(n) FROM s", s=stream).to_pylist()


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("thread", 2, "did you mean the option `threads`"),
        ("df", {"a": 1}, "`df`, column `a`: expected a list, found int"),
        ("df", [1, 2], "`df` is a list, which is no source"),
        ("df", UnknownLazyFrame(), r"collect it first: df=….collect\(\)"),
        ("df", None, "`df` is a NoneType"),
    ],
)
def test_what_is_no_source_is_refused(name, value, part):
    with pytest.raises(tm.UsageError, match=part):
        tm.query("SELECT 1 AS one", **{name: value})


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (polars.Series([1]), r"x=….to_frame\(\)"),
        (pandas.Series([1]), r"x=….to_frame\(\)"),
        (pandas.Index([1]), r"x=….to_frame\(\)"),
        (pa.array([1]), r"x=pyarrow.table\({'x': …}\)"),
        (pa.chunked_array([[1]]), r"x=pyarrow.table\({'x': …}\)"),
    ],
    ids=["polars", "pandas", "index", "array", "chunked"],
)
def test_one_column_is_refused_with_how_a_table_is_made_of_it(value, hint):
    with pytest.raises(tm.UsageError, match=rf"`x` is a \w+, which(.|\n)*hint: .*{hint}"):
        tm.query("SELECT * FROM x", x=value)
    x = value
    with pytest.raises(tm.UsageError, match=hint):
        tm.query("SELECT * FROM x")
    assert x is value


def test_records_in_one_column_are_a_table():
    for records in (
        pa.array([{"a": 1}]),
        pa.chunked_array([pa.array([{"a": 1}])]),
        polars.Series([{"a": 1}]),
    ):
        assert tm.query("SELECT a FROM x", x=records).to_pylist() == [{"a": 1}]


@pytest.mark.skipif(not hasattr(polars, "Int128"), reason="this version has no such type")
@pytest.mark.parametrize("nested", [False, True])
def test_a_type_that_arrow_has_not_is_named_with_its_column(nested):
    frame = polars.DataFrame({"a": [1], "big": [[2] if nested else 2]})
    kind = polars.List(polars.Int128) if nested else polars.Int128
    frame = frame.with_columns(polars.col("big").cast(kind))
    says = "column `big` of `x` is of the type Int128(.|\n)*hint: cast it, to Int64"
    with pytest.raises(tm.UsageError, match=says):
        tm.query("SELECT a FROM x", x=frame)


@pytest.mark.parametrize(
    "frame",
    [
        polars.DataFrame({"a": [1, 2], "note": [None, None]}),
        polars.DataFrame({"a": [[None], []]}),
        polars.DataFrame({"a": [{"z": None, "y": 1}]}),
        polars.DataFrame({"a": [[{"z": [None]}]]}),
        polars.DataFrame({"a": []}),
    ],
    ids=["column", "list", "struct", "deep", "empty"],
)
def test_a_polars_column_of_nothing_but_nulls_is_read(frame):
    result = tm.query("SELECT * FROM x", x=frame)
    assert result.to_pylist() == frame.to_dicts()
    count = tm.query("SELECT count() AS n FROM x", x=frame)
    assert count.to_pylist() == [{"n": len(frame)}]


def test_nulls_of_polars_alone_are_no_values_of_a_sketch():
    sketch = tm.Hll()
    sketch.add_values(polars.Series([None, None]))
    assert sketch == tm.Hll()


def test_two_columns_of_one_name_are_refused():
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises((tm.UsageError, ValueError), match="a"):
        tm.query("SELECT * FROM df", df=twice).to_pylist()


def write_counts(path, batches):
    with open(path, "wb") as file:
        for batch in batches:
            for row in pa.record_batch(batch).to_pylist():
                file.write(struct.pack("<2sI", row["state"].encode(), row["n"]))


def read_counts(path, start, end, columns=None):
    assert columns is None or set(columns) <= {"state", "n"}
    data = pathlib.Path(path).read_bytes()
    first = -(-start // 6)
    rows = [struct.unpack_from("<2sI", data, at) for at in range(first * 6, end, 6)]
    for at in range(0, max(len(rows), 1), 5000):
        part = rows[at : at + 5000]
        yield pa.record_batch(
            {
                "state": pa.array([state.decode() for state, _ in part], pa.string()),
                "n": pa.array([n for _, n in part], pa.uint32()),
            }
        )


def test_a_registered_format_is_read_and_written_like_any_other(tmp_path):
    tm.register_format("counts", reader=read_counts, writer=write_counts, splittable=True)
    rows = [{"state": ["TX", "NY", "CA"][n % 3], "n": n} for n in range(400_000)]
    table = pa.Table.from_pylist(rows)
    written = tm.query("SELECT * FROM t", t=table, output=tmp_path / "{state}.counts")
    assert written.files == 3
    assert (tmp_path / "TX.counts").stat().st_size == 6 * 133_334
    job = {
        "source": {"url": str(tmp_path / "*.counts")},
        "tables": {"by": "state", "n": "sum(n)", "c": "count()"},
    }
    result = tm.run(job)
    expected = {
        state: sum(row["n"] for row in rows if row["state"] == state)
        for state in ("CA", "NY", "TX")
    }
    assert {row["state"]: row["n"] for row in result.to_pylist()} == expected
    assert result.coverage["splits"]["total"] > 1
    assert tm.schema(tmp_path / "TX.counts").format == "counts"
    assert tm.head(tmp_path / "TX.counts", rows=1).to_pylist() == [{"state": "TX", "n": 0}]


def test_what_a_reader_or_writer_raises_is_the_cause(tmp_path):
    def broken(path, start, end):
        raise KeyError("the ninth field")

    def picky(path, batches):
        for _ in batches:
            raise RuntimeError("not this one")

    tm.register_format("picky", reader=broken, writer=picky)
    (tmp_path / "a.picky").write_text("x")
    with pytest.raises(tm.TidemillError, match=r"cannot read `.*a\.picky` as `picky`") as raised:
        tm.query(f"SELECT * FROM '{tmp_path}/a.picky'").to_pylist()
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(tm.TidemillError, match="not this one") as raised:
        tm.query("SELECT 1 AS one", output=tmp_path / "b.picky")
    assert isinstance(raised.value.__cause__, RuntimeError)
    # Nor is a part of the rows taken for all of them.
    tm.register_format("picky", writer=lambda path, batches: pathlib.Path(path).write_text("x"))
    with pytest.raises(tm.TidemillError, match="before it had taken all batches"):
        tm.query("SELECT 1 AS one", output=tmp_path / "b.picky")
    assert [path.name for path in tmp_path.iterdir()] == ["a.picky"]


def test_a_reader_that_gives_nothing_or_nonsense_is_told_so(tmp_path):
    (tmp_path / "a.odd").write_text("x")
    for given, part in [
        (iter([]), "gave no batch"),
        (7, "gave a int"),
        ([7], "holds no Arrow data"),
    ]:
        tm.register_format("odd", reader=lambda path, start, end, given=given: given)
        with pytest.raises(tm.TidemillError, match=part):
            tm.query(f"SELECT * FROM '{tmp_path}/a.odd'").to_pylist()


def test_names_of_formats_are_checked():
    for name, part in [("csv", "there already"), ("My Format", "cannot name a format")]:
        with pytest.raises(tm.UsageError, match=part):
            tm.register_format(name, reader=read_counts)
    with pytest.raises(tm.UsageError, match="neither a reader nor a writer"):
        tm.register_format("nothing")


def test_readers_run_while_other_threads_do(tmp_path):
    """The interpreter's lock is not held while rows are waited for."""
    entered, left = threading.Event(), threading.Event()

    def reader(path, start, end):
        entered.set()
        assert left.wait(600)
        return pa.table({"n": [1]})

    tm.register_format("slow", reader=reader)
    (tmp_path / "a.slow").write_text("x")
    found = []
    sql = f"SELECT n FROM '{tmp_path}/a.slow'"
    thread = threading.Thread(target=lambda: found.extend(tm.query(sql).to_pylist()))
    thread.start()
    assert entered.wait(600)
    left.set()
    thread.join()
    assert found == [{"n": 1}]


def test_a_program_that_ends_with_a_stream_open_ends():
    script = """
import pyarrow as pa, tidemill as tm
def batches():
    while True:
        yield pa.record_batch({"n": list(range(1000))})
stream = pa.RecordBatchReader.from_batches(pa.schema({"n": pa.int64()}), batches())
result = tm.query("SELECT n FROM s", s=stream)
print(next(iter(result)).num_rows)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600
    )
    assert (ended.returncode, ended.stdout) == (0, "1000\n"), ended.stderr


def test_a_rowfile_is_written_and_read(tmp_path):
    table = pa.table({"n": list(range(5000)), "s": [json.dumps({"x": n}) for n in range(5000)]})
    tm.query("SELECT * FROM t", t=table, output=tmp_path / "a.rowfile")
    result = tm.query(f"SELECT sum(n) AS n, max(s) AS s FROM '{tmp_path}/a.rowfile'")
    assert result.to_pylist() == [{"n": 12497500, "s": '{"x": 9}'}]


@pytest.fixture
def no_cluster(monkeypatch):
    """A cluster that has no core free."""
    reached = []

    def connect(address, *, memory):
        reached.append(address)
        raise tm.UsageError("no core of the cluster is free\nhint: wait for them")

    monkeypatch.setattr(tidemill.ray, "connect", connect)
    return reached


def test_what_is_in_memory_waits_for_no_core_of_a_cluster(no_cluster, tmp_path):
    df = polars.DataFrame(PEOPLE)
    for sql in ("SELECT who, max(age) AS age FROM df GROUP BY who", "SELECT * FROM df"):
        here = sorted_rows(tm.query(sql))
        with pytest.warns(RuntimeWarning, match=r"it runs on this machine(.|\n)*memory"):
            assert sorted_rows(tm.query(sql, on="auto")) == here
    assert tm.query("SELECT 1 AS one", on="auto").fetchone() == (1,)
    with pytest.warns(RuntimeWarning, match="it runs on this machine"):
        tm.run({"tables": {"n": "count()"}}, source=df, on="auto", output=tmp_path / "n.csv")
    assert tm.explain("SELECT * FROM df", on="auto").elsewhere is None
    assert no_cluster == []
    # What can run there does not run here while the cluster is busy.
    sql = f"SELECT who, count() AS n FROM {events(tmp_path)} GROUP BY who"
    with pytest.raises(tm.UsageError, match="no core of the cluster is free"):
        tm.query(sql, on="auto").to_pylist()
    assert no_cluster == ["ray"]
    with pytest.raises(tm.UsageError, match="no core of the cluster is free"):
        tm.query("SELECT * FROM df", on="ray")


def test_values_that_become_null_are_counted_and_times_of_day_are_times(tmp_path):
    path = tmp_path / "laps.csv"
    path.write_text("at,ms\n07:30:00,20\n23:59:59.25,fast\n")
    with pytest.warns(RuntimeWarning, match="1 value became null"):
        result = tm.query(
            f"SELECT at, ms FROM '{path}' ORDER BY at", schema="ms BIGINT", mismatch="null"
        )
        rows = result.to_pylist()
    assert rows == [
        {"at": dt.time(7, 30), "ms": 20},
        {"at": dt.time(23, 59, 59, 250_000), "ms": None},
    ]
    mismatches = result.coverage["mismatches"]
    found = [(of["column"], of["count"], of["line"]) for of in mismatches["columns"]]
    assert (found, mismatches["others"]) == ([("ms", 1, 3)], 0)
    assert "mismatches" not in tm.query(f"SELECT at FROM '{path}'").coverage
