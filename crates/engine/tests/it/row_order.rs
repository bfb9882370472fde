//! Tests of the row path: order, limits, memory bounds and cancellation.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use tidemill_engine::source::{MemoryRows, SourceSpec};
use tidemill_engine::{CancelFlag, Error, NamedSource, Query, QueryPlan, RunProgress, RunSettings};

use crate::common::{Folder, collect_answer, query, settings, string_rows};

/// Writes `files` files of about `kilobytes` each, with consecutive numbers.
fn write_numbered_files(files: usize, kilobytes: usize) -> (Folder, u64) {
    let folder = Folder::new();
    let mut n = 0u64;
    for file in 0..files {
        let mut out = String::from("n,pad\n");
        while out.len() < kilobytes << 10 {
            writeln!(out, "{n},{:0>90}", n).unwrap();
            n += 1;
        }
        folder.write(&format!("{file:03}.csv"), out);
    }
    (folder, n)
}

fn first_column_numbers(rows: &[Vec<String>]) -> Vec<u64> {
    rows.iter().map(|row| row[0].parse().unwrap()).collect()
}

#[test]
fn rows_keep_the_order_of_the_input_across_files_and_splits() {
    for (files, kilobytes) in [(40, 100), (2, 4000), (1, 8000)] {
        let (folder, count) = write_numbered_files(files, kilobytes);
        for (threads, memory) in [(1, 256 << 20), (7, 256 << 20), (7, 1 << 10)] {
            let settings = RunSettings { threads, memory_bytes: memory, ..settings() };
            let answer = folder.run_sql_with("SELECT n FROM '$/*.csv' WHERE n % 2 = 0", &settings);
            let expected: Vec<u64> = (0..count).filter(|n| n % 2 == 0).collect();
            assert!(
                first_column_numbers(&answer.rows()) == expected,
                "{files} files, {threads} threads"
            );
            assert_eq!(answer.coverage.rows.done, count);
            assert_eq!(answer.coverage.splits.done, answer.coverage.splits.total);
            assert!(answer.coverage.stopped.is_none());
        }
    }
}

#[test]
fn limit_stops_reading_and_reports_coverage() {
    let (folder, count) = write_numbered_files(30, 1000);
    let plan = QueryPlan::new(
        &query(folder.substitute_path("SELECT n FROM '$/*.csv' LIMIT 5 OFFSET 20000")),
        &settings(),
    );
    let answer = collect_answer(plan.unwrap().run().unwrap()).unwrap();
    assert_eq!(first_column_numbers(&answer.rows()), [20000, 20001, 20002, 20003, 20004]);
    let coverage = answer.coverage;
    assert!(coverage.complete);
    assert_eq!(coverage.stopped.as_deref(), Some("stopped once the limit was reached"));
    assert!(coverage.rows.done >= 20005 && coverage.rows.done < count, "{:?}", coverage.rows);
    assert!(coverage.splits.done < coverage.splits.total);
    let again = folder.run_sql("SELECT n FROM '$/*.csv' LIMIT 5 OFFSET 20000");
    assert_eq!(again.coverage, coverage);
    for (sql, expected) in [
        ("SELECT n FROM '$/*.csv' LIMIT 0", &[][..]),
        ("SELECT n FROM '$/*.csv' LIMIT 1", &[&["0"][..]]),
        ("SELECT n FROM '$/*.csv' WHERE n < 3 LIMIT 10", &[&["0"], &["1"], &["2"]]),
        ("SELECT n FROM '$/*.csv' OFFSET 99999999", &[]),
    ] {
        assert_eq!(folder.run_sql(sql).rows(), string_rows(expected), "{sql}");
    }
}

#[test]
fn slow_consumer_pauses_the_readers() {
    let (folder, count) = write_numbered_files(1, 40_000);
    let progress = RunProgress::new();
    let settings =
        RunSettings { threads: 3, memory_bytes: 2 << 20, progress: progress.clone(), ..settings() };
    let plan = QueryPlan::new(&query(folder.substitute_path("SELECT n FROM '$/*.csv'")), &settings)
        .unwrap();
    let mut results = plan.run().unwrap();
    let mut seen = 0;
    for _ in 0..3 {
        seen += results.next().unwrap().unwrap().num_rows() as u64;
    }
    // As long as the consumer takes no rows, no more is read than may wait.
    let settled = wait_until_stable(|| progress.rows_done());
    assert!(settled < count / 2, "{settled} of {count} rows were read for {seen}");
    for batch in results {
        seen += batch.unwrap().num_rows() as u64;
    }
    assert_eq!(seen, count);
}

