//! Stage 2: from the index to spans, quickly. Whatever is in doubt ends it.
//!
//! Every function takes the place in the index of what comes before a value (`:`, `,` or an
//! opening bracket) and returns the place of what comes behind it. Stage 1 has seen that there
//! is exactly one value between `:` and what follows, and at most one between brackets.

use std::cell::RefCell;

use super::grammar::{self, Scalar, is_white};
use super::order::{Guess, Seen, Shape, Step, is_named};
use super::plan::{Object, Wanted};
use crate::column::{Column, Node};
use crate::keys::KeyTally;
use crate::simd::BLOCK;
use crate::span::Span;
use crate::values::is_text;

/// A window's text and index.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) text: &'a [u8],
    /// Positions of structural characters and line ends. A position at the end of the text
    /// stands for a line end.
    pub(super) index: &'a [u32],
    /// The characters there.
    pub(super) kinds: &'a [u8],
    /// Which bytes from `base` on are backslashes, if any is.
    pub(super) backslashes: Option<&'a [u64]>,
    pub(super) base: usize,
    pub(super) strict: bool,
    pub(super) mismatch_is_null: bool,
    /// The notes of keys that no column has.
    pub(super) tally: &'a RefCell<KeyTally>,
}

/// The key of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Wanted(usize),
    /// One of a column that is not wanted.
    Other,
    /// One that no column has; it was noted.
    Unknown,
}

impl Key {
    fn wanted(self) -> Option<usize> {
        match self {
            Key::Wanted(key) => Some(key),
            Key::Other | Key::Unknown => None,
        }
    }
}

