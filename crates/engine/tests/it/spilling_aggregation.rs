//! Tests of aggregation over many splits, with many threads and with little memory: the answer stays the
//! same.

use std::fmt::Write as _;

use tidemill_engine::{RunProgress, RunSettings};

use crate::common::{Folder, QueryAnswer, Random, settings, string_rows};

/// Writes about `megabytes` of CSV with `keys` distinct keys, each in many splits if there is room.
fn write_events(folder: &Folder, name: &str, megabytes: usize, keys: u64) {
    let mut random = Random(keys);
    let mut out = String::from("k,name,x,f,s\n");
    for n in 0.. {
        if out.len() >= megabytes << 20 {
            break;
        }
        let k = if n < keys { n } else { random.next_below(keys) };
        let x = random.next_below(2000) as i64 - 1000;
        let f = (random.next_below(1 << 20) as f64) * 1e-3;
        let s = random.next_below(50);
        writeln!(out, "{k},a name of more than twelve bytes {},{x},{f},s{s}", k % 1000).unwrap();
    }
    folder.write(name, out);
}

fn run_with_limits(
    folder: &Folder,
    sql: &str,
    memory_bytes: u64,
    threads: usize,
) -> (QueryAnswer, u64) {
    let progress = RunProgress::new();
    let settings = RunSettings { memory_bytes, threads, progress: progress.clone(), ..settings() };
    (folder.run_sql_with(sql, &settings), progress.spilled_bytes())
}

const AGGREGATE_CALLS: &str = "count(*) AS n, count(x) FILTER (WHERE x > 0) AS p, sum(x) AS sx, \
    sum(f) AS sf, avg(f) AS mf, min(name) AS a, max(f) AS b, unique(x) AS u, \
    top_k(s, 3) AS t, quantile(f, 0.5, 0.9) AS q, median(f) AS m, corr(x, f) AS r, collect(x, 4) AS c";

