//! The second half of a sort: records come out, a part of the order at a time.
//!
//! Parts do not overlap, so each is sorted by itself, several at once, and they come out one behind
//! another: there is no merge of everything. Each part has a short channel for its output, which
//! the consumer empties in the order of the parts; a thread that is ahead waits at its channel.
//!
//! A part that was held in memory is entries that were put apart before. One that was spilled is
//! read whole when it fits its share of the memory; where all its records tie, it is passed on as it
//! is read; otherwise it is cut into runs as large as the share, which are merged.
//!
//! The pieces of a run are frames, too. In a stable sort each record is preceded there by 16
//! bytes, its place in the input:
//!
//! ```text
//!  run      [frame][frame]…        of Sizes::write_bytes, about
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

use crate::cancel::Cancel;
use crate::checksum::Checksum;
use crate::error::{Error, Result};
use crate::frame::{self, Header};
use crate::options::{SORT_BYTES_PER_ROW, Share, Sizes};
use crate::order::Order;
use crate::parts::Parts;
use crate::report::Report;
use crate::rows::{Entry, FETCHED, Rows, Shape, Sorting, place};
use crate::sorter::{FanOut, Held, Input, Partition, Sorted, in_parallel, sample};
use crate::space::{DiskCounts, Extent, Space};
use crate::tree::{Source, Tree};

/// Rows of a part in memory, about: their entries fit a processor's cache.
const PART_ROWS: usize = 1 << 15;

/// How records lie in what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One behind another; where they have no fixed size, nobody can tell them apart.
    Bare,
    /// Each is followed by this byte, which none should have.
    Terminated(u8),
    /// Each is preceded by its length where that is not fixed, so that any can be told apart.
    Announced,
}

/// Some records, in order.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    rows: usize,
    layout: Layout,
    shape: Shape,
}

impl Block {
    /// The records as they were wanted.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many records.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The records, one by one; of those that are bare and of no fixed size all as one.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let (record, next) = self.record(offset)?;
            offset = next;
            Some(record)
        })
    }

    fn record(&self, offset: usize) -> Option<(&[u8], usize)> {
        let rest = self.bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        match (self.layout, self.shape) {
            (Layout::Bare, Shape::Variable) => Some((rest, self.bytes.len())),
            (Layout::Bare | Layout::Announced, _) => self.shape.next(&self.bytes, offset),
            (Layout::Terminated(byte), _) => {
                let length = match self.shape {
                    Shape::Fixed(size) => size,
                    Shape::Variable => memchr::memchr(byte, rest)?,
                };
                Some((rest.get(..length)?, offset + length + 1))
            }
        }
    }

    fn truncate(&mut self, rows: usize) {
        let mut offset = 0;
        for _ in 0..rows {
            let Some((_, next)) = self.record(offset) else { break };
            offset = next;
        }
        self.bytes.truncate(offset);
        self.rows = rows;
    }
}

enum Message {
    Block(Block),
    End,
    Failed(Error),
}

/// What ends a thread's work.
enum Halt {
    /// Nobody wants the rest.
    Gone,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Failed(error)
    }
}

type Work<T = ()> = Result<T, Halt>;

/// What the threads report.
#[derive(Default)]
struct Totals {
    report: Mutex<Report>,
    gone: AtomicBool,
    /// How many parts the consumer has taken all of.
    taken: Mutex<usize>,
    moved: Condvar,
}

impl Totals {
    /// Waits until the consumer is less than `window` parts behind; `false` where it is gone.
    fn wait(&self, part: usize, window: usize) -> bool {
        let mut taken = self.taken.lock();
        while part >= *taken + window && !self.gone.load(Atomic::Relaxed) {
            self.moved.wait(&mut taken);
        }
        !self.gone.load(Atomic::Relaxed)
    }

    fn go(&self) {
        let taken = self.taken.lock();
        self.gone.store(true, Atomic::Relaxed);
        drop(taken);
        self.moved.notify_all();
    }
}

/// Sorted records in blocks. Dropping it stops the threads and removes what was spilled.
pub struct Blocks {
    channels: VecDeque<Receiver<Message>>,
    threads: Vec<JoinHandle<()>>,
    totals: Arc<Totals>,
    space: Arc<Space>,
    committed: Checksum,
    cancel: Cancel,
    limit: Option<u64>,
    /// No more records than the limit are left, so that all come out.
    is_exact: bool,
    /// There are partitions that nobody asks for.
    is_cut: bool,
    behind: Checksum,
    taken: u64,
}

