//! The reason why a decoder rejects a record.

use std::ops::Range;

use arrow_schema::DataType;

use crate::canonical_spelling::is_canonical;
use crate::value_parsing::{
    can_parse_as, describe_type, is_out_of_double_range, is_rounded_as_double,
};

/// The reason why a decoder rejects a record: the kind is for programs, [`Display`](std::fmt::Display) for
/// people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFault {
    /// The column at fault, if there is one; for a part of a nested column its path: `a.b[2]`.
    pub column: Option<String>,
    /// Offset of the fault within the record, from 0.
    pub offset: usize,
    /// The kind of fault.
    pub kind: TextFaultKind,
}

/// The kind of a fault in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextFaultKind {
    /// A record with more or fewer fields than the others.
    FieldCount {
        /// Number of fields in every record.
        expected: usize,
        /// Number of fields in this record.
        found: usize,
    },
    /// A value that is not of its column's type.
    WrongType {
        /// The column's type.
        expected: DataType,
        /// The value as the text spells it, shortened.
        value: String,
    },
    /// A JSON string that holds a number or a Boolean, in a column whose sample had none in strings.
    StringValue {
        /// The column's type.
        expected: DataType,
        /// The value of the string, shortened.
        value: String,
    },
    /// An integer that a DOUBLE would round, in a column that must keep every digit.
    RoundedByDouble {
        /// The integer as the text spells it, shortened.
        value: String,
    },
    /// A number beyond the range of a DOUBLE, in a column that must keep its value.
    DoubleOutOfRange {
        /// The number as the text spells it, shortened.
        value: String,
    },
    /// Bytes that are not UTF-8.
    InvalidUtf8 {
        /// Number of the field that holds them, from 1, in formats whose records have fields.
        field: Option<usize>,
    },
    /// NUL bytes in front of a record.
    LeadingNuls {
        /// Number of NUL bytes.
        count: usize,
    },
    /// A quote that is never closed.
    UnclosedQuote,
    /// A quoted field that spans lines, each of which would be a record with all fields if quotes were plain
    /// text.
    QuotedRecords {
        /// Number of lines in the record.
        lines: usize,
        /// Number of fields in each line.
        fields: usize,
    },
    /// A quote after a backslash that closes its field although more of the field follows.
    ClosedAfterBackslash,
    /// A violation of JSON's or another grammar, described by the text.
    SyntaxError(String),
    /// A line that does not match the pattern of the log format.
    PatternMismatch,
    /// An input or line that ends inside a value.
    EndsInsideValue(String),
    /// A value of the wrong shape, for example an array instead of an object.
    WrongShape {
        /// The expected shape, in words.
        expected: String,
        /// The actual value, in words.
        found: String,
    },
    /// A line that continues after its record.
    TrailingBytes,
    /// A record beyond the maximum size.
    RecordTooLong {
        /// The maximum size in bytes.
        bytes_max: usize,
    },
}

impl TextFault {
    pub(crate) fn new(at: usize, kind: TextFaultKind) -> Self {
        Self { column: None, offset: at, kind }
    }

    pub(crate) fn in_column(column: impl Into<String>, at: usize, kind: TextFaultKind) -> Self {
        Self { column: Some(column.into()), offset: at, kind }
    }

    /// Returns the fault of a record that begins with NUL bytes; `None` for any other record.
    ///
    /// A hole in a file can begin in the middle of a record and end in the middle of another one. The bytes
    /// after the NUL bytes may therefore be the end of a record whose beginning is lost.
    pub(crate) fn from_leading_nuls(record: &[u8]) -> Option<Self> {
        let count = record.iter().take_while(|byte| **byte == 0).count();
        (count > 0).then(|| Self::new(0, TextFaultKind::LeadingNuls { count }))
    }

    /// Returns the fault of a value that is not of its column's type.
    pub(crate) fn from_wrong_type(
        column: &str,
        at: usize,
        expected: &DataType,
        value: &[u8],
    ) -> Self {
        let text = String::from_utf8_lossy(value);
        let value = value_excerpt(&text);
        if expected == &DataType::Float64 && is_rounded_as_double(&text) {
            return Self::in_column(column, at, TextFaultKind::RoundedByDouble { value });
        }
        if expected == &DataType::Float64 && is_out_of_double_range(&text) {
            return Self::in_column(column, at, TextFaultKind::DoubleOutOfRange { value });
        }
        Self::in_column(column, at, TextFaultKind::WrongType { expected: expected.clone(), value })
    }

