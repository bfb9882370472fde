//! Sets of dense numbers: plain words where they are many, Roaring's containers where they are few.
//!
//! A bit for every number up to the largest is the form that machines are fastest with: an operation
//! on two sets reads and writes 64 numbers a word, and counts the result on the way. It wastes memory where
//! hardly a number is in the set, or nearly all are: there a `RoaringBitmap` (Chambi, Lemire, Kaser and
//! Godin, *Better bitmap performance with Roaring bitmaps*, 2016) has for each 65,536 numbers whichever of a
//! list, runs and bits takes least. A set goes over to words where they take no more than twice the
//! bytes of these containers, and back where they take more than four times as many, after what has
//! changed many numbers at once.
//!
//! On disk it is always the Roaring portable format, which other implementations read.

use std::ops::{BitAnd, BitOr, BitXor, RangeInclusive, Sub};

use roaring::RoaringBitmap;

use crate::SketchError;
use crate::simd::vectorized;

const STATE: &str = "id set";

/// Words that are written before they are counted, while they are in the nearest cache.
const BLOCK: usize = 512;

/// A set of 32-bit numbers, those of an [`IdSpace`](crate::IdSpace)'s ids.
///
/// Memory: an eighth of a byte for each number up to the largest where many are in the set, else
/// at most 2 bytes for each that is, and a few bytes for each run where they follow one another.
///
/// ```
/// use tidemill_sketch::IdSet;
/// let (even, small): (IdSet, IdSet) = ((0..1000).step_by(2).collect(), (0..10).collect());
/// assert_eq!((&even & &small).iter().collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
/// assert_eq!((&even | &small).len(), 505);
/// assert_eq!((&even - &small).len(), 495);
/// assert_eq!((&even ^ &small).len(), 500);
/// assert_eq!(even.intersection_len(&small), 5);
/// ```
#[derive(Debug, Clone, Default)]
pub struct IdSet {
    repr: Repr,
}

#[derive(Debug, Clone)]
enum Repr {
    Words(Words),
    Few(RoaringBitmap),
}

impl Default for Repr {
    fn default() -> Self {
        Repr::Few(RoaringBitmap::new())
    }
}

/// Bit i mod 64 of word i / 64 is number i.
#[derive(Debug, Clone, Default)]
struct Words {
    words: Vec<u64>,
    /// How many bits are set.
    len: u64,
}

/// One of the operations on two sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

