//! The expected order of an object's keys, learned from earlier objects.
//!
//! A program that writes events writes their keys in the same order each time, often leaving
//! some out. The next key is therefore known before it is read, and one comparison of the eight bytes that
//! end with its colon confirms it.
//!
//! ```text
//!   keys    "ts"   "url"   "title"   "user_id"   "os"
//!            │      └──────┴── a run ──┐  │       │
//!            wanted          of keys not wanted  wanted        …
//! ```
//!
//! One tight loop skips a run of unwanted keys with scalar values. It looks
//! at a word and a comma for each and at nothing else. No result depends on a guess: the walk skips a key
//! by its eight bytes only if no wanted key ends with these, it compares a wanted key in
//! full, it searches a few keys ahead where some are missing, and it looks up any other key
//! as if nothing
//! were known. (Mison speculates on the order of keys as well, but from positions, and trusts
//! the rest of the record: Li et al., VLDB 2017.)
//!
//! If keys come in no order, guessing costs more than it saves and pauses for a while.

/// The expected key of the next member.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedKey {
    /// The last eight bytes of the key up to and including its colon, and the mask of the bits
    /// that belong to the key and its quotes.
    pub(super) word: u64,
    pub(super) mask: u64,
    /// Number of unwanted keys with scalar values from here on, this one included.
    run_length: u32,
    /// Index of the wanted key, or one of the two constants below.
    wanted_key: u32,
    /// True if the eight bytes are the whole key.
    pub(super) is_short: bool,
    /// True if the value is not a scalar, or was not at least once.
    has_nested_value: bool,
}

impl ExpectedKey {
    /// Returns whether it is a wanted key with scalar values.
    #[inline(always)]
    pub(super) fn is_wanted_scalar(&self) -> bool {
        self.wanted_key < KEY_NEEDS_LOOKUP && !self.has_nested_value
    }

    #[inline(always)]
    pub(super) fn is_run_start(&self) -> bool {
        self.run_length > 0
    }

    #[inline(always)]
    fn as_guess(&self) -> Option<KeyGuess> {
        match self.wanted_key {
            KEY_NOT_WANTED => Some(KeyGuess::NotWanted),
            KEY_NEEDS_LOOKUP => None,
            key => Some(KeyGuess::Wanted(key as usize)),
        }
    }

    /// Returns the index of the wanted key, if it is one.
    #[inline(always)]
    pub(super) fn wanted_index(&self) -> usize {
        self.wanted_key as usize
    }
}

/// Marks an unwanted key whose ending no wanted key has.
const KEY_NOT_WANTED: u32 = u32::MAX;
/// Marks an unwanted key that has the ending of a wanted one or is counted: the walk looks it up each time.
const KEY_NEEDS_LOOKUP: u32 = u32::MAX - 1;

/// The prediction for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyGuess {
    NotWanted,
    /// This wanted key, if the rest of the name matches.
    Wanted(usize),
}

/// A key as the text spells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedKey<'a> {
    /// The text from its opening quote to its colon, both included, without white space between.
    pub(super) quoted: &'a [u8],
    /// Index of the wanted key, if it is one.
    pub(super) wanted_index: Option<usize>,
    /// True if no column has the key, and such keys are counted.
    pub(super) is_unknown: bool,
    /// True if the wanted value is not a scalar.
    pub(super) has_nested_value: bool,
}

/// The order of the keys of an object.
#[derive(Debug, Default)]
pub(super) struct JsonKeyOrder {
    expected_keys: Vec<ExpectedKey>,
    /// The keys with their quotes and colons.
    quoted_keys: Vec<Box<[u8]>>,
    /// Shapes of the unwanted values that are not scalars.
    nested_shapes: Vec<NestedShape>,
    /// Cost of recent wrong guesses, in units of the time saved by a right one.
    misguess_cost: u32,
    /// Number of objects left in the current pause.
    paused_objects: u32,
    /// Length of the last pause.
    last_pause: u32,
}

/// The brackets, colons and commas of a sound value.
///
/// No object in it is empty: these characters do not show that there is nothing at all between its
/// brackets.
#[derive(Debug, Default)]
pub(super) struct NestedShape {
    structural_bytes: Vec<u8>,
    /// Score of mismatches: plus two for each value that differed, minus one for each that matched.
    mismatch_score: u8,
}

impl NestedShape {
    #[inline(always)]
    pub(super) fn structural_bytes(&self) -> &[u8] {
        &self.structural_bytes
    }

