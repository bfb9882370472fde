//! Times in the words of `strftime`, compiled.

use crate::access_log::month;
use crate::fast;
use crate::values;

/// Milliseconds and microseconds since 1970, which `strftime` has no word for.
pub(super) const MILLIS: &str = "%@ms";
pub(super) const MICROS: &str = "%@us";

/// A time as the Common Log Format has it.
pub(super) const CLF: &str = "%d/%b/%Y:%H:%M:%S %z";

/// What stands between the words of a time: of `%F %T` `0-0-0 0:0:0`, `0` for each word.
pub(super) fn signs(pattern: &str) -> String {
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

/// A time as ISO 8601 has it, or with a space before its clock, a comma before its fraction, or no zone.
pub(super) fn iso(bytes: &[u8]) -> Option<(i64, u32)> {
    let mut text = [0; 64];
    let text = text.get_mut(..bytes.len())?;
    text.copy_from_slice(bytes);
    if let Some(point @ b',') = text.get_mut(19) {
        *point = b'.';
    }
    let written = values::date_time(std::str::from_utf8(text).ok()?)?;
    let ahead = i64::from(written.offset.unwrap_or(0));
    Some((written.seconds - ahead, written.nanos))
}

/// Whether a time is one number by itself, for which there is no word.
pub(super) fn is_number(pattern: &str) -> bool {
    pattern == MILLIS || pattern == MICROS
}

/// What stands in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Byte(u8),
    Year,
    /// `69` to `99` are of the last century, as in POSIX.
    YearOfCentury,
    Month,
    MonthName,
    Day,
    DayOfYear,
    Hour,
    /// Of twelve, with `AmPm`.
    HourOfTwelve,
    AmPm,
    Minute,
    Second,
    /// Digits behind the point: so many, or any number up to nine.
    Fraction(Option<u8>),
    /// `+0200`, `+02:00` or `Z`.
    Zone,
    /// `UTC` or `GMT`; of other names nobody knows which they mean.
    ZoneName,
    Weekday,
    Seconds,
    Millis,
    Micros,
}

/// A time that says which instant it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimeFormat(Vec<Item>);