impl IdSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        IdSet::default()
    }

    /// How many numbers are in it. Cost: constant for words, else a pass over the containers.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.repr {
            Repr::Words(words) => words.len,
            Repr::Few(few) => few.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a number is in it.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        match &self.repr {
            Repr::Words(words) => words.contains(index),
            Repr::Few(few) => few.contains(index),
        }
    }

    /// Adds a number; returns whether it is new. Many at once are added by [`Extend`].
    pub fn insert(&mut self, index: u32) -> bool {
        match &mut self.repr {
            Repr::Words(words) => {
                // A number far from all others would want all the words in between.
                if word_of(index) > 2 * words.words.len() {
                    self.repr = Repr::Few(words.to_few());
                    return self.insert(index);
                }
                words.insert(index)
            }
            Repr::Few(few) => few.insert(index),
        }
    }

    /// Removes a number; returns whether it was there.
    pub fn remove(&mut self, index: u32) -> bool {
        match &mut self.repr {
            Repr::Words(words) => {
                let there = words.contains(index);
                if there {
                    words.words[word_of(index)] &= !bit_of(index);
                    words.len -= 1;
                }
                there
            }
            Repr::Few(few) => few.remove(index),
        }
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> Indexes<'_> {
        Indexes(match &self.repr {
            Repr::Words(words) => IndexesOf::Words {
                left: words.words.iter(),
                word: 0,
                // One before the first: the next word is read before a bit of it is.
                at: u32::MAX,
            },
            Repr::Few(few) => IndexesOf::Few(few.iter()),
        })
    }

    /// Adds all numbers of `other`.
    pub fn union_with(&mut self, other: &IdSet) {
        self.change(other, Operation::Union);
    }

    /// Removes all numbers that `other` has not.
    pub fn intersect_with(&mut self, other: &IdSet) {
        self.change(other, Operation::Intersection);
    }

    /// Removes all numbers of `other`.
    pub fn subtract(&mut self, other: &IdSet) {
        self.change(other, Operation::Difference);
    }

    /// Adds the numbers of `other` that are not there, and removes those that are.
    pub fn toggle(&mut self, other: &IdSet) {
        self.change(other, Operation::SymmetricDifference);
    }

    /// How many numbers both have. Nothing is written for it.
    #[must_use]
    pub fn intersection_len(&self, other: &IdSet) -> u64 {
        match (&self.repr, &other.repr) {
            (Repr::Words(a), Repr::Words(b)) => {
                let (a, b) = (a.words.as_slice(), b.words.as_slice());
                vectorized(
                    #[inline(always)]
                    || a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum(),
                )
            }
            (Repr::Few(a), Repr::Few(b)) => a.intersection_len(b),
            (Repr::Words(words), Repr::Few(few)) | (Repr::Few(few), Repr::Words(words)) => {
                ranges(few).map(|range| words.count(range)).sum()
            }
        }
    }

    /// How many numbers either has. Nothing is written for it.
    #[must_use]
    pub fn union_len(&self, other: &IdSet) -> u64 {
        self.len() + other.len() - self.intersection_len(other)
    }

    fn change(&mut self, other: &IdSet, operation: Operation) {
        match (&mut self.repr, &other.repr) {
            (Repr::Words(words), Repr::Words(others)) => words.change(others, operation),
            (Repr::Few(few), Repr::Few(others)) => match operation {
                Operation::Union => *few |= others,
                Operation::Intersection => *few &= others,
                Operation::Difference => *few -= others,
                Operation::SymmetricDifference => *few ^= others,
            },
            (Repr::Words(words), Repr::Few(others)) => match operation {
                Operation::Union | Operation::SymmetricDifference if words.would_waste(others) => {
                    self.repr = Repr::Few(words.to_few());
                    return self.change(other, operation);
                }
                Operation::Union => {
                    words.reach(others.max());
                    ranges(others).for_each(|range| words.set(range));
                }
                Operation::Difference => ranges(others).for_each(|range| words.clear(range)),
                Operation::SymmetricDifference => {
                    words.reach(others.max());
                    ranges(others).for_each(|range| words.flip(range));
                }
                Operation::Intersection => self.repr = Repr::Few(words.filter(others, true)),
            },
            (Repr::Few(few), Repr::Words(others)) => match operation {
                Operation::Intersection => *few = others.filter(few, true),
                Operation::Difference => *few = others.filter(few, false),
                Operation::Union | Operation::SymmetricDifference => {
                    // Either way round they are the same.
                    let few = IdSet { repr: Repr::Few(std::mem::take(few)) };
                    self.repr = other.repr.clone();
                    return self.change(&few, operation);
                }
            },
        }
        self.settle();
    }

    fn combined(&self, other: &IdSet, operation: Operation) -> IdSet {
        let repr = match (&self.repr, &other.repr) {
            (Repr::Words(a), Repr::Words(b)) => Repr::Words(a.combined(b, operation)),
            (Repr::Few(a), Repr::Few(b)) => Repr::Few(match operation {
                Operation::Union => a | b,
                Operation::Intersection => a & b,
                Operation::Difference => a - b,
                Operation::SymmetricDifference => a ^ b,
            }),
            (Repr::Words(words), Repr::Few(few)) | (Repr::Few(few), Repr::Words(words))
                if operation == Operation::Intersection =>
            {
                Repr::Few(words.filter(few, true))
            }
            (Repr::Few(few), Repr::Words(words)) if operation == Operation::Difference => {
                Repr::Few(words.filter(few, false))
            }
            _ => {
                let mut changed = self.clone();
                changed.change(other, operation);
                return changed;
            }
        };
        let mut combined = IdSet { repr };
        combined.settle();
        combined
    }

    /// Goes over to the form that the numbers ask for.
    fn settle(&mut self) {
        match &mut self.repr {
            Repr::Words(words) => {
                while words.words.pop_if(|word| *word == 0).is_some() {}
                // At most 2 bytes a number, where they are lists. Runs may be smaller yet; it takes a
                // pass over all to see it, which `optimize` is for.
                if words.words.len() * 8 > 4 * few_bytes_max(words.len) {
                    self.repr = Repr::Few(words.to_few());
                }
            }
            Repr::Few(few) => {
                let words = few.max().map_or(0, |max| word_of(max) + 1);
                // Never more than the containers take, whatever the bytes were that they are from.
                if words * 8 <= 2 * few.serialized_size() {
                    self.repr = Repr::Words(Words::of(few));
                }
            }
        }
    }

    /// Goes over to whichever form takes least memory, runs included. Cost: a pass over the set.
    pub fn optimize(&mut self) {
        let mut few = match &self.repr {
            Repr::Words(words) => words.to_few(),
            Repr::Few(few) => few.clone(),
        };
        few.optimize();
        self.repr = Repr::Few(few);
        self.settle();
    }

    /// The heap memory the set owns, in bytes: of containers what they hold. Cost: a pass over these.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.repr {
            Repr::Words(words) => words.words.capacity() * 8,
            Repr::Few(few) if few.is_empty() => 0,
            Repr::Few(few) => few.serialized_size(),
        }
    }

    /// Appends the set in the Roaring portable format. Equal sets give equal bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut few = match &self.repr {
            Repr::Words(words) => words.to_few(),
            Repr::Few(few) => few.clone(),
        };
        // From one form: what a container has become depends on what it was before.
        few.remove_run_compression();
        few.optimize();
        out.reserve(few.serialized_size());
        let written = few.serialize_into(out);
        debug_assert!(written.is_ok(), "a vector takes what is written");
    }

    /// Reads a set in the Roaring portable format, whoever wrote it. Time and memory are at most a
    /// small multiple of the input's.
    ///
    /// # Errors
    /// [`SketchError::UnknownFormat`], [`SketchError::Truncated`], [`SketchError::TrailingBytes`] or
    /// [`SketchError::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let stored = Stored::open(bytes)?;
        if stored.words_max() * 8 <= 2 * bytes.len() {
            let mut set = IdSet { repr: Repr::Words(stored.words()?) };
            set.settle();
            return Ok(set);
        }
        let mut left = bytes;
        let few = RoaringBitmap::deserialize_from(&mut left);
        let offset = bytes.len() - left.len();
        let few = few.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                SketchError::Truncated { state: STATE, offset: bytes.len(), needed: 1 }
            }
            _ => corrupt(offset),
        })?;
        if !left.is_empty() {
            return Err(SketchError::TrailingBytes { state: STATE, offset, extra: left.len() });
        }
        let mut set = IdSet { repr: Repr::Few(few) };
        set.settle();
        Ok(set)
    }
}

