//! Columns of delimited text: names from the header, types from the sample.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::{Commas, DayOrder, TextKind};
use crate::csv::{split, unescape};
use crate::cut::{Grammar, next_record};
use crate::dialect::Dialect;
use crate::values::Nulls;

/// Columns as the sample shows them so far.
///
/// ```
/// use tidemill_text::{Dialect, csv::first_record, infer::csv::Inference};
///
/// let text = b"when,n\n2013-01-01,1\n2013-01-02,\n";
/// let (names, used) = first_record(&Dialect::default(), text).unwrap();
/// let mut inference = Inference::new(&Dialect::default(), names.len());
/// assert_eq!(inference.add(&text[used..]), 2);
/// let fields = inference.fields(&names);
/// assert_eq!(fields[0].data_type().to_string(), "Date32");
/// assert_eq!(fields[1].data_type().to_string(), "Int64");
/// ```
#[derive(Debug)]
pub struct Inference {
    dialect: Dialect,
    nulls: Nulls,
    kinds: Vec<TextKind>,
    counts: Vec<u64>,
    /// Records with as many fields.
    fitting: u64,
    /// Per field, what is known of it besides, once it had one of the [`MARKERS`].
    marked: Vec<Option<Box<Marked>>>,
    orders: Vec<DayOrder>,
    commas: Vec<Commas>,
    /// Per field, what its values are without the spaces around them, once it had one with spaces.
    trimmed: Vec<Option<Box<TextKind>>>,
}

/// Words that mostly mean that there is no value.
const MARKERS: [&str; 23] = [
    "NA", "N/A", "n/a", "na", "#N/A", "-", "--", "null", "NULL", "Null", "none", "None", "NONE",
    "nil", "nan", "\\N", "?", ".", "missing", "unknown", "(null)", "<null>", "#NULL!",
];

/// Whether a word mostly means that there is no value.
#[must_use]
pub fn is_marker(word: &str) -> bool {
    MARKERS.contains(&word)
}

/// What a field's values are without the words of them that mostly mean no value.
#[derive(Debug, Clone)]
pub struct Marked {
    /// What the others have in common.
    pub others: TextKind,
    /// How many those are.
    pub count: u64,
    /// The words, in the order in which they came.
    pub words: Vec<&'static str>,
}

impl Inference {
    /// For records of so many fields.
    #[must_use]
    pub fn new(dialect: &Dialect, fields: usize) -> Self {
        Self {
            dialect: dialect.clone(),
            nulls: Nulls::new(&dialect.nulls, true),
            kinds: vec![TextKind::default(); fields],
            counts: vec![0; fields],
            fitting: 0,
            marked: vec![None; fields],
            orders: vec![DayOrder::default(); fields],
            commas: vec![Commas::default(); fields],
            trimmed: vec![None; fields],
        }
    }

    /// Takes a block of whole records and returns how many it holds. Records with another
    /// number of fields, or with NUL bytes in front, are left to the reading, which reports them.
    pub fn add(&mut self, block: &[u8]) -> u64 {
        let grammar = Grammar::delimited(&self.dialect);
        let (mut fields, mut unquoted) = (Vec::new(), Vec::new());
        let (mut at, mut records) = (0, 0);
        loop {
            let range = next_record(grammar, block, at);
            if range.is_empty() {
                return records;
            }
            at = range.end;
            records += 1;
            let record = &block[range];
            // A record behind a hole of its file is malformed.
            if record.first() == Some(&0) {
                continue;
            }
            split(grammar, record, &mut fields);
            if fields.len() != self.kinds.len() {
                continue;
            }
            self.fitting += 1;
            let kinds = self.kinds.iter_mut().zip(&mut self.counts);
            let kinds = kinds.zip(&mut self.marked).zip(&mut self.orders).zip(&mut self.commas);
            let kinds = kinds.zip(&mut self.trimmed);
            for ((((((kind, count), marked), order), commas), trimmed), field) in kinds.zip(&fields)
            {
                let mut value = &record[field.clone()];
                if let Some(quote) = self.dialect.quote
                    && value.first() == Some(&quote)
                {
                    unquoted.clear();
                    unescape(value, quote, self.dialect.escape, &mut unquoted);
                    value = &unquoted;
                }
                if let Ok(text) = std::str::from_utf8(value)
                    && !self.nulls.contains(text)
                {
                    let may_mark =
                        text.len() <= 7 && !text.starts_with(|c: char| c.is_ascii_digit());
                    let marker = MARKERS.iter().find(|marker| may_mark && **marker == text);
                    match (marker, &mut *marked) {
                        (Some(marker), None) => {
                            let (others, count) = (*kind, *count);
                            let words = vec![*marker];
                            *marked = Some(Box::new(Marked { others, count, words }));
                        }
                        (Some(marker), Some(marked)) if !marked.words.contains(marker) => {
                            marked.words.push(marker);
                        }
                        (None, Some(marked)) => {
                            marked.others.add(text);
                            marked.count += 1;
                        }
                        _ => {}
                    }
                    let bare = text.trim_matches(' ');
                    if bare.len() < text.len() && trimmed.is_none() {
                        *trimmed = Some(Box::new(*kind));
                    }
                    if let Some(trimmed) = trimmed {
                        trimmed.add(bare);
                    }
                    kind.add(text);
                    order.add(text);
                    commas.add(text);
                    *count += 1;
                }
            }
        }
    }

