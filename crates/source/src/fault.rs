//! Why a record is refused, in the words of the command line.

use arrow::datatypes::{DataType, TimeUnit};
use tidemill_text::{FaultKind, values};

/// Why a record is refused, as messages and the copies of refused records say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Fault {
    /// A parser's fault, with what can be done about it; and another file in which the column is
    /// of the type that is expected, if it was taken from one.
    pub(crate) fn of(fault: tidemill_text::Fault, is_delimited: bool, other: Option<&str>) -> Self {
        let reason = match (&fault.kind, other) {
            (FaultKind::WrongType { expected, value }, Some(other)) => {
                format!("expected {} as in `{other}`, found `{value}`", values::describe(expected))
            }
            _ => fault.to_string(),
        };
        let hint = match &fault.kind {
            FaultKind::WrongType { value, .. } => {
                let column = fault.column.as_deref().unwrap_or_default();
                Some(wrong_type_hint(column, value))
            }
            FaultKind::Unclosed if is_delimited => Some(
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
            FaultKind::Trailing => Some("each line holds one object and nothing else".into()),
            FaultKind::Ends(_) => Some(
                "an object may not span lines; jq -c . writes one per line. In the last line of a \
                 file: it is truncated"
                    .into(),
            ),
            _ => None,
        };
        Self { column: fault.column, reason, hint }
    }
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
    // What is a value of another type hardly stands for null.
    let short = value.len() <= 20 && !value.contains('\'');
    let as_null = if short && fitting == "TEXT" && !is(&DataType::Boolean) {
        format!("--null '{value}' if it means null, or ")
    } else {
        String::new()
    };
    format!(
        "{as_null}--schema '{column} {fitting}' reads the column so; --max-bad N or N% skips such \
         records, counts them and keeps a copy"
    )
}