impl Blocks {
    pub(crate) fn start<O: Order>(sorted: Sorted<O>, layout: Layout) -> Result<Self> {
        let Sorted { order, shape, options, sizes, space, attempts, committed, ledger, input } =
            sorted;
        let totals = Arc::<Totals>::default();
        let limit = options.limit();
        let wanted = match (&input, limit) {
            (Input::Spilled(fan_out), Some(limit)) => {
                ledger.last_wanted(&fan_out.numbers, limit).map(|last| last + 1)
            }
            _ => None,
        };
        let held_rows: u64 = match &input {
            Input::Memory(held) => held.iter().map(|held| u64::from(held.rows)).sum(),
            Input::Spilled(_) => u64::MAX,
        };
        let (stage, count, share) = match input {
            Input::Memory(held) => {
                let memory =
                    Memory::prepare(&*order, shape, held, options.threads, &options.cancel)?;
                let count = memory.count;
                let share = Share {
                    threads: options.threads,
                    part_bytes: 0,
                    block_bytes: sizes.write_bytes.min(256 << 10),
                };
                (Stage::Memory(memory), count, share)
            }
            Input::Spilled(fan_out) => {
                let (mut tails, mut needs) = (0, Vec::new());
                let count = wanted.unwrap_or(fan_out.partitions.len());
                for (index, partition) in fan_out.partitions.iter().enumerate() {
                    let mut partition = partition.lock();
                    if index >= count {
                        // Nobody will ask for it.
                        *partition = Partition::default();
                        continue;
                    }
                    partition.buffer.shrink_to_fit();
                    tails += partition.buffer.len() as u64;
                    if !fan_out.parts.ties(index) {
                        needs.push(partition.need());
                    }
                }
                let share = sizes.best_share(options.threads, tails, &needs);
                totals.report.lock().partitions = fan_out.partitions.len() as u64;
                (Stage::Spilled(fan_out), count, share)
            }
        };
        let threads = share.threads.min(count).max(1);
        let (senders, channels): (Vec<_>, VecDeque<_>) =
            (0..count).map(|_| sync_channel(2)).unzip();
        let drain = Arc::new(Drain {
            order,
            shape,
            layout,
            stable: options.stable || options.unique,
            unique: options.unique,
            cancel: options.cancel.clone(),
            sizes,
            share: share.part_bytes,
            block_bytes: share.block_bytes,
            together_bytes: usize::try_from(sizes.memory_bytes / 16 / threads.max(1) as u64)
                .unwrap_or(usize::MAX)
                .min(TOGETHER_BYTES_MAX),
            stage,
            space: Arc::clone(&space),
            attempts,
            next: AtomicUsize::new(0),
            window: threads + 2,
            senders: senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect(),
            totals: Arc::clone(&totals),
        });
        let mut blocks = Blocks {
            channels,
            threads: Vec::with_capacity(threads),
            totals,
            space,
            committed,
            cancel: options.cancel,
            limit: options.limit,
            is_exact: options.limit.is_some_and(|limit| held_rows <= limit),
            is_cut: wanted.is_some(),
            behind: ledger.behind,
            taken: 0,
        };
        for index in 0..threads {
            let drain = Arc::clone(&drain);
            let thread = std::thread::Builder::new()
                .name(format!("sort-{index}"))
                .spawn(move || drain.run());
            match thread {
                Ok(thread) => blocks.threads.push(thread),
                // The others do its work.
                Err(_) if index > 0 => break,
                Err(error) => return Err(Error::io("start a thread of", "the sort", error)),
            }
        }
        Ok(blocks)
    }

