//! The fold of all chunks into one table, in parallel and beyond memory.
//!
//! Groups are dealt by a hash of their key to 16 places, each with a table of its own and a
//! queue. Chunks are accepted one at a time in split order; whoever finds a place free merges
//! what waits there, in that order. So every group sees its states in split order, while
//! several workers merge at once.
//!
//! Past the budget the largest place goes to disk: its table becomes the first chunk of a
//! spill file, and what arrives for it afterwards is appended unmerged. At the end such a
//! place is folded from its file, again in split order; where its groups do not fit memory
//! either, it is dealt by further bits of the hash into 16 smaller files first (Grace hash
//! aggregation, with the order of the fold kept).
//!
//! What is spilled, and when, depends on how the threads happen to run. The answer does not:
//! it comes in the order of its keys where it is small, else in the order of their hashes,
//! which is the order of the places at every depth of dealing.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::row::{RowConverter, SortField};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;
use tidemill_base::coverage::Estimate;
use tidemill_base::error::{Error, Result};
use tidemill_base::memory::human;
use tidemill_base::progress::Progress;
use tidemill_sql::spills::SpillSpace;
use tidemill_sql::{Told, pool};
use tracing::debug_span;

use super::spec::Precision;
use super::spill::{SpillFile, SpillWriter};
use super::value::{compact, logical_bytes};
use super::{Chunk, Table, TableSpec};

const PLACE_BITS: u32 = 4;
const PLACES: usize = 1 << PLACE_BITS;

/// How deep a place is dealt again; 16⁶ files hold any number of groups, and deeper dealing
/// would only chase one giant group.
const DEPTH_MAX: u32 = 6;

/// Answers of up to this many groups are sorted by key, if they are also no larger than a
/// quarter of the budget.
const SORTED_GROUPS_MAX: usize = 1 << 18;

/// A group may always have so much, whatever the budget.
const GROUP_BYTES_MIN: usize = 16 << 20;

/// Which place each group goes to at a depth of dealing.
fn deal(keys: &[ArrayRef], group_count: usize, depth: u32) -> Result<Vec<Vec<u32>>> {
    let mut places = vec![Vec::new(); PLACES];
    if keys.is_empty() {
        places[0] = (0..group_count as u32).collect();
        return Ok(places);
    }
    for (row, mixed) in mixed_hashes(keys, group_count)?.into_iter().enumerate() {
        let place = (mixed >> (64 - PLACE_BITS * (depth + 1))) as usize & (PLACES - 1);
        places[place].push(row as u32);
    }
    Ok(places)
}

/// A hash of each group's key, of which the highest bits deal first.
fn mixed_hashes(keys: &[ArrayRef], group_count: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; group_count];
    create_hashes(keys, &RandomState::with_seed(0), &mut hashes).told()?;
    // The low bits serve the hash tables inside; a multiplication spreads them upwards.
    hashes.iter_mut().for_each(|hash| *hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Ok(hashes)
}

/// A chunk with its groups dealt to places. Its memory counts until the last place took it.
pub struct Dealt {
    chunk: Chunk,
    rows: Vec<Vec<u32>>,
    encoded: OnceLock<RecordBatch>,
    bytes: usize,
    used: Arc<AtomicUsize>,
}

impl Dealt {
    fn encoded(&self) -> Result<&RecordBatch> {
        if self.encoded.get().is_none() {
            let _ = self.encoded.set(self.chunk.encode()?);
        }
        self.encoded.get().ok_or_else(|| Error::Internal("an encoded chunk vanished".into()))
    }
}

