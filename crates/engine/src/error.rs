//! What can go wrong, told apart by who can mend it.
//!
//! Every variant carries what its message needs as fields, so that the command line and
//! Python can choose an exit status or an exception class without reading text. Messages
//! are lower case, name the object in backticks and end with a `hint:` line where there is
//! something to do.

use std::fmt;
use std::path::Path;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose mistake an [`Error`] is, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Wrong usage, SQL or job file: exit status 2.
    Usage,
    /// The data or the machine: exit status 1.
    Failed,
    /// Stopped by the user: exit status 130.
    Interrupted,
    /// A broken invariant of ours: exit status 1, and worth a report.
    Internal,
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be carried out as it is worded.
    #[error("{message}{}", Hint(hint))]
    Usage {
        /// What is wrong, naming the object in backticks.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// No file where one was named.
    #[error("no such file or folder: `{path}`{}", Hint(hint))]
    NotFound {
        /// The path or pattern as the user wrote it.
        path: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The operating system refused.
    #[error("cannot {action} `{path}`: {source}{}", SpillHint(action))]
    Io {
        /// The attempted action, as an infinitive: `read`, `create`.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A server refused, or did not answer.
    #[error("cannot {action} `{url}`{}: {reason}{}", At(offset), Hint(hint))]
    Remote {
        /// The attempted action, as an infinitive: `read`, `list`, `write`.
        action: &'static str,
        /// The object, without what may be secret in its URL.
        url: String,
        /// Where in the object, in bytes, if it was in the middle of it.
        offset: Option<u64>,
        /// The answer's HTTP status, if there was an answer.
        status: Option<u16>,
        /// What the server or the network said, and after how many attempts.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A program of the user's failed.
    #[error("`{program}` {reason}{}{}", On(file), Said(said))]
    Program {
        /// Its name.
        program: String,
        /// The file that it worked on; empty if it was given none.
        file: String,
        /// How it ended: `ended with status 3`.
        reason: String,
        /// The last of what it wrote to standard error.
        said: String,
    },
    /// A reader or writer that the program around has registered failed.
    #[error("cannot {action} `{path}` as `{format}`: {source}")]
    Format {
        /// The format.
        format: String,
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Its error, as it gave it.
        source: crate::formats::Failure,
    },
    /// A rowfile that is damaged, or that this release does not read.
    #[error("{reason}{}", Hint(hint))]
    Rowfile {
        /// The file.
        path: String,
        /// What is wrong, and where, with the file's name.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Input bytes that are not what their format demands, beyond single records.
    #[error("`{path}` is damaged{}: {}{}", At(offset), Brief(reason), Hint(hint))]
    Corrupt {
        /// The file.
        path: String,
        /// Where in the file, in bytes, if known.
        offset: Option<u64>,
        /// What was expected and what was found.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Files of one source that do not make one table.
    #[error("`{path}` does not go with `{other}`: {reason}{}", Hint(hint))]
    Differ {
        /// The file at fault: the later one.
        path: String,
        /// The file that it differs from.
        other: String,
        /// In what it differs, naming the column.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// More malformed records than `--max-bad` allows.
    #[error("{}", TooManyBad { count: *.count, allowed, first })]
    BadRecords {
        /// How many were found before the run stopped.
        count: u64,
        /// The limit as the user would write it: `0`, `100`, `1%`.
        allowed: String,
        /// The first few.
        first: Vec<BadRecord>,
    },
    /// A file was replaced, shortened or removed between planning and reading.
    #[error(
        "`{path}` changed while it was read: {reason}\nhint: run again once nothing writes to it"
    )]
    Changed {
        /// The file.
        path: String,
        /// What differs.
        reason: String,
    },
    /// An output exists and may not be replaced.
    #[error("`{path}` exists already{}\nhint: --overwrite replaces it", AndMore(more))]
    Exists {
        /// The output, or the first of several.
        path: String,
        /// How many others exist too.
        more: usize,
    },
    /// A commit stopped half way and could not be taken back at once.
    #[error(
        "the output in `{path}` is committed in part: {source}\nhint: the next run that writes there finishes the commit or takes it back"
    )]
    Unfinished {
        /// The destination.
        path: String,
        /// What stopped it.
        source: Box<Error>,
    },
    /// Another live run writes the same output.
    #[error("another run ({run}) is writing to `{path}`\nhint: wait for it, or write elsewhere")]
    Busy {
        /// The destination both want.
        path: String,
        /// The other run's identifier.
        run: String,
    },
    /// Some of many files were not converted; the others were.
    #[error("{}", crate::convert::unconverted(*.failed, *.untried, *.files, first))]
    Unconverted {
        /// How many were not.
        failed: u64,
        /// How many were not tried after too many failures.
        untried: u64,
        /// How many there are.
        files: u64,
        /// Why the first few were not.
        first: Vec<String>,
    },
    /// A result does not fit its type.
    #[error("{message}{}", Hint(hint))]
    Overflow {
        /// What overflowed.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A value is none of the type that it is cast to.
    #[error("`{value}` does not fit {to}{}{}", InCast(cast), Hint(hint))]
    Cast {
        /// The value as text.
        value: String,
        /// The type in SQL's words.
        to: String,
        /// The cast as the SQL has it, where it is known which.
        cast: Option<String>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The memory budget is too small even with spilling.
    #[error("{message}{}", Hint(hint))]
    Memory {
        /// What did not fit.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// DataFusion reported a failure while it ran a plan.
    #[error("{0}")]
    Query(String),
    /// The user pressed Ctrl-C, or a supervisor asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The reader of standard output has gone: a quiet end, not a failure.
    #[error("the reader of the output has closed it")]
    ClosedPipe,
    /// A broken invariant of the engine.
    #[error(
        "internal error: {0}\nhint: this is a fault of tidemill; please report it with the command that led here"
    )]
    Internal(String),
}

/// One malformed record: where it is and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// The file's path or URL.
    pub path: String,
    /// Line number, the first line being 1; none in formats that have no lines.
    pub line: Option<u64>,
    /// The number of the row, the first being 1, in formats that have no lines.
    pub row: Option<u64>,
    /// Byte offset of the record's first byte in the (uncompressed) file. Of a row: from where on
    /// rows are numbered, which is not the file's beginning where nothing tells how many are before.
    pub offset: u64,
    /// The column, where one is at fault.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.row, self.line) {
            (Some(row), _) if self.offset == 0 => write!(f, "{}: row {row}", self.path)?,
            (Some(row), _) => write!(f, "{}: row {row} from byte {} on", self.path, self.offset)?,
            (None, line) => {
                write!(f, "{}: line {} (byte {})", self.path, line.unwrap_or(0), self.offset)?;
            }
        }
        if let Some(column) = &self.column {
            write!(f, ", column `{column}`")?;
        }
        write!(f, ": {}", self.reason)
    }
}

