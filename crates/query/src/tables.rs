//! The partial-table runner: every split through the map into a table, the tables into one.
//!
//! Workers take splits in order. A gate lets splits through in split order: there the guess of
//! where a split's first record starts is checked against where the split before it ended, and what
//! came of it is counted. What waits at the gate is bounded: a worker begins a split only a few
//! behind the one that passes next. Whoever waits there leaves its core to other runs on this machine.
//!
//! Where all states answer the same in any order of rows, a worker fills one table with all of
//! its splits, and the workers' tables are merged in the end: each group is merged once a worker, not
//! once a split. A split that guessed its start wrong has filled a worker's table with rows that
//! are none; then everything is filled anew, the second way.
//!
//! Where the order of rows matters, and after a wrong guess, a worker fills a table per split and
//! hands it over as chunks, which pass the gate with their split; a split that guessed wrong is read
//! again, and nothing of its first reading has been merged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::cores::ComputeTurn;
use tidemill_base::error::{Error, Result, catch_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::memory_account::{MemoryAccount, MemoryCharge};
use tidemill_base::progress::{RunProgress, ThreadCpuClock};
use tidemill_sql::IntoTidemillError;
use tidemill_tables::batch_slices::BatchSlices;
use tidemill_tables::merge::{ChunkMerger, DeferredChunk, MergedTable};
use tidemill_tables::{AggregateTable, GroupChunk, ScatterBuffer, TableSpec, encode_row_position};
use tracing::debug_span;

use crate::map::Map;
use crate::scan::{Outcome, Scan};

/// What the runner works on.
pub(crate) struct Work<'a> {
    /// What a split's rows go through.
    pub map: Map,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// What is kept per group.
    pub spec: &'a Arc<TableSpec>,
    /// Threads at most.
    pub threads: usize,
    /// Memory account of all tables of the run.
    pub account: MemoryAccount,
    /// Where tables spill to.
    pub spill_dirs: &'a [PathBuf],
    /// Stops the run.
    pub cancel: &'a CancelFlag,
    /// Told of what is spilled.
    pub progress: &'a RunProgress,
}

/// How often a worker that waits looks whether the run has ended.
const TICK: Duration = Duration::from_millis(50);

/// Runs the map over all splits and merges what comes of them.
///
/// # Errors
/// The first that a split, in split order as far as is known, or a merge meets.
pub(crate) fn run(work: &Work<'_>) -> Result<MergedTable> {
    if work.spec.is_order_insensitive() {
        match fill(work, Order::Any, 0, None)? {
            Filled::Whole(merged) => return Ok(merged),
            Filled::WrongGuess { counted } => return in_split_order(work, counted),
        }
    }
    in_split_order(work, 0)
}

/// What came of some splits whose tables somebody else merges with those of others.
pub(crate) enum Part {
    /// One table, where the order of rows does not matter.
    Table(MergedTable),
    /// Chunks of one split after the other.
    Chunks(Vec<DeferredChunk>),
}

