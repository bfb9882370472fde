//! Rows of Python objects as sources, and formats that Python functions read and write. All rows cross as
//! Arrow batches through the PyCapsule interface, without copying.
//!
//! The engine's threads hold the interpreter's lock only while they call a user's function or fetch an object
//! from it. No engine thread may be in Python when the interpreter ends, because ending such a thread ends
//! the process: see [`leave_python`].

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use parking_lot::{Mutex, RwLock};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator, PyTuple};
use std::sync::Arc;
use tidemill_engine::Error;
use tidemill_engine::formats::{
    self, BoxedBatchReader, BoxedHostError, RegisteredFormatReader, RegisteredFormatWriter,
};
use tidemill_engine::source::{MemoryRows, SourceSpec};

use crate::arrow_import::{self, TableImportError};
use crate::errors::to_exception;
use crate::process_bound::ProcessBound;

/// True once the interpreter ends. An engine thread that calls into Python reads this lock, and
/// holds it during the call.
static IS_INTERPRETER_ENDING: RwLock<bool> = RwLock::new(false);

/// Maximum time that the end of the interpreter waits for a user's function.
const INTERPRETER_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the result of `call`, which calls into Python; `None` once the interpreter ends.
pub(crate) fn call_into_python<T>(call: impl FnOnce() -> T) -> Option<T> {
    let is_ending = IS_INTERPRETER_ENDING.read_recursive();
    (!*is_ending).then(call)
}

fn interpreter_ended_error() -> ArrowError {
    ArrowError::ExternalError("the interpreter has ended".into())
}

/// Keeps the engine's threads out of Python from now on, and waits for those that are in a call. It is called
/// when the interpreter ends.
#[pyfunction]
pub(crate) fn leave_python(py: Python<'_>) {
    py.detach(|| {
        if let Some(mut is_ending) = IS_INTERPRETER_ENDING.try_write_for(INTERPRETER_END_TIMEOUT) {
            *is_ending = true;
        }
    });
}

/// Batches that Python may compute, and that must be dropped while Python runs.
struct PythonBatches(ManuallyDrop<BoxedBatchReader>);

impl Iterator for PythonBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        call_into_python(|| self.0.next()).unwrap_or_else(|| Some(Err(interpreter_ended_error())))
    }
}

impl RecordBatchReader for PythonBatches {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

impl Drop for PythonBatches {
    fn drop(&mut self) {
        // SAFETY: the value is not used again. After the interpreter's end it is leaked, until the process
        // ends.
        call_into_python(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

fn guard_python_batches(batches: BoxedBatchReader) -> BoxedBatchReader {
    Box::new(PythonBatches(ManuallyDrop::new(batches)))
}

/// An object as a source, with its name in SQL.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NamedObject {
    pub name: String,
    /// An object that exports an Arrow stream or array.
    object: Py<PyAny>,
    /// True if the object is in memory and can be read any number of times.
    is_table: bool,
    /// The mark of the first read, for an object that returns its rows only once.
    read_mark: Option<Py<ReadMark>>,
}

/// A mark that is set when a run begins to read a stream.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct ReadMark {
    is_read: Arc<AtomicBool>,
}

#[pymethods]
impl ReadMark {
    #[new]
    fn new() -> Self {
        ReadMark { is_read: Arc::default() }
    }

    /// Returns true once a run has asked for the first rows.
    #[getter]
    fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }
}

/// A stream that sets a mark at its first read, and fails if another run has set it before.
struct MarkedBatchStream {
    batches: BoxedBatchReader,
    name: String,
    is_read: Arc<AtomicBool>,
    has_started: bool,
}

impl Iterator for MarkedBatchStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.has_started {
            self.has_started = true;
            if self.is_read.swap(true, Ordering::AcqRel) {
                let error = Error::usage_with_hint(
                    format!("`{}` is a stream, which an earlier run has read", self.name),
                    "give each run a stream of its own, or a table",
                );
                return Some(Err(ArrowError::ExternalError(Box::new(error))));
            }
        }
        self.batches.next()
    }
}

impl RecordBatchReader for MarkedBatchStream {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}

