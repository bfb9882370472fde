//! Rows that come as batches already: objects of the program around, formats that it has
//! registered, rowfiles, Arrow IPC and Avro.
//!
//! What these have in common with Parquet is done as there: a file is a list of **chunks** (batches
//! in memory, blocks of a rowfile) that splits take runs of, its columns are found by name, and
//! each is made the type that it has in the source. Strings become views whatever layout they come
//! in; categories become their values.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use parking_lot::Mutex;
use tidemill_base::compact;
use tidemill_base::coverage::{Salvaged, grouped};
use tidemill_base::error::{Error, Result};
use tidemill_rowfile as rowfile;

use super::columns::{Columns, Gathered, Layouts};
use super::input::{Access, ByteInput, OpenFile, Watch};
use super::parquet::{WantedColumn, misfit};
use super::read::ReadOptions;
use super::split::numbered;
use super::stored::{self, Decodable, LeftOut, Undecodable};
use super::unify::{adapted, with_nulls_within};
use super::{Format, Piece, Place, SourceFile, avro, ipc};
use crate::formats::{Batches, Registered};

/// A table or a stream that the program around has in memory: a source that is no file.
pub struct Given {
    schema: SchemaRef,
    rows: Rows,
}

enum Rows {
    /// Can be read any number of times, by several threads.
    Held(Vec<RecordBatch>),
    /// Can be read once, from front to back.
    Stream(Mutex<Option<Batches>>),
}

impl Given {
    /// A table, which is shared and not copied.
    pub fn table(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Given { schema, rows: Rows::Held(batches) }
    }

    /// A stream, which can be read once.
    pub fn stream(batches: Batches) -> Self {
        Given { schema: batches.schema(), rows: Rows::Stream(Mutex::new(Some(batches))) }
    }

    /// Bytes in memory; 0 for a stream.
    pub(super) fn bytes(&self) -> u64 {
        match &self.rows {
            Rows::Held(batches) => batches.iter().map(size).sum(),
            Rows::Stream(_) => 0,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.rows, Rows::Stream(_))
    }
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn size(batch: &RecordBatch) -> u64 {
    // What slices share is counted for each of them, in proportion.
    let size = |array: &dyn Array| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    };
    batch.columns().iter().map(|column| size(column.as_ref()) as u64).sum()
}

/// What is known of a file before its rows are read.
#[derive(Debug)]
pub(super) struct Chunked {
    /// Its columns as they come, before they are made what the source has.
    pub(super) schema: SchemaRef,
    /// Per chunk, its rows and its bytes as stored; 1 row where only reading it tells.
    pub(super) chunks: Vec<(u64, u64)>,
    pub(super) inside: Inside,
}

/// What a format keeps of a file for reading it.
#[derive(Debug)]
pub(super) enum Inside {
    /// Nothing.
    Unknown,
    Arrow(ipc::Layout),
    Avro(tidemill_avro::Header),
    /// A rowfile, whose footers need not be read again.
    Rowfile(rowfile::Reader<Stored>, Undecodable),
}

impl Chunked {
    fn rowfile(&self) -> Option<(&rowfile::Reader<Stored>, &Undecodable)> {
        match &self.inside {
            Inside::Rowfile(reader, undecodable) => Some((reader, undecodable)),
            _ => None,
        }
    }

    /// For each chunk the rows of the file before it, and its own; none where only reading tells.
    pub(super) fn rows(&self) -> Option<Vec<(u64, u64)>> {
        match &self.inside {
            Inside::Arrow(_) => None,
            // Of a damaged file blocks may be missing.
            Inside::Rowfile(reader, _) => {
                let blocks = reader.blocks().iter();
                Some(blocks.map(|block| (block.first_row, u64::from(block.rows))).collect())
            }
            Inside::Unknown | Inside::Avro(_) => {
                Some(numbered(self.chunks.iter().map(|(rows, _)| *rows)))
            }
        }
    }

    /// Where a chunk begins in the file; 0 for the first one, and where that is not known.
    pub(super) fn offset(&self, chunk: usize) -> u64 {
        match &self.inside {
            Inside::Arrow(layout) => layout.batch_offset(chunk),
            _ => 0,
        }
    }
}