fn corrupt(offset: usize) -> SketchError {
    SketchError::Corrupt { state: STATE, offset, problem: "not a container by the Roaring format" }
}

/// Containers of up to so many numbers are lists.
const LIST_MAX: usize = 4096;

/// So many containers with runs among them have offsets, as all have without runs.
const OFFSETS_MIN: usize = 4;

/// Words of a container.
const CONTAINER_WORDS: usize = 1 << 10;

/// A set in the Roaring portable format, which is looked at as it lies there.
struct Stored<'a> {
    bytes: &'a [u8],
    /// A bit for each container that has runs; none where none has.
    has_runs: &'a [u8],
    /// Of each container the high half of its numbers, and how many they are less one.
    containers: &'a [[u8; 4]],
    /// Where the first container begins.
    start: usize,
}

impl<'a> Stored<'a> {
    /// Refuses bytes that are too few for the containers that they claim, so that no room is made for these.
    fn open(bytes: &'a [u8]) -> Result<Self, SketchError> {
        let [cookie] = le_words(bytes, 0)?;
        let (mut at, count, has_runs) = match (cookie & 0xffff, cookie >> 16) {
            (12_346, 0) => {
                let [count] = le_words(bytes, 4)?;
                (8, count as usize, 0)
            }
            (12_347, last) => (4, last as usize + 1, (last as usize + 1).div_ceil(8)),
            _ => {
                let expected = "0x3a or 0x3b (Roaring portable format)";
                return Err(SketchError::UnknownFormat {
                    state: STATE,
                    expected,
                    found: bytes.first().copied().unwrap_or_default(),
                });
            }
        };
        let has_runs = part(bytes, &mut at, has_runs)?;
        let (containers, _) = part(bytes, &mut at, count.saturating_mul(4))?.as_chunks();
        if has_runs.is_empty() || count >= OFFSETS_MIN {
            part(bytes, &mut at, count.saturating_mul(4))?;
        }
        Ok(Stored { bytes, has_runs, containers, start: at })
    }

