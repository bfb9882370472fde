//! The writer: batches and typed rows to a file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::block_statistics;
use crate::codec::{Codec, SectionCompressor};
use crate::columns::LeafColumns;
use crate::error::{Error, Result};
use crate::file_format::{
    FileFooter, FileHeader, FooterEntry, FooterTrailer, SECTION_BYTES, SectionHeader, SectionKind,
    TRAILER_BYTES,
};
use crate::reader::{ReadOptions, Reader};
use crate::row_encoder;
use crate::row_layout::{BLOCK_BYTES_MAX, RowStructure};
use crate::schema::{FieldType, Schema, SchemaField};
use crate::serde_rows::TypedRowBuilder;

/// Number of rows that enter a block together if all of them fit.
const SIZE_CHECK_ROWS: usize = 64;

/// Number of typed rows that form a batch.
const TYPED_BATCH_ROWS: usize = 1024;

/// Options of a writer.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Compression of blocks. Default: Zstandard at level 1.
    pub codec: Codec,
    /// Approximate size of a block before compression. Default: 1 MiB. Minimum: one row.
    pub block_bytes: usize,
    /// Stores the smallest and largest value of each column in each block in the footer.
    /// Default: true.
    pub statistics: bool,
    /// Additional metadata for the header. Default: empty.
    pub metadata: BTreeMap<String, String>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            codec: Codec::default(),
            block_bytes: 1 << 20,
            statistics: true,
            metadata: BTreeMap::new(),
        }
    }
}

/// A writer of a rowfile. Without [`finish`](Self::finish) the file has no footer, and readers refuse it.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// # use tidemill_rowfile::{ReadOptions, Reader, Schema, WriteOptions, Writer};
/// let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
/// let batch = RecordBatch::try_from_iter([("id", ids)])?;
/// let schema = Schema::from_arrow(&batch.schema())?;
/// let mut writer = Writer::new(Vec::new(), &schema, WriteOptions::default())?;
/// writer.write(&batch)?;
/// let bytes = writer.finish()?;
///
/// let reader = Reader::new(bytes, "memory")?;
/// let batches: Result<Vec<_>, _> = reader.read(&ReadOptions::default())?.collect();
/// assert_eq!(batches?, [batch]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    /// The sink's name, for messages.
    name: String,
    schema: Schema,
    record: RowStructure,
    block_bytes: u64,
    compressor: SectionCompressor,
    /// Checksum of the header, which identifies the file.
    header_checksum: u32,
    /// Offset of the next byte.
    offset: u64,
    rows: u64,
    footer: FileFooter,
    has_statistics: bool,
    pending: Vec<PendingRows>,
    /// Upper bound of the pending rows' size.
    pending_bytes: u64,
    /// Total size of the blocks so far, and the total of the upper bounds before encoding.
    written_and_estimated_bytes: (u64, u64),
    /// Rows that were added one by one.
    typed_rows: TypedRowBuilder,
    /// Schema of the last batch that passed the check.
    checked_schema: Option<SchemaRef>,
    /// Buffers for a section before and after compression.
    raw: Vec<u8>,
    stored: Vec<u8>,
    is_poisoned: bool,
}

/// Rows that wait for their block.
#[derive(Debug)]
struct PendingRows {
    columns: Arc<LeafColumns>,
    rows: Range<usize>,
}

impl<W: Write> Writer<W> {
    /// Starts a new file in `sink` and writes its header at once.
    ///
    /// # Errors
    /// If the schema is [invalid](Schema::validate), or the sink fails.
    pub fn new(sink: W, schema: &Schema, options: WriteOptions) -> Result<Self> {
        Self::with_name(sink, "output", schema, options)
    }

    fn with_name(sink: W, name: &str, schema: &Schema, options: WriteOptions) -> Result<Self> {
        schema.validate()?;
        let header =
            FileHeader { schema: schema.clone(), codec: options.codec, metadata: options.metadata };
        let (bytes, file) = header.to_bytes()?;
        let mut writer = Self::with_header(sink, name, header, file, options.block_bytes)?;
        if !options.statistics {
            writer.has_statistics = false;
            writer.footer.statistics_leaves.clear();
        }
        writer.write_bytes(&bytes)?;
        Ok(writer)
    }

