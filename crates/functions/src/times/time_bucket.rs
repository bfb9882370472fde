//! `time_bucket`: the start of the bucket that contains a time, for widths of months, or of days and less.
//!
//! Buckets are counted from an origin: 2000-01-03, a Monday, as in DuckDB and Timescale, and 2000-01-01 for
//! widths of months. Buckets of whole days and months follow local time in the zone; shorter buckets have
//! equal lengths across clock changes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{CalendarDate, days_from_date, months_since_year_zero};
use super::local_times::{
    DAY_NANOS, LocalTime, TimeArgument, instant_cast_type, time_out_of_range_error,
};
use super::time_differences::first_day_of_month;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, usage_error, wrong_arguments_error,
};

/// Monday, 2000-01-03, in days since 1970.
const BUCKET_ORIGIN_DAYS: i64 = 10_959;

/// The function `time_bucket`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeBucketFunction;

/// The width of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BucketWidth {
    Months(i64),
    Nanos(i128),
}

impl BucketWidth {
    fn from_interval(span: IntervalMonthDayNano) -> Result<Self> {
        let nanos = i128::from(span.days) * i128::from(DAY_NANOS) + i128::from(span.nanoseconds);
        let width = match (span.months, nanos) {
            (months, 0) if months > 0 => BucketWidth::Months(months.into()),
            (0, nanos) if nanos > 0 => BucketWidth::Nanos(nanos),
            (0, _) | (_, 0) => {
                return Err(usage_error(
                    "the width of a bucket is more than nothing",
                    "time_bucket(INTERVAL '5 minutes', ts)",
                ));
            }
            _ => {
                return Err(usage_error(
                    "the width of a bucket is of months, or of days and less, and not of both",
                    "time_bucket(INTERVAL '1 month', ts), time_bucket(INTERVAL '7 days', ts)",
                ));
            }
        };
        Ok(width)
    }

    /// Returns whether buckets start at local times, because their width is whole days or months.
    fn is_in_whole_days(self) -> bool {
        match self {
            BucketWidth::Months(_) => true,
            BucketWidth::Nanos(nanos) => nanos % i128::from(DAY_NANOS) == 0,
        }
    }

    /// Returns the start of the bucket that contains a time, in nanoseconds since 1970.
    fn bucket_start(self, time: LocalTime, origin: Option<LocalTime>) -> i128 {
        match self {
            BucketWidth::Nanos(width) => {
                let origin = origin.map_or(
                    i128::from(BUCKET_ORIGIN_DAYS) * i128::from(DAY_NANOS),
                    LocalTime::total_nanos,
                );
                let since = time.total_nanos() - origin;
                // Division of 64-bit numbers, where they suffice, is several times as fast.
                let begins = match (i64::try_from(since), i64::try_from(width)) {
                    (Ok(since), Ok(width)) => {
                        i128::from(since) - i128::from(since.rem_euclid(width))
                    }
                    _ => since - since.rem_euclid(width),
                };
                origin + begins
            }
            BucketWidth::Months(width) => {
                let first = CalendarDate { year: 2000, month: 1, day: 1 };
                let origin = origin.unwrap_or(LocalTime {
                    days: days_from_date(first),
                    nanos: 0,
                    utc_offset_seconds: 0,
                });
                let from = origin.date();
                // An origin within a month starts buckets within months.
                let is_before =
                    |time: LocalTime| (time.date().day, time.nanos) < (from.day, origin.nanos);
                let months = months_since_year_zero(time.date())
                    - months_since_year_zero(from)
                    - i64::from(is_before(time));
                let begins = months_since_year_zero(from) + months.div_euclid(width) * width;
                let days = match from.day {
                    1 => first_day_of_month(begins),
                    day => super::calendar::days_from_months(begins, day),
                };
                i128::from(days) * i128::from(DAY_NANOS) + i128::from(origin.nanos)
            }
        }
    }
}

