//! What windows' calls answer over a part's rows, all groups at once where that can be.

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

use super::RunningTotals;
use super::chain::Columns;
use super::order::{Order, joined, number};
use crate::datafusion_names::{aggregates, windows};
use crate::windows::beside::PORTION;

/// Aggregates of which all groups are had at once, and whose answer is the same in whatever order.
const OF_ALL_GROUPS: [&str; 17] = [
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

/// How far a row may be away that `lag`, `lead` and the like are of; those that are of others are asked
/// group by group.
const NEAR: i64 = 1 << 10;

/// A call.
pub(super) struct Call {
    kind: Kind,
    /// Which of the chain's spans it is over.
    pub span: usize,
    /// Whether its partitions are the part's groups.
    is_of_groups: bool,
    answers: DataType,
}

enum Kind {
    Place(Place),
    /// The value so many rows before; less than none are rows after.
    Shifted {
        value: Arc<dyn PhysicalExpr>,
        by: i64,
    },
    /// The value of a frame's first or last row.
    Edge {
        value: Arc<dyn PhysicalExpr>,
        is_last: bool,
        frame: Frame,
    },
    /// How many rows of a frame have a value.
    Counted {
        value: Arc<dyn PhysicalExpr>,
        frame: Frame,
    },
    /// An aggregate of all rows of a group.
    Whole(Aggregate),
    /// An aggregate from a group's first row on, to each or with its equals.
    Running {
        aggregate: Aggregate,
        by_row: bool,
    },
    /// Anything else, of one group after the other: of columns, where it asks for them.
    Each {
        call: Arc<dyn WindowExpr>,
        schema: SchemaRef,
        columns: Vec<Option<Arc<dyn PhysicalExpr>>>,
    },
}

/// An aggregate, and its arguments as they are made of rows' own columns.
struct Aggregate {
    function: Box<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
}

#[derive(Clone, Copy)]
enum Place {
    Row,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
}

/// What a call has for each row.
pub(super) enum Answers {
    Each(ArrayRef),
    /// Some of few values, or of the part's own: text is not repeated before it is handed on.
    Some {
        values: ArrayRef,
        of: UInt32Array,
    },
}

/// Rows that a call is over: where they begin that are of one partition, and those of them that are equal.
pub(super) struct Span<'a> {
    pub groups: &'a [u32],
    pub equals: &'a [u32],
}

/// What calls are answered with.
pub(super) struct Work<'a> {
    pub running_totals: Option<RunningTotals>,
    /// Has what the part and its answers take.
    pub reservation: &'a MemoryReservation,
    /// How much that is.
    pub part_bytes: usize,
}

impl Work<'_> {
    /// Asks for what one accumulator holds, for as long as it does.
    fn hold(&self, bytes: usize) -> PlanResult<()> {
        if bytes <= PORTION {
            return Ok(());
        }
        self.reservation.try_resize(self.part_bytes + bytes)?;
        self.reservation.try_resize(self.part_bytes)
    }
}

/// A frame that is found without a look at values.
#[derive(Clone, Copy)]
struct Frame {
    start: Bound,
    end: Bound,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Of the partition.
    End,
    /// The row's equals, the farthest of them.
    Equals,
    /// So many rows on.
    Rows(i64),
}

impl Frame {
    fn of(frame: &WindowFrame, has_order: bool) -> Option<Frame> {
        let bound = |bound: &WindowFrameBound| {
            let distance = match bound {
                WindowFrameBound::CurrentRow => {
                    return Some(match frame.units {
                        WindowFrameUnits::Rows => Bound::Rows(0),
                        _ if has_order => Bound::Equals,
                        _ => Bound::End,
                    });
                }
                WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by,
            };
            if distance.is_null() {
                return Some(Bound::End);
            }
            let ScalarValue::UInt64(Some(rows)) = distance else { return None };
            let rows = i64::try_from(*rows).unwrap_or(i64::MAX);
            let is_before = matches!(bound, WindowFrameBound::Preceding(_));
            (frame.units == WindowFrameUnits::Rows).then_some(Bound::Rows(if is_before {
                -rows
            } else {
                rows
            }))
        };
        // Nothing begins where all ends, and nothing ends where all begins.
        let is_other = matches!(&frame.start_bound, WindowFrameBound::Following(by) if by.is_null())
            || matches!(&frame.end_bound, WindowFrameBound::Preceding(by) if by.is_null());
        if is_other {
            return None;
        }
        Some(Frame { start: bound(&frame.start_bound)?, end: bound(&frame.end_bound)? })
    }

    fn is_whole(self) -> bool {
        (self.start, self.end) == (Bound::End, Bound::End)
    }

