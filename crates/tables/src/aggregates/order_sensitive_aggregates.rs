//! Aggregates over a group's first rows, or over all of them in order: `first_value(x ORDER BY n)`,
//! `last_value(x)`, `any_value(x)`, `array_agg(x)`, and the functions that other databases call `arg_max`,
//! `max_by`, `DISTINCT ON`.
//!
//! Their state is that of [`FirstRowsSpec`]: rows of the ORDER BY columns, the position in the input, and the
//! value. The position makes the order total, so the answer does not depend on how rows are distributed to
//! tables and how tables are merged. Of rows that are otherwise equal, the first or the last of the input
//! decides.
//!
//! ```text
//!   first_value(x ORDER BY n DESC)   at most 1 of {by_0: n, position, value: x}   by n DESC, position
//!   last_value(x ORDER BY n)         at most 1 of {by_0: n, position, value: x}   by n DESC, position DESC
//!   any_value(x)                     at most 1 of {position, value: x}            by position, without nulls
//!   array_agg(x ORDER BY n)          all of {by_0: n, position, value: x}         by n, position
//! ```

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_nested::expr_fn::{array_element, array_slice, array_to_string};
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment, Sort};
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, lit, when,
};
use tidemill_base::column_types::sql_type_name;
use tidemill_planning::datafusion_names::aggregates;

use crate::MergeableFunction;
use crate::aggregates::aggregate_calls::{find_aggregate_call, is_order_sensitive_call};
use crate::aggregates::distinct_rewrite::empty_list_value;
use crate::aggregates::first_rows::{ColumnAnswer, FirstRowsAnswer, FirstRowsSpec};
use crate::{aggregates::limited_lists, aggregates::row_counter};

/// Name of the column with a row's position in the input.
const POSITION_COLUMN: &str = "position";

/// Name of the column with the value.
const VALUE_COLUMN: &str = "value";

/// Returns the mergeable function of a call and its argument, a struct of ORDER BY columns and value. `None`
/// for other calls; a message if the rows of the call cannot be kept.
pub(crate) fn resolve_ordered_call(
    call: &AggregateFunction,
    schema: &DFSchema,
) -> Option<Result<(MergeableFunction, Vec<Expr>), String>> {
    let name = call.func.name();
    let params = &call.params;
    let ignores = params.null_treatment == Some(NullTreatment::IgnoreNulls);
    let value = params.args.first()?;
    let one = |is_last, skips_nulls| RequestedRows {
        is_last,
        skips_nulls,
        rows_max: 1,
        column_answer: ColumnAnswer::LastValue,
    };
    let all = |skips_nulls, shape| RequestedRows {
        is_last: false,
        skips_nulls,
        rows_max: usize::MAX,
        column_answer: shape,
    };
    let wanted = match (name, &params.args[1..]) {
        (aggregates::FIRST_VALUE, []) => one(false, ignores),
        (aggregates::LAST_VALUE, []) => one(true, ignores),
        (aggregates::ANY_VALUE, []) => one(false, true),
        (aggregates::NTH_VALUE, [Expr::Literal(place, _)]) if !ignores => {
            match place.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(Some(place))) if place != 0 => {
                    // A negative index counts from the end.
                    let most = usize::try_from(place.unsigned_abs()).ok()?;
                    RequestedRows { rows_max: most, ..one(place < 0, false) }
                }
                _ => return None,
            }
        }
        (aggregates::ARRAY_AGG, []) => {
            let most = limited_lists::find_array_agg_limit(&call.func).unwrap_or(usize::MAX);
            RequestedRows { rows_max: most, ..all(ignores, ColumnAnswer::List) }
        }
        (aggregates::STRING_AGG, [Expr::Literal(separator, _)]) => all(
            true,
            ColumnAnswer::JoinedText(separator.try_as_str()?.unwrap_or_default().to_owned()),
        ),
        _ => return None,
    };
    if params.distinct {
        return Some(Err(format!("`{name}` is called with DISTINCT")));
    }
    Some(build_first_rows_function(call, value, schema, wanted))
}

/// The rows that a call keeps, and the answer computed from them.
struct RequestedRows {
    /// True for the last rows, false for the first.
    is_last: bool,
    /// True if rows without a value are skipped.
    skips_nulls: bool,
    /// Maximum number of rows.
    rows_max: usize,
    column_answer: ColumnAnswer,
}

