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

use super::stored::{STATE, Stored, corrupt};
use super::words::{Operation, Words, ranges, word_of};
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
            Repr::Words(words) => words.remove(index),
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
            (Repr::Words(a), Repr::Words(b)) => a.shared(b),
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

/// What the containers of so many numbers take at most where they are lists.
fn few_bytes_max(len: u64) -> usize {
    usize::try_from(2 * len).unwrap_or(usize::MAX / 4)
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
