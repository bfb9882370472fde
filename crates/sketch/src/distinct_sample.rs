//! A sample of the distinct items of a stream, each with the weight of all its occurrences.
//!
//! The sample keeps the n distinct items with the smallest hashes: a uniform sample of the items, independent
//! of the number of occurrences of each. The n-th smallest hash gives an estimate of the number of distinct
//! items.
//!
//! ```text
//! hash 0 ├─x──x─x───x──x─┼─ ─ x ─ ─ x ─ ─ x ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┤ 2^64
//!          n smallest, the threshold U_(n) at the last;   the others are dropped
//! ```
//!
//! **The weights are exact, and the state is a function of the multiset of (item, weight) alone.** The n-th
//! smallest hash seen so far only decreases. An item among the final n smallest has been among the n smallest
//! since its first occurrence, in every part that saw it, so no weight of it was dropped. An item that was
//! dropped has n smaller items that never leave, so it does not return. Items of equal hash are ordered by
//! their bytes. The same holds for parts with different n; the smallest n applies to the whole.
//!
//! A state keeps up to 2n items before it drops the surplus at once, which makes an add O(1). Answers and
//! encoded bytes contain the n smallest only.
//!
//! Sources: Cohen and Kaplan, *Summarizing data using bottom-k sketches* (2007), for the estimate by rank
//! conditioning: each of the n − 1 items before the last stands for 1/U_(n) items. The sketch serves the
//! purpose of Sawzall's tables `distinctsample` and `inversehistogram` (Pike, Dorward, Griesemer and Quinlan,
//! *Interpreting the data*, 2005). Weights are summed in 192 bits, floats exactly ([`FloatSum`]): a
//! saturating sum would depend on the order.

use std::fmt::Debug;

use hashbrown::HashTable;

use crate::byte_item::{ByteItem, ItemProbe};
use crate::hll::SketchEstimate;
use crate::moments::{Int192, MomentValue};
use crate::state_encoding::{StateReader, put_varint};
use crate::{FloatSum, SketchError, hash_bytes};

const STATE: &str = "distinct-sample";

const ITEMS_DEFAULT: u32 = 1024;
const ITEMS_MAX: u32 = 1 << 24;

/// Maximum number of items that a state searches linearly, as a list.
const LIST_ITEMS_MAX: usize = 8;

/// The number of 64-bit hashes, 2^64.
const HASH_COUNT: f64 = 18_446_744_073_709_551_616.0;

/// The type of an item's weight: `i128` or `f64`.
pub trait SampleWeight: Copy + Debug + PartialEq + Send + Sync + 'static + sealed::Sealed {
    /// An exact sum of weights.
    type Sum: Clone + Debug + Default + PartialEq + Send + Sync;
    /// The first byte of the encoding.
    const HEADER: u8;
    /// The header byte in words, for error messages.
    const HEADER_DESCRIPTION: &'static str;

    /// Adds a weight.
    fn add(sum: &mut Self::Sum, weight: Self);
    /// Adds another sum.
    fn merge(sum: &mut Self::Sum, other: &Self::Sum);
    /// Returns the sum: an integer beyond 128 bits saturates, a float is rounded once.
    fn value(sum: &Self::Sum) -> Self;
    /// Returns the heap memory of a sum, in bytes.
    fn heap_bytes(sum: &Self::Sum) -> usize;
    /// Appends a sum's bytes.
    fn encode(sum: &Self::Sum, out: &mut Vec<u8>);
    /// Reads a sum that [`SampleWeight::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are not such a sum.
    fn decode(bytes: &[u8]) -> Result<Self::Sum, SketchError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for i128 {}
    impl Sealed for f64 {}
}

impl SampleWeight for i128 {
    type Sum = Int192;
    const HEADER: u8 = 0x81;
    const HEADER_DESCRIPTION: &'static str = "0x81 (whole numbers, version 1)";

    #[inline]
    fn add(sum: &mut Int192, weight: i128) {
        sum.add(weight);
    }

