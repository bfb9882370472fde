//! Stopping a sort from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A flag that every loop of a sort looks at, at least every few milliseconds. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct SortCancelFlag(Arc<AtomicBool>);

impl SortCancelFlag {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the sort to stop. Safe in a signal handler, any number of times.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

impl From<Arc<AtomicBool>> for SortCancelFlag {
    /// A flag that somebody else has.
    fn from(flag: Arc<AtomicBool>) -> Self {
        SortCancelFlag(flag)
    }
}
