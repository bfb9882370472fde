//! Rewrites correlated subqueries to joins where DataFusion does not plan them.
//!
//! Such a subquery has one result for each combination of the outer values that it refers to. Here these
//! combinations are a table of their own, the *domain*. Every operator of the subquery is computed for each row of
//! the domain, and the outer rows are joined with the results. (Method: T. Neumann and A. Kemper, "Unnesting
//! Arbitrary Queries", BTW 2015.)
//!
//! ```sql
//! SELECT o.a, (SELECT sum(i.x) FROM i WHERE i.y < o.b) FROM o
//!
//! WITH domain AS (SELECT DISTINCT b FROM o),
//!   rows AS (SELECT domain.b, i.x, true AS found FROM domain CROSS JOIN i WHERE i.y < domain.b),
//!   answers AS (SELECT domain.b, sum(x) FILTER (WHERE found IS NOT NULL) AS value
//!     FROM domain LEFT JOIN rows ON domain.b IS NOT DISTINCT FROM rows.b GROUP BY domain.b)
//! SELECT o.a, answers.value FROM o LEFT JOIN answers ON o.b IS NOT DISTINCT FROM answers.b
//! ```
//!
//! `EXISTS`, `IN`, `ANY` and `ALL` become counts of the rows for which the comparison is true, and of those for which it
//! is null. A `LIMIT` becomes a condition on `row_number()` for each row of the domain.
//!
//! This module finds the subqueries of a plan and joins their results. `domain_evaluation` computes a subquery for
//! each row of a domain. `single_value` is the function that rejects a second row of a scalar subquery.
//!
//! Cost: the outer rows are read twice, and the domain is joined with the input of the subquery. DataFusion's own
//! joins, for subqueries that are correlated by `=` alone, are cheaper; the planner tries them first.

mod domain_evaluation;
mod single_value;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, JoinType, Result as PlanResult, ScalarValue, not_impl_err, plan_err,
};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprFunctionExt, FetchType, Join, LogicalPlan, LogicalPlanBuilder, Operator,
    Projection, Sort, Subquery, Window, binary_expr, lit,
};

use tidemill_base::error::Error;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use crate::null_subquery_conditions::{has_volatile_expression, remove_row_preserving_limit};
use domain_evaluation::CorrelationDomain;
use single_value::single_value_call;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::expression_input_schema;

/// Rewrites the correlated subqueries of a plan, and the subqueries in `JOIN … ON`. Returns `None` if there are
/// none.
///
/// # Errors
/// A `NotImplemented` error for an operator of such a subquery that cannot be computed for each row of a domain.
pub fn rewrite_as_joins(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    let mut rewriter = CorrelationRewriter { last_name_number: 0, join_count: 0 };
    let plan = rewriter.rewrite_plan(plan.clone())?;
    Ok((rewriter.join_count > 0).then_some(plan))
}