impl TimeFormat {
    /// A format; none if it has an unknown word, or does not say the day.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        match pattern {
            MILLIS => return Some(Self(vec![Item::Millis])),
            MICROS => return Some(Self(vec![Item::Micros])),
            _ => {}
        }
        let mut items = Vec::new();
        push(pattern, &mut items)?;
        let has = |wanted: Item| items.contains(&wanted);
        let has_day = (has(Item::Year) || has(Item::YearOfCentury))
            && (has(Item::DayOfYear)
                || has(Item::Day) && (has(Item::Month) || has(Item::MonthName)));
        let has_clock = !has(Item::HourOfTwelve) || has(Item::AmPm);
        (has(Item::Seconds) || has_day && has_clock).then_some(Self(items))
    }

    /// Seconds since 1970-01-01 UTC and nanoseconds; without a zone it is UTC.
    pub(super) fn instant(&self, bytes: &[u8]) -> Option<(i64, u32)> {
        let mut text = bytes;
        let (mut year, mut month_of, mut day, mut day_of_year) = (1970, 1, 1, None);
        let (mut hour, mut minute, mut second, mut nanos) = (0_i64, 0_i64, 0_i64, 0);
        let (mut afternoon, mut ahead, mut since) = (None, 0, None);
        for item in &self.0 {
            match item {
                Item::Byte(byte) => text = text.strip_prefix(&[*byte])?,
                Item::Year => year = i32::try_from(number(&mut text, 4, 4)?).ok()?,
                Item::YearOfCentury => {
                    let two = i32::try_from(number(&mut text, 2, 2)?).ok()?;
                    year = if two < 69 { 2000 + two } else { 1900 + two };
                }
                Item::Month => month_of = u32::try_from(number(&mut text, 2, 2)?).ok()?,
                Item::MonthName => {
                    let (name, rest) = text.split_first_chunk::<3>()?;
                    month_of = month(*name)?;
                    text = rest;
                }
                Item::Day => day = u32::try_from(padded(&mut text)?).ok()?,
                Item::DayOfYear => {
                    day_of_year = Some(i32::try_from(number(&mut text, 3, 3)?).ok()?);
                }
                Item::Hour => hour = padded(&mut text)?,
                Item::HourOfTwelve => {
                    hour = padded(&mut text)?;
                    if !(1..=12).contains(&hour) {
                        return None;
                    }
                }
                Item::AmPm => {
                    let (word, rest) = text.split_first_chunk::<2>()?;
                    afternoon = Some(match word.to_ascii_uppercase().as_slice() {
                        b"AM" => false,
                        b"PM" => true,
                        _ => return None,
                    });
                    text = rest;
                }
                Item::Minute => minute = number(&mut text, 2, 2)?,
                Item::Second => second = number(&mut text, 2, 2)?,
                Item::Fraction(digits) => {
                    let (least, most) = digits.map_or((1, 9), |digits| (digits, digits));
                    let before = text.len();
                    let value = number(&mut text, usize::from(least), usize::from(most))?;
                    let digits = u32::try_from(before - text.len()).ok()?;
                    nanos = u32::try_from(value).ok()?.checked_mul(10_u32.pow(9 - digits))?;
                }
                Item::Zone => ahead = zone(&mut text)?,
                Item::ZoneName => {
                    text = text.strip_prefix(b"UTC").or_else(|| text.strip_prefix(b"GMT"))?;
                }
                Item::Weekday => {
                    let letters = text.iter().take_while(|b| b.is_ascii_alphabetic()).count();
                    if letters < 2 {
                        return None;
                    }
                    text = &text[letters..];
                }
                Item::Seconds => since = Some(signed(&mut text)?),
                Item::Millis => {
                    let value = signed(&mut text)?;
                    since = Some(value.div_euclid(1_000));
                    nanos = u32::try_from(value.rem_euclid(1_000)).ok()? * 1_000_000;
                }
                Item::Micros => {
                    let value = signed(&mut text)?;
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
                let (first, next) = (fast::days(year, 1, 1)?, fast::days(year + 1, 1, 1)?);
                (1..=next - first).contains(&number).then_some(first + number - 1)?
            }
            None => fast::days(year, month_of, day)?,
        };
        let clock = hour * 3600 + minute * 60 + second;
        let seconds = i64::from(days) * 86_400 + clock - ahead;
        (second < 60 || values::follows_leap_second(seconds)).then_some((seconds, nanos))
    }
}

/// Adds what a pattern says; none for a word that is not known.
fn push(pattern: &str, items: &mut Vec<Item>) -> Option<()> {
    let mut rest = pattern.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            items.push(Item::Byte(byte));
            continue;
        }
        let mut word = rest.next()?;
        // Flags for how numbers are filled up; `%:z` and `%.3f` as some write them.
        while matches!(word, b'-' | b'_' | b'0' | b':' | b'E' | b'O') {
            word = rest.next()?;
        }
        if word == b'.' {
            items.push(Item::Byte(b'.'));
            word = rest.next()?;
        }
        let mut digits = None;
        if let b'1'..=b'9' = word {
            digits = Some(word - b'0');
            word = rest.next()?;
        }
        match word {
            b'%' => items.push(Item::Byte(b'%')),
            b'n' => items.push(Item::Byte(b'\n')),
            b't' => items.push(Item::Byte(b'\t')),
            b'Y' => items.push(Item::Year),
            b'y' => items.push(Item::YearOfCentury),
            b'm' => items.push(Item::Month),
            b'b' | b'h' => items.push(Item::MonthName),
            b'd' | b'e' => items.push(Item::Day),
            b'j' => items.push(Item::DayOfYear),
            b'H' | b'k' => items.push(Item::Hour),
            b'I' | b'l' => items.push(Item::HourOfTwelve),
            b'p' | b'P' => items.push(Item::AmPm),
            b'M' => items.push(Item::Minute),
            b'S' => items.push(Item::Second),
            b'f' | b'L' | b'N' => items.push(Item::Fraction(digits)),
            b'z' => items.push(Item::Zone),
            b'Z' => items.push(Item::ZoneName),
            b'a' | b'A' => items.push(Item::Weekday),
            b's' => items.push(Item::Seconds),
            b'T' => push("%H:%M:%S", items)?,
            b'R' => push("%H:%M", items)?,
            b'r' => push("%I:%M:%S %p", items)?,
            b'F' => push("%Y-%m-%d", items)?,
            b'D' => push("%m/%d/%y", items)?,
            b'c' => push("%a %b %e %H:%M:%S %Y", items)?,
            _ => return None,
        }
    }
    Some(())
}

