//! How delimited text is written, where nobody says: what stands between its fields and around them.
//!
//! The dialects that there can be are tried on the beginning of a text, as DuckDB's sniffer does
//! ("CSV Auto Detection" in its manual); one fits if every record has as many fields as the first,
//! and more than one. A comma comes first: what it fits is read by it, unless it fits by chance, as
//! below. Then tab, `;` and `|`, of which the one counts that gives most fields, and a space, where
//! one of the columns is of numbers under a name, so that names of two words are not taken apart. If
//! none fits with quotes as in RFC 4180, there may be single quotes, or quotes escaped by `\`.
//!
//! A comma that fits gives way to another delimiter that fits every record in two cases:
//! - it cuts quotes, and with the other one all quotes are around fields (`Name⇥"Cost per 1,000"`);
//! - it is punctuation: a blank follows it wherever it stands in the header, and elsewhere a blank follows it or it
//!   stands between digits (`April 15, 2023;1`, `1,5;2`), and the other one gives as many fields or more and no blank
//!   ever follows it.
//!
//! If nothing fits because a record is broken, quotes may still tell: a delimiter with which at least three of
//! four fields that begin with a quote end with one, and none does with the delimiter that was said.
//!
//! How quotes are written may also show where the number of fields does not. A quote within quotes
//! that something follows which neither separates nor ends a line is at odds with doubled quotes; if
//! a `\` stands before it, quotes are most likely escaped by that. Which reading has less that is odd
//! is the one: JSON in doubled quotes (`"{""k"": ""a\""b""}"`) has `\"`, too, and reads well as it is.

use std::ops::Range;

use super::{Grammar, header_below_titles, split};
use crate::cut::{State, next_record};
use crate::dialect::Dialect;

/// So much is looked at.
const BYTES_MAX: usize = 64 << 10;
const RECORDS_MAX: usize = 1000;
/// A text that is longer may be cut off within its last record.
const WHOLE_BYTES: usize = 4 << 10;

/// Which parts of a dialect are said, and stay as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given {
    /// What is between fields.
    pub delimiter: bool,
    /// What is around them.
    pub quote: bool,
    /// What makes a quote literal.
    pub escape: bool,
}

/// How a text is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sniffed {
    /// The dialect.
    pub dialect: Dialect,
    /// What seems to separate fields of a text that is read as one column.
    pub suspect: Option<Suspect>,
}

/// What seems to separate fields, and fits not all records or cannot be a delimiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// A byte that is in nearly all records.
    Byte(u8),
    /// Spaces, any number of them.
    Spaces,
}

/// Finds out how a text is written, of which `text` is the beginning, from what is said of it.
#[must_use]
pub fn sniff(said: &Dialect, given: Given, text: &[u8]) -> Sniffed {
    let text = &text[..text.len().min(BYTES_MAX)];
    let found = sniff_all(said, given, text);
    // A title above the header may have delimiters within its quotes (`"Sales, all"`). Read by other quotes it may have
    // as many fields as the records by chance.
    let is_requoted = (found.dialect.quote, found.dialect.escape) != (said.quote, said.escape);
    if is_requoted
        && has_sound_quotes(said, given, text)
        && header_below_titles(said, given, text).is_some()
    {
        return sniff_all(said, Given { quote: true, escape: true, ..given }, text);
    }
    found
}

fn sniff_all(said: &Dialect, given: Given, text: &[u8]) -> Sniffed {
    let found = separated(said, given, text);
    match requoted(&found.dialect, given, text) {
        Some(dialect) => Sniffed { dialect, ..found },
        None => found,
    }
}

/// Returns whether there are quotes in a text, and all of them are around fields, with one of the delimiters that there
/// may be.
fn has_sound_quotes(said: &Dialect, given: Given, text: &[u8]) -> bool {
    let others = [b'\t', b';', b'|'].into_iter().filter(|_| !given.delimiter);
    std::iter::once(said.delimiter).chain(others).any(|delimiter| {
        let odd = Oddities::of(&Dialect { delimiter, ..said.clone() }, text);
        odd.quoted > 0 && odd.cut_quotes() == 0
    })
}

