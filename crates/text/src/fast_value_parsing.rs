//! Fast parsers for the usual spelling of numbers, dates and times, which read eight bytes at a time.
//!
//! Every function here parses the spelling that nearly everybody writes and returns `None` for
//! everything else, mistakes included. The caller then asks [`value_parsing`](crate::value_parsing), which
//! decides whether a text is a value of a type. Both agree wherever these functions return a value.
//!
//! - Up to eight digits are one load, one check and three multiplications (Lemire, "Quickly
//!   parsing eight digits", 2018; Mula, "SIMD-ized conversion of ASCII to integers").
//! - A decimal fraction of up to eight characters works the same way once its point is removed and the digits
//!   before the point are moved up by one.
//! - A decimal fraction whose digits fit in 53 bits and whose power of ten is at most 10^22 is
//!   one exact division of two exact floats, so correctly rounded (Clinger, "How to Read
//!   Floating Point Numbers Accurately", PLDI 1990).
//! - Dates are days by Hinnant's arithmetic.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the eight bytes at `at`, or `None` near the end of the text.
#[inline(always)]
fn load_word(text: &[u8], at: usize) -> Option<u64> {
    let bytes = text.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Parses a time of day by the rule of [`canonical_spelling`](crate::canonical_spelling) into microseconds
/// after midnight: `12:30:00` or `12:30:00.5`, with up to six digits after the point.
#[inline]
pub(crate) fn parse_canonical_time(text: &[u8], at: usize, len: usize) -> Option<i64> {
    let value = text.get(at..at + len)?;
    let (clock, fraction) = value.split_first_chunk::<8>()?;
    let pair = |tens: u8, ones: u8, below: i64| {
        let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
        let number = i64::from(tens) * 10 + i64::from(ones);
        (tens < 10 && ones < 10 && number < below).then_some(number)
    };
    let &[h, hours, b':', m, minutes, b':', s, seconds] = clock else { return None };
    let seconds = pair(h, hours, 24)? * 3600 + pair(m, minutes, 60)? * 60 + pair(s, seconds, 60)?;
    let micros = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            let mut micros = 0;
            for place in 0..6 {
                let digit = digits.get(place).map_or(0, |byte| byte.wrapping_sub(b'0'));
                if digit > 9 {
                    return None;
                }
                micros = micros * 10 + i64::from(digit);
            }
            micros
        }
        _ => return None,
    };
    Some(seconds * 1_000_000 + micros)
}

/// Returns whether all eight bytes are digits.
#[inline(always)]
fn is_all_digits(word: u64) -> bool {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    // Beyond '9' the addition carries into the upper half.
    (word & HIGH) | ((word.wrapping_add(0x0606_0606_0606_0606) & HIGH) >> 4)
        == 0x3333_3333_3333_3333
}

