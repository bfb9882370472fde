//! One record, read byte by byte: what says exactly what is wrong with it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use hashbrown::HashMap;

use super::grammar::{Cursor, Scalar, is_white, kind};
use super::plan::{Object, Wanted};
use super::sequence::MISSING_COMMA;
use crate::column::{Column, Node};
use crate::fault::{Fault, FaultKind, shown};
use crate::keys::KeyTally;
use crate::span::Span;
use crate::values::{describe, is_text};

/// Reads a record.
pub(super) struct Reader<'a> {
    cursor: Cursor<'a>,
    /// Where the record starts in its block.
    base: usize,
    mismatch_is_null: bool,
    /// Where in the record this is: `a.b[2].c`.
    path: String,
    /// Where values of the wrong shape start, but for those that a later one of the same key took
    /// the place of: told only of a record that is JSON.
    mismatches: Vec<usize>,
    /// Which of them is to be described, and what is wrong with it.
    described: Option<usize>,
    mismatch: Option<Fault>,
    /// Whose path is wanted: that of the value which starts here.
    sought: Option<usize>,
    pub(super) found: Option<String>,
    /// The tally of keys that no column has.
    tally: Option<&'a RefCell<KeyTally>>,
}

impl<'a> Reader<'a> {
    /// A reader of `record`, which has no line end.
    pub(super) fn new(record: &'a [u8], base: usize, strict: bool, mismatch_is_null: bool) -> Self {
        Self {
            cursor: Cursor::new(record, strict),
            base,
            mismatch_is_null,
            path: String::new(),
            mismatches: Vec::new(),
            described: None,
            mismatch: None,
            sought: None,
            found: None,
            tally: None,
        }
    }

    /// Notes the keys that no column has.
    pub(super) fn counting(self, tally: &'a RefCell<KeyTally>) -> Self {
        Self { tally: Some(tally), ..self }
    }

    /// A reader that notes in `found` the path of the value whose span starts at `at`.
    pub(super) fn seeking(record: &'a [u8], at: usize) -> Self {
        Self { sought: Some(at), ..Self::new(record, 0, false, true) }
    }

    /// Reads the record into the columns.
    pub(super) fn record(
        &mut self,
        wanted: &mut Object,
        columns: &mut [Column],
    ) -> Result<(), Fault> {
        if let Err(error) = std::str::from_utf8(self.cursor.text) {
            return Err(Fault::new(error.valid_up_to(), FaultKind::Utf8 { field: None }));
        }
        if self.cursor.text == [MISSING_COMMA] {
            let reason = "expected a comma between two records of an array".to_owned();
            return Err(Fault::new(0, FaultKind::Syntax(reason)));
        }
        let first = self.cursor.peek_in("a value")?;
        let is_object = first == b'{';
        let start = self.cursor.at;
        let odd = match first {
            b',' => Some("a comma with no record before it"),
            b'}' | b']' => Some("a closing bracket that nothing opened, or a comma before it"),
            _ => None,
        };
        if let Some(found) = odd {
            let (expected, found) = ("an object".to_owned(), found.to_owned());
            return Err(Fault::new(start, FaultKind::Shape { expected, found }));
        }
        if is_object {
            self.object(wanted, columns)?;
        } else {
            self.cursor.strict = true;
            self.cursor.skip()?;
        }
        if self.cursor.peek().is_some() {
            return Err(Fault::new(self.cursor.at, FaultKind::Trailing));
        }
        if !is_object {
            let found = kind(first).unwrap_or("something else").to_owned();
            let expected = "an object".to_owned();
            return Err(Fault::new(start, FaultKind::Shape { expected, found }));
        }
        match (self.mismatch.take(), self.mismatches.first()) {
            (Some(fault), _) => Err(fault),
            (None, None) => Ok(()),
            // Its path is known only on the way to it; what is in the columns is forgotten.
            (None, Some(first)) => {
                let Cursor { text, strict, .. } = self.cursor;
                let mut again = Reader::new(text, self.base, strict, false);
                again.described = Some(*first);
                again.record(wanted, columns)
            }
        }
    }

