//! The runner of queries that are all map: rows come out in the order of the input.
//!
//! Workers take splits in order and send batches through a channel per split; the consumer
//! reads the channels in split order. A worker may be at most a few splits ahead, and what
//! splits ahead of the consumer's hold is bounded: past the budget their workers wait. The
//! consumer's own split never waits, so there is always progress. A guess of where a split
//! starts is checked when the consumer comes to it; a split that guessed wrong is read again
//! by the consumer itself. A worker that waits leaves its core to other runs on this machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_source::Split;
use tidemill_sql::IntoTidemillError;
use tracing::debug_span;

use crate::map::{Map, MapRows};
use crate::scan::{Outcome, Scan, SoFar};

/// The rows of a map in input order; an iterator of batches.
pub(crate) struct OrderedRows {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    at: usize,
    end: Option<(usize, u64)>,
    /// The split that the consumer reads itself.
    again: Option<MapRows>,
    /// Whether the start of split `at` has been looked at.
    is_checked: bool,
    /// What had been read of split `at` when its last batch was made.
    so_far: SoFar,
    limits: Limits,
    ended: bool,
}

/// Which of the rows are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Rows to be left out first.
    pub skip: usize,
    /// How many are wanted behind these; none for all.
    pub left: Option<usize>,
}

impl Limits {
    /// Whether no more rows are wanted.
    pub(crate) fn are_reached(&self) -> bool {
        self.left == Some(0)
    }

    /// What is wanted of the next rows; none where nothing of them is.
    pub(crate) fn take(&mut self, batch: &RecordBatch) -> Option<RecordBatch> {
        let skipped = self.skip.min(batch.num_rows());
        self.skip -= skipped;
        let wanted = (batch.num_rows() - skipped).min(self.left.unwrap_or(usize::MAX));
        self.left = self.left.map(|left| left - wanted);
        (wanted > 0).then(|| batch.slice(skipped, wanted))
    }
}

struct Shared {
    map: Map,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    stop: AtomicBool,
    budget_bytes: usize,
    ahead_max: usize,
    lanes: Mutex<Lanes>,
    changed: Condvar,
}

/// The splits being read: the consumer's and those ahead of it.
struct Lanes {
    /// The split of the first lane.
    first: usize,
    /// The next split that a worker takes.
    next: usize,
    lanes: VecDeque<Lane>,
    held_bytes: usize,
}

#[derive(Default)]
struct Lane {
    /// Batches, each with what had been read of the split by then.
    batches: VecDeque<(RecordBatch, SoFar)>,
    done: Option<(Result<()>, Option<Outcome>)>,
}

/// Batches that wait for the consumer of the split it is at.
const BATCHES_READY_MAX: usize = 16;

