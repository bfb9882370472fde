//! `time_bucket`: the beginning of the bucket that a time is in, of widths of months, or of days and less.
//!
//! Buckets are counted from an origin: 2000-01-03, a Monday, as DuckDB and Timescale do, and 2000-01-01 for
//! widths of months. Buckets of whole days and months are what the clocks of a zone show; shorter ones are
//! equally long wherever clocks leap.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{Date, days_of, months_of};
use super::clocks::{DAY_NANOS, Shown, Times, as_instant, beyond};
use super::differences::first_of_month;
use crate::callable::{Function, Given, Told, called_as, usage};

/// Monday, 2000-01-03, in days since 1970.
const MONDAY: i64 = 10_959;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeBucket;

/// How wide buckets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Months(i64),
    Nanos(i128),
}

impl Width {
    fn of(span: IntervalMonthDayNano) -> Result<Self> {
        let nanos = i128::from(span.days) * i128::from(DAY_NANOS) + i128::from(span.nanoseconds);
        let width = match (span.months, nanos) {
            (months, 0) if months > 0 => Width::Months(months.into()),
            (0, nanos) if nanos > 0 => Width::Nanos(nanos),
            (0, _) | (_, 0) => {
                return Err(usage(
                    "the width of a bucket is more than nothing",
                    "time_bucket(INTERVAL '5 minutes', ts)",
                ));
            }
            _ => {
                return Err(usage(
                    "the width of a bucket is of months, or of days and less, and not of both",
                    "time_bucket(INTERVAL '1 month', ts), time_bucket(INTERVAL '7 days', ts)",
                ));
            }
        };
        Ok(width)
    }

    /// Whether buckets begin as clocks show it.
    fn is_of_days(self) -> bool {
        match self {
            Width::Months(_) => true,
            Width::Nanos(nanos) => nanos % i128::from(DAY_NANOS) == 0,
        }
    }

    /// The beginning of a time's bucket, in nanoseconds since 1970.
    fn begins(self, time: Shown, origin: Option<Shown>) -> i128 {
        match self {
            Width::Nanos(width) => {
                let origin =
                    origin.map_or(i128::from(MONDAY) * i128::from(DAY_NANOS), Shown::all_nanos);
                let since = time.all_nanos() - origin;
                // Numbers of 64 bits, where they do, are divided several times as fast.
                let begins = match (i64::try_from(since), i64::try_from(width)) {
                    (Ok(since), Ok(width)) => {
                        i128::from(since) - i128::from(since.rem_euclid(width))
                    }
                    _ => since - since.rem_euclid(width),
                };
                origin + begins
            }
            Width::Months(width) => {
                let first = Date { year: 2000, month: 1, day: 1 };
                let origin = origin.unwrap_or(Shown { days: days_of(first), nanos: 0, ahead: 0 });
                let from = origin.date();
                // An origin within a month begins buckets within months.
                let is_before =
                    |time: Shown| (time.date().day, time.nanos) < (from.day, origin.nanos);
                let months = months_of(time.date()) - months_of(from) - i64::from(is_before(time));
                let begins = months_of(from) + months.div_euclid(width) * width;
                let days = match from.day {
                    1 => first_of_month(begins),
                    day => super::calendar::days_of_month(begins, day),
                };
                i128::from(days) * i128::from(DAY_NANOS) + i128::from(origin.nanos)
            }
        }
    }
}

