//! The decoder of web servers' access logs: the Common and the Combined Log Format.
//!
//! ```text
//!   ip        ident user ts                           request           status bytes
//!   127.0.0.1 -     jane [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200    2326
//!     "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"
//!      referrer                            user_agent   (Combined only; one line)
//! ```
//!
//! Sources: the Apache HTTP server's documentation of `mod_log_config` ("Common Log Format",
//! "Combined Log Format", "Format Notes" on escapes) and its `ap_escape_logitem`; nginx's
//! `ngx_http_log_module`, whose `combined` is the same.
//!
//! # Grammar
//! A line consists of pieces with one space between each two. A piece that starts with `"` extends to
//! the next quote that is not escaped by `\` and precedes a space or the line end, so that
//! most quotes that a server forgot to escape do no harm (`"/?q="x"&n=1"`). The pieces are:
//!
//! - `ip`, `ident`, `user`. A user may contain spaces: the time is the first piece from the
//!   fourth on that starts with `[`, is followed by one that ends in `]` and then by the
//!   request, which is in quotes. A user of several words has no word `-`, no `:`, which no user of HTTP's
//!   authentication has, and no address followed by an identity, and the pieces before it are not empty. The
//!   pieces before the time of `www.example.com 10.0.0.1 - - [` are a site and three columns; where
//!   the shape has no site the record is malformed. So is a record after the header of another log
//!   (`Nov 10 12:11:55 host nginx: 10.0.0.1 - - [`, `web_1  | 10.0.0.1 - - [`).
//! - A client may be a list of addresses separated by a comma and spaces, as proxies write `X-Forwarded-For`.
//!   It is one value.
//! - The time may have a fraction of a second, with up to nine digits (`[10/Oct/2000:13:55:36.123 -0700]`).
//! - `status` and `bytes`.
//! - `referrer` and `user_agent`, if the next two pieces are in quotes; null if not. If a sample
//!   shows that nearly all records have them, a record with something else there is malformed.
//!   Many servers are configured to log more: further pieces must be whole, and the decoder skips them.
//!
//! From the request on, a piece that does not begin with a quote has no unescaped quote. In a piece
//! that does, a quote after a space opens quotes that another one closes within the piece. In any other
//! case, an unescaped quote has cut a value in two (`"Mozilla "x" y"`), and the record is
//! malformed.
//!
//! Servers of several sites write the site's name before that (`vhost_combined`: `host:port`), and
//! many write the duration of a request after it. The [`AccessLogShape`] describes what a sample shows of
//! this: `host`, `port`, `request_time`, `upstream_response_time` and `x_forwarded_for` are columns then, and
//! null in a record without them. The decoder finds the trailing pieces by position; a list
//! (`0.004, 0.001 : -`) is one value there.
//!
//! A blank line is no record. `-` is null in every column. In every piece but the time, the decoder resolves
//! `\"`, `\\`, `\b`, `\n`, `\r`, `\t`, `\v` and `\xhh`, and keeps `\` before any other byte.
//! If the result is not UTF-8 (a TLS handshake on a plain port, Latin-1 in a
//! referrer) the value keeps its spelling, escapes included.
//!
//! The request is `method SP path SP protocol`. A method consists of capital letters, `-` and `_`. The
//! last word is the protocol if it starts with `HTTP/`; the text between is the path, spaces
//! included. Without a protocol (`"GET /x"`, HTTP/0.9) that is null. A request that does not start with a
//! method and a space (`"-"`, junk) is the path as a whole, and method and protocol are null.
//!
//! # Method
//! As in [`csv`](crate::csv), one pass finds all separators (space or line end) outside quotes
//! and writes their positions. Records of one server have the same number of pieces, so
//! piece `k` of record `r` ends at separator `r * n + k`; `n` is the piece count of the last record
//! that was decoded singly, initially that of the Combined format. It fits if every `n`-th
//! separator is a line end and no other is, and if brackets and quotes are where they should
//! be. If only the piece counts differ (both formats in one file, a user with a space), the tokenizer
//! goes through the separators record by record. If something else is odd (an unescaped
//! quote, one that is not closed, a lone `\r`), it goes through the text.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_schema::{DataType, FieldRef};

use crate::array_builders::{self, DecodingContext};
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::fast_value_parsing;
use crate::lines;
use crate::predicate_filter::SpanFilter;
use crate::separator_scan::SeparatorIndex;
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing::{self, NullStrings, can_be_leap_second};
use crate::value_span::ValueSpan;

/// Returns the columns of an access log, in the order of their positions; all may be null.
///
/// | position | column | type | |
/// | --- | --- | --- | --- |
/// | 0 | `ip` | Utf8View | the client: an address, or a host name |
/// | 1 | `ident` | Utf8View | the client's identity (RFC 1413), hardly ever known |
/// | 2 | `user` | Utf8View | the user that HTTP authentication found |
/// | 3 | `ts` | Timestamp(µs, "UTC") | when the request came |
/// | 4 | `method` | Utf8View | `GET` |
/// | 5 | `path` | Utf8View | the request's target, with its query; or the whole request |
/// | 6 | `protocol` | Utf8View | `HTTP/1.1` |
/// | 7 | `status` | Int16 | `200` |
/// | 8 | `bytes` | Int64 | size of the response's body |
/// | 9 | `referrer` | Utf8View | Combined only |
/// | 10 | `user_agent` | Utf8View | Combined only |
///
/// A caller can also request other types: any that text can be read as; the time as a
/// timestamp with any zone and unit, or as text in its original spelling.
#[must_use]
pub fn access_log_columns() -> Vec<FieldRef> {
    AccessLogShape::default().columns()
}