/// Returns the value once it no longer changes.
fn wait_until_stable(value: impl Fn() -> u64) -> u64 {
    let mut last = value();
    let mut same = 0;
    while same < 20 {
        std::thread::sleep(Duration::from_millis(10));
        let now = value();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Returns an endless source called `s`: a run over it ends when it is cancelled, at any speed.
fn endless_source() -> NamedSource {
    let batch = |first: i64| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 1000));
        let pads: ArrayRef = Arc::new(StringArray::from_iter_values(
            (first..first + 1000).map(|n| format!("{:0>90}", n % 50)),
        ));
        RecordBatch::try_from_iter([("n", numbers), ("pad", pads)]).unwrap()
    };
    let batches = (0_i64..).step_by(1000).map(move |first| Ok(batch(first)));
    let given =
        MemoryRows::from_stream(Box::new(RecordBatchIterator::new(batches, batch(0).schema())));
    let spec =
        SourceSpec { url: "s".into(), memory_rows: Some(Arc::new(given)), ..Default::default() };
    NamedSource { name: "s".into(), spec }
}

#[test]
fn a_cancelled_run_is_interrupted_on_every_path() {
    let (folder, _) = write_numbered_files(1, 30);
    for sql in [
        "SELECT n, pad FROM s",
        "SELECT pad, count(*) FROM s GROUP BY pad",
        "SELECT a.n FROM s a JOIN '$/*.csv' b ON a.pad = b.pad ORDER BY a.n",
    ] {
        let cancel = CancelFlag::new();
        let progress = RunProgress::new();
        let settings =
            RunSettings { cancel: cancel.clone(), progress: progress.clone(), ..settings() };
        let query = Query { sources: vec![endless_source()], ..query(folder.substitute_path(sql)) };
        let ended = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let results = QueryPlan::new(&query, &settings)?.run()?;
                let mut last = Ok(());
                for batch in results {
                    last = batch.map(|_| ());
                    // A consumer that would take for ever.
                    while !cancel.is_cancelled() {
                        std::thread::yield_now();
                    }
                }
                last
            });
            while progress.rows_done() == 0 && !run.is_finished() {
                std::thread::yield_now();
            }
            cancel.cancel();
            run.join().unwrap()
        });
        assert!(matches!(ended, Err(Error::Interrupted)), "{sql}: {ended:?}");
    }
    let cancel = CancelFlag::new();
    cancel.cancel();
    let settings = RunSettings { cancel, ..settings() };
    let ended = folder.try_run_sql("SELECT count(*) FROM '$/*.csv'", &settings);
    assert!(matches!(ended, Err(Error::Interrupted)));
}

/// Counts the threads of this process whose names start with one of the engine's prefixes. Other tests of
/// this process have such threads too, so a test that counts them runs in a process of its own.
#[cfg(target_os = "linux")]
fn count_engine_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("split-") || name.starts_with("engine"))
        .count()
}

#[cfg(target_os = "linux")]
#[test]
fn results_dropped_early_leave_no_thread_behind() {
    const CHILD: &str = "TIDEMILL_TEST_THREADS";
    if std::env::var_os(CHILD).is_none() {
        let name = "row_order::results_dropped_early_leave_no_thread_behind";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(CHILD, "1")
            // The test summary of the child's harness is not to be counted with the parent's.
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let (folder, _) = write_numbered_files(1, 20_000);
    for sql in [
        "SELECT n, pad FROM '$/*.csv'",
        "SELECT n, count(*) FROM '$/*.csv' GROUP BY n",
        "SELECT a.n FROM '$/*.csv' a JOIN '$/*.csv' b ON a.n = b.n",
        "SELECT * FROM '$/*.csv' UNION ALL SELECT * FROM '$/*.csv'",
    ] {
        for batches in 0..2 {
            let plan = QueryPlan::new(&query(folder.substitute_path(sql)), &settings()).unwrap();
            let mut results = plan.run().unwrap();
            for _ in 0..batches {
                results.next().unwrap().unwrap();
            }
            drop(results);
            let since = Instant::now();
            while count_engine_threads() > 0 {
                assert!(
                    since.elapsed() < Duration::from_secs(600),
                    "{sql}: {}",
                    count_engine_threads()
                );
                std::thread::yield_now();
            }
        }
    }
}

/// Standard input belongs to the process, so its reader runs in a process of its own. The parent writes some
/// megabytes and then keeps the pipe open: the child must not wait for its end.
#[test]
fn a_reader_that_waits_for_standard_input_can_be_stopped() {
    const CHILD: &str = "TIDEMILL_TEST_STDIN";
    let name = "row_order::a_reader_that_waits_for_standard_input_can_be_stopped";
    let Some(mode) = std::env::var_os(CHILD) else {
        for mode in ["limit", "rows", "tables", "schema"] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--test-threads=1"])
                .env(CHILD, mode)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let mut pipe = child.stdin.take().unwrap();
            let mut out = String::from("n,pad\n");
            if mode != "schema" {
                (0..40_000).for_each(|n| writeln!(out, "{n},{n:0>90}").unwrap());
            }
            // A child that has read enough closes its end.
            let _ = std::io::Write::write_all(&mut pipe, out.as_bytes());
            assert!(child.wait().unwrap().success(), "{mode}");
            drop(pipe);
        }
        return;
    };
    let cancel = CancelFlag::new();
    let progress = RunProgress::new();
    let settings = RunSettings { cancel: cancel.clone(), progress: progress.clone(), ..settings() };
    let defaults = tidemill_engine::source::SourceSpec {
        format: Some(tidemill_engine::source::Format::Csv),
        ..Default::default()
    };
    let asked = |sql: &str| {
        let query = tidemill_engine::Query { file_defaults: defaults.clone(), ..query(sql) };
        crate::common::run_query(&query, &settings)
    };
    if mode == "limit" {
        let answer = asked("SELECT n FROM '-' LIMIT 5").unwrap();
        assert_eq!(first_column_numbers(&answer.rows()), [0, 1, 2, 3, 4]);
        return;
    }
    let ended = std::thread::scope(|scope| {
        let run = scope.spawn(|| match mode.to_str() {
            Some("tables") => asked("SELECT count(*) FROM '-'"),
            _ => asked("SELECT n FROM '-'"),
        });
        while progress.rows_done() == 0 && mode != "schema" {
            std::thread::yield_now();
        }
        cancel.cancel();
        run.join().unwrap()
    });
    assert!(matches!(ended, Err(Error::Interrupted)), "{:?}", ended.err());
}

