//! How do a run's rows reach Python? As Arrow batches through the PyCapsule interface.
//!
//! The consumer of a stream (PyArrow, Polars, DuckDB) may call with or without the
//! interpreter's lock. Each wait for rows releases it and looks at signals in between, so that
//! other Python threads go on and Ctrl-C ends the run. A consumer can only pass on an error's
//! text, so what a signal's handler has raised takes the place of the consumer's error as soon as
//! that reaches Python code (see `_interrupts.py`), and is kept for our own methods to raise.
//! On a thread that the consumer has started itself, as DuckDB does, Python looks at no signals:
//! Ctrl-C comes out when the consumer's own call looks at them.
//!
//! No lock is waited for while the interpreter's is held: the thread that has it may be waiting
//! for the interpreter's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, RecordBatch, RecordBatchReader, StructArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use parking_lot::Mutex;
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};
use tidemill_engine::running::{Next, Running};
use tidemill_engine::sink::{cells, is_number};
use tidemill_engine::types::sql_type;
use tidemill_engine::{Cancel, Coverage, Error};

use crate::errors::{raise, warn};
use crate::values;
use crate::wait::{Display, TICK, Waiter};

/// A coverage as JSON text; `null` before the end.
pub(crate) fn coverage_json(coverage: Option<&Coverage>) -> String {
    serde_json::to_string(&coverage).unwrap_or_else(|_| "null".to_owned())
}

type Shared<T> = Arc<Mutex<Option<T>>>;

/// A run's rows, read once.
struct RowReader {
    running: Running,
    /// Batches that were looked at before they were asked for.
    ahead: VecDeque<RecordBatch>,
    coverage: Shared<Coverage>,
}

impl RowReader {
    fn next(&mut self, waiter: &mut Waiter) -> tidemill_engine::Result<Option<RecordBatch>> {
        if let Some(batch) = self.ahead.pop_front() {
            return Ok(Some(batch));
        }
        self.read(waiter)
    }

    fn read(&mut self, waiter: &mut Waiter) -> tidemill_engine::Result<Option<RecordBatch>> {
        loop {
            waiter.tick()?;
            let next = self.running.next(TICK);
            if let Some(warning) = self.running.take_warning() {
                // That the run is not in the job log is no reason to lose its rows, even
                // where warnings are errors.
                let _ = Python::try_attach(|py| warn(py, &warning));
            }
            match next? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::Waiting => {}
                Next::End => {
                    *self.coverage.lock() = self.running.coverage().cloned();
                    return Ok(None);
                }
            }
        }
    }
}

/// Where a result's rows are.
enum ResultState {
    /// Here, as far as they have not been read.
    Open(Box<RowReader>),
    /// All of them have been read.
    Read,
    /// Somebody else has them.
    HandedOver,
    /// Nowhere: the run has ended with this error.
    Failed(String),
    Closed,
}

impl ResultState {
    fn refusal(&self) -> Error {
        const ONCE: &str = "a result is read once: keep its rows, as in table = result.to_arrow()";
        match self {
            ResultState::Open(_) => Error::Internal("open rows are refused".to_owned()),
            ResultState::Read => {
                Error::usage_hint("the rows of this result have been read already", ONCE)
            }
            ResultState::HandedOver => {
                Error::usage_hint("the rows of this result have been handed over already", ONCE)
            }
            ResultState::Failed(error) => {
                Error::usage(format!("this result has no more rows: its run has failed ({error})"))
            }
            ResultState::Closed => Error::usage("this result is closed"),
        }
    }
}

/// A running query.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawResult {
    schema: SchemaRef,
    state: Mutex<ResultState>,
    is_open: AtomicBool,
    coverage: Shared<Coverage>,
    /// What a consumer of the stream was told in other words.
    failure: Shared<PyErr>,
    cancel: Cancel,
    display: Option<Arc<Display>>,
    /// The process whose threads compute it.
    process: u32,
}

impl RawResult {
    /// Waits for the plan.
    pub fn new(
        py: Python<'_>,
        mut running: Running,
        cancel: Cancel,
        display: Option<Arc<Display>>,
    ) -> PyResult<Self> {
        let mut waiter = Waiter::new(cancel.clone(), display.clone());
        let schema = py.detach(|| running.schema(|| waiter.tick()));
        let schema = waiter.done(py, schema)?;
        let coverage = Shared::default();
        let rows = RowReader { running, ahead: VecDeque::new(), coverage: Arc::clone(&coverage) };
        Ok(RawResult {
            schema,
            state: Mutex::new(ResultState::Open(Box::new(rows))),
            is_open: AtomicBool::new(true),
            coverage,
            failure: Shared::default(),
            cancel,
            display,
            process: std::process::id(),
        })
    }

