//! Parquet files: footers read once, row groups packed into splits, columns read by position.
//!
//! The pages of a column chunk lie one behind the other and are asked for one by one, so each
//! chunk that is being read has a window of at least [`WINDOW_BYTES`] that one large read
//! fills: memory is bounded by the number of columns, not by the size of a row group.
//!
//! A column that is being read also takes a page as it is decoded and the state of its decompression.
//! Of thousands of columns at once that is far more than their values are. Where it is more than there
//! is, some rows are read at a time, of some columns after the others ([`InTurns`]). What a row group
//! has before these rows is gone over again for each of such parts, so there are at most
//! [`PARTS_MAX`] of them.
//!
//! A source of few row groups is cut by rows besides, so that several workers have something to do. Pages before a
//! part's first row are passed over by their headers, and its dictionaries are read once more.
//!
//! Where a row group is larger than splits should be, it is cut between its pages ([`pages`]), and a piece reads and
//! decodes only those that its rows are in.
//!
//! Where predicates leave few rows, the columns that they name are read first, and of the others the rows that are left:
//! pages in which there is none are not decompressed. Whether they do is tried at each piece until one has more.
//!
//! Source: Abadi, Myers, DeWitt and Madden, *Materialization Strategies in a Column-Oriented DBMS* (ICDE 2007).
//!
//! Of a file that is elsewhere, the wanted chunks of all row groups to come are told beforehand
//! ([`course`](crate::course)) and fetched concurrently, with what lies between neighbours: a request costs
//! as much time as a few MB. Only a row group of which more than [`GROUP_BYTES_MAX`] are wanted is read
//! through windows, one a column. Footers are
//! asked for [`FOOTERS_AT_ONCE`] at a time, a request for each unless it is very long.

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

use super::batches::{WantedColumn, misfit, plain};
use super::julian_dates::{self, JulianDates};
use super::{Chunk, FileFormat, FileMetadata, Kind, PieceReader, Reading, TypedFormat, kept};
use crate::columns::{Columns, Gathered, Layouts};
use crate::error::{Error, Result};
use crate::input::{ByteInput, OpenFile, ReadPattern, Watch};
use crate::split::share;
use crate::unify::{adapted, with_nulls_within};
use crate::{FileLocation, Piece, SourceFile};

mod footer;
mod pages;
mod statistics;
pub(super) mod stored_types;
mod thrift;

use footer::{Footer, load};
use stored_types::{Misfit, MisfitKind};

/// The least that one read brings, the end of its column chunk apart.
const WINDOW_BYTES: u64 = 1 << 20;
/// The same where the file is elsewhere.
const REMOTE_WINDOW_BYTES: u64 = 4 << 20;
/// A row group elsewhere of which at most so much is wanted is read in one go.
const GROUP_BYTES_MAX: u64 = 32 << 20;
/// Wanted chunks that are no further apart are asked for in one request …
const GAP_BYTES_MAX: u64 = 256 << 10;
/// … of at most about this size.
const REQUEST_BYTES: u64 = 4 << 20;
/// A footer elsewhere is nearly always in this much of the file's end, or in its share of the file, up to the
/// most.
const FOOTER_BYTES: u64 = 64 << 10;
const FOOTER_SHARE: u64 = 2048;
const FOOTER_BYTES_MAX: u64 = 1 << 20;
/// Of a file whose size is not known yet.
const END_BYTES: u64 = 256 << 10;
/// So many footers are asked for at once.
const FOOTERS_AT_ONCE: usize = 16;

/// So many columns are read at a time where they cannot all be.
const COLUMNS_AT_ONCE: usize = 32;
/// A column that is being read takes about so much beside its bytes.
const COLUMN_BYTES: u64 = 128 << 10;
/// A page is mostly no larger than this when it is decoded.
const PAGE_BYTES: u64 = 1 << 20;
/// The rows of a row group are read in so many parts at most.
const PARTS_MAX: u64 = 8;

/// Of sources with fewer row groups than these each is cut into as many parts as make about so many …
const PARTS_WANTED: usize = 8;
/// … of at least so many rows …
const PART_ROWS_MIN: u64 = 1 << 16;
/// … and so many bytes.
const PART_BYTES_MIN: u64 = 1 << 20;

/// So many rows say whether predicates leave few …
const TRIED_ROWS: u64 = 1 << 14;
/// … which is one run of rows of so many at most: more in a page cost more than to read all of it …
const ROWS_OF_RUN: u64 = 1 << 11;
/// … and one row of so many.
const ROWS_OF_KEPT: u64 = 2;

/// The format.
pub(super) struct Parquet;

impl FileFormat for Parquet {
    fn name(&self) -> &str {
        "parquet"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["parquet", "pq"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Typed(self)
    }
}

impl TypedFormat for Parquet {
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns> {
        columns(files, layouts)
    }

    fn look(&self, file: &Arc<SourceFile>, parts_max: u64) -> Result<()> {
        look(file, parts_max)
    }

    fn end_bytes(&self) -> u64 {
        END_BYTES
    }

