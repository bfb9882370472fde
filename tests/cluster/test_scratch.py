"""Where large tables go between workers: a bucket, whole and busy."""

import pathlib
import subprocess
import sys

import boto3
import pytest

import tidemill as tm

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "remote"))

from faulty import Proxy, Status, always, first

SQL = "SELECT user, ms, count(*) AS n, unique(page) AS pages FROM '{logs}/*.csv' GROUP BY user, ms"


@pytest.fixture(scope="module")
def bucket(server):
    client = boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id="key-id",
        aws_secret_access_key="hush-hush",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="scratch")
    return client


def options(endpoint, retries):
    return {
        "endpoint_url": endpoint,
        "allow_http": "true",
        "access_key_id": "key-id",
        "secret_access_key": "hush-hush",
        "region": "us-east-1",
        "max_retries": retries,
    }


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)]
    if subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def asked(logs, output, endpoint, retries="6"):
    return tm.query(
        SQL.format(logs=logs),
        output=output,
        on="ray",
        scratch="s3://scratch/some/place",
        scratch_above=0,
        storage_options=options(endpoint, retries),
    )


def left(bucket):
    found = bucket.list_objects_v2(Bucket="scratch").get("Contents", [])
    uploads = bucket.list_multipart_uploads(Bucket="scratch").get("Uploads", [])
    return [it["Key"] for it in [*found, *uploads]]


def test_a_bucket_takes_large_tables_and_is_empty_in_the_end(
    cluster, logs, server, bucket, tmp_path
):
    tm.query(SQL.format(logs=logs), output=tmp_path / "here.csv")
    with Proxy(server) as proxy:
        proxy.rules.append(
            first(5, Status(503), when=lambda it: it.method in ("PUT", "GET", "POST"))
        )
        asked(logs, tmp_path / "there.csv", proxy.url)
        assert sum(request.method == "PUT" for request in proxy.requests) > 3
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert left(bucket) == []


def test_a_bucket_that_takes_nothing_is_named_and_nothing_is_written(
    cluster, logs, server, bucket, tmp_path
):
    with Proxy(server) as proxy:
        proxy.rules.append(always(Status(503), when=lambda it: it.method in ("PUT", "POST")))
        with pytest.raises(tm.TidemillError, match=r"s3://scratch/some/place/.* 503") as refused:
            asked(logs, tmp_path / "there.csv", proxy.url, retries="1")
    assert "hush" not in str(refused.value)
    assert not (tmp_path / "there.csv").exists()
    assert left(bucket) == []


def test_a_scratch_disk_that_is_full_is_named_and_nothing_is_written(
    cluster, logs, small_disk, tmp_path
):
    output = tmp_path / "there.csv"
    output.write_text("theirs")
    with pytest.raises(tm.TidemillError, match=rf"{small_disk}/.*[Nn]o space left"):
        tm.query(
            SQL.format(logs=logs),
            output=output,
            overwrite=True,
            on="ray",
            scratch=small_disk,
            scratch_above=0,
        )
    assert output.read_text() == "theirs"
    assert list(small_disk.iterdir()) == []
    # There is room again.
    tm.query(SQL.format(logs=logs), output=tmp_path / "here.csv")
    tm.query(SQL.format(logs=logs), output=output, overwrite=True, on="ray")
    assert output.read_bytes() == (tmp_path / "here.csv").read_bytes()
