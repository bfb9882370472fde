//! In which order the keys of an object come, learned from the objects before.
//!
//! A program that writes events writes their keys in the same order each time, often leaving
//! some out. So the key that comes next is known before it is read, and one comparison tells
//! whether it is the one: of the eight bytes that end with its colon.
//!
//! ```text
//!   steps   "ts"   "url"   "title"   "user_id"   "os"
//!            │      └──────┴── a run ──┐  │       │
//!            wanted          of keys not wanted  wanted        …
//! ```
//!
//! A run of keys that are not wanted, with scalar values, is taken in one tight loop that looks
//! at a word and a comma for each and at nothing else. Nothing rests on a guess: a key is passed
//! over by its eight bytes only where these cannot end a wanted one, a wanted key is compared in
//! full, one that comes after missing ones is sought a few steps ahead, and any other key is
//! looked up as if nothing
//! were known. (Mison speculates on the order of keys as well, but from positions, and takes
//! the rest of the record on trust: Li et al., VLDB 2017.)
//!
//! Where keys come in no order, guessing costs more than it saves and is left off for a while.

/// What is expected of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedKey {
    /// The last eight bytes of the key up to and including its colon, and which of their bits
    /// belong to it and its quotes.
    pub(super) word: u64,
    pub(super) mask: u64,
    /// Keys not wanted from here on, this one included, whose values are scalars.
    run_length: u32,
    /// The wanted key, or one of the two below.
    wanted_key: u32,
    /// The eight bytes are all of it.
    pub(super) is_short: bool,
    /// The value is no scalar, or was none at least once.
    has_nested_value: bool,
}

impl ExpectedKey {
    /// A wanted key, whose values are to be scalars.
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

    /// Which of the wanted keys it is, if it is one.
    #[inline(always)]
    pub(super) fn wanted_index(&self) -> usize {
        self.wanted_key as usize
    }
}

/// Not wanted, and no wanted key ends as it does.
const KEY_NOT_WANTED: u32 = u32::MAX;
/// Not wanted, but a wanted key ends as it does, or it is counted: it is looked up each time.
const KEY_NEEDS_LOOKUP: u32 = u32::MAX - 1;

/// What one step foretells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyGuess {
    NotWanted,
    /// This one, if the rest of the name is right.
    Wanted(usize),
}

/// A key as it stands in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedKey<'a> {
    /// From its opening quote to its colon, both included; no white space between.
    pub(super) quoted: &'a [u8],
    /// Which one it is, if it is wanted.
    pub(super) wanted_index: Option<usize>,
    /// No column has it, which is counted.
    pub(super) is_unknown: bool,
    /// Its value is wanted to be no scalar.
    pub(super) has_nested_value: bool,
}

/// The order of the keys of an object.
#[derive(Debug, Default)]
pub(super) struct JsonKeyOrder {
    expected_keys: Vec<ExpectedKey>,
    /// Their keys, from the opening quote to the colon.
    quoted_keys: Vec<Box<[u8]>>,
    /// What their values looked like where they were not wanted and not scalars.
    nested_shapes: Vec<NestedShape>,
    /// How much guessing went wrong of late, in what a right guess saves.
    misguess_cost: u32,
    /// Objects for which nothing is guessed.
    paused_objects: u32,
    /// For how many it was last time.
    last_pause: u32,
}

/// The brackets, colons and commas of a value that was found to be sound.
///
/// No object in it is without members: that between its brackets there is nothing at all is
/// not to be seen from these.
#[derive(Debug, Default)]
pub(super) struct NestedShape {
    structural_bytes: Vec<u8>,
    /// How often the next value differed: two for each that did, less one for each other.
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

    /// Takes another one for it, unless values differ too much to make it worth the while.
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

/// What it costs to find a key behind missing ones, and to look up one that is not expected,
/// by what a right guess saves: measured, a branch foretold wrongly being most of it.
const SKIPPED_KEYS_COST: u32 = 10;
const UNEXPECTED_KEY_COST: u32 = 16;
/// Steps to look ahead where keys are missing.
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

    /// The run of keys that are not wanted which begins with a step; it may be empty.
    #[inline(always)]
    pub(super) fn run_from(&self, step: usize) -> &[ExpectedKey] {
        let len = self.expected_keys.get(step).map_or(0, |first| first.run_length as usize);
        self.expected_keys.get(step..step + len).unwrap_or_default()
    }

    /// The keys of the steps from one on.
    #[inline(always)]
    pub(super) fn quoted_keys_from(&self, step: usize) -> &[Box<[u8]>] {
        self.quoted_keys.get(step..).unwrap_or_default()
    }

    /// Which of the next steps it is that the key whose last eight bytes, its colon included,
    /// are `word`, may be that of, and what is known of it then.
    #[inline(always)]
    pub(super) fn guess_key(&mut self, step: usize, word: u64) -> Option<(usize, KeyGuess)> {
        let expected = self.expected_keys.get(step)?;
        if word & expected.mask == expected.word {
            return Some((step, expected.as_guess()?));
        }
        self.guess_key_ahead(step + 1, word)
    }

    /// The same where some keys are missing.
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

    /// What the value at a step, an object or an array, looked like.
    #[inline(always)]
    pub(super) fn nested_shape(&mut self, step: usize) -> Option<&mut NestedShape> {
        if self.expected_keys.get(step)?.run_length > 0 {
            self.expected_keys[step].has_nested_value = true;
            self.recount_runs();
        }
        self.nested_shapes.get_mut(step)
    }

    /// Whether the order of keys is being learned.
    #[inline(always)]
    pub(super) fn is_learning(&self) -> bool {
        self.paused_objects == 0
    }

    /// Notes a key that was looked up where a step was expected, and returns the step behind it.
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
        // Some are missing here, or were never seen before, or it comes out of turn.
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

    /// Begins an object: the first step.
    #[inline(always)]
    pub(super) fn begin_object(&mut self) -> usize {
        if self.paused_objects > 0 {
            self.paused_objects -= 1;
        }
        0
    }

    /// Ends an object that came as far as a step.
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

    /// Counts the runs anew.
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

/// Returns whether the text up to a colon, which ends as a quoted key does that has its colon, is all of the key.
#[inline(always)]
pub(super) fn is_whole_key(text: &[u8], colon: usize, quoted: &[u8]) -> bool {
    let Some(found) = (colon + 1).checked_sub(quoted.len()).and_then(|start| text.get(start..))
    else {
        return false;
    };
    // The last eight bytes were compared.
    let (chunks, found) = (quoted.as_chunks::<8>().0, found.as_chunks::<8>().0);
    quoted.len() <= 8
        || found.len() >= chunks.len() && chunks.iter().zip(found).all(|(one, other)| one == other)
}

/// The last eight bytes of a quoted key with its colon, the last one on top, and which bits of
/// them there are.
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

    /// Whether one key may be the other for all that the endings say.
    pub(super) fn can_match(&self, other: &KeyEnding) -> bool {
        (self.word ^ other.word) & self.mask & other.mask == 0
    }
}
