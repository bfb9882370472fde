//! Evaluates window calls over the rows of a hash partition, for all groups at once where possible.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array,
    new_empty_array, new_null_array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{EmitTo, WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr,
    StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;

use crate::windows::hash_partitioned::RunningAggregateFn;
use crate::windows::hash_partitioned::row_order::{
    PartitionRowOrder, concat_arrays, row_number_u32,
};
use crate::windows::hash_partitioned::window_chain::CallInputColumns;
use crate::windows::window_output::OUTPUT_PORTION_BYTES;
use tidemill_planning::datafusion_names::{aggregates, windows};

/// Names of aggregates whose groups accumulators compute all groups at once, with a result that does not depend
/// on the order of rows.
const GROUPS_ACCUMULATOR_AGGREGATES: [&str; 17] = [
    aggregates::AVG,
    aggregates::BIT_AND,
    aggregates::BIT_OR,
    aggregates::BIT_XOR,
    aggregates::BOOL_AND,
    aggregates::BOOL_OR,
    aggregates::CORR,
    aggregates::COUNT,
    aggregates::COVAR_POP,
    aggregates::COVAR_SAMP,
    aggregates::MAX,
    aggregates::MIN,
    aggregates::STDDEV,
    aggregates::STDDEV_POP,
    aggregates::SUM,
    aggregates::VAR,
    aggregates::VAR_POP,
];

/// Maximum distance in rows of `lag` and `lead` that are evaluated for all partitions at once; a call with a
/// larger distance is evaluated partition by partition.
const SHIFT_ROWS_MAX: i64 = 1 << 10;

/// A window call with the way in which it is evaluated.
pub(super) struct WindowCall {
    evaluation: CallEvaluation,
    /// Index of its keys in the chain's `window_keys`.
    pub keys_index: usize,
    /// True if its SQL partitions are the groups of the hash partition.
    partitions_are_groups: bool,
    output_type: DataType,
}

enum CallEvaluation {
    RowPosition(PositionFunction),
    /// The value of the row `rows_before` rows earlier; a negative number means later.
    OffsetRow {
        value: Arc<dyn PhysicalExpr>,
        rows_before: i64,
    },
    /// The value of the frame's first or last row.
    FrameEdge {
        value: Arc<dyn PhysicalExpr>,
        is_last: bool,
        frame: PositionalFrame,
    },
    /// The number of rows of the frame with a value.
    FrameCount {
        value: Arc<dyn PhysicalExpr>,
        frame: PositionalFrame,
    },
    /// An aggregate of all rows of a partition.
    WholePartition(BoundAggregate),
    /// An aggregate from a partition's first row up to each row, or up to its last peer.
    RunningAggregate {
        aggregate: BoundAggregate,
        by_row: bool,
    },
    /// Any other call, evaluated partition by partition by DataFusion's expression. A column is `None` if the
    /// call does not use it.
    PerPartition {
        call: Arc<dyn WindowExpr>,
        schema: SchemaRef,
        columns: Vec<Option<Arc<dyn PhysicalExpr>>>,
    },
}

/// An aggregate with its arguments as expressions of the input's columns.
struct BoundAggregate {
    function: Box<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
}

#[derive(Clone, Copy)]
enum PositionFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
}

/// The output of a call for each row.
pub(super) enum CallOutput {
    PerRow(ArrayRef),
    /// An index into `values` for each row. Text is thus not repeated before it is emitted.
    Indexed {
        values: ArrayRef,
        indices: UInt32Array,
    },
}

/// The boundaries of a call's rows: the offsets at which partitions and peers begin, each followed by the end.
pub(super) struct CallBoundaries<'a> {
    pub partition_starts: &'a [u32],
    pub peer_starts: &'a [u32],
}

/// The resources with which calls are evaluated.
pub(super) struct EvaluationContext<'a> {
    pub running_aggregate: Option<RunningAggregateFn>,
    /// Memory reservation for the hash partition and the outputs of its calls.
    pub reservation: &'a MemoryReservation,
    /// Bytes that the hash partition and the outputs take.
    pub partition_bytes: usize,
}

