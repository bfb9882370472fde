"""Ctrl-C, threads and forks."""

import os
import threading

import pyarrow
import pytest

import tidemill as tm
from processes import run_script

# What reads standard input, a pipe that stays open and so never ends by itself. Those of the
# first kind find nothing in it, those of the second so many rows that they are past their plan.
WAITS = {
    "a plan": (0, "tm.query(sql, **csv)"),
    "a schema": (0, "tm.schema('-', **csv)"),
    "an explanation": (0, "tm.explain(sql, **csv)"),
    "the first rows": (0, "tm.head('-', **csv)"),
    "a job file": (0, "tm.Job.from_file('-')"),
    "a batch": (1, "list(tm.query(rows, **csv))"),
    "a stream": (1, "pyarrow.table(tm.query(rows, **csv))"),
    "a stream of one row": (1, "pyarrow.table(tm.query(sql, **csv))"),
    "a stream's batches": (1, "list(pyarrow.RecordBatchReader.from_stream(tm.query(rows, **csv)))"),
    "a stream for Polars": (1, "polars.DataFrame(tm.query(rows, **csv))"),
    "a stream for pandas": (1, "pandas.DataFrame.from_arrow(tm.query(rows, **csv))"),
    # A thread of DuckDB's own is where Python looks at no signals, and what waits for it neither.
    "a stream for DuckDB": (
        1,
        "c = duckdb.connect(config={'threads': 1}); r = tm.query(rows, **csv); "
        "c.sql('FROM r').fetchall()",
    ),
    "a frame of Polars": (1, "tm.query(rows, **csv).to_polars()"),
    "a frame of pandas": (1, "tm.query(rows, **csv).to_pandas()"),
    "a table": (1, "tm.query(rows, **csv).to_arrow()"),
    "rows as objects": (1, "tm.query(sql, **csv).to_pylist()"),
    "a sketch": (1, "tm.Hll().add_values(tm.query(rows, **csv))"),
    "a set of ids": (1, "tm.IdSpace().set(tm.query(rows, **csv))"),
    "a look": (1, "tm.query(sql, **csv).show()"),
    "a notebook's look": (1, "tm.query(sql, **csv)._repr_html_()"),
    "files": (1, "tm.query(rows, **csv, output='x.csv')"),
    "a job": (1, "job.run(output='x.csv')"),
    "a partial table": (1, "job.run(partial='x.part')"),
    "an answer by a deadline": (1, "tm.query(sql, **csv, deadline='1h').to_pylist()"),
    "rows to be found": (1, "tm.query(rows + ' WHERE x > 1', **csv, find=3).to_pylist()"),
}

