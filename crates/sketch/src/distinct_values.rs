//! The distinct items of a stream, up to a limit on their number.
//!
//! The values of a column are useful to know if they are few (a status, a country, a version) and useless if
//! they are many. So the set *overflows* as soon as it exceeds its limit: it frees its memory, ignores
//! further items at the cost of one comparison, and stays overflowed through every merge.
//!
//! **The state is a function of the set of items and of the smallest limit alone**: it overflows exactly if
//! there are more distinct items than that limit. An overflowed part has seen more items than its own limit,
//! which is at least the smallest one. A part that has not overflowed still has all of its items, and a merge
//! counts the items of both parts.
//!
//! The usual case is a few items that repeat. Up to 16 items of at most 15 bytes are stored as words of 16
//! bytes:
//!
//! ```text
//! "GET"   47 45 54 00 00 00 00 00 00 00 00 00 00 00 00 03       the item, zeros, its length
//! ```
//!
//! Up to four words are compared one by one. For more, a perfect hash is built: a multiplier that sends each
//! word to a slot of its own among 128. A lookup then needs one comparison, and no branch depends on the
//! item. Items that are longer or more numerous are a list of up to eight, then a hash table.

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::SketchError;
use crate::byte_item::{ByteItem, ItemProbe, hash_item};
use crate::murmur3::finalize_mix;
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "distinct-values";
const HEADER: u8 = 0x71;

const ITEMS_DEFAULT: u32 = 1024;
const ITEMS_MAX: u32 = u32::MAX;

/// Maximum number of items that a state searches linearly, as a list.
const LIST_ITEMS_MAX: usize = 8;

/// Maximum number of words that a state compares one by one.
const SCANNED_WORDS_MAX: usize = 4;

/// Maximum number of words in a [`WordPerfectHash`].
const HASHED_WORDS_MAX: usize = 16;
const SLOT_COUNT: usize = 128;

/// Number of multipliers that are tried: for 16 words one in three separates them.
const MULTIPLIER_TRIES: u64 = 64;

/// Length of the longest item that fits a word, in bytes.
const WORD_ITEM_BYTES_MAX: usize = 15;

/// An item of at most 15 bytes, padded with zeros, and its length in the last byte.
type ItemWord = [u8; 16];

/// Packs an item into a word, without a call to copy memory; `None` if the item is too long.
#[inline]
fn pack_word(item: &[u8]) -> Option<u128> {
    let length = item.len();
    if length > WORD_ITEM_BYTES_MAX {
        return None;
    }
    // Two pieces that may overlap, if the item is long enough for them.
    let bytes = if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        u128::from(u64::from_le_bytes(*first))
            | u128::from(u64::from_le_bytes(*last)) << (8 * (length - 8))
    } else if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        u128::from(u32::from_le_bytes(*first))
            | u128::from(u32::from_le_bytes(*last)) << (8 * (length - 4))
    } else {
        item.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
    };
    Some(bytes | (length as u128) << (8 * WORD_ITEM_BYTES_MAX))
}

#[inline]
fn unpack_word(word: &ItemWord) -> &[u8] {
    &word[..usize::from(word[WORD_ITEM_BYTES_MAX]).min(WORD_ITEM_BYTES_MAX)]
}

/// Returns true if `words` contains `word`. Compares all of them, as a branch on the position would be
/// mispredicted.
#[inline]
fn contains_word(words: &[ItemWord], word: u128) -> bool {
    words.iter().fold(false, |found, other| found | (u128::from_le_bytes(*other) == word))
}

/// A perfect hash of words: a multiplication gives each word a slot of its own.
#[derive(Clone, Debug)]
struct WordPerfectHash {
    /// The first `count` are in use and differ from each other.
    words: [ItemWord; HASHED_WORDS_MAX],
    count: usize,
    multiplier: u64,
    /// Index in `words` of the word that belongs to each slot; 0 for an empty slot.
    word_indexes: [u8; SLOT_COUNT],
}

impl WordPerfectHash {
    /// Returns `None` if there are too many words, or if no multiplier separates them.
    fn new(words: &[ItemWord]) -> Option<Self> {
        let mut indexed = WordPerfectHash {
            words: [[0xff; 16]; HASHED_WORDS_MAX],
            count: words.len(),
            multiplier: 0,
            word_indexes: [0; SLOT_COUNT],
        };
        indexed.words.get_mut(..words.len())?.copy_from_slice(words);
        (0..MULTIPLIER_TRIES)
            .any(|try_count| indexed.try_multiplier(finalize_mix(try_count + 1) | 1))
            .then_some(indexed)
    }

