//! The local runner: reads splits in sampling order into tables on this process's threads, until it stops.
//!
//! A split is complete once all of it was read, and only complete splits count. Until then its rows are held,
//! or are in a table of their own if they are many, so nothing of an abandoned split is in an answer. At the
//! end all complete splits count. Those still being read are left out: at most one for each thread, and those
//! that stall.
//!
//! A blocked read cannot be interrupted (a FIFO without a writer, a file system that hangs), so the runner
//! never joins a thread. It takes the threads' tables from them, under the lock under which they fill them.
//! The runner starts a replacement for a thread that has waited for long. The blocked thread's turn among the
//! runs on this machine passes on, because a thread that does not compute holds none. A thread that waits for
//! its turn is not replaced.
//!
//! There may thus be many more tables than running threads. The tables and waiting rows of stalled threads
//! stay charged to the run's memory account, and any thread may spill the largest of them to the merger. The
//! table of a replaced thread that has ended goes to the next thread that starts.
//!
//! An input that cannot be cut (compressed text, standard input, a program) cannot be sampled. It is read
//! from its beginning, and its rows count as they come.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::memory_account::{MemoryAccount, MemoryCharge, MemoryHolder};
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_sampling::SplitSample;
use tidemill_source::{SkippedFile, SplitPart};
use tidemill_sql::IntoTidemillError;
use tidemill_tables::merging::merge::{ChunkMerger, DeferredChunk, MergeLoad, MergedTable};
use tidemill_tables::{GroupChunk, StateUpdateSwitch, TableSpec};

use super::reader_threads::{ReaderThreadState, mark_stalled_for_replacement};
use super::sampling_plan::{POLL_INTERVAL, SamplingPlan};
use super::split_tally::SplitTally;
use crate::execution::map::SplitMap;
use crate::execution::scan::{ReadCounts, Scan, SplitOutcome};
use crate::execution::table_runner::{WorkerTable, append_positions};

/// The map, splits, tables and settings of a sampled run.
pub(crate) struct SampledRunContext {
    /// The map that a split's rows pass.
    pub map: SplitMap,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// Keys and aggregates.
    pub table_spec: Arc<TableSpec>,
    /// Number of threads that read at a time.
    pub threads: usize,
    /// The memory account of all tables.
    pub memory_account: MemoryAccount,
    /// The folders for spill files.
    pub spill_dirs: Vec<PathBuf>,
    /// Cancels the run.
    pub cancel: CancelFlag,
    /// Requests the end of reading, with an answer from the part read so far.
    pub stop_request: CancelFlag,
    /// Counts the bytes read and spilled.
    pub progress: RunProgress,
    /// Number of columns of the answer with intervals.
    pub interval_count: usize,
    /// Maximum number of rows of the answer, as far as known.
    pub result_rows_max: usize,
    /// Turns intervals off if only an observer of interim results wants them. With many times more groups
    /// than fit a screen, they cost more than they are worth.
    pub observer_switch: Option<StateUpdateSwitch>,
    /// Turns off the aggregates by cell, the data behind intervals.
    pub cell_switch: StateUpdateSwitch,
    /// True if splits begin at the offset that the bytes before them imply, and not where their own first
    /// bytes suggest.
    pub has_exact_starts: bool,
    /// On a worker, whose splits the driver has sampled: time without new data after which the run ends
    /// without the stalled splits. Errors are reported, and the driver judges them.
    pub stall_timeout: Option<Duration>,
    /// Counts of splits with guessed starts.
    pub guessed_starts: Arc<GuessedStarts>,
}

/// The load of the threads' tables: maximum number of groups in a table, and number of tables.
pub(super) struct ThreadTableLoad {
    pub groups_per_table: usize,
    pub table_count: usize,
}

impl ThreadTableLoad {
    /// Returns the time that grouping them takes.
    pub(super) fn grouping_time(&self) -> Duration {
        let groups = self.groups_per_table.saturating_mul(self.table_count) as u64;
        Duration::from_nanos(RESERVE_PER_GROUP_NS.saturating_mul(groups))
    }
}

impl SampledRunContext {
    /// Returns the time to reserve from the last row to the answer, in a run of length `all`.
    pub(super) fn finish_reserve(
        &self,
        held: ThreadTableLoad,
        load: MergeLoad,
        all: Duration,
    ) -> Duration {
        let intervals = self.result_rows_max.min(held.groups_per_table) * self.interval_count;
        let intervals = intervals.div_ceil(self.threads.max(1)) as u64;
        let tables = [
            RESERVE_PER_MERGED_GROUP_NS.saturating_mul(load.enqueued_groups as u64),
            RESERVE_PER_ROW_NS.saturating_mul(load.scattered_rows as u64),
            RESERVE_PER_BYTE_NS.saturating_mul(load.account_bytes as u64),
            RESERVE_PER_SPILLED_BYTE_NS.saturating_mul(self.progress.spilled_bytes()),
        ];
        let tables = Duration::from_nanos(tables.into_iter().fold(0, u64::saturating_add));
        let tables = tables.saturating_add(held.grouping_time());
        let intervals = RESERVE_PER_INTERVAL_NS.saturating_mul(intervals);
        // Reading more of the input is better than intervals of very many groups: the first rows have theirs.
        let reserve = tables + Duration::from_nanos(intervals).min(all / INTERVAL_TIME_DIVISOR);
        FINISH_RESERVE_MIN + reserve.min(all - all / READ_TIME_DIVISOR)
    }
}

/// Number and bytes of the splits with a guessed start so far.
#[derive(Debug, Default)]
pub(crate) struct GuessedStarts {
    split_count: AtomicUsize,
    bytes: AtomicU64,
}

/// The stop condition of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopCondition {
    /// The time at which the answer is due.
    pub ends_at: Option<Instant>,
    /// Share of the bytes that may be left out.
    pub drop_share: Option<f64>,
    /// Share of the splits that are read.
    pub sample_share: Option<f64>,
    /// Seed of the sampling order.
    pub seed: u64,
    /// Confidence of intervals.
    pub confidence: f64,
}

/// The reason why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// All of the input was read.
    WholeInput,
    Deadline,
    DropShare,
    SampleShare,
    /// All displayed intervals are within the target error.
    TargetError,
    /// As many rows as wanted were found.
    RowLimit,
    /// The user or the program requested an early answer, or the run starts over.
    StopRequest,
}

