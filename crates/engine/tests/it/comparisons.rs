//! Tests of comparisons and combinations of values of different types.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, RecordBatch, Time32MillisecondArray, Time32SecondArray, Time64MicrosecondArray,
    Time64NanosecondArray,
};
use parquet::arrow::ArrowWriter;
use tidemill_engine::Query;

use crate::common::{Folder, Random, query, run_query, settings};

fn query_with_schema(folder: &Folder, schema: &str, sql: &str) -> Vec<Vec<String>> {
    let query = Query { schema: Some(schema.into()), ..query(folder.substitute_path(sql)) };
    let answer = run_query(&query, &settings()).unwrap_or_else(|error| panic!("{sql}: {error}"));
    answer.rows()
}

#[test]
fn decimals_and_doubles_compare_as_the_nearest_doubles() {
    let mut random = Random(21);
    let folder = Folder::new();
    for scale in [0_u32, 2, 15, 25, 38] {
        let mut pairs: Vec<(i128, f64)> = (0..60)
            .map(|_| {
                let wide = (i128::from(random.next() as i64) << 62) ^ i128::from(random.next());
                let unscaled = (wide >> (random.next() % 120)) % 10_i128.pow(38);
                let near: f64 = format!("{unscaled}e-{scale}").parse().unwrap();
                let double = match random.next() % 5 {
                    0 => near,
                    1 => near.next_up(),
                    2 => near.next_down(),
                    3 => near * 1e9,
                    _ => f64::from_bits(random.next()),
                };
                (unscaled, if double.is_nan() { 1e26 } else { double })
            })
            .collect();
        pairs.extend([(0, 1e-20), (0, 1e26), (1, -1e-300), (0, f64::INFINITY)]);
        let shown = |unscaled: i128| {
            let digits = format!("{:0>1$}", unscaled.unsigned_abs(), scale as usize + 1);
            let (whole, part) = digits.split_at(digits.len() - scale as usize);
            let sign = if unscaled < 0 { "-" } else { "" };
            if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
        };
        let pairs: Vec<_> = pairs
            .into_iter()
            .filter(|(unscaled, _)| scale < 38 || unscaled.unsigned_abs() < 10_u128.pow(38))
            .collect();
        let lines: Vec<String> =
            pairs.iter().map(|(d, f)| format!("{},{f:e}", shown(*d))).collect();
        folder.write("c.csv", format!("d,f\n{}\n", lines.join("\n")));
        let schema = format!("d DECIMAL(38, {scale}), f DOUBLE");
        let sql = "SELECT f > d, d > f, f = d, d <> f, d <= f, d BETWEEN f AND f, d IN (f), \
                   CASE d WHEN f THEN true ELSE false END, nullif(d, f) IS NULL, \
                   CAST(d AS DOUBLE) = f FROM '$/c.csv'";
        for ((unscaled, double), row) in pairs.iter().zip(query_with_schema(&folder, &schema, sql))
        {
            let near: f64 = format!("{unscaled}e-{scale}").parse().unwrap();
            let order = near.partial_cmp(double).unwrap();
            let same = order == Ordering::Equal;
            let expected = [
                order == Ordering::Less,
                order == Ordering::Greater,
                same,
                !same,
                order != Ordering::Greater,
                same,
                same,
                same,
                same,
                same,
            ];
            let expected: Vec<String> = expected.iter().map(bool::to_string).collect();
            assert_eq!(row, expected, "{} and {double:e}", shown(*unscaled));
        }
    }
}

