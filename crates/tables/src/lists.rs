//! Lists of which the first values alone are wanted: `array_slice(array_agg(x ORDER BY n), 1, 3)`, and with it samples,
//! `maximum` and `collect`.
//!
//! A list that is known to be one keeps no others, on either path: tables by [`most_of`], DataFusion by an accumulator of
//! our own, as its `array_agg` keeps all values of a group until the end.
//!
//! That accumulator takes rows until there are twice as many as are wanted, and then keeps the first of them by the
//! ORDER BY: each row is copied twice, and compared about as often as a heap would. Rows that are equal by it stay in the
//! order that they came in.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StructArray, UInt32Array};
use arrow::compute::{concat, filter, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Column, Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, Aggregate, AggregateUDF, AggregateUDFImpl, Expr, Filter, LogicalPlan,
    ReversedUDAF, Signature,
};

use crate::calls::aggregate_call;
use crate::value::owned;

/// Of how many rows at least the first are looked for.
const ROWS_MIN: usize = 1024;

/// So many are copied at a time.
const ROWS_MAX: usize = 8192;

/// A plan in which a list of which only the first values are taken, as in `array_slice(array_agg(x ORDER BY n), 1, 3)`,
/// is known to be one: tables keep no others.
///
/// # Errors
/// As DataFusion's plan builder.
pub fn limited_lists(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(limited)?.data)
}

fn limited(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = &plan else { return Ok(Transformed::no(plan)) };
    // A HAVING may stand in between.
    let (mut input, mut exprs) = (projection.input.as_ref(), projection.expr.clone());
    let mut having = Vec::new();
    while let LogicalPlan::Filter(filter) = input {
        exprs.push(filter.predicate.clone());
        having.push(filter.predicate.clone());
        input = filter.input.as_ref();
    }
    let LogicalPlan::Aggregate(aggregate) = input else { return Ok(Transformed::no(plan)) };
    let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let mut changed = false;
    let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
    for (index, expr) in aggregate.aggr_expr.iter().enumerate() {
        let column = Column::from(aggregate.schema.qualified_field(keys + index));
        let call = aggregate_call(expr).filter(|call| {
            call.func.name() == "array_agg"
                && !call.params.distinct
                && self::most(&call.func).is_none()
        });
        let most = call.and_then(|_| most_of(&exprs, &column));
        calls.push(match (call, most) {
            (Some(call), Some(most)) => {
                changed = true;
                let mut call = call.clone();
                call.func = of_most(call.func, most);
                Expr::AggregateFunction(call).alias(expr.qualified_name().1)
            }
            _ => expr.clone(),
        });
    }
    if !changed {
        return Ok(Transformed::no(plan));
    }
    let groups =
        Aggregate::try_new(Arc::clone(&aggregate.input), aggregate.group_expr.clone(), calls)?;
    let mut input = LogicalPlan::Aggregate(groups);
    for predicate in having.into_iter().rev() {
        input = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
    }
    Ok(Transformed::yes(plan.with_new_exprs(plan.expressions(), vec![input])?))
}

