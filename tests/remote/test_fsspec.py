"""The fsspec file systems: fsspec's own tests for reading, and those who read through fsspec."""

import io
import os
import pickle
import subprocess
import sys
import textwrap

import fsspec
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
from fsspec.tests import abstract

import tidemill as tm
from faulty import Status, Web, always


def options_of(endpoint):
    return {
        "endpoint_url": endpoint,
        "allow_http": True,
        "access_key_id": "key-id",
        "secret_access_key": "hush-hush",
        "timeout": "30s",
        "max_retries": 2,
    }


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


class Filled(tm.TidemillFileSystem):
    """The file system, with what fsspec's tests fill one by; boto3 does that."""

    cachable = False

    def __init__(self, s3, **options):
        super().__init__(**options)
        self.s3 = s3

    def __reduce__(self):
        raise TypeError

    def _put(self, path, body):
        bucket, _, key = self._strip_protocol(path).partition("/")
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def touch(self, path, truncate=True, **kwargs):
        self._put(path, b"")

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._put(path, value)

    def mkdir(self, path, create_parents=True, **kwargs):
        pass

    def makedirs(self, path, exist_ok=False):
        pass

    def rm(self, path, recursive=False, maxdepth=None):
        for name in self.find(path):
            bucket, _, key = name.partition("/")
            self.s3.delete_object(Bucket=bucket, Key=key)


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, s3, moto):
        return Filled(s3, **options_of(moto))

    @pytest.fixture
    def fs_path(self):
        return "logs/tests"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(part.rstrip("/") for part in parts)

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestFsspecsOwn(Fixtures, abstract.AbstractGetTests):
    """Those of reading. The others write, copy or remove, which is refused."""


@pytest.fixture
def fs(s3, moto):
    for key, body in {
        "in/a.csv": b"n\n1\n",
        "in/b.csv": b"n\n2\n3\n",
        "in/deep/er/c.csv": b"n\n4\n",
        "in/[x].csv": b"odd",
        "in/marked/": b"",
        "in": b"a file and a folder",
        "top": b"0123456789",
    }.items():
        s3.put_object(Bucket="logs", Key=key, Body=body)
    return tm.TidemillFileSystem(**options_of(moto), skip_instance_cache=True)


def test_what_there_is(fs):
    assert fs.ls("logs", detail=False) == ["logs/in", "logs/in", "logs/top"]
    names = ["logs/in/[x].csv", "logs/in/a.csv", "logs/in/b.csv"]
    # What is a file and a folder is listed as both.
    found = fs.ls("s3://logs/in/")
    assert [info["name"] for info in found] == [
        *("logs/in", *names, "logs/in/deep", "logs/in/marked")
    ]
    assert [info["type"] for info in found] == ["file"] * 4 + ["directory"] * 2
    info = fs.info("tidemill+s3://logs/in/a.csv")
    assert (info["name"], info["size"], info["type"]) == ("logs/in/a.csv", 4, "file")
    assert info["ETag"].startswith('"') and info["LastModified"].tzinfo is not None
    assert fs.modified("logs/in/a.csv") == info["LastModified"]
    assert fs.info("logs/in/deep") == {"name": "logs/in/deep", "size": 0, "type": "directory"}
    assert fs.isdir("logs") and fs.isdir("logs/in/deep/") and fs.isfile("logs/in/[x].csv")
    assert fs.exists("logs/in/a.csv") and not fs.exists("logs/in/none") and not fs.isfile("logs/x")
    assert not fs.exists("no-such-bucket-of-mine/a")
    everything = [*names, "logs/in/deep/er/c.csv"]
    assert fs.find("logs/in/") == ["logs/in", *everything] or fs.find("logs/in/") == everything
    with_folders = fs.find("logs/in/deep", withdirs=True)
    assert with_folders == ["logs/in/deep", "logs/in/deep/er", "logs/in/deep/er/c.csv"]
    assert fs.find("logs/in/a.csv") == ["logs/in/a.csv"] and fs.find("logs/none") == []
    assert fs.find("logs/in/deep", maxdepth=1) == []
    assert fs.glob("logs/in/*.csv") == names and fs.glob("logs/**/c.csv") == [everything[-1]]
    assert fs.glob("logs/in/none*") == []
    assert fs.du("logs/in/deep") == 4 and fs.du("logs/top", total=False) == {"logs/top": 10}
    walked = {folder: (folders, files) for folder, folders, files in fs.walk("logs/in/deep")}
    assert walked == {"logs/in/deep": (["er"], []), "logs/in/deep/er": ([], ["c.csv"])}
    assert fs.checksum("logs/top") == fs.checksum("logs/top") != fs.checksum("logs/in/a.csv")
    assert fs.unstrip_protocol("logs/top") == "tidemill+s3://logs/top"
    with pytest.raises(FileNotFoundError):
        fs.ls("logs/none")
    with pytest.raises(FileNotFoundError):
        fs.info("logs/none")
    with pytest.raises(tm.UsageError, match="a bucket has to be named"):
        fs.ls("")


