//! Drawn splits on their way to workers, and what comes of them, in whichever order.
//!
//! What is wanted next is not known before: whoever draws the splits looks at the clock, and hands in a few at a time,
//! as workers come free. A task is as many of them as take a worker a small part of the time that is left: what is on
//! its way when that is up counts for nothing. Of each task one end is told.
//!
//! A part accounts for the splits of its task: those that were read, failed or stalled. The driver treats a split that
//! a part does not mention as stalled, and reads it again; else it would wait for the split until the deadline, or
//! forever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, WorkerProgress};
use tidemill_source::{Split, SplitStats};

use super::dealer::Dealer;
use super::task::{NotRead, Part, Read, Task};
use super::unordered::times_of;
use super::{Handed, HandedJob, Reach, Workers};
use crate::scan::{Outcome, Scan};
use crate::turbo::drawing::may_be_left_out;

/// A worker has so many tasks at hand or on their way to it.
const AHEAD: usize = 3;
/// A task is to take so long …
const TASK_TAKES: Duration = Duration::from_millis(100);
/// … and no more than one part in so many of the time that is left.
const TASK_SHARE: u32 = 20;
/// So many splits are one task at most.
const SPLITS_MAX: usize = 256;
/// It is waited for what stalls one part in so many of the time that is left, …
const PATIENCE_SHARE: u32 = 8;
/// … no longer than this, …
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// … and what has stalled once, as long as it takes.
const PATIENCE_AGAIN: Duration = Duration::from_secs(366 * 24 * 3600);
/// A new pace counts for so much against those of before.
const PACE_WEIGHT: f64 = 0.3;

/// Tasks of drawn splits.
pub(crate) struct Drawn {
    workers: Arc<dyn Workers>,
    reach: Reach,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    attempts_max: usize,
    /// A task that has more than one split has so many bytes at most.
    bytes_max: u64,
    in_work: BTreeMap<usize, InWork>,
    /// The number of the next task.
    next: usize,
    /// The seconds that a byte takes a worker, once that is known.
    pace: Option<f64>,
}

/// A task that was handed in.
struct InWork {
    splits: Vec<usize>,
    bytes: u64,
    patience: Duration,
    /// How often its worker was gone.
    lost: usize,
}

/// What came of a task.
pub(crate) struct Returned {
    /// Its splits, by their places among all.
    pub splits: Vec<usize>,
    /// What was read of them.
    pub read: Vec<(usize, u64, Outcome)>,
    /// What could not be, and why.
    pub failed: Vec<(usize, Error)>,
    /// What stalled.
    pub stalled: Vec<usize>,
    /// How many began elsewhere than they seemed to.
    pub wrong_starts: u64,
    /// Its groups or rows.
    pub part: Part,
}

impl Returned {
    /// Of a split of which nothing came.
    fn failed(splits: Vec<usize>, error: Error) -> Self {
        let failed = splits.first().map(|split| (*split, error)).into_iter().collect();
        let (read, stalled, part) = (Vec::new(), Vec::new(), Part::default());
        Returned { splits, read, failed, stalled, wrong_starts: 0, part }
    }
}

impl Drawn {
    /// Says what the tasks are of.
    ///
    /// # Errors
    /// As [`Workers::begin`].
    pub(super) fn start(
        workers: &Arc<dyn Workers>,
        job: HandedJob,
        scan: &Arc<Scan>,
        (cancel, progress): (&CancelFlag, &RunProgress),
        (attempts_max, bytes_max): (usize, u64),
    ) -> Result<Self> {
        workers.begin(job)?;
        Ok(Drawn {
            workers: Arc::clone(workers),
            reach: workers.reach()?,
            scan: Arc::clone(scan),
            cancel: cancel.clone(),
            progress: progress.clone(),
            attempts_max,
            bytes_max,
            in_work: BTreeMap::new(),
            next: 0,
            pace: None,
        })
    }

    /// Whether a worker is to be given more.
    pub(crate) fn has_room(&self) -> bool {
        self.in_work.len() < AHEAD * self.reach.workers.max(1)
    }