    /// The frame of each place: from one place to before another, which is no later where it is empty.
    fn each(self, span: &Span<'_>, mut with: impl FnMut(u32, u32)) {
        let mut equals = span.equals.windows(2).peekable();
        for group in span.groups.windows(2) {
            let (first, end) = (group[0], group[1]);
            let at = |place: u32, rows: i64| {
                let place = i64::from(place).saturating_add(rows);
                let place = place.clamp(i64::from(first), i64::from(end));
                u32::try_from(place).unwrap_or(end)
            };
            while let Some(equals) = equals.next_if(|equals| equals[0] < end) {
                for place in equals[0]..equals[1] {
                    let start = match self.start {
                        Bound::End => first,
                        Bound::Equals => equals[0],
                        Bound::Rows(rows) => at(place, rows),
                    };
                    let end = match self.end {
                        Bound::End => end,
                        Bound::Equals => equals[1],
                        Bound::Rows(rows) => at(place, rows.saturating_add(1)),
                    };
                    with(start, end);
                }
            }
        }
    }
}

impl Call {
    /// A call, unless it is one that is left to DataFusion's step: what it answers is of any size, and is not
    /// of a row's value.
    pub(super) fn of(
        call: &Arc<dyn WindowExpr>,
        columns: &Columns<'_>,
        span: usize,
        is_of_groups: bool,
    ) -> PlanResult<Option<Call>> {
        let answers = call.field()?.data_type().clone();
        let has_order = !call.order_by().is_empty();
        let frame = Frame::of(call.get_window_frame(), has_order);
        let is_fixed = answers.is_primitive() || answers == DataType::Boolean;
        let is_text = matches!(
            answers,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary
        );
        let kind = match standard(call) {
            Some(function) => of_function(function, columns, frame)?,
            None => of_aggregate(call, columns, frame, is_fixed, is_of_groups)?,
        };
        let kind = match kind {
            // Each row's value is there once.
            Some(kind @ Kind::Shifted { .. }) => kind,
            Some(kind) if is_fixed || is_text => kind,
            None if is_fixed => match of_each(call, columns)? {
                Some(kind) => kind,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(Call { kind, span, is_of_groups, answers }))
    }

    /// Whether it matters where its rows stand.
    pub(super) fn is_ordered(&self) -> bool {
        match &self.kind {
            Kind::Whole(aggregate) => !(self.is_of_groups && is_of_all_groups(&aggregate.function)),
            _ => true,
        }
    }

    pub(super) fn answers(
        &self,
        part: &RecordBatch,
        order: &Order,
        span: &Span<'_>,
        work: &Work<'_>,
    ) -> PlanResult<Answers> {
        let evaluated =
            |value: &Arc<dyn PhysicalExpr>| value.evaluate(part)?.into_array(part.num_rows());
        match &self.kind {
            Kind::Place(place) => Ok(Answers::Each(place.of_all(span))),
            Kind::Shifted { value, by } => {
                Ok(Answers::Some { values: evaluated(value)?, of: shifted(order, span, *by) })
            }
            Kind::Edge { value, is_last, frame } => {
                let mut of = Vec::with_capacity(part.num_rows());
                frame.each(span, |start, end| {
                    let place = if *is_last { end.wrapping_sub(1) } else { start };
                    of.push((start < end).then_some(place));
                });
                let of = row_of(order, UInt32Array::from(of))?;
                Ok(Answers::Some { values: evaluated(value)?, of })
            }
            Kind::Counted { value, frame } => {
                let values = order.placed(&evaluated(value)?)?;
                Ok(Answers::Each(counted(&values, span, *frame)))
            }
            Kind::Whole(aggregate) => self.whole(aggregate, part, order, span, work),
            Kind::Running { aggregate, by_row } => {
                let function = aggregate.function.as_ref();
                let arguments = aggregate.evaluated(part, Some(order))?;
                let rows: Vec<u32>;
                let steps = match by_row {
                    true => {
                        rows = (0..=number(part.num_rows())).collect();
                        &rows
                    }
                    false => span.equals,
                };
                let totals =
                    match (work.running_totals, arguments.as_slice(), function.is_distinct()) {
                        (Some(totals), [values], false) => {
                            totals(function, values, span.groups, steps)?
                        }
                        _ => None,
                    };
                let values = match totals {
                    Some(totals) => totals,
                    None => self.array(running(function, &arguments, span.groups, steps, work)?)?,
                };
                Ok(match by_row {
                    true => Answers::Each(values),
                    false => Answers::Some { values, of: UInt32Array::from(repeated(steps)) },
                })
            }
            Kind::Each { call, schema, columns } => {
                let columns =
                    columns.iter().zip(schema.fields()).map(|(column, field)| match column {
                        Some(column) => order.placed(&evaluated(column)?),
                        None => Ok(new_null_array(field.data_type(), part.num_rows())),
                    });
                let columns = columns.collect::<PlanResult<Vec<_>>>()?;
                let sorted = RecordBatch::try_new(Arc::clone(schema), columns)?;
                let answers = span.groups.windows(2).map(|group| {
                    let rows = (group[1] - group[0]) as usize;
                    call.evaluate(&sorted.slice(group[0] as usize, rows))
                });
                let answers = answers.collect::<PlanResult<Vec<_>>>()?;
                match answers.is_empty() {
                    true => Ok(Answers::Each(new_empty_array(&self.answers))),
                    false => Ok(Answers::Each(joined(&answers)?)),
                }
            }
        }
    }

    fn array(&self, values: Vec<ScalarValue>) -> PlanResult<ArrayRef> {
        match values.is_empty() {
            true => Ok(new_empty_array(&self.answers)),
            false => ScalarValue::iter_to_array(values),
        }
    }

    fn whole(
        &self,
        aggregate: &Aggregate,
        part: &RecordBatch,
        order: &Order,
        span: &Span<'_>,
        work: &Work<'_>,
    ) -> PlanResult<Answers> {
        if self.is_of_groups && is_of_all_groups(&aggregate.function) {
            let arguments = aggregate.evaluated(part, None)?;
            let mut groups = aggregate.function.create_groups_accumulator()?;
            groups.update_batch(&arguments, &order.groups, None, order.group_count)?;
            work.hold(groups.size())?;
            let values = groups.evaluate(EmitTo::All)?;
            let of = match &order.rows {
                None => order.groups.iter().map(|&group| number(group)).collect(),
                Some(_) => repeated(span.groups),
            };
            return Ok(Answers::Some { values, of: UInt32Array::from(of) });
        }
        let arguments = aggregate.evaluated(part, Some(order))?;
        let values = span.groups.windows(2).map(|group| {
            let mut accumulator = aggregate.function.create_accumulator()?;
            accumulator.update_batch(&sliced(&arguments, group[0]..group[1]))?;
            work.hold(accumulator.size())?;
            accumulator.evaluate()
        });
        let values = self.array(values.collect::<PlanResult<Vec<_>>>()?)?;
        Ok(Answers::Some { values, of: UInt32Array::from(repeated(span.groups)) })
    }
}

impl Aggregate {
    /// The arguments' values, as the rows came, or in order.
    fn evaluated(&self, part: &RecordBatch, order: Option<&Order>) -> PlanResult<Vec<ArrayRef>> {
        let arguments = self.arguments.iter().map(|value| {
            let values = value.evaluate(part)?.into_array(part.num_rows())?;
            order.map_or_else(|| Ok(Arc::clone(&values)), |order| order.placed(&values))
        });
        arguments.collect()
    }
}

fn standard(call: &Arc<dyn WindowExpr>) -> Option<&WindowUDFExpr> {
    let call: &StandardWindowExpr = call.as_any().downcast_ref()?;
    call.get_standard_func_expr().as_any().downcast_ref()
}

fn of_function(
    function: &WindowUDFExpr,
    columns: &Columns<'_>,
    frame: Option<Frame>,
) -> PlanResult<Option<Kind>> {
    let value = || function.args().first().map_or(Ok(None), |value| columns.below(value));
    Ok(match function.fun().name() {
        windows::ROW_NUMBER => Some(Kind::Place(Place::Row)),
        windows::RANK => Some(Kind::Place(Place::Rank)),
        windows::DENSE_RANK => Some(Kind::Place(Place::DenseRank)),
        windows::PERCENT_RANK => Some(Kind::Place(Place::PercentRank)),
        windows::CUME_DIST => Some(Kind::Place(Place::CumeDist)),
        windows::LAG | windows::LEAD => {
            let by = shift(function)?;
            value()?.zip(by).map(|(value, by)| Kind::Shifted { value, by })
        }
        windows::FIRST_VALUE | windows::LAST_VALUE if counts_nulls(function)? => {
            let is_last = function.fun().name() == windows::LAST_VALUE;
            value()?.zip(frame).map(|(value, frame)| Kind::Edge { value, is_last, frame })
        }
        _ => None,
    })
}

/// How many rows before its own a `lag` is of. The step that plans it may have turned it around, and keeps
/// to itself whether it has: it is asked for the number of a row among enough of them.
fn shift(function: &WindowUDFExpr) -> PlanResult<Option<i64>> {
    let is_null = |value: &Arc<dyn PhysicalExpr>| {
        value.downcast_ref::<Literal>().is_some_and(|value| value.value().is_null())
    };
    // Rows that there are not have a value then.
    if function.args().get(2).is_some_and(|otherwise| !is_null(otherwise)) {
        return Ok(None);
    }
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..=2 * NEAR));
    let middle = usize::try_from(NEAR).unwrap_or(0);
    let found = function.create_evaluator()?.evaluate(&[rows], &(middle..middle + 1))?;
    Ok(match found {
        ScalarValue::Int64(Some(found)) => Some(NEAR - found),
        _ => None,
    })
}

