//! What a condition says of a subquery's rows where SQL says *unknown*.
//!
//! `x IN (SELECT …)` is null, neither true nor false, where x is not among the rows but x or one of
//! them is null. DataFusion makes joins of such conditions: one that stands by itself, or negated by
//! itself, it answers rightly; below OR, NOT, CASE or IS NULL it takes null for false, which keeps
//! rows that `NOT` would leave out. [`Unknowns`] writes those out beforehand, in the words of the SQL
//! standard (ISO 9075-2, 8.4 and 8.9): true if there is an equal row, else null if x is null and there
//! is a row, or if a row is null, else false.
//!
//! Beside WHERE, in a select list or an aggregate's argument, DataFusion knows no join for such a condition.
//! There it is a count of the rows that it asks for, which is a subquery of one value ([`counted`]); above
//! a table's rows it is a column of its own, computed below the aggregate or window.
//!
//! `x < ANY (SELECT …)` DataFusion makes a condition within the subquery; the subquery gets a name of
//! its own, lest a column of it be taken for x, of the same name.
//!
//! A subquery of one value is null where it has no row, whatever its column may be ([`or_null`]).

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

use crate::error_translation::into_datafusion_error;
use crate::plan_rewriting::{expression_input_schema, rewrite_all_nodes};

/// Writes out where a condition on a subquery's rows is null.
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

/// `x IN (SELECT e FROM u)` where `e` names only columns of the query around it: DataFusion makes a join
/// of it that has no column to compare. All rows of `u` have the same `e`, so it is
/// `EXISTS (SELECT 1 FROM u) AND x = e`, which is unknown in the same cases. None for other subqueries.
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
        // To the right of a LATERAL join.
        LogicalPlan::Subquery(subquery) => {
            reject_nested_ungrouped_aggregate(&subquery.subquery)?;
            Ok(Transformed::no(LogicalPlan::Subquery(subquery)))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

/// Whether the expression asks for a subquery's rows as DataFusion's joins cannot in such a step.
fn needs_column_below(expr: &Expr, step: &LogicalPlan) -> bool {
    match expr {
        Expr::Exists(_) | Expr::InSubquery(_) => true,
        // One value for each row is joined below a projection or a filter alone.
        Expr::ScalarSubquery(subquery) => {
            !subquery.outer_ref_columns.is_empty()
                && matches!(step, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_))
        }
        _ => false,
    }
}

/// The step above a projection that computes its conditions on subqueries' rows.
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
    // What passes its input on must not pass these on.
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

/// Refuses a condition on rows that depend on columns which a step has not.
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

/// A condition on a subquery's rows as one on how many there are.
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

/// A subquery's column that is compared.
const COMPARED_COLUMN: &str = "what is compared with a value of the row around";

/// Whether rows that are equal to a value are counted, neither being null.
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
    // By a name that the value cannot have.
    let (qualifier, field) = subquery.schema().qualified_field(0);
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name())).alias(COMPARED_COLUMN);
    let rows = LogicalPlanBuilder::from(subquery).project(vec![column])?;
    let compared = Expr::Column(Column::new_unqualified(COMPARED_COLUMN));
    let rows = rows.filter(compared.eq(value.data))?;
    row_count_condition(rows, outer_ref_columns, negated)
}

/// Whether there are rows, or none, as one value. Of a subquery that is the same for all rows around it one
/// row is looked for; of others they are counted for each value that they depend on, whatever their own
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

/// The plan without a LIMIT that leaves a row where there is one.
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

/// Refuses an aggregate without GROUP BY, or with grouping sets, over rows that depend on the row around it: it has a
/// row where there is none, and a join has not.
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

/// Whether a step is an aggregate without GROUP BY over rows that depend on the row around it.
fn is_correlated_ungrouped_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.is_empty() && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    }
}

