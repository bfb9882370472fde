//! Stopping a run: one flag that every loop over input looks at.
//!
//! A worker looks once per block (about 1 MiB, a millisecond or two), so that Ctrl-C ends a
//! run well within a second without a check per row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A run was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Called every few milliseconds while something is waited for. That the run is to stop is all that it can
/// say, and ends the wait.
pub type Tick<'a> = &'a mut dyn FnMut() -> Result<(), Interrupted>;

/// A flag shared by all parts of a run; cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    raised: Arc<AtomicBool>,
    above: Option<Arc<Cancel>>,
    /// From when on it is raised by itself.
    until: Option<Instant>,
}

impl Cancel {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag for a part of the run: raised with this one, or by itself.
    #[must_use]
    pub fn part(&self) -> Self {
        Cancel { raised: Arc::default(), above: Some(Arc::new(self.clone())), until: None }
    }

    /// A flag for a part of the run that may take until then: raised with this one, by itself, or when it is time.
    /// Nobody is woken for that; whoever waits looks at it now and then.
    #[must_use]
    pub fn part_until(&self, until: Instant) -> Self {
        Cancel { until: Some(until), ..self.part() }
    }

    /// Asks the run to stop. Safe to call from a signal handler's thread, any number of times.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for those who know nothing of this crate. That of a part does not know of what is above.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.raised)
    }

    /// Whether the run has been asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
            || self.above.as_ref().is_some_and(|above| above.is_cancelled())
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Fails once the run has been asked to stop.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.is_cancelled() { Err(Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Cancel;

    #[test]
    fn a_part_stops_with_the_whole_and_the_whole_not_with_a_part() {
        let whole = Cancel::new();
        let (one, other) = (whole.part(), whole.part());
        one.clone().cancel();
        assert!(one.is_cancelled() && !other.is_cancelled() && !whole.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled() && other.check().is_err());
    }

    #[test]
    fn a_part_that_has_a_time_stops_then() {
        let whole = Cancel::new();
        let now = std::time::Instant::now();
        assert!(whole.part_until(now).part().is_cancelled() && !whole.is_cancelled());
        let long = whole.part_until(now + std::time::Duration::from_secs(3600));
        assert!(!long.is_cancelled());
        whole.cancel();
        assert!(long.is_cancelled());
    }
}
