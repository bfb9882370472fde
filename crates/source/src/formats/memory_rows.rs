//! Rows that the embedding program holds in memory.

use std::io;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::arrow_column_conversion::ColumnConversion;
use super::stored_batch_reader::{self, PlainBatches};
use super::{
    BoxedBatchReader, FileChunk, FileFormat, FileMetadata, FormatKind, SplitPartReader,
    SplitPartRequest, TypedFormat,
};
use crate::error::{Error, Result};
use crate::files::byte_input::ByteInput;
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumns};
use crate::{FileLocation, SourceFile};

/// The format of memory rows.
pub(super) struct MemorySourceFormat;

impl FileFormat for MemorySourceFormat {
    fn name(&self) -> &str {
        "memory"
    }

    fn is_user_nameable(&self) -> bool {
        false
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Typed(self)
    }
}

impl TypedFormat for MemorySourceFormat {
    fn inspect_columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: ColumnLayoutPolicy,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<FileColumns> {
        stored_batch_reader::inspect_files(files, layouts, &mut |file| {
            let given = memory_rows_of_file(file)?;
            let chunk = |batch: &RecordBatch| FileChunk {
                row_count: batch.num_rows() as u64,
                stored_bytes: batch_bytes(batch),
            };
            let chunks = match &given.batches {
                MemoryBatches::Table(batches) => batches.iter().map(chunk).collect(),
                MemoryBatches::Stream(_) => Vec::new(),
            };
            let shown = ColumnConversion::new(&given.schema, file.display_name());
            Ok(Box::new(MemoryRowsMetadata { conversion: shown, chunks }))
        })
    }

    fn open_part(&self, reading: SplitPartRequest<'_>) -> Result<Box<dyn SplitPartReader>> {
        let file = &reading.part.file;
        let chunks = reading.part.row_groups.clone().unwrap_or_default();
        let shown = reading.format_metadata::<MemoryRowsMetadata>()?.conversion.clone();
        let batches = read_batches(memory_rows_of_file(file)?, chunks, file)?;
        let batches = batches.map(move |batch| {
            let (batch, bytes) = batch?;
            let places: Vec<usize> = (0..batch.num_columns()).collect();
            Ok((shown.convert_batch(batch, &places)?, bytes))
        });
        Ok(stored_batch_reader::new_batch_reader(reading, PlainBatches(batches)))
    }
}

/// The columns of memory rows, and their batches if these can be read repeatedly.
#[derive(Debug)]
struct MemoryRowsMetadata {
    conversion: ColumnConversion,
    chunks: Vec<FileChunk>,
}

impl FileMetadata for MemoryRowsMetadata {
    fn schema(&self) -> &SchemaRef {
        self.conversion.source_schema()
    }

    fn user_note(&self) -> Option<&str> {
        self.conversion.renaming_note()
    }

    fn chunks(&self) -> Option<&[FileChunk]> {
        (!self.chunks.is_empty()).then_some(&self.chunks)
    }
}

fn memory_rows_of_file(file: &SourceFile) -> Result<&Arc<MemoryRows>> {
    match &file.location {
        FileLocation::Memory(given) => Ok(given),
        _ => Err(Error::Internal(format!("`{}` is not in memory", file.display_name()))),
    }
}

/// A table or a stream in the memory of the embedding program: a source without files.
pub struct MemoryRows {
    schema: SchemaRef,
    batches: MemoryBatches,
}

enum MemoryBatches {
    /// Readable any number of times, by several threads.
    Table(Vec<RecordBatch>),
    /// Readable once, from front to back.
    Stream(Mutex<Option<BoxedBatchReader>>),
}

impl MemoryRows {
    /// Creates a table. Its batches are shared and not copied.
    pub fn from_table(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        MemoryRows { schema, batches: MemoryBatches::Table(batches) }
    }

    /// Creates a stream, which can be read once.
    pub fn from_stream(batches: BoxedBatchReader) -> Self {
        MemoryRows {
            schema: batches.schema(),
            batches: MemoryBatches::Stream(Mutex::new(Some(batches))),
        }
    }

    /// Returns the size in memory in bytes; 0 for a stream.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.batches {
            MemoryBatches::Table(batches) => batches.iter().map(batch_bytes).sum(),
            MemoryBatches::Stream(_) => 0,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.batches, MemoryBatches::Stream(_))
    }
}

impl std::fmt::Debug for MemoryRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn batch_bytes(batch: &RecordBatch) -> u64 {
    // Memory that slices share counts for each of them, in proportion.
    let size = |array: &dyn Array| {
        array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
    };
    batch.columns().iter().map(|column| size(column.as_ref()) as u64).sum()
}

/// Batches, each with its size in bytes.
type BoxedMemoryBatches = Box<dyn Iterator<Item = Result<(RecordBatch, u64)>> + Send>;

fn read_batches(
    given: &Arc<MemoryRows>,
    chunks: Vec<usize>,
    file: &SourceFile,
) -> Result<BoxedMemoryBatches> {
    match &given.batches {
        MemoryBatches::Table(_) => {
            let given = Arc::clone(given);
            Ok(Box::new(chunks.into_iter().filter_map(move |index| match &given.batches {
                MemoryBatches::Table(batches) => {
                    batches.get(index).map(|batch| Ok((batch.clone(), batch_bytes(batch))))
                }
                MemoryBatches::Stream(_) => None,
            })))
        }
        MemoryBatches::Stream(stream) => {
            let Some(stream) = stream.lock().take() else {
                return Err(Error::usage_with_hint(
                    format!("`{}` is a stream and can be read only once", file.display_name()),
                    "give a table instead: pyarrow.table(stream), or frame.collect() of a lazy frame",
                ));
            };
            let name = file.display_name().to_owned();
            Ok(Box::new(stream.map(move |batch| match batch {
                Ok(batch) => {
                    let bytes = batch_bytes(&batch);
                    Ok((batch, bytes))
                }
                Err(error) => {
                    Err(Error::from_io("read", &name, io::Error::other(error.to_string())))
                }
            })))
        }
    }
}
