//! The error type of the engine, with variants grouped by who can fix the problem.
//!
//! Every variant carries the parts of its message as fields, so that the command line and
//! Python can choose an exit status or an exception class without parsing text. Messages
//! are lower case, name the object in backticks and end with a `hint:` line if the user can
//! do something about the problem.

pub use crate::redaction::escape_control_chars;
use std::any::Any;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cancellation::Interrupted;
use crate::coverage::format_grouped_digits;
use crate::memory_budget::format_binary_bytes;
use crate::suggestions;

/// The engine's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the host program's code, passed through unchanged.
pub type BoxedHostError = Box<dyn std::error::Error + Send + Sync>;

/// The class of an [`Error`] by its cause, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// A mistake in usage, SQL or job file: exit status 2.
    Usage,
    /// A problem of the data or the machine: exit status 1.
    Failed,
    /// A stop by the user: exit status 130.
    Interrupted,
    /// A broken invariant of the engine: exit status 1, and worth a report.
    Internal,
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request that cannot be carried out as worded.
    #[error("{message}{}", HintLine(hint))]
    Usage {
        /// The mistake, with the object in backticks.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A named file that does not exist.
    #[error("no such file or folder: `{}`{}", EscapedName(path), HintLine(hint))]
    NotFound {
        /// The path or pattern as the user wrote it.
        path: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A refusal by the operating system.
    #[error("cannot {action} `{}`: {source}{}", EscapedName(path), SpillHint(action))]
    Io {
        /// The attempted action, as an infinitive: `read`, `create`.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// No spill folder has room for the data that does not fit in memory.
    #[error(
        "no room to spill: {source}; {}\nhint: {}",
        FreeSpaceList(folders),
        disk_full_hint(source)
    )]
    SpillDiskFull {
        /// Each folder with its free bytes, if the system reports them.
        folders: Vec<(String, Option<u64>)>,
        /// The operating system's answer in the last of them.
        source: std::io::Error,
    },
    /// A server refused, or did not answer.
    #[error(
        "cannot {action} `{}`{}: {reason}{}",
        EscapedName(url),
        AtOffset(offset),
        HintLine(hint)
    )]
    Remote {
        /// The attempted action, as an infinitive: `read`, `list`, `write`.
        action: &'static str,
        /// The object's URL, without secrets.
        url: String,
        /// The byte offset within the object, if the failure happened inside of it.
        offset: Option<u64>,
        /// The answer's HTTP status, if there was an answer.
        status: Option<u16>,
        /// The message of the server or the network, and the number of attempts.
        reason: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A failure of a program that the user provides.
    #[error("`{program}` {reason}{}{}", ProgramFileClause(file), StderrTail(said))]
    UserProgram {
        /// The program's name.
        program: String,
        /// The file that it worked on; empty if it was given none.
        file: String,
        /// The way it ended: `ended with status 3`.
        reason: String,
        /// The last lines that it wrote to standard error.
        said: String,
    },
    /// A failure of a reader or writer that the host program has registered.
    #[error("cannot {action} `{}` as `{format}`: {source}", EscapedName(path))]
    RegisteredFormat {
        /// The format.
        format: String,
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Its error, passed through unchanged.
        source: BoxedHostError,
    },
    /// A rowfile that is damaged, or that this release does not read.
    #[error("{reason}{}", HintLine(hint))]
    Rowfile {
        /// The file.
        path: String,
        /// The problem and its place, with the file's name.
        reason: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// Input bytes that violate their format, beyond single records.
    #[error(
        "`{}` is damaged{}: {}{}",
        EscapedName(path),
        AtOffset(offset),
        BriefReason(reason),
        HintLine(hint)
    )]
    Corrupt {
        /// The file.
        path: String,
        /// The byte offset in the file, if known.
        offset: Option<u64>,
        /// The expected and the found content.
        reason: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// Files of one source that cannot form one table.
    #[error(
        "`{}` does not go with `{}`: {reason}{}",
        EscapedName(path),
        EscapedName(other),
        HintLine(hint)
    )]
    IncompatibleFiles {
        /// The file at fault: the later one.
        path: String,
        /// The file that it differs from.
        other: String,
        /// The difference, with the name of the column.
        reason: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// More malformed records than `--max-bad` allows.
    #[error("{}", TooManyBadRecords { count: *.count, allowed, first })]
    BadRecords {
        /// Number of malformed records found before the run stopped.
        count: u64,
        /// The limit as the user would write it: `0`, `100`, `1%`.
        allowed: String,
        /// The first few.
        first: Vec<BadRecord>,
    },
    /// A file that was replaced, shortened or removed between planning and reading.
    #[error(
        "`{}` changed while it was read: {reason}\nhint: run again once nothing writes to it",
        EscapedName(path)
    )]
    FileChanged {
        /// The file.
        path: String,
        /// The difference.
        reason: String,
    },
    /// An output exists and may not be replaced.
    #[error(
        "`{}` exists already{}\nhint: --overwrite replaces it",
        EscapedName(path),
        MoreOutputs(more)
    )]
    OutputExists {
        /// The output, or the first of several.
        path: String,
        /// Number of other outputs that exist too.
        more: usize,
    },
    /// A commit that stopped half way and could not be undone at once.
    #[error(
        "the output in `{}` is committed in part: {source}\nhint: the next run that writes there finishes the commit or takes it back",
        EscapedName(path)
    )]
    UnfinishedCommit {
        /// The destination.
        path: String,
        /// The error that stopped it.
        source: Box<Error>,
    },
    /// Another live run writes the same output.
    #[error(
        "another run ({run}) is writing to `{}`\nhint: wait for it, or write elsewhere",
        EscapedName(path)
    )]
    OutputBusy {
        /// The destination of both runs.
        path: String,
        /// The other run's identifier.
        run: String,
    },
    /// A partial failure of many conversions: some files failed, the others were converted.
    #[error("{}", UnconvertedSummary { failed: *.failed, untried: *.untried, files: *.files, first })]
    UnconvertedFiles {
        /// Number of files that failed.
        failed: u64,
        /// Number of files that were not tried after too many failures.
        untried: u64,
        /// Number of all files.
        files: u64,
        /// The reasons for the first few failures.
        first: Vec<String>,
    },
    /// A result that does not fit its type.
    #[error("{message}{}", HintLine(hint))]
    Overflow {
        /// The value or operation that overflowed.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A binary value that is not the sketch or set that it should be.
    #[error("{message}{}", HintLine(hint))]
    InvalidBytes {
        /// The value, and what is wrong with it.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A value that cannot be cast to the requested type.
    #[error("`{value}` does not fit {to}{}{}", CastSource(cast), HintLine(hint))]
    Cast {
        /// The value as text.
        value: String,
        /// The type in SQL terms.
        to: String,
        /// The cast as written in the SQL, if known.
        cast: Option<String>,
        /// The remedy.
        hint: Option<String>,
    },
    /// A memory budget that is too small even with spilling.
    #[error("{message}{}", HintLine(hint))]
    MemoryBudgetTooSmall {
        /// The data that did not fit.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A failure that DataFusion reported while it ran a plan.
    #[error("{0}")]
    Query(String),
    /// A stop by Ctrl-C or by a supervisor.
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

/// A malformed record: its place and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRecord {
    /// The file's path or URL.
    pub path: String,
    /// Line number, counted from 1; `None` in formats without lines.
    pub line: Option<u64>,
    /// Row number, counted from 1, in formats without lines.
    pub row: Option<u64>,
    /// Byte offset of the record's first byte in the (uncompressed) file. For a row: the offset from which
    /// rows are numbered, which is not the file's beginning if nothing tells how many rows come before.
    pub offset: u64,
    /// The column at fault, if there is one.
    pub column: Option<String>,
    /// The expected and the found content.
    pub reason: String,
    /// The remedy.
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

/// Displays a name with line ends and terminal control characters escaped.
struct EscapedName<'a>(&'a str);

impl fmt::Display for EscapedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape_control_chars(self.0, &[]))
    }
}

