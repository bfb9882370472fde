//! Conversions between local times of a zone and instants.
//!
//! Arrow rejects a local time that occurs twice or never, and the whole query fails. Here an ambiguous
//! time is the later instant, in winter time. A skipped time is as long
//! after the clock change as it would have been without the change, as in PostgreSQL and DuckDB. A day, a week, a month
//! begins at the first of two midnights. The same rules apply to texts beside times of a zone, and to adding the days and
//! months of an interval, which count in local time; its hours count elapsed time.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast_with_options, is_not_null};
use arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use arrow::util::display::FormatOptions;
use chrono::{DateTime, MappedLocalTime, Months, NaiveDateTime, Offset, TimeDelta, TimeZone};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::plan_rewriting::{invoke_unary_function, rewrite_all_expressions};

/// The type of intervals with months, days and nanoseconds.
const MONTH_DAY_NANO_INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Returns whether the local time of a zone is UTC.
pub(crate) fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00")
}

/// Returns the number of units per second.
pub(crate) fn units_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// The choice between the two instants of an ambiguous local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AmbiguousTime {
    Earlier,
    Later,
}

/// Converts local times of a zone, timestamps without a zone, to timestamps of the zone.
///
/// # Errors
/// [`Error::Overflow`] for a time beyond the range of the calendar.
pub(crate) fn local_times_to_instants(
    shown: &ArrayRef,
    unit: TimeUnit,
    zone: &str,
    twice: AmbiguousTime,
) -> PlanResult<ArrayRef> {
    let tz: Tz = zone.parse()?;
    let units = units_per_second(unit);
    let shown = cast_with_options(shown, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    let instants: Int64Array = shown.as_primitive::<Int64Type>().try_unary(|time| {
        let ahead = DateTime::from_timestamp(time.div_euclid(units), 0)
            .and_then(|shown| utc_offset_seconds(&tz, shown.naive_utc(), twice));
        ahead.and_then(|ahead| time.checked_sub(i64::from(ahead).checked_mul(units)?)).ok_or_else(
            || {
                let message = format!("a time does not fit the calendar of `{zone}`");
                into_datafusion_error(Error::Overflow { message, hint: None })
            },
        )
    })?;
    let to = DataType::Timestamp(unit, Some(zone.into()));
    Ok(cast_with_options(&instants, &to, &STRICT_CAST_OPTIONS)?)
}

/// Converts instants to local times of a zone, as timestamps without a zone.
///
/// # Errors
/// [`Error::Overflow`] for a time beyond the range of the calendar.
pub(crate) fn instants_to_local_times(
    instants: &ArrayRef,
    unit: TimeUnit,
    zone: &str,
) -> PlanResult<ArrayRef> {
    let tz: Tz = zone.parse()?;
    let units = units_per_second(unit);
    let instants = cast_with_options(instants, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    let shown: Int64Array = instants.as_primitive::<Int64Type>().try_unary(|time| {
        let ahead = DateTime::from_timestamp(time.div_euclid(units), 0)
            .map(|at| tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc());
        ahead.and_then(|ahead| time.checked_add(i64::from(ahead).checked_mul(units)?)).ok_or_else(
            || {
                let message = format!("a time does not fit the calendar of `{zone}`");
                into_datafusion_error(Error::Overflow { message, hint: None })
            },
        )
    })?;
    Ok(cast_with_options(&shown, &DataType::Timestamp(unit, None), &STRICT_CAST_OPTIONS)?)
}

/// Returns the offset of a local time from UTC in seconds.
fn utc_offset_seconds(tz: &Tz, shown: NaiveDateTime, twice: AmbiguousTime) -> Option<i32> {
    let offset = match tz.offset_from_local_datetime(&shown) {
        MappedLocalTime::Single(offset) => offset,
        MappedLocalTime::Ambiguous(first, last) => match twice {
            AmbiguousTime::Earlier => first,
            AmbiguousTime::Later => last,
        },
        // The offset before the clock change; no clock changes by more than a day.
        MappedLocalTime::None => {
            let before = shown.checked_sub_signed(TimeDelta::hours(25))?;
            tz.offset_from_local_datetime(&before).earliest()?
        }
    };
    Some(offset.fix().local_minus_utc())
}

/// An analyzer rule that converts local times by this module's functions.
#[derive(Debug)]
pub(crate) struct LocalTimeRule;

impl AnalyzerRule for LocalTimeRule {
    fn name(&self) -> &'static str {
        "clocks"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &rewrite_local_time)
    }
}

