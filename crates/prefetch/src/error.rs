//! Errors of reading remote objects.

use std::sync::Arc;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why bytes cannot be read. Clones share the cause: all readers that wait for a failed block get
/// the same error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object was replaced or removed.
    #[error("`{path}` changed while it was read: {reason}")]
    ObjectChanged {
        /// The object.
        path: String,
        /// The difference.
        reason: String,
    },
    /// The store refused the request, or did not answer.
    #[error("cannot read `{path}` at byte {offset}: {source}")]
    Store {
        /// The object.
        path: String,
        /// Offset of the first missing byte.
        offset: u64,
        /// The store's error.
        source: Arc<object_store::Error>,
    },
    /// The store's answer has no bytes, or not the requested ones.
    #[error("cannot read `{path}` at byte {offset}: {reason}")]
    InvalidAnswer {
        /// The object.
        path: String,
        /// Offset of the first missing byte.
        offset: u64,
        /// The defect of the answer.
        reason: String,
    },
    /// An operation on the disk tier failed.
    #[error("cannot {action} the read cache `{path}`: {source}")]
    Disk {
        /// The operation.
        action: &'static str,
        /// The folder.
        path: String,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// An error of another kind of origin.
    #[error("{0}")]
    Origin(Arc<dyn std::error::Error + Send + Sync>),
    /// An invalid option.
    #[error("{message}\nhint: {hint}")]
    InvalidOption {
        /// The defect of the option.
        message: String,
        /// The remedy.
        hint: String,
    },
    /// The caller's tick function interrupted the wait.
    #[error("interrupted")]
    Interrupted,
    /// The runtime that executes requests has ended.
    #[error("the runtime of the network's requests has ended")]
    RuntimeEnded,
    /// The pool evicted the block before it arrived; the reader requests it again.
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
