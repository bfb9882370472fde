//! The bounds of a result: which columns are estimates, of which quantities, and how their bounds reach the
//! result.
//!
//! The analysis follows a column of the result down through the finish plan to the aggregation. If it finds
//! arithmetic of counts, sums and means, the column is a [`TotalsFormula`], which has an interval. A maximum
//! or minimum is itself a bound. For anything else the result has only the value seen so far.
//!
//! The data behind the intervals passes the finish plan beside the answers. Each step must return at most one
//! row for each row: projections, filters, sorts, limits. The [intervals](super::intervals) are computed
//! above it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate as AggregateNode, BinaryExpr, Case, Expr, ExprSchemable, Join, JoinType, LogicalPlan,
    Operator, Projection, cast, lit, when,
};
use tidemill_base::coverage::{BOUND_METADATA_KEY, EstimateAccuracy};
use tidemill_base::error::{Error, Result};
use tidemill_planning::DynTreeNode;
use tidemill_planning::datafusion_names::{aggregates, scalars};
use tidemill_sql::{IntoTidemillError, float_order};
use tidemill_tables::aggregates::aggregate_calls::find_aggregate_call;
use tidemill_tables::{
    MergeableFunction, StateUpdateSwitch, TableAggregate, TableSpec, is_single_row_call,
};

use super::intervals::{IntervalCalculator, bound_exprs};

/// A quantity whose totals over the rows of a group are estimated: a count, or a sum.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EstimatedQuantity {
    /// True for a count, false for a sum.
    pub is_count: bool,
    /// The map's column with the values; `None` for a count of rows.
    pub argument_column: Option<usize>,
    pub argument_type: DataType,
    /// The map's column that tells which rows count.
    pub filter_column: Option<usize>,
}

impl EstimatedQuantity {
    fn from_aggregate(aggregate: &TableAggregate, counts: bool) -> Self {
        let (argument, argument_type) =
            (aggregate.argument_column, aggregate.argument_type.clone());
        EstimatedQuantity {
            is_count: counts,
            argument_column: argument,
            argument_type,
            filter_column: aggregate.filter_column,
        }
    }

    /// Returns the aggregate that keeps this quantity by cell of the input.
    fn cell_aggregate(&self, function: MergeableFunction, like: &TableAggregate) -> TableAggregate {
        TableAggregate {
            function,
            argument_column: self.argument_column,
            argument_type: self.argument_type.clone(),
            second_argument: None,
            filter_column: self.filter_column,
            output_field: Arc::new(Field::new("cells", DataType::LargeBinary, false)),
            udf: Arc::clone(&like.udf),
        }
    }
}

/// A number computed from totals by arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TotalsFormula {
    Constant(f64),
    /// The total of the quantity at this index.
    Total(usize),
    Negated(Box<TotalsFormula>),
    /// Rounded or truncated to a multiple of this number.
    Rounded(Box<TotalsFormula>, f64),
    Binary(Box<TotalsFormula>, ArithmeticOperator, Box<TotalsFormula>),
    /// The formula, except in some rows, which show another value.
    WithException(Box<TotalsFormula>, FormulaException),
}

