//! The Parquet format.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::date64_as_days;
use super::parquet_row_groups::{ParquetWriter, ROW_GROUP_ROWS};
use super::{ARROW_DEPTH_MAX, BatchEncoder, EncodeError, FileEncoding, FileFormat};
use super::{child_types, refuse_deep_nesting, refuse_duplicate_names};
use crate::error::{Error, Result};
use crate::writing::compression::{
    CodecChoice, OutputCodec, codec_with_levels, codec_without_levels,
};
use crate::writing::encoder_output::EncoderOutput;

pub(super) struct ParquetFormat;

impl FileFormat for ParquetFormat {
    fn name(&self) -> &str {
        "parquet"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["parquet"]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        const {
            &[
                codec_with_levels("zstd", 1, 22, 1),
                codec_without_levels("none"),
                codec_without_levels("snappy"),
                codec_with_levels("gzip", 0, 9, 6),
                codec_with_levels("brotli", 0, 11, 1),
                codec_without_levels("lz4"),
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
        refuse_duplicate_names(self.name(), schema)?;
        refuse_deep_nesting(self.name(), schema, ARROW_DEPTH_MAX)?;
        for field in schema.fields() {
            if contains_interval(field.data_type()) {
                return Err(Error::usage_with_hint(
                    format!("column `{}` has an interval, which parquet cannot hold", field.name()),
                    "cast it to TEXT, or write `arrow`",
                ));
            }
        }
        ArrowWriter::try_new(std::io::sink(), Arc::clone(schema), None).map_err(|error| {
            Error::usage_with_hint(
                format!("parquet cannot hold this result: {error}"),
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
        let days = date64_as_days::schema_with_date32(schema);
        let mut properties = WriterProperties::builder()
            .set_compression(parquet_compression(encoding.codec)?)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_created_by(concat!("tidemill ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        if days.is_some() {
            add_encoded_arrow_schema_to_metadata(schema, &mut properties);
        }
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(days.is_some());
        let written = days.as_ref().unwrap_or(schema);
        let FileEncoding { memory_limit_bytes: memory_limit, threads, .. } = *encoding;
        let writer = ParquetWriter::new(out, written, options, memory_limit, threads)?;
        Ok(Box::new(ParquetEncoder { writer, days_schema: days }))
    }
}

fn contains_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_)) || child_types(data_type).any(contains_interval)
}

/// The encoder of one Parquet file.
struct ParquetEncoder {
    writer: ParquetWriter<EncoderOutput>,
    /// The schema with dates in days, if it has dates in milliseconds.
    days_schema: Option<SchemaRef>,
}

impl BatchEncoder for ParquetEncoder {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        match &self.days_schema {
            Some(days) => self.writer.write(&date64_as_days::cast_dates_to_days(batch, days)?)?,
            None => self.writer.write(batch)?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        self.writer.finish()?;
        Ok(())
    }
}

/// Keeps only the text. An error of the output is taken from the output itself.
impl From<ParquetError> for EncodeError {
    fn from(error: ParquetError) -> Self {
        EncodeError::Encoder(error.to_string())
    }
}

fn parquet_compression(codec: OutputCodec) -> Result<Compression, ParquetError> {
    Ok(match codec {
        OutputCodec::None => Compression::UNCOMPRESSED,
        OutputCodec::Snappy => Compression::SNAPPY,
        OutputCodec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level)?),
        OutputCodec::Brotli(level) => Compression::BROTLI(BrotliLevel::try_new(level)?),
        // Parquet's other LZ4 codec is not the same in all implementations.
        OutputCodec::Lz4 => Compression::LZ4_RAW,
        OutputCodec::Zstd(level) => {
            Compression::ZSTD(ZstdLevel::try_new(OutputCodec::signed_level(level))?)
        }
        _ => return Err(ParquetError::General(format!("parquet with {codec:?}"))),
    })
}