struct HintLine<'a>(&'a Option<String>);

impl fmt::Display for HintLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

struct CastSource<'a>(&'a Option<String>);

impl fmt::Display for CastSource<'_> {
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
                "\nhint: --spill-dir DIR names a folder that takes what does not fit memory; \
                 --memory SIZE says how much fits",
            ),
            _ => Ok(()),
        }
    }
}

fn disk_full_hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::FileTooLarge => {
            "raise the limit of a file's size, `ulimit -f unlimited`, or name more folders, each of which has a file of \
             its own: --spill-dir DIR"
        }
        _ => "free some space, or name a folder on another disk too: --spill-dir DIR",
    }
}

struct FreeSpaceList<'a>(&'a [(String, Option<u64>)]);

impl fmt::Display for FreeSpaceList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (path, free)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match free {
                Some(bytes) => {
                    write!(f, "{comma}`{path}` has {} free", format_binary_bytes(*bytes))?
                }
                None => write!(f, "{comma}`{path}` is full")?,
            }
        }
        Ok(())
    }
}

struct ProgramFileClause<'a>(&'a str);

impl fmt::Display for ProgramFileClause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            file => write!(f, ", working on `{}`,", EscapedName(file)),
        }
    }
}

struct StderrTail<'a>(&'a str);

impl fmt::Display for StderrTail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str(" and said nothing on standard error"),
            said => write!(f, " and said:\n{said}"),
        }
    }
}

