//! Rows of a run for Python: Arrow batches through the PyCapsule interface.
//!
//! The consumer of a stream (PyArrow, Polars, DuckDB) may call with or without the
//! interpreter's lock. Each wait for rows releases it and checks signals in between, so that
//! other Python threads proceed and Ctrl-C ends the run. A consumer can only pass on an error's
//! text. Therefore an exception of a signal handler replaces the consumer's error as soon as
//! that reaches Python code (see `_interrupts.py`), and is kept for our own methods to raise.
//! On a thread that the consumer started itself, as DuckDB does, Python checks no signals:
//! Ctrl-C takes effect when the consumer's own call checks them.
//!
//! No code waits for a lock while it holds the interpreter's lock: the thread that has the former may be
//! waiting for the latter.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{Array, ArrayData, RecordBatch, RecordBatchReader, StructArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use parking_lot::Mutex;
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyTuple};
use tidemill_engine::column_types::sql_type_name;
use tidemill_engine::coverage::format_decimal_bytes;
use tidemill_engine::remote::{self, ReadStats};
use tidemill_engine::run_handle::{RunEvent, RunHandle};
use tidemill_engine::sink::{displayed_columns, format_cells, is_numeric_type};
use tidemill_engine::{CancelFlag, Coverage, Error};

use crate::errors::{issue_warning, to_exception};
use crate::file_access::stats_dict;
use crate::interruptible_wait::{ProgressDisplay, SIGNAL_CHECK_INTERVAL, SignalWaiter};
use crate::ipc;
use crate::process_bound::ProcessBound;
use crate::values;

/// Returns a coverage as JSON; `null` before the end of the run.
pub(crate) fn coverage_json(coverage: Option<&Coverage>) -> String {
    serde_json::to_string(&coverage).unwrap_or_else(|_| "null".to_owned())
}

type SharedSlot<T> = Arc<Mutex<Option<T>>>;

/// Divisor of the memory budget that gives the bytes for rows that may be read again.
const REREAD_BUDGET_DIVISOR: u64 = 4;

/// The memory of retained batches. A buffer that several batches share counts once.
struct RetainedMemory {
    counted_buffers: HashSet<usize>,
    bytes: u64,
    limit_bytes: u64,
}

impl RetainedMemory {
    /// Charges a batch; returns true if the limit still holds.
    fn charge_batch(&mut self, batch: &RecordBatch) -> bool {
        batch.columns().iter().for_each(|column| self.charge_array(&column.to_data()));
        self.bytes <= self.limit_bytes
    }

    fn charge_array(&mut self, data: &ArrayData) {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            if self.counted_buffers.insert(buffer.data_ptr().as_ptr() as usize) {
                self.bytes += buffer.capacity() as u64;
            }
        }
        data.child_data().iter().for_each(|child| self.charge_array(child));
    }
}

/// The rows of a run: the retained batches, and the batches to come.
///
/// Each reader has the number of the batch that it needs next. Batches are retained for readers that start
/// from the beginning, until they exceed the memory limit. From then on a batch is dropped once a reader has
/// received it.
struct RunRows {
    /// `None` once all rows have arrived.
    running: Option<RunHandle>,
    retained_batches: VecDeque<RecordBatch>,
    /// Number of the first retained batch.
    first_retained: u64,
    /// `None` once the rows have exceeded the limit.
    retained_memory: Option<RetainedMemory>,
    limit_bytes: u64,
    /// Number of rows that have arrived.
    rows_received: u64,
    /// True once the run has failed.
    has_failed: bool,
    coverage: SharedSlot<Coverage>,
    stats: SharedSlot<ReadStats>,
    /// Statistics of remote reads of this process before the run.
    stats_before: ReadStats,
}

