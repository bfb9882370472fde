//! Which columns of a result are estimates, of what, and how their bounds reach it.
//!
//! A column of the result is followed down through the finish to the aggregation. What is found there as arithmetic
//! of counts, sums and means is a [`Formula`] of totals, from which an interval follows; a largest value is a bound
//! itself; of anything else there is only what was seen. What intervals are worked out from goes through the finish
//! beside the aggregation's answers as long as each of its steps gives at most a row for a row: projections, filters,
//! orders, limits. They are [worked out](super::intervals) behind it.

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
use tidemill_sql::datafusion_names::{aggregates, scalars};
use tidemill_sql::{IntoTidemillError, float_order};
use tidemill_tables::aggregate_calls::find_aggregate_call;
use tidemill_tables::{
    MergeableFunction, StateUpdateSwitch, TableAggregate, TableSpec, is_single_row_call,
};

use super::intervals::{Intervals, bounds_of};

/// A quantity whose totals over the rows of a group are estimated: a count, or a sum.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quantity {
    /// Whether values are counted and not added up.
    pub counts: bool,
    /// The map's column of its values; none for rows.
    pub argument: Option<usize>,
    pub argument_type: DataType,
    /// The map's column that says which rows count.
    pub filter: Option<usize>,
}

impl Quantity {
    fn of(aggregate: &TableAggregate, counts: bool) -> Self {
        let (argument, argument_type) =
            (aggregate.argument_column, aggregate.argument_type.clone());
        Quantity { counts, argument, argument_type, filter: aggregate.filter_column }
    }

    /// The aggregate that keeps it by place in the input.
    fn aggregate(&self, function: MergeableFunction, like: &TableAggregate) -> TableAggregate {
        TableAggregate {
            function,
            argument_column: self.argument,
            argument_type: self.argument_type.clone(),
            second_argument: None,
            filter_column: self.filter,
            output_field: Arc::new(Field::new("cells", DataType::LargeBinary, false)),
            udf: Arc::clone(&like.udf),
        }
    }
}

/// A number as arithmetic of totals.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Formula {
    Constant(f64),
    /// The total of the quantity of this number.
    Total(usize),
    Negative(Box<Formula>),
    /// Rounded, or cut, to a multiple of this.
    Rounded(Box<Formula>, f64),
    Of(Box<Formula>, Arithmetic, Box<Formula>),
    /// The formula, except in some rows, which show another value.
    Except(Box<Formula>, Exception),
}

