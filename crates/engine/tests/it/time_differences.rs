//! Tests of time differences and their parts, and of numbers that are not times.

use crate::common::Folder;

#[test]
fn extract_splits_time_differences_into_parts() {
    let folder = Folder::new();
    folder.write(
        "t.csv",
        "a,b\n\
         2020-01-01 00:00:00,2020-01-10 13:14:15.500001\n\
         1800-01-01 00:00:00,2000-01-01 00:00:00\n\
         2000-01-02 01:01:01.5,2000-01-01 00:00:00\n\
         ,2000-01-01 00:00:00\n",
    );
    let parts = ["epoch", "day", "hour", "minute", "second", "millisecond", "microsecond", "year"];
    let expected = [
        ["825255.500001", "9", "13", "14", "15", "15500", "15500001", "0"],
        ["6311347200.0", "73048", "0", "0", "0", "0", "0", "0"],
        ["-90061.5", "-1", "-1", "-1", "-1", "-1500", "-1500000", "0"],
        ["∅"; 8],
    ];
    for digits in [6, 9] {
        let calls = parts.map(|part| {
            format!("extract({part} FROM CAST(b AS TIMESTAMP({digits})) - CAST(a AS TIMESTAMP({digits})))")
        });
        let sql = format!("SELECT {} FROM '$/t.csv'", calls.join(", "));
        assert_eq!(folder.run_sql(&sql).rows(), expected, "{sql}");
        // Beside a group key, and of a sum.
        let sql = format!(
            "SELECT CAST(sum({}) * 1000000 AS BIGINT), max({}) FROM '$/t.csv' WHERE a IS NOT NULL",
            calls[0], calls[1]
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["6312082394000001", "73048"]], "{sql}");
    }
    for (sql, expected) in [
        ("extract(epoch FROM INTERVAL '1000000 hours')", "3600000000.0"),
        ("extract(epoch FROM INTERVAL '14 months')", "36741600.0"),
        ("extract(hour FROM INTERVAL '205 hours')", "205"),
        ("extract(minute FROM INTERVAL '90 minutes')", "30"),
        ("extract(month FROM INTERVAL '14 months')", "2"),
        ("date_part('quarter', INTERVAL '14 months')", "1"),
        ("date_part('nanoseconds', INTERVAL '1.5 seconds')", "1500000000"),
        ("datepart('ms', INTERVAL '-1.5 seconds')", "-1500"),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {sql}")).single_value(), expected, "{sql}");
    }
    let message = folder.sql_error("SELECT extract(dow FROM b - a) FROM '$/t.csv'");
    assert!(message.contains("an interval has no `dow`"), "{message}");
}

#[test]
fn numbers_that_are_not_times_are_refused() {
    let folder = Folder::new();
    folder.write("n.csv", "f\n1e18\n");
    for (sql, expected) in [
        ("SELECT to_timestamp(f) FROM '$/n.csv'", "no time of the years 1677 to 2262"),
        ("SELECT to_timestamp(1.7e12)", "1700000000000 seconds are no time"),
        ("SELECT to_timestamp(CAST('NaN' AS DOUBLE))", "NaN seconds are no time"),
        ("SELECT CAST(f AS TIMESTAMP) FROM '$/n.csv'", "a DOUBLE is not cast to TIMESTAMP"),
        ("SELECT TRY_CAST(f AS TIMESTAMP) FROM '$/n.csv'", "a DOUBLE is not cast to TIMESTAMP"),
        (
            "SELECT CAST(CAST(f AS DECIMAL(38, 2)) AS TIMESTAMP) FROM '$/n.csv'",
            "a DECIMAL(38, 2) is not cast to TIMESTAMP",
        ),
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains(expected) && message.contains("hint: "), "{sql}: {message}");
    }
    for (sql, expected) in [
        ("SELECT to_timestamp(1.5)", "1970-01-01T00:00:01.500Z"),
        ("SELECT to_timestamp(CAST(NULL AS DOUBLE))", "∅"),
        ("SELECT CAST(3 AS TIMESTAMP)", "1970-01-01T00:00:03"),
    ] {
        assert_eq!(folder.run_sql(sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn intervals_and_time_differences_combine_by_length() {
    let folder = Folder::new();
    folder.write("t.csv", "a,b\n2026-01-01 00:00:00,2026-01-09 13:00:00.5\n");
    for (call, expected) in [
        ("extract(epoch FROM greatest(b - a, INTERVAL '8 days'))", "738000.5"),
        ("extract(epoch FROM least(b - a, INTERVAL '30 minutes'))", "1800.0"),
        ("extract(epoch FROM least(INTERVAL '205 hours', b - a, INTERVAL '9 days'))", "738000.0"),
        (
            "extract(epoch FROM least(CAST(b AS TIMESTAMP(0)) - CAST(a AS TIMESTAMP(0)), INTERVAL '1.5 seconds'))",
            "1.5",
        ),
        ("extract(day FROM coalesce(b - a, INTERVAL '1 month'))", "8"),
        ("extract(hour FROM coalesce(b - a, INTERVAL '1 month'))", "13"),
        ("extract(hour FROM CASE WHEN true THEN b - a ELSE INTERVAL '1 day' END)", "13"),
        ("extract(hour FROM CAST(b - a AS INTERVAL))", "13"),
        (
            "extract(epoch FROM avg(CAST(b AS TIMESTAMP(0)) - CAST(a AS TIMESTAMP(0))) OVER ())",
            "738001.0",
        ),
    ] {
        assert_eq!(
            folder.run_sql(&format!("SELECT {call} FROM '$/t.csv'")).single_value(),
            expected,
            "{call}"
        );
    }
    let means = "SELECT extract(epoch FROM avg(CAST(x AS TIMESTAMP(0)) - TIMESTAMP(0) '2026-01-01 00:00:00')) \
                 FROM (VALUES ('2026-01-01 00:00:01'), ('2026-01-01 00:00:02')) v(x)";
    assert_eq!(folder.run_sql(means).single_value(), "1.5");
    for (call, expected) in [
        ("to_char(b - a, '%H:%M')", "there is no `to_char(INTERVAL, TEXT)`"),
        ("extract(day FROM CAST(b AS DATE) - CAST(a AS DATE))", "is a number of days"),
        ("-(b - a)", "turn it round: a - b"),
    ] {
        let message = folder.sql_error(&format!("SELECT {call} FROM '$/t.csv'"));
        assert!(message.contains(expected), "{call}: {message}");
    }
}
