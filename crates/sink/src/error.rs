//! What can go wrong with an output.

use std::path::Path;

use tidemill_base::BoxedHostError;
use tidemill_base::cancellation::Interrupted;
use tidemill_source::filter_program;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an output is not written. What the user is told of it says [`tidemill_base::Error`], of which each is
/// a variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An output that there cannot be as it is asked for: a path, a format, a column without a place in it.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The operating system refused, or what else takes bytes: its answer may hold one of ours.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The answer.
        source: std::io::Error,
    },
    /// A bucket cannot be named, reached or written to.
    #[error(transparent)]
    Remote(tidemill_remote::Error),
    /// A program that the bytes go through cannot be started, or has failed.
    #[error(transparent)]
    UserProgram(filter_program::ProgramError),
    /// A writer that the program around has registered failed.
    #[error("cannot write `{path}` as `{format}`: {source}")]
    RegisteredFormat {
        /// The format.
        format: String,
        /// The output.
        path: String,
        /// Its error, as it gave it; one of ours where a batch was refused to it.
        source: BoxedHostError,
    },
    /// Something has the output's name, and may not be replaced.
    #[error("`{path}` exists already")]
    OutputExists {
        /// The output, or the first of several.
        path: String,
        /// How many others exist too.
        more: usize,
    },
    /// Another live run writes the same output.
    #[error("another run ({run}) is writing to `{path}`")]
    OutputBusy {
        /// The destination both want.
        path: String,
        /// The other run's identifier.
        run: String,
    },
    /// What a run has staged cannot be read again: by itself, or by whoever goes on from there.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The file.
        path: String,
        /// What was expected and what was found.
        reason: String,
        /// What to do about it.
        hint: String,
    },
    /// A commit stopped half way and could not be taken back at once.
    #[error("the output in `{path}` is committed in part: {source}")]
    UnfinishedCommit {
        /// The destination.
        path: String,
        /// What stopped it.
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
                // A writer may read, too.
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