#[test]
fn collect_keeps_input_order_beside_unmergeable_aggregates() {
    let folder = Folder::new();
    let rows: String = (0..60_000).map(|i| format!("{i},{}\n", i % 7)).collect();
    folder.write("c.csv", format!("i,x\n{rows}"));
    for threads in [1, 2, 4] {
        let settings = RunSettings { threads, ..settings() };
        let sql = "SELECT collect(i, 3), approx_percentile_cont_with_weight(1, 1, 0.5) \
                   FROM '$/c.csv'";
        assert_eq!(folder.run_sql_with(sql, &settings).rows(), [["[0, 1, 2]", "1.0"]], "{threads}");
    }
}

#[test]
fn column_is_sorted_although_a_filter_fixes_its_cast() {
    let folder = Folder::new();
    let hours = [9, 3, 9, 1, 3, 1, 9].map(|hour| format!("2024-02-29T0{hour}:00:00,{hour}\n"));
    folder.write("o.csv", format!("ts,v\n{}", hours.concat()));
    let filter = "WHERE ts::DATE = DATE '2024-02-29'";
    for (sql, expected) in [
        (format!("SELECT v FROM '$/o.csv' {filter} ORDER BY ts"), "1 1 3 3 9 9 9"),
        (format!("SELECT v FROM '$/o.csv' {filter} ORDER BY ts DESC LIMIT 4"), "9 9 9 3"),
        (
            format!("SELECT sum(v) OVER (ORDER BY ts) AS s FROM '$/o.csv' {filter} ORDER BY s"),
            "2 2 8 8 35 35 35",
        ),
        (
            format!(
                "SELECT count(*) OVER (PARTITION BY ts) AS n FROM '$/o.csv' {filter} ORDER BY n"
            ),
            "2 2 2 2 3 3 3",
        ),
        (
            "SELECT v FROM '$/o.csv' WHERE ts::DATE IN (DATE '2024-02-29') ORDER BY ts".into(),
            "1 1 3 3 9 9 9",
        ),
        ("SELECT v FROM '$/o.csv' WHERE v::BOOLEAN ORDER BY v".into(), "1 1 3 3 9 9 9"),
        (
            format!(
                "SELECT b.v FROM (SELECT * FROM '$/o.csv' {filter}) a ASOF JOIN (SELECT * FROM '$/o.csv' {filter}) b \
                 ON a.ts > b.ts ORDER BY b.v"
            ),
            "1 1 3 3 3",
        ),
    ] {
        for threads in [1, 2] {
            let settings = RunSettings { threads, ..settings() };
            let answer = folder.run_sql_with(&sql, &settings).rows().concat().join(" ");
            assert_eq!(answer, expected, "{sql}, {threads} threads");
        }
    }
    folder.write("f.csv", "id,f,n,b\n1,1.5,1,true\n2,0.5,1,false\n3,2.5,9,true\n");
    // The key has function calls within an operator.
    for threads in [1, 2] {
        let settings = RunSettings { threads, ..settings() };
        let sql = "SELECT id, CASE WHEN b THEN 1 END c FROM '$/f.csv' ORDER BY f > n, id";
        assert_eq!(folder.run_sql_with(sql, &settings).rows().concat().join(" "), "2 ∅ 3 1 1 1");
    }
}
