//! Spill files of chunks and rows, for tables that are larger than memory.
//!
//! A spill file is an Arrow IPC stream of encoded chunks, or of rows that are not grouped yet, in the run's
//! [`SpillSpace`]. Batches of a few MiB keep the memory for reading small. Batches are read in the order
//! written.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_base::error::{Error, Result};
use tidemill_operators::spills::{SpillAppender, SpillSpace, SpilledData};

use crate::value_encoding::{compact_views, logical_bytes};

/// Approximate size of a batch in a spill file or a partial table, in bytes.
pub const SPILL_BATCH_BYTES: usize = 4 << 20;

/// Writes encoded chunks or rows to a spill file.
pub struct ChunkSpillWriter {
    spill_space: SpillSpace,
    writer: Option<(SpilledData, StreamWriter<SpillAppender>)>,
}

impl ChunkSpillWriter {
    /// Creates a writer that creates its file with the first chunk.
    pub fn new(space: &SpillSpace) -> Self {
        ChunkSpillWriter { spill_space: space.clone(), writer: None }
    }

    /// Appends an encoded chunk, or rows.
    ///
    /// # Errors
    /// Returns an error if the folder is not writable or the disk is full.
    pub fn write_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let (_, writer) = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let spill = self.spill_space.create_spill();
                let writer = StreamWriter::try_new(spill.writer(), batch.schema_ref());
                none.insert((spill, writer.map_err(spill_error)?))
            }
        };
        for slice in slice_batch(batch) {
            writer.write(&slice?).map_err(spill_error)?;
        }
        Ok(())
    }

    /// Releases the write buffer until the next write.
    ///
    /// # Errors
    /// Returns the errors of [`ChunkSpillWriter::write_batch`].
    pub fn release_buffer(&mut self) -> Result<()> {
        let Some((_, writer)) = &mut self.writer else { return Ok(()) };
        writer.get_mut().flush_and_release_buffer().map_err(|e| Error::io("spill to", "a file", e))
    }

    /// Finishes the file, which can then be read any number of times.
    ///
    /// # Errors
    /// Returns the errors of [`ChunkSpillWriter::write_batch`].
    pub fn finish(self) -> Result<ChunkSpillFile> {
        let Some((spill, mut writer)) = self.writer else { return Ok(ChunkSpillFile(None)) };
        writer.finish().and_then(|()| writer.flush()).map_err(spill_error)?;
        Ok(ChunkSpillFile(Some(spill)))
    }
}

fn spill_error(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io("spill to", "a file", source),
        other => other.into(),
    }
}

/// A spill file of encoded chunks or rows.
pub struct ChunkSpillFile(Option<SpilledData>);

impl ChunkSpillFile {
    /// Returns the size on disk, in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, SpilledData::bytes)
    }

    /// Reads the chunks in the order in which they were written.
    ///
    /// # Errors
    /// Returns an error if they cannot be read back.
    pub fn read_batches(&self) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        let Some(spill) = &self.0 else { return Ok(Box::new(std::iter::empty())) };
        let reader = StreamReader::try_new(spill.reader(), None)?;
        Ok(Box::new(reader.map(|batch| Ok(batch?))))
    }
}

/// Cuts a batch into slices of about [`SPILL_BATCH_BYTES`].
pub fn slice_batch(batch: &RecordBatch) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
    let bytes: usize = batch.columns().iter().map(logical_bytes).sum();
    let rows = batch.num_rows();
    let count = bytes.div_ceil(SPILL_BATCH_BYTES).clamp(1, rows.max(1));
    let step = rows.div_ceil(count).max(1);
    (0..rows.div_ceil(step)).map(move |index| {
        let slice = batch.slice(index * step, step.min(rows - index * step));
        let columns = slice.columns().iter().map(compact_views).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(slice.num_rows()));
        Ok(RecordBatch::try_new_with_options(slice.schema(), columns, &options)?)
    })
}
