//! Distances of two times: `date_diff` counts the boundaries of a unit between them, `date_sub` the whole
//! units; `age` and `months_between` count months.
//!
//! The rules are DuckDB's (its manual, "Timestamp Functions"): a week begins on Monday. A month is whole when
//! the clock shows the same day and time again, or the month's last day if it has no such day. Days and
//! longer units are counted in the local times of zones, each time in its own zone. Shorter units are counted
//! in instants. Their boundaries are those of local time: in Kolkata, clocks pass a full hour 30 minutes
//! before UTC does.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::calendar::{
    days_from_months, days_in_month, first_day_of_year, iso_week, iso_year_start,
    months_since_year_zero,
};
use super::local_times::{
    DAY_NANOS, LocalTime, SECOND_NANOS, TimeArgument, instant_cast_type, time_cast_type,
    time_out_of_range_error,
};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, text_cast_type, usage_error, wrong_arguments_error,
};

/// A unit in which a difference is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DifferenceUnit {
    Nanos(i64),
    Weeks,
    Months(i64),
    IsoYears,
}

impl DifferenceUnit {
    /// Parses the name of a unit: singular, plural or a common abbreviation.
    ///
    /// # Errors
    /// Fails for an unknown name.
    pub(super) fn from_name(name: &str) -> Result<Self> {
        let lower = name.trim().to_lowercase();
        Ok(match lower.as_str() {
            "nanosecond" | "nanoseconds" | "ns" => DifferenceUnit::Nanos(1),
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => {
                DifferenceUnit::Nanos(1_000)
            }
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => {
                DifferenceUnit::Nanos(1_000_000)
            }
            "second" | "seconds" | "s" | "ss" | "sec" | "secs" => {
                DifferenceUnit::Nanos(SECOND_NANOS)
            }
            "minute" | "minutes" | "m" | "mi" | "n" | "min" | "mins" => {
                DifferenceUnit::Nanos(60 * SECOND_NANOS)
            }
            "hour" | "hours" | "h" | "hh" | "hr" | "hrs" => {
                DifferenceUnit::Nanos(3_600 * SECOND_NANOS)
            }
            "day" | "days" | "d" | "dd" | "dayofmonth" | "dayofyear" | "doy" | "dy" | "julian"
            | "dow" | "isodow" | "dayofweek" | "weekday" => DifferenceUnit::Nanos(DAY_NANOS),
            "week" | "weeks" | "w" | "wk" | "ww" | "isoweek" | "weekofyear" | "yearweek" => {
                DifferenceUnit::Weeks
            }
            "month" | "months" | "mm" | "mon" | "mons" => DifferenceUnit::Months(1),
            "quarter" | "quarters" | "q" | "qq" | "qtr" => DifferenceUnit::Months(3),
            "year" | "years" | "y" | "yy" | "yyyy" | "yr" | "yrs" => DifferenceUnit::Months(12),
            "decade" | "decades" => DifferenceUnit::Months(120),
            "century" | "centuries" => DifferenceUnit::Months(1_200),
            "millennium" | "millennia" | "millenniums" => DifferenceUnit::Months(12_000),
            "isoyear" => DifferenceUnit::IsoYears,
            _ => {
                return Err(usage_error(
                    format!("`{name}` is no unit of time"),
                    "units are nanosecond, microsecond, millisecond, second, minute, hour, day, week, month, \
                     quarter, year, decade, century and millennium",
                ));
            }
        })
    }

    /// Returns whether the unit is counted in local times rather than in instants.
    fn is_day_or_longer(self) -> bool {
        !matches!(self, DifferenceUnit::Nanos(nanos) if nanos < DAY_NANOS)
    }

    /// Returns the number of boundaries of a unit shorter than a day between two times, each an instant with
    /// its local time.
    fn short_boundaries_between([start, end]: [(LocalTime, LocalTime); 2], nanos: i64) -> i128 {
        let begun = |(instant, shown): (LocalTime, LocalTime)| {
            instant.total_nanos() - i128::from(shown.nanos % nanos)
        };
        (begun(end) - begun(start)) / i128::from(nanos)
    }

