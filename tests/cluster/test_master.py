"""A master that stays on the cluster, and is asked over HTTP."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
import ray

import tidemill as tm
from tidemill.ray import disconnect

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

STATEMENTS = [
    "SELECT page, count(*) AS n, sum(ms) AS ms, avg(ms) AS mean, unique(user) AS users "
    "FROM '{logs}/*.csv' GROUP BY page ORDER BY page",
    "SELECT page, collect(user, 3) AS first, top_k(user, 2) AS top FROM '{logs}/*.csv' "
    "GROUP BY page ORDER BY page",
    "SELECT user, ms, count(*) AS n FROM '{logs}/*.csv' GROUP BY user, ms",
    "SELECT page, ms * 2 AS double, note FROM '{logs}/*.csv' WHERE ms > 70",
]


class Standing:
    """A master with a state folder of its own."""

    def __init__(self, cluster, home, *words):
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        self.program = REPOSITORY / target / "release" / "tidemill"
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            "TIDEMILL_HOME": str(home),
            "TIDEMILL_PYTHON": sys.executable,
        }
        disconnect()
        up = self.run("cluster", "up", *words, RAY_ADDRESS=cluster.address)
        assert up.returncode == 0, up.stderr
        self.said = up.stderr
        self.address = up.stdout.strip()
        self.token = self.run("cluster", "token").stdout.strip()
        self.admin_token = self.run("cluster", "token", "--admin").stdout.strip()
        self.host, self.port = self.address.partition("://")[2].split(":")

    def run(self, *words, **environment):
        return subprocess.run(
            [self.program, *map(str, words)],
            capture_output=True,
            text=True,
            env={**self.environment, **environment},
            timeout=240,
        )

    def asks(self, method, path, body=None, headers=()):
        """Ask as any client of HTTP does."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=60)
        given = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def jobs(self):
        told = self.run("cluster", "jobs", "--format", "json")
        assert told.returncode == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    def status(self):
        return json.loads(self.run("cluster", "status", "--format", "json").stdout)


