//! How far two times are apart: `date_diff` counts the boundaries of a unit between them, `date_sub` the units
//! that are whole; `age` and `months_between` count months.
//!
//! As DuckDB has them (its manual, "Timestamp Functions"): a week begins on Monday; a month is whole when the
//! clock shows the same day and time again, or the month's last day where it has no such day. Times of zones
//! are compared as clocks show them where days and longer units are counted, each by its own zone. Shorter units
//! are counted in instants; their boundaries are those of the zone's clocks, which in Kolkata pass a full hour
//! 30 minutes before UTC's do.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, IntervalMonthDayNanoArray};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;

use super::calendar::{
    days_in_month, days_of_month, first_day, iso_week, iso_year_begins, months_of,
};
use super::clocks::{DAY_NANOS, SECOND_NANOS, Shown, Times, as_instant, as_time, beyond};
use crate::callable::{Function, Given, Told, as_text, called_as, usage};

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Nanos(i64),
    Weeks,
    Months(i64),
    IsoYears,
}

impl Unit {
    /// The unit of a name, as it is written everywhere: one or several, and the shorter forms.
    ///
    /// # Errors
    /// For what is none.
    pub(super) fn named(name: &str) -> Result<Self> {
        let lower = name.trim().to_lowercase();
        Ok(match lower.as_str() {
            "nanosecond" | "nanoseconds" | "ns" => Unit::Nanos(1),
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Unit::Nanos(1_000),
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Unit::Nanos(1_000_000),
            "second" | "seconds" | "s" | "ss" | "sec" | "secs" => Unit::Nanos(SECOND_NANOS),
            "minute" | "minutes" | "m" | "mi" | "n" | "min" | "mins" => {
                Unit::Nanos(60 * SECOND_NANOS)
            }
            "hour" | "hours" | "h" | "hh" | "hr" | "hrs" => Unit::Nanos(3_600 * SECOND_NANOS),
            "day" | "days" | "d" | "dd" | "dayofmonth" | "dayofyear" | "doy" | "dy" | "julian"
            | "dow" | "isodow" | "dayofweek" | "weekday" => Unit::Nanos(DAY_NANOS),
            "week" | "weeks" | "w" | "wk" | "ww" | "isoweek" | "weekofyear" | "yearweek" => {
                Unit::Weeks
            }
            "month" | "months" | "mm" | "mon" | "mons" => Unit::Months(1),
            "quarter" | "quarters" | "q" | "qq" | "qtr" => Unit::Months(3),
            "year" | "years" | "y" | "yy" | "yyyy" | "yr" | "yrs" => Unit::Months(12),
            "decade" | "decades" => Unit::Months(120),
            "century" | "centuries" => Unit::Months(1_200),
            "millennium" | "millennia" | "millenniums" => Unit::Months(12_000),
            "isoyear" => Unit::IsoYears,
            _ => {
                return Err(usage(
                    format!("`{name}` is no unit of time"),
                    "units are nanosecond, microsecond, millisecond, second, minute, hour, day, week, month, \
                     quarter, year, decade, century and millennium",
                ));
            }
        })
    }

    /// Whether it is counted as clocks show it, and not in instants.
    fn is_of_days(self) -> bool {
        !matches!(self, Unit::Nanos(nanos) if nanos < DAY_NANOS)
    }

    /// Returns the number of boundaries of a unit shorter than a day between two instants that clocks show so.
    fn crossed_between([start, end]: [(Shown, Shown); 2], nanos: i64) -> i128 {
        let begun = |(instant, shown): (Shown, Shown)| {
            instant.all_nanos() - i128::from(shown.nanos % nanos)
        };
        (begun(end) - begun(start)) / i128::from(nanos)
    }

