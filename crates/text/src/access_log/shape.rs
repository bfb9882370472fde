//! What stands before and behind the Common and the Combined Log Format, as a sample shows it.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use serde::{Deserialize, Serialize};

use super::{COMBINED, Record, RecordField, Values, join_clients, seconds, split};
use crate::lines;

/// So many records show a shape.
const RECORDS_MAX: usize = 500;

/// Whether so many decide what the others are: one odd record in twenty decides nothing.
fn nearly_all(odd: usize, count: usize) -> bool {
    odd * 20 <= count
}

/// Whether so many are a good share, and no odd ones.
fn good_share(count: usize, all: usize) -> bool {
    count > 0 && count * 5 >= all
}

/// What the records of a log have besides what the Common Log Format has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub(super) site: Site,
    /// Whether there are records without a referrer and a user agent, and more than a few.
    pub(super) common: bool,
    /// True if nearly all records have a referrer and a user agent. One that has something else in their place is
    /// malformed. Default: false, as no sample tells.
    #[serde(default)]
    pub(super) combined: bool,
    /// Pieces behind what the format has.
    pub(super) behind: usize,
    /// Those that are columns.
    pub(super) extras: Vec<Extra>,
}

/// What stands before the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Site {
    #[default]
    None,
    Host,
    HostAndPort,
}

/// A piece behind what the format has that is a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extra {
    /// Its place among those pieces.
    pub(super) place: usize,
    is: Is,
}

/// What an extra piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Is {
    RequestTime,
    UpstreamTime,
    Forwarded,
}

impl Is {
    /// The name of its column.
    fn name(self) -> &'static str {
        match self {
            Is::RequestTime => "request_time",
            Is::UpstreamTime => "upstream_response_time",
            Is::Forwarded => "x_forwarded_for",
        }
    }
}

impl Extra {
    pub(super) fn is_seconds(&self) -> bool {
        self.is != Is::Forwarded
    }
}

/// What a sample shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// The shape of its records.
    pub shape: Shape,
    /// What of them is not understood: in words, behind "its records have".
    pub unknown: Option<String>,
}

impl Shape {
    /// The columns, in the order of their positions: as [`columns`](super::columns), behind `host`
    /// (Utf8View) and `port` (Int32) and before `request_time`, `upstream_response_time` (Float64, in
    /// seconds) and `x_forwarded_for` (Utf8View), as far as they are there.
    #[must_use]
    pub fn columns(&self) -> Vec<FieldRef> {
        self.fields().into_iter().map(|(_, field)| field).collect()
    }

    /// The columns, and what of a record they are.
    pub(super) fn fields(&self) -> Vec<(RecordField, FieldRef)> {
        let text = |name: &str| (name.to_owned(), DataType::Utf8View);
        let site: &[RecordField] = match self.site {
            Site::None => &[],
            Site::Host => &[RecordField::Host],
            Site::HostAndPort => &[RecordField::Host, RecordField::Port],
        };
        let extras = self.extras.iter().map(|extra| RecordField::Extra(extra.place));
        let parts = site.iter().copied().chain(RecordField::ALL).chain(extras);
        parts
            .map(|part| {
                let (name, data_type) = match part {
                    RecordField::Host => text("host"),
                    RecordField::Port => ("port".to_owned(), DataType::Int32),
                    RecordField::Ip => text("ip"),
                    RecordField::Ident => text("ident"),
                    RecordField::User => text("user"),
                    RecordField::Time => {
                        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                        ("ts".to_owned(), utc)
                    }
                    RecordField::Method => text("method"),
                    RecordField::Path => text("path"),
                    RecordField::Protocol => text("protocol"),
                    RecordField::Status => ("status".to_owned(), DataType::Int16),
                    RecordField::Bytes => ("bytes".to_owned(), DataType::Int64),
                    RecordField::Referrer => text("referrer"),
                    RecordField::UserAgent => text("user_agent"),
                    RecordField::Extra(place) => {
                        let extra = self.extras.iter().find(|extra| extra.place == place);
                        match extra {
                            Some(extra) if extra.is_seconds() => {
                                (extra.is.name().to_owned(), DataType::Float64)
                            }
                            extra => text(extra.map_or(Is::Forwarded, |extra| extra.is).name()),
                        }
                    }
                };
                (part, Arc::new(Field::new(name, data_type, true)))
            })
            .collect()
    }

