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

use super::drawing::{Drawing, TICK};
use super::reading::{Reading, to_replace};
use super::tally::Tally;
use crate::map::Map;
use crate::scan::{Outcome, Scan, SoFar};
use crate::tables::{Tables, placed};

/// What the runner works on.
pub(crate) struct Work {
    /// What a split's rows go through.
    pub map: Map,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// What is kept per group.
    pub spec: Arc<TableSpec>,
    /// Threads that work at once.
    pub threads: usize,
    /// Counts the memory of all tables.
    pub account: MemoryAccount,
    /// Where tables spill to.
    pub spill_dirs: Vec<PathBuf>,
    /// Stops the run.
    pub cancel: CancelFlag,
    /// Ends reading: what was read is enough.
    pub enough: CancelFlag,
    /// Told of what is read and spilled.
    pub progress: RunProgress,
    /// How many columns of the answer have intervals.
    pub interval_count: usize,
    /// The most rows that it has, as far as is known.
    pub rows_max: usize,
    /// What turns intervals off, where nobody but somebody who watches wants them: of more groups than fit a screen
    /// many times over they cost more than they are worth.
    pub watched: Option<StateUpdateSwitch>,
    /// What turns off all that intervals are worked out from.
    pub cells: StateUpdateSwitch,
    /// Whether splits begin where what stands before them says, and not where their own first bytes look as if.
    pub is_careful: bool,
    /// Of splits that somebody else has drawn: after so long with nothing new it ends without those that stall. What
    /// cannot be read is told, and judged elsewhere.
    pub patience: Option<Duration>,
    /// What has been looked at of starts.
    pub guessed: Arc<Guessed>,
}

/// How many groups so many tables have at most each.
pub(super) struct Held {
    pub groups: usize,
    pub tables: usize,
}

impl Held {
    /// Time that grouping them takes.
    pub(super) fn tables_take(&self) -> Duration {
        let groups = self.groups.saturating_mul(self.tables) as u64;
        Duration::from_nanos(RESERVE_PER_GROUP_NS.saturating_mul(groups))
    }
}

impl Work {
    /// What it takes from the last row to the answer of such tables, in a run that has so much time.
    pub(super) fn reserve(&self, held: Held, load: MergeLoad, all: Duration) -> Duration {
        let intervals = self.rows_max.min(held.groups) * self.interval_count;
        let intervals = intervals.div_ceil(self.threads.max(1)) as u64;
        let tables = [
            RESERVE_PER_MERGED_GROUP_NS.saturating_mul(load.enqueued_groups as u64),
            RESERVE_PER_ROW_NS.saturating_mul(load.scattered_rows as u64),
            RESERVE_PER_BYTE_NS.saturating_mul(load.account_bytes as u64),
            RESERVE_PER_SPILLED_BYTE_NS.saturating_mul(self.progress.spilled_bytes()),
        ];
        let tables = Duration::from_nanos(tables.into_iter().fold(0, u64::saturating_add));
        let tables = tables.saturating_add(held.tables_take());
        let intervals = RESERVE_PER_INTERVAL_NS.saturating_mul(intervals);
        // Rather a longer look at the input than intervals of all of very many groups: the first rows have theirs.
        let reserve = tables + Duration::from_nanos(intervals).min(all / INTERVALS_SHARE);
        RESERVE + reserve.min(all - all / READING_SHARE)
    }
}

/// Splits whose start was guessed, so far, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Guessed {
    splits: AtomicUsize,
    bytes: AtomicU64,
}

/// When the runner stops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Until {
    /// When the answer is to be there.
    pub ends_at: Option<Instant>,
    /// The share of the bytes that may be left out.
    pub drop: Option<f64>,
    /// The share of the splits that are read.
    pub sample: Option<f64>,
    /// What the order of the splits is drawn from.
    pub seed: u64,
    /// How sure intervals are.
    pub confidence: f64,
}

/// Why no more was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// All of it was.
    Whole,
    Deadline,
    Drop,
    Sample,
    /// All intervals that are shown are narrow enough.
    Precise,
    /// As many rows as were wanted were found.
    Found,
    /// Somebody said that it was enough.
    Asked,
}

/// A split that was given up.
#[derive(Debug, Clone)]
pub(crate) struct GivenUp {
    pub split: usize,
    /// What reading it met; none where it was waited for in vain.
    pub error: Option<String>,
}

/// A table of what was read, and what that was.
pub(crate) struct Taken {
    pub merged: MergedTable,
    pub read: ReadPart,
    /// The splits that could not be read, where somebody else judges that.
    pub failed: Vec<(usize, Error)>,
}

/// Which part of the input was read.
#[derive(Debug, Clone)]
pub(crate) struct ReadPart {
    pub why: Why,
    /// The splits that count; none where the input was read in order.
    pub sample: Option<SplitSample>,
    /// Splits that failed, and those that stalled.
    pub given_up: Vec<GivenUp>,
    /// Files that are in no split: they could not be opened, or did not answer.
    pub left_out: Vec<SkippedFile>,
    /// Those that were being read when it was over, and not given up.
    pub in_flight: Vec<usize>,
    /// Of the splits that began where they were guessed to, how many began elsewhere.
    pub wrong_starts: u64,
    /// Bytes of which rows count.
    pub bytes: u64,
}

