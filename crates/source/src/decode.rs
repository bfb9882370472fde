//! Bytes of whole records to record batches: the one place where parsers plug in.
//!
//! A [`Decode`] of the crate `tidemill_text` is handed blocks of whole records; it gives the
//! good ones as batches and each bad one with its place and reason. What it says of a bad one
//! is put here into the words of the command line.

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use tidemill_base::error::{Error, Result};
use tidemill_text::access_log::{self, AccessLogDecoder};
use tidemill_text::csv::CsvDecoder;
use tidemill_text::json::JsonDecoder;
use tidemill_text::lines::{self, LinesDecoder};
use tidemill_text::logfmt::LogfmtDecoder;
use tidemill_text::syslog::{self, Framing, SyslogDecoder};
use tidemill_text::{Decode, FaultKind, Options, values};

use super::format::{Dialect, Format};

/// Why a record is refused, as messages and the copies of refused records say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
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
    pub(crate) fn of(fault: tidemill_text::Fault, format: Format, other: Option<&str>) -> Self {
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
            FaultKind::Unclosed if format.is_delimited() => Some(
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

/// A decoder of the columns, each a field's position in a record and what it becomes, for a file
/// that was written at `written_seconds` since 1970, if that is known.
///
/// # Errors
/// [`Error::Internal`] for a column that was planned and that text cannot be read as.
pub(crate) fn decoder(
    format: Format,
    dialect: &Dialect,
    fields: usize,
    columns: Vec<(usize, FieldRef)>,
    written_seconds: Option<i64>,
    framing: Framing,
    options: Options,
) -> Result<Box<dyn Decode>> {
    let refused = |field: FieldRef| {
        Error::Internal(format!("column `{}` cannot be {}", field.name(), field.data_type()))
    };
    Ok(match format {
        Format::Csv | Format::Tsv => {
            Box::new(CsvDecoder::new(dialect, fields, columns, options).map_err(refused)?)
        }
        Format::Json => {
            let columns = columns.into_iter().map(|(_, field)| field).collect();
            Box::new(JsonDecoder::new(columns, &dialect.nulls, options).map_err(refused)?)
        }
        Format::AccessLog => Box::new(AccessLogDecoder::new(columns, options).map_err(refused)?),
        Format::Syslog => {
            // A date without a year is of the time when the file was last written to.
            let read = syslog::Format::default();
            let read = syslog::Format {
                framing,
                reference_seconds: written_seconds.unwrap_or(read.reference_seconds),
                ..read
            };
            Box::new(SyslogDecoder::new(columns, &read, options).map_err(refused)?)
        }
        Format::Logfmt => {
            let columns = columns.into_iter().map(|(_, field)| field).collect();
            Box::new(LogfmtDecoder::new(columns, options).map_err(refused)?)
        }
        Format::Lines => {
            let columns = columns.into_iter().map(|(_, field)| field).collect();
            Box::new(LinesDecoder::new(columns, options).map_err(refused)?)
        }
        Format::Parquet
        | Format::Rowfile
        | Format::Arrow
        | Format::Avro
        | Format::Memory
        | Format::Registered(_) => {
            return Err(Error::Internal(format!("{format} is not text")));
        }
    })
}

/// The columns of a format that has the same ones always.
pub(crate) fn fixed_columns(format: Format) -> Option<Vec<FieldRef>> {
    match format {
        Format::AccessLog => Some(access_log::columns()),
        Format::Syslog => Some(syslog::columns()),
        Format::Lines => Some(lines::columns()),
        _ => None,
    }
}
