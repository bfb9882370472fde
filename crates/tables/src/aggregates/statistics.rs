//! Variances, covariances, correlations and regressions, in aggregate tables and on DataFusion's path.
//!
//! All of them are computed from a count and exact sums of values, squares, products and higher powers
//! ([`Moments`](tidemill_sketch::Moments)). The answer is the same on every path and in any order, even if
//! the mean is much larger than the spread. These functions replace DataFusion's of the same names, whose
//! last digits depend on the order of rows, whose grouped `corr` suffers from cancellation, and whose sliding
//! frames lose precision with each retracted value.
//!
//! Integers are added up as integers; all other numbers, and all arguments of skewness and kurtosis, as
//! doubles. Values beyond 10^140 are rejected, as their squares are no doubles. For fourth powers the limit
//! is 10^70.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, DocSection, Documentation,
    GroupsAccumulator, ReversedUDAF, Signature, TypeSignature, TypeSignatureClass, Volatility,
};
use tidemill_base::error::Error;
use tidemill_dialect::column_names::strip_window_spec;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_operators::windows::filter_clauses::window_state_error;
use tidemill_planning::datafusion_names::aggregates;
use tidemill_sketch::{
    FOUR_POWER_SUMS, MomentValue, MomentValueTooLarge, Moments, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS,
};

use crate::aggregates::accumulators::{DistinctAccumulator, StateGroupsAccumulator};
use crate::state::{MomentNumber, NumberPairs, has_integer_moments};
use crate::{MergeableFunction, TableAggregate};

/// A statistic of the moments of one or two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MomentStatistic {
    /// `var`, `stddev` and similar functions.
    Variance {
        /// True if the divisor is the count minus 1.
        is_sample: bool,
        /// True for the standard deviation.
        is_root: bool,
    },
    /// `covar_samp`, `covar_pop`.
    Covariance {
        /// True if the divisor is the count minus 1.
        is_sample: bool,
    },
    /// `skewness`, `skewness_pop`.
    Skewness {
        /// True for the skewness of a sample.
        is_sample: bool,
    },
    /// `kurtosis`, `kurtosis_pop`: the excess over that of the normal distribution.
    Kurtosis {
        /// True for the kurtosis of a sample.
        is_sample: bool,
    },
    /// `corr`.
    Correlation,
    /// `regr_slope` and similar functions of y and x.
    Regression(RegressionStatistic),
}

/// The number of NaNs and infinities of a column, which its moments do not include.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NonFiniteCounts {
    nan_count: u64,
    infinity_count: u64,
    negative_infinity_count: u64,
}

impl NonFiniteCounts {
    fn update(&mut self, value: f64, is_back: bool) {
        let count = match value {
            value if value.is_nan() => &mut self.nan_count,
            f64::INFINITY => &mut self.infinity_count,
            f64::NEG_INFINITY => &mut self.negative_infinity_count,
            _ => return,
        };
        *count = if is_back { *count - 1 } else { *count + 1 };
    }

    fn has_any(self) -> bool {
        self.nan_count + self.infinity_count + self.negative_infinity_count > 0
    }

    /// Returns the value that they add to a sum.
    fn sum_contribution(self) -> f64 {
        let of = |count: u64, value: f64| if count > 0 { value } else { 0.0 };
        of(self.nan_count, f64::NAN)
            + of(self.infinity_count, f64::INFINITY)
            + of(self.negative_infinity_count, f64::NEG_INFINITY)
    }
}

/// A property of the regression line through the points of two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegressionStatistic {
    /// `regr_slope`.
    Slope,
    /// `regr_intercept`.
    Intercept,
    /// `regr_count`: the number of points.
    Count,
    /// `regr_r2`.
    R2,
    /// `regr_avgx`.
    AvgX,
    /// `regr_avgy`.
    AvgY,
    /// `regr_sxx`.
    Sxx,
    /// `regr_syy`.
    Syy,
    /// `regr_sxy`.
    Sxy,
}

