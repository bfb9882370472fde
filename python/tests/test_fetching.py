"""Rows as tuples, one cursor for each result; intervals; results that are pickled."""

import asyncio
import copy
import datetime
import pickle
import threading

import pyarrow
import pytest

import tidemill as tm

NUMBERS = "SELECT x FROM range(5) AS t(x) ORDER BY x"


def numbers(path, count):
    path.write_text("x\n" + "".join(f"{n}\n" for n in range(count)))
    return f"SELECT x FROM '{path}'"


def test_a_cursor_moves_on_with_every_row_fetched():
    result = tm.query(NUMBERS)
    assert result.fetchone() == (0,)
    assert result.fetchmany(2) == [(1,), (2,)]
    assert result.fetchmany() == [(3,)]
    assert result.fetchmany(0) == []
    assert result.fetchall() == [(4,)]
    assert (result.fetchone(), result.fetchmany(3), result.fetchall()) == (None, [], [])
    with pytest.raises(tm.UsageError, match="`size` must be at least 0, not -1"):
        result.fetchmany(-1)


@pytest.mark.parametrize("sizes", [[1], [7], [1000, 1], [8192], [8191, 3], [100_000]])
def test_fetches_of_any_size_give_every_row_of_many_batches_once(sizes, tmp_path):
    result = tm.query(numbers(tmp_path / "x.csv", 50_000 if sizes != [1] else 20_000))
    fetched, turn = [], 0
    while rows := result.fetchmany(sizes[turn % len(sizes)]):
        fetched += rows
        turn += 1
    assert fetched == [(n,) for n in range(len(fetched))]
    assert len(fetched) == result.coverage["rows"]["done"]


def test_a_cursor_is_apart_from_all_other_ways_to_read():
    result = tm.query(NUMBERS)
    assert result.fetchone() == (0,)
    assert len(result.to_pylist()) == 5
    assert pyarrow.table(result).num_rows == 5
    assert result.fetchall() == [(1,), (2,), (3,), (4,)]
    assert [row for batch in result for row in batch.to_tuples()] == [(n,) for n in range(5)]


def test_rows_that_are_not_kept_are_fetched_in_bounded_memory(tmp_path):
    result = tm.query(numbers(tmp_path / "x.csv", 2_000_000), memory="64M")
    total = 0
    while rows := result.fetchmany(10_000):
        total += sum(x for (x,) in rows)
    assert total == sum(range(2_000_000))
    with pytest.raises(tm.UsageError, match="have been read already"):
        result.to_arrow()


def test_columns_are_described_as_the_database_api_has_them():
    result = tm.query("SELECT 1 AS n, 'a' AS s")
    assert [column[:2] for column in result.description] == [("n", "BIGINT"), ("s", "TEXT")]
    assert {len(column) for column in result.description} == {7}


def test_rows_without_columns_are_empty_tuples(tmp_path):
    assert tm.query("SELECT 1 AS x WHERE false").fetchall() == []
    assert tm.query("SELECT NULL AS x, [1, NULL] AS l").fetchone() == (None, [1, None])


