"""`http://` sources: with ranges, without, and from servers that misbehave."""

import gzip
import io
import json
import signal
import socket

import pyarrow
import pyarrow.parquet
import pytest

from faulty import Cut, Hang, Stall, Status, Web, always, before, first

ROWS = 250_000
CSV = ("n,pad\n" + "".join(f"{n},{n * 7919 % 1000003:020d}\n" for n in range(ROWS))).encode()
TOTALS = f"count(),sum(n)\n{ROWS},{ROWS * (ROWS - 1) // 2}\n"


# Blocks of which a file has many: what happens at the n-th request happens in the middle of it.
SMALL = "--read-block=256K"


def totals(web, path):
    return f"SELECT count(), sum(n) FROM '{web.url}{path}'"


def parquet():
    sink = io.BytesIO()
    table = pyarrow.table({"n": range(ROWS), "pad": [str(n) for n in range(ROWS)]})
    pyarrow.parquet.write_table(table, sink, row_group_size=50_000)
    return sink.getvalue()


@pytest.fixture(scope="session")
def files():
    return {"/a.csv": CSV, "/a.csv.gz": gzip.compress(CSV, 1), "/a.parquet": parquet()}


@pytest.fixture
def web(files):
    with Web(dict(files)) as web:
        yield web


def test_a_server_with_ranges_is_read_in_splits(web, tidemill):
    for path in ("/a.csv", "/a.csv.gz", "/a.parquet"):
        assert tidemill.query(totals(web, path)) == TOTALS, path
    explained = tidemill.query(totals(web, "/a.csv"), "--explain")
    assert "7 splits" in explained
    assert all(r.method == "GET" and "range" in r.headers for r in web.requests)
    versions = {r.headers.get("if-match") for r in web.requests[1:]}
    assert versions <= {None, '"v1"'} and '"v1"' in versions


@pytest.mark.parametrize(
    "lacks", [{"ranges": False}, {"e_tag": False, "modified": False}, {"length": False}]
)
def test_a_server_without_ranges_or_versions_is_read_whole(tidemill, lacks):
    if "length" in lacks:
        lacks = {"length": False, "ranges": False}
    files = {"/a.csv": CSV, "/a.csv.gz": gzip.compress(CSV, 1), "/small.csv": b"n\n1\n2\n"}
    with Web(files, **lacks) as web:
        assert tidemill.query(totals(web, "/a.csv")) == TOTALS
        # What it is, what its columns are, and its rows.
        assert len(web.requests) <= 3
        assert tidemill.query(totals(web, "/a.csv.gz")) == TOTALS
        assert tidemill.query(totals(web, "/small.csv")) == "count(),sum(n)\n2,3\n"
        ordered = f"SELECT n FROM '{web.url}/a.csv' ORDER BY n DESC LIMIT 1"
        assert tidemill.query(ordered) == f"n\n{ROWS - 1}\n"


def test_parquet_needs_ranges_and_says_so(tidemill):
    with Web({"/a.parquet": parquet()}, ranges=False) as web:
        message = tidemill.query(totals(web, "/a.parquet"), expect=2)
        assert "its server has no ranges" in message
    small = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), small)
    with Web({"/a.parquet": small.getvalue()}, ranges=False) as web:
        assert tidemill.query(totals(web, "/a.parquet")) == "count(),sum(n)\n2,3\n"


def test_a_small_file_costs_one_request(tidemill):
    with Web({"/a.csv": b"n\n1\n", "/b.csv": b"n\n2\n", "/none.csv": b""}) as web:
        sql = f"SELECT sum(n) AS n FROM '{web.url}/{{a,b}}.csv'"
        assert tidemill.query(sql) == "n\n3\n"
        # Both are asked for at once.
        assert sorted(r.path for r in web.requests) == ["/a.csv", "/b.csv"]
        sql = f"SELECT count() AS c FROM '{web.url}/{{a,none}}.csv'"
        assert tidemill.query(sql) == "c\n1\n"


def test_names_with_queries_and_odd_characters_are_asked_for_as_they_are(tidemill):
    with Web({"/a b/ü#.csv": b"n\n1\n"}) as web:
        url = f"{web.url}/a%20b/%C3%BC%23.csv?token=hush&x=1"
        assert tidemill.query(f"SELECT n FROM '{url}'") == "n\n1\n"
        assert web.requests[0].query == {"token": "hush", "x": "1"}
        assert "hush" not in tidemill.query(f"SELECT n FROM '{url}'", "--explain")
        message = tidemill.query(f"SELECT m FROM '{url}'", expect=2)
        assert "hush" not in message
        host = web.url.removeprefix("http://")
        sql = f"SELECT n FROM 'http://me:hush@{host}/a b/ü%23.csv'"
        assert tidemill.query(sql) == "n\n1\n"
        assert web.requests[-1].headers["authorization"] == "Basic bWU6aHVzaA=="
        web.rules = [always(Status(403))]
        message = tidemill.query(sql, expect=1)
        assert "the server answered 403" in message and host in message


