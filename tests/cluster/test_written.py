"""Results whose files workers write: the files of one process, whoever is gone meanwhile."""

import os
import pathlib
import signal
import sys

import pytest
from test_sinks import (
    bucket,
    home,
    objects,
    options,
    proxy,
    remains,
    sends_part,
    uploads,
)

import tidemill as tm
from tidemill.ray import connect

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "remote"))

from faulty import Stall, Status, always, first

__all__ = ["bucket", "home", "proxy"]

SQL = "SELECT day, user, ms, note FROM '{logs}/*.csv' WHERE ms > 20"
#: Nine objects that are large enough to be sent in parts.
PAGES = SQL.replace("note", "note, page")


def files(folder):
    found = {}
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def here(logs, folder, name, sql=SQL):
    written = tm.query(sql.format(logs=logs), output=f"{folder}/here/{name}")
    return files(folder / "here"), written


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """More groups than come in the order of their keys."""
    folder = tmp_path_factory.mktemp("many")
    for file in range(3):
        lines = [f"{row * 3 + file},{row * 7919 % 1000}" for row in range(100_000)]
        (folder / f"{file}.csv").write_text("k,x\n" + "\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("name", ["all.csv", "{day}.csv", "{day}/part.json.gz", "{day}.parquet"])
def test_workers_write_rows_as_one_process_does(cluster, logs, tmp_path, name):
    expected, alone = here(logs, tmp_path, name)
    os.makedirs(tmp_path / "scratch")
    written = tm.query(
        SQL.format(logs=logs),
        output=f"{tmp_path}/there/{name}",
        on="ray",
        scratch=tmp_path / "scratch",
        scratch_above=0,
    )
    found = files(tmp_path / "there")
    assert found.keys() == expected.keys()
    if not name.endswith(".parquet"):
        assert found == expected
        assert written.bytes == alone.bytes
    assert (written.files, written.rows) == (alone.files, alone.rows)
    assert written.coverage == alone.coverage
    assert os.listdir(tmp_path / "scratch") == []


def test_workers_write_groups_as_one_process_does(cluster, many, tmp_path):
    sql = "SELECT k, sum(x) AS s, k % 5 AS part FROM '{logs}/*.csv' GROUP BY k"
    expected, alone = here(many, tmp_path, "{part}.csv", sql)
    written = tm.query(
        sql.format(logs=many),
        output=f"{tmp_path}/there/{{part}}.csv",
        on="ray",
        scratch=tmp_path,
        scratch_above=0,
    )
    assert files(tmp_path / "there") == expected
    assert (written.files, written.rows) == (alone.files, alone.rows) == (5, 300_000)


def test_one_file_is_converted_by_workers(cluster, logs, tmp_path, tidemill):
    tm.convert(f"{logs}/*.csv", tmp_path / "here.json", where="ms > 20")
    written = tm.convert(
        f"{logs}/*.csv",
        tmp_path / "there.json",
        where="ms > 20",
        on="ray",
        scratch=tmp_path,
        scratch_above="1k",
    )
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()
    assert written.files == 1
    with pytest.raises(tm.UsageError, match="nothing goes to scratch files"):
        tm.convert(f"{logs}/*.csv", f"{tmp_path}/f/", format="json", on="ray", scratch=tmp_path)


def to_bucket(logs, endpoint, name, scratch, **more):
    return tm.query(
        PAGES.format(logs=logs),
        output=f"s3://sinks/a/out/{name}",
        on="ray",
        scratch=scratch,
        scratch_above=0,
        storage_options=options(endpoint),
        **more,
    )


def written_there(bucket):
    return {
        key.removeprefix("a/out/"): bucket.get_object(Bucket="sinks", Key=key)["Body"].read()
        for key in objects(bucket)
    }


@pytest.mark.parametrize("name", ["all.json", "{page}.csv", "{day}/{user}.csv"])
def test_workers_send_objects(cluster, logs, proxy, bucket, home, tmp_path, name):
    sql = PAGES
    if name == "{day}/{user}.csv":
        sql += " AND user < 20"
    expected, alone = here(logs, tmp_path, name, sql)
    proxy.rules.append(first(5, Status(503), when=lambda it: it.method in ("PUT", "POST")))
    written = tm.query(
        sql.format(logs=logs),
        output=f"s3://sinks/a/out/{name}",
        on="ray",
        scratch=tmp_path,
        scratch_above=0,
        storage_options=options(proxy.url),
    )
    assert written_there(bucket) == expected
    assert (written.files, written.rows, written.bytes) == (alone.files, alone.rows, alone.bytes)
    large = [content for content in expected.values() if len(content) > 256 << 10]
    assert any(map(sends_part, proxy.requests)) == bool(large)
    assert uploads(bucket) == []
    assert remains(home) == []


def test_workers_that_are_killed_while_they_send_leave_nothing(
    cluster, logs, proxy, bucket, home, tmp_path
):
    expected, _ = here(logs, tmp_path, "{page}.csv", PAGES)
    workers = connect("ray", memory=None)
    workers.look()
    places = workers.places()
    killed = []

    def rule(request):
        if not sends_part(request) or killed:
            return None
        killed.extend(process for _, process, *_ in places)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        return Stall()

    proxy.rules.append(rule)
    to_bucket(logs, proxy.url, "{page}.csv", tmp_path)
    assert killed
    assert written_there(bucket) == expected
    assert uploads(bucket) == []
    assert remains(home) == []
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("tidemill-scratch")]
    assert left == []


