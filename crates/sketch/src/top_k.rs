//! The most frequent items of a stream, with bounds on each count.
//!
//! A table counts items exactly. When it holds more than twice `capacity` items, a purge subtracts the count
//! of rank capacity + 1, counted from the largest, from all counts and keeps the first `capacity` items.
//! Items whose count equals the subtracted one have nothing left; of these the smaller ones stay. The sum of
//! all subtracted counts is the *offset*. The true count of an item lies between its count in the table and
//! that plus the offset; for an item outside the table, between 0 and the offset.
//!
//! ```text
//! counts, descending   9 8 7 4 ┊ 3 2 2 1 1         capacity 4, nine items: one too many
//! minus the fifth, 3   6 5 4 1 ┊ –                 offset + 3
//! ```
//!
//! **The bound.** A purge that subtracts s takes at least s from each of capacity + 1 items, so
//! `(capacity + 1) · offset + Σ counts ≤ total`. A merge adds up all three terms, then purges.
//! Hence after any adds and merges, in any order, `offset ≤ total / (capacity + 1)`: an item
//! that is more frequent than that is never lost.
//!
//! Source: Misra and Gries, *Finding repeated elements* (1982); merging by Agarwal, Cormode, Huang, Phillips,
//! Wei and Yi, *Mergeable summaries* (2012). DataSketches' frequent items sketch subtracts an estimated
//! median when its table fills. This sketch subtracts by exact rank and breaks ties by the items, so that the
//! result depends on the sequence of operations alone and never on the table's iteration order. Items with
//! nothing left may stay, which gives an answer, with a stated error, even if all items are about equally
//! frequent. The result does depend on the sequence of operations; only exact states are independent of
//! order.
//!
//! A group of few items costs little: up to eight items are a plain list, up to 32 if all have eight bytes,
//! as numbers do. An item of up to 22 bytes is stored in the entry itself.

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::SketchError;
use crate::byte_item::{ByteItem, ItemProbe, hash_item};
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "top-k";
const HEADER: u8 = 0x31;

const CAPACITY_DEFAULT: u32 = 1024;
const CAPACITY_MAX: u32 = 1 << 24;

/// Maximum number of items that a state searches linearly, as a list.
const LIST_ITEMS_MAX: usize = 8;

/// Maximum number of items in the word form, in which every item has eight bytes.
const WORD_ITEMS_MAX: usize = 32;

/// Number of adds between two checks for a conversion from words to a table.
const TABLE_CHECK_ADDS: u64 = 1024;

#[derive(Clone, Debug)]
struct CountEntry {
    item: ByteItem,
    count: u64,
}

/// An entry whose item has eight bytes.
#[derive(Clone, Copy, Debug)]
struct WordEntry {
    item: [u8; 8],
    count: u64,
}

/// Returns the index of a word among at most [`WORD_ITEMS_MAX`]. Compares all of them: an early exit would be
/// mispredicted and costs more.
#[inline]
fn find_word(words: &[WordEntry], item: [u8; 8]) -> Option<usize> {
    let item = u64::from_ne_bytes(item);
    let found = words.iter().zip(0..).fold(0u32, |found, (word, place)| {
        found | u32::from(u64::from_ne_bytes(word.item) == item) << place
    });
    (found != 0).then_some(found.trailing_zeros() as usize)
}

#[derive(Clone, Debug)]
enum ItemCounts {
    /// Items of eight bytes each.
    Words(Vec<WordEntry>),
    List(Vec<CountEntry>),
    Table(Box<CountTable>),
}

/// A hash table of counts. The hash is foldhash with random seeds: no answer and no encoded byte depends on
/// the order that it gives, and items that collide are hard to choose.
#[derive(Clone, Debug)]
struct CountTable {
    entries: HashTable<CountEntry>,
    hasher: DefaultHashBuilder,
    /// Heap memory of the long items, in bytes.
    item_bytes: usize,
}

