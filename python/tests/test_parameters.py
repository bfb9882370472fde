"""Values beside the SQL."""

import datetime as dt
import decimal
import math
import uuid

import numpy
import pandas
import pytest

import tidemill as tm

UTC = dt.timezone.utc
BERLIN = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NULL"),
        (True, "BOOLEAN"),
        (0, "BIGINT"),
        (-(2**63), "BIGINT"),
        (2**64 - 1, "BIGINT UNSIGNED"),
        (2**70, "DECIMAL(22, 0)"),
        (1.5, "DOUBLE"),
        (-0.1, "DOUBLE"),
        (1e300, "DOUBLE"),
        (5e-324, "DOUBLE"),
        (math.inf, "DOUBLE"),
        (-math.inf, "DOUBLE"),
        ("", "TEXT"),
        ("it's 'né' -- $1 ? :x \\ \n", "TEXT"),
        ("'; DROP TABLE x", "TEXT"),
        (b"", "BYTEA"),
        (bytes(range(256)), "BYTEA"),
        (decimal.Decimal("1.10"), "DECIMAL(3, 2)"),
        (decimal.Decimal("-0.001"), "DECIMAL(3, 3)"),
        (decimal.Decimal("1E+3"), "DECIMAL(4, 0)"),
        (dt.date(2026, 11, 20), "DATE"),
        (dt.datetime(2026, 11, 20, 1, 2, 3, 4), "TIMESTAMP(6)"),
        (dt.datetime(2026, 11, 20, 1, tzinfo=UTC), "TIMESTAMP(6) WITH TIME ZONE"),
        (dt.datetime(2026, 11, 20, 1, tzinfo=BERLIN), "TIMESTAMP(6) WITH TIME ZONE"),
        (dt.time(1, 2, 3, 4), "TIME(6)"),
        ([1, 2], "BIGINT[]"),
        ((dt.date(2026, 1, 1), None), "DATE[]"),
        (["a", "it's"], "TEXT[]"),
    ],
)
def test_a_value_comes_back_as_it_is(value, kind):
    result = tm.query("SELECT $1 AS x", params=[value])
    (row,) = result.to_pylist()
    assert row["x"] == (list(value) if isinstance(value, tuple) else value)
    if value is not None:
        assert result.schema.types[0].split("(")[0] == kind.split("(")[0]


def test_a_float_that_is_no_number_is_one():
    (row,) = tm.query("SELECT ? AS x", params=[math.nan]).to_pylist()
    assert math.isnan(row["x"])


def test_a_length_of_time_is_added():
    start = dt.datetime(2026, 1, 1)
    for length in (dt.timedelta(days=-1, seconds=3, microseconds=1), dt.timedelta(hours=30)):
        params = {"start": start, "length": length}
        (row,) = tm.query("SELECT :start + :length AS x", params=params).to_pylist()
        assert row["x"] == start + length


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (numpy.int32(-5), -5),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        (numpy.str_("a"), "a"),
        (pandas.Timestamp("2026-01-01T00:00:00.000001"), dt.datetime(2026, 1, 1, microsecond=1)),
        (pandas.NaT, None),
        (pandas.NA, None),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_values_of_other_packages_are_taken(value, same):
    assert tm.query("SELECT $x AS x", params={"x": value}).to_pylist() == [{"x": same}]


@pytest.mark.parametrize(
    ("sql", "params", "rows"),
    [
        ("SELECT $1 AS a, $2 AS b, $1 AS c", [1, "x"], [(1, "x", 1)]),
        ("SELECT ? AS a, ? AS b", (1, 2), [(1, 2)]),
        ("SELECT :a AS a, $b AS b", {"a": 1, ":b": 2}, [(1, 2)]),
        ("SELECT $1 AS a", {1: 5}, [(5,)]),
        ("SELECT 1 AS a WHERE 1 IN $1", [[1, 2]], [(1,)]),
        ("SELECT 1 AS a WHERE 1 IN :x", {"x": [2, 3]}, []),
        ("SELECT 1 AS a WHERE 1 NOT IN :x", {"x": []}, [(1,)]),
        ("SELECT 1 AS a WHERE 1 IN :x", {"x": []}, []),
        ("SELECT 1 AS a WHERE 1 = ANY($1)", [[1, 2]], [(1,)]),
        ("SELECT 1 AS a", [], [(1,)]),
    ],
)
def test_parameters_are_found_by_name_and_by_order(sql, params, rows):
    found = tm.query(sql, params=params).to_pylist()
    assert [tuple(row.values()) for row in found] == rows


@pytest.mark.parametrize(
    ("sql", "params", "says"),
    [
        ("SELECT $1", None, r"parameter `\$1` has no value"),
        ("SELECT :day", {"days": 1}, "parameter `:day` has no value"),
        ("SELECT 1", {"day": 1}, "the SQL has no parameter `day`"),
        ("SELECT $1", "x", "`params` must be a mapping or a sequence, not str"),
        ("SELECT $1", 5, "`params` must be a mapping or a sequence, not int"),
        ("SELECT $1", {"1": {2}}, "parameter `1` is of type set, which no value of SQL is"),
        ("SELECT $1", [[object()]], "parameter `1` is of type object"),
        ("SELECT $1", [decimal.Decimal("nan")], "parameter `1` is NaN, which no DECIMAL is"),
        ("SELECT $1", [10**80], "parameter `1` is a number of 81 digits; 76 is the most"),
        ("SELECT $1", [dt.time(1, tzinfo=UTC)], "a time of day with a zone"),
    ],
)
def test_what_is_no_parameter_is_refused(sql, params, says):
    for ask in (tm.query, tm.explain):
        with pytest.raises(tm.UsageError, match=says):
            ask(sql, params=params)


def test_text_that_utf8_has_not_is_refused():
    for ask in (tm.query, tm.explain):
        with pytest.raises(tm.UsageError, match=r"the SQL has a surrogate, .*at character 9"):
            ask("SELECT '\ud800'")
        for params in ({"a": "\udc80"}, {"a": ["b", "\udc80"]}):
            with pytest.raises(tm.UsageError, match="parameter `a` has a surrogate"):
                ask("SELECT :a", params=params)
    with pytest.raises(TypeError):
        tm.query(5)


def test_a_plan_is_of_the_values(hits):
    sql = f"SELECT count() AS n FROM '{hits}' WHERE day = :day"
    assert "day = Int64(2)" in str(tm.explain(sql, params={"day": 2}))
    assert tm.query(sql, params={"day": 2}, null="NA").to_pylist() == [{"n": 1}]
    # The log has the statement without the values, which may be nobody's business.
    assert tm.jobs()[0]["mapper"] == sql


def test_a_result_is_written_with_parameters(hits, tmp_path):
    sql = f"SELECT user FROM '{hits}' WHERE day = $1"
    tm.query(sql, params=[2], output=tmp_path / "out.csv", null="NA")
    assert (tmp_path / "out.csv").read_text() == "user\nann\n"