def test_what_is_in_it(fs, tmp_path):
    assert fs.cat("logs/top") == b"0123456789"
    assert fs.cat_file("logs/top", 2, 5) == b"234" and fs.cat_file("logs/top", -3) == b"789"
    assert fs.cat_file("logs/top", 2, -2) == b"234567" and fs.cat_file("logs/top", 5, 2) == b""
    assert fs.cat(["logs/in/a.csv", "logs/in/b.csv"]) == {
        "logs/in/a.csv": b"n\n1\n",
        "logs/in/b.csv": b"n\n2\n3\n",
    }
    with pytest.raises(FileNotFoundError):
        fs.cat(["logs/in/a.csv", "logs/none"])
    assert fs.cat(["logs/in/a.csv", "logs/none"], on_error="omit") == {"logs/in/a.csv": b"n\n1\n"}
    returned = fs.cat(["logs/in/a.csv", "logs/none"], on_error="return")
    assert isinstance(returned["logs/none"], FileNotFoundError)
    ranges = fs.cat_ranges(
        ["logs/top", "logs/in/a.csv", "logs/top", "logs/none"], [0, 0, 8, 0], [2, 1, 100, 1]
    )
    assert ranges[:3] == [b"01", b"n", b"89"] and isinstance(ranges[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["logs/none"], 0, 1, on_error="raise")
    assert fs.head("logs/top", 3) == b"012" and fs.tail("logs/top", 3) == b"789"
    assert fs.read_text("logs/in/a.csv") == "n\n1\n" and fs.read_bytes("logs/top", 1, 2) == b"1"
    assert fs.read_block("logs/in/b.csv", 1, 4, b"\n") == b"2\n3\n"
    with fs.open("s3://logs/top") as file:
        assert isinstance(file, tm.File) and (file.fs, file.path) == (fs, "logs/top")
        assert file.read(2) == b"01" and file.size == 10 and file.info()["size"] == 10
    with fs.open("logs/in/b.csv", "r") as text:
        assert text.readlines() == ["n\n", "2\n", "3\n"]
    fs.get_file("logs/top", tmp_path / "new" / "top")
    assert (tmp_path / "new" / "top").read_bytes() == b"0123456789"
    into = io.BytesIO()
    fs.get_file("logs/top", into)
    assert into.getvalue() == b"0123456789"
    callback = fsspec.callbacks.Callback()
    fs.get("logs/in/deep/", str(tmp_path / "told"), recursive=True, callback=callback)
    assert callback.value == callback.size and (tmp_path / "told" / "er" / "c.csv").exists()
    assert fs.get_mapper("logs/in/deep")["er/c.csv"] == b"n\n4\n"
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("logs/top") == b"0123456789"


@pytest.mark.parametrize(
    "write",
    [
        lambda fs: fs.open("logs/x", "wb"),
        lambda fs: fs.open("logs/top", "ab"),
        lambda fs: fs.pipe("logs/x", b""),
        lambda fs: fs.put(__file__, "logs/x"),
        lambda fs: fs.touch("logs/x"),
        lambda fs: fs.rm("logs/top"),
        lambda fs: fs.rm("logs/in", recursive=True),
        lambda fs: fs.copy("logs/top", "logs/x"),
        lambda fs: fs.mv("logs/top", "logs/x"),
        lambda fs: fs.mkdir("logs/x"),
        lambda fs: fs.makedirs("logs/x"),
        lambda fs: fs.rmdir("logs/in"),
        lambda fs: fs.write_text("logs/x", ""),
    ],
)
def test_writing_is_refused(fs, s3, write):
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket="logs")["Contents"]]
    with pytest.raises(tm.UsageError, match=r"only reads\nhint: .*tidemill.put"):
        write(fs)
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="logs")["Contents"]] == keys