/// The rows in which a null or a constant stands in for a formula, from the least to the most doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exception {
    /// Rows in which the formula is null or a divisor is 0, as in `coalesce(sum(x), 0)` and `nullif(count(*), 0)`.
    /// A row that is an exception for the whole input is one for every part of it, and has no interval there.
    NoValue,
    /// Null where the formula is 0. Signed values may cancel over the whole input and not over a part of it.
    NullAtZero,
    /// Null where the formula equals another constant, or a key.
    NullAtConstant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Formula {
    /// The number for such totals.
    pub(crate) fn value(&self, totals: &[f64]) -> f64 {
        match self {
            Formula::Constant(number) => *number,
            Formula::Total(index) => totals[*index],
            Formula::Negative(inner) => -inner.value(totals),
            Formula::Rounded(inner, _) | Formula::Except(inner, _) => inner.value(totals),
            Formula::Of(left, how, right) => {
                let (a, b) = (left.value(totals), right.value(totals));
                match how {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a / b,
                }
            }
        }
    }

    /// Adds its derivatives by the totals, times `outer`, to `gradient`.
    pub(crate) fn slope(&self, totals: &[f64], outer: f64, gradient: &mut [f64]) {
        match self {
            Formula::Constant(_) => {}
            Formula::Total(index) => gradient[*index] += outer,
            Formula::Negative(inner) => inner.slope(totals, -outer, gradient),
            Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                inner.slope(totals, outer, gradient);
            }
            Formula::Of(left, how, right) => {
                let (a, b) = (left.value(totals), right.value(totals));
                let (by_a, by_b) = match how {
                    Arithmetic::Add => (1.0, 1.0),
                    Arithmetic::Subtract => (1.0, -1.0),
                    Arithmetic::Multiply => (b, a),
                    Arithmetic::Divide => (1.0 / b, -a / (b * b)),
                };
                left.slope(totals, outer * by_a, gradient);
                right.slope(totals, outer * by_b, gradient);
            }
        }
    }

    /// By how much rounding may take it away from [its value](Formula::value).
    pub(crate) fn slack(&self, totals: &[f64]) -> f64 {
        match self {
            Formula::Constant(_) | Formula::Total(_) => 0.0,
            Formula::Negative(inner) | Formula::Except(inner, _) => inner.slack(totals),
            Formula::Rounded(inner, unit) => inner.slack(totals) + unit,
            Formula::Of(left, how, right) => {
                let (by_a, by_b) = (left.slack(totals), right.slack(totals));
                if by_a == 0.0 && by_b == 0.0 {
                    return 0.0;
                }
                let (a, b) = (left.value(totals), right.value(totals));
                match how {
                    Arithmetic::Add | Arithmetic::Subtract => by_a + by_b,
                    Arithmetic::Multiply => by_a * b.abs() + by_b * a.abs() + by_a * by_b,
                    Arithmetic::Divide => by_a / b.abs() + by_b * a.abs() / (b * b),
                }
            }
        }
    }

    /// Of how many numbers and operations it is made.
    fn size(&self) -> usize {
        match self {
            Formula::Constant(_) | Formula::Total(_) => 1,
            Formula::Negative(inner) | Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                1 + inner.size()
            }
            Formula::Of(left, _, right) => 1 + left.size() + right.size(),
        }
    }

    /// Returns true if the formula is one total divided by another.
    pub(crate) fn is_quotient(&self) -> bool {
        match self {
            Formula::Of(a, Arithmetic::Divide, b) => a.total().is_some() && b.total().is_some(),
            Formula::Except(inner, _) => inner.is_quotient(),
            _ => false,
        }
    }

    /// The quantity of which it is the total and nothing more.
    pub(crate) fn total(&self) -> Option<usize> {
        match self {
            Formula::Total(index) => Some(*index),
            Formula::Except(inner, _) => inner.total(),
            _ => None,
        }
    }

    /// Returns true if the formula is about linear around the estimated totals: no divisor may be 0, and in no product
    /// may both factors be 0. `may_be_zero` returns true for a part of the formula whose interval contains 0.
    pub(crate) fn is_smooth(&self, may_be_zero: &mut dyn FnMut(&Formula) -> bool) -> bool {
        match self {
            Formula::Constant(_) | Formula::Total(_) => true,
            Formula::Negative(inner) | Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                inner.is_smooth(may_be_zero)
            }
            Formula::Of(left, how, right) => {
                let is_smooth = match how {
                    Arithmetic::Add | Arithmetic::Subtract => true,
                    Arithmetic::Multiply => !(may_be_zero(left) && may_be_zero(right)),
                    Arithmetic::Divide => !may_be_zero(right),
                };
                is_smooth && left.is_smooth(may_be_zero) && right.is_smooth(may_be_zero)
            }
        }
    }

    /// Returns true if the formula is certainly above 0. `is_positive` returns true for a total that is above 0.
    pub(crate) fn is_positive(&self, is_positive: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Formula::Constant(number) => *number > 0.0,
            Formula::Total(index) => is_positive(*index),
            Formula::Negative(_) | Formula::Rounded(..) => false,
            Formula::Except(inner, _) => inner.is_positive(is_positive),
            Formula::Of(_, Arithmetic::Subtract, _) => false,
            Formula::Of(left, _, right) => {
                left.is_positive(is_positive) && right.is_positive(is_positive)
            }
        }
    }

    /// Returns all divisors in the formula.
    fn divisors(&self) -> Vec<&Formula> {
        match self {
            Formula::Constant(_) | Formula::Total(_) => Vec::new(),
            Formula::Negative(inner) | Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                inner.divisors()
            }
            Formula::Of(left, how, right) => {
                let mut divisors = [left.divisors(), right.divisors()].concat();
                divisors.extend((*how == Arithmetic::Divide).then_some(right.as_ref()));
                divisors
            }
        }
    }

    /// Returns true if a row may show another value than the formula.
    fn has_exceptions(&self) -> bool {
        match self {
            Formula::Constant(_) | Formula::Total(_) => false,
            Formula::Negative(inner) | Formula::Rounded(inner, _) => inner.has_exceptions(),
            Formula::Of(left, _, right) => left.has_exceptions() || right.has_exceptions(),
            Formula::Except(..) => true,
        }
    }

    /// Returns true if a row may be null for the whole input and have an interval for a part of it. A divisor that is
    /// null instead of 0 does not count: a formula whose divisor may be 0 has no interval.
    fn has_doubtful_nulls(&self) -> bool {
        match self {
            Formula::Constant(_) | Formula::Total(_) => false,
            Formula::Negative(inner) | Formula::Rounded(inner, _) => inner.has_doubtful_nulls(),
            Formula::Of(left, how, right) => {
                let right = match (how, right.as_ref()) {
                    (Arithmetic::Divide, Formula::Except(inner, Exception::NullAtZero)) => inner,
                    _ => right,
                };
                left.has_doubtful_nulls() || right.has_doubtful_nulls()
            }
            Formula::Except(inner, Exception::NoValue) => inner.has_doubtful_nulls(),
            Formula::Except(..) => true,
        }
    }

    /// Returns true if this formula contains all totals of another formula.
    fn has_totals_of(&self, other: &Formula) -> bool {
        match other {
            Formula::Constant(_) => true,
            Formula::Total(index) => self.has_total(*index),
            Formula::Negative(inner) | Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                self.has_totals_of(inner)
            }
            Formula::Of(left, _, right) => self.has_totals_of(left) && self.has_totals_of(right),
        }
    }

    fn has_total(&self, index: usize) -> bool {
        match self {
            Formula::Constant(_) => false,
            Formula::Total(own) => *own == index,
            Formula::Negative(inner) | Formula::Rounded(inner, _) | Formula::Except(inner, _) => {
                inner.has_total(index)
            }
            Formula::Of(left, _, right) => left.has_total(index) || right.has_total(index),
        }
    }

    /// Returns the formula without the outermost roundings and exceptions.
    fn unrounded(&self) -> &Formula {
        match self {
            Formula::Rounded(inner, _) | Formula::Except(inner, _) => inner.unrounded(),
            _ => self,
        }
    }
}

/// What has an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Estimated {
    /// Arithmetic of totals.
    Formula(Formula),
    /// The value below which a share of all is.
    Quantile {
        /// The values' place among those of which quantiles are kept.
        values: usize,
        rank: f64,
        /// Which of the aggregates it is.
        aggregate: usize,
    },
}

/// What is known of a column of the result that rests on a part of the input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    /// It is a key, or follows from keys: the same whatever was read.
    Exact,
    /// An estimate, of this number.
    Estimate(usize),
    /// What was seen is the least that it can be.
    AtLeast,
    /// The same, but for an estimate of what was seen, of which so much is certain.
    AtLeastAbout(f64),
    /// What was seen is the most that it can be.
    AtMost,
    /// What was seen.
    Seen,
    /// A key, or null where its group was not found. It has no bounds and keeps its type, because a DOUBLE cannot tell
    /// large ids apart.
    SeenKey,
}

/// The columns of a result as estimates.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Of each column of the result.
    pub columns: Vec<Known>,
    pub estimates: Vec<Estimated>,
    pub quantities: Vec<Quantity>,
    /// Of which quantiles are asked for.
    pub values: Vec<Quantity>,
    /// Which clauses go by estimates: `HAVING`, `QUALIFY`, `ORDER BY`, `LIMIT`.
    pub by_estimates: Vec<&'static str>,
    /// Whether the result has a row for each group that was found.
    pub has_groups: bool,
    /// The result's own columns, without bounds.
    own: SchemaRef,
}