def until(condition):
    """Wait for what is going to be so."""
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture(scope="module")
def standing(cluster, logs, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    standing = Standing(cluster, home, "--allow-paths", logs)
    yield standing
    if (home / "master.json").exists():
        assert standing.run("cluster", "down").returncode == 0


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_answers_are_the_bytes_of_one_machine(standing, logs, statement, suffix, tmp_path):
    sql = statement.format(logs=logs)
    here, there = tmp_path / f"here.{suffix}", tmp_path / f"there.{suffix}"
    one = standing.run("query", sql, "--output", here, "--coverage", tmp_path / "here.cov")
    other = standing.run(
        "query", sql, "--output", there, "--coverage", tmp_path / "there.cov", "--on", "master"
    )
    assert one.returncode == 0, one.stderr
    assert other.returncode == 0, other.stderr
    assert there.read_bytes() == here.read_bytes()
    assert other.stderr.replace("there", "here") == one.stderr
    coverages = [json.loads((tmp_path / f"{name}.cov").read_text()) for name in ("here", "there")]
    assert coverages[0]["rows"] == coverages[1]["rows"]
    assert coverages[0]["bytes"] == coverages[1]["bytes"]


def test_neither_python_nor_ray_is_needed_to_ask(standing, logs, tmp_path):
    sql = STATEMENTS[0].format(logs=logs)
    here = standing.run("query", sql)
    there = standing.run(
        "query",
        sql,
        "--on",
        standing.address,
        TIDEMILL_HOME=str(tmp_path),
        TIDEMILL_TOKEN=standing.token,
        TIDEMILL_PYTHON="/nowhere/python",
        PATH="",
    )
    assert there.returncode == 0, there.stderr
    assert (there.stdout, there.stderr) == (here.stdout, here.stderr)


def test_a_run_there_is_in_the_job_log_here(standing, logs):
    sql = STATEMENTS[0].format(logs=logs)
    assert standing.run("query", sql, "--on", "master").returncode == 0
    listed = standing.run("jobs", "list", "--format", "json", "--last", "1").stdout
    run = json.loads(listed)
    assert run["steps"][0]["rows_in"] == 120_000
    assert sum(worker["bytes_in"] for worker in run["workers"]) == run["steps"][0]["bytes_in"]
    assert standing.token not in listed


def test_a_job_and_a_conversion_write_their_files_here(standing, logs, tmp_path):
    def job(folder):
        text = f"""
            source.url = '{logs}/*.csv'
            sink.url = '{folder}/{{day}}.csv'
            [tables]
            by = ['day', 'page']
            n = 'count(*)'
            users = 'unique(user)'
        """
        path = tmp_path / f"{folder.name}.toml"
        path.write_text(text)
        return path

    here, there = tmp_path / "here", tmp_path / "there"
    one = standing.run("run", job(here))
    other = standing.run("run", job(there), "--on", "master")
    assert one.returncode == 0, one.stderr
    assert other.returncode == 0, other.stderr
    names = sorted(path.name for path in here.iterdir())
    assert len(names) == 28 and names == sorted(path.name for path in there.iterdir())
    assert all((here / name).read_bytes() == (there / name).read_bytes() for name in names)

    words = ["--select", "page, user", "--where", "ms > 100"]
    files = ["convert", f"{logs}/*.csv"]
    assert standing.run(*files, tmp_path / "here.json", *words).returncode == 0
    other = standing.run(*files, tmp_path / "there.json", *words, "--on", "master")
    assert other.returncode == 0, other.stderr
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()


def test_python_asks_a_master_too(standing, logs, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(standing.home))
    sql = STATEMENTS[0].format(logs=logs)
    result = tm.query(sql, on="master")
    assert result.to_pylist() == tm.query(sql).to_pylist()
    assert result.coverage["rows"]["done"] == 120_000
    assert tm.query(sql, on=standing.address, params=None).to_pylist() == result.to_pylist()
    job = {"source": {"url": f"{logs}/*.csv"}, "tables": {"by": ["page"], "n": "count(*)"}}
    assert tm.run(job, on="master").to_pylist() == tm.run(job).to_pylist()
    assert tm.ray.status()["workers"] == 3
    assert tm.ray.jobs()[0]["state"] == "done"
    assert tm.ray.token() == standing.token
    assert tm.ray.token(admin=True) == standing.admin_token
    with pytest.raises(tm.UsageError, match="runs elsewhere"):
        tm.explain(sql, on="master", cluster="cores=8")
    with pytest.raises(tm.UsageError, match="in this program's memory"):
        tm.query("SELECT * FROM rows", rows=[{"a": 1}], on="master")


def own(rows):
    """Rows without their bounds, which are sums of floats in whichever order."""
    is_bound = re.compile("_(low|high)$").search
    return [{name: it for name, it in row.items() if not is_bound(name)} for row in rows]


def test_a_part_of_the_input_is_that_of_one_machine(standing, logs, monkeypatch, tmp_path):
    monkeypatch.setenv("TIDEMILL_HOME", str(standing.home))
    sql = STATEMENTS[0].format(logs=logs)
    options = {"sample": 0.2, "seed": 5, "split_bytes": "8k"}
    here = tm.query(sql, **options)
    rows = own(here.to_pylist())
    there = tm.query(sql, on="master", **options)
    assert own(there.to_pylist()) == rows
    for what in ["rows", "bytes", "splits"]:
        assert there.coverage[what] == here.coverage[what]
    assert there.coverage["sampled"]["share"] == here.coverage["sampled"]["share"]
    words = ["--sample", "20%", "--seed", "5", "--split-bytes", "8k", "--no-intervals"]
    here = standing.run("query", sql, *words)
    there = standing.run("query", sql, *words, "--on", "master")
    assert there.returncode == here.returncode == 3
    assert there.stdout == here.stdout
    # Rows that are found anywhere.
    found = standing.run("query", STATEMENTS[3].format(logs=logs), "--find", "7", "--on", "master")
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) > 7
    # A deadline by which all has been read is exact.
    exact = standing.run("query", sql, "--deadline", "1h", "--no-intervals", "--on", "master")
    assert exact.returncode == 0, exact.stderr
    assert exact.stdout == standing.run("query", sql).stdout


