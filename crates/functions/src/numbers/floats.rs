//! Functions of numbers that consist of one formula.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int8Array,
};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_MATH;

use super::buckets_and_sizes::{DoubleArgument, is_numeric_type};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, argument_array, overflow_error, wrong_arguments_error,
};

/// Formulas of one or two DOUBLEs.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum FloatFormula {
    Even,
    Gamma,
    LnGamma,
    LnOnePlus,
    ExpMinusOne,
    Hypotenuse,
    TryDivide,
    E,
}

impl FloatFormula {
    pub(super) const ALL: [FloatFormula; 8] = [
        FloatFormula::Even,
        FloatFormula::Gamma,
        FloatFormula::LnGamma,
        FloatFormula::LnOnePlus,
        FloatFormula::ExpMinusOne,
        FloatFormula::Hypotenuse,
        FloatFormula::TryDivide,
        FloatFormula::E,
    ];

    fn argument_count(&self) -> usize {
        match self {
            FloatFormula::E => 0,
            FloatFormula::Hypotenuse | FloatFormula::TryDivide => 2,
            _ => 1,
        }
    }

    /// Returns the result, or `None` for NULL.
    fn evaluate(&self, x: f64, y: f64) -> Result<Option<f64>> {
        let is_pole = |x: f64| x <= 0.0 && x.fract() == 0.0;
        Ok(Some(match self {
            FloatFormula::Even => {
                // Rounds away from zero to the next even number.
                let half = x / 2.0;
                2.0 * if half > 0.0 { half.ceil() } else { half.floor() }
            }
            FloatFormula::Gamma | FloatFormula::LnGamma if is_pole(x) => {
                return Err(overflow_error(
                    format!("`{}` of {x} has no answer", self.names()[0]),
                    Some("of whole numbers below 1 there is none; nullif and CASE leave them out"),
                ));
            }
            FloatFormula::Gamma => libm::tgamma(x),
            FloatFormula::LnGamma => libm::lgamma(x),
            FloatFormula::LnOnePlus => x.ln_1p(),
            FloatFormula::ExpMinusOne => x.exp_m1(),
            FloatFormula::Hypotenuse => x.hypot(y),
            FloatFormula::TryDivide if y == 0.0 => return Ok(None),
            FloatFormula::TryDivide => x / y,
            FloatFormula::E => std::f64::consts::E,
        }))
    }
}

