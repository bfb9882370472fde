//! The writer of one file in any of the formats.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::CompressionType;
use parking_lot::Mutex;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tidemill_avro as avro;
use tidemill_base::cancel::Cancel;
use tidemill_base::compact;
use tidemill_base::error::{Error, Result};
use tidemill_rowfile as rowfile;
use tidemill_source::program::{Program, Through};

use super::compression::{Codec, Compressed};
use super::days;
use super::format::OutputFormat;
use super::lines::LineFormat;
use super::registered::RegisteredWriter;
use super::row_groups::{ParquetWriter, ROW_GROUP_ROWS};
use super::text::TextTable;

/// Encoded bytes are handed on in pieces of about this size.
const WRITE_BYTES: usize = 1 << 20;

/// How the files of an output are written.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) format: OutputFormat,
    /// Whether nothing can be put behind the rows: Arrow is written as a stream.
    pub(super) is_stream: bool,
    /// What bytes are compressed by, of text or inside the format.
    pub(super) codec: Codec,
    /// What a null looks like in text.
    pub(super) null: Option<String>,
    /// What the encoded bytes go through.
    pub(super) exec: Option<Program>,
    /// What errors call the output.
    pub(super) name: String,
    /// In bytes.
    pub(super) memory_limit: usize,
    /// Ends the program.
    pub(super) cancel: Cancel,
}

impl Writing {
    /// The line format, where bytes can be appended to a file.
    pub(super) fn lines(&self) -> Option<LineFormat> {
        // A program is given a whole file.
        if self.exec.is_some() { None } else { self.format.lines(self.null.as_deref()) }
    }
}

/// Where encoded and compressed bytes go.
enum Encoded<W: Write> {
    Plain(W),
    Through(Box<Through<W>>),
}

impl<W: Write> Encoded<W> {
    fn new(out: W, writing: &Writing) -> Result<Self> {
        Ok(match &writing.exec {
            None => Encoded::Plain(out),
            Some(program) => {
                let through = Through::start(program, &writing.name, out, &writing.cancel)?;
                Encoded::Through(Box::new(through))
            }
        })
    }

    fn finish(self) -> Result<W> {
        match self {
            Encoded::Plain(out) => Ok(out),
            Encoded::Through(through) => through.finish(),
        }
    }
}

impl<W: Write> Write for Encoded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoded::Plain(out) => out.write(bytes),
            Encoded::Through(through) => through.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoded::Plain(out) => out.flush(),
            Encoded::Through(through) => through.flush(),
        }
    }
}

/// Writes one file, or a stream, in a format. Rows are written as they come; memory is
/// bounded by a megabyte for lines, the window for a table and a row group for Parquet.
///
/// Made by [`stdout_writer`](super::stdout_writer).
pub struct RowWriter<W: Write + Send> {
    inner: Inner<Compressed<Encoded<W>>>,
    schema: SchemaRef,
    /// What errors call the output.
    name: String,
    rows: u64,
}

enum Inner<W: Write + Send> {
    Lines { format: LineFormat, buffer: Vec<u8>, out: W },
    Text(TextTable<BufWriter<W>>),
    Parquet { writer: ParquetWriter<Watched<W>>, failure: Failure, days: Option<SchemaRef> },
    ArrowStream(Box<StreamWriter<BufWriter<W>>>),
    ArrowFile(Box<FileWriter<BufWriter<W>>>),
    Avro(Box<avro::Writer<W>>),
    Rowfile(Box<rowfile::Writer<W>>),
    Registered(Box<RegisteredWriter<W>>),
}

