//! JSON texts one behind the other, whatever stands between them: where each of them is.
//!
//! Most files of JSON have one object per line, and can be cut at any line end. Others come from
//! programs that print objects for people, that end no line, that follow RFC 7464 ("JSON Text
//! Sequences", a separator before each object and a line end behind it), or that write one array:
//!
//! ```text
//!   {"a": 1}{"a": 2}        ␞{"a": 1}⏎␞{"a": 2}⏎        {        [{"a": 1},
//!   └──────┘└──────┘         └──────┘  └──────┘           "a": 1    └──────┘
//!                                                       }         {"a": 2}]
//!   {"a": 1},⏎{"a": 2},⏎                                {…
//!   └──────┘  └──────┘                                  one record spans lines
//! ```
//!
//! All of them are one grammar, and a [`Scanner`] finds the records in any of them:
//!
//! ```text
//!   text    = *( space / separator / ⏎ / object [ "," ] / array )
//!   array   = "[" [ object *( "," object ) ] "]"
//! ```
//!
//! Any other text is a record of its own, which a decoder refuses: a comma too many, a scalar; and, up to its
//! line end, whatever no value goes on with, as a closing bracket that nothing opened. A comma that is missing in an
//! array is a record without a byte ([`MISSING_COMMA`]).
//!
//! A record that is cut off would go on up to the end of the text. The separator ␞, which no JSON text has in it, ends
//! it. So does a `{` at the beginning of a line, if the record began a line, too, and no JSON text has a `{` there: in
//! place of a key, or in a string that goes on from the line before.
//!
//! The first record tells whether a file has one object per line ([`layout`]). A file that has can be cut and is
//! never scanned; where two objects share a line of it all the same, [`first_of_line`] tells them apart.

use std::ops::Range;

use super::grammar::{JsonCursor, is_json_whitespace};
use crate::text_fault::TextFaultKind;

/// The separator that RFC 7464 puts before each text.
pub const RECORD_SEPARATOR: u8 = 0x1e;

/// The line that stands for a record without a byte, which [`Scanner`] finds where a comma is missing between two records
/// of an array. A decoder refuses it.
pub const MISSING_COMMA_MARKER: u8 = 0x1f;

/// The arrangement of the records of a JSON file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonLayout {
    /// One object per line, or no JSON: every line end ends a record.
    Lines,
    /// Anything else, which is read from its front.
    Sequence,
}

/// The layout of the file that begins with `head`, behind a byte-order mark; none if more of it has to be
/// seen. `is_all` says that there is no more.
///
/// The first record and the bytes up to its line end decide, so that the answer is the same however much more is
/// there.
///
/// ```
/// use tidemill_text::json::{Layout, layout};
///
/// assert_eq!(layout(b"{\"a\": 1}\n{\"a\"", false), Some(Layout::Lines));
/// assert_eq!(layout(b"{\"a\": 1}{\"a\"", false), Some(Layout::Sequence));
/// assert_eq!(layout(b"{\n  \"a\": 1\n", false), None);
/// ```
#[must_use]
pub fn detect_layout(head: &[u8], is_all: bool) -> Option<JsonLayout> {
    let unless_more = |layout| is_all.then_some(layout);
    let text = head.trim_ascii_start();
    match text.first() {
        None => return unless_more(JsonLayout::Lines),
        Some(b'[' | &RECORD_SEPARATOR) => return Some(JsonLayout::Sequence),
        Some(b'{') => {}
        Some(_) => return Some(JsonLayout::Lines),
    }
    let has_lines = |text: &[u8]| memchr::memchr(b'\n', text).is_some();
    let mut cursor = JsonCursor::new(text, false);
    match cursor.skip_value() {
        Ok(()) if has_lines(&text[..cursor.position]) => Some(JsonLayout::Sequence),
        Ok(()) => {
            let behind = &text[cursor.position..];
            match behind.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) {
                None => unless_more(JsonLayout::Lines),
                Some(b',' | b'{' | b'[' | &RECORD_SEPARATOR) => Some(JsonLayout::Sequence),
                Some(_) => Some(JsonLayout::Lines),
            }
        }
        Err(fault) if matches!(fault.kind, TextFaultKind::EndsInsideValue(_)) => {
            let is_spread = has_lines(text.trim_ascii_end());
            unless_more(if is_spread { JsonLayout::Sequence } else { JsonLayout::Lines })
        }
        // A record that a separator cuts off is no line. The separator may stand behind the head.
        Err(fault) => {
            let end = memchr::memchr(b'\n', text);
            let line = &text[..end.unwrap_or(text.len())];
            if fault.offset > line.len()
                && !is_object_at_line_start(text, fault.offset)
                && is_record_continued(line)
            {
                return Some(JsonLayout::Sequence);
            }
            match (memchr::memchr(RECORD_SEPARATOR, line), end) {
                (Some(_), _) => Some(JsonLayout::Sequence),
                (None, Some(_)) => Some(JsonLayout::Lines),
                (None, None) => unless_more(JsonLayout::Lines),
            }
        }
    }
}