    #[inline(always)]
    pub(super) fn note_match(&mut self) {
        self.mismatch_score = self.mismatch_score.saturating_sub(1);
    }

    /// Replaces the shape, unless values differ too much to be worth it.
    pub(super) fn replace_or_give_up(&mut self, bytes: impl ExactSizeIterator<Item = u8>) {
        self.mismatch_score = (self.mismatch_score + 2).min(2 * MISMATCH_SCORE_MAX);
        if self.mismatch_score > MISMATCH_SCORE_MAX {
            return;
        }
        self.structural_bytes.clear();
        if bytes.len() <= SHAPE_BYTES_MAX {
            self.structural_bytes.extend(bytes);
            if self.structural_bytes.windows(2).any(|pair| pair == b"{}") {
                self.structural_bytes.clear();
            }
        }
    }
}

/// Cost of finding a key after missing ones, and of looking up an unexpected one,
/// in units of the time saved by a right guess: measured, and mostly the cost of a mispredicted branch.
const SKIPPED_KEYS_COST: u32 = 10;
const UNEXPECTED_KEY_COST: u32 = 16;
/// Number of keys to look ahead where keys are missing.
const LOOK_AHEAD_KEYS: usize = 8;
const MISMATCH_SCORE_MAX: u8 = 16;
const SHAPE_BYTES_MAX: usize = 1 << 12;
const EXPECTED_KEYS_MAX: usize = 1 << 10;
const QUOTED_KEY_BYTES_MAX: usize = 256;
const MISGUESS_COST_MAX: u32 = 1 << 12;
const PAUSE_OBJECTS: std::ops::Range<u32> = 1 << 10..1 << 18;

impl JsonKeyOrder {
    #[inline(always)]
    pub(super) fn expected_key(&self, step: usize) -> Option<ExpectedKey> {
        self.expected_keys.get(step).copied()
    }

    /// Returns the run of unwanted keys that begins at a position; it may be empty.
    #[inline(always)]
    pub(super) fn run_from(&self, step: usize) -> &[ExpectedKey] {
        let len = self.expected_keys.get(step).map_or(0, |first| first.run_length as usize);
        self.expected_keys.get(step..step + len).unwrap_or_default()
    }

    /// Returns the quoted keys from a position on.
    #[inline(always)]
    pub(super) fn quoted_keys_from(&self, step: usize) -> &[Box<[u8]>] {
        self.quoted_keys.get(step..).unwrap_or_default()
    }

    /// Returns the position and prediction of the next expected key whose last eight bytes, its colon
    /// included, are `word`.
    #[inline(always)]
    pub(super) fn guess_key(&mut self, step: usize, word: u64) -> Option<(usize, KeyGuess)> {
        let expected = self.expected_keys.get(step)?;
        if word & expected.mask == expected.word {
            return Some((step, expected.as_guess()?));
        }
        self.guess_key_ahead(step + 1, word)
    }

    /// Does the same where some keys are missing.
    #[inline(never)]
    fn guess_key_ahead(&mut self, first: usize, word: u64) -> Option<(usize, KeyGuess)> {
        let last = self.expected_keys.len().min(first + LOOK_AHEAD_KEYS);
        let more = self
            .expected_keys
            .get(first..last)?
            .iter()
            .position(|step| word & step.mask == step.word)?;
        self.misguess_cost += SKIPPED_KEYS_COST;
        let step = first + more;
        Some((step, self.expected_keys[step].as_guess()?))
    }

    /// Returns the shape of the object or array at a position.
    #[inline(always)]
    pub(super) fn nested_shape(&mut self, step: usize) -> Option<&mut NestedShape> {
        if self.expected_keys.get(step)?.run_length > 0 {
            self.expected_keys[step].has_nested_value = true;
            self.recount_runs();
        }
        self.nested_shapes.get_mut(step)
    }

    /// Returns whether the order of keys is being learned.
    #[inline(always)]
    pub(super) fn is_learning(&self) -> bool {
        self.paused_objects == 0
    }

