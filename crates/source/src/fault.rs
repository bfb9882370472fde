//! Why a record is refused, in the words of the command line.

use arrow::datatypes::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};
use tidemill_text::{FaultKind, infer, values};

use super::Format;
use super::formats::LogLines;

/// Why a record is refused, as messages and the copies of refused records say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Fault {
    /// A parser's fault, with what can be done about it.
    pub(crate) fn of(fault: tidemill_text::Fault, of: &Whence<'_>) -> Self {
        let words = match (of.log, fault.column.as_deref()) {
            (LogLines::Described(format), Some(column)) => format.time_words(column),
            _ => None,
        };
        let reason = match (&fault.kind, words, of.other) {
            (FaultKind::WrongType { expected: DataType::Timestamp(..), value }, Some(words), _) => {
                format!("expected a time as `{words}`, found `{value}`")
            }
            (FaultKind::WrongType { expected, value }, _, Some(other)) => {
                format!("expected {} as in `{other}`, found `{value}`", values::describe(expected))
            }
            _ => fault.to_string(),
        };
        let is_json = of.format == Format::Json;
        let is_described = matches!(of.log, LogLines::Described(_));
        let hint = match &fault.kind {
            FaultKind::WrongType { expected: DataType::Timestamp(..), .. } if words.is_some() => {
                let column = fault.column.as_deref().unwrap_or_default();
                Some(format!(
                    "--log-format says how times are written; --schema '{column} TEXT' reads the \
                     column as it is; --max-bad N or N% skips such records, counts them and keeps a \
                     copy"
                ))
            }
            FaultKind::WrongType { value, .. } if is_described && value.contains(' ') => Some(
                "a line goes on where --log-format ends or has another sign: it describes all of a \
                 line; --max-bad N or N% skips such lines, counts them and keeps a copy"
                    .into(),
            ),
            FaultKind::WrongType { value, .. } => {
                let column = fault.column.as_deref().unwrap_or_default();
                Some(wrong_type_hint(column, value))
            }
            FaultKind::FieldCount { .. } if of.may_be_comment => Some(
                "if lines that begin with `#` are comments, say --comment '#' (job file: \
                 source.options, comment = \"#\")"
                    .into(),
            ),
            FaultKind::Unclosed if of.format.is_delimited() => Some(
                "if quotes are plain text here, turn quoting off: --quote '' (job file: \
                 source.options, quote = false)"
                    .into(),
            ),
            FaultKind::Shape { .. } => Some(match &fault.column {
                Some(_) => "a column has one shape in all records; leave it out of the query, or \
                            skip such records with --max-bad N or N%"
                    .into(),
                None => "a file has one object per line, or one array of them; jq -c '.[]' makes \
                         lines of arrays"
                    .into(),
            }),
            FaultKind::Trailing if is_json => {
                Some("each line holds one object and nothing else".into())
            }
            FaultKind::Ends(_) if is_json => Some(
                "an object may not span lines; jq -c . writes one per line. In the last line of a \
                 file: it is truncated"
                    .into(),
            ),
            FaultKind::NoMatch | FaultKind::Ends(_) | FaultKind::Trailing if is_described => Some(
                "--log-format describes all of a line; --max-bad N or N% skips lines that were cut \
                 off or are of another kind, counts them and keeps a copy"
                    .into(),
            ),
            _ => None,
        };
        Self { column: fault.column, reason, hint }
    }
}

/// What a record is of, as far as what to do about it depends on it.
pub(crate) struct Whence<'a> {
    pub(crate) format: Format,
    /// What the lines of an access log look like.
    pub(crate) log: &'a LogLines,
    /// Another file in which the column is of the type that is expected, if it was taken from one.
    pub(crate) other: Option<&'a str>,
    /// Whether it, or what was taken for its file's header, begins as comments do.
    pub(crate) may_be_comment: bool,
}

fn wrong_type_hint(column: &str, value: &str) -> String {
    let is = |data_type: &DataType| values::accepts(value, data_type);
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let fitting = if is(&DataType::Float64) {
        "DOUBLE"
    } else if is(&DataType::Timestamp(TimeUnit::Nanosecond, None)) {
        "TIMESTAMP"
    } else if is(&utc) {
        "TIMESTAMP WITH TIME ZONE"
    } else {
        "TEXT"
    };
    let as_null = if infer::csv::is_marker(value) {
        format!("--null '{value}' if it means null, or ")
    } else {
        String::new()
    };
    format!(
        "{as_null}--schema '{column} {fitting}' reads the column so; --max-bad N or N% skips such \
         records, counts them and keeps a copy"
    )
}
