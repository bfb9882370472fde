//! Corrections of `x IN (…)` where DataFusion loses a null or a value.
//!
//! - DataFusion treats a list as constant if evaluating it for zero rows gives one value, which CASE does: `x
//!   IN (nullif(y, 5), 3)` would be null or true. So computed items are compared one by one, after the
//!   optimizer has substituted expressions for columns.
//! - DataFusion merges two lists that AND or OR joins by the text of their items: `x IN (1, 2) AND x IN (a,
//!   b)` would be false. So lists contain only constants from the beginning ([`ConstantListRule`]), and a
//!   null stands beside its list. Two lists without a common item are folded here: for a null `x` the result
//!   is null, neither true nor false.

use std::collections::HashSet;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Cast, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use crate::short_circuit_evaluation::is_infallible_cast;
use tidemill_planning::plan_rewriting::rewrite_all_expressions;

/// Splits lists into constants and other items.
#[derive(Debug)]
pub(crate) struct ConstantListRule;

impl AnalyzerRule for ConstantListRule {
    fn name(&self) -> &'static str {
        "lists_of_constants"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &|expr, _| Ok(split_in_list(expr)))
    }
}

fn null_boolean() -> Expr {
    Expr::Literal(ScalarValue::Boolean(None), None)
}

fn join_conditions(all: Vec<Expr>, negated: bool) -> Option<Expr> {
    if negated { conjunction(all) } else { disjunction(all) }
}

fn split_in_list(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::InList(InList { expr, list, negated }) if !expr.is_volatile() => {
            let is_constant =
                |item: &Expr| matches!(item, Expr::Literal(value, _) if !value.is_null());
            if list.iter().all(is_constant) {
                return Transformed::no(Expr::InList(InList::new(expr, list, negated)));
            }
            let list: Vec<Expr> = list.into_iter().map(fold_lossless_cast).collect();
            if list.iter().all(is_constant) {
                return Transformed::yes(Expr::InList(InList::new(expr, list, negated)));
            }
            let (constants, others): (Vec<_>, Vec<_>) = list.into_iter().partition(is_constant);
            let mut all = Vec::new();
            if !constants.is_empty() {
                all.push(Expr::InList(InList::new(expr.clone(), constants, negated)));
            }
            all.extend(others.into_iter().map(|item| match (&item, negated) {
                (Expr::Literal(_, _), _) => null_boolean(),
                (_, false) => expr.as_ref().clone().eq(item),
                (_, true) => expr.as_ref().clone().not_eq(item),
            }));
            match join_conditions(all, negated) {
                Some(all) => Transformed::yes(all),
                None => Transformed::yes(lit(negated)),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            match fold_disjoint_lists(&left, op, &right) {
                Some(all) => Transformed::yes(all),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right))),
            }
        }
        other => Transformed::no(other),
    }
}

/// Folds the cast of a text or number literal to another type of its kind that holds it. Otherwise ten
/// thousand casts would stand in a chain of comparisons until the optimizer folds them. Later rules define
/// how other values are written as text.
fn fold_lossless_cast(item: Expr) -> Expr {
    let Expr::Cast(Cast { expr, field }) = &item else { return item };
    let Expr::Literal(value, _) = expr.as_ref() else { return item };
    let (from, to) = (value.data_type(), field.data_type());
    let are_alike = from.is_string() && to.is_string() || from.is_numeric() && to.is_numeric();
    match are_alike && is_infallible_cast(&from, to) {
        true => value.cast_to(to).map_or(item, |value| Expr::Literal(value, None)),
        false => item,
    }
}

/// Folds two lists of one value if no value can match both, or if every value matches one of them.
fn fold_disjoint_lists(left: &Expr, op: Operator, right: &Expr) -> Option<Expr> {
    let (Expr::InList(one), Expr::InList(other)) = (left, right) else { return None };
    if one.expr != other.expr || one.expr.is_volatile() {
        return None;
    }
    let set = |list: &InList| list.list.iter().cloned().collect::<HashSet<Expr>>();
    let (first, second) = (set(one), set(other));
    let is_none = match (op, one.negated, other.negated) {
        (Operator::And, false, false) | (Operator::Or, true, true) => first.is_disjoint(&second),
        (Operator::And, false, true) => first.is_subset(&second),
        (Operator::And, true, false) => second.is_subset(&first),
        _ => false,
    };
    let value = one.expr.as_ref().clone();
    is_none.then(|| match op {
        Operator::And => value.is_null().and(null_boolean()),
        _ => value.is_not_null().or(null_boolean()),
    })
}

/// Rewrites lists with computed items as comparisons.
///
/// # Errors
/// The errors of DataFusion's rewriting.
pub(crate) fn expand_computed_lists(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries_dyn(&mut |step| {
        if matches!(step, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(step));
        }
        let names = NamePreserver::new(&step);
        step.map_expressions_dyn(&mut |expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up_dyn(&mut expand_computed_list)?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })
    })
    .data()
}

fn expand_computed_list(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let is_plain = |item: &Expr| matches!(item, Expr::Literal(_, _) | Expr::Column(_));
    match expr {
        Expr::InList(InList { expr, list, negated })
            if !list.iter().all(is_plain) && !expr.is_volatile() =>
        {
            let pairs = list.into_iter().map(|item| match negated {
                false => expr.as_ref().clone().eq(item),
                true => expr.as_ref().clone().not_eq(item),
            });
            let all = if negated { conjunction(pairs) } else { disjunction(pairs) };
            Ok(all.map_or_else(
                || Transformed::no(datafusion::logical_expr::lit(negated)),
                Transformed::yes,
            ))
        }
        other => Ok(Transformed::no(other)),
    }
}
