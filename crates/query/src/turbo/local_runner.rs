//! The runner that may stop: splits in a drawn order into tables, until enough is read.
//!
//! A split counts once all of it was read: until then its rows are held, or in a table of its own where they are
//! many, and nothing of one that is abandoned is in an answer. What counts when it is over is every split that had
//! ended by then. Those still being read are left out: at most one a thread, and those that stall.
//!
//! A read cannot be interrupted wherever it waits (a FIFO nobody writes to, a file system that hangs), so that no thread is waited for: they are on
//! their own, and the runner takes their tables from them, under the lock under which they fill them. A thread that
//! has waited for long has another started in its place. Its turn among the runs on this machine goes to that one:
//! whoever does not compute keeps none. One that waits for its turn is not replaced.
//!
//! There may thus be many more tables than threads at work. Those of stalled threads, and the rows that wait in them,
//! stay charged to the run's account, which has any thread hand the fullest of them over to what is merged. The table
//! of a replaced thread that has ended goes to the next one that is started.
//!
//! Where the input cannot be cut (compressed text, standard input, a program) there is nothing to draw from: it is
//! read from its beginning, and its rows count as they come.

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
use tidemill_tables::merge::{ChunkMerger, DeferredChunk, MergeLoad, MergedTable};
use tidemill_tables::{GroupChunk, StateUpdateSwitch, TableSpec};

use super::reader_threads::{ReaderThreadState, mark_stalled_for_replacement};
use super::sampling_plan::{POLL_INTERVAL, SamplingPlan};
use super::split_tally::SplitTally;
use crate::map::SplitMap;
use crate::scan::{ReadCounts, Scan, SplitOutcome};
use crate::table_runner::{WorkerTable, append_positions};

/// What the runner works on.
pub(crate) struct SampledRunContext {
    /// What a split's rows go through.
    pub map: SplitMap,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// What is kept per group.
    pub table_spec: Arc<TableSpec>,
    /// Threads that work at once.
    pub threads: usize,
    /// Counts the memory of all tables.
    pub memory_account: MemoryAccount,
    /// Where tables spill to.
    pub spill_dirs: Vec<PathBuf>,
    /// Stops the run.
    pub cancel: CancelFlag,
    /// Ends reading: what was read is enough.
    pub stop_request: CancelFlag,
    /// Told of what is read and spilled.
    pub progress: RunProgress,
    /// How many columns of the answer have intervals.
    pub interval_count: usize,
    /// The most rows that it has, as far as is known.
    pub result_rows_max: usize,
    /// What turns intervals off, where nobody but somebody who watches wants them: of more groups than fit a screen
    /// many times over they cost more than they are worth.
    pub observer_switch: Option<StateUpdateSwitch>,
    /// What turns off all that intervals are worked out from.
    pub cell_switch: StateUpdateSwitch,
    /// Whether splits begin where what stands before them says, and not where their own first bytes look as if.
    pub has_exact_starts: bool,
    /// Of splits that somebody else has drawn: after so long with nothing new it ends without those that stall. What
    /// cannot be read is told, and judged elsewhere.
    pub stall_timeout: Option<Duration>,
    /// What has been looked at of starts.
    pub guessed_starts: Arc<GuessedStarts>,
}

/// How many groups so many tables have at most each.
pub(super) struct ThreadTableLoad {
    pub groups_per_table: usize,
    pub table_count: usize,
}

impl ThreadTableLoad {
    /// Time that grouping them takes.
    pub(super) fn grouping_time(&self) -> Duration {
        let groups = self.groups_per_table.saturating_mul(self.table_count) as u64;
        Duration::from_nanos(RESERVE_PER_GROUP_NS.saturating_mul(groups))
    }
}

impl SampledRunContext {
    /// What it takes from the last row to the answer of such tables, in a run that has so much time.
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
        // Rather a longer look at the input than intervals of all of very many groups: the first rows have theirs.
        let reserve = tables + Duration::from_nanos(intervals).min(all / INTERVAL_TIME_DIVISOR);
        FINISH_RESERVE_MIN + reserve.min(all - all / READ_TIME_DIVISOR)
    }
}

/// Splits whose start was guessed, so far, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct GuessedStarts {
    split_count: AtomicUsize,
    bytes: AtomicU64,
}

/// When the runner stops.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopCondition {
    /// When the answer is to be there.
    pub ends_at: Option<Instant>,
    /// The share of the bytes that may be left out.
    pub drop_share: Option<f64>,
    /// The share of the splits that are read.
    pub sample_share: Option<f64>,
    /// What the order of the splits is drawn from.
    pub seed: u64,
    /// How sure intervals are.
    pub confidence: f64,
}

