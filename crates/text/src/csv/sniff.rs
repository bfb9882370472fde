//! How delimited text is written, where nobody says: what stands between its fields and around them.
//!
//! The dialects that there can be are tried on the beginning of a text, as DuckDB's sniffer does
//! ("CSV Auto Detection" in its manual); one fits if every record has as many fields as the first,
//! and more than one. A comma comes first: what it fits is read as it always was, and nothing else is
//! tried. Then tab, `;` and `|`, of which the one counts that gives most fields, and a space, where
//! one of the columns is of numbers under a name, so that names of two words are not taken apart. If
//! none fits with quotes as in RFC 4180, there may be single quotes, or quotes escaped by `\`.

use std::ops::Range;

use super::{Grammar, split};
use crate::cut::next_record;
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
    let plain = || Sniffed { dialect: said.clone(), suspect: None };
    if given.delimiter {
        return plain();
    }
    let own = Counts::of(said, text);
    if own.records == 0 || own.fields > 1 && own.others * 10 <= own.records {
        return plain();
    }
    let taken = |byte: u8| {
        said.quote == Some(byte) || said.escape == Some(byte) || said.comment == Some(byte)
    };
    let candidates: Vec<Dialect> = [b'\t', b';', b'|']
        .into_iter()
        .filter(|byte| *byte != said.delimiter && !taken(*byte))
        .map(|delimiter| Dialect { delimiter, ..said.clone() })
        .collect();
    if let Some(dialect) = best(&candidates, text) {
        return Sniffed { dialect, suspect: None };
    }
    let spaced = Dialect { delimiter: b' ', ..said.clone() };
    if own.fields == 1 && !taken(b' ') && own.records > 2 {
        let counts = Counts::of(&spaced, text);
        if counts.fields > 1 && counts.others == 0 && has_numbers(&spaced, text) {
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
    let suspect = if own.fields == 1 { suspect(&candidates, said, text) } else { None };
    Sniffed { dialect: said.clone(), suspect }
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
        check("full name\nJohn Smith\nMary Jones\n", ",");
        check("name\nJohn\nMary\n", ",");
        check("name n\nJohn 1\nMary x\n", ",");
        check("", ",");
        check("\n\n", ",");
        check("a\n", ",");
    }

    #[test]
    fn quotes_of_another_kind_are_told_where_nothing_fits_without_them() {
        check("a,b\n'1,2',3\n'4,5',6\n", ", quote '");
        check("a;b\n'1;2';3\n'4;5';6\n", "; quote '");
        check("a,b\n\"x \\\", y\",3\n\"x \\\", z\",3\n", ", escape \\");
        // As it always was.
        check("a,b\n'1','2'\n", ",");
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
            rows in prop::collection::vec(prop::collection::vec("[a-z0-9;|\\t '.]{0,6}", 3), 1..20)
        ) {
            let text: String = rows.iter().map(|row| format!("{}\n", row.join(","))).collect();
            let found = sniff(&Dialect::default(), Given::default(), text.as_bytes());
            prop_assert_eq!(found, Sniffed { dialect: Dialect::default(), suspect: None });
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