    fn merge(sum: &mut Int192, other: &Int192) {
        <i64 as MomentValue>::merge_sums(sum, other);
    }

    fn value(sum: &Int192) -> i128 {
        sum.saturating_i128()
    }

    fn heap_bytes(_: &Int192) -> usize {
        0
    }

    fn encode(sum: &Int192, out: &mut Vec<u8>) {
        <i64 as MomentValue>::encode(sum, out);
    }

    fn decode(bytes: &[u8]) -> Result<Int192, SketchError> {
        <i64 as MomentValue>::decode(bytes)
    }
}

impl SampleWeight for f64 {
    type Sum = FloatSum;
    const HEADER: u8 = 0x82;
    const HEADER_DESCRIPTION: &'static str = "0x82 (floats, version 1)";

    #[inline]
    fn add(sum: &mut FloatSum, weight: f64) {
        sum.add(weight);
    }

    fn merge(sum: &mut FloatSum, other: &FloatSum) {
        sum.merge(other);
    }

    fn value(sum: &FloatSum) -> f64 {
        sum.value()
    }

    fn heap_bytes(sum: &FloatSum) -> usize {
        sum.heap_bytes()
    }

    fn encode(sum: &FloatSum, out: &mut Vec<u8>) {
        sum.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<FloatSum, SketchError> {
        FloatSum::decode(bytes)
    }
}

#[derive(Clone, Debug)]
struct SampleEntry<S> {
    hash: u64,
    item: ByteItem,
    sum: S,
}

impl<S> SampleEntry<S> {
    /// Returns the sort key of the sample order: the hash, then the bytes of the item.
    fn sample_order(&self) -> (u64, &[u8]) {
        (self.hash, self.item.as_bytes())
    }
}

#[derive(Clone, Debug)]
enum SampleEntries<S> {
    List(Vec<SampleEntry<S>>),
    Table(HashTable<SampleEntry<S>>),
}

/// Returns the hash for the hash table. The smallest item hashes have zero high bits, which the table would
/// use.
#[inline]
fn table_hash(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<S> SampleEntries<S> {
    fn len(&self) -> usize {
        match self {
            SampleEntries::List(list) => list.len(),
            SampleEntries::Table(table) => table.len(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &SampleEntry<S>> {
        let (list, table) = match self {
            SampleEntries::List(list) => (&list[..], None),
            SampleEntries::Table(table) => (&[][..], Some(table.iter())),
        };
        list.iter().chain(table.into_iter().flatten())
    }

    fn into_iter(self) -> impl Iterator<Item = SampleEntry<S>> {
        let (list, table) = match self {
            SampleEntries::List(list) => (list, HashTable::new()),
            SampleEntries::Table(table) => (Vec::new(), table),
        };
        list.into_iter().chain(table)
    }

    #[inline]
    fn find_mut(&mut self, hash: u64, item: &[u8]) -> Option<&mut SampleEntry<S>> {
        let probe = ItemProbe::new(item);
        let is_it = |entry: &SampleEntry<S>| entry.hash == hash && probe.matches(&entry.item);
        match self {
            SampleEntries::List(list) => list.iter_mut().find(|entry| is_it(entry)),
            SampleEntries::Table(table) => table.find_mut(table_hash(hash), is_it),
        }
    }

    /// Inserts an entry whose item is not present.
    fn insert(&mut self, entry: SampleEntry<S>) {
        match self {
            SampleEntries::List(list) if list.len() < LIST_ITEMS_MAX => {
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len().max(1));
                }
                list.push(entry);
            }
            SampleEntries::List(list) => {
                let mut table = HashTable::with_capacity(list.len() + 1);
                for entry in std::mem::take(list).into_iter().chain([entry]) {
                    insert_into_table(&mut table, entry);
                }
                *self = SampleEntries::Table(table);
            }
            SampleEntries::Table(table) => insert_into_table(table, entry),
        }
    }
}

fn insert_into_table<S>(table: &mut HashTable<SampleEntry<S>>, entry: SampleEntry<S>) {
    table.insert_unique(table_hash(entry.hash), entry, |entry| table_hash(entry.hash));
}

/// An item of [`DistinctSample::entries`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledItem<'a, W> {
    /// The item, as it was added.
    pub item: &'a [u8],
    /// The exact sum of the weights of all its occurrences.
    pub weight: W,
}

/// A uniform sample of the distinct items, each with the exact weight of all its occurrences: the n items
/// with the smallest hashes. Weights are whole numbers (`i128`) or floats (`f64`).
///
/// The state is a function of the multiset of items and weights: order and grouping of adds and merges
/// leave no trace. With at most n distinct items it contains all of them.
///
/// Memory: none while empty; an entry takes 56 bytes (72 for floats, plus 304 where [`FloatSum`] is wide) and
/// the item's own bytes if longer than 22. Up to eight entries are a list, more are a table of up to 2n at a
/// load of 44 to 88 %. Cost of an add: 3 ns for an item outside the sample (once items were dropped),
/// otherwise 5 to 12.
///
/// An adversary who chooses items with small or equal hashes biases the sample and slows it down.
///
/// ```
/// use tidemill_sketch::{DistinctSample, hash_bytes};
/// let mut queries = DistinctSample::<i128>::new(100)?;
/// for query in ["cats", "dogs", "cats", "cats", "fish"] {
///     queries.add(hash_bytes(query.as_bytes(), 0), query.as_bytes(), 1);
/// }
/// assert!(queries.is_exact());
/// let entries = queries.entries();
/// assert_eq!((entries[0].item, entries[0].weight), (&b"cats"[..], 3));
/// // Two queries came once, one came three times.
/// assert_eq!(queries.inverse_histogram(), [(1, 2.0), (3, 1.0)]);
/// # Ok::<(), tidemill_sketch::SketchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistinctSample<W: SampleWeight> {
    entries: SampleEntries<W::Sum>,
    /// Adds skip hashes above this one: at least n entries have a hash up to it.
    threshold_hash: u64,
    /// Heap memory of long items and of sums, in bytes.
    entry_bytes: usize,
    items_max: u32,
    /// True once an item was dropped.
    is_partial: bool,
}

impl<W: SampleWeight> Default for DistinctSample<W> {
    fn default() -> Self {
        DistinctSample {
            entries: SampleEntries::List(Vec::new()),
            threshold_hash: u64::MAX,
            entry_bytes: 0,
            items_max: ITEMS_DEFAULT,
            is_partial: false,
        }
    }
}

/// Two states are equal if they have the same n, items and weights, and both or neither have dropped an item.
impl<W: SampleWeight> PartialEq for DistinctSample<W> {
    fn eq(&self, other: &Self) -> bool {
        (self.items_max, self.is_exact()) == (other.items_max, other.is_exact()) && {
            let (a, b) = (self.sorted_entries(), other.sorted_entries());
            let content =
                |entry: &&SampleEntry<W::Sum>| (entry.item.as_bytes().to_vec(), entry.sum.clone());
            a.len() == b.len() && a.iter().map(content).eq(b.iter().map(content))
        }
    }
}

impl<W: SampleWeight> DistinctSample<W> {
    /// Creates an empty state that keeps `items` items, from 1 to 16,777,216. [`DistinctSample::default`]
    /// keeps 1,024.
    ///
    /// The standard error of estimates is 1/√(n − 2) of the value: 3 % with 1,024 items.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(items: u32) -> Result<Self, SketchError> {
        if !(1..=ITEMS_MAX).contains(&items) {
            return Err(SketchError::ParameterOutOfRange {
                name: "items",
                found: items.into(),
                min: 1,
                max: ITEMS_MAX.into(),
                hint: "\nhint: 1024 estimate to 3 %, 10000 to 1 %",
            });
        }
        Ok(DistinctSample { items_max: items, ..DistinctSample::default() })
    }