    /// The next block, which is not empty; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`], [`Error::DiskFull`] where runs have to be written,
    /// [`Error::Cancelled`].
    #[expect(clippy::should_implement_trait, reason = "it fails, and is asked again")]
    pub fn next(&mut self) -> Result<Option<Block>> {
        self.cancel.check()?;
        if self.limit.is_some_and(|limit| self.taken >= limit) {
            return Ok(None);
        }
        while let Some(channel) = self.channels.front() {
            match channel.recv() {
                Ok(Message::Block(mut block)) => {
                    let wanted = self.limit.map_or(u64::MAX, |limit| limit - self.taken);
                    if block.rows as u64 > wanted {
                        block.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
                    }
                    self.taken += block.rows as u64;
                    return Ok(Some(block));
                }
                Ok(Message::End) => self.take_end(),
                Ok(Message::Failed(error)) => {
                    self.channels.clear();
                    return Err(error);
                }
                Err(_) => {
                    self.channels.clear();
                    self.join(true);
                    // A thread ends without a word only where another one failed before it.
                    return Err(Error::Cancelled);
                }
            }
        }
        Ok(None)
    }

    /// All of a part has been taken.
    fn take_end(&mut self) {
        self.channels.pop_front();
        *self.totals.taken.lock() += 1;
        self.totals.moved.notify_all();
    }

    /// What the sort has written and read by now.
    pub fn disk_counts(&self) -> DiskCounts {
        self.space.counts()
    }

    /// Ends the sort after its last block, and compares what went in with what came out and what a limit
    /// dropped. With blocks left there is nothing to compare.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub fn finish(mut self) -> Result<Report> {
        if self.is_exact && self.limit.is_some_and(|limit| self.taken == limit) {
            while let Some(Ok(Message::End)) = self.channels.front().map(Receiver::recv) {
                self.take_end();
            }
        }
        let whole = self.channels.is_empty();
        self.channels.clear();
        self.join(true);
        let mut report = self.totals.report.lock().clone();
        report.input = self.committed;
        report.disk = self.space.counts();
        report.behind_limit = self.behind;
        if whole {
            let mut out = report.output;
            out.merge(&report.dropped);
            out.merge(&report.behind_limit);
            // Partitions that are left out were, as far as anybody knows, behind the limit.
            let lost =
                if self.is_cut { self.limit > Some(self.taken) } else { out != report.input };
            if lost {
                return Err(Error::Mismatch { rows_in: report.input.rows, rows_out: out.rows });
            }
        } else {
            report.output.rows = self.taken;
        }
        Ok(report)
    }

    fn join(&mut self, report_panics: bool) {
        self.totals.go();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && report_panics
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // Senders that wait are told by this.
        self.channels.clear();
        self.join(false);
    }
}

/// Records in memory, their entries put apart.
struct Memory {
    rows: Rows<Vec<u8>>,
    /// Of each block: entries by part, and where each part starts.
    blocks: Vec<(Vec<Entry>, Vec<u32>)>,
    count: usize,
}

impl Memory {
    fn prepare<O: Order>(
        order: &O,
        shape: Shape,
        held: Vec<Held>,
        threads: usize,
        cancel: &Cancel,
    ) -> Result<Self> {
        let rows: usize = held.iter().map(|held| held.rows as usize).sum();
        let wanted =
            if rows < 2 * PART_ROWS { 1 } else { (rows / PART_ROWS).clamp(4 * threads, 1024) };
        let parts = Parts::choose(order, sample(shape, held.iter(), wanted * 32), wanted);
        let count = parts.count();
        let counts: Vec<usize> = held.iter().map(|held| held.rows as usize).collect();
        let rows = Rows { shape, blocks: held.into_iter().map(|held| held.bytes).collect() };
        let blocks = in_parallel(threads, counts.len(), |index| {
            cancel.check()?;
            let bytes = &rows.blocks[index];
            let mut numbers: Vec<u16> = Vec::with_capacity(counts[index]);
            let mut entries = Vec::with_capacity(counts[index]);
            let mut starts = vec![0u32; count + 1];
            let mut offset = 0;
            while let Some((record, next)) = shape.next(bytes, offset) {
                let prefix = order.prefix(record);
                let part = parts.of(order, record, prefix);
                numbers.push(part as u16);
                starts[part + 1] += 1;
                entries.push(Entry { prefix, at: place(index, offset) });
                offset = next;
                if entries.len().is_multiple_of(8192) {
                    cancel.check()?;
                }
            }
            for index in 1..starts.len() {
                starts[index] += starts[index - 1];
            }
            if count == 1 {
                return Ok((entries, starts));
            }
            let mut ordered = vec![Entry { prefix: 0, at: 0 }; entries.len()];
            let mut places = starts.clone();
            for (entry, part) in entries.iter().zip(&numbers) {
                let place = &mut places[usize::from(*part)];
                ordered[*place as usize] = *entry;
                *place += 1;
            }
            Ok((ordered, starts))
        })?;
        Ok(Memory { rows, blocks, count })
    }
}

