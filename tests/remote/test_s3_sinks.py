"""`s3://` sinks: all objects of a run or none, whatever happens to it."""

import pathlib
import signal

import pytest

from faulty import After, Cut, Lost, Stall, Status, always, before, first

ROWS = 700_000
PART = 8 << 20


@pytest.fixture(scope="session")
def rows():
    """Some 21 MB: three parts."""
    return ("k,n\n" + "".join(f"{n % 3},{n:025d}\n" for n in range(ROWS))).encode()


@pytest.fixture(autouse=True)
def numbers(tmp_path, rows):
    (tmp_path / "n.csv").write_bytes(rows)


LARGE = "SELECT * FROM 'n.csv'"
SMALL = "SELECT k, count() AS c FROM 'n.csv' GROUP BY k ORDER BY k"


def objects(s3, prefix=""):
    found = s3.list_objects_v2(Bucket="logs", Prefix=prefix).get("Contents", [])
    return [item["Key"] for item in found]


def uploads(s3):
    return s3.list_multipart_uploads(Bucket="logs").get("Uploads", [])


def body(s3, key):
    return s3.get_object(Bucket="logs", Key=key)["Body"].read()


def remains(tidemill):
    folder = pathlib.Path(tidemill.environment["TIDEMILL_HOME"]) / "uploads"
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def is_clean(s3, tidemill, expected=()):
    assert objects(s3) == list(expected)
    assert uploads(s3) == []
    assert remains(tidemill) == []


def completes(request):
    return request.method == "POST" and "uploadId" in request.query


def sends_part(request):
    return request.method == "PUT" and "partNumber" in request.query


def puts(request):
    return request.method == "PUT" and "partNumber" not in request.query


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
@pytest.mark.parametrize("sql", [SMALL, LARGE])
def test_what_is_written_is_what_a_file_would_be(s3, tidemill, sql, suffix):
    tidemill.query(sql, "--output", f"here.{suffix}")
    tidemill.query(sql, "--output", f"s3://logs/out/there.{suffix}")
    assert body(s3, f"out/there.{suffix}") == (tidemill.folder / f"here.{suffix}").read_bytes()
    is_clean(s3, tidemill, [f"out/there.{suffix}"])


def test_one_object_per_value(s3, tidemill):
    tidemill.query(LARGE, "--output", "here/k={k}/x.csv")
    tidemill.query(LARGE, "--output", "s3://logs/k={k}/x.csv")
    keys = [f"k={k}/x.csv" for k in range(3)]
    for key in keys:
        assert body(s3, key) == (tidemill.folder / "here" / key).read_bytes()
    is_clean(s3, tidemill, keys)
    totals = tidemill.query("SELECT k, count() AS c FROM 's3://logs/' GROUP BY k ORDER BY k")
    assert totals == tidemill.query(SMALL)


def test_values_of_every_kind_are_keys_that_read_back(s3, tidemill):
    values = ["New York", "a/b", "..", "100%", "", "é", "x" * 300]
    rows = "".join(f'{{"v": "{value}", "n": 1}}\n' for value in values) + '{"v": null, "n": 1}\n'
    (tidemill.folder / "v.json").write_text(rows)
    tidemill.query("SELECT * FROM 'v.json'", "--output", "s3://logs/v={v}/n.csv")
    assert len(objects(s3)) == 8
    out = tidemill.query("SELECT sum(n) AS n FROM 's3://logs/v=*/n.csv'")
    assert out == "n\n8\n"


def test_a_job_file_names_the_bucket_and_its_options(s3, tidemill, moto):
    job = tidemill.folder / "job.toml"
    job.write_text(
        "source.url = 'n.csv'\ntables = { by = ['k'], c = 'count()' }\n"
        "[sink]\nurl = 's3://logs/{k}.csv'\n"
        f"[sink.storage_options]\nendpoint_url = '{moto}'\nallow_http = true\n"
    )
    del tidemill.environment["AWS_ENDPOINT_URL"]
    assert "one csv file for each `k`, `s3://logs/{k}.csv`" in tidemill.run(
        "run", str(job), "--dry-run"
    )
    tidemill.run("run", str(job))
    is_clean(s3, tidemill, ["0.csv", "1.csv", "2.csv"])


