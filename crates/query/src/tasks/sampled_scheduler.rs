//! The task scheduler for sampled splits, whose results may arrive in any order.
//!
//! The splits of later tasks are not known in advance. The caller watches the clock, and submits a few splits
//! at a time as workers become free. A task takes a worker a small part of the time that is left, because
//! unfinished tasks count for nothing at the deadline. Each task yields one outcome.
//!
//! A result accounts for the splits of its task: those that were read, failed or stalled. The scheduler
//! treats a split that a result does not mention as stalled, and the caller has it read again. Otherwise the
//! run would wait for the split until the deadline, or forever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, WorkerProgress};
use tidemill_source::{Split, SplitStats};

use super::ordered_scheduler::OrderedScheduler;
use super::task_messages::{ReadTask, SplitReport, TaskResult, UnreadSplits};
use super::unordered_scheduler::times_in_words;
use super::{SubmittedJob, SubmittedTask, WorkerCounts, WorkerPool};
use crate::execution::scan::{Scan, SplitOutcome};
use crate::turbo::sampling_plan::is_input_error;

/// Number of tasks that a worker has or that are on their way to it.
const SUBMITTED_TASKS_PER_WORKER: usize = 3;
/// Maximum expected duration of a task.
const TASK_DURATION_MAX: Duration = Duration::from_millis(100);
/// Maximum expected duration of a task, as a divisor of the time that is left.
const TASK_TIME_DIVISOR: u32 = 20;
/// Maximum number of splits in a task.
const TASK_SPLITS_MAX: usize = 256;
/// Stall timeout, as a divisor of the time that is left.
const STALL_TIME_DIVISOR: u32 = 8;
/// Maximum stall timeout of a split's first attempt.
const STALL_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// Stall timeout of a split that has stalled before: in effect none.
const RETRY_STALL_TIMEOUT: Duration = Duration::from_secs(366 * 24 * 3600);
/// Weight of a new measurement of seconds per byte against the earlier ones.
const PACE_SMOOTHING_WEIGHT: f64 = 0.3;

/// The task scheduler for sampled splits.
pub(crate) struct SampledScheduler {
    workers: Arc<dyn WorkerPool>,
    worker_counts: WorkerCounts,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    attempts_max: usize,
    /// Maximum bytes of a task with several splits.
    task_bytes_max: u64,
    pending_tasks: BTreeMap<usize, PendingTask>,
    /// The number of the next task.
    next_number: usize,
    /// Smoothed seconds that a worker takes for a byte, once measured.
    seconds_per_byte: Option<f64>,
}

/// A task that was submitted and has not returned.
struct PendingTask {
    splits: Vec<usize>,
    bytes: u64,
    stall_timeout: Duration,
    /// Number of lost workers.
    lost_worker_count: usize,
}

/// The result of a task of sampled splits.
pub(crate) struct SampledTaskResult {
    /// The task's splits, by their index within the scan.
    pub splits: Vec<usize>,
    /// Index, mapped rows and outcome of each split that was read.
    pub outcomes: Vec<(usize, u64, SplitOutcome)>,
    /// Splits that failed, with the error.
    pub failures: Vec<(usize, Error)>,
    /// Splits that stalled.
    pub stalled_splits: Vec<usize>,
    /// Number of splits that began at another offset than they seemed to.
    pub wrong_start_count: u64,
    /// The groups or rows.
    pub result: TaskResult,
}

impl SampledTaskResult {
    /// Creates the result of a task whose only split failed.
    fn from_failure(splits: Vec<usize>, error: Error) -> Self {
        let failed = splits.first().map(|split| (*split, error)).into_iter().collect();
        let (read, stalled, part) = (Vec::new(), Vec::new(), TaskResult::default());
        SampledTaskResult {
            splits,
            outcomes: read,
            failures: failed,
            stalled_splits: stalled,
            wrong_start_count: 0,
            result: part,
        }
    }
}

