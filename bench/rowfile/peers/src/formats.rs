//! The formats: each writes all batches and reads all or some columns of them, in memory or in a
//! file.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::compression::CompressionCodec;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;
use tidemill_rowfile::{Codec, ReadAt, ReadOptions, Reader, Strings, WriteOptions, Writer};

use crate::{BATCH_ROWS, BUFFER_BYTES, Result};

pub type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + 'a>;

/// What is written.
pub struct Rows {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

impl Rows {
    pub fn count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// What is read of rows that had this schema: all columns, or those of the given positions.
pub struct Wanted<'a> {
    pub schema: &'a SchemaRef,
    pub columns: Option<&'a [usize]>,
}

/// Where a format's bytes are.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Memory(&'a Bytes),
    File(&'a Path),
}

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

impl<'a> Source<'a> {
    fn buffered(self) -> Result<Box<dyn BufRead + 'a>> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(&bytes[..]),
            Self::File(path) => Box::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?)),
        })
    }

    fn seekable(self) -> Result<Box<dyn ReadSeek + 'a>> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(Cursor::new(&bytes[..])),
            Self::File(path) => Box::new(BufReader::new(File::open(path)?)),
        })
    }

    fn anywhere(self) -> Result<Box<dyn ReadAt + 'a>> {
        Ok(match self {
            Self::Memory(bytes) => Box::new(&bytes[..]),
            Self::File(path) => Box::new(File::open(path)?),
        })
    }
}

/// A format with a codec.
pub trait Format {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()>;

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>>;
}

/// Names are `FORMAT` and `FORMAT-view`, which decodes strings into views.
pub fn format(name: &str, codec: &str) -> Result<Box<dyn Format>> {
    let (format, view) = match name.strip_suffix("-view") {
        Some(format) => (format, true),
        None => (name, false),
    };
    let level = codec.strip_prefix("zstd").map(str::parse::<i32>).transpose()?;
    let unknown = || format!("`{name}` has no codec `{codec}`");
    Ok(match format {
        "tidemill" => {
            let codec = match (codec, level) {
                ("none", _) => Codec::None,
                ("lz4", _) => Codec::Lz4,
                (_, Some(level)) => Codec::Zstd(level),
                _ => return Err(unknown().into()),
            };
            Box::new(Rowfile { codec, view })
        }
        // Its string views have no nulls (59.3.2): they come back as empty strings.
        "arrow-avro" if !view => {
            let codec = match codec {
                "none" => None,
                // The level is not for us to choose.
                "zstd3" => Some(CompressionCodec::ZStandard),
                "deflate" => Some(CompressionCodec::Deflate),
                _ => return Err(unknown().into()),
            };
            Box::new(Avro(codec))
        }
        "arrow-ipc" => Box::new(Ipc(match codec {
            "none" => None,
            "lz4" => Some(arrow_ipc::CompressionType::LZ4_FRAME),
            "zstd3" => Some(arrow_ipc::CompressionType::ZSTD),
            _ => return Err(unknown().into()),
        })),
        "parquet" => Box::new(Parquet(match (codec, level) {
            ("none", _) => Compression::UNCOMPRESSED,
            ("lz4", _) => Compression::LZ4_RAW,
            (_, Some(level)) => Compression::ZSTD(ZstdLevel::try_new(level)?),
            _ => return Err(unknown().into()),
        })),
        "json-lines" if codec == "none" => Box::new(Json),
        "copy" if codec == "none" => Box::new(Copy),
        _ => return Err(format!("no format `{name}` with `{codec}`").into()),
    })
}

/// A reader's batches, with this crate's error.
fn boxed<'a, E: Into<crate::Error>>(
    reader: impl Iterator<Item = Result<RecordBatch, E>> + 'a,
) -> Batches<'a> {
    Box::new(reader.map(|batch| batch.map_err(Into::into)))
}

// ----------------------------------------------------------------------------- rowfile

struct Rowfile {
    codec: Codec,
    view: bool,
}

