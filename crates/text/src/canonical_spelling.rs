//! Canonical spellings of numbers and times: those that lose nothing when they are read as a number or a
//! time.
//!
//! Inference turns a column of text into a column of numbers or times of day only if that loses nothing.
//! `01234` is a zip code and `123e4567` a hash: as numbers, they would become 1234 and infinity,
//! and different texts would fall into one group. `12:30` may be minutes and seconds. A column with an
//! inferred type keeps to the same rule after the sample, where such a value is a fault. A type that the user
//! declares takes every spelling that [`value_parsing`](crate::value_parsing) reads.
//!
//! | type | spelling |
//! | --- | --- |
//! | BIGINT, UBIGINT | `0` or `-?[1-9][0-9]*`, in the type's range |
//! | DOUBLE | `-?(0\|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`, or `NaN`, `inf`, `-inf` |
//! | TIME(6) | `HH:MM:SS(\.[0-9]{1,6})?`, from `00:00:00` to `23:59:59.999999` |
//!
//! A DOUBLE must also be finite, and:
//!
//! - with an exponent, the integer part has one digit, as every program writes it that formats a
//!   float: `1.5e-7`, not `12345e67`;
//! - zero has no exponent but zero (`0.000000e+00` is C's `%e`): `0e4621` and `0e8308` are hashes;
//! - a number that is not written as zero does not become zero;
//! - without a fraction and an exponent it is an integer of BIGINT's range that a DOUBLE holds
//!   exactly: 9007199254740993 is not canonical. Surplus digits of a fraction are rounded, as in all columns.
//!
//! A TIMESTAMP WITH TIME ZONE must state its zone: `Z` or an offset. Inference makes a sample in which some
//! times have no zone text, and a time without a zone after the sample would be taken for UTC.

use arrow_schema::{DataType, TimeUnit};

use crate::fast_value_parsing;
use crate::value_parsing::{self, DOUBLE_EXACT_DIGITS, is_rounded_as_double};

/// Returns whether `value` is a canonical spelling of a value of this type; true for types that have no
/// other spellings.
#[must_use]
pub fn is_canonical(value: &[u8], data_type: &DataType) -> bool {
    match data_type {
        DataType::Int64 | DataType::UInt64 => is_canonical_integer(value),
        DataType::Float64 => is_canonical_float(value),
        DataType::Time64(TimeUnit::Microsecond) => is_canonical_time(value),
        DataType::Timestamp(_, Some(_)) => has_time_zone(value),
        _ => true,
    }
}

/// Returns whether `value` is a time that states its zone.
pub(crate) fn has_time_zone(value: &[u8]) -> bool {
    let written = std::str::from_utf8(value).ok().and_then(value_parsing::parse_date_time);
    written.is_some_and(|written| written.utc_offset_seconds.is_some())
}

/// Returns whether `value` is `0` or `-?[1-9][0-9]*`. The range is not checked.
pub(crate) fn is_canonical_integer(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    match digits {
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => value == b"0",
    }
}

/// Returns whether `value` is a DOUBLE by the module's rule.
pub(crate) fn is_canonical_float(value: &[u8]) -> bool {
    if is_special_float(value) {
        return true;
    }
    let unsigned = value.strip_prefix(b"-").unwrap_or(value);
    let (integer, rest) = split_leading_digits(unsigned);
    if !(integer == b"0" || matches!(integer, [b'1'..=b'9', ..])) {
        return false;
    }
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => match split_leading_digits(rest) {
            ([], _) => return false,
            (fraction, rest) => (Some(fraction), rest),
        },
        rest => (None, rest),
    };
    let exponent = match rest {
        [] => None,
        [b'e' | b'E', rest @ ..] => {
            let digits = rest.strip_prefix(b"+").or(rest.strip_prefix(b"-")).unwrap_or(rest);
            match split_leading_digits(digits) {
                ([], _) | (_, [_, ..]) => return false,
                (digits, []) => Some(digits),
            }
        }
        _ => return false,
    };
    let is_zero = |digits: &[u8]| digits.iter().all(|digit| *digit == b'0');
    let is_all_zero = is_zero(integer) && fraction.is_none_or(is_zero);
    if let Some(exponent) = exponent {
        if integer.len() > 1 {
            return false;
        }
        if is_all_zero {
            return is_zero(exponent);
        }
    }
    let Ok(text) = std::str::from_utf8(value) else { return false };
    if fraction.is_none() && exponent.is_none() {
        return integer.len() <= DOUBLE_EXACT_DIGITS
            || text.parse::<i64>().is_ok() && !is_rounded_as_double(text);
    }
    text.parse::<f64>().is_ok_and(|number| number.is_finite() && (is_all_zero || number != 0.0))
}

