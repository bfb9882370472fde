//! Tests of turbo queries whose splits workers read. Equal splits give the answer of one process, and splits
//! that a worker still holds at the end of the run are left out.
//!
//! Each query of the turbo tests also runs with workers ([`crate::cluster_execution::check_with_workers`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_engine::coverage::AbandonedFile;
use tidemill_engine::query::{SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::{
    CancelFlag, ClusterTaskExecutor, Error, InterimResult, InterimResultObserver, Query, QueryPlan,
    Result, RunSettings, TurboSettings,
};

use crate::cluster_execution::RandomOrderWorkerPool;
use crate::common::{Folder, QueryAnswer, collect_answer, query, settings};

/// A worker pool with a thread for each worker, so that a waiting worker delays no other.
#[derive(Default)]
struct ThreadedWorkerPool {
    shared: Arc<ThreadedPoolState>,
    worker_count: usize,
}

#[derive(Default)]
struct ThreadedPoolState {
    queued_tasks: Mutex<(VecDeque<SubmittedTask>, bool)>,
    finished_tasks: Mutex<VecDeque<TaskOutcome>>,
    queue_changed: Condvar,
    cancel: Mutex<CancelFlag>,
    /// True once a stalled split was submitted again, behind all others.
    has_resubmitted_split: AtomicBool,
}

impl std::fmt::Debug for ThreadedWorkerPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Threads")
    }
}

