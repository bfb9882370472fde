//! Round bounds of time ranges, rounded to months, days, hours or whichever unit is below their width.

use datafusion_common::Result;

use super::calendar::{date_from_days, days_from_months, months_since_year_zero};
use super::local_times::{DAY_SECONDS, time_out_of_range_error};

const SECOND_MICROS: i64 = 1_000_000;
const MINUTE_MICROS: i64 = 60 * SECOND_MICROS;
const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
const DAY_MICROS: i64 = DAY_SECONDS * SECOND_MICROS;

/// The width of a range of times.
#[derive(Debug, Clone, Copy)]
struct TimeWidth {
    months: i64,
    days: i64,
    micros: i64,
}

impl TimeWidth {
    /// Calculates the width of each of `count` ranges; units far below the largest one are rounded or
    /// dropped.
    fn from_range(low: i64, high: i64, count: usize) -> Self {
        let parts = |micros: i64| {
            let date = date_from_days(micros.div_euclid(DAY_MICROS));
            (months_since_year_zero(date), i64::from(date.day), micros.rem_euclid(DAY_MICROS))
        };
        let ((low_month, low_day, low_micros), (high_month, high_day, high_micros)) =
            (parts(low), parts(high));
        let count = count as f64;
        let months = (high_month - low_month) as f64 / count;
        let mut days = (high_day - low_day) as f64 / count;
        let mut micros = (high_micros - low_micros) as f64 / count;
        // The fraction of a month counts 30 days, the fraction of a day its hours.
        if months > 0.0 {
            days += months.fract() * 30.0;
        }
        if days > 0.0 {
            micros += days.fract() * DAY_MICROS as f64;
        }
        let (months, days, micros) = (months as i64, days as i64, micros as i64);
        let nearest = |unit: i64| (micros + unit / 2) / unit * unit;
        let (days, micros) = match () {
            () if months >= 6 => (0, 0),
            () if months > 0 || days >= 5 => (days, 0),
            () if days > 0 || micros >= 6 * HOUR_MICROS => (days, nearest(HOUR_MICROS)),
            () if micros >= HOUR_MICROS => (days, nearest(15 * MINUTE_MICROS)),
            () if micros >= 10 * MINUTE_MICROS => (days, nearest(MINUTE_MICROS)),
            () if micros >= MINUTE_MICROS => (days, nearest(15 * SECOND_MICROS)),
            () if micros >= 10 * SECOND_MICROS => (days, nearest(SECOND_MICROS)),
            () => (days, micros),
        };
        TimeWidth { months, days, micros }
    }

    /// Rounds a time up to one that is round for this width.
    fn round_up(self, micros: i64) -> i64 {
        let days = -(-micros).div_euclid(DAY_MICROS);
        let unit = match () {
            () if self.months >= 12 => {
                let date = date_from_days(days);
                let is_first = i64::from(date.day != 1);
                return days_from_months(months_since_year_zero(date) + is_first, 1) * DAY_MICROS;
            }
            () if self.months > 0 || self.days >= 1 => return days * DAY_MICROS,
            () if self.micros >= HOUR_MICROS => HOUR_MICROS,
            () if self.micros >= MINUTE_MICROS => MINUTE_MICROS,
            () if self.micros >= SECOND_MICROS => SECOND_MICROS,
            () => 1,
        };
        -(-micros).div_euclid(unit) * unit
    }

    /// Returns the time that is one width earlier.
    fn step_back(self, micros: i64) -> i64 {
        let mut days = micros.div_euclid(DAY_MICROS);
        if self.months != 0 {
            let date = date_from_days(days);
            days = days_from_months(months_since_year_zero(date) - self.months, date.day);
        }
        (days - self.days) * DAY_MICROS + micros.rem_euclid(DAY_MICROS) - self.micros
    }
}

/// Returns the bounds of at most `count` time ranges in microseconds since 1970, the last first.
///
/// # Errors
/// Fails for times outside the range of microsecond timestamps.
pub(crate) fn round_time_bins(low: i64, high: i64, count: usize) -> Result<Vec<i64>> {
    // A margin beyond the largest rounding of a bound.
    let reach = i64::MAX - 400 * DAY_MICROS;
    if high > reach || low < -reach {
        return Err(time_out_of_range_error());
    }
    let mut width = TimeWidth::from_range(low, high, count);
    let mut bound = width.round_up(high);
    if width.months <= 0 && width.days <= 0 && width.micros <= 0 {
        width = TimeWidth { months: 0, days: 0, micros: 1 };
    }
    let mut bounds = Vec::new();
    while bound >= low && bounds.len() < count {
        bounds.push(bound);
        bound = width.step_back(bound);
    }
    Ok(bounds)
}
