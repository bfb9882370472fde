"""A result that is read again, looked at, and waited for without blocking."""

import asyncio
import threading

import pandas
import polars
import pyarrow
import pytest

import tidemill as tm
from processes import run_script


def many(tmp_path, rows):
    path = tmp_path / "many.csv"
    path.write_text("x\n" + "".join(f"{n}\n" for n in range(rows)))
    return f"SELECT x FROM '{path}'"


def test_every_way_of_reading_begins_with_the_first_row(tmp_path):
    result = tm.query(many(tmp_path, 100_000))
    assert next(iter(result)).to_pylist()[0] == {"x": 0}
    assert sum(batch.num_rows for batch in result) == 100_000
    assert pyarrow.table(result).num_rows == result.arrow().num_rows == 100_000
    assert isinstance(result.df(), pandas.DataFrame) and len(result.df()) == 100_000
    assert isinstance(result.pl(), polars.DataFrame) and result.pl().height == 100_000
    assert tm.query("SELECT count() AS n FROM result").to_pylist() == [{"n": 100_000}]
    batches = iter(result)
    first = [next(batches), next(iter(result))]
    assert first[0].to_pylist() == first[1].to_pylist()


def test_rows_that_are_too_many_to_be_kept_are_read_once(tmp_path):
    result = tm.query(many(tmp_path, 3_000_000), memory="64M")
    assert repr(result).splitlines()[-1] == "the first 10 rows; there are more"
    assert sum(batch.num_rows for batch in result) == 3_000_000
    for read_again in (list, pyarrow.table, tm.Result.to_pylist, tm.Result.show):
        with pytest.raises(tm.UsageError, match="have been read already") as caught:
            read_again(result)
        assert "to_arrow()" in str(caught.value) and "memory=" in str(caught.value)
    assert "its rows have been taken" in repr(result)
    assert result.coverage["complete"]
    again = tm.query(many(tmp_path, 3_000_000), memory="64M")
    assert pyarrow.table(again).num_rows == 3_000_000
    with pytest.raises(tm.UsageError, match="have been read already"):
        pyarrow.table(again)


def test_a_reader_that_is_behind_is_told_and_the_other_goes_on(tmp_path):
    result = tm.query(many(tmp_path, 3_000_000), memory="64M")
    ahead, behind = iter(result), iter(result)
    rows = next(ahead).num_rows
    next(behind)
    for batch in ahead:
        rows += batch.num_rows
    assert rows == 3_000_000
    with pytest.raises(tm.UsageError, match="have been read already"):
        next(behind)


def test_a_look_shows_the_first_rows_and_how_many_there_are(tmp_path):
    result = tm.query("SELECT x, 'é' || x AS y FROM range(12) AS t(x) ORDER BY x")
    shown = repr(result).splitlines()
    assert shown[:4] == ["     x  y", "BIGINT  TEXT", "------  ----", "     0  é0"]
    assert shown[-1] == "the first 10 rows; there are more"
    assert len(shown) == 14
    assert len(result.to_pylist()) == 12
    assert repr(result).splitlines()[-1] == "the first 10 of 12 rows"
    assert str(result) == repr(result)
    with pytest.raises(tm.BadRecordError):
        path = tmp_path / "bad.csv"
        path.write_text("x\noops\n")
        repr(tm.query(f"SELECT x FROM '{path}'", schema="x BIGINT"))


def test_a_look_is_no_wider_than_it_may_be():
    columns = ", ".join(f"'{'x' * 60}' AS column_{n}" for n in range(3))
    lines = repr(tm.query(f"SELECT {columns}, 7 AS n")).splitlines()
    assert max(map(len, lines)) == 100
    assert lines[3].count("…") == 3 and lines[3].endswith(" 7")
    columns = ", ".join(f"'{'x' * 60}' AS column_{n}" for n in range(30))
    lines = repr(tm.query(f"SELECT {columns}")).splitlines()
    assert max(map(len, lines[:4])) <= 100
    assert lines[4].startswith("columns not shown: column_")


def test_an_event_loop_goes_on_while_rows_are_waited_for():
    done = run_script(
        """
        PIPE
        import asyncio

        async def read(result):
            return [row async for batch in result for row in batch.to_pylist()]

        async def main():
            result = tm.query("SELECT count() AS n FROM '-'", **csv)
            reading = asyncio.create_task(read(result))
            # Before there is an end to wait for.
            for _ in range(100):
                await asyncio.sleep(0)
            # Nor does a look stop the loop.
            print(reading.done(), repr(result))
            end()
            print(await reading)
            print((await result).to_pylist())

        feed()
        asyncio.run(main())
        """,
        timeout=600,
    )
    assert done.stdout == (
        "False Result(n BIGINT; its rows are to come)\n[{'n': 200000}]\n[{'n': 200000}]\n"
    ), done.stderr


@pytest.mark.parametrize("wait", ["await result", "[batch async for batch in result]"])
def test_a_task_that_is_cancelled_stops_its_run(wait):
    done = run_script(
        f"""
        PIPE
        import asyncio

        async def read(result):
            {wait}

        async def main():
            result = tm.query("SELECT count() AS n FROM '-'", **csv)
            reading = asyncio.create_task(read(result))
            await asyncio.sleep(0)
            reading.cancel()
            try:
                await reading
            except asyncio.CancelledError:
                print("cancelled")
            return result

        feed()
        result = asyncio.run(main())
        try:
            result.to_pylist()
        except tm.UsageError as error:
            print(error)
        print(tm.jobs()[0]["outcome"])
        """,
        timeout=600,
    )
    assert done.stdout == "cancelled\nthis result is closed\ninterrupted\n", done.stderr


def test_rows_that_are_too_many_are_not_waited_for_and_none_is_lost(tmp_path):
    async def read():
        result = tm.query(many(tmp_path, 3_000_000), memory="64M")
        with pytest.raises(tm.UsageError, match="take more than the") as caught:
            await result
        assert "async for" in str(caught.value)
        return sum([batch.num_rows async for batch in result])

    assert asyncio.run(read()) == 3_000_000


def test_an_awaited_result_raises_what_its_run_does(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("x\n1\noops\n")

    async def read():
        await tm.query(f"SELECT x FROM '{path}'", schema="x BIGINT")

    with pytest.raises(tm.BadRecordError):
        asyncio.run(read())


def test_many_results_are_awaited_at_once(tmp_path):
    sql = many(tmp_path, 1000)

    async def read():
        results = await asyncio.gather(*(tm.query(sql) for _ in range(20)))
        return [len(result.to_pylist()) for result in results]

    assert asyncio.run(read()) == [1000] * 20
    assert threading.active_count() < 20
