//! How are files and objects listed and copied?

use std::io;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tidemill_engine::remote::files::{
    self, CopySummary, DownloadOptions, EtagVerification, FileAccessSettings, FolderUsageOptions,
    UploadOptions, parse_byte_range,
};
use tidemill_engine::{CancelFlag, Error, Result, RunProgress};

use crate::errors::warn;
use crate::options::storage;
use crate::wait::{Display, on_a_thread, on_a_thread_showing};

fn settings(
    cancel: &CancelFlag,
    storage_options: &[(String, String)],
) -> Result<FileAccessSettings> {
    let storage_options = storage(storage_options)?;
    Ok(FileAccessSettings {
        storage_options,
        cancel: cancel.clone(),
        ..FileAccessSettings::default()
    })
}

pub(crate) fn json(value: &impl serde::Serialize) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::other)
}

/// A listing, each of it as JSON.
#[pyfunction]
pub(crate) fn ls(
    py: Python<'_>,
    urls: Vec<String>,
    recursive: bool,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    on_a_thread(py, cancel.clone(), move || {
        let settings = settings(&cancel, &storage_options)?;
        let mut found = Vec::new();
        for url in &urls {
            files::ls(url, recursive, &settings, &mut |entry| {
                found.push(json(&entry)?);
                Ok(())
            })?;
        }
        Ok(found)
    })
}

/// What is told of each, as JSON.
#[pyfunction]
pub(crate) fn stat(
    py: Python<'_>,
    urls: Vec<String>,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    on_a_thread(py, cancel.clone(), move || {
        let settings = settings(&cancel, &storage_options)?;
        let mut told = Vec::new();
        for url in &urls {
            files::stat(url, &settings, &mut |stat| {
                told.push(json(&stat)?);
                Ok(())
            })?;
        }
        Ok(told)
    })
}

/// The sums of folders, each as JSON.
#[pyfunction]
pub(crate) fn du(
    py: Python<'_>,
    urls: Vec<String>,
    depth: usize,
    storage_options: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let cancel = CancelFlag::new();
    on_a_thread(py, cancel.clone(), move || {
        let settings = settings(&cancel, &storage_options)?;
        let mut sums = Vec::new();
        for url in &urls {
            files::du(url, FolderUsageOptions { depth }, &settings, &mut |usage| {
                sums.push(json(&usage)?);
                Ok(())
            })?;
        }
        Ok(sums)
    })
}

/// The bytes of all, one after another.
#[pyfunction]
pub(crate) fn cat<'py>(
    py: Python<'py>,
    urls: Vec<String>,
    range: Option<String>,
    storage_options: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let cancel = CancelFlag::new();
    let bytes = on_a_thread(py, cancel.clone(), move || {
        let settings = settings(&cancel, &storage_options)?;
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

/// What became of files: how many were copied, their bytes, those of a run before, and how many were left; and
/// those that failed, each by its URL with what went wrong.
pub(crate) type RawCopied = (u64, u64, u64, u64, Vec<(String, String)>);

/// Returns the selection of ETags to compare; by default those of servers that document them.
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
) -> PyResult<RawCopied> {
    let defaults = DownloadOptions::default();
    let at_once = parallel.unwrap_or(defaults.concurrent_files);
    let output = output.map(|path| path.to_string_lossy().into_owned());
    let verify = verify_mode(verify);
    let options =
        DownloadOptions { output, overwrite, skip_existing, concurrent_files: at_once, verify };
    copy(py, storage_options, display, move |settings| {
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
) -> PyResult<RawCopied> {
    let defaults = UploadOptions::default();
    let at_once = parallel.unwrap_or(defaults.concurrent_files);
    let verify = verify_mode(verify);
    let options =
        UploadOptions { overwrite, skip_existing, concurrent_files: at_once, verify, ..defaults };
    copy(py, storage_options, display, move |settings| {
        Ok(files::upload_files(&paths, &url, &options, settings)?)
    })
}

fn copy(
    py: Python<'_>,
    storage_options: Vec<(String, String)>,
    display: Option<Py<PyAny>>,
    work: impl FnOnce(&FileAccessSettings) -> Result<CopySummary> + Send + 'static,
) -> PyResult<RawCopied> {
    let (cancel, progress) = (CancelFlag::new(), RunProgress::new());
    let display = Display::new(display, &progress);
    let copied = on_a_thread_showing(py, cancel.clone(), display, move || {
        work(&FileAccessSettings { progress, ..settings(&cancel, &storage_options)? })
    })?;
    self::copied(py, copied)
}

/// What became of files, as Python has it.
pub(crate) fn copied(py: Python<'_>, copied: CopySummary) -> PyResult<RawCopied> {
    for warning in &copied.warnings {
        warn(py, warning)?;
    }
    let failed = copied.failures.into_iter();
    let failed = failed.map(|failure| (failure.url, Error::from(failure.error).to_string()));
    let failed = failed.collect();
    Ok((copied.files, copied.bytes, copied.resumed_bytes, copied.skipped, failed))
}