/// The part of a record that a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessLogField {
    Host,
    Port,
    Ip,
    Ident,
    User,
    Time,
    Method,
    Path,
    Protocol,
    Status,
    Bytes,
    Referrer,
    UserAgent,
    /// A trailing piece, by its index among the trailing pieces.
    ExtraPiece(usize),
}

impl AccessLogField {
    /// The fields of every shape, in the order of positions.
    const IN_EVERY_SHAPE: [AccessLogField; 11] = [
        AccessLogField::Ip,
        AccessLogField::Ident,
        AccessLogField::User,
        AccessLogField::Time,
        AccessLogField::Method,
        AccessLogField::Path,
        AccessLogField::Protocol,
        AccessLogField::Status,
        AccessLogField::Bytes,
        AccessLogField::Referrer,
        AccessLogField::UserAgent,
    ];
}

/// A decoder of access logs.
///
/// ```
/// use arrow_array::{cast::AsArray, types::Int16Type};
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options};
/// use tidemill_text::access_log::{AccessLogDecoder, access_log_columns};
///
/// let all = access_log_columns();
/// let wanted = [0, 5, 7].map(|place| (place, all[place].clone())).to_vec();
/// let mut decoder = AccessLogDecoder::new(wanted, Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// let line = r#"10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 12"#;
/// decoder.decode(line.as_bytes(), &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(1).as_string_view().value(0), "/a?b");
/// assert_eq!(batch.column(2).as_primitive::<Int16Type>().value(0), 200);
/// ```
pub struct AccessLogDecoder {
    decoder: FormatDecoder<AccessLogTokenizer>,
}

impl AccessLogDecoder {
    /// Returns a decoder of `columns`, each a position among [`access_log_columns()`] and the column that it
    /// becomes.
    ///
    /// # Errors
    /// The first column of a type that its text cannot be read as.
    ///
    /// # Panics
    /// If a position is not one of [`access_log_columns()`].
    pub fn new(columns: Vec<(usize, FieldRef)>, options: crate::Options) -> Result<Self, FieldRef> {
        Self::with_shape(&AccessLogShape::default(), columns, options)
    }

