"""`tidemill ls`, `stat`, `du`, `cat`, `get` and `put`, and Python's, against the S3 server."""

import hashlib
import json
import os
import pathlib
import random
import signal

import pytest

import tidemill as tm
from faulty import Cut, Lost, Stall, Status, Web, always, first

MIB = 1 << 20
PART = 8 * MIB


@pytest.fixture(scope="session")
def large():
    """Three blocks, or parts, and a bit."""
    return random.Random(18).randbytes(25 * MIB + 77)


@pytest.fixture
def options(moto):
    return {
        "endpoint_url": moto,
        "allow_http": True,
        "region": "us-east-1",
        "access_key_id": "key-id",
        "secret_access_key": "hush-hush",
    }


def put_all(s3, **keys):
    for key, body in keys.items():
        s3.put_object(Bucket="logs", Key=key, Body=body)


def keys(s3):
    found = s3.list_objects_v2(Bucket="logs").get("Contents", [])
    return [item["Key"] for item in found]


def uploads(s3):
    return s3.list_multipart_uploads(Bucket="logs").get("Uploads", [])


def body(s3, key):
    return s3.get_object(Bucket="logs", Key=key)["Body"].read()


def tree(folder):
    files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


def notes(tidemill):
    folder = pathlib.Path(tidemill.environment["TIDEMILL_HOME"]) / "puts"
    return list(folder.iterdir()) if folder.exists() else []


# What is there


def test_listings(s3, tidemill):
    put_all(s3, **{"a.csv": b"1234", "x/b.csv": b"12", "x/y/c.csv": b"1", "x-old/d": b""})
    assert tidemill.run("ls", "s3://logs") == "a.csv\nx-old/\nx/\n"
    assert tidemill.run("ls", "s3://logs/x") == "b.csv\ny/\n"
    assert tidemill.run("fs", "ls", "--recursive", "s3://logs/x/") == "b.csv\ny/c.csv\n"
    assert tidemill.run("ls", "s3://logs/**/*.csv") == "a.csv\nx/b.csv\nx/y/c.csv\n"
    long = tidemill.run("ls", "--long", "--bytes", "s3://logs/").splitlines()
    assert [line.split()[0] for line in long] == ["4", "-", "-"]
    lines = tidemill.run("ls", "-r", "--format", "json", "s3://logs").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [(entry["url"], entry["size"]) for entry in entries] == [
        ("s3://logs/a.csv", 4),
        ("s3://logs/x-old/d", 0),
        ("s3://logs/x/b.csv", 2),
        ("s3://logs/x/y/c.csv", 1),
    ]
    assert entries[0]["modified"].endswith("Z") and len(entries[0]["e_tag"]) == 34
    sums = tidemill.run("du", "--bytes", "--depth", "2", "s3://logs").splitlines()
    assert [line.split() for line in sums] == [
        ["0", "1", "file", "s3://logs/x-old/"],
        ["1", "1", "file", "s3://logs/x/y/"],
        ["3", "2", "files", "s3://logs/x/"],
        ["7", "4", "files", "s3://logs/"],
    ]
    message = tidemill.run("ls", "s3://logs/z.csv", expect=1)
    assert "did you mean `s3://logs/a.csv`?" in message
    assert "a web server does not list" in tidemill.run("ls", "https://h/*.csv", expect=2)


def test_names_that_a_terminal_would_obey_are_made_visible(s3, tidemill):
    put_all(s3, **{"red\u202e": b"", "a b+c%20": b""})
    assert tidemill.run("ls", "s3://logs") == "a b+c%20\nred\\u{202e}\n"
    lines = tidemill.run("ls", "--format", "json", "s3://logs").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a b+c%20", "red\u202e"]


def test_many_keys_come_page_by_page(s3, tidemill):
    for number in range(2_300):
        s3.put_object(Bucket="logs", Key=f"{number:05d}", Body=b"x")
    found = tidemill.run("ls", "s3://logs").splitlines()
    assert found == [f"{number:05d}" for number in range(2_300)]


def test_all_that_a_server_says(s3, tidemill):
    s3.put_object(
        Bucket="logs", Key="a.csv", Body=b"1234", ContentType="text/csv", Metadata={"by": "me"}
    )
    told = json.loads(tidemill.run("stat", "--format", "json", "s3://logs/a.csv"))
    assert (told["kind"], told["size"], told["content_type"]) == ("file", 4, "text/csv")
    assert told["metadata"] == {"by": "me"}
    assert told["e_tag"] == f'"{hashlib.md5(b"1234").hexdigest()}"'
    assert "size: 4 B" in tidemill.run("stat", "s3://logs/a.csv")
    assert json.loads(tidemill.run("stat", "--format", "json", "s3://logs"))["kind"] == "folder"
    tidemill.run("stat", "s3://logs/none", expect=1)


# What is read out


