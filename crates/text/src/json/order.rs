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
pub(super) struct Step {
    /// The last eight bytes of the key up to and including its colon, and which of their bits
    /// belong to it and its quotes.
    pub(super) word: u64,
    pub(super) mask: u64,
    /// Keys not wanted from here on, this one included, whose values are scalars.
    run: u32,
    /// The wanted key, or one of the two below.
    key: u32,
    /// The eight bytes are all of it.
    pub(super) is_short: bool,
    /// The value is no scalar, or was none at least once.
    nested: bool,
}

impl Step {
    /// A wanted key, whose values are to be scalars.
    #[inline(always)]
    pub(super) fn is_leaf(&self) -> bool {
        self.key < ALIKE && !self.nested
    }

    #[inline(always)]
    pub(super) fn begins_run(&self) -> bool {
        self.run > 0
    }

    #[inline(always)]
    fn guess(&self) -> Option<Guess> {
        match self.key {
            NOT_WANTED => Some(Guess::NotWanted),
            ALIKE => None,
            key => Some(Guess::Wanted(key as usize)),
        }
    }

    /// Which of the wanted keys it is, if it is one.
    #[inline(always)]
    pub(super) fn wanted(&self) -> usize {
        self.key as usize
    }
}

/// Not wanted, and no wanted key ends as it does.
const NOT_WANTED: u32 = u32::MAX;
/// Not wanted, but a wanted key ends as it does, or it is counted: it is looked up each time.
const ALIKE: u32 = u32::MAX - 1;

/// What one step foretells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    NotWanted,
    /// This one, if the rest of the name is right.
    Wanted(usize),
}

/// A key as it stands in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    /// From its opening quote to its colon, both included; no white space between.
    pub(super) quoted: &'a [u8],
    /// Which one it is, if it is wanted.
    pub(super) wanted: Option<usize>,
    /// No column has it, which is counted.
    pub(super) unknown: bool,
    /// Its value is wanted to be no scalar.
    pub(super) nested: bool,
}

/// The order of the keys of an object.
#[derive(Debug, Default)]
pub(super) struct Order {
    steps: Vec<Step>,
    /// Their keys, from the opening quote to the colon.
    names: Vec<Box<[u8]>>,
    /// What their values looked like where they were not wanted and not scalars.
    shapes: Vec<Shape>,
    /// How much guessing went wrong of late, in what a right guess saves.
    wrong: u32,
    /// Objects for which nothing is guessed.
    rest: u32,
    /// For how many it was last time.
    pause: u32,
}

/// The brackets, colons and commas of a value that was found to be sound.
///
/// No object in it is without members: that between its brackets there is nothing at all is
/// not to be seen from these.
#[derive(Debug, Default)]
pub(super) struct Shape {
    bytes: Vec<u8>,
    /// How often the next value differed: two for each that did, less one for each other.
    differed: u8,
}

impl Shape {
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    pub(super) fn confirm(&mut self) {
        self.differed = self.differed.saturating_sub(1);
    }

    /// Takes another one for it, unless values differ too much to make it worth the while.
    pub(super) fn replace(&mut self, bytes: impl ExactSizeIterator<Item = u8>) {
        self.differed = (self.differed + 2).min(2 * DIFFERED_MAX);
        if self.differed > DIFFERED_MAX {
            return;
        }
        self.bytes.clear();
        if bytes.len() <= SHAPE_MAX {
            self.bytes.extend(bytes);
            if self.bytes.windows(2).any(|pair| pair == b"{}") {
                self.bytes.clear();
            }
        }
    }
}

/// What it costs to find a key behind missing ones, and to look up one that is not expected,
/// by what a right guess saves: measured, a branch foretold wrongly being most of it.
const MISSED: u32 = 10;
const UNKNOWN: u32 = 16;
/// Steps to look ahead where keys are missing.
const AHEAD: usize = 8;
const DIFFERED_MAX: u8 = 16;
const SHAPE_MAX: usize = 1 << 12;
const STEPS_MAX: usize = 1 << 10;
const NAME_MAX: usize = 256;
const WRONG_MAX: u32 = 1 << 12;
const PAUSE: std::ops::Range<u32> = 1 << 10..1 << 18;

impl Order {
    #[inline(always)]
    pub(super) fn step(&self, step: usize) -> Option<Step> {
        self.steps.get(step).copied()
    }

    /// The run of keys that are not wanted which begins with a step; it may be empty.
    #[inline(always)]
    pub(super) fn run(&self, step: usize) -> &[Step] {
        let len = self.steps.get(step).map_or(0, |first| first.run as usize);
        self.steps.get(step..step + len).unwrap_or_default()
    }

    /// The keys of the steps from one on.
    #[inline(always)]
    pub(super) fn names(&self, step: usize) -> &[Box<[u8]>] {
        self.names.get(step..).unwrap_or_default()
    }

