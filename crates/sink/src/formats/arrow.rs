//! Arrow IPC, files and streams.

use std::io::{BufWriter, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::CompressionType;
use tidemill_base::batch_compaction;

use super::{ARROW_DEPTH_MAX, EncodeError, Encoder, Encoding, FileFormat, refuse_depth};
use crate::compression::{Choice, Codec, leveled, plain};
use crate::error::Result;
use crate::out::{Out, buffered};

pub(super) struct Arrow;

impl FileFormat for Arrow {
    fn name(&self) -> &str {
        "arrow"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["arrow", "arrows", "feather", "ipc"]
    }

    fn codecs(&self) -> &'static [Choice] {
        const { &[plain("none"), plain("lz4"), leveled("zstd", 1, 22, 1)] }
    }

    fn keeps_columns(&self) -> bool {
        true
    }

    fn depends_on_batches(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_depth(self.name(), schema, ARROW_DEPTH_MAX)
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        let (out, options) = (buffered(out), options(encoding.codec)?);
        Ok(match encoding.is_stream {
            true => Box::new(StreamWriter::try_new_with_options(out, schema, options)?),
            false => Box::new(FileWriter::try_new_with_options(out, schema, options)?),
        })
    }
}

impl Encoder for StreamWriter<BufWriter<Out>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        // Views are written with all that they could point into, in its order.
        Ok(StreamWriter::write(self, &batch_compaction::canonicalize_buffers(batch)?)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        StreamWriter::finish(&mut self)?;
        Ok(self.get_mut().flush()?)
    }
}

impl Encoder for FileWriter<BufWriter<Out>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        Ok(FileWriter::write(self, &batch_compaction::canonicalize_buffers(batch)?)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        FileWriter::finish(&mut self)?;
        Ok(self.get_mut().flush()?)
    }
}

impl From<ArrowError> for EncodeError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => EncodeError::Output(source),
            other => EncodeError::Encoder(other.to_string()),
        }
    }
}

fn options(codec: Codec) -> Result<IpcWriteOptions, ArrowError> {
    let options = IpcWriteOptions::default();
    match codec {
        Codec::Lz4 => options.try_with_compression(Some(CompressionType::LZ4_FRAME)),
        Codec::Zstd(level) => options
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(Codec::signed(level))),
        _ => Ok(options),
    }
}
