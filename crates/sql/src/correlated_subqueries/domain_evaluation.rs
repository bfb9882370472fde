//! Computes a subquery for each row of a domain, operator by operator.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, DFSchema, JoinType, NullEquality, Result as PlanResult, not_impl_err, plan_err,
};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, FetchType, Filter, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, Sort, SortExpr, SubqueryAlias, Window,
    binary_expr, lit,
};
use tidemill_planning::DynTreeNode;

use super::{CorrelationRewriter, column_exprs, null_safe_equals, outer_columns};

/// The combinations of outer values that a subquery depends on.
pub(super) struct CorrelationDomain {
    pub(super) rows: LogicalPlan,
    /// Pairs of an outer column and the domain's column with its values.
    pub(super) columns: Vec<(Column, Column)>,
}

impl CorrelationDomain {
    /// Returns the domain's columns as expressions.
    pub(super) fn column_exprs(&self) -> impl Iterator<Item = Expr> {
        self.columns.iter().map(|(_, own)| Expr::Column(own.clone()))
    }

    /// Returns the domain's column for an outer column.
    pub(super) fn domain_column(&self, outer: &Column) -> Option<&Column> {
        self.columns.iter().find(|(column, _)| column == outer).map(|(_, own)| own)
    }

    /// Replaces the outer columns of an expression by the domain's columns.
    fn bind_outer_columns(&self, expr: Expr) -> PlanResult<Expr> {
        let bound = expr.transform_up_dyn(&mut |expr| match &expr {
            Expr::OuterReferenceColumn(_, outer) => match self.domain_column(outer) {
                Some(own) => Ok(Transformed::yes(Expr::Column(own.clone()))),
                None => Ok(Transformed::no(expr)),
            },
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(bound.data)
    }

    fn bind_outer_columns_in_exprs(&self, exprs: Vec<Expr>) -> PlanResult<Vec<Expr>> {
        exprs.into_iter().map(|expr| self.bind_outer_columns(expr)).collect()
    }

    fn bind_outer_columns_in_sorts(&self, sorts: Vec<SortExpr>) -> PlanResult<Vec<SortExpr>> {
        let bound = sorts.into_iter().map(|sort| {
            let expr = self.bind_outer_columns(sort.expr.clone())?;
            Ok(sort.with_expr(expr))
        });
        bound.collect()
    }

    /// Returns `exprs` under the column names of an operator of the subquery, followed by the domain's columns.
    fn output_exprs(&self, schema: &DFSchema, exprs: impl IntoIterator<Item = Expr>) -> Vec<Expr> {
        let named = schema.iter().zip(exprs).map(|((qualifier, field), expr)| {
            let (own_qualifier, own_name) = expr.qualified_name();
            match own_qualifier.as_ref() == qualifier && own_name == *field.name() {
                true => expr,
                false => expr.alias_qualified(qualifier.cloned(), field.name()),
            }
        });
        named.chain(self.column_exprs()).collect()
    }

    /// Returns the columns of `schema` as expressions, with new names for those of the domain.
    fn renamed_column_exprs(&self, schema: &DFSchema, names: &[Column]) -> Vec<Expr> {
        let renamed = schema.columns().into_iter().map(|column| {
            let place = self.columns.iter().position(|(_, own)| *own == column);
            match place {
                Some(place) => Expr::Column(column).alias(names[place].name.clone()),
                None => Expr::Column(column),
            }
        });
        renamed.collect()
    }
}

impl CorrelationRewriter {
    /// Computes a subquery for each row of a domain: returns its rows, followed by the domain's columns.
    pub(super) fn compute_per_domain_row(
        &mut self,
        plan: LogicalPlan,
        domain: &CorrelationDomain,
    ) -> PlanResult<LogicalPlan> {
        let depends =
            outer_columns(&plan)?.iter().any(|outer| domain.domain_column(outer).is_some());
        if !depends {
            return match domain.columns.is_empty() {
                true => Ok(plan),
                false => LogicalPlanBuilder::from(domain.rows.clone()).cross_join(plan)?.build(),
            };
        }
        let schema = Arc::clone(plan.schema());
        match plan {
            LogicalPlan::Projection(projection) => {
                let exprs = domain
                    .output_exprs(&schema, domain.bind_outer_columns_in_exprs(projection.expr)?);
                let input =
                    self.compute_per_domain_row(Arc::unwrap_or_clone(projection.input), domain)?;
                Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
            }
            LogicalPlan::Filter(filter) => {
                let input =
                    self.compute_per_domain_row(Arc::unwrap_or_clone(filter.input), domain)?;
                let predicate = domain.bind_outer_columns(filter.predicate)?;
                Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?))
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => {
                let columns = column_exprs(input.schema());
                let input = self.compute_per_domain_row(Arc::unwrap_or_clone(input), domain)?;
                LogicalPlanBuilder::from(input)
                    .project(domain.output_exprs(&schema, columns))?
                    .build()
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate_per_domain_row(aggregate, domain),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.compute_per_domain_row(Arc::unwrap_or_clone(input), domain)?;
                LogicalPlanBuilder::from(input).distinct()?.build()
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let expr = domain.bind_outer_columns_in_sorts(sort.expr)?;
                let input = Arc::new(
                    self.compute_per_domain_row(Arc::unwrap_or_clone(sort.input), domain)?,
                );
                Ok(LogicalPlan::Sort(Sort { expr, input, fetch: None }))
            }
            LogicalPlan::Limit(limit) => self.limit_per_domain_row(limit, domain),
            LogicalPlan::Union(union) => {
                let mut branches = Vec::new();
                for input in union.inputs {
                    let columns = column_exprs(input.schema());
                    let input = self.compute_per_domain_row(Arc::unwrap_or_clone(input), domain)?;
                    let columns = columns.into_iter().chain(domain.column_exprs());
                    let branch = LogicalPlanBuilder::from(input);
                    branches.push(branch.project(columns.collect::<Vec<_>>())?.build()?);
                }
                union_branches(branches, &schema, domain)
            }
            LogicalPlan::Window(window) => {
                let own = window.input.schema().fields().len();
                let input =
                    self.compute_per_domain_row(Arc::unwrap_or_clone(window.input), domain)?;
                let keys: Vec<Expr> = domain.column_exprs().collect();
                let exprs = domain
                    .bind_outer_columns_in_exprs(window.window_expr)?
                    .into_iter()
                    .map(|expr| {
                        let within = expr.transform_up_dyn(&mut |expr| match expr {
                            Expr::WindowFunction(mut call) => {
                                call.params.partition_by.extend(keys.iter().cloned());
                                Ok(Transformed::yes(Expr::WindowFunction(call)))
                            }
                            expr => Ok(Transformed::no(expr)),
                        })?;
                        Ok(within.data)
                    });
                let exprs = exprs.collect::<PlanResult<Vec<_>>>()?;
                let made = Window::try_new(exprs, Arc::new(input))?;
                let count = schema.fields().len() - own;
                let computed = column_exprs(&made.schema);
                let computed = computed[computed.len() - count..].iter().cloned();
                let columns = column_exprs(&schema).into_iter().take(own).chain(computed);
                let columns = domain.output_exprs(&schema, columns.collect::<Vec<_>>());
                LogicalPlanBuilder::from(LogicalPlan::Window(made)).project(columns)?.build()
            }
            LogicalPlan::Unnest(unnest) => {
                let input =
                    self.compute_per_domain_row(Arc::unwrap_or_clone(unnest.input), domain)?;
                LogicalPlanBuilder::from(input)
                    .unnest_columns_with_options(unnest.exec_columns, unnest.options)?
                    .build()
            }
            LogicalPlan::Join(join) => self.join_per_domain_row(join, domain),
            LogicalPlan::Values(values) => {
                let mut branches = Vec::new();
                for row in values.values {
                    let columns =
                        domain.output_exprs(&schema, domain.bind_outer_columns_in_exprs(row)?);
                    let rows = LogicalPlanBuilder::from(domain.rows.clone()).project(columns)?;
                    branches.push(rows.build()?);
                }
                union_branches(branches, &schema, domain)
            }
            _ => not_impl_err!("a step of a subquery for each row"),
        }
    }

    /// Groups by the domain's columns, too. An aggregate without GROUP BY has a row for each row of the domain, even
    /// if the subquery has no row for it.
    fn aggregate_per_domain_row(
        &mut self,
        aggregate: Aggregate,
        domain: &CorrelationDomain,
    ) -> PlanResult<LogicalPlan> {
        let schema = Arc::clone(&aggregate.schema);
        let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        if aggregate.group_expr.iter().any(is_set) {
            return not_impl_err!("grouping sets for each row");
        }
        let input = self.compute_per_domain_row(Arc::unwrap_or_clone(aggregate.input), domain)?;
        let groups = domain.bind_outer_columns_in_exprs(aggregate.group_expr)?;
        let mut aggregates = domain.bind_outer_columns_in_exprs(aggregate.aggr_expr)?;
        let own = groups.len();
        let input = match own {
            0 => {
                let found = self.new_column();
                let inner: Vec<Column> = domain.columns.iter().map(|_| self.new_column()).collect();
                let renamed = domain.renamed_column_exprs(input.schema(), &inner).into_iter();
                let renamed = renamed.chain([lit(true).alias(found.name.clone())]);
                let rows =
                    LogicalPlanBuilder::from(input.clone()).project(renamed.collect::<Vec<_>>())?;
                let ties = domain.columns.iter().zip(&inner);
                let ties: Vec<Expr> =
                    ties.map(|((_, own), inner)| null_safe_equals(own, inner)).collect();
                let is_found = Expr::Column(found).is_not_null();
                aggregates = aggregates
                    .into_iter()
                    .map(|expr| {
                        Ok(expr
                            .transform_up_dyn(&mut |expr| add_aggregate_filter(expr, &is_found))?
                            .data)
                    })
                    .collect::<PlanResult<_>>()?;
                LogicalPlanBuilder::from(domain.rows.clone())
                    .join_on(rows.build()?, JoinType::Left, ties)?
                    .build()?
            }
            _ => input,
        };
        let keys = groups.into_iter().chain(domain.column_exprs()).collect();
        let made = Aggregate::try_new(Arc::new(input), keys, aggregates)?;
        let mut columns = column_exprs(&made.schema);
        columns.drain(own..own + domain.columns.len());
        let columns = domain.output_exprs(&schema, columns);
        LogicalPlanBuilder::from(LogicalPlan::Aggregate(made)).project(columns)?.build()
    }

    /// Computes the first rows for each row of the domain.
    fn limit_per_domain_row(
        &mut self,
        limit: Limit,
        domain: &CorrelationDomain,
    ) -> PlanResult<LogicalPlan> {
        let schema = Arc::clone(limit.input.schema());
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_impl_err!("a calculated LIMIT for each row");
        };
        // A projection preserves the order of its rows, but not the columns that it is computed from.
        if let LogicalPlan::Projection(projection) = limit.input.as_ref() {
            let Projection { expr, input, .. } = projection.clone();
            let limit = LogicalPlan::Limit(Limit { input, ..limit });
            let projection = Projection::try_new(expr, Arc::new(limit))?;
            return self.compute_per_domain_row(LogicalPlan::Projection(projection), domain);
        }
        let (input, order) = match Arc::unwrap_or_clone(limit.input) {
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) => {
                (Arc::unwrap_or_clone(input), domain.bind_outer_columns_in_sorts(expr)?)
            }
            input => (input, Vec::new()),
        };
        let rows = self.compute_per_domain_row(input, domain)?;
        let place = self.new_column();
        let number = row_number().partition_by(domain.column_exprs().collect());
        // Without an order, the default frame has none.
        let number = if order.is_empty() { number } else { number.order_by(order) };
        let number = number.build()?.alias(place.name.clone());
        let place = Expr::Column(place);
        let mut is_taken = place.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            is_taken = is_taken.and(place.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let columns = domain.output_exprs(&schema, column_exprs(&schema));
        LogicalPlanBuilder::from(rows)
            .window(vec![number])?
            .filter(is_taken)?
            .project(columns)?
            .build()
    }

