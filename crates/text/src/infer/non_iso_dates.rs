//! Inference of dates in other spellings than ISO 8601: `01.03.2026`, `3/1/2026 14:05`, `2026/03/01`. The
//! decoders read them as text, since a date with the year last does not tell whether the day or the month is
//! first. This module collects the evidence of the values.

/// Evidence that the values of a column are dates in a spelling other than ISO 8601.
///
/// ```
/// use tidemill_text::infer::NonIsoDates;
///
/// let mut order = NonIsoDates::default();
/// ["01.03.2026", "28.02.2026"].iter().for_each(|value| order.add_value(value));
/// assert_eq!(order.strptime_formats(), ["%d.%m.%Y"]);
/// order.add_value("n/a");
/// assert!(order.strptime_formats().is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NonIsoDates {
    /// There were no values.
    #[default]
    NoValues,
    /// All values are dates with the year last.
    Dates {
        /// The separator between the numbers: `.`, `/` or `-`.
        separator: char,
        /// True if a first number can only be a day.
        day_first: bool,
        /// True if a second number can only be a day.
        month_first: bool,
        /// Number of parts of the time of day after the date: 0, 2 or 3.
        time_parts: usize,
    },
    /// All values are dates with the year first.
    YearFirst {
        /// The separator between the numbers: `.` or `/`.
        separator: char,
        /// Number of parts of the time of day, as above.
        time_parts: usize,
    },
    /// Some value is no such date.
    NotDates,
}

impl NonIsoDates {
    /// Adds a value that is not null.
    pub fn add_value(&mut self, value: &str) {
        if *self != NonIsoDates::NotDates {
            self.merge(&Self::from_value(value).unwrap_or(NonIsoDates::NotDates));
        }
    }

    /// Merges the evidence of other values.
    pub fn merge(&mut self, other: &NonIsoDates) {
        *self = match (*self, *other) {
            (NonIsoDates::NoValues, other) => other,
            (own, NonIsoDates::NoValues) => own,
            (
                NonIsoDates::Dates { separator, day_first, month_first, time_parts: clock },
                NonIsoDates::Dates {
                    separator: their_separator,
                    day_first: theirs_first,
                    month_first: their_month,
                    time_parts: their_clock,
                },
            ) if separator == their_separator && clock == their_clock => {
                let (day_first, month_first) =
                    (day_first || theirs_first, month_first || their_month);
                match day_first && month_first {
                    true => NonIsoDates::NotDates,
                    false => {
                        NonIsoDates::Dates { separator, day_first, month_first, time_parts: clock }
                    }
                }
            }
            (own, other) if own == other => own,
            _ => NonIsoDates::NotDates,
        };
    }

    /// Returns the `strptime` formats that read the values: none if they are no such dates, two if either
    /// number may be the day.
    #[must_use]
    pub fn strptime_formats(&self) -> Vec<String> {
        let words = |clock: usize| match clock {
            0 => "",
            2 => " %H:%M",
            _ => " %H:%M:%S",
        };
        let (separator, day_first, month_first, clock) = match *self {
            NonIsoDates::Dates { separator, day_first, month_first, time_parts: clock } => {
                (separator, day_first, month_first, words(clock))
            }
            NonIsoDates::YearFirst { separator, time_parts: clock } => {
                return vec![format!("%Y{separator}%m{separator}%d{}", words(clock))];
            }
            NonIsoDates::NoValues | NonIsoDates::NotDates => return Vec::new(),
        };
        let format =
            |first: &str, second: &str| format!("%{first}{separator}%{second}{separator}%Y{clock}");
        match (day_first || separator == '.', month_first) {
            (true, _) => vec![format("d", "m")],
            (_, true) => vec![format("m", "d")],
            _ => vec![format("d", "m"), format("m", "d")],
        }
    }

