//! What a condition says of a subquery's rows where SQL says *unknown*.
//!
//! `x IN (SELECT …)` is null, neither true nor false, where x is not among the rows but x or one of
//! them is null. DataFusion makes joins of such conditions: one that stands by itself, or negated by
//! itself, it answers rightly; below OR, NOT, CASE or IS NULL it takes null for false, which keeps
//! rows that `NOT` would leave out. [`Unknowns`] writes those out beforehand, in the words of the SQL
//! standard (ISO 9075-2, 8.4 and 8.9): true if there is an equal row, else null if x is null and there
//! is a row, or if a row is null, else false.
//!
//! `x < ANY (SELECT …)` DataFusion makes a condition within the subquery; the subquery gets a name of
//! its own, lest a column of it be taken for x, of the same name.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    exists, lit,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::error::Error;

use crate::messages::external;
use crate::rewrite::{each_expression, schema_below};

/// Writes out where a condition on a subquery's rows is null.
#[derive(Debug)]
pub struct Unknowns;

impl AnalyzerRule for Unknowns {
    fn name(&self) -> &str {
        "unknowns_of_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(node)?.data)
    }
}

fn node(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    each_expression(plan, &|expr, _| {
        if let Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) = &expr
        {
            not_of_one_group(subquery)?;
        }
        named_apart(expr)
    })?
    .transform_data(|plan| match plan {
        LogicalPlan::Filter(filter) => conditions(filter),
        plan => Ok(Transformed::no(plan)),
    })
}

/// Refuses an aggregate without GROUP BY over rows that depend on the row around it: it has a row where
/// there is none, and a join has not.
fn not_of_one_group(subquery: &Subquery) -> PlanResult<()> {
    let is_of_one_group = |plan: &LogicalPlan| match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty() && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    };
    match subquery.subquery.exists(|plan| Ok(is_of_one_group(plan)))? {
        true => Err(external(Error::usage_hint(
            "`EXISTS`, `IN`, `ANY` and `ALL` do not take an aggregate of rows that depend on the row \
             around the subquery",
            "compare the aggregate itself: WHERE (SELECT count(*) FROM …) = 0",
        ))),
        false => Ok(()),
    }
}

fn named_apart(expr: Expr) -> PlanResult<Transformed<Expr>> {
    match expr {
        // What refers to the query around it calls its own columns by another name already.
        Expr::SetComparison(comparison) if comparison.subquery.outer_ref_columns.is_empty() => {
            let subquery = named(comparison.subquery)?;
            Ok(Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison })))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// The subquery called differently from all that the query around it reads.
fn named(subquery: Subquery) -> PlanResult<Subquery> {
    let plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    let plan = plan.alias("rows of a subquery")?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn conditions(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = schema_below(&LogicalPlan::Filter(filter.clone()))?;
    let mut changed = false;
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(filter.predicate) {
        let condition = match by_itself(&condition) {
            true => Transformed::no(condition),
            false => null_as_false(condition, &schema)?,
        };
        changed |= condition.transformed;
        conditions.push(condition.data);
    }
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    let filter = LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?);
    Ok(Transformed::new_transformed(filter, changed))
}

/// Whether the whole condition is `x IN (SELECT …)` or its contrary, which DataFusion knows; the
/// contrary only where it is a join on one column: not where the subquery refers to the query around it,
/// nor of a value that is the same for all rows.
fn by_itself(condition: &Expr) -> bool {
    let (found, contrary) = match condition {
        Expr::InSubquery(found) => (found, false),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(found) => (found, true),
            _ => return false,
        },
        _ => return false,
    };
    let is_one_column =
        found.subquery.outer_ref_columns.is_empty() && !found.expr.column_refs().is_empty();
    found.negated == contrary || is_one_column
}

/// A condition that drops rows for null as for false.
fn null_as_false(condition: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let left = null_as_false(*left, schema)?;
            let right = null_as_false(*right, schema)?;
            let changed = left.transformed || right.transformed;
            let sides = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new_transformed(Expr::BinaryExpr(sides), changed))
        }
        Expr::InSubquery(found) if !found.negated => {
            Ok(Transformed::yes(Expr::InSubquery(qualified(found)?)))
        }
        condition => condition.transform_up(|expr| match expr {
            Expr::InSubquery(found) => written_out(found, schema),
            expr => Ok(Transformed::no(expr)),
        }),
    }
}

/// With a table's name before its column where it has none, as of a UNION: DataFusion would take it
/// twice from a join that has given it one.
fn qualified(mut found: InSubquery) -> PlanResult<InSubquery> {
    let (qualifier, _) = found.subquery.subquery.schema().qualified_field(0);
    if qualifier.is_none() && found.subquery.outer_ref_columns.is_empty() {
        found.subquery = named(found.subquery)?;
    }
    Ok(found)
}

/// The condition, null where SQL has it so.
fn written_out(found: InSubquery, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = qualified(found)?;
    let plan = &subquery.subquery;
    let (qualifier, field) = plan.schema().qualified_field(0);
    let value_may_be_null = expr.nullable(schema)?;
    if !value_may_be_null && !field.is_nullable() {
        let found = InSubquery { expr, subquery, negated };
        return Ok(Transformed::yes(Expr::InSubquery(found)));
    }
    if expr.is_volatile() || is_volatile(plan)? {
        return Err(external(Error::usage_hint(
            "`IN (SELECT …)` beside OR, NOT, CASE or IS NULL is asked of the same values more than \
             once, and these differ each time",
            "take what is random from a file of its own",
        )));
    }
    let is_found = Expr::InSubquery(InSubquery::new(expr.clone(), subquery.clone(), false));
    let mut cases = vec![(is_found, ScalarValue::from(!negated))];
    if value_may_be_null {
        let rows = LogicalPlanBuilder::from(Arc::clone(plan));
        cases.push((expr.is_null().and(has_rows(rows, &subquery)?), ScalarValue::Boolean(None)));
    }
    if field.is_nullable() {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let rows = LogicalPlanBuilder::from(Arc::clone(plan)).filter(column.is_null())?;
        cases.push((has_rows(rows, &subquery)?, ScalarValue::Boolean(None)));
    }
    let boxed = |value| Box::new(Expr::Literal(value, None));
    let cases = cases.into_iter().map(|(when, then)| (Box::new(when), boxed(then)));
    let otherwise = Some(boxed(ScalarValue::from(negated)));
    Ok(Transformed::yes(Expr::Case(Case::new(None, cases.collect(), otherwise))))
}

/// Whether there is a row at all; of a subquery that is the same for all rows around it, one is looked
/// for.
fn has_rows(rows: LogicalPlanBuilder, subquery: &Subquery) -> PlanResult<Expr> {
    let rows = match subquery.outer_ref_columns.is_empty() {
        true => rows.limit(0, Some(1))?,
        false => rows,
    };
    Ok(exists(Arc::new(rows.build()?)))
}

fn is_volatile(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
