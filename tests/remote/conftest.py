"""The built binary against a real S3 server and against servers that misbehave.

The S3 server is moto's, on a free port of loopback, in this process; what it does not do by
itself (503s, cut bodies, stalls, an object replaced between two requests) a proxy in front of
it does, see `faulty.py`.
"""

import os
import pathlib
import subprocess

import boto3
import pytest
from moto.server import ThreadedMotoServer

from faulty import Proxy

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def program():
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    path = REPOSITORY / target / "release" / "tidemill"
    assert path.exists(), f"{path} is not built: cargo build --release --package tidemill-cli"
    return str(path)


@pytest.fixture(scope="session")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def proxy(moto):
    """A way to the S3 server on which faults can be put."""
    with Proxy(moto) as proxy:
        yield proxy


@pytest.fixture
def s3(moto):
    client = boto3.client(
        "s3",
        endpoint_url=moto,
        aws_access_key_id="key-id",
        aws_secret_access_key="hush-hush",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="logs")
    yield client
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="logs"):
        if keys := [{"Key": item["Key"]} for item in page.get("Contents", [])]:
            client.delete_objects(Bucket="logs", Delete={"Objects": keys, "Quiet": True})
    for upload in client.list_multipart_uploads(Bucket="logs").get("Uploads", []):
        client.abort_multipart_upload(Bucket="logs", Key=upload["Key"], UploadId=upload["UploadId"])
    client.delete_bucket(Bucket="logs")


class Tidemill:
    """The binary with an environment of its own."""

    def __init__(self, folder, endpoint):
        self.folder = folder
        self.environment = {
            "PATH": os.environ.get("PATH", ""),
            "TIDEMILL_HOME": str(folder / "home"),
            "AWS_ACCESS_KEY_ID": "key-id",
            "AWS_SECRET_ACCESS_KEY": "hush-hush",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [program(), *arguments],
            env=self.environment | environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, expect=0, **environment):
        process = self.start(*arguments, **environment)
        # Far more than it takes: a run that hangs is a failure that says so.
        out, err = process.communicate(timeout=600)
        assert process.returncode == expect, f"{process.returncode}\n{out}\n{err}"
        assert "hush" not in out + err, "a secret is shown"
        return out if expect == 0 else err

    def query(self, sql, *arguments, **keywords):
        return self.run("query", sql, *arguments, **keywords)


@pytest.fixture
def tidemill(tmp_path, moto):
    return Tidemill(tmp_path, moto)


@pytest.fixture
def through_proxy(tmp_path, proxy):
    tidemill = Tidemill(tmp_path, proxy.url)
    # So that what never succeeds fails soon.
    tidemill.quick = ("--storage-option", "max_retries=2")
    return tidemill