def test_an_existing_object_stays_unless_told_otherwise(s3, tidemill):
    s3.put_object(Bucket="logs", Key="1.csv", Body=b"mine")
    for sql, url in ((SMALL, "s3://logs/1.csv"), (LARGE, "s3://logs/{k}.csv")):
        message = tidemill.query(sql, "--output", url, expect=1)
        assert "`s3://logs/1.csv` exists already" in message
        assert body(s3, "1.csv") == b"mine"
        is_clean(s3, tidemill, ["1.csv"])
    tidemill.query(LARGE, "--output", "s3://logs/{k}.csv", "--overwrite")
    assert body(s3, "1.csv") != b"mine"
    is_clean(s3, tidemill, ["0.csv", "1.csv", "2.csv"])


@pytest.mark.parametrize("sql", [SMALL, LARGE])
def test_a_name_taken_at_the_last_moment_is_not_taken_over(s3, proxy, through_proxy, sql):
    def take():
        s3.put_object(Bucket="logs", Key="a.csv", Body=b"theirs")

    proxy.rules = [before(0, take, lambda r: completes(r) or puts(r))]
    message = through_proxy.query(sql, "--output", "s3://logs/a.csv", expect=1)
    assert "`s3://logs/a.csv` exists already" in message
    assert body(s3, "a.csv") == b"theirs"
    is_clean(s3, through_proxy, ["a.csv"])


@pytest.mark.parametrize("fault", [Status(403, "AccessDenied"), Stall()])
def test_an_object_of_the_same_shape_is_not_taken_for_ours(s3, proxy, through_proxy, fault):
    through_proxy.query(LARGE, "--output", "s3://logs/a.csv")
    old = body(s3, "a.csv")
    path = through_proxy.folder / "n.csv"
    path.write_text(
        path.read_text().replace("0000000000000000000000007", "0000000000000000000000008")
    )
    proxy.rules = [always(fault, completes)]
    process = through_proxy.start("query", LARGE, "--output", "s3://logs/a.csv", "--overwrite")
    if isinstance(fault, Stall):
        assert proxy.stalled.wait(600)
        process.kill()
    process.communicate()
    assert process.returncode != 0
    assert body(s3, "a.csv") == old
    proxy.rules = []
    through_proxy.query(SMALL, "--output", "s3://logs/z.csv")
    is_clean(s3, through_proxy, ["a.csv", "z.csv"])
    new = body(s3, "a.csv")
    # A commit that could be taken back was, one that was cut off is finished.
    assert new == (path.read_bytes() if isinstance(fault, Stall) else old)


def test_a_commit_that_meets_anothers_object_is_taken_back(s3, proxy, through_proxy):
    def take():
        s3.put_object(Bucket="logs", Key="2.csv", Body=b"theirs")

    proxy.rules = [before(0, take, lambda r: puts(r) and r.path == "/logs/2.csv")]
    message = through_proxy.query(SMALL, "--output", "s3://logs/{k}.csv", expect=1)
    assert "`s3://logs/2.csv` exists already" in message
    assert body(s3, "2.csv") == b"theirs"
    is_clean(s3, through_proxy, ["2.csv"])


def test_files_are_converted_into_a_bucket_by_several_threads(s3, tidemill):
    folder = tidemill.folder / "in"
    (folder / "deep").mkdir(parents=True)
    names = [f"{n}.csv" for n in range(20)] + ["deep/0.csv", "deep/large.csv"]
    for name in names:
        rows = ROWS if "large" in name else 10
        (folder / name).write_text("n\n" + "".join(f"{n:025d}\n" for n in range(rows)))
    keys = sorted("out/" + name.replace(".csv", ".json") for name in names)
    for overwrite in ((), ("--overwrite",)):
        words = ("--format", "json", "--threads", "4", *overwrite)
        tidemill.run("convert", "in", "s3://logs/out/", *words)
        is_clean(s3, tidemill, keys)
    assert len(body(s3, "out/deep/large.json").splitlines()) == ROWS
    message = tidemill.run("convert", "in", "s3://logs/out/", *words[:4], expect=1)
    assert "exists already" in message
    is_clean(s3, tidemill, keys)