impl Drop for Dealt {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A chunk that waits for its turn, in memory or on disk.
pub enum Parked {
    /// As it is.
    Memory(Arc<Dealt>),
    /// Encoded.
    Disk(SpillFile),
}

struct Place {
    table: Table,
    bytes: usize,
    spill: Option<SpillWriter>,
}

/// The fold of chunks.
pub struct Merger {
    spec: Arc<TableSpec>,
    budget_bytes: usize,
    space: SpillSpace,
    /// Bytes of tables and of chunks on their way.
    used: Arc<AtomicUsize>,
    places: Vec<Mutex<Place>>,
    queues: Vec<Mutex<VecDeque<Arc<Dealt>>>>,
    cancel: Cancel,
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
        let place = || Ok(Mutex::new(Place { table: Table::new(spec)?, bytes: 0, spill: None }));
        Ok(Merger {
            spec: Arc::clone(spec),
            budget_bytes,
            space: SpillSpace::new(folder, progress),
            used: Arc::default(),
            places: (0..PLACES).map(|_| place()).collect::<Result<_>>()?,
            queues: (0..PLACES).map(|_| Mutex::default()).collect(),
            cancel: cancel.clone(),
        })
    }

    fn spill_writer(&self) -> SpillWriter {
        SpillWriter::new(&self.space)
    }

    /// Deals a chunk's groups to places. Any thread, any order.
    ///
    /// # Errors
    /// Where a key cannot be hashed.
    pub fn deal(&self, chunk: Chunk) -> Result<Arc<Dealt>> {
        let rows = deal(&chunk.keys, chunk.group_count, 0)?;
        let bytes = chunk.bytes();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let used = Arc::clone(&self.used);
        Ok(Arc::new(Dealt { chunk, rows, encoded: OnceLock::new(), bytes, used }))
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.budget_bytes
    }

    /// Keeps a chunk whose turn has not come, on disk where memory is short.
    ///
    /// # Errors
    /// As spilling.
    pub fn park(&self, dealt: Arc<Dealt>) -> Result<Parked> {
        if !self.is_full() {
            return Ok(Parked::Memory(dealt));
        }
        let _span = debug_span!("spill", bytes = dealt.bytes).entered();
        let mut writer = self.spill_writer();
        writer.write(dealt.encoded()?)?;
        Ok(Parked::Disk(writer.finish()?))
    }

