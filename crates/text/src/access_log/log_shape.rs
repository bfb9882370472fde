//! Inference of the columns before and after the Common and the Combined Log Format from a sample.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use serde::{Deserialize, Serialize};

use super::{
    AccessLogField, AccessLogRecord, COMBINED_PIECES, PieceValues, join_client_list, parse_seconds,
    split_pieces,
};
use crate::lines;

/// Maximum number of records that inference examines.
const SHAPE_RECORDS_MAX: usize = 500;

/// Returns whether odd records are too few to count: at most one in twenty.
fn is_negligible(odd: usize, count: usize) -> bool {
    odd * 20 <= count
}

/// Returns whether a count is at least a fifth of all records, and not zero.
fn is_good_share(count: usize, all: usize) -> bool {
    count > 0 && count * 5 >= all
}

/// The columns that the records of a log have besides those of the Common Log Format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLogShape {
    pub(super) site: SitePrefix,
    /// True if more than a few records lack a referrer and a user agent.
    pub(super) common: bool,
    /// True if nearly all records have a referrer and a user agent. A record with something else in their
    /// place is malformed. Default: false, for logs without a sample.
    #[serde(default)]
    pub(super) combined: bool,
    /// Number of trailing pieces after the format's own.
    pub(super) behind: usize,
    /// The trailing pieces that are columns.
    pub(super) extras: Vec<ExtraColumn>,
}

/// The piece before the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SitePrefix {
    #[default]
    None,
    Host,
    HostAndPort,
}

/// A trailing piece that is a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExtraColumn {
    /// Its index among the trailing pieces.
    pub(super) place: usize,
    is: ExtraColumnKind,
}

/// The kind of a trailing column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum ExtraColumnKind {
    RequestTime,
    UpstreamTime,
    Forwarded,
}

impl ExtraColumnKind {
    /// Returns the name of the column.
    fn column_name(self) -> &'static str {
        match self {
            ExtraColumnKind::RequestTime => "request_time",
            ExtraColumnKind::UpstreamTime => "upstream_response_time",
            ExtraColumnKind::Forwarded => "x_forwarded_for",
        }
    }
}

impl ExtraColumn {
    pub(super) fn is_seconds(&self) -> bool {
        self.is != ExtraColumnKind::Forwarded
    }
}

/// The result of inference from a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeInference {
    /// The shape of its records.
    pub shape: AccessLogShape,
    /// Description of what inference did not recognize; it continues the sentence "its records have".
    pub unrecognized: Option<String>,
}

impl AccessLogShape {
    /// Returns the columns in the order of their positions: those of
    /// [`access_log_columns`](super::access_log_columns), preceded by `host` (Utf8View) and `port` (Int32),
    /// and followed by `request_time`, `upstream_response_time` (Float64, in seconds) and `x_forwarded_for`
    /// (Utf8View), as far as the shape has them.
    #[must_use]
    pub fn columns(&self) -> Vec<FieldRef> {
        self.columns_with_fields().into_iter().map(|(_, field)| field).collect()
    }