    /// Computes a join for each row of a domain. Each side that depends on the domain gets its columns; if both do,
    /// they are also joined on them.
    fn join_per_domain_row(
        &mut self,
        join: Join,
        domain: &CorrelationDomain,
    ) -> PlanResult<LogicalPlan> {
        if join.null_aware {
            return not_impl_err!("a join of NOT IN for each row");
        }
        let schema = Arc::clone(&join.schema);
        let depends = |plan: &LogicalPlan| -> PlanResult<bool> {
            let outer = outer_columns(plan)?;
            Ok(outer.iter().any(|outer| domain.domain_column(outer).is_some()))
        };
        let (mut has_left, mut has_right) = (depends(&join.left)?, depends(&join.right)?);
        match join.join_type {
            JoinType::Inner => has_left |= !has_right,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => has_left = true,
            JoinType::Right => has_right = true,
            JoinType::Full => (has_left, has_right) = (true, true),
            _ => return not_impl_err!("a join of this type for each row"),
        }
        let (left, right) = (Arc::unwrap_or_clone(join.left), Arc::unwrap_or_clone(join.right));
        let left = if has_left { self.compute_per_domain_row(left, domain)? } else { left };
        let mut right = if has_right { self.compute_per_domain_row(right, domain)? } else { right };
        let mut ties = Vec::new();
        let mut outputs: Vec<Expr> = domain.column_exprs().collect();
        if has_left && has_right {
            // The right side's domain columns get other names.
            let others: Vec<Column> = domain.columns.iter().map(|_| self.new_column()).collect();
            let renamed = domain.renamed_column_exprs(right.schema(), &others);
            right = LogicalPlanBuilder::from(right).project(renamed)?.build()?;
            let pairs = || domain.columns.iter().zip(&others);
            ties = pairs().map(|((_, own), other)| null_safe_equals(own, other)).collect();
            outputs = match join.join_type {
                JoinType::Right => pairs()
                    .map(|((_, own), other)| Expr::Column(other.clone()).alias(own.name.clone()))
                    .collect(),
                JoinType::Full => pairs()
                    .map(|((_, own), other)| {
                        let (own_column, other) =
                            (Expr::Column(own.clone()), Expr::Column(other.clone()));
                        let case = Case::new(
                            None,
                            vec![(Box::new(own_column.clone().is_null()), Box::new(other))],
                            Some(Box::new(own_column)),
                        );
                        Expr::Case(case).alias(own.name.clone())
                    })
                    .collect(),
                _ => outputs,
            };
        }
        let on = join.on.into_iter().map(|(left, right)| {
            let (left, right) =
                (domain.bind_outer_columns(left)?, domain.bind_outer_columns(right)?);
            Ok(match join.null_equality {
                NullEquality::NullEqualsNull => {
                    binary_expr(left, Operator::IsNotDistinctFrom, right)
                }
                NullEquality::NullEqualsNothing => left.eq(right),
            })
        });
        let on = on.collect::<PlanResult<Vec<_>>>()?;
        let filter = join.filter.map(|filter| domain.bind_outer_columns(filter)).transpose()?;
        let conditions: Vec<Expr> = ties.into_iter().chain(on).chain(filter).collect();
        let conditions = if conditions.is_empty() { vec![lit(true)] } else { conditions };
        let joined = LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?;
        let columns = column_exprs(&schema).into_iter().chain(outputs);
        joined.project(columns.collect::<Vec<_>>())?.build()
    }
}

/// Builds a `UNION ALL` of branches with the column names of `schema`, followed by the domain's columns.
fn union_branches(
    branches: Vec<LogicalPlan>,
    schema: &DFSchema,
    domain: &CorrelationDomain,
) -> PlanResult<LogicalPlan> {
    let mut branches = branches.into_iter();
    let Some(first) = branches.next() else { return plan_err!("a union has no branch") };
    let all =
        branches.try_fold(LogicalPlanBuilder::from(first), |all, branch| all.union(branch))?;
    let mut columns = column_exprs(all.schema());
    columns.truncate(schema.fields().len());
    all.project(domain.output_exprs(schema, columns))?.build()
}

/// Restricts an aggregate to the rows for which a condition is true; other expressions stay as they are.
fn add_aggregate_filter(expr: Expr, condition: &Expr) -> PlanResult<Transformed<Expr>> {
    let Expr::AggregateFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    call.params.filter = Some(Box::new(match call.params.filter.take() {
        Some(own) => condition.clone().and(*own),
        None => condition.clone(),
    }));
    Ok(Transformed::yes(Expr::AggregateFunction(call)))
}