    fn with_header(
        sink: W,
        name: &str,
        header: FileHeader,
        file: u32,
        block_bytes: usize,
    ) -> Result<Self> {
        let compressor = SectionCompressor::new(header.codec)
            .map_err(|error| Error::Io { file: name.into(), error })?;
        let record = RowStructure::new(&header.schema);
        let leaves = block_statistics::statistics_leaves(&record);
        let typed = TypedRowBuilder::new(&header.schema);
        Ok(Self {
            sink,
            name: name.into(),
            schema: header.schema,
            record,
            block_bytes: (block_bytes as u64).min(BLOCK_BYTES_MAX / 4),
            compressor,
            header_checksum: file,
            offset: 0,
            rows: 0,
            footer: FileFooter {
                previous_footer: 0,
                statistics_leaves: leaves,
                entries: Vec::new(),
            },
            has_statistics: true,
            pending: Vec::new(),
            pending_bytes: 0,
            written_and_estimated_bytes: (1, 1),
            typed_rows: typed,
            checked_schema: None,
            raw: Vec::new(),
            stored: Vec::new(),
            is_poisoned: false,
        })
    }

    /// Returns the file's schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the number of rows so far, including those that wait for their block to fill up.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        let pending: usize = self.pending.iter().map(|part| part.rows.len()).sum();
        self.rows + pending as u64 + self.typed_rows.rows() as u64
    }

    /// Returns the size of the file so far, in bytes.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.offset
    }

    /// Adds the rows of a batch, whose columns must be the file's, in the same order. Any Arrow
    /// layout of a type is accepted.
    ///
    /// # Errors
    /// If the columns differ, a required value is null, an enum has an unknown
    /// symbol, or the sink fails. After a failure of the sink the writer refuses to continue.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check_not_poisoned()?;
        self.check_schema(&batch.schema())?;
        self.write_typed_rows()?;
        self.add_batch(batch)
    }

    /// Adds one row: a struct, or a map with names as keys. See [`Reader::read_rows_as`] for an
    /// example and for the conversion of types.
    ///
    /// # Errors
    /// If the row has a field that the schema lacks, lacks a required field without default,
    /// or has a value of the wrong type; the row is not added then. Otherwise as
    /// [`write`](Self::write).
    pub fn write_row<T: serde::Serialize + ?Sized>(&mut self, row: &T) -> Result<()> {
        self.check_not_poisoned()?;
        self.typed_rows.push_row(row)?;
        if self.typed_rows.rows() >= TYPED_BATCH_ROWS {
            self.write_typed_rows()?;
        }
        Ok(())
    }

    fn write_typed_rows(&mut self) -> Result<()> {
        if self.typed_rows.rows() == 0 {
            return Ok(());
        }
        let batch = self.typed_rows.take_batch()?;
        self.add_batch(&batch)
    }

    fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns =
            LeafColumns::new(&self.record, &self.schema.fields, batch.columns(), batch.num_rows())?;
        let sizes = row_encoder::row_sizes_max(&self.record, &columns)?;
        let columns = Arc::new(columns);
        let mut first = 0;
        let mut full = self.pending_bytes_max();
        for (at, sizes) in sizes.chunks(SIZE_CHECK_ROWS).enumerate() {
            let all: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
            if self.pending_bytes + all <= full {
                self.pending_bytes += all;
                continue;
            }
            for (row, size) in (at * SIZE_CHECK_ROWS..).zip(sizes) {
                let size = u64::from(*size);
                if self.pending_bytes + size > full && self.pending_bytes > 0 {
                    self.add_pending(&columns, first..row);
                    first = row;
                    self.flush_pending()?;
                    full = self.pending_bytes_max();
                }
                self.pending_bytes += size;
            }
        }
        self.add_pending(&columns, first..sizes.len());
        Ok(())
    }

    /// Returns the maximum bound of pending rows, scaled by the ratio of sizes and bounds in earlier blocks.
    fn pending_bytes_max(&self) -> u64 {
        let (taken, estimate) = self.written_and_estimated_bytes;
        let full = u128::from(self.block_bytes) * u128::from(estimate) / u128::from(taken.max(1));
        u64::try_from(full).unwrap_or(u64::MAX).min(BLOCK_BYTES_MAX)
    }

    fn add_pending(&mut self, columns: &Arc<LeafColumns>, rows: Range<usize>) {
        if !rows.is_empty() {
            self.pending.push(PendingRows { columns: columns.clone(), rows });
        }
    }

    fn check_not_poisoned(&self) -> Result<()> {
        if self.is_poisoned {
            return Err(Error::WriterPoisoned { file: self.name.clone() });
        }
        Ok(())
    }

    fn check_schema(&mut self, schema: &SchemaRef) -> Result<()> {
        if self.checked_schema.as_ref().is_some_and(|checked| Arc::ptr_eq(checked, schema)) {
            return Ok(());
        }
        let found = Schema::from_arrow(schema)?;
        check_same_fields(&self.schema.fields, &found.fields, "")?;
        self.checked_schema = Some(schema.clone());
        Ok(())
    }

    /// Writes the waiting rows as a block of their own, so that everything so far can be salvaged
    /// if the writer is killed.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn flush(&mut self) -> Result<()> {
        self.check_not_poisoned()?;
        self.write_typed_rows()?;
        self.flush_pending()
    }

    fn flush_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let estimate = std::mem::take(&mut self.pending_bytes);
        if pending.is_empty() {
            return Ok(());
        }
        let parts: Vec<(&LeafColumns, Range<usize>)> =
            pending.iter().map(|part| (&*part.columns, part.rows.clone())).collect();
        let (ranges, end) =
            row_encoder::encode_block(&self.record, &parts, &mut self.raw, SECTION_BYTES)?;
        self.written_and_estimated_bytes = (
            self.written_and_estimated_bytes.0 + end as u64,
            self.written_and_estimated_bytes.1 + estimate,
        );
        let rows: usize = parts.iter().map(|(_, rows)| rows.len()).sum();
        let rows = u32::try_from(rows).map_err(|_| Error::TooLarge {
            what: "a block's rows",
            found: rows as u64,
            limit: u32::MAX.into(),
        })?;
        let statistics = if self.has_statistics {
            let fields = block_statistics::leaf_fields(&self.schema.fields);
            block_statistics::compute_block_statistics(&self.record, &fields, &ranges, &parts)
        } else {
            block_statistics::BlockStatistics::default()
        };
        let offset = self.offset;
        self.write_section(SectionKind::Block, rows, end)?;
        let bytes = u32::try_from(self.offset - offset).unwrap_or(u32::MAX);
        self.footer.entries.push(FooterEntry { offset, bytes, rows, statistics });
        self.rows += u64::from(rows);
        Ok(())
    }

    /// Writes `raw` up to `end` as a section, whose first bytes are reserved for its header, and after a
    /// footer the trailer, in one write.
    fn write_section(&mut self, kind: SectionKind, count: u32, end: usize) -> Result<()> {
        let narrow = |length: usize| {
            u32::try_from(length).ok().filter(|it| u64::from(*it) <= BLOCK_BYTES_MAX).ok_or(
                Error::TooLarge { what: "a block", found: length as u64, limit: BLOCK_BYTES_MAX },
            )
        };
        self.stored.clear();
        self.stored.resize(SECTION_BYTES, 0);
        let raw = self.raw.get(SECTION_BYTES..end).unwrap_or_default();
        let raw_bytes = narrow(raw.len())?;
        let codec = self
            .compressor
            .compress(raw, &mut self.stored)
            .map_err(|error| Error::Io { file: self.name.clone(), error })?;
        let (mut section, mut end) = match codec {
            Some(_) => {
                let stored = std::mem::take(&mut self.stored);
                let end = stored.len();
                (stored, end)
            }
            None => (std::mem::take(&mut self.raw), end),
        };
        let content = section.get(SECTION_BYTES..end).unwrap_or_default();
        let head = SectionHeader {
            kind,
            offset: self.offset,
            first_row: self.rows,
            count,
            raw_bytes,
            stored_bytes: narrow(content.len())?,
            codec: codec.unwrap_or_default(),
            checksum: crc32c::crc32c(content),
        };
        if let Some(to) = section.first_chunk_mut() {
            *to = head.to_bytes(self.header_checksum);
        }
        if kind == SectionKind::Footer {
            let trailer = FooterTrailer {
                footer_offset: head.offset,
                end_offset: head.end() + TRAILER_BYTES as u64,
            };
            section.truncate(end);
            section.extend_from_slice(&trailer.to_bytes(self.header_checksum));
            end = section.len();
        }
        let result = self.write_bytes(section.get(..end).unwrap_or_default());
        // Keep the buffer for the next section.
        match codec {
            Some(_) => self.stored = section,
            None => self.raw = section,
        }
        result
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        // After a failed write the sink contains an unknown part of the bytes.
        self.is_poisoned = true;
        self.sink.write_all(bytes).map_err(|error| Error::Io { file: self.name.clone(), error })?;
        self.is_poisoned = false;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes the waiting rows and the footer, flushes the sink and returns it.
    ///
    /// # Errors
    /// If the sink fails; the file then has no footer.
    pub fn finish(mut self) -> Result<W> {
        self.write_footer()?;
        Ok(self.sink)
    }

    fn write_footer(&mut self) -> Result<()> {
        self.flush()?;
        self.raw.clear();
        self.raw.resize(SECTION_BYTES, 0);
        self.footer.write(&mut self.raw);
        let count = u32::try_from(self.footer.entries.len()).unwrap_or(u32::MAX);
        self.write_section(SectionKind::Footer, count, self.raw.len())?;
        self.sink.flush().map_err(|error| Error::Io { file: self.name.clone(), error })
    }
}

