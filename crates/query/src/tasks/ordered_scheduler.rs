//! The task scheduler for ordered queries: submits a query's tasks and returns their results in split order.
//!
//! The scheduler submits tasks in split order, so far ahead of the gate that no worker waits for another. A
//! result that arrives before its turn waits in memory, whose size is limited. The scheduler submits a task
//! only if the expected results fit, by the ratio of result bytes to split bytes so far.
//!
//! It resubmits a task whose worker is gone, up to a maximum number of attempts. It also resubmits a task
//! whose first split began at the wrong offset, now with the right one; the gate has passed nothing of that
//! task.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, WorkerProgress};
use tidemill_source::Split;

use super::cluster_job::corrupt_message_error;
use super::task_messages::{ReadTask, TaskResult};
use super::unordered_scheduler::{UnorderedScheduler, times_in_words};
use super::{SubmittedJob, SubmittedTask, WorkerPool};
use crate::execution::scan::Scan;

/// Maximum number of splits in a task.
const TASK_SPLITS_MAX: usize = 64;
/// Number of tasks for each thread that are submitted ahead of the gate.
const LOOKAHEAD_TASKS_PER_THREAD: usize = 4;
/// Factor by which more tasks are submitted ahead while they are small: up to `SMALL_TASK_BYTES_PER_THREAD`
/// together.
const SMALL_TASK_LOOKAHEAD_FACTOR: usize = 16;
const SMALL_TASK_BYTES_PER_THREAD: u64 = 4 << 20;
/// Poll interval for task outcomes and cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Limits by which splits are grouped into tasks and tasks are submitted.
#[derive(Debug, Clone)]
pub(super) struct TaskSizing {
    /// Target number of tasks for each thread, if there are that many splits.
    pub tasks_per_thread: usize,
    /// Maximum number of bytes in a task of several splits.
    pub task_bytes_max: u64,
    /// Assumed ratio of a result's bytes to those of its splits, until the first result arrives.
    pub result_bytes_ratio: f64,
    /// Maximum number of bytes in results that wait for their turn.
    pub waiting_bytes_max: u64,
    /// Number of lost workers after which a task fails the query.
    pub attempts_max: usize,
}

/// The task scheduler of a query whose results are taken in split order.
pub(super) struct OrderedScheduler {
    workers: Arc<dyn WorkerPool>,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    sizing: TaskSizing,
    lookahead_tasks_max: usize,
    /// Each task's splits, as a range of indices.
    task_ranges: Vec<Range<usize>>,
    /// Number of earlier attempts of each resubmitted task.
    attempts: BTreeMap<usize, usize>,
    /// Number of lost workers of each task that lost any.
    lost_worker_counts: BTreeMap<usize, usize>,
    /// The start offset of each task that was resubmitted with a known one.
    exact_starts: BTreeMap<usize, u64>,
    lookahead: Lookahead,
    /// Results that arrived before their turn, and their bytes.
    waiting_results: BTreeMap<usize, Result<TaskResult>>,
    waiting_bytes: u64,
    /// Bytes of all results so far, and of their splits.
    result_bytes: u64,
    split_bytes: u64,
    /// End offset of the last split that passed the gate, and the index of its file.
    last_split_end: Option<(usize, u64)>,
}

/// The window of tasks that were submitted and have not passed the gate, and the bytes of their splits. The
/// sums are updated task by task: there may be 64 tasks ahead for each of many threads, and each submission
/// reads the sums.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lookahead {
    /// Number of tasks that passed the gate, which is the number of the next one to pass.
    passed_count: usize,
    /// Number of submitted tasks, which is the number of the next one to submit. At least `passed_count`.
    submitted_count: usize,
    /// Bytes of the tasks in the window.
    window_bytes: u64,
    /// Bytes of those tasks in the window that have not returned.
    running_bytes: u64,
}

impl Lookahead {
    /// Records that the next task was submitted.
    fn record_submitted(&mut self, bytes: u64) {
        self.submitted_count += 1;
        self.window_bytes += bytes;
        self.running_bytes += bytes;
    }

    /// Records that a task returned.
    fn record_returned(&mut self, bytes: u64) {
        self.running_bytes -= bytes;
    }

    /// Records that a returned task was submitted again.
    fn record_resubmitted(&mut self, bytes: u64) {
        self.running_bytes += bytes;
    }

