//! Answers by a part of the input that workers read: of the same splits the same as here, and whatever a worker holds
//! when it is over is left out.
//!
//! Each answer of the tests of turbo is asked for so a second time ([`crate::elsewhere::asked_again`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_engine::coverage::AbandonedFile;
use tidemill_engine::query::{SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::{
    CancelFlag, Error, InterimResult, InterimResultObserver, Query, QueryPlan, Result, RunSettings,
    TurboSettings, Worker,
};

use crate::common::{Answer, Folder, answered, query, settings};
use crate::elsewhere::Dealt;

/// Workers in threads of their own: one that waits holds nobody else up.
#[derive(Default)]
struct Threads {
    shared: Arc<Shared>,
    count: usize,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<(VecDeque<SubmittedTask>, bool)>,
    done: Mutex<VecDeque<TaskOutcome>>,
    changed: Condvar,
    cancel: Mutex<CancelFlag>,
    /// Whether a split that has stalled was handed in again, behind all others.
    is_again: AtomicBool,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threads")
    }
}

impl WorkerPool for Threads {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        Ok(WorkerCounts { machines: 1, workers: self.count, threads: self.count, is_here: true })
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let cancel = CancelFlag::new();
        *self.shared.cancel.lock() = cancel.clone();
        *self.shared.waiting.lock() = Default::default();
        self.shared.done.lock().clear();
        for number in 0..self.count {
            let settings =
                RunSettings { threads: 1, cancel: cancel.clone(), ..RunSettings::new(64 << 20) };
            let worker = Worker::new(&job.encoded_job, &settings, &StorageOptions::default(), &[])?;
            let shared = Arc::clone(&self.shared);
            std::thread::spawn(move || {
                loop {
                    let task = {
                        let mut waiting = shared.waiting.lock();
                        while waiting.0.is_empty() && !waiting.1 {
                            shared.changed.wait(&mut waiting);
                        }
                        match waiting.0.pop_front() {
                            Some(task) if !waiting.1 => task,
                            _ => return,
                        }
                    };
                    let outcome = Ok(worker.run(&task.encoded_task));
                    let (number, attempt, name) = (task.number, task.attempt, number.to_string());
                    shared.done.lock().push_back(TaskOutcome {
                        number,
                        attempt,
                        worker_name: Some(name),
                        result: outcome,
                    });
                }
            });
        }
        Ok(())
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        self.shared.is_again.fetch_or(task.cost_bytes == 0, Ordering::Relaxed);
        self.shared.waiting.lock().0.push_back(task);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        let done = self.shared.done.lock().pop_front();
        if done.is_none() {
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
        Ok(done)
    }

    fn end_job(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.0.clear();
        waiting.1 = true;
        self.shared.cancel.lock().cancel();
        self.shared.changed.notify_all();
    }
}

fn of(folder: &Folder, sql: &str, options: &[(&str, &str)]) -> Query {
    let mut turbo = TurboSettings::default();
    options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
    Query { turbo: turbo.validate().unwrap(), ..query(folder.sql(sql)) }
}

fn there(query: &Query, workers: Arc<dyn WorkerPool>) -> Result<Answer> {
    let query = Query { workers: Some(workers), ..query.clone() };
    QueryPlan::new(&query, &settings())?.run().and_then(answered)
}

/// Records in files, a few of which are over two lines.
fn records(files: usize) -> Folder {
    let folder = Folder::new();
    for file in 0..files {
        let mut text = "k,n,s\n".to_owned();
        for row in 0..4_000 {
            let n = (file * 4_000 + row * 7) % 1_009;
            let note = if row % 61 == 0 { "\"a,1,\nb,2,\"" } else { "x" };
            text.push_str(&format!("{},{n},{note}\n", n % 5));
        }
        folder.write(&format!("{file:02}.csv"), text);
    }
    folder
}

const SQL: &str = "SELECT k, count(*) AS n, sum(n) AS total, quantile(n, 0.5) AS half FROM '$/*.csv' GROUP BY k ORDER BY k";

#[test]
fn an_equal_sample_is_the_same_whoever_reads_it_and_whoever_is_gone() {
    let folder = records(12);
    let query = of(&folder, SQL, &[("sample", "20%"), ("seed", "3"), ("split_bytes", "2k")]);
    let here = answered(QueryPlan::new(&query, &settings()).unwrap().run().unwrap()).unwrap();
    assert!(!here.coverage.complete);
    let values = |answer: &Answer| {
        let own = |row: Vec<String>| [0, 1, 4, 7].map(|column| row[column].clone());
        answer.rows().into_iter().map(own).collect::<Vec<_>>()
    };
    for (threads, lost) in [(1, 0), (8, 0), (4, 3)] {
        let workers = Dealt::new(11, threads, lost);
        let answer = there(&query, workers.clone()).unwrap();
        assert!(workers.done() > 5, "{}", workers.done());
        assert_eq!(answer.columns(), here.columns());
        assert_eq!(values(&answer), values(&here));
        let (one, two) = (&answer.coverage, &here.coverage);
        assert_eq!((one.rows, one.bytes, one.splits), (two.rows, two.bytes, two.splits));
        assert_eq!(one.summary_line(), two.summary_line());
    }
    let answer = there(&query, Arc::new(Threads { count: 3, ..Threads::default() })).unwrap();
    assert_eq!(values(&answer), values(&here));
}

