//! Tests of the values that casts keep and of those that they refuse.

use crate::common::Folder;

#[test]
fn number_too_large_for_float_is_an_error() {
    let folder = Folder::new();
    folder.write("f.csv", "id,f\n1,1.5\n2,1e300\n3,-inf\n");
    let schema = "SELECT id, f FROM '$/f.csv'";
    let message = folder.sql_error(&format!("SELECT CAST(f AS FLOAT) FROM ({schema})"));
    assert!(message.contains("`1e300` does not fit FLOAT"), "{message}");
    let tried = format!("SELECT TRY_CAST(f AS FLOAT) AS x FROM ({schema}) ORDER BY id");
    assert_eq!(folder.run_sql(&tried).rows().concat(), ["1.5", "∅", "-inf"]);
    let guarded = format!(
        "SELECT CASE WHEN f < 1e30 THEN CAST(f AS FLOAT) END AS x FROM ({schema}) ORDER BY id"
    );
    assert_eq!(folder.run_sql(&guarded).rows().concat(), ["1.5", "∅", "-inf"]);
    let wide = "CAST(CAST('1' || repeat('0', 45) AS DECIMAL(50, 0)) AS REAL)";
    assert!(folder.sql_error(&format!("SELECT {wide} AS x")).contains("does not fit REAL"));
    let tried = wide.replacen("CAST", "TRY_CAST", 1);
    assert_eq!(folder.run_sql(&format!("SELECT {tried} AS x")).rows(), [["∅"]]);
    let sql = "SELECT CAST('-Infinity' AS DOUBLE) < 0, CAST('1e38' AS FLOAT) > 0";
    assert_eq!(folder.run_sql(sql).rows(), [["true", "true"]]);
}

/// Holds for every time unit in the file.
#[test]
fn timestamp_casts_to_seconds_and_back() {
    let folder = Folder::new();
    for precision in [0, 3, 6, 9] {
        let sql = format!(
            "SELECT CAST(t AS BIGINT), CAST(CAST(t AS BIGINT) AS TIMESTAMP) = t, TRY_CAST(t AS TINYINT) \
             FROM (SELECT CAST(TIMESTAMP '2024-01-01 10:30:00' AS TIMESTAMP({precision})) AS t)"
        );
        assert_eq!(folder.run_sql(&sql).rows(), [["1704105000", "true", "∅"]], "{precision}");
    }
    let before = "SELECT CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS INT)";
    assert_eq!(folder.run_sql(before).rows(), [["-1"]]);
    for (cast, hint) in [
        ("CAST(TIMESTAMP '2024-01-01 10:30:00' AS DOUBLE)", "extract(epoch FROM x)"),
        ("CAST(TIME '10:30:00' AS INT)", "extract(epoch FROM x)"),
        ("TRY_CAST(TIME '10:30:00' AS DOUBLE)", "extract(epoch FROM x)"),
        ("CAST(5 AS TIME)", "INTERVAL '1 second'"),
    ] {
        let message = folder.sql_error(&format!("SELECT {cast}"));
        assert!(message.contains("is not cast to") && message.contains(hint), "{cast}: {message}");
    }
}

#[test]
fn timestamp_text_may_omit_seconds() {
    let folder = Folder::new();
    folder.write("t.csv", "t\n2024-01-01 10:30 \n2024-01-01T10:31\n2024-01-01 10:32:30\n");
    let sql = "SELECT CAST('2024-01-01 10:30' AS TIMESTAMP) = TIMESTAMP '2024-01-01 10:30:00', \
               TIMESTAMPTZ '2024-01-01 10:30+02:00' = TIMESTAMPTZ '2024-01-01 08:30:00Z', \
               TIMESTAMP '2024-01-01 10:31:00' > '2024-01-01 10:30', \
               CAST('2024-01-01 10:30' AS DATE) = DATE '2024-01-01'";
    assert_eq!(folder.run_sql(sql).rows(), [["true"; 4]]);
    let sql =
        "SELECT count(*) FROM '$/t.csv' WHERE CAST(trim(t) AS TIMESTAMP) > '2024-01-01 10:30'";
    assert_eq!(folder.run_sql(sql).rows(), [["2"]]);
    let message = folder.sql_error("SELECT CAST('2024-01-01 10:3' AS TIMESTAMP)");
    assert!(message.contains("does not fit TIMESTAMP"), "{message}");
}

#[test]
fn interval_times_integer_is_an_interval() {
    let folder = Folder::new();
    let sql = "SELECT n * INTERVAL '90 minutes' = INTERVAL '3 hours', \
               TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '1 month 2 days' * n, \
               extract(epoch FROM (TIMESTAMP '2024-01-02 00:00:00' - TIMESTAMP '2024-01-01 00:00:00') * n), \
               CAST(NULL AS INT) * INTERVAL '1 day' \
               FROM (VALUES (2)) AS v(n)";
    let found = folder.run_sql(sql).rows();
    assert_eq!(found, [["true", "2024-03-05T00:00:00", "172800.0", "∅"]]);
    for count in ["9223372036854775807", "3000000000"] {
        let sql = format!("SELECT {count} * INTERVAL '1 month 1 day'");
        assert!(folder.sql_error(&sql).contains("INTERVAL overflow"), "{count}");
    }
}

