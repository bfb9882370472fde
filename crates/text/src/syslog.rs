//! The decoder of system logs: RFC 3164 (BSD syslog), on the wire and in files, and RFC 5424.
//!
//! ```text
//!   <34>Oct 11 22:14:15 mymachine su[230]: 'su root' failed for lonvick       RFC 3164
//!   pri ts              host      app pid  message
//!
//!   Mar 27 13:06:56 ip-10-77 sshd[1291]: Server listening on :: port 22.      in a file
//!   2024-03-27T13:06:56.123456+00:00 ip-10-77 sshd[1291]: Server listening    by rsyslog
//!
//!   <165>1 2003-10-11T22:14:15.003Z host app 230   ID47  [id a="1" b="2"] text    RFC 5424
//!   pri  version ts                 host app pid   msgid data             message
//! ```
//!
//! Sources: RFC 3164, section 4; RFC 5424, sections 6 and 7; RFC 6587 for octet counting;
//! rsyslog's templates `RSYSLOG_TraditionalFileFormat` and `RSYSLOG_FileFormat`.
//!
//! # Grammar
//! A record with a priority, a version (a number of up to three digits, the first not 0) and a
//! space follows RFC 5424. Its header is split at single spaces and `-` is null. The decoder rejects a time
//! that is only a day, followed by a space and the clock. Structured data
//! consists of whole elements, each `[id name="value" …]`; in a value, `\"`, `\\` and `\]` stand for
//! their second byte and any other `\` for itself. After it and a space comes the message,
//! without its byte-order mark; null if there is none.
//!
//! Any other record follows RFC 3164, as servers write it, since the RFC only observes:
//! - the priority may be missing (facility and severity are null then);
//! - the time is `Mmm dd hh:mm:ss`, or RFC 3339's. A day of one digit is padded by a space, as the RFC
//!   demands, by a zero, or not at all (`Apr 4 10:00:00`). The decoder rejects a record that does not begin
//!   so, such as a later line of a message with several lines;
//! - a year from 1970 to 2099 may follow the time or, as Cisco's devices write it, precede the clock
//!   (`Dec 23 15:31:15 2024`, `Dec 23 2024 15:31:15`); a colon may follow the latter;
//! - the host is missing if the word after the time ends in `:`;
//! - the app is the text before `:` or `[pid]`, if it contains neither a space nor another `[` or `:`;
//!   without an app everything after the host is the message.
//! - The space after `:` belongs to neither app nor message.
//!
//! A time of RFC 3164 states no zone, and most state no year: [`SyslogFormat`] supplies them.
//!
//! # Method
//! Records are short and have many shapes, but almost everything that determines the shape is in their
//! first bytes. `memchr` finds the lines. The parser walks over the header once, byte by byte, whether
//! the window is regular or not, so there is one parser and not two. It does not look at the
//! message. UTF-8 is checked a window at a time.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use chrono::Datelike;
use serde::{Deserialize, Serialize};

use crate::access_log::{is_possible_clock, month_number, parse_clock};
use crate::array_builders::{self, DecodingContext, SpanArrayBuilder};
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, WINDOW_BYTES, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::fast_value_parsing;
use crate::lines;
use crate::predicate_filter::SpanFilter;
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing::{self, NullStrings};
use crate::value_span::ValueSpan;

mod octet_framing;

pub use octet_framing::{FRAME_BYTES_MAX, SyslogFramer};