impl RunRows {
    /// Returns the batch of this number, or `None` after the last.
    fn batch(
        &mut self,
        number: u64,
        waiter: &mut SignalWaiter,
    ) -> tidemill_engine::Result<Option<RecordBatch>> {
        self.require_retained(number)?;
        let batch = loop {
            let at = usize::try_from(number - self.first_retained).ok();
            if let Some(batch) = at.and_then(|at| self.retained_batches.get(at)) {
                break batch.clone();
            }
            if !self.fetch(waiter)? {
                return Ok(None);
            }
        };
        if self.retained_memory.is_none() {
            while self.first_retained <= number && self.retained_batches.pop_front().is_some() {
                self.first_retained += 1;
            }
        }
        Ok(Some(batch))
    }

    /// Refuses a reader whose next batch was dropped.
    fn require_retained(&self, number: u64) -> tidemill_engine::Result<()> {
        if number >= self.first_retained {
            return Ok(());
        }
        Err(Error::usage_with_hint(
            format!(
                "the rows of this result have been read already, and take more than the {} that \
                 are kept for reading them again",
                format_decimal_bytes(self.limit_bytes)
            ),
            "keep them yourself, as in table = result.to_arrow(), write them with output=, ask \
             again, or give more memory=, a quarter of which is for this",
        ))
    }

    /// Waits for one more batch; returns true if there was one.
    fn fetch(&mut self, waiter: &mut SignalWaiter) -> tidemill_engine::Result<bool> {
        loop {
            if let Err(interrupted) = waiter.check_signals() {
                self.has_failed = true;
                return Err(interrupted.into());
            }
            if let Some(has_come) = self.fetch_within(SIGNAL_CHECK_INTERVAL)? {
                return Ok(has_come);
            }
        }
    }

    /// Waits for all rows as long as they are retained; returns true if all have arrived.
    fn fetch_all(&mut self, waiter: &mut SignalWaiter) -> tidemill_engine::Result<bool> {
        while self.retained_memory.is_some() && !waiter.has_exception() {
            if !self.fetch(waiter)? {
                return Ok(true);
            }
        }
        Ok(self.running.is_none())
    }

    /// Adds a batch that has arrived.
    fn accept_batch(&mut self, batch: RecordBatch) {
        self.rows_received += batch.num_rows() as u64;
        if self.retained_memory.as_mut().is_some_and(|room| !room.charge_batch(&batch)) {
            self.retained_memory = None;
        }
        self.retained_batches.push_back(batch);
    }

    /// Waits for one more batch like [`fetch`](Self::fetch); returns `None` if nothing happens within
    /// `limit`.
    fn fetch_within(&mut self, limit: Duration) -> tidemill_engine::Result<Option<bool>> {
        let Some(running) = &mut self.running else { return Ok(Some(false)) };
        let next = running.next_event(limit);
        if let Some(warning) = running.take_warning() {
            // A missing job log entry is no reason to lose the rows, even
            // where warnings are errors.
            let _ = Python::try_attach(|py| issue_warning(py, &warning));
        }
        match next {
            Ok(RunEvent::Batch(batch)) => {
                self.accept_batch(batch);
                Ok(Some(true))
            }
            Ok(RunEvent::NothingYet | RunEvent::InterimResult(_)) => Ok(None),
            Ok(RunEvent::End) => {
                *self.stats.lock() = Some(remote::read_stats().delta_since(&self.stats_before));
                *self.coverage.lock() = running.coverage().cloned();
                self.running = None;
                Ok(Some(false))
            }
            Err(error) => {
                self.has_failed = true;
                Err(error)
            }
        }
    }
}

/// The state of a result's rows.
enum ResultState {
    /// The rows are available.
    Open(Box<RunRows>),
    /// The run has failed with this error.
    Failed(String),
    Closed,
}

impl ResultState {
    /// Returns the rows, if they are available.
    fn rows(&mut self) -> tidemill_engine::Result<&mut RunRows> {
        match self {
            ResultState::Open(rows) => Ok(rows),
            ResultState::Failed(error) => Err(Error::usage(format!(
                "this result has no more rows: its run has failed ({error})"
            ))),
            ResultState::Closed => Err(Error::usage("this result is closed")),
        }
    }
}

