//! A sample of the distinct items of a stream, each with the weight of all its occurrences.
//!
//! Of all the distinct items those n are kept whose hashes are smallest: a uniform sample of the items, whatever
//! the number of occurrences of each. How far the n-th smallest hash lies above 0 tells how many there are.
//!
//! ```text
//! hash 0 ├─x──x─x───x──x─┼─ ─ x ─ ─ x ─ ─ x ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┤ 2^64
//!          n smallest, the threshold U_(n) at the last;   the others are dropped
//! ```
//!
//! **The weights are exact and the state a function of the multiset of (item, weight) alone.** The n-th smallest hash
//! of what was seen so far only sinks. An item that is among the n smallest of all was so from its first
//! occurrence on, in every part that saw it, so that nothing of it was dropped; and of an item that was dropped
//! once there are n smaller ones that never go, so that it does not return. Items of equal hash are ordered by
//! their bytes. The same holds with parts of different n, of which the smallest is the whole's.
//!
//! Up to 2n items are kept before the surplus is dropped at once, which makes an add O(1). What is answered and
//! written are the n smallest.
//!
//! Sources: Cohen and Kaplan, *Summarizing data using bottom-k sketches* (2007), whose rank conditioning is used to
//! estimate: each of the n − 1 items before the last stands for 1/U_(n) items. Sawzall's tables `distinctsample` and
//! `inversehistogram` (Pike, Dorward, Griesemer and Quinlan, *Interpreting the data*, 2005) are what it is for.
//! Weights are summed in 192 bits, or floats exactly ([`FloatSum`]): a sum that saturates depends on the order.

use std::fmt::Debug;

use hashbrown::HashTable;

use crate::hll::Estimate;
use crate::item::{Item, Probe};
use crate::moments::{Number, Whole};
use crate::wire::{Reader, put_varint};
use crate::{FloatSum, SketchError, hash_bytes};

const STATE: &str = "distinct-sample";

const ITEMS_DEFAULT: u32 = 1024;
const ITEMS_MAX: u32 = 1 << 24;

/// Up to this many items are looked up one by one.
const LIST_MAX: usize = 8;

/// 2^64.
const HASHES: f64 = 18_446_744_073_709_551_616.0;

/// What items weigh: `i128` or `f64`.
pub trait Weight: Copy + Debug + PartialEq + Send + Sync + 'static + sealed::Sealed {
    /// An exact sum of weights.
    type Sum: Clone + Debug + Default + PartialEq + Send + Sync;
    /// The first byte of the encoding.
    const HEADER: u8;
    /// The same in words.
    const EXPECTED: &'static str;

    /// Adds a weight.
    fn add(sum: &mut Self::Sum, weight: Self);
    /// Adds what another sum has.
    fn merge(sum: &mut Self::Sum, other: &Self::Sum);
    /// The sum: an integer beyond 128 bits as the nearest of them, a float rounded once.
    fn value(sum: &Self::Sum) -> Self;
    /// The memory on the heap, in bytes.
    fn heap_bytes(sum: &Self::Sum) -> usize;
    /// Appends a sum's bytes.
    fn encode(sum: &Self::Sum, out: &mut Vec<u8>);
    /// Reads them again.
    ///
    /// # Errors
    /// Where they are not such bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Sum, SketchError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for i128 {}
    impl Sealed for f64 {}
}

impl Weight for i128 {
    type Sum = Whole;
    const HEADER: u8 = 0x81;
    const EXPECTED: &'static str = "0x81 (whole numbers, version 1)";

    #[inline]
    fn add(sum: &mut Whole, weight: i128) {
        sum.add(weight);
    }

    fn merge(sum: &mut Whole, other: &Whole) {
        <i64 as Number>::merge(sum, other);
    }

    fn value(sum: &Whole) -> i128 {
        sum.nearest()
    }

    fn heap_bytes(_: &Whole) -> usize {
        0
    }

    fn encode(sum: &Whole, out: &mut Vec<u8>) {
        <i64 as Number>::encode(sum, out);
    }

    fn decode(bytes: &[u8]) -> Result<Whole, SketchError> {
        <i64 as Number>::decode(bytes)
    }
}

