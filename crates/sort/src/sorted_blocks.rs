//! The second half of a sort: threads sort the partitions, and the records come out in order.
//!
//! Partitions do not overlap, so each is sorted by itself, several at once, and they come out one after
//! another without a merge of everything. Each partition has a short output channel, and the consumer empties
//! the channels in the order of the partitions; a thread that is ahead waits at its channel.
//!
//! A partition in memory is a list of entries, separated in advance. A spilled partition is
//! read whole if it fits its share of the memory. If all its records tie, it is passed on as it
//! is read. Otherwise it is cut into runs as large as the share, which are merged.
//!
//! The pieces of a run are frames, too. In a stable sort 16 bytes precede each record there:
//! its position in the input.
//!
//! ```text
//!  run      [frame][frame]…        of SortBudget::write_bytes, about
//!  record   [offset in block: u32][sequence: u32][task: u64][record, as in a block]
//! ```

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Atomic};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::cancel_flag::SortCancelFlag;
use crate::checksum::RecordChecksum;
use crate::cut_points::CutPoints;
use crate::error::{Error, Result};
use crate::loser_tree::{LoserTree, MergeSource};
use crate::options::{SORT_BYTES_PER_ROW, SortBudget, ThreadBudget};
use crate::record_blocks::{
    EntrySorter, FETCHED_RECORDS, RecordBlocks, RecordShape, SortEntry, encode_position,
};
use crate::record_order::RecordOrder;
use crate::report::SortReport;
use crate::sorter::{
    CommittedInput, FanOutPartitions, SortedRecords, SpillPartition, TaskBlock, run_in_parallel,
    sample_records,
};
use crate::spill_frame::{self, FrameHeader};
use crate::spill_storage::{DiskCounts, SpillExtent, SpillStorage};

/// Approximate rows of a partition in memory: their entries fit a processor's cache.
const MEMORY_PARTITION_ROWS: usize = 1 << 15;

/// Separation of the records in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFraming {
    /// Records follow each other without separation; records of variable size cannot be told apart.
    Concatenated,
    /// Each record is followed by this byte, which no record should contain.
    Terminated(u8),
    /// Each record of variable size is preceded by its length, so that all can be told apart.
    LengthPrefixed,
}

/// A block of sorted records.
#[derive(Debug)]
pub struct SortedBlock {
    bytes: Vec<u8>,
    rows: usize,
    framing: OutputFraming,
    shape: RecordShape,
}

impl SortedBlock {
    /// Returns the records with their framing.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Iterates over the records; concatenated records of variable size come as one.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (record, next) = self.record_at(offset)?;
            offset = next;
            Some(record)
        })
    }

    fn record_at(&self, offset: usize) -> Option<(&[u8], usize)> {
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        match (self.framing, self.shape) {
            (OutputFraming::Concatenated, RecordShape::Variable) => Some((rest, self.bytes.len())),
            (OutputFraming::Concatenated | OutputFraming::LengthPrefixed, _) => {
                self.shape.read_record(&self.bytes, offset)
            }
            (OutputFraming::Terminated(byte), _) => {
                let length = match self.shape {
                    RecordShape::Fixed(size) => size,
                    RecordShape::Variable => memchr::memchr(byte, rest)?,
                };
                Some((rest.get(..length)?, offset + length + 1))
            }
        }
    }

    fn truncate_rows(&mut self, rows: usize) {
        let mut offset = 0;
        for _ in 0..rows {
            let Some((_, next)) = self.record_at(offset) else { break };
            offset = next;
        }
        self.bytes.truncate(offset);
        self.rows = rows;
    }
}

enum OutputMessage {
    Block(SortedBlock),
    PartitionEnd,
    Failed(Error),
}

/// The reason why a thread ends its work early.
enum OutputHalt {
    /// The consumer was dropped.
    ConsumerGone,
    Failed(Error),
}

impl From<Error> for OutputHalt {
    fn from(error: Error) -> Self {
        OutputHalt::Failed(error)
    }
}

type OutputResult<T = ()> = Result<T, OutputHalt>;

/// Progress and statistics that threads and consumer share.
#[derive(Default)]
struct OutputProgress {
    report: Mutex<SortReport>,
    is_abandoned: AtomicBool,
    /// Number of partitions that the consumer has taken completely.
    partitions_taken: Mutex<usize>,
    progress_changed: Condvar,
}

impl OutputProgress {
    /// Waits until the consumer is less than `window` partitions behind; `false` if it was dropped.
    fn wait_for_consumer(&self, part: usize, window: usize) -> bool {
        let mut taken = self.partitions_taken.lock();
        while part >= *taken + window && !self.is_abandoned.load(Atomic::Relaxed) {
            self.progress_changed.wait(&mut taken);
        }
        !self.is_abandoned.load(Atomic::Relaxed)
    }

    fn abandon(&self) {
        let taken = self.partitions_taken.lock();
        self.is_abandoned.store(true, Atomic::Relaxed);
        drop(taken);
        self.progress_changed.notify_all();
    }
}

