//! Chunks on disk while a table is larger than memory.
//!
//! A spill is an Arrow IPC stream of encoded chunks, or of rows that are not grouped yet, in the run's [`SpillSpace`]. It is written in
//! batches of a few MiB so that reading one back takes little memory, and read back in order.

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_base::error::{Error, Result};
use tidemill_sql::spills::{SpillAppender, SpillSpace, SpilledData};

use super::value_encoding::{compact_views, logical_bytes};

/// How many bytes of groups a spill file's or a partial table's batch holds, about.
pub const SPILL_BATCH_BYTES: usize = 4 << 20;

/// Encoded chunks or rows in writing.
pub struct ChunkSpillWriter {
    spill_space: SpillSpace,
    writer: Option<(SpilledData, StreamWriter<SpillAppender>)>,
}

impl ChunkSpillWriter {
    /// A writer that begins its spill at the first chunk.
    pub fn new(space: &SpillSpace) -> Self {
        ChunkSpillWriter { spill_space: space.clone(), writer: None }
    }

    /// Appends an encoded chunk, or rows.
    ///
    /// # Errors
    /// Where the folder cannot be written to, or the disk is full.
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

    /// Gives back the memory that it gathers in, until it is written to again.
    ///
    /// # Errors
    /// As [`SpillWriter::write`].
    pub fn release_buffer(&mut self) -> Result<()> {
        let Some((_, writer)) = &mut self.writer else { return Ok(()) };
        writer.get_mut().flush_and_release_buffer().map_err(|e| Error::io("spill to", "a file", e))
    }

    /// Ends writing; the chunks can be read as often as wanted.
    ///
    /// # Errors
    /// As [`SpillWriter::write`].
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

/// Encoded chunks or rows on disk.
pub struct ChunkSpillFile(Option<SpilledData>);

impl ChunkSpillFile {
    /// How many bytes the chunks take on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, SpilledData::bytes)
    }

    /// The chunks, in the order in which they were written.
    ///
    /// # Errors
    /// Where they cannot be read back.
    pub fn read_batches(&self) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        let Some(spill) = &self.0 else { return Ok(Box::new(std::iter::empty())) };
        let reader = StreamReader::try_new(spill.reader(), None)?;
        Ok(Box::new(reader.map(|batch| Ok(batch?))))
    }
}

/// A batch in slices of about [`BATCH_BYTES`].
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