    /// Returns a decoder of `columns`, each a position among the shape's and the column that it becomes.
    ///
    /// # Errors
    /// The first column of a type that its text cannot be read as.
    ///
    /// # Panics
    /// If a position is not one of [`AccessLogShape::columns`].
    pub fn with_shape(
        shape: &AccessLogShape,
        columns: Vec<(usize, FieldRef)>,
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        let of_shape = shape.columns_with_fields();
        assert!(columns.iter().all(|(place, _)| *place < of_shape.len()), "no such column");
        let context = DecodingContext {
            nulls: NullStrings::new(&["-".to_owned()], false),
            unescape: Arc::new(unescape_log_value),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: false,
        };
        let mut parts = Vec::new();
        let mut built = Vec::new();
        let mut fields = Vec::new();
        for (place, field) in columns {
            let (part, read) = (of_shape[place].0, &of_shape[place].1);
            let column = match field.data_type() {
                data_type if data_type.is_nested() => None,
                data_type @ DataType::Timestamp(..) if part == AccessLogField::Time => {
                    let mut days = ClfDayCache::default();
                    array_builders::new_instant_builder(data_type, move |bytes| {
                        days.parse_precise_instant(bytes)
                    })
                    .map(|leaf| ColumnDecoder::with_builder(&field, leaf))
                }
                DataType::Date32 | DataType::Date64 if part == AccessLogField::Time => None,
                data_type @ DataType::Float64 if *read.data_type() == DataType::Float64 => {
                    let leaf = array_builders::new_custom_spelling_builder::<Float64Type>(
                        data_type,
                        parse_seconds,
                    );
                    Some(ColumnDecoder::with_builder(&field, leaf))
                }
                _ => ColumnDecoder::new(&field, &context),
            };
            built.push(column.ok_or_else(|| field.clone())?);
            parts.push(part);
            fields.push(field);
        }
        let filter = SpanFilter::new(options.predicates, &fields);
        let tokenizer = AccessLogTokenizer::new(shape, parts);
        let decoder =
            FormatDecoder::with_columns(tokenizer, built, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

decodes!(AccessLogDecoder);

// --------------------------------------------------------------------------------- values

/// Appends the value of a field without its escapes, as the module's documentation says.
pub(crate) fn unescape_log_value(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (byte, used) = match rest {
            [b'"', ..] => (b'"', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'b', ..] => (8, 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'v', ..] => (11, 1),
            [b'x', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'\\', 0),
            },
            _ => (b'\\', 0),
        };
        out.push(byte);
        rest = &rest[used..];
    }
    out.extend_from_slice(rest);
    if std::str::from_utf8(&out[start..]).is_err() {
        out.truncate(start);
        out.extend_from_slice(raw);
    }
    true
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Returns the number of a month by its English short name.
pub(crate) fn month_number(name: [u8; 3]) -> Option<u32> {
    Some(match &name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

/// Parses `13:55:36` into seconds; second 60 counts as the first one of the next minute.
///
/// The caller must check [`is_possible_clock`] once it knows the day and the zone.
#[inline(always)]
pub(crate) fn parse_clock(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [minutes @ .., b'6', b'0'] if minutes.len() == 6 => {
            let mut before: [u8; 8] = bytes.try_into().ok()?;
            before[6..].copy_from_slice(b"59");
            Some(fast_value_parsing::parse_time(&before)? + 1)
        }
        _ => fast_value_parsing::parse_time(bytes),
    }
}

/// Returns whether a clock, `13:55:36`, can show an instant in seconds since 1970-01-01 UTC: a second
/// 60 must be a leap second.
#[inline(always)]
pub(crate) fn is_possible_clock(clock: &[u8], seconds: i64) -> bool {
    !clock.ends_with(b"60") || can_be_leap_second(seconds)
}

/// Cache of the last day and zone: text in order of time has few different ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClfDayCache {
    day_text: [u8; 11],
    zone_text: [u8; 5],
    /// The beginning of the day in that zone, in seconds since 1970-01-01 UTC.
    day_start_seconds: i64,
}

impl Default for ClfDayCache {
    fn default() -> Self {
        Self { day_text: *b"01/Jan/1970", zone_text: *b"+0000", day_start_seconds: 0 }
    }
}

impl ClfDayCache {
    /// Parses `10/Oct/2000:13:55:36 -0700` into seconds since 1970-01-01 UTC.
    #[inline]
    pub(crate) fn parse_instant(&mut self, bytes: &[u8]) -> Option<i64> {
        let bytes: &[u8; 26] = bytes.try_into().ok()?;
        if bytes[11] != b':' || bytes[20] != b' ' {
            return None;
        }
        let (day, zone) = (bytes.first_chunk()?, bytes.last_chunk()?);
        if *day != self.day_text || *zone != self.zone_text {
            *self = Self {
                day_text: *day,
                zone_text: *zone,
                day_start_seconds: parse_day_start(day, zone)?,
            };
        }
        let seconds = self.day_start_seconds + i64::from(parse_clock(&bytes[12..20])?);
        is_possible_clock(&bytes[12..20], seconds).then_some(seconds)
    }
}

/// Lengths of `10/Oct/2000:13:55:36` and of a space and a zone after it.
const CLOCK_END: usize = 20;
const ZONE_BYTES: usize = 6;

impl ClfDayCache {
    /// Parses `10/Oct/2000:13:55:36.123 -0700`, or the same without a fraction, into seconds since 1970-01-01
    /// UTC and nanoseconds.
    #[inline]
    pub(crate) fn parse_precise_instant(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        match bytes.get(CLOCK_END) {
            Some(b'.') => self.parse_fractional_instant(bytes),
            _ => Some((self.parse_instant(bytes)?, 0)),
        }
    }

    #[inline(never)]
    fn parse_fractional_instant(&mut self, bytes: &[u8]) -> Option<(i64, u32)> {
        let (clock, rest) = bytes.split_at_checked(CLOCK_END)?;
        let (fraction, zone) = rest.split_at_checked(rest.len().checked_sub(ZONE_BYTES)?)?;
        let digits =
            fraction.strip_prefix(b".").filter(|digits| (1..=9).contains(&digits.len()))?;
        let mut nanos = 0;
        for place in 0..9 {
            let digit = digits.get(place).copied().unwrap_or(b'0').wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            nanos = nanos * 10 + u32::from(digit);
        }
        let mut whole = [0; CLOCK_END + ZONE_BYTES];
        whole[..CLOCK_END].copy_from_slice(clock);
        whole[CLOCK_END..].copy_from_slice(zone);
        Some((self.parse_instant(&whole)?, nanos))
    }
}

/// Returns the beginning of a day in a zone, in seconds since 1970-01-01 UTC.
#[cold]
fn parse_day_start(day: &[u8; 11], zone: &[u8; 5]) -> Option<i64> {
    let &[d1, d2, b'/', m1, m2, m3, b'/', y1, y2, y3, y4] = day else { return None };
    let year = fast_value_parsing::parse_two_digits(y1, y2)? * 100
        + fast_value_parsing::parse_two_digits(y3, y4)?;
    let days = fast_value_parsing::days_since_epoch(
        year.try_into().ok()?,
        month_number([m1, m2, m3])?,
        fast_value_parsing::parse_two_digits(d1, d2)?,
    )?;
    let &[sign, h1, h2, z1, z2] = zone;
    let (hours, minutes) = (
        fast_value_parsing::parse_two_digits(h1, h2)?,
        fast_value_parsing::parse_two_digits(z1, z2)?,
    );
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = i64::from(hours * 3600 + minutes * 60);
    let ahead = match sign {
        b'+' => ahead,
        b'-' => -ahead,
        _ => return None,
    };
    Some(i64::from(days) * 86_400 - ahead)
}

/// Splits a request into method, path and protocol.
#[inline(always)]
pub(crate) fn split_request(
    block: &[u8],
    start: usize,
    end: usize,
    escapes: bool,
) -> [ValueSpan; 3] {
    let text = &block[start..end];
    let method = text.iter().position(|byte| !matches!(byte, b'A'..=b'Z' | b'-' | b'_'));
    let method = method.filter(|at| *at > 0 && text[*at] == b' ');
    let of = |from: usize, to: usize| {
        if from >= to {
            ValueSpan::NULL
        } else {
            value_span(block, start + from, start + to, escapes)
        }
    };
    let Some(method) = method else {
        return [ValueSpan::NULL, value_span(block, start, end, escapes), ValueSpan::NULL];
    };
    // Nearly all requests end so; a last word of eight bytes has no space in it.
    let last = match text {
        [.., b' ', b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => text.len() - 9,
        _ => memchr::memrchr(b' ', text).unwrap_or(method),
    };
    if text[last + 1..].starts_with(b"HTTP/") {
        [of(0, method), of(method + 1, last), of(last + 1, text.len())]
    } else {
        [of(0, method), of(method + 1, text.len()), ValueSpan::NULL]
    }
}

/// Returns the span of bytes that may contain escapes.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(crate) fn value_span(block: &[u8], start: usize, end: usize, escapes: bool) -> ValueSpan {
    if escapes && memchr::memchr(b'\\', &block[start..end]).is_some() {
        ValueSpan::new_escaped(start as u32, end as u32)
    } else {
        ValueSpan::new_plain(start as u32, end as u32)
    }
}

/// Returns the span of a piece, without its quotes.
#[inline(always)]
fn piece_span(block: &[u8], start: usize, end: usize, escapes: bool) -> ValueSpan {
    if end - start >= 2 && block[start] == b'"' {
        value_span(block, start + 1, end - 1, escapes)
    } else {
        value_span(block, start, end, escapes)
    }
}

/// Returns the spans of host and port in the piece before a client.
#[inline(always)]
fn site_spans(block: &[u8], range: Range<usize>, has_port: bool) -> [ValueSpan; 2] {
    let colon = if has_port { memchr::memrchr(b':', &block[range.clone()]) } else { None };
    match colon {
        Some(colon) => {
            let colon = range.start + colon;
            [lines::plain_span(range.start..colon), lines::plain_span(colon + 1..range.end)]
        }
        None => [lines::plain_span(range), ValueSpan::NULL],
    }
}

/// Parses `0.005`, or the sum of `0.005, 0.010 : -`: servers that were asked one after the other, in one
/// group and the next. The sum is the double nearest to the sum of the decimals.
pub(crate) fn parse_seconds(bytes: &[u8]) -> Option<f64> {
    let one = |bytes: &[u8]| {
        fast_value_parsing::parse_float(bytes, 0, bytes.len())
            .or_else(|| value_parsing::parse_float(std::str::from_utf8(bytes).ok()?))
    };
    if !bytes.iter().any(|byte| matches!(byte, b',' | b':')) {
        return one(bytes);
    }
    let (mut sum, mut nanos) = (0.0, Some(0_u64));
    for part in bytes.split(|byte| matches!(byte, b',' | b':')) {
        let part = part.trim_ascii();
        if part != b"-" {
            sum += one(part)?;
            nanos =
                nanos.zip(parse_decimal_nanos(part)).and_then(|(sum, part)| sum.checked_add(part));
        }
    }
    // Doubles hold integers up to 2^53, so that the division rounds once.
    #[allow(clippy::cast_precision_loss)]
    let exact = nanos.filter(|nanos| *nanos <= 1 << 53).map(|nanos| nanos as f64 / 1e9);
    Some(exact.unwrap_or(sum))
}

/// Parses `0.005` into nanoseconds; `None` for other spellings and more than nine digits after the point.
fn parse_decimal_nanos(bytes: &[u8]) -> Option<u64> {
    let point = bytes.iter().position(|byte| *byte == b'.').unwrap_or(bytes.len());
    let (whole, fraction) = (&bytes[..point], bytes.get(point + 1..).unwrap_or_default());
    let padding = 9_usize.checked_sub(fraction.len())?;
    let digits = whole.iter().chain(fraction).copied().chain(std::iter::repeat_n(b'0', padding));
    digits.into_iter().try_fold(0_u64, |number, byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit) }
    })
}