def test_a_failed_commit_waits_for_what_is_under_way_before_it_takes_back(s3, proxy, through_proxy):
    refused = lambda r: puts(r) and r.path == "/logs/2.csv"  # noqa: E731
    late = lambda r: puts(r) and r.path != "/logs/2.csv"  # noqa: E731
    # The others are carried out once the client knows of the failure.
    proxy.rules = [always(Status(403, "AccessDenied"), refused), always(After(refused), late)]
    message = through_proxy.query(SMALL, "--output", "s3://logs/{k}.csv", expect=1)
    assert "cannot write `s3://logs/2.csv`" in message
    is_clean(s3, through_proxy)
    order = [
        r for r in proxy.answered if late(r) or (r.method == "HEAD" and r.path != "/logs/2.csv")
    ]
    # The look at the names before the commit, the two puts, the look at what is to be taken back.
    assert [r.method for r in order] == ["HEAD", "HEAD", "PUT", "PUT", "HEAD", "HEAD"]


def test_the_very_same_object_of_somebody_else_is_not_taken_back(s3, proxy, through_proxy):
    # Two objects of several parts.
    sql = "SELECT k % 2 AS h, n, n AS m FROM 'n.csv'"
    through_proxy.query(sql, "--output", "here/{h}.csv")
    content = (through_proxy.folder / "here" / "0.csv").read_bytes()
    assert len(content) > PART

    def write():
        upload = s3.create_multipart_upload(Bucket="logs", Key="0.csv")["UploadId"]
        parts = []
        for number, start in enumerate(range(0, len(content), PART), 1):
            part = s3.upload_part(
                Bucket="logs",
                Key="0.csv",
                UploadId=upload,
                PartNumber=number,
                Body=content[start : start + PART],
            )
            parts.append({"PartNumber": number, "ETag": part["ETag"]})
        s3.complete_multipart_upload(
            Bucket="logs", Key="0.csv", UploadId=upload, MultipartUpload={"Parts": parts}
        )

    theirs = lambda r: completes(r) and r.path == "/logs/0.csv"  # noqa: E731
    ours = lambda r: completes(r) and r.path == "/logs/1.csv"  # noqa: E731
    aborts = lambda r: r.method == "DELETE" and r.path == "/logs/0.csv"  # noqa: E731
    proxy.rules = [
        before(0, write, theirs),
        always(After(aborts, Status(403, "AccessDenied")), ours),
    ]
    message = through_proxy.query(sql, "--output", "s3://logs/{h}.csv", expect=1)
    assert "cannot write `s3://logs/1.csv`" in message
    assert body(s3, "0.csv") == content
    is_clean(s3, through_proxy, ["0.csv"])


def test_an_object_that_replaced_ours_is_not_taken_back(s3, proxy, through_proxy):
    put = lambda key: lambda r: puts(r) and r.path == key  # noqa: E731

    def replace():
        size = len(body(s3, "0.csv"))
        s3.put_object(Bucket="logs", Key="0.csv", Body=b"?" * size)

    seen = []

    def rule(request):
        if put("/logs/2.csv")(request):
            return After(put("/logs/1.csv"), Status(403, "AccessDenied"))
        if put("/logs/1.csv")(request):
            return After(put("/logs/0.csv"))
        if request.method == "HEAD" and any(map(put("/logs/2.csv"), proxy.answered)) and not seen:
            seen.append(1)
            replace()
        return None

    proxy.rules = [rule]
    through_proxy.query(SMALL, "--output", "s3://logs/{k}.csv", expect=1)
    assert seen and set(body(s3, "0.csv")) == {ord("?")}
    is_clean(s3, through_proxy, ["0.csv"])


