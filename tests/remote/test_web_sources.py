"""`http://` sources: with ranges, without, and from servers that misbehave."""

import gzip
import io
import signal

import pyarrow
import pyarrow.parquet
import pytest

from faulty import Cut, Stall, Status, Web, always, before, first

ROWS = 250_000
CSV = ("n,pad\n" + "".join(f"{n},{n * 7919 % 1000003:020d}\n" for n in range(ROWS))).encode()
TOTALS = f"count(),sum(n)\n{ROWS},{ROWS * (ROWS - 1) // 2}\n"


def totals(web, path):
    return f"SELECT count(), sum(n) FROM '{web.url}{path}'"


def parquet():
    sink = io.BytesIO()
    table = pyarrow.table({"n": range(ROWS), "pad": [str(n) for n in range(ROWS)]})
    pyarrow.parquet.write_table(table, sink, row_group_size=50_000)
    return sink.getvalue()


@pytest.fixture
def web():
    with Web({"/a.csv": CSV, "/a.csv.gz": gzip.compress(CSV), "/a.parquet": parquet()}) as web:
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
    files = {"/a.csv": CSV, "/a.csv.gz": gzip.compress(CSV), "/small.csv": b"n\n1\n2\n"}
    with Web(files, **lacks) as web:
        assert tidemill.query(totals(web, "/a.csv")) == TOTALS
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
    message = tidemill.query(totals(web, "/a.csv"), "--storage-option=max_retries=2", expect=1)
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
        message = tidemill.query(totals(web, "/a.csv"), "--threads=1", expect=1)
        assert f"`{web.url}/a.csv` changed while it was read: it has been replaced" in message


def test_a_server_that_stops_giving_ranges_is_found_out(web, tidemill):
    web.rules = [before(2, lambda: setattr(web, "ranges", False))]
    message = tidemill.query(totals(web, "/a.csv"), expect=1)
    assert "answered with the whole file" in message


@pytest.mark.parametrize("lie", ["bytes 5-9/{size}", "bytes 0-9/7", "nonsense"])
def test_a_server_that_lies_about_its_ranges_is_found_out(web, tidemill, lie):
    headers = {"Content-Range": lie.format(size=len(CSV)), "ETag": '"v1"'}
    answer = Status(206, body=b"0123456789", headers=headers)
    web.rules = [always(answer, lambda r: len(web.requests) > 1)]
    message = tidemill.query(totals(web, "/a.csv"), expect=1)
    assert "cannot read" in message or "changed while it was read" in message