/// Why no more was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// All of it was.
    WholeInput,
    Deadline,
    DropShare,
    SampleShare,
    /// All intervals that are shown are narrow enough.
    TargetError,
    /// As many rows as were wanted were found.
    RowLimit,
    /// Somebody said that it was enough.
    StopRequest,
}

/// A split that was given up.
#[derive(Debug, Clone)]
pub(crate) struct GivenUpSplit {
    pub split: usize,
    /// What reading it met; none where it was waited for in vain.
    pub error: Option<String>,
}

/// A table of what was read, and what that was.
pub(crate) struct SampledTables {
    pub merged: MergedTable,
    pub outcome: ReadOutcome,
    /// The splits that could not be read, where somebody else judges that.
    pub failures: Vec<(usize, Error)>,
}

/// Which part of the input was read.
#[derive(Debug, Clone)]
pub(crate) struct ReadOutcome {
    pub stop_reason: StopReason,
    /// The splits that count; none where the input was read in order.
    pub sample: Option<SplitSample>,
    /// Splits that failed, and those that stalled.
    pub given_up_splits: Vec<GivenUpSplit>,
    /// Files that are in no split: they could not be opened, or did not answer.
    pub left_out_files: Vec<SkippedFile>,
    /// Those that were being read when it was over, and not given up.
    pub in_flight_splits: Vec<usize>,
    /// Of the splits that began where they were guessed to, how many began elsewhere.
    pub wrong_start_count: u64,
    /// Bytes of which rows count.
    pub counted_bytes: u64,
}

impl ReadOutcome {
    pub(crate) fn is_whole_input(&self) -> bool {
        matches!(self.stop_reason, StopReason::WholeInput | StopReason::RowLimit)
            && self.left_out_files.is_empty()
    }
}

/// The tables at some moment.
pub(crate) struct TableSnapshot {
    /// Keys and an answer per aggregate, as [`TableSpec::output_schema`] has them.
    pub answer: RecordBatch,
    /// What was read; none where that is no sample.
    pub sample: Option<SplitSample>,
    /// The share of the bytes that was read.
    pub bytes_read_share: f64,
    /// When a look at it is to be over.
    pub ends_at: Option<Instant>,
}

/// Whoever looks at the tables while they are filled.
pub(crate) trait TableInspector {
    /// Whether it is time, with so many splits read.
    fn is_due(&self, splits_read: u64) -> bool;

    /// After how long it may be time for another look, whatever was read.
    fn time_until_due(&self) -> Option<Duration>;

    /// Takes a look; if it is enough, with which confidence intervals are to be worked out.
    ///
    /// # Errors
    /// Where an answer cannot be made.
    fn inspect(&mut self, snapshot: TableSnapshot) -> Result<Option<f64>>;
}

/// Nobody looks.
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

/// What it takes, at least, from the last row to the answer.
pub(super) const FINISH_RESERVE_MIN: Duration = Duration::from_millis(20);

/// And for each group of a thread's table …
const RESERVE_PER_GROUP_NS: u64 = 3_000;

/// … for each that was handed over to be merged, as often as it was …
const RESERVE_PER_MERGED_GROUP_NS: u64 = 1_000;

/// … for each row that is to be grouped in the end, being of a group with hardly another …
const RESERVE_PER_ROW_NS: u64 = 1_000;

/// … for each byte of tables, as states that keep all values are gone through or sorted, and those of many cells …
const RESERVE_PER_BYTE_NS: u64 = 3;

/// … for each byte on disk, which is read back and merged …
const RESERVE_PER_SPILLED_BYTE_NS: u64 = 8;

/// … and for each interval of a row that is shown, by one thread.
const RESERVE_PER_INTERVAL_NS: u64 = 15_000;

/// Intervals have one part in so many of the time, at most.
const INTERVAL_TIME_DIVISOR: u32 = 3;

/// And reading at least one part in so many.
const READ_TIME_DIVISOR: u32 = 16;

/// Programs that files go through are waited for so long: they are ended by the threads that read them.
const PROGRAM_EXIT_TIMEOUT: Duration = Duration::from_millis(120);

/// Of more groups nobody is shown an answer before it is whole, unless it may rest on a part of the input.
const OBSERVED_GROUPS_MAX: usize = 2_000;

/// Nor of tables that are so large: each look copies them, at some 500 MB a second.
const OBSERVED_BYTES_MAX: usize = 16 << 20;