/// All statistics by the names that DataFusion has for them; those of higher powers are Tidemill's.
const STATISTICS_BY_NAME: [(&str, MomentStatistic); 20] = {
    use crate::aggregates::statistics::RegressionStatistic as Line;
    use MomentStatistic::{Correlation, Covariance, Kurtosis, Skewness, Variance};
    [
        ("skewness", Skewness { is_sample: true }),
        ("skewness_pop", Skewness { is_sample: false }),
        ("kurtosis", Kurtosis { is_sample: true }),
        ("kurtosis_pop", Kurtosis { is_sample: false }),
        (aggregates::VAR, Variance { is_sample: true, is_root: false }),
        (aggregates::VAR_POP, Variance { is_sample: false, is_root: false }),
        (aggregates::STDDEV, Variance { is_sample: true, is_root: true }),
        (aggregates::STDDEV_POP, Variance { is_sample: false, is_root: true }),
        (aggregates::COVAR_SAMP, Covariance { is_sample: true }),
        (aggregates::COVAR_POP, Covariance { is_sample: false }),
        (aggregates::CORR, Correlation),
        (aggregates::REGR_SLOPE, MomentStatistic::Regression(Line::Slope)),
        (aggregates::REGR_INTERCEPT, MomentStatistic::Regression(Line::Intercept)),
        (aggregates::REGR_COUNT, MomentStatistic::Regression(Line::Count)),
        (aggregates::REGR_R2, MomentStatistic::Regression(Line::R2)),
        (aggregates::REGR_AVGX, MomentStatistic::Regression(Line::AvgX)),
        (aggregates::REGR_AVGY, MomentStatistic::Regression(Line::AvgY)),
        (aggregates::REGR_SXX, MomentStatistic::Regression(Line::Sxx)),
        (aggregates::REGR_SYY, MomentStatistic::Regression(Line::Syy)),
        (aggregates::REGR_SXY, MomentStatistic::Regression(Line::Sxy)),
    ]
};

