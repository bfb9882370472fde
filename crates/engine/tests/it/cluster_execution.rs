//! Tests of queries whose splits workers read. A worker knows no more than the job that it receives. The
//! answer equals that of one process byte by byte, in any order of tasks and with lost workers.
//!
//! Many queries of other tests also run with workers ([`check_with_workers`]).

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use tidemill_engine::convert::{Conversion, ConversionReport};
use tidemill_engine::filter_program::FilterProgram;
use tidemill_engine::query::{
    ScratchSpec, SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool,
};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::source::programs::companion_files::ProgramFiles;
use tidemill_engine::{
    ClusterTaskExecutor, ConversionWorkers, Coverage, Error, NamedSource, Query, QueryPlan, Result,
    RunId, RunProgress, RunSettings, TurboSettings,
};

use crate::common::{Folder, QueryAnswer, Random, collect_answer, settings, string_rows};
use crate::distributed_output::check_output_with_workers;
use crate::fake_s3_bucket::FakeS3Bucket;

/// A worker pool in this process. Each worker plans for itself, and tasks run one by one, in random order.
#[derive(Debug)]
pub(crate) struct RandomOrderWorkerPool(Mutex<RandomOrderPoolState>);

struct RandomOrderPoolState {
    random: Random,
    threads: usize,
    /// One of `tasks_per_loss` tasks is lost; none is if it is 0.
    tasks_per_loss: u64,
    job: Vec<u8>,
    workers: Vec<ClusterTaskExecutor>,
    queued_tasks: VecDeque<SubmittedTask>,
    finished_tasks: usize,
    /// Number of tasks that wrote files of a query.
    output_tasks: usize,
}

impl std::fmt::Debug for RandomOrderPoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("done", &self.finished_tasks).finish_non_exhaustive()
    }
}

impl RandomOrderWorkerPool {
    pub(crate) fn new(seed: u64, threads: usize, lost: u64) -> Arc<Self> {
        Arc::new(RandomOrderWorkerPool(Mutex::new(RandomOrderPoolState {
            random: Random(seed),
            threads,
            tasks_per_loss: lost,
            job: Vec::new(),
            workers: Vec::new(),
            queued_tasks: VecDeque::new(),
            finished_tasks: 0,
            output_tasks: 0,
        })))
    }

    /// Returns the number of tasks that ran.
    pub(crate) fn finished_tasks(&self) -> usize {
        self.0.lock().unwrap().finished_tasks
    }

    /// Returns the number of tasks that wrote files of a query.
    pub(crate) fn output_tasks(&self) -> usize {
        self.0.lock().unwrap().output_tasks
    }
}

impl WorkerPool for RandomOrderWorkerPool {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        let threads = self.0.lock().unwrap().threads;
        Ok(WorkerCounts { machines: 1, workers: 2, threads, is_here: true })
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.job = job.encoded_job;
        state.workers.clear();
        state.queued_tasks.clear();
        for threads in [1, 3] {
            let settings = RunSettings { threads, ..RunSettings::new(64 << 20) };
            let files: Vec<_> = job
                .shipped_files
                .iter()
                .map(|file| (file.name.clone(), file.path.clone()))
                .collect();
            let mut options = StorageOptions::default();
            for (name, value) in &job.secrets {
                options.set(name, value.clone())?;
            }
            let worker = ClusterTaskExecutor::new(&state.job, &settings, &options, &files)?;
            state.workers.push(worker);
        }
        Ok(())
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        self.0.lock().unwrap().queued_tasks.push_back(task);
        Ok(())
    }

    fn next_outcome(&self, _: Duration) -> Result<Option<TaskOutcome>> {
        let mut state = self.0.lock().unwrap();
        let count = state.queued_tasks.len() as u64;
        if count == 0 {
            return Ok(None);
        }
        let place = state.random.next_below(count) as usize;
        let SubmittedTask { number, attempt, encoded_task: content, .. } =
            state.queued_tasks.remove(place).unwrap();
        let lost = state.tasks_per_loss;
        let is_lost = attempt < 3 && lost > 0 && state.random.next_below(lost) == 0;
        if is_lost {
            let outcome = Err("it was killed".to_owned());
            return Ok(Some(TaskOutcome {
                number,
                attempt,
                worker_name: Some("lost".to_owned()),
                result: outcome,
            }));
        }
        state.finished_tasks += 1;
        let worker = state.random.next_below(2) as usize;
        // Some tasks that write files run in several copies, and the last copy to begin is the first to end;
        // the other copies leave nothing behind.
        let writes = ["TIDETASKW", "TIDETASKw"].iter().any(|it| content.starts_with(it.as_bytes()));
        state.output_tasks += usize::from(writes);
        let is_left = writes || content.starts_with(b"TIDECONV");
        let others = if is_left { state.random.next_below(6) } else { 0 };
        let others = others.saturating_sub(3) as usize;
        for copy in 0..others {
            drop(state.workers[1 - worker].run_task_copy(&content, copy));
        }
        let outcome = Ok(state.workers[worker].run_task_copy(&content, others));
        Ok(Some(TaskOutcome {
            number,
            attempt,
            worker_name: Some(format!("worker {worker}")),
            result: outcome,
        }))
    }

    fn end_job(&self) {
        self.0.lock().unwrap().queued_tasks.clear();
    }
}