impl CountTable {
    fn reserve(&mut self, additional: usize) {
        let CountTable { entries, hasher, .. } = self;
        entries.reserve(additional, |entry| hash_item(hasher, entry.item.as_bytes()));
    }

    #[inline]
    fn add(&mut self, item: &[u8], n: u64) {
        let CountTable { entries, hasher, item_bytes } = self;
        let hashed = hash_item(hasher, item);
        let probe = ItemProbe::new(item);
        match entries.find_mut(hashed, |entry| probe.matches(&entry.item)) {
            Some(entry) => entry.count = entry.count.saturating_add(n),
            None => {
                let entry = CountEntry { item: ByteItem::new(item), count: n };
                *item_bytes += entry.item.heap_bytes();
                entries
                    .insert_unique(hashed, entry, |entry| hash_item(hasher, entry.item.as_bytes()));
            }
        }
    }
}

/// An item of [`TopK::top_items`] with the bounds of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopItem<'a> {
    /// The item, as it was added.
    pub item: &'a [u8],
    /// Minimum number of times that the item was added.
    pub lower_bound: u64,
    /// Maximum number of times that the item was added.
    pub upper_bound: u64,
}

/// The most frequent items: exact counts while they are few, then guaranteed bounds.
///
/// Items are byte strings; encode other values so that the bytes order as the values should
/// where counts tie. Up to 2^64 − 1 occurrences. The state is a function of the sequence of
/// adds and merges; while exact, of the multiset of items alone.
///
/// Memory: none while empty; 16 bytes an item for up to 32 items of eight bytes, 32 bytes an item for up to 8
/// other items, then 38 to 75 bytes an item (plus its own bytes if longer than 22), for up to twice
/// `capacity` items. Cost of an add: about 10 ns for a short item.
///
/// ```
/// use tidemill_sketch::TopK;
/// let mut airports = TopK::default();
/// for airport in ["JFK", "EWR", "JFK", "LGA", "JFK", "EWR"] {
///     airports.add(airport.as_bytes(), 1);
/// }
/// let top = airports.top_items(2);
/// assert_eq!((top[0].item, top[0].lower_bound, top[0].upper_bound), (&b"JFK"[..], 3, 3));
/// assert_eq!((top[1].item, top[1].lower_bound, top[1].upper_bound), (&b"EWR"[..], 2, 2));
/// assert!(airports.is_exact());
/// ```
#[derive(Debug, Clone)]
pub struct TopK {
    counts: ItemCounts,
    /// Number of occurrences added, of all items together.
    total: u64,
    /// Sum of the counts that purges have subtracted from every item.
    offset: u64,
    capacity: u32,
}

impl Default for TopK {
    fn default() -> Self {
        TopK {
            counts: ItemCounts::Words(Vec::new()),
            total: 0,
            offset: 0,
            capacity: CAPACITY_DEFAULT,
        }
    }
}

/// Two states are equal if they have the same capacity, total, offset and counts.
impl PartialEq for TopK {
    fn eq(&self, other: &Self) -> bool {
        let content = |state: &TopK| (state.capacity, state.total, state.offset, state.len());
        content(self) == content(other)
            && self.sorted_entries().iter().zip(other.sorted_entries()).all(|(a, b)| *a == b)
    }
}

impl Eq for TopK {}

