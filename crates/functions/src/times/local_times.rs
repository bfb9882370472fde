//! Local times: the times of an argument as the clocks of its zone show them, whatever its type.
//!
//! Conversion of a local time back to an instant follows the rules of all SQL here. A local time that occurs
//! twice is the later one, but a day begins at the first of two midnights. A local time that a clock change
//! skips is as long after the change as it would have been without it.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{DateTime, MappedLocalTime, Offset, TimeDelta, TimeZone};
use chrono_tz::OffsetName;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::ColumnarValue;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use super::calendar::{CalendarDate, date_from_days};
use crate::row_function::{RowMapping, argument_array, internal_error, overflow_error};

pub(super) const DAY_SECONDS: i64 = 86_400;
pub(super) const SECOND_NANOS: i64 = 1_000_000_000;
pub(super) const DAY_NANOS: i64 = DAY_SECONDS * SECOND_NANOS;

/// A time zone other than UTC.
#[derive(Debug, Clone)]
pub(super) struct LocalZone {
    pub(super) name: Arc<str>,
    tz: Tz,
    /// The same zone if it has a name, which provides abbreviations.
    named_tz: Option<chrono_tz::Tz>,
}

impl LocalZone {
    /// Returns the zone of a name, or `None` for UTC.
    pub(super) fn from_name(name: &Arc<str>) -> Result<Option<Self>> {
        match matches!(name.as_ref(), "UTC" | "+00:00") {
            true => Ok(None),
            false => {
                let named = name.parse().ok();
                Ok(Some(LocalZone { name: Arc::clone(name), tz: name.parse()?, named_tz: named }))
            }
        }
    }

    /// Returns the offset from UTC at an instant, in seconds.
    pub(super) fn utc_offset_at(&self, seconds: i64) -> Result<i64> {
        let at = DateTime::from_timestamp(seconds, 0).ok_or_else(time_out_of_range_error)?;
        Ok(self.tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc().into())
    }

    /// Returns the abbreviation of the zone at an instant: `CEST`.
    pub(super) fn abbreviation(&self, seconds: i64) -> Result<String> {
        let at =
            DateTime::from_timestamp(seconds, 0).ok_or_else(time_out_of_range_error)?.naive_utc();
        let named = self.named_tz.map(|zone| zone.offset_from_utc_datetime(&at));
        Ok(match named.as_ref().and_then(OffsetName::abbreviation) {
            Some(abbreviation) => abbreviation.to_owned(),
            None => self.tz.offset_from_utc_datetime(&at).to_string(),
        })
    }

    /// Returns the offset from UTC at a local time, in seconds. For a local time that occurs twice, `first`
    /// selects the first occurrence, otherwise the last.
    pub(super) fn utc_offset_of_local_time(&self, shown: i64, first: bool) -> Result<i64> {
        let shown =
            DateTime::from_timestamp(shown, 0).ok_or_else(time_out_of_range_error)?.naive_utc();
        let offset = match self.tz.offset_from_local_datetime(&shown) {
            MappedLocalTime::Single(offset) => offset,
            MappedLocalTime::Ambiguous(early, late) => match first {
                true => early,
                false => late,
            },
            // The offset before the clock change; no clock changes by more than a day.
            MappedLocalTime::None => {
                let before = shown
                    .checked_sub_signed(TimeDelta::hours(25))
                    .ok_or_else(time_out_of_range_error)?;
                self.tz
                    .offset_from_local_datetime(&before)
                    .earliest()
                    .ok_or_else(time_out_of_range_error)?
            }
        };
        Ok(offset.fix().local_minus_utc().into())
    }
}

/// Returns the error for a time outside the range of its type or its zone's calendar.
pub(super) fn time_out_of_range_error() -> DataFusionError {
    overflow_error(
        "a time is beyond the years that its type or its zone has",
        Some("WHERE leaves out what is no real time"),
    )
}

/// Returns the number of units per second.
pub(super) fn units_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => SECOND_NANOS,
    }
}

/// A local time and its offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalTime {
    /// Days since 1970.
    pub(super) days: i64,
    /// Nanoseconds since midnight.
    pub(super) nanos: i64,
    /// Seconds ahead of UTC.
    pub(super) utc_offset_seconds: i64,
}

impl LocalTime {
    /// Returns the date.
    pub(super) fn date(self) -> CalendarDate {
        date_from_days(self.days)
    }

    /// Returns the seconds since 1970, with the local time taken as UTC.
    pub(super) fn total_seconds(self) -> i64 {
        // The sum fits, since it came from a 64-bit number; the product of the days alone may not.
        self.days.wrapping_mul(DAY_SECONDS).wrapping_add(self.nanos / SECOND_NANOS)
    }

    /// Returns the nanoseconds since 1970, with the local time taken as UTC.
    pub(super) fn total_nanos(self) -> i128 {
        i128::from(self.days) * i128::from(DAY_NANOS) + i128::from(self.nanos)
    }
}

