//! `date_trunc` for the whole range of timestamps, `date_bin` and `date_part` that reject times out of their range, and
//! casts of times to whole seconds.
//!
//! DataFusion's `date_trunc` converts to nanoseconds, so that it fails before 1678 and after 2261, and converts
//! dates to nanoseconds. Here a timestamp without a zone, or in UTC, is truncated in its own unit.
//! For whole days, the local time of another zone is truncated as well: otherwise the rows of a day with two midnights
//! would be two groups. Hours of such zones and times of day go to DataFusion's function.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, new_null_array};
use arrow::compute::cast_with_options;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::Error;

use crate::local_times::{
    AmbiguousTime, instants_to_local_times, is_utc, local_times_to_instants, units_per_second,
};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::plan_rewriting::invoke_unary_function;

/// Returns the function to register.
pub(crate) fn date_trunc_udf() -> ScalarUDF {
    ScalarUDF::from(DateTruncFunction {
        datafusion_function: datetime::date_trunc(),
        signature: Signature::user_defined(Volatility::Immutable),
        aliases: vec!["datetrunc".into()],
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTruncFunction {
    datafusion_function: Arc<ScalarUDF>,
    signature: Signature,
    aliases: Vec<String>,
}

/// Microseconds per day.
const DAY_MICROS: i64 = 86_400_000_000;

/// The precision of a truncation.
#[derive(Debug, Clone, Copy)]
enum Truncation {
    /// A number of microseconds.
    Micros(i64),
    Week,
    /// A number of months, counted from the year 0: as in DuckDB, a decade, a century and a millennium begin with a year
    /// that ends in zeros.
    Months(i64),
    /// The first Monday of the ISO 8601 week-numbering year.
    IsoYear,
}

impl Truncation {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "microsecond" => Truncation::Micros(1),
            "millisecond" => Truncation::Micros(1_000),
            "second" | "epoch" => Truncation::Micros(1_000_000),
            "minute" => Truncation::Micros(60_000_000),
            "hour" => Truncation::Micros(3_600_000_000),
            "day" | "doy" | "dayofyear" | "dow" | "dayofweek" | "isodow" | "weekday" | "julian" => {
                Truncation::Micros(DAY_MICROS)
            }
            "week" | "weekofyear" | "yearweek" => Truncation::Week,
            "month" => Truncation::Months(1),
            "quarter" => Truncation::Months(3),
            "year" => Truncation::Months(12),
            "decade" => Truncation::Months(120),
            "century" => Truncation::Months(1_200),
            "millennium" => Truncation::Months(12_000),
            "isoyear" => Truncation::IsoYear,
            _ => return None,
        })
    }

    /// Truncates `time`, which has `units` per second; returns `None` if the result is before the first representable
    /// time.
    fn truncate(self, time: i64, units: i64) -> Option<i64> {
        let day = 86_400 * units;
        match self {
            Truncation::Micros(micros) => {
                // If the unit is coarser than the precision, there is nothing to truncate.
                let step = match units.checked_mul(micros) {
                    Some(step) => step / 1_000_000,
                    None => micros / 1_000_000 * units,
                };
                time.checked_sub(time.rem_euclid(step.max(1)))
            }
            Truncation::Week => week_monday(time.div_euclid(day)).checked_mul(day),
            Truncation::Months(months) => {
                let (year, month) = year_and_month(time.div_euclid(day));
                let first = (12 * year + month - 1).div_euclid(months) * months;
                first_day_of_month(first.div_euclid(12), first.rem_euclid(12) + 1).checked_mul(day)
            }
            Truncation::IsoYear => {
                // A week belongs to the year of its Thursday, and January 4 lies in the first week.
                let (year, _) = year_and_month(week_monday(time.div_euclid(day)) + 3);
                week_monday(first_day_of_month(year, 1) + 3).checked_mul(day)
            }
        }
    }
}

// Hinnant's algorithms (*chrono-Compatible Low-Level Date Algorithms*): years begin in March, so that
// the leap day comes last.

/// Returns the Monday of a week, both as days since January 1, 1970, a Thursday.
fn week_monday(days: i64) -> i64 {
    days - (days + 3).rem_euclid(7)
}

/// Returns the year and month of a day since 1970.
fn year_and_month(days: i64) -> (i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month)
}