impl Part {
    /// Its groups in their form on disk, one batch after another.
    ///
    /// # Errors
    /// Where they cannot be read back; what is done with them.
    pub(crate) fn each(self, take: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        match self {
            Part::Table(mut merged) => {
                while let Some(groups) = merged.next_encoded_groups()? {
                    take(groups)?;
                }
            }
            Part::Chunks(chunks) => {
                for chunk in chunks {
                    for groups in chunk.encoded_batches()? {
                        take(groups?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The same for some of a query's splits.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_part(work: &Work<'_>) -> Result<Part> {
    if work.spec.is_order_insensitive() {
        return run(work).map(Part::Table);
    }
    let chunks = Mutex::default();
    match fill(work, Order::Splits, 0, Some(&chunks))? {
        Filled::Whole(_) => Ok(Part::Chunks(chunks.into_inner())),
        Filled::WrongGuess { .. } => Err(not_read_again()),
    }
}

fn not_read_again() -> Error {
    Error::Internal("a split was not read again from where it starts".to_owned())
}

fn in_split_order(work: &Work<'_>, counted: usize) -> Result<MergedTable> {
    match fill(work, Order::Splits, counted, None)? {
        Filled::Whole(merged) => Ok(merged),
        Filled::WrongGuess { .. } => Err(not_read_again()),
    }
}

/// In which order the states take rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// That of the splits.
    Splits,
    /// Any; a worker has one table.
    Any,
}

/// What came of filling tables.
enum Filled {
    /// All splits, merged.
    Whole(MergedTable),
    /// A split had guessed wrong where it starts; the splits before it have been counted.
    WrongGuess { counted: usize },
}

/// Fills tables with all splits, of which the first `counted` have been counted. Chunks in the order of splits are not
/// merged where there is a place to keep them.
fn fill(
    work: &Work<'_>,
    order: Order,
    counted: usize,
    kept: Option<&Mutex<Vec<DeferredChunk>>>,
) -> Result<Filled> {
    let split_count = work.scan.splits().len();
    let threads = work.threads.clamp(1, split_count.max(1));
    // The workers' own tables get at most two fifths together; there is one per thread.
    let worker_bytes = work.account.limit_bytes() / 5 * 2 / threads;
    let merger =
        ChunkMerger::new(work.spec, &work.account, work.spill_dirs, work.cancel, work.progress)?;
    let runner = Runner {
        work,
        merger: &merger,
        order,
        counted,
        kept,
        gate: Mutex::default(),
        passed: Condvar::new(),
        ahead_max: 4 * threads,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        worker_bytes,
    };
    let mut first_error = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let runner = &runner;
                std::thread::Builder::new()
                    .name(format!("split-{worker}"))
                    .stack_size(RUN_STACK_BYTES)
                    .spawn_scoped(scope, move || runner.work(worker))
            })
            .collect();
        for worker in workers {
            let ended = match worker.map(|worker| worker.join()) {
                Ok(Ok(ended)) => ended,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(e) => Err(Error::Io { action: "start", path: "a thread".into(), source: e }),
            };
            if let Err(error) = ended {
                // "Stopped because another failed" is not what the user should read.
                first_error.get_or_insert(error);
            }
        }
    });
    let gate = runner.gate.into_inner();
    if gate.guessed_wrong {
        return Ok(Filled::WrongGuess { counted: gate.next });
    }
    if let Some(error) = gate.error.or(first_error) {
        return Err(error);
    }
    work.cancel.check()?;
    let mut clock = ThreadCpuClock::start();
    let merged = merger.finish(threads);
    work.progress.table_counters().add_thread_cpu(&mut clock);
    Ok(Filled::Whole(merged?))
}

/// Rows with their positions in the input, the first of them being the split's row of that number.
pub(crate) fn placed(batch: &RecordBatch, split: usize, first: u64) -> Result<RecordBatch> {
    let rows = first..first + batch.num_rows() as u64;
    let positions = UInt64Array::from_iter_values(rows.map(|row| encode_row_position(split, row)));
    let schema = batch.schema_ref();
    let field = Arc::new(Field::new("position", DataType::UInt64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([field]).collect();
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(positions) as ArrayRef);
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

struct Runner<'a> {
    work: &'a Work<'a>,
    merger: &'a ChunkMerger,
    order: Order,
    /// How many splits, from the first on, have been counted before.
    counted: usize,
    /// Where chunks go that are not merged.
    kept: Option<&'a Mutex<Vec<DeferredChunk>>>,
    gate: Mutex<Gate>,
    /// Told when the gate moves on.
    passed: Condvar,
    /// How many splits may be read beyond the one that passes next.
    ahead_max: usize,
    next: AtomicUsize,
    failed: AtomicBool,
    worker_bytes: usize,
}

/// What a worker fills.
pub(crate) struct Tables {
    table: AggregateTable,
    /// Where its rows go while hardly any two are of one group.
    scatter: ScatterBuffer,
    charge: MemoryCharge,
}

impl Tables {
    pub(crate) fn new(
        spec: &Arc<TableSpec>,
        worker_bytes: usize,
        account: &MemoryAccount,
    ) -> Result<Self> {
        let scatter = ScatterBuffer::new(spec, worker_bytes / 4);
        Ok(Tables { table: AggregateTable::new(spec)?, scatter, charge: account.charge(0) })
    }

    /// Returns the bytes charged to the account.
    pub(crate) fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// How many groups its table has.
    pub(crate) fn group_count(&self) -> usize {
        self.table.group_count()
    }

    fn note_bytes(&mut self) {
        self.charge.set_bytes(self.table.memory_bytes() + self.scatter.memory_bytes());
    }

    /// Takes the groups out of the table. Their new owner charges them.
    fn take(&mut self) -> Result<GroupChunk> {
        let chunk = self.table.take_chunk()?;
        self.note_bytes();
        Ok(chunk)
    }

    /// Takes rows of the map, and hands over what is enough of them: to `chunks`, or where there are none to the
    /// merger, for which the worker of this number works then.
    pub(crate) fn take_in(
        &mut self,
        batch: &RecordBatch,
        (merger, worker): (&ChunkMerger, usize),
        worker_bytes: usize,
        mut chunks: Option<&mut Vec<DeferredChunk>>,
    ) -> Result<()> {
        if self.scatter.is_enabled() {
            self.scatter.add_rows(batch)?;
            if self.scatter.is_full() || !self.scatter.is_enabled() {
                let blocks = self.scatter.take_blocks()?;
                self.note_bytes();
                merger.add_scattered_rows(blocks);
                merger.merge_and_spill(worker)?;
            } else {
                self.note_bytes();
            }
            return Ok(());
        }
        let group_bytes_max = merger.group_bytes_max();
        let mut portions =
            BatchSlices::new(self.table.spec(), batch, worker_bytes, group_bytes_max)?;
        while let Some(rows) = portions.next_slice(&self.table) {
            self.table.update(&rows)?;
            self.note_bytes();
            let is_large = self.table.memory_bytes() > worker_bytes;
            match &mut chunks {
                Some(chunks) if is_large => chunks.push(merger.defer_chunk(self.take()?)?),
                None if is_large || self.table.is_better_scattered() => {
                    if self.table.is_better_scattered() {
                        self.scatter.enable();
                    }
                    merger.add_chunk(self.take()?)?;
                    merger.merge_and_spill(worker)?;
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Merges the groups of another table into this one.
    pub(crate) fn merge(&mut self, chunk: &GroupChunk) -> Result<()> {
        merge_all(&mut self.table, chunk)?;
        self.note_bytes();
        Ok(())
    }

    /// Returns the answer of the groups, and keeps the groups.
    pub(crate) fn answer(&mut self, spec: &Arc<TableSpec>) -> Result<RecordBatch> {
        answer_of(&mut self.table, spec)
    }

    /// The groups of its table; none where there are none, or where rows are put apart.
    pub(crate) fn taken(&mut self) -> Result<Option<GroupChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => self.take().map(Some),
        }
    }

    /// Hands over what is left, whose turn is any.
    pub(crate) fn give(&mut self, merger: &ChunkMerger) -> Result<()> {
        merger.add_chunk(self.take()?)?;
        let blocks = self.scatter.take_blocks()?;
        self.note_bytes();
        merger.add_scattered_rows(blocks);
        Ok(())
    }

    /// What is left, as a chunk whose turn comes; none of no groups.
    pub(crate) fn rest(&mut self, merger: &ChunkMerger) -> Result<Option<DeferredChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => Ok(Some(merger.defer_chunk(self.take()?)?)),
        }
    }

    /// Writes the rest to disk, as a chunk whose turn comes; returns none of no groups.
    pub(crate) fn spill_rest(&mut self, merger: &ChunkMerger) -> Result<Option<DeferredChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => Ok(Some(merger.defer_chunk_to_disk(self.take()?)?)),
        }
    }
}

