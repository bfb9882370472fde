//! Lists of which a query uses only the first values: `array_slice(array_agg(x ORDER BY n), 1, 3)`, and with
//! it samples, `maximum` and `collect`.
//!
//! For such a list no other values are kept on either path: tables use [`find_array_agg_limit`], DataFusion
//! [accumulators](super::first_values) of this crate, as its own `array_agg` keeps all values of a group to
//! the end.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, Aggregate, AggregateUDF, AggregateUDFImpl, Expr, Filter, GroupsAccumulator,
    LogicalPlan, ReversedUDAF, Signature,
};

use tidemill_planning::datafusion_names::{aggregates, scalars};

use crate::aggregates::aggregate_calls::find_aggregate_call;
use crate::aggregates::first_values::{
    FirstValuesAccumulator, FirstValuesGroupsAccumulator, FirstValuesSpec,
};

/// Rewrites a plan so that lists of which only the first values are used, as in `array_slice(array_agg(x
/// ORDER BY n), 1, 3)`, keep no others.
///
/// # Errors
/// Returns the errors of DataFusion's plan builder.
pub fn limit_lists(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(limit_lists_of_step)?.data)
}

fn limit_lists_of_step(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = &plan else { return Ok(Transformed::no(plan)) };
    // There may be a HAVING in between.
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
        let call = find_aggregate_call(expr).filter(|call| {
            call.func.name() == aggregates::ARRAY_AGG
                && !call.params.distinct
                && crate::aggregates::limited_lists::find_array_agg_limit(&call.func).is_none()
        });
        let most = call.and_then(|_| find_used_items_max(&exprs, &column));
        calls.push(match (call, most) {
            (Some(call), Some(most)) => {
                changed = true;
                let mut call = call.clone();
                call.func = limit_array_agg(call.func, most);
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

/// Returns the maximum number of leading list items that expressions use; `None` if they use others, too.
fn find_used_items_max(exprs: &[Expr], list: &Column) -> Option<usize> {
    let is_list = |expr: &Expr| matches!(expr, Expr::Column(column) if column == list);
    let mut most = None;
    for expr in exprs {
        let mut looks_further = false;
        let walked = expr.apply(|expr| {
            match expr {
                Expr::ScalarFunction(call)
                    if call.func.name() == scalars::ARRAY_SLICE && is_list(&call.args[0]) =>
                {
                    let whole = |expr: Option<&Expr>| match expr {
                        Some(Expr::Literal(value, _)) => match value.cast_to(&DataType::Int64) {
                            Ok(ScalarValue::Int64(Some(value))) => usize::try_from(value).ok(),
                            _ => None,
                        },
                        _ => None,
                    };
                    // The planner adds a step to `[1:3]`.
                    let is_each = call.args.len() == 3 || whole(call.args.get(3)) == Some(1);
                    match (whole(call.args.get(1)), whole(call.args.get(2)), is_each) {
                        // The slice starts at the first item and has at least one: for an empty slice the
                        // list might be missing.
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

/// DataFusion's `array_agg` with a limit on the first values that the query uses.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LimitedArrayAgg {
    datafusion_udaf: Arc<AggregateUDF>,
    items_max: usize,
}

/// Returns `array_agg` limited to some of the first values.
pub(crate) fn limit_array_agg(theirs: Arc<AggregateUDF>, most: usize) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(LimitedArrayAgg { datafusion_udaf: theirs, items_max: most }))
}

/// Returns the limit of a call of `array_agg`, if it has one.
pub(crate) fn find_array_agg_limit(function: &AggregateUDF) -> Option<usize> {
    function.inner().downcast_ref::<LimitedArrayAgg>().map(|limited| limited.items_max)
}

impl AggregateUDFImpl for LimitedArrayAgg {
    fn name(&self) -> &str {
        self.datafusion_udaf.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_udaf.aliases()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_udaf.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_udaf.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> PlanResult<FieldRef> {
        self.datafusion_udaf.inner().return_field(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.datafusion_udaf.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.datafusion_udaf.default_value(data_type)
    }

    /// The kept rows are sorted by the accumulator, so the input needs no sort.
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
        self.datafusion_udaf.inner().supports_null_handling_clause()
    }

    /// Returns the fields of `array_agg`, but names ORDER BY columns by number: DataFusion's name contains a
    /// column index, which differs between the plan above and below the step.
    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let order = args.ordering_fields.iter().map(|field| field.data_type().clone());
        let order: Vec<FieldRef> = numbered_order_fields(order).iter().cloned().collect();
        self.datafusion_udaf.state_fields(StateFieldsArgs { ordering_fields: &order, ..args })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        match self.first_values_spec(&args)? {
            Some(kept) => Ok(Box::new(FirstValuesAccumulator::new(kept)?)),
            None => self.datafusion_udaf.accumulator(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.first_values_spec(&args).is_ok_and(|kept| kept.is_some())
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match self.first_values_spec(&args)? {
            Some(kept) => Ok(Box::new(FirstValuesGroupsAccumulator::new(kept)?)),
            None => self.datafusion_udaf.inner().create_groups_accumulator(args),
        }
    }
}

impl LimitedArrayAgg {
    /// Returns the values to keep of a group; `None` if the call is left to DataFusion.
    fn first_values_spec(&self, args: &AccumulatorArgs<'_>) -> PlanResult<Option<FirstValuesSpec>> {
        let types = args.order_bys.iter().map(|by| by.expr.data_type(args.schema));
        let types = types.collect::<PlanResult<Vec<_>>>()?;
        let sorted = types.iter().zip(args.order_bys);
        let sorted: Vec<SortField> =
            sorted.map(|(of, by)| SortField::new_with_options(of.clone(), by.options)).collect();
        if args.is_distinct || !RowConverter::supports_fields(&sorted) {
            return Ok(None);
        }
        Ok(Some(FirstValuesSpec {
            rows_max: self.items_max,
            skips_nulls: args.ignore_nulls,
            value_type: args.expr_fields[0].data_type().clone(),
            order_fields: numbered_order_fields(types),
            sort_fields: sorted,
        }))
    }
}

/// Returns numbered fields for the ORDER BY columns.
fn numbered_order_fields(of: impl IntoIterator<Item = DataType>) -> Fields {
    let of = of.into_iter().enumerate();
    of.map(|(index, of)| Field::new(format!("by_{index}"), of, true)).collect()
}