    /// How many words its numbers reach at most.
    fn words_max(&self) -> usize {
        let last = self.containers.last();
        last.map_or(0, |[low, high, ..]| {
            (usize::from(u16::from_le_bytes([*low, *high])) + 1) * CONTAINER_WORDS
        })
    }

    /// Its numbers as words, however many these are.
    fn words(&self) -> Result<Words, SketchError> {
        let mut at = self.start;
        let mut found = Words { words: vec![0; self.words_max()], len: 0 };
        let mut next_key = 0;
        for (number, [key, key_high, last, last_high]) in self.containers.iter().enumerate() {
            let offset = at;
            let key = usize::from(u16::from_le_bytes([*key, *key_high]));
            let count = usize::from(u16::from_le_bytes([*last, *last_high])) + 1;
            let words = found.words.get_mut(key * CONTAINER_WORDS..).unwrap_or_default();
            let Some((words, _)) = words.split_at_mut_checked(CONTAINER_WORDS) else {
                return Err(corrupt(offset));
            };
            if key < next_key {
                return Err(corrupt(offset));
            }
            next_key = key + 1;
            let has_runs =
                self.has_runs.get(number / 8).is_some_and(|of| of >> (number % 8) & 1 == 1);
            if has_runs {
                let runs = part(self.bytes, &mut at, 2)?;
                let runs = usize::from(u16::from_le_bytes([runs[0], runs[1]]));
                let (runs, _) = part(self.bytes, &mut at, runs * 4)?.as_chunks::<4>();
                found.len += set_runs(words, runs).ok_or_else(|| corrupt(offset))?;
            } else if count <= LIST_MAX {
                let (list, _) = part(self.bytes, &mut at, count * 2)?.as_chunks();
                found.len += set_list(words, list).ok_or_else(|| corrupt(offset))?;
            } else {
                let (from, _) = part(self.bytes, &mut at, CONTAINER_WORDS * 8)?.as_chunks();
                for (word, from) in words.iter_mut().zip(from) {
                    *word = u64::from_le_bytes(*from);
                }
                if ones(words) != count as u64 {
                    return Err(corrupt(offset));
                }
                found.len += count as u64;
            }
        }
        if at < self.bytes.len() {
            let extra = self.bytes.len() - at;
            return Err(SketchError::TrailingBytes { state: STATE, offset: at, extra });
        }
        while found.words.pop_if(|word| *word == 0).is_some() {}
        found.words.shrink_to_fit();
        Ok(found)
    }
}

/// Words of 32 bits from a place on.
fn le_words<const N: usize>(bytes: &[u8], at: usize) -> Result<[u32; N], SketchError> {
    let mut end = at;
    let (words, _) = part(bytes, &mut end, 4 * N)?.as_chunks();
    Ok(std::array::from_fn(|word| words.get(word).copied().map_or(0, u32::from_le_bytes)))
}