/// Returns whether the record of a line goes on behind it.
fn is_record_continued(line: &[u8]) -> bool {
    let skipped = JsonCursor::new(line, false).skip_value();
    skipped.is_err_and(|fault| matches!(fault.kind, TextFaultKind::EndsInsideValue(_)))
}

/// Returns whether a `{` at the beginning of a line is at this place, as where the line before was cut off.
fn is_object_at_line_start(text: &[u8], at: usize) -> bool {
    text.get(at) == Some(&b'{') && at > 0 && text[at - 1] == b'\n'
}

/// Finds the records of a sequence that comes piece by piece.
///
/// ```
/// use tidemill_text::json::Scanner;
///
/// let text = b"{\"a\":\n1}{\"b\": \"}{\"}\n[{}, 7]";
/// let mut scanner = Scanner::new(0);
/// let mut records = Vec::new();
/// let (first, second) = text.split_at(11);
/// scanner.scan(first, &mut records, usize::MAX);
/// scanner.scan(second, &mut records, usize::MAX);
/// assert_eq!(scanner.finish(&mut records), None);
/// assert_eq!(records, [0..8, 8..19, 21..23, 25..26]);
/// ```
#[derive(Debug, Clone)]
pub struct RecordScanner {
    state: ScanState,
    /// Number of brackets of the record at hand that are open. Which kind each is, the decoder checks.
    depth: u64,
    /// The kinds of the innermost 64 of them, the last one in the lowest bit: 1 for an object. Those further out are
    /// taken for arrays.
    object_bits: u64,
    /// True directly behind a colon, white space aside.
    is_behind_colon: bool,
    /// True if the record at hand begins a line.
    begins_line: bool,
    /// True if the last byte was a line end, or if there was none.
    is_at_line_start: bool,
    /// True if an array of records is open.
    in_array: bool,
    last_item: LastItem,
    /// Offset of the record at hand.
    record_start: u64,
    /// Offset of the next byte.
    position: u64,
    /// Offset at which an array was broken off.
    broken_array_offset: Option<u64>,
}

/// Offset of the end of the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Between records.
    BetweenRecords,
    /// Within an object or array.
    InContainer,
    /// Within a string.
    InString,
    /// Behind a backslash in a string.
    AfterBackslash,
    /// Within a number or word.
    InToken,
    /// Directly behind an object, array or string.
    AfterValue,
    /// In a line that goes on as no JSON does.
    InGarbage,
}

/// The last separator between records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastItem {
    NoItem,
    Record,
    /// A record of garbage, which a comma may be part of.
    Garbage,
    Comma,
}

/// Bytes that mean something within an object or array, strings aside.
const CONTAINER_MARKS: [bool; 256] = {
    let mut marks = [false; 256];
    let mut at = 0;
    while at < 7 {
        marks[[b'"', b'{', b'}', b'[', b']', b':', RECORD_SEPARATOR][at] as usize] = true;
        at += 1;
    }
    marks
};

