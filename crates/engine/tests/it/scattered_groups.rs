//! Tests of groups that are almost as many as rows: such rows are scattered, and grouped once all rows of
//! their partition are there.

use std::fmt::Write as _;

use tidemill_engine::source::SourceSpec;
use tidemill_engine::{
    NamedSource, PartialTableMerge, Query, QueryPlan, RunId, RunProgress, RunSettings,
};

use crate::common::{Folder, Random, collect_answer, query, settings};

const KEY_COUNT: u64 = 200_000;

const AGGREGATE_CALLS: &str = "count(*), count(f), sum(n), sum(f), min(f), max(s), avg(n), avg(f), \
    stddev(f), median(n), unique(s), quantile(f, 0.5), sum(d), min(d), count(*) FILTER (WHERE n > 3), \
    corr(n, f)";

/// Writes keys that are all different for long enough to be scattered, then the same keys once more in
/// another order: numbers, texts of all lengths, floats with equal values of different bits, and nulls.
fn write_rows(folder: &Folder) {
    let mut random = Random(5);
    let mut lines = String::from("k,j,g,n,f,d,s\n");
    for row in 0..2 * KEY_COUNT {
        let key = if row < KEY_COUNT { row } else { row * 7919 % KEY_COUNT };
        let j = match key % 7 {
            0 => String::new(),
            1 => format!("\"a text that is longer than a view {key}\""),
            2 => "\"\"".to_owned(),
            _ => format!("{}", key / 3),
        };
        let g = ["0.0", "-0.0", "NaN", "", "1.5"]
            [if key % 5 < 2 { row as usize % 2 } else { key as usize % 5 }];
        let n = random.next_below(10);
        let f = ["NaN", "-0.0", "1e100", "", "0.1", "2.5"][random.next_below(6) as usize];
        writeln!(lines, "{key},{j},{g},{n},{f},{n}.25,text {}", random.next_below(4)).unwrap();
    }
    folder.write("rows.csv", lines);
}

const SCHEMA: &str = "k BIGINT, j TEXT, g DOUBLE, n BIGINT, f DOUBLE, d DECIMAL(9,2), s TEXT";

fn group_rows(folder: &Folder, states: &str, settings: &RunSettings) -> Vec<Vec<String>> {
    let sql = format!("SELECT k, j, g, {states} FROM '$/rows.csv' GROUP BY k, j, g");
    let query = Query { schema: Some(SCHEMA.into()), ..query(folder.substitute_path(&sql)) };
    collect_answer(QueryPlan::new(&query, settings).unwrap().run().unwrap()).unwrap().rows()
}

#[test]
fn scattered_rows_give_the_same_groups_in_the_same_order() {
    let folder = Folder::new();
    write_rows(&folder);
    // An order-sensitive state: its rows are collected split by split.
    let large = RunSettings { memory_bytes: 1 << 30, ..settings() };
    let mut expected = group_rows(&folder, &format!("{AGGREGATE_CALLS}, collect(n, 1)"), &large);
    expected.iter_mut().for_each(|row| {
        row.pop();
    });
    assert_eq!(expected.len() as u64, KEY_COUNT);
    for (threads, memory_mib) in [(1, 1024), (3, 1024), (2, 64)] {
        let progress = RunProgress::new();
        let settings = RunSettings {
            threads,
            memory_bytes: memory_mib << 20,
            progress: progress.clone(),
            ..settings()
        };
        let mut found = group_rows(&folder, AGGREGATE_CALLS, &settings);
        if memory_mib < 1024 {
            // Answers that are large beside the budget are in the order of hashes.
            found.sort();
            expected.sort();
        }
        let unlike = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(unlike, None, "{threads} threads, {memory_mib} MiB");
        assert_eq!(found.len(), expected.len());
        assert_eq!(progress.spilled_bytes() > 0, memory_mib < 1024, "{memory_mib} MiB");
    }
}

#[test]
fn partial_tables_of_scattered_rows_are_complete() {
    let folder = Folder::new();
    write_rows(&folder);
    let states = "count(*) AS c, sum(n) AS n, sum(f) AS f, unique(s) AS u";
    let expected = group_rows(&folder, states, &settings());
    let spec = SourceSpec { url: folder.substitute_path("$/rows.csv"), ..SourceSpec::default() };
    let query = Query {
        sources: vec![NamedSource { name: "source".into(), spec }],
        schema: Some(SCHEMA.into()),
        sql: format!("SELECT k, j, g, {states} FROM source GROUP BY k, j, g"),
        ..Query::default()
    };
    let partial = folder.path().join("rows.partial");
    let plan = QueryPlan::new(&query, &settings()).unwrap();
    plan.write_partial_table(&partial, false, &RunId::new()).unwrap();
    let merged = PartialTableMerge::new(&[partial], &settings()).unwrap().run().unwrap();
    assert!(collect_answer(merged).unwrap().rows() == expected);
}

#[test]
fn scattered_rows_of_few_groups_are_grouped_before_spilling() {
    const KEY_COUNT: u64 = 100_000;
    const ROWS_PER_KEY: u64 = 10;
    let folder = Folder::new();
    let mut lines = String::from("k,n,s\n");
    let mut expected: Vec<(u64, u64, String)> = vec![(0, 0, String::new()); KEY_COUNT as usize];
    for row in 0..ROWS_PER_KEY * KEY_COUNT {
        // Each round has all keys, in another order.
        let key = (row % KEY_COUNT) * (10 * (row / KEY_COUNT) + 7923) % KEY_COUNT;
        let text = format!("{:07}", row * 31 % 9_999_991);
        writeln!(lines, "{key},{row},{text}").unwrap();
        let group = &mut expected[key as usize];
        group.0 += 1;
        group.1 += row;
        group.2 = text.max(std::mem::take(&mut group.2));
    }
    folder.write("rows.csv", lines);
    let expected: Vec<Vec<String>> = (0_u64..)
        .zip(expected)
        .filter(|(_, (count, ..))| *count > 0)
        .map(|(key, (count, sum, text))| {
            vec![key.to_string(), count.to_string(), sum.to_string(), text]
        })
        .collect();
    for (threads, memory_mib) in [(1, 64), (2, 64), (2, 1024)] {
        let progress = RunProgress::new();
        let settings = RunSettings {
            threads,
            memory_bytes: memory_mib << 20,
            progress: progress.clone(),
            ..settings()
        };
        let sql = "SELECT k, count(*), sum(n), max(s) FROM '$/rows.csv' GROUP BY k";
        let schema = Some("k BIGINT, n BIGINT, s TEXT".into());
        let query = Query { schema, ..query(folder.substitute_path(sql)) };
        let mut found = collect_answer(QueryPlan::new(&query, &settings).unwrap().run().unwrap())
            .unwrap()
            .rows();
        found.sort_by_key(|row| row[0].parse::<u64>().unwrap());
        assert!(found == expected, "{threads} threads, {memory_mib} MiB");
        assert_eq!(progress.spilled_bytes(), 0, "{threads} threads, {memory_mib} MiB");
    }
}