    /// Returns the columns, with the record field of each.
    pub(super) fn columns_with_fields(&self) -> Vec<(AccessLogField, FieldRef)> {
        let text = |name: &str| (name.to_owned(), DataType::Utf8View);
        let site: &[AccessLogField] = match self.site {
            SitePrefix::None => &[],
            SitePrefix::Host => &[AccessLogField::Host],
            SitePrefix::HostAndPort => &[AccessLogField::Host, AccessLogField::Port],
        };
        let extras = self.extras.iter().map(|extra| AccessLogField::ExtraPiece(extra.place));
        let parts = site.iter().copied().chain(AccessLogField::IN_EVERY_SHAPE).chain(extras);
        parts
            .map(|part| {
                let (name, data_type) = match part {
                    AccessLogField::Host => text("host"),
                    AccessLogField::Port => ("port".to_owned(), DataType::Int32),
                    AccessLogField::Ip => text("ip"),
                    AccessLogField::Ident => text("ident"),
                    AccessLogField::User => text("user"),
                    AccessLogField::Time => {
                        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                        ("ts".to_owned(), utc)
                    }
                    AccessLogField::Method => text("method"),
                    AccessLogField::Path => text("path"),
                    AccessLogField::Protocol => text("protocol"),
                    AccessLogField::Status => ("status".to_owned(), DataType::Int16),
                    AccessLogField::Bytes => ("bytes".to_owned(), DataType::Int64),
                    AccessLogField::Referrer => text("referrer"),
                    AccessLogField::UserAgent => text("user_agent"),
                    AccessLogField::ExtraPiece(place) => {
                        let extra = self.extras.iter().find(|extra| extra.place == place);
                        match extra {
                            Some(extra) if extra.is_seconds() => {
                                (extra.is.column_name().to_owned(), DataType::Float64)
                            }
                            extra => text(
                                extra
                                    .map_or(ExtraColumnKind::Forwarded, |extra| extra.is)
                                    .column_name(),
                            ),
                        }
                    }
                };
                (part, Arc::new(Field::new(name, data_type, true)))
            })
            .collect()
    }

    /// Returns the number of pieces before the client.
    pub(super) fn leading_piece_count(&self) -> usize {
        usize::from(self.site != SitePrefix::None)
    }

    /// Returns the number of pieces in a record that has all of them.
    pub(super) fn full_piece_count(&self) -> usize {
        self.leading_piece_count() + COMBINED_PIECES - if self.common { 2 } else { 0 } + self.behind
    }

