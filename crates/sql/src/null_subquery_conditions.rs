//! Conditions on a subquery's rows that SQL defines as *unknown*.
//!
//! `x IN (SELECT …)` is null, neither true nor false, if x is not among the rows but x or one of
//! them is null. DataFusion turns such conditions into joins. A condition that stands alone, or is negated
//! alone, gets the right result; below OR, NOT, CASE or IS NULL DataFusion treats null as false, which keeps
//! rows that `NOT` should drop. [`NullSubqueryConditionsRule`] spells those out beforehand, as the SQL
//! standard defines them (ISO 9075-2, 8.4 and 8.9): true if there is an equal row, else null if x is null and there
//! is a row, or if a row is null, else false.
//!
//! Outside of WHERE, in a select list or an aggregate's argument, DataFusion has no join for such a condition.
//! There the rule replaces it by a count of the rows, which is a scalar subquery ([`row_count_condition`]). Above
//! a table's rows it becomes a column of its own, computed below the aggregate or window.
//!
//! DataFusion turns `x < ANY (SELECT …)` into a condition within the subquery. The rule gives the subquery a name of
//! its own, so that a column of it with the same name is not taken for x.
//!
//! A scalar subquery without a row is null, even if its column is not nullable ([`wrap_nullable_scalar_subquery`]).

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, ExprSchema, Result as PlanResult, ScalarValue, Spans, plan_err,
};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Distinct, Expr, ExprSchemable, FetchType, Filter, LogicalPlan,
    LogicalPlanBuilder, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, SkipType, Subquery, Volatility, exists, lit,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::error::Error;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::{expression_input_schema, rewrite_all_nodes};

/// An analyzer rule that spells out the cases in which a condition on a subquery's rows is null.
#[derive(Debug)]
pub(crate) struct NullSubqueryConditionsRule;

impl AnalyzerRule for NullSubqueryConditionsRule {
    fn name(&self) -> &str {
        "unknowns_of_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_nodes(plan, &rewrite_condition_expr, rewrite_node)
    }
}

