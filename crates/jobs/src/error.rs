//! The error type of the job log.

use std::path::Path;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the job log. The message for users is that of [`tidemill_base::Error`], which has each of
/// these variants.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A period, a run or a group that is invalid or unknown.
    #[error("{message}")]
    Usage {
        /// The mistake.
        message: String,
        /// Hint for correcting it.
        hint: Option<String>,
    },
    /// An error of the operating system.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A record that this release cannot read.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The segment of the log.
        path: String,
        /// Offset in the segment in bytes.
        offset: u64,
        /// The expected and the found value.
        reason: String,
        /// Hint for the user.
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
