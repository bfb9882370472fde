//! The functions `convert`, `sort_files`, `check`, `salvage` and `check_schema`.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidemill_engine::convert::{Conversion, ConversionReport};
use tidemill_engine::job::ResourceLimits;
use tidemill_engine::jobs::RunDescription;
use tidemill_engine::run_handle::{RunHandle, prepare_run};
use tidemill_engine::sink::{SinkSpec, StagedFile};
use tidemill_engine::source::files::rowfile_check::CheckableRowfiles;
use tidemill_engine::source::{SourceSpec, schema::schema_compatibility};
use tidemill_engine::{CancelFlag, Error, Query, Result, RunId, RunProgress, program_files};

use crate::errors::{issue_warning, to_exception};
use crate::interruptible_wait::run_on_thread;
use crate::options::{LimitOptions, OnOptions, SinkOptions, SourceOptions, parse_storage_options};
use crate::{RawWritten, StartedRun, coverage_json_and_line, run_query};

fn report_json(value: impl serde::Serialize) -> Result<String> {
    serde_json::to_string(&value)
        .map_err(|error| Error::Internal(format!("a report as JSON: {error}")))
}

fn to_source_spec(source: SourceOptions, urls: Vec<String>) -> Result<SourceSpec> {
    let is_none = urls.is_empty();
    let mut urls = urls.into_iter();
    let url = urls.next().unwrap_or_default();
    let spec = SourceSpec { more_urls: urls.collect(), ..source.into_source_spec(url)? };
    // A program's output can be the only input.
    if is_none && spec.filter_program.is_none() {
        return Err(Error::usage_with_hint("no file is named", "name at least one file to read"));
    }
    Ok(spec)
}

/// Converts files to a file or a folder; returns the summary and the number of skipped outputs.
#[pyfunction]
#[pyo3(signature = (urls, select, condition, skip_existing, source, sink, limits, on))]
#[expect(clippy::too_many_arguments, reason = "what Python gives by name")]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    urls: Vec<String>,
    select: Option<String>,
    condition: Option<String>,
    skip_existing: bool,
    source: SourceOptions,
    sink: SinkOptions,
    limits: LimitOptions,
    on: OnOptions,
) -> PyResult<(Bound<'py, PyAny>, u64)> {
    let conversion = py.detach(|| -> Result<Conversion> {
        let files = source.program_files(&limits)?;
        let mut source = to_source_spec(source, urls)?;
        let mut sink = sink.with_job_defaults(None)?.unwrap_or_else(|| SinkSpec::new("-"));
        program_files::attach_program_files(files.as_ref(), &mut source.filter_program);
        program_files::attach_program_files(files.as_ref(), &mut sink.exec);
        program_files::check_files_have_a_program(
            files.as_ref(),
            &[source.filter_program.as_ref(), sink.exec.as_ref()],
        )?;
        Ok(Conversion { source, select, condition, sink, skip_existing, workers: None })
    });
    let conversion = conversion.map_err(|error| to_exception(py, error))?;
    let about = RunDescription {
        verb: "convert",
        mapper: conversion.describe_selection(),
        sources: conversion.source.urls().cloned().collect(),
        output: Some(conversion.sink.url.clone()),
        ..RunDescription::default()
    };
    if !conversion.is_to_folder() {
        let query = conversion.check_single_output().and_then(|()| conversion.to_query());
        let master = on.named_master().map_err(|error| to_exception(py, error))?;
        let query = query
            .and_then(|query| on.apply_to_query(query))
            .map_err(|error| to_exception(py, error))?;
        let sink = Some(conversion.sink);
        let written =
            run_query(py, (query, master), sink, limits, &ResourceLimits::default(), about)?;
        return Ok((written, 0));
    }
    on.refuse_master().map_err(|error| to_exception(py, error))?;
    on.refuse_scratch().map_err(|error| to_exception(py, error))?;
    let conversion = Conversion { workers: on.into_remote_workers(), ..conversion };
    let (limits, display) = limits.into_limits_and_display();
    let preparation = py.detach(|| prepare_run(&limits, &ResourceLimits::default()));
    let preparation = preparation.map_err(|error| to_exception(py, error))?;
    let id = preparation.run_id.clone();
    let found: Arc<Mutex<Option<Arc<Mutex<ConversionReport>>>>> = Arc::default();
    let slot = Arc::clone(&found);
    let mut begun = StartedRun::new(py, preparation, Some(about), display, move |settings| {
        let (running, converted) = conversion.start_to_folder(&settings, &id)?;
        *slot.lock() = Some(converted);
        Ok::<RunHandle, Error>(running)
    })?;
    begun.drain(py)?;
    let converted = found.lock().take();
    let converted = converted.map(|it| std::mem::take(&mut *it.lock())).unwrap_or_default();
    if let Some(warning) = &converted.output_summary.warning {
        issue_warning(py, warning)?;
    }
    if let Some(error) = converted.to_error() {
        return Err(to_exception(py, error));
    }
    let (coverage, coverage_line) = coverage_json_and_line(begun.coverage());
    let stats = begun.stats(py)?;
    let written = converted.output_summary;
    let raw = RawWritten {
        files: written.files,
        rows: written.rows,
        bytes: written.bytes,
        paths: written.paths,
        root: written.root,
        coverage,
        coverage_line,
        stats,
    };
    Ok((Bound::new(py, raw)?.into_any(), converted.skipped_outputs))
}

