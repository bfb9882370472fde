//! Tasks for workers elsewhere, the worker itself, and the answers of a master.
//!
//! A Python object starts the worker processes ([`PythonWorkerPool`]); a [`RawWorker`] runs in each of them.
//! Jobs, tasks and results are bytes to Python. So are requests to a master and its answers: a
//! [`RawAnswering`] turns the former into the latter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tidemill_engine::posted_query::master_client::{MasterClient, MasterStateFile};
use tidemill_engine::posted_query::query_execution::{
    PostedRun, ValidatedPostedQuery, encode_began_frame, encode_failed_frame, encode_waiting_frame,
    validate_posted_query,
};
use tidemill_engine::query::{
    ShippedFile, SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool,
};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::{CancelFlag, ClusterTaskExecutor, Error, Result, RunSettings};

use crate::errors::to_exception;
use crate::interruptible_wait::run_on_thread;

/// A worker: executes tasks of one job in this process.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawWorker {
    worker: ClusterTaskExecutor,
    cancel: CancelFlag,
}

#[pymethods]
impl RawWorker {
    /// Plans a job.
    #[new]
    #[pyo3(signature = (job, memory_bytes, threads, spill_dirs, storage, files = Vec::new()))]
    fn new(
        py: Python<'_>,
        job: PyBackedBytes,
        memory_bytes: u64,
        threads: usize,
        spill_dirs: Vec<PathBuf>,
        storage: BTreeMap<String, String>,
        files: Vec<(String, PathBuf)>,
    ) -> PyResult<Self> {
        let cancel = CancelFlag::new();
        let defaults = RunSettings::new(memory_bytes);
        let spill_dirs =
            if spill_dirs.is_empty() { defaults.spill_dirs.clone() } else { spill_dirs };
        let settings = RunSettings { threads, spill_dirs, cancel: cancel.clone(), ..defaults };
        let planned = py.detach(|| -> Result<ClusterTaskExecutor> {
            let mut options = StorageOptions::default();
            for (name, value) in storage {
                options.set(&name, value)?;
            }
            ClusterTaskExecutor::new(&job, &settings, &options, &files)
        });
        Ok(RawWorker { worker: planned.map_err(|error| to_exception(py, error))?, cancel })
    }

    /// Executes a task; `copy` is the number of workers that were given it before. Returns a message to the
    /// driver, with the result or the error.
    #[pyo3(signature = (task, copy = 0))]
    fn run<'py>(&self, py: Python<'py>, task: PyBackedBytes, copy: usize) -> Bound<'py, PyBytes> {
        let part = py.detach(|| self.worker.run_task_copy(&task, copy));
        PyBytes::new(py, &part)
    }

    /// Ends the current task and all later ones.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// Workers that a Python object reaches. The object has these methods:
///
/// - `reach()` returns the numbers of machines, workers and threads, and whether all are on this machine.
/// - `begin(job, secrets, paths)` starts a job. A fourth argument has the files that programs find by name,
///   if any.
/// - `submit(number, attempt, bytes, name, content)` submits a task.
/// - `next(seconds)` returns `None`, `(number, attempt, part, None, worker)` or `(number, attempt, None, why,
///   worker)`.
/// - `end()` ends the job.
#[derive(Debug)]
pub(crate) struct PythonWorkerPool {
    object: Py<PyAny>,
}

impl PythonWorkerPool {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        PythonWorkerPool { object }
    }

    fn cluster_error(py: Python<'_>, error: PyErr) -> Error {
        let message = error.value(py).to_string();
        match message.split_once("\nhint: ") {
            Some((message, hint)) => Error::usage_with_hint(message, hint),
            None => Error::Query(format!("the cluster failed: {message}")),
        }
    }
}

