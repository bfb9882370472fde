//! The first half of a sort: records come in, and are held or fanned out.
//!
//! Tasks gather records in blocks of their own and hand these over. As long as everything fits,
//! blocks are kept as they are. When the budget is reached, boundaries of partitions are chosen from
//! what is held (or from what the caller sampled), and from then on each block is taken apart: its
//! records are appended, as a frame a partition, to the partitions' buffers, which all tasks
//! share, so that the number of writes depends on the bytes alone and not on the number of tasks.
//! A buffer that is full is one write; what is in the buffers at the end stays there.
//!
//! Input that is in order already, or the other way round, would all be in the last partition, or the first.
//! One of these that has as much as is sorted at once, and most of what comes, ends there: what comes behind it, or
//! before it, gets a partition of its own.
//!
//! Where only the first so many records are wanted, [`crate::limit`] says which need not be held. Once partitions hold
//! that many of committed attempts, what is for those behind them is dropped.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::checksum::Checksum;
use crate::drain::{Blocks, Layout};
use crate::error::{Error, Result};
use crate::frame::{self, Header};
use crate::limit::{self, Cutoff, Ledger, Limit};
use crate::options::{Options, SORT_BYTES_PER_ROW, Sizes};
use crate::order::Order;
use crate::parts::Parts;
use crate::report::Report;
use crate::rows::{ENTRY_BYTES, Shape};
use crate::space::{DiskCounts, Extent, Space};

/// Sampled records for each partition: its size then differs from the mean by some 18 %.
const SAMPLE_PER_PART: usize = 32;

/// So many are sorted by one thread before others would have begun.
const UNIQUE_ROWS: u64 = 1 << 15;

/// A block of one task's records.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) task: u64,
    pub(crate) attempt: u32,
    pub(crate) sequence: u32,
    pub(crate) rows: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Held {
    /// What it takes of the budget, with the entries that it will need.
    fn cost(&self) -> u64 {
        (size_of::<Held>() + self.bytes.capacity()) as u64
            + u64::from(self.rows) * (ENTRY_BYTES + 2)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) buffer: Vec<u8>,
    pub(crate) buffer_rows: u64,
    /// What was written, with its rows.
    pub(crate) extents: Vec<(Extent, u64)>,
    /// Of everything, buffer and headers included.
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
    last: Option<(u64, u32)>,
    /// Frames of a later task, or of a later block of the same, came first.
    pub(crate) out_of_order: bool,
    /// What its frames are called by.
    pub(crate) number: u32,
    /// The record that none is behind, of the last partition; that none is before, of the first.
    edge: Option<(u64, Vec<u8>)>,
    /// It was at an end, and has another beyond it: of what it has by then nothing is noted at the other end.
    ended: bool,
}

impl Partition {
    /// The memory that it takes to sort it whole.
    pub(crate) fn need(&self) -> u64 {
        self.bytes + self.rows * SORT_BYTES_PER_ROW
    }
}

#[derive(Debug, Default)]
pub(crate) struct FanOut {
    pub(crate) parts: Parts,
    /// In their order; none once the input has ended.
    pub(crate) partitions: Vec<Mutex<Partition>>,
    /// Of the partitions.
    pub(crate) numbers: Vec<u32>,
}

enum State {
    Holding(Holding),
    FannedOut(Arc<RwLock<FanOut>>),
}

#[derive(Default)]
struct Holding {
    blocks: Vec<Held>,
    cost: u64,
    rows: u64,
    /// The cost from which it is worth looking what a limit leaves.
    prune_from: u64,
}

#[derive(Default)]
struct TaskState {
    attempts: u32,
    committed: Option<u32>,
}

#[derive(Default)]
struct Tasks {
    states: HashMap<u64, TaskState>,
    committed: Checksum,
    ledger: Ledger,
}

impl Tasks {
    fn committed(&self, task: u64) -> Option<u32> {
        self.states.get(&task).and_then(|state| state.committed)
    }
}

pub(crate) struct Inner<O> {
    order: Arc<O>,
    shape: Shape,
    options: Options,
    sizes: Sizes,
    state: Mutex<State>,
    tasks: Mutex<Tasks>,
    sample: Mutex<Vec<Vec<u8>>>,
    space: Arc<Space>,
    /// Blocks and scratch space for others to use.
    spare: Mutex<(Vec<Vec<u8>>, Vec<Scratch>)>,
}