    /// Assigns each word the slot that the multiplier selects. Returns true if all slots differ.
    fn try_multiplier(&mut self, multiplier: u64) -> bool {
        self.multiplier = multiplier;
        self.word_indexes = [0; SLOT_COUNT];
        let mut taken = 0u128;
        for (place, word) in (0u8..).zip(&self.words[..self.count]) {
            let slot = self.slot_of(u128::from_le_bytes(*word));
            if taken >> slot & 1 == 1 {
                return false;
            }
            taken |= 1 << slot;
            self.word_indexes[slot] = place;
        }
        true
    }

    #[inline]
    fn slot_of(&self, word: u128) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the halves")]
        let (low, high) = (word as u64, (word >> 64) as u64);
        let mixed = low
            .wrapping_mul(self.multiplier)
            .wrapping_add(high.wrapping_mul(self.multiplier.rotate_left(32) | 1));
        usize::from((mixed >> 56) as u8) % SLOT_COUNT
    }

    #[inline]
    fn contains(&self, word: u128) -> bool {
        let place = usize::from(self.word_indexes[self.slot_of(word)]);
        u128::from_le_bytes(self.words[place % HASHED_WORDS_MAX]) == word
    }

    fn words(&self) -> &[ItemWord] {
        &self.words[..self.count]
    }
}

#[derive(Clone, Debug)]
enum DistinctItems {
    /// All items fit words.
    Words(Vec<ItemWord>),
    PerfectHash(Box<WordPerfectHash>),
    List(Vec<ByteItem>),
    Table(Box<DistinctItemTable>),
    Overflowed,
}

/// A hash table of items. The hash has random seeds, so answers must not show its order.
#[derive(Clone, Debug)]
struct DistinctItemTable {
    items: HashTable<ByteItem>,
    hasher: DefaultHashBuilder,
    /// Heap memory of the long items, in bytes.
    item_bytes: usize,
}

impl DistinctItemTable {
    fn with_capacity(capacity: usize) -> Self {
        DistinctItemTable {
            items: HashTable::with_capacity(capacity),
            hasher: DefaultHashBuilder::default(),
            item_bytes: 0,
        }
    }

    fn reserve(&mut self, additional: usize) {
        let DistinctItemTable { items, hasher, .. } = self;
        items.reserve(additional, |item| hash_item(hasher, item.as_bytes()));
    }

    #[inline]
    fn add(&mut self, item: &[u8]) {
        let hashed = hash_item(&self.hasher, item);
        if !self.contains(hashed, item) {
            self.insert(hashed, ByteItem::new(item));
        }
    }

    fn add_owned(&mut self, item: ByteItem) {
        let hashed = hash_item(&self.hasher, item.as_bytes());
        if !self.contains(hashed, item.as_bytes()) {
            self.insert(hashed, item);
        }
    }

    #[inline]
    fn contains(&self, hashed: u64, item: &[u8]) -> bool {
        let probe = ItemProbe::new(item);
        self.items.find(hashed, |other| probe.matches(other)).is_some()
    }

    fn insert(&mut self, hashed: u64, item: ByteItem) {
        let DistinctItemTable { items, hasher, item_bytes } = self;
        *item_bytes += item.heap_bytes();
        items.insert_unique(hashed, item, |item| hash_item(hasher, item.as_bytes()));
    }
}

/// The exact set of distinct items of a stream, until their number exceeds a limit.
///
/// Items are byte strings; encode other values so that the bytes order as the values should. The state is
/// a function of the set of items: order, grouping and repetition leave no trace.
///
/// Memory: none while empty and once overflowed. Items of at most 15 bytes: 16 bytes each up to four items,
/// 400 bytes in all up to 16. Other items: 24 bytes each up to eight, 29 to 58 in a table, plus the item's
/// own bytes where it is longer than 22. At most `most` items of any length are held. Cost of an add: 5 ns
/// for one of ten short items, 8 to 10 in a table, 1 to 3 once overflowed.
///
/// ```
/// use tidemill_sketch::DistinctValues;
/// let mut methods = DistinctValues::new(3)?;
/// for method in ["GET", "PUT", "GET", "GET", "HEAD"] {
///     methods.add(method.as_bytes());
/// }
/// assert_eq!(methods.items(), Some(vec![&b"GET"[..], b"HEAD", b"PUT"]));
/// methods.add(b"POST");
/// assert!(methods.has_overflowed());
/// assert_eq!(methods.items(), None);
/// # Ok::<(), tidemill_sketch::SketchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistinctValues {
    items: DistinctItems,
    items_max: u32,
}