    /// Returns the maximum number of items, n, which a merge may have reduced.
    #[must_use]
    pub fn items_max(&self) -> u32 {
        self.items_max
    }

    /// Adds an occurrence of an item with its weight. `hash` must be [`hash_bytes`]`(item, 0)`; with any
    /// other hash the sample would change when it is written and read again.
    #[inline]
    pub fn add(&mut self, hash: u64, item: &[u8], weight: W) {
        if hash > self.threshold_hash {
            // No hash exceeds the initial `u64::MAX`, so an earlier prune has lowered the threshold.
            return;
        }
        match self.entries.find_mut(hash, item) {
            Some(entry) => {
                let before = W::heap_bytes(&entry.sum);
                W::add(&mut entry.sum, weight);
                self.entry_bytes += W::heap_bytes(&entry.sum) - before;
            }
            None => {
                let mut sum = W::Sum::default();
                W::add(&mut sum, weight);
                self.insert(SampleEntry { hash, item: ByteItem::new(item), sum });
            }
        }
    }

    /// Inserts an entry whose item is not present, and prunes a surplus of more than n entries.
    #[cold]
    fn insert(&mut self, entry: SampleEntry<W::Sum>) {
        self.entry_bytes += entry.item.heap_bytes() + W::heap_bytes(&entry.sum);
        self.entries.insert(entry);
        if self.entries.len() > 2 * self.items_max as usize {
            self.prune();
        }
    }

