"""`s3://` sources: what is found, what is read, what a request costs, what goes wrong."""

import bz2
import gzip
import io
import json
import lzma
import signal

import pyarrow
import pyarrow.parquet
import pytest

from faulty import Cut, Deaf, Hang, Stall, Status, always, before, first

ROWS = 400_000


@pytest.fixture(scope="session")
def table():
    numbers = pyarrow.array(range(ROWS))
    users = pyarrow.array([f"user-{i % 7}" for i in range(ROWS)])
    pad = pyarrow.array([f"{i * 7919 % 1000003:020d}" for i in range(ROWS)])
    return pyarrow.table({"n": numbers, "user": users, "pad": pad})


@pytest.fixture(scope="session")
def csv(table):
    columns = (table["n"].to_pylist(), table["user"].to_pylist(), table["pad"].to_pylist())
    rows = "".join(f"{n},{user},{pad}\n" for n, user, pad in zip(*columns, strict=True))
    return ("n,user,pad\n" + rows).encode()


SUM = ROWS * (ROWS - 1) // 2
TOTALS = f"count(),sum(n)\n{ROWS},{SUM}\n"


# Blocks of which a file has many: what happens at the n-th request happens in the middle of it.
SMALL = "--read-block=256K"


def totals(name):
    return f"SELECT count(), sum(n) FROM 's3://logs/{name}'"


def put(s3, key, body):
    s3.put_object(Bucket="logs", Key=key, Body=body)


def test_every_format_is_read_by_ranges(s3, tidemill, table, csv):
    put(s3, "a.csv", csv)
    rows = zip(table["n"].to_pylist(), table["user"].to_pylist(), strict=True)
    put(s3, "a.json", "".join(json.dumps({"n": n, "user": u}) + "\n" for n, u in rows).encode())
    for name, options in {
        "a.parquet": {"row_group_size": 50_000},
        "one.parquet": {"row_group_size": ROWS, "compression": "zstd"},
    }.items():
        sink = io.BytesIO()
        pyarrow.parquet.write_table(table, sink, **options)
        put(s3, name, sink.getvalue())
    for name in ("a.csv", "a.json", "a.parquet", "one.parquet"):
        assert tidemill.query(totals(name)) == TOTALS, name
        by_user = f"SELECT user, count() AS c FROM 's3://logs/{name}' GROUP BY user ORDER BY user"
        lines = tidemill.query(by_user).splitlines()
        assert len(lines) == 8 and lines[1].startswith("user-0,"), name
    ordered = tidemill.query("SELECT n FROM 's3://logs/a.csv' ORDER BY n DESC LIMIT 2")
    assert ordered == f"n\n{ROWS - 1}\n{ROWS - 2}\n"


def test_glob_lists_objects_without_reading_them(s3, tidemill):
    for key in ("days/2.csv", "days/1.csv", "days/raw/3.txt", "other.csv"):
        put(s3, key, b"no,header\x00")
    listed = tidemill.query("FROM glob('s3://logs/days/*.csv')")
    assert listed == "file\ns3://logs/days/1.csv\ns3://logs/days/2.csv\n"
    listed = tidemill.query("SELECT count(*) FROM glob(['s3://logs/days', 's3://logs/none*'])")
    assert listed == "count(*)\n3\n"


def test_the_rows_are_those_of_the_same_file_on_disk(s3, tidemill, csv, tmp_path):
    put(s3, "a.csv", csv)
    (tmp_path / "a.csv").write_bytes(csv)
    sql = "SELECT user, count(), sum(n), min(pad), mean(n) AS mean FROM '{}' GROUP BY user"
    here = tidemill.query(sql.format("a.csv"))
    assert tidemill.query(sql.format("s3://logs/a.csv")) == here
    rows = "SELECT * FROM '{}' WHERE n % 1000 = 7"
    assert tidemill.query(rows.format("s3://logs/a.csv")) == tidemill.query(rows.format("a.csv"))


