//! Tests of `sum` and `avg` on every path: in windows, beside DISTINCT, over sums, above joins.

use tidemill_engine::QueryPlan;

use crate::common::{Folder, Random, query, settings, string_rows};

const LARGE_VALUES_CSV: &str = "k,v,f\na,9223372036854775807,1e16\nb,1,1\nc,0,-1e16\n";

#[test]
fn sum_that_does_not_fit_is_an_error_on_every_path() {
    let folder = Folder::new();
    folder.write("o.csv", LARGE_VALUES_CSV);
    folder.write("k.csv", "k\na\nb\nc\n");
    for sql in [
        "SELECT sum(v) FROM '$/o.csv'",
        "SELECT count(DISTINCT k), sum(v) FROM '$/o.csv'",
        "SELECT sum(s) FROM (SELECT k, sum(v) AS s FROM '$/o.csv' GROUP BY k)",
        "SELECT k, sum(v) OVER () FROM '$/o.csv'",
        "SELECT k, sum(v) OVER (ORDER BY k) FROM '$/o.csv'",
        "SELECT k, sum(v) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM '$/o.csv'",
        "SELECT sum(DISTINCT v), count(DISTINCT k) FROM '$/o.csv'",
        "SELECT sum(v), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/o.csv'",
        "SELECT sum(v), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/o.csv' GROUP BY length(k)",
        "SELECT x, sum(v) FROM (SELECT a.v, 1 AS x FROM '$/o.csv' a, '$/k.csv' b WHERE a.k <= b.k) GROUP BY x",
    ] {
        let message = folder.sql_error(sql);
        assert!(message.contains("does not fit") && message.contains("hint:"), "{sql}: {message}");
        assert!(!message.contains("o.csv"), "{sql}: {message}");
    }
}

#[test]
fn sums_of_floats_are_rounded_once_on_every_path() {
    let folder = Folder::new();
    folder.write("o.csv", LARGE_VALUES_CSV);
    for (sql, expected) in [
        ("SELECT sum(f) FROM '$/o.csv'", "1.0"),
        ("SELECT sum(f) FROM (SELECT count(DISTINCT k), sum(f) AS f FROM '$/o.csv')", "1.0"),
        ("SELECT sum(f) FROM (SELECT f FROM '$/o.csv' ORDER BY k)", "1.0"),
        ("SELECT max(s) FROM (SELECT k, sum(f) OVER () AS s FROM '$/o.csv')", "1.0"),
        (
            "SELECT sum(s) FROM (SELECT approx_percentile_cont_with_weight(1, 1, 0.5) AS d, sum(f) AS s FROM '$/o.csv')",
            "1.0",
        ),
        (
            "SELECT avg(s) FROM (SELECT approx_percentile_cont_with_weight(1, 1, 0.5) AS d, mean(f) * 3 AS s FROM '$/o.csv')",
            "1.0",
        ),
        ("SELECT sum(DISTINCT f) FROM '$/o.csv'", "1.0"),
        (
            "SELECT a FROM (SELECT approx_percentile_cont_with_weight(1, 1, 0.5) AS d, avg(x) AS a FROM \
             (SELECT f, CASE k WHEN 'a' THEN 9007199254740993 ELSE 1 END AS x \
              FROM '$/o.csv' WHERE k <> 'c'))",
            "4503599627370497.0",
        ),
    ] {
        assert_eq!(folder.run_sql(sql).single_value(), expected, "{sql}");
    }
}

#[test]
fn sliding_frame_sums_are_exact() {
    let mut random = Random(11);
    let folder = Folder::new();
    let count = 120_usize;
    // Multiples of 2^-20 up to 2^60: a sum of them has one double that is nearest.
    let rows: Vec<(Option<i64>, i64)> = (0..count)
        .map(|_| {
            let whole = (random.next() as i64) >> 8;
            let part = (random.next() as i64) >> (4 + random.next() % 40);
            (random.next().is_multiple_of(7).then_some(whole), part)
        })
        .collect();
    let lines: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(n, (whole, part))| {
            let whole = whole.map_or(String::new(), |whole| whole.to_string());
            let special = if n == 50 { "inf".into() } else { format!("{:e}", *part as f64) };
            format!("{n},{whole},{:e},{special}", *part as f64 / 1_048_576.0)
        })
        .collect();
    folder.write("w.csv", format!("n,i,f,s\n{}\n", lines.join("\n")));
    for (before, after) in [(0, 0), (1, 0), (3, 2), (40, 1)] {
        let frame = format!("(ORDER BY n ROWS BETWEEN {before} PRECEDING AND {after} FOLLOWING)");
        let sql = format!(
            "SELECT n, sum(i) OVER {frame}, avg(f) OVER {frame}, sum(f) OVER {frame}, \
             sum(s) OVER {frame} = 'inf' FROM '$/w.csv' ORDER BY n"
        );
        let found = folder.run_sql(&sql).rows();
        assert_eq!(found.len(), count);
        for (n, found) in found.iter().enumerate() {
            let frame = n.saturating_sub(before)..(n + after + 1).min(count);
            let whole: Vec<i128> =
                rows[frame.clone()].iter().filter_map(|row| row.0).map(i128::from).collect();
            let part: i128 = rows[frame.clone()].iter().map(|row| (row.1 as f64) as i128).sum();
            let sum = part as f64 / 1_048_576.0;
            let whole = match whole.is_empty() {
                true => "∅".to_string(),
                false => whole.iter().sum::<i128>().to_string(),
            };
            assert_eq!(found[1], whole, "row {n} of {frame:?}");
            let floats: Vec<f64> = found[2..4].iter().map(|v| v.parse().unwrap()).collect();
            assert_eq!(floats, [sum / frame.len() as f64, sum], "row {n} of {frame:?}");
            assert_eq!(found[4], frame.contains(&50).to_string(), "row {n} of {frame:?}");
        }
    }
}