def test_what_cannot_be_read_says_why(web, tidemill):
    assert "answered 404" in tidemill.query(totals(web, "/b.csv"), expect=1)
    assert "does not list its files" in tidemill.query(totals(web, "/*.csv"), expect=2)
    options = ("--storage-option=region=x",)
    assert "no meaning for http" in tidemill.query(totals(web, "/a.csv"), *options, expect=2)
    quick = ("--storage-option=max_retries=1",)
    sql = "SELECT * FROM 'http://127.0.0.1:1/a.csv'"
    message = tidemill.query(sql, *quick, expect=1)
    assert "cannot read `http://127.0.0.1:1/a.csv`" in message and "after 1 retry" in message


# Faults


def test_a_busy_server_is_asked_again(web, tidemill):
    web.rules = [first(3, Status(503)), first(2, Status(429))]
    assert tidemill.query(totals(web, "/a.csv")) == TOTALS
    so_far = len(web.requests)
    web.rules = [always(Status(503), lambda r: len(web.requests) > so_far + 3)]
    patience = "--storage-option=max_retries=2"
    message = tidemill.query(totals(web, "/a.csv"), patience, SMALL, expect=1)
    assert "the server answered 503, after 2 retries" in message and "at byte" in message


@pytest.mark.parametrize("after", [0, 1, 100_000])
def test_a_body_that_is_cut_off_is_gone_on_with(web, tidemill, after):
    web.rules = [first(4, Cut(after))]
    assert tidemill.query(totals(web, "/a.csv")) == TOTALS


def test_a_body_without_ranges_that_is_cut_off_is_an_error(tidemill):
    with Web({"/a.csv": CSV}, ranges=False) as web:
        # The answer to the first question is not read to its end.
        web.rules = [always(Cut(2_000_000), lambda r: "range" not in r.headers)]
        message = tidemill.query(totals(web, "/a.csv"), expect=1)
        assert "has no ranges to go on with" in message and "at byte" in message


def test_a_stalled_answer_is_given_up_and_asked_for_again(web, tidemill):
    web.rules = [first(2, Stall())]
    assert tidemill.query(totals(web, "/a.csv"), "--storage-option=timeout=1s") == TOTALS


def test_an_interrupt_ends_a_run_that_waits(web, tidemill):
    web.rules = [always(Stall())]
    process = tidemill.start("query", totals(web, "/a.csv"))
    assert web.stalled.wait(600)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


@pytest.mark.parametrize("named", [{"e_tag": False}, {"modified": False}, {}])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_file_replaced_while_it_is_read_is_an_error(tidemill, named, number):
    with Web({"/a.csv": CSV}, **named) as web:

        def replace():
            web.files["/a.csv"] = CSV[:-2] + b"8\n"
            web.version = 2

        web.rules = [before(number, replace)]
        message = tidemill.query(totals(web, "/a.csv"), "--threads=1", SMALL, expect=1)
        assert f"`{web.url}/a.csv` changed while it was read: it has been replaced" in message


def test_a_server_that_stops_giving_ranges_is_found_out(web, tidemill):
    web.rules = [before(2, lambda: setattr(web, "ranges", False))]
    message = tidemill.query(totals(web, "/a.csv"), SMALL, expect=1)
    assert "answered with the whole file" in message


@pytest.mark.parametrize("lie", ["bytes 5-9/{size}", "bytes 0-9/7", "nonsense"])
def test_a_server_that_lies_about_its_ranges_is_found_out(web, tidemill, lie):
    headers = {"Content-Range": lie.format(size=len(CSV)), "ETag": '"v1"'}
    answer = Status(206, body=b"0123456789", headers=headers)
    web.rules = [always(answer, lambda r: len(web.requests) > 1)]
    message = tidemill.query(totals(web, "/a.csv"), expect=1)
    assert "cannot read" in message or "changed while it was read" in message


# Redirects and encodings


def redirect(target, status=302):
    return Status(status, body=b"", headers={"Location": target})


def both(process):
    out, err = process.communicate(timeout=600)
    assert "hush" not in out + err
    return process.returncode, out, err