impl Walk<'_> {
    #[inline(always)]
    pub(super) fn position(&self, place: usize) -> usize {
        self.index.get(place).map_or(self.text.len(), |at| *at as usize)
    }

    /// The structural character at a place.
    #[inline(always)]
    pub(super) fn byte(&self, place: usize) -> u8 {
        self.kinds.get(place).copied().unwrap_or(b'\n')
    }

    /// The bytes between two neighbours in the index, without white space around them.
    #[inline(always)]
    pub(super) fn between(&self, place: usize) -> (usize, usize) {
        let (mut start, mut end) = (self.position(place) + 1, self.position(place + 1));
        while start < end && is_white(self.text[start]) {
            start += 1;
        }
        while end > start && is_white(self.text[end - 1]) {
            end -= 1;
        }
        (start, end)
    }

    pub(super) fn is_empty(&self, place: usize) -> bool {
        let (start, end) = self.between(place);
        start == end
    }

    /// Whether there is a backslash in `start..end`.
    #[inline(always)]
    pub(super) fn has_backslash(&self, start: usize, end: usize) -> bool {
        let Some(words) = self.backslashes else { return false };
        if start >= end {
            return false;
        }
        let (first, last) = (start - self.base, end - 1 - self.base);
        let (from, to) = (first / BLOCK, last / BLOCK);
        let low = u64::MAX << (first % BLOCK);
        let high = u64::MAX >> (BLOCK - 1 - last % BLOCK);
        if from == to {
            return words[from] & low & high != 0;
        }
        words[from] & low != 0
            || words[to] & high != 0
            || words[from + 1..to].iter().any(|word| *word != 0)
    }

    /// Whether what is between two neighbours in the index is a scalar or nothing.
    #[inline(never)]
    fn is_sound(&self, place: usize) -> bool {
        let (start, end) = self.between(place);
        if start < end && grammar::is_short_number(self.text, start, end) {
            return true;
        }
        match self.text[start..end].first() {
            None => true,
            Some(b'"') => {
                !self.has_backslash(start, end)
                    || grammar::bad_escape(&self.text[start + 1..end - 1]).is_none()
            }
            Some(_) => grammar::scalar(&self.text[start..end]).is_some(),
        }
    }

    /// Reads the object whose bracket is at `open`; returns the place behind its end.
    pub(super) fn object(
        &self,
        wanted: &mut Object,
        columns: &mut [Column],
        open: usize,
    ) -> Option<usize> {
        wanted.begin();
        let mut place = open;
        if self.byte(open + 1) == b'}' {
            if !self.is_empty(open) {
                return None;
            }
            place += 1;
        } else {
            let mut step = wanted.order.begin();
            loop {
                let (taken, next) = match wanted.order.step(step) {
                    Some(expected) if expected.is_leaf() => {
                        self.leaf(wanted, columns, expected, place)
                    }
                    Some(expected) if expected.begins_run() && !self.strict => {
                        let names = wanted.known.as_ref().map(|_| wanted.order.names(step));
                        self.run(wanted.order.run(step), names, place)
                    }
                    _ => (0, 0),
                };
                step += taken;
                place += 2 * taken;
                match next {
                    b',' if taken > 0 => continue,
                    b'}' if taken > 0 => break,
                    _ => {}
                }
                let colon = place + 1;
                if self.byte(colon) != b':' {
                    return None;
                }
                let before = step;
                let key = if !wanted.order.learns() {
                    self.key(wanted, place)?.wanted()
                } else if let Some((ahead, key)) = self.guess(wanted, step, place) {
                    step = ahead + 1;
                    key
                } else {
                    self.look_up(wanted, &mut step, place)?
                };
                place = match key {
                    None if step > before && matches!(self.byte(colon + 1), b'{' | b'[') => {
                        match wanted.order.shape(step - 1) {
                            Some(shape) if !self.strict => self.skip_alike(shape, colon + 1)?,
                            _ => self.skip_nested(colon + 1)?,
                        }
                    }
                    None => self.skip(colon)?,
                    Some(key) => self.member(wanted, columns, key, colon)?,
                };
                match self.byte(place) {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
            wanted.order.end(step);
        }
        wanted.missing(|key| columns[key].push_null());
        Some(place + 1)
    }

    /// How many of the members behind `place` are those of the run, with scalars for values,
    /// and what comes behind them. Where keys are counted that no column has, `names` are those of the run.
    #[inline(always)]
    fn run(&self, run: &[Step], names: Option<&[Box<[u8]>]>, place: usize) -> (usize, u8) {
        // A comma or bracket first, and for each member its colon and what comes behind it.
        let Some(entries) = self.index.get(place..=place + 2 * run.len()) else { return (0, 0) };
        let (first, last) = (entries[0] as usize, entries[2 * run.len()] as usize);
        if first < 8 || last >= self.text.len() || self.has_backslash(first, last) {
            return (0, 0);
        }
        for (taken, (step, pair)) in run.iter().zip(entries[1..].chunks_exact(2)).enumerate() {
            // SAFETY: positions ascend, so these are within `first..=last`.
            let (difference, next) = unsafe { self.difference(step, pair[0], pair[1]) };
            if difference == 0
                && !step.is_short
                && let Some(names) = names
                && !names.get(taken).is_some_and(|it| is_named(self.text, pair[0] as usize, it))
            {
                return (taken, b',');
            }
            match (difference, next) {
                (0, b',') => {}
                (0, b'}') => return (taken + 1, b'}'),
                _ => return (taken, b','),
            }
        }
        (run.len(), b',')
    }

    /// Reads the member behind `place` if it is the expected one, its value a scalar and all
    /// as it is mostly written: 1, and what comes behind it. Otherwise nothing is done.
    #[inline(always)]
    fn leaf(
        &self,
        wanted: &mut Object,
        columns: &mut [Column],
        expected: Step,
        place: usize,
    ) -> (usize, u8) {
        self.plain_leaf(wanted, columns, expected, place).map_or((0, 0), |next| (1, next))
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn plain_leaf(
        &self,
        wanted: &mut Object,
        columns: &mut [Column],
        expected: Step,
        place: usize,
    ) -> Option<u8> {
        let &[before, colon, end] = self.index.get(place..)?.first_chunk()?;
        let (before, colon, end) = (before as usize, colon as usize, end as usize);
        let next = *self.text.get(end)?;
        let word = self.text.get(colon.checked_sub(7)?..=colon)?;
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let key = expected.wanted();
        if word & expected.mask != expected.word
            || !expected.is_short && !wanted.is(key, self.text, colon - 1)
            || self.backslashes.is_some() && self.has_backslash(before, end)
            || next != b',' && next != b'}'
        {
            return None;
        }
        let start = colon + 1;
        let value = &self.text[start..end];
        let span = match value {
            [b'"', .., b'"'] => Span::plain(start as u32 + 1, end as u32 - 1),
            _ if grammar::is_short_number(self.text, start, end) => {
                Span::plain(start as u32, end as u32)
            }
            _ => match grammar::scalar(value)? {
                Scalar::Null => Span::NULL,
                _ => Span::plain(start as u32, end as u32),
            },
        };
        let Node::Leaf { spans, .. } = &mut columns.get_mut(key)?.node else { return None };
        if !wanted.is_first(key) {
            return None;
        }
        spans.push(span);
        Some(next)
    }

    /// How the key that ends with the colon differs from that of the step, and what is at
    /// `next`.
    ///
    /// # Safety
    /// Both are positions within the text, the first at least seven.
    #[inline(always)]
    unsafe fn difference(&self, step: &Step, colon: u32, next: u32) -> (u64, u8) {
        // SAFETY: as the caller promises; eight bytes end with the colon.
        let (word, next) = unsafe {
            let start = self.text.as_ptr().add(colon as usize - 7).cast::<u64>();
            (start.read_unaligned(), *self.text.get_unchecked(next as usize))
        };
        ((u64::from_le(word) & step.mask) ^ step.word, next)
    }

    /// The key behind `place` if it is expected, now or soon, and at which step: none if it is
    /// not wanted.
    #[inline(always)]
    fn guess(
        &self,
        wanted: &mut Object,
        step: usize,
        place: usize,
    ) -> Option<(usize, Option<usize>)> {
        let (before, colon) = (self.position(place), self.position(place + 1));
        let word = self.text.get(colon.checked_sub(7)?..=colon)?;
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let (step, guess) = wanted.order.guess(step, word)?;
        let key = match guess {
            Guess::NotWanted if wanted.known.is_some() => {
                let name = wanted.order.names(step).first()?;
                if !is_named(self.text, colon, name) {
                    return None;
                }
                None
            }
            Guess::NotWanted => None,
            Guess::Wanted(key) if wanted.is(key, self.text, colon - 1) => Some(key),
            Guess::Wanted(_) => return None,
        };
        (self.backslashes.is_none() || !self.has_backslash(before, colon)).then_some((step, key))
    }

    /// Looks the key behind `place` up, and learns where it comes.
    #[inline(never)]
    fn look_up(
        &self,
        wanted: &mut Object,
        step: &mut usize,
        place: usize,
    ) -> Option<Option<usize>> {
        let found = self.key(wanted, place)?;
        let (key, unknown) = (found.wanted(), found == Key::Unknown);
        let (start, end) = self.between(place);
        let colon = self.position(place + 1);
        let is_plain = end == colon && !self.has_backslash(start, end);
        if is_plain {
            let quoted = &self.text[start..=colon];
            let alone = key.filter(|key| wanted.twin(*key).is_none());
            let nested = alone.is_some_and(|key| !matches!(wanted.plans[key], Wanted::Leaf));
            let seen = Seen { quoted, wanted: alone, unknown, nested };
            *step = wanted.order.learn(*step, seen, &wanted.endings);
        }
        Some(key)
    }

    /// Which of the wanted keys the one behind `place` is.
    #[inline(always)]
    fn key(&self, wanted: &Object, place: usize) -> Option<Key> {
        let colon = self.position(place + 1);
        if self.backslashes.is_some() && self.has_backslash(self.position(place), colon) {
            return self.escaped_key(wanted, place);
        }
        // Before a colon there is a string.
        let mut end = colon - 1;
        while self.text[end] != b'"' {
            end -= 1;
        }
        match wanted.find(self.text, end) {
            Some(key) => Some(Key::Wanted(key)),
            None if wanted.known.is_none() => Some(Key::Other),
            None => {
                let (start, _) = self.between(place);
                Some(self.other_key(wanted, &self.text[start + 1..end], start))
            }
        }
    }

    /// A key that is not wanted, whose opening quote is at `at`.
    fn other_key(&self, wanted: &Object, name: &[u8], at: usize) -> Key {
        if !wanted.is_unknown(name) {
            return Key::Other;
        }
        let mut tally = self.tally.borrow_mut();
        let key = tally.key(&wanted.place, name);
        tally.note(key, at);
        Key::Unknown
    }

    #[cold]
    fn escaped_key(&self, wanted: &Object, place: usize) -> Option<Key> {
        let (start, end) = self.between(place);
        let raw = &self.text[start + 1..end - 1];
        let mut name = Vec::with_capacity(end - start);
        if !super::unescape(raw, &mut name) {
            return if self.strict { None } else { Some(self.other_key(wanted, raw, start)) };
        }
        match wanted.find_name(&name) {
            Some(key) => Some(Key::Wanted(key)),
            None => Some(self.other_key(wanted, &name, start)),
        }
    }

    #[inline(always)]
    fn member(
        &self,
        wanted: &mut Object,
        columns: &mut [Column],
        key: usize,
        colon: usize,
    ) -> Option<usize> {
        let mut key = key;
        loop {
            let column = columns.get_mut(key)?;
            if !wanted.is_first(key) {
                // The last of several counts.
                column.forget_last();
            }
            let next = self.value(&mut wanted.plans[key], column, colon)?;
            match wanted.twin(key) {
                Some(twin) => key = twin,
                None => return Some(next),
            }
        }
    }

    /// Reads the value behind `before` into the column.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn value(&self, plan: &mut Wanted, column: &mut Column, before: usize) -> Option<usize> {
        if let Node::Leaf { spans, .. } = &mut column.node {
            let next = before + 1;
            if matches!(self.byte(next), b'{' | b'[') {
                if !is_text(column.field.data_type()) {
                    return self.mismatch(column, before);
                }
                let end = self.sound_nested(next)?;
                let (start, last) = (self.position(next), self.position(end - 1));
                spans.push(Span::plain(start as u32, last as u32 + 1));
                return Some(end);
            }
            spans.push(self.span(before)?);
            return Some(next);
        }
        self.nested(plan, column, before)
    }

    /// The same of a text or a short number as it is mostly written: no white space, no backslash.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(super) fn plain_scalar(&self, before: usize) -> Option<Span> {
        let &[start, end] = self.index.get(before..)?.first_chunk()?;
        let (start, end) = (start as usize + 1, end as usize);
        let (first, last) = (*self.text.get(start)?, *self.text.get(end - 1)?);
        if first == b'"' {
            let is_whole = last == b'"' && end - start > 1;
            return is_whole.then(|| Span::plain(start as u32 + 1, end as u32 - 1));
        }
        let digits = start + usize::from(first == b'-');
        let is_number = digits < end && grammar::is_short_number(self.text, digits, end);
        is_number.then(|| Span::plain(start as u32, end as u32))
    }

    /// The span of the scalar behind `before`.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(super) fn span(&self, before: usize) -> Option<Span> {
        let (start, end) = self.between(before);
        let token = &self.text[start..end];
        if *token.first()? == b'"' {
            let (first, last) = (start as u32 + 1, end as u32 - 1);
            if self.backslashes.is_some() && self.has_backslash(start, end) {
                if grammar::bad_escape(&token[1..token.len() - 1]).is_some() {
                    return None;
                }
                return Some(Span::escaped(first, last));
            }
            return Some(Span::plain(first, last));
        }
        if grammar::is_short_number(self.text, start, end) {
            return Some(Span::plain(start as u32, end as u32));
        }
        Some(match grammar::scalar(token)? {
            Scalar::Null => Span::NULL,
            _ => Span::plain(start as u32, end as u32),
        })
    }

    fn nested(&self, plan: &mut Wanted, column: &mut Column, before: usize) -> Option<usize> {
        let open = before + 1;
        let byte = self.byte(open);
        match (plan, &mut column.node) {
            (Wanted::Struct(wanted), Node::Struct { parts, validity }) if byte == b'{' => {
                let end = self.object(wanted, parts, open)?;
                validity.append_non_null();
                Some(end)
            }
            (Wanted::List(plan), Node::List { ends, item }) if byte == b'[' => {
                let (mut place, mut count) = (open, ends.items());
                if self.byte(open + 1) == b']' && self.is_empty(open) {
                    place += 1;
                } else {
                    loop {
                        place = self.value(plan, item, place)?;
                        count += 1;
                        match self.byte(place) {
                            b',' => {}
                            b']' => break,
                            _ => return None,
                        }
                    }
                }
                ends.push(count, true);
                Some(place + 1)
            }
            (Wanted::Map(entries), Node::Map { ends, key, value, .. }) if byte == b'{' => {
                let (mut place, mut count) = (open, ends.items());
                if self.byte(open + 1) == b'}' {
                    if !self.is_empty(open) {
                        return None;
                    }
                    place += 1;
                } else {
                    loop {
                        let colon = place + 1;
                        let Node::Leaf { spans, .. } = &mut key.node else { return None };
                        if self.byte(colon) != b':' {
                            return None;
                        }
                        spans.push(self.span(place)?);
                        place = self.value(&mut entries.value, value, colon)?;
                        count += 1;
                        match self.byte(place) {
                            b',' => {}
                            b'}' => break,
                            _ => return None,
                        }
                    }
                    let Node::Leaf { spans, .. } = &key.node else { return None };
                    let keys = spans.get(spans.len() - (count - ends.items())..)?;
                    if entries.repeats.has_repeats(self.text, keys) {
                        return None;
                    }
                }
                ends.push(count, true);
                Some(place + 1)
            }
            _ => {
                if matches!(byte, b',' | b'}' | b']') {
                    let (start, end) = self.between(before);
                    if &self.text[start..end] == b"null" {
                        column.push_null();
                        return Some(open);
                    }
                }
                self.mismatch(column, before)
            }
        }
    }

    /// Skips the object or array whose bracket is at `open`, if all in it is JSON.
    #[cold]
    fn sound_nested(&self, open: usize) -> Option<usize> {
        let end = self.skip_nested(open)?;
        (self.strict || (open..end - 1).all(|place| self.is_sound(place))).then_some(end)
    }

    /// A value of another shape than the column's.
    #[cold]
    fn mismatch(&self, column: &mut Column, before: usize) -> Option<usize> {
        if !self.mismatch_is_null {
            return None;
        }
        column.push_mismatch(self.between(before).0);
        self.skip(before)
    }

    /// Skips the value behind `before`.
    #[inline(always)]
    fn skip(&self, before: usize) -> Option<usize> {
        match self.byte(before + 1) {
            b',' | b'}' | b']' => (!self.strict || self.is_sound(before)).then_some(before + 1),
            b'{' | b'[' => self.skip_nested(before + 1),
            _ => None,
        }
    }

    /// Skips the object or array whose bracket is at `open`, which may look like one before.
    #[inline(always)]
    fn skip_alike(&self, shape: &mut Shape, open: usize) -> Option<usize> {
        if self.byte(open) == b'[' {
            // Mostly there are scalars in an array, more or fewer of them each time.
            let mut end = open + 1;
            while self.byte(end) == b',' {
                end += 1;
            }
            if self.byte(end) == b']' {
                return Some(end + 1);
            }
        }
        let bytes = shape.bytes();
        if !bytes.is_empty() && self.kinds.get(open..open + bytes.len()) == Some(bytes) {
            let end = open + bytes.len();
            shape.confirm();
            return Some(end);
        }
        let end = self.skip_nested(open)?;
        shape.replace(self.kinds[open..end].iter().copied());
        Some(end)
    }

    /// Skips the object or array whose bracket is at `open`.
    fn skip_nested(&self, open: usize) -> Option<usize> {
        // Of each bracket that is open, whether it is that of an object.
        let mut stack = 0u64;
        let mut depth = 0u32;
        let (mut in_object, mut has_colon) = (false, true);
        let mut place = open;
        loop {
            match self.byte(place) {
                byte @ (b'{' | b'[') => {
                    if depth > 63 || in_object && !has_colon {
                        return None;
                    }
                    stack = stack << 1 | u64::from(in_object);
                    depth += 1;
                    in_object = byte == b'{';
                    has_colon = false;
                    if in_object && self.byte(place + 1) == b'}' {
                        if !self.is_empty(place) {
                            return None;
                        }
                        has_colon = true;
                    }
                }
                b':' => {
                    if !in_object || has_colon {
                        return None;
                    }
                    has_colon = true;
                }
                b',' => {
                    if in_object && !has_colon {
                        return None;
                    }
                    has_colon = false;
                }
                byte @ (b'}' | b']') => {
                    if in_object != (byte == b'}') || in_object && !has_colon {
                        return None;
                    }
                    depth -= 1;
                    if depth == 0 {
                        return Some(place + 1);
                    }
                    in_object = stack & 1 == 1;
                    stack >>= 1;
                    has_colon = true;
                }
                _ => return None,
            }
            if self.strict && !self.is_sound(place) {
                return None;
            }
            place += 1;
        }
    }
}