    fn ranges(
        &self,
        piece: &Piece,
        metadata: &(dyn FileMetadata + 'static),
        columns: &[WantedColumn],
    ) -> Option<Vec<Range<u64>>> {
        let known: &dyn Any = metadata;
        let known: &ParquetFile = known.downcast_ref()?;
        let parts = known.parts_of(piece);
        let metadata = known.metadata_for(piece);
        let roots = columns.iter().map(|column| column.place);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
        let wanted = wanted_chunks(metadata.metadata(), &parts, &mask);
        Some(wanted.iter().filter(|chunks| !is_large(chunks)).flat_map(|it| requests(it)).collect())
    }

    fn row_cuts(
        &self,
        file: &SourceFile,
        metadata: &(dyn FileMetadata + 'static),
        chunk: usize,
        target: u64,
    ) -> Vec<u64> {
        let known: &dyn Any = metadata;
        let known: Option<&ParquetFile> = known.downcast_ref();
        known.and_then(|known| known.row_cuts(file, chunk, target)).unwrap_or_default()
    }

    fn open(&self, reading: Reading<'_>) -> Result<Box<dyn PieceReader>> {
        let known = reading.metadata_as::<ParquetFile>()?;
        Ok(Box::new(ParquetReader::open(known, reading)?))
    }
}

/// A file's footer, and the parts of its row groups.
#[derive(Debug)]
struct ParquetFile {
    /// The footer with the column types as Arrow's reader decodes them.
    metadata: ArrowReaderMetadata,
    /// The column types as the source shows them.
    shown: SchemaRef,
    note: Option<String>,
    /// The calendar of its dates.
    julian_dates: JulianDates,
    chunks: Vec<Chunk>,
    /// What each of them is of.
    parts: Vec<Part>,
    /// Into so many a row group was cut at most.
    parts_max: u64,
    /// The footer with what is known of pages, once somebody has asked; none where nothing is.
    pages: OnceLock<Option<ArrowReaderMetadata>>,
}

/// Some rows of a row group.
#[derive(Debug, Clone)]
struct Part {
    group: usize,
    rows: Range<u64>,
}

impl FileMetadata for ParquetFile {
    fn schema(&self) -> &SchemaRef {
        &self.shown
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn chunks(&self) -> Option<&[Chunk]> {
        Some(&self.chunks)
    }

    fn part_of(&self, chunk: usize) -> usize {
        self.parts.get(chunk).map_or(chunk, |part| part.group)
    }

    fn parts_max(&self) -> u64 {
        self.parts_max
    }
}

impl ParquetFile {
    /// A file whose row groups are each cut into `parts_max` at most.
    fn new(footer: Footer, parts_max: u64) -> Self {
        let Footer { metadata, shown, note } = footer;
        let julian_dates = footer::julian_dates(metadata.metadata());
        let (mut chunks, mut parts) = (Vec::new(), Vec::new());
        for (group, known) in metadata.metadata().row_groups().iter().enumerate() {
            let rows = u64::try_from(known.num_rows()).unwrap_or(0);
            let bytes = u64::try_from(known.compressed_size()).unwrap_or(0);
            let count = parts_max.min(rows / PART_ROWS_MIN).min(bytes / PART_BYTES_MIN).max(1);
            for index in 0..count {
                let share = |all: u64| portion(all, index, count)..portion(all, index + 1, count);
                let (rows, bytes) = (share(rows), share(bytes));
                chunks.push(Chunk { rows: rows.end - rows.start, bytes: bytes.end - bytes.start });
                parts.push(Part { group, rows });
            }
        }
        Self {
            metadata,
            shown,
            note,
            julian_dates,
            chunks,
            parts,
            parts_max,
            pages: OnceLock::new(),
        }
    }

    /// The type to convert a column to; `None` if it is decoded as its shown type.
    fn conversion(&self, column: &WantedColumn) -> Option<DataType> {
        let decoded = self.metadata.schema().fields().get(column.place)?.data_type();
        let shown = self.shown.fields().get(column.place)?.data_type();
        (decoded != shown).then(|| stored_types::target(shown, column.field.data_type()))
    }

    /// Returns whether the dates of a column are by the Julian calendar.
    fn is_julian(&self, column: &WantedColumn) -> bool {
        let fields = self.metadata.schema().fields();
        let is_int96 = || {
            fields.get(column.place).is_some_and(|field| stored_types::has_int96(field.data_type()))
        };
        let JulianDates { dates, int96 } = self.julian_dates;
        if int96 != dates && is_int96() { int96 } else { dates }
    }

    /// What a piece is of.
    fn parts_of(&self, piece: &Piece) -> Vec<Part> {
        let chunks = piece.row_groups.iter().flatten();
        let mut parts = joined(chunks.filter_map(|chunk| self.parts.get(*chunk)));
        let Some(wanted) = &piece.rows else { return parts };
        let mut before = 0;
        for Part { rows, .. } in &mut parts {
            let count = rows.end - rows.start;
            let inside = |row: u64| row.saturating_sub(before).min(count);
            *rows = rows.start + inside(wanted.start)..rows.start + inside(wanted.end);
            before += count;
        }
        parts.retain(|part| !part.rows.is_empty());
        parts
    }

    /// The footer by which a piece is read.
    fn metadata_for(&self, piece: &Piece) -> &ArrowReaderMetadata {
        let pages = || self.pages.get().and_then(Option::as_ref);
        piece.rows.as_ref().and_then(|_| pages()).unwrap_or(&self.metadata)
    }

    /// Where the parts of a chunk end that is cut between its pages.
    fn row_cuts(&self, file: &SourceFile, chunk: usize, target: u64) -> Option<Vec<u64>> {
        let (part, chunk) = (self.parts.get(chunk)?, self.chunks.get(chunk)?);
        let known = self.pages.get_or_init(|| pages::load(file, &self.metadata));
        let metadata = known.as_ref()?.metadata();
        let cuts = pages::cuts(metadata, part.group, &part.rows, chunk.bytes, target)?;
        Some(cuts.into_iter().map(|row| row - part.rows.start).collect())
    }
}

/// `index` of `count` equal portions.
fn portion(all: u64, index: u64, count: u64) -> u64 {
    let portion = u128::from(all) * u128::from(index) / u128::from(count.max(1));
    u64::try_from(portion).unwrap_or(all)
}

/// The footer of a file that was looked at as Parquet.
pub(crate) fn metadata(file: &SourceFile) -> Option<&Arc<ParquetMetaData>> {
    let known: &dyn Any = file.metadata()?;
    known.downcast_ref().map(|ParquetFile { metadata, .. }| metadata.metadata())
}

/// Whether a file's column of this place is text, and all of its pages are of codes.
pub(crate) fn is_coded(file: &SourceFile, place: usize) -> bool {
    let known: Option<&dyn Any> = file.metadata().map(|known| known as _);
    let Some(ParquetFile { metadata, .. }) = known.and_then(|known| known.downcast_ref()) else {
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
                // Levels are written otherwise than values.
                None => {
                    chunk.encodings().all(|encoding| is_code(encoding) || encoding == Encoding::RLE)
                }
            }
    };
    let mut groups = metadata.metadata().row_groups().iter();
    is_text && leaf.is_some_and(|leaf| groups.all(|group| is_coded(group.column(leaf))))
}

/// The footer, with the columns as codes that are wanted so.
fn with_codes(
    metadata: &ArrowReaderMetadata,
    columns: &[WantedColumn],
) -> Result<Option<ArrowReaderMetadata>, ParquetError> {
    let mut fields: Vec<FieldRef> = metadata.schema().fields().to_vec();
    let mut is_coded = false;
    for column in columns {
        if let DataType::Dictionary(_, _) = column.field.data_type()
            && let Some(field) = fields.get_mut(column.place)
        {
            let coded = field.as_ref().clone().with_data_type(column.field.data_type().clone());
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

fn columns(files: &[Arc<SourceFile>], layouts: Layouts) -> Result<Columns> {
    let mut gathered = Gathered::default();
    let mut tails = Tails::new(files);
    // While there may be few row groups.
    let mut few = Vec::new();
    for file in files {
        let tail = tails.next(file)?;
        if file.is_stream() {
            return Err(Error::usage_hint(
                format!("`{}` cannot be read as Parquet: its server has no ranges", file.shown),
                "Parquet is read from its end; fetch the file first and read it from disk",
            ));
        }
        if file.size() == 0 {
            return Err(Error::Corrupt {
                path: file.shown.to_string(),
                offset: None,
                reason: "it is empty, and a Parquet file has a footer at least".into(),
                hint: Some("its writer may not have finished; write it again".into()),
            });
        }
        let footer = load(file, tail)?;
        let own: Vec<FieldRef> = footer.shown.fields().iter().map(plain).collect();
        if files.len() < PARTS_WANTED && matches!(file.place, FileLocation::Local(_)) {
            few.push((file, footer));
        } else {
            let _ = file.metadata.set(Arc::new(ParquetFile::new(footer, 1)));
        }
        gathered.add(file, own, layouts)?;
    }
    let group_count: usize =
        few.iter().map(|(_, footer)| footer.metadata.metadata().num_row_groups()).sum();
    let parts_max = (PARTS_WANTED / group_count.max(1)).max(1) as u64;
    for (file, footer) in few {
        let _ = file.metadata.set(Arc::new(ParquetFile::new(footer, parts_max)));
    }
    Ok(gathered.finish())
}

/// Looks at a file whose row groups are each cut into `parts_max` at most.
fn look(file: &SourceFile, parts_max: u64) -> Result<()> {
    let footer = load(file, None)?;
    let _ = file.metadata.set(Arc::new(ParquetFile::new(footer, parts_max)));
    Ok(())
}

/// The ends of files that are elsewhere, on their way before they are wanted.
struct Tails<'a> {
    files: std::slice::Iter<'a, Arc<SourceFile>>,
    coming: VecDeque<(usize, u64, NetworkTask<Bytes>)>,
}

impl<'a> Tails<'a> {
    fn new(files: &'a [Arc<SourceFile>]) -> Self {
        Tails { files: files.iter(), coming: VecDeque::new() }
    }

    /// Where the end of a file begins, and the end; none for a file that is here.
    fn next(&mut self, file: &SourceFile) -> Result<Option<(u64, Bytes)>> {
        while self.coming.len() < FOOTERS_AT_ONCE
            && let Some(file) = self.files.next()
        {
            if let FileLocation::Object(object) = &file.place
                && !object.is_stream()
            {
                // What is here already, or as much as has the footer of nearly all files: it grows with them.
                let bytes = (object.size() / FOOTER_SHARE).clamp(FOOTER_BYTES, FOOTER_BYTES_MAX);
                let start = object.size().saturating_sub(bytes);
                let start = object.kept_tail_start().unwrap_or(start);
                let fetch = object.fetch_range(start..object.size())?;
                self.coming.push_back((file.index, start, fetch));
            }
        }
        match self.coming.pop_front() {
            Some((index, start, fetch)) if index == file.index => {
                Ok(Some((start, fetch.wait(&file.cancel)?)))
            }
            other => {
                self.coming.extend(other);
                Ok(None)
            }
        }
    }
}

/// Arrow's Parquet reader panics on some damaged pages: that is the file's fault, not ours.
/// A reader that has panicked is not used again.
fn unwinding<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    tidemill_base::panics::catch_silently(work)
        .unwrap_or_else(|_| Err(ParquetError::General("the decoder gave up".into())))
}

/// Reads the wanted columns of some row groups.
struct ParquetReader {
    reader: RowGroups,
    input: Positioned,
    /// The wanted columns, their places being those among the reader's columns.
    columns: Vec<ReadColumn>,
    schema: Arc<Schema>,
    watch: Watch,
    bytes: u64,
    piece: Piece,
    rows: u64,
    /// Rows before the last batch, and with it.
    rows_before: u64,
    rows_done: u64,
    bytes_told: u64,
    late: Option<Late>,
}

/// A column of a reader.
struct ReadColumn {
    wanted: WantedColumn,
    /// The target of [`stored_types::converted`]; `None` if the column is decoded as its shown type.
    conversion: Option<DataType>,
    /// True if its dates are by the Julian calendar.
    is_julian: bool,
}

/// Rows that predicates left.
#[derive(Default)]
struct Late {
    runs: Vec<Run>,
    kept: u64,
    /// How many of them are in the batches so far, the last of which has so many.
    given: u64,
    last: u64,
    /// Rows up to these have been counted, whether they were left or not.
    counted: u64,
    dropped: u64,
}

impl ParquetReader {
    fn open(known: &ParquetFile, reading: Reading<'_>) -> Result<Self> {
        let Reading { piece, columns, predicates, options, watch, .. } = reading;
        let file = &piece.file;
        let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &watch)?);
        let metadata = known.metadata_for(piece);
        let wanted = || piece.row_groups.iter().flatten().copied();
        let parts = known.parts_of(piece);
        let groups: Vec<usize> = parts.iter().map(|part| part.group).collect();
        let coded = with_codes(metadata, &columns)
            .map_err(|error| Error::Internal(format!("codes of `{}`: {error}", file.shown)))?;
        let metadata = coded.as_ref().unwrap_or(metadata);
        let mut columns: Vec<ReadColumn> = columns
            .into_iter()
            .map(|wanted| ReadColumn {
                conversion: known.conversion(&wanted),
                is_julian: known.is_julian(&wanted),
                wanted,
            })
            .collect();
        let mut read: Vec<usize> = columns.iter().map(|column| column.wanted.place).collect();
        read.sort_unstable();
        read.dedup();
        let (mut bytes, mut rows) = (0, 0);
        for chunk in wanted().filter_map(|chunk| known.chunks.get(chunk)) {
            bytes += chunk.bytes;
            rows += chunk.rows;
        }
        if let Some(own) = &piece.rows {
            bytes = share(bytes, own, rows);
            rows = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
        }
        if read.is_empty() {
            check_row_counts(&open, metadata.metadata(), &parts, &watch)?;
        }
        let mask = ProjectionMask::roots(metadata.parquet_schema(), read.iter().copied());
        let wanted = wanted_chunks(metadata.metadata(), &parts, &mask);
        let mut input = Positioned::new(open, Some(metadata.metadata()), &wanted);
        if input.open.remote().is_some() {
            input.expect(wanted)?;
        }
        let bytes_max = options.ahead.bytes().saturating_mul(2);
        let mut late = None;
        let reader = if is_better_in_turns(metadata.metadata(), &groups, &mask, bytes_max) {
            let turns = read.chunks(COLUMNS_AT_ONCE).map(|roots| {
                ProjectionMask::roots(metadata.parquet_schema(), roots.iter().copied())
            });
            RowGroups::InTurns(Box::new(InTurns {
                input: input.clone(),
                metadata: metadata.clone(),
                turns: turns.collect(),
                parts: parts.into(),
                bytes_max,
                batch_rows: options.batch_rows,
                part: None,
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
                unwinding(|| builder.build()).map_err(|error| input.corrupt(&error, "a row group"))
            };
            let all = selection(metadata.metadata(), &parts);
            let tests: Vec<&Predicate> =
                predicates.iter().filter(|it| is_tested(&columns, it)).collect();
            let is_tested = |at: usize| tests.iter().any(|test| test.column == at);
            // What is read first is worth it where something else is read then.
            let is_first = input.open.remote().is_none()
                && !options.leave_many.load(Ordering::Relaxed)
                && (0..columns.len()).any(is_tested)
                && !(0..columns.len()).all(is_tested);
            if is_first {
                let mut places: Vec<usize> =
                    tests.iter().map(|test| columns[test.column].wanted.place).collect();
                places.sort_unstable();
                places.dedup();
                let first =
                    ProjectionMask::roots(metadata.parquet_schema(), places.iter().copied());
                let reader = open(first, all.clone())?;
                let kept = Tests { tests, columns: &columns, places, input: &input, watch: &watch };
                late = kept.kept(reader, piece, rows)?;
                options.leave_many.fetch_or(late.is_none(), Ordering::Relaxed);
            }
            let selection = match &late {
                Some(late) => narrowed(metadata.metadata(), &parts, &late.runs),
                None => all,
            };
            RowGroups::Together(Box::new(open(mask, selection)?))
        };
        for ReadColumn { wanted, .. } in &mut columns {
            wanted.place = read.partition_point(|other| *other < wanted.place);
        }
        let fields = columns.iter().map(|column| column.wanted.field.clone());
        let fields: Vec<FieldRef> = fields.collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            reader,
            input,
            columns,
            schema,
            watch,
            bytes,
            piece: piece.clone(),
            rows,
            rows_before: 0,
            rows_done: 0,
            bytes_told: 0,
            late,
        })
    }

    /// Tells progress as a share of the row groups' bytes: which of them are read depends on
    /// the columns.
    fn tell(&mut self, rows: u64) {
        let share = u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows.max(1));
        let bytes = u64::try_from(share).unwrap_or(self.bytes).min(self.bytes);
        self.watch.progress.add_bytes(bytes.saturating_sub(self.bytes_told));
        self.bytes_told = bytes.max(self.bytes_told);
    }
}

impl PieceReader for ParquetReader {
    fn row_number(&self, row: usize) -> (u64, u64) {
        let place = match &self.late {
            Some(late) => late.place(late.given - late.last + row as u64).unwrap_or(self.rows),
            None => self.rows_before + row as u64,
        };
        self.piece.row_number(place)
    }