enum Stage {
    Memory(Memory),
    Spilled(Arc<FanOut>),
}

struct Drain<O> {
    order: Arc<O>,
    shape: Shape,
    layout: Layout,
    stable: bool,
    unique: bool,
    cancel: Cancel,
    sizes: Sizes,
    /// The memory of each thread.
    share: u64,
    block_bytes: usize,
    /// What a thread may copy of records that are in memory anyway: all of them a sixteenth of it.
    together_bytes: usize,
    stage: Stage,
    space: Arc<Space>,
    attempts: HashMap<u64, u32>,
    next: AtomicUsize,
    /// How many parts may be ahead of the consumer.
    window: usize,
    senders: Vec<Mutex<Option<SyncSender<Message>>>>,
    totals: Arc<Totals>,
}

/// What a part's records take at most that are copied to one place before they are sorted: more is in no cache.
const TOGETHER_BYTES_MAX: usize = 16 << 20;

/// What a thread keeps from one part to the next.
#[derive(Default)]
struct Worker {
    arena: Vec<u8>,
    entries: Vec<Entry>,
    scratch: Vec<Entry>,
}

/// A frame in an arena.
#[derive(Debug, Clone, Copy)]
struct FrameAt {
    task: u64,
    sequence: u32,
    before: u32,
    rows: u32,
    start: usize,
    end: usize,
}

impl<O: Order> Drain<O> {
    fn run(&self) {
        let mut worker = Worker::default();
        loop {
            let index = self.next.fetch_add(1, Atomic::Relaxed);
            let Some(sender) = self.senders.get(index).and_then(|sender| sender.lock().take())
            else {
                return;
            };
            // Small parts fit their channels whole: without this, everything would lie there.
            if !self.totals.wait(index, self.window) {
                return;
            }
            let mut outlet = Outlet::new(self, &sender);
            let done = match &self.stage {
                Stage::Memory(memory) => {
                    self.part_in_memory(memory, index, &mut worker, &mut outlet)
                }
                Stage::Spilled(fan_out) => {
                    let partition = mem::take(&mut *fan_out.partitions[index].lock());
                    self.partition(partition, fan_out.parts.ties(index), &mut worker, &mut outlet)
                }
            };
            let done = done.and_then(|()| outlet.end());
            let message = match done {
                Ok(()) => Message::End,
                Err(Halt::Gone) => return,
                Err(Halt::Failed(error)) => Message::Failed(error),
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    }

    fn part_in_memory(
        &self,
        memory: &Memory,
        index: usize,
        worker: &mut Worker,
        outlet: &mut Outlet<'_, O>,
    ) -> Work {
        let Worker { arena, entries, scratch } = worker;
        entries.clear();
        let pieces = memory
            .blocks
            .iter()
            .map(|(entries, starts)| &entries[starts[index] as usize..starts[index + 1] as usize]);
        entries.reserve_exact(pieces.clone().map(<[Entry]>::len).sum());
        pieces.for_each(|piece| entries.extend_from_slice(piece));
        match self.together(&memory.rows, entries, arena, scratch) {
            Some(rows) => self.sort_and_emit(&rows, entries, scratch, outlet),
            None => self.sort_and_emit(&memory.rows, entries, scratch, outlet),
        }
    }

    /// Copies a part's records to one place, where a processor's caches have them while they are compared and handed
    /// on: in the input's blocks each would be waited for each time. Not of a part that is much larger than others.
    fn together<'a>(
        &self,
        rows: &Rows<Vec<u8>>,
        entries: &mut [Entry],
        arena: &'a mut Vec<u8>,
        scratch: &mut Vec<Entry>,
    ) -> Option<Rows<&'a [u8]>> {
        arena.clear();
        scratch.clear();
        scratch.reserve_exact(entries.len());
        for some in entries.chunks(FETCHED) {
            for (record, entry) in rows.some(some).into_iter().zip(some) {
                if arena.len() + record.len() + 10 > self.together_bytes {
                    return None;
                }
                scratch.push(Entry { prefix: entry.prefix, at: place(0, arena.len()) });
                self.shape.store(record, arena);
            }
        }
        entries.copy_from_slice(scratch);
        Some(Rows { shape: self.shape, blocks: vec![arena.as_slice()] })
    }