fn rewrite_local_time(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    if let Expr::BinaryExpr(BinaryExpr {
        left,
        op: op @ (Operator::Plus | Operator::Minus),
        right,
    }) = &expr
    {
        let (time, span) = match (left.get_type(schema)?, right.get_type(schema)?) {
            (DataType::Timestamp(_, Some(_)), DataType::Interval(_)) => (left, right),
            (DataType::Interval(_), DataType::Timestamp(_, Some(_))) => (right, left),
            _ => return Ok(Transformed::no(expr)),
        };
        let DataType::Timestamp(unit, Some(zone)) = time.get_type(schema)? else {
            return Ok(Transformed::no(expr));
        };
        if is_utc(&zone) {
            return Ok(Transformed::no(expr));
        }
        let span = Expr::Cast(Cast::new(span.clone(), MONTH_DAY_NANO_INTERVAL));
        let function = ShiftByIntervalFunction {
            unit,
            zone,
            subtracts: *op == Operator::Minus,
            signature: Signature::any(2, Volatility::Immutable),
        };
        let arguments = vec![time.as_ref().clone(), span];
        let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), arguments);
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    let (Expr::Cast(Cast { expr: shown, field }) | Expr::TryCast(TryCast { expr: shown, field })) =
        &expr
    else {
        return Ok(Transformed::no(expr));
    };
    let DataType::Timestamp(unit, Some(zone)) = field.data_type() else {
        return Ok(Transformed::no(expr));
    };
    if is_utc(zone) {
        return Ok(Transformed::no(expr));
    }
    let is_tried = matches!(expr, Expr::TryCast(_));
    let (unit, zone) = (*unit, Arc::clone(zone));
    let function = match shown.get_type(schema)? {
        DataType::Timestamp(_, None) | DataType::Date32 => {
            let to = DataType::Timestamp(unit, None);
            let shown = match is_tried {
                true => Expr::TryCast(TryCast::new(shown.clone(), to)),
                false => Expr::Cast(Cast::new(shown.clone(), to)),
            };
            let function =
                ScalarUDF::from(AtTimeZoneFunction { unit, zone, signature: unary_signature() });
            ScalarFunction::new_udf(Arc::new(function), vec![shown])
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let function = ScalarUDF::from(TextAtTimeZoneFunction {
                unit,
                zone,
                is_try_cast: is_tried,
                signature: unary_signature(),
            });
            ScalarFunction::new_udf(Arc::new(function), vec![shown.as_ref().clone()])
        }
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::yes(Expr::ScalarFunction(function)))
}

fn unary_signature() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

/// A function that interprets a timestamp without a zone as local time of a zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZoneFunction {
    unit: TimeUnit,
    zone: Arc<str>,
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZoneFunction {
    fn name(&self) -> &str {
        "at_time_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |shown| {
            local_times_to_instants(shown, self.unit, &self.zone, AmbiguousTime::Later)
        })
    }
}

/// A function that casts text to a timestamp of a zone. Text with an offset is that instant; other text is local time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextAtTimeZoneFunction {
    unit: TimeUnit,
    zone: Arc<str>,
    /// True if a malformed text becomes null.
    is_try_cast: bool,
    signature: Signature,
}