def test_an_answer_sharpens_and_is_enough_when_that_is_said(standing, logs, much, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(standing.home))
    sql = f"SELECT page, count(*) AS n FROM '{much}' GROUP BY page ORDER BY page"
    shares = []
    for answer in tm.query(sql, progressive=True, deadline="1h", split_bytes="16k", on="master"):
        shares.append(answer.coverage["sampled"]["share"])
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    row = answer.to_pylist()[0]
    assert row["n"] == row["n_low"]
    # What takes for ever, but for the one who has seen enough.
    slow = SLOW.format(much).replace("AS n", "AS n, count(*) AS c")
    words = ["--deadline", "1h", "--split-bytes", "1k", "--on", "master"]
    with subprocess.Popen(
        [standing.program, "query", slow, *words],
        env=standing.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as client:
        until(lambda: standing.status()["running"] == 1)
        until(lambda: any(job["state"] == "running" for job in standing.jobs()))
        client.send_signal(signal.SIGINT)
        out, said = client.communicate()
    assert client.returncode in (3, 130), said
    if client.returncode == 3:
        assert "stopped when it was asked to" in said
        assert out.startswith("n,n_low,n_high,c,c_low,c_high")


def test_a_master_explains_and_keeps_partial_tables(standing, logs, monkeypatch, tmp_path):
    monkeypatch.setenv("TIDEMILL_HOME", str(standing.home))
    sql = STATEMENTS[0].format(logs=logs)
    told = standing.run("query", sql, "--explain", "--on", "master")
    assert told.returncode == 0, told.stderr
    assert "on a cluster: 3 workers" in told.stdout
    told = standing.run("query", sql, "--explain", "--format", "json", "--on", "master")
    assert json.loads(told.stdout)["elsewhere"]["workers"] == 3
    assert tm.explain(sql, on="master").elsewhere["workers"] == 3
    job = tmp_path / "job.toml"
    job.write_text(
        f"source.url = '{logs}/*.csv'\ntables.by = ['page']\ntables.n = 'count(*)'\n"
        f"sink.url = '{tmp_path}/out.csv'\n"
    )
    told = standing.run("run", job, "--dry-run", "--on", "master")
    assert told.returncode == 0, told.stderr
    assert "on a cluster: 3 workers" in told.stdout
    assert "sink: " in told.stdout
    assert "out.csv" in told.stdout
    kept = [tmp_path / "here.part", tmp_path / "there.part"]
    for path, on in zip(kept, [[], ["--on", "master"]], strict=True):
        done = standing.run("run", job, "--partial", path, *on)
        assert done.returncode == 0, done.stderr
    merged = [standing.run("merge", path) for path in kept]
    assert merged[0].returncode == 0, merged[0].stderr
    assert (merged[1].stdout, merged[1].returncode) == (merged[0].stdout, 0)
    again = standing.run("run", job, "--partial", kept[1], "--on", "master")
    assert again.returncode != 0
    assert "overwrite" in again.stderr
    mapping = {"source": {"url": f"{logs}/*.csv"}, "tables": {"by": ["page"], "n": "count(*)"}}
    tm.run(mapping, partial=tmp_path / "python.part", on="master")
    assert standing.run("merge", tmp_path / "python.part").stdout == merged[0].stdout


def test_errors_are_those_of_one_machine(standing, logs, monkeypatch):
    path = logs / "bad" / "a.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("k,x\na,1\nb,2\nc,three\n")
    monkeypatch.setenv("TIDEMILL_HOME", str(standing.home))
    typed = {"schema": "x BIGINT"}
    for sql, options, kind in [
        (f"SELECT k, sum(x) FROM '{path}' GROUP BY k", typed, tm.BadRecordError),
        (f"SELECT k, sum(y) FROM '{path}' GROUP BY k", {}, tm.UsageError),
        (f"SELECT * FROM '{logs}/none.csv'", {}, tm.NotFoundError),
        ("SELECT", {}, tm.UsageError),
    ]:
        said = []
        for on in [None, "master"]:
            with pytest.raises(kind) as raised:
                tm.query(sql, on=on, **options).to_pylist()
            said.append(str(raised.value))
        assert said[0] == said[1]
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        here = standing.run("query", sql, *words)
        there = standing.run("query", sql, *words, "--on", "master")
        assert there.returncode == here.returncode
        assert there.stderr == here.stderr
    # Records that may be wrong are told of, and no copies are kept there.
    sql = f"SELECT k, x FROM '{path}'"
    words = ["query", sql, "--schema", "x BIGINT", "--max-bad", "1"]
    here, there = standing.run(*words), standing.run(*words, "--on", "master")
    assert (there.returncode, there.stdout) == (here.returncode, "k,x\na,1\nb,2\n")
    assert "1 record rejected" in there.stderr and "copies" not in there.stderr


def test_a_wrong_token_is_refused_and_none_is_shown(standing, logs, tmp_path):
    sql = STATEMENTS[0].format(logs=logs)
    wrong = "wrong-token-that-nobody-may-see"
    asked = standing.run("query", sql, "--on", standing.address, TIDEMILL_TOKEN=wrong)
    assert asked.returncode == 2
    assert "does not take this token" in asked.stderr and wrong not in asked.stderr
    file = tmp_path / "token"
    file.write_text(standing.token + "\n")
    asked = standing.run("query", "SELECT 1", "--on", standing.address, "--token-file", file)
    assert asked.returncode == 0 and asked.stdout == "1\n1\n"
    # What could take all of the master's time.
    words = ("SELECT count(*) AS n FROM range(100000000000)", "--on", standing.address)
    asked = standing.run("query", *words, "--token-file", file)
    assert asked.returncode == 2 and "cannot be run on a cluster" in asked.stderr
    none = standing.run("query", sql, "--on", standing.address, TIDEMILL_HOME=str(tmp_path))
    assert none.returncode == 2 and "there is no token for" in none.stderr
    far = standing.run("query", sql, "--on", "http://head.example.org:80")
    assert far.returncode == 2 and "shows the token" in far.stderr
    for headers in [
        {"Authorization": "Bearer "},
        {"Authorization": "Basic abc"},
        {"Authorization": f"Basic {standing.token}"},
        {"Authorization": f"Bearer {standing.token[:-1]}"},
        {"Authorization": f"Bearer {standing.token}x"},
        {"Authorization": ""},
    ]:
        for method, path in [("GET", "/v1/status"), ("POST", "/v1/jobs"), ("POST", "/v1/down")]:
            status, body = standing.asks(method, path, b"{}", headers)
            assert status == 401 and standing.token.encode() not in body
    mode = (standing.home / "master.json").stat().st_mode
    assert mode & 0o777 == 0o600
    # The tokens are in no argument of a process and in no log of Ray.
    assert standing.admin_token != standing.token
    for token in [standing.token.encode(), standing.admin_token.encode()]:
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                assert token not in (process / "cmdline").read_bytes()
        for log in pathlib.Path("/tmp/ray/session_latest/logs").glob("**/*"):
            if log.is_file():
                assert token not in log.read_bytes()


def test_query_token_neither_ends_the_master_nor_shows_statements_of_others(
    standing, logs, monkeypatch, tmp_path
):
    sql = f"SELECT count(*) AS secret FROM '{logs}/0.csv'"
    own = {"TIDEMILL_HOME": str(tmp_path / "own"), "TIDEMILL_TOKEN": standing.token}
    other = {**own, "TIDEMILL_HOME": str(tmp_path / "other")}
    on = ["--on", standing.address]
    assert standing.run("query", sql, *on, **own).returncode == 0

    def listed(**environment):
        told = standing.run("cluster", "jobs", *on, "--format", "json", **environment)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout.splitlines()[0])

    assert (listed(**own)["shown"], listed(**own)["peer"]) == (sql, "127.0.0.1")
    assert (listed(**other)["shown"], listed(**other)["peer"]) == (None, None)
    assert listed(**other)["state"] == "done"
    # The client id is private and does not contain the token.
    client_id = tmp_path / "own" / "client-id"
    assert client_id.stat().st_mode & 0o777 == 0o600
    assert standing.token not in client_id.read_text()
    # The admin token from the starter's state folder, a variable, and a file.
    file = tmp_path / "admin-token"
    file.write_text(standing.admin_token + "\n")
    assert listed()["shown"] == sql
    assert listed(**other, TIDEMILL_ADMIN_TOKEN=standing.admin_token)["shown"] == sql
    words = [*on, "--admin-token-file", file, "--format", "json"]
    assert sql in standing.run("cluster", "jobs", *words, **other).stdout
    assert sql in standing.run("cluster", "jobs", *words).stdout
    for words in [[], ["--token-file", tmp_path / "token"]]:
        (tmp_path / "token").write_text(standing.token)
        down = standing.run("cluster", "down", *on, *words, **other)
        assert down.returncode == 2
        assert "this is the query token, which does not end a master" in down.stderr
        assert "the admin token does: --admin-token-file FILE" in down.stderr
    for name, value in other.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(tm.UsageError, match="query token"):
        tm.ray.down(standing.address)
    assert tm.ray.jobs(standing.address)[0]["shown"] is None
    assert tm.ray.jobs(standing.address, admin_token_file=file)[0]["shown"] == sql
    assert standing.status()["workers"] == 3


