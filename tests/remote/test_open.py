"""`tm.open`: a file of any place is a file to all who read files."""

import gc
import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import zipfile

import pandas
import polars
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

import tidemill as tm
from faulty import Cut, Stall, Status, Web, always, before, first

PLACES = ["path", "file URL", "bucket", "web", "web without ranges", "web without sizes"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


def options_of(endpoint):
    return {
        "endpoint_url": endpoint,
        "allow_http": True,
        "access_key_id": "key-id",
        "secret_access_key": "hush-hush",
        "timeout": "30s",
        "max_retries": 2,
    }


@pytest.fixture(scope="session")
def large():
    """3 MiB of lines, of which each says where it is."""
    return b"".join(b"%d,%d\n" % (n, n * 7919 % 1_000_003) for n in range(250_000))[: 3 << 20]


@pytest.fixture
def place(request, tmp_path, s3, moto):
    """How bytes get to a place; gives where that is and how it is reached."""
    servers = []

    def put(body, name="a.bin"):
        kind = request.param
        if kind in ("path", "file URL"):
            path = tmp_path / name
            path.write_bytes(body)
            return (path.as_uri() if kind == "file URL" else path), {}
        if kind == "bucket":
            s3.put_object(Bucket="logs", Key=f"in/{name}", Body=body)
            return f"s3://logs/in/{name}", options_of(moto)
        lacks = {
            "web": {},
            "web without ranges": {"ranges": False},
            "web without sizes": {"ranges": False, "length": False},
        }
        server = Web({f"/{name}": body}, **lacks[kind])
        servers.append(server)
        server.__enter__()
        return f"{server.url}/{name}", {"allow_http": True}

    yield put
    for server in servers:
        server.__exit__()


everywhere = pytest.mark.parametrize("place", PLACES, indirect=True)
by_ranges = pytest.mark.parametrize("place", ["path", "bucket", "web"], indirect=True)


FORKED = """
import gc, json, os, sys
import tidemill as tm

url, options, size = json.loads(sys.argv[1])
file = tm.open(url, storage_options=options)
assert len(file.read(100)) == 100
child = os.fork()
if child == 0:
    said = []
    # Far from what is in the buffer already.
    far = lambda: file.seek(size - 100) and file.read(100)
    for does in (far, lambda: tm.open(url, storage_options=options).read(100)):
        try:
            said.append(str(len(does())))
        except tm.UsageError as error:
            said.append(str(error).splitlines()[0])
    del file, does, far
    gc.collect()
    print(*said, sep="\\n", flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), len(file.read()) + 100 == size)
"""


@pytest.mark.parametrize("place", ["path", "bucket", "web", "web without ranges"], indirect=True)
def test_a_fork_does_not_wait_for_threads_that_it_has_not(place, large, request):
    url, options = place(large)
    arguments = json.dumps([str(url), options, len(large)])
    done = subprocess.run(
        [sys.executable, "-c", FORKED, arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    *said, parent = done.stdout.splitlines()
    if request.node.callspec.params["place"] == "path":
        assert said == ["100", "100"], done.stderr
    else:
        assert len(said) == 2, done.stderr
        assert said[0].endswith("` was opened by another process")
        assert said[1].startswith("the network's threads are those of the process")
    assert parent == "0 True"
    assert "panicked" not in done.stderr


def step(random, file, size):
    """Something random is done to a file; what came of it, and where that leaves it."""
    count = random.choice([0, 1, 10, 70_000, random.randrange(3 << 20), -1])
    kind = random.randrange(8)
    if kind == 0:
        got = file.read(count)
    elif kind == 1:
        buffer = bytearray(max(count, 0))
        filled = file.readinto(buffer)
        got = bytes(buffer[:filled])
    elif kind == 2:
        got = file.readline(*random.choice([(), (5,), (200_000,)]))
    elif kind == 3:
        lines = iter(file)
        got = [next(lines, None) for _ in range(random.choice([1, 3, 20_000]))]
    elif kind == 4:
        got = file.seek(random.randrange(size + 10))
    elif kind == 5:
        got = file.seek(-random.randrange(size + 1), 2)
    elif kind == 6:
        got = file.seek(random.choice([0, 1, 100_000]), 1)
    else:
        # How much comes is anybody's choice; what comes is not.
        start = file.tell()
        some = file.read1(1_000)
        file.seek(start)
        got = file.read(1_000)[: len(some)] == some and (bool(some) or start >= size)
        file.seek(start)
    return got, file.tell()


@everywhere
def test_any_reads_give_what_a_file_in_memory_gives(place, large):
    for seed in range(3):
        url, options = place(large, f"{seed}.bin")
        steps = [random.Random(seed), random.Random(seed)]
        expected = io.BytesIO(large)
        with tm.open(url, storage_options=options, read_block="64K", read_memory="1M") as file:
            for number in range(60):
                got = step(steps[0], file, len(large))
                assert got == step(steps[1], expected, len(large)), (seed, number)
    for body in (b"", b"\n", b"x", b"\n\n", b"a\r\nb"):
        url, options = place(body, "small")
        with tm.open(url, storage_options=options) as file:
            assert list(file) == io.BytesIO(body).readlines()
            assert file.read() == b"" and file.seek(0) == 0
            assert file.read() == body and file.seek(0, 2) == len(body)


@everywhere
def test_it_is_a_file_of_pythons(place):
    url, options = place(b"n\n1\n2\n")
    file = tm.open(url, storage_options=options)
    assert isinstance(file, io.BufferedIOBase) and isinstance(file, tm.File)
    assert file.readable() and file.seekable() and not file.writable() and not file.isatty()
    assert file.mode == "rb" and str(file.name).endswith("a.bin") and not file.closed
    assert next(file) == b"n\n" and file.peek()[:1] == b"1" and file.tell() == 2
    assert file.readlines() == [b"1\n", b"2\n"] and file.read() == b""
    with pytest.raises(StopIteration):
        next(file)
    assert file.seek(1) == 1 and file.read1()[:1] == b"\n"
    with pytest.raises(ValueError, match="negative seek"):
        file.seek(-1)
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    with pytest.raises(TypeError, match=r"read-only|writable"):
        file.readinto(b"abc")
    with pytest.raises(TypeError, match="pickle"):
        __import__("pickle").dumps(file)
    file.seek(0)
    assert file.readinto(memoryview(array := bytearray(3))) == 3 and array == b"n\n1"
    with io.TextIOWrapper(file, encoding="utf-8") as text:
        assert text.read() == "\n2\n"
    assert file.closed
    asked = file.stats.asked_bytes
    assert asked > 0 and file.stats.asked_bytes == asked
    for act in (file.read, file.tell, file.readline, lambda: file.seek(0), lambda: list(file)):
        with pytest.raises(ValueError, match="closed file"):
            act()
    file.close()


@by_ranges
def test_ranges_come_at_once_and_the_place_stays(place, large):
    url, options = place(large)
    with tm.open(url, storage_options=options, read_block="64K") as file:
        file.seek(7)
        ranges = [
            (0, 10),
            (1_000_000, 1_200_000),
            (5, 3),
            (len(large) - 5, len(large) + 50),
            (9, 9),
        ]
        assert file.read_ranges(ranges) == [large[start:end] for start, end in ranges]
        assert file.read_ranges([]) == [] and file.tell() == 7


@everywhere
def test_what_reads_files_reads_these(place, tmp_path):
    table = pyarrow.table({"n": range(50_000), "word": [str(n % 7) for n in range(50_000)]})
    packed = io.BytesIO()
    pyarrow.parquet.write_table(table, packed, row_group_size=10_000)
    csv = table.to_pandas().to_csv(index=False).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("a.csv", csv)
        members.writestr("b.txt", "b")

    def opened(body, name):
        url, options = place(body, name)
        return tm.open(url, storage_options=options, read_block="64K")

    with opened(packed.getvalue(), "a.parquet") as file:
        assert pyarrow.parquet.read_table(file).equals(table)
        file.seek(0)
        assert pandas.read_parquet(file)["n"].sum() == sum(range(50_000))
        file.seek(0)
        assert polars.read_parquet(file)["n"].sum() == sum(range(50_000))
        file.seek(0)
        columns = pyarrow.parquet.ParquetFile(file).read_row_group(3, ["word"])
        assert columns["word"][0].as_py() == str(30_000 % 7)
    with opened(csv, "a.csv") as file:
        assert pyarrow.csv.read_csv(file).num_rows == 50_000
    with opened(csv, "a.csv") as file:
        assert len(pandas.read_csv(file)) == 50_000
        file.seek(0)
        assert len(polars.read_csv(file)) == 50_000
    with opened(archive.getvalue(), "a.zip") as file, zipfile.ZipFile(file) as members:
        assert members.namelist() == ["a.csv", "b.txt"]
        assert members.read("b.txt") == b"b" and members.read("a.csv") == csv
    with opened(gzip.compress(csv, 1), "a.csv.gz") as file, gzip.open(file) as unpacked:
        assert unpacked.readline() == b"n,word\n" and len(unpacked.readlines()) == 50_000


def test_threads_share_a_file(s3, moto, large):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    file = tm.open("s3://logs/a", storage_options=options_of(moto), read_block="64K")
    pieces, failures = [], []

    def read():
        try:
            while piece := file.read(10_007):
                pieces.append(piece)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each has its own, and none is given twice.
    assert failures == [] and sum(map(len, pieces)) == len(large)
    assert sorted(pieces) == sorted(large[at : at + 10_007] for at in range(0, len(large), 10_007))


def test_threads_that_seek_before_they_read_need_no_lock(s3, moto, large):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    file = tm.open("s3://logs/a", storage_options=options_of(moto), read_block="64K")
    wrong = []

    def read(seed):
        places = random.Random(seed)
        for number in range(150):
            at, size = places.randrange(len(large)), places.choice([1, 100, 5_000, 200_000])
            file.seek(at)
            if number % 3 == 0:
                file.seek(-(at // 2), io.SEEK_CUR)
                at -= at // 2
            if file.tell() != at or file.read(size) != large[at : at + size]:
                wrong.append((at, size))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    # Where one has gone and another has read, the file is behind that.
    file.seek(100)
    reader = threading.Thread(target=lambda: file.read(50))
    reader.start()
    reader.join()
    assert file.tell() == 150 and file.read(3) == large[150:153]


def test_lines_keep_their_file_open(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n2\n")
    assert [line for line in tm.open(path)] == [b"n\n", b"1\n", b"2\n"]
    file = tm.open(path)
    assert iter(file) is file and next(file) == b"n\n" and list(file) == [b"1\n", b"2\n"]


def test_errors_are_those_of_the_package(s3, moto, tmp_path):
    options = options_of(moto)
    s3.put_object(Bucket="logs", Key="in/a.csv", Body=b"n\n1\n")
    s3.put_object(Bucket="logs", Key="in/[b].csv", Body=b"n\n2\n")
    with pytest.raises(FileNotFoundError, match="no such") as caught:
        tm.open("s3://logs/in/c.csv", storage_options=options)
    assert isinstance(caught.value, tm.NotFoundError) and caught.value.errno == 2
    with pytest.raises(FileNotFoundError):
        tm.open(tmp_path / "none")
    for url in ("s3://logs/in/", "s3://logs/in", "s3://logs", tmp_path):
        with pytest.raises(tm.UsageError, match="is a folder"):
            tm.open(url, storage_options=options)
    with pytest.raises(tm.UsageError, match="several files"):
        tm.open("s3://logs/in/*.csv", storage_options=options)
    with tm.open("s3://logs/in/[b].csv", storage_options=options) as file:
        assert file.read() == b"n\n2\n"
    with pytest.raises(ValueError, match=r"did you mean .region."):
        tm.open("s3://logs/in/a.csv", storage_options={"regoin": "x"})
    with pytest.raises(tm.UsageError, match="the least is 64 KiB"):
        tm.open("s3://logs/in/a.csv", storage_options=options, read_block="1K")
    with pytest.raises(OSError, match="cannot read") as caught:
        refused = options | {"endpoint_url": "http://127.0.0.1:1", "max_retries": 0}
        tm.open("s3://logs/in/a.csv", storage_options=refused)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "fault", [Status(503), Status(429), Cut(100_000)], ids=["503", "429", "a cut body"]
)
def test_faults_are_outlived_and_counted(s3, proxy, large, fault):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    proxy.rules.append(first(2, fault))
    with tm.open("s3://logs/a", storage_options=options_of(proxy.url), read_block="256K") as file:
        assert file.read() == large
        stats = file.stats
        assert (stats.asked_bytes, stats.fetched_bytes) == (len(large), len(large))
        assert stats.wasted_bytes == 0 and stats.requests == -(-len(large) // (256 << 10))
        assert stats.reads == stats.hits + stats.stalls


def test_bodies_that_are_cut_off_are_gone_on_with_and_counted(large):
    with Web({"/a": large}) as web:
        options = {"allow_http": True}
        with tm.open(f"{web.url}/a", storage_options=options, read_block="256K") as file:
            assert file.stats.requests == 1 and file.stats.fetched_bytes == 1 << 20
            web.rules.append(first(2, Cut(100_000)))
            assert file.read() == large
            stats = file.stats
            assert (stats.asked_bytes, stats.fetched_bytes) == (len(large), len(large))
            assert (stats.requests, stats.retries) == (1 + 8, 2)


def test_what_never_succeeds_is_an_error_and_the_file_stays(s3, proxy, large):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    with tm.open("s3://logs/a", storage_options=options_of(proxy.url) | {"max_retries": 0}) as file:
        assert file.read(10) == large[:10]
        proxy.rules.append(always(Status(403, "AccessDenied", "no")))
        for _ in range(3):
            with pytest.raises(tm.InputOutputError, match="403"):
                file.read(2 << 20)
            assert file.tell() == 10
        proxy.rules.clear()
        assert file.read() == large[10:]


def test_two_versions_are_never_mixed(s3, proxy, large):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    options = options_of(proxy.url)
    with tm.open("s3://logs/a", storage_options=options, read_block="64K") as file:
        assert file.read(1_000) == large[:1_000]
        s3.put_object(Bucket="logs", Key="a", Body=large[::-1])
        with pytest.raises(tm.CorruptFileError, match="changed while it was read"):
            file.read()


def test_small_reads_far_apart_fetch_little(s3, proxy, large):
    s3.put_object(Bucket="logs", Key="a", Body=large)
    with tm.open("s3://logs/a", storage_options=options_of(proxy.url)) as file:
        size = file.size
        for at in (2_000_000, 500_000, 3_000_000, 1_200_000):
            file.seek(at)
            assert file.read(70_000) == large[at : at + 70_000]
        assert size == len(large) and file.stats.fetched_bytes == 4 * 70_000
        file.seek(0)
        before_them = file.stats.requests
        for _ in range(100):
            file.readline()
        assert file.stats.requests == before_them + 1


def test_an_interrupt_ends_a_read_and_the_file_can_be_read_on(large):
    with Web({"/a": large}) as web:
        with tm.open(f"{web.url}/a", storage_options={"allow_http": True}) as file:
            file.seek(2 << 20)
            rule = first(1, Stall())
            web.rules.append(rule)

            def send():
                web.stalled.wait()
                os.kill(os.getpid(), signal.SIGINT)

            previous = signal.signal(signal.SIGINT, signal.default_int_handler)
            sender = threading.Thread(target=send)
            sender.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    file.read(10)
            finally:
                signal.signal(signal.SIGINT, previous)
                sender.join()
            assert file.tell() == 2 << 20
            assert file.read(10) == large[2 << 20 : (2 << 20) + 10]


def test_other_threads_run_while_one_waits_and_closing_ends_the_wait(large):
    with Web({"/a": large}) as web:
        file = tm.open(f"{web.url}/a", storage_options={"allow_http": True})
        file.seek(2 << 20)
        web.rules.append(always(Stall()))
        caught = []

        def read():
            try:
                file.read(10)
            except BaseException as error:
                caught.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        web.stalled.wait()
        file.close()
        reader.join()
        assert [type(error) for error in caught] == [ValueError]


def test_a_file_that_is_dropped_is_closed(s3, moto):
    s3.put_object(Bucket="logs", Key="a", Body=b"n\n")
    file = tm.open("s3://logs/a", storage_options=options_of(moto))
    raw = file._raw
    del file
    gc.collect()
    with pytest.raises(ValueError, match="closed"):
        raw.read(1)


def test_a_body_without_ranges_is_asked_for_again_only_for_what_lies_before(large):
    with Web({"/a": large}, ranges=False) as web:
        with tm.open(f"{web.url}/a", storage_options={"allow_http": True}) as file:
            file.seek(2_500_000)
            assert file.read(10) == large[2_500_000:2_500_010]
            so_far = len(web.requests)
            assert file.read() == large[2_500_010:] and len(web.requests) == so_far
            file.seek(0)
            assert file.read(3) == large[:3] and len(web.requests) == so_far + 1
        web.rules.append(before(0, lambda: setattr(web, "version", 2)))
        with tm.open(f"{web.url}/a", storage_options={"allow_http": True}) as file:
            web.version = 3
            with pytest.raises(tm.CorruptFileError, match="changed"):
                file.read()


def test_a_second_run_with_a_read_cache_gets_nothing(s3, proxy, through_proxy, large, tmp_path):
    tidemill = through_proxy
    rows = large.count(b"\n")
    body = b"n,m\n" + large[: large.rindex(b"\n") + 1]
    s3.put_object(Bucket="logs", Key="in/a.csv", Body=body)
    flags = ("--read-cache=64M", f"--read-cache-dir={tmp_path / 'kept'}", "--read-block=256K")
    sql = "SELECT count() AS n FROM 's3://logs/in/a.csv'"

    def run():
        proxy.requests.clear()
        out = tidemill.query(sql, *flags)
        copied = tidemill.run("cat", "s3://logs/in/a.csv", *flags)
        assert out == f"n\n{rows}\n" and copied.encode() == body
        return len(proxy.reads())

    assert run() > 0
    assert run() == 0
    keywords = {
        "storage_options": options_of(proxy.url),
        "read_cache": "64M",
        "read_cache_dir": tmp_path / "kept",
        "read_block": "256K",
    }
    proxy.requests.clear()
    result = tm.query(sql, **keywords)
    assert result.to_pylist() == [{"n": rows}]
    assert tm.cat("s3://logs/in/a.csv", **keywords) == body
    with tm.open("s3://logs/in/a.csv", **keywords) as file:
        assert file.read() == body
        assert file.stats.requests == 0 and file.stats.disk_bytes == len(body)
    assert proxy.reads() == []
    assert result.stats.requests == 0 and result.stats.disk_bytes > 0
    # What has another version is another object.
    s3.put_object(Bucket="logs", Key="in/a.csv", Body=body[::-1])
    with tm.open("s3://logs/in/a.csv", **keywords) as file:
        assert file.read() == body[::-1]
    assert len(proxy.reads()) > 0


def test_what_reading_did_is_told(s3, proxy, through_proxy, large):
    body = b"n,m\n" + large[: large.rindex(b"\n") + 1]
    s3.put_object(Bucket="logs", Key="a.csv", Body=body)
    sql = "SELECT count() AS n FROM 's3://logs/a.csv'"
    for words in (("query", sql), ("cat", "s3://logs/a.csv"), ("get", "s3://logs/a.csv")):
        proxy.requests.clear()
        process = through_proxy.start(*words, "--stats")
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        told = [line for line in err.splitlines() if line.startswith(("remote files", "read "))]
        requests = len(proxy.reads())
        assert f"in {requests} request" in told[0] and " B of it in vain" in told[0], err
        assert " had their bytes in memory" in told[1]
        assert len(told) == 2 or (told[2].startswith("read block ") and "past" not in told[2])
    written = tm.query(
        sql, storage_options=options_of(proxy.url), output=through_proxy.folder / "n.csv"
    )
    assert written.stats.fetched_bytes >= len(body) and written.stats.requests > 0
    whole = tm.read_stats()
    assert whole.fetched_bytes >= written.stats.fetched_bytes
    assert str(whole - whole).startswith("0 B read, 0 B fetched in 0 requests")


def test_block_and_window_are_chosen_from_past_runs_where_that_is_asked_for(
    s3, proxy, through_proxy, large, tmp_path
):
    tidemill = through_proxy
    body = b"n,m\n" + 4 * large[: large.rindex(b"\n") + 1]
    s3.put_object(Bucket="logs", Key="in/a.csv", Body=body)
    query = ["query", "SELECT count() AS n FROM 's3://logs/in/a.csv'", "--stats"]
    auto = ["--read-block=auto", "--read-window=auto"]
    home = tmp_path / "own"

    def used(*words, folder=home):
        process = tidemill.start(*words, TIDEMILL_HOME=str(folder))
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        return next(line for line in err.splitlines() if line.startswith("read block ")), err

    # What does not ask for it leaves nothing.
    assert "past" not in used(*query)[0]
    assert not (home / "reads").exists()
    assert "past" not in used(*query, *auto)[0]
    assert used(*query, *auto)[0].endswith(": from 1 past run")
    job = tmp_path / "job.toml"
    job.write_text(
        "name = 'daily'\n[source]\nurl = 's3://logs/in/a.csv'\n"
        "read_block = 'auto'\nread_window = 'auto'\n[tables]\nn = 'count()'\n"
    )
    assert used("run", str(job), "--stats")[0].endswith(": from 2 past runs")
    assert used("run", str(job), "--stats")[0].endswith(": from 1 past run")
    (history,) = (home / "reads").iterdir()
    text = history.read_text()
    assert len(text.splitlines()) == 4 and "job=daily" in text and "hush" not in text
    # Damage is a line less.
    history.write_bytes(b"\0" + text.encode()[1:])
    assert used(*query, *auto)[0].endswith(": from 1 past run")
    # A folder that cannot be written is a warning.
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    line, err = used(*query, *auto, folder=blocked / "home")
    assert "past" not in line and "cannot write to the state folder" in err

    keywords = {
        "storage_options": options_of(proxy.url),
        "read_block": "auto",
        "read_window": "auto",
    }
    for runs in range(3):
        with tm.open("s3://logs/in/a.csv", **keywords) as file:
            while file.read(1 << 20):
                pass
        assert file.stats.past_runs == runs and file.stats.block_bytes > 0
    (tmp_path / "home" / "reads").rename(tmp_path / "forgotten")
    with tm.open("s3://logs/in/a.csv", **keywords) as file:
        assert file.read() == body
    assert file.stats.past_runs == 0
    result = tm.query("SELECT count() AS n FROM 's3://logs/in/a.csv'", **keywords)
    assert result.to_pylist() == [{"n": body.count(b"\n") - 1}]
    assert result.stats.past_runs == 1


def test_progress_of_copies_is_shown(s3, moto, tmp_path, capfd):
    s3.put_object(Bucket="logs", Key="a", Body=b"x" * 1_000)
    options = options_of(moto)
    tm.get("s3://logs/a", tmp_path / "a", storage_options=options, progress=True)
    tm.put(tmp_path / "a", "s3://logs/b", storage_options=options, progress=False)
    # How often it is drawn is the clock's choice; that it is taken away is not.
    err = capfd.readouterr().err
    assert err == "" or " files, " in err