impl ScalarUDFImpl for TextAtTimeZoneFunction {
    fn name(&self) -> &str {
        if self.is_try_cast { "try_text_at_time_zone" } else { "text_at_time_zone" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let types: Vec<DataType> =
            args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |texts| {
            let to = DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone)));
            let tried = CastOptions { safe: true, format_options: FormatOptions::new() };
            let unambiguous = cast_with_options(texts, &to, &tried)?;
            if unambiguous.null_count() == texts.logical_null_count() {
                return Ok(unambiguous);
            }
            let options = CastOptions { safe: self.is_try_cast, ..tried };
            let shown = cast_with_options(texts, &DataType::Timestamp(self.unit, None), &options)?;
            let resolved =
                local_times_to_instants(&shown, self.unit, &self.zone, AmbiguousTime::Later)?;
            Ok(zip(&is_not_null(&unambiguous)?, &unambiguous, &resolved)?)
        })
    }
}

/// A function that adds an interval to a timestamp of a zone, or subtracts it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ShiftByIntervalFunction {
    unit: TimeUnit,
    zone: Arc<str>,
    subtracts: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ShiftByIntervalFunction {
    fn name(&self) -> &str {
        if self.subtracts { "earlier_by_clocks" } else { "later_by_clocks" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let is_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let [times, spans] = args.args.as_slice() else {
            return plan_err!("`{}` takes a time and an interval", self.name());
        };
        let found = self.shift_times(&times.to_array(rows)?, &spans.to_array(rows)?)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

impl ShiftByIntervalFunction {
    fn shift_times(&self, times: &ArrayRef, spans: &ArrayRef) -> PlanResult<ArrayRef> {
        let tz: Tz = self.zone.parse()?;
        let sign = if self.subtracts { -1 } else { 1 };
        let counts = cast_with_options(times, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let counts = counts.as_primitive::<Int64Type>();
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        let mut shifted = Int64Array::builder(counts.len());
        for (time, span) in counts.iter().zip(spans.iter()) {
            let (Some(time), Some(span)) = (time, span) else {
                shifted.append_null();
                continue;
            };
            let months = i64::from(span.months) * sign;
            let days = i64::from(span.days) * sign;
            let nanos = i128::from(span.nanoseconds) * i128::from(sign);
            let found = self.shift_by_calendar(&tz, time, months, days).and_then(|time| {
                let own = i128::from(1_000_000_000 / units_per_second(self.unit));
                i64::try_from(i128::from(time) + nanos.div_euclid(own)).ok()
            });
            shifted.append_value(found.ok_or_else(|| {
                let message =
                    format!("a time and an interval do not fit the calendar of `{}`", self.zone);
                into_datafusion_error(Error::Overflow { message, hint: None })
            })?);
        }
        let to = DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone)));
        Ok(cast_with_options(&shifted.finish(), &to, &STRICT_CAST_OPTIONS)?)
    }

    /// Adds months and days in local time, which keeps the time of day; returns `None` beyond the range of the calendar.
    fn shift_by_calendar(&self, tz: &Tz, time: i64, months: i64, days: i64) -> Option<i64> {
        if months == 0 && days == 0 {
            return Some(time);
        }
        let units = units_per_second(self.unit);
        let at = DateTime::from_timestamp(time.div_euclid(units), 0)?.naive_utc();
        let shown = at.checked_add_offset(tz.offset_from_utc_datetime(&at).fix())?;
        let by = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
        let shown = match months < 0 {
            true => shown.checked_sub_months(by)?,
            false => shown.checked_add_months(by)?,
        };
        let shown = shown.checked_add_signed(TimeDelta::try_days(days)?)?;
        let ahead = utc_offset_seconds(tz, shown, AmbiguousTime::Later)?;
        let seconds = shown.and_utc().timestamp().checked_sub(i64::from(ahead))?;
        seconds.checked_mul(units)?.checked_add(time.rem_euclid(units))
    }
}
