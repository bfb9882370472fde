//! Compiled `strftime` patterns for times.

use crate::access_log::month_number;
use crate::fast_value_parsing;
use crate::value_parsing;

/// Patterns for milliseconds and microseconds since 1970, which `strftime` cannot express.
pub(super) const MILLIS_PATTERN: &str = "%@ms";
pub(super) const MICROS_PATTERN: &str = "%@us";

/// Pattern of the time in the Common Log Format.
pub(super) const CLF_PATTERN: &str = "%d/%b/%Y:%H:%M:%S %z";

/// Returns the characters of a time pattern with `0` for each directive: `0-0-0 0:0:0` for `%F %T`.
pub(super) fn literal_signs(pattern: &str) -> String {
    let mut signs = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => match letters.find(|c| c.is_ascii_alphabetic() || matches!(c, '%' | '@')) {
                Some('F') => signs.push_str("0-0-0"),
                Some('T') => signs.push_str("0:0:0"),
                Some('D') => signs.push_str("0/0/0"),
                Some('R') => signs.push_str("0:0"),
                Some('%') => signs.push('%'),
                _ => signs.push('0'),
            },
            other => signs.push(other),
        }
    }
    signs
}

/// Parses a time of ISO 8601, possibly with a space before its clock, a comma before its fraction, or no
/// zone.
pub(super) fn parse_iso_time(bytes: &[u8]) -> Option<(i64, u32)> {
    let mut text = [0; 64];
    let text = text.get_mut(..bytes.len())?;
    text.copy_from_slice(bytes);
    if let Some(point @ b',') = text.get_mut(19) {
        *point = b'.';
    }
    let written = value_parsing::parse_date_time(std::str::from_utf8(text).ok()?)?;
    let ahead = i64::from(written.utc_offset_seconds.unwrap_or(0));
    Some((written.seconds - ahead, written.nanos))
}

/// Returns whether a pattern is a plain number since 1970, which `strftime` cannot express.
pub(super) fn is_epoch_number(pattern: &str) -> bool {
    pattern == MILLIS_PATTERN || pattern == MICROS_PATTERN
}

/// An item of a time pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeItem {
    Byte(u8),
    Year,
    /// Two digits; `69` to `99` belong to the last century, as in POSIX.
    YearOfCentury,
    Month,
    MonthName,
    Day,
    DayOfYear,
    Hour,
    /// Hour of a twelve-hour clock, with `AmPm`.
    HourOfTwelve,
    AmPm,
    Minute,
    Second,
    /// Digits after the point: a fixed number, or one to nine.
    FractionDigits(Option<u8>),
    /// Zone: `+0200`, `+02:00` or `Z`.
    Zone,
    /// Zone name: `UTC` or `GMT`; other names are ambiguous.
    ZoneName,
    Weekday,
    Seconds,
    Millis,
    Micros,
}

/// A pattern of a time that determines an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrftimeFormat(Vec<TimeItem>);

