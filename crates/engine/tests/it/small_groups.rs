//! Tests of many groups of a few rows each, whose states are queued, transferred and merged in ways of their
//! own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tidemill_engine::source::SourceSpec;
use tidemill_engine::{NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunSettings};

use crate::common::{Folder, Random, collect_answer, query, settings};

const ROW_COUNT: u64 = 300_000;
const SCHEMA: &str = "k TEXT, n BIGINT, f DOUBLE, s TEXT";
const AGGREGATE_CALLS: &str = "unique(n) AS u, unique(n) FILTER (WHERE n > 5) AS v, quantile(f, 0.5) AS q, \
    top_k(n, 2) AS t, top_k(s, 1) AS w, collect(n, 5) AS c";

struct Row {
    key: String,
    number: Option<u64>,
    quarters: Option<u64>,
    text: String,
}

/// Returns rows of `groups` groups, in no order.
fn random_rows(groups: u64) -> Vec<Row> {
    let mut random = Random(groups);
    let mut row = || {
        let group = random.next_below(groups);
        let number = random.next_below(15);
        Row {
            key: format!("key {group}"),
            number: (number > 0).then_some(number),
            quarters: Some(random.next_below(1000)).filter(|quarters| quarters % 10 > 0),
            text: format!("{:>1$}", random.next_below(3), 1 + 30 * (group % 2) as usize),
        }
    };
    (0..ROW_COUNT).map(|_| row()).collect()
}

fn to_csv(rows: &[Row]) -> String {
    let mut lines = String::from("k,n,f,s\n");
    for Row { key, number, quarters, text } in rows {
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        let float = quarters.map(|quarters| format!("{}", quarters as f64 / 4.0));
        writeln!(lines, "{key},{number},{},{text}", float.unwrap_or_default()).unwrap();
    }
    lines
}

fn most_frequent<T: Ord + Clone>(values: &[T], count: usize) -> Vec<(T, usize)> {
    let mut counts: BTreeMap<&T, usize> = BTreeMap::new();
    values.iter().for_each(|value| *counts.entry(value).or_default() += 1);
    let mut counts: Vec<(T, usize)> =
        counts.into_iter().map(|(value, count)| (value.clone(), count)).collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.truncate(count);
    counts
}

fn format_list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Returns the expected values of [`AGGREGATE_CALLS`], by key.
fn expected_rows(rows: &[Row]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(&row.key).or_default().push(row));
    let answer = |(key, rows): (&str, Vec<&Row>)| {
        let numbers: Vec<u64> = rows.iter().filter_map(|row| row.number).collect();
        let texts: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
        let mut quarters: Vec<u64> = rows.iter().filter_map(|row| row.quarters).collect();
        quarters.sort_unstable();
        let middle = |last: usize| (quarters[last / 2] + quarters[last.div_ceil(2)]) as f64 / 8.0;
        let median = quarters.len().checked_sub(1).map(middle);
        let entry = |value: &dyn std::fmt::Display, count| {
            format!("{{value: {value}, count: {count}, error: 0}}")
        };
        let different = |least: u64| {
            let numbers: BTreeSet<&u64> =
                numbers.iter().filter(|number| **number > least).collect();
            numbers.len().to_string()
        };
        vec![
            key.to_owned(),
            different(0),
            different(5),
            median.map_or("∅".to_owned(), |median| format!("{median:?}")),
            format_list(
                most_frequent(&numbers, 2).iter().map(|(number, count)| entry(number, *count)),
            ),
            format_list(most_frequent(&texts, 1).iter().map(|(text, count)| entry(text, *count))),
            format_list(numbers.iter().take(5).map(u64::to_string)),
        ]
    };
    groups.into_iter().map(answer).collect()
}

#[test]
fn small_groups_match_the_model() {
    // A table of the fewest groups receives rows several times; one of the most is transferred as its rows.
    for groups in [3_000, 30_000, 90_000] {
        let folder = Folder::new();
        let rows = random_rows(groups);
        folder.write("rows.csv", to_csv(&rows));
        let expected = expected_rows(&rows);
        let order_free = AGGREGATE_CALLS.split(", top_k").next().unwrap();
        for (threads, memory_mib) in [(1, 1024), (3, 1024), (2, 64)] {
            let settings = RunSettings { threads, memory_bytes: memory_mib << 20, ..settings() };
            for (states, columns) in [(AGGREGATE_CALLS, 7), (order_free, 4)] {
                let sql = format!("SELECT k, {states} FROM '$/rows.csv' GROUP BY k");
                let query =
                    Query { schema: Some(SCHEMA.into()), ..query(folder.substitute_path(&sql)) };
                let answer =
                    collect_answer(QueryPlan::new(&query, &settings).unwrap().run().unwrap());
                let mut found = answer.unwrap().rows();
                found.sort();
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found, &expected[..columns], "{threads} threads, {memory_mib} MiB");
                }
            }
        }
    }
}

#[test]
fn partial_tables_of_small_groups_do_not_depend_on_settings() {
    let folder = Folder::new();
    let rows = random_rows(20_000);
    let (first, second) = rows.split_at(rows.len() / 3);
    for (name, rows) in [("all", &rows[..]), ("first", first), ("second", second)] {
        folder.write(&format!("{name}.csv"), to_csv(rows));
    }
    let table = |name: &str, settings: &RunSettings| {
        let spec = SourceSpec {
            url: folder.substitute_path(&format!("$/{name}.csv")),
            ..SourceSpec::default()
        };
        let query = Query {
            sources: vec![NamedSource { name: "source".into(), spec }],
            schema: Some(SCHEMA.into()),
            sql: format!("SELECT k, {AGGREGATE_CALLS} FROM source GROUP BY k"),
            ..Query::default()
        };
        let partial = folder.path().join(format!("{name}.partial"));
        let plan = QueryPlan::new(&query, settings).unwrap();
        plan.write_partial_table(&partial, true, &RunId::new()).unwrap();
        partial
    };
    let merged = |tables: &[std::path::PathBuf]| {
        let mut rows =
            collect_answer(PartialTableMerge::new(tables, &settings()).unwrap().run().unwrap());
        rows.as_mut().unwrap().rows()
    };
    let expected = expected_rows(&rows);
    let small = RunSettings { memory_bytes: 64 << 20, threads: 2, ..settings() };
    for settings in [settings(), small] {
        assert_eq!(merged(&[table("all", &settings)]), expected);
        let parts = [table("first", &settings), table("second", &settings)];
        assert_eq!(merged(&parts), expected);
    }
}