/// Returns the columns of a system log, in the order of their positions; all may be null.
///
/// | position | column | type | |
/// | --- | --- | --- | --- |
/// | 0 | `facility` | Int16 | 0 kern, 1 user, 2 mail, 3 daemon, 4 auth, 5 syslog, 6 lpr, 7 news, 8 uucp, 9 cron, 10 authpriv, 11 ftp, 12 ntp, 13 audit, 14 alert, 15 clock, 16–23 local0–local7 |
/// | 1 | `severity` | Int16 | 0 emergency, 1 alert, 2 critical, 3 error, 4 warning, 5 notice, 6 informational, 7 debug |
/// | 2 | `version` | Int16 | of the protocol: 1; null in RFC 3164 |
/// | 3 | `ts` | Timestamp(µs, "UTC") | when it happened |
/// | 4 | `host` | Utf8View | who sent it |
/// | 5 | `app` | Utf8View | which program |
/// | 6 | `pid` | Utf8View | its process, by number or otherwise |
/// | 7 | `msgid` | Utf8View | the kind of message; RFC 5424 only |
/// | 8 | `data` | Map(Utf8, Utf8View) | structured data; RFC 5424 only |
/// | 9 | `message` | Utf8View | the text |
///
/// The keys of `data` are `id.name`, in the order of the record. A repeated name appears
/// twice, and an element without parameters is its `id` with a null.
///
/// A caller can also request other types: facility and severity as signed integers or UInt8,
/// the time as a timestamp with any zone and unit, the data as text in its original spelling, and all
/// but facility and severity as any type that text can be read as.
#[must_use]
pub fn syslog_columns() -> Vec<FieldRef> {
    let pair: Fields = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8View, true),
    ]
    .into();
    let entries = Field::new("entries", DataType::Struct(pair), false);
    [
        ("facility", DataType::Int16),
        ("severity", DataType::Int16),
        ("version", DataType::Int16),
        ("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("host", DataType::Utf8View),
        ("app", DataType::Utf8View),
        ("pid", DataType::Utf8View),
        ("msgid", DataType::Utf8View),
        ("data", DataType::Map(Arc::new(entries), false)),
        ("message", DataType::Utf8View),
    ]
    .into_iter()
    .map(|(name, data_type)| Arc::new(Field::new(name, data_type, true)))
    .collect()
}

/// Positions among [`syslog_columns()`].
mod column_position {
    pub(super) const FACILITY: usize = 0;
    pub(super) const SEVERITY: usize = 1;
    pub(super) const VERSION: usize = 2;
    pub(super) const TIME: usize = 3;
    pub(super) const HOST: usize = 4;
    pub(super) const APP: usize = 5;
    pub(super) const PID: usize = 6;
    pub(super) const MSGID: usize = 7;
    pub(super) const DATA: usize = 8;
    pub(super) const MESSAGE: usize = 9;
    pub(super) const COUNT: usize = 10;
}

/// The way in which records are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SyslogFraming {
    /// Every line is a record, as in files and on datagrams.
    #[default]
    Lines,
    /// Octet counting (RFC 6587, section 3.4.1): the length of each record, a space, the
    /// record. A record that does not start so is a line, because senders mix both, as RFC 6587 says. A
    /// [`SyslogFramer`] cuts such a stream.
    Octets,
}

/// Facts that a system log does not state about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogFormat {
    /// The way in which records are separated. Default: lines.
    pub framing: SyslogFraming,
    /// Approximate time when the log was written, in seconds since 1970-01-01 UTC. A date without a year
    /// belongs to the latest year in which it is at most a day after this. Default: now; for a
    /// file its time of modification is better.
    pub reference_seconds: i64,
    /// Offset from UTC, in seconds, of times without a zone. Default: 0.
    pub offset_seconds: i32,
}

impl Default for SyslogFormat {
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        Self { framing: SyslogFraming::Lines, reference_seconds: now, offset_seconds: 0 }
    }
}

/// A decoder of system logs.
///
/// ```
/// use arrow_array::{cast::AsArray, types::Int16Type};
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options};
/// use tidemill_text::syslog::{SyslogDecoder, SyslogFormat, syslog_columns};
///
/// let all = syslog_columns();
/// let wanted = [1, 5, 9].map(|place| (place, all[place].clone())).to_vec();
/// let mut decoder = SyslogDecoder::new(wanted, &SyslogFormat::default(), Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_primitive::<Int16Type>().value(0), 2);
/// assert_eq!(batch.column(1).as_string_view().value(0), "su");
/// assert_eq!(batch.column(2).as_string_view().value(0), "'su root' failed");
/// ```
pub struct SyslogDecoder {
    decoder: FormatDecoder<SyslogTokenizer>,
}

