//! Functions of numbers that are no more than one formula.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int8Array,
};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_MATH;

use super::measures::{Doubles, is_number};
use crate::callable::{Function, Given, Told, called_as, held, overflow};

/// Formulas of one number or two, in doubles.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Formula {
    Even,
    Gamma,
    LnGamma,
    LnOnePlus,
    ExpMinusOne,
    Hypotenuse,
    TryDivide,
    E,
}

impl Formula {
    pub(super) const ALL: [Formula; 8] = [
        Formula::Even,
        Formula::Gamma,
        Formula::LnGamma,
        Formula::LnOnePlus,
        Formula::ExpMinusOne,
        Formula::Hypotenuse,
        Formula::TryDivide,
        Formula::E,
    ];

    fn arguments(&self) -> usize {
        match self {
            Formula::E => 0,
            Formula::Hypotenuse | Formula::TryDivide => 2,
            _ => 1,
        }
    }

    /// The answer; none where it is null.
    fn of(&self, x: f64, y: f64) -> Result<Option<f64>> {
        let is_pole = |x: f64| x <= 0.0 && x.fract() == 0.0;
        Ok(Some(match self {
            Formula::Even => {
                // Away from zero, to the next number that two divides.
                let half = x / 2.0;
                2.0 * if half > 0.0 { half.ceil() } else { half.floor() }
            }
            Formula::Gamma | Formula::LnGamma if is_pole(x) => {
                return Err(overflow(
                    format!("`{}` of {x} has no answer", self.names()[0]),
                    Some("of whole numbers below 1 there is none; nullif and CASE leave them out"),
                ));
            }
            Formula::Gamma => libm::tgamma(x),
            Formula::LnGamma => libm::lgamma(x),
            Formula::LnOnePlus => x.ln_1p(),
            Formula::ExpMinusOne => x.exp_m1(),
            Formula::Hypotenuse => x.hypot(y),
            Formula::TryDivide if y == 0.0 => return Ok(None),
            Formula::TryDivide => x / y,
            Formula::E => std::f64::consts::E,
        }))
    }
}

impl Function for Formula {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Formula::Even => &["even"],
            Formula::Gamma => &["gamma", "tgamma"],
            Formula::LnGamma => &["lgamma"],
            Formula::LnOnePlus => &["log1p"],
            Formula::ExpMinusOne => &["expm1"],
            Formula::Hypotenuse => &["hypot"],
            Formula::TryDivide => &["try_divide"],
            Formula::E => &["e"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            Formula::Even => (
                "even(x)",
                "The next number away from zero that two divides: `even(2.9)` is `4.0`.",
            ),
            Formula::Gamma => (
                "gamma(x)",
                "The gamma function, which is the factorial of one less: `gamma(5)` is `24.0`.",
            ),
            Formula::LnGamma => (
                "lgamma(x)",
                "The natural logarithm of the gamma function's absolute value: `lgamma(1)` is `0.0`.",
            ),
            Formula::LnOnePlus => (
                "log1p(x)",
                "The natural logarithm of one more, exact near zero: `log1p(0)` is `0.0`.",
            ),
            Formula::ExpMinusOne => {
                ("expm1(x)", "One less than the exponential, exact near zero: `expm1(0)` is `0.0`.")
            }
            Formula::Hypotenuse => (
                "hypot(x, y)",
                "The length of the diagonal of a rectangle: `hypot(3, 4)` is `5.0`.",
            ),
            Formula::TryDivide => (
                "try_divide(x, y)",
                "The quotient, a DOUBLE, NULL where the divisor is zero: `try_divide(1, 4)` is `0.25`, and \
                 `try_divide(1, 0)` is `NULL`.",
            ),
            Formula::E => {
                ("e()", "The base of the natural logarithm: `e()` is `2.718281828459045`.")
            }
        };
        Told { section: DOC_SECTION_MATH, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() == self.arguments() && given.iter().all(is_number) {
            true => Ok(vec![DataType::Float64; given.len()]),
            false => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let arguments = (0..self.arguments()).map(|at| Doubles::of(given, at));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let answers = (0..given.rows).map(|row| {
            let mut values = [0.0; 2];
            for (value, argument) in values.iter_mut().zip(&arguments) {
                match argument.at(row) {
                    Some(found) => *value = found,
                    None => return Ok(None),
                }
            }
            let [x, y] = values;
            self.of(x, y)
        });
        Ok(Arc::new(answers.collect::<Result<Float64Array>>()?))
    }
}

/// What a number is like.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Is {
    Finite,
    Infinite,
    NoNumber,
    Negative,
}