/// The state that a result shares with the streams of its rows.
struct ResultCore {
    /// Bound to the process whose threads compute and record the run.
    state: ProcessBound<Mutex<ResultState>>,
    /// True if rows can be read from the first on.
    is_open: AtomicBool,
    /// True once the result was closed, or the caller that waited for it gave up.
    is_stopped: AtomicBool,
    coverage: SharedSlot<Coverage>,
    stats: SharedSlot<ReadStats>,
    /// The exception whose text a consumer of a stream received.
    consumer_exception: SharedSlot<PyErr>,
    cancel: CancelFlag,
    display: Option<Arc<ProgressDisplay>>,
}

impl ResultCore {
    fn waiter(&self) -> SignalWaiter {
        SignalWaiter::new(self.cancel.clone(), self.display.clone())
    }

    /// Calls `work` with the state, without the interpreter's lock.
    fn with_state<T>(
        &self,
        waiter: &mut SignalWaiter,
        work: impl FnOnce(&mut ResultState, &mut SignalWaiter) -> tidemill_engine::Result<T>,
    ) -> tidemill_engine::Result<T> {
        // Another thread may hold the lock while it reads.
        let mut state = loop {
            if let Some(state) = self.state.try_lock_for(SIGNAL_CHECK_INTERVAL) {
                break state;
            }
            waiter.check_signals()?;
            if waiter.has_exception() {
                return Err(Error::Interrupted);
            }
        };
        let mut done = work(&mut state, waiter);
        // For another reader, closing the result is no interrupt by Ctrl-C.
        if matches!(done, Err(Error::Interrupted))
            && self.is_stopped.load(Ordering::Relaxed)
            && !waiter.has_exception()
        {
            *state = ResultState::Closed;
            done = state.rows().and(Err(Error::Interrupted));
        }
        if let ResultState::Open(rows) = &*state {
            if waiter.has_exception() {
                *state = ResultState::Failed(Error::Interrupted.to_string());
            } else if let (true, Err(error)) = (rows.has_failed, &done) {
                *state = ResultState::Failed(error.to_string());
            }
        }
        let is_open = matches!(&*state, ResultState::Open(rows) if rows.first_retained == 0);
        self.is_open.store(is_open, Ordering::Relaxed);
        done
    }

    /// Calls `work` with the state from Python, and converts errors to exceptions.
    fn with_state_from_python<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ResultState, &mut SignalWaiter) -> tidemill_engine::Result<T> + Send,
    ) -> PyResult<T> {
        self.require_owner_process(py)?;
        let mut waiter = self.waiter();
        let done = py.detach(|| self.with_state(&mut waiter, work));
        waiter.finish(py, done)
    }

    fn require_owner_process(&self, py: Python<'_>) -> PyResult<()> {
        self.state.require_owner_process(py, "this result belongs to another process", NO_FORK_HINT)
    }
}

const NO_FORK_HINT: &str =
    "a run does not survive a fork: start the query in the process that reads it";

/// The first rows as cells, whether there are more, and the number of rows if it is known.
type PeekedRows = (Vec<Vec<Option<String>>>, bool, Option<u64>);

/// A running query.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawResult {
    schema: SchemaRef,
    /// True if displays leave out the columns of bounds, because these equal the values.
    hides_bounds: bool,
    core: Arc<ResultCore>,
}

impl RawResult {
    /// Creates a result, and waits for its schema. A part of `memory_bytes` is for rows that may be read
    /// again.
    pub fn new(
        py: Python<'_>,
        mut running: RunHandle,
        cancel: CancelFlag,
        display: Option<Arc<ProgressDisplay>>,
        memory_bytes: u64,
        before: ReadStats,
    ) -> PyResult<Self> {
        let mut waiter = SignalWaiter::new(cancel.clone(), display.clone());
        let schema = py.detach(|| running.wait_for_schema(|| waiter.check_signals()));
        let schema = waiter.finish(py, schema)?;
        let hides_bounds = running.has_added_bounds();
        let (coverage, stats) = (SharedSlot::default(), SharedSlot::default());
        let limit_bytes = memory_bytes / REREAD_BUDGET_DIVISOR;
        let rows = RunRows {
            running: Some(running),
            retained_batches: VecDeque::new(),
            first_retained: 0,
            retained_memory: Some(RetainedMemory {
                counted_buffers: HashSet::new(),
                bytes: 0,
                limit_bytes,
            }),
            limit_bytes,
            rows_received: 0,
            has_failed: false,
            coverage: Arc::clone(&coverage),
            stats: Arc::clone(&stats),
            stats_before: before,
        };
        let core = ResultCore {
            state: ProcessBound::new(Mutex::new(ResultState::Open(Box::new(rows)))),
            is_open: AtomicBool::new(true),
            is_stopped: AtomicBool::new(false),
            coverage,
            stats,
            consumer_exception: SharedSlot::default(),
            cancel,
            display,
        };
        Ok(RawResult { schema, hides_bounds, core: Arc::new(core) })
    }
}

