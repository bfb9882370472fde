//! The exact reader of one record: it reads byte by byte and reports the exact fault.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use hashbrown::HashMap;

use super::grammar::{JsonCursor, JsonScalar, describe_value_kind, is_json_whitespace};
use super::object_plan::{ObjectPlan, ValuePlan};
use super::record_sequence::MISSING_COMMA_MARKER;
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::text_fault::{TextFault, TextFaultKind, value_excerpt};
use crate::unknown_keys::KeyTally;
use crate::value_parsing::{describe_type, is_text_type};
use crate::value_span::ValueSpan;

/// An exact reader of a record.
pub(super) struct FaultReportingReader<'a> {
    cursor: JsonCursor<'a>,
    /// Start of the record in its block.
    record_start: usize,
    mismatch_is_null: bool,
    /// Path of the current value in the record: `a.b[2].c`.
    path: String,
    /// Starts of values with a wrong shape, except those that a later value of the same key
    /// replaced. They are reported only if the record is JSON.
    mismatch_starts: Vec<usize>,
    /// Start of the one to describe, and its fault.
    described_start: Option<usize>,
    described_fault: Option<TextFault>,
    /// Start of the value whose path is wanted.
    sought_start: Option<usize>,
    pub(super) found_path: Option<String>,
    /// Counts of keys that no column has.
    key_tally: Option<&'a RefCell<KeyTally>>,
}

impl<'a> FaultReportingReader<'a> {
    /// Returns a reader of `record`, which has no line end.
    pub(super) fn new(record: &'a [u8], base: usize, strict: bool, mismatch_is_null: bool) -> Self {
        Self {
            cursor: JsonCursor::new(record, strict),
            record_start: base,
            mismatch_is_null,
            path: String::new(),
            mismatch_starts: Vec::new(),
            described_start: None,
            described_fault: None,
            sought_start: None,
            found_path: None,
            key_tally: None,
        }
    }

    /// Counts the keys that no column has.
    pub(super) fn with_key_tally(self, tally: &'a RefCell<KeyTally>) -> Self {
        Self { key_tally: Some(tally), ..self }
    }

    /// Returns a reader that stores the path of the value whose span starts at `at` in `found_path`.
    pub(super) fn with_sought_value(record: &'a [u8], at: usize) -> Self {
        Self { sought_start: Some(at), ..Self::new(record, 0, false, true) }
    }

    /// Reads the record into the columns.
    pub(super) fn read_record(
        &mut self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
    ) -> Result<(), TextFault> {
        if let Err(error) = std::str::from_utf8(self.cursor.text) {
            return Err(TextFault::new(
                error.valid_up_to(),
                TextFaultKind::InvalidUtf8 { field: None },
            ));
        }
        if self.cursor.text == [MISSING_COMMA_MARKER] {
            let reason = "expected a comma between two records of an array".to_owned();
            return Err(TextFault::new(0, TextFaultKind::SyntaxError(reason)));
        }
        let first = self.cursor.peek_within("a value")?;
        let is_object = first == b'{';
        let start = self.cursor.position;
        let odd = match first {
            b',' => Some("a comma with no record before it"),
            b'}' | b']' => Some("a closing bracket that nothing opened, or a comma before it"),
            _ => None,
        };
        if let Some(found) = odd {
            let (expected, found) = ("an object".to_owned(), found.to_owned());
            return Err(TextFault::new(start, TextFaultKind::WrongShape { expected, found }));
        }
        if is_object {
            self.read_object(wanted, columns)?;
        } else {
            self.cursor.checks_skipped_values = true;
            self.cursor.skip_value()?;
        }
        if self.cursor.peek().is_some() {
            return Err(TextFault::new(self.cursor.position, TextFaultKind::TrailingBytes));
        }
        if !is_object {
            let found = describe_value_kind(first).unwrap_or("something else").to_owned();
            let expected = "an object".to_owned();
            return Err(TextFault::new(start, TextFaultKind::WrongShape { expected, found }));
        }
        match (self.described_fault.take(), self.mismatch_starts.first()) {
            (Some(fault), _) => Err(fault),
            (None, None) => Ok(()),
            // The path is known only on the way to the value; the caller discards the columns' values.
            (None, Some(first)) => {
                let JsonCursor { text, checks_skipped_values: strict, .. } = self.cursor;
                let mut again = FaultReportingReader::new(text, self.record_start, strict, false);
                again.described_start = Some(*first);
                again.read_record(wanted, columns)
            }
        }
    }