/// The rows in which a null or a constant stands in for a formula, from the least to the most doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FormulaException {
    /// Rows in which the formula is null or a divisor is 0, as in `coalesce(sum(x), 0)` and `nullif(count(*), 0)`.
    /// A row that is an exception for the whole input is one for every part of it, and has no interval there.
    NoValue,
    /// Null where the formula is 0. Signed values may cancel over the whole input and not over a part of it.
    NullAtZero,
    /// Null where the formula equals another constant, or a key.
    NullAtConstant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl TotalsFormula {
    /// Returns the value for the given totals.
    pub(crate) fn evaluate(&self, totals: &[f64]) -> f64 {
        match self {
            TotalsFormula::Constant(number) => *number,
            TotalsFormula::Total(index) => totals[*index],
            TotalsFormula::Negated(inner) => -inner.evaluate(totals),
            TotalsFormula::Rounded(inner, _) | TotalsFormula::WithException(inner, _) => {
                inner.evaluate(totals)
            }
            TotalsFormula::Binary(left, how, right) => {
                let (a, b) = (left.evaluate(totals), right.evaluate(totals));
                match how {
                    ArithmeticOperator::Add => a + b,
                    ArithmeticOperator::Subtract => a - b,
                    ArithmeticOperator::Multiply => a * b,
                    ArithmeticOperator::Divide => a / b,
                }
            }
        }
    }

    /// Adds the partial derivatives, times `outer`, to `gradient`.
    pub(crate) fn add_gradient(&self, totals: &[f64], outer: f64, gradient: &mut [f64]) {
        match self {
            TotalsFormula::Constant(_) => {}
            TotalsFormula::Total(index) => gradient[*index] += outer,
            TotalsFormula::Negated(inner) => inner.add_gradient(totals, -outer, gradient),
            TotalsFormula::Rounded(inner, _) | TotalsFormula::WithException(inner, _) => {
                inner.add_gradient(totals, outer, gradient);
            }
            TotalsFormula::Binary(left, how, right) => {
                let (a, b) = (left.evaluate(totals), right.evaluate(totals));
                let (by_a, by_b) = match how {
                    ArithmeticOperator::Add => (1.0, 1.0),
                    ArithmeticOperator::Subtract => (1.0, -1.0),
                    ArithmeticOperator::Multiply => (b, a),
                    ArithmeticOperator::Divide => (1.0 / b, -a / (b * b)),
                };
                left.add_gradient(totals, outer * by_a, gradient);
                right.add_gradient(totals, outer * by_b, gradient);
            }
        }
    }

    /// Returns the maximum difference that rounding makes to [the value](TotalsFormula::evaluate).
    pub(crate) fn rounding_slack(&self, totals: &[f64]) -> f64 {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => 0.0,
            TotalsFormula::Negated(inner) | TotalsFormula::WithException(inner, _) => {
                inner.rounding_slack(totals)
            }
            TotalsFormula::Rounded(inner, unit) => inner.rounding_slack(totals) + unit,
            TotalsFormula::Binary(left, how, right) => {
                let (by_a, by_b) = (left.rounding_slack(totals), right.rounding_slack(totals));
                if by_a == 0.0 && by_b == 0.0 {
                    return 0.0;
                }
                let (a, b) = (left.evaluate(totals), right.evaluate(totals));
                match how {
                    ArithmeticOperator::Add | ArithmeticOperator::Subtract => by_a + by_b,
                    ArithmeticOperator::Multiply => by_a * b.abs() + by_b * a.abs() + by_a * by_b,
                    ArithmeticOperator::Divide => by_a / b.abs() + by_b * a.abs() / (b * b),
                }
            }
        }
    }

    /// Returns the number of nodes.
    fn node_count(&self) -> usize {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => 1,
            TotalsFormula::Negated(inner)
            | TotalsFormula::Rounded(inner, _)
            | TotalsFormula::WithException(inner, _) => 1 + inner.node_count(),
            TotalsFormula::Binary(left, _, right) => 1 + left.node_count() + right.node_count(),
        }
    }

    /// Returns true if the formula is one total divided by another.
    pub(crate) fn is_quotient(&self) -> bool {
        match self {
            TotalsFormula::Binary(a, ArithmeticOperator::Divide, b) => {
                a.as_single_total().is_some() && b.as_single_total().is_some()
            }
            TotalsFormula::WithException(inner, _) => inner.is_quotient(),
            _ => false,
        }
    }

    /// Returns the index of the quantity if the formula is just its total.
    pub(crate) fn as_single_total(&self) -> Option<usize> {
        match self {
            TotalsFormula::Total(index) => Some(*index),
            TotalsFormula::WithException(inner, _) => inner.as_single_total(),
            _ => None,
        }
    }

    /// Returns true if the formula is about linear around the estimated totals: no divisor may be 0, and in no product
    /// may both factors be 0. `may_be_zero` returns true for a part of the formula whose interval contains 0.
    pub(crate) fn is_smooth(&self, may_be_zero: &mut dyn FnMut(&TotalsFormula) -> bool) -> bool {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => true,
            TotalsFormula::Negated(inner)
            | TotalsFormula::Rounded(inner, _)
            | TotalsFormula::WithException(inner, _) => inner.is_smooth(may_be_zero),
            TotalsFormula::Binary(left, how, right) => {
                let is_smooth = match how {
                    ArithmeticOperator::Add | ArithmeticOperator::Subtract => true,
                    ArithmeticOperator::Multiply => !(may_be_zero(left) && may_be_zero(right)),
                    ArithmeticOperator::Divide => !may_be_zero(right),
                };
                is_smooth && left.is_smooth(may_be_zero) && right.is_smooth(may_be_zero)
            }
        }
    }

    /// Returns true if the formula is certainly above 0. `is_positive` returns true for a total that is above 0.
    pub(crate) fn is_positive(&self, is_positive: &dyn Fn(usize) -> bool) -> bool {
        match self {
            TotalsFormula::Constant(number) => *number > 0.0,
            TotalsFormula::Total(index) => is_positive(*index),
            TotalsFormula::Negated(_) | TotalsFormula::Rounded(..) => false,
            TotalsFormula::WithException(inner, _) => inner.is_positive(is_positive),
            TotalsFormula::Binary(_, ArithmeticOperator::Subtract, _) => false,
            TotalsFormula::Binary(left, _, right) => {
                left.is_positive(is_positive) && right.is_positive(is_positive)
            }
        }
    }

    /// Returns all divisors in the formula.
    fn divisors(&self) -> Vec<&TotalsFormula> {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => Vec::new(),
            TotalsFormula::Negated(inner)
            | TotalsFormula::Rounded(inner, _)
            | TotalsFormula::WithException(inner, _) => inner.divisors(),
            TotalsFormula::Binary(left, how, right) => {
                let mut divisors = [left.divisors(), right.divisors()].concat();
                divisors.extend((*how == ArithmeticOperator::Divide).then_some(right.as_ref()));
                divisors
            }
        }
    }

    /// Returns true if a row may show another value than the formula.
    fn has_exceptions(&self) -> bool {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => false,
            TotalsFormula::Negated(inner) | TotalsFormula::Rounded(inner, _) => {
                inner.has_exceptions()
            }
            TotalsFormula::Binary(left, _, right) => {
                left.has_exceptions() || right.has_exceptions()
            }
            TotalsFormula::WithException(..) => true,
        }
    }

    /// Returns true if a row may be null for the whole input and have an interval for a part of it. A divisor that is
    /// null instead of 0 does not count: a formula whose divisor may be 0 has no interval.
    fn has_doubtful_nulls(&self) -> bool {
        match self {
            TotalsFormula::Constant(_) | TotalsFormula::Total(_) => false,
            TotalsFormula::Negated(inner) | TotalsFormula::Rounded(inner, _) => {
                inner.has_doubtful_nulls()
            }
            TotalsFormula::Binary(left, how, right) => {
                let right = match (how, right.as_ref()) {
                    (
                        ArithmeticOperator::Divide,
                        TotalsFormula::WithException(inner, FormulaException::NullAtZero),
                    ) => inner,
                    _ => right,
                };
                left.has_doubtful_nulls() || right.has_doubtful_nulls()
            }
            TotalsFormula::WithException(inner, FormulaException::NoValue) => {
                inner.has_doubtful_nulls()
            }
            TotalsFormula::WithException(..) => true,
        }
    }

    /// Returns true if this formula contains all totals of another formula.
    fn has_totals_of(&self, other: &TotalsFormula) -> bool {
        match other {
            TotalsFormula::Constant(_) => true,
            TotalsFormula::Total(index) => self.has_total(*index),
            TotalsFormula::Negated(inner)
            | TotalsFormula::Rounded(inner, _)
            | TotalsFormula::WithException(inner, _) => self.has_totals_of(inner),
            TotalsFormula::Binary(left, _, right) => {
                self.has_totals_of(left) && self.has_totals_of(right)
            }
        }
    }

    fn has_total(&self, index: usize) -> bool {
        match self {
            TotalsFormula::Constant(_) => false,
            TotalsFormula::Total(own) => *own == index,
            TotalsFormula::Negated(inner)
            | TotalsFormula::Rounded(inner, _)
            | TotalsFormula::WithException(inner, _) => inner.has_total(index),
            TotalsFormula::Binary(left, _, right) => {
                left.has_total(index) || right.has_total(index)
            }
        }
    }

    /// Returns the formula without the outermost roundings and exceptions.
    fn without_rounding(&self) -> &TotalsFormula {
        match self {
            TotalsFormula::Rounded(inner, _) | TotalsFormula::WithException(inner, _) => {
                inner.without_rounding()
            }
            _ => self,
        }
    }
}

/// A value that is estimated with an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Estimand {
    /// Arithmetic of totals.
    Formula(TotalsFormula),
    /// The value at a rank.
    Quantile {
        /// Index of its values among those with quantiles by cell.
        values_index: usize,
        rank: f64,
        /// Index of its aggregate.
        aggregate_index: usize,
    },
}

/// The certainty of a result column when a part of the input was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ColumnCertainty {
    /// A key, or a function of keys: the same whatever was read.
    Exact,
    /// An estimate, with the index of its [`Estimand`].
    Estimate(usize),
    /// The value is a lower bound.
    AtLeast,
    /// This share of the value is a lower bound; the value is an estimate of what was seen.
    AtLeastAbout(f64),
    /// The value is an upper bound.
    AtMost,
    /// The value of the part that was read, without bounds.
    SeenValue,
    /// A key, or null where its group was not found. It has no bounds and keeps its type, because a DOUBLE cannot tell
    /// large ids apart.
    SeenKey,
}

/// The analysis of a result's columns: their certainty and the estimates behind them.
#[derive(Debug, Clone)]
pub(crate) struct ResultBounds {
    /// The certainty of each column of the result.
    pub columns: Vec<ColumnCertainty>,
    pub estimands: Vec<Estimand>,
    pub quantities: Vec<EstimatedQuantity>,
    /// The quantities whose quantiles are estimated.
    pub quantile_values: Vec<EstimatedQuantity>,
    /// The clauses that depend on estimates: `HAVING`, `QUALIFY`, `ORDER BY`, `LIMIT`.
    pub estimate_clauses: Vec<&'static str>,
    /// True if the result has a row for each group that was found.
    pub has_groups: bool,
    /// The result's columns, without bounds.
    result_schema: SchemaRef,
}

/// Returns true if the rows above the aggregation `core` are groups: another aggregation may make one row of
/// them.
fn has_row_per_group(plan: &LogicalPlan, core: &AggregateNode) -> bool {
    let mut is_one_row = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Aggregate(it) if it.group_expr.is_empty()))
    };
    !core.group_expr.is_empty() && !plan.exists_dyn(&mut is_one_row).unwrap_or(false)
}

/// Returns true if a condition over these rows may concern the results of window functions.
fn has_window_input(input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::Window(_) | LogicalPlan::Unnest(_) | LogicalPlan::Extension(_) => true,
        LogicalPlan::Projection(projection) => has_window_input(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_window_input(&alias.input),
        _ => false,
    }
}

/// Name of the finished table's scan in the plan above it.
pub(crate) const FINISHED_TABLE: &str = "finished";