impl RawResult {
    /// Creates a result of existing batches with their coverage.
    fn from_batches(schema: SchemaRef, batches: Vec<RecordBatch>, coverage: Coverage) -> Self {
        let coverage = Arc::new(Mutex::new(Some(coverage)));
        let stats = Arc::new(Mutex::new(Some(ReadStats::default())));
        let rows = RunRows {
            running: None,
            rows_received: batches.iter().map(|batch| batch.num_rows() as u64).sum(),
            retained_batches: batches.into(),
            first_retained: 0,
            retained_memory: Some(RetainedMemory {
                counted_buffers: HashSet::new(),
                bytes: 0,
                limit_bytes: u64::MAX,
            }),
            limit_bytes: u64::MAX,
            has_failed: false,
            coverage: Arc::clone(&coverage),
            stats: Arc::clone(&stats),
            stats_before: ReadStats::default(),
        };
        let core = ResultCore {
            state: ProcessBound::new(Mutex::new(ResultState::Open(Box::new(rows)))),
            is_open: AtomicBool::new(true),
            is_stopped: AtomicBool::new(false),
            coverage,
            stats,
            consumer_exception: SharedSlot::default(),
            cancel: CancelFlag::new(),
            display: None,
        };
        RawResult { schema, hides_bounds: false, core: Arc::new(core) }
    }
}

/// The interim results of a query, one after the other; the last is the final result.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawAnswers {
    /// `None` after the final result, and during a wait for an answer.
    running: ProcessBound<Mutex<Option<Box<WatchedRun>>>>,
    cancel: CancelFlag,
    /// True after the final result: closing the answers does not stop it.
    is_result_given: AtomicBool,
    is_closed: AtomicBool,
}

/// A run that gives interim results.
struct WatchedRun {
    running: RunHandle,
    cancel: CancelFlag,
    display: Option<Arc<ProgressDisplay>>,
    memory_bytes: u64,
    stats_before: ReadStats,
}