def test_what_is_too_large_or_no_request_is_refused(standing):
    question = {"format": 1, "verb": "query", "sql": "SELECT 1"}
    large = json.dumps({**question, "shown": "x" * (1 << 20)}).encode()
    assert standing.asks("POST", "/v1/jobs", large)[0] == 413
    assert standing.asks("POST", "/v1/jobs", b"{", {"Content-Length": "9" * 30})[0] == 413
    assert standing.asks("POST", "/v1/jobs", b"{", {"Content-Length": "-1"})[0] == 411
    assert standing.asks("POST", "/v1/jobs", b"[" * 500_000)[0] == 400
    assert standing.asks("POST", "/v1/jobs", b'{"format":2,"verb":"query","sql":""}')[0] == 400
    unknown = json.dumps({**question, "sink": "/tmp/out.csv"}).encode()
    assert standing.asks("POST", "/v1/jobs", unknown)[0] == 400
    assert standing.asks("GET", "/v1/none")[0] == 404
    assert standing.asks("DELETE", "/v1/jobs")[0] == 405
    assert standing.asks("GET", "/v1/status", headers={"X": "y" * (20 << 10)})[0] == 431
    deep = "(" * 100_000 + "1" + ")" * 100_000
    status, body = standing.asks(
        "POST", "/v1/jobs", json.dumps({**question, "sql": f"SELECT {deep}"}).encode()
    )
    assert status == 200 and b'"is":"failed"' in body
    for sent in [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"\0" * 999]:
        with socket.create_connection((standing.host, int(standing.port)), timeout=60) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            received = b""
            while piece := client.recv(1 << 16):
                received += piece
            assert not received or received.startswith(b"HTTP/1.1 4")
    assert standing.status()["running"] == 0