/// Returns the answer of a table, and leaves the table unchanged.
pub(crate) fn answer_of(table: &mut AggregateTable, spec: &Arc<TableSpec>) -> Result<RecordBatch> {
    // Answering consumes a table, so encode the groups and decode them twice.
    let encoded = table.take_chunk()?.encode()?;
    let mut other = AggregateTable::new(spec)?;
    let copy = other.decode_chunk(&encoded)?;
    merge_all(&mut other, &copy)?;
    let own = table.decode_chunk(&encoded)?;
    merge_all(table, &own)?;
    other.finish()
}

pub(crate) fn merge_all(table: &mut AggregateTable, chunk: &GroupChunk) -> Result<()> {
    let rows: Vec<u32> = (0..chunk.group_count()).map(|row| row as u32).collect();
    table.merge(chunk, &rows)
}

/// A split that was read, well or not.
struct Read {
    chunks: Vec<DeferredChunk>,
    /// Rows that came out of the map.
    rows: u64,
    outcome: Option<Outcome>,
    result: Result<()>,
}

/// Splits pass in order.
#[derive(Default)]
struct Gate {
    next: usize,
    waiting: BTreeMap<usize, Read>,
    /// Where the last split that passed ended, and in which file.
    end: Option<(usize, u64)>,
    /// Whether rows that are none are in a worker's table.
    guessed_wrong: bool,
    error: Option<Error>,
}

