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

use super::order::Ending;
use super::plan::{Object, Wanted};
use super::walk::Walk;
use crate::column::{Column, Node};
use crate::keys::{KeyId, KeyTally};
use crate::span::Span;

/// What all records of a kind have in common.
struct Pattern {
    /// The brackets, colons and commas of a record, and its line end.
    kinds: Vec<u8>,
    /// The ends of its keys, with their colons: of keys of eight bytes and more, quotes and colon
    /// included, …
    endings: Vec<Word>,
    /// … of shorter ones, with the bits that count, …
    short: Vec<(Word, u64)>,
    /// … and what is before the last eight bytes, with how far before the colon it begins.
    heads: Vec<(Word, u32)>,
    /// Nothing begins further before its colon.
    reach: u32,
    /// Wanted values that are scalars, and the places of the colons before them.
    leaves: Vec<(Path, u32)>,
    /// Wanted objects.
    objects: Vec<Path>,
    /// What is wanted and not there.
    missing: Vec<Path>,
    /// The places of the brackets of objects without members.
    empty: Vec<u32>,
    /// Keys that no column has, each with the place of its colon and its length up to that.
    unknown: Vec<(KeyId, u32, usize)>,
}

/// The column of a value: its place among the columns, its place among the parts of that …
type Path = Box<[usize]>;

/// Eight bytes of a key with its quotes and its colon, and the place of the colon among the
/// characters of the record.
struct Word {
    word: u64,
    colon: u32,
}

/// The pattern that records have of late.
#[derive(Default)]
pub(super) struct Alike {
    pattern: Option<Pattern>,
    /// The generation of the tally's keys of which the pattern is.
    generation: u64,
    /// How much went wrong of late, in records.
    wrong: u32,
    /// Records of another pattern, one behind the other.
    others: u32,
    /// Records that are not looked at.
    rest: u32,
    /// How many it was last time.
    pause: u32,
    /// Records that were taken.
    #[cfg(test)]
    pub(super) taken: usize,
}

/// So many records behind each other have to be of another pattern for it to be learned.
const OTHERS: u32 = 4;
/// What a record of another pattern costs, by what one of the pattern saves.
const MISSED: u32 = 4;
const WRONG_MAX: u32 = 1 << 10;
const PAUSE: std::ops::Range<u32> = 1 << 10..1 << 18;
/// The largest pattern.
const KINDS_MAX: usize = 1 << 12;
/// The longest key.
const KEY_BYTES_MAX: usize = 256;

impl Alike {
    /// Forgets a pattern whose indices in the tally are no longer valid: to be called before each window.
    pub(super) fn begin(&mut self, tally: &KeyTally) {
        if self.generation != tally.generation() {
            self.generation = tally.generation();
            self.pattern = None;
        }
    }

    /// Takes the records from `place` on that are of the pattern, `rows_max` at most, into columns of
    /// `before` rows; how many there were, and how many places of the index they take.
    pub(super) fn take(
        &mut self,
        walk: &Walk<'_>,
        columns: &mut [Column],
        place: usize,
        before: usize,
        rows_max: usize,
    ) -> (usize, usize) {
        let Some(pattern) = &self.pattern else { return (0, 0) };
        let size = pattern.kinds.len();
        let mut rows = 0;
        while rows < rows_max && pattern.is_of(walk, place + rows * size) {
            rows += 1;
        }
        if rows == 0 {
            self.others += 1;
            self.wrong += MISSED;
            if self.wrong > WRONG_MAX {
                self.leave_off();
            }
            return (0, 0);
        }
        self.others = 0;
        self.wrong = self.wrong.saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX));
        if self.wrong == 0 {
            self.pause = 0;
        }
        let taken = pattern.read(walk, columns, place, before, rows);
        #[cfg(test)]
        {
            self.taken += taken;
        }
        (taken, taken * size)
    }

    fn leave_off(&mut self) {
        self.pause = (2 * self.pause).clamp(PAUSE.start, PAUSE.end);
        (self.pattern, self.rest) = (None, self.pause);
        (self.wrong, self.others) = (0, 0);
    }

    /// Notes a record that was walked over and found to be sound, from its bracket to its line end.
    #[inline(always)]
    pub(super) fn note(&mut self, walk: &Walk<'_>, wanted: &Object, open: usize, line: usize) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if self.pattern.is_none() || self.others >= OTHERS {
            self.learn(walk, wanted, open, line);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, walk: &Walk<'_>, wanted: &Object, open: usize, line: usize) {
        self.others = 0;
        self.pattern = Pattern::of(walk, wanted, open, line);
        if self.pattern.is_none() {
            self.leave_off();
        }
    }
}

