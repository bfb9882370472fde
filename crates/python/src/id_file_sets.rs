//! Set operations on files of ids.

use pyo3::prelude::*;
use tidemill_engine::CancelFlag;
use tidemill_engine::id_set_operations::{self, IdSetFormat, IdSetRequest};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::run_handle::prepare_run;

use crate::errors::to_exception;
use crate::interruptible_wait::{ProgressDisplay, run_on_thread_with_display};
use crate::options::{LimitOptions, parse_storage_options};

/// Combines sets of ids; returns the output that goes to no file, and the number of ids.
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
    let (limits, display) = limits.into_limits_and_display();
    let (signed, sorted, overwrite) = flags;
    let preparation = py.detach(|| prepare_run(&limits, &ResourceLimits::default()));
    let settings = preparation.map_err(|error| to_exception(py, error))?.settings;
    let cancel: CancelFlag = settings.cancel.clone();
    let display = ProgressDisplay::new(display, &settings.progress);
    run_on_thread_with_display(py, cancel, display, move || {
        let request = IdSetRequest {
            operation: id_set_operations::parse_operation(&operation)?,
            inputs: files,
            input_format: input_format.as_deref().map(IdSetFormat::from_name).transpose()?,
            id_column: column,
            signed_ids: signed,
            inputs_are_sorted: sorted,
            output,
            output_format: format,
            overwrite,
            storage_options: parse_storage_options(&storage_options)?,
        };
        let mut written = Vec::new();
        let counts = id_set_operations::combine_id_sets(&request, &settings, &mut written)?;
        Ok((written, counts.output_ids))
    })
}
