"""The Python package against the S3 server."""

import pyarrow
import pytest

import tidemill as tm


@pytest.fixture
def options(moto):
    return {
        "endpoint_url": moto,
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


def test_options_reach_sources_and_sinks(s3, options):
    s3.put_object(Bucket="logs", Key="in/a.csv", Body=b"k,n\na,1\nb,2\na,3\n")
    result = tm.query("SELECT sum(n) AS n FROM 's3://logs/in/*.csv'", storage_options=options)
    assert pyarrow.table(result).to_pylist() == [{"n": 6}]
    rows = tm.read_text("s3://logs/in/a.csv", columns=["n"], storage_options=options)
    assert pyarrow.table(rows)["n"].to_pylist() == [1, 2, 3]
    job = {
        "source": {"url": "s3://logs/in/a.csv"},
        "tables": {"by": ["k"], "n": "sum(n)"},
        "sink": {"url": "s3://logs/out/{k}.csv"},
    }
    written = tm.run(job, storage_options=options)
    assert (written.files, written.root) == (2, "s3://logs/out")
    assert s3.get_object(Bucket="logs", Key="out/a.csv")["Body"].read() == b"k,n\na,4\n"
    with pytest.raises(tm.OutputExistsError):
        tm.run(job, storage_options=options)
    job["source"]["storage_options"] = options
    job["sink"] = {"url": "s3://logs/2/{k}.csv", "storage_options": options}
    assert tm.run(job).files == 2


def test_what_cannot_be_had_is_pythons_own_error(s3, options):
    with pytest.raises(FileNotFoundError, match="no such file"):
        tm.query("SELECT * FROM 's3://logs/none.csv'", storage_options=options)
    with pytest.raises(ValueError, match=r"did you mean .region."):
        tm.query("SELECT 1 FROM 's3://logs/a.csv'", storage_options={"regoin": "x"})
    with pytest.raises(tm.UsageError, match="must be a str"):
        tm.query("SELECT 1", storage_options={"region": ["x"]})
    refused = options | {"endpoint_url": "http://127.0.0.1:1", "max_retries": 0}
    with pytest.raises(OSError, match="cannot read") as caught:
        tm.query("SELECT * FROM 's3://logs/a.csv'", storage_options=refused)
    assert "hush" not in str(caught.value)