#[test]
fn number_literal_compared_with_decimal_is_a_decimal() {
    let folder = Folder::new();
    folder.write("d.csv", "d\n0.10\n0.00\n99999999.99\n-1.50\n");
    let count = |condition: &str| {
        let sql = format!("SELECT count() FROM '$/d.csv' WHERE {condition}");
        query_with_schema(&folder, "d DECIMAL(10, 2)", &sql)[0][0].clone()
    };
    for (condition, expected) in [
        ("d = 0.1", "1"),
        ("d > 0.1", "1"),
        ("d >= 0.10", "2"),
        ("d < 1e-20", "2"),
        ("1e-20 > d", "2"),
        ("d < 1e26", "4"),
        ("d > -1e300", "4"),
        ("d IN (0.1, -1.5, 7)", "2"),
        ("d NOT IN (0.1, 1e30)", "3"),
        ("d BETWEEN -1.5 AND 0.1", "3"),
        ("d NOT BETWEEN -1.5 AND 1e-9", "2"),
        ("d IN (SELECT 0.1)", "1"),
        ("d IS DISTINCT FROM 0.1", "3"),
    ] {
        assert_eq!(count(condition), expected, "{condition}");
    }
    folder.write("f.csv", "f\n0.1\n-1.5\n");
    let sql = "SELECT count() FROM '$/d.csv' a JOIN '$/f.csv' b ON a.d = b.f";
    let first = Query { schema: None, ..query(folder.substitute_path(sql)) };
    assert_eq!(run_query(&first, &settings()).unwrap().single_value(), "2");
}

#[test]
fn decimals_of_any_width_compare() {
    let folder = Folder::new();
    folder.write(
        "w.csv",
        format!("a,b,i\n{},0.{}1,9223372036854775807\n", "9".repeat(38), "0".repeat(36)),
    );
    let schema = "a DECIMAL(38, 0), b DECIMAL(38, 37), i BIGINT";
    let sql = "SELECT a > b, b < a, a = b, i > b, b < i FROM '$/w.csv'";
    assert_eq!(
        query_with_schema(&folder, schema, sql),
        [["true", "true", "false", "true", "true"]]
    );
}

#[test]
fn coalescing_functions_keep_integers_exact() {
    let folder = Folder::new();
    folder.write("n.csv", "a,b\n,9007199254740993\n9007199254740993,1\n");
    for function in ["nvl", "ifnull", "coalesce"] {
        let sql = format!("SELECT {function}(a, b) FROM '$/n.csv'");
        assert_eq!(
            query_with_schema(&folder, "a BIGINT, b BIGINT", &sql),
            [["9007199254740993"]; 2],
            "{sql}"
        );
    }
    let sql = "SELECT nvl(a, 16777217), nullif(b, 1), greatest(a, b), least(b, 5), \
               coalesce(CAST(NULL AS FLOAT), CAST(16777217 AS INT)) FROM '$/n.csv'";
    assert_eq!(
        query_with_schema(&folder, "a BIGINT, b BIGINT", sql),
        [
            ["16777217", "9007199254740993", "9007199254740993", "5", "16777217.0"],
            ["9007199254740993", "∅", "9007199254740993", "1", "16777217.0"],
        ]
    );
    folder.write("t.csv", "t,d\n,2020-01-01\n2020-01-02T03:04:05,\n");
    let sql = "SELECT nvl(t, d), ifnull(d, DATE '9999-12-31') FROM '$/t.csv'";
    assert_eq!(
        query_with_schema(&folder, "t TIMESTAMP(6), d DATE", sql),
        [["2020-01-01T00:00:00", "2020-01-01"], ["2020-01-02T03:04:05", "9999-12-31"],]
    );
}

