//! The choice of a query's execution path: map, tables and finish, or DataFusion alone.
//!
//! DataFusion parses, type-checks and optimises the SQL. If the optimised plan has an aggregation over
//! nothing but per-record steps of one source, with small sources joined to it
//! ([`build_side_extraction`](crate::planning::build_side_extraction)), that aggregation is cut out. The part below it becomes the *map*,
//! which runs per split. The aggregation itself becomes the *tables*, with our mergeable states. The part
//! above it becomes the *finish plan*, which DataFusion runs once over the finished table. Distinct counts
//! work because the optimiser turns them into two aggregations, the lower of which is a grouping without
//! states. A query without any aggregation is a map alone. Everything else runs on DataFusion as it is.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, SchemaError, TableReference};
use datafusion::datasource::{TableProvider, provider_as_source};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{
    Aggregate as AggregateNode, Distinct, Expr, ExprSchemable, FetchType, LogicalPlan,
    LogicalPlanBuilder, Projection, SkipType,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::{DynLogicalPlan, DynTreeNode};
use tidemill_sql::random_values::{duplicates_random_value, has_random_call, is_random_call};
use tidemill_sql::{IntoTidemillError, float_order, into_datafusion_error};
use tidemill_tables::aggregates::aggregate_calls::{
    find_aggregate_call, find_alias, resolve_aggregate_call,
};
use tidemill_tables::aggregates::summary::QuerySummary;
use tidemill_tables::{
    MergeableFunction, TableAggregate, TableSpec, has_mergeable_state, is_branch_unnest,
};

use crate::execution::row_calculation::is_column_or_literal;
use crate::planning::build_side_extraction::{BuildSide, BuildSideExtractor, has_subquery};
use crate::turbo::result_bounds::{FINISHED_TABLE, ResultBounds};

/// The execution path of an optimised query, with its parts.
pub(crate) enum ExecutionPath {
    /// The table path: map, tables and finish plan.
    Tables(AggregationPlan),
    /// The row path: a map and perhaps a limit, with rows in input order.
    Rows {
        /// The source that is read in splits.
        stream: TableReference,
        /// The join inputs held in memory.
        build_sides: Vec<BuildSide>,
        /// The per-record plan.
        map: LogicalPlan,
        /// Number of leading rows to skip.
        skip: usize,
        /// Maximum number of rows after those; `None` for all.
        fetch: Option<usize>,
        /// The projections above the limit that are not part of the map, the innermost first.
        projections: Vec<Projection>,
    },
    /// The engine path: DataFusion runs the plan as it is.
    Engine {
        /// The reason why the query takes neither of the other paths.
        reason: String,
    },
}

/// The parts of a query whose core is one aggregation over one source, to which others may be joined.
pub(crate) struct AggregationPlan {
    /// The source that is read in splits.
    pub stream: TableReference,
    /// The join inputs held in memory.
    pub build_sides: Vec<BuildSide>,
    /// The per-record plan that computes keys, arguments and filters.
    pub map: LogicalPlan,
    /// The keys and aggregates of the tables.
    pub spec: Arc<TableSpec>,
    aggregation: AggregateNode,
    /// The summary of columns that the aggregation computes, if it is one.
    summary: Option<Arc<QuerySummary>>,
}

impl AggregationPlan {
    /// Returns true if a table may count more rows than enter the map.
    ///
    /// # Errors
    /// Errors of DataFusion's tree walk.
    pub(crate) fn may_multiply_rows(&self) -> Result<bool> {
        let multiplies = |node: &LogicalPlan| match node {
            LogicalPlan::Join(_) => true,
            LogicalPlan::Unnest(step) => !is_branch_unnest(step),
            _ => false,
        };
        self.map.exists_dyn(&mut |node| Ok(multiplies(node))).into_tidemill_error()
    }

    /// Returns true if each record of the source is one row of the table's only group.
    ///
    /// # Errors
    /// Errors of DataFusion's tree walk.
    pub(crate) fn counts_every_row(&self) -> Result<bool> {
        let leaves_rows_out_or_adds_some = |node: &LogicalPlan| match node {
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => false,
            LogicalPlan::TableScan(scan) => !scan.filters.is_empty() || scan.fetch.is_some(),
            _ => true,
        };
        let changes = self
            .map
            .exists_dyn(&mut |node| Ok(leaves_rows_out_or_adds_some(node)))
            .into_tidemill_error()?;
        Ok(self.spec.keys.is_empty() && !changes)
    }
}

/// Returns the summary that an aggregation computes and its arguments, if it is a summary of columns.
fn find_summary(core: &AggregateNode) -> Option<(&Arc<QuerySummary>, &[Expr])> {
    let [call] = core.aggr_expr.as_slice() else { return None };
    let call = find_aggregate_call(call)?;
    let is_plain = core.group_expr.is_empty() && call.params.filter.is_none();
    Some((QuerySummary::from_call(call).filter(|_| is_plain)?, &call.params.args))
}

/// Chooses the execution path of an optimised plan with this stream, the source that is read in splits.
/// Without a stream, `stream` holds the reason.
///
/// # Errors
/// Errors of DataFusion's tree walk and plan builder.
pub(crate) fn choose_execution_path(
    plan: &LogicalPlan,
    stream: &Result<TableReference, String>,
) -> Result<ExecutionPath> {
    let stream = match stream {
        Ok(stream) => stream,
        Err(why) => return Ok(ExecutionPath::Engine { reason: why.clone() }),
    };
    let recurses = plan
        .exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))
        .into_tidemill_error()?;
    if recurses {
        return Ok(ExecutionPath::Engine { reason: "the query has a WITH RECURSIVE".into() });
    }
    let mut core = None;
    let mut failure = None;
    plan.apply_dyn(&mut |node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let mut sides = BuildSideExtractor::new(stream);
            match sides.rewrite_per_record(&aggregate.input, None) {
                Ok(Some(input)) => core = Some((aggregate.clone(), input, sides.build_sides)),
                Ok(None) => return Ok(TreeNodeRecursion::Continue),
                Err(error) => failure = Some(error),
            }
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .into_tidemill_error()?;
    if let Some(error) = failure {
        return Err(error);
    }
    match core {
        Some((core, input, sides)) => match build_table_spec(&core, &input)? {
            Ok((map, spec)) => {
                let stream = stream.clone();
                let summary = find_summary(&core).map(|(summary, _)| Arc::clone(summary));
                Ok(ExecutionPath::Tables(AggregationPlan {
                    stream,
                    build_sides: sides,
                    map,
                    spec,
                    aggregation: core,
                    summary,
                }))
            }
            Err(why) => Ok(ExecutionPath::Engine { reason: why }),
        },
        None => choose_row_path(plan, stream),
    }
}