    /// Does something with the state while the interpreter's lock is released.
    fn with_state<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ResultState, &mut Waiter) -> tidemill_engine::Result<T> + Send,
    ) -> PyResult<T> {
        if self.process != std::process::id() {
            let error = Error::usage_hint(
                "this result belongs to another process",
                "a run does not survive a fork: start the query in the process that reads it",
            );
            return Err(raise(py, error));
        }
        let mut waiter = Waiter::new(self.cancel.clone(), self.display.clone());
        let done = py.detach(|| -> tidemill_engine::Result<T> {
            // Another thread may be reading.
            let mut state = loop {
                if let Some(state) = self.state.try_lock_for(TICK) {
                    break state;
                }
                waiter.tick()?;
                if waiter.is_raised() {
                    return Err(Error::Interrupted);
                }
            };
            let done = work(&mut state, &mut waiter);
            if matches!(&*state, ResultState::Open(_)) {
                if waiter.is_raised() {
                    *state = ResultState::Failed(Error::Interrupted.to_string());
                } else if let Err(error) = &done {
                    *state = ResultState::Failed(error.to_string());
                }
            }
            self.is_open.store(matches!(&*state, ResultState::Open(_)), Ordering::Relaxed);
            done
        });
        waiter.done(py, done)
    }

    /// Does something with the rows while the interpreter's lock is released.
    fn with_rows<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut RowReader, &mut Waiter) -> tidemill_engine::Result<T> + Send,
    ) -> PyResult<T> {
        self.with_state(py, |state, waiter| match state {
            ResultState::Open(rows) => work(rows, waiter),
            other => Err(other.refusal()),
        })
    }
}

impl Drop for RawResult {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A copy that a fork has made. The run is another process's, which records it.
            std::mem::forget(std::mem::replace(self.state.get_mut(), ResultState::Closed));
        }
    }
}

#[pymethods]
impl RawResult {
    /// Hands the rows over as an Arrow C stream, once the first are there: what goes wrong
    /// before that is raised as what it is, not as the consumer's own error.
    #[pyo3(signature = (requested_schema=None))]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = match requested_schema {
            Some(capsule) => requested(&capsule, &self.schema)?,
            None => self.schema.clone(),
        };
        let rows = self.with_state(py, |state, waiter| {
            let ResultState::Open(rows) = state else { return Err(state.refusal()) };
            if rows.ahead.is_empty()
                && let Some(batch) = rows.read(waiter)?
            {
                rows.ahead.push_back(batch);
            }
            if waiter.is_raised() {
                return Err(Error::Interrupted);
            }
            match std::mem::replace(state, ResultState::HandedOver) {
                ResultState::Open(rows) => Ok(rows),
                other => Err(other.refusal()),
            }
        })?;
        let stream = Stream {
            rows,
            schema,
            cancel: self.cancel.clone(),
            display: self.display.clone(),
            failure: Arc::clone(&self.failure),
            ended: false,
        };
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The next batch, or none after the last.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<RawBatch>> {
        let batch = self.with_state(py, |state, waiter| {
            let ResultState::Open(rows) = state else { return Err(state.refusal()) };
            let batch = rows.next(waiter)?;
            if batch.is_none() && !waiter.is_raised() {
                *state = ResultState::Read;
            }
            Ok(batch)
        })?;
        Ok(batch.map(RawBatch::new))
    }

    /// The first `count` rows as cells, left in place, and whether there are more.
    fn peek(
        &self,
        py: Python<'_>,
        count: usize,
        chars_max: usize,
    ) -> PyResult<(Vec<Vec<Option<String>>>, bool)> {
        let (batches, held) = self.with_rows(py, |rows, waiter| {
            let held =
                |rows: &RowReader| rows.ahead.iter().map(RecordBatch::num_rows).sum::<usize>();
            while held(rows) <= count {
                match rows.read(waiter)? {
                    Some(batch) => rows.ahead.push_back(batch),
                    None => break,
                }
            }
            Ok((rows.ahead.clone(), held(rows)))
        })?;
        let shown = || -> tidemill_engine::Result<_> {
            let mut shown = Vec::new();
            for batch in &batches {
                let wanted = (count - shown.len()).min(batch.num_rows());
                shown.append(&mut cells(batch, 0..wanted, chars_max)?);
            }
            Ok((shown, held > count))
        };
        py.detach(shown).map_err(|error| raise(py, error))
    }

    /// Whether rows can still be read.
    #[getter]
    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    #[getter]
    fn schema(&self) -> RawSchema {
        RawSchema { schema: self.schema.clone() }
    }

    /// The coverage as JSON; `null` before all rows have been read.
    #[getter]
    fn coverage(&self) -> String {
        coverage_json(self.coverage.lock().as_ref())
    }

    /// The coverage as one line for people.
    #[getter]
    fn coverage_line(&self) -> Option<String> {
        self.coverage.lock().as_ref().map(Coverage::one_line)
    }

    /// What a consumer of the stream was told in other words.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<Py<PyBaseException>> {
        let failure = self.failure.lock().as_ref().map(|failure| failure.clone_ref(py));
        failure.map(|failure| failure.into_value(py))
    }

    /// Stops the run, if it has not ended; somebody who has the rows gets no more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.coverage.lock().is_none() {
            self.cancel.cancel();
        }
        self.with_state(py, |state, _| {
            if matches!(state, ResultState::Open(_)) {
                *state = ResultState::Closed;
            }
            Ok(())
        })
    }
}