impl RawAnswers {
    pub(crate) fn new(
        running: RunHandle,
        cancel: CancelFlag,
        display: Option<Arc<ProgressDisplay>>,
        memory_bytes: u64,
        before: ReadStats,
    ) -> Self {
        let own = cancel.clone();
        let watched = WatchedRun { running, cancel, display, memory_bytes, stats_before: before };
        RawAnswers {
            running: ProcessBound::new(Mutex::new(Some(Box::new(watched)))),
            cancel: own,
            is_result_given: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    fn require_owner_process(&self, py: Python<'_>) -> PyResult<()> {
        self.running.require_owner_process(
            py,
            "these answers belong to another process",
            NO_FORK_HINT,
        )
    }
}

/// Number of rows of the final result that are awaited before it is returned: an interim result has no more
/// rows.
const AWAITED_RESULT_ROWS: u64 = 10_000;

#[pymethods]
impl RawAnswers {
    /// Returns the next answer, and whether it is the final result; `None` after that. A small final result
    /// is complete.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(RawResult, bool)>> {
        self.require_owner_process(py)?;
        let Some(mut watched) = py.detach(|| self.running.lock().take()) else { return Ok(None) };
        let mut waiter = SignalWaiter::new(watched.cancel.clone(), watched.display.clone());
        let next = py.detach(|| {
            watched.running.wait_for_schema(|| waiter.check_signals())?;
            loop {
                waiter.check_signals()?;
                match watched.running.next_event(SIGNAL_CHECK_INTERVAL)? {
                    RunEvent::NothingYet => {}
                    // An interim result without rows only announces that others may follow.
                    RunEvent::InterimResult(glimpse) if glimpse.bytes_read_share == 0.0 => {}
                    next => return Ok(next),
                }
            }
        });
        // Closing the answers on another thread is no interrupt: it ends them.
        let is_closed = self.is_closed.load(Ordering::Relaxed) && !waiter.has_exception();
        if matches!(next, Err(Error::Interrupted)) && is_closed {
            waiter.finish(py, Ok(()))?;
            return Ok(None);
        }
        match waiter.finish(py, next)? {
            RunEvent::InterimResult(glimpse) => {
                py.detach(|| *self.running.lock() = Some(watched));
                let glimpse = *glimpse;
                let answer =
                    RawResult::from_batches(glimpse.schema, glimpse.batches, glimpse.coverage);
                Ok(Some((answer, false)))
            }
            next => {
                self.is_result_given.store(true, Ordering::Relaxed);
                let WatchedRun { running, cancel, display, memory_bytes, stats_before } = *watched;
                let result =
                    RawResult::new(py, running, cancel, display, memory_bytes, stats_before)?;
                result.core.with_state_from_python(py, |state, waiter| {
                    let rows = state.rows()?;
                    if let RunEvent::Batch(batch) = next {
                        rows.accept_batch(batch);
                    }
                    while rows.rows_received <= AWAITED_RESULT_ROWS
                        && rows.retained_memory.is_some()
                        && !waiter.has_exception()
                    {
                        if !rows.fetch(waiter)? {
                            break;
                        }
                    }
                    Ok(())
                })?;
                Ok(Some((result, true)))
            }
        }
    }

    /// Stops the run; no more answers follow. A thread that waits for one ends its wait.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.require_owner_process(py)?;
        if !self.is_result_given.load(Ordering::Relaxed) {
            self.is_closed.store(true, Ordering::Relaxed);
            self.cancel.cancel();
        }
        py.detach(|| drop(self.running.lock().take()));
        Ok(())
    }
}

