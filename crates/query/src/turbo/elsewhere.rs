//! The same where workers read: drawn splits to them, their tables into one, until enough is read.
//!
//! A split counts once the task that it is in has come back. When it is over, what workers have at hand is left out,
//! whoever holds it, and they are told to end it. A split that stalls is handed back by its worker, beside what has come
//! of the others of its task; it is handed in again behind all others. Where the input cannot be cut, its splits are
//! read in order, and count as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_tables::AggregateTable;
use tidemill_tables::merge::{ChunkMerger, DeferredChunk};

use super::drawing::{Drawing, TICK};
use super::runner::{
    GivenUp, Held, LOOKS_FREE, LOOKS_SHARE, Look, RESERVE, ReadPart, Snapshot, Taken, Until, Why,
    Work,
};
use super::shown::PartRead;
use super::tally::Tally;
use super::{Turbo, account_of};
use crate::rows::Limits;
use crate::scan::{Scan, SoFar};
use crate::tables::Tables;
use crate::tasks::{Drawn, Part, Returned};

/// The splits of a run and what has become of them.
struct Reading {
    scan: Arc<Scan>,
    progress: RunProgress,
    drawing: Drawing,
    tally: Tally,
    tasks: Drawn,
    /// Splits that have stalled once.
    stalled: VecDeque<usize>,
}

impl Reading {
    fn new(
        scan: &Arc<Scan>,
        progress: &RunProgress,
        tasks: Drawn,
        until: &Until,
    ) -> Result<Reading> {
        let drawing = Drawing::new(scan, until)?;
        let tally = Tally::new(drawing.sizes.len());
        let (scan, progress, stalled) = (Arc::clone(scan), progress.clone(), VecDeque::new());
        Ok(Reading { scan, progress, drawing, tally, tasks, stalled })
    }

    /// Gives workers what they have room for; so many splits are one task at most.
    fn deal(&mut self, until: &Until, splits_max: usize) -> Result<()> {
        while self.tasks.has_room() {
            let left = until.ends_at.map(|at| at.saturating_duration_since(Instant::now()));
            let drawing = &self.drawing;
            let mut next = || drawing.next();
            if self.tasks.hand_in_next(&mut next, left, splits_max)? {
                continue;
            }
            let Some(split) = self.stalled.pop_front() else { return Ok(()) };
            self.tasks.hand_in_again(split)?;
        }
        Ok(())
    }

    /// Notes what was read and what was not; the groups or rows are left.
    fn take_in(&mut self, came: Returned) -> Result<(Vec<usize>, Part)> {
        let Returned { splits, read, failed, stalled, wrong_starts, part } = came;
        for (index, mapped_rows, outcome) in read {
            let bytes = self.drawing.sizes[index];
            self.progress.add_bytes(bytes);
            self.progress.add_rows(outcome.stats.rows);
            self.progress.map_counters().add_rows(mapped_rows);
            self.tally.land(&self.scan, index, bytes, Some(&outcome));
            self.scan.accept(outcome.stats)?;
        }
        for (index, error) in failed {
            self.drawing.give_up(index, error, &mut self.tally)?;
        }
        self.tally.checked_wrong += wrong_starts;
        self.tally.has_wrong_start |= wrong_starts > 0;
        self.stalled.extend(stalled);
        Ok((splits, part))
    }

    /// What was read, and what was not.
    fn ended(&mut self, why: Why, until: &Until) -> ReadPart {
        let (mut in_flight, mut stalled) = self.tasks.on_their_way();
        stalled.extend(self.stalled.drain(..));
        let mut given_up = std::mem::take(&mut self.tally.given_up);
        // Without a deadline and `drop` nothing is given up.
        match until.ends_at.is_some() || until.drop.is_some() {
            true => {
                given_up.extend(stalled.into_iter().map(|split| GivenUp { split, error: None }));
            }
            false => in_flight.extend(stalled),
        }
        given_up.sort_by_key(|given_up| given_up.split);
        let sample = (!self.drawing.in_order)
            .then(|| self.tally.sample(&self.scan, &self.drawing, until.confidence));
        ReadPart {
            why: if self.tally.is_whole() { Why::Whole } else { why },
            sample,
            given_up,
            left_out: self.scan.source().skipped_files(),
            in_flight,
            wrong_starts: self.tally.wrong_starts(&self.scan),
            bytes: self.tally.bytes,
        }
    }
}