impl Weight for f64 {
    type Sum = FloatSum;
    const HEADER: u8 = 0x82;
    const EXPECTED: &'static str = "0x82 (floats, version 1)";

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
struct Entry<S> {
    hash: u64,
    item: Item,
    sum: S,
}

impl<S> Entry<S> {
    /// What the order of the sample is by.
    fn rank(&self) -> (u64, &[u8]) {
        (self.hash, self.item.as_bytes())
    }
}

#[derive(Clone, Debug)]
enum Entries<S> {
    List(Vec<Entry<S>>),
    Table(HashTable<Entry<S>>),
}

/// The table's hash of an item's: of the smallest hashes the high bits are all 0, and a table looks at those.
#[inline]
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<S> Entries<S> {
    fn len(&self) -> usize {
        match self {
            Entries::List(list) => list.len(),
            Entries::Table(table) => table.len(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Entry<S>> {
        let (list, table) = match self {
            Entries::List(list) => (&list[..], None),
            Entries::Table(table) => (&[][..], Some(table.iter())),
        };
        list.iter().chain(table.into_iter().flatten())
    }

    fn into_iter(self) -> impl Iterator<Item = Entry<S>> {
        let (list, table) = match self {
            Entries::List(list) => (list, HashTable::new()),
            Entries::Table(table) => (Vec::new(), table),
        };
        list.into_iter().chain(table)
    }

    #[inline]
    fn find_mut(&mut self, hash: u64, item: &[u8]) -> Option<&mut Entry<S>> {
        let probe = Probe::new(item);
        let is_it = |entry: &Entry<S>| entry.hash == hash && probe.matches(&entry.item);
        match self {
            Entries::List(list) => list.iter_mut().find(|entry| is_it(entry)),
            Entries::Table(table) => table.find_mut(spread(hash), is_it),
        }
    }

    /// Inserts what is not there yet.
    fn insert(&mut self, entry: Entry<S>) {
        match self {
            Entries::List(list) if list.len() < LIST_MAX => {
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len().max(1));
                }
                list.push(entry);
            }
            Entries::List(list) => {
                let mut table = HashTable::with_capacity(list.len() + 1);
                for entry in std::mem::take(list).into_iter().chain([entry]) {
                    insert_into(&mut table, entry);
                }
                *self = Entries::Table(table);
            }
            Entries::Table(table) => insert_into(table, entry),
        }
    }
}

fn insert_into<S>(table: &mut HashTable<Entry<S>>, entry: Entry<S>) {
    table.insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash));
}

/// An item of [`DistinctSample::entries`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledItem<'a, W> {
    /// The item, as it was added.
    pub item: &'a [u8],
    /// The exact sum of the weights of all its occurrences.
    pub weight: W,
}

/// A uniform sample of the distinct items, each with the exact weight of all its occurrences: those n of
/// smallest hash. Weights are whole numbers (`i128`) or floats (`f64`).
///
/// The state is a function of the multiset of items and weights: order and grouping of adds and merges
/// leave no trace. While there were at most n distinct items it has all of them.
///
/// Memory: none while empty; an entry is 56 bytes (of floats 72, and 304 more where [`FloatSum`] says so) and the item's
/// own bytes if longer than 22; up to eight are a list, more a table of up to 2n at a load of 44 to 88 %. Cost of an add:
/// 3 ns of an item that is not in the sample (once n were dropped), else 5 to 12.
///
/// Who chooses items so that their hashes are small, or the same, bends the sample and slows it down.
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
pub struct DistinctSample<W: Weight> {
    entries: Entries<W::Sum>,
    /// Larger hashes are dropped unseen: at least n entries are not larger.
    hash_max: u64,
    /// The heap memory of long items, and of sums.
    entry_bytes: usize,
    items: u32,
    /// Whether an item was dropped.
    is_partial: bool,
}

impl<W: Weight> Default for DistinctSample<W> {
    fn default() -> Self {
        DistinctSample {
            entries: Entries::List(Vec::new()),
            hash_max: u64::MAX,
            entry_bytes: 0,
            items: ITEMS_DEFAULT,
            is_partial: false,
        }
    }
}

/// Two states are equal if they have the same n, items and weights, and both or neither have dropped any.
impl<W: Weight> PartialEq for DistinctSample<W> {
    fn eq(&self, other: &Self) -> bool {
        (self.items, self.is_exact()) == (other.items, other.is_exact()) && {
            let (a, b) = (self.sorted(), other.sorted());
            let content =
                |entry: &&Entry<W::Sum>| (entry.item.as_bytes().to_vec(), entry.sum.clone());
            a.len() == b.len() && a.iter().map(content).eq(b.iter().map(content))
        }
    }
}

