//! Parquet files: footers read once, row groups packed into splits, columns read by position.
//!
//! The pages of a column chunk are contiguous and are requested one by one. Each chunk in use has a window of
//! at least [`WINDOW_BYTES_MIN`] that one large read fills, so memory is bounded by the number of columns and
//! not by the size of a row group.
//!
//! A column in use also needs a decoded page and the state of its decompressor. For thousands of concurrent
//! columns, that is far more than the size of their values. If it exceeds the budget, the reader decodes a
//! slice of the rows at a time, a few columns after the others ([`ColumnTurnReader`]). Each slice skips the
//! rows of the row group before it again, so there are at most [`ROW_SLICES_MAX`] slices.
//!
//! A source with few row groups is also cut by rows, so that several workers have work. Pages before a
//! chunk's first row are skipped by their headers, and each chunk reads the dictionaries once more.
//!
//! A row group that is larger than splits should be is cut between its pages ([`page_index`]). A split part
//! then reads and decodes only the pages that contain its rows.
//!
//! If predicates leave few rows, the columns that they name are read first. The other columns are then read
//! for the selected rows only: pages without such a row are not decompressed. Each split part tries this
//! until one finds that predicates select many rows.
//!
//! Source: Abadi, Myers, DeWitt and Madden, *Materialization Strategies in a Column-Oriented DBMS* (ICDE
//! 2007).
//!
//! For a remote file, the requested chunks of all later row groups are announced beforehand
//! ([`access_plan`](crate::files::access_plan)) and fetched concurrently, together with the gaps between neighbours:
//! a request costs as much time as a few MB. Only a row group with more than
//! [`PREFETCHED_ROW_GROUP_BYTES_MAX`] of requested chunks is read through windows, one per column. At most
//! [`PENDING_FOOTERS_MAX`] footers are requested concurrently, with one request each unless a footer is very
//! long.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use tidemill_base::batch_compaction;
use tidemill_remote::reader::ObjectReader;
use tidemill_remote::{BlockClaims, NetworkTask};
use tidemill_text::{Predicate, sql_type_name};

use super::julian_dates::{self, JulianCalendarFlags};
use super::stored_batch_reader::{WantedColumn, normalize_field, type_misfit_error};
use super::{
    FileChunk, FileFormat, FileMetadata, FormatKind, SplitPartReader, SplitPartRequest,
    TypedFormat, predicate_mask,
};
use crate::error::{Error, Result};
use crate::files::byte_input::{ByteInput, ByteReadContext, OpenFile, ReadPattern};
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns, FileSchemaCollector};
use crate::schema::type_unification::{cast_file_column, propagate_struct_nulls};
use crate::splits::split::proportional_bytes;
use crate::{FileLocation, SourceFile, SplitPart};

mod footer;
pub(super) mod inexact_types;
mod page_index;
mod thrift_footer;
mod trusted_statistics;

use footer::{ParquetFooter, load_footer};
use inexact_types::{ConversionMisfit, ConversionMisfitKind};

/// Minimum size of a window of a local file, except at the end of its column chunk.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
/// Minimum size of a window of a remote file.
const REMOTE_WINDOW_BYTES_MIN: u64 = 4 << 20;
/// Maximum size of the requested chunks of a remote row group that are fetched together.
const PREFETCHED_ROW_GROUP_BYTES_MAX: u64 = 32 << 20;
/// Maximum gap between requested chunks that one request fetches.
const REQUEST_GAP_BYTES_MAX: u64 = 256 << 10;
/// Approximate maximum size of such a request.
const REQUEST_BYTES_TARGET: u64 = 4 << 20;
/// Minimum number of bytes read from the end of a remote file for its footer; few footers are longer.
const FOOTER_READ_BYTES_MIN: u64 = 64 << 10;
/// Divisor of the file size that gives the bytes read for a footer, because footers grow with files.
const FOOTER_READ_DIVISOR: u64 = 2048;
/// Maximum number of bytes that the first read of a footer requests.
const FOOTER_READ_BYTES_MAX: u64 = 1 << 20;
/// Bytes read from the end of a remote file whose size is unknown.
const TAIL_PREFETCH_BYTES: u64 = 256 << 10;
/// Maximum number of concurrent footer requests.
const PENDING_FOOTERS_MAX: usize = 16;

/// Number of columns read at a time if memory does not suffice for all.
const CONCURRENT_COLUMNS_MAX: usize = 32;
/// Approximate memory of a column in use beside its bytes.
const COLUMN_OVERHEAD_BYTES: u64 = 128 << 10;
/// Size that few decoded pages exceed.
const DECODED_PAGE_BYTES: u64 = 1 << 20;
/// Maximum number of slices in which the rows of a row group are read.
const ROW_SLICES_MAX: u64 = 8;

/// Number of chunks that sources with fewer row groups are cut into, approximately.
const CHUNKS_TARGET: usize = 8;
/// Minimum number of rows of a chunk that is a part of a row group.
const CHUNK_ROWS_MIN: u64 = 1 << 16;
/// Minimum size of such a chunk.
const CHUNK_BYTES_MIN: u64 = 1 << 20;

/// Number of rows after which predicates are judged to select many rows.
const PREDICATE_TRIAL_ROWS: u64 = 1 << 14;
/// Rows per run of selected rows. With more runs, decoding parts of pages costs more than reading all rows.
const ROWS_PER_RUN_MIN: u64 = 1 << 11;
/// Rows per selected row. With more selected rows, all rows are read.
const ROWS_PER_SELECTED_ROW_MIN: u64 = 2;

/// The Parquet format.
pub(super) struct ParquetSourceFormat;