/// Returns whether `value` is a TIME by the module's rule.
pub(crate) fn is_canonical_time(value: &[u8]) -> bool {
    fast_value_parsing::parse_canonical_time(value, 0, value.len()).is_some()
}

/// Returns whether `value` is a float without digits, as this program writes it: `NaN`, `inf` or `-inf`.
pub(crate) fn is_special_float(value: &[u8]) -> bool {
    matches!(value, b"NaN" | b"inf" | b"-inf")
}

/// Splits a text after its leading digits.
fn split_leading_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_as_programs_write_them_are_canonical() {
        for (value, integer, float) in [
            ("0", true, true),
            ("7", true, true),
            ("-7", true, true),
            ("120", true, true),
            ("-0", false, true),
            ("007", false, false),
            ("-07", false, false),
            ("00", false, false),
            ("+7", false, false),
            ("", false, false),
            ("-", false, false),
            (" 7", false, false),
            ("7 ", false, false),
            ("1_000", false, false),
            ("0x1F", false, false),
            ("1.0", false, true),
            ("0.50", false, true),
            ("-0.0", false, true),
            ("00.5", false, false),
            (".5", false, false),
            ("5.", false, false),
            ("+.5", false, false),
            ("1.5.2", false, false),
            ("0.12345678901234567890123", false, true),
            ("123456789012345678.5", false, true),
            ("9007199254740992", true, true),
            ("9007199254740993", true, false),
            ("9007199254740994", true, true),
            ("-9007199254740993", true, false),
            ("100000000000000000000000", true, false),
            ("9223372036854775807", true, false),
            ("9223372036854775808", true, false),
            ("-9223372036854775808", true, true),
            ("99999999999999991611392", true, false),
            ("1e5", false, true),
            ("1E+5", false, true),
            ("1.5e-7", false, true),
            ("0e0", false, true),
            ("0.000000e+00", false, true),
            ("0e4621", false, false),
            ("0.0e5", false, false),
            ("12e5", false, false),
            ("12345e67", false, false),
            ("12.5e3", false, false),
            ("1e400", false, false),
            ("123e4567", false, false),
            ("1e-400", false, false),
            ("5e-324", false, true),
            ("1.7976931348623157e308", false, true),
            ("1e", false, false),
            ("1e+", false, false),
            ("1e5x", false, false),
            ("e5", false, false),
            ("NaN", false, true),
            ("inf", false, true),
            ("-inf", false, true),
            ("-NaN", false, false),
            ("nan", false, false),
            ("Infinity", false, false),
        ] {
            assert_eq!(is_canonical(value.as_bytes(), &DataType::Int64), integer, "{value}");
            assert_eq!(is_canonical(value.as_bytes(), &DataType::Float64), float, "{value}");
            assert!(is_canonical(value.as_bytes(), &DataType::Utf8View), "{value}");
        }
    }

    #[test]
    fn times_of_day_are_canonical_with_two_digits_each() {
        const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
        for (value, expected) in [
            ("00:00:00", true),
            ("23:59:59", true),
            ("12:30:00.5", true),
            ("12:30:00.123456", true),
            ("12:30:00.1234567", false),
            ("12:30:00.", false),
            ("12:30:00,5", false),
            ("24:00:00", false),
            ("23:60:00", false),
            ("23:59:60", false),
            ("12:30", false),
            ("1:30:00", false),
            ("012:30:00", false),
            ("12:3:00", false),
            ("12:30:0", false),
            ("12-30-00", false),
            ("12:30:00Z", false),
            ("12:30:00 PM", false),
            ("-2:30:00", false),
            (" 2:30:00", false),
            ("12:30:00.-5", false),
            ("123000", false),
            ("", false),
        ] {
            assert_eq!(is_canonical(value.as_bytes(), &TIME), expected, "{value}");
            assert!(!expected || crate::value_parsing::can_parse_as(value, &TIME), "{value}");
        }
    }

    #[test]
    fn times_of_a_zone_state_their_zone() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (value, expected) in [
            ("2026-01-01T05:00:00Z", true),
            ("2026-01-01 05:00:00+02:00", true),
            ("2026-01-01T05:00:00", false),
            ("2026-01-01 05:00:00", false),
            ("2026-01-01", false),
        ] {
            assert_eq!(is_canonical(value.as_bytes(), &zoned), expected, "{value}");
            assert!(is_canonical(value.as_bytes(), &naive), "{value}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// Canonical times have the value that the careful parser reads; those of one length differ.
        #[test]
        fn canonical_times_are_those_of_the_careful_parser(
            text in "[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,7})?", other in "[0-9:.]{8,9}"
        ) {
            const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
            for text in [text, other] {
                let Some(micros) = fast_value_parsing::parse_canonical_time(text.as_bytes(), 0, text.len()) else {
                    continue;
                };
                let one = arrow_array::StringViewArray::from_iter_values([&text]);
                let careful = crate::value_parsing::parse_column(&one, &TIME).unwrap();
                let careful = arrow_array::cast::AsArray::as_primitive::<
                    arrow_array::types::Time64MicrosecondType,
                >(&careful).value(0);
                prop_assert_eq!(micros, careful, "{}", text);
                let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
                let whole =
                    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
                let written = match text.len() {
                    8 => whole,
                    len => format!("{whole}.{fraction:06}")[..len].to_owned(),
                };
                prop_assert_eq!(written, text);
            }
        }

        #[test]
        fn every_formatted_number_is_canonical(number: i64, bits: u64, shift in 0u32..64) {
            let (int, float) = (number >> shift, f64::from_bits(bits));
            prop_assert!(is_canonical_integer(int.to_string().as_bytes()));
            let int = int as f64;
            for text in [format!("{float:?}"), format!("{float:e}"), format!("{int:?}")] {
                prop_assert!(is_canonical_float(text.as_bytes()), "{}", text);
            }
        }

        /// An integer is canonical if parsing and formatting gives the same text.
        #[test]
        fn integers_survive_a_round_trip(text in "-?[0-9]{1,20}|[-+0-9.e]{0,6}") {
            let survives = text.parse::<i128>().is_ok_and(|number| number.to_string() == text);
            prop_assert_eq!(is_canonical_integer(text.as_bytes()), survives, "{}", text);
        }

        /// No two canonical floats without a fraction are the same number unless they differ by an exponent
        /// or a sign of zero.
        #[test]
        fn different_integers_are_different_floats(one in "[1-9][0-9]{0,24}", change in 1u8..9) {
            let mut other = one.clone().into_bytes();
            let last = other.last_mut().unwrap();
            *last = b'0' + (*last - b'0' + change) % 10;
            let other = String::from_utf8(other).unwrap();
            let both = [&one, &other].map(|text| {
                is_canonical_float(text.as_bytes()).then(|| text.parse::<f64>().unwrap())
            });
            if let [Some(one), Some(other)] = both {
                prop_assert_ne!(one, other);
            }
        }
    }
}
