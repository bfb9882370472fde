//! Rowfiles for Python: this module reads them, `row_builder` converts Python objects to rows, and `writer`
//! writes files.

pub(crate) mod row_builder;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use arrow::ffi::FFI_ArrowSchema;
use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::remote;
use tidemill_engine::rowfile_reader::{self, RowfileInput, RowfileReadRequest, RowfileSet};
use tidemill_engine::run_handle::{RunHandle, prepare_run};
use tidemill_engine::{CancelFlag, Error, suggestions};
use tidemill_rowfile::{self as rowfile, FieldType, Schema, SchemaField, StringLayout};

use crate::errors::to_exception;
use crate::interruptible_wait::{ProgressDisplay, run_on_thread};
use crate::object_sources::call_into_python;
use crate::options::{LimitOptions, parse_storage_options};
use crate::result::{RawBatch, RawResult, RawSchema};

/// A schema argument: its JSON, or an object that exports an Arrow schema.
#[derive(FromPyObject)]
pub(crate) enum SchemaArgument {
    Json(String),
    Arrow(Py<PyAny>),
}

impl SchemaArgument {
    /// Returns the schema for a reader.
    fn to_arrow_schema(&self, py: Python<'_>) -> PyResult<SchemaRef> {
        let object = match self {
            SchemaArgument::Json(json) => {
                let schema =
                    Schema::parse(json).map_err(|error| to_exception(py, schema_error(error)))?;
                return Ok(Arc::new(schema.to_arrow(StringLayout::default())));
            }
            SchemaArgument::Arrow(object) => object.bind(py),
        };
        let capsule = object.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        // SAFETY: a capsule of this name holds a valid schema, and outlives this borrow of it.
        let schema = ArrowSchema::try_from(unsafe { pointer.as_ref() });
        let schema = schema.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        Ok(Arc::new(schema))
    }

    /// Returns the schema for a writer.
    fn to_rowfile_schema(&self, py: Python<'_>) -> PyResult<Schema> {
        let schema = match self {
            SchemaArgument::Json(json) => Schema::parse(json),
            SchemaArgument::Arrow(_) => Schema::from_arrow(&*self.to_arrow_schema(py)?),
        };
        schema.map_err(|error| to_exception(py, schema_error(error)))
    }
}

fn schema_error(error: rowfile::Error) -> Error {
    match error {
        rowfile::Error::InvalidSchema { column, reason } if column.is_empty() => {
            Error::usage(format!("the schema: {reason}"))
        }
        other => Error::usage(format!("the schema: {other}")),
    }
}

/// Converts an error of writing to the engine's error.
fn rowfile_write_error(error: rowfile::Error, path: &Path) -> Error {
    match error {
        rowfile::Error::Io { error, .. } => Error::io("write", path, error),
        rowfile::Error::Locked { .. } => {
            let reason = "somebody else is writing it\n\
                          hint: one writer at a time may append; try again when it is done";
            Error::Io {
                action: "append to",
                path: path.display().to_string(),
                source: io::Error::new(io::ErrorKind::WouldBlock, reason),
            }
        }
        rowfile::Error::TooLarge { .. } | rowfile::Error::Serde(_) => {
            Error::usage(error.to_string())
        }
        other => rowfile_reader::engine_error_from_rowfile(other, &path.display().to_string()),
    }
}

/// A file argument: its path or URL, or its name and an object with `read` and `seek`.
#[derive(FromPyObject)]
pub(crate) struct FileArgument(String, Option<Py<PyAny>>);

impl FileArgument {
    fn into_input(self, py: Python<'_>) -> PyResult<RowfileInput> {
        let Some(object) = self.1 else { return Ok(RowfileInput::Url(self.0)) };
        let length = object.bind(py).call_method1("seek", (0, 2))?.extract()?;
        Ok(RowfileInput::Memory(
            self.0,
            Arc::new(PythonFileObject { object, length, position_lock: Mutex::new(()) }),
        ))
    }
}

/// A Python file object. All readers share its position.
struct PythonFileObject {
    object: Py<PyAny>,
    length: u64,
    position_lock: Mutex<()>,
}

impl PythonFileObject {
    fn read_exact_at(&self, py: Python<'_>, offset: u64, into: &mut [u8]) -> PyResult<()> {
        let object = self.object.bind(py);
        object.call_method1("seek", (offset,))?;
        let mut filled = 0;
        while filled < into.len() {
            let piece = object.call_method1("read", (into.len() - filled,))?;
            let piece = piece.cast::<PyBytes>().map_err(|_| {
                PyTypeError::new_err("it does not read bytes: open it in binary mode, \"rb\"")
            })?;
            let piece = piece.as_bytes();
            let Some(to) = into.get_mut(filled..filled + piece.len()) else {
                return Err(PyTypeError::new_err("it reads more bytes than it is asked for"));
            };
            if piece.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            to.copy_from_slice(piece);
            filled += piece.len();
        }
        Ok(())
    }
}

impl rowfile::ReadAt for PythonFileObject {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let _place = self.position_lock.lock();
        match call_into_python(|| Python::attach(|py| self.read_exact_at(py, offset, into))) {
            Some(read) => read.map_err(io::Error::other),
            None => Err(io::Error::other("the interpreter has ended")),
        }
    }
}

