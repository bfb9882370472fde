//! Faults of rejected records, with reasons and hints for the command line.

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use serde::{Deserialize, Serialize};
use tidemill_text::canonical_spelling::is_canonical;
use tidemill_text::{TextFaultKind, infer, quote_sql_name, sql_type_name, value_parsing};

use crate::Format;
use crate::formats::LogLineFormat;

/// The fault of a rejected record, as messages and reject files show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordFault {
    /// The column at fault, if the fault concerns one.
    pub column: Option<String>,
    /// The expected and the found value.
    pub reason: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl RecordFault {
    /// Converts a parser's fault, adding the hint for its context.
    pub(crate) fn from_text_fault(fault: tidemill_text::TextFault, of: &FaultContext<'_>) -> Self {
        let words = match (of.log_lines, fault.column.as_deref()) {
            (LogLineFormat::UserDescribed(format), Some(column)) => format.strftime_pattern(column),
            _ => None,
        };
        let reason = match (&fault.kind, words, of.type_witness) {
            (
                TextFaultKind::WrongType { expected: DataType::Timestamp(..), value },
                Some(words),
                _,
            ) => {
                format!("expected a time as `{words}`, found `{value}`")
            }
            (TextFaultKind::StringValue { expected, value }, _, Some(other)) => format!(
                "expected {} as in `{other}`, found a string `\"{value}\"`",
                value_parsing::describe_type(expected)
            ),
            (TextFaultKind::WrongType { expected, value }, _, Some(other)) => {
                format!(
                    "expected {} as in `{other}`, found `{value}`",
                    value_parsing::describe_type(expected)
                )
            }
            _ => fault.to_string(),
        };
        let reason = match of.invisible_bytes {
            Some(invisible) => format!("{reason} ({})", invisible.description()),
            None => reason,
        };
        let is_json = of.format == Format::Json;
        let place = FaultColumn::from_path(fault.column.as_deref().unwrap_or_default(), of.columns);
        let is_described = matches!(of.log_lines, LogLineFormat::UserDescribed(_));
        let is_of_fixed_type =
            of.format == Format::Syslog || of.format == Format::AccessLog && !is_described;
        let hint = match &fault.kind {
            _ if let Some(invisible) = of.invisible_bytes => Some(invisible.hint()),
            TextFaultKind::InvalidUtf8 { .. } => Some(ENCODING_HINT.into()),
            TextFaultKind::WrongType { .. } | TextFaultKind::RoundedByDouble { .. } | TextFaultKind::DoubleOutOfRange { .. }
                if is_of_fixed_type =>
            {
                Some(fixed_type_hint(of.format))
            }
            TextFaultKind::WrongType { expected: DataType::Timestamp(..), .. } if words.is_some() => {
                let column = fault.column.as_deref().unwrap_or_default();
                Some(format!(
                    "--log-format says how times are written; --schema '{column} TEXT' reads the \
                     column as it is; --max-bad N or N% skips such records, counts them and keeps a \
                     copy"
                ))
            }
            TextFaultKind::WrongType { value, .. } if is_described && value.contains(' ') => Some(
                "a line goes on where --log-format ends or has another sign: it describes all of a \
                 line; --max-bad N or N% skips such lines, counts them and keeps a copy"
                    .into(),
            ),
            TextFaultKind::WrongType { expected, value } => {
                Some(wrong_type_hint(&place, expected, value))
            }
            TextFaultKind::StringValue { expected, .. } => Some(string_value_hint(&place, expected)),
            TextFaultKind::RoundedByDouble { .. } => Some(rounded_hint(&place)),
            TextFaultKind::DoubleOutOfRange { .. } => Some(out_of_range_hint(&place)),
            TextFaultKind::LeadingNuls { .. } => Some(leading_nuls_hint()),
            TextFaultKind::FieldCount { .. } if of.may_be_comment => Some(
                "if lines that begin with `#` are comments, say --comment '#' (job file: \
                 source.options, comment = \"#\")"
                    .into(),
            ),
            TextFaultKind::FieldCount { .. } if let Some(line) = of.likely_header_line => {
                Some(likely_header_hint(line))
            }
            TextFaultKind::FieldCount { .. } if of.format.is_delimited() => {
                Some(FIELD_COUNT_HINT.into())
            }
            TextFaultKind::UnclosedQuote if of.format.is_delimited() => Some(
                "if quotes are plain text here, turn quoting off: --quote '' (job file: \
                 source.options, quote = false)"
                    .into(),
            ),
            TextFaultKind::QuotedRecords { .. } => Some(
                "if quotes are plain text here, turn quoting off: --quote '' (job file: source.options, quote = \
                 false); if the field has line ends, say --quote '\"' (quote = \"\\\"\")"
                    .into(),
            ),
            TextFaultKind::ClosedAfterBackslash => Some(
                "if `\\\"` is a quote within the field, say --escape '\\' (job file: source.options, escape = \
                 \"\\\\\"); if quotes are as they should be, say --quote '\"' (quote = \"\\\"\")"
                    .into(),
            ),
            TextFaultKind::WrongShape { .. } => Some(match &fault.column {
                Some(_) => "a column has one shape in all records; leave it out of the query, or \
                            skip such records with --max-bad N or N%"
                    .into(),
                None => "records are objects: one per line, one behind the other, or in an array; jq -c '.[]' makes \
                         lines of arrays"
                    .into(),
            }),
            TextFaultKind::TrailingBytes if is_json => {
                Some("behind an object there may be another one, a comma or the line end".into())
            }
            TextFaultKind::EndsInsideValue(_) if is_json => Some(
                "objects may span lines only where the first one of the file does; jq -c . writes one per line. In the \
                 last record of a file: it is truncated"
                    .into(),
            ),
            TextFaultKind::PatternMismatch | TextFaultKind::EndsInsideValue(_) | TextFaultKind::TrailingBytes if is_described => Some(
                "--log-format describes all of a line; --max-bad N or N% skips lines that were cut \
                 off or are of another kind, counts them and keeps a copy"
                    .into(),
            ),
            _ => None,
        };
        Self { column: fault.column, reason, hint }
    }
}