    /// Number of records that had as many fields as there are columns.
    #[must_use]
    pub fn fitting(&self) -> u64 {
        self.fitting
    }

    /// Per field, what its values have in common, and how many there were that are not null.
    pub fn kinds(&self) -> impl Iterator<Item = (&TextKind, u64)> {
        self.kinds.iter().zip(self.counts.iter().copied())
    }

    /// Per field, what it is without words that mostly mean no value, if it has any.
    pub fn marked(&self) -> impl Iterator<Item = Option<&Marked>> {
        self.marked.iter().map(Option::as_deref)
    }

    /// Per field, what its values are as dates whose year is last.
    #[must_use]
    pub fn orders(&self) -> &[DayOrder] {
        &self.orders
    }

    /// Per field, what its values are as numbers with commas.
    #[must_use]
    pub fn commas(&self) -> &[Commas] {
        &self.commas
    }

    /// Per field, what its values have in common without the spaces around them, if some have spaces.
    pub fn trimmed(&self) -> impl Iterator<Item = Option<&TextKind>> {
        self.trimmed.iter().map(Option::as_deref)
    }

    /// The columns.
    #[must_use]
    pub fn fields(&self, names: &[String]) -> Vec<FieldRef> {
        let field = |(name, kind): (&String, &TextKind)| {
            let data_type = kind.data_type().unwrap_or(DataType::Utf8View);
            Arc::new(Field::new(name, data_type, true))
        };
        names.iter().zip(&self.kinds).map(field).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_behind_nuls_shows_no_type() {
        let mut inference = Inference::new(&Dialect::default(), 2);
        assert_eq!(inference.add(b"\0\0x,y\n1,2\n\0\0\n3,4\n\0"), 5);
        assert_eq!(inference.fitting(), 2);
        let names = ["a".to_owned(), "b".to_owned()];
        for field in inference.fields(&names) {
            assert_eq!(field.data_type(), &arrow_schema::DataType::Int64);
        }
    }

    #[test]
    fn quotes_nulls_and_records_that_do_not_fit_are_seen_through() {
        let dialect =
            Dialect { nulls: vec!["NA".into()], comment: Some(b'#'), ..Dialect::default() };
        let mut inference = Inference::new(&dialect, 3);
        let text = b"\"1\",NA,\"a,\n\"\"b\"\n# x,y,z\n\n2,,true\r\nx,y\n3,2013-01-01,c";
        assert_eq!((inference.add(text), inference.fitting()), (4, 3));
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let found: Vec<_> =
            inference.fields(&names).iter().map(|f| f.data_type().to_string()).collect();
        assert_eq!(found, ["Int64", "Date32", "Utf8View"]);
        assert_eq!(inference.kinds().map(|(_, count)| count).collect::<Vec<_>>(), [3, 1, 3]);
        assert_eq!(inference.add(b"x,,\n"), 1);
        assert_eq!(inference.fields(&names)[0].data_type(), &DataType::Utf8View);
        assert_eq!(Inference::new(&dialect, 1).fields(&names)[0].data_type(), &DataType::Utf8View);
    }
}