/// A split that was given up.
#[derive(Debug, Clone)]
pub(crate) struct GivenUpSplit {
    pub split: usize,
    /// The error of reading it; `None` if it stalled.
    pub error: Option<String>,
}

/// The merged table of a run, and what it read.
pub(crate) struct SampledTables {
    pub merged: MergedTable,
    pub outcome: ReadOutcome,
    /// Splits that could not be read, if the driver judges their errors.
    pub failures: Vec<(usize, Error)>,
}

/// The outcome of reading: the reason for its end, and the splits that count or do not.
#[derive(Debug, Clone)]
pub(crate) struct ReadOutcome {
    pub stop_reason: StopReason,
    /// The complete splits as a sample; `None` if the input was read in order.
    pub sample: Option<SplitSample>,
    /// Splits that failed or stalled.
    pub given_up_splits: Vec<GivenUpSplit>,
    /// Files that are in no split: they could not be opened, or did not answer.
    pub left_out_files: Vec<SkippedFile>,
    /// Splits that were being read at the end and are not given up.
    pub in_flight_splits: Vec<usize>,
    /// Number of splits with a guessed start that was wrong.
    pub wrong_start_count: u64,
    /// Bytes whose rows count.
    pub counted_bytes: u64,
}

impl ReadOutcome {
    pub(crate) fn is_whole_input(&self) -> bool {
        matches!(self.stop_reason, StopReason::WholeInput | StopReason::RowLimit)
            && self.left_out_files.is_empty()
    }
}

/// A snapshot of the tables during a run.
pub(crate) struct TableSnapshot {
    /// Keys and one answer for each aggregate, in the columns of [`TableSpec::output_schema`].
    pub answer: RecordBatch,
    /// The complete splits as a sample; `None` if the input is read in order.
    pub sample: Option<SplitSample>,
    /// The share of the bytes that was read.
    pub bytes_read_share: f64,
    /// The time at which an inspection has to be over.
    pub ends_at: Option<Instant>,
}

/// An inspector of the tables while they are filled.
pub(crate) trait TableInspector {
    /// Returns true if an inspection is due after this number of splits.
    fn is_due(&self, splits_read: u64) -> bool;

    /// Returns the time after which an inspection may be due, whatever was read.
    fn time_until_due(&self) -> Option<Duration>;

    /// Inspects a snapshot. If the answer is precise enough, returns the confidence for the final intervals.
    ///
    /// # Errors
    /// Fails if an answer cannot be computed.
    fn inspect(&mut self, snapshot: TableSnapshot) -> Result<Option<f64>>;
}

/// An inspector that is never due.
pub(crate) struct NoInspection;

impl TableInspector for NoInspection {
    fn is_due(&self, _: u64) -> bool {
        false
    }

    fn time_until_due(&self) -> Option<Duration> {
        None
    }

    fn inspect(&mut self, _: TableSnapshot) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// Minimum time to reserve from the last row to the answer.
pub(super) const FINISH_RESERVE_MIN: Duration = Duration::from_millis(20);

/// Reserve for each group of a thread's table.
const RESERVE_PER_GROUP_NS: u64 = 3_000;

/// Reserve for each group that was handed to the merger, each time that it was.
const RESERVE_PER_MERGED_GROUP_NS: u64 = 1_000;

/// Reserve for each row that is grouped at the end, assuming that nearly every row is a group of its own.
const RESERVE_PER_ROW_NS: u64 = 1_000;

/// Reserve for each byte of tables, because states that keep all values or many cells are scanned or sorted.
const RESERVE_PER_BYTE_NS: u64 = 3;

/// Reserve for each spilled byte, which is read back and merged.
const RESERVE_PER_SPILLED_BYTE_NS: u64 = 8;

/// Reserve for each interval of a row that is shown, on one thread.
const RESERVE_PER_INTERVAL_NS: u64 = 15_000;

/// Maximum share of the run's time that is reserved for intervals, as a divisor.
const INTERVAL_TIME_DIVISOR: u32 = 3;

/// Minimum share of the run's time that is kept for reading, as a divisor.
const READ_TIME_DIVISOR: u32 = 16;

/// Time to wait for filter programs at the end: the threads that read from them end them.
const PROGRAM_EXIT_TIMEOUT: Duration = Duration::from_millis(120);

/// Maximum number of groups of an interim result, unless the answer may rest on a part of the input.
const OBSERVED_GROUPS_MAX: usize = 2_000;

/// Maximum bytes of tables for interim results: each inspection copies the tables, at some 500 MB a second.
const OBSERVED_BYTES_MAX: usize = 16 << 20;

/// Number of first splits whose guessed starts are checked against the bytes before them; later, one in this
/// many.
const START_CHECK_SPLITS: usize = 16;

/// For small splits: bytes of input for each checked start, because a check reads a quarter of a MiB.
const START_CHECK_BYTES: u64 = 4 << 20;

/// Maximum share of a run's time for inspections, as a divisor.
pub(super) const INSPECTION_TIME_DIVISOR: u32 = 6;

/// Time that is added to a run's length in that limit, so that short runs have some inspections.
pub(super) const INSPECTION_FREE_TIME: Duration = Duration::from_secs(1);

/// Minimum limit for the bytes of waiting rows.
const WAITING_ROWS_LIMIT_BYTES_MIN: usize = 8 << 20;

/// Assumed time to group a KiB of waiting rows, until it was measured.
const COMPLETION_NS_PER_KIB: u64 = 1_000;

/// Minimum bytes of waiting rows for a measurement of the time to group them.
const MEASURED_COMPLETION_BYTES_MIN: usize = 1 << 20;

/// Waiting rows that take no longer than this are grouped even if the answer is due before that.
const COMPLETION_GRACE_TIME: Duration = Duration::from_millis(10);

/// Minimum bytes of a thread's table for a spill: less makes no room worth mentioning.
const SPILL_BYTES_MIN: usize = 64 << 10;

struct LocalRunner {
    context: SampledRunContext,
    sampling_plan: SamplingPlan,
    is_over: AtomicBool,
    merger: Arc<ChunkMerger>,
    /// The groups that inspections have taken from the threads' tables; belongs to no thread.
    gathered_table: Arc<ReaderThread>,
    state: Mutex<LocalRunnerState>,
    state_changed: Condvar,
    /// Number of splits that are being completed.
    completing_count: Mutex<usize>,
    completion_done: Condvar,
    table_bytes_max: usize,
    waiting_rows_bytes_max: usize,
    /// Groups and bytes of the largest thread table.
    largest_group_count: AtomicUsize,
    largest_table_bytes: AtomicUsize,
    /// Number of thread tables.
    table_count: AtomicUsize,
    /// Latest measured time to group a KiB of waiting rows.
    completion_ns_per_kib: AtomicU64,
    began: Instant,
    /// The time at which the answer is due.
    ends_at: Option<Instant>,
}

struct LocalRunnerState {
    /// Number of threads that have not ended.
    running_thread_count: usize,
    /// The table and state of each thread.
    reader_threads: Vec<Arc<ReaderThread>>,
    tally: SplitTally,
    /// Splits that failed, if the driver judges their errors.
    failures: Vec<(usize, Error)>,
    /// Chunks by split, for order-sensitive aggregates.
    split_chunks: BTreeMap<usize, Vec<DeferredChunk>>,
    error: Option<Error>,
}

/// The table and state of a thread that reads. Any thread may spill the table.
struct ReaderThread {
    /// The table; `None` after it was taken away.
    table: Mutex<Option<ThreadTable>>,
    spill_target: SpillTarget,
    state: ReaderThreadState,
    /// True if the thread has ended.
    has_ended: AtomicBool,
}

/// The target of a thread's spills, and what a new table needs.
#[derive(Clone)]
struct SpillTarget {
    spec: Arc<TableSpec>,
    memory_account: MemoryAccount,
    merger: Arc<ChunkMerger>,
    table_bytes_max: usize,
    worker: usize,
}

impl ReaderThread {
    fn new(held: ThreadTable, spilling: SpillTarget, began: Instant) -> Arc<Self> {
        let account = spilling.memory_account.clone();
        let hand = Arc::new(ReaderThread {
            table: Mutex::new(Some(held)),
            spill_target: spilling,
            state: ReaderThreadState::new(began),
            has_ended: AtomicBool::new(false),
        });
        let holder = Arc::downgrade(&hand);
        account.register(holder);
        hand
    }
}

impl MemoryHolder for ReaderThread {
    fn spillable_bytes(&self) -> usize {
        let held = self.table.try_lock();
        let bytes = held.and_then(|held| held.as_ref().map(ThreadTable::bytes)).unwrap_or(0);
        if bytes > SPILL_BYTES_MIN { bytes } else { 0 }
    }

