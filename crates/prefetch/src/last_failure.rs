//! What requests meet that are repeated, for whoever does not wait until nobody repeats them any more.
//!
//! A store that repeats what a server refuses says so only when it gives up, which may take minutes. It knows nothing of who
//! asks, so what is met goes past it, with the task that fetches.

use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static LAST_FAILURE: LastFailure;
}

/// The last failure of some requests; cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct LastFailure(Arc<Mutex<Option<String>>>);

impl LastFailure {
    /// The last failure, in words: `the server answered with status 500`.
    pub fn message(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Forgets it.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Notes one.
    pub fn record(&self, failure: &str) {
        *self.0.lock() = Some(failure.to_owned());
    }

    /// Does work whose requests' failures are noted here.
    pub async fn record_during<T>(&self, work: impl Future<Output = T>) -> T {
        LAST_FAILURE.scope(self.clone(), work).await
    }
}

/// Notes a failure for whoever the task works for.
pub fn record_failure(failure: &str) {
    // Of others nobody asks.
    let _ = LAST_FAILURE.try_with(|met| met.record(failure));
}