/// Whether what comes of groups of `core` are groups: an aggregation above it may make one row of them.
fn has_groups(plan: &LogicalPlan, core: &AggregateNode) -> bool {
    let mut is_one_row = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Aggregate(it) if it.group_expr.is_empty()))
    };
    !core.group_expr.is_empty() && !plan.exists_dyn(&mut is_one_row).unwrap_or(false)
}

/// Whether a condition over these rows may be of what windows make of them: the first rows of each, or all.
fn is_of_windows(input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::Window(_) | LogicalPlan::Unnest(_) | LogicalPlan::Extension(_) => true,
        LogicalPlan::Projection(projection) => is_of_windows(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_of_windows(&alias.input),
        _ => false,
    }
}

/// What a table's scan is called in the plan above it.
pub(crate) const FINISHED: &str = "finished";

impl Bounds {
    /// Follows the columns of a plan down to the aggregation `core`, whose states are `spec`'s.
    pub(crate) fn new(
        plan: &LogicalPlan,
        core: &AggregateNode,
        spec: &TableSpec,
        own: &SchemaRef,
        quantiles: bool,
    ) -> Self {
        let (estimates, quantities, values) = (Vec::new(), Vec::new(), Vec::new());
        let mut found = Found { core, spec, estimates, quantities, values, quantiles };
        let columns = (0..own.fields().len()).map(|index| {
            let of = found.column(plan, index);
            found.known(of)
        });
        let columns = columns.collect();
        let mut by_estimates = Vec::new();
        found.clauses(plan, &mut by_estimates);
        let Found { estimates, quantities, values, .. } = found;
        let (has_groups, own) = (has_groups(plan, core), Arc::clone(own));
        Bounds { columns, estimates, quantities, values, by_estimates, has_groups, own }
    }

    /// Whether a column of the result has bounds beside it.
    fn has_bounds(&self, index: usize) -> bool {
        let of = self.own.field(index).data_type();
        match self.columns.get(index) {
            None | Some(Known::Exact | Known::SeenKey) => false,
            Some(Known::AtLeast | Known::AtMost) => !of.is_nested(),
            Some(Known::Estimate(_) | Known::Seen | Known::AtLeastAbout(_)) => of.is_numeric(),
        }
    }

    /// What is said of the columns that are not exact and have no bounds beside them: all of these, unless the result
    /// `has_bounds`. Where nothing is scaled it is said once that numbers are those of what was seen.
    pub(crate) fn unbounded(&self, has_bounds: bool, is_scaled: bool) -> Vec<EstimateAccuracy> {
        let without = |index: &usize| !(has_bounds && self.has_bounds(*index));
        let said = |index: usize| {
            let (method, interval) = match &self.columns[index] {
                Known::Exact => return None,
                Known::AtLeast | Known::AtLeastAbout(_) | Known::AtMost => {
                    ("what was seen", "is a bound")
                }
                _ if !is_scaled => return None,
                Known::Estimate(_) => ("estimated from what was read", "is an estimate"),
                Known::Seen | Known::SeenKey => ("what was seen", "is of what was seen"),
            };
            Some(EstimateAccuracy {
                column: tidemill_sql::column_names::plan_text_to_sql(self.own.field(index).name()),
                method: method.to_owned(),
                exact: false,
                interval: interval.to_owned(),
                error: 0.0,
            })
        };
        (0..self.columns.len()).filter(without).filter_map(said).collect()
    }