impl EvaluationContext<'_> {
    /// Reserves the memory of one accumulator and releases it again, to fail if it is not available.
    fn check_accumulator_memory(&self, bytes: usize) -> PlanResult<()> {
        if bytes <= OUTPUT_PORTION_BYTES {
            return Ok(());
        }
        self.reservation.try_resize(self.partition_bytes + bytes)?;
        self.reservation.try_resize(self.partition_bytes)
    }
}

/// A frame whose bounds follow from positions alone, without a look at values.
#[derive(Clone, Copy)]
struct PositionalFrame {
    start: PositionalBound,
    end: PositionalBound,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PositionalBound {
    /// The first or last row of the partition.
    PartitionEnd,
    /// The row's farthest peer.
    Peers,
    /// A number of rows after the current row; before it if negative.
    RowOffset(i64),
}

impl PositionalFrame {
    fn from_window_frame(frame: &WindowFrame, has_order: bool) -> Option<PositionalFrame> {
        let bound = |bound: &WindowFrameBound| {
            let distance = match bound {
                WindowFrameBound::CurrentRow => {
                    return Some(match frame.units {
                        WindowFrameUnits::Rows => PositionalBound::RowOffset(0),
                        _ if has_order => PositionalBound::Peers,
                        _ => PositionalBound::PartitionEnd,
                    });
                }
                WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by,
            };
            if distance.is_null() {
                return Some(PositionalBound::PartitionEnd);
            }
            let ScalarValue::UInt64(Some(rows)) = distance else { return None };
            let rows = i64::try_from(*rows).unwrap_or(i64::MAX);
            let is_before = matches!(bound, WindowFrameBound::Preceding(_));
            (frame.units == WindowFrameUnits::Rows)
                .then_some(PositionalBound::RowOffset(if is_before { -rows } else { rows }))
        };
        // A frame cannot start at the partition's end or end at its start.
        let is_other = matches!(&frame.start_bound, WindowFrameBound::Following(by) if by.is_null())
            || matches!(&frame.end_bound, WindowFrameBound::Preceding(by) if by.is_null());
        if is_other {
            return None;
        }
        Some(PositionalFrame { start: bound(&frame.start_bound)?, end: bound(&frame.end_bound)? })
    }

    fn is_whole_partition(self) -> bool {
        (self.start, self.end) == (PositionalBound::PartitionEnd, PositionalBound::PartitionEnd)
    }

    /// Calls `with` with the frame of each row, as start and exclusive end; an end at or before the start means
    /// an empty frame.
    fn for_each_row(self, span: &CallBoundaries<'_>, mut with: impl FnMut(u32, u32)) {
        let mut equals = span.peer_starts.windows(2).peekable();
        for group in span.partition_starts.windows(2) {
            let (first, end) = (group[0], group[1]);
            let at = |place: u32, rows: i64| {
                let place = i64::from(place).saturating_add(rows);
                let place = place.clamp(i64::from(first), i64::from(end));
                u32::try_from(place).unwrap_or(end)
            };
            while let Some(equals) = equals.next_if(|equals| equals[0] < end) {
                for place in equals[0]..equals[1] {
                    let start = match self.start {
                        PositionalBound::PartitionEnd => first,
                        PositionalBound::Peers => equals[0],
                        PositionalBound::RowOffset(rows) => at(place, rows),
                    };
                    let end = match self.end {
                        PositionalBound::PartitionEnd => end,
                        PositionalBound::Peers => equals[1],
                        PositionalBound::RowOffset(rows) => at(place, rows.saturating_add(1)),
                    };
                    with(start, end);
                }
            }
        }
    }
}

impl WindowCall {
    /// Plans a call. Returns `None` for a call that DataFusion's operator has to run: its result has no bounded
    /// size and is not the value of a row.
    pub(super) fn try_new(
        call: &Arc<dyn WindowExpr>,
        columns: &CallInputColumns<'_>,
        span: usize,
        is_of_groups: bool,
    ) -> PlanResult<Option<WindowCall>> {
        let answers = call.field()?.data_type().clone();
        let has_order = !call.order_by().is_empty();
        let frame = PositionalFrame::from_window_frame(call.get_window_frame(), has_order);
        let is_fixed = answers.is_primitive() || answers == DataType::Boolean;
        let is_text = matches!(
            answers,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary
        );
        let kind = match window_function(call) {
            Some(function) => plan_window_function(function, columns, frame)?,
            None => plan_aggregate(call, columns, frame, is_fixed, is_of_groups)?,
        };
        let kind = match kind {
            // The result shares the row values, which exist once.
            Some(kind @ CallEvaluation::OffsetRow { .. }) => kind,
            Some(kind) if is_fixed || is_text => kind,
            None if is_fixed => match plan_per_partition(call, columns)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(WindowCall {
            evaluation: kind,
            keys_index: span,
            partitions_are_groups: is_of_groups,
            output_type: answers,
        }))
    }

