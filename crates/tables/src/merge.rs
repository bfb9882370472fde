//! The fold of all chunks into one table, in parallel and beyond memory.
//!
//! Groups are partitioned 16 ways by a hash of their key; a partition has a table of its own and a
//! queue. Whoever finds a partition free merges what waits there, in the order in which it came: chunks
//! are added in any order, or accepted one at a time in that of the splits, in which every group then
//! sees its states. Several workers merge at once.
//!
//! Past the budget the largest partition goes to disk: its table becomes the first chunk of a
//! spill file, and what arrives for it afterwards is appended unmerged. At the end such a
//! partition is folded from its file, again in that order; where its groups do not fit memory
//! either, it is repartitioned by further bits of the hash into 16 smaller files first (Grace hash
//! aggregation, with the order of the fold kept).
//!
//! What is spilled, and when, depends on how the threads happen to run. The answer does not:
//! it comes in the order of its keys where it is small, else in the order of their hashes,
//! which is the order of the partitions at every depth.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortOptions, concat_batches, take_record_batch};
use arrow::row::{RowConverter, SortField};
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;
use tidemill_base::coverage::Estimate;
use tidemill_base::error::{Error, Result, caught};
use tidemill_base::memory::human;
use tidemill_base::progress::{Progress, ThreadClock};
use tidemill_base::stack::RUN_STACK_BYTES;
use tidemill_sql::pool;
use tidemill_sql::spills::SpillSpace;
use tracing::debug_span;

use super::scatter::{Block, PARTS, Parts};
use super::spec::Precision;
use super::spill::{SpillFile, SpillWriter};
use super::value::{compact, logical_bytes};
use super::{Chunk, Table, TableSpec, groups};

/// Of how many bits of a hash a partition is, at each depth.
pub(crate) const PARTITION_BITS: u32 = 4;
/// How many there are.
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// How deep a partition is repartitioned; 16⁶ files hold any number of groups, and more would only chase
/// one giant group.
const DEPTH_MAX: u32 = 6;

/// Answers of up to this many groups are sorted by key, if they are also no larger than a
/// quarter of the budget.
const SORTED_GROUPS_MAX: usize = 1 << 18;

/// So few groups that wait are merged by one thread: more would take longer to start.
const GROUPS_ALONE_MAX: usize = 1 << 12;

/// What rows take that are grouped before they go to disk.
const SPILLED_BYTES_MAX: usize = 4 << 20;

/// A group may always have so much, whatever the budget.
const GROUP_BYTES_MIN: usize = 16 << 20;

/// The groups of each partition, at a depth of repartitioning.
fn partition_groups(hashes: &[u64], depth: u32) -> Vec<Vec<u32>> {
    let mut partitions = vec![Vec::new(); PARTITIONS];
    let shift = 64 - PARTITION_BITS * (depth + 1);
    for (row, hash) in hashes.iter().enumerate() {
        let partition = (mixed(*hash) >> shift) as usize & (PARTITIONS - 1);
        partitions[partition].push(row as u32);
    }
    partitions
}

