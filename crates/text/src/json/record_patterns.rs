//! Records that are like one before, without a walk.
//!
//! What a program writes at one place has the same keys in the same order each time. Of two such
//! records the index has the same characters, so that a member of one has its colon and its comma
//! at the same places of the index as the other's:
//!
//! ```text
//!   record     { "ts" : 1 , "user" : { "id" : 2 } , "n" : null } ⏎
//!   pattern    {      :   ,        : {      :   } ,     :      } ⏎
//!   keys              └ `"ts":`             └ `"id":`   └ `"n":`        eight bytes each
//!   leaves            └ ts                  └ user.id                   if these are wanted
//! ```
//!
//! A record is of the pattern if it has the same characters and the keys of the objects of which
//! something is wanted are the same: one comparison and, for each key, one word. What stage 1 has
//! seen of the neighbours of each character then says that it is sound, as it was of the record
//! which the pattern is of. So a window's records are taken for the pattern first, one by one, and
//! their values then column by column, as those of a table.
//!
//! As of [`order`](super::order), nothing rests on a guess: a key that is wanted, or ends as one
//! that is, is compared in full, and a record with a backslash, or in which anything else is
//! unusual, is walked over.
//!
//! Where records differ from each other, patterns are left off for a while.
//!
//! Of 19 keys in 300 bytes, five of them wanted, a record took 45 ns to walk over and 18 ns so, on a
//! Xeon with AVX-512.

use super::index_walk::IndexWalk;
use super::key_order::KeyEnding;
use super::object_plan::{ObjectPlan, ValuePlan};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::unknown_keys::{KeyIndex, KeyTally};
use crate::value_span::ValueSpan;

/// What all records of a kind have in common.
struct RecordPattern {
    /// The brackets, colons and commas of a record, and its line end.
    structural_bytes: Vec<u8>,
    /// The ends of its keys, with their colons: of keys of eight bytes and more, quotes and colon
    /// included, …
    long_key_endings: Vec<KeyWord>,
    /// … of shorter ones, with the bits that count, …
    short_key_endings: Vec<(KeyWord, u64)>,
    /// … and what is before the last eight bytes, with how far before the colon it begins.
    key_heads: Vec<(KeyWord, u32)>,
    /// Nothing begins further before its colon.
    lookbehind_bytes: u32,
    /// Wanted values that are scalars, and the places of the colons before them.
    wanted_scalars: Vec<(ColumnPath, u32)>,
    /// Wanted objects.
    wanted_objects: Vec<ColumnPath>,
    /// What is wanted and not there.
    missing_columns: Vec<ColumnPath>,
    /// The places of the brackets of objects without members.
    empty_objects: Vec<u32>,
    /// Keys that no column has, each with the place of its colon and its length up to that.
    unknown_keys: Vec<(KeyIndex, u32, usize)>,
}

/// The column of a value: its place among the columns, its place among the parts of that …
type ColumnPath = Box<[usize]>;

/// Eight bytes of a key with its quotes and its colon, and the place of the colon among the
/// characters of the record.
struct KeyWord {
    word: u64,
    colon_entry: u32,
}

/// The pattern that records have of late.
#[derive(Default)]
pub(super) struct PatternMatcher {
    pattern: Option<RecordPattern>,
    /// The generation of the tally's keys of which the pattern is.
    key_generation: u64,
    /// How much went wrong of late, in records.
    mismatch_cost: u32,
    /// Records of another pattern, one behind the other.
    other_record_count: u32,
    /// Records that are not looked at.
    paused_records: u32,
    /// How many it was last time.
    last_pause: u32,
    /// Records that were taken.
    #[cfg(test)]
    pub(super) taken_records: usize,
}

/// So many records behind each other have to be of another pattern for it to be learned.
const RECORDS_BEFORE_RELEARNING: u32 = 4;
/// What a record of another pattern costs, by what one of the pattern saves.
const MISMATCH_COST: u32 = 4;
const MISMATCH_COST_MAX: u32 = 1 << 10;
const PAUSE_RECORDS: std::ops::Range<u32> = 1 << 10..1 << 18;
/// The largest pattern.
const PATTERN_BYTES_MAX: usize = 1 << 12;
/// The longest key.
const KEY_BYTES_MAX: usize = 256;

impl PatternMatcher {
    /// Forgets a pattern whose indices in the tally are no longer valid: to be called before each window.
    pub(super) fn drop_stale_pattern(&mut self, tally: &KeyTally) {
        if self.key_generation != tally.generation() {
            self.key_generation = tally.generation();
            self.pattern = None;
        }
    }

