//! Aggregates from a partition's first row to the current row's last peer: `sum(n) OVER (ORDER BY day)`.
//!
//! That is the frame of each window with an order and without a frame clause, and one of `GROUPS`. DataFusion's
//! operator evaluates all peers again with each batch of them, which costs the square of their number, and does
//! not account for the memory. Its input is sorted. The operator here holds the peers of the last row, reserves
//! their memory, and continues with its accumulators: it evaluates each row once and one value for all peers.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortColumn;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
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
use tidemill_base::batch_compaction::compact_batch;
use tidemill_base::error::Error;
use tidemill_planning::DynTreeNode;

use crate::execution_override::ExecutionOverride;
use crate::windows::whole_partitions::{
    as_plain_aggregate, batch_bytes, boundary_rows, split_batch,
};
use crate::windows::window_output::{
    CallValues, OUTPUT_PORTION_BYTES, PendingWindowRows, variable_bytes,
};
use tidemill_planning::error_carrier::into_datafusion_error;

/// The operator's name, also in the memory pool.
pub(crate) const RUNNING_TOTALS_CONSUMER: &str = "RunningTotals";

/// A physical rule that replaces DataFusion's operator for running aggregates.
#[derive(Debug)]
pub struct RunningTotalsRule;

impl PhysicalOptimizerRule for RunningTotalsRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            let Some(step) = plan.downcast_ref::<BoundedWindowAggExec>() else {
                return Ok(Transformed::no(plan));
            };
            let order = step.window_expr().first().map(|call| call.order_by());
            let is_sorted = matches!(step.input_order_mode, InputOrderMode::Sorted)
                && step.window_expr().iter().all(|call| Some(call.order_by()) == order);
            if !is_sorted {
                return Ok(Transformed::no(plan));
            }
            match step.window_expr().iter().filter(|call| is_running_aggregate(call)).count() {
                0 => Ok(Transformed::no(plan)),
                all if all == step.window_expr().len() => {
                    let ours = ExecutionOverride {
                        name: RUNNING_TOTALS_CONSUMER,
                        datafusion_plan: plan,
                        execute_fn: execute_running_totals,
                    };
                    Ok(Transformed::yes(Arc::new(ours) as _))
                }
                _ => Ok(Transformed::yes(split_running_calls(step, &plan.schema())?)),
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

fn is_running_aggregate(call: &Arc<dyn WindowExpr>) -> bool {
    let frame = call.get_window_frame();
    as_plain_aggregate(call).is_some()
        && !call.order_by().is_empty()
        && matches!(frame.units, WindowFrameUnits::Range | WindowFrameUnits::Groups)
        && matches!(&frame.start_bound, WindowFrameBound::Preceding(bound) if bound.is_null())
        && matches!(frame.end_bound, WindowFrameBound::CurrentRow)
}

/// Splits an operator of which only some calls are running aggregates: puts these above the others and restores
/// the order of the columns.
fn split_running_calls(
    step: &BoundedWindowAggExec,
    schema: &SchemaRef,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let can_repartition = !step.partition_keys().is_empty();
    let of = |calls: Vec<Arc<dyn WindowExpr>>, input| {
        BoundedWindowAggExec::try_new(calls, input, InputOrderMode::Sorted, can_repartition)
    };
    let (ours, others): (Vec<_>, Vec<_>) =
        step.window_expr().iter().cloned().partition(is_running_aggregate);
    let first = step.input().schema().fields().len();
    let (mut next_other, mut next_ours) = (first, first + others.len());
    let below = Arc::new(of(others, Arc::clone(step.input()))?);
    let theirs: Arc<dyn ExecutionPlan> = Arc::new(of(ours, below)?);
    let calls = step.window_expr().iter().map(|call| {
        let next = if is_running_aggregate(call) { &mut next_ours } else { &mut next_other };
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
    let ours = Arc::new(ExecutionOverride {
        name: RUNNING_TOTALS_CONSUMER,
        datafusion_plan: theirs,
        execute_fn: execute_running_totals,
    });
    Ok(Arc::new(ProjectionExec::try_new(columns, ours)?))
}

fn execute_running_totals(
    theirs: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> PlanResult<SendableRecordBatchStream> {
    let unexpected = || into_datafusion_error(Error::Internal("a window of another kind".into()));
    let step = theirs.downcast_ref::<BoundedWindowAggExec>().ok_or_else(unexpected)?;
    let calls = step.window_expr().iter();
    let calls =
        calls.map(|call| RunningCall::new(as_plain_aggregate(call).ok_or_else(unexpected)?));
    let calls = calls.collect::<PlanResult<Vec<_>>>()?;
    let consumer = MemoryConsumer::new(format!("{RUNNING_TOTALS_CONSUMER}[{partition}]"));
    let totals = RunningTotalsStream {
        partition_keys: step.partition_by_sort_keys()?,
        order_keys: step
            .window_expr()
            .first()
            .map_or_else(Vec::new, |call| call.order_by().to_vec()),
        calls,
        schema: theirs.schema(),
        batch_rows: context.session_config().batch_size(),
        reservation: consumer.register(context.memory_pool()),
        input: Some(step.input().execute(partition, context)?),
        current_batch: None,
        open_peers: Vec::new(),
        output_queue: VecDeque::new(),
    };
    let batches = stream::try_unfold(totals, |mut totals| async move {
        Ok(totals.next_batch().await?.map(|batch| (batch, totals)))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(theirs.schema(), batches)))
}

/// A running aggregate in evaluation.
struct RunningCall {
    aggregate: AggregateFunctionExpr,
    /// State of the partition's rows up to now.
    accumulator: Box<dyn Accumulator>,
}

impl RunningCall {
    fn new(call: &PlainAggregateWindowExpr) -> PlanResult<Self> {
        let aggregate = call.get_aggregate_expr().clone();
        let accumulator = aggregate.create_accumulator()?;
        Ok(RunningCall { aggregate, accumulator })
    }
}

/// A batch with evaluated arguments, of which some peer groups may still be to be aggregated.
struct PartlyEvaluatedBatch {
    batch: RecordBatch,
    /// Arguments of each call.
    arguments: Vec<Vec<ArrayRef>>,
    /// Ranges of peers. The last range may continue in the next batch.
    peer_groups: Vec<Range<usize>>,
    /// Index of the next peer group.
    next_peer_group: usize,
    /// The partitions that begin at or after the next peer group.
    partition_starts: Peekable<IntoIter<Range<usize>>>,
}

/// Rows with their values, to be emitted.
enum EvaluatedRows {
    Pending(PendingWindowRows),
    /// Rows that share the values.
    Peers(RecordBatch, Arc<Vec<ScalarValue>>),
}

/// The state of an execution.
struct RunningTotalsStream {
    partition_keys: Vec<PhysicalSortExpr>,
    order_keys: Vec<PhysicalSortExpr>,
    calls: Vec<RunningCall>,
    schema: SchemaRef,
    batch_rows: usize,
    /// `None` once the input has ended.
    input: Option<SendableRecordBatchStream>,
    current_batch: Option<PartlyEvaluatedBatch>,
    /// Peers of the last row; the accumulators contain them already.
    open_peers: Vec<RecordBatch>,
    output_queue: VecDeque<EvaluatedRows>,
    /// Memory reservation for held rows, queued rows and accumulators.
    reservation: MemoryReservation,
}

impl RunningTotalsStream {
    async fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            match self.output_queue.pop_front() {
                Some(EvaluatedRows::Pending(mut rows)) => {
                    let batch = rows.next_batch(&self.schema, self.batch_rows)?;
                    if batch.is_some() {
                        self.output_queue.push_front(EvaluatedRows::Pending(rows));
                        return Ok(batch);
                    }
                    continue;
                }
                Some(EvaluatedRows::Peers(rows, values)) => {
                    self.output_queue.push_front(EvaluatedRows::Pending(
                        PendingWindowRows::from_single_group(rows, &values),
                    ));
                    continue;
                }
                None => {}
            }
            if let Some(underway) = self.current_batch.take() {
                self.evaluate_peer_groups(underway)?;
                continue;
            }
            let Some(input) = &mut self.input else { return Ok(None) };
            match input.next().await.transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.accept_batch(batch)?,
                None => {
                    self.input = None;
                    self.emit_open_peers()?;
                }
            }
        }
    }

    /// Evaluates the keys of a batch that delimit partitions, and those that delimit peers.
    fn evaluate_sort_keys(
        &self,
        batch: &RecordBatch,
    ) -> PlanResult<(Vec<SortColumn>, Vec<SortColumn>)> {
        let of = |keys: &[PhysicalSortExpr]| {
            let columns = keys.iter().map(|key| key.evaluate_to_sort_column(batch));
            columns.collect::<PlanResult<Vec<_>>>()
        };
        let partition = of(&self.partition_keys)?;
        let equals = partition.iter().cloned().chain(of(&self.order_keys)?).collect();
        Ok((partition, equals))
    }

    fn accept_batch(&mut self, batch: RecordBatch) -> PlanResult<()> {
        let rows = batch.num_rows();
        let (partition, equals) = self.evaluate_sort_keys(&batch)?;
        let groups = evaluate_partition_ranges(rows, &equals)?;
        let mut begins = evaluate_partition_ranges(rows, &partition)?.into_iter().peekable();
        if let Some(last) = self.open_peers.last() {
            let (partition, equals) = self.evaluate_sort_keys(&boundary_rows(last, &batch)?)?;
            if evaluate_partition_ranges(2, &partition)?.len() == 1 {
                begins.next();
            }
            if evaluate_partition_ranges(2, &equals)?.len() == 2 {
                self.emit_open_peers()?;
            }
        }
        let arguments = self.calls.iter().map(|call| {
            let arguments = call.aggregate.expressions().into_iter();
            arguments.map(|argument| argument.evaluate(&batch)?.into_array(rows)).collect()
        });
        let arguments = arguments.collect::<PlanResult<Vec<Vec<ArrayRef>>>>()?;
        self.current_batch = Some(PartlyEvaluatedBatch {
            batch,
            arguments,
            peer_groups: groups,
            next_peer_group: 0,
            partition_starts: begins,
        });
        Ok(())
    }

    /// Aggregates a batch up to its end, or until the values have grown to a portion.
    fn evaluate_peer_groups(&mut self, mut work: PartlyEvaluatedBatch) -> PlanResult<()> {
        let first = work.next_peer_group;
        let open = work.peer_groups.len() - 1;
        let mut values: Vec<VecDeque<ScalarValue>> = vec![VecDeque::new(); self.calls.len()];
        let mut long = 0;
        while let Some(group) = work.peer_groups.get(work.next_peer_group)
            && long < OUTPUT_PORTION_BYTES
        {
            let begins_partition =
                work.partition_starts.next_if(|partition| partition.start == group.start).is_some();
            for ((call, arguments), values) in
                self.calls.iter_mut().zip(&work.arguments).zip(&mut values)
            {
                if begins_partition {
                    call.accumulator = call.aggregate.create_accumulator()?;
                }
                let arguments: Vec<ArrayRef> =
                    arguments.iter().map(|all| all.slice(group.start, group.len())).collect();
                call.accumulator.update_batch(&arguments)?;
                if work.next_peer_group < open {
                    let value = call.accumulator.evaluate()?;
                    long += variable_bytes(&value);
                    values.push_back(value);
                }
            }
            work.next_peer_group += 1;
        }
        let ended = &work.peer_groups[first..work.next_peer_group.min(open)];
        if let (Some(begin), Some(end)) = (ended.first(), ended.last()) {
            if first == 0 && !self.open_peers.is_empty() {
                // They are peers of the first group's rows; otherwise they would have been emitted.
                self.emit_peers(values.iter().map(|values| values[0].clone()).collect());
            }
            let rows = work.batch.slice(begin.start, end.end - begin.start);
            let values = values.into_iter().map(CallValues::PerGroup).collect();
            self.output_queue.push_back(EvaluatedRows::Pending(PendingWindowRows::new(
                rows,
                ended.iter().map(Range::len),
                values,
            )));
        }
        if work.next_peer_group < work.peer_groups.len() {
            self.current_batch = Some(work);
        } else {
            let (_, begun) = split_batch(&work.batch, work.peer_groups[open].start);
            self.open_peers.push(compact_batch(&begun)?);
        }
        let held: usize = self.open_peers.iter().map(batch_bytes).sum();
        let kept: usize = self.calls.iter().map(|call| call.accumulator.size()).sum();
        let waiting = self.output_queue.iter().map(|made| match made {
            EvaluatedRows::Peers(rows, _) => batch_bytes(rows),
            EvaluatedRows::Pending(_) => 0,
        });
        self.reservation.try_resize(held + kept + long + waiting.sum::<usize>())
    }

    /// Emits the open peers, after the last of them has come.
    fn emit_open_peers(&mut self) -> PlanResult<()> {
        if self.open_peers.is_empty() {
            return Ok(());
        }
        let values = self.calls.iter_mut().map(|call| call.accumulator.evaluate());
        let values = values.collect::<PlanResult<Vec<_>>>()?;
        self.emit_peers(values);
        Ok(())
    }

    fn emit_peers(&mut self, values: Vec<ScalarValue>) {
        let values = Arc::new(values);
        let held = std::mem::take(&mut self.open_peers).into_iter();
        self.output_queue.extend(held.map(|rows| EvaluatedRows::Peers(rows, Arc::clone(&values))));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray, UInt32Array};
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, UInt32Type};
    use datafusion::common::tree_node::TreeNodeRecursion;
    use tidemill_planning::plan_sql;

    use super::*;
    use crate::amplifying_functions::tests::open_test_session;

    #[test]
    fn operator_replaces_windows_with_running_frames() {
        let context = open_test_session(64 << 20);
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
            ("sum(n) FILTER (WHERE n > 1) OVER (ORDER BY n)", 1),
            ("sum(n) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING)", 0),
            ("sum(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND CURRENT ROW)", 0),
            ("sum(n) OVER ()", 0),
            ("rank() OVER (ORDER BY n)", 0),
        ] {
            let sql = format!("SELECT {calls} FROM t");
            let mut found = 0;
            let plan = runtime.block_on(async {
                plan_sql(&context, &sql).unwrap().create_physical_plan().await.unwrap()
            });
            plan.apply_dyn(&mut |step| {
                found += usize::from(step.name() == RUNNING_TOTALS_CONSUMER);
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
            assert_eq!(found, steps, "{calls}");
        }
    }

    /// The value of `string_agg` over many rows is as long as all of them together, and each row has it.
    #[test]
    fn long_shared_values_are_repeated_in_bounded_batches() {
        let context = open_test_session(64 << 20);
        let rows = 1200_u32;
        let text = |n: u32| format!("{n:0>250}");
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(UInt32Array::from_iter_values(0..rows)) as ArrayRef),
            ("k", Arc::new(UInt32Array::from_iter_values((0..rows).map(|n| n / 400)))),
            ("s", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
        ])
        .unwrap();
        context.register_batch("t", batch).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let chosen = "FILTER (WHERE n % 3 = 1)";
        let all = |_| true;
        let a_third = |n: u32| n % 3 == 1;
        type Of<'a> = &'a dyn Fn(u32) -> bool;
        type Frame<'a> = &'a dyn Fn(u32) -> (u32, u32);
        let last = rows - 1;
        let cases: [(&str, Of<'_>, Frame<'_>); 8] = [
            ("OVER ()", &all, &|_| (0, last)),
            (&format!("{chosen} OVER ()"), &a_third, &|_| (0, last)),
            ("OVER (PARTITION BY k)", &all, &|n| (n / 400 * 400, n / 400 * 400 + 399)),
            (&format!("{chosen} OVER (PARTITION BY k)"), &a_third, &|n| {
                (n / 400 * 400, n / 400 * 400 + 399)
            }),
            ("OVER (ORDER BY k)", &all, &|n| (0, n / 400 * 400 + 399)),
            (&format!("{chosen} OVER (ORDER BY k)"), &a_third, &|n| (0, n / 400 * 400 + 399)),
            ("OVER (ORDER BY n)", &all, &|n| (0, n)),
            (&format!("{chosen} OVER (PARTITION BY k ORDER BY n)"), &a_third, &|n| {
                (n / 400 * 400, n)
            }),
        ];
        for (over, counts, frame) in cases {
            let sql = format!("SELECT n, string_agg(s, '') {over} FROM t");
            let mut seen = 0;
            runtime.block_on(async {
                let rows = plan_sql(&context, &sql).unwrap();
                let mut rows = rows.execute_stream().await.unwrap();
                while let Some(batch) = rows.next().await {
                    let batch = batch.unwrap();
                    let numbers = batch.column(0).as_primitive::<UInt32Type>();
                    let texts = cast(batch.column(1), &DataType::Utf8).unwrap();
                    let texts = texts.as_string::<i32>();
                    let bytes: usize = texts.iter().flatten().map(str::len).sum();
                    assert!(bytes <= OUTPUT_PORTION_BYTES, "{over}: {bytes} bytes");
                    for (row, n) in numbers.values().iter().enumerate() {
                        let (first, last) = frame(*n);
                        let of = (first..=last).filter(|n| counts(*n));
                        // Rows of one key come in any order.
                        let mut found: Vec<u32> = Vec::new();
                        for piece in texts.value(row).as_bytes().chunks(250) {
                            found.push(std::str::from_utf8(piece).unwrap().parse().unwrap());
                        }
                        found.sort_unstable();
                        assert_eq!(found, of.collect::<Vec<_>>(), "{over}, {n}");
                    }
                    seen += numbers.len();
                }
            });
            assert_eq!(seen, 1200, "{over}");
        }
    }
}