impl SampledScheduler {
    /// Starts the job.
    ///
    /// # Errors
    /// Fails as [`WorkerPool::start_job`].
    pub(super) fn start_job(
        workers: &Arc<dyn WorkerPool>,
        job: SubmittedJob,
        scan: &Arc<Scan>,
        (cancel, progress): (&CancelFlag, &RunProgress),
        (attempts_max, bytes_max): (usize, u64),
    ) -> Result<Self> {
        workers.start_job(job)?;
        Ok(SampledScheduler {
            workers: Arc::clone(workers),
            worker_counts: workers.worker_counts()?,
            scan: Arc::clone(scan),
            cancel: cancel.clone(),
            progress: progress.clone(),
            attempts_max,
            task_bytes_max: bytes_max,
            pending_tasks: BTreeMap::new(),
            next_number: 0,
            seconds_per_byte: None,
        })
    }

    /// Returns true if a worker needs another task.
    pub(crate) fn has_room_for_task(&self) -> bool {
        self.pending_tasks.len() < SUBMITTED_TASKS_PER_WORKER * self.worker_counts.workers.max(1)
    }

    /// Takes as many splits from `next` as make a task for the time that is left, and submits them. Returns
    /// false if `next` has none. A task has at most `splits_max` splits.
    ///
    /// # Errors
    /// Fails if no worker can be reached.
    pub(crate) fn submit_next_splits(
        &mut self,
        next: &mut dyn FnMut() -> Option<usize>,
        left: Option<Duration>,
        splits_max: usize,
    ) -> Result<bool> {
        let takes =
            left.map_or(TASK_DURATION_MAX, |left| TASK_DURATION_MAX.min(left / TASK_TIME_DIVISOR));
        let threads = (self.worker_counts.threads / self.worker_counts.workers.max(1)).max(1);
        let (mut splits, mut bytes) = (Vec::new(), 0);
        while splits.len() < splits_max.min(TASK_SPLITS_MAX) {
            let expected = self.seconds_per_byte.map(|pace| bytes as f64 * pace);
            let is_enough = match expected {
                Some(seconds) => seconds >= takes.as_secs_f64() || bytes >= self.task_bytes_max,
                // Until the pace is known, a task has one split for each of the worker's threads.
                None => splits.len() >= threads,
            };
            if is_enough && !splits.is_empty() {
                break;
            }
            let Some(split) = next() else { break };
            bytes += self.split(split)?.bytes;
            splits.push(split);
        }
        if splits.is_empty() {
            return Ok(false);
        }
        let patience =
            left.map_or(STALL_TIMEOUT_MAX, |left| STALL_TIMEOUT_MAX.min(left / STALL_TIME_DIVISOR));
        self.submit_pending(PendingTask {
            splits,
            bytes,
            stall_timeout: patience,
            lost_worker_count: 0,
        })?;
        Ok(true)
    }

    /// Submits a split that has stalled before, in effect without a stall timeout.
    ///
    /// # Errors
    /// Fails if no worker can be reached.
    pub(crate) fn resubmit_stalled_split(&mut self, split: usize) -> Result<()> {
        let bytes = self.split(split)?.bytes;
        self.submit_pending(PendingTask {
            splits: vec![split],
            bytes,
            stall_timeout: RETRY_STALL_TIMEOUT,
            lost_worker_count: 0,
        })
    }