    /// Returns whether the order of its rows matters.
    pub(super) fn needs_row_order(&self) -> bool {
        match &self.evaluation {
            CallEvaluation::WholePartition(aggregate) => {
                !(self.partitions_are_groups && supports_all_groups(&aggregate.function))
            }
            _ => true,
        }
    }

    pub(super) fn evaluate(
        &self,
        part: &RecordBatch,
        order: &PartitionRowOrder,
        span: &CallBoundaries<'_>,
        work: &EvaluationContext<'_>,
    ) -> PlanResult<CallOutput> {
        let evaluated =
            |value: &Arc<dyn PhysicalExpr>| value.evaluate(part)?.into_array(part.num_rows());
        match &self.evaluation {
            CallEvaluation::RowPosition(place) => Ok(CallOutput::PerRow(place.compute(span))),
            CallEvaluation::OffsetRow { value, rows_before: by } => Ok(CallOutput::Indexed {
                values: evaluated(value)?,
                indices: offset_row_indices(order, span, *by),
            }),
            CallEvaluation::FrameEdge { value, is_last, frame } => {
                let mut of = Vec::with_capacity(part.num_rows());
                frame.for_each_row(span, |start, end| {
                    let place = if *is_last { end.wrapping_sub(1) } else { start };
                    of.push((start < end).then_some(place));
                });
                let of = rows_at_positions(order, UInt32Array::from(of))?;
                Ok(CallOutput::Indexed { values: evaluated(value)?, indices: of })
            }
            CallEvaluation::FrameCount { value, frame } => {
                let values = order.arrange(&evaluated(value)?)?;
                Ok(CallOutput::PerRow(count_frame_values(&values, span, *frame)))
            }
            CallEvaluation::WholePartition(aggregate) => {
                self.evaluate_whole_partition(aggregate, part, order, span, work)
            }
            CallEvaluation::RunningAggregate { aggregate, by_row } => {
                let function = aggregate.function.as_ref();
                let arguments = aggregate.evaluate_arguments(part, Some(order))?;
                let rows: Vec<u32>;
                let steps = match by_row {
                    true => {
                        rows = (0..=row_number_u32(part.num_rows())).collect();
                        &rows
                    }
                    false => span.peer_starts,
                };
                let totals =
                    match (work.running_aggregate, arguments.as_slice(), function.is_distinct()) {
                        (Some(totals), [values], false) => {
                            totals(function, values, span.partition_starts, steps)?
                        }
                        _ => None,
                    };
                let values = match totals {
                    Some(totals) => totals,
                    None => self.values_to_array(running_values(
                        function,
                        &arguments,
                        span.partition_starts,
                        steps,
                        work,
                    )?)?,
                };
                Ok(match by_row {
                    true => CallOutput::PerRow(values),
                    false => CallOutput::Indexed {
                        values,
                        indices: UInt32Array::from(partition_index_per_row(steps)),
                    },
                })
            }
            CallEvaluation::PerPartition { call, schema, columns } => {
                let columns =
                    columns.iter().zip(schema.fields()).map(|(column, field)| match column {
                        Some(column) => order.arrange(&evaluated(column)?),
                        None => Ok(new_null_array(field.data_type(), part.num_rows())),
                    });
                let columns = columns.collect::<PlanResult<Vec<_>>>()?;
                let sorted = RecordBatch::try_new(Arc::clone(schema), columns)?;
                let answers = span.partition_starts.windows(2).map(|group| {
                    let rows = (group[1] - group[0]) as usize;
                    call.evaluate(&sorted.slice(group[0] as usize, rows))
                });
                let answers = answers.collect::<PlanResult<Vec<_>>>()?;
                match answers.is_empty() {
                    true => Ok(CallOutput::PerRow(new_empty_array(&self.output_type))),
                    false => Ok(CallOutput::PerRow(concat_arrays(&answers)?)),
                }
            }
        }
    }