/// Rewrites `x IN (SELECT e FROM u)` where `e` refers only to outer columns: DataFusion makes a join
/// of it that has no column to compare. All rows of `u` have the same `e`, so it is
/// `EXISTS (SELECT 1 FROM u) AND x = e`, which is unknown in the same cases. Returns `None` for other subqueries.
fn rewrite_in_outer_value(found: &InSubquery) -> PlanResult<Option<Expr>> {
    let mut rows = found.subquery.subquery.as_ref();
    while let LogicalPlan::Distinct(Distinct::All(input)) = rows {
        rows = input;
    }
    let LogicalPlan::Projection(selected) = rows else { return Ok(None) };
    let [value] = selected.expr.as_slice() else { return Ok(None) };
    let value = value.clone().unalias();
    let is_of_outer_row = value.contains_outer() && value.column_refs().is_empty();
    let is_plain = !value.is_volatile()
        && !value.exists_dyn(&mut |expr| {
            Ok(matches!(
                expr,
                Expr::AggregateFunction(_)
                    | Expr::WindowFunction(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::InSubquery(_)
                    | Expr::Exists(_)
                    | Expr::SetComparison(_)
                    | Expr::Unnest(_)
            ))
        })?;
    if !is_of_outer_row || !is_plain {
        return Ok(None);
    }
    let value = value.transform_up_dyn(&mut |expr| {
        Ok(match expr {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    })?;
    let any =
        LogicalPlanBuilder::from(selected.input.as_ref().clone()).project([lit(1)])?.build()?;
    let outer = any.all_out_ref_exprs();
    let subquery = Subquery {
        subquery: Arc::new(any),
        outer_ref_columns: outer,
        spans: found.subquery.spans.clone(),
    };
    let is_found = Expr::Exists(Exists { subquery, negated: false })
        .and(found.expr.as_ref().clone().eq(value.data));
    Ok(Some(if found.negated { Expr::Not(Box::new(is_found)) } else { is_found }))
}

fn rewrite_condition_expr(expr: Expr, _: &DFSchema) -> PlanResult<Transformed<Expr>> {
    if let Expr::InSubquery(found) = &expr
        && let Some(answer) = rewrite_in_outer_value(found)?
    {
        return Ok(Transformed::yes(answer));
    }
    if let Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::SetComparison(SetComparison { subquery, .. }) = &expr
    {
        reject_ungrouped_aggregate(subquery)?;
    }
    if let Expr::Exists(Exists { subquery, .. }) = &expr {
        reject_lost_limits(subquery)?;
    }
    if let Expr::ScalarSubquery(subquery) = &expr {
        reject_nested_ungrouped_aggregate(&subquery.subquery)?;
    }
    alias_set_comparison(wrap_nullable_scalar_subquery(expr))
}

fn rewrite_node(plan: LogicalPlan, _: &DFSchema) -> PlanResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => {
            rewrite_filter_conditions(filter)?.transform_data(|plan| match plan {
                LogicalPlan::Filter(filter) => project_correlation_expressions(filter),
                plan => Ok(Transformed::no(plan)),
            })
        }
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => compute_conditions_below(plan),
        // The right side of a LATERAL join.
        LogicalPlan::Subquery(subquery) => {
            reject_nested_ungrouped_aggregate(&subquery.subquery)?;
            Ok(Transformed::no(LogicalPlan::Subquery(subquery)))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// Returns whether the expression is a subquery condition that DataFusion's joins do not support in such an operator.
fn needs_column_below(expr: &Expr, step: &LogicalPlan) -> bool {
    match expr {
        Expr::Exists(_) | Expr::InSubquery(_) => true,
        // DataFusion joins a correlated scalar subquery only below a projection or a filter.
        Expr::ScalarSubquery(subquery) => {
            !subquery.outer_ref_columns.is_empty()
                && matches!(step, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_))
        }
        _ => false,
    }
}

/// Moves the subquery conditions of an operator to a projection below it.
fn compute_conditions_below(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else { return Ok(Transformed::no(plan)) };
    let schema = Arc::clone(input.schema());
    let mut computed: Vec<(Expr, String)> = Vec::new();
    let is_taken = |name: &str| schema.fields().iter().any(|field| field.name() == name);
    let mut names = (1..).map(|number| format!("__asked_{number}")).filter(|name| !is_taken(name));
    plan.apply_expressions_dyn(&mut |expr| {
        expr.apply_dyn(&mut |expr| {
            if needs_column_below(expr, &plan) && !computed.iter().any(|(other, _)| other == expr) {
                computed.extend(names.next().map(|name| (expr.clone(), name)));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if computed.is_empty() {
        return Ok(Transformed::no(plan));
    }
    for (expr, _) in &computed {
        check_outer_columns_available(expr, &schema)?;
    }
    let mut columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    for (expr, name) in &computed {
        columns.push(rewrite_as_row_count(expr.clone(), &schema)?.data.alias(name));
    }
    let input = LogicalPlanBuilder::from(input.clone()).project(columns)?.build()?;
    let is_sort = matches!(plan, LogicalPlan::Sort(_));
    let names = NamePreserver::new(&plan);
    let exprs = plan.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let expr = expr.transform_up_dyn(&mut |expr| {
            Ok(match computed.iter().find(|(other, _)| *other == expr) {
                Some((_, name)) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
                None => Transformed::no(expr),
            })
        })?;
        Ok(name.restore(expr.data))
    });
    let exprs = exprs.collect::<PlanResult<Vec<_>>>()?;
    let plan = plan.with_new_exprs(exprs, vec![input])?;
    // An operator that passes its input on must not pass the new columns on.
    let plan = match is_sort || matches!(plan, LogicalPlan::Window(_)) {
        true => {
            let is_own = |column: &Column| !computed.iter().any(|(_, name)| *name == column.name);
            let columns = plan.schema().columns().into_iter().filter(is_own).map(Expr::Column);
            let columns: Vec<Expr> = columns.collect();
            LogicalPlanBuilder::from(plan).project(columns)?.build()?
        }
        false => plan,
    };
    Ok(Transformed::yes(plan))
}

/// Rejects a condition that depends on outer columns which the operator does not have.
fn check_outer_columns_available(condition: &Expr, schema: &DFSchema) -> PlanResult<()> {
    let (Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::ScalarSubquery(subquery)) = condition
    else {
        return Ok(());
    };
    let is_missing = |outer: &Expr| match outer {
        Expr::OuterReferenceColumn(_, column) => !schema.has_column(column),
        _ => false,
    };
    match subquery.outer_ref_columns.iter().any(is_missing) {
        true => Err(into_datafusion_error(Error::usage_with_hint(
            "a subquery that depends on the row around it cannot stand in ORDER BY or a window over groups",
            "name it in the select list of a subquery, and order by its name",
        ))),
        false => Ok(()),
    }
}

/// Rewrites a condition on a subquery's rows to one on their count.
fn rewrite_as_row_count(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            let rows = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
            Ok(Transformed::yes(row_count_condition(rows, subquery.outer_ref_columns, negated)?))
        }
        Expr::InSubquery(found) => {
            let written = case_with_nulls(found, schema)?.data;
            written.transform_up_dyn(&mut |expr| match expr {
                Expr::InSubquery(found) => {
                    Ok(Transformed::yes(equal_row_count_condition(found, schema)?))
                }
                Expr::Exists(Exists { subquery, negated }) => {
                    let rows = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
                    Ok(Transformed::yes(row_count_condition(
                        rows,
                        subquery.outer_ref_columns,
                        negated,
                    )?))
                }
                expr => Ok(Transformed::no(expr)),
            })
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// The name of the subquery column that is compared.
const COMPARED_COLUMN: &str = "what is compared with a value of the row around";

/// Returns a condition on the count of rows that equal a value, where neither is null.
fn equal_row_count_condition(found: InSubquery, schema: &DFSchema) -> PlanResult<Expr> {
    let InSubquery { expr, subquery, negated } = found;
    let Subquery { subquery, mut outer_ref_columns, .. } = subquery;
    let value = expr.transform_up_dyn(&mut |expr| match expr {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            let outer = Expr::OuterReferenceColumn(field, column);
            if !outer_ref_columns.contains(&outer) {
                outer_ref_columns.push(outer.clone());
            }
            Ok(Transformed::yes(outer))
        }
        expr => Ok(Transformed::no(expr)),
    })?;
    // Under a name that the value cannot refer to.
    let (qualifier, field) = subquery.schema().qualified_field(0);
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name())).alias(COMPARED_COLUMN);
    let rows = LogicalPlanBuilder::from(subquery).project(vec![column])?;
    let compared = Expr::Column(Column::new_unqualified(COMPARED_COLUMN));
    let rows = rows.filter(compared.eq(value.data))?;
    row_count_condition(rows, outer_ref_columns, negated)
}

/// Returns the condition that there are rows, or none, as a comparison of a scalar subquery. In an uncorrelated
/// subquery one row suffices. The rows of a correlated one are counted for each value that it depends on, without its
/// LIMIT.
fn row_count_condition(
    rows: LogicalPlanBuilder,
    outer: Vec<Expr>,
    negated: bool,
) -> PlanResult<Expr> {
    let rows = match outer.is_empty() {
        true => rows.limit(0, Some(1))?,
        false => LogicalPlanBuilder::from(remove_row_preserving_limit(rows.build()?)?),
    };
    let count = count(lit(1i64)).alias("how many rows of a subquery");
    let rows = rows.aggregate(Vec::<Expr>::new(), vec![count])?.build()?;
    let counted = Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(rows),
        outer_ref_columns: outer,
        spans: Spans::new(),
    });
    Ok(if negated { counted.eq(lit(0i64)) } else { counted.gt(lit(0i64)) })
}

/// Removes a LIMIT that leaves at least one row if there is one.
pub(crate) fn remove_row_preserving_limit(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    match plan {
        LogicalPlan::Limit(limit)
            if matches!(limit.get_skip_type()?, SkipType::Literal(0))
                && matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1..))) =>
        {
            remove_row_preserving_limit(limit.input.as_ref().clone())
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            remove_row_preserving_limit(sort.input.as_ref().clone())
        }
        plan => Ok(plan),
    }
}