/// Returns true if a test's next query also runs with workers: the first 10, one of 4 after them, and all in
/// a soak test. Each needs five plans, which would take most of the time of tests with hundreds of queries.
fn needs_worker_run() -> bool {
    thread_local! {
        // Each test has a thread of its own.
        static QUERY_COUNT: Cell<u64> = const { Cell::new(0) };
    }
    let asked = QUERY_COUNT.replace(QUERY_COUNT.get() + 1);
    // Not every fourth query, which would be the same variant of each case in many a loop.
    let is_drawn = asked.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 == 0;
    asked < 10 || is_drawn || std::env::var_os("SOAK_SECONDS").is_some()
}

/// Runs a query again with workers and compares the answers; does nothing where workers cannot run it.
pub(crate) fn check_with_workers(
    query: &Query,
    settings: &RunSettings,
    here: &Result<QueryAnswer>,
) {
    let is_fixed = !["random", "uuid", "now(", "current_", "sample", "explain analyze"]
        .iter()
        .any(|word| query.sql.to_ascii_lowercase().contains(word));
    if !is_fixed || query.workers.is_some() || !needs_worker_run() {
        return;
    }
    if let Some(turbo) = &query.turbo {
        return check_sample_with_workers(query, turbo, settings, here);
    }
    let workers = RandomOrderWorkerPool::new(query.sql.len() as u64, 2, 5);
    // Every second query partitions its tables, however small they are.
    let part_bytes_max = query.sql.len().is_multiple_of(2).then_some(0);
    let scratch = ScratchSpec { url: None, inline_bytes_max: part_bytes_max };
    let own = Query { workers: Some(workers.clone()), scratch, ..query.clone() };
    let settings =
        RunSettings { progress: RunProgress::new(), rejected_folder: None, ..settings.clone() };
    let Ok(plan) = QueryPlan::new(&own, &settings) else { return };
    if !plan.explain().is_ok_and(|explained| explained.path != "datafusion") {
        return;
    }
    let is_written = query.sql.len().is_multiple_of(4) && query.output.is_none();
    if is_written && !query.sql.contains("ORDER BY") && !query.sql.contains("LIMIT") {
        check_output_with_workers(query, &settings);
    }
    match (plan.run().and_then(collect_answer), here) {
        (Ok(there), Ok(here)) => {
            assert_eq!(concat_rows(&there), concat_rows(here), "{}", query.sql);
            // Batch boundaries are the same, because the bytes of some files depend on them.
            let cut = |answer: &QueryAnswer| {
                answer.batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
            };
            assert_eq!(cut(&there), cut(here), "{}", query.sql);
            let (one, two) = (&there.coverage, &here.coverage);
            // A subquery may have stopped before the end of its input, or have read all of it by then.
            let is_all = |of: &Coverage| of.bytes.done == of.bytes.total;
            let has_subquery = query.sql.matches("FROM").count() > 1;
            if !has_subquery || is_all(one) && is_all(two) {
                assert_eq!((one.rows, one.bytes), (two.rows, two.bytes), "{}", query.sql);
                if is_all(one) && is_all(two) {
                    assert_eq!(one.mismatches, two.mismatches, "{}", query.sql);
                }
            }
            assert_eq!(one.first_rejected, two.first_rejected, "{}", query.sql);
        }
        (Err(Error::Usage { message, .. }), _)
            if message.contains("worker elsewhere") || message.contains("on a cluster") => {}
        // A worker has another memory budget, and other folders to spill to.
        (Err(Error::MemoryBudgetTooSmall { .. }), _)
        | (_, Err(Error::MemoryBudgetTooSmall { .. })) => {}
        (Ok(_), Err(here)) if here.to_string().starts_with("cannot spill") => {}
        (Err(there), Err(here)) => assert_eq!(there.to_string(), here.to_string(), "{}", query.sql),
        (Err(there), Ok(_)) => panic!("{}: {there}", query.sql),
        (Ok(_), Err(here)) => panic!("{}: answered with workers, and here {here}", query.sql),
    }
}

/// Runs a turbo query again with workers and compares the answers: equal splits give equal answers.
fn check_sample_with_workers(
    query: &Query,
    turbo: &TurboSettings,
    settings: &RunSettings,
    here: &Result<QueryAnswer>,
) {
    let sql = &query.sql;
    let workers = RandomOrderWorkerPool::new(sql.len() as u64, 4, 6);
    let own = Query { workers: Some(workers), ..query.clone() };
    let settings =
        RunSettings { progress: RunProgress::new(), rejected_folder: None, ..settings.clone() };
    let there =
        QueryPlan::new(&own, &settings).and_then(|plan| plan.run()).and_then(collect_answer);
    // Another part of the input may be left out.
    let is_whole = |answer: &QueryAnswer| answer.coverage.complete;
    let is_sample = turbo.sample_share.is_some()
        && turbo.deadline.is_none()
        && turbo.drop_share.is_none()
        && turbo.target_error.is_none();
    let (there, here) = match (there, here) {
        (Ok(there), Ok(here)) => (there, here),
        (Err(Error::Usage { message, .. }), _)
            if message.contains("worker elsewhere") || message.contains("on a cluster") =>
        {
            return;
        }
        (Err(_), Err(_)) => return,
        (there, here) => panic!("{sql}: {:?}, {:?}", there.err(), here.as_ref().err()),
    };
    if turbo.find_rows_max.is_some() {
        let rows = |answer: &QueryAnswer| answer.rows().len();
        assert_eq!(rows(&there), rows(here), "{sql}");
    } else if is_whole(&there) && is_whole(here)
        || is_sample && !sql.contains("top_k") && !sql.contains("collect")
    {
        assert_eq!(there.column_names(), here.column_names(), "{sql}");
        // Only the bounds add floats in another order.
        let rows = |answer: &QueryAnswer| {
            let is_bound = |name: &&str| name.ends_with("_low") || name.ends_with("_high");
            let columns = answer.column_names();
            let own = |row: Vec<String>| -> Vec<String> {
                let cells = columns.iter().zip(row).filter(|(name, _)| !is_bound(&name.as_ref()));
                cells.map(|(_, cell)| cell).collect()
            };
            let mut rows: Vec<_> = answer.rows().into_iter().map(own).collect();
            if !sql.contains("ORDER BY") {
                rows.sort();
            }
            rows
        };
        assert_eq!(rows(&there), rows(here), "{sql}");
        let (one, two) = (&there.coverage, &here.coverage);
        if !sql.contains("LIMIT") {
            assert_eq!(
                (one.rows, one.bytes, one.splits),
                (two.rows, two.bytes, two.splits),
                "{sql}"
            );
        }
        let said = |of: &Coverage| {
            of.estimates.iter().map(|it| (it.column.clone(), it.exact)).collect::<Vec<_>>()
        };
        assert_eq!((one.complete, said(one)), (two.complete, said(two)), "{sql}");
    }
}

