//! Errors of sorting records.

use std::io;
use std::path::PathBuf;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why records were not sorted. In every case the spill files are gone and no output has appeared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid option, or an invalid combination of options.
    #[error("{message}\nhint: {hint}")]
    InvalidOption {
        /// The defect of the option.
        message: String,
        /// The remedy.
        hint: String,
    },
    /// The operating system refused a file operation.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The verb: `open`, `read`, `write`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// No spill folder has room for the rest. The same sort can be retried.
    #[error(
        "no room to spill: {needed_bytes} bytes are still to be written, and {} \
         \nhint: free some space, or name a folder on another disk too",
        free_text(folders)
    )]
    DiskFull {
        /// Minimum bytes that are still to be written.
        needed_bytes: u64,
        /// Each spill folder and its free bytes, if the system tells.
        folders: Vec<(PathBuf, Option<u64>)>,
        /// The last refusal.
        source: io::Error,
    },
    /// No spill file may grow further, whatever room there is. A retry of the same sort fails again.
    #[error(
        "the spill file in `{}` may not grow beyond {}\nhint: raise the limit with `ulimit -f unlimited`, or name more \
         folders to spill to: each has a file of its own",
        folder.display(), limit_text(*limit_bytes)
    )]
    FileSizeLimit {
        /// The spill folder that refused last.
        folder: PathBuf,
        /// The process's limit of a file's size (`ulimit -f`); `None`: the limit is the file system's.
        limit_bytes: Option<u64>,
        /// The refusal.
        source: io::Error,
    },
    /// The data read back from a spill file differs from the written data.
    #[error("corrupt spill data in `{folder}` at byte {offset}: {reason}\nhint: {hint}", hint = retry_hint(*task))]
    CorruptSpill {
        /// The spill folder.
        folder: PathBuf,
        /// The offset in the spill file.
        offset: u64,
        /// The task whose rows are lost, if known: running it again repairs the loss.
        task: Option<u64>,
        /// The defect.
        reason: String,
    },
    /// A record that the memory budget cannot hold twice beside everything else.
    #[error(
        "a record of {bytes} bytes is longer than the {limit_bytes} that the memory budget allows\nhint: give the sort \
         more memory"
    )]
    RecordTooLong {
        /// Length of the record.
        bytes: u64,
        /// Maximum length.
        limit_bytes: u64,
    },
    /// A record whose size differs from the fixed record size.
    #[error(
        "a record of {found} bytes among records of {expected}\nhint: give the size that every record has"
    )]
    RecordSize {
        /// The fixed size.
        expected: usize,
        /// The size of the record.
        found: usize,
    },
    /// The consumer of the sorted records failed.
    #[error("cannot write the sorted records: {0}")]
    Output(io::Error),
    /// The sort was cancelled.
    #[error("interrupted")]
    Cancelled,
    /// The records of output and input differ: a bug, or bad memory.
    #[error(
        "internal error: {rows_in} rows went in and {rows_out} came out, or their checksums differ\nhint: report it, and do not \
         use the output"
    )]
    ChecksumMismatch {
        /// Committed rows.
        rows_in: u64,
        /// Rows of the output, including those that `unique` dropped.
        rows_out: u64,
    },
}

impl Error {
    /// Creates an error for a refused file operation.
    pub(crate) fn io_error(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> Self {
        Error::Io { action, path: path.into(), source }
    }

    pub(crate) fn invalid_option(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::InvalidOption { message: message.into(), hint: hint.into() }
    }

    /// Returns whether a retry of the same sort may succeed: after a full disk, or a corrupt frame.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::CorruptSpill { .. })
    }
}

fn retry_hint(task: Option<u64>) -> String {
    match task {
        Some(task) => format!(
            "sort again: the rows of task {task} are lost, the disk or the memory may be failing"
        ),
        None => "sort again: the disk or the memory may be failing".to_owned(),
    }
}

fn limit_text(limit_bytes: Option<u64>) -> String {
    match limit_bytes {
        Some(bytes) => format!("{bytes} bytes, the limit of a file's size (`ulimit -f`)"),
        None => "what its file system allows a file".to_owned(),
    }
}

fn free_text(folders: &[(PathBuf, Option<u64>)]) -> String {
    let each = folders.iter().map(|(path, free)| match free {
        Some(bytes) => format!("`{}` has {bytes} free", path.display()),
        None => format!("`{}` is full", path.display()),
    });
    each.collect::<Vec<_>>().join(", ")
}