impl Pattern {
    /// The pattern of a record; none if it has none that would be of use.
    fn of(walk: &Walk<'_>, wanted: &Object, open: usize, line: usize) -> Option<Self> {
        let kinds = walk.kinds.get(open..=line).filter(|kinds| kinds.len() <= KINDS_MAX)?;
        let (start, end) = (walk.position(open), walk.position(line));
        if walk.strict || walk.has_backslash(start, end) {
            return None;
        }
        let empty = kinds.windows(2).zip(0..).filter(|(pair, _)| pair == b"{}");
        let mut pattern = Pattern {
            kinds: kinds.to_vec(),
            endings: Vec::new(),
            short: Vec::new(),
            heads: Vec::new(),
            reach: 8,
            leaves: Vec::new(),
            objects: Vec::new(),
            missing: Vec::new(),
            empty: empty.map(|(_, at)| at).collect(),
            unknown: Vec::new(),
        };
        let end = pattern.object(walk, wanted, open, 0, &mut Vec::new())?;
        (kinds.get(end + 1) == Some(&b'\n')).then_some(pattern)
    }

    /// Takes in the wanted object whose bracket is at `at` in the record; the place of its end.
    fn object(
        &mut self,
        walk: &Walk<'_>,
        wanted: &Object,
        open: usize,
        at: usize,
        path: &mut Vec<usize>,
    ) -> Option<usize> {
        let mut found = vec![false; wanted.plans.len()];
        let mut place = at;
        if walk.byte(open + at + 1) == b'}' {
            place += 1;
        } else {
            loop {
                let colon = place + 1;
                if walk.byte(open + colon) != b':' {
                    return None;
                }
                let key = self.key(walk, wanted, open + place, colon)?;
                let is_nested = matches!(walk.byte(open + colon + 1), b'{' | b'[');
                place = match key {
                    None if is_nested => skipped(&self.kinds, colon + 1)?,
                    None => colon + 1,
                    Some(key) => {
                        // Of a key that comes twice, the last one counts.
                        if std::mem::replace(found.get_mut(key)?, true) {
                            return None;
                        }
                        path.push(key);
                        let end = match &wanted.plans[key] {
                            Wanted::Leaf if !is_nested => {
                                self.leaves.push((path.as_slice().into(), colon.try_into().ok()?));
                                colon + 1
                            }
                            Wanted::Struct(inner) if walk.byte(open + colon + 1) == b'{' => {
                                self.objects.push(path.as_slice().into());
                                self.object(walk, inner, open, colon + 1, path)? + 1
                            }
                            // How many items there are is another matter each time.
                            _ => return None,
                        };
                        path.pop();
                        end
                    }
                };
                match walk.byte(open + place) {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        for (key, _) in found.iter().enumerate().filter(|(_, found)| !**found) {
            path.push(key);
            self.missing.push(path.as_slice().into());
            path.pop();
        }
        Some(place)
    }

    /// Takes in the key behind `before`, whose colon is at `colon` in the record: which of the wanted
    /// ones it is.
    fn key(
        &mut self,
        walk: &Walk<'_>,
        wanted: &Object,
        before: usize,
        colon: usize,
    ) -> Option<Option<usize>> {
        let (start, end) = walk.between(before);
        let at = walk.position(before + 1);
        let quoted = &walk.text[start..=at];
        if end != at || quoted.len() > KEY_BYTES_MAX {
            return None;
        }
        let key = wanted.find(walk.text, at - 1);
        if key.is_some_and(|key| wanted.twin(key).is_some()) {
            return None;
        }
        let colon = u32::try_from(colon).ok()?;
        let len = quoted.len();
        let ending = Ending::of(quoted);
        let word = |word| Word { word, colon };
        if ending.mask == u64::MAX {
            self.endings.push(word(ending.word));
        } else {
            self.short.push((word(ending.word), ending.mask));
        }
        let is_alike = wanted.endings.iter().any(|other| ending.is_like(other));
        if key.is_none() && wanted.is_unknown(&quoted[1..len - 2]) {
            let mut tally = walk.tally.borrow_mut();
            let key = tally.key(&wanted.place, &quoted[1..len - 2]);
            self.unknown.push((key, colon, len - 1));
        }
        if len > 8 && (key.is_some() || is_alike || wanted.known.is_some()) {
            // All of it is looked at.
            for (chunk, at) in quoted[..len - 1].as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
                let before = u32::try_from(len - 1 - at).ok()?;
                self.reach = self.reach.max(before);
                self.heads.push((word(u64::from_le_bytes(*chunk)), before));
            }
        }
        Some(key)
    }

    /// Whether the record at `place` is of the pattern.
    #[inline(always)]
    fn is_of(&self, walk: &Walk<'_>, place: usize) -> bool {
        let size = self.kinds.len();
        let (Some(kinds), Some(entries)) =
            (walk.kinds.get(place..place + size), walk.index.get(place..place + size))
        else {
            return false;
        };
        if !is_same(kinds, &self.kinds) {
            return false;
        }
        let (first, last) = (entries[0], entries[size - 1]);
        if first < self.reach || walk.has_backslash(first as usize, last as usize) {
            return false;
        }
        // SAFETY: a colon is one of the record's places. Positions ascend: that of a colon is within
        // the text, and further than `reach` from its beginning.
        let difference = |word: &Word, before: u32| unsafe {
            let colon = *entries.get_unchecked(word.colon as usize);
            let found = walk.text.as_ptr().add(colon as usize).sub(before as usize);
            u64::from_le(found.cast::<u64>().read_unaligned()) ^ word.word
        };
        let mut wrong = 0;
        for word in &self.endings {
            wrong |= difference(word, 7);
        }
        for (word, mask) in &self.short {
            wrong |= difference(word, 7) & mask;
        }
        for (word, before) in &self.heads {
            wrong |= difference(word, *before);
        }
        wrong == 0 && self.empty.iter().all(|at| walk.is_empty(place + *at as usize))
    }

    /// Reads records of the pattern into columns of `before` rows, up to the first with a value that is
    /// none; returns how many.
    fn read(
        &self,
        walk: &Walk<'_>,
        columns: &mut [Column],
        place: usize,
        before: usize,
        rows: usize,
    ) -> usize {
        let size = self.kinds.len();
        let mut taken = rows;
        for (path, colon) in &self.leaves {
            taken = match node(columns, path) {
                Some(Node::Leaf { spans, .. }) => {
                    scalars(walk, place + *colon as usize, size, taken, spans)
                }
                _ => 0,
            };
        }
        if taken < rows {
            columns.iter_mut().for_each(|column| column.truncate(before + taken));
        }
        for path in &self.objects {
            if let Some(Node::Struct { validity, .. }) = node(columns, path) {
                validity.append_n_non_nulls(taken);
            }
        }
        for path in &self.missing {
            if let Some(column) = column(columns, path) {
                (0..taken).for_each(|_| column.push_null());
            }
        }
        if taken > 0 {
            for (key, colon, len) in &self.unknown {
                let at = walk.position(place + *colon as usize).saturating_sub(*len);
                walk.tally.borrow_mut().add(*key, taken as u64, at);
            }
        }
        taken
    }
}

fn column<'a>(columns: &'a mut [Column], path: &[usize]) -> Option<&'a mut Column> {
    let (first, rest) = path.split_first()?;
    let mut column = columns.get_mut(*first)?;
    for part in rest {
        let Node::Struct { parts, .. } = &mut column.node else { return None };
        column = parts.get_mut(*part)?;
    }
    Some(column)
}

