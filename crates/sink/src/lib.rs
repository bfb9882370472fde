//! Writes results: one file or many, in one of the formats, committed as one.
//!
//! ```text
//!  batches ─┬─ one file ─────────────── format ── staged ─┐
//!           └─ router ─ groups by path ─ files ── staged ─┴─ commit: all names at once
//! ```
//!
//! - `sink_spec`: the user's description of an output. `destination`: the destinations, each with its steps to
//!   begin, write and commit.
//! - `formats`: the formats, with their limits and encoders.
//! - `writing`: writers of files, path templates, codecs, and files partitioned by key.
//! - `commit`: staging, atomic commit and recovery of files, and of objects in a bucket.
//! - `worker_output`: files of an output that worker processes write.
//! - `display`: results as tables on a terminal, and estimates with their bounds as one column.
//! - `error`: the errors of an output.
//!
//! A name of a device, a pipe or a descriptor (`/dev/null`, `/dev/stdout`) and `-` are written
//! directly: there is nothing to rename. The sink follows a symbolic link to a file, as a shell's
//! `>` does: it writes the file that the link points to, staged beside it. New files have the
//! permissions that the umask leaves; those of a replaced file are not carried over.

pub mod commit;
mod destination;
pub mod display;
mod error;
mod formats;
mod sink_spec;
mod worker_output;
mod writing;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;
use tracing::debug_span;

pub use self::error::{Error, Result};
pub use self::formats::OutputFormat;
pub use self::formats::text::{format_cells, is_numeric_type};
pub use self::sink_spec::{DEFAULT_FILES_MAX, OutputDescription, SinkSpec, describe_output};
pub use self::worker_output::{
    BegunUpload, OpenOutputTarget, PathValues, WorkerOutputBucket, WorkerOutputFile,
    WorkerOutputFolder, WorkerOutputSpec, WorkerOutputTarget, WorkerOutputWriter,
    WriterPartitioner, unique_staged_name,
};
pub use crate::commit::file_commit::{RecoveryReport, recover_commits};
pub use crate::commit::file_set::{FileSet, FileSetWriter, StagedSetFile};
pub use crate::commit::object_set::{
    BucketFolder, FinishedObject, ObjectSet, ObjectSetWriter, OpenSetObject, StagedObject,
};
pub use crate::commit::staged_file::{CompressedStagedFile, StagedFile};
pub use crate::display::estimate_display::displayed_columns;
pub use crate::writing::compression::OutputCompression;

use self::destination::Destination;

/// Maximum number of paths that [`OutputSummary`] lists.
const LISTED_PATHS_MAX: usize = 5;

/// The files, rows and bytes that a committed sink has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSummary {
    /// Number of files; 0 for standard output.
    pub files: u64,
    /// Number of rows in all files.
    pub rows: u64,
    /// Number of bytes in all files.
    pub bytes: u64,
    /// The first few paths in alphabetical order.
    pub paths: Vec<String>,
    /// The folder that holds them; empty for standard output.
    pub root: String,
    /// A warning to show to the user once, if any.
    pub warning: Option<String>,
}

/// Number of writes to standard output and the like, which are no files, that have not returned yet.
static DIRECT_WRITES: AtomicUsize = AtomicUsize::new(0);

/// Runs a write to something that is not a file, such as a pipe. The write does not return if nobody reads
/// the pipe.
pub fn run_direct_write<T>(write: impl FnOnce() -> T) -> T {
    struct DirectWriteGuard;
    impl Drop for DirectWriteGuard {
        fn drop(&mut self) {
            DIRECT_WRITES.fetch_sub(1, Ordering::Relaxed);
        }
    }
    DIRECT_WRITES.fetch_add(1, Ordering::Relaxed);
    let _ends = DirectWriteGuard;
    write()
}

/// Returns true while a write of [`run_direct_write`] is under way.
pub fn is_direct_write_running() -> bool {
    DIRECT_WRITES.load(Ordering::Relaxed) > 0
}

/// The memory and threads that an output may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkResources {
    /// Maximum number of bytes that wait to be written.
    pub memory_limit_bytes: usize,
    /// Number of threads that encode the columns of one file, at least one; the file's bytes do not depend on
    /// it.
    pub threads: usize,
}

/// An output being written. Nothing is visible before [`commit`](Sink::commit). Dropping the sink
/// without a commit removes everything written.
pub struct Sink {
    destination: Box<dyn Destination>,
    overwrite: bool,
    rows: u64,
}