// -------------------------------------------------------------------------------- records

/// Number of pieces before the status, if the user has no space.
const STATUS_PIECE: usize = 6;
/// Number of pieces in a record of the Combined format; the time takes two. The Common format has eight.
const COMBINED_PIECES: usize = 10;

/// The tokenizer of access logs.
struct AccessLogTokenizer {
    /// The field of each column.
    column_fields: Vec<AccessLogField>,
    wants_request: bool,
    wants_combined: bool,
    wants_extras: bool,
    /// Number of pieces before the client in most records, and of trailing pieces.
    leading_pieces: usize,
    extra_pieces: usize,
    has_port: bool,
    /// True if records with all trailing pieces are of the Common format.
    is_common: bool,
    /// True if a referrer and a user agent must follow the size.
    is_combined: bool,
    /// Number of pieces in a record with everything that its shape has.
    full_piece_count: usize,
    /// Number of pieces that a record is expected to have.
    expected_pieces: usize,
    separators: SeparatorIndex,
    request_spans: Vec<[ValueSpan; 3]>,
    piece_ranges: Vec<Range<usize>>,
}

impl AccessLogTokenizer {
    fn new(shape: &AccessLogShape, parts: Vec<AccessLogField>) -> Self {
        let wants = |those: &[AccessLogField]| parts.iter().any(|part| those.contains(part));
        Self {
            wants_request: wants(&[
                AccessLogField::Method,
                AccessLogField::Path,
                AccessLogField::Protocol,
            ]),
            wants_combined: wants(&[AccessLogField::Referrer, AccessLogField::UserAgent]),
            wants_extras: parts.iter().any(|part| matches!(part, AccessLogField::ExtraPiece(_))),
            leading_pieces: shape.leading_piece_count(),
            extra_pieces: shape.behind,
            has_port: shape.site == SitePrefix::HostAndPort,
            is_common: shape.common,
            is_combined: shape.combined,
            full_piece_count: shape.full_piece_count(),
            column_fields: parts,
            expected_pieces: shape.full_piece_count(),
            separators: SeparatorIndex::new(false),
            request_spans: Vec::new(),
            piece_ranges: Vec::new(),
        }
    }
}