/// Of the splits whose start is guessed so many first ones are looked at from before them, and later one of so many …
const START_CHECK_SPLITS: usize = 16;

/// … and of small ones one in so many bytes, as a look reads a quarter of a mebibyte.
const START_CHECK_BYTES: u64 = 4 << 20;

/// Looks take one part in so many of a run's time, at most.
pub(super) const INSPECTION_TIME_DIVISOR: u32 = 6;

/// So much longer a run is taken to be for that: of a short one looks are few.
pub(super) const INSPECTION_FREE_TIME: Duration = Duration::from_secs(1);

/// Where rows of a split wait, at most so many bytes.
const WAITING_ROWS_LIMIT_BYTES_MIN: usize = 8 << 20;

/// Assumed time to take in a KiB of rows that wait, until some were.
const COMPLETION_NS_PER_KIB: u64 = 1_000;

/// Minimum bytes of rows for a measurement.
const MEASURED_COMPLETION_BYTES_MIN: usize = 1 << 20;

/// Rows that take no longer than this are grouped even when the time is over.
const COMPLETION_GRACE_TIME: Duration = Duration::from_millis(10);

/// What a thread has at hand is spilled where it takes more: less makes no room worth mentioning.
const SPILL_BYTES_MIN: usize = 64 << 10;

struct LocalRunner {
    context: SampledRunContext,
    sampling_plan: SamplingPlan,
    is_over: AtomicBool,
    merger: Arc<ChunkMerger>,
    /// What looks have taken from the threads' tables: a hand of no thread.
    gathered_table: Arc<ReaderThread>,
    state: Mutex<LocalRunnerState>,
    state_changed: Condvar,
    /// The number of splits that land.
    completing_count: Mutex<usize>,
    completion_done: Condvar,
    table_bytes_max: usize,
    waiting_rows_bytes_max: usize,
    /// The groups of the largest of the threads' tables, and its bytes.
    largest_group_count: AtomicUsize,
    largest_table_bytes: AtomicUsize,
    /// How many tables the threads have.
    table_count: AtomicUsize,
    /// Time that taking in a KiB of rows that waited took lately.
    completion_ns_per_kib: AtomicU64,
    began: Instant,
    /// When the answer is to be there.
    ends_at: Option<Instant>,
}

struct LocalRunnerState {
    /// Threads that have not ended.
    running_thread_count: usize,
    /// Of each thread what it has at hand.
    reader_threads: Vec<Arc<ReaderThread>>,
    tally: SplitTally,
    /// What reading met, where somebody else judges whether it may be left out.
    failures: Vec<(usize, Error)>,
    /// Chunks of splits, where the order matters.
    split_chunks: BTreeMap<usize, Vec<DeferredChunk>>,
    error: Option<Error>,
}

/// What a thread has at hand. Any thread may have it spilled.
struct ReaderThread {
    /// None once it was taken away.
    table: Mutex<Option<ThreadTable>>,
    spill_target: SpillTarget,
    state: ReaderThreadState,
    /// Whether its thread has ended.
    has_ended: AtomicBool,
}

/// Where what a thread has at hand spills to.
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

/// What a thread goes through its splits with.
struct ThreadContext<'a> {
    turn: ComputeTurn<'a>,
    /// What it has taken of the processor since that was last booked.
    clock: ThreadCpuClock,
}

/// A thread's table.
struct ThreadTable {
    tables: WorkerTable,
    /// Rows of the split that is being read.
    waiting_rows: WaitingRows,
    /// Those of the split's chunks that have left it, where the order matters.
    spilled_chunks: Vec<DeferredChunk>,
    /// What was read of the split that is being read, where rows count as they come.
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

    /// Hands its groups over to be merged, or to disk where they are of the split that is being read or their turn has
    /// not come.
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

/// Fills tables until enough is read.
///
/// # Errors
/// The first that reading, unless it may be left out, mapping or merging meets.
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
        // Rows count as they come.
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
    // Whoever can be told ends.
    runner.context.scan.stop_readers();
    runner.state_changed.notify_all();
    runner.finish_run(why?, &until, threads)
}