    fn submit_pending(&mut self, task: PendingTask) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        self.submit_task(number, &task)?;
        self.pending_tasks.insert(number, task);
        Ok(())
    }

    fn submit_task(&self, number: usize, task: &PendingTask) -> Result<()> {
        let splits = task.splits.iter().map(|index| self.split(*index).cloned());
        let splits = splits.collect::<Result<Vec<_>>>()?;
        let (files, splits) = self.scan.source().describe_splits(&splits)?;
        let patience_ms = u64::try_from(task.stall_timeout.as_millis()).unwrap_or(u64::MAX);
        let content = ReadTask { files, splits, patience_ms: Some(patience_ms) }.encode()?;
        let (first, count) = (task.splits.first().map_or(0, |it| it + 1), task.splits.len());
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        self.workers.submit_task(SubmittedTask {
            number,
            attempt: task.lost_worker_count,
            // Workers run tasks in sampling order, and stalled splits behind all others.
            cost_bytes: u64::from(task.stall_timeout != RETRY_STALL_TIMEOUT),
            display_name: format!("split {first} of {}{more}", self.scan.splits().len()),
            encoded_task: content,
        })
    }

    fn split(&self, index: usize) -> Result<&Split> {
        self.scan.splits().get(index).ok_or_else(OrderedScheduler::mismatched_splits_error)
    }

    /// Returns the result of a task, or `None` if none arrives within `wait`.
    ///
    /// # Errors
    /// The error of a task as a whole, or the error for a task that lost too many workers.
    pub(crate) fn next_result(&mut self, wait: Duration) -> Result<Option<SampledTaskResult>> {
        self.cancel.check()?;
        let Some(done) = self.workers.next_outcome(wait)? else { return Ok(None) };
        let Some(task) = self.pending_tasks.get_mut(&done.number) else { return Ok(None) };
        if task.lost_worker_count != done.attempt {
            return Ok(None);
        }
        let tell = |change: &dyn Fn(&mut WorkerProgress)| {
            if let Some(name) = done.worker_name.as_deref() {
                self.progress.update_worker(name, change);
            }
        };
        let content = match done.result {
            Ok(content) => content,
            Err(why) => {
                tell(&|it| it.tasks_lost += 1);
                task.lost_worker_count += 1;
                if task.lost_worker_count >= self.attempts_max {
                    return Err(self.repeated_loss_error(done.number, &why));
                }
                if let Some(task) = self.pending_tasks.get(&done.number) {
                    self.submit_task(done.number, task)?;
                }
                return Ok(None);
            }
        };
        let Some(PendingTask { splits, bytes, stall_timeout: patience, .. }) =
            self.pending_tasks.remove(&done.number)
        else {
            return Ok(None);
        };
        let mut part = match TaskResult::decode(content) {
            Ok(part) => part,
            // For example, a file cannot be opened. Tasks of one split each tell which split it is.
            Err(error) if splits.len() > 1 && is_input_error(&error) => {
                for split in splits {
                    let bytes = self.split(split)?.bytes;
                    let splits = vec![split];
                    self.submit_pending(PendingTask {
                        splits,
                        bytes,
                        stall_timeout: STALL_TIMEOUT_MAX,
                        lost_worker_count: 0,
                    })?;
                }
                return Ok(None);
            }
            Err(error) => return Ok(Some(SampledTaskResult::from_failure(splits, error))),
        };
        let took = part.time;
        self.progress.map_counters().add_worker_cpu(took.cpu);
        tell(&|it| it.add_task(bytes, took.cpu, took.wall));
        let UnreadSplits { failed, stalled: _, wrong_starts, is_cut_short } =
            std::mem::take(&mut part.unread_splits);
        let of_task = |place: usize| {
            splits.get(place).copied().ok_or_else(OrderedScheduler::mismatched_splits_error)
        };
        let read = |SplitReport { place, is_exact, mapped_rows, stats }: SplitReport| -> Result<_> {
            let index = of_task(place)?;
            let stats = SplitStats::from_description(stats, self.split(index)?)?;
            Ok((index, mapped_rows, SplitOutcome { stats, is_exact_start: is_exact }))
        };
        let read = part.split_reports.drain(..).map(read).collect::<Result<Vec<_>>>()?;
        let failed = failed.into_iter().map(|(place, why)| Ok((of_task(place)?, why.into())));
        let failed = failed.collect::<Result<Vec<_>>>()?;
        let stalled = match is_cut_short {
            true => Vec::new(),
            false => unaccounted_splits(&splits, &read, &failed),
        };
        if patience == RETRY_STALL_TIMEOUT && !stalled.is_empty() {
            // The worker had to wait for these splits. Submitting them again would go on forever.
            return Err(OrderedScheduler::mismatched_splits_error());
        }
        if bytes > 0 && stalled.is_empty() {
            let pace = took.wall.as_secs_f64() / bytes as f64;
            let before = self.seconds_per_byte.unwrap_or(pace);
            self.seconds_per_byte = Some(before + (pace - before) * PACE_SMOOTHING_WEIGHT);
        }
        Ok(Some(SampledTaskResult {
            splits,
            outcomes: read,
            failures: failed,
            stalled_splits: stalled,
            wrong_start_count: wrong_starts,
            result: part,
        }))
    }

    fn repeated_loss_error(&self, number: usize, why: &str) -> Error {
        let task = self.pending_tasks.get(&number);
        let first = task.and_then(|task| self.split(*task.splits.first()?).ok());
        let place = first.and_then(|split| split.parts.first()).map(|piece| {
            format!(", `{}` from byte {} on", piece.file.display_name(), piece.range.start)
        });
        Error::Query(format!(
            "a worker ended {} over the same splits{}: {why}\n\
             hint: read that file alone on one machine, with less --memory, to see what it does",
            times_in_words(task.map_or(0, |task| task.lost_worker_count)),
            place.unwrap_or_default(),
        ))
    }

    /// Returns the splits of submitted tasks: those on their first attempt, and those that have stalled
    /// before.
    pub(crate) fn pending_splits(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |again: bool| {
            let tasks = self.pending_tasks.values();
            let tasks = tasks.filter(|task| (task.stall_timeout == RETRY_STALL_TIMEOUT) == again);
            tasks.flat_map(|task| task.splits.iter().copied()).collect()
        };
        (of(false), of(true))
    }
}

