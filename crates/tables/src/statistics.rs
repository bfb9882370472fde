//! Variances, covariances, correlations and regressions, in tables and wherever DataFusion runs them.
//!
//! All of them come of a count and exact sums of values, squares, products and higher powers
//! ([`Moments`](tidemill_sketch::Moments)): the same answer on every path, in any order, however large
//! the mean is beside the spread. These functions take the place of DataFusion's of the same names, whose
//! last digits depend on the order of rows, whose `corr` of groups cancels to noise, and whose frames that
//! slide lose with each value that is taken back.
//!
//! Integers are added up as integers, all other numbers, and all that skewness and kurtosis are of, as doubles. Values
//! beyond 10^140 are refused: their squares are no doubles. Of fourth powers the limit is 10^70.

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
use tidemill_sketch::{
    FOUR_POWER_SUMS, MomentValue, MomentValueTooLarge, Moments, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS,
};
use tidemill_sql::column_names::strip_window_spec;
use tidemill_sql::datafusion_names::aggregates;
use tidemill_sql::error_translation::into_datafusion_error;
use tidemill_sql::windows::filter_clauses::window_state_error;

use crate::accumulators::{Distinct, Groups};
use crate::state::{Pairs, Summed, is_whole};
use crate::{Aggregate, Function};

/// What is told of a column's or two columns' moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// `var`, `stddev` and their likes.
    Variance {
        /// Whether what is divided by is one less than the count.
        is_sample: bool,
        /// Whether it is the standard deviation.
        is_root: bool,
    },
    /// `covar_samp`, `covar_pop`.
    Covariance {
        /// Whether what is divided by is one less than the count.
        is_sample: bool,
    },
    /// `skewness`, `skewness_pop`.
    Skewness {
        /// True if it is that of a sample.
        is_sample: bool,
    },
    /// `kurtosis`, `kurtosis_pop`: how far it is above that of the normal distribution.
    Kurtosis {
        /// True if it is that of a sample.
        is_sample: bool,
    },
    /// `corr`.
    Correlation,
    /// `regr_slope` and its likes, of y and x.
    Regression(Regression),
}

/// How many NaNs and infinities of a column there are beside its moments.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Specials {
    nan: u64,
    positive: u64,
    negative: u64,
}

impl Specials {
    fn change(&mut self, value: f64, is_back: bool) {
        let count = match value {
            value if value.is_nan() => &mut self.nan,
            f64::INFINITY => &mut self.positive,
            f64::NEG_INFINITY => &mut self.negative,
            _ => return,
        };
        *count = if is_back { *count - 1 } else { *count + 1 };
    }

    fn is_some(self) -> bool {
        self.nan + self.positive + self.negative > 0
    }

    /// What they add to a sum.
    fn sum(self) -> f64 {
        let of = |count: u64, value: f64| if count > 0 { value } else { 0.0 };
        of(self.nan, f64::NAN)
            + of(self.positive, f64::INFINITY)
            + of(self.negative, f64::NEG_INFINITY)
    }
}

/// What is told of the line through the points of two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Regression {
    /// `regr_slope`.
    Slope,
    /// `regr_intercept`.
    Intercept,
    /// `regr_count`: how many points there are.
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

/// All of them by their names, as DataFusion has them, but for those of powers, which are ours.
const NAMED: [(&str, Statistic); 20] = {
    use self::Regression as Line;
    use Statistic::{Correlation, Covariance, Kurtosis, Skewness, Variance};
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
        (aggregates::REGR_SLOPE, Statistic::Regression(Line::Slope)),
        (aggregates::REGR_INTERCEPT, Statistic::Regression(Line::Intercept)),
        (aggregates::REGR_COUNT, Statistic::Regression(Line::Count)),
        (aggregates::REGR_R2, Statistic::Regression(Line::R2)),
        (aggregates::REGR_AVGX, Statistic::Regression(Line::AvgX)),
        (aggregates::REGR_AVGY, Statistic::Regression(Line::AvgY)),
        (aggregates::REGR_SXX, Statistic::Regression(Line::Sxx)),
        (aggregates::REGR_SYY, Statistic::Regression(Line::Syy)),
        (aggregates::REGR_SXY, Statistic::Regression(Line::Sxy)),
    ]
};

