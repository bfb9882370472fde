//! The formats: each encodes all batches into memory and decodes all or some columns of it.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::compression::CompressionCodec;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tidemill_rowfile::{Codec, ReadOptions, Reader, Strings, WriteOptions, Writer};

use crate::{BATCH_ROWS, Result};

/// A format with a codec.
pub trait Format {
    /// Appends to `out`, which is empty.
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>>;

    /// All columns, or those of the given positions.
    fn decode(
        &self,
        schema: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()>;
}

/// Names are `FORMAT` and `FORMAT-view`, which decodes strings into views.
pub fn format(name: &str, codec: &str) -> Result<Option<Box<dyn Format>>> {
    let (format, view) = match name.strip_suffix("-view") {
        Some(format) => (format, true),
        None => (name, false),
    };
    Ok(match format {
        "tidemill" => match codec {
            "none" => Some(rowfile(Codec::None, view)),
            "lz4" => Some(rowfile(Codec::Lz4, view)),
            "zstd" => Some(rowfile(Codec::Zstd(1), view)),
            "zstd3" => Some(rowfile(Codec::Zstd(3), view)),
            _ => None,
        },
        "arrow-avro" => match codec {
            "none" => Some(Box::new(Avro { codec: None, view })),
            "zstd3" => Some(Box::new(Avro { codec: Some(CompressionCodec::ZStandard), view })),
            "deflate" => Some(Box::new(Avro { codec: Some(CompressionCodec::Deflate), view })),
            "snappy" => Some(Box::new(Avro { codec: Some(CompressionCodec::Snappy), view })),
            _ => None,
        },
        "arrow-ipc" => match codec {
            "none" => Some(Box::new(Ipc(None))),
            "lz4" => Some(Box::new(Ipc(Some(arrow_ipc::CompressionType::LZ4_FRAME)))),
            "zstd3" => Some(Box::new(Ipc(Some(arrow_ipc::CompressionType::ZSTD)))),
            _ => None,
        },
        "parquet" => match codec {
            "none" => Some(Box::new(Parquet(Compression::UNCOMPRESSED))),
            "lz4" => Some(Box::new(Parquet(Compression::LZ4_RAW))),
            "snappy" => Some(Box::new(Parquet(Compression::SNAPPY))),
            "zstd" => Some(Box::new(Parquet(Compression::ZSTD(ZstdLevel::try_new(1)?)))),
            "zstd3" => Some(Box::new(Parquet(Compression::ZSTD(ZstdLevel::try_new(3)?)))),
            _ => None,
        },
        "json-lines" => (codec == "none").then(|| Box::new(Json) as Box<dyn Format>),
        "copy" => (codec == "none").then(|| Box::new(Copy) as Box<dyn Format>),
        _ => return Err(format!("no format `{name}`").into()),
    })
}

fn project(schema: &SchemaRef, columns: Option<&[usize]>) -> Result<SchemaRef> {
    Ok(match columns {
        Some(columns) => Arc::new(schema.project(columns)?),
        None => schema.clone(),
    })
}

// ----------------------------------------------------------------------------- rowfile

struct Rowfile {
    codec: Codec,
    view: bool,
}

fn rowfile(codec: Codec, view: bool) -> Box<dyn Format> {
    Box::new(Rowfile { codec, view })
}

impl Format for Rowfile {
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let schema = tidemill_rowfile::Schema::from_arrow(schema)?;
        let options = WriteOptions { codec: self.codec, ..WriteOptions::default() };
        let mut writer = Writer::new(out, &schema, options)?;
        for batch in batches {
            writer.write(batch)?;
        }
        Ok(writer.finish()?)
    }

    fn decode(
        &self,
        schema: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        let names = columns.map(|columns| {
            columns.iter().map(|column| schema.field(*column).name().clone()).collect()
        });
        let strings = if self.view { Strings::View } else { Strings::Small };
        let options = ReadOptions { columns: names, strings, ..ReadOptions::default() };
        for batch in Reader::new(bytes, "memory")?.read(&options)? {
            out(batch?);
        }
        Ok(())
    }
}