fn build_first_rows_function(
    call: &AggregateFunction,
    value: &Expr,
    schema: &DFSchema,
    RequestedRows { is_last, skips_nulls, rows_max: most, column_answer: shape }: RequestedRows,
) -> Result<(MergeableFunction, Vec<Expr>), String> {
    let name = call.func.name();
    let type_of = |expr: &Expr| expr.get_type(schema).map_err(|error| error.to_string());
    let mut fields: Vec<Field> = Vec::new();
    let mut by: Vec<SortOptions> = Vec::new();
    let mut columns: Vec<Expr> = Vec::new();
    for (index, sort) in call.params.order_by.iter().enumerate() {
        let of = type_of(&sort.expr)?;
        // Other code compares these types part by part, or they have no order of their own.
        if of.is_nested() || matches!(of, DataType::Interval(_) | DataType::Null) {
            return Err(format!("`{name}` is ordered by {}", sql_type_name(&of)));
        }
        let column = format!("by_{index}");
        columns.extend([lit(column.as_str()), sort.expr.clone()]);
        fields.push(Field::new(column, of, true));
        // The last rows are the first ones in the reverse order.
        by.push(SortOptions {
            descending: !sort.asc ^ is_last,
            nulls_first: sort.nulls_first ^ is_last,
        });
    }
    fields.push(Field::new(POSITION_COLUMN, DataType::UInt64, true));
    by.push(SortOptions { descending: is_last, nulls_first: false });
    columns.extend([lit(VALUE_COLUMN), value.clone()]);
    fields.push(Field::new(VALUE_COLUMN, type_of(value)?, true));
    let sorted = fields.iter().map(|field| SortField::new(field.data_type().clone()));
    if !RowConverter::supports_fields(&sorted.collect::<Vec<_>>()) {
        let of = fields.last().map_or(DataType::Null, |field| field.data_type().clone());
        return Err(format!("no mergeable state for `{name}` over {}", sql_type_name(&of)));
    }
    let answer = FirstRowsAnswer::ColumnValue { skips_nulls, column_answer: shape };
    let rows = FirstRowsSpec::new(most, Fields::from(fields), by, answer);
    let rows = rows.map_err(|error| error.to_string())?;
    Ok((MergeableFunction::FirstRows(Arc::new(rows)), vec![named_struct(columns)]))
}

// ── rewrite for DataFusion's path ────────────────────────────────────────────────────────

/// Name of the column that numbers rows in input order.
const ROW_NUMBER_COLUMN: &str = "place in the input";

/// Rewrites a plan for DataFusion so that rows that are equal by an aggregate's ORDER BY stay in input order,
/// which DataFusion's sorts do not guarantee.
///
/// Beside such an aggregate, aggregates without an ORDER BY get the input order, as DataFusion would give
/// them the other aggregate's order. Strings and `nth_value` are computed from lists, which sort by
/// themselves, if several orders are requested: DataFusion rejects others then. So are nested first and last
/// values, of which DataFusion keeps slices that each retain a whole batch.
///
/// # Errors
/// Returns the errors of DataFusion's plan builder.
pub fn add_row_numbers(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(add_row_numbers_to_step)?.data)
}