    /// Notes a key that was looked up where another one was expected, and returns the position after it.
    #[cold]
    #[inline(never)]
    pub(super) fn learn_key(
        &mut self,
        step: usize,
        seen: ObservedKey,
        wanted: &[KeyEnding],
    ) -> usize {
        let is_it = |name: &[u8]| name == seen.quoted;
        if self.quoted_keys.get(step).is_some_and(|name| is_it(name)) {
            return step + 1;
        }
        self.misguess_cost += UNEXPECTED_KEY_COST;
        // Some keys are missing here, or the key is new, or it comes out of order.
        let ahead = self.quoted_keys.get(step..).unwrap_or_default();
        if let Some(more) = ahead.iter().position(|name| is_it(name)) {
            return step + more + 1;
        }
        if self.quoted_keys.iter().take(step).any(|name| is_it(name))
            || self.expected_keys.len() >= EXPECTED_KEYS_MAX
            || seen.quoted.len() > QUOTED_KEY_BYTES_MAX
        {
            return step;
        }
        let ending = KeyEnding::from_quoted_key(seen.quoted);
        let KeyEnding { word, mask } = ending;
        let is_alike = wanted.iter().any(|other| ending.can_match(other));
        let is_short = seen.quoted.len() <= 8;
        let key = match seen.wanted_index {
            Some(key) => u32::try_from(key).unwrap_or(KEY_NEEDS_LOOKUP).min(KEY_NEEDS_LOOKUP),
            None if is_alike || seen.is_unknown => KEY_NEEDS_LOOKUP,
            None => KEY_NOT_WANTED,
        };
        let at = step.min(self.expected_keys.len());
        self.expected_keys.insert(
            at,
            ExpectedKey {
                word,
                mask,
                run_length: 0,
                wanted_key: key,
                is_short,
                has_nested_value: seen.has_nested_value,
            },
        );
        self.quoted_keys.insert(at, seen.quoted.into());
        self.nested_shapes.insert(at, NestedShape::default());
        self.recount_runs();
        at + 1
    }

    /// Begins an object and returns the first position.
    #[inline(always)]
    pub(super) fn begin_object(&mut self) -> usize {
        if self.paused_objects > 0 {
            self.paused_objects -= 1;
        }
        0
    }

    /// Ends an object that reached a position.
    #[inline(always)]
    pub(super) fn end_object(&mut self, step: usize) {
        if self.misguess_cost > 0 {
            self.settle_misguess_cost(step);
        }
    }

    #[inline(never)]
    fn settle_misguess_cost(&mut self, step: usize) {
        self.misguess_cost =
            self.misguess_cost.saturating_sub(u32::try_from(step).unwrap_or(u32::MAX));
        if self.misguess_cost > MISGUESS_COST_MAX {
            self.last_pause = (2 * self.last_pause).clamp(PAUSE_OBJECTS.start, PAUSE_OBJECTS.end);
            self.paused_objects = self.last_pause;
            self.misguess_cost = 0;
            self.expected_keys.clear();
            self.quoted_keys.clear();
            self.nested_shapes.clear();
        }
    }

    /// Recomputes the lengths of the runs.
    fn recount_runs(&mut self) {
        let mut run = 0;
        for step in self.expected_keys.iter_mut().rev() {
            run = if step.wanted_key == KEY_NOT_WANTED && !step.has_nested_value {
                run + 1
            } else {
                0
            };
            step.run_length = run;
        }
    }
}

/// Returns whether the text up to a colon ends with a whole quoted key, if its last eight bytes match.
#[inline(always)]
pub(super) fn is_whole_key(text: &[u8], colon: usize, quoted: &[u8]) -> bool {
    let Some(found) = (colon + 1).checked_sub(quoted.len()).and_then(|start| text.get(start..))
    else {
        return false;
    };
    // The caller has compared the last eight bytes.
    let (chunks, found) = (quoted.as_chunks::<8>().0, found.as_chunks::<8>().0);
    quoted.len() <= 8
        || found.len() >= chunks.len() && chunks.iter().zip(found).all(|(one, other)| one == other)
}

/// The last eight bytes of a quoted key with its colon, the last one on top, and the mask of the existing
/// bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyEnding {
    pub(super) word: u64,
    pub(super) mask: u64,
}

impl KeyEnding {
    pub(super) fn from_quoted_key(quoted: &[u8]) -> Self {
        let mut bytes = [0; 8];
        let len = quoted.len().min(8);
        bytes[8 - len..].copy_from_slice(&quoted[quoted.len() - len..]);
        let mask = if len == 8 { u64::MAX } else { !(u64::MAX >> (8 * len)) };
        Self { word: u64::from_le_bytes(bytes), mask }
    }

    /// Returns whether the two keys can be the same as far as the endings show.
    pub(super) fn can_match(&self, other: &KeyEnding) -> bool {
        (self.word ^ other.word) & self.mask & other.mask == 0
    }
}
