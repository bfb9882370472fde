//! The distinct items of a stream, as long as they are few.
//!
//! Which values a column has is worth knowing where they are few (a status, a country, a version), and
//! worth nothing where they are many. So the set is given up as soon as it holds more than it may: it frees
//! its memory, refuses what comes at the cost of one comparison, and stays so through every merge.
//!
//! **The state is a function of the set of items and of the smallest limit alone**: it is given up exactly if
//! there were more distinct items than that. A part that was given up had seen more than its own limit, which is
//! no smaller; a part that was not still has all of its items, and merging counts them together.
//!
//! The usual case is few items over and over. Up to 16 of at most 15 bytes are words of 16:
//!
//! ```text
//! "GET"   47 45 54 00 00 00 00 00 00 00 00 00 00 00 00 03       the item, zeros, its length
//! ```
//!
//! Of up to four all are compared. Beyond that a multiplier is searched for that sends each to a slot of
//! its own among 128: then an item that is there is found at once, and no branch depends on which one it is.
//! Items that are longer or more numerous are a list of up to eight, then a hash table.

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::SketchError;
use crate::item::{Item, Probe, hash};
use crate::murmur3::mix_final;
use crate::wire::{Reader, put_varint};

const STATE: &str = "distinct-values";
const HEADER: u8 = 0x71;

const MOST_DEFAULT: u32 = 1024;
const MOST_MAX: u32 = u32::MAX;

/// Up to this many items are looked up one by one.
const LIST_MAX: usize = 8;

/// Up to this many words are compared one by one.
const WORDS_MAX: usize = 4;

/// Up to this many have slots of their own.
const INDEXED_MAX: usize = 16;
const SLOTS: usize = 128;

/// How many multipliers are tried: of 16 words, one in three sends them apart.
const TRIES: u64 = 64;

/// The longest item that is a word.
const WORD_BYTES: usize = 15;

/// An item of at most 15 bytes, zeros, and its length in the last byte.
type Word = [u8; 16];

/// The word of an item, where it is one. Without a call to copy memory.
#[inline]
fn word_of(item: &[u8]) -> Option<u128> {
    let length = item.len();
    if length > WORD_BYTES {
        return None;
    }
    // Two pieces that may overlap, where there are bytes for them.
    let bytes = if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        u128::from(u64::from_le_bytes(*first))
            | u128::from(u64::from_le_bytes(*last)) << (8 * (length - 8))
    } else if let (Some(first), Some(last)) = (item.first_chunk(), item.last_chunk()) {
        u128::from(u32::from_le_bytes(*first))
            | u128::from(u32::from_le_bytes(*last)) << (8 * (length - 4))
    } else {
        item.iter().rev().fold(0, |bytes, &byte| bytes << 8 | u128::from(byte))
    };
    Some(bytes | (length as u128) << (8 * WORD_BYTES))
}

#[inline]
fn item_of(word: &Word) -> &[u8] {
    &word[..usize::from(word[WORD_BYTES]).min(WORD_BYTES)]
}

/// Whether a word is among a few. All are compared: where it is found cannot be foreseen.
#[inline]
fn is_among(words: &[Word], word: u128) -> bool {
    words.iter().fold(false, |found, other| found | (u128::from_le_bytes(*other) == word))
}

/// Words, each found by a multiplication.
#[derive(Clone, Debug)]
struct Indexed {
    /// The first `count` are in use; no item is like the others.
    words: [Word; INDEXED_MAX],
    count: usize,
    multiplier: u64,
    /// The place of the word that belongs to a slot; 0 where none does.
    places: [u8; SLOTS],
}

impl Indexed {
    /// None if there are too many, or no multiplier sends them apart.
    fn new(words: &[Word]) -> Option<Self> {
        let mut indexed = Indexed {
            words: [[0xff; 16]; INDEXED_MAX],
            count: words.len(),
            multiplier: 0,
            places: [0; SLOTS],
        };
        indexed.words.get_mut(..words.len())?.copy_from_slice(words);
        (0..TRIES).any(|try_count| indexed.index(mix_final(try_count + 1) | 1)).then_some(indexed)
    }