/// Sorted records in blocks. Dropping it stops the threads and removes the spilled data.
pub struct SortedBlocks {
    channels: VecDeque<Receiver<OutputMessage>>,
    threads: Vec<JoinHandle<()>>,
    progress: Arc<OutputProgress>,
    spill_storage: Arc<SpillStorage>,
    input_checksum: RecordChecksum,
    cancel: SortCancelFlag,
    limit: Option<u64>,
    /// True if no more records than the limit are left, so that all come out.
    is_within_limit: bool,
    /// True if the consumer does not read some of the partitions.
    skips_partitions: bool,
    behind_limit: RecordChecksum,
    taken_rows: u64,
}

impl SortedBlocks {
    pub(crate) fn start<O: RecordOrder>(
        sorted: SortedRecords<O>,
        layout: OutputFraming,
    ) -> Result<Self> {
        let SortedRecords {
            order,
            shape,
            options,
            budget: sizes,
            spill_storage: space,
            attempts,
            committed_checksum: committed,
            ledger,
            input,
        } = sorted;
        let totals = Arc::<OutputProgress>::default();
        let limit = options.sort_limit();
        let wanted = match (&input, limit) {
            (CommittedInput::Spilled(fan_out), Some(limit)) => {
                ledger.find_last_wanted_partition(&fan_out.numbers, limit).map(|last| last + 1)
            }
            _ => None,
        };
        let held_rows: u64 = match &input {
            CommittedInput::Memory(held) => held.iter().map(|held| u64::from(held.rows)).sum(),
            CommittedInput::Spilled(_) => u64::MAX,
        };
        let (stage, count, share) = match input {
            CommittedInput::Memory(held) => {
                let memory = MemoryPartitions::from_blocks(
                    &*order,
                    shape,
                    held,
                    options.threads,
                    &options.cancel,
                )?;
                let count = memory.partition_count;
                let share = ThreadBudget {
                    threads: options.threads,
                    partition_bytes: 0,
                    output_block_bytes: sizes.write_bytes.min(256 << 10),
                };
                (PartitionSource::Memory(memory), count, share)
            }
            CommittedInput::Spilled(fan_out) => {
                let (mut tails, mut needs) = (0, Vec::new());
                let count = wanted.unwrap_or(fan_out.partitions.len());
                for (index, partition) in fan_out.partitions.iter().enumerate() {
                    let mut partition = partition.lock();
                    if index >= count {
                        // The consumer does not need this partition.
                        *partition = SpillPartition::default();
                        continue;
                    }
                    partition.buffer.shrink_to_fit();
                    tails += partition.buffer.len() as u64;
                    if !fan_out.cut_points.is_tied_partition(index) {
                        needs.push(partition.sort_memory_bytes());
                    }
                }
                let share = sizes.best_thread_budget(options.threads, tails, &needs);
                totals.report.lock().partitions = fan_out.partitions.len() as u64;
                (PartitionSource::Spilled(fan_out), count, share)
            }
        };
        let threads = share.threads.min(count).max(1);
        let (senders, channels): (Vec<_>, VecDeque<_>) =
            (0..count).map(|_| sync_channel(2)).unzip();
        let drain = Arc::new(PartitionSorter {
            order,
            shape,
            framing: layout,
            stable: options.stable || options.unique,
            unique: options.unique,
            cancel: options.cancel.clone(),
            budget: sizes,
            thread_bytes: share.partition_bytes,
            output_block_bytes: share.output_block_bytes,
            gather_bytes_max: usize::try_from(sizes.memory_bytes / 16 / threads.max(1) as u64)
                .unwrap_or(usize::MAX)
                .min(GATHER_BYTES_MAX),
            source: stage,
            spill_storage: Arc::clone(&space),
            attempts,
            next_partition: AtomicUsize::new(0),
            partitions_ahead_max: threads + 2,
            senders: senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect(),
            progress: Arc::clone(&totals),
        });
        let mut blocks = SortedBlocks {
            channels,
            threads: Vec::with_capacity(threads),
            progress: totals,
            spill_storage: space,
            input_checksum: committed,
            cancel: options.cancel,
            limit: options.limit,
            is_within_limit: options.limit.is_some_and(|limit| held_rows <= limit),
            skips_partitions: wanted.is_some(),
            behind_limit: ledger.dropped,
            taken_rows: 0,
        };
        for index in 0..threads {
            let drain = Arc::clone(&drain);
            let thread = std::thread::Builder::new()
                .name(format!("sort-{index}"))
                .spawn(move || drain.run_worker());
            match thread {
                Ok(thread) => blocks.threads.push(thread),
                // The other threads do its work.
                Err(_) if index > 0 => break,
                Err(error) => return Err(Error::io_error("start a thread of", "the sort", error)),
            }
        }
        Ok(blocks)
    }