    /// Returns the number of boundaries of a day or a longer unit between two times.
    fn boundaries_between(self, start: LocalTime, end: LocalTime) -> i128 {
        match self {
            // Days: `short_boundaries_between` counts shorter units.
            DifferenceUnit::Nanos(_) => (end.days - start.days).into(),
            // A week began on Monday, 1969-12-29.
            DifferenceUnit::Weeks => {
                ((end.days + 3).div_euclid(7) - (start.days + 3).div_euclid(7)).into()
            }
            DifferenceUnit::Months(months) => {
                let of = |shown: LocalTime| months_since_year_zero(shown.date()).div_euclid(months);
                (of(end) - of(start)).into()
            }
            DifferenceUnit::IsoYears => (iso_week(end.days).0 - iso_week(start.days).0).into(),
        }
    }

    /// Returns the number of whole units between two times.
    fn whole_units_between(self, start: LocalTime, end: LocalTime) -> i128 {
        match self {
            DifferenceUnit::Nanos(nanos) => {
                (end.total_nanos() - start.total_nanos()) / i128::from(nanos)
            }
            DifferenceUnit::Weeks => {
                (end.total_nanos() - start.total_nanos()) / (7 * i128::from(DAY_NANOS))
            }
            DifferenceUnit::Months(months) => (whole_months_between(start, end) / months).into(),
            DifferenceUnit::IsoYears => {
                if start.total_nanos() > end.total_nanos() {
                    return -self.whole_units_between(end, start);
                }
                let of = |shown: LocalTime| {
                    let year = iso_week(shown.days).0;
                    let since = shown.total_nanos() - days_to_nanos(iso_year_start(year));
                    (i128::from(year), since)
                };
                let ((from, since), (to, until)) = (of(start), of(end));
                to - from - i128::from(until < since)
            }
        }
    }
}

fn days_to_nanos(days: i64) -> i128 {
    i128::from(days) * i128::from(DAY_NANOS)
}

/// Returns the number of whole months between two times.
fn whole_months_between(start: LocalTime, end: LocalTime) -> i64 {
    if start.total_nanos() > end.total_nanos() {
        return -whole_months_between(end, start);
    }
    let (from, to) = (start.date(), end.date());
    let months = months_since_year_zero(to) - months_since_year_zero(from);
    let day = from.day.min(days_in_month(to.year, to.month));
    months - i64::from((day, start.nanos) > (to.day, end.nanos))
}

/// Two arguments of times.
struct TimePairArgument {
    start: TimeArgument,
    end: TimeArgument,
}

impl TimePairArgument {
    fn from_arguments(given: &ArgumentBatch<'_>, start: usize, end: usize) -> Result<Self> {
        Ok(TimePairArgument {
            start: TimeArgument::from_value(given.argument(start)?)?,
            end: TimeArgument::from_value(given.argument(end)?)?,
        })
    }

    fn local_times(&self, row: usize) -> Result<Option<(LocalTime, LocalTime)>> {
        Ok(self.start.local_time(row)?.zip(self.end.local_time(row)?))
    }

    fn utc_times(&self, row: usize) -> Option<(LocalTime, LocalTime)> {
        self.start.utc_time(row).zip(self.end.utc_time(row))
    }
}

fn to_bigint(found: i128) -> Result<i64> {
    i64::try_from(found).map_err(|_| {
        crate::row_function::overflow_error(
            "two times are too far apart for a BIGINT of so small units",
            Some("larger units fit: 'microsecond', 'second'"),
        )
    })
}

/// The functions `date_diff` and `date_sub`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum DifferenceFunction {
    /// `date_diff`: counts boundaries.
    DateDiff,
    /// `date_sub`: counts whole units.
    DateSub,
}

