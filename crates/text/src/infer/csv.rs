//! Inference of the columns of delimited text: names from the header, types from the sample.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::{CommaNumbers, InferredTextType, NonIsoDates};
use crate::csv::{split_record, unescape_field};
use crate::csv_dialect::CsvDialect;
use crate::record_boundaries::{RecordGrammar, next_record_range};
use crate::value_parsing::NullStrings;

/// Columns inferred from the sample so far.
///
/// ```
/// use tidemill_text::{CsvDialect, csv::read_first_record, infer::csv::CsvInference};
///
/// let text = b"when,n\n2013-01-01,1\n2013-01-02,\n";
/// let (names, used) = read_first_record(&CsvDialect::default(), text).unwrap();
/// let mut inference = CsvInference::new(&CsvDialect::default(), names.len());
/// assert_eq!(inference.add_block(&text[used..]), 2);
/// let fields = inference.fields(&names);
/// assert_eq!(fields[0].data_type().to_string(), "Date32");
/// assert_eq!(fields[1].data_type().to_string(), "Int64");
/// ```
#[derive(Debug)]
pub struct CsvInference {
    dialect: CsvDialect,
    nulls: NullStrings,
    inferred_types: Vec<InferredTextType>,
    value_counts: Vec<u64>,
    /// Number of records with as many fields as there are columns.
    fitting_records: u64,
    /// Types without null markers, per field, from its first [null marker](NULL_MARKERS) on.
    without_markers: Vec<Option<Box<ValuesWithoutMarkers>>>,
    non_iso_dates: Vec<NonIsoDates>,
    comma_numbers: Vec<CommaNumbers>,
    /// Types without surrounding spaces, per field, from its first value with spaces on.
    trimmed_types: Vec<Option<Box<InferredTextType>>>,
}

/// Words that usually mark a missing value.
const NULL_MARKERS: [&str; 23] = [
    "NA", "N/A", "n/a", "na", "#N/A", "-", "--", "null", "NULL", "Null", "none", "None", "NONE",
    "nil", "nan", "\\N", "?", ".", "missing", "unknown", "(null)", "<null>", "#NULL!",
];

/// Returns whether a word usually marks a missing value.
#[must_use]
pub fn is_null_marker(word: &str) -> bool {
    NULL_MARKERS.contains(&word)
}

/// The inferred type of a field without its null markers.
#[derive(Debug, Clone)]
pub struct ValuesWithoutMarkers {
    /// The type of the other values.
    pub inferred_type: InferredTextType,
    /// Number of other values.
    pub value_count: u64,
    /// The markers in the order of their first appearance.
    pub markers: Vec<&'static str>,
}

impl CsvInference {
    /// Returns an inference for records of `fields` fields.
    #[must_use]
    pub fn new(dialect: &CsvDialect, fields: usize) -> Self {
        Self {
            dialect: dialect.clone(),
            nulls: NullStrings::new(&dialect.nulls, true),
            inferred_types: vec![InferredTextType::default(); fields],
            value_counts: vec![0; fields],
            fitting_records: 0,
            without_markers: vec![None; fields],
            non_iso_dates: vec![NonIsoDates::default(); fields],
            comma_numbers: vec![CommaNumbers::default(); fields],
            trimmed_types: vec![None; fields],
        }
    }

    /// Adds a block of whole records and returns their number. Ignores records with another
    /// number of fields, or with NUL bytes in front, which the decoder reports.
    pub fn add_block(&mut self, block: &[u8]) -> u64 {
        let grammar = RecordGrammar::from_dialect(&self.dialect);
        let (mut fields, mut unquoted) = (Vec::new(), Vec::new());
        let (mut at, mut records) = (0, 0);
        loop {
            let range = next_record_range(grammar, block, at);
            if range.is_empty() {
                return records;
            }
            at = range.end;
            records += 1;
            let record = &block[range];
            // A record after a hole in its file is malformed.
            if record.first() == Some(&0) {
                continue;
            }
            split_record(grammar, record, &mut fields);
            if fields.len() != self.inferred_types.len() {
                continue;
            }
            self.fitting_records += 1;
            let kinds = self.inferred_types.iter_mut().zip(&mut self.value_counts);
            let kinds = kinds
                .zip(&mut self.without_markers)
                .zip(&mut self.non_iso_dates)
                .zip(&mut self.comma_numbers);
            let kinds = kinds.zip(&mut self.trimmed_types);
            for ((((((kind, count), marked), order), commas), trimmed), field) in kinds.zip(&fields)
            {
                let mut value = &record[field.clone()];
                if let Some(quote) = self.dialect.quote
                    && value.first() == Some(&quote)
                {
                    unquoted.clear();
                    unescape_field(value, quote, self.dialect.escape, &mut unquoted);
                    value = &unquoted;
                }
                if let Ok(text) = std::str::from_utf8(value)
                    && !self.nulls.contains(text)
                {
                    let may_mark =
                        text.len() <= 7 && !text.starts_with(|c: char| c.is_ascii_digit());
                    let marker = NULL_MARKERS.iter().find(|marker| may_mark && **marker == text);
                    match (marker, &mut *marked) {
                        (Some(marker), None) => {
                            let (others, count) = (*kind, *count);
                            let words = vec![*marker];
                            *marked = Some(Box::new(ValuesWithoutMarkers {
                                inferred_type: others,
                                value_count: count,
                                markers: words,
                            }));
                        }
                        (Some(marker), Some(marked)) if !marked.markers.contains(marker) => {
                            marked.markers.push(marker);
                        }
                        (None, Some(marked)) => {
                            marked.inferred_type.add_value(text);
                            marked.value_count += 1;
                        }
                        _ => {}
                    }
                    let bare = text.trim_matches(' ');
                    if bare.len() < text.len() && trimmed.is_none() {
                        *trimmed = Some(Box::new(*kind));
                    }
                    if let Some(trimmed) = trimmed {
                        trimmed.add_value(bare);
                    }
                    kind.add_value(text);
                    order.add_value(text);
                    commas.add_value(text);
                    *count += 1;
                }
            }
        }
    }