impl WorkerPool for PythonWorkerPool {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        Python::attach(|py| {
            let called = self.object.bind(py).call_method0("reach");
            let told = called.and_then(|told| told.extract::<(usize, usize, usize, bool)>());
            let told = told.map_err(|error| Self::cluster_error(py, error))?;
            let (machines, workers, threads, is_here) = told;
            Ok(WorkerCounts { machines, workers, threads, is_here })
        })
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        Python::attach(|py| {
            let SubmittedJob {
                encoded_job: content,
                secrets,
                shared_paths: paths,
                shipped_files: files,
            } = job;
            let content = PyBytes::new(py, &content);
            let files = files.into_iter().map(|file| {
                let ShippedFile { name, path, shown, bytes, modified_ns, is_executable } = file;
                (name, path.display().to_string(), shown, bytes, modified_ns, is_executable)
            });
            let files: Vec<_> = files.collect();
            let object = self.object.bind(py);
            let called = match files.is_empty() {
                true => object.call_method1("begin", (content, secrets, paths)),
                false => object.call_method1("begin", (content, secrets, paths, files)),
            };
            called.map(drop).map_err(|error| Self::cluster_error(py, error))
        })
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        Python::attach(|py| {
            let SubmittedTask {
                number,
                attempt,
                cost_bytes: bytes,
                display_name: name,
                encoded_task: content,
            } = task;
            let arguments = (number, attempt, bytes, name, PyBytes::new(py, &content));
            let called = self.object.bind(py).call_method1("submit", arguments);
            called.map(drop).map_err(|error| Self::cluster_error(py, error))
        })
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        type TaskOutcomeTuple = Option<(usize, usize, Option<Vec<u8>>, Option<String>, String)>;
        Python::attach(|py| {
            let called = self.object.bind(py).call_method1("next", (wait.as_secs_f64(),));
            let told = called.and_then(|told| told.extract::<TaskOutcomeTuple>());
            let told = told.map_err(|error| Self::cluster_error(py, error))?;
            Ok(told.map(|(number, attempt, part, why, worker)| TaskOutcome {
                number,
                attempt,
                worker_name: Some(worker),
                result: part.ok_or_else(|| why.unwrap_or_default()),
            }))
        })
    }

    fn end_job(&self) {
        Python::attach(|py| {
            // An error at the end affects nobody.
            let _ = self.object.bind(py).call_method0("end");
        });
    }
}

/// Confines this process to files below folders, and to no user programs unless it may run them.
#[pyfunction]
pub(crate) fn confine(
    py: Python<'_>,
    folders: Vec<PathBuf>,
    may_run_programs: bool,
) -> PyResult<()> {
    let confined = tidemill_engine::source::confine_process(&folders, may_run_programs);
    confined.map_err(|error| to_exception(py, error.into()))
}

/// A request to a master, and its answer.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawAnswering {
    /// None after [`begin`](Self::begin).
    judged: Mutex<Option<ValidatedPostedQuery>>,
    answering: Mutex<Option<PostedRun>>,
    cancel: CancelFlag,
    enough: CancelFlag,
    /// Priority 0, 1 or 2; the highest runs first.
    #[pyo3(get)]
    priority: u8,
    #[pyo3(get)]
    verb: String,
    #[pyo3(get)]
    shown: String,
}

#[pymethods]
impl RawAnswering {
    /// Parses and checks a request.
    #[new]
    fn new(py: Python<'_>, question: PyBackedBytes, may_run_programs: bool) -> PyResult<Self> {
        let judged = py.detach(|| validate_posted_query(&question, may_run_programs));
        let judged = judged.map_err(|error| to_exception(py, error))?;
        Ok(RawAnswering {
            priority: judged.priority as u8,
            verb: judged.verb.clone(),
            shown: judged.displayed_statement.clone(),
            judged: Mutex::new(Some(judged)),
            answering: Mutex::new(None),
            cancel: CancelFlag::new(),
            enough: CancelFlag::new(),
        })
    }

    /// Starts the run with workers that a Python object reaches.
    fn begin(&self, py: Python<'_>, workers: Py<PyAny>, memory_bytes: u64) -> PyResult<()> {
        let judged = self.judged.lock().take();
        let judged =
            judged.ok_or_else(|| to_exception(py, Error::usage("it was begun already")))?;
        let (cancel, enough) = (self.cancel.clone(), self.enough.clone());
        let settings =
            RunSettings { cancel, stop_reading: enough, ..RunSettings::new(memory_bytes) };
        let workers: Arc<dyn WorkerPool> = Arc::new(PythonWorkerPool::new(workers));
        let begun = py.detach(|| PostedRun::start(judged, workers, settings));
        *self.answering.lock() = Some(begun.map_err(|error| to_exception(py, error))?);
        Ok(())
    }