// -------------------------------------------------------------------------------- Avro

struct Avro {
    codec: Option<CompressionCodec>,
    view: bool,
}

impl Format for Avro {
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let mut writer = arrow_avro::writer::WriterBuilder::new(schema.as_ref().clone())
            .with_compression(self.codec)
            .build::<_, arrow_avro::writer::format::AvroOcfFormat>(out)?;
        for batch in batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        Ok(writer.into_inner())
    }

    fn decode(
        &self,
        _: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        let mut builder = arrow_avro::reader::ReaderBuilder::new()
            .with_batch_size(BATCH_ROWS)
            .with_utf8_view(self.view);
        if let Some(columns) = columns {
            builder = builder.with_projection(columns.to_vec());
        }
        for batch in builder.build(bytes)? {
            out(batch?);
        }
        Ok(())
    }
}

// --------------------------------------------------------------------------- Arrow IPC

struct Ipc(Option<arrow_ipc::CompressionType>);

impl Format for Ipc {
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(self.0)?;
        let mut writer = arrow_ipc::writer::FileWriter::try_new_with_options(out, schema, options)?;
        for batch in batches {
            writer.write(batch)?;
        }
        Ok(writer.into_inner()?)
    }

    fn decode(
        &self,
        _: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        let columns = columns.map(<[usize]>::to_vec);
        for batch in arrow_ipc::reader::FileReader::try_new(Cursor::new(bytes), columns)? {
            out(batch?);
        }
        Ok(())
    }
}

// ----------------------------------------------------------------------------- Parquet

struct Parquet(Compression);

impl Format for Parquet {
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let properties = WriterProperties::builder().set_compression(self.0).build();
        let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties))?;
        for batch in batches {
            writer.write(batch)?;
        }
        Ok(writer.into_inner()?)
    }

    fn decode(
        &self,
        _: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        let bytes = parquet_bytes(bytes);
        let mut builder =
            ParquetRecordBatchReaderBuilder::try_new(bytes)?.with_batch_size(BATCH_ROWS);
        if let Some(columns) = columns {
            let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
            builder = builder.with_projection(mask);
        }
        for batch in builder.build()? {
            out(batch?);
        }
        Ok(())
    }
}

fn parquet_bytes(bytes: &[u8]) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(bytes)
}

// -------------------------------------------------------------------------------- JSON

struct Json;

impl Format for Json {
    fn encode(&self, _: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let mut writer = arrow_json::LineDelimitedWriter::new(out);
        for batch in batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        Ok(writer.into_inner())
    }

    fn decode(
        &self,
        schema: &SchemaRef,
        bytes: &[u8],
        columns: Option<&[usize]>,
        out: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        let schema = project(schema, columns)?;
        let reader =
            arrow_json::ReaderBuilder::new(schema).with_batch_size(BATCH_ROWS).build(bytes)?;
        for batch in reader {
            out(batch?);
        }
        Ok(())
    }
}

// ------------------------------------------------------------------------------- limit

/// What cannot be beaten: every buffer of the batches copied, and nothing said about them.
struct Copy;

impl Format for Copy {
    fn encode(&self, _: &SchemaRef, batches: &[RecordBatch], out: Vec<u8>) -> Result<Vec<u8>> {
        let mut out = out;
        for column in batches.iter().flat_map(RecordBatch::columns) {
            buffers(&arrow_array::Array::to_data(column), &mut out);
        }
        Ok(out)
    }

    fn decode(
        &self,
        _: &SchemaRef,
        bytes: &[u8],
        _: Option<&[usize]>,
        _: &mut dyn FnMut(RecordBatch),
    ) -> Result<()> {
        std::hint::black_box(bytes.to_vec());
        Ok(())
    }
}

fn buffers(data: &arrow_data::ArrayData, out: &mut Vec<u8>) {
    for buffer in data.buffers() {
        out.extend_from_slice(buffer);
    }
    for child in data.child_data() {
        buffers(child, out);
    }
}
