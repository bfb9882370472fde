//! Files of known names, of which a number appear at once: a conversion of many files to many.
//!
//! What makes a file durable is paid per set and not per file (see [`commit`](super::commit)).
//!
//! Files may be written by other processes, on machines that see the folder ([`SetWriter`]): whoever has the set is told
//! what was written, and makes it appear with the rest.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tidemill_base::state_folder::RunId;

use super::codec_resolution::resolve_codec;
use super::error::{Error, Result};
use super::file_commit::{FileEntry, StagingFolder};
use super::formats::FileEncoding;
use super::fs::{self, CountingFile};
use super::path_template::join_below;
use super::row_writer::{FileWriteSpec, RowWriter};
use super::worker_output::check_staged_file;
use super::{LISTED_PATHS_MAX, OutputFormat, OutputSummary, SinkSpec};

/// Files that appear together below one folder. Dropped without a commit it leaves nothing.
pub struct FileSet {
    staging: StagingFolder,
    writer: FileSetWriter,
    file_count: AtomicUsize,
    /// With the rows of each.
    staged_files: Mutex<Vec<(FileEntry, u64)>>,
}

/// Who writes files of a set.
pub struct FileSetWriter {
    staging_folder: PathBuf,
    write_spec: FileWriteSpec,
}

/// A file of a set that is all there, and does not appear yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedSetFile {
    staged: String,
    target: String,
    bytes: u64,
    rows: u64,
}

/// One of them being written.
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
    /// As [`Sink::create`](super::Sink::create).
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
        // Two runs that write other names of one format to a folder are told apart by nothing.
        let staging = StagingFolder::create(root, &format!("*.{format}"), run, tick)?;
        let writer = FileSetWriter::new(staging.folder_path(), spec, format, memory_limit, cancel)?;
        let (count, done) = (AtomicUsize::new(0), Mutex::default());
        Ok(FileSet { staging, writer, file_count: count, staged_files: done })
    }

    /// Where files are written before they appear; other processes write there by a [`SetWriter`] of theirs.
    pub fn staging_folder(&self) -> &Path {
        self.staging.folder_path()
    }

    /// A file that has to be seen by whoever writes there.
    pub fn lock_path(&self) -> PathBuf {
        self.staging.lock_path()
    }

    /// Begins the file that will be `target`, below the folder; several threads may.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin_file(&self, target: String, schema: SchemaRef) -> Result<OpenSetFile> {
        let staged = self.file_count.fetch_add(1, Ordering::Relaxed).to_string();
        self.writer.begin_file(staged, target, schema)
    }

    /// Ends a file. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`], and what the format refuses in the end.
    pub fn finish_file(&self, file: OpenSetFile) -> Result<()> {
        self.adopt_file(file.finish()?)
    }

    /// Takes a file that somebody else has written to the folder. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`] if it is not there as a whole.
    pub fn adopt_file(&self, part: StagedSetFile) -> Result<()> {
        let StagedSetFile { staged, target, bytes, rows } = part;
        check_staged_file(&self.staging, &staged, bytes)?;
        self.staged_files.lock().push((FileEntry::new(staged, target, bytes), rows));
        Ok(())
    }

    /// Makes the files that have ended visible at once.
    ///
    /// # Errors
    /// As [`Sink::commit`](super::Sink::commit).
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
    /// Writes files to the folder of a set, in the format of `spec`.
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
            // Several files are written at once.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = FileWriteSpec { format, encoding, program: spec.exec.clone() };
        Ok(FileSetWriter { staging_folder: folder.to_owned(), write_spec: writing })
    }

    /// Begins the file that will be `target`; `staged` is its name until then, which nobody else may use.
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
    /// Ends it.
    ///
    /// # Errors
    /// [`Error::Io`], and what the format refuses in the end.
    pub fn finish(self) -> Result<StagedSetFile> {
        let OpenSetFile { writer, rows, staged, target, .. } = self;
        let bytes = writer.finish()?.bytes_written;
        Ok(StagedSetFile { staged, target, bytes, rows })
    }

    /// Ends it where another machine makes it appear, which does not make durable what this one has in memory.
    ///
    /// # Errors
    /// As [`SetFile::end`].
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
