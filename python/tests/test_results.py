"""What can be done with a result, a schema and a first look."""

import datetime
import decimal
import html.parser
import json
import math
import pathlib

import pandas
import polars
import pyarrow
import pytest

import tidemill as tm
from processes import run_script


def test_rows_are_pythons_own_objects():
    sql = """
        SELECT * FROM (VALUES
          (1, 1.5, 'é', true, DATE '2026-11-21', TIMESTAMP '1969-12-31T23:59:59.25',
           CAST(1.10 AS DECIMAL(10, 2)), [1, NULL], {'a': 1, 'b': ['x']}),
          (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        ) AS t(i, f, s, b, d, t, n, l, m)
    """
    first, second = tm.query(sql).to_pylist()
    assert first == {
        "i": 1,
        "f": 1.5,
        "s": "é",
        "b": True,
        "d": datetime.date(2026, 11, 21),
        "t": datetime.datetime(1969, 12, 31, 23, 59, 59, 250000),
        "n": decimal.Decimal("1.10"),
        "l": [1, None],
        "m": {"a": 1, "b": ["x"]},
    }
    assert first["b"] is True
    assert set(second.values()) == {None}


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(9223372036854775807 AS BIGINT)",
        "CAST(18446744073709551615 AS BIGINT UNSIGNED)",
        "CAST(-128 AS TINYINT)",
        "CAST(0.1 AS FLOAT)",
        "CAST('inf' AS DOUBLE)",
        "CAST(-12345678901234567890.123456789 AS DECIMAL(38, 9))",
        "CAST('a\nb' AS TEXT)",
        "CAST('ab' AS BYTEA)",
        "CAST('13:37:00.25' AS TIME)",
        "CAST('0001-01-01T00:00:00.000001' AS TIMESTAMP(6))",
        "arrow_cast('2026-03-29T01:30:00Z', 'Timestamp(Second, Some(\"Europe/Berlin\"))')",
        "arrow_cast(1500, 'Duration(Millisecond)')",
        "arrow_cast('x', 'Dictionary(Int32, Utf8)')",
        "arrow_cast([1, 2], 'LargeList(Int64)')",
        "arrow_cast([1, 2], 'FixedSizeList(2, Int64)')",
        "[[1, 2], [], NULL]",
        "[{'a': [DATE '2026-01-01']}]",
        "NULL",
    ],
)
def test_a_value_is_what_pyarrow_makes_of_it(expression):
    sql = f"SELECT x FROM (VALUES ({expression}), (NULL)) AS t(x)"
    ours = [row["x"] for row in tm.query(sql).to_pylist()]
    theirs = pyarrow.table(tm.query(sql))["x"].to_pylist()
    assert [repr(value) for value in ours] == [repr(value) for value in theirs]
    assert [type(value) for value in ours] == [type(value) for value in theirs]


def test_a_moment_in_utc_needs_no_tables_of_time_zones():
    sql = "SELECT arrow_cast('2026-03-29T00:30:00Z', 'Timestamp(Microsecond, Some(\"UTC\"))') AS t"
    (row,) = tm.query(sql).to_pylist()
    assert row["t"] == datetime.datetime(2026, 3, 29, 0, 30, tzinfo=datetime.timezone.utc)
    assert row["t"].tzinfo is datetime.timezone.utc


def test_a_map_is_a_dictionary():
    sql = "SELECT m FROM (VALUES (MAP {'a': 1, 'b': NULL}), (NULL)) AS t(m)"
    assert [row["m"] for row in tm.query(sql).to_pylist()] == [{"a": 1, "b": None}, None]