#[test]
fn spilled_groups_equal_those_in_memory() {
    let folder = Folder::new();
    // With less memory a group is spilled and merged more often, so fewer groups take as long.
    for (megabytes, keys, budgets) in
        [(1, 1000, [(1 << 10, 1), (1 << 20, 2)]), (4, 20_000, [(4 << 20, 3), (16 << 20, 2)])]
    {
        let file = format!("{keys}.csv");
        write_events(&folder, &file, megabytes, keys);
        let sql = format!("SELECT k, name, {AGGREGATE_CALLS} FROM '$/{file}' GROUP BY k, name");
        let (expected, spilled) = run_with_limits(&folder, &sql, 1 << 30, 2);
        assert_eq!(spilled, 0);
        let expected = expected.sorted_rows();
        assert_eq!(expected.len() as u64, keys);
        for (memory, threads) in budgets {
            let (found, spilled) = run_with_limits(&folder, &sql, memory, threads);
            assert!(spilled > 0, "{memory} bytes were enough for {keys} groups");
            assert!(found.sorted_rows() == expected, "{memory} bytes, {threads} threads");
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_rows_in_the_same_order() {
    let folder = Folder::new();
    write_events(&folder, "few.csv", 5, 20_000);
    write_events(&folder, "many.csv", 16, 1_000_000);
    let small_states = "count(*) AS n, sum(f) AS sf, min(name) AS a, collect(x, 2) AS c";
    for (file, states, memory) in [
        ("few", AGGREGATE_CALLS, 1 << 30),
        ("few", AGGREGATE_CALLS, 4 << 20),
        ("many", small_states, 1 << 30),
        ("many", small_states, 16 << 20),
    ] {
        // Past its capacity `top_k` depends on the split boundaries; here it stays within.
        let sql = format!("SELECT k, {states} FROM '$/{file}.csv' GROUP BY k");
        let (expected, spilled) = run_with_limits(&folder, &sql, memory, 1);
        assert_eq!(spilled > 0, memory < 1 << 30);
        if file == "many" {
            let groups: usize = expected.batches.iter().map(|batch| batch.num_rows()).sum();
            assert!(groups > 1 << 18, "{groups} groups are sorted by key");
        }
        let expected = expected.rows();
        let numbers: &[usize] = if file == "many" { &[7] } else { &[2, 7] };
        for &threads in numbers {
            let (found, _) = run_with_limits(&folder, &sql, memory, threads);
            assert!(found.rows() == expected, "{file}, {memory} bytes, {threads} threads");
        }
    }
}

#[test]
fn top_k_past_capacity_does_not_depend_on_threads() {
    let folder = Folder::new();
    write_events(&folder, "e.csv", 5, 40_000);
    let sql = "SELECT top_k(k, 10), collect(k, 3000), sum(f) FROM '$/e.csv'";
    let expected = run_with_limits(&folder, sql, 1 << 30, 1).0.rows();
    for threads in [2, 7] {
        assert_eq!(run_with_limits(&folder, sql, 1 << 30, threads).0.rows(), expected);
    }
}

#[test]
fn having_on_many_groups_keeps_row_order() {
    let folder = Folder::new();
    write_events(&folder, "e.csv", 4, 60_000);
    let sql = "SELECT k, count(*) AS n FROM '$/e.csv' GROUP BY k HAVING count(*) > 1";
    let expected = run_with_limits(&folder, sql, 1 << 30, 1).0.rows();
    assert!(expected.len() > 8192);
    for _ in 0..3 {
        assert!(run_with_limits(&folder, sql, 1 << 30, 4).0.rows() == expected);
    }
    let keys: Vec<i64> = expected.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(keys.is_sorted());
}

#[test]
fn a_million_keys_fit_a_budget_of_64_mib() {
    let folder = Folder::new();
    let mut out = String::from("k,x\n");
    for k in 0..1_000_000u64 {
        writeln!(out, "user-{:016x},{}", k.wrapping_mul(0x9E37_79B9_7F4A_7C15), k % 7).unwrap();
    }
    folder.write("e.csv", out);
    let sql = "SELECT count(*), sum(n), sum(s), max(u) FROM \
        (SELECT k, count(*) AS n, sum(x) AS s, unique(x) AS u FROM '$/e.csv' GROUP BY k)";
    let (found, spilled) = run_with_limits(&folder, sql, 64 << 20, 2);
    assert!(spilled > 0);
    let sum: u64 = (0..1_000_000u64).map(|k| k % 7).sum();
    assert_eq!(found.rows(), string_rows(&[&["1000000", "1000000", &sum.to_string(), "1"]]));
}

#[test]
fn distinct_counts_are_exact_and_distinct_rows_are_kept_once() {
    let folder = Folder::new();
    write_events(&folder, "e.csv", 4, 5_000);
    for memory in [1 << 30, 1 << 20] {
        let one = run_with_limits(&folder, "SELECT count(DISTINCT k) FROM '$/e.csv'", memory, 2).0;
        assert_eq!(one.single_value(), "5000");
        let by = "SELECT s, count(DISTINCT k) AS n FROM '$/e.csv' GROUP BY s ORDER BY s";
        let by = run_with_limits(&folder, by, memory, 2).0.rows();
        assert_eq!(by.len(), 50);
        let rows =
            "SELECT s, count(*) FROM (SELECT DISTINCT s, k FROM '$/e.csv') GROUP BY s ORDER BY s";
        assert_eq!(run_with_limits(&folder, rows, memory, 2).0.rows(), by);
        let distinct = run_with_limits(&folder, "SELECT DISTINCT k FROM '$/e.csv'", memory, 2).0;
        assert_eq!(distinct.rows().len(), 5000);
        let grouped = run_with_limits(&folder, "SELECT k FROM '$/e.csv' GROUP BY k", memory, 2).0;
        assert_eq!(grouped.rows(), distinct.rows());
    }
}

#[test]
fn ungrouped_aggregate_over_no_rows_returns_one_row() {
    let folder = Folder::new();
    folder.write("some.csv", "x,s\n1,a\n2,b\n");
    folder.write("header.csv", "x,s\n");
    folder.write("empty.jsonl", "");
    let answers = "count(*), count(x), sum(x), min(x), avg(x), unique(x), top_k(s, 2), \
        quantile(x, 0.5), quantile(x, 0.1, 0.2), collect(s, 2)";
    let expected = string_rows(&[&["0", "0", "∅", "∅", "∅", "0", "[]", "∅", "∅", "[]"]]);
    let sql = format!("SELECT {answers} FROM '$/some.csv' WHERE x > 5");
    assert_eq!(folder.run_sql(&sql).rows(), expected);
    let keyed = format!("SELECT s, {answers} FROM '$/some.csv' WHERE x > 5 GROUP BY s");
    assert!(folder.run_sql(&keyed).rows().is_empty());
    for file in ["header.csv", "empty.jsonl"] {
        let query = tidemill_engine::Query {
            schema: Some("x BIGINT, s VARCHAR".into()),
            ..crate::common::query(
                folder.substitute_path(&format!("SELECT {answers} FROM '$/{file}'")),
            )
        };
        match crate::common::run_query(&query, &settings()) {
            Ok(answer) => {
                assert_eq!(answer.rows(), expected, "{file}");
                assert!(answer.coverage.complete);
            }
            Err(error) => panic!("{file}: {error}"),
        }
    }
}

#[test]
fn spilled_strings_take_bounded_disk_space() {
    let folder = Folder::new();
    let mut out = String::from("k\n");
    for k in 0..20_000 {
        writeln!(out, "{k:0>200}").unwrap();
    }
    let size = out.len() as u64;
    folder.write("e.csv", out);
    let sql = "SELECT k, collect(k, 3) AS c FROM '$/e.csv' GROUP BY k";
    let (found, spilled) = run_with_limits(&folder, sql, 1 << 20, 2);
    assert_eq!(found.rows().len(), 20_000);
    // Strings are handed over, spilled by partition and repartitioned, each time as key and as value.
    assert!(spilled > size && spilled < 12 * size, "{spilled} of {size}");
}
