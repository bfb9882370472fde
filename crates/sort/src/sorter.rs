//! The first half of a sort: records come in, and are held in memory or distributed to partitions on disk.
//!
//! Tasks gather records in blocks of their own and hand these over. As long as everything fits,
//! blocks are kept as they are. When the budget is exhausted, cut points of partitions are chosen from
//! the held records (or from the caller's sample). From then on each block is partitioned: its
//! records are appended, as a frame for each partition, to the partitions' buffers. All tasks
//! share the buffers, so the number of writes depends on the bytes alone and not on the number of tasks.
//! A full buffer is one write; the contents of the buffers at the end stay there.
//!
//! Input that is sorted already, or in reverse, would all be in the last partition, or the first.
//! Once such an outer partition has as much as is sorted at once, and gets most of the new records, it ends:
//! later records beyond it get a partition of their own.
//!
//! With a limit on the output, [`crate::limit_cutoff`] decides which records need not be held. Once the
//! partitions hold that many records of committed attempts, records for the partitions behind them are
//! dropped.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::checksum::RecordChecksum;
use crate::cut_points::CutPoints;
use crate::error::{Error, Result};
use crate::limit_cutoff::{self, LimitCutoff, LimitLedger, SortLimit};
use crate::options::{Options, SORT_BYTES_PER_ROW, SortBudget};
use crate::record_blocks::{ENTRY_BYTES, RecordShape};
use crate::record_order::RecordOrder;
use crate::report::SortReport;
use crate::sorted_blocks::{OutputFraming, SortedBlocks};
use crate::spill_frame::{self, FrameHeader};
use crate::spill_storage::{DiskCounts, SpillExtent, SpillStorage};

/// Sampled records for each partition: its size then differs from the mean by some 18 %.
const SAMPLE_ROWS_PER_PARTITION: usize = 32;

/// Maximum number of rows for which one thread removes duplicates faster than several could start.
const UNIQUE_PRUNE_ROWS_MAX: u64 = 1 << 15;

/// A block of one task's records.
#[derive(Debug)]
pub(crate) struct TaskBlock {
    pub(crate) task: u64,
    pub(crate) attempt: u32,
    pub(crate) sequence: u32,
    pub(crate) rows: u32,
    pub(crate) bytes: Vec<u8>,
}

impl TaskBlock {
    /// Returns the memory charged to the budget, including the entries that the block will need.
    fn memory_cost(&self) -> u64 {
        (size_of::<TaskBlock>() + self.bytes.capacity()) as u64
            + u64::from(self.rows) * (ENTRY_BYTES + 2)
    }
}

#[derive(Debug, Default)]
pub(crate) struct SpillPartition {
    pub(crate) buffer: Vec<u8>,
    pub(crate) buffer_rows: u64,
    /// Written extents with their rows.
    pub(crate) extents: Vec<(SpillExtent, u64)>,
    /// Bytes of all frames, with buffer and headers.
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    last_source: Option<(u64, u32)>,
    /// True if frames of a later task, or of a later block of the same task, came first.
    pub(crate) out_of_order: bool,
    /// Partition number in the headers of its frames.
    pub(crate) number: u32,
    /// Greatest record of the last partition, or least record of the first one.
    edge_record: Option<(u64, Vec<u8>)>,
    /// True if it was an outer partition and has another beyond it: its edge is no longer tracked.
    is_closed: bool,
}

impl SpillPartition {
    /// Returns the memory needed to sort it whole.
    pub(crate) fn sort_memory_bytes(&self) -> u64 {
        self.bytes + self.rows * SORT_BYTES_PER_ROW
    }
}

#[derive(Debug, Default)]
pub(crate) struct FanOutPartitions {
    pub(crate) cut_points: CutPoints,
    /// Partitions in their order; none once the input has ended.
    pub(crate) partitions: Vec<Mutex<SpillPartition>>,
    /// Numbers of the partitions.
    pub(crate) numbers: Vec<u32>,
}

enum SorterState {
    Holding(HeldBlocks),
    FannedOut(Arc<RwLock<FanOutPartitions>>),
}

#[derive(Default)]
struct HeldBlocks {
    blocks: Vec<TaskBlock>,
    memory_cost: u64,
    rows: u64,
    /// Minimum cost at which dropping records behind the limit is worthwhile.
    prune_cost_min: u64,
}

#[derive(Default)]
struct TaskAttempts {
    started_attempts: u32,
    committed_attempt: Option<u32>,
}

