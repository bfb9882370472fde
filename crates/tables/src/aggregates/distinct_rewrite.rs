//! An optimizer rule that turns `DISTINCT` aggregates into two aggregations, whatever other aggregates stand
//! beside them.
//!
//! `count(DISTINCT x)` counts groups: the lower aggregation groups the rows by the keys and by `x`; the upper
//! one counts the groups of each key, or adds up the distinct values. This is exact, and merges and spills as
//! any aggregation. DataFusion's own rule does the same if nothing else is computed. Beside other aggregates,
//! or for several distinct arguments, each row is taken once for the other aggregates and once for each
//! distinct argument:
//!
//! ```text
//!   k  x   y   v          branch  k  x  y   aggregates of v          k  first(branch 0)  count(x)  count(y)
//!   a  1   p   5            0     a  ∅  ∅       12
//!   a  1   q   7    ─►      1     a  1  ∅        ∅          ─►       a        12             1         2
//!                           2     a  ∅  p        ∅
//!                           2     a  ∅  q        ∅
//! ```
//!
//! DataFusion's rule would also add up sums of sums, which are rounded more than once; it is not used for
//! those.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult, ScalarValue};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Unnest, lit, when,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use tidemill_planning::datafusion_names::aggregates;
use tidemill_sketch::{Hll, HllStorageDialect, SortedIdSet};

use crate::MergeableFunction;
use crate::aggregates::aggregate_calls::{find_aggregate_call, resolve_aggregate_call};
use crate::aggregates::limited_lists;

/// The optimizer rule, which replaces DataFusion's.
#[derive(Debug, Default)]
pub(crate) struct DistinctAggregatesRule(SingleDistinctToGroupBy);

impl OptimizerRule for DistinctAggregatesRule {
    fn name(&self) -> &str {
        "distinct_counts"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let is_distinct =
            |expr: &Expr| find_aggregate_call(expr).is_some_and(|call| call.params.distinct);
        if aggregate.aggr_expr.iter().all(is_distinct) {
            let done = self.0.rewrite(plan.clone(), config)?;
            if done.transformed {
                return Ok(done);
            }
        }
        let calls: Option<Vec<&AggregateFunction>> =
            aggregate.aggr_expr.iter().map(find_aggregate_call).collect();
        let Some(calls) =
            calls.filter(|calls| calls.iter().any(|call| is_rewritable_distinct_call(call)))
        else {
            return self.0.rewrite(plan, config);
        };
        let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
        if has_sets {
            return Ok(Transformed::no(plan));
        }
        // A function without a mergeable state runs on DataFusion's path in any case, which counts as well.
        let schema = aggregate.input.schema();
        let others_merge = calls.iter().all(|call| {
            is_rewritable_distinct_call(call) || resolve_aggregate_call(call, schema).is_ok()
        });
        // Without keys, a null answer to no rows could not be told from one that means too many values.
        let may_give_up = |call: &&AggregateFunction| {
            matches!(
                resolve_aggregate_call(call, schema),
                Ok((MergeableFunction::DistinctValues { .. }, _))
            )
        };
        let is_unclear = aggregate.group_expr.is_empty() && calls.iter().any(may_give_up);
        if !others_merge || is_unclear {
            return self.0.rewrite(plan, config);
        }
        rewrite_distinct_aggregate(aggregate).map(Transformed::yes)
    }
}

/// Functions whose `DISTINCT` calls can be computed from groups of distinct values.
const REWRITABLE_DISTINCT_FUNCTIONS: [&str; 11] = [
    aggregates::ARRAY_AGG,
    aggregates::AVG,
    aggregates::BIT_XOR,
    aggregates::COUNT,
    aggregates::MEDIAN,
    aggregates::STDDEV,
    aggregates::STDDEV_POP,
    aggregates::STRING_AGG,
    aggregates::SUM,
    aggregates::VAR,
    aggregates::VAR_POP,
];

fn is_rewritable_distinct_call(call: &AggregateFunction) -> bool {
    let params = &call.params;
    REWRITABLE_DISTINCT_FUNCTIONS.contains(&call.func.name())
        && params.distinct
        && match params.args.as_slice() {
            [_] => true,
            [_, Expr::Literal(_, _)] => call.func.name() == aggregates::STRING_AGG,
            _ => false,
        }
        && params.order_by.is_empty()
        && params.null_treatment.is_none()
}

/// Name of the branch column that the rule adds to a plan. Such names also appear as keys of partial tables.
const BRANCH_COLUMN: &str = "branch of counts";

fn distinct_column_name(index: usize) -> String {
    format!("counted {index}")
}

/// Returns the name of a key column: its own name if that is unique.
fn key_column_name(aggregate: &Aggregate, index: usize) -> String {
    let fields = aggregate.schema.fields();
    let name = fields[index].name();
    match fields.iter().filter(|field| field.name() == name).count() {
        1 => name.clone(),
        _ => format!("group of counts {index}"),
    }
}

