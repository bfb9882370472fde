//! Rowfiles: blocks found by their footers, read one by one, and what of a damaged one is left out.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use tidemill_base::coverage::SalvagedFile;
use tidemill_rowfile as rowfile;

use super::batches::{self, StoredBatches, WantedColumn};
use super::{Chunk, FileFormat, FileMetadata, Kind, PieceReader, Reading, TypedFormat};
use crate::SourceFile;
use crate::columns::{Columns, Layouts};
use crate::error::Result;
use crate::input::{ByteInput, OpenFile, ReadPattern};
use crate::split::numbered;
use crate::stored::{
    Decodable, LeftOut, Stored, Undecodable, from_rowfile, open_rowfile, open_rowfile_of,
    salvaged as salvaged_of,
};

/// Of so many rowfiles footers are kept between planning and reading.
const KEPT_MAX: usize = 1024;

/// The format.
pub(super) struct Rowfile;

impl FileFormat for Rowfile {
    fn name(&self) -> &str {
        "rowfile"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["rowfile"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Typed(self)
    }
}

impl TypedFormat for Rowfile {
    fn columns(
        &self,
        files: &[Arc<SourceFile>],
        layouts: Layouts,
        _: &mut Option<Box<dyn ByteInput>>,
    ) -> Result<Columns> {
        batches::columns(files, layouts, &mut |file| {
            let reader = open_rowfile_of(file)?;
            let schema = Arc::new(reader.schema().to_arrow(rowfile::StringLayout::default()));
            let blocks = reader.blocks().iter();
            let blocks = blocks.map(|it| Chunk { rows: it.rows.into(), bytes: it.bytes.into() });
            let blocks = blocks.collect();
            // What is known of a damaged one is dear.
            let reader = (files.len() <= KEPT_MAX || file.recover).then_some(reader);
            Ok(Box::new(RowfileMetadata {
                schema,
                blocks,
                reader,
                undecodable: Undecodable::default(),
            }))
        })
    }

    fn open(&self, reading: Reading<'_>) -> Result<Box<dyn PieceReader>> {
        let blocks = blocks(&reading, reading.metadata_as()?)?;
        Ok(batches::reader(reading, blocks))
    }

    fn reads_parts(&self) -> bool {
        true
    }
}

/// What its footers tell of a file.
#[derive(Debug)]
pub(crate) struct RowfileMetadata {
    schema: SchemaRef,
    blocks: Vec<Chunk>,
    /// The footers, which need not be read again; none where files are too many.
    reader: Option<rowfile::Reader<Stored>>,
    undecodable: Undecodable,
}

impl FileMetadata for RowfileMetadata {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn chunks(&self) -> Option<&[Chunk]> {
        (!self.blocks.is_empty()).then_some(&self.blocks)
    }

    fn rows(&self) -> Option<Vec<(u64, u64)>> {
        Some(match &self.reader {
            // Of a damaged file blocks may be missing.
            Some(reader) => {
                let blocks = reader.blocks().iter();
                blocks.map(|block| (block.first_row, u64::from(block.rows))).collect()
            }
            None => numbered(self.blocks.iter().map(|block| block.rows)),
        })
    }
}

impl RowfileMetadata {
    fn of(file: &SourceFile) -> Option<&Self> {
        let known: &dyn Any = file.metadata()?;
        known.downcast_ref()
    }
}

/// The wanted columns of some blocks, each batch with its share of the blocks' bytes.
struct Blocks {
    batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send>,
    /// Of all of them.
    rows: u64,
    bytes: u64,
    left_out: Arc<LeftOut>,
}

impl Iterator for Blocks {
    type Item = Result<(RecordBatch, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.map(|batch| {
            let (bytes, rows) = (u128::from(self.bytes), self.rows.max(1));
            let share = bytes * batch.num_rows() as u128 / u128::from(rows);
            (batch, u64::try_from(share).unwrap_or(u64::MAX))
        }))
    }
}

impl StoredBatches for Blocks {
    fn left_out(&self) -> (u64, u64) {
        let LeftOut { bytes, rows } = self.left_out.as_ref();
        (rows.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }
}

fn blocks(reading: &Reading<'_>, known: &RowfileMetadata) -> Result<Blocks> {
    let Reading { piece, columns, options, watch, .. } = reading;
    let file = &piece.file;
    let left_out = Arc::new(LeftOut::default());
    let chunks = piece.row_groups.clone().unwrap_or_default();
    let wanted = || chunks.iter().filter_map(|index| known.blocks.get(*index));
    let bytes: u64 = wanted().map(|block| block.bytes).sum();
    let rows: u64 = wanted().map(|block| block.rows).sum();
    let own = |column: &WantedColumn| {
        let own = known.schema.fields().get(column.place)?;
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
    let batches: Box<dyn Iterator<Item = Result<RecordBatch>> + Send> = match &known.reader {
        // To find its blocks again would be to read all of it again.
        Some(reader) if file.recover => Box::new(Decodable {
            reader: reader.clone(),
            plan: Arc::new(reader.plan(&wanted).map_err(failed)?),
            all: Arc::new(reader.plan(&rowfile::ReadOptions::default()).map_err(failed)?),
            blocks: chunks.into_iter(),
            batch_rows: options.batch_rows,
            current: None,
            undecodable: Arc::clone(&known.undecodable),
            left_out: Arc::clone(&left_out),
            cancel: watch.cancel.clone(),
            path,
        }),
        reader => {
            let stored = Stored::Open(OpenFile::open(file, ReadPattern::Random, watch)?);
            let reader = match reader {
                Some(reader) => reader.with_source(stored),
                None => open_rowfile(stored, file)?,
            };
            let wanted = rowfile::ReadOptions { blocks: Some(chunks), ..wanted };
            let batches = reader.read(&wanted).map_err(failed)?;
            Box::new(batches.map(move |batch| batch.map_err(|error| from_rowfile(error, &path))))
        }
    };
    Ok(Blocks { batches, rows, bytes, left_out })
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

/// What was left out of a file, if it is not whole.
pub(crate) fn salvaged(file: &SourceFile) -> Option<SalvagedFile> {
    let known = RowfileMetadata::of(file)?;
    let reader = known.reader.as_ref()?;
    let undecodable = known.undecodable.lock();
    let failed = undecodable.iter().map(|(block, reason)| (*block, reason));
    salvaged_of(file.shown(), reader, failed)
}

/// What the footers of a rowfile know of its blocks.
pub struct BlockStatistics(rowfile::Reader<Stored>);

impl BlockStatistics {
    /// None for what is no rowfile, or was not looked at.
    pub(crate) fn of(file: &SourceFile) -> Option<Self> {
        let known = RowfileMetadata::of(file)?;
        known.chunks()?;
        match &known.reader {
            Some(reader) => Some(Self(reader.clone())),
            None => open_rowfile_of(file).ok().map(Self),
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
    pub fn column(&self, path: &[&str]) -> Option<rowfile::PerBlockStatistics> {
        fn is_plain(fields: &[rowfile::SchemaField]) -> bool {
            fields.iter().all(|field| {
                !field.name.contains('.')
                    && match &field.kind {
                        rowfile::FieldType::Struct(inner) => is_plain(inner),
                        _ => true,
                    }
            })
        }
        // A path is written with dots.
        is_plain(&self.0.schema().fields).then(|| self.0.column_statistics(&path.join(".")))?
    }
}
