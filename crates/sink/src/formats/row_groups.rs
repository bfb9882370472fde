//! Parquet files, of few columns and of thousands.
//!
//! Arrow's writer encodes all columns of a row group side by side, and each of them takes some
//! [`COLUMN_BYTES`] before its first value: a table of its dictionary, the state of its compression, a
//! page. For 5,000 columns that is more than 1 GB. Where it is more than there is, rows wait as they are
//! until they make a row group, and its columns are encoded some at a time. The row groups of both are
//! alike.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::arrow_writer::{
    ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;
use tidemill_base::compact;

/// A row group ends after this many rows …
pub(super) const ROW_GROUP_ROWS: usize = 1 << 20;
/// … or when its columns take this much memory, if the budget allows that much.
const ROW_GROUP_BYTES: usize = 128 << 20;

/// What a column that is being encoded takes beside its values, about.
const COLUMN_BYTES: usize = 192 << 10;

/// So many columns are encoded at a time where they cannot all be.
const COLUMNS_AT_ONCE: usize = 32;

/// What an array takes beside its values, about.
const ARRAY_BYTES: usize = 256;

/// A file in encoding.
pub(super) enum ParquetWriter<W: Write + Send> {
    /// All columns at once.
    Together { writer: Box<ArrowWriter<W>>, row_group_bytes: usize },
    /// Some columns at a time.
    InTurns(Box<InTurns<W>>),
}

