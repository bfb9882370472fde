//! The reader of formats whose rows arrive as batches: memory rows, registered formats, rowfiles, Arrow IPC
//! and Avro.
//!
//! It follows the Parquet reader: a file is a list of **chunks** (batches in memory, blocks of a rowfile)
//! that splits are packed from, columns are found by name, and each column is converted to its type in the
//! source. Strings become views in every layout; dictionary values replace dictionary codes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use tidemill_base::batch_compaction;
use tidemill_rowfile as rowfile;

use super::{FileChunk, FileMetadata, SplitPartReader, SplitPartRequest};
use crate::error::{Error, Result};
use crate::files::byte_input::ByteReadContext;
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns, FileSchemaCollector};
use crate::schema::type_unification::{cast_file_column, propagate_struct_nulls};
use crate::{SourceFile, SplitPart};

/// A column to read.
pub(crate) struct WantedColumn {
    /// Index of the column in the file.
    pub(crate) file_index: usize,
    /// The field that the column becomes.
    pub(crate) target_field: FieldRef,
    /// The file whose values gave the column this type; `None` if the user declared it, so that values are
    /// rounded.
    pub(crate) type_witness: Option<Arc<SourceFile>>,
}

/// Returns the error for a value that does not fit the type that another file or the schema gives its column.
pub(crate) fn type_misfit_error(column: &WantedColumn, path: &str, reason: &str) -> Error {
    let name = column.target_field.name();
    match &column.type_witness {
        Some(other) => Error::IncompatibleFiles {
            path: path.to_owned(),
            other: other.display_name.to_string(),
            reason: format!("column `{name}`: {reason}"),
            hint: Some(format!(
                "--schema '{name} TEXT' reads it as text in every file; or make each kind of file \
                 a source of its own"
            )),
        },
        None => Error::usage_with_hint(
            format!("column `{name}` of `{path}`: {reason}"),
            "name another type in the schema",
        ),
    }
}

/// Inspects all files with `inspect` and returns their columns.
///
/// # Errors
/// The errors of `inspect`; [`Error::IncompatibleFiles`] for a file with other columns, if `layouts` does not
/// allow them to differ.
pub(crate) fn inspect_files(
    files: &[Arc<SourceFile>],
    layouts: ColumnLayoutPolicy,
    inspect: &mut dyn FnMut(&SourceFile) -> Result<Box<dyn FileMetadata>>,
) -> Result<FileColumns> {
    let mut gathered = FileSchemaCollector::default();
    for file in files {
        let metadata = inspect(file)?;
        let own: Vec<FieldRef> = metadata.schema().fields().iter().map(normalize_field).collect();
        let _ = file.metadata.set(metadata.into());
        // Columns are found by name.
        let mut names = HashSet::new();
        if let Some(twice) = own.iter().find(|field| !names.insert(field.name())) {
            return Err(Error::usage_with_hint(
                format!("`{}` has two columns `{}`", file.display_name, twice.name()),
                "rename one of them",
            ));
        }
        gathered.add_file(file, own, layouts)?;
    }
    Ok(gathered.into_columns())
}

/// Packs the wanted chunks into runs of about `target` bytes. Returns the chunk indices and the bytes of each
/// run; `wanted` decides by file and row group.
pub(crate) fn pack_chunks(
    file: &SourceFile,
    known: &dyn FileMetadata,
    target: u64,
    wanted: &mut dyn FnMut(usize, usize) -> bool,
) -> Vec<(Vec<usize>, u64)> {
    let mut runs: Vec<(Vec<usize>, u64)> = Vec::new();
    for (index, FileChunk { row_count: rows, stored_bytes: bytes }) in
        known.chunks().unwrap_or_default().iter().enumerate()
    {
        if *rows == 0 || !wanted(file.index, known.row_group_of_chunk(index)) {
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

/// Returns the default type of a column in the source: nullable, strings as views, dictionary values instead
/// of codes.
pub(crate) fn normalize_field(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => {
            let values = Field::new(field.name(), values.as_ref().clone(), true);
            return normalize_field(&Arc::new(values));
        }
        DataType::RunEndEncoded(_, values) => {
            let values = Field::new(field.name(), values.data_type().clone(), true);
            return normalize_field(&Arc::new(values));
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(normalize_field).collect()),
        DataType::List(item) => DataType::List(normalize_field(item)),
        DataType::LargeList(item) => DataType::LargeList(normalize_field(item)),
        DataType::FixedSizeList(item, size) => {
            DataType::FixedSizeList(normalize_field(item), *size)
        }
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                // Keys stay as they are: SQL compares them with Utf8 literals.
                let pair: Fields = vec![pair[0].clone(), normalize_field(&pair[1])].into();
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(pair));
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => field.data_type().clone(),
        },
        other => other.clone(),
    };
    let plain = Field::new(field.name(), data_type, true);
    // Of a field's metadata, only this key is needed to read the column's bytes.
    Arc::new(match field.metadata().get(rowfile::metadata_keys::ROW_SCHEMA) {
        Some(schema) => plain.with_metadata(
            [(rowfile::metadata_keys::ROW_SCHEMA.to_owned(), schema.clone())].into(),
        ),
        None => plain,
    })
}