/// The calendar ends before 64 bits of microseconds do.
#[test]
fn date_part_beyond_the_calendar_is_an_error() {
    let folder = Folder::new();
    let sql = "SELECT extract(year FROM CAST(9000000000000 AS TIMESTAMP)) AS y";
    assert!(folder.sql_error(sql).contains("the years -262143 to 262142"));
    let sql =
        "SELECT date_part('year', CAST(NULL AS TIMESTAMP)), extract(year FROM DATE '2024-01-01')";
    assert_eq!(folder.run_sql(sql).rows(), [["∅", "2024"]]);
}

/// DataFusion's path computes the minimum of floats in a projection of its own.
#[test]
fn group_key_can_be_selected_with_its_cast_and_minimum() {
    let folder = Folder::new();
    folder.write("f.csv", "d,n\n1.5,1\n2.5,2\n");
    for to in ["REAL", "TEXT", "BIGINT"] {
        for cast in ["CAST", "TRY_CAST"] {
            let sql = format!(
                "SELECT {cast}(a.d AS {to}) AS c, a.d AS k, min(a.d) AS m, max(a.d) AS x, bool_and(n > 9) AS s \
                 FROM '$/f.csv' AS a GROUP BY 1, 2 ORDER BY k"
            );
            let rows = folder.run_sql(&sql).rows();
            assert_eq!(rows[1][1..], ["2.5", "2.5", "2.5", "false"], "{sql}");
            assert_eq!(rows[1][0], if to == "BIGINT" { "2" } else { "2.5" }, "{sql}");
        }
    }
}

/// A constant is not truncated to the unit of the value below the cast.
#[test]
fn comparison_uses_the_finer_time_unit() {
    let folder = Folder::new();
    folder.write("t.csv", "t\n1970-01-01T00:00:00.000\n");
    let table = "(SELECT CAST(t AS TIMESTAMP(3)) AS ms FROM '$/t.csv')";
    let finer = "TIMESTAMP '1970-01-01 00:00:00.000001'";
    let before = "TIMESTAMP '1969-12-31 23:59:59.999999'";
    for (condition, expected) in [
        (format!("CAST(ms AS TIMESTAMP) = {finer}"), "false"),
        (format!("{finer} <= CAST(ms AS TIMESTAMP)"), "false"),
        (format!("CAST(ms AS TIMESTAMP) = {before}"), "false"),
        (format!("CAST(ms AS TIMESTAMP) > {before}"), "true"),
        (format!("CAST(ms AS TIMESTAMP) IN ({finer}, {before})"), "false"),
        ("CAST(ms AS TIMESTAMP) = TIMESTAMP '1970-01-01'".to_owned(), "true"),
        (
            "CAST(ms AS TIMESTAMPTZ) = TIMESTAMPTZ '1970-01-01 00:00:00.000001+00'".to_owned(),
            "false",
        ),
        ("CAST(ms AS TIMESTAMPTZ) = TIMESTAMPTZ '1970-01-01 00:00:00+00'".to_owned(), "true"),
        (format!("CASE WHEN false THEN ms ELSE {before} END = date_trunc('day', ms)"), "false"),
        (
            format!("CASE WHEN false THEN ms ELSE {before} END NOT IN (ms, date_trunc('day', ms))"),
            "true",
        ),
    ] {
        let sql = format!("SELECT {condition} FROM {table}");
        assert_eq!(folder.run_sql(&sql).rows(), [[expected]], "{condition}");
        let sql = format!("SELECT count(*) FROM {table} WHERE {condition}");
        let rows = if expected == "true" { "1" } else { "0" };
        assert_eq!(folder.run_sql(&sql).rows(), [[rows]], "{condition}");
    }
}

#[test]
fn number_literal_casts_to_decimal_by_its_digits() {
    let folder = Folder::new();
    for (expr, expected) in [
        ("1.005::DECIMAL(10,2)", "1.01"),
        ("CAST(0.285 AS NUMERIC(3,2))", "0.29"),
        ("CAST(-1.005 AS DECIMAL(10,2))", "-1.01"),
        ("TRY_CAST((1.005) AS DECIMAL(10,2))", "1.01"),
        ("0.1::DECIMAL(38,30)", "0.100000000000000000000000000000"),
        ("1::DECIMAL(10,2)", "1.00"),
        ("1e3::DECIMAL(10,2)", "1000.00"),
        // A computed DOUBLE keeps its binary value.
        ("(1.005 * 1e0)::DECIMAL(10,2)", "1.00"),
    ] {
        let answer = folder.run_sql(&format!("SELECT {expr}"));
        assert_eq!(answer.single_value(), expected, "{expr}");
        assert_eq!(answer.column_names(), [expr], "{expr}");
    }
}