    fn object(&mut self, wanted: &mut Object, columns: &mut [Column]) -> Result<(), Fault> {
        wanted.begin();
        // Members within which something is of the wrong shape.
        let mut suspects: Vec<(usize, Range<usize>)> = Vec::new();
        self.cursor.at += 1;
        if self.cursor.peek_in("an object")? == b'}' {
            self.cursor.at += 1;
        } else {
            loop {
                let key = self.cursor.key()?;
                let raw = &self.cursor.text[key.start..key.end];
                let mut name = Vec::new();
                let is_sound = super::unescape(raw, &mut name);
                let place = if is_sound { wanted.find_name(&name) } else { None };
                match place {
                    None => {
                        let name = if is_sound { &name[..] } else { raw };
                        if let Some(tally) = self.tally.filter(|_| wanted.is_unknown(name)) {
                            let mut tally = tally.borrow_mut();
                            let id = tally.key(&wanted.place, name);
                            tally.note(id, self.base + key.start - 1);
                        }
                        self.cursor.skip()?;
                    }
                    Some(place) => {
                        if let Some(at) = suspects.iter().position(|(of, _)| *of == place) {
                            self.forgive(suspects.swap_remove(at).1);
                        }
                        let (start, before) = (self.cursor.at, self.mismatches.len());
                        self.member(wanted, columns, place)?;
                        if self.mismatches.len() > before {
                            suspects.push((place, start..self.cursor.at));
                        }
                    }
                }
                if !self.cursor.goes_on(b'}')? {
                    break;
                }
            }
        }
        wanted.missing(|key| columns[key].push_null());
        Ok(())
    }

    /// Takes back what was said of a stretch of the record.
    fn forgive(&mut self, range: Range<usize>) {
        let index = |at: usize| self.mismatches.partition_point(|start| *start < at);
        self.mismatches.drain(index(range.start)..index(range.end));
    }

    fn member(
        &mut self,
        wanted: &mut Object,
        columns: &mut [Column],
        place: usize,
    ) -> Result<(), Fault> {
        let (mut place, start, depth) = (place, self.cursor.at, self.path.len());
        loop {
            self.cursor.at = start;
            let column = &mut columns[place];
            if !wanted.is_first(place) {
                column.forget_last();
            }
            if depth > 0 {
                self.path.push('.');
            }
            self.path.push_str(column.field.name());
            self.value(&mut wanted.plans[place], column)?;
            self.path.truncate(depth);
            match wanted.twin(place) {
                Some(twin) => place = twin,
                None => return Ok(()),
            }
        }
    }

    fn value(&mut self, plan: &mut Wanted, column: &mut Column) -> Result<(), Fault> {
        let first = self.cursor.peek_in("a value")?;
        let depth = self.path.len();
        match (plan, &mut column.node) {
            (Wanted::Struct(wanted), Node::Struct { parts, validity }) if first == b'{' => {
                self.object(wanted, parts)?;
                validity.append_non_null();
            }
            (Wanted::List(plan), Node::List { ends, item }) if first == b'[' => {
                let mut count = ends.items();
                self.cursor.at += 1;
                if self.cursor.peek_in("an array")? == b']' {
                    self.cursor.at += 1;
                } else {
                    for index in 0.. {
                        self.path.push_str(&format!("[{index}]"));
                        self.value(plan, item)?;
                        self.path.truncate(depth);
                        count += 1;
                        if !self.cursor.goes_on(b']')? {
                            break;
                        }
                    }
                }
                ends.push(count, true);
            }
            (Wanted::Map(entries), Node::Map { ends, key: keys, value, .. }) if first == b'{' => {
                let replaced = self.replaced_members();
                let mut count = ends.items();
                self.cursor.at += 1;
                if self.cursor.peek_in("an object")? == b'}' {
                    self.cursor.at += 1;
                } else {
                    loop {
                        self.cursor.peek();
                        let key_at = self.cursor.at;
                        let key = self.cursor.key()?;
                        let raw = &self.cursor.text[key.start..key.end];
                        if let Some(bad) = super::grammar::bad_escape(raw) {
                            let reason = "an escape that stands for nothing";
                            return Err(Cursor::not_json(key.start + bad, reason));
                        }
                        debug_assert!(self.cursor.text.get(key_at) == Some(&b'"'));
                        let Node::Leaf { spans, .. } = &mut keys.node else {
                            return Err(Cursor::not_json(key_at, "keys are text"));
                        };
                        self.path.push('.');
                        self.path.push_str(&shown(&String::from_utf8_lossy(raw)));
                        if replaced.binary_search(&key_at).is_ok() {
                            self.skip_strictly()?;
                        } else {
                            spans.push(self.text_span(key.start, key.end, key.has_escapes));
                            self.value(&mut entries.value, value)?;
                            count += 1;
                        }
                        self.path.truncate(depth);
                        if !self.cursor.goes_on(b'}')? {
                            break;
                        }
                    }
                }
                ends.push(count, true);
            }
            (Wanted::Leaf, Node::Leaf { spans, .. }) if !matches!(first, b'{' | b'[') => {
                let start = self.cursor.at;
                let result = if first == b'"' {
                    self.cursor.string(true).map(|text| {
                        self.note(text.start);
                        self.text_span(text.start, text.end, text.has_escapes)
                    })
                } else {
                    self.cursor.scalar().map(|(scalar, _)| match scalar {
                        Scalar::Null => Span::NULL,
                        _ => {
                            self.note(start);
                            self.plain_span(start, self.cursor.at)
                        }
                    })
                };
                let span = result.map_err(|mut fault| {
                    fault.column = Some(self.path.clone());
                    fault
                })?;
                spans.push(span);
            }
            (Wanted::Leaf, Node::Leaf { spans, .. })
                if matches!(first, b'{' | b'[') && is_text(column.field.data_type()) =>
            {
                let start = self.cursor.at;
                self.note(start);
                self.skip_strictly()?;
                spans.push(self.plain_span(start, self.cursor.at));
            }
            _ => return self.other_shape(column, first),
        }
        Ok(())
    }