impl Statistic {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        NAMED.into_iter().find(|(of, _)| *of == name).map(|(_, statistic)| statistic)
    }

    /// What SQL calls it.
    pub fn name(self) -> &'static str {
        NAMED.into_iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }

    /// Whether it takes two columns.
    pub fn is_of_pairs(self) -> bool {
        !matches!(self, Statistic::Variance { .. }) && !self.is_of_powers()
    }

    /// Returns whether it takes the third and the fourth powers of a column, as doubles.
    pub fn is_of_powers(self) -> bool {
        matches!(self, Statistic::Skewness { .. } | Statistic::Kurtosis { .. })
    }

    /// What it is of no rows, where that is not null.
    pub(crate) fn of_no_rows(self) -> Option<ScalarValue> {
        (self == Statistic::Regression(Regression::Count)).then_some(ScalarValue::UInt64(Some(0)))
    }

    /// How many rows there are at least where it is not null.
    fn rows_min(self) -> u64 {
        match self {
            Statistic::Variance { is_sample, .. } | Statistic::Covariance { is_sample } => {
                1 + u64::from(is_sample)
            }
            Statistic::Skewness { is_sample } => 1 + 2 * u64::from(is_sample),
            Statistic::Kurtosis { is_sample } => 2 + 2 * u64::from(is_sample),
            Statistic::Correlation => 2,
            Statistic::Regression(Regression::Slope | Regression::Intercept | Regression::R2) => 2,
            Statistic::Regression(_) => 1,
        }
    }

    /// In which of the two columns a NaN or an infinity makes it NaN. Means are what sums are.
    fn columns(self) -> [bool; 2] {
        match self {
            Statistic::Variance { .. } | Statistic::Regression(Regression::Syy) => [true, false],
            of if of.is_of_powers() => [true, false],
            Statistic::Regression(Regression::Sxx) => [false, true],
            Statistic::Regression(Regression::AvgX | Regression::AvgY) => [false, false],
            _ => [true, true],
        }
    }

    /// The answer: null of too few rows, and where it would be 0 / 0. A regression's y is the first
    /// column. `specials` are the NaNs and infinities of each column that the moments do not have.
    pub(crate) fn answer<N: MomentValue, const SUMS: usize>(
        self,
        moments: &Moments<N, SUMS>,
        specials: [Specials; 2],
    ) -> Option<f64> {
        let rows = moments.count();
        if rows < self.rows_min() {
            return None;
        }
        let [of_x, of_y] = self.columns();
        if of_x && (specials[0].is_some() || moments.has_nonfinite_x())
            || of_y && (specials[1].is_some() || moments.has_nonfinite_y())
        {
            // What is alone differs from nothing, as DataFusion has it.
            let is_alone =
                rows == 1 && matches!(self, Statistic::Variance { is_sample: false, .. });
            return Some(if is_alone { 0.0 } else { f64::NAN });
        }
        let count = rows as f64;
        let among = |is_sample| count - f64::from(u8::from(is_sample));
        let unless_zero = |divisor: f64, value: f64| (divisor != 0.0).then_some(value);
        let regression = match self {
            Statistic::Variance { is_sample, is_root } => {
                let variance = moments.squared_deviations_x() / among(is_sample);
                return Some(if is_root { variance.sqrt() } else { variance });
            }
            Statistic::Covariance { is_sample } => {
                return Some(moments.deviation_products() / among(is_sample));
            }
            Statistic::Skewness { is_sample } => {
                let [second, third, _] = moments.central_power_sums().map(|sum| sum / count);
                let of_all = third / (second * second.sqrt());
                let factor = (count * (count - 1.0)).sqrt() / (count - 2.0);
                return unless_zero(second, if is_sample { of_all * factor } else { of_all });
            }
            Statistic::Kurtosis { is_sample } => {
                let [second, _, fourth] = moments.central_power_sums().map(|sum| sum / count);
                let of_all = fourth / (second * second) - 3.0;
                let factor = (count - 1.0) / ((count - 2.0) * (count - 3.0));
                let of_sample = factor * ((count + 1.0) * of_all + 6.0);
                return unless_zero(second, if is_sample { of_sample } else { of_all });
            }
            Statistic::Correlation => {
                let root = root(moments.squared_deviations_x(), moments.squared_deviations_y());
                return unless_zero(root, (moments.deviation_products() / root).clamp(-1.0, 1.0));
            }
            Statistic::Regression(regression) => regression,
        };
        let (sxx, syy) = (|| moments.squared_deviations_y(), || moments.squared_deviations_x());
        match regression {
            Regression::Slope => unless_zero(sxx(), moments.deviation_products() / sxx()),
            Regression::Intercept => {
                let slope = moments.deviation_products() / sxx();
                let intercept = moments.sum_x() / count - slope * (moments.sum_y() / count);
                unless_zero(sxx(), intercept)
            }
            Regression::R2 => {
                let (sxx, syy) = (sxx(), syy());
                let root = root(sxx, syy);
                // A line goes through equal y, as the SQL standard, PostgreSQL and DuckDB have it.
                match syy == 0.0 {
                    true => unless_zero(sxx, 1.0),
                    false => {
                        unless_zero(root, (moments.deviation_products() / root).powi(2).min(1.0))
                    }
                }
            }
            Regression::AvgX => Some((moments.sum_y() + specials[1].sum()) / count),
            Regression::AvgY => Some((moments.sum_x() + specials[0].sum()) / count),
            Regression::Sxx => Some(sxx()),
            Regression::Syy => Some(syy()),
            Regression::Sxy => Some(moments.deviation_products()),
            Regression::Count => None,
        }
    }
}