impl Tokenizer for AccessLogTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        let count = self.expected_pieces;
        let Some(lines) = self.separators.index_window(block, at, rows_max) else {
            return TokenizedWindow::IrregularRows;
        };
        let rows = lines.min(rows_max);
        if rows == 0 {
            return TokenizedWindow::IrregularRows;
        }
        if !self.is_regular_window(block, lines, rows) {
            return self.tokenize_by_record(block, at, rows_max, columns);
        }
        let end = self.separators.positions[rows * count] as usize;
        let next = (end + 1).min(block.len());
        if !self.separators.is_utf8(&block[at..next]) {
            return TokenizedWindow::IrregularRows;
        }
        let (escapes, crs) =
            (self.separators.has_escapes(), self.separators.has_carriage_returns());
        // A carriage return may also end a block that lacks its last line end.
        let trim = |start: usize, end: usize| {
            let cr = crs && end > start && block[end - 1] == b'\r';
            end - usize::from(cr)
        };
        let positions = &self.separators.positions[..];
        let records = || positions.windows(count + 1).step_by(count).take(rows);
        let lead = self.leading_pieces;
        let base = count - self.extra_pieces.min(count);
        if self.wants_request {
            let requests = records().map(|ends| {
                split_request(
                    block,
                    ends[5 + lead] as usize + 2,
                    ends[6 + lead] as usize - 1,
                    escapes,
                )
            });
            self.request_spans.clear();
            self.request_spans.extend(requests);
        }
        for (column, part) in columns.iter_mut().zip(&self.column_fields) {
            let ColumnNode::Leaf { spans, .. } = &mut column.node else {
                return TokenizedWindow::IrregularRows;
            };
            let place = match part {
                AccessLogField::Host | AccessLogField::Port => {
                    let which = usize::from(*part == AccessLogField::Port);
                    spans.extend(records().map(|ends| {
                        let (start, end) = (ends[0].wrapping_add(1) as usize, ends[1] as usize);
                        site_spans(block, start..end, self.has_port)[which]
                    }));
                    continue;
                }
                AccessLogField::Ip => lead,
                AccessLogField::Ident => lead + 1,
                AccessLogField::User => lead + 2,
                AccessLogField::Time => {
                    spans.extend(records().map(|ends| {
                        ValueSpan::new_plain(ends[3 + lead].wrapping_add(2), ends[5 + lead] - 1)
                    }));
                    continue;
                }
                AccessLogField::Method | AccessLogField::Path | AccessLogField::Protocol => {
                    let which = match part {
                        AccessLogField::Method => 0,
                        AccessLogField::Path => 1,
                        _ => 2,
                    };
                    spans.extend(self.request_spans.iter().map(|request| request[which]));
                    continue;
                }
                AccessLogField::Status => STATUS_PIECE + lead,
                AccessLogField::Bytes => STATUS_PIECE + 1 + lead,
                AccessLogField::Referrer | AccessLogField::UserAgent
                    if count < COMBINED_PIECES + lead || self.wants_extras && self.is_common =>
                {
                    spans.resize(spans.len() + rows, ValueSpan::NULL);
                    continue;
                }
                AccessLogField::Referrer => STATUS_PIECE + 2 + lead,
                AccessLogField::UserAgent => STATUS_PIECE + 3 + lead,
                AccessLogField::ExtraPiece(place) => base + place,
            };
            spans.extend(records().map(|ends| {
                let (start, mut end) =
                    (ends[place].wrapping_add(1) as usize, ends[place + 1] as usize);
                if place + 1 == count {
                    end = trim(start, end);
                }
                piece_span(block, start, end, escapes)
            }));
        }
        TokenizedWindow::RegularRows { end: next, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        lines::next_nonblank_line(block, at, <[u8]>::is_empty)
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        let line = lines::trim_line_end(block, record.clone());
        let mut pieces = std::mem::take(&mut self.piece_ranges);
        let text = &block[line.clone()];
        let mut has_list = false;
        let read = split_pieces(text, &mut pieces)
            .and_then(|()| {
                has_list = join_client_list(text, &mut pieces, self.leading_pieces);
                AccessLogRecord::new(text, &pieces)
            })
            .and_then(|found| found.check_quotes(text, &pieces))
            .and_then(|found| {
                found.fit_to_shape(text, &pieces, self.leading_pieces, self.is_combined)
            });
        self.piece_ranges = pieces;
        let found = read?;
        // A record with a user with spaces, or a list of clients, does not predict the next one.
        if !has_list
            && found.time_piece == 3 + self.leading_pieces
            && found.leading_pieces == self.leading_pieces
        {
            self.expected_pieces = self.piece_ranges.len();
        }
        self.push_record(block, line, &self.piece_ranges, &found, columns);
        lines::check_record_utf8(block, record, columns)
    }
}