/// Has the Python code that a consumer was called from raise what a signal's handler has raised.
fn raise_soon(py: Python<'_>, error: &PyErr) {
    let raise_soon = || -> PyResult<bool> {
        let module = py.import("tidemill._interrupts")?;
        module.call_method1("raise_soon", (error.value(py),))?.extract()
    };
    let is_heard = raise_soon().unwrap_or(false);
    if !is_heard && error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // A thread of the consumer's own: the main thread hears of it as of another Ctrl-C.
        // SAFETY: it only notes the signal, and may be called from any thread.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
    }
}

/// The rows of a result, pulled by whoever holds the C stream.
struct Stream {
    rows: Box<RowReader>,
    schema: SchemaRef,
    cancel: Cancel,
    display: Option<Arc<Display>>,
    failure: Shared<PyErr>,
    ended: bool,
}

impl Stream {
    fn pull(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut waiter = Waiter::new(self.cancel.clone(), self.display.clone());
        let rows = &mut self.rows;
        let mut is_raised = false;
        // Held or not, the interpreter's lock is free during the wait.
        let next = Python::try_attach(|py| {
            let next = py.detach(|| rows.next(&mut waiter));
            is_raised = waiter.is_raised();
            // What is shown stays until the stream ends: pulls follow one another.
            match waiter.raised() {
                Some(raised) => Err(raised),
                None => next.map_err(|error| raise(py, error)),
            }
        });
        let next = next.unwrap_or_else(|| Err(PyKeyboardInterrupt::new_err(())));
        let batch = next.map_err(|error| {
            self.cancel.cancel();
            let text = Python::try_attach(|py| {
                if is_raised {
                    // First: what is set for the next Python code is not for the display's.
                    self.clear();
                    raise_soon(py, &error);
                }
                let text = match is_raised || error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    true => Error::Interrupted.to_string(),
                    false => error.value(py).to_string(),
                };
                *self.failure.lock() = Some(error);
                text
            });
            // The C interface has no room for a NUL.
            ArrowError::ComputeError(text.unwrap_or_default().replace('\0', "\u{fffd}"))
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
        if self.ended {
            self.clear();
        }
        next
    }
}

impl Stream {
    fn clear(&self) {
        let Some(display) = &self.display else { return };
        Python::try_attach(|py| {
            // A stream that is let go of because its consumer fails: what it fails with waits.
            let pending = PyErr::take(py);
            if let Err(raised) = display.clear(py) {
                raise_soon(py, &raised);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.clear();
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
    // Not `safe`, which is Arrow's word for nulls instead of errors.
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    let columns =
        columns.map(|(column, field)| cast_with_options(column, field.data_type(), &exactly));
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

/// The columns of a result or a source.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawSchema {
    pub schema: SchemaRef,
}

#[pymethods]
impl RawSchema {
    /// Of each column the name, the type in SQL's and in Arrow's words, and whether it is a
    /// number.
    fn columns(&self) -> Vec<(String, String, String, bool)> {
        let fields = self.schema.fields().iter();
        let column = |name: &String, kind: &arrow::datatypes::DataType| {
            (name.clone(), sql_type(kind), kind.to_string(), is_number(kind))
        };
        fields.map(|field| column(field.name(), field.data_type())).collect()
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

impl RawBatch {
    pub fn new(batch: RecordBatch) -> Self {
        RawBatch { batch }
    }
}

#[pymethods]
impl RawBatch {
    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    #[getter]
    fn schema(&self) -> RawSchema {
        RawSchema { schema: self.batch.schema() }
    }

    /// The rows as dictionaries.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        values::rows(py, &self.batch)
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