impl FileFormat for ParquetSourceFormat {
    fn name(&self) -> &str {
        "parquet"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["parquet", "pq"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for ParquetSourceFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        inspect_columns(files, layouts)
    }

    fn inspect_file(&self, file: &Arc<SourceFile>, parts_max: u64) -> Result<()> {
        inspect_file(file, parts_max)
    }

    fn tail_prefetch_bytes(&self) -> u64 {
        TAIL_PREFETCH_BYTES
    }

    fn needed_byte_ranges(
        &self,
        piece: &SplitPart,
        metadata: &(dyn FileMetadata + 'static),
        columns: &[WantedColumn],
    ) -> Option<Vec<Range<u64>>> {
        let known: &dyn Any = metadata;
        let known: &InspectedParquetFile = known.downcast_ref()?;
        let parts = known.row_ranges_of_part(piece);
        let metadata = known.reader_metadata_for(piece);
        let roots = columns.iter().map(|column| column.file_index);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let wanted = wanted_chunk_extents(metadata.metadata(), &parts, &mask);
        Some(
            wanted
                .iter()
                .filter(|chunks| !is_too_large_to_prefetch(chunks))
                .flat_map(|it| request_ranges(it))
                .collect(),
        )
    }

    fn row_cut_points(
        &self,
        file: &SourceFile,
        metadata: &(dyn FileMetadata + 'static),
        chunk: usize,
        target: u64,
    ) -> Vec<u64> {
        let known: &dyn Any = metadata;
        let known: Option<&InspectedParquetFile> = known.downcast_ref();
        known.and_then(|known| known.row_cut_points(file, chunk, target)).unwrap_or_default()
    }

    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let known = reading.format_metadata::<InspectedParquetFile>()?;
        Ok(Box::new(ParquetPartReader::open(known, reading)?))
    }
}

/// The footer of a file, and the chunks that its row groups are cut into.
#[derive(Debug)]
struct InspectedParquetFile {
    /// The footer with the column types as Arrow's reader decodes them.
    reader_metadata: ArrowReaderMetadata,
    /// The columns with their names and types in the source.
    source_schema: SchemaRef,
    renaming_note: Option<String>,
    /// The calendar of its dates.
    calendar: JulianCalendarFlags,
    chunks: Vec<FileChunk>,
    /// The row group and the rows of each chunk.
    chunk_rows: Vec<RowGroupRows>,
    /// Maximum number of chunks that a row group is cut into.
    chunks_per_row_group_max: u64,
    /// The footer with the page index, once requested; `None` if no pages are known.
    page_metadata: OnceLock<Option<ArrowReaderMetadata>>,
}

/// Some rows of a row group.
#[derive(Debug, Clone)]
struct RowGroupRows {
    row_group: usize,
    rows: Range<u64>,
}

impl FileMetadata for InspectedParquetFile {
    fn schema(&self) -> &SchemaRef {
        &self.source_schema
    }

    fn user_note(&self) -> Option<&str> {
        self.renaming_note.as_deref()
    }

    fn chunks(&self) -> Option<&[FileChunk]> {
        Some(&self.chunks)
    }

    fn row_group_of_chunk(&self, chunk: usize) -> usize {
        self.chunk_rows.get(chunk).map_or(chunk, |part| part.row_group)
    }

    fn chunks_per_row_group_max(&self) -> u64 {
        self.chunks_per_row_group_max
    }
}

impl InspectedParquetFile {
    /// Creates the metadata of a file and cuts each of its row groups into at most `parts_max` chunks.
    fn new(footer: ParquetFooter, parts_max: u64) -> Self {
        let ParquetFooter { reader_metadata: metadata, source_schema: shown, renaming_note: note } =
            footer;
        let julian_dates = footer::detect_calendar(metadata.metadata());
        let (mut chunks, mut parts) = (Vec::new(), Vec::new());
        for (group, known) in metadata.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(known.num_rows()).unwrap_or(0);
            let bytes = u64::try_from(known.compressed_size()).unwrap_or(0);
            let count = parts_max.min(rows / CHUNK_ROWS_MIN).min(bytes / CHUNK_BYTES_MIN).max(1);
            for index in 0..count {
                let share = |all: u64| {
                    proportional_share(all, index, count)..proportional_share(all, index + 1, count)
                };
                let (rows, bytes) = (share(rows), share(bytes));
                chunks.push(FileChunk {
                    row_count: rows.end - rows.start,
                    stored_bytes: bytes.end - bytes.start,
                });
                parts.push(RowGroupRows { row_group: group, rows });
            }
        }
        Self {
            reader_metadata: metadata,
            source_schema: shown,
            renaming_note: note,
            calendar: julian_dates,
            chunks,
            chunk_rows: parts,
            chunks_per_row_group_max: parts_max,
            page_metadata: OnceLock::new(),
        }
    }

    /// Returns the type that a decoded column is converted to; `None` if it is decoded as its source type.
    fn conversion_target(&self, column: &WantedColumn) -> Option<DataType> {
        let decoded = self.reader_metadata.schema().fields().get(column.file_index)?.data_type();
        let shown = self.source_schema.fields().get(column.file_index)?.data_type();
        (decoded != shown)
            .then(|| inexact_types::conversion_target(shown, column.target_field.data_type()))
    }

    /// Returns whether the dates of a column follow the Julian calendar.
    fn has_julian_dates(&self, column: &WantedColumn) -> bool {
        let fields = self.reader_metadata.schema().fields();
        let is_int96 = || {
            fields
                .get(column.file_index)
                .is_some_and(|field| inexact_types::has_int96(field.data_type()))
        };
        let JulianCalendarFlags { has_julian_dates: dates, has_julian_int96: int96 } =
            self.calendar;
        if int96 != dates && is_int96() { int96 } else { dates }
    }

    /// Returns the row ranges of a split part.
    fn row_ranges_of_part(&self, piece: &SplitPart) -> Vec<RowGroupRows> {
        let chunks = piece.row_groups.iter().flatten();
        let mut parts = merge_adjacent_rows(chunks.filter_map(|chunk| self.chunk_rows.get(*chunk)));
        let Some(wanted) = &piece.row_range else { return parts };
        let mut before = 0;
        for RowGroupRows { rows, .. } in &mut parts {
            let count = rows.end - rows.start;
            let inside = |row: u64| row.saturating_sub(before).min(count);
            *rows = rows.start + inside(wanted.start)..rows.start + inside(wanted.end);
            before += count;
        }
        parts.retain(|part| !part.rows.is_empty());
        parts
    }

    /// Returns the footer that a split part is read with: with the page index if the part is cut between
    /// pages.
    fn reader_metadata_for(&self, piece: &SplitPart) -> &ArrowReaderMetadata {
        let pages = || self.page_metadata.get().and_then(Option::as_ref);
        piece.row_range.as_ref().and_then(|_| pages()).unwrap_or(&self.reader_metadata)
    }

    /// Returns the end rows of the portions of a chunk that is cut between its pages.
    fn row_cut_points(&self, file: &SourceFile, chunk: usize, target: u64) -> Option<Vec<u64>> {
        let (part, chunk) = (self.chunk_rows.get(chunk)?, self.chunks.get(chunk)?);
        let known = self
            .page_metadata
            .get_or_init(|| page_index::load_page_metadata(file, &self.reader_metadata));
        let metadata = known.as_ref()?.metadata();
        let cuts = page_index::page_cut_points(
            metadata,
            part.row_group,
            &part.rows,
            chunk.stored_bytes,
            target,
        )?;
        Some(cuts.into_iter().map(|row| row - part.rows.start).collect())
    }
}

/// Returns the start of portion `index` if `all` is cut into `count` equal portions.
fn proportional_share(all: u64, index: u64, count: u64) -> u64 {
    let portion = u128::from(all) * u128::from(index) / u128::from(count.max(1));
    u64::try_from(portion).unwrap_or(all)
}

/// Returns the footer of a file that was inspected as Parquet.
pub(crate) fn parquet_metadata(file: &SourceFile) -> Option<&Arc<ParquetMetaData>> {
    let known: &dyn Any = file.metadata()?;
    known
        .downcast_ref()
        .map(|InspectedParquetFile { reader_metadata: metadata, .. }| metadata.metadata())
}

/// Returns whether a column is text and all of its pages are dictionary encoded.
pub(crate) fn is_dictionary_encoded_text(file: &SourceFile, place: usize) -> bool {
    let known: Option<&dyn Any> = file.metadata().map(|known| known as _);
    let Some(InspectedParquetFile { reader_metadata: metadata, .. }) =
        known.and_then(|known| known.downcast_ref())
    else {
        return false;
    };
    let is_text = metadata.schema().fields().get(place);
    let is_text = is_text.is_some_and(|field| field.data_type() == &DataType::Utf8View);
    let schema = metadata.parquet_schema();
    let leaf = (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == place);
    let is_code =
        |encoding| matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
    let is_coded = |chunk: &ColumnChunkMetaData| {
        chunk.dictionary_page_offset().is_some()
            && match chunk.page_encoding_stats_mask() {
                Some(mask) => mask.encodings().all(is_code),
                // RLE encodes levels, which do not matter here.
                None => {
                    chunk.encodings().all(|encoding| is_code(encoding) || encoding == Encoding::RLE)
                }
            }
    };
    let mut groups = metadata.metadata().row_groups().iter();
    is_text && leaf.is_some_and(|leaf| groups.all(|group| is_coded(group.column(leaf))))
}

/// Returns the footer with the columns as dictionary codes that are requested so; `None` if there are none.
fn with_dictionary_columns(
    metadata: &ArrowReaderMetadata,
    columns: &[WantedColumn],
) -> Result<Option<ArrowReaderMetadata>, ParquetError> {
    let mut fields: Vec<FieldRef> = metadata.schema().fields().to_vec();
    let mut is_coded = false;
    for column in columns {
        if let DataType::Dictionary(_, _) = column.target_field.data_type()
            && let Some(field) = fields.get_mut(column.file_index)
        {
            let coded =
                field.as_ref().clone().with_data_type(column.target_field.data_type().clone());
            *field = Arc::new(coded);
            is_coded = true;
        }
    }
    if !is_coded {
        return Ok(None);
    }
    let schema = Schema::new_with_metadata(fields, metadata.schema().metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), options).map(Some)
}