impl MomentStatistic {
    /// Returns the statistic of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        STATISTICS_BY_NAME.into_iter().find(|(of, _)| *of == name).map(|(_, statistic)| statistic)
    }

    /// Returns the function's name in SQL.
    pub fn sql_name(self) -> &'static str {
        STATISTICS_BY_NAME.into_iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }

    /// Returns true if the statistic takes two columns.
    pub fn is_over_two_columns(self) -> bool {
        !matches!(self, MomentStatistic::Variance { .. }) && !self.needs_higher_powers()
    }

    /// Returns true if the statistic needs the third and fourth powers of a column, as doubles.
    pub fn needs_higher_powers(self) -> bool {
        matches!(self, MomentStatistic::Skewness { .. } | MomentStatistic::Kurtosis { .. })
    }

    /// Returns the answer for no rows, if it is not NULL.
    pub(crate) fn value_of_no_rows(self) -> Option<ScalarValue> {
        (self == MomentStatistic::Regression(RegressionStatistic::Count))
            .then_some(ScalarValue::UInt64(Some(0)))
    }

    /// Returns the minimum number of rows for an answer that is not NULL.
    fn rows_min(self) -> u64 {
        match self {
            MomentStatistic::Variance { is_sample, .. }
            | MomentStatistic::Covariance { is_sample } => 1 + u64::from(is_sample),
            MomentStatistic::Skewness { is_sample } => 1 + 2 * u64::from(is_sample),
            MomentStatistic::Kurtosis { is_sample } => 2 + 2 * u64::from(is_sample),
            MomentStatistic::Correlation => 2,
            MomentStatistic::Regression(
                RegressionStatistic::Slope
                | RegressionStatistic::Intercept
                | RegressionStatistic::R2,
            ) => 2,
            MomentStatistic::Regression(_) => 1,
        }
    }

    /// Returns, for each column, whether a NaN or an infinity in it makes the answer NaN. Means behave as
    /// sums do.
    fn nan_sensitive_columns(self) -> [bool; 2] {
        match self {
            MomentStatistic::Variance { .. }
            | MomentStatistic::Regression(RegressionStatistic::Syy) => [true, false],
            of if of.needs_higher_powers() => [true, false],
            MomentStatistic::Regression(RegressionStatistic::Sxx) => [false, true],
            MomentStatistic::Regression(RegressionStatistic::AvgX | RegressionStatistic::AvgY) => {
                [false, false]
            }
            _ => [true, true],
        }
    }

    /// Returns the answer: `None` for too few rows, and if it would be 0 / 0. The first column is a
    /// regression's y. `specials` are the NaNs and infinities of each column that the moments do not include.
    pub(crate) fn compute<N: MomentValue, const SUMS: usize>(
        self,
        moments: &Moments<N, SUMS>,
        specials: [NonFiniteCounts; 2],
    ) -> Option<f64> {
        let rows = moments.count();
        if rows < self.rows_min() {
            return None;
        }
        let [of_x, of_y] = self.nan_sensitive_columns();
        if of_x && (specials[0].has_any() || moments.has_nonfinite_x())
            || of_y && (specials[1].has_any() || moments.has_nonfinite_y())
        {
            // A single value has no deviation, even if it is NaN, as in DataFusion.
            let is_alone =
                rows == 1 && matches!(self, MomentStatistic::Variance { is_sample: false, .. });
            return Some(if is_alone { 0.0 } else { f64::NAN });
        }
        let count = rows as f64;
        let among = |is_sample| count - f64::from(u8::from(is_sample));
        let unless_zero = |divisor: f64, value: f64| (divisor != 0.0).then_some(value);
        let regression = match self {
            MomentStatistic::Variance { is_sample, is_root } => {
                let variance = moments.squared_deviations_x() / among(is_sample);
                return Some(if is_root { variance.sqrt() } else { variance });
            }
            MomentStatistic::Covariance { is_sample } => {
                return Some(moments.deviation_products() / among(is_sample));
            }
            MomentStatistic::Skewness { is_sample } => {
                let [second, third, _] = moments.central_power_sums().map(|sum| sum / count);
                let of_all = third / (second * second.sqrt());
                let factor = (count * (count - 1.0)).sqrt() / (count - 2.0);
                return unless_zero(second, if is_sample { of_all * factor } else { of_all });
            }
            MomentStatistic::Kurtosis { is_sample } => {
                let [second, _, fourth] = moments.central_power_sums().map(|sum| sum / count);
                let of_all = fourth / (second * second) - 3.0;
                let factor = (count - 1.0) / ((count - 2.0) * (count - 3.0));
                let of_sample = factor * ((count + 1.0) * of_all + 6.0);
                return unless_zero(second, if is_sample { of_sample } else { of_all });
            }
            MomentStatistic::Correlation => {
                let root =
                    sqrt_of_product(moments.squared_deviations_x(), moments.squared_deviations_y());
                return unless_zero(root, (moments.deviation_products() / root).clamp(-1.0, 1.0));
            }
            MomentStatistic::Regression(regression) => regression,
        };
        let (sxx, syy) = (|| moments.squared_deviations_y(), || moments.squared_deviations_x());
        match regression {
            RegressionStatistic::Slope => unless_zero(sxx(), moments.deviation_products() / sxx()),
            RegressionStatistic::Intercept => {
                let slope = moments.deviation_products() / sxx();
                let intercept = moments.sum_x() / count - slope * (moments.sum_y() / count);
                unless_zero(sxx(), intercept)
            }
            RegressionStatistic::R2 => {
                let (sxx, syy) = (sxx(), syy());
                let root = sqrt_of_product(sxx, syy);
                // A line fits equal y exactly, as in the SQL standard, PostgreSQL and DuckDB.
                match syy == 0.0 {
                    true => unless_zero(sxx, 1.0),
                    false => {
                        unless_zero(root, (moments.deviation_products() / root).powi(2).min(1.0))
                    }
                }
            }
            RegressionStatistic::AvgX => {
                Some((moments.sum_y() + specials[1].sum_contribution()) / count)
            }
            RegressionStatistic::AvgY => {
                Some((moments.sum_x() + specials[0].sum_contribution()) / count)
            }
            RegressionStatistic::Sxx => Some(sxx()),
            RegressionStatistic::Syy => Some(syy()),
            RegressionStatistic::Sxy => Some(moments.deviation_products()),
            RegressionStatistic::Count => None,
        }
    }
}