    fn from_value(value: &str) -> Option<Self> {
        let (date, time) = match value.split_once(' ') {
            Some((date, time)) => (date, Some(time)),
            None => (value, None),
        };
        let separator = date.chars().find(|sign| !sign.is_ascii_digit())?;
        if !matches!(separator, '.' | '/' | '-') {
            return None;
        }
        let mut parts = date.split(separator);
        let (first, second, third) = (parts.next()?, parts.next()?, parts.next()?);
        let is_year_first = first.len() == 4 && separator != '-';
        let (year, first, third) = match is_year_first {
            true => (first, second, third),
            false => (third, first, second),
        };
        parse_number(year, 4, 4)?;
        let (first, second) = (parse_number(first, 1, 2)?, parse_number(third, 1, 2)?);
        let is_date = parts.next().is_none()
            && (1..=31).contains(&first)
            && (1..=31).contains(&second)
            && (first <= 12 || second <= 12);
        let clock = match time {
            None => 0,
            Some(time) => {
                let parts: Vec<&str> = time.split(':').collect();
                let limits = [23, 59, 60];
                let are_numbers = parts.iter().zip(limits).all(|(part, most)| {
                    parse_number(part, 2, 2).is_some_and(|number| number <= most)
                });
                Some(parts.len()).filter(|count| (2..=3).contains(count) && are_numbers)?
            }
        };
        if is_year_first {
            return (is_date && first <= 12)
                .then_some(NonIsoDates::YearFirst { separator, time_parts: clock });
        }
        // No convention puts a month before a day with dots and the year last.
        let month_first = second > 12;
        (is_date && !(separator == '.' && month_first)).then_some(NonIsoDates::Dates {
            separator,
            day_first: first > 12,
            month_first,
            time_parts: clock,
        })
    }
}

/// Parses a number of `least` to `most` digits.
fn parse_number(text: &str, least: usize, most: usize) -> Option<u32> {
    let is_number =
        (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_and_month_order_is_inferred() {
        for (values, expected) in [
            (&["01.03.2026", "3.1.2026"][..], &["%d.%m.%Y"][..]),
            (&["01/03/2026", "13/01/2026"], &["%d/%m/%Y"]),
            (&["01/03/2026", "01/13/2026"], &["%m/%d/%Y"]),
            (&["01/03/2026", "12/01/2026"], &["%d/%m/%Y", "%m/%d/%Y"]),
            (&["01-03-2026 10:05", "31-01-2026 00:00"], &["%d-%m-%Y %H:%M"]),
            (&["01.03.2026 10:05:09"], &["%d.%m.%Y %H:%M:%S"]),
            (&["2026/03/01", "2026/3/31"], &["%Y/%m/%d"]),
            (&["2026.03.01 10:05:09"], &["%Y.%m.%d %H:%M:%S"]),
            (&["2026/13/01"], &[]),
            (&["2026/03/01", "2026.03.01"], &[]),
            (&["2026/03/01", "01/03/2026"], &[]),
            (&["2026/03/01", "2026/03/01 10:05"], &[]),
            (&["13/01/2026", "01/13/2026"], &[]),
            (&["01/03/2026", "01.03.2026"], &[]),
            (&["01.13.2026"], &[]),
            (&["01.03.2026", "01.03.2026 10:05"], &[]),
            (&["2026-03-01"], &[]),
            (&["1.3.26"], &[]),
            (&["10.0.0.1"], &[]),
            (&["1.2.20260"], &[]),
            (&["00/01/2026"], &[]),
            (&["01/03/2026 25:00"], &[]),
            (&["01/03/2026 1"], &[]),
            (&["Ä1.03.2026"], &[]),
            (&["", "01.03.2026"], &[]),
            (&[], &[]),
        ] {
            let mut order = NonIsoDates::default();
            values.iter().for_each(|value| order.add_value(value));
            assert_eq!(order.strptime_formats(), expected, "{values:?}");
            // Merging the evidence of two parts gives the same.
            for cut in 0..values.len() {
                let (mut first, mut second) = (NonIsoDates::default(), NonIsoDates::default());
                values[..cut].iter().for_each(|value| first.add_value(value));
                values[cut..].iter().for_each(|value| second.add_value(value));
                first.merge(&second);
                assert_eq!(first, order, "{values:?}");
            }
        }
    }
}