    /// Returns the next block, which is not empty; `None` at the end.
    ///
    /// # Errors
    /// [`Error::CorruptSpill`], [`Error::Io`], [`Error::DiskFull`] if runs have to be written,
    /// [`Error::Cancelled`].
    pub fn next_block(&mut self) -> Result<Option<SortedBlock>> {
        self.cancel.check_cancelled()?;
        if self.limit.is_some_and(|limit| self.taken_rows >= limit) {
            return Ok(None);
        }
        while let Some(channel) = self.channels.front() {
            match channel.recv() {
                Ok(OutputMessage::Block(mut block)) => {
                    let wanted = self.limit.map_or(u64::MAX, |limit| limit - self.taken_rows);
                    if block.rows as u64 > wanted {
                        block.truncate_rows(usize::try_from(wanted).unwrap_or(usize::MAX));
                    }
                    self.taken_rows += block.rows as u64;
                    return Ok(Some(block));
                }
                Ok(OutputMessage::PartitionEnd) => self.record_partition_end(),
                Ok(OutputMessage::Failed(error)) => {
                    self.channels.clear();
                    return Err(error);
                }
                Err(_) => {
                    self.channels.clear();
                    self.join_threads(true);
                    // A thread ends without a message only if another one failed before it.
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(None)
    }

    /// Records that a partition has been taken completely.
    fn record_partition_end(&mut self) {
        self.channels.pop_front();
        *self.progress.partitions_taken.lock() += 1;
        self.progress.progress_changed.notify_all();
    }

    /// Returns the disk operations of the sort so far.
    pub fn disk_counts(&self) -> DiskCounts {
        self.spill_storage.disk_counts()
    }

    /// Ends the sort after its last block, and compares the input with the output and with the records that a
    /// limit dropped. With blocks left it compares nothing.
    ///
    /// # Errors
    /// [`Error::ChecksumMismatch`].
    pub fn finish(mut self) -> Result<SortReport> {
        if self.is_within_limit && self.limit.is_some_and(|limit| self.taken_rows == limit) {
            while let Some(Ok(OutputMessage::PartitionEnd)) =
                self.channels.front().map(Receiver::recv)
            {
                self.record_partition_end();
            }
        }
        let whole = self.channels.is_empty();
        self.channels.clear();
        self.join_threads(true);
        let mut report = self.progress.report.lock().clone();
        report.input = self.input_checksum;
        report.disk = self.spill_storage.disk_counts();
        report.behind_limit = self.behind_limit;
        if whole {
            let mut out = report.output;
            out.merge(&report.dropped);
            out.merge(&report.behind_limit);
            // Skipped partitions count as behind the limit; nothing more is known of them.
            let lost = if self.skips_partitions {
                self.limit > Some(self.taken_rows)
            } else {
                out != report.input
            };
            if lost {
                return Err(Error::ChecksumMismatch {
                    rows_in: report.input.rows,
                    rows_out: out.rows,
                });
            }
        } else {
            report.output.rows = self.taken_rows;
        }
        Ok(report)
    }

    fn join_threads(&mut self, report_panics: bool) {
        self.progress.abandon();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && report_panics
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for SortedBlocks {
    fn drop(&mut self) {
        // This wakes waiting senders.
        self.channels.clear();
        self.join_threads(false);
    }
}

/// Records in memory with their entries, separated by partition.
struct MemoryPartitions {
    records: RecordBlocks<Vec<u8>>,
    /// Entries of each block by partition, and the start of each partition.
    block_entries: Vec<(Vec<SortEntry>, Vec<u32>)>,
    partition_count: usize,
}

impl MemoryPartitions {
    fn from_blocks<O: RecordOrder>(
        order: &O,
        shape: RecordShape,
        held: Vec<TaskBlock>,
        threads: usize,
        cancel: &SortCancelFlag,
    ) -> Result<Self> {
        let rows: usize = held.iter().map(|held| held.rows as usize).sum();
        let wanted = if rows < 2 * MEMORY_PARTITION_ROWS {
            1
        } else {
            (rows / MEMORY_PARTITION_ROWS).clamp(4 * threads, 1024)
        };
        let parts = CutPoints::from_quantiles(
            order,
            sample_records(shape, held.iter(), wanted * 32),
            wanted,
        );
        let count = parts.partition_count();
        let counts: Vec<usize> = held.iter().map(|held| held.rows as usize).collect();
        let rows =
            RecordBlocks { shape, blocks: held.into_iter().map(|held| held.bytes).collect() };
        let blocks = run_in_parallel(threads, counts.len(), |index| {
            cancel.check_cancelled()?;
            let bytes = &rows.blocks[index];
            let mut numbers: Vec<u16> = Vec::with_capacity(counts[index]);
            let mut entries = Vec::with_capacity(counts[index]);
            let mut starts = vec![0u32; count + 1];
            let mut offset = 0;
            while let Some((record, next)) = shape.read_record(bytes, offset) {
                let prefix = order.prefix(record);
                let part = parts.partition_index(order, record, prefix);
                numbers.push(part as u16);
                starts[part + 1] += 1;
                entries.push(SortEntry { prefix, position: encode_position(index, offset) });
                offset = next;
                if entries.len().is_multiple_of(8192) {
                    cancel.check_cancelled()?;
                }
            }
            for index in 1..starts.len() {
                starts[index] += starts[index - 1];
            }
            if count == 1 {
                return Ok((entries, starts));
            }
            let mut ordered = vec![SortEntry { prefix: 0, position: 0 }; entries.len()];
            let mut places = starts.clone();
            for (entry, part) in entries.iter().zip(&numbers) {
                let place = &mut places[usize::from(*part)];
                ordered[*place as usize] = *entry;
                *place += 1;
            }
            Ok((ordered, starts))
        })?;
        Ok(MemoryPartitions { records: rows, block_entries: blocks, partition_count: count })
    }
}

enum PartitionSource {
    Memory(MemoryPartitions),
    Spilled(Arc<FanOutPartitions>),
}

struct PartitionSorter<O> {
    order: Arc<O>,
    shape: RecordShape,
    framing: OutputFraming,
    stable: bool,
    unique: bool,
    cancel: SortCancelFlag,
    budget: SortBudget,
    /// Memory of each thread.
    thread_bytes: u64,
    output_block_bytes: usize,
    /// Maximum bytes that a thread copies of records in memory: a sixteenth of the memory for all threads.
    gather_bytes_max: usize,
    source: PartitionSource,
    spill_storage: Arc<SpillStorage>,
    attempts: HashMap<u64, u32>,
    next_partition: AtomicUsize,
    /// Maximum number of partitions that may be ahead of the consumer.
    partitions_ahead_max: usize,
    senders: Vec<Mutex<Option<SyncSender<OutputMessage>>>>,
    progress: Arc<OutputProgress>,
}

/// Maximum bytes of a partition whose records are copied to one place before sorting: more fits no cache.
const GATHER_BYTES_MAX: usize = 16 << 20;

/// Buffers that a thread reuses from one partition to the next.
#[derive(Default)]
struct WorkerBuffers {
    arena: Vec<u8>,
    entries: Vec<SortEntry>,
    scratch: Vec<SortEntry>,
}

/// A frame in an arena.
#[derive(Debug, Clone, Copy)]
struct ArenaFrame {
    task: u64,
    sequence: u32,
    preceding_bytes: u32,
    rows: u32,
    start: usize,
    end: usize,
}

impl<O: RecordOrder> PartitionSorter<O> {
    fn run_worker(&self) {
        let mut worker = WorkerBuffers::default();
        loop {
            let index = self.next_partition.fetch_add(1, Atomic::Relaxed);
            let Some(sender) = self.senders.get(index).and_then(|sender| sender.lock().take())
            else {
                return;
            };
            // Small partitions fit their channels whole: without this limit, everything would lie there.
            if !self.progress.wait_for_consumer(index, self.partitions_ahead_max) {
                return;
            }
            let mut outlet = PartitionOutput::new(self, &sender);
            let done = match &self.source {
                PartitionSource::Memory(memory) => {
                    self.emit_memory_partition(memory, index, &mut worker, &mut outlet)
                }
                PartitionSource::Spilled(fan_out) => {
                    let partition = mem::take(&mut *fan_out.partitions[index].lock());
                    self.emit_spilled_partition(
                        partition,
                        fan_out.cut_points.is_tied_partition(index),
                        &mut worker,
                        &mut outlet,
                    )
                }
            };
            let done = done.and_then(|()| outlet.finish());
            let message = match done {
                Ok(()) => OutputMessage::PartitionEnd,
                Err(OutputHalt::ConsumerGone) => return,
                Err(OutputHalt::Failed(error)) => OutputMessage::Failed(error),
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    }

    fn emit_memory_partition(
        &self,
        memory: &MemoryPartitions,
        index: usize,
        worker: &mut WorkerBuffers,
        outlet: &mut PartitionOutput<'_, O>,
    ) -> OutputResult {
        let WorkerBuffers { arena, entries, scratch } = worker;
        entries.clear();
        let pieces = memory
            .block_entries
            .iter()
            .map(|(entries, starts)| &entries[starts[index] as usize..starts[index + 1] as usize]);
        entries.reserve_exact(pieces.clone().map(<[SortEntry]>::len).sum());
        pieces.for_each(|piece| entries.extend_from_slice(piece));
        match self.gather_records(&memory.records, entries, arena, scratch) {
            Some(rows) => self.sort_and_emit(&rows, entries, scratch, outlet),
            None => self.sort_and_emit(&memory.records, entries, scratch, outlet),
        }
    }

    /// Copies a partition's records to one place, where a processor's caches keep them while they are
    /// compared and passed on: reads from the input's blocks would wait each time. `None` if the partition is
    /// too large.
    fn gather_records<'a>(
        &self,
        rows: &RecordBlocks<Vec<u8>>,
        entries: &mut [SortEntry],
        arena: &'a mut Vec<u8>,
        scratch: &mut Vec<SortEntry>,
    ) -> Option<RecordBlocks<&'a [u8]>> {
        arena.clear();
        scratch.clear();
        scratch.reserve_exact(entries.len());
        for some in entries.chunks(FETCHED_RECORDS) {
            for (record, entry) in rows.fetch_records(some).into_iter().zip(some) {
                if arena.len() + record.len() + 10 > self.gather_bytes_max {
                    return None;
                }
                scratch.push(SortEntry {
                    prefix: entry.prefix,
                    position: encode_position(0, arena.len()),
                });
                self.shape.push_record(record, arena);
            }
        }
        entries.copy_from_slice(scratch);
        Some(RecordBlocks { shape: self.shape, blocks: vec![arena.as_slice()] })
    }

    fn sort_and_emit<B: AsRef<[u8]>>(
        &self,
        rows: &RecordBlocks<B>,
        entries: &mut [SortEntry],
        scratch: &mut Vec<SortEntry>,
        outlet: &mut PartitionOutput<'_, O>,
    ) -> OutputResult {
        let sorting = EntrySorter {
            order: &*self.order,
            records: rows,
            stable: self.stable,
            cancel: &self.cancel,
        };
        sorting.sort(entries, scratch)?;
        for some in entries.chunks(FETCHED_RECORDS) {
            for record in &rows.fetch_records(some)[..some.len()] {
                outlet.push(record)?;
            }
        }
        Ok(())
    }

    fn emit_spilled_partition(
        &self,
        partition: SpillPartition,
        ties: bool,
        worker: &mut WorkerBuffers,
        outlet: &mut PartitionOutput<'_, O>,
    ) -> OutputResult {
        let need = partition.sort_memory_bytes();
        let number = partition.number;
        if ties && !(self.stable && partition.out_of_order) {
            self.progress.report.lock().partitions_tied += 1;
            self.emit_tied_partition(partition, number, worker, outlet)
        } else if need <= self.thread_bytes {
            let mut chunk = FrameArena::new(&mut worker.arena);
            for (extent, _) in &partition.extents {
                chunk.read_extent(self, extent, number)?;
            }
            chunk.add_buffered_frames(self, &partition.buffer, number)?;
            drop(partition);
            let frames = mem::take(&mut chunk.frames);
            let rows = chunk.record_blocks(self.shape);
            self.build_entries(&rows, frames, &mut worker.entries)?;
            self.sort_and_emit(&rows, &mut worker.entries, &mut worker.scratch, outlet)
        } else {
            self.progress.report.lock().partitions_merged += 1;
            let runs = self.write_runs(partition, number, worker)?;
            // Large buffers would add to the buffers of the merge.
            *worker = WorkerBuffers::default();
            self.merge_runs(runs, outlet)
        }
    }

    /// Emits records that all tie without sorting them.
    fn emit_tied_partition(
        &self,
        partition: SpillPartition,
        number: u32,
        worker: &mut WorkerBuffers,
        outlet: &mut PartitionOutput<'_, O>,
    ) -> OutputResult {
        for piece in partition.extents.iter().map(|(extent, _)| Some(extent)).chain([None]) {
            let mut chunk = FrameArena::new(&mut worker.arena);
            match piece {
                Some(extent) => chunk.read_extent(self, extent, number)?,
                None => chunk.add_buffered_frames(self, &partition.buffer, number)?,
            }
            let frames = mem::take(&mut chunk.frames);
            let rows = chunk.record_blocks(self.shape);
            self.build_entries(&rows, frames, &mut worker.entries)?;
            for entry in &worker.entries {
                outlet.push(rows.record_at(entry.position))?;
            }
        }
        Ok(())
    }

    /// Builds the entries of all records of some frames, in the order of the input.
    fn build_entries(
        &self,
        rows: &RecordBlocks<&[u8]>,
        mut frames: Vec<ArenaFrame>,
        entries: &mut Vec<SortEntry>,
    ) -> Result<()> {
        if self.stable {
            frames.sort_by_key(|frame| (frame.task, frame.sequence, frame.preceding_bytes));
        }
        entries.clear();
        entries.reserve_exact(frames.iter().map(|frame| frame.rows as usize).sum());
        for frame in frames {
            self.cancel.check_cancelled()?;
            let bytes = &rows.blocks[0][..frame.end];
            let mut offset = frame.start;
            for _ in 0..frame.rows {
                let Some((record, next)) = self.shape.read_record(bytes, offset) else { break };
                entries.push(SortEntry {
                    prefix: self.order.prefix(record),
                    position: encode_position(0, offset),
                });
                offset = next;
            }
        }
        Ok(())
    }

    /// Writes sorted runs of a partition, each as large as the share allows.
    fn write_runs(
        &self,
        mut partition: SpillPartition,
        number: u32,
        worker: &mut WorkerBuffers,
    ) -> Result<VecDeque<SpilledRun>> {
        let mut runs = VecDeque::new();
        let mut extents = mem::take(&mut partition.extents).into_iter().peekable();
        let cost = |bytes: usize, rows: u64| bytes as u64 + rows * SORT_BYTES_PER_ROW;
        loop {
            let mut chunk = FrameArena::new(&mut worker.arena);
            let mut used = 0;
            // One buffer for the writes of the run.
            let share = self.thread_bytes.saturating_sub(self.budget.buffer_bytes() as u64);
            while let Some((extent, rows)) = extents.peek() {
                let more = cost(extent.bytes, *rows);
                if used > 0 && used + more > share {
                    break;
                }
                chunk.read_extent(self, extent, number)?;
                used += more;
                extents.next();
            }
            if extents.peek().is_none() {
                let more = cost(partition.buffer.len(), partition.buffer_rows);
                if used == 0 || used + more <= share {
                    chunk.add_buffered_frames(self, &mem::take(&mut partition.buffer), number)?;
                    partition.buffer_rows = 0;
                }
            }
            if !chunk.frames.is_empty() {
                runs.push_back(self.write_run(chunk, &mut worker.entries, &mut worker.scratch)?);
            }
            if extents.peek().is_none() && partition.buffer.is_empty() {
                return Ok(runs);
            }
        }
    }

    fn write_run(
        &self,
        mut chunk: FrameArena<'_>,
        entries: &mut Vec<SortEntry>,
        scratch: &mut Vec<SortEntry>,
    ) -> Result<SpilledRun> {
        let mut frames = mem::take(&mut chunk.frames);
        let rows = chunk.record_blocks(self.shape);
        self.build_entries(&rows, frames.clone(), entries)?;
        let sorting = EntrySorter {
            order: &*self.order,
            records: &rows,
            stable: self.stable,
            cancel: &self.cancel,
        };
        sorting.sort(entries, scratch)?;
        frames.sort_by_key(|frame| frame.start);
        let mut writer = RunWriter::new(self);
        for entry in entries {
            let ordinal = if self.stable {
                let offset = entry.position as usize;
                let index = frames.partition_point(|frame| frame.start <= offset).saturating_sub(1);
                frames.get(index).map_or(0, |frame| {
                    let offset = u128::from(frame.preceding_bytes) + (offset - frame.start) as u128;
                    u128::from(frame.task) << 64 | u128::from(frame.sequence) << 32 | offset
                })
            } else {
                0
            };
            writer.push(rows.record_at(entry.position), ordinal)?;
        }
        writer.finish()
    }

    /// Merges runs into the output; first merges to longer runs if there are more than fit at once.
    fn merge_runs(
        &self,
        mut runs: VecDeque<SpilledRun>,
        outlet: &mut PartitionOutput<'_, O>,
    ) -> OutputResult {
        let buffer = self.budget.buffer_bytes() as u64;
        let fan_in = usize::try_from(self.thread_bytes / buffer)
            .unwrap_or(usize::MAX)
            .saturating_sub(1)
            .max(2);
        while runs.len() > fan_in {
            // As few as leave a whole number of full merges: the shortest runs, which are in front.
            let count = (runs.len() - fan_in + 1).min(fan_in);
            let mut tree = self.open_loser_tree(runs.drain(..count))?;
            let mut writer = RunWriter::new(self);
            while let Some(source) = tree.winner() {
                if let Some(record) = source.head() {
                    writer.push(record, source.ordinal())?;
                }
                tree.advance()?;
            }
            runs.push_back(writer.finish()?);
            self.progress.report.lock().merges += 1;
        }
        let mut tree = self.open_loser_tree(runs.into_iter())?;
        while let Some(source) = tree.winner() {
            if let Some(record) = source.head() {
                outlet.push(record)?;
            }
            tree.advance()?;
        }
        Ok(())
    }

    fn open_loser_tree(
        &self,
        runs: impl Iterator<Item = SpilledRun>,
    ) -> Result<LoserTree<'_, O, RunReader<'_, O>>> {
        let sources = runs.map(|run| RunReader::new(self, run)).collect::<Result<_>>()?;
        Ok(LoserTree::new(&*self.order, sources))
    }

    /// Reads an extent and passes its frames to `each`; uses the copy if the extent is damaged.
    fn read_frames(
        &self,
        extent: &SpillExtent,
        into: &mut [u8],
        number: u32,
        mut each: impl FnMut(FrameHeader, Range<usize>),
    ) -> Result<()> {
        self.cancel.check_cancelled()?;
        let damage = match self.spill_storage.read_extent(extent, into) {
            Ok(()) => match parse_frames(into, number, &mut each) {
                Ok(()) => {
                    self.spill_storage.free_extent(extent);
                    return Ok(());
                }
                Err((offset, damage)) => Error::CorruptSpill {
                    folder: self.spill_storage.extent_folder(extent).to_path_buf(),
                    offset: extent.offset + offset as u64,
                    task: damage.task,
                    reason: damage.reason,
                },
            },
            Err(error) => error,
        };
        if !self.spill_storage.read_copy(extent, into)?
            || parse_frames(into, number, &mut each).is_err()
        {
            return Err(damage);
        }
        self.spill_storage.free_extent(extent);
        Ok(())
    }
}

/// Parses all frames of a buffer and passes them to `each`. On damage returns its offset, and passes none.
fn parse_frames(
    bytes: &[u8],
    number: u32,
    each: &mut impl FnMut(FrameHeader, Range<usize>),
) -> Result<(), (usize, spill_frame::FrameDamage)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        let (header, records) =
            spill_frame::parse_frame(bytes, offset, number).map_err(|damage| (offset, damage))?;
        offset = records.end;
        found.push((header, records));
    }
    found.into_iter().for_each(|(header, range)| each(header, range));
    Ok(())
}

/// Frames of a partition, read one after another into an arena.
struct FrameArena<'a> {
    arena: &'a mut Vec<u8>,
    used_bytes: usize,
    frames: Vec<ArenaFrame>,
}

impl<'a> FrameArena<'a> {
    fn new(arena: &'a mut Vec<u8>) -> Self {
        FrameArena { arena, used_bytes: 0, frames: Vec::new() }
    }

    /// Reserves `bytes` more; overwrites contents of an earlier use.
    fn reserve(&mut self, bytes: usize) -> usize {
        let start = self.used_bytes;
        self.used_bytes += bytes;
        if self.arena.len() < self.used_bytes {
            self.arena.reserve_exact(self.used_bytes - self.arena.len());
            self.arena.resize(self.used_bytes, 0);
        }
        start
    }

    fn read_extent<O: RecordOrder>(
        &mut self,
        drain: &PartitionSorter<O>,
        extent: &SpillExtent,
        number: u32,
    ) -> Result<()> {
        let start = self.reserve(extent.bytes);
        let FrameArena { arena, used_bytes: used, frames } = self;
        let attempts = &drain.attempts;
        drain.read_frames(extent, &mut arena[start..*used], number, |header, range| {
            collect_committed_frame(attempts, frames, start, header, range);
        })
    }

    /// Adds frames that were never written to disk.
    fn add_buffered_frames<O: RecordOrder>(
        &mut self,
        drain: &PartitionSorter<O>,
        bytes: &[u8],
        number: u32,
    ) -> Result<()> {
        let start = self.reserve(bytes.len());
        self.arena[start..self.used_bytes].copy_from_slice(bytes);
        let (attempts, frames) = (&drain.attempts, &mut self.frames);
        let mut each =
            |header, range| collect_committed_frame(attempts, frames, start, header, range);
        parse_frames(bytes, number, &mut each).map_err(|(offset, damage)| Error::CorruptSpill {
            folder: "memory".into(),
            offset: offset as u64,
            task: damage.task,
            reason: damage.reason,
        })
    }

    fn record_blocks(&self, shape: RecordShape) -> RecordBlocks<&[u8]> {
        RecordBlocks { shape, blocks: vec![&self.arena[..self.used_bytes]] }
    }
}

fn collect_committed_frame(
    attempts: &HashMap<u64, u32>,
    frames: &mut Vec<ArenaFrame>,
    base: usize,
    header: FrameHeader,
    range: Range<usize>,
) {
    let FrameHeader { task, attempt, sequence, preceding_bytes: before, rows, .. } = header;
    if attempts.get(&task) == Some(&attempt) {
        frames.push(ArenaFrame {
            task,
            sequence,
            preceding_bytes: before,
            rows,
            start: base + range.start,
            end: base + range.end,
        });
    }
}

/// A sorted run on disk.
struct SpilledRun {
    extents: VecDeque<SpillExtent>,
}

struct RunWriter<'a, O> {
    sorter: &'a PartitionSorter<O>,
    buffer: Vec<u8>,
    rows: u32,
    run: SpilledRun,
    duplicate_filter: DuplicateFilter,
    dropped: RecordChecksum,
}

impl<'a, O: RecordOrder> RunWriter<'a, O> {
    fn new(drain: &'a PartitionSorter<O>) -> Self {
        let mut buffer = Vec::with_capacity(drain.budget.buffer_bytes());
        spill_frame::begin_run_piece(&mut buffer);
        let run = SpilledRun { extents: VecDeque::new() };
        RunWriter {
            sorter: drain,
            buffer,
            rows: 0,
            run,
            duplicate_filter: DuplicateFilter::default(),
            dropped: RecordChecksum::default(),
        }
    }