impl Runner<'_> {
    fn work(&self, worker: usize) -> Result<()> {
        let ended = catch_panic(|| self.take_splits(worker));
        if ended.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn take_splits(&self, worker: usize) -> Result<()> {
        let mut filled = Tables::new(self.work.spec, self.worker_bytes, &self.work.account)?;
        let mut turn = self.work.scan.turn();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.work.scan.splits().len() || !self.may_begin(index, &mut turn)? {
                break;
            }
            if !turn.acquire(|| self.has_ended()) {
                self.work.cancel.check()?;
                break;
            }
            let read = self.read(index, &mut filled, worker, Some(&mut turn));
            self.pass(index, read, worker, &mut turn)?;
            if self.order == Order::Splits {
                let mut clock = ThreadCpuClock::start();
                self.merger.merge_and_spill(worker)?;
                self.work.progress.table_counters().add_thread_cpu(&mut clock);
            }
        }
        if self.order == Order::Any && !self.failed.load(Ordering::Relaxed) {
            let mut clock = ThreadCpuClock::start();
            filled.give(self.merger)?;
            self.work.progress.table_counters().add_thread_cpu(&mut clock);
        }
        Ok(())
    }

    /// Whether nobody is to wait for a turn any more.
    fn has_ended(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.work.cancel.is_cancelled()
    }

    /// Waits until a split is near enough to the gate; false where the run has failed. The split
    /// that passes next is always begun already, or may be.
    fn may_begin(&self, index: usize, turn: &mut ComputeTurn<'_>) -> Result<bool> {
        let mut gate = self.gate.lock();
        loop {
            if self.failed.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if index <= gate.next + self.ahead_max {
                return Ok(true);
            }
            self.work.cancel.check()?;
            turn.release();
            self.passed.wait_for(&mut gate, TICK);
        }
    }

    /// Reads a split into the worker's table, and where the order of splits matters from there into
    /// chunks. Its error is part of the outcome: it may be void. Without a turn it waits for none.
    fn read(
        &self,
        index: usize,
        filled: &mut Tables,
        worker: usize,
        turn: Option<&mut ComputeTurn<'_>>,
    ) -> Read {
        let mut read = Read { chunks: Vec::new(), rows: 0, outcome: None, result: Ok(()) };
        read.result = catch_panic(|| self.fill(index, filled, &mut read, worker, turn));
        read.outcome = self.work.scan.outcome(index);
        if read.result.is_err() && self.order == Order::Splits {
            // What is left of it is no part of the next split.
            read.result = read.result.and(filled.take().map(drop));
        }
        read
    }

    fn fill(
        &self,
        index: usize,
        filled: &mut Tables,
        read: &mut Read,
        worker: usize,
        mut turn: Option<&mut ComputeTurn<'_>>,
    ) -> Result<()> {
        let (map, tables) =
            (self.work.progress.map_counters(), self.work.progress.table_counters());
        let mut clock = ThreadCpuClock::start();
        let mut batches = self.work.map.rows(index)?;
        let mapping = debug_span!("map", index);
        while let Some(batch) = mapping.in_scope(|| batches.next()) {
            map.add_thread_cpu(&mut clock);
            let mut batch = batch.into_tidemill_error()?;
            if self.work.spec.needs_positions() {
                let split = self.work.scan.splits()[index].index;
                batch = placed(&batch, split, read.rows)?;
            }
            read.rows += batch.num_rows() as u64;
            let chunks = (self.order == Order::Splits).then_some(&mut read.chunks);
            filled.take_in(&batch, (self.merger, worker), self.worker_bytes, chunks)?;
            if let Some(turn) = &mut turn {
                // Where another thread has failed, the split is read to its end all the same.
                turn.acquire(|| self.has_ended());
            }
            self.work.cancel.check()?;
            tables.add_thread_cpu(&mut clock);
        }
        drop(batches);
        self.work.scan.read_unasked(index)?;
        map.add_thread_cpu(&mut clock);
        if self.order == Order::Splits {
            read.chunks.extend(filled.rest(self.merger)?);
        }
        tables.add_thread_cpu(&mut clock);
        Ok(())
    }

    /// Lets through what may pass, reading again what guessed wrong.
    fn pass(
        &self,
        index: usize,
        read: Read,
        worker: usize,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<()> {
        let mut gate = self.gate.try_lock().unwrap_or_else(|| {
            turn.release();
            self.gate.lock()
        });
        gate.waiting.insert(index, read);
        loop {
            let index = gate.next;
            let Some(read) = gate.waiting.remove(&index) else { return Ok(()) };
            if gate.error.is_some() || gate.guessed_wrong {
                return Ok(());
            }
            if let Some(start) = self.right_start(&gate, index, &read) {
                drop(read);
                self.work.scan.set_exact_start(index, start);
                if self.order == Order::Any {
                    gate.guessed_wrong = true;
                    self.failed.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                let mut anew = Tables::new(self.work.spec, self.worker_bytes, &self.work.account)?;
                // The others wait for the gate meanwhile: it goes on without looking whose turn it is.
                let again = self.read(index, &mut anew, worker, None);
                gate.waiting.insert(index, again);
                continue;
            }
            if let Err(error) = self.count(&mut gate, index, read, worker) {
                gate.error = Some(error);
                self.failed.store(true, Ordering::Relaxed);
                return Ok(());
            }
            gate.next += 1;
            self.passed.notify_all();
        }
    }

    /// Where a split should have started, if it guessed wrong.
    fn right_start(&self, gate: &Gate, index: usize, read: &Read) -> Option<u64> {
        let outcome = read.outcome.as_ref().filter(|outcome| !outcome.is_exact)?;
        let file = self.work.scan.splits()[index].parts.first()?.file.index();
        let (end_file, end) = gate.end?;
        (end_file == file && outcome.stats.first_record_offset != Some(end)).then_some(end)
    }

    fn count(&self, gate: &mut Gate, index: usize, read: Read, worker: usize) -> Result<()> {
        // Bad records are counted even where the split failed: they may be why.
        if let Some(outcome) = read.outcome {
            let last = self.work.scan.splits()[index].parts.last();
            gate.end = last
                .and_then(|piece| Some((piece.file.index(), outcome.stats.next_record_offset?)));
            if index >= self.counted {
                self.work.scan.take(index, read.rows, outcome)?;
            }
        }
        read.result?;
        if index >= self.counted {
            self.work.progress.map_counters().add_rows(read.rows);
        }
        let mut clock = ThreadCpuClock::start();
        for chunk in read.chunks {
            match self.kept {
                Some(kept) => kept.lock().push(chunk),
                None => self.merger.accept_deferred(chunk, worker)?,
            }
        }
        self.work.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(())
    }
}