    fn read_object(
        &mut self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
    ) -> Result<(), TextFault> {
        wanted.begin_object();
        // Members that contain a value of the wrong shape.
        let mut suspects: Vec<(usize, Range<usize>)> = Vec::new();
        self.cursor.position += 1;
        if self.cursor.peek_within("an object")? == b'}' {
            self.cursor.position += 1;
        } else {
            loop {
                let key = self.cursor.read_key()?;
                let raw = &self.cursor.text[key.start..key.end];
                let mut name = Vec::new();
                let is_sound = super::unescape_string(raw, &mut name);
                let place = if is_sound { wanted.find_by_name(&name) } else { None };
                match place {
                    None => {
                        let name = if is_sound { &name[..] } else { raw };
                        if let Some(tally) = self.key_tally.filter(|_| wanted.is_unknown(name)) {
                            let mut tally = tally.borrow_mut();
                            let id = tally.intern_key(&wanted.scope, name);
                            tally.note_record_key(id, self.record_start + key.start - 1);
                        }
                        self.cursor.skip_value()?;
                    }
                    Some(place) => {
                        if let Some(at) = suspects.iter().position(|(of, _)| *of == place) {
                            self.discard_mismatches_in(suspects.swap_remove(at).1);
                        }
                        let (start, before) = (self.cursor.position, self.mismatch_starts.len());
                        self.read_member(wanted, columns, place)?;
                        if self.mismatch_starts.len() > before {
                            suspects.push((place, start..self.cursor.position));
                        }
                    }
                }
                if !self.cursor.take_comma_or_end(b'}')? {
                    break;
                }
            }
        }
        wanted.for_each_missing(|key| columns[key].push_null());
        Ok(())
    }

    /// Discards the mismatches in a range of the record.
    fn discard_mismatches_in(&mut self, range: Range<usize>) {
        let index = |at: usize| self.mismatch_starts.partition_point(|start| *start < at);
        self.mismatch_starts.drain(index(range.start)..index(range.end));
    }

    fn read_member(
        &mut self,
        wanted: &mut ObjectPlan,
        columns: &mut [ColumnDecoder],
        place: usize,
    ) -> Result<(), TextFault> {
        let (mut place, start, depth) = (place, self.cursor.position, self.path.len());
        loop {
            self.cursor.position = start;
            let column = &mut columns[place];
            if !wanted.mark_found(place) {
                column.pop_row();
            }
            if depth > 0 {
                self.path.push('.');
            }
            self.path.push_str(column.field.name());
            self.read_value(&mut wanted.value_plans[place], column)?;
            self.path.truncate(depth);
            match wanted.next_same_name(place) {
                Some(twin) => place = twin,
                None => return Ok(()),
            }
        }
    }

    fn read_value(
        &mut self,
        plan: &mut ValuePlan,
        column: &mut ColumnDecoder,
    ) -> Result<(), TextFault> {
        let first = self.cursor.peek_within("a value")?;
        let depth = self.path.len();
        match (plan, &mut column.node) {
            (ValuePlan::Struct(wanted), ColumnNode::Struct { parts, validity })
                if first == b'{' =>
            {
                self.read_object(wanted, parts)?;
                validity.append_non_null();
            }
            (ValuePlan::List(plan), ColumnNode::List { ends, item }) if first == b'[' => {
                let mut count = ends.item_count();
                self.cursor.position += 1;
                if self.cursor.peek_within("an array")? == b']' {
                    self.cursor.position += 1;
                } else {
                    for index in 0.. {
                        self.path.push_str(&format!("[{index}]"));
                        self.read_value(plan, item)?;
                        self.path.truncate(depth);
                        count += 1;
                        if !self.cursor.take_comma_or_end(b']')? {
                            break;
                        }
                    }
                }
                ends.end_row(count, true);
            }
            (ValuePlan::Map(entries), ColumnNode::Map { ends, key: keys, value, .. })
                if first == b'{' =>
            {
                let replaced = self.find_replaced_members();
                let mut count = ends.item_count();
                self.cursor.position += 1;
                if self.cursor.peek_within("an object")? == b'}' {
                    self.cursor.position += 1;
                } else {
                    loop {
                        self.cursor.peek();
                        let key_at = self.cursor.position;
                        let key = self.cursor.read_key()?;
                        let raw = &self.cursor.text[key.start..key.end];
                        if let Some(bad) = super::grammar::find_bad_escape(raw) {
                            let reason = "an escape that stands for nothing";
                            return Err(JsonCursor::syntax_fault(key.start + bad, reason));
                        }
                        debug_assert!(self.cursor.text.get(key_at) == Some(&b'"'));
                        let ColumnNode::Leaf { spans, .. } = &mut keys.node else {
                            return Err(JsonCursor::syntax_fault(key_at, "keys are text"));
                        };
                        self.path.push('.');
                        self.path.push_str(&value_excerpt(&String::from_utf8_lossy(raw)));
                        if replaced.binary_search(&key_at).is_ok() {
                            self.skip_strictly()?;
                        } else {
                            spans.push(self.text_span(key.start, key.end, key.has_escapes));
                            self.read_value(&mut entries.value_plan, value)?;
                            count += 1;
                        }
                        self.path.truncate(depth);
                        if !self.cursor.take_comma_or_end(b'}')? {
                            break;
                        }
                    }
                }
                ends.end_row(count, true);
            }
            (ValuePlan::Leaf, ColumnNode::Leaf { spans, .. }) if !matches!(first, b'{' | b'[') => {
                let start = self.cursor.position;
                let result = if first == b'"' {
                    self.cursor.read_string(true).map(|text| {
                        self.note_path(text.start);
                        self.text_span(text.start, text.end, text.has_escapes)
                    })
                } else {
                    self.cursor.read_scalar().map(|(scalar, _)| match scalar {
                        JsonScalar::Null => ValueSpan::NULL,
                        _ => {
                            self.note_path(start);
                            self.plain_span(start, self.cursor.position)
                        }
                    })
                };
                let span = result.map_err(|mut fault| {
                    fault.column = Some(self.path.clone());
                    fault
                })?;
                spans.push(span);
            }
            (ValuePlan::Leaf, ColumnNode::Leaf { spans, .. })
                if matches!(first, b'{' | b'[') && is_text_type(column.field.data_type()) =>
            {
                let start = self.cursor.position;
                self.note_path(start);
                self.skip_strictly()?;
                spans.push(self.plain_span(start, self.cursor.position));
            }
            _ => return self.read_null_or_mismatch(column, first),
        }
        Ok(())
    }