#[pymethods]
impl RawResult {
    /// Exports the rows as an Arrow C stream, once the first have arrived: an error
    /// before that is raised as it is, and not as the consumer's own error.
    #[pyo3(signature = (requested_schema=None))]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = match requested_schema {
            Some(capsule) => import_requested_schema(&capsule, &self.schema)?,
            None => self.schema.clone(),
        };
        self.core.with_state_from_python(py, |state, waiter| {
            let rows = state.rows()?;
            rows.require_retained(0)?;
            if rows.retained_batches.is_empty() {
                rows.fetch(waiter)?;
            }
            Ok(())
        })?;
        let core = Arc::clone(&self.core);
        let stream = ResultStream { core, schema, next_batch: 0, has_ended: false };
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns the batch of this number, or `None` after the last.
    fn batch(&self, py: Python<'_>, number: u64) -> PyResult<Option<RawBatch>> {
        let batch = self
            .core
            .with_state_from_python(py, |state, waiter| state.rows()?.batch(number, waiter))?;
        Ok(batch.map(RawBatch::new))
    }

    /// Waits until all rows have arrived, and retains them.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.core.with_state_from_python(py, |state, waiter| {
            let rows = state.rows()?;
            rows.require_retained(0)?;
            if rows.fetch_all(waiter)? {
                return Ok(());
            }
            Err(Error::usage_with_hint(
                format!(
                    "the rows of this result take more than the {} that are kept of them",
                    format_decimal_bytes(rows.limit_bytes)
                ),
                "read them a batch at a time, as in `async for batch in result`, write them with \
                 output=, or give more memory=, a quarter of which is for this",
            ))
        })
    }

    /// Returns all rows as [bytes](ipc::encode_batches), and retains them; it waits until all have arrived.
    fn to_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let batches = self.core.with_state_from_python(py, |state, waiter| {
            let rows = state.rows()?;
            rows.require_retained(0)?;
            if rows.fetch_all(waiter)? {
                return Ok(rows.retained_batches.iter().cloned().collect::<Vec<_>>());
            }
            Err(Error::usage_with_hint(
                format!(
                    "cannot pickle this result: its rows take more than the {} that are kept of them",
                    format_decimal_bytes(rows.limit_bytes)
                ),
                "write them with output= and send the file's name, or give more memory=, a quarter of which is for this",
            ))
        })?;
        let batches = batches.iter().map(|batch| cast_to_schema(batch, &self.schema));
        let batches = batches.collect::<Result<Vec<_>, _>>().map_err(to_value_error)?;
        ipc::encode_batches(py, &self.schema, &batches)
    }

    /// Creates a result of the rows that [`to_ipc`](Self::to_ipc) returned, and of a coverage as JSON.
    #[staticmethod]
    fn from_ipc(py: Python<'_>, rows: &Bound<'_, PyBytes>, coverage: &str) -> PyResult<Self> {
        let (schema, batches) = ipc::decode_batches(rows.as_bytes())?;
        let coverage = serde_json::from_str(coverage).map_err(|error| {
            to_exception(py, Error::usage(format!("no coverage of a result: {error}")))
        })?;
        Ok(RawResult::from_batches(schema, batches, coverage))
    }

    /// Returns the coverage as JSON. It waits until all rows have arrived, and retains them.
    fn final_coverage(&self, py: Python<'_>) -> PyResult<String> {
        if self.core.coverage.lock().is_none() {
            self.core.with_state_from_python(py, |state, waiter| {
                let rows = state.rows()?;
                if rows.fetch_all(waiter)? {
                    return Ok(());
                }
                Err(Error::usage_with_hint(
                    format!(
                        "what this result rests on is known once its rows have been read, and they \
                         take more than the {} that are kept of them",
                        format_decimal_bytes(rows.limit_bytes)
                    ),
                    "read them first, as in `for batch in result`, write them with output=, or give \
                     more memory=, a quarter of which is for this",
                ))
            })?;
        }
        Ok(self.coverage())
    }

    /// Returns the first `count` rows as cells without consuming them, whether there are more, and the number
    /// of rows if it is known. Returns `None` if other callers are waiting for rows, unless
    /// `waits_for_others`; and if rows have not arrived yet, unless `waits_for_rows`.
    fn peek(
        &self,
        py: Python<'_>,
        count: usize,
        chars_max: usize,
        waits_for_rows: bool,
        waits_for_others: bool,
    ) -> PyResult<Option<PeekedRows>> {
        if !waits_for_others && self.core.state.is_locked() {
            return Ok(None);
        }
        let peeked = self.core.with_state_from_python(py, |state, waiter| {
            let rows = state.rows()?;
            rows.require_retained(0)?;
            let held = |rows: &RunRows| {
                rows.retained_batches.iter().map(RecordBatch::num_rows).sum::<usize>()
            };
            while held(rows) <= count {
                let has_come = match waits_for_rows {
                    true => Some(rows.fetch(waiter)?),
                    false => rows.fetch_within(Duration::ZERO)?,
                };
                match has_come {
                    Some(true) => {}
                    Some(false) => break,
                    None => return Ok(None),
                }
            }
            let mut first = 0;
            let wanted = rows.retained_batches.iter().take_while(|batch| {
                let is_wanted = first < count;
                first += batch.num_rows();
                is_wanted
            });
            let known = rows.running.is_none().then_some(rows.rows_received);
            Ok(Some((wanted.cloned().collect::<Vec<_>>(), held(rows), known)))
        })?;
        let Some((batches, held, known)) = peeked else { return Ok(None) };
        let own_columns = displayed_columns(&self.schema);
        let shown = || -> tidemill_engine::Result<_> {
            let mut shown = Vec::new();
            for batch in &batches {
                let wanted = (count - shown.len()).min(batch.num_rows());
                let batch = match self.hides_bounds {
                    true => batch.project(&own_columns)?,
                    false => batch.clone(),
                };
                shown.append(&mut format_cells(&batch, 0..wanted, chars_max)?);
            }
            Ok((shown, held > count, known))
        };
        py.detach(shown).map(Some).map_err(|error| to_exception(py, error))
    }

    /// True if rows can be read from the first on.
    #[getter]
    fn is_open(&self) -> bool {
        self.core.is_open.load(Ordering::Relaxed)
    }

    #[getter]
    fn schema(&self) -> RawSchema {
        RawSchema { schema: self.schema.clone() }
    }

    /// The coverage as JSON; `null` before all rows have arrived.
    #[getter]
    fn coverage(&self) -> String {
        coverage_json(self.core.coverage.lock().as_ref())
    }

    /// The coverage as one line of text.
    #[getter]
    fn coverage_line(&self) -> Option<String> {
        self.core.coverage.lock().as_ref().map(Coverage::summary_line)
    }

    /// Statistics of remote reads during the run; `None` before all rows have been read.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let stats = *self.core.stats.lock();
        stats.map(|stats| stats_dict(py, &stats)).transpose()
    }

    /// The exception whose text a consumer of the stream received.
    #[getter]
    fn failure(&self, py: Python<'_>) -> Option<Py<PyBaseException>> {
        let failure =
            self.core.consumer_exception.lock().as_ref().map(|failure| failure.clone_ref(py));
        failure.map(|failure| failure.into_value(py))
    }

    /// Cancels a run that has not ended, without waiting for its end.
    fn stop(&self) {
        if self.core.coverage.lock().is_none() {
            self.core.is_stopped.store(true, Ordering::Relaxed);
            self.core.cancel.cancel();
        }
    }

    /// Stops a run that has not ended; readers of its rows get no more.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stop();
        self.core.with_state_from_python(py, |state, _| {
            if matches!(state, ResultState::Open(_)) {
                *state = ResultState::Closed;
            }
            Ok(())
        })
    }
}

