//! A matcher for regular expressions with groups, which backtracks over runs of bytes.
//!
//! Lines of logs consist of runs of characters of one class, each ended by a character outside it. An
//! automaton that tracks groups takes a step for each byte. Here a step is a run, whose end a table or
//! `memchr` finds. If the next step cannot begin with a character of the run, there is
//! nothing to retry. The result is that of leftmost-first matching: the matcher makes choices in the order
//! of their priority, and takes the first way through the whole line. (Friedl, "Mastering Regular
//! Expressions", chapter 4, describes the order; a test compares the matcher with `regex`.)
//!
//! Either all characters beyond ASCII are in a class (`[^ ]`, `.`) or none. If only some are
//! (`\w`), or if characters are counted, a line that has one is [`Undecided`](MatchOutcome::Undecided), and
//! so is one that takes too many steps. The caller then asks `regex`, whose time is bounded by the line's
//! length.
//!
//! The matcher records only the wanted groups, and runs of a fixed length (`[0-9]{2}/[A-Za-z]{3}/`) are one
//! step, since the cost of a line is its number of steps: with two of 13 groups of `%{COMBINEDAPACHELOG}`
//! wanted, a line of 237 bytes took a ninth of the time that `regex` takes for its groups.

use regex_syntax::hir::{self, Hir, HirKind, Look};

/// Maximum number of steps of a program; a longer expression gets no program.
const PROGRAM_OPS_MAX: usize = 4000;
/// Number of bytes that the matcher may examine for any line, and the additional number for each byte of the
/// line.
const FUEL_BYTES_MIN: usize = 4096;
const FUEL_BYTES_PER_LINE_BYTE: usize = 32;
/// Cost of a retry, in bytes.
const RETRY_COST_BYTES: usize = 16;
/// Maximum length of a fixed run; longer text is compared as a whole.
const FIXED_RUN_BYTES_MAX: usize = 64;
/// Maximum number of pending retries in a loop.
const LOOP_RETRIES_MAX: usize = 10_000;
/// Value of a slot without a position.
const UNSET_SLOT: usize = usize::MAX;

/// Up to eight classes; each byte has one bit for each class that contains it.
#[derive(Debug, Clone)]
struct ClassMask {
    bits: Box<[u8; 256]>,
    classes: Vec<CharClass>,
}

impl ClassMask {
    /// Returns whether the first byte that differs from the wanted class may still belong to it.
    #[cold]
    fn is_in_doubt(&self, bytes: &[u8], wanted: &[u8]) -> bool {
        let is_other = |(byte, bit): &(&u8, &u8)| self.bits[usize::from(**byte)] & **bit == 0;
        bytes.iter().zip(wanted).find(is_other).is_some_and(|(byte, bit)| {
            let class = self.classes.get(bit.trailing_zeros() as usize);
            class.is_some_and(|class| {
                class.membership[usize::from(*byte)] == ClassMembership::Unknown
            })
        })
    }
}

/// The result of matching a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchOutcome {
    Match,
    NoMatch,
    /// The matcher cannot decide.
    Undecided,
}

/// A class of characters, of which a run consists.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CharClass {
    membership: Box<[ClassMembership; 256]>,
    /// The bytes that end a run of the class, if they are few; a line never contains a line end.
    stop_bytes: Option<StopBytes>,
}

/// Membership of a byte in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClassMembership {
    No,
    Yes,
    /// The byte is part of a character that may be in the class.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopBytes {
    None,
    One(u8),
    Two(u8, u8),
    Three(u8, u8, u8),
}

impl CharClass {
    /// Returns the class of these ranges; with `counted`, the number of characters in a run matters.
    fn new(ranges: impl Iterator<Item = (u32, u32)>, counted: bool) -> Self {
        let mut has = Box::new([ClassMembership::No; 256]);
        let mut wide = ClassMembership::No;
        for (start, end) in ranges {
            for byte in start..=end.min(0x7f) {
                has[byte as usize & 0x7f] = ClassMembership::Yes;
            }
            if end >= 0x80 {
                let is_all = start <= 0x80 && end == u32::from(char::MAX);
                wide = if is_all && !counted {
                    ClassMembership::Yes
                } else {
                    ClassMembership::Unknown
                };
            }
        }
        has[0x80..].fill(wide);
        let others = (0..=u8::MAX)
            .filter(|byte| *byte != b'\n' && has[usize::from(*byte)] != ClassMembership::Yes);
        let stops = match others.take(4).collect::<Vec<u8>>()[..] {
            [] => Some(StopBytes::None),
            [a] => Some(StopBytes::One(a)),
            [a, b] => Some(StopBytes::Two(a, b)),
            [a, b, c] => Some(StopBytes::Three(a, b, c)),
            _ => None,
        };
        Self { membership: has, stop_bytes: stops }
    }