/// Returns the square root of a product without underflow or overflow of the product.
fn sqrt_of_product(left: f64, right: f64) -> f64 {
    match left * right {
        // One rounding fewer than with two roots: if one factor is a multiple of the other, r is 1.
        product if product.is_normal() => product.sqrt(),
        _ => left.sqrt() * right.sqrt(),
    }
}

/// Returns the error for a value whose square, or fourth power, is too large.
pub(crate) fn value_too_large_error(name: &str) -> Error {
    let call = strip_window_spec(name);
    let is_of_powers = ["skewness", "kurtosis"].iter().any(|of| call.starts_with(of));
    let what = match is_of_powers {
        true => "beyond 1e70, whose fourth powers",
        false => "beyond 1e140, whose squares",
    };
    Error::Overflow {
        message: format!("`{call}` is of values {what} are no DOUBLE"),
        hint: Some("divide them first, or leave them out with FILTER (WHERE …)".into()),
    }
}

// ── DataFusion's aggregate functions ─────────────────────────────────────────────────────

/// Creates the statistics that replace those of `all`, and those of higher powers.
pub(crate) fn create_statistic_udafs<'a>(
    all: impl Iterator<Item = &'a Arc<AggregateUDF>>,
) -> impl Iterator<Item = AggregateUDF> {
    let of_powers =
        STATISTICS_BY_NAME.into_iter().filter(|(_, statistic)| statistic.needs_higher_powers());
    let of_powers = of_powers.map(|(name, statistic)| {
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        let base = AggregateUDF::from(HigherMomentUdaf { name, signature });
        AggregateUDF::from(StatisticUdaf::new(Arc::new(base), statistic))
    });
    let of_theirs = all.filter_map(|theirs| {
        let statistic =
            MomentStatistic::from_name(theirs.name()).filter(|of| !of.needs_higher_powers())?;
        Some(AggregateUDF::from(StatisticUdaf::new(Arc::clone(theirs), statistic)))
    });
    of_theirs.chain(of_powers)
}

/// The declaration of a function that DataFusion does not have: name, type and documentation.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HigherMomentUdaf {
    name: &'static str,
    signature: Signature,
}

impl AggregateUDFImpl for HigherMomentUdaf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Err(into_datafusion_error(Error::Internal(format!("`{}` is declared alone", self.name))))
    }

    fn documentation(&self) -> Option<&Documentation> {
        static ALL: LazyLock<HashMap<&str, Documentation>> = LazyLock::new(|| {
            let section =
                DocSection { include: true, label: "Statistical Functions", description: None };
            let told = [
                (
                    "skewness(x)",
                    "The skewness of a sample; null of fewer than three values or equal ones.",
                ),
                (
                    "skewness_pop(x)",
                    "The skewness of values that are all there are; null of equal ones.",
                ),
                (
                    "kurtosis(x)",
                    "The excess kurtosis of a sample; null of fewer than four values or equal ones.",
                ),
                (
                    "kurtosis_pop(x)",
                    "The excess kurtosis of values that are all there are; null of equal ones.",
                ),
            ];
            let described = told.map(|(call, what)| {
                let name = call.split('(').next().unwrap_or_default();
                (name, Documentation::builder(section.clone(), what, call).build())
            });
            described.into_iter().collect()
        });
        ALL.get(self.name)
    }
}