/// An argument of dates, timestamps or times of day.
#[derive(Debug)]
pub(super) struct TimeArgument {
    values: Int64Array,
    rows: RowMapping,
    /// Number of the type's units per day; 1 for dates.
    units_per_day: i64,
    pub(super) zone: Option<LocalZone>,
    /// False for times of day.
    pub(super) has_days: bool,
}

impl TimeArgument {
    pub(super) fn from_value(value: &ColumnarValue) -> Result<Self> {
        let (array, rows) = argument_array(value)?;
        let (per_day, has_days) = match array.data_type() {
            DataType::Date32 => (1, true),
            DataType::Date64 => (DAY_SECONDS * 1_000, true),
            DataType::Timestamp(unit, _) => (DAY_SECONDS * units_per_second(*unit), true),
            DataType::Time32(unit) | DataType::Time64(unit) => {
                (DAY_SECONDS * units_per_second(*unit), false)
            }
            other => return Err(internal_error(&format!("a {} is no time", sql_type_name(other)))),
        };
        let zone = match array.data_type() {
            DataType::Timestamp(_, Some(zone)) => LocalZone::from_name(zone)?,
            _ => None,
        };
        let whole = match array.data_type() {
            DataType::Date32 | DataType::Time32(_) => {
                cast_with_options(&array, &DataType::Int32, &STRICT_CAST_OPTIONS)?
            }
            _ => array,
        };
        let values = cast_with_options(&whole, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
        let values = values.as_primitive::<Int64Type>().clone();
        Ok(TimeArgument { values, rows, units_per_day: per_day, zone, has_days })
    }

    /// Returns the time of a row in units of its type, since 1970.
    pub(super) fn raw_value(&self, row: usize) -> Option<i64> {
        let row = self.rows.value_index(row);
        self.values.is_valid(row).then(|| self.values.value(row))
    }

    /// Returns the time of a row in UTC.
    pub(super) fn utc_time(&self, row: usize) -> Option<LocalTime> {
        let raw = self.raw_value(row)?;
        let nanos = raw.rem_euclid(self.units_per_day) * (DAY_NANOS / self.units_per_day);
        Some(LocalTime { days: raw.div_euclid(self.units_per_day), nanos, utc_offset_seconds: 0 })
    }

    /// Returns the local time of a row in its zone.
    ///
    /// # Errors
    /// Fails for a time outside of the zone's calendar.
    pub(super) fn local_time(&self, row: usize) -> Result<Option<LocalTime>> {
        let Some(instant) = self.utc_time(row) else { return Ok(None) };
        let Some(zone) = &self.zone else { return Ok(Some(instant)) };
        let ahead = zone.utc_offset_at(instant.total_seconds())?;
        Ok(Some(apply_utc_offset(instant, ahead)))
    }

    /// Converts a local time in nanoseconds since 1970 to an instant in units of the type.
    ///
    /// # Errors
    /// Fails for an instant outside the range of the type.
    pub(super) fn raw_value_of_local_time(&self, nanos: i128, first: bool) -> Result<i64> {
        let mut nanos = nanos;
        if let Some(zone) = &self.zone {
            let second = i128::from(SECOND_NANOS);
            let seconds =
                i64::try_from(nanos.div_euclid(second)).map_err(|_| time_out_of_range_error())?;
            nanos -= i128::from(zone.utc_offset_of_local_time(seconds, first)?) * second;
        }
        self.raw_value_of_utc_time(nanos)
    }

    /// Converts an instant in nanoseconds since 1970 to units of the type.
    ///
    /// # Errors
    /// Fails for an instant outside the range of the type.
    pub(super) fn raw_value_of_utc_time(&self, nanos: i128) -> Result<i64> {
        i64::try_from(nanos.div_euclid(i128::from(DAY_NANOS / self.units_per_day)))
            .map_err(|_| time_out_of_range_error())
    }
}

/// Returns the local time at an offset from UTC of at most a day or two.
fn apply_utc_offset(instant: LocalTime, ahead: i64) -> LocalTime {
    let nanos = instant.nanos + ahead * SECOND_NANOS;
    let days = instant.days + nanos.div_euclid(DAY_NANOS);
    LocalTime { days, nanos: nanos.rem_euclid(DAY_NANOS), utc_offset_seconds: ahead }
}

/// Returns the type that a date or timestamp argument is cast to; text becomes a TIMESTAMP. Returns `None`
/// for other types.
pub(super) fn instant_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _) => Some(given.clone()),
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        DataType::Dictionary(_, values) => instant_cast_type(values),
        _ => None,
    }
}

/// Like [`instant_cast_type`], but accepts times of day too.
pub(super) fn time_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Time32(_) | DataType::Time64(_) => Some(given.clone()),
        other => instant_cast_type(other),
    }
}