def test_threads_that_fetch_by_one_cursor_get_each_row_once(tmp_path):
    result = tm.query(numbers(tmp_path / "x.csv", 30_000))
    parts = [[] for _ in range(4)]

    def fetch(part):
        while rows := result.fetchmany(100):
            part += rows

    threads = [threading.Thread(target=fetch, args=(part,)) for part in parts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(row for part in parts for row in part) == [(n,) for n in range(30_000)]
    assert all(part == sorted(part) for part in parts)


def test_a_fetch_that_fails_takes_no_row():
    sql = """SELECT t FROM (VALUES (1, TIMESTAMP '2026-01-01T00:00:00'),
             (2, TIMESTAMP '2026-01-01T00:00:00.000000001')) AS v(n, t) ORDER BY n"""
    result = tm.query(sql)
    for fetch in (result.fetchone, result.fetchall):
        with pytest.raises(tm.UsageError, match="a value of column `t`"):
            fetch()


def test_an_error_behind_the_first_rows_is_raised_where_it_is_met(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x\n" + "1\n" * 300_000 + "oops\n")
    result = tm.query(f"SELECT x FROM '{path}'", schema="x BIGINT")
    assert result.fetchone() == (1,)
    with pytest.raises(tm.BadRecordError):
        result.fetchall()


def test_a_closed_result_gives_no_rows_that_were_converted_before():
    result = tm.query(NUMBERS)
    assert result.fetchone() == (0,)
    result.close()
    for fetch in (result.fetchone, result.fetchmany, result.fetchall):
        with pytest.raises(tm.UsageError, match="this result is closed"):
            fetch()


@pytest.mark.parametrize(
    ("interval", "value"),
    [
        ("INTERVAL '1 day'", datetime.timedelta(days=1)),
        ("INTERVAL '-90 minutes'", -datetime.timedelta(minutes=90)),
        ("INTERVAL '1 day -1 hour'", datetime.timedelta(hours=23)),
        ("INTERVAL '0.000001 seconds'", datetime.timedelta(microseconds=1)),
        ("INTERVAL '1000 hours'", datetime.timedelta(hours=1000)),
        ("INTERVAL '1 month'", tm.Interval(months=1)),
        ("INTERVAL '1 year 2 days 3 hours'", tm.Interval(12, 2, 3 * 3600 * 10**9)),
        ("INTERVAL '-1 month'", tm.Interval(months=-1)),
        ("INTERVAL '0.000000001 seconds'", tm.Interval(nanoseconds=1)),
        ("INTERVAL '2000000000 days'", tm.Interval(days=2_000_000_000)),
        ("arrow_cast('1 year 1 month', 'Interval(YearMonth)')", tm.Interval(months=13)),
        ("arrow_cast('2 days', 'Interval(DayTime)')", datetime.timedelta(days=2)),
        ("[INTERVAL '1 month', NULL]", [tm.Interval(months=1), None]),
        ("CAST(NULL AS INTERVAL)", None),
    ],
)
def test_an_interval_is_a_timedelta_where_that_holds_it(interval, value):
    result = tm.query(f"SELECT {interval} AS x")
    assert result.fetchall() == [(value,)]
    assert result.to_pylist() == [{"x": value}]
    assert type(result.to_pylist()[0]["x"]) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        tm.Interval(1, 2, 3_000_000_000),
        tm.Interval(months=-14),
        tm.Interval(nanoseconds=-1_500_000_001),
        tm.Interval(2, -3, -4_000_000_000),
        pyarrow.MonthDayNano([5, 6, 7]),
    ],
)
def test_an_interval_is_a_parameter(value):
    result = tm.query("SELECT :x AS x", params={"x": value})
    assert result.schema.types == ["INTERVAL"]
    assert result.fetchone() == (tuple(value),)
    # PyArrow's own has the same parts.
    assert pyarrow.table(result)["x"].to_pylist() == [tuple(value)]


def test_an_interval_is_no_list_of_numbers():
    rows = [{"x": tm.Interval(1, 2, 3)}]
    with pytest.raises(tm.UsageError, match="column `x`: no column can hold Interval"):
        tm.query("SELECT x FROM rows")
    del rows


def test_a_result_is_pickled_with_its_rows_and_its_coverage(hits):
    sql = f"SELECT *, [day] AS days, {{'d': day}} AS s, CAST(day AS DECIMAL(9, 2)) FROM '{hits}'"
    result = tm.query(sql, null="NA")
    restored = pickle.loads(pickle.dumps(result))
    assert restored.to_pylist() == result.to_pylist()
    assert restored.schema == result.schema
    assert restored.coverage == result.coverage
    assert repr(restored) == repr(result)
    assert restored.fetchall() == result.fetchall()
    assert copy.deepcopy(restored).to_pylist() == result.to_pylist()
    restored.close()
    with pytest.raises(tm.UsageError, match="this result is closed"):
        pickle.dumps(restored)