def test_compressed_objects_are_decompressed(s3, tidemill, csv):
    # At the least level, which takes the least time and gives the largest objects.
    for suffix, packed in {
        "gz": gzip.compress(csv, 1),
        "bz2": bz2.compress(csv, 1),
        "xz": lzma.compress(csv, preset=0),
    }.items():
        put(s3, f"a.csv.{suffix}", packed)
        assert tidemill.query(totals(f"a.csv.{suffix}")) == TOTALS, suffix


def test_quoted_line_ends_across_the_cuts_are_found(s3, tidemill):
    lines = (f'{n},"a\nb,{n}\n"\n' for n in range(200_000))
    put(s3, "quoted.csv", ("n,text\n" + "".join(lines)).encode())
    out = tidemill.query("SELECT count(), sum(n) FROM 's3://logs/quoted.csv'")
    assert out == f"count(),sum(n)\n200000,{200_000 * 199_999 // 2}\n"


def test_prefixes_patterns_and_folders_find_keys(s3, tidemill):
    for key in (
        "x/2026-11-01/a.csv",
        "x/2026-11-02/b.csv",
        "x/2026-12-01/c.csv",
        "x/2026-11-01/.hidden.csv",
        "x/2026-11-01/_tmp.csv",
        "x/_temporary/d.csv",
        "xy/e.csv",
    ):
        put(s3, key, f"key\n{key}\n".encode())
    put(s3, "x/", b"")  # As the console makes a folder.
    put(s3, "x/2026-11-02/", b"")

    def keys(url):
        return tidemill.query(f"SELECT key FROM '{url}'").split()[1:]

    own = ["x/2026-11-01/_tmp.csv"]
    november = ["x/2026-11-01/a.csv", "x/2026-11-02/b.csv"]
    december = ["x/2026-12-01/c.csv"]
    for url, expected in {
        "s3://logs/x": own + november + december,
        "s3://logs/x/": own + november + december,
        "s3://logs/x/2026-11-*/[ab].csv": november,
        "s3://logs/x/**/?.csv": november[:1] + november[1:] + december + ["x/_temporary/d.csv"],
        "s3://logs/x/{2026-11-02,2026-12-01}": november[1:] + december,
        "s3://logs/x/2026-11-01/_tmp.csv": own,
        "s3a://logs/xy/e.csv": ["xy/e.csv"],
    }.items():
        assert keys(url) == expected, url


def test_a_listing_of_many_pages_is_read_to_its_end(s3, proxy, through_proxy):
    forward = proxy.content

    def in_pages(handler, request, sent):
        # A page is as long as the server likes.
        if "list-type" in request.query:
            handler.path += "&max-keys=100"
        return forward(handler, request, sent)

    proxy.content = in_pages
    for number in range(301):
        put(s3, f"many/{number:05}.json", b'{"n":1}\n')
    assert through_proxy.query("SELECT sum(n) AS n FROM 's3://logs/many/*.json'") == "n\n301\n"
    assert len([r for r in proxy.requests if "continuation-token" in r.query]) == 3


@pytest.mark.parametrize(
    "page, said",
    [
        (b"<html><body>Sign in</body></html>", "the answer is no listing"),
        (b"", "the answer is no listing"),
        (
            b"<ListBucketResult><IsTruncated>true</IsTruncated>"
            b"<NextContinuationToken>again</NextContinuationToken></ListBucketResult>",
            "a page that it gave before",
        ),
        (b" " * (17 << 20), "is not allowed"),
    ],
)
def test_what_is_no_listing_is_said_to_be_none(proxy, through_proxy, page, said):
    answer = Status(200, body=page, headers={"Content-Type": "text/html"})
    proxy.rules.append(always(answer, when=lambda request: "list-type" in request.query))
    asked = ["query", "SELECT * FROM 's3://logs/x/*.csv'"]
    message = through_proxy.run(*asked, *through_proxy.quick, expect=1)
    assert said in message and "s3://logs/x/" in message
    assert "no such" not in message
    assert len(proxy.requests) < 5


