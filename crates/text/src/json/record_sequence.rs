//! Boundaries of the records in any sequence of JSON texts, whatever separates them.
//!
//! Most JSON files have one object per line and can be cut at any line end. Others come from
//! programs that print objects for people, that write no line ends, that follow RFC 7464 ("JSON Text
//! Sequences", a separator before each object and a line end after it), or that write one array:
//!
//! ```text
//!   {"a": 1}{"a": 2}        ␞{"a": 1}⏎␞{"a": 2}⏎        {        [{"a": 1},
//!   └──────┘└──────┘         └──────┘  └──────┘           "a": 1    └──────┘
//!                                                       }         {"a": 2}]
//!   {"a": 1},⏎{"a": 2},⏎                                {…
//!   └──────┘  └──────┘                                  one record spans lines
//! ```
//!
//! All of them follow one grammar, and a [`RecordScanner`] finds the records in any of them:
//!
//! ```text
//!   text    = *( space / separator / ⏎ / object [ "," ] / array )
//!   array   = "[" [ object *( "," object ) ] "]"
//! ```
//!
//! Any other text is a record of its own, which a decoder rejects: a surplus comma, a scalar, and a text that
//! cannot continue a value, such as an unmatched closing bracket, up to its line end. A missing comma in an
//! array is an empty record ([`MISSING_COMMA_MARKER`]).
//!
//! A truncated record would extend to the end of the text. The separator ␞, which no JSON text contains, ends
//! it. So does a `{` at the beginning of a line if the record began a line too and JSON does not allow a `{`
//! there: in place of a key, or in a string that continues from the line before.
//!
//! The first record decides whether a file has one object per line ([`detect_layout`]). Such a file can be
//! cut and is never scanned; if two objects share a line of it, [`first_record_length`] separates them.

use std::ops::Range;

use super::grammar::{JsonCursor, is_json_whitespace};
use crate::text_fault::TextFaultKind;

/// The separator that RFC 7464 puts before each text.
pub const RECORD_SEPARATOR: u8 = 0x1e;

/// The line that stands for the empty record that [`RecordScanner`] emits where a comma is missing between
/// two records of an array. A decoder rejects it.
pub const MISSING_COMMA_MARKER: u8 = 0x1f;

/// The arrangement of the records of a JSON file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonLayout {
    /// One object per line, or no JSON: every line end ends a record.
    Lines,
    /// Anything else, which is read from its front.
    Sequence,
}

/// Returns the layout of the file that begins with `head`, after a byte-order mark; `None` if the answer
/// needs more of it. `is_all` tells that there is no more.
///
/// The first record and the bytes up to its line end decide, so that the answer does not depend on how much
/// more follows.
///
/// ```
/// use tidemill_text::json::{JsonLayout, detect_layout};
///
/// assert_eq!(detect_layout(b"{\"a\": 1}\n{\"a\"", false), Some(JsonLayout::Lines));
/// assert_eq!(detect_layout(b"{\"a\": 1}{\"a\"", false), Some(JsonLayout::Sequence));
/// assert_eq!(detect_layout(b"{\n  \"a\": 1\n", false), None);
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
        // A record that a separator cuts off is not a line. The separator may follow the head.
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

/// Returns whether the record of a line continues after the line.
fn is_record_continued(line: &[u8]) -> bool {
    let skipped = JsonCursor::new(line, false).skip_value();
    skipped.is_err_and(|fault| matches!(fault.kind, TextFaultKind::EndsInsideValue(_)))
}

/// Returns whether there is a `{` at this position and at the beginning of a line, as after a truncated line.
fn is_object_at_line_start(text: &[u8], at: usize) -> bool {
    text.get(at) == Some(&b'{') && at > 0 && text[at - 1] == b'\n'
}

/// A scanner for the records of a sequence that arrives in pieces.
///
/// ```
/// use tidemill_text::json::RecordScanner;
///
/// let text = b"{\"a\":\n1}{\"b\": \"}{\"}\n[{}, 7]";
/// let mut scanner = RecordScanner::new(0);
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
    /// Number of open brackets in the current record. The decoder checks that closing brackets match.
    depth: u64,
    /// Kinds of the innermost 64 of them, the last one in the lowest bit: 1 for an object. The scanner takes
    /// those further out for arrays.
    object_bits: u64,
    /// True directly after a colon, white space aside.
    is_behind_colon: bool,
    /// True if the current record begins a line.
    begins_line: bool,
    /// True if the last byte was a line end, or if there was none.
    is_at_line_start: bool,
    /// True if an array of records is open.
    in_array: bool,
    last_item: LastItem,
    /// Offset of the current record.
    record_start: u64,
    /// Offset of the next byte.
    position: u64,
    /// Offset at which an array was interrupted.
    broken_array_offset: Option<u64>,
}

