//! Deals a query's tasks out, and gives what came of them in the order of the splits.
//!
//! Tasks are dealt in the order of the splits, so many ahead of the gate that no worker waits for another. What came
//! back before its turn waits, in so many bytes at most: no more is dealt than is expected to fit, by what the parts
//! that came had for each byte of their splits. A task whose worker is gone is handed in again, so many times at most. A
//! task of which the first split began elsewhere than it should have is handed in again with the right start; nothing of
//! it has been given.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, WorkerProgress};
use tidemill_source::Split;

use super::job::bad;
use super::task::{Part, Task};
use super::unordered::{Unordered, times_of};
use super::{Handed, HandedJob, Workers};
use crate::scan::Scan;

/// So many splits are one task at most.
const SPLITS_MAX: usize = 64;
/// So many tasks for each thread are dealt ahead of the gate, …
const AHEAD_PER_THREAD: usize = 4;
/// … and of small ones so many times as many, as long as they have so many bytes a thread together.
const SMALL_AHEAD: usize = 16;
const SMALL_AHEAD_BYTES: u64 = 4 << 20;
/// How long it is waited for a message before it is looked whether the run has ended.
const TICK: Duration = Duration::from_millis(50);

/// How a query's splits are made tasks.
#[derive(Debug, Clone)]
pub(super) struct Cutting {
    /// Each thread gets about so many tasks, where there are so many splits.
    pub per_thread: usize,
    /// The most bytes of a task that has more than one split.
    pub bytes_max: u64,
    /// What is expected of a part's bytes for each byte of its splits, until the first has come.
    pub part_ratio: f64,
    /// What parts may take that wait for their turn, in bytes.
    pub held_bytes_max: u64,
    /// A task that takes its worker down so often fails the query.
    pub attempts_max: usize,
}

/// The tasks of a query on their way.
pub(super) struct Dealer {
    workers: Arc<dyn Workers>,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    cutting: Cutting,
    ahead_max: usize,
    /// The places of each task's splits.
    tasks: Vec<Range<usize>>,
    /// How often a task was handed in before, if it was.
    attempts: BTreeMap<usize, usize>,
    /// How often its worker was gone, if it was.
    lost: BTreeMap<usize, usize>,
    /// The tasks that were told where they start.
    told: BTreeMap<usize, u64>,
    lookahead: Lookahead,
    /// What came back before its turn, and what that takes.
    came: BTreeMap<usize, Result<Part>>,
    held_bytes: u64,
    /// Bytes of all parts that came, and of their splits.
    parts_bytes: u64,
    splits_bytes: u64,
    /// Where the last split that was given ended, and in which file.
    end: Option<(usize, u64)>,
}

/// The window of tasks that were dealt and not yet passed on, and the bytes of their splits. The sums are updated as
/// tasks come and go, because there may be 64 tasks ahead for each of many threads, and each of them reads the sums.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lookahead {
    /// Number of tasks passed on, which is the number of the next task to pass on.
    passed: usize,
    /// Number of tasks dealt, which is the number of the next task to deal. At least `passed`.
    dealt: usize,
    /// Bytes of the tasks dealt and not yet passed on.
    bytes: u64,
    /// Bytes of those among them that have not come back.
    in_work_bytes: u64,
}

impl Lookahead {
    /// Records that the next task was dealt.
    fn deal(&mut self, bytes: u64) {
        self.dealt += 1;
        self.bytes += bytes;
        self.in_work_bytes += bytes;
    }

    /// Records that a task has come back.
    fn take_in(&mut self, bytes: u64) {
        self.in_work_bytes -= bytes;
    }

    /// Records that a task that had come back was dealt again.
    fn deal_again(&mut self, bytes: u64) {
        self.in_work_bytes += bytes;
    }

    /// Records that the first task of the window, which had come back, was passed on.
    fn pass(&mut self, bytes: u64) {
        self.passed += 1;
        self.bytes -= bytes;
    }