def test_bytes_come_in_order(s3, tidemill, large):
    put_all(s3, a=b"hello ", b=b"world")
    s3.put_object(Bucket="logs", Key="l", Body=large)
    assert tidemill.run("cat", "s3://logs/a", "s3://logs/b") == "hello world"
    assert tidemill.run("cat", "--range", "1..4", "s3://logs/{a,b}") == "ellorl"
    process = tidemill.start("cat", "s3://logs/l")
    out = process.stdout.buffer.read()
    assert process.wait(600) == 0
    assert out == large


def test_a_reader_that_has_gone_ends_it_quietly(s3, tidemill, large):
    s3.put_object(Bucket="logs", Key="l", Body=large)
    process = tidemill.start("cat", "s3://logs/l")
    assert process.stdout.buffer.read(10) == large[:10]
    process.stdout.close()
    assert process.wait(600) == 0
    assert process.stderr.read() == ""


# What is fetched


def test_a_folder_is_fetched_and_brought_up_to_date(s3, tidemill, large):
    put_all(s3, **{"x/a": b"1", "x/y/b": b"22", "x/.hid": b""})
    s3.put_object(Bucket="logs", Key="x/l", Body=large)
    expected = {".hid": b"", "a": b"1", "l": large, "y/b": b"22"}
    tidemill.run("get", "s3://logs/x/", "--output", "out")
    assert tree(tidemill.folder / "out") == expected
    message = tidemill.run("get", "s3://logs/x/", "--output", "out", expect=1)
    assert message.count("exists already") == 4 and "4 failed" in message
    put_all(s3, **{"x/new": b"new", "x/a": b"longer"})
    words = ("get", "s3://logs/x/", "--output", "out", "--skip-existing")
    assert "left 3 that were there already" in tidemill.run(*words, expect=1)
    tidemill.run(*words, "--overwrite")
    assert tree(tidemill.folder / "out") == expected | {"new": b"new", "a": b"longer"}


def test_a_single_file_goes_by_its_own_name(s3, tidemill):
    put_all(s3, **{"x/a.csv": b"1"})
    tidemill.run("get", "s3://logs/x/a.csv")
    assert (tidemill.folder / "a.csv").read_bytes() == b"1"
    assert "exists already" in tidemill.run("get", "s3://logs/x/a.csv", expect=1)
    tidemill.run("fs", "get", "s3://logs/x/a.csv", "-o", "b.csv")
    assert (tidemill.folder / "b.csv").read_bytes() == b"1"


def test_no_key_is_written_outside_of_the_folder(s3, tidemill):
    hostile = ["../up", "../../etc/passwd", "a//b", "x" * 300, "both", "both/x"]
    put_all(s3, ok=b"1", **dict.fromkeys(hostile, b"evil"))
    message = tidemill.run("get", "s3://logs/", "--output", "d/out", "--parallel", "1", expect=1)
    assert sorted(tree(tidemill.folder / "d")) == ["out/both", "out/ok"]
    assert not (tidemill.folder / "up").exists()
    for shown in ("s3://logs/../up", "s3://logs/a//b"):
        assert shown in message


@pytest.mark.parametrize("fault", [Status(503), Cut(1000), Lost()])
def test_faults_are_outlived(s3, proxy, through_proxy, large, fault):
    s3.put_object(Bucket="logs", Key="l", Body=large)
    proxy.rules = [first(2, fault)]
    through_proxy.run("get", "s3://logs/l")
    assert (through_proxy.folder / "l").read_bytes() == large


def hangs_behind(bytes):
    def rule(request):
        start = request.headers.get("range", "bytes=0-").removeprefix("bytes=").split("-")[0]
        return Stall() if request.is_read and int(start) >= bytes else None

    return rule


def noted(tidemill):
    notes = tidemill.folder.glob(".tidemill-get-*.done")
    return sum(path.read_bytes().count(b"\n") for path in notes)


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_what_was_stopped_is_gone_on_with(s3, proxy, through_proxy, large, ends):
    s3.put_object(Bucket="logs", Key="l", Body=large)
    proxy.rules = [hangs_behind(3 * PART)]
    process = through_proxy.start("get", "s3://logs/l")
    assert proxy.stalled.wait(600)
    # A line for each block that is there, behind the first.
    while noted(through_proxy) < 1 + 3:
        assert process.poll() is None
    process.send_signal(ends)
    assert process.wait(600) == (130 if ends == signal.SIGINT else -ends)
    assert not (through_proxy.folder / "l").exists()
    proxy.rules = []
    proxy.requests.clear()
    through_proxy.run("get", "s3://logs/l")
    starts = [r.headers["range"] for r in proxy.requests if r.is_read]
    assert starts == [f"bytes={3 * PART}-{len(large) - 1}"]
    assert [path.name for path in through_proxy.folder.iterdir() if path.is_file()] == ["l"]
    assert (through_proxy.folder / "l").read_bytes() == large


