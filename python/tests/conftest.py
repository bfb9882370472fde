"""What the tests of the package share."""

import pytest


@pytest.fixture
def hits(tmp_path):
    path = tmp_path / "hits.csv"
    path.write_text("day,user,seconds\n1,ann,2\n1,bob,NA\n2,ann,4\n")
    return path


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path_factory.mktemp("home")))
