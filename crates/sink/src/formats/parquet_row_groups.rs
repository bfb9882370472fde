//! Writes the row groups of Parquet files, of few columns and of thousands.
//!
//! All columns of a row group are encoded in parallel if several threads are available. Batches are gathered
//! to some [`GATHERED_ROWS_MAX`] rows, of which each thread encodes one column after another. Only in between
//! does the writer check if the row group is full, so that a file has the same bytes for any number of
//! threads.
//!
//! Each column takes some [`COLUMN_WRITER_BYTES`] before its first value: its dictionary's table, the state
//! of its compression, a page. For 5,000 columns that is more than 1 GB. If it exceeds the available memory,
//! rows wait unencoded until they make a row group, and its columns are encoded a few at a time. Both ways
//! produce the same row groups.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use parking_lot::Mutex;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;
use tidemill_base::batch_compaction;

/// Maximum number of rows of a row group …
pub(super) const ROW_GROUP_ROWS: usize = 1 << 20;
/// … and the memory of its columns at which it ends, if the budget allows that much.
const ROW_GROUP_BYTES: usize = 128 << 20;

/// Approximate memory of a column that is being encoded, beside its values.
const COLUMN_WRITER_BYTES: usize = 192 << 10;

/// Number of columns that are encoded at a time if they cannot all be.
const COLUMNS_PER_TURN: usize = 32;

/// Approximate memory of an array beside its values.
const ARRAY_OVERHEAD_BYTES: usize = 256;

/// Number of rows, or bytes of batches, that are encoded at a time.
const GATHERED_ROWS_MAX: usize = 1 << 16;
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// Number of values for which a thread is worth starting.
const VALUES_PER_THREAD_MIN: usize = 1 << 16;

/// The writer of one Parquet file.
pub(super) enum ParquetWriter<W: Write + Send> {
    /// Encodes all columns at once.
    AllColumns(Box<AllColumnsWriter<W>>),
    /// Encodes some columns at a time.
    ColumnTurns(Box<ColumnTurnsWriter<W>>),
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file that takes `memory_limit` bytes, or twice that if its columns are many, encoded by
    /// `threads`.
    ///
    /// # Errors
    /// Returns the errors of Arrow's writer.
    pub(super) fn new(
        out: W,
        schema: &SchemaRef,
        options: ArrowWriterOptions,
        memory_limit: usize,
        threads: usize,
    ) -> Result<Self, ParquetError> {
        let writer = ArrowWriter::try_new_with_options(out, Arc::clone(schema), options)?;
        let leaves = schema.flattened_fields().len();
        let (file, factory) = writer.into_serialized_writer()?;
        if leaves.saturating_mul(COLUMN_WRITER_BYTES) <= memory_limit {
            let row_group_bytes = ROW_GROUP_BYTES.min(memory_limit / 2).max(1 << 20);
            let together = AllColumnsWriter::new(file, factory, schema, row_group_bytes, threads);
            return Ok(ParquetWriter::AllColumns(Box::new(together)));
        }
        let bytes_max = ROW_GROUP_BYTES.min(memory_limit.saturating_mul(2)).max(1 << 20);
        Ok(ParquetWriter::ColumnTurns(Box::new(ColumnTurnsWriter::new(file, schema, bytes_max)?)))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Returns the errors of Arrow's writer.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        match self {
            ParquetWriter::AllColumns(writer) => writer.write(batch),
            ParquetWriter::ColumnTurns(writer) => writer.write(batch),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Returns the errors of Arrow's writer.
    pub(super) fn finish(self) -> Result<W, ParquetError> {
        match self {
            ParquetWriter::AllColumns(mut writer) => {
                writer.encode_gathered()?;
                writer.flush_row_group()?;
                writer.file.into_inner()
            }
            ParquetWriter::ColumnTurns(mut writer) => {
                writer.flush_row_group()?;
                writer.file.into_inner()
            }
        }
    }
}

/// A writer that encodes all columns of a row group in parallel.
pub(super) struct AllColumnsWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// Number of leaves of each column.
    leaf_counts: Vec<usize>,
    /// The order in which columns are started: those that take longest first.
    column_order: Vec<usize>,
    /// The row group's writers, one per leaf; empty before its first row.
    column_writers: Vec<ArrowColumnWriter>,
    /// Number of rows encoded for the row group.
    encoded_rows: usize,
    /// The batches to be encoded next.
    gathered: Vec<RecordBatch>,
    gathered_rows: usize,
    gathered_bytes: usize,
    row_group_bytes: usize,
    threads: usize,
}