#[test]
fn a_precise_answer_ends_reading_and_holds() {
    let folder = records(24);
    let query = of(
        &folder,
        "SELECT count(*) AS n FROM '$/*.csv' WHERE s = 'x'",
        &[("error", "20%"), ("split_bytes", "1k")],
    );
    let workers = Dealt::new(5, 2, 0);
    let answer = there(&query, workers).unwrap();
    assert_eq!(answer.coverage.stopped.as_deref(), Some("stopped when it was precise enough"));
    assert!(answer.coverage.bytes.done < answer.coverage.bytes.total / 2);
}

/// What three workers give of files that go through a program, which waits for ever over the one that says so, once the
/// types are known. Where all others have been read, and that one was asked for again, it is enough.
fn stalling(folder: &Folder, sql: &str, options: &[(&str, &str)], others: u64) -> Answer {
    let mut of = of(folder, sql, options);
    let waits = folder.path().join("waits");
    let _ = std::fs::remove_file(&waits);
    let program = "read -r first; case \"$first\" in *stall*) \
        if [ -e \"$0\" ]; then exec sleep 600; fi;; esac; echo \"$first\"; exec cat";
    let words = ["sh", "-c", program, waits.to_str().unwrap()].map(str::to_owned).to_vec();
    of.file_defaults.filter_program =
        Some(tidemill_engine::filter_program::FilterProgram::new(words).unwrap());
    of.file_defaults.format = Some("jsonl".parse().unwrap());
    let threads = Threads { count: 3, ..Threads::default() };
    let shared = Arc::clone(&threads.shared);
    of.workers = Some(Arc::new(threads));
    let settings = settings();
    let plan = QueryPlan::new(&of, &settings).unwrap();
    std::fs::write(waits, "").unwrap();
    let (progress, enough) = (settings.progress.clone(), settings.stop_reading.clone());
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let tick = Duration::from_millis(5);
        while is_over.recv_timeout(tick) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            if progress.rows_done() >= others && shared.is_again.load(Ordering::Relaxed) {
                enough.cancel();
            }
        }
    });
    let answer = plan.run().and_then(answered).unwrap();
    drop(over);
    watch.join().unwrap();
    answer
}

#[test]
fn what_a_worker_waits_for_in_vain_is_left_out_and_the_rest_of_its_task_counts() {
    let folder = Folder::new();
    for file in 0..40 {
        let first = if file == 17 { "stall" } else { "go" };
        // Each is a split of its own.
        let rest: String = (0..2_000).map(|n| format!("{{\"s\": \"{n}\"}}\n")).collect();
        folder.write(&format!("{file:02}.jsonl"), format!("{{\"s\": \"{first}\"}}\n{rest}"));
    }
    let (sql, all) = ("SELECT count(*) AS n FROM '$/*.jsonl'", 39 * 2_001);
    let is_left_out = |answer: &Answer| {
        let sampled = answer.coverage.sampled.as_ref().unwrap();
        let count = sampled.given_up.splits + sampled.in_flight.splits;
        assert_eq!(count, 1, "{}", answer.coverage.summary_line());
        let is_it = |file: &AbandonedFile| file.path.ends_with("17.jsonl");
        assert!(sampled.given_up_files.iter().all(is_it), "{sampled:?}");
        assert_eq!(answer.coverage.rows.done, all);
        sampled.given_up.splits
    };
    let answer = stalling(&folder, sql, &[("deadline", "1h")], all);
    assert_eq!(is_left_out(&answer), 1, "{}", answer.coverage.summary_line());
    // With as much that may be dropped nobody has to say that it is enough.
    is_left_out(&stalling(&folder, sql, &[("drop", "4%")], u64::MAX));
    // Rows come all the same.
    let sql = "SELECT s FROM '$/*.jsonl' WHERE s = '7'";
    let answer = stalling(&folder, sql, &[("drop", "4%")], u64::MAX);
    is_left_out(&answer);
    assert_eq!(answer.rows().len(), 39);
    let answer = stalling(&folder, sql, &[("find", "5")], u64::MAX);
    assert_eq!(answer.rows().len(), 5);
}