/// Returns the splits of a task that were neither read nor failed. They have stalled, even if the result does
/// not mention them.
fn unaccounted_splits(
    splits: &[usize],
    read: &[(usize, u64, SplitOutcome)],
    failed: &[(usize, Error)],
) -> Vec<usize> {
    let read = read.iter().map(|(split, ..)| *split);
    let accounted: BTreeSet<usize> = read.chain(failed.iter().map(|(split, _)| *split)).collect();
    splits.iter().copied().filter(|split| !accounted.contains(split)).collect()
}

impl Drop for SampledScheduler {
    fn drop(&mut self) {
        self.workers.end_job();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::Path;

    use arrow::array::RecordBatch;
    use arrow::util::display::array_value_to_string;
    use parking_lot::Mutex;
    use tidemill_base::RunSettings;
    use tidemill_remote::StorageOptions;

    use super::super::TaskOutcome;
    use super::super::task_executor::TaskExecutor;
    use super::super::task_messages::WorkerTask;
    use super::*;
    use crate::{Query, QueryPlan, TurboSettings};

    /// A change to a task before the worker reads it.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum TaskAlteration {
        /// Drops the last split of a task that has several, so that its result does not account for it.
        DropLastSplit,
        /// Sets the stall timeout to 0 ms, so that splits without new data stall at once.
        ZeroStallTimeout,
    }

    /// A pool of one worker, which runs tasks in order, each when the driver waits for it. Returns an error
    /// if the driver waits although no task is left.
    struct AlteringWorkerPool {
        alteration: TaskAlteration,
        state: Mutex<(Option<TaskExecutor>, VecDeque<SubmittedTask>)>,
    }