def test_lists_of_batches_that_are_parts_of_larger_ones(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("".join(f'{{"l": [{n}, {n + 1}]}}\n' for n in range(20_000)))
    rows = tm.query(f"SELECT l FROM '{path}' LIMIT 30 OFFSET 10000").to_pylist()
    assert [row["l"] for row in rows] == [[n, n + 1] for n in range(10_000, 10_030)]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("TIMESTAMP '2026-01-01T00:00:00.000000001'", "nanoseconds would be lost"),
        ("arrow_cast(arrow_cast(3652100, 'Int32'), 'Date32')", "out of range"),
        ("arrow_cast(253402300800, 'Timestamp(Second, None)')", "date value out of range"),
        ("arrow_cast('2026-01-01T00:00:00Z', 'Timestamp(Second, Some(\"+25:99\"))')", "time zone"),
    ],
)
def test_a_value_that_python_has_not_is_an_error(expression, says):
    try:
        result = tm.query(f"SELECT {expression} AS x")
    except tm.TidemillError:
        # The engine knows it neither.
        assert "25:99" in expression
        return
    with pytest.raises(tm.UsageError, match="a value of column `x`") as caught:
        result.to_pylist()
    assert says in str(caught.value)
    assert "to_arrow()" in str(caught.value)


def test_a_result_becomes_a_data_frame(hits):
    sql = f"SELECT * FROM '{hits}'"
    assert isinstance(tm.query(sql, null="NA").to_arrow(), pyarrow.Table)
    frame = tm.query(sql, null="NA").to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.rows() == [(1, "ann", 2), (1, "bob", None), (2, "ann", 4)]
    frame = tm.query(sql, null="NA").to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert [str(kind) for kind in frame.dtypes] in (
        ["int64", "str", "Int64"],
        # Before pandas 3.
        ["int64", "object", "Int64"],
    )
    assert frame["seconds"].sum() == 6


def test_large_numbers_beside_nulls_are_the_same_in_pandas():
    large = 2**53 + 1
    sql = f"SELECT x, x AS y, x > 0 AS z FROM (VALUES ({large}), (NULL)) AS t(x)"
    frame = tm.query(sql).to_pandas()
    assert frame["x"][0] == frame["y"][0] == large
    assert frame["z"].dtype == "boolean"
    assert frame["z"].isna().tolist() == [False, True]


def test_large_numbers_beside_nulls_are_the_same_within_lists_and_structs():
    large = 2**53 + 1
    sql = f"""SELECT [{large}, NULL] AS list, [[{large}, NULL]] AS lists,
                     named_struct('a', NULLIF(x, 1), 'b', [x, NULL]) AS record,
                     map(['k', 'j'], [{large}, NULL]) AS map, x
              FROM (VALUES ({large}), (1)) AS t(x)"""
    row = tm.query(sql).to_pandas().iloc[0]
    assert list(row["list"]) == [large, None]
    assert row["record"]["a"] == large
    assert list(row["record"]["b"]) == [large, None]
    assert [list(inner) for inner in row["lists"]] == [[large, None]]
    assert dict(row["map"]) == {"k": large, "j": None}
    frame = tm.query("SELECT [1, 2] AS list, 3 AS x").to_pandas()
    assert frame["list"][0].dtype == frame["x"].dtype == "int64"


def test_text_and_bytes_within_others_are_pandas_own_objects(tmp_path):
    rows = [
        {"l": ["a", None], "s": {"l": ["x"]}, "ls": [{"t": "q", "l": ["z"]}], "ll": [["a"], []]},
        {"l": [], "s": None, "ls": [None, {"t": None, "l": None}], "ll": None},
    ]
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = tm.query(f"SELECT *, map(['k'], [l]) AS m, l AS l2 FROM '{path}'").df()
    assert [list(value) for value in frame["l"]] == [["a", None], []]
    assert [list(value) for value in frame["l2"]] == [["a", None], []]
    assert list(frame["s"][0]["l"]) == ["x"] and frame["s"][1] is None
    assert frame["ls"][0][0]["t"] == "q" and list(frame["ls"][0][0]["l"]) == ["z"]
    assert list(frame["ls"][1]) == [None, {"t": None, "l": None}]
    assert [list(value) for value in frame["ll"][0]] == [["a"], []] and frame["ll"][1] is None
    assert list(dict(frame["m"][0])["k"]) == ["a", None]
    views = pyarrow.table(
        {
            "fixed": pyarrow.array([["a"], None], pyarrow.list_(pyarrow.string_view(), 1)),
            "large": pyarrow.array([[b"a"], None], pyarrow.large_list(pyarrow.binary_view())),
            "map": pyarrow.array(
                [[("a", ["b"])], []],
                pyarrow.map_(pyarrow.string_view(), pyarrow.list_(pyarrow.string_view())),
            ),
        }
    )
    frame = tm.query("SELECT * FROM views", views=views).df()
    assert list(frame["fixed"][0]) == ["a"] and list(frame["large"][0]) == [b"a"]
    assert list(dict(frame["map"][0])["a"]) == ["b"]