impl<W: Write + Send> RowWriter<W> {
    /// Begins a file: the header is written even if no row follows.
    pub(super) fn new(out: W, writing: &Writing, schema: SchemaRef) -> Result<Self> {
        let (format, null) = (writing.format, writing.null.as_deref());
        let (name, memory_limit) = (writing.name.as_str(), writing.memory_limit);
        let codec = writing.codec;
        let own = match format.is_compressed_inside() {
            true => Codec::None,
            false => codec,
        };
        let out = Compressed::new(Encoded::new(out, writing)?, own)
            .map_err(|error| Error::io("compress", name, error))?;
        let inner = match format {
            OutputFormat::Text => Inner::Text(TextTable::new(buffered(out), &schema, null)),
            OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => {
                let Some(format) = format.lines(null) else {
                    return Err(Error::Internal("a line format without lines".into()));
                };
                let mut buffer = Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8);
                format.header(&schema, &mut buffer);
                Inner::Lines { format, buffer, out }
            }
            OutputFormat::Parquet => {
                let codec = parquet_codec(codec).map_err(|e| Error::Internal(e.to_string()))?;
                let days = days::in_days(&schema);
                let mut properties = WriterProperties::builder()
                    .set_compression(codec)
                    .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                    .set_created_by(concat!("tidemill ", env!("CARGO_PKG_VERSION")).to_owned())
                    .build();
                let failure = Failure::default();
                let out = Watched { out, failure: Arc::clone(&failure) };
                if days.is_some() {
                    add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
                }
                let options = ArrowWriterOptions::new()
                    .with_properties(properties)
                    .with_skip_arrow_metadata(days.is_some());
                let written = days.as_ref().unwrap_or(&schema);
                let writer = ParquetWriter::new(out, written, options, memory_limit)
                    .map_err(|e| from_parquet(&e, &failure, name))?;
                Inner::Parquet { writer, failure, days }
            }
            OutputFormat::Arrow if writing.is_stream => {
                let options = ipc_options(codec).map_err(|e| from_arrow(e, name))?;
                let writer = StreamWriter::try_new_with_options(buffered(out), &schema, options);
                Inner::ArrowStream(Box::new(writer.map_err(|e| from_arrow(e, name))?))
            }
            OutputFormat::Arrow => {
                let options = ipc_options(codec).map_err(|e| from_arrow(e, name))?;
                let writer = FileWriter::try_new_with_options(buffered(out), &schema, options);
                Inner::ArrowFile(Box::new(writer.map_err(|e| from_arrow(e, name))?))
            }
            OutputFormat::Registered(format) => {
                let schema = Arc::clone(&schema);
                let writer = RegisteredWriter::start(out, format, schema, name, &writing.cancel)?;
                Inner::Registered(Box::new(writer))
            }
            OutputFormat::Avro => {
                let codec = match codec {
                    Codec::None => avro::Codec::Null,
                    Codec::Deflate(level) => avro::Codec::Deflate(level),
                    Codec::Snappy => avro::Codec::Snappy,
                    Codec::Zstd(level) => avro::Codec::Zstandard(Codec::signed(level)),
                    Codec::Bzip2(level) => avro::Codec::Bzip2(level),
                    Codec::Xz(level) => avro::Codec::Xz(level),
                    _ => return Err(Error::Internal(format!("avro with {codec:?}"))),
                };
                let writer = avro::Writer::new(out, &schema, codec);
                Inner::Avro(Box::new(writer.map_err(|e| from_avro(e, name))?))
            }
            OutputFormat::Rowfile => {
                let rows =
                    rowfile::Schema::from_arrow(&schema).map_err(|e| from_rowfile(e, name))?;
                let codec = match codec {
                    Codec::None => rowfile::Codec::None,
                    Codec::Lz4 => rowfile::Codec::Lz4,
                    Codec::Zstd(level) => rowfile::Codec::Zstd(Codec::signed(level)),
                    _ => return Err(Error::Internal(format!("rowfile with {codec:?}"))),
                };
                let options = rowfile::WriteOptions { codec, ..rowfile::WriteOptions::default() };
                let writer = rowfile::Writer::new(out, &rows, options);
                Inner::Rowfile(Box::new(writer.map_err(|e| from_rowfile(e, name))?))
            }
        };
        Ok(RowWriter { inner, schema, name: name.to_owned(), rows: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// [`Error::Io`] where the output refuses them, [`Error::ClosedPipe`] where its reader has
    /// gone.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conform(batch, &self.schema)?;
        let name = &self.name;
        match &mut self.inner {
            Inner::Lines { format, buffer, out } => {
                let rows = format.prepare(&batch)?;
                // A chunk of rows at a time, so that wide rows do not fill memory.
                for start in (0..batch.num_rows()).step_by(256) {
                    rows.write(format, start..(start + 256).min(batch.num_rows()), buffer);
                    if buffer.len() >= WRITE_BYTES {
                        out.write_all(buffer).map_err(|e| Error::io("write", name, e))?;
                        buffer.clear();
                    }
                }
            }
            Inner::Text(table) => table.write(&batch)?.map_err(|e| Error::io("write", name, e))?,
            Inner::Parquet { writer, failure, days } => {
                let written = match days {
                    Some(days) => writer.write(&days::rows_in_days(&batch, days)?),
                    None => writer.write(&batch),
                };
                written.map_err(|e| from_parquet(&e, failure, name))?;
            }
            // Views are written with all that they could point into.
            Inner::ArrowStream(writer) => compact::compacted(&batch)
                .and_then(|batch| writer.write(&batch))
                .map_err(|e| from_arrow(e, name))?,
            Inner::ArrowFile(writer) => compact::compacted(&batch)
                .and_then(|batch| writer.write(&batch))
                .map_err(|e| from_arrow(e, name))?,
            Inner::Avro(writer) => writer.write(&batch).map_err(|e| from_avro(e, name))?,
            Inner::Rowfile(writer) => writer.write(&batch).map_err(|e| from_rowfile(e, name))?,
            Inner::Registered(writer) => writer.write(&batch)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Hands on what is buffered, as far as the format allows (a table's first window and a
    /// Parquet row group stay): for output that somebody watches.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> Result<()> {
        let name = &self.name;
        match &mut self.inner {
            Inner::Lines { buffer, out, .. } => {
                out.write_all(buffer).map_err(|e| Error::io("write", name, e))?;
                buffer.clear();
                out.flush().map_err(|e| Error::io("write", name, e))
            }
            Inner::Text(table) => table.get_mut().flush().map_err(|e| Error::io("write", name, e)),
            Inner::Parquet { .. } => Ok(()),
            Inner::ArrowStream(writer) => writer.flush().map_err(|e| from_arrow(e, name)),
            Inner::ArrowFile(writer) => writer.flush().map_err(|e| from_arrow(e, name)),
            Inner::Avro(writer) => writer.flush().map_err(|e| from_avro(e, name)),
            Inner::Rowfile(writer) => writer.flush().map_err(|e| from_rowfile(e, name)),
            Inner::Registered(_) => Ok(()),
        }
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends the file: footers are written and everything is flushed to the output.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(self) -> Result<W> {
        let name = &self.name;
        let mut out = match self.inner {
            Inner::Lines { buffer, mut out, .. } => {
                out.write_all(&buffer).map_err(|e| Error::io("write", name, e))?;
                out
            }
            Inner::Text(table) => {
                table.finish().and_then(unbuffered).map_err(|e| Error::io("write", name, e))?
            }
            Inner::Parquet { writer, failure, .. } => {
                let watched = writer.into_inner();
                watched.map_err(|e| from_parquet(&e, &failure, name))?.out
            }
            Inner::ArrowStream(mut writer) => {
                writer.finish().map_err(|e| from_arrow(e, name))?;
                let out = writer.into_inner().map_err(|e| from_arrow(e, name))?;
                unbuffered(out).map_err(|e| Error::io("write", name, e))?
            }
            Inner::ArrowFile(mut writer) => {
                writer.finish().map_err(|e| from_arrow(e, name))?;
                let out = writer.into_inner().map_err(|e| from_arrow(e, name))?;
                unbuffered(out).map_err(|e| Error::io("write", name, e))?
            }
            Inner::Avro(writer) => writer.finish().map_err(|e| from_avro(e, name))?,
            Inner::Rowfile(writer) => writer.finish().map_err(|e| from_rowfile(e, name))?,
            Inner::Registered(writer) => writer.finish()?,
        };
        out.flush().map_err(|e| Error::io("write", name, e))?;
        let out = out.finish().map_err(|e| Error::io("write", name, e))?;
        let mut out = out.finish()?;
        out.flush().map_err(|e| Error::io("write", name, e))?;
        Ok(out)
    }
}

fn buffered<W: Write>(out: W) -> BufWriter<W> {
    BufWriter::with_capacity(1 << 16, out)
}

fn unbuffered<W: Write>(out: BufWriter<W>) -> io::Result<W> {
    let mut out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    out.flush()?;
    Ok(out)
}

/// The batch under the sink's schema: batches of one stream may differ in nullability and
/// metadata, which the writers of Arrow and Parquet refuse.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options).map_err(
        |error| Error::Internal(format!("a batch does not have the schema of its sink: {error}")),
    )
}

pub(super) fn from_arrow(error: ArrowError, name: &str) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io("write", name, source),
        other => Error::Internal(format!("cannot encode `{name}`: {other}")),
    }
}