impl Writer<File> {
    /// Creates a new file at `path`, which must not exist.
    ///
    /// # Errors
    /// If the path exists, or the system fails.
    pub fn create(path: &Path, schema: &Schema, options: WriteOptions) -> Result<Self> {
        let name = path.display().to_string();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| Error::Io { file: name.clone(), error })?;
        lock_file(&file, path)?;
        Self::with_name(file, &name, schema, options)
    }

    /// Opens an existing file for appending, with its schema, codec and choice of statistics. The existing
    /// content does not change. Readers see all added rows once [`close`](Self::close) has returned, and none
    /// before. The remains of an unfinished append are cut off.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process is writing the file; if it is not a rowfile, is truncated
    /// or damaged; if the system fails.
    pub fn append(path: &Path, block_bytes: usize) -> Result<Self> {
        let name = path.display().to_string();
        let io = |error| Error::Io { file: name.clone(), error };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        lock_file(&file, path)?;
        let reader = Reader::new(file.try_clone().map_err(io)?, &name)?;
        let (header, checksum, end) = reader.append_state();
        let previous = reader.last_footer();
        let mut writer = Self::with_header(file, &name, header, checksum, block_bytes)?;
        if !reader.has_statistics() {
            writer.has_statistics = false;
            writer.footer.statistics_leaves.clear();
        }
        writer.footer.previous_footer = previous;
        writer.offset = end;
        writer.rows = reader.row_count();
        writer.sink.set_len(end).map_err(io)?;
        io::Seek::seek(&mut writer.sink, io::SeekFrom::Start(end)).map_err(io)?;
        Ok(writer)
    }

    /// Writes the waiting rows and the footer, and makes both durable.
    ///
    /// # Errors
    /// If the system fails; the added rows are then not visible.
    pub fn close(mut self) -> Result<()> {
        self.flush()?;
        let failed = |name: &str, error| Error::Io { file: name.into(), error };
        // The blocks must be durable before the footer that lists them.
        self.sink.sync_data().map_err(|error| failed(&self.name, error))?;
        self.write_footer()?;
        self.sink.sync_data().map_err(|error| failed(&self.name, error))?;
        // Unlock explicitly: a concurrently forked process may still hold the file open after it is closed.
        match self.sink.unlock() {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                Err(failed(&self.name, error))
            }
            _ => Ok(()),
        }
    }
}

