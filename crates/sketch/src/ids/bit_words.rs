//! Bitmaps of plain words. A set operation reads and writes each word once and counts the result in the same
//! pass.

use std::ops::RangeInclusive;

use roaring::RoaringBitmap;

use super::roaring_format::RoaringView;
use crate::simd::run_vectorized;

/// Number of words that are written before they are counted, while they are in the L1 cache.
const COUNT_BLOCK_WORDS: usize = 512;

/// A bitmap: bit i mod 64 of word i / 64 is number i.
#[derive(Debug, Clone, Default)]
pub(super) struct WordBitmap {
    pub(super) words: Vec<u64>,
    /// Number of set bits.
    pub(super) len: u64,
}

/// A binary set operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BitmapOperation {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

pub(super) fn word_index(index: u32) -> usize {
    index as usize / 64
}

pub(super) fn bit_mask(index: u32) -> u64 {
    1 << (index % 64)
}

/// Returns the numbers of a set as ascending ranges.
pub(super) fn roaring_ranges(
    few: &RoaringBitmap,
) -> impl Iterator<Item = RangeInclusive<u32>> + '_ {
    let mut iter = few.iter();
    std::iter::from_fn(move || iter.next_range())
}

/// Returns the words that a range touches, each with the bits of the range.
pub(super) fn range_words(range: RangeInclusive<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (*range.start(), *range.end());
    (word_index(first)..=word_index(last)).map(move |word| {
        let from = if word == word_index(first) { u64::MAX << (first % 64) } else { u64::MAX };
        let to = if word == word_index(last) { u64::MAX >> (63 - last % 64) } else { u64::MAX };
        (word, from & to)
    })
}

impl WordBitmap {
    pub(super) fn from_roaring(few: &RoaringBitmap) -> Self {
        // Decodes the serialized bytes, because bitmap containers are copied from them; iterating over the
        // numbers would visit each one.
        let mut bytes = Vec::with_capacity(few.serialized_size());
        let written = few.serialize_into(&mut bytes);
        debug_assert!(written.is_ok(), "a vector takes what is written");
        if let Ok(words) = RoaringView::open(&bytes).and_then(|stored| stored.read_words()) {
            return words;
        }
        let mut words = WordBitmap::default();
        words.grow_to(few.max());
        roaring_ranges(few).for_each(|range| words.set_range(range));
        words
    }

    /// Makes room for a number.
    pub(super) fn grow_to(&mut self, index: Option<u32>) {
        let words = index.map_or(0, |index| word_index(index) + 1);
        if words > self.words.len() {
            if words > self.words.capacity() {
                // Grows by an eighth at least; doubling would take memory that is not needed.
                let capacity = words.max(self.words.len() + self.words.len() / 8);
                self.words.reserve_exact(capacity - self.words.len());
            }
            self.words.resize(words, 0);
        }
    }

    /// Returns true if words up to the largest of `others` would take more than twice the memory of
    /// containers.
    pub(super) fn would_waste_memory(&self, others: &RoaringBitmap) -> bool {
        let words = others.max().map_or(0, |max| word_index(max) + 1);
        words > self.words.len()
            && words * 8 > 2 * (self.words.len() * 8 + others.serialized_size())
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.words.get(word_index(index)).is_some_and(|word| word & bit_mask(index) != 0)
    }

    pub(super) fn remove(&mut self, index: u32) -> bool {
        let there = self.contains(index);
        if there {
            self.words[word_index(index)] &= !bit_mask(index);
            self.len -= 1;
        }
        there
    }

    /// Returns the count of numbers in both bitmaps.
    pub(super) fn intersection_len(&self, other: &WordBitmap) -> u64 {
        let (a, b) = (self.words.as_slice(), other.words.as_slice());
        run_vectorized(
            #[inline(always)]
            || a.iter().zip(b).map(|(a, b)| u64::from((a & b).count_ones())).sum(),
        )
    }

    pub(super) fn insert(&mut self, index: u32) -> bool {
        self.grow_to(Some(index));
        let word = &mut self.words[word_index(index)];
        let new = *word & bit_mask(index) == 0;
        *word |= bit_mask(index);
        self.len += u64::from(new);
        new
    }

    pub(super) fn set_range(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in range_words(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.words[word] |= bits;
        }
    }

    pub(super) fn flip_range(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in range_words(range) {
            self.len += u64::from((bits & !self.words[word]).count_ones());
            self.len -= u64::from((bits & self.words[word]).count_ones());
            self.words[word] ^= bits;
        }
    }

    /// Clears the bits of a range; numbers beyond the words have no bit.
    pub(super) fn clear_range(&mut self, range: RangeInclusive<u32>) {
        for (word, bits) in range_words(range) {
            let Some(word) = self.words.get_mut(word) else { return };
            self.len -= u64::from((bits & *word).count_ones());
            *word &= !bits;
        }
    }