impl AccessLogTokenizer {
    /// Returns whether the window's `lines` records all have the expected number of pieces, and the
    /// first `rows` of them have brackets and quotes where they belong.
    fn is_regular_window(&self, block: &[u8], lines: usize, rows: usize) -> bool {
        let count = self.expected_pieces;
        // Every record must end where its last piece does, and no line end may stand elsewhere.
        let ends = self.separators.positions.get(count..).unwrap_or_default().iter().step_by(count);
        let is_end = |end: &u32| block.get(*end as usize).is_none_or(|byte| *byte == b'\n');
        if ends.take(lines).filter(|end| is_end(end)).count() != lines {
            return false;
        }
        let lead = self.leading_pieces;
        // Trailing pieces are found by position, which is right only in whole records.
        if count < STATUS_PIECE + 2 + lead || self.wants_extras && count != self.full_piece_count {
            return false;
        }
        let byte = |at: u32| block.get(at as usize).copied();
        // A trailing piece of the Common format must not be taken for a referrer.
        let common = self.wants_extras && self.is_common;
        let needs_combined = self.wants_combined || self.wants_extras || self.is_combined;
        let combined = !common && needs_combined && count >= COMBINED_PIECES + lead;
        if self.is_combined && (STATUS_PIECE + 3 + lead..COMBINED_PIECES + lead).contains(&count) {
            return false;
        }
        // A trailing list shifts the pieces after it.
        let base = count - self.extra_pieces.min(count);
        let has_list = |ends: &[u32]| {
            ends[base..].windows(2).any(|piece| {
                let last = byte(piece[1] - 1);
                last == Some(b',') || last == Some(b':') && piece[1] - piece[0] == 2
            })
        };
        self.separators.positions.windows(count + 1).step_by(count).take(rows).all(|ends| {
            let is_quote = |place: usize| byte(ends[place + lead] + 1) == Some(b'"');
            // The piece before the client is a site only if the identity's place does not hold `-`.
            let is_led = lead == 0 || ends[2] - ends[1] != 2 || byte(ends[1] + 1) != Some(b'-');
            // The pieces of a client list shift all pieces after them.
            let is_client_list = |place: usize| {
                byte(ends[place + 1] - 1) == Some(b',') || byte(ends[place + 1] + 1) == Some(b',')
            };
            is_led
                && byte(ends[0].wrapping_add(1)) != Some(0)
                && !(0..=lead).any(is_client_list)
                && !(self.wants_extras && has_list(ends))
                && byte(ends[3 + lead].wrapping_add(1)) == Some(b'[')
                && byte(ends[5 + lead] - 1) == Some(b']')
                && is_quote(5)
                && (!combined || is_quote(8) && is_quote(9))
                && (!common || count < COMBINED_PIECES + lead || !(is_quote(8) && is_quote(9)))
        })
    }

    /// Tokenizes a window's records one by one, because their piece counts differ.
    fn tokenize_by_record(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
    ) -> TokenizedWindow {
        let crs = self.separators.has_carriage_returns();
        let mut pieces = std::mem::take(&mut self.piece_ranges);
        let (mut next, mut start, mut rows) = (at, at, 0);
        pieces.clear();
        for end in self.separators.positions[1..].iter().map(|end| *end as usize) {
            let is_last = block.get(end).is_none_or(|byte| *byte == b'\n');
            let cr = is_last && crs && end > start && block[end - 1] == b'\r';
            pieces.push(start - next..end - usize::from(cr) - next);
            start = end + 1;
            if !is_last {
                continue;
            }
            let line = next..end - usize::from(cr);
            if !line.is_empty() {
                let text = &block[line.clone()];
                let has_list = join_client_list(text, &mut pieces, self.leading_pieces);
                let found = AccessLogRecord::new(text, &pieces).and_then(|found| {
                    found.fit_to_shape(text, &pieces, self.leading_pieces, self.is_combined)
                });
                let Some(found) = found.ok().filter(|_| text.first() != Some(&0)) else {
                    rows = 0;
                    break;
                };
                self.push_record(block, line, &pieces, &found, columns);
                // The next window may be regular again.
                if !has_list
                    && found.time_piece == 3 + self.leading_pieces
                    && found.leading_pieces == self.leading_pieces
                {
                    self.expected_pieces = pieces.len();
                }
                rows += 1;
            }
            pieces.clear();
            next = start.min(block.len());
            if rows == rows_max {
                break;
            }
        }
        self.piece_ranges = pieces;
        let is_text = self.separators.is_utf8(&block[at..next]);
        if rows > 0 && is_text {
            TokenizedWindow::RegularRows { end: next, rows }
        } else {
            TokenizedWindow::IrregularRows
        }
    }