fn inspect_columns(files: &[Arc<SourceFile>], layouts: ColumnLayoutPolicy) -> Result<FileColumns> {
    let mut gathered = FileSchemaCollector::default();
    let mut tails = TailPrefetcher::new(files);
    // Local files of a source that may have few row groups.
    let mut few = Vec::new();
    for file in files {
        let tail = tails.next_tail(file)?;
        if file.is_stream() {
            return Err(Error::usage_with_hint(
                format!(
                    "`{}` cannot be read as Parquet: its server has no ranges",
                    file.display_name
                ),
                "Parquet is read from its end; fetch the file first and read it from disk",
            ));
        }
        if file.size() == 0 {
            return Err(Error::Corrupt {
                path: file.display_name.to_string(),
                offset: None,
                reason: "it is empty, and a Parquet file has a footer at least".into(),
                hint: Some("its writer may not have finished; write it again".into()),
            });
        }
        let footer = load_footer(file, tail)?;
        let own: Vec<FieldRef> =
            footer.source_schema.fields().iter().map(normalize_field).collect();
        if files.len() < CHUNKS_TARGET && matches!(file.location, FileLocation::Local(_)) {
            few.push((file, footer));
        } else {
            let _ = file.metadata.set(Arc::new(InspectedParquetFile::new(footer, 1)));
        }
        gathered.add_file(file, own, layouts)?;
    }
    let group_count: usize =
        few.iter().map(|(_, footer)| footer.reader_metadata.metadata().num_row_groups()).sum();
    let parts_max = (CHUNKS_TARGET / group_count.max(1)).max(1) as u64;
    for (file, footer) in few {
        let _ = file.metadata.set(Arc::new(InspectedParquetFile::new(footer, parts_max)));
    }
    Ok(gathered.into_columns())
}

/// Reads the footer of a file and cuts each of its row groups into at most `parts_max` chunks.
fn inspect_file(file: &SourceFile, parts_max: u64) -> Result<()> {
    let footer = load_footer(file, None)?;
    let _ = file.metadata.set(Arc::new(InspectedParquetFile::new(footer, parts_max)));
    Ok(())
}

/// Prefetches the ends of remote files.
struct TailPrefetcher<'a> {
    files: std::slice::Iter<'a, Arc<SourceFile>>,
    pending_fetches: VecDeque<(usize, u64, NetworkTask<Bytes>)>,
}

impl<'a> TailPrefetcher<'a> {
    fn new(files: &'a [Arc<SourceFile>]) -> Self {
        TailPrefetcher { files: files.iter(), pending_fetches: VecDeque::new() }
    }

    /// Returns the end of a file and its offset; `None` for a local file.
    fn next_tail(&mut self, file: &SourceFile) -> Result<Option<(u64, Bytes)>> {
        while self.pending_fetches.len() < PENDING_FOOTERS_MAX
            && let Some(file) = self.files.next()
        {
            if let FileLocation::Object(object) = &file.location
                && !object.is_stream()
            {
                // The end that is in memory already, or a share of the file that contains most footers.
                let bytes = (object.size() / FOOTER_READ_DIVISOR)
                    .clamp(FOOTER_READ_BYTES_MIN, FOOTER_READ_BYTES_MAX);
                let start = object.size().saturating_sub(bytes);
                let start = object.kept_tail_start().unwrap_or(start);
                let fetch = object.fetch_range(start..object.size())?;
                self.pending_fetches.push_back((file.index, start, fetch));
            }
        }
        match self.pending_fetches.pop_front() {
            Some((index, start, fetch)) if index == file.index => {
                Ok(Some((start, fetch.wait(&file.cancel)?)))
            }
            other => {
                self.pending_fetches.extend(other);
                Ok(None)
            }
        }
    }
}

/// Runs a decoder and converts its panic to an error: Arrow's Parquet reader panics on some damaged pages.
/// A reader that has panicked is not used again.
fn catch_decoder_panic<T>(
    work: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    tidemill_base::panics::catch_silently(work)
        .unwrap_or_else(|_| Err(ParquetError::General("the decoder gave up".into())))
}

/// Reads the requested columns of some row groups.
struct ParquetPartReader {
    row_groups: RowGroupReader,
    input: ParquetInput,
    /// The requested columns; each `file_index` is the index among the columns of the Parquet reader.
    columns: Vec<ReaderColumn>,
    schema: Arc<Schema>,
    context: ByteReadContext,
    part_bytes: u64,
    part: SplitPart,
    part_rows: u64,
    /// Number of rows before the last batch, and including it.
    rows_before_batch: u64,
    rows_through_batch: u64,
    reported_bytes: u64,
    selected_rows: Option<SelectedRows>,
}

/// A column of a reader.
struct ReaderColumn {
    requested: WantedColumn,
    /// The target of [`inexact_types::convert_array`]; `None` if the column is decoded as its source type.
    conversion: Option<DataType>,
    /// True if its dates follow the Julian calendar.
    has_julian_dates: bool,
}

/// The rows of a split part that predicates selected.
#[derive(Default)]
struct SelectedRows {
    runs: Vec<RowRun>,
    row_count: u64,
    /// Number of them in the batches returned so far, and in the last batch.
    returned_rows: u64,
    last_batch_rows: u64,
    /// End of the rows that are already counted as selected or dropped.
    counted_end: u64,
    dropped_rows: u64,
}