    /// Drops all entries except the n smallest.
    fn prune(&mut self) {
        let items = self.items_max as usize;
        if self.entries.len() <= items {
            return;
        }
        let before = std::mem::replace(&mut self.entries, SampleEntries::List(Vec::new()));
        let mut entries: Vec<_> = before.into_iter().collect();
        let (_, last, _) = entries
            .select_nth_unstable_by(items - 1, |a, b| a.sample_order().cmp(&b.sample_order()));
        self.threshold_hash = last.hash;
        entries.truncate(items);
        self.entry_bytes =
            entries.iter().map(|entry| entry.item.heap_bytes() + W::heap_bytes(&entry.sum)).sum();
        self.is_partial = true;
        if items > LIST_ITEMS_MAX {
            // With room for the entries that arrive before the next prune.
            let mut table = HashTable::with_capacity(2 * items + 1);
            entries.into_iter().for_each(|entry| insert_into_table(&mut table, entry));
            self.entries = SampleEntries::Table(table);
        } else {
            self.entries = SampleEntries::List(entries);
        }
    }

    /// Adopts the common limits of both states: the smaller n, the flag for dropped items and the lower
    /// threshold.
    fn adopt_limits(&mut self, other: &DistinctSample<W>) {
        self.items_max = self.items_max.min(other.items_max);
        self.is_partial |= other.is_partial;
        self.threshold_hash = self.threshold_hash.min(other.threshold_hash);
        if let (SampleEntries::Table(table), SampleEntries::Table(more)) =
            (&mut self.entries, &other.entries)
        {
            // Both tables may iterate in the same order; growing during the merge would make that quadratic.
            let room = (2 * self.items_max as usize + 1).saturating_sub(table.len());
            table.reserve(more.len().min(room), |entry| table_hash(entry.hash));
        }
    }

    fn add_entry(&mut self, entry: SampleEntry<W::Sum>) {
        if entry.hash > self.threshold_hash {
            return;
        }
        match self.entries.find_mut(entry.hash, entry.item.as_bytes()) {
            Some(found) => {
                let before = W::heap_bytes(&found.sum);
                W::merge(&mut found.sum, &entry.sum);
                self.entry_bytes += W::heap_bytes(&found.sum) - before;
            }
            None => self.insert(entry),
        }
    }

    /// Adds all occurrences that `other` has seen. If n differs, the smaller one applies.
    ///
    /// Cost: one add for each item of `other`.
    pub fn merge(&mut self, other: &DistinctSample<W>) {
        self.adopt_limits(other);
        for entry in other.entries.iter() {
            if entry.hash <= self.threshold_hash {
                self.add_entry(entry.clone());
            }
        }
        self.prune_surplus();
    }

