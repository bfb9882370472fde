//! The error type of the sink.

use std::path::Path;

use tidemill_base::BoxedHostError;
use tidemill_base::cancellation::Interrupted;
use tidemill_source::programs::filter_program;

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that prevents an output. [`tidemill_base::Error`], to which each variant converts, has the
/// message for the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request that no output can satisfy: a path, a format, a column that the format cannot hold.
    #[error("{message}")]
    Usage {
        /// The problem.
        message: String,
        /// The remedy.
        hint: Option<String>,
    },
    /// A refusal by the operating system or another receiver of bytes. Its source may contain one of our
    /// errors.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The receiver's error.
        source: std::io::Error,
    },
    /// A bucket that cannot be named, reached or written to.
    #[error(transparent)]
    Remote(tidemill_remote::Error),
    /// A program for the output's bytes that cannot be started, or has failed.
    #[error(transparent)]
    UserProgram(filter_program::ProgramError),
    /// A failure of a writer that the host program has registered.
    #[error("cannot write `{path}` as `{format}`: {source}")]
    RegisteredFormat {
        /// The format.
        format: String,
        /// The output.
        path: String,
        /// Its error, passed through unchanged; one of ours if it was refused a batch.
        source: BoxedHostError,
    },
    /// An existing output that may not be replaced.
    #[error("`{path}` exists already")]
    OutputExists {
        /// The output, or the first of several.
        path: String,
        /// Number of other outputs that exist too.
        more: usize,
    },
    /// Another live run writes the same output.
    #[error("another run ({run}) is writing to `{path}`")]
    OutputBusy {
        /// The destination of both runs.
        path: String,
        /// The other run's identifier.
        run: String,
    },
    /// A staged file that this run or a later one cannot read again.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The file.
        path: String,
        /// The expected and the found content.
        reason: String,
        /// The remedy.
        hint: String,
    },
    /// A commit that stopped half way and could not be undone at once.
    #[error("the output in `{path}` is committed in part: {source}")]
    UnfinishedCommit {
        /// The destination.
        path: String,
        /// The error that stopped it.
        source: Box<Error>,
    },
    /// The run was asked to stop.
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

    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { action, path: path.as_ref().display().to_string(), source }
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
            other => Error::UserProgram(other),
        }
    }
}

impl From<Error> for tidemill_base::Error {
    fn from(error: Error) -> Self {
        use tidemill_base::Error as Told;
        match error {
            Error::Usage { message, hint } => Told::Usage { message, hint },
            Error::Io { action, path, source } => Told::io(action, path, source),
            Error::Remote(error) => error.into(),
            Error::UserProgram(error) => error.into(),
            Error::RegisteredFormat { format, path, source } => match source.downcast::<Told>() {
                Ok(ours) => *ours,
                // A writer may read sources, too.
                Err(source) => match source.downcast::<tidemill_source::Error>() {
                    Ok(of_source) => (*of_source).into(),
                    Err(source) => Told::RegisteredFormat { format, action: "write", path, source },
                },
            },
            Error::OutputExists { path, more } => Told::OutputExists { path, more },
            Error::OutputBusy { path, run } => Told::OutputBusy { path, run },
            Error::Corrupt { path, reason, hint } => {
                Told::Corrupt { path, offset: None, reason, hint: Some(hint) }
            }
            Error::UnfinishedCommit { path, source } => {
                Told::UnfinishedCommit { path, source: Box::new((*source).into()) }
            }
            Error::Interrupted => Told::Interrupted,
            Error::Internal(message) => Told::Internal(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tidemill_base::Error as Told;

    use super::*;

    #[test]
    fn errors_wrapped_by_writers_keep_their_message() {
        let failed = |source: BoxedHostError| Error::RegisteredFormat {
            format: "pcap".into(),
            path: "a.pcap".into(),
            source,
        };
        let told = |error: Error| Told::from(error).to_string();
        let ours = || Told::usage_with_hint("no such thing", "ask for another");
        let of_source = || tidemill_source::Error::Usage {
            message: "no such thing".into(),
            hint: Some("ask for another".into()),
        };
        for error in [
            Error::io("write", "a.csv", io::Error::other(ours())),
            failed(Box::new(ours())),
            failed(Box::new(of_source())),
            Error::Usage { message: "no such thing".into(), hint: Some("ask for another".into()) },
        ] {
            assert_eq!(told(error), "no such thing\nhint: ask for another");
        }
        assert_eq!(told(failed("no room".into())), "cannot write `a.pcap` as `pcap`: no room");
        let unfinished =
            |source| Error::UnfinishedCommit { path: "out".into(), source: Box::new(source) };
        let stopped = Told::from(unfinished(filter_program::ProgramError::Interrupted.into()));
        assert_eq!(stopped.class(), tidemill_base::ErrorClass::Interrupted);
        let url = "https://user:hush@host/x.csv?sig=hush";
        let message = told(Error::io("write", url, io::ErrorKind::Other.into()));
        assert!(message.contains("host/x.csv") && !message.contains("hush"), "{message}");
    }
}