impl ParquetPartReader {
    fn open(known: &InspectedParquetFile, reading: SplitPartRequest<'_>) -> Result<Self> {
        let SplitPartRequest { part: piece, columns, predicates, options, context: watch, .. } =
            reading;
        let file = &piece.file;
        let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &watch)?);
        let metadata = known.reader_metadata_for(piece);
        let wanted = || piece.row_groups.iter().flatten().copied();
        let parts = known.row_ranges_of_part(piece);
        let groups: Vec<usize> = parts.iter().map(|part| part.row_group).collect();
        let coded = with_dictionary_columns(metadata, &columns).map_err(|error| {
            Error::Internal(format!("codes of `{}`: {error}", file.display_name))
        })?;
        let metadata = coded.as_ref().unwrap_or(metadata);
        let mut columns: Vec<ReaderColumn> = columns
            .into_iter()
            .map(|wanted| ReaderColumn {
                conversion: known.conversion_target(&wanted),
                has_julian_dates: known.has_julian_dates(&wanted),
                requested: wanted,
            })
            .collect();
        let mut read: Vec<usize> =
            columns.iter().map(|column| column.requested.file_index).collect();
        read.sort_unstable();
        read.dedup();
        let (mut bytes, mut rows) = (0, 0);
        for chunk in wanted().filter_map(|chunk| known.chunks.get(chunk)) {
            bytes += chunk.stored_bytes;
            rows += chunk.row_count;
        }
        if let Some(own) = &piece.row_range {
            bytes = proportional_bytes(bytes, own, rows);
            rows = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
        }
        if read.is_empty() {
            check_row_counts(&open, metadata.metadata(), &parts, &watch)?;
        }
        let mask = ProjectionMask::roots(metadata.parquet_schema(), read.iter().copied());
        let wanted = wanted_chunk_extents(metadata.metadata(), &parts, &mask);
        let mut input = ParquetInput::new(open, Some(metadata.metadata()), &wanted);
        if input.open_file.remote_reader().is_some() {
            input.announce_reads(wanted)?;
        }
        let bytes_max = options.prefetch_budget.bytes().saturating_mul(2);
        let mut late = None;
        let reader = if needs_column_turns(metadata.metadata(), &groups, &mask, bytes_max) {
            let turns = read.chunks(CONCURRENT_COLUMNS_MAX).map(|roots| {
                ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied())
            });
            RowGroupReader::ColumnTurns(Box::new(ColumnTurnReader {
                input: input.clone(),
                metadata: metadata.clone(),
                column_masks: turns.collect(),
                remaining_rows: parts.into(),
                slice_bytes_max: bytes_max,
                batch_rows: options.batch_rows,
                pending_batch: None,
            }))
        } else {
            let open = |mask: ProjectionMask, selection: Option<RowSelection>| {
                let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                    input.clone(),
                    metadata.clone(),
                )
                .with_row_groups(groups.clone())
                .with_projection(mask)
                .with_batch_size(options.batch_rows);
                if let Some(selection) = selection {
                    builder = builder.with_row_selection(selection);
                }
                catch_decoder_panic(|| builder.build())
                    .map_err(|error| input.corrupt_error(&error, "a row group"))
            };
            let all = row_selection(metadata.metadata(), &parts);
            let tests: Vec<&Predicate> =
                predicates.iter().filter(|it| can_test_predicate(&columns, it)).collect();
            let is_tested = |at: usize| tests.iter().any(|test| test.column == at);
            // Reading predicate columns first pays only if there are other columns.
            let is_first = input.open_file.remote_reader().is_none()
                && !options.predicates_keep_many.load(Ordering::Relaxed)
                && (0..columns.len()).any(is_tested)
                && !(0..columns.len()).all(is_tested);
            if is_first {
                let mut places: Vec<usize> =
                    tests.iter().map(|test| columns[test.column].requested.file_index).collect();
                places.sort_unstable();
                places.dedup();
                let first =
                    ProjectionMask::roots(metadata.parquet_schema(), places.iter().copied());
                let reader = open(first, all.clone())?;
                let kept = RowTests {
                    predicates: tests,
                    columns: &columns,
                    file_indices: places,
                    input: &input,
                    context: &watch,
                };
                late = kept.select_rows(reader, piece, rows)?;
                options.predicates_keep_many.fetch_or(late.is_none(), Ordering::Relaxed);
            }
            let selection = match &late {
                Some(late) => row_selection_of_runs(metadata.metadata(), &parts, &late.runs),
                None => all,
            };
            RowGroupReader::AllColumns(Box::new(open(mask, selection)?))
        };
        for ReaderColumn { requested: wanted, .. } in &mut columns {
            wanted.file_index = read.partition_point(|other| *other < wanted.file_index);
        }
        let fields = columns.iter().map(|column| column.requested.target_field.clone());
        let fields: Vec<FieldRef> = fields.collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            row_groups: reader,
            input,
            columns,
            schema,
            context: watch,
            part_bytes: bytes,
            part: piece.clone(),
            part_rows: rows,
            rows_before_batch: 0,
            rows_through_batch: 0,
            reported_bytes: 0,
            selected_rows: late,
        })
    }

    /// Reports progress as a share of the row groups' bytes, because the bytes that are read depend on the
    /// columns.
    fn report_progress(&mut self, rows: u64) {
        let share =
            u128::from(self.part_bytes) * u128::from(rows) / u128::from(self.part_rows.max(1));
        let bytes = u64::try_from(share).unwrap_or(self.part_bytes).min(self.part_bytes);
        self.context.progress.add_bytes(bytes.saturating_sub(self.reported_bytes));
        self.reported_bytes = bytes.max(self.reported_bytes);
    }
}

impl SplitPartReader for ParquetPartReader {
    fn batch_row_number(&self, row: usize) -> (u64, u64) {
        let place = match &self.selected_rows {
            Some(late) => late
                .nth_row(late.returned_rows - late.last_batch_rows + row as u64)
                .unwrap_or(self.part_rows),
            None => self.rows_before_batch + row as u64,
        };
        self.part.file_row_number(place)
    }

