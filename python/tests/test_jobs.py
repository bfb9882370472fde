"""`Job`: what a job file says, as an object."""

import http.server
import json
import pathlib
import random
import re
import threading

import pandas
import polars
import pyarrow
import pytest

import tidemill as tm
from tidemill import _job

FULL = {
    "name": "unique-users-by-state",
    "source": [
        {
            "name": "clicks",
            "url": "logs/2026-11-*/*.json.zst",
            "format": "json",
            "schema": "user_id BIGINT, state TEXT",
            "options": {"null": ["NA", ""], "header": False, "delimiter": ";"},
        },
        {
            "name": "states",
            "url": "s3://b/states.csv",
            "storage_options": {"region": "eu-west-1", "max_retries": 3},
        },
    ],
    "map": {"sql": 'SELECT *\nFROM clicks\nJOIN states USING (state) -- it\'s "quoted"\n'},
    "tables": {"by": ["day", "state"], "users": "unique(user_id)", "a b": "max(x)"},
    "sink": {
        "url": "out/{day}.csv",
        "overwrite": True,
        "max_files": 400,
        "null": "NULL",
        "header": False,
    },
    "run": {"memory": "512M", "spill_dir": ["/mnt/a", "/mnt/b"], "max_bad": 3, "threads": 2},
}


def test_a_job_says_the_same_in_python_in_toml_and_as_a_mapping(tmp_path):
    job = tm.Job(**FULL)
    assert job.to_dict() == FULL
    assert job.name == "unique-users-by-state"
    assert tm.Job(**job.to_dict()) == job
    text = job.to_toml()
    assert tm.Job.from_toml(text) == job
    assert tm.Job.from_toml(text).to_dict() == FULL
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert tm.Job.from_file(path) == tm.Job.from_file(str(path)) == job
    assert tm.Job.from_file(path).sql == job.sql
    # The repr is Python.
    assert eval(repr(job), {"Job": tm.Job}) == job
    # What is given out is not the job's own.
    job.to_dict()["sink"]["url"] = "x"
    assert job.to_dict() == FULL


def test_jobs_are_equal_if_they_say_the_same():
    source = {"url": "a.csv"}
    job = tm.Job(source=source, tables={"by": ["day"], "n": "count()", "m": "max(x)"})
    for same in (
        tm.Job(source=[source], tables={"by": "day", "n": "count()", "m": "max(x)"}),
        tm.Job(tables={"n": "count()", "m": "max(x)", "by": ["day"]}, source=source, sink=None),
        tm.Job(
            source={"format": None, "url": pathlib.Path("a.csv")},
            tables={"by": ("day",), "n": "count()", "m": "max(x)"},
        ),
    ):
        assert same == job
        assert hash(same) == hash(job)
    for other in (
        tm.Job(source=source, tables={"by": ["day"], "m": "max(x)", "n": "count()"}),
        tm.Job(source=source, tables={"by": ["day"], "n": "count()"}),
        tm.Job(name="x", source=source, tables={"by": ["day"], "n": "count()", "m": "max(x)"}),
    ):
        assert other != job
    assert job != "a.csv"


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"sauce": {"url": "a"}}, "unknown key `sauce`; did you mean `source`?"),
        ({"source": {"url": "a", "fromat": "csv"}}, "did you mean `format`?"),
        ({"source": {"url": "a", "options": {"nul": "x"}}}, "did you mean `null`?"),
        ({"source": {"url": "a", "storage_options": {"regoin": "x"}}}, "did you mean `region`?"),
        ({"source": "a.csv"}, "`source` must be a table, not a string"),
        (
            {"source": {"url": 3}},
            "`url` in `[source]` must be a string or a list of strings, not a number",
        ),
        ({"source": {"url": "a"}, "run": {"threads": 0}}, "must be at least 1, not 0"),
        ({"source": {"url": "a"}, "sink": {"url": "x", "overwite": True}}, "mean `overwrite`?"),
        ({"source": {"url": "a"}, "tables": {"by": ["x"], "x": "count()"}}, "a column of `by`"),
        ({}, "has nothing to read"),
        ({"source": {"url": "a"}, "run": {"memory": float("nan")}}, "`run.memory` cannot be nan"),
        ({"source": {"url": "a"}, "name": {"x"}}, "`name` cannot be a set"),
        ({"source": {"url": b"a"}}, "`source.url` cannot be a bytes"),
        ({"source": {"url": "a\udc80"}}, "`source.url` is no text"),
        ({"source": [{"url": "a"}, {"url": "b"}], "map": {"sql": "q"}}, "needs a `name`"),
    ],
)
def test_a_mistake_is_an_error_when_the_job_is_made(sections, says):
    with pytest.raises(tm.UsageError) as caught:
        tm.Job(**sections)
    assert says in str(caught.value)
    with pytest.raises(tm.UsageError):
        tm.run(sections)