/// The DataFusion declaration of a statistic.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StatisticUdaf {
    datafusion_udaf: Arc<AggregateUDF>,
    statistic: MomentStatistic,
    signature: Signature,
}

impl StatisticUdaf {
    fn new(theirs: Arc<AggregateUDF>, statistic: MomentStatistic) -> Self {
        let columns = if statistic.is_over_two_columns() { 2 } else { 1 };
        let whole = Coercion::new_exact(TypeSignatureClass::Integer);
        let whole = TypeSignature::Coercible(vec![whole; columns]);
        let all = vec![whole, theirs.signature().type_signature.clone()];
        let signature = Signature::one_of(all, Volatility::Immutable);
        StatisticUdaf { datafusion_udaf: theirs, statistic, signature }
    }

    fn table_aggregate(&self, args: &AccumulatorArgs<'_>) -> TableAggregate {
        let of = |index: usize| args.expr_fields[index].data_type().clone();
        TableAggregate {
            function: MergeableFunction::Statistic(self.statistic),
            argument_column: Some(0),
            argument_type: of(0),
            second_argument: self.statistic.is_over_two_columns().then(|| (1, of(1))),
            filter_column: None,
            output_field: Arc::new(Field::new(
                args.name,
                args.return_field.data_type().clone(),
                true,
            )),
            udf: Arc::clone(&self.datafusion_udaf),
        }
    }

    fn new_accumulator(&self, aggregate: &TableAggregate, slides: bool) -> Box<dyn Accumulator> {
        let statistic = self.statistic;
        let name = aggregate.output_field.name();
        match (has_integer_moments(aggregate), statistic.is_over_two_columns()) {
            (true, false) => {
                Box::new(MomentsAccumulator::<i64, ONE_COLUMN_SUMS>::new(statistic, name, slides))
            }
            (true, true) => {
                Box::new(MomentsAccumulator::<i64, TWO_COLUMN_SUMS>::new(statistic, name, slides))
            }
            _ if statistic.needs_higher_powers() => {
                Box::new(MomentsAccumulator::<f64, FOUR_POWER_SUMS>::new(statistic, name, slides))
            }
            (false, false) => {
                Box::new(MomentsAccumulator::<f64, ONE_COLUMN_SUMS>::new(statistic, name, slides))
            }
            (false, true) => {
                Box::new(MomentsAccumulator::<f64, TWO_COLUMN_SUMS>::new(statistic, name, slides))
            }
        }
    }
}

impl AggregateUDFImpl for StatisticUdaf {
    fn name(&self) -> &str {
        self.datafusion_udaf.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_udaf.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_udaf.return_type(&vec![DataType::Float64; arguments.len()])
    }

