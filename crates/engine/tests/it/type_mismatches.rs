//! Tests of type mismatches that are read as null: each is counted once, on every path.

use tidemill_engine::source::{SourceSpec, TextOptions, TypeMismatchPolicy};
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, query, run_query, settings};

const SCHEMA: &str = "k BIGINT, n BIGINT, f DOUBLE, t TEXT";

fn lenient_source() -> SourceSpec {
    let options =
        TextOptions { mismatch: Some(TypeMismatchPolicy::Null), ..TextOptions::default() };
    SourceSpec { text_options: options, ..SourceSpec::default() }
}

/// Writes a file of one of several formats; returns the numbers of mismatches in `n` and in `f`.
fn write_events(folder: &Folder, name: &str, seed: u64, rows: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let (mut text, mut counts) = (String::new(), (0, 0));
    let is_csv = name.ends_with("csv");
    if is_csv {
        text.push_str("k,n,f,t\n");
    }
    for _ in 0..rows {
        let k = random.next_below(5);
        let (is_odd_n, is_odd_f) = (random.next_below(50) == 0, random.next_below(300) == 0);
        counts.0 += u64::from(is_odd_n);
        counts.1 += u64::from(is_odd_f);
        let pad = "x".repeat(40 + random.next_below(40) as usize);
        let number = random.next_below(1000);
        let (n, f) = match (is_csv, is_odd_n, is_odd_f) {
            (true, odd_n, odd_f) => (
                if odd_n { "n/a".to_owned() } else { number.to_string() },
                if odd_f { "\"1,5\"".to_owned() } else { format!("{number}.5") },
            ),
            (false, odd_n, odd_f) => (
                match (odd_n, number % 2) {
                    (false, _) => number.to_string(),
                    (true, 0) => "{\"a\": 1}".to_owned(),
                    (true, _) => "\"n/a\"".to_owned(),
                },
                if odd_f { "[1.5]".to_owned() } else { format!("{number}.5") },
            ),
        };
        text += &match name.rsplit('.').next() {
            Some("csv") => format!("{k},{n},{f},{pad}\n"),
            Some("logfmt") => {
                let n = if is_odd_n { "none" } else { &n };
                let f = if is_odd_f { "\"1,5\"" } else { &f };
                format!("k={k} n={n} f={f} t={pad}\n")
            }
            _ => format!("{{\"k\": {k}, \"n\": {n}, \"f\": {f}, \"t\": \"{pad}\"}}\n"),
        };
    }
    folder.write(name, text);
    counts
}

fn lenient_query(sql: String) -> Query {
    Query { schema: Some(SCHEMA.into()), file_defaults: lenient_source(), ..query(sql) }
}

#[test]
fn mismatch_counts_do_not_depend_on_the_path() {
    for format in ["csv", "json", "logfmt"] {
        let folder = Folder::new();
        let mut expected = (0, 0);
        for part in 0..3 {
            let (n, f) = write_events(&folder, &format!("{part}.{format}"), part, 14_000);
            expected = (expected.0 + n, expected.1 + f);
        }
        let of = |columns: &str| match columns {
            "n" => vec![("n", expected.0)],
            "f" => vec![("f", expected.1)],
            "nf" => vec![("f", expected.1), ("n", expected.0)],
            _ => vec![],
        };
        let queries = [
            ("SELECT sum(n) FROM source", "n"),
            ("SELECT count(*) FROM source", ""),
            ("SELECT k, sum(n), max(f) FROM source GROUP BY k", "nf"),
            ("SELECT k, sum(f) FROM source WHERE n > 900 GROUP BY k", "nf"),
            ("SELECT count(*) FROM source WHERE n IS NULL", "n"),
            ("SELECT count(*) FROM source WHERE n + 0 = 7 AND k = 1", "n"),
            ("SELECT sum(n) FROM source WHERE k = 3", "n"),
            ("SELECT sum(n) FROM source WHERE k = 77", "n"),
            ("SELECT n FROM source WHERE t = 'y' OR n = 12", "n"),
            ("SELECT DISTINCT k FROM source WHERE f BETWEEN 3 AND 9", "f"),
            ("SELECT top_k(n, 3) FROM source WHERE t LIKE 'x%'", "n"),
            ("SELECT k, n FROM source ORDER BY n, k LIMIT 5", "n"),
            (
                "SELECT n, row_number() OVER (ORDER BY f) FROM source WHERE k = 1 ORDER BY 2 LIMIT 3",
                "nf",
            ),
        ];
        for (index, (sql, columns)) in queries.into_iter().enumerate() {
            let sql = sql.replace("source", &folder.substitute_path(&format!("'$/?.{format}'")));
            // Workers, which run the query too, have other settings.
            let (threads, memory) = [(1, 256 << 20), (3, 256 << 20), (2, 1 << 20)][index % 3];
            let settings = RunSettings { threads, ..RunSettings::new(memory) };
            let answer = run_query(&lenient_query(sql.clone()), &settings).unwrap();
            let mut found: Vec<_> = answer.coverage.mismatches.columns.iter().collect();
            found.sort_by_key(|column| &column.column);
            let found: Vec<(&str, u64)> =
                found.iter().map(|column| (column.column.as_str(), column.count)).collect();
            assert_eq!(found, of(columns), "{sql}");
            if sql.ends_with("WHERE n IS NULL") {
                assert_eq!(answer.single_value(), expected.0.to_string(), "{sql}");
            }
        }
    }
}