struct Hint<'a>(&'a Option<String>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

struct InCast<'a>(&'a Option<String>);

impl fmt::Display for InCast<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cast) => write!(f, ", in `{cast}`"),
            None => Ok(()),
        }
    }
}

struct SpillHint<'a>(&'a str);

impl fmt::Display for SpillHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "spill to" => f.write_str(
                "\nhint: TMPDIR names the folder that takes what does not fit memory; --memory \
                 says how much fits",
            ),
            _ => Ok(()),
        }
    }
}

struct On<'a>(&'a str);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            file => write!(f, ", working on `{file}`,"),
        }
    }
}

struct Said<'a>(&'a str);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str(" and said nothing on standard error"),
            said => write!(f, " and said:\n{said}"),
        }
    }
}

struct At<'a>(&'a Option<u64>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// What a decoder says, without its own structures and the layers that the message came through.
struct Brief<'a>(&'a str);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LAYERS: [&str; 4] =
            ["External: ", "Arrow: ", "Parquet argument error: ", "Parquet error: "];
        let line = self.0.lines().next().unwrap_or_default();
        let line = line.split(" { ").next().unwrap_or_default();
        let text = LAYERS.iter().fold(line.to_owned(), |text, layer| text.replace(layer, ""));
        let text = text.trim_end_matches('.');
        f.write_str(text)?;
        let is_cut = line.len() < self.0.len() && text.contains('(');
        f.write_str(if is_cut { ")" } else { "" })
    }
}

struct AndMore<'a>(&'a usize);

impl fmt::Display for AndMore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => write!(f, ", and one other file of this output"),
            n => write!(f, ", and {n} other files of this output"),
        }
    }
}

struct TooManyBad<'a> {
    count: u64,
    allowed: &'a str,
    first: &'a [BadRecord],
}

impl fmt::Display for TooManyBad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.count == 1 { "" } else { "s" };
        write!(f, "{} malformed record{s}, {} allowed:", self.count, self.allowed)?;
        for record in self.first {
            write!(f, "\n  {record}")?;
        }
        let hint = self.first.iter().find_map(|record| record.hint.as_deref());
        let hint =
            hint.unwrap_or("--max-bad N or N% skips such records, counts them and keeps a copy");
        write!(f, "\nhint: {hint}")
    }
}

impl Error {
    /// A mistake in the request, without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: None }
    }

    /// A mistake in the request, with what to do about it.
    pub fn usage_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// The operating system's refusal to do `action` to `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        // Where a file is wanted, a URL may have been given, and what is secret in it.
        let path = crate::remote::location::shown(&path.as_ref().display().to_string());
        // One of ours that came through `Read` or `Write`.
        let source = match source.downcast::<Error>() {
            Ok(ours) => return ours,
            Err(source) => source,
        };
        match source.kind() {
            std::io::ErrorKind::BrokenPipe => Error::ClosedPipe,
            std::io::ErrorKind::NotFound if action == "read" => {
                Error::NotFound { path, hint: None }
            }
            _ => Error::Io { action, path, source },
        }
    }

    /// Whose mistake it is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Usage { .. } => Kind::Usage,
            Error::Interrupted => Kind::Interrupted,
            Error::Internal(_) => Kind::Internal,
            Error::Unfinished { source, .. } if matches!(**source, Error::Interrupted) => {
                Kind::Interrupted
            }
            _ => Kind::Failed,
        }
    }
}

