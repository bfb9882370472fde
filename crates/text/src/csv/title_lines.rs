//! Search for a header below title lines, as reports and spreadsheets write them:
//!
//! ```text
//!   1  Sales report, EMEA            fewer fields than most records have,
//!   2  created 2026-11-28            or half of its fields or more empty (`Sales report,,,`)
//!   3
//!   4  day,region,amount             all fields filled, with names that differ
//!   5  2026-11-01,north,12           as many fields in nearly all records from here on
//! ```
//!
//! The search changes nothing by itself: the caller decides. A text whose first record has as many fields as
//! most records, and more than half of them filled, has its header there, whatever follows.
//!
//! Some texts only look so: a header with unnamed columns (`,name`, as pandas writes an index), and a column
//! of prose with commas (`hello, world`). In three cases the table therefore needs a column of numbers or
//! dates: a title is exactly half filled, a space follows a delimiter of the header, or a line stands below a
//! short table.

use std::collections::HashMap;

use super::{RecordGrammar, StatedDialectParts, for_each_field};
use crate::csv_dialect::CsvDialect;
use crate::record_boundaries::next_record_range;

/// Maximum number of bytes that the search examines.
const EXAMINED_BYTES_MAX: usize = 64 << 10;
const EXAMINED_RECORDS_MAX: usize = 200;
/// Maximum number of title records.
const TITLE_RECORDS_MAX: usize = 50;
/// Size above which a text may be truncated within its last record.
const COMPLETE_TEXT_BYTES_MAX: usize = 4 << 10;

/// Returns the line number, from 1, of the likely header of a text, below titles; `None` if the first record
/// is the header. `text` is the beginning of the text, and `said` its dialect. `given` tells which parts of
/// the dialect are stated; the function searches for a delimiter that is not.
///
/// ```
/// use tidemill_text::{CsvDialect, csv::{StatedDialectParts, find_header_below_titles}};
///
/// let find = |text: &str| {
///     find_header_below_titles(&CsvDialect::default(), StatedDialectParts::default(), text.as_bytes())
/// };
/// assert_eq!(find("Sales report\n\nday,amount\n2026-11-01,12\n2026-11-02,7\n"), Some(3));
/// assert_eq!(find("day,amount\n2026-11-01,12\n2026-11-02,7\n"), None);
/// ```
#[must_use]
pub fn find_header_below_titles(
    said: &CsvDialect,
    given: StatedDialectParts,
    text: &[u8],
) -> Option<u64> {
    if !said.header {
        return None;
    }
    let text = &text[..text.len().min(EXAMINED_BYTES_MAX)];
    let is_taken = |byte: u8| [said.quote, said.escape, said.comment].contains(&Some(byte));
    let others = [b',', b'\t', b';', b'|'].into_iter().filter(|byte| *byte != said.delimiter);
    let others = others.filter(|byte| !given.delimiter && !is_taken(*byte));
    let mut best: Option<(usize, u64)> = None;
    for delimiter in std::iter::once(said.delimiter).chain(others) {
        let dialect = CsvDialect { delimiter, ..said.clone() };
        let records = HeaderCandidate::parse_all(&dialect, text);
        // A text that fits from its first record on has its header at the top.
        if delimiter == said.delimiter && is_table(&records) {
            return None;
        }
        if let Some((fields, line)) = find_table_below_titles(&records)
            && best.is_none_or(|(most, _)| fields > most)
        {
            best = Some((fields, line));
        }
    }
    best.map(|(_, line)| line)
}

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TitleFieldKind {
    Empty,
    /// Text that may be the name of a column.
    Name,
    /// A number, a date or the like.
    Value,
}

/// The features of a record that distinguish a header from a title.
struct HeaderCandidate {
    /// Number of the line that it begins in, from 1.
    line: u64,
    fields: usize,
    filled_fields: usize,
    /// The kinds of its fields.
    kinds: Vec<TitleFieldKind>,
    /// True if a space precedes a field other than the first.
    is_spaced: bool,
    /// True if all fields are filled with distinct names.
    is_names: bool,
    /// True if it begins as most comments do.
    is_comment: bool,
}

impl HeaderCandidate {
    fn parse_all(dialect: &CsvDialect, text: &[u8]) -> Vec<HeaderCandidate> {
        let grammar = RecordGrammar::from_dialect(dialect);
        let (mut records, mut at) = (Vec::new(), 0);
        let (mut line, mut counted) = (1, 0);
        while records.len() < EXAMINED_RECORDS_MAX {
            let range = next_record_range(grammar, text, at);
            let may_be_cut =
                range.end == text.len() && text.len() > COMPLETE_TEXT_BYTES_MAX && at > 0;
            if range.is_empty() || may_be_cut {
                break;
            }
            at = range.end;
            line += count_line_ends(&text[counted..range.start]);
            counted = range.start;
            records.push(HeaderCandidate::parse_record(dialect, &text[range], line));
        }
        records
    }