impl OrderedRows {
    /// Starts to read. `skip` rows are left out, then at most `fetch` are given.
    pub(crate) fn start(
        map: Map,
        scan: Arc<Scan>,
        threads: usize,
        budget_bytes: usize,
        (cancel, progress): (&CancelFlag, &RunProgress),
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<Self> {
        let threads = threads.clamp(1, scan.splits().len().max(1));
        let is_stream = |split: &Split| split.parts.iter().any(|piece| piece.file.is_stream());
        if scan.splits().iter().any(is_stream) {
            // Rows come when they come: nobody waits for more of them.
            scan.set_eager();
        }
        let shared = Arc::new(Shared {
            map,
            scan,
            cancel: cancel.clone(),
            progress: progress.clone(),
            stop: AtomicBool::new(false),
            budget_bytes,
            ahead_max: 4 * threads,
            lanes: Mutex::new(Lanes { first: 0, next: 0, lanes: VecDeque::new(), held_bytes: 0 }),
            changed: Condvar::new(),
        });
        let mut rows = OrderedRows {
            shared,
            workers: Vec::with_capacity(threads),
            at: 0,
            end: None,
            again: None,
            is_checked: false,
            so_far: SoFar::default(),
            limits: Limits { skip, left: fetch },
            ended: false,
        };
        for worker in 0..threads {
            let shared = Arc::clone(&rows.shared);
            let worker = std::thread::Builder::new()
                .name(format!("split-{worker}"))
                .stack_size(RUN_STACK_BYTES)
                .spawn(move || shared.work())
                .map_err(|e| Error::Io { action: "start", path: "a thread".into(), source: e })?;
            rows.workers.push(worker);
        }
        Ok(rows)
    }

    /// The next batch of the input, before skipping and limiting.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.at >= self.shared.scan.splits().len() {
                return Ok(None);
            }
            if let Some(again) = &mut self.again {
                match again.next() {
                    Some(Ok(batch)) => {
                        self.so_far = self.shared.scan.so_far(self.at);
                        return Ok(Some(batch));
                    }
                    end => {
                        self.again = None;
                        let outcome = self.shared.scan.outcome(self.at);
                        self.pass(outcome)?;
                        end.transpose().into_tidemill_error()?;
                        continue;
                    }
                }
            }
            if let Some(batch) = self.next_in_lane()? {
                return Ok(Some(batch));
            }
        }
    }

    /// The next batch of the lane at hand; none where the consumer has moved on.
    fn next_in_lane(&mut self) -> Result<Option<RecordBatch>> {
        let shared = Arc::clone(&self.shared);
        let mut lanes = shared.lanes.lock();
        loop {
            shared.cancel.check()?;
            // A guessed start is known for certain once the split is done; until it has been
            // checked nothing of the split is given out.
            let must_check = !self.is_checked && shared.is_guess(self.at);
            if let Some(lane) = lanes.lanes.front_mut() {
                if let (true, Some((_, outcome))) = (must_check, &lane.done) {
                    if let Some(start) = self.right_start(outcome.as_ref()) {
                        shared.scan.set_exact_start(self.at, start);
                        self.again = Some(shared.map.rows(self.at)?);
                        lanes.pop();
                        shared.changed.notify_all();
                        return Ok(None);
                    }
                    self.is_checked = true;
                    continue;
                }
                if !must_check {
                    if let Some((batch, so_far)) = lane.batches.pop_front() {
                        self.so_far = so_far;
                        lanes.held_bytes -= batch.get_array_memory_size();
                        shared.changed.notify_all();
                        return Ok(Some(batch));
                    }
                    if let Some((result, outcome)) = lane.done.take() {
                        lanes.pop();
                        shared.changed.notify_all();
                        drop(lanes);
                        self.pass(outcome)?;
                        result?;
                        return Ok(None);
                    }
                }
            }
            shared.changed.wait_for(&mut lanes, std::time::Duration::from_millis(100));
        }
    }

    fn right_start(&self, outcome: Option<&Outcome>) -> Option<u64> {
        let outcome = outcome.filter(|outcome| !outcome.is_exact)?;
        let file = self.shared.scan.splits()[self.at].parts.first()?.file.index();
        let (end_file, end) = self.end?;
        (end_file == file && outcome.stats.first_record_offset != Some(end)).then_some(end)
    }

    /// Counts the split at hand and goes to the next.
    fn pass(&mut self, outcome: Option<Outcome>) -> Result<()> {
        if let Some(outcome) = outcome {
            let last = self.shared.scan.splits()[self.at].parts.last();
            self.end = last
                .and_then(|piece| Some((piece.file.index(), outcome.stats.next_record_offset?)));
            self.shared.scan.take(self.at, 0, outcome)?;
        }
        self.at += 1;
        self.is_checked = false;
        self.so_far = SoFar::default();
        Ok(())
    }

    fn limited(&mut self) -> Result<Option<RecordBatch>> {
        while !self.limits.are_reached() {
            let Some(batch) = self.next_batch()? else { return Ok(None) };
            if let Some(batch) = self.limits.take(&batch) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Counts what was read of the split at which no more rows were wanted, up to the batch
    /// with the last of them. What workers read beyond it does not count, so that a query with
    /// a limit accounts for the same at each run.
    fn pass_part(&mut self) -> Result<()> {
        if !self.is_cut_short() || self.so_far == SoFar::default() {
            return Ok(());
        }
        self.again = None;
        self.shared.stop();
        self.join();
        let mut lanes = self.shared.lanes.lock();
        let lane = self.shared.lane(&mut lanes, self.at);
        let done = lane.and_then(|lane| lane.done.take()).and_then(|(_, outcome)| outcome);
        let outcome = done.or_else(|| self.shared.scan.outcome(self.at));
        drop(lanes);
        match outcome {
            // How much of it counts is found by whoever counts it.
            Some(outcome) if self.shared.scan.is_told() => {
                self.shared.scan.take(self.at, 0, outcome)
            }
            Some(outcome) => self.shared.scan.accept_part(outcome.stats, self.so_far),
            None => Ok(()),
        }
    }

    /// The place of the split that the last batch is of, and what had been read of it by then.
    pub(crate) fn place(&self) -> (usize, SoFar) {
        (self.at, self.so_far)
    }

    fn join(&mut self) {
        for worker in self.workers.drain(..) {
            // Its panics are in its lane.
            let _ = worker.join();
        }
    }

    /// Whether reading ended because no more rows were wanted.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.limits.are_reached() && self.at < self.shared.scan.splits().len()
    }
}