impl Error {
    /// The same again, for whoever else hears of it.
    fn copy(&self) -> Self {
        match self {
            Error::Usage { message, hint } => {
                Error::Usage { message: message.clone(), hint: hint.clone() }
            }
            Error::NotFound { path, hint } => {
                Error::NotFound { path: path.clone(), hint: hint.clone() }
            }
            Error::Io { action, path, source } => Error::Io {
                action,
                path: path.clone(),
                source: std::io::Error::new(source.kind(), source.to_string()),
            },
            Error::Remote { action, url, offset, status, reason, hint } => Error::Remote {
                action,
                url: url.clone(),
                offset: *offset,
                status: *status,
                reason: reason.clone(),
                hint: hint.clone(),
            },
            Error::Rowfile { path, reason, hint } => {
                Error::Rowfile { path: path.clone(), reason: reason.clone(), hint: hint.clone() }
            }
            Error::Corrupt { path, offset, reason, hint } => Error::Corrupt {
                path: path.clone(),
                offset: *offset,
                reason: reason.clone(),
                hint: hint.clone(),
            },
            Error::Differ { path, other, reason, hint } => Error::Differ {
                path: path.clone(),
                other: other.clone(),
                reason: reason.clone(),
                hint: hint.clone(),
            },
            Error::BadRecords { count, allowed, first } => {
                Error::BadRecords { count: *count, allowed: allowed.clone(), first: first.clone() }
            }
            Error::Changed { path, reason } => {
                Error::Changed { path: path.clone(), reason: reason.clone() }
            }
            Error::Program { program, file, reason, said } => Error::Program {
                program: program.clone(),
                file: file.clone(),
                reason: reason.clone(),
                said: said.clone(),
            },
            Error::Format { format, action, path, source } => Error::Format {
                format: format.clone(),
                action,
                path: path.clone(),
                source: source.to_string().into(),
            },
            Error::Exists { path, more } => Error::Exists { path: path.clone(), more: *more },
            Error::Unfinished { path, source } => {
                Error::Unfinished { path: path.clone(), source: Box::new(source.copy()) }
            }
            Error::Busy { path, run } => Error::Busy { path: path.clone(), run: run.clone() },
            Error::Unconverted { failed, untried, files, first } => Error::Unconverted {
                failed: *failed,
                untried: *untried,
                files: *files,
                first: first.clone(),
            },
            Error::Overflow { message, hint } => {
                Error::Overflow { message: message.clone(), hint: hint.clone() }
            }
            Error::Cast { value, to, cast, hint } => Error::Cast {
                value: value.clone(),
                to: to.clone(),
                cast: cast.clone(),
                hint: hint.clone(),
            },
            Error::Memory { message, hint } => {
                Error::Memory { message: message.clone(), hint: hint.clone() }
            }
            Error::Query(message) => Error::Query(message.clone()),
            Error::Interrupted => Error::Interrupted,
            Error::ClosedPipe => Error::ClosedPipe,
            Error::Internal(message) => Error::Internal(message.clone()),
        }
    }
}

/// A message without the passwords and signatures of URLs that it names: an error may repeat whatever
/// was asked. What shows one to a person or keeps it calls this.
pub fn without_secrets(message: &str) -> String {
    crate::jobs::redact::message(message)
}

/// What `run` returns; a panic inside it as [`Error::Internal`], so that whoever waits for the
/// thread learns of it.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    // What `run` changed is not looked at again after a panic: the run fails.
    crate::panics::catch(run).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// A panic's message as an error.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::Internal(format!("a worker panicked: {message}"))
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError;
        match error {
            ArrowError::ExternalError(source) => {
                datafusion::error::DataFusionError::External(source).into()
            }
            ArrowError::IoError(_, source) => Error::io("read or write", "a stream", source),
            ArrowError::DivideByZero => Error::Query("division by zero".into()),
            ArrowError::CastError(message) => cast_error(&message),
            ArrowError::ComputeError(message)
            | ArrowError::InvalidArgumentError(message)
            | ArrowError::ArithmeticOverflow(message) => {
                in_our_words(&message).unwrap_or(Error::Query(message))
            }
            ArrowError::ParseError(message) => {
                let time = message.strip_prefix("Error parsing timestamp from '");
                match time.and_then(|rest| rest.split_once("': ")) {
                    Some((text, _)) => Error::Cast {
                        value: text.to_owned(),
                        to: "TIMESTAMP".to_owned(),
                        cast: None,
                        hint: Some("a time is written as 2026-11-20T09:19:00".to_owned()),
                    },
                    None => cast_error(&message),
                }
            }
            other => Error::Query(other.to_string()),
        }
    }
}

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::common::SchemaError;
        use datafusion::error::DataFusionError as Df;
        match error {
            Df::External(source) => match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => match source.downcast::<Df>() {
                    Ok(inner) => (*inner).into(),
                    Err(source) => Error::Query(source.to_string()),
                },
            },
            Df::ArrowError(source, _) => (*source).into(),
            Df::Context(_, inner) | Df::Diagnostic(_, inner) => (*inner).into(),
            Df::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
                Ok(inner) => inner.into(),
                // Several readers of one stream hear of the same end.
                Err(shared) => told(&shared),
            },
            Df::Collection(mut errors) if !errors.is_empty() => errors.swap_remove(0).into(),
            Df::IoError(source) => Error::io("read or write", "a stream", source),
            Df::SQL(parser, _) => parser_error(&parser.to_string()),
            Df::SchemaError(schema_error, _) => match *schema_error {
                SchemaError::FieldNotFound { field, valid_fields } => {
                    unknown_column(&field, &valid_fields)
                }
                SchemaError::AmbiguousReference { field } => Error::usage_hint(
                    format!("column `{}` is in more than one source", field.name()),
                    format!("say which: `source.{}`", field.name()),
                ),
                other => Error::usage(other.to_string()),
            },
            Df::Plan(message) if message.starts_with(UNKNOWN_FUNCTION) => {
                let rest = &message[UNKNOWN_FUNCTION.len()..];
                crate::unknown_functions::refused(rest.split('\'').next().unwrap_or_default())
            }
            Df::Plan(message) | Df::NotImplemented(message) | Df::Configuration(message) => {
                plan_error(&message)
            }
            Df::ResourcesExhausted(message) => {
                crate::pool::in_message(&message).unwrap_or_else(|| Error::Memory {
                    message,
                    hint: Some("give --memory more".into()),
                })
            }
            Df::Execution(message) if message.contains("Cannot access field at argument") => {
                plan_error(&message)
            }
            Df::Execution(message) => cast_error(&message),
            Df::Internal(message) if REFUSALS.iter().any(|part| message.contains(part)) => {
                plan_error(&message)
            }
            Df::Internal(message) => in_our_words(&message).unwrap_or(Error::Internal(message)),
            other => Error::Query(other.strip_backtrace()),
        }
    }
}