/// The root of a product, which is 0 only where a factor is, and infinite no sooner.
fn root(left: f64, right: f64) -> f64 {
    match left * right {
        // Rounded once less than by two roots: where one is the other's multiple, r is 1.
        product if product.is_normal() => product.sqrt(),
        _ => left.sqrt() * right.sqrt(),
    }
}

/// The error of a value that is too large to be squared, or to have a fourth power.
pub(crate) fn too_large(name: &str) -> Error {
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

// ── as DataFusion's functions ────────────────────────────────────────────────────────────

/// Those of `all` that are ours.
pub(crate) fn functions<'a>(
    all: impl Iterator<Item = &'a Arc<AggregateUDF>>,
) -> impl Iterator<Item = AggregateUDF> {
    let of_powers = NAMED.into_iter().filter(|(_, statistic)| statistic.is_of_powers());
    let of_powers = of_powers.map(|(name, statistic)| {
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        let base = AggregateUDF::from(OfPowers { name, signature });
        AggregateUDF::from(Declared::new(Arc::new(base), statistic))
    });
    let of_theirs = all.filter_map(|theirs| {
        let statistic = Statistic::named(theirs.name()).filter(|of| !of.is_of_powers())?;
        Some(AggregateUDF::from(Declared::new(Arc::clone(theirs), statistic)))
    });
    of_theirs.chain(of_powers)
}

/// The parts that DataFusion has not declared: the name, the type and the words of the reference.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPowers {
    name: &'static str,
    signature: Signature,
}

impl AggregateUDFImpl for OfPowers {
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

#[derive(Debug, PartialEq, Eq, Hash)]
struct Declared {
    theirs: Arc<AggregateUDF>,
    statistic: Statistic,
    signature: Signature,
}

impl Declared {
    fn new(theirs: Arc<AggregateUDF>, statistic: Statistic) -> Self {
        let columns = if statistic.is_of_pairs() { 2 } else { 1 };
        let whole = Coercion::new_exact(TypeSignatureClass::Integer);
        let whole = TypeSignature::Coercible(vec![whole; columns]);
        let all = vec![whole, theirs.signature().type_signature.clone()];
        let signature = Signature::one_of(all, Volatility::Immutable);
        Declared { theirs, statistic, signature }
    }

    fn aggregate(&self, args: &AccumulatorArgs<'_>) -> Aggregate {
        let of = |index: usize| args.expr_fields[index].data_type().clone();
        Aggregate {
            function: Function::Statistic(self.statistic),
            argument: Some(0),
            argument_type: of(0),
            second: self.statistic.is_of_pairs().then(|| (1, of(1))),
            filter: None,
            output: Arc::new(Field::new(args.name, args.return_field.data_type().clone(), true)),
            udf: Arc::clone(&self.theirs),
        }
    }

