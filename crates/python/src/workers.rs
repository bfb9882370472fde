//! How do tasks reach workers elsewhere, and what is a worker there?
//!
//! Whoever starts processes is a Python object ([`Called`]); what runs in them is a [`RawWorker`]. Jobs, tasks and parts are
//! bytes to Python.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tidemill_engine::query::{Done, Handed, HandedFile, HandedJob, Reach, Workers};
use tidemill_engine::remote::StorageOptions;
use tidemill_engine::{Cancel, Error, Result, Settings, Worker};

use crate::errors::raise;

/// A job as one process does its tasks.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawWorker {
    worker: Worker,
    cancel: Cancel,
}

#[pymethods]
impl RawWorker {
    /// Plans a job.
    #[new]
    #[pyo3(signature = (job, memory_bytes, threads, spill_dirs, storage, files = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "what Python gives by name")]
    fn new(
        py: Python<'_>,
        job: PyBackedBytes,
        memory_bytes: u64,
        threads: usize,
        spill_dirs: Vec<PathBuf>,
        storage: BTreeMap<String, String>,
        files: Vec<(String, PathBuf)>,
    ) -> PyResult<Self> {
        let cancel = Cancel::new();
        let defaults = Settings::new(memory_bytes);
        let spill_dirs =
            if spill_dirs.is_empty() { defaults.spill_dirs.clone() } else { spill_dirs };
        let settings = Settings { threads, spill_dirs, cancel: cancel.clone(), ..defaults };
        let planned = py.detach(|| -> Result<Worker> {
            let mut options = StorageOptions::default();
            for (name, value) in storage {
                options.set(&name, value)?;
            }
            Worker::new(&job, &settings, &options, &files)
        });
        Ok(RawWorker { worker: planned.map_err(|error| raise(py, error))?, cancel })
    }

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    fn run<'py>(&self, py: Python<'py>, task: PyBackedBytes) -> Bound<'py, PyBytes> {
        let part = py.detach(|| self.worker.run(&task));
        PyBytes::new(py, &part)
    }

    /// Ends the task that is being done, and all others.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// Workers that a Python object reaches: it has `reach()`, which
/// gives how many machines, workers and threads there are and whether all are on this machine, `begin(job, secrets, paths)`, with files that programs find by name behind these, `submit(number, attempt, bytes, name, content)`,
/// `next(seconds)`, which gives `None` or `(number, attempt, part, None, worker)` or `(number, attempt, None, why, worker)`, and `end()`.
#[derive(Debug)]
pub(crate) struct Called {
    object: Py<PyAny>,
}

impl Called {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Called { object }
    }

    fn failed(py: Python<'_>, error: PyErr) -> Error {
        let message = error.value(py).to_string();
        match message.split_once("\nhint: ") {
            Some((message, hint)) => Error::usage_hint(message, hint),
            None => Error::Query(format!("the cluster failed: {message}")),
        }
    }
}

impl Workers for Called {
    fn reach(&self) -> Result<Reach> {
        Python::attach(|py| {
            let called = self.object.bind(py).call_method0("reach");
            let told = called.and_then(|told| told.extract::<(usize, usize, usize, bool)>());
            let told = told.map_err(|error| Self::failed(py, error))?;
            let (machines, workers, threads, is_here) = told;
            Ok(Reach { machines, workers, threads, is_here })
        })
    }

    fn begin(&self, job: HandedJob) -> Result<()> {
        Python::attach(|py| {
            let HandedJob { content, secrets, paths, files } = job;
            let content = PyBytes::new(py, &content);
            let files = files.into_iter().map(|file| {
                let HandedFile { name, path, shown, bytes, modified_ns, is_executable } = file;
                (name, path.display().to_string(), shown, bytes, modified_ns, is_executable)
            });
            let files: Vec<_> = files.collect();
            let object = self.object.bind(py);
            let called = match files.is_empty() {
                true => object.call_method1("begin", (content, secrets, paths)),
                false => object.call_method1("begin", (content, secrets, paths, files)),
            };
            called.map(drop).map_err(|error| Self::failed(py, error))
        })
    }

    fn submit(&self, task: Handed) -> Result<()> {
        Python::attach(|py| {
            let Handed { number, attempt, bytes, name, content } = task;
            let arguments = (number, attempt, bytes, name, PyBytes::new(py, &content));
            let called = self.object.bind(py).call_method1("submit", arguments);
            called.map(drop).map_err(|error| Self::failed(py, error))
        })
    }

    fn next(&self, wait: Duration) -> Result<Option<Done>> {
        type Told = Option<(usize, usize, Option<Vec<u8>>, Option<String>, String)>;
        Python::attach(|py| {
            let called = self.object.bind(py).call_method1("next", (wait.as_secs_f64(),));
            let told = called.and_then(|told| told.extract::<Told>());
            let told = told.map_err(|error| Self::failed(py, error))?;
            Ok(told.map(|(number, attempt, part, why, worker)| Done {
                number,
                attempt,
                worker: Some(worker),
                outcome: part.ok_or_else(|| why.unwrap_or_default()),
            }))
        })
    }

    fn end(&self) {
        Python::attach(|py| {
            // What is left of the job is nobody's any more.
            let _ = self.object.bind(py).call_method0("end");
        });
    }
}
