//! Mapping of aggregate calls in DataFusion's plans to mergeable functions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{AggregateFunction, Alias};
use tidemill_planning::datafusion_names::aggregates;

use crate::aggregates::aggregate_functions::TidemillAggregate;
use crate::aggregates::approximate_aggregates::ApproximateAggregate;
use crate::aggregates::statistics::MomentStatistic;
use crate::{
    BitwiseOperator, MergeableFunction, aggregates::distinct_rewrite, aggregates::first_rows,
    aggregates::order_sensitive_aggregates,
};

/// Returns the aggregate call within an expression, below any aliases.
pub fn find_aggregate_call(expr: &Expr) -> Option<&AggregateFunction> {
    match expr {
        Expr::AggregateFunction(call) => Some(call),
        Expr::Alias(Alias { expr, .. }) => find_aggregate_call(expr),
        _ => None,
    }
}

/// Returns the function that an aggregate estimates its answer with; `None` for exact aggregates.
pub fn find_estimating_function(expr: &Expr) -> Option<MergeableFunction> {
    let (function, _) =
        resolve_aggregate_call(find_aggregate_call(expr)?, &DFSchema::empty()).ok()?;
    match function {
        MergeableFunction::Unique(_)
        | MergeableFunction::HllSketch(_)
        | MergeableFunction::HllUnion { .. }
        | MergeableFunction::Quantile { .. }
        | MergeableFunction::DistinctValues { .. }
        | MergeableFunction::DistinctSample { .. }
        | MergeableFunction::InverseHistogram { .. }
        | MergeableFunction::TopK { .. } => Some(function),
        _ => None,
    }
}