#[test]
fn what_cannot_be_read_there_is_judged_as_it_is_here() {
    let folder = records(40);
    std::os::unix::fs::symlink("/nowhere", folder.path().join("link.csv")).unwrap();
    let sql = "SELECT count(*) AS n FROM '$/*.csv'";
    let error = there(&of(&folder, sql, &[("deadline", "1h")]), Dealt::new(1, 2, 0));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("link.csv") && error.contains("--drop"), "{error}");
    let answer = there(&of(&folder, sql, &[("drop", "10%")]), Dealt::new(1, 2, 0)).unwrap();
    let sampled = answer.coverage.sampled.as_ref().unwrap();
    assert!(sampled.given_up_files[0].path.ends_with("link.csv"), "{sampled:?}");
    std::fs::remove_file(folder.path().join("link.csv")).unwrap();
    // A file that is gone, or another one, by the time that a worker opens it.
    let query = of(&folder, sql, &[("drop", "10%")]);
    let gone = Query { workers: Some(Dealt::new(1, 2, 0)), ..query.clone() };
    let plan = QueryPlan::new(&gone, &settings()).unwrap();
    std::fs::remove_file(folder.path().join("07.csv")).unwrap();
    folder.write("11.csv", "k,n,s\n1,1,x\n");
    let answer = answered(plan.run().unwrap()).unwrap();
    assert!(!answer.coverage.complete, "{}", answer.coverage.summary_line());
    let exact = of(&folder, sql, &[("sample", "99.9%")]);
    let plan = QueryPlan::new(&Query { workers: Some(Dealt::new(1, 2, 0)), ..exact }, &settings());
    let plan = plan.unwrap();
    std::fs::remove_file(folder.path().join("09.csv")).unwrap();
    let error = plan.run().err().unwrap();
    assert!(matches!(error, Error::FileChanged { .. } | Error::NotFound { .. } | Error::Io { .. }));
    assert!(error.to_string().contains("09.csv"), "{error}");
}

#[test]
fn whoever_watches_sees_the_answer_become_sharper() {
    let folder = records(24);
    let options = [("deadline", "1h"), ("split_bytes", "1k")];
    let query = of(&folder, SQL, &options);
    let query = Query { workers: Some(Dealt::new(3, 2, 0)), ..query };
    let exact = folder.ask(SQL);
    let mut shares = Vec::new();
    let mut show = |glimpse: InterimResult| {
        let names: Vec<_> = glimpse.schema.fields().iter().map(|it| it.name().clone()).collect();
        assert_eq!(names[..4], ["k", "n", "n_low", "n_high"]);
        shares.push(glimpse.bytes_read_share);
    };
    let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
    let plan = QueryPlan::new(&query, &settings()).unwrap();
    let answer = answered(plan.run_watched(Some(watch)).unwrap()).unwrap();
    assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
    let number = |answer: &Answer, column: usize| {
        answer.rows().iter().map(|row| row[column].parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(number(&answer, 1), number(&exact, 1));
    assert!(shares.is_sorted() && shares.len() > 1, "{shares:?}");
}

#[test]
fn a_plan_says_how_drawn_splits_go_elsewhere() {
    let folder = records(24);
    for (sql, parts) in [
        (SQL, "a table each, of splits in a drawn"),
        ("SELECT k FROM '$/*.csv'", "rows, of splits"),
    ] {
        let query = of(&folder, sql, &[("sample", "10%"), ("split_bytes", "1k")]);
        let query = Query { workers: Some(Dealt::new(3, 2, 0)), ..query };
        let explained = QueryPlan::new(&query, &settings()).unwrap().explain().unwrap();
        let text = explained.to_string();
        let elsewhere = explained.elsewhere.unwrap();
        assert_eq!(elsewhere.tasks, None);
        assert!(elsewhere.splits > 500 && elsewhere.parts.starts_with(parts), "{text}");
    }
}

/// Workers that return an error if the driver waits although no task is left.
#[derive(Debug)]
struct Strict(Arc<Dealt>);

impl WorkerPool for Strict {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        self.0.worker_counts()
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        self.0.start_job(job)
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        self.0.submit_task(task)
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        let nothing = || Error::Internal("the driver waits, and nothing is left to do".into());
        self.0.next_outcome(wait)?.ok_or_else(nothing).map(Some)
    }

    fn end_job(&self) {
        self.0.end_job();
    }
}

/// A few splits are read in order, so the driver does not start over when two of them disagree about a start. The
/// worker that detects the disagreement still has to read the rest of its task.
#[test]
fn splits_that_disagree_about_a_start_are_all_read_where_nothing_is_drawn() {
    let folder = Folder::new();
    let mut text = "g,v,s\n".to_owned();
    for row in 0..300 {
        let inside = "\nb,777,x".repeat(row % 97);
        text.push_str(&format!("a,1,\"{inside}\"\n"));
    }
    folder.write("evil.csv", &text);
    let sql = "SELECT g, count(*) AS n FROM '$/evil.csv' GROUP BY g";
    let split_bytes = (text.len() / 12).to_string();
    let options = [("deadline", "1h"), ("split_bytes", &split_bytes), ("no_intervals", "true")];
    for threads in [1, 4, 12] {
        let workers = Arc::new(Strict(Dealt::new(7, threads, 0)));
        let answer = there(&of(&folder, sql, &options), workers).unwrap();
        assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
        assert_eq!(answer.rows(), [["a", "300"]]);
    }
}
