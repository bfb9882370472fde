//! Translates the engine's errors to Python exceptions. The classes are in `tidemill._errors`.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use tidemill_engine::Error;
use tidemill_engine::error::redact_secrets;

/// Issues a warning through Python's `warnings`.
///
/// # Errors
/// The exception that a warnings filter raises.
pub(crate) fn issue_warning(py: Python<'_>, text: &str) -> PyResult<()> {
    py.import("tidemill._errors")?.getattr("warn")?.call1((redact_secrets(text),))?;
    Ok(())
}

/// Returns the exception for an error.
pub(crate) fn to_exception(py: Python<'_>, error: Error) -> PyErr {
    exception_or_own_failure(py, &error, OptionNaming::Python)
}

/// Returns the exception for an error of GNU sort, whose message names the options of the command line.
pub(crate) fn to_sort_exception(py: Python<'_>, error: Error) -> PyErr {
    exception_or_own_failure(py, &error, OptionNaming::Sort)
}

/// The interface whose option names a message uses.
enum OptionNaming {
    Python,
    /// `tidemill sort`.
    Sort,
}

fn exception_or_own_failure(py: Python<'_>, error: &Error, words: OptionNaming) -> PyErr {
    build_exception(py, error, words).unwrap_or_else(|other| other)
}

/// Returns the exception for corrupt bytes.
pub(crate) fn corrupt_bytes_exception(py: Python<'_>, message: &str) -> PyErr {
    let class = || -> PyResult<Bound<'_, PyType>> {
        let class = py.import("tidemill._errors")?.getattr("CorruptBytesError")?;
        Ok(class.cast_into::<PyType>()?)
    };
    match class() {
        Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
        Err(other) => other,
    }
}

fn build_exception(py: Python<'_>, error: &Error, words: OptionNaming) -> PyResult<PyErr> {
    let class = match error {
        Error::Interrupted => return Ok(PyKeyboardInterrupt::new_err(())),
        Error::Usage { .. } => "UsageError",
        Error::NotFound { .. } => "NotFoundError",
        Error::OutputExists { .. } => "OutputExistsError",
        Error::Io { .. }
        | Error::SpillDiskFull { .. }
        | Error::Remote { .. }
        | Error::UnfinishedCommit { .. } => "InputOutputError",
        Error::Rowfile { .. }
        | Error::Corrupt { .. }
        | Error::IncompatibleFiles { .. }
        | Error::FileChanged { .. } => "CorruptFileError",
        Error::BadRecords { .. } => "BadRecordError",
        Error::Overflow { .. } => "OutOfRangeError",
        Error::InvalidBytes { .. } => "CorruptBytesError",
        Error::MemoryBudgetTooSmall { .. } => "MemoryLimitError",
        Error::Internal(_) => "InternalError",
        _ => "TidemillError",
    };
    let errors = py.import("tidemill._errors")?;
    let message = redact_secrets(&error.to_string());
    let message = match words {
        OptionNaming::Python => errors.getattr("in_python")?.call1((message,))?.unbind(),
        OptionNaming::Sort => {
            let message = message.replace("--spill-dir", "-T").replace("--memory", "-S");
            message.into_py_any(py)?
        }
    };
    let class = errors.getattr(class)?.cast_into::<PyType>()?;
    let exception = PyErr::from_type(class, (message,));
    if let Error::RegisteredFormat { source, .. } = error
        && let Some(raised) = source.downcast_ref::<PyErr>()
    {
        exception.set_cause(py, Some(raised.clone_ref(py)));
    }
    let filename = match error {
        Error::NotFound { path, .. } | Error::OutputExists { path, .. } => Some(path),
        Error::Io { path, .. } | Error::UnfinishedCommit { path, .. } => Some(path),
        Error::Remote { url, .. } => Some(url),
        _ => None,
    };
    if let Some(filename) = filename {
        exception.value(py).setattr("filename", redact_secrets(filename))?;
    }
    if let Error::Io { source, .. } | Error::SpillDiskFull { source, .. } = error {
        exception.value(py).setattr("errno", source.raw_os_error())?;
    }
    if let Error::BadRecords { first, .. } = error {
        let records = first.iter().map(|record| {
            let fields = PyDict::new(py);
            fields.set_item("path", &record.path)?;
            fields.set_item("line", record.line)?;
            fields.set_item("row", record.row)?;
            fields.set_item("offset", record.offset)?;
            fields.set_item("column", &record.column)?;
            fields.set_item("reason", &record.reason)?;
            Ok(fields)
        });
        exception.value(py).setattr("records", records.collect::<PyResult<Vec<_>>>()?)?;
    }
    Ok(exception)
}