fn choose_row_path(plan: &LogicalPlan, stream: &TableReference) -> Result<ExecutionPath> {
    let mut sides = BuildSideExtractor::new(stream);
    let rows = match sides.rewrite_per_record(plan, None)? {
        Some(map) => Some(LimitedMap { map, skip: 0, fetch: None, projections: Vec::new() }),
        None => split_at_limit(plan, &mut sides)?,
    };
    if let Some(LimitedMap { map, skip, fetch, projections }) = rows {
        let (stream, sides) = (stream.clone(), sides.build_sides);
        return Ok(ExecutionPath::Rows {
            stream,
            build_sides: sides,
            map,
            skip,
            fetch,
            projections,
        });
    }
    let mut why = "the query has a step that is neither per record nor one aggregation";
    // The first such step gives the reason; without one the general reason stays.
    let _ = plan.apply_dyn(&mut |node| {
        why = match node {
            LogicalPlan::Sort(_) => "the query sorts rows that are not aggregated",
            LogicalPlan::Window(_) => "the query has a window function",
            LogicalPlan::Union(_) => "the query has a UNION",
            LogicalPlan::Join(_) => "the query has a join that is not made record by record",
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    });
    Ok(ExecutionPath::Engine { reason: why.to_string() })
}

/// A per-record plan, a limit, and the projections above it.
struct LimitedMap {
    map: LogicalPlan,
    skip: usize,
    fetch: Option<usize>,
    projections: Vec<Projection>,
}

impl LimitedMap {
    fn has_limit(&self) -> bool {
        self.skip > 0 || self.fetch.is_some()
    }
}

/// Splits a plan at its limit. The optimiser moves a limit below steps that return a row for each row. Those
/// steps that can fail stay above the limit here, so that they never fail for a row that it leaves out.
fn split_at_limit(
    plan: &LogicalPlan,
    sides: &mut BuildSideExtractor<'_>,
) -> Result<Option<LimitedMap>> {
    match plan {
        LogicalPlan::Limit(limit) => match (limit.get_skip_type(), limit.get_fetch_type()) {
            (Ok(SkipType::Literal(skip)), Ok(FetchType::Literal(fetch))) => {
                let rows = fetch.map(|fetch| fetch.saturating_add(skip));
                let map = sides.rewrite_per_record(&limit.input, rows)?;
                Ok(map.map(|map| LimitedMap { map, skip, fetch, projections: Vec::new() }))
            }
            _ => Ok(None),
        },
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let [input] = plan.inputs()[..] else { return Ok(None) };
            if plan.expressions().iter().any(has_subquery) {
                return Ok(None);
            }
            let Some(mut limited) = split_at_limit(input, sides)? else { return Ok(None) };
            match plan {
                LogicalPlan::Projection(projection)
                    if !limited.projections.is_empty()
                        || limited.has_limit()
                            && !projection.expr.iter().all(is_column_or_literal) =>
                {
                    limited.projections.push(projection.clone());
                }
                // An alias for the columns, by which the projections above find them.
                LogicalPlan::SubqueryAlias(_) if !limited.projections.is_empty() => {
                    let columns = input.schema().columns().into_iter().map(Expr::Column);
                    let renamed =
                        columns.zip(plan.schema().iter()).map(|(column, (table, field))| {
                            column.alias_qualified(table.cloned(), field.name())
                        });
                    let input = Arc::new(input.clone());
                    let schema = Arc::clone(plan.schema());
                    let renamed = renamed.collect();
                    let renamed = Projection::try_new_with_schema(renamed, input, schema)
                        .into_tidemill_error()?;
                    limited.projections.push(renamed);
                }
                _ => {
                    limited.map = plan
                        .with_new_exprs(plan.expressions(), vec![limited.map])
                        .into_tidemill_error()?;
                }
            }
            Ok(Some(limited))
        }
        _ => Ok(None),
    }
}

