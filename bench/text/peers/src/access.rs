//! The peers that read access logs: Combined, as Apache and nginx write it.
//!
//! ```text
//! 83.149.9.216 - ann [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 203 "-" "Mozilla/5.0"
//! ip           ident user ts             method path protocol  status bytes referrer user_agent
//! ```
//!
//! A line is nine pieces, of which the request is three columns. `-` means null. What stands in
//! quotes is taken as it is written; the only escapes in the data, in a few referrers, which
//! are not UTF-8 when undone, stay as they are with `tidemill-text` too.

use arrow_array::RecordBatch;
use memchr::{memchr, memchr2, memrchr};
use regex::bytes::{CaptureLocations, Regex};

use crate::cases::{Case, Kind};
use crate::columns::{Column, Columns};
use crate::{Parser, Result};

const PIECES: usize = 9;
const TIME: usize = 3;
const REQUEST: usize = 4;
const COLUMNS: usize = 11;

/// - `regex`: one pattern per line, groups for the wanted fields only;
/// - `csv`: the crate told that a space is the delimiter, as one does with a database; it would
///   stumble over an escaped quote, of which the data has none;
/// - `memchr`: a scanner by hand, which leaves a line when it has what is wanted.
///
/// All fill Arrow builders.
pub fn parser(case: &Case, name: &str) -> Result<Box<dyn Parser>> {
    let builders = Builders {
        columns: Columns::new(case),
        fields: case.wanted.iter().map(|wanted| (wanted.at, wanted.kind)).collect(),
    };
    Ok(match name {
        "regex" => Box::new(ByRegex::new(builders)?),
        "csv" => Box::new(ByCsv { builders, record: csv::ByteRecord::new() }),
        "memchr" => Box::new(ByHand(builders)),
        _ => return Err(format!("no parser `{name}`").into()),
    })
}

struct Builders {
    columns: Columns,
    fields: Vec<(usize, Kind)>,
}

impl Builders {
    /// Appends what is wanted of a line's pieces.
    #[inline]
    fn append<'a>(&mut self, mut piece: impl FnMut(usize) -> Option<&'a [u8]>) -> Result<()> {
        let mut parts = None;
        for (column, &(at, kind)) in self.columns.columns.iter_mut().zip(&self.fields) {
            let value = piece(piece_of(at)).ok_or("a record is too short")?;
            let value = match at {
                REQUEST..=6 => parts.get_or_insert_with(|| request(value))[at - REQUEST],
                _ => value,
            };
            append(column, value, kind)?;
        }
        Ok(())
    }
}

/// The piece that a column is in.
fn piece_of(column: usize) -> usize {
    match column {
        0..=REQUEST => column,
        5 | 6 => REQUEST,
        _ => column - 2,
    }
}

/// Method, path and protocol.
fn request(text: &[u8]) -> [&[u8]; 3] {
    match (memchr(b' ', text), memrchr(b' ', text)) {
        (Some(first), Some(last)) if first < last && text[last + 1..].starts_with(b"HTTP/") => {
            [&text[..first], &text[first + 1..last], &text[last + 1..]]
        }
        _ => [b"-", text, b"-"],
    }
}

#[inline]
fn append(column: &mut Column, value: &[u8], kind: Kind) -> Result<()> {
    match kind {
        _ if value == b"-" => column.null(),
        Kind::Time => column.int(micros(value).ok_or("not a time")?)?,
        _ => column.bytes(value)?,
    }
    Ok(())
}

