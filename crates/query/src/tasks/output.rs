//! An output whose files workers may write, shared by whoever has it and whoever has workers write.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;
use tidemill_sink::{SinkSpec, WorkerOutputFile, WorkerOutputSpec, WorkerOutputTarget};

/// How long it is waited for an output before it is looked whether the run has ended.
const TICK: Duration = Duration::from_millis(50);

/// An output whose files workers may write. Whoever has it says where, and takes what was written; cloning shares it.
#[derive(Debug, Clone)]
pub struct Output(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    said: WorkerOutputSpec,
    storage: StorageOptions,
    state: Mutex<State>,
    is_open: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Where files are written before they appear, once that is known: none where only this process can write them.
    place: Option<Option<WorkerOutputTarget>>,
    /// The files, and how many rows they have.
    written: Option<(u64, Vec<WorkerOutputFile>)>,
    /// Why workers do not write them, though they might.
    warning: Option<String>,
}

impl Output {
    /// The output of a query; none of one that only this process can write.
    pub fn new(spec: &SinkSpec) -> Option<Output> {
        let said = WorkerOutputSpec::from_spec(spec)?;
        let (storage, state) = (spec.storage_options.clone(), Mutex::default());
        let shared = Shared { said, storage, state, is_open: Condvar::new() };
        Some(Output(Arc::new(shared)))
    }

    /// Says where its files are written. A query that workers may write waits for that.
    pub fn open(&self, place: Option<WorkerOutputTarget>) {
        self.0.state.lock().place = Some(place);
        self.0.is_open.notify_all();
    }

    /// The files that workers have written, and how many rows these have, once the query has ended: then it gave no rows.
    pub fn take_written(&self) -> Option<(u64, Vec<WorkerOutputFile>)> {
        self.0.state.lock().written.take()
    }

    /// What the user should be told besides.
    pub fn take_warning(&self) -> Option<String> {
        self.0.state.lock().warning.take()
    }

    /// Where its files are written.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(super) fn place(&self, cancel: &CancelFlag) -> Result<Option<WorkerOutputTarget>> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(place) = &state.place {
                return Ok(place.clone());
            }
            cancel.check()?;
            self.0.is_open.wait_for(&mut state, TICK);
        }
    }

    /// What others are told of it.
    pub(super) fn said(&self) -> &WorkerOutputSpec {
        &self.0.said
    }

    /// Notes what was written.
    pub(super) fn set_written(&self, rows: u64, files: Vec<WorkerOutputFile>) {
        self.0.state.lock().written = Some((rows, files));
    }

    /// How its store is reached.
    pub(super) fn storage(&self) -> &StorageOptions {
        &self.0.storage
    }

    pub(super) fn warn(&self, warning: String) {
        self.0.state.lock().warning = Some(warning);
    }
}
