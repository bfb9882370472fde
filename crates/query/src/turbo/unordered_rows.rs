//! The rows of a query without aggregation, in the order in which threads find them; the splits are in
//! sampling order.
//!
//! This reader serves queries that may end before all of the input was read, and the search for a number of
//! matching rows anywhere ([`TurboSettings::find_rows_max`](super::TurboSettings)).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_sql::IntoTidemillError;

use super::local_runner::{GivenUpSplit, ReadOutcome, StopCondition, StopReason};
use super::partial_coverage::PartialCoverage;
use super::reader_threads::{ReaderThreadState, mark_stalled_for_replacement};
use super::sampling_plan::{POLL_INTERVAL, SamplingPlan};
use super::split_tally::SplitTally;
use super::{TurboSettings, build_partial_coverage};
use crate::execution::map::SplitMap;
use crate::execution::ordered_rows::RowLimits;
use crate::execution::scan::{ReadCounts, Scan, SplitOutcome};

/// An iterator over a map's rows in the order in which threads find them.
pub(crate) struct UnorderedRows {
    search: Arc<RowSearch>,
    receiver: Receiver<RowMessage>,
    sender: SyncSender<RowMessage>,
    settings: TurboSettings,
    stop_condition: StopCondition,
    /// The limits on the returned rows.
    row_limits: RowLimits,
    /// Progress within each split that is not complete, at the last of its rows that were taken.
    open_splits: HashMap<usize, ReadCounts>,
    /// The split of the last rows, and the progress within it.
    last_position: (usize, ReadCounts),
    stop_reason: Option<StopReason>,
}

enum RowMessage {
    /// Rows of a split, with the progress within it.
    Rows(RecordBatch, usize, ReadCounts),
    /// All rows of a split were sent.
    SplitDone(usize, Option<SplitOutcome>),
    /// A thread ended.
    ThreadDone(Result<()>),
}

struct RowSearch {
    map: SplitMap,
    scan: Arc<Scan>,
    cancel: CancelFlag,
    stop_request: CancelFlag,
    progress: RunProgress,
    sampling_plan: SamplingPlan,
    /// True if a number of rows is wanted. Then the rows that threads looked at count; otherwise those that
    /// were taken.
    is_find: bool,
    /// As in [`UnorderedRowsContext`].
    stall_timeout: Option<Duration>,
    is_over: AtomicBool,
    state: Mutex<RowSearchState>,
    began: Instant,
}

struct RowSearchState {
    reader_threads: Vec<Arc<ReaderThreadState>>,
    /// Number of threads that have not ended.
    running_thread_count: usize,
    tally: SplitTally,
    /// Splits that cannot be read, if the driver judges their errors.
    failures: Vec<(usize, Error)>,
    /// For a search: progress within each split that is not complete.
    partly_read_splits: HashMap<usize, ReadCounts>,
}

/// Maximum number of batches that wait to be taken.
const READY_BATCHES_MAX: usize = 4;

/// The map, splits and settings of an unordered read.
pub(crate) struct UnorderedRowsContext {
    pub map: SplitMap,
    pub scan: Arc<Scan>,
    pub cancel: CancelFlag,
    pub stop_request: CancelFlag,
    pub progress: RunProgress,
    pub threads: usize,
    /// On a worker, whose splits the driver has sampled: time without new data after which the read ends
    /// without the stalled splits. Errors are reported, and the driver judges them.
    pub stall_timeout: Option<Duration>,
}

