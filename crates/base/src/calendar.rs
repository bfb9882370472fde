//! Conversion of day numbers to calendar dates.

/// Returns year, month and day for a number of days since 1970-01-01 in the proleptic Gregorian
/// calendar; Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
pub fn civil_from_days(days: i64) -> (i64, u64, u64) {
    // In i128 no day count overflows; the compiler keeps it cheap.
    let days = i128::from(days) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    // i64 days are fewer than 2^55 years.
    (year as i64, month as u64, day as u64)
}
