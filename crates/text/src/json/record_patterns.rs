//! Patterns of records: the decoder reads a record with the pattern of an earlier one without walking over
//! its index.
//!
//! The records that one place of a program writes have the same keys in the same order. Two such
//! records have the same characters in the index, so that a member has its colon and its comma
//! at the same entries of the index in both:
//!
//! ```text
//!   record     { "ts" : 1 , "user" : { "id" : 2 } , "n" : null } ⏎
//!   pattern    {      :   ,        : {      :   } ,     :      } ⏎
//!   keys              └ `"ts":`             └ `"id":`   └ `"n":`        eight bytes each
//!   leaves            └ ts                  └ user.id                   if these are wanted
//! ```
//!
//! A record matches the pattern if it has the same structural characters and the same keys in the objects
//! with wanted values: one comparison and, for each key, one word. Since stage 1 has
//! verified the neighbours of each character, the record is then as sound as the record
//! that the pattern was learned from. The matcher therefore first matches a window's records one by one, and
//! then reads their values column by column, as those of a table.
//!
//! As in [`key_order`](super::key_order), no result depends on a guess: the matcher compares in full a key
//! that is wanted or has the ending of a wanted one. The walk handles a record with a backslash or anything
//! else unusual.
//!
//! If records differ from each other, the matcher pauses for a while.
//!
//! For 19 keys in 300 bytes, five of them wanted, the walk took 45 ns per record and the matcher 18 ns, on a
//! Xeon with AVX-512.

use super::index_walk::IndexWalk;
use super::key_order::KeyEnding;
use super::object_plan::{ObjectPlan, ValuePlan};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::unknown_keys::{KeyIndex, KeyTally};
use crate::value_span::ValueSpan;

/// The structure and keys that records of one kind share.
struct RecordPattern {
    /// The brackets, colons and commas of a record, and its line end.
    structural_bytes: Vec<u8>,
    /// Endings of its keys with their colons: of keys of eight bytes and more, quotes and colon
    /// included, …
    long_key_endings: Vec<KeyWord>,
    /// … of shorter ones, with the mask of their bits, …
    short_key_endings: Vec<(KeyWord, u64)>,
    /// … and the words before the last eight bytes, with the distance of each from the colon.
    key_heads: Vec<(KeyWord, u32)>,
    /// Maximum distance of a key word from its colon.
    lookbehind_bytes: u32,
    /// Wanted scalar values, with the entries of the colons before them.
    wanted_scalars: Vec<(ColumnPath, u32)>,
    /// Wanted objects.
    wanted_objects: Vec<ColumnPath>,
    /// Wanted values that are missing.
    missing_columns: Vec<ColumnPath>,
    /// Entries of the brackets of objects without members.
    empty_objects: Vec<u32>,
    /// Keys that no column has, each with the entry of its colon and its length up to the colon.
    unknown_keys: Vec<(KeyIndex, u32, usize)>,
}

/// Path of a value's column: its index among the columns, its index among the parts of that column, …
type ColumnPath = Box<[usize]>;

/// Eight bytes of a key with its quotes and its colon, and the entry of the colon among the
/// structural characters of the record.
struct KeyWord {
    word: u64,
    colon_entry: u32,
}

/// Matcher for the pattern of recent records.
#[derive(Default)]
pub(super) struct PatternMatcher {
    pattern: Option<RecordPattern>,
    /// Generation of the tally's key indices in the pattern.
    key_generation: u64,
    /// Cost of recent mismatches, in records.
    mismatch_cost: u32,
    /// Number of consecutive records of another pattern.
    other_record_count: u32,
    /// Number of records left to skip in the current pause.
    paused_records: u32,
    /// Length of the last pause.
    last_pause: u32,
    /// Number of records read by pattern.
    #[cfg(test)]
    pub(super) taken_records: usize,
}

/// Number of consecutive records of another pattern after which the matcher learns a new one.
const RECORDS_BEFORE_RELEARNING: u32 = 4;
/// Cost of a record of another pattern, in units of the time saved by a record of the pattern.
const MISMATCH_COST: u32 = 4;
const MISMATCH_COST_MAX: u32 = 1 << 10;
const PAUSE_RECORDS: std::ops::Range<u32> = 1 << 10..1 << 18;
/// Maximum number of structural characters in a pattern.
const PATTERN_BYTES_MAX: usize = 1 << 12;
/// Maximum length of a key with its quotes and colon.
const KEY_BYTES_MAX: usize = 256;

impl PatternMatcher {
    /// Drops a pattern whose key indices are no longer valid. Call it before each window.
    pub(super) fn drop_stale_pattern(&mut self, tally: &KeyTally) {
        if self.key_generation != tally.generation() {
            self.key_generation = tally.generation();
            self.pattern = None;
        }
    }

    /// Reads the records from `place` on that match the pattern, at most `rows_max`, into columns of
    /// `before` rows. Returns the number of records and the number of index entries that they take.
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

    /// Notes a sound record that the walk has read, from its bracket to its line end.
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
    /// Returns the pattern of a record; `None` if it has no useful one.
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

    /// Adds the wanted object whose bracket is at `at` in the record; returns the entry of its end.
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
                        // If a key comes twice, the last one counts.
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
                            // The number of items differs from record to record.
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

    /// Adds the key after `before`, whose colon is at `colon` in the record; returns its index among the
    /// wanted keys.
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
            // The whole key is compared.
            for (chunk, at) in quoted[..len - 1].as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
                let before = u32::try_from(len - 1 - at).ok()?;
                self.lookbehind_bytes = self.lookbehind_bytes.max(before);
                self.key_heads.push((word(u64::from_le_bytes(*chunk)), before));
            }
        }
        Some(key)
    }

    /// Returns whether the record at `place` matches the pattern.
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
        // SAFETY: a colon is one of the record's entries. Positions ascend: that of a colon is within
        // the text, and at least `lookbehind_bytes` from its beginning.
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

    /// Reads records that match the pattern into columns of `before` rows, up to the first with an invalid
    /// value; returns their number.
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

/// Reads the scalars after entry `first` and every `stride`-th entry from there on, up to the first text that
/// is no scalar; returns their number.
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
        // SAFETY: `scalar_spans` wrote this many.
        unsafe { spans.set_len(begin + row) };
        // The value that stopped it is among the next eight.
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

/// Returns the entry after the value whose bracket is at `open`, in a sound record.
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

/// Returns whether two slices of one length are equal, optimized for equal ones.
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
