//! The runner of the table path: maps every split into an aggregate table, and merges the tables into one.
//!
//! Workers take splits in order. A gate lets splits through in split order: there each speculative boundary
//! is checked against the end of the split before, and the split is counted. The number of splits that wait
//! at the gate is bounded: a worker starts a split only a few behind the next to pass. A worker that waits
//! leaves its core to other runs on this machine.
//!
//! If all states give the same answer in any order of rows, a worker fills one table with all of its
//! splits, and the workers' tables are merged in the end: each group is merged once per worker, not once per
//! split. A split with a wrong boundary has filled a worker's table with invalid rows; then all tables are
//! filled again, the second way.
//!
//! If the order of rows matters, and after a wrong boundary, a worker fills a table per split and hands it
//! over as chunks, which pass the gate with their split. A split with a wrong boundary is read again, and
//! nothing of its first reading has been merged.

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
use tidemill_tables::grouping::batch_slices::BatchSlices;
use tidemill_tables::merging::merge::{ChunkMerger, DeferredChunk, MergedTable};
use tidemill_tables::{AggregateTable, GroupChunk, ScatterBuffer, TableSpec, encode_row_position};
use tracing::debug_span;

use crate::execution::map::SplitMap;
use crate::execution::scan::{Scan, SplitOutcome};

/// The input and resources of one run of map and tables.
pub(crate) struct TableRun<'a> {
    /// The map of a split's rows.
    pub map: SplitMap,
    /// The splits below the map.
    pub scan: Arc<Scan>,
    /// The keys and aggregates of the tables.
    pub spec: &'a Arc<TableSpec>,
    /// Maximum number of threads.
    pub threads_max: usize,
    /// Memory account of all tables of the run.
    pub memory_account: MemoryAccount,
    /// Folders for spill files.
    pub spill_dirs: &'a [PathBuf],
    /// Cancels the run.
    pub cancel: &'a CancelFlag,
    /// Counter of processor time, rows and spilled bytes.
    pub progress: &'a RunProgress,
}

/// Poll interval for the end of the run while a worker waits at the gate.
const GATE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the map over all splits, and merges the tables.
///
/// # Errors
/// The first error of a split, in split order as far as known, or of a merge.
pub(crate) fn run_tables(work: &TableRun<'_>) -> Result<MergedTable> {
    if work.spec.is_order_insensitive() {
        match fill_tables(work, FillOrder::Any, 0, None)? {
            FillOutcome::Complete(merged) => return Ok(merged),
            FillOutcome::WrongBoundary { counted } => return fill_in_split_order(work, counted),
        }
    }
    fill_in_split_order(work, 0)
}

/// The tables of some splits, which the driver merges with those of other splits.
pub(crate) enum UnmergedTables {
    /// One table, where the order of rows does not matter.
    SingleTable(MergedTable),
    /// Chunks, in the order of the splits.
    Chunks(Vec<DeferredChunk>),
}

