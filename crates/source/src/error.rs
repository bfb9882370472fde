//! Errors of sources.
//!
//! An error of this crate may have to pass through a library, because decoders read from this crate's inputs
//! as [`Read`](io::Read) and the like. It goes in as [`io::Error::other`] or [`ArrowError::ExternalError`],
//! and [`Error::from_io`] and `From<ArrowError>` take it out again. Callers outside of this crate that read
//! bytes in that way find [`tidemill_base::Error`] in them ([`to_external_error`]). Inputs from outside may
//! also contain that type.

use std::io;
use std::path::Path;

use arrow::error::ArrowError;
use tidemill_base::cancellation::Interrupted;
use tidemill_base::{BadRecord, BoxedHostError};

use crate::programs::filter_program;

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of opening or reading a source. Each variant becomes a variant of [`tidemill_base::Error`], which
/// the user sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid use of a source: a URL, a format, an option or a column.
    #[error("{message}")]
    Usage {
        /// The problem, with the object in backticks.
        message: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// A named file does not exist.
    #[error("no such file or folder: `{path}`")]
    NotFound {
        /// The path or pattern as the user wrote it.
        path: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// The operating system, or another producer or consumer of bytes, failed. The source may contain an
    /// error of [`tidemill_base`].
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The underlying error.
        source: io::Error,
    },
    /// A remote file cannot be named, reached or read.
    #[error(transparent)]
    Remote(tidemill_remote::Error),
    /// A filter program cannot be started, or has failed.
    #[error(transparent)]
    Program(filter_program::ProgramError),
    /// A reader that the embedding program has registered failed.
    #[error("cannot read `{path}` as `{format}`: {source}")]
    RegisteredFormat {
        /// The format.
        format: String,
        /// The file.
        path: String,
        /// Its unchanged error, which may be one of [`tidemill_base`].
        source: BoxedHostError,
    },
    /// A rowfile is damaged, or this release cannot read it.
    #[error("{reason}")]
    Rowfile {
        /// The file.
        path: String,
        /// The problem and its offset, with the file's name.
        reason: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// A file's bytes violate its format, beyond single records.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The file.
        path: String,
        /// Offset in the file in bytes, if known.
        offset: Option<u64>,
        /// The expected and the found bytes.
        reason: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// Files that do not fit into one table.
    #[error("`{path}` does not go with `{other}`: {reason}")]
    IncompatibleFiles {
        /// The file at fault: the later one.
        path: String,
        /// The file that it is compared with.
        other: String,
        /// The difference, naming the column.
        reason: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// More malformed records than the limit allows.
    #[error("{count} malformed records, {allowed} allowed")]
    BadRecords {
        /// Number of malformed records found before the run stopped.
        count: u64,
        /// The limit as the user would write it.
        allowed: String,
        /// The first few records.
        first: Vec<BadRecord>,
    },
    /// A local file has changed since it was listed.
    #[error("`{path}` changed while it was read: {reason}")]
    FileChanged {
        /// The file.
        path: String,
        /// The difference.
        reason: String,
    },
    /// A file needs more memory for decompression than any file may use.
    #[error("{message}")]
    Memory {
        /// The amount that does not fit.
        message: String,
        /// The hint for the user, if there is one.
        hint: Option<String>,
    },
    /// Arrow cannot build a batch from the columns.
    #[error(transparent)]
    Arrow(ArrowError),
    /// The run was cancelled.
    #[error("interrupted")]
    Interrupted,
    /// A broken invariant.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: None }
    }

    pub(crate) fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: Some(hint.into()) }
    }

    /// Returns the path of the file that cannot be read, if the error concerns a single file.
    pub(crate) fn faulty_path(&self) -> Option<String> {
        match self {
            Error::Io { path, .. }
            | Error::Corrupt { path, .. }
            | Error::FileChanged { path, .. }
            | Error::Rowfile { path, .. }
            | Error::RegisteredFormat { path, .. } => Some(path.clone()),
            _ => None,
        }
    }

    /// Creates the error of a failed `action`, or takes out the error of this crate that `source` contains.
    pub(crate) fn from_io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        match source.downcast::<Error>() {
            Ok(ours) => ours,
            Err(source) => Error::Io { action, path: path.as_ref().display().to_string(), source },
        }
    }
}

/// Converts an I/O error for readers outside of this crate: an error of this crate becomes
/// [`tidemill_base::Error`].
pub(crate) fn to_external_error(error: io::Error) -> io::Error {
    match error.downcast::<Error>() {
        Ok(ours) => io::Error::other(tidemill_base::Error::from(ours)),
        Err(other) => other,
    }
}