/// Converts twice more, with workers, to another folder and to one in a bucket; compares both with the local
/// output.
pub(crate) fn check_conversion_with_workers(
    conversion: &Conversion,
    here: &Result<ConversionReport>,
) {
    let folder = Folder::new();
    let workers = |more: u64| {
        let workers = RandomOrderWorkerPool::new(conversion.sink.url.len() as u64 + more, 2, 4)
            as Arc<dyn WorkerPool>;
        Some(ConversionWorkers { pool: workers, may_run_locally: false, task_attempts_max: None })
    };
    let mut again = conversion.clone();
    again.sink.url = folder.substitute_path("$/");
    again.workers = workers(0);
    let there = again.run_to_folder(&settings(), &RunId::new());
    assert_conversions_equal(conversion, here, &again, there, || read_files_below(folder.path()));

    let bucket = FakeS3Bucket::new();
    again.sink.url = "s3://out/some folder/".into();
    again.sink.storage_options = bucket.storage_options();
    again.workers = workers(1);
    let there = again.run_to_folder(&settings(), &RunId::new());
    let found = || {
        let below = bucket.objects_below("some folder/").into_iter();
        below.map(|(key, content)| (PathBuf::from(key), content)).collect()
    };
    assert_conversions_equal(conversion, here, &again, there, found);
    assert!(bucket.lock_contents().uploads.is_empty(), "{conversion:?}: uploads are left");
}

fn assert_conversions_equal(
    conversion: &Conversion,
    here: &Result<ConversionReport>,
    again: &Conversion,
    there: Result<ConversionReport>,
    found: impl FnOnce() -> BTreeMap<PathBuf, Vec<u8>>,
) {
    match (there, here) {
        (Ok(there), Ok(here)) => {
            assert_eq!(found(), read_files_below(conversion.sink.url.as_ref()), "{conversion:?}");
            let (one, two) = (&there.output_summary, &here.output_summary);
            assert_eq!((one.files, one.rows, one.bytes), (two.files, two.rows, two.bytes));
            let (one, two) = (&there.coverage, &here.coverage);
            assert_eq!((one.rows, one.bytes, one.files), (two.rows, two.bytes, two.files));
            assert_eq!(one.complete, two.complete);
            let said = |all: &ConversionReport| {
                let mut said: Vec<_> = all.failures.iter().map(ToString::to_string).collect();
                said.sort();
                said
            };
            // Of many failures only those of the inputs that were tried first are known.
            if here.untried_inputs == 0 {
                assert_eq!(said(&there), said(here));
            }
        }
        // Existing outputs are absent from the other folder.
        (_, Err(Error::OutputExists { .. })) => {}
        (Err(there), Err(here)) => {
            let said = there.to_string().replace(&again.sink.url, &conversion.sink.url);
            assert_eq!(said, here.to_string());
        }
        (there, here) => panic!("{conversion:?}: {there:?} with workers, and here {here:?}"),
    }
}

/// Returns the files below a folder and their contents.
fn read_files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        // The folder is missing if nothing was written.
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(folder).unwrap().to_owned();
            found.insert(below, std::fs::read(path).unwrap());
        }
    }
    found
}

/// Returns all rows as one batch, because batch boundaries depend on spilling.
fn concat_rows(answer: &QueryAnswer) -> Option<RecordBatch> {
    let schema = answer.batches.first()?.schema();
    Some(concat_batches(&schema, &answer.batches).unwrap())
}

fn source_query(
    folder: &Folder,
    pattern: &str,
    sql: &str,
    workers: Option<Arc<RandomOrderWorkerPool>>,
) -> Query {
    let spec = SourceSpec {
        url: folder.substitute_path(&format!("$/{pattern}")),
        ..SourceSpec::default()
    };
    let sources = vec![NamedSource { name: "source".into(), spec }];
    let workers = workers.map(|workers| workers as Arc<dyn WorkerPool>);
    Query { sources, sql: sql.into(), workers, ..Query::default() }
}