    /// Returns the next frames, empty bytes if none come within `seconds`, or `None` after the last frame.
    fn next<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let frames = py.detach(|| match self.answering.lock().as_mut() {
            Some(answering) if !answering.has_ended() => answering.next_frames(limit).map(Some),
            _ => Ok(None),
        });
        let frames = frames.map_err(|error| to_exception(py, error))?;
        Ok(frames.map(|frames| PyBytes::new(py, &frames)))
    }

    /// Ends the run.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns true after the last frame was returned.
    fn has_ended(&self, py: Python<'_>) -> bool {
        py.detach(|| self.answering.lock().as_ref().is_some_and(PostedRun::has_ended))
    }

    /// Returns true if the last frame reported an error.
    fn has_failed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.answering.lock().as_ref().is_some_and(PostedRun::has_failed))
    }

    /// Accepts the current interim result as the result.
    fn is_enough(&self) {
        self.enough.cancel();
    }

    /// Returns the frame that names the master's job.
    #[staticmethod]
    fn began(py: Python<'_>, id: u64) -> PyResult<Bound<'_, PyBytes>> {
        let frame = encode_began_frame(id).map_err(|error| to_exception(py, error))?;
        Ok(PyBytes::new(py, &frame))
    }

    /// Returns the frame that says that a run waits for its turn.
    #[staticmethod]
    fn waiting(py: Python<'_>, before: usize) -> PyResult<Bound<'_, PyBytes>> {
        let frame = encode_waiting_frame(before).map_err(|error| to_exception(py, error))?;
        Ok(PyBytes::new(py, &frame))
    }

    /// Returns the frame that reports an error of the master itself.
    #[staticmethod]
    fn failed<'py>(py: Python<'py>, why: &str) -> PyResult<Bound<'py, PyBytes>> {
        let error = match why.split_once("\nhint: ") {
            Some((message, hint)) => Error::usage_with_hint(message, hint),
            None => Error::Query(format!("the master failed: {why}")),
        };
        let frame = encode_failed_frame(error).map_err(|error| to_exception(py, error))?;
        Ok(PyBytes::new(py, &frame))
    }
}

/// Sends a request to a master and returns its JSON response. `what` is `status`, `jobs`, or `down`, which
/// ends the master. All but `status` use the admin token if there is one.
#[pyfunction]
#[pyo3(signature = (address, what, token_file = None, admin_token_file = None))]
pub(crate) fn ask_master(
    py: Python<'_>,
    address: String,
    what: String,
    token_file: Option<PathBuf>,
    admin_token_file: Option<PathBuf>,
) -> PyResult<String> {
    let cancel = CancelFlag::new();
    let flag = cancel.clone();
    let told = run_on_thread(py, cancel, move || {
        let (file, admin_file) = (token_file.as_deref(), admin_token_file.as_deref());
        let master = match what.as_str() {
            "status" => MasterClient::find(&address, file)?,
            _ => MasterClient::find_admin(&address, file, admin_file)?,
        };
        if what != "down" {
            return master.fetch_status(&what, &flag);
        }
        let told = master.shut_down(&flag)?;
        MasterStateFile::remove_for_master(&master)?;
        Ok(told)
    });
    Ok(told?.to_string())
}

/// Returns the query token or the admin token of the master that was started on this machine, if any.
#[pyfunction]
#[pyo3(signature = (admin = false))]
pub(crate) fn master_token(py: Python<'_>, admin: bool) -> PyResult<Option<String>> {
    let left = MasterStateFile::load().map_err(|error| to_exception(py, error))?;
    Ok(left.map(|left| match admin {
        true => left.admin_token().to_owned(),
        false => left.token,
    }))
}