impl ResultBounds {
    /// Follows the columns of a plan down to the aggregation `core`, whose states are those of `spec`.
    pub(crate) fn new(
        plan: &LogicalPlan,
        core: &AggregateNode,
        spec: &TableSpec,
        own: &SchemaRef,
        quantiles: bool,
    ) -> Self {
        let (estimates, quantities, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = EstimateAnalyzer {
            aggregation: core,
            spec,
            estimands: estimates,
            quantities,
            quantile_values: values,
            has_quantile_intervals: quantiles,
        };
        let columns = (0..own.fields().len()).map(|index| {
            let of = found.classify_column(plan, index);
            found.column_certainty(of)
        });
        let columns = columns.collect();
        let mut by_estimates = Vec::new();
        found.collect_estimate_clauses(plan, &mut by_estimates);
        let EstimateAnalyzer { estimands: estimates, quantities, quantile_values: values, .. } =
            found;
        let (has_groups, own) = (has_row_per_group(plan, core), Arc::clone(own));
        ResultBounds {
            columns,
            estimands: estimates,
            quantities,
            quantile_values: values,
            estimate_clauses: by_estimates,
            has_groups,
            result_schema: own,
        }
    }

    /// Returns true if a column of the result has bounds beside it.
    fn has_bound_columns(&self, index: usize) -> bool {
        let of = self.result_schema.field(index).data_type();
        match self.columns.get(index) {
            None | Some(ColumnCertainty::Exact | ColumnCertainty::SeenKey) => false,
            Some(ColumnCertainty::AtLeast | ColumnCertainty::AtMost) => !of.is_nested(),
            Some(
                ColumnCertainty::Estimate(_)
                | ColumnCertainty::SeenValue
                | ColumnCertainty::AtLeastAbout(_),
            ) => of.is_numeric(),
        }
    }

    /// Describes the columns that are not exact and have no bounds beside them; if not `has_bounds`, no
    /// column has any. For an unscaled result it omits estimates and seen values, because the result says
    /// once that it is unscaled.
    pub(crate) fn unbounded_estimates(
        &self,
        has_bounds: bool,
        is_scaled: bool,
    ) -> Vec<EstimateAccuracy> {
        let without = |index: &usize| !(has_bounds && self.has_bound_columns(*index));
        let said = |index: usize| {
            let (method, interval) = match &self.columns[index] {
                ColumnCertainty::Exact => return None,
                ColumnCertainty::AtLeast
                | ColumnCertainty::AtLeastAbout(_)
                | ColumnCertainty::AtMost => ("what was seen", "is a bound"),
                _ if !is_scaled => return None,
                ColumnCertainty::Estimate(_) => ("estimated from what was read", "is an estimate"),
                ColumnCertainty::SeenValue | ColumnCertainty::SeenKey => {
                    ("what was seen", "is of what was seen")
                }
            };
            Some(EstimateAccuracy {
                column: tidemill_dialect::column_names::plan_text_to_sql(
                    self.result_schema.field(index).name(),
                ),
                method: method.to_owned(),
                exact: false,
                interval: interval.to_owned(),
                error: 0.0,
            })
        };
        (0..self.columns.len()).filter(without).filter_map(said).collect()
    }

    /// Returns, for each column with bounds, true if the column is an estimate and so has an interval.
    pub(crate) fn interval_flags(&self) -> impl Iterator<Item = bool> + '_ {
        let with_bounds = (0..self.columns.len()).filter(|index| self.has_bound_columns(*index));
        with_bounds.map(|index| matches!(self.columns[index], ColumnCertainty::Estimate(_)))
    }

    /// Returns, for each column with bounds, the index of its [`Estimand`] if the column is an estimate.
    pub(crate) fn estimate_indices(&self) -> Vec<Option<usize>> {
        let with_bounds = (0..self.columns.len()).filter(|index| self.has_bound_columns(*index));
        let number = |index: usize| match self.columns[index] {
            ColumnCertainty::Estimate(number) => Some(number),
            _ => None,
        };
        with_bounds.map(number).collect()
    }

    /// Returns the type of a column with bounds: DOUBLE for a number, otherwise its own type.
    fn bound_type(&self, index: usize) -> DataType {
        match self.result_schema.field(index).data_type() {
            of if of.is_numeric() => DataType::Float64,
            of => of.clone(),
        }
    }

