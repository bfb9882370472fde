//! The files that the programs of a run find by name. All programs of a run find the same files.

use std::sync::Arc;

use tidemill_base::error::{Error, Result};
use tidemill_base::redaction::redact_url;
use tidemill_remote::StorageOptions;
use tidemill_source::programs::companion_files::ProgramFiles;
use tidemill_source::programs::filter_program::FilterProgram;

use crate::resource_limits::ResourceLimits;

/// Opens files and objects for the programs of a run; returns `None` for an empty list. `storage` gives
/// access to remote objects, which are stored in the first spill folder that one of the limits names.
///
/// # Errors
/// [`Error::Usage`] for a URL without a file name, and for two files of one name.
pub fn open_program_files(
    urls: &[String],
    storage: &StorageOptions,
    limits: &[&ResourceLimits],
) -> Result<Option<Arc<ProgramFiles>>> {
    let parent = limits.iter().find_map(|limits| limits.spill_dirs.first());
    let parent = parent.cloned().unwrap_or_else(std::env::temp_dir);
    Ok(ProgramFiles::new(urls, storage, &parent)?)
}

/// Makes the files available to a program, if there is one.
pub fn attach_program_files(
    files: Option<&Arc<ProgramFiles>>,
    program: &mut Option<FilterProgram>,
) {
    if let (Some(files), Some(own)) = (files, program.as_mut()) {
        *own = own.clone().with_files(Some(Arc::clone(files)));
    }
}

/// Refuses files if no program can find them.
///
/// # Errors
/// [`Error::Usage`] if there are files and no program.
pub fn check_files_have_a_program(
    files: Option<&Arc<ProgramFiles>>,
    programs: &[Option<&FilterProgram>],
) -> Result<()> {
    match files.and_then(|files| files.urls().next()) {
        Some(url) if programs.iter().all(Option::is_none) => Err(Error::usage_with_hint(
            format!(
                "no program would find `{}`: neither the source nor the sink has one",
                redact_url(url)
            ),
            "`files` are for the programs of `exec`; what a query reads stands in its SQL",
        )),
        _ => Ok(()),
    }
}
