//! What requests meet that are repeated, for whoever does not wait until nobody repeats them any more.
//!
//! A store that repeats what a server refuses says so only when it gives up, which may take minutes. It knows nothing of who
//! asks, so what is met goes past it, with the task that fetches.

use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static MET: Met;
}

/// The last failure of some requests; cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Met(Arc<Mutex<Option<String>>>);

impl Met {
    /// The last failure, in words: `the server answered with status 500`.
    pub fn last(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Forgets it.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Notes one.
    pub fn note(&self, failure: &str) {
        *self.0.lock() = Some(failure.to_owned());
    }

    /// Does work whose requests' failures are noted here.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        MET.scope(self.clone(), work).await
    }
}

/// Notes a failure for whoever the task works for.
pub fn note(failure: &str) {
    // Of others nobody asks.
    let _ = MET.try_with(|met| met.note(failure));
}