impl StrftimeFormat {
    /// Compiles a pattern; `None` if it has an unknown directive, or does not determine the day.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        match pattern {
            MILLIS_PATTERN => return Some(Self(vec![TimeItem::Millis])),
            MICROS_PATTERN => return Some(Self(vec![TimeItem::Micros])),
            _ => {}
        }
        let mut items = Vec::new();
        push_items(pattern, &mut items)?;
        let has = |wanted: TimeItem| items.contains(&wanted);
        let has_day = (has(TimeItem::Year) || has(TimeItem::YearOfCentury))
            && (has(TimeItem::DayOfYear)
                || has(TimeItem::Day) && (has(TimeItem::Month) || has(TimeItem::MonthName)));
        let has_clock = !has(TimeItem::HourOfTwelve) || has(TimeItem::AmPm);
        (has(TimeItem::Seconds) || has_day && has_clock).then_some(Self(items))
    }

    /// Parses a time into seconds since 1970-01-01 UTC and nanoseconds; without a zone it is UTC.
    pub(super) fn parse_instant(&self, bytes: &[u8]) -> Option<(i64, u32)> {
        let mut text = bytes;
        let (mut year, mut month_of, mut day, mut day_of_year) = (1970, 1, 1, None);
        let (mut hour, mut minute, mut second, mut nanos) = (0_i64, 0_i64, 0_i64, 0);
        let (mut afternoon, mut ahead, mut since) = (None, 0, None);
        for item in &self.0 {
            match item {
                TimeItem::Byte(byte) => text = text.strip_prefix(&[*byte])?,
                TimeItem::Year => year = i32::try_from(take_number(&mut text, 4, 4)?).ok()?,
                TimeItem::YearOfCentury => {
                    let two = i32::try_from(take_number(&mut text, 2, 2)?).ok()?;
                    year = if two < 69 { 2000 + two } else { 1900 + two };
                }
                TimeItem::Month => month_of = u32::try_from(take_number(&mut text, 2, 2)?).ok()?,
                TimeItem::MonthName => {
                    let (name, rest) = text.split_first_chunk::<3>()?;
                    month_of = month_number(*name)?;
                    text = rest;
                }
                TimeItem::Day => day = u32::try_from(take_padded_number(&mut text)?).ok()?,
                TimeItem::DayOfYear => {
                    day_of_year = Some(i32::try_from(take_number(&mut text, 3, 3)?).ok()?);
                }
                TimeItem::Hour => hour = take_padded_number(&mut text)?,
                TimeItem::HourOfTwelve => {
                    hour = take_padded_number(&mut text)?;
                    if !(1..=12).contains(&hour) {
                        return None;
                    }
                }
                TimeItem::AmPm => {
                    let (word, rest) = text.split_first_chunk::<2>()?;
                    afternoon = Some(match word.to_ascii_uppercase().as_slice() {
                        b"AM" => false,
                        b"PM" => true,
                        _ => return None,
                    });
                    text = rest;
                }
                TimeItem::Minute => minute = take_number(&mut text, 2, 2)?,
                TimeItem::Second => second = take_number(&mut text, 2, 2)?,
                TimeItem::FractionDigits(digits) => {
                    let (least, most) = digits.map_or((1, 9), |digits| (digits, digits));
                    let before = text.len();
                    let value = take_number(&mut text, usize::from(least), usize::from(most))?;
                    let digits = u32::try_from(before - text.len()).ok()?;
                    nanos = u32::try_from(value).ok()?.checked_mul(10_u32.pow(9 - digits))?;
                }
                TimeItem::Zone => ahead = take_zone_offset(&mut text)?,
                TimeItem::ZoneName => {
                    text = text.strip_prefix(b"UTC").or_else(|| text.strip_prefix(b"GMT"))?;
                }
                TimeItem::Weekday => {
                    let letters = text.iter().take_while(|b| b.is_ascii_alphabetic()).count();
                    if letters < 2 {
                        return None;
                    }
                    text = &text[letters..];
                }
                TimeItem::Seconds => since = Some(take_signed_number(&mut text)?),
                TimeItem::Millis => {
                    let value = take_signed_number(&mut text)?;
                    since = Some(value.div_euclid(1_000));
                    nanos = u32::try_from(value.rem_euclid(1_000)).ok()? * 1_000_000;
                }
                TimeItem::Micros => {
                    let value = take_signed_number(&mut text)?;
                    since = Some(value.div_euclid(1_000_000));
                    nanos = u32::try_from(value.rem_euclid(1_000_000)).ok()? * 1_000;
                }
            }
        }
        if !text.is_empty() {
            return None;
        }
        if let Some(since) = since {
            return Some((since, nanos));
        }
        if let Some(afternoon) = afternoon {
            hour = hour % 12 + if afternoon { 12 } else { 0 };
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let days = match day_of_year {
            Some(number) => {
                let (first, next) = (
                    fast_value_parsing::days_since_epoch(year, 1, 1)?,
                    fast_value_parsing::days_since_epoch(year + 1, 1, 1)?,
                );
                (1..=next - first).contains(&number).then_some(first + number - 1)?
            }
            None => fast_value_parsing::days_since_epoch(year, month_of, day)?,
        };
        let clock = hour * 3600 + minute * 60 + second;
        let seconds = i64::from(days) * 86_400 + clock - ahead;
        (second < 60 || value_parsing::can_be_leap_second(seconds)).then_some((seconds, nanos))
    }
}