/// Makes the Python code that called the consumer raise an exception of a signal handler.
fn raise_in_caller(py: Python<'_>, error: &PyErr) {
    let raise_soon = || -> PyResult<bool> {
        let module = py.import("tidemill._interrupts")?;
        module.call_method1("raise_soon", (error.value(py),))?.extract()
    };
    let is_heard = raise_soon().unwrap_or(false);
    if !is_heard && error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // On a thread of the consumer, the main thread receives it as another Ctrl-C.
        // SAFETY: the call only records the signal, and may be made from any thread.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
    }
}

/// The rows of a result for a C stream.
struct ResultStream {
    core: Arc<ResultCore>,
    schema: SchemaRef,
    /// Number of the next batch.
    next_batch: u64,
    has_ended: bool,
}

impl ResultStream {
    fn pull_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut waiter = self.core.waiter();
        let (core, number) = (&self.core, self.next_batch);
        let mut is_raised = false;
        // The interpreter's lock is released during the wait, whether the caller holds it or not.
        let next = Python::try_attach(|py| {
            core.require_owner_process(py)?;
            let next = py.detach(|| {
                core.with_state(&mut waiter, |state, waiter| state.rows()?.batch(number, waiter))
            });
            is_raised = waiter.has_exception();
            // The display stays until the stream ends, as pulls follow one another.
            match waiter.into_exception() {
                Some(raised) => Err(raised),
                None => next.map_err(|error| to_exception(py, error)),
            }
        });
        let next = next.unwrap_or_else(|| Err(PyKeyboardInterrupt::new_err(())));
        let batch = next.map_err(|error| {
            let text = Python::try_attach(|py| {
                if is_raised {
                    // This comes first: the exception set below is not for the display's code.
                    self.clear_display();
                    raise_in_caller(py, &error);
                }
                let text = match is_raised || error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    true => Error::Interrupted.to_string(),
                    false => error.value(py).to_string(),
                };
                *self.core.consumer_exception.lock() = Some(error);
                text
            });
            // The C interface cannot carry a NUL.
            ArrowError::ComputeError(text.unwrap_or_default().replace('\0', "\u{fffd}"))
        })?;
        self.next_batch += 1;
        batch.map(|batch| cast_to_schema(&batch, &self.schema)).transpose()
    }
}