    /// For each column with bounds whether it is an estimate, which has an interval.
    pub(crate) fn with_intervals(&self) -> impl Iterator<Item = bool> + '_ {
        let with_bounds = (0..self.columns.len()).filter(|index| self.has_bounds(*index));
        with_bounds.map(|index| matches!(self.columns[index], Known::Estimate(_)))
    }

    /// Returns, for each column with bounds, the number of its estimate, if the column is an estimate.
    pub(crate) fn estimate_numbers(&self) -> Vec<Option<usize>> {
        let with_bounds = (0..self.columns.len()).filter(|index| self.has_bounds(*index));
        let number = |index: usize| match self.columns[index] {
            Known::Estimate(number) => Some(number),
            _ => None,
        };
        with_bounds.map(number).collect()
    }

    /// The type that a column with bounds has: DOUBLE, unless it is no number.
    fn type_of(&self, index: usize) -> DataType {
        match self.own.field(index).data_type() {
            of if of.is_numeric() => DataType::Float64,
            of => of.clone(),
        }
    }

    /// The result's columns with the bounds of each estimate behind it.
    ///
    /// # Errors
    /// [`Error::Usage`] where a column has the name that bounds would have.
    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        let mut fields: Vec<FieldRef> = Vec::new();
        for (index, field) in self.own.fields().iter().enumerate() {
            if !self.has_bounds(index) {
                fields.push(Arc::clone(field));
                continue;
            }
            let of = self.type_of(index);
            fields.push(Arc::new(
                field.as_ref().clone().with_data_type(of.clone()).with_nullable(true),
            ));
            for which in ["low", "high"] {
                let name = format!("{}_{which}", field.name());
                if self.own.column_with_name(&name).is_some() {
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
        Ok(Arc::new(Schema::new_with_metadata(fields, self.own.metadata().clone())))
    }

    /// What is kept per group with the sums by place in the input that the formulas need.
    pub(crate) fn with_cells(
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
                is_count: quantity.counts,
                split_count: splits,
                update_switch: switch,
            };
            quantity.aggregate(function, like)
        });
        let quantiles = self.values.iter().map(|values| {
            values.aggregate(MergeableFunction::CellQuantiles { split_count: splits }, like)
        });
        let aggregates = spec.aggregates.iter().cloned().chain(cells).chain(quantiles);
        Arc::new(TableSpec::new(spec.keys.clone(), aggregates.collect()))
    }

    /// The columns that carry what the intervals are worked out from.
    pub(crate) fn carried(&self) -> Vec<FieldRef> {
        carried_fields(&self.estimates, self.quantities.len(), self.values.len())
    }

    /// The plan of the result with bounds, above the finish `plain` over a finished table whose last columns are [those that carry
    /// what they are of](Bounds::carried). `is_exact` says that all of the input was read; without `intervals` there are none.
    ///
    /// # Errors
    /// As DataFusion's plan builder.
    pub(crate) fn with_bounds(
        &self,
        plain: LogicalPlan,
        intervals: Option<&Arc<Intervals>>,
        is_exact: bool,
    ) -> Result<LogicalPlan> {
        let (plan, is_carried) = match intervals.filter(|_| !is_exact) {
            None => (plain, false),
            Some(intervals) => match carry(&plain, &self.carried()).into_tidemill_error()? {
                Some(plan) => (worked_out(plan, intervals, self.carried().len())?, true),
                None => (plain, false),
            },
        };
        let own = self.own.fields().len();
        let column = |index: usize| {
            let (qualifier, field) = plan.schema().qualified_field(index);
            Expr::Column(Column::new(qualifier.cloned(), field.name()))
        };
        let mut columns: Vec<Expr> = Vec::new();
        for (index, known) in self.columns.iter().enumerate() {
            if !self.has_bounds(index) {
                columns.push(column(index));
                continue;
            }
            let of = self.type_of(index);
            let null = lit(ScalarValue::try_from(&of).into_tidemill_error()?);
            let value = || cast(column(index), of.clone());
            let (low, high) = match known {
                _ if is_exact => (value(), value()),
                Known::Estimate(estimate) if is_carried => {
                    let (low, high) = bounds_of(&column(own), *estimate);
                    let is_shown = match self.estimates.get(*estimate) {
                        // The interval does not apply to a constant that stands in for the formula.
                        Some(Estimated::Formula(formula)) if formula.has_exceptions() => {
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
                Known::AtLeast => (value(), null),
                Known::AtLeastAbout(share) => {
                    let least = Expr::BinaryExpr(BinaryExpr::new(
                        Box::new(value()),
                        Operator::Multiply,
                        Box::new(lit(*share)),
                    ));
                    (least, null)
                }
                Known::AtMost => (null, value()),
                Known::Exact | Known::SeenKey | Known::Estimate(_) | Known::Seen => {
                    (null.clone(), null)
                }
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

/// The columns that carry what intervals are worked out from: for each quantity the sums by place in the input, for each
/// of the values the quantiles by place, and each quantile that is asked for.
pub(crate) fn carried_fields(
    estimates: &[Estimated],
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
    let quantiles = estimates.iter().filter(|it| matches!(it, Estimated::Quantile { .. }));
    let quantiles = quantiles
        .enumerate()
        .map(|(index, _)| field(format!("tidemill_quantile_{index}"), DataType::Float64));
    bytes("cells", quantities).chain(bytes("values", values)).chain(quantiles).collect()
}

/// The plan's own columns, and in the place of the last `carried` ones a column of all bounds.
fn worked_out(
    plan: LogicalPlan,
    intervals: &Arc<Intervals>,
    carried: usize,
) -> Result<LogicalPlan> {
    let columns = (0..plan.schema().fields().len()).map(|index| {
        let (qualifier, field) = plan.schema().qualified_field(index);
        Expr::Column(Column::new(qualifier.cloned(), field.name()))
    });
    let mut columns: Vec<Expr> = columns.collect();
    let bounds = intervals.call(columns.split_off(columns.len() - carried));
    columns.push(bounds.alias("tidemill_bounds"));
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan)).into_tidemill_error()?))
}

/// The plan with the finished table's last columns behind its own; none where a step does not give a row for a row.
fn carry(plan: &LogicalPlan, carried: &[FieldRef]) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut columns = projection.expr.clone();
            if is_scan(&projection.input) {
                let of_scan =
                    |field: &FieldRef| Expr::Column(Column::new(Some(FINISHED), field.name()));
                columns.extend(carried.iter().map(of_scan));
                // The aggregation's own schema, two of whose columns may have one name here.
                let own = projection
                    .schema
                    .iter()
                    .map(|(table, field)| (table.cloned(), Arc::clone(field)));
                let more = carried.iter().map(|field| (Some(FINISHED.into()), Arc::clone(field)));
                let metadata = projection.schema.metadata().clone();
                let schema = DFSchema::new_with_metadata(own.chain(more).collect(), metadata)?;
                let input = Arc::clone(&projection.input);
                let table = Projection::try_new_with_schema(columns, input, Arc::new(schema))?;
                return Ok(Some(LogicalPlan::Projection(table)));
            }
            let Some(input) = carry(&projection.input, carried)? else { return Ok(None) };
            let behind = input.schema().fields().len() - carried.len();
            columns.extend((behind..behind + carried.len()).map(|index| {
                let (qualifier, field) = input.schema().qualified_field(index);
                Expr::Column(Column::new(qualifier.cloned(), field.name()))
            }));
            Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?)))
        }
        // The groups of `count(DISTINCT x)`, one row of which has what was aggregated beside it.
        LogicalPlan::Aggregate(aggregate) => {
            let Some(like) = aggregate.aggr_expr.iter().find_map(of_one_row) else {
                return Ok(None);
            };
            let Some(input) = carry(&aggregate.input, carried)? else { return Ok(None) };
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
            let Some(input) = carry(input, carried)? else { return Ok(None) };
            plan.with_new_exprs(plan.expressions(), vec![input]).map(Some)
        }
        _ => Ok(None),
    }
}

/// The call by which what was aggregated is taken from the one row that has it.
fn of_one_row(expr: &Expr) -> Option<&AggregateFunction> {
    find_aggregate_call(expr).filter(|call| is_single_row_call(call))
}

/// Returns true if a plan contains the aggregation.
fn contains(plan: &LogicalPlan, core: &AggregateNode) -> bool {
    plan.exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::Aggregate(it) if it == core)))
        .unwrap_or(true)
}

fn is_scan(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::TableScan(scan) if scan.table_name.table() == FINISHED)
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
enum Is {
    /// The same whatever was read.
    Exact,
    /// Arithmetic of totals.
    Formula(Formula),
    /// A quantile: the values' place, the rank, and which of the aggregates it is.
    Quantile(usize, f64, usize),
    AtLeast,
    AtLeastAbout(f64),
    AtMost,
    Seen,
    /// A key, or null if its group was not found.
    SeenKey,
}

