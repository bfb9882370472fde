"""A driver that is killed while it commits: a short form of `commits.py`."""

import sys

import pytest
import watched
from commits import Commits

from tidemill.ray import disconnect

pytestmark = pytest.mark.skipif(
    not watched.is_there(), reason="this machine does not tell of a process's calls"
)


@pytest.fixture(scope="module")
def commits(cluster, program, tmp_path_factory):
    # The cluster has three cores, which the driver may have all.
    disconnect()
    commits = Commits(program, cluster.address, tmp_path_factory.mktemp("commits"))
    yield commits
    commits.close()


def names_the_manifest(name, path):
    return name.startswith("rename") and path.endswith("manifest.tmp")


def names_a_file(nth):
    seen = []

    def is_it(name, path):
        if name.startswith("rename") and path.rpartition("/")[2].isdigit():
            seen.append(path)
        return len(seen) > nth

    return is_it


@pytest.mark.parametrize("kind", ["files", "rows", "folder"])
def test_files_are_there_all_or_none_and_the_next_run_ends_what_was_begun(commits, kind):
    here = commits.here(kind)
    assert len(here) >= 5
    at, outcome = commits.killed(kind, here, operation=names_the_manifest, is_again=False)
    assert (at, outcome) == ("rename manifest.tmp", "nothing")
    at, outcome = commits.killed(kind, here, operation=names_a_file(2))
    assert at.startswith("rename") and outcome == "finished by the next run"


def test_an_object_of_several_parts_is_there_or_not(commits):
    here = commits.here("object")
    sends_part = lambda asked: asked.method == "PUT" and "partNumber" in asked.query  # noqa: E731
    at, outcome = commits.killed("object", here, request=sends_part, is_again=False)
    assert "partNumber" in at and outcome == "nothing"
    completes = lambda asked: asked.method == "POST" and "uploadId" in asked.query  # noqa: E731
    at, outcome = commits.killed("object", here, request=completes)
    assert "uploadId" in at and outcome == "finished by the next run"


def test_objects_that_workers_send_are_there_all_or_none(commits):
    here = commits.here("objects-sent")
    assert len(here) == 8
    completes = lambda asked: asked.method == "POST" and "uploadId" in asked.query  # noqa: E731
    at, outcome = commits.killed("objects-sent", here, operation=names_the_manifest, is_again=False)
    assert (at, outcome) == ("rename manifest.tmp", "nothing")
    at, outcome = commits.killed("objects-sent", here, request=completes)
    assert "uploadId" in at and outcome == "finished by the next run"


def test_an_operation_is_seen_before_it_is_done(tmp_path):
    # What proves the watch: the file that was to be made is not there.
    made, log = tmp_path / "made", tmp_path / "log"
    words = [sys.executable, "-c", f"open({str(made)!r}, 'w'); print('made')"]
    process = watched.Watched(words, [tmp_path], environment={}, log=log)
    assert process.wait() == 0 and process.operations == [("openat", str(made))]
    assert log.read_text() == "made\n"
    made.unlink()
    process = watched.Watched(words, [tmp_path], environment={}, log=log, kill_at=0)
    assert process.wait() == -9 and process.was_killed
    assert not made.exists() and log.read_text() == ""