    /// Infers the shape from a text, whose last record may be truncated.
    #[must_use]
    pub fn infer_from_sample(text: &[u8]) -> ShapeInference {
        let mut pieces = Vec::new();
        let mut records: Vec<SampledRecord<'_>> = Vec::new();
        let mut at = 0;
        while records.len() < SHAPE_RECORDS_MAX {
            let line = lines::next_nonblank_line(text, at, <[u8]>::is_empty);
            // A line without its line end may be truncated.
            if line.is_empty() || (text[line.clone()].last() != Some(&b'\n') && !records.is_empty())
            {
                break;
            }
            at = line.end;
            let line = &text[lines::trim_line_end(text, line)];
            // A line after a hole in its file is malformed.
            if line.first() == Some(&0) {
                continue;
            }
            let found = split_pieces(line, &mut pieces).and_then(|()| {
                join_client_list(line, &mut pieces, 1);
                AccessLogRecord::new(line, &pieces)?.check_quotes(line, &pieces)
            });
            if let Ok(found) = found {
                records.push(SampledRecord::new(line, &pieces, &found));
            }
        }
        let mut shown = ShapeInference::default();
        if records.is_empty() {
            return shown;
        }
        let most = |count: usize| count * 10 >= records.len() * 9;
        let counted = |is: &dyn Fn(&&SampledRecord<'_>) -> bool| records.iter().filter(is).count();
        let has_port = counted(&|record| record.has_host_and_port());
        let has_host = counted(&|record| record.has_host() && !record.has_host_and_port());
        if is_good_share(has_port + has_host, records.len()) {
            // In a record without a port, the port is null.
            let is_port = has_port >= has_host;
            shown.shape.site = if is_port { SitePrefix::HostAndPort } else { SitePrefix::Host };
        } else if records.len() > 1
            && let time = records[0].pieces_before_time.len()
            && time > 3
            && most(counted(&|record| record.pieces_before_time.len() == time))
        {
            let fields = if time == 4 { "a field" } else { "fields" };
            shown.unrecognized =
                Some(format!("{fields} before the client that an access log does not have"));
        }
        shown.shape.common = !most(counted(&|record| record.is_combined));
        shown.shape.combined = !shown.shape.common;
        let common = shown.shape.common;
        let alike: Vec<&SampledRecord<'_>> =
            records.iter().filter(|record| record.is_combined != common).collect();
        // The most common number of trailing pieces: a list of times may add some.
        let mut counts = std::collections::BTreeMap::new();
        for record in &alike {
            *counts.entry(record.extra_values.len()).or_insert(0_usize) += 1;
        }
        let frequent = counts.iter().rev().max_by_key(|(_, records)| **records);
        let behind = frequent.map_or(0, |(pieces, _)| *pieces);
        let whole: Vec<&SampledRecord<'_>> =
            alike.into_iter().filter(|record| record.extra_values.len() == behind).collect();
        let format = if common { "Common" } else { "Combined" };
        let not_read = |values: &str| {
            let values = crate::value_excerpt(values);
            format!(
                "more behind what the {format} format has, which is not read: `{values}` in the first"
            )
        };
        if behind == 0 || whole.len() * 10 < records.len() * 7 {
            // Too few records have trailing pieces, or too many have another number of them.
            let with_more = || records.iter().filter(|record| !record.extra_values.is_empty());
            if is_good_share(with_more().count(), records.len())
                && let Some(record) = with_more().next()
            {
                let values = record.extra_values.join(&b' ');
                shown.unrecognized.get_or_insert(not_read(&String::from_utf8_lossy(&values)));
            }
            return shown;
        }
        shown.shape.behind = behind;
        let column = |place: usize| whole.iter().map(move |record| record.extra_values[place]);
        let mut times = Vec::new();
        let mut unknown = Vec::new();
        for place in 0..behind {
            let unquoted = || column(place).map(unquote_piece);
            let are_all = |is: &dyn Fn(&[u8]) -> bool| {
                is_negligible(unquoted().filter(|value| !is(value)).count(), whole.len())
            };
            if are_all(&|value| value == b"-" || is_seconds_value(value))
                && unquoted().any(is_seconds_value)
            {
                times.push(place);
            } else if are_all(&is_address_list)
                && unquoted().any(|value| value != b"-" && is_address_list(value))
            {
                shown.shape.extras.push(ExtraColumn { place, is: ExtraColumnKind::Forwarded });
            } else if unquoted().any(|value| value != b"-") {
                unknown.push(place);
            }
        }
        let value = |place: usize| column(place).map(|piece| parse_seconds(unquote_piece(piece)));
        match times[..] {
            [] => {}
            [one] => shown
                .shape
                .extras
                .push(ExtraColumn { place: one, is: ExtraColumnKind::RequestTime }),
            [one, two] => {
                // A request to another server takes no longer than the whole request.
                let pairs = || value(one).zip(value(two)).filter_map(|(a, b)| Some((a?, b?)));
                let shorter = pairs().filter(|(first, second)| first < second).count();
                let longer = pairs().filter(|(first, second)| first > second).count();
                let is_first = is_negligible(shorter, pairs().count());
                let is_second = is_negligible(longer, pairs().count());
                let (all, upstream) = if is_first { (one, two) } else { (two, one) };
                if is_first || is_second {
                    shown
                        .shape
                        .extras
                        .push(ExtraColumn { place: all, is: ExtraColumnKind::RequestTime });
                    shown
                        .shape
                        .extras
                        .push(ExtraColumn { place: upstream, is: ExtraColumnKind::UpstreamTime });
                } else {
                    unknown.extend([one, two]);
                }
            }
            _ => unknown.extend(times),
        }
        shown.shape.extras.sort_by_key(|extra| extra.place);
        let mut seen = std::collections::HashSet::new();
        shown.shape.extras.retain(|extra| seen.insert(extra.is));
        unknown.sort_unstable();
        if let (Some(_), Some(record)) = (unknown.first(), whole.first()) {
            let values: Vec<&[u8]> = unknown
                .iter()
                .filter_map(|place| record.extra_values.get(*place).copied())
                .collect();
            shown.unrecognized = Some(not_read(&String::from_utf8_lossy(&values.join(&b' '))));
        }
        shown
    }
}

/// A record of a sample, quotes included.
struct SampledRecord<'a> {
    /// The pieces before the time.
    pieces_before_time: Vec<&'a [u8]>,
    is_combined: bool,
    extra_values: Vec<&'a [u8]>,
}

