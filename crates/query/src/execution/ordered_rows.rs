//! The runner of the row path: rows come out in the order of the input.
//!
//! Workers take splits in order and put batches into a queue per split, a lane; the consumer empties the
//! lanes in split order. A worker may be at most a few splits ahead, and the bytes in lanes ahead of the
//! consumer are bounded: past the budget their workers wait. The consumer's own split never waits for the
//! budget, so there is always progress. The consumer checks a speculative boundary when it reaches the split,
//! and reads a split with a wrong boundary again itself. A worker that waits leaves its core to other runs on
//! this machine.

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

use crate::execution::map::{MapRows, SplitMap};
use crate::execution::scan::{ReadCounts, Scan, SplitOutcome};

/// An iterator over the batches of a map, in input order.
pub(crate) struct OrderedRows {
    shared: Arc<OrderedRowsState>,
    workers: Vec<JoinHandle<()>>,
    split_index: usize,
    last_end: Option<(usize, u64)>,
    /// The rows of a split that the consumer reads again itself.
    reread_rows: Option<MapRows>,
    /// True once the start of split `split_index` has been checked.
    is_start_checked: bool,
    /// Rows read of split `split_index` when its last batch was made.
    read_counts: ReadCounts,
    row_limits: RowLimits,
    has_ended: bool,
}

/// The rows of a result that OFFSET and LIMIT leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowLimits {
    /// Number of rows still to skip.
    pub skip: usize,
    /// Number of rows still to return; `None` for all.
    pub remaining: Option<usize>,
}