/// Returns whether a correlated subquery stands below a side of an outer join that may be filled with nulls.
/// DataFusion moves the condition above the join, which loses the rows that are filled.
///
/// # Errors
/// The errors of DataFusion's schemas.
pub fn has_correlation_below_outer_join(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |step| {
        if let LogicalPlan::Join(join) = step {
            let is_filled = match join.join_type {
                JoinType::Left => [false, true],
                JoinType::Right => [true, false],
                JoinType::Full => [true, true],
                _ => [false, false],
            };
            for (side, is_filled) in [&join.left, &join.right].into_iter().zip(is_filled) {
                found |= is_filled && !is_lateral(side) && !outer_columns(side)?.is_empty();
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns whether a subquery refers to a row beyond the subquery that encloses it. DataFusion joins it with rows
/// that do not have the column.
///
/// # Errors
/// The errors of DataFusion's schemas.
pub fn has_reference_beyond_enclosing_query(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |step| {
        step.apply_expressions_dyn(&mut |expr| {
            expr.apply_dyn(&mut |expr| {
                if let Some(subquery) = embedded_subquery(expr) {
                    let below = expression_input_schema(step)?;
                    let outer = outer_columns(&subquery.subquery)?;
                    found |= outer.iter().any(|column| !below.has_column(column));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Rejects an aggregate in a subquery whose arguments are outer columns alone: in SQL it belongs to the outer
/// query.
///
/// # Errors
/// [`Error::Usage`] that names the aggregate.
pub fn reject_outer_aggregates_in_subqueries(plan: &LogicalPlan) -> PlanResult<()> {
    plan.apply_with_subqueries_dyn(&mut |step| {
        let LogicalPlan::Aggregate(aggregate) = step else {
            return Ok(TreeNodeRecursion::Continue);
        };
        for expr in &aggregate.aggr_expr {
            let (mut has_own, mut has_outer) = (false, false);
            expr.apply_dyn(&mut |expr| {
                has_own |= matches!(expr, Expr::Column(_)) || embedded_subquery(expr).is_some();
                has_outer |= matches!(expr, Expr::OuterReferenceColumn(..));
                Ok(TreeNodeRecursion::Continue)
            })?;
            if has_outer && !has_own {
                let written = expr.clone().transform_up_dyn(&mut |expr| match expr {
                    Expr::OuterReferenceColumn(_, column) => {
                        Ok(Transformed::yes(Expr::Column(column)))
                    }
                    expr => Ok(Transformed::no(expr)),
                })?;
                return Err(into_datafusion_error(Error::usage_with_hint(
                    format!(
                        "`{}` in a subquery is of columns of the query around alone, so it is an aggregate of that query",
                        written.data.human_display()
                    ),
                    "calculate it in a subquery in FROM, and name its column in the subquery",
                )));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The use of a subquery's result.
enum SubqueryUse {
    /// The value of its one row.
    SingleValue,
    /// The existence of rows.
    RowExistence,
    /// A comparison of a value that holds for any of its rows.
    AnyComparison(Box<Expr>, Operator),
}

struct CorrelationRewriter {
    /// Number in the last column name that the rewriter created.
    last_name_number: usize,
    join_count: usize,
}

/// Returns the outer columns of a subquery: those that none of its own operators has.
fn outer_columns(plan: &LogicalPlan) -> PlanResult<Vec<Column>> {
    let mut found = Vec::new();
    collect_outer_columns(plan, &mut found)?;
    Ok(found)
}

fn collect_outer_columns(plan: &LogicalPlan, found: &mut Vec<Column>) -> PlanResult<()> {
    fn add(column: &Column, found: &mut Vec<Column>) {
        if !found.contains(column) {
            found.push(column.clone());
        }
    }
    plan.apply_expressions_dyn(&mut |expr| {
        expr.apply_dyn(&mut |expr| {
            if let Expr::OuterReferenceColumn(_, column) = expr {
                add(column, found);
            }
            if let Some(subquery) = embedded_subquery(expr) {
                let below = expression_input_schema(plan)?;
                for column in outer_columns(&subquery.subquery)? {
                    if !below.has_column(&column) {
                        add(&column, found);
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    match plan {
        // The right side of a LATERAL join refers to the left one.
        LogicalPlan::Join(join) => {
            collect_outer_columns(&join.left, found)?;
            for column in outer_columns(&join.right)? {
                if !(is_lateral(&join.right) && join.left.schema().has_column(&column)) {
                    add(&column, found);
                }
            }
        }
        plan => {
            for input in plan.inputs() {
                collect_outer_columns(input, found)?;
            }
        }
    }
    Ok(())
}

fn embedded_subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Returns whether a relation is a LATERAL subquery, under any name.
fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        LogicalPlan::Projection(projection) => is_lateral(&projection.input),
        _ => false,
    }
}

/// Removes the marker of a LATERAL subquery from a relation.
fn remove_lateral_marker(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_down_dyn(&mut |plan| match plan {
        LogicalPlan::Subquery(subquery) => Ok(Transformed::new(
            Arc::unwrap_or_clone(subquery.subquery),
            true,
            TreeNodeRecursion::Stop,
        )),
        plan => Ok(Transformed::no(plan)),
    })?;
    Ok(plan.data)
}

/// Returns whether a plan has at most one row for each row of a domain.
fn has_at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_at_most_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_at_most_one_row(&alias.input),
        LogicalPlan::Filter(filter) => has_at_most_one_row(&filter.input),
        LogicalPlan::Sort(sort) => has_at_most_one_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0..=1))))
                || has_at_most_one_row(&limit.input)
        }
        _ => false,
    }
}

fn column_exprs(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

fn null_safe_equals(left: &Column, right: &Column) -> Expr {
    binary_expr(
        Expr::Column(left.clone()),
        Operator::IsNotDistinctFrom,
        Expr::Column(right.clone()),
    )
}

impl CorrelationRewriter {
    /// Creates a column name that no query contains.
    fn new_column_name(&mut self) -> String {
        self.last_name_number += 1;
        format!("\u{1}correlated_{}", self.last_name_number)
    }

    fn new_column(&mut self) -> Column {
        Column::new_unqualified(self.new_column_name())
    }

    /// Rewrites a plan bottom-up.
    fn rewrite_plan(&mut self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        let plan = match plan {
            LogicalPlan::Join(join) if is_lateral(&join.right) => {
                return self.rewrite_lateral_join(join);
            }
            plan => {
                plan.map_children(|input| Ok(Transformed::yes(self.rewrite_plan(input)?)))?.data
            }
        };
        self.rewrite_operator(plan)
    }

    /// Joins the left side of a LATERAL join with the results of the right side.
    fn rewrite_lateral_join(&mut self, join: Join) -> PlanResult<LogicalPlan> {
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return not_impl_err!("a LATERAL join of this type");
        }
        let columns = column_exprs(&join.schema);
        let left = self.rewrite_plan(Arc::unwrap_or_clone(join.left))?;
        let right = self.rewrite_plan(remove_lateral_marker(Arc::unwrap_or_clone(join.right))?)?;
        let outer = outer_columns(&right)?;
        let domain = self.build_domain(&left, &right, outer)?;
        let answers = self.compute_per_domain_row(right, &domain)?;
        self.join_count += 1;
        let on = join.on.into_iter().map(|(left, right)| left.eq(right));
        let ties = domain.columns.iter().map(|(outer, own)| null_safe_equals(outer, own));
        let on: Vec<Expr> = ties.chain(on).chain(join.filter).collect();
        let on = if on.is_empty() { vec![lit(true)] } else { on };
        LogicalPlanBuilder::from(left)
            .join_on(answers, join.join_type, on)?
            .project(columns)?
            .build()
    }

    /// Builds the domain of the subquery `plan` from those columns of `outer` that the outer rows have.
    fn build_domain(
        &mut self,
        around: &LogicalPlan,
        plan: &LogicalPlan,
        outer: Vec<Column>,
    ) -> PlanResult<CorrelationDomain> {
        let outer = outer.into_iter().filter(|column| around.schema().has_column(column));
        let columns: Vec<(Column, Column)> =
            outer.map(|outer| (outer, self.new_column())).collect();
        if columns.is_empty() {
            let rows = LogicalPlanBuilder::empty(true).build()?;
            return Ok(CorrelationDomain { rows, columns });
        }
        // The outer rows are read twice, and equal ones share a result.
        if has_volatile_expression(around)? || has_volatile_expression(plan)? {
            return not_impl_err!("a subquery for each row of what differs each time");
        }
        let exprs =
            columns.iter().map(|(outer, own)| Expr::Column(outer.clone()).alias(own.name.clone()));
        let rows = LogicalPlanBuilder::from(around.clone())
            .project(exprs.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        Ok(CorrelationDomain { rows, columns })
    }

    /// Rewrites the subqueries in the expressions of an operator.
    fn rewrite_operator(&mut self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        let mut is_concerned = false;
        let is_join = matches!(plan, LogicalPlan::Join(_));
        plan.apply_expressions_dyn(&mut |expr| {
            is_concerned |= self.has_rewritable_subquery(expr, is_join)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_concerned {
            return Ok(plan);
        }
        let columns = column_exprs(plan.schema());
        match plan {
            LogicalPlan::Filter(filter) => {
                let mut input = Arc::unwrap_or_clone(filter.input);
                let predicate = self.rewrite_subqueries(filter.predicate, &mut input, false)?;
                LogicalPlanBuilder::from(input).filter(predicate)?.project(columns)?.build()
            }
            LogicalPlan::Projection(projection) => {
                let mut input = Arc::unwrap_or_clone(projection.input);
                let exprs = self.rewrite_output_exprs(projection.expr, &mut input)?;
                Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
            }
            LogicalPlan::Aggregate(aggregate) => {
                let mut input = Arc::unwrap_or_clone(aggregate.input);
                let groups = self.rewrite_output_exprs(aggregate.group_expr, &mut input)?;
                let aggregates = aggregate.aggr_expr.into_iter();
                let aggregates =
                    aggregates.map(|expr| self.rewrite_subqueries(expr, &mut input, false));
                let aggregates = aggregates.collect::<PlanResult<Vec<_>>>()?;
                let made = Aggregate::try_new(Arc::new(input), groups, aggregates)?;
                let made_columns = column_exprs(&made.schema);
                let named = aggregate.schema.iter().zip(made_columns).map(
                    |((qualifier, field), column)| {
                        column.alias_qualified(qualifier.cloned(), field.name())
                    },
                );
                LogicalPlanBuilder::from(LogicalPlan::Aggregate(made))
                    .project(named.collect::<Vec<_>>())?
                    .build()
            }
            LogicalPlan::Sort(sort) => {
                let mut input = Arc::unwrap_or_clone(sort.input);
                let keys = sort.expr.into_iter().map(|key| {
                    let expr = self.rewrite_subqueries(key.expr.clone(), &mut input, false)?;
                    Ok(key.with_expr(expr))
                });
                let expr = keys.collect::<PlanResult<Vec<_>>>()?;
                let sorted = Sort { expr, input: Arc::new(input), fetch: sort.fetch };
                LogicalPlanBuilder::from(LogicalPlan::Sort(sorted)).project(columns)?.build()
            }
            LogicalPlan::Window(window) => {
                let mut input = Arc::unwrap_or_clone(window.input);
                let exprs = self.rewrite_output_exprs(window.window_expr, &mut input)?;
                let made = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input))?);
                LogicalPlanBuilder::from(made).project(columns)?.build()
            }
            LogicalPlan::Join(join) => self.rewrite_join(join),
            _ => not_impl_err!("a subquery for each row where this one stands"),
        }
    }

    /// Returns whether an expression contains a subquery to rewrite: a correlated one, a comparison with the rows
    /// of a subquery, and any but a scalar one in `JOIN … ON`.
    fn has_rewritable_subquery(&self, expr: &Expr, is_join: bool) -> PlanResult<bool> {
        expr.exists_dyn(&mut |expr| {
            let Some(subquery) = embedded_subquery(expr) else { return Ok(false) };
            let asks_for_rows = !matches!(expr, Expr::ScalarSubquery(_));
            Ok(matches!(expr, Expr::SetComparison(_))
                || is_join && asks_for_rows
                || !outer_columns(&subquery.subquery)?.is_empty())
        })
    }

    /// Rewrites the output expressions of an operator, which keep their names.
    fn rewrite_output_exprs(
        &mut self,
        exprs: Vec<Expr>,
        input: &mut LogicalPlan,
    ) -> PlanResult<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let exprs = exprs.into_iter().map(|expr| {
            let name = names.save(&expr);
            Ok(name.restore(self.rewrite_subqueries(expr, input, false)?))
        });
        exprs.collect()
    }

    /// Rewrites the subqueries of an expression, and joins `input` with their results.
    fn rewrite_subqueries(
        &mut self,
        expr: Expr,
        input: &mut LogicalPlan,
        is_join: bool,
    ) -> PlanResult<Expr> {
        let answered = expr.transform_up_dyn(&mut |expr| {
            if embedded_subquery(&expr).is_none()
                || !self.has_rewritable_subquery(&expr, is_join)?
            {
                return Ok(Transformed::no(expr));
            }
            Ok(Transformed::yes(match expr {
                Expr::ScalarSubquery(subquery) => {
                    self.join_subquery_result(&subquery, SubqueryUse::SingleValue, input)?
                }
                Expr::Exists(Exists { subquery, negated }) => {
                    let has_rows =
                        self.join_subquery_result(&subquery, SubqueryUse::RowExistence, input)?;
                    if negated { Expr::Not(Box::new(has_rows)) } else { has_rows }
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    let found = self.join_subquery_result(
                        &subquery,
                        SubqueryUse::AnyComparison(expr, Operator::Eq),
                        input,
                    )?;
                    if negated { Expr::Not(Box::new(found)) } else { found }
                }
                Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                    match quantifier {
                        SetQuantifier::Any => self.join_subquery_result(
                            &subquery,
                            SubqueryUse::AnyComparison(expr, op),
                            input,
                        )?,
                        SetQuantifier::All => {
                            let Some(op) = op.negate() else {
                                return not_impl_err!("`{op} ALL` of a subquery");
                            };
                            let other = self.join_subquery_result(
                                &subquery,
                                SubqueryUse::AnyComparison(expr, op),
                                input,
                            )?;
                            Expr::Not(Box::new(other))
                        }
                    }
                }
                other => other,
            }))
        })?;
        Ok(answered.data)
    }

    /// Joins `input` with the results of a subquery, and returns the result as an expression of its columns.
    fn join_subquery_result(
        &mut self,
        subquery: &Subquery,
        question: SubqueryUse,
        input: &mut LogicalPlan,
    ) -> PlanResult<Expr> {
        let rows = self.rewrite_plan(subquery.subquery.as_ref().clone())?;
        let (qualifier, field) = match rows.schema().fields().is_empty() {
            true => return plan_err!("a subquery has no column"),
            false => rows.schema().qualified_field(0),
        };
        let value = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let is_one_row = has_at_most_one_row(&rows);
        let mut outer = outer_columns(&rows)?;
        let compared = match &question {
            SubqueryUse::AnyComparison(expr, _) if expr.is_volatile() => {
                return not_impl_err!("a comparison of what differs each time");
            }
            SubqueryUse::AnyComparison(expr, _) => {
                expr.column_refs().into_iter().cloned().collect()
            }
            _ => Vec::new(),
        };
        for column in compared {
            if !input.schema().has_column(&column) {
                return plan_err!("a compared column is not there");
            }
            if !outer.contains(&column) {
                outer.push(column);
            }
        }
        let domain = self.build_domain(input, &rows, outer)?;
        let rows = match question {
            SubqueryUse::RowExistence => remove_row_preserving_limit(rows)?,
            _ => rows,
        };
        let rows = self.compute_per_domain_row(rows, &domain)?;
        let groups: Vec<Expr> = domain.column_exprs().collect();
        let (answers, answer) = match question {
            SubqueryUse::SingleValue => {
                let answer = self.new_column();
                if is_one_row {
                    let outputs = groups.into_iter().chain([value.alias(answer.name.clone())]);
                    let rows =
                        LogicalPlanBuilder::from(rows).project(outputs.collect::<Vec<_>>())?;
                    (rows, Expr::Column(answer))
                } else {
                    let number = self.new_column();
                    let aggregates = vec![
                        first_value(value, Vec::new()).alias(answer.name.clone()),
                        count(lit(1i64)).alias(number.name.clone()),
                    ];
                    let rows = LogicalPlanBuilder::from(rows).aggregate(groups, aggregates)?;
                    (rows, single_value_call(Expr::Column(answer), Expr::Column(number)))
                }
            }
            SubqueryUse::RowExistence => {
                let number = self.new_column();
                let aggregates = vec![count(lit(1i64)).alias(number.name.clone())];
                let rows = LogicalPlanBuilder::from(rows).aggregate(groups, aggregates)?;
                let number = Expr::Column(number);
                // Null if the row of the domain has no rows.
                (rows, number.clone().is_not_null().and(number.gt(lit(0i64))))
            }
            SubqueryUse::AnyComparison(expr, op) => {
                let compared = expr.transform_up_dyn(&mut |expr| match &expr {
                    Expr::Column(column) => match domain.domain_column(column) {
                        Some(own) => Ok(Transformed::yes(Expr::Column(own.clone()))),
                        None => plan_err!("a compared column is not there"),
                    },
                    _ => Ok(Transformed::no(expr)),
                })?;
                let is_equal = binary_expr(compared.data, op, value);
                let (hits, nulls) = (self.new_column(), self.new_column());
                let of = |condition: Expr, name: &Column| -> PlanResult<Expr> {
                    let count = count(lit(1i64)).filter(condition).build()?;
                    Ok(count.alias(name.name.clone()))
                };
                let aggregates =
                    vec![of(is_equal.clone(), &hits)?, of(is_equal.is_null(), &nulls)?];
                let rows = LogicalPlanBuilder::from(rows).aggregate(groups, aggregates)?;
                let cases = [(hits, ScalarValue::from(true)), (nulls, ScalarValue::Boolean(None))];
                let cases = cases.map(|(number, answer)| {
                    let has_some = Expr::Column(number).gt(lit(0i64));
                    (Box::new(has_some), Box::new(Expr::Literal(answer, None)))
                });
                let case = Case::new(None, cases.into(), Some(Box::new(lit(false))));
                (rows, Expr::Case(case))
            }
        };
        self.join_count += 1;
        let around = LogicalPlanBuilder::from(std::mem::take(input));
        let answers = answers.build()?;
        let ties: Vec<Expr> =
            domain.columns.iter().map(|(outer, own)| null_safe_equals(outer, own)).collect();
        let ties = if ties.is_empty() { vec![lit(true)] } else { ties };
        *input = around.join_on(answers, JoinType::Left, ties)?.build()?;
        Ok(answer)
    }

    /// Rewrites a join whose condition has subqueries. Their results are joined with the side whose columns they
    /// refer to. A condition that refers to both sides becomes a filter above the inner join.
    fn rewrite_join(&mut self, join: Join) -> PlanResult<LogicalPlan> {
        let columns = column_exprs(&join.schema);
        let mut left = Arc::unwrap_or_clone(join.left);
        let mut right = Arc::unwrap_or_clone(join.right);
        let (left_schema, right_schema) = (Arc::clone(left.schema()), Arc::clone(right.schema()));
        let mut conditions = Vec::new();
        let mut above = Vec::new();
        let mut asked_above = Vec::new();
        for condition in join.filter.map(split_conjunction_owned).unwrap_or_default() {
            if !self.has_rewritable_subquery(&condition, true)? {
                conditions.push(condition);
                continue;
            }
            let mut asked = Vec::new();
            condition.apply_dyn(&mut |expr| {
                if let Some(subquery) = embedded_subquery(expr) {
                    asked.extend(outer_columns(&subquery.subquery)?);
                    if let Expr::InSubquery(InSubquery { expr, .. })
                    | Expr::SetComparison(SetComparison { expr, .. }) = expr
                    {
                        asked.extend(expr.column_refs().into_iter().cloned());
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            let is_of = |schema: &DFSchema, other: &DFSchema| {
                asked.iter().all(|column| schema.has_column(column) || !other.has_column(column))
            };
            if is_of(&left_schema, &right_schema) {
                conditions.push(self.rewrite_subqueries(condition, &mut left, true)?);
            } else if is_of(&right_schema, &left_schema) {
                conditions.push(self.rewrite_subqueries(condition, &mut right, true)?);
            } else {
                asked.extend(condition.column_refs().into_iter().cloned());
                asked_above.append(&mut asked);
                above.push(condition);
            }
        }
        let joined_type = if above.is_empty() { join.join_type } else { JoinType::Inner };
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            join.on,
            conjunction(conditions),
            joined_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        match (conjunction(above), join.join_type) {
            (None, _) => {
                LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
            }
            (Some(above), JoinType::Inner) => {
                let mut joined = LogicalPlanBuilder::from(LogicalPlan::Join(joined))
                    .project(columns.clone())?
                    .build()?;
                let above = self.rewrite_subqueries(above, &mut joined, true)?;
                LogicalPlanBuilder::from(joined).filter(above)?.project(columns)?.build()
            }
            (Some(above), JoinType::Left | JoinType::Right | JoinType::Full) => {
                let left_count = left_schema.fields().len();
                self.rewrite_outer_join(
                    joined,
                    join.join_type,
                    (above, asked_above),
                    &join.schema,
                    left_count,
                )
            }
            _ => not_impl_err!("a subquery of both sides of this join"),
        }
    }

    /// Rewrites an outer join with a condition on both sides above it. The result consists of the rows of the inner
    /// join `joined` for which the condition holds, and of the unmatched rows of each preserved side, with nulls.
    /// Rows of a side that agree in the columns of the join's conditions match alike, so these columns identify the
    /// unmatched rows. The first `left_count` columns of `schema` are the left side's.
    ///
    /// Cost: each preserved side reads the inner join once more.
    fn rewrite_outer_join(
        &mut self,
        joined: Join,
        join_type: JoinType,
        (above, asked_above): (Expr, Vec<Column>),
        schema: &DFSchema,
        left_count: usize,
    ) -> PlanResult<LogicalPlan> {
        let sides = [Arc::clone(&joined.left), Arc::clone(&joined.right)];
        let compared = joined.on.iter().flat_map(|(left, right)| [left, right]);
        let compared = compared.chain(&joined.filter).flat_map(Expr::column_refs);
        let mut asked: Vec<Column> = compared.cloned().chain(asked_above).collect();
        asked.sort();
        asked.dedup();
        let mut matched = LogicalPlan::Join(joined);
        if has_volatile_expression(&matched)? {
            return not_impl_err!("a subquery for each row of what differs each time");
        }
        let above = self.rewrite_subqueries(above, &mut matched, true)?;
        let matched = LogicalPlanBuilder::from(matched).filter(above)?.build()?;
        let names: Vec<String> = schema.iter().map(|_| self.new_column_name()).collect();
        let named = |exprs: Vec<Expr>| -> Vec<Expr> {
            exprs.into_iter().zip(&names).map(|(expr, name)| expr.alias(name)).collect()
        };
        let mut rows =
            LogicalPlanBuilder::from(matched.clone()).project(named(column_exprs(schema)))?;
        let kept = match join_type {
            JoinType::Left => [true, false],
            JoinType::Right => [false, true],
            _ => [true, true],
        };
        for (place, side) in sides.into_iter().enumerate().filter(|(place, _)| kept[*place]) {
            let own: Vec<&Column> =
                asked.iter().filter(|column| side.schema().has_column(column)).collect();
            let others: Vec<Column> = own.iter().map(|_| self.new_column()).collect();
            let mut keys: Vec<Expr> = own
                .iter()
                .zip(&others)
                .map(|(own, other)| Expr::Column((*own).clone()).alias(other.name.clone()))
                .collect();
            let mut ties: Vec<Expr> =
                own.iter().zip(&others).map(|(own, other)| null_safe_equals(own, other)).collect();
            if keys.is_empty() {
                // Either all rows match or none.
                keys.push(lit(true).alias(self.new_column_name()));
                ties.push(lit(true));
            }
            let keys =
                LogicalPlanBuilder::from(matched.clone()).project(keys)?.distinct()?.build()?;
            let columns = schema.iter().enumerate().map(|(at, (qualifier, field))| {
                match (at < left_count) == (place == 0) {
                    true => Ok(Expr::Column(Column::from((qualifier, field)))),
                    false => Ok(Expr::Literal(ScalarValue::try_from(field.data_type())?, None)),
                }
            });
            let columns = columns.collect::<PlanResult<Vec<_>>>()?;
            let unmatched = LogicalPlanBuilder::from(Arc::unwrap_or_clone(side))
                .join_on(keys, JoinType::LeftAnti, ties)?
                .project(named(columns))?
                .build()?;
            rows = rows.union(unmatched)?;
        }
        let columns =
            schema.iter().zip(column_exprs(rows.schema())).map(|((qualifier, field), column)| {
                column.alias_qualified(qualifier.cloned(), field.name())
            });
        let columns: Vec<Expr> = columns.collect();
        rows.project(columns)?.build()
    }
}
