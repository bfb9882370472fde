//! Lists, measures, reads and copies files and objects.

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidemill_engine::remote::files::{
    self, CopySummary, DownloadOptions, EtagVerification, FileAccessSettings, FolderUsageOptions,
    UploadOptions, parse_byte_range,
};
use tidemill_engine::{CancelFlag, Error, Result, RunProgress};

use crate::errors::issue_warning;
use crate::interruptible_wait::{ProgressDisplay, run_on_thread, run_on_thread_with_display};
use crate::options::parse_storage_options;

fn access_settings(
    cancel: &CancelFlag,
    storage_options: &[(String, String)],
) -> Result<FileAccessSettings> {
    let storage_options = parse_storage_options(storage_options)?;
    Ok(FileAccessSettings {
        storage_options,
        cancel: cancel.clone(),
        ..FileAccessSettings::default()
    })
}

pub(crate) fn to_json_text(value: &impl serde::Serialize) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::other)
}

/// Returns the entries of listings as JSON texts.
#[pyfunction]
pub(crate) fn ls(
    py: Python<'_>,
    urls: Vec<String>,
    recursive: bool,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    run_on_thread(py, cancel.clone(), move || {
        let settings = access_settings(&cancel, &storage_options)?;
        let mut found = Vec::new();
        for url in &urls {
            files::ls(url, recursive, &settings, &mut |entry| {
                found.push(to_json_text(&entry)?);
                Ok(())
            })?;
        }
        Ok(found)
    })
}

/// Returns the metadata of files as JSON texts.
#[pyfunction]
pub(crate) fn stat(
    py: Python<'_>,
    urls: Vec<String>,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    run_on_thread(py, cancel.clone(), move || {
        let settings = access_settings(&cancel, &storage_options)?;
        let mut told = Vec::new();
        for url in &urls {
            files::stat(url, &settings, &mut |stat| {
                told.push(to_json_text(&stat)?);
                Ok(())
            })?;
        }
        Ok(told)
    })
}

/// Returns the sizes of folders as JSON texts.
#[pyfunction]
pub(crate) fn du(
    py: Python<'_>,
    urls: Vec<String>,
    depth: usize,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    run_on_thread(py, cancel.clone(), move || {
        let settings = access_settings(&cancel, &storage_options)?;
        let mut sums = Vec::new();
        for url in &urls {
            files::du(url, FolderUsageOptions { depth }, &settings, &mut |usage| {
                sums.push(to_json_text(&usage)?);
                Ok(())
            })?;
        }
        Ok(sums)
    })
}

/// Returns the bytes of all files, one after another.
#[pyfunction]
pub(crate) fn cat<'py>(
    py: Python<'py>,
    urls: Vec<String>,
    range: Option<String>,
    storage_options: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let cancel = CancelFlag::new();
    let bytes = run_on_thread(py, cancel.clone(), move || {
        let settings = access_settings(&cancel, &storage_options)?;
        let range = range.as_deref().map(parse_byte_range).transpose()?;
        let mut all = Vec::new();
        files::cat(&urls, range.unwrap_or(0..u64::MAX), &settings, &mut |bytes| {
            all.try_reserve(bytes.len()).map_err(io::Error::other)?;
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// The summary of a copy: numbers of copied files, of bytes, of bytes from an earlier run, and of skipped
/// files; and the failures, each with URL and error.
pub(crate) type CopySummaryTuple = (u64, u64, u64, u64, Vec<(String, String)>);

/// Returns the selection of the ETags to compare; the default is those that servers document.
fn verify_mode(verify: Option<bool>) -> EtagVerification {
    match verify {
        None => EtagVerification::Documented,
        Some(true) => EtagVerification::Always,
        Some(false) => EtagVerification::Never,
    }
}

/// Fetches objects into files.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn get(
    py: Python<'_>,
    urls: Vec<String>,
    output: Option<PathBuf>,
    overwrite: bool,
    skip_existing: bool,
    parallel: Option<usize>,
    verify: Option<bool>,
    storage_options: Vec<(String, String)>,
    display: Option<Py<PyAny>>,
) -> PyResult<CopySummaryTuple> {
    let defaults = DownloadOptions::default();
    let at_once = parallel.unwrap_or(defaults.concurrent_files);
    let output = output.map(|path| path.to_string_lossy().into_owned());
    let verify = verify_mode(verify);
    let options =
        DownloadOptions { output, overwrite, skip_existing, concurrent_files: at_once, verify };
    run_copy(py, storage_options, display, move |settings| {
        Ok(files::download_files(&urls, &options, settings)?)
    })
}

/// Sends files to a bucket.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn put(
    py: Python<'_>,
    paths: Vec<String>,
    url: String,
    overwrite: bool,
    skip_existing: bool,
    parallel: Option<usize>,
    verify: Option<bool>,
    storage_options: Vec<(String, String)>,
    display: Option<Py<PyAny>>,
) -> PyResult<CopySummaryTuple> {
    let defaults = UploadOptions::default();
    let at_once = parallel.unwrap_or(defaults.concurrent_files);
    let verify = verify_mode(verify);
    let options =
        UploadOptions { overwrite, skip_existing, concurrent_files: at_once, verify, ..defaults };
    run_copy(py, storage_options, display, move |settings| {
        Ok(files::upload_files(&paths, &url, &options, settings)?)
    })
}

fn run_copy(
    py: Python<'_>,
    storage_options: Vec<(String, String)>,
    display: Option<Py<PyAny>>,
    work: impl FnOnce(&FileAccessSettings) -> Result<CopySummary> + Send + 'static,
) -> PyResult<CopySummaryTuple> {
    let (cancel, progress) = (CancelFlag::new(), RunProgress::new());
    let display = ProgressDisplay::new(display, &progress);
    let copied = run_on_thread_with_display(py, cancel.clone(), display, move || {
        work(&FileAccessSettings { progress, ..access_settings(&cancel, &storage_options)? })
    })?;
    self::copy_summary_tuple(py, copied)
}

/// Converts the summary of a copy, and issues its warnings.
pub(crate) fn copy_summary_tuple(
    py: Python<'_>,
    copied: CopySummary,
) -> PyResult<CopySummaryTuple> {
    for warning in &copied.warnings {
        issue_warning(py, warning)?;
    }
    let failed = copied.failures.into_iter();
    let failed = failed.map(|failure| (failure.url, Error::from(failure.error).to_string()));
    let failed = failed.collect();
    Ok((copied.files, copied.bytes, copied.resumed_bytes, copied.skipped, failed))
}
