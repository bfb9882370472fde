//! PostgreSQL's format patterns for numbers: `FM9,999,990.00`.
//!
//! Source: PostgreSQL manual, "Data Type Formatting Functions", Table "Template Patterns for Numeric
//! Formatting". A `9` writes a digit or a blank, a `0` a digit or a zero; a number too large for its pattern
//! is written as `#`. The sign precedes the first digit unless the pattern places it: `S`, `MI`, `PL`, `SG`,
//! `PR`.
//!
//! Departures: the decimal point is `.` and the group separator `,`, whatever the machine's locale. `L`,
//! which depends on the locale, is an error, as is any letter that is not a pattern. Decimals and integers
//! are rounded half away from zero, floats to the nearest.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use datafusion_common::Result;

use crate::row_function::{
    ArgumentBatch, LastTextCache, check_format_length, shorten_for_message, usage_error,
};

/// Returns the numeric type that an argument is cast to, or `None` if it is not a number.
pub(crate) fn number_cast_type(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::UInt64 => DataType::UInt64,
        of if of.is_integer() => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => DataType::Decimal128(38, (*scale).max(0)),
        DataType::Dictionary(_, values) => return number_cast_type(values),
        _ => return None,
    })
}

/// An element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternElement {
    /// `9`, or `0` if `zero` is true.
    Digit {
        zero: bool,
    },
    Point,
    Comma,
    Text(Box<str>),
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    Sign,
    /// `S`
    AnchoredSign,
    Ordinal {
        upper: bool,
    },
}

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NumberPattern {
    elements: Vec<PatternElement>,
    whole_digits: usize,
    fraction_digits: usize,
    /// Minimum number of fraction digits that a pattern with `FM` writes.
    fraction_digits_min: usize,
    /// Number of digits behind a `V`; the number is multiplied by this power of ten.
    shift_digits: usize,
    is_padded: bool,
    has_angle_brackets: bool,
    is_scientific: bool,
    roman_is_uppercase: Option<bool>,
}