/// Parts of messages, and what is said in the place of these.
const OTHER_WORDS: [(&str, &str, &str); 13] = [
    (
        "There is only support Literal types for field",
        "the arguments of a window function behind the first are literals",
        "coalesce(lag(x) OVER (…), y) takes what stands in for a missing row from a column",
    ),
    (
        "Aggregate ORDER BY is not implemented for window functions",
        "an aggregate over a window takes no ORDER BY in its own brackets",
        "OVER (ORDER BY …) orders the rows of its frame",
    ),
    (
        "Invalid window frame: start bound",
        "a window's frame ends before it begins",
        "the far end comes first: BETWEEN 3 PRECEDING AND 1 PRECEDING",
    ),
    (
        "frame offsets for RANGE must be",
        "an offset of RANGE is a literal number of zero and more, or an interval",
        "RANGE 5 PRECEDING, RANGE INTERVAL '1 hour' PRECEDING",
    ),
    (
        "frame offsets for ROWS / GROUPS must be",
        "an offset of ROWS or GROUPS is a whole number of zero and more",
        "ROWS 5 PRECEDING; UNBOUNDED PRECEDING reaches all",
    ),
    (
        "array_resize: failed to convert size",
        "`array_resize` takes a size of zero and more",
        "array_slice(list, 1, n) takes the first n",
    ),
    (
        "cannot take square root of a negative number",
        "`sqrt` takes numbers of zero and more",
        "CASE WHEN x >= 0 THEN sqrt(x) END leaves the others out",
    ),
    (
        "not yet implemented for GROUPING aggregate",
        "`grouping` is of GROUP BY ROLLUP, CUBE and GROUPING SETS, and takes no OVER",
        "it stands in the select list beside the groups",
    ),
    (
        "(DISTINCT) aggregations are not available",
        "this aggregate takes no DISTINCT",
        "aggregate a subquery with SELECT DISTINCT",
    ),
    (
        "Date arithmetic overflow: ",
        "a date moved by an interval is beyond what DATE holds",
        "a TIMESTAMP reaches the year 294246",
    ),
    ("Unsupported interval argument", "an interval is a text with its unit", "INTERVAL '3 days'"),
    (
        "Unsupported CAST from Struct(",
        "records with other fields do not meet",
        "give both the same fields, with NULL where there is none",
    ),
    (
        "nth_value not supported for n: 0",
        "`nth_value` counts from 1",
        "first_value(x) is nth_value(x, 1)",
    ),
];

/// What others say, where it is known what is to be said about it.
fn in_our_words(message: &str) -> Option<Error> {
    if let Some((_, ours, hint)) = OTHER_WORDS.iter().find(|(part, _, _)| message.contains(part)) {
        return Some(Error::usage_hint(*ours, *hint));
    }
    if let Some(operation) = message.strip_prefix("Overflow happened on: ") {
        let message = format!("`{operation}` does not fit its type");
        return Some(Error::Overflow { message, hint: None });
    }
    for (too, most) in [
        (" is too large to store in a Decimal", "Max"),
        (" is too small to store in a Decimal", "Min"),
    ] {
        let Some((value, rest)) = message.split_once(too) else { continue };
        let precision = rest.split_once("precision ").map_or(rest, |(_, rest)| rest);
        let (precision, limit) = precision.split_once(&format!(". {most} is "))?;
        let value = value.rsplit(' ').next().unwrap_or(value);
        return Some(Error::Overflow {
            message: format!("`{value}` does not fit a DECIMAL of {precision} digits"),
            hint: Some(format!(
                "that ends at {limit}; TRY_CAST(x AS DECIMAL({precision}, …)) gives NULL for what \
                 is beyond"
            )),
        });
    }
    if message.starts_with("Regular expression did not compile") {
        let fault = message.lines().find_map(|line| {
            let line =
                line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '~' | ')'));
            line.strip_prefix("error: ")
        });
        let fault = fault.map_or_else(String::new, |fault| format!(": {fault}"));
        return Some(Error::usage(format!("a regular expression is not understood{fault}")));
    }
    None
}

