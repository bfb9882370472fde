"""The same query and the same job on a Ray cluster: the same bytes as on one machine."""

import concurrent.futures
import json
import os
import pathlib
import signal
import tempfile

import pytest

import tidemill as tm
from tidemill.ray import _workers, connect, disconnect

STATEMENTS = [
    "SELECT page, count(*) AS n, sum(ms) AS ms, avg(ms) AS mean, unique(user) AS users "
    "FROM '{logs}/*.csv' GROUP BY page ORDER BY page",
    "SELECT day, page, count(DISTINCT user) AS users, median(ms) AS middle, min(note) AS note "
    "FROM '{logs}/*.csv' WHERE ms > 3 GROUP BY day, page HAVING count(*) > 5 ORDER BY users DESC, "
    "day, page LIMIT 40",
    "SELECT page, collect(user, 3) AS first, top_k(user, 2) AS top FROM '{logs}/*.csv' "
    "GROUP BY page ORDER BY page",
    "SELECT t.name, count(*) AS n FROM '{logs}/*.csv' AS l JOIN '{logs}/names/names.json' AS t "
    "ON l.page = t.page GROUP BY t.name ORDER BY t.name",
    "SELECT user, ms, count(*) AS n FROM '{logs}/*.csv' GROUP BY user, ms",
]


@pytest.fixture(scope="module")
def named(logs):
    folder = logs / "names"
    folder.mkdir()
    lines = ['{"page":"/","name":"home"}', '{"page":"a","name":"about"}']
    (folder / "names.json").write_text("\n".join(lines) + "\n")
    return logs


@pytest.mark.parametrize("statement", STATEMENTS)
def test_answers_are_those_of_one_machine(cluster, named, statement, tmp_path):
    sql = statement.format(logs=named)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    one = tm.query(sql, output=here)
    other = tm.query(sql, output=there, on="ray")
    assert there.read_bytes() == here.read_bytes()
    assert one.coverage["rows"] == other.coverage["rows"]
    assert one.coverage["bytes"] == other.coverage["bytes"]
    assert len(here.read_text().splitlines()) > 1


def test_the_command_line_asks_by_way_of_python(cluster, named, tidemill, tmp_path):
    sql = STATEMENTS[0].format(logs=named)
    # The cluster has three cores, which this process may have all.
    disconnect()
    here = tidemill("query", sql, home=tmp_path)
    there = tidemill("query", sql, "--on", "ray", address=cluster.address, home=tmp_path)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert there.stderr == here.stderr
    # The newest first: who read it, and how much.
    listed = tidemill("jobs", "list", "--format", "json", home=tmp_path).stdout
    runs = [json.loads(line) for line in listed.splitlines()]
    workers = runs[0]["workers"]
    assert "workers" not in runs[1] and len(workers) == 3
    assert sum(worker["bytes_in"] for worker in workers) == runs[0]["steps"][0]["bytes_in"]
    assert all(worker["tasks"] > 0 and worker["busy_ms"] for worker in workers)
    shown = tidemill("jobs", "show", runs[0]["id"], home=tmp_path).stdout
    assert all(worker["name"] in shown for worker in workers), shown


def test_a_job_writes_its_files_as_on_one_machine(cluster, named, tmp_path):
    def job(folder):
        return {
            "source": {"url": f"{named}/*.csv"},
            "tables": {"by": ["day", "page"], "n": "count(*)", "users": "unique(user)"},
            "sink": {"url": str(folder / "{day}.csv")},
        }

    one, other = tmp_path / "one", tmp_path / "other"
    tm.run(job(one))
    written = tm.run(job(other), on="ray")
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir()) and len(names) == 28
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    assert written.files == 28


ROWS = [
    "SELECT * FROM '{logs}/*.csv'",
    "SELECT page, ms * 2 AS double, note FROM '{logs}/*.csv' WHERE ms > 70",
    "SELECT user, note FROM '{logs}/*.csv' WHERE page = 'a' LIMIT 900 OFFSET 5000",
    "SELECT l.user, t.name FROM '{logs}/*.csv' AS l JOIN '{logs}/names/names.json' AS t "
    "ON l.page = t.page WHERE l.ms < 40",
]


@pytest.mark.parametrize("statement", ROWS)
def test_rows_are_those_of_one_machine_in_their_order(cluster, named, statement, tmp_path):
    sql = statement.format(logs=named)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    one = tm.query(sql, output=here)
    other = tm.query(sql, output=there, on="ray")
    assert there.read_bytes() == here.read_bytes()
    assert one.coverage["rows"] == other.coverage["rows"]
    assert len(here.read_text().splitlines()) > 100


