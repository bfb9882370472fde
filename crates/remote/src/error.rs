//! What can go wrong with what is elsewhere.

use tidemill_base::cancellation::Interrupted;
use tidemill_base::redaction::escape_control_chars;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something elsewhere is not read or written. What the user is told of it says
/// [`tidemill_base::Error`], of which each is a variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A URL, a key or a storage option that makes no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong, without a secret.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The server has no such object.
    #[error("no such object: `{path}`")]
    NotFound {
        /// Its URL, without what may be secret in it.
        path: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A server refused, or did not answer.
    #[error("cannot {action} `{url}`: {reason}")]
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
    /// The object is another one by now.
    #[error("`{path}` changed while it was read: {reason}")]
    Changed {
        /// Its URL, without what may be secret in it.
        path: String,
        /// What differs.
        reason: String,
    },
    /// What is to be written exists, and may not be replaced.
    #[error("`{path}` exists already")]
    Exists {
        /// Its path or URL.
        path: String,
    },
    /// Another process writes the same.
    #[error("another run is writing to `{path}`")]
    Busy {
        /// Its path or URL.
        path: String,
    },
    /// Bytes that are not those that the server vouches for.
    #[error("`{path}` is damaged: {reason}")]
    Corrupt {
        /// The object.
        path: String,
        /// What differs.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The operating system refused: threads for the network, a note of an upload.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The attempted action, as an infinitive.
        action: &'static str,
        /// The object of the action.
        path: String,
        /// The operating system's answer.
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

    /// The same once more: of a block that fails, all who wait for it are told.
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

/// What an object's own bytes could not be read for comes back as it was.
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

/// An object's own error, on its way through those who wait for it.
impl From<Error> for tidemill_prefetch::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted => tidemill_prefetch::Error::Interrupted,
            other => tidemill_prefetch::Error::Origin(std::sync::Arc::new(other)),
        }
    }
}

/// Names are told with what a terminal would obey made visible, as `ls` shows them.
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