impl UnmergedTables {
    /// Passes the groups to `take`, batch by batch, in their form on disk.
    ///
    /// # Errors
    /// Errors of reading groups back, and those of `take`.
    pub(crate) fn for_each_batch(
        self,
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        match self {
            UnmergedTables::SingleTable(mut merged) => {
                while let Some(groups) = merged.next_encoded_groups()? {
                    take(groups)?;
                }
            }
            UnmergedTables::Chunks(chunks) => {
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

/// Runs the map over some of a query's splits, and leaves the merge to the driver.
///
/// # Errors
/// Those of [`run_tables`].
pub(crate) fn run_unmerged_tables(work: &TableRun<'_>) -> Result<UnmergedTables> {
    if work.spec.is_order_insensitive() {
        return run_tables(work).map(UnmergedTables::SingleTable);
    }
    let chunks = Mutex::default();
    match fill_tables(work, FillOrder::BySplit, 0, Some(&chunks))? {
        FillOutcome::Complete(_) => Ok(UnmergedTables::Chunks(chunks.into_inner())),
        FillOutcome::WrongBoundary { .. } => Err(unread_split_error()),
    }
}

fn unread_split_error() -> Error {
    Error::Internal("a split was not read again from where it starts".to_owned())
}

fn fill_in_split_order(work: &TableRun<'_>, counted: usize) -> Result<MergedTable> {
    match fill_tables(work, FillOrder::BySplit, counted, None)? {
        FillOutcome::Complete(merged) => Ok(merged),
        FillOutcome::WrongBoundary { .. } => Err(unread_split_error()),
    }
}

/// The order in which the states take rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FillOrder {
    /// The order of the splits.
    BySplit,
    /// Any order, with one table per worker.
    Any,
}

/// The outcome of filling tables.
enum FillOutcome {
    /// The merged table of all splits.
    Complete(MergedTable),
    /// A split had a wrong boundary; the `counted` splits before it have been counted.
    WrongBoundary { counted: usize },
}

/// Fills tables with all splits, of which the first `counted` have already been counted. In split order,
/// chunks go to `kept` unmerged, if it is given.
fn fill_tables(
    work: &TableRun<'_>,
    order: FillOrder,
    counted: usize,
    kept: Option<&Mutex<Vec<DeferredChunk>>>,
) -> Result<FillOutcome> {
    let split_count = work.scan.splits().len();
    let threads = work.threads_max.clamp(1, split_count.max(1));
    // The workers' tables, one per thread, take at most two fifths of the account together.
    let worker_bytes = work.memory_account.limit_bytes() / 5 * 2 / threads;
    let merger = ChunkMerger::new(
        work.spec,
        &work.memory_account,
        work.spill_dirs,
        work.cancel,
        work.progress,
    )?;
    let runner = SplitRunner {
        table_run: work,
        merger: &merger,
        fill_order: order,
        counted_splits: counted,
        kept_chunks: kept,
        gate: Mutex::default(),
        gate_moved: Condvar::new(),
        splits_ahead_max: 4 * threads,
        next_split: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
        worker_bytes_max: worker_bytes,
    };
    let mut first_error = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let runner = &runner;
                std::thread::Builder::new()
                    .name(format!("split-{worker}"))
                    .stack_size(RUN_STACK_BYTES)
                    .spawn_scoped(scope, move || runner.run_worker(worker))
            })
            .collect();
        for worker in workers {
            let ended = match worker.map(|worker| worker.join()) {
                Ok(Ok(ended)) => ended,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(e) => Err(Error::Io { action: "start", path: "a thread".into(), source: e }),
            };
            if let Err(error) = ended {
                // The user should read the first error, not that another thread's failure stopped this one.
                first_error.get_or_insert(error);
            }
        }
    });
    let gate = runner.gate.into_inner();
    if gate.has_wrong_boundary {
        return Ok(FillOutcome::WrongBoundary { counted: gate.next_split });
    }
    if let Some(error) = gate.error.or(first_error) {
        return Err(error);
    }
    work.cancel.check()?;
    let mut clock = ThreadCpuClock::start();
    let merged = merger.finish(threads);
    work.progress.table_counters().add_thread_cpu(&mut clock);
    Ok(FillOutcome::Complete(merged?))
}

