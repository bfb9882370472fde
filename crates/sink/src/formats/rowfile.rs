//! The rowfile format: rows with one schema per file (`docs/formats/rowfile.md`).

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tidemill_rowfile as rowfile;

use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat, refuse_duplicate_names};
use crate::error::{Error, Result};
use crate::writing::compression::{
    CodecChoice, OutputCodec, codec_with_levels, codec_without_levels,
};
use crate::writing::encoder_output::EncoderOutput;

pub(super) struct RowfileFormat;

impl FileFormat for RowfileFormat {
    fn name(&self) -> &str {
        "rowfile"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["rowfile"]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        const {
            &[
                codec_with_levels("zstd", 1, 22, 1),
                codec_without_levels("none"),
                codec_without_levels("lz4"),
            ]
        }
    }

    fn preserves_column_metadata(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        refuse_duplicate_names(self.name(), schema)?;
        rowfile::Schema::from_arrow(schema).map_err(|error| {
            Error::usage_with_hint(
                format!("rowfile cannot hold this result: {error}"),
                "cast the column, or write `arrow`",
            )
        })?;
        Ok(())
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        let codec = match encoding.codec {
            OutputCodec::None => rowfile::Codec::None,
            OutputCodec::Lz4 => rowfile::Codec::Lz4,
            OutputCodec::Zstd(level) => rowfile::Codec::Zstd(OutputCodec::signed_level(level)),
            other => return Err(EncodeError::Encoder(format!("rowfile with {other:?}"))),
        };
        let options = rowfile::WriteOptions { codec, ..rowfile::WriteOptions::default() };
        let rows = rowfile::Schema::from_arrow(schema)?;
        Ok(Box::new(rowfile::Writer::new(out, &rows, options)?))
    }
}

impl BatchEncoder for rowfile::Writer<EncoderOutput> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        Ok(rowfile::Writer::write(self, batch)?)
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        rowfile::Writer::finish(*self)?;
        Ok(())
    }
}

impl From<rowfile::Error> for EncodeError {
    fn from(error: rowfile::Error) -> Self {
        match error {
            rowfile::Error::Io { error, .. } => EncodeError::Output(error),
            other => EncodeError::Unwritable(other.to_string()),
        }
    }
}