/// Returns true if a step is an aggregate with grouping sets over rows that depend on the row around it.
fn is_correlated_grouping_sets_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
                && !aggregate.input.all_out_ref_exprs().is_empty()
        }
        _ => false,
    }
}

/// Refuses a LIMIT or OFFSET that changes the answer of an EXISTS which depends on the row around it: DataFusion's join
/// leaves it out.
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

/// Returns true if a plan has a limit that DataFusion leaves out although it changes whether there is a row. DataFusion
/// goes through the steps from below and from the left, and leaves out the limits behind the first condition that refers
/// to the row around the subquery. `is_top` says that a row of this step is a row of the subquery.
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

/// Refuses an aggregate over such an aggregate's one row: where no row depends on the row around it DataFusion's
/// join has none, and takes the outer aggregate for one of no rows.
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
        // What refers to the query around it calls its own columns by another name already.
        Expr::SetComparison(comparison) if comparison.subquery.outer_ref_columns.is_empty() => {
            let subquery = alias_subquery(comparison.subquery)?;
            Ok(Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison })))
        }
        expr => Ok(Transformed::no(expr)),
    })
}

/// One value of a subquery that may have no row as one that may be null: DataFusion asks whether the subquery's
/// column may be, and takes `(SELECT 1 WHERE false) IS NULL` for false.
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
        // A plan that is analyzed again.
        Expr::ScalarFunction(mut call)
            if call.func == *OR_NULL && call.args.first().is_some_and(is_it) =>
        {
            Transformed::yes(call.args.swap_remove(0))
        }
        expr => Transformed::no(expr),
    }
}

/// Whether there is a row whatever is read.
fn has_exactly_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_exactly_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_exactly_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// Gives back its argument, which may be null.
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

/// The subquery and its column called differently from all that the query around it reads: `sum(v)` of
/// one is no `sum(v)` of the other.
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
        // What is the same for all rows makes no join: DataFusion loses the condition.
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

/// A filter that ties its rows to the row around a subquery by columns: DataFusion groups by the columns of an
/// equality, though it is a cast of one that is equal, and refuses other calculations.
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
    // What the subquery's own conditions leave out is not calculated with.
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

/// Whether the whole condition is `x IN (SELECT …)` or its contrary, which DataFusion knows; the
/// contrary only where it is a join on one column: not where the subquery refers to the query around it,
/// nor of a value that is the same for all rows.
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

/// A condition that drops rows for null as for false.
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

/// With a table's name before its column where it has none, as of a UNION: DataFusion would take it
/// twice from a join that has given it one.
fn qualify_subquery_column(mut found: InSubquery) -> PlanResult<InSubquery> {
    let (qualifier, _) = found.subquery.subquery.schema().qualified_field(0);
    if qualifier.is_none() && found.subquery.outer_ref_columns.is_empty() {
        found.subquery = alias_subquery(found.subquery)?;
    }
    Ok(found)
}

/// The condition, null where SQL has it so.
fn case_with_nulls(found: InSubquery, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = qualify_subquery_column(found)?;
    let plan = &subquery.subquery;
    let (qualifier, field) = plan.schema().qualified_field(0);
    let value_may_be_null = expr.nullable(schema)?;
    if !value_may_be_null && !field.is_nullable() {
        let is_tied = !subquery.outer_ref_columns.is_empty();
        let found = InSubquery { expr, subquery, negated };
        // Of rows that are tied to the row around them, DataFusion asks NOT IN of the tie, too.
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

/// Whether there is a row at all; of a subquery that is the same for all rows around it, one is looked
/// for.
fn exists_condition(rows: LogicalPlanBuilder, subquery: &Subquery) -> PlanResult<Expr> {
    let rows = match subquery.outer_ref_columns.is_empty() {
        true => rows.limit(0, Some(1))?,
        false => rows,
    };
    Ok(exists(Arc::new(rows.build()?)))
}

/// Returns whether an expression of a plan differs each time.
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
