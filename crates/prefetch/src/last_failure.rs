//! The last failure of requests that a store retries, for callers that cannot wait for the final error.
//!
//! A store that retries refused requests reports a failure only when it gives up, which may take minutes. The
//! store does not know its caller, so the failure bypasses it in a task-local of the fetching task.

use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static LAST_FAILURE: LastFailure;
}

/// The last failure of some requests. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct LastFailure(Arc<Mutex<Option<String>>>);

impl LastFailure {
    /// Returns the description of the last failure, such as `the server answered with status 500`.
    pub fn message(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Forgets the failure.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Records a failure, in place of the one before.
    pub fn record(&self, failure: &str) {
        *self.0.lock() = Some(failure.to_owned());
    }

    /// Runs `work` and records the failures of its requests here.
    pub async fn record_during<T>(&self, work: impl Future<Output = T>) -> T {
        LAST_FAILURE.scope(self.clone(), work).await
    }
}

/// Records a failure in the [`LastFailure`] of the current task.
pub fn record_failure(failure: &str) {
    // Other tasks have none, and nobody asks for their failures.
    let _ = LAST_FAILURE.try_with(|met| met.record(failure));
}