/// Of so many rowfiles footers are kept between planning and reading.
const KEPT_MAX: usize = 1024;

/// What is known of a file of such a format.
///
/// # Errors
/// What its reader meets.
pub(super) fn look(
    file: &SourceFile,
    format: Format,
    stdin: Option<Box<dyn ByteInput>>,
) -> Result<Chunked> {
    if let Place::Given(given) = &file.place {
        let chunks = match &given.rows {
            Rows::Held(batches) => {
                batches.iter().map(|batch| (batch.num_rows() as u64, size(batch))).collect()
            }
            Rows::Stream(_) => Vec::new(),
        };
        let schema = Arc::clone(&given.schema);
        return Ok(Chunked { schema, chunks, inside: Inside::Unknown });
    }
    match format {
        Format::Registered(registered) => {
            let schema = registered.reader()?.schema(file.shown(), file.size());
            let schema = schema.map_err(|e| registered.failed("read", file.shown(), e))?;
            Ok(Chunked { schema, chunks: Vec::new(), inside: Inside::Unknown })
        }
        Format::Arrow => {
            let layout = ipc::look(file, stdin)?;
            let schema = Arc::clone(&layout.schema);
            let chunks = layout.batch_bytes().map(|bytes| (1, bytes)).collect();
            Ok(Chunked { schema, chunks, inside: Inside::Arrow(layout) })
        }
        Format::Avro => {
            let header = avro::look(file, stdin)?;
            let schema = Arc::clone(header.schema());
            Ok(Chunked { schema, chunks: Vec::new(), inside: Inside::Avro(header) })
        }
        _ => {
            let reader = open_rowfile_of(file)?;
            let schema = Arc::new(reader.schema().to_arrow(rowfile::Strings::default()));
            let chunks = reader.blocks().iter();
            let chunks = chunks.map(|block| (u64::from(block.rows), u64::from(block.bytes)));
            let (chunks, inside) =
                (chunks.collect(), Inside::Rowfile(reader, Undecodable::default()));
            Ok(Chunked { schema, chunks, inside })
        }
    }
}

/// The columns of all files.
///
/// # Errors
/// Those of [`look`]; [`Error::Differ`] for a file whose columns are others, where they may not be.
pub(super) fn columns(
    files: &[Arc<SourceFile>],
    format: Format,
    layouts: Layouts,
    stdin: &mut Option<Box<dyn ByteInput>>,
) -> Result<Columns> {
    let mut gathered = Gathered::default();
    for file in files {
        let mut chunked = look(file, format, stdin.take())?;
        if files.len() > KEPT_MAX && !file.recover && format == Format::Rowfile {
            chunked.inside = Inside::Unknown;
        }
        let own: Vec<FieldRef> = chunked.schema.fields().iter().map(plain).collect();
        let _ = file.chunked.set(chunked);
        // Columns are found by name.
        let mut names = HashSet::new();
        if let Some(twice) = own.iter().find(|field| !names.insert(field.name())) {
            return Err(Error::usage_hint(
                format!("`{}` has two columns `{}`", file.shown, twice.name()),
                "rename one of them",
            ));
        }
        gathered.add(file, own, layouts)?;
    }
    Ok(gathered.finish())
}

/// Runs of wanted chunks of about the target size, with their bytes.
pub(super) fn chunk_runs(
    file: &SourceFile,
    chunked: &Chunked,
    target: u64,
    wanted: &mut dyn FnMut(usize, usize) -> bool,
) -> Vec<(Vec<usize>, u64)> {
    let mut runs: Vec<(Vec<usize>, u64)> = Vec::new();
    for (index, (rows, bytes)) in chunked.chunks.iter().enumerate() {
        if *rows == 0 || !wanted(file.index, index) {
            continue;
        }
        match runs.last_mut() {
            Some((chunks, total)) if *total + bytes <= target => {
                chunks.push(index);
                *total += bytes;
            }
            _ => runs.push((vec![index], *bytes)),
        }
    }
    runs
}

