//! Detection of the dialect of delimited text, where nobody states it: its delimiter and its quoting.
//!
//! The detector tries the possible dialects on the beginning of a text, as DuckDB's sniffer does
//! ("CSV Auto Detection" in its manual). A dialect fits if every record has as many fields as the first,
//! and more than one. The comma has precedence: if it fits, it is the delimiter, unless it fits by chance, as
//! described below. Next are tab, `;` and `|`, of which the one that gives most fields wins. Last is a space,
//! which needs a column of numbers under a name, so that names of two words are not split. If
//! none fits with quotes as in RFC 4180, there may be single quotes, or quotes escaped by `\`.
//!
//! A comma that fits gives way to another delimiter that fits every record in two cases:
//! - it cuts quotes, and with the other one all quotes are around fields (`Name⇥"Cost per 1,000"`);
//! - it is punctuation: a blank follows every comma of the header, and every other comma precedes a blank or
//!   stands between digits (`April 15, 2023;1`, `1,5;2`), and the other one gives as many fields or more and
//!   no blank ever follows it.
//!
//! If nothing fits because a record is broken, quotes may still show the delimiter: one with which at least
//! three of four fields that begin with a quote end with one, while none does with the stated delimiter.
//!
//! Quoting may also show where the number of fields does not. A quote within quotes
//! that is followed by neither a delimiter nor a line end contradicts doubled quotes. If
//! a `\` precedes it, that most likely escapes quotes. The reading with fewer anomalies
//! wins: JSON in doubled quotes (`"{""k"": ""a\""b""}"`) has `\"` too, and is well-formed as it is.

use std::ops::Range;

use super::{RecordGrammar, find_header_below_titles, split_record};
use crate::csv_dialect::CsvDialect;
use crate::record_boundaries::{CutterState, next_record_range};

/// Maximum number of bytes that the detector examines.
const SNIFFED_BYTES_MAX: usize = 64 << 10;
const SNIFFED_RECORDS_MAX: usize = 1000;
/// Size above which a text may be truncated within its last record.
const COMPLETE_SAMPLE_BYTES_MAX: usize = 4 << 10;

/// The parts of a dialect that the user states; the detector keeps them.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatedDialectParts {
    /// True if the delimiter is stated.
    pub delimiter: bool,
    /// True if the quote is stated.
    pub quote: bool,
    /// True if the escape is stated.
    pub escape: bool,
}

/// The result of the detection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedDialect {
    /// The detected dialect.
    pub dialect: CsvDialect,
    /// The byte that seems to separate fields of a text that is read as one column.
    pub suspected_delimiter: Option<SuspectedDelimiter>,
}

/// A possible delimiter that does not fit all records or cannot be a delimiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspectedDelimiter {
    /// A byte that occurs in nearly all records.
    Byte(u8),
    /// Spaces, in runs of any length.
    Spaces,
}

/// Detects the dialect of a text that begins with `text`, given the stated parts of `said`.
#[must_use]
pub fn detect_dialect(
    said: &CsvDialect,
    given: StatedDialectParts,
    text: &[u8],
) -> DetectedDialect {
    let text = &text[..text.len().min(SNIFFED_BYTES_MAX)];
    let found = detect_delimiter_and_quoting(said, given, text);
    // A title above the header may have delimiters within its quotes (`"Sales, all"`). With other quotes it
    // may have as many fields as the records by chance.
    let is_requoted = (found.dialect.quote, found.dialect.escape) != (said.quote, said.escape);
    if is_requoted
        && has_sound_quotes(said, given, text)
        && find_header_below_titles(said, given, text).is_some()
    {
        return detect_delimiter_and_quoting(
            said,
            StatedDialectParts { quote: true, escape: true, ..given },
            text,
        );
    }
    found
}

fn detect_delimiter_and_quoting(
    said: &CsvDialect,
    given: StatedDialectParts,
    text: &[u8],
) -> DetectedDialect {
    let found = detect_delimiter(said, given, text);
    match detect_quoting(&found.dialect, given, text) {
        Some(dialect) => DetectedDialect { dialect, ..found },
        None => found,
    }
}

