//! Tasks that come back in any order: those that merge ranges of tables, and those that convert files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Error;
use tidemill_base::error::Result;
use tidemill_base::progress::{RunProgress, WorkerProgress};

use super::{Handed, Took, Workers};

/// A task that takes its worker down so often fails the run, unless the user says otherwise.
pub(super) const ATTEMPTS_MAX: usize = 4;
/// So many tasks for each thread are dealt at once.
const AHEAD_PER_THREAD: usize = 4;
/// How long it is waited for a message before it is looked whether the run has ended.
const TICK: Duration = Duration::from_millis(50);

/// A task on its way: what is expected of its cost in bytes, what it is called, and what a worker takes.
pub struct NewTask {
    /// Its bytes as stored.
    pub bytes: u64,
    /// `merge 3 of 40`.
    pub name: String,
    /// The message.
    pub content: Vec<u8>,
}

/// What is to be done, by numbers from 0 on.
pub trait Tasks {
    /// How many there are; more may come of what was taken.
    fn count(&self) -> usize;

    /// One of them; asked again where its worker is gone.
    ///
    /// # Errors
    /// Where it cannot be said.
    fn task(&mut self, number: usize) -> Result<NewTask>;

    /// Takes what came of one, with the name of whoever did it.
    ///
    /// # Errors
    /// The worker's, if nothing else is to be done then.
    fn take(&mut self, number: usize, content: Vec<u8>) -> Result<Came>;

    /// What one is of, where so many workers ended over it.
    fn name(&self, number: usize) -> String;
}

/// What came of a task.
#[derive(Debug, Clone, Copy, Default)]
pub struct Came {
    /// What it took.
    pub took: Took,
    /// What it has read of the input, in bytes as stored.
    pub bytes: u64,
}

/// Who does them, and how.
pub struct Unordered<'a> {
    /// Who.
    pub workers: &'a Arc<dyn Workers>,
    /// Stops the run.
    pub cancel: &'a CancelFlag,
    /// Is told who did what.
    pub progress: &'a RunProgress,
    /// What the first one's number is to workers.
    pub first: usize,
    /// So many workers may end over one.
    pub attempts_max: Option<usize>,
}

impl Unordered<'_> {
    /// Has all of them done.
    ///
    /// # Errors
    /// The first that [`Tasks::take`] gives; where so many workers are gone, or none can be reached.
    pub fn run(&self, tasks: &mut dyn Tasks) -> Result<()> {
        let ahead_max = AHEAD_PER_THREAD * self.workers.reach()?.threads.max(1);
        let attempts_max = self.attempts_max.unwrap_or(ATTEMPTS_MAX);
        let mut next = 0;
        // Each with how often its worker was gone, which is the number of its attempt.
        let mut in_work: BTreeMap<usize, usize> = BTreeMap::new();
        while next < tasks.count() || !in_work.is_empty() {
            while next < tasks.count() && in_work.len() < ahead_max {
                self.hand_in(tasks, next, 0)?;
                in_work.insert(next, 0);
                next += 1;
            }
            self.cancel.check()?;
            let Some(done) = self.workers.next(TICK)? else { continue };
            let Some(number) = done.number.checked_sub(self.first) else { continue };
            let Some(attempt) = in_work.get_mut(&number).filter(|it| **it == done.attempt) else {
                continue;
            };
            let tell = |change: &dyn Fn(&mut WorkerProgress)| {
                if let Some(name) = done.worker.as_deref() {
                    self.progress.update_worker(name, change);
                }
            };
            match done.outcome {
                Ok(content) => {
                    let Came { took, bytes } = tasks.take(number, content)?;
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
                            times_of(times),
                            tasks.name(number),
                        )));
                    }
                    self.hand_in(tasks, number, times)?;
                }
            }
        }
        Ok(())
    }

    fn hand_in(&self, tasks: &mut dyn Tasks, number: usize, attempt: usize) -> Result<()> {
        let NewTask { bytes, name, content } = tasks.task(number)?;
        let number = self.first + number;
        self.workers.submit(Handed { number, attempt, bytes, name, content })
    }
}

/// How often, in words.
pub(super) fn times_of(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
