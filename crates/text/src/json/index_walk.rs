//! Stage 2 of the JSON decoder: a walk over the index that emits spans. It gives up wherever anything is in
//! doubt.
//!
//! Every function takes the index of the entry before a value (`:`, `,` or an
//! opening bracket) and returns the index of the entry after it. Stage 1 has verified that there
//! is exactly one value between `:` and the next entry, and at most one between brackets.

use std::cell::RefCell;

use super::grammar::{self, JsonScalar, is_json_whitespace};
use super::key_order::{ExpectedKey, KeyGuess, NestedShape, ObservedKey, is_whole_key};
use super::object_plan::{ObjectPlan, ValuePlan};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::simd::BLOCK_BYTES;
use crate::unknown_keys::KeyTally;
use crate::value_parsing::is_text_type;
use crate::value_span::ValueSpan;

/// The text and index of a window.
#[derive(Clone, Copy)]
pub(super) struct IndexWalk<'a> {
    pub(super) text: &'a [u8],
    /// Positions of structural characters and line ends. A position at the end of the text
    /// stands for a line end.
    pub(super) positions: &'a [u32],
    /// The characters there.
    pub(super) structural_bytes: &'a [u8],
    /// Masks of the backslashes from `backslash_base` on, if there is any.
    pub(super) backslash_masks: Option<&'a [u64]>,
    pub(super) backslash_base: usize,
    pub(super) checks_skipped_values: bool,
    pub(super) mismatch_is_null: bool,
    /// Counts of keys that no column has.
    pub(super) key_tally: &'a RefCell<KeyTally>,
}

/// The kind of a member's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberKey {
    Wanted(usize),
    /// A key of a column that is not wanted.
    NotWanted,
    /// A key that no column has; the walk noted it.
    Unknown,
}

impl MemberKey {
    fn wanted_index(self) -> Option<usize> {
        match self {
            MemberKey::Wanted(key) => Some(key),
            MemberKey::NotWanted | MemberKey::Unknown => None,
        }
    }
}