    /// Returns the number of records that had as many fields as there are columns.
    #[must_use]
    pub fn fitting_records(&self) -> u64 {
        self.fitting_records
    }

    /// Returns the possible types of each field, and its number of values that are not null.
    pub fn inferred_types(&self) -> impl Iterator<Item = (&InferredTextType, u64)> {
        self.inferred_types.iter().zip(self.value_counts.iter().copied())
    }

    /// Returns the types of each field without null markers, if it has any.
    pub fn without_markers(&self) -> impl Iterator<Item = Option<&ValuesWithoutMarkers>> {
        self.without_markers.iter().map(Option::as_deref)
    }

    /// Returns the evidence of dates in other spellings for each field.
    #[must_use]
    pub fn non_iso_dates(&self) -> &[NonIsoDates] {
        &self.non_iso_dates
    }

    /// Returns the evidence of numbers with commas for each field.
    #[must_use]
    pub fn comma_numbers(&self) -> &[CommaNumbers] {
        &self.comma_numbers
    }

    /// Returns the possible types of each field without surrounding spaces, if some values have spaces.
    pub fn trimmed_types(&self) -> impl Iterator<Item = Option<&InferredTextType>> {
        self.trimmed_types.iter().map(Option::as_deref)
    }

    /// Returns the columns, with the given names.
    #[must_use]
    pub fn fields(&self, names: &[String]) -> Vec<FieldRef> {
        let field = |(name, kind): (&String, &InferredTextType)| {
            let data_type = kind.data_type().unwrap_or(DataType::Utf8View);
            Arc::new(Field::new(name, data_type, true))
        };
        names.iter().zip(&self.inferred_types).map(field).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_after_nuls_does_not_affect_types() {
        let mut inference = CsvInference::new(&CsvDialect::default(), 2);
        assert_eq!(inference.add_block(b"\0\0x,y\n1,2\n\0\0\n3,4\n\0"), 5);
        assert_eq!(inference.fitting_records(), 2);
        let names = ["a".to_owned(), "b".to_owned()];
        for field in inference.fields(&names) {
            assert_eq!(field.data_type(), &arrow_schema::DataType::Int64);
        }
    }

    #[test]
    fn quotes_nulls_and_odd_records_do_not_affect_types() {
        let dialect =
            CsvDialect { nulls: vec!["NA".into()], comment: Some(b'#'), ..CsvDialect::default() };
        let mut inference = CsvInference::new(&dialect, 3);
        let text = b"\"1\",NA,\"a,\n\"\"b\"\n# x,y,z\n\n2,,true\r\nx,y\n3,2013-01-01,c";
        assert_eq!((inference.add_block(text), inference.fitting_records()), (4, 3));
        let names = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let found: Vec<_> =
            inference.fields(&names).iter().map(|f| f.data_type().to_string()).collect();
        assert_eq!(found, ["Int64", "Date32", "Utf8View"]);
        assert_eq!(
            inference.inferred_types().map(|(_, count)| count).collect::<Vec<_>>(),
            [3, 1, 3]
        );
        assert_eq!(inference.add_block(b"x,,\n"), 1);
        assert_eq!(inference.fields(&names)[0].data_type(), &DataType::Utf8View);
        assert_eq!(
            CsvInference::new(&dialect, 1).fields(&names)[0].data_type(),
            &DataType::Utf8View
        );
    }
}