impl NumberPattern {
    /// # Errors
    /// Fails for an invalid pattern.
    pub(crate) fn parse(pattern: &str) -> Result<Self> {
        check_format_length(pattern)?;
        let mut numerals = NumberPattern { is_padded: true, ..NumberPattern::default() };
        let refused = |what: String, hint: &str| {
            Err(usage_error(format!("the pattern `{}` {what}", shorten_for_message(pattern)), hint))
        };
        let (mut is_behind_point, mut is_behind_v) = (false, false);
        let mut rest = pattern;
        while let Some(letter) = rest.chars().next() {
            let word: String = rest.chars().take(4).collect::<String>().to_ascii_uppercase();
            let mut taken = letter.len_utf8();
            let is = |word_of: &str| word.starts_with(word_of);
            if letter == '9' || letter == '0' {
                let zero = letter == '0';
                match (is_behind_point, is_behind_v) {
                    (true, _) => {
                        numerals.fraction_digits += 1;
                        if zero {
                            numerals.fraction_digits_min = numerals.fraction_digits;
                        }
                    }
                    (false, true) => {
                        numerals.whole_digits += 1;
                        numerals.shift_digits += 1;
                    }
                    (false, false) => numerals.whole_digits += 1,
                }
                numerals.elements.push(PatternElement::Digit { zero });
            } else if letter == '.' || is("D") {
                if is_behind_point || is_behind_v {
                    return refused("has two points".into(), "one point, or D, stands in a number");
                }
                is_behind_point = true;
                numerals.elements.push(PatternElement::Point);
            } else if letter == ',' || is("G") {
                numerals.elements.push(PatternElement::Comma);
            } else if letter == '"' {
                let Some(end) = rest[1..].find('"') else {
                    return refused(
                        "has a quote that does not end".into(),
                        "text stands between two of \"",
                    );
                };
                numerals.elements.push(PatternElement::Text(rest[1..=end].into()));
                taken = end + 2;
            } else if is("FM") {
                numerals.is_padded = false;
                taken = 2;
            } else if is("EEEE") {
                numerals.is_scientific = true;
                taken = 4;
            } else if is("MI") {
                numerals.elements.push(PatternElement::Minus);
                taken = 2;
            } else if is("PL") {
                numerals.elements.push(PatternElement::Plus);
                taken = 2;
            } else if is("SG") {
                numerals.elements.push(PatternElement::Sign);
                taken = 2;
            } else if is("PR") {
                numerals.has_angle_brackets = true;
                taken = 2;
            } else if is("RN") {
                numerals.roman_is_uppercase = Some(letter == 'R');
                taken = 2;
            } else if is("TH") {
                numerals.elements.push(PatternElement::Ordinal { upper: letter == 'T' });
                taken = 2;
            } else if is("S") {
                numerals.elements.push(PatternElement::AnchoredSign);
            } else if is("V") {
                if is_behind_point || is_behind_v {
                    return refused(
                        "has both V and a point".into(),
                        "V99 shows 100 times a number",
                    );
                }
                is_behind_v = true;
            } else if letter.is_ascii_alphabetic() || letter == '%' {
                let place = pattern[..pattern.len() - rest.len()].chars().count() + 1;
                return refused(
                    format!("has `{letter}` at character {place}, which is no pattern of numbers"),
                    "patterns are 9 0 . , D G S MI PL SG PR FM EEEE RN TH V; text stands in \"quotes\"",
                );
            } else {
                numerals.elements.push(PatternElement::Text(letter.to_string().into()));
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        let digits = numerals.whole_digits + numerals.fraction_digits;
        if digits == 0 && numerals.roman_is_uppercase.is_none() {
            return refused("has no digits".into(), "digits are 9 and 0: '999,990.00'");
        }
        if digits > 200 {
            return refused(format!("has {digits} digits"), "a number has up to 200");
        }
        if numerals.is_scientific
            && (numerals.shift_digits > 0 || numerals.roman_is_uppercase.is_some())
        {
            return refused("has EEEE beside V or RN".into(), "'9.99EEEE' is scientific");
        }
        Ok(numerals)
    }

    fn has_sign_element(&self) -> bool {
        let placed = |place: &PatternElement| {
            matches!(
                place,
                PatternElement::Minus | PatternElement::Sign | PatternElement::AnchoredSign
            )
        };
        self.elements.iter().any(placed)
    }

    /// Returns whether `S` stands behind all digits.
    fn has_trailing_sign(&self) -> bool {
        let digit =
            self.elements.iter().rposition(|place| matches!(place, PatternElement::Digit { .. }));
        let sign = self.elements.iter().position(|place| *place == PatternElement::AnchoredSign);
        matches!((digit, sign), (Some(digit), Some(sign)) if sign > digit)
    }

    /// Writes a number whose digits are rounded to the pattern.
    fn write_digits(&self, number: &RoundedDigits<'_>, out: &mut String) {
        let (whole, part) = (number.whole, number.fraction);
        let is_too_large = whole.len() > self.whole_digits;
        let anchors = self.elements.contains(&PatternElement::AnchoredSign);
        let sign_last = self.has_trailing_sign();
        let sign = match (number.is_negative, anchors) {
            (true, _) => '-',
            (false, true) => '+',
            (false, false) => ' ',
        };
        let has_plus = self.elements.contains(&PatternElement::Plus);
        // True while the sign is still to be written before the first digit.
        let mut signs = match (anchors, self.has_sign_element(), has_plus) {
            (true, ..) => !sign_last,
            (false, true, _) => false,
            (false, false, true) => number.is_negative,
            (false, false, false) => true,
        };
        let begin = |out: &mut String, signs: &mut bool| {
            if std::mem::take(signs) {
                match (self.has_angle_brackets, number.is_negative, sign) {
                    (true, true, _) => out.push('<'),
                    (true, false, _) | (false, _, ' ') if !self.is_padded => {}
                    (true, false, _) => out.push(' '),
                    (false, _, sign) => out.push(sign),
                }
            }
        };
        let mut shown_after = self.fraction_digits;
        if !self.is_padded {
            let needed = part.trim_end_matches('0').len();
            shown_after = needed.max(self.fraction_digits_min).min(self.fraction_digits);
        }
        let (mut at_before, mut at_after) = (0, 0);
        let (mut is_begun, mut is_behind) = (false, false);
        for place in &self.elements {
            match place {
                PatternElement::Digit { .. } if is_behind => {
                    at_after += 1;
                    if at_after <= shown_after {
                        let digit = part.as_bytes().get(at_after - 1).copied().unwrap_or(b'0');
                        out.push(if is_too_large { '#' } else { char::from(digit) });
                    }
                }
                PatternElement::Digit { zero } => {
                    at_before += 1;
                    let from_end = self.whole_digits - at_before;
                    let digit = whole.len().checked_sub(from_end + 1);
                    let is_last_of_whole =
                        from_end == 0 && self.fraction_digits == 0 && !self.has_decimal_point();
                    is_begun |= digit.is_some() || *zero || is_last_of_whole || is_too_large;
                    if !is_begun {
                        if self.is_padded {
                            out.push(' ');
                        }
                        continue;
                    }
                    begin(out, &mut signs);
                    let digit = digit.and_then(|at| whole.as_bytes().get(at).copied());
                    out.push(if is_too_large { '#' } else { char::from(digit.unwrap_or(b'0')) });
                }
                PatternElement::Point => {
                    is_behind = true;
                    is_begun = true;
                    begin(out, &mut signs);
                    out.push('.');
                }
                PatternElement::Comma if is_begun => out.push(','),
                PatternElement::Comma => {
                    if self.is_padded {
                        out.push(' ');
                    }
                }
                PatternElement::Text(text) => out.push_str(text),
                PatternElement::Minus if number.is_negative => out.push('-'),
                PatternElement::Plus if !number.is_negative && !number.is_zero() => out.push('+'),
                PatternElement::Minus | PatternElement::Plus => {
                    if self.is_padded {
                        out.push(' ');
                    }
                }
                PatternElement::Sign => out.push(if number.is_negative { '-' } else { '+' }),
                PatternElement::AnchoredSign if sign_last => out.push(sign),
                PatternElement::AnchoredSign => {}
                PatternElement::Ordinal { upper } => {
                    let is_whole = part.bytes().all(|digit| digit == b'0');
                    if !number.is_negative && is_whole && self.fraction_digits == 0 {
                        let ending = ordinal_suffix(whole);
                        match upper {
                            true => out.push_str(&ending.to_ascii_uppercase()),
                            false => out.push_str(ending),
                        }
                    }
                }
            }
        }
        if self.has_angle_brackets {
            match (number.is_negative, self.is_padded) {
                (true, _) => out.push('>'),
                (false, true) => out.push(' '),
                (false, false) => {}
            }
        }
    }

    fn has_decimal_point(&self) -> bool {
        self.elements.contains(&PatternElement::Point)
    }
}

fn ordinal_suffix(whole: &str) -> &'static str {
    let digits = whole.as_bytes();
    let is_teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    match digits.last() {
        _ if is_teen => "th",
        Some(b'1') => "st",
        Some(b'2') => "nd",
        Some(b'3') => "rd",
        _ => "th",
    }
}

/// A number whose digits are rounded to the fraction digits of a pattern.
struct RoundedDigits<'a> {
    is_negative: bool,
    /// Digits before the point, without leading zeros; empty for zero.
    whole: &'a str,
    fraction: &'a str,
}