/// Rejects an aggregate without GROUP BY, or with grouping sets, over correlated rows: it has a
/// row for an empty input, and a join has none.
fn reject_ungrouped_aggregate(subquery: &Subquery) -> PlanResult<()> {
    match subquery.subquery.exists_dyn(&mut |plan| {
        Ok(is_correlated_ungrouped_aggregate(plan) || is_correlated_grouping_sets_aggregate(plan))
    })? {
        true => Err(into_datafusion_error(Error::usage_with_hint(
            "`EXISTS`, `IN`, `ANY` and `ALL` do not take an aggregate without GROUP BY, or with ROLLUP, CUBE or \
             GROUPING SETS, of rows that depend on the row around the subquery",
            "compare the aggregate itself: WHERE (SELECT count(*) FROM …) = 0",
        ))),
        false => Ok(()),
    }
}

/// Returns whether a node is an aggregate without GROUP BY over correlated rows.
fn is_correlated_ungrouped_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty() && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    }
}

/// Returns whether a node is an aggregate with grouping sets over correlated rows.
fn is_correlated_grouping_sets_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
                && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    }
}

/// Rejects a LIMIT or OFFSET that changes the result of a correlated EXISTS: DataFusion's join drops it.
fn reject_lost_limits(subquery: &Subquery) -> PlanResult<()> {
    let mut is_tied = false;
    match loses_limit(&subquery.subquery, true, &mut is_tied)? {
        true => Err(into_datafusion_error(Error::usage_with_hint(
            "`EXISTS` does not take this LIMIT or OFFSET: its rows depend on the row around the subquery",
            "count the rows: WHERE (SELECT count(*) FROM … WHERE …) > 1 in place of EXISTS (… OFFSET 1)",
        ))),
        false => Ok(()),
    }
}

