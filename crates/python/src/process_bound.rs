//! Values that belong to one process and must not be used after a fork.
//!
//! A fork copies memory but no threads, so a child that waits for such a thread, or joins it, waits forever
//! or crashes. A value with threads behind it belongs to the process that created it. Any other process
//! refuses to use it, and drops it without contacting the threads.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;
use tidemill_engine::Error;

use crate::errors::to_exception;

/// A value that depends on threads of the process that created it.
#[derive(Debug)]
pub(crate) struct ProcessBound<T> {
    inner: ManuallyDrop<T>,
    process_id: u32,
}

impl<T> ProcessBound<T> {
    /// Creates a value that belongs to this process.
    pub(crate) fn new(inner: T) -> Self {
        ProcessBound { inner: ManuallyDrop::new(inner), process_id: std::process::id() }
    }

    /// Returns true in the process that created the value.
    pub(crate) fn is_in_owner_process(&self) -> bool {
        self.process_id == std::process::id()
    }

    /// Refuses a process that has only a copy of the value.
    ///
    /// # Errors
    /// [`Error::Usage`] with the message and the hint.
    pub(crate) fn require_owner_process(
        &self,
        py: Python<'_>,
        message: &str,
        hint: &str,
    ) -> PyResult<()> {
        match self.is_in_owner_process() {
            true => Ok(()),
            false => Err(to_exception(py, Error::usage_with_hint(message, hint))),
        }
    }
}

impl<T> Deref for ProcessBound<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        // A copy made by a fork is freed when the process ends.
        if self.is_in_owner_process() {
            // SAFETY: the value is not used again.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}