    fn one_group(&self, aggregate: &Aggregate, slides: bool) -> Box<dyn Accumulator> {
        let statistic = self.statistic;
        let name = aggregate.output.name();
        match (is_whole(aggregate), statistic.is_of_pairs()) {
            (true, false) => {
                Box::new(GroupMoments::<i64, ONE_COLUMN_SUMS>::new(statistic, name, slides))
            }
            (true, true) => {
                Box::new(GroupMoments::<i64, TWO_COLUMN_SUMS>::new(statistic, name, slides))
            }
            _ if statistic.is_of_powers() => {
                Box::new(GroupMoments::<f64, FOUR_POWER_SUMS>::new(statistic, name, slides))
            }
            (false, false) => {
                Box::new(GroupMoments::<f64, ONE_COLUMN_SUMS>::new(statistic, name, slides))
            }
            (false, true) => {
                Box::new(GroupMoments::<f64, TWO_COLUMN_SUMS>::new(statistic, name, slides))
            }
        }
    }
}

impl AggregateUDFImpl for Declared {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        self.theirs.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.theirs.return_type(&vec![DataType::Float64; arguments.len()])
    }

    fn is_nullable(&self) -> bool {
        self.theirs.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.theirs.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.theirs.documentation()
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
        let aggregate = self.aggregate(&args);
        if !args.is_distinct {
            return Ok(self.one_group(&aggregate, false));
        }
        if self.statistic.is_of_pairs() {
            // The SQL's walk refuses it.
            return Err(into_datafusion_error(Error::Internal(format!(
                "`{}` of different pairs",
                self.name()
            ))));
        }
        let of = Declared::new(Arc::clone(&self.theirs), self.statistic);
        let argument = aggregate.argument_type.clone();
        Ok(Box::new(Distinct::new(&argument, move || Ok(of.one_group(&aggregate, false)))))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.accumulator(args),
            false => Ok(self.one_group(&self.aggregate(&args), true)),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups::new(self.aggregate(&args))?))
    }
}

/// The moments of one group, from which rows can be taken back where a frame slides.
struct GroupMoments<N: MomentValue, const SUMS: usize> {
    statistic: Statistic,
    /// What the plan calls it.
    name: String,
    moments: Moments<N, SUMS>,
    slides: bool,
    /// Where the frame slides: how many NaNs and infinities it has of each column.
    specials: [Specials; 2],
    /// The same: how many have a value that is too large.
    large: u64,
}

impl<N: MomentValue, const SUMS: usize> fmt::Debug for GroupMoments<N, SUMS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMoments").field("statistic", &self.statistic).finish_non_exhaustive()
    }
}

impl<N: Summed, const SUMS: usize> GroupMoments<N, SUMS> {
    fn new(statistic: Statistic, name: &str, slides: bool) -> Self {
        let (moments, name) = (Moments::default(), name.to_owned());
        GroupMoments { statistic, name, moments, slides, specials: Default::default(), large: 0 }
    }

    fn change(&mut self, columns: &[ArrayRef], is_back: bool) -> PlanResult<()> {
        let pairs = Pairs::<N>::new(&columns[0], columns.get(1)).map_err(into_datafusion_error)?;
        let step = |count: &mut u64| if is_back { *count -= 1 } else { *count += 1 };
        let nulls = pairs.nulls();
        for row in 0..columns[0].len() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let (x, y) = pairs.row(row);
            let changed = match (self.slides, is_back) {
                (false, _) => self.moments.add(x, y),
                (true, false) => self.moments.add_finite(x, y),
                (true, true) => self.moments.remove_finite(x, y),
            };
            match changed {
                Err(MomentValueTooLarge) => step(&mut self.large),
                Ok(_) if self.slides => {
                    self.specials[0].change(x.to_f64(), is_back);
                    self.specials[1].change(y.to_f64(), is_back);
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

impl<N: Summed, const SUMS: usize> Accumulator for GroupMoments<N, SUMS> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(values, false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(values, true)
    }

    fn supports_retract_batch(&self) -> bool {
        self.slides
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.large > 0 {
            return Err(into_datafusion_error(too_large(&self.name)));
        }
        if self.statistic == Statistic::Regression(Regression::Count) {
            return Ok(ScalarValue::UInt64(Some(self.moments.count())));
        }
        Ok(ScalarValue::Float64(self.statistic.answer(&self.moments, self.specials)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.name.capacity() + self.moments.heap_bytes()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        if self.slides {
            return window_state_error();
        }
        if self.large > 0 {
            return Err(into_datafusion_error(too_large(&self.name)));
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
