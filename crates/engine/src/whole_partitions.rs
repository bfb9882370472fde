//! Windows that need all rows of a partition: `count() OVER (PARTITION BY user)`.
//!
//! DataFusion's step holds all of its input, and asks nobody for the memory. The rows come sorted by
//! partition, so a step of ours in its place holds one partition and what came with its end, asks for what it
//! holds, and hands on rows as partitions end.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use futures::{StreamExt, stream};

use crate::compact::{compacted, shown_bytes};
use crate::error::Error;
use crate::in_place::InPlace;
use crate::scan::external;

/// What the step registers with the memory pool.
pub const CONSUMER: &str = "WholePartitions";

/// What a call's value takes, about.
const VALUE_BYTES: usize = 16;

/// Puts the step in the place of DataFusion's.
#[derive(Debug)]
pub struct OnePartitionAtATime;

impl PhysicalOptimizerRule for OnePartitionAtATime {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match plan.downcast_ref::<WindowAggExec>() {
                Some(_) => {
                    Transformed::yes(Arc::new(InPlace { name: CONSUMER, theirs: plan, run }) as _)
                }
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "one_partition_at_a_time"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn run(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let Some(step) = theirs.downcast_ref::<WindowAggExec>() else {
        return Err(external(Error::Internal("a window of another kind".into())));
    };
    let consumer = MemoryConsumer::new(format!("{CONSUMER}[{partition}]"));
    let window = Window {
        keys: step.partition_by_sort_keys()?,
        calls: step.window_expr().to_vec(),
        schema: theirs.schema(),
        batch_rows: context.session_config().batch_size(),
        reservation: consumer.register(context.memory_pool()),
        input: Some(step.input().execute(partition, context)?),
        held: Vec::new(),
        made: None,
    };
    let batches = stream::try_unfold(window, |mut window| async move {
        Ok(window.next().await?.map(|batch| (batch, window)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(theirs.schema(), batches)))
}

/// The step at work.
struct Window {
    keys: Vec<PhysicalSortExpr>,
    calls: Vec<Arc<dyn WindowExpr>>,
    schema: SchemaRef,
    batch_rows: usize,
    /// None once it has ended.
    input: Option<SendableRecordBatchStream>,
    /// The rows of the partition that has not ended yet.
    held: Vec<RecordBatch>,
    /// What is to be handed on.
    made: Option<RecordBatch>,
    /// Of what is held and what is made.
    reservation: MemoryReservation,
}

impl Window {
    async fn next(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            if let Some(made) = self.made.take() {
                let (now, later) = parted(&made, self.batch_rows.min(made.num_rows()));
                if later.num_rows() > 0 {
                    self.made = Some(later);
                } else {
                    self.reservation.resize(self.held.iter().map(bytes).sum());
                }
                return Ok(Some(now));
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next().await.transpose()? {
                None => {
                    self.input = None;
                    self.made = self.computed()?;
                }
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => match self.last_partition(&batch)? {
                    None => self.hold(&batch)?,
                    Some(start) => {
                        let (ended, begun) = parted(&batch, start);
                        self.hold(&ended)?;
                        self.made = self.computed()?;
                        self.hold(&begun)?;
                    }
                },
            }
        }
    }

    /// Where the last partition of a batch begins, unless that is the one that is held.
    fn last_partition(&self, batch: &RecordBatch) -> PlanResult<Option<usize>> {
        let ranges = partitions(batch, &self.keys)?;
        match (ranges.last(), self.held.last()) {
            (Some(last), _) if last.start > 0 => Ok(Some(last.start)),
            (_, Some(held)) => {
                let ends = seam(held, batch)?;
                Ok((partitions(&ends, &self.keys)?.len() > 1).then_some(0))
            }
            (_, None) => Ok(None),
        }
    }

    fn hold(&mut self, batch: &RecordBatch) -> PlanResult<()> {
        if batch.num_rows() > 0 {
            self.reservation.try_grow(bytes(batch))?;
            self.held.push(compacted(batch)?);
        }
        Ok(())
    }

    /// The rows that are held, of whole partitions, with the calls' values.
    fn computed(&mut self) -> PlanResult<Option<RecordBatch>> {
        let Some(first) = self.held.first() else { return Ok(None) };
        let (mut own, mut rows) = (0, 0);
        for batch in &self.held {
            own += bytes(batch);
            rows += batch.num_rows();
        }
        // They are copied into one piece.
        self.reservation.try_grow(own + VALUE_BYTES * self.calls.len() * rows)?;
        let together = concat_batches(&first.schema(), &self.held)?;
        self.held.clear();
        self.reservation.shrink(own);
        let ranges = partitions(&together, &self.keys)?;
        let values = self.calls.iter().map(|call| {
            let of_partition = |range: &std::ops::Range<usize>| {
                call.evaluate(&together.slice(range.start, range.len()))
            };
            let parts = ranges.iter().map(of_partition).collect::<PlanResult<Vec<ArrayRef>>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            Ok(concat(&parts)?)
        });
        let values = values.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let columns = together.columns().iter().cloned().chain(values).collect();
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }
}

/// Which rows of a batch are of one partition each.
pub fn partitions(
    batch: &RecordBatch,
    keys: &[PhysicalSortExpr],
) -> PlanResult<Vec<std::ops::Range<usize>>> {
    let keys = keys.iter().map(|key| key.evaluate_to_sort_column(batch));
    evaluate_partition_ranges(batch.num_rows(), &keys.collect::<PlanResult<Vec<_>>>()?)
}

/// The last row of one batch and the first of the next, which tell whether the one goes on in the other.
pub fn seam(last: &RecordBatch, next: &RecordBatch) -> PlanResult<RecordBatch> {
    let ends = [&last.slice(last.num_rows() - 1, 1), &next.slice(0, 1)];
    Ok(concat_batches(&next.schema(), ends)?)
}

/// What the values of a batch take.
pub fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(shown_bytes).sum()
}

/// The first rows of a batch, and the others.
pub fn parted(batch: &RecordBatch, at: usize) -> (RecordBatch, RecordBatch) {
    (batch.slice(0, at), batch.slice(at, batch.num_rows() - at))
}