def test_who_reads_by_fsspec_reads_ahead(s3, moto, proxy):
    table = pyarrow.table({"n": range(1_000), "k": [str(n % 3) for n in range(1_000)]})
    for part in range(3):
        sink = io.BytesIO()
        pyarrow.parquet.write_table(table, sink)
        s3.put_object(Bucket="logs", Key=f"t/{part}.parquet", Body=sink.getvalue())
    s3.put_object(Bucket="logs", Key="t.csv", Body=b"n\n1\n2\n")
    options = options_of(proxy.url)
    url = "tidemill+s3://logs/t/0.parquet"
    assert pandas.read_parquet(url, storage_options=options)["n"].sum() == 499_500
    assert pandas.read_csv("tidemill+s3://logs/t.csv", storage_options=options)["n"].sum() == 3
    fs = fsspec.filesystem("tidemill+s3", **options)
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    dataset = pyarrow.dataset.dataset("logs/t", filesystem=arrow, format="parquet")
    assert dataset.count_rows() == 3_000
    assert dataset.to_table(filter=pyarrow.dataset.field("k") == "0").num_rows == 1_002
    assert pyarrow.parquet.read_table("logs/t", filesystem=fs).num_rows == 3_000
    assert [file.full_name for file in fsspec.open_files(f"{url[:-9]}*.parquet", **options)]
    # One connection's worth of options, and its names.
    assert fsspec.filesystem("tidemill+s3", **options) is fs
    assert type(fs) is tm.TidemillFileSystem


def test_options_have_the_names_of_s3fs_too(s3, moto):
    s3.put_object(Bucket="logs", Key="a", Body=b"a")
    fs = fsspec.filesystem(
        "tidemill+s3",
        key="key-id",
        secret="hush-hush",
        token=None,
        client_kwargs={"endpoint_url": moto, "region_name": "us-east-1"},
        allow_http=True,
    )
    assert fs.cat("logs/a") == b"a"
    with pytest.raises(ValueError, match=r"did you mean .region."):
        fsspec.filesystem("tidemill+s3", regoin="x")


def test_it_takes_the_place_of_s3fs_where_that_is_asked_for(s3, moto):
    s3.put_object(Bucket="logs", Key="t.csv", Body=b"n\n1\n2\n")
    script = f"""
        import fsspec, pandas
        fsspec.register_implementation("s3", "tidemill.TidemillFileSystem", clobber=True)
        print(pandas.read_csv("s3://logs/t.csv", storage_options={options_of(moto)!r})["n"].sum())
        print(type(fsspec.filesystem("s3")).__name__)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.stdout == "3\nTidemillFileSystem\n", done.stderr


def test_the_package_does_not_need_fsspec():
    script = """
        import sys
        sys.modules["fsspec"] = None
        import tidemill
        tidemill.open, tidemill.File
        try:
            tidemill.TidemillFileSystem
        except ModuleNotFoundError as error:
            print(error.name, isinstance(error, tidemill.MissingPackageError))
        print(hasattr(tidemill, "no_such_name"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "fsspec True\nFalse\n", done.stderr


def test_files_of_the_web():
    body = b"n,m\n" + b"1,2\n" * 50_000
    with Web({"/in/a.csv": body}) as web:
        url = f"tidemill+{web.url}/in/a.csv"
        fs, path = fsspec.url_to_fs(url, allow_http=True, skip_instance_cache=True)
        assert type(fs) is tm.TidemillHttpFileSystem and path == f"{web.url}/in/a.csv"
        assert fs.info(path)["size"] == len(body) and fs.isfile(path) and fs.exists(path)
        assert fs.cat(path) == body and fs.cat_file(path, 4, 7) == b"1,2"
        assert fs.ls(path, detail=False) == fs.glob(path) == fs.find(path) == [path]
        assert fs.unstrip_protocol(path) == url and fs.glob(f"{web.url}/none") == []
        assert not fs.exists(f"{web.url}/none") and not fs.isdir(path)
        with pytest.raises(tm.UsageError, match="does not list its files"):
            fs.glob(f"{web.url}/in/*.csv")
        read = pandas.read_csv(url, storage_options={"allow_http": True})
        assert len(read) == 50_000
        query = f"{path}?year=2026&part=*"
        assert fs.cat(query) == body


def test_what_is_refused_is_no_missing_file(s3, proxy):
    s3.put_object(Bucket="logs", Key="a", Body=b"a")
    fs = fsspec.filesystem("tidemill+s3", **options_of(proxy.url) | {"max_retries": 0})
    proxy.rules.append(always(Status(403, "AccessDenied", "no"), lambda request: True))
    for ask in (fs.exists, fs.isfile, fs.info, fs.cat):
        with pytest.raises(tm.InputOutputError):
            ask("logs/a")
