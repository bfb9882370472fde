//! Functions of numbers that are no more than one formula.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int8Array};
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
}

impl Function for Is {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Is::Finite => &["isfinite", "is_finite"],
            Is::Infinite => &["isinf", "is_inf", "isinfinite", "is_infinite"],
            Is::NoNumber => &["is_nan"],
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
        };
        Told { section: DOC_SECTION_MATH, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] if is_number(of) => Ok(vec![DataType::Float64]),
            // No time is infinite here, and all are null of a null.
            [of @ (DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))]
                if !matches!(self, Is::NoNumber) =>
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