/// A partition that has no other beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// What takes a block apart.
#[derive(Default)]
struct Scratch {
    /// Partition, offset and stored length of each record.
    records: Vec<(u32, u32, u32)>,
    ordered: Vec<(u32, u32)>,
    starts: Vec<usize>,
}

/// Sorts records of bytes, in memory or beyond it.
///
/// ```
/// use tidemill_sort::{ByteOrder, Options, Shape, Sorter};
///
/// let sorter = Sorter::new(ByteOrder, Shape::Variable, Options::default())?;
/// let mut task = sorter.task(0);
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
    pub(crate) inner: Arc<Inner<O>>,
}

impl<O: Order> Sorter<O> {
    /// A sort of records of one shape. Nothing is allocated or opened yet.
    ///
    /// # Errors
    /// [`Error::Option`] for options out of their range, and records of no bytes.
    pub fn new(order: O, shape: Shape, options: Options) -> Result<Self> {
        options.check()?;
        if shape == Shape::Fixed(0) {
            return Err(Error::option(
                "records of no bytes cannot be told apart",
                "give a size of at least 1",
            ));
        }
        let sizes = Sizes::new(options.memory_bytes);
        if let Shape::Fixed(size) = shape
            && size > sizes.record_bytes_max
        {
            let limit_bytes = sizes.record_bytes_max as u64;
            return Err(Error::RecordTooLong { bytes: size as u64, limit_bytes });
        }
        let expected = options.expected_bytes.unwrap_or(0);
        let space = Space::new(&options.spill_dirs, options.copy_dir.as_deref(), expected);
        let inner = Inner {
            order: Arc::new(order),
            shape,
            options,
            sizes,
            state: Mutex::new(State::Holding(Holding::default())),
            tasks: Mutex::default(),
            sample: Mutex::default(),
            space: Arc::new(space),
            spare: Mutex::default(),
        };
        Ok(Sorter { inner: Arc::new(inner) })
    }

    /// The sizes that the sort works with.
    pub fn sizes(&self) -> Sizes {
        self.inner.sizes
    }

    /// Takes a record as typical, for the choice of partitions. Worth it where the whole input can be
    /// looked at before, at some thousand places: without, the partitions are chosen from what comes
    /// until the budget is reached, which is the wrong part of an input that is sorted already. Takes
    /// no effect once something was spilled.
    pub fn sample(&self, record: &[u8]) {
        let mut sample = self.inner.sample.lock();
        if record.len() <= self.inner.sizes.block_bytes {
            sample.push(record.to_vec());
        }
    }

    /// How many records are worth sampling.
    pub fn sample_count(&self) -> usize {
        self.inner.partitions() * SAMPLE_PER_PART
    }

    /// A new attempt at a task: one stream of records, from one thread at a time. Stable sorts order
    /// ties by the task's number. Several tasks may be open at once; each holds a block of memory.
    pub fn task(&self, task: u64) -> Task<O> {
        let inner = &*self.inner;
        let mut tasks = inner.tasks.lock();
        let state = tasks.states.entry(task).or_default();
        let attempt = state.attempts;
        state.attempts += 1;
        let cutoff = tasks.ledger.cutoff(&*inner.order, task, attempt);
        Task {
            inner: Arc::clone(&self.inner),
            task,
            attempt,
            sequence: 0,
            rows: 0,
            block: Vec::new(),
            checksum: Checksum::default(),
            cutoff,
            behind: Checksum::default(),
        }
    }