    /// Returns the class of one ASCII byte.
    fn from_byte(byte: u8) -> Self {
        Self::new(std::iter::once((byte.into(), byte.into())), false)
    }

    /// Returns the only byte of the class, if there is just one.
    fn only_byte(&self) -> Option<u8> {
        let mut bytes =
            (0..=u8::MAX).filter(|byte| self.membership[usize::from(*byte)] != ClassMembership::No);
        bytes.next().filter(|_| bytes.next().is_none())
    }

    /// Returns the end of the run that begins at `at`; `None` if it is undecided.
    #[inline(always)]
    fn find_run_end(&self, text: &[u8], at: usize, max: usize) -> Option<usize> {
        let until = at.saturating_add(max).min(text.len());
        let rest = &text[at..until];
        let length = match self.stop_bytes {
            None => {
                let stop = rest
                    .iter()
                    .position(|byte| self.membership[usize::from(*byte)] != ClassMembership::Yes);
                match stop {
                    Some(stop)
                        if self.membership[usize::from(rest[stop])] == ClassMembership::Unknown =>
                    {
                        return None;
                    }
                    other => other,
                }
            }
            // None of these stop bytes is undecided: a class with undecided bytes has more stop bytes.
            Some(StopBytes::None) => None,
            Some(StopBytes::One(a)) => memchr::memchr(a, rest),
            Some(StopBytes::Two(a, b)) => memchr::memchr2(a, b, rest),
            Some(StopBytes::Three(a, b, c)) => memchr::memchr3(a, b, c, rest),
        };
        Some(at + length.unwrap_or(rest.len()))
    }
}

/// The bytes that may follow at a step of the program: a superset of the possible ones.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NextBytes {
    /// Indexed by the first byte of a character.
    possible: Box<[bool; 256]>,
    /// True if the line may end.
    line_can_end: bool,
    /// The only byte that may follow, if there is just one.
    only_byte: Option<u8>,
}

impl NextBytes {
    /// Adds the first bytes of the characters of a class.
    fn add_class(&mut self, class: &CharClass) {
        for byte in (0..0x80).chain(0xc2..=0xf4) {
            self.possible[byte] |= class.membership[byte] != ClassMembership::No;
        }
    }

    #[inline(always)]
    fn is_possible_at(&self, text: &[u8], at: usize) -> bool {
        text.get(at).map_or(self.line_can_end, |byte| self.possible[usize::from(*byte)])
    }
}

/// A step of the program. All steps but jumps and choices continue at the next one.
#[derive(Debug, Clone)]
enum MatchOp {
    Byte(u8),
    Text(Box<[u8]>),
    /// A fixed number of bytes, each with its bit of the mask in `wanted`.
    FixedRun {
        mask: usize,
        wanted: Box<[u8]>,
    },
    /// As many characters of a class as there are, from `min` to `max`. With `next`, a shorter run may match
    /// too; without it, `then` is the byte after the run, if the next step is a single byte.
    GreedyRun {
        class: usize,
        min: usize,
        max: usize,
        next: Option<usize>,
        then: Option<u8>,
    },
    /// As few characters of a class as possible, from `min` on.
    LazyRun {
        class: usize,
        min: usize,
        next: usize,
    },
    /// A choice: the first of two ways that leads to the end.
    Choice {
        first: usize,
        second: usize,
        next_first: usize,
        next_second: usize,
    },
    Jump(usize),
    /// Stores the current position in a slot.
    SaveSlot(usize),
    /// Asserts the beginning of the line.
    LineStart,
    /// Asserts a word boundary, or its absence.
    WordBoundary(bool),
    /// Asserts the end of the line.
    LineEnd,
}

/// An alternative to return to.
#[derive(Debug, Clone, Copy)]
enum RetryPoint {
    /// Continue at a step from a position.
    OpAt { op: usize, at: usize },
    /// Continue at a step from the last possible position at or after `low` and before `high`.
    ShorterRun { op: usize, low: usize, high: usize, next: usize },
    /// Extend a lazy run by the character at a position, and as few more as possible.
    LongerRun { op: usize, at: usize },
    /// Restore the old value of a slot.
    RestoreSlot { slot: usize, held: usize },
}