impl IndexWalk<'_> {
    #[inline(always)]
    pub(super) fn entry_position(&self, place: usize) -> usize {
        self.positions.get(place).map_or(self.text.len(), |at| *at as usize)
    }

    /// Returns the structural character of an entry.
    #[inline(always)]
    pub(super) fn structural_byte(&self, place: usize) -> u8 {
        self.structural_bytes.get(place).copied().unwrap_or(b'\n')
    }

    /// Returns the byte range between an entry and the next one, without surrounding white space.
    #[inline(always)]
    pub(super) fn trimmed_range_after(&self, place: usize) -> (usize, usize) {
        let (mut start, mut end) = (self.entry_position(place) + 1, self.entry_position(place + 1));
        while start < end && is_json_whitespace(self.text[start]) {
            start += 1;
        }
        while end > start && is_json_whitespace(self.text[end - 1]) {
            end -= 1;
        }
        (start, end)
    }

    pub(super) fn is_empty_after(&self, place: usize) -> bool {
        let (start, end) = self.trimmed_range_after(place);
        start == end
    }

    /// Returns whether there is a backslash in `start..end`.
    #[inline(always)]
    pub(super) fn has_backslash(&self, start: usize, end: usize) -> bool {
        let Some(words) = self.backslash_masks else { return false };
        if start >= end {
            return false;
        }
        let (first, last) = (start - self.backslash_base, end - 1 - self.backslash_base);
        let (from, to) = (first / BLOCK_BYTES, last / BLOCK_BYTES);
        let low = u64::MAX << (first % BLOCK_BYTES);
        let high = u64::MAX >> (BLOCK_BYTES - 1 - last % BLOCK_BYTES);
        if from == to {
            return words[from] & low & high != 0;
        }
        words[from] & low != 0
            || words[to] & high != 0
            || words[from + 1..to].iter().any(|word| *word != 0)
    }

    /// Returns whether the text between an entry and the next one is a scalar or empty.
    #[inline(never)]
    fn is_scalar_or_empty(&self, place: usize) -> bool {
        let (start, end) = self.trimmed_range_after(place);
        if start < end && grammar::is_short_number(self.text, start, end) {
            return true;
        }
        match self.text[start..end].first() {
            None => true,
            Some(b'"') => {
                !self.has_backslash(start, end)
                    || grammar::find_bad_escape(&self.text[start + 1..end - 1]).is_none()
            }
            Some(_) => grammar::classify_scalar(&self.text[start..end]).is_some(),
        }
    }

    /// Reads the object whose bracket is at `open`; returns the entry after its end.
    pub(super) fn read_object(
        &self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
        open: usize,
    ) -> Option<usize> {
        wanted.begin_object();
        let mut place = open;
        if self.structural_byte(open + 1) == b'}' {
            if !self.is_empty_after(open) {
                return None;
            }
            place += 1;
        } else {
            let mut step = wanted.key_order.begin_object();
            loop {
                let (taken, next) = match wanted.key_order.expected_key(step) {
                    Some(expected) if expected.is_wanted_scalar() => {
                        self.read_expected_leaf(wanted, columns, expected, place)
                    }
                    Some(expected) if expected.is_run_start() && !self.checks_skipped_values => {
                        let names = wanted
                            .known_keys
                            .as_ref()
                            .map(|_| wanted.key_order.quoted_keys_from(step));
                        self.match_run(wanted.key_order.run_from(step), names, place)
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
                if self.structural_byte(colon) != b':' {
                    return None;
                }
                let before = step;
                let key = if !wanted.key_order.is_learning() {
                    self.find_key(wanted, place)?.wanted_index()
                } else if let Some((ahead, key)) = self.guess_key(wanted, step, place) {
                    step = ahead + 1;
                    key
                } else {
                    self.look_up_key(wanted, &mut step, place)?
                };
                place = match key {
                    None if step > before
                        && matches!(self.structural_byte(colon + 1), b'{' | b'[') =>
                    {
                        match wanted.key_order.nested_shape(step - 1) {
                            Some(shape) if !self.checks_skipped_values => {
                                self.skip_nested_by_shape(shape, colon + 1)?
                            }
                            _ => self.skip_nested(colon + 1)?,
                        }
                    }
                    None => self.skip_value(colon)?,
                    Some(key) => self.read_member(wanted, columns, key, colon)?,
                };
                match self.structural_byte(place) {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
            wanted.key_order.end_object(step);
        }
        wanted.for_each_missing(|key| columns[key].push_null());
        Some(place + 1)
    }

    /// Returns the number of members after `place` that match the run and have scalar values, and the
    /// character after them. If keys that no column has are counted, `names` are the keys of the run.
    #[inline(always)]
    fn match_run(
        &self,
        run: &[ExpectedKey],
        names: Option<&[Box<[u8]>]>,
        place: usize,
    ) -> (usize, u8) {
        // First a comma or bracket, and for each member its colon and the entry after its value.
        let Some(entries) = self.positions.get(place..=place + 2 * run.len()) else {
            return (0, 0);
        };
        let (first, last) = (entries[0] as usize, entries[2 * run.len()] as usize);
        if first < 8 || last >= self.text.len() || self.has_backslash(first, last) {
            return (0, 0);
        }
        for (taken, (step, pair)) in run.iter().zip(entries[1..].chunks_exact(2)).enumerate() {
            // SAFETY: positions ascend, so these are within `first..=last`.
            let (difference, next) = unsafe { self.key_difference(step, pair[0], pair[1]) };
            if difference == 0
                && !step.is_short
                && let Some(names) = names
                && !names.get(taken).is_some_and(|it| is_whole_key(self.text, pair[0] as usize, it))
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

    /// Reads the member after `place` if it has the expected key, a scalar value and
    /// no unusual spelling. Returns 1 and the character after it; 0 if it read nothing.
    #[inline(always)]
    fn read_expected_leaf(
        &self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
        expected: ExpectedKey,
        place: usize,
    ) -> (usize, u8) {
        self.read_plain_leaf(wanted, columns, expected, place).map_or((0, 0), |next| (1, next))
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn read_plain_leaf(
        &self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
        expected: ExpectedKey,
        place: usize,
    ) -> Option<u8> {
        let &[before, colon, end] = self.positions.get(place..)?.first_chunk()?;
        let (before, colon, end) = (before as usize, colon as usize, end as usize);
        let next = *self.text.get(end)?;
        let word = self.text.get(colon.checked_sub(7)?..=colon)?;
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let key = expected.wanted_index();
        if word & expected.mask != expected.word
            || !expected.is_short && !wanted.is_key_at(key, self.text, colon - 1)
            || self.backslash_masks.is_some() && self.has_backslash(before, end)
            || next != b',' && next != b'}'
        {
            return None;
        }
        let start = colon + 1;
        let value = &self.text[start..end];
        let span = match value {
            [b'"', .., b'"'] => ValueSpan::new_plain(start as u32 + 1, end as u32 - 1),
            _ if grammar::is_short_number(self.text, start, end) => {
                ValueSpan::new_plain(start as u32, end as u32)
            }
            _ => match grammar::classify_scalar(value)? {
                JsonScalar::Null => ValueSpan::NULL,
                _ => ValueSpan::new_plain(start as u32, end as u32),
            },
        };
        let ColumnNode::Leaf { spans, .. } = &mut columns.get_mut(key)?.node else { return None };
        if !wanted.mark_found(key) {
            return None;
        }
        spans.push(span);
        Some(next)
    }

    /// Returns the difference between the key that ends with the colon and the expected key, and the byte at
    /// `next`.
    ///
    /// # Safety
    /// Both are positions within the text, and the first is at least seven.
    #[inline(always)]
    unsafe fn key_difference(&self, step: &ExpectedKey, colon: u32, next: u32) -> (u64, u8) {
        // SAFETY: as the caller promises; eight bytes end with the colon.
        let (word, next) = unsafe {
            let start = self.text.as_ptr().add(colon as usize - 7).cast::<u64>();
            (start.read_unaligned(), *self.text.get_unchecked(next as usize))
        };
        ((u64::from_le(word) & step.mask) ^ step.word, next)
    }

    /// Returns the position in the expected order of the key after `place` if it is expected now or soon, and
    /// its wanted key; the latter is `None` for an unwanted key.
    #[inline(always)]
    fn guess_key(
        &self,
        wanted: &mut ObjectPlan,
        step: usize,
        place: usize,
    ) -> Option<(usize, Option<usize>)> {
        let (before, colon) = (self.entry_position(place), self.entry_position(place + 1));
        let word = self.text.get(colon.checked_sub(7)?..=colon)?;
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let (step, guess) = wanted.key_order.guess_key(step, word)?;
        let key = match guess {
            KeyGuess::NotWanted if wanted.known_keys.is_some() => {
                let name = wanted.key_order.quoted_keys_from(step).first()?;
                if !is_whole_key(self.text, colon, name) {
                    return None;
                }
                None
            }
            KeyGuess::NotWanted => None,
            KeyGuess::Wanted(key) if wanted.is_key_at(key, self.text, colon - 1) => Some(key),
            KeyGuess::Wanted(_) => return None,
        };
        (self.backslash_masks.is_none() || !self.has_backslash(before, colon))
            .then_some((step, key))
    }

    /// Looks up the key after `place` and learns its position in the order.
    #[inline(never)]
    fn look_up_key(
        &self,
        wanted: &mut ObjectPlan,
        step: &mut usize,
        place: usize,
    ) -> Option<Option<usize>> {
        let found = self.find_key(wanted, place)?;
        let (key, unknown) = (found.wanted_index(), found == MemberKey::Unknown);
        let (start, end) = self.trimmed_range_after(place);
        let colon = self.entry_position(place + 1);
        let is_plain = end == colon && !self.has_backslash(start, end);
        if is_plain {
            let quoted = &self.text[start..=colon];
            let alone = key.filter(|key| wanted.next_same_name(*key).is_none());
            let nested =
                alone.is_some_and(|key| !matches!(wanted.value_plans[key], ValuePlan::Leaf));
            let seen = ObservedKey {
                quoted,
                wanted_index: alone,
                is_unknown: unknown,
                has_nested_value: nested,
            };
            *step = wanted.key_order.learn_key(*step, seen, &wanted.key_endings);
        }
        Some(key)
    }

    /// Identifies the key after `place` among the wanted ones.
    #[inline(always)]
    fn find_key(&self, wanted: &ObjectPlan, place: usize) -> Option<MemberKey> {
        let colon = self.entry_position(place + 1);
        if self.backslash_masks.is_some() && self.has_backslash(self.entry_position(place), colon) {
            return self.find_escaped_key(wanted, place);
        }
        // Before a colon there is a string.
        let mut end = colon - 1;
        while self.text[end] != b'"' {
            end -= 1;
        }
        match wanted.find_by_end(self.text, end) {
            Some(key) => Some(MemberKey::Wanted(key)),
            None if wanted.known_keys.is_none() => Some(MemberKey::NotWanted),
            None => {
                let (start, _) = self.trimmed_range_after(place);
                Some(self.note_unwanted_key(wanted, &self.text[start + 1..end], start))
            }
        }
    }

    /// Notes a key that is not wanted, whose opening quote is at `at`, if no column has it.
    fn note_unwanted_key(&self, wanted: &ObjectPlan, name: &[u8], at: usize) -> MemberKey {
        if !wanted.is_unknown(name) {
            return MemberKey::NotWanted;
        }
        let mut tally = self.key_tally.borrow_mut();
        let key = tally.intern_key(&wanted.scope, name);
        tally.note_record_key(key, at);
        MemberKey::Unknown
    }

    #[cold]
    fn find_escaped_key(&self, wanted: &ObjectPlan, place: usize) -> Option<MemberKey> {
        let (start, end) = self.trimmed_range_after(place);
        let raw = &self.text[start + 1..end - 1];
        let mut name = Vec::with_capacity(end - start);
        if !super::unescape_string(raw, &mut name) {
            return if self.checks_skipped_values {
                None
            } else {
                Some(self.note_unwanted_key(wanted, raw, start))
            };
        }
        match wanted.find_by_name(&name) {
            Some(key) => Some(MemberKey::Wanted(key)),
            None => Some(self.note_unwanted_key(wanted, &name, start)),
        }
    }

    #[inline(always)]
    fn read_member(
        &self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
        key: usize,
        colon: usize,
    ) -> Option<usize> {
        let mut key = key;
        loop {
            let column = columns.get_mut(key)?;
            if !wanted.mark_found(key) {
                // The last of several values counts.
                column.pop_row();
            }
            let next = self.read_value(&mut wanted.value_plans[key], column, colon)?;
            match wanted.next_same_name(key) {
                Some(twin) => key = twin,
                None => return Some(next),
            }
        }
    }

    /// Reads the value after `before` into the column.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn read_value(
        &self,
        plan: &mut ValuePlan,
        column: &mut ColumnDecoder,
        before: usize,
    ) -> Option<usize> {
        if let ColumnNode::Leaf { spans, .. } = &mut column.node {
            let next = before + 1;
            if matches!(self.structural_byte(next), b'{' | b'[') {
                if !is_text_type(column.field.data_type()) {
                    return self.push_mismatch(column, before);
                }
                let end = self.skip_checked_nested(next)?;
                let (start, last) = (self.entry_position(next), self.entry_position(end - 1));
                spans.push(ValueSpan::new_plain(start as u32, last as u32 + 1));
                return Some(end);
            }
            spans.push(self.scalar_span(before)?);
            return Some(next);
        }
        self.read_nested(plan, column, before)
    }

    /// Returns the span of a text or short number in its usual spelling: no white space, no backslash.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(super) fn plain_scalar_span(&self, before: usize) -> Option<ValueSpan> {
        let &[start, end] = self.positions.get(before..)?.first_chunk()?;
        let (start, end) = (start as usize + 1, end as usize);
        let (first, last) = (*self.text.get(start)?, *self.text.get(end - 1)?);
        if first == b'"' {
            let is_whole = last == b'"' && end - start > 1;
            return is_whole.then(|| ValueSpan::new_plain(start as u32 + 1, end as u32 - 1));
        }
        let digits = start + usize::from(first == b'-');
        let is_number = digits < end && grammar::is_short_number(self.text, digits, end);
        is_number.then(|| ValueSpan::new_plain(start as u32, end as u32))
    }

    /// Returns the span of the scalar after `before`.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(super) fn scalar_span(&self, before: usize) -> Option<ValueSpan> {
        let (start, end) = self.trimmed_range_after(before);
        let token = &self.text[start..end];
        if *token.first()? == b'"' {
            let (first, last) = (start as u32 + 1, end as u32 - 1);
            if self.backslash_masks.is_some() && self.has_backslash(start, end) {
                if grammar::find_bad_escape(&token[1..token.len() - 1]).is_some() {
                    return None;
                }
                return Some(ValueSpan::new_escaped(first, last));
            }
            return Some(ValueSpan::new_plain(first, last));
        }
        if grammar::is_short_number(self.text, start, end) {
            return Some(ValueSpan::new_plain(start as u32, end as u32));
        }
        Some(match grammar::classify_scalar(token)? {
            JsonScalar::Null => ValueSpan::NULL,
            _ => ValueSpan::new_plain(start as u32, end as u32),
        })
    }

    fn read_nested(
        &self,
        plan: &mut ValuePlan,
        column: &mut ColumnDecoder,
        before: usize,
    ) -> Option<usize> {
        let open = before + 1;
        let byte = self.structural_byte(open);
        match (plan, &mut column.node) {
            (ValuePlan::Struct(wanted), ColumnNode::Struct { parts, validity }) if byte == b'{' => {
                let end = self.read_object(wanted, parts, open)?;
                validity.append_non_null();
                Some(end)
            }
            (ValuePlan::List(plan), ColumnNode::List { ends, item }) if byte == b'[' => {
                let (mut place, mut count) = (open, ends.item_count());
                if self.structural_byte(open + 1) == b']' && self.is_empty_after(open) {
                    place += 1;
                } else {
                    loop {
                        place = self.read_value(plan, item, place)?;
                        count += 1;
                        match self.structural_byte(place) {
                            b',' => {}
                            b']' => break,
                            _ => return None,
                        }
                    }
                }
                ends.end_row(count, true);
                Some(place + 1)
            }
            (ValuePlan::Map(entries), ColumnNode::Map { ends, key, value, .. }) if byte == b'{' => {
                let (mut place, mut count) = (open, ends.item_count());
                if self.structural_byte(open + 1) == b'}' {
                    if !self.is_empty_after(open) {
                        return None;
                    }
                    place += 1;
                } else {
                    loop {
                        let colon = place + 1;
                        let ColumnNode::Leaf { spans, .. } = &mut key.node else { return None };
                        if self.structural_byte(colon) != b':' {
                            return None;
                        }
                        spans.push(self.scalar_span(place)?);
                        place = self.read_value(&mut entries.value_plan, value, colon)?;
                        count += 1;
                        match self.structural_byte(place) {
                            b',' => {}
                            b'}' => break,
                            _ => return None,
                        }
                    }
                    let ColumnNode::Leaf { spans, .. } = &key.node else { return None };
                    let keys = spans.get(spans.len() - (count - ends.item_count())..)?;
                    if entries.repeat_finder.has_repeats(self.text, keys) {
                        return None;
                    }
                }
                ends.end_row(count, true);
                Some(place + 1)
            }
            _ => {
                if matches!(byte, b',' | b'}' | b']') {
                    let (start, end) = self.trimmed_range_after(before);
                    if &self.text[start..end] == b"null" {
                        column.push_null();
                        return Some(open);
                    }
                }
                self.push_mismatch(column, before)
            }
        }
    }

    /// Skips the object or array whose bracket is at `open`, if everything in it is JSON.
    #[cold]
    fn skip_checked_nested(&self, open: usize) -> Option<usize> {
        let end = self.skip_nested(open)?;
        (self.checks_skipped_values || (open..end - 1).all(|place| self.is_scalar_or_empty(place)))
            .then_some(end)
    }

    /// Reads a value of another shape than the column's as null, or gives up.
    #[cold]
    fn push_mismatch(&self, column: &mut ColumnDecoder, before: usize) -> Option<usize> {
        if !self.mismatch_is_null {
            return None;
        }
        column.push_mismatch(self.trimmed_range_after(before).0);
        self.skip_value(before)
    }

    /// Skips the value after `before`.
    #[inline(always)]
    fn skip_value(&self, before: usize) -> Option<usize> {
        match self.structural_byte(before + 1) {
            b',' | b'}' | b']' => (!self.checks_skipped_values || self.is_scalar_or_empty(before))
                .then_some(before + 1),
            b'{' | b'[' => self.skip_nested(before + 1),
            _ => None,
        }
    }

    /// Skips the object or array whose bracket is at `open`, which may have the shape of an earlier one.
    #[inline(always)]
    fn skip_nested_by_shape(&self, shape: &mut NestedShape, open: usize) -> Option<usize> {
        if self.structural_byte(open) == b'[' {
            // Most arrays hold scalars, a different number of them each time.
            let mut end = open + 1;
            while self.structural_byte(end) == b',' {
                end += 1;
            }
            if self.structural_byte(end) == b']' {
                return Some(end + 1);
            }
        }
        let bytes = shape.structural_bytes();
        if !bytes.is_empty() && self.structural_bytes.get(open..open + bytes.len()) == Some(bytes) {
            let end = open + bytes.len();
            shape.note_match();
            return Some(end);
        }
        let end = self.skip_nested(open)?;
        shape.replace_or_give_up(self.structural_bytes[open..end].iter().copied());
        Some(end)
    }

    /// Skips the object or array whose bracket is at `open`.
    fn skip_nested(&self, open: usize) -> Option<usize> {
        // One bit for each open bracket: 1 for an object.
        let mut stack = 0u64;
        let mut depth = 0u32;
        let (mut in_object, mut has_colon) = (false, true);
        let mut place = open;
        loop {
            match self.structural_byte(place) {
                byte @ (b'{' | b'[') => {
                    if depth > 63 || in_object && !has_colon {
                        return None;
                    }
                    stack = stack << 1 | u64::from(in_object);
                    depth += 1;
                    in_object = byte == b'{';
                    has_colon = false;
                    if in_object && self.structural_byte(place + 1) == b'}' {
                        if !self.is_empty_after(place) {
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
            if self.checks_skipped_values && !self.is_scalar_or_empty(place) {
                return None;
            }
            place += 1;
        }
    }
}