impl TopK {
    /// Creates an empty state that keeps at least the `capacity` most frequent items it can distinguish, from
    /// 1 to 16,777,216. [`TopK::default`] has 1,024.
    ///
    /// An item with a share above 1/(capacity + 1) of all occurrences is never lost. To list the top
    /// k well, choose a capacity of ten times k or more.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(capacity: u32) -> Result<Self, SketchError> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(SketchError::ParameterOutOfRange {
                name: "capacity",
                found: capacity.into(),
                min: 1,
                max: CAPACITY_MAX.into(),
                hint: "\nhint: ten times the number of items to list is a good choice",
            });
        }
        Ok(TopK { capacity, ..TopK::default() })
    }

    /// Returns the capacity, which a merge may have reduced.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Adds `n` occurrences of an item.
    #[inline]
    pub fn add(&mut self, item: &[u8], n: u64) {
        if n == 0 {
            return;
        }
        self.total = self.total.saturating_add(n);
        if self.needs_table() {
            self.convert_to_table();
        }
        self.add_count(item, n);
        if self.len() > self.len_max() {
            self.subtract_and_purge();
        }
    }

    /// Adds one occurrence of each item, all of eight bytes: equivalent to a call of [`TopK::add`] for each.
    pub fn add_word_items(&mut self, items: &[[u8; 8]]) {
        for (at, item) in items.iter().enumerate() {
            if let ItemCounts::Words(words) = &mut self.counts {
                if let Some(place) = find_word(words, *item) {
                    words[place].count = words[place].count.saturating_add(1);
                    self.total = self.total.saturating_add(1);
                    continue;
                }
                if words.len() == words.capacity() && words.len() < WORD_ITEMS_MAX {
                    // Some of the remaining items are present already, or occur twice.
                    let more = (items.len() - at).div_ceil(4) * 3;
                    let room = (words.len() + more).next_multiple_of(4).min(WORD_ITEMS_MAX);
                    words.reserve_exact(room - words.len());
                }
            }
            self.add(item, 1);
        }
    }

    /// Adds to an item's count without checking the capacity.
    #[inline]
    fn add_count(&mut self, item: &[u8], n: u64) {
        match &mut self.counts {
            ItemCounts::Table(table) => table.add(item, n),
            ItemCounts::Words(words) => {
                let place = item.try_into().ok().and_then(|item| find_word(words, item));
                match place {
                    Some(place) => words[place].count = words[place].count.saturating_add(n),
                    None => self.insert(item, n),
                }
            }
            ItemCounts::List(list) => {
                let probe = ItemProbe::new(item);
                match list.iter_mut().find(|entry| probe.matches(&entry.item)) {
                    Some(entry) => entry.count = entry.count.saturating_add(n),
                    None => self.insert(item, n),
                }
            }
        }
    }

    /// Appends an item to the words or the list, or converts the state to the next form.
    #[cold]
    fn insert(&mut self, item: &[u8], n: u64) {
        match &mut self.counts {
            ItemCounts::Words(words) => {
                if words.len() < WORD_ITEMS_MAX
                    && let Ok(item) = item.try_into()
                {
                    if words.len() == words.capacity() {
                        words.reserve_exact(words.len().clamp(2, 8));
                    }
                    return words.push(WordEntry { item, count: n });
                }
                if words.len() < LIST_ITEMS_MAX {
                    let mut list = Vec::with_capacity((words.len() + 1).next_power_of_two());
                    list.extend(words.iter().map(|word| CountEntry {
                        item: ByteItem::new(&word.item),
                        count: word.count,
                    }));
                    list.push(CountEntry { item: ByteItem::new(item), count: n });
                    self.counts = ItemCounts::List(list);
                    return;
                }
            }
            ItemCounts::List(list) if list.len() < LIST_ITEMS_MAX => {
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len().max(1));
                }
                return list.push(CountEntry { item: ByteItem::new(item), count: n });
            }
            ItemCounts::List(_) | ItemCounts::Table(_) => {}
        }
        self.convert_to_table();
        self.add_count(item, n);
    }

    /// Converts the state to a table.
    #[cold]
    fn convert_to_table(&mut self) {
        let mut table = CountTable {
            entries: HashTable::with_capacity(self.len() + 1),
            hasher: DefaultHashBuilder::default(),
            item_bytes: 0,
        };
        for (item, count) in self.entries() {
            table.add(item, count);
        }
        self.counts = ItemCounts::Table(Box::new(table));
    }

    /// Returns true if lookups in the words are frequent enough to justify a table, which takes more memory.
    #[inline]
    fn needs_table(&self) -> bool {
        self.total.is_multiple_of(TABLE_CHECK_ADDS)
            && matches!(&self.counts, ItemCounts::Words(words) if words.len() > LIST_ITEMS_MAX)
    }

    fn len(&self) -> usize {
        match &self.counts {
            ItemCounts::Words(words) => words.len(),
            ItemCounts::List(list) => list.len(),
            ItemCounts::Table(table) => table.entries.len(),
        }
    }

    fn len_max(&self) -> usize {
        2 * self.capacity as usize
    }

    /// Subtracts the count of rank capacity + 1 and keeps the first `capacity` items.
    #[cold]
    fn subtract_and_purge(&mut self) {
        let mut counts: Vec<u64> = self.entries().map(|(_, count)| count).collect();
        let rank = self.capacity as usize;
        if rank >= counts.len() {
            return;
        }
        let (above, &mut cut, _) = counts.select_nth_unstable_by(rank, |a, b| b.cmp(a));
        let (offset, len_max) = (self.offset.saturating_add(cut), self.len_max());
        let ties = rank - above.iter().filter(|count| **count > cut).count();
        // The last item with the subtracted count that stays.
        let mut tied: Vec<&[u8]> =
            self.entries().filter(|(_, count)| *count == cut).map(|(item, _)| item).collect();
        let last = ties.checked_sub(1).map(|last| tied.select_nth_unstable(last).1.to_vec());
        let left = |item: &[u8], count: &mut u64| {
            let stays =
                *count > cut || *count == cut && last.as_deref().is_some_and(|last| item <= last);
            *count = count.saturating_sub(cut);
            stays
        };
        let keep = |entry: &mut CountEntry| left(entry.item.as_bytes(), &mut entry.count);
        match &mut self.counts {
            ItemCounts::Words(words) => words.retain_mut(|word| left(&word.item, &mut word.count)),
            ItemCounts::List(list) => list.retain_mut(keep),
            ItemCounts::Table(table) => {
                // Into a new table: the old one would keep tombstones of the removed entries, and
                // double in size to get rid of them.
                let CountTable { entries, hasher, item_bytes } = &mut **table;
                let mut before = std::mem::replace(entries, HashTable::with_capacity(len_max + 1));
                *item_bytes = 0;
                for entry in
                    before.drain().filter_map(|mut entry| keep(&mut entry).then_some(entry))
                {
                    *item_bytes += entry.item.heap_bytes();
                    let hashed = hash_item(hasher, entry.item.as_bytes());
                    entries.insert_unique(hashed, entry, |entry| {
                        hash_item(hasher, entry.item.as_bytes())
                    });
                }
            }
        }
        self.offset = offset;
    }

    /// Adds all occurrences that `other` has counted. If the capacities differ, the smaller one applies.
    ///
    /// Cost: one add for each item of `other`, and at most one purge.
    pub fn merge(&mut self, other: &TopK) {
        self.capacity = self.capacity.min(other.capacity);
        self.total = self.total.saturating_add(other.total);
        self.offset = self.offset.saturating_add(other.offset);
        // Both tables may iterate in the same order; growing during the merge would make that quadratic.
        if let ItemCounts::Table(table) = &mut self.counts {
            table.reserve(other.len());
        }
        for (item, count) in other.entries() {
            self.add_count(item, count);
        }
        if self.len() > self.len_max() {
            self.subtract_and_purge();
        }
    }

    /// Merges a state with one occurrence of each of `items`, without building that state.
    pub fn merge_occurrences<'a>(&mut self, items: impl ExactSizeIterator<Item = &'a [u8]>) {
        if items.len() > self.len_max() {
            let mut other = TopK { capacity: self.capacity, ..TopK::default() };
            items.for_each(|item| other.add(item, 1));
            return self.merge(&other);
        }
        // So few items would not have been purged.
        self.total = self.total.saturating_add(items.len() as u64);
        items.for_each(|item| self.add_count(item, 1));
        if self.len() > self.len_max() {
            self.subtract_and_purge();
        }
    }

    /// Merges like [`TopK::merge`]; reuses the memory of `other` if this state is empty.
    pub fn merge_owned(&mut self, mut other: TopK) {
        if self.total == 0 && self.capacity <= other.capacity && other.len() <= self.len_max() {
            other.capacity = self.capacity;
            *self = other;
        } else {
            self.merge(&other);
        }
    }

    /// Returns the items and their counts in any order.
    fn entries(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let (words, list, table) = match &self.counts {
            ItemCounts::Words(words) => (&words[..], &[][..], None),
            ItemCounts::List(list) => (&[][..], &list[..], None),
            ItemCounts::Table(table) => (&[][..], &[][..], Some(table.entries.iter())),
        };
        let entries = list.iter().chain(table.into_iter().flatten());
        let entries = entries.map(|entry| (entry.item.as_bytes(), entry.count));
        words.iter().map(|word| (&word.item[..], word.count)).chain(entries)
    }

    fn sorted_entries(&self) -> Vec<(&[u8], u64)> {
        let mut sorted: Vec<_> = self.entries().collect();
        sorted.sort_unstable();
        sorted
    }

    /// Returns the `k` most frequent known items, the most frequent first; equal counts are ordered by
    /// ascending item.
    ///
    /// Returns fewer than `k` items if fewer are held: of at least `k` distinct items `k` are held, up to the
    /// capacity. Cost: O(held + k·log k).
    #[must_use]
    pub fn top_items(&self, k: usize) -> Vec<TopItem<'_>> {
        let order = |a: &TopItem<'_>, b: &TopItem<'_>| {
            b.lower_bound.cmp(&a.lower_bound).then_with(|| a.item.cmp(b.item))
        };
        let mut top: Vec<_> = self
            .entries()
            .map(|(item, count)| TopItem {
                item,
                lower_bound: count,
                upper_bound: count.saturating_add(self.offset),
            })
            .collect();
        if k < top.len() {
            top.select_nth_unstable_by(k, order);
            top.truncate(k);
        }
        top.sort_unstable_by(order);
        top
    }

    /// Returns the lowest and highest possible count of an item; both are equal while the state is exact.
    #[must_use]
    pub fn count_bounds(&self, item: &[u8]) -> (u64, u64) {
        let probe = ItemProbe::new(item);
        let found = match &self.counts {
            ItemCounts::Words(words) => {
                words.iter().find(|word| word.item == *item).map(|word| word.count)
            }
            ItemCounts::List(list) => {
                list.iter().find(|entry| probe.matches(&entry.item)).map(|entry| entry.count)
            }
            ItemCounts::Table(table) => table
                .entries
                .find(hash_item(&table.hasher, item), |entry| probe.matches(&entry.item))
                .map(|entry| entry.count),
        };
        let lower = found.unwrap_or(0);
        (lower, lower.saturating_add(self.offset))
    }

    /// Returns true if every count is exact: no item has been purged so far.
    ///
    /// This holds while there were at most `capacity` distinct items, and usually up to twice
    /// as many.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.offset == 0
    }

    /// Returns the maximum amount by which a count may be too low: at most total / (capacity + 1), and 0
    /// while exact.
    ///
    /// No item outside the state occurred more often than this.
    #[must_use]
    pub fn count_error_max(&self) -> u64 {
        self.offset
    }

    /// Returns the number of occurrences added, of all items together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.counts {
            ItemCounts::Words(words) => words.capacity() * size_of::<WordEntry>(),
            ItemCounts::List(list) => {
                let items = list.iter().map(|entry| entry.item.heap_bytes());
                list.capacity() * size_of::<CountEntry>() + items.sum::<usize>()
            }
            ItemCounts::Table(table) => {
                size_of::<CountTable>() + table.entries.allocation_size() + table.item_bytes
            }
        }
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_varint(out, self.capacity.into());
        put_varint(out, self.offset);
        put_varint(out, self.total);
        put_varint(out, self.len() as u64);
        for (item, count) in self.sorted_entries() {
            put_varint(out, item.len() as u64);
            out.extend_from_slice(item);
            put_varint(out, count);
        }
    }

    /// Reads a state that [`TopK::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is bounded by some forty times the
    /// input, reached with the shortest items.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x31 (version 1)")?;
        let capacity = u32::try_from(reader.read_varint()?).unwrap_or(u32::MAX);
        let Ok(mut state) = TopK::new(capacity) else {
            return Err(reader.corrupt_error("the capacity is not 1 to 2^24"));
        };
        state.offset = reader.read_varint()?;
        state.total = reader.read_varint()?;
        let item_count = reader.read_length(2)?;
        if item_count > state.len_max() {
            return Err(reader.corrupt_error("more items than twice the capacity"));
        }
        let mut counted = 0u128;
        let mut before: Option<&[u8]> = None;
        for _ in 0..item_count {
            let length = reader.read_length(1)?;
            let item = reader.take_bytes(length)?;
            if before.is_some_and(|before| before >= item) {
                return Err(reader.corrupt_error("items do not ascend"));
            }
            before = Some(item);
            let count = reader.read_varint()?;
            if count == 0 && state.offset == 0 {
                return Err(reader.corrupt_error("an item with count 0"));
            }
            counted += u128::from(count);
            state.insert_new(item, count);
        }
        reader.expect_end()?;
        // Each purge took at least its count from capacity + 1 items.
        // A saturated total says nothing about the sum.
        if state.total < u64::MAX {
            let purged = u128::from(state.offset) * (u128::from(capacity) + 1);
            let fits = counted + purged <= u128::from(state.total);
            if !fits || (state.offset == 0 && counted != u128::from(state.total)) {
                return Err(reader.corrupt_error("counts, offset and total do not add up"));
            }
        }
        Ok(state)
    }

    /// Inserts an item that is certainly not present.
    fn insert_new(&mut self, item: &[u8], n: u64) {
        match &mut self.counts {
            ItemCounts::Words(_) | ItemCounts::List(_) => self.insert(item, n),
            ItemCounts::Table(table) => table.add(item, n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_state_uses_little_heap_memory() {
        assert_eq!(size_of::<CountEntry>(), 32);
        assert!(size_of::<TopK>() <= 56);
        let mut state = TopK::default();
        assert_eq!(state.heap_bytes(), 0);
        state.add(b"JFK", 1);
        assert_eq!(state.heap_bytes(), 32);
        state.add(&[7; 100], 1);
        assert_eq!(state.heap_bytes(), 64 + 100);
    }

    #[test]
    fn purge_subtracts_count_at_rank_capacity_plus_one() {
        let mut state = TopK::new(4).unwrap();
        let counts = [9, 8, 7, 4, 3, 2, 2, 1, 1];
        for (item, count) in (b'a'..).zip(counts) {
            state.add(&[item], count);
        }
        let kept: Vec<_> =
            state.top_items(9).iter().map(|top| (top.item[0], top.lower_bound)).collect();
        assert_eq!(kept, [(b'a', 6), (b'b', 5), (b'c', 4), (b'd', 1)]);
        assert_eq!(state.count_error_max(), 3);
        assert_eq!(state.count_bounds(b"e"), (0, 3));
    }

    /// If all counts tie, some items stay, with an error that covers their true count.
    #[test]
    fn purge_of_equal_counts_keeps_capacity_items() {
        for items in [9u8, 10, 13, 40] {
            for times in [1, 3] {
                let mut state = TopK::new(4).unwrap();
                for item in 0..items {
                    state.add(&[item], times);
                }
                let top = state.top_items(4);
                assert_eq!(top.len(), 4, "{items} items");
                assert!(top.iter().all(|it| it.lower_bound <= times && times <= it.upper_bound));
                let mut bytes = Vec::new();
                state.encode(&mut bytes);
                assert_eq!(TopK::decode(&bytes).unwrap(), state);
                let mut merged = TopK::new(4).unwrap();
                merged.merge(&state);
                merged.merge(&state);
                assert_eq!(merged.top_items(4).len(), 4);
            }
        }
    }
}
