//! Why a record is refused.

use std::ops::Range;

use arrow_schema::DataType;

use crate::canonical_spelling::is_canonical;
use crate::value_parsing::{
    can_parse_as, describe_type, is_out_of_double_range, is_rounded_as_double,
};

/// Why a record is refused: the kind tells programs, [`Display`](std::fmt::Display) people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFault {
    /// The column at fault, if it is one; of a nested column its path: `a.b[2]`.
    pub column: Option<String>,
    /// The byte of the record where it was found, the first being 0.
    pub offset: usize,
    /// What is wrong.
    pub kind: TextFaultKind,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextFaultKind {
    /// A record with more or fewer fields than the others.
    FieldCount {
        /// Fields that a record has.
        expected: usize,
        /// Fields that this one has.
        found: usize,
    },
    /// A value that is not of its column's type.
    WrongType {
        /// The column's type.
        expected: DataType,
        /// The value as it is written, shortened.
        value: String,
    },
    /// A JSON string that holds a number or a Boolean, in a column whose sample had none in strings.
    StringValue {
        /// The column's type.
        expected: DataType,
        /// The value of the string, shortened.
        value: String,
    },
    /// An integer that a DOUBLE would round, in a column that is to keep every digit.
    RoundedByDouble {
        /// The integer as it is written, shortened.
        value: String,
    },
    /// A number beyond the range of a DOUBLE, in a column that is to keep its value.
    DoubleOutOfRange {
        /// The number as it is written, shortened.
        value: String,
    },
    /// Bytes that are not UTF-8.
    InvalidUtf8 {
        /// The field that holds them, the first being 1, where records have fields.
        field: Option<usize>,
    },
    /// NUL bytes in front of a record.
    LeadingNuls {
        /// Number of them.
        count: usize,
    },
    /// A quote that is never closed.
    UnclosedQuote,
    /// A quoted field with line ends whose lines have all fields of a record each, if quotes are plain text.
    QuotedRecords {
        /// The lines of the record.
        lines: usize,
        /// Fields that each of them has.
        fields: usize,
    },
    /// A quote behind a backslash that closes its field though more of the field follows.
    ClosedAfterBackslash,
    /// JSON's or another grammar's rules are broken, as the text says.
    SyntaxError(String),
    /// The line is not what a pattern says.
    PatternMismatch,
    /// The input ends, or the line does, within a value.
    EndsInsideValue(String),
    /// A value of the wrong shape: an array where an object is expected, say.
    WrongShape {
        /// What is expected.
        expected: String,
        /// What is there, in words.
        found: String,
    },
    /// The line goes on after its record.
    TrailingBytes,
    /// A record beyond the largest size.
    RecordTooLong {
        /// The largest size in bytes.
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

    /// The fault of a record that begins with NUL bytes; none of one that does not.
    ///
    /// A hole in a file begins anywhere in a record and ends anywhere in another one: what follows the NUL bytes may
    /// be the end of a record whose beginning is lost.
    pub(crate) fn from_leading_nuls(record: &[u8]) -> Option<Self> {
        let count = record.iter().take_while(|byte| **byte == 0).count();
        (count > 0).then(|| Self::new(0, TextFaultKind::LeadingNuls { count }))
    }

    /// The fault of a value that is not of its column's type.
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

    /// The same fault of a JSON string: what is wrong with a value that is of the type without the quotes is
    /// that it stands in them.
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

/// A refused record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedTextRecord {
    /// Its bytes in the block that was decoded, its line end included.
    pub range: Range<usize>,
    /// Why it is refused.
    pub fault: TextFault,
    /// How many of [`Decoded::rows`](crate::Decoded::rows) stand before it, so that records can be
    /// numbered, whatever was refused among them.
    pub rows_before: u64,
}

/// At most so many characters of a value are shown.
const EXCERPT_CHARS_MAX: usize = 60;

/// A value as a message shows it: shortened, control characters escaped.
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