/// What [`From`] makes of an error that others hold, too: the same, whoever comes first.
fn told(error: &datafusion::error::DataFusionError) -> Error {
    use arrow::error::ArrowError;
    use datafusion::error::DataFusionError as Df;
    fn external(source: &(dyn std::error::Error + 'static)) -> Error {
        if let Some(ours) = source.downcast_ref::<Error>() {
            return ours.copy();
        }
        match source.downcast_ref::<Df>() {
            Some(inner) => told(inner),
            None => Error::Query(source.to_string()),
        }
    }
    match error {
        Df::External(source) => external(source.as_ref()),
        Df::ArrowError(source, _) => match source.as_ref() {
            ArrowError::ExternalError(source) => external(source.as_ref()),
            ArrowError::DivideByZero => ArrowError::DivideByZero.into(),
            ArrowError::CastError(message) => ArrowError::CastError(message.clone()).into(),
            ArrowError::ComputeError(message)
            | ArrowError::InvalidArgumentError(message)
            | ArrowError::ArithmeticOverflow(message) => {
                ArrowError::ArithmeticOverflow(message.clone()).into()
            }
            ArrowError::ParseError(message) => ArrowError::ParseError(message.clone()).into(),
            other => Error::Query(other.to_string()),
        },
        Df::Context(_, inner) | Df::Diagnostic(_, inner) => told(inner),
        Df::Shared(inner) => told(inner),
        Df::Collection(errors) if !errors.is_empty() => told(&errors[0]),
        Df::Plan(message) => Df::Plan(message.clone()).into(),
        Df::NotImplemented(message) => Df::NotImplemented(message.clone()).into(),
        Df::Configuration(message) => Df::Configuration(message.clone()).into(),
        Df::ResourcesExhausted(message) => Df::ResourcesExhausted(message.clone()).into(),
        Df::Execution(message) => Df::Execution(message.clone()).into(),
        Df::Internal(message) => Df::Internal(message.clone()).into(),
        other => Error::Query(other.strip_backtrace()),
    }
}

/// What the planner calls faults of its own, and is a mistake in the query.
const REFUSALS: [&str; 4] = [
    "failed to match any signature",
    "Failed to coerce types",
    "Cannot run range queries on datatype",
    "unnest on struct can only be applied",
];

const UNKNOWN_FUNCTION: &str = "Invalid function '";

const NO_SIGNATURE: &str = "No function matches the given name and argument types '";

/// What to do about arguments of the wrong `types`.
fn cast_hint(types: &str) -> &'static str {
    if types.contains("TEXT") {
        "CAST(x AS DOUBLE) converts a column; one of numbers is TEXT if it holds other text, and \
         --null says which text means null"
    } else {
        "CAST(x AS TYPE) converts an argument"
    }
}

/// DataFusion's complaint about a function's arguments, which lists its own attempts.
fn no_signature(message: &str) -> Error {
    let rest = message.split(NO_SIGNATURE).nth(1).unwrap_or_default();
    let call = in_sql_words(rest.split('\'').next().unwrap_or_default());
    Error::usage_hint(format!("there is no `{call}`"), cast_hint(&call))
}

/// What is said of a column that there is not, among those that there are.
fn unknown_column(
    field: &datafusion::common::Column,
    valid: &[datafusion::common::Column],
) -> Error {
    let names: Vec<&str> = valid.iter().map(|field| field.name()).collect();
    if let Some(source) = &field.relation {
        let mut sources: Vec<&str> =
            valid.iter().filter_map(|field| Some(field.relation.as_ref()?.table())).collect();
        sources.dedup();
        let source = source.table();
        let is_none = !sources.is_empty() && !sources.contains(&source);
        // A field of a column may be meant.
        if is_none && crate::suggest::nearest(source, names.iter().copied()).is_none() {
            let meant = crate::suggest::nearest(source, sources.iter().copied());
            let hint = match meant {
                Some(meant) => format!("did you mean `{meant}.{}`?", field.name()),
                None if sources.len() > 1 => {
                    let sources: Vec<String> =
                        sources.iter().map(|source| format!("`{source}`")).collect();
                    format!("the sources are {}", sources.join(", "))
                }
                None if sources[0].chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                    format!("the source is `{}`: {}.{}", sources[0], sources[0], field.name())
                }
                None => {
                    format!("a source is named where it is read: FROM '{}' AS {source}", sources[0])
                }
            };
            return Error::usage_hint(
                format!("unknown source `{source}` in `{source}.{}`", field.name()),
                hint,
            );
        }
    }
    let message = crate::suggest::unknown("column", field.name(), &names);
    match names.as_slice() {
        ["line"] => Error::usage_hint(
            message,
            "the source is read as lines of text; --source-format says what it \
             is: access-log, syslog, logfmt, json, csv, …",
        ),
        // A file of other separators has one column.
        [one] => match [';', '\t', '|'].into_iter().find(|separator| one.contains(*separator)) {
            Some(separator) => {
                let written = if separator == '\t' { "\\t".into() } else { separator.to_string() };
                Error::usage_hint(
                    message,
                    format!("--delimiter '{written}' splits the records of the file there"),
                )
            }
            None => Error::usage(message),
        },
        _ => Error::usage(message),
    }
}

/// What Arrow and DataFusion say of a value that cannot be cast, in SQL's words; anything else as it is.
fn cast_error(message: &str) -> Error {
    if let Some(error) = in_our_words(message) {
        return error;
    }
    if message.contains("to Timestamp(ns)") || message.contains("to timestamp[ns]") {
        return Error::Overflow {
            message:
                "a time outside of 1677 to 2262 does not fit TIMESTAMP(9), which is of nanoseconds"
                    .into(),
            hint: Some(
                "CAST(x AS TIMESTAMP(6)) of the nanoseconds beside it reaches any time".into(),
            ),
        };
    }
    let cast = |value: &str, to: &str| Error::Cast {
        value: value.to_owned(),
        to: to.to_owned(),
        cast: None,
        hint: None,
    };
    let text = ["Cannot cast string '", "Cannot cast value '"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.rsplit_once("' to value of "));
    if let Some((value, to)) = text {
        return cast(value, sql_name(to.trim_end_matches(" type")).as_str());
    }
    let number = message.strip_prefix("Can't cast value ");
    if let Some((value, to)) = number.and_then(|cast| cast.rsplit_once(" to type ")) {
        return cast(value, &sql_name(to));
    }
    if let Some(value) = message.strip_prefix("Invalid input syntax for type interval: \"") {
        return cast(value.trim_end_matches('"'), "INTERVAL");
    }
    match message.starts_with("Cannot cast ") {
        true => Error::Query(in_sql_words(message)),
        false => Error::Query(message.to_owned()),
    }
}

