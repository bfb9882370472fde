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

use super::codecs::codec_of;
use super::commit::{Entry, Staging};
use super::elsewhere::check_staged;
use super::error::{Error, Result};
use super::formats::Encoding;
use super::fs::{self, Output};
use super::template::below;
use super::writer::{RowWriter, Writing};
use super::{OutputFormat, PATHS_SHOWN, SinkSpec, Written};

/// Files that appear together below one folder. Dropped without a commit it leaves nothing.
pub struct FileSet {
    staging: Staging,
    writer: SetWriter,
    count: AtomicUsize,
    /// With the rows of each.
    done: Mutex<Vec<(Entry, u64)>>,
}

/// Who writes files of a set.
pub struct SetWriter {
    folder: PathBuf,
    writing: Writing,
}

/// A file of a set that is all there, and does not appear yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedPart {
    staged: String,
    target: String,
    bytes: u64,
    rows: u64,
}

/// One of them being written.
pub struct SetFile {
    writer: RowWriter<Output>,
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
        let staging = Staging::open(root, &format!("*.{format}"), run, tick)?;
        let writer = SetWriter::new(staging.folder(), spec, format, memory_limit, cancel)?;
        let (count, done) = (AtomicUsize::new(0), Mutex::default());
        Ok(FileSet { staging, writer, count, done })
    }

    /// Where files are written before they appear; other processes write there by a [`SetWriter`] of theirs.
    pub fn folder(&self) -> &Path {
        self.staging.folder()
    }

    /// A file that has to be seen by whoever writes there.
    pub fn lock(&self) -> PathBuf {
        self.staging.lock_path()
    }

    /// Begins the file that will be `target`, below the folder; several threads may.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin(&self, target: String, schema: SchemaRef) -> Result<SetFile> {
        let staged = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        self.writer.begin(staged, target, schema)
    }

    /// Ends a file. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`], and what the format refuses in the end.
    pub fn end(&self, file: SetFile) -> Result<()> {
        self.adopt(file.end()?)
    }

    /// Takes a file that somebody else has written to the folder. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`] if it is not there as a whole.
    pub fn adopt(&self, part: StagedPart) -> Result<()> {
        let StagedPart { staged, target, bytes, rows } = part;
        check_staged(&self.staging, &staged, bytes)?;
        self.done.lock().push((Entry::new(staged, target, bytes), rows));
        Ok(())
    }

    /// Makes the files that have ended visible at once.
    ///
    /// # Errors
    /// As [`Sink::commit`](super::Sink::commit).
    pub fn commit(self, root: &Path, overwrite: bool, tick: WaitCallback<'_>) -> Result<Written> {
        let FileSet { staging, done, .. } = self;
        let mut done = done.into_inner();
        done.sort_by(|(a, _), (b, _)| a.target.cmp(&b.target));
        let shown = done.iter().take(PATHS_SHOWN);
        let written = Written {
            files: done.len() as u64,
            rows: done.iter().map(|(_, rows)| rows).sum(),
            bytes: done.iter().map(|(entry, _)| entry.bytes).sum(),
            paths: shown
                .map(|(entry, _)| below(root, &entry.target).display().to_string())
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

impl SetWriter {
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
        let encoding = Encoding {
            codec: codec_of(spec.compression.as_ref(), format, None, spec.exec.is_some())?,
            is_stream: false,
            null: spec.null.clone(),
            header: spec.header,
            name: spec.url.clone(),
            memory_limit,
            // Several files are written at once.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = Writing { format, encoding, exec: spec.exec.clone() };
        Ok(SetWriter { folder: folder.to_owned(), writing })
    }

    /// Begins the file that will be `target`; `staged` is its name until then, which nobody else may use.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin(&self, staged: String, target: String, schema: SchemaRef) -> Result<SetFile> {
        self.writing.format.check(&schema)?;
        let path = self.folder.join(&staged);
        let output = fs::create_new(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut writing = self.writing.clone();
        writing.encoding.name.clone_from(&target);
        let writer = RowWriter::new(Output::new(output), &writing, schema)?;
        Ok(SetFile { writer, rows: 0, path, staged, target })
    }
}

impl SetFile {
    /// Ends it.
    ///
    /// # Errors
    /// [`Error::Io`], and what the format refuses in the end.
    pub fn end(self) -> Result<StagedPart> {
        let SetFile { writer, rows, staged, target, .. } = self;
        let bytes = writer.finish()?.bytes;
        Ok(StagedPart { staged, target, bytes, rows })
    }

    /// Ends it where another machine makes it appear, which does not make durable what this one has in memory.
    ///
    /// # Errors
    /// As [`SetFile::end`].
    pub fn end_elsewhere(self) -> Result<StagedPart> {
        let path = self.path.clone();
        let part = self.end()?;
        let synced = fs::open(&path).and_then(|file| fs::sync(&file));
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