fn node<'a>(columns: &'a mut [Column], path: &[usize]) -> Option<&'a mut Node> {
    column(columns, path).map(|column| &mut column.node)
}

/// Takes the scalars behind `first` and every `stride`-th place from there on, up to the first that
/// is none; how many there are.
#[inline(never)]
fn scalars(
    walk: &Walk<'_>,
    first: usize,
    stride: usize,
    rows: usize,
    spans: &mut Vec<Span>,
) -> usize {
    spans.reserve(rows);
    let (begin, mut row) = (spans.len(), 0);
    while row < rows {
        let room = &mut spans.spare_capacity_mut()[..rows - row];
        let several =
            crate::simd::scalars(walk.text, walk.index, first + row * stride, stride, room);
        row += several;
        // SAFETY: so many were written.
        unsafe { spans.set_len(begin + row) };
        // What stopped it is among the next eight.
        let end = rows.min(row + 8);
        while row < end {
            let place = first + row * stride;
            let Some(span) = walk.plain_scalar(place).or_else(|| walk.span(place)) else {
                return row;
            };
            spans.push(span);
            row += 1;
        }
    }
    rows
}

/// The place behind the value whose bracket is at `open`, of a sound record.
fn skipped(kinds: &[u8], open: usize) -> Option<usize> {
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
fn is_same(one: &[u8], other: &[u8]) -> bool {
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