    fn take_dropped_row_count(&mut self) -> u64 {
        self.selected_rows.as_mut().map_or(0, |late| std::mem::take(&mut late.dropped_rows))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let next = catch_decoder_panic(|| self.row_groups.next_batch());
        let Some(batch) = next.map_err(|error| self.input.bad_page_error(&error))? else {
            self.report_progress(self.part_rows);
            self.input.open_file.verify_identity()?;
            let (read, expected) = match &self.selected_rows {
                Some(late) => (late.returned_rows, late.row_count),
                None => (self.rows_through_batch, self.part_rows),
            };
            if read != expected {
                return Err(row_count_error(&self.input, &self.part, read, expected));
            }
            if let Some(late) = &mut self.selected_rows {
                late.count_dropped(0, self.part_rows);
            }
            return Ok(None);
        };
        self.rows_before_batch = self.rows_through_batch;
        self.rows_through_batch = match &mut self.selected_rows {
            Some(late) => late.advance_batch(batch.num_rows() as u64).ok_or_else(|| {
                self.input
                    .bad_page_error(&ParquetError::General("more rows than are selected".into()))
            })?,
            None => self.rows_through_batch + batch.num_rows() as u64,
        };
        if self.rows_through_batch > self.part_rows {
            return Err(row_count_error(
                &self.input,
                &self.part,
                self.rows_through_batch,
                self.part_rows,
            ));
        }
        self.report_progress(self.rows_through_batch);
        let row_number = |row: usize| self.batch_row_number(row).0;
        let columns = self
            .columns
            .iter()
            .map(|column| {
                convert_column(
                    batch.column(column.requested.file_index),
                    column,
                    &self.input,
                    &row_number,
                )
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map(Some)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}

/// Converts a decoded column to its type in the source. `row_number` maps rows of the batch to rows of the file.
fn convert_column(
    column: &ArrayRef,
    of: &ReaderColumn,
    input: &ParquetInput,
    row_number: &dyn Fn(usize) -> u64,
) -> Result<ArrayRef> {
    let wanted = &of.requested;
    // The decoder omits the nulls of a struct in its non-nullable fields.
    let mut column = propagate_struct_nulls(column)?;
    if let Some(coded) = column.as_any_dictionary_opt()
        && coded.values().is_empty()
        && column.null_count() < column.len()
    {
        // The decoder does not check codes if the dictionary is empty.
        let error = ParquetError::General("codes without a dictionary".into());
        return Err(input.bad_page_error(&error));
    }
    let exactly = wanted.type_witness.is_some();
    if let Some(shown) = &of.conversion {
        column = inexact_types::convert_array(&column, shown, exactly)
            .map_err(|misfit| bad_value_error(misfit, wanted, input, row_number))?;
    }
    if of.has_julian_dates {
        column = julian_dates::convert_to_gregorian(&column)?;
    }
    cast_file_column(&column, wanted.target_field.data_type(), exactly)
        .map_err(|reason| type_misfit_error(wanted, input.open_file.path(), &reason))
}

/// Returns the error for a value outside of its column's type.
fn bad_value_error(
    misfit: ConversionMisfit,
    wanted: &WantedColumn,
    input: &ParquetInput,
    row_number: &dyn Fn(usize) -> u64,
) -> Error {
    let (path, name) = (input.open_file.path(), wanted.target_field.name());
    let row = misfit.row.map(|row| format!(", row {}", row_number(row))).unwrap_or_default();
    let place = format!("column `{name}`{row}");
    match misfit.kind {
        ConversionMisfitKind::Arrow(error) => error.into(),
        ConversionMisfitKind::OutOfRange(reason) => Error::Corrupt {
            path: path.to_string(),
            offset: None,
            reason: format!("{place}: {reason}"),
            hint: Some("leave the column out, or write the file again without such values".into()),
        },
        ConversionMisfitKind::FinerThanUnit(unit) => {
            let kind = sql_type_name(&DataType::Timestamp(unit, None));
            Error::usage_with_hint(
                format!("{place} of `{path}`: it has more digits than {kind}"),
                format!(
                    "--schema '{name} TIMESTAMP' reads nanoseconds, --schema '{name} {kind}' cuts \
                     them off"
                ),
            )
        }
    }
}

/// Returns the error for a split part whose pages contradict the row count in the footer.
fn row_count_error(input: &ParquetInput, piece: &SplitPart, found: u64, expected: u64) -> Error {
    if let Err(error) = input.open_file.verify_identity() {
        return error;
    }
    let (first, _) = piece.file_row_number(0);
    Error::Corrupt {
        path: input.open_file.path().to_string(),
        offset: None,
        reason: format!(
            "its pages have {found} rows from row {first} on, and its footer says {expected}"
        ),
        hint: Some("it is not as it was written; write or fetch it again".into()),
    }
}

/// Compares the footer's row counts with the page headers of one column, for reads without columns
/// (`count(*)`), which decode no page. Remote files are not checked, because each header would cost a
/// request.
///
/// # Errors
/// [`Error::Corrupt`] if the counts differ.
fn check_row_counts(
    open: &Arc<OpenFile>,
    metadata: &Arc<ParquetMetaData>,
    parts: &[RowGroupRows],
    watch: &ByteReadContext,
) -> Result<()> {
    if open.remote_reader().is_some() {
        return Ok(());
    }
    let input = ParquetInput::new(Arc::clone(open), Some(metadata), &[]);
    for index in parts.iter().filter(|part| part.rows.start == 0).map(|part| part.row_group) {
        watch.cancel.check()?;
        let Some(group) = metadata.row_groups().get(index) else { continue };
        let Some((column, found)) = page_index::count_rows_by_headers(&input, group) else {
            continue;
        };
        let expected = group.num_rows();
        if i64::try_from(found) != Ok(expected) {
            return Err(Error::Corrupt {
                path: open.path().to_string(),
                offset: None,
                reason: format!(
                    "row group {index} has {found} rows in the pages of column `{column}`, and its \
                     footer says {expected}"
                ),
                hint: Some("it is not as it was written; write or fetch it again".into()),
            });
        }
    }
    open.verify_identity()
}

fn can_test_predicate(columns: &[ReaderColumn], predicate: &Predicate) -> bool {
    let column = columns.get(predicate.column);
    column.is_some_and(|column| {
        predicate_mask::can_test_type(column.requested.target_field.data_type())
    })
}

/// The predicates on rows, and the input to evaluate them on.
struct RowTests<'a> {
    predicates: Vec<&'a Predicate>,
    columns: &'a [ReaderColumn],
    /// Indices in the file of the tested columns, in ascending order.
    file_indices: Vec<usize>,
    input: &'a ParquetInput,
    context: &'a ByteReadContext,
}

impl RowTests<'_> {
    /// Returns the rows of a split part of `expected` rows that satisfy the predicates; `None` if these are
    /// many.
    fn select_rows(
        &self,
        mut reader: ParquetRecordBatchReader,
        piece: &SplitPart,
        expected: u64,
    ) -> Result<Option<SelectedRows>> {
        let mut late = SelectedRows::default();
        let mut rows: u64 = 0;
        let mut keep = Vec::new();
        while let Some(batch) = catch_decoder_panic(|| next_reader_batch(&mut reader))
            .map_err(|error| self.input.bad_page_error(&error))?
        {
            self.context.cancel.check()?;
            keep.clear();
            keep.resize(batch.num_rows(), true);
            for test in &self.predicates {
                let tested = &self.columns[test.column];
                let place =
                    self.file_indices.partition_point(|place| *place < tested.requested.file_index);
                let row_number = |row: usize| piece.file_row_number(rows + row as u64).0;
                let column = convert_column(batch.column(place), tested, self.input, &row_number)?;
                predicate_mask::mask_rows(&column, &test.condition, &mut keep);
            }
            let places = keep.iter().zip(rows..).filter(|(keep, _)| **keep);
            places.for_each(|(_, place)| late.add_row(place));
            rows += batch.num_rows() as u64;
            let are_many = late.runs.len() as u64 > rows / ROWS_PER_RUN_MIN
                || late.row_count > rows / ROWS_PER_SELECTED_ROW_MIN;
            if rows >= PREDICATE_TRIAL_ROWS && are_many {
                return Ok(None);
            }
        }
        if rows != expected {
            return Err(row_count_error(self.input, piece, rows, expected));
        }
        Ok(Some(late))
    }
}

impl SelectedRows {
    /// Adds the row at a position after the earlier ones.
    fn add_row(&mut self, place: u64) {
        match self.runs.last_mut() {
            Some(run) if run.start_row + run.row_count == place => run.row_count += 1,
            _ => self.runs.push(RowRun {
                start_row: place,
                row_count: 1,
                rows_before: self.row_count,
            }),
        }
        self.row_count += 1;
    }

    /// Returns the position in the split part of the selected row `n`; `None` beyond the last one.
    fn nth_row(&self, n: u64) -> Option<u64> {
        let run = self.runs.partition_point(|run| run.rows_before <= n).checked_sub(1)?;
        let run = self.runs.get(run)?;
        (n < self.row_count).then(|| run.start_row + (n - run.rows_before))
    }