impl RoundedDigits<'_> {
    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.bytes().all(|digit| digit == b'0')
    }
}

/// A number to be written by a pattern.
#[derive(Debug, Clone, Copy)]
enum PatternNumber {
    /// An integer whose last `scale` digits are behind the decimal point.
    Exact {
        value: i128,
        scale: usize,
    },
    Float(f64),
}

impl PatternNumber {
    fn is_negative(self) -> bool {
        match self {
            PatternNumber::Exact { value, .. } => value < 0,
            PatternNumber::Float(value) => value < 0.0,
        }
    }

    /// Writes the digits without a sign, multiplied by ten to the power of `shift`, with `after` fraction
    /// digits.
    fn write_rounded_digits(self, after: usize, shift: usize, out: &mut String) {
        match self {
            PatternNumber::Float(value) => {
                let value = value.abs() * 10_f64.powi(shift as i32);
                // Writing to a `String` cannot fail.
                let _ = write!(out, "{value:.after$}");
            }
            PatternNumber::Exact { value, scale } => {
                let _ = write!(out, "{}", value.unsigned_abs());
                // At least one digit before the point.
                while out.len() < scale + 1 {
                    out.insert(0, '0');
                }
                out.extend(std::iter::repeat_n('0', shift));
                let wanted = out.len() - scale + after;
                // The point stands before the last `scale` digits.
                match wanted.checked_sub(out.len()) {
                    Some(missing) => out.extend(std::iter::repeat_n('0', missing)),
                    None => {
                        let up = out.as_bytes().get(wanted).is_some_and(|digit| *digit >= b'5');
                        out.truncate(wanted);
                        if up {
                            increment_digits(out);
                        }
                    }
                }
                if after > 0 {
                    out.insert(out.len() - after, '.');
                }
            }
        }
    }