impl<W: Write + Send> AllColumnsWriter<W> {
    fn new(
        file: SerializedFileWriter<W>,
        factory: ArrowRowGroupWriterFactory,
        schema: &SchemaRef,
        row_group_bytes: usize,
        threads: usize,
    ) -> Self {
        let mut leaves = vec![0; schema.fields().len()];
        let columns = file.schema_descr();
        for leaf in 0..columns.num_columns() {
            if let Some(count) = leaves.get_mut(columns.get_column_root_idx(leaf)) {
                *count += 1;
            }
        }
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        // Text is hashed, compared and copied, and nested columns have several leaves.
        order.sort_by_key(|column| {
            let is_number = schema.field(*column).data_type().primitive_width().is_some();
            (is_number, std::cmp::Reverse(leaves[*column]))
        });
        AllColumnsWriter {
            file,
            factory,
            schema: Arc::clone(schema),
            leaf_counts: leaves,
            column_order: order,
            column_writers: Vec::new(),
            encoded_rows: 0,
            gathered: Vec::new(),
            gathered_rows: 0,
            gathered_bytes: 0,
            row_group_bytes,
            threads,
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        let mut start = 0;
        while start < batch.num_rows() {
            let room = ROW_GROUP_ROWS - self.encoded_rows - self.gathered_rows;
            let count = room.min(batch.num_rows() - start);
            let part = batch.slice(start, count);
            start += count;
            self.gathered_rows += count;
            self.gathered_bytes += part.get_array_memory_size();
            self.gathered.push(part);
            let is_full = count == room;
            if is_full
                || self.gathered_rows >= GATHERED_ROWS_MAX
                || self.gathered_bytes >= GATHERED_BYTES_MAX.min(self.row_group_bytes / 4)
            {
                self.encode_gathered()?;
            }
            let bytes =
                || self.column_writers.iter().map(ArrowColumnWriter::memory_size).sum::<usize>();
            if is_full || (self.gathered.is_empty() && bytes() >= self.row_group_bytes) {
                self.flush_row_group()?;
            }
        }
        Ok(())
    }

    /// Encodes the gathered batches.
    fn encode_gathered(&mut self) -> Result<(), ParquetError> {
        let batches = std::mem::take(&mut self.gathered);
        let rows = std::mem::take(&mut self.gathered_rows);
        self.gathered_bytes = 0;
        if batches.is_empty() {
            return Ok(());
        }
        if self.column_writers.is_empty() {
            let row_group = self.file.flushed_row_groups().len();
            self.column_writers = self.factory.create_column_writers(row_group)?;
        }
        self.encoded_rows += rows;
        let mut left = self.column_writers.as_mut_slice();
        let mut columns = Vec::with_capacity(self.leaf_counts.len());
        for count in &self.leaf_counts {
            let (own, others) = left.split_at_mut(*count);
            columns.push(Some(own));
            left = others;
        }
        let columns: Vec<_> =
            self.column_order.iter().filter_map(|at| Some((*at, columns[*at].take()?))).collect();
        let schema = &self.schema;
        let threads =
            self.threads.min(rows.saturating_mul(self.leaf_counts.len()) / VALUES_PER_THREAD_MIN);
        run_in_parallel(columns, threads, |(column, writers)| {
            for batch in &batches {
                let leaves = compute_leaves(schema.field(column), batch.column(column))?;
                for (writer, leaf) in writers.iter_mut().zip(&leaves) {
                    writer.write(leaf)?;
                }
            }
            Ok(())
        })
        .map(drop)
    }

    /// Writes the row group, if it has rows.
    fn flush_row_group(&mut self) -> Result<(), ParquetError> {
        let writers = std::mem::take(&mut self.column_writers);
        let rows = std::mem::take(&mut self.encoded_rows);
        if writers.is_empty() {
            return Ok(());
        }
        let threads = self.threads.min(rows.saturating_mul(writers.len()) / VALUES_PER_THREAD_MIN);
        let chunks = run_in_parallel(writers, threads, ArrowColumnWriter::close)?;
        let mut row_group = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        Ok(())
    }
}

/// Runs `work` on each task, on up to `threads` threads including this one, and returns the results in order.
fn run_in_parallel<T: Send, U: Send>(
    tasks: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<U, ParquetError> + Sync,
) -> Result<Vec<U>, ParquetError> {
    let helpers = threads.min(tasks.len()).saturating_sub(1);
    if helpers == 0 {
        return tasks.into_iter().map(work).collect();
    }
    let results: Vec<Mutex<Option<Result<U, ParquetError>>>> =
        tasks.iter().map(|_| Mutex::new(None)).collect();
    let left = Mutex::new(tasks.into_iter().enumerate());
    let take_part = || {
        loop {
            let next = left.lock().next();
            let Some((place, task)) = next else { return };
            *results[place].lock() = Some(work(task));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            // If no more threads can start, the existing ones do the work.
            let _ =
                std::thread::Builder::new().name("encode".into()).spawn_scoped(scope, take_part);
        }
        take_part();
    });
    let missing = || Err(ParquetError::General("a column that nobody encoded".into()));
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(missing)).collect()
}