/// What stands between fields; how quotes are written only where that alone makes records fit.
fn separated(said: &Dialect, given: Given, text: &[u8]) -> Sniffed {
    let plain = || Sniffed { dialect: said.clone(), suspect: None };
    if given.delimiter {
        return plain();
    }
    let fits = |counts: &Counts| counts.fields > 1 && counts.others * 10 <= counts.records;
    let own = Counts::of(said, text);
    if own.records == 0 {
        return plain();
    }
    if fits(&own) {
        let dialect = better(said, &own, text);
        return dialect.map_or_else(plain, |dialect| Sniffed { dialect, suspect: None });
    }
    // Delimiters within quotes that are read otherwise may be all that does not fit.
    if let Some(dialect) = requoted(said, given, text)
        && fits(&Counts::of(&dialect, text))
    {
        return Sniffed { dialect, suspect: None };
    }
    let taken = |byte: u8| is_taken(said, byte);
    let candidates = candidates(said);
    if let Some(dialect) = best(&candidates, text) {
        return Sniffed { dialect, suspect: None };
    }
    let spaced = Dialect { delimiter: b' ', ..said.clone() };
    if own.fields == 1 && !taken(b' ') && own.records > 2 {
        let counts = Counts::of(&spaced, text);
        // R's `write.table` quotes names, and has none above the row names.
        let is_quoted = text.first().is_some_and(|byte| said.quote == Some(*byte));
        let lacks_name = spaced.header && is_quoted && counts.one_more + 1 == counts.records;
        let fits = counts.others == 0 || lacks_name;
        if counts.fields > 1 && fits && has_numbers(&spaced, text) {
            return Sniffed { dialect: spaced, suspect: None };
        }
    }
    // Quotes of another kind explain what did not fit, and nothing that did.
    if !given.quote && !given.escape {
        let all = || std::iter::once(said).chain(&candidates);
        let single = all()
            .filter(|_| !taken(b'\''))
            .map(|dialect| Dialect { quote: Some(b'\''), ..dialect.clone() });
        let escaped = all()
            .filter(|_| !taken(b'\\') && said.quote.is_some())
            .map(|dialect| Dialect { escape: Some(b'\\'), ..dialect.clone() });
        let others: Vec<Dialect> = single.chain(escaped).collect();
        if let Some(dialect) = best(&others, text) {
            return Sniffed { dialect, suspect: None };
        }
    }
    if own.fields == 1
        && let Some(dialect) = quoted_by(&candidates, said, text)
    {
        return Sniffed { dialect, suspect: None };
    }
    let suspect = if own.fields == 1 { suspect(&candidates, said, text) } else { None };
    Sniffed { dialect: said.clone(), suspect }
}

/// Returns true if a dialect has another use for a byte than to stand between fields.
fn is_taken(said: &Dialect, byte: u8) -> bool {
    [said.quote, said.escape, said.comment].contains(&Some(byte))
}

/// The same dialect with each of the other delimiters that there may be.
fn candidates(said: &Dialect) -> Vec<Dialect> {
    [b'\t', b';', b'|']
        .into_iter()
        .filter(|byte| *byte != said.delimiter && !is_taken(said, *byte))
        .map(|delimiter| Dialect { delimiter, ..said.clone() })
        .collect()
}

/// The dialect with another delimiter, of a text that `said` fits by chance; none if it does not seem so.
fn better(said: &Dialect, own: &Counts, text: &[u8]) -> Option<Dialect> {
    let is_there = |dialect: &Dialect| memchr::memchr(dialect.delimiter, text).is_some();
    let others: Vec<Dialect> = candidates(said).into_iter().filter(is_there).collect();
    if others.is_empty() {
        return None;
    }
    let fitting = |is_better: &dyn Fn(&Dialect) -> bool| {
        let dialects: Vec<Dialect> =
            others.iter().filter(|other| is_better(other)).cloned().collect();
        best(&dialects, text)
    };
    if Oddities::of(said, text).cut_quotes() > 0
        && let Some(dialect) = fitting(&|other| {
            let quotes = Oddities::of(other, text);
            quotes.quoted > 0 && quotes.cut_quotes() == 0
        })
    {
        return Some(dialect);
    }
    if !Blanks::of(said, text).are_punctuation() {
        return None;
    }
    fitting(&|other| {
        let blanks = Blanks::of(other, text);
        blanks.header.behind + blanks.records.behind == 0
            && Oddities::of(other, text).cut_quotes() == 0
            && Counts::of(other, text).fields >= own.fields
    })
}