    /// Returns the result's schema, with the bounds of each estimate behind it.
    ///
    /// # Errors
    /// [`Error::Usage`] if a column has the name of a bound.
    pub(crate) fn schema_with_bounds(&self) -> Result<SchemaRef> {
        let mut fields: Vec<FieldRef> = Vec::new();
        for (index, field) in self.result_schema.fields().iter().enumerate() {
            if !self.has_bound_columns(index) {
                fields.push(Arc::clone(field));
                continue;
            }
            let of = self.bound_type(index);
            fields.push(Arc::new(
                field.as_ref().clone().with_data_type(of.clone()).with_nullable(true),
            ));
            for which in ["low", "high"] {
                let name = format!("{}_{which}", field.name());
                if self.result_schema.column_with_name(&name).is_some() {
                    return Err(Error::usage_with_hint(
                        format!(
                            "two columns would be `{name}`: one that the query has, and a bound of `{}`",
                            field.name()
                        ),
                        "give one of them another name, or leave the bounds out: --no-intervals",
                    ));
                }
                let said = [(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into();
                fields.push(Arc::new(Field::new(name, of.clone(), true).with_metadata(said)));
            }
        }
        Ok(Arc::new(Schema::new_with_metadata(fields, self.result_schema.metadata().clone())))
    }

    /// Returns `spec` with the aggregates by cell that the formulas and quantiles need.
    pub(crate) fn add_cell_aggregates(
        &self,
        spec: &Arc<TableSpec>,
        splits: usize,
        switch: &StateUpdateSwitch,
    ) -> Arc<TableSpec> {
        let Some(like) = spec.aggregates.first() else { return Arc::clone(spec) };
        let splits = splits as u64;
        let cells = self.quantities.iter().map(|quantity| {
            let switch = switch.clone();
            let function = MergeableFunction::CellSums {
                is_count: quantity.is_count,
                split_count: splits,
                update_switch: switch,
            };
            quantity.cell_aggregate(function, like)
        });
        let quantiles = self.quantile_values.iter().map(|values| {
            values.cell_aggregate(MergeableFunction::CellQuantiles { split_count: splits }, like)
        });
        let aggregates = spec.aggregates.iter().cloned().chain(cells).chain(quantiles);
        Arc::new(TableSpec::new(spec.keys.clone(), aggregates.collect()))
    }

    /// Returns the columns that carry the data for intervals.
    pub(crate) fn carried_fields(&self) -> Vec<FieldRef> {
        carried_fields(&self.estimands, self.quantities.len(), self.quantile_values.len())
    }

    /// Returns the plan of the result with bounds, above the finish plan `plain`. The last columns of the
    /// finished table are [those for intervals](ResultBounds::carried_fields). `is_exact` says that all of
    /// the input was read. Without `intervals` estimates have no bounds.
    ///
    /// # Errors
    /// As DataFusion's plan builder.
    pub(crate) fn plan_with_bounds(
        &self,
        plain: LogicalPlan,
        intervals: Option<&Arc<IntervalCalculator>>,
        is_exact: bool,
    ) -> Result<LogicalPlan> {
        let (plan, is_carried) = match intervals.filter(|_| !is_exact) {
            None => (plain, false),
            Some(intervals) => {
                match carry_columns(&plain, &self.carried_fields()).into_tidemill_error()? {
                    Some(plan) => {
                        (project_intervals(plan, intervals, self.carried_fields().len())?, true)
                    }
                    None => (plain, false),
                }
            }
        };
        let own = self.result_schema.fields().len();
        let column = |index: usize| {
            let (qualifier, field) = plan.schema().qualified_field(index);
            Expr::Column(Column::new(qualifier.cloned(), field.name()))
        };
        let mut columns: Vec<Expr> = Vec::new();
        for (index, known) in self.columns.iter().enumerate() {
            if !self.has_bound_columns(index) {
                columns.push(column(index));
                continue;
            }
            let of = self.bound_type(index);
            let null = lit(ScalarValue::try_from(&of).into_tidemill_error()?);
            let value = || cast(column(index), of.clone());
            let (low, high) = match known {
                _ if is_exact => (value(), value()),
                ColumnCertainty::Estimate(estimate) if is_carried => {
                    let (low, high) = bound_exprs(&column(own), *estimate);
                    let is_shown = match self.estimands.get(*estimate) {
                        // The interval does not apply to a constant that stands in for the formula.
                        Some(Estimand::Formula(formula)) if formula.has_exceptions() => {
                            let is_above = value().gt_eq(low.clone());
                            is_above.and(value().lt_eq(high.clone()))
                        }
                        _ => value().is_not_null(),
                    };
                    (
                        when(is_shown.clone(), low).end().into_tidemill_error()?,
                        when(is_shown, high).end().into_tidemill_error()?,
                    )
                }
                ColumnCertainty::AtLeast => (value(), null),
                ColumnCertainty::AtLeastAbout(share) => {
                    let least = Expr::BinaryExpr(BinaryExpr::new(
                        Box::new(value()),
                        Operator::Multiply,
                        Box::new(lit(*share)),
                    ));
                    (least, null)
                }
                ColumnCertainty::AtMost => (null, value()),
                ColumnCertainty::Exact
                | ColumnCertainty::SeenKey
                | ColumnCertainty::Estimate(_)
                | ColumnCertainty::SeenValue => (null.clone(), null),
            };
            columns.extend([value(), low, high]);
        }
        let named = columns.into_iter().enumerate();
        let named = named.map(|(index, column)| column.alias(format!("result_{index}"))).collect();
        Ok(LogicalPlan::Projection(
            Projection::try_new(named, Arc::new(plan)).into_tidemill_error()?,
        ))
    }
}

/// Returns the columns that carry the data for intervals: the sums by cell of each quantity, the quantiles by
/// cell of each quantile argument, and each requested quantile.
pub(crate) fn carried_fields(
    estimates: &[Estimand],
    quantities: usize,
    values: usize,
) -> Vec<FieldRef> {
    if estimates.is_empty() {
        return Vec::new();
    }
    let field = |name: String, of: DataType| Arc::new(Field::new(name, of, true));
    let bytes = |kind: &'static str, count: usize| {
        (0..count)
            .map(move |index| field(format!("tidemill_{kind}_{index}"), DataType::LargeBinary))
    };
    let quantiles = estimates.iter().filter(|it| matches!(it, Estimand::Quantile { .. }));
    let quantiles = quantiles
        .enumerate()
        .map(|(index, _)| field(format!("tidemill_quantile_{index}"), DataType::Float64));
    bytes("cells", quantities).chain(bytes("values", values)).chain(quantiles).collect()
}

/// Replaces the last `carried` columns of a plan by one column with all bounds.
fn project_intervals(
    plan: LogicalPlan,
    intervals: &Arc<IntervalCalculator>,
    carried: usize,
) -> Result<LogicalPlan> {
    let columns = (0..plan.schema().fields().len()).map(|index| {
        let (qualifier, field) = plan.schema().qualified_field(index);
        Expr::Column(Column::new(qualifier.cloned(), field.name()))
    });
    let mut columns: Vec<Expr> = columns.collect();
    let bounds = intervals.bounds_expr(columns.split_off(columns.len() - carried));
    columns.push(bounds.alias("tidemill_bounds"));
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan)).into_tidemill_error()?))
}

/// Adds the carried columns behind a plan's own, or returns `None` if a step does not return a row for each
/// row.
fn carry_columns(plan: &LogicalPlan, carried: &[FieldRef]) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut columns = projection.expr.clone();
            if is_finished_scan(&projection.input) {
                let of_scan = |field: &FieldRef| {
                    Expr::Column(Column::new(Some(FINISHED_TABLE), field.name()))
                };
                columns.extend(carried.iter().map(of_scan));
                // The aggregation's own schema, two of whose columns may have one name here.
                let own = projection
                    .schema
                    .iter()
                    .map(|(table, field)| (table.cloned(), Arc::clone(field)));
                let more =
                    carried.iter().map(|field| (Some(FINISHED_TABLE.into()), Arc::clone(field)));
                let metadata = projection.schema.metadata().clone();
                let schema = DFSchema::new_with_metadata(own.chain(more).collect(), metadata)?;
                let input = Arc::clone(&projection.input);
                let table = Projection::try_new_with_schema(columns, input, Arc::new(schema))?;
                return Ok(Some(LogicalPlan::Projection(table)));
            }
            let Some(input) = carry_columns(&projection.input, carried)? else { return Ok(None) };
            let behind = input.schema().fields().len() - carried.len();
            columns.extend((behind..behind + carried.len()).map(|index| {
                let (qualifier, field) = input.schema().qualified_field(index);
                Expr::Column(Column::new(qualifier.cloned(), field.name()))
            }));
            Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?)))
        }
        // The groups of `count(DISTINCT x)`: one of their rows has the other aggregates.
        LogicalPlan::Aggregate(aggregate) => {
            let Some(like) = aggregate.aggr_expr.iter().find_map(one_row_call) else {
                return Ok(None);
            };
            let Some(input) = carry_columns(&aggregate.input, carried)? else { return Ok(None) };
            let behind = input.schema().fields().len() - carried.len();
            let mut calls = aggregate.aggr_expr.clone();
            for (index, field) in (behind..).zip(carried) {
                let (qualifier, of) = input.schema().qualified_field(index);
                let value = Expr::Column(Column::new(qualifier.cloned(), of.name()));
                let filter = like.params.filter.clone();
                let first = first_value_udaf();
                let first =
                    AggregateFunction::new_udf(first, vec![value], false, filter, vec![], None);
                calls.push(Expr::AggregateFunction(first).alias(field.name()));
            }
            let keys = aggregate.group_expr.clone();
            Ok(Some(LogicalPlan::Aggregate(AggregateNode::try_new(Arc::new(input), keys, calls)?)))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_) => {
            let [input] = plan.inputs()[..] else { return Ok(None) };
            let Some(input) = carry_columns(input, carried)? else { return Ok(None) };
            plan.with_new_exprs(plan.expressions(), vec![input]).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the call that takes an aggregate's value from the one row that has it.
fn one_row_call(expr: &Expr) -> Option<&AggregateFunction> {
    find_aggregate_call(expr).filter(|call| is_single_row_call(call))
}

/// Returns true if a plan contains the aggregation.
fn contains_aggregation(plan: &LogicalPlan, core: &AggregateNode) -> bool {
    plan.exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::Aggregate(it) if it == core)))
        .unwrap_or(true)
}

fn is_finished_scan(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::TableScan(scan) if scan.table_name.table() == FINISHED_TABLE)
}

/// The certainty of an expression.
#[derive(Debug, Clone, PartialEq)]
enum ExprCertainty {
    /// The same whatever was read.
    Exact,
    /// Arithmetic of totals.
    Formula(TotalsFormula),
    /// A quantile: index of its values, rank, and index of its aggregate.
    Quantile(usize, f64, usize),
    AtLeast,
    AtLeastAbout(f64),
    AtMost,
    SeenValue,
    /// A key, or null if its group was not found.
    SeenKey,
}

