//! Cancellation of a run: one flag that every loop over input checks.
//!
//! A worker checks it once per block (about 1 MiB, a millisecond or two), so that Ctrl-C ends a
//! run well within a second without a check per row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The error of a run that was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A callback that a waiting function calls every few milliseconds. Its only error, [`Interrupted`], ends
/// the wait.
pub type WaitCallback<'a> = &'a mut dyn FnMut() -> Result<(), Interrupted>;

/// A cancellation flag shared by all parts of a run; clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag {
    raised: Arc<AtomicBool>,
    parent: Option<Arc<CancelFlag>>,
    /// The time from which the flag counts as raised.
    deadline: Option<Instant>,
}

impl CancelFlag {
    /// Creates a flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a flag for a part of the run: raised with this one, or by itself.
    #[must_use]
    pub fn child_flag(&self) -> Self {
        CancelFlag { raised: Arc::default(), parent: Some(Arc::new(self.clone())), deadline: None }
    }

    /// Creates a flag for a part of the run with a deadline: raised with this one, by itself, or at `until`.
    /// The deadline wakes nobody: a waiting thread has to check the flag now and then.
    #[must_use]
    pub fn child_flag_with_deadline(&self, until: Instant) -> Self {
        CancelFlag { deadline: Some(until), ..self.child_flag() }
    }

    /// Asks the run to stop. Safe to call from a signal handler's thread, any number of times.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Returns the bare atomic flag, for code without access to this crate. A child's atomic flag does not
    /// reflect its parent.
    pub fn atomic_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.raised)
    }

    /// Returns true if the run has been asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|above| above.is_cancelled())
            || self.deadline.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns an error once the run has been asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_cancelled() { Err(Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::CancelFlag;

    #[test]
    fn child_stops_with_parent_but_parent_not_with_child() {
        let whole = CancelFlag::new();
        let (one, other) = (whole.child_flag(), whole.child_flag());
        one.clone().cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !whole.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled() && other.check().is_err());
    }

    #[test]
    fn child_with_deadline_stops_at_deadline() {
        let whole = CancelFlag::new();
        let now = std::time::Instant::now();
        assert!(
            whole.child_flag_with_deadline(now).child_flag().is_cancelled()
                && !whole.is_cancelled()
        );
        let long = whole.child_flag_with_deadline(now + std::time::Duration::from_secs(3600));
        assert!(!long.is_cancelled());
        whole.cancel();
        assert!(long.is_cancelled());
    }
}