/// SQL's name of a type that Arrow calls `name`, without digits and units: those that a message has
/// are not always of the type that was asked for.
pub(crate) fn sql_name(name: &str) -> String {
    let words = in_sql_words(name);
    match words.split_once('(') {
        Some((word @ ("DECIMAL" | "TIMESTAMP" | "TIME"), _)) => word.to_owned(),
        _ => words,
    }
}

/// Where the parenthesis ends that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// A message with SQL's names of types instead of Arrow's.
fn in_sql_words(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(start) = rest.find(is_word) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        text.push_str(before);
        rest = &word[end..];
        let name = match &word[..end] {
            "Utf8" | "LargeUtf8" | "Utf8View" => "TEXT",
            "Int8" => "TINYINT",
            "Int16" => "SMALLINT",
            "Int32" => "INT",
            "Int64" => "BIGINT",
            "UInt8" => "TINYINT UNSIGNED",
            "UInt16" => "SMALLINT UNSIGNED",
            "UInt32" => "INT UNSIGNED",
            "UInt64" => "BIGINT UNSIGNED",
            "Float32" => "FLOAT",
            "Float64" => "DOUBLE",
            "Date32" => "DATE",
            "Boolean" => "BOOLEAN",
            "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256" => "DECIMAL",
            "List" | "LargeList" if rest.starts_with('(') && closing(rest).is_some() => {
                let end = closing(rest).unwrap_or(0);
                text.push_str(&in_sql_words(&rest[1..end]));
                rest = &rest[end + 1..];
                "[]"
            }
            // What follows in parentheses is a unit.
            unit @ ("Timestamp" | "Time32" | "Time64" | "Interval" | "Duration")
                if rest.starts_with('(') && rest.contains(')') =>
            {
                let (of, behind) = rest.split_once(')').unwrap_or((rest, ""));
                rest = behind;
                match (unit, of) {
                    ("Timestamp", _) => "TIMESTAMP",
                    ("Time32", "(s") => "TIME(0)",
                    ("Time32", _) => "TIME(3)",
                    ("Time64", "(µs") => "TIME(6)",
                    ("Time64", _) => "TIME",
                    _ => "INTERVAL",
                }
            }
            other => other,
        };
        text.push_str(name);
    }
    text.push_str(rest);
    text
}

/// The SQL parser's complaint without its own name in front.
fn parser_error(message: &str) -> Error {
    let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
    if message.contains("recursion limit exceeded") {
        return nested_too_deeply();
    }
    if let Some(rest) = message.strip_prefix("No infix parser for token ") {
        let (token, place) = rest.rsplit_once(" at Line").unwrap_or((rest, ""));
        // The parser shows its own names of tokens.
        let operator = match token {
            "Sharp" => Some("#"),
            word => word.split("value: \"").nth(1).and_then(|word| word.split('"').next()),
        };
        let place = if place.is_empty() { String::new() } else { format!(" at Line{place}") };
        let message = match operator {
            Some(operator) => format!("there is no operator `{operator}`{place}"),
            None => format!("SQL is not understood: there is no such operator{place}"),
        };
        return match operator.map(str::to_ascii_uppercase).as_deref() {
            Some("DIV") => {
                Error::usage_hint(message, "/ divides whole numbers without a rest: 7 / 2 is 3")
            }
            Some("#") => {
                Error::usage_hint(message, "the exclusive or of whole numbers is (a | b) - (a & b)")
            }
            _ => Error::usage(message),
        };
    }
    if message.starts_with("Dot access not supported for non-string expr") {
        return fields_of_values();
    }
    let understood = format!("SQL is not understood: {message}");
    let found = message.split("found: ").nth(1).unwrap_or_default();
    if message.contains("Expected: an SQL statement") {
        let hint = "a query is SQL: SELECT * FROM 'logs.csv'; `tidemill head FILE` shows a file";
        return Error::usage_hint(understood, hint);
    }
    // A path stands where SQL has a name.
    match found.starts_with(['/', '.', '~']) {
        true => {
            Error::usage_hint(understood, "a file is named in single quotes: FROM 'logs/web.csv'")
        }
        false => Error::usage(understood),
    }
}

/// The refusal of SQL that nests more than the parser follows.
pub(crate) fn nested_too_deeply() -> Error {
    Error::usage_hint(
        "the SQL is nested too deeply",
        "name its parts: WITH part AS (SELECT …) SELECT … FROM part",
    )
}

fn fields_of_values() -> Error {
    Error::usage_hint(
        "a dot stands behind the name of a column or a source, and not behind a value",
        "the field of a value is value['field']; a source is named where it is read: FROM 'f.csv' \
         AS f",
    )
}

/// What follows the last of `starts`, where a message has one of them.
fn behind<'a>(message: &'a str, starts: &[&str]) -> Option<&'a str> {
    starts.iter().find_map(|start| message.split_once(start).map(|(_, rest)| rest))
}