def test_a_mistake_in_a_job_file_has_its_line(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("[source]\nurl = 'a'\nfromat = 'csv'\n")
    with pytest.raises(tm.UsageError, match=r"job\.toml:3: unknown key `fromat`"):
        tm.Job.from_file(path)
    with pytest.raises(tm.UsageError, match="job:1: not valid TOML"):
        tm.Job.from_toml("[source\n")
    with pytest.raises(tm.NotFoundError):
        tm.Job.from_file(tmp_path / "none.toml")
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(tm.UsageError, match="not UTF-8"):
        tm.Job.from_file(path)


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ({"zzz": 1}, ["name", "files", "source", "map", "tables", "sink", "run", "turbo"]),
        ({"source": {"url": "a", "zzz": 1}}, _job.SourceSection),
        ({"source": {"url": "a", "options": {"zzz": 1}}}, _job.TextOptions),
        ({"map": {"sql": "a", "zzz": 1}}, _job.MapSection),
        ({"source": {"url": "a"}, "sink": {"url": "a", "zzz": 1}}, _job.SinkSection),
        ({"source": {"url": "a"}, "run": {"zzz": 1}}, _job.RunSection),
        ({"source": {"url": "a"}, "turbo": {"zzz": 1}}, _job.TurboSection),
    ],
)
def test_a_type_checker_knows_the_keys_that_the_engine_knows(section, keys):
    with pytest.raises(tm.UsageError) as caught:
        tm.Job(**section)
    known = str(caught.value).partition("keys: ")[2].split(", ")
    names = keys if isinstance(keys, list) else [*keys.__annotations__]
    if not isinstance(keys, list):
        names = {name for base in keys.__mro__ for name in getattr(base, "__annotations__", {})}
        names |= set(keys.__required_keys__) | set(keys.__optional_keys__)
    assert sorted(names) == sorted(known)


@pytest.mark.parametrize("seed", range(50))
def test_any_text_comes_back_from_toml_as_it_was(seed):
    chance = random.Random(seed)
    alphabet = [
        "a",
        "'",
        "'''",
        '"',
        '"""',
        "\\",
        "\n",
        "\r\n",
        "\t",
        "\x00",
        "\x7f",
        "é",
        "日",
        "#",
    ]

    def text():
        return "".join(chance.choices(alphabet, k=chance.randrange(1, 12)))

    job = tm.Job(
        name=text(),
        source={"url": text(), "name": text(), "options": {"null": [text(), text()]}},
        map={"sql": text()},
        tables={"by": [text()], "n" + text(): "x" + text()},
    )
    again = tm.Job.from_toml(job.to_toml())
    assert again == job
    assert again.to_dict() == job.to_dict()
    assert again.sql == job.sql


def test_a_job_runs_with_keys_replaced(hits, tmp_path):
    job = tm.Job(
        name="by-day",
        source={"url": "nothing.csv"},
        tables={"by": "day", "n": "count()"},
    )
    assert job.run(set={"source.url": hits}).to_pylist() == [{"day": 1, "n": 2}, {"day": 2, "n": 1}]
    assert tm.run(job, set={"source": {"url": hits}}).to_pylist()[0]["n"] == 2
    written = job.run(set={"source.url": hits}, output=tmp_path / "{day}.csv")
    assert str(written).splitlines() == [
        f"wrote 2 files in `{tmp_path}`: 2 rows, 20 B",
        "complete: 3 rows from 1 file (42 B), 1/1 splits",
    ]
    # What the job says has not changed.
    assert job.to_dict()["source"] == {"url": "nothing.csv"}
    with pytest.raises(tm.UsageError, match="did you mean `format`"):
        job.run(set={"source.fromat": "csv"})
    assert {run["name"] for run in tm.jobs()} == {"by-day"}