    fn sort_and_emit<B: AsRef<[u8]>>(
        &self,
        rows: &Rows<B>,
        entries: &mut [Entry],
        scratch: &mut Vec<Entry>,
        outlet: &mut Outlet<'_, O>,
    ) -> Work {
        let sorting =
            Sorting { order: &*self.order, rows, stable: self.stable, cancel: &self.cancel };
        sorting.sort(entries, scratch)?;
        for some in entries.chunks(FETCHED) {
            for record in &rows.some(some)[..some.len()] {
                outlet.put(record)?;
            }
        }
        Ok(())
    }

    fn partition(
        &self,
        partition: Partition,
        ties: bool,
        worker: &mut Worker,
        outlet: &mut Outlet<'_, O>,
    ) -> Work {
        let need = partition.need();
        let number = partition.number;
        if ties && !(self.stable && partition.out_of_order) {
            self.totals.report.lock().partitions_tied += 1;
            self.pass_on(partition, number, worker, outlet)
        } else if need <= self.share {
            let mut chunk = Chunk::new(&mut worker.arena);
            for (extent, _) in &partition.extents {
                chunk.read(self, extent, number)?;
            }
            chunk.add(self, &partition.buffer, number)?;
            drop(partition);
            let frames = mem::take(&mut chunk.frames);
            let rows = chunk.rows(self.shape);
            self.entries(&rows, frames, &mut worker.entries)?;
            self.sort_and_emit(&rows, &mut worker.entries, &mut worker.scratch, outlet)
        } else {
            self.totals.report.lock().partitions_merged += 1;
            let runs = self.cut(partition, number, worker)?;
            // What was large for runs would be beside their buffers.
            *worker = Worker::default();
            self.merge(runs, outlet)
        }
    }

    /// Records that all tie, as they are.
    fn pass_on(
        &self,
        partition: Partition,
        number: u32,
        worker: &mut Worker,
        outlet: &mut Outlet<'_, O>,
    ) -> Work {
        for piece in partition.extents.iter().map(|(extent, _)| Some(extent)).chain([None]) {
            let mut chunk = Chunk::new(&mut worker.arena);
            match piece {
                Some(extent) => chunk.read(self, extent, number)?,
                None => chunk.add(self, &partition.buffer, number)?,
            }
            let frames = mem::take(&mut chunk.frames);
            let rows = chunk.rows(self.shape);
            self.entries(&rows, frames, &mut worker.entries)?;
            for entry in &worker.entries {
                outlet.put(rows.record(entry.at))?;
            }
        }
        Ok(())
    }

    /// The entries of some frames, of all their records in the order of the input.
    fn entries(
        &self,
        rows: &Rows<&[u8]>,
        mut frames: Vec<FrameAt>,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        if self.stable {
            frames.sort_by_key(|frame| (frame.task, frame.sequence, frame.before));
        }
        entries.clear();
        entries.reserve_exact(frames.iter().map(|frame| frame.rows as usize).sum());
        for frame in frames {
            self.cancel.check()?;
            let bytes = &rows.blocks[0][..frame.end];
            let mut offset = frame.start;
            for _ in 0..frame.rows {
                let Some((record, next)) = self.shape.next(bytes, offset) else { break };
                entries.push(Entry { prefix: self.order.prefix(record), at: place(0, offset) });
                offset = next;
            }
        }
        Ok(())
    }