/// Writes files of about 3 MB each, with quoted fields that contain line ends.
pub(crate) fn write_large_files(folder: &Folder, seed: u64) {
    let mut random = Random(seed);
    for file in 0..3 {
        let mut text = String::from("k,s,x\n");
        while text.len() < 3 << 20 {
            let (key, value) = (random.next_below(2_000), random.next_below(1 << 40));
            let words = match random.next_below(4) {
                0 => "a line,\n\"\"and\"\" another,1\n2,3,4".to_owned(),
                1 => "\n".repeat(random.next_below(20) as usize),
                _ => format!("words {}", random.next_below(30)),
            };
            text.push_str(&format!("key {key},\"{words}\",{}\n", value as f64 / 7.0));
        }
        folder.write(&format!("{file}.csv"), text);
    }
}

const TABLE_STATEMENTS: [&str; 6] = [
    "SELECT k, count(*) AS n, sum(x) AS s, avg(x) AS m, min(s) AS a, unique(s) AS u \
        FROM source GROUP BY k ORDER BY k",
    "SELECT count(*) AS n, sum(x) AS s, stddev(x) AS d, median(x) AS m FROM source",
    "SELECT s, collect(k, 3) AS first, top_k(k, 2) AS top FROM source GROUP BY s ORDER BY s",
    "SELECT count(DISTINCT k) AS n, count(DISTINCT s) AS m FROM source WHERE x > 1e6",
    "SELECT k, s, count(*) AS n FROM source GROUP BY k, s HAVING count(*) > 2 ORDER BY n DESC, k, s LIMIT 50",
    "SELECT filename, count(*) AS n, max(x) AS x FROM source GROUP BY filename ORDER BY filename",
];

#[test]
fn workers_answer_like_one_process_in_any_task_order_and_with_losses() {
    let folder = Folder::new();
    write_large_files(&folder, 7);
    for (seed, sql) in (1..).zip(TABLE_STATEMENTS) {
        let here = collect_answer(
            QueryPlan::new(&source_query(&folder, "?.csv", sql, None), &settings())
                .unwrap()
                .run()
                .unwrap(),
        )
        .unwrap();
        for (threads, lost) in [(1, 0), (4, 3), (64, 2)] {
            for part_bytes_max in [None, Some(0), Some(20_000)] {
                let scratch = Folder::new();
                let workers = RandomOrderWorkerPool::new(seed, threads, lost);
                let query = source_query(&folder, "?.csv", sql, Some(workers.clone()));
                let url = Some(scratch.substitute_path("$"));
                let query = Query {
                    scratch: ScratchSpec { url, inline_bytes_max: part_bytes_max },
                    ..query
                };
                let there = QueryPlan::new(&query, &settings()).unwrap().run().unwrap();
                let there = collect_answer(there).unwrap();
                let how = format!("{sql} with {threads} threads, {part_bytes_max:?}");
                assert!(workers.finished_tasks() > 1, "{how}: one task");
                assert_eq!(concat_rows(&there), concat_rows(&here), "{how}");
                assert_eq!(there.coverage.rows, here.coverage.rows, "{how}");
                assert_eq!(there.coverage.bytes, here.coverage.bytes, "{how}");
                assert_eq!(there.coverage.estimates, here.coverage.estimates, "{how}");
                assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "{how}");
            }
        }
    }
}

const ROW_STATEMENTS: [&str; 5] = [
    "SELECT * FROM source",
    "SELECT k, x * 2 AS double, filename FROM source WHERE s LIKE '%words%'",
    "SELECT k, s FROM source WHERE x > 1e10 LIMIT 30000 OFFSET 12345",
    "SELECT * FROM source LIMIT 7",
    "SELECT k FROM source WHERE k = 'there is none'",
];

#[test]
fn rows_from_workers_keep_input_order() {
    let folder = Folder::new();
    write_large_files(&folder, 9);
    for (seed, sql) in (1..).zip(ROW_STATEMENTS) {
        let asked = |workers, settings: &RunSettings| {
            let query = source_query(&folder, "?.csv", sql, workers);
            collect_answer(QueryPlan::new(&query, settings).unwrap().run().unwrap()).unwrap()
        };
        let here = asked(None, &settings());
        for (threads, lost) in [(1, 0), (4, 3), (64, 2)] {
            let workers = RandomOrderWorkerPool::new(seed, threads, lost);
            // So little memory that no more than a few results may wait.
            let small = RunSettings::new(64 << 20);
            let there = asked(Some(workers.clone()), &small);
            assert_eq!(concat_rows(&there), concat_rows(&here), "{sql} with {threads} threads");
            assert_eq!(there.coverage.rows, here.coverage.rows, "{sql}");
            assert_eq!(there.coverage.stopped, here.coverage.stopped, "{sql}");
            let is_cut_short = here.coverage.stopped.is_some();
            assert!(workers.finished_tasks() > 1 || is_cut_short, "{sql}: one task");
        }
    }
}