/// How many of the first items of a list are looked at by expressions, if they look at no others.
fn most_of(exprs: &[Expr], list: &Column) -> Option<usize> {
    let is_list = |expr: &Expr| matches!(expr, Expr::Column(column) if column == list);
    let mut most = None;
    for expr in exprs {
        let mut looks_further = false;
        let walked = expr.apply(|expr| {
            match expr {
                Expr::ScalarFunction(call)
                    if call.func.name() == "array_slice" && is_list(&call.args[0]) =>
                {
                    let whole = |expr: Option<&Expr>| match expr {
                        Some(Expr::Literal(value, _)) => match value.cast_to(&DataType::Int64) {
                            Ok(ScalarValue::Int64(Some(value))) => usize::try_from(value).ok(),
                            _ => None,
                        },
                        _ => None,
                    };
                    // `[1:3]` is planned with its step.
                    let is_each = call.args.len() == 3 || whole(call.args.get(3)) == Some(1);
                    match (whole(call.args.get(1)), whole(call.args.get(2)), is_each) {
                        // From the first on, and at least one: of none the list might be missing.
                        (Some(1..), Some(last @ 1..), true) => most = most.max(Some(last)),
                        _ => looks_further = true,
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                expr if is_list(expr) => looks_further = true,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if walked.is_err() || looks_further {
            return None;
        }
    }
    most
}

/// DataFusion's `array_agg`, of which no more than some of the first values are looked at.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Limited {
    theirs: Arc<AggregateUDF>,
    most: usize,
}

/// A call of `array_agg` whose lists have no more than some of the first values.
pub(crate) fn of_most(theirs: Arc<AggregateUDF>, most: usize) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Limited { theirs, most }))
}

/// How many of its first values are wanted of a call of `array_agg`, where it is known.
pub(crate) fn most(function: &AggregateUDF) -> Option<usize> {
    function.inner().downcast_ref::<Limited>().map(|limited| limited.most)
}

impl AggregateUDFImpl for Limited {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.theirs.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> PlanResult<FieldRef> {
        self.theirs.inner().return_field(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.theirs.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.theirs.default_value(data_type)
    }

    /// The order is made of the rows that are kept: nothing is sorted for it.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Beneficial
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> PlanResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.theirs.inner().supports_null_handling_clause()
    }

    /// Those of `array_agg`, but that what values are ordered by is named by its number: DataFusion's name of it has a
    /// column's place in it, which is another one above the step than below.
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let order = args.ordering_fields.iter().map(|field| field.data_type().clone());
        let order: Vec<FieldRef> = by_number(order).iter().cloned().collect();
        self.theirs.state_fields(StateFieldsArgs { ordering_fields: &order, ..args })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let types = args.order_bys.iter().map(|by| by.expr.data_type(args.schema));
        let types = types.collect::<PlanResult<Vec<_>>>()?;
        let sorted = types.iter().zip(args.order_bys);
        let sorted: Vec<SortField> =
            sorted.map(|(of, by)| SortField::new_with_options(of.clone(), by.options)).collect();
        if args.is_distinct || !RowConverter::supports_fields(&sorted) {
            return self.theirs.accumulator(args);
        }
        Ok(Box::new(FirstValues {
            most: self.most,
            skips_nulls: args.ignore_nulls,
            of: args.expr_fields[0].data_type().clone(),
            by: by_number(types),
            converter: (!sorted.is_empty()).then(|| RowConverter::new(sorted)).transpose()?,
            pieces: Vec::new(),
            row_count: 0,
            bytes: 0,
            bytes_most: 0,
            is_settled: true,
        }))
    }
}

/// Fields of what values are ordered by.
fn by_number(of: impl IntoIterator<Item = DataType>) -> Fields {
    let of = of.into_iter().enumerate();
    of.map(|(index, of)| Field::new(format!("by_{index}"), of, true)).collect()
}

/// The first values of a group by what they are ordered by, or as they come.
#[derive(Debug)]
struct FirstValues {
    most: usize,
    /// Whether rows without a value are left out.
    skips_nulls: bool,
    /// The type of values.
    of: DataType,
    /// What they are ordered by.
    by: Fields,
    converter: Option<RowConverter>,
    /// Rows of the value and of what it is ordered by.
    pieces: Vec<Vec<ArrayRef>>,
    row_count: usize,
    bytes: usize,
    /// The most that these were between two batches. DataFusion adds up by how much an accumulator has grown with each
    /// batch, and takes nothing off where it has shrunk.
    bytes_most: usize,
    /// Whether there are no others than the first, in their order.
    is_settled: bool,
}

