//! Windows that need all rows of a partition: `count() OVER (PARTITION BY user)`.
//!
//! DataFusion's step holds all of its input, and asks nobody for the memory. The rows come sorted by
//! partition, so a step of ours in its place holds one partition and what came with its end, asks for what it
//! holds, and hands on rows as partitions end.

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

use crate::in_place::InPlace;
use crate::messages::external;
use crate::windows::beside::{Beside, PORTION, Values, long_bytes};

/// What the step registers with the memory pool.
pub(crate) const CONSUMER: &str = "WholePartitions";

/// What a value of a call that has one for each row takes, about.
const VALUE_BYTES: usize = 16;

/// Puts the step in the place of DataFusion's.
#[derive(Debug)]
pub(crate) struct OnePartitionAtATime;

impl PhysicalOptimizerRule for OnePartitionAtATime {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
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
        calls: step.window_expr().iter().map(Call::new).collect(),
        schema: theirs.schema(),
        batch_rows: context.session_config().batch_size(),
        reservation: consumer.register(context.memory_pool()),
        input: Some(step.input().execute(partition, context)?),
        held: Vec::new(),
        held_bytes: 0,
        ended: None,
        made: None,
    };
    let batches = stream::try_unfold(window, |mut window| async move {
        Ok(window.next().await?.map(|batch| (batch, window)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(theirs.schema(), batches)))
}

/// A call of the step.
enum Call {
    /// All rows of a partition have one value.
    Shared(Box<AggregateFunctionExpr>),
    Each(Arc<dyn WindowExpr>),
}

impl Call {
    fn new(call: &Arc<dyn WindowExpr>) -> Self {
        let frame = call.get_window_frame();
        let is_end = |bound: &WindowFrameBound| match bound {
            WindowFrameBound::CurrentRow => {
                call.order_by().is_empty() && frame.units == WindowFrameUnits::Range
            }
            bound => bound.is_unbounded(),
        };
        match aggregate(call) {
            Some(aggregate) if is_end(&frame.start_bound) && is_end(&frame.end_bound) => {
                Call::Shared(Box::new(aggregate.get_aggregate_expr().clone()))
            }
            _ => Call::Each(Arc::clone(call)),
        }
    }
}

/// Rows of whole partitions, of which some may not have their values yet.
struct Ended {
    rows: RecordBatch,
    bytes: usize,
    partitions: Peekable<IntoIter<Range<usize>>>,
}

/// The step at work.
struct Window {
    keys: Vec<PhysicalSortExpr>,
    calls: Vec<Call>,
    schema: SchemaRef,
    batch_rows: usize,
    /// None once it has ended.
    input: Option<SendableRecordBatchStream>,
    /// The rows of the partition that has not ended yet.
    held: Vec<RecordBatch>,
    held_bytes: usize,
    ended: Option<Ended>,
    /// What is to be handed on.
    made: Option<Beside>,
    /// Of what is held, what has ended and what is made.
    reservation: MemoryReservation,
}

impl Window {
    async fn next(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            if let Some(made) = &mut self.made {
                match made.next(&self.schema, self.batch_rows)? {
                    None => self.made = None,
                    made => return Ok(made),
                }
            }
            if let Some(mut ended) = self.ended.take() {
                if ended.partitions.peek().is_some() {
                    self.made = Some(self.computed(&mut ended)?);
                    self.ended = Some(ended);
                } else {
                    drop(ended);
                    self.charge(0)?;
                }
                continue;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next().await.transpose()? {
                None => {
                    self.input = None;
                    self.end()?;
                }
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => match self.last_partition(&batch)? {
                    None => self.hold(&batch)?,
                    Some(start) => {
                        let (ended, begun) = parted(&batch, start);
                        self.hold(&ended)?;
                        self.end()?;
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
            self.held_bytes += bytes(batch);
            self.charge(0)?;
            self.held.push(compact_batch(batch)?);
        }
        Ok(())
    }

    /// What is held is of whole partitions.
    fn end(&mut self) -> PlanResult<()> {
        let Some(first) = self.held.first() else { return Ok(()) };
        // They are copied into one piece.
        let bytes = self.held_bytes;
        self.charge(bytes)?;
        let rows = concat_batches(&first.schema(), &self.held)?;
        self.held.clear();
        self.held_bytes = 0;
        let partitions = partitions(&rows, &self.keys)?.into_iter().peekable();
        self.ended = Some(Ended { rows, bytes, partitions });
        self.charge(0)
    }

    /// The rows of the next partitions with the calls' values: a batch of them, or one partition.
    fn computed(&self, ended: &mut Ended) -> PlanResult<Beside> {
        let mut values: Vec<_> = self.calls.iter().map(|_| (Vec::new(), VecDeque::new())).collect();
        let mut groups = Vec::new();
        let start = ended.partitions.peek().map_or(0, |next| next.start);
        let (mut end, mut long) = (start, 0);
        while let Some(partition) = ended.partitions.next_if(|next| {
            groups.is_empty() || (next.end - start <= self.batch_rows && long < PORTION)
        }) {
            let rows = ended.rows.slice(partition.start, partition.len());
            for (call, (each, shared)) in self.calls.iter().zip(&mut values) {
                match call {
                    Call::Each(call) => each.push(call.evaluate(&rows)?),
                    Call::Shared(aggregate) => {
                        let value = self.value(aggregate, &rows, ended.bytes + long)?;
                        long += long_bytes(&value);
                        shared.push_back(value);
                    }
                }
            }
            groups.push(partition.len());
            end = partition.end;
        }
        let values = self.calls.iter().zip(values).map(|(call, (each, shared))| match call {
            Call::Shared(_) => Ok(Values::Shared(shared)),
            Call::Each(_) => {
                let parts: Vec<&dyn Array> = each.iter().map(AsRef::as_ref).collect();
                Ok(Values::Each(concat(&parts)?))
            }
        });
        let values = values.collect::<PlanResult<Vec<_>>>()?;
        let columns = values.iter().filter(|values| matches!(values, Values::Each(_))).count();
        self.charge(ended.bytes + long + VALUE_BYTES * columns * (end - start))?;
        Ok(Beside::new(ended.rows.slice(start, end - start), groups, values))
    }

    /// The value of all rows of a partition.
    fn value(
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
        if own > PORTION {
            self.charge(others + own)?;
        }
        accumulator.evaluate()
    }

    /// Asks for what is held and `more`.
    fn charge(&self, more: usize) -> PlanResult<()> {
        let ended = self.ended.as_ref().map_or(0, |ended| ended.bytes);
        self.reservation.try_resize(self.held_bytes + ended + more)
    }
}

/// A call that is of an aggregate, whose condition is an argument
/// ([`filtered`](crate::windows::filtered)).
pub(crate) fn aggregate(call: &Arc<dyn WindowExpr>) -> Option<&PlainAggregateWindowExpr> {
    call.as_any().downcast_ref()
}

/// Which rows of a batch are of one partition each.
pub(crate) fn partitions(
    batch: &RecordBatch,
    keys: &[PhysicalSortExpr],
) -> PlanResult<Vec<Range<usize>>> {
    let keys = keys.iter().map(|key| key.evaluate_to_sort_column(batch));
    evaluate_partition_ranges(batch.num_rows(), &keys.collect::<PlanResult<Vec<_>>>()?)
}

/// The last row of one batch and the first of the next, which tell whether the one goes on in the other.
pub(crate) fn seam(last: &RecordBatch, next: &RecordBatch) -> PlanResult<RecordBatch> {
    let ends = [&last.slice(last.num_rows() - 1, 1), &next.slice(0, 1)];
    Ok(concat_batches(&next.schema(), ends)?)
}

/// What the values of a batch take.
pub(crate) fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(visible_values_bytes).sum()
}

/// The first rows of a batch, and the others.
pub(crate) fn parted(batch: &RecordBatch, at: usize) -> (RecordBatch, RecordBatch) {
    (batch.slice(0, at), batch.slice(at, batch.num_rows() - at))
}