def test_partial_tables_are_kept_and_merged(hits, tmp_path):
    job = tm.Job(source={"url": hits}, tables={"by": "day", "users": "unique(user)"})
    written = job.run(partial=tmp_path / "a.part")
    size = (tmp_path / "a.part").stat().st_size
    assert (written.files, written.rows, written.bytes) == (1, 2, size)
    assert written.paths == [str(tmp_path / "a.part")]
    assert written.coverage["mergeable"] is True
    with pytest.raises(tm.OutputExistsError):
        job.run(partial=tmp_path / "a.part")
    other = tmp_path / "other.csv"
    other.write_text("day,user,seconds\n2,bob,1\n")
    tm.run(job, set={"source.url": other}, partial=tmp_path / "b.part", overwrite=True)
    parts = [tmp_path / "a.part", str(tmp_path / "b.part")]
    expected = [{"day": 1, "users": 2}, {"day": 2, "users": 2}]
    merged = tm.merge(parts)
    assert merged.to_pylist() == expected
    assert merged.coverage["files"] == 2
    assert tm.merge(f"{tmp_path}/[ab].part").to_pylist() == expected
    with pytest.raises(tm.NotFoundError):
        tm.merge(f"{tmp_path}/[xy].part")
    both = tm.merge(parts, partial=tmp_path / "both.part")
    assert both.rows == 2
    assert tm.merge(tmp_path / "both.part").to_pylist() == expected
    written = tm.merge(parts, output=tmp_path / "all.json")
    assert [json.loads(line) for line in (tmp_path / "all.json").open()] == expected
    assert written.rows == 2
    for wrong in ({"output": "x.csv"}, {"format": "csv"}, {"max_files": 3}):
        with pytest.raises(tm.UsageError, match="means nothing with `partial`"):
            job.run(partial=tmp_path / "c.part", **wrong)
        with pytest.raises(tm.UsageError, match="means nothing with `partial`"):
            tm.merge(parts, partial=tmp_path / "c.part", **wrong)
    with pytest.raises(tm.UsageError, match="nothing to merge"):
        tm.merge([])
    with pytest.raises(tm.CorruptFileError, match=r"made by `tm.run\(job, partial=OUT\)`"):
        tm.merge(hits)
    for keep in (job.run, lambda partial: tm.merge(parts, partial=partial)):
        with pytest.raises(tm.UsageError, match="cannot be written to `-`"):
            keep(partial="-")
    with pytest.raises(tm.UsageError, match="no aggregation"):
        tm.Job(source={"url": hits}).run(partial=tmp_path / "c.part")