    fn parse_record(dialect: &CsvDialect, record: &[u8], line: u64) -> HeaderCandidate {
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut is_spaced = false;
        for_each_field(dialect, record, |field| {
            is_spaced |= !values.is_empty() && field.starts_with(b" ");
            values.push(field.trim_ascii().to_vec());
        });
        let kind = |value: &Vec<u8>| match (value.is_empty(), can_be_column_name(value)) {
            (true, _) => TitleFieldKind::Empty,
            (false, true) => TitleFieldKind::Name,
            (false, false) => TitleFieldKind::Value,
        };
        let kinds: Vec<TitleFieldKind> = values.iter().map(kind).collect();
        let filled = values.iter().filter(|value| !value.is_empty()).count();
        let fields = values.len();
        let mut is_names = kinds.iter().all(|kind| *kind == TitleFieldKind::Name);
        values.sort_unstable();
        values.dedup();
        is_names &= values.len() == fields;
        let is_comment = record.starts_with(b"#");
        HeaderCandidate {
            line,
            fields,
            filled_fields: filled,
            kinds,
            is_spaced,
            is_names,
            is_comment,
        }
    }

    /// Returns whether it may be a title above a table whose records have `fields` fields.
    fn can_be_title(&self, fields: usize) -> bool {
        self.fields != fields || 2 * self.filled_fields <= fields
    }

    /// Returns whether it may also be a header above such a table, with names for half of its columns.
    fn is_half_filled(&self, fields: usize) -> bool {
        self.fields == fields && 2 * self.filled_fields == fields
    }
}

/// Returns the number of line ends in a text; a lone carriage return counts too.
fn count_line_ends(text: &[u8]) -> u64 {
    let ends = memchr::memchr2_iter(b'\n', b'\r', text);
    let is_pair = |at: &usize| text[*at] == b'\r' && text.get(at + 1) == Some(&b'\n');
    ends.filter(|at| !is_pair(at)).count() as u64
}

/// Returns whether a value may be the name of a column: a year, or text that is neither a number nor a date.
fn can_be_column_name(value: &[u8]) -> bool {
    let is_year = value.len() == 4
        && value.iter().all(u8::is_ascii_digit)
        && (value.starts_with(b"19") || value.starts_with(b"20"));
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let begins_as_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    is_year || !text.is_empty() && !begins_as_number && text.parse::<f64>().is_err()
}

/// Returns the most common number of fields; the largest of several.
fn most_common_field_count(records: &[HeaderCandidate]) -> usize {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for record in records {
        *counts.entry(record.fields).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(fields, count)| (*count, *fields));
    most.map_or(0, |(fields, _)| fields)
}

/// Returns whether a column of a table holds numbers, dates or the like, and no names.
fn has_value_column(fields: usize, data: &[HeaderCandidate]) -> bool {
    (0..fields).any(|field| {
        let mut kinds = data.iter().filter_map(|record| record.kinds.get(field));
        let holds = |wanted: TitleFieldKind| kinds.clone().any(|kind| *kind == wanted);
        holds(TitleFieldKind::Value) && kinds.all(|kind| *kind != TitleFieldKind::Name)
    })
}

/// Returns whether the records form a table from the first one on.
fn is_table(records: &[HeaderCandidate]) -> bool {
    let fields = most_common_field_count(records);
    fields > 1 && records.first().is_some_and(|first| !first.can_be_title(fields))
}