    /// Returns the number of boundaries of a day or a longer unit between two times.
    fn crossed(self, start: Shown, end: Shown) -> i128 {
        match self {
            // Days: `crossed_between` counts shorter ones.
            Unit::Nanos(_) => (end.days - start.days).into(),
            // The Monday of 1969-12-29 begins a week.
            Unit::Weeks => ((end.days + 3).div_euclid(7) - (start.days + 3).div_euclid(7)).into(),
            Unit::Months(months) => {
                let of = |shown: Shown| months_of(shown.date()).div_euclid(months);
                (of(end) - of(start)).into()
            }
            Unit::IsoYears => (iso_week(end.days).0 - iso_week(start.days).0).into(),
        }
    }

    /// How many are whole between two times.
    fn whole(self, start: Shown, end: Shown) -> i128 {
        match self {
            Unit::Nanos(nanos) => (end.all_nanos() - start.all_nanos()) / i128::from(nanos),
            Unit::Weeks => (end.all_nanos() - start.all_nanos()) / (7 * i128::from(DAY_NANOS)),
            Unit::Months(months) => (whole_months(start, end) / months).into(),
            Unit::IsoYears => {
                if start.all_nanos() > end.all_nanos() {
                    return -self.whole(end, start);
                }
                let of = |shown: Shown| {
                    let year = iso_week(shown.days).0;
                    let since = shown.all_nanos() - at_days(iso_year_begins(year));
                    (i128::from(year), since)
                };
                let ((from, since), (to, until)) = (of(start), of(end));
                to - from - i128::from(until < since)
            }
        }
    }
}

fn at_days(days: i64) -> i128 {
    i128::from(days) * i128::from(DAY_NANOS)
}

/// How many months are whole between two times.
fn whole_months(start: Shown, end: Shown) -> i64 {
    if start.all_nanos() > end.all_nanos() {
        return -whole_months(end, start);
    }
    let (from, to) = (start.date(), end.date());
    let months = months_of(to) - months_of(from);
    let day = from.day.min(days_in_month(to.year, to.month));
    months - i64::from((day, start.nanos) > (to.day, end.nanos))
}

/// Two times of one row.
struct Pair {
    start: Times,
    end: Times,
}

impl Pair {
    fn of(given: &Given<'_>, start: usize, end: usize) -> Result<Self> {
        Ok(Pair { start: Times::of(given.value(start)?)?, end: Times::of(given.value(end)?)? })
    }

    fn shown(&self, row: usize) -> Result<Option<(Shown, Shown)>> {
        Ok(self.start.at(row)?.zip(self.end.at(row)?))
    }

    fn instants(&self, row: usize) -> Option<(Shown, Shown)> {
        self.start.instant(row).zip(self.end.instant(row))
    }
}

fn whole_number(found: i128) -> Result<i64> {
    i64::try_from(found).map_err(|_| {
        crate::callable::overflow(
            "two times are too far apart for a BIGINT of so small units",
            Some("larger units fit: 'microsecond', 'second'"),
        )
    })
}

/// `date_diff` and `date_sub`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Difference {
    /// Boundaries.
    Crossed,
    /// Units.
    Whole,
}

