//! Files of known names, of which a number appear at once: a conversion of many files to many.
//!
//! What makes a file durable is paid per set and not per file (see [`commit`](super::commit)).

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tidemill_base::cancel::{Cancel, Tick};
use tidemill_base::home::RunId;

use super::codecs::codec_of;
use super::commit::{Entry, Staging};
use super::error::{Error, Result};
use super::files::Stage;
use super::formats::Encoding;
use super::fs::{self, Output};
use super::template::below;
use super::writer::{RowWriter, Writing};
use super::{OutputFormat, PATHS_SHOWN, SinkSpec, Written};

/// Files that appear together below one folder. Dropped without a commit it leaves nothing.
pub struct FileSet {
    staging: Staging,
    writing: Writing,
    count: AtomicUsize,
    /// With the rows of each.
    done: Mutex<Vec<(Entry, u64)>>,
}

/// One of them being written.
pub struct SetFile {
    writer: RowWriter<Output>,
    rows: u64,
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
        cancel: &Cancel,
        tick: Tick<'_>,
    ) -> Result<Self> {
        let codec = codec_of(spec.compression.as_ref(), format, None, spec.exec.is_some())?;
        // Two runs that write other names of one format to a folder are told apart by nothing.
        let staging = Staging::open(root, &format!("*.{format}"), run, tick)?;
        let encoding = Encoding {
            codec,
            is_stream: false,
            null: spec.null.clone(),
            name: spec.url.clone(),
            memory_limit,
            // Several files are written at once.
            threads: 1,
            cancel: cancel.clone(),
        };
        let writing = Writing { format, encoding, exec: spec.exec.clone() };
        let (count, done) = (AtomicUsize::new(0), Mutex::default());
        Ok(FileSet { staging, writing, count, done })
    }

    /// Begins the file that will be `target`, below the folder; several threads may.
    ///
    /// # Errors
    /// [`Error::Usage`] if the format cannot hold the schema; [`Error::Io`].
    pub fn begin(&self, target: String, schema: SchemaRef) -> Result<SetFile> {
        self.writing.format.check(&schema)?;
        let staged = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let path = self.staging.path(&staged);
        let output = fs::create_new(&path).map_err(|e| Error::io("create", &path, e))?;
        let mut writing = self.writing.clone();
        writing.encoding.name.clone_from(&target);
        let writer = RowWriter::new(Output::new(output), &writing, schema)?;
        Ok(SetFile { writer, rows: 0, staged, target })
    }

    /// Ends a file. It appears with the set.
    ///
    /// # Errors
    /// [`Error::Io`], and what the format refuses in the end.
    pub fn end(&self, file: SetFile) -> Result<()> {
        let bytes = file.writer.finish()?.bytes;
        let entry = Entry::new(file.staged, file.target, bytes);
        self.done.lock().push((entry, file.rows));
        Ok(())
    }

    /// Makes the files that have ended visible at once.
    ///
    /// # Errors
    /// As [`Sink::commit`](super::Sink::commit).
    pub fn commit(self, root: &Path, overwrite: bool, tick: Tick<'_>) -> Result<Written> {
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

impl SetFile {
    /// Adds rows.
    ///
    /// # Errors
    /// [`Error::Io`], and a value that the format cannot hold.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)
    }
}