/// A writer that encodes some columns of a row group at a time.
pub(super) struct ColumnTurnsWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    schema: SchemaRef,
    /// Ranges of columns that are encoded together, each with the factory of their writers.
    column_turns: Vec<(Range<usize>, ArrowRowGroupWriterFactory)>,
    /// The rows of the next row group.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// Number of batches at the end of `waiting` that will be concatenated: an array of a few rows is mostly
    /// overhead.
    small_batch_count: usize,
    small_batch_bytes: usize,
    bytes_max: usize,
}

impl<W: Write + Send> ColumnTurnsWriter<W> {
    fn new(
        file: SerializedFileWriter<W>,
        schema: &SchemaRef,
        bytes_max: usize,
    ) -> Result<Self, ParquetError> {
        let count = schema.fields().len();
        let turns = (0..count).step_by(COLUMNS_PER_TURN).map(|start| {
            let columns = start..(start + COLUMNS_PER_TURN).min(count);
            let schema = Arc::new(Schema::new(schema.fields()[columns.clone()].to_vec()));
            Ok((columns, new_row_group_factory(&schema, file.properties())?))
        });
        let turns = turns.collect::<Result<_, ParquetError>>()?;
        Ok(ColumnTurnsWriter {
            file,
            schema: Arc::clone(schema),
            column_turns: turns,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            small_batch_count: 0,
            small_batch_bytes: 0,
            bytes_max,
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.waiting_rows + batch.num_rows() > ROW_GROUP_ROWS {
            self.flush_row_group()?;
        }
        for start in (0..batch.num_rows()).step_by(ROW_GROUP_ROWS) {
            let rows = ROW_GROUP_ROWS.min(batch.num_rows() - start);
            self.add_batch(batch_compaction::compact_batch(&batch.slice(start, rows))?)?;
        }
        Ok(())
    }

    fn add_batch(&mut self, batch: RecordBatch) -> Result<(), ParquetError> {
        let bytes = batch_memory_bytes(&batch);
        self.waiting_rows += batch.num_rows();
        self.waiting_bytes += bytes;
        self.small_batch_bytes += bytes;
        self.small_batch_count += 1;
        self.waiting.push(batch);
        if self.small_batch_count > 1 && self.small_batch_bytes > self.bytes_max / 4 {
            let few = self.waiting.split_off(self.waiting.len() - self.small_batch_count);
            let one = concat_batches(&self.schema, &few)?;
            self.waiting_bytes =
                self.waiting_bytes - self.small_batch_bytes + batch_memory_bytes(&one);
            self.waiting.push(one);
            (self.small_batch_count, self.small_batch_bytes) = (0, 0);
        }
        if self.waiting_bytes > self.bytes_max || self.waiting_rows >= ROW_GROUP_ROWS {
            self.flush_row_group()?;
        }
        Ok(())
    }

    /// Writes the waiting rows as a row group.
    fn flush_row_group(&mut self) -> Result<(), ParquetError> {
        let waiting = std::mem::take(&mut self.waiting);
        (self.waiting_rows, self.waiting_bytes, self.small_batch_count, self.small_batch_bytes) =
            (0, 0, 0, 0);
        if waiting.is_empty() {
            return Ok(());
        }
        let mut row_group = self.file.next_row_group()?;
        for (columns, factory) in &self.column_turns {
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

fn batch_memory_bytes(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size() + batch.num_columns() * ARRAY_OVERHEAD_BYTES
}

/// Returns a factory of writers for some columns: the one of a file with only these columns.
fn new_row_group_factory(
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

    /// Creates a batch with columns of four shapes in turn.
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

    fn write_single_threaded(batches: &[RecordBatch], memory_limit: usize) -> (Vec<u8>, bool) {
        write_with_threads(batches, memory_limit, 1)
    }

    fn write_with_threads(
        batches: &[RecordBatch],
        memory_limit: usize,
        threads: usize,
    ) -> (Vec<u8>, bool) {
        let schema = batches[0].schema();
        let options = ArrowWriterOptions::new();
        let mut writer =
            ParquetWriter::new(Vec::new(), &schema, options, memory_limit, threads).unwrap();
        let is_in_turns = matches!(writer, ParquetWriter::ColumnTurns(_));
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        (writer.finish().unwrap(), is_in_turns)
    }

    #[test]
    fn columns_that_are_encoded_in_turns_make_the_same_file() {
        let one = [batch(70, 0..500)];
        let (together, false) = write_single_threaded(&one, 1 << 30) else {
            panic!("the columns are few")
        };
        let (in_turns, true) = write_single_threaded(&one, 1 << 20) else {
            panic!("the columns are many")
        };
        assert!(together == in_turns);
    }

    #[test]
    fn file_bytes_are_equal_on_any_number_of_threads_and_equal_to_arrow_writer() {
        let ends = [0i64, 1, 5_000, 5_000, 90_000, 90_100, 200_000, 290_000];
        let batches: Vec<_> = ends.windows(2).map(|two| batch(9, two[0]..two[1])).collect();
        // The limits make row groups end by their bytes, by their rows, and not at all.
        for memory_limit in [9 * COLUMN_WRITER_BYTES * 2, 1 << 30] {
            let (one, false) = write_with_threads(&batches, memory_limit, 1) else {
                panic!("few columns")
            };
            for threads in [2, 3, 16] {
                assert!(
                    write_with_threads(&batches, memory_limit, threads).0 == one,
                    "{threads} threads"
                );
            }
            let groups = |file: &[u8]| {
                let file = bytes::Bytes::copy_from_slice(file);
                let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                reader.metadata().num_row_groups()
            };
            assert_eq!(groups(&one) > 1, memory_limit < 1 << 30, "{} groups", groups(&one));
            if groups(&one) == 1 {
                let mut arrow =
                    ArrowWriter::try_new(Vec::new(), batches[0].schema(), None).unwrap();
                batches.iter().for_each(|batch| arrow.write(batch).unwrap());
                assert!(arrow.into_inner().unwrap() == one);
            }
        }
    }

    #[test]
    fn a_row_group_ends_with_its_last_row() {
        let rows = ROW_GROUP_ROWS as i64;
        let column = |range: std::ops::Range<i64>| {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(range.map(|n| n % 3)));
            RecordBatch::try_from_iter([("a", column)]).unwrap()
        };
        let batches = [column(0..rows - 1), column(rows - 1..rows + 10), column(0..3 * rows)];
        let (file, false) = write_with_threads(&batches, 1 << 30, 2) else {
            panic!("a column is few")
        };
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        let groups = reader.metadata().row_groups().iter().map(|group| group.num_rows());
        assert_eq!(groups.collect::<Vec<_>>(), [rows, rows, rows, rows, 10]);
    }

    #[test]
    fn encoding_failure_is_reported_on_any_number_of_threads() {
        for threads in [1, 4] {
            let tasks: Vec<u64> = (0..20).collect();
            let done = run_in_parallel(tasks, threads, |task| match task {
                7 => Err(ParquetError::General("seven".into())),
                task => Ok(task * 2),
            });
            assert!(done.unwrap_err().to_string().contains("seven"));
            let done = run_in_parallel((0..20).collect::<Vec<u64>>(), threads, |task| Ok(task * 2));
            assert_eq!(done.unwrap(), (0..20).map(|task| task * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_that_come_in_any_number_are_written_in_row_groups_that_fit() {
        let ends = [0i64, 1, 2, 40, 40, 41, 900, 901, 2000, 4000];
        let batches: Vec<_> = ends.windows(2).map(|two| batch(70, two[0]..two[1])).collect();
        let (file, true) = write_single_threaded(&batches, 1 << 20) else {
            panic!("the columns are many")
        };
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
        let (file, true) = write_single_threaded(&[batch(70, 0..0)], 1 << 20) else {
            panic!("many columns")
        };
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        assert_eq!(reader.schema().fields().len(), 70);
        assert_eq!(reader.metadata().num_row_groups(), 0);
    }
}