/// An iterator of batches as their format yields them, each with its stored bytes.
pub(crate) trait StoredBatchIterator:
    Iterator<Item = Result<(RecordBatch, u64)>> + Send
{
    /// Returns the offsets of the first record and of the next one if the start is a guess.
    fn record_boundaries(&self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the numbers of rows and bytes skipped so far because they are damaged.
    fn skipped_rows_and_bytes(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// Batches that have no speculative boundaries and skip no rows.
pub(crate) struct PlainBatches<I>(pub(crate) I);

impl<I: Iterator> Iterator for PlainBatches<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
}

impl<I: Iterator<Item = Result<(RecordBatch, u64)>> + Send> StoredBatchIterator
    for PlainBatches<I>
{
}

/// Reads the requested columns of a split part from batches.
pub(crate) struct SplitPartBatchReader<B> {
    batches: B,
    columns: Vec<WantedColumn>,
    /// Names of the columns in the file.
    column_names: Vec<String>,
    schema: SchemaRef,
    path: Arc<str>,
    /// Rows not yet returned of a batch with more than `batch_rows` rows.
    remaining_batch: Option<RecordBatch>,
    batch_rows: usize,
    /// True if the next rows belong to a batch from which rows were already returned.
    is_batch_tail: bool,
    context: ByteReadContext,
    /// Bytes of the part that have not been reported as progress.
    unreported_bytes: u64,
    part: SplitPart,
    /// Number of rows of the part before the last batch, and including it.
    batch_row_span: (u64, u64),
}

/// Returns the file's names of the requested columns.
pub(crate) fn file_column_names(
    metadata: &dyn FileMetadata,
    columns: &[WantedColumn],
) -> Vec<String> {
    let fields = metadata.schema().fields();
    let own = columns.iter().filter_map(|column| fields.get(column.file_index));
    own.map(|field| field.name().clone()).collect()
}

/// Returns the indices of the requested columns in their file.
pub(crate) fn file_column_indices(columns: &[WantedColumn]) -> Vec<usize> {
    columns.iter().map(|column| column.file_index).collect()
}

/// Creates the reader of a split part from its batches.
pub(crate) fn new_batch_reader<B: StoredBatchIterator + 'static>(
    reading: SplitPartRequest<'_>,
    batches: B,
) -> Box<dyn SplitPartReader> {
    let SplitPartRequest { part: piece, metadata, columns, options, context: watch, .. } = reading;
    let untold = match &piece.row_groups {
        Some(wanted) => {
            let chunks = metadata.chunks().unwrap_or_default();
            wanted
                .iter()
                .filter_map(|index| chunks.get(*index))
                .map(|chunk| chunk.stored_bytes)
                .sum()
        }
        None => piece.range.end - piece.range.start,
    };
    let fields: Vec<FieldRef> = columns.iter().map(|column| column.target_field.clone()).collect();
    Box::new(SplitPartBatchReader {
        batches,
        column_names: file_column_names(metadata, &columns),
        columns,
        schema: Arc::new(Schema::new(fields)),
        path: Arc::clone(&piece.file.display_name),
        remaining_batch: None,
        batch_rows: options.batch_rows,
        is_batch_tail: false,
        context: watch,
        unreported_bytes: untold,
        part: piece.clone(),
        batch_row_span: (0, 0),
    })
}

impl<B: StoredBatchIterator> SplitPartBatchReader<B> {
    fn assemble_batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.columns.iter().zip(&self.column_names).map(|(wanted, name)| {
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
            let exactly = wanted.type_witness.is_some();
            // Readers may leave any value below a null.
            let column = propagate_struct_nulls(column)?;
            cast_file_column(&column, wanted.target_field.data_type(), exactly)
                .map_err(|reason| type_misfit_error(wanted, &self.path, &reason))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl<B: StoredBatchIterator> SplitPartReader for SplitPartBatchReader<B> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.remaining_batch.take() {
            Some(rest) => rest,
            None => match self.batches.next().transpose()? {
                Some((batch, bytes)) => {
                    let bytes = bytes.min(self.unreported_bytes);
                    self.unreported_bytes -= bytes;
                    self.context.progress.add_bytes(bytes);
                    batch
                }
                None => {
                    self.context.progress.add_bytes(std::mem::take(&mut self.unreported_bytes));
                    return Ok(None);
                }
            },
        };
        let rows = batch.num_rows().min(self.batch_rows);
        if rows < batch.num_rows() {
            self.remaining_batch = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.batch_row_span = (self.batch_row_span.1, self.batch_row_span.1 + rows as u64);
        let mut part = self.assemble_batch(&batch.slice(0, rows))?;
        if rows < batch.num_rows() || self.is_batch_tail {
            // A slice keeps the whole batch alive and is accounted as such, so it is copied.
            part = batch_compaction::compact_batch(&part)?;
        }
        self.is_batch_tail = self.remaining_batch.is_some();
        Ok(Some(part))
    }

    fn batch_row_number(&self, row: usize) -> (u64, u64) {
        let (left_out, _) = self.batches.skipped_rows_and_bytes();
        self.part.file_row_number(self.batch_row_span.0 + left_out + row as u64)
    }

    fn first_record_offset(&self) -> Option<u64> {
        self.batches.record_boundaries().map(|(start, _)| start)
    }

    fn next_record_offset(&self) -> Option<u64> {
        self.batches.record_boundaries().map(|(_, end)| end)
    }

    fn skipped_bytes(&self) -> u64 {
        self.batches.skipped_rows_and_bytes().1
    }
}