/// Maximum number of nodes of a formula with an interval.
const FORMULA_NODES_MAX: usize = 500;

/// Classifies the columns and expressions above an aggregation, and collects the estimands in them.
struct EstimateAnalyzer<'a> {
    aggregation: &'a AggregateNode,
    spec: &'a TableSpec,
    estimands: Vec<Estimand>,
    quantities: Vec<EstimatedQuantity>,
    quantile_values: Vec<EstimatedQuantity>,
    /// True if quantiles have intervals.
    has_quantile_intervals: bool,
}

impl EstimateAnalyzer<'_> {
    fn column_certainty(&mut self, is: ExprCertainty) -> ColumnCertainty {
        match is {
            ExprCertainty::Exact => ColumnCertainty::Exact,
            ExprCertainty::AtLeast => ColumnCertainty::AtLeast,
            ExprCertainty::AtLeastAbout(share) => ColumnCertainty::AtLeastAbout(share),
            ExprCertainty::AtMost => ColumnCertainty::AtMost,
            ExprCertainty::SeenValue => ColumnCertainty::SeenValue,
            ExprCertainty::SeenKey => ColumnCertainty::SeenKey,
            ExprCertainty::Formula(formula) => self.intern_estimand(Estimand::Formula(formula)),
            ExprCertainty::Quantile(values, rank, aggregate) => {
                self.intern_estimand(Estimand::Quantile {
                    values_index: values,
                    rank,
                    aggregate_index: aggregate,
                })
            }
        }
    }

    fn intern_estimand(&mut self, estimated: Estimand) -> ColumnCertainty {
        let known = self.estimands.iter().position(|known| *known == estimated);
        ColumnCertainty::Estimate(known.unwrap_or_else(|| {
            self.estimands.push(estimated);
            self.estimands.len() - 1
        }))
    }

    /// Collects the clauses above the aggregation that depend on values which may differ for the whole input.
    fn collect_estimate_clauses(&mut self, plan: &LogicalPlan, found: &mut Vec<&'static str>) {
        let input = match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.aggregation => return,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::Limit(limit) => &limit.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Window(window) => &window.input,
            LogicalPlan::Aggregate(aggregate) => &aggregate.input,
            LogicalPlan::Unnest(unnest) => &unnest.input,
            _ => return,
        };
        self.collect_estimate_clauses(input, found);
        let mut is_estimate = |expr: &Expr| self.classify_expr(input, expr) != ExprCertainty::Exact;
        match plan {
            LogicalPlan::Filter(filter) if is_estimate(&filter.predicate) => {
                let clause = if has_window_input(input) { "QUALIFY" } else { "HAVING" };
                found.extend((!found.contains(&clause)).then_some(clause));
            }
            LogicalPlan::Sort(sort) if sort.expr.iter().any(|by| is_estimate(&by.expr)) => {
                found.extend((!found.contains(&"ORDER BY")).then_some("ORDER BY"));
                found.extend(sort.fetch.map(|_| "LIMIT"));
            }
            LogicalPlan::Limit(_) if found.contains(&"ORDER BY") && !found.contains(&"LIMIT") => {
                found.push("LIMIT");
            }
            _ => {}
        }
    }

    /// Classifies a column of a plan.
    fn classify_column(&mut self, plan: &LogicalPlan, index: usize) -> ExprCertainty {
        match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.aggregation => {
                self.classify_aggregation_column(index)
            }
            // `count(DISTINCT x)` counts the groups that were found; other aggregates are in one of their
            // rows. Grouping sets have a column for each of their keys, and one expression for all of them.
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) =>
            {
                ExprCertainty::SeenValue
            }
            LogicalPlan::Aggregate(aggregate) => {
                let keys = aggregate.group_expr.len();
                match (
                    aggregate.group_expr.get(index),
                    aggregate.aggr_expr.get(index.wrapping_sub(keys)),
                ) {
                    (Some(key), _) => self.classify_opaque_expr(&aggregate.input, key),
                    (None, Some(call)) if one_row_call(call).is_some() => {
                        let value = one_row_call(call).and_then(|call| call.params.args.first());
                        value.map_or(ExprCertainty::SeenValue, |value| {
                            self.classify_expr(&aggregate.input, value)
                        })
                    }
                    (None, Some(call)) if is_count_call(call) => {
                        match self.classify_opaque_expr(&aggregate.input, call) {
                            ExprCertainty::Exact if self.is_every_group_counted(plan) => {
                                ExprCertainty::AtLeast
                            }
                            _ => ExprCertainty::SeenValue,
                        }
                    }
                    _ => ExprCertainty::SeenValue,
                }
            }
            LogicalPlan::Projection(projection) => match projection.expr.get(index) {
                Some(expr) => self.classify_expr(&projection.input, expr),
                None => ExprCertainty::SeenValue,
            },
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
                [input] => self.classify_column(input, index),
                _ => ExprCertainty::SeenValue,
            },
            // A key stays a key beside a window function. Nothing is known of the other columns.
            LogicalPlan::Window(window) => match index < window.input.schema().fields().len() {
                true => self.classify_exact_column(&window.input, index),
                false => ExprCertainty::SeenValue,
            },
            LogicalPlan::Join(join) => self.classify_join_column(join, index),
            // A source that is joined above the aggregation was read as a whole.
            LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => ExprCertainty::Exact,
            _ => ExprCertainty::SeenValue,
        }
    }

    /// Classifies a column as a key, or as a column without bounds.
    fn classify_exact_column(&mut self, plan: &LogicalPlan, index: usize) -> ExprCertainty {
        match self.classify_column(plan, index) {
            is @ (ExprCertainty::Exact | ExprCertainty::SeenKey) => is,
            _ => ExprCertainty::SeenValue,
        }
    }

    /// Classifies a column of a join. The nulls of an outer join depend on the groups found, and on its condition.
    fn classify_join_column(&mut self, join: &Join, index: usize) -> ExprCertainty {
        let left = join.left.schema().fields().len();
        let (side, own, is_nullable) = match join.join_type {
            JoinType::RightSemi | JoinType::RightAnti => (&join.right, Some(index), false),
            JoinType::RightMark => match index.checked_sub(join.right.schema().fields().len()) {
                None => (&join.right, Some(index), false),
                Some(_) => (&join.left, None, true),
            },
            of => match index.checked_sub(left) {
                None => (&join.left, Some(index), matches!(of, JoinType::Right | JoinType::Full)),
                // A mark column tells whether the right side has a matching row.
                Some(_) if of == JoinType::LeftMark => (&join.right, None, true),
                Some(own) => {
                    let is_nullable = matches!(of, JoinType::Left | JoinType::Full);
                    (&join.right, Some(own), is_nullable)
                }
            },
        };
        let is = own.map_or(ExprCertainty::Exact, |own| self.classify_exact_column(side, own));
        match is {
            ExprCertainty::Exact
                if is_nullable
                    && (contains_aggregation(side, self.aggregation)
                        || !self.is_exact_condition(join)) =>
            {
                ExprCertainty::SeenKey
            }
            is => is,
        }
    }

    /// Returns true if a join's condition contains nothing but keys.
    fn is_exact_condition(&mut self, join: &Join) -> bool {
        join.on.iter().all(|(left, right)| {
            self.classify_opaque_expr(&join.left, left) == ExprCertainty::Exact
                && self.classify_opaque_expr(&join.right, right) == ExprCertainty::Exact
        }) && join.filter.as_ref().is_none_or(|filter| {
            filter.column_refs().into_iter().all(|column| {
                let side = [&join.left, &join.right]
                    .into_iter()
                    .find_map(|side| Some((side, side.schema().index_of_column(column).ok()?)));
                side.is_some_and(|(side, index)| {
                    self.classify_column(side, index) == ExprCertainty::Exact
                })
            })
        })
    }

    /// Returns true if the count of found groups is a lower bound: nothing on the way from the aggregation
    /// depends on values that may differ for the whole input.
    fn is_every_group_counted(&mut self, plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.aggregation => true,
            LogicalPlan::Aggregate(aggregate) => {
                let mut keys = aggregate.group_expr.iter();
                keys.all(|key| {
                    self.classify_opaque_expr(&aggregate.input, key) == ExprCertainty::Exact
                }) && self.is_every_group_counted(&aggregate.input)
            }
            LogicalPlan::Filter(filter) => {
                self.classify_opaque_expr(&filter.input, &filter.predicate) == ExprCertainty::Exact
                    && self.is_every_group_counted(&filter.input)
            }
            LogicalPlan::Projection(projection) => self.is_every_group_counted(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => self.is_every_group_counted(&alias.input),
            LogicalPlan::Window(window) => self.is_every_group_counted(&window.input),
            LogicalPlan::Sort(sort) => {
                sort.fetch.is_none() && self.is_every_group_counted(&sort.input)
            }
            _ => false,
        }
    }

    fn classify_aggregation_column(&mut self, index: usize) -> ExprCertainty {
        let Some(index) = index.checked_sub(self.aggregation.group_expr.len()) else {
            return ExprCertainty::Exact;
        };
        let spec = self.spec;
        let Some(aggregate) = spec.aggregates.get(index) else { return ExprCertainty::SeenValue };
        let is_number = aggregate.output_field.data_type().is_numeric();
        match aggregate.function {
            MergeableFunction::Count => ExprCertainty::Formula(
                self.intern_total(EstimatedQuantity::from_aggregate(aggregate, true)),
            ),
            MergeableFunction::Sum if is_number => ExprCertainty::Formula(
                self.intern_total(EstimatedQuantity::from_aggregate(aggregate, false)),
            ),
            MergeableFunction::Mean if is_number => {
                let sum = self.intern_total(EstimatedQuantity::from_aggregate(aggregate, false));
                let count = self.intern_total(EstimatedQuantity::from_aggregate(aggregate, true));
                ExprCertainty::Formula(TotalsFormula::Binary(
                    Box::new(sum),
                    ArithmeticOperator::Divide,
                    Box::new(count),
                ))
            }
            _ if let Some(rank) = quantile_rank(&aggregate.function)
                .filter(|_| is_number && self.has_quantile_intervals) =>
            {
                let values = EstimatedQuantity::from_aggregate(aggregate, false);
                let known = self.quantile_values.iter().position(|known| *known == values);
                let values = known.unwrap_or_else(|| {
                    self.quantile_values.push(values);
                    self.quantile_values.len() - 1
                });
                ExprCertainty::Quantile(values, rank, index)
            }
            MergeableFunction::Max | MergeableFunction::UniqueExact => ExprCertainty::AtLeast,
            MergeableFunction::Unique(params) => {
                // The maximum relative error of the sketch, with 97.5 % probability.
                let registers = 2_f64.powi(i32::from(params.log2m));
                ExprCertainty::AtLeastAbout(1.0 - 1.96 * 1.04 / registers.sqrt())
            }
            MergeableFunction::Min => ExprCertainty::AtMost,
            _ => ExprCertainty::SeenValue,
        }
    }

    fn intern_total(&mut self, quantity: EstimatedQuantity) -> TotalsFormula {
        let known = self.quantities.iter().position(|known| *known == quantity);
        TotalsFormula::Total(known.unwrap_or_else(|| {
            self.quantities.push(quantity);
            self.quantities.len() - 1
        }))
    }

    fn classify_expr(&mut self, input: &LogicalPlan, expr: &Expr) -> ExprCertainty {
        if let Some(inner) = float_order::unwrap_comparable(expr) {
            return self.classify_expr(input, inner);
        }
        match expr {
            Expr::Column(column) => match input.schema().index_of_column(column) {
                Ok(index) => self.classify_column(input, index),
                Err(_) => ExprCertainty::SeenValue,
            },
            Expr::Alias(alias) => self.classify_expr(input, &alias.expr),
            Expr::Cast(cast) => self.classify_cast(input, &cast.expr, cast.field.data_type()),
            Expr::TryCast(cast) => self.classify_cast(input, &cast.expr, cast.field.data_type()),
            Expr::Negative(inner) => match self.classify_expr(input, inner) {
                ExprCertainty::Formula(formula) => {
                    ExprCertainty::Formula(TotalsFormula::Negated(Box::new(formula)))
                }
                ExprCertainty::Exact => ExprCertainty::Exact,
                _ => ExprCertainty::SeenValue,
            },
            Expr::BinaryExpr(binary) => {
                let how = match binary.op {
                    Operator::Plus => ArithmeticOperator::Add,
                    Operator::Minus => ArithmeticOperator::Subtract,
                    Operator::Multiply => ArithmeticOperator::Multiply,
                    Operator::Divide => ArithmeticOperator::Divide,
                    _ => return self.classify_opaque_expr(input, expr),
                };
                self.classify_arithmetic(input, expr, (&binary.left, how, &binary.right))
                    .unwrap_or_else(|| self.classify_opaque_expr(input, expr))
            }
            Expr::ScalarFunction(call) => {
                let how = match call.func.name() {
                    "add" => Some(ArithmeticOperator::Add),
                    "subtract" => Some(ArithmeticOperator::Subtract),
                    "multiply" => Some(ArithmeticOperator::Multiply),
                    "divide" | "quotient" | "try_divide" => Some(ArithmeticOperator::Divide),
                    _ => None,
                };
                match (how, call.func.name(), call.args.as_slice()) {
                    (Some(how), _, [left, right]) => self
                        .classify_arithmetic(input, expr, (left, how, right))
                        .unwrap_or_else(|| self.classify_opaque_expr(input, expr)),
                    (
                        None,
                        scalars::ROUND | scalars::TRUNC | scalars::FLOOR | scalars::CEIL,
                        [number, digits @ ..],
                    ) if digits.iter().all(|digits| constant_value(digits).is_some()) => {
                        let digits = digits.first().and_then(constant_value).unwrap_or(0.0);
                        self.classify_rounding(input, number, 10_f64.powf(-digits))
                    }
                    // A cast that loses digits.
                    (None, "kept_cast", [number, ..]) => match expr.get_type(input.schema()) {
                        Ok(to) => self.classify_cast(input, number, &to),
                        Err(_) => ExprCertainty::SeenValue,
                    },
                    (None, scalars::COALESCE | scalars::NVL, [number, others @ ..])
                        if others.iter().all(|other| {
                            self.classify_opaque_expr(input, other) == ExprCertainty::Exact
                        }) =>
                    {
                        self.classify_coalesce(input, number)
                    }
                    (None, scalars::NULLIF, [number, to])
                        if self.classify_opaque_expr(input, to) == ExprCertainty::Exact =>
                    {
                        self.classify_nullif(input, number, to)
                    }
                    (None, "negate", [inner]) => match self.classify_expr(input, inner) {
                        ExprCertainty::Formula(formula) => {
                            ExprCertainty::Formula(TotalsFormula::Negated(Box::new(formula)))
                        }
                        ExprCertainty::Exact => ExprCertainty::Exact,
                        _ => ExprCertainty::SeenValue,
                    },
                    _ => self.classify_opaque_expr(input, expr),
                }
            }
            Expr::Case(case) => self.classify_case(input, case, expr),
            _ => self.classify_opaque_expr(input, expr),
        }
    }

    /// Classifies a number that is replaced by a constant where it is null.
    fn classify_coalesce(&mut self, input: &LogicalPlan, number: &Expr) -> ExprCertainty {
        match self.classify_expr(input, number) {
            ExprCertainty::Formula(formula) if formula.has_doubtful_nulls() => {
                ExprCertainty::SeenValue
            }
            ExprCertainty::Formula(formula) => wrap_exception(formula, FormulaException::NoValue),
            is @ (ExprCertainty::Exact | ExprCertainty::Quantile(..)) => is,
            _ => ExprCertainty::SeenValue,
        }
    }

    /// Classifies a number that is null where it equals a constant or a key.
    fn classify_nullif(&mut self, input: &LogicalPlan, number: &Expr, to: &Expr) -> ExprCertainty {
        match self.classify_expr(input, number) {
            ExprCertainty::Formula(formula) => {
                let is_zero = constant_value(to) == Some(0.0);
                let exception = match is_zero {
                    true if self.is_count_formula(&formula) => FormulaException::NoValue,
                    true => FormulaException::NullAtZero,
                    false => FormulaException::NullAtConstant,
                };
                wrap_exception(formula, exception)
            }
            ExprCertainty::Exact => ExprCertainty::Exact,
            _ => ExprCertainty::SeenValue,
        }
    }

    /// Returns true if a formula is a plain count. A count that is 0 for the whole input is 0 for each part of it.
    fn is_count_formula(&self, formula: &TotalsFormula) -> bool {
        let quantity = formula.as_single_total().and_then(|index| self.quantities.get(index));
        quantity.is_some_and(|quantity| quantity.is_count)
    }

    /// Classifies a CASE. It is a formula if all branches are that formula, or if the other branches are taken where
    /// the formula has no value or equals a constant. If another condition chooses between an estimate and a constant,
    /// or between two estimates, the interval of one does not apply to the other.
    fn classify_case(&mut self, input: &LogicalPlan, case: &Case, whole: &Expr) -> ExprCertainty {
        let null = lit(ScalarValue::Null);
        let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
        let results: Vec<&Expr> =
            results.chain([case.else_expr.as_deref().unwrap_or(&null)]).collect();
        let branches: Vec<ExprCertainty> =
            results.iter().map(|result| self.classify_expr(input, result)).collect();
        let is_estimate = |is: &&ExprCertainty| {
            matches!(is, ExprCertainty::Formula(_) | ExprCertainty::Quantile(..))
        };
        let Some(estimate) = branches.iter().find(is_estimate) else {
            return self.classify_opaque_expr(input, whole);
        };
        if branches.iter().any(|is| is != estimate && *is != ExprCertainty::Exact) {
            return ExprCertainty::SeenValue;
        }
        let condition = |when: &Expr| match &case.expr {
            None => when.clone(),
            Some(of) => of.as_ref().clone().eq(when.clone()),
        };
        let conditions = case.when_then_expr.iter().map(|(when, _)| condition(when));
        let conditions: Vec<Expr> = conditions.collect();
        let mut found = None;
        for (branch, result) in results.into_iter().enumerate() {
            if branches[branch] != ExprCertainty::Exact {
                continue;
            }
            // A branch is taken where its own condition holds and no earlier one does.
            let mut before = conditions.iter().enumerate().take(branch + 1);
            let exception = before.find_map(|(at, condition)| {
                self.case_exception(input, (condition, at == branch), estimate, result)
            });
            match exception {
                None => return ExprCertainty::SeenValue,
                exception => found = found.max(exception),
            }
        }
        match (estimate, found) {
            (ExprCertainty::Formula(formula), Some(exception)) => {
                wrap_exception(formula.clone(), exception)
            }
            (estimate, _) => estimate.clone(),
        }
    }

    /// Returns the exception for rows in which a branch of a CASE stands in for an estimate. The rows are
    /// those in which a condition holds, or does not hold (and may be null). Returns `None` if no
    /// [`FormulaException`] describes them.
    fn case_exception(
        &mut self,
        input: &LogicalPlan,
        (condition, holds): (&Expr, bool),
        estimate: &ExprCertainty,
        result: &Expr,
    ) -> Option<FormulaException> {
        let mut of = |condition: &Expr, holds| {
            self.case_exception(input, (condition, holds), estimate, result)
        };
        match condition {
            Expr::Alias(alias) => of(&alias.expr, holds),
            // The planner may compute an expression that several columns share in a projection below.
            Expr::Column(column) => {
                let index = input.schema().index_of_column(column).ok()?;
                let (input, condition) = find_definition(input, index)?;
                self.case_exception(input, (condition, holds), estimate, result)
            }
            Expr::Not(inner) if holds => of(inner, false),
            Expr::IsNull(value) if holds => self.null_exception(input, value, estimate),
            Expr::IsNotNull(value) if !holds => self.null_exception(input, value, estimate),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let is_and = match op {
                    Operator::And => Some(true),
                    Operator::Or => Some(false),
                    _ => None,
                };
                if let Some(is_and) = is_and {
                    let found = (of(left, holds), of(right, holds));
                    // `a AND b` holds where both hold, and fails where one fails; `OR` is the reverse.
                    return match (is_and == holds, found) {
                        (true, (one, None) | (None, one)) => one,
                        (true, (one, other)) => one.min(other),
                        (false, (Some(one), Some(other))) => Some(one.max(other)),
                        (false, _) => None,
                    };
                }
                let (left, right) = (left.as_ref(), right.as_ref());
                let sides = match constant_value(left) {
                    Some(_) => (right, op.swap()?, left),
                    None => (left, *op, right),
                };
                self.value_exception(input, sides, holds, estimate, result)
            }
            _ => None,
        }
    }

    /// Returns the exception for rows in which a value is null.
    fn null_exception(
        &mut self,
        input: &LogicalPlan,
        value: &Expr,
        estimate: &ExprCertainty,
    ) -> Option<FormulaException> {
        let is_its_own = match (&self.classify_expr(input, value), estimate) {
            (ExprCertainty::Formula(value), ExprCertainty::Formula(formula)) => {
                formula.has_totals_of(value) && !value.has_doubtful_nulls()
            }
            (value @ ExprCertainty::Quantile(..), estimate) => value == estimate,
            _ => false,
        };
        is_its_own.then_some(FormulaException::NoValue)
    }

    /// Returns the exception for rows in which a value equals a constant, or is not above 0.
    fn value_exception(
        &mut self,
        input: &LogicalPlan,
        (value, op, to): (&Expr, Operator, &Expr),
        holds: bool,
        estimate: &ExprCertainty,
        result: &Expr,
    ) -> Option<FormulaException> {
        let (ExprCertainty::Formula(value), ExprCertainty::Formula(formula)) =
            (self.classify_expr(input, value), estimate)
        else {
            return None;
        };
        if value.has_doubtful_nulls()
            || self.classify_opaque_expr(input, to) != ExprCertainty::Exact
        {
            return None;
        }
        let number = constant_value(to);
        // A comparison that does not hold may be null, as for a null key, so only constants count then.
        let is_equal = match holds {
            true => op == Operator::Eq,
            false => op == Operator::NotEq && number.is_some(),
        };
        let is_at_most = match holds {
            true => matches!(op, Operator::Eq | Operator::LtEq),
            false => matches!(op, Operator::NotEq | Operator::Gt),
        };
        let is_divisor = || {
            formula
                .divisors()
                .into_iter()
                .any(|it| it.without_rounding() == value.without_rounding())
        };
        let is_count = self.is_count_formula(&value) && formula.has_totals_of(&value);
        if is_at_most && number == Some(0.0) && (is_count || is_divisor()) {
            return Some(FormulaException::NoValue);
        }
        if !is_equal || value != *formula && value != *formula.without_rounding() {
            return None;
        }
        match result {
            result if is_null_literal(result) && number == Some(0.0) => {
                Some(FormulaException::NullAtZero)
            }
            result if is_null_literal(result) => Some(FormulaException::NullAtConstant),
            result if number.is_some() && constant_value(result) == number => {
                Some(FormulaException::NoValue)
            }
            _ => None,
        }
    }

    fn classify_rounding(
        &mut self,
        input: &LogicalPlan,
        number: &Expr,
        unit: f64,
    ) -> ExprCertainty {
        match self.classify_expr(input, number) {
            is if unit == 0.0 => is,
            ExprCertainty::Formula(formula) => {
                ExprCertainty::Formula(TotalsFormula::Rounded(Box::new(formula), unit))
            }
            ExprCertainty::Quantile(..) => ExprCertainty::SeenValue,
            is => is,
        }
    }

    /// Classifies a cast. A cast between numbers keeps the number or rounds it. Other casts have no bounds: texts, for
    /// one, are not ordered as the numbers that they are parsed to.
    fn classify_cast(&mut self, input: &LogicalPlan, inner: &Expr, to: &DataType) -> ExprCertainty {
        let Ok(from) = inner.get_type(input.schema()) else { return ExprCertainty::SeenValue };
        let is_ordered = from.is_numeric() || from.is_temporal() || from == DataType::Boolean;
        match self.classify_expr(input, inner) {
            ExprCertainty::Exact => ExprCertainty::Exact,
            _ if !is_ordered || !to.is_numeric() => ExprCertainty::SeenValue,
            is if from.is_integer() => is,
            _ => self.classify_rounding(input, inner, number_spacing(to)),
        }
    }

    /// Classifies arithmetic of two sides, or returns `None` if one of them is neither a formula nor a
    /// constant.
    fn classify_arithmetic(
        &mut self,
        input: &LogicalPlan,
        whole: &Expr,
        (left, how, right): (&Expr, ArithmeticOperator, &Expr),
    ) -> Option<ExprCertainty> {
        let mut side = |expr: &Expr| match constant_value(expr) {
            Some(number) => Some(TotalsFormula::Constant(number)),
            None => match self.classify_expr(input, expr) {
                ExprCertainty::Formula(formula) => Some(formula),
                _ => None,
            },
        };
        let (left, right) = (side(left)?, side(right)?);
        match (&left, &right) {
            (TotalsFormula::Constant(_), TotalsFormula::Constant(_)) => Some(ExprCertainty::Exact),
            // Expressions may refer to the ones below them several times, so a formula can grow
            // exponentially.
            _ if left.node_count() + right.node_count() > FORMULA_NODES_MAX => {
                Some(ExprCertainty::SeenValue)
            }
            _ => {
                let formula = TotalsFormula::Binary(Box::new(left), how, Box::new(right));
                // The quotient of integers is an integer, and that of decimals has a fixed number of digits.
                let unit = match how {
                    ArithmeticOperator::Divide => {
                        whole.get_type(input.schema()).map_or(0.0, |it| number_spacing(&it))
                    }
                    _ => 0.0,
                };
                Some(ExprCertainty::Formula(match unit > 0.0 {
                    true => TotalsFormula::Rounded(Box::new(formula), unit),
                    false => formula,
                }))
            }
        }
    }

    /// Classifies an expression without a formula: it is exact if all of its columns are exact.
    fn classify_opaque_expr(&mut self, input: &LogicalPlan, expr: &Expr) -> ExprCertainty {
        let mut is_exact = true;
        let columns = expr.column_refs();
        for column in columns {
            let of = match input.schema().index_of_column(column) {
                Ok(index) => self.classify_column(input, index),
                Err(_) => ExprCertainty::SeenValue,
            };
            is_exact &= of == ExprCertainty::Exact;
        }
        let has_subquery = expr.exists_dyn(&mut |expr| Ok(matches!(expr, Expr::ScalarSubquery(_))));
        match is_exact && matches!(has_subquery, Ok(false)) {
            true => ExprCertainty::Exact,
            false => ExprCertainty::SeenValue,
        }
    }
}