    /// Sorted runs of a partition, each as large as the share allows.
    fn cut(
        &self,
        mut partition: Partition,
        number: u32,
        worker: &mut Worker,
    ) -> Result<VecDeque<Run>> {
        let mut runs = VecDeque::new();
        let mut extents = mem::take(&mut partition.extents).into_iter().peekable();
        let cost = |bytes: usize, rows: u64| bytes as u64 + rows * SORT_BYTES_PER_ROW;
        loop {
            let mut chunk = Chunk::new(&mut worker.arena);
            let mut used = 0;
            // One buffer for the run's writes.
            let share = self.share.saturating_sub(self.sizes.buffer_bytes() as u64);
            while let Some((extent, rows)) = extents.peek() {
                let more = cost(extent.bytes, *rows);
                if used > 0 && used + more > share {
                    break;
                }
                chunk.read(self, extent, number)?;
                used += more;
                extents.next();
            }
            if extents.peek().is_none() {
                let more = cost(partition.buffer.len(), partition.buffer_rows);
                if used == 0 || used + more <= share {
                    chunk.add(self, &mem::take(&mut partition.buffer), number)?;
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
        mut chunk: Chunk<'_>,
        entries: &mut Vec<Entry>,
        scratch: &mut Vec<Entry>,
    ) -> Result<Run> {
        let mut frames = mem::take(&mut chunk.frames);
        let rows = chunk.rows(self.shape);
        self.entries(&rows, frames.clone(), entries)?;
        let sorting =
            Sorting { order: &*self.order, rows: &rows, stable: self.stable, cancel: &self.cancel };
        sorting.sort(entries, scratch)?;
        frames.sort_by_key(|frame| frame.start);
        let mut writer = RunWriter::new(self);
        for entry in entries {
            let ordinal = if self.stable {
                let offset = entry.at as usize;
                let index = frames.partition_point(|frame| frame.start <= offset).saturating_sub(1);
                frames.get(index).map_or(0, |frame| {
                    let offset = u128::from(frame.before) + (offset - frame.start) as u128;
                    u128::from(frame.task) << 64 | u128::from(frame.sequence) << 32 | offset
                })
            } else {
                0
            };
            writer.put(rows.record(entry.at), ordinal)?;
        }
        writer.finish()
    }

    /// Merges runs to the outlet, over merges to longer runs where there are more than fit at once.
    fn merge(&self, mut runs: VecDeque<Run>, outlet: &mut Outlet<'_, O>) -> Work {
        let buffer = self.sizes.buffer_bytes() as u64;
        let fan_in =
            usize::try_from(self.share / buffer).unwrap_or(usize::MAX).saturating_sub(1).max(2);
        while runs.len() > fan_in {
            // As few as leave a whole number of full merges: the shortest runs, which are in front.
            let count = (runs.len() - fan_in + 1).min(fan_in);
            let mut tree = self.tree(runs.drain(..count))?;
            let mut writer = RunWriter::new(self);
            while let Some(source) = tree.first() {
                if let Some(record) = source.head() {
                    writer.put(record, source.ordinal())?;
                }
                tree.advance()?;
            }
            runs.push_back(writer.finish()?);
            self.totals.report.lock().merges += 1;
        }
        let mut tree = self.tree(runs.into_iter())?;
        while let Some(source) = tree.first() {
            if let Some(record) = source.head() {
                outlet.put(record)?;
            }
            tree.advance()?;
        }
        Ok(())
    }

    fn tree(&self, runs: impl Iterator<Item = Run>) -> Result<Tree<'_, O, RunReader<'_, O>>> {
        let sources = runs.map(|run| RunReader::new(self, run)).collect::<Result<_>>()?;
        Ok(Tree::new(&*self.order, sources))
    }

    /// Reads an extent, whose frames are handed to `each`; where it is damaged, its copy.
    fn read_frames(
        &self,
        extent: &Extent,
        into: &mut [u8],
        number: u32,
        mut each: impl FnMut(Header, Range<usize>),
    ) -> Result<()> {
        self.cancel.check()?;
        let damage = match self.space.read(extent, into) {
            Ok(()) => match parse_all(into, number, &mut each) {
                Ok(()) => {
                    self.space.free(extent);
                    return Ok(());
                }
                Err((offset, damage)) => Error::Corrupt {
                    folder: self.space.folder(extent).to_path_buf(),
                    offset: extent.offset + offset as u64,
                    task: damage.task,
                    reason: damage.reason,
                },
            },
            Err(error) => error,
        };
        if !self.space.read_copy(extent, into)? || parse_all(into, number, &mut each).is_err() {
            return Err(damage);
        }
        self.space.free(extent);
        Ok(())
    }
}

/// All frames of some bytes, or the offset of what is wrong. Nothing is handed on if anything is.
fn parse_all(
    bytes: &[u8],
    number: u32,
    each: &mut impl FnMut(Header, Range<usize>),
) -> Result<(), (usize, frame::Damage)> {
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        let (header, records) =
            frame::parse(bytes, offset, number).map_err(|damage| (offset, damage))?;
        offset = records.end;
        found.push((header, records));
    }
    found.into_iter().for_each(|(header, range)| each(header, range));
    Ok(())
}

/// Frames of a partition, read one behind another.
struct Chunk<'a> {
    arena: &'a mut Vec<u8>,
    used: usize,
    frames: Vec<FrameAt>,
}

impl<'a> Chunk<'a> {
    fn new(arena: &'a mut Vec<u8>) -> Self {
        Chunk { arena, used: 0, frames: Vec::new() }
    }