/// Fills a table with what workers read until that is enough.
///
/// # Errors
/// The first that reading, unless it may be left out, mapping or merging meets; where no worker can be reached.
pub(super) fn run(work: &Work, tasks: Drawn, until: &Until, look: &mut dyn Look) -> Result<Taken> {
    let merger = ChunkMerger::new(
        &work.spec,
        &work.account,
        &work.spill_dirs,
        &work.cancel,
        &work.progress,
    )?;
    let mut run = Run {
        work,
        reading: Reading::new(&work.scan, &work.progress, tasks, until)?,
        merger,
        decoder: AggregateTable::new(&work.spec)?,
        gathered: Tables::new(&work.spec, 0, &work.account)?,
        chunks: BTreeMap::new(),
        began: Instant::now(),
        looks_take: Duration::ZERO,
        look_takes: Duration::ZERO,
    };
    let mut until = until.clone();
    let why = run.wait(&mut until, look)?;
    run.finish(why, &until)
}

struct Run<'a> {
    work: &'a Work,
    reading: Reading,
    merger: Arc<ChunkMerger>,
    decoder: AggregateTable,
    /// What has come, as long as it is not too large.
    gathered: Tables,
    /// Chunks of splits, where the order matters.
    chunks: BTreeMap<usize, Vec<DeferredChunk>>,
    began: Instant,
    /// What all looks took together, and the last of them.
    looks_take: Duration,
    look_takes: Duration,
}

impl Run<'_> {
    /// Waits until enough is read.
    fn wait(&mut self, until: &mut Until, look: &mut dyn Look) -> Result<Why> {
        // Where the order of rows matters each split has chunks of its own.
        let splits_max = if self.work.spec.is_order_insensitive() { usize::MAX } else { 1 };
        loop {
            self.work.cancel.check()?;
            if let Some(why) = self.reading.tally.enough(&self.reading.drawing, until) {
                return Ok(why);
            }
            let Reading { tally, drawing, .. } = &self.reading;
            let begins_again = tally.has_wrong_start && !self.work.is_careful && !drawing.in_order;
            if self.work.enough.is_cancelled() || begins_again {
                return Ok(Why::Asked);
            }
            let mut patience = TICK;
            let mut may_look = self.looks_take * LOOKS_SHARE <= LOOKS_FREE + self.began.elapsed();
            let mut look_ends_at = None;
            if let Some(ends_at) = until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                let reserve = self.reserve(ends_at).min(left.max(RESERVE));
                match left.checked_sub(reserve).filter(|left| !left.is_zero()) {
                    None => return Ok(Why::Deadline),
                    Some(left) => {
                        patience = patience.min(left);
                        may_look &= left > 3 * self.look_takes.max(self.held().tables_take());
                        look_ends_at = Some(Instant::now() + left);
                    }
                }
            }
            self.reading.deal(until, splits_max)?;
            if let Some(soon) = look.patience() {
                patience = patience.min(soon);
            }
            if may_look && look.is_due(self.reading.tally.landed() as u64) {
                let began = Instant::now();
                if let Some(snapshot) = self.snapshot(until.confidence)? {
                    let found = look.look(Snapshot { ends_at: look_ends_at, ..snapshot })?;
                    self.look_takes = began.elapsed();
                    self.looks_take += self.look_takes;
                    if let Some(confidence) = found {
                        until.confidence = confidence;
                        return Ok(Why::Precise);
                    }
                }
            }
            if let Some(came) = self.reading.tasks.next(patience)? {
                self.take_in(came)?;
            }
        }
    }

    /// Takes what came of a task.
    fn take_in(&mut self, came: Returned) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let (splits, mut part) = self.reading.take_in(came)?;
        while let Some((_, groups)) = part.next_batch()? {
            let chunk = self.decoder.decode_chunk(&groups)?;
            if self.work.spec.is_order_insensitive() {
                self.gathered.merge(&chunk)?;
                if self.gathered.bytes() > self.work.account.limit_bytes() / 5 {
                    self.gathered.give(&self.merger)?;
                    self.merger.merge_and_spill(0)?;
                }
            } else if let [split] = splits[..] {
                self.chunks.entry(split).or_default().push(self.merger.defer_chunk(chunk)?);
            } else {
                return Err(Error::Internal("groups of several splits, in no order".into()));
            }
        }
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(())
    }

    fn reserve(&self, ends_at: Instant) -> Duration {
        let all = ends_at.saturating_duration_since(self.began);
        self.work.reserve(self.held(), self.merger.merge_load(), all)
    }

    fn held(&self) -> Held {
        Held { groups: self.gathered.group_count(), tables: 1 }
    }

    /// The table as it is; none where some of it has left memory.
    fn snapshot(&mut self, confidence: f64) -> Result<Option<Snapshot>> {
        if !self.merger.is_unused() || !self.work.spec.is_order_insensitive() {
            return Ok(None);
        }
        let Reading { tally, drawing, scan, .. } = &self.reading;
        let sample = (!drawing.in_order).then(|| tally.sample(scan, drawing, confidence));
        let share = (tally.bytes as f64 / drawing.total.max(1) as f64).min(1.0);
        let answer = self.gathered.answer(&self.work.spec)?;
        Ok(Some(Snapshot { answer, sample, share, ends_at: None }))
    }

    fn finish(mut self, why: Why, until: &Until) -> Result<Taken> {
        let read = self.reading.ended(why, until);
        // Whoever is at work for this ends.
        drop(self.reading);
        if read.is_whole() {
            // The answer is exact, and nobody asks how far off it is.
            self.work.cells.turn_off();
        }
        let mut clock = ThreadCpuClock::start();
        if self.gathered.group_count() > 0 {
            self.gathered.give(&self.merger)?;
        }
        for (_, chunks) in self.chunks {
            for chunk in chunks {
                self.merger.accept_deferred(chunk, 0)?;
            }
            self.merger.merge_and_spill(0)?;
        }
        self.work.cancel.check()?;
        let merged = self.merger.finish(self.work.threads)?;
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(Taken { merged, read, failed: Vec::new() })
    }
}