    /// Records that the first task of the window, which had returned, passed the gate.
    fn record_passed(&mut self, bytes: u64) {
        self.passed_count += 1;
        self.window_bytes -= bytes;
    }

    /// Returns the number of tasks in the window.
    fn count(&self) -> usize {
        self.submitted_count - self.passed_count
    }

    /// Returns true if a task is in the window.
    fn contains(&self, number: usize) -> bool {
        (self.passed_count..self.submitted_count).contains(&number)
    }
}

/// Groups splits into tasks of about equal size. Returns each task as a range of split indices.
pub(super) fn group_splits_into_tasks(
    splits: &[Split],
    threads: usize,
    cutting: &TaskSizing,
) -> Vec<Range<usize>> {
    let total: u64 = splits.iter().map(|split| split.bytes).sum();
    let wanted = (threads.max(1) * cutting.tasks_per_thread) as u64;
    let target = total.div_ceil(wanted).clamp(1, cutting.task_bytes_max.max(1));
    let (mut tasks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (place, split) in splits.iter().enumerate() {
        bytes += split.bytes;
        if bytes >= target || place + 1 - start >= TASK_SPLITS_MAX || place + 1 == splits.len() {
            tasks.push(start..place + 1);
            (start, bytes) = (place + 1, 0);
        }
    }
    tasks
}

impl OrderedScheduler {
    /// Starts the job. The first tasks are submitted when the first result is requested.
    ///
    /// # Errors
    /// Fails as [`WorkerPool::start_job`].
    pub(super) fn start_job(
        workers: &Arc<dyn WorkerPool>,
        job: SubmittedJob,
        scan: Arc<Scan>,
        (cancel, progress): (&CancelFlag, &RunProgress),
        cutting: TaskSizing,
    ) -> Result<Self> {
        workers.start_job(job)?;
        let threads = workers.worker_counts()?.threads;
        let tasks = group_splits_into_tasks(scan.splits(), threads, &cutting);
        Ok(OrderedScheduler {
            workers: Arc::clone(workers),
            scan,
            cancel: cancel.clone(),
            progress: progress.clone(),
            sizing: cutting,
            lookahead_tasks_max: LOOKAHEAD_TASKS_PER_THREAD * threads.max(1),
            task_ranges: tasks,
            attempts: BTreeMap::new(),
            lost_worker_counts: BTreeMap::new(),
            exact_starts: BTreeMap::new(),
            lookahead: Lookahead::default(),
            waiting_results: BTreeMap::new(),
            waiting_bytes: 0,
            result_bytes: 0,
            split_bytes: 0,
            last_split_end: None,
        })
    }

    /// Returns true if all results were returned.
    pub(super) fn has_ended(&self) -> bool {
        self.lookahead.passed_count >= self.task_ranges.len()
    }

    /// Returns the next task's result and the indices of its splits, or `None` at the end.
    ///
    /// # Errors
    /// The first error of a split, in split order.
    pub(super) fn next_result(&mut self) -> Result<Option<(Range<usize>, TaskResult)>> {
        while !self.has_ended() {
            self.submit_lookahead()?;
            let number = self.lookahead.passed_count;
            if let Some(part) = self.waiting_results.remove(&number) {
                self.waiting_bytes -= part.as_ref().map_or(0, TaskResult::encoded_bytes);
                if let Some(start) = self.corrected_start(number, &part) {
                    self.exact_starts.insert(number, start);
                    self.lookahead.record_resubmitted(total_split_bytes(self.task_splits(number)));
                    self.resubmit_task(number)?;
                    continue;
                }
                let part = part?;
                let places = self.task_ranges.get(number).cloned().unwrap_or_default();
                let read_last = part.split_reports.last();
                let split =
                    read_last.and_then(|last| self.scan.splits().get(places.start + last.place));
                let piece = split.and_then(|split| split.parts.last());
                self.last_split_end = piece
                    .zip(read_last.and_then(|last| last.stats.next_record_offset()))
                    .map(|(piece, end)| (piece.file.index(), end));
                self.lookahead.record_passed(total_split_bytes(self.task_splits(number)));
                return Ok(Some((places, part)));
            }
            self.cancel.check()?;
            self.receive_outcome()?;
        }
        Ok(None)
    }

    /// Waits up to `POLL_INTERVAL` for an outcome and records it.
    fn receive_outcome(&mut self) -> Result<()> {
        let Some(done) = self.workers.next_outcome(POLL_INTERVAL)? else { return Ok(()) };
        let attempt = self.attempts.get(&done.number).copied().unwrap_or(0);
        let is_expected = self.lookahead.contains(done.number)
            && !self.waiting_results.contains_key(&done.number);
        if !is_expected || done.attempt != attempt {
            return Ok(());
        }
        let worker = done.worker_name.as_deref();
        let stored = total_split_bytes(self.task_splits(done.number));
        match done.result {
            Ok(content) => {
                let part = TaskResult::decode(content);
                if let Ok(part) = &part {
                    let took = part.time;
                    self.progress.map_counters().add_worker_cpu(took.cpu);
                    if let Some(name) = worker {
                        let add =
                            |it: &mut WorkerProgress| it.add_task(stored, took.cpu, took.wall);
                        self.progress.update_worker(name, add);
                    }
                    self.waiting_bytes += part.encoded_bytes();
                    self.result_bytes += part.encoded_bytes();
                    self.split_bytes += stored;
                }
                self.lookahead.record_returned(stored);
                self.waiting_results.insert(done.number, part);
                Ok(())
            }
            Err(why) => {
                if let Some(name) = worker {
                    self.progress.update_worker(name, |it| it.tasks_lost += 1);
                }
                self.retry_lost_task(done.number, &why)
            }
        }
    }

    /// Submits as many tasks as the window and the memory for results allow.
    fn submit_lookahead(&mut self) -> Result<()> {
        while self.lookahead.submitted_count < self.task_ranges.len()
            && self.is_within_lookahead()
            && self.has_room_for_results()
        {
            let number = self.lookahead.submitted_count;
            self.submit_task(number)?;
            self.lookahead.record_submitted(total_split_bytes(self.task_splits(number)));
        }
        Ok(())
    }

    /// Returns true if the next task is not too far ahead of the gate.
    fn is_within_lookahead(&self) -> bool {
        let count = self.lookahead.count();
        let small_max = SMALL_TASK_BYTES_PER_THREAD
            * (self.lookahead_tasks_max / LOOKAHEAD_TASKS_PER_THREAD) as u64;
        let is_small = self.lookahead.window_bytes <= small_max;
        count < self.lookahead_tasks_max
            || count < SMALL_TASK_LOOKAHEAD_FACTOR * self.lookahead_tasks_max && is_small
    }

    /// Returns true if the expected results of the running tasks and of the next one fit. Always true for an
    /// empty window, so that one task is running.
    fn has_room_for_results(&self) -> bool {
        if self.lookahead.count() == 0 {
            return true;
        }
        let ratio = match self.split_bytes {
            0 => self.sizing.result_bytes_ratio,
            splits_bytes => self.result_bytes as f64 / splits_bytes as f64,
        };
        let in_work_bytes = self.lookahead.running_bytes
            + total_split_bytes(self.task_splits(self.lookahead.submitted_count));
        let held_bytes = self.waiting_bytes as f64 + in_work_bytes as f64 * ratio;
        held_bytes <= self.sizing.waiting_bytes_max as f64
    }

    /// Submits a task, with the exact start of its first split if that is known.
    fn submit_task(&self, number: usize) -> Result<()> {
        let splits = self.task_splits(number);
        let (files, mut described) = self.scan.source().describe_splits(splits)?;
        if let (Some(first), Some(start)) = (described.first_mut(), self.exact_starts.get(&number))
        {
            first.exact_start = Some(*start);
        }
        self.workers.submit_task(SubmittedTask {
            number,
            attempt: self.attempts.get(&number).copied().unwrap_or(0),
            cost_bytes: total_split_bytes(splits),
            display_name: format!("{} of {}", number + 1, self.task_ranges.len()),
            encoded_task: ReadTask { files, splits: described, patience_ms: None }.encode()?,
        })
    }

    fn task_splits(&self, number: usize) -> &[Split] {
        let places = self.task_ranges.get(number).cloned().unwrap_or_default();
        self.scan.splits().get(places).unwrap_or_default()
    }

    fn resubmit_task(&mut self, number: usize) -> Result<()> {
        *self.attempts.entry(number).or_default() += 1;
        self.submit_task(number)
    }

    /// Resubmits a task whose worker is gone, unless it lost too many workers.
    fn retry_lost_task(&mut self, number: usize, why: &str) -> Result<()> {
        let lost = self.lost_worker_counts.entry(number).or_default();
        *lost += 1;
        let lost = *lost;
        if lost >= self.sizing.attempts_max {
            let piece = self.task_splits(number).first().and_then(|split| split.parts.first());
            let place = piece.map_or(String::new(), |piece| {
                format!("`{}` from byte {} on", piece.file.display_name(), piece.range.start)
            });
            return Err(Error::Query(format!(
                "a worker ended {} over the same splits, {place}: {why}\n\
                 hint: read that file alone on one machine, with less --memory, to see what it does",
                times_in_words(lost)
            )));
        }
        self.resubmit_task(number)
    }

    /// Returns the run's progress counters.
    pub(super) fn progress(&self) -> &RunProgress {
        &self.progress
    }

    /// Returns a scheduler for tasks that follow all read tasks and another `behind` tasks.
    pub(super) fn unordered_scheduler(&self, behind: usize) -> UnorderedScheduler<'_> {
        UnorderedScheduler {
            workers: &self.workers,
            cancel: &self.cancel,
            progress: &self.progress,
            // Task numbers start behind those of earlier tasks, so late outcomes of these are ignored.
            first_number: self.task_ranges.len() + behind,
            attempts_max: Some(self.sizing.attempts_max),
        }
    }

    /// Returns the offset at which the first split of a task should have started, if it guessed another one.
    fn corrected_start(&self, number: usize, part: &Result<TaskResult>) -> Option<u64> {
        // An error that a wrong start caused looks like any other error.
        let first = self.task_splits(number).first()?;
        let file = first.parts.first()?.file.index();
        let (end_file, end) = self.last_split_end?;
        if end_file != file {
            return None;
        }
        match part {
            Ok(part) => {
                let read = part.split_reports.iter().find(|read| read.place == 0)?;
                (!read.is_exact && read.stats.first_record_offset() != Some(end)).then_some(end)
            }
            Err(_) => {
                let is_exact = self.scan.source().has_exact_starts();
                let may_be_wrong = !is_exact && !self.exact_starts.contains_key(&number);
                may_be_wrong.then_some(end)
            }
        }
    }

    /// Returns the error for a result that does not match the splits of its task.
    pub(super) fn mismatched_splits_error() -> Error {
        corrupt_message_error("a part is not of all splits of its task")
    }
}