/// Whether a null is a value like others to `first_value` and `last_value`.
fn counts_nulls(function: &WindowUDFExpr) -> PlanResult<bool> {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1), None]));
    Ok(function.create_evaluator()?.evaluate(&[rows], &(0..3))?.is_null())
}

fn of_aggregate(
    call: &Arc<dyn WindowExpr>,
    columns: &Columns<'_>,
    frame: Option<Frame>,
    is_fixed: bool,
    is_of_groups: bool,
) -> PlanResult<Option<Kind>> {
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
    let arguments = arguments.iter().map(|value| columns.below(value));
    let Some(arguments) = arguments.collect::<PlanResult<Option<Vec<_>>>>()? else {
        return Ok(None);
    };
    if let (aggregates::COUNT, false, [value]) =
        (function.fun().name(), function.is_distinct(), arguments.as_slice())
        && !(frame.is_whole() && is_of_groups)
    {
        return Ok(Some(Kind::Counted { value: Arc::clone(value), frame }));
    }
    let aggregate = Aggregate { function: Box::new(function.clone()), arguments };
    Ok(match (frame.start, frame.end) {
        // The least and the greatest text are no longer than those that there are.
        _ if frame.is_whole() && (is_fixed || is_of_all_groups(&aggregate.function)) => {
            Some(Kind::Whole(aggregate))
        }
        (Bound::End, Bound::Equals) if is_fixed => Some(Kind::Running { aggregate, by_row: false }),
        (Bound::End, Bound::Rows(0)) if is_fixed => Some(Kind::Running { aggregate, by_row: true }),
        _ => None,
    })
}