impl RecordScanner {
    /// A scanner at the beginning of a sequence, whose first byte has this offset.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self {
            state: ScanState::BetweenRecords,
            depth: 0,
            object_bits: 0,
            is_behind_colon: false,
            begins_line: false,
            is_at_line_start: true,
            in_array: false,
            last_item: LastItem::NoItem,
            record_start: offset,
            position: offset,
            broken_array_offset: None,
        }
    }

    /// Offset of the record that has begun and not ended, if one has.
    #[must_use]
    pub fn begun_record_offset(&self) -> Option<u64> {
        (self.state != ScanState::BetweenRecords).then_some(self.record_start)
    }

    /// Returns whether an array of records is open.
    #[must_use]
    pub fn is_in_array(&self) -> bool {
        self.in_array
    }

    /// Returns the offset at which a separator broke off an array; nothing behind it is read.
    #[must_use]
    pub fn broken_array_offset(&self) -> Option<u64> {
        self.broken_array_offset
    }

    /// Takes the next piece and adds the offsets of the records that end in it, until there are `max` of them.
    /// Returns how many bytes it took.
    ///
    /// A record's end is known from what is behind it. A record without a byte stands where a comma is missing.
    pub fn scan(&mut self, piece: &[u8], records: &mut Vec<Range<u64>>, max: usize) -> usize {
        let first = self.position;
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if records.len() >= max || self.broken_array_offset.is_some() {
                break;
            }
            self.position = first + at as u64;
            let begins_line = match at.checked_sub(1).and_then(|before| piece.get(before)) {
                Some(before) => *before == b'\n',
                None => self.is_at_line_start,
            };
            if byte == b'{' && begins_line && self.is_record_cut_off() {
                self.end_record(self.position, records);
                self.last_item = LastItem::NoItem;
                continue;
            }
            let taken = match self.state {
                ScanState::BetweenRecords if self.is_comma_missing(byte) => {
                    records.push(self.position..self.position);
                    self.last_item = LastItem::NoItem;
                    0
                }
                ScanState::BetweenRecords => {
                    self.begins_line = begins_line;
                    self.take_between_records(byte, records)
                }
                ScanState::InToken | ScanState::AfterValue => self.take_after_value(byte, records),
                ScanState::InGarbage => {
                    let rest = &piece[at..];
                    match memchr::memchr2(b'\n', RECORD_SEPARATOR, rest) {
                        None => rest.len(),
                        Some(plain) => {
                            self.position += plain as u64;
                            self.end_record(self.position, records);
                            plain
                        }
                    }
                }
                ScanState::InContainer => {
                    let rest = &piece[at..];
                    let mark = rest.iter().position(|byte| CONTAINER_MARKS[usize::from(*byte)]);
                    let plain = mark.unwrap_or(rest.len());
                    self.is_behind_colon &=
                        rest[..plain].iter().all(|byte| is_json_whitespace(*byte));
                    match rest.get(plain) {
                        // Whether it begins a line, and another record, is looked at first.
                        Some(b'{') if plain > 0 => plain,
                        None => plain,
                        Some(mark) => {
                            self.position += plain as u64;
                            plain + self.take_in_container(*mark, records)
                        }
                    }
                }
                ScanState::InString => {
                    let rest = &piece[at..];
                    let end = memchr::memchr3(b'"', b'\\', RECORD_SEPARATOR, rest);
                    let line = memchr::memmem::find(&rest[..end.unwrap_or(rest.len())], b"\n{");
                    match (line, end) {
                        (Some(line), _) => line + 1,
                        (None, None) => rest.len(),
                        (None, Some(plain)) => {
                            self.position += plain as u64;
                            match rest[plain] {
                                b'\\' => self.state = ScanState::AfterBackslash,
                                b'"' if self.depth == 0 => self.state = ScanState::AfterValue,
                                b'"' => self.state = ScanState::InContainer,
                                _ => self.end_record(self.position, records),
                            }
                            plain + usize::from(rest[plain] != RECORD_SEPARATOR)
                        }
                    }
                }
                ScanState::AfterBackslash if byte == RECORD_SEPARATOR => {
                    self.end_record(self.position, records);
                    0
                }
                ScanState::AfterBackslash => {
                    self.state = ScanState::InString;
                    1
                }
            };
            at += taken;
        }
        if let Some(last) = at.checked_sub(1).and_then(|last| piece.get(last)) {
            self.is_at_line_start = *last == b'\n';
        }
        self.position = first + at as u64;
        at
    }

    /// Ends the text: the record at hand ends with it. Returns the offset where an array was broken off, if one was.
    pub fn finish(&mut self, records: &mut Vec<Range<u64>>) -> Option<u64> {
        if self.state != ScanState::BetweenRecords {
            self.end_record(self.position, records);
        }
        self.broken_array_offset.or(self.in_array.then_some(self.position))
    }

    /// Ends the record at hand before an offset.
    fn end_record(&mut self, end_record: u64, records: &mut Vec<Range<u64>>) {
        records.push(self.record_start..end_record);
        self.depth = 0;
        self.last_item = match self.state {
            ScanState::InGarbage => LastItem::Garbage,
            _ => LastItem::Record,
        };
        self.state = ScanState::BetweenRecords;
    }

    /// Returns whether a `{` at the beginning of a line is no part of the record at hand, which is cut off before it.
    fn is_record_cut_off(&self) -> bool {
        let is_no_place = match self.state {
            ScanState::InContainer => self.object_bits & 1 == 1 && !self.is_behind_colon,
            ScanState::InString => true,
            _ => false,
        };
        is_no_place && self.begins_line
    }

    /// Returns whether a byte between records begins a value of an array behind another one, with no comma between.
    fn is_comma_missing(&self, byte: u8) -> bool {
        let is_value = !is_json_whitespace(byte) && !matches!(byte, b',' | b']' | RECORD_SEPARATOR);
        self.in_array && self.last_item == LastItem::Record && is_value
    }

    /// Takes a byte between records.
    fn take_between_records(&mut self, byte: u8, records: &mut Vec<Range<u64>>) -> usize {
        let mut alone = || records.push(self.position..self.position + 1);
        match byte {
            _ if is_json_whitespace(byte) => {}
            RECORD_SEPARATOR if self.in_array => {
                self.broken_array_offset = Some(self.position);
                return 0;
            }
            RECORD_SEPARATOR => self.last_item = LastItem::NoItem,
            b',' if matches!(self.last_item, LastItem::Record | LastItem::Garbage) => {
                self.last_item = LastItem::Comma
            }
            b',' => alone(),
            b'[' if !self.in_array => (self.in_array, self.last_item) = (true, LastItem::NoItem),
            b']' if self.in_array => {
                if self.last_item == LastItem::Comma {
                    alone();
                }
                (self.in_array, self.last_item) = (false, LastItem::Record);
            }
            _ => {
                self.record_start = self.position;
                self.state = match byte {
                    b'{' | b'[' => ScanState::InContainer,
                    b'"' => ScanState::InString,
                    b'}' | b']' | b':' => ScanState::InGarbage,
                    _ => ScanState::InToken,
                };
                self.depth = u64::from(self.state == ScanState::InContainer);
                (self.object_bits, self.is_behind_colon) = (u64::from(byte == b'{'), false);
            }
        }
        1
    }

    /// Takes a byte directly behind a value, or behind a part of a token.
    fn take_after_value(&mut self, byte: u8, records: &mut Vec<Range<u64>>) -> usize {
        let is_token = self.state == ScanState::InToken;
        let ends = is_json_whitespace(byte)
            || matches!(byte, b',' | RECORD_SEPARATOR)
            || byte == b']' && self.in_array
            || matches!(byte, b'{' | b'[') && !is_token;
        if ends {
            self.end_record(self.position, records);
            return 0;
        }
        let is_plain = !matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b':');
        if !(is_token && is_plain) {
            self.state = ScanState::InGarbage;
        }
        1
    }

    /// Takes one of [`MARKS`] within an object or array.
    fn take_in_container(&mut self, byte: u8, records: &mut Vec<Range<u64>>) -> usize {
        self.is_behind_colon = byte == b':';
        match byte {
            b':' => {}
            b'"' => self.state = ScanState::InString,
            b'{' | b'[' => {
                self.depth += 1;
                self.object_bits = (self.object_bits << 1) | u64::from(byte == b'{');
            }
            RECORD_SEPARATOR => {
                self.end_record(self.position, records);
                return 0;
            }
            _ => {
                self.depth = self.depth.saturating_sub(1);
                self.object_bits >>= 1;
                if self.depth == 0 {
                    self.state = ScanState::AfterValue;
                }
            }
        }
        1
    }
}