impl RowFunction for DifferenceFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DifferenceFunction::DateDiff => &["date_diff", "datediff"],
            DifferenceFunction::DateSub => {
                &["date_sub", "datesub", "timestampdiff", "timestamp_diff"]
            }
        }
    }

    fn docs(&self) -> FunctionDocs {
        match self {
            DifferenceFunction::DateDiff => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "date_diff(unit, start, end)\ndate_diff(end, start)",
                description: "How many boundaries of a unit (`microsecond` to `millennium`; weeks begin on Monday) are \
                       between two times, of two dates alone days: \
                       `date_diff('month', DATE '2026-01-31', DATE '2026-02-01')` is `1`.",
            },
            DifferenceFunction::DateSub => FunctionDocs {
                section: DOC_SECTION_DATETIME,
                syntax: "date_sub(unit, start, end)\ndate_sub(day, n)",
                description: "How many whole units are between two times: \
                       `date_sub('month', DATE '2026-01-31', DATE '2026-02-01')` is `0`; of a day and a number the \
                       day so many days before: `date_sub(DATE '2026-03-01', 1)` is `2026-02-28`.",
            },
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (given, self) {
            ([unit, start, end], _) => {
                (|| Some(vec![text_cast_type(unit)?, time_cast_type(start)?, time_cast_type(end)?]))(
                )
            }
            ([end, start], DifferenceFunction::DateDiff) => instant_cast_type(end)
                .zip(instant_cast_type(start))
                .map(|(end, start)| vec![end, start]),
            ([day, count], DifferenceFunction::DateSub) => day_shift_types(day, count),
            _ => None,
        };
        types.ok_or_else(|| wrong_arguments_error(self, given))
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        if taken.len() == 3 {
            let unit = constants.first().copied().flatten();
            if let Some(unit) = unit.and_then(|unit| unit.try_as_str().flatten()) {
                DifferenceUnit::from_name(unit)?;
            }
        }
        match (taken.len(), self) {
            (2, DifferenceFunction::DateSub) => Ok(DataType::Date32),
            _ => Ok(DataType::Int64),
        }
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if given.arguments.len() == 2 {
            return match self {
                DifferenceFunction::DateDiff => {
                    let pair = TimePairArgument::from_arguments(given, 1, 0)?;
                    let days = (0..given.row_count).map(|row| {
                        Ok(pair.local_times(row)?.map(|(start, end)| end.days - start.days))
                    });
                    Ok(Arc::new(days.collect::<Result<Int64Array>>()?))
                }
                DifferenceFunction::DateSub => super::day_functions::add_days(given, -1),
            };
        }
        let units = given.text_argument(0)?;
        let pair = TimePairArgument::from_arguments(given, 1, 2)?;
        if pair.start.has_days != pair.end.has_days {
            return Err(usage_error(
                format!("`{}` of a time of day and a day has no answer", self.names()[0]),
                "CAST(ts AS TIME) is the time of day of a timestamp",
            ));
        }
        let mut kept = crate::row_function::LastTextCache::new();
        let mut found = Int64Array::builder(given.row_count);
        for row in 0..given.row_count {
            let Some(unit) = units.get(row) else {
                found.append_null();
                continue;
            };
            let unit = *kept.get_or_parse(unit, DifferenceUnit::from_name)?;
            if let (DifferenceFunction::DateDiff, DifferenceUnit::Nanos(nanos @ ..DAY_NANOS)) =
                (self, unit)
            {
                let times = pair.utc_times(row).zip(pair.local_times(row)?);
                found.append_option(match times {
                    Some(((start, end), (shown_start, shown_end))) => {
                        let times = [(start, shown_start), (end, shown_end)];
                        Some(to_bigint(DifferenceUnit::short_boundaries_between(times, nanos))?)
                    }
                    None => None,
                });
                continue;
            }
            let times = match unit.is_day_or_longer() {
                true => pair.local_times(row)?,
                false => pair.utc_times(row),
            };
            let Some((start, end)) = times else {
                found.append_null();
                continue;
            };
            found.append_value(to_bigint(match self {
                DifferenceFunction::DateDiff => unit.boundaries_between(start, end),
                DifferenceFunction::DateSub => unit.whole_units_between(start, end),
            })?);
        }
        Ok(Arc::new(found.finish()))
    }
}

/// Returns the types that a day and the number of days to shift it by are cast to.
pub(super) fn day_shift_types(day: &DataType, count: &DataType) -> Option<Vec<DataType>> {
    let is_count = count.is_integer() || count.is_null();
    let day = match instant_cast_type(day)? {
        // A text is a day here, not an instant.
        DataType::Timestamp(_, _) if !matches!(day, DataType::Timestamp(_, _)) => DataType::Date32,
        other => other,
    };
    is_count.then(|| vec![day, DataType::Int64])
}

/// The function `age(end, start)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct AgeFunction;