impl SyslogDecoder {
    /// Returns a decoder of `columns`, each a position among [`syslog_columns()`] and the column that it
    /// becomes.
    ///
    /// # Errors
    /// The first column of a type that its text cannot be read as.
    ///
    /// # Panics
    /// If a position is not one of [`syslog_columns()`].
    pub fn new(
        columns: Vec<(usize, FieldRef)>,
        format: &SyslogFormat,
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        assert!(columns.iter().all(|(place, _)| *place < column_position::COUNT), "no such column");
        let context = DecodingContext {
            nulls: NullStrings::default(),
            unescape: Arc::new(unescape_structured_data),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: false,
        };
        let mut built = Vec::new();
        for (place, field) in &columns {
            let data_type = field.data_type();
            let own = |leaf| ColumnDecoder::with_builder(field, leaf);
            let column = match *place {
                column_position::FACILITY => {
                    new_priority_builder(data_type, facility_of_priority).map(own)
                }
                column_position::SEVERITY => {
                    new_priority_builder(data_type, severity_of_priority).map(own)
                }
                column_position::TIME if data_type.is_temporal() => {
                    let mut times = SyslogTimeParser::new(format);
                    array_builders::new_instant_builder(data_type, move |bytes| {
                        times.parse_instant(bytes)
                    })
                    .map(own)
                }
                column_position::DATA if matches!(data_type, DataType::Map(..)) => {
                    ColumnDecoder::new(field, &context).filter(|column| match &column.node {
                        ColumnNode::Map { key, value, .. } => [key, value]
                            .iter()
                            .all(|part| matches!(part.node, ColumnNode::Leaf { .. })),
                        _ => false,
                    })
                }
                _ if data_type.is_nested() => None,
                _ => ColumnDecoder::new(field, &context),
            };
            built.push(column.ok_or_else(|| field.clone())?);
        }
        let (places, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let mut filter = SpanFilter::new(options.predicates, &fields);
        for (column, place) in places.iter().enumerate() {
            filter = match *place {
                column_position::FACILITY => filter.with_int_parser(column, facility_of_priority),
                column_position::SEVERITY => filter.with_int_parser(column, severity_of_priority),
                _ => filter,
            };
        }
        let tokenizer = SyslogTokenizer {
            wanted_columns: places,
            framing: format.framing,
            data_entries: Vec::new(),
        };
        let decoder =
            FormatDecoder::with_columns(tokenizer, built, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

decodes!(SyslogDecoder);

// --------------------------------------------------------------------------------- values

/// Returns the facility of a priority.
fn facility_of_priority(priority: &[u8]) -> Option<i64> {
    Some(i64::from(parse_priority(priority)? >> 3))
}

/// Returns the severity of a priority.
fn severity_of_priority(priority: &[u8]) -> Option<i64> {
    Some(i64::from(parse_priority(priority)? & 7))
}

/// Parses one to three digits, if they are a priority.
fn parse_priority(digits: &[u8]) -> Option<u8> {
    if !matches!(digits.len(), 1..=3) {
        return None;
    }
    let number = digits.iter().try_fold(0u32, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })?;
    u8::try_from(number).ok().filter(|number| *number < 192)
}

/// Returns a builder of the integers that `read` parses.
fn new_priority_builder(
    data_type: &DataType,
    read: fn(&[u8]) -> Option<i64>,
) -> Option<Box<dyn SpanArrayBuilder>> {
    macro_rules! of {
        ($type:ty) => {
            array_builders::new_custom_spelling_builder::<$type>(data_type, move |bytes| {
                read(bytes)?.try_into().ok()
            })
        };
    }
    Some(match data_type {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        _ => return None,
    })
}

/// Appends the value of a key or a value of structured data.
///
/// A key's text extends from the `[` of its element to the end of its name, and a value's has its
/// quotes.
pub(crate) fn unescape_structured_data(raw: &[u8], out: &mut Vec<u8>) -> bool {
    if let [b'[', key @ ..] = raw {
        // Neither an id nor a name contains a space.
        let id = memchr::memchr(b' ', key).unwrap_or(key.len());
        out.extend_from_slice(&key[..id]);
        if let Some(space) = memchr::memrchr(b' ', key) {
            out.push(b'.');
            out.extend_from_slice(&key[space + 1..]);
        }
        return true;
    }
    let [b'"', rest @ .., b'"'] = raw else { return false };
    let mut rest = rest;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = match &rest[at + 1..] {
            [byte @ (b'"' | b'\\' | b']'), tail @ ..] => {
                out.push(*byte);
                tail
            }
            tail => {
                out.push(b'\\');
                tail
            }
        };
    }
    out.extend_from_slice(rest);
    true
}

/// A parser of times that caches the last day.
struct SyslogTimeParser {
    /// The years that a date without one may belong to.
    candidate_years: Range<i32>,
    /// Latest possible instant in seconds: a later date belongs to an earlier year.
    latest_seconds: i64,
    offset_seconds: i64,
    /// The last day without a year, and its start in each candidate year that has it,
    /// the latest first.
    last_day: [u8; 6],
    day_starts: Vec<i64>,
    rfc3339_cache: fast_value_parsing::DayCache,
}

impl SyslogTimeParser {
    fn new(format: &SyslogFormat) -> Self {
        let latest = format.reference_seconds.saturating_add(86_400);
        let year = chrono::DateTime::from_timestamp(latest, 0).map_or(1970, |time| time.year());
        Self {
            // 29 February comes again after at most eight years.
            candidate_years: year.saturating_sub(8)..year.saturating_add(2),
            latest_seconds: latest,
            offset_seconds: i64::from(format.offset_seconds),
            last_day: [0; 6],
            day_starts: Vec::new(),
            rfc3339_cache: fast_value_parsing::DayCache::default(),
        }
    }

    /// Parses a time into seconds since 1970-01-01 UTC and nanoseconds.
    #[inline]
    fn parse_instant(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        if bytes.first()?.is_ascii_digit() {
            return self.parse_rfc3339(bytes);
        }
        if bytes.len() > YEARLESS_TIME_BYTES {
            return self.parse_with_year(bytes);
        }
        let (day, time) = split_day_and_clock(bytes)?;
        if day != self.last_day {
            self.cache_day(&day);
        }
        let seconds = i64::from(parse_clock(time)?);
        let found = self.day_starts.iter().find(|start| **start + seconds <= self.latest_seconds);
        let instant = found? + seconds;
        is_possible_clock(time, instant).then_some((instant, 0))
    }

    /// Parses a time with its year after the clock or before it.
    #[cold]
    fn parse_with_year(&self, bytes: &[u8]) -> Option<(i64, u32)> {
        let ((day, time), year) = match bytes {
            [rest @ .., b' ', y1, y2, y3, y4] => (split_day_and_clock(rest)?, [*y1, *y2, *y3, *y4]),
            _ => {
                let (day, rest) =
                    bytes.split_at_checked(bytes.len().checked_sub(YEAR_BYTES + 9)?)?;
                let (year, clock) = rest.split_at_checked(YEAR_BYTES)?;
                ((pad_day(day)?, clock.get(1..)?), *year.last_chunk()?)
            }
        };
        let year = fast_value_parsing::parse_two_digits(year[0], year[1])? * 100
            + fast_value_parsing::parse_two_digits(year[2], year[3])?;
        let (month, day) = parse_month_and_day(&day)?;
        let start =
            i64::from(fast_value_parsing::days_since_epoch(year.try_into().ok()?, month, day)?)
                * 86_400;
        let instant = start - self.offset_seconds + i64::from(parse_clock(time)?);
        is_possible_clock(time, instant).then_some((instant, 0))
    }

    /// Parses a time of RFC 3339, with or without a zone.
    fn parse_rfc3339(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        if let Some((seconds, nanos, utc)) = self.rfc3339_cache.parse_date_time(bytes) {
            return Some((if utc { seconds } else { seconds - self.offset_seconds }, nanos));
        }
        let written = value_parsing::parse_date_time(std::str::from_utf8(bytes).ok()?)?;
        let offset = written.utc_offset_seconds.map_or(self.offset_seconds, i64::from);
        Some((written.seconds - offset, written.nanos))
    }

    /// Caches another day, `Oct 11` or `Oct  1`.
    #[cold]
    fn cache_day(&mut self, day: &[u8; 6]) {
        self.day_starts.clear();
        self.last_day = *day;
        if let Some((month, number)) = parse_month_and_day(day) {
            let starts = self.candidate_years.clone().rev().filter_map(|year| {
                let days = fast_value_parsing::days_since_epoch(year, month, number)?;
                Some(i64::from(days) * 86_400 - self.offset_seconds)
            });
            self.day_starts.extend(starts);
        }
    }
}

/// Length of ` 2024`.
const YEAR_BYTES: usize = 5;
/// Maximum length of a time without a year, `Oct 11 22:14:15`.
const YEARLESS_TIME_BYTES: usize = 15;

/// Splits a time without a year into the day, as `Oct 11` or `Oct  1`, and the clock.
#[inline(always)]
fn split_day_and_clock(bytes: &[u8]) -> Option<([u8; 6], &[u8])> {
    match bytes {
        // A day of one digit that is not padded.
        [day @ .., b' ', _, _, _, _, _, _, _, _] if day.len() == 5 => {
            Some((pad_day(day)?, &bytes[6..]))
        }
        _ => {
            let bytes: &[u8; YEARLESS_TIME_BYTES] = bytes.try_into().ok()?;
            Some((*bytes.first_chunk()?, &bytes[7..]))
        }
    }
}

/// Returns a day as `Oct 11` or `Oct  1`, from a spelling that may be `Oct 1`.
#[inline(always)]
fn pad_day(day: &[u8]) -> Option<[u8; 6]> {
    match day {
        [m1, m2, m3, b' ', digit] => Some([*m1, *m2, *m3, b' ', b' ', *digit]),
        _ => day.try_into().ok(),
    }
}

/// Returns month and day of `Oct 11` or `Oct  1` as numbers.
fn parse_month_and_day(day: &[u8; 6]) -> Option<(u32, u32)> {
    let &[m1, m2, m3, _, d1, d2] = day;
    let number = fast_value_parsing::parse_two_digits(if d1 == b' ' { b'0' } else { d1 }, d2)?;
    Some((month_number([m1, m2, m3])?, number))
}

/// Returns whether a text begins with a space and a year from 1970 to 2099: ` 2024`.
#[inline(always)]
fn has_year_prefix(text: &[u8]) -> bool {
    match text {
        [b' ', b'1', b'9', b'7'..=b'9', digit, ..] => digit.is_ascii_digit(),
        [b' ', b'2', b'0', tens, digit, ..] => tens.is_ascii_digit() && digit.is_ascii_digit(),
        _ => false,
    }
}

// -------------------------------------------------------------------------------- records

/// The tokenizer of system logs.
struct SyslogTokenizer {
    /// Positions of the wanted columns.
    wanted_columns: Vec<usize>,
    framing: SyslogFraming,
    /// Keys and values of a record's structured data.
    data_entries: Vec<(ValueSpan, ValueSpan)>,
}

/// Returns whether a word is a day without a time of day, `2003-10-11`.
fn is_date_without_time(word: &[u8]) -> bool {
    let [_, _, _, _, b'-', _, _, b'-', _, _] = word else { return false };
    word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// The spans of a record's columns; for structured data, the span of its text.
type SyslogRow = [ValueSpan; column_position::COUNT];

impl SyslogTokenizer {
    /// Returns the range of the record's text within its frame.
    fn framed_text(&self, block: &[u8], record: Range<usize>) -> Result<Range<usize>, TextFault> {
        let content = match self.framing {
            SyslogFraming::Lines => record,
            SyslogFraming::Octets => match octet_framing::detect_frame(&block[record.clone()]) {
                octet_framing::RecordFrame::OctetCounted { start, end } if end <= record.len() => {
                    record.start + start..record.start + end
                }
                octet_framing::RecordFrame::OctetCounted { .. } => {
                    let reason = "its frame is shorter than it says";
                    return Err(TextFault::new(
                        record.len(),
                        TextFaultKind::EndsInsideValue(reason.to_owned()),
                    ));
                }
                octet_framing::RecordFrame::Line => record,
            },
        };
        Ok(lines::trim_line_end(block, content))
    }

    /// Parses one record and pushes its values to the columns.
    fn push_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
    ) -> Result<(), TextFault> {
        let content = self.framed_text(block, record.clone())?;
        let mut walk = SyslogCursor { text: &block[..content.end], position: content.start };
        self.data_entries.clear();
        let row = walk.parse_row(&mut self.data_entries).map_err(|reason| {
            let at = walk.position - record.start;
            let kind = if reason == UNCLOSED_QUOTE {
                TextFaultKind::UnclosedQuote
            } else if walk.position == content.end {
                TextFaultKind::EndsInsideValue(reason.to_owned())
            } else {
                TextFaultKind::SyntaxError(reason.to_owned())
            };
            TextFault::new(at, kind)
        })?;
        for (column, &place) in columns.iter_mut().zip(&self.wanted_columns) {
            match &mut column.node {
                ColumnNode::Leaf { spans, .. } => spans.push(row[place]),
                ColumnNode::Map { ends, key, value, .. } => {
                    let mut items = ends.item_count();
                    if let (
                        ColumnNode::Leaf { spans: keys, .. },
                        ColumnNode::Leaf { spans: values, .. },
                    ) = (&mut key.node, &mut value.node)
                    {
                        keys.extend(self.data_entries.iter().map(|(key, _)| *key));
                        values.extend(self.data_entries.iter().map(|(_, value)| *value));
                        items += self.data_entries.len();
                    }
                    ends.end_row(items, !row[place].is_null());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Tokenizer for SyslogTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        let (mut end, mut rows) = (at, 0);
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        while end < until && rows < rows_max {
            let record = self.next_record_range(block, end);
            if record.is_empty() {
                end = block.len();
                break;
            }
            // A frame may end within a character, and the next one begin with the rest of it.
            let is_torn = self.framing == SyslogFraming::Octets
                && block.get(record.end).is_some_and(|byte| matches!(byte, 0x80..=0xbf));
            end = record.end;
            let is_behind_hole = block.get(record.start) == Some(&0);
            if is_torn || is_behind_hole || self.push_record(block, record, columns).is_err() {
                return TokenizedWindow::IrregularRows;
            }
            rows += 1;
        }
        if rows == 0 || simdutf8::basic::from_utf8(&block[at..end]).is_err() {
            return TokenizedWindow::IrregularRows;
        }
        TokenizedWindow::RegularRows { end, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        match self.framing {
            SyslogFraming::Lines => lines::next_nonblank_line(block, at, <[u8]>::is_empty),
            SyslogFraming::Octets => octet_framing::next_record_range(block, at),
        }
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        self.push_record(block, record.clone(), columns)?;
        lines::check_record_utf8(block, record, columns)
    }
}

/// Fault of a record that ends inside a value of structured data.
const UNCLOSED_QUOTE: &str = "a quote is never closed";

/// A cursor over a record.
struct SyslogCursor<'a> {
    /// The block up to the record's end.
    text: &'a [u8],
    position: usize,
}

impl SyslogCursor<'_> {
    /// Returns the bytes from here on.
    #[inline(always)]
    fn remaining(&self) -> &[u8] {
        &self.text[self.position..]
    }

    /// Consumes a byte, if it comes next.
    #[inline(always)]
    fn take_byte(&mut self, byte: u8) -> bool {
        let is_next = self.text.get(self.position) == Some(&byte);
        self.position += usize::from(is_next);
        is_next
    }

    /// Consumes the bytes before the first one for which `ends` is true; returns their range.
    #[inline(always)]
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> Range<usize> {
        let start = self.position;
        while self.text.get(self.position).is_some_and(|byte| !ends(*byte)) {
            self.position += 1;
        }
        start..self.position
    }

    /// Parses the spans of all columns, and the entries of structured data. If it fails, the cursor stands
    /// at the fault.
    #[inline]
    fn parse_row(
        &mut self,
        entries: &mut Vec<(ValueSpan, ValueSpan)>,
    ) -> Result<SyslogRow, &'static str> {
        let mut row = [ValueSpan::NULL; column_position::COUNT];
        if self.take_byte(b'<') {
            let start = self.position;
            let digits = self.take_until(|byte| !byte.is_ascii_digit());
            if parse_priority(&self.text[digits.clone()]).is_none() || !self.take_byte(b'>') {
                self.position = start;
                return Err("expected a priority of at most 191 in angle brackets");
            }
            let priority = lines::plain_span(digits);
            (row[column_position::FACILITY], row[column_position::SEVERITY]) = (priority, priority);
            if let Some(version) = self.take_version() {
                row[column_position::VERSION] = lines::plain_span(version);
                self.parse_rfc5424(&mut row, entries)?;
                return Ok(row);
            }
        }
        self.parse_rfc3164(&mut row)?;
        Ok(row)
    }

    /// Consumes a version and a space, if they come next.
    #[inline(always)]
    fn take_version(&mut self) -> Option<Range<usize>> {
        let rest = self.remaining();
        if !matches!(rest.first(), Some(b'1'..=b'9')) {
            return None;
        }
        let count = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        if count > 3 || rest.get(count) != Some(&b' ') {
            return None;
        }
        let version = self.position..self.position + count;
        self.position += count + 1;
        Some(version)
    }

    /// Parses the rest of a record of RFC 5424.
    fn parse_rfc5424(
        &mut self,
        row: &mut SyslogRow,
        entries: &mut Vec<(ValueSpan, ValueSpan)>,
    ) -> Result<(), &'static str> {
        for place in [
            column_position::TIME,
            column_position::HOST,
            column_position::APP,
            column_position::PID,
            column_position::MSGID,
        ] {
            let word = self.take_until(|byte| byte == b' ');
            if word.is_empty() {
                return Err("expected a header field");
            }
            if place == column_position::TIME && is_date_without_time(&self.text[word.clone()]) {
                self.position = word.start;
                return Err("expected a time with `T` between the day and the clock");
            }
            if &self.text[word.clone()] != b"-" {
                row[place] = lines::plain_span(word);
            }
            if !self.take_byte(b' ') {
                return Err("expected a space and the next header field");
            }
        }
        let start = self.position;
        if !self.take_byte(b'-') {
            if self.remaining().first() != Some(&b'[') {
                return Err("expected structured data or `-`");
            }
            while self.remaining().first() == Some(&b'[') {
                self.parse_element(entries)?;
            }
            row[column_position::DATA] = lines::plain_span(start..self.position);
        }
        if self.take_byte(b' ') {
            if self.remaining().starts_with(b"\xef\xbb\xbf") {
                self.position += 3;
            }
            row[column_position::MESSAGE] = lines::plain_span(self.position..self.text.len());
        } else if self.position < self.text.len() {
            return Err("expected a space behind the structured data");
        }
        Ok(())
    }

    /// Parses an element of structured data.
    fn parse_element(
        &mut self,
        entries: &mut Vec<(ValueSpan, ValueSpan)>,
    ) -> Result<(), &'static str> {
        let ends = |byte| matches!(byte, b' ' | b'=' | b']' | b'"');
        let start = self.position;
        self.position += 1;
        let id = self.take_until(ends);
        if id.is_empty() {
            return Err("expected an element's id");
        }
        if self.take_byte(b']') {
            entries.push((lines::plain_span(id), ValueSpan::NULL));
            return Ok(());
        }
        while self.take_byte(b' ') {
            let name = self.take_until(ends);
            if name.is_empty() {
                return Err("expected a parameter's name");
            }
            let key = escaped_span(start..self.position);
            if !self.take_byte(b'=') || !self.take_byte(b'"') {
                return Err("expected `=` and a value in quotes");
            }
            let value = self.position;
            let mut escapes = false;
            loop {
                match self.text.get(self.position) {
                    None => return Err(UNCLOSED_QUOTE),
                    Some(b'"') => break,
                    Some(b'\\') if self.position + 1 < self.text.len() => {
                        escapes = true;
                        self.position += 2;
                    }
                    Some(_) => self.position += 1,
                }
            }
            let end = self.position;
            self.position += 1;
            let value = if escapes {
                escaped_span(value - 1..end + 1)
            } else {
                lines::plain_span(value..end)
            };
            entries.push((key, value));
        }
        if self.take_byte(b']') { Ok(()) } else { Err("expected a space or the element's `]`") }
    }

    /// Parses the rest of a record of RFC 3164.
    #[inline]
    fn parse_rfc3164(&mut self, row: &mut SyslogRow) -> Result<(), &'static str> {
        let length = match self.remaining() {
            [m1, m2, m3, b' ', d1, d2, b' ', _, _, b':', _, _, b':', _, _, ..]
                if matches!(d1, b' ' | b'0'..=b'3')
                    && d2.is_ascii_digit()
                    && month_number([*m1, *m2, *m3]).is_some() =>
            {
                15
            }
            [m1, m2, m3, b' ', b'1'..=b'9', b' ', _, _, b':', _, _, b':', _, _, ..]
                if month_number([*m1, *m2, *m3]).is_some() =>
            {
                14
            }
            [y, _, _, _, b'-', _, _, b'-', _, _, b'T', _, _, b':', tail @ ..]
                if y.is_ascii_digit() =>
            {
                14 + tail.iter().take_while(|byte| **byte != b' ').count()
            }
            rest => match length_of_time_with_year(rest) {
                Some(length) => length,
                None => return Err("expected a date and a time"),
            },
        };
        let has_month = !self.remaining().first().is_some_and(u8::is_ascii_digit);
        let mut end = self.position + length;
        if length > YEARLESS_TIME_BYTES && has_month {
            row[column_position::TIME] = lines::plain_span(self.position..end);
            // Cisco's devices write `Dec 23 2024 15:31:15: %ASA-…`.
            end += usize::from(self.text[end..].starts_with(b": "));
        } else {
            let behind = &self.text[end..];
            if has_month && has_year_prefix(behind) && behind.get(YEAR_BYTES) == Some(&b' ') {
                end += YEAR_BYTES;
            }
            row[column_position::TIME] = lines::plain_span(self.position..end);
        }
        self.position = end;
        if !self.take_byte(b' ') {
            return Err("expected a space and the host");
        }
        let word = self.take_until(|byte| byte == b' ');
        if self.text[word.clone()].ends_with(b":") {
            // No host: the word is the app.
            self.position = word.start;
        } else {
            if word.is_empty() {
                return Err("expected the host");
            }
            row[column_position::HOST] = lines::plain_span(word);
            if !self.take_byte(b' ') {
                return Err("expected a space and the message");
            }
        }
        let start = self.position;
        let app = self.take_until(|byte| matches!(byte, b' ' | b'[' | b':'));
        let mut pid = None;
        if self.take_byte(b'[') {
            let inside = self.take_until(|byte| matches!(byte, b' ' | b']'));
            if !inside.is_empty() && self.take_byte(b']') {
                pid = Some(inside);
            }
        }
        let is_tag = self.take_byte(b':') && (pid.is_some() || self.position == app.end + 1)
            || pid.is_some();
        if is_tag && !app.is_empty() {
            self.take_byte(b' ');
            row[column_position::APP] = lines::plain_span(app);
            row[column_position::PID] = pid.map_or(ValueSpan::NULL, lines::plain_span);
        } else {
            self.position = start;
        }
        row[column_position::MESSAGE] = lines::plain_span(self.position..self.text.len());
        Ok(())
    }
}

/// Returns the length of a time with its year before the clock, `Dec 23 2024 15:31:15`, at the beginning of a
/// text.
#[cold]
fn length_of_time_with_year(text: &[u8]) -> Option<usize> {
    let [m1, m2, m3, b' ', rest @ ..] = text else { return None };
    month_number([*m1, *m2, *m3])?;
    let day = match rest {
        [b' ' | b'0'..=b'3', b'0'..=b'9', b' ', ..] => 2,
        [b'1'..=b'9', b' ', ..] => 1,
        _ => return None,
    };
    let rest = &rest[day..];
    let is_clock = matches!(rest.get(YEAR_BYTES..)?, [b' ', _, _, b':', _, _, b':', _, _, ..]);
    (has_year_prefix(rest) && is_clock).then_some(4 + day + YEAR_BYTES + 9)
}

/// Returns the span of bytes with escapes.
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn escaped_span(range: Range<usize>) -> ValueSpan {
    ValueSpan::new_escaped(range.start as u32, range.end as u32)
}

#[cfg(test)]
mod tests;