/// Returns the mergeable function for a call over rows of `schema` and its arguments, or the reason why there
/// is none.
pub fn resolve_aggregate_call(
    call: &AggregateFunction,
    schema: &DFSchema,
) -> Result<(MergeableFunction, Vec<Expr>), String> {
    if let Some(found) = order_sensitive_aggregates::resolve_ordered_call(call, schema) {
        return found;
    }
    let name = call.func.name();
    let params = &call.params;
    let other = || format!("no mergeable state for `{name}`");
    if params.null_treatment.is_some() {
        return Err(format!("`{name}` is called with a null treatment"));
    }
    let literal = |expr: &Expr| match expr {
        Expr::Literal(value, _) => Ok(value.clone()),
        _ => Err(format!("the parameters of `{name}` are constants")),
    };
    let first = || params.args.first().cloned().ok_or_else(other);
    if let Some(added) = TidemillAggregate::ALL.into_iter().find(|added| added.sql_name() == name) {
        if params.distinct || !params.order_by.is_empty() {
            return Err(format!("`{name}` is called with DISTINCT or ORDER BY"));
        }
        let weight = added.per_row_argument_index(params.args.len());
        let parameters = params.args.iter().enumerate().skip(1);
        let parameters = parameters.filter(|(place, _)| Some(*place) != weight);
        let parameters = parameters.map(|(_, expr)| literal(expr));
        let parameters = parameters.collect::<Result<Vec<ScalarValue>, _>>()?;
        let mut values = vec![first()?];
        values.extend(weight.map(|place| params.args[place].clone()));
        return Ok((added.resolve_function(&parameters)?, values));
    }
    if let Some(standard) = ApproximateAggregate::find_by_name(name) {
        // A percentile's value arrives both as its ORDER BY and as its first argument.
        if !params.order_by.is_empty() && standard != ApproximateAggregate::PercentileCont {
            return Err(format!("`{name}` is called with ORDER BY"));
        }
        if params.distinct && standard != ApproximateAggregate::Distinct {
            return Err(format!("`{name}` is called with DISTINCT"));
        }
        let value = first()?;
        let parameters =
            params.args[1..].iter().map(literal).collect::<Result<Vec<ScalarValue>, _>>()?;
        let is_descending = params.order_by.iter().any(|sort| !sort.asc);
        return Ok((standard.resolve_function(&parameters, is_descending)?, vec![value]));
    }
    if let Some(of) = first_rows::find_first_rows_spec(call) {
        return Ok((MergeableFunction::FirstRows(Arc::clone(of)), params.args.clone()));
    }
    if let (aggregates::PERCENTILE_CONT, [value, Expr::Literal(share, _)], false) =
        (name, params.args.as_slice(), params.distinct)
    {
        let share = match share.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(&share) => share,
            _ => return Err(format!("the share of `{name}` is from 0 to 1")),
        };
        // The value arrives as the ORDER BY, too.
        let is_descending = params.order_by.iter().any(|sort| !sort.asc);
        let share = if is_descending { 1.0 - share } else { share };
        return Ok((MergeableFunction::Percentile { fraction: share }, vec![value.clone()]));
    }
    if !params.order_by.is_empty() {
        return Err(format!("`{name}` is called with ORDER BY"));
    }
    let distinct_is_harmless = matches!(
        name,
        aggregates::MIN
            | aggregates::MAX
            | aggregates::BOOL_AND
            | aggregates::BOOL_OR
            | aggregates::BIT_AND
            | aggregates::BIT_OR
    );
    if params.distinct && !distinct_is_harmless {
        return Err(format!("`{name}` is called with DISTINCT"));
    }
    if let Some(statistic) = MomentStatistic::from_name(name) {
        return Ok((MergeableFunction::Statistic(statistic), params.args.clone()));
    }
    let function = match (name, params.args.as_slice()) {
        (aggregates::COUNT, []) => return Ok((MergeableFunction::Count, vec![])),
        (aggregates::COUNT, [Expr::Literal(value, _)]) if !value.is_null() => {
            return Ok((MergeableFunction::Count, vec![]));
        }
        (aggregates::COUNT, [_]) => MergeableFunction::Count,
        (aggregates::SUM, [_]) => MergeableFunction::Sum,
        (aggregates::AVG, [_]) => MergeableFunction::Mean,
        // `bool_and` is the minimum, `bool_or` the maximum.
        (aggregates::MIN | aggregates::BOOL_AND, [_]) => MergeableFunction::Min,
        (aggregates::MAX | aggregates::BOOL_OR, [_]) => MergeableFunction::Max,
        (aggregates::BIT_AND, [_]) => MergeableFunction::Bitwise(BitwiseOperator::And),
        (aggregates::BIT_OR, [_]) => MergeableFunction::Bitwise(BitwiseOperator::Or),
        (aggregates::BIT_XOR, [_]) => MergeableFunction::Bitwise(BitwiseOperator::Xor),
        (aggregates::MEDIAN, [_]) => MergeableFunction::Median,
        _ => return Err(other()),
    };
    Ok((function, params.args.clone()))
}

/// Returns true if the answer of a call depends on the order of rows.
pub fn is_order_sensitive_call(call: &AggregateFunction) -> bool {
    const ORDER_SENSITIVE_FUNCTIONS: [&str; 7] = [
        aggregates::ANY_VALUE,
        aggregates::ARRAY_AGG,
        "collect",
        aggregates::FIRST_VALUE,
        aggregates::LAST_VALUE,
        aggregates::NTH_VALUE,
        aggregates::STRING_AGG,
    ];
    ORDER_SENSITIVE_FUNCTIONS.contains(&call.func.name())
        && !distinct_rewrite::is_single_row_call(call)
}

/// Returns the alias that an expression gives to column `name`; `None` if it is another expression.
pub fn find_alias(expr: &Expr, name: &str) -> Option<String> {
    let Expr::Alias(alias) = expr else { return None };
    match alias.expr.as_ref() {
        Expr::Column(column) if column.name == name => Some(alias.name.clone()),
        inner => find_alias(inner, name).map(|_| alias.name.clone()),
    }
}