#[test]
fn unfinished_tasks_are_limited_by_memory() {
    #[derive(Debug)]
    struct CountingWorkerPool {
        pool: Arc<RandomOrderWorkerPool>,
        unfinished_tasks: Mutex<usize>,
        unfinished_tasks_max: Mutex<usize>,
    }
    impl WorkerPool for CountingWorkerPool {
        fn worker_counts(&self) -> Result<WorkerCounts> {
            self.pool.worker_counts()
        }
        fn start_job(&self, job: SubmittedJob) -> Result<()> {
            self.pool.start_job(job)
        }
        fn submit_task(&self, task: SubmittedTask) -> Result<()> {
            *self.unfinished_tasks.lock().unwrap() += 1;
            self.pool.submit_task(task)
        }
        fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
            let mut in_work = self.unfinished_tasks.lock().unwrap();
            let mut most = self.unfinished_tasks_max.lock().unwrap();
            *most = (*most).max(*in_work);
            let done = self.pool.next_outcome(wait)?;
            *in_work -= usize::from(done.is_some());
            Ok(done)
        }
        fn end_job(&self) {
            self.pool.end_job();
        }
    }
    let folder = Folder::new();
    write_large_files(&folder, 10);
    let most = |memory: u64| {
        let counted = |dealt| CountingWorkerPool {
            pool: dealt,
            unfinished_tasks: Mutex::new(0),
            unfinished_tasks_max: Mutex::new(0),
        };
        let workers = Arc::new(counted(RandomOrderWorkerPool::new(5, 64, 0)));
        let sql = "SELECT *, s || s || s || s AS many FROM source";
        let query =
            Query { workers: Some(workers.clone()), ..source_query(&folder, "?.csv", sql, None) };
        let plan = QueryPlan::new(&query, &RunSettings::new(memory)).unwrap();
        let rows: usize = plan.run().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        let most = *workers.unfinished_tasks_max.lock().unwrap();
        (rows, most)
    };
    let (rows, few) = most(64 << 20);
    let (as_many, many) = most(4 << 30);
    assert_eq!(rows, as_many);
    assert!(few < many, "{few} tasks in work with little memory, {many} with much");
}

#[test]
fn queries_that_workers_cannot_run_are_refused_or_run_locally() {
    let folder = Folder::new();
    folder.write("a.csv", "k,s,x\na,b,1\nb,c,2\n");
    let refused = [
        ("SELECT k, row_number() OVER (ORDER BY x) AS n FROM source ORDER BY k", "cluster"),
        ("SELECT k FROM source WHERE x = (SELECT max(x) FROM source)", "cluster"),
        ("SUMMARIZE source", "SUMMARIZE"),
    ];
    for (sql, why) in refused {
        let workers = RandomOrderWorkerPool::new(1, 2, 0);
        let query = source_query(&folder, "a.csv", sql, Some(workers.clone()));
        // The error comes before anything starts.
        let error = QueryPlan::new(&query, &settings()).err().expect(sql).to_string();
        assert!(error.contains(why), "{sql}: {error}");
        let here = Query { may_run_locally: true, ..query };
        let plan = QueryPlan::new(&here, &settings()).unwrap();
        let warning = plan.warning().unwrap();
        assert!(warning.contains("it runs on this machine: the query cannot be"), "{warning}");
        let there = collect_answer(plan.run().unwrap()).unwrap();
        let plan = QueryPlan::new(&source_query(&folder, "a.csv", sql, None), &settings()).unwrap();
        assert_eq!(
            concat_rows(&there),
            concat_rows(&collect_answer(plan.run().unwrap()).unwrap()),
            "{sql}"
        );
        assert_eq!(workers.finished_tasks(), 0);
    }
}

#[test]
fn plan_explains_execution_by_workers() {
    let folder = Folder::new();
    write_large_files(&folder, 11);
    for (sql, parts) in
        [(TABLE_STATEMENTS[0], "a table each"), (ROW_STATEMENTS[1], "rows, written")]
    {
        let query = source_query(&folder, "?.csv", sql, Some(RandomOrderWorkerPool::new(1, 8, 0)));
        let explained = QueryPlan::new(&query, &settings()).unwrap().explain().unwrap();
        let text = explained.to_string();
        let elsewhere = explained.elsewhere.unwrap();
        assert_eq!((elsewhere.reach.workers, elsewhere.reach.threads), (2, 8));
        let tasks = elsewhere.tasks.unwrap();
        assert!(tasks > 1 && tasks <= elsewhere.splits, "{text}");
        assert!(text.contains("on a cluster: 2 workers on 1 machine, 8 threads"), "{text}");
        assert!(elsewhere.parts.starts_with(parts) && text.contains(parts), "{text}");
    }
}

#[test]
fn task_that_always_crashes_its_worker_is_named_in_the_error() {
    let folder = Folder::new();
    write_large_files(&folder, 8);
    #[derive(Debug)]
    struct TaskCrashingPool(Arc<RandomOrderWorkerPool>);
    impl WorkerPool for TaskCrashingPool {
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
            let done = self.0.next_outcome(wait)?;
            Ok(done.map(|done| match done.number {
                2 => TaskOutcome { result: Err("it was killed by signal 9".to_owned()), ..done },
                _ => done,
            }))
        }
        fn end_job(&self) {
            self.0.end_job();
        }
    }
    let workers = Arc::new(TaskCrashingPool(RandomOrderWorkerPool::new(1, 4, 0)));
    let query = Query {
        workers: Some(workers),
        ..source_query(&folder, "?.csv", TABLE_STATEMENTS[0], None)
    };
    let error = QueryPlan::new(&query, &settings()).unwrap().run().err().unwrap().to_string();
    assert!(error.contains("a worker ended 4 times over the same splits"), "{error}");
    assert!(error.contains(".csv` from byte") && error.contains("signal 9"), "{error}");
    for (most, times) in [(1, "once"), (2, "2 times")] {
        let workers = Arc::new(TaskCrashingPool(RandomOrderWorkerPool::new(1, 4, 0)));
        let of = source_query(&folder, "?.csv", TABLE_STATEMENTS[0], None);
        let query = Query { workers: Some(workers), split_attempts_max: Some(most), ..of };
        let error = QueryPlan::new(&query, &settings()).unwrap().run().err().unwrap().to_string();
        assert!(error.contains(&format!("a worker ended {times} over the same")), "{error}");
    }
}

