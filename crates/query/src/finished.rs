//! A finished table as a source of the plan above it.

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
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use parking_lot::Mutex;
use tidemill_base::compact;
use tidemill_base::error::{Error, Result};
use tidemill_sql::external;

use crate::columns::named;

type Answers = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A finished table as something that DataFusion can read, once.
pub(crate) struct Finished {
    schema: SchemaRef,
    answers: Arc<Mutex<Option<Answers>>>,
}

impl Finished {
    pub(crate) fn new(schema: SchemaRef, answers: Answers) -> Self {
        Finished { schema, answers: Arc::new(Mutex::new(Some(answers))) }
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Finished {
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
        let partition: Arc<dyn PartitionStream> = Arc::new(Finished {
            schema: Arc::clone(&self.schema),
            answers: Arc::clone(&self.answers),
        });
        let schema = Arc::clone(&self.schema);
        let table =
            StreamingTableExec::try_new(schema, vec![partition], projection, None, false, limit)?;
        Ok(Arc::new(table))
    }
}

impl PartitionStream for Finished {
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
        let batches = Batches {
            answers,
            gathered: BatchCoalescer::new(Arc::clone(&schema), batch_rows),
            schema: Arc::clone(&schema),
            batch_rows,
            has_begun: false,
            has_ended: false,
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }
}

/// A table of one answer goes on as it is, up to so many times as many rows as a batch should have …
const WHOLE_TIMES: usize = 8;
/// … and so many bytes.
const WHOLE_BYTES: usize = 4 << 20;

/// Answers as batches of so many rows each, but the last: in whichever parts a table was merged, and wherever, what is
/// made of them is cut alike.
struct Batches {
    answers: Answers,
    gathered: BatchCoalescer,
    schema: SchemaRef,
    batch_rows: usize,
    has_begun: bool,
    has_ended: bool,
}

impl Batches {
    fn next_answer(&mut self) -> Result<Option<RecordBatch>> {
        let answer = self.answers.next().transpose()?;
        answer.map(|answer| named(answer, &self.schema)).transpose()
    }

    /// Whether a table of this answer alone goes on as it is.
    fn is_small(&self, answer: &RecordBatch) -> bool {
        let bytes = || answer.columns().iter().map(compact::shown_bytes).sum::<usize>();
        answer.num_rows() <= WHOLE_TIMES * self.batch_rows && bytes() <= WHOLE_BYTES
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if !self.has_begun {
            self.has_begun = true;
            let Some(first) = self.next_answer()? else { return Ok(None) };
            match self.next_answer()? {
                None if self.is_small(&first) => return Ok(Some(first)),
                None => self.gathered.push_batch(first)?,
                Some(second) => {
                    self.gathered.push_batch(first)?;
                    self.gathered.push_batch(second)?;
                }
            }
        }
        loop {
            if let Some(batch) = self.gathered.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.next_answer()? {
                Some(answer) => self.gathered.push_batch(answer)?,
                None => {
                    self.has_ended = true;
                    self.gathered.finish_buffered_batch()?;
                }
            }
        }
    }
}

impl Iterator for Batches {
    type Item = PlanResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        self.has_ended |= next.is_err();
        next.map_err(external).transpose()
    }
}