/// Of a larger formula no interval is worked out.
const FORMULA_MAX: usize = 500;

struct Found<'a> {
    core: &'a AggregateNode,
    spec: &'a TableSpec,
    estimates: Vec<Estimated>,
    quantities: Vec<Quantity>,
    values: Vec<Quantity>,
    /// Whether quantiles have intervals.
    quantiles: bool,
}

impl Found<'_> {
    fn known(&mut self, is: Is) -> Known {
        match is {
            Is::Exact => Known::Exact,
            Is::AtLeast => Known::AtLeast,
            Is::AtLeastAbout(share) => Known::AtLeastAbout(share),
            Is::AtMost => Known::AtMost,
            Is::Seen => Known::Seen,
            Is::SeenKey => Known::SeenKey,
            Is::Formula(formula) => self.estimate(Estimated::Formula(formula)),
            Is::Quantile(values, rank, aggregate) => {
                self.estimate(Estimated::Quantile { values, rank, aggregate })
            }
        }
    }

    fn estimate(&mut self, estimated: Estimated) -> Known {
        let known = self.estimates.iter().position(|known| *known == estimated);
        Known::Estimate(known.unwrap_or_else(|| {
            self.estimates.push(estimated);
            self.estimates.len() - 1
        }))
    }

    /// Notes which clauses above the aggregation go by what may be otherwise for the whole input.
    fn clauses(&mut self, plan: &LogicalPlan, found: &mut Vec<&'static str>) {
        let input = match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.core => return,
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
        self.clauses(input, found);
        let mut is_estimate = |expr: &Expr| self.expr(input, expr) != Is::Exact;
        match plan {
            LogicalPlan::Filter(filter) if is_estimate(&filter.predicate) => {
                let clause = if is_of_windows(input) { "QUALIFY" } else { "HAVING" };
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

    /// What a column of a plan is.
    fn column(&mut self, plan: &LogicalPlan, index: usize) -> Is {
        match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.core => self.of_core(index),
            // `count(DISTINCT x)` is a count of the groups that were found; what stands beside it is in one of their rows.
            // Grouping sets have a column for each of their keys, of which one expression tells.
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) =>
            {
                Is::Seen
            }
            LogicalPlan::Aggregate(aggregate) => {
                let keys = aggregate.group_expr.len();
                match (
                    aggregate.group_expr.get(index),
                    aggregate.aggr_expr.get(index.wrapping_sub(keys)),
                ) {
                    (Some(key), _) => self.anything(&aggregate.input, key),
                    (None, Some(call)) if of_one_row(call).is_some() => {
                        let value = of_one_row(call).and_then(|call| call.params.args.first());
                        value.map_or(Is::Seen, |value| self.expr(&aggregate.input, value))
                    }
                    (None, Some(call)) if is_count(call) => {
                        match self.anything(&aggregate.input, call) {
                            Is::Exact if self.counts_all(plan) => Is::AtLeast,
                            _ => Is::Seen,
                        }
                    }
                    _ => Is::Seen,
                }
            }
            LogicalPlan::Projection(projection) => match projection.expr.get(index) {
                Some(expr) => self.expr(&projection.input, expr),
                None => Is::Seen,
            },
            LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
                [input] => self.column(input, index),
                _ => Is::Seen,
            },
            // Whatever is computed above it, a key is a key. Nothing is known of the rest there.
            LogicalPlan::Window(window) => match index < window.input.schema().fields().len() {
                true => self.exact_column(&window.input, index),
                false => Is::Seen,
            },
            LogicalPlan::Join(join) => self.joined_column(join, index),
            // What is joined above was read as a whole.
            LogicalPlan::TableScan(_) | LogicalPlan::Values(_) => Is::Exact,
            _ => Is::Seen,
        }
    }

    /// Classifies a column as a key, or as a column without bounds.
    fn exact_column(&mut self, plan: &LogicalPlan, index: usize) -> Is {
        match self.column(plan, index) {
            is @ (Is::Exact | Is::SeenKey) => is,
            _ => Is::Seen,
        }
    }

    /// Classifies a column of a join. The nulls of an outer join depend on the groups found, and on its condition.
    fn joined_column(&mut self, join: &Join, index: usize) -> Is {
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
        let is = own.map_or(Is::Exact, |own| self.exact_column(side, own));
        match is {
            Is::Exact
                if is_nullable && (contains(side, self.core) || !self.is_exact_condition(join)) =>
            {
                Is::SeenKey
            }
            is => is,
        }
    }

    /// Returns true if a join's condition contains nothing but keys.
    fn is_exact_condition(&mut self, join: &Join) -> bool {
        join.on.iter().all(|(left, right)| {
            self.anything(&join.left, left) == Is::Exact
                && self.anything(&join.right, right) == Is::Exact
        }) && join.filter.as_ref().is_none_or(|filter| {
            filter.column_refs().into_iter().all(|column| {
                let side = [&join.left, &join.right]
                    .into_iter()
                    .find_map(|side| Some((side, side.schema().index_of_column(column).ok()?)));
                side.is_some_and(|(side, index)| self.column(side, index) == Is::Exact)
            })
        })
    }

    /// Whether every group that was found is counted where it would be counted if all were: nothing on the way goes by what
    /// may be otherwise for the whole input.
    fn counts_all(&mut self, plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Aggregate(aggregate) if aggregate == self.core => true,
            LogicalPlan::Aggregate(aggregate) => {
                let mut keys = aggregate.group_expr.iter();
                keys.all(|key| self.anything(&aggregate.input, key) == Is::Exact)
                    && self.counts_all(&aggregate.input)
            }
            LogicalPlan::Filter(filter) => {
                self.anything(&filter.input, &filter.predicate) == Is::Exact
                    && self.counts_all(&filter.input)
            }
            LogicalPlan::Projection(projection) => self.counts_all(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => self.counts_all(&alias.input),
            LogicalPlan::Window(window) => self.counts_all(&window.input),
            LogicalPlan::Sort(sort) => sort.fetch.is_none() && self.counts_all(&sort.input),
            _ => false,
        }
    }

    fn of_core(&mut self, index: usize) -> Is {
        let Some(index) = index.checked_sub(self.core.group_expr.len()) else { return Is::Exact };
        let spec = self.spec;
        let Some(aggregate) = spec.aggregates.get(index) else { return Is::Seen };
        let is_number = aggregate.output_field.data_type().is_numeric();
        match aggregate.function {
            MergeableFunction::Count => Is::Formula(self.total(Quantity::of(aggregate, true))),
            MergeableFunction::Sum if is_number => {
                Is::Formula(self.total(Quantity::of(aggregate, false)))
            }
            MergeableFunction::Mean if is_number => {
                let sum = self.total(Quantity::of(aggregate, false));
                let count = self.total(Quantity::of(aggregate, true));
                Is::Formula(Formula::Of(Box::new(sum), Arithmetic::Divide, Box::new(count)))
            }
            _ if let Some(rank) =
                rank_of(&aggregate.function).filter(|_| is_number && self.quantiles) =>
            {
                let values = Quantity::of(aggregate, false);
                let known = self.values.iter().position(|known| *known == values);
                let values = known.unwrap_or_else(|| {
                    self.values.push(values);
                    self.values.len() - 1
                });
                Is::Quantile(values, rank, index)
            }
            MergeableFunction::Max | MergeableFunction::UniqueExact => Is::AtLeast,
            MergeableFunction::Unique(params) => {
                // What the sketch may be too high by, with 97.5 %.
                let registers = 2_f64.powi(i32::from(params.log2m));
                Is::AtLeastAbout(1.0 - 1.96 * 1.04 / registers.sqrt())
            }
            MergeableFunction::Min => Is::AtMost,
            _ => Is::Seen,
        }
    }

    fn total(&mut self, quantity: Quantity) -> Formula {
        let known = self.quantities.iter().position(|known| *known == quantity);
        Formula::Total(known.unwrap_or_else(|| {
            self.quantities.push(quantity);
            self.quantities.len() - 1
        }))
    }

    fn expr(&mut self, input: &LogicalPlan, expr: &Expr) -> Is {
        if let Some(inner) = float_order::unwrap_comparable(expr) {
            return self.expr(input, inner);
        }
        match expr {
            Expr::Column(column) => match input.schema().index_of_column(column) {
                Ok(index) => self.column(input, index),
                Err(_) => Is::Seen,
            },
            Expr::Alias(alias) => self.expr(input, &alias.expr),
            Expr::Cast(cast) => self.converted(input, &cast.expr, cast.field.data_type()),
            Expr::TryCast(cast) => self.converted(input, &cast.expr, cast.field.data_type()),
            Expr::Negative(inner) => match self.expr(input, inner) {
                Is::Formula(formula) => Is::Formula(Formula::Negative(Box::new(formula))),
                Is::Exact => Is::Exact,
                _ => Is::Seen,
            },
            Expr::BinaryExpr(binary) => {
                let how = match binary.op {
                    Operator::Plus => Arithmetic::Add,
                    Operator::Minus => Arithmetic::Subtract,
                    Operator::Multiply => Arithmetic::Multiply,
                    Operator::Divide => Arithmetic::Divide,
                    _ => return self.anything(input, expr),
                };
                self.arithmetic(input, expr, (&binary.left, how, &binary.right))
                    .unwrap_or_else(|| self.anything(input, expr))
            }
            Expr::ScalarFunction(call) => {
                let how = match call.func.name() {
                    "add" => Some(Arithmetic::Add),
                    "subtract" => Some(Arithmetic::Subtract),
                    "multiply" => Some(Arithmetic::Multiply),
                    "divide" | "quotient" | "try_divide" => Some(Arithmetic::Divide),
                    _ => None,
                };
                match (how, call.func.name(), call.args.as_slice()) {
                    (Some(how), _, [left, right]) => self
                        .arithmetic(input, expr, (left, how, right))
                        .unwrap_or_else(|| self.anything(input, expr)),
                    (
                        None,
                        scalars::ROUND | scalars::TRUNC | scalars::FLOOR | scalars::CEIL,
                        [number, digits @ ..],
                    ) if digits.iter().all(|digits| constant(digits).is_some()) => {
                        let digits = digits.first().and_then(constant).unwrap_or(0.0);
                        self.rounded(input, number, 10_f64.powf(-digits))
                    }
                    // A cast that loses digits.
                    (None, "kept_cast", [number, ..]) => match expr.get_type(input.schema()) {
                        Ok(to) => self.converted(input, number, &to),
                        Err(_) => Is::Seen,
                    },
                    (None, scalars::COALESCE | scalars::NVL, [number, others @ ..])
                        if others.iter().all(|other| self.anything(input, other) == Is::Exact) =>
                    {
                        self.in_place_of_null(input, number)
                    }
                    (None, scalars::NULLIF, [number, to])
                        if self.anything(input, to) == Is::Exact =>
                    {
                        self.null_if_equal(input, number, to)
                    }
                    (None, "negate", [inner]) => match self.expr(input, inner) {
                        Is::Formula(formula) => Is::Formula(Formula::Negative(Box::new(formula))),
                        Is::Exact => Is::Exact,
                        _ => Is::Seen,
                    },
                    _ => self.anything(input, expr),
                }
            }
            Expr::Case(case) => self.case(input, case, expr),
            _ => self.anything(input, expr),
        }
    }

    /// Classifies a number that is replaced by a constant where it is null.
    fn in_place_of_null(&mut self, input: &LogicalPlan, number: &Expr) -> Is {
        match self.expr(input, number) {
            Is::Formula(formula) if formula.has_doubtful_nulls() => Is::Seen,
            Is::Formula(formula) => except(formula, Exception::NoValue),
            is @ (Is::Exact | Is::Quantile(..)) => is,
            _ => Is::Seen,
        }
    }

    /// Classifies a number that is null where it equals a constant or a key.
    fn null_if_equal(&mut self, input: &LogicalPlan, number: &Expr, to: &Expr) -> Is {
        match self.expr(input, number) {
            Is::Formula(formula) => {
                let is_zero = constant(to) == Some(0.0);
                let exception = match is_zero {
                    true if self.is_count(&formula) => Exception::NoValue,
                    true => Exception::NullAtZero,
                    false => Exception::NullAtConstant,
                };
                except(formula, exception)
            }
            Is::Exact => Is::Exact,
            _ => Is::Seen,
        }
    }

    /// Returns true if a formula is a plain count. A count that is 0 for the whole input is 0 for each part of it.
    fn is_count(&self, formula: &Formula) -> bool {
        let quantity = formula.total().and_then(|index| self.quantities.get(index));
        quantity.is_some_and(|quantity| quantity.counts)
    }

    /// Classifies a CASE. It is a formula if all branches are that formula, or if the other branches are taken where
    /// the formula has no value or equals a constant. If another condition chooses between an estimate and a constant,
    /// or between two estimates, the interval of one does not apply to the other.
    fn case(&mut self, input: &LogicalPlan, case: &Case, whole: &Expr) -> Is {
        let null = lit(ScalarValue::Null);
        let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
        let results: Vec<&Expr> =
            results.chain([case.else_expr.as_deref().unwrap_or(&null)]).collect();
        let branches: Vec<Is> = results.iter().map(|result| self.expr(input, result)).collect();
        let is_estimate = |is: &&Is| matches!(is, Is::Formula(_) | Is::Quantile(..));
        let Some(estimate) = branches.iter().find(is_estimate) else {
            return self.anything(input, whole);
        };
        if branches.iter().any(|is| is != estimate && *is != Is::Exact) {
            return Is::Seen;
        }
        let condition = |when: &Expr| match &case.expr {
            None => when.clone(),
            Some(of) => of.as_ref().clone().eq(when.clone()),
        };
        let conditions = case.when_then_expr.iter().map(|(when, _)| condition(when));
        let conditions: Vec<Expr> = conditions.collect();
        let mut found = None;
        for (branch, result) in results.into_iter().enumerate() {
            if branches[branch] != Is::Exact {
                continue;
            }
            // A branch is taken where its own condition holds and no earlier one does.
            let mut before = conditions.iter().enumerate().take(branch + 1);
            let exception = before.find_map(|(at, condition)| {
                self.exception(input, (condition, at == branch), estimate, result)
            });
            match exception {
                None => return Is::Seen,
                exception => found = found.max(exception),
            }
        }
        match (estimate, found) {
            (Is::Formula(formula), Some(exception)) => except(formula.clone(), exception),
            (estimate, _) => estimate.clone(),
        }
    }

    /// Returns the kind of rows in which a branch of a CASE stands in for an estimate, by a condition that holds there,
    /// or does not hold (and may be null). Returns `None` if the rows are of no kind of [`Exception`].
    fn exception(
        &mut self,
        input: &LogicalPlan,
        (condition, holds): (&Expr, bool),
        estimate: &Is,
        result: &Expr,
    ) -> Option<Exception> {
        let mut of =
            |condition: &Expr, holds| self.exception(input, (condition, holds), estimate, result);
        match condition {
            Expr::Alias(alias) => of(&alias.expr, holds),
            // The planner may compute an expression that several columns share in a projection below.
            Expr::Column(column) => {
                let index = input.schema().index_of_column(column).ok()?;
                let (input, condition) = definition(input, index)?;
                self.exception(input, (condition, holds), estimate, result)
            }
            Expr::Not(inner) if holds => of(inner, false),
            Expr::IsNull(value) if holds => self.exception_of_null(input, value, estimate),
            Expr::IsNotNull(value) if !holds => self.exception_of_null(input, value, estimate),
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
                let sides = match constant(left) {
                    Some(_) => (right, op.swap()?, left),
                    None => (left, *op, right),
                };
                self.exception_of_value(input, sides, holds, estimate, result)
            }
            _ => None,
        }
    }

    /// Returns the exception for rows in which a value is null.
    fn exception_of_null(
        &mut self,
        input: &LogicalPlan,
        value: &Expr,
        estimate: &Is,
    ) -> Option<Exception> {
        let is_its_own = match (&self.expr(input, value), estimate) {
            (Is::Formula(value), Is::Formula(formula)) => {
                formula.has_totals_of(value) && !value.has_doubtful_nulls()
            }
            (value @ Is::Quantile(..), estimate) => value == estimate,
            _ => false,
        };
        is_its_own.then_some(Exception::NoValue)
    }

    /// Returns the exception for rows in which a value equals a constant, or is not above 0.
    fn exception_of_value(
        &mut self,
        input: &LogicalPlan,
        (value, op, to): (&Expr, Operator, &Expr),
        holds: bool,
        estimate: &Is,
        result: &Expr,
    ) -> Option<Exception> {
        let (Is::Formula(value), Is::Formula(formula)) = (self.expr(input, value), estimate) else {
            return None;
        };
        if value.has_doubtful_nulls() || self.anything(input, to) != Is::Exact {
            return None;
        }
        let number = constant(to);
        // A comparison that does not hold may be null, as for a null key, so only constants count then.
        let is_equal = match holds {
            true => op == Operator::Eq,
            false => op == Operator::NotEq && number.is_some(),
        };
        let is_at_most = match holds {
            true => matches!(op, Operator::Eq | Operator::LtEq),
            false => matches!(op, Operator::NotEq | Operator::Gt),
        };
        let is_divisor =
            || formula.divisors().into_iter().any(|it| it.unrounded() == value.unrounded());
        let is_count = self.is_count(&value) && formula.has_totals_of(&value);
        if is_at_most && number == Some(0.0) && (is_count || is_divisor()) {
            return Some(Exception::NoValue);
        }
        if !is_equal || value != *formula && value != *formula.unrounded() {
            return None;
        }
        match result {
            result if is_null(result) && number == Some(0.0) => Some(Exception::NullAtZero),
            result if is_null(result) => Some(Exception::NullAtConstant),
            result if number.is_some() && constant(result) == number => Some(Exception::NoValue),
            _ => None,
        }
    }

    fn rounded(&mut self, input: &LogicalPlan, number: &Expr, unit: f64) -> Is {
        match self.expr(input, number) {
            is if unit == 0.0 => is,
            Is::Formula(formula) => Is::Formula(Formula::Rounded(Box::new(formula), unit)),
            Is::Quantile(..) => Is::Seen,
            is => is,
        }
    }

    /// Classifies a cast. A cast between numbers keeps the number or rounds it. Other casts have no bounds: texts, for
    /// one, are not ordered as the numbers that they are parsed to.
    fn converted(&mut self, input: &LogicalPlan, inner: &Expr, to: &DataType) -> Is {
        let Ok(from) = inner.get_type(input.schema()) else { return Is::Seen };
        let is_ordered = from.is_numeric() || from.is_temporal() || from == DataType::Boolean;
        match self.expr(input, inner) {
            Is::Exact => Is::Exact,
            _ if !is_ordered || !to.is_numeric() => Is::Seen,
            is if from.is_integer() => is,
            _ => self.rounded(input, inner, unit_of(to)),
        }
    }

    /// A number of the two sides; none where one of them is no formula and no constant.
    fn arithmetic(
        &mut self,
        input: &LogicalPlan,
        whole: &Expr,
        (left, how, right): (&Expr, Arithmetic, &Expr),
    ) -> Option<Is> {
        let mut side = |expr: &Expr| match constant(expr) {
            Some(number) => Some(Formula::Constant(number)),
            None => match self.expr(input, expr) {
                Is::Formula(formula) => Some(formula),
                _ => None,
            },
        };
        let (left, right) = (side(left)?, side(right)?);
        match (&left, &right) {
            (Formula::Constant(_), Formula::Constant(_)) => Some(Is::Exact),
            // What stands above names what is below it, as often as it likes.
            _ if left.size() + right.size() > FORMULA_MAX => Some(Is::Seen),
            _ => {
                let formula = Formula::Of(Box::new(left), how, Box::new(right));
                // The quotient of integers is an integer, and that of decimals has a fixed number of digits.
                let unit = match how {
                    Arithmetic::Divide => {
                        whole.get_type(input.schema()).map_or(0.0, |it| unit_of(&it))
                    }
                    _ => 0.0,
                };
                Some(Is::Formula(match unit > 0.0 {
                    true => Formula::Rounded(Box::new(formula), unit),
                    false => formula,
                }))
            }
        }
    }

    /// An expression of which no formula is known: exact if all that it is of is.
    fn anything(&mut self, input: &LogicalPlan, expr: &Expr) -> Is {
        let mut is_exact = true;
        let columns = expr.column_refs();
        for column in columns {
            let of = match input.schema().index_of_column(column) {
                Ok(index) => self.column(input, index),
                Err(_) => Is::Seen,
            };
            is_exact &= of == Is::Exact;
        }
        let has_subquery = expr.exists_dyn(&mut |expr| Ok(matches!(expr, Expr::ScalarSubquery(_))));
        match is_exact && matches!(has_subquery, Ok(false)) {
            true => Is::Exact,
            false => Is::Seen,
        }
    }
}

