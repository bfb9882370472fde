//! System logs: RFC 3164 (BSD syslog), as on the wire and as in files, and RFC 5424.
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
//! space is RFC 5424's. Its header is split at single spaces and `-` is null; a time that is a day
//! alone, with the clock behind a space, is refused. Structured data
//! is whole elements, each `[id name="value" …]`; in a value, `\"`, `\\` and `\]` stand for
//! their second byte and any other `\` for itself. What follows it and a space is the message,
//! without its byte-order mark; null if there is none.
//!
//! Anything else is RFC 3164's, read as servers write it, since the RFC only observes:
//! - the priority may be missing (facility and severity are null then);
//! - the time is `Mmm dd hh:mm:ss`, or RFC 3339's; a day of one digit is padded by a space, as the RFC
//!   demands, by a zero, or not at all (`Apr 4 10:00:00`). A record that does not begin so is refused,
//!   as the lines of a message are that go on after its first;
//! - a year from 1970 to 2099 may stand behind the time or, as Cisco's devices write it, before the clock
//!   (`Dec 23 15:31:15 2024`, `Dec 23 2024 15:31:15`); a colon may follow the latter;
//! - the host is missing if the word behind the time ends in `:`;
//! - the app is what comes before `:` or `[pid]`, if neither a space nor another of `[` and `:`
//!   does; without it everything behind the host is the message.
//! - The space behind `:` belongs to neither app nor message.
//!
//! A time of RFC 3164 says no zone and most say no year: [`Format`] does.
//!
//! # How
//! Records are short and of many shapes, but almost all of what makes the shape comes in their
//! first bytes. Lines are found by `memchr`; the header is walked once, byte by byte, whether
//! the window is regular or not, so there is one parser and not two; the message is not looked
//! at. UTF-8 is checked a window at a time.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use chrono::Datelike;
use serde::{Deserialize, Serialize};

use crate::access_log::{clock, is_instant, month};
use crate::column::{Column, Node};
use crate::decoder::{Decoder, Tokenizer, WINDOW_BYTES, Window, decodes};
use crate::fast;
use crate::fault::{Fault, FaultKind};
use crate::filter::Filter;
use crate::leaf::{self, Context, Leaf};
use crate::lines;
use crate::span::Span;
use crate::values::{self, Nulls};

mod framing;

pub use framing::{FRAME_BYTES_MAX, Framer};

/// The columns of a system log, in the order of their positions; all may be null.
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
/// The keys of `data` are `id.name`, in the order in which they are written; a name that comes
/// twice is there twice, and an element without parameters is its `id` with a null.
///
/// A decoder can be asked for other types: facility and severity as signed integers or UInt8,
/// the time as a timestamp with any zone and unit, the data as text as it is written, and all
/// but facility and severity as any type that text can be read as.
#[must_use]
pub fn columns() -> Vec<FieldRef> {
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

/// Positions among [`columns()`].
mod place {
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

/// How records are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Framing {
    /// Every line is a record, as in files and on datagrams.
    #[default]
    Lines,
    /// Octet counting (RFC 6587, section 3.4.1): the length of each record, a space, the
    /// record. What does not start so is a line, as RFC 6587 says that senders mix them. To be
    /// cut by a [`Framer`].
    Octets,
}

/// What a system log does not say about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// How records are told apart. Default: lines.
    pub framing: Framing,
    /// When the log was written, roughly, in seconds since 1970-01-01 UTC: a date without a year
    /// is of the latest year in which it is not more than a day after this. Default: now; for a
    /// file its time of modification is better.
    pub reference_seconds: i64,
    /// Seconds that the clock of a time without a zone is ahead of UTC. Default: 0.
    pub offset_seconds: i32,
}

impl Default for Format {
    fn default() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        Self { framing: Framing::Lines, reference_seconds: now, offset_seconds: 0 }
    }
}

/// Decodes system logs.
///
/// ```
/// use arrow_array::{cast::AsArray, types::Int16Type};
/// use tidemill_text::{Decode, Decoded, Options, syslog::{Format, SyslogDecoder, columns}};
///
/// let all = columns();
/// let wanted = [1, 5, 9].map(|place| (place, all[place].clone())).to_vec();
/// let mut decoder = SyslogDecoder::new(wanted, &Format::default(), Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_primitive::<Int16Type>().value(0), 2);
/// assert_eq!(batch.column(1).as_string_view().value(0), "su");
/// assert_eq!(batch.column(2).as_string_view().value(0), "'su root' failed");
/// ```
pub struct SyslogDecoder {
    decoder: Decoder<Messages>,
}

