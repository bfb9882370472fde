//! Times as numbers since 1970, and back: `epoch`, `epoch_ms`, `make_timestamp`, `from_unixtime` and the like.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, PrimitiveArray,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_expr::scalar_doc_sections::DOC_SECTION_DATETIME;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use super::calendar::{Date, days_in_month, days_of};
use super::clocks::{DAY_SECONDS, SECOND_NANOS, Times, Zone, as_instant, as_time, beyond, units};
use super::read::instants;
use super::written::Language;
use crate::callable::{Function, Given, Kept, Told, as_text, broken, called_as, overflow, usage};

/// The number of a unit that a time or a span is.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Epoch {
    /// `epoch`: a DOUBLE of seconds.
    Seconds,
    /// `epoch_ms` and its like: a BIGINT; a number is a time.
    Whole(TimeUnit),
    /// `unix_seconds` and its like: of times only.
    Of(TimeUnit),
    /// `unix_timestamp`: of text by a format too.
    Unix,
    /// `unix_date`: days.
    Days,
}

impl Epoch {
    fn unit(&self) -> TimeUnit {
        match self {
            Epoch::Whole(unit) | Epoch::Of(unit) => *unit,
            _ => TimeUnit::Second,
        }
    }
}

fn is_span(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

fn timestamp(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

impl Function for Epoch {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Epoch::Seconds => &["epoch"],
            Epoch::Whole(TimeUnit::Second | TimeUnit::Millisecond) => &["epoch_ms"],
            Epoch::Whole(TimeUnit::Microsecond) => &["epoch_us"],
            Epoch::Whole(TimeUnit::Nanosecond) => &["epoch_ns"],
            Epoch::Of(TimeUnit::Second) => &["unix_seconds", "to_unix_timestamp"],
            Epoch::Of(TimeUnit::Millisecond) => &["unix_millis", "tounixtimestamp64milli"],
            Epoch::Of(TimeUnit::Microsecond) => &["unix_micros", "tounixtimestamp64micro"],
            Epoch::Of(TimeUnit::Nanosecond) => &["unix_nanos", "tounixtimestamp64nano"],
            Epoch::Unix => &["unix_timestamp", "tounixtimestamp"],
            Epoch::Days => &["unix_date"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            Epoch::Seconds => (
                "epoch(x)",
                "How many seconds a time is after 1970, or an interval is long, a DOUBLE: \
                 `epoch(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900.25`.",
            ),
            Epoch::Whole(TimeUnit::Second | TimeUnit::Millisecond) => (
                "epoch_ms(x)",
                "Milliseconds since 1970 of a time, or the time of a number of them: `epoch_ms(1795161900250)` is \
                 `2026-11-20T08:05:00.250`, and `epoch_ms(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900250`.",
            ),
            Epoch::Whole(TimeUnit::Microsecond) => (
                "epoch_us(x)",
                "Microseconds since 1970 of a time, or the time of a number of them: \
                 `epoch_us(DATE '2026-11-20')` is `1795132800000000`.",
            ),
            Epoch::Whole(TimeUnit::Nanosecond) => (
                "epoch_ns(x)",
                "Nanoseconds since 1970 of a time, or the time of a number of them: \
                 `epoch_ns(1795161900000000001)` is `2026-11-20T08:05:00.000000001`.",
            ),
            Epoch::Of(TimeUnit::Second) => (
                "unix_seconds(ts)",
                "Whole seconds since 1970: `unix_seconds(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900`.",
            ),
            Epoch::Of(TimeUnit::Millisecond) => (
                "unix_millis(ts)",
                "Milliseconds since 1970: `unix_millis(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900250`.",
            ),
            Epoch::Of(TimeUnit::Microsecond) => (
                "unix_micros(ts)",
                "Microseconds since 1970: `unix_micros(DATE '1970-01-02')` is `86400000000`.",
            ),
            Epoch::Of(TimeUnit::Nanosecond) => (
                "unix_nanos(ts)",
                "Nanoseconds since 1970: `unix_nanos(DATE '1970-01-02')` is `86400000000000`.",
            ),
            Epoch::Unix => (
                "unix_timestamp(ts)\nunix_timestamp(text, pattern)",
                "Whole seconds since 1970 of a time, or of a text by Java's patterns or MySQL's codes: \
                 `unix_timestamp('20.11.2026', 'dd.MM.yyyy')` is `1795132800`.",
            ),
            Epoch::Days => {
                ("unix_date(ts)", "Days since 1970: `unix_date(DATE '2026-11-20')` is `20777`.")
            }
        };
        Told { section: DOC_SECTION_DATETIME, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (self, given) {
            (Epoch::Unix, [text, format]) => {
                as_text(text).zip(as_text(format)).map(|(text, format)| vec![text, format])
            }
            (Epoch::Whole(_), [number]) if number.is_integer() => Some(vec![DataType::Int64]),
            (Epoch::Seconds | Epoch::Whole(_), [span]) if is_span(span) => {
                Some(vec![DataType::Interval(IntervalUnit::MonthDayNano)])
            }
            (Epoch::Seconds | Epoch::Whole(_), [of]) => as_time(of).map(|of| vec![of]),
            (_, [of]) => as_instant(of).map(|of| vec![of]),
            _ => None,
        };
        types.ok_or_else(|| called_as(self, given))
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let format = constants.get(1).copied().flatten();
        if let Some(format) = format.and_then(|format| format.try_as_str().flatten()) {
            Language::Java.parsed(format)?;
        }
        Ok(match (self, taken.first()) {
            (Epoch::Seconds, _) => DataType::Float64,
            (Epoch::Whole(TimeUnit::Second), Some(DataType::Int64)) => {
                timestamp(TimeUnit::Microsecond)
            }
            (Epoch::Whole(unit), Some(DataType::Int64)) => timestamp(*unit),
            (Epoch::Days, _) => DataType::Int32,
            _ => DataType::Int64,
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        if given.values.len() == 2 {
            let hint = "TRY_CAST(text AS TIMESTAMP) is NULL for what is no time";
            let read = instants(given, 0, 1, Language::Java, hint)?;
            let seconds = read.into_iter().map(|instant| match instant {
                Some(instant) => i64::try_from(instant.nanos.div_euclid(SECOND_NANOS.into()))
                    .map(Some)
                    .map_err(|_| beyond()),
                None => Ok(None),
            });
            return Ok(Arc::new(seconds.collect::<Result<Int64Array>>()?));
        }
        let value = given.value(0)?;
        let of = value.data_type();
        if of == DataType::Int64 {
            let (numbers, _) = given.cast(0, &DataType::Int64)?;
            let times = cast_with_options(&numbers, &timestamp(self.unit()), &STRICT_CAST_OPTIONS)?;
            return Ok(cast_with_options(&times, given.answer, &STRICT_CAST_OPTIONS)?);
        }
        // All of them in nanoseconds, exactly.
        let nanos: Box<dyn Fn(usize) -> Option<i128>> = if is_span(&of) {
            let (spans, rows) = given.cast(0, &of)?;
            let spans = spans.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row| {
                let row = rows.at(row);
                spans.is_valid(row).then(|| {
                    let span = spans.value(row);
                    // A year has 365.25 days and a month 30, as everywhere here.
                    let (years, months) =
                        (i128::from(span.months / 12), i128::from(span.months % 12));
                    let quarters = years * 1_461 + (months * 30 + i128::from(span.days)) * 4;
                    let seconds = quarters * i128::from(DAY_SECONDS / 4);
                    seconds * i128::from(SECOND_NANOS) + i128::from(span.nanoseconds)
                })
            })
        } else {
            let times = Times::of(value)?;
            Box::new(move |row| times.instant(row).map(|shown| shown.all_nanos()))
        };
        match self {
            Epoch::Seconds => {
                let seconds = (0..given.rows).map(|row| nanos(row).map(seconds_of));
                Ok(Arc::new(seconds.collect::<Float64Array>()))
            }
            Epoch::Days => {
                // The day that the clocks show, as it is of a cast to DATE.
                let times = Times::of(value)?;
                let days = (0..given.rows).map(|row| match times.at(row)? {
                    Some(shown) => i32::try_from(shown.days).map(Some).map_err(|_| beyond()),
                    None => Ok(None),
                });
                let days = days.collect::<Result<arrow::array::Int32Array>>()?;
                Ok(Arc::new(days))
            }
            _ => {
                let one = i128::from(SECOND_NANOS / units(self.unit()));
                let mut found = Int64Array::builder(given.rows);
                for row in 0..given.rows {
                    let Some(nanos) = nanos(row) else {
                        found.append_null();
                        continue;
                    };
                    found.append_value(i64::try_from(nanos.div_euclid(one)).map_err(|_| {
                        overflow(
                            format!(
                                "`{}` of a time so far from 1970 is no BIGINT",
                                self.names()[0]
                            ),
                            Some("epoch(ts) is a DOUBLE of seconds"),
                        )
                    })?);
                }
                Ok(Arc::new(found.finish()))
            }
        }
    }
}

/// Seconds, the nearest double: one division of what a double has whole rounds once.
fn seconds_of(nanos: i128) -> f64 {
    if let Ok(nanos) = i64::try_from(nanos)
        && nanos % 1_000 == 0
        && (nanos / 1_000).unsigned_abs() < 1 << 53
    {
        return (nanos / 1_000) as f64 / 1e6;
    }
    let (value, divisor) = match nanos % 1_000 {
        0 => (nanos / 1_000, 1_000_000),
        _ => (nanos, i128::from(SECOND_NANOS)),
    };
    match value.unsigned_abs() < 1 << 53 {
        true => value as f64 / divisor as f64,
        false => (value / divisor) as f64 + (value % divisor) as f64 / divisor as f64,
    }
}

/// Times made of numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    /// `make_timestamp`: of microseconds, or of parts.
    Timestamp,
    /// `make_timestamp_ms` and its like.
    Of(TimeUnit),
    /// `date_from_unix_date`
    Day,
    /// `make_timestamptz`: of microseconds, or of what the clocks of a zone show.
    Instant,
}

impl Function for Made {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Made::Timestamp => &["make_timestamp"],
            Made::Of(TimeUnit::Second) => &["timestamp_seconds"],
            Made::Of(TimeUnit::Millisecond) => {
                &["make_timestamp_ms", "timestamp_millis", "fromunixtimestamp64milli"]
            }
            Made::Of(TimeUnit::Microsecond) => &["timestamp_micros", "fromunixtimestamp64micro"],
            Made::Of(TimeUnit::Nanosecond) => {
                &["make_timestamp_ns", "timestamp_nanos", "fromunixtimestamp64nano"]
            }
            Made::Day => &["date_from_unix_date"],
            Made::Instant => &["make_timestamptz"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            Made::Timestamp => (
                "make_timestamp(year, month, day, hour, minute, second)\nmake_timestamp(microseconds)",
                "The TIMESTAMP of its parts, of which the second may have a fraction, or of microseconds since 1970: \
                 `make_timestamp(2026, 11, 20, 8, 5, 0.25)` is `2026-11-20T08:05:00.250`.",
            ),
            Made::Of(TimeUnit::Second) => (
                "timestamp_seconds(n)",
                "The TIMESTAMP so many seconds after 1970: `timestamp_seconds(1795161900)` is `2026-11-20T08:05:00`.",
            ),
            Made::Of(TimeUnit::Millisecond) => (
                "make_timestamp_ms(n)",
                "The TIMESTAMP so many milliseconds after 1970: `make_timestamp_ms(1795161900250)` is \
                 `2026-11-20T08:05:00.250`.",
            ),
            Made::Of(TimeUnit::Microsecond) => (
                "timestamp_micros(n)",
                "The TIMESTAMP so many microseconds after 1970: `timestamp_micros(1795161900000001)` is \
                 `2026-11-20T08:05:00.000001`.",
            ),
            Made::Of(TimeUnit::Nanosecond) => (
                "make_timestamp_ns(n)",
                "The TIMESTAMP so many nanoseconds after 1970: `make_timestamp_ns(1795161900000000001)` is \
                 `2026-11-20T08:05:00.000000001`.",
            ),
            Made::Instant => (
                "make_timestamptz(year, month, day, hour, minute, second)\n\
                 make_timestamptz(year, month, day, hour, minute, second, zone)\nmake_timestamptz(microseconds)",
                "The TIMESTAMP WITH TIME ZONE at which the clocks of UTC or of another zone show its parts, or of \
                 microseconds since 1970: `make_timestamptz(2026, 11, 20, 8, 5, 0.25, 'Europe/Berlin')` is \
                 `2026-11-20T07:05:00.250Z`.",
            ),
            Made::Day => (
                "date_from_unix_date(n)",
                "The DATE so many days after 1970: `date_from_unix_date(20777)` is `2026-11-20`.",
            ),
        };
        Told { section: DOC_SECTION_DATETIME, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_numeric() || of.is_null();
        match (self, given) {
            (_, [of]) if of.is_integer() || of.is_null() => Ok(vec![DataType::Int64]),
            (Made::Timestamp | Made::Instant, [_, _, _, _, _, _])
                if given.iter().all(is_number) =>
            {
                let mut taken = vec![DataType::Int64; 5];
                taken.push(DataType::Float64);
                Ok(taken)
            }
            (Made::Instant, [parts @ .., zone])
                if parts.len() == 6 && parts.iter().all(is_number) =>
            {
                let zone = as_text(zone).ok_or_else(|| called_as(self, given))?;
                let mut taken = vec![DataType::Int64; 5];
                taken.extend([DataType::Float64, zone]);
                Ok(taken)
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            Made::Day => DataType::Date32,
            Made::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Made::Of(TimeUnit::Nanosecond) => timestamp(TimeUnit::Nanosecond),
            Made::Of(TimeUnit::Millisecond) => timestamp(TimeUnit::Millisecond),
            _ => timestamp(TimeUnit::Microsecond),
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        if given.values.len() > 1 {
            return Ok(cast_with_options(&of_parts(given)?, given.answer, &STRICT_CAST_OPTIONS)?);
        }
        let (numbers, _) = given.cast(0, &DataType::Int64)?;
        let unit = match self {
            Made::Timestamp | Made::Instant => TimeUnit::Microsecond,
            Made::Of(unit) => *unit,
            Made::Day => {
                let days = numbers.as_primitive::<Int64Type>();
                let days: Date32Array =
                    days.try_unary(|days| i32::try_from(days).map_err(|_| beyond()))?;
                return Ok(Arc::new(days));
            }
        };
        if *self == Made::Instant {
            return Ok(cast_with_options(&numbers, given.answer, &STRICT_CAST_OPTIONS)?);
        }
        let times = cast_with_options(&numbers, &timestamp(unit), &STRICT_CAST_OPTIONS)?;
        Ok(cast_with_options(&times, given.answer, &STRICT_CAST_OPTIONS)?)
    }
}

fn of_parts(given: &Given<'_>) -> Result<ArrayRef> {
    let mut parts = Vec::new();
    for at in 0..5 {
        parts.push(given.cast(at, &DataType::Int64)?);
    }
    let (seconds, second_rows) = given.cast(5, &DataType::Float64)?;
    let seconds = seconds.as_primitive::<Float64Type>();
    let zones = match given.values.len() {
        7 => Some(given.texts(6)?),
        _ => None,
    };
    let mut kept = Kept::new();
    let mut found = PrimitiveArray::<TimestampMicrosecondType>::builder(given.rows);
    'rows: for row in 0..given.rows {
        let mut values = [0_i64; 5];
        for (value, (part, rows)) in values.iter_mut().zip(&parts) {
            let part = part.as_primitive::<Int64Type>();
            if part.is_null(rows.at(row)) {
                found.append_null();
                continue 'rows;
            }
            *value = part.value(rows.at(row));
        }
        if seconds.is_null(second_rows.at(row)) {
            found.append_null();
            continue;
        }
        let mut micros = of_numbers(values, seconds.value(second_rows.at(row)))?;
        if let Some(zones) = &zones {
            let Some(zone) = zones.at(row) else {
                found.append_null();
                continue;
            };
            if let Some(zone) = kept.of(zone, zone_named)? {
                let shown = micros.div_euclid(1_000_000);
                micros -= zone.ahead_when_shown(shown, false)? * 1_000_000;
            }
        }
        found.append_value(micros);
    }
    Ok(Arc::new(found.finish()))
}

/// The zone of a name; none of UTC.
fn zone_named(name: &str) -> Result<Option<Zone>> {
    Zone::of(&Arc::from(name)).map_err(|_| {
        usage(
            format!("there is no zone `{name}`"),
            "zones are named as in `Europe/Berlin`, `UTC` and `+02:00`",
        )
    })
}

/// The microseconds since 1970 of year, month, day, hour, minute and second.
fn of_numbers([year, month, day, hour, minute]: [i64; 5], second: f64) -> Result<i64> {
    let part = |name: &str, shown: String, range: &str| {
        overflow(format!("`make_timestamp` of {name} {shown} has no answer"), Some(range))
    };
    if !(-290_000..=294_000).contains(&year) {
        return Err(part("year", year.to_string(), "years are -290000 to 294000"));
    }
    if !(1..=12).contains(&month) {
        return Err(part("month", month.to_string(), "months are 1 to 12"));
    }
    let month = month as u32;
    let last = days_in_month(year, month);
    if !(1..=i64::from(last)).contains(&day) {
        let shown = format!("{day}, in a month of {last},");
        return Err(part("day", shown, "days are those of the month"));
    }
    let is_midnight = hour == 24 && minute == 0 && second == 0.0;
    if !(0..24).contains(&hour) && !is_midnight {
        return Err(part("hour", hour.to_string(), "hours are 0 to 23"));
    }
    if !(0..60).contains(&minute) {
        return Err(part("minute", minute.to_string(), "minutes are 0 to 59"));
    }
    if !(0.0..60.0).contains(&second) {
        return Err(part("second", second.to_string(), "seconds are 0 to below 60"));
    }
    let days = days_of(Date { year, month, day: day as u32 });
    let micros = (second * 1e6).round() as i64;
    Ok((days * DAY_SECONDS + hour * 3_600 + minute * 60) * 1_000_000 + micros)
}

/// `from_unixtime`: of seconds, with a zone that they are shown in or a format that they are written by.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FromUnixtime;

impl FromUnixtime {
    /// Whether the second argument is a zone.
    fn is_zone(text: &str) -> bool {
        text.parse::<Tz>().is_ok()
    }
}

impl Function for FromUnixtime {
    fn names(&self) -> &'static [&'static str] {
        &["from_unixtime"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "from_unixtime(seconds)\nfrom_unixtime(seconds, zone)\nfrom_unixtime(seconds, pattern)",
            what: "The TIMESTAMP WITH TIME ZONE so many seconds after 1970, in UTC or in a given zone, or its text by \
                   Java's patterns or MySQL's codes: `from_unixtime(1795161900)` is `2026-11-20T08:05:00Z`, and \
                   `from_unixtime(1795161900, 'dd.MM.yyyy HH:mm')` is `20.11.2026 08:05`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_integer() || of.is_null();
        match given {
            [seconds] if is_number(seconds) => Ok(vec![DataType::Int64]),
            [seconds, text] if is_number(seconds) => {
                let text = as_text(text).ok_or_else(|| called_as(self, given))?;
                Ok(vec![DataType::Int64, text])
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, taken: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if taken.len() == 1 {
            return Ok(DataType::Timestamp(TimeUnit::Second, Some("UTC".into())));
        }
        let second = constants.get(1).copied().flatten();
        match second.and_then(|second| second.try_as_str().flatten()) {
            Some(zone) if FromUnixtime::is_zone(zone) => {
                Ok(DataType::Timestamp(TimeUnit::Second, Some(zone.into())))
            }
            Some(format) => {
                let lacks_letters = !format.contains('%') && Language::Java.parsed(format).is_err();
                if lacks_letters && format.contains('/') && !format.contains(' ') {
                    return Err(usage(
                        format!("there is no zone `{format}`"),
                        "zones are named as in `Europe/Berlin`, `UTC` and `+02:00`",
                    ));
                }
                Language::Java.parsed(format)?;
                Ok(DataType::Utf8)
            }
            None => Err(usage(
                "`from_unixtime` takes a constant as its second argument",
                "date_format(to_timestamp(n), pattern) takes any",
            )),
        }
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let (numbers, rows) = given.cast(0, &DataType::Int64)?;
        match given.answer {
            DataType::Utf8 => {
                let times = cast_with_options(
                    &numbers,
                    &timestamp(TimeUnit::Second),
                    &STRICT_CAST_OPTIONS,
                )?;
                let times = match rows {
                    crate::callable::Rows::Each => ColumnarValue::Array(times),
                    crate::callable::Rows::Alike => {
                        ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?)
                    }
                };
                let times = Times::of(&times)?;
                let formats = given.texts(1)?;
                let mut kept = Kept::new();
                given.written(|row, out| {
                    let (Some(time), Some(format)) = (times.at(row)?, formats.at(row)) else {
                        return Ok(false);
                    };
                    let format = kept.of(format, |format| Language::Java.parsed(format))?;
                    format.write(time, &times, out)?;
                    Ok(true)
                })
            }
            DataType::Timestamp(_, _) => {
                let times = cast_with_options(
                    &numbers,
                    &timestamp(TimeUnit::Second),
                    &STRICT_CAST_OPTIONS,
                )?;
                // Of an instant, whatever the zone.
                let times = cast_with_options(&times, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
                Ok(cast_with_options(&times, given.answer, &STRICT_CAST_OPTIONS)?)
            }
            other => Err(broken(&format!("`from_unixtime` makes no {other}"))),
        }
    }
}

/// `julian`: days of the Julian calendar's count, with the time of day as a fraction.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Julian;

impl Function for Julian {
    fn names(&self) -> &'static [&'static str] {
        &["julian"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_DATETIME,
            calls: "julian(ts)",
            what: "The Julian day, counted from midnight as PostgreSQL and DuckDB do, a DOUBLE: \
                   `julian(TIMESTAMP '2026-11-20 12:00:00')` is `2461365.5`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![as_instant(of).ok_or_else(|| called_as(self, given))?]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let times = Times::of(given.value(0)?)?;
        let day = (DAY_SECONDS * SECOND_NANOS) as f64;
        let days = (0..given.rows).map(|row| {
            Ok(times
                .at(row)?
                .map(|shown| (shown.days + 2_440_588) as f64 + shown.nanos as f64 / day))
        });
        Ok(Arc::new(days.collect::<Result<Float64Array>>()?))
    }
}