#[test]
fn groups_give_the_same_sums_on_both_paths() {
    let mut random = Random(5);
    let folder = Folder::new();
    let lines: Vec<String> = (0..5000)
        .map(|_| {
            let (k, bits) = (random.next() % 700, random.next());
            let f = f64::from_bits((bits & !(0x7ff << 52)) | ((1000 + bits % 60) << 52));
            format!("{k},{},{f:e},{}.{:02}", bits as i64 >> 14, bits % 10_000, bits % 100)
        })
        .collect();
    folder.write("g.csv", format!("k,i,f,d\n{}\n", lines.join("\n")));
    let sums = "sum(i), avg(i), sum(f), mean(f), sum(CAST(d AS DECIMAL(10,2))), \
                avg(CAST(d AS DECIMAL(10,2))), sum(i) FILTER (WHERE f > 0)";
    let tables = folder.run_sql(&format!("SELECT k, {sums} FROM '$/g.csv' GROUP BY k ORDER BY k"));
    // The percentile has no mergeable state: DataFusion's path, with partial and final aggregation.
    let engine = folder
        .run_sql(&format!("SELECT k, {sums}, approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/g.csv' GROUP BY k ORDER BY k"))
        .rows();
    let engine: Vec<Vec<String>> = engine.into_iter().map(|row| row[..8].to_vec()).collect();
    assert_eq!(engine, tables.rows());
    let distinct = folder
        .run_sql("SELECT sum(DISTINCT k), avg(DISTINCT k), count(DISTINCT i % 3) FROM '$/g.csv'")
        .rows();
    let same =
        folder.run_sql("SELECT sum(k), avg(k) FROM (SELECT DISTINCT k FROM '$/g.csv')").rows();
    assert_eq!(distinct[0][..2], same[0][..]);
}

#[test]
fn distinct_sums_work_in_sliding_frames() {
    let folder = Folder::new();
    folder.write("d.csv", "n,v\n1,5\n2,5\n3,7\n4,5\n5,\n6,7\n");
    let sql = "SELECT n, sum(DISTINCT v) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) \
               FROM '$/d.csv' ORDER BY n";
    let expected =
        [&["1", "5"][..], &["2", "5"], &["3", "12"], &["4", "12"], &["5", "5"], &["6", "7"]];
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&expected));
}

/// Returns calls of an aggregate in every context: alone, in groups, over a window, over a sliding window,
/// over distinct values, and beside an aggregate without a partial table.
fn aggregate_in_every_context(call: &str, of: &str) -> Vec<String> {
    vec![
        format!("SELECT {call}(x) FROM ({of})"),
        format!("SELECT {call}(x) FROM ({of}) GROUP BY g"),
        format!("SELECT {call}(DISTINCT x) FROM ({of})"),
        format!("SELECT max(s) FROM (SELECT {call}(x) OVER () AS s FROM ({of}))"),
        format!(
            "SELECT s FROM (SELECT k, {call}(x) OVER (ORDER BY k) AS s FROM ({of})) ORDER BY k DESC \
             LIMIT 1"
        ),
        format!(
            "SELECT s FROM (SELECT k, {call}(x) OVER (ORDER BY k ROWS 4 PRECEDING) AS s \
             FROM ({of})) ORDER BY k DESC LIMIT 1"
        ),
        format!(
            "SELECT {call}(x) FILTER (WHERE k > 0) FROM (SELECT *, median(k) OVER () FROM ({of}))"
        ),
    ]
}

