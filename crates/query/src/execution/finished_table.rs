//! A finished aggregate table as the input of the plan above the aggregation.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use parking_lot::Mutex;
use tidemill_base::batch_compaction;
use tidemill_base::error::{Error, Result};
use tidemill_sql::into_datafusion_error;

use crate::execution::result_columns::conform_batch_to_schema;
use crate::planning::stand_in_tables::scan_one_partition;

type AnswerIterator = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A finished aggregate table as a DataFusion table. It can be read once.
pub(crate) struct FinishedTable {
    schema: SchemaRef,
    answers: Arc<Mutex<Option<AnswerIterator>>>,
}

impl FinishedTable {
    pub(crate) fn new(schema: SchemaRef, answers: AnswerIterator) -> Self {
        FinishedTable { schema, answers: Arc::new(Mutex::new(Some(answers))) }
    }
}

impl fmt::Debug for FinishedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for FinishedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let partition =
            FinishedTable { schema: Arc::clone(&self.schema), answers: Arc::clone(&self.answers) };
        scan_one_partition(Arc::new(partition), projection, limit)
    }
}

impl PartitionStream for FinishedTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batch_rows = context.session_config().batch_size();
        let answers = self.answers.lock().take().unwrap_or_else(|| {
            let error = Error::Internal("a finished table was read twice".into());
            Box::new(std::iter::once(Err(error)))
        });
        let batches = AnswerBatcher {
            answers,
            uncut_answers: VecDeque::new(),
            start_row: 0,
            coalescer: BatchCoalescer::new(Arc::clone(&schema), batch_rows),
            unfinished_size: (0, 0),
            schema: Arc::clone(&schema),
            batch_rows,
            has_begun: false,
            has_ended: false,
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }
}

/// A table's only answer passes uncut if it has at most this many times the rows of a batch …
const SINGLE_ANSWER_BATCHES_MAX: usize = 8;
/// … and at most this many bytes. Larger answers are cut, and each batch is a copy.
const SINGLE_ANSWER_BYTES_MAX: usize = 4 << 20;

/// Maximum size of a batch, in bytes. A single larger row is a batch of its own.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Cuts answers into batches of `batch_rows` rows, or of [`BATCH_BYTES_MAX`] where rows are wide. The
/// boundaries do not depend on the parts in which a table was merged. An answer is copied a batch at a time.
struct AnswerBatcher {
    answers: AnswerIterator,
    /// Answers not cut yet. `start_row` is the number of rows already taken from the first.
    uncut_answers: VecDeque<RecordBatch>,
    start_row: usize,
    coalescer: BatchCoalescer,
    /// Rows and bytes of the unfinished batch.
    unfinished_size: (usize, usize),
    schema: SchemaRef,
    batch_rows: usize,
    has_begun: bool,
    has_ended: bool,
}

impl AnswerBatcher {
    fn next_answer(&mut self) -> Result<Option<RecordBatch>> {
        let answer = self.answers.next().transpose()?;
        answer.map(|answer| conform_batch_to_schema(answer, &self.schema)).transpose()
    }

    /// Returns true if this answer passes uncut when it is the only one.
    fn can_pass_uncut(&self, answer: &RecordBatch) -> bool {
        let bytes =
            || answer.columns().iter().map(batch_compaction::visible_values_bytes).sum::<usize>();
        answer.num_rows() <= SINGLE_ANSWER_BATCHES_MAX * self.batch_rows
            && bytes() <= SINGLE_ANSWER_BYTES_MAX
    }