/// A regular expression compiled to steps.
#[derive(Debug, Clone)]
pub(super) struct MatchProgram {
    ops: Vec<MatchOp>,
    classes: Vec<CharClass>,
    masks: Vec<ClassMask>,
    next_bytes: Vec<NextBytes>,
    /// Index of the last label: steps from here on must not be merged with earlier ones, because a jump ends
    /// here.
    last_label: usize,
    /// Pending alternatives, the last one first.
    retries: Vec<RetryPoint>,
    /// Start and end of each group.
    slots: Vec<usize>,
}

impl MatchProgram {
    /// Compiles an expression that is matched from the start of a line to its end. Returns `None` for
    /// unsupported expressions (other kinds of assertions, empty loops). The program records
    /// the ranges of the wanted groups.
    pub(super) fn new(expression: &str, is_wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let hir = regex_syntax::parse(expression).ok()?;
        let groups = hir.properties().explicit_captures_len() + 1;
        let mut program = Self {
            ops: Vec::new(),
            classes: Vec::new(),
            masks: Vec::new(),
            next_bytes: Vec::new(),
            last_label: 0,
            retries: Vec::new(),
            slots: vec![UNSET_SLOT; groups * 2],
        };
        program.compile(&hir, &is_wanted)?;
        program.ops.push(MatchOp::LineEnd);
        program.fill_lookahead();
        Some(program)
    }

    /// Returns the range of a group in the line that was matched last.
    pub(super) fn group_range(&self, group: usize) -> Option<(usize, usize)> {
        match *self.slots.get(group * 2..group * 2 + 2)? {
            [start, end] if start != UNSET_SLOT && end != UNSET_SLOT => Some((start, end)),
            _ => None,
        }
    }

    // ------------------------------------------------------------------------------- building

    fn push_op(&mut self, op: MatchOp) -> Option<usize> {
        (self.ops.len() < PROGRAM_OPS_MAX).then(|| self.ops.push(op))?;
        Some(self.ops.len() - 1)
    }

