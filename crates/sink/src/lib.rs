//! Where results go: files in one of the formats, one or many, committed as one.
//!
//! ```text
//!  batches ─┬─ one file ─────────────── format ── staged ─┐
//!           └─ router ─ groups by path ─ files ── staged ─┴─ commit: all names at once
//! ```
//!
//! - `spec`: what does a user say of an output? `template`: which file is a value's? Paths with columns in braces.
//! - `destination`: what is there to write to, and what does each do to begin, to write and to commit?
//! - `formats`: what has each format a place for, and how is it written? `value`: what is a value's text?
//! - `writer`: how is one file written, whatever its format? `out`: where do its bytes go meanwhile?
//! - `screen`: what does a result look like on a terminal of so many columns?
//! - `estimates`: how are a number and its bounds read as one?
//! - `compression`: by what is a file compressed? `codecs`: which of them is it, of what is asked, named and possible?
//! - `partition`: which rows go together?
//! - `files`: how are many files written within a memory budget?
//! - `set`: how do files of known names appear, so many at once? `staged_file`: one of any content?
//! - `elsewhere`: how do other processes write the files of an output?
//! - `object_set`: the same in a bucket, where other processes write them.
//! - `commit`: how do they appear, all or none? The staging folder and its recovery.
//! - `bucket`: the same in a bucket, where nothing can be renamed.
//! - `coverage_file`: where does a run's coverage go?
//! - `places`: which file does a path lead to?
//! - `fs`: the file-system operations that the commit's promises rest on.
//! - `error`: what can go wrong?
//!
//! A name of a device, a pipe or a descriptor (`/dev/null`, `/dev/stdout`) and `-` are written
//! directly: there is nothing to rename. A symbolic link to a file is followed, as a shell's
//! `>` does: the file it points to is written, staged beside it. New files have the
//! permissions that the umask leaves; a replaced file's are not carried over.

mod codec_resolution;
mod compression;
pub mod coverage_file;
mod destination;
mod encoder_output;
mod error;
mod estimate_display;
mod file_commit;
mod file_set;
mod formats;
mod fs;
mod local_paths;
mod object_set;
mod partitioned_files;
mod path_template;
mod row_router;
mod row_writer;
mod s3_commit;
mod sink_spec;
mod staged_file;
pub mod terminal_table;
mod value_text;
mod worker_output;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;
use tracing::debug_span;

pub use self::compression::OutputCompression;
pub use self::error::{Error, Result};
pub use self::estimate_display::displayed_columns;
pub use self::file_commit::{RecoveryReport, recover_commits};
pub use self::file_set::{FileSet, FileSetWriter, StagedSetFile};
pub use self::formats::OutputFormat;
pub use self::formats::text::{format_cells, is_numeric_type};
pub use self::object_set::{
    BucketFolder, FinishedObject, ObjectSet, ObjectSetWriter, OpenSetObject, StagedObject,
};
pub use self::sink_spec::{DEFAULT_FILES_MAX, OutputDescription, SinkSpec, describe_output};
pub use self::staged_file::{CompressedStagedFile, StagedFile};
pub use self::worker_output::{
    BegunUpload, OpenOutputTarget, PathValues, WorkerOutputBucket, WorkerOutputFile,
    WorkerOutputFolder, WorkerOutputSpec, WorkerOutputTarget, WorkerOutputWriter,
    WriterPartitioner, unique_staged_name,
};

use self::destination::Destination;

/// How many paths [`Written`] lists.
const LISTED_PATHS_MAX: usize = 5;

/// What a committed sink has written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSummary {
    /// Files; 0 for standard output.
    pub files: u64,
    /// Rows in all files.
    pub rows: u64,
    /// Bytes in all files.
    pub bytes: u64,
    /// The first few paths in alphabetical order.
    pub paths: Vec<String>,
    /// The folder that holds them; empty for standard output.
    pub root: String,
    /// What the user should be told once, if anything.
    pub warning: Option<String>,
}

/// Writes to what is no file, such as standard output, that have not come back.
static DIRECT_WRITES: AtomicUsize = AtomicUsize::new(0);

/// Does what writes to what is no file: if that is a pipe that nobody reads, it does not come back.
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

/// Whether something writes [`directly`] at the moment.
pub fn is_direct_write_running() -> bool {
    DIRECT_WRITES.load(Ordering::Relaxed) > 0
}

