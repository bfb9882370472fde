//! Windows that need all rows of a partition: `count() OVER (PARTITION BY user)`.
//!
//! DataFusion's operator holds all of its input and does not account for the memory. The rows come sorted by
//! partition. The operator here holds one partition and the batch in which it ends, reserves memory for them,
//! and emits rows as partitions end.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::WindowAggExec;
use futures::{StreamExt, stream};
use tidemill_base::batch_compaction::{compact_batch, visible_values_bytes};
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::execution_override::ExecutionOverride;
use crate::windows::window_output::{
    CallValues, OUTPUT_PORTION_BYTES, PendingWindowRows, variable_bytes,
};
use tidemill_planning::error_carrier::into_datafusion_error;

/// The operator's name, also in the memory pool.
pub(crate) const WHOLE_PARTITIONS_CONSUMER: &str = "WholePartitions";

/// Approximate bytes of a value of a call that has one value for each row.
const PER_ROW_VALUE_BYTES: usize = 16;

/// A physical rule that replaces DataFusion's [`WindowAggExec`].
#[derive(Debug)]
pub struct WholePartitionsRule;

impl PhysicalOptimizerRule for WholePartitionsRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            Ok(match plan.downcast_ref::<WindowAggExec>() {
                Some(_) => Transformed::yes(Arc::new(ExecutionOverride {
                    name: WHOLE_PARTITIONS_CONSUMER,
                    datafusion_plan: plan,
                    execute_fn: execute_whole_partitions,
                }) as _),
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

fn execute_whole_partitions(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let Some(step) = theirs.downcast_ref::<WindowAggExec>() else {
        return Err(into_datafusion_error(Error::Internal("a window of another kind".into())));
    };
    let consumer = MemoryConsumer::new(format!("{WHOLE_PARTITIONS_CONSUMER}[{partition}]"));
    let window = WholePartitionStream {
        keys: step.partition_by_sort_keys()?,
        calls: step.window_expr().iter().map(PartitionCall::new).collect(),
        schema: theirs.schema(),
        batch_rows: context.session_config().batch_size(),
        reservation: consumer.register(context.memory_pool()),
        input: Some(step.input().execute(partition, context)?),
        open_partition: Vec::new(),
        open_partition_bytes: 0,
        complete_partitions: None,
        pending_output: None,
    };
    let batches = stream::try_unfold(window, |mut window| async move {
        Ok(window.next_batch().await?.map(|batch| (batch, window)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(theirs.schema(), batches)))
}

/// A window call.
enum PartitionCall {
    /// An aggregate with one value for all rows of a partition.
    PerPartition(Box<AggregateFunctionExpr>),
    PerRow(Arc<dyn WindowExpr>),
}

impl PartitionCall {
    fn new(call: &Arc<dyn WindowExpr>) -> Self {
        let frame = call.get_window_frame();
        let is_end = |bound: &WindowFrameBound| match bound {
            WindowFrameBound::CurrentRow => {
                call.order_by().is_empty() && frame.units == WindowFrameUnits::Range
            }
            bound => bound.is_unbounded(),
        };
        match as_plain_aggregate(call) {
            Some(aggregate) if is_end(&frame.start_bound) && is_end(&frame.end_bound) => {
                PartitionCall::PerPartition(Box::new(aggregate.get_aggregate_expr().clone()))
            }
            _ => PartitionCall::PerRow(Arc::clone(call)),
        }
    }
}

/// Rows of complete partitions, of which some may not be evaluated yet.
struct CompletePartitions {
    rows: RecordBatch,
    bytes: usize,
    partitions: Peekable<IntoIter<Range<usize>>>,
}

/// The state of an execution.
struct WholePartitionStream {
    keys: Vec<PhysicalSortExpr>,
    calls: Vec<PartitionCall>,
    schema: SchemaRef,
    batch_rows: usize,
    /// `None` once the input has ended.
    input: Option<SendableRecordBatchStream>,
    /// Rows of the partition that has not ended yet.
    open_partition: Vec<RecordBatch>,
    open_partition_bytes: usize,
    complete_partitions: Option<CompletePartitions>,
    /// Evaluated rows to emit.
    pending_output: Option<PendingWindowRows>,
    /// Memory reservation for the open partition, complete partitions and evaluated rows.
    reservation: MemoryReservation,
}

impl WholePartitionStream {
    async fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            if let Some(made) = &mut self.pending_output {
                match made.next_batch(&self.schema, self.batch_rows)? {
                    None => self.pending_output = None,
                    made => return Ok(made),
                }
            }
            if let Some(mut ended) = self.complete_partitions.take() {
                if ended.partitions.peek().is_some() {
                    self.pending_output = Some(self.evaluate_partitions(&mut ended)?);
                    self.complete_partitions = Some(ended);
                } else {
                    drop(ended);
                    self.resize_reservation(0)?;
                }
                continue;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next().await.transpose()? {
                None => {
                    self.input = None;
                    self.complete_open_partition()?;
                }
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => match self.last_partition_start(&batch)? {
                    None => self.append_to_open_partition(&batch)?,
                    Some(start) => {
                        let (ended, begun) = split_batch(&batch, start);
                        self.append_to_open_partition(&ended)?;
                        self.complete_open_partition()?;
                        self.append_to_open_partition(&begun)?;
                    }
                },
            }
        }
    }

    /// Returns the row at which the last partition of a batch begins, unless it continues the open partition.
    fn last_partition_start(&self, batch: &RecordBatch) -> PlanResult<Option<usize>> {
        let ranges = partition_ranges(batch, &self.keys)?;
        match (ranges.last(), self.open_partition.last()) {
            (Some(last), _) if last.start > 0 => Ok(Some(last.start)),
            (_, Some(held)) => {
                let ends = boundary_rows(held, batch)?;
                Ok((partition_ranges(&ends, &self.keys)?.len() > 1).then_some(0))
            }
            (_, None) => Ok(None),
        }
    }

    fn append_to_open_partition(&mut self, batch: &RecordBatch) -> PlanResult<()> {
        if batch.num_rows() > 0 {
            self.open_partition_bytes += batch_bytes(batch);
            self.resize_reservation(0)?;
            self.open_partition.push(compact_batch(batch)?);
        }
        Ok(())
    }

    /// Moves the open partition, which is now complete, to `complete_partitions`.
    fn complete_open_partition(&mut self) -> PlanResult<()> {
        let Some(first) = self.open_partition.first() else { return Ok(()) };
        // The batches are copied into one.
        let bytes = self.open_partition_bytes;
        self.resize_reservation(bytes)?;
        let rows = concat_batches(&first.schema(), &self.open_partition)?;
        self.open_partition.clear();
        self.open_partition_bytes = 0;
        let partitions = partition_ranges(&rows, &self.keys)?.into_iter().peekable();
        self.complete_partitions = Some(CompletePartitions { rows, bytes, partitions });
        self.resize_reservation(0)
    }

    /// Evaluates the calls for the next partitions: a batch of rows, or one partition.
    fn evaluate_partitions(&self, ended: &mut CompletePartitions) -> PlanResult<PendingWindowRows> {
        let mut values: Vec<_> = self.calls.iter().map(|_| (Vec::new(), VecDeque::new())).collect();
        let mut groups = Vec::new();
        let start = ended.partitions.peek().map_or(0, |next| next.start);
        let (mut end, mut long) = (start, 0);
        while let Some(partition) = ended.partitions.next_if(|next| {
            groups.is_empty()
                || (next.end - start <= self.batch_rows && long < OUTPUT_PORTION_BYTES)
        }) {
            let rows = ended.rows.slice(partition.start, partition.len());
            for (call, (each, shared)) in self.calls.iter().zip(&mut values) {
                match call {
                    PartitionCall::PerRow(call) => each.push(call.evaluate(&rows)?),
                    PartitionCall::PerPartition(aggregate) => {
                        let value = self.aggregate_value(aggregate, &rows, ended.bytes + long)?;
                        long += variable_bytes(&value);
                        shared.push_back(value);
                    }
                }
            }
            groups.push(partition.len());
            end = partition.end;
        }
        let values = self.calls.iter().zip(values).map(|(call, (each, shared))| match call {
            PartitionCall::PerPartition(_) => Ok(CallValues::PerGroup(shared)),
            PartitionCall::PerRow(_) => {
                let parts: Vec<&dyn Array> = each.iter().map(AsRef::as_ref).collect();
                Ok(CallValues::PerRow(concat(&parts)?))
            }
        });
        let values = values.collect::<PlanResult<Vec<_>>>()?;
        let columns =
            values.iter().filter(|values| matches!(values, CallValues::PerRow(_))).count();
        self.resize_reservation(
            ended.bytes + long + PER_ROW_VALUE_BYTES * columns * (end - start),
        )?;
        Ok(PendingWindowRows::new(ended.rows.slice(start, end - start), groups, values))
    }

    /// Computes the aggregate over all rows of a partition.
    fn aggregate_value(
        &self,
        aggregate: &AggregateFunctionExpr,
        rows: &RecordBatch,
        others: usize,
    ) -> PlanResult<ScalarValue> {
        let arguments = aggregate.expressions().into_iter();
        let arguments = arguments
            .map(|argument| argument.evaluate(rows)?.into_array(rows.num_rows()))
            .collect::<PlanResult<Vec<ArrayRef>>>()?;
        let mut accumulator = aggregate.create_accumulator()?;
        accumulator.update_batch(&arguments)?;
        let own = accumulator.size();
        if own > OUTPUT_PORTION_BYTES {
            self.resize_reservation(others + own)?;
        }
        accumulator.evaluate()
    }

    /// Resizes the reservation to the held rows and `more` bytes.
    fn resize_reservation(&self, more: usize) -> PlanResult<()> {
        let ended = self.complete_partitions.as_ref().map_or(0, |ended| ended.bytes);
        self.reservation.try_resize(self.open_partition_bytes + ended + more)
    }
}

/// Returns the plain aggregate of a call. The condition of its FILTER is an argument
/// ([`filter_clauses`](crate::windows::filter_clauses)).
pub(crate) fn as_plain_aggregate(call: &Arc<dyn WindowExpr>) -> Option<&PlainAggregateWindowExpr> {
    call.as_any().downcast_ref()
}

/// Returns the row ranges of the partitions of a batch.
pub(crate) fn partition_ranges(
    batch: &RecordBatch,
    keys: &[PhysicalSortExpr],
) -> PlanResult<Vec<Range<usize>>> {
    let keys = keys.iter().map(|key| key.evaluate_to_sort_column(batch));
    evaluate_partition_ranges(batch.num_rows(), &keys.collect::<PlanResult<Vec<_>>>()?)
}

/// Returns the last row of one batch and the first row of the next, to compare their keys.
pub(crate) fn boundary_rows(last: &RecordBatch, next: &RecordBatch) -> PlanResult<RecordBatch> {
    let ends = [&last.slice(last.num_rows() - 1, 1), &next.slice(0, 1)];
    Ok(concat_batches(&next.schema(), ends)?)
}

/// Returns the bytes that the values of a batch take.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(visible_values_bytes).sum()
}

/// Splits a batch at a row.
pub(crate) fn split_batch(batch: &RecordBatch, at: usize) -> (RecordBatch, RecordBatch) {
    (batch.slice(0, at), batch.slice(at, batch.num_rows() - at))
}