def test_a_conversion_writes_the_same_file(cluster, named, tmp_path):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    files = f"{named}/*.csv"
    tm.convert(files, here, select="page, user", where="ms > 100")
    tm.convert(files, there, select="page, user", where="ms > 100", on="ray")
    assert there.read_bytes() == here.read_bytes()


def test_a_folder_of_files_is_converted_by_workers(cluster, named, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    files = f"{named}/*.csv"
    tm.convert(files, f"{one}/", format="json", where="ms > 100")
    written = tm.convert(files, f"{other}/", format="json", where="ms > 100", on="ray")
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir()) and len(names) > 1
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    assert written.files == len(names)


@pytest.mark.parametrize("above", [None, 0, "20k"])
def test_large_tables_go_from_worker_to_worker(cluster, named, tmp_path, above):
    for number, statement in enumerate(STATEMENTS):
        sql = statement.format(logs=named)
        here, there = tmp_path / f"here-{number}.csv", tmp_path / f"there-{number}.csv"
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        one = tm.query(sql, output=here)
        other = tm.query(sql, output=there, on="ray", scratch=scratch, scratch_above=above)
        assert there.read_bytes() == here.read_bytes()
        assert one.coverage["estimates"] == other.coverage["estimates"]
        assert not list(scratch.iterdir())


def test_a_scratch_folder_that_cannot_be_written_to_says_so(cluster, named, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tm.TidemillError, match="file"):
        tm.query(
            STATEMENTS[4].format(logs=named), on="ray", scratch=tmp_path / "file", scratch_above=0
        ).to_pylist()


def test_what_cannot_run_there_runs_here_if_it_may(cluster, named):
    sql = f"SELECT page, ms FROM '{named}/*.csv' ORDER BY ms, page, user, note LIMIT 5"
    with pytest.warns(RuntimeWarning, match="it runs on this machine: the query cannot be"):
        there = tm.query(sql, on="auto").to_pylist()
    assert there == tm.query(sql).to_pylist()
    with pytest.raises(tm.UsageError, match="max_attempts"):
        tm.query(sql, max_attempts=2)


def test_a_plan_tells_of_the_workers(cluster, named):
    plan = tm.explain(STATEMENTS[0].format(logs=named), on="ray")
    assert plan.elsewhere is not None
    assert (plan.elsewhere["machines"], plan.elsewhere["workers"]) == (3, 3)
    assert "on a cluster: 3 workers on 3 machines, 3 threads" in str(plan)
    assert tm.explain(STATEMENTS[0].format(logs=named)).elsewhere is None


def test_a_stopped_worker_holds_nothing_up(cluster, named, monkeypatch):
    sql = STATEMENTS[0].format(logs=named)
    here = tm.query(sql).to_pylist()
    workers = connect("ray", memory=None)
    workers.look()
    stopped = workers.places()[0][1]
    # Once all have answered, so that it is dealt tasks.
    monkeypatch.setattr(workers, "_check", lambda *_: os.kill(stopped, signal.SIGSTOP))
    try:
        assert tm.query(sql, on="ray").to_pylist() == here
        # It has its tasks still, and is not dealt others.
        assert workers._at_hand[0] > 0
        monkeypatch.undo()
        assert tm.query(sql, on="ray").to_pylist() == here
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert tm.query(sql, on="ray").to_pylist() == here


def test_a_machine_that_is_gone_takes_nothing_with_it(cluster, named, monkeypatch):
    sql = STATEMENTS[1].format(logs=named)
    here = tm.query(sql).to_pylist()
    disconnect()
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    try:
        cluster.wait_for_nodes()
        workers = connect("ray", memory=None)
        assert workers.reach() == (4, 4, 4, True)
        is_gone = []

        def goes(*_):
            if not is_gone:
                is_gone.append(cluster.remove_node(node, allow_graceful=False))

        monkeypatch.setattr(workers, "_check", goes)
        assert tm.query(sql, on="ray").to_pylist() == here
        assert is_gone
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)
        disconnect()


def test_several_queries_of_a_process_share_the_workers(cluster, named):
    here = [tm.query(sql.format(logs=named)).to_pylist() for sql in STATEMENTS]
    # One that was asked for rows first, and whose rows are not taken.
    rows = tm.query(ROWS[1].format(logs=named), on="ray")
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(STATEMENTS)) as pool:
        asked = [
            pool.submit(lambda sql=sql: tm.query(sql.format(logs=named), on="ray").to_pylist())
            for sql in STATEMENTS
        ]
        assert [query.result() for query in asked] == here
    assert rows.to_pylist() == tm.query(ROWS[1].format(logs=named)).to_pylist()