impl<W: Write + Send> ParquetWriter<W> {
    /// A file that takes `memory_limit` bytes, or twice that where its columns are many.
    ///
    /// # Errors
    /// As Arrow's writer.
    pub(super) fn new(
        out: W,
        schema: &SchemaRef,
        options: ArrowWriterOptions,
        memory_limit: usize,
    ) -> Result<Self, ParquetError> {
        let writer = ArrowWriter::try_new_with_options(out, Arc::clone(schema), options)?;
        let leaves = schema.flattened_fields().len();
        if leaves.saturating_mul(COLUMN_BYTES) <= memory_limit {
            let row_group_bytes = ROW_GROUP_BYTES.min(memory_limit / 2).max(1 << 20);
            return Ok(ParquetWriter::Together { writer: Box::new(writer), row_group_bytes });
        }
        let (file, _) = writer.into_serialized_writer()?;
        let bytes_max = ROW_GROUP_BYTES.min(memory_limit.saturating_mul(2)).max(1 << 20);
        Ok(ParquetWriter::InTurns(Box::new(InTurns::new(file, schema, bytes_max)?)))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// As Arrow's writer.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        match self {
            ParquetWriter::Together { writer, row_group_bytes } => {
                writer.write(batch)?;
                if writer.memory_size() >= *row_group_bytes { writer.flush() } else { Ok(()) }
            }
            ParquetWriter::InTurns(writer) => writer.write(batch),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As Arrow's writer.
    pub(super) fn into_inner(self) -> Result<W, ParquetError> {
        match self {
            ParquetWriter::Together { writer, .. } => writer.into_inner(),
            ParquetWriter::InTurns(mut writer) => {
                writer.flush()?;
                writer.file.into_inner()
            }
        }
    }
}

/// A file whose columns are encoded some at a time.
pub(super) struct InTurns<W: Write + Send> {
    file: SerializedFileWriter<W>,
    schema: SchemaRef,
    /// The columns that are encoded together, by their places, with what makes writers for them.
    turns: Vec<(Range<usize>, ArrowRowGroupWriterFactory)>,
    /// The rows of the next row group.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// Of these, the last ones, which are to become one batch: an array of a few rows is mostly
    /// overhead.
    few: usize,
    few_bytes: usize,
    bytes_max: usize,
}

impl<W: Write + Send> InTurns<W> {
    fn new(
        file: SerializedFileWriter<W>,
        schema: &SchemaRef,
        bytes_max: usize,
    ) -> Result<Self, ParquetError> {
        let count = schema.fields().len();
        let turns = (0..count).step_by(COLUMNS_AT_ONCE).map(|start| {
            let columns = start..(start + COLUMNS_AT_ONCE).min(count);
            let schema = Arc::new(Schema::new(schema.fields()[columns.clone()].to_vec()));
            Ok((columns, factory(&schema, file.properties())?))
        });
        let turns = turns.collect::<Result<_, ParquetError>>()?;
        Ok(InTurns {
            file,
            schema: Arc::clone(schema),
            turns,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            few: 0,
            few_bytes: 0,
            bytes_max,
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.waiting_rows + batch.num_rows() > ROW_GROUP_ROWS {
            self.flush()?;
        }
        for start in (0..batch.num_rows()).step_by(ROW_GROUP_ROWS) {
            let rows = ROW_GROUP_ROWS.min(batch.num_rows() - start);
            self.add(compact::compacted(&batch.slice(start, rows))?)?;
        }
        Ok(())
    }

    fn add(&mut self, batch: RecordBatch) -> Result<(), ParquetError> {
        let bytes = held_bytes(&batch);
        self.waiting_rows += batch.num_rows();
        self.waiting_bytes += bytes;
        self.few_bytes += bytes;
        self.few += 1;
        self.waiting.push(batch);
        if self.few > 1 && self.few_bytes > self.bytes_max / 4 {
            let few = self.waiting.split_off(self.waiting.len() - self.few);
            let one = concat_batches(&self.schema, &few)?;
            self.waiting_bytes = self.waiting_bytes - self.few_bytes + held_bytes(&one);
            self.waiting.push(one);
            (self.few, self.few_bytes) = (0, 0);
        }
        if self.waiting_bytes > self.bytes_max || self.waiting_rows >= ROW_GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what waits as a row group.
    fn flush(&mut self) -> Result<(), ParquetError> {
        let waiting = std::mem::take(&mut self.waiting);
        (self.waiting_rows, self.waiting_bytes, self.few, self.few_bytes) = (0, 0, 0, 0);
        if waiting.is_empty() {
            return Ok(());
        }
        let mut row_group = self.file.next_row_group()?;
        for (columns, factory) in &self.turns {
            let mut writers = factory.create_column_writers(0)?;
            for batch in &waiting {
                let mut next = writers.iter_mut();
                for column in columns.clone() {
                    let field = &self.schema.fields()[column];
                    for leaf in compute_leaves(field, batch.column(column))? {
                        let writer = next.next().ok_or_else(|| {
                            ParquetError::General("a column without a writer".into())
                        })?;
                        writer.write(&leaf)?;
                    }
                }
            }
            for writer in writers {
                writer.close()?.append_to_row_group(&mut row_group)?;
            }
        }
        row_group.close()?;
        Ok(())
    }
}

fn held_bytes(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size() + batch.num_columns() * ARRAY_BYTES
}

/// What makes writers for some columns: those of a file that has these alone.
fn factory(
    schema: &SchemaRef,
    properties: &WriterPropertiesPtr,
) -> Result<ArrowRowGroupWriterFactory, ParquetError> {
    let columns =
        ArrowSchemaConverter::new().with_coerce_types(properties.coerce_types()).convert(schema)?;
    let file = SerializedFileWriter::new(
        std::io::sink(),
        columns.root_schema_ptr(),
        Arc::clone(properties),
    )?;
    Ok(ArrowRowGroupWriterFactory::new(&file, Arc::clone(schema)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, DictionaryArray, Int64Array, ListArray, StringViewArray, StructArray,
    };
    use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    /// A column of each shape, over and over.
    fn batch(columns: usize, rows: std::ops::Range<i64>) -> RecordBatch {
        let fields = (0..columns).map(|index| {
            let at = index as i64;
            let column: ArrayRef = match index % 4 {
                0 => Arc::new(Int64Array::from_iter(
                    rows.clone().map(|row| (row % 7 != at % 7).then_some(row * at)),
                )),
                1 => Arc::new(StringViewArray::from_iter_values(
                    rows.clone().map(|row| format!("a text that is no short one, {row} {at}")),
                )),
                2 => {
                    let pair: Vec<ArrayRef> = vec![
                        Arc::new(Int64Array::from_iter_values(rows.clone())),
                        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
                            rows.clone().map(|row| Some((0..row % 3).map(Some))),
                        )),
                    ];
                    let fields = ["a", "b"]
                        .iter()
                        .zip(&pair)
                        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
                    Arc::new(StructArray::new(fields.collect::<Vec<_>>().into(), pair, None))
                }
                _ => Arc::new(DictionaryArray::<Int32Type>::from_iter(
                    rows.clone().map(|row| ["x", "y", "z"][(row % 3) as usize]),
                )),
            };
            (format!("c{index}"), column)
        });
        RecordBatch::try_from_iter_with_nullable(fields.map(|(name, column)| (name, column, true)))
            .unwrap()
    }

    fn written(batches: &[RecordBatch], memory_limit: usize) -> (Vec<u8>, bool) {
        let schema = batches[0].schema();
        let options = ArrowWriterOptions::new();
        let mut writer = ParquetWriter::new(Vec::new(), &schema, options, memory_limit).unwrap();
        let is_in_turns = matches!(writer, ParquetWriter::InTurns(_));
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        (writer.into_inner().unwrap(), is_in_turns)
    }

    #[test]
    fn columns_that_are_encoded_in_turns_make_the_same_file() {
        let one = [batch(70, 0..500)];
        let (together, false) = written(&one, 1 << 30) else { panic!("the columns are few") };
        let (in_turns, true) = written(&one, 1 << 20) else { panic!("the columns are many") };
        assert!(together == in_turns);
    }

    #[test]
    fn rows_that_come_in_any_number_are_written_in_row_groups_that_fit() {
        let ends = [0i64, 1, 2, 40, 40, 41, 900, 901, 2000, 4000];
        let batches: Vec<_> = ends.windows(2).map(|two| batch(70, two[0]..two[1])).collect();
        let (file, true) = written(&batches, 1 << 20) else { panic!("the columns are many") };
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        let groups = reader.metadata().num_row_groups();
        assert!(groups > 1, "{groups} row groups");
        let reader = reader.with_batch_size(10_000).build().unwrap();
        let read: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(concat_batches(&read[0].schema(), &read).unwrap(), batch(70, 0..4000));
        let DataType::Struct(_) = read[0].schema().field(2).data_type().clone() else {
            panic!("a record is no record any more");
        };
    }

    #[test]
    fn a_file_without_rows_has_its_columns() {
        let (file, true) = written(&[batch(70, 0..0)], 1 << 20) else { panic!("many columns") };
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        assert_eq!(reader.schema().fields().len(), 70);
        assert_eq!(reader.metadata().num_row_groups(), 0);
    }
}