    /// Gives each word the slot that the multiplier sends it to; whether all of them differ.
    fn index(&mut self, multiplier: u64) -> bool {
        self.multiplier = multiplier;
        self.places = [0; SLOTS];
        let mut taken = 0u128;
        for (place, word) in (0u8..).zip(&self.words[..self.count]) {
            let slot = self.slot(u128::from_le_bytes(*word));
            if taken >> slot & 1 == 1 {
                return false;
            }
            taken |= 1 << slot;
            self.places[slot] = place;
        }
        true
    }

    #[inline]
    fn slot(&self, word: u128) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the halves")]
        let (low, high) = (word as u64, (word >> 64) as u64);
        let mixed = low
            .wrapping_mul(self.multiplier)
            .wrapping_add(high.wrapping_mul(self.multiplier.rotate_left(32) | 1));
        usize::from((mixed >> 56) as u8) % SLOTS
    }

    #[inline]
    fn holds(&self, word: u128) -> bool {
        let place = usize::from(self.places[self.slot(word)]);
        u128::from_le_bytes(self.words[place % INDEXED_MAX]) == word
    }

    fn words(&self) -> &[Word] {
        &self.words[..self.count]
    }
}

#[derive(Clone, Debug)]
enum Items {
    /// All of them are words.
    Words(Vec<Word>),
    Indexed(Box<Indexed>),
    List(Vec<Item>),
    Table(Box<Table>),
    GivenUp,
}

/// The hash has random seeds: the order it gives is not to be seen.
#[derive(Clone, Debug)]
struct Table {
    items: HashTable<Item>,
    hasher: DefaultHashBuilder,
    /// The heap memory of the long items.
    item_bytes: usize,
}

impl Table {
    fn with_capacity(capacity: usize) -> Self {
        Table {
            items: HashTable::with_capacity(capacity),
            hasher: DefaultHashBuilder::default(),
            item_bytes: 0,
        }
    }

    fn reserve(&mut self, additional: usize) {
        let Table { items, hasher, .. } = self;
        items.reserve(additional, |item| hash(hasher, item.as_bytes()));
    }

    #[inline]
    fn add(&mut self, item: &[u8]) {
        let hashed = hash(&self.hasher, item);
        if !self.holds(hashed, item) {
            self.insert(hashed, Item::new(item));
        }
    }

    fn add_owned(&mut self, item: Item) {
        let hashed = hash(&self.hasher, item.as_bytes());
        if !self.holds(hashed, item.as_bytes()) {
            self.insert(hashed, item);
        }
    }

    #[inline]
    fn holds(&self, hashed: u64, item: &[u8]) -> bool {
        let probe = Probe::new(item);
        self.items.find(hashed, |other| probe.matches(other)).is_some()
    }

    fn insert(&mut self, hashed: u64, item: Item) {
        let Table { items, hasher, item_bytes } = self;
        *item_bytes += item.heap_bytes();
        items.insert_unique(hashed, item, |item| hash(hasher, item.as_bytes()));
    }
}

/// The distinct items of a stream, exactly; given up once there were more than so many.
///
/// Items are byte strings; encode other values so that the bytes order as the values should. The state is
/// a function of the set of items: order, grouping and repetition leave no trace.
///
/// Memory: none while empty and once given up; 16 bytes an item up to four of at most 15 bytes, up to 16 of them 400 bytes;
/// of others 24 up to eight, in a table 29 to 58, and its own bytes where it is longer than 22. It holds `most` items at most, of any length. Cost of an add:
/// 5 ns of one of ten short items, 8 to 10 in a table, 1 to 3 once given up.
///
/// ```
/// use tidemill_sketch::DistinctValues;
/// let mut methods = DistinctValues::new(3)?;
/// for method in ["GET", "PUT", "GET", "GET", "HEAD"] {
///     methods.add(method.as_bytes());
/// }
/// assert_eq!(methods.items(), Some(vec![&b"GET"[..], b"HEAD", b"PUT"]));
/// methods.add(b"POST");
/// assert!(methods.is_given_up());
/// assert_eq!(methods.items(), None);
/// # Ok::<(), tidemill_sketch::SketchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DistinctValues {
    items: Items,
    most: u32,
}