/// The state of a scan between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Between records.
    BetweenRecords,
    /// Within an object or array.
    InContainer,
    /// Within a string.
    InString,
    /// After a backslash in a string.
    AfterBackslash,
    /// Within a number or word.
    InToken,
    /// Directly after an object, array or string.
    AfterValue,
    /// In a line that continues as no JSON does.
    InGarbage,
}

/// The last item between records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastItem {
    NoItem,
    Record,
    /// A record of garbage, which may include a comma.
    Garbage,
    Comma,
}

/// Bytes with a meaning within an object or array, outside strings.
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
    /// Returns a scanner at the beginning of a sequence whose first byte has this offset.
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

    /// Returns the offset of the record that has begun and not ended, if there is one.
    #[must_use]
    pub fn begun_record_offset(&self) -> Option<u64> {
        (self.state != ScanState::BetweenRecords).then_some(self.record_start)
    }

    /// Returns whether an array of records is open.
    #[must_use]
    pub fn is_in_array(&self) -> bool {
        self.in_array
    }

    /// Returns the offset at which a separator interrupted an array; the scanner reads nothing after it.
    #[must_use]
    pub fn broken_array_offset(&self) -> Option<u64> {
        self.broken_array_offset
    }

    /// Consumes the next piece and adds the ranges of the records that end in it, until there are `max` of
    /// them. Returns the number of bytes consumed.
    ///
    /// The byte after a record shows its end. An empty record stands for a missing comma.
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
                        // The next iteration first checks for a `{` that begins a line and another record.
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

    /// Ends the text, and with it the current record. Returns the offset at which an array was interrupted,
    /// if one was.
    pub fn finish(&mut self, records: &mut Vec<Range<u64>>) -> Option<u64> {
        if self.state != ScanState::BetweenRecords {
            self.end_record(self.position, records);
        }
        self.broken_array_offset.or(self.in_array.then_some(self.position))
    }

    /// Ends the current record before an offset.
    fn end_record(&mut self, end_record: u64, records: &mut Vec<Range<u64>>) {
        records.push(self.record_start..end_record);
        self.depth = 0;
        self.last_item = match self.state {
            ScanState::InGarbage => LastItem::Garbage,
            _ => LastItem::Record,
        };
        self.state = ScanState::BetweenRecords;
    }

    /// Returns whether a `{` at the beginning of a line cannot be part of the current record, which is then
    /// truncated.
    fn is_record_cut_off(&self) -> bool {
        let is_no_place = match self.state {
            ScanState::InContainer => self.object_bits & 1 == 1 && !self.is_behind_colon,
            ScanState::InString => true,
            _ => false,
        };
        is_no_place && self.begins_line
    }

    /// Returns whether a byte between records begins a value of an array directly after another one, without
    /// a comma.
    fn is_comma_missing(&self, byte: u8) -> bool {
        let is_value = !is_json_whitespace(byte) && !matches!(byte, b',' | b']' | RECORD_SEPARATOR);
        self.in_array && self.last_item == LastItem::Record && is_value
    }

    /// Consumes a byte between records.
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

    /// Consumes a byte directly after a value, or after a part of a token.
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

    /// Consumes one of [`CONTAINER_MARKS`] within an object or array.
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

/// Returns whether a byte may precede an object in its line.
fn can_precede_object(byte: u8) -> bool {
    is_json_whitespace(byte) || byte == RECORD_SEPARATOR
}

/// Returns a line without the bytes that may surround an object in it, and the number of bytes removed in
/// front.
pub(crate) fn strip_separators(line: &[u8]) -> (usize, &[u8]) {
    let start = line.iter().position(|byte| !can_precede_object(*byte)).unwrap_or(line.len());
    let without = |text: &'_ [u8]| {
        text.iter().rposition(|byte| !can_precede_object(*byte)).map_or(0, |last| last + 1)
    };
    let object = &line[start..];
    let mut end = without(object);
    // A lone comma belongs to no object.
    if end > 1 && object[end - 1] == b',' {
        end = without(&object[..end - 1]);
    }
    (start, &object[..end])
}

/// Returns whether a line has only bytes that may precede an object.
pub(crate) fn is_blank_line(line: &[u8]) -> bool {
    line.iter().all(|byte| can_precede_object(*byte))
}

/// Returns the length of a line's first record with everything before and after it: up to the next record in
/// the line, or the whole line.
pub(crate) fn first_record_length(line: &[u8]) -> usize {
    let skip = |from: usize| {
        let rest = line.get(from..).unwrap_or_default();
        rest.iter()
            .position(|byte| !can_precede_object(*byte))
            .map_or(line.len(), |more| from + more)
    };
    let start = skip(0);
    // No record continues after a separator.
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
