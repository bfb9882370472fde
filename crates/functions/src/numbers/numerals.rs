//! PostgreSQL's patterns of numbers: `FM9,999,990.00`.
//!
//! Source: its manual, "Data Type Formatting Functions", Table "Template Patterns for Numeric Formatting". A
//! `9` is a digit or a blank, a `0` a digit or a zero; a number too large for its pattern is shown as `#`. The
//! sign stands before the first digit unless the pattern says where: `S`, `MI`, `PL`, `SG`, `PR`. Departures: a point is
//! `.` and a comma `,`, whatever the machine's language; `L`, whose sign goes by that, is refused, as is a letter
//! that is no pattern. Decimals and whole numbers are rounded half away from zero, floats to the nearest.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use datafusion_common::Result;

use crate::callable::{Given, Kept, brief, checked_length, usage};

/// The type that an argument is cast to that is a number; none where it is none.
pub(crate) fn as_number(given: &DataType) -> Option<DataType> {
    Some(match given {
        DataType::UInt64 => DataType::UInt64,
        of if of.is_integer() => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => DataType::Decimal128(38, (*scale).max(0)),
        DataType::Dictionary(_, values) => return as_number(values),
        _ => return None,
    })
}

/// A place of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// `9`, or `0` where a zero is shown.
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
    Anchored,
    Ordinal {
        upper: bool,
    },
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Numerals {
    places: Vec<Place>,
    before: usize,
    after: usize,
    /// How many of the places behind the point are shown at least, with `FM`.
    after_min: usize,
    /// How many of the digits stand behind a `V`: the number is so many times ten as large.
    shifted: usize,
    fills: bool,
    in_brackets: bool,
    is_scientific: bool,
    roman: Option<bool>,
}