/// Returns the first step of a map's plan that handles many records, for a job file's `[map] sql`. Returns
/// `None` if each step handles one record at a time. Joins are allowed.
pub(crate) fn find_cross_record_step(plan: &LogicalPlan) -> Option<&'static str> {
    let mut refusal = None;
    let walked = plan.apply_dyn(&mut |node| {
        refusal = match node {
            LogicalPlan::Aggregate(_) => Some("GROUP BY or an aggregate function"),
            LogicalPlan::Distinct(_) => Some("DISTINCT"),
            LogicalPlan::Limit(_) => Some("LIMIT"),
            LogicalPlan::Sort(_) => Some("ORDER BY"),
            LogicalPlan::Window(_) => Some("a window function"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    });
    walked.is_ok().then_some(refusal).flatten()
}

/// Checks a plan for expressions that the planner accepts and DataFusion cannot run in their place: a window
/// by way of its alias in `GROUP BY`, or `x > ANY (SELECT …)` in a select list. Also checks for random values
/// that would be evaluated twice where
/// [`evaluate_random_calls_once`](tidemill_sql::random_values::evaluate_random_calls_once) leaves them.
///
/// # Errors
/// [`Error::Usage`] that names the first.
pub(crate) fn check_expression_places(plan: &LogicalPlan) -> Result<()> {
    refuse_expressions(plan, |node, expr| match (expr, node) {
        (Expr::WindowFunction(_), LogicalPlan::Window(_)) => None,
        (Expr::WindowFunction(call), _) => {
            Some((format!("the window function `{}`", call.fun.name()), SUBQUERY_COLUMN_HINT))
        }
        (Expr::Unnest(_), _) => Some(("`unnest`".into(), "it stands in a select list")),
        // Copies of the select list select the first rows.
        (expr, LogicalPlan::Distinct(Distinct::On(on))) if is_random_call(expr) => {
            let sorts = on.sort_expr.iter().flatten().map(|sort| &sort.expr);
            let has_random_key = on.on_expr.iter().chain(sorts).any(has_random_call);
            has_random_key.then(|| ("a random key of `DISTINCT ON`".into(), SUBQUERY_COLUMN_HINT))
        }
        // `GROUP BY ALL HAVING k` has a copy of the key.
        (expr, LogicalPlan::Filter(filter))
            if is_random_call(expr) && has_random_keys(&filter.input) =>
        {
            Some(("a random value above random keys".into(), SUBQUERY_COLUMN_HINT))
        }
        (expr, _) if duplicates_random_value(expr) => {
            let what = match expr {
                Expr::ScalarFunction(call) => format!("`{}` of a random value", call.name()),
                Expr::Between(_) => "`BETWEEN` of a random value".into(),
                Expr::InList(_) => "`IN` of a random value".into(),
                _ => "`CASE` of a random value".into(),
            };
            Some((what, SUBQUERY_COLUMN_HINT))
        }
        // In a filter the optimiser makes joins of them, or refuses them itself.
        (_, LogicalPlan::Filter(_)) => None,
        // In these steps they become counts.
        (
            Expr::Exists(_) | Expr::InSubquery(_),
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_),
        ) => None,
        (expr, _) => Some((subquery_syntax(expr)?.into(), SUBQUERY_JOIN_HINT)),
    })
}

