//! Sets of dense numbers: plain words for many members, Roaring containers for few.
//!
//! A bitmap with one bit for every number up to the largest is the fastest form: an operation on two sets
//! reads and writes 64 numbers a word and counts the result in the same pass. It wastes memory if the set
//! contains very few numbers, or nearly all. There a `RoaringBitmap` (Chambi, Lemire, Kaser and Godin,
//! *Better bitmap performance with Roaring bitmaps*, 2016) stores each range of 65,536 numbers as a list,
//! runs or bits, whichever takes least memory. After an operation that changes many numbers, a set converts
//! to words if they take at most twice the bytes of the containers, and back if they take more than four
//! times as many.
//!
//! Encoded sets are always in the Roaring portable format, which other implementations read.

use std::ops::{BitAnd, BitOr, BitXor, Sub};

use roaring::RoaringBitmap;

use super::bit_words::{BitmapOperation, WordBitmap, roaring_ranges, word_index};
use super::roaring_format::{RoaringView, STATE, corrupt_container};
use crate::SketchError;

/// A set of 32-bit numbers, those of an [`IdSpace`](crate::IdSpace)'s ids.
///
/// Memory: an eighth of a byte for each number up to the largest if the set contains many of them; otherwise
/// at most 2 bytes for each member, and a few bytes for each run of consecutive members.
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
    form: IdSetForm,
}

#[derive(Debug, Clone)]
enum IdSetForm {
    Words(WordBitmap),
    Roaring(RoaringBitmap),
}

impl Default for IdSetForm {
    fn default() -> Self {
        IdSetForm::Roaring(RoaringBitmap::new())
    }
}