impl RowLimits {
    /// Returns true if no more rows are needed.
    pub(crate) fn are_reached(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Returns the rows of the next batch that the limits leave, or `None` if they leave none.
    pub(crate) fn apply_to_batch(&mut self, batch: &RecordBatch) -> Option<RecordBatch> {
        let skipped = self.skip.min(batch.num_rows());
        self.skip -= skipped;
        let wanted = (batch.num_rows() - skipped).min(self.remaining.unwrap_or(usize::MAX));
        self.remaining = self.remaining.map(|left| left - wanted);
        (wanted > 0).then(|| batch.slice(skipped, wanted))
    }
}

/// The state that the consumer and the workers share.
struct OrderedRowsState {
    map: SplitMap,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    progress: RunProgress,
    stop_flag: AtomicBool,
    budget_bytes: usize,
    splits_ahead_max: usize,
    lanes: Mutex<SplitLanes>,
    changed: Condvar,
}

/// The lanes of the splits being read: the consumer's and those ahead of it.
struct SplitLanes {
    /// Index of the first lane's split.
    first_split: usize,
    /// Index of the next split for a worker.
    next_split: usize,
    lanes: VecDeque<SplitLane>,
    held_bytes: usize,
}

/// The batches of one split that wait for the consumer.
#[derive(Default)]
struct SplitLane {
    /// Batches, each with the rows read of the split so far.
    batches: VecDeque<(RecordBatch, ReadCounts)>,
    completion: Option<(Result<()>, Option<SplitOutcome>)>,
}

/// Maximum number of batches that wait in the consumer's own lane: its worker stays this far ahead, whatever
/// the budget.
const BATCHES_READY_MAX: usize = 16;

impl OrderedRows {
    /// Starts the workers. The iterator skips `skip` rows, then returns at most `fetch`.
    pub(crate) fn start(
        map: SplitMap,
        scan: Arc<Scan>,
        threads: usize,
        budget_bytes: usize,
        (cancel, progress): (&CancelFlag, &RunProgress),
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<Self> {
        let threads = threads.clamp(1, scan.splits().len().max(1));
        let is_stream = |split: &Split| split.parts.iter().any(|piece| piece.file.is_stream());
        if scan.splits().iter().any(is_stream) {
            // A stream's rows pass on as they come; waiting for full batches would delay them.
            scan.set_eager();
        }
        let shared = Arc::new(OrderedRowsState {
            map,
            scan,
            cancel: cancel.clone(),
            progress: progress.clone(),
            stop_flag: AtomicBool::new(false),
            budget_bytes,
            splits_ahead_max: 4 * threads,
            lanes: Mutex::new(SplitLanes {
                first_split: 0,
                next_split: 0,
                lanes: VecDeque::new(),
                held_bytes: 0,
            }),
            changed: Condvar::new(),
        });
        let mut rows = OrderedRows {
            shared,
            workers: Vec::with_capacity(threads),
            split_index: 0,
            last_end: None,
            reread_rows: None,
            is_start_checked: false,
            read_counts: ReadCounts::default(),
            row_limits: RowLimits { skip, remaining: fetch },
            has_ended: false,
        };
        for worker in 0..threads {
            let shared = Arc::clone(&rows.shared);
            let worker = std::thread::Builder::new()
                .name(format!("split-{worker}"))
                .stack_size(RUN_STACK_BYTES)
                .spawn(move || shared.run_worker())
                .map_err(|e| Error::Io { action: "start", path: "a thread".into(), source: e })?;
            rows.workers.push(worker);
        }
        Ok(rows)
    }

    /// Returns the next batch of the input, before skipping and limiting.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.split_index >= self.shared.scan.splits().len() {
                return Ok(None);
            }
            if let Some(again) = &mut self.reread_rows {
                match again.next() {
                    Some(Ok(batch)) => {
                        self.read_counts = self.shared.scan.read_counts(self.split_index);
                        return Ok(Some(batch));
                    }
                    end => {
                        self.reread_rows = None;
                        let outcome = self.shared.scan.take_outcome(self.split_index);
                        self.count_split(outcome)?;
                        end.transpose().into_tidemill_error()?;
                        continue;
                    }
                }
            }
            if let Some(batch) = self.next_lane_batch()? {
                return Ok(Some(batch));
            }
        }
    }

    /// Returns the next batch of the first lane, or `None` if the consumer has moved on.
    fn next_lane_batch(&mut self) -> Result<Option<RecordBatch>> {
        let shared = Arc::clone(&self.shared);
        let mut lanes = shared.lanes.lock();
        loop {
            shared.cancel.check()?;
            // A speculative start is certain once the split is done; nothing of the split is returned before
            // its check.
            let must_check =
                !self.is_start_checked && shared.has_speculative_start(self.split_index);
            if let Some(lane) = lanes.lanes.front_mut() {
                if let (true, Some((_, outcome))) = (must_check, &lane.completion) {
                    if let Some(start) = self.find_correct_start(outcome.as_ref()) {
                        shared.scan.set_exact_start(self.split_index, start);
                        self.reread_rows = Some(shared.map.split_rows(self.split_index)?);
                        lanes.drop_first_lane();
                        shared.changed.notify_all();
                        return Ok(None);
                    }
                    self.is_start_checked = true;
                    continue;
                }
                if !must_check {
                    if let Some((batch, so_far)) = lane.batches.pop_front() {
                        self.read_counts = so_far;
                        lanes.held_bytes -= batch.get_array_memory_size();
                        shared.changed.notify_all();
                        return Ok(Some(batch));
                    }
                    if let Some((result, outcome)) = lane.completion.take() {
                        lanes.drop_first_lane();
                        shared.changed.notify_all();
                        drop(lanes);
                        self.count_split(outcome)?;
                        result?;
                        return Ok(None);
                    }
                }
            }
            shared.changed.wait_for(&mut lanes, std::time::Duration::from_millis(100));
        }
    }

    /// Returns the correct start of the current split, if its speculative start was wrong.
    fn find_correct_start(&self, outcome: Option<&SplitOutcome>) -> Option<u64> {
        let outcome = outcome.filter(|outcome| !outcome.is_exact_start)?;
        let file = self.shared.scan.splits()[self.split_index].parts.first()?.file.index();
        let (end_file, end) = self.last_end?;
        (end_file == file && outcome.stats.first_record_offset != Some(end)).then_some(end)
    }

    /// Counts the current split and moves on to the next.
    fn count_split(&mut self, outcome: Option<SplitOutcome>) -> Result<()> {
        if let Some(outcome) = outcome {
            let last = self.shared.scan.splits()[self.split_index].parts.last();
            self.last_end = last
                .and_then(|piece| Some((piece.file.index(), outcome.stats.next_record_offset?)));
            self.shared.scan.count_or_report_split(self.split_index, 0, outcome)?;
        }
        self.split_index += 1;
        self.is_start_checked = false;
        self.read_counts = ReadCounts::default();
        Ok(())
    }

    fn next_limited_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.row_limits.are_reached() {
            let Some(batch) = self.next_batch()? else { return Ok(None) };
            if let Some(batch) = self.row_limits.apply_to_batch(&batch) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Counts the rows of the split at which the limit was reached, up to the batch that reached it. Rows
    /// that workers read beyond do not count, so that a query with a limit reports the same coverage at each
    /// run.
    fn count_partial_split(&mut self) -> Result<()> {
        if !self.is_cut_short() || self.read_counts == ReadCounts::default() {
            return Ok(());
        }
        self.reread_rows = None;
        self.shared.stop();
        self.join_workers();
        let mut lanes = self.shared.lanes.lock();
        let lane = self.shared.lane_mut(&mut lanes, self.split_index);
        let done = lane.and_then(|lane| lane.completion.take()).and_then(|(_, outcome)| outcome);
        let outcome = done.or_else(|| self.shared.scan.take_outcome(self.split_index));
        drop(lanes);
        match outcome {
            // The driver finds how much of it counts.
            Some(outcome) if self.shared.scan.reports_splits_to_driver() => {
                self.shared.scan.count_or_report_split(self.split_index, 0, outcome)
            }
            Some(outcome) => self.shared.scan.count_partial_split(outcome.stats, self.read_counts),
            None => Ok(()),
        }
    }

    /// Returns the index of the split of the last batch, and the rows read of it by then.
    pub(crate) fn last_batch_position(&self) -> (usize, ReadCounts) {
        (self.split_index, self.read_counts)
    }

    fn join_workers(&mut self) {
        for worker in self.workers.drain(..) {
            // A worker's panic is already the error in its lane.
            let _ = worker.join();
        }
    }

    /// Returns true if a limit ended the reading.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.row_limits.are_reached() && self.split_index < self.shared.scan.splits().len()
    }
}