impl UnorderedRows {
    /// Starts the threads. The iterator skips `skip` rows and returns at most `fetch`.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub(crate) fn start_threads(
        finding: UnorderedRowsContext,
        turbo: TurboSettings,
        (skip, fetch): (usize, Option<usize>),
    ) -> Result<Self> {
        let until = turbo.stop_condition();
        let drawing = match finding.stall_timeout {
            Some(_) => SamplingPlan::from_assigned_splits(&finding.scan),
            None => SamplingPlan::new(&finding.scan, &until)?,
        };
        if drawing.is_in_order {
            // The reader of the first rows gets them as they come.
            finding.scan.set_eager();
        }
        let threads = finding.threads.clamp(1, drawing.split_count_max().max(1));
        let state = Mutex::new(RowSearchState {
            reader_threads: Vec::new(),
            running_thread_count: 0,
            tally: SplitTally::new(drawing.split_bytes.len()),
            failures: Vec::new(),
            partly_read_splits: HashMap::new(),
        });
        let shared = Arc::new(RowSearch {
            map: finding.map,
            scan: finding.scan,
            cancel: finding.cancel,
            stop_request: finding.stop_request,
            progress: finding.progress,
            sampling_plan: drawing,
            is_find: fetch.is_some() && finding.stall_timeout.is_none(),
            stall_timeout: finding.stall_timeout,
            is_over: AtomicBool::new(false),
            state,
            began: Instant::now(),
        });
        let (sender, batches) = sync_channel(READY_BATCHES_MAX);
        for _ in 0..threads {
            RowSearch::start_thread(&shared, &sender)?;
        }
        let open = HashMap::new();
        Ok(UnorderedRows {
            search: shared,
            receiver: batches,
            sender,
            settings: turbo,
            stop_condition: until,
            row_limits: RowLimits { skip, remaining: fetch },
            open_splits: open,
            last_position: (0, ReadCounts::default()),
            stop_reason: None,
        })
    }

    /// Returns the coverage, once the run has ended.
    pub(crate) fn partial_coverage(&self) -> Option<PartialCoverage> {
        let why = self.stop_reason?;
        let state = self.search.state.lock();
        let (mut given_up, mut in_flight) = (state.tally.given_up.clone(), Vec::new());
        for hand in &state.reader_threads {
            let Some(split) = hand.current_split() else { continue };
            match hand.has_stalled() {
                true => given_up.push(GivenUpSplit { split, error: None }),
                false => in_flight.push(split),
            }
        }
        // Input read in order counts up to the last byte read. A search knows the part that it read in rows
        // only.
        let is_read_on = self.search.sampling_plan.is_in_order && why != StopReason::RowLimit;
        let bytes = match is_read_on {
            true => state.tally.bytes.max(self.search.progress.bytes_done()),
            false => state.tally.bytes,
        };
        let sample = None;
        let left_out = self.search.scan.source().skipped_files();
        let wrong_starts = 0;
        let read = ReadOutcome {
            stop_reason: why,
            sample,
            given_up_splits: given_up,
            left_out_files: left_out,
            in_flight_splits: in_flight,
            wrong_start_count: wrong_starts,
            counted_bytes: bytes,
        };
        Some(build_partial_coverage(&self.search.scan, &self.settings, &read))
    }

    /// Returns the split of the last rows, and the progress within it.
    pub(crate) fn last_position(&self) -> (usize, ReadCounts) {
        self.last_position
    }

    /// Returns true if the run stopped because all wanted rows were found. Unread splits are not missing
    /// then.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.stop_reason == Some(StopReason::RowLimit)
    }

    /// Returns the splits that were begun and are not complete, once the run has ended.
    pub(crate) fn unfinished_splits(&self) -> Vec<usize> {
        let state = self.search.state.lock();
        state.tally.open_splits().map(|(split, _)| split).collect()
    }

    /// Takes the splits that could not be read, if the driver judges their errors.
    pub(crate) fn take_failures(&self) -> Vec<(usize, Error)> {
        std::mem::take(&mut self.search.state.lock().failures)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.row_limits.are_reached() {
                return Ok(self.end_run(StopReason::RowLimit));
            }
            self.search.cancel.check()?;
            let mut patience = POLL_INTERVAL;
            if let Some(ends_at) = self.stop_condition.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(self.end_run(StopReason::Deadline));
                }
                patience = patience.min(left);
            }
            if self.search.stop_request.is_cancelled() {
                return Ok(self.end_run(StopReason::StopRequest));
            }
            // A split is complete once its rows are on their way.
            let enough = self.search.check_stop_condition(&self.stop_condition);
            let message = match enough {
                Some(why) => match self.receiver.try_recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(self.end_run(why)),
                },
                None => match self.receiver.recv_timeout(patience) {
                    Ok(message) => message,
                    Err(_) => {
                        self.replace_stalled_threads()?;
                        continue;
                    }
                },
            };
            match message {
                RowMessage::ThreadDone(ended) => ended?,
                RowMessage::SplitDone(split, outcome) => {
                    self.open_splits.remove(&split);
                    self.search.complete_split(split, outcome)?;
                }
                RowMessage::Rows(batch, split, so_far) => {
                    self.last_position = (split, so_far);
                    if !self.search.is_find {
                        self.open_splits.insert(split, so_far);
                    }
                    if let Some(batch) = self.row_limits.apply_to_batch(&batch) {
                        return Ok(Some(batch));
                    }
                }
            }
        }
    }

    fn end_run(&mut self, why: StopReason) -> Option<RecordBatch> {
        self.stop_reason.get_or_insert(why);
        // After `stop_threads` no thread records what it looks at.
        let looked = {
            let shared = Arc::clone(&self.search);
            let mut state = shared.state.lock();
            self.stop_threads();
            std::mem::take(&mut state.partly_read_splits)
        };
        let open = self.open_splits.drain().chain(looked);
        open.for_each(|(_, so_far)| self.search.scan.add_read_counts(so_far));
        None
    }

    fn stop_threads(&mut self) {
        if !self.search.is_over.swap(true, Ordering::SeqCst) {
            self.search.scan.stop_readers();
        }
    }

    fn replace_stalled_threads(&mut self) -> Result<()> {
        let sender = &self.sender;
        if self.search.sampling_plan.is_exhausted() {
            return Ok(());
        }
        let stalled = mark_stalled_for_replacement(
            self.search.state.lock().reader_threads.iter().map(AsRef::as_ref),
        );
        (0..stalled).try_for_each(|_| RowSearch::start_thread(&self.search, sender))
    }
}