/// So many bytes from a place on, which moves behind them.
fn part<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Result<&'a [u8], SketchError> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let part = rest.get(..length).ok_or_else(|| SketchError::Truncated {
        state: STATE,
        offset: bytes.len(),
        needed: length - rest.len(),
    })?;
    *at += length;
    Ok(part)
}

/// Sets the bits of numbers that ascend; returns how many they are.
fn set_list(words: &mut [u64], list: &[[u8; 2]]) -> Option<u64> {
    let mut least = 0;
    for number in list {
        let number = u32::from(u16::from_le_bytes(*number));
        if number < least {
            return None;
        }
        least = number + 1;
        *words.get_mut(word_of(number))? |= bit_of(number);
    }
    Some(list.len() as u64)
}

/// Sets the bits of runs, each a first number and how many follow it, which neither overlap nor touch; returns
/// how many bits they are. There has to be one.
fn set_runs(words: &mut [u64], runs: &[[u8; 4]]) -> Option<u64> {
    let (mut least, mut count) = (0, 0);
    for [first, first_high, more, more_high] in runs {
        let first = u32::from(u16::from_le_bytes([*first, *first_high]));
        let last = first + u32::from(u16::from_le_bytes([*more, *more_high]));
        if first < least {
            return None;
        }
        least = last + 2;
        count += u64::from(last - first) + 1;
        for (word, bits) in parts(first..=last) {
            *words.get_mut(word)? |= bits;
        }
    }
    (!runs.is_empty()).then_some(count)
}

/// What the containers of so many numbers take at most where they are lists.
fn few_bytes_max(len: u64) -> usize {
    usize::try_from(2 * len).unwrap_or(usize::MAX / 4)
}

fn word_of(index: u32) -> usize {
    index as usize / 64
}

fn bit_of(index: u32) -> u64 {
    1 << (index % 64)
}

/// The numbers of a set as ranges, ascending.
fn ranges(few: &RoaringBitmap) -> impl Iterator<Item = RangeInclusive<u32>> + '_ {
    let mut iter = few.iter();
    std::iter::from_fn(move || iter.next_range())
}

