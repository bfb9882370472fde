//! Writes rowfiles from Python. A new file gets its name once it is complete; until then it has a hidden
//! name beside it that folders and patterns skip. An append takes effect when its footer is
//! written; abandoning an append truncates the file to its former end.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema as ArrowSchema;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tidemill_engine::{Error, Result};
use tidemill_rowfile::{self as rowfile, Codec, Schema, StringLayout, WriteOptions, Writer};

use super::row_builder::{RowBuilder, RowFault};
use super::{SchemaArgument, rowfile_write_error};
use crate::errors::to_exception;
use crate::object_sources::batches_from_object;
use crate::result::RawSchema;

/// Maximum number of Python rows per batch.
const BATCH_ROWS_MAX: usize = 8192;
/// Maximum bytes of variable-length values per batch.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Number of rows written between two checks of signals.
const ROWS_PER_SIGNAL_CHECK: usize = 65_536;

/// Writes a rowfile.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub struct RawRowfileWriter {
    path: PathBuf,
    state: Mutex<WriterState>,
    /// The id of the process that writes the file.
    process: u32,
}

enum WriterState {
    /// The columns are not known yet.
    AwaitingSchema(Box<RowfileWriterOptions>),
    Open(Box<OpenRowfile>),
    Closed(u64),
}

struct RowfileWriterOptions {
    compression: Codec,
    metadata: BTreeMap<String, String>,
    block_bytes: usize,
    overwrite: bool,
}

struct OpenRowfile {
    writer: Option<Writer<File>>,
    rows: RowBuilder,
    target: WriteTarget,
}

enum WriteTarget {
    /// A new file without its final name.
    NewFile { staged: PathBuf, overwrite: bool },
    /// An existing file, and its end before the append.
    AppendedFile(u64),
}