#[test]
fn file_changed_after_listing_is_refused_by_its_worker() {
    let folder = Folder::new();
    folder.write("a.csv", "k,s,x\na,b,1\n");
    let workers = RandomOrderWorkerPool::new(1, 2, 0);
    let sql = "SELECT k, count(*) AS n FROM source GROUP BY k";
    let plan =
        QueryPlan::new(&source_query(&folder, "a.csv", sql, Some(workers)), &settings()).unwrap();
    folder.write("a.csv", "k,s,x\na,b,1\na,b,2\n");
    let error = plan.run().err().unwrap();
    assert!(matches!(error, Error::FileChanged { .. }), "{error}");
}

#[test]
fn workers_report_malformed_records_like_one_process() {
    let folder = Folder::new();
    let mut text = String::from("k,x\n");
    for row in 0..400_000 {
        match row % 9_973 {
            0 => text.push_str(&format!("key {},not a number\n", row % 7)),
            _ => text.push_str(&format!("key {},{row}\n", row % 7)),
        }
    }
    folder.write("a.csv", text);
    let sql = "SELECT k, count(*) AS n, sum(x) AS s FROM source GROUP BY k ORDER BY k";
    for allowed in ["0", "40", "41", "1%", "0.001%"] {
        let settings = RunSettings { max_bad: allowed.parse().unwrap(), ..settings() };
        let asked = |workers| {
            let query = Query {
                schema: Some("x BIGINT".into()),
                ..source_query(&folder, "a.csv", sql, workers)
            };
            collect_answer(QueryPlan::new(&query, &settings)?.run()?)
        };
        match (asked(None), asked(Some(RandomOrderWorkerPool::new(3, 4, 4)))) {
            (Ok(here), Ok(there)) => {
                assert_eq!(there.batches, here.batches);
                assert_eq!(there.coverage.rows, here.coverage.rows);
                assert_eq!(there.coverage.first_rejected, here.coverage.first_rejected);
            }
            (Err(here), Err(there)) => assert_eq!(there.to_string(), here.to_string()),
            (here, there) => panic!("{allowed}: {:?} and {:?}", here.err(), there.err()),
        }
    }
}

#[test]
fn workers_convert_a_folder_like_one_process() {
    let folder = Folder::new();
    let mut random = Random(11);
    for file in 0..40 {
        let rows = random.next_below(400);
        let mut text = String::from("day,n,word\n");
        for row in 0..rows {
            text.push_str(&format!(
                "2013-01-{:02},{row},w {}\n",
                1 + row % 28,
                random.next_below(9)
            ));
        }
        folder.write(&format!("in/part {}/{file:02}.csv", file % 3), text);
    }
    // Some inputs have rejected records, and one is not Parquet.
    folder.write("in/part 0/bad.csv", "day,n,word\n2013-01-01,1,a\nx\n2013-01-02,2,b,c,d\n");
    folder.write("in/part 1/none.parquet", "this is not Parquet");
    for (format, select, max_bad) in
        [("parquet", None, "0"), ("json", None, "5"), ("csv", Some("n + 1 AS m, filename"), "50%")]
    {
        let mut wanted = crate::conversion::conversion(&folder, &["in"], &format!("{format}/"));
        wanted.sink.format = Some(format.parse().unwrap());
        wanted.select = select.map(str::to_owned);
        let kept = [Folder::new(), Folder::new()];
        let mut settings = kept.iter().map(|kept| RunSettings {
            max_bad: max_bad.parse().unwrap(),
            rejected_folder: Some(kept.path().join("rejected")),
            ..settings()
        });
        let here = wanted.run_to_folder(&settings.next().unwrap(), &RunId::new()).unwrap();
        let there = Folder::new();
        let workers = RandomOrderWorkerPool::new(7, 3, 3);
        let elsewhere = ConversionWorkers {
            pool: workers.clone(),
            may_run_locally: false,
            task_attempts_max: None,
        };
        let mut again = Conversion { workers: Some(elsewhere), ..wanted.clone() };
        again.sink.url = there.substitute_path("$/out/");
        let found = again.run_to_folder(&settings.next().unwrap(), &RunId::new()).unwrap();
        assert!(workers.finished_tasks() > 1);
        assert_eq!(
            read_files_below(&there.path().join("out")),
            read_files_below(wanted.sink.url.as_ref()),
            "{format}"
        );
        assert_eq!(found.failures.len(), here.failures.len());
        assert!(!here.failures.is_empty());
        assert_eq!(found.coverage.rows, here.coverage.rows);
        let [one, two] = kept.each_ref().map(|kept| read_files_below(kept.path()));
        assert_eq!(one, two, "{format}: copies of what was refused");
        assert_eq!(one.is_empty(), max_bad == "0");
    }
}

#[test]
fn invalid_scratch_storage_is_refused_before_reading() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    for url in ["https://host/x", " "] {
        let query = source_query(
            &folder,
            "a.csv",
            "SELECT count(*) FROM source",
            Some(RandomOrderWorkerPool::new(1, 1, 0)),
        );
        let scratch = ScratchSpec { url: Some(url.into()), inline_bytes_max: None };
        let error =
            QueryPlan::new(&Query { scratch, ..query }, &settings()).err().unwrap().to_string();
        assert!(error.contains("scratch files"), "{error}");
    }
}

