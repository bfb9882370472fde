"""Which runs go first."""

import pytest

import tidemill as tm


def test_a_priority_is_high_normal_or_low():
    for priority in ("high", "normal", "low"):
        result = tm.query("SELECT 1 AS one", priority=priority)
        assert result.to_pylist() == [{"one": 1}]
    with pytest.raises(tm.UsageError, match="did you mean `high`"):
        tm.query("SELECT 1 AS one", priority="hihg").to_pylist()