#[pymethods]
impl RawRowfileWriter {
    #[new]
    #[pyo3(signature = (path, schema, compression, metadata, append, block_bytes, overwrite))]
    #[expect(clippy::too_many_arguments, reason = "those of the Python class")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        schema: Option<SchemaArgument>,
        compression: Option<&str>,
        metadata: Option<BTreeMap<String, String>>,
        append: bool,
        block_bytes: usize,
        overwrite: bool,
    ) -> PyResult<Self> {
        let schema = schema.map(|schema| schema.to_rowfile_schema(py)).transpose()?;
        let codec =
            compression.map(parse_codec).transpose().map_err(|error| to_exception(py, error))?;
        let exists = py.detach(|| path.symlink_metadata().is_ok());
        let state = if append && exists {
            let schema = schema.as_ref();
            let begun = py
                .detach(|| open_for_append(&path, schema, codec, metadata.is_some(), block_bytes));
            let (writer, target) = begun.map_err(|error| to_exception(py, error))?;
            let rows = RowBuilder::new(py, writer.schema())?;
            WriterState::Open(Box::new(OpenRowfile { writer: Some(writer), rows, target }))
        } else {
            let options = RowfileWriterOptions {
                compression: codec.unwrap_or_default(),
                metadata: metadata.unwrap_or_default(),
                block_bytes,
                overwrite,
            };
            if exists && !overwrite {
                let path = path.display().to_string();
                return Err(to_exception(py, Error::OutputExists { path, more: 0 }));
            }
            match schema {
                None => WriterState::AwaitingSchema(Box::new(options)),
                Some(schema) => {
                    WriterState::Open(Box::new(OpenRowfile::new(py, &path, &schema, options)?))
                }
            }
        };
        Ok(Self { path, state: Mutex::new(state), process: std::process::id() })
    }

    /// Returns the columns; `None` while they are unknown.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<Option<RawSchema>> {
        self.with_state(py, |state| {
            Ok(match state {
                WriterState::Open(open) => open.writer.as_ref().map(|writer| {
                    let schema = writer.schema().to_arrow(StringLayout::default());
                    RawSchema { schema: schema.into() }
                }),
                _ => None,
            })
        })
    }

    /// Number of rows of the file so far.
    #[getter]
    fn num_rows(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_state(py, |state| {
            Ok(match state {
                WriterState::AwaitingSchema(_) => 0,
                WriterState::Open(open) => open.row_count(),
                WriterState::Closed(rows) => *rows,
            })
        })
    }

    /// True if the columns are known.
    #[getter]
    fn has_schema(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_state(py, |state| Ok(!matches!(state, WriterState::AwaitingSchema(_))))
    }

    /// Declares the columns.
    fn declare(&self, py: Python<'_>, schema: SchemaArgument) -> PyResult<()> {
        let schema = schema.to_rowfile_schema(py)?;
        self.with_state(py, |state| self.ensure_open(py, state, || Ok(schema)).map(|_| ()))
    }

    /// Writes the rows of an object that holds Arrow data.
    fn write_arrow(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut batches = batches_from_object(object)?;
        let schema = batches.schema();
        self.with_state(py, |state| {
            let open = self.ensure_open(py, state, || {
                Schema::from_arrow(&schema).map_err(|error| rowfile_write_error(error, &self.path))
            })?;
            py.detach(|| open.flush_rows(&self.path)).map_err(|error| to_exception(py, error))?;
            let order = open.column_order(&schema);
            loop {
                py.check_signals()?;
                let batch = py.detach(|| batches.next());
                let Some(batch) = batch.transpose().map_err(arrow_exception)? else {
                    return Ok(());
                };
                let batch = match &order {
                    Some(order) => batch.project(order).map_err(arrow_exception)?,
                    None => batch,
                };
                for first in (0..batch.num_rows()).step_by(ROWS_PER_SIGNAL_CHECK) {
                    py.check_signals()?;
                    let part =
                        batch.slice(first, ROWS_PER_SIGNAL_CHECK.min(batch.num_rows() - first));
                    let before = open.row_count();
                    py.detach(|| open.write_batch(&part, &self.path))
                        .map_err(|error| to_exception(py, add_row_range(error, before)))?;
                }
            }
        })
    }

    /// Writes rows that are Python objects.
    fn write_rows(&self, py: Python<'_>, objects: &Bound<'_, PyAny>) -> PyResult<()> {
        self.with_state(py, |state| {
            let open = self.ensure_open(py, state, || {
                Err(Error::usage_with_hint(
                    "what the columns are is not known before the first row",
                    "give `schema=`, or write an instance of a dataclass first",
                ))
            })?;
            for object in objects.try_iter()? {
                let object = object?;
                match open.rows.push_row(&object) {
                    Ok(()) => {}
                    Err(RowFault::PythonException(error)) => return Err(error),
                    Err(RowFault::InvalidValue(mut path, reason)) => {
                        path.reverse();
                        let place = match path.is_empty() {
                            true => String::new(),
                            false => format!(", field `{}`", path.join(".")),
                        };
                        let error =
                            Error::usage(format!("row {}{place}: {reason}", open.row_count()));
                        return Err(to_exception(py, error));
                    }
                }
                if open.rows.row_count() >= BATCH_ROWS_MAX
                    || open.rows.buffered_bytes() >= BATCH_BYTES_MAX
                {
                    py.check_signals()?;
                    py.detach(|| open.flush_rows(&self.path))
                        .map_err(|error| to_exception(py, error))?;
                }
            }
            Ok(())
        })
    }

    /// Writes the buffered rows as a block.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |state| {
            let WriterState::Open(open) = state else { return Ok(()) };
            let flushed = py.detach(|| {
                open.flush_rows(&self.path)?;
                open.writer()?.flush().map_err(|error| rowfile_write_error(error, &self.path))
            });
            flushed.map_err(|error| to_exception(py, error))
        })
    }

    /// Completes the file and gives it its name; a file that cannot be completed is removed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |state| {
            let rows = match state {
                WriterState::Closed(_) => return Ok(()),
                WriterState::AwaitingSchema(_) => {
                    *state = WriterState::Closed(0);
                    let error = Error::usage_with_hint(
                        format!(
                            "`{}` would have no columns: nothing was written",
                            path_text(&self.path)
                        ),
                        "give `schema=` for a file without rows",
                    );
                    return Err(to_exception(py, error));
                }
                WriterState::Open(open) => open.row_count(),
            };
            let WriterState::Open(open) = std::mem::replace(state, WriterState::Closed(rows))
            else {
                return Ok(());
            };
            py.detach(|| open.close(&self.path)).map_err(|error| to_exception(py, error))
        })
    }

    /// Abandons the file: a new file is removed, and an existing one keeps its former content.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |state| {
            if let WriterState::Open(open) = std::mem::replace(state, WriterState::Closed(0)) {
                py.detach(|| open.abort(&self.path));
            }
            Ok(())
        })
    }

    /// True if the writer is neither closed nor abandoned.
    #[getter]
    fn is_waiting(&self) -> bool {
        let state = self.state.try_lock();
        self.process == std::process::id()
            && state.is_some_and(|state| !matches!(*state, WriterState::Closed(_)))
    }
}