impl LocalRunner {
    fn start_thread(self: &Arc<Self>) -> Result<()> {
        let hands = self.state.lock().reader_threads.clone();
        let worker = hands.len();
        let spilling = SpillTarget { worker, ..self.gathered_table.spill_target.clone() };
        // The table of one whose thread was replaced and has ended.
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
        // It is not waited for: it may never end.
        started.map(drop).map_err(|e| Error::Io {
            action: "start",
            path: "a thread".into(),
            source: e,
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends the run. Under the lock: from here on no split is drawn and none is given up.
    fn mark_over(&self) {
        let _state = self.state.lock();
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Draws the next split for a thread; none where there is none, or the run is over. A split is open from the moment
    /// in which it is drawn: whoever finds that none is left to draw finds this one open.
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
            // First: what is drawn is begun.
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
                // What came of it before counts, as it is in the tables; not so its bytes.
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

    /// Whether whoever waits has something to decide: it looks by itself from time to time, and is not woken for each
    /// of many small splits.
    fn needs_stop_check(&self) -> bool {
        let state = self.state.lock();
        let has_dropped = self.sampling_plan.drop_bytes > 0
            && state.tally.bytes >= self.sampling_plan.total_bytes - self.sampling_plan.drop_bytes;
        has_dropped
            || state.tally.completed_count() + state.tally.given_up.len()
                >= self.sampling_plan.split_count_max()
    }

    /// Reads a split; its rows count in the end, or as they come.
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
        // Where something is refused, its first record may have been guessed to begin elsewhere than it does.
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
        // What a damaged file is decoded to may look like malformed records.
        let is_refused = matches!(read, Err(Error::BadRecords { .. }));
        let has_refused =
            || outcome.as_ref().is_some_and(|outcome| outcome.stats.rejected_count > 0);
        if is_refused && self.sampling_plan.drop_bytes > 0
            || self.context.stall_timeout.is_some() && has_refused()
        {
            scan.source().verify_compressed_files(&scan.splits()[index], &self.context.cancel)?;
        }
        let Some(row_count) = read? else { return Ok(()) };
        // For as long as it takes; it has not stalled.
        hand.state.suspend_stall_check();
        let Some(turn) = self.acquire_completion_permit() else { return Ok(()) };
        if self.is_completion_late(hand) {
            // The answer would wait for them: the split is one of those that were being read when it was over.
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

    /// Whether it is looked at where a split begins. In a sample two neighbours are hardly ever read.
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

    /// How many rows a split has; none where it is over. Those that do not count yet wait in its hand.
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
            // For as long as it takes; it has not stalled.
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

    /// Takes rows that count as they come.
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

    /// Keeps rows of a split until all of it was read.
    fn hold_rows(&self, batch: RecordBatch, hand: &ReaderThread) {
        let mut held = hand.table.lock();
        let Some(ThreadTable { waiting_rows: waiting, .. }) = held.as_mut() else { return };
        waiting.add(batch);
        // Where the order matters a split has chunks of its own in any case, and is large. Grouped in the end, all at once,
        // its rows would keep whoever waits for the table from an answer.
        let has_own =
            waiting.own_table.is_some() || !self.context.table_spec.is_order_insensitive();
        if has_own || waiting.bytes() > self.waiting_rows_bytes_max {
            let grouped = waiting.group_rows(&hand.spill_target);
            self.record_failure(grouped);
        }
    }

    /// Has the run fail where a table could not be filled or spilled: its groups may be incomplete, whichever split they
    /// are of, and no split may be left out for that.
    fn record_failure(&self, filled: Result<()>) {
        if let Err(error) = filled {
            self.state.lock().error.get_or_insert(error);
            self.state_changed.notify_all();
        }
    }

    /// Waits until fewer splits land than there are threads at work; returns none once the run is over. The threads of
    /// splits that stalled may all come back at once, and each reads back what was spilled of its split.
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

    /// Returns whether the rows that wait in a hand could not be taken in before the answer is to be there.
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

    /// Has a split count.
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

    /// Waits until enough is read.
    fn wait_for_stop(
        self: &Arc<Self>,
        until: &mut StopCondition,
        look: &mut dyn TableInspector,
    ) -> Result<StopReason> {
        // What the last look took: it has to be over before the deadline.
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
            // Whoever began this begins again. A worker reads its task to the end: whether all begins again is decided
            // where all tasks are known.
            let begins_again = state.tally.has_wrong_start
                && !self.context.has_exact_starts
                && !self.sampling_plan.is_in_order
                && self.context.stall_timeout.is_none();
            if self.context.stop_request.is_cancelled() || begins_again {
                return Ok(StopReason::StopRequest);
            }
            // All looks together take a share of the time, however many groups there are.
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
                        // Nobody knows what the first look takes, but that it goes through all groups.
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

    /// Whether nobody who only watches is shown any more: a look at the tables takes too long.
    fn is_too_large_to_observe(&self, switch: &StateUpdateSwitch) -> bool {
        switch.is_off() || self.largest_table_bytes.load(Ordering::Relaxed) > OBSERVED_BYTES_MAX
    }

    /// What it takes from the last row to the answer.
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

    /// The tables as they are, gathered in one; none where some of them have left memory or are part of a larger fold.
    fn take_snapshot(&self, confidence: f64) -> Result<Option<TableSnapshot>> {
        if !self.context.table_spec.is_order_insensitive() {
            return Ok(None);
        }
        let mut gathered = self.gathered_table.table.lock();
        let Some(ThreadTable { tables: gathered, .. }) = gathered.as_mut() else { return Ok(None) };
        let hands = self.state.lock().reader_threads.clone();
        // Of what has landed by then; what lands meanwhile is in no table that is taken.
        let mut locked: Vec<_> = hands.iter().map(|hand| hand.table.lock()).collect();
        // While none of them can be spilled.
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
        // The answer takes a copy in its form on disk, and another table.
        let _copies = self.context.memory_account.charge(2 * gathered.charged_bytes());
        self.context.memory_account.make_room()?;
        let answer = gathered.compute_answer(&self.context.table_spec)?;
        Ok(Some(TableSnapshot { answer, sample, bytes_read_share: share, ends_at: None }))
    }

    /// Whether all that is left to read has given nothing for so long. A split that is open and not being read is about to
    /// count, or to be given up.
    fn are_open_splits_stalled(&self, state: &LocalRunnerState, patience: Duration) -> bool {
        let is_idle = |(split, worker): (usize, usize)| {
            let reading = state.reader_threads.get(worker).map(|hand| &hand.state);
            reading.is_some_and(|it| it.current_split() == Some(split) && it.idle_time() > patience)
        };
        self.sampling_plan.is_exhausted() && state.tally.open_splits().all(is_idle)
    }

    /// How many threads are to be started in the place of those that wait.
    fn mark_stalled_threads(&self, state: &LocalRunnerState) -> usize {
        if self.sampling_plan.is_exhausted() {
            return 0;
        }
        mark_stalled_for_replacement(state.reader_threads.iter().map(|hand| &hand.state))
    }

    /// Takes the threads' tables from them, and merges these.
    fn finish_run(
        &self,
        why: StopReason,
        until: &StopCondition,
        threads: usize,
    ) -> Result<SampledTables> {
        // Before programs are ended, and with them the reads that wait for them.
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
            // The answer is exact, and nobody asks how far off it is.
            self.context.cell_switch.turn_off();
        }
        for (hand, split, has_stalled) in hands {
            // Locked for as long as a thread takes for the rows of a split.
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
            // What has landed meanwhile counts; from here on the thread has no table, and nothing of it lands.
            let is_open = |split: &usize| self.state.lock().tally.is_split_open(*split);
            let Some(split) = split.filter(is_open) else { continue };
            // Without a deadline and `drop` nothing is given up: a thread may have had no core.
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
        // What has landed since it was enough counts as well.
        let why = if state.tally.is_whole_input() { StopReason::WholeInput } else { why };
        given_up.append(&mut state.tally.given_up);
        given_up.sort_by_key(|given_up| given_up.split);
        // In the order of the splits; those that are read in part are behind all others of theirs.
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

    /// The bytes that count where rows do as they come: those of what has landed, and of each split that was begun as
    /// many as its rows take. Of what was given up there are none.
    fn in_order_bytes(&self, tally: &SplitTally, begun: &[(usize, u64)]) -> u64 {
        let splits = self.context.scan.splits();
        let is_unknown = |piece: &SplitPart| piece.file.is_stream();
        if splits.iter().flat_map(|split| &split.parts).any(is_unknown) {
            return tally.bytes.max(self.context.progress.bytes_done());
        }
        // A program may have been given all of a file before the first row comes out of it.
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

    /// Waits for threads that read from programs, which end them.
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

/// The turn of a thread whose split lands.
struct CompletionPermit<'a> {
    runner: &'a LocalRunner,
}

impl Drop for CompletionPermit<'_> {
    fn drop(&mut self) {
        *self.runner.completing_count.lock() -= 1;
        self.runner.completion_done.notify_one();
    }
}

/// The rows of a split that is being read.
struct WaitingRows {
    batches: Vec<RecordBatch>,
    /// That of the batches.
    charge: MemoryCharge,
    /// A table of the split's own, with the chunks that have left it, where its rows are many.
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

    /// Puts its rows into a table of their own, from which chunks go to disk where memory is short.
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