    /// Takes from `next` as many splits as make a task with so much time left, and hands them in; false where there
    /// are none. `splits_max` are one task at most.
    ///
    /// # Errors
    /// Where no worker can be reached.
    pub(crate) fn hand_in_next(
        &mut self,
        next: &mut dyn FnMut() -> Option<usize>,
        left: Option<Duration>,
        splits_max: usize,
    ) -> Result<bool> {
        let takes = left.map_or(TASK_TAKES, |left| TASK_TAKES.min(left / TASK_SHARE));
        let threads = (self.reach.threads / self.reach.workers.max(1)).max(1);
        let (mut splits, mut bytes) = (Vec::new(), 0);
        while splits.len() < splits_max.min(SPLITS_MAX) {
            let expected = self.pace.map(|pace| bytes as f64 * pace);
            let is_enough = match expected {
                Some(seconds) => seconds >= takes.as_secs_f64() || bytes >= self.bytes_max,
                // As long as nobody knows how long they take: one for each of its threads.
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
        let patience = left.map_or(PATIENCE_MAX, |left| PATIENCE_MAX.min(left / PATIENCE_SHARE));
        self.hand_in(InWork { splits, bytes, patience, lost: 0 })?;
        Ok(true)
    }

    /// Hands a split in that has stalled before: it is waited for.
    ///
    /// # Errors
    /// Where no worker can be reached.
    pub(crate) fn hand_in_again(&mut self, split: usize) -> Result<()> {
        let bytes = self.split(split)?.bytes;
        self.hand_in(InWork { splits: vec![split], bytes, patience: PATIENCE_AGAIN, lost: 0 })
    }

    fn hand_in(&mut self, task: InWork) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.submit(number, &task)?;
        self.in_work.insert(number, task);
        Ok(())
    }

    fn submit(&self, number: usize, task: &InWork) -> Result<()> {
        let splits = task.splits.iter().map(|index| self.split(*index).cloned());
        let splits = splits.collect::<Result<Vec<_>>>()?;
        let (files, splits) = self.scan.source().describe_splits(&splits)?;
        let patience_ms = u64::try_from(task.patience.as_millis()).unwrap_or(u64::MAX);
        let content = Task { files, splits, patience_ms: Some(patience_ms) }.encoded()?;
        let (first, count) = (task.splits.first().map_or(0, |it| it + 1), task.splits.len());
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        self.workers.submit(Handed {
            number,
            attempt: task.lost,
            // They are done in the order in which they were drawn, and what has stalled behind all others.
            bytes: u64::from(task.patience != PATIENCE_AGAIN),
            name: format!("split {first} of {}{more}", self.scan.splits().len()),
            content,
        })
    }

    fn split(&self, index: usize) -> Result<&Split> {
        self.scan.splits().get(index).ok_or_else(Dealer::of_others)
    }

    /// What has become of a task; none where nothing has after so long.
    ///
    /// # Errors
    /// What a task as a whole met; where so many workers are gone over one.
    pub(crate) fn next(&mut self, wait: Duration) -> Result<Option<Returned>> {
        self.cancel.check()?;
        let Some(done) = self.workers.next(wait)? else { return Ok(None) };
        let Some(task) = self.in_work.get_mut(&done.number) else { return Ok(None) };
        if task.lost != done.attempt {
            return Ok(None);
        }
        let tell = |change: &dyn Fn(&mut WorkerProgress)| {
            if let Some(name) = done.worker.as_deref() {
                self.progress.update_worker(name, change);
            }
        };
        let content = match done.outcome {
            Ok(content) => content,
            Err(why) => {
                tell(&|it| it.tasks_lost += 1);
                task.lost += 1;
                if task.lost >= self.attempts_max {
                    return Err(self.poisoned(done.number, &why));
                }
                if let Some(task) = self.in_work.get(&done.number) {
                    self.submit(done.number, task)?;
                }
                return Ok(None);
            }
        };
        let Some(InWork { splits, bytes, patience, .. }) = self.in_work.remove(&done.number) else {
            return Ok(None);
        };
        let mut part = match Part::decoded(content) {
            Ok(part) => part,
            // A file that cannot be opened, say: which of them it is each tells for itself.
            Err(error) if splits.len() > 1 && may_be_left_out(&error) => {
                for split in splits {
                    let bytes = self.split(split)?.bytes;
                    let splits = vec![split];
                    self.hand_in(InWork { splits, bytes, patience: PATIENCE_MAX, lost: 0 })?;
                }
                return Ok(None);
            }
            Err(error) => return Ok(Some(Returned::failed(splits, error))),
        };
        let took = part.took;
        self.progress.map_counters().add_worker_cpu(took.cpu);
        tell(&|it| it.add_task(bytes, took.cpu, took.wall));
        let NotRead { failed, stalled: _, wrong_starts, is_cut_short } =
            std::mem::take(&mut part.not_read);
        let of_task = |place: usize| splits.get(place).copied().ok_or_else(Dealer::of_others);
        let read = |Read { place, is_exact, mapped_rows, stats }: Read| -> Result<_> {
            let index = of_task(place)?;
            let stats = SplitStats::from_description(stats, self.split(index)?)?;
            Ok((index, mapped_rows, Outcome { stats, is_exact }))
        };
        let read = part.read.drain(..).map(read).collect::<Result<Vec<_>>>()?;
        let failed = failed.into_iter().map(|(place, why)| Ok((of_task(place)?, why.into())));
        let failed = failed.collect::<Result<Vec<_>>>()?;
        let stalled = match is_cut_short {
            true => Vec::new(),
            false => unaccounted(&splits, &read, &failed),
        };
        if patience == PATIENCE_AGAIN && !stalled.is_empty() {
            // The worker had to wait for these splits. Dealing them again would go on forever.
            return Err(Dealer::of_others());
        }
        if bytes > 0 && stalled.is_empty() {
            let pace = took.wall.as_secs_f64() / bytes as f64;
            let before = self.pace.unwrap_or(pace);
            self.pace = Some(before + (pace - before) * PACE_WEIGHT);
        }
        Ok(Some(Returned { splits, read, failed, stalled, wrong_starts, part }))
    }

    fn poisoned(&self, number: usize, why: &str) -> Error {
        let task = self.in_work.get(&number);
        let first = task.and_then(|task| self.split(*task.splits.first()?).ok());
        let place = first.and_then(|split| split.parts.first()).map(|piece| {
            format!(", `{}` from byte {} on", piece.file.display_name(), piece.range.start)
        });
        Error::Query(format!(
            "a worker ended {} over the same splits{}: {why}\n\
             hint: read that file alone on one machine, with less --memory, to see what it does",
            times_of(task.map_or(0, |task| task.lost)),
            place.unwrap_or_default(),
        ))
    }

    /// What is on its way: splits that are read, and those that have stalled before.
    pub(crate) fn on_their_way(&self) -> (Vec<usize>, Vec<usize>) {
        let of = |again: bool| {
            let tasks = self.in_work.values();
            let tasks = tasks.filter(|task| (task.patience == PATIENCE_AGAIN) == again);
            tasks.flat_map(|task| task.splits.iter().copied()).collect()
        };
        (of(false), of(true))
    }
}

/// Returns the splits of a task that were neither read nor failed. They have stalled, whether or not the part names
/// them.
fn unaccounted(
    splits: &[usize],
    read: &[(usize, u64, Outcome)],
    failed: &[(usize, Error)],
) -> Vec<usize> {
    let read = read.iter().map(|(split, ..)| *split);
    let accounted: BTreeSet<usize> = read.chain(failed.iter().map(|(split, _)| *split)).collect();
    splits.iter().copied().filter(|split| !accounted.contains(split)).collect()
}

impl Drop for Drawn {
    fn drop(&mut self) {
        self.workers.end();
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

    use super::super::Done;
    use super::super::task::Told;
    use super::super::worker::Worker;
    use super::*;
    use crate::{Plan, Query, Turbo};

    /// A change to a task before the worker reads it.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Change {
        /// Drops the last split of a task that has several, so that its part does not account for it.
        Forget,
        /// Sets the patience to 0 ms, so that splits without new data stall at once.
        Hurry,
    }