    pub(super) fn count_range(&self, range: RangeInclusive<u32>) -> u64 {
        let words = range_words(range).map_while(|(word, bits)| Some(self.words.get(word)? & bits));
        words.map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Returns the numbers of `few` that are in the bitmap, or with `wanted` false those that are not.
    pub(super) fn filter_roaring(&self, few: &RoaringBitmap, wanted: bool) -> RoaringBitmap {
        let mut kept = RoaringBitmap::new();
        for index in few.iter().filter(|&index| self.contains(index) == wanted) {
            // Cannot fail: the numbers ascend.
            let _ = kept.try_push(index);
        }
        kept
    }

    /// Converts to Roaring by way of bytes, which take an eighth of a byte for each number up to the largest.
    pub(super) fn to_roaring(&self) -> RoaringBitmap {
        let mut few = RoaringBitmap::new();
        // One container at a time, to bound the intermediate bytes.
        for (at, words) in self.words.chunks(1 << 10).enumerate() {
            let mut bytes = [0; 1 << 13];
            for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *bytes = word.to_le_bytes();
            }
            // Fits: numbers are below 2^32.
            let first = u32::try_from(at << 16).unwrap_or(0);
            few |= RoaringBitmap::from_lsb0_bytes(first, &bytes[..words.len() * 8]);
        }
        few
    }

    pub(super) fn apply(&mut self, other: &WordBitmap, operation: BitmapOperation) {
        let shared = self.words.len().min(other.words.len());
        let (left, right) = (&mut self.words, other.words.as_slice());
        let mut len = match operation {
            BitmapOperation::Union => apply_to_words(&mut left[..shared], right, |a, b| a | b),
            BitmapOperation::Intersection => {
                apply_to_words(&mut left[..shared], right, |a, b| a & b)
            }
            BitmapOperation::Difference => {
                apply_to_words(&mut left[..shared], right, |a, b| a & !b)
            }
            BitmapOperation::SymmetricDifference => {
                apply_to_words(&mut left[..shared], right, |a, b| a ^ b)
            }
        };
        match operation {
            BitmapOperation::Intersection => left.truncate(shared),
            BitmapOperation::Difference => len += count_ones(&left[shared..]),
            BitmapOperation::Union | BitmapOperation::SymmetricDifference => {
                left.extend_from_slice(&right[shared..]);
                len += count_ones(&left[shared..]);
            }
        }
        self.len = len;
    }

    pub(super) fn combine(&self, other: &WordBitmap, operation: BitmapOperation) -> WordBitmap {
        let (left, right) = (self.words.as_slice(), other.words.as_slice());
        let (mut words, mut len) = match operation {
            BitmapOperation::Union => combine_words(left, right, |a, b| a | b),
            BitmapOperation::Intersection => combine_words(left, right, |a, b| a & b),
            BitmapOperation::Difference => combine_words(left, right, |a, b| a & !b),
            BitmapOperation::SymmetricDifference => combine_words(left, right, |a, b| a ^ b),
        };
        let shared = words.len();
        let rest = match operation {
            BitmapOperation::Intersection => &[],
            BitmapOperation::Difference => &left[shared..],
            BitmapOperation::Union | BitmapOperation::SymmetricDifference => {
                if left.len() > shared { &left[shared..] } else { &right[shared..] }
            }
        };
        words.extend_from_slice(rest);
        len += count_ones(rest);
        WordBitmap { words, len }
    }
}

pub(super) fn count_ones(words: &[u64]) -> u64 {
    run_vectorized(
        #[inline(always)]
        || words.iter().map(|word| u64::from(word.count_ones())).sum(),
    )
}

/// Applies `operation` to each word of `left` and the same word of `right`. Returns the number of bits set in
/// the result.
#[inline(always)]
fn apply_to_words(left: &mut [u64], right: &[u64], operation: impl Fn(u64, u64) -> u64) -> u64 {
    run_vectorized(
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

/// Applies `operation` like [`apply_to_words`] and returns new words, as many as both inputs have.
#[inline(always)]
fn combine_words(
    left: &[u64],
    right: &[u64],
    operation: impl Fn(u64, u64) -> u64,
) -> (Vec<u64>, u64) {
    let shared = left.len().min(right.len());
    let capacity = left.len().max(right.len());
    let mut words = Vec::with_capacity(capacity);
    let mut ones = 0;
    run_vectorized(
        #[inline(always)]
        || {
            let rights = right[..shared].chunks(COUNT_BLOCK_WORDS);
            for (left, right) in left[..shared].chunks(COUNT_BLOCK_WORDS).zip(rights) {
                let start = words.len();
                words.extend(left.iter().zip(right).map(|(left, right)| operation(*left, *right)));
                ones += words[start..].iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            }
        },
    );
    (words, ones)
}