/// Returns whether a plan has a limit that DataFusion drops although it affects the existence of rows. DataFusion
/// visits the nodes bottom-up and from the left, and drops the limits after the first condition that refers
/// to an outer row. `is_top` says that a row of this node is a row of the subquery.
fn loses_limit(plan: &LogicalPlan, is_top: bool, is_tied: &mut bool) -> PlanResult<bool> {
    let passes_rows = matches!(
        plan,
        LogicalPlan::Projection(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Limit(_)
    );
    for input in plan.inputs() {
        if loses_limit(input, is_top && passes_rows, is_tied)? {
            return Ok(true);
        }
    }
    let LogicalPlan::Limit(limit) = plan else {
        let refers_to_outer = |expr: &Expr| {
            expr.exists_dyn(&mut |expr| Ok(matches!(expr, Expr::OuterReferenceColumn(..))))
        };
        for expr in plan.expressions() {
            *is_tied |= refers_to_outer(&expr)?;
        }
        return Ok(false);
    };
    let keeps_some_row = matches!(limit.get_skip_type()?, SkipType::Literal(0))
        && matches!(limit.get_fetch_type()?, FetchType::Literal(_));
    Ok(*is_tied && !(is_top && keeps_some_row))
}

/// Rejects an aggregate over such an aggregate's one row: if no row matches the outer row, DataFusion's
/// join has none, and the outer aggregate has no input.
fn reject_nested_ungrouped_aggregate(plan: &LogicalPlan) -> PlanResult<()> {
    let mut is_over = |plan: &LogicalPlan| {
        let input = match plan {
            LogicalPlan::Aggregate(aggregate) => &aggregate.input,
            LogicalPlan::Distinct(distinct) => distinct.input(),
            LogicalPlan::Window(window) => &window.input,
            _ => return Ok(false),
        };
        input.exists_dyn(&mut |plan| Ok(is_correlated_ungrouped_aggregate(plan)))
    };
    match plan.exists_dyn(&mut is_over)? {
        true => Err(into_datafusion_error(Error::usage_with_hint(
            "an aggregate over an aggregate of rows that depend on the row around the subquery is not supported",
            "there is one row of the inner one: take its value itself, (SELECT count(*) FROM … WHERE …)",
        ))),
        false => Ok(()),
    }
}

fn alias_set_comparison(expr: Transformed<Expr>) -> PlanResult<Transformed<Expr>> {
    expr.transform_data(|expr| match expr {
        // A correlated subquery has other names for its own columns already.
        Expr::SetComparison(comparison) if comparison.subquery.outer_ref_columns.is_empty() => {
            let subquery = alias_subquery(comparison.subquery)?;
            Ok(Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison })))
        }
        expr => Ok(Transformed::no(expr)),
    })
}

/// Marks a scalar subquery that may have no row as nullable: DataFusion considers only the subquery's
/// column, and evaluates `(SELECT 1 WHERE false) IS NULL` to false.
fn wrap_nullable_scalar_subquery(expr: Expr) -> Transformed<Expr> {
    static OR_NULL: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(NullableValueFunction::new())));
    let is_it = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func == *OR_NULL);
    match expr {
        Expr::ScalarSubquery(subquery)
            if !subquery.subquery.schema().fields().iter().all(|field| field.is_nullable())
                && !has_exactly_one_row(&subquery.subquery) =>
        {
            Transformed::yes(OR_NULL.call(vec![Expr::ScalarSubquery(subquery)]))
        }
        // The plan is analyzed a second time.
        Expr::ScalarFunction(mut call)
            if call.func == *OR_NULL && call.args.first().is_some_and(is_it) =>
        {
            Transformed::yes(call.args.swap_remove(0))
        }
        expr => Transformed::no(expr),
    }
}