def test_what_a_killed_worker_had_at_hand_is_done_again(cluster, named, tmp_path):
    sql = STATEMENTS[1].format(logs=named)
    here = tm.query(sql).to_pylist()
    workers = connect("ray", memory=None)
    for place in range(len(workers.places())):
        # The next query deals its first task to a process that is not there any more.
        os.kill(workers.places()[place][1], signal.SIGKILL)
        assert tm.query(sql, on="ray").to_pylist() == here
        workers.look()


def test_an_equal_sample_is_that_of_one_machine(cluster, named):
    sql = STATEMENTS[0].format(logs=named)
    options = {"sample": 0.2, "seed": 9, "split_bytes": "8k", "no_intervals": True}
    here = tm.query(sql, **options)
    rows = here.to_pylist()
    there = tm.query(sql, on="ray", **options)
    assert there.to_pylist() == rows
    for what in ["rows", "bytes", "splits", "complete"]:
        assert there.coverage[what] == here.coverage[what]
    assert not there.coverage["complete"]
    # A worker that is killed meanwhile takes none of the splits with it.
    workers = connect("ray", memory=None)
    os.kill(workers.places()[0][1], signal.SIGKILL)
    assert tm.query(sql, on="ray", **options).to_pylist() == rows
    workers.look()
    found = tm.query(f"SELECT page, ms FROM '{named}/*.csv' WHERE ms > 1", on="ray", find=5)
    assert len(found.to_pylist()) == 5


def test_a_process_that_is_killed_while_workers_start_is_waited_for(cluster, monkeypatch):
    monkeypatch.setattr(_workers, "_OTHERS_SECONDS", 120)
    monkeypatch.setattr(_workers, "_START_SECONDS", 120)
    disconnect()
    workers = connect("ray", memory=None)
    before = {process for _, process in workers.places()}
    for look in (workers._keep_ready, workers.look):
        for _, process in workers.places():
            os.kill(process, signal.SIGKILL)
        look()
        assert workers.reach()[:2] == (3, 3)
        assert not before & {process for _, process in workers.places()}
        before |= {process for _, process in workers.places()}


def test_what_does_not_run_there_is_refused_with_the_reason(cluster, named):
    with pytest.raises(tm.UsageError, match="cannot be run on a cluster"):
        tm.query(f"SELECT page FROM '{named}/*.csv' ORDER BY ms", on="ray")
    with pytest.raises(tm.UsageError, match="names no cluster"):
        tm.query(STATEMENTS[0].format(logs=named), on="spark://here:7077")
    rows = [{"page": "/", "ms": 1.0}]
    with pytest.raises(tm.UsageError, match="is in this program's memory"):
        grouped = "SELECT page, count(*) AS n FROM rows GROUP BY page"
        tm.query(grouped, rows=rows, on="ray").to_pylist()