    /// Ends the input. Tasks that have not been committed by now do not count.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn finish(self) -> Result<Sorted<O>> {
        let inner = &*self.inner;
        inner.options.cancel.check()?;
        let state = mem::replace(&mut *inner.state.lock(), State::Holding(Holding::default()));
        let Tasks { states, committed, mut ledger } = mem::take(&mut *inner.tasks.lock());
        *inner.spare.lock() = Default::default();
        let attempts: HashMap<u64, u32> =
            states.into_iter().filter_map(|(task, state)| Some((task, state.committed?))).collect();
        let input = match state {
            State::Holding(Holding { mut blocks, .. }) => {
                blocks.retain(|held| attempts.get(&held.task) == Some(&held.attempt));
                let limit = inner.options.limit();
                let rows: u64 = blocks.iter().map(|held| u64::from(held.rows)).sum();
                // To find those that are distinct is a sort: of many, threads do it together.
                let is_worth = |limit: &Limit| !limit.unique || rows <= UNIQUE_ROWS;
                if let Some(limit) = limit.filter(is_worth) {
                    blocks = ledger.prune(&*inner.order, inner.shape, limit, blocks, |task| {
                        attempts.get(&task).copied()
                    });
                }
                blocks.sort_by_key(|held| (held.task, held.sequence));
                if limit.is_some() {
                    blocks = limit::joined(blocks, inner.sizes.block_bytes);
                }
                Input::Memory(blocks)
            }
            State::FannedOut(fan_out) => Input::Spilled(Arc::new(mem::take(&mut *fan_out.write()))),
        };
        Ok(Sorted {
            order: Arc::clone(&inner.order),
            shape: inner.shape,
            options: inner.options.clone(),
            sizes: inner.sizes,
            space: Arc::clone(&inner.space),
            attempts,
            committed,
            ledger,
            input,
        })
    }
}

impl<O: Order> Inner<O> {
    #[cfg(test)]
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    fn partitions(&self) -> usize {
        self.sizes.partitions(self.options.threads, self.options.expected_bytes)
    }