impl RawRowfileWriter {
    /// Calls `work` with the state of the writer.
    fn with_state<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut WriterState) -> PyResult<T>,
    ) -> PyResult<T> {
        if self.process != std::process::id() {
            let error = Error::usage_with_hint(
                "this writer belongs to another process",
                "a writer does not survive a fork: open it in the process that writes",
            );
            return Err(to_exception(py, error));
        }
        let Some(mut state) = self.state.try_lock() else {
            let error = Error::usage_with_hint(
                format!("another thread is writing `{}`", path_text(&self.path)),
                "one thread at a time may use a writer",
            );
            return Err(to_exception(py, error));
        };
        work(&mut state)
    }

    /// Returns the open file. If no columns are known, it opens the file with the columns of `schema`.
    fn ensure_open<'a>(
        &self,
        py: Python<'_>,
        state: &'a mut WriterState,
        schema: impl FnOnce() -> Result<Schema>,
    ) -> PyResult<&'a mut OpenRowfile> {
        if let WriterState::AwaitingSchema(options) = state {
            let schema = schema().map_err(|error| to_exception(py, error))?;
            let options = RowfileWriterOptions { metadata: options.metadata.clone(), ..**options };
            *state =
                WriterState::Open(Box::new(OpenRowfile::new(py, &self.path, &schema, options)?));
        }
        match state {
            WriterState::Open(open) => Ok(open),
            _ => Err(to_exception(
                py,
                Error::usage(format!("`{}` is closed", path_text(&self.path))),
            )),
        }
    }
}

impl Drop for RawRowfileWriter {
    fn drop(&mut self) {
        let state = std::mem::replace(self.state.get_mut(), WriterState::Closed(0));
        if self.process != std::process::id() {
            // A copy made by a fork: the file belongs to the other process.
            std::mem::forget(state);
        } else if let WriterState::Open(open) = state {
            open.abort(&self.path);
        }
    }
}

impl OpenRowfile {
    fn new(
        py: Python<'_>,
        path: &Path,
        schema: &Schema,
        options: RowfileWriterOptions,
    ) -> PyResult<Self> {
        let rows = RowBuilder::new(py, schema)?;
        let overwrite = options.overwrite;
        let created = py.detach(|| create_staged_file(path, schema, options));
        let (writer, staged) = created.map_err(|error| to_exception(py, error))?;
        Ok(Self { writer: Some(writer), rows, target: WriteTarget::NewFile { staged, overwrite } })
    }

    fn writer(&mut self) -> Result<&mut Writer<File>> {
        self.writer.as_mut().ok_or_else(|| Error::Internal("a writer that is gone".to_owned()))
    }

    fn row_count(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::row_count) + self.rows.row_count() as u64
    }

    /// Returns the positions of the file's columns in a schema with the same names; `None` if the order is
    /// the same.
    fn column_order(&self, schema: &ArrowSchema) -> Option<Vec<usize>> {
        let fields = &self.writer.as_ref()?.schema().fields;
        let is_same = fields.len() == schema.fields().len()
            && fields.iter().zip(schema.fields()).all(|(own, other)| own.name == *other.name());
        if is_same || fields.len() != schema.fields().len() {
            return None;
        }
        fields.iter().map(|field| schema.index_of(&field.name).ok()).collect()
    }

    fn write_batch(&mut self, batch: &RecordBatch, path: &Path) -> Result<()> {
        self.writer()?.write(batch).map_err(|error| rowfile_write_error(error, path))
    }

    /// Writes the buffered Python rows as a batch.
    fn flush_rows(&mut self, path: &Path) -> Result<()> {
        if self.rows.row_count() == 0 {
            return Ok(());
        }
        let batch = self.rows.take_batch()?;
        self.write_batch(&batch, path)
    }

    fn close(mut self: Box<Self>, path: &Path) -> Result<()> {
        let finished = self.flush_rows(path).and_then(|()| {
            self.writer()?.flush().map_err(|error| rowfile_write_error(error, path))
        });
        if let Err(error) = finished {
            self.abort(path);
            return Err(error);
        }
        let Some(writer) = self.writer.take() else { return Ok(()) };
        match &self.target {
            WriteTarget::AppendedFile(_) => {
                writer.close().map_err(|error| rowfile_write_error(error, path))
            }
            WriteTarget::NewFile { staged, overwrite } => {
                let placed = match writer.close() {
                    Ok(()) => commit_staged_file(staged, path, *overwrite),
                    Err(error) => Err(rowfile_write_error(error, path)),
                };
                if placed.is_err() {
                    // Nothing can be done if the removal fails too.
                    let _ = fs::remove_file(staged);
                }
                placed
            }
        }
    }

    fn abort(mut self: Box<Self>, path: &Path) {
        // The lock of the file is held until the writer is dropped. If the truncation fails, the next append
        // does it.
        match &self.target {
            WriteTarget::NewFile { staged, .. } => drop(fs::remove_file(staged)),
            WriteTarget::AppendedFile(end) => {
                if let Ok(file) = OpenOptions::new().write(true).open(path) {
                    let _ = file.set_len(*end);
                }
            }
        }
        self.writer = None;
    }
}