fn add_row_numbers_to_step(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let takes_order =
        |call: &&AggregateFunction| is_order_sensitive_call(call) && !call.params.distinct;
    // For nested values DataFusion keeps a slice and counts the memory of the whole batch with each.
    let is_of_nested = |call: &AggregateFunction| {
        let of = call.params.args.first().and_then(|of| of.get_type(aggregate.input.schema()).ok());
        matches!(
            call.func.name(),
            aggregates::FIRST_VALUE | aggregates::LAST_VALUE | aggregates::ANY_VALUE
        ) && of.is_some_and(|of| of.is_nested())
    };
    let calls = || aggregate.aggr_expr.iter().filter_map(find_aggregate_call).filter(takes_order);
    if calls().all(|call| call.params.order_by.is_empty() && !is_of_nested(call)) {
        return Ok(Transformed::no(plan));
    }
    let are_several = calls().count() > 1;
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let columns = columns.chain([row_counter::create_row_counter().alias(ROW_NUMBER_COLUMN)]);
    let rows =
        LogicalPlanBuilder::from(aggregate.input.as_ref().clone()).project(columns)?.build()?;
    let place = Expr::Column(Column::new_unqualified(ROW_NUMBER_COLUMN));
    let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut of_lists: Vec<Option<ListExtraction>> = vec![None; keys];
    for expr in &aggregate.aggr_expr {
        let Some(call) = find_aggregate_call(expr).filter(takes_order) else {
            calls.push(expr.clone());
            of_lists.push(None);
            continue;
        };
        let mut call = call.clone();
        let mut of_list = None;
        let is_last = is_of_nested(&call) && call.func.name() == aggregates::LAST_VALUE;
        match (call.func.name(), call.params.args.get(1)) {
            (name, _) if is_of_nested(&call) => {
                if name == aggregates::ANY_VALUE {
                    call.params.null_treatment = Some(NullTreatment::IgnoreNulls);
                }
                of_list = Some(ListExtraction::OnlyItem);
            }
            (aggregates::ANY_VALUE, _) => {
                // `any_value` has no order; it is the first value that is not null.
                call.func = first_value_udaf();
                call.params.null_treatment = Some(NullTreatment::IgnoreNulls);
            }
            (aggregates::STRING_AGG, Some(Expr::Literal(separator, _))) if are_several => {
                let separator = separator.try_as_str().flatten().unwrap_or_default().to_owned();
                exclude_null_arguments(&mut call);
                of_list = Some(ListExtraction::JoinedText(separator));
            }
            (aggregates::NTH_VALUE, Some(Expr::Literal(at, _))) if are_several => {
                of_list = Some(ListExtraction::ItemAt(at.cast_to(&DataType::Int64)?));
            }
            ("collect", Some(Expr::Literal(most, _))) => {
                of_list = Some(ListExtraction::FirstItems(most.cast_to(&DataType::Int64)?));
                exclude_null_arguments(&mut call);
            }
            _ => {}
        }
        if let Some(of_list) = &of_list {
            call.func = match of_list {
                ListExtraction::FirstItems(ScalarValue::Int64(Some(most @ 1..))) => {
                    let most = usize::try_from(*most).unwrap_or(usize::MAX);
                    limited_lists::limit_array_agg(array_agg_udaf(), most)
                }
                ListExtraction::OnlyItem => limited_lists::limit_array_agg(array_agg_udaf(), 1),
                _ => array_agg_udaf(),
            };
            call.params.args.truncate(1);
        }
        // DataFusion's list keeps an owned scalar for each row and each of its ORDER BY values, many times
        // the column's bytes.
        if call.func.name() == aggregates::ARRAY_AGG
            && limited_lists::find_array_agg_limit(&call.func).is_none()
        {
            call.func = limited_lists::limit_array_agg(call.func, usize::MAX);
        }
        of_lists.push(of_list);
        // A second sort by the same expression has no effect; DataFusion's accumulators assume that there is
        // none.
        let mut by: Vec<Sort> = Vec::new();
        for sort in std::mem::take(&mut call.params.order_by) {
            if by.iter().all(|known| known.expr != sort.expr) {
                by.push(sort);
            }
        }
        by.push(Sort::new(place.clone(), true, false));
        if is_last {
            // The last rows are the first ones in the reverse order.
            let turned = |sort: Sort| Sort::new(sort.expr, !sort.asc, !sort.nulls_first);
            by = by.into_iter().map(turned).collect();
        }
        call.params.order_by = by;
        calls.push(Expr::AggregateFunction(call).alias(expr.qualified_name().1));
    }
    let made = Aggregate::try_new(Arc::new(rows), aggregate.group_expr.clone(), calls)?;
    if of_lists.iter().all(Option::is_none) {
        return Ok(Transformed::yes(LogicalPlan::Aggregate(made)));
    }
    let shown = of_lists.into_iter().zip(aggregate.schema.iter()).enumerate();
    let shown = shown.map(|(index, (of_list, (qualifier, field)))| {
        let list = Expr::Column(Column::from(made.schema.qualified_field(index)));
        let of = match of_list {
            None => return Ok(list),
            Some(ListExtraction::JoinedText(separator)) => {
                let text = array_to_string(list, lit(separator));
                Expr::Cast(Cast::new(Box::new(text), field.data_type().clone()))
            }
            Some(ListExtraction::OnlyItem) => array_element(list, lit(1i64)),
            Some(ListExtraction::ItemAt(at)) => array_element(list, Expr::Literal(at, None)),
            Some(ListExtraction::FirstItems(most)) => {
                let first = array_slice(list.clone(), lit(1i64), Expr::Literal(most, None), None);
                let first = Expr::Cast(Cast::new(Box::new(first), field.data_type().clone()));
                // `collect` answers an empty list for no values.
                match empty_list_value(field.data_type()).map(|none| Expr::Literal(none, None)) {
                    Some(none) => when(list.is_null(), none).otherwise(first)?,
                    None => first,
                }
            }
        };
        Ok(of.alias_qualified(qualifier.cloned(), field.name()))
    });
    let shown: Vec<Expr> = shown.collect::<PlanResult<_>>()?;
    let groups = Arc::new(LogicalPlan::Aggregate(made));
    let shown = Projection::try_new_with_schema(shown, groups, Arc::clone(&aggregate.schema))?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}

/// The answer extracted from a list.
#[derive(Clone)]
enum ListExtraction {
    /// The values joined with this separator.
    JoinedText(String),
    /// The only value.
    OnlyItem,
    /// The value of this index.
    ItemAt(ScalarValue),
    /// This number of the first values.
    FirstItems(ScalarValue),
}

/// Adds a filter that skips rows whose argument is null.
fn exclude_null_arguments(call: &mut AggregateFunction) {
    let known = call.params.args[0].clone().is_not_null();
    call.params.filter = Some(Box::new(match call.params.filter.take() {
        Some(own) => own.and(known),
        None => known,
    }));
}