/// Adds the items of a pattern; returns `None` for an unknown directive.
fn push_items(pattern: &str, items: &mut Vec<TimeItem>) -> Option<()> {
    let mut rest = pattern.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            items.push(TimeItem::Byte(byte));
            continue;
        }
        let mut word = rest.next()?;
        // Flags for padding; `%:z` and `%.3f` as some programs write them.
        while matches!(word, b'-' | b'_' | b'0' | b':' | b'E' | b'O') {
            word = rest.next()?;
        }
        if word == b'.' {
            items.push(TimeItem::Byte(b'.'));
            word = rest.next()?;
        }
        let mut digits = None;
        if let b'1'..=b'9' = word {
            digits = Some(word - b'0');
            word = rest.next()?;
        }
        match word {
            b'%' => items.push(TimeItem::Byte(b'%')),
            b'n' => items.push(TimeItem::Byte(b'\n')),
            b't' => items.push(TimeItem::Byte(b'\t')),
            b'Y' => items.push(TimeItem::Year),
            b'y' => items.push(TimeItem::YearOfCentury),
            b'm' => items.push(TimeItem::Month),
            b'b' | b'h' => items.push(TimeItem::MonthName),
            b'd' | b'e' => items.push(TimeItem::Day),
            b'j' => items.push(TimeItem::DayOfYear),
            b'H' | b'k' => items.push(TimeItem::Hour),
            b'I' | b'l' => items.push(TimeItem::HourOfTwelve),
            b'p' | b'P' => items.push(TimeItem::AmPm),
            b'M' => items.push(TimeItem::Minute),
            b'S' => items.push(TimeItem::Second),
            b'f' | b'L' | b'N' => items.push(TimeItem::FractionDigits(digits)),
            b'z' => items.push(TimeItem::Zone),
            b'Z' => items.push(TimeItem::ZoneName),
            b'a' | b'A' => items.push(TimeItem::Weekday),
            b's' => items.push(TimeItem::Seconds),
            b'T' => push_items("%H:%M:%S", items)?,
            b'R' => push_items("%H:%M", items)?,
            b'r' => push_items("%I:%M:%S %p", items)?,
            b'F' => push_items("%Y-%m-%d", items)?,
            b'D' => push_items("%m/%d/%y", items)?,
            b'c' => push_items("%a %b %e %H:%M:%S %Y", items)?,
            _ => return None,
        }
    }
    Some(())
}