/// Creates a new file with a hidden name beside the final one.
fn create_staged_file(
    path: &Path,
    schema: &Schema,
    options: RowfileWriterOptions,
) -> Result<(Writer<File>, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::usage(format!("`{}` names no file", path_text(path))));
    };
    let wanted = WriteOptions {
        codec: options.compression,
        block_bytes: options.block_bytes,
        metadata: options.metadata,
        ..WriteOptions::default()
    };
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut staged = std::ffi::OsString::from(".");
        staged.push(name);
        staged.push(format!(".{}-{number}.unfinished", std::process::id()));
        let staged = path.with_file_name(staged);
        match Writer::create(&staged, schema, wanted.clone()) {
            Ok(writer) => return Ok((writer, staged)),
            // The name belongs to a killed process with the same id.
            Err(rowfile::Error::Io { error, .. })
                if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(rowfile::Error::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().map(path_text).unwrap_or_default();
                return Err(Error::NotFound { path: folder, hint: None });
            }
            Err(rowfile::Error::Io { error, .. }) => {
                return Err(Error::io("create", path, error));
            }
            Err(error) => return Err(rowfile_write_error(error, path)),
        }
    }
}

/// Opens an existing file for appending.
fn open_for_append(
    path: &Path,
    schema: Option<&Schema>,
    codec: Option<Codec>,
    has_metadata: bool,
    block_bytes: usize,
) -> Result<(Writer<File>, WriteTarget)> {
    let writer = Writer::append(path, block_bytes).map_err(|error| match error {
        rowfile::Error::Io { error, .. } => Error::io("append to", path, error),
        other => rowfile_write_error(other, path),
    })?;
    let end = writer.byte_count();
    let name = path_text(path);
    if let Some(schema) = schema
        && *schema != *writer.schema()
    {
        let why = schema
            .check_can_read(writer.schema())
            .err()
            .map_or(String::new(), |why| format!(": {why}"));
        return Err(Error::usage_with_hint(
            format!("`{name}` was written with another schema{why}"),
            "leave `schema` out to append with the file's own, or write a file of its own",
        ));
    }
    if has_metadata {
        return Err(Error::usage_with_hint(
            format!("`{name}` is there, and its metadata stay what they are"),
            "leave `metadata` out",
        ));
    }
    let own =
        rowfile::Reader::open(path).map_err(|error| rowfile_write_error(error, path))?.codec();
    if codec.is_some_and(|codec| codec != own) {
        return Err(Error::usage_with_hint(
            format!("`{name}` is there, and compressed with `{}`", codec_name(own)),
            "leave `compression` out",
        ));
    }
    Ok((writer, WriteTarget::AppendedFile(end)))
}

/// Gives a file its final name, durably.
fn commit_staged_file(staged: &Path, path: &Path, overwrite: bool) -> Result<()> {
    let renamed = match overwrite {
        true => fs::rename(staged, path),
        // A hard link is refused if the name exists; some file systems have no hard links.
        false => match fs::hard_link(staged, path) {
            Ok(()) => fs::remove_file(staged),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(_) if path.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => fs::rename(staged, path),
        },
    };
    renamed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Error::OutputExists { path: path_text(path), more: 0 },
        _ => Error::io("create", path, error),
    })?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Some file systems cannot sync a folder.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Adds to an error that the rows from `first` on of the file caused it.
fn add_row_range(error: Error, first: u64) -> Error {
    match error {
        Error::Usage { message, hint } => {
            Error::Usage { message: format!("rows from {first} on: {message}"), hint }
        }
        other => other,
    }
}

fn arrow_exception(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Parses the name of a codec: `none`, `lz4`, `zstd` or `zstd:LEVEL`.
fn parse_codec(name: &str) -> Result<Codec> {
    let wrong = || {
        Error::usage(format!(
            "unknown compression `{name}`\ncompressions: none, lz4, zstd, zstd:1 … zstd:22"
        ))
    };
    match name.split_once(':') {
        None => match name {
            "none" => Ok(Codec::None),
            "lz4" => Ok(Codec::Lz4),
            "zstd" => Ok(Codec::default()),
            _ => Err(wrong()),
        },
        Some(("zstd", level)) => match level.parse() {
            Ok(level @ 1..=22) => Ok(Codec::Zstd(level)),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

/// Returns the name of a codec.
pub(crate) fn codec_name(codec: Codec) -> String {
    match codec {
        Codec::None => "none".to_owned(),
        Codec::Lz4 => "lz4".to_owned(),
        Codec::Zstd(level) => format!("zstd:{level}"),
        other => format!("{other:?}"),
    }
}