    /// Appends rows of an answer, from `start` on, to the unfinished batch while they fit. Returns the next
    /// row to append.
    fn append_rows(&mut self, answer: &RecordBatch, start: usize) -> Result<usize> {
        let (mut rows, mut bytes) = self.unfinished_size;
        let length = (answer.num_rows() - start).min(self.batch_rows - rows);
        let next = answer.slice(start, length);
        let fitting =
            batch_compaction::row_sizes(next.columns()).into_iter().take_while(|row_bytes| {
                let fits = rows == 0 || bytes + row_bytes <= BATCH_BYTES_MAX;
                (rows, bytes) = (rows + usize::from(fits), bytes + row_bytes);
                fits
            });
        let count = if next.num_columns() == 0 { length } else { fitting.count() };
        if count > 0 {
            self.coalescer.push_batch(next.slice(0, count))?;
        }
        self.unfinished_size = (self.unfinished_size.0 + count, bytes);
        if count < length || self.unfinished_size.0 == self.batch_rows {
            self.coalescer.finish_buffered_batch()?;
            self.unfinished_size = (0, 0);
        }
        Ok(start + count)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if !self.has_begun {
            self.has_begun = true;
            let Some(first) = self.next_answer()? else { return Ok(None) };
            if self.can_pass_uncut(&first) {
                match self.next_answer()? {
                    Some(second) => self.uncut_answers.extend([first, second]),
                    None => return Ok(Some(first)),
                }
            } else {
                self.uncut_answers.push_back(first);
            }
        }
        loop {
            if let Some(batch) = self.coalescer.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.uncut_answers.front() {
                Some(answer) if self.start_row < answer.num_rows() => {
                    let answer = answer.clone();
                    self.start_row = self.append_rows(&answer, self.start_row)?;
                }
                Some(_) => {
                    self.uncut_answers.pop_front();
                    self.start_row = 0;
                }
                None => match self.next_answer()? {
                    Some(answer) => self.uncut_answers.push_back(answer),
                    None => {
                        self.has_ended = true;
                        self.coalescer.finish_buffered_batch()?;
                    }
                },
            }
        }
    }
}

impl Iterator for AnswerBatcher {
    type Item = PlanResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        self.has_ended |= next.is_err();
        next.map_err(into_datafusion_error).transpose()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    fn batches(rows: &RecordBatch, answer_rows: usize, batch_rows: usize) -> Vec<RecordBatch> {
        let starts = (0..rows.num_rows()).step_by(answer_rows);
        let length = |start: usize| answer_rows.min(rows.num_rows() - start);
        let answers: Vec<_> = starts.map(|start| Ok(rows.slice(start, length(start)))).collect();
        let schema = rows.schema();
        let batches = AnswerBatcher {
            answers: Box::new(answers.into_iter()),
            uncut_answers: VecDeque::new(),
            start_row: 0,
            coalescer: BatchCoalescer::new(Arc::clone(&schema), batch_rows),
            unfinished_size: (0, 0),
            schema,
            batch_rows,
            has_begun: false,
            has_ended: false,
        };
        batches.map(Result::unwrap).collect()
    }

    #[test]
    fn batch_boundaries_do_not_depend_on_answer_sizes() {
        let rows = |text_bytes: usize| {
            let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
            // One row in a thousand is larger than a batch.
            let text = |n: usize| match n % 1000 {
                999 => "x".repeat(BATCH_BYTES_MAX + 1),
                _ => "y".repeat(text_bytes * (n % 7)),
            };
            let s: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..10_000).map(text)));
            RecordBatch::try_from_iter([("n", n), ("s", s)]).unwrap()
        };
        let few = |batch: &RecordBatch| batch.slice(0, 900);
        for (rows, batch_rows) in
            [(few(&rows(10)), 64), (rows(100), 4096), (few(&rows(40_000)), 512)]
        {
            let expected = batches(&rows, rows.num_rows(), batch_rows);
            for answer_rows in [1, 63, 64, 65, 300, 899] {
                let found = batches(&rows, answer_rows, batch_rows);
                assert!(found == expected, "{answer_rows} of {}", rows.num_rows());
            }
            let whole = arrow::compute::concat_batches(&rows.schema(), &expected).unwrap();
            assert!(whole == rows);
            for batch in &expected[..expected.len() - 1] {
                let bytes: usize = batch_compaction::row_sizes(batch.columns()).iter().sum();
                assert!(bytes <= BATCH_BYTES_MAX || batch.num_rows() == 1, "{bytes}");
                assert!(batch.num_rows() <= batch_rows);
            }
        }
    }
}