impl Iterator for UnorderedRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stop_reason.is_some() {
            return None;
        }
        let next = self.next_batch();
        if next.is_err() {
            self.stop_threads();
        }
        next.transpose()
    }
}

impl Drop for UnorderedRows {
    fn drop(&mut self) {
        // The threads are not joined, because one of them may never end.
        self.stop_threads();
    }
}

/// Sends a message; returns false if the receiver is gone. While it waits for room, the thread gives up its
/// turn.
fn send_message(
    sender: &SyncSender<RowMessage>,
    message: RowMessage,
    turn: &mut ComputeTurn<'_>,
) -> bool {
    match sender.try_send(message) {
        Err(TrySendError::Full(message)) => {
            turn.release();
            sender.send(message).is_ok()
        }
        sent => sent.is_ok(),
    }
}

impl RowSearch {
    fn start_thread(shared: &Arc<Self>, sender: &SyncSender<RowMessage>) -> Result<()> {
        let hand = Arc::new(ReaderThreadState::new(shared.began));
        let worker = {
            let mut state = shared.state.lock();
            state.reader_threads.push(Arc::clone(&hand));
            state.running_thread_count += 1;
            state.reader_threads.len() - 1
        };
        let (own, sender) = (Arc::clone(shared), sender.clone());
        let started = std::thread::Builder::new()
            .name(format!("split-{worker}"))
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || {
                let ended = catch_panic(|| own.read_splits(worker, &hand, &sender));
                hand.end_split();
                own.state.lock().running_thread_count -= 1;
                if !own.is_over() {
                    // An error means that the receiver is gone and wants nothing any more.
                    let _ = sender.send(RowMessage::ThreadDone(ended));
                }
            });
        started.map(drop).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn is_stopped(&self) -> bool {
        self.is_over() || self.cancel.is_cancelled()
    }

    /// Returns the reason to stop, if the stop condition holds.
    fn check_stop_condition(&self, until: &StopCondition) -> Option<StopReason> {
        let state = self.state.lock();
        let enough = state.tally.stop_reason(&self.sampling_plan, until);
        enough.or_else(|| {
            let patience = self.stall_timeout?;
            // An open split that no thread is reading is about to be complete, or to be given up.
            let is_idle = |(split, worker): (usize, usize)| {
                let hand = state.reader_threads.get(worker);
                hand.is_some_and(|hand| {
                    hand.current_split() == Some(split) && hand.idle_time() > patience
                })
            };
            let has_stalled =
                self.sampling_plan.is_exhausted() && state.tally.open_splits().all(is_idle);
            has_stalled.then_some(StopReason::StopRequest)
        })
    }

