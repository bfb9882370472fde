//! Rowfiles: finds blocks by their footers, reads them one by one, and accounts for the skipped parts of
//! damaged files.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use tidemill_base::coverage::SalvagedFile;
use tidemill_rowfile as rowfile;

use super::stored_batch_reader::{self, StoredBatchIterator, WantedColumn};
use super::{
    FileChunk, FileFormat, FileMetadata, FormatKind, SplitPartReader, SplitPartRequest, TypedFormat,
};
use crate::SourceFile;
use crate::error::Result;
use crate::files::byte_input::{ByteInput, OpenFile, ReadPattern};
use crate::files::rowfile_salvage::{
    DecodableRows, SkippedRows, StoredRowfile, UndecodableBlocks, error_from_rowfile,
    open_rowfile_per_read, open_stored_rowfile, salvage_report as salvaged_of,
};
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};
use crate::splits::split::with_rows_before;

/// Maximum number of rowfiles whose footers are kept between planning and reading.
const CACHED_FOOTERS_MAX: usize = 1024;

/// The rowfile format.
pub(super) struct RowfileSourceFormat;

impl FileFormat for RowfileSourceFormat {
    fn name(&self) -> &str {
        "rowfile"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["rowfile"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for RowfileSourceFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        stored_batch_reader::inspect_files(files, layouts, &mut |file| {
            let reader = open_rowfile_per_read(file)?;
            let schema = Arc::new(reader.schema().to_arrow(rowfile::StringLayout::default()));
            let blocks = reader.blocks().iter();
            let blocks = blocks
                .map(|it| FileChunk { row_count: it.rows.into(), stored_bytes: it.bytes.into() });
            let blocks = blocks.collect();
            // The metadata of a damaged file is expensive to find again.
            let reader =
                (files.len() <= CACHED_FOOTERS_MAX || file.salvage_damaged).then_some(reader);
            Ok(Box::new(RowfileMetadata {
                schema,
                blocks,
                reader,
                undecodable_blocks: UndecodableBlocks::default(),
            }))
        })
    }

    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let blocks = read_blocks(&reading, reading.format_metadata()?)?;
        Ok(stored_batch_reader::new_batch_reader(reading, blocks))
    }

    fn can_project_nested_fields(&self) -> bool {
        true
    }
}

/// The schema and blocks of a file, as its footers state them.
#[derive(Debug)]
pub(crate) struct RowfileMetadata {
    schema: SchemaRef,
    blocks: Vec<FileChunk>,
    /// The parsed footers, which need not be read again; `None` if the source has too many files.
    reader: Option<rowfile::Reader<StoredRowfile>>,
    undecodable_blocks: UndecodableBlocks,
}

impl FileMetadata for RowfileMetadata {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn chunks(&self) -> Option<&[FileChunk]> {
        (!self.blocks.is_empty()).then_some(&self.blocks)
    }

    fn chunk_rows_with_offsets(&self) -> Option<Vec<(u64, u64)>> {
        Some(match &self.reader {
            // A damaged file may lack blocks.
            Some(reader) => {
                let blocks = reader.blocks().iter();
                blocks.map(|block| (block.first_row, u64::from(block.rows))).collect()
            }
            None => with_rows_before(self.blocks.iter().map(|block| block.row_count)),
        })
    }
}

impl RowfileMetadata {
    fn from_file(file: &SourceFile) -> Option<&Self> {
        let known: &dyn Any = file.metadata()?;
        known.downcast_ref()
    }
}

/// The requested columns of some blocks, each batch with its share of the blocks' bytes.
struct RowfileBlockReader {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
    /// Total of all blocks.
    total_rows: u64,
    total_bytes: u64,
    skipped_rows: Arc<SkippedRows>,
}

impl Iterator for RowfileBlockReader {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.map(|batch| {
            let (bytes, rows) = (u128::from(self.total_bytes), self.total_rows.max(1));
            let share = bytes * batch.num_rows() as u128 / u128::from(rows);
            (batch, u64::try_from(share).unwrap_or(u64::MAX))
        }))
    }
}