impl<'a> SampledRecord<'a> {
    fn new(line: &'a [u8], pieces: &[Range<usize>], found: &AccessLogRecord) -> Self {
        let text = |range: &Range<usize>| &line[range.clone()];
        let behind = found.time_piece + if found.is_combined { 7 } else { 5 };
        Self {
            pieces_before_time: pieces[..found.time_piece].iter().map(text).collect(),
            is_combined: found.is_combined,
            extra_values: PieceValues { line, pieces: pieces.get(behind..).unwrap_or_default() }
                .map(|range| &line[range])
                .collect(),
        }
    }

    /// Returns whether the record begins like `www.example.com:443 10.0.0.1 - - […`.
    fn has_host_and_port(&self) -> bool {
        let [site, client, _, _, ..] = self.pieces_before_time[..] else { return false };
        let Some(colon) = memchr::memrchr(b':', site) else { return false };
        let port = &site[colon + 1..];
        client != b"-"
            && colon > 0
            && can_be_site(&site[..colon])
            && (1..=5).contains(&port.len())
            && port.iter().all(u8::is_ascii_digit)
            // `::1:80` may be a lone address, unless the client follows it.
            && (parse_text::<Ipv6Addr>(site).is_none() || is_address(client))
    }

    /// Returns whether the record begins like `www.example.com 10.0.0.1 - - […`.
    fn has_host(&self) -> bool {
        let [site, client, _, _, ..] = self.pieces_before_time[..] else { return false };
        is_address(client) && !is_address(site) && can_be_site(site)
    }
}

/// Returns whether a piece can be the name or the address of a site, with an optional port, and is not the
/// time, the container or the program that others write in front of a record.
fn can_be_site(site: &[u8]) -> bool {
    let site = unquote_piece(site);
    let unbracketed = site.strip_prefix(b"[").and_then(|site| site.strip_suffix(b"]"));
    if matches!(site, b"-" | b"_") || parse_text::<IpAddr>(unbracketed.unwrap_or(site)).is_some() {
        return true;
    }
    let name = match memchr::memrchr(b':', site) {
        Some(colon) if site[colon + 1..].iter().all(u8::is_ascii_digit) => &site[..colon],
        _ => site,
    };
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
    let is_sign = |byte: &u8| is_letter(byte) || byte.is_ascii_digit() || b"-._*~".contains(byte);
    let is_dated = matches!(name, [_, _, _, _, b'-', _, _, b'-', _, _, ..])
        && name.iter().take(10).all(|byte| byte.is_ascii_digit() || *byte == b'-');
    name.iter().any(is_letter) && name.iter().all(is_sign) && !is_dated
}

/// Returns whether a piece is an address, or a list that begins with one.
pub(super) fn is_address(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b',').next().unwrap_or(text);
    parse_text::<IpAddr>(first).is_some()
}

fn parse_text<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns a piece without its quotes.
fn unquote_piece(piece: &[u8]) -> &[u8] {
    match piece {
        [b'"', inner @ .., b'"'] => inner,
        _ => piece,
    }
}

/// Returns whether a value is seconds with three decimals, as nginx writes them (`0.005`), or a list of such
/// values, with `-` among them.
fn is_seconds_value(value: &[u8]) -> bool {
    if value.iter().any(|byte| matches!(byte, b',' | b':')) {
        let items = || value.split(|byte| matches!(byte, b',' | b':')).map(<[u8]>::trim_ascii);
        return items().all(|item| item == b"-" || is_seconds_value(item))
            && items().any(is_seconds_value);
    }
    match memchr::memchr(b'.', value) {
        Some(point) => {
            let (whole, part) = (&value[..point], &value[point + 1..]);
            !whole.is_empty()
                && whole.iter().all(u8::is_ascii_digit)
                && part.len() == 3
                && part.iter().all(u8::is_ascii_digit)
        }
        None => false,
    }
}

/// Returns whether a value is a list of addresses separated by commas, as proxies write it.
fn is_address_list(value: &[u8]) -> bool {
    value == b"-"
        || value.split(|byte| *byte == b',').all(|part| {
            let part = part.trim_ascii();
            part == b"unknown" || parse_text::<IpAddr>(part).is_some()
        })
}