    fn values_to_array(&self, values: Vec<ScalarValue>) -> PlanResult<ArrayRef> {
        match values.is_empty() {
            true => Ok(new_empty_array(&self.output_type)),
            false => ScalarValue::iter_to_array(values),
        }
    }

    fn evaluate_whole_partition(
        &self,
        aggregate: &BoundAggregate,
        part: &RecordBatch,
        order: &PartitionRowOrder,
        span: &CallBoundaries<'_>,
        work: &EvaluationContext<'_>,
    ) -> PlanResult<CallOutput> {
        if self.partitions_are_groups && supports_all_groups(&aggregate.function) {
            let arguments = aggregate.evaluate_arguments(part, None)?;
            let mut groups = aggregate.function.create_groups_accumulator()?;
            groups.update_batch(&arguments, &order.row_groups, None, order.group_count)?;
            work.check_accumulator_memory(groups.size())?;
            let values = groups.evaluate(EmitTo::All)?;
            let of = match &order.sorted_rows {
                None => order.row_groups.iter().map(|&group| row_number_u32(group)).collect(),
                Some(_) => partition_index_per_row(span.partition_starts),
            };
            return Ok(CallOutput::Indexed { values, indices: UInt32Array::from(of) });
        }
        let arguments = aggregate.evaluate_arguments(part, Some(order))?;
        let values = span.partition_starts.windows(2).map(|group| {
            let mut accumulator = aggregate.function.create_accumulator()?;
            accumulator.update_batch(&slice_arrays(&arguments, group[0]..group[1]))?;
            work.check_accumulator_memory(accumulator.size())?;
            accumulator.evaluate()
        });
        let values = self.values_to_array(values.collect::<PlanResult<Vec<_>>>()?)?;
        Ok(CallOutput::Indexed {
            values,
            indices: UInt32Array::from(partition_index_per_row(span.partition_starts)),
        })
    }
}

impl BoundAggregate {
    /// Evaluates the arguments, in arrival order or in the given order.
    fn evaluate_arguments(
        &self,
        part: &RecordBatch,
        order: Option<&PartitionRowOrder>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let arguments = self.arguments.iter().map(|value| {
            let values = value.evaluate(part)?.into_array(part.num_rows())?;
            order.map_or_else(|| Ok(Arc::clone(&values)), |order| order.arrange(&values))
        });
        arguments.collect()
    }
}

fn window_function(call: &Arc<dyn WindowExpr>) -> Option<&WindowUDFExpr> {
    let call: &StandardWindowExpr = call.as_any().downcast_ref()?;
    call.get_standard_func_expr().as_any().downcast_ref()
}

fn plan_window_function(
    function: &WindowUDFExpr,
    columns: &CallInputColumns<'_>,
    frame: Option<PositionalFrame>,
) -> PlanResult<Option<CallEvaluation>> {
    let value =
        || function.args().first().map_or(Ok(None), |value| columns.rewrite_to_input(value));
    Ok(match function.fun().name() {
        windows::ROW_NUMBER => Some(CallEvaluation::RowPosition(PositionFunction::RowNumber)),
        windows::RANK => Some(CallEvaluation::RowPosition(PositionFunction::Rank)),
        windows::DENSE_RANK => Some(CallEvaluation::RowPosition(PositionFunction::DenseRank)),
        windows::PERCENT_RANK => Some(CallEvaluation::RowPosition(PositionFunction::PercentRank)),
        windows::CUME_DIST => Some(CallEvaluation::RowPosition(PositionFunction::CumeDist)),
        windows::LAG | windows::LEAD => {
            let by = offset_rows_before(function)?;
            value()?.zip(by).map(|(value, by)| CallEvaluation::OffsetRow { value, rows_before: by })
        }
        windows::FIRST_VALUE | windows::LAST_VALUE if respects_nulls(function)? => {
            let is_last = function.fun().name() == windows::LAST_VALUE;
            value()?.zip(frame).map(|(value, frame)| CallEvaluation::FrameEdge {
                value,
                is_last,
                frame,
            })
        }
        _ => None,
    })
}

/// Returns how many rows before its own row a `lag` or `lead` reads. DataFusion may have reversed the call and
/// does not say whether it has. The function is therefore evaluated over enough row numbers, and its result
/// tells the distance.
fn offset_rows_before(function: &WindowUDFExpr) -> PlanResult<Option<i64>> {
    let is_null = |value: &Arc<dyn PhysicalExpr>| {
        value.downcast_ref::<Literal>().is_some_and(|value| value.value().is_null())
    };
    // The default value stands for rows that do not exist.
    if function.args().get(2).is_some_and(|otherwise| !is_null(otherwise)) {
        return Ok(None);
    }
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..=2 * SHIFT_ROWS_MAX));
    let middle = usize::try_from(SHIFT_ROWS_MAX).unwrap_or(0);
    let found = function.create_evaluator()?.evaluate(&[rows], &(middle..middle + 1))?;
    Ok(match found {
        ScalarValue::Int64(Some(found)) => Some(SHIFT_ROWS_MAX - found),
        _ => None,
    })
}