    /// Room for so much more; what was there in a former use is written over.
    fn room(&mut self, bytes: usize) -> usize {
        let start = self.used;
        self.used += bytes;
        if self.arena.len() < self.used {
            self.arena.reserve_exact(self.used - self.arena.len());
            self.arena.resize(self.used, 0);
        }
        start
    }

    fn read<O: Order>(&mut self, drain: &Drain<O>, extent: &Extent, number: u32) -> Result<()> {
        let start = self.room(extent.bytes);
        let Chunk { arena, used, frames } = self;
        let attempts = &drain.attempts;
        drain.read_frames(extent, &mut arena[start..*used], number, |header, range| {
            take_frame(attempts, frames, start, header, range);
        })
    }

    /// Frames that were never written.
    fn add<O: Order>(&mut self, drain: &Drain<O>, bytes: &[u8], number: u32) -> Result<()> {
        let start = self.room(bytes.len());
        self.arena[start..self.used].copy_from_slice(bytes);
        let (attempts, frames) = (&drain.attempts, &mut self.frames);
        let mut each = |header, range| take_frame(attempts, frames, start, header, range);
        parse_all(bytes, number, &mut each).map_err(|(offset, damage)| Error::Corrupt {
            folder: "memory".into(),
            offset: offset as u64,
            task: damage.task,
            reason: damage.reason,
        })
    }

    fn rows(&self, shape: Shape) -> Rows<&[u8]> {
        Rows { shape, blocks: vec![&self.arena[..self.used]] }
    }
}

fn take_frame(
    attempts: &HashMap<u64, u32>,
    frames: &mut Vec<FrameAt>,
    base: usize,
    header: Header,
    range: Range<usize>,
) {
    let Header { task, attempt, sequence, before, rows, .. } = header;
    if attempts.get(&task) == Some(&attempt) {
        frames.push(FrameAt {
            task,
            sequence,
            before,
            rows,
            start: base + range.start,
            end: base + range.end,
        });
    }
}

/// Sorted records on disk.
struct Run {
    extents: VecDeque<Extent>,
}

struct RunWriter<'a, O> {
    drain: &'a Drain<O>,
    buffer: Vec<u8>,
    rows: u32,
    run: Run,
    unique: Unique,
    dropped: Checksum,
}

impl<'a, O: Order> RunWriter<'a, O> {
    fn new(drain: &'a Drain<O>) -> Self {
        let mut buffer = Vec::with_capacity(drain.sizes.buffer_bytes());
        frame::begin_run(&mut buffer);
        let run = Run { extents: VecDeque::new() };
        RunWriter {
            drain,
            buffer,
            rows: 0,
            run,
            unique: Unique::default(),
            dropped: Checksum::default(),
        }
    }

    fn put(&mut self, record: &[u8], ordinal: u128) -> Result<()> {
        if self.drain.unique && !self.unique.is_new(&*self.drain.order, record) {
            self.dropped.add(record);
            return Ok(());
        }
        if self.drain.stable {
            self.buffer.extend_from_slice(&ordinal.to_le_bytes());
        }
        self.drain.shape.store(record, &mut self.buffer);
        self.rows += 1;
        if self.buffer.len() >= self.drain.sizes.write_bytes {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.drain.cancel.check()?;
        frame::finish_run(&mut self.buffer, self.rows);
        self.run.extents.push_back(self.drain.space.write(&self.buffer)?);
        frame::begin_run(&mut self.buffer);
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Run> {
        if self.rows > 0 {
            self.write()?;
        }
        let mut report = self.drain.totals.report.lock();
        report.runs += 1;
        report.dropped.merge(&self.dropped);
        Ok(self.run)
    }
}

struct RunReader<'a, O> {
    drain: &'a Drain<O>,
    run: Run,
    block: Vec<u8>,
    /// Where the record behind the head begins.
    next: usize,
    head: Option<Range<usize>>,
    ordinal: u128,
}

impl<'a, O: Order> RunReader<'a, O> {
    fn new(drain: &'a Drain<O>, run: Run) -> Result<Self> {
        let mut reader =
            RunReader { drain, run, block: Vec::new(), next: 0, head: None, ordinal: 0 };
        reader.advance()?;
        Ok(reader)
    }
}

impl<O: Order> Source for RunReader<'_, O> {
    #[inline]
    fn head(&self) -> Option<&[u8]> {
        self.head.clone().map(|range| &self.block[range])
    }

