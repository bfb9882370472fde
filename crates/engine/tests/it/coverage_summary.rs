//! Tests of the coverage that a result reports, as one line and as JSON.

use std::fmt::Write as _;

use tidemill_engine::RunSettings;
use tidemill_engine::coverage::{
    Coverage, EstimateAccuracy, ReadAmount, RecordCounts, SalvagedFile,
};
use tidemill_engine::settings::BadRecordLimit;

use crate::common::{Folder, settings};

#[test]
fn complete_result_has_one_line_and_json_coverage() {
    let folder = Folder::new();
    folder.write("a.csv", "x\n1\n2\n");
    folder.write("b.csv", "x\n3\n");
    for (sql, mergeable) in [
        ("SELECT x FROM '$/*.csv'", false),
        ("SELECT sum(x) FROM '$/*.csv'", true),
        ("SELECT x FROM '$/*.csv' ORDER BY x", false),
    ] {
        let coverage = folder.run_sql(sql).coverage;
        assert_eq!(
            coverage.summary_line(),
            "complete: 3 rows from 2 files (10 B), 1/1 splits",
            "{sql}"
        );
        let json = serde_json::to_value(&coverage).unwrap();
        let expected = serde_json::json!({
            "version": 1, "complete": true, "mergeable": mergeable, "files": 2,
            "splits": {"done": 1, "total": 1, "left_out": 0},
            "bytes": {"done": 10, "total": 10, "left_out": 0},
            "rows": {"done": 3, "rejected": 0},
            "stopped": null, "rejected_copy": null, "estimates": [],
            "salvaged": [],
        });
        assert_eq!(json, expected, "{sql}");
        let back: Coverage = serde_json::from_value(json).unwrap();
        assert_eq!(back, coverage);
    }
}

#[test]
fn coverage_line_names_limit_and_rejected_records() {
    let folder = Folder::new();
    let mut out = String::from("x,y\n");
    for n in 0..10_000 {
        writeln!(out, "{n},{}", if n == 3 { "1,2" } else { "1" }).unwrap();
    }
    folder.write("a.csv", out);
    let settings = RunSettings { max_bad: BadRecordLimit::Count(3), ..settings() };
    let coverage = folder.run_sql_with("SELECT x FROM '$/a.csv' LIMIT 2", &settings).coverage;
    let line = coverage.summary_line();
    assert!(line.starts_with("complete: limit reached; "), "{line}");
    assert!(line.contains(" rows looked at, of 1 file with 68.9 kB, "), "{line}");
    assert!(line.ends_with(", 1 record rejected"), "{line}");
}

#[test]
fn coverage_marks_exact_estimates() {
    let folder = Folder::new();
    let mut out = String::from("k,x\n");
    for n in 0..60_000 {
        writeln!(out, "{},{}", n % 2, n * 7 % 60_000).unwrap();
    }
    folder.write("many.csv", out);
    folder.write("few.csv", "k,x\n1,2\n1,3\n");
    let sql = "SELECT k, unique(x) AS u, quantile(x, 0.5) AS q, top_k(x, 2) AS t, count(*) AS n \
        FROM '$/many.csv' GROUP BY k";
    let many = folder.run_sql(sql);
    let few = folder.run_sql(&sql.replace("many", "few"));
    let of = |coverage: &Coverage| -> Vec<(String, bool)> {
        coverage.estimates.iter().map(|e| (e.column.clone(), e.exact)).collect()
    };
    let names = |exact| ["u", "q", "t"].map(|name| (name.to_string(), exact)).to_vec();
    assert_eq!(of(&few.coverage), names(true));
    assert!(few.coverage.estimates.iter().all(|e| e.interval == "exact" && e.error == 0.0));
    assert_eq!(of(&many.coverage), names(false));
    for (row, estimate) in many.rows().iter().zip([&many.coverage.estimates[0]; 2]) {
        let unique: f64 = row[1].parse().unwrap();
        assert!((unique - 30_000.0).abs() < 30_000.0 * 4.0 * estimate.error, "{unique}");
    }
    let line = many.coverage.summary_line();
    assert!(line.contains(", u ±1.6 % (95 %), q ±"), "{line}");
    assert!(!few.coverage.summary_line().contains('±'));
    // A query over the aggregated result keeps the estimates below it.
    let top = folder
        .run_sql("SELECT max(u) FROM (SELECT k, unique(x) AS u FROM '$/many.csv' GROUP BY k)");
    assert_eq!(top.coverage.estimates.len(), 1);
}

#[test]
fn coverage_line_names_skipped_input() {
    let coverage = Coverage {
        version: 1,
        complete: false,
        mergeable: true,
        files: 1,
        splits: ReadAmount { done: 8, total: 10, left_out: 2 },
        bytes: ReadAmount { done: 932_000_000, total: 1_000_000_000, left_out: 68_000_000 },
        rows: RecordCounts { done: 10_103_280, rejected: 12 },
        stopped: Some("deadline reached".into()),
        rejected_copy: Some("runs/1/rejected".into()),
        estimates: vec![EstimateAccuracy {
            column: "users".into(),
            method: "HyperLogLog".into(),
            exact: false,
            interval: "±1.6 % (95 %)".into(),
            error: 0.008,
        }],
        salvaged: vec![SalvagedFile {
            path: "a.rowfile".into(),
            blocks: 7,
            bytes_left_out: 1_200,
            places: 1,
            offset: 4_096,
            reason: "it is cut off".into(),
        }],
        sampled: None,
        unknown_keys: Default::default(),
        mismatches: Default::default(),
        first_rejected: Vec::new(),
    };
    assert_eq!(
        coverage.summary_line(),
        "INCOMPLETE: 10,103,280 rows from 1 file (932 MB), 8/10 splits, 2 splits left out, \
         12 records rejected (kept in runs/1/rejected), deadline reached, 1.20 kB left out (`a.rowfile` from byte \
         4096: it is cut off), users ±1.6 % (95 %)"
    );
}