impl Numerals {
    /// # Errors
    /// For a pattern that there is not.
    pub(crate) fn parsed(pattern: &str) -> Result<Self> {
        checked_length(pattern)?;
        let mut numerals = Numerals { fills: true, ..Numerals::default() };
        let refused = |what: String, hint: &str| {
            Err(usage(format!("the pattern `{}` {what}", brief(pattern)), hint))
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
                        numerals.after += 1;
                        if zero {
                            numerals.after_min = numerals.after;
                        }
                    }
                    (false, true) => {
                        numerals.before += 1;
                        numerals.shifted += 1;
                    }
                    (false, false) => numerals.before += 1,
                }
                numerals.places.push(Place::Digit { zero });
            } else if letter == '.' || is("D") {
                if is_behind_point || is_behind_v {
                    return refused("has two points".into(), "one point, or D, stands in a number");
                }
                is_behind_point = true;
                numerals.places.push(Place::Point);
            } else if letter == ',' || is("G") {
                numerals.places.push(Place::Comma);
            } else if letter == '"' {
                let Some(end) = rest[1..].find('"') else {
                    return refused(
                        "has a quote that does not end".into(),
                        "text stands between two of \"",
                    );
                };
                numerals.places.push(Place::Text(rest[1..=end].into()));
                taken = end + 2;
            } else if is("FM") {
                numerals.fills = false;
                taken = 2;
            } else if is("EEEE") {
                numerals.is_scientific = true;
                taken = 4;
            } else if is("MI") {
                numerals.places.push(Place::Minus);
                taken = 2;
            } else if is("PL") {
                numerals.places.push(Place::Plus);
                taken = 2;
            } else if is("SG") {
                numerals.places.push(Place::Sign);
                taken = 2;
            } else if is("PR") {
                numerals.in_brackets = true;
                taken = 2;
            } else if is("RN") {
                numerals.roman = Some(letter == 'R');
                taken = 2;
            } else if is("TH") {
                numerals.places.push(Place::Ordinal { upper: letter == 'T' });
                taken = 2;
            } else if is("S") {
                numerals.places.push(Place::Anchored);
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
                numerals.places.push(Place::Text(letter.to_string().into()));
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        let digits = numerals.before + numerals.after;
        if digits == 0 && numerals.roman.is_none() {
            return refused("has no digits".into(), "digits are 9 and 0: '999,990.00'");
        }
        if digits > 200 {
            return refused(format!("has {digits} digits"), "a number has up to 200");
        }
        if numerals.is_scientific && (numerals.shifted > 0 || numerals.roman.is_some()) {
            return refused("has EEEE beside V or RN".into(), "'9.99EEEE' is scientific");
        }
        Ok(numerals)
    }

    fn sign_is_placed(&self) -> bool {
        let placed = |place: &Place| matches!(place, Place::Minus | Place::Sign | Place::Anchored);
        self.places.iter().any(placed)
    }

    /// Whether `S` stands behind all digits.
    fn sign_is_last(&self) -> bool {
        let digit = self.places.iter().rposition(|place| matches!(place, Place::Digit { .. }));
        let sign = self.places.iter().position(|place| *place == Place::Anchored);
        matches!((digit, sign), (Some(digit), Some(sign)) if sign > digit)
    }

    /// Writes a number: `digits` are those before the point, without zeros before them, and those behind it.
    fn write(&self, number: &Digits<'_>, out: &mut String) {
        let (whole, part) = (number.whole, number.part);
        let is_too_large = whole.len() > self.before;
        let anchors = self.places.contains(&Place::Anchored);
        let sign_last = self.sign_is_last();
        let sign = match (number.is_negative, anchors) {
            (true, _) => '-',
            (false, true) => '+',
            (false, false) => ' ',
        };
        let has_plus = self.places.contains(&Place::Plus);
        // Whether a sign is still to be written before the first digit.
        let mut signs = match (anchors, self.sign_is_placed(), has_plus) {
            (true, ..) => !sign_last,
            (false, true, _) => false,
            (false, false, true) => number.is_negative,
            (false, false, false) => true,
        };
        let begin = |out: &mut String, signs: &mut bool| {
            if std::mem::take(signs) {
                match (self.in_brackets, number.is_negative, sign) {
                    (true, true, _) => out.push('<'),
                    (true, false, _) | (false, _, ' ') if !self.fills => {}
                    (true, false, _) => out.push(' '),
                    (false, _, sign) => out.push(sign),
                }
            }
        };
        let mut shown_after = self.after;
        if !self.fills {
            let needed = part.trim_end_matches('0').len();
            shown_after = needed.max(self.after_min).min(self.after);
        }
        let (mut at_before, mut at_after) = (0, 0);
        let (mut is_begun, mut is_behind) = (false, false);
        for place in &self.places {
            match place {
                Place::Digit { .. } if is_behind => {
                    at_after += 1;
                    if at_after <= shown_after {
                        let digit = part.as_bytes().get(at_after - 1).copied().unwrap_or(b'0');
                        out.push(if is_too_large { '#' } else { char::from(digit) });
                    }
                }
                Place::Digit { zero } => {
                    at_before += 1;
                    let from_end = self.before - at_before;
                    let digit = whole.len().checked_sub(from_end + 1);
                    let is_last_of_whole = from_end == 0 && self.after == 0 && !self.has_point();
                    is_begun |= digit.is_some() || *zero || is_last_of_whole || is_too_large;
                    if !is_begun {
                        if self.fills {
                            out.push(' ');
                        }
                        continue;
                    }
                    begin(out, &mut signs);
                    let digit = digit.and_then(|at| whole.as_bytes().get(at).copied());
                    out.push(if is_too_large { '#' } else { char::from(digit.unwrap_or(b'0')) });
                }
                Place::Point => {
                    is_behind = true;
                    is_begun = true;
                    begin(out, &mut signs);
                    out.push('.');
                }
                Place::Comma if is_begun => out.push(','),
                Place::Comma => {
                    if self.fills {
                        out.push(' ');
                    }
                }
                Place::Text(text) => out.push_str(text),
                Place::Minus if number.is_negative => out.push('-'),
                Place::Plus if !number.is_negative && !number.is_zero() => out.push('+'),
                Place::Minus | Place::Plus => {
                    if self.fills {
                        out.push(' ');
                    }
                }
                Place::Sign => out.push(if number.is_negative { '-' } else { '+' }),
                Place::Anchored if sign_last => out.push(sign),
                Place::Anchored => {}
                Place::Ordinal { upper } => {
                    let is_whole = part.bytes().all(|digit| digit == b'0');
                    if !number.is_negative && is_whole && self.after == 0 {
                        let ending = ending_of(whole);
                        match upper {
                            true => out.push_str(&ending.to_ascii_uppercase()),
                            false => out.push_str(ending),
                        }
                    }
                }
            }
        }
        if self.in_brackets {
            match (number.is_negative, self.fills) {
                (true, _) => out.push('>'),
                (false, true) => out.push(' '),
                (false, false) => {}
            }
        }
    }

    fn has_point(&self) -> bool {
        self.places.contains(&Place::Point)
    }
}

fn ending_of(whole: &str) -> &'static str {
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

/// A number, rounded to the places of a pattern.
struct Digits<'a> {
    is_negative: bool,
    /// Without zeros before it: nothing of a zero.
    whole: &'a str,
    part: &'a str,
}

impl Digits<'_> {
    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.part.bytes().all(|digit| digit == b'0')
    }
}

/// A number as digits.
#[derive(Debug, Clone, Copy)]
enum Number {
    /// So many, of which the last `scale` digits are behind the point.
    Exact {
        value: i128,
        scale: usize,
    },
    Float(f64),
}

impl Number {
    fn is_negative(self) -> bool {
        match self {
            Number::Exact { value, .. } => value < 0,
            Number::Float(value) => value < 0.0,
        }
    }

