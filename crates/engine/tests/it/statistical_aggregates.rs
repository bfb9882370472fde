//! Tests of variances, correlations and regressions: exact, and the same on every path.

use tidemill_engine::RunSettings;

use crate::common::{Folder, Random, settings, string_rows};

const CALLS: [&str; 22] = [
    "var(i)",
    "var_pop(i)",
    "stddev(i)",
    "stddev_pop(j)",
    "var(f)",
    "stddev(f)",
    "var_pop(r)",
    "var(CAST(j AS REAL))",
    "covar_pop(i, j)",
    "covar_samp(f, i)",
    "corr(i, j)",
    "corr(f, j)",
    "regr_slope(j, f)",
    "regr_intercept(j, f)",
    "regr_count(j, f)",
    "regr_r2(j, f)",
    "regr_avgx(j, f)",
    "regr_avgy(j, f)",
    "regr_sxx(i, f)",
    "regr_syy(i, f)",
    "regr_sxy(i, f)",
    "stddev(f) FILTER (WHERE j > 3)",
];

struct Row {
    key: u64,
    i: Option<i64>,
    j: i64,
    /// In units of 1/1,024.
    f: Option<i64>,
}

fn random_rows(seed: u64, count: usize, keys: u64) -> Vec<Row> {
    let mut random = Random(seed);
    let mut next = |below| random.next_below(below) as i64;
    let row = |_| {
        let i = (next(9) > 0).then(|| (1 << 60) + next(1000));
        let f = (next(9) > 0).then(|| (1 << 40) + next(4000));
        Row { key: next(keys) as u64, i, j: next(9), f }
    };
    (0..count).map(row).collect()
}

fn write_csv(folder: &Folder, name: &str, rows: &[Row]) {
    let mut out = String::from("k,i,j,f,r\n");
    for Row { key, i, j, f } in rows {
        let f = f.map_or(String::new(), |f| format!("{:?}", f as f64 / 1024.0));
        let i = i.map_or(String::new(), |i| i.to_string());
        // A value with all the digits that a double can have.
        let r = (*j as f64 + 0.1).sqrt();
        out.push_str(&format!("{key},{i},{j},{f},{r:?}\n"));
    }
    folder.write(name, out);
}

/// Returns the variance of integers divided by `scale`; only the last quotients are rounded.
fn exact_variance(values: &[i64], scale: f64, is_sample: bool) -> Option<f64> {
    let n = values.len() as i128;
    if n < 1 + i128::from(is_sample) {
        return None;
    }
    let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
    // Relative to an integer next to the mean, so that the squares fit.
    let from = sum / n;
    let apart = values.iter().map(|value| i128::from(*value) - from);
    let (sum, squares) = apart.fold((0, 0), |(sum, squares), x| (sum + x, squares + x * x));
    let squares = (n * squares - sum * sum) as f64 / n as f64;
    Some(squares / (n - i128::from(is_sample)) as f64 / (scale * scale))
}