/// A hash of which the highest bits are the first partition's.
pub(crate) fn mixed(hash: u64) -> u64 {
    // The low bits serve the hash tables inside; a multiplication spreads them upwards.
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A chunk and the groups of it that each partition takes. Its memory counts until the last has.
pub struct Partitioned {
    chunk: Chunk,
    rows: Vec<Vec<u32>>,
    encoded: OnceLock<RecordBatch>,
    bytes: usize,
    used: Arc<AtomicUsize>,
}

impl Partitioned {
    fn encoded(&self) -> Result<&RecordBatch> {
        if self.encoded.get().is_none() {
            let _ = self.encoded.set(self.chunk.encode()?);
        }
        self.encoded.get().ok_or_else(|| Error::Internal("an encoded chunk vanished".into()))
    }
}

impl Drop for Partitioned {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A chunk that waits for its turn, in memory or on disk.
pub enum Pending {
    /// As it is.
    Memory(Arc<Partitioned>),
    /// Encoded.
    Disk(SpillFile),
}

struct Partition {
    table: Table,
    bytes: usize,
    /// Rows that are grouped in the end.
    blocks: Vec<Block>,
    block_bytes: usize,
    spill: Option<SpillWriter>,
}

impl Partition {
    fn new(spec: &Arc<TableSpec>) -> Result<Self> {
        let table = Table::new(spec)?;
        Ok(Partition { table, bytes: 0, blocks: Vec::new(), block_bytes: 0, spill: None })
    }
}

/// The fold of chunks.
pub struct Merger {
    spec: Arc<TableSpec>,
    budget_bytes: usize,
    space: SpillSpace,
    /// Bytes of tables and of chunks on their way.
    used: Arc<AtomicUsize>,
    partitions: Vec<Mutex<Partition>>,
    queues: Vec<Mutex<VecDeque<Arc<Partitioned>>>>,
    cancel: Cancel,
    progress: Progress,
}

impl Merger {
    /// A fold that holds about `budget_bytes` and spills to an unnamed file in `folder`.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub fn new(
        spec: &Arc<TableSpec>,
        budget_bytes: usize,
        folder: &Path,
        cancel: &Cancel,
        progress: &Progress,
    ) -> Result<Self> {
        let partition = || Ok(Mutex::new(Partition::new(spec)?));
        Ok(Merger {
            spec: Arc::clone(spec),
            budget_bytes,
            space: SpillSpace::new(folder, progress),
            used: Arc::default(),
            partitions: (0..PARTITIONS).map(|_| partition()).collect::<Result<_>>()?,
            queues: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            cancel: cancel.clone(),
            progress: progress.clone(),
        })
    }

    fn spill_writer(&self) -> SpillWriter {
        SpillWriter::new(&self.space)
    }

    /// Partitions a chunk's groups. Any thread, any order.
    ///
    /// # Errors
    /// Where a key cannot be hashed.
    fn partition(&self, mut chunk: Chunk) -> Result<Arc<Partitioned>> {
        let rows = partition_groups(chunk.hashes()?, 0);
        let bytes = chunk.bytes();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let used = Arc::clone(&self.used);
        Ok(Arc::new(Partitioned { chunk, rows, encoded: OnceLock::new(), bytes, used }))
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.budget_bytes
    }

    /// Adds a chunk whose turn is any.
    ///
    /// # Errors
    /// As [`Merger::partition`].
    pub fn add(&self, chunk: Chunk) -> Result<()> {
        self.enqueue(&self.partition(chunk)?);
        Ok(())
    }

    /// Keeps rows that are grouped in the end, or on disk where their partition is.
    ///
    /// # Errors
    /// As spilling.
    pub fn scatter(&self, blocks: Vec<(usize, Block)>) -> Result<()> {
        for (index, block) in blocks {
            let mut partition = self.partitions[index].lock();
            match &mut partition.spill {
                Some(writer) => spill_rows(&self.spec, std::slice::from_ref(&block), writer)?,
                None => {
                    let bytes = block.bytes();
                    self.used.fetch_add(bytes, Ordering::Relaxed);
                    partition.block_bytes += bytes;
                    partition.blocks.push(block);
                }
            }
        }
        Ok(())
    }

    /// Keeps a chunk whose turn has not come, on disk where memory is short.
    ///
    /// # Errors
    /// As [`Merger::partition`] and spilling.
    pub fn defer(&self, chunk: Chunk) -> Result<Pending> {
        let partitioned = self.partition(chunk)?;
        if !self.is_full() {
            return Ok(Pending::Memory(partitioned));
        }
        let _span = debug_span!("spill", bytes = partitioned.bytes).entered();
        let mut writer = self.spill_writer();
        writer.write(partitioned.encoded()?)?;
        Ok(Pending::Disk(writer.finish()?))
    }

    /// Accepts the next chunk in split order. The caller sees to the order.
    ///
    /// # Errors
    /// Where a pending chunk cannot be read back, and as merging.
    pub fn accept(&self, pending: Pending, worker: usize) -> Result<()> {
        match pending {
            Pending::Memory(partitioned) => self.enqueue(&partitioned),
            Pending::Disk(file) => {
                let decoder = Table::new(&self.spec)?;
                for batch in file.read()? {
                    self.enqueue(&self.partition(decoder.decode(&batch?)?)?);
                    if self.is_full() {
                        self.work(worker)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn enqueue(&self, partitioned: &Arc<Partitioned>) {
        for (rows, queue) in partitioned.rows.iter().zip(&self.queues) {
            if !rows.is_empty() {
                queue.lock().push_back(Arc::clone(partitioned));
            }
        }
    }

    /// Merges what waits at partitions that nobody else works at; with memory short, waits its
    /// turn at every partition and spills. `worker` tells workers apart so that they start at
    /// different partitions.
    ///
    /// # Errors
    /// As merging and spilling.
    pub fn work(&self, worker: usize) -> Result<()> {
        let _span = debug_span!("merge", worker).entered();
        for step in 0..PARTITIONS {
            let index = (worker * PARTITIONS / 2 + step) % PARTITIONS;
            if self.is_full() {
                self.drain(index, &mut self.partitions[index].lock())?;
            } else if let Some(mut partition) = self.partitions[index].try_lock() {
                self.drain(index, &mut partition)?;
            }
        }
        while self.is_full() && self.spill_largest()? {}
        Ok(())
    }

    fn drain(&self, index: usize, partition: &mut Partition) -> Result<()> {
        loop {
            let Some(partitioned) = self.queues[index].lock().pop_front() else { return Ok(()) };
            self.cancel.check()?;
            let rows = &partitioned.rows[index];
            match &mut partition.spill {
                Some(writer) => writer.write(&select(partitioned.encoded()?, rows)?)?,
                None => {
                    partition.table.merge(&partitioned.chunk, rows)?;
                    self.account(partition, partition.table.bytes());
                }
            }
        }
    }

    fn account(&self, partition: &mut Partition, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(partition.bytes, Ordering::Relaxed);
        partition.bytes = bytes;
    }

    /// Sends the largest table in memory to disk; false where none is left.
    fn spill_largest(&self) -> Result<bool> {
        let largest = (0..PARTITIONS)
            .filter_map(|index| {
                let partition = self.partitions[index].try_lock()?;
                let bytes = partition.bytes + partition.block_bytes;
                partition.spill.is_none().then_some((bytes, index))
            })
            .max();
        let Some((bytes, index)) = largest else { return Ok(false) };
        if bytes == 0 {
            return Ok(false);
        }
        let _span = debug_span!("spill", groups = index, bytes).entered();
        let mut partition = self.partitions[index].lock();
        if partition.spill.is_none() {
            let mut writer = self.spill_writer();
            writer.write(&partition.table.take()?.encode()?)?;
            partition.table = Table::new(&self.spec)?;
            self.account(&mut partition, 0);
            let blocks = std::mem::take(&mut partition.blocks);
            spill_rows(&self.spec, &blocks, &mut writer)?;
            drop(blocks);
            let bytes = std::mem::take(&mut partition.block_bytes);
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            partition.spill = Some(writer);
        }
        Ok(true)
    }

    /// Ends the fold once every chunk has been accepted; up to `threads` partitions at once.
    ///
    /// # Errors
    /// As merging and spilling.
    pub fn finish(self, threads: usize) -> Result<Merged> {
        let _span = debug_span!("merge").entered();
        let waits = |(index, queue): (usize, &Mutex<VecDeque<Arc<Partitioned>>>)| {
            queue.lock().iter().map(|partitioned| partitioned.rows[index].len()).sum::<usize>()
        };
        let waiting: usize = self.queues.iter().enumerate().map(waits).sum();
        let helpers = match waiting < GROUPS_ALONE_MAX {
            true => 0,
            false => threads.clamp(1, PARTITIONS) - 1,
        };
        let next = AtomicUsize::new(0);
        let drain_rest = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(partition) = self.partitions.get(index) else { return Ok(()) };
                self.drain(index, &mut partition.lock())?;
                while self.is_full() && self.spill_largest()? {}
            }
        };
        together(helpers, &drain_rest, &self.progress)?;
        let mut partitions = VecDeque::new();
        for partition in self.partitions {
            let mut partition = partition.into_inner();
            match partition.spill {
                Some(writer) => {
                    partitions.push_back(Stored::Disk { file: writer.finish()?, depth: 1 });
                }
                None if partition.blocks.is_empty() => {
                    partitions.push_back(Stored::Memory(partition.table));
                }
                None => {
                    let parts = Arc::new(Parts::new(&mut partition.table, partition.blocks)?);
                    let part = |index| Stored::Part { of: Arc::clone(&parts), index };
                    partitions.extend((0..PARTS).map(part));
                }
            }
        }
        Ok(Merged {
            spec: self.spec,
            budget_bytes: self.budget_bytes,
            threads,
            space: self.space,
            partitions,
            answers: VecDeque::new(),
            chunks: VecDeque::new(),
            is_unsorted: false,
            precisions: Vec::new(),
            cancel: self.cancel,
            progress: self.progress,
        })
    }
}

/// Does the same work on this thread and on up to so many others, until each has ended.
///
/// # Errors
/// The first of theirs.
fn together(
    helpers: usize,
    work: &(dyn Fn() -> Result<()> + Sync),
    progress: &Progress,
) -> Result<()> {
    let help = || {
        let mut clock = ThreadClock::start();
        let done = caught(work);
        progress.tables().add_cpu(&mut clock);
        done
    };
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (0..helpers)
            .map(|helper| {
                std::thread::Builder::new()
                    .name(format!("merge-{helper}"))
                    .stack_size(RUN_STACK_BYTES)
                    .spawn_scoped(scope, help)
            })
            .collect();
        let mut done = work();
        // One that could not be started has left its work to the others.
        for helper in helpers.into_iter().flatten() {
            let helped = match helper.join() {
                Ok(helped) => helped,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            done = done.and(helped);
        }
        done
    })
}

/// The rows by themselves: strings of others are not kept with them.
fn select(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    if rows.len() == batch.num_rows() {
        return Ok(batch.clone());
    }
    let taken = take_record_batch(batch, &UInt32Array::from(rows.to_vec()))?;
    let columns = taken.columns().iter().map(compact).collect();
    Ok(RecordBatch::try_new(taken.schema(), columns)?)
}

/// Writes rows to a partition's file, grouped as far as they are together.
fn spill_rows(spec: &Arc<TableSpec>, blocks: &[Block], writer: &mut SpillWriter) -> Result<()> {
    let mut table = Table::new(spec)?;
    for (index, block) in blocks.iter().enumerate() {
        table.update(block.rows())?;
        if table.bytes() > SPILLED_BYTES_MAX || index + 1 == blocks.len() {
            writer.write(&table.take()?.encode()?)?;
        }
    }
    Ok(())
}

enum Stored {
    Memory(Table),
    /// Rows that are not grouped yet.
    Part {
        of: Arc<Parts>,
        index: usize,
    },
    /// `depth` is how often its groups have been partitioned.
    Disk {
        file: SpillFile,
        depth: u32,
    },
}

impl Stored {
    /// How many groups it has at most; one that is on disk, nobody knows how many.
    fn groups_max(&self) -> usize {
        match self {
            Stored::Memory(table) => table.group_count(),
            Stored::Part { of, index } => of.rows(*index),
            Stored::Disk { .. } => 0,
        }
    }
}

/// How many tables are finished at a time for each thread: one may be done before the others.
const TABLES_A_THREAD: usize = 8;

/// The whole table, in memory and on disk, partition by partition.
pub struct Merged {
    spec: Arc<TableSpec>,
    budget_bytes: usize,
    threads: usize,
    space: SpillSpace,
    partitions: VecDeque<Stored>,
    /// Answers that wait: all so far while they may be sorted, else in the order of their hashes.
    answers: VecDeque<Answer>,
    /// Groups that wait, in their form on disk.
    chunks: VecDeque<RecordBatch>,
    is_unsorted: bool,
    precisions: Vec<Option<Precision>>,
    cancel: Cancel,
    progress: Progress,
}

/// A finished table and the hashes of its keys, where they are known.
struct Answer {
    batch: RecordBatch,
    hashes: Option<Vec<u64>>,
}

impl Merged {
    /// How good the answers given so far are, an entry per estimated column. `names` are what
    /// the aggregates are called in the result.
    pub fn estimates(&self, names: &[String]) -> Vec<Estimate> {
        let aggregates = self.spec.aggregates.iter().zip(&self.precisions).zip(names);
        aggregates
            .filter_map(|((aggregate, precision), name)| {
                Some(aggregate.function.estimate(name, (*precision)?))
            })
            .collect()
    }

    fn note_precisions(&mut self, precisions: Vec<Option<Precision>>) {
        self.precisions.resize(precisions.len(), None);
        for (all, one) in self.precisions.iter_mut().zip(precisions) {
            *all = one.map(|one| all.map_or(one, |all| all.and(one)));
        }
    }

    /// Finishes the next tables; false after the last. Answers that are not to be sorted are brought into
    /// the order of their hashes.
    fn finish_next(&mut self) -> Result<bool> {
        let (key_count, is_unsorted) = (self.spec.keys.len(), self.is_unsorted);
        let finished = self.next_tables(|table| {
            let precisions = table.precisions();
            let (batch, hashes) = table.finish_hashed()?;
            let answer = Answer { batch, hashes };
            let answer = if is_unsorted { answer.in_hash_order(key_count)? } else { answer };
            Ok((precisions, answer))
        })?;
        let Some(finished) = finished else { return Ok(false) };
        for (precisions, answer) in finished {
            self.note_precisions(precisions);
            self.answers.push_back(answer);
        }
        Ok(true)
    }

    /// Makes something of each of the next tables, emptying it, several at once of what is in memory; none
    /// after the last. Tables without groups are left out.
    fn next_tables<T: Send>(
        &mut self,
        make: impl Fn(&mut Table) -> Result<T> + Sync,
    ) -> Result<Option<Vec<T>>> {
        let mut stored = Vec::new();
        while stored.len() < TABLES_A_THREAD * self.threads.max(1) {
            match self.partitions.front() {
                // What is folded from a disk may take all of the budget.
                Some(Stored::Disk { .. }) if !stored.is_empty() => break,
                Some(Stored::Disk { .. }) => {
                    stored.extend(self.next_table()?.map(Stored::Memory));
                    break;
                }
                Some(_) => stored.extend(self.partitions.pop_front()),
                None => break,
            }
        }
        if stored.is_empty() {
            return Ok(None);
        }
        self.cancel.check()?;
        let groups: usize = stored.iter().map(Stored::groups_max).sum();
        let helpers = match groups < GROUPS_ALONE_MAX {
            true => 0,
            false => stored.len().min(self.threads.max(1)) - 1,
        };
        let spec = &self.spec;
        let slots: Vec<Mutex<(Option<Stored>, Option<T>)>> =
            stored.into_iter().map(|stored| Mutex::new((Some(stored), None))).collect();
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            // For one part after the other.
            let mut own = None;
            while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut slot = slot.lock();
                let mut stored = match slot.0.take() {
                    Some(Stored::Memory(table)) => table,
                    Some(Stored::Part { of, index }) => {
                        let mut table = own.take().map_or_else(|| Table::new(spec), Ok)?;
                        of.fill(index, &mut table)?;
                        table
                    }
                    Some(Stored::Disk { .. }) | None => continue,
                };
                if stored.group_count() > 0 {
                    slot.1 = Some(make(&mut stored)?);
                }
                own = Some(stored);
            }
            Ok(())
        };
        together(helpers, &work, &self.progress)?;
        Ok(Some(slots.into_iter().filter_map(|slot| slot.into_inner().1).collect()))
    }

    /// The next table that fits memory, or none after the last.
    fn next_table(&mut self) -> Result<Option<Table>> {
        while let Some(stored) = self.partitions.pop_front() {
            self.cancel.check()?;
            let (file, depth) = match stored {
                Stored::Memory(table) => return Ok(Some(table)),
                Stored::Part { of, index } => {
                    let mut table = Table::new(&self.spec)?;
                    of.fill(index, &mut table)?;
                    return Ok(Some(table));
                }
                Stored::Disk { file, depth } => (file, depth),
            };
            if let Some(table) = self.fold(&file, depth)? {
                return Ok(Some(table));
            }
            for part in self.repartition(&file, depth)?.into_iter().rev() {
                self.partitions.push_front(Stored::Disk { file: part, depth: depth + 1 });
            }
        }
        Ok(None)
    }

    /// A spilled partition as one table, or none where it does not fit.
    fn fold(&self, file: &SpillFile, depth: u32) -> Result<Option<Table>> {
        let mut table = Table::new(&self.spec)?;
        for batch in file.read()? {
            self.cancel.check()?;
            let chunk = table.decode(&batch?)?;
            let rows: Vec<u32> = (0..chunk.group_count as u32).collect();
            table.merge(&chunk, &rows)?;
            if depth < DEPTH_MAX && table.bytes() > self.budget_bytes / 2 && table.group_count() > 1
            {
                return Ok(None);
            }
            if table.bytes() > self.group_bytes_max() {
                return Err(self.too_large(&table, file));
            }
        }
        Ok(Some(table))
    }

    /// What one group may have.
    fn group_bytes_max(&self) -> usize {
        GROUP_BYTES_MIN.max(self.budget_bytes.saturating_mul(2))
    }

    /// What cannot be partitioned any further is a group of which too much is kept.
    fn too_large(&self, table: &Table, file: &SpillFile) -> Error {
        let (held, function) = (table.bytes() as u64, table.largest().unwrap_or("GROUP BY"));
        // On disk it takes a little less than in memory, and the answer is made beside it.
        let enough = pool::size_above(held.max(file.bytes() / 3 * 4).saturating_mul(2));
        let instead = match function {
            "median" => "quantile(x, 0.5), which keeps a summary",
            _ => "keep fewer values for each group",
        };
        Error::Memory {
            message: format!(
                "out of memory: `{function}` has {} for one group, which is held whole, more than \
                 the {} that one may have",
                human(held),
                human(self.group_bytes_max() as u64),
            ),
            hint: Some(format!("--memory {enough} would do; or {instead}")),
        }
    }

    fn repartition(&self, file: &SpillFile, depth: u32) -> Result<Vec<SpillFile>> {
        let mut writers: Vec<SpillWriter> =
            (0..PARTITIONS).map(|_| SpillWriter::new(&self.space)).collect();
        let key_count = self.spec.keys.len();
        for batch in file.read()? {
            self.cancel.check()?;
            let batch = batch?;
            let hashes = groups::stored_hashes(&batch.columns()[..key_count], batch.num_rows())?;
            let rows = partition_groups(&hashes, depth);
            for (writer, rows) in writers.iter_mut().zip(&rows) {
                if !rows.is_empty() {
                    writer.write(&select(&batch, rows)?)?;
                }
            }
        }
        writers.into_iter().map(SpillWriter::finish).collect()
    }

    /// The whole table as chunks in their form on disk, each group in one of them, in the order of
    /// their keys' hashes; none is empty.
    ///
    /// # Errors
    /// As folding spilled partitions.
    pub fn next_groups(&mut self) -> Result<Option<RecordBatch>> {
        let key_count = self.spec.keys.len();
        while self.chunks.is_empty() {
            let chunks = self.next_tables(|table| {
                let chunk = table.take()?;
                in_hash_order(&chunk.encode()?, chunk.hashes, key_count)
            })?;
            match chunks {
                Some(chunks) => self.chunks.extend(chunks),
                None => return Ok(None),
            }
        }
        Ok(self.chunks.pop_front())
    }

    /// The next part of the answer. One of up to 262,144 groups and a quarter of the budget
    /// comes in one part, sorted by its keys in ascending order with nulls last; a larger one
    /// in the order of its keys' hashes.
    ///
    /// # Errors
    /// Where an answer does not fit its type.
    pub fn next_answer(&mut self) -> Result<Option<RecordBatch>> {
        if self.spec.keys.is_empty() {
            // One group: all of it is at the first partition.
            let table = self.next_table()?;
            self.partitions.clear();
            return table
                .map(|mut table| {
                    self.note_precisions(table.precisions());
                    table.finish()
                })
                .transpose();
        }
        let known = self.partitions.iter().map(|stored| match stored {
            Stored::Memory(table) => table.group_count(),
            Stored::Part { .. } | Stored::Disk { .. } => 0,
        });
        self.is_unsorted = self.is_unsorted || known.sum::<usize>() > SORTED_GROUPS_MAX;
        let key_count = self.spec.keys.len();
        loop {
            if self.is_unsorted
                && let Some(answer) = self.answers.pop_front()
            {
                return Ok(Some(answer.batch));
            }
            if !self.finish_next()? {
                break;
            }
            if !self.is_unsorted {
                let batches = || self.answers.iter().map(|answer| &answer.batch);
                let groups: usize = batches().map(RecordBatch::num_rows).sum();
                let bytes: usize =
                    batches().flat_map(|batch| batch.columns()).map(logical_bytes).sum();
                if groups > SORTED_GROUPS_MAX || bytes > self.budget_bytes / 4 {
                    // Too many to sort: one part after the other.
                    self.is_unsorted = true;
                    let answers = std::mem::take(&mut self.answers).into_iter();
                    self.answers = answers
                        .map(|answer| answer.in_hash_order(key_count))
                        .collect::<Result<_>>()?;
                }
            }
        }
        if self.answers.is_empty() {
            return Ok(None);
        }
        let answers: Vec<RecordBatch> = self.answers.drain(..).map(|answer| answer.batch).collect();
        sorted(concat_batches(&self.spec.output_schema(), &answers)?, &self.spec).map(Some)
    }
}

impl Answer {
    fn in_hash_order(self, key_count: usize) -> Result<Answer> {
        let batch = in_hash_order(&self.batch, self.hashes, key_count)?;
        Ok(Answer { batch, hashes: None })
    }
}

/// Groups in the order of their keys' hashes, whatever order they came in. The keys are the first
/// columns.
fn in_hash_order(
    batch: &RecordBatch,
    hashes: Option<Vec<u64>>,
    key_count: usize,
) -> Result<RecordBatch> {
    let keys = &batch.columns()[..key_count];
    let hashes = match hashes {
        Some(hashes) => hashes,
        None => groups::stored_hashes(keys, batch.num_rows())?,
    };
    let mut order: Vec<(u64, u32)> = hashes.into_iter().map(mixed).zip(0..).collect();
    order.sort_unstable();
    let same = |a: &(u64, u32), b: &(u64, u32)| a.0 == b.0;
    if order.windows(2).any(|pair| same(&pair[0], &pair[1])) {
        // Keys of one hash by their values.
        let rows = as_rows(keys)?;
        for run in order.chunk_by_mut(same).filter(|run| run.len() > 1) {
            if let Some(rows) = &rows {
                run.sort_unstable_by(|a, b| rows.row(a.1 as usize).cmp(&rows.row(b.1 as usize)));
            }
        }
    }
    select_in_order(batch, order.into_iter().map(|(_, row)| row).collect())
}

/// Keys in a form whose bytes are ordered as they are, nulls last; none where they have no such.
fn as_rows(keys: &[ArrayRef]) -> Result<Option<arrow::row::Rows>> {
    let options = SortOptions { descending: false, nulls_first: false };
    let field = |key: &ArrayRef| SortField::new_with_options(key.data_type().clone(), options);
    let fields: Vec<SortField> = keys.iter().map(field).collect();
    if !RowConverter::supports_fields(&fields) {
        return Ok(None);
    }
    Ok(Some(RowConverter::new(fields)?.convert_columns(keys)?))
}

fn sorted(batch: RecordBatch, spec: &TableSpec) -> Result<RecordBatch> {
    if batch.num_rows() < 2 {
        return Ok(batch);
    }
    let Some(rows) = as_rows(&batch.columns()[..spec.keys.len()])? else {
        return in_hash_order(&batch, None, spec.keys.len());
    };
    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
    select_in_order(&batch, order)
}

fn select_in_order(batch: &RecordBatch, order: Vec<u32>) -> Result<RecordBatch> {
    Ok(take_record_batch(batch, &UInt32Array::from(order))?)
}