def test_of_two_who_send_an_object_one_counts(cluster, logs, proxy, bucket, home, tmp_path):
    expected, _ = here(logs, tmp_path, "{page}.csv", PAGES)
    # Its worker waits for an answer until somebody else has done the task.
    proxy.rules.append(first(1, Stall(), when=sends_part))
    to_bucket(logs, proxy.url, "{page}.csv", tmp_path)
    assert written_there(bucket) == expected
    proxy.released.set()
    assert uploads(bucket) == []
    assert remains(home) == []


def test_a_bucket_that_takes_nothing_is_named(cluster, logs, proxy, bucket, home, tmp_path):
    proxy.rules.append(always(Status(403, "AccessDenied"), when=sends_part))
    with pytest.raises(tm.TidemillError, match=r"cannot write `s3://sinks/a/out/") as refused:
        to_bucket(logs, proxy.url, "{page}.csv", tmp_path)
    assert "hush" not in str(refused.value)
    assert objects(bucket) == []
    assert uploads(bucket) == []
    assert remains(home) == []


def test_what_is_there_is_refused_before_anything_is_read(cluster, logs, tmp_path):
    (tmp_path / "all.csv").write_text("another's")
    with pytest.raises(tm.OutputExistsError):
        tm.query(SQL.format(logs=logs), output=tmp_path / "all.csv", on="ray", scratch_above=0)
    assert (tmp_path / "all.csv").read_text() == "another's"
    tm.query(
        SQL.format(logs=logs),
        output=tmp_path / "all.csv",
        on="ray",
        scratch=tmp_path,
        scratch_above=0,
        overwrite=True,
    )
    expected, _ = here(logs, tmp_path, "all.csv")
    assert (tmp_path / "all.csv").read_bytes() == expected["all.csv"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"all.csv", "here"}


def test_another_memory_takes_the_cores_that_a_session_does_not_use(cluster, logs, tmp_path):
    sql = f"SELECT page, count(*) AS n FROM '{logs}/*.csv' GROUP BY page ORDER BY page"
    one = tm.query(sql, on="ray").to_pylist()
    two = tm.query(sql, on="ray", memory="300M").to_pylist()
    assert one == two == tm.query(sql, on="ray").to_pylist()
    assert tm.query("SELECT 7 AS seven", on="ray").to_pylist() == [{"seven": 7}]


def test_a_place_for_scratch_files_is_no_path_that_was_mistyped(cluster, logs, tmp_path):
    with pytest.raises(tm.TidemillError, match="nope"):
        tm.query(
            SQL.format(logs=logs),
            output=tmp_path / "out.csv",
            on="ray",
            scratch=tmp_path / "nope" / "deeper",
        )
    assert os.listdir(tmp_path) == []
    own = tmp_path / "own"
    tm.query(
        SQL.format(logs=logs), output=tmp_path / "out.csv", on="ray", scratch=own, scratch_above=0
    )
    assert os.listdir(tmp_path) == ["out.csv"]