impl<W: Weight> DistinctSample<W> {
    /// An empty state that keeps `items` items, from 1 to 16,777,216. [`DistinctSample::default`] keeps 1,024.
    ///
    /// The error of estimates is 1/√(n − 2) of the value: 3 % with 1,024.
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
        Ok(DistinctSample { items, ..DistinctSample::default() })
    }

    /// How many items it keeps, n, which a merge may have reduced.
    #[must_use]
    pub fn items_max(&self) -> u32 {
        self.items
    }

    /// Adds an occurrence of an item, with its weight. `hash` has to be [`hash_bytes`]`(item, 0)`: with
    /// another the sample is another after it was written and read.
    #[inline]
    pub fn add(&mut self, hash: u64, item: &[u8], weight: W) {
        if hash > self.hash_max {
            // Nothing is above the largest hash: something was dropped before.
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
                self.insert(Entry { hash, item: Item::new(item), sum });
            }
        }
    }

    /// Inserts an entry that is not there, and drops the surplus where there is too much of it.
    #[cold]
    fn insert(&mut self, entry: Entry<W::Sum>) {
        self.entry_bytes += entry.item.heap_bytes() + W::heap_bytes(&entry.sum);
        self.entries.insert(entry);
        if self.entries.len() > 2 * self.items as usize {
            self.prune();
        }
    }

    /// Drops all but the n smallest.
    fn prune(&mut self) {
        let items = self.items as usize;
        if self.entries.len() <= items {
            return;
        }
        let before = std::mem::replace(&mut self.entries, Entries::List(Vec::new()));
        let mut entries: Vec<_> = before.into_iter().collect();
        let (_, last, _) =
            entries.select_nth_unstable_by(items - 1, |a, b| a.rank().cmp(&b.rank()));
        self.hash_max = last.hash;
        entries.truncate(items);
        self.entry_bytes =
            entries.iter().map(|entry| entry.item.heap_bytes() + W::heap_bytes(&entry.sum)).sum();
        self.is_partial = true;
        if items > LIST_MAX {
            // With room for what comes before the next time.
            let mut table = HashTable::with_capacity(2 * items + 1);
            entries.into_iter().for_each(|entry| insert_into(&mut table, entry));
            self.entries = Entries::Table(table);
        } else {
            self.entries = Entries::List(entries);
        }
    }

    /// Takes over what both have in common: the smaller n, what was dropped, and which hashes no longer count.
    fn join(&mut self, other: &DistinctSample<W>) {
        self.items = self.items.min(other.items);
        self.is_partial |= other.is_partial;
        self.hash_max = self.hash_max.min(other.hash_max);
        if let (Entries::Table(table), Entries::Table(more)) = (&mut self.entries, &other.entries) {
            // Both may walk in the same order; growing meanwhile would make that quadratic.
            let room = (2 * self.items as usize + 1).saturating_sub(table.len());
            table.reserve(more.len().min(room), |entry| spread(entry.hash));
        }
    }

    fn add_entry(&mut self, entry: Entry<W::Sum>) {
        if entry.hash > self.hash_max {
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

    /// Adds all that `other` has seen. Of different n, the smaller one holds.
    ///
    /// Cost: an add for each item of `other`.
    pub fn merge(&mut self, other: &DistinctSample<W>) {
        self.join(other);
        for entry in other.entries.iter() {
            if entry.hash <= self.hash_max {
                self.add_entry(entry.clone());
            }
        }
        self.fit();
    }

    /// As [`DistinctSample::merge`], into the one that holds more; items are moved.
    pub fn merge_owned(&mut self, mut other: DistinctSample<W>) {
        if other.entries.len() > self.entries.len() {
            std::mem::swap(self, &mut other);
        }
        self.join(&other);
        for entry in other.entries.into_iter() {
            self.add_entry(entry);
        }
        self.fit();
    }

    /// Prunes where n has become smaller.
    fn fit(&mut self) {
        if self.entries.len() > 2 * self.items as usize {
            self.prune();
        }
    }

    /// The entries of the sample in any order, without the surplus.
    fn sample(&self) -> Vec<&Entry<W::Sum>> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        let items = self.items as usize;
        if entries.len() > items {
            entries.select_nth_unstable_by(items - 1, |a, b| a.rank().cmp(&b.rank()));
            entries.truncate(items);
        }
        entries
    }

    fn sorted(&self) -> Vec<&Entry<W::Sum>> {
        let mut entries = self.sample();
        entries.sort_unstable_by(|a, b| a.item.as_bytes().cmp(b.item.as_bytes()));
        entries
    }

    /// The items of the sample with their weights, in ascending order of the items' bytes.
    ///
    /// Cost: that of sorting them.
    #[must_use]
    pub fn entries(&self) -> Vec<SampledItem<'_, W>> {
        let entries = self.sorted();
        let sampled = entries.into_iter();
        sampled
            .map(|entry| SampledItem { item: entry.item.as_bytes(), weight: W::value(&entry.sum) })
            .collect()
    }

    /// Whether it has all items: there were at most n. Cost: constant.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.is_partial && self.entries.len() <= self.items as usize
    }

    /// How many distinct items there are: exactly while [`is_exact`](DistinctSample::is_exact), else (n − 1)/U, U being
    /// the share of hashes up to the largest of the sample, with a standard error of 1/√(n − 2) of it (infinite up to
    /// n = 2). At least n + 1, which is certain.
    #[must_use]
    pub fn distinct_estimate(&self) -> Estimate {
        if self.is_exact() {
            return Estimate::exact(self.entries.len() as f64);
        }
        let n = f64::from(self.items);
        let last = self.sample().into_iter().map(|entry| entry.hash).max().unwrap_or(u64::MAX);
        let value = ((n - 1.0) / share(last)).max(n + 1.0);
        let relative = if n > 2.0 { 1.0 / (n - 2.0).sqrt() } else { f64::INFINITY };
        Estimate::uncertain(value, value * relative)
    }

    /// The heap memory the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let entries = match &self.entries {
            Entries::List(list) => list.capacity() * size_of::<Entry<W::Sum>>(),
            Entries::Table(table) => table.allocation_size(),
        };
        entries + self.entry_bytes
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(W::HEADER);
        put_varint(out, self.items.into());
        out.push(u8::from(!self.is_exact()));
        let entries = self.sorted();
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

    /// Reads a state that [`DistinctSample::encode`] wrote. The items are hashed again.
    ///
    /// Accepts canonical bytes only: what it accepts encodes to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] but the parameter's; memory is bounded by some sixty times the input, which the
    /// shortest items take.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = Reader::new(STATE, bytes);
        reader.expect_header(W::HEADER, W::EXPECTED)?;
        let items = u32::try_from(reader.varint()?).unwrap_or(u32::MAX);
        let Ok(mut state) = DistinctSample::<W>::new(items) else {
            return Err(reader.corrupt("the number of items to keep is not 1 to 2^24"));
        };
        state.is_partial = match reader.u8()? {
            0 => false,
            1 => true,
            _ => {
                return Err(
                    reader.corrupt("the byte that tells whether items were dropped is not 0 or 1")
                );
            }
        };
        let count = reader.length(2)?;
        if count > items as usize {
            return Err(reader.corrupt("more items than it keeps"));
        }
        if state.is_partial && count < items as usize {
            return Err(reader.corrupt("items were dropped while there was room"));
        }
        if count > LIST_MAX {
            state.entries = Entries::Table(HashTable::with_capacity(count));
        }
        let mut before: Option<&[u8]> = None;
        let mut hash_max = 0;
        for _ in 0..count {
            let length = reader.length(1)?;
            let item = reader.take(length)?;
            if before.is_some_and(|before| before >= item) {
                return Err(reader.corrupt("items do not ascend"));
            }
            before = Some(item);
            let length = reader.length(1)?;
            let Ok(sum) = W::decode(reader.take(length)?) else {
                return Err(reader.corrupt("a weight is not an exact sum"));
            };
            let hash = hash_bytes(item, 0);
            hash_max = hash_max.max(hash);
            state.insert(Entry { hash, item: Item::new(item), sum });
        }
        reader.finish()?;
        if state.is_partial {
            state.hash_max = hash_max;
        }
        Ok(state)
    }
}

