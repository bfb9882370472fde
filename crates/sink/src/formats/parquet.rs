//! Parquet.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::days;
use super::row_groups::{ParquetWriter, ROW_GROUP_ROWS};
use super::{ARROW_DEPTH_MAX, EncodeError, Encoder, Encoding, FileFormat};
use super::{refuse_depth, refuse_equal_names, within};
use crate::compression::{Choice, Codec, leveled, plain};
use crate::error::{Error, Result};
use crate::out::Out;

pub(super) struct Parquet;

impl FileFormat for Parquet {
    fn name(&self) -> &str {
        "parquet"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["parquet"]
    }

    fn codecs(&self) -> &'static [Choice] {
        const {
            &[
                leveled("zstd", 1, 22, 1),
                plain("none"),
                plain("snappy"),
                leveled("gzip", 0, 9, 6),
                leveled("brotli", 0, 11, 1),
                plain("lz4"),
            ]
        }
    }

    fn keeps_columns(&self) -> bool {
        true
    }

    fn depends_on_batches(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_equal_names(self.name(), schema)?;
        refuse_depth(self.name(), schema, ARROW_DEPTH_MAX)?;
        for field in schema.fields() {
            if holds_interval(field.data_type()) {
                return Err(Error::usage_hint(
                    format!("column `{}` has an interval, which parquet cannot hold", field.name()),
                    "cast it to TEXT, or write `arrow`",
                ));
            }
        }
        ArrowWriter::try_new(std::io::sink(), Arc::clone(schema), None).map_err(|error| {
            Error::usage_hint(
                format!("parquet cannot hold this result: {error}"),
                "cast the column, or write `arrow`",
            )
        })?;
        Ok(())
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        let days = days::in_days(schema);
        let mut properties = WriterProperties::builder()
            .set_compression(compression(encoding.codec)?)
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
        let Encoding { memory_limit, threads, .. } = *encoding;
        let writer = ParquetWriter::new(out, written, options, memory_limit, threads)?;
        Ok(Box::new(File { writer, days }))
    }
}

fn holds_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_)) || within(data_type).any(holds_interval)
}

/// A file in encoding.
struct File {
    writer: ParquetWriter<Out>,
    /// The schema with dates in days, where it has some in milliseconds.
    days: Option<SchemaRef>,
}

impl Encoder for File {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        match &self.days {
            Some(days) => self.writer.write(&days::rows_in_days(batch, days)?)?,
            None => self.writer.write(batch)?,
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), EncodeError> {
        self.writer.into_inner()?;
        Ok(())
    }
}

/// What the output refuses is text here, and is taken from the output itself.
impl From<ParquetError> for EncodeError {
    fn from(error: ParquetError) -> Self {
        EncodeError::Encoder(error.to_string())
    }
}

fn compression(codec: Codec) -> Result<Compression, ParquetError> {
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Gzip(level) => Compression::GZIP(GzipLevel::try_new(level)?),
        Codec::Brotli(level) => Compression::BROTLI(BrotliLevel::try_new(level)?),
        // The other one of Parquet's two is not the same everywhere.
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(Codec::signed(level))?),
        _ => return Err(ParquetError::General(format!("parquet with {codec:?}"))),
    })
}
