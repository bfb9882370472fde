//! Tests of estimates outside the table path: the same answers, and their errors in the coverage.

use crate::common::{Folder, Random};

fn write_values(folder: &Folder, rows: u64) {
    let mut random = Random(7);
    let mut out = String::from("k,x,s\n");
    for row in 0..rows {
        out.push_str(&format!(
            "{},{},name {}\n",
            row % 2,
            random.next_below(rows),
            random.next_below(rows)
        ));
    }
    folder.write("t.csv", out);
}

#[test]
fn estimate_does_not_depend_on_function_name_or_path() {
    let folder = Folder::new();
    write_values(&folder, 6000);
    for calls in [
        &["unique(s)", "approx_distinct(s)"][..],
        &["unique(x)", "approx_distinct(x)"],
        &["quantile(x, 0.5)", "approx_median(x)"],
        &[
            "quantile(x, 0.9)",
            "approx_percentile_cont(x, 0.9)",
            "approx_percentile_cont(0.9) WITHIN GROUP (ORDER BY x)",
            "approx_percentile_cont(0.1) WITHIN GROUP (ORDER BY x DESC)",
        ],
    ] {
        for group in ["", " GROUP BY k ORDER BY k"] {
            let mut answers = Vec::new();
            let mut errors = Vec::new();
            for call in calls {
                let merged = folder.run_sql(&format!("SELECT {call} AS a FROM '$/t.csv'{group}"));
                assert!(merged.coverage.mergeable, "{call}");
                let sql = format!(
                    "SELECT {call} AS a, approx_percentile_cont_with_weight(1, 1, 0.5) AS d FROM '$/t.csv'{group}"
                );
                let beside = folder.run_sql(&sql);
                assert!(!beside.coverage.mergeable, "{call}");
                let first = |rows: Vec<Vec<String>>| -> Vec<String> {
                    rows.into_iter().map(|row| row[0].clone()).collect()
                };
                assert_eq!(first(merged.rows()), first(beside.rows()), "{call}");
                let window = format!("SELECT {call} OVER () AS a FROM '$/t.csv' LIMIT 1");
                if group.is_empty() && !call.contains("WITHIN") {
                    assert_eq!(folder.run_sql(&window).rows(), merged.rows(), "{call}");
                }
                assert_eq!(merged.coverage.estimates, beside.coverage.estimates, "{call}");
                let [estimate] = &merged.coverage.estimates[..] else {
                    panic!("{call}: {:?}", merged.coverage.estimates)
                };
                assert!(estimate.column == "a" && !estimate.exact && estimate.error > 0.0);
                answers.push(first(merged.rows()));
                errors.push(estimate.error);
            }
            assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{calls:?}: {answers:?}");
            assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{calls:?}: {errors:?}");
        }
    }
}

#[test]
fn coverage_names_estimates_like_result_columns() {
    let folder = Folder::new();
    write_values(&folder, 50);
    let named = |sql: &str| -> Vec<(String, bool)> {
        let estimates = folder.run_sql(sql).coverage.estimates;
        estimates.into_iter().map(|estimate| (estimate.column, estimate.exact)).collect()
    };
    let exact = |names: &[&str]| -> Vec<(String, bool)> {
        names.iter().map(|name| (name.to_string(), true)).collect()
    };
    assert_eq!(
        named(
            "SELECT unique(s) AS visitors, approx_percentile_cont_with_weight(1, 1, 0.5), quantile(x, 0.5) AS half FROM '$/t.csv'"
        ),
        exact(&["visitors", "half"]),
    );
    // An estimate above a finished table, over an estimate of that table.
    assert_eq!(
        named(
            "SELECT unique(u) AS different FROM (SELECT k, unique(s) AS u FROM '$/t.csv' GROUP BY k)"
        ),
        exact(&["u", "different"]),
    );
    // Without rows an estimate has no error.
    assert_eq!(
        named(
            "SELECT unique(s) AS u, approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/t.csv' WHERE x < 0"
        ),
        exact(&["u"])
    );
    assert_eq!(
        named("SELECT sum(x), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/t.csv'"),
        []
    );
}

#[test]
fn invalid_estimate_arguments_are_refused_on_every_path() {
    let folder = Folder::new();
    write_values(&folder, 5);
    for more in ["", ", approx_percentile_cont_with_weight(1, 1, 0.5)"] {
        let refusal = |call: &str| folder.sql_error(&format!("SELECT {call}{more} FROM '$/t.csv'"));
        assert!(refusal("approx_percentile_cont(x, 0.5, 100)").contains("centroids"), "{more}");
        assert!(refusal("approx_percentile_cont(x, 1.5)").contains("from 0 to 1"), "{more}");
    }
}