struct AtOffset<'a>(&'a Option<u64>);

impl fmt::Display for AtOffset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// Displays the message of a decoder without its own structures and the layers that it passed through.
struct BriefReason<'a>(&'a str);

impl fmt::Display for BriefReason<'_> {
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

struct MoreOutputs<'a>(&'a usize);

impl fmt::Display for MoreOutputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => write!(f, ", and one other file of this output"),
            n => write!(f, ", and {n} other files of this output"),
        }
    }
}

struct TooManyBadRecords<'a> {
    count: u64,
    allowed: &'a str,
    first: &'a [BadRecord],
}

impl fmt::Display for TooManyBadRecords<'_> {
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

struct UnconvertedSummary<'a> {
    failed: u64,
    untried: u64,
    files: u64,
    first: &'a [String],
}

impl fmt::Display for UnconvertedSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.files == 1 { "" } else { "s" };
        let (failed, files) =
            (format_grouped_digits(self.failed), format_grouped_digits(self.files));
        write!(f, "{failed} of {files} file{s} could not be converted")?;
        if self.untried > 0 {
            write!(f, ", and {} were not tried after that", format_grouped_digits(self.untried))?;
        }
        f.write_str(":")?;
        for line in self.first {
            write!(f, "\n  {line}")?;
        }
        match self.failed.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, "\n  … and {} more", format_grouped_digits(more)),
        }
    }
}

impl From<Interrupted> for Error {
    fn from(Interrupted: Interrupted) -> Self {
        Error::Interrupted
    }
}

impl Error {
    /// Creates an error for a mistake in the request, without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: None }
    }

    /// Creates an error for a mistake in the request, with a hint.
    pub fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// Creates an error for the operating system's refusal to do `action` to `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        // The user may have given a URL with secrets instead of a file.
        let path = crate::redaction::redact_url(&path.as_ref().display().to_string());
        // One of our errors that came through `Read` or `Write`.
        let source = match source.downcast::<Error>() {
            Ok(ours) => return ours,
            Err(source) => source,
        };
        match source.kind() {
            std::io::ErrorKind::BrokenPipe => Error::ClosedPipe,
            std::io::ErrorKind::NotFound if action == "read" => {
                let hint = suggestions::nearest_path_hint(&path);
                Error::NotFound { path, hint }
            }
            _ => Error::Io { action, path, source },
        }
    }

    /// Creates an error for spill folders without room, and looks up the free space of each.
    pub fn spill_disk_full<'a>(
        folders: impl IntoIterator<Item = &'a Path>,
        source: std::io::Error,
    ) -> Self {
        let folders = folders.into_iter().map(|path| {
            let free = rustix::fs::statvfs(path).ok();
            let free = free.map(|stats| stats.f_bavail.saturating_mul(stats.f_frsize));
            (crate::redaction::redact_url(&path.display().to_string()), free)
        });
        Error::SpillDiskFull { folders: folders.collect(), source }
    }

    /// Adds one more remedy to the hint of an error about an unreadable file.
    #[must_use]
    pub fn with_added_hint(mut self, more: &str) -> Error {
        if let Error::NotFound { hint, .. }
        | Error::Remote { hint, .. }
        | Error::Rowfile { hint, .. }
        | Error::Corrupt { hint, .. } = &mut self
        {
            *hint = Some(match hint.take() {
                Some(hint) => format!("{hint}; {more}"),
                None => more.to_owned(),
            });
        }
        self
    }

    /// Returns the class of the error by its cause.
    pub fn class(&self) -> ErrorClass {
        match self {
            Error::Usage { .. } => ErrorClass::Usage,
            Error::Interrupted => ErrorClass::Interrupted,
            Error::Internal(_) => ErrorClass::Internal,
            Error::UnfinishedCommit { source, .. } if matches!(**source, Error::Interrupted) => {
                ErrorClass::Interrupted
            }
            _ => ErrorClass::Failed,
        }
    }
}

