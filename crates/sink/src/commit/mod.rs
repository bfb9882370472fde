//! Commits of staged files: atomic renames, S3 uploads, and their recovery.
//!
//! - `coverage_file`: the file of a run's coverage, beside its output.
//! - `file_commit`: atomic commit of files.
//! - `file_set`: files of known names that appear together.
//! - `fs`: the file-system operations of the sink, one function each.
//! - `local_paths`: resolution of local paths.
//! - `object_set`: objects of known names, written by worker processes, that appear together.
//! - `s3_commit`: atomic commit of objects to `s3://`.
//! - `staged_file`: staged files of any content, which appear whole or not at all.

pub mod coverage_file;
pub(crate) mod file_commit;
pub(crate) mod file_set;
pub(crate) mod fs;
pub(crate) mod local_paths;
pub(crate) mod object_set;
pub(crate) mod s3_commit;
pub(crate) mod staged_file;