/// A number of so many digits.
fn number(text: &mut &[u8], least: usize, most: usize) -> Option<i64> {
    let count = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    if count < least {
        return None;
    }
    let (digits, rest) = text.split_at(count);
    *text = rest;
    Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// A number of two digits, the first of which may be missing or a space.
fn padded(text: &mut &[u8]) -> Option<i64> {
    *text = text.strip_prefix(b" ").unwrap_or(text);
    number(text, 1, 2)
}

/// A number that may be negative.
fn signed(text: &mut &[u8]) -> Option<i64> {
    let negative = text.starts_with(b"-");
    *text = text.strip_prefix(b"-").unwrap_or(text);
    let value = number(text, 1, 18)?;
    Some(if negative { -value } else { value })
}

/// How many seconds a zone is ahead of UTC.
fn zone(text: &mut &[u8]) -> Option<i64> {
    let (&sign, rest) = text.split_first()?;
    *text = rest;
    let sign = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = number(text, 2, 2)?;
    *text = text.strip_prefix(b":").unwrap_or(text);
    let minutes = number(text, 2, 2)?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_their_words_say() {
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
            (MILLIS, "971211336250", Some((971_211_336, 250_000_000))),
            (MICROS, "-1", Some((-1, 999_999_000))),
            ("%F %T", "", None),
        ] {
            let format = TimeFormat::new(pattern).unwrap();
            assert_eq!(format.instant(text.as_bytes()), expected, "{pattern}: {text}");
        }
    }

    #[test]
    fn what_does_not_say_the_day_is_no_instant() {
        for pattern in ["%T", "%b %e %T", "%Y-%m", "%F %I:%M", "%Q", "%", "%x", ""] {
            assert_eq!(TimeFormat::new(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn instants_are_those_of_chrono(seconds in -60_000_000_000_i64..200_000_000_000, zone in -14 * 60_i32..14 * 60) {
            let offset = chrono::FixedOffset::east_opt(zone * 60).unwrap();
            let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap().with_timezone(&offset);
            for pattern in ["%d/%b/%Y:%T %z", "%Y-%m-%dT%H:%M:%S%:z", "%A %e %b %Y %I:%M:%S %p %z", "%Y %j %T %z", "%s"] {
                let text = time.format(pattern).to_string();
                // Years of four digits alone.
                if !text.starts_with('-') && time.format("%Y").to_string().len() == 4 {
                    let format = TimeFormat::new(pattern).unwrap();
                    prop_assert_eq!(format.instant(text.as_bytes()), Some((seconds, 0)), "{}", text);
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(pattern in "(%[a-zA-Z0-9.:@%-]|[ :/-]){0,12}", bytes: Vec<u8>, text in "[0-9 :/+A-Za-z.-]{0,30}") {
            if let Some(format) = TimeFormat::new(&pattern) {
                format.instant(&bytes);
                format.instant(text.as_bytes());
            }
        }
    }
}