/// Returns whether a text has quotes and all of them enclose fields, with one of the possible
/// delimiters.
fn has_sound_quotes(said: &CsvDialect, given: StatedDialectParts, text: &[u8]) -> bool {
    let others = [b'\t', b';', b'|'].into_iter().filter(|_| !given.delimiter);
    std::iter::once(said.delimiter).chain(others).any(|delimiter| {
        let odd = QuotingAnomalies::from_text(&CsvDialect { delimiter, ..said.clone() }, text);
        odd.quoted_fields > 0 && odd.misplaced_quotes() == 0
    })
}

/// Detects the delimiter, and the quoting only where that alone makes records fit.
fn detect_delimiter(said: &CsvDialect, given: StatedDialectParts, text: &[u8]) -> DetectedDialect {
    let plain = || DetectedDialect { dialect: said.clone(), suspected_delimiter: None };
    if given.delimiter {
        return plain();
    }
    let fits =
        |counts: &FieldCounts| counts.first_fields > 1 && counts.differing * 10 <= counts.records;
    let own = FieldCounts::from_text(said, text);
    if own.records == 0 {
        return plain();
    }
    if fits(&own) {
        let dialect = find_better_delimiter(said, &own, text);
        return dialect
            .map_or_else(plain, |dialect| DetectedDialect { dialect, suspected_delimiter: None });
    }
    // Delimiters within quotes of another kind may be all that does not fit.
    if let Some(dialect) = detect_quoting(said, given, text)
        && fits(&FieldCounts::from_text(&dialect, text))
    {
        return DetectedDialect { dialect, suspected_delimiter: None };
    }
    let taken = |byte: u8| is_special_byte(said, byte);
    let candidates = candidate_dialects(said);
    if let Some(dialect) = find_best_fit(&candidates, text) {
        return DetectedDialect { dialect, suspected_delimiter: None };
    }
    let spaced = CsvDialect { delimiter: b' ', ..said.clone() };
    if own.first_fields == 1 && !taken(b' ') && own.records > 2 {
        let counts = FieldCounts::from_text(&spaced, text);
        // R's `write.table` quotes names, and writes none above the row names.
        let is_quoted = text.first().is_some_and(|byte| said.quote == Some(*byte));
        let lacks_name = spaced.header && is_quoted && counts.one_more + 1 == counts.records;
        let fits = counts.differing == 0 || lacks_name;
        if counts.first_fields > 1 && fits && has_numeric_column(&spaced, text) {
            return DetectedDialect { dialect: spaced, suspected_delimiter: None };
        }
    }
    // Quotes of another kind explain what did not fit, but never replace a dialect that did.
    if !given.quote && !given.escape {
        let all = || std::iter::once(said).chain(&candidates);
        let single = all()
            .filter(|_| !taken(b'\''))
            .map(|dialect| CsvDialect { quote: Some(b'\''), ..dialect.clone() });
        let escaped = all()
            .filter(|_| !taken(b'\\') && said.quote.is_some())
            .map(|dialect| CsvDialect { escape: Some(b'\\'), ..dialect.clone() });
        let others: Vec<CsvDialect> = single.chain(escaped).collect();
        if let Some(dialect) = find_best_fit(&others, text) {
            return DetectedDialect { dialect, suspected_delimiter: None };
        }
    }
    if own.first_fields == 1
        && let Some(dialect) = find_delimiter_by_quotes(&candidates, said, text)
    {
        return DetectedDialect { dialect, suspected_delimiter: None };
    }
    let suspect = if own.first_fields == 1 {
        find_suspected_delimiter(&candidates, said, text)
    } else {
        None
    };
    DetectedDialect { dialect: said.clone(), suspected_delimiter: suspect }
}

/// Returns whether a dialect uses a byte for something other than the delimiter.
fn is_special_byte(said: &CsvDialect, byte: u8) -> bool {
    [said.quote, said.escape, said.comment].contains(&Some(byte))
}

/// Returns the dialect with each of the other possible delimiters.
fn candidate_dialects(said: &CsvDialect) -> Vec<CsvDialect> {
    [b'\t', b';', b'|']
        .into_iter()
        .filter(|byte| *byte != said.delimiter && !is_special_byte(said, *byte))
        .map(|delimiter| CsvDialect { delimiter, ..said.clone() })
        .collect()
}

