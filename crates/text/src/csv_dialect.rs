//! The dialect of delimited text: delimiter, quote, escape, comment and null strings.

use serde::{Deserialize, Serialize};

/// The dialect of delimited text. The default is RFC 4180 with a comma.
///
/// A quote opens only at the start of a field. A doubled quote inside quotes is one quote; a quote inside
/// an unquoted field is literal. `\n`, `\r\n` and a lone `\r` end a record, and a blank line
/// is no record. A special byte is ASCII and not a line end, and all special bytes differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvDialect {
    /// True if the first record names the columns. Default: true.
    pub header: bool,
    /// The byte between fields. Default: `,`.
    pub delimiter: u8,
    /// The byte around quoted fields; `None` turns quoting off. Default: `"`.
    pub quote: Option<u8>,
    /// The byte that makes the next byte literal inside quotes, besides doubled quotes. Default:
    /// none.
    pub escape: Option<u8>,
    /// The first byte of comment lines, which the decoder skips. Default: none.
    pub comment: Option<u8>,
    /// Strings that mean null, besides the empty field. Default: none.
    pub nulls: Vec<String>,
    /// True to reject records whose quotes contradict `quote` and `escape`: for dialects that nobody
    /// stated. Default: false.
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
    /// Returns the dialect of tab-separated values.
    #[must_use]
    pub fn tsv() -> Self {
        Self { delimiter: b'\t', ..Self::default() }
    }

    /// Returns whether a value is empty or one of the null strings.
    #[must_use]
    pub fn is_null_string(&self, value: &str) -> bool {
        value.is_empty() || self.nulls.iter().any(|null| null == value)
    }
}