impl RowFunction for AgeFunction {
    fn names(&self) -> &'static [&'static str] {
        &["age"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "age(end, start)",
            description: "How much later one time is than another, in months, days and what is left: \
                   `age(DATE '2026-11-20', DATE '2025-09-30')` is `13 mons 20 days`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() == 1 {
            return Err(usage_error("`age` takes two times", "age(current_date(), birthday)"));
        }
        let [end, start] = given else { return Err(wrong_arguments_error(self, given)) };
        match (instant_cast_type(end), instant_cast_type(start)) {
            (Some(end), Some(start)) => Ok(vec![end, start]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let pair = TimePairArgument::from_arguments(given, 1, 0)?;
        let spans = (0..given.row_count).map(|row| match pair.local_times(row)? {
            Some((start, end)) => age_between(start, end).map(Some),
            None => Ok(None),
        });
        Ok(Arc::new(spans.collect::<Result<IntervalMonthDayNanoArray>>()?))
    }
}

/// Returns the whole months, then the days, then the rest between two times, each with the sign of the
/// difference. Days are counted in the month of the earlier time, as in PostgreSQL.
fn age_between(start: LocalTime, end: LocalTime) -> Result<IntervalMonthDayNano> {
    if start.total_nanos() > end.total_nanos() {
        let IntervalMonthDayNano { months, days, nanoseconds } = age_between(end, start)?;
        return Ok(IntervalMonthDayNano::new(-months, -days, -nanoseconds));
    }
    let (from, to) = (start.date(), end.date());
    let mut months = months_since_year_zero(to) - months_since_year_zero(from);
    let mut days = i64::from(to.day) - i64::from(from.day);
    let mut nanos = end.nanos - start.nanos;
    if nanos < 0 {
        nanos += DAY_NANOS;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(days_in_month(from.year, from.month));
        months -= 1;
    }
    let months = i32::try_from(months).map_err(|_| time_out_of_range_error())?;
    let days = i32::try_from(days).map_err(|_| time_out_of_range_error())?;
    Ok(IntervalMonthDayNano::new(months, days, nanos))
}

/// The function `months_between(end, start)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct MonthsBetweenFunction;

impl RowFunction for MonthsBetweenFunction {
    fn names(&self) -> &'static [&'static str] {
        &["months_between"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "months_between(end, start)\nmonths_between(end, start, round_off)",
            description: "How many months are between two times, a DOUBLE: whole for the same day of the month, or the \
                   last of both, otherwise with days of 1/31 month, to eight digits behind the point unless `round_off` is \
                   false: `months_between(DATE '2026-03-15', DATE '2026-02-28')` is `0.58064516`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (end, start, rest) = match given {
            [end, start] => (end, start, vec![]),
            [end, start, round @ (DataType::Boolean | DataType::Null)] => {
                (end, start, vec![if round.is_null() { DataType::Boolean } else { round.clone() }])
            }
            _ => return Err(wrong_arguments_error(self, given)),
        };
        match (instant_cast_type(end), instant_cast_type(start)) {
            (Some(end), Some(start)) => Ok([vec![end, start], rest].concat()),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        use arrow::array::{Array, AsArray};
        let pair = TimePairArgument::from_arguments(given, 1, 0)?;
        let round = match given.arguments.len() {
            3 => Some(given.cast_argument(2, &DataType::Boolean)?),
            _ => None,
        };
        let rounds = |row: usize| match &round {
            Some((flags, rows)) => {
                let flags = flags.as_boolean();
                flags.is_valid(rows.value_index(row)).then(|| flags.value(rows.value_index(row)))
            }
            None => Some(true),
        };
        let months = (0..given.row_count).map(|row| {
            let (Some((start, end)), Some(rounds)) = (pair.local_times(row)?, rounds(row)) else {
                return Ok(None);
            };
            let months = months_between(start, end);
            Ok(Some(if rounds { (months * 1e8).round() / 1e8 } else { months }))
        });
        Ok(Arc::new(months.collect::<Result<Float64Array>>()?))
    }
}

fn months_between(start: LocalTime, end: LocalTime) -> f64 {
    let (from, to) = (start.date(), end.date());
    let months = (months_since_year_zero(to) - months_since_year_zero(from)) as f64;
    let is_last =
        |date: super::calendar::CalendarDate| date.day == days_in_month(date.year, date.month);
    if from.day == to.day || (is_last(from) && is_last(to)) {
        return months;
    }
    let days = i128::from(to.day) - i128::from(from.day);
    let seconds = days * 86_400 + i128::from(end.nanos / SECOND_NANOS)
        - i128::from(start.nanos / SECOND_NANOS);
    months + seconds as f64 / (31.0 * 86_400.0)
}

/// Returns the first day of a month, which is given in months since year 0; used for buckets.
pub(super) fn first_day_of_month(months: i64) -> i64 {
    match months.rem_euclid(12) {
        0 => first_day_of_year(months.div_euclid(12)),
        _ => days_from_months(months, 1),
    }
}
