//! Parts of intervals: `extract(epoch FROM ended - began)`.
//!
//! DataFusion's are null, wrapped or without their fractions once an interval has more than some
//! seconds, and of the difference of two times it gives all hours and all minutes for each part. Here the
//! difference of two times has days and what is left of a day, hours below 24 and minutes below 60, as
//! PostgreSQL and DuckDB have it; an interval has the months, days and hours that it was made of. Of
//! `epoch` a year has 365.25 days and a month 30.

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

use crate::datafusion_names::scalars;
use crate::messages::external;
use crate::rewrite::of_one;
use crate::zones::units;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY_SECONDS: i64 = 86_400;

/// A call of `date_part` whose second argument is an interval as one of ours.
///
/// # Errors
/// Where an interval has no such part.
pub(crate) fn part_of(args: &[Expr], schema: &DFSchema) -> PlanResult<Option<Expr>> {
    let [Expr::Literal(part, _), span] = args else { return Ok(None) };
    let (Some(Some(part)), Ok(DataType::Duration(_) | DataType::Interval(_))) =
        (part.try_as_str(), span.get_type(schema))
    else {
        return Ok(None);
    };
    let part = DateField::named(part)?;
    let function = SpanPart { part, signature: Signature::any(1, Volatility::Immutable) };
    let function = Arc::new(ScalarUDF::from(function));
    Ok(Some(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![span.clone()]))))
}

/// Differences of times and constant intervals beside them, as differences of one unit: an interval would
/// be compared by its days and nanoseconds in turn. None where that is not what `args` are.
pub(crate) fn in_step(args: &[Expr], schema: &DFSchema) -> Option<Vec<Expr>> {
    let mut finest = None;
    let mut has_constant = false;
    for arg in args {
        let unit = match (arg, arg.get_type(schema).ok()?) {
            (_, DataType::Duration(unit)) => unit,
            (Expr::Literal(span, _), DataType::Interval(_)) => {
                has_constant = true;
                match nanoseconds_of(span)? {
                    whole if whole % 1_000 != 0 => TimeUnit::Nanosecond,
                    whole if whole % 1_000_000 != 0 => TimeUnit::Microsecond,
                    whole if whole % i128::from(SECOND) != 0 => TimeUnit::Millisecond,
                    _ => TimeUnit::Second,
                }
            }
            (_, DataType::Null) => continue,
            _ => return None,
        };
        if finest.is_none_or(|finest| units(finest) < units(unit)) {
            finest = Some(unit);
        }
    }
    let finest = finest.filter(|_| has_constant)?;
    let target = DataType::Duration(finest);
    let one = i128::from(SECOND / units(finest));
    let in_step = args.iter().map(|arg| match arg {
        Expr::Literal(span, _) if matches!(span.data_type(), DataType::Interval(_)) => {
            let value = i64::try_from(nanoseconds_of(span)? / one).ok()?;
            let value = ScalarValue::Int64(Some(value)).cast_to(&target).ok()?;
            Some(Expr::Literal(value, None))
        }
        other => Some(Expr::Cast(Cast::new(Box::new(other.clone()), target.clone()))),
    });
    in_step.collect()
}

/// How long a constant interval is, unless it has months.
fn nanoseconds_of(span: &ScalarValue) -> Option<i128> {
    let whole = span.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)).ok()?;
    let ScalarValue::IntervalMonthDayNano(Some(span)) = whole else { return None };
    let days = i128::from(span.days) * i128::from(DAY_SECONDS) * i128::from(SECOND);
    (span.months == 0).then_some(days + i128::from(span.nanoseconds))
}