@pytest.mark.parametrize(
    "key",
    [
        "a b+c.csv",
        "percent%20and%.csv",
        "ünïcødé-日本.csv",
        "q?u[e]s{t,i}o*n.csv",
        "hash#and&amp;=;:@,$!'().csv",
        'quote"back\\slash^`|~<>.csv',
        "d=New%20York/%empty=x.csv",
    ],
)
def test_keys_with_odd_characters_are_read(s3, tidemill, key):
    put(s3, f"odd/{key}", b"n\n7\n")
    name = key.replace("'", "''")
    assert tidemill.query(f"SELECT n FROM 's3://logs/odd/{name}'") == "n\n7\n"
    assert tidemill.query("SELECT n FROM 's3://logs/odd'").split()[:2] in (["n", "7"], ["n,d"])


def test_key_value_folders_become_columns(s3, tidemill):
    put(s3, "h/day=2026-11-01/state=New%20York/a.csv", b"n\n1\n")
    put(s3, "h/day=2026-11-02/state=__HIVE_DEFAULT_PARTITION__/a.csv", b"n\n2\n")
    out = tidemill.query("SELECT * FROM 's3://logs/h' ORDER BY n")
    assert out == "n,day,state\n1,2026-11-01,New York\n2,2026-11-02,\n"


def test_small_objects_cost_one_request_each_and_no_head(s3, proxy, through_proxy):
    for number in range(5):
        put(s3, f"small/{number}.csv", b"n\n1\n")
    assert through_proxy.query("SELECT sum(n) AS n FROM 's3://logs/small/*.csv'") == "n\n5\n"
    assert len(proxy.reads()) == 5
    # The pattern itself might have been a key.
    assert [r.path for r in proxy.requests if r.method == "HEAD"] == ["/logs/small/*.csv"]


@pytest.mark.parametrize(
    "answer", [None, Status(400, "InvalidArgument"), Status(416), Status(503), Cut(1000)]
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "empty.csv"])
def test_what_is_read_first_comes_with_what_an_object_is(
    s3, proxy, through_proxy, csv, table, name, answer
):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink)
    content = {
        "a.csv": csv,
        "a.csv.gz": gzip.compress(csv),
        "a.parquet": sink.getvalue(),
        "empty.csv": b"",
    }[name]
    put(s3, name, content)
    if answer is not None:
        proxy.rules = [first(1, answer)]
    if name == "empty.csv":
        assert "is empty" in through_proxy.query(totals(name), expect=2)
        return
    assert through_proxy.query(totals(name)) == TOTALS
    heads = len([r for r in proxy.requests if r.method == "HEAD"])
    if isinstance(answer, Cut):
        # It may be gone on with.
        assert heads <= 1
    else:
        # What is tried again needs no other question.
        assert heads == (answer is not None and answer.status != 503)
    if answer is None:
        spans = [r.headers["range"].removeprefix("bytes=").split("-") for r in proxy.reads()]
        read = sum(int(last) - int(first) + 1 if first else int(last) for first, last in spans)
        # The sample is not asked for twice, nor is the end.
        assert read <= max(len(content), 1 << 20)


@pytest.mark.parametrize("status, code", [(400, "ExpiredToken"), (403, "SignatureDoesNotMatch")])
def test_why_a_server_refuses_is_told_though_head_has_no_body(
    s3, proxy, through_proxy, status, code
):
    put(s3, "a.csv", b"n\n1\n")
    proxy.rules = [always(Status(status, code, "No."), lambda request: True)]
    for words in (
        ("query", "SELECT * FROM 's3://logs/a.csv'"),
        ("cat", "s3://logs/a.csv"),
    ):
        assert code in through_proxy.run(*words, expect=1), words