/// Returns a conversion whose outputs become objects of one request, of one part and of several.
fn conversion_of_all_sizes(folder: &Folder) -> Conversion {
    let mut random = Random(17);
    for (file, kilobytes) in [1, 200, 250, 700, 1, 9_500, 300].into_iter().enumerate() {
        let mut text = String::from("n,word\n");
        while text.len() < kilobytes << 10 {
            text.push_str(&format!("{},w {}\n", random.next_below(1 << 40), random.next_below(9)));
        }
        folder.write(&format!("in/{file}.csv"), text);
    }
    let mut wanted = crate::conversion::conversion(folder, &["in"], "out/");
    wanted.sink.format = Some("json".parse().unwrap());
    wanted
}

fn conversion_to_bucket(
    conversion: &Conversion,
    bucket: &FakeS3Bucket,
    workers: Arc<dyn WorkerPool>,
) -> Conversion {
    let elsewhere =
        ConversionWorkers { pool: workers, may_run_locally: false, task_attempts_max: Some(2) };
    let mut there = Conversion { workers: Some(elsewhere), ..conversion.clone() };
    there.sink.url = "s3://out/a/b/".into();
    there.sink.storage_options = bucket.storage_options();
    there
}

#[test]
fn objects_of_every_size_are_committed_without_leftover_uploads() {
    let folder = Folder::new();
    let wanted = conversion_of_all_sizes(&folder);
    wanted.run_to_folder(&settings(), &RunId::new()).unwrap();
    let here = read_files_below(wanted.sink.url.as_ref());
    for (seed, select) in [(1, None), (2, Some("n + 1 AS m, word")), (3, None)] {
        let bucket = FakeS3Bucket::new();
        let mut there =
            conversion_to_bucket(&wanted, &bucket, RandomOrderWorkerPool::new(seed, 2, 0));
        there.select = select.map(str::to_owned);
        // A thread of its own writes the bytes that a program returns.
        there.sink.exec = (seed == 3).then(|| FilterProgram::new(vec!["cat".into()]).unwrap());
        let written = there.run_to_folder(&settings(), &RunId::new()).unwrap().output_summary;
        let found = bucket.objects_below("a/b/");
        assert_eq!((written.files, found.len()), (7, 7));
        assert_eq!(written.bytes, found.values().map(|content| content.len() as u64).sum::<u64>());
        if select.is_none() {
            let below = |(path, content)| (PathBuf::from(path), content);
            assert!(found.into_iter().map(below).eq(here.clone()), "other bytes");
        }
        let kept = bucket.lock_contents();
        assert!(
            kept.uploads.is_empty() && kept.object_parts_max > 1,
            "{} parts",
            kept.object_parts_max
        );
        assert!(kept.uploads_begun >= 4, "{} uploads", kept.uploads_begun);
    }
}

#[test]
fn existing_objects_stay_and_the_others_are_written() {
    let folder = Folder::new();
    let wanted = conversion_of_all_sizes(&folder);
    let bucket = FakeS3Bucket::new();
    bucket.put_object("a/b/3.json", b"another's");
    let mut there = conversion_to_bucket(&wanted, &bucket, RandomOrderWorkerPool::new(5, 2, 0));
    let all = there.run_to_folder(&settings(), &RunId::new()).unwrap();
    let said = all.to_error().unwrap().to_string();
    assert!(said.contains("`s3://out/a/b/3.json` exists already"), "{said}");
    assert_eq!((all.output_summary.files, all.failures.len(), all.untried_inputs), (6, 1, 0));
    assert_eq!(bucket.objects_below("a/b/")["3.json"], b"another's");

    there.skip_existing = true;
    bucket.lock_contents().objects.remove("a/b/5.json");
    let all = there.run_to_folder(&settings(), &RunId::new()).unwrap();
    assert_eq!((all.output_summary.files, all.skipped_outputs, all.failures.len()), (1, 6, 0));
    there.skip_existing = false;
    there.sink.overwrite = true;
    let all = there.run_to_folder(&settings(), &RunId::new()).unwrap();
    assert_eq!((all.output_summary.files, all.failures.len()), (7, 0));
    assert_ne!(bucket.objects_below("a/b/")["3.json"], b"another's");
    assert!(bucket.lock_contents().uploads.is_empty());
}

#[test]
fn name_taken_during_the_run_rolls_back_all_objects() {
    #[derive(Debug)]
    struct NameTakingPool(Arc<RandomOrderWorkerPool>, Arc<FakeS3Bucket>);
    impl WorkerPool for NameTakingPool {
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
            self.1.put_object("a/b/2.json", b"another's");
            self.0.next_outcome(wait)
        }
        fn end_job(&self) {
            self.0.end_job();
        }
    }
    let folder = Folder::new();
    let wanted = conversion_of_all_sizes(&folder);
    let bucket = Arc::new(FakeS3Bucket::new());
    let taking = NameTakingPool(RandomOrderWorkerPool::new(3, 2, 0), Arc::clone(&bucket));
    let there = conversion_to_bucket(&wanted, &bucket, Arc::new(taking));
    let error = there.run_to_folder(&settings(), &RunId::new()).unwrap_err();
    assert!(matches!(error, Error::OutputExists { .. }), "{error}");
    assert_eq!(
        bucket.objects_below(""),
        BTreeMap::from([("a/b/2.json".into(), b"another's".to_vec())])
    );
    assert!(bucket.lock_contents().uploads.is_empty());
}

