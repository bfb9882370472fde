//! A finished table as a source of the plan above it.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
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
        let batches = answers.flat_map(move |answer| {
            let schema = Arc::clone(&schema);
            let answer = answer.and_then(|answer| named(answer, &schema)).map_err(external);
            in_batches(answer, batch_rows)
        });
        let schema = Arc::clone(&self.schema);
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }
}

/// A batch goes on as it is up to so many times as many rows as one should have …
const WHOLE_TIMES: usize = 8;
/// … and so many bytes.
const WHOLE_BYTES: usize = 4 << 20;

/// A large batch as parts of at most `step` rows: each is a copy, unless all of it goes on.
fn in_batches(
    answer: PlanResult<RecordBatch>,
    step: usize,
) -> impl Iterator<Item = PlanResult<RecordBatch>> + Send {
    let rows = answer.as_ref().map_or(1, RecordBatch::num_rows);
    let is_small = |batch: &RecordBatch| {
        batch.columns().iter().map(compact::shown_bytes).sum::<usize>() <= WHOLE_BYTES
    };
    let is_whole = rows <= WHOLE_TIMES * step && answer.as_ref().is_ok_and(is_small);
    let step = if is_whole { rows.max(1) } else { step };
    let mut answer = Some(answer);
    (0..rows.div_ceil(step).max(1)).map_while(move |index| match answer.as_ref()? {
        Ok(batch) if batch.num_rows() <= step => Some(Ok(batch.clone())),
        Ok(batch) => {
            let start = index * step;
            // A slice keeps the whole batch alive, and counts as such where it is held.
            let slice = batch.slice(start, step.min(batch.num_rows() - start));
            Some(compact::compacted(&slice).map_err(Into::into))
        }
        Err(_) => answer.take(),
    })
}