    /// Takes the records from `place` on that are of the pattern, `rows_max` at most, into columns of
    /// `before` rows; how many there were, and how many places of the index they take.
    pub(super) fn take_matching_records(
        &mut self,
        walk: &IndexWalk<'_>,
        columns: &mut [ColumnDecoder],
        place: usize,
        before: usize,
        rows_max: usize,
    ) -> (usize, usize) {
        let Some(pattern) = &self.pattern else { return (0, 0) };
        let size = pattern.structural_bytes.len();
        let mut rows = 0;
        while rows < rows_max && pattern.is_match_at(walk, place + rows * size) {
            rows += 1;
        }
        if rows == 0 {
            self.other_record_count += 1;
            self.mismatch_cost += MISMATCH_COST;
            if self.mismatch_cost > MISMATCH_COST_MAX {
                self.pause_matching();
            }
            return (0, 0);
        }
        self.other_record_count = 0;
        self.mismatch_cost =
            self.mismatch_cost.saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX));
        if self.mismatch_cost == 0 {
            self.last_pause = 0;
        }
        let taken = pattern.read_matching_records(walk, columns, place, before, rows);
        #[cfg(test)]
        {
            self.taken_records += taken;
        }
        (taken, taken * size)
    }

    fn pause_matching(&mut self) {
        self.last_pause = (2 * self.last_pause).clamp(PAUSE_RECORDS.start, PAUSE_RECORDS.end);
        (self.pattern, self.paused_records) = (None, self.last_pause);
        (self.mismatch_cost, self.other_record_count) = (0, 0);
    }

    /// Notes a record that was walked over and found to be sound, from its bracket to its line end.
    #[inline(always)]
    pub(super) fn note_walked_record(
        &mut self,
        walk: &IndexWalk<'_>,
        wanted: &ObjectPlan,
        open: usize,
        line: usize,
    ) {
        if self.paused_records > 0 {
            self.paused_records -= 1;
        } else if self.pattern.is_none() || self.other_record_count >= RECORDS_BEFORE_RELEARNING {
            self.learn_pattern(walk, wanted, open, line);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn_pattern(
        &mut self,
        walk: &IndexWalk<'_>,
        wanted: &ObjectPlan,
        open: usize,
        line: usize,
    ) {
        self.other_record_count = 0;
        self.pattern = RecordPattern::from_record(walk, wanted, open, line);
        if self.pattern.is_none() {
            self.pause_matching();
        }
    }
}

impl RecordPattern {
    /// The pattern of a record; none if it has none that would be of use.
    fn from_record(
        walk: &IndexWalk<'_>,
        wanted: &ObjectPlan,
        open: usize,
        line: usize,
    ) -> Option<Self> {
        let kinds = walk
            .structural_bytes
            .get(open..=line)
            .filter(|kinds| kinds.len() <= PATTERN_BYTES_MAX)?;
        let (start, end) = (walk.entry_position(open), walk.entry_position(line));
        if walk.checks_skipped_values || walk.has_backslash(start, end) {
            return None;
        }
        let empty = kinds.windows(2).zip(0..).filter(|(pair, _)| pair == b"{}");
        let mut pattern = RecordPattern {
            structural_bytes: kinds.to_vec(),
            long_key_endings: Vec::new(),
            short_key_endings: Vec::new(),
            key_heads: Vec::new(),
            lookbehind_bytes: 8,
            wanted_scalars: Vec::new(),
            wanted_objects: Vec::new(),
            missing_columns: Vec::new(),
            empty_objects: empty.map(|(_, at)| at).collect(),
            unknown_keys: Vec::new(),
        };
        let end = pattern.add_object(walk, wanted, open, 0, &mut Vec::new())?;
        (kinds.get(end + 1) == Some(&b'\n')).then_some(pattern)
    }

    /// Takes in the wanted object whose bracket is at `at` in the record; the place of its end.
    fn add_object(
        &mut self,
        walk: &IndexWalk<'_>,
        wanted: &ObjectPlan,
        open: usize,
        at: usize,
        path: &mut Vec<usize>,
    ) -> Option<usize> {
        let mut found = vec![false; wanted.value_plans.len()];
        let mut place = at;
        if walk.structural_byte(open + at + 1) == b'}' {
            place += 1;
        } else {
            loop {
                let colon = place + 1;
                if walk.structural_byte(open + colon) != b':' {
                    return None;
                }
                let key = self.add_key(walk, wanted, open + place, colon)?;
                let is_nested = matches!(walk.structural_byte(open + colon + 1), b'{' | b'[');
                place = match key {
                    None if is_nested => end_of_nested(&self.structural_bytes, colon + 1)?,
                    None => colon + 1,
                    Some(key) => {
                        // Of a key that comes twice, the last one counts.
                        if std::mem::replace(found.get_mut(key)?, true) {
                            return None;
                        }
                        path.push(key);
                        let end = match &wanted.value_plans[key] {
                            ValuePlan::Leaf if !is_nested => {
                                self.wanted_scalars
                                    .push((path.as_slice().into(), colon.try_into().ok()?));
                                colon + 1
                            }
                            ValuePlan::Struct(inner)
                                if walk.structural_byte(open + colon + 1) == b'{' =>
                            {
                                self.wanted_objects.push(path.as_slice().into());
                                self.add_object(walk, inner, open, colon + 1, path)? + 1
                            }
                            // How many items there are is another matter each time.
                            _ => return None,
                        };
                        path.pop();
                        end
                    }
                };
                match walk.structural_byte(open + place) {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        for (key, _) in found.iter().enumerate().filter(|(_, found)| !**found) {
            path.push(key);
            self.missing_columns.push(path.as_slice().into());
            path.pop();
        }
        Some(place)
    }

    /// Takes in the key behind `before`, whose colon is at `colon` in the record: which of the wanted
    /// ones it is.
    fn add_key(
        &mut self,
        walk: &IndexWalk<'_>,
        wanted: &ObjectPlan,
        before: usize,
        colon: usize,
    ) -> Option<Option<usize>> {
        let (start, end) = walk.trimmed_range_after(before);
        let at = walk.entry_position(before + 1);
        let quoted = &walk.text[start..=at];
        if end != at || quoted.len() > KEY_BYTES_MAX {
            return None;
        }
        let key = wanted.find_by_end(walk.text, at - 1);
        if key.is_some_and(|key| wanted.next_same_name(key).is_some()) {
            return None;
        }
        let colon = u32::try_from(colon).ok()?;
        let len = quoted.len();
        let ending = KeyEnding::from_quoted_key(quoted);
        let word = |word| KeyWord { word, colon_entry: colon };
        if ending.mask == u64::MAX {
            self.long_key_endings.push(word(ending.word));
        } else {
            self.short_key_endings.push((word(ending.word), ending.mask));
        }
        let is_alike = wanted.key_endings.iter().any(|other| ending.can_match(other));
        if key.is_none() && wanted.is_unknown(&quoted[1..len - 2]) {
            let mut tally = walk.key_tally.borrow_mut();
            let key = tally.intern_key(&wanted.scope, &quoted[1..len - 2]);
            self.unknown_keys.push((key, colon, len - 1));
        }
        if len > 8 && (key.is_some() || is_alike || wanted.known_keys.is_some()) {
            // All of it is looked at.
            for (chunk, at) in quoted[..len - 1].as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
                let before = u32::try_from(len - 1 - at).ok()?;
                self.lookbehind_bytes = self.lookbehind_bytes.max(before);
                self.key_heads.push((word(u64::from_le_bytes(*chunk)), before));
            }
        }
        Some(key)
    }

    /// Whether the record at `place` is of the pattern.
    #[inline(always)]
    fn is_match_at(&self, walk: &IndexWalk<'_>, place: usize) -> bool {
        let size = self.structural_bytes.len();
        let (Some(kinds), Some(entries)) = (
            walk.structural_bytes.get(place..place + size),
            walk.positions.get(place..place + size),
        ) else {
            return false;
        };
        if !is_equal_by_words(kinds, &self.structural_bytes) {
            return false;
        }
        let (first, last) = (entries[0], entries[size - 1]);
        if first < self.lookbehind_bytes || walk.has_backslash(first as usize, last as usize) {
            return false;
        }
        // SAFETY: a colon is one of the record's places. Positions ascend: that of a colon is within
        // the text, and further than `reach` from its beginning.
        let difference = |word: &KeyWord, before: u32| unsafe {
            let colon = *entries.get_unchecked(word.colon_entry as usize);
            let found = walk.text.as_ptr().add(colon as usize).sub(before as usize);
            u64::from_le(found.cast::<u64>().read_unaligned()) ^ word.word
        };
        let mut wrong = 0;
        for word in &self.long_key_endings {
            wrong |= difference(word, 7);
        }
        for (word, mask) in &self.short_key_endings {
            wrong |= difference(word, 7) & mask;
        }
        for (word, before) in &self.key_heads {
            wrong |= difference(word, *before);
        }
        wrong == 0 && self.empty_objects.iter().all(|at| walk.is_empty_after(place + *at as usize))
    }

    /// Reads records of the pattern into columns of `before` rows, up to the first with a value that is
    /// none; returns how many.
    fn read_matching_records(
        &self,
        walk: &IndexWalk<'_>,
        columns: &mut [ColumnDecoder],
        place: usize,
        before: usize,
        rows: usize,
    ) -> usize {
        let size = self.structural_bytes.len();
        let mut taken = rows;
        for (path, colon) in &self.wanted_scalars {
            taken = match node_at_path(columns, path) {
                Some(ColumnNode::Leaf { spans, .. }) => {
                    read_scalars(walk, place + *colon as usize, size, taken, spans)
                }
                _ => 0,
            };
        }
        if taken < rows {
            columns.iter_mut().for_each(|column| column.truncate(before + taken));
        }
        for path in &self.wanted_objects {
            if let Some(ColumnNode::Struct { validity, .. }) = node_at_path(columns, path) {
                validity.append_n_non_nulls(taken);
            }
        }
        for path in &self.missing_columns {
            if let Some(column) = column_at_path(columns, path) {
                (0..taken).for_each(|_| column.push_null());
            }
        }
        if taken > 0 {
            for (key, colon, len) in &self.unknown_keys {
                let at = walk.entry_position(place + *colon as usize).saturating_sub(*len);
                walk.key_tally.borrow_mut().add_occurrences(*key, taken as u64, at);
            }
        }
        taken
    }
}

fn column_at_path<'a>(
    columns: &'a mut [ColumnDecoder],
    path: &[usize],
) -> Option<&'a mut ColumnDecoder> {
    let (first, rest) = path.split_first()?;
    let mut column = columns.get_mut(*first)?;
    for part in rest {
        let ColumnNode::Struct { parts, .. } = &mut column.node else { return None };
        column = parts.get_mut(*part)?;
    }
    Some(column)
}

fn node_at_path<'a>(
    columns: &'a mut [ColumnDecoder],
    path: &[usize],
) -> Option<&'a mut ColumnNode> {
    column_at_path(columns, path).map(|column| &mut column.node)
}