/// Appends a column with the rows' positions in the input. `first` is the number of the first row within the
/// split.
pub(crate) fn append_positions(
    batch: &RecordBatch,
    split: usize,
    first: u64,
) -> Result<RecordBatch> {
    let rows = first..first + batch.num_rows() as u64;
    let positions = UInt64Array::from_iter_values(rows.map(|row| encode_row_position(split, row)));
    let schema = batch.schema_ref();
    let field = Arc::new(Field::new("position", DataType::UInt64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([field]).collect();
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(positions) as ArrayRef);
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// The state that the workers of a run share.
struct SplitRunner<'a> {
    table_run: &'a TableRun<'a>,
    merger: &'a ChunkMerger,
    fill_order: FillOrder,
    /// Number of splits, from the first on, that an earlier filling has counted.
    counted_splits: usize,
    /// Receiver of chunks that are not merged here.
    kept_chunks: Option<&'a Mutex<Vec<DeferredChunk>>>,
    gate: Mutex<SplitGate>,
    /// Signals that a split has passed the gate.
    gate_moved: Condvar,
    /// Maximum number of splits read ahead of the next to pass.
    splits_ahead_max: usize,
    next_split: AtomicUsize,
    has_failed: AtomicBool,
    worker_bytes_max: usize,
}

/// A worker's aggregate table, with a scatter buffer beside it.
pub(crate) struct WorkerTable {
    table: AggregateTable,
    /// The buffer of ungrouped rows, in use while hardly any two rows share a group.
    scatter: ScatterBuffer,
    charge: MemoryCharge,
}

impl WorkerTable {
    pub(crate) fn new(
        spec: &Arc<TableSpec>,
        worker_bytes: usize,
        account: &MemoryAccount,
    ) -> Result<Self> {
        let scatter = ScatterBuffer::new(spec, worker_bytes / 4);
        Ok(WorkerTable { table: AggregateTable::new(spec)?, scatter, charge: account.charge(0) })
    }

    /// Returns the bytes charged to the account.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// Returns the number of groups in the table.
    pub(crate) fn group_count(&self) -> usize {
        self.table.group_count()
    }

    fn update_charge(&mut self) {
        self.charge.set_bytes(self.table.memory_bytes() + self.scatter.memory_bytes());
    }

    /// Takes the groups out of the table. Their new owner charges them.
    fn take_groups(&mut self) -> Result<GroupChunk> {
        let chunk = self.table.take_chunk()?;
        self.update_charge();
        Ok(chunk)
    }

    /// Adds mapped rows, and hands over full tables: to `chunks`, or if `None` to the merger, in which the
    /// worker of this number then takes part.
    pub(crate) fn add_rows(
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
                self.update_charge();
                merger.add_scattered_rows(blocks);
                merger.merge_and_spill(worker)?;
            } else {
                self.update_charge();
            }
            return Ok(());
        }
        let group_bytes_max = merger.group_bytes_max();
        let mut portions =
            BatchSlices::new(self.table.spec(), batch, worker_bytes, group_bytes_max)?;
        while let Some(rows) = portions.next_slice(&self.table) {
            self.table.update(&rows)?;
            self.update_charge();
            let is_large = self.table.memory_bytes() > worker_bytes;
            match &mut chunks {
                Some(chunks) if is_large => chunks.push(merger.defer_chunk(self.take_groups()?)?),
                None if is_large || self.table.is_better_scattered() => {
                    if self.table.is_better_scattered() {
                        self.scatter.enable();
                    }
                    merger.add_chunk(self.take_groups()?)?;
                    merger.merge_and_spill(worker)?;
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Merges the groups of another table into this one.
    pub(crate) fn merge_chunk(&mut self, chunk: &GroupChunk) -> Result<()> {
        merge_whole_chunk(&mut self.table, chunk)?;
        self.update_charge();
        Ok(())
    }

    /// Returns the answer of the groups, and keeps the groups.
    pub(crate) fn compute_answer(&mut self, spec: &Arc<TableSpec>) -> Result<RecordBatch> {
        compute_answer_of_table(&mut self.table, spec)
    }

    /// Takes the groups of the table, or `None` if it has none.
    pub(crate) fn take_groups_if_any(&mut self) -> Result<Option<GroupChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => self.take_groups().map(Some),
        }
    }

    /// Hands the remaining groups and rows to the merger, which merges them in any order.
    pub(crate) fn flush_to_merger(&mut self, merger: &ChunkMerger) -> Result<()> {
        merger.add_chunk(self.take_groups()?)?;
        let blocks = self.scatter.take_blocks()?;
        self.update_charge();
        merger.add_scattered_rows(blocks);
        Ok(())
    }

    /// Takes the remaining groups as a chunk to merge in split order, or `None` if there are none.
    pub(crate) fn defer_remaining_groups(
        &mut self,
        merger: &ChunkMerger,
    ) -> Result<Option<DeferredChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => Ok(Some(merger.defer_chunk(self.take_groups()?)?)),
        }
    }

    /// Writes the remaining groups to disk as a chunk to merge in split order. Returns `None` if there are
    /// none.
    pub(crate) fn spill_remaining_groups(
        &mut self,
        merger: &ChunkMerger,
    ) -> Result<Option<DeferredChunk>> {
        match self.table.group_count() {
            0 => Ok(None),
            _ => Ok(Some(merger.defer_chunk_to_disk(self.take_groups()?)?)),
        }
    }
}

/// Returns the answer of a table, and leaves the table unchanged.
pub(crate) fn compute_answer_of_table(
    table: &mut AggregateTable,
    spec: &Arc<TableSpec>,
) -> Result<RecordBatch> {
    // Answering consumes a table, so encode the groups and decode them twice.
    let encoded = table.take_chunk()?.encode()?;
    let mut other = AggregateTable::new(spec)?;
    let copy = other.decode_chunk(&encoded)?;
    merge_whole_chunk(&mut other, &copy)?;
    let own = table.decode_chunk(&encoded)?;
    merge_whole_chunk(table, &own)?;
    other.finish()
}