    /// Returns the name of a value that is infinite or NaN, and `None` for a finite number.
    fn non_finite_name(self) -> Option<&'static str> {
        match self {
            PatternNumber::Float(value) if value.is_nan() => Some("NaN"),
            PatternNumber::Float(f64::INFINITY) => Some("Infinity"),
            PatternNumber::Float(f64::NEG_INFINITY) => Some("-Infinity"),
            _ => None,
        }
    }

    /// Writes the number in scientific notation, with one digit before the point.
    fn write_scientific(self, after: usize, out: &mut String) {
        let before = out.len();
        match self {
            PatternNumber::Float(value) => {
                let _ = write!(out, "{:.after$e}", value.abs());
            }
            PatternNumber::Exact { value, scale } => {
                let mut digits = value.unsigned_abs().to_string();
                let mut exponent = match value {
                    0 => 0,
                    _ => digits.len() as i64 - 1 - scale as i64,
                };
                let up = digits.as_bytes().get(after + 1).is_some_and(|digit| *digit >= b'5');
                digits.truncate(after + 1);
                while digits.len() < after + 1 {
                    digits.push('0');
                }
                if up {
                    increment_digits(&mut digits);
                    if digits.len() > after + 1 {
                        digits.pop();
                        exponent += 1;
                    }
                }
                if after > 0 {
                    digits.insert(1, '.');
                }
                let _ = write!(out, "{digits}e{exponent}");
            }
        }
        // The exponent has a sign and at least two digits.
        if let Some(at) = out[before..].find('e').map(|at| before + at) {
            let exponent: i64 = out[at + 1..].parse().unwrap_or_default();
            out.truncate(at);
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "e{sign}{:02}", exponent.abs());
        }
    }
}

/// Increments a number given as decimal digits.
fn increment_digits(digits: &mut String) {
    let mut bytes = std::mem::take(digits).into_bytes();
    for digit in bytes.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            *digits = String::from_utf8(bytes).unwrap_or_default();
            return;
        }
        *digit = b'0';
    }
    bytes.insert(0, b'1');
    *digits = String::from_utf8(bytes).unwrap_or_default();
}

/// Writes a number from 1 to 3999 as a Roman numeral.
fn write_roman_numeral(number: i64, out: &mut String) {
    const ROMAN_VALUES: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut rest = number;
    for (value, letters) in ROMAN_VALUES {
        while rest >= value {
            out.push_str(letters);
            rest -= value;
        }
    }
}

impl NumberPattern {
    /// Writes a number; `held` is a reusable buffer for its digits.
    fn write_number(&self, number: PatternNumber, held: &mut String, out: &mut String) {
        if let Some(name) = number.non_finite_name() {
            out.push_str(name);
            return;
        }
        held.clear();
        if let Some(upper) = self.roman_is_uppercase {
            number.write_rounded_digits(0, 0, held);
            let value = held.parse().ok().filter(|value| (1..4_000).contains(value));
            held.clear();
            match value {
                Some(value) if !number.is_negative() => write_roman_numeral(value, held),
                _ => held.push_str("###############"),
            }
            if !upper {
                held.make_ascii_lowercase();
            }
            if self.is_padded {
                out.extend(std::iter::repeat_n(' ', 15_usize.saturating_sub(held.len())));
            }
            out.push_str(held);
            return;
        }
        let is_negative = number.is_negative();
        if self.is_scientific {
            match is_negative {
                true => out.push('-'),
                false if self.elements.contains(&PatternElement::AnchoredSign) => out.push('+'),
                false if self.is_padded => out.push(' '),
                false => {}
            }
            number.write_scientific(self.fraction_digits, out);
            return;
        }
        number.write_rounded_digits(self.fraction_digits, self.shift_digits, held);
        let (whole, part) = held.split_once('.').unwrap_or((held, ""));
        let whole = whole.trim_start_matches('0');
        let digits = RoundedDigits { is_negative, whole, fraction: part };
        // A number that rounds to zero has no sign.
        let is_negative = is_negative && !digits.is_zero();
        self.write_digits(&RoundedDigits { is_negative, ..digits }, out);
    }
}

