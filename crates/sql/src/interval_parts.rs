//! Parts of intervals: `extract(epoch FROM ended - began)`.
//!
//! DataFusion's results are null, wrapped or without fractions once an interval exceeds a few
//! seconds. For the difference of two times, each of its parts counts all hours or all minutes. Here the
//! difference of two times has days and a remainder, hours below 24 and minutes below 60, as
//! in PostgreSQL and DuckDB. An interval keeps the months, days and hours that it was built from. For
//! `epoch`, a year has 365.25 days and a month 30.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
};
use arrow::compute::cast_with_options;
use arrow::compute::kernels::cast_utils::IntervalUnit as Unit;
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit,
};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use crate::local_times::units_per_second;
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::plan_rewriting::invoke_unary_function;

const SECOND_NANOS: i64 = 1_000_000_000;
const MINUTE_NANOS: i64 = 60 * SECOND_NANOS;
const HOUR_NANOS: i64 = 60 * MINUTE_NANOS;
const DAY_SECONDS: i64 = 86_400;

/// Plans a call of `date_part` whose second argument is an interval. Returns `None` for another argument.
///
/// # Errors
/// An error if intervals have no such part.
pub(crate) fn plan_interval_date_part(
    args: &[Expr],
    schema: &DFSchema,
) -> PlanResult<Option<Expr>> {
    let [Expr::Literal(part, _), span] = args else { return Ok(None) };
    let (Some(Some(part)), Ok(DataType::Duration(_) | DataType::Interval(_))) =
        (part.try_as_str(), span.get_type(schema))
    else {
        return Ok(None);
    };
    let part = IntervalField::parse(part)?;
    let function =
        IntervalPartFunction { part, signature: Signature::any(1, Volatility::Immutable) };
    let function = Arc::new(ScalarUDF::from(function));
    Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![span.clone()]))))
}

/// Converts time differences and constant intervals beside them to differences of one unit; DataFusion would compare
/// an interval by its days and nanoseconds in turn. Returns `None` for other arguments.
pub(crate) fn align_interval_units(args: &[Expr], schema: &DFSchema) -> Option<Vec<Expr>> {
    let mut finest = None;
    let mut has_constant = false;
    for arg in args {
        let unit = match (arg, arg.get_type(schema).ok()?) {
            (_, DataType::Duration(unit)) => unit,
            (Expr::Literal(span, _), DataType::Interval(_)) => {
                has_constant = true;
                match constant_interval_nanoseconds(span)? {
                    whole if whole % 1_000 != 0 => TimeUnit::Nanosecond,
                    whole if whole % 1_000_000 != 0 => TimeUnit::Microsecond,
                    whole if whole % i128::from(SECOND_NANOS) != 0 => TimeUnit::Millisecond,
                    _ => TimeUnit::Second,
                }
            }
            (_, DataType::Null) => continue,
            _ => return None,
        };
        if finest.is_none_or(|finest| units_per_second(finest) < units_per_second(unit)) {
            finest = Some(unit);
        }
    }
    let finest = finest.filter(|_| has_constant)?;
    let target = DataType::Duration(finest);
    let one = i128::from(SECOND_NANOS / units_per_second(finest));
    let in_step = args.iter().map(|arg| match arg {
        Expr::Literal(span, _) if matches!(span.data_type(), DataType::Interval(_)) => {
            let value = i64::try_from(constant_interval_nanoseconds(span)? / one).ok()?;
            let value = ScalarValue::Int64(Some(value)).cast_to(&target).ok()?;
            Some(Expr::Literal(value, None))
        }
        other => Some(Expr::Cast(Cast::new(Box::new(other.clone()), target.clone()))),
    });
    in_step.collect()
}

/// Returns the length of a constant interval in nanoseconds, unless it has months.
fn constant_interval_nanoseconds(span: &ScalarValue) -> Option<i128> {
    let whole = span.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)).ok()?;
    let ScalarValue::IntervalMonthDayNano(Some(span)) = whole else { return None };
    let days = i128::from(span.days) * i128::from(DAY_SECONDS) * i128::from(SECOND_NANOS);
    (span.months == 0).then_some(days + i128::from(span.nanoseconds))
}