#[derive(Default)]
struct TaskRegistry {
    states: HashMap<u64, TaskAttempts>,
    committed_checksum: RecordChecksum,
    ledger: LimitLedger,
}

impl TaskRegistry {
    fn committed_attempt(&self, task: u64) -> Option<u32> {
        self.states.get(&task).and_then(|state| state.committed_attempt)
    }
}

pub(crate) struct SorterCore<O> {
    order: Arc<O>,
    shape: RecordShape,
    options: Options,
    budget: SortBudget,
    state: Mutex<SorterState>,
    tasks: Mutex<TaskRegistry>,
    sample: Mutex<Vec<Vec<u8>>>,
    spill_storage: Arc<SpillStorage>,
    /// Blocks and scratch space for reuse.
    spare: Mutex<(Vec<Vec<u8>>, Vec<PartitioningScratch>)>,
}

/// A partition that has no other beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OuterPartition {
    First,
    Last,
}

/// Scratch space for partitioning a block.
#[derive(Default)]
struct PartitioningScratch {
    /// Partition, offset and stored length of each record.
    records: Vec<(u32, u32, u32)>,
    ordered: Vec<(u32, u32)>,
    starts: Vec<usize>,
}

/// Sorts records of bytes, in memory or beyond it.
///
/// ```
/// use tidemill_sort::{ByteOrder, Options, RecordShape, Sorter};
///
/// let sorter = Sorter::new(ByteOrder, RecordShape::Variable, Options::default())?;
/// let mut task = sorter.start_task(0);
/// for word in ["pear", "apple", "fig"] {
///     task.push(word.as_bytes())?;
/// }
/// task.commit()?;
/// let mut words = Vec::new();
/// let report = sorter.finish()?.for_each(|word| {
///     words.push(String::from_utf8_lossy(word).into_owned());
///     Ok(())
/// })?;
/// assert_eq!(words, ["apple", "fig", "pear"]);
/// assert_eq!(report.disk.operations(), 0);
/// # Ok::<(), tidemill_sort::Error>(())
/// ```
pub struct Sorter<O> {
    pub(crate) core: Arc<SorterCore<O>>,
}

impl<O: RecordOrder> Sorter<O> {
    /// Creates a sort of records of one shape. Allocates and opens nothing yet.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for options out of range, and for records of no bytes.
    pub fn new(order: O, shape: RecordShape, options: Options) -> Result<Self> {
        options.validate()?;
        if shape == RecordShape::Fixed(0) {
            return Err(Error::invalid_option(
                "records of no bytes cannot be told apart",
                "give a size of at least 1",
            ));
        }
        let sizes = SortBudget::new(options.memory_bytes);
        if let RecordShape::Fixed(size) = shape
            && size > sizes.record_bytes_max
        {
            let limit_bytes = sizes.record_bytes_max as u64;
            return Err(Error::RecordTooLong { bytes: size as u64, limit_bytes });
        }
        let expected = options.expected_bytes.unwrap_or(0);
        let space = SpillStorage::new(&options.spill_dirs, options.copy_dir.as_deref(), expected);
        let inner = SorterCore {
            order: Arc::new(order),
            shape,
            options,
            budget: sizes,
            state: Mutex::new(SorterState::Holding(HeldBlocks::default())),
            tasks: Mutex::default(),
            sample: Mutex::default(),
            spill_storage: Arc::new(space),
            spare: Mutex::default(),
        };
        Ok(Sorter { core: Arc::new(inner) })
    }

    /// Returns the sizes derived from the memory budget.
    pub fn budget(&self) -> SortBudget {
        self.core.budget
    }

    /// Adds a record to the sample from which partitions are chosen. Worthwhile if the caller can read the
    /// whole input in advance at some thousand positions: otherwise the partitions are chosen from the
    /// records that come before the budget is exhausted, which misrepresents an input that is sorted already.
    /// Has no effect once something was spilled.
    pub fn add_sample(&self, record: &[u8]) {
        let mut sample = self.core.sample.lock();
        if record.len() <= self.core.budget.block_bytes {
            sample.push(record.to_vec());
        }
    }

    /// Returns the number of records that are worth sampling.
    pub fn sample_rows_wanted(&self) -> usize {
        self.core.partition_count() * SAMPLE_ROWS_PER_PARTITION
    }