/// Returns whether `first_value` and `last_value` treat a null like any other value.
fn respects_nulls(function: &WindowUDFExpr) -> PlanResult<bool> {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1), None]));
    Ok(function.create_evaluator()?.evaluate(&[rows], &(0..3))?.is_null())
}

fn plan_aggregate(
    call: &Arc<dyn WindowExpr>,
    columns: &CallInputColumns<'_>,
    frame: Option<PositionalFrame>,
    is_fixed: bool,
    is_of_groups: bool,
) -> PlanResult<Option<CallEvaluation>> {
    let Some(frame) = frame else { return Ok(None) };
    let call = call.as_any();
    let function = match call.downcast_ref::<PlainAggregateWindowExpr>() {
        Some(call) => call.get_aggregate_expr(),
        None => match call.downcast_ref::<SlidingAggregateWindowExpr>() {
            Some(call) => call.get_aggregate_expr(),
            None => return Ok(None),
        },
    };
    let arguments = function.expressions();
    let arguments = arguments.iter().map(|value| columns.rewrite_to_input(value));
    let Some(arguments) = arguments.collect::<PlanResult<Option<Vec<_>>>>()? else {
        return Ok(None);
    };
    if let (aggregates::COUNT, false, [value]) =
        (function.fun().name(), function.is_distinct(), arguments.as_slice())
        && !(frame.is_whole_partition() && is_of_groups)
    {
        return Ok(Some(CallEvaluation::FrameCount { value: Arc::clone(value), frame }));
    }
    let aggregate = BoundAggregate { function: Box::new(function.clone()), arguments };
    Ok(match (frame.start, frame.end) {
        // The least and the greatest text are no longer than the input's texts.
        _ if frame.is_whole_partition()
            && (is_fixed || supports_all_groups(&aggregate.function)) =>
        {
            Some(CallEvaluation::WholePartition(aggregate))
        }
        (PositionalBound::PartitionEnd, PositionalBound::Peers) if is_fixed => {
            Some(CallEvaluation::RunningAggregate { aggregate, by_row: false })
        }
        (PositionalBound::PartitionEnd, PositionalBound::RowOffset(0)) if is_fixed => {
            Some(CallEvaluation::RunningAggregate { aggregate, by_row: true })
        }
        _ => None,
    })
}