impl Sink {
    /// Begins an output. First finishes or removes the output of runs that died while they wrote to the same
    /// folder.
    ///
    /// `memory_limit` bounds, in bytes, the rows that wait to be written. One thread encodes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a template or a format that does not fit the schema, [`Error::OutputExists`] for
    /// an existing file without `overwrite` (if the name has columns, only the commit knows of it),
    /// [`Error::OutputBusy`] if a live run writes the same names.
    pub fn create(
        spec: &SinkSpec,
        schema: SchemaRef,
        run: &RunId,
        memory_limit: usize,
    ) -> Result<Sink> {
        let room = SinkResources { memory_limit_bytes: memory_limit, threads: 1 };
        Self::create_with(spec, schema, run, room, &CancelFlag::new(), &mut || Ok(()))
    }

    /// Begins an output with the threads of `room`. While another run's commit holds the destination, calls
    /// `tick` every few milliseconds; an error of `tick` ends the wait. `cancel` ends a program that the
    /// bytes pass through, and with it the writing.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create), and [`Error::Interrupted`].
    pub fn create_with(
        spec: &SinkSpec,
        schema: SchemaRef,
        run: &RunId,
        room: SinkResources,
        cancel: &CancelFlag,
        tick: WaitCallback<'_>,
    ) -> Result<Sink> {
        let destination = destination::open_destination(spec, schema, run, room, cancel, tick)?;
        Ok(Sink { destination, overwrite: spec.overwrite, rows: 0 })
    }

    /// Adds rows. If the path has columns, rows of one path keep their order.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than `max_files`; any refusal by the file
    /// system.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write_with(batch, &mut || Ok(()))
    }

    /// Adds rows like [`write`](Self::write). While a bucket is too slow, calls `tick` every few
    /// milliseconds; an error of `tick` ends the wait.
    ///
    /// # Errors
    /// Returns the errors of [`write`](Self::write), [`Error::Remote`] and [`Error::Interrupted`].
    pub fn write_with(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.destination.write(batch, tick)
    }

    /// Returns the number of rows written so far.
    pub fn rows_written(&self) -> u64 {
        self.rows
    }

    /// Returns the target to which worker processes may write the files; `None` if only this process can.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        self.destination.worker_output_target()
    }

    /// Adopts files that worker processes have written, with their row count. They are the whole output: the
    /// sink then takes no rows by [`write`](Sink::write).
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than `max_files`; [`Error::Io`] for a missing or incomplete
    /// file.
    pub fn adopt_files(&mut self, rows: u64, files: Vec<WorkerOutputFile>) -> Result<()> {
        if self.rows > 0 {
            return Err(Error::Internal("files and rows for one output".into()));
        }
        self.rows = rows;
        self.destination.adopt_files(files)
    }

    /// Returns the report on runs that died while they wrote to the same folder. The sink has finished or
    /// undone their commits, and removed their staged files.
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.destination.recovery_report()
    }

    /// Discards the output, and waits until its uploads to a bucket are aborted. A dropped sink waits for
    /// less than a second, and leaves the remaining uploads for the next run to the bucket to abort.
    pub fn abandon(self, tick: WaitCallback<'_>) {
        self.destination.abandon(tick);
    }

    /// Makes everything visible at once.
    ///
    /// # Errors
    /// [`Error::OutputExists`] if a file exists and `overwrite` is not set. After this and any other error
    /// but one, nothing is visible. The exception is [`Error::UnfinishedCommit`]: the commit has already
    /// replaced files, or the file system refuses to undo it. The next run to the same folder, or
    /// [`recover_commits`], then continues from its manifest.
    pub fn commit(self) -> Result<OutputSummary> {
        self.commit_with(&mut || Ok(()))
    }

    /// Commits like [`commit`](Self::commit). While another run's commit holds the destination, calls `tick`
    /// every few milliseconds; an error of `tick` ends the wait, and nothing is visible then.
    ///
    /// # Errors
    /// Returns the errors of [`commit`](Self::commit), and [`Error::Interrupted`].
    pub fn commit_with(self, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let Sink { destination, overwrite, rows } = self;
        let _span = debug_span!("commit", rows).entered();
        let written = destination.commit(overwrite, tick)?;
        Ok(OutputSummary { rows, ..written })
    }
}