/// The dialect by whose delimiter most quotes are around fields, of a text whose quotes are around none as it is said to
/// be written.
fn quoted_by(candidates: &[Dialect], said: &Dialect, text: &[u8]) -> Option<Dialect> {
    let own = Oddities::of(said, text);
    // A field that a quote tears is none that has quotes around it.
    if own.quoted == 0 || own.quoted > own.torn + own.unclosed {
        return None;
    }
    let is_sound = |dialect: &&Dialect| {
        let counts = Counts::of(dialect, text);
        let quotes = Oddities::of(dialect, text);
        let cut = quotes.torn + quotes.unclosed;
        counts.fields > 1 && counts.single * 2 < counts.records && cut * 4 <= quotes.quoted
    };
    candidates.iter().find(is_sound).cloned()
}

/// Counts the signs beside the delimiters of a text, outside of quotes.
#[derive(Debug, Default)]
struct Blanks {
    /// In the first record.
    header: BlankCounts,
    /// In all others.
    records: BlankCounts,
}

/// Counts of the signs beside some delimiters.
#[derive(Debug, Default)]
struct BlankCounts {
    /// Delimiters.
    count: usize,
    /// Those with a blank behind them.
    behind: usize,
    /// Those between two digits.
    within_number: usize,
}

impl Blanks {
    fn of(dialect: &Dialect, text: &[u8]) -> Self {
        let grammar = Grammar::delimited(dialect);
        let mut blanks = Self::default();
        for (index, record) in Records::new(dialect, text).enumerate() {
            let blank_counts = if index == 0 { &mut blanks.header } else { &mut blanks.records };
            let line = text.get(record).unwrap_or_default();
            let (mut state, mut before) = (State::RecordStart, b'\n');
            for (at, &byte) in line.iter().enumerate() {
                state = grammar.step(state, byte);
                if state == State::FieldStart {
                    let next = line.get(at + 1).copied();
                    blank_counts.count += 1;
                    blank_counts.behind += usize::from(next == Some(b' '));
                    blank_counts.within_number += usize::from(
                        before.is_ascii_digit() && next.is_some_and(|byte| byte.is_ascii_digit()),
                    );
                }
                before = byte;
            }
        }
        blanks
    }

    /// Returns true if the delimiters may be commas of texts and numbers alone.
    fn are_punctuation(&self) -> bool {
        let Self { header, records } = self;
        header.behind == header.count
            && records.count > 0
            && records.behind + records.within_number == records.count
    }
}

/// The dialect that fits all records and gives most fields; of several the first.
fn best(dialects: &[Dialect], text: &[u8]) -> Option<Dialect> {
    let mut best: Option<(usize, &Dialect)> = None;
    for dialect in dialects {
        let counts = Counts::of(dialect, text);
        let is_better = best.is_none_or(|(fields, _)| counts.fields > fields);
        if counts.fields > 1 && counts.others == 0 && is_better {
            best = Some((counts.fields, dialect));
        }
    }
    best.map(|(_, dialect)| dialect.clone())
}