fn lock_file(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Locked { path: path.into() }),
        // On file systems without locks, the user must ensure that there is only one writer.
        Err(std::fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(())
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(Error::Io { file: path.display().to_string(), error })
        }
    }
}

/// Checks that the given fields are the file's; nullability is checked by
/// value.
pub(crate) fn check_same_fields(
    expected: &[SchemaField],
    found: &[SchemaField],
    outer: &str,
) -> Result<()> {
    let names = |fields: &[SchemaField]| {
        fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let is_same = expected.len() == found.len()
        && expected.iter().zip(found).all(|(expected, found)| expected.name == found.name);
    if !is_same {
        return Err(Error::SchemaMismatch {
            column: outer.into(),
            expected: format!("the fields {}", names(expected)),
            found: names(found),
        });
    }
    expected
        .iter()
        .zip(found)
        .try_for_each(|(expected, found)| check_same_field(expected, found, outer))
}

fn check_same_field(expected: &SchemaField, found: &SchemaField, outer: &str) -> Result<()> {
    let column = crate::schema::field_path(outer, &expected.name);
    match (&expected.kind, &found.kind) {
        (FieldType::Struct(expected), FieldType::Struct(found)) => {
            check_same_fields(expected, found, &column)
        }
        (FieldType::List(expected), FieldType::List(found)) => {
            check_same_field(expected, found, &column)
        }
        (
            FieldType::Map { key, value, .. },
            FieldType::Map { key: found_key, value: found_value, .. },
        ) => {
            check_same_field(key, found_key, &column)?;
            check_same_field(value, found_value, &column)
        }
        // Symbols are checked by value.
        (FieldType::Enum { .. }, FieldType::Enum { .. } | FieldType::String) => Ok(()),
        (expected, found) if expected == found => Ok(()),
        (expected, found) => Err(Error::SchemaMismatch {
            column,
            expected: expected.to_string(),
            found: found.to_string(),
        }),
    }
}

/// The result of [`salvage`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Number of whole blocks.
    pub blocks: usize,
    /// Number of rows in them.
    pub rows: u64,
    /// Offset and description of each damaged place.
    pub damages: Vec<(u64, String)>,
}