def test_a_redirect_to_another_host_takes_no_secret_along_and_is_told(tidemill):
    with Web({"/b.csv": CSV}) as there, Web({}) as here:
        here.rules = [always(redirect(f"{there.url}/b.csv?own=1"))]
        host = here.url.removeprefix("http://")
        url = f"http://me:hush@{host}/a.csv?sig=hush"
        sql = f"SELECT count(), sum(n) FROM '{url}'"
        status, out, err = both(tidemill.start("query", sql))
        assert (status, out) == (0, TOTALS)
        other = there.url.removeprefix("http://")
        assert f"warning: `http://{host}/a.csv?…` is read from `{other}`" in err
        assert all("authorization" in r.headers for r in here.requests)
        assert here.requests and there.requests
        for request in there.requests:
            assert "hush" not in repr(request)
            assert not {"authorization", "referer", "cookie"} & set(request.headers)
        for words in (
            ("schema", url),
            ("head", url),
            ("convert", url, "one.json"),
            ("convert", url, "all/", "--format", "json"),
            ("convert", url, "some/", "--format", "json", "--where", "n < 5"),
        ):
            status, _, err = both(tidemill.start(*words))
            assert status == 0 and "is read from" in err, words
        job = tidemill.folder / "job.toml"
        job.write_text(f"source.url = '{url}'\ntables.c = 'count()'\n")
        status, _, err = both(tidemill.start("run", "job.toml", "--partial", "x.part"))
        assert status == 0 and "is read from" in err
        there.rules = [always(Status(403, body=b""))]
        status, _, err = both(tidemill.start("query", sql))
        assert status == 1 and f"`{other}`, where its server points to, answered 403" in err


def test_a_redirect_on_the_same_host_keeps_the_credentials(tidemill):
    with Web({"/b/c.csv": b"n\n7\n"}) as web:
        first_step = always(redirect("b/"), lambda r: r.path == "/a.csv")
        web.rules = [first_step, always(redirect("c.csv", 308), lambda r: r.path == "/b/")]
        host = web.url.removeprefix("http://")
        status, out, err = both(
            tidemill.start("query", f"SELECT n FROM 'http://me:hush@{host}/a.csv'")
        )
        assert (status, out, err) == (0, "n\n7\n", "")
        assert {r.path for r in web.requests} == {"/a.csv", "/b/", "/b/c.csv"}
        assert all("authorization" in r.headers for r in web.requests)
        assert not any("referer" in r.headers for r in web.requests)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a.csv", "points elsewhere more than 10 times"),
        ("ftp://other/a.csv", "points to what is no URL of a web server"),
        ("file:///etc/passwd", "points to what is no URL of a web server"),
    ],
)
def test_redirects_that_lead_nowhere_are_refused(tidemill, target, expected):
    with Web({}) as web:
        web.rules = [always(redirect(target))]
        message = tidemill.query(totals(web, "/a.csv"), expect=1)
        assert expected in message and "AWS" not in message


@pytest.mark.parametrize("ranges", [True, False])
def test_text_is_decoded_by_what_the_server_sends(tidemill, ranges):
    packed = gzip.compress(CSV, 1)
    files = {"/a.csv": packed, "/b.csv.gz": CSV, "/c.csv.gz": gzip.compress(packed, 1)}
    with Web(files, ranges=ranges) as web:
        for path in files:
            assert tidemill.query(totals(web, path)) == TOTALS, path
        assert all(r.headers["accept-encoding"] == "identity" for r in web.requests)


def test_what_a_server_says_of_its_encoding_is_believed_of_text_alone(tidemill):
    small = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), small)

    def answer(body, encoding):
        return always(Status(200, body=body, headers={"Content-Encoding": encoding}))

    with Web({}) as web:
        web.rules = [answer(gzip.compress(CSV, 1), "gzip")]
        assert tidemill.query(totals(web, "/a.csv")) == TOTALS
        web.rules = [answer(b"\x8b\x02\x80n\n1\n\x03", "br")]
        message = tidemill.query(totals(web, "/a.csv"), expect=1)
        assert "the server sends it encoded by `br`" in message
        web.rules = [answer(gzip.compress(small.getvalue()), "gzip")]
        message = tidemill.query(totals(web, "/a.parquet"), expect=1)
        assert "the server sends it encoded by `gzip`" in message


def test_hints_of_web_errors_are_about_the_web(tidemill):
    quick = ("--storage-option", "max_retries=0", "--storage-option", "timeout=1s")
    # A port that is taken, so that nobody else gets it, and where nobody listens.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        message = tidemill.query(f"SELECT * FROM '{url}/a.csv'", *quick, expect=1)
    assert "hint: " in message and "AWS" not in message and "bucket" not in message