/// The words that a range touches, each with the bits of it.
fn parts(range: RangeInclusive<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (*range.start(), *range.end());
    (word_of(first)..=word_of(last)).map(move |word| {
        let from = if word == word_of(first) { u64::MAX << (first % 64) } else { u64::MAX };
        let to = if word == word_of(last) { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        (word, from & to)
    })
}

impl Words {
    fn of(few: &RoaringBitmap) -> Self {
        // By the bytes on disk: containers of bits are copied from them, where going through the numbers
        // looks at each.
        let mut bytes = Vec::with_capacity(few.serialized_size());
        let written = few.serialize_into(&mut bytes);
        debug_assert!(written.is_ok(), "a vector takes what is written");
        if let Ok(words) = Stored::open(&bytes).and_then(|stored| stored.words()) {
            return words;
        }
        let mut words = Words::default();
        words.reach(few.max());
        ranges(few).for_each(|range| words.set(range));
        words
    }

    /// Makes room for a number.
    fn reach(&mut self, index: Option<u32>) {
        let words = index.map_or(0, |index| word_of(index) + 1);
        if words > self.words.len() {
            if words > self.words.capacity() {
                // By an eighth at least: twice as many would be memory that is not needed.
                let capacity = words.max(self.words.len() + self.words.len() / 8);
                self.words.reserve_exact(capacity - self.words.len());
            }
            self.words.resize(words, 0);
        }
    }

    /// Whether words that reach the largest of `others` would take more than twice what containers do.
    fn would_waste(&self, others: &RoaringBitmap) -> bool {
        let words = others.max().map_or(0, |max| word_of(max) + 1);
        words > self.words.len()
            && words * 8 > 2 * (self.words.len() * 8 + others.serialized_size())
    }

    fn contains(&self, index: u32) -> bool {
        self.words.get(word_of(index)).is_some_and(|word| word & bit_of(index) != 0)
    }

    fn insert(&mut self, index: u32) -> bool {
        self.reach(Some(index));
        let word = &mut self.words[word_of(index)];
        let new = *word & bit_of(index) == 0;
        *word |= bit_of(index);
        self.len += u64::from(new);
        new
    }

    fn set(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.words[word] |= bits;
        }
    }

    fn flip(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.len -= u64::from((bits & self.words[word]).count_ones());
            self.words[word] ^= bits;
        }
    }

    /// Of numbers beyond the words there is nothing to clear.
    fn clear(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.len -= u64::from((bits & *word).count_ones());
            *word &= !bits;
        }
    }

    fn count(&self, range: RangeInclusive<u32>) -> u64 {
        let words = parts(range).map_while(|(word, bits)| Some(self.words.get(word)? & bits));
        words.map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Those numbers of `few` that are in the words, or those that are not.
    fn filter(&self, few: &RoaringBitmap, wanted: bool) -> RoaringBitmap {
        let mut kept = RoaringBitmap::new();
        for index in few.iter().filter(|&index| self.contains(index) == wanted) {
            // They ascend.
            let _ = kept.try_push(index);
        }
        kept
    }

    /// Bits in bytes, which is how Roaring takes them. An eighth of a byte for each number up to the largest.
    fn to_few(&self) -> RoaringBitmap {
        let mut few = RoaringBitmap::new();
        // A container at a time, for the sake of the bytes in between.
        for (at, words) in self.words.chunks(1 << 10).enumerate() {
            let mut bytes = [0; 1 << 13];
            for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
            // Below 2^16, as numbers are below 2^32.
            let first = u32::try_from(at << 16).unwrap_or(0);
            few |= RoaringBitmap::from_lsb0_bytes(first, &bytes[..words.len() * 8]);
        }
        few
    }

    fn change(&mut self, other: &Words, operation: Operation) {
        let shared = self.words.len().min(other.words.len());
        let (left, right) = (&mut self.words, other.words.as_slice());
        let mut len = match operation {
            Operation::Union => changed(&mut left[..shared], right, |a, b| a | b),
            Operation::Intersection => changed(&mut left[..shared], right, |a, b| a & b),
            Operation::Difference => changed(&mut left[..shared], right, |a, b| a & !b),
            Operation::SymmetricDifference => changed(&mut left[..shared], right, |a, b| a ^ b),
        };
        match operation {
            Operation::Intersection => left.truncate(shared),
            Operation::Difference => len += ones(&left[shared..]),
            Operation::Union | Operation::SymmetricDifference => {
                left.extend_from_slice(&right[shared..]);
                len += ones(&left[shared..]);
            }
        }
        self.len = len;
    }

    fn combined(&self, other: &Words, operation: Operation) -> Words {
        let (left, right) = (self.words.as_slice(), other.words.as_slice());
        let (mut words, mut len) = match operation {
            Operation::Union => written(left, right, |a, b| a | b),
            Operation::Intersection => written(left, right, |a, b| a & b),
            Operation::Difference => written(left, right, |a, b| a & !b),
            Operation::SymmetricDifference => written(left, right, |a, b| a ^ b),
        };
        let shared = words.len();
        let rest = match operation {
            Operation::Intersection => &[],
            Operation::Difference => &left[shared..],
            Operation::Union | Operation::SymmetricDifference => {
                if left.len() > shared {
                    &left[shared..]
                } else {
                    &right[shared..]
                }
            }
        };
        words.extend_from_slice(rest);
        len += ones(rest);
        Words { words, len }
    }
}

fn ones(words: &[u64]) -> u64 {
    vectorized(
        #[inline(always)]
        || words.iter().map(|word| u64::from(word.count_ones())).sum(),
    )
}

/// Changes words by those beside them; returns how many bits are set then.
#[inline(always)]
fn changed(left: &mut [u64], right: &[u64], operation: impl Fn(u64, u64) -> u64) -> u64 {
    vectorized(
        #[inline(always)]
        || {
            let mut ones = 0;
            for (left, right) in left.iter_mut().zip(right) {
                *left = operation(*left, *right);
                ones += u64::from(left.count_ones());
            }
            ones
        },
    )
}