impl NamedObject {
    /// Returns the object's name and source: the rows of a stream move, those of a table are shared.
    pub(crate) fn into_named_source(self, py: Python<'_>) -> PyResult<(String, SourceSpec)> {
        let batches = batches_from_named_object(self.object.bind(py), Some(&self.name))?;
        let given = match self.is_table {
            false => {
                let batches = guard_python_batches(batches);
                MemoryRows::from_stream(match &self.read_mark {
                    None => batches,
                    Some(mark) => Box::new(MarkedBatchStream {
                        batches,
                        name: self.name.clone(),
                        is_read: Arc::clone(&mark.get().is_read),
                        has_started: false,
                    }),
                })
            }
            true => {
                let schema = batches.schema();
                let held = py.detach(|| batches.collect::<Result<Vec<_>, _>>());
                MemoryRows::from_table(
                    schema,
                    held.map_err(|error| PyValueError::new_err(error.to_string()))?,
                )
            }
        };
        let url = self.name.clone();
        Ok((
            self.name,
            SourceSpec { url, memory_rows: Some(Arc::new(given)), ..SourceSpec::default() },
        ))
    }
}

/// Returns the batches of an object that exports a stream or an array of structs.
pub(crate) fn batches_from_object(object: &Bound<'_, PyAny>) -> PyResult<BoxedBatchReader> {
    batches_from_named_object(object, None)
}

/// Returns the batches of an object, whose name in SQL appears in errors.
fn batches_from_named_object(
    object: &Bound<'_, PyAny>,
    name: Option<&str>,
) -> PyResult<BoxedBatchReader> {
    if object.hasattr("__arrow_c_stream__")? {
        let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: a capsule of this name holds a valid stream, which is moved out of it; a released stream
        // stays in the capsule.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
        return match arrow_import::ImportedBatches::new(stream) {
            Ok(stream) => Ok(Box::new(stream)),
            Err(why) => Err(not_a_table_error(object, name, why)),
        };
    }
    if object.hasattr("__arrow_c_array__")? {
        let batch = batch_from_array_export(object, name)?;
        let schema = batch.schema();
        return Ok(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
    }
    Err(PyTypeError::new_err(format!(
        "a {} holds no Arrow data: it has neither `__arrow_c_stream__` nor `__arrow_c_array__`",
        object.get_type().name()?
    )))
}

/// Returns the exception for an object that is no table, with a hint.
fn not_a_table_error(
    object: &Bound<'_, PyAny>,
    name: Option<&str>,
    why: TableImportError,
) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |it| it.to_string());
    let error = match why {
        TableImportError::Arrow(error) => return PyValueError::new_err(error.to_string()),
        TableImportError::SingleColumn => {
            let called = name.unwrap_or("x");
            let hint = match object.hasattr("to_frame") {
                Ok(true) => format!("make a table of it: {called}=….to_frame()"),
                _ => format!("make a table of it: {called}=pyarrow.table({{'{called}': …}})"),
            };
            match name {
                Some(name) => Error::usage_with_hint(
                    format!("`{name}` is a {kind}, which is one column and no table"),
                    hint,
                ),
                None => Error::usage_with_hint(
                    format!("a table is wanted, and this is a {kind}, which is one column"),
                    hint,
                ),
            }
        }
        TableImportError::UnknownColumnType { column, format } => {
            let of = name.map(|name| format!(" of `{name}`")).unwrap_or_default();
            let (data_type, hint) = match &*format {
                "_pli128" => ("Int128", "cast it, to Int64 or to Decimal(38, 0)"),
                "_plu128" => ("UInt128", "cast it, to UInt64 or to Decimal(38, 0)"),
                other => (other, "cast it to one of Arrow's types"),
            };
            Error::usage_with_hint(
                format!("column `{column}`{of} is of the type {data_type}, which Arrow has not"),
                hint,
            )
        }
    };
    to_exception(object.py(), error)
}