impl From<Interrupted> for Error {
    fn from(Interrupted: Interrupted) -> Self {
        Error::Interrupted
    }
}

impl From<tidemill_remote::Error> for Error {
    fn from(error: tidemill_remote::Error) -> Self {
        match error {
            tidemill_remote::Error::Interrupted => Error::Interrupted,
            other => Error::Remote(other),
        }
    }
}

impl From<filter_program::ProgramError> for Error {
    fn from(error: filter_program::ProgramError) -> Self {
        match error {
            filter_program::ProgramError::Interrupted => Error::Interrupted,
            other => Error::Program(other),
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(source) => match source.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(source) => Error::Arrow(ArrowError::ExternalError(source)),
            },
            ArrowError::IoError(_, source) => Error::from_io("read or write", "a stream", source),
            other => Error::Arrow(other),
        }
    }
}

impl From<Error> for tidemill_base::Error {
    fn from(error: Error) -> Self {
        use tidemill_base::Error as Told;
        match error {
            Error::Usage { message, hint } => Told::Usage { message, hint },
            Error::NotFound { path, hint } => Told::NotFound { path, hint },
            Error::Io { action, path, source } => Told::io(action, path, source),
            Error::Remote(error) => error.into(),
            Error::Program(error) => error.into(),
            Error::RegisteredFormat { format, path, source } => match source.downcast::<Told>() {
                Ok(ours) => *ours,
                Err(source) => Told::RegisteredFormat { format, action: "read", path, source },
            },
            Error::Rowfile { path, reason, hint } => Told::Rowfile { path, reason, hint },
            Error::Corrupt { path, offset, reason, hint } => {
                Told::Corrupt { path, offset, reason, hint }
            }
            Error::IncompatibleFiles { path, other, reason, hint } => {
                Told::IncompatibleFiles { path, other, reason, hint }
            }
            Error::BadRecords { count, allowed, first } => {
                Told::BadRecords { count, allowed, first }
            }
            Error::FileChanged { path, reason } => Told::FileChanged { path, reason },
            Error::Memory { message, hint } => Told::MemoryBudgetTooSmall { message, hint },
            Error::Arrow(error) => error.into(),
            Error::Interrupted => Told::Interrupted,
            Error::Internal(message) => Told::Internal(message),
        }
    }
}

/// Returns the message that the user sees.
#[cfg(test)]
pub(crate) fn user_message(error: Error) -> String {
    tidemill_base::Error::from(error).to_string()
}

#[cfg(test)]
mod tests {
    use tidemill_base::{Error as Told, ErrorClass};

    use super::*;

    fn changed() -> Error {
        Error::FileChanged { path: "a.csv".into(), reason: "it has grown".into() }
    }

