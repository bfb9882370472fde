"""Folders in a bucket that workers write: all objects of a set or none, whoever is gone."""

import os
import pathlib
import signal
import subprocess
import sys

import boto3
import pytest

import tidemill as tm
from tidemill.ray import connect, disconnect

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "remote"))

from faulty import Proxy, Stall, Status, always, first

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def bucket(server):
    client = boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id="key-id",
        aws_secret_access_key="hush-hush",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="sinks")
    yield client
    for key in objects(client):
        client.delete_object(Bucket="sinks", Key=key)
    for upload in uploads(client):
        client.abort_multipart_upload(
            Bucket="sinks", Key=upload["Key"], UploadId=upload["UploadId"]
        )
    client.delete_bucket(Bucket="sinks")


@pytest.fixture
def proxy(server, bucket):
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The state folder of this process's runs."""
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files that become objects of one request, of one part, and one of several parts."""
    folder = tmp_path_factory.mktemp("inputs")
    for file, rows in enumerate([10, 40_000, 300, 30_000, 400_000, 50_000, 20_000, 1]):
        lines = [f"{row},{row * 7919 % 1_000_003:020}" for row in range(rows)]
        (folder / f"{file}.csv").write_text("k,n\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def here(inputs, tmp_path_factory):
    """What one machine makes of them, by name."""
    folder = tmp_path_factory.mktemp("here")
    tm.convert(f"{inputs}/*.csv", f"{folder}/", format="json")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def options(endpoint):
    return {
        "endpoint_url": endpoint,
        "allow_http": "true",
        "access_key_id": "key-id",
        "secret_access_key": "hush-hush",
        "region": "us-east-1",
        "max_retries": "6",
    }


def convert(inputs, endpoint, **more):
    return tm.convert(
        f"{inputs}/*.csv",
        "s3://sinks/a/out/",
        format="json",
        on="ray",
        storage_options=options(endpoint),
        **more,
    )


def objects(bucket):
    found = bucket.list_objects_v2(Bucket="sinks").get("Contents", [])
    return [item["Key"] for item in found]


def uploads(bucket):
    return bucket.list_multipart_uploads(Bucket="sinks").get("Uploads", [])


def written(bucket):
    return {
        key.removeprefix("a/out/"): bucket.get_object(Bucket="sinks", Key=key)["Body"].read()
        for key in objects(bucket)
    }


def remains(home):
    folder = home / "uploads"
    return list(folder.iterdir()) if folder.exists() else []


def sends_part(request):
    return request.method == "PUT" and "partNumber" in request.query


def completes(request):
    return request.method == "POST" and "uploadId" in request.query


def throws_away(request):
    return request.method == "DELETE" and "uploadId" in request.query


def test_workers_write_the_objects_of_a_folder(cluster, inputs, here, proxy, bucket, home):
    proxy.rules.append(first(5, Status(503), when=lambda it: it.method in ("PUT", "POST")))
    result = convert(inputs, proxy.url)
    assert written(bucket) == here
    assert (result.files, result.bytes) == (len(here), sum(map(len, here.values())))
    assert result.paths[0] == "s3://sinks/a/out/0.json"
    # Those that are large were sent by workers in parts, and nothing was put twice.
    large = {name for name, content in here.items() if len(content) > 256 << 10}
    sent = {request.path.rpartition("/")[2] for request in proxy.requests if sends_part(request)}
    assert sent == large and 0 < len(large) < len(here)
    assert uploads(bucket) == []
    assert remains(home) == []


def test_an_object_that_is_there_stays_and_is_told_of(cluster, inputs, here, server, bucket, home):
    bucket.put_object(Bucket="sinks", Key="a/out/1.json", Body=b"another's")
    with pytest.raises(tm.TidemillError, match=r"s3://sinks/a/out/1\.json. exists already"):
        convert(inputs, server)
    assert written(bucket) == {**here, "1.json": b"another's"}
    convert(inputs, server, overwrite=True)
    assert written(bucket) == here
    assert uploads(bucket) == []


def test_a_killed_worker_leaves_nothing_of_what_it_sent(cluster, inputs, here, proxy, bucket, home):
    workers = connect("ray", memory=None)
    workers.look()
    places = workers.places()
    killed = []

    def rule(request):
        # The one that waits for an answer is among them.
        if not sends_part(request) or killed:
            return None
        killed.extend(process for _, process, *_ in places)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        return Stall()

    proxy.rules.append(rule)
    convert(inputs, proxy.url)
    assert killed
    assert written(bucket) == here
    assert uploads(bucket) == []
    assert remains(home) == []


def test_of_two_who_write_an_object_one_counts(cluster, inputs, here, proxy, bucket, home):
    # Its worker waits for an answer until somebody else has done the task.
    proxy.rules.append(first(1, Stall(), when=sends_part))
    convert(inputs, proxy.url)
    stalled = next(request for request in proxy.requests if sends_part(request))
    ids = {
        request.query["uploadId"]
        for request in proxy.requests
        if sends_part(request) and request.path == stalled.path
    }
    assert len(ids) == 2
    assert written(bucket) == here
    proxy.released.set()
    assert uploads(bucket) == []
    assert remains(home) == []


def test_uploads_that_cannot_be_thrown_away_now_are_by_a_later_run(
    cluster, inputs, here, proxy, bucket, home
):
    proxy.rules.append(always(Status(403, "AccessDenied"), when=throws_away))
    convert(inputs, proxy.url)
    assert written(bucket) == here
    assert uploads(bucket)
    # What was committed is, whatever becomes of it; what is left to do is noted.
    left = remains(home)
    assert len(left) == 1
    assert not {"manifest.json", "undo.json"} & {path.name for path in left[0].iterdir()}
    bucket.delete_object(Bucket="sinks", Key="a/out/0.json")
    proxy.rules.clear()
    tm.query(
        f"SELECT count() AS n FROM '{inputs}/1.csv'",
        output="s3://sinks/n.csv",
        storage_options=options(proxy.url),
    )
    bucket.delete_object(Bucket="sinks", Key="n.csv")
    assert written(bucket) == {name: here[name] for name in here if name != "0.json"}
    assert uploads(bucket) == []
    assert remains(home) == []


@pytest.fixture
def command(cluster, inputs, proxy, tmp_path):
    """Starts the built binary as a driver of its own."""
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    program = REPOSITORY / target / "release" / "tidemill"
    assert program.exists(), f"{program} is not built"
    # The cluster has three cores, which this process may have all.
    disconnect()
    environment = {
        **os.environ,
        "TIDEMILL_PYTHON": sys.executable,
        "TIDEMILL_HOME": str(tmp_path / "home"),
        "RAY_ADDRESS": cluster.address,
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_SECRET_ACCESS_KEY": "hush-hush",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ALLOW_HTTP": "true",
    }

    def start(*words):
        return subprocess.Popen(
            [program, *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "hush" not in out + err
    return err


@pytest.mark.parametrize(
    ("ends", "when"),
    [
        (signal.SIGKILL, sends_part),
        (signal.SIGKILL, completes),
        (signal.SIGINT, sends_part),
    ],
)
def test_a_driver_that_ends_leaves_none_of_a_set_or_all(
    command, inputs, here, proxy, bucket, tmp_path, ends, when
):
    words = ["convert", f"{inputs}/*.csv", "s3://sinks/a/out/", "--format", "json", "--on", "ray"]
    proxy.rules.append(always(Stall(), when))
    driver = command(*words)
    while not proxy.stalled.wait(1):
        assert driver.poll() is None, driver.communicate()
    # What is begun in this moment would be known to nobody.
    while noted(tmp_path / "home") < 2 * len(here.keys() - small(here)):
        assert driver.poll() is None, driver.communicate()
    driver.send_signal(ends)
    driver.communicate()
    assert driver.returncode == (130 if ends == signal.SIGINT else -ends)
    if ends == signal.SIGKILL:
        assert uploads(bucket)
    assert {key.removeprefix("a/out/") for key in objects(bucket)} <= small(here)
    proxy.rules.clear()
    # Whoever writes to the bucket next, on this machine, ends what was begun.
    ended(command("query", f"SELECT count() AS n FROM '{inputs}/1.csv'", "-o", "s3://sinks/n.csv"))
    bucket.delete_object(Bucket="sinks", Key="n.csv")
    assert written(bucket) == ({} if when is sends_part else here)
    assert uploads(bucket) == []
    assert remains(tmp_path / "home") == []
    if when is sends_part:
        said = ended(command(*words))
        assert "wrote 8 files in `s3://sinks/a/out/`" in said
        assert written(bucket) == here
        assert uploads(bucket) == []


def noted(home):
    """How many uploads a driver knows."""
    lines = (path.read_text() for path in home.glob("uploads/*/uploads.jsonl"))
    return sum(text.count('"id":"') for text in lines)


def small(here):
    """Those that one request writes, which a commit may have done."""
    return {name for name, content in here.items() if len(content) <= 256 << 10}


def test_a_bucket_that_takes_nothing_is_named(cluster, inputs, proxy, bucket, home):
    proxy.rules.append(always(Status(403, "AccessDenied"), when=sends_part))
    with pytest.raises(tm.TidemillError, match=r"cannot write `s3://sinks/a/out/") as refused:
        convert(inputs, proxy.url)
    assert "hush" not in str(refused.value)
    assert uploads(bucket) == []
    assert remains(home) == []