    /// Writes its digits, so many behind the point, and nothing of its sign; `shift` digits larger.
    fn digits(self, after: usize, shift: usize, out: &mut String) {
        match self {
            Number::Float(value) => {
                let value = value.abs() * 10_f64.powi(shift as i32);
                // A text takes any number.
                let _ = write!(out, "{value:.after$}");
            }
            Number::Exact { value, scale } => {
                let _ = write!(out, "{}", value.unsigned_abs());
                // Digits before the point, one at least.
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
                            one_more(out);
                        }
                    }
                }
                if after > 0 {
                    out.insert(out.len() - after, '.');
                }
            }
        }
    }

    /// Whether it is a number at all, and what it is called if not.
    fn no_number(self) -> Option<&'static str> {
        match self {
            Number::Float(value) if value.is_nan() => Some("NaN"),
            Number::Float(f64::INFINITY) => Some("Infinity"),
            Number::Float(f64::NEG_INFINITY) => Some("-Infinity"),
            _ => None,
        }
    }

    /// Scientific: one digit before the point.
    fn scientific(self, after: usize, out: &mut String) {
        let before = out.len();
        match self {
            Number::Float(value) => {
                let _ = write!(out, "{:.after$e}", value.abs());
            }
            Number::Exact { value, scale } => {
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
                    one_more(&mut digits);
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
        // The exponent has a sign and two digits.
        if let Some(at) = out[before..].find('e').map(|at| before + at) {
            let exponent: i64 = out[at + 1..].parse().unwrap_or_default();
            out.truncate(at);
            let sign = if exponent < 0 { '-' } else { '+' };
            let _ = write!(out, "e{sign}{:02}", exponent.abs());
        }
    }
}

/// The digits of the next number.
fn one_more(digits: &mut String) {
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

/// Roman numerals, of 1 to 3999.
fn roman(number: i64, out: &mut String) {
    const ONES: [(i64, &str); 13] = [
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
    for (value, letters) in ONES {
        while rest >= value {
            out.push_str(letters);
            rest -= value;
        }
    }
}

impl Numerals {
    /// Writes a number; `held` is room for its digits.
    fn show(&self, number: Number, held: &mut String, out: &mut String) {
        if let Some(name) = number.no_number() {
            out.push_str(name);
            return;
        }
        held.clear();
        if let Some(upper) = self.roman {
            number.digits(0, 0, held);
            let value = held.parse().ok().filter(|value| (1..4_000).contains(value));
            held.clear();
            match value {
                Some(value) if !number.is_negative() => roman(value, held),
                _ => held.push_str("###############"),
            }
            if !upper {
                held.make_ascii_lowercase();
            }
            if self.fills {
                out.extend(std::iter::repeat_n(' ', 15_usize.saturating_sub(held.len())));
            }
            out.push_str(held);
            return;
        }
        let is_negative = number.is_negative();
        if self.is_scientific {
            match is_negative {
                true => out.push('-'),
                false if self.places.contains(&Place::Anchored) => out.push('+'),
                false if self.fills => out.push(' '),
                false => {}
            }
            number.scientific(self.after, out);
            return;
        }
        number.digits(self.after, self.shifted, held);
        let (whole, part) = held.split_once('.').unwrap_or((held, ""));
        let whole = whole.trim_start_matches('0');
        let digits = Digits { is_negative, whole, part };
        // What is rounded to nothing has no sign.
        let is_negative = is_negative && !digits.is_zero();
        self.write(&Digits { is_negative, ..digits }, out);
    }
}

/// Numbers as text by patterns: the second argument.
pub(crate) fn shown(given: &Given<'_>) -> Result<ArrayRef> {
    let (array, rows) = crate::callable::held(given.value(0)?)?;
    let formats = given.texts(1)?;
    let mut kept = Kept::new();
    let mut held = String::new();
    given.written(|row, out| {
        let at = rows.at(row);
        let Some(format) = formats.at(row) else { return Ok(false) };
        if array.is_null(at) {
            return Ok(false);
        }
        let number = match array.data_type() {
            DataType::Int64 => Number::Exact {
                value: array.as_primitive::<Int64Type>().value(at).into(),
                scale: 0,
            },
            DataType::UInt64 => Number::Exact {
                value: array.as_primitive::<UInt64Type>().value(at).into(),
                scale: 0,
            },
            DataType::Decimal128(_, scale) => Number::Exact {
                value: array.as_primitive::<Decimal128Type>().value(at),
                scale: usize::try_from(*scale).unwrap_or(0),
            },
            _ => Number::Float(array.as_primitive::<Float64Type>().value(at)),
        };
        kept.of(format, Numerals::parsed)?.show(number, &mut held, out);
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_by(pattern: &str, number: Number) -> String {
        let mut out = String::new();
        Numerals::parsed(pattern).unwrap().show(number, &mut String::new(), &mut out);
        out
    }

    #[test]
    fn numbers_are_shown_as_in_postgres() {
        let exact = |value: i128, scale: usize| Number::Exact { value, scale };
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
            (Number::Float(0.000_485_9), "9.99EEEE", " 4.86e-04"),
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
            (Number::Float(1_234_567.891), "FM9,999,999.00", "1,234,567.89"),
            (Number::Float(f64::NAN), "999", "NaN"),
            (exact(i128::from(u64::MAX), 0), "FM99999999999999999999", "18446744073709551615"),
            (exact(1, 3), "FM90.00", "0.00"),
            (exact(12_345, 2), "000000.0", " 000123.5"),
        ] {
            let found = shown_by(pattern, number);
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
            let refused = Numerals::parsed(pattern).unwrap_err().to_string();
            assert!(refused.contains(part), "{pattern}: {refused}");
        }
    }
}
