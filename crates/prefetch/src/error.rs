//! What can go wrong with bytes that are elsewhere.

use std::sync::Arc;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why bytes are not read. Cloning shares the cause: of a block that fails, all who wait for it are
/// told.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object is another one by now.
    #[error("`{path}` changed while it was read: {reason}")]
    ObjectChanged {
        /// The object.
        path: String,
        /// What differs.
        reason: String,
    },
    /// The store refused, or did not answer.
    #[error("cannot read `{path}` at byte {offset}: {source}")]
    Store {
        /// The object.
        path: String,
        /// The first byte that is missing.
        offset: u64,
        /// The store's own words.
        source: Arc<object_store::Error>,
    },
    /// The store's answer has no bytes, or others than were asked for.
    #[error("cannot read `{path}` at byte {offset}: {reason}")]
    InvalidAnswer {
        /// The object.
        path: String,
        /// The first byte that is missing.
        offset: u64,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The disk of the tier refused.
    #[error("cannot {action} the read cache `{path}`: {source}")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// The folder.
        path: String,
        /// The system's own words.
        source: Arc<std::io::Error>,
    },
    /// What another kind of origin says.
    #[error("{0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// An option that makes no sense.
    #[error("{message}\nhint: {hint}")]
    InvalidOption {
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// A wait was given up by whoever waited.
    #[error("interrupted")]
    Interrupted,
    /// The runtime that requests run on has ended.
    #[error("the runtime of the network's requests has ended")]
    RuntimeEnded,
    /// Taken back before it came: whoever wants it asks again.
    #[doc(hidden)]
    #[error("internal error: a block that was taken back was waited for")]
    Evicted,
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Interrupted => std::io::ErrorKind::Interrupted,
            Error::InvalidOption { .. } => std::io::ErrorKind::InvalidInput,
            Error::Disk { source, .. } => source.kind(),
            Error::Store { source, .. } => match source.as_ref() {
                object_store::Error::NotFound { .. } => std::io::ErrorKind::NotFound,
                object_store::Error::PermissionDenied { .. } => {
                    std::io::ErrorKind::PermissionDenied
                }
                _ => std::io::ErrorKind::Other,
            },
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}