    /// Pieces before the client.
    pub(super) fn lead(&self) -> usize {
        usize::from(self.site != Site::None)
    }

    /// Pieces of a record that has all of it.
    pub(super) fn pieces(&self) -> usize {
        self.lead() + COMBINED - if self.common { 2 } else { 0 } + self.behind
    }

    /// What the records of a text show, of which the last one may be cut off.
    #[must_use]
    pub fn shown_by(text: &[u8]) -> Shown {
        let mut pieces = Vec::new();
        let mut records: Vec<Sampled<'_>> = Vec::new();
        let mut at = 0;
        while records.len() < RECORDS_MAX {
            let line = lines::next_filled(text, at, <[u8]>::is_empty);
            // What lacks its line end may lack more.
            if line.is_empty() || (text[line.clone()].last() != Some(&b'\n') && !records.is_empty())
            {
                break;
            }
            at = line.end;
            let line = &text[lines::trim(text, line)];
            // A line behind a hole of its file is malformed.
            if line.first() == Some(&0) {
                continue;
            }
            let found = split(line, &mut pieces).and_then(|()| {
                join_clients(line, &mut pieces, 1);
                Record::new(line, &pieces)?.quoted_well(line, &pieces)
            });
            if let Ok(found) = found {
                records.push(Sampled::new(line, &pieces, &found));
            }
        }
        let mut shown = Shown::default();
        if records.is_empty() {
            return shown;
        }
        let most = |count: usize| count * 10 >= records.len() * 9;
        let counted = |is: &dyn Fn(&&Sampled<'_>) -> bool| records.iter().filter(is).count();
        let has_port = counted(&|record| record.begins_with_host_and_port());
        let has_host =
            counted(&|record| record.begins_with_host() && !record.begins_with_host_and_port());
        if good_share(has_port + has_host, records.len()) {
            // Where a record lacks it, the port is null.
            let is_port = has_port >= has_host;
            shown.shape.site = if is_port { Site::HostAndPort } else { Site::Host };
        } else if records.len() > 1
            && let time = records[0].before.len()
            && time > 3
            && most(counted(&|record| record.before.len() == time))
        {
            let fields = if time == 4 { "a field" } else { "fields" };
            shown.unknown =
                Some(format!("{fields} before the client that an access log does not have"));
        }
        shown.shape.common = !most(counted(&|record| record.combined));
        shown.shape.combined = !shown.shape.common;
        let common = shown.shape.common;
        let alike: Vec<&Sampled<'_>> =
            records.iter().filter(|record| record.combined != common).collect();
        // As many pieces behind as most have: a list of times may be some more.
        let mut counts = std::collections::BTreeMap::new();
        for record in &alike {
            *counts.entry(record.behind.len()).or_insert(0_usize) += 1;
        }
        let frequent = counts.iter().rev().max_by_key(|(_, records)| **records);
        let behind = frequent.map_or(0, |(pieces, _)| *pieces);
        let whole: Vec<&Sampled<'_>> =
            alike.into_iter().filter(|record| record.behind.len() == behind).collect();
        let format = if common { "Common" } else { "Combined" };
        let not_read = |values: &str| {
            let values = crate::shown(values);
            format!(
                "more behind what the {format} format has, which is not read: `{values}` in the first"
            )
        };
        if behind == 0 || whole.len() * 10 < records.len() * 7 {
            // Too few have it, or too many another number of them.
            let with_more = || records.iter().filter(|record| !record.behind.is_empty());
            if good_share(with_more().count(), records.len())
                && let Some(record) = with_more().next()
            {
                let values = record.behind.join(&b' ');
                shown.unknown.get_or_insert(not_read(&String::from_utf8_lossy(&values)));
            }
            return shown;
        }
        shown.shape.behind = behind;
        let column = |place: usize| whole.iter().map(move |record| record.behind[place]);
        let mut times = Vec::new();
        let mut unknown = Vec::new();
        for place in 0..behind {
            let unquoted = || column(place).map(inner);
            let are_all = |is: &dyn Fn(&[u8]) -> bool| {
                nearly_all(unquoted().filter(|value| !is(value)).count(), whole.len())
            };
            if are_all(&|value| value == b"-" || is_seconds(value)) && unquoted().any(is_seconds) {
                times.push(place);
            } else if are_all(&is_forwarded)
                && unquoted().any(|value| value != b"-" && is_forwarded(value))
            {
                shown.shape.extras.push(Extra { place, is: Is::Forwarded });
            } else if unquoted().any(|value| value != b"-") {
                unknown.push(place);
            }
        }
        let value = |place: usize| column(place).map(|piece| seconds(inner(piece)));
        match times[..] {
            [] => {}
            [one] => shown.shape.extras.push(Extra { place: one, is: Is::RequestTime }),
            [one, two] => {
                // What was asked of another server took no longer than the whole.
                let pairs = || value(one).zip(value(two)).filter_map(|(a, b)| Some((a?, b?)));
                let shorter = pairs().filter(|(first, second)| first < second).count();
                let longer = pairs().filter(|(first, second)| first > second).count();
                let is_first = nearly_all(shorter, pairs().count());
                let is_second = nearly_all(longer, pairs().count());
                let (all, upstream) = if is_first { (one, two) } else { (two, one) };
                if is_first || is_second {
                    shown.shape.extras.push(Extra { place: all, is: Is::RequestTime });
                    shown.shape.extras.push(Extra { place: upstream, is: Is::UpstreamTime });
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
            let values: Vec<&[u8]> =
                unknown.iter().filter_map(|place| record.behind.get(*place).copied()).collect();
            shown.unknown = Some(not_read(&String::from_utf8_lossy(&values.join(&b' '))));
        }
        shown
    }
}

/// A record of a sample, its quotes and all.
struct Sampled<'a> {
    /// The pieces before the time.
    before: Vec<&'a [u8]>,
    combined: bool,
    behind: Vec<&'a [u8]>,
}

impl<'a> Sampled<'a> {
    fn new(line: &'a [u8], pieces: &[Range<usize>], found: &Record) -> Self {
        let text = |range: &Range<usize>| &line[range.clone()];
        let behind = found.time + if found.combined { 7 } else { 5 };
        Self {
            before: pieces[..found.time].iter().map(text).collect(),
            combined: found.combined,
            behind: Values { line, pieces: pieces.get(behind..).unwrap_or_default() }
                .map(|range| &line[range])
                .collect(),
        }
    }

    /// `www.example.com:443 10.0.0.1 - - […`
    fn begins_with_host_and_port(&self) -> bool {
        let [site, client, _, _, ..] = self.before[..] else { return false };
        let Some(colon) = memchr::memrchr(b':', site) else { return false };
        let port = &site[colon + 1..];
        client != b"-"
            && colon > 0
            && is_host(&site[..colon])
            && (1..=5).contains(&port.len())
            && port.iter().all(u8::is_ascii_digit)
            // `::1:80` may be an address alone, unless the client follows it.
            && (parsed::<Ipv6Addr>(site).is_none() || is_address(client))
    }

    /// `www.example.com 10.0.0.1 - - […`
    fn begins_with_host(&self) -> bool {
        let [site, client, _, _, ..] = self.before[..] else { return false };
        is_address(client) && !is_address(site) && is_host(site)
    }
}

/// Returns true if a piece can be the name or the address of a site, a port behind it or none, and is not the time, the
/// container or the program that others write in front of a record.
fn is_host(site: &[u8]) -> bool {
    let site = inner(site);
    let unbracketed = site.strip_prefix(b"[").and_then(|site| site.strip_suffix(b"]"));
    if matches!(site, b"-" | b"_") || parsed::<IpAddr>(unbracketed.unwrap_or(site)).is_some() {
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

/// Returns true if a piece is an address, or a list that begins with one.
pub(super) fn is_address(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b',').next().unwrap_or(text);
    parsed::<IpAddr>(first).is_some()
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A piece without its quotes.
fn inner(piece: &[u8]) -> &[u8] {
    match piece {
        [b'"', inner @ .., b'"'] => inner,
        _ => piece,
    }
}

/// `0.005`: seconds, to milliseconds, as nginx writes them; or a list of such, with `-` among them.
fn is_seconds(value: &[u8]) -> bool {
    if value.iter().any(|byte| matches!(byte, b',' | b':')) {
        let items = || value.split(|byte| matches!(byte, b',' | b':')).map(<[u8]>::trim_ascii);
        return items().all(|item| item == b"-" || is_seconds(item)) && items().any(is_seconds);
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

/// Addresses with commas between, as proxies write them.
fn is_forwarded(value: &[u8]) -> bool {
    value == b"-"
        || value.split(|byte| *byte == b',').all(|part| {
            let part = part.trim_ascii();
            part == b"unknown" || parsed::<IpAddr>(part).is_some()
        })
}