    /// Returns the places, in ascending order, of the keys that the next object repeats behind them: the last entry of a key
    /// counts. Of an object that is not JSON it returns some of them, since the record is refused when it is read.
    fn replaced_members(&self) -> Vec<usize> {
        let mut cursor = self.cursor.clone();
        let (mut last, mut replaced) = (HashMap::new(), Vec::new());
        let mut look = || -> Result<(), Fault> {
            cursor.at += 1;
            if cursor.peek_in("an object")? == b'}' {
                return Ok(());
            }
            loop {
                cursor.peek();
                let at = cursor.at;
                let key = cursor.key()?;
                let raw = &cursor.text[key.start..key.end];
                let mut name = Vec::with_capacity(raw.len());
                let name = match key.has_escapes && super::unescape(raw, &mut name) {
                    true => Cow::Owned(name),
                    false => Cow::Borrowed(raw),
                };
                replaced.extend(last.insert(name, at));
                cursor.skip()?;
                if !cursor.goes_on(b'}')? {
                    return Ok(());
                }
            }
        };
        // Reading the object finds the same error.
        _ = look();
        replaced.sort_unstable();
        replaced
    }

    /// Skips a value, all of which has to be JSON.
    fn skip_strictly(&mut self) -> Result<(), Fault> {
        let strict = std::mem::replace(&mut self.cursor.strict, true);
        self.cursor.skip().map_err(|fault| Fault { column: Some(self.path.clone()), ..fault })?;
        self.cursor.strict = strict;
        Ok(())
    }

    /// A null, or a value of another shape than the column's.
    fn other_shape(&mut self, column: &mut Column, first: u8) -> Result<(), Fault> {
        let start = self.cursor.at;
        if first == b'n' && self.cursor.clone().token().is_ok_and(|token| token == b"null") {
            column.push_null();
            self.cursor.at += 4;
            return Ok(());
        }
        column.push_mismatch(self.base + start);
        if self.mismatch_is_null {
            return self.cursor.skip();
        }
        let Some(kind) = kind(first) else {
            return Err(Fault {
                column: Some(self.path.clone()),
                ..Cursor::not_json(start, "expected a value")
            });
        };
        self.skip_strictly()?;
        self.mismatches.push(start);
        if self.described == Some(start) && self.mismatch.is_none() {
            let value = String::from_utf8_lossy(&self.cursor.text[start..self.cursor.at]);
            let found = format!("{kind} `{}`", shown(&value));
            let expected = describe(column.field.data_type());
            let kind = FaultKind::Shape { expected, found };
            self.mismatch = Some(Fault::of(self.path.clone(), start, kind));
        }
        Ok(())
    }

    fn note(&mut self, start: usize) {
        if self.sought == Some(start) && self.found.is_none() {
            self.found = Some(self.path.clone());
        }
    }

    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn plain_span(&self, start: usize, end: usize) -> Span {
        Span::plain((self.base + start) as u32, (self.base + end) as u32)
    }

    #[allow(clippy::cast_possible_truncation)] // As above.
    fn text_span(&self, start: usize, end: usize, has_escapes: bool) -> Span {
        let (start, end) = ((self.base + start) as u32, (self.base + end) as u32);
        if has_escapes { Span::escaped(start, end) } else { Span::plain(start, end) }
    }
}

/// The record without its line end and white space behind it.
pub(super) fn trimmed(record: &[u8]) -> &[u8] {
    let end = record.iter().rposition(|byte| !is_white(*byte)).map_or(0, |last| last + 1);
    &record[..end]
}