    fn spill(&self) -> Result<bool> {
        let Some(mut held) = self.table.try_lock() else { return Ok(false) };
        match held.as_mut().filter(|held| held.bytes() > SPILL_BYTES_MIN) {
            Some(held) => held.spill(&self.spill_target).map(|()| true),
            None => Ok(false),
        }
    }
}

/// A thread's turn and clock.
struct ThreadContext<'a> {
    turn: ComputeTurn<'a>,
    /// Processor time of the thread since it was last booked.
    clock: ThreadCpuClock,
}

/// A thread's aggregate table.
struct ThreadTable {
    tables: WorkerTable,
    /// Rows of the split that is being read.
    waiting_rows: WaitingRows,
    /// Chunks that have left the table for this split, for order-sensitive aggregates.
    spilled_chunks: Vec<DeferredChunk>,
    /// Progress within the split that is being read, if rows count as they come.
    split_progress: ReadCounts,
}

impl ThreadTable {
    fn new(spilling: &SpillTarget) -> Result<Self> {
        Ok(ThreadTable {
            tables: spilling.new_tables()?,
            waiting_rows: WaitingRows::new(&spilling.memory_account),
            spilled_chunks: Vec::new(),
            split_progress: ReadCounts::default(),
        })
    }

    fn bytes(&self) -> usize {
        self.tables.charged_bytes() + self.waiting_rows.bytes()
    }

    /// Hands the groups to the merger. Spills waiting rows, and the groups of order-sensitive aggregates,
    /// whose turn has not come.
    fn spill(&mut self, to: &SpillTarget) -> Result<()> {
        if self.waiting_rows.bytes() > 0 {
            self.waiting_rows.spill(to)?;
        }
        if self.tables.charged_bytes() == 0 {
            return Ok(());
        }
        match to.spec.is_order_insensitive() {
            true => {
                self.tables.flush_to_merger(&to.merger)?;
                to.merger.merge_enqueued(to.worker)?;
            }
            false => self.spilled_chunks.extend(self.tables.spill_remaining_groups(&to.merger)?),
        }
        // An emptied table keeps the memory of its groups.
        self.tables = to.new_tables()?;
        Ok(())
    }
}

impl SpillTarget {
    fn new_tables(&self) -> Result<WorkerTable> {
        WorkerTable::new(&self.spec, self.table_bytes_max, &self.memory_account)
    }
}

/// Fills tables on this process's threads until the stop condition holds.
///
/// # Errors
/// The first error of reading, unless the split may be left out, of the map or of a merge.
pub(crate) fn run_locally(
    work: SampledRunContext,
    until: &StopCondition,
    look: &mut dyn TableInspector,
) -> Result<SampledTables> {
    let drawing = match work.stall_timeout {
        Some(_) => SamplingPlan::from_assigned_splits(&work.scan),
        None => SamplingPlan::new(&work.scan, until)?,
    };
    if drawing.is_in_order {
        // Rows of input read in order count as they come.
        work.scan.set_eager();
    }
    let threads = work.threads.clamp(1, drawing.split_bytes.len().max(1));
    let merger = ChunkMerger::new(
        &work.table_spec,
        &work.memory_account,
        &work.spill_dirs,
        &work.cancel,
        &work.progress,
    )?;
    let began = Instant::now();
    let worker_bytes = work.memory_account.limit_bytes() / 5 / threads;
    let spilling = SpillTarget {
        spec: Arc::clone(&work.table_spec),
        memory_account: work.memory_account.clone(),
        merger: Arc::clone(&merger),
        table_bytes_max: worker_bytes,
        worker: 0,
    };
    let gathered = ReaderThread::new(ThreadTable::new(&spilling)?, spilling, began);
    let state = LocalRunnerState {
        running_thread_count: 0,
        reader_threads: Vec::new(),
        tally: SplitTally::new(drawing.split_bytes.len()),
        failures: Vec::new(),
        split_chunks: BTreeMap::new(),
        error: None,
    };
    let runner = Arc::new(LocalRunner {
        sampling_plan: drawing,
        is_over: AtomicBool::new(false),
        merger,
        gathered_table: gathered,
        state: Mutex::new(state),
        state_changed: Condvar::new(),
        completing_count: Mutex::new(0),
        completion_done: Condvar::new(),
        table_bytes_max: worker_bytes,
        waiting_rows_bytes_max: worker_bytes.max(WAITING_ROWS_LIMIT_BYTES_MIN),
        largest_group_count: AtomicUsize::new(0),
        largest_table_bytes: AtomicUsize::new(0),
        table_count: AtomicUsize::new(0),
        completion_ns_per_kib: AtomicU64::new(COMPLETION_NS_PER_KIB),
        began,
        ends_at: until.ends_at,
        context: work,
    });
    for _ in 0..threads {
        runner.start_thread()?;
    }
    let mut until = until.clone();
    let why = runner.wait_for_stop(&mut until, look);
    runner.mark_over();
    // Threads that are not blocked end now.
    runner.context.scan.stop_readers();
    runner.state_changed.notify_all();
    runner.finish_run(why?, &until, threads)
}

