//! Tests of `EXPLAIN ANALYZE`: the plan with the measurements of its run.

use tidemill_engine::{Query, QueryPlan, RunId, RunSettings};

use crate::cluster_execution::RandomOrderWorkerPool;
use crate::common::{Folder, QueryAnswer, query, settings};

/// Returns the lines of the plan.
fn plan_lines(answer: &QueryAnswer) -> Vec<String> {
    assert_eq!(answer.column_names(), ["plan"]);
    answer.rows().concat()
}

/// Returns the rest of the measured line that starts with `start`.
fn measured_line<'a>(lines: &'a [String], start: &str) -> &'a str {
    let measured = lines.iter().position(|line| line == "measured:").unwrap();
    let found = lines[measured..].iter().find_map(|line| line.trim_start().strip_prefix(start));
    found.unwrap_or_else(|| panic!("no `{start}` in {lines:#?}"))
}

fn write_logs() -> Folder {
    let folder = Folder::new();
    for day in ["2026-11-01", "2026-11-02", "2026-11-03"] {
        let rows: String = (0..1_000).map(|n| format!("{n},{}\n", n % 7)).collect();
        folder.write(&format!("day={day}/a.csv"), format!("n,k\n{rows}"));
    }
    folder
}

#[test]
fn explain_analyze_shows_measurements_of_the_run() {
    let folder = write_logs();
    let sql = "SELECT k, count(*) FROM '$/*/a.csv' WHERE day > '2026-11-01' AND n < 500 GROUP BY k";
    let answer = folder.run_sql(&format!("EXPLAIN ANALYZE {sql}"));
    let found = plan_lines(&answer);
    let plan = folder.run_sql(&format!("EXPLAIN {sql}")).rows().concat();
    assert_eq!(found[..plan.len()], plan);
    let source = measured_line(&found, "source ");
    assert!(source.contains(": 2 of 3 files, "), "{source}");
    assert!(source.contains("2,000 rows decoded"), "{source}");
    assert_eq!(measured_line(&found, "map: "), "2,000 rows in, 1,000 rows out");
    assert_eq!(measured_line(&found, "tables: "), "7 groups");
    assert_eq!(measured_line(&found, "result: "), "7 rows");
    assert!(measured_line(&found, "memory: ").ends_with("; 0 B spilled"));
    let time = measured_line(&found, "time: planning ");
    assert!(time.contains("reading and grouping") && time.contains("(map "), "{time}");
    // The coverage is that of the plain query.
    let plain = folder.run_sql(sql).coverage;
    assert_eq!(answer.coverage, plain);
}

#[test]
fn explain_analyze_measures_every_execution_path() {
    let folder = write_logs();
    for (sql, path, rows) in [
        ("SELECT n FROM '$/*/a.csv' WHERE n < 10", "rows", "30 rows"),
        ("SELECT n FROM '$/*/a.csv' LIMIT 5", "rows", "5 rows"),
        ("SELECT n FROM '$/*/a.csv' ORDER BY n DESC, day LIMIT 4", "datafusion", "4 rows"),
        ("SELECT 1", "datafusion", "1 row"),
        ("SELECT count(*) FROM '$/*/a.csv'", "partial tables", "1 row"),
    ] {
        let found = plan_lines(&folder.run_sql(&format!("  explain analyze\n{sql}")));
        assert!(found[0].starts_with(&format!("path: {path} (")), "{sql}: {found:#?}");
        assert_eq!(measured_line(&found, "result: "), rows, "{sql}");
    }
    let small = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
    let sorted = "EXPLAIN ANALYZE SELECT a.n, b.n FROM '$/day=2026-11-01/a.csv' a \
                  CROSS JOIN '$/day=2026-11-02/a.csv' b ORDER BY a.n * b.n % 1009, a.n, b.n";
    let found = plan_lines(&folder.run_sql_with(sorted, &small));
    assert_eq!(measured_line(&found, "result: "), "1,000,000 rows");
    let memory = measured_line(&found, "memory: ");
    assert!(memory.contains(" of a budget of 67.1 MB; "), "{memory}");
}

#[test]
fn explain_analyze_lists_workers_and_their_tasks() {
    let folder = write_logs();
    let sql =
        folder.substitute_path("EXPLAIN ANALYZE SELECT k, sum(n) FROM '$/*/a.csv' GROUP BY k");
    let query = Query { workers: Some(RandomOrderWorkerPool::new(1, 2, 0)), ..query(sql) };
    let results = QueryPlan::new(&query, &settings()).and_then(QueryPlan::run).unwrap();
    let found = plan_lines(&crate::common::collect_answer(results).unwrap());
    assert!(measured_line(&found, "worker worker ").contains(" task"), "{found:#?}");
    assert_eq!(measured_line(&found, "map: "), "3,000 rows in, 3,000 rows out");
    assert_eq!(measured_line(&found, "result: "), "7 rows");
}

#[test]
fn explain_analyze_fails_like_its_query_and_writes_no_partial_table() {
    let folder = write_logs();
    let bad = folder.write("bad.csv", "n\n1\n2\nx\n");
    let sql = format!("SELECT sum(n) FROM '{}'", bad.display());
    let with_schema = |sql: String| Query { schema: Some("n BIGINT".into()), ..query(sql) };
    let fails = |sql: String| {
        let plan = QueryPlan::new(&with_schema(sql), &settings()).unwrap();
        plan.run().and_then(crate::common::collect_answer).err().unwrap().to_string()
    };
    assert_eq!(fails(format!("EXPLAIN ANALYZE {sql}")), fails(sql));
    let sql =
        folder.substitute_path("EXPLAIN ANALYZE SELECT k, sum(n) FROM '$/*/a.csv' GROUP BY k");
    let plan = QueryPlan::new(&query(sql), &settings()).unwrap();
    let error =
        plan.write_partial_table(&folder.path().join("p"), false, &RunId::new()).unwrap_err();
    assert!(error.to_string().starts_with("`EXPLAIN ANALYZE` has no tables"), "{error}");
}
