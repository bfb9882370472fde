//! Sorts lines with GNU sort's options.

use std::path::PathBuf;

use pyo3::prelude::*;
use tidemill_engine::id_set_operations::convert_sort_error;
use tidemill_engine::{CancelFlag, Error, Result};
use tidemill_sort::gnu::{self, GnuSortCommand, GnuSortOptions, GnuSortOutcome, GnuSortStreams};

use crate::errors::to_sort_exception;
use crate::interruptible_wait::run_on_thread;

/// True if the input was in order; output that went to no file; messages; the error in the words, if any.
type LineSortResult = (bool, Vec<u8>, String, Option<String>);

/// Sorts with GNU sort's options. Returns whether the input was in order if that is checked, the output that
/// went to no file, the messages, and the error in the words. Messages name the command line's options.
#[pyfunction]
pub(crate) fn sort(py: Python<'_>, words: Vec<PathBuf>) -> PyResult<LineSortResult> {
    let cancel = CancelFlag::new();
    let flag = cancel.atomic_flag();
    let sort = move || -> Result<LineSortResult> {
        let command = match GnuSortOptions::parse(words) {
            Ok(command) => command,
            Err(error) => return Ok((false, Vec::new(), String::new(), Some(error.to_string()))),
        };
        require_input_files(&command)?;
        let (mut written, mut said) = (Vec::new(), Vec::new());
        let mut io = GnuSortStreams::from_process();
        io.stdin = Box::new(std::io::empty());
        io.stdout = Box::new(&mut written);
        io.stderr = Box::new(&mut said);
        io.cancel = flag.into();
        let outcome = gnu::run_gnu_sort(&command, &mut io);
        drop(io);
        let is_sorted =
            !matches!(outcome.map_err(translate_sort_error)?, GnuSortOutcome::Disorder { .. });
        Ok((is_sorted, written, String::from_utf8_lossy(&said).into_owned(), None))
    };
    run_on_thread(py, cancel, move || Ok(sort()))?.map_err(|error| to_sort_exception(py, error))
}

/// Refuses to read standard input, which a Python process needs itself.
fn require_input_files(command: &GnuSortCommand) -> Result<()> {
    let GnuSortCommand::Run(options) = command else { return Ok(()) };
    let has_files = !options.inputs.is_empty() && options.inputs.iter().all(|path| path != "-");
    match has_files || options.input_list.as_ref().is_some_and(|path| path != "-") {
        true => Ok(()),
        false => Err(Error::usage_with_hint(
            "there is nothing to sort",
            "name a file: tm.sort('lines.txt')",
        )),
    }
}

fn translate_sort_error(error: gnu::GnuSortError) -> Error {
    match error {
        gnu::GnuSortError::Io { action, path, source } => Error::io(action, path, source),
        gnu::GnuSortError::Sort(error) => convert_sort_error(error),
        other => Error::usage(other.to_string()),
    }
}