/// The context of a rejected record, as far as its hint depends on it.
pub(crate) struct FaultContext<'a> {
    pub(crate) format: Format,
    /// The source's columns.
    pub(crate) columns: &'a [FieldRef],
    /// Line layout of an access log.
    pub(crate) log_lines: &'a LogLineFormat,
    /// Another file that shows the expected type of the column, if the type came from one.
    pub(crate) type_witness: Option<&'a str>,
    /// True if the record, or the assumed header of its file, begins like a comment.
    pub(crate) may_be_comment: bool,
    /// Line of the first file that is likely to be its header, if another line was taken for it.
    pub(crate) likely_header_line: Option<u64>,
    /// Invisible bytes in the record that are seldom intended.
    pub(crate) invisible_bytes: Option<InvisibleBytes>,
}

/// The hint for text in another encoding without a byte-order mark.
pub(crate) const ENCODING_HINT: &str = "text is read as UTF-8; if it is in another encoding, such as WINDOWS-1252, convert it: iconv -f WINDOWS-1252 -t \
     UTF-8 FILE, or read it so: --source-exec iconv --source-exec -f --source-exec WINDOWS-1252 (job file: \
     source.exec = [\"iconv\", \"-f\", \"WINDOWS-1252\"])";

/// Bytes of a malformed record that a terminal does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvisibleBytes {
    /// The byte 0x1A, which ends a text file in DOS.
    DosEndOfFile,
    /// A byte-order mark within a file, left over when files were concatenated.
    ByteOrderMark,
}

impl InvisibleBytes {
    /// Finds the first such bytes of a record.
    pub(crate) fn find(record: &[u8]) -> Option<Self> {
        if record.trim_ascii().ends_with(b"\x1a") {
            return Some(InvisibleBytes::DosEndOfFile);
        }
        memchr::memmem::find(record, b"\xef\xbb\xbf").map(|_| InvisibleBytes::ByteOrderMark)
    }

    fn description(self) -> &'static str {
        match self {
            InvisibleBytes::DosEndOfFile => {
                "the record ends with the byte 0x1A, which ends a file in DOS"
            }
            InvisibleBytes::ByteOrderMark => {
                "the record has a byte-order mark, which belongs at the beginning of a file"
            }
        }
    }

    fn hint(self) -> String {
        let (program, script) = match self {
            InvisibleBytes::DosEndOfFile => ("tr -d", r"\032"),
            InvisibleBytes::ByteOrderMark => ("sed", r"s/\xef\xbb\xbf//g"),
        };
        let program: String =
            program.split(' ').map(|word| format!("--source-exec {word} ")).collect();
        format!("read the file without it: {program}--source-exec '{script}'; {SKIP_RECORDS_HINT}")
    }
}

/// The column at fault.
struct FaultColumn {
    /// The column's name as SQL spells it.
    column: String,
    is_nested: bool,
}