    fn push(&mut self, record: &[u8], ordinal: u128) -> Result<()> {
        if self.sorter.unique && !self.duplicate_filter.is_new(&*self.sorter.order, record) {
            self.dropped.add_record(record);
            return Ok(());
        }
        if self.sorter.stable {
            self.buffer.extend_from_slice(&ordinal.to_le_bytes());
        }
        self.sorter.shape.push_record(record, &mut self.buffer);
        self.rows += 1;
        if self.buffer.len() >= self.sorter.budget.write_bytes {
            self.write_piece()?;
        }
        Ok(())
    }

    fn write_piece(&mut self) -> Result<()> {
        self.sorter.cancel.check_cancelled()?;
        spill_frame::finish_run_piece(&mut self.buffer, self.rows);
        self.run.extents.push_back(self.sorter.spill_storage.write_extent(&self.buffer)?);
        spill_frame::begin_run_piece(&mut self.buffer);
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<SpilledRun> {
        if self.rows > 0 {
            self.write_piece()?;
        }
        let mut report = self.sorter.progress.report.lock();
        report.runs += 1;
        report.dropped.merge(&self.dropped);
        Ok(self.run)
    }
}

struct RunReader<'a, O> {
    sorter: &'a PartitionSorter<O>,
    run: SpilledRun,
    block: Vec<u8>,
    /// Offset of the record after the head.
    next_offset: usize,
    head: Option<Range<usize>>,
    ordinal: u128,
}

impl<'a, O: RecordOrder> RunReader<'a, O> {
    fn new(drain: &'a PartitionSorter<O>, run: SpilledRun) -> Result<Self> {
        let mut reader = RunReader {
            sorter: drain,
            run,
            block: Vec::new(),
            next_offset: 0,
            head: None,
            ordinal: 0,
        };
        reader.advance()?;
        Ok(reader)
    }
}

impl<O: RecordOrder> MergeSource for RunReader<'_, O> {
    #[inline]
    fn head(&self) -> Option<&[u8]> {
        self.head.clone().map(|range| &self.block[range])
    }