/// Rows that workers find, in the order in which they come; an iterator of batches.
pub(crate) struct FoundElsewhere {
    reading: Reading,
    cancel: CancelFlag,
    enough: CancelFlag,
    turbo: Turbo,
    until: Until,
    /// Which of the rows are wanted.
    limits: Limits,
    /// The splits of the part at hand, its rows, and which of the splits come once more.
    part: Option<(Vec<usize>, Part, Vec<usize>)>,
    /// What had been looked at of splits that do not count as a whole.
    open: HashMap<usize, SoFar>,
    /// What was read, once it has ended.
    read: Option<ReadPart>,
}

impl FoundElsewhere {
    /// Starts to look for rows. `skip` are left out, then at most `fetch` are given.
    ///
    /// # Errors
    /// Where more files are left out already than may be.
    pub(super) fn start(
        scan: &Arc<Scan>,
        tasks: Drawn,
        turbo: Turbo,
        (skip, fetch): (usize, Option<usize>),
        (progress, cancel, enough): (&RunProgress, &CancelFlag, &CancelFlag),
    ) -> Result<Self> {
        let until = turbo.until();
        Ok(FoundElsewhere {
            reading: Reading::new(scan, progress, tasks, &until)?,
            cancel: cancel.clone(),
            enough: enough.clone(),
            turbo,
            until,
            limits: Limits { skip, left: fetch },
            part: None,
            open: HashMap::new(),
            read: None,
        })
    }

    /// What was read, once it has ended.
    pub(crate) fn account(&self) -> Option<PartRead> {
        let read = self.read.as_ref()?;
        Some(account_of(&self.reading.scan, &self.turbo, read))
    }

    fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.cancel.check()?;
            if self.limits.are_reached() {
                return Ok(self.end(Why::Found));
            }
            if let Some((splits, part, stalled)) = &mut self.part {
                let Some((place, batch)) = part.next_batch()? else {
                    self.part = None;
                    continue;
                };
                let Some((split, at)) = place.and_then(|at| Some((*splits.get(at.place)?, at)))
                else {
                    return Err(Error::Internal("rows of no split".into()));
                };
                if stalled.contains(&split) {
                    continue;
                }
                if !self.reading.tally.has(split) {
                    let so_far = SoFar { rows: at.rows, rejected: at.rejected };
                    self.open.insert(split, so_far);
                }
                if let Some(batch) = self.limits.take(&batch) {
                    return Ok(Some(batch));
                }
                continue;
            }
            if let Some(why) = self.reading.tally.enough(&self.reading.drawing, &self.until) {
                return Ok(self.end(why));
            }
            if self.enough.is_cancelled() {
                return Ok(self.end(Why::Asked));
            }
            let mut patience = TICK;
            if let Some(ends_at) = self.until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(self.end(Why::Deadline));
                }
                patience = patience.min(left);
            }
            self.reading.deal(&self.until, usize::MAX)?;
            if let Some(came) = self.reading.tasks.next(patience)? {
                let stalled = came.stalled.clone();
                let (splits, part) = self.reading.take_in(came)?;
                self.part = Some((splits, part, stalled));
            }
        }
    }

    fn end(&mut self, why: Why) -> Option<RecordBatch> {
        // What was looked at of a split that counts by now is counted with it.
        let open = std::mem::take(&mut self.open).into_iter();
        open.filter(|(split, _)| !self.reading.tally.has(*split))
            .for_each(|(_, so_far)| self.reading.scan.count_part(so_far));
        self.part = None;
        let mut read = self.reading.ended(why, &self.until);
        (read.sample, read.wrong_starts) = (None, 0);
        if why == Why::Found {
            read.why = Why::Found;
        }
        self.read = Some(read);
        None
    }
}

impl Iterator for FoundElsewhere {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_some() {
            return None;
        }
        self.next_rows().transpose()
    }
}
