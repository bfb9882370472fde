//! Values that differ each time, evaluated once.
//!
//! Several expressions are evaluated as two: `x BETWEEN a AND b` as `x >= a AND x <= b`, a short `IN` as comparisons with
//! each value, `coalesce(x, y)` as a CASE that tests `x` and returns it. A filter on a group's key moves below the
//! aggregation as a copy of the key. If `x` is random, each copy draws another value, and the answer is wrong.
//!
//! [`evaluated_once`] therefore moves each random call of such an expression into a projection below its step, and
//! puts a column in its place:
//!
//! ```text
//! Filter: random() * 2 BETWEEN 0 AND 1       Projection: t.*
//!   t                                    ─►    Filter: random_value_0 * 2 BETWEEN 0 AND 1
//!                                                Projection: t.*, random() AS random_value_0
//!                                                  t
//! ```
//!
//! DataFusion neither merges such a projection into the step above it nor moves a condition on its column below it. A
//! join's condition has no place for the projection, and a lambda has no column for its values: there the expression
//! stays as it is, and [`duplicates_random_value`] is for whoever refuses it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};

use crate::datafusion_names::scalars;

/// The table name of the columns that take the place of random calls.
const TABLE: &str = "evaluated_once";

/// Functions that become a CASE which evaluates their arguments twice. The last argument of `coalesce` and `nvl` is an
/// exception.
const TWICE: [&str; 3] = [scalars::COALESCE, scalars::NVL, scalars::NULLIF];

/// Moves random calls that would be evaluated twice into projections of their own.
///
/// # Errors
/// As DataFusion's plans.
pub fn evaluated_once(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let mut has_random = false;
    plan.apply_with_subqueries(|step| {
        step.apply_expressions(|expr| {
            has_random |= expr.is_volatile();
            Ok(match has_random {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    if !has_random {
        return Ok(plan);
    }
    Ok(plan.transform_up_with_subqueries(moved)?.data)
}

/// Returns true if an expression, not one within it, evaluates a random value twice.
pub fn duplicates_random_value(expr: &Expr) -> bool {
    let is_random = |expr: &Expr| expr.is_volatile();
    match expr {
        Expr::Between(between) => is_random(&between.expr),
        Expr::InList(list) => is_random(&list.expr),
        Expr::Case(case) => case.expr.as_ref().is_some_and(|expr| is_random(expr)),
        Expr::ScalarFunction(call) => duplicated_arguments(call).iter().any(is_random),
        _ => false,
    }
}

/// Returns the arguments of a call that are evaluated twice.
fn duplicated_arguments(call: &ScalarFunction) -> &[Expr] {
    match call.args.split_last() {
        Some((_, others)) if TWICE.contains(&call.name()) => others,
        _ => &[],
    }
}

/// A step whose random calls are in a projection below it, and which outputs the columns that it did.
fn moved(step: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let is_supported = matches!(
        step,
        LogicalPlan::Filter(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_)
    );
    let [input] = step.inputs()[..] else { return Ok(Transformed::no(step)) };
    if !is_supported {
        return Ok(Transformed::no(step));
    }
    let (input, columns) = (Arc::new(input.clone()), step.schema().columns());
    let mut calls = Vec::new();
    let is_random_key = |step: &LogicalPlan, index: usize| match step {
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => index < group_expr.len(),
        _ => false,
    };
    let names = NamePreserver::new(&step);
    let exprs: Vec<Expr> = step
        .expressions()
        .into_iter()
        .enumerate()
        .map(|(index, expr)| {
            let name = names.save(&expr);
            let expr = match is_random_key(&step, index) {
                true => as_columns(expr, &mut calls)?,
                false => expr.transform_down(|expr| within(expr, &mut calls))?,
            };
            Ok(name.restore(expr.data))
        })
        .collect::<PlanResult<_>>()?;
    if calls.is_empty() {
        return Ok(Transformed::no(step));
    }
    let below = input.schema().columns().into_iter().map(Expr::Column).chain(calls).collect();
    let below = LogicalPlan::Projection(Projection::try_new(below, input)?);
    let step = step.with_new_exprs(exprs, vec![below])?;
    if step.schema().fields().len() == columns.len() {
        return Ok(Transformed::yes(step));
    }
    let columns = columns.into_iter().map(Expr::Column).collect();
    let step = Projection::try_new(columns, Arc::new(step))?;
    Ok(Transformed::yes(LogicalPlan::Projection(step)))
}

/// An expression whose duplicated parts have columns in the place of random calls.
fn within(expr: Expr, calls: &mut Vec<Expr>) -> PlanResult<Transformed<Expr>> {
    if !duplicates_random_value(&expr) {
        let is_lambda = matches!(expr, Expr::Lambda(_));
        let next = if is_lambda { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
        return Ok(Transformed::new(expr, false, next));
    }
    let mut boxed = |expr: Box<Expr>| as_columns(*expr, calls).map(|expr| Box::new(expr.data));
    let expr = match expr {
        Expr::Between(mut between) => {
            between.expr = boxed(between.expr)?;
            Expr::Between(between)
        }
        Expr::InList(mut list) => {
            list.expr = boxed(list.expr)?;
            Expr::InList(list)
        }
        Expr::Case(mut case) => {
            case.expr = case.expr.map(boxed).transpose()?;
            Expr::Case(case)
        }
        Expr::ScalarFunction(mut call) => {
            let count = duplicated_arguments(&call).len();
            for argument in &mut call.args[..count] {
                *argument = as_columns(std::mem::take(argument), calls)?.data;
            }
            Expr::ScalarFunction(call)
        }
        other => other,
    };
    Ok(Transformed::yes(expr))
}

/// An expression with columns in the place of its random calls, which are added to `calls`. Calls that depend on a row
/// of the query around a subquery, or on a value of a lambda, stay.
fn as_columns(expr: Expr, calls: &mut Vec<Expr>) -> PlanResult<Transformed<Expr>> {
    expr.transform_down(|expr| {
        if matches!(expr, Expr::Lambda(_)) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        let is_bound = |expr: &Expr| {
            let is_bound = |expr: &Expr| {
                matches!(expr, Expr::OuterReferenceColumn(..) | Expr::LambdaVariable(_))
            };
            expr.exists(|expr| Ok(is_bound(expr)))
        };
        if !expr.is_volatile_node() || is_bound(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = format!("random_value_{}", calls.len());
        calls.push(expr.alias_qualified(Some(TABLE), &name));
        let column = Expr::Column(Column::new(Some(TABLE), name));
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    })
}