impl Iterator for ResultStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = self.pull_batch().transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        if self.has_ended {
            self.clear_display();
        }
        next
    }
}

impl ResultStream {
    fn clear_display(&self) {
        let Some(display) = &self.core.display else { return };
        if !self.core.state.is_in_owner_process() {
            // The display belongs to the other process.
            return;
        }
        Python::try_attach(|py| {
            // If a failing consumer drops the stream, its exception is restored afterwards.
            let pending = PyErr::take(py);
            if let Err(raised) = display.clear(py) {
                raise_in_caller(py, &raised);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

impl Drop for ResultStream {
    fn drop(&mut self) {
        self.clear_display();
    }
}

impl RecordBatchReader for ResultStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn cast_to_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().zip(schema.fields());
    // In Arrow, `safe` means nulls instead of errors.
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    let columns =
        columns.map(|(column, field)| cast_with_options(column, field.data_type(), &exactly));
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?)
}

/// Returns a schema with the types that the consumer requests, under our names.
fn import_requested_schema(
    capsule: &Bound<'_, PyCapsule>,
    ours: &SchemaRef,
) -> PyResult<SchemaRef> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds a valid schema, and outlives this borrow of it.
    let wanted = Schema::try_from(unsafe { pointer.as_ref() }).map_err(to_value_error)?;
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

fn to_value_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The columns of a result or a source.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawSchema {
    pub schema: SchemaRef,
}

#[pymethods]
impl RawSchema {
    /// Returns the name of each column, its type in SQL's and in Arrow's terms, and whether it is a
    /// number.
    fn columns(&self) -> Vec<(String, String, String, bool)> {
        let fields = self.schema.fields().iter();
        let column = |name: &String, kind: &arrow::datatypes::DataType| {
            (name.clone(), sql_type_name(kind), kind.to_string(), is_numeric_type(kind))
        };
        fields.map(|field| column(field.name(), field.data_type())).collect()
    }

    /// Returns the columns of a displayed table, each with its name, its SQL type, and whether it is a
    /// number. An estimate and its bounds form one column.
    fn shown(&self) -> Vec<(String, String, bool)> {
        let fields =
            displayed_columns(&self.schema).into_iter().map(|index| self.schema.field(index));
        let column = |field: &arrow::datatypes::Field| {
            let kind = field.data_type();
            (field.name().clone(), sql_type_name(kind), is_numeric_type(kind))
        };
        fields.map(column).collect()
    }

    /// Returns the columns as [bytes](ipc::encode_batches).
    fn to_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        ipc::encode_batches(py, &self.schema, &[])
    }

    /// Reads the columns that [`to_ipc`](Self::to_ipc) returned.
    #[staticmethod]
    fn from_ipc(columns: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let (schema, _) = ipc::decode_batches(columns.as_bytes())?;
        Ok(RawSchema { schema })
    }

    fn capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(to_value_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

/// A batch of a result's rows.
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

    /// Returns the rows as dictionaries.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        values::rows_to_dicts(py, &self.batch)
    }

    /// Returns the rows as tuples.
    fn tuples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        values::rows_to_tuples(py, &self.batch)
    }

    /// Returns the rows as [bytes](ipc::encode_batches).
    fn to_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        ipc::encode_batches(py, self.batch.schema_ref(), std::slice::from_ref(&self.batch))
    }

    /// Reads the rows that [`to_ipc`](Self::to_ipc) returned.
    #[staticmethod]
    fn from_ipc(rows: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let (schema, batches) = ipc::decode_batches(rows.as_bytes())?;
        let batch = arrow::compute::concat_batches(&schema, &batches).map_err(to_value_error)?;
        Ok(RawBatch { batch })
    }

    fn capsules<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let data = StructArray::from(self.batch.clone()).to_data();
        let (array, schema): (FFI_ArrowArray, FFI_ArrowSchema) =
            to_ffi(&data).map_err(to_value_error)?;
        let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}
