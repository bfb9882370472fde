//! Joins of large sources: the inputs that are held in memory, and the run after a wrong estimate.

use std::fmt::Write as _;
use std::path::Path;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::displayable;
use tidemill_base::RunSettings;
use tidemill_sql::session;

use crate::{Query, QueryPlan};

fn planned(sql: &str, settings: &RunSettings) -> QueryPlan {
    QueryPlan::new(&Query { sql: sql.into(), ..Query::default() }, settings).unwrap()
}

/// Writes a CSV file of `rows` rows, each with a number and a text of `text_bytes` bytes.
fn write(path: &Path, rows: usize, text_bytes: usize) {
    let mut lines = String::from("k,s\n");
    for row in 0..rows {
        writeln!(lines, "{row},{}", "x".repeat(text_bytes)).unwrap();
    }
    std::fs::write(path, lines).unwrap();
}

fn steps(plan: &dyn ExecutionPlan) -> String {
    displayable(plan).indent(false).to_string()
}

#[test]
fn sides_that_fit_are_held_and_those_that_do_not_are_sorted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, rows) in [("a.csv", 400_000), ("b.csv", 400_000), ("c.csv", 10)] {
        write(&folder.path().join(name), rows, 20);
    }
    let sql = format!(
        "SELECT count(*) FROM '{}' AS a JOIN '{}' AS b ON a.k = b.k LEFT JOIN '{}' AS c ON c.k = a.k",
        path("a.csv"),
        path("b.csv"),
        path("c.csv"),
    );
    for (memory_bytes, held, sorted) in [(64 << 20, 1, 1), (256 << 20, 2, 0)] {
        let plan = planned(&sql, &RunSettings::new(memory_bytes));
        let state = session::large_join_state(&plan.context.state(), false);
        let shown =
            steps(session::create_physical_plan(&state, &plan.logical_plan).unwrap().as_ref());
        assert_eq!(shown.matches("HashJoinExec").count(), held, "{shown}");
        assert_eq!(shown.matches("SortMergeJoin").count(), sorted, "{shown}");
    }
}

#[test]
fn side_larger_than_estimated_is_sorted_in_a_second_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Rows so short that the file has many more than its size suggests.
    let letters = (0..900_000).map(|row| ["a\n", "b\n", "c\n"][row % 3]);
    std::fs::write(folder.path().join("a.csv"), format!("s\nx\n{}", letters.collect::<String>()))
        .unwrap();
    write(&folder.path().join("b.csv"), 400_000, 20);
    write(&folder.path().join("c.csv"), 10_000, 500);
    let sql = format!(
        "SELECT count(*) AS n FROM '{}' AS b JOIN '{}' AS a ON a.s = left(b.s, 1) \
         LEFT JOIN '{}' AS c ON c.k = b.k",
        path("b.csv"),
        path("a.csv"),
        path("c.csv"),
    );
    let settings = RunSettings::new(64 << 20);
    let first = planned(&sql, &settings).start_engine().unwrap();
    assert!(first.is_err_and(|why| why.contains("takes more memory than there is")));
    let batches: Result<Vec<_>, _> = planned(&sql, &settings).run().unwrap().collect();
    let count = format!("{:?}", batches.unwrap()[0].column(0));
    assert!(count.contains("400000"), "{count}");
}
