//! Compares the steps of a map with the execution of its plan: both return the same rows.

use std::fmt::Write as _;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use proptest::prelude::*;
use tidemill_base::RunSettings;

use crate::execution::map::SplitMap;
use crate::planning::execution_path::ExecutionPath;
use crate::{Query, QueryPlan};

fn rows(map: &SplitMap, splits: usize) -> Vec<Option<RecordBatch>> {
    let of_split = |index| {
        let batches: Vec<RecordBatch> =
            map.split_rows(index).unwrap().map(Result::unwrap).collect();
        let first = batches.first()?;
        Some(concat_batches(&first.schema(), &batches).unwrap()).filter(|all| all.num_rows() > 0)
    };
    (0..splits).map(of_split).collect()
}

const COLUMNS: [&str; 6] =
    ["a", "upper(c)", "a + b", "CASE WHEN b > 50 THEN c END", "1", "coalesce(b, a) / 2.0"];
const CONDITIONS: [&str; 6] =
    ["a > 500", "c LIKE '%7%'", "b IS NULL", "a % 97 = 0 AND b < 40", "a < -1", "length(c) > 0"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn map_steps_return_the_rows_of_the_plan(
        columns in prop::sample::subsequence(COLUMNS.to_vec(), 0..4),
        conditions in prop::sample::subsequence(CONDITIONS.to_vec(), 0..3),
        files in prop::collection::vec(1..20_000_u32, 1..5),
        is_nested in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (number, rows) in files.iter().enumerate() {
            let mut text = "a,b,c\n".to_owned();
            for row in 0..*rows {
                let b = if row % 11 == 0 { String::new() } else { (row % 89).to_string() };
                writeln!(text, "{},{b},text {row}", row % 1009).unwrap();
            }
            std::fs::write(folder.path().join(format!("{number}.csv")), text).unwrap();
        }
        let table = format!("'{}/*.csv'", folder.path().display());
        let table = match is_nested {
            true => format!("(SELECT a, b, c || '!' AS c FROM {table} WHERE a <> 3) AS t"),
            false => table,
        };
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        let plain_columns = columns.clone();
        let columns: Vec<String> =
            columns.iter().enumerate().map(|(at, it)| format!("{it} AS x{at}")).collect();
        let sql = match columns.is_empty() {
            true => format!("SELECT count(*) FROM {table} {condition}"),
            false => format!("SELECT {} FROM {table} {condition}", columns.join(", ")),
        };
        let query = Query { sql: sql.clone(), ..Query::default() };
        let plan = QueryPlan::new(&query, &RunSettings { threads: 1, ..RunSettings::new(256 << 20) }).unwrap();
        let (stream, map) = match &plan.execution_path {
            ExecutionPath::Tables(parts) => (&parts.stream, &parts.map),
            ExecutionPath::Rows { stream, map, .. } => (stream, map),
            ExecutionPath::Engine { reason } => panic!("{sql}: {reason}"),
        };
        let (steps, scan) = plan.plan_map_per_split(stream, map).unwrap();
        // A step that may make large values of small ones is of another kind, and then the plan is executed.
        let is_plain = |text: &str| !text.contains(['(', 'C', 'c']);
        let are_plain = !is_nested && plain_columns.iter().chain(&conditions).all(|it| is_plain(it));
        prop_assert!(steps.applies_steps() || !are_plain, "{}", sql);
        let splits = scan.splits().len();
        let applied = rows(&steps, splits);
        prop_assert_eq!(applied, rows(&steps.with_plan_execution(), splits), "{}", sql);
    }
}