    fn intern_class(&mut self, class: CharClass) -> usize {
        let known = self.classes.iter().position(|known| *known == class);
        known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        })
    }

    fn compile(&mut self, hir: &Hir, is_wanted: &dyn Fn(usize) -> bool) -> Option<()> {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(hir::Literal(bytes)) => match **bytes {
                [] => {}
                _ if bytes.len() <= FIXED_RUN_BYTES_MAX && bytes.is_ascii() => {
                    for byte in bytes {
                        self.push_fixed_run(CharClass::from_byte(*byte), 1)?;
                    }
                }
                _ => {
                    self.push_op(MatchOp::Text(bytes.clone()))?;
                }
            },
            // One character, which may take several bytes.
            HirKind::Class(_) => self.push_fixed_run(class_of_one_char(hir, true)?, 1)?,
            HirKind::Look(Look::Start) => {
                self.push_op(MatchOp::LineStart)?;
            }
            HirKind::Look(Look::End) => {
                // The program ends with the same step.
                self.push_op(MatchOp::LineEnd)?;
            }
            HirKind::Look(Look::WordUnicode | Look::WordAscii) => {
                self.push_op(MatchOp::WordBoundary(true))?;
            }
            HirKind::Look(Look::WordUnicodeNegate | Look::WordAsciiNegate) => {
                self.push_op(MatchOp::WordBoundary(false))?;
            }
            HirKind::Look(_) => return None,
            HirKind::Repetition(repetition) => self.compile_repetition(repetition, is_wanted)?,
            HirKind::Capture(capture) if is_wanted(capture.index as usize) => {
                let slot = capture.index as usize * 2;
                self.push_op(MatchOp::SaveSlot(slot))?;
                self.compile(&capture.sub, is_wanted)?;
                self.push_op(MatchOp::SaveSlot(slot + 1))?;
            }
            HirKind::Capture(capture) => self.compile(&capture.sub, is_wanted)?,
            HirKind::Concat(parts) => {
                for part in parts {
                    self.compile(part, is_wanted)?;
                }
            }
            HirKind::Alternation(ways) => {
                let (last, others) = ways.split_last()?;
                let mut jumps = Vec::new();
                for way in others {
                    let either = self.push_choice()?;
                    self.compile(way, is_wanted)?;
                    jumps.push(self.push_op(MatchOp::Jump(0))?);
                    let other = self.mark_label();
                    self.set_choice_targets(either, either + 1, other);
                }
                self.compile(last, is_wanted)?;
                let end = self.mark_label();
                for jump in jumps {
                    self.ops[jump] = MatchOp::Jump(end);
                }
            }
        }
        Some(())
    }

    /// Marks the next step as a jump target and returns its index.
    fn mark_label(&mut self) -> usize {
        self.last_label = self.ops.len();
        self.last_label
    }

    /// Adds `count` characters of a class, merged with the preceding fixed run if there is one.
    fn push_fixed_run(&mut self, class: CharClass, count: usize) -> Option<()> {
        // A character of several bytes takes more than one byte of the run.
        let bit_of = |classes: &mut Vec<CharClass>| {
            let known = classes.iter().position(|known| *known == class);
            let place = known.unwrap_or(classes.len());
            if place == classes.len() && place < 8 {
                classes.push(class.clone());
            }
            (place < 8).then(|| 1u8 << place)
        };
        let is_open = self.ops.len() > self.last_label;
        if let (true, Some(MatchOp::FixedRun { mask, wanted })) = (is_open, self.ops.last_mut())
            && wanted.len() < PROGRAM_OPS_MAX
            && let Some(bit) = bit_of(&mut self.masks[*mask].classes)
        {
            *wanted = wanted.iter().copied().chain(std::iter::repeat_n(bit, count)).collect();
        } else {
            let mut classes = Vec::new();
            let bit = bit_of(&mut classes)?;
            self.masks.push(ClassMask { bits: Box::new([0; 256]), classes });
            let wanted = vec![bit; count].into();
            return self
                .push_op(MatchOp::FixedRun { mask: self.masks.len() - 1, wanted })
                .map(|_| ());
        }
        Some(())
    }

    /// Adds a choice whose targets are not known yet.
    fn push_choice(&mut self) -> Option<usize> {
        self.push_op(MatchOp::Choice { first: 0, second: 0, next_first: 0, next_second: 0 })
    }

    fn set_choice_targets(&mut self, at: usize, one: usize, other: usize) {
        if let MatchOp::Choice { first, second, .. } = &mut self.ops[at] {
            (*first, *second) = (one, other);
        }
    }

    fn compile_repetition(
        &mut self,
        repetition: &hir::Repetition,
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Option<()> {
        let hir::Repetition { min, max, greedy, sub } = repetition;
        let (min, max) = (*min as usize, max.map(|max| max as usize));
        let counted = min > 1 || max.is_some();
        if let Some(class) = class_of_one_char(sub, counted) {
            if max == Some(min) && min <= FIXED_RUN_BYTES_MAX {
                return self.push_fixed_run(class, min);
            }
            let class = self.intern_class(class);
            match (greedy, max) {
                (true, _) => {
                    let max = max.unwrap_or(usize::MAX);
                    self.push_op(MatchOp::GreedyRun { class, min, max, next: None, then: None })?;
                    return Some(());
                }
                (false, None) => {
                    self.push_op(MatchOp::LazyRun { class, min, next: 0 })?;
                    return Some(());
                }
                (false, Some(_)) => {}
            }
        }
        // A loop over an expression that can be empty would never end.
        if sub.properties().minimum_len().is_none_or(|length| length == 0) && max != Some(1) {
            return None;
        }
        for _ in 0..min {
            self.compile(sub, is_wanted)?;
        }
        match max {
            Some(max) => {
                // `(?:x(?:x)?)?`: all the choices end at one place.
                let mut choices = Vec::new();
                for _ in min..max {
                    choices.push(self.push_choice()?);
                    self.compile(sub, is_wanted)?;
                }
                let end = self.mark_label();
                for choice in choices {
                    self.order_choice(choice, end, *greedy);
                }
            }
            None if *greedy && self.compile_run_loop(sub, is_wanted)? => {}
            None => {
                let choice = self.push_choice()?;
                self.compile(sub, is_wanted)?;
                self.push_op(MatchOp::Jump(choice))?;
                let end = self.mark_label();
                self.order_choice(choice, end, *greedy);
            }
        }
        Some(())
    }

    /// Sets the targets of a choice to the step after it and to `end`, in order of priority.
    fn order_choice(&mut self, choice: usize, end: usize, greedy: bool) {
        match greedy {
            true => self.set_choice_targets(choice, choice + 1, end),
            false => self.set_choice_targets(choice, end, choice + 1),
        }
    }

    /// Compiles `(?:c|x)*`, where c is a class that x does not begin with, as `c*(?:x c*)*`: runs
    /// instead of single characters. Returns false if the expression has another form.
    fn compile_run_loop(&mut self, sub: &Hir, is_wanted: &dyn Fn(usize) -> bool) -> Option<bool> {
        let HirKind::Alternation(ways) = sub.kind() else { return Some(false) };
        let Some((first, others)) = ways.split_first() else { return Some(false) };
        let Some(class) = class_of_one_char(first, false) else { return Some(false) };
        let others = Hir::alternation(others.to_vec());
        let begun = self.mark_label();
        let class = self.intern_class(class);
        self.push_op(MatchOp::GreedyRun {
            class,
            min: 0,
            max: usize::MAX,
            next: None,
            then: None,
        })?;
        let choice = self.push_choice()?;
        self.compile(&others, is_wanted)?;
        self.push_op(MatchOp::Jump(begun))?;
        let next = self.next_bytes_at(choice + 1);
        let of_class = &self.classes[class].membership;
        let is_apart =
            (0..256).all(|byte| of_class[byte] == ClassMembership::No || !next.possible[byte]);
        match is_apart && !next.line_can_end {
            true => {
                let end = self.mark_label();
                self.order_choice(choice, end, true);
            }
            false => {
                self.ops.truncate(begun);
                self.last_label = begun;
            }
        }
        Some(is_apart && !next.line_can_end)
    }

    /// Returns the bytes that may follow at a step.
    fn next_bytes_at(&self, at: usize) -> NextBytes {
        let mut next =
            NextBytes { possible: Box::new([false; 256]), line_can_end: false, only_byte: None };
        let mut seen = vec![false; self.ops.len()];
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            let Some(op) = self.ops.get(at).filter(|_| !std::mem::replace(&mut seen[at], true))
            else {
                continue;
            };
            match op {
                MatchOp::Byte(byte) => next.possible[usize::from(*byte)] = true,
                MatchOp::Text(text) => match text.first() {
                    Some(byte) => next.possible[usize::from(*byte)] = true,
                    None => open.push(at + 1),
                },
                MatchOp::FixedRun { mask, wanted } => {
                    let bit = wanted.first().map_or(0, |bit| bit.trailing_zeros() as usize);
                    if let Some(class) = self.masks[*mask].classes.get(bit) {
                        next.add_class(class);
                    }
                }
                MatchOp::GreedyRun { class, min, .. } | MatchOp::LazyRun { class, min, .. } => {
                    next.add_class(&self.classes[*class]);
                    if *min == 0 {
                        open.push(at + 1);
                    }
                }
                MatchOp::Choice { first, second, .. } => open.extend([*first, *second]),
                MatchOp::Jump(to) => open.push(*to),
                MatchOp::SaveSlot(_) | MatchOp::LineStart | MatchOp::WordBoundary(_) => {
                    open.push(at + 1)
                }
                MatchOp::LineEnd => next.line_can_end = true,
            }
        }
        let mut bytes = (0..=u8::MAX).filter(|byte| next.possible[usize::from(*byte)]);
        next.only_byte = match (bytes.next(), bytes.next(), next.line_can_end) {
            (Some(byte), None, false) => Some(byte),
            _ => None,
        };
        next
    }

    /// Stores in each choice the bytes that may follow it, and fills the masks.
    fn fill_lookahead(&mut self) {
        for ClassMask { bits, classes } in &mut self.masks {
            for (place, class) in classes.iter().enumerate() {
                for (bits, has) in bits.iter_mut().zip(class.membership.iter()) {
                    *bits |= u8::from(*has == ClassMembership::Yes) << place;
                }
            }
        }
        for op in &mut self.ops {
            if let MatchOp::FixedRun { mask, wanted } = op
                && let [bit] = **wanted
                && let Some(class) = self.masks[*mask].classes.get(bit.trailing_zeros() as usize)
                && let Some(byte) = class.only_byte()
            {
                *op = MatchOp::Byte(byte);
            }
        }
        for at in 0..self.ops.len() {
            match self.ops[at] {
                MatchOp::GreedyRun { class, min, max, .. } => {
                    let next = self.next_bytes_at(at + 1);
                    let has = &self.classes[class].membership;
                    let is_apart = (0..256)
                        .all(|byte| has[byte] == ClassMembership::No || !next.possible[byte]);
                    let next = (!is_apart && max > min).then(|| self.intern_next_bytes(next));
                    let then = match self.ops.get(at + 1) {
                        Some(MatchOp::Byte(byte)) if next.is_none() => Some(*byte),
                        _ => None,
                    };
                    self.ops[at] = MatchOp::GreedyRun { class, min, max, next, then };
                }
                MatchOp::LazyRun { class, min, .. } => {
                    let next = self.next_bytes_at(at + 1);
                    let next = self.intern_next_bytes(next);
                    self.ops[at] = MatchOp::LazyRun { class, min, next };
                }
                MatchOp::Choice { first, second, .. } => {
                    let (one, other) = (self.next_bytes_at(first), self.next_bytes_at(second));
                    let (next_first, next_second) =
                        (self.intern_next_bytes(one), self.intern_next_bytes(other));
                    self.ops[at] = MatchOp::Choice { first, second, next_first, next_second };
                }
                _ => {}
            }
        }
    }

    fn intern_next_bytes(&mut self, next: NextBytes) -> usize {
        let known = self.next_bytes.iter().position(|known| *known == next);
        known.unwrap_or_else(|| {
            self.next_bytes.push(next);
            self.next_bytes.len() - 1
        })
    }

    // ------------------------------------------------------------------------------- matching

    /// Matches a line from its start to its end.
    pub(super) fn match_line(&mut self, text: &[u8]) -> MatchOutcome {
        let Self { ops, classes, masks, next_bytes: nexts, retries, slots, .. } = self;
        retries.clear();
        slots.fill(UNSET_SLOT);
        let mut fuel = FUEL_BYTES_MIN + text.len().saturating_mul(FUEL_BYTES_PER_LINE_BYTE);
        let (mut op, mut at) = (0, 0);
        loop {
            let goes_on = match &ops[op] {
                MatchOp::Byte(byte) => {
                    let is_there = text.get(at) == Some(byte);
                    at += 1;
                    is_there
                }
                MatchOp::Text(wanted) => {
                    let is_there = text[at..].starts_with(wanted);
                    at += wanted.len();
                    is_there
                }
                MatchOp::FixedRun { mask, wanted } => {
                    let (mask, bytes) = (&masks[*mask], &text[at..]);
                    let is_there =
                        |(byte, bit): (&u8, &u8)| mask.bits[usize::from(*byte)] & bit != 0;
                    let is_whole = bytes.len() >= wanted.len();
                    at += wanted.len();
                    if !is_whole || !bytes.iter().zip(wanted).all(is_there) {
                        if mask.is_in_doubt(bytes, wanted) {
                            return MatchOutcome::Undecided;
                        }
                        false
                    } else {
                        true
                    }
                }
                MatchOp::GreedyRun { class, min, max, next, then } => {
                    let Some(end) = classes[*class].find_run_end(text, at, *max) else {
                        return MatchOutcome::Undecided;
                    };
                    let low = at + min;
                    fuel = fuel.saturating_sub(end - at);
                    at = end;
                    if let Some(next) = next
                        && end > low
                    {
                        retries.push(RetryPoint::ShorterRun {
                            op: op + 1,
                            low,
                            high: end,
                            next: *next,
                        });
                    }
                    match then {
                        Some(then) if end >= low => {
                            let is_there = text.get(at) == Some(then);
                            op += 1;
                            at += 1;
                            is_there
                        }
                        _ => end >= low,
                    }
                }
                MatchOp::LazyRun { class, min, next } => {
                    let Some(end) = classes[*class].find_run_end(text, at, *min) else {
                        return MatchOutcome::Undecided;
                    };
                    let is_enough = end == at + min;
                    let found = match is_enough {
                        true => extend_lazy_run(&classes[*class], &nexts[*next], text, end),
                        false => LazyRunEnd::None,
                    };
                    match found {
                        LazyRunEnd::At(found) => {
                            fuel = fuel.saturating_sub(found - at);
                            retries.push(RetryPoint::LongerRun { op, at: found });
                            at = found;
                            true
                        }
                        LazyRunEnd::None => false,
                        LazyRunEnd::Unknown => return MatchOutcome::Undecided,
                    }
                }
                MatchOp::Choice { first, second, next_first, next_second } => {
                    let may_second = nexts[*next_second].is_possible_at(text, at);
                    if nexts[*next_first].is_possible_at(text, at) {
                        if may_second {
                            retries.push(RetryPoint::OpAt { op: *second, at });
                        }
                        op = *first;
                        continue;
                    }
                    op = *second;
                    if may_second {
                        continue;
                    }
                    false
                }
                MatchOp::Jump(to) => {
                    if retries.len() > LOOP_RETRIES_MAX {
                        return MatchOutcome::Undecided;
                    }
                    op = *to;
                    continue;
                }
                MatchOp::SaveSlot(slot) => {
                    // Without a pending retry, no one needs the old value.
                    if !retries.is_empty() {
                        retries.push(RetryPoint::RestoreSlot { slot: *slot, held: slots[*slot] });
                    }
                    slots[*slot] = at;
                    true
                }
                MatchOp::LineStart => at == 0,
                MatchOp::WordBoundary(wanted) => {
                    let before = at.checked_sub(1).and_then(|before| text.get(before));
                    let sides = [before, text.get(at)];
                    if sides.iter().flatten().any(|byte| !byte.is_ascii()) {
                        return MatchOutcome::Undecided;
                    }
                    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    let [before, behind] = sides.map(|byte| byte.is_some_and(is_word));
                    (before != behind) == *wanted
                }
                MatchOp::LineEnd if at == text.len() => {
                    if op + 1 == ops.len() {
                        return MatchOutcome::Match;
                    }
                    true
                }
                MatchOp::LineEnd => false,
            };
            if goes_on {
                op += 1;
                continue;
            }
            // Return to the last choice.
            loop {
                let Some(retry) = retries.pop() else { return MatchOutcome::NoMatch };
                match retry {
                    RetryPoint::RestoreSlot { slot, held } => {
                        slots[slot] = held;
                        continue;
                    }
                    RetryPoint::OpAt { op: to, at: from } => (op, at) = (to, from),
                    RetryPoint::ShorterRun { op: to, low, high, next } => {
                        let may = |byte: &u8| nexts[next].possible[usize::from(*byte)];
                        let Some(found) = text[low..high].iter().rposition(may) else {
                            fuel = fuel.saturating_sub(high - low);
                            continue;
                        };
                        let found = low + found;
                        fuel = fuel.saturating_sub(high - found);
                        if found > low {
                            retries.push(RetryPoint::ShorterRun { op: to, low, high: found, next });
                        }
                        (op, at) = (to, found);
                    }
                    RetryPoint::LongerRun { op: of, at: from } => {
                        let MatchOp::LazyRun { class, next, .. } = &ops[of] else { continue };
                        let class = &classes[*class];
                        let found =
                            match text.get(from).map(|byte| class.membership[usize::from(*byte)]) {
                                None | Some(ClassMembership::No) => continue,
                                Some(ClassMembership::Unknown) => LazyRunEnd::Unknown,
                                Some(ClassMembership::Yes) => {
                                    extend_lazy_run(class, &nexts[*next], text, from + 1)
                                }
                            };
                        match found {
                            LazyRunEnd::At(found) => {
                                fuel = fuel.saturating_sub(found - from);
                                retries.push(RetryPoint::LongerRun { op: of, at: found });
                                (op, at) = (of + 1, found);
                            }
                            LazyRunEnd::None => continue,
                            LazyRunEnd::Unknown => return MatchOutcome::Undecided,
                        }
                    }
                }
                break;
            }
            fuel = fuel.saturating_sub(RETRY_COST_BYTES);
            if fuel == 0 {
                return MatchOutcome::Undecided;
            }
        }
    }
}

