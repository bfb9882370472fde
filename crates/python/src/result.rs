//! How do a run's rows reach Python? As Arrow batches through the PyCapsule interface.
//!
//! The consumer of a stream (PyArrow, Polars, DuckDB) may call with or without the
//! interpreter's lock. Each wait for rows releases it and looks at signals in between, so that
//! other Python threads go on and Ctrl-C ends the run. A consumer can only pass on an error's
//! text, so the signal is raised once more for the interpreter to see when the consumer
//! returns to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use tidemill_engine::running::{Next, Running};
use tidemill_engine::sink::{OutputFormat, stdout_writer};
use tidemill_engine::types::sql_type;
use tidemill_engine::{Cancel, Coverage, Error};

use crate::errors::{raise, warn};

const LOOK: Duration = Duration::from_millis(50);

/// Looks at signals while a thread without the interpreter's lock waits.
#[derive(Default)]
pub struct Waiter(Option<PyErr>);

impl Waiter {
    /// An error once a signal's handler has raised something.
    pub fn look(&mut self) -> tidemill_engine::Result<()> {
        // Not attached: the interpreter is ending, and so is what waits.
        match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) => Ok(()),
            Some(Err(raised)) => {
                self.0 = Some(raised);
                Err(Error::Interrupted)
            }
            None => Err(Error::Interrupted),
        }
    }

    /// What the handler raised.
    pub fn raised(self) -> Option<PyErr> {
        self.0
    }
}

/// A coverage as JSON text; `null` before the end.
pub fn coverage_json(coverage: Option<&Coverage>) -> String {
    serde_json::to_string(&coverage).unwrap_or_else(|_| "null".to_owned())
}

type SharedCoverage = Arc<Mutex<Option<Coverage>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run's rows, read once.
struct Rows {
    running: Running,
    /// Batches that were looked at before they were asked for.
    ahead: VecDeque<RecordBatch>,
    coverage: SharedCoverage,
}

impl Rows {
    fn next(&mut self, waiter: &mut Waiter) -> tidemill_engine::Result<Option<RecordBatch>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Ok(Some(batch));
        }
        self.read(waiter)
    }

    fn read(&mut self, waiter: &mut Waiter) -> tidemill_engine::Result<Option<RecordBatch>> {
        loop {
            waiter.look()?;
            let next = self.running.next(LOOK);
            if let Some(warning) = self.running.take_warning() {
                // That the run is not in the job log is no reason to lose its rows, even
                // where warnings are errors.
                let _ = Python::try_attach(|py| warn(py, &warning));
            }
            match next? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::Waiting => {}
                Next::End => {
                    *lock(&self.coverage) = self.running.coverage().cloned();
                    return Ok(None);
                }
            }
        }
    }
}

/// A running query.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawResult {
    schema: SchemaRef,
    rows: Mutex<Option<Rows>>,
    coverage: SharedCoverage,
    cancel: Cancel,
}

impl RawResult {
    /// Waits for the plan.
    pub fn new(py: Python<'_>, mut running: Running, cancel: Cancel) -> PyResult<Self> {
        let mut waiter = Waiter::default();
        let schema = match py.detach(|| running.schema(|| waiter.look())) {
            Ok(schema) => schema,
            Err(error) => return Err(waiter.raised().unwrap_or_else(|| raise(py, error))),
        };
        let coverage = SharedCoverage::default();
        let rows = Rows { running, ahead: VecDeque::new(), coverage: coverage.clone() };
        Ok(RawResult { schema, rows: Mutex::new(Some(rows)), coverage, cancel })
    }

    /// Does something with the rows while the interpreter's lock is released.
    fn with_rows<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Rows, &mut Waiter) -> tidemill_engine::Result<T> + Send,
    ) -> PyResult<T> {
        let mut waiter = Waiter::default();
        let done = py.detach(|| {
            let mut rows = lock(&self.rows);
            rows.as_mut().map(|rows| work(rows, &mut waiter))
        });
        match done {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(waiter.raised().unwrap_or_else(|| raise(py, error))),
            None => Err(raise(py, already_read())),
        }
    }
}

fn already_read() -> Error {
    Error::usage_hint(
        "the rows of this result have been handed over already",
        "a result is read once: keep it, as in table = pyarrow.table(result)",
    )
}