/// The planner's complaint about types that an operator does not take: `DATE + DATE`.
fn no_operator(message: &str) -> Option<Error> {
    let first = message.lines().next().unwrap_or_default();
    let of_times = behind(first, &["Cannot get result type for temporal operation "])
        .and_then(|rest| rest.split(": ").next());
    let operation = of_times
        .or_else(|| {
            let rest = behind(first, &["Cannot coerce arithmetic expression "])?;
            rest.strip_suffix(" to valid types")
        })
        .or_else(|| {
            behind(
                first,
                &[
                    "Cannot infer common argument type for comparison operation ",
                    "Cannot infer common argument type for logical boolean operation ",
                    "Cannot infer common argument type for regex operation ",
                    "Cannot infer common type for bitwise operation ",
                ],
            )
        })?;
    let operation = in_sql_words(operation);
    let hint = match operation.as_str() {
        spans
            if spans.contains("INTERVAL")
                && spans.contains([' ', '*', '/'])
                && of_times.is_some() =>
        {
            "write out the interval, as in INTERVAL '12 hours'; a DATE takes whole days: d + 2"
        }
        "DATE + DATE" => "a DATE takes days or an INTERVAL: d + 1, d + INTERVAL '1 month'",
        days if days.contains("DATE") || days.contains("TIME") => {
            "dates and times take an INTERVAL: ts + INTERVAL '1 hour'"
        }
        flags if flags.contains(" AND ") || flags.contains(" OR ") => {
            "AND and OR take conditions, such as x <> 0"
        }
        lists if lists.contains("[]") => {
            "array_has(list, x) looks into a list, list[1] takes a value"
        }
        text if text.contains("TEXT") => cast_hint("TEXT"),
        flags if flags.contains("BOOLEAN") => {
            "AND, OR and NOT take what is true or false; CAST(x AS INT) makes 1 and 0 of it"
        }
        other => cast_hint(other),
    };
    Some(Error::usage_hint(format!("there is no `{operation}`"), hint))
}