impl Function for Is {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Is::Finite => &["isfinite", "is_finite"],
            Is::Infinite => &["isinf", "is_inf", "isinfinite", "is_infinite"],
            Is::NoNumber => &["is_nan"],
            Is::Negative => &["signbit"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            Is::Finite => (
                "isfinite(x)",
                "Whether a number is neither infinite nor NaN: `isfinite(1.5)` is `true`.",
            ),
            Is::Infinite => (
                "isinf(x)",
                "Whether a number is infinite, above or below: `isinf(1.5)` is `false`.",
            ),
            Is::NoNumber => ("is_nan(x)", "Whether a number is NaN: `is_nan(1.5)` is `false`."),
            Is::Negative => (
                "signbit(x)",
                "True if a number has a minus sign, as the zero below zero has: `signbit(-0.0)` is `true`.",
            ),
        };
        Told { section: DOC_SECTION_MATH, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] if is_number(of) => Ok(vec![DataType::Float64]),
            // No time is infinite here, and all are null of a null.
            [of @ (DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))]
                if matches!(self, Is::Finite | Is::Infinite) =>
            {
                Ok(vec![of.clone()])
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        if !is_number(&given.value(0)?.data_type()) {
            let (times, rows) = held(given.value(0)?)?;
            let answers = (0..given.rows)
                .map(|row| times.is_valid(rows.at(row)).then_some(matches!(self, Is::Finite)));
            return Ok(Arc::new(answers.collect::<BooleanArray>()));
        }
        let values = Doubles::of(given, 0)?;
        let answers = (0..given.rows).map(|row| {
            values.at(row).map(|value| match self {
                Is::Finite => value.is_finite(),
                Is::Infinite => value.is_infinite(),
                Is::NoNumber => value.is_nan(),
                Is::Negative => value.is_sign_negative(),
            })
        });
        Ok(Arc::new(answers.collect::<BooleanArray>()))
    }
}

/// `sign`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sign;

impl Function for Sign {
    fn names(&self) -> &'static [&'static str] {
        &["sign"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_MATH,
            calls: "sign(x)",
            what: "-1, 0 or 1, as a number is below zero, zero or above, and 0 of NaN: `sign(-2.5)` is `-1`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::UInt64] => Ok(vec![DataType::UInt64]),
            [of] if of.is_integer() => Ok(vec![DataType::Int64]),
            [of] if is_number(of) => Ok(vec![DataType::Float64]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Int8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let of = given.value(0)?.data_type();
        let (array, rows) = given.cast(0, &of)?;
        let signs: Int8Array = match of {
            DataType::UInt64 => {
                let values = array.as_primitive::<UInt64Type>();
                (0..given.rows)
                    .map(|row| {
                        let row = rows.at(row);
                        values.is_valid(row).then(|| i8::from(values.value(row) > 0))
                    })
                    .collect()
            }
            DataType::Int64 => {
                let values = array.as_primitive::<Int64Type>();
                (0..given.rows)
                    .map(|row| {
                        let row = rows.at(row);
                        // A sign fits.
                        values.is_valid(row).then(|| values.value(row).signum() as i8)
                    })
                    .collect()
            }
            _ => {
                let values = Doubles::of(given, 0)?;
                (0..given.rows)
                    .map(|row| {
                        values.at(row).map(|value| i8::from(value > 0.0) - i8::from(value < 0.0))
                    })
                    .collect()
            }
        };
        Ok(Arc::new(signs))
    }
}

/// `nextafter`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NextAfter;

impl Function for NextAfter {
    fn names(&self) -> &'static [&'static str] {
        &["nextafter"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_MATH,
            calls: "nextafter(x, y)",
            what: "The number next to `x` on the way to `y`, a FLOAT of two FLOATs and else a DOUBLE: \
                   `nextafter(1, 2)` is `1.0000000000000002`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Float32, DataType::Float32] => Ok(given.to_vec()),
            [x, y] if is_number(x) && is_number(y) => Ok(vec![DataType::Float64; 2]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, taken: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        taken.first().cloned().ok_or_else(|| called_as(self, taken))
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let (starts, ends) = (Doubles::of(given, 0)?, Doubles::of(given, 1)?);
        let pairs = (0..given.rows).map(|row| starts.at(row).zip(ends.at(row)));
        let is_nan = |x: f64, y: f64| x.is_nan() || y.is_nan();
        if *given.answer == DataType::Float32 {
            // A FLOAT comes as the DOUBLE that it is.
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

/// `binom`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Binomial;

impl Binomial {
    fn coefficient(n: i64, k: i64) -> Result<i128> {
        let (Ok(n), Ok(k)) = (u128::try_from(n), u128::try_from(k)) else {
            return Err(overflow(
                format!("`binom` of {n} and {k} has no answer"),
                Some("both numbers are 0 or more"),
            ));
        };
        if k > n {
            return Ok(0);
        }
        let mut found = 1_u128;
        for step in 1..=k.min(n - k) {
            // A divisor is taken out of both factors before they are multiplied.
            let common = greatest_common_divisor(found, step);
            let factor = (n - step + 1) / (step / common);
            let product = (found / common).checked_mul(factor);
            found = product.filter(|product| *product < 10_u128.pow(38)).ok_or_else(|| {
                overflow(
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

impl Function for Binomial {
    fn names(&self) -> &'static [&'static str] {
        &["binom"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_MATH,
            calls: "binom(n, k)",
            what: "The count of ways to choose `k` of `n`, a DECIMAL(38, 0): `binom(5, 2)` is `10`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [n, k] if [n, k].iter().all(|of| of.is_integer() || of.is_null()) => {
                Ok(vec![DataType::Int64; 2])
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let ((n, n_rows), (k, k_rows)) =
            (given.cast(0, &DataType::Int64)?, given.cast(1, &DataType::Int64)?);
        let (n, k) = (n.as_primitive::<Int64Type>(), k.as_primitive::<Int64Type>());
        let found = (0..given.rows).map(|row| {
            let (n_row, k_row) = (n_rows.at(row), k_rows.at(row));
            match n.is_valid(n_row) && k.is_valid(k_row) {
                true => Binomial::coefficient(n.value(n_row), k.value(k_row)).map(Some),
                false => Ok(None),
            }
        });
        let found = found.collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(found.with_precision_and_scale(38, 0)?))
    }
}
