//! Times as numbers since 1970, and back: `epoch`, `epoch_ms`, `make_timestamp`, `from_unixtime` and similar
//! functions.

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

use super::calendar::{CalendarDate, days_from_date, days_in_month};
use super::local_times::{
    DAY_SECONDS, LocalZone, SECOND_NANOS, TimeArgument, instant_cast_type, time_cast_type,
    time_out_of_range_error, units_per_second,
};
use super::text_to_time::parse_instants;
use super::time_to_text::FormatLanguage;
use crate::row_function::{
    ArgumentBatch, FunctionDocs, LastTextCache, RowFunction, internal_error, overflow_error,
    text_cast_type, usage_error, wrong_arguments_error,
};

/// Functions that return a time or an interval as a number of a unit.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum EpochFunction {
    /// `epoch`: seconds as a DOUBLE.
    Seconds,
    /// `epoch_ms`, `epoch_us` and `epoch_ns`: a BIGINT for a time, and a time for a number.
    EpochUnits(TimeUnit),
    /// `unix_seconds`, `unix_millis` and so on: a BIGINT for a time only.
    UnixUnits(TimeUnit),
    /// `unix_timestamp`: also accepts text with a format.
    UnixTimestamp,
    /// `unix_date`: days.
    UnixDate,
}

impl EpochFunction {
    fn unit(&self) -> TimeUnit {
        match self {
            EpochFunction::EpochUnits(unit) | EpochFunction::UnixUnits(unit) => *unit,
            _ => TimeUnit::Second,
        }
    }
}

fn is_interval_type(of: &DataType) -> bool {
    matches!(of, DataType::Interval(_) | DataType::Duration(_))
}

fn timestamp_type(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, None)
}