fn column_expr(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn branch_equals(index: usize) -> Expr {
    column_expr(BRANCH_COLUMN).eq(lit(index as i64))
}

/// An alias that marks the function which returns an aggregate's value from the only row that has it.
const SINGLE_ROW_ALIAS: &str = "value of one row";

/// Returns true if a call is of the function marked by `SINGLE_ROW_ALIAS`, whose answer does not depend on
/// row order.
pub fn is_single_row_call(call: &AggregateFunction) -> bool {
    call.func.aliases().iter().any(|alias| alias == SINGLE_ROW_ALIAS)
}

/// Returns true if a step creates the branches of distinct aggregates, each of which has every input row
/// once.
pub fn is_branch_unnest(step: &Unnest) -> bool {
    step.exec_columns.iter().any(|column| column.name == BRANCH_COLUMN)
}

fn rewrite_distinct_aggregate(aggregate: &Aggregate) -> PlanResult<LogicalPlan> {
    let input = &aggregate.input;
    let schema = input.schema();
    // Each row once for the other aggregates, and once for each distinct argument and filter.
    let mut counts: Vec<(&Expr, Option<&Expr>)> = Vec::new();
    for expr in &aggregate.aggr_expr {
        let call = find_aggregate_call(expr).filter(|call| is_rewritable_distinct_call(call));
        let count = call.map(|call| (&call.params.args[0], call.params.filter.as_deref()));
        counts.extend(count.filter(|count| !counts.contains(count)));
    }
    let branches = ScalarValue::new_list_nullable(
        &(0..=counts.len() as i64).map(ScalarValue::from).collect::<Vec<_>>(),
        &arrow::datatypes::DataType::Int64,
    );
    let own = schema
        .iter()
        .map(|(qualifier, field)| Expr::Column(Column::new(qualifier.cloned(), field.name())));
    let rows = LogicalPlanBuilder::from(input.as_ref().clone())
        .project(
            own.chain([Expr::Literal(ScalarValue::List(branches), None).alias(BRANCH_COLUMN)]),
        )?
        .unnest_column(Column::new_unqualified(BRANCH_COLUMN))?;

    // The lower aggregation groups by the keys, the branch and the distinct arguments.
    let mut keys: Vec<Expr> = Vec::new();
    for (index, expr) in aggregate.group_expr.iter().enumerate() {
        keys.push(expr.clone().unalias_nested().data.alias(key_column_name(aggregate, index)));
    }
    // Lists include nulls: a row that the filter rejects has no value, which differs from NULL.
    let mut branch: Option<Expr> = None;
    for (index, count) in counts.iter().enumerate() {
        let is_list = |call: &AggregateFunction| {
            call.func.name() == aggregates::ARRAY_AGG
                && is_rewritable_distinct_call(call)
                && *count == (&call.params.args[0], call.params.filter.as_deref())
        };
        let listed = aggregate.aggr_expr.iter().filter_map(find_aggregate_call).any(is_list);
        if let (true, Some(filter)) = (listed, count.1) {
            let is_left_out = branch_equals(index + 1).and(filter.clone().is_not_true());
            let others = branch.unwrap_or_else(|| column_expr(BRANCH_COLUMN));
            branch = Some(when(is_left_out, lit(0_i64)).otherwise(others)?);
        }
    }
    keys.push(
        branch.map_or_else(|| column_expr(BRANCH_COLUMN), |branch| branch.alias(BRANCH_COLUMN)),
    );
    for (index, (value, filter)) in counts.iter().enumerate() {
        let is_counted = branch_equals(index + 1);
        let is_counted = match filter {
            Some(filter) => is_counted.and((*filter).clone()),
            None => is_counted,
        };
        let value = when(is_counted, (*value).clone()).end()?;
        keys.push(value.alias(distinct_column_name(index)));
    }
    let mut states: Vec<Expr> = Vec::new();
    let names: Vec<String> =
        aggregate.aggr_expr.iter().map(|expr| expr.qualified_name().1).collect();
    for (expr, name) in aggregate.aggr_expr.iter().zip(&names) {
        let Some(call) =
            find_aggregate_call(expr).filter(|call| !is_rewritable_distinct_call(call))
        else {
            continue;
        };
        let mut call = call.clone();
        let filter = match call.params.filter.take() {
            Some(filter) => branch_equals(0).and(*filter),
            None => branch_equals(0),
        };
        call.params.filter = Some(Box::new(filter));
        states.push(Expr::AggregateFunction(call).alias(name.clone()));
    }
    let below = rows.aggregate(keys, states)?;

    // The upper aggregation groups by the keys alone. Each key has one row with the other aggregates.
    let keys =
        (0..aggregate.group_expr.len()).map(|index| column_expr(key_column_name(aggregate, index)));
    let keys: Vec<Expr> = keys.collect();
    let mut answers: Vec<Expr> = Vec::new();
    let mut shown: Vec<Expr> = Vec::new();
    for (index, (qualifier, field)) in
        aggregate.schema.iter().take(aggregate.group_expr.len()).enumerate()
    {
        shown.push(
            column_expr(key_column_name(aggregate, index))
                .alias_qualified(qualifier.cloned(), field.name()),
        );
    }
    let outputs = aggregate.schema.iter().skip(aggregate.group_expr.len());
    for (index, ((expr, name), (qualifier, field))) in
        aggregate.aggr_expr.iter().zip(&names).zip(outputs).enumerate()
    {
        let Some(call) = find_aggregate_call(expr) else { continue };
        let answer = format!("answer {index}");
        let of_call = (&call.params.args.first(), call.params.filter.as_deref());
        let place = counts.iter().position(|(value, filter)| {
            is_rewritable_distinct_call(call) && of_call == (&Some(*value), *filter)
        });
        let (computed, value) = match place {
            Some(place) => {
                let mut call = call.clone();
                call.params.distinct = false;
                call.params.filter = None;
                call.params.args[0] = column_expr(distinct_column_name(place));
                // Lists and strings of distinct values are in ascending order: groups of them have no other
                // order.
                let is_list = call.func.name() == aggregates::ARRAY_AGG;
                if is_list {
                    call.params.filter = Some(Box::new(branch_equals(place + 1)));
                }
                let is_ordered = is_list || call.func.name() == aggregates::STRING_AGG;
                if is_ordered && !counts[place].0.get_type(schema)?.is_nested() {
                    let sort = Sort::new(column_expr(distinct_column_name(place)), true, false);
                    call.params.order_by = vec![sort];
                }
                (call, column_expr(answer.clone()))
            }
            None => {
                let args = vec![column_expr(name.clone())];
                let filter = Some(Box::new(branch_equals(0)));
                // For nested values, DataFusion's first_value would count the memory of the whole batch for
                // each group.
                let is_nested = field.data_type().is_nested();
                let first = if is_nested { array_agg_udaf() } else { first_value_udaf() };
                let first = Arc::new(first.as_ref().clone().with_aliases([SINGLE_ROW_ALIAS]));
                let first =
                    if is_nested { limited_lists::limit_array_agg(first, 1) } else { first };
                let first = AggregateFunction::new_udf(first, args, false, filter, vec![], None);
                // Without keys there is also an answer to no rows.
                let none = match resolve_aggregate_call(call, schema) {
                    Ok((
                        MergeableFunction::Count
                        | MergeableFunction::Unique(_)
                        | MergeableFunction::UniqueExact,
                        _,
                    )) => Some(ScalarValue::from(0i64)),
                    Ok((
                        MergeableFunction::TopK { .. }
                        | MergeableFunction::DistinctSample { .. }
                        | MergeableFunction::InverseHistogram { .. }
                        | MergeableFunction::Histogram { .. }
                        | MergeableFunction::Collect { .. },
                        _,
                    )) => empty_list_value(field.data_type()),
                    Ok((MergeableFunction::IdSet, _)) => {
                        let mut bytes = Vec::new();
                        SortedIdSet::new().encode(&mut bytes);
                        Some(ScalarValue::BinaryView(Some(bytes)))
                    }
                    Ok((MergeableFunction::HllSketch(params), _)) => {
                        let empty = Hll::new(params).ok();
                        empty.map(|hll| {
                            ScalarValue::BinaryView(Some(
                                hll.to_bytes(HllStorageDialect::default()),
                            ))
                        })
                    }
                    Ok((MergeableFunction::Statistic(statistic), _)) => {
                        statistic.value_of_no_rows()
                    }
                    _ => None,
                };
                let value = column_expr(answer.clone());
                let value = if is_nested { array_element(value, lit(1i64)) } else { value };
                let value = match none.filter(|_| aggregate.group_expr.is_empty()) {
                    Some(none) => {
                        when(value.clone().is_null(), Expr::Literal(none, None)).otherwise(value)?
                    }
                    None => value,
                };
                (first, value)
            }
        };
        answers.push(Expr::AggregateFunction(computed).alias(answer));
        shown.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    below.aggregate(keys, answers)?.project(shown)?.build()
}

/// Returns an empty list of the given list type.
pub(crate) fn empty_list_value(of: &arrow::datatypes::DataType) -> Option<ScalarValue> {
    let arrow::datatypes::DataType::List(item) = of else { return None };
    let list = arrow::array::new_empty_array(item.data_type());
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([0]);
    let list = arrow::array::ListArray::try_new(Arc::clone(item), offsets, list, None).ok()?;
    Some(ScalarValue::List(Arc::new(list)))
}
