//! What can go wrong while records are sorted.

use std::io;
use std::path::PathBuf;

/// The crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why records were not sorted. Whatever it is, the spill files are gone and no output has appeared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or a combination of them, that makes no sense.
    #[error("{message}\nhint: {hint}")]
    InvalidOption {
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The operating system refused a file.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// The verb: `open`, `read`, `write`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
    /// No spill folder has room for what is still to be written. The same sort may be tried again.
    #[error(
        "no room to spill: {needed_bytes} bytes are still to be written, and {} \
         \nhint: free some space, or name a folder on another disk too",
        free_text(folders)
    )]
    DiskFull {
        /// At least so much is still to be written.
        needed_bytes: u64,
        /// Each spill folder and the bytes that are free there, where the system says.
        folders: Vec<(PathBuf, Option<u64>)>,
        /// The last refusal.
        source: io::Error,
    },
    /// No spill file may grow further, whatever room there is. Tried again, the same sort fails again.
    #[error(
        "the spill file in `{}` may not grow beyond {}\nhint: raise the limit with `ulimit -f unlimited`, or name more \
         folders to spill to: each has a file of its own",
        folder.display(), limit_text(*limit_bytes)
    )]
    FileSizeLimit {
        /// The spill folder that refused last.
        folder: PathBuf,
        /// The process's limit of a file's size (`ulimit -f`); where there is none, it is the file system's.
        limit_bytes: Option<u64>,
        /// The refusal.
        source: io::Error,
    },
    /// What was read back from a spill file is not what was written.
    #[error("corrupt spill data in `{folder}` at byte {offset}: {reason}\nhint: {hint}", hint = retry_hint(*task))]
    CorruptSpill {
        /// The spill folder.
        folder: PathBuf,
        /// The place in the spill file.
        offset: u64,
        /// The task whose rows are lost, where that can still be told: running it again makes up for it.
        task: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// A record that the memory budget cannot hold twice beside everything else.
    #[error(
        "a record of {bytes} bytes is longer than the {limit_bytes} that the memory budget allows\nhint: give the sort \
         more memory"
    )]
    RecordTooLong {
        /// Its length.
        bytes: u64,
        /// What would have been taken.
        limit_bytes: u64,
    },
    /// A record of another size than all records were said to have.
    #[error(
        "a record of {found} bytes among records of {expected}\nhint: give the size that every record has"
    )]
    RecordSize {
        /// What was announced.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// Whoever takes the sorted records refused some.
    #[error("cannot write the sorted records: {0}")]
    Output(io::Error),
    /// The sort was asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// The records that came out are not the ones that went in: a bug, or bad memory.
    #[error(
        "internal error: {rows_in} rows went in and {rows_out} came out, or their checksums differ\nhint: report it, and do not \
         use the output"
    )]
    ChecksumMismatch {
        /// Committed rows.
        rows_in: u64,
        /// Rows that came out, those that `unique` dropped included.
        rows_out: u64,
    },
}

impl Error {
    /// An operation on a file that the system refused.
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

    /// Whether the same sort may succeed when it is tried again: a full disk, or a corrupt frame.
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