fn of_each(call: &Arc<dyn WindowExpr>, columns: &Columns<'_>) -> PlanResult<Option<Kind>> {
    let order = call.order_by().iter().map(|key| Arc::clone(&key.expr));
    let expressions = call.expressions();
    for expr in &expressions {
        if columns.below(expr)?.is_none() {
            return Ok(None);
        }
    }
    let asked: HashSet<usize> = expressions
        .into_iter()
        .chain(order)
        .flat_map(|expr| collect_columns(&expr))
        .map(|column| column.index())
        .collect();
    let mut of = Vec::with_capacity(columns.made.len());
    let mut fields = Vec::with_capacity(columns.made.len());
    for (index, made) in columns.made.iter().enumerate() {
        fields.push(Field::new(format!("{index}"), made.data_type(columns.schema)?, true));
        let made = match asked.contains(&index) {
            true => match columns.is_below(made) {
                true => Some(Arc::clone(made)),
                false => return Ok(None),
            },
            false => None,
        };
        of.push(made);
    }
    let schema = Arc::new(Schema::new(fields));
    Ok(Some(Kind::Each { call: Arc::clone(call), schema, columns: of }))
}

fn is_of_all_groups(aggregate: &AggregateFunctionExpr) -> bool {
    OF_ALL_GROUPS.contains(&aggregate.fun().name())
        && !aggregate.is_distinct()
        && aggregate.groups_accumulator_supported()
}

fn sliced(arrays: &[ArrayRef], rows: Range<u32>) -> Vec<ArrayRef> {
    let (start, length) = (rows.start as usize, rows.len());
    arrays.iter().map(|array| array.slice(start, length)).collect()
}

/// For each place, the number of its group.
fn repeated(starts: &[u32]) -> Vec<u32> {
    let groups = starts.windows(2).zip(0..);
    groups
        .flat_map(|(group, number)| std::iter::repeat_n(number, (group[1] - group[0]) as usize))
        .collect()
}

/// The rows that stand at places.
fn row_of(order: &Order, places: UInt32Array) -> PlanResult<UInt32Array> {
    Ok(match &order.rows {
        Some(rows) => take(rows, &places, None)?.as_primitive().clone(),
        None => places,
    })
}