impl LocalRunner {
    fn start_thread(self: &Arc<Self>) -> Result<()> {
        let hands = self.state.lock().reader_threads.clone();
        let worker = hands.len();
        let spilling = SpillTarget { worker, ..self.gathered_table.spill_target.clone() };
        // Reuse the table of a replaced thread that has ended.
        let ended = hands.iter().filter(|hand| hand.has_ended.load(Ordering::SeqCst));
        let held = match ended.filter_map(|hand| hand.table.lock().take()).next() {
            Some(held) => held,
            None => {
                self.table_count.fetch_add(1, Ordering::Relaxed);
                ThreadTable::new(&spilling)?
            }
        };
        let hand = ReaderThread::new(held, spilling, self.began);
        {
            let mut state = self.state.lock();
            state.reader_threads.push(Arc::clone(&hand));
            state.running_thread_count += 1;
        }
        let runner = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("split-{worker}"))
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || runner.run_thread(worker, &hand));
        // The thread is not joined, because it may never end.
        started.map(drop).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Marks the run as over, under the lock: from here on no split is begun and none is given up.
    fn mark_over(&self) {
        let _state = self.state.lock();
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Takes the next split for a thread, or returns `None` if none is left or the run is over. The split is
    /// opened under the same lock, so that a thread that finds no split left finds this one open.
    fn take_next_split(&self, worker: usize, hand: &ReaderThread) -> Option<usize> {
        let mut state = self.state.lock();
        if self.is_over() {
            return None;
        }
        let index = self.sampling_plan.next_split()?;
        hand.state.begin_split(index);
        state.tally.open_split(index, worker);
        Some(index)
    }

    fn is_stopped(&self) -> bool {
        self.is_over() || self.context.cancel.is_cancelled()
    }

    fn run_thread(&self, worker: usize, hand: &ReaderThread) {
        let ended = catch_panic(|| self.read_splits(worker, hand));
        hand.state.end_split();
        hand.has_ended.store(true, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.running_thread_count -= 1;
        if let Err(error) = ended
            && !self.is_over()
        {
            state.error.get_or_insert(error);
        }
        self.state_changed.notify_all();
    }

    fn read_splits(&self, worker: usize, hand: &ReaderThread) -> Result<()> {
        let mut own = ThreadContext {
            turn: self.context.scan.new_core_turn(),
            clock: ThreadCpuClock::start(),
        };
        while !self.is_over() {
            // Wait for the turn first, because a split that is taken is begun at once.
            if !own.turn.acquire(|| self.is_stopped() || self.sampling_plan.is_exhausted()) {
                return Ok(());
            }
            let Some(index) = self.take_next_split(worker, hand) else { return Ok(()) };
            let read = catch_panic(|| self.read_split(index, worker, hand, &mut own));
            hand.state.end_split();
            self.record_failure(self.context.memory_account.make_room());
            if let Err(error) = read {
                {
                    let state = &mut *self.state.lock();
                    if self.is_over() {
                        return Ok(());
                    }
                    if self.context.stall_timeout.is_some() {
                        state.tally.give_up_split(GivenUpSplit { split: index, error: None });
                        state.failures.push((index, error));
                    } else {
                        self.sampling_plan.give_up_split(index, error, &mut state.tally)?;
                    }
                }
                // Rows of the split that count as they came are in the tables and stay; its bytes do not
                // count.
                let counted = hand.table.lock().as_mut().map(|held| {
                    held.waiting_rows = WaitingRows::new(&self.context.memory_account);
                    std::mem::take(&mut held.split_progress)
                });
                self.context.scan.add_read_counts(counted.unwrap_or_default());
            }
            if self.needs_stop_check() {
                self.state_changed.notify_all();
            }
            if hand.state.is_replaced() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns true if the waiting runner has something to decide. It also polls, so threads need not wake it
    /// after each of many small splits.
    fn needs_stop_check(&self) -> bool {
        let state = self.state.lock();
        let has_dropped = self.sampling_plan.drop_bytes > 0
            && state.tally.bytes >= self.sampling_plan.total_bytes - self.sampling_plan.drop_bytes;
        has_dropped
            || state.tally.completed_count() + state.tally.given_up.len()
                >= self.sampling_plan.split_count_max()
    }

    /// Reads a split. Its rows count once the split is complete, or as they come.
    fn read_split(
        &self,
        index: usize,
        worker: usize,
        hand: &ReaderThread,
        own: &mut ThreadContext<'_>,
    ) -> Result<()> {
        let scan = &self.context.scan;
        if self.context.has_exact_starts
            && let Some(start) = self.find_exact_start(index)?
        {
            scan.set_exact_start(index, start);
        }
        let mut read = self.read_split_rows(index, worker, hand, own);
        let mut outcome = scan.take_outcome(index);
        if !self.context.has_exact_starts
            && !self.sampling_plan.is_in_order
            && self.needs_start_check(index)
        {
            let start = self.find_exact_start(index)?;
            let other = |outcome: &SplitOutcome| {
                !outcome.is_exact_start
                    && start.is_some_and(|it| outcome.stats.first_record_offset != Some(it))
            };
            if outcome.as_ref().is_some_and(other) {
                let mut state = self.state.lock();
                state.tally.has_wrong_start = true;
                state.tally.checked_wrong_start_count += 1;
                self.state_changed.notify_all();
            }
        }
        // A rejected record may mean that the split's first record was guessed to begin at a wrong offset.
        let is_odd = |outcome: &SplitOutcome| {
            !outcome.is_exact_start && (read.is_err() || outcome.stats.rejected_count > 0)
        };
        if !self.sampling_plan.is_in_order
            && !self.is_over()
            && let Some(odd) = outcome.as_ref().filter(|outcome| is_odd(outcome))
            && let Some(start) = self.find_exact_start(index)?
            && odd.stats.first_record_offset != Some(start)
        {
            scan.set_exact_start(index, start);
            read = self.read_split_rows(index, worker, hand, own);
            outcome = scan.take_outcome(index);
        }
        // A damaged file may decode to data that looks like malformed records.
        let is_refused = matches!(read, Err(Error::BadRecords { .. }));
        let has_refused =
            || outcome.as_ref().is_some_and(|outcome| outcome.stats.rejected_count > 0);
        if is_refused && self.sampling_plan.drop_bytes > 0
            || self.context.stall_timeout.is_some() && has_refused()
        {
            scan.source().verify_compressed_files(&scan.splits()[index], &self.context.cancel)?;
        }
        let Some(row_count) = read? else { return Ok(()) };
        // This wait is no stall, however long.
        hand.state.suspend_stall_check();
        let Some(turn) = self.acquire_completion_permit() else { return Ok(()) };
        if self.is_completion_late(hand) {
            // The answer would be late, so the split counts as one that was being read at the end.
            drop(turn);
            own.turn.release();
            self.wait_until_over();
            return Ok(());
        }
        let landed = self.complete_split(index, outcome, row_count, worker, hand);
        drop(turn);
        self.record_failure(landed);
        self.context.progress.table_counters().add_thread_cpu(&mut own.clock);
        Ok(())
    }

    /// Returns true if the start of a split is to be checked. A sample hardly ever contains two neighbours,
    /// whose ends and starts could be compared.
    fn needs_start_check(&self, index: usize) -> bool {
        if self.context.scan.source().has_exact_starts() {
            return false;
        }
        let bytes = self.sampling_plan.split_bytes[index];
        let GuessedStarts { split_count: splits, bytes: before } =
            self.context.guessed_starts.as_ref();
        let number = splits.fetch_add(1, Ordering::Relaxed);
        let before = before.fetch_add(bytes, Ordering::Relaxed);
        let is_far = before / START_CHECK_BYTES != (before + bytes) / START_CHECK_BYTES;
        let is_large = bytes.saturating_mul(START_CHECK_SPLITS as u64) >= START_CHECK_BYTES;
        number < START_CHECK_SPLITS
            || if is_large { number.is_multiple_of(START_CHECK_SPLITS) } else { is_far }
    }

    fn find_exact_start(&self, index: usize) -> Result<Option<u64>> {
        let scan = &self.context.scan;
        Ok(scan.source().guess_start_from_before(&scan.splits()[index], &self.context.cancel)?)
    }

    /// Reads the rows of a split and returns their number, or `None` if the run is over. Rows that do not
    /// count yet wait in the thread's table.
    fn read_split_rows(
        &self,
        index: usize,
        worker: usize,
        hand: &ReaderThread,
        ThreadContext { turn, clock }: &mut ThreadContext<'_>,
    ) -> Result<Option<u64>> {
        let work = &self.context;
        let (map, tables) = (work.progress.map_counters(), work.progress.table_counters());
        let mut batches = work.map.split_rows(index)?;
        if let Some(held) = hand.table.lock().as_mut() {
            held.waiting_rows = WaitingRows::new(&work.memory_account);
        }
        let mut row_count = 0;
        for batch in batches.by_ref() {
            if self.is_over() {
                return Ok(None);
            }
            hand.state.record_progress();
            map.add_thread_cpu(clock);
            let mut batch = batch.into_tidemill_error()?;
            if work.table_spec.needs_positions() {
                batch = append_positions(&batch, work.scan.splits()[index].index, row_count)?;
            }
            row_count += batch.num_rows() as u64;
            match self.sampling_plan.is_in_order {
                true => self.add_in_order_rows(index, &batch, worker, hand)?,
                false => self.hold_rows(batch, hand),
            }
            self.record_failure(work.memory_account.make_room());
            // This wait is no stall, however long.
            hand.state.suspend_stall_check();
            turn.acquire(|| self.is_stopped());
            hand.state.record_progress();
            work.cancel.check()?;
            tables.add_thread_cpu(clock);
        }
        drop(batches);
        work.scan.read_unrequested_split(index)?;
        map.add_thread_cpu(clock);
        Ok(Some(row_count))
    }

    /// Adds rows that count as they come.
    fn add_in_order_rows(
        &self,
        index: usize,
        batch: &RecordBatch,
        worker: usize,
        hand: &ReaderThread,
    ) -> Result<()> {
        let mut held = hand.table.lock();
        let Some(held) = held.as_mut() else { return Ok(()) };
        let chunks =
            (!self.context.table_spec.is_order_insensitive()).then_some(&mut held.spilled_chunks);
        held.tables.add_rows(batch, (&self.merger, worker), self.table_bytes_max, chunks)?;
        held.split_progress = self.context.scan.read_counts(index);
        self.record_table_size(&held.tables);
        Ok(())
    }

    fn record_table_size(&self, tables: &WorkerTable) {
        let groups = tables.group_count();
        self.largest_group_count.fetch_max(groups, Ordering::Relaxed);
        self.largest_table_bytes.fetch_max(tables.charged_bytes(), Ordering::Relaxed);
        if let Some(switch) =
            self.context.observer_switch.as_ref().filter(|_| groups > OBSERVED_GROUPS_MAX)
        {
            switch.turn_off();
        }
    }

    /// Holds rows of a split until all of it was read.
    fn hold_rows(&self, batch: RecordBatch, hand: &ReaderThread) {
        let mut held = hand.table.lock();
        let Some(ThreadTable { waiting_rows: waiting, .. }) = held.as_mut() else { return };
        waiting.add(batch);
        // A split of an order-sensitive aggregate has its own chunks in any case, and is large. If its rows
        // were grouped all at once at the end, the runner would wait long for the table.
        let has_own =
            waiting.own_table.is_some() || !self.context.table_spec.is_order_insensitive();
        if has_own || waiting.bytes() > self.waiting_rows_bytes_max {
            let grouped = waiting.group_rows(&hand.spill_target);
            self.record_failure(grouped);
        }
    }

    /// Records a failure to fill or spill a table, which fails the run: the groups may be incomplete,
    /// whatever split they belong to, so leaving out a split does not help.
    fn record_failure(&self, filled: Result<()>) {
        if let Err(error) = filled {
            self.state.lock().error.get_or_insert(error);
            self.state_changed.notify_all();
        }
    }

    /// Waits until fewer splits are being completed than threads may run. Returns `None` once the run is
    /// over. Threads of stalled splits may all return at the same time, and each reads back the spilled rows
    /// of its split.
    fn acquire_completion_permit(&self) -> Option<CompletionPermit<'_>> {
        let mut landing = self.completing_count.lock();
        while *landing >= self.context.threads.max(1) {
            if self.is_over() {
                return None;
            }
            self.completion_done.wait_for(&mut landing, POLL_INTERVAL);
        }
        *landing += 1;
        Some(CompletionPermit { runner: self })
    }

    /// Returns true if the waiting rows cannot be grouped before the answer is due.
    fn is_completion_late(&self, hand: &ReaderThread) -> bool {
        let Some(ends_at) = self.ends_at else { return false };
        let kib =
            hand.table.lock().as_ref().map_or(0, |held| held.waiting_rows.charge.bytes() / 1_024);
        let takes = self.completion_ns_per_kib.load(Ordering::Relaxed).saturating_mul(kib as u64);
        let takes = Duration::from_nanos(takes);
        takes > COMPLETION_GRACE_TIME && takes > ends_at.saturating_duration_since(Instant::now())
    }

    fn record_completion_time(&self, bytes: usize, took: Duration) {
        if bytes >= MEASURED_COMPLETION_BYTES_MIN {
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            let kib = (bytes / 1_024) as u64;
            self.completion_ns_per_kib.store(took.div_ceil(kib), Ordering::Relaxed);
        }
    }

    fn wait_until_over(&self) {
        let mut state = self.state.lock();
        while !self.is_stopped() {
            self.state_changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Completes a split: groups its waiting rows and marks it as complete.
    fn complete_split(
        &self,
        index: usize,
        outcome: Option<SplitOutcome>,
        row_count: u64,
        worker: usize,
        hand: &ReaderThread,
    ) -> Result<()> {
        let (is_order_free, merger) =
            (self.context.table_spec.is_order_insensitive(), &*self.merger);
        let mut held = hand.table.lock();
        let Some(held) = held.as_mut() else { return Ok(()) };
        let waiting = std::mem::replace(
            &mut held.waiting_rows,
            WaitingRows::new(&self.context.memory_account),
        );
        let WaitingRows { batches, mut charge, own_table: own } = waiting;
        let (began, waited_bytes) = (Instant::now(), charge.bytes());
        if let Some((mut tables, chunks)) = own {
            held.spilled_chunks.extend(chunks);
            held.spilled_chunks.extend(tables.defer_remaining_groups(merger)?);
        }
        for batch in batches {
            let chunks = (!is_order_free).then_some(&mut held.spilled_chunks);
            held.tables.add_rows(&batch, (merger, worker), self.table_bytes_max, chunks)?;
            charge.set_bytes(charge.bytes().saturating_sub(batch.get_array_memory_size()));
        }
        if is_order_free {
            for chunk in held.spilled_chunks.drain(..) {
                merger.accept_deferred(chunk, worker)?;
            }
            merger.merge_and_spill(worker)?;
        } else {
            held.spilled_chunks.extend(held.tables.defer_remaining_groups(merger)?);
        }
        self.record_completion_time(waited_bytes, began.elapsed());
        self.record_table_size(&held.tables);
        held.split_progress = ReadCounts::default();
        self.context.progress.map_counters().add_rows(row_count);
        self.state.lock().tally.complete_split(
            &self.context.scan,
            index,
            self.sampling_plan.split_bytes[index],
            outcome.as_ref(),
        );
        if let Some(outcome) = outcome {
            self.context.scan.count_or_report_split(index, row_count, outcome)?;
        }
        if !is_order_free {
            let chunks = std::mem::take(&mut held.spilled_chunks);
            self.state.lock().split_chunks.insert(index, chunks);
        }
        Ok(())
    }

    /// Waits until the stop condition holds.
    fn wait_for_stop(
        self: &Arc<Self>,
        until: &mut StopCondition,
        look: &mut dyn TableInspector,
    ) -> Result<StopReason> {
        // An inspection has to be over before the deadline, so the time of the last one is needed.
        let mut look_takes = Duration::ZERO;
        let mut looks_take = Duration::ZERO;
        loop {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            self.context.cancel.check()?;
            if let Some(why) = state.tally.stop_reason(&self.sampling_plan, until) {
                return Ok(why);
            }
            if self
                .context
                .stall_timeout
                .is_some_and(|patience| self.are_open_splits_stalled(&state, patience))
            {
                return Ok(StopReason::StopRequest);
            }
            // The caller starts over. On a worker the task is read to its end, because the driver, which
            // knows all tasks, decides whether to start over.
            let begins_again = state.tally.has_wrong_start
                && !self.context.has_exact_starts
                && !self.sampling_plan.is_in_order
                && self.context.stall_timeout.is_none();
            if self.context.stop_request.is_cancelled() || begins_again {
                return Ok(StopReason::StopRequest);
            }
            // All inspections together take a share of the time, however many groups there are.
            let mut may_look = looks_take * INSPECTION_TIME_DIVISOR
                <= INSPECTION_FREE_TIME + self.began.elapsed()
                && !self
                    .context
                    .observer_switch
                    .as_ref()
                    .is_some_and(|switch| self.is_too_large_to_observe(switch));
            let mut patience = POLL_INTERVAL;
            let mut look_ends_at = None;
            if let Some(ends_at) = until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                let reserve = self.finish_reserve(ends_at).min(left.max(FINISH_RESERVE_MIN));
                match left.checked_sub(reserve).filter(|left| !left.is_zero()) {
                    None => return Ok(StopReason::Deadline),
                    Some(left) => {
                        patience = patience.min(left);
                        // The time of the first inspection is unknown, but it visits all groups.
                        may_look &= left > 3 * look_takes.max(self.table_load().grouping_time());
                        look_ends_at = Some(Instant::now() + left);
                    }
                }
            }
            let stalled = self.mark_stalled_threads(&state);
            if stalled > 0 {
                drop(state);
                for _ in 0..stalled {
                    self.start_thread()?;
                }
                continue;
            }
            if let Some(soon) = look.time_until_due() {
                patience = patience.min(soon);
            }
            let is_due = may_look && look.is_due(state.tally.completed_count() as u64);
            drop(state);
            let began = Instant::now();
            if is_due && let Some(snapshot) = self.take_snapshot(until.confidence)? {
                let found = look.inspect(TableSnapshot { ends_at: look_ends_at, ..snapshot })?;
                look_takes = began.elapsed();
                looks_take += look_takes;
                if let Some(confidence) = found {
                    until.confidence = confidence;
                    return Ok(StopReason::TargetError);
                }
                continue;
            }
            let mut state = self.state.lock();
            self.state_changed.wait_for(&mut state, patience);
        }
    }

    /// Returns true if tables are too large for interim results, because an inspection takes too long.
    fn is_too_large_to_observe(&self, switch: &StateUpdateSwitch) -> bool {
        switch.is_off() || self.largest_table_bytes.load(Ordering::Relaxed) > OBSERVED_BYTES_MAX
    }

    /// Returns the time to reserve from the last row to the answer.
    fn finish_reserve(&self, ends_at: Instant) -> Duration {
        let all = ends_at.saturating_duration_since(self.began);
        self.context.finish_reserve(self.table_load(), self.merger.merge_load(), all)
    }

    fn table_load(&self) -> ThreadTableLoad {
        let (groups, tables) = (
            self.largest_group_count.load(Ordering::Relaxed),
            self.table_count.load(Ordering::Relaxed),
        );
        ThreadTableLoad { groups_per_table: groups, table_count: tables }
    }

    /// Returns a snapshot of all tables, merged into one. Returns `None` if some have left memory or the
    /// aggregates are order-sensitive.
    fn take_snapshot(&self, confidence: f64) -> Result<Option<TableSnapshot>> {
        if !self.context.table_spec.is_order_insensitive() {
            return Ok(None);
        }
        let mut gathered = self.gathered_table.table.lock();
        let Some(ThreadTable { tables: gathered, .. }) = gathered.as_mut() else { return Ok(None) };
        let hands = self.state.lock().reader_threads.clone();
        // Splits that are complete by now. Later ones are in no table that is taken here.
        let mut locked: Vec<_> = hands.iter().map(|hand| hand.table.lock()).collect();
        // The locks prevent spills during this check.
        if !self.merger.is_unused() {
            return Ok(None);
        }
        let (sample, bytes) = {
            let state = self.state.lock();
            let sample = || state.tally.sample(&self.context.scan, &self.sampling_plan, confidence);
            ((!self.sampling_plan.is_in_order).then(sample), state.tally.bytes)
        };
        let bytes =
            if sample.is_none() { bytes.max(self.context.progress.bytes_done()) } else { bytes };
        let share = (bytes as f64 / self.sampling_plan.total_bytes.max(1) as f64).min(1.0);
        let chunks = locked
            .iter_mut()
            .filter_map(|held| held.as_mut()?.tables.take_groups_if_any().transpose());
        let chunks = chunks.collect::<Result<Vec<GroupChunk>>>()?;
        drop(locked);
        for chunk in chunks {
            gathered.merge_chunk(&chunk)?;
        }
        // The answer takes a copy in stored form, and another table.
        let _copies = self.context.memory_account.charge(2 * gathered.charged_bytes());
        self.context.memory_account.make_room()?;
        let answer = gathered.compute_answer(&self.context.table_spec)?;
        Ok(Some(TableSnapshot { answer, sample, bytes_read_share: share, ends_at: None }))
    }

    /// Returns true if all open splits had no new data for this long. An open split that no thread reads is
    /// about to be complete, or to be given up.
    fn are_open_splits_stalled(&self, state: &LocalRunnerState, patience: Duration) -> bool {
        let is_idle = |(split, worker): (usize, usize)| {
            let reading = state.reader_threads.get(worker).map(|hand| &hand.state);
            reading.is_some_and(|it| it.current_split() == Some(split) && it.idle_time() > patience)
        };
        self.sampling_plan.is_exhausted() && state.tally.open_splits().all(is_idle)
    }

    /// Marks stalled threads as replaced, and returns the number of replacement threads to start.
    fn mark_stalled_threads(&self, state: &LocalRunnerState) -> usize {
        if self.sampling_plan.is_exhausted() {
            return 0;
        }
        mark_stalled_for_replacement(state.reader_threads.iter().map(|hand| &hand.state))
    }

    /// Takes the threads' tables and merges them.
    fn finish_run(
        &self,
        why: StopReason,
        until: &StopCondition,
        threads: usize,
    ) -> Result<SampledTables> {
        // This comes before programs end, and with them the reads that wait for them.
        let hands: Vec<_> = {
            let state = self.state.lock();
            let open: BTreeMap<usize, usize> =
                state.tally.open_splits().map(|(split, worker)| (worker, split)).collect();
            let at = |(worker, hand): (usize, &Arc<ReaderThread>)| {
                (Arc::clone(hand), open.get(&worker).copied(), hand.state.has_stalled())
            };
            state.reader_threads.iter().enumerate().map(at).collect()
        };
        self.wait_for_programs();
        let is_order_free = self.context.table_spec.is_order_insensitive();
        let (mut chunks, mut given_up, mut in_flight) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut begun = Vec::new();
        let merger = &*self.merger;
        let mut clock = ThreadCpuClock::start();
        let is_all = self.context.stall_timeout.is_none() && why == StopReason::WholeInput;
        if is_all && self.context.scan.source().skipped_files().is_empty() {
            // The answer is exact and needs no intervals.
            self.context.cell_switch.turn_off();
        }
        for (hand, split, has_stalled) in hands {
            // The lock is held for at most the time that a thread takes for the rows of a split.
            let Some(mut held) = hand.table.lock().take() else { continue };
            self.context.scan.add_read_counts(held.split_progress);
            match (is_order_free, split) {
                (true, _) => held.tables.flush_to_merger(merger)?,
                (false, Some(split)) if self.sampling_plan.is_in_order => {
                    held.spilled_chunks.extend(held.tables.defer_remaining_groups(merger)?);
                    chunks.insert(split, held.spilled_chunks);
                }
                (false, _) => {}
            }
            // A split that was completed meanwhile counts. From here on the thread has no table, so it
            // completes none.
            let is_open = |split: &usize| self.state.lock().tally.is_split_open(*split);
            let Some(split) = split.filter(is_open) else { continue };
            // Without a deadline and `drop` no split is given up: its thread may have had no core.
            match has_stalled && (until.ends_at.is_some() || until.drop_share.is_some()) {
                true => given_up.push(GivenUpSplit { split, error: None }),
                false => {
                    in_flight.push(split);
                    begun.push((split, held.split_progress.rows));
                }
            }
        }
        if let Some(mut gathered) = self.gathered_table.table.lock().take()
            && is_order_free
        {
            gathered.tables.flush_to_merger(merger)?;
        }
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        // Splits that were completed since the stop count as well.
        let why = if state.tally.is_whole_input() { StopReason::WholeInput } else { why };
        given_up.append(&mut state.tally.given_up);
        given_up.sort_by_key(|given_up| given_up.split);
        // The chunks are merged in split order. Splits that were read in part are behind all others of
        // theirs.
        chunks.extend(std::mem::take(&mut state.split_chunks));
        for (_, chunks) in chunks {
            for chunk in chunks {
                merger.accept_deferred(chunk, 0)?;
            }
            merger.merge_and_spill(0)?;
        }
        let sample = (!self.sampling_plan.is_in_order)
            .then(|| state.tally.sample(&self.context.scan, &self.sampling_plan, until.confidence));
        let wrong_starts = state.tally.wrong_start_count(&self.context.scan);
        let bytes = match self.sampling_plan.is_in_order {
            true if why == StopReason::WholeInput => {
                state.tally.bytes.max(self.context.progress.bytes_done())
            }
            true => self.in_order_bytes(&state.tally, &begun),
            false => state.tally.bytes,
        };
        let failed = std::mem::take(&mut state.failures);
        drop(state);
        self.context.cancel.check()?;
        let merged = merger.finish(threads);
        self.context.progress.table_counters().add_thread_cpu(&mut clock);
        let left_out = self.context.scan.source().skipped_files();
        let read = ReadOutcome {
            stop_reason: why,
            sample,
            given_up_splits: given_up,
            left_out_files: left_out,
            in_flight_splits: in_flight,
            wrong_start_count: wrong_starts,
            counted_bytes: bytes,
        };
        Ok(SampledTables { merged: merged?, outcome: read, failures: failed })
    }

    /// Returns the number of bytes that count if rows count as they come: the bytes of complete splits, and
    /// for each begun split the estimated bytes of its rows. Splits that were given up have none.
    fn in_order_bytes(&self, tally: &SplitTally, begun: &[(usize, u64)]) -> u64 {
        let splits = self.context.scan.splits();
        let is_unknown = |piece: &SplitPart| piece.file.is_stream();
        if splits.iter().flat_map(|split| &split.parts).any(is_unknown) {
            return tally.bytes.max(self.context.progress.bytes_done());
        }
        // A program may have received all of a file before it writes the first row.
        let of_rows = |rows: u64| match u128::from(tally.rows) {
            0 => self.context.progress.bytes_done(),
            all => {
                let bytes = u128::from(rows) * u128::from(tally.bytes) / all;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        let begun = begun.iter().filter(|(_, rows)| *rows > 0);
        let of_begun =
            begun.map(|(split, rows)| of_rows(*rows).min(self.sampling_plan.split_bytes[*split]));
        tally.bytes + of_begun.sum::<u64>()
    }

    /// Waits for the threads that read from programs, because these threads end the programs.
    fn wait_for_programs(&self) {
        if self.context.scan.source().spec().filter_program.is_none() {
            return;
        }
        let until = Instant::now() + PROGRAM_EXIT_TIMEOUT;
        let mut state = self.state.lock();
        while state.running_thread_count > 0
            && !self.state_changed.wait_until(&mut state, until).timed_out()
        {}
    }
}

/// The permission of a thread to complete its split.
struct CompletionPermit<'a> {
    runner: &'a LocalRunner,
}

impl Drop for CompletionPermit<'_> {
    fn drop(&mut self) {
        *self.runner.completing_count.lock() -= 1;
        self.runner.completion_done.notify_one();
    }
}

/// The rows of a split that is being read, which wait until the split is complete.
struct WaitingRows {
    batches: Vec<RecordBatch>,
    /// The memory charge of the batches.
    charge: MemoryCharge,
    /// A table of the split's own, with the chunks that have left it, if it has many rows.
    own_table: Option<(WorkerTable, Vec<DeferredChunk>)>,
}

impl WaitingRows {
    fn new(account: &MemoryAccount) -> Self {
        WaitingRows { batches: Vec::new(), charge: account.charge(0), own_table: None }
    }

    fn bytes(&self) -> usize {
        self.charge.bytes()
            + self.own_table.as_ref().map_or(0, |(tables, _)| tables.charged_bytes())
    }

    fn add(&mut self, batch: RecordBatch) {
        self.charge.set_bytes(self.charge.bytes() + batch.get_array_memory_size());
        self.batches.push(batch);
    }

    /// Groups the rows into a table of their own, whose chunks are spilled if memory is short.
    fn group_rows(&mut self, to: &SpillTarget) -> Result<()> {
        let (tables, chunks) = match &mut self.own_table {
            Some(own) => own,
            none => none.insert((to.new_tables()?, Vec::new())),
        };
        for batch in self.batches.drain(..) {
            let into = (&*to.merger, to.worker);
            tables.add_rows(&batch, into, to.table_bytes_max, Some(chunks))?;
        }
        self.charge.set_bytes(0);
        Ok(())
    }

    fn spill(&mut self, to: &SpillTarget) -> Result<()> {
        self.group_rows(to)?;
        if let Some((tables, chunks)) = &mut self.own_table {
            chunks.extend(tables.spill_remaining_groups(&to.merger)?);
            *tables = to.new_tables()?;
        }
        Ok(())
    }
}