    /// Starts a new attempt at a task: one stream of records, from one thread at a time. Stable sorts order
    /// ties by the task's number. Several tasks may be open at once; each holds a block of memory.
    pub fn start_task(&self, task: u64) -> SortTask<O> {
        let inner = &*self.core;
        let mut tasks = inner.tasks.lock();
        let state = tasks.states.entry(task).or_default();
        let attempt = state.started_attempts;
        state.started_attempts += 1;
        let cutoff = tasks.ledger.cutoff_for_attempt(&*inner.order, task, attempt);
        SortTask {
            core: Arc::clone(&self.core),
            task,
            attempt,
            sequence: 0,
            rows: 0,
            block: Vec::new(),
            checksum: RecordChecksum::default(),
            cutoff,
            behind_cutoff: RecordChecksum::default(),
        }
    }

    /// Ends the input. Tasks that have not been committed do not count.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn finish(self) -> Result<SortedRecords<O>> {
        let inner = &*self.core;
        inner.options.cancel.check_cancelled()?;
        let state =
            mem::replace(&mut *inner.state.lock(), SorterState::Holding(HeldBlocks::default()));
        let TaskRegistry { states, committed_checksum: committed, mut ledger } =
            mem::take(&mut *inner.tasks.lock());
        *inner.spare.lock() = Default::default();
        let attempts: HashMap<u64, u32> = states
            .into_iter()
            .filter_map(|(task, state)| Some((task, state.committed_attempt?)))
            .collect();
        let input = match state {
            SorterState::Holding(HeldBlocks { mut blocks, .. }) => {
                blocks.retain(|held| attempts.get(&held.task) == Some(&held.attempt));
                let limit = inner.options.sort_limit();
                let rows: u64 = blocks.iter().map(|held| u64::from(held.rows)).sum();
                // Finding the distinct records is a sort: several threads share it if there are many.
                let is_worth = |limit: &SortLimit| !limit.unique || rows <= UNIQUE_PRUNE_ROWS_MAX;
                if let Some(limit) = limit.filter(is_worth) {
                    blocks =
                        ledger.prune_blocks(&*inner.order, inner.shape, limit, blocks, |task| {
                            attempts.get(&task).copied()
                        });
                }
                blocks.sort_by_key(|held| (held.task, held.sequence));
                if limit.is_some() {
                    blocks = limit_cutoff::join_blocks(blocks, inner.budget.block_bytes);
                }
                CommittedInput::Memory(blocks)
            }
            SorterState::FannedOut(fan_out) => {
                CommittedInput::Spilled(Arc::new(mem::take(&mut *fan_out.write())))
            }
        };
        Ok(SortedRecords {
            order: Arc::clone(&inner.order),
            shape: inner.shape,
            options: inner.options.clone(),
            budget: inner.budget,
            spill_storage: Arc::clone(&inner.spill_storage),
            attempts,
            committed_checksum: committed,
            ledger,
            input,
        })
    }
}

impl<O: RecordOrder> SorterCore<O> {
    #[cfg(test)]
    pub(crate) fn spill_storage(&self) -> &SpillStorage {
        &self.spill_storage
    }

    fn partition_count(&self) -> usize {
        self.budget.partition_count(self.options.threads, self.options.expected_bytes)
    }