    #[inline]
    fn ordinal(&self) -> u128 {
        self.ordinal
    }

    fn advance(&mut self) -> Result<()> {
        if self.next >= self.block.len() {
            let Some(extent) = self.run.extents.pop_front() else {
                self.head = None;
                self.block = Vec::new();
                return Ok(());
            };
            self.block.resize(extent.bytes, 0);
            self.drain.read_frames(&extent, &mut self.block, frame::RUN, |_, _| {})?;
            self.next = frame::RUN_HEADER_BYTES;
        }
        if self.drain.stable {
            let bytes = self.block.get(self.next..).and_then(|rest| rest.first_chunk::<16>());
            self.ordinal = bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes));
            self.next += 16;
        }
        match self.drain.shape.next(&self.block, self.next) {
            Some((record, next)) => {
                self.head = Some(next - record.len()..next);
                self.next = next;
            }
            // The checksum was right, so that it was written so: the totals will tell.
            None => {
                self.head = None;
                self.next = self.block.len();
            }
        }
        Ok(())
    }
}

/// The record that came last.
#[derive(Default)]
struct Unique {
    last: Vec<u8>,
    any: bool,
}

impl Unique {
    #[inline]
    fn is_new<O: Order>(&mut self, order: &O, record: &[u8]) -> bool {
        if self.any && order.compare(&self.last, record) == Ordering::Equal {
            return false;
        }
        self.any = true;
        self.last.clear();
        self.last.extend_from_slice(record);
        true
    }
}

/// Where a thread puts the records of a part.
struct Outlet<'a, O> {
    drain: &'a Drain<O>,
    sender: &'a SyncSender<Message>,
    block: Vec<u8>,
    rows: usize,
    unique: Unique,
    output: Checksum,
    dropped: Checksum,
}

impl<'a, O: Order> Outlet<'a, O> {
    fn new(drain: &'a Drain<O>, sender: &'a SyncSender<Message>) -> Self {
        Outlet {
            drain,
            sender,
            block: Vec::new(),
            rows: 0,
            unique: Unique::default(),
            output: Checksum::default(),
            dropped: Checksum::default(),
        }
    }

    #[inline]
    fn put(&mut self, record: &[u8]) -> Work {
        if self.drain.unique && !self.unique.is_new(&*self.drain.order, record) {
            self.dropped.add(record);
            return Ok(());
        }
        self.output.add(record);
        // One byte more than a record at most, or its length.
        if self.block.len() + record.len() + 10 > self.block.capacity() {
            self.send()?;
            self.block = Vec::with_capacity(self.drain.block_bytes.max(record.len() + 10));
        }
        match self.drain.layout {
            Layout::Announced => self.drain.shape.store(record, &mut self.block),
            Layout::Bare => self.block.extend_from_slice(record),
            Layout::Terminated(byte) => {
                self.block.extend_from_slice(record);
                self.block.push(byte);
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn send(&mut self) -> Work {
        self.drain.cancel.check()?;
        if self.rows == 0 {
            return Ok(());
        }
        let block = Block {
            bytes: mem::take(&mut self.block),
            rows: mem::take(&mut self.rows),
            layout: self.drain.layout,
            shape: self.drain.shape,
        };
        self.sender.send(Message::Block(block)).map_err(|_| Halt::Gone)
    }

    fn end(&mut self) -> Work {
        self.send()?;
        let mut report = self.drain.totals.report.lock();
        report.output.merge(&self.output);
        report.dropped.merge(&self.dropped);
        Ok(())
    }
}
