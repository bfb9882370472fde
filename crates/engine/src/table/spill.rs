//! Chunks on disk while a table is larger than memory.
//!
//! A spill file is an Arrow IPC stream of encoded chunks in an unnamed temporary file: the
//! operating system reclaims it however the process ends, so there is nothing to clean up
//! after a kill. It is written through a 1 MiB buffer, in batches of a few MiB so that reading
//! one back takes little memory, and read back in order.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, SeekFrom};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use super::merge::slices;
use crate::error::{Error, Result};
use crate::progress::Progress;

const BUFFER_BYTES: usize = 1 << 20;

/// Encoded chunks in writing.
pub struct SpillWriter {
    folder: std::path::PathBuf,
    writer: Option<StreamWriter<BufWriter<File>>>,
    progress: Progress,
}

impl SpillWriter {
    /// A writer that creates its file in `folder` at the first chunk.
    pub fn new(folder: &Path, progress: &Progress) -> Self {
        let progress = progress.clone();
        SpillWriter { folder: folder.to_path_buf(), writer: None, progress }
    }

    /// Appends an encoded chunk.
    ///
    /// # Errors
    /// Where the folder cannot be written to, or the disk is full.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.writer.is_none() {
            let file = tempfile::tempfile_in(&self.folder)
                .map_err(|e| Error::io("spill to", &self.folder, e))?;
            let buffered = BufWriter::with_capacity(BUFFER_BYTES, file);
            self.writer = Some(StreamWriter::try_new(buffered, batch.schema_ref())?);
        }
        if let Some(writer) = &mut self.writer {
            let mut written = Ok(());
            for slice in slices(batch) {
                let slice = slice?;
                self.progress.add_spilled(slice.get_array_memory_size() as u64);
                written = written.and_then(|()| writer.write(&slice));
            }
            written.map_err(|e| self.failed(e))?;
        }
        Ok(())
    }

    fn failed(&self, error: arrow::error::ArrowError) -> Error {
        match error {
            arrow::error::ArrowError::IoError(_, e) => Error::io("spill to", &self.folder, e),
            e => e.into(),
        }
    }

    /// Ends writing; the chunks can be read as often as wanted.
    ///
    /// # Errors
    /// As [`SpillWriter::write`].
    pub fn finish(mut self) -> Result<SpillFile> {
        let file = match self.writer.take() {
            None => None,
            Some(mut writer) => {
                writer.finish().map_err(|e| self.failed(e))?;
                let buffered = writer.into_inner().map_err(|e| self.failed(e))?;
                let file = buffered
                    .into_inner()
                    .map_err(|e| Error::io("spill to", &self.folder, e.into_error()))?;
                Some(file)
            }
        };
        Ok(SpillFile { folder: self.folder, file })
    }
}

/// Encoded chunks on disk.
pub struct SpillFile {
    folder: std::path::PathBuf,
    file: Option<File>,
}

impl SpillFile {
    /// The chunks, in the order in which they were written.
    ///
    /// # Errors
    /// Where the file cannot be read back.
    pub fn read(&self) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        let Some(file) = &self.file else { return Ok(Box::new(std::iter::empty())) };
        let failed = |e| Error::io("read a spill file in", &self.folder, e);
        let mut file = file.try_clone().map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let reader = StreamReader::try_new(BufReader::with_capacity(BUFFER_BYTES, file), None)?;
        Ok(Box::new(reader.map(|batch| Ok(batch?))))
    }
}