    /// Pushes the values of a record's pieces to the columns.
    fn push_record(
        &self,
        block: &[u8],
        line: Range<usize>,
        pieces: &[Range<usize>],
        found: &AccessLogRecord,
        columns: &mut [ColumnDecoder],
    ) {
        let whole = |range: &Range<usize>| {
            piece_span(block, line.start + range.start, line.start + range.end, true)
        };
        let request_piece = &found.pieces_from_time(pieces)[2];
        let request = split_request(
            block,
            line.start + request_piece.start + 1,
            line.start + request_piece.end - 1,
            true,
        );
        let after = &found.pieces_from_time(pieces)[3..];
        let lead = found.leading_pieces;
        let behind = &after[if found.is_combined { 4 } else { 2 }..];
        for (column, part) in columns.iter_mut().zip(&self.column_fields) {
            let ColumnNode::Leaf { spans, .. } = &mut column.node else { continue };
            spans.push(match part {
                AccessLogField::Host | AccessLogField::Port if lead == 0 => ValueSpan::NULL,
                AccessLogField::Host | AccessLogField::Port => {
                    let range = line.start + pieces[0].start..line.start + pieces[0].end;
                    let which = usize::from(*part == AccessLogField::Port);
                    site_spans(block, range, self.has_port)[which]
                }
                AccessLogField::ExtraPiece(place) => {
                    let mut values = PieceValues { line: &block[line.clone()], pieces: behind };
                    values.nth(*place).map_or(ValueSpan::NULL, |range| whole(&range))
                }
                AccessLogField::Ip => whole(&pieces[lead]),
                AccessLogField::Ident => whole(&pieces[lead + 1]),
                AccessLogField::User if found.time_piece == 3 + lead => whole(&pieces[lead + 2]),
                AccessLogField::User => value_span(
                    block,
                    line.start + pieces[lead + 2].start,
                    line.start + pieces[found.time_piece - 1].end,
                    true,
                ),
                AccessLogField::Time => {
                    let time = &found.pieces_from_time(pieces);
                    lines::plain_span(line.start + time[0].start + 1..line.start + time[1].end - 1)
                }
                AccessLogField::Method => request[0],
                AccessLogField::Path => request[1],
                AccessLogField::Protocol => request[2],
                AccessLogField::Status => whole(&after[0]),
                AccessLogField::Bytes => whole(&after[1]),
                AccessLogField::Referrer if found.is_combined => whole(&after[2]),
                AccessLogField::UserAgent if found.is_combined => whole(&after[3]),
                AccessLogField::Referrer | AccessLogField::UserAgent => ValueSpan::NULL,
            });
        }
    }
}

/// Joins the pieces of a client list, `10.0.0.1, 10.0.0.2`, which stands after at most `lead` pieces. Returns
/// true if there is one.
fn join_client_list(line: &[u8], pieces: &mut Vec<Range<usize>>, lead: usize) -> bool {
    let mut has_list = false;
    for place in 0..=lead {
        while pieces.len() > place + 1
            && (line[pieces[place].clone()].ends_with(b",")
                || line[pieces[place + 1].clone()].starts_with(b","))
        {
            pieces[place].end = pieces.remove(place + 1).end;
            has_list = true;
        }
    }
    has_list
}

/// Positions of the fields among the pieces of a record.
struct AccessLogRecord {
    /// Number of pieces before the client.
    leading_pieces: usize,
    /// Index of the first piece of the time.
    time_piece: usize,
    is_combined: bool,
}

impl AccessLogRecord {
    fn new(line: &[u8], pieces: &[Range<usize>]) -> Result<Self, TextFault> {
        let is_quoted = |piece: &Range<usize>| line[piece.clone()].starts_with(b"\"");
        let time = (3..pieces.len().saturating_sub(2)).find(|&at| {
            line[pieces[at].clone()].starts_with(b"[")
                && line[pieces[at + 1].clone()].ends_with(b"]")
                && is_quoted(&pieces[at + 2])
        });
        let Some(time) = time else {
            let at = pieces.get(3).map_or(line.len(), |piece| piece.start);
            let reason = "expected a time in brackets and a request in quotes";
            return Err(TextFault::new(at, TextFaultKind::SyntaxError(reason.to_owned())));
        };
        let after = &pieces[time + 3..];
        if after.len() < 2 {
            let reason = "a status and a size should follow the request";
            return Err(TextFault::new(
                line.len(),
                TextFaultKind::EndsInsideValue(reason.to_owned()),
            ));
        }
        let combined = after.len() >= 4 && is_quoted(&after[2]) && is_quoted(&after[3]);
        Ok(Self { leading_pieces: 0, time_piece: time, is_combined: combined })
    }

    /// Returns the record if no quote from the request on can have cut a value in two.
    fn check_quotes(self, line: &[u8], pieces: &[Range<usize>]) -> Result<Self, TextFault> {
        let cut = |piece: &Range<usize>| {
            Some(piece.start + find_cutting_quote(line.get(piece.clone())?)?)
        };
        match self.pieces_from_time(pieces)[2..].iter().find_map(cut) {
            None => Ok(self),
            Some(at) => {
                let reason = "an unescaped quote within a field";
                Err(TextFault::new(at, TextFaultKind::SyntaxError(reason.to_owned())))
            }
        }
    }