PACKAGES = ("duckdb", "pandas", "polars", "pyarrow")


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_ends_what_would_never_end(wait, tmp_path):
    has_rows, statement = WAITS[wait]
    done = run_script(
        f"""
        PIPE
        {"".join(f"import {name}; " for name in PACKAGES if name in statement)}
        if {has_rows}:
            feed()
        sql, rows = "SELECT count() AS n FROM '-'", "SELECT x FROM '-'"
        job = tm.Job(source={{"url": "-", "format": "csv"}}, tables={{"n": "count()"}})
        try:
            interrupt()
            {statement}
        except KeyboardInterrupt:
            print("interrupted")
        # Once, and nothing is left of the way that it came.
        for _ in range(1000):
            assert sys.gettrace() is None
        """,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.stdout == "interrupted\n", done.stderr
    # DuckDB tells of its own objects that the end of the interpreter leaves.
    assert done.stderr == "" or "duckdb" in statement, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_result_says_that_it_was_interrupted():
    done = run_script(
        """
        PIPE
        feed()
        result = tm.query("SELECT count() AS n FROM '-'", **csv)
        try:
            interrupt()
            result.show()
        except KeyboardInterrupt:
            pass
        print(result)
        try:
            result.show()
        except tm.UsageError as error:
            print(error)
        print(tm.jobs()[0]["outcome"])
        """,
        timeout=600,
    )
    assert done.stdout == (
        "Result(n BIGINT; its rows have been taken)\n"
        "this result has no more rows: its run has failed (interrupted)\n"
        "interrupted\n"
    ), done.stderr


@pytest.mark.parametrize(
    "wait", ["result.to_arrow()", "result.to_pylist()", "pyarrow.table(result)"]
)
def test_what_a_signal_handler_raises_comes_out_of_the_wait(wait):
    done = run_script(
        f"""
        PIPE
        import pyarrow
        class TooSlow(Exception):
            pass

        def give_up(*_):
            raise TooSlow

        signal.signal(signal.SIGALRM, give_up)
        feed()
        result = tm.query("SELECT x FROM '-'", **csv)
        try:
            interrupt(number=signal.SIGALRM)
            {wait}
        except TooSlow:
            print("too slow")
        """,
        timeout=600,
    )
    assert done.stdout == "too slow\n", done.stderr


def many(tmp_path, rows):
    path = tmp_path / "many.csv"
    path.write_text("x\n" + "1\n" * rows)
    return path


def test_threads_read_results_of_their_own_at_the_same_time(tmp_path):
    path = many(tmp_path, 300_000)
    sums = []

    def read():
        table = pyarrow.table(tm.query(f"SELECT x FROM '{path}'"))
        sums.append(sum(table["x"].to_pylist()))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [300_000] * 4


def test_threads_read_one_result_each_from_its_first_row(tmp_path):
    result = tm.query(f"SELECT x FROM '{many(tmp_path, 300_000)}'")
    counts = []

    def read():
        rows = 0
        for batch in result:
            rows += batch.num_rows
            # Neither may keep the others from reading.
            assert repr(result).startswith(("     x\nBIGINT\n", "Result(x BIGINT; "))
        counts.append(rows)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [300_000] * 4


def test_a_result_is_looked_at_while_another_thread_waits_for_its_rows():
    done = run_script(
        """
        PIPE
        feed()
        result = tm.query("SELECT count() AS n FROM '-'", **csv)
        rows = []
        thread = threading.Thread(target=lambda: rows.extend(result.to_pylist()))
        thread.start()
        for _ in range(1000):
            result.stats, result.schema
        end()
        thread.join()
        print(rows)
        print(result)
        """,
        timeout=600,
    )
    assert done.stdout.startswith("[{'n': 200000}]\n     n\nBIGINT\n"), done.stderr


def test_a_look_while_rows_are_waited_for_does_not_wait_for_them():
    done = run_script(
        """
        PIPE
        from tidemill import _progress

        class Looking:
            looks = []

            def update(self, *_):
                # By the thread that waits, which has the rows.
                self.looks.append(repr(result))
                if len(self.looks) == 1:
                    threading.Thread(target=end).start()

            def clear(self):
                pass

        _progress.display = lambda progress, what: Looking()
        feed()
        result = None
        result = tm.query("SELECT count() AS n FROM '-'", **csv)
        Looking.looks.clear()
        print(result.to_pylist())
        print(Looking.looks[0])
        """,
        timeout=600,
    )
    assert done.stdout == ("[{'n': 200000}]\nResult(n BIGINT; its rows are to come)\n"), done.stderr


def test_a_fork_neither_reads_nor_records_its_parents_run(tmp_path):
    result = tm.query(f"SELECT x FROM '{many(tmp_path, 300_000)}'")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            result.to_pylist()
        except tm.UsageError as error:
            status = 0 if "belongs to another process" in str(error) else 2
        del result
        # A query of its own works.
        rows = tm.query("SELECT 1 AS one").to_pylist()
        os._exit(status if rows == [{"one": 1}] else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sum(batch.num_rows for batch in result) == 300_000
    assert [run["outcome"] for run in tm.jobs()] == ["done", "done"]


def test_answers_as_they_stand_are_their_own_processs(tmp_path):
    path = many(tmp_path, 300_000)
    done = run_script(
        f"""
        import gc, os
        import tidemill as tm

        sql = "SELECT x % 7 AS k, count() AS n FROM '{path}' GROUP BY k ORDER BY k"
        unread, begun = (tm.query(sql, progressive=True) for _ in range(2))
        answer = next(begun)
        child = os.fork()
        if child == 0:
            refused = 0
            for does in ("__next__", "result", "close"):
                try:
                    getattr(unread, does)()
                except tm.UsageError as error:
                    refused += "belong to another process" in str(error)
            # What is let go of waits for no thread of the other process.
            del unread, begun, answer
            gc.collect()
            rows = tm.query("SELECT 1 AS one").to_pylist()
            os._exit(0 if (refused, rows) == (3, [{{"one": 1}}]) else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        for answers in (unread, begun):
            print(sum(row["n"] for row in answers.result().to_pylist()))
        """,
        timeout=600,
    )
    assert done.stdout == "0\n300000\n300000\n", done.stderr
    assert "panicked" not in done.stderr
    assert [run["outcome"] for run in tm.jobs()] == ["done"] * 3


def test_a_closed_result_stops_its_run(tmp_path):
    path = many(tmp_path, 500_000)
    with tm.query(f"SELECT x FROM '{path}'") as result:
        next(iter(result))
    with pytest.raises(tm.UsageError, match="this result is closed"):
        next(iter(result))
    assert tm.jobs()[0]["outcome"] == "interrupted"
    with tm.query("SELECT 1 AS one") as result:
        rows = result.to_pylist()
    assert rows == [{"one": 1}]
    assert tm.jobs()[0]["outcome"] == "done"


@pytest.mark.parametrize("call", ["tm.Hll().add_values", "tm.Hll().add_hashes", "tm.IdSpace().set"])
def test_an_interrupt_ends_what_takes_objects(call):
    done = run_script(
        f"""
        PIPE
        import itertools
        begun = threading.Event()

        def endless():
            for number in itertools.count():
                if number == 100_000:
                    begun.set()
                yield number

        try:
            interrupt(begun.is_set)
            {call}(endless())
        except KeyboardInterrupt:
            print("interrupted")
        """,
        timeout=600,
    )
    assert done.stdout == "interrupted\n", done.stderr