    fn take_spare_block(&self) -> Vec<u8> {
        let spare = self.spare.lock().0.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(self.budget.block_bytes))
    }

    /// Accepts a block from a task.
    fn accept_block(&self, mut held: TaskBlock) -> Result<()> {
        self.options.cancel.check_cancelled()?;
        let mut state = self.state.lock();
        let fan_out = match &mut *state {
            SorterState::FannedOut(fan_out) => Arc::clone(fan_out),
            SorterState::Holding(holding) => {
                if held.bytes.len() < held.bytes.capacity() / 8 * 7 {
                    held.bytes.shrink_to_fit();
                }
                let more = held.memory_cost();
                if let Some(limit) = self.options.sort_limit() {
                    self.prune_behind_limit(holding, limit, more);
                }
                if holding.memory_cost + more <= self.budget.held_bytes_max {
                    holding.memory_cost += more;
                    holding.rows += u64::from(held.rows);
                    holding.blocks.push(held);
                    return Ok(());
                }
                let mut blocks = mem::take(&mut holding.blocks);
                let fan_out = Arc::new(RwLock::new(self.start_fan_out(&blocks, &held)));
                *state = SorterState::FannedOut(Arc::clone(&fan_out));
                drop(state);
                blocks.push(held);
                return self.partition_blocks(&fan_out, blocks);
            }
        };
        drop(state);
        self.partition_block(&fan_out, held)
    }

    /// Drops records behind the limit if that is worthwhile or if the next block would not fit.
    fn prune_behind_limit(&self, holding: &mut HeldBlocks, limit: SortLimit, more: u64) {
        let HeldBlocks { blocks, memory_cost: cost, rows, prune_cost_min: prune_from } = holding;
        let least = 4 * self.budget.block_bytes as u64;
        let is_full = *cost + more > self.budget.held_bytes_max && *rows > limit.rows;
        let is_worth = *cost >= (*prune_from).max(least) && *rows / 2 >= limit.rows;
        // With few distinct records much can be dropped before the limit is reached.
        let has_ties = limit.unique && *cost >= (*prune_from).max(least);
        if !(is_full || is_worth || has_ties) {
            return;
        }
        let mut tasks = self.tasks.lock();
        let TaskRegistry { states, ledger, .. } = &mut *tasks;
        let committed =
            |task| states.get(&task).and_then(|state: &TaskAttempts| state.committed_attempt);
        *blocks =
            ledger.prune_blocks(&*self.order, self.shape, limit, mem::take(blocks), committed);
        *cost = blocks.iter().map(TaskBlock::memory_cost).sum();
        *rows = blocks.iter().map(|held| u64::from(held.rows)).sum();
        *prune_from = 2 * *cost;
    }

    fn start_fan_out(&self, blocks: &[TaskBlock], last: &TaskBlock) -> FanOutPartitions {
        let count = self.partition_count();
        let sampled = mem::take(&mut *self.sample.lock());
        let parts = if sampled.len() >= count * 2 {
            CutPoints::from_sample(&*self.order, sampled.iter().map(Vec::as_slice).collect(), count)
        } else {
            let wanted = count * SAMPLE_ROWS_PER_PARTITION;
            CutPoints::from_sample(
                &*self.order,
                sample_records(self.shape, blocks.iter().chain([last]), wanted),
                count,
            )
        };
        let partition = |number| {
            Mutex::new(SpillPartition { number: number as u32, ..SpillPartition::default() })
        };
        let partitions = (0..parts.partition_count()).map(partition).collect();
        let numbers = (0..parts.partition_count() as u32).collect();
        FanOutPartitions { cut_points: parts, partitions, numbers }
    }

    fn partition_blocks(
        &self,
        fan_out: &RwLock<FanOutPartitions>,
        blocks: Vec<TaskBlock>,
    ) -> Result<()> {
        let next = Mutex::new(blocks.into_iter());
        let work = || {
            loop {
                let Some(held) = next.lock().next() else { return Ok(()) };
                self.partition_block(fan_out, held)?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.options.threads).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                result = result
                    .and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    /// Appends each record of a block to its partition.
    fn partition_block(&self, fan_out: &RwLock<FanOutPartitions>, held: TaskBlock) -> Result<()> {
        self.options.cancel.check_cancelled()?;
        // The cut points stay fixed while records are partitioned by them.
        let full = self.append_to_partitions(&fan_out.read(), held)?;
        match full {
            Some(end) => self.add_outer_partition(&mut fan_out.write(), end),
            None => Ok(()),
        }
    }

    /// Returns the maximum size of the first and of the last partition.
    fn outer_partition_bytes_max(&self) -> u64 {
        self.budget
            .thread_budget(self.options.threads, self.budget.memory_bytes / 4)
            .partition_bytes
            / 2
    }

    /// Adds a partition beyond a full outer partition.
    fn add_outer_partition(
        &self,
        fan_out: &mut FanOutPartitions,
        end: OuterPartition,
    ) -> Result<()> {
        let full_bytes = self.outer_partition_bytes_max();
        let FanOutPartitions { cut_points: parts, partitions, numbers } = fan_out;
        let new = |count: usize| {
            Mutex::new(SpillPartition { number: count as u32, ..SpillPartition::default() })
        };
        let number = partitions.len();
        let full = match end {
            OuterPartition::First => partitions.first_mut(),
            OuterPartition::Last => partitions.last_mut(),
        };
        // Another task may have added it already.
        let Some(full) =
            full.map(Mutex::get_mut).filter(|full| full.sort_memory_bytes() >= full_bytes)
        else {
            return Ok(());
        };
        let Some((_, edge)) = full.edge_record.take() else { return Ok(()) };
        full.is_closed = true;
        self.write_buffer(full)?;
        match end {
            OuterPartition::First => {
                parts.add_first_partition(&*self.order, edge);
                partitions.insert(0, new(number));
                numbers.insert(0, number as u32);
            }
            OuterPartition::Last => {
                parts.add_last_partition(&*self.order, edge);
                partitions.push(new(number));
                numbers.push(number as u32);
            }
        }
        Ok(())
    }

    /// Writes a partition's buffer and frees its memory.
    fn write_buffer(&self, partition: &mut SpillPartition) -> Result<()> {
        let buffer = mem::take(&mut partition.buffer);
        if !buffer.is_empty() {
            let extent = self.spill_storage.write_extent(&buffer)?;
            partition.extents.push((extent, mem::take(&mut partition.buffer_rows)));
        }
        Ok(())
    }

    /// Appends each record of a block to its partition. Returns an outer partition that is full and got most
    /// of the block, if any.
    fn append_to_partitions(
        &self,
        fan_out: &FanOutPartitions,
        mut held: TaskBlock,
    ) -> Result<Option<OuterPartition>> {
        let Some(last) = fan_out.partitions.len().checked_sub(1) else {
            // The input has ended without this task.
            return Ok(None);
        };
        let full_bytes = self.outer_partition_bytes_max();
        let mut full = None;
        let limit = self.options.sort_limit();
        let wanted = limit.and_then(|_| {
            let number = self.tasks.lock().ledger.last_wanted_partition?;
            fan_out.numbers.iter().position(|known| *known == number)
        });
        let mut scratch = self.spare.lock().1.pop().unwrap_or_default();
        let PartitioningScratch { records, ordered, starts } = &mut scratch;
        records.clear();
        starts.clear();
        starts.resize(fan_out.partitions.len() + 1, 0);
        let mut offset = 0;
        while let Some((record, next)) = self.shape.read_record(&held.bytes, offset) {
            let part =
                fan_out.cut_points.partition_index(&*self.order, record, self.order.prefix(record));
            starts[part + 1] += 1;
            records.push((part as u32, offset as u32, (next - offset) as u32));
            offset = next;
            if records.len().is_multiple_of(8192) {
                self.options.cancel.check_cancelled()?;
            }
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        ordered.clear();
        ordered.resize(records.len(), (0, 0));
        let mut next = starts.clone();
        for &(part, offset, length) in &*records {
            let place = &mut next[part as usize];
            ordered[*place] = (offset, length);
            *place += 1;
        }
        for (index, pair) in starts.windows(2).enumerate() {
            if pair[0] < pair[1] && wanted.is_none_or(|wanted| index <= wanted) {
                let records = &ordered[pair[0]..pair[1]];
                let mut partition = fan_out.partitions[index].lock();
                let end = match index {
                    index if index == last => Some(OuterPartition::Last),
                    0 => Some(OuterPartition::First),
                    _ => None,
                };
                if let Some(end) = end.filter(|_| !partition.is_closed) {
                    self.update_edge_record(&mut partition, &held, records, end);
                }
                self.append_frames(&mut partition, &held, records)?;
                if 2 * records.len() >= ordered.len() && partition.sort_memory_bytes() >= full_bytes
                {
                    full = end;
                }
            }
        }
        if let Some(limit) = limit {
            let kept = wanted.map_or(fan_out.partitions.len(), |wanted| wanted + 1);
            let mut behind = RecordChecksum::default();
            for (offset, _) in &ordered[starts[kept]..] {
                if let Some((record, _)) = self.shape.read_record(&held.bytes, *offset as usize) {
                    behind.add_record(record);
                }
            }
            let rows = fan_out.numbers.iter().copied().zip(starts.windows(2)).take(kept);
            let rows = rows.map(|(number, pair)| (number, (pair[1] - pair[0]) as u64));
            let mut tasks = self.tasks.lock();
            let committed = tasks.committed_attempt(held.task);
            tasks.ledger.record_attempt((held.task, held.attempt), committed, &behind, rows);
            self.update_last_wanted(fan_out, &mut tasks.ledger, limit);
        }
        let mut spare = self.spare.lock();
        if spare.0.len() <= self.options.threads && held.bytes.capacity() == self.budget.block_bytes
        {
            held.bytes.clear();
            spare.0.push(held.bytes);
        }
        spare.1.push(scratch);
        Ok(full)
    }

    /// Finds the last partition from which records are wanted, and sets the cutoff to its end.
    fn update_last_wanted(
        &self,
        fan_out: &FanOutPartitions,
        ledger: &mut LimitLedger,
        limit: SortLimit,
    ) {
        let Some(last) = ledger.find_last_wanted_partition(&fan_out.numbers, limit) else { return };
        if ledger.last_wanted_partition.replace(fan_out.numbers[last])
            == Some(fan_out.numbers[last])
        {
            return;
        }
        if let Some((prefix, record, has_ties)) = fan_out.cut_points.partition_end(last) {
            let ties_from = (!has_ties).then_some(0);
            let record = record.map(<[u8]>::to_vec);
            ledger.offer_cutoff(&*self.order, LimitCutoff { prefix, record, ties_from });
        }
    }

    /// Updates the greatest record of the last partition, or the least record of the first one.
    fn update_edge_record(
        &self,
        partition: &mut SpillPartition,
        held: &TaskBlock,
        records: &[(u32, u32)],
        end: OuterPartition,
    ) {
        // Ordering of the known edge relative to a record beyond it.
        let wanted = if end == OuterPartition::Last { Less } else { Greater };
        let mut edge: Option<(u64, &[u8])> = None;
        let known =
            partition.edge_record.as_ref().map(|(prefix, record)| (*prefix, record.as_slice()));
        let is_beyond = |other: (u64, &[u8]), prefix, record: &[u8]| match other.0.cmp(&prefix) {
            Equal => self.order.compare(other.1, record) == wanted,
            ordering => ordering == wanted,
        };
        for (offset, _) in records {
            let Some((record, _)) = self.shape.read_record(&held.bytes, *offset as usize) else {
                break;
            };
            let prefix = self.order.prefix(record);
            if edge.or(known).is_none_or(|other| is_beyond(other, prefix, record)) {
                edge = Some((prefix, record));
            }
        }
        if let Some((prefix, record)) = edge {
            partition.edge_record = Some((prefix, record.to_vec()));
        }
    }

    fn append_frames(
        &self,
        partition: &mut SpillPartition,
        held: &TaskBlock,
        records: &[(u32, u32)],
    ) -> Result<()> {
        let now = (held.task, held.sequence);
        partition.out_of_order |= partition.last_source.is_some_and(|last| last > now);
        partition.last_source = Some(now);
        let TaskBlock { task, attempt, sequence, .. } = *held;
        let mut rest = records;
        let mut before = 0;
        while !rest.is_empty() {
            if partition.buffer.capacity() == 0 {
                partition.buffer.reserve_exact(self.budget.buffer_bytes());
            }
            let (mut bytes, mut count) = (0, 0);
            for (_, length) in rest {
                if count > 0 && bytes as usize + *length as usize > self.budget.frame_bytes() {
                    break;
                }
                bytes += *length;
                count += 1;
            }
            let (these, others) = rest.split_at(count);
            rest = others;
            let rows = count as u32;
            let number = partition.number;
            let header = FrameHeader {
                bytes,
                rows,
                task,
                attempt,
                sequence,
                preceding_bytes: before,
                partition: number,
            };
            let start = spill_frame::begin_frame(&mut partition.buffer, &header);
            for (offset, length) in these {
                let from = *offset as usize;
                partition.buffer.extend_from_slice(&held.bytes[from..from + *length as usize]);
            }
            before += bytes;
            spill_frame::finish_frame(&mut partition.buffer, start);
            partition.bytes += (partition.buffer.len() - start) as u64;
            partition.rows += u64::from(rows);
            partition.buffer_rows += u64::from(rows);
            if partition.buffer.len() >= self.budget.write_bytes {
                let extent = self.spill_storage.write_extent(&partition.buffer)?;
                partition.extents.push((extent, mem::take(&mut partition.buffer_rows)));
                partition.buffer.clear();
                // One long record may have made it large.
                partition.buffer.shrink_to(self.budget.buffer_bytes());
            }
        }
        Ok(())
    }
}

/// Returns every n-th record of blocks, about `wanted` of them.
pub(crate) fn sample_records<'a>(
    shape: RecordShape,
    blocks: impl Iterator<Item = &'a TaskBlock> + Clone,
    wanted: usize,
) -> Vec<&'a [u8]> {
    let rows: u64 = blocks.clone().map(|held| u64::from(held.rows)).sum();
    let step = (rows / wanted.max(1) as u64).max(1);
    let mut sample = Vec::new();
    let mut countdown = step / 2;
    for held in blocks {
        let mut offset = 0;
        while let Some((record, next)) = shape.read_record(&held.bytes, offset) {
            offset = next;
            if countdown == 0 {
                sample.push(record);
                countdown = step;
            }
            countdown -= 1;
        }
    }
    sample
}