/// Returns true if a plan aggregates by random keys, which a projection below it calculates.
fn has_random_keys(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(AggregateNode { input, .. }) = plan else { return false };
    matches!(input.as_ref(), LogicalPlan::Projection(below) if below.expr.iter().any(has_random_call))
}

/// Checks an optimised plan for subqueries and outer columns that remain in it, because DataFusion cannot run
/// them.
///
/// # Errors
/// [`Error::Usage`] that names the first.
pub(crate) fn check_runnable(plan: &LogicalPlan) -> Result<()> {
    refuse_expressions(plan, |_, expr| match expr {
        Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => {
            Some((CORRELATED_SUBQUERY.into(), CORRELATED_SUBQUERY_HINT))
        }
        Expr::OuterReferenceColumn(_, column) => Some((
            format!("`{}` of the query around a subquery", column.name),
            "write the subquery as a join",
        )),
        expr => Some((subquery_syntax(expr)?.into(), SUBQUERY_JOIN_HINT)),
    })
}

/// Checks a plan for a recursion whose step reads its own rows in a subquery. DataFusion gives the rows to
/// one reader, and fails with an internal error at the second.
///
/// # Errors
/// [`Error::Usage`] that names the recursion.
pub(crate) fn check_recursive_subqueries(plan: &LogicalPlan) -> Result<()> {
    let mut name = None;
    plan.apply_with_subqueries_dyn(&mut |step| {
        let LogicalPlan::RecursiveQuery(query) = step else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let mut reads_rows = |plan: &LogicalPlan| {
            Ok(matches!(plan, LogicalPlan::TableScan(scan) if scan.table_name.table() == query.name))
        };
        query.recursive_term.apply_with_subqueries_dyn(&mut |step| {
            step.apply_subqueries(|subquery| {
                if subquery.exists_dyn(&mut reads_rows)? {
                    name = Some(query.name.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .into_tidemill_error()?;
    match name {
        Some(name) => Err(Error::usage_with_hint(
            format!("the recursive step of `{name}` reads its own rows in a subquery"),
            format!(
                "FROM reads them once in each step: FROM {name} JOIN b ON b.parent = {name}.id"
            ),
        )),
        None => Ok(()),
    }
}

/// Explains an error of the optimiser. If it misses a column that exists, it has moved a condition out of a
/// correlated subquery that it then leaves in place.
pub(crate) fn explain_optimiser_error(
    plan: &LogicalPlan,
    error: DataFusionError,
) -> DataFusionError {
    let is_of_column = match error.find_root() {
        DataFusionError::SchemaError(cause, _) => {
            matches!(cause.as_ref(), SchemaError::FieldNotFound { .. })
        }
        _ => false,
    };
    if !is_of_column {
        return error;
    }
    let refused = refuse_expressions(plan, |_, expr| match expr {
        Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => {
            Some((CORRELATED_SUBQUERY.into(), CORRELATED_SUBQUERY_HINT))
        }
        _ => None,
    });
    match refused {
        Ok(()) => error,
        Err(refused) => into_datafusion_error(refused),
    }
}

const CORRELATED_SUBQUERY: &str = "a subquery that is not tied to the row by `=` alone";
const SUBQUERY_COLUMN_HINT: &str = "take it in a subquery, and name its column";
const CORRELATED_SUBQUERY_HINT: &str = "an aggregate of the rows that equal the row's is taken: (SELECT max(x) FROM b WHERE b.k = a.k); \
                    for others, join the sources and group";
const SUBQUERY_JOIN_HINT: &str =
    "WHERE takes it; a LEFT JOIN with what the subquery selects gives its columns";

fn subquery_syntax(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::InSubquery(_) => Some("`IN (SELECT …)`"),
        Expr::Exists(_) => Some("`EXISTS (SELECT …)`"),
        Expr::SetComparison(_) => Some("`ANY (SELECT …)` or `ALL (SELECT …)`"),
        _ => None,
    }
}

/// Returns an error for the first expression about which `says` returns a description and a hint.
fn refuse_expressions(
    plan: &LogicalPlan,
    says: impl Fn(&LogicalPlan, &Expr) -> Option<(String, &'static str)>,
) -> Result<()> {
    let mut refusal = None;
    plan.apply_with_subqueries_dyn(&mut |node| {
        node.apply_expressions_dyn(&mut |expr| {
            expr.apply_dyn(&mut |expr| {
                let Some((what, hint)) = says(node, expr) else {
                    return Ok(TreeNodeRecursion::Continue);
                };
                let place = match node {
                    LogicalPlan::Aggregate(_) => "in GROUP BY or an aggregate function",
                    LogicalPlan::Filter(_) | LogicalPlan::TableScan(_) => "in WHERE or HAVING",
                    LogicalPlan::Join(_) => "in JOIN … ON",
                    LogicalPlan::Projection(_) => "in a select list",
                    LogicalPlan::Window(_) => "in a window",
                    LogicalPlan::Sort(_) => "in ORDER BY",
                    _ => "where it does",
                };
                let message = format!("{what} cannot stand {place}");
                refusal = Some(Error::usage_with_hint(message, hint));
                Ok(TreeNodeRecursion::Stop)
            })
        })
    })
    .into_tidemill_error()?;
    refusal.map_or(Ok(()), Err)
}

/// Builds the map and the table spec of an aggregation, or returns the reason why mergeable states cannot
/// compute it. `input` is the aggregation's input as the map reads it.
fn build_table_spec(
    core: &AggregateNode,
    input: &LogicalPlan,
) -> Result<Result<(LogicalPlan, Arc<TableSpec>), String>> {
    let schema = core.input.schema();
    let output = core.schema.fields();
    if core.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        return Ok(Err("the query has GROUPING SETS, CUBE or ROLLUP".into()));
    }
    if let Some((summary, arguments)) = find_summary(core) {
        let types = arguments.iter().map(|argument| argument.get_type(schema));
        let spec = summary
            .table_spec(&types.collect::<PlanResult<Vec<DataType>>>().into_tidemill_error()?);
        return match spec {
            Ok(spec) => Ok(Ok((build_map(input, 0, arguments)?, Arc::new(spec)))),
            Err(why) => Ok(Err(why)),
        };
    }
    let mut columns: Vec<Expr> = core.group_expr.iter().map(unwrap_settled_floats).collect();
    let mut column_of = |expr: &Expr| {
        // The search includes keys: `count(day)` beside `GROUP BY day` needs no second column.
        columns.iter().position(|known| known == expr).unwrap_or_else(|| {
            columns.push(expr.clone());
            columns.len() - 1
        })
    };
    let keys: Vec<_> = output[..core.group_expr.len()].to_vec();
    let mut aggregates = Vec::with_capacity(core.aggr_expr.len());
    for (expr, field) in core.aggr_expr.iter().zip(&output[core.group_expr.len()..]) {
        let Some(call) = find_aggregate_call(expr) else {
            return Ok(Err(format!("`{expr}` is not a plain aggregate")));
        };
        let (function, arguments) = match resolve_aggregate_call(call, schema) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let mut arguments = arguments.into_iter().map(|argument| {
            let argument = match function {
                MergeableFunction::Mean => strip_float_cast(argument, schema)?,
                _ => argument,
            };
            let of = argument.get_type(schema).into_tidemill_error()?;
            Ok::<_, Error>((column_of(&unwrap_settled_floats(&argument)), of))
        });
        let (argument, argument_type) = match arguments.next().transpose()? {
            Some((column, of)) => (Some(column), of),
            None => (None, DataType::Null),
        };
        let second = arguments.next().transpose()?;
        let aggregate = TableAggregate {
            function,
            argument_column: argument,
            argument_type,
            second_argument: second,
            filter_column: call.params.filter.as_deref().map(&mut column_of),
            output_field: Arc::clone(field),
            udf: Arc::clone(&call.func),
        };
        if !has_mergeable_state(&aggregate) {
            return Ok(Err(format!(
                "no mergeable state for `{}` over {}",
                call.func.name(),
                tidemill_base::column_types::sql_type_name(&aggregate.argument_type)
            )));
        }
        aggregates.push(aggregate);
    }
    let map = build_map(input, keys.len(), &columns)?;
    Ok(Ok((map, Arc::new(TableSpec::new(keys, aggregates)))))
}

/// Builds the plan that computes the tables' input: keys, arguments and filters of the rows of `input`.
fn build_map(input: &LogicalPlan, key_count: usize, columns: &[Expr]) -> Result<LogicalPlan> {
    if columns.is_empty() {
        // `count(*)` alone needs no columns, only the number of rows.
        return Ok(input.clone());
    }
    let named = columns.iter().enumerate().map(|(index, expr)| {
        let name = if index < key_count { "key" } else { "value" };
        expr.clone().unalias_nested().data.alias(format!("{name}_{index}"))
    });
    let map = LogicalPlanBuilder::from(input.clone())
        .project(named.collect::<Vec<_>>())
        .into_tidemill_error()?;
    map.build().into_tidemill_error()
}

/// Removes float settling from a key or an argument: tables settle floats themselves.
fn unwrap_settled_floats(expr: &Expr) -> Expr {
    match expr {
        Expr::Alias(alias) if float_order::unwrap_comparable(&alias.expr).is_some() => {
            unwrap_settled_floats(&alias.expr)
        }
        other => float_order::unwrap_comparable(other).unwrap_or(other).clone(),
    }
}

/// Removes the cast to floats that `avg` puts around integers. The exact sum of integers takes less time and
/// memory than that of floats, and does not round the integers.
fn strip_float_cast(argument: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::Cast(cast) = &argument
        && cast.field.data_type() == &DataType::Float64
        && cast.expr.get_type(schema).into_tidemill_error()?.is_integer()
    {
        return Ok(cast.expr.as_ref().clone());
    }
    Ok(argument)
}

impl AggregationPlan {
    /// Builds the plan above the aggregation, which reads the finished table in the aggregation's place.
    ///
    /// # Errors
    /// Errors of DataFusion's plan builder.
    pub(crate) fn build_finish_plan(
        &self,
        plan: &LogicalPlan,
        finished: Arc<dyn TableProvider>,
    ) -> Result<LogicalPlan> {
        let scan = LogicalPlanBuilder::scan(FINISHED_TABLE, provider_as_source(finished), None)
            .into_tidemill_error()?;
        let restored =
            self.aggregation.schema.iter().enumerate().map(|(index, (qualifier, field))| {
                Expr::Column(Column::new(Some(FINISHED_TABLE), positional_name(index)))
                    .alias_qualified(qualifier.cloned(), field.name())
            });
        // With the aggregation's own schema: it may name `CAST(a.x AS INT)` `a.x`, beside column `x` of `a`.
        let input = Arc::new(scan.build().into_tidemill_error()?);
        let schema = Arc::clone(&self.aggregation.schema);
        let table = Projection::try_new_with_schema(restored.collect(), input, schema)
            .into_tidemill_error()?;
        let table = LogicalPlan::Projection(table);
        let mut replaced = false;
        let finish = plan
            .clone()
            .transform_down_dyn(&mut |node| match &node {
                LogicalPlan::Aggregate(aggregate)
                    if !replaced && *aggregate == self.aggregation =>
                {
                    replaced = true;
                    Ok(Transformed::new(table.clone(), true, TreeNodeRecursion::Jump))
                }
                _ => Ok(Transformed::no(node)),
            })
            .into_tidemill_error()?;
        if !replaced {
            return Err(Error::Internal("the aggregation vanished from its plan".into()));
        }
        Ok(finish.data)
    }

    /// Returns the names of the aggregates that the tables compute.
    pub(crate) fn computed_aggregate_names(&self) -> HashSet<&str> {
        match &self.summary {
            Some(_) => {
                self.spec.aggregates.iter().map(|one| one.output_field.name().as_str()).collect()
            }
            None => {
                let fields = &self.aggregation.schema.fields()[self.aggregation.group_expr.len()..];
                fields.iter().map(|field| field.name().as_str()).collect()
            }
        }
    }

    /// Returns a function that converts the tables' answers to the [finished
    /// schema](AggregationPlan::finished_schema).
    pub(crate) fn answer_shaper(
        &self,
    ) -> impl Fn(RecordBatch) -> Result<RecordBatch> + Send + 'static {
        let summary = self.summary.clone();
        let schema = self.finished_schema();
        move |answer| match &summary {
            Some(summary) => {
                let answer: ArrayRef = Arc::new(summary.build_answer(&answer)?);
                Ok(RecordBatch::try_new(Arc::clone(&schema), vec![answer])?)
            }
            None => Ok(answer),
        }
    }

    /// Returns true if the plan above the aggregation computes its rows from each group separately.
    pub(crate) fn finishes_each_group_alone(&self, plan: &LogicalPlan) -> bool {
        let has_subquery = |expr: &Expr| {
            expr.exists_dyn(&mut |part| {
                Ok(matches!(part, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)))
            })
            .unwrap_or(true)
        };
        let mut node = plan;
        loop {
            match node {
                LogicalPlan::Aggregate(aggregate) if *aggregate == self.aggregation => {
                    return self.summary.is_none();
                }
                LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_) => {
                    let [input] = node.inputs()[..] else { return false };
                    if node.expressions().iter().any(has_subquery) {
                        return false;
                    }
                    node = input;
                }
                _ => return false,
            }
        }
    }

    /// Returns the names of the aggregates in the result: their aliases, else their names in the plan without
    /// the table.
    pub(crate) fn aggregate_display_names(&self, plan: &LogicalPlan) -> Vec<String> {
        if self.summary.is_some() {
            return self
                .spec
                .aggregates
                .iter()
                .map(|one| one.output_field.name().clone())
                .collect();
        }
        let fields = &self.aggregation.schema.fields()[self.aggregation.group_expr.len()..];
        let mut names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        // Projections from the result down to the aggregation; the names follow them upwards.
        let mut projections = Vec::new();
        let walked = plan.apply_dyn(&mut |node| {
            match node {
                LogicalPlan::Projection(projection) => projections.push(projection.clone()),
                LogicalPlan::Aggregate(aggregate) if *aggregate == self.aggregation => {
                    return Ok(TreeNodeRecursion::Stop);
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        });
        if walked.is_ok() {
            for projection in projections.iter().rev() {
                for name in &mut names {
                    let renamed = projection.expr.iter().find_map(|expr| find_alias(expr, name));
                    *name = renamed.unwrap_or_else(|| name.clone());
                }
            }
        }
        names
    }

    /// Returns the schema of the finished table as its provider shows it: columns named by position.
    pub(crate) fn finished_schema(&self) -> SchemaRef {
        self.finished_schema_with_columns(&[])
    }

    /// Returns the schema of the finished table with further columns at the end.
    pub(crate) fn finished_schema_with_columns(&self, more: &[FieldRef]) -> SchemaRef {
        let fields = self.aggregation.schema.fields().iter().enumerate();
        let renamed = fields.map(|(index, field)| {
            let (of, nullable) = (field.data_type().clone(), field.is_nullable());
            Arc::new(Field::new(positional_name(index), of, nullable))
        });
        Arc::new(Schema::new(renamed.chain(more.iter().cloned()).collect::<Vec<_>>()))
    }

    /// Returns the result's columns that are estimates where only a part of the input is read. Returns `None`
    /// for a summary of columns. Without `quantiles`, quantiles keep the value in the rows read, without an
    /// interval: their intervals need all values of a group by place.
    pub(crate) fn find_estimates(
        &self,
        plan: &LogicalPlan,
        own: &SchemaRef,
        quantiles: bool,
    ) -> Option<ResultBounds> {
        match self.summary {
            Some(_) => None,
            None => Some(ResultBounds::new(plan, &self.aggregation, &self.spec, own, quantiles)),
        }
    }
}

fn positional_name(index: usize) -> String {
    format!("column_{index}")
}