/// Returns whether a plan has exactly one row for any input.
fn has_exactly_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_exactly_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_exactly_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// The function `or_null`, which returns its argument and is nullable.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NullableValueFunction {
    signature: Signature,
}

impl NullableValueFunction {
    fn new() -> Self {
        NullableValueFunction { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for NullableValueFunction {
    fn name(&self) -> &str {
        "or_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [data_type] => Ok(data_type.clone()),
            _ => plan_err!("`or_null` takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        match args.arg_fields {
            [field] => Ok(Arc::new(field.as_ref().clone().with_nullable(true))),
            _ => plan_err!("`or_null` takes one argument"),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.is_empty() {
            false => Ok(args.args.swap_remove(0)),
            true => plan_err!("`or_null` takes one argument"),
        }
    }
}

/// Gives the subquery and its column names that the outer query does not use: `sum(v)` of
/// one is not the `sum(v)` of the other.
fn alias_subquery(subquery: Subquery) -> PlanResult<Subquery> {
    let mut plan = LogicalPlanBuilder::from(Arc::clone(&subquery.subquery));
    if let [column] = &subquery.subquery.schema().columns()[..] {
        plan = plan.project(vec![Expr::Column(column.clone()).alias("value of a subquery")])?;
    }
    let plan = plan.alias("rows of a subquery")?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn rewrite_filter_conditions(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = expression_input_schema(&LogicalPlan::Filter(filter.clone()))?;
    let mut changed = false;
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(filter.predicate) {
        // An operand without columns makes no join: DataFusion loses the condition.
        let condition = condition.transform_up_dyn(&mut |expr| match &expr {
            Expr::InSubquery(found) if found.expr.column_refs().is_empty() => {
                rewrite_as_row_count(expr, &schema)
            }
            _ => Ok(Transformed::no(expr)),
        })?;
        changed |= condition.transformed;
        let condition = match is_supported_in_condition(&condition.data) {
            true => Transformed::no(condition.data),
            false => rewrite_treating_null_as_false(condition.data, &schema)?,
        };
        changed |= condition.transformed;
        conditions.push(condition.data);
    }
    let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
    let filter = LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?);
    Ok(Transformed::new_transformed(filter, changed))
}

/// Moves the inner expressions of correlated equalities to columns. DataFusion groups by the columns in an
/// equality, even if the compared value is a cast of one, and rejects other expressions.
fn project_correlation_expressions(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(filter.input.schema());
    let is_taken = |name: &str| schema.fields().iter().any(|field| field.name() == name);
    let mut names = (1..).map(|number| format!("__tie_{number}")).filter(|name| !is_taken(name));
    let mut ties: Vec<Expr> = Vec::new();
    let mut tied = |side: Box<Expr>, other: &Expr| {
        let is_own = |expr: &Expr| !expr.contains_outer() && !expr.column_refs().is_empty();
        let is_outer = other.contains_outer() && other.column_refs().is_empty();
        match (is_outer && is_own(&side) && !side.is_volatile(), side.as_ref(), names.next()) {
            (false, _, _) | (_, Expr::Column(_), _) | (_, _, None) => side,
            (true, _, Some(name)) => {
                ties.push(side.alias(&name));
                Box::new(Expr::Column(Column::new_unqualified(name)))
            }
        }
    };
    let conditions = split_conjunction_owned(filter.predicate.clone()).into_iter();
    let conditions: Vec<Expr> = conditions
        .map(|condition| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                let left = tied(left, &right);
                let right = tied(right, &left);
                Expr::BinaryExpr(BinaryExpr::new(left, Operator::Eq, right))
            }
            condition => condition,
        })
        .collect();
    if ties.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    // The subquery's own conditions run first, so that the expressions are not computed for rows that they drop.
    let (outer, before): (Vec<Expr>, Vec<Expr>) =
        conditions.into_iter().partition(|condition| condition.contains_outer());
    let own = || schema.columns().into_iter().map(Expr::Column);
    let mut plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(filter.input));
    if let Some(before) = conjunction(before) {
        plan = plan.filter(before)?;
    }
    let plan = plan
        .project(own().chain(ties).collect::<Vec<_>>())?
        .filter(conjunction(outer).unwrap_or_else(|| lit(true)))?
        .project(own().collect::<Vec<_>>())?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// Returns whether the whole condition is `x IN (SELECT …)` or its negation in a form that DataFusion supports. It
/// supports the negation only as a join on one column: not for a correlated subquery,
/// nor for a value without columns.
fn is_supported_in_condition(condition: &Expr) -> bool {
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

/// Rewrites a condition of a filter, which drops rows for null as for false.
fn rewrite_treating_null_as_false(
    condition: Expr,
    schema: &DFSchema,
) -> PlanResult<Transformed<Expr>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let left = rewrite_treating_null_as_false(*left, schema)?;
            let right = rewrite_treating_null_as_false(*right, schema)?;
            let changed = left.transformed || right.transformed;
            let sides = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new_transformed(Expr::BinaryExpr(sides), changed))
        }
        Expr::InSubquery(found) if !found.negated => {
            Ok(Transformed::yes(Expr::InSubquery(qualify_subquery_column(found)?)))
        }
        condition => condition.transform_up_dyn(&mut |expr| match expr {
            Expr::InSubquery(found) => case_with_nulls(found, schema),
            expr => Ok(Transformed::no(expr)),
        }),
    }
}

