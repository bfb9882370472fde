//! Whose threads are they? A fork copies memory and none of the threads, so that whoever waits for one in the child, or joins
//! it, waits for ever or breaks down. What has threads behind it belongs to the process that made it: anywhere else it is
//! refused, and let go of without a word to them.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;
use tidemill_engine::Error;

use crate::errors::to_exception;

/// Something that threads of one process work at.
#[derive(Debug)]
pub(crate) struct ProcessBound<T> {
    inner: ManuallyDrop<T>,
    process_id: u32,
}

impl<T> ProcessBound<T> {
    /// Of this process.
    pub(crate) fn new(inner: T) -> Self {
        ProcessBound { inner: ManuallyDrop::new(inner), process_id: std::process::id() }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_in_owner_process(&self) -> bool {
        self.process_id == std::process::id()
    }

    /// Refuses a process that has merely a copy of it.
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
        // What a fork has copied goes with the process.
        if self.is_in_owner_process() {
            // SAFETY: nothing looks at it again.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}