    /// Returns the number of tasks dealt and not yet passed on.
    fn count(&self) -> usize {
        self.dealt - self.passed
    }

    /// Returns true if a task was dealt and not yet passed on.
    fn contains(&self, number: usize) -> bool {
        (self.passed..self.dealt).contains(&number)
    }
}

/// Runs of splits that are about equally large, as places among the splits.
pub(super) fn cut(splits: &[Split], threads: usize, cutting: &Cutting) -> Vec<Range<usize>> {
    let total: u64 = splits.iter().map(|split| split.bytes).sum();
    let wanted = (threads.max(1) * cutting.per_thread) as u64;
    let target = total.div_ceil(wanted).clamp(1, cutting.bytes_max.max(1));
    let (mut tasks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (place, split) in splits.iter().enumerate() {
        bytes += split.bytes;
        if bytes >= target || place + 1 - start >= SPLITS_MAX || place + 1 == splits.len() {
            tasks.push(start..place + 1);
            (start, bytes) = (place + 1, 0);
        }
    }
    tasks
}

impl Dealer {
    /// Says what the tasks are of; the first are dealt when something is asked for.
    ///
    /// # Errors
    /// As [`Workers::begin`].
    pub(super) fn start(
        workers: &Arc<dyn Workers>,
        job: HandedJob,
        scan: Arc<Scan>,
        (cancel, progress): (&CancelFlag, &RunProgress),
        cutting: Cutting,
    ) -> Result<Self> {
        workers.begin(job)?;
        let threads = workers.reach()?.threads;
        let tasks = cut(scan.splits(), threads, &cutting);
        Ok(Dealer {
            workers: Arc::clone(workers),
            scan,
            cancel: cancel.clone(),
            progress: progress.clone(),
            cutting,
            ahead_max: AHEAD_PER_THREAD * threads.max(1),
            tasks,
            attempts: BTreeMap::new(),
            lost: BTreeMap::new(),
            told: BTreeMap::new(),
            lookahead: Lookahead::default(),
            came: BTreeMap::new(),
            held_bytes: 0,
            parts_bytes: 0,
            splits_bytes: 0,
            end: None,
        })
    }

    /// Whether all tasks were given.
    pub(super) fn has_ended(&self) -> bool {
        self.lookahead.passed >= self.tasks.len()
    }

    /// The next task's part, and the places of its splits; none at the end.
    ///
    /// # Errors
    /// The first that a split, in split order, meets.
    pub(super) fn next(&mut self) -> Result<Option<(Range<usize>, Part)>> {
        while !self.has_ended() {
            self.deal()?;
            let number = self.lookahead.passed;
            if let Some(part) = self.came.remove(&number) {
                self.held_bytes -= part.as_ref().map_or(0, Part::bytes);
                if let Some(start) = self.right_start(number, &part) {
                    self.told.insert(number, start);
                    self.lookahead.deal_again(bytes(self.splits_of(number)));
                    self.hand_in_again(number)?;
                    continue;
                }
                let part = part?;
                let places = self.tasks.get(number).cloned().unwrap_or_default();
                let read_last = part.read.last();
                let split =
                    read_last.and_then(|last| self.scan.splits().get(places.start + last.place));
                let piece = split.and_then(|split| split.parts.last());
                self.end = piece
                    .zip(read_last.and_then(|last| last.stats.next_record_offset()))
                    .map(|(piece, end)| (piece.file.index(), end));
                self.lookahead.pass(bytes(self.splits_of(number)));
                return Ok(Some((places, part)));
            }
            self.cancel.check()?;
            self.take_in()?;
        }
        Ok(None)
    }

    /// Waits for what has become of a task, for a while.
    fn take_in(&mut self) -> Result<()> {
        let Some(done) = self.workers.next(TICK)? else { return Ok(()) };
        let attempt = self.attempts.get(&done.number).copied().unwrap_or(0);
        let is_expected =
            self.lookahead.contains(done.number) && !self.came.contains_key(&done.number);
        if !is_expected || done.attempt != attempt {
            return Ok(());
        }
        let worker = done.worker.as_deref();
        let stored = bytes(self.splits_of(done.number));
        match done.outcome {
            Ok(content) => {
                let part = Part::decoded(content);
                if let Ok(part) = &part {
                    let took = part.took;
                    self.progress.map_counters().add_worker_cpu(took.cpu);
                    if let Some(name) = worker {
                        let add =
                            |it: &mut WorkerProgress| it.add_task(stored, took.cpu, took.wall);
                        self.progress.update_worker(name, add);
                    }
                    self.held_bytes += part.bytes();
                    self.parts_bytes += part.bytes();
                    self.splits_bytes += stored;
                }
                self.lookahead.take_in(stored);
                self.came.insert(done.number, part);
                Ok(())
            }
            Err(why) => {
                if let Some(name) = worker {
                    self.progress.update_worker(name, |it| it.tasks_lost += 1);
                }
                self.again(done.number, &why)
            }
        }
    }

    /// Hands in as many tasks as may be ahead.
    fn deal(&mut self) -> Result<()> {
        while self.lookahead.dealt < self.tasks.len() && self.may_be_ahead() && self.has_room() {
            let number = self.lookahead.dealt;
            self.hand_in(number)?;
            self.lookahead.deal(bytes(self.splits_of(number)));
        }
        Ok(())
    }

    /// Whether the next is not too far ahead of the one whose turn it is.
    fn may_be_ahead(&self) -> bool {
        let count = self.lookahead.count();
        let small_max = SMALL_AHEAD_BYTES * (self.ahead_max / AHEAD_PER_THREAD) as u64;
        let is_small = self.lookahead.bytes <= small_max;
        count < self.ahead_max || count < SMALL_AHEAD * self.ahead_max && is_small
    }

    /// Whether what is to come of the tasks in work and of the next has a place. There always is one in work.
    fn has_room(&self) -> bool {
        if self.lookahead.count() == 0 {
            return true;
        }
        let ratio = match self.splits_bytes {
            0 => self.cutting.part_ratio,
            splits_bytes => self.parts_bytes as f64 / splits_bytes as f64,
        };
        let in_work_bytes =
            self.lookahead.in_work_bytes + bytes(self.splits_of(self.lookahead.dealt));
        let held_bytes = self.held_bytes as f64 + in_work_bytes as f64 * ratio;
        held_bytes <= self.cutting.held_bytes_max as f64
    }

    /// Hands a task in; its first split starts there, if that is known by now.
    fn hand_in(&self, number: usize) -> Result<()> {
        let splits = self.splits_of(number);
        let (files, mut described) = self.scan.source().describe_splits(splits)?;
        if let (Some(first), Some(start)) = (described.first_mut(), self.told.get(&number)) {
            first.exact_start = Some(*start);
        }
        self.workers.submit(Handed {
            number,
            attempt: self.attempts.get(&number).copied().unwrap_or(0),
            bytes: bytes(splits),
            name: format!("{} of {}", number + 1, self.tasks.len()),
            content: Task { files, splits: described, patience_ms: None }.encoded()?,
        })
    }

    fn splits_of(&self, number: usize) -> &[Split] {
        let places = self.tasks.get(number).cloned().unwrap_or_default();
        self.scan.splits().get(places).unwrap_or_default()
    }

    fn hand_in_again(&mut self, number: usize) -> Result<()> {
        *self.attempts.entry(number).or_default() += 1;
        self.hand_in(number)
    }

    /// Hands a task in again whose worker is gone.
    fn again(&mut self, number: usize, why: &str) -> Result<()> {
        let lost = self.lost.entry(number).or_default();
        *lost += 1;
        let lost = *lost;
        if lost >= self.cutting.attempts_max {
            let piece = self.splits_of(number).first().and_then(|split| split.parts.first());
            let place = piece.map_or(String::new(), |piece| {
                format!("`{}` from byte {} on", piece.file.display_name(), piece.range.start)
            });
            return Err(Error::Query(format!(
                "a worker ended {} over the same splits, {place}: {why}\n\
                 hint: read that file alone on one machine, with less --memory, to see what it does",
                times_of(lost)
            )));
        }
        self.hand_in_again(number)
    }

    /// Who is told of what is done.
    pub(super) fn progress(&self) -> &RunProgress {
        &self.progress
    }

    /// Whoever has further tasks done, once all that are of splits were given, behind so many of them.
    pub(super) fn further(&self, behind: usize) -> Unordered<'_> {
        Unordered {
            workers: &self.workers,
            cancel: &self.cancel,
            progress: &self.progress,
            // Whatever is still told of the others is told apart by its number.
            first: self.tasks.len() + behind,
            attempts_max: Some(self.cutting.attempts_max),
        }
    }

    /// Where the first split of a task should have started, if it guessed wrong.
    fn right_start(&self, number: usize, part: &Result<Part>) -> Option<u64> {
        // What failed by a wrong start is not told from what fails anyhow.
        let first = self.splits_of(number).first()?;
        let file = first.parts.first()?.file.index();
        let (end_file, end) = self.end?;
        if end_file != file {
            return None;
        }
        match part {
            Ok(part) => {
                let read = part.read.iter().find(|read| read.place == 0)?;
                (!read.is_exact && read.stats.first_record_offset() != Some(end)).then_some(end)
            }
            Err(_) => {
                let is_exact = self.scan.source().has_exact_starts();
                let may_be_wrong = !is_exact && !self.told.contains_key(&number);
                may_be_wrong.then_some(end)
            }
        }
    }

    /// That a part is not of the splits of its task.
    pub(super) fn of_others() -> Error {
        bad("a part is not of all splits of its task")
    }
}

