//! Files of known names that appear together: a conversion of many files to many.
//!
//! The cost of durability is paid per set and not per file (see [`file_commit`](super::file_commit)).
//!
//! Worker processes on machines that see the folder may write files ([`FileSetWriter`]). They report each
//! file to the owner of the set, which makes it appear with the rest.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;

use crate::commit::file_commit::{FileEntry, StagingFolder};
use crate::commit::fs::{self, CountingFile};
use crate::error::{Error, Result};
use crate::formats::FileEncoding;
use crate::worker_output::check_staged_file;
use crate::writing::codec_resolution::resolve_codec;
use crate::writing::path_template::join_below;
use crate::writing::row_writer::{FileWriteSpec, RowWriter};
use crate::{LISTED_PATHS_MAX, OutputFormat, OutputSummary, SinkSpec};

/// Files that appear together below one folder. Dropping the set without a commit leaves nothing.
pub struct FileSet {
    staging: StagingFolder,
    writer: FileSetWriter,
    file_count: AtomicUsize,
    /// The finished files, each with its number of rows.
    staged_files: Mutex<Vec<(FileEntry, u64)>>,
}

/// A writer of files of a set.
pub struct FileSetWriter {
    staging_folder: PathBuf,
    write_spec: FileWriteSpec,
}

/// A complete file of a set that is not yet visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedSetFile {
    staged: String,
    target: String,
    bytes: u64,
    rows: u64,
}

/// A file of a set that is being written.
pub struct OpenSetFile {
    writer: RowWriter<CountingFile>,
    rows: u64,
    path: PathBuf,
    staged: String,
    target: String,
}

impl FileSet {
    /// Begins a set below `root`, in the format of `spec`.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::create`](crate::Sink::create).
    pub fn create(
        root: &Path,
        spec: &SinkSpec,
        format: OutputFormat,
        run: &RunId,
        memory_limit: usize,
        cancel: &CancelFlag,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        if let Some(program) = &spec.exec {
            program.prepare_files(cancel)?;
        }
        // Nothing distinguishes two runs that write other names of one format to a folder.
        let staging = StagingFolder::create(root, &format!("*.{format}"), run, tick)?;
        let writer = FileSetWriter::new(staging.folder_path(), spec, format, memory_limit, cancel)?;
        let (count, done) = (AtomicUsize::new(0), Mutex::default());
        Ok(FileSet { staging, writer, file_count: count, staged_files: done })
    }

    /// Returns the folder of the files before they appear; worker processes write there with their own
    /// [`FileSetWriter`].
    pub fn staging_folder(&self) -> &Path {
        self.staging.folder_path()
    }

    /// Returns a file that workers have to see if they are to write to the folder.
    pub fn lock_path(&self) -> PathBuf {
        self.staging.lock_path()
    }

    /// Begins the file that will be `target`, below the folder. Several threads may do so.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin_file(&self, target: String, schema: SchemaRef) -> Result<OpenSetFile> {
        let staged = self.file_count.fetch_add(1, Ordering::Relaxed).to_string();
        self.writer.begin_file(staged, target, schema)
    }

    /// Finishes a file. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`], and any refusal by the format at the end.
    pub fn finish_file(&self, file: OpenSetFile) -> Result<()> {
        self.adopt_file(file.finish()?)
    }

    /// Adopts a file that a worker has written to the folder. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing or incomplete.
    pub fn adopt_file(&self, part: StagedSetFile) -> Result<()> {
        let StagedSetFile { staged, target, bytes, rows } = part;
        check_staged_file(&self.staging, &staged, bytes)?;
        self.staged_files.lock().push((FileEntry::new(staged, target, bytes), rows));
        Ok(())
    }

    /// Makes the finished files visible at once.
    ///
    /// # Errors
    /// Returns the errors of [`Sink::commit`](crate::Sink::commit).
    pub fn commit(
        self,
        root: &Path,
        overwrite: bool,
        tick: WaitCallback<'_>,
    ) -> Result<OutputSummary> {
        let FileSet { staging, staged_files: done, .. } = self;
        let mut done = done.into_inner();
        done.sort_by(|(a, _), (b, _)| a.target.cmp(&b.target));
        let shown = done.iter().take(LISTED_PATHS_MAX);
        let written = OutputSummary {
            files: done.len() as u64,
            rows: done.iter().map(|(_, rows)| rows).sum(),
            bytes: done.iter().map(|(entry, _)| entry.bytes).sum(),
            paths: shown
                .map(|(entry, _)| join_below(root, &entry.target).display().to_string())
                .collect(),
            root: root.display().to_string(),
            warning: None,
        };
        if !done.is_empty() {
            let entries = done.into_iter().map(|(entry, _)| entry).collect();
            staging.commit(entries, overwrite, tick)?;
        }
        Ok(written)
    }
}

impl FileSetWriter {
    /// Creates a writer of files to the folder of a set, in the format of `spec`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a compression that the format does not have.
    pub fn new(
        folder: &Path,
        spec: &SinkSpec,
        format: OutputFormat,
        memory_limit: usize,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        let encoding = FileEncoding {
            codec: resolve_codec(spec.compression.as_ref(), format, None, spec.exec.is_some())?,
            is_stream: false,
            null_text: spec.null_text.clone(),
            has_header: spec.has_header,
            output_name: spec.url.clone(),
            memory_limit_bytes: memory_limit,
            // Several files are written at the same time.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = FileWriteSpec { format, encoding, program: spec.exec.clone() };
        Ok(FileSetWriter { staging_folder: folder.to_owned(), write_spec: writing })
    }

    /// Begins the file that will be `target`; until then its name is `staged`, which no other writer may use.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin_file(
        &self,
        staged: String,
        target: String,
        schema: SchemaRef,
    ) -> Result<OpenSetFile> {
        self.write_spec.format.check_schema(&schema)?;
        let path = self.staging_folder.join(&staged);
        let output = fs::create_new_file(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut writing = self.write_spec.clone();
        writing.encoding.output_name.clone_from(&target);
        let writer = RowWriter::new(CountingFile::new(output), &writing, schema)?;
        Ok(OpenSetFile { writer, rows: 0, path, staged, target })
    }
}

impl OpenSetFile {
    /// Finishes the file.
    ///
    /// # Errors
    /// [`Error::Io`], and any refusal by the format at the end.
    pub fn finish(self) -> Result<StagedSetFile> {
        let OpenSetFile { writer, rows, staged, target, .. } = self;
        let bytes = writer.finish()?.bytes_written;
        Ok(StagedSetFile { staged, target, bytes, rows })
    }

    /// Finishes the file and makes it durable, for a commit on another machine, which cannot sync this one's
    /// memory.
    ///
    /// # Errors
    /// Returns the errors of [`OpenSetFile::finish`].
    pub fn finish_durably(self) -> Result<StagedSetFile> {
        let path = self.path.clone();
        let part = self.finish()?;
        let synced = fs::open(&path).and_then(|file| fs::sync_file(&file));
        synced.map_err(|error| Error::io("write", &path, error))?;
        Ok(part)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// [`Error::Io`], and a value that the format cannot hold.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)
    }
}
