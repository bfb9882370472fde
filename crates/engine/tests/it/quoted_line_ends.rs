//! Tests of CSV whose line ends and quotes mislead a reader that starts in the middle.

use std::fmt::Write as _;

use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::{Query, QueryPlan, RunSettings};

use crate::common::{Folder, collect_answer, query, settings};

const SCHEMA: &str = "n BIGINT, note VARCHAR, m BIGINT";

fn lenient_settings() -> RunSettings {
    RunSettings { max_bad: BadRecordLimit::Count(1_000_000), ..settings() }
}

/// Writes records whose quoted field looks, for a megabyte, like records outside of quotes: a reader that
/// starts there guesses wrong. Every 50th record is malformed.
fn write_misleading_quotes(folder: &Folder) -> Vec<(u64, usize)> {
    let mut out = String::from("n,note,m\n");
    let mut expected = Vec::new();
    let mut inside = String::new();
    for n in 0..60u64 {
        inside.clear();
        for line in 0..(n * 1637 % 6000) + 1 {
            // Closes and opens quotes for a reader that starts inside.
            write!(inside, "{line},\"\"a note\"\",{line}\n7,\"\",\"\",8\n").unwrap();
        }
        if n % 50 == 49 {
            writeln!(out, "{n},\"{inside}\",1,2").unwrap();
        } else {
            writeln!(out, "{n},\"{inside}\",{}", 2 * n).unwrap();
            expected.push((n, inside.replace("\"\"", "\"").len()));
        }
    }
    folder.write("trap.csv", out);
    expected
}

/// Writes the inverse: most of the file is inside quotes, so that the rest looks odd.
fn write_mostly_quoted(folder: &Folder) -> Vec<(u64, usize)> {
    let mut out = String::from("n,note,m\n");
    let mut expected = Vec::new();
    for n in 0..12_000u64 {
        let note = "\n1,2,3\n\"\",\"\"\n,,".repeat((n % 23) as usize + 1);
        writeln!(out, "{n},\"{note}\",{}", 2 * n).unwrap();
        expected.push((n, note.replace("\"\"", "\"").len()));
    }
    folder.write("trap.csv", out);
    expected
}

fn assert_sequential_rows(folder: &Folder, expected: &[(u64, usize)], bad: u64) {
    let of = |sql: &str, threads| {
        let query = Query { schema: Some(SCHEMA.into()), ..query(folder.substitute_path(sql)) };
        let plan = QueryPlan::new(&query, &RunSettings { threads, ..lenient_settings() }).unwrap();
        let splits = plan.explain().unwrap().sources[0].splits;
        assert!(splits > 2, "{splits} splits");
        collect_answer(plan.run().unwrap()).unwrap()
    };
    let rows: Vec<Vec<String>> =
        expected.iter().map(|(n, length)| vec![n.to_string(), length.to_string()]).collect();
    let count = expected.len().to_string();
    let sum: u64 = expected.iter().map(|(n, _)| 2 * n).sum();
    for threads in [1, 2, 5] {
        let answer = of("SELECT n, length(note) AS l FROM '$/trap.csv'", threads);
        let found = answer.rows();
        let differs = found.iter().zip(&rows).find(|(found, row)| found != row);
        assert!(
            found == rows,
            "rows, {threads} threads: {} of {}, {differs:?}",
            found.len(),
            rows.len()
        );
        assert_eq!(answer.coverage.rows.rejected, bad);
        let answer = of("SELECT count(*) AS c, sum(m) AS s FROM '$/trap.csv'", threads);
        assert_eq!(answer.rows(), [[count.clone(), sum.to_string()]]);
        assert_eq!(
            (answer.coverage.rows.rejected, answer.coverage.rows.done),
            (bad, expected.len() as u64)
        );
        let answer = of("SELECT n, length(note) AS l FROM '$/trap.csv' ORDER BY n", threads);
        assert!(answer.rows() == rows, "datafusion, {threads} threads");
        assert_eq!(answer.coverage.rows.rejected, bad);
        let answer = of("SELECT n, length(note) AS l FROM '$/trap.csv' LIMIT 40", threads);
        assert!(answer.rows() == rows[..rows.len().min(40)], "limit, {threads} threads");
    }
}

#[test]
fn misleading_quotes_give_the_rows_of_a_sequential_read() {
    let folder = Folder::new();
    let expected = write_misleading_quotes(&folder);
    let bad = 60 - expected.len() as u64;
    assert!(bad > 0);
    assert_sequential_rows(&folder, &expected, bad);
}

#[test]
fn mostly_quoted_file_gives_the_rows_of_a_sequential_read() {
    let folder = Folder::new();
    let expected = write_mostly_quoted(&folder);
    assert_sequential_rows(&folder, &expected, 0);
}

#[test]
fn record_spanning_several_splits_is_read_once() {
    let folder = Folder::new();
    let note = "5,\"\"x\"\",6\n".repeat(600_000);
    folder.write("trap.csv", format!("n,note,m\n1,\"{note}\",2\n2,b,4\n"));
    assert_sequential_rows(&folder, &[(1, note.replace("\"\"", "\"").len()), (2, 1)], 0);
}