impl Function for TimeBucket {
    fn names(&self) -> &'static [&'static str] {
        &["time_bucket"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "time_bucket(width, ts)\ntime_bucket(width, ts, origin)\ntime_bucket(width, ts, offset)",
            what: "The beginning of the bucket that a time is in, buckets being counted from 2000-01-03, a Monday, \
                   or from 2000-01-01 where they are months wide, or from an origin, or moved by an interval: \
                   `time_bucket(INTERVAL '15 minutes', TIMESTAMP '2026-11-20 08:05:00')` is `2026-11-20T08:00:00`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let ([width, time, ..], 2..=3) = (given, given.len()) else {
            return Err(called_as(self, given));
        };
        let time = as_instant(time).ok_or_else(|| called_as(self, given))?;
        let span = DataType::Interval(IntervalUnit::MonthDayNano);
        let is_span = |of: &DataType| matches!(of, DataType::Interval(_) | DataType::Duration(_));
        if !is_span(width) && !crate::callable::is_text(width) && !width.is_null() {
            return Err(called_as(self, given));
        }
        let mut taken = vec![span.clone(), time.clone()];
        match given.get(2) {
            Some(offset) if is_span(offset) => taken.push(span),
            Some(origin) => {
                as_instant(origin).ok_or_else(|| called_as(self, given))?;
                taken.push(time);
            }
            None => {}
        }
        Ok(taken)
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let Some(Some(ScalarValue::IntervalMonthDayNano(Some(width)))) = constants.first() {
            Width::of(*width)?;
        }
        taken.get(1).cloned().ok_or_else(|| called_as(self, taken))
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let span = DataType::Interval(IntervalUnit::MonthDayNano);
        let times = Times::of(given.value(1)?)?;
        let (widths, width_rows) = given.cast(0, &span)?;
        let widths = widths.as_primitive::<IntervalMonthDayNanoType>();
        let is_offset = given.values.get(2).is_some_and(|third| third.data_type() == span);
        let origins = match given.values.get(2) {
            Some(third) if !is_offset => Some(Times::of(third)?),
            _ => None,
        };
        let offsets = if is_offset { Some(given.cast(2, &span)?) } else { None };
        let mut kept: Option<(IntervalMonthDayNano, Width)> = None;
        let mut begun = Int64Array::builder(given.rows);
        for row in 0..given.rows {
            let at = width_rows.at(row);
            if widths.is_null(at) {
                begun.append_null();
                continue;
            }
            let width = widths.value(at);
            let width = match kept {
                Some((of, kept)) if of == width => kept,
                _ => {
                    let made = Width::of(width)?;
                    kept = Some((width, made));
                    made
                }
            };
            let is_shown = width.is_of_days();
            let read = |times: &Times| match is_shown {
                true => times.at(row),
                false => Ok(times.instant(row)),
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
                    match spans.is_valid(rows.at(row)) {
                        true => spans.value(rows.at(row)),
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
            // The time is moved back, and the beginning of its bucket on again.
            let begins = width.begins(moved(time, offset, -1)?, origin);
            let begins = match offset {
                IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 0 } => begins,
                _ => moved(shown_of(begins)?, offset, 1)?.all_nanos(),
            };
            begun.append_value(match is_shown {
                true => times.instant_of(begins, true)?,
                false => times.unit_of(begins)?,
            });
        }
        let begun: ArrayRef = Arc::new(begun.finish());
        let answer = given.answer;
        let begun = match answer {
            DataType::Date32 => {
                let days: Int32Array = begun
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .try_unary(|days| i32::try_from(days).map_err(|_| beyond()))?;
                Arc::new(days) as ArrayRef
            }
            _ => begun,
        };
        Ok(cast_with_options(&begun, answer, &STRICT_CAST_OPTIONS)?)
    }
}

fn shown_of(nanos: i128) -> Result<Shown> {
    let day = i128::from(DAY_NANOS);
    let days = i64::try_from(nanos.div_euclid(day)).map_err(|_| beyond())?;
    // Less than a day.
    let nanos = nanos.rem_euclid(day) as i64;
    Ok(Shown { days, nanos, ahead: 0 })
}

/// A time so much later, or earlier: by months, then days, then the rest.
fn moved(time: Shown, by: IntervalMonthDayNano, sign: i64) -> Result<Shown> {
    if (by.months, by.days, by.nanoseconds) == (0, 0, 0) {
        return Ok(time);
    }
    let mut days = time.days;
    if by.months != 0 {
        let date = time.date();
        let months = months_of(date) + sign * i64::from(by.months);
        days = super::calendar::days_of_month(months, date.day);
    }
    days += sign * i64::from(by.days);
    let nanos = i128::from(days) * i128::from(DAY_NANOS)
        + i128::from(time.nanos)
        + i128::from(sign) * i128::from(by.nanoseconds);
    shown_of(nanos)
}