#[test]
fn statistical_aggregates_are_exact_on_every_path() {
    let folder = Folder::new();
    // Many rows per group; and about as many groups as rows, where DataFusion skips its partial aggregation.
    let some = ["var(i)", "stddev(f) FILTER (WHERE j > 3)", "corr(f, j)"];
    for (name, count, keys, calls) in
        [("few.csv", 3_000, 7, &CALLS[..]), ("many.csv", 250_000, 200_000, &some)]
    {
        let rows = random_rows(17, count, keys);
        write_csv(&folder, name, &rows);
        let columns = calls.join(", ");
        let asked = |more: &str, settings: &RunSettings| {
            let sql = format!("SELECT k, {columns}{more} FROM '$/{name}' GROUP BY k ORDER BY k");
            folder.run_sql_with(&sql, settings).rows()
        };
        let tables = asked("", &settings());
        for threads in [1, 3] {
            let settings = RunSettings { threads, ..settings() };
            assert!(asked("", &settings) == tables, "{name}, {threads} threads");
            let mut beside = asked(", approx_percentile_cont_with_weight(1, 1, 0.5)", &settings);
            beside.iter_mut().for_each(|row| row.truncate(1 + calls.len()));
            let differs = beside.iter().zip(&tables).find(|(beside, tables)| beside != tables);
            assert_eq!(differs, None, "{name}, {threads} threads");
        }
        for row in &tables {
            let of = |key: &Row| key.key.to_string() == row[0];
            let some: Vec<&Row> = match keys {
                7 => rows.iter().filter(|row| of(row)).collect(),
                _ => break,
            };
            let i: Vec<i64> = some.iter().filter_map(|row| row.i).collect();
            let f: Vec<i64> = some.iter().filter_map(|row| row.f).collect();
            let shown =
                |value: Option<f64>| value.map_or("∅".into(), |value| format!("{value:?}"));
            assert_eq!(row[1], shown(exact_variance(&i, 1.0, true)));
            assert_eq!(row[2], shown(exact_variance(&i, 1.0, false)));
            assert_eq!(row[3], shown(exact_variance(&i, 1.0, true).map(f64::sqrt)));
            assert_eq!(row[5], shown(exact_variance(&f, 1024.0, true)));
            assert_eq!(row[15], f.len().to_string());
        }
    }
    // In a frame that is the whole partition, and in one that has slid there.
    let over = |frame: &str| {
        let calls = CALLS[..CALLS.len() - 1].iter();
        let calls = calls.map(|call| format!("{call} OVER (PARTITION BY k ORDER BY j {frame})"));
        let calls = calls.collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT DISTINCT k, {calls} FROM '$/few.csv' ORDER BY k");
        folder.run_sql(&sql).rows()
    };
    let calls = CALLS[..CALLS.len() - 1].join(", ");
    let sql = format!("SELECT k, {calls} FROM '$/few.csv' GROUP BY k ORDER BY k");
    let tables = folder.run_sql(&sql).rows();
    for frame in [
        "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        "RANGE BETWEEN 9 PRECEDING AND 9 FOLLOWING",
    ] {
        assert_eq!(over(frame), tables, "{frame}");
    }
}

#[test]
fn aggregates_of_one_column_do_not_affect_each_other() {
    let folder = Folder::new();
    write_csv(&folder, "t.csv", &random_rows(7, 300, 3));
    let calls = [
        "var(i)",
        "skewness(i)",
        "kurtosis(i)",
        "stddev_pop(i)",
        "stddev(r)",
        "skewness(r)",
        "kurtosis_pop(r)",
        "var_pop(r)",
    ];
    let ask = |calls: &[&str]| {
        let sql = format!("SELECT {} FROM '$/t.csv' GROUP BY k ORDER BY k", calls.join(", "));
        folder.run_sql(&sql).rows()
    };
    let alone: Vec<_> = calls.iter().map(|call| ask(&[call])).collect();
    for turned in [false, true] {
        let mut order: Vec<usize> = (0..calls.len()).collect();
        if turned {
            order.reverse();
        }
        let together = ask(&order.iter().map(|at| calls[*at]).collect::<Vec<_>>());
        for (column, at) in order.iter().enumerate() {
            for (row, values) in together.iter().enumerate() {
                assert_eq!(values[column], alone[*at][row][0], "{}", calls[*at]);
                assert_ne!(values[column], "NaN", "{}", calls[*at]);
            }
        }
    }
}