/// Adds a table name to a column that has none, such as a column of a UNION: DataFusion would find it
/// twice in a join that has given it one.
fn qualify_subquery_column(mut found: InSubquery) -> PlanResult<InSubquery> {
    let (qualifier, _) = found.subquery.subquery.schema().qualified_field(0);
    if qualifier.is_none() && found.subquery.outer_ref_columns.is_empty() {
        found.subquery = alias_subquery(found.subquery)?;
    }
    Ok(found)
}

/// Spells out the condition as a CASE that is null where SQL requires it.
fn case_with_nulls(found: InSubquery, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = qualify_subquery_column(found)?;
    let plan = &subquery.subquery;
    let (qualifier, field) = plan.schema().qualified_field(0);
    let value_may_be_null = expr.nullable(schema)?;
    if !value_may_be_null && !field.is_nullable() {
        let is_tied = !subquery.outer_ref_columns.is_empty();
        let found = InSubquery { expr, subquery, negated };
        // DataFusion would apply a correlated NOT IN to the correlation as well.
        return Ok(Transformed::yes(match negated && is_tied {
            true => equal_row_count_condition(found, schema)?,
            false => Expr::InSubquery(found),
        }));
    }
    if expr.is_volatile() || has_volatile_expression(plan)? {
        return Err(into_datafusion_error(Error::usage_with_hint(
            "`IN (SELECT …)` beside OR, NOT, CASE or IS NULL is asked of the same values more than \
             once, and these differ each time",
            "take what is random from a file of its own",
        )));
    }
    let is_found = Expr::InSubquery(InSubquery::new(expr.clone(), subquery.clone(), false));
    let mut cases = vec![(is_found, ScalarValue::from(!negated))];
    if value_may_be_null {
        let rows = LogicalPlanBuilder::from(Arc::clone(plan));
        cases.push((
            expr.is_null().and(exists_condition(rows, &subquery)?),
            ScalarValue::Boolean(None),
        ));
    }
    if field.is_nullable() {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let rows = LogicalPlanBuilder::from(Arc::clone(plan)).filter(column.is_null())?;
        cases.push((exists_condition(rows, &subquery)?, ScalarValue::Boolean(None)));
    }
    let boxed = |value| Box::new(Expr::Literal(value, None));
    let cases = cases.into_iter().map(|(when, then)| (Box::new(when), boxed(then)));
    let otherwise = Some(boxed(ScalarValue::from(negated)));
    Ok(Transformed::yes(Expr::Case(Case::new(None, cases.collect(), otherwise))))
}

/// Returns the condition that there is a row; in an uncorrelated subquery one row suffices.
fn exists_condition(rows: LogicalPlanBuilder, subquery: &Subquery) -> PlanResult<Expr> {
    let rows = match subquery.outer_ref_columns.is_empty() {
        true => rows.limit(0, Some(1))?,
        false => rows,
    };
    Ok(exists(Arc::new(rows.build()?)))
}

/// Returns whether a plan contains a volatile expression.
pub(crate) fn has_volatile_expression(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |node| {
        node.apply_expressions_dyn(&mut |expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