/// Writes every whole block of a damaged or truncated file to a new file.
///
/// # Errors
/// If the header is damaged, or either file fails.
pub fn salvage<S: crate::ReadAt, W: Write>(
    from: S,
    name: &str,
    to: W,
) -> Result<(W, SalvageReport)> {
    let reader = Reader::open_for_salvage(from, name)?;
    let (header, ..) = reader.append_state();
    let options =
        WriteOptions { codec: header.codec, metadata: header.metadata, ..WriteOptions::default() };
    let mut writer = Writer::new(to, &header.schema, options)?;
    let mut damages = reader.damages().to_vec();
    let mut kept = 0;
    for block in 0..reader.blocks().len() {
        // A block with correct checksums may still contain bytes that no writer produces.
        let one = ReadOptions { blocks: Some(vec![block]), ..ReadOptions::default() };
        let batches: Result<Vec<RecordBatch>> = reader.read(&one)?.collect();
        match batches {
            Ok(batches) => {
                batches.iter().try_for_each(|batch| writer.write(batch))?;
                kept += 1;
            }
            Err(Error::Io { file, error }) => return Err(Error::Io { file, error }),
            Err(error) => {
                let offset = reader.blocks().get(block).map_or(0, |block| block.offset);
                damages.push((offset, error.to_string()));
            }
        }
    }
    let rows = writer.row_count();
    Ok((writer.finish()?, SalvageReport { blocks: kept, rows, damages }))
}