/// Sorts the rows of files by their columns into one output.
#[pyfunction]
pub(crate) fn sort_files<'py>(
    py: Python<'py>,
    urls: Vec<String>,
    by: String,
    limit: Option<u64>,
    source: SourceOptions,
    sink: SinkOptions,
    limits: LimitOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let request = py.detach(|| -> Result<_> {
        let source = to_source_spec(source, urls)?;
        let sink = sink.with_job_defaults(None)?.unwrap_or_else(|| SinkSpec::new("-"));
        let about = RunDescription {
            verb: "sort",
            mapper: Some(format!("ORDER BY {by}")),
            sources: source.urls().cloned().collect(),
            ..RunDescription::default()
        };
        let query = Query::select_sorted(source, &by, limit)?;
        Ok((Query { keeps_columns: sink.preserves_column_metadata(), ..query }, sink, about))
    });
    let (query, sink, about) = request.map_err(|error| to_exception(py, error))?;
    run_query(py, (query, None), Some(sink), limits, &ResourceLimits::default(), about)
}

/// Returns the check of each rowfile as JSON.
#[pyfunction]
pub(crate) fn check(
    py: Python<'_>,
    urls: Vec<String>,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    let flag = cancel.clone();
    run_on_thread(py, cancel, move || {
        let files = checkable_rowfiles(urls, &storage_options, &flag)?;
        (0..files.count()).map(|index| report_json(files.check_file(index)?)).collect()
    })
}

/// Writes the intact blocks of a rowfile to another file; returns a summary as JSON.
#[pyfunction]
pub(crate) fn salvage(
    py: Python<'_>,
    url: String,
    out: PathBuf,
    overwrite: bool,
    storage_options: Vec<(String, String)>,
) -> PyResult<String> {
    let cancel = CancelFlag::new();
    let flag = cancel.clone();
    run_on_thread(py, cancel, move || {
        let files = checkable_rowfiles(vec![url], &storage_options, &flag)?;
        if files.count() > 1 {
            return Err(Error::usage_with_hint(
                format!("one file is salvaged at a time, and these are {}", files.count()),
                "salvage each to a name of its own",
            ));
        }
        let file = StagedFile::create(&out, overwrite, &RunId::new())?;
        let (file, kept) = files.salvage_file(0, file, &out.display().to_string())?;
        let bytes = file.bytes_written();
        file.commit(bytes)?;
        report_json(kept)
    })
}

fn checkable_rowfiles(
    urls: Vec<String>,
    options: &[(String, String)],
    cancel: &CancelFlag,
) -> Result<CheckableRowfiles> {
    let mut urls = urls.into_iter();
    let spec = SourceSpec {
        url: urls.next().unwrap_or_default(),
        more_urls: urls.collect(),
        storage_options: parse_storage_options(options)?,
        ..SourceSpec::default()
    };
    Ok(CheckableRowfiles::list(&spec, cancel, &RunProgress::new())?)
}

/// Returns the columns and reasons why the schema of `new` does not read the data of `old`.
#[pyfunction]
pub(crate) fn check_schema(
    py: Python<'_>,
    old: String,
    new: String,
    old_options: SourceOptions,
    new_options: SourceOptions,
) -> PyResult<Vec<(String, String)>> {
    run_on_thread(py, CancelFlag::new(), move || {
        let (old, new) = (old_options.into_source_spec(old)?, new_options.into_source_spec(new)?);
        let conflicts = schema_compatibility::find_schema_conflicts(&old, &new)?.into_iter();
        Ok(conflicts.map(|conflict| (conflict.column, conflict.reason)).collect())
    })
}
