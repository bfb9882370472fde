//! What can go wrong with the job log.

use std::path::Path;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a record is not kept, or not found. What the user is told of it says
/// [`tidemill_base::Error`], of which each is a variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A period, a run or a group that is not understood, or that there is none of.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The operating system refused.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A record that this release does not read.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The segment of the log.
        path: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What was expected and what was found.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
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

    pub(crate) fn from_io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Error::Io { action, path: path.display().to_string(), source }
    }
}

impl From<Error> for tidemill_base::Error {
    fn from(error: Error) -> Self {
        use tidemill_base::Error as Told;
        match error {
            Error::Usage { message, hint } => Told::Usage { message, hint },
            Error::Io { action, path, source } => Told::io(action, path, source),
            Error::Corrupt { path, offset, reason, hint } => {
                Told::Corrupt { path, offset: Some(offset), reason, hint }
            }
            Error::Internal(message) => Told::Internal(message),
        }
    }
}