/// The column as the source shows it, if nothing else is said: nullable, strings as views,
/// categories as their values.
pub(super) fn plain(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => {
            let values = Field::new(field.name(), values.as_ref().clone(), true);
            return plain(&Arc::new(values));
        }
        DataType::RunEndEncoded(_, values) => {
            let values = Field::new(field.name(), values.data_type().clone(), true);
            return plain(&Arc::new(values));
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(plain(item), *size),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                // Keys stay as they are: SQL compares them with Utf8 literals.
                let pair: Fields = vec![pair[0].clone(), plain(&pair[1])].into();
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(pair));
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => field.data_type().clone(),
        },
        other => other.clone(),
    };
    let plain = Field::new(field.name(), data_type, true);
    // Of what a field says, this is what its bytes cannot be read without.
    Arc::new(match field.metadata().get(rowfile::keys::ROWS) {
        Some(schema) => {
            plain.with_metadata([(rowfile::keys::ROWS.to_owned(), schema.clone())].into())
        }
        None => plain,
    })
}

/// Reads the wanted columns of a piece.
pub(super) struct BatchReader {
    batches: Box<dyn Iterator<Item = Result<(RecordBatch, u64)>> + Send>,
    columns: Vec<WantedColumn>,
    /// What the file calls them.
    names: Vec<String>,
    schema: SchemaRef,
    path: Arc<str>,
    /// What is left of a batch that is larger than one of ours.
    rest: Option<RecordBatch>,
    batch_rows: usize,
    /// Whether the next rows are of a batch that had more.
    is_part: bool,
    watch: Watch,
    /// Bytes of the piece that have not been told of.
    untold: u64,
    piece: Piece,
    /// Rows of the piece before the last batch, and with it.
    rows: (u64, u64),
    /// Where its blocks are, of a file that may be cut between any two of them.
    blocks_at: Option<avro::Places>,
    /// What was found not to be decodable, where that is left out.
    left_out: Arc<LeftOut>,
}

impl BatchReader {
    pub(super) fn open(
        piece: &Piece,
        format: Format,
        chunked: &Chunked,
        columns: Vec<WantedColumn>,
        options: &ReadOptions,
        watch: Watch,
        stdin: Option<Box<dyn ByteInput>>,
    ) -> Result<Self> {
        let file = &piece.file;
        let names: Vec<String> = columns
            .iter()
            .filter_map(|column| chunked.schema.fields().get(column.place))
            .map(|field| field.name().clone())
            .collect();
        let chunks = piece.row_groups.clone().unwrap_or_default();
        let untold = match &piece.row_groups {
            Some(_) => chunks.iter().map(|index| chunked.chunks[*index].1).sum(),
            None => piece.range.end - piece.range.start,
        };
        let places = || columns.iter().map(|column| column.place).collect();
        let mut blocks_at = None;
        let left_out = Arc::new(LeftOut::default());
        let batches: Sized = match (&file.place, format) {
            (Place::Given(given), _) => given_batches(given, chunks, file)?,
            (_, Format::Registered(registered)) => registered_batches(registered, piece, &names)?,
            (_, Format::Arrow) => match &chunked.inside {
                Inside::Arrow(layout) => {
                    ipc::batches(file, layout, chunks, places(), stdin, &watch)?
                }
                _ => return Err(Error::Internal(format!("`{}` has no layout", file.shown))),
            },
            (_, Format::Avro) => {
                let Inside::Avro(header) = &chunked.inside else {
                    return Err(Error::Internal(format!("`{}` has no header", file.shown)));
                };
                let (rows, start) = (options.batch_rows, options.exact_start);
                let blocks =
                    avro::Blocks::open(piece, header, places(), rows, start, stdin, &watch)?;
                blocks_at = Some(blocks.places());
                Box::new(blocks)
            }
            _ => rowfile_batches(file, chunked, chunks, &columns, options, &watch, &left_out)?,
        };
        let fields: Vec<FieldRef> = columns.iter().map(|column| column.field.clone()).collect();
        Ok(Self {
            batches,
            columns,
            names,
            schema: Arc::new(Schema::new(fields)),
            path: Arc::clone(&file.shown),
            rest: None,
            batch_rows: options.batch_rows,
            is_part: false,
            watch,
            untold,
            piece: piece.clone(),
            rows: (0, 0),
            blocks_at,
            left_out,
        })
    }