def test_who_sends_nothing_keeps_nobody_out(standing, logs):
    with contextlib.ExitStack() as held:
        for _ in range(200):
            client = socket.create_connection((standing.host, int(standing.port)), timeout=60)
            held.enter_context(client)
            client.sendall(b"POST /v1/jobs HTTP/1.1\r\n")
        asked = standing.run("query", STATEMENTS[0].format(logs=logs), "--on", "master")
        assert asked.returncode == 0, asked.stderr


def test_files_outside_and_programs_are_refused(standing, logs, tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text("k,x\na,1\n")
    link = logs / "link.csv.link"
    link.unlink(missing_ok=True)
    link.symlink_to(outside)
    for url in [
        outside,
        f"file://{outside}",
        f"{tmp_path}/*.csv",
        f"{logs}/../{logs.name}/../../etc/passwd",
        f"{logs}/{{0.csv,../../../etc/passwd}}",
        link,
        "/etc/passwd",
        "/proc/self/environ",
        "relative.csv",
        "-",
    ]:
        sql = f"SELECT count(*) AS n FROM '{url}'"
        asked = standing.run("query", sql, "--source-format", "lines", "--on", "master")
        assert asked.returncode == 2, url
        assert "below the folders" in asked.stderr or "standard input" in asked.stderr, asked.stderr
        assert "root:" not in asked.stdout + asked.stderr
    link.unlink()
    # Each source alone is within the limit of alternatives.
    many = "{a,b}" * 16
    sql = f"SELECT * FROM '{logs}/x{many}.csv' UNION ALL SELECT * FROM '{logs}/y{many}.csv'"
    asked = standing.run("query", sql, "--on", "master")
    assert asked.returncode == 2 and "100000 alternatives" in asked.stderr, asked.stderr
    for url in ["http://169.254.169.254/latest/meta-data/a.csv", "http://0xa9fea9fe/a.csv"]:
        asked = standing.run("query", f"SELECT * FROM '{url}'", "--on", "master")
        assert asked.returncode == 1 and "for the machine alone" in asked.stderr, asked.stderr
    sql = f"SELECT count(*) AS n FROM '{logs}/0.csv'"
    asked = standing.run("query", sql, "--source-exec", "cat", "--on", "master")
    assert asked.returncode == 2 and "runs no programs" in asked.stderr
    for option in [
        "web_identity_token_file=/etc/passwd",
        "container_authorization_token_file=/etc/passwd",
        "proxy_url=http://127.0.0.1:1",
        "proxy_ca_certificate=x",
        "metadata_endpoint=http://127.0.0.1:1",
        "endpoint_url=http://127.0.0.1:1",
        "read_cache=1G",
        "read_cache_dir=/tmp/none",
    ]:
        asked = standing.run(
            "query", sql, "--storage-option", option, "--on", "master", TIDEMILL_READ_CACHE="off"
        )
        assert asked.returncode == 2, option
        assert "not taken from those who ask" in asked.stderr or "credentials of your own" in (
            asked.stderr
        ), asked.stderr


def test_a_posted_query_leads_the_clusters_credentials_nowhere(standing):
    recorder = socket.create_server(("127.0.0.1", 0))
    recorder.setblocking(False)
    place = f"127.0.0.1:{recorder.getsockname()[1]}"
    for options, why in [
        ({"region": f"x@{place}/"}, "is no region"),
        ({"default_region": f"x@{place}/", "virtual_hosted_style_request": "true"}, "is no region"),
        ({"endpoint_url": f"http://{place}"}, "credentials of your own"),
        ({"endpoint_url": f"http://{place}", "skip_signature": "false"}, "credentials of your own"),
        ({"endpoint_url": f"http://{place}", "session_token": "t"}, "credentials of your own"),
        ({"allow_http": "true"}, "credentials of your own"),
        ({"proxy_url": f"http://{place}"}, "not taken from those who ask"),
        ({"max_retries": "1000000"}, "at most 20"),
    ]:
        source = {"url": "s3://bucket/a.csv", "storage_options": options}
        question = {"format": 1, "verb": "query", "sql": "SELECT * FROM source"}
        question["sources"] = [["source", source]]
        status, told = standing.asks("POST", "/v1/jobs", json.dumps(question))
        told = json.loads(told)
        assert status == 400, (options, told)
        assert why in f"{told['message']} {told['hint']}", (options, told)
    question = {"format": 1, "verb": "query", "sql": "SELECT 1", "max_attempts": 1000}
    status, told = standing.asks("POST", "/v1/jobs", json.dumps(question))
    assert status == 400 and "`max_attempts` is 1000" in json.loads(told)["message"]
    with pytest.raises(BlockingIOError):
        recorder.accept()
    recorder.close()


SLOW = "SELECT sum(length(regexp_replace(note || page, '(.*)(.*)(.*)x', 'y', 'g'))) AS n FROM '{}'"


@pytest.fixture(scope="module")
def much(logs):
    """Enough to be at work until it is ended."""
    folder = logs / "much"
    folder.mkdir()
    text = (logs / "0.csv").read_text()
    for file in range(40):
        (folder / f"{file}.csv").write_text(text)
    return f"{folder}/*.csv"


def test_who_is_killed_or_interrupted_ends_the_run_there(standing, logs, much):
    for end in [signal.SIGKILL, signal.SIGINT]:
        before = standing.status()["ended"]
        client = subprocess.Popen(
            [standing.program, "query", SLOW.format(much), "--on", "master"],
            env=standing.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: standing.status()["running"] == 1)
        client.send_signal(end)
        client.communicate()
        assert client.returncode == (-9 if end == signal.SIGKILL else 130)
        until(lambda before=before: standing.status()["ended"] == before + 1)
        assert standing.jobs()[0]["state"] == "cancelled"
        assert standing.status()["running"] == 0
    asked = standing.run("query", STATEMENTS[0].format(logs=logs), "--on", "master")
    assert asked.returncode == 0, asked.stderr


def test_of_several_jobs_the_highest_goes_first(standing, logs, much):
    low = [
        subprocess.Popen(
            [standing.program, "query", SLOW.format(much), "--on", "master", "--priority", "low"],
            env=standing.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(6)
    ]
    try:
        # Four have places, and two wait.
        until(lambda: standing.status() | {"waiting": 2, "running": 4} == standing.status())
        for priority in ["high", "normal"]:
            sql = STATEMENTS[0].format(logs=logs)
            asked = standing.run("query", sql, "--on", "master", "--priority", priority)
            assert asked.returncode == 0, asked.stderr
            # None of those that came before has ended.
            assert all(client.poll() is None for client in low)
        assert {job["priority"] for job in standing.jobs() if job["state"] == "running"} == {"low"}
    finally:
        for client in low:
            client.kill()
            client.wait()
    until(lambda: standing.status()["running"] == standing.status()["waiting"] == 0)


def test_clients_that_stop_reading_block_nobody(standing, logs, much):
    sql = f"SELECT * FROM '{much}'"
    question = {"format": 1, "verb": "query", "shown": sql, "sql": sql, "priority": "high"}
    question = json.dumps(question).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {standing.token}\r\n"
    with contextlib.ExitStack() as held:
        for _ in range(12):
            client = socket.socket()
            held.enter_context(client)
            # Make the receive buffer smaller than the answer.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            client.connect((standing.host, int(standing.port)))
            client.sendall(f"{head}Content-Length: {len(question)}\r\n\r\n".encode() + question)
        until(lambda: standing.status()["suspended"] == 12)
        sql = STATEMENTS[0].format(logs=logs)
        asked = standing.run("query", sql, "--on", "master", "--priority", "low")
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout == standing.run("query", sql).stdout
        status = standing.status()
        assert (status["running"], status["suspended"]) == (0, 12)
    until(lambda: standing.status()["suspended"] == 0)


def test_several_ask_at_once(standing, logs):
    here = [standing.run("query", sql.format(logs=logs)).stdout for sql in STATEMENTS]
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        asked = [
            pool.submit(standing.run, "query", sql.format(logs=logs), "--on", "master")
            for _ in range(3)
            for sql in STATEMENTS
        ]
        for query, expected in zip(asked, here * 3, strict=True):
            assert query.result().returncode == 0, query.result().stderr
            assert query.result().stdout == expected


def test_a_worker_that_is_killed_takes_nothing_with_it(standing, logs, cluster):
    sql = STATEMENTS[1].format(logs=logs)
    here = standing.run("query", sql).stdout
    for worker in _workers():
        os.kill(worker, signal.SIGKILL)
        there = standing.run("query", sql, "--on", "master")
        assert there.returncode == 0, there.stderr
        assert there.stdout == here


def _workers():
    """The processes of actors that hold the engine."""
    return _processes(b"ray::Worker")


def _processes(title):
    """The actors of this cluster, of which the parents know its address; others' are none."""
    address = ray.get_runtime_context().gcs_address.encode()
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(title):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if address in pathlib.Path(f"/proc/{parent}/cmdline").read_bytes():
                    found.append(int(process.name))
    return found


def test_machines_that_come_later_are_used(standing, logs, cluster):
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    try:
        cluster.wait_for_nodes()
        asked = ["query", STATEMENTS[0].format(logs=logs), "--on", "master"]

        def is_used():
            told = standing.run(*asked)
            assert told.returncode == 0, told.stderr
            return standing.status()["workers"] == 4

        until(is_used)
        assert standing.status()["machines"] == 4
    finally:
        cluster.remove_node(node)

    def is_done_without():
        told = standing.run(*asked)
        assert told.returncode == 0, told.stderr
        return standing.status()["workers"] == 3

    until(is_done_without)


def test_there_is_one_master_and_down_ends_all_of_it(standing, cluster, logs):
    again = standing.run("cluster", "up", RAY_ADDRESS=cluster.address)
    assert again.returncode == 2 and "has a master already" in again.stderr
    assert len(_workers()) == 3 and len(_processes(b"ray::Master")) == 1
    assert "3 workers on 3 machines, 3 threads" in standing.said
    shown = standing.run("cluster", "status").stdout
    assert "workers   3\n" in shown
    assert standing.run("cluster", "down").returncode == 0
    until(lambda: not _workers() and not _processes(b"ray::Master"))
    assert not (standing.home / "master.json").exists()
    asked = standing.run("query", "SELECT 1", "--on", "master")
    assert asked.returncode == 2 and "no master was started" in asked.stderr
    gone = standing.run(
        "query", "SELECT 1", "--on", standing.address, TIDEMILL_TOKEN=standing.token
    )
    assert gone.returncode == 1 and "not reached" in gone.stderr


def test_a_master_that_is_killed_leaves_nothing(cluster, logs, tmp_path):
    much = logs / "much"
    standing = Standing(cluster, tmp_path / "home", "--allow-paths", logs)
    output = tmp_path / "out.csv"
    client = subprocess.Popen(
        [
            *[standing.program, "query", SLOW.format(f"{much}/*.csv"), "--on", "master"],
            *["--output", output],
        ],
        env=standing.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: standing.status()["running"] == 1)
    (master,) = _processes(b"ray::Master")
    os.kill(master, signal.SIGKILL)
    _, said = client.communicate()
    assert client.returncode == 1, said
    assert "connection was lost" in said or "ends in the middle" in said, said
    assert not output.exists()
    until(lambda: not _workers() and not _processes(b"ray::Master"))
    # Its address is left, and another takes its place.
    asked = standing.run("query", STATEMENTS[0].format(logs=logs), "--on", "master")
    assert asked.returncode == 1 and "not reached" in asked.stderr
    anew = Standing(cluster, standing.home, "--allow-paths", logs)
    asked = anew.run("query", STATEMENTS[0].format(logs=logs), "--on", "master")
    assert asked.returncode == 0, asked.stderr
    assert anew.run("cluster", "down").returncode == 0
    until(lambda: not _workers() and not _processes(b"ray::Master"))


def test_what_listens_beyond_this_machine_needs_a_certificate(cluster, logs, tmp_path):
    with pytest.raises(tm.UsageError, match="plain sight"):
        tm.ray.up(listen="0.0.0.0:0")
    with pytest.raises(tm.UsageError, match="no address to listen at"):
        tm.ray.up(listen="localhost")
    openssl = subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            *["-nodes", "-days", "2", "-subj", "/CN=localhost"],
            *["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
            *["-addext", "basicConstraints=critical,CA:FALSE"],
            *["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        ],
        capture_output=True,
    )
    assert openssl.returncode == 0, openssl.stderr
    standing = Standing(
        cluster,
        tmp_path / "home",
        *["--listen", "127.0.0.1:0", "--certificate", tmp_path / "cert.pem"],
        *["--key", tmp_path / "key.pem", "--token-file", tmp_path / "token"],
        *["--admin-token-file", tmp_path / "admin-token", "--max-jobs-per-peer", "1"],
        *["--allow-paths", logs, "--allow-programs", "--workers", "2"],
    )
    try:
        assert standing.address.startswith("https://")
        for name, token in [("token", standing.token), ("admin-token", standing.admin_token)]:
            assert (tmp_path / name).read_text().strip() == token
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        sql = STATEMENTS[3].format(logs=logs)
        trusted = {"SSL_CERT_FILE": str(tmp_path / "cert.pem")}
        there = standing.run("query", sql, "--on", "master", "--source-exec", "cat", **trusted)
        assert there.returncode == 0, there.stderr
        assert there.stdout == standing.run("query", sql).stdout
        unknown = standing.run("query", sql, "--on", "master")
        assert unknown.returncode == 1 and "not reached" in unknown.stderr
        status = standing.run("cluster", "status", "--format", "json", **trusted)
        assert json.loads(status.stdout)["workers"] == 2

        def told(what):
            run = standing.run("cluster", "status", "--format", "json", **trusted)
            return json.loads(run.stdout)[what]

        # Who closes its end is gone, through TLS too.
        until(lambda: told("running") == 0)
        client = subprocess.Popen(
            [standing.program, "query", SLOW.format(f"{logs}/much/*.csv"), "--on", "master"],
            env={**standing.environment, **trusted},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: told("running") == 1)
        # This master allows one job per client address.
        more = standing.run("query", sql, "--on", "master", **trusted)
        assert more.returncode == 1
        assert "the maximum per peer is 1" in more.stderr and "--max-jobs-per-peer" in more.stderr
        client.kill()
        client.wait()
        until(lambda: told("running") == 0)
    finally:
        # Though nobody asks it: by way of Ray.
        down = standing.run("cluster", "down", "--on", "ray", RAY_ADDRESS=cluster.address)
        assert down.returncode == 0, down.stderr
    until(lambda: not _workers() and not _processes(b"ray::Master"))