    /// Returns the fault of the same value in a JSON string: a value that would be of the type without quotes
    /// is at fault only for standing in them.
    pub(crate) fn into_string_fault(self) -> Self {
        let (expected, value) = match self.kind {
            TextFaultKind::WrongType { expected, value } if can_parse_as(&value, &expected) => {
                (expected, value)
            }
            TextFaultKind::DoubleOutOfRange { value } => (DataType::Float64, value),
            kind => return Self { kind, ..self },
        };
        Self { kind: TextFaultKind::StringValue { expected, value }, ..self }
    }
}

impl std::fmt::Display for TextFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            TextFaultKind::FieldCount { expected, found } => {
                let s = if *expected == 1 { "" } else { "s" };
                write!(f, "expected {expected} field{s}, found {found}")
            }
            TextFaultKind::WrongType { expected, value } => {
                let expected_name = describe_type(expected);
                write!(f, "expected {expected_name}, found `{value}`")?;
                match expected {
                    _ if is_canonical(value.as_bytes(), expected)
                        || !can_parse_as(value, expected) =>
                    {
                        Ok(())
                    }
                    DataType::Timestamp(_, _) => f.write_str(", which states none"),
                    _ => write!(f, ", whose spelling {expected_name} would lose"),
                }
            }
            TextFaultKind::StringValue { expected, value } => {
                write!(f, "expected {}, found a string `\"{value}\"`", describe_type(expected))
            }
            TextFaultKind::RoundedByDouble { value } => {
                write!(f, "a DOUBLE holds no integer `{value}`, only one close to it")
            }
            TextFaultKind::DoubleOutOfRange { value } => {
                write!(f, "`{value}` is beyond the range of a DOUBLE")
            }
            TextFaultKind::InvalidUtf8 { field: Some(field) } => {
                write!(f, "field {field} is not valid UTF-8")
            }
            TextFaultKind::InvalidUtf8 { field: None } => {
                write!(f, "the record is not valid UTF-8 from its byte {} on", self.offset + 1)
            }
            TextFaultKind::LeadingNuls { count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "the record begins with {count} NUL byte{s}")
            }
            TextFaultKind::UnclosedQuote => f.write_str("a quote is never closed"),
            TextFaultKind::QuotedRecords { lines, fields } => write!(
                f,
                "a quote makes one record of {lines} lines, each of which has {fields} fields by itself"
            ),
            TextFaultKind::ClosedAfterBackslash => {
                f.write_str("a field in quotes goes on behind `\\\"`, which ends it")
            }
            TextFaultKind::SyntaxError(reason) => write!(f, "{reason} at byte {}", self.offset + 1),
            TextFaultKind::PatternMismatch => {
                f.write_str("the line does not match the pattern of --log-format")
            }
            TextFaultKind::EndsInsideValue(reason) => {
                write!(f, "the line ends within its value ({reason})")
            }
            TextFaultKind::WrongShape { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            TextFaultKind::TrailingBytes => {
                write!(f, "the line goes on after its value, from byte {} on", self.offset + 1)
            }
            TextFaultKind::RecordTooLong { bytes_max: limit } => {
                write!(f, "the record is longer than {limit} bytes")
            }
        }
    }
}

impl std::error::Error for TextFault {}

/// A record that a decoder rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTextRecord {
    /// Its byte range in the decoded block, with its line end.
    pub range: Range<usize>,
    /// The reason.
    pub fault: TextFault,
    /// Number of [`DecodedBlocks::rows`](crate::DecodedBlocks::rows) before it, so that a caller can number
    /// records even if some are rejected.
    pub rows_before: u64,
}

/// Maximum number of characters in an excerpt of a value.
const EXCERPT_CHARS_MAX: usize = 60;

/// Returns a value as messages show it: shortened, with control characters escaped.
#[must_use]
pub fn value_excerpt(value: &str) -> String {
    let mut text: String =
        value.chars().take(EXCERPT_CHARS_MAX).flat_map(char::escape_debug).collect();
    if value.chars().nth(EXCERPT_CHARS_MAX).is_some() {
        text.push('…');
    }
    // `escape_debug` also escapes quotes, which are common in records and harmless here.
    text.replace("\\\"", "\"").replace("\\'", "'")
}