impl SplitLanes {
    /// Drops the first lane.
    fn drop_first_lane(&mut self) {
        if let Some(lane) = self.lanes.pop_front() {
            let held = lane.batches.iter().map(|(batch, _)| batch.get_array_memory_size());
            self.held_bytes -= held.sum::<usize>();
        }
        self.first_split += 1;
    }
}

impl Iterator for OrderedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let mut next = self.next_limited_batch();
        if let Ok(None) = next
            && let Err(error) = self.count_partial_split()
        {
            next = Err(error);
        }
        if !matches!(next, Ok(Some(_))) {
            self.has_ended = true;
            self.shared.stop();
        }
        next.transpose()
    }
}

impl Drop for OrderedRows {
    fn drop(&mut self) {
        self.shared.stop();
        self.join_workers();
    }
}

impl OrderedRowsState {
    fn stop(&self) {
        self.stop_flag.store(true, Ordering::Relaxed);
        self.scan.stop_readers();
        let _lanes = self.lanes.lock();
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stop_flag.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    fn run_worker(&self) {
        let mut turn = self.scan.new_core_turn();
        while let Some(index) = self.take_next_split(&mut turn) {
            if !turn.acquire(|| self.is_stopped()) {
                return;
            }
            let result = catch_panic(|| self.read_split(index, &mut turn));
            let outcome = self.scan.take_outcome(index);
            let mut lanes = self.lanes.lock();
            if let Some(lane) = self.lane_mut(&mut lanes, index) {
                lane.completion = Some((result, outcome));
            }
            self.changed.notify_all();
        }
    }

    fn take_next_split(&self, turn: &mut ComputeTurn<'_>) -> Option<usize> {
        let mut lanes = self.lanes.lock();
        loop {
            if self.is_stopped() || lanes.next_split >= self.scan.splits().len() {
                return None;
            }
            if lanes.next_split < lanes.first_split + self.splits_ahead_max {
                let index = lanes.next_split;
                lanes.next_split += 1;
                lanes.lanes.push_back(SplitLane::default());
                return Some(index);
            }
            turn.release();
            self.changed.wait(&mut lanes);
        }
    }

    fn lane_mut<'a>(&self, lanes: &'a mut SplitLanes, index: usize) -> Option<&'a mut SplitLane> {
        let place = index.checked_sub(lanes.first_split)?;
        lanes.lanes.get_mut(place)
    }

    fn read_split(&self, index: usize, turn: &mut ComputeTurn<'_>) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let mut batches = self.map.split_rows(index)?;
        let mapping = debug_span!("map", index);
        while let Some(batch) = mapping.in_scope(|| batches.next()) {
            self.progress.map_counters().add_thread_cpu(&mut clock);
            if !self.enqueue_batch(index, batch.into_tidemill_error()?, turn)? {
                return Ok(());
            }
            // A stopped run ends at the next batch.
            turn.acquire(|| self.is_stopped());
        }
        drop(batches);
        if !self.is_stopped() {
            self.scan.read_unrequested_split(index)?;
        }
        self.progress.map_counters().add_thread_cpu(&mut clock);
        Ok(())
    }

    /// Puts a batch into its lane, waiting while the lanes are full. Returns false if the batch is no longer
    /// needed.
    fn enqueue_batch(
        &self,
        index: usize,
        batch: RecordBatch,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<bool> {
        let bytes = batch.get_array_memory_size();
        let mut lanes = self.lanes.lock();
        loop {
            if self.stop_flag.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.cancel.check()?;
            if index < lanes.first_split {
                return Ok(false);
            }
            let is_first = index == lanes.first_split;
            let held_bytes = lanes.held_bytes;
            let Some(lane) = self.lane_mut(&mut lanes, index) else { return Ok(false) };
            let has_room = match is_first {
                // A split with an unchecked speculative start is buffered whole.
                true => lane.batches.len() < BATCHES_READY_MAX || self.has_speculative_start(index),
                false => held_bytes + bytes <= self.budget_bytes,
            };
            if has_room {
                lane.batches.push_back((batch, self.scan.read_counts(index)));
                lanes.held_bytes += bytes;
                self.changed.notify_all();
                return Ok(true);
            }
            turn.release();
            self.changed.wait_for(&mut lanes, std::time::Duration::from_millis(100));
        }
    }

    fn has_speculative_start(&self, index: usize) -> bool {
        !self.scan.source().has_exact_starts()
            && self.scan.splits()[index].parts.first().is_some_and(|piece| piece.range.start > 0)
    }
}
