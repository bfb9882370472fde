"""A few seeds of the judge; `make soak` runs it for hours."""

import pytest

from differential.judge import Case, Judge, cases
from differential.runs import judged

SEEDS = range(1, 81)
STATEMENTS = 12


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    judge = Judge(tmp_path_factory.mktemp("judge"))
    yield judge
    judge.close()


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("TIDEMILL_JOB_LOG", "off")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_way_gives_duckdbs_answer(judge, seed):
    print(f"seed {seed}: python -m differential --seed {seed} --count {STATEMENTS}")
    found = judged(judge, seed, STATEMENTS, shrink=True)
    assert not found, "\n\n".join(found)


def test_a_case_is_shown_again_from_its_words():
    for seed in range(20):
        for case in cases(seed, 3):
            again = Case.from_text(case.text())
            assert again.statement == case.statement and again.way == case.way
            assert repr(again.tables) == repr(case.tables)


def test_the_same_seed_has_the_same_cases():
    def words(seed):
        return [case.text() for case in cases(seed, 5)]

    assert all(words(seed) == words(seed) for seed in range(5))
    assert words(1) != words(2)


def test_a_wrong_answer_is_found_and_made_small(judge, monkeypatch):
    # What proves the judge: an answer with a row too few.
    from differential import minimise
    from differential.ways import Place

    whole = Place.ask

    def short(place, statement, way):
        table = whole(place, statement, way)
        return table.slice(0, max(table.num_rows - 1, 0))

    monkeypatch.setattr(Place, "ask", short)
    case = next(
        case
        for seed in range(50)
        for case in cases(seed, 5)
        if case.check == "oracle" and judge.difference(case) is not None
    )
    says = judge.difference(case)
    small, _ = minimise.minimised(judge, case, says)
    assert sum(len(table.rows) for table in small.tables.values()) <= 2
    assert len(small.statement.items) == 1
    assert "tidemill query" in minimise.command(judge, small)