/// Returns whether a byte may stand before an object in its line.
fn can_precede_object(byte: u8) -> bool {
    is_json_whitespace(byte) || byte == RECORD_SEPARATOR
}

/// A line without what may stand before and behind an object in it: the number of bytes before, and the object.
pub(crate) fn strip_separators(line: &[u8]) -> (usize, &[u8]) {
    let start = line.iter().position(|byte| !can_precede_object(*byte)).unwrap_or(line.len());
    let without = |text: &'_ [u8]| {
        text.iter().rposition(|byte| !can_precede_object(*byte)).map_or(0, |last| last + 1)
    };
    let object = &line[start..];
    let mut end = without(object);
    // A lone comma is no object's.
    if end > 1 && object[end - 1] == b',' {
        end = without(&object[..end - 1]);
    }
    (start, &object[..end])
}

/// Returns whether there is nothing in a line but what may stand before an object.
pub(crate) fn is_blank_line(line: &[u8]) -> bool {
    line.iter().all(|byte| can_precede_object(*byte))
}

/// The length of a line's first record with all that stands before and behind it: up to the next record in the line,
/// or all of the line.
pub(crate) fn first_record_length(line: &[u8]) -> usize {
    let skip = |from: usize| {
        let rest = line.get(from..).unwrap_or_default();
        rest.iter()
            .position(|byte| !can_precede_object(*byte))
            .map_or(line.len(), |more| from + more)
    };
    let start = skip(0);
    // No record goes on behind a separator.
    let separator = memchr::memchr(RECORD_SEPARATOR, &line[start..]);
    let limit = separator.map_or(line.len(), |at| start + at);
    let up_to_limit = skip(limit);
    let mut cursor = JsonCursor::new(&line[start..limit], false);
    if line.get(start) != Some(&b'{') || cursor.skip_value().is_err() {
        return up_to_limit;
    }
    let mut next = skip(start + cursor.position);
    if line.get(next) == Some(&b',') {
        next = skip(next + 1);
    }
    match line.get(next) {
        Some(b'{') => next,
        _ => up_to_limit.max(if next == line.len() { next } else { 0 }),
    }
}