def test_files_of_the_web(tidemill):
    with Web({"/a.csv": b"1" * 3_000_000, "/b c.csv": b"2"}) as web:
        tidemill.run("get", f"{web.url}/a.csv", f"{web.url}/b%20c.csv", "--output", "out")
        assert tree(tidemill.folder / "out") == {"a.csv": b"1" * 3_000_000, "b c.csv": b"2"}
        told = json.loads(tidemill.run("stat", "--format", "json", f"{web.url}/a.csv"))
        assert told["size"] == 3_000_000
    with Web({"/a.csv": b"1" * 3_000_000}, ranges=False, length=False) as web:
        tidemill.run("get", f"{web.url}/a.csv", "--output", "stream.csv")
        assert (tidemill.folder / "stream.csv").read_bytes() == b"1" * 3_000_000


# What is sent


def test_a_folder_is_sent_and_brought_up_to_date(s3, tidemill, large):
    folder = tidemill.folder / "in"
    (folder / "y").mkdir(parents=True)
    for name, content in {"a": b"1", "y/b": b"22", ".hid": b"", "l": large}.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, (1, 1))
    tidemill.run("put", "in", "s3://logs/x")
    assert keys(s3) == ["x/.hid", "x/a", "x/l", "x/y/b"]
    assert body(s3, "x/l") == large
    assert "exists already" in tidemill.run("put", "in", "s3://logs/x", expect=1)
    (folder / "a").write_bytes(b"longer")
    tidemill.run("put", "in", "s3://logs/x", "--skip-existing", "--overwrite")
    assert body(s3, "x/a") == b"longer"
    assert uploads(s3) == [] and notes(tidemill) == []


def sends_part(number):
    return lambda r: r.method == "PUT" and r.query.get("partNumber") == str(number)


def test_an_upload_that_is_killed_is_gone_on_with(s3, proxy, through_proxy, large):
    (through_proxy.folder / "l").write_bytes(large)
    proxy.rules = [always(Stall(), sends_part(4))]
    process = through_proxy.start("put", "l", "s3://logs/l")
    assert proxy.stalled.wait(600)
    while not sum(path.read_bytes().count(b" part ") for path in notes(through_proxy)) == 3:
        assert process.poll() is None
    process.kill()
    process.wait()
    assert keys(s3) == [] and len(uploads(s3)) == 1
    proxy.rules = []
    proxy.requests.clear()
    through_proxy.run("put", "l", "s3://logs/l")
    assert len([r for r in proxy.requests if "partNumber" in r.query]) == 1
    assert body(s3, "l") == large
    assert uploads(s3) == [] and notes(through_proxy) == []


def test_an_upload_that_is_interrupted_leaves_nothing(s3, proxy, through_proxy, large):
    (through_proxy.folder / "l").write_bytes(large)
    proxy.rules = [always(Stall(), sends_part(2))]
    process = through_proxy.start("put", "l", "s3://logs/l")
    assert proxy.stalled.wait(600)
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 130
    assert keys(s3) == [] and uploads(s3) == [] and notes(through_proxy) == []


def test_what_has_no_place_is_refused(tidemill):
    for words in (("get", "a.csv"), ("put", "a", "b"), ("put", "a", "https://h/"), ("put", "a")):
        tidemill.run(*words, expect=2)


# Python


def test_python_does_the_same(s3, options, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n\n1\n")
    (tmp_path / "in" / "b.csv").write_bytes(b"n\n2\n")
    sent = tm.put(tmp_path / "in", "s3://logs/x/", storage_options=options)
    assert (sent.files, sent.bytes, sent.skipped) == (2, 8, 0)
    listed = tm.ls("s3://logs", storage_options=options)
    assert [(entry.name, entry.kind, entry.size) for entry in listed] == [("x/", "folder", None)]
    listed = tm.ls("s3://logs", recursive=True, storage_options=options)
    assert [entry.name for entry in listed] == ["x/a.csv", "x/b.csv"]
    assert tm.stat("s3://logs/x/a.csv", storage_options=options)["size"] == 4
    sums = tm.du("s3://logs", storage_options=options)
    assert [(usage.url, usage.files, usage.bytes) for usage in sums] == [
        ("s3://logs/x/", 2, 8),
        ("s3://logs/", 2, 8),
    ]
    assert tm.cat("s3://logs/x/*.csv", range="2..", storage_options=options) == b"1\n2\n"
    got = tm.get("s3://logs/x/", tmp_path / "out", storage_options=options)
    assert got.files == 2
    assert tree(tmp_path / "out") == {"a.csv": b"n\n1\n", "b.csv": b"n\n2\n"}
    with pytest.raises(FileExistsError):
        tm.get("s3://logs/x/a.csv", tmp_path / "out", storage_options=options)
    with pytest.raises(tm.TidemillError, match="2 files could not be fetched"):
        tm.get("s3://logs/x/", tmp_path / "out", storage_options=options)
    with pytest.raises(FileNotFoundError):
        tm.ls("s3://logs/none", storage_options=options)
    with pytest.raises(ValueError, match="is on this machine already"):
        tm.get(tmp_path / "in")
