//! Parsing of time periods: `7d`, `2026-11-01`, `14d..7d`. All dates are UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use chrono::{NaiveDate, NaiveDateTime};
use tidemill_base::calendar::civil_from_days;

const MICROS_PER_DAY: u64 = 86_400_000_000;

/// A half-open interval of time in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePeriod {
    /// The first moment.
    pub from_us: u64,
    /// The first moment after the period.
    pub to_us: u64,
}

impl TimePeriod {
    /// All time.
    pub const ALL_TIME: TimePeriod = TimePeriod { from_us: 0, to_us: u64::MAX };

    /// Parses the value of `--since`: how long ago, or a moment.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is neither.
    pub fn parse_since(text: &str) -> Result<TimePeriod> {
        let from_us = parse_moment(text, now_us()).ok_or_else(|| invalid_time_error(text))?;
        Ok(TimePeriod { from_us, ..TimePeriod::ALL_TIME })
    }

    /// Parses the period after a job's name: `7d` (the last seven days), `2026-11-01` (that day), `14d..7d`,
    /// `2026-11-01..2026-11-08`, `..7d`, `2026-11-01..`.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is none of these.
    pub fn parse(text: &str) -> Result<TimePeriod> {
        Self::parse_relative_to(text, now_us()).ok_or_else(|| invalid_time_error(text))
    }

    fn parse_relative_to(text: &str, now_us: u64) -> Option<TimePeriod> {
        if let Some((from, to)) = text.split_once("..") {
            if from.is_empty() && to.is_empty() {
                return None;
            }
            let bound = |text: &str, open| match text {
                "" => Some(open),
                text => parse_moment(text, now_us),
            };
            let (from_us, to_us) = (bound(from, 0)?, bound(to, u64::MAX)?);
            return (from_us < to_us).then_some(TimePeriod { from_us, to_us });
        }
        let from_us = parse_moment(text, now_us)?;
        let is_day = NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok();
        let to_us = if is_day { from_us.saturating_add(MICROS_PER_DAY) } else { u64::MAX };
        Some(TimePeriod { from_us, to_us })
    }

    /// Returns whether the period contains a moment.
    pub fn contains(&self, moment_us: u64) -> bool {
        (self.from_us..self.to_us).contains(&moment_us)
    }
}

fn invalid_time_error(text: &str) -> Error {
    Error::usage_with_hint(
        format!("`{text}` is not a time"),
        "write how long ago (`30m`, `12h`, `7d`, `4w`) or a date in UTC (`2026-11-01`, \
         `2026-11-01T18:30`); after a job's name also a stretch (`14d..7d`)",
    )
}

/// Returns the microseconds since 1970.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Parses a moment: how long ago, or a date with or without a time.
fn parse_moment(text: &str, now_us: u64) -> Option<u64> {
    let seconds = |unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        'd' => Some(86_400),
        'w' => Some(604_800),
        _ => None,
    };
    if let Some(unit) = text.chars().next_back().and_then(seconds)
        && let Ok(count) = text[..text.len() - 1].parse::<u64>()
    {
        let ago_us = count.checked_mul(unit)?.checked_mul(1_000_000)?;
        return Some(now_us.saturating_sub(ago_us));
    }
    let date =
        NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(|date| date.and_hms_opt(0, 0, 0));
    let time = |format| NaiveDateTime::parse_from_str(text, format).ok();
    let time = date.or_else(|| time("%Y-%m-%dT%H:%M")).or_else(|| time("%Y-%m-%dT%H:%M:%S"))?;
    u64::try_from(time.and_utc().timestamp_micros()).ok()
}

/// Formats a moment as `2026-11-20 21:20:55`, UTC.
pub(super) fn format_date_time(moment_us: u64) -> String {
    let seconds = moment_us / 1_000_000;
    let (year, month, day) = civil_from_days((seconds / 86_400).cast_signed());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Formats a moment as `2026-11-20T21:20:55.123456Z`.
pub(super) fn format_iso(moment_us: u64) -> String {
    format!("{}.{:06}Z", format_date_time(moment_us).replace(' ', "T"), moment_us % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_as_people_write_them() {
        // 2026-11-21T00:00:00Z
        let now_us = 1_795_219_200_000_000;
        let day = |days: u64| now_us - days * MICROS_PER_DAY;
        let period = |from_us, to_us| Some(TimePeriod { from_us, to_us });
        for (text, expected) in [
            ("7d", period(day(7), u64::MAX)),
            ("24h", period(day(1), u64::MAX)),
            ("1w", period(day(7), u64::MAX)),
            ("1440m", period(day(1), u64::MAX)),
            ("2026-11-20", period(day(1), day(0))),
            ("2026-11-20T12:00", period(day(1) + MICROS_PER_DAY / 2, u64::MAX)),
            ("14d..7d", period(day(14), day(7))),
            ("..7d", period(0, day(7))),
            ("2026-11-19..", period(day(2), u64::MAX)),
            ("2026-11-19..2026-11-20", period(day(2), day(1))),
            ("7d..14d", None),
            ("..", None),
            ("", None),
            ("d", None),
            ("7 days", None),
            ("-7d", None),
            ("2026-13-01", None),
            ("99999999999999999999d", None),
            ("9999999999999999d", None),
            ("7é", None),
        ] {
            assert_eq!(TimePeriod::parse_relative_to(text, now_us), expected, "{text}");
        }
        assert_eq!(format_iso(now_us + 5), "2026-11-21T00:00:00.000005Z");
    }
}