@pytest.mark.parametrize("select", ["INTERVAL '1 month'", "[INTERVAL '1 day']"])
def test_polars_is_given_no_intervals(select):
    with pytest.raises(tm.UsageError, match="no type for column `x`, which is INTERVAL"):
        tm.query(f"SELECT {select} AS x").to_polars()
    spent = tm.query("SELECT DATE '2026-01-02' - TIMESTAMP '2026-01-01' AS x").to_polars()
    assert spent["x"].dt.total_hours().to_list() == [24]


@pytest.mark.parametrize(
    ("method", "missing", "install"),
    [
        ("to_arrow", "pyarrow", "pyarrow"),
        ("to_polars", "polars", "polars"),
        ("to_pandas", "pandas", "pandas pyarrow"),
        ("to_pandas", "pyarrow", "pandas pyarrow"),
    ],
)
def test_a_missing_package_is_named(method, missing, install):
    done = run_script(
        f"""
        import sys
        import tidemill as tm

        class NotInstalled:
            def find_spec(self, name, path=None, target=None):
                if name == {missing!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

        sys.meta_path.insert(0, NotInstalled())
        result = tm.query("SELECT 1 AS one")
        try:
            result.{method}()
        except tm.MissingPackageError as error:
            assert isinstance(error, ImportError) and error.name == {missing!r}
            print(error)
        # Its rows are still there.
        print(result.to_pylist())
        """
    )
    assert done.stdout == (
        f"`{method}()` needs the package `{missing}`\nhint: pip install {install}\n[{{'one': 1}}]\n"
    ), done.stderr


@pytest.mark.parametrize("method", ["to_arrow", "to_polars", "to_pandas", "to_pylist"])
def test_an_error_after_the_first_rows_is_tidemills_own(method, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x\n" + "1\n" * 300_000 + "oops\n")
    result = tm.query(f"SELECT x FROM '{path}'", schema="x BIGINT")
    with pytest.raises(tm.BadRecordError) as caught:
        getattr(result, method)()
    assert caught.value.records[0]["line"] == 300_002
    assert "max_bad=" in str(caught.value)


def test_show_prints_the_first_rows_and_leaves_them(hits, capsys):
    result = tm.query(f"SELECT * FROM '{hits}'", null="NA")
    result.show(rows=2)
    assert capsys.readouterr().out == (
        "   day  user  seconds\n"
        "BIGINT  TEXT   BIGINT\n"
        "------  ----  -------\n"
        "     1  ann         2\n"
        "     1  bob      NULL\n"
        "the first 2 rows; there are more\n"
    )
    result.show()
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "3 rows",
        "complete: 3 rows from 1 file (42 B), 1/1 splits",
    ]
    assert len(result.to_pylist()) == 3
    result.show(rows=2)
    assert capsys.readouterr().out.splitlines()[-2] == "the first 2 of 3 rows"
    with pytest.raises(tm.UsageError, match="at least 1"):
        result.show(rows=0)


def test_show_makes_visible_what_would_drive_a_terminal_and_cuts_long_values(capsys):
    tm.query(f"SELECT chr(27) || '[31m' AS a, '{'x' * 200}' AS b").show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == r"\x1b[31m  " + "x" * 80 + "…"