def test_no_look_at_a_url_shows_its_secrets(tidemill):
    with Web({"/a.csv": b"n\n1\n", "/b.csv": b"n\n2\n"}) as web:
        host = web.url.removeprefix("http://")
        url = f"http://me:hush@{host}/a.csv?sig=hush"
        other = f"http://me:hush@{host}/b.csv?sig=hush"
        for words in (
            ("schema", url),
            ("schema", url, "--format", "json"),
            ("schema", url, other, "--check"),
            ("schema", url, other, "--check", "--format", "json"),
            ("head", url, other, "--format", "text"),
            ("head", url, "--format", "csv"),
            ("query", f"SELECT * FROM '{url}'", "--explain"),
            ("query", f"SELECT * FROM '{url}'", "--coverage", "c.json"),
            ("query", f"SELECT max(m) FROM '{url}'"),
            ("query", f"SELECT * FROM '{url}x'"),
            ("convert", url, other, "out/", "--format", "json"),
            ("convert", url, "one.json"),
            ("check", url),
            ("jobs", "--format", "json"),
            ("jobs",),
        ):
            status, _, err = both(tidemill.start(*words))
            assert status in (0, 1, 2) and "panic" not in err, words
        # Signed URLs are converted by what they are, not by what is shown of them.
        assert (tidemill.folder / "out" / "b.json").read_text() == '{"n":2}\n'
        assert (tidemill.folder / "one.json").read_text() == '{"n":1}\n'
        kept = [path for path in tidemill.folder.rglob("*") if path.is_file()]
        assert kept and not any(b"hush" in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    "option",
    [
        "hush",
        "=hush",
        "hush/hush+hush=",
        "Hushhush=",
        "timeout=hush",
        "allow_http=hush",
        "region=hush-hush",
        "endpoint_url=hush",
        "max_retries=hush",
        "acces_key=hush",
        "server_side_encryption=hush-hush",
        "checksum_algorithm=hush-hush",
        "proxy_url=hush-hush",
    ],
)
def test_the_value_of_a_mistaken_storage_option_is_nowhere(tidemill, option):
    for url in ("http://127.0.0.1:9/a.csv", "s3://logs/a.csv"):
        words = ["query", f"SELECT * FROM '{url}'", "--storage-option", option]
        words += ["--storage-option", "max_retries=0"] if "max_retries" not in option else []
        status, _, err = both(tidemill.start(*words))
        assert status in (1, 2) and "error: " in err
    kept = [path for path in tidemill.folder.rglob("*") if path.is_file()]
    assert not any(b"hush" in path.read_bytes().lower() for path in kept)


@pytest.mark.parametrize("stops", [(), ("--deadline", "20s")])
@pytest.mark.parametrize("bad", [Stall(), Hang(1000), Status(500)])
def test_an_object_that_does_not_answer_is_left_out_where_it_may_be(tidemill, bad, stops):
    text = b"n\n" + b"1\n" * 50_000
    names = ["a", "b", "c", "d"]
    with Web({f"/{name}.csv": text for name in names}) as web:
        web.rules.append(always(bad, when=lambda request: request.path == "/c.csv"))
        sql = f"SELECT sum(n) AS n FROM '{web.url}/{{a,b,c,d}}.csv'"
        # One file of four, and no split more.
        words = [
            "query",
            sql,
            "--drop",
            "26%",
            "--as-seen",
            "--no-intervals",
            *stops,
            "--coverage",
            "coverage.json",
        ]
        out = tidemill.start(*words, "--storage-option", "max_retries=1")
        said, told = out.communicate(timeout=600)
        assert out.returncode == 3, told
        assert said.split() == ["n", "150000"], told
        coverage = json.loads((tidemill.folder / "coverage.json").read_text())
        [file] = coverage["sampled"]["given_up_files"]
        assert file["path"].endswith("/c.csv"), file


def test_a_host_that_does_not_answer_is_told_of_meanwhile(tidemill):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections, and says nothing.
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with tidemill.start("head", f"http://{host}/a.csv") as waiting:
            try:
                said = waiting.stderr.readline()
                assert said == f"waiting for `{host}`, which has not answered yet\n"
            finally:
                waiting.send_signal(signal.SIGINT)


def test_a_host_that_refuses_is_told_of_before_it_is_given_up(tidemill):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host = f"127.0.0.1:{closed.getsockname()[1]}"
    # Nobody listens there now. The attempts take two seconds at least.
    said = tidemill.run(
        "head", f"http://{host}/a.csv", "--storage-option", "max_retries=6", expect=1
    )
    first, error, *_ = said.splitlines()
    assert first.startswith(f"waiting for `{host}`: ") and "refused" in first
    assert error.startswith(f"error: cannot read `http://{host}/a.csv`: Connection refused")
    assert error.endswith("after 6 retries")