fn shifted(order: &Order, span: &Span<'_>, by: i64) -> UInt32Array {
    let rows = order.rows.as_ref().map(UInt32Array::values);
    let mut of = Vec::with_capacity(span.groups.last().map_or(0, |end| *end as usize));
    for group in span.groups.windows(2) {
        let (start, end) = (i64::from(group[0]), i64::from(group[1]));
        of.extend((start..end).map(|place| {
            let place = place - by;
            let place = (start..end).contains(&place).then(|| usize::try_from(place).ok())??;
            Some(rows.map_or_else(|| number(place), |rows| rows[place]))
        }));
    }
    UInt32Array::from(of)
}

fn counted(values: &ArrayRef, span: &Span<'_>, frame: Frame) -> ArrayRef {
    let mut counts = Vec::with_capacity(values.len());
    match values.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        None => {
            frame.each(span, |start, end| counts.push(i64::from(end.saturating_sub(start))));
        }
        Some(nulls) => {
            let mut before = Vec::with_capacity(values.len() + 1);
            let mut count = 0_u32;
            before.push(count);
            before.extend(nulls.iter().map(|is_there| {
                count += u32::from(is_there);
                count
            }));
            frame.each(span, |start, end| {
                let end = end.max(start);
                counts.push(i64::from(before[end as usize] - before[start as usize]));
            });
        }
    }
    Arc::new(Int64Array::from(counts))
}

/// An aggregate's values of each group's rows up to the end of each of its steps.
fn running(
    aggregate: &AggregateFunctionExpr,
    arguments: &[ArrayRef],
    groups: &[u32],
    steps: &[u32],
    work: &Work<'_>,
) -> PlanResult<Vec<ScalarValue>> {
    let mut values = Vec::with_capacity(steps.len());
    let mut steps = steps.windows(2).peekable();
    for group in groups.windows(2) {
        let mut accumulator = aggregate.create_accumulator()?;
        while let Some(step) = steps.next_if(|step| step[0] < group[1]) {
            accumulator.update_batch(&sliced(arguments, step[0]..step[1]))?;
            values.push(accumulator.evaluate()?);
        }
        work.hold(accumulator.size())?;
    }
    Ok(values)
}

impl Place {
    fn of_all(self, span: &Span<'_>) -> ArrayRef {
        match self {
            Place::Row => Arc::new(UInt64Array::from(self.numbers(span))),
            Place::Rank | Place::DenseRank => Arc::new(UInt64Array::from(self.numbers(span))),
            Place::PercentRank | Place::CumeDist => Arc::new(Float64Array::from(self.shares(span))),
        }
    }

    fn numbers(self, span: &Span<'_>) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(span.groups.last().map_or(0, |end| *end as usize));
        let mut equals = span.equals.windows(2).peekable();
        for group in span.groups.windows(2) {
            if let Place::Row = self {
                numbers.extend(1..=u64::from(group[1] - group[0]));
                continue;
            }
            let mut dense = 0;
            while let Some(equals) = equals.next_if(|equals| equals[0] < group[1]) {
                dense += 1;
                let rank = match self {
                    Place::DenseRank => dense,
                    _ => u64::from(equals[0] - group[0]) + 1,
                };
                numbers.extend(std::iter::repeat_n(rank, (equals[1] - equals[0]) as usize));
            }
        }
        numbers
    }

    fn shares(self, span: &Span<'_>) -> Vec<f64> {
        let mut shares = Vec::with_capacity(span.groups.last().map_or(0, |end| *end as usize));
        let mut equals = span.equals.windows(2).peekable();
        for group in span.groups.windows(2) {
            let rows = f64::from(group[1] - group[0]);
            while let Some(equals) = equals.next_if(|equals| equals[0] < group[1]) {
                let share = match self {
                    Place::CumeDist => f64::from(equals[1] - group[0]) / rows,
                    _ => f64::from(equals[0] - group[0]) / (rows - 1.0).max(1.0),
                };
                shares.extend(std::iter::repeat_n(share, (equals[1] - equals[0]) as usize));
            }
        }
        shares
    }
}

impl Answers {
    /// The answers at so many places from one on.
    pub(super) fn at(&self, first: usize, count: usize) -> PlanResult<ArrayRef> {
        Ok(match self {
            Answers::Each(values) => values.slice(first, count),
            Answers::Some { values, of } => take(values, &of.slice(first, count), None)?,
        })
    }

    /// Of so many places from one on, how many have answers of so many bytes together: one at least.
    pub(super) fn fitting(&self, first: usize, count: usize, bytes_max: usize) -> usize {
        let Answers::Some { values, of } = self else { return count };
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