    /// Accepts the next chunk in split order. The caller sees to the order.
    ///
    /// # Errors
    /// Where a parked chunk cannot be read back, and as merging.
    pub fn accept(&self, parked: Parked, seat: usize) -> Result<()> {
        match parked {
            Parked::Memory(dealt) => self.enqueue(&dealt),
            Parked::Disk(file) => {
                let decoder = Table::new(&self.spec)?;
                for batch in file.read()? {
                    self.enqueue(&self.deal(decoder.decode(&batch?)?)?);
                    if self.is_full() {
                        self.work(seat)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn enqueue(&self, dealt: &Arc<Dealt>) {
        for (rows, queue) in dealt.rows.iter().zip(&self.queues) {
            if !rows.is_empty() {
                queue.lock().push_back(Arc::clone(dealt));
            }
        }
    }

    /// Merges what waits at places that nobody else works at; with memory short, waits its
    /// turn at every place and spills. `seat` tells workers apart so that they start at
    /// different places.
    ///
    /// # Errors
    /// As merging and spilling.
    pub fn work(&self, seat: usize) -> Result<()> {
        let _span = debug_span!("merge", seat).entered();
        for step in 0..PLACES {
            let index = (seat * PLACES / 2 + step) % PLACES;
            if self.is_full() {
                self.drain(index, &mut self.places[index].lock())?;
            } else if let Some(mut place) = self.places[index].try_lock() {
                self.drain(index, &mut place)?;
            }
        }
        while self.is_full() && self.spill_largest()? {}
        Ok(())
    }

    fn drain(&self, index: usize, place: &mut Place) -> Result<()> {
        loop {
            let Some(dealt) = self.queues[index].lock().pop_front() else { return Ok(()) };
            self.cancel.check()?;
            let rows = &dealt.rows[index];
            match &mut place.spill {
                Some(writer) => writer.write(&select(dealt.encoded()?, rows)?)?,
                None => {
                    place.table.merge(&dealt.chunk, rows)?;
                    self.settle(place, place.table.bytes());
                }
            }
        }
    }

    fn settle(&self, place: &mut Place, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(place.bytes, Ordering::Relaxed);
        place.bytes = bytes;
    }

    /// Sends the largest table in memory to disk; false where none is left.
    fn spill_largest(&self) -> Result<bool> {
        let largest = (0..PLACES)
            .filter_map(|index| {
                let place = self.places[index].try_lock()?;
                place.spill.is_none().then_some((place.bytes, index))
            })
            .max();
        let Some((bytes, index)) = largest else { return Ok(false) };
        if bytes == 0 {
            return Ok(false);
        }
        let _span = debug_span!("spill", groups = index, bytes).entered();
        let mut place = self.places[index].lock();
        if place.spill.is_none() {
            let mut writer = self.spill_writer();
            writer.write(&place.table.take()?.encode()?)?;
            place.spill = Some(writer);
            place.table = Table::new(&self.spec)?;
            self.settle(&mut place, 0);
        }
        Ok(true)
    }

    /// Ends the fold once every chunk has been accepted.
    ///
    /// # Errors
    /// As merging and spilling.
    pub fn finish(self) -> Result<Merged> {
        let _span = debug_span!("merge").entered();
        for (index, place) in self.places.iter().enumerate() {
            self.drain(index, &mut place.lock())?;
        }
        let mut places = VecDeque::new();
        for place in self.places {
            let place = place.into_inner();
            places.push_back(match place.spill {
                None => Held::Memory(place.table),
                Some(writer) => Held::Disk { file: writer.finish()?, depth: 1 },
            });
        }
        Ok(Merged {
            spec: self.spec,
            budget_bytes: self.budget_bytes,
            space: self.space,
            places,
            answers: VecDeque::new(),
            is_unsorted: false,
            precisions: Vec::new(),
            cancel: self.cancel,
        })
    }
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

enum Held {
    Memory(Table),
    /// `depth` is how often its groups have been dealt.
    Disk {
        file: SpillFile,
        depth: u32,
    },
}

/// The whole table, in memory and on disk, place by place.
pub struct Merged {
    spec: Arc<TableSpec>,
    budget_bytes: usize,
    space: SpillSpace,
    places: VecDeque<Held>,
    /// Answers that were to be sorted until there were too many.
    answers: VecDeque<RecordBatch>,
    is_unsorted: bool,
    precisions: Vec<Option<Precision>>,
    cancel: Cancel,
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

    fn finish(&mut self, mut table: Table) -> Result<RecordBatch> {
        let precisions = table.precisions();
        self.precisions.resize(precisions.len(), None);
        for (all, one) in self.precisions.iter_mut().zip(precisions) {
            *all = one.map(|one| all.map_or(one, |all| all.and(one)));
        }
        table.finish()
    }

    /// The next table that fits memory, or none after the last.
    fn next_table(&mut self) -> Result<Option<Table>> {
        while let Some(held) = self.places.pop_front() {
            self.cancel.check()?;
            let (file, depth) = match held {
                Held::Memory(table) => return Ok(Some(table)),
                Held::Disk { file, depth } => (file, depth),
            };
            if let Some(table) = self.fold(&file, depth)? {
                return Ok(Some(table));
            }
            for part in self.deal_again(&file, depth)?.into_iter().rev() {
                self.places.push_front(Held::Disk { file: part, depth: depth + 1 });
            }
        }
        Ok(None)
    }

    /// A spilled place as one table, or none where it does not fit.
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

    /// What cannot be dealt any further is a group of which too much is kept.
    fn too_large(&self, table: &Table, file: &SpillFile) -> Error {
        let (held, function) = (table.bytes() as u64, table.largest().unwrap_or("GROUP BY"));
        // On disk it takes a little less than in memory, and the answer is made beside it.
        let enough = pool::size_above(held.max(file.bytes() / 3 * 4).saturating_mul(2));
        Error::Memory {
            message: format!(
                "out of memory: `{function}` has {} for one group, which is held whole, more than \
                 the {} that one may have",
                human(held),
                human(self.group_bytes_max() as u64),
            ),
            hint: Some(format!("--memory {enough} would do; or keep fewer values for each group")),
        }
    }

    fn deal_again(&self, file: &SpillFile, depth: u32) -> Result<Vec<SpillFile>> {
        let mut writers: Vec<SpillWriter> =
            (0..PLACES).map(|_| SpillWriter::new(&self.space)).collect();
        let key_count = self.spec.keys.len();
        for batch in file.read()? {
            self.cancel.check()?;
            let batch = batch?;
            let rows = deal(&batch.columns()[..key_count], batch.num_rows(), depth)?;
            for (writer, rows) in writers.iter_mut().zip(&rows) {
                if !rows.is_empty() {
                    writer.write(&select(&batch, rows)?)?;
                }
            }
        }
        writers.into_iter().map(SpillWriter::finish).collect()
    }

    /// The chunks of the whole table, each group in one of them.
    ///
    /// # Errors
    /// As folding spilled places.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        match self.next_table()? {
            Some(mut table) => Ok(Some(table.take()?)),
            None => Ok(None),
        }
    }

    /// The next part of the answer. One of up to 262,144 groups and a quarter of the budget
    /// comes in one part, sorted by its keys in ascending order with nulls last; a larger one
    /// in the order of its keys' hashes.
    ///
    /// # Errors
    /// Where an answer does not fit its type.
    pub fn next_answer(&mut self) -> Result<Option<RecordBatch>> {
        if self.spec.keys.is_empty() {
            // One group: all of it is at the first place.
            let table = self.next_table()?;
            self.places.clear();
            return table.map(|table| self.finish(table)).transpose();
        }
        if let Some(answer) = self.answers.pop_front() {
            return Ok(Some(answer));
        }
        let (mut group_count, mut bytes) = (0, 0);
        while let Some(table) = self.next_table()? {
            if table.group_count() == 0 {
                continue;
            }
            let answer = self.finish(table)?;
            group_count += answer.num_rows();
            bytes += answer.columns().iter().map(logical_bytes).sum::<usize>();
            self.answers.push_back(answer);
            self.is_unsorted |= group_count > SORTED_GROUPS_MAX || bytes > self.budget_bytes / 4;
            if self.is_unsorted {
                // Too many to sort: one part after the other.
                for answer in &mut self.answers {
                    *answer = in_hash_order(answer, self.spec.keys.len())?;
                }
                return Ok(self.answers.pop_front());
            }
        }
        if self.answers.is_empty() {
            return Ok(None);
        }
        let answers: Vec<RecordBatch> = self.answers.drain(..).collect();
        sorted(concat_batches(&self.spec.output_schema(), &answers)?, &self.spec).map(Some)
    }
}

fn in_hash_order(batch: &RecordBatch, key_count: usize) -> Result<RecordBatch> {
    let hashes = mixed_hashes(&batch.columns()[..key_count], batch.num_rows())?;
    let mut order: Vec<(u64, u32)> = hashes.into_iter().zip(0..).collect();
    order.sort_unstable();
    select_in_order(batch, order.into_iter().map(|(_, row)| row).collect())
}

fn sorted(batch: RecordBatch, spec: &TableSpec) -> Result<RecordBatch> {
    let options = arrow::compute::SortOptions { descending: false, nulls_first: false };
    let fields: Vec<SortField> = spec
        .keys
        .iter()
        .map(|key| SortField::new_with_options(key.data_type().clone(), options))
        .collect();
    if batch.num_rows() < 2 || !RowConverter::supports_fields(&fields) {
        return Ok(batch);
    }
    let converter = RowConverter::new(fields)?;
    let rows = converter.convert_columns(&batch.columns()[..spec.keys.len()])?;
    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    order.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
    select_in_order(&batch, order)
}

fn select_in_order(batch: &RecordBatch, order: Vec<u32>) -> Result<RecordBatch> {
    Ok(take_record_batch(batch, &UInt32Array::from(order))?)
}