impl Default for DistinctValues {
    fn default() -> Self {
        DistinctValues { items: Items::Words(Vec::new()), most: MOST_DEFAULT }
    }
}

/// Two states are equal if they have the same limit and the same items, or are both given up.
impl PartialEq for DistinctValues {
    fn eq(&self, other: &Self) -> bool {
        (self.most, self.len()) == (other.most, other.len()) && self.items() == other.items()
    }
}

impl Eq for DistinctValues {}

impl DistinctValues {
    /// An empty state of at most `most` items, from 1 to 2^32 − 1. [`DistinctValues::default`] has 1,024.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(most: u32) -> Result<Self, SketchError> {
        if !(1..=MOST_MAX).contains(&most) {
            return Err(SketchError::ParameterOutOfRange {
                name: "most",
                found: most.into(),
                min: 1,
                max: MOST_MAX.into(),
                hint: "",
            });
        }
        Ok(DistinctValues { most, ..DistinctValues::default() })
    }

    /// How many items it may hold, which a merge may have reduced.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Adds an item.
    #[inline]
    pub fn add(&mut self, item: &[u8]) {
        match &mut self.items {
            Items::Words(words) => {
                if !word_of(item).is_some_and(|word| is_among(words, word)) {
                    self.insert(Item::new(item));
                }
            }
            Items::Indexed(indexed) => {
                if !word_of(item).is_some_and(|word| indexed.holds(word)) {
                    self.insert(Item::new(item));
                }
            }
            Items::List(list) => {
                let probe = Probe::new(item);
                if !list.iter().any(|other| probe.matches(other)) {
                    self.insert(Item::new(item));
                }
            }
            Items::Table(table) => {
                table.add(item);
                if table.items.len() > self.most as usize {
                    self.items = Items::GivenUp;
                }
            }
            Items::GivenUp => {}
        }
    }

    /// Inserts an item that is not among the words or in the list, and gives up if it is one too many.
    #[cold]
    fn insert(&mut self, item: Item) {
        let count = self.len().unwrap_or(0);
        match &mut self.items {
            _ if count >= self.most as usize => self.items = Items::GivenUp,
            Items::Words(words) => match word_of(item.as_bytes()) {
                Some(word) if words.len() < WORDS_MAX => {
                    if words.len() == words.capacity() {
                        words.reserve_exact(words.len().max(1));
                    }
                    words.push(word.to_le_bytes());
                }
                Some(word) => {
                    let words = [words, &[word.to_le_bytes()][..]].concat();
                    match Indexed::new(&words) {
                        Some(indexed) => self.items = Items::Indexed(Box::new(indexed)),
                        None => self.tabulate(item),
                    }
                }
                None => {
                    let mut list = Vec::with_capacity((words.len() + 1).next_power_of_two());
                    list.extend(words.iter().map(|word| Item::new(item_of(word))));
                    list.push(item);
                    self.items = Items::List(list);
                }
            },
            Items::Indexed(indexed) => {
                let word = word_of(item.as_bytes());
                let words = word.map(|word| [indexed.words(), &[word.to_le_bytes()]].concat());
                match words.and_then(|words| Indexed::new(&words)) {
                    Some(more) => **indexed = more,
                    None => self.tabulate(item),
                }
            }
            Items::List(list) if list.len() < LIST_MAX => {
                if list.len() == list.capacity() {
                    list.reserve_exact(list.len().max(1));
                }
                list.push(item);
            }
            Items::List(_) => self.tabulate(item),
            Items::Table(table) => table.add_owned(item),
            Items::GivenUp => {}
        }
    }

    /// Goes over to the table with one more item.
    fn tabulate(&mut self, item: Item) {
        let mut table = Table::with_capacity(self.len().unwrap_or(0) + 1);
        match std::mem::replace(&mut self.items, Items::GivenUp) {
            Items::Words(words) => words.iter().for_each(|word| table.add(item_of(word))),
            Items::Indexed(indexed) => {
                indexed.words().iter().for_each(|word| table.add(item_of(word)));
            }
            Items::List(list) => list.into_iter().for_each(|item| table.add_owned(item)),
            Items::Table(_) | Items::GivenUp => {}
        }
        table.add_owned(item);
        self.items = Items::Table(Box::new(table));
    }

    /// Takes over the smaller limit; whether both still have their items.
    fn limit(&mut self, other: &DistinctValues) -> bool {
        self.most = self.most.min(other.most);
        let is_too_long = |state: &DistinctValues| match state.len() {
            Some(count) => count > self.most as usize,
            None => true,
        };
        if is_too_long(self) || is_too_long(other) {
            self.items = Items::GivenUp;
            return false;
        }
        if let (Items::Table(table), Items::Table(more)) = (&mut self.items, &other.items) {
            // Both may walk in the same order; growing meanwhile would make that quadratic.
            table.reserve(more.items.len());
        }
        true
    }

    /// Adds all items that `other` has. Of different limits, the smaller one holds; what either has given up
    /// stays given up.
    ///
    /// Cost: an add for each item of `other`.
    pub fn merge(&mut self, other: &DistinctValues) {
        if !self.limit(other) {
            return;
        }
        for item in other.each() {
            self.add(item);
            if self.is_given_up() {
                return;
            }
        }
    }

    /// As [`DistinctValues::merge`], into the one that holds more; long items are moved.
    pub fn merge_owned(&mut self, mut other: DistinctValues) {
        if !self.limit(&other) {
            return;
        }
        if other.len() > self.len() {
            std::mem::swap(&mut self.items, &mut other.items);
            if let Items::Table(table) = &mut self.items {
                table.reserve(other.len().unwrap_or(0));
            }
        }
        let items: Box<dyn Iterator<Item = Item>> = match other.items {
            Items::List(list) => Box::new(list.into_iter()),
            Items::Table(table) => Box::new(table.items.into_iter()),
            Items::Words(_) | Items::Indexed(_) | Items::GivenUp => return self.merge(&other),
        };
        for item in items {
            if !self.holds(item.as_bytes()) {
                self.insert(item);
            }
        }
    }

    fn holds(&self, item: &[u8]) -> bool {
        match &self.items {
            Items::Words(words) => word_of(item).is_some_and(|word| is_among(words, word)),
            Items::Indexed(indexed) => word_of(item).is_some_and(|word| indexed.holds(word)),
            Items::List(list) => list.iter().any(|other| Probe::new(item).matches(other)),
            Items::Table(table) => table.holds(hash(&table.hasher, item), item),
            Items::GivenUp => true,
        }
    }

    /// The items in any order; none once given up.
    fn each(&self) -> impl Iterator<Item = &[u8]> {
        let (words, list, table) = match &self.items {
            Items::Words(words) => (&words[..], &[][..], None),
            Items::Indexed(indexed) => (indexed.words(), &[][..], None),
            Items::List(list) => (&[][..], &list[..], None),
            Items::Table(table) => (&[][..], &[][..], Some(table.items.iter())),
            Items::GivenUp => (&[][..], &[][..], None),
        };
        let items = list.iter().chain(table.into_iter().flatten()).map(Item::as_bytes);
        words.iter().map(item_of).chain(items)
    }

    /// The items in ascending order of their bytes; none once there were more than
    /// [`most`](DistinctValues::most). Cost: that of sorting them.
    #[must_use]
    pub fn items(&self) -> Option<Vec<&[u8]>> {
        if self.is_given_up() {
            return None;
        }
        let mut items: Vec<_> = self.each().collect();
        items.sort_unstable();
        Some(items)
    }

    /// Whether there were more items than it may hold.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        matches!(self.items, Items::GivenUp)
    }

    /// How many items there are; none once given up. Cost: constant.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        match &self.items {
            Items::Words(words) => Some(words.len()),
            Items::Indexed(indexed) => Some(indexed.count),
            Items::List(list) => Some(list.len()),
            Items::Table(table) => Some(table.items.len()),
            Items::GivenUp => None,
        }
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The heap memory the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.items {
            Items::Words(words) => words.capacity() * size_of::<Word>(),
            Items::Indexed(_) => size_of::<Indexed>(),
            Items::List(list) => {
                let items = list.iter().map(Item::heap_bytes);
                list.capacity() * size_of::<Item>() + items.sum::<usize>()
            }
            Items::Table(table) => {
                size_of::<Table>() + table.items.allocation_size() + table.item_bytes
            }
            Items::GivenUp => 0,
        }
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_varint(out, self.most.into());
        let Some(items) = self.items() else {
            return put_varint(out, u64::from(self.most) + 1);
        };
        put_varint(out, items.len() as u64);
        for item in items {
            put_varint(out, item.len() as u64);
            out.extend_from_slice(item);
        }
    }

    /// Reads a state that [`DistinctValues::encode`] wrote.
    ///
    /// Accepts canonical bytes only: what it accepts encodes to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] but the parameter's; memory is bounded by some thirty times the input, which the
    /// shortest items take.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = Reader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x71 (version 1)")?;
        let most = u32::try_from(reader.varint()?).unwrap_or(0);
        // None of 0 either.
        let Ok(mut state) = DistinctValues::new(most) else {
            return Err(reader.corrupt("the limit is not 1 to 2^32 - 1"));
        };
        let count = reader.varint()?;
        if count > u64::from(most) {
            if count > u64::from(most) + 1 {
                return Err(reader.corrupt("more items than the limit"));
            }
            state.items = Items::GivenUp;
            reader.finish()?;
            return Ok(state);
        }
        let mut before: Option<&[u8]> = None;
        for _ in 0..count {
            let length = reader.length(1)?;
            let item = reader.take(length)?;
            if before.is_some_and(|before| before >= item) {
                return Err(reader.corrupt("items do not ascend"));
            }
            before = Some(item);
            // Certainly not there yet.
            state.insert(Item::new(item));
        }
        reader.finish()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_its_item_and_no_other() {
        let text = b"abcdefgh\0\0abcdefghijklmnop\0\0\0";
        let items: Vec<&[u8]> = (0..text.len())
            .flat_map(|start| (start..=text.len()).map(move |end| &text[start..end]))
            .collect();
        for a in &items {
            let word = word_of(a);
            assert_eq!(word.is_some(), a.len() <= 15);
            let Some(word) = word else { continue };
            assert_eq!(item_of(&word.to_le_bytes()), *a);
            for b in &items {
                assert_eq!(word_of(b) == Some(word), a == b, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_small_state_is_small() {
        assert!(size_of::<DistinctValues>() <= 40);
        let mut state = DistinctValues::default();
        state.add(b"GET");
        assert_eq!(state.heap_bytes(), 16);
        state.add(&[7; 100]);
        assert_eq!(state.heap_bytes(), 2 * 24 + 100);
        for item in 0..2000u32 {
            state.add(&item.to_be_bytes());
        }
        assert!(state.is_given_up());
        assert_eq!(state.heap_bytes(), 0);
    }
}
