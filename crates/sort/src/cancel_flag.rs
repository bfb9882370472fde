//! Stopping a sort from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A flag that every loop of a sort checks at least every few milliseconds. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SortCancelFlag(Arc<AtomicBool>);

impl SortCancelFlag {
    /// Creates a flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag. Safe in a signal handler, any number of times.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

impl From<Arc<AtomicBool>> for SortCancelFlag {
    /// Wraps a flag that the caller owns.
    fn from(flag: Arc<AtomicBool>) -> Self {
        SortCancelFlag(flag)
    }
}