/// The dialect with quotes that explain a text better, by what is odd about quotes and fields.
fn requoted(said: &Dialect, given: Given, text: &[u8]) -> Option<Dialect> {
    let quote = said.quote?;
    let is_free = |byte: u8| {
        said.delimiter != byte && said.escape != Some(byte) && said.comment != Some(byte)
    };
    let has = |pair: [u8; 2]| memchr::memmem::find(text, &pair).is_some();
    let escaped_by = |byte: u8| Dialect { escape: Some(byte), ..said.clone() };
    if !given.escape
        && said.escape.is_none()
        && quote != b'\\'
        && is_free(b'\\')
        && has([b'\\', quote])
    {
        let own = Oddities::of(said, text);
        if own.count() > 0 {
            let dialect = escaped_by(b'\\');
            let other = Oddities::of(&dialect, text);
            if other.count() < own.count() && (own.torn_behind_escape > 0 || other.count() == 0) {
                return Some(dialect);
            }
        }
    }
    // Writers that quote only what has to be quoted (`'it''s'`) leave no quote outside of quotes.
    if !given.quote && quote == b'"' && is_free(b'\'') && has([b'\'', b'\'']) {
        let dialect = Dialect { quote: Some(b'\''), ..said.clone() };
        let (own, other) = (Oddities::of(said, text), Oddities::of(&dialect, text));
        if own.quoted == 0
            && other.doubled > 0
            && other.cut_quotes() == 0
            && other.others <= own.others
        {
            return Some(dialect);
        }
    }
    None
}

/// What is odd about a text's quotes and fields in a dialect.
#[derive(Debug, Default)]
struct Oddities {
    /// Quoted fields.
    quoted: usize,
    /// Doubled quotes within them.
    doubled: usize,
    /// Closing quotes that something else follows than a delimiter or a line end.
    torn: usize,
    /// Those of them with an odd number of `\` before them.
    torn_behind_escape: usize,
    /// Quotes in fields that do not begin with one.
    bare: usize,
    /// Records that end within quotes.
    unclosed: usize,
    /// Records with another number of fields than the first.
    others: usize,
}

impl Oddities {
    fn of(dialect: &Dialect, text: &[u8]) -> Self {
        let grammar = Grammar::delimited(dialect);
        let (mut odd, mut first) = (Self::default(), None);
        for record in Records::new(dialect, text) {
            let (mut state, mut fields) = (State::RecordStart, 1_usize);
            let (mut behind_escape, mut closed_behind_escape) = (false, false);
            for &byte in text.get(record).unwrap_or_default() {
                let after = grammar.step(state, byte);
                match (state, after) {
                    (State::RecordStart | State::FieldStart, State::Quoted) => odd.quoted += 1,
                    (State::Quoted, State::QuoteInQuoted) => closed_behind_escape = behind_escape,
                    (State::QuoteInQuoted, State::Quoted) => odd.doubled += 1,
                    (State::QuoteInQuoted, State::Field) => {
                        odd.torn += 1;
                        odd.torn_behind_escape += usize::from(closed_behind_escape);
                    }
                    (State::Field, State::Field) if dialect.quote == Some(byte) => odd.bare += 1,
                    _ => {}
                }
                fields += usize::from(after == State::FieldStart);
                behind_escape = byte == b'\\' && !behind_escape;
                state = after;
            }
            odd.unclosed += usize::from(matches!(state, State::Quoted | State::Escaped));
            odd.others += usize::from(*first.get_or_insert(fields) != fields);
        }
        odd
    }

    /// Quotes that are not around whole fields.
    fn cut_quotes(&self) -> usize {
        self.torn + self.bare + self.unclosed
    }

    /// How much does not fit.
    fn count(&self) -> usize {
        self.torn + self.unclosed + self.others
    }
}

/// What seems to separate fields though it does not fit.
fn suspect(candidates: &[Dialect], said: &Dialect, text: &[u8]) -> Option<Suspect> {
    for dialect in candidates {
        let counts = Counts::of(dialect, text);
        if counts.records > 1 && counts.fields > 1 && counts.single * 10 <= counts.records {
            return Some(Suspect::Byte(dialect.delimiter));
        }
    }
    let mut words: Option<usize> = None;
    let (mut records, mut runs) = (0, false);
    for record in Records::new(said, text) {
        let line = text.get(record).unwrap_or_default().trim_ascii();
        let count = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
        if *words.get_or_insert(count) != count || count < 2 {
            return None;
        }
        runs |= line.windows(2).any(|pair| pair == b"  ");
        records += 1;
    }
    (records > 2 && runs).then_some(Suspect::Spaces)
}