    /// Fits the record to a log whose records have `lead` pieces before the client, if it has them. If
    /// `is_combined`, a referrer and a user agent or nothing must follow the size.
    fn fit_to_shape(
        self,
        line: &[u8],
        pieces: &[Range<usize>],
        lead: usize,
        is_combined: bool,
    ) -> Result<Self, TextFault> {
        if is_combined
            && !self.is_combined
            && let Some(behind) = self.pieces_from_time(pieces).get(5)
        {
            let reason = "expected a referrer and a user agent in quotes";
            return Err(TextFault::new(
                behind.start,
                TextFaultKind::SyntaxError(reason.to_owned()),
            ));
        }
        let is_absent =
            |place: usize| pieces.get(place).is_some_and(|piece| line[piece.clone()] == *b"-");
        // A client is always known, an identity hardly ever.
        let lead = if self.time_piece > 3 && !is_absent(1) { lead } else { 0 };
        let user = lead + 2;
        if self.time_piece > user + 1
            && has_foreign_prefix(line, &pieces[lead..self.time_piece], lead == 0)
        {
            let reason = "more stands before the time than a client, an identity and a user";
            return Err(TextFault::new(
                pieces[user].start,
                TextFaultKind::SyntaxError(reason.to_owned()),
            ));
        }
        Ok(Self { leading_pieces: lead, ..self })
    }

    /// Returns the pieces from the time on.
    fn pieces_from_time<'a>(&self, pieces: &'a [Range<usize>]) -> &'a [Range<usize>] {
        &pieces[self.time_piece..]
    }
}

/// Returns whether the pieces before a time are not a client, an identity and a user of several words,
/// because the client stands further behind.
fn has_foreign_prefix(line: &[u8], pieces: &[Range<usize>], is_without_site: bool) -> bool {
    let text = |piece: &Range<usize>| line.get(piece.clone()).unwrap_or_default();
    let [client, identity, user @ ..] = pieces else { return false };
    let is_foreign = |word: &[u8]| word == b"-" || memchr::memchr(b':', word).is_some();
    let address = user.len().checked_sub(3).and_then(|place| user.get(place));
    text(client).is_empty()
        || text(identity).is_empty()
        || is_without_site && log_shape::is_address(text(identity))
        || user.iter().any(|word| is_foreign(text(word)))
        || address.is_some_and(|word| log_shape::is_address(text(word)))
}

/// Iterator over the values of pieces: each piece is one value, except for lists, which contain spaces.
struct PieceValues<'a> {
    line: &'a [u8],
    pieces: &'a [Range<usize>],
}

impl Iterator for PieceValues<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, mut rest) = self.pieces.split_first()?;
        let mut value = first.clone();
        let text = |piece: &Range<usize>| self.line.get(piece.clone()).unwrap_or_default();
        let is_quoted = text(first).starts_with(b"\"");
        while !is_quoted && let Some((piece, behind)) = rest.split_first() {
            let goes_on = match text(piece) {
                // Separates the times of two groups of servers.
                b":" => !behind.is_empty(),
                _ => text(&value).ends_with(b",") || text(&value).ends_with(b" :"),
            };
            if !goes_on {
                break;
            }
            value.end = piece.end;
            rest = behind;
        }
        self.pieces = rest;
        Some(value)
    }
}

/// Returns the position of a quote that may have cut a value in two: any quote in a piece without quotes, and
/// in a piece with quotes one that opens others that are not closed.
fn find_cutting_quote(piece: &[u8]) -> Option<usize> {
    let is_quoted = piece.len() >= 2 && piece.first() == Some(&b'"');
    let within = if is_quoted { 1..piece.len() - 1 } else { 0..piece.len() };
    let (mut escaped, mut before, mut open) = (false, 0, None);
    for at in within {
        let byte = piece[at];
        if byte == b'"' && !escaped {
            open = match open {
                None if !is_quoted || before == b' ' => Some(at),
                _ => None,
            };
        }
        escaped = byte == b'\\' && !escaped;
        before = byte;
        if !is_quoted && open.is_some() {
            break;
        }
    }
    open
}

/// Splits a line without its line end into pieces, quotes included.
fn split_pieces(line: &[u8], pieces: &mut Vec<Range<usize>>) -> Result<(), TextFault> {
    pieces.clear();
    let mut start = 0;
    loop {
        let mut at = start;
        let quoted = line.get(start) == Some(&b'"');
        let (mut escaped, mut closed) = (false, !quoted);
        while at < line.len() {
            let byte = line[at];
            if closed && byte == b' ' {
                break;
            }
            let is_quote = byte == b'"' && !escaped && at > start;
            if quoted && is_quote && matches!(line.get(at + 1), None | Some(b' ')) {
                closed = true;
            }
            escaped = byte == b'\\' && !escaped;
            at += 1;
        }
        if !closed {
            return Err(TextFault::new(start, TextFaultKind::UnclosedQuote));
        }
        pieces.push(start..at);
        if at == line.len() {
            return Ok(());
        }
        start = at + 1;
    }
}

mod log_shape;

use log_shape::SitePrefix;
pub use log_shape::{AccessLogShape, ShapeInference};

#[cfg(test)]
mod tests;
