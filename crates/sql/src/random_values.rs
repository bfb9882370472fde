//! Evaluates each random call once.
//!
//! DataFusion evaluates several expressions as two: `x BETWEEN a AND b` as `x >= a AND x <= b`, a short `IN` as
//! comparisons with each value, `coalesce(x, y)` as a CASE that tests `x` and returns it, and a boolean CASE as ANDs and
//! ORs of its conditions and their negations. A filter on a group key moves below the aggregation as a copy of the key.
//! If a copied part is random, each copy draws another value, and the result is wrong.
//!
//! [`evaluate_random_calls_once`] therefore moves each random call of such a part into a projection below its operator,
//! and replaces it by a column:
//!
//! ```text
//! Filter: random() * 2 BETWEEN 0 AND 1       Projection: t.*
//!   t                                    ─►    Filter: random_value_0 * 2 BETWEEN 0 AND 1
//!                                                Projection: t.*, random() AS random_value_0
//!                                                  t
//! ```
//!
//! A random group key moves as a whole, and keeps its name. DataFusion neither merges such a projection into the operator
//! above it nor moves a condition on its column below it. A join's condition has no place for the projection, and a lambda
//! has no column for its values. There the expression stays unchanged; callers that reject it use
//! [`duplicates_random_value`]. `dialect/src/translation/random_value_checks.rs` rejects translations that copy a random
//! call before planning.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, Result as PlanResult};
use datafusion::logical_expr::expr::{GroupingSet, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use tidemill_planning::datafusion_names::RANDOM_FUNCTIONS;
use tidemill_planning::datafusion_names::scalars;

/// The table name of the columns that replace random calls.
const RANDOM_VALUE_TABLE: &str = "evaluated_once";

/// Functions that become a CASE which evaluates their arguments twice, except the last argument of `coalesce` and
/// `nvl`.
const DUPLICATING_FUNCTIONS: [&str; 3] = [scalars::COALESCE, scalars::NVL, scalars::NULLIF];

/// Moves random calls that would be evaluated twice into projections of their own.
///
/// # Errors
/// The errors of DataFusion's plan nodes.
pub fn evaluate_random_calls_once(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let mut has_random = false;
    plan.apply_with_subqueries_dyn(&mut |step| {
        step.apply_expressions_dyn(&mut |expr| {
            has_random |= has_random_call(expr);
            Ok(match has_random {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    if !has_random {
        return Ok(plan);
    }
    Ok(plan.transform_up_with_subqueries_dyn(&mut move_random_calls)?.data)
}

/// Returns whether an expression is a call of one of [`RANDOM_FUNCTIONS`].
pub fn is_random_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if RANDOM_FUNCTIONS.contains(&call.name()))
}

/// Returns whether an expression contains a call of one of [`RANDOM_FUNCTIONS`].
pub fn has_random_call(expr: &Expr) -> bool {
    expr.exists_dyn(&mut |expr| Ok(is_random_call(expr))).unwrap_or(true)
}

/// Returns whether an expression itself, not one within it, evaluates a random value twice.
pub fn duplicates_random_value(expr: &Expr) -> bool {
    match expr {
        Expr::Between(between) => has_random_call(&between.expr),
        Expr::InList(list) => has_random_call(&list.expr),
        Expr::Case(case) => {
            let conditions = case.when_then_expr.iter().map(|(when, _)| when);
            case.expr.iter().chain(conditions).any(|expr| has_random_call(expr))
        }
        Expr::ScalarFunction(call) => duplicated_arguments(call).iter().any(has_random_call),
        _ => false,
    }
}

/// Returns the arguments of a call that are evaluated twice.
fn duplicated_arguments(call: &ScalarFunction) -> &[Expr] {
    match call.args.split_last() {
        Some((_, others)) if DUPLICATING_FUNCTIONS.contains(&call.name()) => others,
        _ => &[],
    }
}

/// Moves the random calls of an operator into a projection below it. The operator's output columns stay the same.
fn move_random_calls(step: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
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
    let mut calls =
        MovedRandomCalls { input_schema: Arc::clone(input.schema()), exprs: Vec::new() };
    let key_count = match &step {
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => group_expr.len(),
        _ => 0,
    };
    let names = NamePreserver::new(&step);
    let exprs: Vec<Expr> = step
        .expressions()
        .into_iter()
        .enumerate()
        .map(|(index, expr)| {
            if index < key_count {
                return move_random_key(expr, &mut calls);
            }
            let name = names.save(&expr);
            Ok(name.restore(
                expr.transform_down_dyn(&mut |expr| move_duplicated_calls(expr, &mut calls))?.data,
            ))
        })
        .collect::<PlanResult<_>>()?;
    if calls.exprs.is_empty() {
        return Ok(Transformed::no(step));
    }
    let below = input.schema().columns().into_iter().map(Expr::Column);
    let below = below.chain(calls.exprs).collect();
    let below = LogicalPlan::Projection(Projection::try_new(below, input)?);
    // A key may itself evaluate a call twice.
    let below = move_random_calls(below)?.data;
    let step = step.with_new_exprs(exprs, vec![below])?;
    if step.schema().fields().len() == columns.len() {
        return Ok(Transformed::yes(step));
    }
    let columns = columns.into_iter().map(Expr::Column).collect();
    let step = Projection::try_new(columns, Arc::new(step))?;
    Ok(Transformed::yes(LogicalPlan::Projection(step)))
}

/// The expressions of the projection below an operator.
struct MovedRandomCalls {
    /// The columns of the operator's input, which the projection passes on.
    input_schema: DFSchemaRef,
    exprs: Vec<Expr>,
}

impl MovedRandomCalls {
    /// Adds an expression under an unused name and returns its column.
    fn move_to_column(&mut self, expr: Expr) -> Expr {
        let is_taken =
            |name: &String| self.input_schema.fields().iter().any(|field| field.name() == name);
        let names = (0..).map(|number| format!("random_value_{number}"));
        let mut free = names.filter(|name| !is_taken(name)).skip(self.exprs.len());
        let name = free.next().unwrap_or_default();
        self.exprs.push(expr.alias_qualified(Some(RANDOM_VALUE_TABLE), &name));
        Expr::Column(Column::new(Some(RANDOM_VALUE_TABLE), name))
    }
}

/// Moves random group keys into columns of the same names. Equal keys of grouping sets share a column.
fn move_random_key(expr: Expr, calls: &mut MovedRandomCalls) -> PlanResult<Expr> {
    let mut each = |expr: Expr| {
        if !has_random_call(&expr) {
            return Ok(expr);
        }
        let name = expr.schema_name().to_string();
        let own = expr.unalias().alias(&name);
        if !calls.exprs.contains(&own) {
            calls.exprs.push(own);
        }
        Ok(Expr::Column(Column::new_unqualified(name)))
    };
    let mut all = |exprs: Vec<Expr>| exprs.into_iter().map(&mut each).collect::<PlanResult<_>>();
    Ok(match expr {
        Expr::GroupingSet(GroupingSet::Rollup(keys)) => {
            Expr::GroupingSet(GroupingSet::Rollup(all(keys)?))
        }
        Expr::GroupingSet(GroupingSet::Cube(keys)) => {
            Expr::GroupingSet(GroupingSet::Cube(all(keys)?))
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            let sets = sets.into_iter().map(all).collect::<PlanResult<_>>()?;
            Expr::GroupingSet(GroupingSet::GroupingSets(sets))
        }
        other => each(other)?,
    })
}

/// Moves the random calls of those parts of an expression that are evaluated twice.
fn move_duplicated_calls(
    expr: Expr,
    calls: &mut MovedRandomCalls,
) -> PlanResult<Transformed<Expr>> {
    if !duplicates_random_value(&expr) {
        let is_lambda = matches!(expr, Expr::Lambda(_));
        let next = if is_lambda { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
        return Ok(Transformed::new(expr, false, next));
    }
    let mut boxed = |expr: Box<Expr>| move_all_calls(*expr, calls).map(|expr| Box::new(expr.data));
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
            case.expr = case.expr.map(&mut boxed).transpose()?;
            for (when, _) in &mut case.when_then_expr {
                *when = boxed(std::mem::take(when))?;
            }
            Expr::Case(case)
        }
        Expr::ScalarFunction(mut call) => {
            let count = duplicated_arguments(&call).len();
            for argument in &mut call.args[..count] {
                *argument = move_all_calls(std::mem::take(argument), calls)?.data;
            }
            Expr::ScalarFunction(call)
        }
        other => other,
    };
    Ok(Transformed::yes(expr))
}

/// Moves all random calls of an expression. Calls that depend on a row of the outer query, or on a lambda variable, stay.
fn move_all_calls(expr: Expr, calls: &mut MovedRandomCalls) -> PlanResult<Transformed<Expr>> {
    expr.transform_down_dyn(&mut |expr| {
        if matches!(expr, Expr::Lambda(_)) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        let is_bound = |expr: &Expr| {
            let is_bound = |expr: &Expr| {
                matches!(expr, Expr::OuterReferenceColumn(..) | Expr::LambdaVariable(_))
            };
            expr.exists_dyn(&mut |expr| Ok(is_bound(expr)))
        };
        if !is_random_call(&expr) || is_bound(&expr)? {
            return Ok(Transformed::no(expr));
        }
        Ok(Transformed::new(calls.move_to_column(expr), true, TreeNodeRecursion::Jump))
    })
}