/// Merges all groups of a chunk into a table.
pub(crate) fn merge_whole_chunk(table: &mut AggregateTable, chunk: &GroupChunk) -> Result<()> {
    let rows: Vec<u32> = (0..chunk.group_count()).map(|row| row as u32).collect();
    table.merge(chunk, &rows)
}

/// The result of reading a split into a table, successfully or not.
struct SplitFill {
    chunks: Vec<DeferredChunk>,
    /// Number of rows that left the map.
    mapped_rows: u64,
    outcome: Option<SplitOutcome>,
    result: Result<()>,
}

/// The gate that splits pass in order.
#[derive(Default)]
struct SplitGate {
    next_split: usize,
    waiting_splits: BTreeMap<usize, SplitFill>,
    /// File index and offset at which the last passed split ended.
    last_end: Option<(usize, u64)>,
    /// True once a worker's table holds rows of a wrong boundary.
    has_wrong_boundary: bool,
    error: Option<Error>,
}

impl SplitRunner<'_> {
    fn run_worker(&self, worker: usize) -> Result<()> {
        let ended = catch_panic(|| self.process_splits(worker));
        if ended.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn process_splits(&self, worker: usize) -> Result<()> {
        let mut filled = WorkerTable::new(
            self.table_run.spec,
            self.worker_bytes_max,
            &self.table_run.memory_account,
        )?;
        let mut turn = self.table_run.scan.new_core_turn();
        loop {
            let index = self.next_split.fetch_add(1, Ordering::Relaxed);
            if index >= self.table_run.scan.splits().len()
                || !self.wait_until_near_gate(index, &mut turn)?
            {
                break;
            }
            if !turn.acquire(|| self.is_stopping()) {
                self.table_run.cancel.check()?;
                break;
            }
            let read = self.read_split(index, &mut filled, worker, Some(&mut turn));
            self.pass_gate(index, read, worker, &mut turn)?;
            if self.fill_order == FillOrder::BySplit {
                let mut clock = ThreadCpuClock::start();
                self.merger.merge_and_spill(worker)?;
                self.table_run.progress.table_counters().add_thread_cpu(&mut clock);
            }
        }
        if self.fill_order == FillOrder::Any && !self.has_failed.load(Ordering::Relaxed) {
            let mut clock = ThreadCpuClock::start();
            filled.flush_to_merger(self.merger)?;
            self.table_run.progress.table_counters().add_thread_cpu(&mut clock);
        }
        Ok(())
    }

    /// Returns true if the run has failed or was cancelled: no thread waits for a turn any more.
    fn is_stopping(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.table_run.cancel.is_cancelled()
    }

    /// Waits until a split is near enough to the gate. Returns false if the run has failed. The next split to
    /// pass is always near enough.
    fn wait_until_near_gate(&self, index: usize, turn: &mut ComputeTurn<'_>) -> Result<bool> {
        let mut gate = self.gate.lock();
        loop {
            if self.has_failed.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if index <= gate.next_split + self.splits_ahead_max {
                return Ok(true);
            }
            self.table_run.cancel.check()?;
            turn.release();
            self.gate_moved.wait_for(&mut gate, GATE_POLL_INTERVAL);
        }
    }

    /// Reads a split into the worker's table, and in split order from there into chunks. Its error is part of
    /// the result, because a wrong boundary makes it void. Without a turn it does not wait for one.
    fn read_split(
        &self,
        index: usize,
        filled: &mut WorkerTable,
        worker: usize,
        turn: Option<&mut ComputeTurn<'_>>,
    ) -> SplitFill {
        let mut read =
            SplitFill { chunks: Vec::new(), mapped_rows: 0, outcome: None, result: Ok(()) };
        read.result = catch_panic(|| self.fill_from_split(index, filled, &mut read, worker, turn));
        read.outcome = self.table_run.scan.take_outcome(index);
        if read.result.is_err() && self.fill_order == FillOrder::BySplit {
            // Its remaining groups must not enter the next split's table.
            read.result = read.result.and(filled.take_groups().map(drop));
        }
        read
    }

    fn fill_from_split(
        &self,
        index: usize,
        filled: &mut WorkerTable,
        read: &mut SplitFill,
        worker: usize,
        mut turn: Option<&mut ComputeTurn<'_>>,
    ) -> Result<()> {
        let (map, tables) =
            (self.table_run.progress.map_counters(), self.table_run.progress.table_counters());
        let mut clock = ThreadCpuClock::start();
        let mut batches = self.table_run.map.split_rows(index)?;
        let mapping = debug_span!("map", index);
        while let Some(batch) = mapping.in_scope(|| batches.next()) {
            map.add_thread_cpu(&mut clock);
            let mut batch = batch.into_tidemill_error()?;
            if self.table_run.spec.needs_positions() {
                let split = self.table_run.scan.splits()[index].index;
                batch = append_positions(&batch, split, read.mapped_rows)?;
            }
            read.mapped_rows += batch.num_rows() as u64;
            let chunks = (self.fill_order == FillOrder::BySplit).then_some(&mut read.chunks);
            filled.add_rows(&batch, (self.merger, worker), self.worker_bytes_max, chunks)?;
            if let Some(turn) = &mut turn {
                // A split is read to its end even after another thread has failed.
                turn.acquire(|| self.is_stopping());
            }
            self.table_run.cancel.check()?;
            tables.add_thread_cpu(&mut clock);
        }
        drop(batches);
        self.table_run.scan.read_unrequested_split(index)?;
        map.add_thread_cpu(&mut clock);
        if self.fill_order == FillOrder::BySplit {
            read.chunks.extend(filled.defer_remaining_groups(self.merger)?);
        }
        tables.add_thread_cpu(&mut clock);
        Ok(())
    }

    /// Adds a split to the gate, and lets splits pass in order. Reads a split with a wrong boundary again.
    fn pass_gate(
        &self,
        index: usize,
        read: SplitFill,
        worker: usize,
        turn: &mut ComputeTurn<'_>,
    ) -> Result<()> {
        let mut gate = self.gate.try_lock().unwrap_or_else(|| {
            turn.release();
            self.gate.lock()
        });
        gate.waiting_splits.insert(index, read);
        loop {
            let index = gate.next_split;
            let Some(read) = gate.waiting_splits.remove(&index) else { return Ok(()) };
            if gate.error.is_some() || gate.has_wrong_boundary {
                return Ok(());
            }
            if let Some(start) = self.find_correct_start(&gate, index, &read) {
                drop(read);
                self.table_run.scan.set_exact_start(index, start);
                if self.fill_order == FillOrder::Any {
                    gate.has_wrong_boundary = true;
                    self.has_failed.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                let mut anew = WorkerTable::new(
                    self.table_run.spec,
                    self.worker_bytes_max,
                    &self.table_run.memory_account,
                )?;
                // Other workers wait at the gate meanwhile, so this one goes on without a turn.
                let again = self.read_split(index, &mut anew, worker, None);
                gate.waiting_splits.insert(index, again);
                continue;
            }
            if let Err(error) = self.count_split(&mut gate, index, read, worker) {
                gate.error = Some(error);
                self.has_failed.store(true, Ordering::Relaxed);
                return Ok(());
            }
            gate.next_split += 1;
            self.gate_moved.notify_all();
        }
    }

    /// Returns the correct start of a split, if its speculative boundary was wrong.
    fn find_correct_start(&self, gate: &SplitGate, index: usize, read: &SplitFill) -> Option<u64> {
        let outcome = read.outcome.as_ref().filter(|outcome| !outcome.is_exact_start)?;
        let file = self.table_run.scan.splits()[index].parts.first()?.file.index();
        let (end_file, end) = gate.last_end?;
        (end_file == file && outcome.stats.first_record_offset != Some(end)).then_some(end)
    }

    fn count_split(
        &self,
        gate: &mut SplitGate,
        index: usize,
        read: SplitFill,
        worker: usize,
    ) -> Result<()> {
        // Rejected records count even where the split failed: they may be the reason.
        if let Some(outcome) = read.outcome {
            let last = self.table_run.scan.splits()[index].parts.last();
            gate.last_end = last
                .and_then(|piece| Some((piece.file.index(), outcome.stats.next_record_offset?)));
            if index >= self.counted_splits {
                self.table_run.scan.count_or_report_split(index, read.mapped_rows, outcome)?;
            }
        }
        read.result?;
        if index >= self.counted_splits {
            self.table_run.progress.map_counters().add_rows(read.mapped_rows);
        }
        let mut clock = ThreadCpuClock::start();
        for chunk in read.chunks {
            match self.kept_chunks {
                Some(kept) => kept.lock().push(chunk),
                None => self.merger.accept_deferred(chunk, worker)?,
            }
        }
        self.table_run.progress.table_counters().add_thread_cpu(&mut clock);
        Ok(())
    }
}
