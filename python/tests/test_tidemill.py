"""The package as its users see it; PyArrow is the consumer."""

import csv
import errno
import io
import pathlib
import pickle
import random

import pyarrow
import pytest

import tidemill as tm
from processes import run_script


def test_a_result_goes_into_arrow_with_its_types(hits):
    result = tm.query(
        f"SELECT day, unique(user) AS users, mean(seconds) AS seconds FROM '{hits}' "
        "GROUP BY day ORDER BY day",
        null="NA",
    )
    assert result.schema.names == ["day", "users", "seconds"]
    assert result.schema.types == ["BIGINT", "BIGINT", "DOUBLE"]
    assert pyarrow.schema(result.schema).names == result.schema.names
    assert result.stats is None
    table = pyarrow.table(result)
    assert table.to_pylist() == [
        {"day": 1, "users": 2, "seconds": 2.0},
        {"day": 2, "users": 1, "seconds": 4.0},
    ]
    assert result.coverage["complete"] is True
    assert result.coverage["rows"] == {"done": 3, "rejected": 0}


def test_a_result_is_read_batch_by_batch_or_as_a_stream_and_again(hits):
    result = tm.query(f"SELECT user FROM '{hits}'")
    batches = [pyarrow.record_batch(batch) for batch in result]
    assert [row["user"] for batch in batches for row in batch.to_pylist()] == ["ann", "bob", "ann"]
    users = [{"user": "ann"}, {"user": "bob"}, {"user": "ann"}]
    for _ in range(2):
        assert pyarrow.table(result).to_pylist() == result.to_pylist() == users
        assert [row for batch in result for row in batch.to_pylist()] == users
    assert result.coverage["rows"]["done"] == 3
    result.close()
    for read_again in (list, pyarrow.table, tm.Result.to_pylist, tm.Result.show):
        with pytest.raises(tm.UsageError, match="this result is closed"):
            read_again(result)


def test_a_consumer_may_ask_for_other_types(hits):
    result = tm.query(f"SELECT day FROM '{hits}' WHERE user = 'ann'")
    table = pyarrow.table(result, schema=pyarrow.schema([("day", pyarrow.string())]))
    assert table.to_pydict() == {"day": ["1", "2"]}