def test_a_plan_says_what_would_be_run_and_written(hits, tmp_path):
    job = tm.Job(source={"url": hits}, tables={"by": "day", "n": "count()"}, run={"threads": 1})
    plan = job.explain(output=tmp_path / "{day}.csv", memory="1GiB")
    assert (plan.path, plan.mergeable, plan.threads, plan.memory_bytes) == (
        "partial tables",
        True,
        1,
        1 << 30,
    )
    assert plan.sources[0]["files"] == 1
    assert plan.sink == f"one csv file for each `day`, `{tmp_path}/{{day}}.csv`"
    assert str(plan).splitlines()[-1] == f"sink: {plan.sink}"
    assert plan.to_dict()["sink"] == plan.sink
    assert not list(tmp_path.glob("*.part"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hits.csv"]
    rows = tm.explain(f"SELECT user FROM '{hits}' LIMIT 1")
    assert (rows.path, rows.mergeable, rows.sink) == ("rows", False, None)
    assert "sink" not in rows.to_dict()
    assert rows._repr_html_().startswith("<pre>path: rows")
    assert tm.jobs() == []
    with pytest.raises(tm.UsageError, match="did you mean `user`"):
        tm.explain(f"SELECT usr FROM '{hits}'")


def test_programs_find_files_by_name(tmp_path):
    (tmp_path / "a.dat").write_text("ann;3\nbob;4\n")
    geo = tmp_path / "geo"
    geo.mkdir()
    (geo / "cities.dat").write_text("ann;Oslo\nbob;Rome\n")
    look = ["sh", "-c", "echo city,n; join -t ';' -o 1.2,2.2 cities.dat - | tr ';' ,"]
    expected = [{"city": "Oslo", "n": 3}, {"city": "Rome", "n": 4}]
    sql = f"SELECT city, n FROM '{tmp_path}/a.dat'"
    given = {"source_format": "csv", "source_exec": look}
    assert tm.query(sql, files=geo / "cities.dat", **given).to_pylist() == expected
    assert tm.explain(sql, files=[geo / "cities.dat"], **given).path == "rows"
    tm.convert(
        tmp_path / "a.dat", tmp_path / "out.json", files=[geo / "cities.dat"], select="n", **given
    )
    assert (tmp_path / "out.json").read_text() == '{"n":3}\n{"n":4}\n'
    source = {"url": tmp_path / "a.dat", "exec": look, "format": "csv"}
    job = tm.Job(source=source, files=[geo / "cities.dat"])
    assert job.run().to_pylist() == expected
    assert tm.Job(**job.to_dict()) == job
    found = tm.Job(source=source).run(
        files=[geo / "cities.dat"], output=tmp_path / "out.csv", sink_exec=["cat", "cities.dat"]
    )
    assert found.rows == 2
    assert (tmp_path / "out.csv").read_text() == "ann;Oslo\nbob;Rome\n"
    with pytest.raises(tm.UsageError, match="no program would find"):
        tm.query("SELECT 1", files=[geo / "cities.dat"])
    with pytest.raises(tm.UsageError, match=r"would both be `cities\.dat`"):
        tm.Job(source=source, files=["cities.dat", geo / "cities.dat"])
    with pytest.raises(FileNotFoundError, match="no such file"):
        tm.query(sql, files="missing.dat", **given).to_pylist()


class Served(http.server.BaseHTTPRequestHandler):
    """A web server with one file, which counts the bytes that it sends."""

    content = bytes(range(256)) * 8_000
    sent = 0
    is_cut_off = False

    def do_GET(self):
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(found[1]), int(found[2] or 1 << 40) + 1) if found else (0, 1 << 40)
        part = self.content[start:end]
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        if found:
            last, total = start + len(part) - 1, len(self.content)
            self.send_header("Content-Range", f"bytes {start}-{last}/{total}")
        self.end_headers()
        part = part[: len(part) // 2] if self.is_cut_off else part
        Served.sent += len(part)
        self.wfile.write(part)

    def log_message(self, *_):
        pass


def test_a_file_of_the_web_is_fetched_once_for_all_programs_and_whole_or_not_at_all(
    tmp_path, monkeypatch
):
    for file in range(5):
        (tmp_path / f"{file}.txt").write_text("line\n" * 3)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/geo/ip%20geo.dat?sig=hush"
        job = {
            "files": [url],
            "source": {
                "url": f"{tmp_path}/*.txt",
                "exec": ["sh", "-c", "while read line; do wc -c < 'ip geo.dat'; done"],
            },
            "tables": {"by": "line", "n": "count()"},
        }
        (tmp_path / "spill").mkdir()
        found = tm.run(job, spill_dir=tmp_path / "spill").to_pylist()
        assert [(int(row["line"]), row["n"]) for row in found] == [(len(Served.content), 15)]
        assert Served.sent == len(Served.content)
        monkeypatch.setattr(Served, "is_cut_off", True)
        job["source"]["exec"] = ["touch", str(tmp_path / "started")]
        with pytest.raises(tm.TidemillError) as raised:
            tm.run(
                job, spill_dir=tmp_path / "spill", storage_options={"max_retries": 0}
            ).to_pylist()
        assert "hush" not in str(raised.value)
        assert not (tmp_path / "started").exists()
    finally:
        server.shutdown()


def test_bytes_go_through_programs_on_the_way_in_and_out(tmp_path):
    (tmp_path / "a.dat").write_text("ann;3\nbob;4\nann;5\n")
    comma = ["sh", "-c", "echo name,points; tr ';' ,"]
    sql = f"SELECT name, sum(points) AS points FROM '{tmp_path}/a.dat' GROUP BY name"
    expected = [{"name": "ann", "points": 8}, {"name": "bob", "points": 4}]
    assert tm.query(sql, source_format="csv", source_exec=comma).to_pylist() == expected
    assert tm.head(tmp_path / "a.dat", source_exec="rev").to_pylist()[0] == {"line": "3;nna"}
    job = tm.Job(
        source={"url": tmp_path / "a.dat", "exec": comma, "format": "csv"},
        tables={"by": "name", "points": "sum(points)"},
        sink={"url": tmp_path / "out.csv", "exec": ["tr", "a-z", "A-Z"]},
    )
    job.run()
    assert (tmp_path / "out.csv").read_text() == "NAME,POINTS\nANN,8\nBOB,4\n"
    job.run(output=tmp_path / "two.csv", sink_exec="rev")
    assert (tmp_path / "two.csv").read_text() == "stniop,eman\n8,nna\n4,bob\n"
    with pytest.raises(tm.TidemillError, match="`false` ended with status 1"):
        job.run(output=tmp_path / "three.csv", sink_exec="false")
    assert not (tmp_path / "three.csv").exists()
    with pytest.raises(tm.UsageError, match="no such program: `no-such`"):
        tm.query(sql, source_format="csv", source_exec="no-such")
    with pytest.raises(tm.UsageError, match="`sink_exec` means nothing without `output`"):
        tm.query(sql, sink_exec="cat")
    numbers = tm.Job(source={"exec": ["seq", "3"]}).run().to_pylist()
    assert numbers == [
        {"line": "1"},
        {"line": "2"},
        {"line": "3"},
    ]


FRAMES = {
    "pyarrow": pyarrow.table,
    "stream": lambda rows: pyarrow.table(rows).to_reader(),
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "lazy": lambda rows: polars.DataFrame(rows).lazy(),
    "result": lambda rows: tm.query("SELECT * FROM t", t=pyarrow.table(rows)),
    "columns": lambda rows: rows,
    "rows": lambda rows: pyarrow.table(rows).to_pylist(),
}
HITS = {"page": ["/", "/", "/buy"], "user": ["ann", "bob", "ann"]}
BY_PAGE = {"by": "page", "users": "unique(user)"}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_in_memory_takes_the_place_of_a_jobs_source(make, tmp_path):
    job = tm.Job(source={"url": "nothing.csv", "format": "csv"}, tables=BY_PAGE)
    expected = [("/", 2), ("/buy", 1)]
    result = tm.run(job, source=make(HITS))
    assert result.fetchall() == expected
    assert result.coverage["mergeable"] and result.coverage["rows"]["done"] == 3
    assert job.run(source=make(HITS)).fetchall() == expected
    assert tm.run({"tables": BY_PAGE}, source=make(HITS)).fetchall() == expected
    assert tm.run(job.to_toml(), sources={"source": make(HITS)}).fetchall() == expected
    assert job.run(source=make(HITS), output=tmp_path / "{page}.csv").files == 2
    job.run(source=make(HITS), partial=tmp_path / "hits.part")
    assert tm.merge(tmp_path / "hits.part").fetchall() == expected
    assert job.explain(source=make(HITS)).path == "partial tables"
    # What the job says has not changed.
    with pytest.raises(tm.NotFoundError):
        job.run()


def test_frames_are_sources_by_their_names(tmp_path):
    (tmp_path / "clicks.csv").write_text("id,page\n1,/\n2,/\n1,/buy\n")
    users = pandas.DataFrame({"id": [1, 2], "name": ["ann", "bob"]})
    sql = "SELECT name, page FROM clicks JOIN users USING (id)"
    tables = {"by": "name", "n": "count()"}
    expected = [("ann", 2), ("bob", 1)]
    clicks = {"name": "clicks", "url": tmp_path / "clicks.csv"}
    declared = tm.Job(
        source=[clicks, {"name": "users", "url": "x.csv"}], map={"sql": sql}, tables=tables
    )
    assert declared.run(sources={"users": users}).fetchall() == expected
    # The map reads a table of the name.
    undeclared = tm.Job(source=clicks, map={"sql": sql}, tables=tables)
    assert undeclared.run(sources={"users": users}).fetchall() == expected
    both = {"users": users, "clicks": tm.query(f"SELECT * FROM '{tmp_path}/clicks.csv'")}
    assert tm.run({"map": {"sql": sql}, "tables": tables}, sources=both).fetchall() == expected
    for wrong, says in (
        ({"user": users}, "unknown source `user`; did you mean `users`"),
        ({"source": users}, "unknown source `source`"),
    ):
        with pytest.raises(tm.UsageError, match=says):
            declared.run(sources=wrong)
    with pytest.raises(tm.UsageError, match="`users` is a list, which is no source"):
        declared.run(sources={"users": [1, 2]})


def test_a_job_may_be_made_of_a_frame():
    table = pyarrow.table(HITS)
    job = tm.Job(name="pages", source=table, tables=BY_PAGE)
    for _ in range(2):
        assert job.run().fetchall() == [("/", 2), ("/buy", 1)]
    assert tm.run({"source": table, "tables": BY_PAGE}).fetchall() == [("/", 2), ("/buy", 1)]
    assert job.run(source=table.slice(2)).fetchall() == [("/buy", 1)]
    assert job.sql.endswith('FROM "source" GROUP BY "page"')
    assert repr(job) == f"Job(name='pages', tables={BY_PAGE!r}, source=<Table>)"
    assert tm.Job(**job.to_dict()) == job and hash(tm.Job(**job.to_dict())) == hash(job)
    assert tm.Job(name="pages", source=pyarrow.table(HITS), tables=BY_PAGE) != job
    with pytest.raises(tm.UsageError, match="in memory, which no job file has"):
        job.to_toml()
    lazy = tm.Job(source=polars.LazyFrame(HITS), tables=BY_PAGE)
    for _ in range(2):
        assert lazy.run().fetchall() == [("/", 2), ("/buy", 1)]
    stream = tm.Job(source=table.to_reader(), tables=BY_PAGE)
    assert stream.run().fetchall() == [("/", 2), ("/buy", 1)]
    with pytest.raises(tm.UsageError, match=r"is a stream, which an earlier run has read\nhint: "):
        stream.run()
    assert stream.run(source=table.to_reader()).fetchall() == [("/", 2), ("/buy", 1)]
    with pytest.raises(
        tm.UsageError, match=r"`source.url` cannot be a Table\nhint: .*run\(source="
    ):
        tm.Job(source={"url": table})


def test_a_stream_of_any_kind_is_read_by_one_run_alone():
    def made():
        return polars.DataFrame(HITS).lazy().collect_batches(lazy=True)

    says = r"is a stream, which an earlier run has read\nhint: "
    for stream in (made(), pyarrow.table(HITS).to_reader()):
        job, other = (tm.Job(source=stream, tables=BY_PAGE) for _ in range(2))
        # What fails before a row is read, and explaining, take nothing.
        with pytest.raises(tm.UsageError, match="banana"):
            job.run(memory="banana")
        job.explain()
        assert job.run().fetchall() == [("/", 2), ("/buy", 1)]
        for options in ({}, {"source": stream}):
            with pytest.raises(tm.UsageError, match=says):
                other.run(**options)
        with pytest.raises(tm.UsageError, match=says):
            job.run()
        with pytest.raises(tm.UsageError, match=f"`hits` {says}"):
            tm.query("SELECT * FROM hits", hits=stream)
        assert job.run(source=made()).fetchall() == [("/", 2), ("/buy", 1)]


class Unreferenced:
    """A stream to which there are no weak references."""

    __slots__ = ("reader",)

    def __init__(self):
        self.reader = pyarrow.table(HITS).to_reader()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.reader)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


def test_a_stream_without_weak_references_is_read_once_by_its_job():
    job = tm.Job(source=Unreferenced(), tables=BY_PAGE)
    assert job.run().fetchall() == [("/", 2), ("/buy", 1)]
    with pytest.raises(tm.UsageError, match="which an earlier run has read"):
        job.run()


def test_keys_of_files_cannot_be_set_for_a_table_in_memory():
    table = pyarrow.table(HITS)
    job = tm.Job(source=table, tables=BY_PAGE)
    files = tm.Job(source={"url": "x.csv"}, tables=BY_PAGE)
    for key in ("source.url", "source.format", "source.options.header"):
        value = True if key.endswith("header") else "csv"
        with pytest.raises(tm.UsageError, match=f"`{key}` is set, but the source `source` is"):
            files.run(source=table, set={key: value})
    with pytest.raises(tm.UsageError, match="is a table in memory"):
        job.run(set={"source.url": "other.csv"})
    assert job.run(set={"run.threads": 1}).fetchall() == [("/", 2), ("/buy", 1)]


def test_a_job_without_a_source_is_given_one_by_the_run(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text('[tables]\nby = ["page"]\nusers = "unique(user)"\n')
    table = pyarrow.table(HITS)
    jobs = tm.Job(tables=BY_PAGE), tm.Job.from_file(path), tm.Job.from_toml(path.read_text())
    for job in jobs:
        assert job.run(source=table).fetchall() == [("/", 2), ("/buy", 1)]
        with pytest.raises(tm.UsageError, match="has nothing to read"):
            job.run()
    assert jobs[0].to_dict() == {"tables": BY_PAGE}


def test_columns_of_a_frame_are_promoted_as_the_job_says():
    rows = [{"user": {"id": 1, "name": "ann"}}, {"user": {"id": 2, "name": "bob"}}]
    job = tm.Job(
        source={"url": "x.json", "promote": "user"}, tables={"by": "name", "ids": "sum(id)"}
    )
    assert job.run(source=rows).fetchall() == [("ann", 1), ("bob", 2)]