/// What an output may take of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkResources {
    /// Bytes of what waits to be written.
    pub memory_limit_bytes: usize,
    /// Threads that encode the columns of one file, at least one; its bytes do not depend on them.
    pub threads: usize,
}

/// An output being written. Nothing is visible before [`commit`](Sink::commit); dropped
/// without it, everything written is removed.
pub struct Sink {
    destination: Box<dyn Destination>,
    overwrite: bool,
    rows: u64,
}

impl Sink {
    /// Begins an output. Runs that died while they wrote to the same folder are finished or
    /// removed first.
    ///
    /// `memory_limit` bounds, in bytes, what waits to be written. One thread encodes.
    ///
    /// # Errors
    /// [`Error::Usage`] for a template or a format that does not fit the schema,
    /// [`Error::Exists`] for an existing file without `overwrite` (with columns in the name that
    /// is known at commit only), [`Error::Busy`] if a live run writes the same names.
    pub fn create(
        spec: &SinkSpec,
        schema: SchemaRef,
        run: &RunId,
        memory_limit: usize,
    ) -> Result<Sink> {
        let room = SinkResources { memory_limit_bytes: memory_limit, threads: 1 };
        Self::create_with(spec, schema, run, room, &CancelFlag::new(), &mut || Ok(()))
    }

    /// The same, with the threads that there are; while another run's commit holds the destination, `tick` is called every few
    /// milliseconds, and its error ends the wait. `cancel` ends a program that the bytes go
    /// through, and with it the writing.
    ///
    /// # Errors
    /// Those of [`create`](Self::create), and [`Error::Interrupted`].
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

    /// Adds rows. With columns in the path, rows of one path keep their order.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than `max_files`; what the file system
    /// refuses.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.write_with(batch, &mut || Ok(()))
    }

    /// The same; while a bucket is too slow, `tick` is called every few milliseconds, and its
    /// error ends the wait.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), [`Error::Remote`] and [`Error::Interrupted`].
    pub fn write_with(&mut self, batch: &RecordBatch, tick: WaitCallback<'_>) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.destination.write(batch, tick)
    }

    /// Rows written so far.
    pub fn rows_written(&self) -> u64 {
        self.rows
    }

    /// Where others may write its files; none where only this process can.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn worker_output_target(&self) -> Result<Option<WorkerOutputTarget>> {
        self.destination.worker_output_target()
    }

    /// Takes files that others have written, with their rows: all that there will be, instead of what
    /// [`write`](Sink::write) is given.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than `max_files`; [`Error::Io`] for one that is not there as a whole.
    pub fn adopt_files(&mut self, rows: u64, files: Vec<WorkerOutputFile>) -> Result<()> {
        if self.rows > 0 {
            return Err(Error::Internal("files and rows for one output".into()));
        }
        self.rows = rows;
        self.destination.adopt_files(files)
    }

    /// What runs that died while they wrote to the same folder had left: their commits have
    /// been finished or taken back, their staged files removed.
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.destination.recovery_report()
    }

    /// Throws away what was written. Uploads to a bucket are waited for; of a sink that is dropped they are for less than a
    /// second, and the next run to the bucket throws away what is left.
    pub fn abandon(self, tick: WaitCallback<'_>) {
        self.destination.abandon(tick);
    }

    /// Makes everything visible at once.
    ///
    /// # Errors
    /// [`Error::Exists`] if a file exists and `overwrite` is not set; then, and after any other
    /// error but one, nothing is visible. The one is [`Error::Unfinished`]: the commit has
    /// already replaced files, or the file system refuses to take it back, and the next run to
    /// the same folder, or [`recover`], goes on from its manifest.
    pub fn commit(self) -> Result<OutputSummary> {
        self.commit_with(&mut || Ok(()))
    }

    /// The same, with the threads that there are; while another run's commit holds the destination, `tick` is called every few
    /// milliseconds, and its error ends the wait. Nothing is visible then.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit), and [`Error::Interrupted`].
    pub fn commit_with(self, tick: WaitCallback<'_>) -> Result<OutputSummary> {
        let Sink { destination, overwrite, rows } = self;
        let _span = debug_span!("commit", rows).entered();
        let written = destination.commit(overwrite, tick)?;
        Ok(OutputSummary { rows, ..written })
    }
}