    #[test]
    fn own_errors_survive_io_and_arrow_wrapping() {
        let within = |error| Error::from_io("read", "x", error);
        for kind in [io::ErrorKind::Other, io::ErrorKind::UnexpectedEof] {
            let error = || io::Error::new(kind, changed());
            assert!(matches!(within(error()), Error::FileChanged { .. }), "{kind}");
            let arrows = ArrowError::IoError("reading".into(), error());
            assert!(matches!(arrows.into(), Error::FileChanged { .. }), "{kind}");
            // Readers outside of the crate find the error type of `tidemill_base`.
            let lent = to_external_error(error());
            assert!(matches!(Told::io("read", "x", lent), Told::FileChanged { .. }), "{kind}");
        }
        let arrows = ArrowError::ExternalError(Box::new(changed()));
        assert!(matches!(arrows.into(), Error::FileChanged { .. }));
        let short = to_external_error(io::ErrorKind::UnexpectedEof.into());
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn base_errors_inside_io_errors_reach_the_user() {
        let ours = || Told::usage_with_hint("no such thing", "ask for another");
        let format = |source: BoxedHostError| Error::RegisteredFormat {
            format: "pcap".into(),
            path: "a.pcap".into(),
            source,
        };
        let external = ArrowError::ExternalError(Box::new(ours()));
        let arrows_io = ArrowError::IoError("reading".into(), io::Error::other(ours()));
        for error in [
            Error::from_io("read", "a.csv", io::Error::other(ours())),
            Error::from_io("read", "a.csv", to_external_error(io::Error::other(ours()))),
            format(Box::new(ours())),
            external.into(),
            arrows_io.into(),
        ] {
            assert_eq!(user_message(error), "no such thing\nhint: ask for another");
        }
        assert_eq!(
            user_message(format("no luck".into())),
            "cannot read `a.pcap` as `pcap`: no luck"
        );
        let url = "https://user:hush@host/x.csv?sig=hush";
        let message = user_message(Error::from_io("read", url, io::ErrorKind::Other.into()));
        assert!(message.contains("host/x.csv") && !message.contains("hush"), "{message}");
    }

    #[test]
    fn user_errors_keep_hint_and_kind() {
        let path = || String::from("a.csv");
        let hint = || Some(String::from("do it"));
        let reason = || String::from("it is odd");
        let bad = BadRecord {
            path: "a.csv".into(),
            line: Some(2),
            row: None,
            offset: 4,
            column: Some("x".into()),
            reason: reason(),
            hint: None,
        };
        let failed = filter_program::ProgramError::Failed {
            program: "sh".into(),
            file: String::new(),
            reason: "ended with status 3".into(),
            stderr_tail: "no".into(),
        };
        let remote = tidemill_remote::Error::Remote {
            action: "read",
            url: "s3://b/k".into(),
            offset: Some(7),
            status: Some(503),
            reason: "it is busy".into(),
            hint: hint(),
        };
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        for (error, kind, expected) in [
            (Error::usage("no"), ErrorClass::Usage, "no"),
            (Error::usage_with_hint("no", "do it"), ErrorClass::Usage, "no\nhint: do it"),
            (
                Error::NotFound { path: path(), hint: hint() },
                ErrorClass::Failed,
                "no such file or folder: `a.csv`\nhint: do it",
            ),
            (
                Error::from_io("read", "a.csv", gone()),
                ErrorClass::Failed,
                "no such file or folder: `a.csv`",
            ),
            (
                Error::from_io("read", "a.csv", denied()),
                ErrorClass::Failed,
                "cannot read `a.csv`: permission denied",
            ),
            (
                remote.into(),
                ErrorClass::Failed,
                "cannot read `s3://b/k` at byte 7: it is busy\nhint: do it",
            ),
            (failed.into(), ErrorClass::Failed, "`sh` ended with status 3 and said:\nno"),
            (
                Error::Rowfile { path: path(), reason: reason(), hint: hint() },
                ErrorClass::Failed,
                "it is odd\nhint: do it",
            ),
            (
                Error::Corrupt { path: path(), offset: Some(3), reason: reason(), hint: hint() },
                ErrorClass::Failed,
                "`a.csv` is damaged at byte 3: it is odd\nhint: do it",
            ),
            (
                Error::IncompatibleFiles {
                    path: path(),
                    other: "b".into(),
                    reason: reason(),
                    hint: hint(),
                },
                ErrorClass::Failed,
                "`a.csv` does not go with `b`: it is odd\nhint: do it",
            ),
            (
                Error::BadRecords { count: 2, allowed: "1".into(), first: vec![bad] },
                ErrorClass::Failed,
                "2 malformed records, 1 allowed:\n  a.csv: line 2 (byte 4), column `x`: it is odd\n\
                 hint: --max-bad N or N% skips such records, counts them and keeps a copy",
            ),
            (
                changed(),
                ErrorClass::Failed,
                "`a.csv` changed while it was read: it has grown\n\
                 hint: run again once nothing writes to it",
            ),
            (
                Error::Memory { message: "no room".into(), hint: hint() },
                ErrorClass::Failed,
                "no room\nhint: do it",
            ),
            (ArrowError::DivideByZero.into(), ErrorClass::Failed, "division by zero"),
            (Interrupted.into(), ErrorClass::Interrupted, "interrupted"),
            (tidemill_remote::Error::Interrupted.into(), ErrorClass::Interrupted, "interrupted"),
            (
                filter_program::ProgramError::Interrupted.into(),
                ErrorClass::Interrupted,
                "interrupted",
            ),
            (
                Error::Internal("odd".into()),
                ErrorClass::Internal,
                "internal error: odd\nhint: this is a fault of tidemill; please report it with \
                 the command that led here",
            ),
        ] {
            let told = Told::from(error);
            assert_eq!((told.to_string().as_str(), told.class()), (expected, kind));
        }
        let pipe = Error::from_io("write", "a.csv", io::ErrorKind::BrokenPipe.into());
        assert!(matches!(pipe.into(), Told::ClosedPipe));
    }
}