impl RowFunction for FloatFormula {
    fn names(&self) -> &'static [&'static str] {
        match self {
            FloatFormula::Even => &["even"],
            FloatFormula::Gamma => &["gamma", "tgamma"],
            FloatFormula::LnGamma => &["lgamma"],
            FloatFormula::LnOnePlus => &["log1p"],
            FloatFormula::ExpMinusOne => &["expm1"],
            FloatFormula::Hypotenuse => &["hypot"],
            FloatFormula::TryDivide => &["try_divide"],
            FloatFormula::E => &["e"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            FloatFormula::Even => (
                "even(x)",
                "The next number away from zero that two divides: `even(2.9)` is `4.0`.",
            ),
            FloatFormula::Gamma => (
                "gamma(x)",
                "The gamma function, which is the factorial of one less: `gamma(5)` is `24.0`.",
            ),
            FloatFormula::LnGamma => (
                "lgamma(x)",
                "The natural logarithm of the gamma function's absolute value: `lgamma(1)` is `0.0`.",
            ),
            FloatFormula::LnOnePlus => (
                "log1p(x)",
                "The natural logarithm of one more, exact near zero: `log1p(0)` is `0.0`.",
            ),
            FloatFormula::ExpMinusOne => {
                ("expm1(x)", "One less than the exponential, exact near zero: `expm1(0)` is `0.0`.")
            }
            FloatFormula::Hypotenuse => (
                "hypot(x, y)",
                "The length of the diagonal of a rectangle: `hypot(3, 4)` is `5.0`.",
            ),
            FloatFormula::TryDivide => (
                "try_divide(x, y)",
                "The quotient, a DOUBLE, NULL where the divisor is zero: `try_divide(1, 4)` is `0.25`, and \
                 `try_divide(1, 0)` is `NULL`.",
            ),
            FloatFormula::E => {
                ("e()", "The base of the natural logarithm: `e()` is `2.718281828459045`.")
            }
        };
        FunctionDocs { section: DOC_SECTION_MATH, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() == self.argument_count() && given.iter().all(is_numeric_type) {
            true => Ok(vec![DataType::Float64; given.len()]),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let arguments =
            (0..self.argument_count()).map(|at| DoubleArgument::from_argument(given, at));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let answers = (0..given.row_count).map(|row| {
            let mut values = [0.0; 2];
            for (value, argument) in values.iter_mut().zip(&arguments) {
                match argument.get(row) {
                    Some(found) => *value = found,
                    None => return Ok(None),
                }
            }
            let [x, y] = values;
            self.evaluate(x, y)
        });
        Ok(Arc::new(answers.collect::<Result<Float64Array>>()?))
    }
}

/// Predicates of a floating-point number.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum FloatPredicate {
    Finite,
    Infinite,
    NotANumber,
    Negative,
}

impl RowFunction for FloatPredicate {
    fn names(&self) -> &'static [&'static str] {
        match self {
            FloatPredicate::Finite => &["isfinite", "is_finite"],
            FloatPredicate::Infinite => &["isinf", "is_inf", "isinfinite", "is_infinite"],
            FloatPredicate::NotANumber => &["is_nan"],
            FloatPredicate::Negative => &["signbit"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            FloatPredicate::Finite => (
                "isfinite(x)",
                "Whether a number is neither infinite nor NaN: `isfinite(1.5)` is `true`.",
            ),
            FloatPredicate::Infinite => (
                "isinf(x)",
                "Whether a number is infinite, above or below: `isinf(1.5)` is `false`.",
            ),
            FloatPredicate::NotANumber => {
                ("is_nan(x)", "Whether a number is NaN: `is_nan(1.5)` is `false`.")
            }
            FloatPredicate::Negative => (
                "signbit(x)",
                "True if a number has a minus sign, as the zero below zero has: `signbit(-0.0)` is `true`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_MATH, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] if is_numeric_type(of) => Ok(vec![DataType::Float64]),
            // Arrow's times are never infinite; the result is null only for null.
            [of @ (DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))]
                if matches!(self, FloatPredicate::Finite | FloatPredicate::Infinite) =>
            {
                Ok(vec![of.clone()])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if !is_numeric_type(&given.argument(0)?.data_type()) {
            let (times, rows) = argument_array(given.argument(0)?)?;
            let answers = (0..given.row_count).map(|row| {
                times
                    .is_valid(rows.value_index(row))
                    .then_some(matches!(self, FloatPredicate::Finite))
            });
            return Ok(Arc::new(answers.collect::<BooleanArray>()));
        }
        let values = DoubleArgument::from_argument(given, 0)?;
        let answers = (0..given.row_count).map(|row| {
            values.get(row).map(|value| match self {
                FloatPredicate::Finite => value.is_finite(),
                FloatPredicate::Infinite => value.is_infinite(),
                FloatPredicate::NotANumber => value.is_nan(),
                FloatPredicate::Negative => value.is_sign_negative(),
            })
        });
        Ok(Arc::new(answers.collect::<BooleanArray>()))
    }
}

/// The function `sign`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SignFunction;

impl RowFunction for SignFunction {
    fn names(&self) -> &'static [&'static str] {
        &["sign"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_MATH,
            syntax: "sign(x)",
            description: "-1, 0 or 1, as a number is below zero, zero or above, and 0 of NaN: `sign(-2.5)` is `-1`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::UInt64] => Ok(vec![DataType::UInt64]),
            [of] if of.is_integer() => Ok(vec![DataType::Int64]),
            [of] if is_numeric_type(of) => Ok(vec![DataType::Float64]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Int8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let of = given.argument(0)?.data_type();
        let (array, rows) = given.cast_argument(0, &of)?;
        let signs: Int8Array = match of {
            DataType::UInt64 => {
                let values = array.as_primitive::<UInt64Type>();
                (0..given.row_count)
                    .map(|row| {
                        let row = rows.value_index(row);
                        values.is_valid(row).then(|| i8::from(values.value(row) > 0))
                    })
                    .collect()
            }
            DataType::Int64 => {
                let values = array.as_primitive::<Int64Type>();
                (0..given.row_count)
                    .map(|row| {
                        let row = rows.value_index(row);
                        // A sign fits into 8 bits.
                        values.is_valid(row).then(|| values.value(row).signum() as i8)
                    })
                    .collect()
            }
            _ => {
                let values = DoubleArgument::from_argument(given, 0)?;
                (0..given.row_count)
                    .map(|row| {
                        values.get(row).map(|value| i8::from(value > 0.0) - i8::from(value < 0.0))
                    })
                    .collect()
            }
        };
        Ok(Arc::new(signs))
    }
}

/// The function `nextafter`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NextAfterFunction;

impl RowFunction for NextAfterFunction {
    fn names(&self) -> &'static [&'static str] {
        &["nextafter"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_MATH,
            syntax: "nextafter(x, y)",
            description: "The number next to `x` on the way to `y`, a FLOAT of two FLOATs and else a DOUBLE: \
                   `nextafter(1, 2)` is `1.0000000000000002`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Float32, DataType::Float32] => Ok(given.to_vec()),
            [x, y] if is_numeric_type(x) && is_numeric_type(y) => Ok(vec![DataType::Float64; 2]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, taken: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        taken.first().cloned().ok_or_else(|| wrong_arguments_error(self, taken))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (starts, ends) =
            (DoubleArgument::from_argument(given, 0)?, DoubleArgument::from_argument(given, 1)?);
        let pairs = (0..given.row_count).map(|row| starts.get(row).zip(ends.get(row)));
        let is_nan = |x: f64, y: f64| x.is_nan() || y.is_nan();
        if *given.return_type == DataType::Float32 {
            // A FLOAT argument arrives as a DOUBLE of the same value.
            let next = |(x, y): (f64, f64)| match (x as f32, y as f32) {
                _ if is_nan(x, y) => f32::NAN,
                (x, y) if x < y => x.next_up(),
                (x, y) if x > y => x.next_down(),
                (_, y) => y,
            };
            return Ok(Arc::new(pairs.map(|pair| pair.map(next)).collect::<Float32Array>()));
        }
        let next = |(x, y): (f64, f64)| match () {
            () if is_nan(x, y) => f64::NAN,
            () if x < y => x.next_up(),
            () if x > y => x.next_down(),
            () => y,
        };
        Ok(Arc::new(pairs.map(|pair| pair.map(next)).collect::<Float64Array>()))
    }
}

/// The function `binom`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BinomialFunction;

impl BinomialFunction {
    fn coefficient(n: i64, k: i64) -> Result<i128> {
        let (Ok(n), Ok(k)) = (u128::try_from(n), u128::try_from(k)) else {
            return Err(overflow_error(
                format!("`binom` of {n} and {k} has no answer"),
                Some("both numbers are 0 or more"),
            ));
        };
        if k > n {
            return Ok(0);
        }
        let mut found = 1_u128;
        for step in 1..=k.min(n - k) {
            // Dividing by the common divisor first keeps the product small.
            let common = greatest_common_divisor(found, step);
            let factor = (n - step + 1) / (step / common);
            let product = (found / common).checked_mul(factor);
            found = product.filter(|product| *product < 10_u128.pow(38)).ok_or_else(|| {
                overflow_error(
                    format!("`binom` of {n} and {k} does not fit DECIMAL(38, 0)"),
                    Some("lgamma has the logarithm of factorials of any size"),
                )
            })?;
        }
        Ok(found.cast_signed())
    }
}

fn greatest_common_divisor(mut x: u128, mut y: u128) -> u128 {
    while y > 0 {
        (x, y) = (y, x % y);
    }
    x
}

impl RowFunction for BinomialFunction {
    fn names(&self) -> &'static [&'static str] {
        &["binom"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_MATH,
            syntax: "binom(n, k)",
            description: "The count of ways to choose `k` of `n`, a DECIMAL(38, 0): `binom(5, 2)` is `10`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [n, k] if [n, k].iter().all(|of| of.is_integer() || of.is_null()) => {
                Ok(vec![DataType::Int64; 2])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let ((n, n_rows), (k, k_rows)) =
            (given.cast_argument(0, &DataType::Int64)?, given.cast_argument(1, &DataType::Int64)?);
        let (n, k) = (n.as_primitive::<Int64Type>(), k.as_primitive::<Int64Type>());
        let found = (0..given.row_count).map(|row| {
            let (n_row, k_row) = (n_rows.value_index(row), k_rows.value_index(row));
            match n.is_valid(n_row) && k.is_valid(k_row) {
                true => BinomialFunction::coefficient(n.value(n_row), k.value(k_row)).map(Some),
                false => Ok(None),
            }
        });
        let found = found.collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(found.with_precision_and_scale(38, 0)?))
    }
}