impl Function for Difference {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Difference::Crossed => &["date_diff", "datediff"],
            Difference::Whole => &["date_sub", "datesub", "timestampdiff", "timestamp_diff"],
        }
    }

    fn told(&self) -> Told {
        match self {
            Difference::Crossed => Told {
                section: DOC_SECTION_DATETIME,
                calls: "date_diff(unit, start, end)\ndate_diff(end, start)",
                what: "How many boundaries of a unit (`microsecond` to `millennium`; weeks begin on Monday) are \
                       between two times, of two dates alone days: \
                       `date_diff('month', DATE '2026-01-31', DATE '2026-02-01')` is `1`.",
            },
            Difference::Whole => Told {
                section: DOC_SECTION_DATETIME,
                calls: "date_sub(unit, start, end)\ndate_sub(day, n)",
                what: "How many whole units are between two times: \
                       `date_sub('month', DATE '2026-01-31', DATE '2026-02-01')` is `0`; of a day and a number the \
                       day so many days before: `date_sub(DATE '2026-03-01', 1)` is `2026-02-28`.",
            },
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (given, self) {
            ([unit, start, end], _) => {
                (|| Some(vec![as_text(unit)?, as_time(start)?, as_time(end)?]))()
            }
            ([end, start], Difference::Crossed) => {
                as_instant(end).zip(as_instant(start)).map(|(end, start)| vec![end, start])
            }
            ([day, count], Difference::Whole) => days_moved(day, count),
            _ => None,
        };
        types.ok_or_else(|| called_as(self, given))
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if taken.len() == 3 {
            let unit = constants.first().copied().flatten();
            if let Some(unit) = unit.and_then(|unit| unit.try_as_str().flatten()) {
                Unit::named(unit)?;
            }
        }
        match (taken.len(), self) {
            (2, Difference::Whole) => Ok(DataType::Date32),
            _ => Ok(DataType::Int64),
        }
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        if given.values.len() == 2 {
            return match self {
                Difference::Crossed => {
                    let pair = Pair::of(given, 1, 0)?;
                    let days = (0..given.rows)
                        .map(|row| Ok(pair.shown(row)?.map(|(start, end)| end.days - start.days)));
                    Ok(Arc::new(days.collect::<Result<Int64Array>>()?))
                }
                Difference::Whole => super::days::moved(given, -1),
            };
        }
        let units = given.texts(0)?;
        let pair = Pair::of(given, 1, 2)?;
        if pair.start.has_days != pair.end.has_days {
            return Err(usage(
                format!("`{}` of a time of day and a day has no answer", self.names()[0]),
                "CAST(ts AS TIME) is the time of day of a timestamp",
            ));
        }
        let mut kept = crate::callable::Kept::new();
        let mut found = Int64Array::builder(given.rows);
        for row in 0..given.rows {
            let Some(unit) = units.at(row) else {
                found.append_null();
                continue;
            };
            let unit = *kept.of(unit, Unit::named)?;
            if let (Difference::Crossed, Unit::Nanos(nanos @ ..DAY_NANOS)) = (self, unit) {
                let times = pair.instants(row).zip(pair.shown(row)?);
                found.append_option(match times {
                    Some(((start, end), (shown_start, shown_end))) => {
                        let times = [(start, shown_start), (end, shown_end)];
                        Some(whole_number(Unit::crossed_between(times, nanos))?)
                    }
                    None => None,
                });
                continue;
            }
            let times = match unit.is_of_days() {
                true => pair.shown(row)?,
                false => pair.instants(row),
            };
            let Some((start, end)) = times else {
                found.append_null();
                continue;
            };
            found.append_value(whole_number(match self {
                Difference::Crossed => unit.crossed(start, end),
                Difference::Whole => unit.whole(start, end),
            })?);
        }
        Ok(Arc::new(found.finish()))
    }
}

/// The types of a day and of a number of days that it is moved by.
pub(super) fn days_moved(day: &DataType, count: &DataType) -> Option<Vec<DataType>> {
    let is_count = count.is_integer() || count.is_null();
    let day = match as_instant(day)? {
        // A text is a day, and not an instant.
        DataType::Timestamp(_, _) if !matches!(day, DataType::Timestamp(_, _)) => DataType::Date32,
        other => other,
    };
    is_count.then(|| vec![day, DataType::Int64])
}

/// `age(end, start)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Age;