    impl std::fmt::Debug for AlteringWorkerPool {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.alteration.fmt(f)
        }
    }

    impl WorkerPool for AlteringWorkerPool {
        fn worker_counts(&self) -> Result<WorkerCounts> {
            Ok(WorkerCounts { machines: 1, workers: 1, threads: 4, is_here: true })
        }

        fn start_job(&self, job: SubmittedJob) -> Result<()> {
            let settings = RunSettings { threads: 4, ..RunSettings::new(64 << 20) };
            let worker =
                TaskExecutor::new(&job.encoded_job, &settings, &StorageOptions::default(), &[])?;
            *self.state.lock() = (Some(worker), VecDeque::new());
            Ok(())
        }

        fn submit_task(&self, task: SubmittedTask) -> Result<()> {
            self.state.lock().1.push_back(task);
            Ok(())
        }

        fn next_outcome(&self, _: Duration) -> Result<Option<TaskOutcome>> {
            let (worker, waiting) = &mut *self.state.lock();
            let (Some(worker), Some(handed)) = (worker, waiting.pop_front()) else {
                return Err(Error::Internal("the driver waits, and nothing is left to do".into()));
            };
            let WorkerTask::ReadSplits(mut task) = WorkerTask::decode(&handed.encoded_task)? else {
                return Err(Error::Internal("another task".into()));
            };
            match self.alteration {
                TaskAlteration::DropLastSplit if task.splits.len() > 1 => drop(task.splits.pop()),
                TaskAlteration::ZeroStallTimeout if task.splits.len() > 1 => {
                    task.patience_ms = Some(0)
                }
                _ => {}
            }
            let count = task.splits.len();
            let content = worker.run_task(&task.encode()?, 0);
            if let Ok(part) = TaskResult::decode(content.clone()) {
                let UnreadSplits { failed, stalled, .. } = &part.unread_splits;
                let read = part.split_reports.iter().map(|read| read.place);
                let mut told: Vec<usize> = read.chain(failed.iter().map(|it| it.0)).collect();
                told.extend(stalled);
                told.sort_unstable();
                // The result mentions each split once, unless the worker stopped because it had found all
                // wanted rows.
                let is_cut_short = part.unread_splits.is_cut_short;
                assert!(is_cut_short || told.iter().copied().eq(0..count), "{told:?} of {count}");
            }
            let SubmittedTask { number, attempt, .. } = handed;
            Ok(Some(TaskOutcome { number, attempt, worker_name: None, result: Ok(content) }))
        }

        fn end_job(&self) {
            self.state.lock().1.clear();
        }
    }

    fn run_query(query: &Query) -> (Vec<RecordBatch>, bool) {
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let mut results = QueryPlan::new(query, &settings).and_then(QueryPlan::run).unwrap();
        let batches = results.by_ref().collect::<Result<Vec<_>>>().unwrap();
        (batches, results.coverage().complete)
    }

    fn query(folder: &Path, sql: &str, change: TaskAlteration) -> Query {
        let mut turbo = TurboSettings::default();
        turbo.set_option("deadline", "1h").unwrap();
        turbo.set_option("split_bytes", "1k").unwrap();
        turbo.set_option("no_intervals", "true").unwrap();
        let workers: Arc<dyn WorkerPool> =
            Arc::new(AlteringWorkerPool { alteration: change, state: Mutex::default() });
        Query {
            sql: sql.replace('$', folder.to_str().unwrap()),
            turbo: turbo.validate().unwrap(),
            workers: Some(workers),
            ..Query::default()
        }
    }

    fn write_numbers(rows: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let lines = (0..rows).map(|n| format!("{{\"n\": {n}, \"of\": {}}}\n", n % 10));
        std::fs::write(folder.path().join("a.jsonl"), lines.collect::<String>()).unwrap();
        folder
    }

    /// Checks the count and sum of 20,000 rows, and the number of rows of a filter with and without a limit.
    fn check_answers(folder: &Path, change: TaskAlteration) {
        let sql = "SELECT count(*) AS n, sum(n) AS total FROM '$/a.jsonl'";
        let (batches, is_complete) = run_query(&query(folder, sql, change));
        let columns = batches[0].columns().iter();
        let row: Vec<String> = columns.map(|it| array_value_to_string(it, 0).unwrap()).collect();
        assert!(is_complete && row == ["20000", "199990000"], "{row:?}");
        let sql = "SELECT n FROM '$/a.jsonl' WHERE of = 7";
        let (batches, is_complete) = run_query(&query(folder, sql, change));
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert!(is_complete && count == 2_000, "{count}");
        let (batches, _) = run_query(&query(folder, &format!("{sql} LIMIT 5"), change));
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    }

    #[test]
    fn splits_missing_from_a_result_are_read_again() {
        check_answers(write_numbers(20_000).path(), TaskAlteration::DropLastSplit);
    }

    /// A worker that stops at a stall timeout of 0 also accounts for splits that were drawn and not begun.
    #[test]
    fn workers_account_for_each_split_of_a_task_that_ends_early() {
        let folder = write_numbers(20_000);
        (0..20).for_each(|_| check_answers(folder.path(), TaskAlteration::ZeroStallTimeout));
    }
}