def test_an_error_is_the_one_of_one_machine(cluster, tmp_path):
    path = pathlib.Path(tmp_path, "a.csv")
    path.write_text("k,x\na,1\nb,2\nc,three\n")
    sql = f"SELECT k, sum(x) AS x FROM '{path}' GROUP BY k"
    said = []
    for on in [None, "ray"]:
        with pytest.raises(tm.BadRecordError) as raised:
            tm.query(sql, schema="x BIGINT", on=on).to_pylist()
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_without_ray_it_is_said_what_to_install(named, tidemill, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named tidemill' >&2\nexit 1\n")
    python.chmod(0o755)
    sql = STATEMENTS[0].format(logs=named)
    asked = tidemill("query", sql, "--on", "ray", "--python", str(python), home=tmp_path)
    assert asked.returncode == 2
    assert "No module named tidemill" in asked.stderr
    assert "pip install 'tidemill[ray]'" in asked.stderr


@pytest.fixture
def looked_up(tmp_path):
    """A job whose program looks words up in a file of some MB, and what becomes of them."""
    known = "\n".join(f"w{word};name {word}" for word in range(300_000)) + "\n"
    names = tmp_path / "far" / "names.csv"
    names.parent.mkdir()
    names.write_text(known)
    script = names.with_name("look.sh")
    look = 'BEGIN {print "name"} NR == FNR {names[$1] = $2; next} {print names[$1]}'
    script.write_text(f"#!/bin/sh\nexec awk -F ';' '{look}' names.csv -\n")
    script.chmod(0o755)
    for file in range(6):
        words = [f"w{(row * 37 + file) % 300_000}" for row in range(2_000)]
        (tmp_path / f"{file}.txt").write_text("\n".join(words) + "\n")
    return {
        "files": [names, script],
        "source": {
            "url": str(tmp_path / "*.txt"),
            "exec": ["./look.sh"],
            "format": "csv",
        },
        "tables": {"by": "name", "n": "count()"},
    }


def rows(result):
    return sorted((row["name"], row["n"]) for row in result.to_pylist())


def test_programs_find_files_that_come_with_the_job_to_each_machine_once(
    cluster, looked_up, tmp_path, tidemill
):
    here = rows(tm.run(looked_up))
    assert len(here) > 1_000 and here[0][0].startswith("name ")
    disconnect()
    assert rows(tm.run(looked_up, on="ray")) == here
    workers = connect("ray", memory=None)
    assert workers.reach()[:2] == (3, 3)

    def written():
        return [workers._ray.get(actor.written.remote()) for actor in workers._actors]

    # Read once by this process, whoever was dealt how many tasks.
    assert workers.shelf.reads == 2
    before = written()
    assert any(len(own) == 2 for own in before) and all(len(own) in (0, 2) for own in before)
    # Found again by the next job, under another name too; what is another file by now is read.
    again = pathlib.Path(tmp_path, "names.csv")
    os.link(looked_up["files"][0], again)
    job = {**looked_up, "files": [again, looked_up["files"][1]]}
    assert rows(tm.run(job, on="ray")) == here
    assert workers.shelf.reads == 2
    again.unlink()
    again.write_text(looked_up["files"][0].read_text().replace("name 37\n", "other\n"))
    assert ("other", 1) in rows(tm.run(job, on="ray"))
    assert workers.shelf.reads == 3
    after = written()
    # What was there is not put together again.
    for old, new in zip(before, after, strict=True):
        assert {digest: new[digest] for digest in old} == old
    disconnect()
    # The command line: the same files by flags.
    sql = f"SELECT name, count() AS n FROM '{tmp_path}/*.txt' GROUP BY name ORDER BY name"
    flags = ["--source-format", "csv"]
    flags += [flag for file in looked_up["files"] for flag in ("--files", str(file))]
    flags += [flag for word in looked_up["source"]["exec"] for flag in ("--source-exec", word)]
    said = tidemill("query", sql, *flags, home=tmp_path / "home")
    there = tidemill(
        "query", sql, *flags, "--on", "ray", address=cluster.address, home=tmp_path / "home"
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout == said.stdout and there.stdout.count("\n") == len(here) + 1


def test_workers_that_convert_to_a_folder_have_the_files(cluster, looked_up, tmp_path):
    source, files = looked_up["source"], looked_up["files"]
    given = {"source_exec": source["exec"], "source_format": "csv", "files": files}
    given |= {"sink_exec": ["sh", "-c", "cat - look.sh"], "format": "json"}
    outs = [tmp_path / "here", tmp_path / "there"]
    for out, on in zip(outs, [None, "ray"], strict=True):
        out.mkdir()
        tm.convert(source["url"], f"{out}/", on=on, **given)
    here, there = [{path.name: path.read_bytes() for path in sorted(out.iterdir())} for out in outs]
    assert here == there and len(here) == 6
    assert all(files[1].read_bytes() in content for content in here.values())


def test_files_are_there_again_for_a_worker_that_was_killed(cluster, looked_up):
    disconnect()
    here = rows(tm.run(looked_up))
    assert rows(tm.run(looked_up, on="ray")) == here
    workers = connect("ray", memory=None)
    for place in range(len(workers.places())):
        os.kill(workers.places()[place][1], signal.SIGKILL)
        assert rows(tm.run(looked_up, on="ray")) == here
        workers.look()
    assert workers.shelf.reads == 2
    disconnect()


def test_a_session_leaves_no_files_behind(cluster, looked_up):
    root = pathlib.Path(tempfile.gettempdir(), f"tidemill-files-{os.getuid()}")
    disconnect()
    tm.run(looked_up, on="ray").to_pylist()
    nodes = {node["NodeID"] for node in connect("ray", memory=None)._ray.nodes()}
    assert any((root / node).is_dir() for node in nodes)
    disconnect()
    assert not any((root / node).exists() for node in nodes)


def test_a_file_that_cannot_be_given_is_refused_as_on_one_machine(cluster, looked_up, tmp_path):
    for name in ["missing.csv", "folder"]:
        (tmp_path / "folder").mkdir(exist_ok=True)
        said = []
        for on in [None, "ray"]:
            with pytest.raises(tm.TidemillError) as raised:
                tm.run({**looked_up, "files": [tmp_path / name]}, on=on).to_pylist()
            said.append((type(raised.value), str(raised.value)))
        assert said[0] == said[1] and name in said[0][1]
