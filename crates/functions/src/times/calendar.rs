//! Conversion between days since 1970 and dates or weeks, in the proleptic Gregorian calendar.
//!
//! Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years begin in March there, so that
//! the leap day is the last of a year. The days come from timestamps: their magnitude is below 2^47, so
//! nothing overflows.

/// A date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CalendarDate {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u32,
    /// 1 to 31.
    pub(super) day: u32,
}

pub(super) const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Names of the days of the week, from Monday on.
pub(super) const WEEKDAY_NAMES: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Returns the date of a number of days since 1970.
pub(super) fn date_from_days(days: i64) -> CalendarDate {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    CalendarDate { year, month: month as u32, day: day as u32 }
}

/// Returns the days since 1970 of a date; a day beyond the end of the month is in the next month.
pub(super) fn days_from_date(date: CalendarDate) -> i64 {
    let CalendarDate { year, month, day } = date;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(month);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the first day of a year, in days since 1970.
pub(super) fn first_day_of_year(year: i64) -> i64 {
    days_from_date(CalendarDate { year, month: 1, day: 1 })
}

pub(super) fn is_leap_year(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

pub(super) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if is_leap_year(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the day of the week: 0 is Monday, 6 is Sunday. 1970 began on a Thursday.
pub(super) fn weekday(days: i64) -> u32 {
    (days + 3).rem_euclid(7) as u32
}

/// Returns the day of the year, from 1.
pub(super) fn day_of_year(days: i64) -> u32 {
    (days - first_day_of_year(date_from_days(days).year) + 1) as u32
}

/// Returns the ISO 8601 year and week: weeks begin on Monday, and week 1 contains the year's first Thursday.
pub(super) fn iso_week(days: i64) -> (i64, u32) {
    let thursday = days - i64::from(weekday(days)) + 3;
    let year = date_from_days(thursday).year;
    (year, ((thursday - first_day_of_year(year)) / 7 + 1) as u32)
}

/// Returns the Monday on which an ISO 8601 year begins, in days since 1970.
pub(super) fn iso_year_start(year: i64) -> i64 {
    let fourth = first_day_of_year(year) + 3;
    fourth - i64::from(weekday(fourth))
}

/// Returns the week of the year for weeks that begin on Sunday or on Monday; days before the first are in
/// week 0.
pub(super) fn week_of_year(days: i64, from_sunday: bool) -> u32 {
    let since = match from_sunday {
        true => (weekday(days) + 1) % 7,
        false => weekday(days),
    };
    (day_of_year(days) + 6 - since) / 7
}

/// Returns the days since 1970 of a day in a month, which is given in months since year 0. A day beyond the
/// end of the month becomes the month's last day.
pub(super) fn days_from_months(months: i64, day: u32) -> i64 {
    let year = months.div_euclid(12);
    let month = months.rem_euclid(12) as u32 + 1;
    days_from_date(CalendarDate { year, month, day: day.min(days_in_month(year, month)) })
}

/// Returns the month of a date, in months since year 0.
pub(super) fn months_since_year_zero(date: CalendarDate) -> i64 {
    date.year * 12 + i64::from(date.month) - 1
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate};

    use super::*;

    #[test]
    fn dates_and_weeks_match_chrono() {
        for days in (-800_000..800_000).step_by(37).chain(-1_000..1_000).chain(10_500..11_500) {
            let date = date_from_days(days);
            let theirs = NaiveDate::from_epoch_days(days as i32).unwrap();
            assert_eq!(
                (date.year, date.month, date.day),
                (i64::from(theirs.year()), theirs.month(), theirs.day())
            );
            assert_eq!(days_from_date(date), days);
            assert_eq!(weekday(days), theirs.weekday().num_days_from_monday());
            assert_eq!(day_of_year(days), theirs.ordinal());
            let week = theirs.iso_week();
            assert_eq!(iso_week(days), (i64::from(week.year()), week.week()));
            assert_eq!(iso_week(iso_year_start(date.year)), (date.year, 1));
            assert_eq!(weekday(iso_year_start(date.year)), 0);
            assert_eq!(week_of_year(days, true).to_string(), theirs.format("%-U").to_string());
            assert_eq!(week_of_year(days, false).to_string(), theirs.format("%-W").to_string());
            let last = days_from_months(months_since_year_zero(date), 31);
            assert_eq!(date_from_days(last).day, days_in_month(date.year, date.month));
            assert_eq!(date_from_days(last + 1).day, 1);
        }
    }
}