#[test]
fn undefined_statistics_are_null_nan_or_an_error() {
    let folder = Folder::new();
    folder.write(
        "e.csv",
        "k,x,y\none,1.5,2\nnan,NaN,1\nnan,1,2\nflat,3,1\nflat,3,2\nlarge,1e141,1\n",
    );
    let asked = |calls: &str, of: &str, more: &str| {
        let found =
            folder.run_sql(&format!("SELECT {calls}{more} FROM '$/e.csv' WHERE k = '{of}'"));
        found.rows().remove(0)
    };
    for more in ["", ", approx_percentile_cont_with_weight(1, 1, 0.5)"] {
        let calls = "var(x), var_pop(x), stddev(x), covar_samp(x, y), corr(x, y), regr_slope(y, x), \
                     regr_r2(x, y), regr_count(x, y)";
        let check = |of: &str, expected: [&str; 8]| {
            assert_eq!(asked(calls, of, more)[..8], expected, "{of}{more}");
        };
        check("none", ["∅", "∅", "∅", "∅", "∅", "∅", "∅", "0"]);
        check("one", ["∅", "0.0", "∅", "∅", "∅", "∅", "∅", "1"]);
        check("nan", ["NaN", "NaN", "NaN", "NaN", "NaN", "NaN", "NaN", "2"]);
        check("flat", ["0.0", "0.0", "0.0", "0.0", "∅", "∅", "1.0", "2"]);
        let sql = format!("SELECT k, stddev(x){more} FROM '$/e.csv' GROUP BY k");
        let message = folder.sql_error(&sql);
        assert!(message.contains("`stddev(x)` is of values beyond 1e140"), "{message}");
    }
    // A value that is not finite affects only its own column, and nothing after it has left the frame.
    folder.write("f.csv", "i,x,y\n1,1,2\n2,NaN,4\n3,3,inf\n4,5,6\n5,9,10\n");
    let lines = "regr_avgx(y, x), regr_sxx(y, x), regr_avgy(y, x), regr_syy(y, x), \
                 regr_sxy(y, x), regr_r2(y, x), covar_pop(x, y), regr_count(y, x)";
    for (rows, expected) in [
        ("i < 3", ["NaN", "NaN", "3.0", "2.0", "NaN", "NaN", "NaN", "2"]),
        ("i IN (1, 3)", ["2.0", "2.0", "inf", "NaN", "NaN", "NaN", "NaN", "2"]),
        ("i < 4", ["NaN", "NaN", "inf", "NaN", "NaN", "NaN", "NaN", "3"]),
        ("i > 3", ["7.0", "8.0", "8.0", "8.0", "8.0", "1.0", "4.0", "2"]),
    ] {
        for more in ["", ", approx_percentile_cont_with_weight(1, 1, 0.5)"] {
            let sql = format!("SELECT {lines}{more} FROM '$/f.csv' WHERE {rows}");
            assert_eq!(folder.run_sql(&sql).rows()[0][..8], expected, "{rows}{more}");
        }
    }
    let over =
        lines.replace("x)", "x) OVER w").replace("covar_pop(x, y)", "covar_pop(x, y) OVER w");
    let sql = format!(
        "SELECT {over} FROM '$/f.csv' \
         WINDOW w AS (ORDER BY i ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) ORDER BY i"
    );
    let nan = "NaN";
    assert_eq!(
        folder.run_sql(&sql).rows(),
        string_rows(&[
            &[nan, nan, "3.0", "2.0", nan, nan, nan, "2"],
            &[nan, nan, "inf", nan, nan, nan, nan, "2"],
            &["4.0", "2.0", "inf", nan, nan, nan, nan, "2"],
            &["7.0", "8.0", "8.0", "8.0", "8.0", "1.0", "4.0", "2"],
            &["9.0", "0.0", "10.0", "0.0", "0.0", "∅", "0.0", "1"],
        ])
    );
    // Distinct values count once each.
    folder.write("d.csv", "x\n1\n1\n1\n3\n\n");
    let sql = "SELECT var(DISTINCT x), var_pop(x), count(DISTINCT x), count(*) FROM '$/d.csv'";
    assert_eq!(folder.run_sql(sql).rows()[0], ["2.0", "0.75", "2", "4"]);
    let sql = "SELECT var(DISTINCT x) OVER (ORDER BY x ROWS 1 PRECEDING) FROM '$/d.csv' ORDER BY 1";
    assert_eq!(folder.run_sql(sql).rows(), [["2.0"], ["∅"], ["∅"], ["∅"]]);
}