    /// One worker, which runs tasks in order, each when the driver waits for it. Returns an error if the driver waits
    /// although no task is left.
    struct Changed {
        change: Change,
        state: Mutex<(Option<Worker>, VecDeque<Handed>)>,
    }

    impl std::fmt::Debug for Changed {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.change.fmt(f)
        }
    }

    impl Workers for Changed {
        fn reach(&self) -> Result<Reach> {
            Ok(Reach { machines: 1, workers: 1, threads: 4, is_here: true })
        }

        fn begin(&self, job: HandedJob) -> Result<()> {
            let settings = RunSettings { threads: 4, ..RunSettings::new(64 << 20) };
            let worker = Worker::new(&job.content, &settings, &StorageOptions::default(), &[])?;
            *self.state.lock() = (Some(worker), VecDeque::new());
            Ok(())
        }

        fn submit(&self, task: Handed) -> Result<()> {
            self.state.lock().1.push_back(task);
            Ok(())
        }

        fn next(&self, _: Duration) -> Result<Option<Done>> {
            let (worker, waiting) = &mut *self.state.lock();
            let (Some(worker), Some(handed)) = (worker, waiting.pop_front()) else {
                return Err(Error::Internal("the driver waits, and nothing is left to do".into()));
            };
            let Told::Read(mut task) = Told::decoded(&handed.content)? else {
                return Err(Error::Internal("another task".into()));
            };
            match self.change {
                Change::Forget if task.splits.len() > 1 => drop(task.splits.pop()),
                Change::Hurry if task.splits.len() > 1 => task.patience_ms = Some(0),
                _ => {}
            }
            let count = task.splits.len();
            let content = worker.run(&task.encoded()?, 0);
            if let Ok(part) = Part::decoded(content.clone()) {
                let NotRead { failed, stalled, .. } = &part.not_read;
                let read = part.read.iter().map(|read| read.place);
                let mut told: Vec<usize> = read.chain(failed.iter().map(|it| it.0)).collect();
                told.extend(stalled);
                told.sort_unstable();
                // The part mentions each split once, unless the worker stopped because it had found all wanted rows.
                let is_cut_short = part.not_read.is_cut_short;
                assert!(is_cut_short || told.iter().copied().eq(0..count), "{told:?} of {count}");
            }
            let Handed { number, attempt, .. } = handed;
            Ok(Some(Done { number, attempt, worker: None, outcome: Ok(content) }))
        }

