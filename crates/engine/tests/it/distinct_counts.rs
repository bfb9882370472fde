//! Tests of distinct counts beside other aggregates, and of coverage where a query needs no rows.

use std::path::PathBuf;

use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, query, settings, string_rows};

fn write_events(folder: &Folder, name: &str, seed: u64, rows: u64) {
    let mut random = Random(seed);
    let mut out = String::from("k,x,f,s\n");
    for _ in 0..rows {
        let (k, x) = (random.next_below(5), random.next_below(30));
        let x = if x == 0 { String::new() } else { x.to_string() };
        let f = ["0.0", "-0.0", "NaN", "1.5", ""][random.next_below(5) as usize];
        out.push_str(&format!("key {k},{x},{f},name {}\n", random.next_below(9)));
    }
    folder.write(name, out);
}

const SCHEMA: &str = "k VARCHAR, x BIGINT, f DOUBLE, s VARCHAR";

fn source_query(folder: &Folder, sql: &str, pattern: &str) -> Query {
    let url = folder.substitute_path(&format!("$/{pattern}"));
    let spec = SourceSpec { url, ..SourceSpec::default() };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    Query { sources, schema: Some(SCHEMA.into()), ..query(sql) }
}

const COUNT_CALLS: [&str; 7] = [
    "count(DISTINCT x)",
    "count(DISTINCT x), sum(x), sum(f)",
    "count(DISTINCT s), count(DISTINCT x), count(DISTINCT f)",
    "count(DISTINCT x), count(*), avg(x), unique(s), top_k(s, 2), quantile(x, 0.5)",
    "count(DISTINCT x) FILTER (WHERE s > 'name 4'), max(s), count(DISTINCT x)",
    "sum(x) FILTER (WHERE x > 7), count(DISTINCT s) FILTER (WHERE x > 7), min(f)",
    "count(DISTINCT x + 1), count(x)",
];

#[test]
fn distinct_counts_beside_other_aggregates_are_exact_and_merge() {
    let folder = Folder::new();
    for (name, seed, rows) in [("a", 1, 200), ("b", 2, 300), ("none", 3, 0)] {
        write_events(&folder, &format!("{name}.csv"), seed, rows);
    }
    for counts in COUNT_CALLS {
        for (sql, pattern) in [
            (format!("SELECT {counts} FROM source"), "?.csv"),
            (format!("SELECT {counts} FROM source"), "none.csv"),
            (format!("SELECT k, {counts} FROM source GROUP BY k ORDER BY k"), "?.csv"),
            (
                format!(
                    "SELECT upper(k) AS k, x % 3 AS y, {counts} FROM source GROUP BY upper(k), x % 3 ORDER BY k, y"
                ),
                "?.csv",
            ),
            (
                format!(
                    "SELECT k, {counts} FROM source GROUP BY k HAVING count(DISTINCT x) > 3 ORDER BY k"
                ),
                "?.csv",
            ),
        ] {
            let ask = |sql: &str, pattern: &str, settings: &RunSettings| {
                let plan = QueryPlan::new(&source_query(&folder, sql, pattern), settings);
                let plan = plan.unwrap_or_else(|error| panic!("{sql}: {error}"));
                collect_answer(plan.run().unwrap()).unwrap_or_else(|error| panic!("{sql}: {error}"))
            };
            let whole = ask(&sql, pattern, &settings());
            assert!(whole.coverage.mergeable, "{sql}");
            // Aggregates without a mergeable state take DataFusion's path.
            let first = sql.find(" FROM source").unwrap();
            let beside = format!(
                "{}, approx_percentile_cont_with_weight(1, 1, 0.5) AS other{}",
                &sql[..first],
                &sql[first..]
            );
            let engine = ask(&beside, pattern, &settings());
            assert!(!engine.coverage.mergeable, "{beside}");
            let but_last = engine.rows().into_iter().map(|mut row| {
                row.pop();
                row
            });
            assert_eq!(whole.rows(), but_last.collect::<Vec<_>>(), "{sql}");
            let small = RunSettings { memory_bytes: 1 << 16, ..settings() };
            assert_eq!(ask(&sql, pattern, &small).rows(), whole.rows(), "{sql}");
            let files = if pattern == "none.csv" { &["none"][..] } else { &["a", "b"] };
            let parts: Vec<PathBuf> = files
                .iter()
                .map(|name| {
                    let plan = QueryPlan::new(
                        &source_query(&folder, &sql, &format!("{name}.csv")),
                        &settings(),
                    );
                    let out = folder.path().join(format!("{name}.part"));
                    plan.unwrap().write_partial_table(&out, true, &RunId::new()).unwrap();
                    out
                })
                .collect();
            let merged =
                collect_answer(PartialTableMerge::new(&parts, &settings()).unwrap().run().unwrap())
                    .unwrap();
            assert_eq!(merged.rows(), whole.rows(), "{sql}");
            assert_eq!(merged.column_names(), whole.column_names(), "{sql}");
        }
    }
}