    /// Records a batch of `rows` selected rows. Returns the number of rows of the split part up to the last
    /// one of the batch, or `None` if fewer rows are selected.
    fn advance_batch(&mut self, rows: u64) -> Option<u64> {
        (self.returned_rows, self.last_batch_rows) = (self.returned_rows + rows, rows);
        let done = match self.returned_rows.checked_sub(1) {
            Some(last) => self.nth_row(last)? + 1,
            None => 0,
        };
        self.count_dropped(rows, done);
        Some(done)
    }

    /// Counts the rows up to `done`, of which `rows` are in a batch and the others dropped.
    fn count_dropped(&mut self, rows: u64, done: u64) {
        self.dropped_rows += done.saturating_sub(self.counted_end).saturating_sub(rows);
        self.counted_end = done.max(self.counted_end);
    }
}

/// Returns the selection of some runs of rows within `parts`.
fn row_selection_of_runs(
    metadata: &ParquetMetaData,
    parts: &[RowGroupRows],
    runs: &[RowRun],
) -> Option<RowSelection> {
    let count = |rows: u64| usize::try_from(rows).ok();
    let (mut selectors, mut before) = (Vec::new(), 0);
    for part in parts {
        let all = u64::try_from(metadata.row_groups().get(part.row_group)?.num_rows()).ok()?;
        let end = before + (part.rows.end - part.rows.start);
        let first = runs.partition_point(|run| run.start_row + run.row_count <= before);
        let mut at = 0;
        // A run may continue in the next part.
        for run in runs[first..].iter().take_while(|run| run.start_row < end) {
            let (from, to) = (run.start_row.max(before), (run.start_row + run.row_count).min(end));
            let start = from - before + part.rows.start;
            selectors.push(RowSelector::skip(count(start.checked_sub(at)?)?));
            selectors.push(RowSelector::select(count(to - from)?));
            at = start + (to - from);
        }
        selectors.push(RowSelector::skip(count(all.checked_sub(at)?)?));
        before = end;
    }
    Some(RowSelection::from(selectors))
}

/// Merges adjacent row ranges of the same row group.
fn merge_adjacent_rows<'a>(parts: impl Iterator<Item = &'a RowGroupRows>) -> Vec<RowGroupRows> {
    let mut all: Vec<RowGroupRows> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(last) if last.row_group == part.row_group && last.rows.end == part.rows.start => {
                last.rows.end = part.rows.end;
            }
            _ => all.push(part.clone()),
        }
    }
    all
}

/// Returns the selection of the rows of `parts`; `None` if they cover all rows of their row groups.
fn row_selection(metadata: &ParquetMetaData, parts: &[RowGroupRows]) -> Option<RowSelection> {
    let (mut selectors, mut is_whole) = (Vec::new(), true);
    for part in parts {
        let all = u64::try_from(metadata.row_groups().get(part.row_group)?.num_rows()).ok()?;
        let count = |rows: u64| usize::try_from(rows).ok();
        let (before, wanted) = (count(part.rows.start)?, count(part.rows.end - part.rows.start)?);
        let after = count(all.checked_sub(part.rows.end)?)?;
        is_whole &= before == 0 && after == 0;
        selectors.extend([
            RowSelector::skip(before),
            RowSelector::select(wanted),
            RowSelector::skip(after),
        ]);
    }
    (!is_whole).then(|| RowSelection::from(selectors))
}

/// Reads the requested columns of some row groups, in the file's order of columns.
enum RowGroupReader {
    AllColumns(Box<ParquetRecordBatchReader>),
    ColumnTurns(Box<ColumnTurnReader>),
}

impl RowGroupReader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        match self {
            RowGroupReader::AllColumns(reader) => next_reader_batch(reader),
            RowGroupReader::ColumnTurns(reader) => reader.next_batch(),
        }
    }
}

fn next_reader_batch(
    reader: &mut ParquetRecordBatchReader,
) -> Result<Option<RecordBatch>, ParquetError> {
    match reader.next() {
        None => Ok(None),
        Some(Ok(batch)) => Ok(Some(batch)),
        Some(Err(error)) => Err(ParquetError::General(error.to_string())),
    }
}

/// Returns the decoded size of a row group's requested columns, and the memory needed to read all of them
/// concurrently.
fn row_group_memory_bytes(group: &RowGroupMetaData, mask: &ProjectionMask) -> (u64, u64) {
    let columns = group.columns().iter().enumerate();
    let wanted = columns.filter(|(leaf, _)| mask.leaf_included(*leaf));
    wanted.fold((0, 0), |(decoded, open), (_, column)| {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let (stored, own) = (bytes(column.compressed_size()), bytes(column.uncompressed_size()));
        // A value takes at least a bit, and dictionary values are repeated in decoded arrays.
        let own = own.max(bytes(column.num_values()).saturating_mul(8));
        (
            decoded + own,
            open + own.min(DECODED_PAGE_BYTES)
                + stored.min(WINDOW_BYTES_MIN)
                + COLUMN_OVERHEAD_BYTES,
        )
    })
}

/// Returns whether reading all columns concurrently needs more memory than available, and more than reading a
/// slice of the rows a few columns at a time.
fn needs_column_turns(
    metadata: &ParquetMetaData,
    groups: &[usize],
    mask: &ProjectionMask,
    bytes_max: u64,
) -> bool {
    let groups = groups.iter().filter_map(|group| metadata.row_groups().get(*group));
    let (part, open) = groups.fold((0, 0), |(part, most), group| {
        let (decoded, open) = row_group_memory_bytes(group, mask);
        (part.max(decoded / ROW_SLICES_MAX), most.max(open))
    });
    open > bytes_max.saturating_mul(2) && open > part.max(bytes_max).saturating_mul(2)
}

/// Reads a slice of rows at a time, a few columns after the others.
struct ColumnTurnReader {
    input: ParquetInput,
    metadata: ArrowReaderMetadata,
    /// The columns of each turn.
    column_masks: Vec<ProjectionMask>,
    /// Rows not read yet.
    remaining_rows: VecDeque<RowGroupRows>,
    slice_bytes_max: u64,
    batch_rows: usize,
    /// Rows read but not returned yet.
    pending_batch: Option<RecordBatch>,
}