/// Takes the scalars behind `first` and every `stride`-th place from there on, up to the first that
/// is none; how many there are.
#[inline(never)]
fn read_scalars(
    walk: &IndexWalk<'_>,
    first: usize,
    stride: usize,
    rows: usize,
    spans: &mut Vec<ValueSpan>,
) -> usize {
    spans.reserve(rows);
    let (begin, mut row) = (spans.len(), 0);
    while row < rows {
        let room = &mut spans.spare_capacity_mut()[..rows - row];
        let several = crate::simd::scalar_spans(
            walk.text,
            walk.positions,
            first + row * stride,
            stride,
            room,
        );
        row += several;
        // SAFETY: so many were written.
        unsafe { spans.set_len(begin + row) };
        // What stopped it is among the next eight.
        let end = rows.min(row + 8);
        while row < end {
            let place = first + row * stride;
            let Some(span) = walk.plain_scalar_span(place).or_else(|| walk.scalar_span(place))
            else {
                return row;
            };
            spans.push(span);
            row += 1;
        }
    }
    rows
}

/// The place behind the value whose bracket is at `open`, of a sound record.
fn end_of_nested(kinds: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, kind) in kinds.iter().enumerate().skip(open) {
        match kind {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Whether two slices of one length are the same: mostly they are.
#[inline(always)]
fn is_equal_by_words(one: &[u8], other: &[u8]) -> bool {
    const PART: usize = 16;
    let part = |bytes: &[u8], at: usize| {
        bytes.get(at..at + PART).and_then(|part| part.try_into().ok()).map(u128::from_le_bytes)
    };
    let Some(last) = one.len().checked_sub(PART) else { return one == other };
    let mut wrong = 0;
    for at in (0..last).step_by(PART).chain([last]) {
        let (Some(one), Some(other)) = (part(one, at), part(other, at)) else { return false };
        wrong |= one ^ other;
    }
    wrong == 0
}
