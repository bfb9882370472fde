//! How long it is between two times, in parts, and numbers that are no times.

use crate::common::Folder;

#[test]
fn parts_of_a_difference_are_of_one_whole_however_long_it_is() {
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
        assert_eq!(folder.ask(&sql).rows(), expected, "{sql}");
        // Beside what is grouped, and of a sum.
        let sql = format!(
            "SELECT CAST(sum({}) * 1000000 AS BIGINT), max({}) FROM '$/t.csv' WHERE a IS NOT NULL",
            calls[0], calls[1]
        );
        assert_eq!(folder.ask(&sql).rows(), [["6312082394000001", "73048"]], "{sql}");
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
        assert_eq!(folder.ask(&format!("SELECT {sql}")).only(), expected, "{sql}");
    }
    let message = folder.refusal("SELECT extract(dow FROM b - a) FROM '$/t.csv'");
    assert!(message.contains("an interval has no `dow`"), "{message}");
}

#[test]
fn a_number_that_is_no_time_is_not_taken_for_one() {
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
        let message = folder.refusal(sql);
        assert!(message.contains(expected) && message.contains("hint: "), "{sql}: {message}");
    }
    for (sql, expected) in [
        ("SELECT to_timestamp(1.5)", "1970-01-01T00:00:01.500"),
        ("SELECT to_timestamp(CAST(NULL AS DOUBLE))", "∅"),
        ("SELECT CAST(3 AS TIMESTAMP)", "1970-01-01T00:00:03"),
    ] {
        assert_eq!(folder.ask(sql).only(), expected, "{sql}");
    }
}