/// Returns the expression that computes a column of a plan, and the plan that is its input.
fn find_definition(plan: &LogicalPlan, index: usize) -> Option<(&LogicalPlan, &Expr)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            Some((projection.input.as_ref(), projection.expr.get(index)?))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
            [input] => find_definition(input, index),
            _ => None,
        },
        _ => None,
    }
}

/// Wraps a formula in an exception.
fn wrap_exception(formula: TotalsFormula, exception: FormulaException) -> ExprCertainty {
    ExprCertainty::Formula(TotalsFormula::WithException(Box::new(formula), exception))
}

/// Returns the spacing of a type's numbers: 1 for integers, a power of ten for decimals, and 0 for other types.
fn number_spacing(of: &DataType) -> f64 {
    match of {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => 10_f64.powi(-i32::from(*scale)),
        of if of.is_integer() => 1.0,
        _ => 0.0,
    }
}

/// Returns true if an expression is a literal null, or a cast of one.
fn is_null_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Alias(alias) => is_null_literal(&alias.expr),
        Expr::Cast(cast) => is_null_literal(&cast.expr),
        _ => false,
    }
}

/// Returns the rank of a function that returns one value at a rank.
fn quantile_rank(function: &MergeableFunction) -> Option<f64> {
    match function {
        MergeableFunction::Median => Some(0.5),
        MergeableFunction::Percentile { fraction: share } => Some(*share),
        MergeableFunction::Quantile { ranks, returns_list: false } => ranks.first().copied(),
        _ => None,
    }
}