def test_a_folder_may_be_called_as_a_file(s3, tidemill):
    for number in range(3):
        put(s3, f"days.csv/part-{number}.csv", f"n\n{number}\n".encode())
    assert tidemill.query("SELECT sum(n) AS n FROM 's3://logs/days.csv'") == "n\n3\n"
    error = tidemill.query("SELECT * FROM 's3://logs/day.csv'", expect=1)
    assert "`s3://logs/day.csv` is not there" in error or "no such" in error, error


def test_objects_that_differ_are_unified_and_small_ones_are_still_asked_for_once(
    s3, proxy, through_proxy
):
    for number in range(150):
        extra = (",city", ",paris") if number == 140 else ("", "")
        put(s3, f"mixed/{number:03}.csv", f"n{extra[0]}\n1{extra[1]}\n".encode())
    sql = "SELECT count() AS files, sum(n) AS n, max(city) AS city FROM 's3://logs/mixed/*.csv'"
    assert through_proxy.query(sql) == "files,n,city\n150,150,paris\n"
    assert len(proxy.reads()) == 150


def test_a_header_costs_one_small_request_of_a_large_object(s3, proxy, through_proxy):
    rows = [(str(n), f"{n:020d}") for n in range(20_000)]
    usual = "n,pad\n" + "".join(f"{n},{pad}\n" for n, pad in rows)
    turned = "pad,n\n" + "".join(f"{pad},{n}\n" for n, pad in rows)
    for number in range(70):
        put(s3, f"large/{number:02}.csv", (turned if number == 69 else usual).encode())

    def sizes():
        spans = (r.headers["range"].removeprefix("bytes=").split("-") for r in proxy.reads())
        return [int(last) - int(first) + 1 for first, last in spans]

    sql = "SELECT sum(n) AS n, count(DISTINCT pad) AS pads FROM 's3://logs/large/*.csv'"
    assert through_proxy.query(sql) == f"n,pads\n{70 * 19_999 * 10_000},20000\n"
    # That of the first may be in what was read to tell how it is written.
    assert sizes().count(16 << 10) in (69, 70)
    proxy.requests.clear()
    # Nothing but the first one is looked at before its turn comes.
    error = through_proxy.query(sql, "--layouts", "same", expect=1)
    assert "69.csv` does not go with `s3://logs/large/00.csv`: its header is another" in error
    assert 16 << 10 not in sizes()


def test_only_wanted_columns_of_parquet_are_asked_for(s3, proxy, through_proxy, table):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, row_group_size=100_000, compression="none")
    put(s3, "a.parquet", sink.getvalue())
    assert through_proxy.query(totals("a.parquet")) == TOTALS
    spans = [r.headers["range"].removeprefix("bytes=").split("-") for r in proxy.reads()]
    # What it is is asked for together with its end.
    assert [first for first, _ in spans].index("") == 0
    read = sum(int(last) - int(first) + 1 if first else int(last) for first, last in spans)
    assert all(r.method == "GET" for r in proxy.requests)
    assert read < len(sink.getvalue()) / 2
    assert len(proxy.reads()) <= 1 + ROWS // 100_000


def test_storage_options_say_what_the_environment_does_not(s3, tidemill, moto, tmp_path):
    s3.put_object(Bucket="logs", Key="a.csv", Body=b"n\n3\n", ACL="public-read")
    environment = [name for name in tidemill.environment if name.startswith("AWS_")]
    flags = [
        f"--storage-option={option}"
        for option in (
            f"endpoint_url={moto}",
            "aws_allow_http=true",
            "access_key_id=x",
            "secret_access_key=hush",
        )
    ]
    sql = "SELECT n FROM 's3://logs/a.csv'"
    for name in environment:
        del tidemill.environment[name]
    assert tidemill.query(sql, *flags) == "n\n3\n"
    job = tmp_path / "job.toml"
    job.write_text(
        "[source]\nurl = 's3://logs/a.csv'\n[source.storage_options]\n"
        f"endpoint_url = '{moto}'\nallow_http = true\nskip_signature = true\n"
    )
    assert tidemill.run("run", str(job)) == "n\n3\n"
    assert "hush" not in tidemill.query(sql, *flags, "--explain")
    message = tidemill.query(sql, "--storage-option=regoin=x", expect=2)
    assert "unknown storage option `regoin`; did you mean `region`?" in message
    job.write_text("source.url = 's3://logs/a.csv'\n[source.storage_options]\nendpiont = 'x'\n")
    message = tidemill.run("run", str(job), expect=2)
    assert "job.toml:3" in message and "did you mean `endpoint`" in message


