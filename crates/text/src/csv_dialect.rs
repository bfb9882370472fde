//! How delimited text is written.

use serde::{Deserialize, Serialize};

/// The dialect of delimited text: RFC 4180 with a comma unless told otherwise.
///
/// A quote opens only at the start of a field; doubled inside quotes it is one quote; inside
/// an unquoted field it is literal. `\n`, `\r\n` and a lone `\r` end a record, and a blank line
/// is none. A special byte is ASCII and no line end, and no two are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvDialect {
    /// Whether the first record names the columns. Default: true.
    pub header: bool,
    /// The byte between fields. Default: `,`.
    pub delimiter: u8,
    /// The byte around quoted fields; none turns quoting off. Default: `"`.
    pub quote: Option<u8>,
    /// A byte that makes the next one literal inside quotes, besides doubled quotes. Default:
    /// none.
    pub escape: Option<u8>,
    /// Lines that start with this byte are skipped. Default: none.
    pub comment: Option<u8>,
    /// Strings that mean null, besides the empty field. Default: none.
    pub nulls: Vec<String>,
    /// True if records are refused whose quotes seem to be written otherwise than `quote` and `escape` say: for
    /// dialects that nobody stated. Default: false.
    #[serde(default)]
    pub checks_quotes: bool,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self {
            header: true,
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            comment: None,
            nulls: Vec::new(),
            checks_quotes: false,
        }
    }
}

impl CsvDialect {
    /// Tab-separated values.
    #[must_use]
    pub fn tsv() -> Self {
        Self { delimiter: b'\t', ..Self::default() }
    }

    /// Whether one of the null strings, or empty.
    #[must_use]
    pub fn is_null_string(&self, value: &str) -> bool {
        value.is_empty() || self.nulls.iter().any(|null| null == value)
    }
}