/// One attempt at a task. Its records count once it is committed; if it is dropped before, they never do.
pub struct SortTask<O: RecordOrder> {
    core: Arc<SorterCore<O>>,
    task: u64,
    attempt: u32,
    sequence: u32,
    rows: u32,
    block: Vec<u8>,
    checksum: RecordChecksum,
    cutoff: Option<Arc<LimitCutoff>>,
    /// Records dropped behind the cutoff.
    behind_cutoff: RecordChecksum,
}

impl<O: RecordOrder> SortTask<O> {
    /// Adds a record, which is copied.
    ///
    /// # Errors
    /// [`Error::RecordTooLong`], [`Error::RecordSize`]; if something had to be written,
    /// [`Error::DiskFull`] and [`Error::Io`]; [`Error::Cancelled`]. The attempt is useless after an error.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        if let RecordShape::Fixed(size) = self.core.shape
            && record.len() != size
        {
            return Err(Error::RecordSize { expected: size, found: record.len() });
        }
        if self.drop_if_behind(record) {
            return Ok(());
        }
        let stored = self.core.shape.stored_bytes_max(record.len());
        if self.block.len() + stored > self.block.capacity() {
            self.start_block(record.len(), stored)?;
        }
        self.core.shape.push_record(record, &mut self.block);
        self.rows += 1;
        self.checksum.add_record(record);
        Ok(())
    }

    /// Adds a record that consists of several consecutive parts.
    ///
    /// # Errors
    /// As [`SortTask::push`].
    #[inline]
    pub fn push_concatenated(&mut self, parts: &[&[u8]]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let stored = self.core.shape.stored_bytes_max(length);
        if self.block.len() + stored > self.block.capacity() {
            self.start_block(length, stored)?;
        }
        if let RecordShape::Fixed(size) = self.core.shape
            && length != size
        {
            return Err(Error::RecordSize { expected: size, found: length });
        }
        let before = self.block.len();
        self.core.shape.push_length_prefix(length, &mut self.block);
        let start = self.block.len();
        parts.iter().for_each(|part| self.block.extend_from_slice(part));
        if self.cutoff.is_some() {
            let block = mem::take(&mut self.block);
            let is_behind = self.drop_if_behind(&block[start..]);
            self.block = block;
            if is_behind {
                self.block.truncate(before);
                return Ok(());
            }
        }
        self.rows += 1;
        self.checksum.add_record(&self.block[start..]);
        Ok(())
    }

    /// Returns whether a record is behind the cutoff, if there is one, and counts it as dropped if so.
    #[inline]
    fn drop_if_behind(&mut self, record: &[u8]) -> bool {
        let Some(cutoff) = &self.cutoff else { return false };
        // An invalid record is refused wherever it is in the order.
        if !cutoff.excludes_record(&*self.core.order, self.task, record)
            || record.len() > self.core.budget.record_bytes_max
        {
            return false;
        }
        self.checksum.add_record(record);
        self.behind_cutoff.add_record(record);
        true
    }

    #[cold]
    fn start_block(&mut self, record_bytes: usize, stored: usize) -> Result<()> {
        let limit = self.core.budget.record_bytes_max;
        if record_bytes > limit {
            return Err(Error::RecordTooLong {
                bytes: record_bytes as u64,
                limit_bytes: limit as u64,
            });
        }
        self.hand_over_block()?;
        self.block = self.core.take_spare_block();
        if stored > self.block.capacity() {
            self.block = Vec::with_capacity(stored);
        }
        Ok(())
    }

    fn hand_over_block(&mut self) -> Result<()> {
        let bytes = mem::take(&mut self.block);
        if bytes.is_empty() {
            return Ok(());
        }
        let held = TaskBlock {
            task: self.task,
            attempt: self.attempt,
            sequence: self.sequence,
            rows: mem::take(&mut self.rows),
            bytes,
        };
        self.sequence = self.sequence.checked_add(1).ok_or_else(|| {
            Error::invalid_option("a task of 2^32 blocks", "divide the input into several tasks")
        })?;
        self.core.accept_block(held)?;
        if self.core.options.limit.is_some() {
            let ledger = &self.core.tasks.lock().ledger;
            self.cutoff = ledger.cutoff_for_attempt(&*self.core.order, self.task, self.attempt);
        }
        Ok(())
    }

    /// Returns the disk operations of all tasks of the sort so far.
    pub fn disk_counts(&self) -> DiskCounts {
        self.core.spill_storage.disk_counts()
    }

    /// Makes the records count. Returns `false` and drops them if another attempt at the task was committed
    /// before.
    ///
    /// # Errors
    /// As [`SortTask::push`].
    pub fn commit(mut self) -> Result<bool> {
        self.hand_over_block()?;
        let limit = self.core.options.sort_limit();
        let fan_out = match &*self.core.state.lock() {
            SorterState::FannedOut(fan_out) if limit.is_some() => Some(Arc::clone(fan_out)),
            _ => None,
        };
        let fan_out = fan_out.as_ref().map(|fan_out| fan_out.read());
        let mut tasks = self.core.tasks.lock();
        let state = tasks.states.entry(self.task).or_default();
        if state.committed_attempt.is_some() {
            return Ok(false);
        }
        state.committed_attempt = Some(self.attempt);
        tasks.committed_checksum.merge(&self.checksum);
        tasks.ledger.dropped.merge(&self.behind_cutoff);
        tasks.ledger.commit_attempt(self.task, self.attempt);
        if let (Some(fan_out), Some(limit)) = (fan_out, limit) {
            self.core.update_last_wanted(&fan_out, &mut tasks.ledger, limit);
        }
        Ok(true)
    }
}