    /// Merges like [`DistinctSample::merge`] into the larger of the two states, and moves the items of the
    /// other.
    pub fn merge_owned(&mut self, mut other: DistinctSample<W>) {
        if other.entries.len() > self.entries.len() {
            std::mem::swap(self, &mut other);
        }
        self.adopt_limits(&other);
        for entry in other.entries.into_iter() {
            self.add_entry(entry);
        }
        self.prune_surplus();
    }

    /// Prunes the surplus after a merge has reduced n.
    fn prune_surplus(&mut self) {
        if self.entries.len() > 2 * self.items_max as usize {
            self.prune();
        }
    }

    /// Returns the entries of the sample in any order, without the surplus.
    fn sampled_entries(&self) -> Vec<&SampleEntry<W::Sum>> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        let items = self.items_max as usize;
        if entries.len() > items {
            entries
                .select_nth_unstable_by(items - 1, |a, b| a.sample_order().cmp(&b.sample_order()));
            entries.truncate(items);
        }
        entries
    }

    fn sorted_entries(&self) -> Vec<&SampleEntry<W::Sum>> {
        let mut entries = self.sampled_entries();
        entries.sort_unstable_by(|a, b| a.item.as_bytes().cmp(b.item.as_bytes()));
        entries
    }

    /// Returns the items of the sample with their weights, in ascending order of the items' bytes.
    ///
    /// Cost: one sort of the items.
    #[must_use]
    pub fn entries(&self) -> Vec<SampledItem<'_, W>> {
        let entries = self.sorted_entries();
        let sampled = entries.into_iter();
        sampled
            .map(|entry| SampledItem { item: entry.item.as_bytes(), weight: W::value(&entry.sum) })
            .collect()
    }

    /// Returns true if the sample contains all items: at most n were added. Cost: constant.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.is_partial && self.entries.len() <= self.items_max as usize
    }

    /// Estimates the number of distinct items. Exact while [`is_exact`](DistinctSample::is_exact), otherwise
    /// (n − 1)/U, where U is the share of hashes up to the largest of the sample. The standard error is 1/√(n
    /// − 2) of the value (infinite up to n = 2). The estimate is at least n + 1, which is certain.
    #[must_use]
    pub fn distinct_estimate(&self) -> SketchEstimate {
        if self.is_exact() {
            return SketchEstimate::from_exact(self.entries.len() as f64);
        }
        let n = f64::from(self.items_max);
        let last =
            self.sampled_entries().into_iter().map(|entry| entry.hash).max().unwrap_or(u64::MAX);
        let value = ((n - 1.0) / hash_share(last)).max(n + 1.0);
        let relative = if n > 2.0 { 1.0 / (n - 2.0).sqrt() } else { f64::INFINITY };
        SketchEstimate::with_standard_error(value, value * relative)
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let entries = match &self.entries {
            SampleEntries::List(list) => list.capacity() * size_of::<SampleEntry<W::Sum>>(),
            SampleEntries::Table(table) => table.allocation_size(),
        };
        entries + self.entry_bytes
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(W::HEADER);
        put_varint(out, self.items_max.into());
        out.push(u8::from(!self.is_exact()));
        let entries = self.sorted_entries();
        put_varint(out, entries.len() as u64);
        let mut sum = Vec::new();
        for entry in entries {
            let item = entry.item.as_bytes();
            put_varint(out, item.len() as u64);
            out.extend_from_slice(item);
            sum.clear();
            W::encode(&entry.sum, &mut sum);
            put_varint(out, sum.len() as u64);
            out.extend_from_slice(&sum);
        }
    }

    /// Reads a state that [`DistinctSample::encode`] wrote, and hashes the items again.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is bounded by some sixty times the input,
    /// reached with the shortest items.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(W::HEADER, W::HEADER_DESCRIPTION)?;
        let items = u32::try_from(reader.read_varint()?).unwrap_or(u32::MAX);
        let Ok(mut state) = DistinctSample::<W>::new(items) else {
            return Err(reader.corrupt_error("the number of items to keep is not 1 to 2^24"));
        };
        state.is_partial = match reader.read_u8()? {
            0 => false,
            1 => true,
            _ => {
                return Err(reader.corrupt_error(
                    "the byte that tells whether items were dropped is not 0 or 1",
                ));
            }
        };
        let count = reader.read_length(2)?;
        if count > items as usize {
            return Err(reader.corrupt_error("more items than it keeps"));
        }
        if state.is_partial && count < items as usize {
            return Err(reader.corrupt_error("items were dropped while there was room"));
        }
        if count > LIST_ITEMS_MAX {
            state.entries = SampleEntries::Table(HashTable::with_capacity(count));
        }
        let mut before: Option<&[u8]> = None;
        let mut hash_max = 0;
        for _ in 0..count {
            let length = reader.read_length(1)?;
            let item = reader.take_bytes(length)?;
            if before.is_some_and(|before| before >= item) {
                return Err(reader.corrupt_error("items do not ascend"));
            }
            before = Some(item);
            let length = reader.read_length(1)?;
            let Ok(sum) = W::decode(reader.take_bytes(length)?) else {
                return Err(reader.corrupt_error("a weight is not an exact sum"));
            };
            let hash = hash_bytes(item, 0);
            hash_max = hash_max.max(hash);
            state.insert(SampleEntry { hash, item: ByteItem::new(item), sum });
        }
        reader.expect_end()?;
        if state.is_partial {
            state.threshold_hash = hash_max;
        }
        Ok(state)
    }
}