#[pymethods]
impl RawResult {
    /// Hands the rows over as an Arrow C stream, once the first are there: what goes wrong
    /// before that is raised as what it is, not as the consumer's own error.
    fn stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = match requested_schema {
            Some(capsule) => requested(&capsule, &self.schema)?,
            None => self.schema.clone(),
        };
        self.with_rows(py, |rows, waiter| {
            if rows.ahead.is_empty()
                && let Some(batch) = rows.read(waiter)?
            {
                rows.ahead.push_back(batch);
            }
            Ok(())
        })?;
        let rows = lock(&self.rows).take().ok_or_else(|| raise(py, already_read()))?;
        let stream = Stream { rows, schema, cancel: self.cancel.clone(), ended: false };
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The next batch, or none after the last.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<RawBatch>> {
        let batch = self.with_rows(py, Rows::next)?;
        Ok(batch.map(|batch| RawBatch { batch }))
    }

    /// The first `count` rows as JSON lines, left in place, and whether there are more.
    fn peek(&self, py: Python<'_>, count: usize) -> PyResult<(String, bool)> {
        let schema = self.schema.clone();
        self.with_rows(py, move |rows, waiter| {
            let held = |rows: &Rows| rows.ahead.iter().map(RecordBatch::num_rows).sum::<usize>();
            while held(rows) <= count {
                match rows.read(waiter)? {
                    Some(batch) => rows.ahead.push_back(batch),
                    None => break,
                }
            }
            let mut writer = stdout_writer(OutputFormat::Json, schema, None, Vec::new())?;
            let mut left = count;
            for batch in &rows.ahead {
                let wanted = left.min(batch.num_rows());
                writer.write(&batch.slice(0, wanted))?;
                left -= wanted;
            }
            let text = String::from_utf8_lossy(&writer.finish()?).into_owned();
            Ok((text, held(rows) > count))
        })
    }

    /// Whether the rows have been handed over.
    fn is_taken(&self) -> bool {
        lock(&self.rows).is_none()
    }

    #[getter]
    fn schema(&self) -> RawSchema {
        RawSchema { schema: self.schema.clone() }
    }

    /// The coverage as JSON; `null` before all rows have been read.
    #[getter]
    fn coverage(&self) -> String {
        coverage_json(lock(&self.coverage).as_ref())
    }

    /// Stops the run.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

/// The rows of a result, pulled by whoever holds the C stream.
struct Stream {
    rows: Rows,
    schema: SchemaRef,
    cancel: Cancel,
    ended: bool,
}

impl Stream {
    fn pull(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut waiter = Waiter::default();
        let rows = &mut self.rows;
        // Held or not, the interpreter's lock is free during the wait.
        let next = Python::try_attach(|py| py.detach(|| rows.next(&mut waiter)));
        let next = next.unwrap_or(Err(Error::Interrupted));
        let batch = next.map_err(|error| {
            self.cancel.cancel();
            if waiter.raised().is_some() {
                // SAFETY: it only notes the signal, and may be called from any thread.
                unsafe { pyo3::ffi::PyErr_SetInterrupt() };
            }
            // The C interface has no room for a NUL.
            ArrowError::ComputeError(error.to_string().replace('\0', "\u{fffd}"))
        })?;
        batch.map(|batch| conformed(&batch, &self.schema)).transpose()
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.pull().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
}

/// The types that the consumer would like, under our names.
fn requested(capsule: &Bound<'_, PyCapsule>, ours: &SchemaRef) -> PyResult<SchemaRef> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds a valid schema, and outlives this borrow of it.
    let wanted = Schema::try_from(unsafe { pointer.as_ref() }).map_err(in_python)?;
    let fits = wanted.fields().len() == ours.fields().len()
        && wanted.fields().iter().zip(ours.fields()).all(|(wanted, ours)| {
            arrow::compute::can_cast_types(ours.data_type(), wanted.data_type())
        });
    if !fits {
        return Err(PyValueError::new_err("the requested schema does not fit the result's"));
    }
    let fields = wanted.fields().iter().zip(ours.fields());
    let fields = fields
        .map(|(wanted, ours)| ours.as_ref().clone().with_data_type(wanted.data_type().clone()));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

fn in_python(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The columns of a result.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawSchema {
    schema: SchemaRef,
}

#[pymethods]
impl RawSchema {
    /// Names and SQL types in order.
    fn columns(&self) -> Vec<(String, String)> {
        let fields = self.schema.fields().iter();
        fields.map(|field| (field.name().clone(), sql_type(field.data_type()))).collect()
    }

    fn capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(in_python)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

/// Some rows of a result.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawBatch {
    batch: RecordBatch,
}

#[pymethods]
impl RawBatch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn capsules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let data = StructArray::from(self.batch.clone()).to_data();
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) =
            to_ffi(&data).map_err(in_python)?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}