impl Drop for Dealer {
    fn drop(&mut self) {
        self.workers.end();
    }
}

fn bytes(splits: &[Split]) -> u64 {
    splits.iter().map(|split| split.bytes).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sums equal those of a scan over all tasks in the window, in whichever order tasks come back and are
        /// dealt again.
        #[test]
        fn sums_are_those_of_a_scan_over_the_tasks_ahead(
            sizes in prop::collection::vec(0..1_000_000_u64, 1..60),
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 0..400),
        ) {
            let (mut lookahead, mut came) = (Lookahead::default(), BTreeSet::new());
            for (step, index) in steps {
                let (passed, dealt) = (lookahead.passed, lookahead.dealt);
                match step {
                    0 if dealt < sizes.len() => lookahead.deal(sizes[dealt]),
                    1 => {
                        let in_work: Vec<_> =
                            (passed..dealt).filter(|number| !came.contains(number)).collect();
                        if !in_work.is_empty() {
                            let number = in_work[index.index(in_work.len())];
                            came.insert(number);
                            lookahead.take_in(sizes[number]);
                        }
                    }
                    2 if came.remove(&passed) => lookahead.pass(sizes[passed]),
                    3 if came.remove(&passed) => lookahead.deal_again(sizes[passed]),
                    _ => {}
                }
                let Lookahead { passed, dealt, bytes, in_work_bytes } = lookahead;
                prop_assert_eq!(bytes, sizes[passed..dealt].iter().sum::<u64>());
                let in_work = (passed..dealt).filter(|number| !came.contains(number));
                prop_assert_eq!(in_work_bytes, in_work.map(|number| sizes[number]).sum::<u64>());
                prop_assert_eq!(lookahead.count(), dealt - passed);
                for number in 0..sizes.len() {
                    prop_assert_eq!(lookahead.contains(number), (passed..dealt).contains(&number));
                }
            }
        }
    }
}