def test_what_is_kept_of_a_run_is_for_nobody_else(s3, proxy, through_proxy):
    proxy.rules = [always(Stall(), puts)]
    process = through_proxy.start("query", SMALL, "--output", "s3://logs/a.csv")
    assert proxy.stalled.wait(600)
    process.kill()
    process.communicate()
    home = pathlib.Path(through_proxy.environment["TIDEMILL_HOME"])
    folders = [home, home / "uploads", *(home / "uploads").iterdir()]
    assert len(folders) == 3
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in folders)


# Faults


def test_a_busy_server_is_asked_again(s3, proxy, through_proxy):
    proxy.rules = [
        first(2, Status(503), sends_part),
        first(1, Status(503), completes),
        first(1, Status(500), lambda r: r.method == "POST" and "uploads" in r.query),
        first(1, Status(503), lambda r: r.method == "HEAD"),
        first(1, Cut(0), sends_part),
    ]
    through_proxy.query(LARGE, "--output", "s3://logs/a.csv")
    assert len(body(s3, "a.csv")) == (through_proxy.folder / "n.csv").stat().st_size
    is_clean(s3, through_proxy, ["a.csv"])


@pytest.mark.parametrize(
    ("fault", "when", "sql"),
    [(Lost(), puts, SMALL), (Lost(), completes, LARGE), (Cut(0), completes, LARGE)],
)
def test_what_was_done_without_an_answer_is_known_for_ours(
    s3, proxy, through_proxy, fault, when, sql
):
    # The object is there, the answer is lost, and a second attempt is refused.
    proxy.rules = [first(1, fault, when)]
    through_proxy.query(sql, "--output", "s3://logs/a.csv")
    is_clean(s3, through_proxy, ["a.csv"])


@pytest.mark.parametrize("when", [sends_part, completes])
def test_a_server_that_refuses_leaves_nothing(s3, proxy, through_proxy, when):
    proxy.rules = [always(Status(403, "AccessDenied"), when)]
    message = through_proxy.query(LARGE, "--output", "s3://logs/a.csv", expect=1)
    assert "cannot write `s3://logs/a.csv`" in message and "s3:PutObject" in message
    is_clean(s3, through_proxy)


def test_an_input_that_fails_leaves_nothing(s3, tidemill):
    with (tidemill.folder / "n.csv").open("a") as file:
        file.write("x,y,z\n")
    tidemill.query(LARGE, "--output", "s3://logs/a.csv", expect=1)
    is_clean(s3, tidemill)


@pytest.mark.parametrize("when", [sends_part, completes])
def test_an_interrupt_leaves_nothing_or_what_the_next_run_ends(s3, proxy, through_proxy, when):
    proxy.rules = [always(Stall(), when)]
    process = through_proxy.start("query", LARGE, "--output", "s3://logs/a.csv")
    assert proxy.stalled.wait(600)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    proxy.rules = []
    through_proxy.query(SMALL, "--output", "s3://logs/b.csv")
    # Behind the manifest there is no way back: the next run goes on.
    is_clean(s3, through_proxy, ["b.csv"] if when is sends_part else ["a.csv", "b.csv"])


def kill_at(proxy, tidemill, rule, sql, url):
    proxy.rules = [rule]
    process = tidemill.start("query", sql, "--output", url)
    assert proxy.stalled.wait(600)
    process.kill()
    process.communicate()
    proxy.rules = []
    proxy.stalled.clear()


