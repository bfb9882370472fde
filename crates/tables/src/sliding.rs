//! Aggregates over frames that slide: `stddev(x) OVER (ORDER BY t ROWS 10 PRECEDING)`.
//!
//! What leaves a frame is taken back from its state. DataFusion's means of variances lose with each
//! value that is taken back, for good once it was large or none; its logical and bitwise aggregates take
//! nothing back, or forget that nothing was there. These functions take the place of DataFusion's of the
//! same names, and are DataFusion's but in such frames: there variances come of sums of values and of
//! products that are exact ([`Moments`]), the others of counts.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Decimal128Type, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use tidemill_base::error::Error;
use tidemill_base::types::EXACTLY;
use tidemill_sketch::FloatSum;
use tidemill_sql::filtered::no_state;
use tidemill_sql::messages::external;
use tidemill_sql::names::call_of;

/// Those of `all` that are ours over such frames.
pub(crate) fn functions<'a>(
    all: impl Iterator<Item = &'a Arc<AggregateUDF>>,
) -> impl Iterator<Item = AggregateUDF> {
    all.filter_map(|theirs| {
        let answer = Answer::named(theirs.name())?;
        Some(AggregateUDF::from(Sliding { theirs: Arc::clone(theirs), answer }))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Variance { is_sample: bool, is_root: bool },
    Covariance { is_sample: bool },
    Correlation,
    Regression(Regression),
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Regression {
    Slope,
    Intercept,
    Count,
    R2,
    AvgX,
    AvgY,
    Sxx,
    Syy,
    Sxy,
}

impl Answer {
    fn named(name: &str) -> Option<Self> {
        let variance = |is_sample, is_root| Answer::Variance { is_sample, is_root };
        Some(match name {
            "var" | "var_samp" => variance(true, false),
            "var_pop" => variance(false, false),
            "stddev" => variance(true, true),
            "stddev_pop" => variance(false, true),
            "covar_samp" => Answer::Covariance { is_sample: true },
            "covar_pop" => Answer::Covariance { is_sample: false },
            "corr" => Answer::Correlation,
            "regr_slope" => Answer::Regression(Regression::Slope),
            "regr_intercept" => Answer::Regression(Regression::Intercept),
            "regr_count" => Answer::Regression(Regression::Count),
            "regr_r2" => Answer::Regression(Regression::R2),
            "regr_avgx" => Answer::Regression(Regression::AvgX),
            "regr_avgy" => Answer::Regression(Regression::AvgY),
            "regr_sxx" => Answer::Regression(Regression::Sxx),
            "regr_syy" => Answer::Regression(Regression::Syy),
            "regr_sxy" => Answer::Regression(Regression::Sxy),
            "bool_and" => Answer::And,
            "bool_or" => Answer::Or,
            "bit_and" => Answer::BitAnd,
            "bit_or" => Answer::BitOr,
            "bit_xor" => Answer::BitXor,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    theirs: Arc<AggregateUDF>,
    answer: Answer,
}

impl AggregateUDFImpl for Sliding {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn aliases(&self) -> &[String] {
        self.theirs.aliases()
    }

    fn signature(&self) -> &Signature {
        self.theirs.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.theirs.return_type(arguments)
    }

    fn is_nullable(&self) -> bool {
        self.theirs.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.theirs.default_value(data_type)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.theirs.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.theirs.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.theirs.documentation()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.theirs.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let theirs = self.theirs.accumulator(args)?;
        Ok(match self.answer {
            Answer::Regression(Regression::R2) => Box::new(Determination { theirs }),
            _ => theirs,
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.theirs.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn GroupsAccumulator>> {
        self.theirs.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> PlanResult<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.theirs.create_sliding_accumulator(args);
        }
        Ok(match self.answer {
            Answer::And | Answer::Or => {
                Box::new(Flags { is_or: self.answer == Answer::Or, falses: 0, trues: 0 })
            }
            Answer::BitAnd | Answer::BitOr | Answer::BitXor => Box::new(Bits {
                answer: self.answer,
                data_type: args.return_field.data_type().clone(),
                count: 0,
                set: [0; 64],
            }),
            answer => Box::new(Moments::new(answer, &call_of(args.name))),
        })
    }
}

// ── sums and products ────────────────────────────────────────────────────────────────────

/// Products of larger numbers are no doubles, and no sums of so many.
const VALUE_MAX: f64 = 1e140;

/// The exact sums of one or two columns' values and products.
struct Moments {
    answer: Answer,
    /// As the SQL has the call.
    name: String,
    count: u64,
    /// How many rows have a NaN or an infinity.
    specials: u64,
    /// How many rows have a value beyond [`VALUE_MAX`].
    large: u64,
    x: FloatSum,
    y: FloatSum,
    xx: FloatSum,
    yy: FloatSum,
    xy: FloatSum,
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments").field("answer", &self.answer).finish_non_exhaustive()
    }
}

/// Adds a product without loss: what its nearest double leaves is one, too.
fn add_product(sum: &mut FloatSum, left: f64, right: f64) {
    let product = left * right;
    sum.add(product);
    sum.add(left.mul_add(right, -product));
}

/// A sum as three doubles, which have more digits of it than a quotient of two has.
fn expanded(sum: &FloatSum) -> [f64; 3] {
    let mut rest = sum.clone();
    [(); 3].map(|()| {
        let next = rest.value();
        rest.add(-next);
        next
    })
}

impl Moments {
    fn new(answer: Answer, name: &str) -> Self {
        let sum = FloatSum::new;
        Moments {
            answer,
            name: name.to_owned(),
            count: 0,
            specials: 0,
            large: 0,
            x: sum(),
            y: sum(),
            xx: sum(),
            yy: sum(),
            xy: sum(),
        }
    }

    fn has_two(&self) -> bool {
        !matches!(self.answer, Answer::Variance { .. })
    }

    fn change(&mut self, columns: &[ArrayRef], back: bool) -> PlanResult<()> {
        let floats = |column: &ArrayRef| -> PlanResult<Float64Array> {
            let floats = cast_with_options(column, &DataType::Float64, &EXACTLY)?;
            Ok(floats.as_primitive().clone())
        };
        // DataFusion's regressions have y first.
        let (first, second) = match (columns, self.has_two()) {
            ([x], false) => (floats(x)?, None),
            ([y, x], true) => (floats(x)?, Some(floats(y)?)),
            _ => return Err(external(Error::Internal("columns of another number".into()))),
        };
        for row in 0..first.len() {
            let is_null = first.is_null(row) || second.as_ref().is_some_and(|y| y.is_null(row));
            if !is_null {
                let y = second.as_ref().map_or(0.0, |y| y.value(row));
                self.change_row(first.value(row), y, back);
            }
        }
        Ok(())
    }

    fn change_row(&mut self, x: f64, y: f64, back: bool) {
        let step = |count: &mut u64| if back { *count -= 1 } else { *count += 1 };
        step(&mut self.count);
        if !x.is_finite() || !y.is_finite() {
            return step(&mut self.specials);
        }
        if x.abs() > VALUE_MAX || y.abs() > VALUE_MAX {
            return step(&mut self.large);
        }
        let sign = if back { -1.0 } else { 1.0 };
        self.x.add(sign * x);
        add_product(&mut self.xx, sign * x, x);
        if self.has_two() {
            self.y.add(sign * y);
            add_product(&mut self.yy, sign * y, y);
            add_product(&mut self.xy, sign * x, y);
        }
    }

    /// The sum of the products of what two columns differ from their means.
    fn centered(&self, products: &FloatSum, left: &FloatSum, right: &FloatSum) -> f64 {
        let count = self.count as f64;
        let mut sum = FloatSum::new();
        for part in expanded(products) {
            add_product(&mut sum, count, part);
        }
        let right = expanded(right);
        for left in expanded(left) {
            for right in right {
                add_product(&mut sum, -left, right);
            }
        }
        sum.value() / count
    }

    fn value(&self) -> PlanResult<Option<f64>> {
        if self.large > 0 {
            return Err(external(Error::Overflow {
                message: format!(
                    "`{}` is of values beyond 1e140, whose squares are no DOUBLE",
                    self.name
                ),
                hint: Some("divide them first, or leave them out with FILTER (WHERE …)".into()),
            }));
        }
        let count = self.count as f64;
        let sxx = || self.centered(&self.xx, &self.x, &self.x).max(0.0);
        let syy = || self.centered(&self.yy, &self.y, &self.y).max(0.0);
        let sxy = || self.centered(&self.xy, &self.x, &self.y);
        let least = match self.answer {
            Answer::Variance { is_sample, .. } | Answer::Covariance { is_sample } => {
                1 + u64::from(is_sample)
            }
            Answer::Correlation => 2,
            Answer::Regression(Regression::Slope | Regression::Intercept | Regression::R2) => 2,
            _ => 1,
        };
        if self.count < least {
            return Ok(None);
        }
        if self.specials > 0 {
            // As DataFusion's: what is alone differs from nothing.
            let is_alone =
                self.count == 1 && matches!(self.answer, Answer::Variance { is_sample: false, .. });
            return Ok(Some(if is_alone { 0.0 } else { f64::NAN }));
        }
        let among = |is_sample| count - f64::from(u8::from(is_sample));
        let unless_zero = |divisor: f64, value: f64| (divisor != 0.0).then_some(value);
        Ok(match self.answer {
            Answer::Variance { is_sample, is_root } => {
                let variance = sxx() / among(is_sample);
                Some(if is_root { variance.sqrt() } else { variance })
            }
            Answer::Covariance { is_sample } => Some(sxy() / among(is_sample)),
            Answer::Correlation => {
                let root = sxx().sqrt() * syy().sqrt();
                unless_zero(root, (sxy() / root).clamp(-1.0, 1.0))
            }
            Answer::Regression(regression) => match regression {
                Regression::Slope => unless_zero(sxx(), sxy() / sxx()),
                Regression::Intercept => {
                    let slope = sxy() / sxx();
                    unless_zero(sxx(), self.y.value() / count - slope * (self.x.value() / count))
                }
                Regression::R2 => {
                    let (sxx, syy) = (sxx(), syy());
                    let root = sxx.sqrt() * syy.sqrt();
                    match syy == 0.0 {
                        true => unless_zero(sxx, 1.0),
                        false => unless_zero(root, (sxy() / root).powi(2).min(1.0)),
                    }
                }
                Regression::AvgX => Some(self.x.value() / count),
                Regression::AvgY => Some(self.y.value() / count),
                Regression::Sxx => Some(sxx()),
                Regression::Syy => Some(syy()),
                Regression::Sxy => Some(sxy()),
                Regression::Count => None,
            },
            _ => None,
        })
    }
}

impl Accumulator for Moments {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(values, false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(values, true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.answer == Answer::Regression(Regression::Count) {
            return Ok(ScalarValue::UInt64(Some(self.count)));
        }
        Ok(ScalarValue::Float64(self.value()?))
    }

    fn size(&self) -> usize {
        let sums = [&self.x, &self.y, &self.xx, &self.yy, &self.xy];
        size_of_val(self) + sums.iter().map(|sum| sum.heap_bytes()).sum::<usize>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        no_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        no_state()
    }
}

/// DataFusion's `regr_r2`, which is null where all y are equal. A line goes through these, as the SQL
/// standard, PostgreSQL and DuckDB have it.
#[derive(Debug)]
struct Determination {
    theirs: Box<dyn Accumulator>,
}

impl Accumulator for Determination {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.theirs.update_batch(values)
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let found = self.theirs.evaluate()?;
        if !found.is_null() {
            return Ok(found);
        }
        // The count, the means of x and y, the sums of their squares, those of their products.
        let state = self.theirs.state()?;
        let squares = |at: usize| match state.get(at) {
            Some(ScalarValue::Float64(sum)) => *sum,
            _ => None,
        };
        let is_level = squares(3).is_some_and(|x| x > 0.0) && squares(4) == Some(0.0);
        Ok(if is_level { ScalarValue::from(1.0) } else { found })
    }

    fn size(&self) -> usize {
        self.theirs.size()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.theirs.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.theirs.merge_batch(states)
    }
}

// ── counts ───────────────────────────────────────────────────────────────────────────────

/// How many there are of each.
#[derive(Debug)]
struct Flags {
    is_or: bool,
    falses: usize,
    trues: usize,
}

impl Flags {
    fn count(values: &[ArrayRef]) -> (usize, usize) {
        let flags = values[0].as_boolean();
        let trues = flags.true_count();
        (flags.len() - flags.null_count() - trues, trues)
    }
}

impl Accumulator for Flags {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let (falses, trues) = Self::count(values);
        self.falses += falses;
        self.trues += trues;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let (falses, trues) = Self::count(values);
        self.falses -= falses;
        self.trues -= trues;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let value = if self.is_or { self.trues > 0 } else { self.falses == 0 };
        Ok(ScalarValue::Boolean((self.falses + self.trues > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        no_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        no_state()
    }
}

/// How many values have each bit.
#[derive(Debug)]
struct Bits {
    answer: Answer,
    data_type: DataType,
    count: u64,
    set: [u64; 64],
}

/// Whole numbers of all types, in a type that has them all.
const WHOLE: DataType = DataType::Decimal128(20, 0);

impl Bits {
    fn change(&mut self, values: &ArrayRef, back: bool) -> PlanResult<()> {
        let values = cast_with_options(values, &WHOLE, &EXACTLY)?;
        let step = |count: &mut u64| if back { *count -= 1 } else { *count += 1 };
        for value in values.as_primitive::<Decimal128Type>().iter().flatten() {
            step(&mut self.count);
            let mut rest = value.cast_unsigned() as u64;
            while rest != 0 {
                step(&mut self.set[rest.trailing_zeros() as usize]);
                rest &= rest - 1;
            }
        }
        Ok(())
    }
}

impl Accumulator for Bits {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(&values[0], false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.change(&values[0], true)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.count == 0 {
            return ScalarValue::try_from(&self.data_type);
        }
        let is_set = |count: u64| match self.answer {
            Answer::BitAnd => count == self.count,
            Answer::BitOr => count > 0,
            _ => !count.is_multiple_of(2),
        };
        let bits = self.set.iter().enumerate().filter(|(_, count)| is_set(**count));
        let bits = bits.fold(0_u64, |bits, (bit, _)| bits | 1 << bit);
        Ok(match self.data_type {
            DataType::Int8 => ScalarValue::Int8(Some(bits as i8)),
            DataType::Int16 => ScalarValue::Int16(Some(bits as i16)),
            DataType::Int32 => ScalarValue::Int32(Some(bits as i32)),
            DataType::Int64 => ScalarValue::Int64(Some(bits.cast_signed())),
            DataType::UInt8 => ScalarValue::UInt8(Some(bits as u8)),
            DataType::UInt16 => ScalarValue::UInt16(Some(bits as u16)),
            DataType::UInt32 => ScalarValue::UInt32(Some(bits as u32)),
            DataType::UInt64 => ScalarValue::UInt64(Some(bits)),
            _ => return no_state(),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        no_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        no_state()
    }
}
