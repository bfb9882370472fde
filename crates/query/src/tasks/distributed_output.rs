//! An output whose files workers may write, shared by whoever has it and whoever has workers write.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;
use tidemill_sink::{SinkSpec, WorkerOutputFile, WorkerOutputSpec, WorkerOutputTarget};

/// How long it is waited for an output before it is looked whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An output whose files workers may write. Whoever has it says where, and takes what was written; cloning shares it.
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
    /// Where files are written before they appear, once that is known: none where only this process can write them.
    location: Option<Option<WorkerOutputTarget>>,
    /// The files, and how many rows they have.
    written_files: Option<(u64, Vec<WorkerOutputFile>)>,
    /// Why workers do not write them, though they might.
    warning: Option<String>,
}

impl DistributedOutput {
    /// The output of a query; none of one that only this process can write.
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

    /// Says where its files are written. A query that workers may write waits for that.
    pub fn set_location(&self, place: Option<WorkerOutputTarget>) {
        self.0.state.lock().location = Some(place);
        self.0.location_known.notify_all();
    }

    /// The files that workers have written, and how many rows these have, once the query has ended: then it gave no rows.
    pub fn take_written_files(&self) -> Option<(u64, Vec<WorkerOutputFile>)> {
        self.0.state.lock().written_files.take()
    }

    /// What the user should be told besides.
    pub fn take_warning(&self) -> Option<String> {
        self.0.state.lock().warning.take()
    }

    /// Where its files are written.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
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

    /// What others are told of it.
    pub(super) fn description(&self) -> &WorkerOutputSpec {
        &self.0.description
    }

    /// Notes what was written.
    pub(super) fn set_written_files(&self, rows: u64, files: Vec<WorkerOutputFile>) {
        self.0.state.lock().written_files = Some((rows, files));
    }

    /// How its store is reached.
    pub(super) fn storage_options(&self) -> &StorageOptions {
        &self.0.storage_options
    }

    pub(super) fn set_warning(&self, warning: String) {
        self.0.state.lock().warning = Some(warning);
    }
}