/// Consumes a number of `least` to `most` digits.
fn take_number(text: &mut &[u8], least: usize, most: usize) -> Option<i64> {
    let count = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    if count < least {
        return None;
    }
    let (digits, rest) = text.split_at(count);
    *text = rest;
    Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// Consumes a number of two digits, the first of which may be missing or a space.
fn take_padded_number(text: &mut &[u8]) -> Option<i64> {
    *text = text.strip_prefix(b" ").unwrap_or(text);
    take_number(text, 1, 2)
}

/// Consumes a number that may be negative.
fn take_signed_number(text: &mut &[u8]) -> Option<i64> {
    let negative = text.starts_with(b"-");
    *text = text.strip_prefix(b"-").unwrap_or(text);
    let value = take_number(text, 1, 18)?;
    Some(if negative { -value } else { value })
}

/// Consumes a zone and returns its offset from UTC in seconds.
fn take_zone_offset(text: &mut &[u8]) -> Option<i64> {
    let (&sign, rest) = text.split_first()?;
    *text = rest;
    let sign = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = take_number(text, 2, 2)?;
    *text = text.strip_prefix(b":").unwrap_or(text);
    let minutes = take_number(text, 2, 2)?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_parsed_by_their_patterns() {
        for (pattern, text, expected) in [
            ("%d/%b/%Y:%T %z", "10/Oct/2000:13:55:36 -0700", Some((971_211_336, 0))),
            ("%Y-%m-%dT%H:%M:%S%z", "2000-10-10T20:55:36+00:00", Some((971_211_336, 0))),
            ("%Y-%m-%dT%H:%M:%S%z", "2000-10-10T20:55:36Z", Some((971_211_336, 0))),
            (
                "%d/%b/%Y:%T.%3f %z",
                "10/Oct/2000:13:55:36.250 -0700",
                Some((971_211_336, 250_000_000)),
            ),
            ("%d/%b/%Y:%T.%3f %z", "10/Oct/2000:13:55:36.25 -0700", None),
            ("%F %T.%f", "2000-10-10 20:55:36.123456", Some((971_211_336, 123_456_000))),
            ("%F %T", "2000-10-10 20:55:36", Some((971_211_336, 0))),
            ("%F %T", "2000-10-10 20:55:36 ", None),
            ("%F %T", "2000-13-10 20:55:36", None),
            ("%F %T", "2000-10-10 24:00:00", None),
            ("%F %T", "2000-02-30 20:55:36", None),
            ("%c", "Tue Oct 10 20:55:36 2000", Some((971_211_336, 0))),
            ("%a %b %e %T %Y", "Fri Oct  6 20:55:36 2000", Some((970_865_736, 0))),
            ("%D %r", "10/10/00 08:55:36 PM", Some((971_211_336, 0))),
            ("%D %r", "10/10/00 12:00:00 AM", Some((971_136_000, 0))),
            ("%y%j %R", "00284 20:55", Some((971_211_300, 0))),
            ("%y%j %R", "00367 20:55", None),
            ("%F %T %Z", "2000-10-10 20:55:36 UTC", Some((971_211_336, 0))),
            ("%F %T %Z", "2000-10-10 20:55:36 CEST", None),
            ("%s.%3f", "971211336.250", Some((971_211_336, 250_000_000))),
            ("%s", "-1", Some((-1, 0))),
            (MILLIS_PATTERN, "971211336250", Some((971_211_336, 250_000_000))),
            (MICROS_PATTERN, "-1", Some((-1, 999_999_000))),
            ("%F %T", "", None),
        ] {
            let format = StrftimeFormat::new(pattern).unwrap();
            assert_eq!(format.parse_instant(text.as_bytes()), expected, "{pattern}: {text}");
        }
    }

    #[test]
    fn patterns_without_a_day_are_refused() {
        for pattern in ["%T", "%b %e %T", "%Y-%m", "%F %I:%M", "%Q", "%", "%x", ""] {
            assert_eq!(StrftimeFormat::new(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn instants_are_those_of_chrono(seconds in -60_000_000_000_i64..200_000_000_000, zone in -14 * 60_i32..14 * 60) {
            let offset = chrono::FixedOffset::east_opt(zone * 60).unwrap();
            let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap().with_timezone(&offset);
            for pattern in ["%d/%b/%Y:%T %z", "%Y-%m-%dT%H:%M:%S%:z", "%A %e %b %Y %I:%M:%S %p %z", "%Y %j %T %z", "%s"] {
                let text = time.format(pattern).to_string();
                // Only years of four digits.
                if !text.starts_with('-') && time.format("%Y").to_string().len() == 4 {
                    let format = StrftimeFormat::new(pattern).unwrap();
                    prop_assert_eq!(format.parse_instant(text.as_bytes()), Some((seconds, 0)), "{}", text);
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(pattern in "(%[a-zA-Z0-9.:@%-]|[ :/-]){0,12}", bytes: Vec<u8>, text in "[0-9 :/+A-Za-z.-]{0,30}") {
            if let Some(format) = StrftimeFormat::new(&pattern) {
                format.parse_instant(&bytes);
                format.parse_instant(text.as_bytes());
            }
        }
    }
}