impl Default for DistinctValues {
    fn default() -> Self {
        DistinctValues { items: DistinctItems::Words(Vec::new()), items_max: ITEMS_DEFAULT }
    }
}

/// Two states are equal if they have the same limit and the same items, or if both have overflowed.
impl PartialEq for DistinctValues {
    fn eq(&self, other: &Self) -> bool {
        (self.items_max, self.len()) == (other.items_max, other.len())
            && self.items() == other.items()
    }
}

impl Eq for DistinctValues {}

impl DistinctValues {
    /// Creates an empty state of at most `most` items, from 1 to 2^32 − 1. [`DistinctValues::default`] has
    /// 1,024.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(most: u32) -> Result<Self, SketchError> {
        if !(1..=ITEMS_MAX).contains(&most) {
            return Err(SketchError::ParameterOutOfRange {
                name: "most",
                found: most.into(),
                min: 1,
                max: ITEMS_MAX.into(),
                hint: "",
            });
        }
        Ok(DistinctValues { items_max: most, ..DistinctValues::default() })
    }

    /// Returns the maximum number of items, which a merge may have reduced.
    #[must_use]
    pub fn items_max(&self) -> u32 {
        self.items_max
    }

    /// Adds an item.
    #[inline]
    pub fn add(&mut self, item: &[u8]) {
        match &mut self.items {
            DistinctItems::Words(words) => {
                if !pack_word(item).is_some_and(|word| contains_word(words, word)) {
                    self.insert(ByteItem::new(item));
                }
            }
            DistinctItems::PerfectHash(indexed) => {
                if !pack_word(item).is_some_and(|word| indexed.contains(word)) {
                    self.insert(ByteItem::new(item));
                }
            }
            DistinctItems::List(list) => {
                let probe = ItemProbe::new(item);
                if !list.iter().any(|other| probe.matches(other)) {
                    self.insert(ByteItem::new(item));
                }
            }
            DistinctItems::Table(table) => {
                table.add(item);
                if table.items.len() > self.items_max as usize {
                    self.items = DistinctItems::Overflowed;
                }
            }
            DistinctItems::Overflowed => {}
        }
    }

    /// Inserts an item that is neither among the words nor in the list. Overflows if the item exceeds the
    /// limit.
    #[cold]
    fn insert(&mut self, item: ByteItem) {
        let count = self.len().unwrap_or(0);
        match &mut self.items {
            _ if count >= self.items_max as usize => self.items = DistinctItems::Overflowed,
            DistinctItems::Words(words) => match pack_word(item.as_bytes()) {
                Some(word) if words.len() < SCANNED_WORDS_MAX => {
                    if words.len() == words.capacity() {
                        words.reserve_exact(words.len().max(1));
                    }
                    words.push(word.to_le_bytes());
                }
                Some(word) => {
                    let words = [words, &[word.to_le_bytes()][..]].concat();
                    match WordPerfectHash::new(&words) {
                        Some(indexed) => self.items = DistinctItems::PerfectHash(Box::new(indexed)),
                        None => self.convert_to_table(item),
                    }
                }
                None => {
                    let mut list = Vec::with_capacity((words.len() + 1).next_power_of_two());
                    list.extend(words.iter().map(|word| ByteItem::new(unpack_word(word))));
                    list.push(item);
                    self.items = DistinctItems::List(list);
                }
            },
            DistinctItems::PerfectHash(indexed) => {
                let word = pack_word(item.as_bytes());
                let words = word.map(|word| [indexed.words(), &[word.to_le_bytes()]].concat());
                match words.and_then(|words| WordPerfectHash::new(&words)) {
                    Some(more) => **indexed = more,
                    None => self.convert_to_table(item),
                }
            }
            DistinctItems::List(list) if list.len() < LIST_ITEMS_MAX => {
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len().max(1));
                }
                list.push(item);
            }
            DistinctItems::List(_) => self.convert_to_table(item),
            DistinctItems::Table(table) => table.add_owned(item),
            DistinctItems::Overflowed => {}
        }
    }

    /// Converts the set to a table and adds one item.
    fn convert_to_table(&mut self, item: ByteItem) {
        let mut table = DistinctItemTable::with_capacity(self.len().unwrap_or(0) + 1);
        match std::mem::replace(&mut self.items, DistinctItems::Overflowed) {
            DistinctItems::Words(words) => {
                words.iter().for_each(|word| table.add(unpack_word(word)))
            }
            DistinctItems::PerfectHash(indexed) => {
                indexed.words().iter().for_each(|word| table.add(unpack_word(word)));
            }
            DistinctItems::List(list) => list.into_iter().for_each(|item| table.add_owned(item)),
            DistinctItems::Table(_) | DistinctItems::Overflowed => {}
        }
        table.add_owned(item);
        self.items = DistinctItems::Table(Box::new(table));
    }

    /// Adopts the smaller limit. Returns true if both states still have their items.
    fn adopt_limit(&mut self, other: &DistinctValues) -> bool {
        self.items_max = self.items_max.min(other.items_max);
        let is_too_long = |state: &DistinctValues| match state.len() {
            Some(count) => count > self.items_max as usize,
            None => true,
        };
        if is_too_long(self) || is_too_long(other) {
            self.items = DistinctItems::Overflowed;
            return false;
        }
        if let (DistinctItems::Table(table), DistinctItems::Table(more)) =
            (&mut self.items, &other.items)
        {
            // Both tables may iterate in the same order; growing during the merge would make that quadratic.
            table.reserve(more.items.len());
        }
        true
    }

    /// Adds all items of `other`. If the limits differ, the smaller one applies. If either state has
    /// overflowed, the result has.
    ///
    /// Cost: one add for each item of `other`.
    pub fn merge(&mut self, other: &DistinctValues) {
        if !self.adopt_limit(other) {
            return;
        }
        for item in other.iter_unsorted() {
            self.add(item);
            if self.has_overflowed() {
                return;
            }
        }
    }

    /// Merges like [`DistinctValues::merge`] into the larger of the two states, and moves long items of the
    /// other.
    pub fn merge_owned(&mut self, mut other: DistinctValues) {
        if !self.adopt_limit(&other) {
            return;
        }
        if other.len() > self.len() {
            std::mem::swap(&mut self.items, &mut other.items);
            if let DistinctItems::Table(table) = &mut self.items {
                table.reserve(other.len().unwrap_or(0));
            }
        }
        let items: Box<dyn Iterator<Item = ByteItem>> = match other.items {
            DistinctItems::List(list) => Box::new(list.into_iter()),
            DistinctItems::Table(table) => Box::new(table.items.into_iter()),
            DistinctItems::Words(_) | DistinctItems::PerfectHash(_) | DistinctItems::Overflowed => {
                return self.merge(&other);
            }
        };
        for item in items {
            if !self.contains(item.as_bytes()) {
                self.insert(item);
            }
        }
    }

    fn contains(&self, item: &[u8]) -> bool {
        match &self.items {
            DistinctItems::Words(words) => {
                pack_word(item).is_some_and(|word| contains_word(words, word))
            }
            DistinctItems::PerfectHash(indexed) => {
                pack_word(item).is_some_and(|word| indexed.contains(word))
            }
            DistinctItems::List(list) => {
                list.iter().any(|other| ItemProbe::new(item).matches(other))
            }
            DistinctItems::Table(table) => table.contains(hash_item(&table.hasher, item), item),
            DistinctItems::Overflowed => true,
        }
    }

    /// Returns the items in any order; none once overflowed.
    fn iter_unsorted(&self) -> impl Iterator<Item = &[u8]> {
        let (words, list, table) = match &self.items {
            DistinctItems::Words(words) => (&words[..], &[][..], None),
            DistinctItems::PerfectHash(indexed) => (indexed.words(), &[][..], None),
            DistinctItems::List(list) => (&[][..], &list[..], None),
            DistinctItems::Table(table) => (&[][..], &[][..], Some(table.items.iter())),
            DistinctItems::Overflowed => (&[][..], &[][..], None),
        };
        let items = list.iter().chain(table.into_iter().flatten()).map(ByteItem::as_bytes);
        words.iter().map(unpack_word).chain(items)
    }

    /// Returns the items in ascending order of their bytes; `None` once they exceeded
    /// [`items_max`](DistinctValues::items_max). Cost: one sort of the items.
    #[must_use]
    pub fn items(&self) -> Option<Vec<&[u8]>> {
        if self.has_overflowed() {
            return None;
        }
        let mut items: Vec<_> = self.iter_unsorted().collect();
        items.sort_unstable();
        Some(items)
    }

    /// Returns true if more items were added than the state may hold.
    #[must_use]
    pub fn has_overflowed(&self) -> bool {
        matches!(self.items, DistinctItems::Overflowed)
    }

    /// Returns the number of items; `None` once overflowed. Cost: constant.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        match &self.items {
            DistinctItems::Words(words) => Some(words.len()),
            DistinctItems::PerfectHash(indexed) => Some(indexed.count),
            DistinctItems::List(list) => Some(list.len()),
            DistinctItems::Table(table) => Some(table.items.len()),
            DistinctItems::Overflowed => None,
        }
    }

    /// Returns true if no item was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.items {
            DistinctItems::Words(words) => words.capacity() * size_of::<ItemWord>(),
            DistinctItems::PerfectHash(_) => size_of::<WordPerfectHash>(),
            DistinctItems::List(list) => {
                let items = list.iter().map(ByteItem::heap_bytes);
                list.capacity() * size_of::<ByteItem>() + items.sum::<usize>()
            }
            DistinctItems::Table(table) => {
                size_of::<DistinctItemTable>() + table.items.allocation_size() + table.item_bytes
            }
            DistinctItems::Overflowed => 0,
        }
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_varint(out, self.items_max.into());
        let Some(items) = self.items() else {
            return put_varint(out, u64::from(self.items_max) + 1);
        };
        put_varint(out, items.len() as u64);
        for item in items {
            put_varint(out, item.len() as u64);
            out.extend_from_slice(item);
        }
    }

    /// Reads a state that [`DistinctValues::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is bounded by some thirty times the input,
    /// reached with the shortest items.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x71 (version 1)")?;
        let most = u32::try_from(reader.read_varint()?).unwrap_or(0);
        // A limit of 0 is refused too.
        let Ok(mut state) = DistinctValues::new(most) else {
            return Err(reader.corrupt_error("the limit is not 1 to 2^32 - 1"));
        };
        let count = reader.read_varint()?;
        if count > u64::from(most) {
            if count > u64::from(most) + 1 {
                return Err(reader.corrupt_error("more items than the limit"));
            }
            state.items = DistinctItems::Overflowed;
            reader.expect_end()?;
            return Ok(state);
        }
        let mut before: Option<&[u8]> = None;
        for _ in 0..count {
            let length = reader.read_length(1)?;
            let item = reader.take_bytes(length)?;
            if before.is_some_and(|before| before >= item) {
                return Err(reader.corrupt_error("items do not ascend"));
            }
            before = Some(item);
            // The item cannot be present: items ascend.
            state.insert(ByteItem::new(item));
        }
        reader.expect_end()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_words_are_equal_only_for_equal_items() {
        let text = b"abcdefgh\0\0abcdefghijklmnop\0\0\0";
        let items: Vec<&[u8]> = (0..text.len())
            .flat_map(|start| (start..=text.len()).map(move |end| &text[start..end]))
            .collect();
        for a in &items {
            let word = pack_word(a);
            assert_eq!(word.is_some(), a.len() <= 15);
            let Some(word) = word else { continue };
            assert_eq!(unpack_word(&word.to_le_bytes()), *a);
            for b in &items {
                assert_eq!(pack_word(b) == Some(word), a == b, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn small_state_uses_little_heap_memory() {
        assert!(size_of::<DistinctValues>() <= 40);
        let mut state = DistinctValues::default();
        state.add(b"GET");
        assert_eq!(state.heap_bytes(), 16);
        state.add(&[7; 100]);
        assert_eq!(state.heap_bytes(), 2 * 24 + 100);
        for item in 0..2000u32 {
            state.add(&item.to_be_bytes());
        }
        assert!(state.has_overflowed());
        assert_eq!(state.heap_bytes(), 0);
    }
}
