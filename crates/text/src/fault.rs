//! Why a record is refused.

use std::ops::Range;

use arrow_schema::DataType;

use crate::values::describe;

/// Why a record is refused: the kind tells programs, [`Display`](std::fmt::Display) people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The column at fault, if it is one; of a nested column its path: `a.b[2]`.
    pub column: Option<String>,
    /// The byte of the record where it was found, the first being 0.
    pub at: usize,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
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
    /// Bytes that are not UTF-8.
    Utf8 {
        /// The field that holds them, the first being 1, where records have fields.
        field: Option<usize>,
    },
    /// A quote that is never closed.
    Unclosed,
    /// JSON's or another grammar's rules are broken, as the text says.
    Syntax(String),
    /// The line is not what a pattern says.
    NoMatch,
    /// The input ends, or the line does, within a value.
    Ends(String),
    /// A value of the wrong shape: an array where an object is expected, say.
    Shape {
        /// What is expected.
        expected: String,
        /// What is there, in words.
        found: String,
    },
    /// The line goes on after its record.
    Trailing,
    /// A record beyond the largest size.
    TooLong {
        /// The largest size in bytes.
        limit: usize,
    },
}

impl Fault {
    pub(crate) fn new(at: usize, kind: FaultKind) -> Self {
        Self { column: None, at, kind }
    }

    pub(crate) fn of(column: impl Into<String>, at: usize, kind: FaultKind) -> Self {
        Self { column: Some(column.into()), at, kind }
    }

    /// The fault of a value that is not of its column's type.
    pub(crate) fn wrong_type(column: &str, at: usize, expected: &DataType, value: &[u8]) -> Self {
        let value = shown(&String::from_utf8_lossy(value));
        Self::of(column, at, FaultKind::WrongType { expected: expected.clone(), value })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            FaultKind::FieldCount { expected, found } => {
                let s = if *expected == 1 { "" } else { "s" };
                write!(f, "expected {expected} field{s}, found {found}")
            }
            FaultKind::WrongType { expected, value } => {
                write!(f, "expected {}, found `{value}`", describe(expected))
            }
            FaultKind::Utf8 { field: Some(field) } => write!(f, "field {field} is not valid UTF-8"),
            FaultKind::Utf8 { field: None } => {
                write!(f, "the record is not valid UTF-8 from its byte {} on", self.at + 1)
            }
            FaultKind::Unclosed => f.write_str("a quote is never closed"),
            FaultKind::Syntax(reason) => write!(f, "{reason} at byte {}", self.at + 1),
            FaultKind::NoMatch => {
                f.write_str("the line does not match the pattern of --log-format")
            }
            FaultKind::Ends(reason) => {
                write!(f, "the line ends within its value ({reason})")
            }
            FaultKind::Shape { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            FaultKind::Trailing => {
                write!(f, "the line goes on after its value, from byte {} on", self.at + 1)
            }
            FaultKind::TooLong { limit } => {
                write!(f, "the record is longer than {limit} bytes")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A refused record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// Its bytes in the block that was decoded, its line end included.
    pub range: Range<usize>,
    /// Why it is refused.
    pub fault: Fault,
    /// How many of [`Decoded::rows`](crate::Decoded::rows) stand before it, so that records can be
    /// numbered, whatever was refused among them.
    pub rows_before: u64,
}

/// At most so many characters of a value are shown.
const SHOWN_CHARS: usize = 60;

/// A value as a message shows it: shortened, control characters escaped.
#[must_use]
pub fn shown(value: &str) -> String {
    let mut text: String = value.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if value.chars().nth(SHOWN_CHARS).is_some() {
        text.push('…');
    }
    // `escape_debug` also escapes quotes, which are common in records and harmless here.
    text.replace("\\\"", "\"").replace("\\'", "'")
}
