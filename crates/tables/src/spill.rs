//! Chunks on disk while a table is larger than memory.
//!
//! A spill is an Arrow IPC stream of encoded chunks in the run's [`SpillSpace`]. It is written in
//! batches of a few MiB so that reading one back takes little memory, and read back in order.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use tidemill_base::error::{Error, Result};
use tidemill_sql::spills::{Spill, SpillSpace, Writer};

use super::merge::slices;

/// Encoded chunks in writing.
pub struct SpillWriter {
    space: SpillSpace,
    writer: Option<(Spill, StreamWriter<Writer>)>,
}

impl SpillWriter {
    /// A writer that begins its spill at the first chunk.
    pub fn new(space: &SpillSpace) -> Self {
        SpillWriter { space: space.clone(), writer: None }
    }

    /// Appends an encoded chunk.
    ///
    /// # Errors
    /// Where the folder cannot be written to, or the disk is full.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (_, writer) = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let spill = self.space.create();
                let writer = StreamWriter::try_new(spill.writer(), batch.schema_ref());
                none.insert((spill, writer.map_err(failed)?))
            }
        };
        for slice in slices(batch) {
            writer.write(&slice?).map_err(failed)?;
        }
        Ok(())
    }

    /// Ends writing; the chunks can be read as often as wanted.
    ///
    /// # Errors
    /// As [`SpillWriter::write`].
    pub fn finish(self) -> Result<SpillFile> {
        let Some((spill, mut writer)) = self.writer else { return Ok(SpillFile(None)) };
        writer.finish().and_then(|()| writer.flush()).map_err(failed)?;
        Ok(SpillFile(Some(spill)))
    }
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io("spill to", "a file", source),
        other => other.into(),
    }
}

/// Encoded chunks on disk.
pub struct SpillFile(Option<Spill>);

impl SpillFile {
    /// How many bytes the chunks take on disk.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, Spill::bytes)
    }

    /// The chunks, in the order in which they were written.
    ///
    /// # Errors
    /// Where they cannot be read back.
    pub fn read(&self) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        let Some(spill) = &self.0 else { return Ok(Box::new(std::iter::empty())) };
        let reader = StreamReader::try_new(spill.reader(), None)?;
        Ok(Box::new(reader.map(|batch| Ok(batch?))))
    }
}