impl Lanes {
    /// Lets go of the first lane.
    fn pop(&mut self) {
        if let Some(lane) = self.lanes.pop_front() {
            let held = lane.batches.iter().map(|(batch, _)| batch.get_array_memory_size());
            self.held_bytes -= held.sum::<usize>();
        }
        self.first += 1;
    }
}

impl Iterator for OrderedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut next = self.limited();
        if let Ok(None) = next
            && let Err(error) = self.pass_part()
        {
            next = Err(error);
        }
        if !matches!(next, Ok(Some(_))) {
            self.ended = true;
            self.shared.stop();
        }
        next.transpose()
    }
}

impl Drop for OrderedRows {
    fn drop(&mut self) {
        self.shared.stop();
        self.join();
    }
}

impl Shared {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.scan.stop();
        let _lanes = self.lanes.lock();
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    fn work(&self) {
        let mut turn = self.scan.turn();
        while let Some(index) = self.take(&mut turn) {
            if !turn.acquire(|| self.is_stopped()) {
                return;
            }
            let result = catch_panic(|| self.read(index, &mut turn));
            let outcome = self.scan.outcome(index);
            let mut lanes = self.lanes.lock();
            if let Some(lane) = self.lane(&mut lanes, index) {
                lane.done = Some((result, outcome));
            }
            self.changed.notify_all();
        }
    }

    fn take(&self, turn: &mut ComputeTurn<'_>) -> Option<usize> {
        let mut lanes = self.lanes.lock();
        loop {
            if self.is_stopped() || lanes.next >= self.scan.splits().len() {
                return None;
            }
            if lanes.next < lanes.first + self.ahead_max {
                let index = lanes.next;
                lanes.next += 1;
                lanes.lanes.push_back(Lane::default());
                return Some(index);
            }
            turn.release();
            self.changed.wait(&mut lanes);
        }
    }

    fn lane<'a>(&self, lanes: &'a mut Lanes, index: usize) -> Option<&'a mut Lane> {
        let place = index.checked_sub(lanes.first)?;
        lanes.lanes.get_mut(place)
    }

    fn read(&self, index: usize, turn: &mut ComputeTurn<'_>) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let mut batches = self.map.rows(index)?;
        let mapping = debug_span!("map", index);
        while let Some(batch) = mapping.in_scope(|| batches.next()) {
            self.progress.map_counters().add_thread_cpu(&mut clock);
            if !self.hand_over(index, batch.into_tidemill_error()?, turn)? {
                return Ok(());
            }
            // Stopped, it ends with the next batch.
            turn.acquire(|| self.is_stopped());
        }
        drop(batches);
        if !self.is_stopped() {
            self.scan.read_unasked(index)?;
        }
        self.progress.map_counters().add_thread_cpu(&mut clock);
        Ok(())
    }

    /// Gives a batch to the lane, waiting where too much is held; false where nobody wants it.
    fn hand_over(
        &self,
        index: usize,
        batch: RecordBatch,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<bool> {
        let bytes = batch.get_array_memory_size();
        let mut lanes = self.lanes.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.cancel.check()?;
            if index < lanes.first {
                return Ok(false);
            }
            let is_first = index == lanes.first;
            let held_bytes = lanes.held_bytes;
            let Some(lane) = self.lane(&mut lanes, index) else { return Ok(false) };
            let has_room = match is_first {
                // A split whose guessed start is still to be checked is held whole.
                true => lane.batches.len() < BATCHES_READY_MAX || self.is_guess(index),
                false => held_bytes + bytes <= self.budget_bytes,
            };
            if has_room {
                lane.batches.push_back((batch, self.scan.so_far(index)));
                lanes.held_bytes += bytes;
                self.changed.notify_all();
                return Ok(true);
            }
            turn.release();
            self.changed.wait_for(&mut lanes, std::time::Duration::from_millis(100));
        }
    }

    fn is_guess(&self, index: usize) -> bool {
        !self.scan.source().has_exact_starts()
            && self.scan.splits()[index].parts.first().is_some_and(|piece| piece.range.start > 0)
    }
}