impl IdSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        IdSet::default()
    }

    /// Returns the count of members. Cost: constant for words, otherwise a pass over the containers.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.form {
            IdSetForm::Words(words) => words.len,
            IdSetForm::Roaring(few) => few.len(),
        }
    }

    /// Returns true if the set has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if a number is in the set.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        match &self.form {
            IdSetForm::Words(words) => words.contains(index),
            IdSetForm::Roaring(few) => few.contains(index),
        }
    }

    /// Adds a number. Returns true if it is new. For many numbers at once use [`Extend`].
    pub fn insert(&mut self, index: u32) -> bool {
        match &mut self.form {
            IdSetForm::Words(words) => {
                // A number far above all others would need all words in between.
                if word_index(index) > 2 * words.words.len() {
                    self.form = IdSetForm::Roaring(words.to_roaring());
                    return self.insert(index);
                }
                words.insert(index)
            }
            IdSetForm::Roaring(few) => few.insert(index),
        }
    }

    /// Removes a number. Returns true if it was in the set.
    pub fn remove(&mut self, index: u32) -> bool {
        match &mut self.form {
            IdSetForm::Words(words) => words.remove(index),
            IdSetForm::Roaring(few) => few.remove(index),
        }
    }

    /// Returns the numbers, ascending.
    pub fn iter(&self) -> IdSetIter<'_> {
        IdSetIter(match &self.form {
            IdSetForm::Words(words) => IdSetIterForm::Words {
                left: words.words.iter(),
                word: 0,
                // One before the first word: the iterator increments it when it reads a word.
                at: u32::MAX,
            },
            IdSetForm::Roaring(few) => IdSetIterForm::Roaring(few.iter()),
        })
    }

    /// Adds all numbers of `other`.
    pub fn union_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Union);
    }

    /// Removes all numbers that are not in `other`.
    pub fn intersect_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Intersection);
    }

    /// Removes all numbers of `other`.
    pub fn subtract(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Difference);
    }

    /// Adds the numbers of `other` that are missing, and removes those that are present.
    pub fn symmetric_difference_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::SymmetricDifference);
    }

    /// Returns the count of numbers in both sets, without building the intersection.
    #[must_use]
    pub fn intersection_len(&self, other: &IdSet) -> u64 {
        match (&self.form, &other.form) {
            (IdSetForm::Words(a), IdSetForm::Words(b)) => a.intersection_len(b),
            (IdSetForm::Roaring(a), IdSetForm::Roaring(b)) => a.intersection_len(b),
            (IdSetForm::Words(words), IdSetForm::Roaring(few))
            | (IdSetForm::Roaring(few), IdSetForm::Words(words)) => {
                roaring_ranges(few).map(|range| words.count_range(range)).sum()
            }
        }
    }

    /// Returns the count of numbers in either set, without building the union.
    #[must_use]
    pub fn union_len(&self, other: &IdSet) -> u64 {
        self.len() + other.len() - self.intersection_len(other)
    }

    fn apply(&mut self, other: &IdSet, operation: BitmapOperation) {
        match (&mut self.form, &other.form) {
            (IdSetForm::Words(words), IdSetForm::Words(others)) => words.apply(others, operation),
            (IdSetForm::Roaring(few), IdSetForm::Roaring(others)) => match operation {
                BitmapOperation::Union => *few |= others,
                BitmapOperation::Intersection => *few &= others,
                BitmapOperation::Difference => *few -= others,
                BitmapOperation::SymmetricDifference => *few ^= others,
            },
            (IdSetForm::Words(words), IdSetForm::Roaring(others)) => match operation {
                BitmapOperation::Union | BitmapOperation::SymmetricDifference
                    if words.would_waste_memory(others) =>
                {
                    self.form = IdSetForm::Roaring(words.to_roaring());
                    return self.apply(other, operation);
                }
                BitmapOperation::Union => {
                    words.grow_to(others.max());
                    roaring_ranges(others).for_each(|range| words.set_range(range));
                }
                BitmapOperation::Difference => {
                    roaring_ranges(others).for_each(|range| words.clear_range(range))
                }
                BitmapOperation::SymmetricDifference => {
                    words.grow_to(others.max());
                    roaring_ranges(others).for_each(|range| words.flip_range(range));
                }
                BitmapOperation::Intersection => {
                    self.form = IdSetForm::Roaring(words.filter_roaring(others, true))
                }
            },
            (IdSetForm::Roaring(few), IdSetForm::Words(others)) => match operation {
                BitmapOperation::Intersection => *few = others.filter_roaring(few, true),
                BitmapOperation::Difference => *few = others.filter_roaring(few, false),
                BitmapOperation::Union | BitmapOperation::SymmetricDifference => {
                    // These operations are symmetric.
                    let few = IdSet { form: IdSetForm::Roaring(std::mem::take(few)) };
                    self.form = other.form.clone();
                    return self.apply(&few, operation);
                }
            },
        }
        self.choose_form();
    }

    fn combine(&self, other: &IdSet, operation: BitmapOperation) -> IdSet {
        let repr = match (&self.form, &other.form) {
            (IdSetForm::Words(a), IdSetForm::Words(b)) => IdSetForm::Words(a.combine(b, operation)),
            (IdSetForm::Roaring(a), IdSetForm::Roaring(b)) => IdSetForm::Roaring(match operation {
                BitmapOperation::Union => a | b,
                BitmapOperation::Intersection => a & b,
                BitmapOperation::Difference => a - b,
                BitmapOperation::SymmetricDifference => a ^ b,
            }),
            (IdSetForm::Words(words), IdSetForm::Roaring(few))
            | (IdSetForm::Roaring(few), IdSetForm::Words(words))
                if operation == BitmapOperation::Intersection =>
            {
                IdSetForm::Roaring(words.filter_roaring(few, true))
            }
            (IdSetForm::Roaring(few), IdSetForm::Words(words))
                if operation == BitmapOperation::Difference =>
            {
                IdSetForm::Roaring(words.filter_roaring(few, false))
            }
            _ => {
                let mut changed = self.clone();
                changed.apply(other, operation);
                return changed;
            }
        };
        let mut combined = IdSet { form: repr };
        combined.choose_form();
        combined
    }

    /// Converts the set to the form that suits its numbers.
    fn choose_form(&mut self) {
        match &mut self.form {
            IdSetForm::Words(words) => {
                while words.words.pop_if(|word| *word == 0).is_some() {}
                // Lists take at most 2 bytes a number. Runs may be even smaller; detecting them takes a
                // pass over all numbers, which `optimize` does.
                if words.words.len() * 8 > 4 * list_bytes_max(words.len) {
                    self.form = IdSetForm::Roaring(words.to_roaring());
                }
            }
            IdSetForm::Roaring(few) => {
                let words = few.max().map_or(0, |max| word_index(max) + 1);
                // At most twice the memory of the containers, for any decoded bytes.
                if words * 8 <= 2 * few.serialized_size() {
                    self.form = IdSetForm::Words(WordBitmap::from_roaring(few));
                }
            }
        }
    }

    /// Converts the set to the form that takes least memory, runs included. Cost: a pass over the set.
    pub fn optimize(&mut self) {
        let mut few = match &self.form {
            IdSetForm::Words(words) => words.to_roaring(),
            IdSetForm::Roaring(few) => few.clone(),
        };
        few.optimize();
        self.form = IdSetForm::Roaring(few);
        self.choose_form();
    }

    /// Returns the heap memory that the set owns, in bytes; for containers their content. Cost: a pass over
    /// these.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            IdSetForm::Words(words) => words.words.capacity() * 8,
            IdSetForm::Roaring(few) if few.is_empty() => 0,
            IdSetForm::Roaring(few) => few.serialized_size(),
        }
    }

    /// Appends the set in the Roaring portable format. Equal sets give equal bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut few = match &self.form {
            IdSetForm::Words(words) => words.to_roaring(),
            IdSetForm::Roaring(few) => few.clone(),
        };
        // Normalized first: the result of `optimize` depends on a container's previous form.
        few.remove_run_compression();
        few.optimize();
        out.reserve(few.serialized_size());
        let written = few.serialize_into(out);
        debug_assert!(written.is_ok(), "a vector takes what is written");
    }

    /// Reads a set in the Roaring portable format from any writer. Time and memory are at most a
    /// small multiple of the input's length.
    ///
    /// # Errors
    /// [`SketchError::UnknownFormat`], [`SketchError::Truncated`], [`SketchError::TrailingBytes`] or
    /// [`SketchError::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let stored = RoaringView::open(bytes)?;
        if stored.words_max() * 8 <= 2 * bytes.len() {
            let mut set = IdSet { form: IdSetForm::Words(stored.read_words()?) };
            set.choose_form();
            return Ok(set);
        }
        let mut left = bytes;
        let few = RoaringBitmap::deserialize_from(&mut left);
        let offset = bytes.len() - left.len();
        let few = few.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                SketchError::Truncated { state: STATE, offset: bytes.len(), needed: 1 }
            }
            _ => corrupt_container(offset),
        })?;
        if !left.is_empty() {
            return Err(SketchError::TrailingBytes { state: STATE, offset, extra: left.len() });
        }
        let mut set = IdSet { form: IdSetForm::Roaring(few) };
        set.choose_form();
        Ok(set)
    }
}