impl ReadPart {
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.why, Why::Whole | Why::Found) && self.left_out.is_empty()
    }
}

/// The tables at some moment.
pub(crate) struct Snapshot {
    /// Keys and an answer per aggregate, as [`TableSpec::output_schema`] has them.
    pub answer: RecordBatch,
    /// What was read; none where that is no sample.
    pub sample: Option<SplitSample>,
    /// The share of the bytes that was read.
    pub share: f64,
    /// When a look at it is to be over.
    pub ends_at: Option<Instant>,
}

/// Whoever looks at the tables while they are filled.
pub(crate) trait Look {
    /// Whether it is time, with so many splits read.
    fn is_due(&self, splits_read: u64) -> bool;

    /// After how long it may be time for another look, whatever was read.
    fn patience(&self) -> Option<Duration>;

    /// Takes a look; if it is enough, with which confidence intervals are to be worked out.
    ///
    /// # Errors
    /// Where an answer cannot be made.
    fn look(&mut self, snapshot: Snapshot) -> Result<Option<f64>>;
}

/// Nobody looks.
pub(crate) struct Unseen;

impl Look for Unseen {
    fn is_due(&self, _: u64) -> bool {
        false
    }

    fn patience(&self) -> Option<Duration> {
        None
    }

    fn look(&mut self, _: Snapshot) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// What it takes, at least, from the last row to the answer.
pub(super) const RESERVE: Duration = Duration::from_millis(20);

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
const INTERVALS_SHARE: u32 = 3;

/// And reading at least one part in so many.
const READING_SHARE: u32 = 16;

/// Programs that files go through are waited for so long: they are ended by the threads that read them.
const PROGRAMS_WAIT: Duration = Duration::from_millis(120);

/// Of more groups nobody is shown an answer before it is whole, unless it may rest on a part of the input.
const WATCHED_GROUPS_MAX: usize = 2_000;

/// Nor of tables that are so large: each look copies them, at some 500 MB a second.
const WATCHED_BYTES_MAX: usize = 16 << 20;

/// Of the splits whose start is guessed so many first ones are looked at from before them, and later one of so many …
const STARTS_CHECKED: usize = 16;

/// … and of small ones one in so many bytes, as a look reads a quarter of a mebibyte.
const CHECKED_EACH_BYTES: u64 = 4 << 20;

/// Looks take one part in so many of a run's time, at most.
pub(super) const LOOKS_SHARE: u32 = 6;

/// So much longer a run is taken to be for that: of a short one looks are few.
pub(super) const LOOKS_FREE: Duration = Duration::from_secs(1);

/// Where rows of a split wait, at most so many bytes.
const HELD_BYTES_MIN: usize = 8 << 20;

/// Assumed time to take in a KiB of rows that wait, until some were.
const LANDING_NS_PER_KIB: u64 = 1_000;

/// Minimum bytes of rows for a measurement.
const LANDING_BYTES_MIN: usize = 1 << 20;

/// Rows that take no longer than this are grouped even when the time is over.
const LANDING_FREE: Duration = Duration::from_millis(10);

/// What a thread has at hand is spilled where it takes more: less makes no room worth mentioning.
const SPILLED_BYTES_MIN: usize = 64 << 10;

struct Runner {
    work: Work,
    drawing: Drawing,
    is_over: AtomicBool,
    merger: Arc<ChunkMerger>,
    /// What looks have taken from the threads' tables: a hand of no thread.
    gathered: Arc<Hand>,
    state: Mutex<State>,
    changed: Condvar,
    /// The number of splits that land.
    landing: Mutex<usize>,
    landed: Condvar,
    worker_bytes: usize,
    held_bytes_max: usize,
    /// The groups of the largest of the threads' tables, and its bytes.
    groups: AtomicUsize,
    bytes: AtomicUsize,
    /// How many tables the threads have.
    tables: AtomicUsize,
    /// Time that taking in a KiB of rows that waited took lately.
    landing_ns_per_kib: AtomicU64,
    began: Instant,
    /// When the answer is to be there.
    ends_at: Option<Instant>,
}

struct State {
    /// Threads that have not ended.
    threads: usize,
    /// Of each thread what it has at hand.
    hands: Vec<Arc<Hand>>,
    tally: Tally,
    /// What reading met, where somebody else judges whether it may be left out.
    failed: Vec<(usize, Error)>,
    /// Chunks of splits, where the order matters.
    chunks: BTreeMap<usize, Vec<DeferredChunk>>,
    error: Option<Error>,
}

/// What a thread has at hand. Any thread may have it spilled.
struct Hand {
    /// None once it was taken away.
    held: Mutex<Option<Filled>>,
    spilling: Spilling,
    reading: Reading,
    /// Whether its thread has ended.
    has_ended: AtomicBool,
}

/// Where what a thread has at hand spills to.
#[derive(Clone)]
struct Spilling {
    spec: Arc<TableSpec>,
    account: MemoryAccount,
    merger: Arc<ChunkMerger>,
    worker_bytes: usize,
    worker: usize,
}

impl Hand {
    fn new(held: Filled, spilling: Spilling, began: Instant) -> Arc<Self> {
        let account = spilling.account.clone();
        let hand = Arc::new(Hand {
            held: Mutex::new(Some(held)),
            spilling,
            reading: Reading::new(began),
            has_ended: AtomicBool::new(false),
        });
        let holder = Arc::downgrade(&hand);
        account.register(holder);
        hand
    }
}

impl MemoryHolder for Hand {
    fn spillable_bytes(&self) -> usize {
        let held = self.held.try_lock();
        let bytes = held.and_then(|held| held.as_ref().map(Filled::bytes)).unwrap_or(0);
        if bytes > SPILLED_BYTES_MIN { bytes } else { 0 }
    }

