//! The error type of this crate.

use tidemill_base::cancellation::Interrupted;
use tidemill_base::redaction::escape_control_chars;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a remote read or write. [`tidemill_base::Error`] has a variant for each of these, and defines
/// the text that the user sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid URL, key or storage option.
    #[error("{message}")]
    Usage {
        /// Description of the problem, without secrets.
        message: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The server has no such object.
    #[error("no such object: `{path}`")]
    NotFound {
        /// URL of the object, without secrets.
        path: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// A server refused, or did not answer.
    #[error("cannot {action} `{url}`: {reason}")]
    Remote {
        /// The attempted action, as an infinitive: `read`, `list`, `write`.
        action: &'static str,
        /// URL of the object, without secrets.
        url: String,
        /// Offset of the failed read in the object, in bytes.
        offset: Option<u64>,
        /// HTTP status of the response, if there was one.
        status: Option<u16>,
        /// Message of the server or the network, with the number of attempts.
        reason: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The object was replaced or removed since it was listed.
    #[error("`{path}` changed while it was read: {reason}")]
    Changed {
        /// URL of the object, without secrets.
        path: String,
        /// Difference from the listed version.
        reason: String,
    },
    /// The target exists and must not be replaced.
    #[error("`{path}` exists already")]
    Exists {
        /// Path or URL of the target.
        path: String,
    },
    /// Another process writes the same target.
    #[error("another run is writing to `{path}`")]
    Busy {
        /// Path or URL of the target.
        path: String,
    },
    /// The received bytes do not match the server's checksum or size.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// URL of the object.
        path: String,
        /// Difference from the expected content.
        reason: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The operating system refused an action, such as starting network threads or writing a log file.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
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

    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<std::path::Path>,
        source: std::io::Error,
    ) -> Self {
        Error::Io { action, path: path.as_ref().display().to_string(), source }
    }

    /// Returns a copy of the error, for each of several readers that wait for the same block.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Error::Usage { message, hint } => {
                Error::Usage { message: message.clone(), hint: hint.clone() }
            }
            Error::NotFound { path, hint } => {
                Error::NotFound { path: path.clone(), hint: hint.clone() }
            }
            Error::Remote { action, url, offset, status, reason, hint } => Error::Remote {
                action,
                url: url.clone(),
                offset: *offset,
                status: *status,
                reason: reason.clone(),
                hint: hint.clone(),
            },
            Error::Changed { path, reason } => {
                Error::Changed { path: path.clone(), reason: reason.clone() }
            }
            Error::Exists { path } => Error::Exists { path: path.clone() },
            Error::Busy { path } => Error::Busy { path: path.clone() },
            Error::Corrupt { path, reason, hint } => {
                let (path, reason) = (path.clone(), reason.clone());
                Error::Corrupt { path, reason, hint: hint.clone() }
            }
            Error::Io { action, path, source } => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                Error::Io { action, path: path.clone(), source }
            }
            Error::Interrupted => Error::Interrupted,
            Error::Internal(message) => Error::Internal(message.clone()),
        }
    }

    pub(crate) fn usage_with_hint(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { message: message.into(), hint: Some(hint.into()) }
    }
}

impl From<Interrupted> for Error {
    fn from(Interrupted: Interrupted) -> Self {
        Error::Interrupted
    }
}

/// Unwraps the error of this crate that `tidemill_prefetch` carried unchanged.
impl From<tidemill_prefetch::Error> for Error {
    fn from(error: tidemill_prefetch::Error) -> Self {
        match error {
            tidemill_prefetch::Error::Interrupted => Error::Interrupted,
            tidemill_prefetch::Error::Origin(error) => match error.downcast_ref::<Error>() {
                Some(own) => own.duplicate(),
                None => Error::Internal(error.to_string()),
            },
            other => Error::Internal(other.to_string()),
        }
    }
}

/// Wraps an error of an object for its way through the prefetch pool.
impl From<Error> for tidemill_prefetch::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted => tidemill_prefetch::Error::Interrupted,
            other => tidemill_prefetch::Error::Origin(std::sync::Arc::new(other)),
        }
    }
}

/// Control characters in paths and URLs become visible escapes, as in the output of `ls`.
impl From<Error> for tidemill_base::Error {
    fn from(error: Error) -> Self {
        use tidemill_base::Error as Told;
        let named = |path: String| escape_control_chars(&path, &[]);
        match error {
            Error::Usage { message, hint } => Told::Usage { message, hint },
            Error::NotFound { path, hint } => Told::NotFound { path: named(path), hint },
            Error::Remote { action, url, offset, status, reason, hint } => {
                Told::Remote { action, url: named(url), offset, status, reason, hint }
            }
            Error::Changed { path, reason } => Told::FileChanged { path: named(path), reason },
            Error::Exists { path } => Told::OutputExists { path: named(path), more: 0 },
            Error::Busy { path } => {
                Told::OutputBusy { path: named(path), run: "of another process".into() }
            }
            Error::Corrupt { path, reason, hint } => {
                Told::Corrupt { path: named(path), offset: None, reason, hint }
            }
            Error::Io { action, path, source } => Told::io(action, named(path), source),
            Error::Interrupted => Told::Interrupted,
            Error::Internal(message) => Told::Internal(message),
        }
    }
}