pub(crate) enum CommittedInput {
    Memory(Vec<TaskBlock>),
    Spilled(Arc<FanOutPartitions>),
}

/// The complete input of a sort, ready to come out in order.
pub struct SortedRecords<O> {
    pub(crate) order: Arc<O>,
    pub(crate) shape: RecordShape,
    pub(crate) options: Options,
    pub(crate) budget: SortBudget,
    pub(crate) spill_storage: Arc<SpillStorage>,
    pub(crate) attempts: HashMap<u64, u32>,
    pub(crate) committed_checksum: RecordChecksum,
    pub(crate) ledger: LimitLedger,
    pub(crate) input: CommittedInput,
}

impl<O: RecordOrder> SortedRecords<O> {
    /// Returns whether something was spilled.
    pub fn is_spilled(&self) -> bool {
        matches!(self.input, CommittedInput::Spilled(_))
    }

    /// Returns the checksum of the committed records.
    pub fn committed_checksum(&self) -> RecordChecksum {
        self.committed_checksum
    }

    /// Returns the records in blocks of up to 256 KiB or so, with the given framing. Threads work on the
    /// next blocks until the iterator is dropped.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn into_blocks(self, layout: OutputFraming) -> Result<SortedBlocks> {
        SortedBlocks::start(self, layout)
    }

    /// Calls `take` with each record, in order.
    ///
    /// # Errors
    /// Errors of `take`; [`Error::CorruptSpill`], [`Error::Io`], [`Error::DiskFull`] if runs have to be
    /// written, [`Error::Cancelled`], [`Error::ChecksumMismatch`].
    pub fn for_each(self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<SortReport> {
        let mut blocks = self.into_blocks(OutputFraming::LengthPrefixed)?;
        while let Some(block) = blocks.next_block()? {
            for record in block.records() {
                take(record)?;
            }
        }
        blocks.finish()
    }

    /// Writes the records, each followed by the terminator, if any.
    ///
    /// # Errors
    /// [`Error::Output`] if `output` fails, otherwise as [`SortedRecords::for_each`].
    pub fn write_to(
        self,
        terminator: Option<u8>,
        output: &mut dyn std::io::Write,
    ) -> Result<SortReport> {
        let mut blocks = self.into_blocks(
            terminator.map_or(OutputFraming::Concatenated, OutputFraming::Terminated),
        )?;
        while let Some(block) = blocks.next_block()? {
            output.write_all(block.bytes()).map_err(Error::Output)?;
        }
        output.flush().map_err(Error::Output)?;
        blocks.finish()
    }
}

/// Runs `work(0)`, `work(1)`, … `work(count - 1)` on several threads, and returns the results in order.
pub(crate) fn run_in_parallel<T: Send>(
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let run = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            let result = work(index)?;
            results.lock()[index] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(run)).collect();
        let mut result = run();
        for other in others {
            result =
                result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result
    })?;
    Ok(results.into_inner().into_iter().flatten().collect())
}