/// Formats the numbers of the first argument by the patterns of the second.
pub(crate) fn format_numbers(given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
    let (array, rows) = crate::row_function::argument_array(given.argument(0)?)?;
    let formats = given.text_argument(1)?;
    let mut kept = LastTextCache::new();
    let mut held = String::new();
    given.build_texts(|row, out| {
        let at = rows.value_index(row);
        let Some(format) = formats.get(row) else { return Ok(false) };
        if array.is_null(at) {
            return Ok(false);
        }
        let number = match array.data_type() {
            DataType::Int64 => PatternNumber::Exact {
                value: array.as_primitive::<Int64Type>().value(at).into(),
                scale: 0,
            },
            DataType::UInt64 => PatternNumber::Exact {
                value: array.as_primitive::<UInt64Type>().value(at).into(),
                scale: 0,
            },
            DataType::Decimal128(_, scale) => PatternNumber::Exact {
                value: array.as_primitive::<Decimal128Type>().value(at),
                scale: usize::try_from(*scale).unwrap_or(0),
            },
            _ => PatternNumber::Float(array.as_primitive::<Float64Type>().value(at)),
        };
        kept.get_or_parse(format, NumberPattern::parse)?.write_number(number, &mut held, out);
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_by_pattern(pattern: &str, number: PatternNumber) -> String {
        let mut out = String::new();
        NumberPattern::parse(pattern).unwrap().write_number(number, &mut String::new(), &mut out);
        out
    }

    #[test]
    fn patterns_format_numbers_as_postgres_does() {
        let exact = |value: i128, scale: usize| PatternNumber::Exact { value, scale };
        let mut wrong = Vec::new();
        for (number, pattern, expected) in [
            (exact(-1, 1), "99.99", "  -.10"),
            (exact(-1, 1), "FM9.99", "-.1"),
            (exact(1, 1), "0.9", " 0.1"),
            (exact(12, 0), "9990999.9", "    0012.0"),
            (exact(12, 0), "FM9990999.9", "0012."),
            (exact(485, 0), "999", " 485"),
            (exact(-485, 0), "999", "-485"),
            (exact(485, 0), "9 9 9", " 4 8 5"),
            (exact(1485, 0), "9,999", " 1,485"),
            (exact(1485, 0), "9G999", " 1,485"),
            (exact(485, 0), "9,999", "   485"),
            (exact(1485, 1), "999.999", " 148.500"),
            (exact(1485, 1), "FM999.999", "148.5"),
            (exact(1485, 1), "FM999.990", "148.500"),
            (exact(31_485, 1), "9G999D999", " 3,148.500"),
            (exact(-485, 0), "999S", "485-"),
            (exact(-485, 0), "999MI", "485-"),
            (exact(485, 0), "999MI", "485 "),
            (exact(485, 0), "FM999MI", "485"),
            (exact(485, 0), "PL999", "+485"),
            (exact(485, 0), "SG999", "+485"),
            (exact(-485, 0), "SG999", "-485"),
            (exact(-485, 0), "9SG99", "4-85"),
            (exact(-485, 0), "999PR", "<485>"),
            (exact(485, 0), "999PR", " 485 "),
            (exact(12, 0), "S9999", "  +12"),
            (exact(485, 0), "RN", "        CDLXXXV"),
            (exact(485, 0), "FMRN", "CDLXXXV"),
            (exact(485, 0), "FMrn", "cdlxxxv"),
            (exact(52, 1), "FMRN", "V"),
            (exact(4_000, 0), "FMRN", "###############"),
            (exact(482, 0), "999th", " 482nd"),
            (exact(485, 0), "\"Good number:\"999", "Good number: 485"),
            (exact(4_858, 1), "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
            (exact(12, 0), "99V999", " 12000"),
            (exact(124, 1), "99V999", " 12400"),
            (exact(1_245, 2), "99V9", " 125"),
            (exact(4_859, 7), "9.99EEEE", " 4.86e-04"),
            (PatternNumber::Float(0.000_485_9), "9.99EEEE", " 4.86e-04"),
            (exact(9_996, 0), "9.99EEEE", " 1.00e+04"),
            (exact(-123_456, 0), "9.9EEEE", "-1.2e+05"),
            (exact(0, 0), "999", "   0"),
            (exact(0, 0), "99.99", "   .00"),
            (exact(0, 0), "FM0.00", "0.00"),
            (exact(1_234, 0), "999", " ###"),
            (exact(12_345, 1), "999.9", " ###.#"),
            (exact(9_995, 1), "999", " ###"),
            (exact(-4, 1), "9", " 0"),
            (exact(5, 1), "9", " 1"),
            (PatternNumber::Float(1_234_567.891), "FM9,999,999.00", "1,234,567.89"),
            (PatternNumber::Float(f64::NAN), "999", "NaN"),
            (exact(i128::from(u64::MAX), 0), "FM99999999999999999999", "18446744073709551615"),
            (exact(1, 3), "FM90.00", "0.00"),
            (exact(12_345, 2), "000000.0", " 000123.5"),
        ] {
            let found = format_by_pattern(pattern, number);
            if found != expected {
                wrong.push(format!("{pattern} of {number:?} is {found:?}, and not {expected:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (pattern, part) in [
            ("", "has no digits"),
            ("abc", "`a` at character 1"),
            ("9.9.9", "two points"),
            ("L999", "`L` at character 1"),
            ("9\"", "quote"),
            ("9V9.9", "two points"),
            ("RNEEEE", "EEEE"),
        ] {
            let refused = NumberPattern::parse(pattern).unwrap_err().to_string();
            assert!(refused.contains(part), "{pattern}: {refused}");
        }
    }
}
