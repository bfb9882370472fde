//! How are sets of ids in files combined?

use pyo3::prelude::*;
use tidemill_engine::CancelFlag;
use tidemill_engine::ids::{self, Request, Stored};
use tidemill_engine::job::Limits;
use tidemill_engine::running::prepare;

use crate::errors::raise;
use crate::options::{LimitOptions, storage};
use crate::wait::{Display, on_a_thread_showing};

/// Combines sets of ids: what is written to no file, and how many there are.
#[pyfunction]
#[pyo3(signature = (operation, files, output, format, input_format, column, flags, storage_options, limits))]
#[expect(clippy::too_many_arguments, reason = "what Python gives by name")]
pub(crate) fn combine_ids(
    py: Python<'_>,
    operation: String,
    files: Vec<String>,
    output: Option<String>,
    format: Option<String>,
    input_format: Option<String>,
    column: Option<String>,
    flags: (bool, bool, bool),
    storage_options: Vec<(String, String)>,
    limits: LimitOptions,
) -> PyResult<(Vec<u8>, u64)> {
    let (limits, display) = limits.split();
    let (signed, sorted, overwrite) = flags;
    let preparation = py.detach(|| prepare(&limits, &Limits::default()));
    let settings = preparation.map_err(|error| raise(py, error))?.settings;
    let cancel: CancelFlag = settings.cancel.clone();
    let display = Display::new(display, &settings.progress);
    on_a_thread_showing(py, cancel, display, move || {
        let request = Request {
            operation: ids::operation(&operation)?,
            inputs: files,
            input_format: input_format.as_deref().map(Stored::named).transpose()?,
            column,
            signed,
            sorted,
            output,
            format,
            overwrite,
            storage_options: storage(&storage_options)?,
        };
        let mut written = Vec::new();
        let counts = ids::run(&request, &settings, &mut written)?;
        Ok((written, counts.output_ids))
    })
}