#[test]
fn partial_tables_add_mismatch_counts() {
    let folder = Folder::new();
    let counts: Vec<_> =
        (0..3).map(|part| write_events(&folder, &format!("{part}.csv"), part, 500)).collect();
    let job = |pattern: &str| {
        let spec =
            SourceSpec { url: folder.substitute_path(&format!("$/{pattern}")), ..lenient_source() };
        let sources = vec![NamedSource { name: "source".into(), spec }];
        let sql = "SELECT k, sum(n), sum(f) FROM source GROUP BY k".to_owned();
        Query { sources, schema: Some(SCHEMA.into()), ..query(sql) }
    };
    let whole = run_query(&job("?.csv"), &settings()).unwrap();
    let parts: Vec<_> = (0..3)
        .map(|part| {
            let out = folder.path().join(format!("{part}.part"));
            let plan = QueryPlan::new(&job(&format!("{part}.csv")), &settings()).unwrap();
            let coverage = plan.write_partial_table(&out, false, &RunId::new()).unwrap();
            assert_eq!(coverage.mismatches.count(), counts[part].0 + counts[part].1);
            out
        })
        .collect();
    let merged = PartialTableMerge::new(&parts, &settings())
        .unwrap()
        .run()
        .and_then(collect_answer)
        .unwrap();
    assert_eq!(merged.coverage.mismatches, whole.coverage.mismatches);
    assert_eq!(merged.sorted_rows(), whole.sorted_rows());
}

#[test]
fn warning_and_coverage_locate_the_first_value() {
    let folder = Folder::new();
    folder.write("a.csv", "n,f\n1,1.5\noops,x\n3,y\n");
    let sql = folder.substitute_path("SELECT sum(n), max(f) FROM '$/a.csv'");
    let query = Query { schema: Some("n BIGINT, f DOUBLE".into()), ..lenient_query(sql) };
    let answer = run_query(&query, &settings()).unwrap();
    let columns = &answer.coverage.mismatches.columns;
    let found: Vec<_> = columns
        .iter()
        .map(|column| (column.column.as_str(), column.count, column.line, column.offset))
        .collect();
    assert_eq!(found, [("n", 1, Some(3), 10), ("f", 2, Some(3), 15)]);
    let warning = answer.coverage.mismatches.warning().unwrap();
    assert!(warning.starts_with("3 values became null"), "{warning}");
    assert!(warning.contains("--schema 'n TEXT'"), "{warning}");
    let line = answer.coverage.summary_line();
    assert!(line.contains("3 values of another type are null"), "{line}");
}

#[test]
fn mismatches_are_counted_by_source() {
    let folder = Folder::new();
    folder.write("a.csv", "k,n\n1,x\n2,y\n");
    folder.write("b.csv", "k,n\n1,z\n2,4\n");
    let sql = folder.substitute_path(
        "SELECT sum(a.n), sum(b.n) FROM '$/a.csv' a JOIN '$/b.csv' b ON a.k = b.k",
    );
    let query = Query { schema: Some("n BIGINT".into()), ..lenient_query(sql) };
    let answer = run_query(&query, &settings()).unwrap();
    let found: Vec<_> = answer
        .coverage
        .mismatches
        .columns
        .iter()
        .map(|column| {
            let source = column.source.as_deref().unwrap();
            (column.path.ends_with("a.csv"), source.ends_with(".csv"), column.count)
        })
        .collect();
    assert_eq!(found, [(true, true, 2), (false, true, 1)]);
}