impl StoredBatchIterator for RowfileBlockReader {
    fn skipped_rows_and_bytes(&self) -> (u64, u64) {
        let SkippedRows { bytes, rows } = self.skipped_rows.as_ref();
        (rows.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }
}

fn read_blocks(
    reading: &SplitPartRequest<'_>,
    known: &RowfileMetadata,
) -> Result<RowfileBlockReader> {
    let SplitPartRequest { part: piece, columns, options, context: watch, .. } = reading;
    let file = &piece.file;
    let left_out = Arc::new(SkippedRows::default());
    let chunks = piece.row_groups.clone().unwrap_or_default();
    let wanted = || chunks.iter().filter_map(|index| known.blocks.get(*index));
    let bytes: u64 = wanted().map(|block| block.stored_bytes).sum();
    let rows: u64 = wanted().map(|block| block.row_count).sum();
    let own = |column: &WantedColumn| {
        let own = known.schema.fields().get(column.file_index)?;
        Some(narrow_field(own, column.target_field.data_type()))
    };
    let fields: Vec<FieldRef> = columns.iter().filter_map(own).collect();
    let wanted = rowfile::ReadOptions {
        schema: Some(Arc::new(Schema::new(fields))),
        batch_rows: options.batch_rows,
        ..rowfile::ReadOptions::default()
    };
    let path = file.display_name().to_owned();
    let failed = |error| error_from_rowfile(error, file.display_name());
    let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match &known.reader {
        // Finding the blocks of a damaged file again would mean reading all of it again.
        Some(reader) if file.salvage_damaged => Box::new(DecodableRows {
            reader: reader.clone(),
            plan: Arc::new(reader.plan(&wanted).map_err(failed)?),
            all_columns: Arc::new(reader.plan(&rowfile::ReadOptions::default()).map_err(failed)?),
            blocks: chunks.into_iter(),
            batch_rows: options.batch_rows,
            current: None,
            undecodable_blocks: Arc::clone(&known.undecodable_blocks),
            skipped_rows: Arc::clone(&left_out),
            cancel: watch.cancel.clone(),
            path,
        }),
        reader => {
            let stored = StoredRowfile::KeptOpen(OpenFile::open(file, ReadPattern::Random, watch)?);
            let reader = match reader {
                Some(reader) => reader.with_source(stored),
                None => open_stored_rowfile(stored, file)?,
            };
            let wanted = rowfile::ReadOptions { blocks: Some(chunks), ..wanted };
            let batches = reader.read(&wanted).map_err(failed)?;
            Box::new(
                batches.map(move |batch| batch.map_err(|error| error_from_rowfile(error, &path))),
            )
        }
    };
    Ok(RowfileBlockReader { batches, total_rows: rows, total_bytes: bytes, skipped_rows: left_out })
}

/// Returns a file's field reduced to the requested nested fields.
fn narrow_field(own: &FieldRef, wanted: &DataType) -> FieldRef {
    let (DataType::Struct(fields), DataType::Struct(parts)) = (own.data_type(), wanted) else {
        return Arc::clone(own);
    };
    let kept: Vec<FieldRef> = fields
        .iter()
        .filter_map(|field| {
            let (_, part) = parts.find(field.name())?;
            Some(narrow_field(field, part.data_type()))
        })
        .collect();
    if kept.is_empty() {
        return Arc::clone(own);
    }
    Arc::new(own.as_ref().clone().with_data_type(DataType::Struct(kept.into())))
}

/// Returns the report of the skipped parts of a file, if the file is damaged.
pub(crate) fn salvage_report(file: &SourceFile) -> Option<SalvagedFile> {
    let known = RowfileMetadata::from_file(file)?;
    let reader = known.reader.as_ref()?;
    let undecodable = known.undecodable_blocks.lock();
    let failed = undecodable.iter().map(|(block, reason)| (*block, reason));
    salvaged_of(file.display_name(), reader, failed)
}

/// Block statistics that the footers of a rowfile state.
pub struct RowfileFooterStatistics(rowfile::Reader<StoredRowfile>);

impl RowfileFooterStatistics {
    /// Returns the statistics of an inspected rowfile; `None` for other files.
    pub(crate) fn from_file(file: &SourceFile) -> Option<Self> {
        let known = RowfileMetadata::from_file(file)?;
        known.chunks()?;
        match &known.reader {
            Some(reader) => Some(Self(reader.clone())),
            None => open_rowfile_per_read(file).ok().map(Self),
        }
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.0.blocks().len()
    }

    /// Returns the row count of each block.
    pub fn block_row_counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.blocks().iter().map(|block| block.rows.into())
    }

    /// Returns the statistics of a column, or of a field of a struct; `None` if the name is ambiguous.
    pub fn column_statistics(&self, path: &[&str]) -> Option<rowfile::PerBlockStatistics> {
        fn is_plain(fields: &[rowfile::SchemaField]) -> bool {
            fields.iter().all(|field| {
                !field.name.contains('.')
                    && match &field.kind {
                        rowfile::FieldType::Struct(inner) => is_plain(inner),
                        _ => true,
                    }
            })
        }
        // Statistics are looked up by a path with dots, so a name with a dot is ambiguous.
        is_plain(&self.0.schema().fields).then(|| self.0.column_statistics(&path.join(".")))?
    }
}