/// Returns the number that eight digits write, the first byte being the most significant.
#[inline(always)]
fn parse_eight_digits(word: u64) -> u64 {
    let word = (word & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul(2561) >> 8;
    let word = (word & 0x00ff_00ff_00ff_00ff).wrapping_mul(6_553_601) >> 16;
    (word & 0x0000_ffff_0000_ffff).wrapping_mul(42_949_672_960_001) >> 32
}

/// Parses 1 to 16 digits from `at` on. Needs eight readable bytes after each
/// start, or returns `None`.
#[inline(always)]
pub(crate) fn parse_digits(text: &[u8], at: usize, count: usize) -> Option<u64> {
    if count.wrapping_sub(1) < 8 {
        let first = 8 * (8 - count as u32);
        // The missing digits in front become zeros.
        let word = (load_word(text, at)? << first) | (ASCII_ZEROS & !(u64::MAX << first));
        return is_all_digits(word).then(|| parse_eight_digits(word));
    }
    if count.wrapping_sub(9) < 8 {
        let first = 8 * (16 - count as u32);
        let high = (load_word(text, at)? << first) | (ASCII_ZEROS & !(u64::MAX << first));
        let low = load_word(text, at + count - 8)?;
        return (is_all_digits(high) && is_all_digits(low))
            .then(|| parse_eight_digits(high) * 100_000_000 + parse_eight_digits(low));
    }
    None
}

/// Parses a signed integer of up to 16 digits.
#[inline(always)]
pub(crate) fn parse_int(text: &[u8], at: usize, len: usize) -> Option<i64> {
    let negative = *text.get(at)? == b'-';
    let skip = usize::from(negative);
    let number = parse_digits(text, at + skip, len.wrapping_sub(skip))? as i64;
    Some(if negative { -number } else { number })
}

/// Parses a [canonical](crate::canonical_spelling) signed integer of up to 16 digits.
#[inline(always)]
pub(crate) fn parse_canonical_int(text: &[u8], at: usize, len: usize) -> Option<i64> {
    let first = *text.get(at + usize::from(*text.get(at)? == b'-'))?;
    if first == b'0' && len > 1 {
        return None;
    }
    parse_int(text, at, len)
}

const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Parses a float in plain notation: `-12.5`, `3`.
#[inline(always)]
pub(crate) fn parse_float(text: &[u8], at: usize, len: usize) -> Option<f64> {
    let negative = *text.get(at)? == b'-';
    let skip = usize::from(negative);
    let (at, len) = (at + skip, len.wrapping_sub(skip));
    let value = match parse_short_float(text, at, len) {
        Some(value) => value,
        None => parse_long_float(text.get(at..at.checked_add(len)?)?)?,
    };
    Some(if negative { -value } else { value })
}

/// Parses a [canonical](crate::canonical_spelling) float in plain notation.
#[inline(always)]
pub(crate) fn parse_canonical_float(text: &[u8], at: usize, len: usize) -> Option<f64> {
    let skip = usize::from(*text.get(at)? == b'-');
    let rest = text.get(at + skip..at.checked_add(len)?)?;
    if let [b'0', second, ..] = rest
        && *second != b'.'
    {
        return None;
    }
    parse_float(text, at, len)
}

/// Parses up to eight digits, possibly with a point among them.
#[inline(always)]
fn parse_short_float(text: &[u8], at: usize, len: usize) -> Option<f64> {
    const POINTS: u64 = 0x2e2e_2e2e_2e2e_2e2e;
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    if len.wrapping_sub(1) >= 8 {
        return None;
    }
    let first = 8 * (8 - len as u32);
    let word = (load_word(text, at)? << first) | (ASCII_ZEROS & !(u64::MAX << first));
    // The top bit of each byte that is a point. A second point is not a digit.
    let others = word ^ POINTS;
    let points = !(((others & LOW) + LOW) | others | LOW);
    let decimals = points.leading_zeros() / 8;
    // The careful parser handles a leading or trailing point.
    if points != 0 && (decimals == 0 || decimals as usize == len - 1) {
        return None;
    }
    // The bits from a point on, itself included; zero if there is no point.
    let below = u64::MAX.checked_shr(8 * decimals).unwrap_or(0);
    let word = (word & !below) | (((word << 8) | 0x30) & below);
    let divisor = POWERS_OF_TEN[(decimals & 7) as usize];
    is_all_digits(word).then(|| parse_eight_digits(word) as f64 / divisor)
}

fn parse_long_float(bytes: &[u8]) -> Option<f64> {
    if bytes.len() > 18 {
        return None;
    }
    let mut mantissa = 0u64;
    let mut point = bytes.len();
    for (index, &byte) in bytes.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa * 10 + u64::from(digit);
        } else if byte == b'.' && point == bytes.len() {
            point = index;
        } else {
            return None;
        }
    }
    // As above: the careful parser handles these.
    if point == 0 || point + 1 == bytes.len() || mantissa >> 53 != 0 {
        return None;
    }
    let decimals = (bytes.len() - point).saturating_sub(1);
    Some(mantissa as f64 / POWERS_OF_TEN[decimals])
}

#[inline(always)]
pub(crate) fn parse_two_digits(a: u8, b: u8) -> Option<u32> {
    let (a, b) = (a.wrapping_sub(b'0'), b.wrapping_sub(b'0'));
    (a < 10 && b < 10).then(|| u32::from(a) * 10 + u32::from(b))
}

/// Returns the days since 1970-01-01 of a date of the proleptic Gregorian calendar, or `None` if there is no
/// such day.
#[inline(always)]
pub(crate) fn days_since_epoch(year: i32, month: u32, day: u32) -> Option<i32> {
    const LAST: [u32; 13] = [0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if month.wrapping_sub(1) > 11 || day == 0 || day > LAST[month as usize] {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if month == 2 && day == 29 && !leap {
        return None;
    }
    // Years begin in March, so that the leap day is their last.
    let shifted = year - i32::from(month <= 2);
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month as i32 + 9) % 12) + 2) / 5 + day as i32 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Parses `YYYY-MM-DD` into days since 1970-01-01.
#[inline(always)]
pub(crate) fn parse_date(bytes: &[u8]) -> Option<i32> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = bytes else { return None };
    let year = parse_two_digits(y1, y2)? * 100 + parse_two_digits(y3, y4)?;
    days_since_epoch(year as i32, parse_two_digits(m1, m2)?, parse_two_digits(d1, d2)?)
}

/// Parses `HH:MM:SS` into seconds.
#[inline(always)]
pub(crate) fn parse_time(bytes: &[u8]) -> Option<u32> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = bytes else { return None };
    let (hour, minute, second) =
        (parse_two_digits(h1, h2)?, parse_two_digits(m1, m2)?, parse_two_digits(s1, s2)?);
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

/// Cache of the last parsed day: text in order of time has few different days.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DayCache {
    date_text: [u8; 10],
    days: i32,
}

impl Default for DayCache {
    fn default() -> Self {
        Self { date_text: *b"1970-01-01", days: 0 }
    }
}