/// Returns the maximum size of the list containers of `len` numbers, in bytes.
fn list_bytes_max(len: u64) -> usize {
    usize::try_from(2 * len).unwrap_or(usize::MAX / 4)
}

/// Two sets are equal if they have the same numbers, in any form.
impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (IdSetForm::Words(a), IdSetForm::Words(b)) => {
                let shared = a.words.len().min(b.words.len());
                // The rest of the longer one must be zeros, as both counts are equal.
                a.len == b.len && a.words[..shared] == b.words[..shared]
            }
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl Eq for IdSet {}

/// Number of members that `extend` adds together.
const EXTEND_BATCH_LEN: usize = 1 << 16;

impl Extend<u32> for IdSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, indexes: T) {
        let mut indexes = indexes.into_iter();
        let mut some = Vec::new();
        loop {
            some.clear();
            some.extend(indexes.by_ref().take(EXTEND_BATCH_LEN));
            match &mut self.form {
                _ if some.is_empty() => break,
                IdSetForm::Roaring(few) => {
                    let max = some.iter().copied().max().max(few.max());
                    let words = max.map_or(0, |max| word_index(max) + 1);
                    if words as u64 <= few.len() + some.len() as u64 {
                        // Words take the numbers in any order; `choose_form` decides at the end.
                        let mut words = WordBitmap::from_roaring(few);
                        words.grow_to(max);
                        some.iter().for_each(|index| _ = words.insert(*index));
                        self.form = IdSetForm::Words(words);
                    } else {
                        some.sort_unstable();
                        few.extend(some.iter().copied());
                    }
                }
                IdSetForm::Words(_) => some.iter().for_each(|index| _ = self.insert(*index)),
            }
        }
        self.choose_form();
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
    type IntoIter = IdSetIter<'a>;

    fn into_iter(self) -> IdSetIter<'a> {
        self.iter()
    }
}

/// An iterator over the numbers of an [`IdSet`], ascending.
#[derive(Clone)]
pub struct IdSetIter<'a>(IdSetIterForm<'a>);

impl std::fmt::Debug for IdSetIter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[derive(Clone)]
enum IdSetIterForm<'a> {
    Words {
        left: std::slice::Iter<'a, u64>,
        /// Remaining bits of the current word.
        word: u64,
        /// Index of the current word.
        at: u32,
    },
    Roaring(roaring::bitmap::Iter<'a>),
}

impl Iterator for IdSetIter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        match &mut self.0 {
            IdSetIterForm::Words { left, word, at } => {
                while *word == 0 {
                    *word = *left.next()?;
                    *at = at.wrapping_add(1);
                }
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                Some(*at * 64 + bit)
            }
            IdSetIterForm::Roaring(few) => few.next(),
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr, $doc:literal) => {
        #[doc = $doc]
        impl $trait<&IdSet> for &IdSet {
            type Output = IdSet;

            fn $method(self, other: &IdSet) -> IdSet {
                self.combine(other, $operation)
            }
        }
    };
}

operator!(BitOr, bitor, BitmapOperation::Union, "The union.");
operator!(BitAnd, bitand, BitmapOperation::Intersection, "The intersection.");
operator!(Sub, sub, BitmapOperation::Difference, "The difference.");
operator!(BitXor, bitxor, BitmapOperation::SymmetricDifference, "The symmetric difference.");