/// Returns the expression that computes a column of a plan, and the plan that is its input.
fn definition(plan: &LogicalPlan, index: usize) -> Option<(&LogicalPlan, &Expr)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            Some((projection.input.as_ref(), projection.expr.get(index)?))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_) => match plan.inputs()[..] {
            [input] => definition(input, index),
            _ => None,
        },
        _ => None,
    }
}

/// Wraps a formula in an exception.
fn except(formula: Formula, exception: Exception) -> Is {
    Is::Formula(Formula::Except(Box::new(formula), exception))
}

/// Returns the spacing of a type's numbers: 1 for integers, a power of ten for decimals, and 0 for other types.
fn unit_of(of: &DataType) -> f64 {
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
fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Alias(alias) => is_null(&alias.expr),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// The rank of a function that answers one value at a rank.
fn rank_of(function: &MergeableFunction) -> Option<f64> {
    match function {
        MergeableFunction::Median => Some(0.5),
        MergeableFunction::Percentile { fraction: share } => Some(*share),
        MergeableFunction::Quantile { ranks, returns_list: false } => ranks.first().copied(),
        _ => None,
    }
}

fn is_count(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_count(&alias.expr),
        Expr::AggregateFunction(call) => call.func.name() == aggregates::COUNT,
        _ => false,
    }
}

