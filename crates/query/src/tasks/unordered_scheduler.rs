//! Tasks that come back in any order: those that merge ranges of tables, and those that convert files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Error;
use tidemill_base::error::Result;
use tidemill_base::progress::{RunProgress, WorkerProgress};

use super::{SubmittedTask, TaskTime, WorkerPool};

/// A task that takes its worker down so often fails the run, unless the user says otherwise.
pub(super) const TASK_ATTEMPTS_MAX: usize = 4;
/// So many tasks for each thread are dealt at once.
const SUBMITTED_TASKS_PER_THREAD: usize = 4;
/// How long it is waited for a message before it is looked whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A task on its way: what is expected of its cost in bytes, what it is called, and what a worker takes.
pub struct EncodedTask {
    /// Its bytes as stored.
    pub cost_bytes: u64,
    /// `merge 3 of 40`.
    pub display_name: String,
    /// The message.
    pub encoded_task: Vec<u8>,
}

/// What is to be done, by numbers from 0 on.
pub trait TaskSource {
    /// How many there are; more may come of what was taken.
    fn task_count(&self) -> usize;

    /// One of them; asked again where its worker is gone.
    ///
    /// # Errors
    /// Where it cannot be said.
    fn encode_task(&mut self, number: usize) -> Result<EncodedTask>;

    /// Takes what came of one, with the name of whoever did it.
    ///
    /// # Errors
    /// The worker's, if nothing else is to be done then.
    fn accept_result(&mut self, number: usize, content: Vec<u8>) -> Result<TaskStats>;

    /// What one is of, where so many workers ended over it.
    fn work_description(&self, number: usize) -> String;
}

/// What came of a task.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskStats {
    /// What it took.
    pub time: TaskTime,
    /// What it has read of the input, in bytes as stored.
    pub input_bytes: u64,
}

/// Who does them, and how.
pub struct UnorderedScheduler<'a> {
    /// Who.
    pub workers: &'a Arc<dyn WorkerPool>,
    /// Stops the run.
    pub cancel: &'a CancelFlag,
    /// Is told who did what.
    pub progress: &'a RunProgress,
    /// What the first one's number is to workers.
    pub first_number: usize,
    /// So many workers may end over one.
    pub attempts_max: Option<usize>,
}

impl UnorderedScheduler<'_> {
    /// Has all of them done.
    ///
    /// # Errors
    /// The first that [`Tasks::take`] gives; where so many workers are gone, or none can be reached.
    pub fn run_tasks(&self, tasks: &mut dyn TaskSource) -> Result<()> {
        let ahead_max = SUBMITTED_TASKS_PER_THREAD * self.workers.worker_counts()?.threads.max(1);
        let attempts_max = self.attempts_max.unwrap_or(TASK_ATTEMPTS_MAX);
        let mut next = 0;
        // Each with how often its worker was gone, which is the number of its attempt.
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

/// How often, in words.
pub(super) fn times_in_words(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