/// Returns the number of fields of a table below titles, and the line of its header. The table may be shorter
/// than the titles above it, and may have a line below it.
fn find_table_below_titles(records: &[HeaderCandidate]) -> Option<(usize, u64)> {
    let from_end = |back: usize| {
        let at = records.len().checked_sub(back)?;
        records.get(at).map(|record| record.fields)
    };
    let found = |fields: usize| {
        let titles =
            records.iter().take(TITLE_RECORDS_MAX + 1).take_while(|it| it.can_be_title(fields));
        let (above, below) = records.split_at_checked(titles.count())?;
        let (header, mut data) = below.split_first()?;
        let mut is_doubtful = header.is_spaced || above.iter().any(|it| it.is_half_filled(fields));
        let fits = |data: &[HeaderCandidate]| {
            data.iter().filter(|record| record.fields != fields).count() * 10 <= data.len()
        };
        if !fits(data)
            && let Some((last, others)) = data.split_last()
            && last.fields != fields
        {
            (data, is_doubtful) = (others, true);
        }
        // Comment lines have an option of their own.
        if fields < 2 || above.is_empty() || above.iter().all(|title| title.is_comment) {
            return None;
        }
        let is_header = header.is_names && !data.is_empty() && fits(data);
        let is_sure = !is_doubtful || has_value_column(fields, data);
        (is_header && is_sure).then_some((fields, header.line))
    };
    let fields = [Some(most_common_field_count(records)), from_end(1), from_end(2)];
    fields.into_iter().flatten().find_map(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(text: &str) -> Option<u64> {
        find_header_below_titles(
            &CsvDialect::default(),
            StatedDialectParts::default(),
            text.as_bytes(),
        )
    }

    #[test]
    fn header_below_titles_is_found_and_header_at_top_is_not() {
        let rows = "2026-11-01,north,12\n2026-11-02,south,7\n";
        for (text, expected) in [
            (format!("Sales report\nday,region,amount\n{rows}"), Some(2)),
            (format!("Sales report\n\n\nday,region,amount\n{rows}"), Some(4)),
            (format!("Sales report, EMEA\ncreated 2026\nday,region,amount\n{rows}"), Some(3)),
            // Spreadsheets write titles like this.
            (format!("Sales report,,\n,,\nday,region,amount\n{rows}"), Some(3)),
            (format!("Sales report\r\n\r\nday,region,amount\r\n{rows}"), Some(3)),
            (format!("Sales report\r\rday,region,amount\r{}", rows.replace('\n', "\r")), Some(3)),
            (format!("\"Sales, \"\"all\"\"\"\n\"day\",\"region\",\"amount\"\n{rows}"), Some(2)),
            (format!("a;b;c\nday;region;amount\n{}", rows.replace(',', ";")), None),
            (format!("Report\nday;region;amount\n{}", rows.replace(',', ";")), Some(2)),
            (format!("Report, all\nday\tregion\tamount\n{}", rows.replace(',', "\t")), Some(2)),
            (format!("Report\nregion,2024,2025\n{}", "north,1,2\n".repeat(3)), Some(2)),
            ("Sales report,\n,\nday,amount\n2026-11-01,12\n".to_owned(), Some(3)),
            (format!("Sales report\nday, region, amount\n{}", rows.replace(',', ", ")), Some(2)),
            ("Report\nregion,city\nnorth,foo\nsouth,bar\n".to_owned(), Some(2)),
            // A line below a table, even a short one.
            ("Rep\nday,amt\n2024-01-01,5\n2024-01-02,6\nTotal\n".to_owned(), Some(2)),
            ("A\nB\nC\nD\nday,amt\n2024-01-01,5\nTotal\n".to_owned(), Some(5)),
            // A header with unnamed columns, and a column of prose.
            (",name\nr1,foo\nr2,bar\n".to_owned(), None),
            ("a,,b,\nx,y,z,w\nu,v,w,q\n".to_owned(), None),
            ("note\nhello, world\nfoo, bar\n".to_owned(), None),
            ("note\nplain\none,two\nfour,five\nsix\n".to_owned(), None),
            // A header at the top, whatever follows.
            (format!("day,region,amount\n{rows}"), None),
            (format!("day,region,amount\n{rows}{}", "total,19\n"), None),
            ("name,,note\nx,1,\ny,2,\n".to_owned(), None),
            ("name,a,b,c\nx,,,\ny,,,\nz,,,\n".to_owned(), None),
            // No header below.
            (format!("Sales report\n{rows}"), None),
            ("Sales report\nday,region\n".to_owned(), None),
            ("Sales report\nday,day\n1,2\n".to_owned(), None),
            ("text\none, two\nthree\nfour, five, six\n".to_owned(), None),
            ("# by x\n# on y\nday,region,amount\n1,2,3\n".to_owned(), None),
            (format!("A\nB\nC\nD\nE\nF\nday,region,amount\n{rows}"), Some(7)),
            (format!("A\nday,region,amount\n{}total\n", rows.repeat(5)), Some(2)),
            (String::new(), None),
            ("a\n".to_owned(), None),
            ("a\nb\nc\n".to_owned(), None),
        ] {
            assert_eq!(find(&text), expected, "{text}");
        }
        let text = b"Report\nday;n\n1;2\n3;4\n";
        let comma = StatedDialectParts { delimiter: true, ..StatedDialectParts::default() };
        assert_eq!(find_header_below_titles(&CsvDialect::default(), comma, text), None);
        let headless = CsvDialect { header: false, ..CsvDialect::default() };
        assert_eq!(find_header_below_titles(&headless, StatedDialectParts::default(), text), None);
    }

    proptest! {
        #[test]
        fn header_line_is_found_below_any_titles(
            titles in prop::collection::vec("[A-Z][a-z .:0-9]{1,20}", 1..6),
            blank in 0..3usize,
            fields in 2..6usize,
            rows in 2..30usize,
            delimiter in prop::sample::select(vec![",", ";", "\t", "|"]),
            is_filled_up: bool,
        ) {
            let row = |value: &dyn Fn(usize) -> String| {
                (0..fields).map(value).collect::<Vec<_>>().join(delimiter) + "\n"
            };
            let fill = if is_filled_up { delimiter.repeat(fields - 1) } else { String::new() };
            let mut text: String = titles.iter().map(|title| format!("{title}{fill}\n")).collect();
            text.push_str(&"\n".repeat(blank));
            text.push_str(&row(&|field| format!("name_{field}")));
            for number in 0..rows {
                text.push_str(&row(&|field| (number * field).to_string()));
            }
            prop_assert_eq!(find(&text), Some((titles.len() + blank + 1) as u64), "{}", text);
            let table: String = text.lines().skip(titles.len() + blank).map(|line| format!("{line}\n")).collect();
            prop_assert_eq!(find(&table), None);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[a1,;|\\t '\"#\n\r]{0,80}") {
            let _ = find_header_below_titles(&CsvDialect::default(), StatedDialectParts::default(), &bytes);
            let _ = find(&text);
        }
    }
}