fn plan_per_partition(
    call: &Arc<dyn WindowExpr>,
    columns: &CallInputColumns<'_>,
) -> PlanResult<Option<CallEvaluation>> {
    let order = call.order_by().iter().map(|key| Arc::clone(&key.expr));
    let expressions = call.expressions();
    for expr in &expressions {
        if columns.rewrite_to_input(expr)?.is_none() {
            return Ok(None);
        }
    }
    let asked: HashSet<usize> = expressions
        .into_iter()
        .chain(order)
        .flat_map(|expr| collect_columns(&expr))
        .map(|column| column.index())
        .collect();
    let mut of = Vec::with_capacity(columns.definitions.len());
    let mut fields = Vec::with_capacity(columns.definitions.len());
    for (index, made) in columns.definitions.iter().enumerate() {
        fields.push(Field::new(
            format!("{index}"),
            made.data_type(columns.definition_schema)?,
            true,
        ));
        let made = match asked.contains(&index) {
            true => match columns.uses_input_only(made) {
                true => Some(Arc::clone(made)),
                false => return Ok(None),
            },
            false => None,
        };
        of.push(made);
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(Some(CallEvaluation::PerPartition { call: Arc::clone(call), schema, columns: of }))
}

fn supports_all_groups(aggregate: &AggregateFunctionExpr) -> bool {
    GROUPS_ACCUMULATOR_AGGREGATES.contains(&aggregate.fun().name())
        && !aggregate.is_distinct()
        && aggregate.groups_accumulator_supported()
}

fn slice_arrays(arrays: &[ArrayRef], rows: Range<u32>) -> Vec<ArrayRef> {
    let (start, length) = (rows.start as usize, rows.len());
    arrays.iter().map(|array| array.slice(start, length)).collect()
}

/// Returns the index of each row's partition.
fn partition_index_per_row(starts: &[u32]) -> Vec<u32> {
    let groups = starts.windows(2).zip(0..);
    groups
        .flat_map(|(group, number)| std::iter::repeat_n(number, (group[1] - group[0]) as usize))
        .collect()
}

/// Returns the rows at the given positions.
fn rows_at_positions(order: &PartitionRowOrder, places: UInt32Array) -> PlanResult<UInt32Array> {
    Ok(match &order.sorted_rows {
        Some(rows) => take(rows, &places, None)?.as_primitive().clone(),
        None => places,
    })
}

fn offset_row_indices(
    order: &PartitionRowOrder,
    span: &CallBoundaries<'_>,
    by: i64,
) -> UInt32Array {
    let rows = order.sorted_rows.as_ref().map(UInt32Array::values);
    let mut of = Vec::with_capacity(span.partition_starts.last().map_or(0, |end| *end as usize));
    for group in span.partition_starts.windows(2) {
        let (start, end) = (i64::from(group[0]), i64::from(group[1]));
        of.extend((start..end).map(|place| {
            let place = place - by;
            let place = (start..end).contains(&place).then(|| usize::try_from(place).ok())??;
            Some(rows.map_or_else(|| row_number_u32(place), |rows| rows[place]))
        }));
    }
    UInt32Array::from(of)
}

fn count_frame_values(
    values: &ArrayRef,
    span: &CallBoundaries<'_>,
    frame: PositionalFrame,
) -> ArrayRef {
    let mut counts = Vec::with_capacity(values.len());
    match values.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            frame
                .for_each_row(span, |start, end| counts.push(i64::from(end.saturating_sub(start))));
        }
        Some(nulls) => {
            let mut before = Vec::with_capacity(values.len() + 1);
            let mut count = 0_u32;
            before.push(count);
            before.extend(nulls.iter().map(|is_there| {
                count += u32::from(is_there);
                count
            }));
            frame.for_each_row(span, |start, end| {
                let end = end.max(start);
                counts.push(i64::from(before[end as usize] - before[start as usize]));
            });
        }
    }
    Arc::new(Int64Array::from(counts))
}

/// Computes an aggregate of each group's rows up to the end of each of the group's steps.
fn running_values(
    aggregate: &AggregateFunctionExpr,
    arguments: &[ArrayRef],
    groups: &[u32],
    steps: &[u32],
    work: &EvaluationContext<'_>,
) -> PlanResult<Vec<ScalarValue>> {
    let mut values = Vec::with_capacity(steps.len());
    let mut steps = steps.windows(2).peekable();
    for group in groups.windows(2) {
        let mut accumulator = aggregate.create_accumulator()?;
        while let Some(step) = steps.next_if(|step| step[0] < group[1]) {
            accumulator.update_batch(&slice_arrays(arguments, step[0]..step[1]))?;
            values.push(accumulator.evaluate()?);
        }
        work.check_accumulator_memory(accumulator.size())?;
    }
    Ok(values)
}