    /// The number of a row of the last batch, and from which byte of the file on they are numbered.
    pub(super) fn row_number(&self, row: usize) -> (u64, u64) {
        let left_out = self.left_out.rows.load(Ordering::Relaxed);
        self.piece.row_number(self.rows.0 + left_out + row as u64)
    }

    /// Bytes of the blocks that were left out.
    pub(super) fn left_out_bytes(&self) -> u64 {
        self.left_out.bytes.load(Ordering::Relaxed)
    }

    /// Where the first block of the piece begins.
    pub(super) fn start(&self) -> Option<u64> {
        self.blocks_at.as_ref().map(|places| places.start)
    }

    /// Where the first block behind the piece begins, once it is read.
    pub(super) fn end(&self) -> Option<u64> {
        self.blocks_at.as_ref().map(avro::Places::end)
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.batches.next().transpose()? {
                Some((batch, bytes)) => {
                    let bytes = bytes.min(self.untold);
                    self.untold -= bytes;
                    self.watch.progress.add_bytes(bytes);
                    batch
                }
                None => {
                    self.watch.progress.add_bytes(std::mem::take(&mut self.untold));
                    return Ok(None);
                }
            },
        };
        let rows = batch.num_rows().min(self.batch_rows);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.rows = (self.rows.1, self.rows.1 + rows as u64);
        let mut part = self.assembled(&batch.slice(0, rows))?;
        if rows < batch.num_rows() || self.is_part {
            // A slice keeps the whole batch alive, and counts as such.
            part = compact::compacted(&part)?;
        }
        self.is_part = self.rest.is_some();
        Ok(Some(part))
    }

    fn assembled(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(&self.names).map(|(wanted, name)| {
            let Some(column) = batch.column_by_name(name) else {
                return Err(Error::Corrupt {
                    path: self.path.to_string(),
                    offset: None,
                    reason: format!(
                        "its reader gave a batch without the column `{name}`, which its schema has"
                    ),
                    hint: None,
                });
            };
            let exactly = wanted.shown_by.is_some();
            // What readers of batches give is anything below a null.
            let column = with_nulls_within(column)?;
            adapted(&column, wanted.field.data_type(), exactly)
                .map_err(|reason| misfit(wanted, &self.path, &reason))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

type Sized = Box<dyn Iterator<Item = Result<(RecordBatch, u64)>> + Send>;

fn given_batches(given: &Arc<Given>, chunks: Vec<usize>, file: &SourceFile) -> Result<Sized> {
    match &given.rows {
        Rows::Held(_) => {
            let given = Arc::clone(given);
            Ok(Box::new(chunks.into_iter().filter_map(move |index| match &given.rows {
                Rows::Held(batches) => {
                    batches.get(index).map(|batch| Ok((batch.clone(), size(batch))))
                }
                Rows::Stream(_) => None,
            })))
        }
        Rows::Stream(stream) => {
            let Some(stream) = stream.lock().take() else {
                return Err(Error::usage_hint(
                    format!("`{}` is a stream and can be read only once", file.shown()),
                    "give a table instead: pyarrow.table(stream)",
                ));
            };
            let name = file.shown().to_owned();
            Ok(Box::new(stream.map(move |batch| match batch {
                Ok(batch) => {
                    let bytes = size(&batch);
                    Ok((batch, bytes))
                }
                Err(error) => Err(Error::Io {
                    action: "read",
                    path: name.clone(),
                    source: io::Error::other(error.to_string()),
                }),
            })))
        }
    }
}

fn registered_batches(
    registered: &'static Registered,
    piece: &Piece,
    names: &[String],
) -> Result<Sized> {
    let path = piece.file.shown().to_owned();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let batches = registered.reader()?.read(&path, piece.range.clone(), &names);
    let batches = batches.map_err(|e| registered.failed("read", &path, e))?;
    Ok(Box::new(batches.map(move |batch| match batch {
        Ok(batch) => Ok((batch, 0)),
        Err(arrow::error::ArrowError::ExternalError(error)) => {
            Err(registered.failed("read", &path, error))
        }
        Err(error) => Err(registered.failed("read", &path, Box::new(error))),
    })))
}

fn rowfile_batches(
    file: &SourceFile,
    chunked: &Chunked,
    chunks: Vec<usize>,
    columns: &[WantedColumn],
    options: &ReadOptions,
    watch: &Watch,
    left_out: &Arc<LeftOut>,
) -> Result<Sized> {
    let bytes: u64 = chunks.iter().map(|index| chunked.chunks[*index].1).sum();
    let rows: u64 = chunks.iter().map(|index| chunked.chunks[*index].0).sum();
    let own = |column: &WantedColumn| {
        let own = chunked.schema.fields().get(column.place)?;
        Some(narrowed(own, column.field.data_type()))
    };
    let fields: Vec<FieldRef> = columns.iter().filter_map(own).collect();
    let wanted = rowfile::ReadOptions {
        schema: Some(Arc::new(Schema::new(fields))),
        batch_rows: options.batch_rows,
        ..rowfile::ReadOptions::default()
    };
    let path = file.shown().to_owned();
    let failed = |error| from_rowfile(error, file.shown());
    let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match chunked.rowfile() {
        // To find its blocks again would be to read all of it again.
        Some((reader, undecodable)) if file.recover => Box::new(Decodable {
            reader: reader.clone(),
            plan: Arc::new(reader.plan(&wanted).map_err(failed)?),
            all: Arc::new(reader.plan(&rowfile::ReadOptions::default()).map_err(failed)?),
            blocks: chunks.into_iter(),
            batch_rows: options.batch_rows,
            current: None,
            undecodable: Arc::clone(undecodable),
            left_out: Arc::clone(left_out),
            cancel: watch.cancel.clone(),
            path,
        }),
        known => {
            let stored = Stored::Open(OpenFile::open(file, Access::Random, watch)?);
            let reader = match known {
                Some((reader, _)) => reader.over(stored),
                None => open_rowfile(stored, file)?,
            };
            let wanted = rowfile::ReadOptions { blocks: Some(chunks), ..wanted };
            let batches = reader.read(&wanted).map_err(failed)?;
            Box::new(batches.map(move |batch| batch.map_err(|error| from_rowfile(error, &path))))
        }
    };
    Ok(Box::new(batches.map(move |batch| {
        let batch = batch?;
        let share = u128::from(bytes) * batch.num_rows() as u128 / u128::from(rows.max(1));
        Ok((batch, u64::try_from(share).unwrap_or(u64::MAX)))
    })))
}

/// A file's field with only those parts that are wanted of it.
fn narrowed(own: &FieldRef, wanted: &DataType) -> FieldRef {
    let (DataType::Struct(fields), DataType::Struct(parts)) = (own.data_type(), wanted) else {
        return Arc::clone(own);
    };
    let kept: Vec<FieldRef> = fields
        .iter()
        .filter_map(|field| {
            let (_, part) = parts.find(field.name())?;
            Some(narrowed(field, part.data_type()))
        })
        .collect();
    if kept.is_empty() {
        return Arc::clone(own);
    }
    Arc::new(own.as_ref().clone().with_data_type(DataType::Struct(kept.into())))
}

/// A rowfile's bytes, wherever they are.
#[derive(Debug)]
pub(super) enum Stored {
    /// Opened for each read: of many files no more are open than are read.
    Closed(Box<SourceFile>),
    Open(OpenFile),
}

impl rowfile::ReadAt for Stored {
    fn len(&self) -> io::Result<u64> {
        Ok(match self {
            Stored::Closed(file) => file.size(),
            Stored::Open(open) => open.size(),
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = match self {
            Stored::Open(open) => open.read_at(into, offset),
            Stored::Closed(file) => OpenFile::open(file, Access::Random, &file.watch())
                .and_then(|open| open.read_at(into, offset)),
        };
        match read {
            Ok(count) if count == into.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// A rowfile that is opened for each read.
pub(super) fn open_rowfile_of(file: &SourceFile) -> Result<rowfile::Reader<Stored>> {
    open_rowfile(Stored::Closed(Box::new(file.twin())), file)
}

fn open_rowfile(stored: Stored, file: &SourceFile) -> Result<rowfile::Reader<Stored>> {
    let reader = match file.recover {
        true => rowfile::Reader::salvaging(stored, file.shown()),
        false => rowfile::Reader::new(stored, file.shown()),
    };
    reader.map_err(|error| from_rowfile(error, file.shown()))
}

/// What was left out of a file, if it is not whole.
pub(super) fn salvaged(file: &SourceFile) -> Option<Salvaged> {
    let (reader, undecodable) = file.chunked.get()?.rowfile()?;
    let undecodable = undecodable.lock();
    let failed = undecodable.iter().map(|(block, reason)| (*block, reason));
    stored::salvaged(file.shown(), reader, failed)
}

/// What the footers of a rowfile know of its blocks.
pub struct BlockStatistics(rowfile::Reader<Stored>);

impl BlockStatistics {
    /// None for what is no rowfile, or was not looked at.
    pub(super) fn of(file: &SourceFile) -> Option<Self> {
        let chunked = file.chunked.get()?;
        if chunked.chunks.is_empty() {
            return None;
        }
        match (chunked.rowfile(), &file.place) {
            (Some((reader, _)), _) => Some(Self(reader.clone())),
            (None, Place::Given(_)) => None,
            (None, _) => open_rowfile_of(file).ok().map(Self),
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.0.blocks().len()
    }

    /// The rows of each block.
    pub fn rows(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.blocks().iter().map(|block| block.rows.into())
    }

    /// What is known of a column, or of a field of a struct; none where its name might be another's.
    pub fn column(&self, path: &[&str]) -> Option<rowfile::ColumnStatistics> {
        fn is_plain(fields: &[rowfile::Field]) -> bool {
            fields.iter().all(|field| {
                !field.name.contains('.')
                    && match &field.kind {
                        rowfile::Type::Struct(inner) => is_plain(inner),
                        _ => true,
                    }
            })
        }
        // A path is written with dots.
        is_plain(&self.0.schema().fields).then(|| self.0.statistics(&path.join(".")))?
    }
}

/// A rowfile's fault as ours.
pub fn from_rowfile(error: rowfile::Error, path: &str) -> Error {
    match error {
        rowfile::Error::Io { error, .. } => Error::io("read", path, error),
        rowfile::Error::CutOff { blocks, rows, .. } => {
            let text = error.to_string();
            let reason = text.split("\nhint: ").next().unwrap_or_default().to_owned();
            let count = |count: u64, what: &str| match count {
                1 => format!("1 {what}"),
                count => format!("{} {what}s", grouped(count)),
            };
            let (blocks, rows) = (count(blocks as u64, "whole block"), count(rows, "row"));
            let hint = format!("--salvage reads the {blocks} before that, with {rows}");
            Error::Rowfile { path: path.to_owned(), reason, hint: Some(hint) }
        }
        // It is not the file that is at fault, but what is wanted of it.
        rowfile::Error::Incompatible(conflicts) => Error::usage(format!("`{path}`: {conflicts}")),
        rowfile::Error::Value { .. } | rowfile::Error::Schema { .. } => {
            Error::usage(error.to_string())
        }
        rowfile::Error::Unsupported { .. } | rowfile::Error::Mismatch { .. } => {
            Error::usage(error.to_string())
        }
        other => {
            let text = other.to_string();
            let (reason, hint) = match text.split_once("\nhint: ") {
                Some((reason, hint)) => (reason.to_owned(), Some(hint.to_owned())),
                None => (text, None),
            };
            Error::Rowfile { path: path.to_owned(), reason, hint }
        }
    }
}