    fn spill(&self) -> Result<bool> {
        let Some(mut held) = self.held.try_lock() else { return Ok(false) };
        match held.as_mut().filter(|held| held.bytes() > SPILLED_BYTES_MIN) {
            Some(held) => held.spill(&self.spilling).map(|()| true),
            None => Ok(false),
        }
    }
}

/// What a thread goes through its splits with.
struct Own<'a> {
    turn: ComputeTurn<'a>,
    /// What it has taken of the processor since that was last booked.
    clock: ThreadCpuClock,
}

/// A thread's table.
struct Filled {
    tables: Tables,
    /// Rows of the split that is being read.
    waiting: Waiting,
    /// Those of the split's chunks that have left it, where the order matters.
    chunks: Vec<DeferredChunk>,
    /// What was read of the split that is being read, where rows count as they come.
    so_far: SoFar,
}

impl Filled {
    fn new(spilling: &Spilling) -> Result<Self> {
        Ok(Filled {
            tables: spilling.new_tables()?,
            waiting: Waiting::new(&spilling.account),
            chunks: Vec::new(),
            so_far: SoFar::default(),
        })
    }

    fn bytes(&self) -> usize {
        self.tables.bytes() + self.waiting.bytes()
    }

    /// Hands its groups over to be merged, or to disk where they are of the split that is being read or their turn has
    /// not come.
    fn spill(&mut self, to: &Spilling) -> Result<()> {
        if self.waiting.bytes() > 0 {
            self.waiting.spill(to)?;
        }
        if self.tables.bytes() == 0 {
            return Ok(());
        }
        match to.spec.is_order_insensitive() {
            true => {
                self.tables.give(&to.merger)?;
                to.merger.merge_enqueued(to.worker)?;
            }
            false => self.chunks.extend(self.tables.spill_rest(&to.merger)?),
        }
        // An emptied table keeps the memory of its groups.
        self.tables = to.new_tables()?;
        Ok(())
    }
}

impl Spilling {
    fn new_tables(&self) -> Result<Tables> {
        Tables::new(&self.spec, self.worker_bytes, &self.account)
    }
}

/// Fills tables until enough is read.
///
/// # Errors
/// The first that reading, unless it may be left out, mapping or merging meets.
pub(crate) fn run(work: Work, until: &Until, look: &mut dyn Look) -> Result<Taken> {
    let drawing = match work.patience {
        Some(_) => Drawing::given(&work.scan),
        None => Drawing::new(&work.scan, until)?,
    };
    if drawing.in_order {
        // Rows count as they come.
        work.scan.set_eager();
    }
    let threads = work.threads.clamp(1, drawing.sizes.len().max(1));
    let merger = ChunkMerger::new(
        &work.spec,
        &work.account,
        &work.spill_dirs,
        &work.cancel,
        &work.progress,
    )?;
    let began = Instant::now();
    let worker_bytes = work.account.limit_bytes() / 5 / threads;
    let spilling = Spilling {
        spec: Arc::clone(&work.spec),
        account: work.account.clone(),
        merger: Arc::clone(&merger),
        worker_bytes,
        worker: 0,
    };
    let gathered = Hand::new(Filled::new(&spilling)?, spilling, began);
    let state = State {
        threads: 0,
        hands: Vec::new(),
        tally: Tally::new(drawing.sizes.len()),
        failed: Vec::new(),
        chunks: BTreeMap::new(),
        error: None,
    };
    let runner = Arc::new(Runner {
        drawing,
        is_over: AtomicBool::new(false),
        merger,
        gathered,
        state: Mutex::new(state),
        changed: Condvar::new(),
        landing: Mutex::new(0),
        landed: Condvar::new(),
        worker_bytes,
        held_bytes_max: worker_bytes.max(HELD_BYTES_MIN),
        groups: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        tables: AtomicUsize::new(0),
        landing_ns_per_kib: AtomicU64::new(LANDING_NS_PER_KIB),
        began,
        ends_at: until.ends_at,
        work,
    });
    for _ in 0..threads {
        runner.start_thread()?;
    }
    let mut until = until.clone();
    let why = runner.wait(&mut until, look);
    runner.end();
    // Whoever can be told ends.
    runner.work.scan.stop();
    runner.changed.notify_all();
    runner.finish(why?, &until, threads)
}