#[test]
fn timestamps_beyond_the_nanosecond_range_compare() {
    let folder = Folder::new();
    folder.write(
        "t.csv",
        "t,n,d\n9999-12-31T23:59:59,2020-01-01T00:00:00.000000001,9999-12-31\n\
         0001-01-01T00:00:00,2020-01-01T00:00:00,0001-01-01\n",
    );
    let schema = "t TIMESTAMP(6), n TIMESTAMP(9), d DATE";
    for (answer, expected) in [
        ("t > TIMESTAMP '2020-01-01 00:00:00'", ["true", "false"]),
        ("t = TIMESTAMP '9999-12-31 23:59:59'", ["true", "false"]),
        ("t < '9999-12-31T00:00:00'", ["false", "true"]),
        ("t > n", ["true", "false"]),
        ("n BETWEEN d AND t", ["false", "false"]),
        ("d > n", ["true", "false"]),
        ("d <= t", ["true", "true"]),
        ("t > now()", ["true", "false"]),
        ("n > CAST('2020-01-01' AS TIMESTAMP)", ["true", "false"]),
        ("t IN (n, TIMESTAMP '9999-12-31 23:59:59')", ["true", "false"]),
        ("coalesce(t, d)", ["9999-12-31T23:59:59", "0001-01-01T00:00:00"]),
        ("greatest(t, d)", ["9999-12-31T23:59:59", "0001-01-01T00:00:00"]),
        ("CASE WHEN t > d THEN t ELSE d END", ["9999-12-31T23:59:59", "0001-01-01T00:00:00"]),
        ("date_trunc('day', t)", ["9999-12-31T00:00:00", "0001-01-01T00:00:00"]),
        ("date_trunc('month', t)", ["9999-12-01T00:00:00", "0001-01-01T00:00:00"]),
        ("date_trunc('week', d)", ["9999-12-27T00:00:00", "0001-01-01T00:00:00"]),
        ("date_trunc('year', d)", ["9999-01-01T00:00:00", "0001-01-01T00:00:00"]),
        ("date_trunc('quarter', t)", ["9999-10-01T00:00:00", "0001-01-01T00:00:00"]),
        ("CAST('9999-12-31' AS TIMESTAMP)", ["9999-12-31T00:00:00", "9999-12-31T00:00:00"]),
        ("CAST(d AS TIMESTAMP)", ["9999-12-31T00:00:00", "0001-01-01T00:00:00"]),
        ("CAST(n AS TIMESTAMP)", ["2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00"]),
        ("CAST(86400 AS TIMESTAMP)", ["1970-01-02T00:00:00", "1970-01-02T00:00:00"]),
        (
            "TIMESTAMP '2020-01-01 00:00:00.123456789'",
            ["2020-01-01T00:00:00.123456789", "2020-01-01T00:00:00.123456789"],
        ),
        ("CAST(t AS TIMESTAMP WITH TIME ZONE)", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
        ("CAST(t AS TIMESTAMPTZ)", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
        ("t = '9999-12-31T23:59:59'", ["true", "false"]),
        ("n = '2020-01-01T00:00:00.000000001'", ["true", "false"]),
        ("t BETWEEN '0001-01-01' AND '9999-12-31'", ["false", "true"]),
        ("t IN ('9999-12-31T23:59:59')", ["true", "false"]),
        ("nvl2(n, t, d)", ["9999-12-31T23:59:59", "0001-01-01T00:00:00"]),
        ("t - d < INTERVAL '1 day'", ["true", "true"]),
        ("t - INTERVAL '1 day'", ["9999-12-30T23:59:59", "0000-12-31T00:00:00"]),
    ] {
        let sql = format!("SELECT {answer} AS x FROM '$/t.csv'");
        assert_eq!(query_with_schema(&folder, schema, &sql), expected.map(|x| [x]), "{answer}");
    }
    let query = Query {
        schema: Some(schema.into()),
        ..query(folder.substitute_path("SELECT date_bin(INTERVAL '1 hour', t) FROM '$/t.csv'"))
    };
    let message = run_query(&query, &settings()).err().map(|error| error.to_string());
    assert!(message.is_some_and(|message| message.contains("1677 to 2262")));
    let sql = "SELECT count() FROM '$/t.csv' a JOIN '$/t.csv' b ON a.n = b.t";
    assert_eq!(query_with_schema(&folder, schema, sql), [["0"]]);
}

#[test]
fn times_of_any_unit_compare_as_instants() {
    let folder = Folder::new();
    let second = "1970-01-01T00:00:01";
    folder.write("t.csv", format!("s,ms,us,ns\n{second},{second},{second},{second}\n"));
    let schema = "s TIMESTAMP(0), ms TIMESTAMP(3), us TIMESTAMP(6), ns TIMESTAMP(9)";
    let columns = ["s", "ms", "us", "ns"];
    // Literals, and the order of one second relative to them.
    let literals = [
        ("1970-01-01 00:00:00.5", Ordering::Greater),
        ("1970-01-01 00:00:01", Ordering::Equal),
        ("1970-01-01 00:00:01.0005", Ordering::Less),
        ("1970-01-01 00:00:00.9995", Ordering::Greater),
        ("1970-01-01 00:00:01.0000005", Ordering::Less),
        ("1970-01-01 00:00:01.000000000", Ordering::Equal),
        ("9999-12-31 00:00:00", Ordering::Less),
        ("0001-01-01 00:00:00", Ordering::Greater),
    ];
    let mut cases = Vec::new();
    for column in columns {
        for (literal, order) in literals {
            cases.push((format!("{column} $ TIMESTAMP '{literal}'"), order));
            cases.push((format!("{column} $ '{literal}'"), order));
            cases.push((format!("TIMESTAMP '{literal}' $ {column}"), order.reverse()));
        }
        cases.push((format!("{column} $ DATE '1970-01-01'"), Ordering::Greater));
        cases.push((format!("{column} $ DATE '9999-01-01'"), Ordering::Less));
        cases.extend(columns.map(|other| (format!("{column} $ {other}"), Ordering::Equal)));
    }
    type OrderingPredicate = fn(Ordering) -> bool;
    let operators: [(&str, OrderingPredicate); 5] = [
        ("<", Ordering::is_lt),
        ("<=", Ordering::is_le),
        ("=", Ordering::is_eq),
        (">=", Ordering::is_ge),
        ("<>", Ordering::is_ne),
    ];
    for (case, order) in cases {
        let conditions = operators.map(|(operator, _)| case.replace('$', operator));
        let sql = format!("SELECT {} FROM '$/t.csv'", conditions.join(", "));
        let expected = operators.map(|(_, holds)| holds(order).to_string());
        assert_eq!(query_with_schema(&folder, schema, &sql), [expected], "{case}");
        for (condition, (_, holds)) in conditions.iter().zip(operators) {
            let sql = format!("SELECT count() FROM '$/t.csv' WHERE {condition}");
            let expected = u8::from(holds(order)).to_string();
            assert_eq!(query_with_schema(&folder, schema, &sql), [[expected]], "WHERE {condition}");
        }
    }
}

#[test]
fn date_trunc_follows_the_calendar() {
    let mut random = Random(9);
    let folder = Folder::new();
    let mut lines = Vec::new();
    for _ in 0..300 {
        // Within the range of nanoseconds, so that both units must agree.
        let seconds = (random.next() % 18_000_000_000) as i64 - 9_000_000_000;
        lines.push(format!("{seconds}{:06}", random.next() % 1_000_000));
    }
    folder.write("m.csv", format!("m\n{}\n", lines.join("\n")));
    for part in [
        "microsecond",
        "millisecond",
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
    ] {
        let sql = format!(
            "SELECT count() FROM (SELECT CAST(m AS TIMESTAMP(6)) AS t FROM '$/m.csv') \
             WHERE date_trunc('{part}', t) IS DISTINCT FROM date_trunc('{part}', CAST(t AS TIMESTAMP(9)))"
        );
        assert_eq!(folder.run_sql(&sql).single_value(), "0", "{part}");
    }
}

#[test]
fn lag_and_lead_defaults_keep_their_value() {
    let folder = Folder::new();
    folder.write("l.csv", "i,d,t\n1,2020-01-01,1.25\n2,2020-01-02,2.5\n");
    let schema = "i INT, d DATE, t DECIMAL(5,2)";
    for (call, first, second) in [
        ("lag(i, 1, 0.5)", "0.5", "1.0"),
        ("lag(i, 1, -1)", "-1", "1"),
        ("lag(i, 1, 9223372036854775807)", "9223372036854775807", "1"),
        (
            "lag(d, 1, TIMESTAMP '1999-12-31 23:59:59')",
            "1999-12-31T23:59:59",
            "2020-01-01T00:00:00",
        ),
        ("lag(i, 1, NULL)", "∅", "1"),
        ("lead(t, -1, CAST(0.125 AS DECIMAL(4,3)))", "0.125", "1.250"),
    ] {
        let sql = format!("SELECT {call} OVER (ORDER BY i) AS x FROM '$/l.csv' ORDER BY i");
        assert_eq!(query_with_schema(&folder, schema, &sql), [[first], [second]], "{call}");
    }
}

#[test]
fn intervals_compare_by_length() {
    let folder = Folder::new();
    folder.write("s.csv", "a,b\n2026-01-05T00:00:00,2026-01-01T00:00:00\n");
    let schema = "a TIMESTAMP(6), b TIMESTAMP(6)";
    for (answer, expected) in [
        ("a - b > INTERVAL '1 day'", "true"),
        ("a - b = INTERVAL '4 days'", "true"),
        ("a - b BETWEEN INTERVAL '95 hours' AND INTERVAL '97 hours'", "true"),
        ("a - b IN (INTERVAL '96 hours')", "true"),
        ("INTERVAL '1 day' = INTERVAL '24 hours'", "true"),
        ("INTERVAL '25 hours' > INTERVAL '1 day'", "true"),
        ("INTERVAL '1 month' < INTERVAL '31 days'", "true"),
    ] {
        let sql = format!("SELECT {answer} AS x FROM '$/s.csv'");
        assert_eq!(query_with_schema(&folder, schema, &sql), [[expected]], "{answer}");
    }
}

#[test]
fn date_plus_hours_is_a_timestamp() {
    let folder = Folder::new();
    folder.write("d.csv", "d,ms,n\n2024-01-31,2026-01-01T00:00:00,1\n");
    let schema = "d DATE, ms TIMESTAMP(3), n INT";
    for (answer, expected) in [
        ("d + INTERVAL '12 hours'", "2024-01-31T12:00:00"),
        ("INTERVAL '12 hours' + d", "2024-01-31T12:00:00"),
        ("d - INTERVAL '1 second'", "2024-01-30T23:59:59"),
        ("d + INTERVAL '1 month'", "2024-02-29"),
        ("d + INTERVAL '2 days'", "2024-02-02"),
        ("ms + INTERVAL '1500 microseconds'", "2026-01-01T00:00:00.001500"),
        ("ms < ms + INTERVAL '1 microsecond'", "true"),
        ("ms + INTERVAL '2 seconds'", "2026-01-01T00:00:02"),
    ] {
        let sql = format!("SELECT {answer} AS x FROM '$/d.csv'");
        assert_eq!(query_with_schema(&folder, schema, &sql), [[expected]], "{answer}");
    }
    for mixed in [
        "d > 2026 - 3 - 1",
        "d IN (1, 2)",
        "d BETWEEN 1 AND 2",
        "greatest(d, 5) = d",
        "CASE WHEN n = 1 THEN d ELSE 5 END = d",
        "d = n",
        "d IN (SELECT n FROM '$/d.csv')",
    ] {
        let query = Query {
            schema: Some(schema.into()),
            ..query(folder.substitute_path(&format!("SELECT count() FROM '$/d.csv' WHERE {mixed}")))
        };
        let message = run_query(&query, &settings()).err().map(|error| error.to_string());
        let message = message.unwrap_or_default();
        assert!(message.contains("nothing in common"), "{mixed}: {message}");
    }
}

#[test]
fn number_literals_keep_all_digits() {
    let folder = Folder::new();
    folder.write(
        "d.csv",
        "d\n9999999999999999.9999\n1.0000\n10000000000000000.0000\n12345678901234.5678\n",
    );
    for number in ["9999999999999999.9999", "12345678901234.5678", "10000000000000000.0000"] {
        for condition in [format!("d = {number}"), format!("d IN ({number})")] {
            let sql = format!("SELECT d FROM '$/d.csv' WHERE {condition}");
            assert_eq!(
                query_with_schema(&folder, "d DECIMAL(24,4)", &sql),
                [[number]],
                "{condition}"
            );
        }
    }
    for (answer, expected) in [
        ("CAST(12345678901234567890123 AS DECIMAL(38,0))", "12345678901234567890123"),
        ("CAST(-123456789012345678.91 AS DECIMAL(20,2))", "-123456789012345678.91"),
        ("1_000 + 1", "1001"),
        ("0.1 + 0.2", "0.3"),
        ("-0.1 - 0.2", "-0.3"),
        ("1 - 0.9", "0.1"),
        ("1.1 * 1.1", "1.21"),
        ("(0.06 + 0.01) * 100 = 7", "true"),
        ("CAST(0.07 AS DECIMAL(15, 2)) <= 0.06 + 0.01", "true"),
        ("0.07 BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", "true"),
        ("1e22 + 0.5", "1e22"),
        ("1e-300 * 1e-300", "0.0"),
        // A value cast to a double is a double.
        ("0.1 + CAST(0.2 AS DOUBLE)", "0.30000000000000004"),
        ("1 / 3.0 + 0.1", "0.43333333333333335"),
    ] {
        assert_eq!(
            folder.run_sql(&format!("SELECT {answer} AS x")).single_value(),
            expected,
            "{answer}"
        );
    }
}

#[test]
fn constants_of_different_time_units_compare() {
    let folder = Folder::new();
    for (condition, answer) in [
        ("'2026-03-29 12:00:00' AT TIME ZONE 'UTC' = TIMESTAMPTZ '2026-03-29 12:00:00+00'", "true"),
        ("CAST('2026-03-29' AS TIMESTAMP(9)) < CAST('2026-03-30' AS TIMESTAMP(0))", "true"),
        ("CAST('2026-03-29' AS TIMESTAMP(3)) = TIMESTAMP '2026-03-29 00:00:00.000001'", "false"),
        ("TIME '10:00:00' = CAST('10:00:00.5' AS TIME)", "false"),
    ] {
        assert_eq!(
            folder.run_sql(&format!("SELECT {condition}")).single_value(),
            answer,
            "{condition}"
        );
    }
}

#[test]
fn times_of_day_of_different_units_are_compared_in_the_finer_one() {
    let folder = Folder::new();
    let seconds = [32_400, 36_000, 41_400_i32];
    let millis = seconds.map(|second| second * 1_000 + 1);
    let micros = seconds.map(|second| i64::from(second) * 1_000_000);
    let nanos = micros.map(|micro| micro * 1_000 + 7);
    let columns: [(&str, ArrayRef); 4] = [
        ("s", Arc::new(Time32SecondArray::from(seconds.to_vec()))),
        ("m", Arc::new(Time32MillisecondArray::from(millis.to_vec()))),
        ("u", Arc::new(Time64MicrosecondArray::from(micros.to_vec()))),
        ("n", Arc::new(Time64NanosecondArray::from(nanos.to_vec()))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    folder.write("t.parquet", out);
    let from = "FROM '$/t.parquet'";
    for (condition, expected) in [
        ("u = TIME '10:00'", "1"),
        ("s = TIME '10:00'", "1"),
        ("m = TIME '10:00'", "0"),
        ("m = TIME '10:00:00.001'", "1"),
        ("n = TIME '10:00'", "0"),
        ("TIME '10:00:00.0000001' > u", "2"),
        ("u < '10:00:00'", "1"),
        ("u < n", "3"),
        ("s = u", "3"),
        ("u = n", "0"),
        ("m > u", "3"),
        ("u BETWEEN TIME '09:30' AND TIME '10:00:00.5'", "1"),
        ("u IN (TIME '10:00', TIME '11:30')", "2"),
        ("s IN (SELECT u FROM '$/t.parquet')", "3"),
        ("u IS DISTINCT FROM TIME '10:00'", "2"),
    ] {
        let sql = format!("SELECT count() {from} WHERE {condition}");
        assert_eq!(folder.run_sql(&sql).single_value(), expected, "{condition}");
    }
    let asked =
        folder.run_sql(&format!("SELECT u = TIME '10:00', TIME '10:00' < n, s <=> u {from}"));
    assert_eq!(asked.rows()[1], ["true", "true", "true"]);
    let joined = "SELECT count() FROM '$/t.parquet' a JOIN '$/t.parquet' b ON a.s = b.u";
    assert_eq!(folder.run_sql(joined).single_value(), "3");
    let all = format!("SELECT max(CASE WHEN s > TIME '10:00' THEN n ELSE u END) {from}");
    assert_eq!(folder.run_sql(&all).single_value(), "11:30:00.000000007");
    let union = format!("SELECT max(t) FROM (SELECT s AS t {from} UNION ALL SELECT n {from})");
    assert_eq!(folder.run_sql(&union).single_value(), "11:30:00.000000007");
}

#[test]
fn zoned_timestamp_cast_to_naive_is_local_time() {
    let folder = Folder::new();
    folder.write("t.csv", "t\n2026-01-01T00:00:00.123456789Z\n2026-07-01T00:00:00Z\n");
    let at = "(CAST(t AS TIMESTAMPTZ) AT TIME ZONE 'America/New_York')";
    for (sql, expected) in [
        (format!("max(CAST({at} AS TIMESTAMP))"), "2026-06-30T20:00:00"),
        (format!("min(CAST({at} AS TIMESTAMP(3)))"), "2025-12-31T19:00:00.123"),
        (format!("min(TRY_CAST({at} AS TIMESTAMP(9)))"), "2025-12-31T19:00:00.123456789"),
        (format!("min(CAST({at} AS DATE))"), "2025-12-31"),
        ("min(CAST(CAST(t AS TIMESTAMPTZ) AS TIMESTAMP(3)))".into(), "2026-01-01T00:00:00.123"),
        (
            format!("max(date_bin(INTERVAL '1 day', CAST({at} AS TIMESTAMP)))"),
            "2026-06-30T00:00:00",
        ),
    ] {
        let sql = format!("SELECT {sql} FROM '$/t.csv'");
        let answer = query_with_schema(&folder, "t TIMESTAMP(9) WITH TIME ZONE", &sql);
        assert_eq!(answer, [[expected]], "{sql}");
    }
    let sql = format!("SELECT date_bin(INTERVAL '1 day', {at}) FROM '$/t.csv'");
    assert!(folder.sql_error(&sql).contains("would have the days of UTC"));
}

#[test]
fn rounded_and_unrounded_decimals_combine() {
    let folder = Folder::new();
    folder.write("t.csv", "x,b\n7.5,false\n12.3456,true\n");
    let from = "FROM (SELECT CAST(x AS DECIMAL(18,4)) AS x, b FROM '$/t.csv')";
    for (sql, expected) in [
        (
            format!("SELECT CASE WHEN NOT b THEN round(x, 0) ELSE x END {from}"),
            ["8.0000", "12.3456"],
        ),
        (
            format!("SELECT coalesce(CASE WHEN NOT b THEN round(x, 0) END, x) {from}"),
            ["8.0000", "12.3456"],
        ),
        (format!("SELECT x = round(x, 2) {from}"), ["true", "false"]),
        (format!("SELECT x = round(x, 1 + 1) {from}"), ["true", "false"]),
        (format!("SELECT x = round(x, CAST(2 AS INT)) {from}"), ["true", "false"]),
        (format!("SELECT least(round(x, 0), x) {from}"), ["7.5000", "12.0000"]),
        (format!("SELECT [round(x, 1), x][2] {from}"), ["7.5000", "12.3456"]),
        (format!("SELECT round(x, -1) {from}"), ["10", "10"]),
        (
            format!(
                "SELECT r FROM (SELECT round(x, 0) AS r {from}) JOIN \
                 (VALUES (CAST(8 AS SMALLINT)), (CAST(12 AS SMALLINT))) u(n) ON r = n ORDER BY r"
            ),
            ["8", "12"],
        ),
        (
            format!(
                "SELECT sum(1) OVER (ORDER BY round(x, 1) RANGE 5 PRECEDING) AS s {from} ORDER BY s"
            ),
            ["1", "2"],
        ),
    ] {
        assert_eq!(folder.run_sql(&sql).rows(), expected.map(|value| [value]), "{sql}");
    }
    for (call, expected) in [
        ("trunc(1.5, 4294967295)", "1.5"),
        ("trunc(1.25, 9223372036854775807)", "1.25"),
        ("trunc(155.5, -4294967295)", "0.0"),
        ("trunc(-155.5, -2)", "-100.0"),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {call}")).single_value(), expected, "{call}");
    }
}

#[test]
fn text_functions_refuse_lists() {
    let folder = Folder::new();
    for (call, expected) in [
        ("length([1, 20])", "2"),
        ("length([])", "0"),
        ("length('[1]')", "3"),
        ("reverse([1, 2])", "[2, 1]"),
    ] {
        assert_eq!(folder.run_sql(&format!("SELECT {call}")).single_value(), expected, "{call}");
    }
    for call in ["upper([1])", "octet_length([1])", "strpos([1], '1')", "lpad([1], 9)"] {
        let message = folder.sql_error(&format!("SELECT {call}"));
        assert!(message.contains("[]"), "{call}: {message}");
    }
}

#[test]
fn mixed_number_types_compare_pairwise() {
    let folder = Folder::new();
    folder.write("h.csv", "f,i\n0.0,0\n1e-17,1\n0.1,2\n");
    folder.write("e.csv", "b,u\n1,18446744073709545000\n2,18446744073709545001\n5,5\n");
    for (sql, expected) in [
        ("SELECT i FROM '$/h.csv' WHERE i BETWEEN 1e-16::DOUBLE AND 1.5::DECIMAL(5, 1)", vec!["1"]),
        ("SELECT i FROM '$/h.csv' WHERE i IN (1e-16::DOUBLE, 1.5::DECIMAL(5, 1))", vec![]),
        (
            "SELECT i FROM '$/h.csv' WHERE i NOT IN (1e-16::DOUBLE, 2.0::DECIMAL(5, 1)) ORDER BY i",
            vec!["0", "1"],
        ),
        (
            "SELECT CASE i WHEN 1e-16::DOUBLE THEN 'tiny' WHEN 2.0::DECIMAL(5, 1) THEN 'two' END \
             FROM '$/h.csv' ORDER BY i",
            vec!["∅", "∅", "two"],
        ),
        (
            "SELECT b FROM '$/e.csv' WHERE u::UBIGINT IN (1, 18446744073709545000::DOUBLE) ORDER BY b",
            vec!["1", "2"],
        ),
        (
            "SELECT i FROM '$/h.csv' WHERE i BETWEEN 1::DECIMAL(5, 1) AND 'inf'::DOUBLE ORDER BY i",
            vec!["1", "2"],
        ),
    ] {
        assert_eq!(folder.run_sql(sql).rows().concat(), expected, "{sql}");
    }
}

#[test]
fn comparison_with_null_keeps_the_cast() {
    let folder = Folder::new();
    folder.write("d.csv", "u,i\nabc,300\n12,5\n");
    for (sql, expected) in [
        ("SELECT count(*) FROM '$/d.csv' WHERE TRY_CAST(u AS DATE) IS DISTINCT FROM NULL", "0"),
        ("SELECT count(*) FROM '$/d.csv' WHERE TRY_CAST(u AS BIGINT) IS DISTINCT FROM NULL", "1"),
        ("SELECT count(*) FROM '$/d.csv' WHERE TRY_CAST(u AS DATE) IS NOT DISTINCT FROM NULL", "2"),
        ("SELECT count(*) FROM '$/d.csv' WHERE NULL IS DISTINCT FROM TRY_CAST(i AS TINYINT)", "1"),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), [[expected]], "{sql}");
    }
}