impl FirstValues {
    /// Takes rows of the value and of what it is ordered by, which have memory of their own from then on.
    fn add(&mut self, columns: &[ArrayRef]) -> PlanResult<()> {
        let [values, by @ ..] = columns else { return Ok(()) };
        if by.len() != self.by.len() {
            return internal_err!("{} columns to order by, not {}", by.len(), self.by.len());
        }
        let mut columns = columns.to_vec();
        if let Some(nulls) = values.logical_nulls().filter(|_| self.skips_nulls) {
            let known = BooleanArray::new(nulls.into_inner(), None);
            columns =
                columns.iter().map(|column| filter(column, &known)).collect::<Result<_, _>>()?;
        }
        let mut row_count = columns[0].len();
        if self.converter.is_none() {
            // Those that came first are the first.
            row_count = row_count.min(self.most - self.row_count);
        }
        if row_count == 0 {
            return Ok(());
        }
        // Of many rows at once a copy would be large.
        for start in (0..row_count).step_by(ROWS_MAX) {
            let count = ROWS_MAX.min(row_count - start);
            let rows: UInt32Array = (start..start + count).map(|row| row as u32).collect();
            // A slice would keep the batch; and texts stay where they are unless they are compacted.
            let own = |column: &ArrayRef| Ok::<_, ArrowError>(owned(&take(column, &rows, None)?));
            let own = columns.iter().map(own).collect::<Result<Vec<_>, _>>()?;
            self.bytes += bytes_of(&own);
            self.pieces.push(own);
            self.row_count += count;
            self.join_small()?;
            self.is_settled &= self.converter.is_none();
            if self.row_count >= self.most.saturating_mul(2).max(ROWS_MIN) {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Joins the last pieces while they are no smaller than half of the one before: so there are few, and each row is
    /// copied as often as the number of rows has digits.
    fn join_small(&mut self) -> PlanResult<()> {
        while let [.., before, last] = self.pieces.as_slice()
            && before[0].len() <= 2 * last[0].len()
        {
            let both = self.joined(self.pieces.len() - 2)?;
            self.bytes -= self
                .pieces
                .drain(self.pieces.len() - 2..)
                .map(|piece| bytes_of(&piece))
                .sum::<usize>();
            self.bytes += bytes_of(&both);
            self.pieces.push(both);
        }
        Ok(())
    }

    /// The pieces from one on as one, with buffers of its own.
    fn joined(&self, from: usize) -> PlanResult<Vec<ArrayRef>> {
        let column = |index: usize| {
            let parts = self.pieces[from..].iter().map(|piece| piece[index].as_ref());
            Ok(owned(&concat(&parts.collect::<Vec<&dyn Array>>())?))
        };
        (0..=self.by.len()).map(column).collect()
    }

    /// Keeps the first rows in their order, in one piece.
    fn settle(&mut self) -> PlanResult<()> {
        if self.is_settled && self.pieces.len() <= 1 {
            return Ok(());
        }
        let mut columns = self.joined(0)?;
        if let Some(converter) = &self.converter {
            let rows = converter.convert_columns(&columns[1..])?;
            let mut order: Vec<u32> = (0..).take(self.row_count).collect();
            let compared =
                |a: &u32, b: &u32| rows.row(*a as usize).cmp(&rows.row(*b as usize)).then(a.cmp(b));
            if order.len() > self.most {
                order.select_nth_unstable_by(self.most, compared);
                order.truncate(self.most);
            }
            order.sort_unstable_by(compared);
            let order = UInt32Array::from(order);
            columns = columns
                .iter()
                .map(|column| take(column, &order, None))
                // A view keeps the bytes of all others with it.
                .map(|column| Ok::<_, ArrowError>(owned(&column?)))
                .collect::<Result<_, _>>()?;
            self.row_count = order.len();
        }
        self.bytes = bytes_of(&columns);
        self.pieces = vec![columns];
        self.is_settled = true;
        Ok(())
    }

    /// The rows in their order; no columns where there are none.
    fn rows(&mut self) -> PlanResult<Vec<ArrayRef>> {
        self.settle()?;
        let columns = self.pieces.first().cloned().unwrap_or_default();
        let most = self.row_count.min(self.most);
        Ok(columns.iter().map(|column| column.slice(0, most)).collect())
    }
}

/// The list of a group; null where it has no rows.
fn list(values: Option<&ArrayRef>, of: &DataType) -> ScalarValue {
    match values {
        Some(values) => SingleRowListArrayBuilder::new(Arc::clone(values)).build_list_scalar(),
        None => ScalarValue::new_null_list(of.clone(), true, 1),
    }
}

fn bytes_of(columns: &[ArrayRef]) -> usize {
    columns.iter().map(|column| column.get_array_memory_size()).sum()
}

impl Accumulator for FirstValues {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.add(values)?;
        self.bytes_most = self.bytes_most.max(self.bytes);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let Some(lists) = states.first().and_then(|lists| lists.as_list_opt::<i32>()) else {
            return internal_err!("the first values of a group are not a list");
        };
        let orders = states.get(1).and_then(|orders| orders.as_list_opt::<i32>());
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            let mut columns = vec![lists.value(row)];
            if let Some(orders) = orders {
                let order = orders.value(row);
                let order = order.as_struct_opt().filter(|order| order.len() == columns[0].len());
                let Some(order) = order else {
                    return internal_err!("the first values of a group and their order do not fit");
                };
                columns.extend_from_slice(order.columns());
            }
            self.add(&columns)?;
        }
        self.bytes_most = self.bytes_most.max(self.bytes);
        Ok(())
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let rows = self.rows()?;
        let values = list(rows.first(), &self.of);
        if self.by.is_empty() {
            return Ok(vec![values]);
        }
        let order = match rows.get(1..) {
            Some(by) => StructArray::try_new(self.by.clone(), by.to_vec(), None)?,
            None => StructArray::new_null(self.by.clone(), 0),
        };
        let order: ArrayRef = Arc::new(order);
        Ok(vec![values, SingleRowListArrayBuilder::new(order).build_list_scalar()])
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let rows = self.rows()?;
        Ok(list(rows.first(), &self.of))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes_most + self.pieces.capacity() * size_of::<Vec<ArrayRef>>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::compute::SortOptions;
    use proptest::prelude::*;

    use super::*;

    /// A value, and what it is ordered by.
    type Row = (Option<String>, Option<i64>);

    fn empty(most: usize, skips_nulls: bool, options: Option<SortOptions>) -> FirstValues {
        let by = options.map(|_| Field::new("by_0", DataType::Int64, true));
        let sorted = options.map(|options| SortField::new_with_options(DataType::Int64, options));
        FirstValues {
            most,
            skips_nulls,
            of: DataType::Utf8View,
            by: by.into_iter().collect(),
            converter: sorted.map(|sorted| RowConverter::new(vec![sorted]).unwrap()),
            pieces: Vec::new(),
            row_count: 0,
            bytes: 0,
            bytes_most: 0,
            is_settled: true,
        }
    }

    fn columns(rows: &[Row], is_ordered: bool) -> Vec<ArrayRef> {
        let values: StringViewArray = rows.iter().map(|(value, _)| value.as_deref()).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(values)];
        if is_ordered {
            columns.push(Arc::new(rows.iter().map(|(_, by)| *by).collect::<Int64Array>()));
        }
        columns
    }

    fn values(of: &ScalarValue) -> Vec<Option<String>> {
        let ScalarValue::List(list) = of else { panic!("{of:?}") };
        if list.is_null(0) {
            return Vec::new();
        }
        list.value(0).as_string_view().iter().map(|value| value.map(str::to_owned)).collect()
    }

    proptest! {
        #[test]
        fn the_first_values_are_those_of_all_in_order(
            parts in prop::collection::vec(
                prop::collection::vec(
                    prop::collection::vec(
                        (prop::option::weighted(0.8, "[a-z]{0,20}"), prop::option::weighted(0.9, -20..20_i64)),
                        0..700,
                    ),
                    0..5,
                ),
                1..4,
            ),
            most in prop_oneof![1..5_usize, 1..2000_usize, Just(usize::MAX)],
            skips_nulls in any::<bool>(),
            options in prop::option::of((any::<bool>(), any::<bool>())),
        ) {
            let options = options.map(|(descending, nulls_first)| SortOptions { descending, nulls_first });
            let mut merged = empty(most, skips_nulls, options);
            for part in &parts {
                let mut own = empty(most, skips_nulls, options);
                for rows in part {
                    own.update_batch(&columns(rows, options.is_some())).unwrap();
                }
                let state = own.state().unwrap();
                let state: Vec<ArrayRef> = state.iter().map(|of| of.to_array().unwrap()).collect();
                merged.merge_batch(&state).unwrap();
            }
            let all = parts.into_iter().flatten().flatten();
            let mut all: Vec<Row> = all.filter(|(value, _)| !skips_nulls || value.is_some()).collect();
            if let Some(options) = options {
                all.sort_by(|(_, a), (_, b)| match (a, b) {
                    (Some(a), Some(b)) if options.descending => b.cmp(a),
                    (Some(a), Some(b)) => a.cmp(b),
                    (None, None) => std::cmp::Ordering::Equal,
                    (None, _) if options.nulls_first => std::cmp::Ordering::Less,
                    (_, None) if !options.nulls_first => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Greater,
                });
            }
            let expected: Vec<Option<String>> = all.into_iter().take(most).map(|(value, _)| value).collect();
            prop_assert_eq!(values(&merged.evaluate().unwrap()), expected);
        }
    }

    #[test]
    fn of_texts_in_structs_no_others_are_kept_either() {
        let options = SortOptions { descending: true, nulls_first: false };
        let field = Arc::new(Field::new("b", DataType::Utf8View, true));
        let mut state = empty(3, false, Some(options));
        state.of = DataType::Struct(Fields::from(vec![Arc::clone(&field)]));
        for batch in 0..40 {
            let text = |row: i64| format!("a text of more than twelve bytes {row}");
            let rows = (0..20_000).map(|row| (Some(text(row)), Some(batch * 1000 + row)));
            let mut columns = columns(&rows.collect::<Vec<_>>(), true);
            let texts = vec![(Arc::clone(&field), Arc::clone(&columns[0]))];
            columns[0] = Arc::new(StructArray::from(texts));
            state.update_batch(&columns).unwrap();
            assert!(state.size() < 1 << 20, "{} {:?}", state.size(), state.pieces.len());
        }
    }

    #[test]
    fn what_is_given_back_is_not_asked_for_again() {
        let options = SortOptions { descending: true, nulls_first: false };
        let field = Arc::new(Field::new("b", DataType::Utf8View, true));
        let mut state = empty(3, false, Some(options));
        state.of = DataType::Struct(Fields::from(vec![Arc::clone(&field)]));
        let mut asked = 0;
        for batch in 0..400 {
            let text = |row: i64| format!("a text of more than twelve bytes {row}");
            let row_count = [9000, 1500, 700][batch as usize % 3];
            let rows = (0..row_count).map(|row| (Some(text(row)), Some(batch * 1000 + row)));
            let columns = columns(&rows.collect::<Vec<_>>(), true);
            let schema = arrow::datatypes::Schema::new(vec![
                Field::new("v", DataType::Utf8View, true),
                Field::new("k", DataType::Int64, true),
            ]);
            let rows = arrow::array::RecordBatch::try_new(Arc::new(schema), columns).unwrap();
            let mut coalescer = arrow::compute::BatchCoalescer::new(rows.schema(), 8192)
                .with_biggest_coalesce_batch_size(Some(4096));
            let every_second: BooleanArray = (0..row_count).map(|row| Some(row % 2 == 0)).collect();
            coalescer.push_batch_with_filter(rows, &every_second).unwrap();
            coalescer.finish_buffered_batch().unwrap();
            while let Some(rows) = coalescer.next_completed_batch() {
                let mut columns = rows.columns().to_vec();
                let texts = vec![(Arc::clone(&field), Arc::clone(&columns[0]))];
                columns[0] = Arc::new(StructArray::from(texts));
                let before = state.size();
                state.update_batch(&columns).unwrap();
                asked += state.size().saturating_sub(before);
            }
        }
        assert!(asked < 1 << 20, "{asked}");
    }

    #[test]
    fn no_more_than_the_first_are_kept() {
        let options = SortOptions { descending: true, nulls_first: false };
        for options in [None, Some(options)] {
            let mut state = empty(10, false, options);
            let text = |row: i64| format!("a text of more than twelve bytes {row}");
            for batch in 0..200 {
                let rows = (0..1000).map(|row| (Some(text(row)), Some(batch * 1000 + row)));
                let rows: Vec<Row> = rows.collect();
                state.update_batch(&columns(&rows, options.is_some())).unwrap();
                assert!(state.size() < 1 << 20, "{}", state.size());
            }
            let first = values(&state.evaluate().unwrap());
            assert_eq!(first.len(), 10);
            assert_eq!(first[0], Some(text(if options.is_some() { 999 } else { 0 })));
        }
    }
}