/// The share of hashes that are not above this one.
fn share(hash: u64) -> f64 {
    (hash as f64 + 1.0) / HASHES
}

impl DistinctSample<i128> {
    /// Of items added with weight 1: for each count that occurs, how many distinct items came so often. Ascending by
    /// the count.
    ///
    /// Exact while [`is_exact`](DistinctSample::is_exact). Else each item of the sample but the one of the largest hash
    /// stands for as many as [`distinct_estimate`](DistinctSample::distinct_estimate) says, so that the numbers add up to
    /// that estimate; a number made of k items of the sample has a standard error of about 1/√k of it, and a count
    /// that few items have may be missing.
    #[must_use]
    pub fn inverse_histogram(&self) -> Vec<(i128, f64)> {
        let mut sample = self.sample();
        let mut each = 1.0;
        if !self.is_exact() {
            let last = (0..sample.len()).max_by(|&a, &b| sample[a].rank().cmp(&sample[b].rank()));
            if let Some(last) = last {
                sample.swap_remove(last);
            }
            each = self.distinct_estimate().value / sample.len() as f64;
        }
        let mut counts: Vec<i128> = sample.iter().map(|entry| entry.sum.nearest()).collect();
        counts.sort_unstable();
        counts.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as f64 * each)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_large_as_documented() {
        assert_eq!(size_of::<Entry<Whole>>(), 56);
        assert_eq!(size_of::<Entry<FloatSum>>(), 72);
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