/// Returns the first day of a month, in days since 1970.
fn first_day_of_month(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn truncate_array(array: &ArrayRef, part: Truncation, unit: TimeUnit) -> PlanResult<ArrayRef> {
    let units = units_per_second(unit);
    let times = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    let times = times.as_primitive::<Int64Type>();
    let found: Int64Array = times.try_unary(|time| {
        part.truncate(time, units).ok_or_else(|| {
            into_datafusion_error(Error::Overflow {
                message: "`date_trunc` of a time this early does not fit its type".into(),
                hint: Some("cast it to TIMESTAMP(6), which reaches further".into()),
            })
        })
    })?;
    Ok(cast_with_options(&found, array.data_type(), &STRICT_CAST_OPTIONS)?)
}

impl DateTruncFunction {
    /// Truncates by parts that vary by row: truncates all rows once for each distinct part.
    fn truncate_by_row(
        &self,
        parts: &ArrayRef,
        given: &ScalarFunctionArgs,
    ) -> PlanResult<ColumnarValue> {
        let parts = cast_with_options(parts, &DataType::Utf8, &STRICT_CAST_OPTIONS)?;
        let parts = parts.as_string::<i32>();
        let names: BTreeSet<&str> = parts.iter().flatten().collect();
        let mut found = new_null_array(given.return_field.data_type(), given.number_rows);
        for name in names {
            let part = ColumnarValue::Scalar(ScalarValue::from(name));
            let time = given.args.get(1).cloned();
            let args = std::iter::once(part).chain(time).collect();
            let args = ScalarFunctionArgs { args, ..given.clone() };
            let truncated = self.invoke_with_args(args)?.into_array(parts.len())?;
            let is_of_part: BooleanArray =
                parts.iter().map(|part| Some(part == Some(name))).collect();
            found = zip(&is_of_part, &truncated, &found)?;
        }
        Ok(ColumnarValue::Array(found))
    }
}

impl ScalarUDFImpl for DateTruncFunction {
    fn name(&self) -> &str {
        scalars::DATE_TRUNC
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        let [part, time] = arguments else {
            return plan_err!("`date_trunc` is called as date_trunc('day', x)");
        };
        let part = match part {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => part.clone(),
            DataType::Null => DataType::Utf8,
            _ => return plan_err!("`date_trunc` is called as date_trunc('day', x)"),
        };
        let time = match time {
            DataType::Timestamp(_, _) | DataType::Time32(_) | DataType::Time64(_) => time.clone(),
            DataType::Date32
            | DataType::Date64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => {
                return plan_err!(
                    "`date_trunc` takes dates and times; its argument is of type {}",
                    sql_type_name(other)
                );
            }
        };
        Ok(vec![part, time])
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [_, time] => Ok(time.clone()),
            _ => plan_err!("`date_trunc` is called as date_trunc('day', x)"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        // DataFusion's considers only the time; the part may be null, too.
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let field = self.datafusion_function.return_field_from_args(args)?;
        Ok(Arc::new(field.as_ref().clone().with_nullable(is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let part = match args.args.first() {
            Some(ColumnarValue::Scalar(part)) if part.is_null() => {
                let nulls = new_null_array(args.return_field.data_type(), args.number_rows);
                return Ok(ColumnarValue::Array(nulls));
            }
            Some(ColumnarValue::Scalar(part)) => {
                part.try_as_str().flatten().and_then(Truncation::parse)
            }
            Some(ColumnarValue::Array(parts)) => {
                let parts = Arc::clone(parts);
                return self.truncate_by_row(&parts, &args);
            }
            None => None,
        };
        let of = args.args.get(1).map(ColumnarValue::data_type);
        let zoned = match &of {
            Some(DataType::Timestamp(unit, Some(zone))) if !is_utc(zone) => Some((*unit, zone)),
            _ => None,
        };
        if let (
            Some(
                Truncation::Micros(DAY_MICROS..)
                | Truncation::Week
                | Truncation::Months(_)
                | Truncation::IsoYear,
            ),
            Some((unit, zone)),
        ) = (part, zoned)
            && let Some(part) = part
        {
            // Truncates local time, and converts the result back.
            return invoke_unary_function(&args.args[1..], |time| {
                let shown = instants_to_local_times(time, unit, zone)?;
                local_times_to_instants(
                    &truncate_array(&shown, part, unit)?,
                    unit,
                    zone,
                    AmbiguousTime::Earlier,
                )
            });
        }
        let unit = match of {
            Some(DataType::Timestamp(unit, _)) if zoned.is_none() => Some(unit),
            _ => None,
        };
        match (part, unit, args.args.get(1)) {
            (Some(part), Some(unit), Some(ColumnarValue::Array(array))) => {
                Ok(ColumnarValue::Array(truncate_array(array, part, unit)?))
            }
            (Some(part), Some(unit), Some(ColumnarValue::Scalar(value))) => {
                let found = truncate_array(&value.to_array()?, part, unit)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?))
            }
            _ => self.datafusion_function.invoke_with_args(args),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.datafusion_function.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(datetime::date_trunc);
        THEIRS.documentation()
    }
}

/// Returns a `date_bin` that wraps DataFusion's. DataFusion's returns null for times beyond the range of nanoseconds, and
/// uses UTC days for every zone: here both are errors.
pub(crate) fn date_bin_udf() -> ScalarUDF {
    let theirs = datetime::date_bin();
    let signature = theirs.signature().clone();
    ScalarUDF::from(DateBinFunction { datafusion_function: theirs, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBinFunction {
    datafusion_function: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for DateBinFunction {
    fn name(&self) -> &str {
        scalars::DATE_BIN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        if let Some(DataType::Timestamp(_, Some(zone))) =
            args.arg_fields.get(1).map(|field| field.data_type())
            && !is_utc(zone)
        {
            return Err(into_datafusion_error(Error::usage_with_hint(
                format!("`date_bin` of a time of the zone {zone} would have the days of UTC"),
                format!(
                    "bin what the clocks show: CAST(ts AT TIME ZONE '{zone}' AS TIMESTAMP); \
                     date_trunc('day', ts) knows the zone"
                ),
            )));
        }
        self.datafusion_function.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let nulls = |value: &ColumnarValue| match value {
            ColumnarValue::Array(array) => array.logical_null_count(),
            ColumnarValue::Scalar(value) => usize::from(value.is_null()),
        };
        let times = args.args.get(1).map_or(0, nulls);
        let has_others = args.args.iter().enumerate().any(|(at, arg)| at != 1 && nulls(arg) > 0);
        let found = self.datafusion_function.invoke_with_args(args)?;
        match !has_others && nulls(&found) > times {
            true => Err(into_datafusion_error(Error::Overflow {
                message: "`date_bin` reaches from 1677 to 2262, and a time lies outside of it"
                    .into(),
                hint: Some("date_trunc takes any time; WHERE leaves out what is none".into()),
            })),
            false => Ok(found),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.datafusion_function.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(datetime::date_bin);
        THEIRS.documentation()
    }
}

/// Returns a `date_part` that wraps DataFusion's. DataFusion's returns null for years beyond the range of its calendar,
/// which ends at 262142: here they are an error.
pub(crate) fn date_part_udf() -> Arc<ScalarUDF> {
    static OURS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(DatePartFunction { datafusion_function: datetime::date_part() }))
    });
    Arc::clone(&OURS)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePartFunction {
    datafusion_function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DatePartFunction {
    fn name(&self) -> &str {
        self.datafusion_function.name()
    }

    fn aliases(&self) -> &[String] {
        self.datafusion_function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.datafusion_function.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        self.datafusion_function.return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        self.datafusion_function.return_field_from_args(args)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        context: &SimplifyContext,
    ) -> PlanResult<PreimageResult> {
        self.datafusion_function.inner().preimage(args, literal, context)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let nulls = |value: &ColumnarValue| match value {
            ColumnarValue::Array(array) => array.logical_null_count(),
            ColumnarValue::Scalar(value) => usize::from(value.is_null()),
        };
        let before = args.args.get(1).map_or(0, nulls);
        let found = self.datafusion_function.invoke_with_args(args)?;
        match nulls(&found) > before {
            true => Err(into_datafusion_error(Error::Overflow {
                message: "`date_part` knows the years -262143 to 262142, and a time is in another"
                    .into(),
                hint: Some("WHERE leaves out what is no real time".into()),
            })),
            false => Ok(found),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        static THEIRS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(datetime::date_part);
        THEIRS.documentation()
    }
}

/// Returns the whole seconds of a timestamp since 1970, for any unit: the value of a cast to an
/// integer, and the argument of a cast to TIMESTAMP.
pub(crate) fn whole_seconds_call(time: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::from(WholeSecondsFunction { signature }))
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![time]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeSecondsFunction {
    signature: Signature,
}

impl ScalarUDFImpl for WholeSecondsFunction {
    fn name(&self) -> &str {
        "whole_seconds"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Int64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        Ok(inputs.first().map_or(SortProperties::Unordered, |input| input.sort_properties))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |array| {
            let DataType::Timestamp(unit, _) = array.data_type() else {
                return plan_err!("a {} has no seconds", sql_type_name(array.data_type()));
            };
            let units = units_per_second(*unit);
            let times = cast_with_options(array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
            let seconds: Int64Array =
                times.as_primitive::<Int64Type>().unary(|time| time.div_euclid(units));
            Ok(Arc::new(seconds) as ArrayRef)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{first_day_of_month, year_and_month};

    #[test]
    fn months_begin_on_calendar_days() {
        for (days, year, month) in [
            (0, 1970, 1),
            (-1, 1969, 12),
            (11_016, 2000, 2),
            (11_017, 2000, 3),
            (2_932_896, 9999, 12),
            (-719_162, 1, 1),
            (-719_163, 0, 12),
        ] {
            assert_eq!(year_and_month(days), (year, month), "{days}");
        }
        for month in -120_000..120_000_i64 {
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
            let first = first_day_of_month(year, month);
            assert_eq!(year_and_month(first), (year, month));
            assert_ne!(year_and_month(first - 1), (year, month));
        }
    }
}