@pytest.mark.parametrize("number", range(3))
def test_a_run_killed_while_it_uploads_leaves_no_object_and_no_upload(
    s3, proxy, through_proxy, number
):
    seen = []
    rule = always(Stall(), lambda r: sends_part(r) and (seen.append(1) or len(seen) > number))
    kill_at(proxy, through_proxy, rule, LARGE, "s3://logs/a.csv")
    assert objects(s3) == []
    assert len(uploads(s3)) == 1
    # Another output to the same bucket, by another run.
    through_proxy.query(SMALL, "--output", "s3://logs/b.csv")
    is_clean(s3, through_proxy, ["b.csv"])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_killed_while_it_commits_is_finished_by_the_next(
    s3, proxy, through_proxy, number, overwrite
):
    flags = ("--overwrite",) if overwrite else ()
    if overwrite:
        s3.put_object(Bucket="logs", Key="out/1.csv", Body=b"old")
    seen = []
    commits = lambda r: completes(r) or puts(r)  # noqa: E731
    rule = always(Stall(), lambda r: commits(r) and (seen.append(1) or len(seen) > number))
    # Two large objects and one small one.
    sql = "SELECT * FROM 'n.csv' WHERE k < 2 OR n < 1000"
    if number < 3:
        proxy.rules = [rule]
        process = through_proxy.start("query", sql, "--output", "s3://logs/out/{k}.csv", *flags)
        assert proxy.stalled.wait(600)
        process.kill()
        process.communicate()
        proxy.rules = []
    else:
        through_proxy.query(sql, "--output", "s3://logs/out/{k}.csv", *flags)
    through_proxy.query(SMALL, "--output", "s3://logs/z.csv")
    is_clean(s3, through_proxy, ["out/0.csv", "out/1.csv", "out/2.csv", "z.csv"])
    totals = through_proxy.query(
        "SELECT k, count() AS c FROM 's3://logs/out/' GROUP BY k ORDER BY k"
    )
    assert totals == through_proxy.query(
        "SELECT k, count() AS c FROM 'n.csv' WHERE k < 2 OR n < 1000 GROUP BY k ORDER BY k"
    )


def test_a_dead_commit_whose_name_was_taken_is_taken_back(s3, proxy, through_proxy):
    kill_at(
        proxy,
        through_proxy,
        always(Stall(), lambda r: puts(r) and r.path == "/logs/2.csv"),
        SMALL,
        "s3://logs/{k}.csv",
    )
    s3.put_object(Bucket="logs", Key="2.csv", Body=b"theirs")
    through_proxy.query(SMALL, "--output", "s3://logs/z.csv")
    assert body(s3, "2.csv") == b"theirs"
    is_clean(s3, through_proxy, ["2.csv", "z.csv"])


def test_two_live_runs_do_not_write_one_name(s3, proxy, through_proxy):
    proxy.rules = [always(Stall(), sends_part)]
    process = through_proxy.start("query", LARGE, "--output", "s3://logs/a.csv")
    assert proxy.stalled.wait(600)
    message = through_proxy.query(SMALL, "--output", "s3://logs/a.csv", expect=1)
    assert "is writing to `s3://logs/a.csv`" in message
    # Another name is no hindrance, and the live run's upload is left alone.
    through_proxy.query(SMALL, "--output", "s3://logs/b.csv")
    assert len(uploads(s3)) == 1
    process.kill()
    process.communicate()


def test_without_a_state_folder_it_goes_on_with_a_warning(s3, tidemill):
    (tidemill.folder / "file").write_text("")
    process = tidemill.start(
        "query", LARGE, "-o", "s3://logs/a.csv", TIDEMILL_HOME=str(tidemill.folder / "file" / "x")
    )
    _, err = process.communicate()
    assert process.returncode == 0
    assert "cannot write to the state folder" in err and "lifecycle rule" in err
    assert objects(s3) == ["a.csv"] and uploads(s3) == []


def test_what_cannot_be_written_says_why(s3, tidemill):
    for url, expected in {
        "s3://logs/folder/": "names a folder",
        "s3://logs": "names a folder",
        "s3://logs/a//b.csv": "keys with empty parts",
        "http://host/a.csv": "output to `http://` is not supported",
    }.items():
        assert expected in tidemill.query(SMALL, "--output", url, expect=2)
    message = tidemill.query(SMALL, "--output", "s3://lugs/a.csv", "--overwrite", expect=1)
    assert "there is no bucket `lugs`" in message
    job = tidemill.folder / "job.toml"
    job.write_text("source.url = 'n.csv'\ntables.c = 'count()'\n")
    message = tidemill.run("run", str(job), "--partial", "s3://logs/x.part", expect=2)
    assert "a partial table cannot be written to `s3://logs/x.part`" in message
