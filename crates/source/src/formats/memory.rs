//! Rows that the program around has in memory.

use std::io;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::batches::{self, Plain};
use super::shown_columns::ShownColumns;
use super::{Batches, Chunk, FileFormat, FileMetadata, Kind, PieceReader, Reading, TypedFormat};
use crate::columns::{Columns, Layouts};
use crate::error::{Error, Result};
use crate::input::ByteInput;
use crate::{FileLocation, SourceFile};

/// The format.
pub(super) struct Memory;

impl FileFormat for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn is_named(&self) -> bool {
        false
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Typed(self)
    }
}

impl TypedFormat for Memory {
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns> {
        batches::columns(files, layouts, &mut |file| {
            let given = given(file)?;
            let chunk =
                |batch: &RecordBatch| Chunk { rows: batch.num_rows() as u64, bytes: size(batch) };
            let chunks = match &given.rows {
                GivenBatches::Held(batches) => batches.iter().map(chunk).collect(),
                GivenBatches::Stream(_) => Vec::new(),
            };
            let shown = ShownColumns::new(&given.schema, file.shown());
            Ok(Box::new(GivenMetadata { shown, chunks }))
        })
    }

    fn open(&self, reading: Reading<'_>) -> Result<Box<dyn PieceReader>> {
        let file = &reading.piece.file;
        let chunks = reading.piece.row_groups.clone().unwrap_or_default();
        let shown = reading.metadata_as::<GivenMetadata>()?.shown.clone();
        let batches = given_batches(given(file)?, chunks, file)?;
        let batches = batches.map(move |batch| {
            let (batch, bytes) = batch?;
            let places: Vec<usize> = (0..batch.num_columns()).collect();
            Ok((shown.present(batch, &places)?, bytes))
        });
        Ok(batches::reader(reading, Plain(batches)))
    }
}

/// The batches, where they can be read any number of times.
#[derive(Debug)]
struct GivenMetadata {
    shown: ShownColumns,
    chunks: Vec<Chunk>,
}

impl FileMetadata for GivenMetadata {
    fn schema(&self) -> &SchemaRef {
        self.shown.schema()
    }

    fn note(&self) -> Option<&str> {
        self.shown.note()
    }

    fn chunks(&self) -> Option<&[Chunk]> {
        (!self.chunks.is_empty()).then_some(&self.chunks)
    }
}

fn given(file: &SourceFile) -> Result<&Arc<Given>> {
    match &file.place {
        FileLocation::Given(given) => Ok(given),
        _ => Err(Error::Internal(format!("`{}` is not in memory", file.shown()))),
    }
}

/// A table or a stream that the program around has in memory: a source that is no file.
pub struct Given {
    schema: SchemaRef,
    rows: GivenBatches,
}

enum GivenBatches {
    /// Can be read any number of times, by several threads.
    Held(Vec<RecordBatch>),
    /// Can be read once, from front to back.
    Stream(Mutex<Option<Batches>>),
}

impl Given {
    /// A table, which is shared and not copied.
    pub fn table(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Given { schema, rows: GivenBatches::Held(batches) }
    }

    /// A stream, which can be read once.
    pub fn stream(batches: Batches) -> Self {
        Given { schema: batches.schema(), rows: GivenBatches::Stream(Mutex::new(Some(batches))) }
    }

    /// Bytes in memory; 0 for a stream.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.rows {
            GivenBatches::Held(batches) => batches.iter().map(size).sum(),
            GivenBatches::Stream(_) => 0,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.rows, GivenBatches::Stream(_))
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

/// Batches, each with its bytes.
type Sized = Box<dyn Iterator<Item = Result<(RecordBatch, u64)>> + Send>;

fn given_batches(given: &Arc<Given>, chunks: Vec<usize>, file: &SourceFile) -> Result<Sized> {
    match &given.rows {
        GivenBatches::Held(_) => {
            let given = Arc::clone(given);
            Ok(Box::new(chunks.into_iter().filter_map(move |index| match &given.rows {
                GivenBatches::Held(batches) => {
                    batches.get(index).map(|batch| Ok((batch.clone(), size(batch))))
                }
                GivenBatches::Stream(_) => None,
            })))
        }
        GivenBatches::Stream(stream) => {
            let Some(stream) = stream.lock().take() else {
                return Err(Error::usage_hint(
                    format!("`{}` is a stream and can be read only once", file.shown()),
                    "give a table instead: pyarrow.table(stream), or frame.collect() of a lazy frame",
                ));
            };
            let name = file.shown().to_owned();
            Ok(Box::new(stream.map(move |batch| match batch {
                Ok(batch) => {
                    let bytes = size(&batch);
                    Ok((batch, bytes))
                }
                Err(error) => Err(Error::io("read", &name, io::Error::other(error.to_string()))),
            })))
        }
    }
}
