//! What can go wrong, told apart by who can mend it.
//!
//! Every variant carries what its message needs as fields, so that the command line and
//! Python can choose an exit status or an exception class without reading text. Messages
//! are lower case, name the object in backticks and end with a `hint:` line where there is
//! something to do.

pub use crate::redaction::escape_control_chars;
use std::any::Any;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cancellation::Interrupted;
use crate::coverage::format_grouped_digits;
use crate::memory_budget::format_binary_bytes;
use crate::suggestions;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in code of the program around: its error, as it gave it.
pub type BoxedHostError = Box<dyn std::error::Error + Send + Sync>;

/// Whose mistake an [`Error`] is, which decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
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
    #[error("{message}{}", HintLine(hint))]
    Usage {
        /// What is wrong, naming the object in backticks.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// No file where one was named.
    #[error("no such file or folder: `{}`{}", EscapedName(path), HintLine(hint))]
    NotFound {
        /// The path or pattern as the user wrote it.
        path: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}{}", EscapedName(path), SpillHint(action))]
    Io {
        /// The attempted action, as an infinitive: `read`, `create`.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// No folder has room for what does not fit memory.
    #[error(
        "no room to spill: {source}; {}\nhint: {}",
        FreeSpaceList(folders),
        disk_full_hint(source)
    )]
    SpillDiskFull {
        /// Each folder, and the bytes that are free there, where the system says.
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
    #[error("`{program}` {reason}{}{}", ProgramFileClause(file), StderrTail(said))]
    UserProgram {
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
    #[error("cannot {action} `{}` as `{format}`: {source}", EscapedName(path))]
    RegisteredFormat {
        /// The format.
        format: String,
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// Its error, as it gave it.
        source: BoxedHostError,
    },
    /// A rowfile that is damaged, or that this release does not read.
    #[error("{reason}{}", HintLine(hint))]
    Rowfile {
        /// The file.
        path: String,
        /// What is wrong, and where, with the file's name.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Input bytes that are not what their format demands, beyond single records.
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
        /// Where in the file, in bytes, if known.
        offset: Option<u64>,
        /// What was expected and what was found.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Files of one source that do not make one table.
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
        /// In what it differs, naming the column.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// More malformed records than `--max-bad` allows.
    #[error("{}", TooManyBadRecords { count: *.count, allowed, first })]
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
        "`{}` changed while it was read: {reason}\nhint: run again once nothing writes to it",
        EscapedName(path)
    )]
    FileChanged {
        /// The file.
        path: String,
        /// What differs.
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
        /// How many others exist too.
        more: usize,
    },
    /// A commit stopped half way and could not be taken back at once.
    #[error(
        "the output in `{}` is committed in part: {source}\nhint: the next run that writes there finishes the commit or takes it back",
        EscapedName(path)
    )]
    UnfinishedCommit {
        /// The destination.
        path: String,
        /// What stopped it.
        source: Box<Error>,
    },
    /// Another live run writes the same output.
    #[error(
        "another run ({run}) is writing to `{}`\nhint: wait for it, or write elsewhere",
        EscapedName(path)
    )]
    OutputBusy {
        /// The destination both want.
        path: String,
        /// The other run's identifier.
        run: String,
    },
    /// Some of many files were not converted; the others were.
    #[error("{}", UnconvertedSummary { failed: *.failed, untried: *.untried, files: *.files, first })]
    UnconvertedFiles {
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
    #[error("{message}{}", HintLine(hint))]
    Overflow {
        /// What overflowed.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A value's bytes are not what they should be: no sketch, no set.
    #[error("{message}{}", HintLine(hint))]
    InvalidBytes {
        /// Of which value, and what is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A value is none of the type that it is cast to.
    #[error("`{value}` does not fit {to}{}{}", CastSource(cast), HintLine(hint))]
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
    #[error("{message}{}", HintLine(hint))]
    MemoryBudgetTooSmall {
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A name, which may have a line end in it, or what a terminal obeys.
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

/// What a decoder says, without its own structures and the layers that the message came through.
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
    /// A mistake in the request, without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: None }
    }

    /// A mistake in the request, with what to do about it.
    pub fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// The operating system's refusal to do `action` to `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        // Where a file is wanted, a URL may have been given, and what is secret in it.
        let path = crate::redaction::redact_url(&path.as_ref().display().to_string());
        // One of ours that came through `Read` or `Write`.
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

    /// That none of these folders has room for what does not fit memory; what is free there is looked up.
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

    /// The same with one more thing that can be done about it, where it is of a file that cannot be read and has a hint.
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

    /// Whose mistake it is.
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
    /// The same again, for whoever else hears of it.
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

/// A message without the passwords and signatures of URLs that it names: an error may repeat whatever
/// was asked. What shows one to a person or keeps it calls this.
pub fn redact_secrets(message: &str) -> String {
    crate::redaction::redact_message(message)
}

/// What `run` returns; a panic inside it as [`Error::Internal`], so that whoever waits for the
/// thread learns of it.
pub fn catch_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    // What `run` changed is not looked at again after a panic: the run fails.
    crate::panics::catch_silently(run).unwrap_or_else(|panic| Err(error_from_panic(panic.as_ref())))
}

/// A panic's message as an error.
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