    #[inline]
    fn ordinal(&self) -> u128 {
        self.ordinal
    }

    fn advance(&mut self) -> Result<()> {
        if self.next_offset >= self.block.len() {
            let Some(extent) = self.run.extents.pop_front() else {
                self.head = None;
                self.block = Vec::new();
                return Ok(());
            };
            self.block.resize(extent.bytes, 0);
            self.sorter.read_frames(
                &extent,
                &mut self.block,
                spill_frame::RUN_PARTITION,
                |_, _| {},
            )?;
            self.next_offset = spill_frame::RUN_HEADER_BYTES;
        }
        if self.sorter.stable {
            let bytes =
                self.block.get(self.next_offset..).and_then(|rest| rest.first_chunk::<16>());
            self.ordinal = bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes));
            self.next_offset += 16;
        }
        match self.sorter.shape.read_record(&self.block, self.next_offset) {
            Some((record, next)) => {
                self.head = Some(next - record.len()..next);
                self.next_offset = next;
            }
            // The checksum matched, so the data was written like this: the final checksums will differ.
            None => {
                self.head = None;
                self.next_offset = self.block.len();
            }
        }
        Ok(())
    }
}

/// Detects records that tie with the one before.
#[derive(Default)]
struct DuplicateFilter {
    last: Vec<u8>,
    has_last: bool,
}