/// The cast of a difference of two times to INTERVAL, which keeps its days apart from the rest as
/// [`part_of`] does. Arrow's makes hours of all.
pub(crate) fn with_days(span: Expr) -> Expr {
    let function =
        Arc::new(ScalarUDF::from(WithDays { signature: Signature::any(1, Volatility::Immutable) }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![span]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithDays {
    signature: Signature,
}

impl ScalarUDFImpl for WithDays {
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
        of_one(&args.args, |array| {
            let spans = spans(array)?;
            let apart = spans.into_iter().map(|span| {
                let Some(span) = span else { return Ok(None) };
                let days = i32::try_from(span.days).map_err(|_| too_long())?;
                Ok(Some(IntervalMonthDayNano::new(0, days, span.nanoseconds)))
            });
            let apart = apart.collect::<PlanResult<IntervalMonthDayNanoArray>>()?;
            Ok(Arc::new(apart))
        })
    }
}

fn too_long() -> DataFusionError {
    external(Error::Overflow {
        message: "a part of an interval does not fit INT".into(),
        hint: Some("`extract(epoch FROM …)` has its seconds, as a DOUBLE".into()),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DateField {
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

impl DateField {
    fn named(name: &str) -> PlanResult<Self> {
        let lower = name.trim_matches(['\'', '"']).to_lowercase();
        Ok(match (lower.as_str(), Unit::from_str(&lower)) {
            ("epoch", _) => DateField::Epoch,
            ("quarter" | "qtr", _) => DateField::Quarter,
            (_, Ok(Unit::Year)) => DateField::Year,
            (_, Ok(Unit::Month)) => DateField::Month,
            (_, Ok(Unit::Week)) => DateField::Week,
            (_, Ok(Unit::Day)) => DateField::Day,
            (_, Ok(Unit::Hour)) => DateField::Hour,
            (_, Ok(Unit::Minute)) => DateField::Minute,
            (_, Ok(Unit::Second)) => DateField::Second,
            (_, Ok(Unit::Millisecond)) => DateField::Millisecond,
            (_, Ok(Unit::Microsecond)) => DateField::Microsecond,
            (_, Ok(Unit::Nanosecond)) => DateField::Nanosecond,
            _ => {
                return Err(external(Error::Usage {
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
            DateField::Epoch => DataType::Float64,
            DateField::Nanosecond => DataType::Int64,
            _ => DataType::Int32,
        }
    }

    /// Whole numbers; of `epoch` none.
    fn of(self, span: &Span) -> i64 {
        let within_minute = span.nanoseconds % MINUTE;
        match self {
            DateField::Year => span.months / 12,
            DateField::Quarter => span.months % 12 / 3 + 1,
            DateField::Month => span.months % 12,
            DateField::Week => span.days / 7,
            DateField::Day => span.days,
            DateField::Hour => span.nanoseconds / HOUR,
            DateField::Minute => span.nanoseconds % HOUR / MINUTE,
            DateField::Second => within_minute / SECOND,
            DateField::Millisecond => within_minute / 1_000_000,
            DateField::Microsecond => within_minute / 1_000,
            DateField::Nanosecond => within_minute,
            DateField::Epoch => 0,
        }
    }
}

/// An interval's parts, each with its sign.
#[derive(Debug, Clone, Copy)]
struct Span {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl Span {
    /// So many of a unit, of which a second has `units`.
    fn between(value: i64, units: i64) -> Self {
        let day = DAY_SECONDS * units;
        Span { months: 0, days: value / day, nanoseconds: value % day * (SECOND / units) }
    }

    /// In seconds, the nearest double.
    fn epoch(&self) -> f64 {
        let (years, months) = (i128::from(self.months / 12), i128::from(self.months % 12));
        // A year has six hours beside its days.
        let quarters = years * 1_461 + (months * 30 + i128::from(self.days)) * 4;
        let seconds = quarters * i128::from(DAY_SECONDS / 4);
        let nanoseconds = seconds * i128::from(SECOND) + i128::from(self.nanoseconds);
        let (units, divisor) = match nanoseconds % 1_000 {
            0 => (nanoseconds / 1_000, 1_000_000),
            _ => (nanoseconds, i128::from(SECOND)),
        };
        // One division of what a double has whole rounds once. Of more than that the seconds are whole, and
        // what is left of one is below the last digits.
        match units.unsigned_abs() < 1 << 53 {
            true => units as f64 / divisor as f64,
            false => (units / divisor) as f64 + (units % divisor) as f64 / divisor as f64,
        }
    }
}

fn spans(array: &ArrayRef) -> PlanResult<Vec<Option<Span>>> {
    if let DataType::Duration(unit) = array.data_type() {
        let units = units(*unit);
        let values = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let values = values.as_primitive::<Int64Type>().iter();
        return Ok(values.map(|value| Some(Span::between(value?, units))).collect());
    }
    let whole = DataType::Interval(IntervalUnit::MonthDayNano);
    let spans = cast_with_options(array, &whole, &STRICT_CAST_OPTIONS)?;
    let parts = spans.as_primitive::<IntervalMonthDayNanoType>().iter().map(|span| {
        let span = span?;
        let (months, days) = (span.months.into(), span.days.into());
        Some(Span { months, days, nanoseconds: span.nanoseconds })
    });
    Ok(parts.collect())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SpanPart {
    part: DateField,
    signature: Signature,
}

impl SpanPart {
    fn calculated(&self, array: &ArrayRef) -> PlanResult<ArrayRef> {
        let spans = spans(array)?;
        let parts = spans.iter().map(|span| span.as_ref().map(|span| self.part.of(span)));
        Ok(match self.part {
            DateField::Epoch => {
                let seconds = spans.iter().map(|span| span.as_ref().map(Span::epoch));
                Arc::new(seconds.collect::<Float64Array>())
            }
            DateField::Nanosecond => Arc::new(parts.collect::<Int64Array>()),
            _ => {
                let parts = parts.map(|part| part.map(i32::try_from).transpose());
                let parts = parts.collect::<Result<Int32Array, _>>();
                Arc::new(parts.map_err(|_| too_long())?)
            }
        })
    }
}

impl ScalarUDFImpl for SpanPart {
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
        of_one(&args.args, |array| self.calculated(array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_times_has_days_and_a_rest() {
        let span = Span::between(-(3 * 86_400_000 + 4 * 3_600_000 + 5 * 60_000 + 6_789), 1_000);
        let parts = [
            (DateField::Year, 0),
            (DateField::Month, 0),
            (DateField::Week, 0),
            (DateField::Day, -3),
            (DateField::Hour, -4),
            (DateField::Minute, -5),
            (DateField::Second, -6),
            (DateField::Millisecond, -6_789),
            (DateField::Microsecond, -6_789_000),
            (DateField::Nanosecond, -6_789_000_000),
        ];
        for (part, expected) in parts {
            assert_eq!(part.of(&span), expected, "{part:?}");
        }
        assert_eq!(span.epoch(), -273_906.789);
    }

    #[test]
    fn seconds_are_whole_however_long_an_interval_is() {
        for (value, units, expected) in [
            (i64::MAX, 1, 9_223_372_036_854_775_807.0),
            (i64::MIN, 1_000_000, -9_223_372_036_854.775),
            (-9_223_285_636_000_001, 1_000_000, -9_223_285_636.000_002),
            (824_400_500, 1_000, 824_400.5),
            (2_500_000_001, SECOND, 2.500_000_001),
            (6_311_347_200_000_000, 1_000_000, 6_311_347_200.0),
        ] {
            assert_eq!(Span::between(value, units).epoch(), expected, "{value}");
        }
        let years = Span { months: 14, days: 40, nanoseconds: 30 * HOUR };
        assert_eq!(years.epoch(), (365.25 + 2.0 * 30.0 + 40.0) * 86_400.0 + 30.0 * 3_600.0);
    }
}
