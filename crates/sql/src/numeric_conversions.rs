//! Conversions to types that hold all values: times to nanoseconds since 1970, decimals to the nearest
//! DOUBLE.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Field, FieldRef, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::invoke_unary_function;

/// Nanoseconds of a day.
pub(crate) const DAY_NANOS: i128 = 86_400_000_000_000;

/// Returns the nanoseconds of a time unit.
pub(crate) fn unit_nanoseconds(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

pub(crate) fn nullable_return_field(
    name: &str,
    data_type: DataType,
    args: &ReturnFieldArgs<'_>,
) -> FieldRef {
    let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
    Arc::new(Field::new(name, data_type, nullable))
}

/// The function that converts a date, a timestamp or an interval to nanoseconds, in a type that holds all of
/// them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct InstantFunction {
    signature: Signature,
}

impl InstantFunction {
    pub(crate) fn new() -> Self {
        InstantFunction { signature: Signature::any(1, Volatility::Immutable) }
    }
}

pub(crate) const INSTANT_TYPE: DataType = DataType::Decimal128(38, 0);

impl ScalarUDFImpl for InstantFunction {
    fn name(&self) -> &str {
        "instant"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(INSTANT_TYPE)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        Ok(nullable_return_field(self.name(), INSTANT_TYPE, &args))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| {
            let found: Decimal128Array = match array.data_type() {
                DataType::Date32 => {
                    array.as_primitive::<Date32Type>().unary(|days| i128::from(days) * DAY_NANOS)
                }
                DataType::Date64 => {
                    array.as_primitive::<Date64Type>().unary(|ms| i128::from(ms) * 1_000_000)
                }
                DataType::Timestamp(unit, _) | DataType::Duration(unit) => {
                    let factor = unit_nanoseconds(unit);
                    let plain = arrow::compute::cast_with_options(
                        array,
                        &DataType::Int64,
                        &STRICT_CAST_OPTIONS,
                    )?;
                    plain.as_primitive::<Int64Type>().unary(|value| i128::from(value) * factor)
                }
                DataType::Interval(_) => {
                    let whole = DataType::Interval(IntervalUnit::MonthDayNano);
                    let spans =
                        arrow::compute::cast_with_options(array, &whole, &STRICT_CAST_OPTIONS)?;
                    spans.as_primitive::<IntervalMonthDayNanoType>().unary(|span| {
                        (i128::from(span.months) * 30 + i128::from(span.days)) * DAY_NANOS
                            + i128::from(span.nanoseconds)
                    })
                }
                other => {
                    return Err(into_datafusion_error(Error::Internal(format!(
                        "the instant of {other}"
                    ))));
                }
            };
            Ok(Arc::new(found.with_data_type(INSTANT_TYPE)) as ArrayRef)
        })
    }
}

/// Returns the cast of a decimal to the nearest DOUBLE. Arrow's cast rounds twice: the digits and their
/// quotient.
pub(crate) fn decimal_to_double(decimal: Expr) -> Expr {
    static DOUBLE: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(DecimalToDoubleFunction::new())));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&DOUBLE), vec![decimal]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DecimalToDoubleFunction {
    signature: Signature,
}

impl DecimalToDoubleFunction {
    pub(crate) fn new() -> Self {
        DecimalToDoubleFunction { signature: Signature::any(1, Volatility::Immutable) }
    }
}

/// The powers of ten that a DOUBLE represents exactly.
pub(crate) const EXACT_POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Returns the DOUBLE nearest to `unscaled` / 10^`scale`.
pub(crate) fn nearest_double(unscaled: i128, scale: i8) -> f64 {
    let power = usize::try_from(scale).ok().and_then(|scale| EXACT_POWERS_OF_TEN.get(scale));
    match power {
        // Both operands are exact, so the quotient is rounded once.
        Some(power) if unscaled.unsigned_abs() <= 1 << 53 => unscaled as f64 / power,
        _ => parse_double(&unscaled.to_string(), scale),
    }
}

pub(crate) fn parse_double(unscaled: &str, scale: i8) -> f64 {
    format!("{unscaled}e{}", -i16::from(scale)).parse().unwrap_or(f64::NAN)
}

impl ScalarUDFImpl for DecimalToDoubleFunction {
    fn name(&self) -> &str {
        "double"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Float64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        Ok(nullable_return_field(self.name(), DataType::Float64, &args))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| {
            let found: Float64Array = match array.data_type() {
                DataType::Decimal128(_, scale) => array
                    .as_primitive::<Decimal128Type>()
                    .unary(|value| nearest_double(value, *scale)),
                DataType::Decimal256(_, scale) => {
                    array.as_primitive::<Decimal256Type>().unary(|value| match value.to_i128() {
                        Some(value) => nearest_double(value, *scale),
                        None => parse_double(&value.to_string(), *scale),
                    })
                }
                other => {
                    return Err(into_datafusion_error(Error::Internal(format!(
                        "{other} is no decimal"
                    ))));
                }
            };
            Ok(Arc::new(found) as ArrayRef)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::nearest_double;

    #[test]
    fn decimals_become_the_nearest_double() {
        for (unscaled, scale, expected) in [
            (1, 1, 0.1),
            (-1, 20, -1e-20),
            (1_234_567_890_123_456_789, 1, 123_456_789_012_345_678.9),
            (9_007_199_254_740_993, 0, 9_007_199_254_740_992.0),
            (99_999_999_999_999_999_999_999_999_999_999_999_999, 38, 1.0),
            (5, -3, 5000.0),
        ] {
            assert_eq!(nearest_double(unscaled, scale), expected, "{unscaled} / 10^{scale}");
        }
    }
}