/// Reads rowfiles; returns the rows, the files, and the number of rows.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "those of the Python function")]
#[pyo3(signature = (files, columns, schema, blocks, byte_range, batch_rows, recover, storage_options, limits))]
pub(crate) fn read_rowfile(
    py: Python<'_>,
    files: Vec<FileArgument>,
    columns: Option<Vec<String>>,
    schema: Option<SchemaArgument>,
    blocks: Option<Vec<usize>>,
    byte_range: Option<(u64, u64)>,
    batch_rows: usize,
    recover: bool,
    storage_options: Vec<(String, String)>,
    limits: LimitOptions,
) -> PyResult<(RawResult, Vec<RawRowfile>, u64)> {
    let inputs = files.into_iter().map(|file| file.into_input(py)).collect::<PyResult<_>>()?;
    let request = RowfileReadRequest {
        inputs,
        storage_options: parse_storage_options(&storage_options)
            .map_err(|error| to_exception(py, error))?,
        reader_schema: schema.map(|schema| schema.to_arrow_schema(py)).transpose()?,
        columns,
        block_numbers: blocks,
        byte_range: byte_range.map(|(start, end)| start..end),
        batch_rows_max: batch_rows,
        salvage_damaged: recover,
    };
    let (limits, display) = limits.into_limits_and_display();
    let preparation = prepare_run(&limits, &ResourceLimits::default())
        .map_err(|error| to_exception(py, error))?;
    let cancel = preparation.settings.cancel.clone();
    let flag: CancelFlag = cancel.clone();
    let before = remote::read_stats();
    let opened = run_on_thread(py, cancel.clone(), move || RowfileSet::open(&request, &flag))?;
    let opened = Arc::new(opened);
    let display = ProgressDisplay::new(display, &preparation.settings.progress);
    let memory_bytes = preparation.settings.memory_bytes;
    let running = RunHandle::start_rowfile_read(Arc::clone(&opened), preparation.settings);
    let running = running.map_err(|error| to_exception(py, error))?;
    let result = RawResult::new(py, running, cancel, display, memory_bytes, before)?;
    let files = 0..opened.files().len();
    let files = files.map(|index| RawRowfile { all: Arc::clone(&opened), index }).collect();
    Ok((result, files, opened.selected_row_count()))
}

/// The header and the footer of a file.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawRowfile {
    all: Arc<RowfileSet>,
    index: usize,
}

impl RawRowfile {
    fn rowfile(&self) -> &rowfile_reader::OpenRowfile {
        &self.all.files()[self.index]
    }
}

#[pymethods]
impl RawRowfile {
    #[getter]
    fn path(&self) -> &str {
        self.rowfile().display_name()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.rowfile().size_bytes()
    }

    #[getter]
    fn num_rows(&self) -> u64 {
        self.rowfile().reader().row_count()
    }

    #[getter]
    fn schema(&self) -> RawSchema {
        RawSchema {
            schema: Arc::new(self.rowfile().reader().schema().to_arrow(StringLayout::default())),
        }
    }

    /// The schema as JSON, as the file stores it.
    #[getter]
    fn schema_json(&self) -> String {
        self.rowfile().reader().schema().to_json()
    }

    #[getter]
    fn metadata(&self) -> BTreeMap<String, String> {
        self.rowfile().reader().metadata().clone()
    }

    #[getter]
    fn compression(&self) -> String {
        writer::codec_name(self.rowfile().reader().codec())
    }

    /// Returns the offset of each block, its bytes, its rows and the number of rows before it.
    #[getter]
    fn blocks(&self) -> Vec<(u64, u32, u32, u64)> {
        let blocks = self.rowfile().reader().blocks().iter();
        blocks.map(|block| (block.offset, block.bytes, block.rows, block.first_row)).collect()
    }

    /// Bytes of an unfinished append.
    #[getter]
    fn unfinished_bytes(&self) -> u64 {
        self.rowfile().reader().unfinished_bytes()
    }

    /// Returns the damages that were found: offset and reason.
    #[getter]
    fn damages(&self) -> Vec<(u64, String)> {
        self.rowfile().reader().damages().to_vec()
    }

    /// Returns the minimum, the maximum and the number of nulls of a column in each block; `None` without
    /// statistics.
    fn statistics(&self, py: Python<'_>, column: &str) -> PyResult<Option<RawBatch>> {
        let reader = self.rowfile().reader();
        let Some(found) = reader.column_statistics(column) else {
            let mut paths = Vec::new();
            collect_column_paths(&reader.schema().fields, "", &mut paths);
            if paths.iter().any(|path| path == column) {
                return Ok(None);
            }
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let error = Error::usage(suggestions::unknown_name_message("column", column, &paths));
            return Err(to_exception(py, error));
        };
        let nulls: ArrayRef = Arc::new(found.nulls);
        let columns = [("min", found.min), ("max", found.max), ("nulls", nulls)];
        match RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        ) {
            Ok(batch) => Ok(Some(RawBatch::new(batch))),
            Err(error) => Err(to_exception(py, Error::Internal(error.to_string()))),
        }
    }
}

/// Collects the paths of all columns outside of lists and maps.
fn collect_column_paths(fields: &[SchemaField], outer: &str, paths: &mut Vec<String>) {
    for field in fields {
        let path = match outer {
            "" => field.name.clone(),
            outer => format!("{outer}.{}", field.name),
        };
        if let FieldType::Struct(inner) = &field.kind {
            collect_column_paths(inner, &path, paths);
        }
        paths.push(path);
    }
}