        fn end(&self) {
            self.state.lock().1.clear();
        }
    }

    fn answered(query: &Query) -> (Vec<RecordBatch>, bool) {
        let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
        let mut results = Plan::new(query, &settings).and_then(Plan::run).unwrap();
        let batches = results.by_ref().collect::<Result<Vec<_>>>().unwrap();
        (batches, results.coverage().complete)
    }

    fn query(folder: &Path, sql: &str, change: Change) -> Query {
        let mut turbo = Turbo::default();
        turbo.set("deadline", "1h").unwrap();
        turbo.set("split_bytes", "1k").unwrap();
        turbo.set("no_intervals", "true").unwrap();
        let workers: Arc<dyn Workers> = Arc::new(Changed { change, state: Mutex::default() });
        Query {
            sql: sql.replace('$', folder.to_str().unwrap()),
            turbo: turbo.checked().unwrap(),
            workers: Some(workers),
            ..Query::default()
        }
    }

    fn numbers(rows: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let lines = (0..rows).map(|n| format!("{{\"n\": {n}, \"of\": {}}}\n", n % 10));
        std::fs::write(folder.path().join("a.jsonl"), lines.collect::<String>()).unwrap();
        folder
    }

    /// Checks the count and sum of 20,000 rows, and the number of rows of a filter with and without a limit.
    fn check(folder: &Path, change: Change) {
        let sql = "SELECT count(*) AS n, sum(n) AS total FROM '$/a.jsonl'";
        let (batches, is_complete) = answered(&query(folder, sql, change));
        let columns = batches[0].columns().iter();
        let row: Vec<String> = columns.map(|it| array_value_to_string(it, 0).unwrap()).collect();
        assert!(is_complete && row == ["20000", "199990000"], "{row:?}");
        let sql = "SELECT n FROM '$/a.jsonl' WHERE of = 7";
        let (batches, is_complete) = answered(&query(folder, sql, change));
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert!(is_complete && count == 2_000, "{count}");
        let (batches, _) = answered(&query(folder, &format!("{sql} LIMIT 5"), change));
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    }

    #[test]
    fn splits_that_a_part_does_not_account_for_are_read_again() {
        check(numbers(20_000).path(), Change::Forget);
    }

    /// A worker that stops as soon as no new data has come also accounts for splits that were drawn and not begun.
    #[test]
    fn workers_account_for_each_split_of_a_task_that_ends_early() {
        let folder = numbers(20_000);
        (0..20).for_each(|_| check(folder.path(), Change::Hurry));
    }
}