def test_text_options_say_how_files_are_read(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("# no data\n1;'a;b'\n-;c\n")
    options = dict(source_format="csv", header=False, delimiter=";", quote="'", comment="#")
    result = tm.query(
        f"SELECT * FROM '{path}'", **options, null=["-"], schema="column_1 INT, column_2 TEXT"
    )
    assert [list(row.values()) for row in pyarrow.table(result).to_pylist()] == [
        [1, "a;b"],
        [None, "c"],
    ]
    unquoted = tm.query(f"SELECT * FROM '{path}'", **{**options, "quote": "", "delimiter": "|"})
    assert [list(row.values()) for row in pyarrow.table(unquoted).to_pylist()] == [
        ["1;'a;b'"],
        ["-;c"],
    ]


def test_title_lines_above_a_header_are_left_out(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('"Sales\nreport\n\nday,n\na,1\nb,2\n')
    for options in (dict(skip_lines=3), dict(header_row=4)):
        result = tm.query(f"SELECT n FROM '{path}'", **options)
        assert pyarrow.table(result).to_pydict() == {"n": [1, 2]}
    result = tm.query(f"SELECT sum(n) AS n FROM read_csv('{path}', skip = 3)")
    assert pyarrow.table(result).to_pydict() == {"n": [3]}
    with pytest.raises(tm.UsageError, match="exclude each other"):
        tm.query(f"SELECT * FROM '{path}'", skip_lines=3, header_row=4)
    with pytest.raises(tm.UsageError, match="`skip_lines` is a number of lines, not -1"):
        tm.query(f"SELECT * FROM '{path}'", skip_lines=-1)


def test_text_is_read_by_column_and_condition_in_the_order_of_the_input(tmp_path):
    path = tmp_path / "it's.json"
    path.write_text('[{"n": 3, "s": {"x": "a"}},\n {"n": 1, "s": {"x": "b"}}, {"n": 2}]')
    read = tm.read_text(path, columns=["s.x", "n"], where="n < 3")
    assert pyarrow.table(read).to_pylist() == [{"s.x": "b", "n": 1}, {"s.x": None, "n": 2}]
    assert read.coverage["rows"]["done"] == 3
    assert pyarrow.table(tm.read_text(path)).column_names == ["n", "s"]
    with pytest.raises(tm.UsageError, match=r"unknown column|No field"):
        tm.read_text(path, columns=["m"])
    with pytest.raises(tm.UsageError, match="not a condition"):
        tm.read_text(path, where="n <")
    log = tmp_path / "access.log"
    log.write_text('10.0.0.1 - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 7 "-" "x"\n')
    rows = pyarrow.table(tm.read_text(log, columns=["status", "path"], format="access-log"))
    assert rows.to_pylist() == [{"status": 200, "path": "/"}]


@pytest.mark.parametrize("seed", range(40))
def test_csv_is_read_as_python_s_csv_module_reads_it(seed, tmp_path):
    chance = random.Random(seed)
    pieces = ["a", "bc", "12", ",", ",", "\n", "\r\n", '"x"', '"y,z"', '"l\nm"', '"q""r"', "é", " "]
    text = "".join(chance.choices(pieces, k=chance.randrange(1, 400)))
    records = [record for record in csv.reader(io.StringIO(text, newline="")) if record]
    # Both take what stands behind a closing quote for a part of the field.
    width = max(len(record) for record in records) if records else 1
    good = [[field or None for field in record] for record in records if len(record) == width]
    path = tmp_path / "x.csv"
    path.write_text(",".join(f"c{n}" for n in range(width)) + "\n" + text, newline="")
    schema = ", ".join(f"c{n} TEXT" for n in range(width))
    result = tm.read_text(path, schema=schema, max_bad=len(records))
    assert [list(row.values()) for row in pyarrow.table(result).to_pylist()] == good
    assert result.coverage["rows"]["rejected"] == len(records) - len(good)


def test_a_job_runs_from_a_file_a_text_and_a_mapping(hits, tmp_path):
    tree = {
        "source": {"url": str(hits), "options": {"null": "NA"}},
        "tables": {"by": ["day"], "n": "count()"},
    }
    text = f"""
        [source]
        url = '{hits}'
        [source.options]
        null = 'NA'
        [tables]
        by = ['day']
        n = 'count()'
    """
    file = tmp_path / "job.toml"
    file.write_text(text)
    expected = [{"day": 1, "n": 2}, {"day": 2, "n": 1}]
    for job in (tree, text, file, str(file)):
        rows = pyarrow.table(tm.run(job)).to_pylist()
        assert sorted(rows, key=lambda row: row["day"]) == expected


def test_a_job_with_a_sink_writes_files_and_does_not_replace_them_unasked(hits, tmp_path):
    job = {"source": {"url": str(hits)}, "sink": {"url": str(tmp_path / "out" / "{day}.csv")}}
    written = tm.run(job)
    assert (written.files, written.rows) == (2, 3)
    assert written.coverage["complete"] is True
    assert (tmp_path / "out" / "2.csv").read_text() == "day,user,seconds\n2,ann,4\n"
    with pytest.raises(tm.OutputExistsError) as caught:
        tm.run(job)
    assert isinstance(caught.value, FileExistsError)
    assert "overwrite=True" in str(caught.value)
    tm.run(job, overwrite=True)
    other = tm.run(job, output=tmp_path / "all.json", set={"source.options.null": ["NA"]})
    assert other.paths == [str(tmp_path / "all.json")]
    assert '"seconds":null' in (tmp_path / "all.json").read_text()


def test_errors_are_python_s_own_too(hits, tmp_path):
    with pytest.raises(tm.UsageError, match="did you mean `user`") as usage:
        tm.query(f"SELECT usr FROM '{hits}'")
    assert isinstance(usage.value, ValueError)
    with pytest.raises(FileNotFoundError):
        tm.query(f"SELECT 1 FROM '{tmp_path}/nothing.csv'")
    with pytest.raises(tm.NotFoundError):
        tm.run(tmp_path / "nothing.toml")
    with pytest.raises(tm.UsageError, match="delimiter"):
        tm.query("SELECT 1", delimiter=";;")
    with pytest.raises(tm.UsageError, match="memory"):
        tm.query("SELECT 1", memory="1K")
    with pytest.raises(tm.UsageError, match="threads"):
        tm.query("SELECT 1", threads=0)
    with pytest.raises(tm.UsageError, match="did you mean `source`"):
        tm.run({"sauce": {}})
    assert all(
        issubclass(getattr(tm, name), tm.TidemillError) for name in tm.__all__ if "Error" in name
    )


def test_errors_of_the_system_say_what_and_which(hits, tmp_path):
    with pytest.raises(OSError, match="no such file or folder") as caught:
        tm.query(f"SELECT 1 FROM '{tmp_path}/nothing.csv'")
    assert caught.value.filename == f"{tmp_path}/nothing.csv"
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(OSError, match="overwrite=True replaces it") as caught:
        tm.query(f"SELECT * FROM '{hits}'", output=hits)
    assert (caught.value.filename, caught.value.errno) == (str(hits), errno.EEXIST)
    with pytest.raises(OSError, match="cannot read") as caught:
        tm.Job.from_file(tmp_path)
    assert (caught.value.filename, caught.value.errno) == (str(tmp_path), errno.EISDIR)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.errno) == (str(caught.value), errno.EISDIR)


def test_a_sum_that_is_too_large_is_an_overflow(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("x\n" + "9223372036854775807\n" * 2)
    with pytest.raises(OverflowError) as caught:
        tm.query(f"SELECT sum(x) AS x FROM '{path}'").to_pylist()
    assert isinstance(caught.value, tm.OutOfRangeError)
    with pytest.raises(tm.CorruptBytesError, match=r"`\\x1234` is no set of ids"):
        tm.query("SELECT id_set_cardinality('\\x1234')").to_pylist()


def test_bad_records_are_counted_located_and_may_be_allowed(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x\n1\n2\n" * 1 + "oops\n4\n")
    sql = f"SELECT sum(x) AS total FROM '{path}'"
    with pytest.raises(tm.BadRecordError) as caught:
        pyarrow.table(tm.query(sql, schema="x BIGINT"))
    assert caught.value.records[0]["line"] == 4
    result = tm.query(sql, schema="x BIGINT", max_bad=1)
    assert pyarrow.table(result).to_pylist() == [{"total": 7}]
    assert result.coverage["rows"] == {"done": 3, "rejected": 1}


def test_other_threads_go_on_while_a_query_runs(tmp_path):
    done = run_script(
        """
        PIPE
        main = threading.get_ident()

        def feed_later():
            # Only a thread that gets to run can end the query.
            wait_for(main)
            feed(2)
            end()

        threading.Thread(target=feed_later).start()
        rows = sum(batch.num_rows for batch in tm.query("SELECT x FROM '-'", **csv))
        print(rows)
        """,
        timeout=600,
    )
    assert done.stdout == "2\n", done.stderr


def test_a_result_that_is_dropped_stops_its_run(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text("x\n" + "1\n" * 2_000_000)
    result = tm.query(f"SELECT x FROM '{path}'")
    next(iter(result))
    del result
    # The interpreter must end without waiting for a reader that nobody listens to.
    done = run_script(
        f"""
        import tidemill as tm
        result = tm.query("SELECT x FROM '{path}'")
        next(iter(result))
        """,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_but_the_standard_library_is_imported():
    done = run_script(
        """
        import sys
        before = set(sys.modules)
        import tidemill
        after = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(after - set(sys.stdlib_module_names) - {"tidemill"}))
        """
    )
    assert done.stdout == "[]\n", done.stderr


def test_every_run_is_in_the_job_log(hits, tmp_path):
    assert tm.jobs() == []
    pyarrow.table(tm.query(f"SELECT day, count() AS n FROM '{hits}' GROUP BY day"))
    list(tm.read_text(hits, columns=["user"]))
    job = {
        "name": "by-day",
        "source": {"url": str(hits)},
        "tables": {"by": ["day"], "n": "count()"},
        "sink": {"url": str(tmp_path / "out" / "{day}.csv")},
    }
    tm.run(job)
    with pytest.raises(tm.OutputExistsError):
        tm.run(job)
    with pytest.raises(tm.UsageError):
        tm.query(f"SELECT whom FROM '{hits}'")
    runs = tm.jobs("list")
    assert [(run["verb"], run["outcome"]) for run in runs] == [
        ("query", "failed"),
        ("run", "failed"),
        ("run", "done"),
        ("read_text", "done"),
        ("query", "done"),
    ]
    assert {run["via"] for run in runs} == {"python"}
    assert [run["id"] for run in tm.jobs(name="by-day", last=1)] == [runs[1]["id"]]
    shown = tm.jobs("show", runs[2]["id"])
    assert shown["reducer"] == "by day: n = count()"
    assert [step["name"] for step in shown["steps"]] == ["map", "tables", "finish", "sink"]
    assert shown["steps"][0]["rows_in"] == 3
    top = tm.jobs("top")
    assert top["runs"] == 5
    compared = tm.jobs("compare", "by-day", runs[4]["id"])
    assert compared["a"]["runs"] == [runs[2]["id"]]
    assert compared["figures"][0]["name"] == "vcore-seconds"


def test_a_result_that_is_dropped_is_an_interrupted_run(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text("x\n" + "1\n" * 500_000)
    result = tm.query(f"SELECT x FROM '{path}'")
    next(iter(result))
    del result
    assert tm.jobs()[0]["outcome"] == "interrupted"


def test_jobs_says_what_it_does_not_understand():
    for arguments, says in [
        (("tpo",), "unknown report `tpo`"),
        (("show",), "takes 1 runs"),
        (("compare", "a"), "takes 2 runs"),
        (("compare", "a", "b"), "no job called `a`"),
        (("show", "12345678"), "there is no run"),
    ]:
        with pytest.raises(tm.UsageError, match=says):
            tm.jobs(*arguments)
    with pytest.raises(tm.UsageError, match="`soon` is not a time"):
        tm.jobs(since="soon")
    with pytest.raises(tm.UsageError, match="`name` means nothing to `top`"):
        tm.jobs("top", name="x")
    with pytest.raises(tm.UsageError, match="at least 1"):
        tm.jobs(last=0)


def test_a_state_folder_that_cannot_be_written_is_a_warning(hits, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "file" / "home"))
    with pytest.warns(RuntimeWarning, match="cannot write to the state folder") as warned:
        table = pyarrow.table(tm.query(f"SELECT day FROM '{hits}'"))
    assert table.num_rows == 3
    assert [pathlib.Path(warning.filename).name for warning in warned] == ["test_tidemill.py"]