impl DuplicateFilter {
    #[inline]
    fn is_new<O: RecordOrder>(&mut self, order: &O, record: &[u8]) -> bool {
        if self.has_last && order.compare(&self.last, record) == Ordering::Equal {
            return false;
        }
        self.has_last = true;
        self.last.clear();
        self.last.extend_from_slice(record);
        true
    }
}

/// Output of a partition's records into its channel.
struct PartitionOutput<'a, O> {
    sorter: &'a PartitionSorter<O>,
    sender: &'a SyncSender<OutputMessage>,
    block: Vec<u8>,
    rows: usize,
    duplicate_filter: DuplicateFilter,
    output: RecordChecksum,
    dropped: RecordChecksum,
}

impl<'a, O: RecordOrder> PartitionOutput<'a, O> {
    fn new(drain: &'a PartitionSorter<O>, sender: &'a SyncSender<OutputMessage>) -> Self {
        PartitionOutput {
            sorter: drain,
            sender,
            block: Vec::new(),
            rows: 0,
            duplicate_filter: DuplicateFilter::default(),
            output: RecordChecksum::default(),
            dropped: RecordChecksum::default(),
        }
    }

    #[inline]
    fn push(&mut self, record: &[u8]) -> OutputResult {
        if self.sorter.unique && !self.duplicate_filter.is_new(&*self.sorter.order, record) {
            self.dropped.add_record(record);
            return Ok(());
        }
        self.output.add_record(record);
        // A record takes at most one byte more, or its length prefix.
        if self.block.len() + record.len() + 10 > self.block.capacity() {
            self.send_block()?;
            self.block = Vec::with_capacity(self.sorter.output_block_bytes.max(record.len() + 10));
        }
        match self.sorter.framing {
            OutputFraming::LengthPrefixed => self.sorter.shape.push_record(record, &mut self.block),
            OutputFraming::Concatenated => self.block.extend_from_slice(record),
            OutputFraming::Terminated(byte) => {
                self.block.extend_from_slice(record);
                self.block.push(byte);
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn send_block(&mut self) -> OutputResult {
        self.sorter.cancel.check_cancelled()?;
        if self.rows == 0 {
            return Ok(());
        }
        let block = SortedBlock {
            bytes: mem::take(&mut self.block),
            rows: mem::take(&mut self.rows),
            framing: self.sorter.framing,
            shape: self.sorter.shape,
        };
        self.sender.send(OutputMessage::Block(block)).map_err(|_| OutputHalt::ConsumerGone)
    }

    fn finish(&mut self) -> OutputResult {
        self.send_block()?;
        let mut report = self.sorter.progress.report.lock();
        report.output.merge(&self.output);
        report.dropped.merge(&self.dropped);
        Ok(())
    }
}