impl Error {
    /// Duplicates the error for another recipient.
    pub fn duplicate(&self) -> Self {
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
            Error::SpillDiskFull { folders, source } => Error::SpillDiskFull {
                folders: folders.clone(),
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
            Error::IncompatibleFiles { path, other, reason, hint } => Error::IncompatibleFiles {
                path: path.clone(),
                other: other.clone(),
                reason: reason.clone(),
                hint: hint.clone(),
            },
            Error::BadRecords { count, allowed, first } => {
                Error::BadRecords { count: *count, allowed: allowed.clone(), first: first.clone() }
            }
            Error::FileChanged { path, reason } => {
                Error::FileChanged { path: path.clone(), reason: reason.clone() }
            }
            Error::UserProgram { program, file, reason, said } => Error::UserProgram {
                program: program.clone(),
                file: file.clone(),
                reason: reason.clone(),
                said: said.clone(),
            },
            Error::RegisteredFormat { format, action, path, source } => Error::RegisteredFormat {
                format: format.clone(),
                action,
                path: path.clone(),
                source: source.to_string().into(),
            },
            Error::OutputExists { path, more } => {
                Error::OutputExists { path: path.clone(), more: *more }
            }
            Error::UnfinishedCommit { path, source } => {
                Error::UnfinishedCommit { path: path.clone(), source: Box::new(source.duplicate()) }
            }
            Error::OutputBusy { path, run } => {
                Error::OutputBusy { path: path.clone(), run: run.clone() }
            }
            Error::UnconvertedFiles { failed, untried, files, first } => Error::UnconvertedFiles {
                failed: *failed,
                untried: *untried,
                files: *files,
                first: first.clone(),
            },
            Error::Overflow { message, hint } => {
                Error::Overflow { message: message.clone(), hint: hint.clone() }
            }
            Error::InvalidBytes { message, hint } => {
                Error::InvalidBytes { message: message.clone(), hint: hint.clone() }
            }
            Error::Cast { value, to, cast, hint } => Error::Cast {
                value: value.clone(),
                to: to.clone(),
                cast: cast.clone(),
                hint: hint.clone(),
            },
            Error::MemoryBudgetTooSmall { message, hint } => {
                Error::MemoryBudgetTooSmall { message: message.clone(), hint: hint.clone() }
            }
            Error::Query(message) => Error::Query(message.clone()),
            Error::Interrupted => Error::Interrupted,
            Error::ClosedPipe => Error::ClosedPipe,
            Error::Internal(message) => Error::Internal(message.clone()),
        }
    }
}

/// Removes the passwords and signatures in URLs from a message: an error may repeat anything from the
/// request. Code that shows an error to a person or stores it calls this.
pub fn redact_secrets(message: &str) -> String {
    crate::redaction::redact_message(message)
}

/// Runs `run` and returns its result. Turns a panic inside it into [`Error::Internal`], so that the thread
/// that waits for the result learns of it.
pub fn catch_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nobody uses the state that `run` changed after a panic: the run fails.
    crate::panics::catch_silently(run).unwrap_or_else(|panic| Err(error_from_panic(panic.as_ref())))
}

/// Returns a panic's message as an error.
pub fn error_from_panic(panic: &(dyn Any + Send)) -> Error {
    Error::Internal(crate::panics::panic_message(panic))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::Error;

    #[test]
    fn control_characters_in_names_are_escaped() {
        let path = "y\n\u{1b}]0;t\u{7}.csv".to_owned();
        for (error, expected) in [
            (
                Error::io("read", &path, ErrorKind::PermissionDenied.into()),
                "cannot read `y\\n\\x1b]0;t\\x07.csv`: ",
            ),
            (
                Error::NotFound { path, hint: None },
                "no such file or folder: `y\\n\\x1b]0;t\\x07.csv`",
            ),
        ] {
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }

    #[test]
    fn decoder_messages_are_shortened() {
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
    fn disk_full_error_lists_free_space_of_each_folder() {
        let folders = vec![("/a".into(), Some(0)), ("/b".into(), Some(2_500)), ("/c".into(), None)];
        let error = Error::SpillDiskFull { folders, source: ErrorKind::StorageFull.into() };
        let expected = "no room to spill: no storage space; `/a` has 0 B free, `/b` has 2.4 KiB free, `/c` is full\n\
                        hint: free some space, or name a folder on another disk too: --spill-dir DIR";
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.duplicate().to_string(), expected);

        let folders = vec![("/a".into(), Some(1 << 30))];
        let error = Error::SpillDiskFull { folders, source: ErrorKind::FileTooLarge.into() };
        assert!(error.to_string().contains("has 1 GiB free\nhint: raise the limit"), "{error}");
    }

    #[test]
    fn io_error_on_url_shows_no_secret() {
        for (action, kind) in [("read", ErrorKind::NotFound), ("write", ErrorKind::Other)] {
            let url = "http://user:hush@host/x.csv?sig=hush";
            let message = Error::io(action, url, kind.into()).to_string();
            assert!(message.contains("host/x.csv") && !message.contains("hush"), "{message}");
        }
    }
}