fn is_count_call(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_count_call(&alias.expr),
        Expr::AggregateFunction(call) => call.func.name() == aggregates::COUNT,
        _ => false,
    }
}

/// Returns the number that an expression stands for, if it is a constant.
fn constant_value(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value, _) => {
            let number = value.cast_to(&DataType::Float64).ok()?;
            match number {
                ScalarValue::Float64(number) if value.data_type().is_numeric() => number,
                _ => None,
            }
        }
        Expr::Alias(alias) => constant_value(&alias.expr),
        Expr::Cast(cast) if cast.field.data_type().is_numeric() => constant_value(&cast.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradient_matches_finite_differences() {
        let total = |index| Box::new(TotalsFormula::Total(index));
        let formulas = [
            TotalsFormula::Total(1),
            TotalsFormula::Binary(total(0), ArithmeticOperator::Divide, total(1)),
            TotalsFormula::Binary(
                Box::new(TotalsFormula::Binary(
                    Box::new(TotalsFormula::Constant(100.0)),
                    ArithmeticOperator::Multiply,
                    total(0),
                )),
                ArithmeticOperator::Divide,
                Box::new(TotalsFormula::Binary(total(1), ArithmeticOperator::Add, total(2))),
            ),
            TotalsFormula::Negated(Box::new(TotalsFormula::Binary(
                Box::new(TotalsFormula::Binary(total(0), ArithmeticOperator::Multiply, total(0))),
                ArithmeticOperator::Subtract,
                total(2),
            ))),
        ];
        let totals = [3.0, 7.0, -2.0];
        for formula in formulas {
            let mut gradient = [0.0; 3];
            let value = formula.evaluate(&totals);
            formula.add_gradient(&totals, 1.0, &mut gradient);
            for index in 0..3 {
                let mut near = totals;
                near[index] += 1e-6;
                let slope = (formula.evaluate(&near) - value) / 1e-6;
                assert!((slope - gradient[index]).abs() < 1e-4, "{formula:?} by {index}: {slope}");
            }
        }
    }
}