impl WorkerPool for ThreadedWorkerPool {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        Ok(WorkerCounts {
            machines: 1,
            workers: self.worker_count,
            threads: self.worker_count,
            is_here: true,
        })
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let cancel = CancelFlag::new();
        *self.shared.cancel.lock() = cancel.clone();
        *self.shared.queued_tasks.lock() = Default::default();
        self.shared.finished_tasks.lock().clear();
        for number in 0..self.worker_count {
            let settings =
                RunSettings { threads: 1, cancel: cancel.clone(), ..RunSettings::new(64 << 20) };
            let worker = ClusterTaskExecutor::new(
                &job.encoded_job,
                &settings,
                &StorageOptions::default(),
                &[],
            )?;
            let shared = Arc::clone(&self.shared);
            std::thread::spawn(move || {
                loop {
                    let task = {
                        let mut waiting = shared.queued_tasks.lock();
                        while waiting.0.is_empty() && !waiting.1 {
                            shared.queue_changed.wait(&mut waiting);
                        }
                        match waiting.0.pop_front() {
                            Some(task) if !waiting.1 => task,
                            _ => return,
                        }
                    };
                    let outcome = Ok(worker.run_task(&task.encoded_task));
                    let (number, attempt, name) = (task.number, task.attempt, number.to_string());
                    shared.finished_tasks.lock().push_back(TaskOutcome {
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
        self.shared.has_resubmitted_split.fetch_or(task.cost_bytes == 0, Ordering::Relaxed);
        self.shared.queued_tasks.lock().0.push_back(task);
        self.shared.queue_changed.notify_all();
        Ok(())
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        let done = self.shared.finished_tasks.lock().pop_front();
        if done.is_none() {
            std::thread::sleep(wait.min(Duration::from_millis(1)));
        }
        Ok(done)
    }

    fn end_job(&self) {
        let mut waiting = self.shared.queued_tasks.lock();
        waiting.0.clear();
        waiting.1 = true;
        self.shared.cancel.lock().cancel();
        self.shared.queue_changed.notify_all();
    }
}

fn turbo_query(folder: &Folder, sql: &str, options: &[(&str, &str)]) -> Query {
    let mut turbo = TurboSettings::default();
    options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
    Query { turbo: turbo.validate().unwrap(), ..query(folder.substitute_path(sql)) }
}

fn run_with_workers(query: &Query, workers: Arc<dyn WorkerPool>) -> Result<QueryAnswer> {
    let query = Query { workers: Some(workers), ..query.clone() };
    QueryPlan::new(&query, &settings())?.run().and_then(collect_answer)
}

/// Writes files of records, a few of which span two lines.
fn write_records(files: usize) -> Folder {
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

const GROUP_SQL: &str = "SELECT k, count(*) AS n, sum(n) AS total, quantile(n, 0.5) AS half FROM '$/*.csv' GROUP BY k ORDER BY k";

#[test]
fn sample_is_the_same_with_workers_and_lost_tasks() {
    let folder = write_records(12);
    let query =
        turbo_query(&folder, GROUP_SQL, &[("sample", "20%"), ("seed", "3"), ("split_bytes", "2k")]);
    let here = collect_answer(QueryPlan::new(&query, &settings()).unwrap().run().unwrap()).unwrap();
    assert!(!here.coverage.complete);
    let values = |answer: &QueryAnswer| {
        let own = |row: Vec<String>| [0, 1, 4, 7].map(|column| row[column].clone());
        answer.rows().into_iter().map(own).collect::<Vec<_>>()
    };
    for (threads, lost) in [(1, 0), (8, 0), (4, 3)] {
        let workers = RandomOrderWorkerPool::new(11, threads, lost);
        let answer = run_with_workers(&query, workers.clone()).unwrap();
        assert!(workers.finished_tasks() > 5, "{}", workers.finished_tasks());
        assert_eq!(answer.column_names(), here.column_names());
        assert_eq!(values(&answer), values(&here));
        let (one, two) = (&answer.coverage, &here.coverage);
        assert_eq!((one.rows, one.bytes, one.splits), (two.rows, two.bytes, two.splits));
        assert_eq!(one.summary_line(), two.summary_line());
    }
    let answer = run_with_workers(
        &query,
        Arc::new(ThreadedWorkerPool { worker_count: 3, ..ThreadedWorkerPool::default() }),
    )
    .unwrap();
    assert_eq!(values(&answer), values(&here));
}

#[test]
fn reading_stops_when_the_estimate_is_precise() {
    let folder = write_records(24);
    let query = turbo_query(
        &folder,
        "SELECT count(*) AS n FROM '$/*.csv' WHERE s = 'x'",
        &[("error", "20%"), ("split_bytes", "1k")],
    );
    let workers = RandomOrderWorkerPool::new(5, 2, 0);
    let answer = run_with_workers(&query, workers).unwrap();
    assert_eq!(answer.coverage.stopped.as_deref(), Some("stopped when it was precise enough"));
    assert!(answer.coverage.bytes.done < answer.coverage.bytes.total / 2);
}

/// Runs a query with three workers over files that pass through a program. Once the types are known, the
/// program waits for ever over the file that contains `stall`. The run is stopped when all other files have
/// been read and that one was submitted again.
fn run_with_stalling_file(
    folder: &Folder,
    sql: &str,
    options: &[(&str, &str)],
    others: u64,
) -> QueryAnswer {
    let mut of = turbo_query(folder, sql, options);
    let waits = folder.path().join("waits");
    let _ = std::fs::remove_file(&waits);
    let program = "read -r first; case \"$first\" in *stall*) \
        if [ -e \"$0\" ]; then exec sleep 600; fi;; esac; echo \"$first\"; exec cat";
    let words = ["sh", "-c", program, waits.to_str().unwrap()].map(str::to_owned).to_vec();
    of.file_defaults.filter_program =
        Some(tidemill_engine::filter_program::FilterProgram::new(words).unwrap());
    of.file_defaults.format = Some("jsonl".parse().unwrap());
    let threads = ThreadedWorkerPool { worker_count: 3, ..ThreadedWorkerPool::default() };
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
            if progress.rows_done() >= others
                && shared.has_resubmitted_split.load(Ordering::Relaxed)
            {
                enough.cancel();
            }
        }
    });
    let answer = plan.run().and_then(collect_answer).unwrap();
    drop(over);
    watch.join().unwrap();
    answer
}

#[test]
fn stalled_split_is_left_out_and_the_rest_of_its_task_counts() {
    let folder = Folder::new();
    for file in 0..40 {
        let first = if file == 17 { "stall" } else { "go" };
        // Each file is a split of its own.
        let rest: String = (0..2_000).map(|n| format!("{{\"s\": \"{n}\"}}\n")).collect();
        folder.write(&format!("{file:02}.jsonl"), format!("{{\"s\": \"{first}\"}}\n{rest}"));
    }
    let (sql, all) = ("SELECT count(*) AS n FROM '$/*.jsonl'", 39 * 2_001);
    let is_left_out = |answer: &QueryAnswer| {
        let sampled = answer.coverage.sampled.as_ref().unwrap();
        let count = sampled.given_up.splits + sampled.in_flight.splits;
        assert_eq!(count, 1, "{}", answer.coverage.summary_line());
        let is_it = |file: &AbandonedFile| file.path.ends_with("17.jsonl");
        assert!(sampled.given_up_files.iter().all(is_it), "{sampled:?}");
        assert_eq!(answer.coverage.rows.done, all);
        sampled.given_up.splits
    };
    let answer = run_with_stalling_file(&folder, sql, &[("deadline", "1h")], all);
    assert_eq!(is_left_out(&answer), 1, "{}", answer.coverage.summary_line());
    // With a drop limit that covers the split nobody has to stop the run.
    is_left_out(&run_with_stalling_file(&folder, sql, &[("drop", "4%")], u64::MAX));
    // A query of rows returns them all the same.
    let sql = "SELECT s FROM '$/*.jsonl' WHERE s = '7'";
    let answer = run_with_stalling_file(&folder, sql, &[("drop", "4%")], u64::MAX);
    is_left_out(&answer);
    assert_eq!(answer.rows().len(), 39);
    let answer = run_with_stalling_file(&folder, sql, &[("find", "5")], u64::MAX);
    assert_eq!(answer.rows().len(), 5);
}

#[test]
fn unreadable_file_on_a_worker_counts_against_the_drop_limit() {
    let folder = write_records(40);
    std::os::unix::fs::symlink("/nowhere", folder.path().join("link.csv")).unwrap();
    let sql = "SELECT count(*) AS n FROM '$/*.csv'";
    let error = run_with_workers(
        &turbo_query(&folder, sql, &[("deadline", "1h")]),
        RandomOrderWorkerPool::new(1, 2, 0),
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains("link.csv") && error.contains("--drop"), "{error}");
    let answer = run_with_workers(
        &turbo_query(&folder, sql, &[("drop", "10%")]),
        RandomOrderWorkerPool::new(1, 2, 0),
    )
    .unwrap();
    let sampled = answer.coverage.sampled.as_ref().unwrap();
    assert!(sampled.given_up_files[0].path.ends_with("link.csv"), "{sampled:?}");
    std::fs::remove_file(folder.path().join("link.csv")).unwrap();
    // One file is gone, and another has changed, by the time that a worker opens it.
    let query = turbo_query(&folder, sql, &[("drop", "10%")]);
    let gone = Query { workers: Some(RandomOrderWorkerPool::new(1, 2, 0)), ..query.clone() };
    let plan = QueryPlan::new(&gone, &settings()).unwrap();
    std::fs::remove_file(folder.path().join("07.csv")).unwrap();
    folder.write("11.csv", "k,n,s\n1,1,x\n");
    let answer = collect_answer(plan.run().unwrap()).unwrap();
    assert!(!answer.coverage.complete, "{}", answer.coverage.summary_line());
    let exact = turbo_query(&folder, sql, &[("sample", "99.9%")]);
    let plan = QueryPlan::new(
        &Query { workers: Some(RandomOrderWorkerPool::new(1, 2, 0)), ..exact },
        &settings(),
    );
    let plan = plan.unwrap();
    std::fs::remove_file(folder.path().join("09.csv")).unwrap();
    let error = plan.run().err().unwrap();
    assert!(matches!(error, Error::FileChanged { .. } | Error::NotFound { .. } | Error::Io { .. }));
    assert!(error.to_string().contains("09.csv"), "{error}");
}

#[test]
fn interim_results_of_workers_cover_a_growing_share() {
    let folder = write_records(24);
    let options = [("deadline", "1h"), ("split_bytes", "1k")];
    let query = turbo_query(&folder, GROUP_SQL, &options);
    let query = Query { workers: Some(RandomOrderWorkerPool::new(3, 2, 0)), ..query };
    let exact = folder.run_sql(GROUP_SQL);
    let mut shares = Vec::new();
    let mut show = |glimpse: InterimResult| {
        let names: Vec<_> = glimpse.schema.fields().iter().map(|it| it.name().clone()).collect();
        assert_eq!(names[..4], ["k", "n", "n_low", "n_high"]);
        shares.push(glimpse.bytes_read_share);
    };
    let watch = InterimResultObserver { first_delay: Duration::ZERO, on_result: &mut show };
    let plan = QueryPlan::new(&query, &settings()).unwrap();
    let answer = collect_answer(plan.run_watched(Some(watch)).unwrap()).unwrap();
    assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
    let number = |answer: &QueryAnswer, column: usize| {
        answer.rows().iter().map(|row| row[column].parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(number(&answer, 1), number(&exact, 1));
    assert!(shares.is_sorted() && shares.len() > 1, "{shares:?}");
}

#[test]
fn plan_explains_sampled_reads_by_workers() {
    let folder = write_records(24);
    for (sql, parts) in [
        (GROUP_SQL, "a table each, of splits in a drawn"),
        ("SELECT k FROM '$/*.csv'", "rows, of splits"),
    ] {
        let query = turbo_query(&folder, sql, &[("sample", "10%"), ("split_bytes", "1k")]);
        let query = Query { workers: Some(RandomOrderWorkerPool::new(3, 2, 0)), ..query };
        let explained = QueryPlan::new(&query, &settings()).unwrap().explain().unwrap();
        let text = explained.to_string();
        let elsewhere = explained.elsewhere.unwrap();
        assert_eq!(elsewhere.tasks, None);
        assert!(elsewhere.splits > 500 && elsewhere.parts.starts_with(parts), "{text}");
    }
}

/// A worker pool that returns an error if the driver waits although no task is left.
#[derive(Debug)]
struct StrictWorkerPool(Arc<RandomOrderWorkerPool>);

impl WorkerPool for StrictWorkerPool {
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

/// A few splits are read in order, so the driver does not start over when two of them disagree about a start.
/// The worker that detects the disagreement still has to read the rest of its task.
#[test]
fn splits_with_conflicting_boundaries_are_all_read_without_sampling() {
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
        let workers = Arc::new(StrictWorkerPool(RandomOrderWorkerPool::new(7, threads, 0)));
        let answer = run_with_workers(&turbo_query(&folder, sql, &options), workers).unwrap();
        assert!(answer.coverage.complete, "{}", answer.coverage.summary_line());
        assert_eq!(answer.rows(), [["a", "300"]]);
    }
}