    fn take_dropped(&mut self) -> u64 {
        self.late.as_mut().map_or(0, |late| std::mem::take(&mut late.dropped))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let next = unwinding(|| self.reader.next());
        let Some(batch) = next.map_err(|error| self.input.bad_page(&error))? else {
            self.tell(self.rows);
            self.input.open.verify()?;
            let (read, expected) = match &self.late {
                Some(late) => (late.given, late.kept),
                None => (self.rows_done, self.rows),
            };
            if read != expected {
                return Err(row_count_mismatch(&self.input, &self.piece, read, expected));
            }
            if let Some(late) = &mut self.late {
                late.count(0, self.rows);
            }
            return Ok(None);
        };
        self.rows_before = self.rows_done;
        self.rows_done = match &mut self.late {
            Some(late) => late.take(batch.num_rows() as u64).ok_or_else(|| {
                self.input.bad_page(&ParquetError::General("more rows than are selected".into()))
            })?,
            None => self.rows_done + batch.num_rows() as u64,
        };
        if self.rows_done > self.rows {
            return Err(row_count_mismatch(&self.input, &self.piece, self.rows_done, self.rows));
        }
        self.tell(self.rows_done);
        let row_number = |row: usize| self.row_number(row).0;
        let columns = self
            .columns
            .iter()
            .map(|column| {
                as_wanted(batch.column(column.wanted.place), column, &self.input, &row_number)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map(Some)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}

/// Converts a decoded column to its type in the source. `row_number` maps rows of the batch to rows of the file.
fn as_wanted(
    column: &ArrayRef,
    of: &ReadColumn,
    input: &Positioned,
    row_number: &dyn Fn(usize) -> u64,
) -> Result<ArrayRef> {
    let wanted = &of.wanted;
    // A field that may not be null comes without the nulls of the struct that it is in.
    let mut column = with_nulls_within(column)?;
    if let Some(coded) = column.as_any_dictionary_opt()
        && coded.values().is_empty()
        && column.null_count() < column.len()
    {
        // The decoder looks at no code then.
        let error = ParquetError::General("codes without a dictionary".into());
        return Err(input.bad_page(&error));
    }
    let exactly = wanted.shown_by.is_some();
    if let Some(shown) = &of.conversion {
        column = stored_types::converted(&column, shown, exactly)
            .map_err(|misfit| bad_value(misfit, wanted, input, row_number))?;
    }
    if of.is_julian {
        column = julian_dates::gregorian(&column)?;
    }
    adapted(&column, wanted.field.data_type(), exactly)
        .map_err(|reason| misfit(wanted, input.open.path(), &reason))
}

/// The error for a value outside of the type of its column.
fn bad_value(
    misfit: Misfit,
    wanted: &WantedColumn,
    input: &Positioned,
    row_number: &dyn Fn(usize) -> u64,
) -> Error {
    let (path, name) = (input.open.path(), wanted.field.name());
    let row = misfit.row.map(|row| format!(", row {}", row_number(row))).unwrap_or_default();
    let place = format!("column `{name}`{row}");
    match misfit.kind {
        MisfitKind::Arrow(error) => error.into(),
        MisfitKind::OutOfRange(reason) => Error::Corrupt {
            path: path.to_string(),
            offset: None,
            reason: format!("{place}: {reason}"),
            hint: Some("leave the column out, or write the file again without such values".into()),
        },
        MisfitKind::Finer(unit) => {
            let kind = sql_type_name(&DataType::Timestamp(unit, None));
            Error::usage_hint(
                format!("{place} of `{path}`: it has more digits than {kind}"),
                format!(
                    "--schema '{name} TIMESTAMP' reads nanoseconds, --schema '{name} {kind}' cuts \
                     them off"
                ),
            )
        }
    }
}

/// The error for a piece whose pages do not have the number of rows in the footer.
fn row_count_mismatch(input: &Positioned, piece: &Piece, found: u64, expected: u64) -> Error {
    if let Err(error) = input.open.verify() {
        return error;
    }
    let (first, _) = piece.row_number(0);
    Error::Corrupt {
        path: input.open.path().to_string(),
        offset: None,
        reason: format!(
            "its pages have {found} rows from row {first} on, and its footer says {expected}"
        ),
        hint: Some("it is not as it was written; write or fetch it again".into()),
    }
}

/// Compares the footer's row counts with the page headers of one column, for reads without columns (`count(*)`), which
/// decode no page. Remote files are not checked, because each header would be a request.
///
/// # Errors
/// [`Error::Corrupt`] if the counts differ.
fn check_row_counts(
    open: &Arc<OpenFile>,
    metadata: &Arc<ParquetMetaData>,
    parts: &[Part],
    watch: &Watch,
) -> Result<()> {
    if open.remote().is_some() {
        return Ok(());
    }
    let input = Positioned::new(Arc::clone(open), Some(metadata), &[]);
    for index in parts.iter().filter(|part| part.rows.start == 0).map(|part| part.group) {
        watch.cancel.check()?;
        let Some(group) = metadata.row_groups().get(index) else { continue };
        let Some((column, found)) = pages::rows_by_headers(&input, group) else { continue };
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
    open.verify()
}

fn is_tested(columns: &[ReadColumn], predicate: &Predicate) -> bool {
    let column = columns.get(predicate.column);
    column.is_some_and(|column| kept::is_tested(column.wanted.field.data_type()))
}

/// What rows have to satisfy.
struct Tests<'a> {
    tests: Vec<&'a Predicate>,
    columns: &'a [ReadColumn],
    /// The places of the columns that are tested, in the file's order.
    places: Vec<usize>,
    input: &'a Positioned,
    watch: &'a Watch,
}

impl Tests<'_> {
    /// The rows of a piece of `expected` that do; none where these are not few.
    fn kept(
        &self,
        mut reader: ParquetRecordBatchReader,
        piece: &Piece,
        expected: u64,
    ) -> Result<Option<Late>> {
        let mut late = Late::default();
        let mut rows: u64 = 0;
        let mut keep = Vec::new();
        while let Some(batch) =
            unwinding(|| next_of(&mut reader)).map_err(|error| self.input.bad_page(&error))?
        {
            self.watch.cancel.check()?;
            keep.clear();
            keep.resize(batch.num_rows(), true);
            for test in &self.tests {
                let tested = &self.columns[test.column];
                let place = self.places.partition_point(|place| *place < tested.wanted.place);
                let row_number = |row: usize| piece.row_number(rows + row as u64).0;
                let column = as_wanted(batch.column(place), tested, self.input, &row_number)?;
                kept::keep(&column, &test.condition, &mut keep);
            }
            let places = keep.iter().zip(rows..).filter(|(keep, _)| **keep);
            places.for_each(|(_, place)| late.keep(place));
            rows += batch.num_rows() as u64;
            let are_many =
                late.runs.len() as u64 > rows / ROWS_OF_RUN || late.kept > rows / ROWS_OF_KEPT;
            if rows >= TRIED_ROWS && are_many {
                return Ok(None);
            }
        }
        if rows != expected {
            return Err(row_count_mismatch(self.input, piece, rows, expected));
        }
        Ok(Some(late))
    }
}

impl Late {
    /// Keeps the row at a place behind those before.
    fn keep(&mut self, place: u64) {
        match self.runs.last_mut() {
            Some(run) if run.start + run.rows == place => run.rows += 1,
            _ => self.runs.push(Run { start: place, rows: 1, before: self.kept }),
        }
        self.kept += 1;
    }

    /// The place of the n-th row that is left; none where there are not so many.
    fn place(&self, n: u64) -> Option<u64> {
        let run = self.runs.partition_point(|run| run.before <= n).checked_sub(1)?;
        let run = self.runs.get(run)?;
        (n < self.kept).then(|| run.start + (n - run.before))
    }

    /// Notes a batch of so many rows; the rows of the piece up to its last one, or none where there are not
    /// so many.
    fn take(&mut self, rows: u64) -> Option<u64> {
        (self.given, self.last) = (self.given + rows, rows);
        let done = match self.given.checked_sub(1) {
            Some(last) => self.place(last)? + 1,
            None => 0,
        };
        self.count(rows, done);
        Some(done)
    }

    /// Counts the rows up to `done`, of which so many are in a batch.
    fn count(&mut self, rows: u64, done: u64) {
        self.dropped += done.saturating_sub(self.counted).saturating_sub(rows);
        self.counted = done.max(self.counted);
    }
}

/// Of the parts' rows some runs.
fn narrowed(metadata: &ParquetMetaData, parts: &[Part], runs: &[Run]) -> Option<RowSelection> {
    let count = |rows: u64| usize::try_from(rows).ok();
    let (mut selectors, mut before) = (Vec::new(), 0);
    for part in parts {
        let all = u64::try_from(metadata.row_groups().get(part.group)?.num_rows()).ok()?;
        let end = before + (part.rows.end - part.rows.start);
        let first = runs.partition_point(|run| run.start + run.rows <= before);
        let mut at = 0;
        // A run may go on in the next part.
        for run in runs[first..].iter().take_while(|run| run.start < end) {
            let (from, to) = (run.start.max(before), (run.start + run.rows).min(end));
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

/// Parts in their order, those of a row group that follow one another as one.
fn joined<'a>(parts: impl Iterator<Item = &'a Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(last) if last.group == part.group && last.rows.end == part.rows.start => {
                last.rows.end = part.rows.end;
            }
            _ => all.push(part.clone()),
        }
    }
    all
}

/// Which rows of the row groups are wanted; none where all are.
fn selection(metadata: &ParquetMetaData, parts: &[Part]) -> Option<RowSelection> {
    let (mut selectors, mut is_whole) = (Vec::new(), true);
    for part in parts {
        let all = u64::try_from(metadata.row_groups().get(part.group)?.num_rows()).ok()?;
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

/// The rows of some row groups, the wanted columns in the file's order.
enum RowGroups {
    Together(Box<ParquetRecordBatchReader>),
    InTurns(Box<InTurns>),
}

impl RowGroups {
    fn next(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        match self {
            RowGroups::Together(reader) => next_of(reader),
            RowGroups::InTurns(reader) => reader.next(),
        }
    }
}

fn next_of(reader: &mut ParquetRecordBatchReader) -> Result<Option<RecordBatch>, ParquetError> {
    match reader.next() {
        None => Ok(None),
        Some(Ok(batch)) => Ok(Some(batch)),
        Some(Err(error)) => Err(ParquetError::General(error.to_string())),
    }
}

/// What a row group's wanted columns take: decoded, and while all of them are being read.
fn group_bytes(group: &RowGroupMetaData, mask: &ProjectionMask) -> (u64, u64) {
    let columns = group.columns().iter().enumerate();
    let wanted = columns.filter(|(leaf, _)| mask.leaf_included(*leaf));
    wanted.fold((0, 0), |(decoded, open), (_, column)| {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let (stored, own) = (bytes(column.compressed_size()), bytes(column.uncompressed_size()));
        // A value is hardly less than a bit, and a dictionary's values come out as often as they occur.
        let own = own.max(bytes(column.num_values()).saturating_mul(8));
        (decoded + own, open + own.min(PAGE_BYTES) + stored.min(WINDOW_BYTES) + COLUMN_BYTES)
    })
}

/// Whether to read all columns at once takes more than there is, and more than to read a part of the
/// rows, of some columns after the others.
fn is_better_in_turns(
    metadata: &ParquetMetaData,
    groups: &[usize],
    mask: &ProjectionMask,
    bytes_max: u64,
) -> bool {
    let groups = groups.iter().filter_map(|group| metadata.row_groups().get(*group));
    let (part, open) = groups.fold((0, 0), |(part, most), group| {
        let (decoded, open) = group_bytes(group, mask);
        (part.max(decoded / PARTS_MAX), most.max(open))
    });
    open > bytes_max.saturating_mul(2) && open > part.max(bytes_max).saturating_mul(2)
}

/// Reads some rows at a time, of some columns after the others.
struct InTurns {
    input: Positioned,
    metadata: ArrowReaderMetadata,
    /// The columns that are read together.
    turns: Vec<ProjectionMask>,
    /// What is left.
    parts: VecDeque<Part>,
    bytes_max: u64,
    batch_rows: usize,
    /// What is read and not handed out.
    part: Option<RecordBatch>,
}

impl InTurns {
    fn next(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        let part = match self.part.take() {
            Some(part) => part,
            None => match self.next_part()? {
                Some(part) => part,
                None => return Ok(None),
            },
        };
        if part.num_rows() <= self.batch_rows {
            return Ok(Some(part));
        }
        self.part = Some(part.slice(self.batch_rows, part.num_rows() - self.batch_rows));
        Ok(Some(part.slice(0, self.batch_rows)))
    }

    fn next_part(&mut self) -> Result<Option<RecordBatch>, ParquetError> {
        let metadata = Arc::clone(self.metadata.metadata());
        loop {
            let Some(left) = self.parts.front() else { return Ok(None) };
            let group = metadata.row_group(left.group);
            let place = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
            let (start, end) = (place(left.rows.start), place(left.rows.end));
            if start >= end {
                self.parts.pop_front();
                continue;
            }
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let all = ProjectionMask::leaves(
                self.metadata.parquet_schema(),
                (0..group.num_columns())
                    .filter(|leaf| self.turns.iter().any(|turn| turn.leaf_included(*leaf))),
            );
            let (decoded, _) = group_bytes(group, &all);
            let parts = decoded.div_ceil(self.bytes_max.max(1)).clamp(1, PARTS_MAX);
            let count = rows.div_ceil(usize::try_from(parts).unwrap_or(1)).min(end - start);
            let part = self.read(left.group, start, count)?;
            if let Some(left) = self.parts.front_mut() {
                left.rows.start += count as u64;
            }
            return Ok(Some(part));
        }
    }

    /// Rows of a row group.
    fn read(&self, group: usize, start: usize, count: usize) -> Result<RecordBatch, ParquetError> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for turn in &self.turns {
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
            let batch = next_of(&mut reader)?.filter(|batch| batch.num_rows() == count);
            let Some(batch) = batch else {
                return Err(ParquetError::General(format!("{count} rows are not there")));
            };
            let batch = batch_compaction::compact_batch(&batch)?;
            fields.extend(batch.schema().fields().iter().cloned());
            columns.extend(batch.columns().iter().cloned());
            if self.input.open.remote().is_none() {
                self.input.windows.lock().clear();
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = Arc::new(Schema::new(fields));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

/// Rows that follow one another.
struct Run {
    /// The place of the first in the piece.
    start: u64,
    rows: u64,
    /// How many are left before it.
    before: u64,
}

/// What was told of a file that is elsewhere.
#[derive(Default)]
struct Coming {
    /// The place of the row group that is being read.
    group: usize,
    /// Per row group that is wanted and not too large, in order.
    claims: VecDeque<(usize, BlockClaims)>,
    /// The chunks of larger ones that were declared.
    declared: HashSet<usize>,
}

/// A file read by position, through one window per column chunk.
#[derive(Clone)]
struct Positioned {
    open: Arc<OpenFile>,
    /// Start and end of every column chunk that is read, or of those of its pages that are, in order.
    chunks: Arc<Vec<(u64, u64)>>,
    windows: Arc<Mutex<HashMap<usize, (u64, Bytes)>>>,
    /// Of a file that is elsewhere: per row group, the wanted chunks in order.
    wanted: Arc<Vec<Vec<(u64, u64)>>>,
    /// Of a file that is elsewhere: what is on its way.
    coming: Arc<Mutex<Coming>>,
    /// Of a file that is elsewhere: its end, and where that begins.
    tail: Option<(u64, Bytes)>,
    metadata: Option<Arc<ParquetMetaData>>,
    /// Where the page begins that was read last, behind its header: the one that an error is about.
    last_page: Arc<AtomicU64>,
    /// Our own error, which Parquet's cannot carry.
    error: Arc<Mutex<Option<Error>>>,
}

impl Positioned {
    fn new(
        open: Arc<OpenFile>,
        metadata: Option<&Arc<ParquetMetaData>>,
        wanted: &[Vec<(u64, u64)>],
    ) -> Self {
        let mut chunks: Vec<(u64, u64)> = wanted.iter().flatten().copied().collect();
        chunks.sort_unstable();
        chunks.dedup();
        Self {
            open,
            chunks: Arc::new(chunks),
            windows: Arc::default(),
            wanted: Arc::default(),
            coming: Arc::default(),
            tail: None,
            metadata: metadata.cloned(),
            last_page: Arc::default(),
            error: Arc::default(),
        }
    }

    /// What is wrong with the page that was read last.
    fn bad_page(&self, error: &ParquetError) -> Error {
        let at = self.last_page.load(Ordering::Relaxed);
        let groups = self.metadata.iter().flat_map(|metadata| metadata.row_groups());
        let column = groups
            .flat_map(|group| group.columns())
            .find(|column| extent(column).is_some_and(|(start, end)| (start..end).contains(&at)));
        let Some(column) = column else { return self.corrupt_part(error, "a page", true) };
        let name = column.column_path().parts().join(".");
        match self.corrupt_part(error, &format!("a page of column `{name}`"), true) {
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

    fn corrupt(&self, error: &ParquetError, what: &str) -> Error {
        self.corrupt_part(error, what, false)
    }

    /// The error for `what`, a page or another part of the file.
    fn corrupt_part(&self, error: &ParquetError, what: &str, is_page: bool) -> Error {
        if let Some(error) = self.error.lock().take() {
            return error;
        }
        if let Err(error) = self.open.verify() {
            return error;
        }
        if let Some(error) = footer::encryption(self, is_page) {
            return error;
        }
        let text = error.to_string();
        // Its errors go through Arrow's and back.
        let text = text.strip_prefix("Parquet argument error: ").unwrap_or(&text);
        let text = text.strip_prefix("Parquet error: ").unwrap_or(text);
        Error::Corrupt {
            path: self.open.path().to_string(),
            offset: None,
            reason: format!("{what} cannot be read ({text})"),
            hint: Some("it is truncated or not a Parquet file; write or fetch it again".into()),
        }
    }

    fn fail(&self, error: Error) -> ParquetError {
        *self.error.lock() = Some(error);
        ParquetError::General("reading failed".into())
    }

    fn read(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let short = || ParquetError::EOF(format!("{length} bytes at byte {start} are not there"));
        let end = start.checked_add(length).filter(|end| *end <= self.open.size());
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
        let count = self.open.read_at(&mut buffer, start).map_err(|error| self.fail(error))?;
        if count < buffer.len() { Err(short()) } else { Ok(buffer.into()) }
    }

    /// At least `length` bytes from `start`, and more if they were read along with them.
    fn window(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let chunk = self.chunks.partition_point(|(from, _)| *from <= start).checked_sub(1);
        let chunk = chunk.filter(|chunk| start.saturating_add(length) <= self.chunks[*chunk].1);
        let Some(chunk) = chunk else { return self.read(start, length) };
        let mut windows = self.windows.lock();
        if let Some((from, bytes)) = windows.get(&chunk)
            && start >= *from
            && start + length <= from + bytes.len() as u64
        {
            #[allow(clippy::cast_possible_truncation)] // Less than the window's length.
            return Ok(bytes.slice((start - from) as usize..));
        }
        if let Some(reader) = self.open.remote() {
            self.turn_to(reader, chunk, start, &mut windows).map_err(|error| self.fail(error))?;
        }
        let end = self.chunks[chunk].1.min(self.open.size());
        let least = if self.open.remote().is_some() { REMOTE_WINDOW_BYTES } else { WINDOW_BYTES };
        let wanted = length.max(least).min(end.saturating_sub(start)).max(length);
        let bytes = self.read_window(start, length, wanted)?;
        // Chunks that were read to their end are not asked for again.
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

impl Positioned {
    /// Tells of what will be read of a file that is elsewhere.
    fn expect(&mut self, wanted: Vec<Vec<(u64, u64)>>) -> Result<()> {
        let Some(reader) = self.open.remote() else { return Ok(()) };
        let claims = wanted.iter().enumerate().filter(|(_, chunks)| !is_large(chunks));
        let claims = claims.map(|(group, chunks)| {
            let ranges: Vec<Range<u64>> = requests(chunks).collect();
            Ok((group, reader.prefetch_ranges(&ranges)?))
        });
        self.coming.lock().claims = claims.collect::<Result<_>>()?;
        self.wanted = Arc::new(wanted);
        Ok(())
    }

    /// Lets go of the row groups before that of a chunk, and declares a chunk of a large one.
    fn turn_to(
        &self,
        reader: &ObjectReader,
        chunk: usize,
        start: u64,
        windows: &mut HashMap<usize, (u64, Bytes)>,
    ) -> Result<()> {
        let extent = self.chunks[chunk];
        let Some(group) = self.wanted.iter().position(|group| group.contains(&extent)) else {
            return Ok(());
        };
        let mut coming = self.coming.lock();
        if group > coming.group {
            coming.group = group;
            coming.claims.retain(|(claimed, _)| *claimed >= group);
            windows.clear();
        }
        if is_large(&self.wanted[group]) && coming.declared.insert(chunk) {
            reader.declare_range(start..extent.1)?;
        }
        Ok(())
    }

    /// `length` bytes from `start` at least; where more is there already, or asked for together, that
    /// too, up to `wanted`.
    fn read_window(&self, start: u64, length: u64, wanted: u64) -> Result<Bytes, ParquetError> {
        if let Some(reader) = self.open.remote() {
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let rest =
                reader.block_rest_at(start, wanted).map_err(|error| self.fail(error.into()))?;
            // What lies in two blocks is put together.
            return if rest.len() as u64 >= length { Ok(rest) } else { self.read(start, length) };
        }
        self.read(start, wanted)
    }
}

/// Whether a row group's wanted chunks are too much to be asked for together.
fn is_large(chunks: &[(u64, u64)]) -> bool {
    chunks.iter().map(|(start, end)| end - start).sum::<u64>() > GROUP_BYTES_MAX
}

/// The requests for a row group's wanted chunks.
fn requests(chunks: &[(u64, u64)]) -> impl Iterator<Item = Range<u64>> {
    runs(chunks).filter_map(|run| Some(run.first()?.0..run.last()?.1))
}

/// Chunks that are asked for in one request.
fn runs(chunks: &[(u64, u64)]) -> impl Iterator<Item = &[(u64, u64)]> {
    let mut from = chunks.first().map_or(0, |chunk| chunk.0);
    chunks.chunk_by(move |one, next| {
        let together = next.0.saturating_sub(one.1) <= GAP_BYTES_MAX
            && next.1.saturating_sub(from) <= REQUEST_BYTES;
        if !together {
            from = next.0;
        }
        together
    })
}

/// Per row group that is read, the chunks of the columns that are, in the file's order; of some rows those of their pages
/// that they are in, and the dictionaries.
fn wanted_chunks(
    metadata: &ParquetMetaData,
    parts: &[Part],
    mask: &ProjectionMask,
) -> Vec<Vec<(u64, u64)>> {
    let of = |part: &Part| {
        let group = metadata.row_groups().get(part.group)?;
        let columns = group.columns().iter().enumerate();
        let mut chunks: Vec<(u64, u64)> = columns
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .filter_map(|(leaf, column)| {
                let all = extent(column)?;
                let pages = pages::extents(metadata, part.group, leaf, &part.rows, all);
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

/// Where a column chunk starts and ends.
fn extent(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let length = u64::try_from(column.compressed_size()).ok()?;
    Some((start, start.checked_add(length)?))
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.open.size()
    }
}

impl ChunkReader for Positioned {
    type T = From;

    fn get_read(&self, start: u64) -> Result<From, ParquetError> {
        Ok(From { input: self.clone(), at: start, bytes: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.last_page.store(start, Ordering::Relaxed);
        let bytes = self.window(start, length as u64)?;
        Ok(bytes.slice(..length.min(bytes.len())))
    }
}

/// Reads on from a position: page headers, whose length is not known beforehand.
struct From {
    input: Positioned,
    at: u64,
    bytes: Bytes,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() {
            let left = self.input.open.size().saturating_sub(self.at);
            if left == 0 || out.is_empty() {
                return Ok(0);
            }
            self.bytes = self.input.window(self.at, 1).map_err(std::io::Error::other)?;
            self.at += self.bytes.len() as u64;
        }
        let count = self.bytes.len().min(out.len());
        self.bytes.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, SourceSpec};

    #[test]
    fn what_failed_beneath_a_reader_is_told_instead_of_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "a\n1\n").unwrap();
        let spec = SourceSpec { url: path.display().to_string(), ..SourceSpec::default() };
        let source = Source::open(&spec).unwrap();
        let file = &source.files()[0];
        let open = OpenFile::open(file, ReadPattern::Random, &file.watch()).unwrap();
        let input = Positioned::new(Arc::new(open), None, &[]);
        // A page's header is read as a stream.
        let failed = std::io::Error::other(input.fail(Error::Interrupted));
        let error = ParquetError::from(failed);
        assert!(matches!(input.bad_page(&error), Error::Interrupted));
        assert!(matches!(input.bad_page(&error), Error::Corrupt { .. }));
    }
}