    fn is_nullable(&self) -> bool {
        self.datafusion_udaf.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.datafusion_udaf.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.datafusion_udaf.documentation()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let name = format_state_name(args.name, "state");
        let kept = match args.input_fields.first() {
            Some(argument) if args.is_distinct => {
                let item = Field::new_list_field(argument.data_type().clone(), true);
                DataType::List(Arc::new(item))
            }
            _ => DataType::LargeBinary,
        };
        Ok(vec![Arc::new(Field::new(name, kept, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let aggregate = self.table_aggregate(&args);
        if !args.is_distinct {
            return Ok(self.new_accumulator(&aggregate, false));
        }
        if self.statistic.is_over_two_columns() {
            // The SQL walk rejects it earlier.
            return Err(into_datafusion_error(Error::Internal(format!(
                "`{}` of different pairs",
                self.name()
            ))));
        }
        let of = StatisticUdaf::new(Arc::clone(&self.datafusion_udaf), self.statistic);
        let argument = aggregate.argument_type.clone();
        Ok(Box::new(DistinctAccumulator::new(&argument, move || {
            Ok(of.new_accumulator(&aggregate, false))
        })))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.accumulator(args),
            false => Ok(self.new_accumulator(&self.table_aggregate(&args), true)),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(StateGroupsAccumulator::new(self.table_aggregate(&args))?))
    }
}

/// The moments of one group, from which a sliding frame can retract rows.
struct MomentsAccumulator<N: MomentValue, const SUMS: usize> {
    statistic: MomentStatistic,
    /// The call's name in the plan.
    output_name: String,
    moments: Moments<N, SUMS>,
    is_sliding: bool,
    /// For a sliding frame, the number of NaNs and infinities of each column.
    non_finite_counts: [NonFiniteCounts; 2],
    /// The number of rows with a value that is too large.
    too_large_count: u64,
}

impl<N: MomentValue, const SUMS: usize> fmt::Debug for MomentsAccumulator<N, SUMS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMoments").field("statistic", &self.statistic).finish_non_exhaustive()
    }
}

impl<N: MomentNumber, const SUMS: usize> MomentsAccumulator<N, SUMS> {
    fn new(statistic: MomentStatistic, name: &str, slides: bool) -> Self {
        let (moments, name) = (Moments::default(), name.to_owned());
        MomentsAccumulator {
            statistic,
            output_name: name,
            moments,
            is_sliding: slides,
            non_finite_counts: Default::default(),
            too_large_count: 0,
        }
    }

    fn update_moments(&mut self, columns: &[ArrayRef], is_back: bool) -> PlanResult<()> {
        let pairs =
            NumberPairs::<N>::new(&columns[0], columns.get(1)).map_err(into_datafusion_error)?;
        let step = |count: &mut u64| if is_back { *count -= 1 } else { *count += 1 };
        let nulls = pairs.null_mask();
        for row in 0..columns[0].len() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let (x, y) = pairs.value_pair(row);
            let changed = match (self.is_sliding, is_back) {
                (false, _) => self.moments.add(x, y),
                (true, false) => self.moments.add_finite(x, y),
                (true, true) => self.moments.remove_finite(x, y),
            };
            match changed {
                Err(MomentValueTooLarge) => step(&mut self.too_large_count),
                Ok(_) if self.is_sliding => {
                    self.non_finite_counts[0].update(x.to_f64(), is_back);
                    self.non_finite_counts[1].update(y.to_f64(), is_back);
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

impl<N: MomentNumber, const SUMS: usize> Accumulator for MomentsAccumulator<N, SUMS> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_moments(values, false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.update_moments(values, true)
    }

    fn supports_retract_batch(&self) -> bool {
        self.is_sliding
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.too_large_count > 0 {
            return Err(into_datafusion_error(value_too_large_error(&self.output_name)));
        }
        if self.statistic == MomentStatistic::Regression(RegressionStatistic::Count) {
            return Ok(ScalarValue::UInt64(Some(self.moments.count())));
        }
        Ok(ScalarValue::Float64(self.statistic.compute(&self.moments, self.non_finite_counts)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.output_name.capacity() + self.moments.heap_bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        if self.is_sliding {
            return window_state_error();
        }
        if self.too_large_count > 0 {
            return Err(into_datafusion_error(value_too_large_error(&self.output_name)));
        }
        let mut bytes = Vec::new();
        self.moments.encode(&mut bytes);
        Ok(vec![ScalarValue::LargeBinary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let damaged =
            || into_datafusion_error(Error::Internal("a state that is no moments".into()));
        let states: &LargeBinaryArray = states[0].as_binary_opt().ok_or_else(damaged)?;
        for bytes in states.iter().flatten() {
            self.moments.merge(&Moments::decode(bytes).map_err(|_| damaged())?);
        }
        Ok(())
    }
}