/// Returns the dialect with another delimiter, if `said` seems to fit the text by chance.
fn find_better_delimiter(said: &CsvDialect, own: &FieldCounts, text: &[u8]) -> Option<CsvDialect> {
    let is_there = |dialect: &CsvDialect| memchr::memchr(dialect.delimiter, text).is_some();
    let others: Vec<CsvDialect> = candidate_dialects(said).into_iter().filter(is_there).collect();
    if others.is_empty() {
        return None;
    }
    let fitting = |is_better: &dyn Fn(&CsvDialect) -> bool| {
        let dialects: Vec<CsvDialect> =
            others.iter().filter(|other| is_better(other)).cloned().collect();
        find_best_fit(&dialects, text)
    };
    if QuotingAnomalies::from_text(said, text).misplaced_quotes() > 0
        && let Some(dialect) = fitting(&|other| {
            let quotes = QuotingAnomalies::from_text(other, text);
            quotes.quoted_fields > 0 && quotes.misplaced_quotes() == 0
        })
    {
        return Some(dialect);
    }
    if !DelimiterBlanks::from_text(said, text).is_punctuation() {
        return None;
    }
    fitting(&|other| {
        let blanks = DelimiterBlanks::from_text(other, text);
        blanks.header.before_blank + blanks.records.before_blank == 0
            && QuotingAnomalies::from_text(other, text).misplaced_quotes() == 0
            && FieldCounts::from_text(other, text).first_fields >= own.first_fields
    })
}

/// Returns the dialect with whose delimiter most quotes enclose fields, for a text in which quotes enclose no
/// field in the stated dialect.
fn find_delimiter_by_quotes(
    candidates: &[CsvDialect],
    said: &CsvDialect,
    text: &[u8],
) -> Option<CsvDialect> {
    let own = QuotingAnomalies::from_text(said, text);
    // A field with text after its closing quote does not count as enclosed.
    if own.quoted_fields == 0 || own.quoted_fields > own.torn_fields + own.unclosed_records {
        return None;
    }
    let is_sound = |dialect: &&CsvDialect| {
        let counts = FieldCounts::from_text(dialect, text);
        let quotes = QuotingAnomalies::from_text(dialect, text);
        let cut = quotes.torn_fields + quotes.unclosed_records;
        counts.first_fields > 1
            && counts.single_field * 2 < counts.records
            && cut * 4 <= quotes.quoted_fields
    };
    candidates.iter().find(is_sound).cloned()
}

/// Counts of the characters beside the delimiters of a text, outside of quotes.
#[derive(Debug, Default)]
struct DelimiterBlanks {
    /// Counts of the first record.
    header: DelimiterBlankCounts,
    /// Counts of all other records.
    records: DelimiterBlankCounts,
}

/// Counts of the characters beside some delimiters.
#[derive(Debug, Default)]
struct DelimiterBlankCounts {
    /// Number of delimiters.
    delimiters: usize,
    /// Number of delimiters before a blank.
    before_blank: usize,
    /// Number of delimiters between two digits.
    between_digits: usize,
}

impl DelimiterBlanks {
    fn from_text(dialect: &CsvDialect, text: &[u8]) -> Self {
        let grammar = RecordGrammar::from_dialect(dialect);
        let mut blanks = Self::default();
        for (index, record) in SampleRecords::new(dialect, text).enumerate() {
            let blank_counts = if index == 0 { &mut blanks.header } else { &mut blanks.records };
            let line = text.get(record).unwrap_or_default();
            let (mut state, mut before) = (CutterState::RecordStart, b'\n');
            for (at, &byte) in line.iter().enumerate() {
                state = grammar.next_state(state, byte);
                if state == CutterState::FieldStart {
                    let next = line.get(at + 1).copied();
                    blank_counts.delimiters += 1;
                    blank_counts.before_blank += usize::from(next == Some(b' '));
                    blank_counts.between_digits += usize::from(
                        before.is_ascii_digit() && next.is_some_and(|byte| byte.is_ascii_digit()),
                    );
                }
                before = byte;
            }
        }
        blanks
    }

    /// Returns whether the delimiters may be mere punctuation of texts and numbers.
    fn is_punctuation(&self) -> bool {
        let Self { header, records } = self;
        header.before_blank == header.delimiters
            && records.delimiters > 0
            && records.before_blank + records.between_digits == records.delimiters
    }
}

