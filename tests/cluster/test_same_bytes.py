"""Examples, flights, logs and random questions on 1 to 4 workers: a short form of `same.py`."""

import dataclasses
import itertools

import pytest
import same

from tidemill.ray import disconnect

#: Other files and statements: `python3 tests/cluster/same.py` has as many as one likes.
SEED = 20261128
QUESTIONS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("same")


@pytest.fixture(scope="module", autouse=True)
def home(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_HOME", str(folder / "home"))
        patch.setenv("TIDEMILL_JOB_LOG", "off")
        yield


@pytest.fixture(scope="module")
def four(cluster):
    """A machine more than the cluster has."""
    disconnect()
    node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    cluster.wait_for_nodes(timeout=300)
    yield
    disconnect()
    cluster.remove_node(node)


@pytest.fixture(scope="module")
def asked(folder, program, home):
    """All questions, answered by one process."""
    asked = same.Same(program, folder)
    questions = itertools.chain(
        same.examples(same.at_repository(folder, None), None),
        same.real_logs(same.REPOSITORY.parent / "shared" / "data"),
        same.random_questions(SEED, QUESTIONS, folder, each=4),
    )
    for question in questions:
        asked.answer_here(question)
    return asked


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_answers_are_those_of_one_process(four, asked, workers):
    asked.counts.clear()
    found = len(asked.found)
    asked.compare(workers)
    assert not asked.found[found:], "\n\n".join(asked.found[found:])
    assert asked.counts["the same bytes, examples"] > 5
    assert asked.counts["the same bytes, random"] > QUESTIONS / 3


def test_the_job_over_the_flights_writes_the_files_of_one_process(four, folder, program, home):
    flights = same.flights_there(None)
    if flights is None:
        pytest.skip("the flights are not there: make demo fetches them")
    place = same.at_repository(folder, flights)
    asked = same.Same(program, folder)
    for question in same.examples(place, flights):
        if question.kind == "flights":
            asked.answer_here(question)
    assert len(asked.here[0][1].files) == 365
    for workers in (1, 2, 3, 4):
        asked.compare(workers)
    assert not asked.found, "\n\n".join(asked.found)
    assert asked.counts["the same bytes, flights"] >= 4


def test_another_byte_is_found(asked):
    question, answer = next(pair for pair in asked.here if pair[1].files)
    assert asked.judge(question, answer, answer) is None
    name, content = next(iter(answer.files.items()))
    other = {**answer.files, name: content.replace(b"1", b"2", 1)}
    assert "other bytes" in asked.judge(question, answer, dataclasses.replace(answer, files=other))
    assert "files" in asked.judge(question, answer, dataclasses.replace(answer, files={}))
    failed = dataclasses.replace(answer, message="no")
    assert "there 'no'" in asked.judge(question, answer, failed)