fn from_avro(error: avro::Error, name: &str) -> Error {
    match error {
        avro::Error::Io(error) => Error::io("write", name, error),
        other => Error::usage_hint(
            format!("`{name}` cannot be written: {other}"),
            "`parquet` and `arrow` have other limits",
        ),
    }
}

fn parquet_codec(codec: Codec) -> Result<Compression, ParquetError> {
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

fn ipc_options(codec: Codec) -> Result<IpcWriteOptions, ArrowError> {
    let options = IpcWriteOptions::default();
    match codec {
        Codec::Lz4 => options.try_with_compression(Some(CompressionType::LZ4_FRAME)),
        Codec::Zstd(level) => options
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(Codec::signed(level))),
        _ => Ok(options),
    }
}

fn from_rowfile(error: rowfile::Error, name: &str) -> Error {
    match error {
        rowfile::Error::Io { error, .. } => Error::io("write", name, error),
        other => Error::usage_hint(
            format!("`{name}` cannot be written: {other}"),
            "`parquet` and `arrow` have other limits",
        ),
    }
}

/// The first error of an output.
type Failure = Arc<Mutex<Option<io::Error>>>;

/// An output that remembers its error: the Parquet writer turns the one of its last write into
/// text, and a closed pipe or a full disk could not be told from a fault of ours.
struct Watched<W> {
    out: W,
    failure: Failure,
}

impl<W> Watched<W> {
    /// Keeps the error itself, which may hold one of ours, and hands on what can be told of it.
    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            self.failure.lock().get_or_insert(error);
            copy
        })
    }
}

impl<W: Write> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.noted(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.noted(result)
    }
}

fn from_parquet(error: &ParquetError, failure: &Failure, name: &str) -> Error {
    match failure.lock().take() {
        Some(source) => Error::io("write", name, source),
        None => Error::Internal(format!("cannot encode `{name}`: {error}")),
    }
}