    /// Returns the positions, in ascending order, of the keys that the next object repeats later: the last
    /// entry of a key counts. For an object that is not JSON it returns some of them, since the reader then
    /// rejects the record.
    fn find_replaced_members(&self) -> Vec<usize> {
        let mut cursor = self.cursor.clone();
        let (mut last, mut replaced) = (HashMap::new(), Vec::new());
        let mut look = || -> Result<(), TextFault> {
            cursor.position += 1;
            if cursor.peek_within("an object")? == b'}' {
                return Ok(());
            }
            loop {
                cursor.peek();
                let at = cursor.position;
                let key = cursor.read_key()?;
                let raw = &cursor.text[key.start..key.end];
                let mut name = Vec::with_capacity(raw.len());
                let name = match key.has_escapes && super::unescape_string(raw, &mut name) {
                    true => Cow::Owned(name),
                    false => Cow::Borrowed(raw),
                };
                replaced.extend(last.insert(name, at));
                cursor.skip_value()?;
                if !cursor.take_comma_or_end(b'}')? {
                    return Ok(());
                }
            }
        };
        // Reading the object finds the same error.
        _ = look();
        replaced.sort_unstable();
        replaced
    }

    /// Skips a value and checks that all of it is JSON.
    fn skip_strictly(&mut self) -> Result<(), TextFault> {
        let strict = std::mem::replace(&mut self.cursor.checks_skipped_values, true);
        self.cursor
            .skip_value()
            .map_err(|fault| TextFault { column: Some(self.path.clone()), ..fault })?;
        self.cursor.checks_skipped_values = strict;
        Ok(())
    }

    /// Reads a null, or a value of another shape than the column's.
    fn read_null_or_mismatch(
        &mut self,
        column: &mut ColumnDecoder,
        first: u8,
    ) -> Result<(), TextFault> {
        let start = self.cursor.position;
        if first == b'n' && self.cursor.clone().read_token().is_ok_and(|token| token == b"null") {
            column.push_null();
            self.cursor.position += 4;
            return Ok(());
        }
        column.push_mismatch(self.record_start + start);
        if self.mismatch_is_null {
            return self.cursor.skip_value();
        }
        let Some(kind) = describe_value_kind(first) else {
            return Err(TextFault {
                column: Some(self.path.clone()),
                ..JsonCursor::syntax_fault(start, "expected a value")
            });
        };
        self.skip_strictly()?;
        self.mismatch_starts.push(start);
        if self.described_start == Some(start) && self.described_fault.is_none() {
            let value = String::from_utf8_lossy(&self.cursor.text[start..self.cursor.position]);
            let found = format!("{kind} `{}`", value_excerpt(&value));
            let expected = describe_type(column.field.data_type());
            let kind = TextFaultKind::WrongShape { expected, found };
            self.described_fault = Some(TextFault::in_column(self.path.clone(), start, kind));
        }
        Ok(())
    }

    fn note_path(&mut self, start: usize) {
        if self.sought_start == Some(start) && self.found_path.is_none() {
            self.found_path = Some(self.path.clone());
        }
    }

    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    fn plain_span(&self, start: usize, end: usize) -> ValueSpan {
        ValueSpan::new_plain((self.record_start + start) as u32, (self.record_start + end) as u32)
    }

    #[allow(clippy::cast_possible_truncation)] // As above.
    fn text_span(&self, start: usize, end: usize, has_escapes: bool) -> ValueSpan {
        let (start, end) = ((self.record_start + start) as u32, (self.record_start + end) as u32);
        if has_escapes {
            ValueSpan::new_escaped(start, end)
        } else {
            ValueSpan::new_plain(start, end)
        }
    }
}

/// Returns the record without trailing white space, its line end included.
pub(super) fn trim_trailing_whitespace(record: &[u8]) -> &[u8] {
    let end = record.iter().rposition(|byte| !is_json_whitespace(*byte)).map_or(0, |last| last + 1);
    &record[..end]
}