#[test]
fn conversion_that_crashes_workers_leaves_nothing_in_the_bucket() {
    let folder = Folder::new();
    let wanted = conversion_of_all_sizes(&folder);
    let bucket = FakeS3Bucket::new();
    let there = conversion_to_bucket(&wanted, &bucket, RandomOrderWorkerPool::new(3, 2, 1));
    let error = there.run_to_folder(&settings(), &RunId::new()).unwrap_err().to_string();
    assert!(error.contains("a worker ended 2 times over"), "{error}");
    let kept = bucket.lock_contents();
    assert!(kept.uploads_begun > 0 && kept.uploads.is_empty() && kept.objects.is_empty());
}

#[test]
fn conversion_that_crashes_workers_commits_no_files() {
    let folder = Folder::new();
    for file in 0..5 {
        folder.write(&format!("in/{file}.csv"), "n\n1\n");
    }
    let mut wanted = crate::conversion::conversion(&folder, &["in"], "out/");
    wanted.sink.format = Some("json".parse().unwrap());
    let workers = RandomOrderWorkerPool::new(3, 2, 1);
    wanted.workers = Some(ConversionWorkers {
        pool: workers,
        may_run_locally: false,
        task_attempts_max: Some(2),
    });
    let error = wanted.run_to_folder(&settings(), &RunId::new()).unwrap_err().to_string();
    assert!(error.contains("a worker ended 2 times over") && error.contains("in/"), "{error}");
    assert!(!folder.path().join("out").exists());
}

/// A worker's result for a range can be much larger than the driver's memory.
#[test]
fn driver_with_little_memory_returns_all_groups_merged_by_workers() {
    let folder = Folder::new();
    let mut random = Random(23);
    for file in 0..12 {
        let mut text = String::from("k,n\n");
        for _ in 0..9_000 / (1 + file % 3 * 8) {
            text.push_str(&format!("{},{}\n", random.next_below(15_000), random.next_below(1_000)));
        }
        folder.write(&format!("{file}.csv"), text);
    }
    for order in ["", " ORDER BY k"] {
        let sql = format!(
            "SELECT k, count(*) AS n, array_to_string(array_agg(n), '-') AS j, first(n) AS f \
             FROM source GROUP BY k{order}"
        );
        let rows = |query: Query, memory_bytes: u64| {
            let settings = RunSettings { memory_bytes, ..settings() };
            let answer =
                collect_answer(QueryPlan::new(&query, &settings).unwrap().run().unwrap()).unwrap();
            let mut rows = answer.rows();
            rows.sort();
            rows
        };
        let here = rows(source_query(&folder, "*.csv", &sql, None), 256 << 20);
        for memory_bytes in [64 << 10, 1 << 20, 256 << 20] {
            // All tables are large; some are; none is.
            for part_bytes_max in [0, 300_000, u64::MAX] {
                let query =
                    source_query(&folder, "*.csv", &sql, Some(RandomOrderWorkerPool::new(5, 2, 5)));
                let scratch = ScratchSpec { url: None, inline_bytes_max: Some(part_bytes_max) };
                let there = rows(Query { scratch, ..query }, memory_bytes);
                let how = format!("{sql} with {memory_bytes} bytes, {part_bytes_max}");
                assert_eq!(there.len(), here.len(), "{how}");
                assert!(there == here, "{how}");
            }
        }
    }
}

#[test]
fn program_files_are_sent_with_the_job() {
    let folder = Folder::new();
    folder.write("geo.dat", "found\n");
    for file in 0..5 {
        folder.write(&format!("{file}.txt"), "line\n".repeat(100 * (file + 1)));
    }
    let urls = [folder.substitute_path("$/geo.dat")];
    let files = ProgramFiles::new(&urls, &StorageOptions::default(), folder.path()).unwrap();
    let script = "while read line; do cat geo.dat; done";
    let words = ["sh", "-c", script].map(str::to_owned).to_vec();
    let exec = FilterProgram::new(words).unwrap().with_files(files);
    let sql = "SELECT line, count() AS n FROM source GROUP BY line";
    let mut here = source_query(&folder, "?.txt", sql, None);
    here.sources[0].spec.filter_program = Some(exec);
    let workers = RandomOrderWorkerPool::new(5, 4, 0);
    let there = Query { workers: Some(workers.clone()), ..here.clone() };
    let [here, there] = [here, there].map(|query| {
        collect_answer(QueryPlan::new(&query, &settings()).unwrap().run().unwrap()).unwrap()
    });
    assert_eq!(concat_rows(&there), concat_rows(&here));
    assert!(workers.finished_tasks() > 0);
    assert_eq!(there.rows(), string_rows(&[&["found", "1500"]]));
}

#[test]
fn query_without_input_runs_without_workers() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    for (sql, expected) in [("SELECT 7 AS seven", 1), ("SELECT n FROM source WHERE 1 = 0", 0)] {
        let workers = RandomOrderWorkerPool::new(1, 1, 0);
        let query = source_query(&folder, "a.csv", sql, Some(workers.clone()));
        let answer =
            collect_answer(QueryPlan::new(&query, &settings()).unwrap().run().unwrap()).unwrap();
        let rows: usize = answer.batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!((rows, workers.finished_tasks()), (expected, 0), "{sql}");
    }
}