fn batch_from_array_export(object: &Bound<'_, PyAny>, name: Option<&str>) -> PyResult<RecordBatch> {
    let pair = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let capsule = |index: usize| -> PyResult<Bound<'_, PyCapsule>> {
        Ok(pair.get_item(index)?.cast_into::<PyCapsule>()?)
    };
    let (schema, array) = (capsule(0)?, capsule(1)?);
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    // SAFETY: a capsule of this name holds a valid schema, which stays its own.
    let fields = arrow_import::import_table_schema(unsafe { schema.as_ref() });
    let fields = fields.map_err(|why| not_a_table_error(object, name, why))?;
    let data_type = DataType::Struct(fields.fields().clone());
    let in_python = |error: ArrowError| PyValueError::new_err(error.to_string());
    // SAFETY: a capsule of this name holds a valid array, of the schema beside it. It is moved out.
    let data = unsafe {
        arrow_import::import_array_data(FFI_ArrowArray::from_raw(array.as_ptr()), data_type)
    };
    let data = data.map_err(in_python)?;
    arrow_import::batch_from_data(data, &Arc::new(fields)).map_err(in_python)
}

/// Returns the batches that a user's reader returned: a stream, or an iterable of batches.
fn batches_from_reader_result(given: Bound<'_, PyAny>) -> PyResult<BoxedBatchReader> {
    if given.hasattr("__arrow_c_stream__")? || given.hasattr("__arrow_c_array__")? {
        return batches_from_object(&given);
    }
    let mut objects = given.try_iter().map_err(|_| {
        PyTypeError::new_err(format!(
            "the reader gave a {}, which is neither an Arrow stream nor an iterable of batches",
            given.get_type().name().map_or_else(|_| "value".to_owned(), |name| name.to_string())
        ))
    })?;
    let Some(first) = objects.next() else {
        return Err(PyValueError::new_err(
            "the reader gave no batch, and so no columns: return a pyarrow.RecordBatchReader, \
             which has a schema of its own, or an empty batch first",
        ));
    };
    let current = batches_from_yielded_object(&first?)?;
    Ok(Box::new(YieldedBatches { schema: current.schema(), current, objects: objects.unbind() }))
}

/// Returns the batches of an object that a reader yielded, which may be a lazy frame.
fn batches_from_yielded_object(object: &Bound<'_, PyAny>) -> PyResult<BoxedBatchReader> {
    let lazy_frames = object.py().import("tidemill._lazy_frames")?;
    batches_from_object(&lazy_frames.call_method1("to_arrow_source", (object,))?)
}

/// The batches of the objects of an iterable.
struct YieldedBatches {
    schema: SchemaRef,
    current: BoxedBatchReader,
    objects: Py<PyIterator>,
}

impl Iterator for YieldedBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.current.next() {
                return Some(batch);
            }
            let next = Python::attach(|py| {
                let object = self.objects.bind(py).clone().next()?;
                Some(object.and_then(|object| batches_from_yielded_object(&object)))
            });
            match next? {
                Ok(batches) => self.current = batches,
                Err(error) => return Some(Err(ArrowError::ExternalError(Box::new(error)))),
            }
        }
    }
}

impl RecordBatchReader for YieldedBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A user's reader: `reader(path, start, end)`, with `columns` if it has a parameter of that
/// name.
struct PythonFormatReader {
    function: Py<PyAny>,
    is_splittable: bool,
    takes_columns: bool,
}

impl PythonFormatReader {
    fn call_reader(
        &self,
        path: &str,
        bytes: Range<u64>,
        columns: Option<&[&str]>,
    ) -> Result<BoxedBatchReader, BoxedHostError> {
        let call = |py: Python<'_>| {
            let options = pyo3::types::PyDict::new(py);
            if self.takes_columns {
                options.set_item("columns", columns)?;
            }
            let arguments = (path, bytes.start, bytes.end);
            batches_from_reader_result(self.function.bind(py).call(arguments, Some(&options))?)
        };
        match call_into_python(|| Python::attach(call)) {
            Some(called) => called
                .map(guard_python_batches)
                .map_err(|error: PyErr| Box::new(error) as BoxedHostError),
            None => Err(Box::new(interpreter_ended_error())),
        }
    }
}

impl RegisteredFormatReader for PythonFormatReader {
    fn schema(&self, path: &str, bytes: u64) -> Result<SchemaRef, BoxedHostError> {
        Ok(self.call_reader(path, 0..bytes, None)?.schema())
    }