class Cells(html.parser.HTMLParser):
    """The texts of a table's cells, and the tags that are open at the end."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.tags = [], [], set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def test_a_notebook_sees_the_first_rows_and_they_stay(hits):
    result = tm.query(f"SELECT user, day, seconds, '<b>' AS tag FROM '{hits}'", null="NA")
    shown = result._repr_html_()
    table = Cells(shown)
    assert table.open == []
    assert table.cells[:4] == ["userTEXT", "dayBIGINT", "secondsBIGINT", "tagTEXT"]
    assert table.cells[4:12] == ["ann", "1", "2", "<b>", "bob", "1", "null", "<b>"]
    assert "b" not in table.tags
    assert '<td class="number" align="right">2</td>' in shown
    assert '<span class="null">null</span>' in shown
    assert "3 rows" in shown and "complete: 3 rows from 1 file" in shown
    assert pyarrow.table(result).num_rows == 3
    assert Cells(result._repr_html_()).cells == table.cells
    result.close()
    assert "the rows have been taken" in result._repr_html_()
    assert repr(result) == (
        "Result(user TEXT, day BIGINT, seconds BIGINT, tag TEXT; its rows have been taken)"
    )


def test_a_notebook_sees_a_part_of_what_is_large(tmp_path):
    path = tmp_path / "wide.json"
    row = {f"c{n}": n for n in range(100)} | {"long": "x" * 10_000}
    path.write_text(f"{json.dumps(row)}\n" * 100)
    shown = tm.query(f"SELECT * FROM '{path}'")._repr_html_()
    table = Cells(shown)
    # 30 columns and the gap, in the heads and in 20 rows.
    assert len(table.cells) == 31 * 21
    assert table.cells[30:31] == ["longTEXT"]
    assert max(len(cell) for cell in table.cells) == 401
    assert "the first 20 rows; there are more" in shown
    assert "71 columns in the middle are not shown" in shown
    assert len(shown) < 60_000


def test_a_notebook_sees_a_warning_where_records_are_missing(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x\n1\noops\n")
    result = tm.query(f"SELECT x FROM '{path}'", schema="x BIGINT", max_bad=1)
    assert 'class="warning">complete: 1 row from 1 file' in result._repr_html_()
    assert 'class="warning"' not in tm.query("SELECT 1 AS one")._repr_html_()


def test_an_empty_result_has_its_columns(capsys):
    result = tm.query("SELECT 1 AS one WHERE false")
    assert Cells(result._repr_html_()).cells == ["oneBIGINT"]
    result.show()
    assert capsys.readouterr().out == "   one\nBIGINT\n------\n0 rows\n"
    assert result.to_pylist() == []


def test_a_schema_is_found_and_taken(hits, capsys):
    found = tm.schema(hits, null="NA")
    assert dict(found) == {"day": "BIGINT", "user": "TEXT", "seconds": "BIGINT"}
    assert (found.url, found.format, found.files, found.bytes) == (str(hits), "csv", 1, 42)
    assert str(found) == f"{hits}: csv, 42 B\n  day      BIGINT\n  user     TEXT\n  seconds  BIGINT"
    assert found.to_dict()["columns"][1] == {"name": "user", "type": "TEXT", "arrow": "Utf8View"}
    assert pyarrow.schema(found).names == found.names
    table = Cells(found._repr_html_())
    assert table.open == []
    assert table.cells == ["column", "type", "day", "BIGINT", "user", "TEXT", "seconds", "BIGINT"]
    assert tm.query(f"SELECT * FROM '{hits}'", schema=found, null="NA").schema == found
    nested = hits.parent / "nested.json"
    nested.write_text('{"a": {"b": [1]}}\n')
    assert tm.read_text(nested, schema=tm.schema(nested)).to_pylist() == [{"a": {"b": [1]}}]
    as_text = {"seconds": "TEXT"}
    assert tm.query(f"SELECT seconds FROM '{hits}'", schema=as_text).schema.types == ["TEXT"]
    with pytest.raises(tm.NotFoundError):
        tm.schema(hits.parent / "none.csv")
    with pytest.raises(tm.UsageError, match="did you mean `csv`"):
        tm.schema(hits, source_format="cvs")


@pytest.mark.parametrize(
    "name", ["a b", 'it"s', "Ärger", "select", "a.b", "1", "UPPER"], ids=lambda name: name
)
def test_a_schema_of_any_names_is_taken(name, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({name: 1}) + "\n")
    found = tm.schema(path)
    assert found.names == [name]
    assert tm.read_text(path, schema=found).to_pylist() == [{name: 1}]


def test_the_first_rows_are_a_look_and_no_run(hits):
    assert [row["user"] for row in tm.head(hits, rows=2).to_pylist()] == ["ann", "bob"]
    assert tm.head(hits, rows=0).to_pylist() == []
    assert len(tm.head(hits).to_pylist()) == 3
    assert tm.jobs() == []
    with pytest.raises(tm.UsageError, match="at least 0"):
        tm.head(hits, rows=-1)


def test_the_first_rows_of_a_broken_file_are_shown_where_that_is_asked_for(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    with pytest.raises(tm.TidemillError, match="malformed record"):
        tm.head(path, rows=1).to_pylist()
    shown = tm.head(path, max_bad="100%")
    assert shown.to_pylist() == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    assert shown.coverage["rows"]["rejected"] == 1


def test_a_query_writes_files(hits, tmp_path):
    sql = f"SELECT day, user FROM '{hits}'"
    written = tm.query(sql, output=tmp_path / "out" / "{day}.csv")
    assert (written.files, written.rows) == (2, 3)
    assert written.coverage["complete"] is True
    assert "files=2" in repr(written) and "coverage" not in repr(written)
    with pytest.raises(tm.OutputExistsError):
        tm.query(sql, output=tmp_path / "out" / "{day}.csv")
    written = tm.query(sql, output=str(tmp_path / "x"), format="json", overwrite=True)
    assert json.loads(pathlib.Path(written.paths[0]).read_text().splitlines()[0])["day"] == 1
    assert tm.jobs()[0]["output"] == str(tmp_path / "x")
    for option in ({"format": "csv"}, {"overwrite": True}, {"max_files": 2}):
        with pytest.raises(tm.UsageError, match="means nothing without `output`"):
            tm.query(sql, **option)
    with pytest.raises(tm.UsageError, match="must be at least 1"):
        tm.query(sql, output="x", max_files=0)


def test_files_are_written_without_the_names_of_columns(hits, tmp_path):
    sql = f"SELECT day, user FROM '{hits}' WHERE day = 1"
    tm.query(sql, output=tmp_path / "a.csv", no_header=True)
    assert (tmp_path / "a.csv").read_text() == "1,ann\n1,bob\n"
    tm.query(sql, output=tmp_path / "{day}.tsv", no_header=True)
    assert (tmp_path / "1.tsv").read_text() == "1\tann\n1\tbob\n"
    sink = {"url": tmp_path / "b.csv", "header": False}
    tm.run({"map": {"sql": sql}, "sink": sink})
    assert (tmp_path / "b.csv").read_text() == "1,ann\n1,bob\n"
    with pytest.raises(tm.UsageError, match=r"format `json` has no header(.|\n)*no_header=True"):
        tm.query(sql, output=tmp_path / "a.json", no_header=True)
    with pytest.raises(tm.UsageError, match="means nothing without `output`"):
        tm.query(sql, no_header=True)


def test_floats_that_are_no_numbers_are_floats():
    (row,) = tm.query(
        "SELECT CAST('NaN' AS DOUBLE) AS nan, CAST('-inf' AS DOUBLE) AS inf"
    ).to_pylist()
    assert math.isnan(row["nan"]) and row["inf"] == -math.inf
