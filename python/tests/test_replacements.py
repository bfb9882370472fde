"""Tables that are variables of whoever calls, and rows that are Python's own objects."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import random

import numpy
import pandas
import polars
import pyarrow as pa
import pytest

import tidemill as tm

PEOPLE = {"user": ["ann", "bob"], "age": [31, 42]}
people_of_the_module = pa.table(PEOPLE)
hidden = pa.table({"x": [1]})


@pytest.mark.parametrize(
    "make",
    [
        pa.table,
        pandas.DataFrame,
        polars.DataFrame,
        lambda columns: polars.DataFrame(columns).lazy(),
        lambda columns: pa.table(columns).to_reader(),
        lambda columns: tm.query("SELECT * FROM p", p=pa.table(columns)),
        lambda columns: columns,
        lambda columns: pa.table(columns).to_pylist(),
    ],
    ids=["pyarrow", "pandas", "polars", "lazy", "stream", "result", "columns", "rows"],
)
def test_a_variable_is_a_table(make):
    df = make(PEOPLE)
    found = tm.query("SELECT user, age FROM df WHERE age > :age", params={"age": 40}).to_pylist()
    assert found == [{"user": "bob", "age": 42}]
    del df


def test_a_variable_of_the_function_comes_before_one_of_the_module():
    assert tm.query("SELECT count() AS n FROM people_of_the_module").to_pylist() == [{"n": 2}]
    hidden = pa.table({"x": [2]})
    assert tm.query("SELECT x FROM hidden").to_pylist() == [{"x": 2}]
    del hidden


def test_an_object_with_a_name_comes_before_a_file_and_that_before_a_variable(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "df").write_text("x\n1\n")
    df = pa.table({"x": [2]})
    other = pa.table({"x": [3]})
    csv = {"source_format": "csv"}
    assert tm.query("SELECT x FROM df", **csv).to_pylist() == [{"x": 1}]
    assert tm.query("SELECT x FROM df", **csv, df=other).to_pylist() == [{"x": 3}]
    (tmp_path / "df").unlink()
    assert tm.query("SELECT x FROM df", **csv).to_pylist() == [{"x": 2}]
    # In single quotes it is a file.
    with pytest.raises(tm.NotFoundError):
        tm.query("SELECT x FROM './df'")
    del df


def test_variables_are_found_wherever_sql_has_a_table():
    a, B = pa.table({"k": [1, 2], "x": [5, 6]}), pa.table({"k": [2], "y": [7]})  # noqa: N806
    for sql, expected in [
        ("SELECT x, y FROM a JOIN B USING (k)", [{"x": 6, "y": 7}]),
        ("SELECT x FROM a WHERE k IN (SELECT k FROM b)", [{"x": 6}]),
        ('SELECT y FROM "B"', [{"y": 7}]),
        ("WITH c AS (SELECT k FROM a) SELECT max(k) AS k FROM c", [{"k": 2}]),
        ("FROM a SELECT sum(x) AS x", [{"x": 11}]),
    ]:
        if sql.endswith("b)"):
            # SQL takes capitals for small letters, Python does not.
            with pytest.raises(tm.UsageError, match="unknown"):
                tm.query(sql)
            continue
        assert tm.query(sql).to_pylist() == expected, sql
    assert tm.explain("SELECT sum(x) FROM a").mergeable
    del a, B


def test_names_of_the_statement_are_not_looked_up():
    c = 5
    assert tm.query("WITH c AS (SELECT 1 AS x) SELECT x FROM c").to_pylist() == [{"x": 1}]
    assert tm.query("SELECT x FROM (SELECT 1 AS x) AS c").to_pylist() == [{"x": 1}]
    del c


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5, "`df` is a int, which is no source"),
        (None, "`df` is a NoneType"),
        (json, "`df` is a module"),
        ([1], "`df` is a list, which is no source"),
        ([], "`df` has no columns"),
        ("a.csv", "`df` is a str"),
    ],
)
def test_a_variable_that_is_no_table_is_refused(value, says):
    df = value
    with pytest.raises(tm.UsageError, match=says) as caught:
        tm.query("SELECT * FROM df")
    assert "replacement_scans=False" in str(caught.value)
    del df


def test_variables_are_left_alone_where_that_is_asked_for(monkeypatch):
    df = pa.table(PEOPLE)
    for ask in (tm.query, tm.explain):
        with pytest.raises(tm.UsageError, match="unknown table `df`"):
            ask("SELECT * FROM df", replacement_scans=False)
    monkeypatch.setenv("TIDEMILL_REPLACEMENT_SCANS", "off")
    with pytest.raises(tm.UsageError, match="unknown table `df`"):
        tm.query("SELECT * FROM df")
    assert tm.query("SELECT count() AS n FROM df", replacement_scans=True).to_pylist() == [{"n": 2}]
    assert tm.query("SELECT count() AS n FROM df", df=df).to_pylist() == [{"n": 2}]
    monkeypatch.setenv("TIDEMILL_REPLACEMENT_SCANS", "maybe")
    with pytest.raises(tm.UsageError, match="`maybe` is neither `on` nor `off`"):
        tm.query("SELECT 1")


# Rows of Python's own


class Color(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -3], "BIGINT"),
        ([1, 2**63], "BIGINT UNSIGNED"),
        ([1, 2.5, None], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        (["a", "é"], "TEXT"),
        ([b"\x00\xff", None], "BYTEA"),
        ([decimal.Decimal("1.10"), decimal.Decimal("-22.5")], "DECIMAL(4, 2)"),
        ([decimal.Decimal("0.5"), 3], "DECIMAL(21, 1)"),
        ([dt.date(2026, 1, 1), None], "DATE"),
        ([dt.datetime(2026, 1, 1, 2, 3, 4, 5)], "TIMESTAMP(6)"),
        ([dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)], "TIMESTAMP(6) WITH TIME ZONE"),
        ([dt.time(1, 2, 3)], "TIME(6)"),
        ([[1], [], None, [None, 2.5]], "DOUBLE[]"),
        ([{"a": 1}, {"a": None, "b": "x"}, None], "STRUCT<a BIGINT, b TEXT>"),
        ([[{"a": 1}], [{"b": [True]}]], "STRUCT<a BIGINT, b BOOLEAN[]>[]"),
        ([None, None], "Null"),
    ],
)
def test_a_column_has_the_type_that_all_of_its_rows_need(values, kind):
    rows = [{"x": value} for value in values]
    result = tm.query("SELECT x FROM rows")
    assert result.schema.types == [kind]

    def filled(value, kind):
        if isinstance(value, dict):
            return {name: value.get(name) for name in ("a", "b") if f"{name} " in kind}
        if isinstance(value, list):
            return [filled(item, kind) for item in value]
        return value

    assert [row["x"] for row in result.to_pylist()] == [filled(value, kind) for value in values]
    columns = {"x": values}
    assert tm.query("SELECT x FROM columns").to_pylist() == result.to_pylist()
    del rows, columns


def test_rows_may_lack_fields_and_columns_are_in_the_order_in_which_they_come():
    rows = [{"b": 1}, collections.OrderedDict(a="x"), {"c": None, "b": 2}]
    result = tm.query("SELECT * FROM rows")
    assert result.schema.names == ["b", "a", "c"]
    assert [tuple(row.values()) for row in result.to_pylist()] == [
        (1, None, None),
        (None, "x", None),
        (2, None, None),
    ]
    del rows


def test_columns_may_be_arrays():
    columns = {
        "n": numpy.arange(3),
        "f": numpy.array([0.5, 1, 2], dtype="float32"),
        "b": numpy.array([True, False, True]),
        "s": pandas.Series(["a", "b", None], dtype=object),
        "r": range(3),
    }
    found = tm.query("SELECT * FROM columns").to_pylist()
    assert found[1] == {"n": 1, "f": 1.0, "b": False, "s": "b", "r": 1}
    rows = [{"n": numpy.int8(5), "l": numpy.array([1, 2]), "e": Color.RED}]
    assert tm.query("SELECT * FROM rows").to_pylist() == [{"n": 5, "l": [1, 2], "e": "red"}]
    del columns, rows


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"x": 1}, {"x": None}, {"x": "a"}], "`rows`, column `x`: row 0 has int, and row 2 str"),
        ([{"x": True}, {"x": 1}], "row 0 has bool, and row 1 int"),
        ([{"x": 1.5}, {"x": decimal.Decimal(1)}], "row 0 has float, and row 1 Decimal"),
        ([{"x": {"a": 1}}, {"x": {"a": [1]}}], r"column `x\.a`: row 0 has int, and row 1 list"),
        ([{"x": [1, "a"]}], r"column `x\.item`: row 0 has int, and row 0 str"),
        ([{"x": dt.date(2026, 1, 1)}, {"x": dt.datetime(2026, 1, 1)}], "date, and row 1 datetime"),
        ([{"x": 2**64}], r"no column can hold 18446744073709551616 \(int\)"),
        ([{"x": 2**63}, {"x": -1}], "more than 64 bits"),
        ([{"x": 2**53 + 1}, {"x": 0.5}], "expected float64, found 9007199254740993"),
        ([{"x": object}], "no column can hold <class 'object'>"),
        ([{"x": decimal.Decimal("nan")}], "no column can hold"),
        ([{"x": {}}], "its dicts have no keys"),
        ([{1: 2}], r"the name of a column is a str, not 1 \(int\)"),
        ([{"x": 1}, [2]], r"`rows`, row 1: expected a dict, found \[2\]"),
        ([{}], "`rows` has no columns"),
        ([{"x": "\ud800"}], "lone surrogate"),
        ({"x": [1], "y": [1, 2]}, "`x` has 1, `y` has 2"),
        ({"x": "abc"}, "`rows`, column `x`: expected a list, found str"),
        ({}, "`rows` has no columns"),
    ],
)
def test_rows_without_a_common_type_are_refused(rows, says):
    with pytest.raises(tm.UsageError, match=says):
        tm.query("SELECT * FROM rows", rows=rows)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_as_those_of_the_same_records_in_json(seed, tmp_path):
    chance = random.Random(seed)

    def value(depth):
        return chance.choice(
            [
                lambda: None,
                lambda: chance.randrange(-(2**40), 2**40),
                lambda: "".join(chance.choices("aé\n\"'", k=chance.randrange(4))),
            ]
        )()

    kinds = {name: chance.choice(["int", "text", "list", "struct"]) for name in "abc"}

    def cell(kind):
        if chance.random() < 0.2:
            return None
        if kind == "int":
            return chance.randrange(-(2**40), 2**40)
        if kind == "text":
            return "".join(chance.choices("aé\n\"'", k=chance.randrange(1, 4)))
        if kind == "list":
            return [cell("int") for _ in range(chance.randrange(3))]
        return {"k": cell("int"), "l": cell("text")}

    first = {name: {"int": 1, "text": "x", "list": [1]}.get(kind) for name, kind in kinds.items()}
    first = {name: it if it is not None else {"k": 1, "l": "x"} for name, it in first.items()}
    rows = [first]
    for _ in range(chance.randrange(1, 20_000 if seed == 0 else 50)):
        rows.append({name: cell(kind) for name, kind in kinds.items()})
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours = tm.query("SELECT a, b, c FROM rows").to_pylist()
    assert ours == rows
    assert ours == tm.query(f"SELECT a, b, c FROM '{path}'").to_pylist()


def test_rows_are_read_any_number_of_times_and_aggregated():
    rows = [{"k": n % 3, "n": n} for n in range(30_000)]
    sql = "SELECT a.k AS k, count() AS n FROM rows a JOIN rows b USING (n) GROUP BY a.k ORDER BY k"
    assert tm.query(sql).to_pylist() == [{"k": k, "n": 10_000} for k in range(3)]
    del rows


def test_objects_that_are_no_dicts_say_what_they_are():
    @dataclasses.dataclass
    class Row:
        x: int

    with pytest.raises(tm.UsageError, match="`rows` is a list, which is no source"):
        tm.query("SELECT * FROM rows", rows=[Row(1)])
