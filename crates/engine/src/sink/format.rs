//! The output formats and the writer of one file in any of them.

use std::io::{self, BufWriter, Write};
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::CompressionType;
use parking_lot::Mutex;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tidemill_avro as avro;
use tidemill_rowfile as rowfile;

use super::compression::{Codec, Compressed};
use super::days;
use super::lines::LineFormat;
use super::registered::RegisteredWriter;
use super::row_groups::{ParquetWriter, ROW_GROUP_ROWS};
use super::text::TextTable;
use super::value;
use crate::cancel::Cancel;
use crate::compact;
use crate::error::{Error, Result};
use crate::formats::{self, Registered};
use crate::program::{Program, Through};
use crate::source;
use crate::suggest;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputFormat {
    /// An aligned table for people.
    Text,
    /// RFC 4180 with a header; nulls are empty, an empty string is `""`.
    Csv,
    /// As CSV, with tabs.
    Tsv,
    /// JSON lines: one object per row with every key, nulls as `null`.
    Json,
    /// Parquet, zstd-compressed unless told otherwise.
    Parquet,
    /// Arrow IPC: its file format, or its stream format where the output is no file or its name
    /// ends in `.arrows`.
    Arrow,
    /// An Avro object container file, deflated unless told otherwise.
    Avro,
    /// Rows whose schema stands once (`docs/formats/rowfile.md`), zstd-compressed unless told
    /// otherwise.
    Rowfile,
    /// A format that the program around has added.
    Registered(&'static Registered),
}

impl OutputFormat {
    /// Every format, in the order in which messages list them.
    pub const ALL: [OutputFormat; 8] = [
        OutputFormat::Text,
        OutputFormat::Csv,
        OutputFormat::Tsv,
        OutputFormat::Json,
        OutputFormat::Parquet,
        OutputFormat::Arrow,
        OutputFormat::Avro,
        OutputFormat::Rowfile,
    ];

    /// The names of all of them, and of those that were added.
    pub fn names() -> Vec<&'static str> {
        let added = formats::names(true);
        OutputFormat::ALL.iter().map(|format| format.name()).chain(added).collect()
    }

    /// The name that [`FromStr`] takes.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Text => "text",
            OutputFormat::Csv => "csv",
            OutputFormat::Tsv => "tsv",
            OutputFormat::Json => "json",
            OutputFormat::Parquet => "parquet",
            OutputFormat::Arrow => "arrow",
            OutputFormat::Avro => "avro",
            OutputFormat::Rowfile => "rowfile",
            OutputFormat::Registered(format) => format.name(),
        }
    }

    /// The format that a file's suffix stands for, in any case of letters: `.csv`, `.tsv`,
    /// `.json`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`, `.feather`, `.ipc`, `.arrows`,
    /// `.avro`, `.rowfile`; a suffix of compression behind it is set aside.
    pub fn from_path(path: &str) -> Option<Self> {
        let (stem, _) = source::Compression::strip_suffix(path);
        let (_, suffix) = stem.rsplit_once('.')?;
        match suffix.to_ascii_lowercase().as_str() {
            "csv" => Some(OutputFormat::Csv),
            "tsv" => Some(OutputFormat::Tsv),
            "json" | "jsonl" | "ndjson" => Some(OutputFormat::Json),
            "parquet" => Some(OutputFormat::Parquet),
            "arrow" | "arrows" | "feather" | "ipc" => Some(OutputFormat::Arrow),
            "avro" => Some(OutputFormat::Avro),
            "rowfile" => Some(OutputFormat::Rowfile),
            other => formats::with_suffix(other).map(OutputFormat::Registered),
        }
    }

    /// Whether it keeps what a schema says of its columns besides their names and values.
    pub(super) fn is_typed(self) -> bool {
        matches!(self, OutputFormat::Parquet | OutputFormat::Arrow | OutputFormat::Rowfile)
    }

    /// The line format with its null text, for the formats that are lines.
    pub(super) fn lines(self, null: Option<&str>) -> Option<LineFormat> {
        let null = || null.unwrap_or_default().to_owned();
        match self {
            OutputFormat::Csv => Some(LineFormat::Delimited { delimiter: b',', null: null() }),
            OutputFormat::Tsv => Some(LineFormat::Delimited { delimiter: b'\t', null: null() }),
            OutputFormat::Json => Some(LineFormat::Json),
            OutputFormat::Text
            | OutputFormat::Parquet
            | OutputFormat::Arrow
            | OutputFormat::Avro
            | OutputFormat::Rowfile
            | OutputFormat::Registered(_) => None,
        }
    }

    /// Whether compression is a part of the format, and not around it.
    pub(super) fn is_compressed_inside(self) -> bool {
        match self {
            OutputFormat::Text | OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => {
                false
            }
            OutputFormat::Parquet
            | OutputFormat::Arrow
            | OutputFormat::Avro
            | OutputFormat::Rowfile
            | OutputFormat::Registered(_) => true,
        }
    }

    /// Whether it is for programs and not for people.
    pub fn is_binary(self) -> bool {
        self.is_compressed_inside()
    }

    /// Refuses a schema that the format cannot hold, before any work.
    pub(super) fn check(self, schema: &SchemaRef) -> Result<()> {
        if matches!(self, OutputFormat::Json | OutputFormat::Parquet | OutputFormat::Rowfile) {
            for (i, field) in schema.fields().iter().enumerate() {
                if schema.fields()[..i].iter().any(|earlier| earlier.name() == field.name()) {
                    return Err(Error::usage_hint(
                        format!(
                            "{} cannot hold two columns called `{}`",
                            self.name(),
                            field.name()
                        ),
                        "name one of them otherwise with AS",
                    ));
                }
            }
        }
        let depth_max = match self {
            OutputFormat::Avro => Some(AVRO_DEPTH_MAX),
            OutputFormat::Arrow | OutputFormat::Parquet => Some(ARROW_DEPTH_MAX),
            _ => None,
        };
        for field in schema.fields() {
            let depth = depth(field.data_type());
            if depth_max.is_some_and(|most| depth > most) {
                return Err(Error::usage_hint(
                    format!(
                        "column `{}` is nested {depth} deep, and what {} has more than {} deep is \
                         read by nobody",
                        field.name(),
                        self.name(),
                        depth_max.unwrap_or_default(),
                    ),
                    "take some of its fields, or write `json`",
                ));
            }
            if matches!(self, OutputFormat::Parquet) && holds_interval(field.data_type()) {
                return Err(Error::usage_hint(
                    format!("column `{}` has an interval, which parquet cannot hold", field.name()),
                    "cast it to TEXT, or write `arrow`",
                ));
            }
        }
        match self {
            OutputFormat::Parquet => {
                ArrowWriter::try_new(std::io::sink(), schema.clone(), None).map_err(|error| {
                    Error::usage_hint(
                        format!("parquet cannot hold this result: {error}"),
                        "cast the column, or write `arrow`",
                    )
                })?;
            }
            OutputFormat::Arrow => {}
            OutputFormat::Avro => avro::check(schema).map_err(|error| match error {
                avro::Error::Unwritable { column, reason, hint } => {
                    let message =
                        format!("avro cannot hold this result: column `{column}` {reason}");
                    Error::usage_hint(message, hint)
                }
                other => Error::usage(format!("avro cannot hold this result: {other}")),
            })?,
            OutputFormat::Registered(format) => {
                format.writer()?;
            }
            OutputFormat::Rowfile => {
                rowfile::Schema::from_arrow(schema).map_err(|error| {
                    Error::usage_hint(
                        format!("rowfile cannot hold this result: {error}"),
                        "cast the column, or write `parquet` or `arrow`",
                    )
                })?;
            }
            OutputFormat::Text | OutputFormat::Csv | OutputFormat::Tsv | OutputFormat::Json => {
                for field in schema.fields() {
                    if !value::supported(field.data_type()) {
                        return Err(Error::usage_hint(
                            format!(
                                "column `{}` of type `{}` cannot be written as {}",
                                field.name(),
                                field.data_type(),
                                self.name()
                            ),
                            "cast the column, or write `parquet` or `arrow`",
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Readers of these formats, ours and others', go no deeper: Avro's as it is read here, Arrow's as
/// FlatBuffers verifies it.
const AVRO_DEPTH_MAX: usize = 31;
const ARROW_DEPTH_MAX: usize = 56;

/// How many records, lists and maps are within one another.
fn depth(data_type: &DataType) -> usize {
    within(data_type).map(|inner| 1 + depth(inner)).max().unwrap_or(0)
}

fn holds_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_)) || within(data_type).any(holds_interval)
}

/// The types of what a record, list or map has within it.
fn within(data_type: &DataType) -> Box<dyn Iterator<Item = &DataType> + '_> {
    match data_type {
        DataType::Struct(fields) => Box::new(fields.iter().map(|field| field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => Box::new(std::iter::once(item.data_type())),
        DataType::Dictionary(_, value) => within(value),
        _ => Box::new(std::iter::empty()),
    }
}

impl FromStr for OutputFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "jsonl" | "ndjson" => return Ok(OutputFormat::Json),
            _ => {}
        }
        let found = OutputFormat::ALL.into_iter().find(|format| format.name() == name);
        let found = found.or_else(|| formats::named(name).map(OutputFormat::Registered));
        found.ok_or_else(|| {
            Error::usage(suggest::unknown("output format", name, &OutputFormat::names()))
        })
    }
}

impl std::fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

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