/// The end of a lazy run.
enum LazyRunEnd {
    At(usize),
    None,
    Unknown,
}

/// Returns the first position from `from` on where the next step may match.
#[inline(always)]
fn extend_lazy_run(class: &CharClass, next: &NextBytes, text: &[u8], from: usize) -> LazyRunEnd {
    if let (Some(StopBytes::None), Some(only)) = (class.stop_bytes, next.only_byte) {
        return memchr::memchr(only, &text[from..])
            .map_or(LazyRunEnd::None, |found| LazyRunEnd::At(from + found));
    }
    let mut at = from;
    loop {
        if next.is_possible_at(text, at) {
            return LazyRunEnd::At(at);
        }
        match text.get(at).map(|byte| class.membership[usize::from(*byte)]) {
            None | Some(ClassMembership::No) => return LazyRunEnd::None,
            Some(ClassMembership::Unknown) => return LazyRunEnd::Unknown,
            Some(ClassMembership::Yes) => at += 1,
        }
    }
}

/// Returns the class of an expression that matches one character.
fn class_of_one_char(hir: &Hir, counted: bool) -> Option<CharClass> {
    let wide = |c: char| u32::from(c);
    match hir.kind() {
        HirKind::Class(hir::Class::Unicode(class)) => {
            let ranges = class.iter().map(|range| (wide(range.start()), wide(range.end())));
            Some(CharClass::new(ranges, counted))
        }
        HirKind::Class(hir::Class::Bytes(class)) if class.is_ascii() => {
            let ranges = class.iter().map(|range| (range.start().into(), range.end().into()));
            Some(CharClass::new(ranges, counted))
        }
        HirKind::Literal(hir::Literal(bytes)) => match **bytes {
            [byte] if byte.is_ascii() => Some(CharClass::from_byte(byte)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn groups(program: &MatchProgram, count: usize) -> Vec<Option<(usize, usize)>> {
        (1..count).map(|group| program.group_range(group)).collect()
    }

    /// Returns the groups of a line by `regex`; `None` if it does not match.
    fn groups_by_regex(regex: &Regex, line: &str) -> Option<Vec<Option<(usize, usize)>>> {
        let captures = regex.captures(line)?;
        let spans = captures.iter().skip(1);
        Some(spans.map(|group| group.map(|group| (group.start(), group.end()))).collect())
    }

    fn expression() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "a",
            "b",
            " ",
            "ab",
            "é",
            r"\.",
            r"\w",
            r"\w+",
            r"\d{1,3}",
            "[^ ]+",
            "[ab]*",
            "[ab]*?",
            ".*?",
            ".*",
            ".+?",
            "[a-c]{2}",
            r"\b",
            r"\B",
            "(?i:ab)",
            "é?",
            "[é-ü]+",
            "-?",
            "[ab]??",
            "[^é]",
            "[0-9]+",
            r"[^ ]{2,}",
            r#""(?:[^"\\]|\\.)*""#,
            "(?:a|ab)",
            "(?:[ab]|b1)*",
            "(?:[a1]|-b?)+",
            "",
            "^",
            "$",
            "(?:$|a)",
        ]);
        leaf.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                4 => prop::collection::vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
                2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|ways| format!("(?:{})", ways.join("|"))),
                3 => inner.clone().prop_map(|sub| format!("({sub})")),
                2 => (inner, prop::sample::select(vec!["?", "*", "+", "??", "*?", "+?", "{1,2}", "{2}", "{0,2}?"]))
                    .prop_map(|(sub, times)| format!("(?:{sub}){times}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn match_agrees_with_regex(
            expression in expression(),
            lines in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![
                "a", "b", "c", "ab", " ", "\"", "\\", "é", "1", "12", ".", "-", "A", "ü", "/"]), 0..10), 1..12),
        ) {
            let whole = format!("^(?:{expression})$");
            let regex = Regex::new(&whole).unwrap();
            let Some(mut program) = MatchProgram::new(&whole, |_| true) else { return Ok(()) };
            for line in lines {
                let line = line.concat();
                let found = program.match_line(line.as_bytes());
                let expected = groups_by_regex(&regex, &line);
                match found {
                    MatchOutcome::Undecided => {}
                    MatchOutcome::NoMatch => prop_assert_eq!(expected, None, "{} {:?}", whole, line),
                    MatchOutcome::Match => {
                        let groups = groups(&program, regex.captures_len());
                        prop_assert_eq!(Some(groups), expected, "{} {:?}", whole, line);
                    }
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(expression in expression(), line: Vec<u8>) {
            let whole = format!("^(?:{expression})$");
            if let Some(mut program) = MatchProgram::new(&whole, |_| true) {
                program.match_line(&line);
            }
        }
    }

    #[test]
    fn undecidable_lines_are_reported() {
        let find = |expression: &str, line: &str| {
            MatchProgram::new(&format!("^(?:{expression})$"), |_| true)
                .map(|mut own| own.match_line(line.as_bytes()))
        };
        for (expression, line, expected) in [
            (r"\w+ \w+", "some words", Some(MatchOutcome::Match)),
            (r"\w+ \w+", "some wörds", Some(MatchOutcome::Undecided)),
            (r"\w+ [^ ]+", "some wörds", Some(MatchOutcome::Match)),
            ("[^ ]{1,3}", "ö", Some(MatchOutcome::Undecided)),
            ("[^ ]{1,3} ö", "abc ö", Some(MatchOutcome::Match)),
            (r"x\b.*", "xö", Some(MatchOutcome::Undecided)),
            (r#""(?:[^"\\]|\\.)*" [0-9]+"#, r#""a \" b" 7"#, Some(MatchOutcome::Match)),
            (r#""(?:[^"\\]|\\.)*" [0-9]+"#, r#""a \" b 7"#, Some(MatchOutcome::NoMatch)),
            // A loop over an empty expression, and an unsupported assertion.
            ("(?:a*)*", "a", None),
            (r"\b{start}a", "a", None),
            // The number of ways is exponential.
            ("(?:a|aa)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Some(MatchOutcome::Undecided)),
        ] {
            assert_eq!(find(expression, line), expected, "{expression} {line}");
        }
    }
}
