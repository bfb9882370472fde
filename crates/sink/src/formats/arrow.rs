//! The Arrow IPC format, as files and streams.

use std::io::{BufWriter, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::CompressionType;
use tidemill_base::batch_compaction;

use super::{
    ARROW_DEPTH_MAX, BatchEncoder, EncodeError, FileEncoding, FileFormat, refuse_deep_nesting,
};
use crate::error::Result;
use crate::writing::compression::{
    CodecChoice, OutputCodec, codec_with_levels, codec_without_levels,
};
use crate::writing::encoder_output::{EncoderOutput, buffer_output};

pub(super) struct ArrowFormat;

impl FileFormat for ArrowFormat {
    fn name(&self) -> &str {
        "arrow"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["arrow", "arrows", "feather", "ipc"]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        const {
            &[
                codec_without_levels("none"),
                codec_without_levels("lz4"),
                codec_with_levels("zstd", 1, 22, 1),
            ]
        }
    }

    fn preserves_column_metadata(&self) -> bool {
        true
    }

    fn depends_on_batch_boundaries(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        refuse_deep_nesting(self.name(), schema, ARROW_DEPTH_MAX)
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        let (out, options) = (buffer_output(out), ipc_options(encoding.codec)?);
        Ok(match encoding.is_stream {
            true => Box::new(StreamWriter::try_new_with_options(out, schema, options)?),
            false => Box::new(FileWriter::try_new_with_options(out, schema, options)?),
        })
    }
}

impl BatchEncoder for StreamWriter<BufWriter<EncoderOutput>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        // The writer writes everything that views could point into, in the order of the buffers.
        Ok(StreamWriter::write(self, &batch_compaction::canonicalize_buffers(batch)?)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        StreamWriter::finish(&mut self)?;
        Ok(self.get_mut().flush()?)
    }
}

impl BatchEncoder for FileWriter<BufWriter<EncoderOutput>> {
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

fn ipc_options(codec: OutputCodec) -> Result<IpcWriteOptions, ArrowError> {
    let options = IpcWriteOptions::default();
    match codec {
        OutputCodec::Lz4 => options.try_with_compression(Some(CompressionType::LZ4_FRAME)),
        OutputCodec::Zstd(level) => options
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(OutputCodec::signed_level(level))),
        _ => Ok(options),
    }
}