impl DayCache {
    #[inline(always)]
    fn parse_date(&mut self, bytes: &[u8; 10]) -> Option<i32> {
        if *bytes != self.date_text {
            self.days = parse_date(bytes)?;
            self.date_text = *bytes;
        }
        Some(self.days)
    }

    /// Parses `YYYY-MM-DD HH:MM:SS[.fraction][Z]` with a space or a `T` into seconds, nanoseconds, and true
    /// if it ends with `Z`.
    #[inline(always)]
    pub(crate) fn parse_date_time(&mut self, bytes: &[u8]) -> Option<(i64, u32, bool)> {
        let (head, tail) = bytes.split_at_checked(19)?;
        if !matches!(head[10], b'T' | b' ') {
            return None;
        }
        let days = self.parse_date(head.first_chunk()?)?;
        let seconds = i64::from(days) * 86_400 + i64::from(parse_time(&head[11..])?);
        let (tail, utc) = match tail {
            [rest @ .., b'Z'] => (rest, true),
            rest => (rest, false),
        };
        let nanos = match tail {
            [] => 0,
            [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => {
                let mut nanos = 0;
                for byte in digits {
                    let digit = byte.wrapping_sub(b'0');
                    if digit > 9 {
                        return None;
                    }
                    nanos = nanos * 10 + u32::from(digit);
                }
                nanos * 10u32.pow(9 - digits.len() as u32)
            }
            _ => return None,
        };
        Some((seconds, nanos, utc))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Surrounds a value with text, so that a word can be read past its end.
    fn padded(text: &str) -> Vec<u8> {
        format!("9{text}9999999999999999").into_bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn integers_agree_with_the_standard_library(
            number: i64, shift in 0u32..64, digits in "[0-9]{1,18}", other in "\\PC{0,12}|[-+0-9./:]{0,10}"
        ) {
            for text in [(number >> shift).to_string(), digits, other] {
                let found = parse_int(&padded(&text), 1, text.len());
                let plain = text.strip_prefix('-').unwrap_or(&text).len() <= 16
                    && text.parse::<i64>().is_ok() && !text.starts_with('+');
                prop_assert_eq!(found, plain.then(|| text.parse().unwrap()), "{}", text);
            }
        }

        #[test]
        fn fast_canonical_parsers_agree_with_both_rules(
            number: i64, shift in 0u32..64, digits in "-?0{0,3}[0-9]{1,18}", other in "[-+0-9.e]{0,10}"
        ) {
            for text in [(number >> shift).to_string(), digits, other] {
                let padded = padded(&text);
                let is_int = crate::canonical_spelling::is_canonical_integer(text.as_bytes());
                let fast = parse_int(&padded, 1, text.len()).filter(|_| is_int);
                prop_assert_eq!(parse_canonical_int(&padded, 1, text.len()), fast, "{}", text);
                let is_float = crate::canonical_spelling::is_canonical_float(text.as_bytes());
                let fast = parse_float(&padded, 1, text.len()).filter(|_| is_float);
                let found = parse_canonical_float(&padded, 1, text.len());
                prop_assert_eq!(found.map(f64::to_bits), fast.map(f64::to_bits), "{}", text);
            }
        }

        #[test]
        fn floats_are_rounded_as_the_standard_library_rounds_them(
            number: i64, shift in 0u32..64, point in 0usize..18, other in "[-+0-9.e]{0,10}"
        ) {
            let mut text = (number >> shift).to_string();
            if point > 0 && point < text.len() {
                text.insert(text.len() - point, '.');
            }
            for text in [text, other] {
                let found = parse_float(&padded(&text), 1, text.len());
                if let Some(found) = found {
                    let expected: f64 = text.parse().unwrap();
                    prop_assert_eq!(found.to_bits(), expected.to_bits(), "{}", text);
                }
                // At the end of a text, the parser goes byte by byte.
                let alone = parse_float(text.as_bytes(), 0, text.len());
                prop_assert_eq!(found.map(f64::to_bits), alone.map(f64::to_bits), "{}", text);
            }
        }

        #[test]
        fn dates_with_times_are_those_of_the_careful_parser(
            text in "[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,10})?Z?",
        ) {
            let mut cache = DayCache::default();
            for _ in 0..2 {
                if let Some((seconds, nanos, utc)) = cache.parse_date_time(text.as_bytes()) {
                    let written = crate::value_parsing::parse_date_time(&text).unwrap();
                    prop_assert_eq!((written.seconds, written.nanos), (seconds, nanos));
                    prop_assert_eq!(written.utc_offset_seconds, utc.then_some(0));
                }
            }
            if let Some(days) = parse_date(&text.as_bytes()[..10]) {
                prop_assert_eq!(crate::value_parsing::parse_date(&text[..10]), Some(days));
            } else {
                prop_assert_eq!(crate::value_parsing::parse_date(&text[..10]), None);
            }
        }
    }
}