impl FaultColumn {
    /// Finds the column of a path such as `user.ids[3]`; column names may contain dots and brackets.
    fn from_path(path: &str, columns: &[FieldRef]) -> Self {
        let begins_with = |name: &&str| {
            path.strip_prefix(*name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let names = columns.iter().map(|field| field.name().as_str());
        let column = names.filter(begins_with).max_by_key(|name| name.len()).unwrap_or(path);
        Self { column: quote_sql_name(column).to_string(), is_nested: column.len() < path.len() }
    }
}

/// Returns the hint for a file whose header is likely to be line `line`.
pub(crate) fn likely_header_hint(line: u64) -> String {
    format!(
        "if line {line} is the header, below titles, say --header-row {line} (job file: source.options, \
         header_row = {line})"
    )
}

/// The hint for a record that has another number of fields than the header.
const FIELD_COUNT_HINT: &str = "--max-bad N or N% skips such records, counts them and keeps a copy; if all records \
     have that many fields, the header has a name too few or too many: --skip-lines 1 --header=false reads the \
     records without it, and --schema names their columns (job file: source.options, skip_lines = 1, header = false)";

/// Returns the hint for a time without a zone in an inferred column of a zone.
fn zoneless_time_hint(place: &FaultColumn, expected: &DataType) -> String {
    let column = &place.column;
    let as_utc = match place.is_nested {
        true => String::new(),
        false => {
            format!("--schema '{column} {}' reads such times as UTC, ", sql_type_name(expected))
        }
    };
    format!(
        "{as_utc}--schema '{column} TEXT' keeps the column as it is written; {SKIP_RECORDS_HINT}"
    )
}

/// The end of the hint for a malformed record, whatever its fault.
const SKIP_RECORDS_HINT: &str =
    "--max-bad N or N% skips such records, counts them and keeps a copy";

/// Returns the hint for a record that begins with NUL bytes.
pub(crate) fn leading_nuls_hint() -> String {
    format!("{}; {SKIP_RECORDS_HINT}", nul_hole_hint())
}

/// Returns the hint for a file whose header, or every record, begins with NUL bytes.
pub(crate) fn nul_hole_hint() -> String {
    "a power failure leaves such a hole, within records or between them, and so does a log that is truncated while it is \
     written (copytruncate); --source-exec tr --source-exec -d --source-exec '\\000' reads a file without NUL bytes"
        .into()
}

/// Returns the hint for an integer that an inferred DOUBLE would round.
fn rounded_hint(place: &FaultColumn) -> String {
    let column = &place.column;
    if place.is_nested {
        return format!(
            "--schema '{column} TEXT' reads the column as it is written; {SKIP_RECORDS_HINT}"
        );
    }
    format!(
        "--schema '{column} DECIMAL(38, 6)' keeps all digits of numbers with up to six behind the point, --schema \
         '{column} TEXT' those of any, --schema '{column} DOUBLE' rounds them; {SKIP_RECORDS_HINT}"
    )
}

/// Returns the hint for a number beyond the range of an inferred DOUBLE.
fn out_of_range_hint(place: &FaultColumn) -> String {
    let column = &place.column;
    let as_double = match place.is_nested {
        true => String::new(),
        false => format!(", --schema '{column} DOUBLE' makes it infinite or zero"),
    };
    format!(
        "--schema '{column} TEXT' reads the column as it is written{as_double}; {SKIP_RECORDS_HINT}"
    )
}

/// Returns the hint for a JSON string that holds a number or a Boolean in a column without strings in its
/// sample.
fn string_value_hint(place: &FaultColumn, expected: &DataType) -> String {
    let column = &place.column;
    if place.is_nested {
        return format!(
            "--schema '{column} TEXT' reads the values of the column as they are written; {SKIP_RECORDS_HINT}"
        );
    }
    let data_type = sql_type_name(expected);
    format!(
        "--schema '{column} TEXT' keeps such values as they are written, --schema '{column} {data_type}' reads \
         strings as values of that type, too; {SKIP_RECORDS_HINT}"
    )
}

/// Returns the hint for a value in a column whose type the format fixes.
fn fixed_type_hint(format: Format) -> String {
    let described = match format {
        Format::AccessLog => {
            "--log-format says how lines are written, if they are written otherwise; "
        }
        _ => "",
    };
    format!("{described}--mismatch null reads such values as null; {SKIP_RECORDS_HINT}")
}

fn wrong_type_hint(place: &FaultColumn, expected: &DataType, value: &str) -> String {
    let column = &place.column;
    let is = |data_type: &DataType| {
        value_parsing::can_parse_as(value, data_type) && is_canonical(value.as_bytes(), data_type)
    };
    if value_parsing::can_parse_as(value, expected) && !is_canonical(value.as_bytes(), expected) {
        let kind = match expected {
            DataType::Timestamp(_, _) => return zoneless_time_hint(place, expected),
            DataType::Time64(_) => "times of day",
            _ => "numbers",
        };
        let name = sql_type_name(expected);
        return format!(
            "--schema '{column} TEXT' keeps such values as they are written, --schema '{column} \
             {name}' reads them as {kind}; {SKIP_RECORDS_HINT}"
        );
    }
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    if place.is_nested {
        return string_value_hint(place, expected);
    }
    // The type must also hold the values before this one.
    let fitting = if expected.is_numeric() && is(&DataType::Float64) {
        "DOUBLE"
    } else if expected.is_temporal() && is(&DataType::Timestamp(TimeUnit::Nanosecond, None)) {
        "TIMESTAMP"
    } else if expected.is_temporal() && is(&utc) {
        "TIMESTAMP WITH TIME ZONE"
    } else {
        "TEXT"
    };
    let as_null = if infer::csv::is_null_marker(value) {
        format!("--null '{value}' if it means null, or ")
    } else {
        String::new()
    };
    format!("{as_null}--schema '{column} {fitting}' reads the column so; {SKIP_RECORDS_HINT}")
}