    fn read(
        &self,
        path: &str,
        bytes: Range<u64>,
        columns: &[&str],
    ) -> Result<BoxedBatchReader, BoxedHostError> {
        self.call_reader(path, bytes, Some(columns))
    }

    fn is_splittable(&self) -> bool {
        self.is_splittable
    }
}

/// A user's writer: `writer(path, batches)`.
struct PythonFormatWriter(Py<PyAny>);

impl RegisteredFormatWriter for PythonFormatWriter {
    fn write(&self, path: &Path, batches: BoxedBatchReader) -> Result<(), BoxedHostError> {
        let write = |py: Python<'_>| -> PyResult<()> {
            let stream = RawStream::new(batches);
            let package = py.import("tidemill._formats")?;
            let batches = package.getattr("Batches")?.call1((Bound::new(py, stream)?,))?;
            self.0.bind(py).call1((path, batches))?;
            Ok(())
        };
        match call_into_python(|| Python::attach(write)) {
            Some(written) => written.map_err(|error| Box::new(error) as BoxedHostError),
            None => Err(Box::new(interpreter_ended_error())),
        }
    }
}

/// Batches for a user's writer.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawStream {
    schema: SchemaRef,
    batches: ProcessBound<Mutex<Option<BoxedBatchReader>>>,
}

impl RawStream {
    fn require_owner_process(&self, py: Python<'_>) -> PyResult<()> {
        let hint = "a run does not survive a fork: take its batches in the process that runs it";
        self.batches.require_owner_process(py, "these batches belong to another process", hint)
    }

    pub(crate) fn new(batches: BoxedBatchReader) -> Self {
        RawStream {
            schema: batches.schema(),
            batches: ProcessBound::new(Mutex::new(Some(batches))),
        }
    }
}

#[pymethods]
impl RawStream {
    #[getter]
    fn schema(&self) -> crate::result::RawSchema {
        crate::result::RawSchema { schema: Arc::clone(&self.schema) }
    }

    /// Returns the next batch; it waits for the engine's threads without the interpreter's lock.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<crate::result::RawBatch>> {
        self.require_owner_process(py)?;
        let batch = py.detach(|| self.batches.lock().as_mut()?.next());
        match batch.transpose() {
            Ok(batch) => Ok(batch.map(crate::result::RawBatch::new)),
            Err(error) => Err(arrow_error_to_exception(py, error)),
        }
    }

    /// Returns the remaining batches as a capsule of an Arrow stream.
    fn stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        self.require_owner_process(py)?;
        let Some(batches) = self.batches.lock().take() else {
            return Err(PyValueError::new_err("these batches have been handed over already"));
        };
        let stream = FFI_ArrowArrayStream::new(batches);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Converts an error of the stream to an exception: the engine's error, or the text of any other.
fn arrow_error_to_exception(py: Python<'_>, error: ArrowError) -> PyErr {
    match error {
        ArrowError::ExternalError(error) => match error.downcast::<tidemill_engine::Error>() {
            Ok(error) => to_exception(py, *error),
            Err(other) => PyValueError::new_err(other.to_string()),
        },
        other => PyValueError::new_err(other.to_string()),
    }
}

/// Registers a format.
#[pyfunction]
#[pyo3(signature = (name, suffix, reader, writer, is_splittable, takes_columns))]
pub(crate) fn register_format(
    py: Python<'_>,
    name: &str,
    suffix: Option<&str>,
    reader: Option<Py<PyAny>>,
    writer: Option<Py<PyAny>>,
    is_splittable: bool,
    takes_columns: bool,
) -> PyResult<()> {
    let reader = reader.map(|function| {
        Box::new(PythonFormatReader { function, is_splittable, takes_columns })
            as Box<dyn RegisteredFormatReader>
    });
    let writer = writer
        .map(|function| Box::new(PythonFormatWriter(function)) as Box<dyn RegisteredFormatWriter>);
    formats::register_format(name, suffix, reader, writer)
        .map_err(|error| to_exception(py, error.into()))
}