impl ColumnTurnReader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        let part = match self.pending_batch.take() {
            Some(part) => part,
            None => match self.next_slice()? {
                Some(part) => part,
                None => return Ok(None),
            },
        };
        if part.num_rows() <= self.batch_rows {
            return Ok(Some(part));
        }
        self.pending_batch = Some(part.slice(self.batch_rows, part.num_rows() - self.batch_rows));
        Ok(Some(part.slice(0, self.batch_rows)))
    }

    fn next_slice(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        let metadata = Arc::clone(self.metadata.metadata());
        loop {
            let Some(left) = self.remaining_rows.front() else { return Ok(None) };
            let group = metadata.row_group(left.row_group);
            let place = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
            let (start, end) = (place(left.rows.start), place(left.rows.end));
            if start >= end {
                self.remaining_rows.pop_front();
                continue;
            }
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let all = ProjectionMask::leaves(
                self.metadata.parquet_schema(),
                (0..group.num_columns())
                    .filter(|leaf| self.column_masks.iter().any(|turn| turn.leaf_included(*leaf))),
            );
            let (decoded, _) = row_group_memory_bytes(group, &all);
            let parts = decoded.div_ceil(self.slice_bytes_max.max(1)).clamp(1, ROW_SLICES_MAX);
            let count = rows.div_ceil(usize::try_from(parts).unwrap_or(1)).min(end - start);
            let part = self.read_slice(left.row_group, start, count)?;
            if let Some(left) = self.remaining_rows.front_mut() {
                left.rows.start += count as u64;
            }
            return Ok(Some(part));
        }
    }

    /// Reads `count` rows of a row group from row `start` on.
    fn read_slice(
        &self,
        group: usize,
        start: usize,
        count: usize,
    ) -> Result<RecordBatch, ParquetError> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for turn in &self.column_masks {
            let rows = vec![RowSelector::skip(start), RowSelector::select(count)];
            let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.input.clone(),
                self.metadata.clone(),
            )
            .with_row_groups(vec![group])
            .with_projection(turn.clone())
            .with_row_selection(RowSelection::from(rows))
            .with_batch_size(count)
            .build()?;
            let batch = next_reader_batch(&mut reader)?.filter(|batch| batch.num_rows() == count);
            let Some(batch) = batch else {
                return Err(ParquetError::General(format!("{count} rows are not there")));
            };
            let batch = batch_compaction::compact_batch(&batch)?;
            fields.extend(batch.schema().fields().iter().cloned());
            columns.extend(batch.columns().iter().cloned());
            if self.input.open_file.remote_reader().is_none() {
                self.input.windows.lock().clear();
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// A run of consecutive selected rows.
struct RowRun {
    /// Position of the first row in the split part.
    start_row: u64,
    row_count: u64,
    /// Number of selected rows before the run.
    rows_before: u64,
}

/// The announced reads of a remote file.
#[derive(Default)]
struct AnnouncedReads {
    /// Index of the row group being read, among the requested ones.
    current_group: usize,
    /// The claims of the row groups that are prefetched, by their index, in order.
    row_group_claims: VecDeque<(usize, BlockClaims)>,
    /// The declared chunks of larger row groups.
    declared_chunks: HashSet<usize>,
}

/// A file read by position, through one window per column chunk.
#[derive(Clone)]
struct ParquetInput {
    open_file: Arc<OpenFile>,
    /// Start and end of every requested column chunk, or of the requested part of its pages, in ascending
    /// order.
    chunk_extents: Arc<Vec<(u64, u64)>>,
    windows: Arc<Mutex<HashMap<usize, (u64, Bytes)>>>,
    /// The requested chunks of each row group of a remote file, in order.
    wanted_chunks: Arc<Vec<Vec<(u64, u64)>>>,
    /// The announced reads of a remote file.
    announced_reads: Arc<Mutex<AnnouncedReads>>,
    /// The fetched end of a remote file and its offset.
    tail: Option<(u64, Bytes)>,
    metadata: Option<Arc<ParquetMetaData>>,
    /// Offset of the data of the last page read, after its header. Decoder errors refer to this page.
    last_page_offset: Arc<AtomicU64>,
    /// An error of this crate, which a `ParquetError` cannot carry.
    carried_error: Arc<Mutex<Option<Error>>>,
}

impl ParquetInput {
    fn new(
        open: Arc<OpenFile>,
        metadata: Option<&Arc<ParquetMetaData>>,
        wanted: &[Vec<(u64, u64)>],
    ) -> Self {
        let mut chunks: Vec<(u64, u64)> = wanted.iter().flatten().copied().collect();
        chunks.sort_unstable();
        chunks.dedup();
        Self {
            open_file: open,
            chunk_extents: Arc::new(chunks),
            windows: Arc::default(),
            wanted_chunks: Arc::default(),
            announced_reads: Arc::default(),
            tail: None,
            metadata: metadata.cloned(),
            last_page_offset: Arc::default(),
            carried_error: Arc::default(),
        }
    }

    /// Returns the error for the last page read.
    fn bad_page_error(&self, error: &ParquetError) -> Error {
        let at = self.last_page_offset.load(Ordering::Relaxed);
        let groups = self.metadata.iter().flat_map(|metadata| metadata.row_groups());
        let column = groups.flat_map(|group| group.columns()).find(|column| {
            chunk_extent(column).is_some_and(|(start, end)| (start..end).contains(&at))
        });
        let Some(column) = column else { return self.corrupt_part_error(error, "a page", true) };
        let name = column.column_path().parts().join(".");
        match self.corrupt_part_error(error, &format!("a page of column `{name}`"), true) {
            Error::Corrupt { path, reason, .. } => Error::Corrupt {
                path,
                offset: Some(at),
                reason,
                hint: Some(
                    "its bytes are not those that were written; write or fetch it again".into(),
                ),
            },
            other => other,
        }
    }

    fn corrupt_error(&self, error: &ParquetError, what: &str) -> Error {
        self.corrupt_part_error(error, what, false)
    }

    /// Returns the error for `what`, a page or another part of the file.
    fn corrupt_part_error(&self, error: &ParquetError, what: &str, is_page: bool) -> Error {
        if let Some(error) = self.carried_error.lock().take() {
            return error;
        }
        if let Err(error) = self.open_file.verify_identity() {
            return error;
        }
        if let Some(error) = footer::explain_encryption(self, is_page) {
            return error;
        }
        let text = error.to_string();
        // The errors pass through Arrow's error type and back, which adds prefixes.
        let text = text.strip_prefix("Parquet argument error: ").unwrap_or(&text);
        let text = text.strip_prefix("Parquet error: ").unwrap_or(text);
        Error::Corrupt {
            path: self.open_file.path().to_string(),
            offset: None,
            reason: format!("{what} cannot be read ({text})"),
            hint: Some("it is truncated or not a Parquet file; write or fetch it again".into()),
        }
    }

    fn carry_error(&self, error: Error) -> ParquetError {
        *self.carried_error.lock() = Some(error);
        ParquetError::General("reading failed".into())
    }

    fn read_range(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let short = || ParquetError::EOF(format!("{length} bytes at byte {start} are not there"));
        let end = start.checked_add(length).filter(|end| *end <= self.open_file.size());
        if end.is_none() {
            return Err(short());
        }
        if let Some((from, bytes)) = &self.tail
            && let Some(skip) = start.checked_sub(*from).and_then(|skip| usize::try_from(skip).ok())
        {
            let to = usize::try_from(length).map_err(|_| short())?.saturating_add(skip);
            return if to <= bytes.len() { Ok(bytes.slice(skip..to)) } else { Err(short()) };
        }
        let mut buffer = vec![0; usize::try_from(length).map_err(|_| short())?];
        let count =
            self.open_file.read_at(&mut buffer, start).map_err(|error| self.carry_error(error))?;
        if count < buffer.len() { Err(short()) } else { Ok(buffer.into()) }
    }

    /// Returns at least `length` bytes from `start`, and more if the window contains more.
    fn read_through_window(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let chunk = self.chunk_extents.partition_point(|(from, _)| *from <= start).checked_sub(1);
        let chunk =
            chunk.filter(|chunk| start.saturating_add(length) <= self.chunk_extents[*chunk].1);
        let Some(chunk) = chunk else { return self.read_range(start, length) };
        let mut windows = self.windows.lock();
        if let Some((from, bytes)) = windows.get(&chunk)
            && start >= *from
            && start + length <= from + bytes.len() as u64
        {
            #[allow(clippy::cast_possible_truncation)] // Less than the window's length.
            return Ok(bytes.slice((start - from) as usize..));
        }
        if let Some(reader) = self.open_file.remote_reader() {
            self.advance_to_chunk(reader, chunk, start, &mut windows)
                .map_err(|error| self.carry_error(error))?;
        }
        let end = self.chunk_extents[chunk].1.min(self.open_file.size());
        let least = if self.open_file.remote_reader().is_some() {
            REMOTE_WINDOW_BYTES_MIN
        } else {
            WINDOW_BYTES_MIN
        };
        let wanted = length.max(least).min(end.saturating_sub(start)).max(length);
        let bytes = self.fetch_window(start, length, wanted)?;
        // A chunk that was read to its end needs no window.
        if start + bytes.len() as u64 >= end {
            windows.remove(&chunk);
            if bytes.len() as u64 > length {
                windows.insert(chunk, (start, bytes.clone()));
            }
        } else {
            windows.insert(chunk, (start, bytes.clone()));
        }
        Ok(bytes)
    }
}

impl ParquetInput {
    /// Announces the reads of a remote file.
    fn announce_reads(&mut self, wanted: Vec<Vec<(u64, u64)>>) -> Result<()> {
        let Some(reader) = self.open_file.remote_reader() else { return Ok(()) };
        let claims =
            wanted.iter().enumerate().filter(|(_, chunks)| !is_too_large_to_prefetch(chunks));
        let claims = claims.map(|(group, chunks)| {
            let ranges: Vec<Range<u64>> = request_ranges(chunks).collect();
            Ok((group, reader.prefetch_ranges(&ranges)?))
        });
        self.announced_reads.lock().row_group_claims = claims.collect::<Result<_>>()?;
        self.wanted_chunks = Arc::new(wanted);
        Ok(())
    }

    /// Releases the row groups before that of a chunk, and declares the chunk if its row group is large.
    fn advance_to_chunk(
        &self,
        reader: &ObjectReader,
        chunk: usize,
        start: u64,
        windows: &mut HashMap<usize, (u64, Bytes)>,
    ) -> Result<()> {
        let extent = self.chunk_extents[chunk];
        let Some(group) = self.wanted_chunks.iter().position(|group| group.contains(&extent))
        else {
            return Ok(());
        };
        let mut coming = self.announced_reads.lock();
        if group > coming.current_group {
            coming.current_group = group;
            coming.row_group_claims.retain(|(claimed, _)| *claimed >= group);
            windows.clear();
        }
        if is_too_large_to_prefetch(&self.wanted_chunks[group])
            && coming.declared_chunks.insert(chunk)
        {
            reader.declare_range(start..extent.1)?;
        }
        Ok(())
    }

    /// Reads at least `length` bytes from `start`, and up to `wanted` of those that are in memory already or
    /// were requested together.
    fn fetch_window(&self, start: u64, length: u64, wanted: u64) -> Result<Bytes, ParquetError> {
        if let Some(reader) = self.open_file.remote_reader() {
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let rest = reader
                .block_rest_at(start, wanted)
                .map_err(|error| self.carry_error(error.into()))?;
            // A range that spans two blocks is copied.
            return if rest.len() as u64 >= length {
                Ok(rest)
            } else {
                self.read_range(start, length)
            };
        }
        self.read_range(start, wanted)
    }
}

/// Returns whether a row group's requested chunks are too large to be fetched together.
fn is_too_large_to_prefetch(chunks: &[(u64, u64)]) -> bool {
    chunks.iter().map(|(start, end)| end - start).sum::<u64>() > PREFETCHED_ROW_GROUP_BYTES_MAX
}

/// Returns the ranges to request for a row group's chunks.
fn request_ranges(chunks: &[(u64, u64)]) -> impl Iterator<Item = Range<u64>> {
    group_adjacent_chunks(chunks).filter_map(|run| Some(run.first()?.0..run.last()?.1))
}

/// Groups the chunks that one request fetches.
fn group_adjacent_chunks(chunks: &[(u64, u64)]) -> impl Iterator<Item = &[(u64, u64)]> {
    let mut from = chunks.first().map_or(0, |chunk| chunk.0);
    chunks.chunk_by(move |one, next| {
        let together = next.0.saturating_sub(one.1) <= REQUEST_GAP_BYTES_MAX
            && next.1.saturating_sub(from) <= REQUEST_BYTES_TARGET;
        if !together {
            from = next.0;
        }
        together
    })
}

/// Returns the requested chunks of each row group, in the file's order. If only some rows are read, the
/// extents cover the pages that contain them, and the dictionaries.
fn wanted_chunk_extents(
    metadata: &ParquetMetaData,
    parts: &[RowGroupRows],
    mask: &ProjectionMask,
) -> Vec<Vec<(u64, u64)>> {
    let of = |part: &RowGroupRows| {
        let group = metadata.row_groups().get(part.row_group)?;
        let columns = group.columns().iter().enumerate();
        let mut chunks: Vec<(u64, u64)> = columns
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .filter_map(|(leaf, column)| {
                let all = chunk_extent(column)?;
                let pages =
                    page_index::page_extents(metadata, part.row_group, leaf, &part.rows, all);
                Some(pages.unwrap_or([Some(all), None]))
            })
            .flatten()
            .flatten()
            .collect();
        chunks.sort_unstable();
        Some(chunks)
    };
    parts.iter().filter_map(of).collect()
}

/// Returns start and end of a column chunk.
fn chunk_extent(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let length = u64::try_from(column.compressed_size()).ok()?;
    Some((start, start.checked_add(length)?))
}

impl Length for ParquetInput {
    fn len(&self) -> u64 {
        self.open_file.size()
    }
}

impl ChunkReader for ParquetInput {
    type T = PositionReader;

    fn get_read(&self, start: u64) -> Result<PositionReader, ParquetError> {
        Ok(PositionReader { input: self.clone(), position: start, buffer: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.last_page_offset.store(start, Ordering::Relaxed);
        let bytes = self.read_through_window(start, length as u64)?;
        Ok(bytes.slice(..length.min(bytes.len())))
    }
}

/// Reads from a position on. Used for page headers, whose length is unknown beforehand.
struct PositionReader {
    input: ParquetInput,
    position: u64,
    buffer: Bytes,
}

impl Read for PositionReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.buffer.is_empty() {
            let left = self.input.open_file.size().saturating_sub(self.position);
            if left == 0 || out.is_empty() {
                return Ok(0);
            }
            self.buffer =
                self.input.read_through_window(self.position, 1).map_err(std::io::Error::other)?;
            self.position += self.buffer.len() as u64;
        }
        let count = self.buffer.len().min(out.len());
        self.buffer.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, SourceSpec};

    #[test]
    fn carried_error_replaces_the_parquet_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "a\n1\n").unwrap();
        let spec = SourceSpec { url: path.display().to_string(), ..SourceSpec::default() };
        let source = Source::open(&spec).unwrap();
        let file = &source.files()[0];
        let open = OpenFile::open(file, ReadPattern::Random, &file.read_context()).unwrap();
        let input = ParquetInput::new(Arc::new(open), None, &[]);
        // A page header is read as a stream.
        let failed = std::io::Error::other(input.carry_error(Error::Interrupted));
        let error = ParquetError::from(failed);
        assert!(matches!(input.bad_page_error(&error), Error::Interrupted));
        assert!(matches!(input.bad_page_error(&error), Error::Corrupt { .. }));
    }
}