    /// Takes the next split for a thread, or returns `None` if none is left or the run is over. The split is
    /// opened under the same lock, so that a thread that finds no split left finds this one open.
    fn take_next_split(&self, worker: usize, hand: &ReaderThreadState) -> Option<usize> {
        let mut state = self.state.lock();
        if self.is_over() {
            return None;
        }
        let index = self.sampling_plan.next_split()?;
        hand.begin_split(index);
        state.tally.open_split(index, worker);
        Some(index)
    }

    fn read_splits(
        &self,
        worker: usize,
        hand: &ReaderThreadState,
        sender: &SyncSender<RowMessage>,
    ) -> Result<()> {
        let mut turn = self.scan.new_core_turn();
        while !self.is_over() {
            if !turn.acquire(|| self.is_stopped() || self.sampling_plan.is_exhausted()) {
                return Ok(());
            }
            let Some(index) = self.take_next_split(worker, hand) else { return Ok(()) };
            let read = catch_panic(|| self.read_split(index, hand, sender, &mut turn));
            hand.end_split();
            if let Err(error) = read {
                // Hold the lock: a split that is not recorded as failed before the run is over stays open.
                let state = &mut *self.state.lock();
                if self.is_over() {
                    return Ok(());
                }
                if self.stall_timeout.is_some() {
                    state.tally.give_up_split(GivenUpSplit { split: index, error: None });
                    state.failures.push((index, error));
                } else {
                    self.sampling_plan.give_up_split(index, error, &mut state.tally)?;
                }
            }
            if hand.is_replaced() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_split(
        &self,
        index: usize,
        hand: &ReaderThreadState,
        sender: &SyncSender<RowMessage>,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<()> {
        let mut clock = ThreadCpuClock::start();
        let map = self.progress.map_counters();
        // Rows that were found are not checked again, so the split begins at the offset that the bytes before
        // it imply.
        let split = &self.scan.splits()[index];
        let source = self.scan.source();
        if let Some(start) = source.guess_start_from_before(split, &self.cancel)? {
            self.scan.set_exact_start(index, start);
        }
        let mut batches = self.map.split_rows(index)?;
        for batch in batches.by_ref() {
            map.add_thread_cpu(&mut clock);
            let batch = batch.into_tidemill_error()?;
            let so_far = self.scan.read_counts(index);
            if !self.record_partly_read(index, so_far) {
                return Ok(());
            }
            hand.suspend_stall_check();
            // The thread waits until the row is taken or the receiver is gone.
            let has_rows = batch.num_rows() > 0;
            if has_rows && !send_message(sender, RowMessage::Rows(batch, index, so_far), turn) {
                return Ok(());
            }
            turn.acquire(|| self.is_stopped());
            hand.record_progress();
            self.cancel.check()?;
        }
        if self.is_over() {
            return Ok(());
        }
        drop(batches);
        self.scan.read_unrequested_split(index)?;
        map.add_thread_cpu(&mut clock);
        let outcome = self.scan.take_outcome(index);
        hand.suspend_stall_check();
        if self.is_find {
            return self.complete_split(index, outcome);
        }
        send_message(sender, RowMessage::SplitDone(index, outcome), turn);
        Ok(())
    }

    /// Records the progress within a split, if a search counts it. Returns false once the run is over.
    fn record_partly_read(&self, index: usize, so_far: ReadCounts) -> bool {
        if !self.is_find {
            return true;
        }
        let mut state = self.state.lock();
        // Rows found after the end are in no coverage.
        if self.is_over() {
            return false;
        }
        state.partly_read_splits.insert(index, so_far);
        true
    }

    /// Marks a split as complete, so that it counts.
    fn complete_split(&self, index: usize, outcome: Option<SplitOutcome>) -> Result<()> {
        let mut state = self.state.lock();
        if self.is_find && self.is_over() {
            return Ok(());
        }
        // From here on all rows of the split count.
        state.partly_read_splits.remove(&index);
        state.tally.complete_split(
            &self.scan,
            index,
            self.sampling_plan.split_bytes[index],
            outcome.as_ref(),
        );
        if let Some(outcome) = outcome {
            self.scan.count_or_report_split(index, 0, outcome)?;
        }
        Ok(())
    }
}