/// As [`changed`], into new words, as many as both have.
#[inline(always)]
fn written(left: &[u64], right: &[u64], operation: impl Fn(u64, u64) -> u64) -> (Vec<u64>, u64) {
    let shared = left.len().min(right.len());
    let capacity = left.len().max(right.len());
    let mut words = Vec::with_capacity(capacity);
    let mut ones = 0;
    vectorized(
        #[inline(always)]
        || {
            let rights = right[..shared].chunks(BLOCK);
            for (left, right) in left[..shared].chunks(BLOCK).zip(rights) {
                let start = words.len();
                words.extend(left.iter().zip(right).map(|(left, right)| operation(*left, *right)));
                ones += words[start..].iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            }
        },
    );
    (words, ones)
}

/// Two sets are equal if they have the same numbers, whatever their forms.
impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.repr, &other.repr) {
            (Repr::Words(a), Repr::Words(b)) => {
                let shared = a.words.len().min(b.words.len());
                // Beyond the shorter one's words there may be zeros, or others could not be as many.
                a.len == b.len && a.words[..shared] == b.words[..shared]
            }
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl Eq for IdSet {}

/// Numbers that are added together.
const TOGETHER: usize = 1 << 16;

impl Extend<u32> for IdSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, indexes: T) {
        let mut indexes = indexes.into_iter();
        let mut some = Vec::new();
        loop {
            some.clear();
            some.extend(indexes.by_ref().take(TOGETHER));
            match &mut self.repr {
                _ if some.is_empty() => break,
                Repr::Few(few) => {
                    let max = some.iter().copied().max().max(few.max());
                    let words = max.map_or(0, |max| word_of(max) + 1);
                    if words as u64 <= few.len() + some.len() as u64 {
                        // What they take goes to them as they are, in whatever order; `settle` sees what comes of it.
                        let mut words = Words::of(few);
                        words.reach(max);
                        some.iter().for_each(|index| _ = words.insert(*index));
                        self.repr = Repr::Words(words);
                    } else {
                        some.sort_unstable();
                        few.extend(some.iter().copied());
                    }
                }
                Repr::Words(_) => some.iter().for_each(|index| _ = self.insert(*index)),
            }
        }
        self.settle();
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<T: IntoIterator<Item = u32>>(indexes: T) -> Self {
        let mut set = IdSet::default();
        set.extend(indexes);
        set
    }
}

impl<'a> IntoIterator for &'a IdSet {
    type Item = u32;
    type IntoIter = Indexes<'a>;

    fn into_iter(self) -> Indexes<'a> {
        self.iter()
    }
}

/// The numbers of an [`IdSet`], ascending.
#[derive(Clone)]
pub struct Indexes<'a>(IndexesOf<'a>);

impl std::fmt::Debug for Indexes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[derive(Clone)]
enum IndexesOf<'a> {
    Words {
        left: std::slice::Iter<'a, u64>,
        /// What is left of the word at hand.
        word: u64,
        /// Which word that is.
        at: u32,
    },
    Few(roaring::bitmap::Iter<'a>),
}

impl Iterator for Indexes<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            IndexesOf::Words { left, word, at } => {
                while *word == 0 {
                    *word = *left.next()?;
                    *at = at.wrapping_add(1);
                }
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                Some(*at * 64 + bit)
            }
            IndexesOf::Few(few) => few.next(),
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr, $doc:literal) => {
        #[doc = $doc]
        impl $trait<&IdSet> for &IdSet {
            type Output = IdSet;

            fn $method(self, other: &IdSet) -> IdSet {
                self.combined(other, $operation)
            }
        }
    };
}

operator!(BitOr, bitor, Operation::Union, "The union.");
operator!(BitAnd, bitand, Operation::Intersection, "The intersection.");
operator!(Sub, sub, Operation::Difference, "The difference.");
operator!(BitXor, bitxor, Operation::SymmetricDifference, "The symmetric difference.");