impl Drop for OrderedScheduler {
    fn drop(&mut self) {
        self.workers.end_job();
    }
}

fn total_split_bytes(splits: &[Split]) -> u64 {
    splits.iter().map(|split| split.bytes).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sums equal those of a scan over all tasks in the window, whatever the order in which tasks
        /// return and are submitted again.
        #[test]
        fn lookahead_sums_match_a_scan_of_the_window(
            sizes in prop::collection::vec(0..1_000_000_u64, 1..60),
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..400),
        ) {
            let (mut lookahead, mut came) = (Lookahead::default(), BTreeSet::new());
            for (step, index) in steps {
                let (passed, dealt) = (lookahead.passed_count, lookahead.submitted_count);
                match step {
                    0 if dealt < sizes.len() => lookahead.record_submitted(sizes[dealt]),
                    1 => {
                        let in_work: Vec<_> =
                            (passed..dealt).filter(|number| !came.contains(number)).collect();
                        if !in_work.is_empty() {
                            let number = in_work[index.index(in_work.len())];
                            came.insert(number);
                            lookahead.record_returned(sizes[number]);
                        }
                    }
                    2 if came.remove(&passed) => lookahead.record_passed(sizes[passed]),
                    3 if came.remove(&passed) => lookahead.record_resubmitted(sizes[passed]),
                    _ => {}
                }
                let Lookahead { passed_count: passed, submitted_count: dealt, window_bytes, running_bytes } = lookahead;
                prop_assert_eq!(window_bytes, sizes[passed..dealt].iter().sum::<u64>());
                let in_work = (passed..dealt).filter(|number| !came.contains(number));
                prop_assert_eq!(running_bytes, in_work.map(|number| sizes[number]).sum::<u64>());
                prop_assert_eq!(lookahead.count(), dealt - passed);
                for number in 0..sizes.len() {
                    prop_assert_eq!(lookahead.contains(number), (passed..dealt).contains(&number));
                }
            }
        }
    }
}