def test_what_is_missing_is_answered_with_what_is_near(s3, tidemill):
    put(s3, "logs/flights.csv", b"n\n1\n")
    for url, expected in {
        "s3://logs/logs/fligths.csv": "did you mean `s3://logs/logs/flights.csv`?",
        "s3://logs/logz/flights.csv": "no such file",
        "s3://logs/logs/*.json": "no key matches the pattern; looked in `s3://logs/logs`",
        "s3://lugs/a.csv": "there is no bucket `lugs`",
        "s3://logs/lo*": "matches folders only",
    }.items():
        message = tidemill.query(f"SELECT * FROM '{url}'", expect=2 if url.endswith("lo*") else 1)
        assert expected in message, url


def test_without_credentials_it_says_so(s3, tidemill):
    put(s3, "a.csv", b"n\n1\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del tidemill.environment[name]
    # A metadata service that refuses the connection.
    message = tidemill.query(
        "SELECT * FROM 's3://logs/a.csv'",
        "--storage-option=metadata_endpoint=http://127.0.0.1:1",
        "--storage-option=max_retries=0",
        expect=1,
    )
    assert "there are no credentials" in message and "AWS_SKIP_SIGNATURE" in message


# Faults


def test_a_busy_server_is_asked_again(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    proxy.rules = [
        first(2, Status(503)),
        first(1, Status(500, "InternalError"), lambda r: "list-type" in r.query),
    ]
    assert through_proxy.query(totals("*.csv")) == TOTALS


def test_a_server_that_stays_busy_ends_the_run_with_what_to_do(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    proxy.rules = [always(Status(503), lambda r: r.is_read and r.number > 6)]
    message = through_proxy.query(totals("a.csv"), SMALL, *through_proxy.quick, expect=1)
    assert "cannot read `s3://logs/a.csv` at byte" in message
    assert "the server answered 503 SlowDown (Please reduce your request rate), after 2" in message
    assert "max_retries" in message


@pytest.mark.parametrize("after", [0, 1, 70_000])
def test_a_body_that_is_cut_off_is_gone_on_with(s3, proxy, through_proxy, csv, after):
    put(s3, "a.csv", csv)
    proxy.rules = [first(3, Cut(after))]
    assert through_proxy.query(totals("a.csv")) == TOTALS


def test_bodies_that_are_always_cut_off_still_arrive_or_fail(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    proxy.rules = [always(Cut(300_000))]
    assert through_proxy.query(totals("a.csv")) == TOTALS
    proxy.rules = [always(Cut(0))]
    message = through_proxy.query(totals("a.csv"), *through_proxy.quick, expect=1)
    assert "cannot read `s3://logs/a.csv` at byte" in message


def test_a_stalled_answer_is_given_up_and_asked_for_again(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    proxy.rules = [first(2, Stall())]
    assert through_proxy.query(totals("a.csv"), "--storage-option=timeout=1s") == TOTALS
    assert proxy.stalled.is_set()


def test_an_interrupt_ends_a_run_that_waits_for_the_network(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    proxy.rules = [always(Stall())]
    process = through_proxy.start("query", totals("a.csv"))
    assert proxy.stalled.wait(600)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_an_object_replaced_while_it_is_read_is_an_error(
    s3, proxy, through_proxy, csv, table, name, number
):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, row_group_size=50_000)
    bodies = {"a.csv": csv, "a.csv.gz": gzip.compress(csv, 0), "a.parquet": sink.getvalue()}
    body = bodies[name]
    put(s3, name, body)
    # Of the same length, so that only its version tells.
    other = body[:-2] + b"8\n" if name == "a.csv" else bytes([*body[:-1], body[-1] ^ 1])
    proxy.rules = [before(number, lambda: put(s3, name, other))]
    message = through_proxy.query(totals(name), "--threads=1", SMALL, expect=1)
    assert f"`s3://logs/{name}` changed while it was read: it has been replaced" in message


def test_an_object_removed_or_cut_while_it_is_read_is_an_error(s3, proxy, through_proxy, csv):
    for act, expected in (
        (lambda: s3.delete_object(Bucket="logs", Key="a.csv"), "it has been removed"),
        (lambda: put(s3, "a.csv", csv[:1000]), "it has"),
    ):
        put(s3, "a.csv", csv)
        proxy.rules = [before(3, act)]
        message = through_proxy.query(totals("a.csv"), SMALL, expect=1)
        assert "changed while it was read" in message and expected in message


def test_a_server_that_ignores_conditions_is_found_out(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    forward = proxy.content

    def deaf(handler, request, sent):
        del handler.headers["if-match"]
        return forward(handler, request, sent)

    proxy.content = deaf
    proxy.rules = [before(3, lambda: put(s3, "a.csv", csv[:-2] + b"8\n"))]
    message = through_proxy.query(totals("a.csv"), SMALL, expect=1)
    assert "changed while it was read: it has been replaced" in message


def test_a_refusal_names_what_is_needed_and_no_secret(s3, proxy, through_proxy, csv):
    put(s3, "a.csv", csv)
    for status, code, expected in (
        (403, "AccessDenied", "s3:GetObject"),
        (403, "SignatureDoesNotMatch", "not valid there"),
        (403, "ExpiredToken", "have expired"),
        (400, "AuthorizationHeaderMalformed", "another region"),
        (301, "PermanentRedirect", "another region"),
    ):
        proxy.rules = [always(Status(status, code))]
        message = through_proxy.query(totals("a.csv"), expect=1)
        assert expected in message, message
        assert status == 301 or f"the server answered {status} {code}" in message


def test_reading_ahead_is_set_everywhere_by_the_same_names(s3, proxy, through_proxy, csv, tmp_path):
    put(s3, "a.csv", csv)

    def largest(*arguments):
        del proxy.requests[:]
        assert through_proxy.run(*arguments) == TOTALS
        reads = [r.headers["range"] for r in proxy.requests if r.is_read]
        ranges = [read.removeprefix("bytes=").split("-") for read in reads]
        # The first request is of the sample.
        return max(int(end) - int(start) + 1 for start, end in ranges[1:])

    assert largest("query", totals("a.csv"), "--read-block=512K") == 512 << 10
    assert largest("query", totals("a.csv"), "--storage-option=read_block=512K") == 512 << 10
    # Never more than a 16th of the memory.
    assert largest("query", totals("a.csv"), "--read-memory=4M") == 256 << 10
    job = tmp_path / "job.toml"
    job.write_text(
        "[source]\nurl = 's3://logs/a.csv'\nread_block = '512K'\n"
        "[map]\nsql = 'SELECT * FROM source'\n"
        "[tables]\n'count()' = 'count()'\n'sum(n)' = 'sum(n)'\n"
    )
    assert largest("run", str(job)) == 512 << 10
    message = through_proxy.query(totals("a.csv"), "--read-block=1K", expect=2)
    assert "`read_block` is 1 KiB" in message and "the least is 64 KiB" in message
    message = through_proxy.query(totals("a.csv"), "--read-window=1M", expect=2)
    assert "less than a `read_block` of 8 MiB" in message


def some(s3, names, rows=12_000):
    """Objects of 200 kB with a header each."""
    body = "n,pad\n" + "".join(f"{n},{n * 7919 % 1_000_003:010d}\n" for n in range(rows))
    for name in names:
        put(s3, name, body.encode())


def given_up(found):
    return {
        file["path"].rsplit("/", 1)[-1]: file["reason"]
        for file in found["sampled"]["given_up_files"]
    }


def part_of(tidemill, *options, files="*.csv"):
    """What the coverage says of a count over all objects that may leave some out."""
    sql = f"SELECT count() AS n FROM 's3://logs/{files}'"
    process = tidemill.start("query", sql, *options, "--coverage", "coverage.json")
    _, err = process.communicate(timeout=600)
    assert process.returncode in (0, 3), err
    return json.loads((tidemill.folder / "coverage.json").read_text())


def test_a_connection_that_went_deaf_loses_no_other_object(s3, through_proxy, proxy):
    some(s3, [f"{n:02}.csv" for n in range(16)] + ["90.csv", "91.csv"])

    # Each answer is whole, and the connection is kept for the next request, which nobody hears. All
    # later reads of these objects hang.
    def is_bad(request):
        return request.is_read and request.path in ("/logs/90.csv", "/logs/91.csv")

    proxy.rules = [first(2, Deaf(), is_bad), always(Hang(1000), is_bad)]
    # Ten times what it takes: the deadline is what ends the others.
    found = part_of(through_proxy, "--deadline", "10s")
    assert set(given_up(found)) <= {"90.csv", "91.csv"}, found["sampled"]
    # All splits but theirs.
    assert found["rows"]["done"] >= 16 * 12_000


@pytest.mark.parametrize(
    "fault, said",
    [(Status(500, "InternalError"), "status 500"), (Cut(1), "cut off after")],
)
def test_what_a_server_answers_is_said_of_what_was_given_up(s3, through_proxy, proxy, fault, said):
    some(s3, [f"{n:02}.csv" for n in range(16)] + ["90.csv"])
    proxy.rules = [always(fault, lambda r: r.is_read and r.path == "/logs/90.csv")]
    patient = ("--storage-option", "max_retries=1000", "--storage-option", "retry_timeout=1h")
    found = part_of(through_proxy, "--deadline", "4s", *patient)
    reasons = given_up(found)
    assert list(reasons) == ["90.csv"] and said in reasons["90.csv"], reasons


def records(count):
    return [f'{{"n":{n},"pad":"{n * 7919 % 1_000_003:090d}"}}' for n in range(count)]


def test_json_that_hangs_is_not_asked_whether_it_is_an_array(s3, through_proxy, proxy):
    lines = ("\n".join(records(20_000)) + "\n").encode()
    for name in [f"{n:02}.json" for n in range(16)]:
        put(s3, name, lines)
    proxy.rules = [always(Stall(), lambda r: r.is_read and r.path == "/logs/05.json")]
    found = part_of(through_proxy, "--deadline", "6s", files="*.json")
    assert list(given_up(found)) == ["05.json"], found["sampled"]
    assert found["rows"]["done"] == 15 * 20_000


def test_an_array_among_lines_that_was_cut_before_it_was_looked_at_is_found_out(
    s3, through_proxy, proxy
):
    lines = ("\n".join(records(20_000)) + "\n").encode()
    for name in [f"{n:02}.json" for n in range(16)]:
        put(s3, name, lines)
    # In one line, of which no split but the first would have a record.
    put(s3, "07.json", ("[" + ",".join(records(20_000)) + "]").encode())
    found = part_of(through_proxy, "--drop", "20%", files="*.json")
    reasons = given_up(found)
    assert list(reasons) == ["07.json"] and "are not one per line" in reasons["07.json"], found[
        "sampled"
    ]
    assert part_of(through_proxy, files="*.json")["rows"]["done"] == 16 * 20_000
