//! Commits of staged files: atomic renames, S3 uploads, and their recovery.
//!
//! - `coverage_file`: writes a run's coverage beside its output.
//! - `file_commit`: makes all files of a run visible at once; staging folder, manifest, recovery.
//! - `file_set`: files with known names, written by several processes and committed together.
//! - `fs`: the file-system operations of the sink; tests can make each one fail.
//! - `local_paths`: resolves links in output paths, and recognizes devices and descriptors.
//! - `object_set`: objects with known names, uploaded by worker processes and completed together.
//! - `s3_commit`: makes all objects of a run visible in a bucket, or none; upload log, recovery.
//! - `staged_file`: one file of any content that appears whole or not at all.

pub mod coverage_file;
pub(crate) mod file_commit;
pub(crate) mod file_set;
pub(crate) mod fs;
pub(crate) mod local_paths;
pub(crate) mod object_set;
pub(crate) mod s3_commit;
pub(crate) mod staged_file;