impl Runner {
    fn start_thread(self: &Arc<Self>) -> Result<()> {
        let hands = self.state.lock().hands.clone();
        let worker = hands.len();
        let spilling = Spilling { worker, ..self.gathered.spilling.clone() };
        // The table of one whose thread was replaced and has ended.
        let ended = hands.iter().filter(|hand| hand.has_ended.load(Ordering::SeqCst));
        let held = match ended.filter_map(|hand| hand.held.lock().take()).next() {
            Some(held) => held,
            None => {
                self.tables.fetch_add(1, Ordering::Relaxed);
                Filled::new(&spilling)?
            }
        };
        let hand = Hand::new(held, spilling, self.began);
        {
            let mut state = self.state.lock();
            state.hands.push(Arc::clone(&hand));
            state.threads += 1;
        }
        let runner = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("split-{worker}"))
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || runner.work(worker, &hand));
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
    fn end(&self) {
        let _state = self.state.lock();
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Draws the next split for a thread; none where there is none, or the run is over. A split is open from the moment
    /// in which it is drawn: whoever finds that none is left to draw finds this one open.
    fn draw(&self, worker: usize, hand: &Hand) -> Option<usize> {
        let mut state = self.state.lock();
        if self.is_over() {
            return None;
        }
        let index = self.drawing.next()?;
        hand.reading.begins(index);
        state.tally.begin(index, worker);
        Some(index)
    }

    fn is_stopped(&self) -> bool {
        self.is_over() || self.work.cancel.is_cancelled()
    }

    fn work(&self, worker: usize, hand: &Hand) {
        let ended = catch_panic(|| self.take_splits(worker, hand));
        hand.reading.ends();
        hand.has_ended.store(true, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.threads -= 1;
        if let Err(error) = ended
            && !self.is_over()
        {
            state.error.get_or_insert(error);
        }
        self.changed.notify_all();
    }

    fn take_splits(&self, worker: usize, hand: &Hand) -> Result<()> {
        let mut own = Own { turn: self.work.scan.turn(), clock: ThreadCpuClock::start() };
        while !self.is_over() {
            // First: what is drawn is begun.
            if !own.turn.acquire(|| self.is_stopped() || self.drawing.has_ended()) {
                return Ok(());
            }
            let Some(index) = self.draw(worker, hand) else { return Ok(()) };
            let read = catch_panic(|| self.read(index, worker, hand, &mut own));
            hand.reading.ends();
            self.note_failure(self.work.account.make_room());
            if let Err(error) = read {
                {
                    let state = &mut *self.state.lock();
                    if self.is_over() {
                        return Ok(());
                    }
                    if self.work.patience.is_some() {
                        state.tally.give_up(GivenUp { split: index, error: None });
                        state.failed.push((index, error));
                    } else {
                        self.drawing.give_up(index, error, &mut state.tally)?;
                    }
                }
                // What came of it before counts, as it is in the tables; not so its bytes.
                let counted = hand.held.lock().as_mut().map(|held| {
                    held.waiting = Waiting::new(&self.work.account);
                    std::mem::take(&mut held.so_far)
                });
                self.work.scan.count_part(counted.unwrap_or_default());
            }
            if self.may_be_enough() {
                self.changed.notify_all();
            }
            if hand.reading.is_replaced() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether whoever waits has something to decide: it looks by itself from time to time, and is not woken for each
    /// of many small splits.
    fn may_be_enough(&self) -> bool {
        let state = self.state.lock();
        let has_dropped = self.drawing.drop_bytes > 0
            && state.tally.bytes >= self.drawing.total - self.drawing.drop_bytes;
        has_dropped || state.tally.landed() + state.tally.given_up.len() >= self.drawing.count()
    }

    /// Reads a split; its rows count in the end, or as they come.
    fn read(&self, index: usize, worker: usize, hand: &Hand, own: &mut Own<'_>) -> Result<()> {
        let scan = &self.work.scan;
        if self.work.is_careful
            && let Some(start) = self.start_from_before(index)?
        {
            scan.set_exact_start(index, start);
        }
        let mut read = self.read_rows(index, worker, hand, own);
        let mut outcome = scan.outcome(index);
        if !self.work.is_careful && !self.drawing.in_order && self.is_to_be_checked(index) {
            let start = self.start_from_before(index)?;
            let other = |outcome: &Outcome| {
                !outcome.is_exact
                    && start.is_some_and(|it| outcome.stats.first_record_offset != Some(it))
            };
            if outcome.as_ref().is_some_and(other) {
                let mut state = self.state.lock();
                state.tally.has_wrong_start = true;
                state.tally.checked_wrong += 1;
                self.changed.notify_all();
            }
        }
        // Where something is refused, its first record may have been guessed to begin elsewhere than it does.
        let is_odd = |outcome: &Outcome| {
            !outcome.is_exact && (read.is_err() || outcome.stats.rejected_count > 0)
        };
        if !self.drawing.in_order
            && !self.is_over()
            && let Some(odd) = outcome.as_ref().filter(|outcome| is_odd(outcome))
            && let Some(start) = self.start_from_before(index)?
            && odd.stats.first_record_offset != Some(start)
        {
            scan.set_exact_start(index, start);
            read = self.read_rows(index, worker, hand, own);
            outcome = scan.outcome(index);
        }
        // What a damaged file is decoded to may look like malformed records.
        let is_refused = matches!(read, Err(Error::BadRecords { .. }));
        let has_refused =
            || outcome.as_ref().is_some_and(|outcome| outcome.stats.rejected_count > 0);
        if is_refused && self.drawing.drop_bytes > 0
            || self.work.patience.is_some() && has_refused()
        {
            scan.source().verify_compressed_files(&scan.splits()[index], &self.work.cancel)?;
        }
        let Some(row_count) = read? else { return Ok(()) };
        // For as long as it takes; it has not stalled.
        hand.reading.waits_for_others();
        let Some(turn) = self.landing_turn() else { return Ok(()) };
        if self.lands_late(hand) {
            // The answer would wait for them: the split is one of those that were being read when it was over.
            drop(turn);
            own.turn.release();
            self.wait_until_over();
            return Ok(());
        }
        let landed = self.land(index, outcome, row_count, worker, hand);
        drop(turn);
        self.note_failure(landed);
        self.work.progress.table_counters().add_thread_cpu(&mut own.clock);
        Ok(())
    }

    /// Whether it is looked at where a split begins. In a sample two neighbours are hardly ever read.
    fn is_to_be_checked(&self, index: usize) -> bool {
        if self.work.scan.source().has_exact_starts() {
            return false;
        }
        let bytes = self.drawing.sizes[index];
        let Guessed { splits, bytes: before } = self.work.guessed.as_ref();
        let number = splits.fetch_add(1, Ordering::Relaxed);
        let before = before.fetch_add(bytes, Ordering::Relaxed);
        let is_far = before / CHECKED_EACH_BYTES != (before + bytes) / CHECKED_EACH_BYTES;
        let is_large = bytes.saturating_mul(STARTS_CHECKED as u64) >= CHECKED_EACH_BYTES;
        number < STARTS_CHECKED
            || if is_large { number.is_multiple_of(STARTS_CHECKED) } else { is_far }
    }

    fn start_from_before(&self, index: usize) -> Result<Option<u64>> {
        let scan = &self.work.scan;
        Ok(scan.source().guess_start_from_before(&scan.splits()[index], &self.work.cancel)?)
    }

    /// How many rows a split has; none where it is over. Those that do not count yet wait in its hand.
    fn read_rows(
        &self,
        index: usize,
        worker: usize,
        hand: &Hand,
        Own { turn, clock }: &mut Own<'_>,
    ) -> Result<Option<u64>> {
        let work = &self.work;
        let (map, tables) = (work.progress.map_counters(), work.progress.table_counters());
        let mut batches = work.map.rows(index)?;
        if let Some(held) = hand.held.lock().as_mut() {
            held.waiting = Waiting::new(&work.account);
        }
        let mut row_count = 0;
        for batch in batches.by_ref() {
            if self.is_over() {
                return Ok(None);
            }
            hand.reading.moves();
            map.add_thread_cpu(clock);
            let mut batch = batch.into_tidemill_error()?;
            if work.spec.needs_positions() {
                batch = placed(&batch, work.scan.splits()[index].index, row_count)?;
            }
            row_count += batch.num_rows() as u64;
            match self.drawing.in_order {
                true => self.count_rows(index, &batch, worker, hand)?,
                false => self.keep(batch, hand),
            }
            self.note_failure(work.account.make_room());
            // For as long as it takes; it has not stalled.
            hand.reading.waits_for_others();
            turn.acquire(|| self.is_stopped());
            hand.reading.moves();
            work.cancel.check()?;
            tables.add_thread_cpu(clock);
        }
        drop(batches);
        work.scan.read_unasked(index)?;
        map.add_thread_cpu(clock);
        Ok(Some(row_count))
    }

    /// Takes rows that count as they come.
    fn count_rows(
        &self,
        index: usize,
        batch: &RecordBatch,
        worker: usize,
        hand: &Hand,
    ) -> Result<()> {
        let mut held = hand.held.lock();
        let Some(held) = held.as_mut() else { return Ok(()) };
        let chunks = (!self.work.spec.is_order_insensitive()).then_some(&mut held.chunks);
        held.tables.take_in(batch, (&self.merger, worker), self.worker_bytes, chunks)?;
        held.so_far = self.work.scan.so_far(index);
        self.note_groups(&held.tables);
        Ok(())
    }

    fn note_groups(&self, tables: &Tables) {
        let groups = tables.group_count();
        self.groups.fetch_max(groups, Ordering::Relaxed);
        self.bytes.fetch_max(tables.bytes(), Ordering::Relaxed);
        if let Some(switch) = self.work.watched.as_ref().filter(|_| groups > WATCHED_GROUPS_MAX) {
            switch.turn_off();
        }
    }

    /// Keeps rows of a split until all of it was read.
    fn keep(&self, batch: RecordBatch, hand: &Hand) {
        let mut held = hand.held.lock();
        let Some(Filled { waiting, .. }) = held.as_mut() else { return };
        waiting.add(batch);
        // Where the order matters a split has chunks of its own in any case, and is large. Grouped in the end, all at once,
        // its rows would keep whoever waits for the table from an answer.
        let has_own = waiting.own.is_some() || !self.work.spec.is_order_insensitive();
        if has_own || waiting.bytes() > self.held_bytes_max {
            let grouped = waiting.group(&hand.spilling);
            self.note_failure(grouped);
        }
    }

    /// Has the run fail where a table could not be filled or spilled: its groups may be incomplete, whichever split they
    /// are of, and no split may be left out for that.
    fn note_failure(&self, filled: Result<()>) {
        if let Err(error) = filled {
            self.state.lock().error.get_or_insert(error);
            self.changed.notify_all();
        }
    }

    /// Waits until fewer splits land than there are threads at work; returns none once the run is over. The threads of
    /// splits that stalled may all come back at once, and each reads back what was spilled of its split.
    fn landing_turn(&self) -> Option<LandingTurn<'_>> {
        let mut landing = self.landing.lock();
        while *landing >= self.work.threads.max(1) {
            if self.is_over() {
                return None;
            }
            self.landed.wait_for(&mut landing, TICK);
        }
        *landing += 1;
        Some(LandingTurn { runner: self })
    }

    /// Returns whether the rows that wait in a hand could not be taken in before the answer is to be there.
    fn lands_late(&self, hand: &Hand) -> bool {
        let Some(ends_at) = self.ends_at else { return false };
        let kib = hand.held.lock().as_ref().map_or(0, |held| held.waiting.charge.bytes() / 1_024);
        let takes = self.landing_ns_per_kib.load(Ordering::Relaxed).saturating_mul(kib as u64);
        let takes = Duration::from_nanos(takes);
        takes > LANDING_FREE && takes > ends_at.saturating_duration_since(Instant::now())
    }

    fn note_landing(&self, bytes: usize, took: Duration) {
        if bytes >= LANDING_BYTES_MIN {
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            let kib = (bytes / 1_024) as u64;
            self.landing_ns_per_kib.store(took.div_ceil(kib), Ordering::Relaxed);
        }
    }

    fn wait_until_over(&self) {
        let mut state = self.state.lock();
        while !self.is_stopped() {
            self.changed.wait_for(&mut state, TICK);
        }
    }

    /// Has a split count.
    fn land(
        &self,
        index: usize,
        outcome: Option<Outcome>,
        row_count: u64,
        worker: usize,
        hand: &Hand,
    ) -> Result<()> {
        let (is_order_free, merger) = (self.work.spec.is_order_insensitive(), &*self.merger);
        let mut held = hand.held.lock();
        let Some(held) = held.as_mut() else { return Ok(()) };
        let waiting = std::mem::replace(&mut held.waiting, Waiting::new(&self.work.account));
        let Waiting { batches, mut charge, own } = waiting;
        let (began, waited_bytes) = (Instant::now(), charge.bytes());
        if let Some((mut tables, chunks)) = own {
            held.chunks.extend(chunks);
            held.chunks.extend(tables.rest(merger)?);
        }
        for batch in batches {
            let chunks = (!is_order_free).then_some(&mut held.chunks);
            held.tables.take_in(&batch, (merger, worker), self.worker_bytes, chunks)?;
            charge.set_bytes(charge.bytes().saturating_sub(batch.get_array_memory_size()));
        }
        if is_order_free {
            for chunk in held.chunks.drain(..) {
                merger.accept_deferred(chunk, worker)?;
            }
            merger.merge_and_spill(worker)?;
        } else {
            held.chunks.extend(held.tables.rest(merger)?);
        }
        self.note_landing(waited_bytes, began.elapsed());
        self.note_groups(&held.tables);
        held.so_far = SoFar::default();
        self.work.progress.map_counters().add_rows(row_count);
        self.state.lock().tally.land(
            &self.work.scan,
            index,
            self.drawing.sizes[index],
            outcome.as_ref(),
        );
        if let Some(outcome) = outcome {
            self.work.scan.take(index, row_count, outcome)?;
        }
        if !is_order_free {
            let chunks = std::mem::take(&mut held.chunks);
            self.state.lock().chunks.insert(index, chunks);
        }
        Ok(())
    }

    /// Waits until enough is read.
    fn wait(self: &Arc<Self>, until: &mut Until, look: &mut dyn Look) -> Result<Why> {
        // What the last look took: it has to be over before the deadline.
        let mut look_takes = Duration::ZERO;
        let mut looks_take = Duration::ZERO;
        loop {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            self.work.cancel.check()?;
            if let Some(why) = state.tally.enough(&self.drawing, until) {
                return Ok(why);
            }
            if self.work.patience.is_some_and(|patience| self.have_stalled(&state, patience)) {
                return Ok(Why::Asked);
            }
            // Whoever began this begins again. A worker reads its task to the end: whether all begins again is decided
            // where all tasks are known.
            let begins_again = state.tally.has_wrong_start
                && !self.work.is_careful
                && !self.drawing.in_order
                && self.work.patience.is_none();
            if self.work.enough.is_cancelled() || begins_again {
                return Ok(Why::Asked);
            }
            // All looks together take a share of the time, however many groups there are.
            let mut may_look = looks_take * LOOKS_SHARE <= LOOKS_FREE + self.began.elapsed()
                && !self.work.watched.as_ref().is_some_and(|switch| self.is_too_large(switch));
            let mut patience = TICK;
            let mut look_ends_at = None;
            if let Some(ends_at) = until.ends_at {
                let left = ends_at.saturating_duration_since(Instant::now());
                let reserve = self.reserve(ends_at).min(left.max(RESERVE));
                match left.checked_sub(reserve).filter(|left| !left.is_zero()) {
                    None => return Ok(Why::Deadline),
                    Some(left) => {
                        patience = patience.min(left);
                        // Nobody knows what the first look takes, but that it goes through all groups.
                        may_look &= left > 3 * look_takes.max(self.held().tables_take());
                        look_ends_at = Some(Instant::now() + left);
                    }
                }
            }
            let stalled = self.stalled(&state);
            if stalled > 0 {
                drop(state);
                for _ in 0..stalled {
                    self.start_thread()?;
                }
                continue;
            }
            if let Some(soon) = look.patience() {
                patience = patience.min(soon);
            }
            let is_due = may_look && look.is_due(state.tally.landed() as u64);
            drop(state);
            let began = Instant::now();
            if is_due && let Some(snapshot) = self.snapshot(until.confidence)? {
                let found = look.look(Snapshot { ends_at: look_ends_at, ..snapshot })?;
                look_takes = began.elapsed();
                looks_take += look_takes;
                if let Some(confidence) = found {
                    until.confidence = confidence;
                    return Ok(Why::Precise);
                }
                continue;
            }
            let mut state = self.state.lock();
            self.changed.wait_for(&mut state, patience);
        }
    }

    /// Whether nobody who only watches is shown any more: a look at the tables takes too long.
    fn is_too_large(&self, switch: &StateUpdateSwitch) -> bool {
        switch.is_off() || self.bytes.load(Ordering::Relaxed) > WATCHED_BYTES_MAX
    }

    /// What it takes from the last row to the answer.
    fn reserve(&self, ends_at: Instant) -> Duration {
        let all = ends_at.saturating_duration_since(self.began);
        self.work.reserve(self.held(), self.merger.merge_load(), all)
    }

    fn held(&self) -> Held {
        let (groups, tables) =
            (self.groups.load(Ordering::Relaxed), self.tables.load(Ordering::Relaxed));
        Held { groups, tables }
    }

    /// The tables as they are, gathered in one; none where some of them have left memory or are part of a larger fold.
    fn snapshot(&self, confidence: f64) -> Result<Option<Snapshot>> {
        if !self.work.spec.is_order_insensitive() {
            return Ok(None);
        }
        let mut gathered = self.gathered.held.lock();
        let Some(Filled { tables: gathered, .. }) = gathered.as_mut() else { return Ok(None) };
        let hands = self.state.lock().hands.clone();
        // Of what has landed by then; what lands meanwhile is in no table that is taken.
        let mut locked: Vec<_> = hands.iter().map(|hand| hand.held.lock()).collect();
        // While none of them can be spilled.
        if !self.merger.is_unused() {
            return Ok(None);
        }
        let (sample, bytes) = {
            let state = self.state.lock();
            let sample = || state.tally.sample(&self.work.scan, &self.drawing, confidence);
            ((!self.drawing.in_order).then(sample), state.tally.bytes)
        };
        let bytes =
            if sample.is_none() { bytes.max(self.work.progress.bytes_done()) } else { bytes };
        let share = (bytes as f64 / self.drawing.total.max(1) as f64).min(1.0);
        let chunks = locked.iter_mut().filter_map(|held| held.as_mut()?.tables.taken().transpose());
        let chunks = chunks.collect::<Result<Vec<GroupChunk>>>()?;
        drop(locked);
        for chunk in chunks {
            gathered.merge(&chunk)?;
        }
        // The answer takes a copy in its form on disk, and another table.
        let _copies = self.work.account.charge(2 * gathered.bytes());
        self.work.account.make_room()?;
        let answer = gathered.answer(&self.work.spec)?;
        Ok(Some(Snapshot { answer, sample, share, ends_at: None }))
    }

    /// Whether all that is left to read has given nothing for so long. A split that is open and not being read is about to
    /// count, or to be given up.
    fn have_stalled(&self, state: &State, patience: Duration) -> bool {
        let is_idle = |(split, worker): (usize, usize)| {
            let reading = state.hands.get(worker).map(|hand| &hand.reading);
            reading.is_some_and(|it| it.split() == Some(split) && it.idle() > patience)
        };
        self.drawing.has_ended() && state.tally.open().all(is_idle)
    }

    /// How many threads are to be started in the place of those that wait.
    fn stalled(&self, state: &State) -> usize {
        if self.drawing.has_ended() {
            return 0;
        }
        to_replace(state.hands.iter().map(|hand| &hand.reading))
    }

    /// Takes the threads' tables from them, and merges these.
    fn finish(&self, why: Why, until: &Until, threads: usize) -> Result<Taken> {
        // Before programs are ended, and with them the reads that wait for them.
        let hands: Vec<_> = {
            let state = self.state.lock();
            let open: BTreeMap<usize, usize> =
                state.tally.open().map(|(split, worker)| (worker, split)).collect();
            let at = |(worker, hand): (usize, &Arc<Hand>)| {
                (Arc::clone(hand), open.get(&worker).copied(), hand.reading.has_stalled())
            };
            state.hands.iter().enumerate().map(at).collect()
        };
        self.end_programs();
        let is_order_free = self.work.spec.is_order_insensitive();
        let (mut chunks, mut given_up, mut in_flight) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut begun = Vec::new();
        let merger = &*self.merger;
        let mut clock = ThreadCpuClock::start();
        let is_all = self.work.patience.is_none() && why == Why::Whole;
        if is_all && self.work.scan.source().skipped_files().is_empty() {
            // The answer is exact, and nobody asks how far off it is.
            self.work.cells.turn_off();
        }
        for (hand, split, has_stalled) in hands {
            // Locked for as long as a thread takes for the rows of a split.
            let Some(mut held) = hand.held.lock().take() else { continue };
            self.work.scan.count_part(held.so_far);
            match (is_order_free, split) {
                (true, _) => held.tables.give(merger)?,
                (false, Some(split)) if self.drawing.in_order => {
                    held.chunks.extend(held.tables.rest(merger)?);
                    chunks.insert(split, held.chunks);
                }
                (false, _) => {}
            }
            // What has landed meanwhile counts; from here on the thread has no table, and nothing of it lands.
            let is_open = |split: &usize| self.state.lock().tally.is_open(*split);
            let Some(split) = split.filter(is_open) else { continue };
            // Without a deadline and `drop` nothing is given up: a thread may have had no core.
            match has_stalled && (until.ends_at.is_some() || until.drop.is_some()) {
                true => given_up.push(GivenUp { split, error: None }),
                false => {
                    in_flight.push(split);
                    begun.push((split, held.so_far.rows));
                }
            }
        }
        if let Some(mut gathered) = self.gathered.held.lock().take()
            && is_order_free
        {
            gathered.tables.give(merger)?;
        }
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        // What has landed since it was enough counts as well.
        let why = if state.tally.is_whole() { Why::Whole } else { why };
        given_up.append(&mut state.tally.given_up);
        given_up.sort_by_key(|given_up| given_up.split);
        // In the order of the splits; those that are read in part are behind all others of theirs.
        chunks.extend(std::mem::take(&mut state.chunks));
        for (_, chunks) in chunks {
            for chunk in chunks {
                merger.accept_deferred(chunk, 0)?;
            }
            merger.merge_and_spill(0)?;
        }
        let sample = (!self.drawing.in_order)
            .then(|| state.tally.sample(&self.work.scan, &self.drawing, until.confidence));
        let wrong_starts = state.tally.wrong_starts(&self.work.scan);
        let bytes = match self.drawing.in_order {
            true if why == Why::Whole => state.tally.bytes.max(self.work.progress.bytes_done()),
            true => self.bytes_in_order(&state.tally, &begun),
            false => state.tally.bytes,
        };
        let failed = std::mem::take(&mut state.failed);
        drop(state);
        self.work.cancel.check()?;
        let merged = merger.finish(threads);
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        let left_out = self.work.scan.source().skipped_files();
        let read = ReadPart { why, sample, given_up, left_out, in_flight, wrong_starts, bytes };
        Ok(Taken { merged: merged?, read, failed })
    }

    /// The bytes that count where rows do as they come: those of what has landed, and of each split that was begun as
    /// many as its rows take. Of what was given up there are none.
    fn bytes_in_order(&self, tally: &Tally, begun: &[(usize, u64)]) -> u64 {
        let splits = self.work.scan.splits();
        let is_unknown = |piece: &SplitPart| piece.file.is_stream();
        if splits.iter().flat_map(|split| &split.parts).any(is_unknown) {
            return tally.bytes.max(self.work.progress.bytes_done());
        }
        // A program may have been given all of a file before the first row comes out of it.
        let of_rows = |rows: u64| match u128::from(tally.rows) {
            0 => self.work.progress.bytes_done(),
            all => {
                let bytes = u128::from(rows) * u128::from(tally.bytes) / all;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        let begun = begun.iter().filter(|(_, rows)| *rows > 0);
        let of_begun = begun.map(|(split, rows)| of_rows(*rows).min(self.drawing.sizes[*split]));
        tally.bytes + of_begun.sum::<u64>()
    }

    /// Waits for threads that read from programs, which end them.
    fn end_programs(&self) {
        if self.work.scan.source().spec().filter_program.is_none() {
            return;
        }
        let until = Instant::now() + PROGRAMS_WAIT;
        let mut state = self.state.lock();
        while state.threads > 0 && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

/// The turn of a thread whose split lands.
struct LandingTurn<'a> {
    runner: &'a Runner,
}

impl Drop for LandingTurn<'_> {
    fn drop(&mut self) {
        *self.runner.landing.lock() -= 1;
        self.runner.landed.notify_one();
    }
}

/// The rows of a split that is being read.
struct Waiting {
    batches: Vec<RecordBatch>,
    /// That of the batches.
    charge: MemoryCharge,
    /// A table of the split's own, with the chunks that have left it, where its rows are many.
    own: Option<(Tables, Vec<DeferredChunk>)>,
}

impl Waiting {
    fn new(account: &MemoryAccount) -> Self {
        Waiting { batches: Vec::new(), charge: account.charge(0), own: None }
    }

    fn bytes(&self) -> usize {
        self.charge.bytes() + self.own.as_ref().map_or(0, |(tables, _)| tables.bytes())
    }

    fn add(&mut self, batch: RecordBatch) {
        self.charge.set_bytes(self.charge.bytes() + batch.get_array_memory_size());
        self.batches.push(batch);
    }

    /// Puts its rows into a table of their own, from which chunks go to disk where memory is short.
    fn group(&mut self, to: &Spilling) -> Result<()> {
        let (tables, chunks) = match &mut self.own {
            Some(own) => own,
            none => none.insert((to.new_tables()?, Vec::new())),
        };
        for batch in self.batches.drain(..) {
            let into = (&*to.merger, to.worker);
            tables.take_in(&batch, into, to.worker_bytes, Some(chunks))?;
        }
        self.charge.set_bytes(0);
        Ok(())
    }

    fn spill(&mut self, to: &Spilling) -> Result<()> {
        self.group(to)?;
        if let Some((tables, chunks)) = &mut self.own {
            chunks.extend(tables.spill_rest(&to.merger)?);
            *tables = to.new_tables()?;
        }
        Ok(())
    }
}
