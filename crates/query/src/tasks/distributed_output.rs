//! An output whose files workers may write, shared between the code that commits it and the query that fills
//! it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;
use tidemill_sink::{SinkSpec, WorkerOutputFile, WorkerOutputSpec, WorkerOutputTarget};

/// Poll interval for the output's location and cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An output whose files workers may write. Its owner sets the location and takes the written files. Clones
/// share it.
#[derive(Debug, Clone)]
pub struct DistributedOutput(Arc<SharedOutput>);

#[derive(Debug)]
struct SharedOutput {
    description: WorkerOutputSpec,
    storage_options: StorageOptions,
    state: Mutex<OutputState>,
    location_known: Condvar,
}

#[derive(Debug, Default)]
struct OutputState {
    /// The location of files before they are committed. The outer `None` is for "not set yet"; the inner one
    /// means that only this process can write them.
    location: Option<Option<WorkerOutputTarget>>,
    /// The row count of the written files, and the files.
    written_files: Option<(u64, Vec<WorkerOutputFile>)>,
    /// The reason why workers do not write the files although they could.
    warning: Option<String>,
}

impl DistributedOutput {
    /// Creates the shared output of a query, or returns `None` if only this process can write it.
    pub fn new(spec: &SinkSpec) -> Option<DistributedOutput> {
        let said = WorkerOutputSpec::from_spec(spec)?;
        let (storage, state) = (spec.storage_options.clone(), Mutex::default());
        let shared = SharedOutput {
            description: said,
            storage_options: storage,
            state,
            location_known: Condvar::new(),
        };
        Some(DistributedOutput(Arc::new(shared)))
    }

    /// Sets the location of the files. A query whose output workers may write waits for it.
    pub fn set_location(&self, place: Option<WorkerOutputTarget>) {
        self.0.state.lock().location = Some(place);
        self.0.location_known.notify_all();
    }

    /// Takes the files that workers have written, with their row count, after the query has ended. Such a
    /// query returns no rows.
    pub fn take_written_files(&self) -> Option<(u64, Vec<WorkerOutputFile>)> {
        self.0.state.lock().written_files.take()
    }

    /// Takes the warning for the user, if there is one.
    pub fn take_warning(&self) -> Option<String> {
        self.0.state.lock().warning.take()
    }

    /// Waits for the location of the files and returns it.
    ///
    /// # Errors
    /// [`Error::Interrupted`](tidemill_base::error::Error::Interrupted).
    pub(super) fn wait_for_location(
        &self,
        cancel: &CancelFlag,
    ) -> Result<Option<WorkerOutputTarget>> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(place) = &state.location {
                return Ok(place.clone());
            }
            cancel.check()?;
            self.0.location_known.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Returns the description of the output that workers get.
    pub(super) fn description(&self) -> &WorkerOutputSpec {
        &self.0.description
    }

    /// Records the written files and their row count.
    pub(super) fn set_written_files(&self, rows: u64, files: Vec<WorkerOutputFile>) {
        self.0.state.lock().written_files = Some((rows, files));
    }

    /// Returns the options with which its store is reached.
    pub(super) fn storage_options(&self) -> &StorageOptions {
        &self.0.storage_options
    }

    pub(super) fn set_warning(&self, warning: String) {
        self.0.state.lock().warning = Some(warning);
    }
}
