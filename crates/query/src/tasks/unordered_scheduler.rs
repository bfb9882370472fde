//! The task scheduler for results in any order: reduce tasks, writes of output files and conversions of
//! files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Error;
use tidemill_base::error::Result;
use tidemill_base::progress::{RunProgress, WorkerProgress};

use super::{SubmittedTask, TaskTime, WorkerPool};

/// Default number of lost workers after which a task fails the run.
pub(super) const TASK_ATTEMPTS_MAX: usize = 4;
/// Number of tasks for each thread that are submitted at a time.
const SUBMITTED_TASKS_PER_THREAD: usize = 4;
/// Poll interval for task outcomes and cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A task with its message, as a [`TaskSource`] creates it.
pub struct EncodedTask {
    /// Its expected cost, as a number of stored bytes.
    pub cost_bytes: u64,
    /// Its name in progress displays: `merge 3 of 40`.
    pub display_name: String,
    /// The message for a worker.
    pub encoded_task: Vec<u8>,
}

/// A source of tasks, which are numbered from 0, and the receiver of their results.
pub trait TaskSource {
    /// Returns the number of tasks. Accepted results may add more.
    fn task_count(&self) -> usize;

    /// Encodes a task. Called again if its worker is gone.
    ///
    /// # Errors
    /// Fails if the task cannot be encoded.
    fn encode_task(&mut self, number: usize) -> Result<EncodedTask>;

    /// Accepts the result of a task.
    ///
    /// # Errors
    /// The worker's error, if it ends the run.
    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats>;

    /// Describes the work of a task for the error after too many lost workers.
    fn work_description(&self, number: usize) -> String;
}

/// The cost of a finished task.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskStats {
    /// Its processor and wall time.
    pub time: TaskTime,
    /// Stored bytes of the input that it read.
    pub input_bytes: u64,
}

/// The task scheduler for tasks whose results may arrive in any order.
pub struct UnorderedScheduler<'a> {
    /// The workers.
    pub workers: &'a Arc<dyn WorkerPool>,
    /// Cancels the run.
    pub cancel: &'a CancelFlag,
    /// Receives the cost of each worker.
    pub progress: &'a RunProgress,
    /// The first task's number within the job.
    pub first_number: usize,
    /// Number of lost workers after which a task fails the run. Default: 4.
    pub attempts_max: Option<usize>,
}

impl UnorderedScheduler<'_> {
    /// Runs all tasks.
    ///
    /// # Errors
    /// The first error of [`TaskSource::accept_result`]. Also if a task loses too many workers, or none can
    /// be reached.
    pub fn run_tasks(&self, tasks: &mut dyn TaskSource) -> Result<()> {
        let ahead_max = SUBMITTED_TASKS_PER_THREAD * self.workers.worker_counts()?.threads.max(1);
        let attempts_max = self.attempts_max.unwrap_or(TASK_ATTEMPTS_MAX);
        let mut next = 0;
        // The submitted tasks, each with the number of its lost workers, which is the number of its attempt.
        let mut in_work: BTreeMap<usize, usize> = BTreeMap::new();
        while next < tasks.task_count() || !in_work.is_empty() {
            while next < tasks.task_count() && in_work.len() < ahead_max {
                self.submit_task(tasks, next, 0)?;
                in_work.insert(next, 0);
                next += 1;
            }
            self.cancel.check()?;
            let Some(done) = self.workers.next_outcome(POLL_INTERVAL)? else { continue };
            let Some(number) = done.number.checked_sub(self.first_number) else { continue };
            let Some(attempt) = in_work.get_mut(&number).filter(|it| **it == done.attempt) else {
                continue;
            };
            let tell = |change: &dyn Fn(&mut WorkerProgress)| {
                if let Some(name) = done.worker_name.as_deref() {
                    self.progress.update_worker(name, change);
                }
            };
            match done.result {
                Ok(content) => {
                    let TaskStats { time: took, input_bytes: bytes } =
                        tasks.accept_result(number, content)?;
                    tell(&|it| it.add_task(bytes, took.cpu, took.wall));
                    in_work.remove(&number);
                }
                Err(why) => {
                    tell(&|it| it.tasks_lost += 1);
                    *attempt += 1;
                    let times = *attempt;
                    if times >= attempts_max {
                        return Err(Error::Query(format!(
                            "a worker ended {} over {}: {why}\n\
                             hint: less --memory, if its machine has run out of it",
                            times_in_words(times),
                            tasks.work_description(number),
                        )));
                    }
                    self.submit_task(tasks, number, times)?;
                }
            }
        }
        Ok(())
    }

    fn submit_task(&self, tasks: &mut dyn TaskSource, number: usize, attempt: usize) -> Result<()> {
        let EncodedTask { cost_bytes: bytes, display_name: name, encoded_task: content } =
            tasks.encode_task(number)?;
        let number = self.first_number + number;
        self.workers.submit_task(SubmittedTask {
            number,
            attempt,
            cost_bytes: bytes,
            display_name: name,
            encoded_task: content,
        })
    }
}

/// Returns a number of times in words.
pub(super) fn times_in_words(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