/// How many fields records have.
#[derive(Debug, Default)]
struct Counts {
    /// Fields of the first record.
    fields: usize,
    records: usize,
    /// Records with other numbers of them, and with one alone.
    others: usize,
    single: usize,
    /// Records with one field more than the first.
    one_more: usize,
}

impl Counts {
    fn of(dialect: &Dialect, text: &[u8]) -> Self {
        let grammar = Grammar::delimited(dialect);
        let (mut counts, mut fields) = (Self::default(), Vec::new());
        for record in Records::new(dialect, text) {
            split(grammar, text.get(record).unwrap_or_default(), &mut fields);
            if counts.records == 0 {
                counts.fields = fields.len();
            }
            counts.records += 1;
            counts.others += usize::from(fields.len() != counts.fields);
            counts.single += usize::from(fields.len() == 1);
            counts.one_more += usize::from(fields.len() == counts.fields + 1);
        }
        counts
    }
}

/// The records of a text, but for the last one where it may be cut off.
struct Records<'a> {
    grammar: Grammar,
    text: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Records<'a> {
    fn new(dialect: &Dialect, text: &'a [u8]) -> Self {
        Self { grammar: Grammar::delimited(dialect), text, at: 0, left: RECORDS_MAX }
    }
}

impl Iterator for Records<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = next_record(self.grammar, self.text, self.at);
        let may_be_cut =
            record.end == self.text.len() && self.text.len() > WHOLE_BYTES && self.at > 0;
        if record.is_empty() || self.left == 0 || may_be_cut {
            return None;
        }
        self.left -= 1;
        self.at = record.end;
        Some(record)
    }
}