/// Returns the cast of a time difference to INTERVAL, which separates days from the remainder like
/// [`plan_interval_date_part`]. Arrow's cast turns all of it into hours.
pub(crate) fn duration_to_interval(span: Expr) -> Expr {
    let function = Arc::new(ScalarUDF::from(DurationToInterval {
        signature: Signature::any(1, Volatility::Immutable),
    }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![span]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DurationToInterval {
    signature: Signature,
}

impl ScalarUDFImpl for DurationToInterval {
    fn name(&self) -> &str {
        "with_days"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| {
            let spans = array_to_interval_parts(array)?;
            let apart = spans.into_iter().map(|span| {
                let Some(span) = span else { return Ok(None) };
                let days = i32::try_from(span.days).map_err(|_| interval_overflow_error())?;
                Ok(Some(IntervalMonthDayNano::new(0, days, span.nanoseconds)))
            });
            let apart = apart.collect::<PlanResult<IntervalMonthDayNanoArray>>()?;
            Ok(Arc::new(apart))
        })
    }
}

fn interval_overflow_error() -> DataFusionError {
    into_datafusion_error(Error::Overflow {
        message: "a part of an interval does not fit INT".into(),
        hint: Some("`extract(epoch FROM …)` has its seconds, as a DOUBLE".into()),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IntervalField {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Epoch,
}

impl IntervalField {
    fn parse(name: &str) -> PlanResult<Self> {
        let lower = name.trim_matches(['\'', '"']).to_lowercase();
        Ok(match (lower.as_str(), Unit::from_str(&lower)) {
            ("epoch", _) => IntervalField::Epoch,
            ("quarter" | "qtr", _) => IntervalField::Quarter,
            (_, Ok(Unit::Year)) => IntervalField::Year,
            (_, Ok(Unit::Month)) => IntervalField::Month,
            (_, Ok(Unit::Week)) => IntervalField::Week,
            (_, Ok(Unit::Day)) => IntervalField::Day,
            (_, Ok(Unit::Hour)) => IntervalField::Hour,
            (_, Ok(Unit::Minute)) => IntervalField::Minute,
            (_, Ok(Unit::Second)) => IntervalField::Second,
            (_, Ok(Unit::Millisecond)) => IntervalField::Millisecond,
            (_, Ok(Unit::Microsecond)) => IntervalField::Microsecond,
            (_, Ok(Unit::Nanosecond)) => IntervalField::Nanosecond,
            _ => {
                return Err(into_datafusion_error(Error::Usage {
                    message: format!("an interval has no `{lower}`"),
                    hint: Some(
                        "its parts are year, quarter, month, week, day, hour, minute, second, millisecond, \
                         microsecond, nanosecond and epoch"
                            .into(),
                    ),
                }));
            }
        })
    }

    fn data_type(self) -> DataType {
        match self {
            IntervalField::Epoch => DataType::Float64,
            IntervalField::Nanosecond => DataType::Int64,
            _ => DataType::Int32,
        }
    }

    /// Returns the part as an integer; 0 for `epoch`, which is a float.
    fn extract(self, span: &IntervalParts) -> i64 {
        let within_minute = span.nanoseconds % MINUTE_NANOS;
        match self {
            IntervalField::Year => span.months / 12,
            IntervalField::Quarter => span.months % 12 / 3 + 1,
            IntervalField::Month => span.months % 12,
            IntervalField::Week => span.days / 7,
            IntervalField::Day => span.days,
            IntervalField::Hour => span.nanoseconds / HOUR_NANOS,
            IntervalField::Minute => span.nanoseconds % HOUR_NANOS / MINUTE_NANOS,
            IntervalField::Second => within_minute / SECOND_NANOS,
            IntervalField::Millisecond => within_minute / 1_000_000,
            IntervalField::Microsecond => within_minute / 1_000,
            IntervalField::Nanosecond => within_minute,
            IntervalField::Epoch => 0,
        }
    }
}

/// The parts of an interval, each with its own sign.
#[derive(Debug, Clone, Copy)]
struct IntervalParts {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl IntervalParts {
    /// Splits a time difference in units of `1 / units` seconds.
    fn from_duration(value: i64, units: i64) -> Self {
        let day = DAY_SECONDS * units;
        IntervalParts {
            months: 0,
            days: value / day,
            nanoseconds: value % day * (SECOND_NANOS / units),
        }
    }

    /// Returns the length in seconds as the nearest double.
    fn epoch_seconds(&self) -> f64 {
        let (years, months) = (i128::from(self.months / 12), i128::from(self.months % 12));
        // A year has six hours beside its 365 days.
        let quarters = years * 1_461 + (months * 30 + i128::from(self.days)) * 4;
        let seconds = quarters * i128::from(DAY_SECONDS / 4);
        let nanoseconds = seconds * i128::from(SECOND_NANOS) + i128::from(self.nanoseconds);
        let (units, divisor) = match nanoseconds % 1_000 {
            0 => (nanoseconds / 1_000, 1_000_000),
            _ => (nanoseconds, i128::from(SECOND_NANOS)),
        };
        // If a double represents the dividend exactly, one division rounds once. Otherwise whole seconds are divided
        // off first, and the remainder lies below the last digits.
        match units.unsigned_abs() < 1 << 53 {
            true => units as f64 / divisor as f64,
            false => (units / divisor) as f64 + (units % divisor) as f64 / divisor as f64,
        }
    }
}

fn array_to_interval_parts(array: &ArrayRef) -> PlanResult<Vec<Option<IntervalParts>>> {
    if let DataType::Duration(unit) = array.data_type() {
        let units = units_per_second(*unit);
        let values = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let values = values.as_primitive::<Int64Type>().iter();
        return Ok(values.map(|value| Some(IntervalParts::from_duration(value?, units))).collect());
    }
    let whole = DataType::Interval(IntervalUnit::MonthDayNano);
    let spans = cast_with_options(array, &whole, &STRICT_CAST_OPTIONS)?;
    let parts = spans.as_primitive::<IntervalMonthDayNanoType>().iter().map(|span| {
        let span = span?;
        let (months, days) = (span.months.into(), span.days.into());
        Some(IntervalParts { months, days, nanoseconds: span.nanoseconds })
    });
    Ok(parts.collect())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalPartFunction {
    part: IntervalField,
    signature: Signature,
}

impl IntervalPartFunction {
    fn extract_field(&self, array: &ArrayRef) -> PlanResult<ArrayRef> {
        let spans = array_to_interval_parts(array)?;
        let parts = spans.iter().map(|span| span.as_ref().map(|span| self.part.extract(span)));
        Ok(match self.part {
            IntervalField::Epoch => {
                let seconds =
                    spans.iter().map(|span| span.as_ref().map(IntervalParts::epoch_seconds));
                Arc::new(seconds.collect::<Float64Array>())
            }
            IntervalField::Nanosecond => Arc::new(parts.collect::<Int64Array>()),
            _ => {
                let parts = parts.map(|part| part.map(i32::try_from).transpose());
                let parts = parts.collect::<Result<Int32Array, _>>();
                Arc::new(parts.map_err(|_| interval_overflow_error())?)
            }
        })
    }
}

impl ScalarUDFImpl for IntervalPartFunction {
    fn name(&self) -> &str {
        scalars::DATE_PART
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.part.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.part.data_type(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| self.extract_field(array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_difference_splits_into_days_and_time() {
        let span = IntervalParts::from_duration(
            -(3 * 86_400_000 + 4 * 3_600_000 + 5 * 60_000 + 6_789),
            1_000,
        );
        let parts = [
            (IntervalField::Year, 0),
            (IntervalField::Month, 0),
            (IntervalField::Week, 0),
            (IntervalField::Day, -3),
            (IntervalField::Hour, -4),
            (IntervalField::Minute, -5),
            (IntervalField::Second, -6),
            (IntervalField::Millisecond, -6_789),
            (IntervalField::Microsecond, -6_789_000),
            (IntervalField::Nanosecond, -6_789_000_000),
        ];
        for (part, expected) in parts {
            assert_eq!(part.extract(&span), expected, "{part:?}");
        }
        assert_eq!(span.epoch_seconds(), -273_906.789);
    }

    #[test]
    fn epoch_seconds_are_precise_for_long_intervals() {
        for (value, units, expected) in [
            (i64::MAX, 1, 9_223_372_036_854_775_807.0),
            (i64::MIN, 1_000_000, -9_223_372_036_854.775),
            (-9_223_285_636_000_001, 1_000_000, -9_223_285_636.000_002),
            (824_400_500, 1_000, 824_400.5),
            (2_500_000_001, SECOND_NANOS, 2.500_000_001),
            (6_311_347_200_000_000, 1_000_000, 6_311_347_200.0),
        ] {
            assert_eq!(
                IntervalParts::from_duration(value, units).epoch_seconds(),
                expected,
                "{value}"
            );
        }
        let years = IntervalParts { months: 14, days: 40, nanoseconds: 30 * HOUR_NANOS };
        assert_eq!(years.epoch_seconds(), (365.25 + 2.0 * 30.0 + 40.0) * 86_400.0 + 30.0 * 3_600.0);
    }
}
