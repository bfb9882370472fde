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

use std::ops::{BitAnd, BitOr, BitXor, Sub};

use roaring::RoaringBitmap;

use super::bit_words::{BitWords, BitmapOperation, roaring_ranges, word_index};
use super::roaring_format::{RoaringView, STATE, corrupt_container};
use crate::SketchError;

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
    form: IdSetForm,
}

#[derive(Debug, Clone)]
enum IdSetForm {
    Words(BitWords),
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

    /// How many numbers are in it. Cost: constant for words, else a pass over the containers.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.form {
            IdSetForm::Words(words) => words.len,
            IdSetForm::Roaring(few) => few.len(),
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
        match &self.form {
            IdSetForm::Words(words) => words.contains(index),
            IdSetForm::Roaring(few) => few.contains(index),
        }
    }

    /// Adds a number; returns whether it is new. Many at once are added by [`Extend`].
    pub fn insert(&mut self, index: u32) -> bool {
        match &mut self.form {
            IdSetForm::Words(words) => {
                // A number far from all others would want all the words in between.
                if word_index(index) > 2 * words.words.len() {
                    self.form = IdSetForm::Roaring(words.to_roaring());
                    return self.insert(index);
                }
                words.insert(index)
            }
            IdSetForm::Roaring(few) => few.insert(index),
        }
    }

    /// Removes a number; returns whether it was there.
    pub fn remove(&mut self, index: u32) -> bool {
        match &mut self.form {
            IdSetForm::Words(words) => words.remove(index),
            IdSetForm::Roaring(few) => few.remove(index),
        }
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> IdSetIter<'_> {
        IdSetIter(match &self.form {
            IdSetForm::Words(words) => IdSetIterForm::Words {
                left: words.words.iter(),
                word: 0,
                // One before the first: the next word is read before a bit of it is.
                at: u32::MAX,
            },
            IdSetForm::Roaring(few) => IdSetIterForm::Roaring(few.iter()),
        })
    }

    /// Adds all numbers of `other`.
    pub fn union_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Union);
    }

    /// Removes all numbers that `other` has not.
    pub fn intersect_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Intersection);
    }

    /// Removes all numbers of `other`.
    pub fn subtract(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::Difference);
    }

    /// Adds the numbers of `other` that are not there, and removes those that are.
    pub fn symmetric_difference_with(&mut self, other: &IdSet) {
        self.apply(other, BitmapOperation::SymmetricDifference);
    }

    /// How many numbers both have. Nothing is written for it.
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

    /// How many numbers either has. Nothing is written for it.
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
                    // Either way round they are the same.
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

    /// Goes over to the form that the numbers ask for.
    fn choose_form(&mut self) {
        match &mut self.form {
            IdSetForm::Words(words) => {
                while words.words.pop_if(|word| *word == 0).is_some() {}
                // At most 2 bytes a number, where they are lists. Runs may be smaller yet; it takes a
                // pass over all to see it, which `optimize` is for.
                if words.words.len() * 8 > 4 * list_bytes_max(words.len) {
                    self.form = IdSetForm::Roaring(words.to_roaring());
                }
            }
            IdSetForm::Roaring(few) => {
                let words = few.max().map_or(0, |max| word_index(max) + 1);
                // Never more than the containers take, whatever the bytes were that they are from.
                if words * 8 <= 2 * few.serialized_size() {
                    self.form = IdSetForm::Words(BitWords::from_roaring(few));
                }
            }
        }
    }

    /// Goes over to whichever form takes least memory, runs included. Cost: a pass over the set.
    pub fn optimize(&mut self) {
        let mut few = match &self.form {
            IdSetForm::Words(words) => words.to_roaring(),
            IdSetForm::Roaring(few) => few.clone(),
        };
        few.optimize();
        self.form = IdSetForm::Roaring(few);
        self.choose_form();
    }

    /// The heap memory the set owns, in bytes: of containers what they hold. Cost: a pass over these.
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

/// What the containers of so many numbers take at most where they are lists.
fn list_bytes_max(len: u64) -> usize {
    usize::try_from(2 * len).unwrap_or(usize::MAX / 4)
}

/// Two sets are equal if they have the same numbers, whatever their forms.
impl PartialEq for IdSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (IdSetForm::Words(a), IdSetForm::Words(b)) => {
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
                        // What they take goes to them as they are, in whatever order; `settle` sees what comes of it.
                        let mut words = BitWords::from_roaring(few);
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

/// The numbers of an [`IdSet`], ascending.
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
        /// What is left of the word at hand.
        word: u64,
        /// Which word that is.
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