/// Returns the share of all hashes that are not above `hash`.
fn hash_share(hash: u64) -> f64 {
    (hash as f64 + 1.0) / HASH_COUNT
}

impl DistinctSample<i128> {
    /// Returns the number of distinct items for each occurrence count, ascending by count. All items must
    /// have been added with weight 1.
    ///
    /// Exact while [`is_exact`](DistinctSample::is_exact). Otherwise each item of the sample, except the one
    /// with the largest hash, stands for an equal part of
    /// [`distinct_estimate`](DistinctSample::distinct_estimate), so that the numbers add up to that estimate.
    /// A number based on k items of the sample has a standard error of about 1/√k of it, and a count that few
    /// items have may be missing.
    #[must_use]
    pub fn inverse_histogram(&self) -> Vec<(i128, f64)> {
        let mut sample = self.sampled_entries();
        let mut each = 1.0;
        if !self.is_exact() {
            let last = (0..sample.len())
                .max_by(|&a, &b| sample[a].sample_order().cmp(&sample[b].sample_order()));
            if let Some(last) = last {
                sample.swap_remove(last);
            }
            each = self.distinct_estimate().value / sample.len() as f64;
        }
        let mut counts: Vec<i128> =
            sample.iter().map(|entry| entry.sum.saturating_i128()).collect();
        counts.sort_unstable();
        counts.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as f64 * each)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_large_as_documented() {
        assert_eq!(size_of::<SampleEntry<Int192>>(), 56);
        assert_eq!(size_of::<SampleEntry<FloatSum>>(), 72);
        let mut state = DistinctSample::<i128>::default();
        assert_eq!(state.heap_bytes(), 0);
        state.add(hash_bytes(b"a", 0), b"a", 1);
        assert_eq!(state.heap_bytes(), 56);
    }

    #[test]
    fn a_weight_beyond_128_bits_reads_as_the_largest_and_is_not_lost() {
        let mut state = DistinctSample::<i128>::default();
        let hash = hash_bytes(b"a", 0);
        let weight = |state: &DistinctSample<i128>| state.entries()[0].weight;
        state.add(hash, b"a", i128::MAX);
        state.add(hash, b"a", 5);
        assert_eq!(weight(&state), i128::MAX);
        state.add(hash, b"a", -6);
        assert_eq!(weight(&state), i128::MAX - 1);
        state.add(hash, b"a", i128::MIN);
        state.add(hash, b"a", i128::MIN);
        assert_eq!(weight(&state), i128::MIN);
    }
}