/// Returns the dialect that fits all records and gives most fields; the first of several.
fn find_best_fit(dialects: &[CsvDialect], text: &[u8]) -> Option<CsvDialect> {
    let mut best: Option<(usize, &CsvDialect)> = None;
    for dialect in dialects {
        let counts = FieldCounts::from_text(dialect, text);
        let is_better = best.is_none_or(|(fields, _)| counts.first_fields > fields);
        if counts.first_fields > 1 && counts.differing == 0 && is_better {
            best = Some((counts.first_fields, dialect));
        }
    }
    best.map(|(_, dialect)| dialect.clone())
}

/// Returns the dialect with quotes that explain a text better, judged by anomalies of quotes and fields.
fn detect_quoting(said: &CsvDialect, given: StatedDialectParts, text: &[u8]) -> Option<CsvDialect> {
    let quote = said.quote?;
    let is_free = |byte: u8| {
        said.delimiter != byte && said.escape != Some(byte) && said.comment != Some(byte)
    };
    let has = |pair: [u8; 2]| memchr::memmem::find(text, &pair).is_some();
    let escaped_by = |byte: u8| CsvDialect { escape: Some(byte), ..said.clone() };
    if !given.escape
        && said.escape.is_none()
        && quote != b'\\'
        && is_free(b'\\')
        && has([b'\\', quote])
    {
        let own = QuotingAnomalies::from_text(said, text);
        if own.total() > 0 {
            let dialect = escaped_by(b'\\');
            let other = QuotingAnomalies::from_text(&dialect, text);
            if other.total() < own.total() && (own.torn_after_backslash > 0 || other.total() == 0) {
                return Some(dialect);
            }
        }
    }
    // Writers that quote only where needed (`'it''s'`) leave no quote outside of quotes.
    if !given.quote && quote == b'"' && is_free(b'\'') && has([b'\'', b'\'']) {
        let dialect = CsvDialect { quote: Some(b'\''), ..said.clone() };
        let (own, other) =
            (QuotingAnomalies::from_text(said, text), QuotingAnomalies::from_text(&dialect, text));
        if own.quoted_fields == 0
            && other.doubled_quotes > 0
            && other.misplaced_quotes() == 0
            && other.differing_records <= own.differing_records
        {
            return Some(dialect);
        }
    }
    None
}

/// Anomalies of a text's quotes and fields in a dialect.
#[derive(Debug, Default)]
struct QuotingAnomalies {
    /// Number of quoted fields.
    quoted_fields: usize,
    /// Number of doubled quotes within them.
    doubled_quotes: usize,
    /// Number of closing quotes followed by something other than a delimiter or a line end.
    torn_fields: usize,
    /// Number of those after an odd number of `\`.
    torn_after_backslash: usize,
    /// Number of quotes in fields that do not begin with one.
    bare_quotes: usize,
    /// Number of records that end within quotes.
    unclosed_records: usize,
    /// Number of records whose number of fields differs from the first.
    differing_records: usize,
}

impl QuotingAnomalies {
    fn from_text(dialect: &CsvDialect, text: &[u8]) -> Self {
        let grammar = RecordGrammar::from_dialect(dialect);
        let (mut odd, mut first) = (Self::default(), None);
        for record in SampleRecords::new(dialect, text) {
            let (mut state, mut fields) = (CutterState::RecordStart, 1_usize);
            let (mut behind_escape, mut closed_behind_escape) = (false, false);
            for &byte in text.get(record).unwrap_or_default() {
                let after = grammar.next_state(state, byte);
                match (state, after) {
                    (CutterState::RecordStart | CutterState::FieldStart, CutterState::Quoted) => {
                        odd.quoted_fields += 1
                    }
                    (CutterState::Quoted, CutterState::QuoteInQuoted) => {
                        closed_behind_escape = behind_escape
                    }
                    (CutterState::QuoteInQuoted, CutterState::Quoted) => odd.doubled_quotes += 1,
                    (CutterState::QuoteInQuoted, CutterState::Field) => {
                        odd.torn_fields += 1;
                        odd.torn_after_backslash += usize::from(closed_behind_escape);
                    }
                    (CutterState::Field, CutterState::Field) if dialect.quote == Some(byte) => {
                        odd.bare_quotes += 1
                    }
                    _ => {}
                }
                fields += usize::from(after == CutterState::FieldStart);
                behind_escape = byte == b'\\' && !behind_escape;
                state = after;
            }
            odd.unclosed_records +=
                usize::from(matches!(state, CutterState::Quoted | CutterState::Escaped));
            odd.differing_records += usize::from(*first.get_or_insert(fields) != fields);
        }
        odd
    }