    fn spare_block(&self) -> Vec<u8> {
        let spare = self.spare.lock().0.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(self.sizes.block_bytes))
    }

    /// Takes a block over.
    fn deliver(&self, mut held: Held) -> Result<()> {
        self.options.cancel.check()?;
        let mut state = self.state.lock();
        let fan_out = match &mut *state {
            State::FannedOut(fan_out) => Arc::clone(fan_out),
            State::Holding(holding) => {
                if held.bytes.len() < held.bytes.capacity() / 8 * 7 {
                    held.bytes.shrink_to_fit();
                }
                let more = held.cost();
                if let Some(limit) = self.options.limit() {
                    self.prune(holding, limit, more);
                }
                if holding.cost + more <= self.sizes.hold_bytes {
                    holding.cost += more;
                    holding.rows += u64::from(held.rows);
                    holding.blocks.push(held);
                    return Ok(());
                }
                let mut blocks = mem::take(&mut holding.blocks);
                let fan_out = Arc::new(RwLock::new(self.fan_out(&blocks, &held)));
                *state = State::FannedOut(Arc::clone(&fan_out));
                drop(state);
                blocks.push(held);
                return self.take_all_apart(&fan_out, blocks);
            }
        };
        drop(state);
        self.take_apart(&fan_out, held)
    }

    /// Drops what is behind the limit, where that is worth it or what comes would not fit.
    fn prune(&self, holding: &mut Holding, limit: Limit, more: u64) {
        let Holding { blocks, cost, rows, prune_from } = holding;
        let least = 4 * self.sizes.block_bytes as u64;
        let is_full = *cost + more > self.sizes.hold_bytes && *rows > limit.rows;
        let is_worth = *cost >= (*prune_from).max(least) && *rows / 2 >= limit.rows;
        // With few that are distinct there is much to drop before there are as many as are wanted.
        let has_ties = limit.unique && *cost >= (*prune_from).max(least);
        if !(is_full || is_worth || has_ties) {
            return;
        }
        let mut tasks = self.tasks.lock();
        let Tasks { states, ledger, .. } = &mut *tasks;
        let committed = |task| states.get(&task).and_then(|state: &TaskState| state.committed);
        *blocks = ledger.prune(&*self.order, self.shape, limit, mem::take(blocks), committed);
        *cost = blocks.iter().map(Held::cost).sum();
        *rows = blocks.iter().map(|held| u64::from(held.rows)).sum();
        *prune_from = 2 * *cost;
    }

    fn fan_out(&self, blocks: &[Held], last: &Held) -> FanOut {
        let count = self.partitions();
        let sampled = mem::take(&mut *self.sample.lock());
        let parts = if sampled.len() >= count * 2 {
            Parts::of_order(&*self.order, sampled.iter().map(Vec::as_slice).collect(), count)
        } else {
            let wanted = count * SAMPLE_PER_PART;
            Parts::of_order(
                &*self.order,
                sample(self.shape, blocks.iter().chain([last]), wanted),
                count,
            )
        };
        let partition =
            |number| Mutex::new(Partition { number: number as u32, ..Partition::default() });
        let partitions = (0..parts.count()).map(partition).collect();
        let numbers = (0..parts.count() as u32).collect();
        FanOut { parts, partitions, numbers }
    }

    fn take_all_apart(&self, fan_out: &RwLock<FanOut>, blocks: Vec<Held>) -> Result<()> {
        let next = Mutex::new(blocks.into_iter());
        let work = || {
            loop {
                let Some(held) = next.lock().next() else { return Ok(()) };
                self.take_apart(fan_out, held)?;
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
    fn take_apart(&self, fan_out: &RwLock<FanOut>, held: Held) -> Result<()> {
        self.options.cancel.check()?;
        // Boundaries are what they are as long as records go by them.
        let full = self.appended(&fan_out.read(), held)?;
        match full {
            Some(end) => self.end_full(&mut fan_out.write(), end),
            None => Ok(()),
        }
    }

    /// What the first partition, or the last, has at most.
    fn full_bytes(&self) -> u64 {
        self.sizes.share(self.options.threads, self.sizes.memory_bytes / 4).part_bytes / 2
    }

    /// Gives what comes beyond a full partition at the ends one of its own.
    fn end_full(&self, fan_out: &mut FanOut, end: End) -> Result<()> {
        let full_bytes = self.full_bytes();
        let FanOut { parts, partitions, numbers } = fan_out;
        let new =
            |count: usize| Mutex::new(Partition { number: count as u32, ..Partition::default() });
        let number = partitions.len();
        let full = match end {
            End::First => partitions.first_mut(),
            End::Last => partitions.last_mut(),
        };
        // Another task may have been here before.
        let Some(full) = full.map(Mutex::get_mut).filter(|full| full.need() >= full_bytes) else {
            return Ok(());
        };
        let Some((_, edge)) = full.edge.take() else { return Ok(()) };
        full.ended = true;
        self.empty_buffer(full)?;
        match end {
            End::First => {
                parts.begin_first(&*self.order, edge);
                partitions.insert(0, new(number));
                numbers.insert(0, number as u32);
            }
            End::Last => {
                parts.end_last(&*self.order, edge);
                partitions.push(new(number));
                numbers.push(number as u32);
            }
        }
        Ok(())
    }

    /// Writes what a partition has gathered, and gives its memory to another.
    fn empty_buffer(&self, partition: &mut Partition) -> Result<()> {
        let buffer = mem::take(&mut partition.buffer);
        if !buffer.is_empty() {
            let extent = self.space.write(&buffer)?;
            partition.extents.push((extent, mem::take(&mut partition.buffer_rows)));
        }
        Ok(())
    }

    /// Appends each record of a block to its partition: which one at the ends is full, and has most of the block.
    fn appended(&self, fan_out: &FanOut, mut held: Held) -> Result<Option<End>> {
        let Some(last) = fan_out.partitions.len().checked_sub(1) else {
            // The input has ended without this task.
            return Ok(None);
        };
        let full_bytes = self.full_bytes();
        let mut full = None;
        let limit = self.options.limit();
        let wanted = limit.and_then(|_| {
            let number = self.tasks.lock().ledger.last_wanted?;
            fan_out.numbers.iter().position(|known| *known == number)
        });
        let mut scratch = self.spare.lock().1.pop().unwrap_or_default();
        let Scratch { records, ordered, starts } = &mut scratch;
        records.clear();
        starts.clear();
        starts.resize(fan_out.partitions.len() + 1, 0);
        let mut offset = 0;
        while let Some((record, next)) = self.shape.next(&held.bytes, offset) {
            let part = fan_out.parts.of(&*self.order, record, self.order.prefix(record));
            starts[part + 1] += 1;
            records.push((part as u32, offset as u32, (next - offset) as u32));
            offset = next;
            if records.len().is_multiple_of(8192) {
                self.options.cancel.check()?;
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
                    index if index == last => Some(End::Last),
                    0 => Some(End::First),
                    _ => None,
                };
                if let Some(end) = end.filter(|_| !partition.ended) {
                    self.note_edge(&mut partition, &held, records, end);
                }
                self.append(&mut partition, &held, records)?;
                if 2 * records.len() >= ordered.len() && partition.need() >= full_bytes {
                    full = end;
                }
            }
        }
        if let Some(limit) = limit {
            let kept = wanted.map_or(fan_out.partitions.len(), |wanted| wanted + 1);
            let mut behind = Checksum::default();
            for (offset, _) in &ordered[starts[kept]..] {
                if let Some((record, _)) = self.shape.next(&held.bytes, *offset as usize) {
                    behind.add(record);
                }
            }
            let rows = fan_out.numbers.iter().copied().zip(starts.windows(2)).take(kept);
            let rows = rows.map(|(number, pair)| (number, (pair[1] - pair[0]) as u64));
            let mut tasks = self.tasks.lock();
            let committed = tasks.committed(held.task);
            tasks.ledger.note((held.task, held.attempt), committed, &behind, rows);
            self.find_last_wanted(fan_out, &mut tasks.ledger, limit);
        }
        let mut spare = self.spare.lock();
        if spare.0.len() <= self.options.threads && held.bytes.capacity() == self.sizes.block_bytes
        {
            held.bytes.clear();
            spare.0.push(held.bytes);
        }
        spare.1.push(scratch);
        Ok(full)
    }

    /// Finds the last partition that records are wanted of, and tells tasks where it ends.
    fn find_last_wanted(&self, fan_out: &FanOut, ledger: &mut Ledger, limit: Limit) {
        let Some(last) = ledger.last_wanted(&fan_out.numbers, limit) else { return };
        if ledger.last_wanted.replace(fan_out.numbers[last]) == Some(fan_out.numbers[last]) {
            return;
        }
        if let Some((prefix, record, has_ties)) = fan_out.parts.end(last) {
            let ties_from = (!has_ties).then_some(0);
            let record = record.map(<[u8]>::to_vec);
            ledger.offer(&*self.order, Cutoff { prefix, record, ties_from });
        }
    }

    /// Notes the record that none is behind, or before.
    fn note_edge(&self, partition: &mut Partition, held: &Held, records: &[(u32, u32)], end: End) {
        // How what was noted compares to what is beyond it.
        let wanted = if end == End::Last { Less } else { Greater };
        let mut edge: Option<(u64, &[u8])> = None;
        let known = partition.edge.as_ref().map(|(prefix, record)| (*prefix, record.as_slice()));
        let is_beyond = |other: (u64, &[u8]), prefix, record: &[u8]| match other.0.cmp(&prefix) {
            Equal => self.order.compare(other.1, record) == wanted,
            ordering => ordering == wanted,
        };
        for (offset, _) in records {
            let Some((record, _)) = self.shape.next(&held.bytes, *offset as usize) else { break };
            let prefix = self.order.prefix(record);
            if edge.or(known).is_none_or(|other| is_beyond(other, prefix, record)) {
                edge = Some((prefix, record));
            }
        }
        if let Some((prefix, record)) = edge {
            partition.edge = Some((prefix, record.to_vec()));
        }
    }

    fn append(&self, partition: &mut Partition, held: &Held, records: &[(u32, u32)]) -> Result<()> {
        let now = (held.task, held.sequence);
        partition.out_of_order |= partition.last.is_some_and(|last| last > now);
        partition.last = Some(now);
        let Held { task, attempt, sequence, .. } = *held;
        let mut rest = records;
        let mut before = 0;
        while !rest.is_empty() {
            if partition.buffer.capacity() == 0 {
                partition.buffer.reserve_exact(self.sizes.buffer_bytes());
            }
            let (mut bytes, mut count) = (0, 0);
            for (_, length) in rest {
                if count > 0 && bytes as usize + *length as usize > self.sizes.frame_bytes() {
                    break;
                }
                bytes += *length;
                count += 1;
            }
            let (these, others) = rest.split_at(count);
            rest = others;
            let rows = count as u32;
            let number = partition.number;
            let header = Header { bytes, rows, task, attempt, sequence, before, partition: number };
            let start = frame::begin(&mut partition.buffer, &header);
            for (offset, length) in these {
                let from = *offset as usize;
                partition.buffer.extend_from_slice(&held.bytes[from..from + *length as usize]);
            }
            before += bytes;
            frame::finish(&mut partition.buffer, start);
            partition.bytes += (partition.buffer.len() - start) as u64;
            partition.rows += u64::from(rows);
            partition.buffer_rows += u64::from(rows);
            if partition.buffer.len() >= self.sizes.write_bytes {
                let extent = self.space.write(&partition.buffer)?;
                partition.extents.push((extent, mem::take(&mut partition.buffer_rows)));
                partition.buffer.clear();
                // One long record may have made it large.
                partition.buffer.shrink_to(self.sizes.buffer_bytes());
            }
        }
        Ok(())
    }
}

/// Every n-th record of some blocks, `wanted` of them, about.
pub(crate) fn sample<'a>(
    shape: Shape,
    blocks: impl Iterator<Item = &'a Held> + Clone,
    wanted: usize,
) -> Vec<&'a [u8]> {
    let rows: u64 = blocks.clone().map(|held| u64::from(held.rows)).sum();
    let step = (rows / wanted.max(1) as u64).max(1);
    let mut sample = Vec::new();
    let mut countdown = step / 2;
    for held in blocks {
        let mut offset = 0;
        while let Some((record, next)) = shape.next(&held.bytes, offset) {
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

/// One attempt at a task. Its records count once it is committed; dropped before, they never do.
pub struct Task<O: Order> {
    inner: Arc<Inner<O>>,
    task: u64,
    attempt: u32,
    sequence: u32,
    rows: u32,
    block: Vec<u8>,
    checksum: Checksum,
    cutoff: Option<Arc<Cutoff>>,
    /// What was behind the cutoff.
    behind: Checksum,
}

impl<O: Order> Task<O> {
    /// Adds a record, which is copied.
    ///
    /// # Errors
    /// [`Error::RecordTooLong`], [`Error::RecordSize`]; where something had to be written,
    /// [`Error::DiskFull`] and [`Error::Io`]; [`Error::Cancelled`]. The attempt is worth nothing then.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        if let Shape::Fixed(size) = self.inner.shape
            && record.len() != size
        {
            return Err(Error::RecordSize { expected: size, found: record.len() });
        }
        if self.is_behind(record) {
            return Ok(());
        }
        let stored = self.inner.shape.stored_bytes(record.len());
        if self.block.len() + stored > self.block.capacity() {
            self.make_room(record.len(), stored)?;
        }
        self.inner.shape.store(record, &mut self.block);
        self.rows += 1;
        self.checksum.add(record);
        Ok(())
    }

    /// Adds a record that lies in several places, one after another.
    ///
    /// # Errors
    /// As [`Task::push`].
    #[inline]
    pub fn push_parts(&mut self, parts: &[&[u8]]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let stored = self.inner.shape.stored_bytes(length);
        if self.block.len() + stored > self.block.capacity() {
            self.make_room(length, stored)?;
        }
        if let Shape::Fixed(size) = self.inner.shape
            && length != size
        {
            return Err(Error::RecordSize { expected: size, found: length });
        }
        let before = self.block.len();
        self.inner.shape.announce(length, &mut self.block);
        let start = self.block.len();
        parts.iter().for_each(|part| self.block.extend_from_slice(part));
        if self.cutoff.is_some() {
            let block = mem::take(&mut self.block);
            let is_behind = self.is_behind(&block[start..]);
            self.block = block;
            if is_behind {
                self.block.truncate(before);
                return Ok(());
            }
        }
        self.rows += 1;
        self.checksum.add(&self.block[start..]);
        Ok(())
    }

    /// Whether a record is behind the cutoff, if there is one; then it counts among those.
    #[inline]
    fn is_behind(&mut self, record: &[u8]) -> bool {
        let Some(cutoff) = &self.cutoff else { return false };
        // What would be refused is, wherever it is in the order.
        if !cutoff.is_before(&*self.inner.order, self.task, record)
            || record.len() > self.inner.sizes.record_bytes_max
        {
            return false;
        }
        self.checksum.add(record);
        self.behind.add(record);
        true
    }

    #[cold]
    fn make_room(&mut self, record_bytes: usize, stored: usize) -> Result<()> {
        let limit = self.inner.sizes.record_bytes_max;
        if record_bytes > limit {
            return Err(Error::RecordTooLong {
                bytes: record_bytes as u64,
                limit_bytes: limit as u64,
            });
        }
        self.hand_over()?;
        self.block = self.inner.spare_block();
        if stored > self.block.capacity() {
            self.block = Vec::with_capacity(stored);
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let bytes = mem::take(&mut self.block);
        if bytes.is_empty() {
            return Ok(());
        }
        let held = Held {
            task: self.task,
            attempt: self.attempt,
            sequence: self.sequence,
            rows: mem::take(&mut self.rows),
            bytes,
        };
        self.sequence = self.sequence.checked_add(1).ok_or_else(|| {
            Error::option("a task of 2^32 blocks", "divide the input into several tasks")
        })?;
        self.inner.deliver(held)?;
        if self.inner.options.limit.is_some() {
            let ledger = &self.inner.tasks.lock().ledger;
            self.cutoff = ledger.cutoff(&*self.inner.order, self.task, self.attempt);
        }
        Ok(())
    }

    /// What all tasks of the sort have written and read by now.
    pub fn disk_counts(&self) -> DiskCounts {
        self.inner.space.counts()
    }

    /// Makes the records count, unless another attempt at the task was committed before: then it says
    /// `false`, and these are dropped.
    ///
    /// # Errors
    /// As [`Task::push`].
    pub fn commit(mut self) -> Result<bool> {
        self.hand_over()?;
        let limit = self.inner.options.limit();
        let fan_out = match &*self.inner.state.lock() {
            State::FannedOut(fan_out) if limit.is_some() => Some(Arc::clone(fan_out)),
            _ => None,
        };
        let fan_out = fan_out.as_ref().map(|fan_out| fan_out.read());
        let mut tasks = self.inner.tasks.lock();
        let state = tasks.states.entry(self.task).or_default();
        if state.committed.is_some() {
            return Ok(false);
        }
        state.committed = Some(self.attempt);
        tasks.committed.merge(&self.checksum);
        tasks.ledger.behind.merge(&self.behind);
        tasks.ledger.commit(self.task, self.attempt);
        if let (Some(fan_out), Some(limit)) = (fan_out, limit) {
            self.inner.find_last_wanted(&fan_out, &mut tasks.ledger, limit);
        }
        Ok(true)
    }
}

pub(crate) enum Input {
    Memory(Vec<Held>),
    Spilled(Arc<FanOut>),
}

/// Records that are all there, and come out in order.
pub struct Sorted<O> {
    pub(crate) order: Arc<O>,
    pub(crate) shape: Shape,
    pub(crate) options: Options,
    pub(crate) sizes: Sizes,
    pub(crate) space: Arc<Space>,
    pub(crate) attempts: HashMap<u64, u32>,
    pub(crate) committed: Checksum,
    pub(crate) ledger: Ledger,
    pub(crate) input: Input,
}

impl<O: Order> Sorted<O> {
    /// Whether something was spilled.
    pub fn is_spilled(&self) -> bool {
        matches!(self.input, Input::Spilled(_))
    }

    /// The records that were committed.
    pub fn committed(&self) -> Checksum {
        self.committed
    }

    /// The records in blocks of up to 256 KiB or so, laid out as wanted; threads are at work on the
    /// next ones until the blocks are dropped.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn blocks(self, layout: Layout) -> Result<Blocks> {
        Blocks::start(self, layout)
    }

    /// Calls `take` with each record, in order.
    ///
    /// # Errors
    /// Those of `take`; [`Error::Corrupt`], [`Error::Io`], [`Error::DiskFull`] where runs have to be
    /// written, [`Error::Cancelled`], [`Error::Mismatch`].
    pub fn for_each(self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<Report> {
        let mut blocks = self.blocks(Layout::Announced)?;
        while let Some(block) = blocks.next()? {
            for record in block.records() {
                take(record)?;
            }
        }
        blocks.finish()
    }

    /// Writes the records, each with what ends it, if anything.
    ///
    /// # Errors
    /// [`Error::Output`] where `output` refuses, else as [`Sorted::for_each`].
    pub fn write_to(
        self,
        terminator: Option<u8>,
        output: &mut dyn std::io::Write,
    ) -> Result<Report> {
        let mut blocks = self.blocks(terminator.map_or(Layout::Bare, Layout::Terminated))?;
        while let Some(block) = blocks.next()? {
            output.write_all(block.bytes()).map_err(Error::Output)?;
        }
        output.flush().map_err(Error::Output)?;
        blocks.finish()
    }
}

/// Runs `work(0)`, `work(1)`, … `work(count - 1)` on several threads, and gives the results in order.
pub(crate) fn in_parallel<T: Send>(
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