#[test]
fn time_differences_are_summed_exactly_in_every_context() {
    let folder = Folder::new();
    folder.write(
        "t.csv",
        "g,k,a,b\n\
         1,1,1800-01-01 00:00:00,2000-01-01 00:00:00\n\
         1,2,1801-01-01 00:00:00,2001-06-01 00:00:01\n\
         1,3,2000-01-02 00:00:00,2000-01-01 00:00:00\n\
         1,4,,2000-01-01 00:00:00\n",
    );
    let between = |digits: u32| {
        format!(
            "SELECT g, k, CAST(b AS TIMESTAMP({digits})) - CAST(a AS TIMESTAMP({digits})) AS x \
             FROM '$/t.csv'"
        )
    };
    // Formats a duration as answers print it.
    let of_units = |count: i128, units: i128| match count % units {
        0 => format!("PT{}S", count / units),
        rest => {
            let digits = format!("{:0>width$}", rest, width = units.ilog10() as usize);
            format!("PT{}.{}S", count / units, digits.trim_end_matches('0'))
        }
    };
    let seconds = (73_048_i128 + 73_200 - 1) * 86_400 + 1;
    for digits in [0, 3, 6, 9] {
        let units = 10_i128.pow(digits);
        for sql in aggregate_in_every_context("avg", &between(digits)) {
            // In microseconds at least, rounded half away from zero.
            let units = units.max(1_000_000);
            let expected = (seconds * units * 2 + 3) / 6;
            assert_eq!(folder.run_sql(&sql).single_value(), of_units(expected, units), "{sql}");
        }
        for sql in aggregate_in_every_context("sum", &between(digits)) {
            if digits < 9 {
                let expected = of_units(seconds * units, units);
                assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
                continue;
            }
            let message = folder.sql_error(&sql);
            assert!(
                message.contains("does not fit an interval of nanoseconds"),
                "{sql}: {message}"
            );
            assert!(message.contains("hint: cast the times to TIMESTAMP(6)"), "{sql}: {message}");
        }
    }
}

#[test]
fn intervals_and_wide_decimals_are_summed_exactly_in_every_context() {
    let folder = Folder::new();
    folder.write("d.csv", "g,k,d\n1,1,9\n1,2,-8\n1,3,8\n1,4,-8.5\n1,5,\n");
    let scaled = |zeros: usize| {
        format!(
            "SELECT g, k, CAST(CAST(CAST(d * 10 AS BIGINT) AS TEXT) || '{}' AS DECIMAL(76, 0)) AS x \
             FROM '$/d.csv'",
            "0".repeat(zeros)
        )
    };
    for sql in aggregate_in_every_context("sum", &scaled(74)) {
        assert_eq!(folder.run_sql(&sql).single_value(), format!("5{}", "0".repeat(74)), "{sql}");
    }
    for sql in aggregate_in_every_context("avg", &scaled(60)) {
        assert_eq!(
            folder.run_sql(&sql).single_value(),
            format!("125{}.0000", "0".repeat(58)),
            "{sql}"
        );
    }
    for sql in aggregate_in_every_context(
        "sum",
        &scaled(74).replace("'$/d.csv'", "'$/d.csv' WHERE k IN (1, 3)"),
    ) {
        let message = folder.sql_error(&sql);
        assert!(message.contains("does not fit DECIMAL(76, 0)"), "{sql}: {message}");
    }
    // Hours and days are summed apart.
    let spans = "SELECT g, k, CASE k WHEN 1 THEN INTERVAL '1 month' WHEN 2 THEN INTERVAL '3 days 2000000 hours' \
                 WHEN 3 THEN INTERVAL '-1999990 hours' WHEN 4 THEN INTERVAL '4 days' END AS x FROM '$/d.csv'";
    for sql in aggregate_in_every_context("sum", spans) {
        let sql = sql.replacen("SELECT ", "SELECT CAST(", 1).replacen(" FROM", " AS TEXT) FROM", 1);
        assert_eq!(folder.run_sql(&sql).single_value(), "1 mons 7 days 10 hours", "{sql}");
    }
    for sql in aggregate_in_every_context("sum", &spans.replace("-1999990", "1999990")) {
        let message = folder.sql_error(&sql);
        assert!(message.contains("does not fit INTERVAL"), "{sql}: {message}");
    }
}

#[test]
fn booleans_are_summed_and_averaged_as_numbers() {
    let folder = Folder::new();
    folder.write("s.csv", "k,status\na,200\na,500\nb,404\nb,\na,503\n");
    let sql = "SELECT k, sum(status >= 500) AS n, avg(status >= 500) AS share FROM '$/s.csv' GROUP BY k ORDER BY k";
    let rows = folder.run_sql(sql).rows();
    assert_eq!(rows[0][..2], ["a", "2"]);
    assert!(rows[0][2].starts_with("0.66666666"), "{rows:?}");
    assert_eq!(rows[1], ["b", "0", "0.0"]);
    let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
    assert_eq!(plan.explain().unwrap().path, "partial tables");
    // A window, and distinct values, on the other path.
    let windows =
        "SELECT max(n) FROM (SELECT sum(status >= 500) OVER (ORDER BY k) AS n FROM '$/s.csv')";
    assert_eq!(folder.run_sql(windows).single_value(), "2");
    assert_eq!(
        folder.run_sql("SELECT sum(DISTINCT status >= 500) FROM '$/s.csv'").single_value(),
        "1"
    );
}