    /// Returns the number of quotes that do not enclose whole fields.
    fn misplaced_quotes(&self) -> usize {
        self.torn_fields + self.bare_quotes + self.unclosed_records
    }

    /// Returns the number of anomalies that a fitting dialect does not have.
    fn total(&self) -> usize {
        self.torn_fields + self.unclosed_records + self.differing_records
    }
}

/// Returns the character that seems to separate fields although it does not fit.
fn find_suspected_delimiter(
    candidates: &[CsvDialect],
    said: &CsvDialect,
    text: &[u8],
) -> Option<SuspectedDelimiter> {
    for dialect in candidates {
        let counts = FieldCounts::from_text(dialect, text);
        if counts.records > 1
            && counts.first_fields > 1
            && counts.single_field * 10 <= counts.records
        {
            return Some(SuspectedDelimiter::Byte(dialect.delimiter));
        }
    }
    let mut words: Option<usize> = None;
    let (mut records, mut runs) = (0, false);
    for record in SampleRecords::new(said, text) {
        let line = text.get(record).unwrap_or_default().trim_ascii();
        let count = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
        if *words.get_or_insert(count) != count || count < 2 {
            return None;
        }
        runs |= line.windows(2).any(|pair| pair == b"  ");
        records += 1;
    }
    (records > 2 && runs).then_some(SuspectedDelimiter::Spaces)
}

/// Counts of records by their number of fields.
#[derive(Debug, Default)]
struct FieldCounts {
    /// Number of fields in the first record.
    first_fields: usize,
    records: usize,
    /// Number of records with another number of fields, and with a single field.
    differing: usize,
    single_field: usize,
    /// Number of records with one field more than the first.
    one_more: usize,
}

impl FieldCounts {
    fn from_text(dialect: &CsvDialect, text: &[u8]) -> Self {
        let grammar = RecordGrammar::from_dialect(dialect);
        let (mut counts, mut fields) = (Self::default(), Vec::new());
        for record in SampleRecords::new(dialect, text) {
            split_record(grammar, text.get(record).unwrap_or_default(), &mut fields);
            if counts.records == 0 {
                counts.first_fields = fields.len();
            }
            counts.records += 1;
            counts.differing += usize::from(fields.len() != counts.first_fields);
            counts.single_field += usize::from(fields.len() == 1);
            counts.one_more += usize::from(fields.len() == counts.first_fields + 1);
        }
        counts
    }
}

/// Iterator over the records of a text, without the last one if it may be truncated.
struct SampleRecords<'a> {
    grammar: RecordGrammar,
    text: &'a [u8],
    at: usize,
    records_left: usize,
}

impl<'a> SampleRecords<'a> {
    fn new(dialect: &CsvDialect, text: &'a [u8]) -> Self {
        Self {
            grammar: RecordGrammar::from_dialect(dialect),
            text,
            at: 0,
            records_left: SNIFFED_RECORDS_MAX,
        }
    }
}

impl Iterator for SampleRecords<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = next_record_range(self.grammar, self.text, self.at);
        let may_be_cut = record.end == self.text.len()
            && self.text.len() > COMPLETE_SAMPLE_BYTES_MAX
            && self.at > 0;
        if record.is_empty() || self.records_left == 0 || may_be_cut {
            return None;
        }
        self.records_left -= 1;
        self.at = record.end;
        Some(record)
    }
}