/// A planner's complaint; of one about a function's arguments, what matters.
fn plan_error(message: &str) -> Error {
    if let Some(error) = in_our_words(message) {
        return error;
    }
    if message.starts_with("Unary operator '-' only supports") {
        return Error::usage_hint(
            "a minus before a value takes numbers that have a sign",
            "CAST(x AS DOUBLE) makes one of text, CAST(x AS BIGINT) of one without a sign; of the \
             difference of two times turn it round: a - b",
        );
    }
    if let Some((_, call)) = message.split_once("`retract_batch` is not implemented: ") {
        return Error::usage_hint(
            format!(
                "`{}` cannot be taken of a frame that slides",
                crate::table::state::call_of(call)
            ),
            "a frame that begins with UNBOUNDED PRECEDING works for all aggregates",
        );
    }
    let between = |text: &str, start: &str, end: &str| {
        let text = &text[text.find(start)? + start.len()..];
        Some(text[..text.find(end)?].to_string())
    };
    if let Some(function) = between(message, "Function '", "' failed to match any signature")
        && let Some(found) = between(message, "but received ", ".,")
    {
        let data_type = found.split_once("(DataType: ");
        let data_type = data_type.and_then(|(_, of)| Some(of.rsplit_once(')')?.0));
        let found = in_sql_words(data_type.unwrap_or(&found));
        let is_time = ["DATE", "TIMESTAMP", "TIME", "INTERVAL"].contains(&found.as_str());
        return Error::usage_hint(
            format!("`{function}` does not take an argument of type {found}"),
            match (is_time, function.as_str()) {
                (true, _) => {
                    "min and max take it; extract(epoch FROM x) gives its seconds as a number"
                }
                (false, "date_part") => {
                    "the difference of two dates is a number of days: d2 - d1, or (d2 - d1) * 86400"
                }
                (false, _) => cast_hint(&found),
            },
        );
    }
    if message.contains(NO_SIGNATURE) {
        return no_signature(message);
    }
    if let Some(error) = no_operator(message) {
        return error;
    }
    if let Some(types) = between(message, "common type to coerce ", " in LIKE expression") {
        let types = in_sql_words(&types).replace(" and ", " LIKE ");
        return Error::usage_hint(format!("there is no `{types}`"), "CAST(x AS TEXT) converts it");
    }
    if let Some(rest) = behind(message, &["Cannot create filter with non-boolean predicate "]) {
        let of = rest.rsplit_once(" returning ").map_or("", |(_, of)| of);
        return Error::usage_hint(
            format!("a condition is true or false, and this one is {}", in_sql_words(of)),
            match of.contains("Utf8") {
                true => "compare it: x <> ''",
                false => "compare it: x <> 0",
            },
        );
    }
    if let Some(of) = between(message, "Cannot access field at argument 1: type ", " is not Struct")
    {
        return Error::usage_hint(
            format!("a {} has no fields", in_sql_words(&of)),
            "--promote makes columns of JSON in a string",
        );
    }
    if let Some(name) = between(message, "Binary operator '", "' is not supported in the physical")
    {
        let (operator, hint) = match name.as_str() {
            "AtArrow" => ("`@>`", Some("array_has_all(list, others) looks into a list")),
            "ArrowAt" => ("`<@`", Some("array_has_all(list, others) looks into a list")),
            "HashArrow" | "HashLongArrow" | "HashMinus" | "AtAt" | "AtQuestion" | "Question"
            | "QuestionAnd" | "QuestionPipe" => {
                ("this operator of JSON", Some("fields of JSON are named with dots: a.b, a['b']"))
            }
            _ => ("an operator", None),
        };
        let message = format!("{operator} is not supported");
        return match hint {
            Some(hint) => Error::usage_hint(message, hint),
            None => Error::usage(message),
        };
    }
    if let Some(name) = between(message, "variable [\"", "\"] has no type information") {
        return Error::usage_hint(format!("`{name}` is not supported"), "write the value itself");
    }
    if message.contains("Dot access not supported for non-string expr") {
        return fields_of_values();
    }
    if message.starts_with("Correlated scalar subquery must be aggregated") {
        return Error::usage_hint(
            "a subquery for each row has to give one value, and may give several rows",
            "take an aggregate of them: (SELECT max(x) FROM b WHERE b.k = a.k)",
        );
    }
    if message.contains("must appear in the GROUP BY clause")
        && let Some(column) = between(message, "column \"", "\" must appear")
    {
        let column = column.rsplit('.').next().unwrap_or_default();
        return Error::usage_hint(
            format!("`{column}` is neither in GROUP BY nor in an aggregate function"),
            format!("GROUP BY {column}, or take one value of each group: min({column})"),
        );
    }
    if let Some(names) = message.strip_prefix("Projections require unique expression names but") {
        let name = between(names, "expression \"", "\" at position").unwrap_or_default();
        let given = name.rsplit_once(" AS ").map(|(_, given)| given.to_owned());
        let frames = [" ORDER BY [", " PARTITION BY [", " ROWS ", " RANGE ", " GROUPS "];
        if given.is_none() && frames.iter().any(|frame| name.contains(frame)) {
            let call = crate::table::state::call_of(&name);
            return Error::usage_hint(
                format!("two columns of a select list are `{call}` over the same window"),
                format!("name one of them: {call} OVER (…) AS other"),
            );
        }
        let is_column = !name.contains('(');
        let name = name.rsplit('.').next().filter(|_| is_column).unwrap_or(&name);
        return Error::usage_hint(
            format!("two columns of a select list are `{}`", given.as_deref().unwrap_or(name)),
            match given {
                Some(_) => "give one of them another name".to_owned(),
                None => format!("name one of them: {name} AS other"),
            },
        );
    }
    if message.starts_with("In/Exist/SetComparison subquery can only be used in") {
        return Error::usage_hint(
            "`IN (SELECT …)`, `EXISTS`, `ANY` and `ALL` cannot stand in ORDER BY or LIMIT",
            "WHERE takes it; a LEFT JOIN with what the subquery selects gives its columns",
        );
    }
    // What follows is the expression as the planner writes it for itself.
    if let Some(expression) =
        message.strip_prefix("Physical plan does not support logical expression ")
    {
        let name = expression.split(['(', ' ']).next().unwrap_or_default();
        return Error::usage(format!("the query has an expression that cannot be run: {name}"));
    }
    if message.contains("unnest on struct can only be applied") {
        return Error::usage_hint(
            "`unnest` of a struct is a column by itself",
            "SELECT unnest(s) gives its fields; s.field is one of them",
        );
    }
    let message =
        message.split("\nThis issue was likely caused by a bug").next().unwrap_or(message);
    Error::usage(in_sql_words(message.trim_start_matches("Internal error: ")))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::Error;

    #[test]
    fn what_a_decoder_says_is_told_in_brief() {
        for (reason, expected) in [
            (
                "the footer cannot be read (External: invalid utf-8)",
                "the footer cannot be read (invalid utf-8)",
            ),
            (
                "a page cannot be read (Arrow: RangeOutOfBounds { range: 1..2, trace: [] })",
                "a page cannot be read (RangeOutOfBounds)",
            ),
            (
                "its metadata cannot be read (Range [1, 2) is out.\n\twhile verifying\n)",
                "its metadata cannot be read (Range [1, 2) is out)",
            ),
            ("it ends in block 3", "it ends in block 3"),
        ] {
            let reason = reason.to_owned();
            let error = Error::Corrupt { path: "f".into(), offset: None, reason, hint: None };
            assert_eq!(error.to_string(), format!("`f` is damaged: {expected}"));
        }
    }

    #[test]
    fn an_error_that_others_hold_is_told_in_the_same_words() {
        use std::sync::Arc;

        use arrow::error::ArrowError;
        use datafusion::error::DataFusionError as Df;

        let ours = || Error::Overflow { message: "`sum(v)` does not fit".into(), hint: None };
        let errors: [fn(Error) -> Df; 9] = [
            |ours| Df::External(Box::new(ours)),
            |ours| Df::External(Box::new(Df::External(Box::new(ours)))),
            |ours| Df::ArrowError(Box::new(ArrowError::ExternalError(Box::new(ours))), None),
            |ours| Df::Context("while".into(), Box::new(Df::External(Box::new(ours)))),
            |_| Df::ArrowError(Box::new(ArrowError::DivideByZero), None),
            |_| Df::ArrowError(Box::new(ArrowError::CastError("Can't cast".into())), None),
            |_| Df::ResourcesExhausted("out of memory: a step\nhint: more".into()),
            |_| Df::Execution("Cannot cast string 'x' to value of Int32 type".into()),
            |_| Df::Plan("it is".into()),
        ];
        for error in errors {
            let alone: Error = error(ours()).into();
            let shared = Arc::new(error(ours()));
            let held: Error = Df::Shared(Arc::clone(&shared)).into();
            assert_eq!(held.to_string(), alone.to_string());
            assert_eq!(std::mem::discriminant(&held), std::mem::discriminant(&alone));
        }
    }

    #[test]
    fn a_url_in_the_place_of_a_file_shows_no_secret() {
        for (action, kind) in [("read", ErrorKind::NotFound), ("write", ErrorKind::Other)] {
            let url = "http://user:hush@host/x.csv?sig=hush";
            let message = Error::io(action, url, kind.into()).to_string();
            assert!(message.contains("host/x.csv") && !message.contains("hush"), "{message}");
        }
    }
}