impl RowFunction for EpochFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            EpochFunction::Seconds => &["epoch"],
            EpochFunction::EpochUnits(TimeUnit::Second | TimeUnit::Millisecond) => &["epoch_ms"],
            EpochFunction::EpochUnits(TimeUnit::Microsecond) => &["epoch_us"],
            EpochFunction::EpochUnits(TimeUnit::Nanosecond) => &["epoch_ns"],
            EpochFunction::UnixUnits(TimeUnit::Second) => &["unix_seconds", "to_unix_timestamp"],
            EpochFunction::UnixUnits(TimeUnit::Millisecond) => {
                &["unix_millis", "tounixtimestamp64milli"]
            }
            EpochFunction::UnixUnits(TimeUnit::Microsecond) => {
                &["unix_micros", "tounixtimestamp64micro"]
            }
            EpochFunction::UnixUnits(TimeUnit::Nanosecond) => {
                &["unix_nanos", "tounixtimestamp64nano"]
            }
            EpochFunction::UnixTimestamp => &["unix_timestamp", "tounixtimestamp"],
            EpochFunction::UnixDate => &["unix_date"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            EpochFunction::Seconds => (
                "epoch(x)",
                "How many seconds a time is after 1970, or an interval is long, a DOUBLE: \
                 `epoch(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900.25`.",
            ),
            EpochFunction::EpochUnits(TimeUnit::Second | TimeUnit::Millisecond) => (
                "epoch_ms(x)",
                "Milliseconds since 1970 of a time, or the time of a number of them: `epoch_ms(1795161900250)` is \
                 `2026-11-20T08:05:00.250`, and `epoch_ms(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900250`.",
            ),
            EpochFunction::EpochUnits(TimeUnit::Microsecond) => (
                "epoch_us(x)",
                "Microseconds since 1970 of a time, or the time of a number of them: \
                 `epoch_us(DATE '2026-11-20')` is `1795132800000000`.",
            ),
            EpochFunction::EpochUnits(TimeUnit::Nanosecond) => (
                "epoch_ns(x)",
                "Nanoseconds since 1970 of a time, or the time of a number of them: \
                 `epoch_ns(1795161900000000001)` is `2026-11-20T08:05:00.000000001`.",
            ),
            EpochFunction::UnixUnits(TimeUnit::Second) => (
                "unix_seconds(ts)",
                "Whole seconds since 1970: `unix_seconds(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900`.",
            ),
            EpochFunction::UnixUnits(TimeUnit::Millisecond) => (
                "unix_millis(ts)",
                "Milliseconds since 1970: `unix_millis(TIMESTAMP '2026-11-20 08:05:00.25')` is `1795161900250`.",
            ),
            EpochFunction::UnixUnits(TimeUnit::Microsecond) => (
                "unix_micros(ts)",
                "Microseconds since 1970: `unix_micros(DATE '1970-01-02')` is `86400000000`.",
            ),
            EpochFunction::UnixUnits(TimeUnit::Nanosecond) => (
                "unix_nanos(ts)",
                "Nanoseconds since 1970: `unix_nanos(DATE '1970-01-02')` is `86400000000000`.",
            ),
            EpochFunction::UnixTimestamp => (
                "unix_timestamp(ts)\nunix_timestamp(text, pattern)",
                "Whole seconds since 1970 of a time, or of a text by Java's patterns or MySQL's codes: \
                 `unix_timestamp('20.11.2026', 'dd.MM.yyyy')` is `1795132800`.",
            ),
            EpochFunction::UnixDate => {
                ("unix_date(ts)", "Days since 1970: `unix_date(DATE '2026-11-20')` is `20777`.")
            }
        };
        FunctionDocs { section: DOC_SECTION_DATETIME, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let types = match (self, given) {
            (EpochFunction::UnixTimestamp, [text, format]) => text_cast_type(text)
                .zip(text_cast_type(format))
                .map(|(text, format)| vec![text, format]),
            (EpochFunction::EpochUnits(_), [number]) if number.is_integer() => {
                Some(vec![DataType::Int64])
            }
            (EpochFunction::Seconds | EpochFunction::EpochUnits(_), [span])
                if is_interval_type(span) =>
            {
                Some(vec![DataType::Interval(IntervalUnit::MonthDayNano)])
            }
            (EpochFunction::Seconds | EpochFunction::EpochUnits(_), [of]) => {
                time_cast_type(of).map(|of| vec![of])
            }
            (_, [of]) => instant_cast_type(of).map(|of| vec![of]),
            _ => None,
        };
        types.ok_or_else(|| wrong_arguments_error(self, given))
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        let format = constants.get(1).copied().flatten();
        if let Some(format) = format.and_then(|format| format.try_as_str().flatten()) {
            FormatLanguage::Java.parse_format(format)?;
        }
        Ok(match (self, taken.first()) {
            (EpochFunction::Seconds, _) => DataType::Float64,
            (EpochFunction::EpochUnits(TimeUnit::Second), Some(DataType::Int64)) => {
                timestamp_type(TimeUnit::Microsecond)
            }
            (EpochFunction::EpochUnits(unit), Some(DataType::Int64)) => timestamp_type(*unit),
            (EpochFunction::UnixDate, _) => DataType::Int32,
            _ => DataType::Int64,
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if given.arguments.len() == 2 {
            let hint = "TRY_CAST(text AS TIMESTAMP) is NULL for what is no time";
            let read = parse_instants(given, 0, 1, FormatLanguage::Java, hint)?;
            let seconds = read.into_iter().map(|instant| match instant {
                Some(instant) => i64::try_from(instant.nanos.div_euclid(SECOND_NANOS.into()))
                    .map(Some)
                    .map_err(|_| time_out_of_range_error()),
                None => Ok(None),
            });
            return Ok(Arc::new(seconds.collect::<Result<Int64Array>>()?));
        }
        let value = given.argument(0)?;
        let of = value.data_type();
        if of == DataType::Int64 {
            let (numbers, _) = given.cast_argument(0, &DataType::Int64)?;
            let times =
                cast_with_options(&numbers, &timestamp_type(self.unit()), &STRICT_CAST_OPTIONS)?;
            return Ok(cast_with_options(&times, given.return_type, &STRICT_CAST_OPTIONS)?);
        }
        // Everything is converted to nanoseconds, exactly.
        let nanos: Box<dyn Fn(usize) -> Option<i128>> = if is_interval_type(&of) {
            let (spans, rows) = given.cast_argument(0, &of)?;
            let spans = spans.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row| {
                let row = rows.value_index(row);
                spans.is_valid(row).then(|| {
                    let span = spans.value(row);
                    // A year has 365.25 days and a month 30, as in all functions here.
                    let (years, months) =
                        (i128::from(span.months / 12), i128::from(span.months % 12));
                    let quarters = years * 1_461 + (months * 30 + i128::from(span.days)) * 4;
                    let seconds = quarters * i128::from(DAY_SECONDS / 4);
                    seconds * i128::from(SECOND_NANOS) + i128::from(span.nanoseconds)
                })
            })
        } else {
            let times = TimeArgument::from_value(value)?;
            Box::new(move |row| times.utc_time(row).map(|shown| shown.total_nanos()))
        };
        match self {
            EpochFunction::Seconds => {
                let seconds = (0..given.row_count).map(|row| nanos(row).map(nanos_to_seconds));
                Ok(Arc::new(seconds.collect::<Float64Array>()))
            }
            EpochFunction::UnixDate => {
                // The day in local time, as in a cast to DATE.
                let times = TimeArgument::from_value(value)?;
                let days = (0..given.row_count).map(|row| match times.local_time(row)? {
                    Some(shown) => {
                        i32::try_from(shown.days).map(Some).map_err(|_| time_out_of_range_error())
                    }
                    None => Ok(None),
                });
                let days = days.collect::<Result<arrow::array::Int32Array>>()?;
                Ok(Arc::new(days))
            }
            _ => {
                let one = i128::from(SECOND_NANOS / units_per_second(self.unit()));
                let mut found = Int64Array::builder(given.row_count);
                for row in 0..given.row_count {
                    let Some(nanos) = nanos(row) else {
                        found.append_null();
                        continue;
                    };
                    found.append_value(i64::try_from(nanos.div_euclid(one)).map_err(|_| {
                        overflow_error(
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

/// Returns seconds as the nearest DOUBLE: one division of an exactly representable number rounds only once.
fn nanos_to_seconds(nanos: i128) -> f64 {
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

/// Functions that make a time from numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum MakeTimeFunction {
    /// `make_timestamp`: from microseconds, or from year, month, day, hour, minute and second.
    MakeTimestamp,
    /// `make_timestamp_ms` and similar functions.
    TimestampFromUnits(TimeUnit),
    /// `date_from_unix_date`
    DateFromUnixDate,
    /// `make_timestamptz`: from microseconds, or from the parts of a local time.
    MakeTimestamptz,
}

impl RowFunction for MakeTimeFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            MakeTimeFunction::MakeTimestamp => &["make_timestamp"],
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Second) => &["timestamp_seconds"],
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Millisecond) => {
                &["make_timestamp_ms", "timestamp_millis", "fromunixtimestamp64milli"]
            }
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Microsecond) => {
                &["timestamp_micros", "fromunixtimestamp64micro"]
            }
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Nanosecond) => {
                &["make_timestamp_ns", "timestamp_nanos", "fromunixtimestamp64nano"]
            }
            MakeTimeFunction::DateFromUnixDate => &["date_from_unix_date"],
            MakeTimeFunction::MakeTimestamptz => &["make_timestamptz"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            MakeTimeFunction::MakeTimestamp => (
                "make_timestamp(year, month, day, hour, minute, second)\nmake_timestamp(microseconds)",
                "The TIMESTAMP of its parts, of which the second may have a fraction, or of microseconds since 1970: \
                 `make_timestamp(2026, 11, 20, 8, 5, 0.25)` is `2026-11-20T08:05:00.250`.",
            ),
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Second) => (
                "timestamp_seconds(n)",
                "The TIMESTAMP so many seconds after 1970: `timestamp_seconds(1795161900)` is `2026-11-20T08:05:00`.",
            ),
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Millisecond) => (
                "make_timestamp_ms(n)",
                "The TIMESTAMP so many milliseconds after 1970: `make_timestamp_ms(1795161900250)` is \
                 `2026-11-20T08:05:00.250`.",
            ),
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Microsecond) => (
                "timestamp_micros(n)",
                "The TIMESTAMP so many microseconds after 1970: `timestamp_micros(1795161900000001)` is \
                 `2026-11-20T08:05:00.000001`.",
            ),
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Nanosecond) => (
                "make_timestamp_ns(n)",
                "The TIMESTAMP so many nanoseconds after 1970: `make_timestamp_ns(1795161900000000001)` is \
                 `2026-11-20T08:05:00.000000001`.",
            ),
            MakeTimeFunction::MakeTimestamptz => (
                "make_timestamptz(year, month, day, hour, minute, second)\n\
                 make_timestamptz(year, month, day, hour, minute, second, zone)\nmake_timestamptz(microseconds)",
                "The TIMESTAMP WITH TIME ZONE at which the clocks of UTC or of another zone show its parts, or of \
                 microseconds since 1970: `make_timestamptz(2026, 11, 20, 8, 5, 0.25, 'Europe/Berlin')` is \
                 `2026-11-20T07:05:00.250Z`.",
            ),
            MakeTimeFunction::DateFromUnixDate => (
                "date_from_unix_date(n)",
                "The DATE so many days after 1970: `date_from_unix_date(20777)` is `2026-11-20`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_DATETIME, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_numeric() || of.is_null();
        match (self, given) {
            (_, [of]) if of.is_integer() || of.is_null() => Ok(vec![DataType::Int64]),
            (
                MakeTimeFunction::MakeTimestamp | MakeTimeFunction::MakeTimestamptz,
                [_, _, _, _, _, _],
            ) if given.iter().all(is_number) => {
                let mut taken = vec![DataType::Int64; 5];
                taken.push(DataType::Float64);
                Ok(taken)
            }
            (MakeTimeFunction::MakeTimestamptz, [parts @ .., zone])
                if parts.len() == 6 && parts.iter().all(is_number) =>
            {
                let zone =
                    text_cast_type(zone).ok_or_else(|| wrong_arguments_error(self, given))?;
                let mut taken = vec![DataType::Int64; 5];
                taken.extend([DataType::Float64, zone]);
                Ok(taken)
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            MakeTimeFunction::DateFromUnixDate => DataType::Date32,
            MakeTimeFunction::MakeTimestamptz => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Nanosecond) => {
                timestamp_type(TimeUnit::Nanosecond)
            }
            MakeTimeFunction::TimestampFromUnits(TimeUnit::Millisecond) => {
                timestamp_type(TimeUnit::Millisecond)
            }
            _ => timestamp_type(TimeUnit::Microsecond),
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if given.arguments.len() > 1 {
            return Ok(cast_with_options(
                &timestamps_from_parts(given)?,
                given.return_type,
                &STRICT_CAST_OPTIONS,
            )?);
        }
        let (numbers, _) = given.cast_argument(0, &DataType::Int64)?;
        let unit = match self {
            MakeTimeFunction::MakeTimestamp | MakeTimeFunction::MakeTimestamptz => {
                TimeUnit::Microsecond
            }
            MakeTimeFunction::TimestampFromUnits(unit) => *unit,
            MakeTimeFunction::DateFromUnixDate => {
                let days = numbers.as_primitive::<Int64Type>();
                let days: Date32Array = days
                    .try_unary(|days| i32::try_from(days).map_err(|_| time_out_of_range_error()))?;
                return Ok(Arc::new(days));
            }
        };
        if *self == MakeTimeFunction::MakeTimestamptz {
            return Ok(cast_with_options(&numbers, given.return_type, &STRICT_CAST_OPTIONS)?);
        }
        let times = cast_with_options(&numbers, &timestamp_type(unit), &STRICT_CAST_OPTIONS)?;
        Ok(cast_with_options(&times, given.return_type, &STRICT_CAST_OPTIONS)?)
    }
}

fn timestamps_from_parts(given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
    let mut parts = Vec::new();
    for at in 0..5 {
        parts.push(given.cast_argument(at, &DataType::Int64)?);
    }
    let (seconds, second_rows) = given.cast_argument(5, &DataType::Float64)?;
    let seconds = seconds.as_primitive::<Float64Type>();
    let zones = match given.arguments.len() {
        7 => Some(given.text_argument(6)?),
        _ => None,
    };
    let mut kept = LastTextCache::new();
    let mut found = PrimitiveArray::<TimestampMicrosecondType>::builder(given.row_count);
    'rows: for row in 0..given.row_count {
        let mut values = [0_i64; 5];
        for (value, (part, rows)) in values.iter_mut().zip(&parts) {
            let part = part.as_primitive::<Int64Type>();
            if part.is_null(rows.value_index(row)) {
                found.append_null();
                continue 'rows;
            }
            *value = part.value(rows.value_index(row));
        }
        if seconds.is_null(second_rows.value_index(row)) {
            found.append_null();
            continue;
        }
        let mut micros = micros_from_parts(values, seconds.value(second_rows.value_index(row)))?;
        if let Some(zones) = &zones {
            let Some(zone) = zones.get(row) else {
                found.append_null();
                continue;
            };
            if let Some(zone) = kept.get_or_parse(zone, parse_zone)? {
                let shown = micros.div_euclid(1_000_000);
                micros -= zone.utc_offset_of_local_time(shown, false)? * 1_000_000;
            }
        }
        found.append_value(micros);
    }
    Ok(Arc::new(found.finish()))
}

/// Parses the name of a zone; UTC is `None`.
fn parse_zone(name: &str) -> Result<Option<LocalZone>> {
    LocalZone::from_name(&Arc::from(name)).map_err(|_| {
        usage_error(
            format!("there is no zone `{name}`"),
            "zones are named as in `Europe/Berlin`, `UTC` and `+02:00`",
        )
    })
}

/// Returns the microseconds since 1970 of year, month, day, hour, minute and second.
fn micros_from_parts([year, month, day, hour, minute]: [i64; 5], second: f64) -> Result<i64> {
    let part = |name: &str, shown: String, range: &str| {
        overflow_error(format!("`make_timestamp` of {name} {shown} has no answer"), Some(range))
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
    let days = days_from_date(CalendarDate { year, month, day: day as u32 });
    let micros = (second * 1e6).round() as i64;
    Ok((days * DAY_SECONDS + hour * 3_600 + minute * 60) * 1_000_000 + micros)
}

/// The function `from_unixtime`: seconds with an optional zone of the result, or a format that makes it text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FromUnixtimeFunction;

impl FromUnixtimeFunction {
    /// Returns whether the second argument is a zone.
    fn is_zone_name(text: &str) -> bool {
        text.parse::<Tz>().is_ok()
    }
}

impl RowFunction for FromUnixtimeFunction {
    fn names(&self) -> &'static [&'static str] {
        &["from_unixtime"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "from_unixtime(seconds)\nfrom_unixtime(seconds, zone)\nfrom_unixtime(seconds, pattern)",
            description: "The TIMESTAMP WITH TIME ZONE so many seconds after 1970, in UTC or in a given zone, or its text by \
                   Java's patterns or MySQL's codes: `from_unixtime(1795161900)` is `2026-11-20T08:05:00Z`, and \
                   `from_unixtime(1795161900, 'dd.MM.yyyy HH:mm')` is `20.11.2026 08:05`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_number = |of: &DataType| of.is_integer() || of.is_null();
        match given {
            [seconds] if is_number(seconds) => Ok(vec![DataType::Int64]),
            [seconds, text] if is_number(seconds) => {
                let text =
                    text_cast_type(text).ok_or_else(|| wrong_arguments_error(self, given))?;
                Ok(vec![DataType::Int64, text])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        if taken.len() == 1 {
            return Ok(DataType::Timestamp(TimeUnit::Second, Some("UTC".into())));
        }
        let second = constants.get(1).copied().flatten();
        match second.and_then(|second| second.try_as_str().flatten()) {
            Some(zone) if FromUnixtimeFunction::is_zone_name(zone) => {
                Ok(DataType::Timestamp(TimeUnit::Second, Some(zone.into())))
            }
            Some(format) => {
                let lacks_letters =
                    !format.contains('%') && FormatLanguage::Java.parse_format(format).is_err();
                if lacks_letters && format.contains('/') && !format.contains(' ') {
                    return Err(usage_error(
                        format!("there is no zone `{format}`"),
                        "zones are named as in `Europe/Berlin`, `UTC` and `+02:00`",
                    ));
                }
                FormatLanguage::Java.parse_format(format)?;
                Ok(DataType::Utf8)
            }
            None => Err(usage_error(
                "`from_unixtime` takes a constant as its second argument",
                "date_format(to_timestamp(n), pattern) takes any",
            )),
        }
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (numbers, rows) = given.cast_argument(0, &DataType::Int64)?;
        match given.return_type {
            DataType::Utf8 => {
                let times = cast_with_options(
                    &numbers,
                    &timestamp_type(TimeUnit::Second),
                    &STRICT_CAST_OPTIONS,
                )?;
                let times = match rows {
                    crate::row_function::RowMapping::PerRow => ColumnarValue::Array(times),
                    crate::row_function::RowMapping::Constant => {
                        ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?)
                    }
                };
                let times = TimeArgument::from_value(&times)?;
                let formats = given.text_argument(1)?;
                let mut kept = LastTextCache::new();
                given.build_texts(|row, out| {
                    let (Some(time), Some(format)) = (times.local_time(row)?, formats.get(row))
                    else {
                        return Ok(false);
                    };
                    let format = kept
                        .get_or_parse(format, |format| FormatLanguage::Java.parse_format(format))?;
                    format.write_time(time, &times, out)?;
                    Ok(true)
                })
            }
            DataType::Timestamp(_, _) => {
                let times = cast_with_options(
                    &numbers,
                    &timestamp_type(TimeUnit::Second),
                    &STRICT_CAST_OPTIONS,
                )?;
                // Via BIGINT, because the seconds are an instant in any zone.
                let times = cast_with_options(&times, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
                Ok(cast_with_options(&times, given.return_type, &STRICT_CAST_OPTIONS)?)
            }
            other => Err(internal_error(&format!("`from_unixtime` makes no {other}"))),
        }
    }
}

/// The function `julian`: the Julian day number, with the time of day as a fraction.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct JulianDayFunction;

impl RowFunction for JulianDayFunction {
    fn names(&self) -> &'static [&'static str] {
        &["julian"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_DATETIME,
            syntax: "julian(ts)",
            description: "The Julian day, counted from midnight as PostgreSQL and DuckDB do, a DOUBLE: \
                   `julian(TIMESTAMP '2026-11-20 12:00:00')` is `2461365.5`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => {
                Ok(vec![instant_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let times = TimeArgument::from_value(given.argument(0)?)?;
        let day = (DAY_SECONDS * SECOND_NANOS) as f64;
        let days = (0..given.row_count).map(|row| {
            Ok(times
                .local_time(row)?
                .map(|shown| (shown.days + 2_440_588) as f64 + shown.nanos as f64 / day))
        });
        Ok(Arc::new(days.collect::<Result<Float64Array>>()?))
    }
}