def test_an_empty_result_and_an_estimate_are_pickled(tmp_path):
    empty = pickle.loads(pickle.dumps(tm.query("SELECT 1 AS one WHERE false")))
    assert (empty.schema.names, empty.to_pylist()) == (["one"], [])
    sql = numbers(tmp_path / "x.csv", 200_000).replace("SELECT x", "SELECT count() AS n")
    part = tm.query(sql, sample="50%", split_bytes="16k")
    restored = pickle.loads(pickle.dumps(part))
    assert str(restored) == str(part) and "±" in str(part)
    assert not restored.coverage["complete"]


def test_a_result_that_is_not_kept_cannot_be_pickled(tmp_path):
    result = tm.query(numbers(tmp_path / "x.csv", 3_000_000), memory="64M")
    with pytest.raises(tm.UsageError, match="cannot pickle this result: its rows take more"):
        pickle.dumps(result)
    # The first of them are still there.
    assert sum(batch.num_rows for batch in result) == 3_000_000
    with pytest.raises(tm.UsageError, match="have been read already"):
        pickle.dumps(result)


def test_batches_and_schemas_are_pickled(hits):
    result = tm.query(f"SELECT * FROM '{hits}'", null="NA")
    (batch,) = result
    restored = pickle.loads(pickle.dumps(batch))
    assert restored.to_pylist() == batch.to_pylist()
    assert restored.schema == batch.schema
    assert pickle.loads(pickle.dumps(result.schema)) == result.schema
    found = tm.schema(hits, null="NA")
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, tm.SourceSchema)
    assert str(again) == str(found) and again.to_dict() == found.to_dict()


def test_a_result_of_rowfiles_is_pickled_as_a_result(tmp_path):
    tm.query("SELECT 1 AS one", output=tmp_path / "a.rowfile")
    restored = pickle.loads(pickle.dumps(tm.read_rowfile(tmp_path / "a.rowfile")))
    assert type(restored) is tm.Result
    assert restored.fetchall() == [(1,)]


def test_a_result_is_closed_at_the_end_of_an_async_block():
    async def read():
        async with tm.query(NUMBERS) as result:
            rows = [row async for batch in result for row in batch.to_tuples()]
        return result, rows

    result, rows = asyncio.run(read())
    assert rows == [(n,) for n in range(5)]
    with pytest.raises(tm.UsageError, match="this result is closed"):
        result.fetchone()


def test_answers_are_read_and_closed_by_a_coroutine():
    async def read():
        async with tm.query("SELECT 1 AS x", progressive=True) as answers:
            return answers, [answer.fetchall() async for answer in answers]

    answers, rows = asyncio.run(read())
    assert rows[-1] == [(1,)]
    assert list(answers) == []


def test_a_file_is_read_and_closed_by_a_coroutine(tmp_path):
    (tmp_path / "a.txt").write_text("abc")

    async def read():
        async with tm.open(tmp_path / "a.txt") as file:
            return file, await asyncio.to_thread(file.read)

    file, content = asyncio.run(read())
    assert content == b"abc" and file.closed


def test_a_writer_in_an_async_block_leaves_a_whole_file_or_none(tmp_path):
    schema = tm.query("SELECT 1 AS x").schema

    async def write(name, rows):
        async with tm.RowFileWriter(tmp_path / name, schema) as writer:
            writer.write(rows)
            if len(rows) > 1:
                raise KeyError("two")

    asyncio.run(write("a.rowfile", [{"x": 1}]))
    assert tm.read_rowfile(tmp_path / "a.rowfile").fetchall() == [(1,)]
    with pytest.raises(KeyError):
        asyncio.run(write("b.rowfile", [{"x": 1}, {"x": 2}]))
    assert [path.name for path in tmp_path.iterdir()] == ["a.rowfile"]