impl PositionFunction {
    fn compute(self, span: &CallBoundaries<'_>) -> ArrayRef {
        match self {
            PositionFunction::RowNumber => {
                Arc::new(UInt64Array::from(self.row_numbers_or_ranks(span)))
            }
            PositionFunction::Rank | PositionFunction::DenseRank => {
                Arc::new(UInt64Array::from(self.row_numbers_or_ranks(span)))
            }
            PositionFunction::PercentRank | PositionFunction::CumeDist => {
                Arc::new(Float64Array::from(self.relative_ranks(span)))
            }
        }
    }

    fn row_numbers_or_ranks(self, span: &CallBoundaries<'_>) -> Vec<u64> {
        let mut numbers =
            Vec::with_capacity(span.partition_starts.last().map_or(0, |end| *end as usize));
        let mut equals = span.peer_starts.windows(2).peekable();
        for group in span.partition_starts.windows(2) {
            if let PositionFunction::RowNumber = self {
                numbers.extend(1..=u64::from(group[1] - group[0]));
                continue;
            }
            let mut dense = 0;
            while let Some(equals) = equals.next_if(|equals| equals[0] < group[1]) {
                dense += 1;
                let rank = match self {
                    PositionFunction::DenseRank => dense,
                    _ => u64::from(equals[0] - group[0]) + 1,
                };
                numbers.extend(std::iter::repeat_n(rank, (equals[1] - equals[0]) as usize));
            }
        }
        numbers
    }

    fn relative_ranks(self, span: &CallBoundaries<'_>) -> Vec<f64> {
        let mut shares =
            Vec::with_capacity(span.partition_starts.last().map_or(0, |end| *end as usize));
        let mut equals = span.peer_starts.windows(2).peekable();
        for group in span.partition_starts.windows(2) {
            let rows = f64::from(group[1] - group[0]);
            while let Some(equals) = equals.next_if(|equals| equals[0] < group[1]) {
                let share = match self {
                    PositionFunction::CumeDist => f64::from(equals[1] - group[0]) / rows,
                    _ => f64::from(equals[0] - group[0]) / (rows - 1.0).max(1.0),
                };
                shares.extend(std::iter::repeat_n(share, (equals[1] - equals[0]) as usize));
            }
        }
        shares
    }
}

impl CallOutput {
    /// Returns the output of `count` rows from `first` on.
    pub(super) fn slice(&self, first: usize, count: usize) -> PlanResult<ArrayRef> {
        Ok(match self {
            CallOutput::PerRow(values) => values.slice(first, count),
            CallOutput::Indexed { values, indices: of } => {
                take(values, &of.slice(first, count), None)?
            }
        })
    }

    /// Returns how many of `count` rows from `first` on have values of at most `bytes_max` bytes together; at
    /// least one.
    pub(super) fn rows_within_bytes(&self, first: usize, count: usize, bytes_max: usize) -> usize {
        let CallOutput::Indexed { values, indices: of } = self else { return count };
        let lengths = |row: usize| match values.data_type() {
            DataType::LargeUtf8 => values.as_string::<i64>().value_length(row).unsigned_abs(),
            DataType::LargeBinary => values.as_binary::<i64>().value_length(row).unsigned_abs(),
            DataType::Utf8 => u64::from(values.as_string::<i32>().value_length(row).unsigned_abs()),
            DataType::Binary => {
                u64::from(values.as_binary::<i32>().value_length(row).unsigned_abs())
            }
            _ => 0,
        };
        if values.data_type().is_primitive() {
            return count;
        }
        let mut bytes = 0_u64;
        let rows = (first..first + count).take_while(|&place| {
            if of.is_valid(place) {
                bytes += lengths(of.value(place) as usize);
            }
            bytes <= bytes_max as u64
        });
        rows.count().max(1)
    }
}
