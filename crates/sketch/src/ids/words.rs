//! Bits over numbers as plain words, and the operations on two of them: read and written once, counted on the way.

use std::ops::RangeInclusive;

use roaring::RoaringBitmap;

use super::stored::Stored;
use crate::simd::vectorized;

/// Words that are written before they are counted, while they are in the nearest cache.
const BLOCK: usize = 512;

/// Bit i mod 64 of word i / 64 is number i.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    pub(super) words: Vec<u64>,
    /// How many bits are set.
    pub(super) len: u64,
}

/// One of the operations on two sets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

pub(super) fn word_of(index: u32) -> usize {
    index as usize / 64
}

pub(super) fn bit_of(index: u32) -> u64 {
    1 << (index % 64)
}

/// The numbers of a set as ranges, ascending.
pub(super) fn ranges(few: &RoaringBitmap) -> impl Iterator<Item = RangeInclusive<u32>> + '_ {
    let mut iter = few.iter();
    std::iter::from_fn(move || iter.next_range())
}

/// The words that a range touches, each with the bits of it.
pub(super) fn parts(range: RangeInclusive<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (*range.start(), *range.end());
    (word_of(first)..=word_of(last)).map(move |word| {
        let from = if word == word_of(first) { u64::MAX << (first % 64) } else { u64::MAX };
        let to = if word == word_of(last) { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        (word, from & to)
    })
}

impl Words {
    pub(super) fn of(few: &RoaringBitmap) -> Self {
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
    pub(super) fn reach(&mut self, index: Option<u32>) {
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
    pub(super) fn would_waste(&self, others: &RoaringBitmap) -> bool {
        let words = others.max().map_or(0, |max| word_of(max) + 1);
        words > self.words.len()
            && words * 8 > 2 * (self.words.len() * 8 + others.serialized_size())
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.words.get(word_of(index)).is_some_and(|word| word & bit_of(index) != 0)
    }

    pub(super) fn remove(&mut self, index: u32) -> bool {
        let there = self.contains(index);
        if there {
            self.words[word_of(index)] &= !bit_of(index);
            self.len -= 1;
        }
        there
    }

    /// How many numbers both have.
    pub(super) fn shared(&self, other: &Words) -> u64 {
        let (a, b) = (self.words.as_slice(), other.words.as_slice());
        vectorized(
            #[inline(always)]
            || a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum(),
        )
    }

    pub(super) fn insert(&mut self, index: u32) -> bool {
        self.reach(Some(index));
        let word = &mut self.words[word_of(index)];
        let new = *word & bit_of(index) == 0;
        *word |= bit_of(index);
        self.len += u64::from(new);
        new
    }

    pub(super) fn set(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.words[word] |= bits;
        }
    }

    pub(super) fn flip(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.len -= u64::from((bits & self.words[word]).count_ones());
            self.words[word] ^= bits;
        }
    }

    /// Of numbers beyond the words there is nothing to clear.
    pub(super) fn clear(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in parts(range) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.len -= u64::from((bits & *word).count_ones());
            *word &= !bits;
        }
    }

    pub(super) fn count(&self, range: RangeInclusive<u32>) -> u64 {
        let words = parts(range).map_while(|(word, bits)| Some(self.words.get(word)? & bits));
        words.map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Those numbers of `few` that are in the words, or those that are not.
    pub(super) fn filter(&self, few: &RoaringBitmap, wanted: bool) -> RoaringBitmap {
        let mut kept = RoaringBitmap::new();
        for index in few.iter().filter(|&index| self.contains(index) == wanted) {
            // They ascend.
            let _ = kept.try_push(index);
        }
        kept
    }

    /// Bits in bytes, which is how Roaring takes them. An eighth of a byte for each number up to the largest.
    pub(super) fn to_few(&self) -> RoaringBitmap {
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

    pub(super) fn change(&mut self, other: &Words, operation: Operation) {
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

    pub(super) fn combined(&self, other: &Words, operation: Operation) -> Words {
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

pub(super) fn ones(words: &[u64]) -> u64 {
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