#[test]
fn sum_beside_a_distinct_count_is_rounded_once() {
    let folder = Folder::new();
    folder.write("o.csv", "k,f\na,1e16\nb,1\nc,-1e16\n");
    let answer = folder.run_sql("SELECT count(DISTINCT k) AS n, sum(f) AS s FROM '$/o.csv'");
    assert_eq!(answer.rows(), [["3", "1.0"]]);
}

#[test]
fn join_with_an_empty_table_reads_and_validates_the_other_side() {
    let folder = Folder::new();
    let rows: String = (0..200_000).map(|row| format!("{row},{}\n", row % 7)).collect();
    folder.write("big.csv", format!("id,k\n{rows}"));
    folder.write("bad.csv", format!("id,k\n{rows}1,2,3\n"));
    folder.write("empty.csv", "k,name\n");
    folder.write("small.csv", "k,name\n99,x\n");
    let aggregate = "SELECT count(*) AS n FROM '$/FILE' AS b JOIN '$/EMPTY' AS e ON b.k = e.k";
    let rows = "SELECT b.id FROM '$/FILE' AS b JOIN '$/EMPTY' AS e ON b.k = e.k";
    let engine = "SELECT b.id, row_number() OVER () AS r FROM '$/FILE' AS b JOIN '$/EMPTY' AS e ON b.k = e.k";
    for sql in [aggregate, rows, engine] {
        for empty in ["empty.csv", "small.csv"] {
            let sql = |file: &str| {
                let sql = sql.replace("FILE", file).replace("EMPTY", empty);
                Query {
                    file_defaults: SourceSpec::default(),
                    ..query(folder.substitute_path(&sql))
                }
            };
            let few = RunSettings { max_bad: BadRecordLimit::default(), ..settings() };
            let answer = crate::common::run_query(&sql("big.csv"), &few).unwrap();
            let coverage = &answer.coverage;
            assert_eq!(coverage.stopped, None, "{:?}", sql("big.csv").sql);
            assert_eq!(coverage.splits.done, coverage.splits.total);
            let read = if empty == "empty.csv" { 200_000 } else { 200_001 };
            assert_eq!(coverage.rows.done, read);
            let error = crate::common::run_query(&sql("bad.csv"), &few).err().expect("bad records");
            assert!(error.to_string().contains("bad.csv"), "{error}");
        }
    }
}

#[test]
fn mergeable_plan_writes_a_partial_table() {
    let folder = Folder::new();
    write_events(&folder, "a.csv", 1, 50);
    folder.write("names.csv", "k,name\nkey 1,one\n");
    for (sql, expected) in [
        ("SELECT k, count(*) FROM '$/a.csv' GROUP BY k", true),
        (
            "SELECT k, count(DISTINCT x), approx_percentile_cont_with_weight(1, 1, 0.5) FROM '$/a.csv' GROUP BY k",
            false,
        ),
        // A query of another source finishes the table.
        (
            "SELECT k, count(*) AS n FROM '$/a.csv' GROUP BY k HAVING count(*) > (SELECT count(*) FROM '$/names.csv')",
            false,
        ),
    ] {
        let plan = || QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
        assert_eq!(plan().explain().unwrap().mergeable, expected, "{sql}");
        assert_eq!(
            collect_answer(plan().run().unwrap()).unwrap().coverage.mergeable,
            expected,
            "{sql}"
        );
        let kept = plan().write_partial_table(&folder.path().join("a.part"), true, &RunId::new());
        assert_eq!(kept.is_ok(), expected, "{sql}");
    }
}

#[test]
fn distinct_count_of_tuples_skips_nulls() {
    let folder = Folder::new();
    folder.write("p.csv", "a,b\n1,x\n1,x\n1,y\n2,\n,x\n2,x\n");
    assert_eq!(folder.run_sql("SELECT count(DISTINCT a, b) FROM '$/p.csv'").single_value(), "3");
    let sql = "SELECT a, count(DISTINCT a, b) FROM '$/p.csv' GROUP BY a ORDER BY a";
    assert_eq!(folder.run_sql(sql).rows(), string_rows(&[&["1", "2"], &["2", "1"], &["∅", "0"]]));
}