/// Returns whether a column holds numbers, under a name that is not a number if there is a header.
fn has_numeric_column(dialect: &CsvDialect, text: &[u8]) -> bool {
    let grammar = RecordGrammar::from_dialect(dialect);
    let mut fields = Vec::new();
    let mut numbers: Option<Vec<bool>> = None;
    let mut is_header = dialect.header;
    for record in SampleRecords::new(dialect, text) {
        let line = text.get(record).unwrap_or_default();
        split_record(grammar, line, &mut fields);
        let is_number = |field: &Range<usize>| {
            let text = line.get(field.clone()).and_then(|text| std::str::from_utf8(text).ok());
            text.is_some_and(|text| {
                text.bytes().any(|b| b.is_ascii_digit()) && text.parse::<f64>().is_ok()
            })
        };
        let wanted = !std::mem::take(&mut is_header);
        let found = fields.iter().map(|field| is_number(field) == wanted);
        match &mut numbers {
            None => numbers = Some(found.collect()),
            Some(numbers) => numbers.iter_mut().zip(found).for_each(|(all, one)| *all &= one),
        }
    }
    numbers.unwrap_or_default().contains(&true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        let found =
            detect_dialect(&CsvDialect::default(), StatedDialectParts::default(), text.as_bytes());
        let CsvDialect { delimiter, quote, escape, .. } = found.dialect;
        let mut shown = format!("{}", delimiter.escape_ascii());
        if quote != Some(b'"') {
            shown.push_str(&format!(
                " quote {}",
                quote.map_or(String::new(), |q| char::from(q).to_string())
            ));
        }
        if let Some(escape) = escape {
            shown.push_str(&format!(" escape {}", char::from(escape)));
        }
        match found.suspected_delimiter {
            Some(SuspectedDelimiter::Byte(byte)) => {
                shown.push_str(&format!(" suspect {}", byte.escape_ascii()))
            }
            Some(SuspectedDelimiter::Spaces) => shown.push_str(" suspect spaces"),
            None => {}
        }
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn delimiter_is_detected() {
        check("a,b\n1,2\n", ",");
        check("a;b\n1;2\n", ";");
        check("a;b\n1,5;2,5\n", ";");
        check("a\tb\n1\t2\n", "\\t");
        check("a|b|c\n1|2|3\n", "|");
        check("a;b;c", ";");
        check("a|b;c;d\n1|2;3;4\n", ";");
        check("\"a;x\";b\n\"1\n2\";3\n", ";");
        // A comma that fits stays the delimiter.
        check("a;x,b\n1;2,3\n", ",");
        check("a,b\n1,2\n1,2,3\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n", ",");
        // A comma that does not fit is not the delimiter.
        check("Betrag, EUR;Datum\n1,5;x\n2;y\n1,2,3;z\n", ";");
        check("a b\n1 2\n3 4\n", " ");
        check("\"a\" \"b\"\n\"1\" 5 \"x\"\n\"2\" 6 \"y\"\n", " ");
        check("street address\n12 Main St\n14 Main St\n", ",");
        check("full name\nJohn Smith\nMary Jones\n", ",");
        check("name\nJohn\nMary\n", ",");
        check("name n\nJohn 1\nMary x\n", ",");
        check("", ",");
        check("\n\n", ",");
        check("a\n", ",");
    }

    #[test]
    fn comma_that_fits_by_chance_is_not_the_delimiter() {
        // The comma would cut quotes.
        check("Name\tCost\t\"Cost per 1,000\"\nT1\t\"10,143.27\"\t0.5\n", "\\t");
        check("a;\"b,c\"\n1;\"2,3\"\n", ";");
        check("a|\"b,c\"|d\n\"1|,|2\"|2|3\n", "|");
        check("a,b\n5\",x;y\n6\",\"x;y\"\n", ",");
        check("a,\"b;c\"\n1,\"2;3\"\n", ",");
        // The comma is punctuation.
        check("Date (month day, year);id\nApril 15, 2023;1\nMay 1, 2023;2\n", ";");
        check("name, first\tid\nSmith, John\t1\n\"Doe, Jane\"\t2\n", "\\t");
        check("x, m;y\n1,5;2\n2,25;3\n", ";");
        check("x, m|y|z\na, b|2|3\n1,25|3|4\n", "|");
        // The comma is not punctuation.
        check("\"x\", y\tid\nSmith, John\t1\nDoe, Jane\t2\n", ",");
        check("a, b, c\n1, 2, 3\n", ",");
        check("a, b\n1,2\n", ",");
        check("a, b, c;d\n1, 2, 3;4\n", ",");
        check("a, b; c\n1, 2; 3\n", ",");
        check("a,b;c\n1, 2;3\n", ",");
        check("a, b;c\n1,x;3\n", ",");
        check("a, b;c\n1, 2\n", ",");
        check("a, b;c\n", ",");
        check("\"a, b\",c;d\n\"1, 2\",x;y\n", ",");
    }

    #[test]
    fn quotes_show_the_delimiter_despite_a_broken_record() {
        let bad = "\"A\"|\"B\"\n\"s\"|\"A\nB\"\n\"s\"|\"A \"B\"\nA\"\n";
        check(bad, "|");
        check(&bad.replace('|', ";"), ";");
        check(&bad.replace('|', "\t"), "\\t");
        // One column in quotes, and a column whose quotes are text.
        check("\"a\"\n\"x|y\"\n\"z\"\n", ",");
        check("\"a\"\n\"x\"|\"y\"\n\"z\"\n\"z\"\n", ",");
        check("a\n\"x\" and y\nz|\"z\"\n", ",");
    }

    #[test]
    fn other_quotes_are_detected_where_nothing_else_fits() {
        check("a,b\n'1,2',3\n'4,5',6\n", ", quote '");
        check("a;b\n'1;2';3\n'4;5';6\n", "; quote '");
        check("a,b\n\"x \\\", y\",3\n\"x \\\", z\",3\n", ", escape \\");
        // Nothing contradicts the default.
        check("a,b\n'1','2'\n", ",");
        // A title with a delimiter in its quotes; other quotes would enclose none of the fields.
        check("\"Umsatz, gesamt\"\nname,betrag\n\"Meier\",2\n\"Huber\",4\n", ",");
        check("\"Umsatz; gesamt\"\nname;betrag\n\"Meier\";2\n\"Huber\";4\n", ",");
        check("\"Sales, all\"\nname,amount\n'Meier',2\n'Huber',4\n", ",");
        check("'Sales, all',x\nname,amount\nother,one\n", ", quote '");
    }

    #[test]
    fn escaped_quotes_are_detected_despite_equal_field_counts() {
        for (delimiter, shown) in [(",", ","), (";", ";"), ("|", "|"), ("\t", "\\t")] {
            let check = |text: &str, expected: &str| {
                check(&text.replace('@', delimiter), &expected.replace('@', shown));
            };
            check("a@b\n1@\"say \\\"hi\\\"\"\n2@\"{\\\"k\\\": 1}\"\n", "@ escape \\");
            check("a@b\n1@\"{\\\"k\\\": 1@ \\\"j\\\": 2}\"\n2@x\n", "@ escape \\");
            check("a@b\n1@\"5\\\"\"\n2@\"6\\\"\"\n", "@ escape \\");
            // A single record is enough.
            let plain = "1@x\n".repeat(100);
            check(&format!("a@b\n{plain}2@\"a \\\"b@ c\\\"\"\n{plain}"), "@ escape \\");
            // Doubled quotes, with backslashes that belong to the value.
            check("a@b\n1@\"say \"\"hi\"\"\"\n", "@");
            check("a@b\n1@\"{\"\"k\"\": \"\"a\\\"\"b\"\"}\"\n2@\"{\"\"k\"\": 1}\"\n", "@");
            check("a@b\n1@\"C:\\dir\\\"\n2@\"D:\\\"\n", "@");
            check("a@b\n1@say \\\"hi\\\"\n", "@");
            check("a@b\n1@\"say \"hi\"\"\n", "@");
            // Single quotes around values that contain one.
            check("a@b\n1@'it''s'\n2@plain\n", "@ quote '");
            check("a@b\n1@'it''s'\n2@it's\n", "@");
            check("a@b\n1@'it''s'\n2@\"x\"\n", "@");
        }
        check("a\n\"say \\\"hi\\\"\"\n", ", escape \\");
        let tabs = CsvDialect::tsv();
        let given = StatedDialectParts { delimiter: true, ..StatedDialectParts::default() };
        let text = b"a\tb\n1\t\"say \\\"hi\\\"\"\n";
        let escaped = CsvDialect { escape: Some(b'\\'), ..tabs.clone() };
        assert_eq!(detect_dialect(&tabs, given, text).dialect, escaped);
        let given = StatedDialectParts { escape: true, ..given };
        assert_eq!(detect_dialect(&tabs, given, text).dialect, tabs);
    }

    #[test]
    fn one_column_with_possible_delimiter_reports_suspicion() {
        check("a;b\n1;2\n1;2;3\n", ", suspect ;");
        check("a\n1;2\n1;2\n", ",");
        check("name   size\nx      1\nyy     2\n", ", suspect spaces");
        check("text\none two\nthree\n", ",");
    }

    #[test]
    fn stated_dialect_parts_are_kept() {
        let said = CsvDialect { delimiter: b':', ..CsvDialect::default() };
        let given = StatedDialectParts { delimiter: true, ..StatedDialectParts::default() };
        assert_eq!(detect_dialect(&said, given, b"a;b\n1;2\n").dialect, said);
        let said = CsvDialect { quote: None, comment: Some(b'|'), ..CsvDialect::default() };
        let given = StatedDialectParts { quote: true, ..StatedDialectParts::default() };
        assert_eq!(detect_dialect(&said, given, b"a|b\n1|2\n").dialect, said);
    }

    #[test]
    fn truncated_record_is_ignored() {
        let mut text = "a;b;c\n".to_owned();
        text.push_str(&"1;2;3\n".repeat(2000));
        text.push_str("1;2");
        check(&text, ";");
    }

    proptest! {
        #[test]
        fn fitting_comma_is_the_delimiter(
            rows in prop::collection::vec(prop::collection::vec("([a-z0-9;|\\t'.][a-z0-9;|\\t '.]{0,5})?", 3), 1..20)
        ) {
            // Doubled single quotes would be quotes of another kind; commas before blanks may be punctuation.
            let row = |row: &Vec<String>| format!("{}\n", row.join(",").replace("''", "'."));
            let text: String = rows.iter().map(row).collect();
            let found = detect_dialect(&CsvDialect::default(), StatedDialectParts::default(), text.as_bytes());
            prop_assert_eq!(found, DetectedDialect { dialect: CsvDialect::default(), suspected_delimiter: None });
        }

        /// The detector finds the quoting of a writer, and the decoder reads the values back.
        #[test]
        fn quoted_values_round_trip_through_detection(
            rows in prop::collection::vec(prop::collection::vec("[a-z0-9 \"\\\\,:{}]{0,9}", 3), 1..20),
            delimiter in prop::sample::select(vec![b',', b';', b'|', b'\t']),
            is_escaped: bool,
        ) {
            let value = |value: &String| match is_escaped {
                true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
                false => format!("\"{}\"", value.replace('"', "\"\"")),
            };
            let mut text = String::new();
            // One record that only this quoting can have produced.
            let telling = ["x".to_owned(), "say \"hi\" you".to_owned(), "y".to_owned()];
            for row in rows.iter().map(Vec::as_slice).chain([&telling[..]]) {
                let values: Vec<String> = row.iter().map(value).collect();
                text.push_str(&values.join(&char::from(delimiter).to_string()));
                text.push('\n');
            }
            let said = CsvDialect { delimiter, ..CsvDialect::default() };
            let given = StatedDialectParts { delimiter: true, ..StatedDialectParts::default() };
            let found = detect_dialect(&said, given, text.as_bytes()).dialect;
            let escape = is_escaped.then_some(b'\\');
            prop_assert_eq!(&found, &CsvDialect { escape, ..said });
            let mut read = Vec::new();
            let mut at = 0;
            while let Some((values, used)) = super::super::read_first_record(&found, &text.as_bytes()[at..]) {
                read.push(values);
                at += used;
            }
            let last = read.pop();
            prop_assert_eq!(last, Some(telling.to_vec()));
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn written_delimiter_is_detected(
            rows in prop::collection::vec(prop::collection::vec("[a-z0-9.]{1,6}", 4), 1..20),
            delimiter in prop::sample::select(vec![";", "|", "\t"]),
        ) {
            let text: String = rows.iter().map(|row| format!("{}\n", row.join(delimiter))).collect();
            let found = detect_dialect(&CsvDialect::default(), StatedDialectParts::default(), text.as_bytes());
            prop_assert_eq!(found.dialect.delimiter, delimiter.as_bytes()[0]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[a1,;|\\t '\"\\\\\n\r]{0,80}") {
            let _ = detect_dialect(&CsvDialect::default(), StatedDialectParts::default(), &bytes);
            let _ = detect_dialect(&CsvDialect::default(), StatedDialectParts::default(), text.as_bytes());
        }
    }
}