impl Format for Rowfile {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        let schema = tidemill_rowfile::Schema::from_arrow(&rows.schema)?;
        let options = WriteOptions { codec: self.codec, ..WriteOptions::default() };
        let mut writer = Writer::new(out, &schema, options)?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
        Ok(())
    }

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        let names = wanted.columns.map(|columns| {
            columns.iter().map(|column| wanted.schema.field(*column).name().clone()).collect()
        });
        let strings = if self.view { Strings::View } else { Strings::Small };
        let options = ReadOptions { columns: names, strings, ..ReadOptions::default() };
        Ok(boxed(Reader::new(source.anywhere()?, "input")?.read(&options)?))
    }
}

// -------------------------------------------------------------------------------- Avro

struct Avro(Option<CompressionCodec>);

impl Format for Avro {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        let mut writer = arrow_avro::writer::WriterBuilder::new(rows.schema.as_ref().clone())
            .with_compression(self.0)
            .build::<_, arrow_avro::writer::format::AvroOcfFormat>(out)?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        Ok(writer.finish()?)
    }

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        let mut builder = arrow_avro::reader::ReaderBuilder::new().with_batch_size(BATCH_ROWS);
        if let Some(columns) = wanted.columns {
            builder = builder.with_projection(columns.to_vec());
        }
        Ok(boxed(builder.build(source.buffered()?)?))
    }
}

// --------------------------------------------------------------------------- Arrow IPC

struct Ipc(Option<arrow_ipc::CompressionType>);

impl Format for Ipc {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        let options = arrow_ipc::writer::IpcWriteOptions::default().try_with_compression(self.0)?;
        let mut writer =
            arrow_ipc::writer::FileWriter::try_new_with_options(out, &rows.schema, options)?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        Ok(writer.finish()?)
    }

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        let columns = wanted.columns.map(<[usize]>::to_vec);
        Ok(boxed(arrow_ipc::reader::FileReader::try_new(source.seekable()?, columns)?))
    }
}

// ----------------------------------------------------------------------------- Parquet

struct Parquet(Compression);

impl Format for Parquet {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        let properties = WriterProperties::builder().set_compression(self.0).build();
        let mut writer = ArrowWriter::try_new(out, rows.schema.clone(), Some(properties))?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.close()?;
        Ok(())
    }

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        match source {
            Source::Memory(bytes) => read_parquet(bytes.clone(), wanted),
            Source::File(path) => read_parquet(File::open(path)?, wanted),
        }
    }
}

fn read_parquet<'a>(from: impl ChunkReader + 'static, wanted: &Wanted) -> Result<Batches<'a>> {
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(from)?.with_batch_size(BATCH_ROWS);
    if let Some(columns) = wanted.columns {
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        builder = builder.with_projection(mask);
    }
    Ok(boxed(builder.build()?))
}

// -------------------------------------------------------------------------------- JSON

struct Json;

impl Format for Json {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        let mut writer = arrow_json::LineDelimitedWriter::new(out);
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        Ok(writer.finish()?)
    }

    fn decode<'a>(&self, wanted: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        let schema = match wanted.columns {
            Some(columns) => Arc::new(wanted.schema.project(columns)?),
            None => wanted.schema.clone(),
        };
        let builder = arrow_json::ReaderBuilder::new(schema).with_batch_size(BATCH_ROWS);
        Ok(boxed(builder.build(source.buffered()?)?))
    }
}

// ------------------------------------------------------------------------------- limit

/// What cannot be beaten: every buffer of the batches copied, and nothing said about them.
struct Copy;

impl Format for Copy {
    fn encode(&self, rows: &Rows, out: &mut (dyn Write + Send)) -> Result<()> {
        for column in rows.batches.iter().flat_map(RecordBatch::columns) {
            buffers(&arrow_array::Array::to_data(column), out)?;
        }
        Ok(())
    }

    fn decode<'a>(&self, _: &Wanted, source: Source<'a>) -> Result<Batches<'a>> {
        let mut bytes = Vec::new();
        match source {
            Source::Memory(from) => bytes.extend_from_slice(from),
            Source::File(path) => drop(File::open(path)?.read_to_end(&mut bytes)?),
        }
        std::hint::black_box(bytes);
        Ok(Box::new(std::iter::empty()))
    }
}

fn buffers(data: &arrow_data::ArrayData, out: &mut dyn Write) -> Result<()> {
    for buffer in data.buffers() {
        out.write_all(buffer)?;
    }
    data.child_data().iter().try_for_each(|child| buffers(child, out))
}