impl RowFunction for TimeBucketFunction {
    fn names(&self) -> &'static [&'static str] {
        &["time_bucket"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "time_bucket(width, ts)\ntime_bucket(width, ts, origin)\ntime_bucket(width, ts, offset)",
            description: "The beginning of the bucket that a time is in, buckets being counted from 2000-01-03, a Monday, \
                   or from 2000-01-01 where they are months wide, or from an origin, or moved by an interval: \
                   `time_bucket(INTERVAL '15 minutes', TIMESTAMP '2026-11-20 08:05:00')` is `2026-11-20T08:00:00`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let ([width, time, ..], 2..=3) = (given, given.len()) else {
            return Err(wrong_arguments_error(self, given));
        };
        let time = instant_cast_type(time).ok_or_else(|| wrong_arguments_error(self, given))?;
        let span = DataType::Interval(IntervalUnit::MonthDayNano);
        let is_span = |of: &DataType| matches!(of, DataType::Interval(_) | DataType::Duration(_));
        if !is_span(width) && !crate::row_function::is_text_type(width) && !width.is_null() {
            return Err(wrong_arguments_error(self, given));
        }
        let mut taken = vec![span.clone(), time.clone()];
        match given.get(2) {
            Some(offset) if is_span(offset) => taken.push(span),
            Some(origin) => {
                instant_cast_type(origin).ok_or_else(|| wrong_arguments_error(self, given))?;
                taken.push(time);
            }
            None => {}
        }
        Ok(taken)
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        if let Some(Some(ScalarValue::IntervalMonthDayNano(Some(width)))) = constants.first() {
            BucketWidth::from_interval(*width)?;
        }
        taken.get(1).cloned().ok_or_else(|| wrong_arguments_error(self, taken))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let span = DataType::Interval(IntervalUnit::MonthDayNano);
        let times = TimeArgument::from_value(given.argument(1)?)?;
        let (widths, width_rows) = given.cast_argument(0, &span)?;
        let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
        let is_offset = given.arguments.get(2).is_some_and(|third| third.data_type() == span);
        let origins = match given.arguments.get(2) {
            Some(third) if !is_offset => Some(TimeArgument::from_value(third)?),
            _ => None,
        };
        let offsets = if is_offset { Some(given.cast_argument(2, &span)?) } else { None };
        let mut kept: Option<(IntervalMonthDayNano, BucketWidth)> = None;
        let mut begun = Int64Array::builder(given.row_count);
        for row in 0..given.row_count {
            let at = width_rows.value_index(row);
            if widths.is_null(at) {
                begun.append_null();
                continue;
            }
            let width = widths.value(at);
            let width = match kept {
                Some((of, kept)) if of == width => kept,
                _ => {
                    let made = BucketWidth::from_interval(width)?;
                    kept = Some((width, made));
                    made
                }
            };
            let is_shown = width.is_in_whole_days();
            let read = |times: &TimeArgument| match is_shown {
                true => times.local_time(row),
                false => Ok(times.utc_time(row)),
            };
            let origin = match &origins {
                Some(origins) => match read(origins)? {
                    Some(origin) => Some(origin),
                    None => {
                        begun.append_null();
                        continue;
                    }
                },
                None => None,
            };
            let offset = match &offsets {
                Some((spans, rows)) => {
                    let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
                    match spans.is_valid(rows.value_index(row)) {
                        true => spans.value(rows.value_index(row)),
                        false => {
                            begun.append_null();
                            continue;
                        }
                    }
                }
                None => IntervalMonthDayNano::new(0, 0, 0),
            };
            let Some(time) = read(&times)? else {
                begun.append_null();
                continue;
            };
            // An offset shifts the time back, and the start of its bucket forward again.
            let begins = width.bucket_start(add_interval(time, offset, -1)?, origin);
            let begins = match offset {
                IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 0 } => begins,
                _ => add_interval(local_time_from_nanos(begins)?, offset, 1)?.total_nanos(),
            };
            begun.append_value(match is_shown {
                true => times.raw_value_of_local_time(begins, true)?,
                false => times.raw_value_of_utc_time(begins)?,
            });
        }
        let begun: ArrayRef = Arc::new(begun.finish());
        let answer = given.return_type;
        let begun = match answer {
            DataType::Date32 => {
                let days: Int32Array = begun
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .try_unary(|days| i32::try_from(days).map_err(|_| time_out_of_range_error()))?;
                Arc::new(days) as ArrayRef
            }
            _ => begun,
        };
        Ok(cast_with_options(&begun, answer, &STRICT_CAST_OPTIONS)?)
    }
}

fn local_time_from_nanos(nanos: i128) -> Result<LocalTime> {
    let day = i128::from(DAY_NANOS);
    let days = i64::try_from(nanos.div_euclid(day)).map_err(|_| time_out_of_range_error())?;
    // Less than a day of nanoseconds fits.
    let nanos = nanos.rem_euclid(day) as i64;
    Ok(LocalTime { days, nanos, utc_offset_seconds: 0 })
}

/// Adds an interval to a time, or subtracts it if `sign` is -1: months first, then days, then the rest.
fn add_interval(time: LocalTime, by: IntervalMonthDayNano, sign: i64) -> Result<LocalTime> {
    if (by.months, by.days, by.nanoseconds) == (0, 0, 0) {
        return Ok(time);
    }
    let mut days = time.days;
    if by.months != 0 {
        let date = time.date();
        let months = months_since_year_zero(date) + sign * i64::from(by.months);
        days = super::calendar::days_from_months(months, date.day);
    }
    days += sign * i64::from(by.days);
    let nanos = i128::from(days) * i128::from(DAY_NANOS)
        + i128::from(time.nanos)
        + i128::from(sign) * i128::from(by.nanoseconds);
    local_time_from_nanos(nanos)
}