/// `17/May/2015:10:05:03 +0000` in microseconds since 1970.
fn micros(text: &[u8]) -> Option<i64> {
    let digits = |at: usize, count: usize| {
        text.get(at..at + count)?.iter().try_fold(0_i64, |number, &byte| {
            byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let name = text.get(3..6)?;
    let month = MONTHS.chunks(3).position(|month| month == name)?;
    let month = i64::try_from(month).ok()? + 1;
    let (day, year) = (digits(0, 2)?, digits(7, 4)?);
    let seconds = digits(12, 2)? * 3600 + digits(15, 2)? * 60 + digits(18, 2)?;
    let zone = digits(22, 2)? * 3600 + digits(24, 2)? * 60;
    let zone = if text[21] == b'-' { -zone } else { zone };

    // Days since 1970-01-01, by years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some((days * 86_400 + seconds - zone) * 1_000_000)
}

struct ByRegex {
    builders: Builders,
    pattern: Regex,
    groups: CaptureLocations,
}

impl ByRegex {
    fn new(builders: Builders) -> Result<Self> {
        const QUOTED: &str = r#"[^"\\]*(?:\\.[^"\\]*)*"#;
        // Columns that stand by themselves, and the three of the request in quotes.
        let columns: [(&str, &str); COLUMNS] = [
            ("[^ ]+", " "),
            ("[^ ]+", " "),
            ("[^ ]+", r" \["),
            (r"[^\]]+", r#"\] ""#),
            ("[A-Z_-]+", " "),
            ("[^ ]+", " "),
            ("HTTP/[0-9.]+", "\" "),
            ("[0-9]{3}", " "),
            ("[0-9]+|-", " \""),
            (QUOTED, "\" \""),
            (QUOTED, "\"$"),
        ];
        let mut pattern = String::from("(?s-u)^");
        for (at, (column, behind)) in columns.iter().enumerate() {
            let wanted = builders.fields.iter().any(|(wanted, _)| *wanted == at);
            let group = if wanted { "(" } else { "(?:" };
            pattern += &format!("{group}{column}){behind}");
        }
        let pattern = Regex::new(&pattern)?;
        Ok(Self { groups: pattern.capture_locations(), builders, pattern })
    }
}

impl Parser for ByRegex {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            let line = &block[start..end];
            start = end + 1;
            self.pattern.captures_read(&mut self.groups, line).ok_or("a line is not a record")?;
            // The groups are in the order of the columns.
            let columns = self.builders.columns.columns.iter_mut().zip(&self.builders.fields);
            for (group, (column, (_, kind))) in columns.enumerate() {
                let (from, to) = self.groups.get(group + 1).ok_or("a group is missing")?;
                append(column, &line[from..to], *kind)?;
            }
            self.builders.columns.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct ByCsv {
    builders: Builders,
    record: csv::ByteRecord,
}

impl Parser for ByCsv {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(b' ')
            .double_quote(false)
            .buffer_capacity(64 << 10)
            .from_reader(block);
        while reader.read_byte_record(&mut self.record)? {
            let record = &self.record;
            // The time is two fields, `[17/May/2015:10:05:03` and `+0000]`.
            let mut time = [0; 26];
            if let (Some(local), Some(zone)) = (record.get(TIME), record.get(TIME + 1))
                && let (21, 6) = (local.len(), zone.len())
            {
                time[..20].copy_from_slice(&local[1..]);
                time[20] = b' ';
                time[21..].copy_from_slice(&zone[..5]);
            }
            self.builders.append(|piece| match piece {
                TIME => Some(&time[..]),
                _ => record.get(piece + usize::from(piece > TIME)),
            })?;
            self.builders.columns.end_row(out)?;
        }
        self.builders.columns.flush(out)
    }
}

struct ByHand(Builders);

impl Parser for ByHand {
    fn parse(&mut self, block: &[u8], out: &mut dyn FnMut(&RecordBatch)) -> Result<()> {
        let last = self.0.fields.iter().map(|(at, _)| piece_of(*at)).max().unwrap_or(0);
        let mut at = 0;
        while at < block.len() {
            let mut pieces: [&[u8]; PIECES] = [b""; PIECES];
            for (index, piece) in pieces.iter_mut().enumerate().take(last + 1) {
                let (open, close) = match index {
                    TIME => (1, b']'),
                    4 | 7 | 8 => (1, b'"'),
                    _ => (0, b' '),
                };
                let start = at + open;
                let mut end = start;
                loop {
                    let rest = block.get(end..).ok_or("a record is too short")?;
                    let found = match close {
                        b'"' => memchr2(b'"', b'\\', rest),
                        _ => memchr(close, rest),
                    };
                    end += found.ok_or("a record is too short")?;
                    if block[end] == close {
                        break;
                    }
                    end += 2; // an escape
                }
                *piece = &block[start..end];
                at = end + 1 + open; // behind the space, or the newline
            }
            if last + 1 < PIECES {
                at += memchr(b'\n', &block[at - 1..]).ok_or("a record is too short")?;
            }
            self.0.append(|index| Some(pieces[index]))?;
            self.0.columns.end_row(out)?;
        }
        self.0.columns.flush(out)
    }
}