/// Whether a column is of numbers, under a name that is none where there is a header.
fn has_numbers(dialect: &Dialect, text: &[u8]) -> bool {
    let grammar = Grammar::delimited(dialect);
    let mut fields = Vec::new();
    let mut numbers: Option<Vec<bool>> = None;
    let mut is_header = dialect.header;
    for record in Records::new(dialect, text) {
        let line = text.get(record).unwrap_or_default();
        split(grammar, line, &mut fields);
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
        let found = sniff(&Dialect::default(), Given::default(), text.as_bytes());
        let Dialect { delimiter, quote, escape, .. } = found.dialect;
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
        match found.suspect {
            Some(Suspect::Byte(byte)) => {
                shown.push_str(&format!(" suspect {}", byte.escape_ascii()))
            }
            Some(Suspect::Spaces) => shown.push_str(" suspect spaces"),
            None => {}
        }
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn what_separates_fields_is_told() {
        check("a,b\n1,2\n", ",");
        check("a;b\n1;2\n", ";");
        check("a;b\n1,5;2,5\n", ";");
        check("a\tb\n1\t2\n", "\\t");
        check("a|b|c\n1|2|3\n", "|");
        check("a;b;c", ";");
        check("a|b;c;d\n1|2;3;4\n", ";");
        check("\"a;x\";b\n\"1\n2\";3\n", ";");
        // A comma that fits is what it was.
        check("a;x,b\n1;2,3\n", ",");
        check("a,b\n1,2\n1,2,3\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n1,2\n", ",");
        // One that does not is not what separates.
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
    fn a_comma_that_fits_by_chance_separates_nothing() {
        // It would cut quotes.
        check("Name\tCost\t\"Cost per 1,000\"\nT1\t\"10,143.27\"\t0.5\n", "\\t");
        check("a;\"b,c\"\n1;\"2,3\"\n", ";");
        check("a|\"b,c\"|d\n\"1|,|2\"|2|3\n", "|");
        check("a,b\n5\",x;y\n6\",\"x;y\"\n", ",");
        check("a,\"b;c\"\n1,\"2;3\"\n", ",");
        // It is punctuation.
        check("Date (month day, year);id\nApril 15, 2023;1\nMay 1, 2023;2\n", ";");
        check("name, first\tid\nSmith, John\t1\n\"Doe, Jane\"\t2\n", "\\t");
        check("x, m;y\n1,5;2\n2,25;3\n", ";");
        check("x, m|y|z\na, b|2|3\n1,25|3|4\n", "|");
        // It is not.
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
    fn quotes_tell_the_delimiter_of_a_text_with_a_broken_record() {
        let bad = "\"A\"|\"B\"\n\"s\"|\"A\nB\"\n\"s\"|\"A \"B\"\nA\"\n";
        check(bad, "|");
        check(&bad.replace('|', ";"), ";");
        check(&bad.replace('|', "\t"), "\\t");
        // One column in quotes, and one with quotes that are text.
        check("\"a\"\n\"x|y\"\n\"z\"\n", ",");
        check("\"a\"\n\"x\"|\"y\"\n\"z\"\n\"z\"\n", ",");
        check("a\n\"x\" and y\nz|\"z\"\n", ",");
    }

    #[test]
    fn quotes_of_another_kind_are_told_where_nothing_fits_without_them() {
        check("a,b\n'1,2',3\n'4,5',6\n", ", quote '");
        check("a;b\n'1;2';3\n'4;5';6\n", "; quote '");
        check("a,b\n\"x \\\", y\",3\n\"x \\\", z\",3\n", ", escape \\");
        // As it always was.
        check("a,b\n'1','2'\n", ",");
        // A title with a delimiter in its quotes; other quotes would be in none of the fields.
        check("\"Umsatz, gesamt\"\nname,betrag\n\"Meier\",2\n\"Huber\",4\n", ",");
        check("\"Umsatz; gesamt\"\nname;betrag\n\"Meier\";2\n\"Huber\";4\n", ",");
        check("\"Sales, all\"\nname,amount\n'Meier',2\n'Huber',4\n", ",");
        check("'Sales, all',x\nname,amount\nother,one\n", ", quote '");
    }

    #[test]
    fn quotes_that_are_escaped_are_told_where_the_number_of_fields_does_not() {
        for (delimiter, shown) in [(",", ","), (";", ";"), ("|", "|"), ("\t", "\\t")] {
            let check = |text: &str, expected: &str| {
                check(&text.replace('@', delimiter), &expected.replace('@', shown));
            };
            check("a@b\n1@\"say \\\"hi\\\"\"\n2@\"{\\\"k\\\": 1}\"\n", "@ escape \\");
            check("a@b\n1@\"{\\\"k\\\": 1@ \\\"j\\\": 2}\"\n2@x\n", "@ escape \\");
            check("a@b\n1@\"5\\\"\"\n2@\"6\\\"\"\n", "@ escape \\");
            // Most records do not have to have one.
            let plain = "1@x\n".repeat(100);
            check(&format!("a@b\n{plain}2@\"a \\\"b@ c\\\"\"\n{plain}"), "@ escape \\");
            // Doubled quotes, with what a backslash is to whoever reads the field.
            check("a@b\n1@\"say \"\"hi\"\"\"\n", "@");
            check("a@b\n1@\"{\"\"k\"\": \"\"a\\\"\"b\"\"}\"\n2@\"{\"\"k\"\": 1}\"\n", "@");
            check("a@b\n1@\"C:\\dir\\\"\n2@\"D:\\\"\n", "@");
            check("a@b\n1@say \\\"hi\\\"\n", "@");
            check("a@b\n1@\"say \"hi\"\"\n", "@");
            // Single quotes around what has one.
            check("a@b\n1@'it''s'\n2@plain\n", "@ quote '");
            check("a@b\n1@'it''s'\n2@it's\n", "@");
            check("a@b\n1@'it''s'\n2@\"x\"\n", "@");
        }
        check("a\n\"say \\\"hi\\\"\"\n", ", escape \\");
        let tabs = Dialect::tsv();
        let given = Given { delimiter: true, ..Given::default() };
        let text = b"a\tb\n1\t\"say \\\"hi\\\"\"\n";
        let escaped = Dialect { escape: Some(b'\\'), ..tabs.clone() };
        assert_eq!(sniff(&tabs, given, text).dialect, escaped);
        let given = Given { escape: true, ..given };
        assert_eq!(sniff(&tabs, given, text).dialect, tabs);
    }

    #[test]
    fn one_column_with_something_that_looks_like_a_separator_is_suspect() {
        check("a;b\n1;2\n1;2;3\n", ", suspect ;");
        check("a\n1;2\n1;2\n", ",");
        check("name   size\nx      1\nyy     2\n", ", suspect spaces");
        check("text\none two\nthree\n", ",");
    }

    #[test]
    fn what_is_said_stays() {
        let said = Dialect { delimiter: b':', ..Dialect::default() };
        let given = Given { delimiter: true, ..Given::default() };
        assert_eq!(sniff(&said, given, b"a;b\n1;2\n").dialect, said);
        let said = Dialect { quote: None, comment: Some(b'|'), ..Dialect::default() };
        let given = Given { quote: true, ..Given::default() };
        assert_eq!(sniff(&said, given, b"a|b\n1|2\n").dialect, said);
    }

    #[test]
    fn a_record_that_is_cut_off_tells_nothing() {
        let mut text = "a;b;c\n".to_owned();
        text.push_str(&"1;2;3\n".repeat(2000));
        text.push_str("1;2");
        check(&text, ";");
    }

    proptest! {
        #[test]
        fn what_a_comma_fits_is_read_by_it(
            rows in prop::collection::vec(prop::collection::vec("([a-z0-9;|\\t'.][a-z0-9;|\\t '.]{0,5})?", 3), 1..20)
        ) {
            // Doubled, they would be quotes of another kind; behind blanks, commas may be punctuation.
            let row = |row: &Vec<String>| format!("{}\n", row.join(",").replace("''", "'."));
            let text: String = rows.iter().map(row).collect();
            let found = sniff(&Dialect::default(), Given::default(), text.as_bytes());
            prop_assert_eq!(found, Sniffed { dialect: Dialect::default(), suspect: None });
        }

        /// What a writer makes of values is told to be what that writer does, and gives them back.
        #[test]
        fn what_a_writer_quotes_is_read_as_it_was_written(
            rows in prop::collection::vec(prop::collection::vec("[a-z0-9 \"\\\\,:{}]{0,9}", 3), 1..20),
            delimiter in prop::sample::select(vec![b',', b';', b'|', b'\t']),
            is_escaped: bool,
        ) {
            let value = |value: &String| match is_escaped {
                true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
                false => format!("\"{}\"", value.replace('"', "\"\"")),
            };
            let mut text = String::new();
            // One value that nothing but the writer's way can have made.
            let telling = ["x".to_owned(), "say \"hi\" you".to_owned(), "y".to_owned()];
            for row in rows.iter().map(Vec::as_slice).chain([&telling[..]]) {
                let values: Vec<String> = row.iter().map(value).collect();
                text.push_str(&values.join(&char::from(delimiter).to_string()));
                text.push('\n');
            }
            let said = Dialect { delimiter, ..Dialect::default() };
            let given = Given { delimiter: true, ..Given::default() };
            let found = sniff(&said, given, text.as_bytes()).dialect;
            let escape = is_escaped.then_some(b'\\');
            prop_assert_eq!(&found, &Dialect { escape, ..said });
            let mut read = Vec::new();
            let mut at = 0;
            while let Some((values, used)) = super::super::first_record(&found, &text.as_bytes()[at..]) {
                read.push(values);
                at += used;
            }
            let last = read.pop();
            prop_assert_eq!(last, Some(telling.to_vec()));
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn what_was_written_with_a_delimiter_is_read_with_it(
            rows in prop::collection::vec(prop::collection::vec("[a-z0-9.]{1,6}", 4), 1..20),
            delimiter in prop::sample::select(vec![";", "|", "\t"]),
        ) {
            let text: String = rows.iter().map(|row| format!("{}\n", row.join(delimiter))).collect();
            let found = sniff(&Dialect::default(), Given::default(), text.as_bytes());
            prop_assert_eq!(found.dialect.delimiter, delimiter.as_bytes()[0]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[a1,;|\\t '\"\\\\\n\r]{0,80}") {
            let _ = sniff(&Dialect::default(), Given::default(), &bytes);
            let _ = sniff(&Dialect::default(), Given::default(), text.as_bytes());
        }
    }
}
