//! Evaluates the expressions above a limit, for the rows that the limit lets through.
//!
//! A map runs in each split, before `OFFSET` and `LIMIT` apply. An expression in the map would also be
//! evaluated for rows that they leave out, and `6 / (b - 1)` could fail because of one of those. Expressions
//! above a limit that are more than columns and constants therefore form a plan of their own, which reads one
//! batch at a time from a slot:
//!
//! ```text
//!   splits ──► map ──► skip, fetch ──► slot ──► projections ──► answer
//! ```
//!
//! DataFusion runs the projections with the session's own rules, so that those that bound the size of an
//! expression's result also apply here. They take one thread; a limit seldom leaves more rows than one thread
//! computes in time.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result as PlanResult;
use datafusion::execution::context::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use parking_lot::Mutex;
use tidemill_base::error::{Error, Result};
use tidemill_sql::{IntoTidemillError, session};

use crate::execution::result_columns::conform_batch_to_schema;
use crate::planning::stand_in_tables::{positional_schema, scan_one_partition, scan_stand_in};

/// The table name of the slot in a plan.
const SLOT_TABLE_NAME: &str = "limited_rows";

/// Returns true if an expression is a column, a constant, or either with an alias: it cannot fail.
pub(crate) fn is_column_or_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Alias(alias) => is_column_or_literal(&alias.expr),
        _ => false,
    }
}

/// Running projections and the slot that they read.
pub(crate) struct RowCalculation {
    slot: RowSlot,
    projected: SendableRecordBatchStream,
}

impl RowCalculation {
    /// Plans projections, the innermost first, over rows of `input`.
    ///
    /// # Errors
    /// Errors of DataFusion's planner.
    pub(crate) fn new(
        state: &SessionState,
        input: &DFSchema,
        projections: &[Projection],
    ) -> Result<Self> {
        let slot = RowSlot { schema: positional_schema(input), batch: Arc::default() };
        let mut plan = scan_stand_in(SLOT_TABLE_NAME, Arc::new(slot.clone()), input)?;
        for projection in projections {
            let Projection { expr, schema, .. } = projection;
            let (expr, schema) = (expr.clone(), Arc::clone(schema));
            let next = Projection::try_new_with_schema(expr, Arc::new(plan), schema)
                .into_tidemill_error()?;
            plan = LogicalPlan::Projection(next);
        }
        let state = session::split_scan_state(state);
        let physical = session::create_physical_plan(&state, &plan)?;
        let projected = physical.execute(0, state.task_ctx()).into_tidemill_error()?;
        Ok(RowCalculation { slot, projected })
    }

    /// Puts the next rows into the slot, after [`next_batch`](Self::next_batch) has returned `None`.
    ///
    /// # Errors
    /// [`Error::Query`] if rows do not fit the types of the input.
    pub(crate) fn push_rows(&self, rows: RecordBatch) -> Result<()> {
        let rows = conform_batch_to_schema(rows, &self.slot.schema)?;
        match self.slot.batch.lock().replace(rows) {
            None => Ok(()),
            Some(_) => Err(Error::Internal("rows above a limit were not read".into())),
        }
    }

    /// Returns the next batch that the projections make of the pushed rows, or `None` if they need more rows.
    ///
    /// # Errors
    /// Errors of an expression.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let stream = &mut self.projected;
        // A step that yields to other tasks would leave rows in the slot.
        let mut next = Box::pin(tokio::task::unconstrained(poll_fn(|context| {
            stream.poll_next_unpin(context)
        })));
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(batch)) => batch.into_tidemill_error().map(Some),
            Poll::Ready(None) => Err(Error::Internal("a projection above a limit ended".into())),
            Poll::Pending if self.slot.batch.lock().is_some() => {
                Err(Error::Internal("a projection above a limit does not read its rows".into()))
            }
            Poll::Pending => Ok(None),
        }
    }
}

/// A table of at most one batch at a time, whose stream is pending while it has none.
#[derive(Clone)]
struct RowSlot {
    schema: SchemaRef,
    batch: Arc<Mutex<Option<RecordBatch>>>,
}

impl fmt::Debug for RowSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowSlot").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for RowSlot {
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
        scan_one_partition(Arc::new(self.clone()), projection, limit)
    }
}

impl PartitionStream for RowSlot {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batch = Arc::clone(&self.batch);
        let next = move |_: &mut Context<'_>| match batch.lock().take() {
            Some(batch) => Poll::Ready(Some(Ok(batch))),
            None => Poll::Pending,
        };
        let batches = futures::stream::poll_fn(next);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}