impl Function for Age {
    fn names(&self) -> &'static [&'static str] {
        &["age"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "age(end, start)",
            what: "How much later one time is than another, in months, days and what is left: \
                   `age(DATE '2026-11-20', DATE '2025-09-30')` is `13 mons 20 days`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() == 1 {
            return Err(usage("`age` takes two times", "age(current_date(), birthday)"));
        }
        let [end, start] = given else { return Err(called_as(self, given)) };
        match (as_instant(end), as_instant(start)) {
            (Some(end), Some(start)) => Ok(vec![end, start]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let pair = Pair::of(given, 1, 0)?;
        let spans = (0..given.rows).map(|row| match pair.shown(row)? {
            Some((start, end)) => age(start, end).map(Some),
            None => Ok(None),
        });
        Ok(Arc::new(spans.collect::<Result<IntervalMonthDayNanoArray>>()?))
    }
}

/// The months that are whole, then the days, then what is left, each with the sign of the whole. Days are
/// counted in the month of the earlier time, as PostgreSQL does.
fn age(start: Shown, end: Shown) -> Result<IntervalMonthDayNano> {
    if start.all_nanos() > end.all_nanos() {
        let IntervalMonthDayNano { months, days, nanoseconds } = age(end, start)?;
        return Ok(IntervalMonthDayNano::new(-months, -days, -nanoseconds));
    }
    let (from, to) = (start.date(), end.date());
    let mut months = months_of(to) - months_of(from);
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
    let months = i32::try_from(months).map_err(|_| beyond())?;
    let days = i32::try_from(days).map_err(|_| beyond())?;
    Ok(IntervalMonthDayNano::new(months, days, nanos))
}

/// `months_between(end, start)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct MonthsBetween;

impl Function for MonthsBetween {
    fn names(&self) -> &'static [&'static str] {
        &["months_between"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "months_between(end, start)\nmonths_between(end, start, round_off)",
            what: "How many months are between two times, a DOUBLE: whole for the same day of the month, or the \
                   last of both, otherwise with days of 1/31 month, to eight digits behind the point unless `round_off` is \
                   false: `months_between(DATE '2026-03-15', DATE '2026-02-28')` is `0.58064516`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (end, start, rest) = match given {
            [end, start] => (end, start, vec![]),
            [end, start, round @ (DataType::Boolean | DataType::Null)] => {
                (end, start, vec![if round.is_null() { DataType::Boolean } else { round.clone() }])
            }
            _ => return Err(called_as(self, given)),
        };
        match (as_instant(end), as_instant(start)) {
            (Some(end), Some(start)) => Ok([vec![end, start], rest].concat()),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        use arrow::array::{Array, AsArray};
        let pair = Pair::of(given, 1, 0)?;
        let round = match given.values.len() {
            3 => Some(given.cast(2, &DataType::Boolean)?),
            _ => None,
        };
        let rounds = |row: usize| match &round {
            Some((flags, rows)) => {
                let flags = flags.as_boolean();
                flags.is_valid(rows.at(row)).then(|| flags.value(rows.at(row)))
            }
            None => Some(true),
        };
        let months = (0..given.rows).map(|row| {
            let (Some((start, end)), Some(rounds)) = (pair.shown(row)?, rounds(row)) else {
                return Ok(None);
            };
            let months = months_between(start, end);
            Ok(Some(if rounds { (months * 1e8).round() / 1e8 } else { months }))
        });
        Ok(Arc::new(months.collect::<Result<Float64Array>>()?))
    }
}

fn months_between(start: Shown, end: Shown) -> f64 {
    let (from, to) = (start.date(), end.date());
    let months = (months_of(to) - months_of(from)) as f64;
    let is_last = |date: super::calendar::Date| date.day == days_in_month(date.year, date.month);
    if from.day == to.day || (is_last(from) && is_last(to)) {
        return months;
    }
    let days = i128::from(to.day) - i128::from(from.day);
    let seconds = days * 86_400 + i128::from(end.nanos / SECOND_NANOS)
        - i128::from(start.nanos / SECOND_NANOS);
    months + seconds as f64 / (31.0 * 86_400.0)
}

/// Days that years of months begin at, for buckets.
pub(super) fn first_of_month(months: i64) -> i64 {
    match months.rem_euclid(12) {
        0 => first_day(months.div_euclid(12)),
        _ => days_of_month(months, 1),
    }
}