    /// Which of the next steps it is that the key whose last eight bytes, its colon included,
    /// are `word`, may be that of, and what is known of it then.
    #[inline(always)]
    pub(super) fn guess(&mut self, step: usize, word: u64) -> Option<(usize, Guess)> {
        let expected = self.steps.get(step)?;
        if word & expected.mask == expected.word {
            return Some((step, expected.guess()?));
        }
        self.guess_ahead(step + 1, word)
    }

    /// The same where some keys are missing.
    #[inline(never)]
    fn guess_ahead(&mut self, first: usize, word: u64) -> Option<(usize, Guess)> {
        let last = self.steps.len().min(first + AHEAD);
        let more =
            self.steps.get(first..last)?.iter().position(|step| word & step.mask == step.word)?;
        self.wrong += MISSED;
        let step = first + more;
        Some((step, self.steps[step].guess()?))
    }

    /// What the value at a step, an object or an array, looked like.
    #[inline(always)]
    pub(super) fn shape(&mut self, step: usize) -> Option<&mut Shape> {
        if self.steps.get(step)?.run > 0 {
            self.steps[step].nested = true;
            self.count();
        }
        self.shapes.get_mut(step)
    }

    /// Whether the order of keys is being learned.
    #[inline(always)]
    pub(super) fn learns(&self) -> bool {
        self.rest == 0
    }

    /// Notes a key that was looked up where a step was expected, and returns the step behind it.
    #[cold]
    #[inline(never)]
    pub(super) fn learn(&mut self, step: usize, seen: Seen, wanted: &[Ending]) -> usize {
        let is_it = |name: &[u8]| name == seen.quoted;
        if self.names.get(step).is_some_and(|name| is_it(name)) {
            return step + 1;
        }
        self.wrong += UNKNOWN;
        // Some are missing here, or were never seen before, or it comes out of turn.
        let ahead = self.names.get(step..).unwrap_or_default();
        if let Some(more) = ahead.iter().position(|name| is_it(name)) {
            return step + more + 1;
        }
        if self.names.iter().take(step).any(|name| is_it(name))
            || self.steps.len() >= STEPS_MAX
            || seen.quoted.len() > NAME_MAX
        {
            return step;
        }
        let ending = Ending::of(seen.quoted);
        let Ending { word, mask } = ending;
        let is_alike = wanted.iter().any(|other| ending.is_like(other));
        let is_short = seen.quoted.len() <= 8;
        let key = match seen.wanted {
            Some(key) => u32::try_from(key).unwrap_or(ALIKE).min(ALIKE),
            None if is_alike || seen.unknown => ALIKE,
            None => NOT_WANTED,
        };
        let at = step.min(self.steps.len());
        self.steps.insert(at, Step { word, mask, run: 0, key, is_short, nested: seen.nested });
        self.names.insert(at, seen.quoted.into());
        self.shapes.insert(at, Shape::default());
        self.count();
        at + 1
    }

    /// Begins an object: the first step.
    #[inline(always)]
    pub(super) fn begin(&mut self) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
        }
        0
    }

    /// Ends an object that came as far as a step.
    #[inline(always)]
    pub(super) fn end(&mut self, step: usize) {
        if self.wrong > 0 {
            self.settle(step);
        }
    }

    #[inline(never)]
    fn settle(&mut self, step: usize) {
        self.wrong = self.wrong.saturating_sub(u32::try_from(step).unwrap_or(u32::MAX));
        if self.wrong > WRONG_MAX {
            self.pause = (2 * self.pause).clamp(PAUSE.start, PAUSE.end);
            self.rest = self.pause;
            self.wrong = 0;
            self.steps.clear();
            self.names.clear();
            self.shapes.clear();
        }
    }

    /// Counts the runs anew.
    fn count(&mut self) {
        let mut run = 0;
        for step in self.steps.iter_mut().rev() {
            run = if step.key == NOT_WANTED && !step.nested { run + 1 } else { 0 };
            step.run = run;
        }
    }
}

/// Returns whether the text up to a colon, which ends as a quoted key does that has its colon, is all of the key.
#[inline(always)]
pub(super) fn is_named(text: &[u8], colon: usize, quoted: &[u8]) -> bool {
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
pub(super) struct Ending {
    pub(super) word: u64,
    pub(super) mask: u64,
}

impl Ending {
    pub(super) fn of(quoted: &[u8]) -> Self {
        let mut bytes = [0; 8];
        let len = quoted.len().min(8);
        bytes[8 - len..].copy_from_slice(&quoted[quoted.len() - len..]);
        let mask = if len == 8 { u64::MAX } else { !(u64::MAX >> (8 * len)) };
        Self { word: u64::from_le_bytes(bytes), mask }
    }

    /// Whether one key may be the other for all that the endings say.
    pub(super) fn is_like(&self, other: &Ending) -> bool {
        (self.word ^ other.word) & self.mask & other.mask == 0
    }
}