impl SyslogDecoder {
    /// A decoder of `columns`, each a position among [`columns()`] and what it becomes.
    ///
    /// # Errors
    /// The first column of a type that its text cannot be read as.
    ///
    /// # Panics
    /// If a position is not one of [`columns()`].
    pub fn new(
        columns: Vec<(usize, FieldRef)>,
        format: &Format,
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        assert!(columns.iter().all(|(place, _)| *place < place::COUNT), "no such column");
        let context = Context {
            nulls: Nulls::default(),
            unescape: Arc::new(unescape_structured_data),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: false,
        };
        let mut built = Vec::new();
        for (place, field) in &columns {
            let data_type = field.data_type();
            let own = |leaf| Column::with_leaf(field, leaf);
            let column = match *place {
                place::FACILITY => number(data_type, facility).map(own),
                place::SEVERITY => number(data_type, severity).map(own),
                place::TIME if data_type.is_temporal() => {
                    let mut times = Times::new(format);
                    leaf::instants(data_type, move |bytes| times.instant(bytes)).map(own)
                }
                place::DATA if matches!(data_type, DataType::Map(..)) => {
                    Column::new(field, &context).filter(|column| match &column.node {
                        Node::Map { key, value, .. } => {
                            [key, value].iter().all(|part| matches!(part.node, Node::Leaf { .. }))
                        }
                        _ => false,
                    })
                }
                _ if data_type.is_nested() => None,
                _ => Column::new(field, &context),
            };
            built.push(column.ok_or_else(|| field.clone())?);
        }
        let (places, fields): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let mut filter = Filter::new(options.predicates, &fields);
        for (column, place) in places.iter().enumerate() {
            filter = match *place {
                place::FACILITY => filter.spelled(column, facility),
                place::SEVERITY => filter.spelled(column, severity),
                _ => filter,
            };
        }
        let tokenizer = Messages { places, framing: format.framing, entries: Vec::new() };
        let decoder = Decoder::with_columns(tokenizer, built, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

decodes!(SyslogDecoder);

// --------------------------------------------------------------------------------- values

/// The facility of a priority.
fn facility(priority: &[u8]) -> Option<i64> {
    Some(i64::from(read_priority(priority)? >> 3))
}

/// The severity of a priority.
fn severity(priority: &[u8]) -> Option<i64> {
    Some(i64::from(read_priority(priority)? & 7))
}

/// The number of one to three digits, if it is a priority.
fn read_priority(digits: &[u8]) -> Option<u8> {
    if !matches!(digits.len(), 1..=3) {
        return None;
    }
    let number = digits.iter().try_fold(0u32, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })?;
    u8::try_from(number).ok().filter(|number| *number < 192)
}

/// A builder of integers that `read` gives.
fn number(data_type: &DataType, read: fn(&[u8]) -> Option<i64>) -> Option<Box<dyn Leaf>> {
    macro_rules! of {
        ($type:ty) => {
            leaf::spelled::<$type>(data_type, move |bytes| read(bytes)?.try_into().ok())
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

/// Appends what a key or a value of structured data stands for.
///
/// A key's text goes from the `[` of its element to the end of its name, and a value's has its
/// quotes.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    if let [b'[', key @ ..] = raw {
        // Neither an id nor a name has a space in it.
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

/// Reads times with what was last seen kept.
struct Times {
    /// The years that a date without one may be of.
    years: Range<i32>,
    /// Behind this, in seconds, a date is of an earlier year.
    latest: i64,
    offset: i64,
    /// The day without a year that came last, and when it began in the years that it exists in,
    /// the latest first.
    day: [u8; 6],
    starts: Vec<i64>,
    rfc3339: fast::DayCache,
}

impl Times {
    fn new(format: &Format) -> Self {
        let latest = format.reference_seconds.saturating_add(86_400);
        let year = chrono::DateTime::from_timestamp(latest, 0).map_or(1970, |time| time.year());
        Self {
            // 29 February comes again after eight years at the latest.
            years: year.saturating_sub(8)..year.saturating_add(2),
            latest,
            offset: i64::from(format.offset_seconds),
            day: [0; 6],
            starts: Vec::new(),
            rfc3339: fast::DayCache::default(),
        }
    }

    /// A time in seconds since 1970-01-01 UTC and nanoseconds.
    #[inline]
    fn instant(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        if bytes.first()?.is_ascii_digit() {
            return self.full(bytes);
        }
        if bytes.len() > DATED_BYTES {
            return self.with_year(bytes);
        }
        let (day, time) = day_and_clock(bytes)?;
        if day != self.day {
            self.begin(&day);
        }
        let seconds = i64::from(clock(time)?);
        let found = self.starts.iter().find(|start| **start + seconds <= self.latest);
        let instant = found? + seconds;
        is_instant(time, instant).then_some((instant, 0))
    }

    /// A time with its year behind the clock or before it.
    #[cold]
    fn with_year(&self, bytes: &[u8]) -> Option<(i64, u32)> {
        let ((day, time), year) = match bytes {
            [rest @ .., b' ', y1, y2, y3, y4] => (day_and_clock(rest)?, [*y1, *y2, *y3, *y4]),
            _ => {
                let (day, rest) =
                    bytes.split_at_checked(bytes.len().checked_sub(YEAR_BYTES + 9)?)?;
                let (year, clock) = rest.split_at_checked(YEAR_BYTES)?;
                ((padded_day(day)?, clock.get(1..)?), *year.last_chunk()?)
            }
        };
        let year = fast::pair(year[0], year[1])? * 100 + fast::pair(year[2], year[3])?;
        let (month, day) = month_and_day(&day)?;
        let start = i64::from(fast::days(year.try_into().ok()?, month, day)?) * 86_400;
        let instant = start - self.offset + i64::from(clock(time)?);
        is_instant(time, instant).then_some((instant, 0))
    }

    /// A time of RFC 3339, or that without a zone.
    fn full(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        if let Some((seconds, nanos, utc)) = self.rfc3339.date_time(bytes) {
            return Some((if utc { seconds } else { seconds - self.offset }, nanos));
        }
        let written = values::date_time(std::str::from_utf8(bytes).ok()?)?;
        let offset = written.offset.map_or(self.offset, i64::from);
        Some((written.seconds - offset, written.nanos))
    }

    /// Keeps another day, `Oct 11` or `Oct  1`.
    #[cold]
    fn begin(&mut self, day: &[u8; 6]) {
        self.starts.clear();
        self.day = *day;
        if let Some((month, number)) = month_and_day(day) {
            let starts = self.years.clone().rev().filter_map(|year| {
                let days = fast::days(year, month, number)?;
                Some(i64::from(days) * 86_400 - self.offset)
            });
            self.starts.extend(starts);
        }
    }
}

/// Bytes of ` 2024`.
const YEAR_BYTES: usize = 5;
/// Bytes of the longest time without a year, `Oct 11 22:14:15`.
const DATED_BYTES: usize = 15;

/// The day, as `Oct 11` or `Oct  1`, and the clock of a time without a year.
#[inline(always)]
fn day_and_clock(bytes: &[u8]) -> Option<([u8; 6], &[u8])> {
    match bytes {
        // A day of one digit that is not padded.
        [day @ .., b' ', _, _, _, _, _, _, _, _] if day.len() == 5 => {
            Some((padded_day(day)?, &bytes[6..]))
        }
        _ => {
            let bytes: &[u8; DATED_BYTES] = bytes.try_into().ok()?;
            Some((*bytes.first_chunk()?, &bytes[7..]))
        }
    }
}

/// A day as `Oct 11` or `Oct  1`, of one that may be written `Oct 1`.
#[inline(always)]
fn padded_day(day: &[u8]) -> Option<[u8; 6]> {
    match day {
        [m1, m2, m3, b' ', digit] => Some([*m1, *m2, *m3, b' ', b' ', *digit]),
        _ => day.try_into().ok(),
    }
}

/// The numbers of the month and the day of `Oct 11` or `Oct  1`.
fn month_and_day(day: &[u8; 6]) -> Option<(u32, u32)> {
    let &[m1, m2, m3, _, d1, d2] = day;
    let number = fast::pair(if d1 == b' ' { b'0' } else { d1 }, d2)?;
    Some((month([m1, m2, m3])?, number))
}

/// Returns true if a text begins with a year from 1970 to 2099 and a space before it: ` 2024`.
#[inline(always)]
fn begins_with_year(text: &[u8]) -> bool {
    match text {
        [b' ', b'1', b'9', b'7'..=b'9', digit, ..] => digit.is_ascii_digit(),
        [b' ', b'2', b'0', tens, digit, ..] => tens.is_ascii_digit() && digit.is_ascii_digit(),
        _ => false,
    }
}

// -------------------------------------------------------------------------------- records

/// Splits records into columns.
struct Messages {
    /// The wanted columns.
    places: Vec<usize>,
    framing: Framing,
    /// Keys and values of a record's structured data.
    entries: Vec<(Span, Span)>,
}

/// Returns true if a word is a day without a time of day, `2003-10-11`.
fn is_day(word: &[u8]) -> bool {
    let [_, _, _, _, b'-', _, _, b'-', _, _] = word else { return false };
    word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// The spans of a record's columns; of structured data, its text.
type Row = [Span; place::COUNT];

impl Messages {
    /// The record's text within its frame.
    fn content(&self, block: &[u8], record: Range<usize>) -> Result<Range<usize>, Fault> {
        let content = match self.framing {
            Framing::Lines => record,
            Framing::Octets => match framing::frame(&block[record.clone()]) {
                framing::Frame::Counted { start, end } if end <= record.len() => {
                    record.start + start..record.start + end
                }
                framing::Frame::Counted { .. } => {
                    let reason = "its frame is shorter than it says";
                    return Err(Fault::new(record.len(), FaultKind::Ends(reason.to_owned())));
                }
                framing::Frame::Line => record,
            },
        };
        Ok(lines::trim(block, content))
    }

    /// Takes one record.
    fn take(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
    ) -> Result<(), Fault> {
        let content = self.content(block, record.clone())?;
        let mut walk = Walk { text: &block[..content.end], at: content.start };
        self.entries.clear();
        let row = walk.row(&mut self.entries).map_err(|reason| {
            let at = walk.at - record.start;
            let kind = if reason == UNCLOSED {
                FaultKind::Unclosed
            } else if walk.at == content.end {
                FaultKind::Ends(reason.to_owned())
            } else {
                FaultKind::Syntax(reason.to_owned())
            };
            Fault::new(at, kind)
        })?;
        for (column, &place) in columns.iter_mut().zip(&self.places) {
            match &mut column.node {
                Node::Leaf { spans, .. } => spans.push(row[place]),
                Node::Map { ends, key, value, .. } => {
                    let mut items = ends.items();
                    if let (Node::Leaf { spans: keys, .. }, Node::Leaf { spans: values, .. }) =
                        (&mut key.node, &mut value.node)
                    {
                        keys.extend(self.entries.iter().map(|(key, _)| *key));
                        values.extend(self.entries.iter().map(|(_, value)| *value));
                        items += self.entries.len();
                    }
                    ends.push(items, !row[place].is_null());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Tokenizer for Messages {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        _: &Context,
    ) -> Window {
        let (mut end, mut rows) = (at, 0);
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        while end < until && rows < rows_max {
            let record = self.next(block, end);
            if record.is_empty() {
                end = block.len();
                break;
            }
            // A frame may end within a character, and the next begin with the rest of it.
            let is_torn = self.framing == Framing::Octets
                && block.get(record.end).is_some_and(|byte| matches!(byte, 0x80..=0xbf));
            end = record.end;
            let is_behind_hole = block.get(record.start) == Some(&0);
            if is_torn || is_behind_hole || self.take(block, record, columns).is_err() {
                return Window::Irregular;
            }
            rows += 1;
        }
        if rows == 0 || simdutf8::basic::from_utf8(&block[at..end]).is_err() {
            return Window::Irregular;
        }
        Window::Rows { end, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        match self.framing {
            Framing::Lines => lines::next_filled(block, at, <[u8]>::is_empty),
            Framing::Octets => framing::next(block, at),
        }
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        _: &Context,
    ) -> Result<(), Fault> {
        self.take(block, record.clone(), columns)?;
        lines::check_utf8(block, record, columns)
    }
}

/// What is wrong with a value of structured data that the record ends in.
const UNCLOSED: &str = "a quote is never closed";

/// A record while it is walked over.
struct Walk<'a> {
    /// The block up to the record's end.
    text: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    /// The bytes from here on.
    #[inline(always)]
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    /// Steps over a byte, if it comes next.
    #[inline(always)]
    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over the bytes before the first one that `ends`; how many those are.
    #[inline(always)]
    fn until(&mut self, ends: impl Fn(u8) -> bool) -> Range<usize> {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| !ends(*byte)) {
            self.at += 1;
        }
        start..self.at
    }

    /// The spans of all columns, and the entries of structured data. Where it fails, it stands
    /// at what is wrong.
    #[inline]
    fn row(&mut self, entries: &mut Vec<(Span, Span)>) -> Result<Row, &'static str> {
        let mut row = [Span::NULL; place::COUNT];
        if self.eat(b'<') {
            let start = self.at;
            let digits = self.until(|byte| !byte.is_ascii_digit());
            if read_priority(&self.text[digits.clone()]).is_none() || !self.eat(b'>') {
                self.at = start;
                return Err("expected a priority of at most 191 in angle brackets");
            }
            let priority = lines::span(digits);
            (row[place::FACILITY], row[place::SEVERITY]) = (priority, priority);
            if let Some(version) = self.version() {
                row[place::VERSION] = lines::span(version);
                self.modern(&mut row, entries)?;
                return Ok(row);
            }
        }
        self.classic(&mut row)?;
        Ok(row)
    }

    /// Steps over a version and a space, if they come next.
    #[inline(always)]
    fn version(&mut self) -> Option<Range<usize>> {
        let rest = self.rest();
        if !matches!(rest.first(), Some(b'1'..=b'9')) {
            return None;
        }
        let count = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        if count > 3 || rest.get(count) != Some(&b' ') {
            return None;
        }
        let version = self.at..self.at + count;
        self.at += count + 1;
        Some(version)
    }

    /// The rest of a record of RFC 5424.
    fn modern(
        &mut self,
        row: &mut Row,
        entries: &mut Vec<(Span, Span)>,
    ) -> Result<(), &'static str> {
        for place in [place::TIME, place::HOST, place::APP, place::PID, place::MSGID] {
            let word = self.until(|byte| byte == b' ');
            if word.is_empty() {
                return Err("expected a header field");
            }
            if place == place::TIME && is_day(&self.text[word.clone()]) {
                self.at = word.start;
                return Err("expected a time with `T` between the day and the clock");
            }
            if &self.text[word.clone()] != b"-" {
                row[place] = lines::span(word);
            }
            if !self.eat(b' ') {
                return Err("expected a space and the next header field");
            }
        }
        let start = self.at;
        if !self.eat(b'-') {
            if self.rest().first() != Some(&b'[') {
                return Err("expected structured data or `-`");
            }
            while self.rest().first() == Some(&b'[') {
                self.element(entries)?;
            }
            row[place::DATA] = lines::span(start..self.at);
        }
        if self.eat(b' ') {
            if self.rest().starts_with(b"\xef\xbb\xbf") {
                self.at += 3;
            }
            row[place::MESSAGE] = lines::span(self.at..self.text.len());
        } else if self.at < self.text.len() {
            return Err("expected a space behind the structured data");
        }
        Ok(())
    }

    /// An element of structured data.
    fn element(&mut self, entries: &mut Vec<(Span, Span)>) -> Result<(), &'static str> {
        let ends = |byte| matches!(byte, b' ' | b'=' | b']' | b'"');
        let start = self.at;
        self.at += 1;
        let id = self.until(ends);
        if id.is_empty() {
            return Err("expected an element's id");
        }
        if self.eat(b']') {
            entries.push((lines::span(id), Span::NULL));
            return Ok(());
        }
        while self.eat(b' ') {
            let name = self.until(ends);
            if name.is_empty() {
                return Err("expected a parameter's name");
            }
            let key = escaped(start..self.at);
            if !self.eat(b'=') || !self.eat(b'"') {
                return Err("expected `=` and a value in quotes");
            }
            let value = self.at;
            let mut escapes = false;
            loop {
                match self.text.get(self.at) {
                    None => return Err(UNCLOSED),
                    Some(b'"') => break,
                    Some(b'\\') if self.at + 1 < self.text.len() => {
                        escapes = true;
                        self.at += 2;
                    }
                    Some(_) => self.at += 1,
                }
            }
            let end = self.at;
            self.at += 1;
            let value = if escapes { escaped(value - 1..end + 1) } else { lines::span(value..end) };
            entries.push((key, value));
        }
        if self.eat(b']') { Ok(()) } else { Err("expected a space or the element's `]`") }
    }

    /// The rest of a record of RFC 3164.
    #[inline]
    fn classic(&mut self, row: &mut Row) -> Result<(), &'static str> {
        let length = match self.rest() {
            [m1, m2, m3, b' ', d1, d2, b' ', _, _, b':', _, _, b':', _, _, ..]
                if matches!(d1, b' ' | b'0'..=b'3')
                    && d2.is_ascii_digit()
                    && month([*m1, *m2, *m3]).is_some() =>
            {
                15
            }
            [m1, m2, m3, b' ', b'1'..=b'9', b' ', _, _, b':', _, _, b':', _, _, ..]
                if month([*m1, *m2, *m3]).is_some() =>
            {
                14
            }
            [y, _, _, _, b'-', _, _, b'-', _, _, b'T', _, _, b':', tail @ ..]
                if y.is_ascii_digit() =>
            {
                14 + tail.iter().take_while(|byte| **byte != b' ').count()
            }
            rest => match dated_year_length(rest) {
                Some(length) => length,
                None => return Err("expected a date and a time"),
            },
        };
        let has_month = !self.rest().first().is_some_and(u8::is_ascii_digit);
        let mut end = self.at + length;
        if length > DATED_BYTES && has_month {
            row[place::TIME] = lines::span(self.at..end);
            // Cisco's devices write `Dec 23 2024 15:31:15: %ASA-…`.
            end += usize::from(self.text[end..].starts_with(b": "));
        } else {
            let behind = &self.text[end..];
            if has_month && begins_with_year(behind) && behind.get(YEAR_BYTES) == Some(&b' ') {
                end += YEAR_BYTES;
            }
            row[place::TIME] = lines::span(self.at..end);
        }
        self.at = end;
        if !self.eat(b' ') {
            return Err("expected a space and the host");
        }
        let word = self.until(|byte| byte == b' ');
        if self.text[word.clone()].ends_with(b":") {
            // No host: the word is the app.
            self.at = word.start;
        } else {
            if word.is_empty() {
                return Err("expected the host");
            }
            row[place::HOST] = lines::span(word);
            if !self.eat(b' ') {
                return Err("expected a space and the message");
            }
        }
        let start = self.at;
        let app = self.until(|byte| matches!(byte, b' ' | b'[' | b':'));
        let mut pid = None;
        if self.eat(b'[') {
            let inside = self.until(|byte| matches!(byte, b' ' | b']'));
            if !inside.is_empty() && self.eat(b']') {
                pid = Some(inside);
            }
        }
        let is_tag = self.eat(b':') && (pid.is_some() || self.at == app.end + 1) || pid.is_some();
        if is_tag && !app.is_empty() {
            self.eat(b' ');
            row[place::APP] = lines::span(app);
            row[place::PID] = pid.map_or(Span::NULL, lines::span);
        } else {
            self.at = start;
        }
        row[place::MESSAGE] = lines::span(self.at..self.text.len());
        Ok(())
    }
}

/// The length of a time with its year before the clock, `Dec 23 2024 15:31:15`, that a text begins with.
#[cold]
fn dated_year_length(text: &[u8]) -> Option<usize> {
    let [m1, m2, m3, b' ', rest @ ..] = text else { return None };
    month([*m1, *m2, *m3])?;
    let day = match rest {
        [b' ' | b'0'..=b'3', b'0'..=b'9', b' ', ..] => 2,
        [b'1'..=b'9', b' ', ..] => 1,
        _ => return None,
    };
    let rest = &rest[day..];
    let is_clock = matches!(rest.get(YEAR_BYTES..)?, [b' ', _, _, b':', _, _, b':', _, _, ..]);
    (begins_with_year(rest) && is_clock).then_some(4 + day + YEAR_BYTES + 9)
}

/// Bytes of a block that are not what they stand for.
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
fn escaped(range: Range<usize>) -> Span {
    Span::escaped(range.start as u32, range.end as u32)
}

#[cfg(test)]
mod tests;
