//! Aggregates from a partition's first row to the current row's equals: `sum(n) OVER (ORDER BY day)`.
//!
//! That is the frame of each window with an order and without a frame, or one of `GROUPS`. DataFusion's
//! step looks at all equals anew with each batch of them, which takes the square of their number, and asks
//! nobody for the memory. The rows come sorted, so a step of ours in its place holds the rows that are equal
//! to the last one, asks for what it holds, and goes on with its accumulators: each row is looked at
//! once, and one value is made for all equals.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::utils::evaluate_partition_ranges;
use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Accumulator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use futures::{StreamExt, stream};

use crate::compact::compacted;
use crate::error::Error;
use crate::in_place::InPlace;
use crate::scan::external;
use crate::whole_partitions::{bytes, parted, seam};

/// What the step registers with the memory pool.
pub const CONSUMER: &str = "RunningTotals";

/// Puts the step in the place of DataFusion's.
#[derive(Debug)]
pub struct EqualsAtOnce;

impl PhysicalOptimizerRule for EqualsAtOnce {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(step) = plan.downcast_ref::<BoundedWindowAggExec>() else {
                return Ok(Transformed::no(plan));
            };
            let order = step.window_expr().first().map(|call| call.order_by());
            let is_sorted = matches!(step.input_order_mode, InputOrderMode::Sorted)
                && step.window_expr().iter().all(|call| Some(call.order_by()) == order);
            if !is_sorted {
                return Ok(Transformed::no(plan));
            }
            match step.window_expr().iter().filter(|call| is_running(call)).count() {
                0 => Ok(Transformed::no(plan)),
                all if all == step.window_expr().len() => {
                    let ours = InPlace { name: CONSUMER, theirs: plan, run };
                    Ok(Transformed::yes(Arc::new(ours) as _))
                }
                _ => Ok(Transformed::yes(apart(step, &plan.schema())?)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "equals_at_once"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_running(call: &Arc<dyn WindowExpr>) -> bool {
    let frame = call.get_window_frame();
    call.as_any().downcast_ref::<PlainAggregateWindowExpr>().is_some_and(|call| !has_filter(call))
        && !call.order_by().is_empty()
        && matches!(frame.units, WindowFrameUnits::Range | WindowFrameUnits::Groups)
        && matches!(&frame.start_bound, WindowFrameBound::Preceding(bound) if bound.is_null())
        && matches!(frame.end_bound, WindowFrameBound::CurrentRow)
}

/// Whether a call has a FILTER, which DataFusion tells nobody but in the text for its developers. Such a
/// call is left to it.
fn has_filter(call: &PlainAggregateWindowExpr) -> bool {
    !format!("{call:?}").ends_with(", filter: None }")
}

/// A step of which some calls are ours: these above the others, in the order that they had.
fn apart(step: &BoundedWindowAggExec, schema: &SchemaRef) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let can_repartition = !step.partition_keys().is_empty();
    let of = |calls: Vec<Arc<dyn WindowExpr>>, input| {
        BoundedWindowAggExec::try_new(calls, input, InputOrderMode::Sorted, can_repartition)
    };
    let (ours, others): (Vec<_>, Vec<_>) = step.window_expr().iter().cloned().partition(is_running);
    let first = step.input().schema().fields().len();
    let (mut next_other, mut next_ours) = (first, first + others.len());
    let below = Arc::new(of(others, Arc::clone(step.input()))?);
    let theirs: Arc<dyn ExecutionPlan> = Arc::new(of(ours, below)?);
    let calls = step.window_expr().iter().map(|call| {
        let next = if is_running(call) { &mut next_ours } else { &mut next_other };
        let index = *next;
        *next += 1;
        index
    });
    let indices: Vec<usize> = (0..first).chain(calls).collect();
    let columns = indices.into_iter().zip(schema.fields()).map(|(index, field)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
        (column, field.name().clone())
    });
    let columns: Vec<_> = columns.collect();
    let ours = Arc::new(InPlace { name: CONSUMER, theirs, run });
    Ok(Arc::new(ProjectionExec::try_new(columns, ours)?))
}

fn run(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let unexpected = || external(Error::Internal("a window of another kind".into()));
    let step = theirs.downcast_ref::<BoundedWindowAggExec>().ok_or_else(unexpected)?;
    let calls = step.window_expr().iter().map(|call| {
        let call = call.as_any().downcast_ref::<PlainAggregateWindowExpr>();
        Call::new(call.ok_or_else(unexpected)?)
    });
    let calls = calls.collect::<PlanResult<Vec<_>>>()?;
    let consumer = MemoryConsumer::new(format!("{CONSUMER}[{partition}]"));
    let totals = Totals {
        partition_keys: step.partition_by_sort_keys()?,
        order_keys: step
            .window_expr()
            .first()
            .map_or_else(Vec::new, |call| call.order_by().to_vec()),
        calls,
        schema: theirs.schema(),
        reservation: consumer.register(context.memory_pool()),
        input: Some(step.input().execute(partition, context)?),
        held: Vec::new(),
        made: VecDeque::new(),
    };
    let batches = stream::try_unfold(totals, |mut totals| async move {
        Ok(totals.next().await?.map(|batch| (batch, totals)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(theirs.schema(), batches)))
}

/// One aggregate at work.
struct Call {
    aggregate: AggregateFunctionExpr,
    /// Of the partition's rows until now.
    accumulator: Box<dyn Accumulator>,
}

impl Call {
    fn new(call: &PlainAggregateWindowExpr) -> PlanResult<Self> {
        let aggregate = call.get_aggregate_expr().clone();
        let accumulator = aggregate.create_accumulator()?;
        Ok(Call { aggregate, accumulator })
    }
}

/// The step at work.
struct Totals {
    partition_keys: Vec<PhysicalSortExpr>,
    order_keys: Vec<PhysicalSortExpr>,
    calls: Vec<Call>,
    schema: SchemaRef,
    /// None once it has ended.
    input: Option<SendableRecordBatchStream>,
    /// Rows that are equal to the last one that came, which the accumulators have.
    held: Vec<RecordBatch>,
    /// What is to be handed on.
    made: VecDeque<RecordBatch>,
    /// Of what is held, and of the accumulators.
    reservation: MemoryReservation,
}

impl Totals {
    async fn next(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            if let Some(made) = self.made.pop_front() {
                return Ok(Some(made));
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.take(&batch)?,
                None => {
                    self.input = None;
                    self.hand_on_held()?;
                }
            }
        }
    }

    /// The keys of a batch that rows of one partition have in common, and those of equals.
    fn keys(&self, batch: &RecordBatch) -> PlanResult<(Vec<SortColumn>, Vec<SortColumn>)> {
        let of = |keys: &[PhysicalSortExpr]| {
            let columns = keys.iter().map(|key| key.evaluate_to_sort_column(batch));
            columns.collect::<PlanResult<Vec<_>>>()
        };
        let partition = of(&self.partition_keys)?;
        let equals = partition.iter().cloned().chain(of(&self.order_keys)?).collect();
        Ok((partition, equals))
    }

    fn take(&mut self, batch: &RecordBatch) -> PlanResult<()> {
        let rows = batch.num_rows();
        let (partition, equals) = self.keys(batch)?;
        let groups = evaluate_partition_ranges(rows, &equals)?;
        let mut begins = evaluate_partition_ranges(rows, &partition)?.into_iter();
        let mut next_partition = begins.next().map(|range| range.start);
        if let Some(last) = self.held.last() {
            let (partition, equals) = self.keys(&seam(last, batch)?)?;
            if evaluate_partition_ranges(2, &partition)?.len() == 1 {
                next_partition = begins.next().map(|range| range.start);
            }
            if evaluate_partition_ranges(2, &equals)?.len() == 2 {
                self.hand_on_held()?;
            }
        }
        let arguments = self.calls.iter().map(|call| {
            let arguments = call.aggregate.expressions().into_iter();
            arguments.map(|argument| argument.evaluate(batch)?.into_array(rows)).collect()
        });
        let arguments = arguments.collect::<PlanResult<Vec<Vec<ArrayRef>>>>()?;
        let mut values: Vec<Vec<ScalarValue>> = vec![Vec::new(); self.calls.len()];
        let open = groups.len() - 1;
        for (index, group) in groups.iter().enumerate() {
            let begins_partition = next_partition == Some(group.start);
            if begins_partition {
                next_partition = begins.next().map(|range| range.start);
            }
            for ((call, arguments), values) in
                self.calls.iter_mut().zip(&arguments).zip(&mut values)
            {
                if begins_partition {
                    call.accumulator = call.aggregate.create_accumulator()?;
                }
                let arguments: Vec<ArrayRef> =
                    arguments.iter().map(|all| all.slice(group.start, group.len())).collect();
                call.accumulator.update_batch(&arguments)?;
                if index < open {
                    values.push(call.accumulator.evaluate()?);
                }
            }
        }
        let (ended, begun) = parted(batch, groups[open].start);
        if ended.num_rows() > 0 {
            if !self.held.is_empty() {
                // They are equal to the first group's rows, or they would have been handed on.
                let first = values.iter().map(|values| values[0].clone()).collect();
                self.hand_on(first)?;
            }
            let columns = values.into_iter().map(|values| spread(values, &groups[..open]));
            let columns = columns.collect::<PlanResult<Vec<_>>>()?;
            self.made.push_back(self.with(&ended, columns)?);
        }
        self.held.push(compacted(&begun)?);
        let held: usize = self.held.iter().map(bytes).sum();
        let kept: usize = self.calls.iter().map(|call| call.accumulator.size()).sum();
        self.reservation.try_resize(held + kept)
    }

    /// Hands on what is held, as no more of its equals come.
    fn hand_on_held(&mut self) -> PlanResult<()> {
        let values = self.calls.iter_mut().map(|call| call.accumulator.evaluate());
        let values = values.collect::<PlanResult<Vec<_>>>()?;
        self.hand_on(values)
    }

    fn hand_on(&mut self, values: Vec<ScalarValue>) -> PlanResult<()> {
        for batch in std::mem::take(&mut self.held) {
            let columns = values.iter().map(|value| value.to_array_of_size(batch.num_rows()));
            let columns = columns.collect::<PlanResult<Vec<_>>>()?;
            self.made.push_back(self.with(&batch, columns)?);
        }
        Ok(())
    }

    fn with(&self, batch: &RecordBatch, columns: Vec<ArrayRef>) -> PlanResult<RecordBatch> {
        let columns = batch.columns().iter().cloned().chain(columns).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// A value for each group, as one for each row.
fn spread(values: Vec<ScalarValue>, groups: &[Range<usize>]) -> PlanResult<ArrayRef> {
    let values = ScalarValue::iter_to_array(values)?;
    if groups.iter().all(|group| group.len() == 1) {
        return Ok(values);
    }
    let indices = groups
        .iter()
        .zip(0u32..)
        .flat_map(|(group, index)| std::iter::repeat_n(index, group.len()));
    Ok(take(&values, &UInt32Array::from_iter_values(indices), None)?)
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::TreeNodeRecursion;

    use super::*;
    use crate::amplify::tests::context;

    #[test]
    fn the_step_stands_where_it_can() {
        let context = context(64 << 20);
        let batch = RecordBatch::try_from_iter([(
            "n",
            Arc::new(UInt32Array::from(vec![1, 2])) as ArrayRef,
        )])
        .unwrap();
        context.register_batch("t", batch).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (calls, steps) in [
            ("sum(n) OVER (ORDER BY n)", 1),
            ("sum(n) OVER (ORDER BY n), rank() OVER (ORDER BY n)", 1),
            ("sum(n) OVER (ORDER BY n), sum(n) OVER (ORDER BY n % 2)", 2),
            ("sum(n) OVER (ORDER BY n GROUPS UNBOUNDED PRECEDING)", 1),
            ("sum(n) FILTER (WHERE n > 1) OVER (ORDER BY n)", 0),
            ("sum(n) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING)", 0),
            ("sum(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", 0),
            ("sum(n) OVER ()", 0),
            ("rank() OVER (ORDER BY n)", 0),
        ] {
            let sql = format!("SELECT {calls} FROM t");
            let mut found = 0;
            let plan = runtime.block_on(async {
                context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap()
            });
            plan.apply(|step| {
                found += usize::from(step.name() == CONSUMER);
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            assert_eq!(found, steps, "{calls}");
        }
    }
}
