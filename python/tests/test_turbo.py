"""Answers that may rest on a part of the input."""

import datetime
import random
import re

import pyarrow
import pytest
from pyarrow import parquet

import tidemill as tm

KEYS = "abcd"

SQL = """
    SELECT k, count() AS n, sum(v) AS total, avg(v) AS mean, max(v) AS most
    FROM '{}' GROUP BY k ORDER BY k
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """40 files with 200,000 records together; the pattern, and the records."""
    folder = tmp_path_factory.mktemp("logs")
    drawn = random.Random(0)
    records = [(drawn.choice(KEYS), drawn.randrange(1000)) for _ in range(200_000)]
    for file in range(40):
        part = records[file * 5_000 : (file + 1) * 5_000]
        text = "".join(f"{k},{v},2026-11-20\n" for k, v in part)
        (folder / f"{file:02d}.csv").write_text(f"k,v,day\n{text}")
    return f"{folder}/*.csv", records


@pytest.fixture(scope="module")
def exact(logs):
    values = {k: [v for key, v in logs[1] if key == k] for k in KEYS}
    return [
        {"k": k, "n": len(v), "total": sum(v), "mean": sum(v) / len(v), "most": max(v)}
        for k, v in values.items()
    ]


def ask(logs, **options):
    result = tm.query(SQL.format(logs[0]), **options)
    return result.to_pylist(), result


def test_a_sample_is_near_the_exact_answer_and_says_how_near(logs, exact):
    rows, result = ask(logs, sample="20%", seed=7)
    names = ["n", "total", "mean", "most"]
    bounds = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    assert result.schema.names == ["k", *bounds]
    assert dict(result.schema)["n"] == "DOUBLE"
    assert [row["k"] for row in rows] == [row["k"] for row in exact]
    for row, truth in zip(rows, exact, strict=True):
        assert row["n"] == pytest.approx(truth["n"], rel=0.2)
        for name in ("n", "total", "mean"):
            low, value, high = row[f"{name}_low"], row[name], row[f"{name}_high"]
            assert low <= value <= high and low < high
            # Of a draw that does not change: three times as far would be beyond any luck.
            assert abs(value - truth[name]) <= 3 * max(high - value, value - low)
        # What was seen is the least that the largest value can be.
        assert row["most_low"] == row["most"] <= truth["most"]
        assert row["most_high"] is None

    coverage = result.coverage
    assert coverage["complete"] is False
    assert coverage["stopped"].startswith("a sample of ")
    assert 0 < coverage["splits"]["done"] < coverage["splits"]["total"]
    assert [estimate["column"] for estimate in coverage["estimates"]] == names
    sampled = coverage["sampled"]
    assert sampled["seed"] == 7 and sampled["confidence"] == 0.95 and sampled["scaled"] is True
    assert sampled["share"] == pytest.approx(0.2, rel=0.2)
    assert sampled["given_up"] == sampled["in_flight"] == {"splits": 0, "bytes": 0}
    assert sampled["given_up_files"] == [] and sampled["wrong_starts"] == 0
    assert 0 < sampled["unseen_share"] < 1


def test_equal_seeds_give_equal_answers(logs):
    first, result = ask(logs, sample=0.1, seed=1)
    again, other = ask(logs, sample="10%", seed=1, threads=1)
    assert first == again
    assert result.coverage["sampled"] == other.coverage["sampled"]
    assert first != ask(logs, sample=0.1, seed=2)[0]


def test_surer_intervals_are_wider(logs):
    usual, _ = ask(logs, sample="20%")
    surer, result = ask(logs, sample="20%", confidence="99%")
    assert result.coverage["sampled"]["confidence"] == 0.99
    for row, wider in zip(usual, surer, strict=True):
        assert row["n"] == wider["n"]
        assert wider["n_high"] - wider["n_low"] > row["n_high"] - row["n_low"]


@pytest.mark.parametrize(
    "options",
    [
        {"deadline": "1h"},
        {"deadline": 3600},
        {"deadline": 3600.5},
        {"deadline": datetime.timedelta(hours=1)},
        # So nearly all splits that it is all of them.
        {"sample": "99.9%"},
        # More precise than any part of the input.
        {"error": 1e-9},
    ],
    ids=str,
)
def test_what_is_read_to_its_end_is_exact(options, logs, exact):
    rows, result = ask(logs, **options)
    for row, truth in zip(rows, exact, strict=True):
        for name in ("n", "total", "most"):
            assert row[f"{name}_low"] == row[name] == row[f"{name}_high"] == truth[name]
        assert row["mean_low"] == row["mean"] == row["mean_high"] == pytest.approx(truth["mean"])
    coverage = result.coverage
    assert coverage["complete"] is True and coverage["stopped"] is None
    assert coverage["sampled"]["share"] == 1.0 and coverage["sampled"]["unseen_share"] is None
    assert "±" not in str(result)


@pytest.fixture(scope="module")
def incident(tmp_path_factory):
    """100 row groups in the order of time, of which 1 % are errors, 44 % in an hour of 37.

    Returns the path, and the count of errors.
    """
    drawn = random.Random(1)
    groups, errors = [], 0
    for group in range(100):
        share = 0.44 if 50 <= group < 53 else 0.01
        status = [500 if drawn.random() < share else 200 for _ in range(1_000)]
        errors += status.count(500)
        # Incompressible numbers: a row group of a few bytes would not be a split of its own.
        ms = [drawn.random() for _ in range(1_000)]
        groups.append(pyarrow.table({"status": status, "ms": ms}))
    path = tmp_path_factory.mktemp("incident") / "log.parquet"
    with parquet.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=1_000)
    return path, errors


@pytest.fixture(scope="module")
def outage(tmp_path_factory):
    """100 row groups without errors, but for half of one; the path, and the count of good rows."""
    drawn = random.Random(2)
    path = tmp_path_factory.mktemp("outage") / "log.parquet"
    good = 0
    with parquet.ParquetWriter(
        path, pyarrow.schema([("status", "int64"), ("ms", "float64")])
    ) as writer:
        for group in range(100):
            status = [500 if group == 50 and row % 2 else 200 for row in range(1_000)]
            good += status.count(200)
            ms = [drawn.random() for _ in range(1_000)]
            writer.write_table(pyarrow.table({"status": status, "ms": ms}), row_group_size=1_000)
    return path, good


@pytest.fixture(scope="module")
def burst(tmp_path_factory):
    """A log with 1 % errors, 44 % in one hour of a hundred; 1 % of the others are 404."""
    drawn = random.Random(3)
    rows = 2_000_000
    lines = ["status,v,q\n"]
    for row in range(rows):
        share = 0.44 if 0.6 <= row / rows < 0.61 else 0.01
        chance = drawn.random()
        status = 500 if chance < share else 404 if chance > 0.99 else 200
        lines.append(f"{status},{1 + 9 * drawn.random():.12f},1\n")
    path = tmp_path_factory.mktemp("burst") / "log.csv"
    path.write_text("".join(lines))
    return path


ERRORS = "SELECT count(*) FILTER (WHERE status = 500) AS errors, count(*) AS n FROM '{}'"


@pytest.mark.parametrize("sample", ["5%", "8%", "20%"])
def test_too_few_splits_give_no_interval(sample, incident):
    for seed in range(20):
        result = tm.query(ERRORS.format(incident[0]), sample=sample, seed=seed)
        [row] = result.to_pylist()
        assert row["errors"] > 0
        assert row["errors_low"] is None and row["errors_high"] is None
        said = {one["column"]: one["interval"] for one in result.coverage["estimates"]}
        assert said["errors"] == "has no interval: too few splits were read"
    assert "errors has no interval: too few splits were read" in str(result)
    assert str(result).splitlines()[3].lstrip().startswith("~ ")


def test_an_interval_of_a_burst_holds_whether_it_was_met_or_not(incident):
    path, errors = incident
    shown = held = 0
    for seed in range(40):
        [row] = tm.query(ERRORS.format(path), sample="60%", seed=seed).to_pylist()
        if row["errors_low"] is not None:
            shown += 1
            held += row["errors_low"] <= errors <= row["errors_high"]
    assert shown >= 20 and held >= 0.9 * shown


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FILTER (WHERE status = 200) AS n FROM '{}'",
        "SELECT count(*) AS n FROM '{}' WHERE status = 200",
        "SELECT count(CASE WHEN status = 200 THEN ms END) AS n FROM '{}'",
        "SELECT status, count(*) AS n FROM '{}' GROUP BY status ORDER BY n DESC LIMIT 1",
    ],
)
def test_count_that_covers_all_rows_read_is_no_exact_count(sql, outage):
    path, count = outage
    missed = shown = held = 0
    for seed in range(20):
        row = tm.query(sql.format(path), sample="60%", seed=seed).to_pylist()[0]
        # All rows that were read are counted, and others may not be.
        missed += row["n"] == 100_000
        if row["n_low"] is not None:
            shown += 1
            held += row["n_low"] <= count <= row["n_high"]
            assert row["n_low"] < row["n_high"]
    assert missed > 0 and held >= 0.9 * shown


@pytest.mark.parametrize(
    "sql",
    [
        "1.0 * count(*) FILTER (WHERE status = 500) / count(*) FILTER (WHERE status = 404)",
        "sum(v) FILTER (WHERE status = 500) / sum(v)",
        "1.0 * sum(q) FILTER (WHERE status = 500) / sum(q)",
        "1.0 * count(*) FILTER (WHERE status = 500) / count(*)",
    ],
)
def test_ratio_of_different_rows_holds_for_a_burst_that_was_missed(sql, burst):
    sql = f"SELECT {sql} AS share FROM '{burst}'"
    [truth] = tm.query(sql).to_pylist()
    shown = held = 0
    for seed in range(40):
        [row] = tm.query(sql, sample="1%", split_bytes="16k", seed=seed).to_pylist()
        if row["share_low"] is not None:
            shown += 1
            held += row["share_low"] <= truth["share"] <= row["share_high"]
    assert held >= 0.9 * shown


def test_estimate_without_interval_is_not_precise(incident):
    path, errors = incident
    result = tm.query(ERRORS.format(path), error="99%")
    [row] = result.to_pylist()
    # The checks after 16 and 24 splits find too few splits for an interval.
    assert result.coverage["splits"]["done"] >= 36
    assert row["errors_low"] <= errors <= row["errors_high"]


def test_a_mean_of_too_few_splits_of_a_day_has_no_interval(tmp_path):
    rows = [(day, 10_000 if hour == 7 else 100) for day in range(7) for hour in range(24)]
    text = "".join(f"2026-11-{day + 20},{ms + n % 7}\n" for day, ms in rows for n in range(1_000))
    (tmp_path / "log.csv").write_text(f"day,ms\n{text}")
    sql = f"SELECT day, avg(ms) AS ms, count(*) AS n FROM '{tmp_path}/log.csv' GROUP BY day"
    for row in tm.query(sql, sample="50%", split_bytes="16k").to_pylist():
        # About ten splits of each day are read.
        assert row["ms"] > 0 and row["ms_low"] is None


def test_other_answers_are_no_samples(logs):
    _, result = ask(logs)
    assert "sampled" not in result.coverage
    assert result.schema.names == ["k", "n", "total", "mean", "most"]


def test_numbers_are_those_of_what_was_seen_if_asked_for(logs, exact):
    rows, result = ask(logs, sample="10%", as_seen=True)
    assert sum(row["n"] for row in rows) == result.coverage["rows"]["done"]
    assert result.coverage["sampled"]["scaled"] is False
    assert all(row["n"] < truth["n"] / 2 for row, truth in zip(rows, exact, strict=True))


def test_bounds_are_left_out_if_asked_for(logs):
    rows, result = ask(logs, sample="10%", no_intervals=True)
    assert dict(result.schema)["n"] == "BIGINT" and list(rows[0]) == result.schema.names
    assert result.schema.names == ["k", "n", "total", "mean", "most"]
    scaled, _ = ask(logs, sample="10%")
    assert all(row["n"] == round(other["n"]) for row, other in zip(rows, scaled, strict=True))


def test_an_estimate_and_its_bounds_are_shown_as_one(logs):
    result = tm.query(SQL.format(logs[0]), sample="20%", seed=7)
    text = str(result)
    assert text.splitlines()[0].split() == ["k", "n", "total", "mean", "most"]
    # Intervals reach farther up: an unread split may lack the group or hold nothing else.
    shown = re.compile(
        r"^a +[\d,]+ \([\d,]+ … [\d,]+\) +[\d,]+ \([\d,]+ … [\d,]+\)"
        r" +[\d.]+ \([\d.]+ … [\d.]+\) +≥ \d+$",
        re.MULTILINE,
    )
    assert shown.search(text), text
    assert "INCOMPLETE" in text
    html = result._repr_html_()
    assert re.search(r">[\d.]+ \([\d.]+ … [\d.]+\)</td>", html) and "n_low" not in html
    assert 'class="warning"' in html
    # They are there all the same.
    assert "n_low" in result.schema.names and "n_low" in result.to_pylist()[0]


def test_files_have_the_bounds_too(logs, tmp_path):
    written = tm.query(SQL.format(logs[0]), sample="10%", output=tmp_path / "out.csv")
    assert written.coverage["complete"] is False
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header.startswith("k,n,n_low,n_high,total,")


def test_the_first_rows_that_are_found_are_enough(logs):
    sql = f"SELECT k, v FROM '{logs[0]}' WHERE v > 990"
    result = tm.query(sql, find=3)
    rows = result.to_pylist()
    assert len(rows) == 3 and all(row["v"] > 990 for row in rows)
    assert result.coverage["complete"] is True
    assert result.coverage["stopped"] == "stopped once the limit was reached"
    assert tm.query(f"SELECT k FROM '{logs[0]}' WHERE v < 0", find=3).to_pylist() == []


def test_rows_of_a_sample_are_as_they_are(logs):
    result = tm.query(f"SELECT k, v FROM '{logs[0]}'", sample="10%")
    rows = result.to_pylist()
    assert 0 < len(rows) < len(logs[1]) / 2
    assert result.schema.names == ["k", "v"]
    assert {(row["k"], row["v"]) for row in rows} <= set(logs[1])
    assert result.coverage["complete"] is False


def test_a_single_small_file_is_read_to_its_end(hits):
    result = tm.query(f"SELECT count() AS n FROM '{hits}'", sample="1%")
    assert result.to_pylist() == [{"n": 3.0, "n_low": 3.0, "n_high": 3.0}]
    assert result.coverage["complete"] is True


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        (
            "SELECT v FROM '{}' ORDER BY v",
            {"sample": "1%"},
            "no estimate can be made of a part of the input: the query sorts rows that are not "
            "aggregated\n"
            "hint: one aggregation over one source can be estimated; leave deadline=, drop=, "
            "error= and sample= out: then the answer is exact",
        ),
        (
            "SELECT k, row_number() OVER (ORDER BY v) AS place FROM '{}'",
            {"deadline": "1h"},
            "no estimate can be made of a part of the input: the query has a window function",
        ),
        (
            "SELECT k FROM '{0}' UNION ALL SELECT k FROM '{0}'",
            {"drop": "1%"},
            "no estimate can be made of a part of the input: the query has a UNION",
        ),
        (
            "SELECT k, count() FROM '{}' GROUP BY k",
            {"find": 3},
            "`find` is of rows, and the query groups them: all of its input is looked at",
        ),
        (
            "SELECT k FROM '{}' OFFSET 5",
            {"find": 3},
            "rows are found in no order, and OFFSET leaves out the first of one",
        ),
        (
            "SELECT k FROM '{}'",
            {"error": "2%"},
            "`error` is of counts, sums, means and ratios of them, and the query has none\n"
            'hint: say when to stop: deadline="7s", drop="10%", sample="1%" or find=10',
        ),
        (
            "SELECT max(v) FROM '{}'",
            {"error": "2%"},
            "`error` is of counts, sums, means and ratios of them, and the query has none\n"
            'hint: say when to stop: deadline="7s", drop="10%" or sample="1%"',
        ),
        (
            "SELECT count() AS n, top_k(k, 2) AS top FROM '{}'",
            {"error": "2%"},
            "`error` looks at the tables meanwhile, and those of top_k and collect are put "
            "together in the end",
        ),
        (
            "SELECT count() FROM '{}' TABLESAMPLE 10%",
            {"sample": "1%"},
            "is sampled by the query already",
        ),
        ("SUMMARIZE '{}'", {"sample": "1%"}, "a summary of columns is of all rows"),
        (
            "SELECT count() AS n, max(v) AS n_low FROM '{}'",
            {"sample": "1%"},
            "two columns would be `n_low`: one that the query has, and a bound of `n`\n"
            "hint: give one of them another name, or leave the bounds out: no_intervals=True",
        ),
    ],
)
def test_what_cannot_be_estimated_is_refused(sql, options, message, logs):
    with pytest.raises(tm.UsageError, match=re.escape(message)):
        tm.query(sql.format(logs[0]), **options)
    with pytest.raises(tm.UsageError, match=re.escape(message)):
        tm.explain(sql.format(logs[0]), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"deadline": "7"},
            "`7` is no time\nhint: more than nothing, with a unit: 200ms, 7s, 1.5m or 1h",
        ),
        ({"deadline": 0}, "`0s` is no time"),
        ({"deadline": -1.5}, "`-1.5s` is no time"),
        ({"deadline": float("nan")}, "`nans` is no time"),
        ({"deadline": datetime.timedelta(0)}, "`0s` is no time"),
        (
            {"deadline": True},
            "`deadline` must be a str, a number of seconds or a timedelta, not bool",
        ),
        (
            {"drop": 10},
            "`10` is no share for `drop`\nhint: more than 0 % and less than 100 %, such as 10%; "
            "without `%` it is a part of one",
        ),
        ({"sample": "0%"}, "`0%` is no share for `sample`"),
        ({"error": "much"}, "`much` is no share for `error`"),
        ({"sample": 0.1, "confidence": 95}, "`95` is no share for `confidence`"),
        ({"find": 0}, "`0` is no number of rows to find, at least 1"),
        ({"sample": 0.1, "seed": -1}, "`-1` is no seed: it is a whole number from 0 to 2^64 - 1"),
        ({"sample": 0.1, "split_bytes": 1}, "`1` is no size of a split\nhint: at least 1k;"),
        (
            {"seed": 1},
            "`seed` is of an answer that may rest on a part of the input, and this one is exact\n"
            'hint: say when enough has been read: deadline="7s", drop="10%", error="2%" or '
            'sample="1%"',
        ),
        ({"split_bytes": "64k"}, "`split_bytes` is of an answer that may rest on a part"),
        ({"as_seen": True}, "`as_seen` is of an answer that may rest on a part"),
        (
            {"error": "2%", "as_seen": True},
            "`error` looks at intervals, and none are asked for\n"
            "hint: leave as_seen=True and no_intervals=True out; or stop by deadline=, drop= or "
            "sample=",
        ),
        (
            {"sample": [{"a": 1}]},
            "`sample` must be a str or a number, not list\n"
            "hint: `sample` is an option; a source needs another name",
        ),
    ],
    ids=str,
)
def test_a_wrong_value_is_an_error_that_says_which(options, message, hits):
    with pytest.raises(tm.UsageError, match=re.escape(message)):
        tm.query(f"SELECT count() FROM '{hits}'", **options)


def test_a_source_may_be_called_nearly_as_an_option_is():
    assert tm.query("SELECT n FROM errors", errors=[{"n": 1}]).to_pylist() == [{"n": 1}]


def job_of(logs, **turbo):
    return tm.Job(
        source={"url": logs[0]},
        tables={"by": "k", "n": "count()"},
        turbo=turbo,
    )


def test_a_job_says_when_it_may_stop(logs):
    turbo = {
        "deadline": "1h",
        "drop": "10%",
        "sample": 0.1,
        "seed": 7,
        "confidence": 0.9,
        "split_bytes": "16k",
        "no_intervals": True,
    }
    job = job_of(logs, **turbo)
    assert job.to_dict()["turbo"] == turbo
    assert "[turbo]\n" in job.to_toml()
    assert tm.Job.from_toml(job.to_toml()) == job
    assert tm.Job(**job.to_dict()) == job
    assert job != job_of(logs, **turbo | {"seed": 8})
    for deadline in (datetime.timedelta(minutes=1), 60, 60.0):
        assert job_of(logs, deadline=deadline).to_dict()["turbo"] == {"deadline": "60s"}
    with pytest.raises(tm.UsageError, match=r"unknown key `dead_line`.*mean `deadline`"):
        job_of(logs, dead_line="7s")
    with pytest.raises(tm.UsageError, match="`7` is no time"):
        tm.Job.from_toml("source.url = 'a'\nturbo.deadline = 7\n")


def test_a_jobs_sample_is_that_of_a_query_and_gives_way_to_parameters(logs):
    rows = {row["k"]: row for row in ask(logs, sample="20%", seed=7)[0]}
    job = job_of(logs, sample="20%", seed=7)
    result = job.run()
    for row in result.to_pylist():
        assert row == {name: rows[row["k"]][name] for name in ("k", "n", "n_low", "n_high")}
    assert result.coverage["sampled"]["seed"] == 7
    for other in (job.run(seed=8), job.run(set={"turbo.seed": 8}), tm.run(job.to_dict(), seed=8)):
        assert len(other.to_pylist()) == len(KEYS) and other.coverage["sampled"]["seed"] == 8
    exact = job.run(set={"turbo.sample": "99.9%"})
    assert sum(row["n"] for row in exact.to_pylist()) == len(logs[1])
    assert exact.coverage["complete"] is True


def test_a_partial_table_holds_all_of_its_input(logs, tmp_path):
    message = "a table that others are merged with holds all of its input"
    with pytest.raises(tm.UsageError, match=message):
        job_of(logs, sample="10%").run(partial=tmp_path / "a.part")
    with pytest.raises(tm.UsageError, match=message):
        job_of(logs).run(partial=tmp_path / "a.part", deadline="1h")
    assert list(tmp_path.iterdir()) == []


def test_a_job_is_explained_as_it_would_be_run(logs):
    job = tm.Job(source={"url": logs[0]}, turbo={"find": 3})
    assert job.explain().path == "rows"
    with pytest.raises(tm.UsageError, match="`error` is of counts"):
        job.explain(error="2%")


def test_what_a_query_would_take_on_a_cluster_is_told(logs):
    plan = tm.explain(SQL.format(logs[0]), cluster="cores=100,disks=10,bytes=1GB")
    assert plan.forecast["cluster"]["cores"] == 100
    assert plan.forecast["measured"]["groups"] == len(KEYS)
    assert [outlook["cores"] for outlook in plan.forecast["outlooks"]] == [100, 10, 1000]
    # A gigabyte from ten disks of 200 MB a second.
    assert plan.forecast["outlooks"][0]["parts"]["disks"] == pytest.approx(0.5)
    assert "measured here: " in str(plan) and plan.to_dict()["forecast"] == plan.forecast
    assert tm.explain(SQL.format(logs[0])).forecast is None


@pytest.mark.parametrize(
    ("sql", "cluster", "message"),
    [
        (SQL, "cores=0", "`0` is no number of cores"),
        (SQL, "disks=10", "a cluster has cores"),
        ("SELECT v FROM '{}' ORDER BY v", "cores=8", "no forecast can be made: the query sorts"),
    ],
)
def test_a_forecast_that_cannot_be_made_is_refused(sql, cluster, message, logs):
    with pytest.raises(tm.UsageError, match=message):
        tm.explain(sql.format(logs[0]), cluster=cluster)


def test_answers_as_they_stand_end_with_the_result(tmp_path):
    rows = "".join(f"{n % 3},{n}\n" for n in range(200_000))
    for file in range(20):
        (tmp_path / f"{file:02}.csv").write_text("k,n\n" + rows)
    sql = f"SELECT k, count() AS n, sum(n) AS total FROM '{tmp_path}/*.csv' GROUP BY k ORDER BY k"
    plain = tm.query(sql)
    exact = [
        (k, n, float(n), float(n), total, float(total), float(total))
        for k, n, total in plain.fetchall()
    ]
    answers = list(tm.query(sql, progressive=True))
    assert answers[-1].fetchall() == exact
    assert answers[-1].coverage["complete"]
    for answer in answers[:-1]:
        assert not answer.coverage["complete"]
        assert pyarrow.table(answer).num_rows == 3
    # From first to last, and where there is the last alone.
    columns = [f"{name}{bound}" for name in ("n", "total") for bound in ("", "_low", "_high")]
    short = tm.query(sql.replace("*.csv", "00.csv"), progressive=True).result()
    for answer in (*answers, short):
        assert answer.schema.names == ["k", *columns]
        assert answer.schema.types == ["BIGINT", *["BIGINT", "DOUBLE", "DOUBLE"] * 2]
        assert pyarrow.table(answer).schema == pyarrow.schema(answers[-1])
    shares = [answer.coverage["sampled"]["share"] for answer in answers[:-1]]
    assert shares == sorted(shares)
    assert tm.query(sql, progressive=True).result().fetchall() == exact


def test_answers_that_cannot_be_given_early_are_left_out(tmp_path):
    for file in range(12):
        big = [file == 3 and row < 30_000 for row in range(90_000)]
        lines = "".join(f"{7 if it else 1},{'a' * 20},{3 * 10**14 if it else 1}\n" for it in big)
        (tmp_path / f"{file:02}.csv").write_text("x,w,big\n" + lines)
    for sql in (
        f"SELECT sum(big) AS n FROM '{tmp_path}/*.csv'",
        f"SELECT count(*)::SMALLINT AS n FROM '{tmp_path}/*.csv' WHERE x = 7",
    ):
        exact = tm.query(sql).fetchone()[0]
        last = list(tm.query(sql, progressive=True))[-1]
        assert last.coverage["complete"] and last.to_pylist()[0]["n"] == exact


def test_columns_that_are_no_estimates_have_no_bounds_in_any_answer(tmp_path):
    (tmp_path / "a.csv").write_text("k,t\na,2026-11-01T00:00:00\nb,2026-11-02T00:00:00\n")
    sql = f"SELECT k, max(t) AS last, count() AS n FROM '{tmp_path}/a.csv' GROUP BY k ORDER BY k"
    columns = dict(tm.query(sql).schema)
    answer = tm.query(sql, progressive=True).result()
    shown = dict(answer.schema)
    # A largest value of a part of the input is a bound of that of all.
    assert {name: shown[name] for name in columns} == columns
    assert {name.removesuffix("_low").removesuffix("_high") for name in shown} == {*columns}
    first = answer.to_pylist()[0]
    assert first["n"] == first["n_low"] == first["n_high"] == 1
    keys = tm.query(f"SELECT DISTINCT k FROM '{tmp_path}/a.csv' ORDER BY k", progressive=True)
    assert keys.result().fetchall() == [("a",), ("b",)]


def test_what_an_answer_rests_on_is_known_before_its_rows_are_taken(logs):
    sql = f"SELECT k, count() AS n FROM '{logs[0]}' GROUP BY k"
    result = tm.query(sql, sample=0.05)
    sampled = result.coverage["sampled"]
    assert not result.coverage["complete"]
    assert 0 < sampled["share"] < 0.1
    assert len(result.to_pylist()) == 4
    for answer in tm.query(sql, progressive=True, sample=0.05):
        # Nobody has to wait for its rows.
        assert answer._raw.coverage != "null"
        assert answer.coverage["rows"]["done"] > 0


def test_of_rows_that_are_not_kept_the_coverage_is_known_once_they_were_read(tmp_path):
    with (tmp_path / "a.csv").open("w") as file:
        file.write("x\n" + "".join(f"{n}\n" for n in range(3_000_000)))
    # A quarter of it is less than the rows take.
    result = tm.query(f"SELECT x, x + 1 AS y FROM '{tmp_path}/a.csv'", memory="64M")
    for _ in range(2):
        with pytest.raises(tm.UsageError, match="once its rows have been read"):
            _ = result.coverage
    # The first of them are still there.
    assert sum(batch.num_rows for batch in result) == 3_000_000
    assert result.coverage["rows"]["done"] == 3_000_000
    closed = tm.query("SELECT 1 AS x")
    closed.close()
    with pytest.raises(tm.UsageError, match="is closed"):
        _ = closed.coverage


def test_answers_of_what_is_no_aggregation_are_the_result_alone(tmp_path):
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    answers = list(tm.query(f"SELECT n FROM '{tmp_path}/a.csv'", progressive=True))
    assert [answer.to_pylist() for answer in answers] == [[{"n": 1}, {"n": 2}]]
    assert list(tm.query("SELECT 1 AS x WHERE false", progressive=True))[-1].to_pylist() == []
    with tm.query(f"SELECT n FROM '{tmp_path}/a.csv'", progressive=True) as closed:
        closed.close()
        assert list(closed) == []
        with pytest.raises(ValueError, match="closed before"):
            closed.result()
    with pytest.raises(tm.UsageError, match="do not go together"):
        tm.query("SELECT 1 AS x", progressive=True, output=tmp_path / "x.csv")
    with pytest.raises(tm.UsageError, match="unknown column"):
        list(tm.query(f"SELECT m FROM '{tmp_path}/a.csv'", progressive=True))
