//! The Avro format: object container files.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_avro as avro;

use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat, refuse_deep_nesting};
use crate::error::{Error, Result};
use crate::writing::compression::{
    CodecChoice, OutputCodec, codec_with_levels, codec_without_levels,
};
use crate::writing::encoder_output::EncoderOutput;

/// Maximum nesting depth that our Avro reader supports.
const AVRO_DEPTH_MAX: usize = 31;

pub(super) struct AvroFormat;

impl FileFormat for AvroFormat {
    fn name(&self) -> &str {
        "avro"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["avro"]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        const {
            &[
                codec_with_levels("deflate", 0, 9, 1),
                codec_without_levels("none"),
                codec_without_levels("snappy"),
                codec_with_levels("zstd", 1, 22, 1),
                codec_with_levels("bzip2", 1, 9, 9),
                codec_with_levels("xz", 0, 9, 6),
            ]
        }
    }

    fn depends_on_batch_boundaries(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        refuse_deep_nesting(self.name(), schema, AVRO_DEPTH_MAX)?;
        avro::check_schema(schema).map_err(|error| match error {
            avro::Error::UnsupportedColumn { column, reason, hint } => {
                let message = format!("avro cannot hold this result: column `{column}` {reason}");
                Error::usage_with_hint(message, hint)
            }
            other => Error::usage(format!("avro cannot hold this result: {other}")),
        })
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        let codec = match encoding.codec {
            OutputCodec::None => avro::Codec::Null,
            OutputCodec::Deflate(level) => avro::Codec::Deflate(level),
            OutputCodec::Snappy => avro::Codec::Snappy,
            OutputCodec::Zstd(level) => avro::Codec::Zstandard(OutputCodec::signed_level(level)),
            OutputCodec::Bzip2(level) => avro::Codec::Bzip2(level),
            OutputCodec::Xz(level) => avro::Codec::Xz(level),
            other => return Err(EncodeError::Encoder(format!("avro with {other:?}"))),
        };
        Ok(Box::new(avro::Writer::new(out, schema, codec)?))
    }
}

impl BatchEncoder for avro::Writer<EncoderOutput> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        Ok(avro::Writer::write(self, batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        avro::Writer::finish(*self)?;
        Ok(())
    }
}

impl From<avro::Error> for EncodeError {
    fn from(error: avro::Error) -> Self {
        match error {
            avro::Error::Io(error) => EncodeError::Output(error),
            other => EncodeError::Unwritable(other.to_string()),
        }
    }
}