/// The number that an expression is.
fn constant(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(value, _) => {
            let number = value.cast_to(&DataType::Float64).ok()?;
            match number {
                ScalarValue::Float64(number) if value.data_type().is_numeric() => number,
                _ => None,
            }
        }
        Expr::Alias(alias) => constant(&alias.expr),
        Expr::Cast(cast) if cast.field.data_type().is_numeric() => constant(&cast.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_those_of_small_steps() {
        let total = |index| Box::new(Formula::Total(index));
        let formulas = [
            Formula::Total(1),
            Formula::Of(total(0), Arithmetic::Divide, total(1)),
            Formula::Of(
                Box::new(Formula::Of(
                    Box::new(Formula::Constant(100.0)),
                    Arithmetic::Multiply,
                    total(0),
                )),
                Arithmetic::Divide,
                Box::new(Formula::Of(total(1), Arithmetic::Add, total(2))),
            ),
            Formula::Negative(Box::new(Formula::Of(
                Box::new(Formula::Of(total(0), Arithmetic::Multiply, total(0))),
                Arithmetic::Subtract,
                total(2),
            ))),
        ];
        let totals = [3.0, 7.0, -2.0];
        for formula in formulas {
            let mut gradient = [0.0; 3];
            let value = formula.value(&totals);
            formula.slope(&totals, 1.0, &mut gradient);
            for index in 0..3 {
                let mut near = totals;
                near[index] += 1e-6;
                let slope = (formula.value(&near) - value) / 1e-6;
                assert!((slope - gradient[index]).abs() < 1e-4, "{formula:?} by {index}: {slope}");
            }
        }
    }
}
