//! Numbers as GNU sort reads them: `-n`, `-h`, `-g` and `-M`, in the C locale.

use std::cmp::Ordering;

/// Returns whether GNU sort treats a byte as a blank in the C locale, including the newline of `-z`.
#[inline]
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

pub(super) fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    &text[start..]
}

/// A decimal number: blanks, a minus, digits, a point, digits. Any other byte ends it;
/// without digits it is zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecimalNumber<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a [u8],
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

fn strip_leading_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len())..]
}

impl<'a> DecimalNumber<'a> {
    #[inline]
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let text = skip_blanks(text);
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => split_digits(rest),
            _ => (&[][..], rest),
        };
        let whole = strip_leading_zeros(whole);
        let zero = whole.is_empty() && fraction.iter().all(|digit| *digit == b'0');
        DecimalNumber { negative: negative && !zero, whole, fraction, suffix: rest }
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.iter().all(|digit| *digit == b'0')
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        let whole =
            self.whole.len().cmp(&other.whole.len()).then_with(|| self.whole.cmp(other.whole));
        whole.then_with(|| {
            let common = self.fraction.len().min(other.fraction.len());
            let rest = |fraction: &[u8]| fraction[common..].iter().any(|digit| *digit != b'0');
            self.fraction[..common]
                .cmp(&other.fraction[..common])
                .then_with(|| rest(self.fraction).cmp(&rest(other.fraction)))
        })
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
            (a, b) => b.cmp(&a),
        }
    }

    /// Returns the first 15 digits of the magnitude below the number of digits before the point.
    #[inline]
    fn magnitude_prefix(&self, length_bits: u32) -> u64 {
        const DIGIT_BITS: u32 = 50;
        let most = (1usize << length_bits) - 1;
        if self.whole.len() >= most {
            return ((most as u64) << DIGIT_BITS) | ((1 << DIGIT_BITS) - 1);
        }
        let mut value = 0u64;
        let mut missing = 15;
        for digit in self.whole.iter().chain(self.fraction).take(15) {
            value = value * 10 + u64::from(digit - b'0');
            missing -= 1;
        }
        ((self.whole.len() as u64) << DIGIT_BITS) | (value * 10u64.pow(missing))
    }

    /// Returns a number that orders as the value does.
    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        let positive = 1 << 63 | self.magnitude_prefix(13);
        if self.negative { !positive } else { positive }
    }

    /// Returns the exponent of the unit behind a number that is not zero: 1 for K, 2 for M, …
    fn unit_exponent(&self) -> u8 {
        if self.is_zero() {
            return 0;
        }
        match self.suffix.first() {
            Some(b'k' | b'K') => 1,
            Some(letter) => match b"MGTPEZYRQ".iter().position(|unit| unit == letter) {
                Some(index) => index as u8 + 2,
                None => 0,
            },
            None => 0,
        }
    }

    /// Compares as `-h` does: units first, whatever the number before them.
    pub(super) fn compare_human(&self, other: &Self) -> Ordering {
        let signed = |number: &Self| {
            i16::from(number.unit_exponent()) * if number.negative { -1 } else { 1 }
        };
        signed(self).cmp(&signed(other)).then_with(|| self.compare(other))
    }

    pub(super) fn human_prefix(&self) -> u64 {
        let positive = 1 << 63 | u64::from(self.unit_exponent()) << 59 | self.magnitude_prefix(9);
        if self.negative { !positive } else { positive }
    }
}

/// A number as `strtold` reads it, but with its exact value. Texts that begin with no number precede NaNs,
/// and NaNs precede all other numbers.
///
/// The order of NaNs is that of coreutils up to 9.1 on x86: by the bytes of a long double in memory, the
/// lowest byte of the payload first and the sign last. (Later versions compare `nan` and `-nan` as texts;
/// the manual says "in a consistent but machine-dependent order".)
#[derive(Debug, Clone, Copy)]
pub(super) enum GeneralNumber<'a> {
    NoNumber,
    NotANumber {
        /// The low 62 bits of the mantissa: `7` of `nan(7)`.
        payload: u64,
        negative: bool,
    },
    Infinite {
        negative: bool,
    },
    /// The nearest float and the exact value. The float grows with the value: two different floats have
    /// different values.
    Finite(f64, ScientificNumber<'a>),
}

/// A number in scientific notation: digits, a point and an exponent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScientificNumber<'a> {
    negative: bool,
    /// 10, or 16 with an exponent to the base of two.
    radix: u32,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> ScientificNumber<'a> {
    /// Parses a number; `None` without a digit.
    fn parse(text: &'a [u8], negative: bool, radix: u32) -> Option<Self> {
        let digits = |text: &'a [u8]| {
            let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
            text.split_at(text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len()))
        };
        let (whole, rest) = digits(text);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => digits(rest),
            _ => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = parse_exponent(rest, if radix == 16 { b'p' } else { b'e' });
        Some(ScientificNumber { negative, radix, whole, fraction, exponent })
    }

    /// Returns the digits without leading and trailing zeros, their count, and the position of the point.
    fn normalized_digits(&self) -> (impl Iterator<Item = u8> + Clone + use<'a>, usize, i64) {
        let all = self.whole.iter().chain(self.fraction).copied();
        let zeros = all.clone().take_while(|digit| *digit == b'0').count();
        let behind = all.clone().rev().take_while(|digit| *digit == b'0').count();
        let length = (self.whole.len() + self.fraction.len() - zeros).saturating_sub(behind);
        (all.skip(zeros).take(length), length, self.whole.len() as i64 - zeros as i64)
    }

    fn is_zero(&self) -> bool {
        self.whole.iter().chain(self.fraction).all(|digit| *digit == b'0')
    }

    /// Returns the nearest float, including infinity and zero.
    fn nearest_float(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let magnitude = if self.radix == 16 {
            self.nearest_float_of_hexadecimal()
        } else {
            self.nearest_float_of_decimal()
        };
        if self.negative { -magnitude } else { magnitude }
    }

    fn nearest_float_of_decimal(&self) -> f64 {
        // No midpoint between two floats has more digits; of the rest only a digit other than zero matters.
        const DIGITS: usize = 800;
        let (digits, length, point) = self.normalized_digits();
        let point = point.saturating_add(self.exponent).clamp(-100_000, 100_000);
        let mut decimal = String::with_capacity(length.min(DIGITS) + 16);
        decimal.push_str("0.");
        decimal.extend(digits.take(DIGITS).map(char::from));
        if length > DIGITS {
            decimal.push('1');
        }
        decimal.push_str(&format!("e{point}"));
        decimal.parse().unwrap_or(0.0)
    }

    fn nearest_float_of_hexadecimal(&self) -> f64 {
        let (digits, length, point) = self.normalized_digits();
        let mut value = digits
            .take(16)
            .fold(0u64, |value, digit| value << 4 | u64::from(hex_digit_value(digit)));
        value <<= 4 * 16usize.saturating_sub(length);
        // The lowest bit is below all bits of a float, and stands for the digits that follow.
        value |= u64::from(length > 16);
        let bits = 64 - i64::from(value.leading_zeros());
        // The value is at least two to the power of `top`, and less than twice that.
        let top = point.saturating_mul(4).saturating_add(self.exponent) - 64 + bits - 1;
        if top > 1023 {
            return f64::INFINITY;
        }
        let kept = (top + 1075).min(53);
        if kept < 0 {
            return 0.0;
        }
        let drop = bits - kept;
        let (wide, half) = (u128::from(value), 1u128 << (drop - 1));
        let (mut mantissa, rest) = ((wide >> drop) as u64, wide & (2 * half - 1));
        if rest > half || rest == half && mantissa & 1 == 1 {
            mantissa += 1;
        }
        // A carry correctly increments the exponent.
        let exponent = u64::try_from((top + 1022).max(0)).unwrap_or(0);
        f64::from_bits((exponent << 52) + mantissa)
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => return Ordering::Equal,
            (true, false) if other.negative => return Ordering::Greater,
            (true, false) => return Ordering::Less,
            (false, true) => return other.compare(self).reverse(),
            (false, false) => {}
        }
        let magnitude = |a: &Self, b: &Self| {
            if a.radix == 10 && b.radix == 10 {
                let ((x, _, x_point), (y, _, y_point)) =
                    (a.normalized_digits(), b.normalized_digits());
                let x_point = x_point.saturating_add(a.exponent);
                return x_point.cmp(&y_point.saturating_add(b.exponent)).then_with(|| x.cmp(y));
            }
            // A few words of both mostly decide. If the numbers are equal or nearly so, the comparison
            // takes as many words as their digits fill, however large the exponents: a power of ten is
            // a product with powers of two only if digits make up for its fives.
            let mut words = 8;
            loop {
                let ((mut x, x_fives), (mut y, y_fives)) =
                    (a.magnitude_bounds(words), b.magnitude_bounds(words));
                // A division by fives is a product on the other side.
                for fives in [x_fives, -y_fives] {
                    let side = if fives > 0 { &mut x } else { &mut y };
                    side.multiply_by_fives(fives.unsigned_abs(), words);
                }
                if x.low.compare(&y.high) == Ordering::Greater {
                    return Ordering::Greater;
                }
                if x.high.compare(&y.low) == Ordering::Less {
                    return Ordering::Less;
                }
                if x.is_exact() && y.is_exact() {
                    return Ordering::Equal;
                }
                words *= 2;
            }
        };
        match (self.negative, other.negative) {
            (false, false) => magnitude(self, other),
            (true, true) => magnitude(other, self),
            (a, b) => b.cmp(&a),
        }
    }

    /// Returns bounds of the magnitude with this many words, and the power of five that they still have to be
    /// multiplied by.
    fn magnitude_bounds(&self, words: usize) -> (NumberBounds, i64) {
        let (digits, length, point) = self.normalized_digits();
        // The first digits, as many as fit.
        let taken = length.min(words * 8);
        let mut low = WideNumber { words: Vec::with_capacity(words + 1), power: 0 };
        let (mut factor, mut value) = (1, 0);
        for digit in digits.take(taken) {
            factor *= self.radix;
            value = value * self.radix + hex_digit_value(digit);
            if factor >= 10_000_000 {
                low.multiply_add(factor, value);
                (factor, value) = (1, 0);
            }
        }
        low.multiply_add(factor, value);
        let scale = point - taken as i64;
        let fives = if self.radix == 16 { 0 } else { scale + self.exponent };
        low.power = if self.radix == 16 { 4 * scale + self.exponent } else { fives };
        let mut high = low.clone();
        if taken < length {
            high.multiply_add(1, 1);
        }
        (NumberBounds { low, high }, fives)
    }
}

fn hex_digit_value(digit: u8) -> u32 {
    char::from(digit).to_digit(16).unwrap_or(0)
}

/// A number of several words, the lowest first, times a power of two.
#[derive(Debug, Clone)]
struct WideNumber {
    /// The last one is not zero.
    words: Vec<u32>,
    power: i64,
}

impl WideNumber {
    fn multiply_add(&mut self, factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for word in &mut self.words {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.words.push(carry as u32);
        }
    }

    /// Returns the product, with the words below the highest ones dropped, or rounded up.
    fn multiply_rounded(&self, other: &Self, words: usize, up: bool) -> Self {
        let mut product = vec![0; self.words.len() + other.words.len()];
        for (index, x) in self.words.iter().enumerate() {
            let mut carry = 0;
            for (into, y) in product[index..].iter_mut().zip(&other.words) {
                carry += u64::from(*into) + u64::from(*x) * u64::from(*y);
                *into = carry as u32;
                carry >>= 32;
            }
            product[index + other.words.len()] = carry as u32;
        }
        while product.last() == Some(&0) {
            product.pop();
        }
        let below = product.len().saturating_sub(words);
        let is_rounded = product.drain(..below).any(|word| word > 0);
        let mut product =
            WideNumber { words: product, power: self.power + other.power + 32 * below as i64 };
        if up && is_rounded {
            product.multiply_add(1, 1);
        }
        product
    }

    fn compare(&self, other: &Self) -> Ordering {
        let normal = |wide: &Self| {
            let shift = wide.words.last().map_or(0, |word| word.leading_zeros());
            let mut words = wide.words.clone();
            if shift > 0 {
                for index in (0..words.len()).rev() {
                    let below = index.checked_sub(1).map_or(0, |below| words[below]);
                    words[index] = words[index] << shift | below >> (32 - shift);
                }
            }
            let zeros = words.iter().take_while(|word| **word == 0).count();
            let top = wide.power + 32 * words.len() as i64 - i64::from(shift);
            (top, words.into_iter().skip(zeros).rev())
        };
        let ((top, words), (other_top, other_words)) = (normal(self), normal(other));
        top.cmp(&other_top).then_with(|| words.cmp(other_words))
    }
}

/// Inclusive bounds of a number.
struct NumberBounds {
    low: WideNumber,
    high: WideNumber,
}

impl NumberBounds {
    /// Multiplies the bounds by a power of five.
    fn multiply_by_fives(&mut self, fives: u64, words: usize) {
        for (side, up) in [(&mut self.low, false), (&mut self.high, true)] {
            let mut power = WideNumber { words: vec![1], power: 0 };
            for bit in (0..64 - fives.leading_zeros()).rev() {
                power = power.multiply_rounded(&power, words, up);
                if fives >> bit & 1 == 1 {
                    power =
                        power.multiply_rounded(&WideNumber { words: vec![5], power: 0 }, words, up);
                }
            }
            *side = side.multiply_rounded(&power, words, up);
        }
    }

    fn is_exact(&self) -> bool {
        self.low.compare(&self.high) == Ordering::Equal
    }
}

impl<'a> GeneralNumber<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let start =
            text.iter().position(|byte| !matches!(byte, b' ' | 9..=13)).unwrap_or(text.len());
        let text = &text[start..];
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            Some((b'+', rest)) => (false, rest),
            _ => (false, text),
        };
        let begins = |word: &[u8]| {
            text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
        };
        if begins(b"inf") {
            return GeneralNumber::Infinite { negative };
        }
        if begins(b"nan") {
            return GeneralNumber::NotANumber { payload: nan_payload(&text[3..]), negative };
        }
        let hexadecimal = begins(b"0x").then(|| ScientificNumber::parse(&text[2..], negative, 16));
        match hexadecimal.flatten().or_else(|| ScientificNumber::parse(text, negative, 10)) {
            Some(number) => GeneralNumber::Finite(number.nearest_float(), number),
            None => GeneralNumber::NoNumber,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        use GeneralNumber::{Finite, Infinite, NoNumber, NotANumber};
        match (self, other) {
            (NoNumber, NoNumber) => Ordering::Equal,
            (NoNumber, _) => Ordering::Less,
            (_, NoNumber) => Ordering::Greater,
            (
                NotANumber { payload: a, negative: a_negative },
                NotANumber { payload: b, negative: b_negative },
            ) => a.to_le_bytes().cmp(&b.to_le_bytes()).then(a_negative.cmp(b_negative)),
            (NotANumber { .. }, _) => Ordering::Less,
            (_, NotANumber { .. }) => Ordering::Greater,
            (Infinite { negative: a }, Infinite { negative: b }) => b.cmp(a),
            (Infinite { negative: true }, _) | (_, Infinite { negative: false }) => Ordering::Less,
            (Infinite { negative: false }, _) | (_, Infinite { negative: true }) => {
                Ordering::Greater
            }
            (Finite(a, written_a), Finite(b, written_b)) => a
                .partial_cmp(b)
                .unwrap_or(Ordering::Equal)
                .then_with(|| written_a.compare(written_b)),
        }
    }

    pub(super) fn prefix(&self) -> u64 {
        let value = match self {
            GeneralNumber::NoNumber => return 0,
            GeneralNumber::NotANumber { .. } => return 1,
            GeneralNumber::Infinite { negative: true } => f64::NEG_INFINITY,
            GeneralNumber::Infinite { negative: false } => f64::INFINITY,
            GeneralNumber::Finite(value, _) => *value,
        };
        let bits = (value + 0.0).to_bits();
        let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
        (ordered >> 1) + 2
    }
}

/// Returns the payload that follows `nan`: a number in parentheses, as `strtoull` reads it with base 0. Without
/// one, or with anything else in the parentheses, it is 0.
fn nan_payload(text: &[u8]) -> u64 {
    const BITS: u32 = 62;
    let Some(text) = text.strip_prefix(b"(") else { return 0 };
    let Some(end) = text.iter().position(|byte| *byte == b')') else { return 0 };
    let (radix, digits) = match &text[..end] {
        [b'0', b'x' | b'X', digits @ ..] => (16, digits),
        [b'0', digits @ ..] => (8, digits),
        digits => (10, digits),
    };
    let value = digits.iter().try_fold(0u64, |value, digit| {
        let digit = char::from(*digit).to_digit(radix)?;
        Some(value.saturating_mul(u64::from(radix)).saturating_add(u64::from(digit)))
    });
    value.unwrap_or(0) & ((1 << BITS) - 1)
}

/// Parses an exponent with its letter; 0 if there is none.
fn parse_exponent(text: &[u8], letter: u8) -> i64 {
    let Some((first, rest)) = text.split_first() else { return 0 };
    if !first.eq_ignore_ascii_case(&letter) {
        return 0;
    }
    let (negative, rest) = match rest.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, rest),
    };
    // All exponents beyond a million millions are equivalent.
    let value = split_digits(rest)
        .0
        .iter()
        .fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1 << 40));
    if negative { -value } else { value }
}

/// Returns 1 for JAN to 12 for DEC, whatever follows, and 0 for anything else.
pub(super) fn parse_month(text: &[u8]) -> u8 {
    const NAMES: [&[u8; 3]; 12] = [
        b"JAN", b"FEB", b"MAR", b"APR", b"MAY", b"JUN", b"JUL", b"AUG", b"SEP", b"OCT", b"NOV",
        b"DEC",
    ];
    let Some(name) = skip_blanks(text).first_chunk::<3>() else { return 0 };
    NAMES
        .iter()
        .position(|month| month.eq_ignore_ascii_case(name))
        .map_or(0, |index| index as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::{DecimalNumber, GeneralNumber, parse_month};
    use proptest::prelude::*;
    use std::cmp::Ordering;

    #[test]
    fn values_are_in_order() {
        let ascending: [&[&str]; 9] = [
            &["-12", " -12.0", "\t-012x"],
            &["-1.5"],
            &["-.5", "-0.50"],
            &["0", "", "-", "-0", "abc", ".", "-.0", "+7"],
            &["0.001"],
            &["1", "01.", "1x"],
            &["1.5", "1.50"],
            &["1.500000000000000000001"],
            &["100000000000000000000000"],
        ];
        for (index, group) in ascending.iter().enumerate() {
            for (other_index, other_group) in ascending.iter().enumerate() {
                for (a, b) in group.iter().flat_map(|a| other_group.iter().map(move |b| (a, b))) {
                    let (a, b) =
                        (DecimalNumber::parse(a.as_bytes()), DecimalNumber::parse(b.as_bytes()));
                    assert_eq!(a.compare(&b), index.cmp(&other_index), "{a:?} {b:?}");
                    assert!(
                        a.prefix().cmp(&b.prefix()) == index.cmp(&other_index)
                            || a.prefix() == b.prefix()
                    );
                }
            }
        }
    }

    #[test]
    fn a_zero_has_no_sign() {
        for (a, b) in [("0", "-0"), ("-0.00", "0x0"), ("-0e7", "00"), ("-0x0", "0.")] {
            let (x, y) = (GeneralNumber::parse(a.as_bytes()), GeneralNumber::parse(b.as_bytes()));
            assert_eq!(
                (x.compare(&y), y.compare(&x)),
                (Ordering::Equal, Ordering::Equal),
                "{a} {b}"
            );
            assert_eq!(x.prefix(), y.prefix(), "{a} {b}");
        }
        let order = |a: &str, b: &str| {
            GeneralNumber::parse(a.as_bytes()).compare(&GeneralNumber::parse(b.as_bytes()))
        };
        assert_eq!(order("-1e-400", "0"), Ordering::Less);
        assert_eq!(order("0", "1e-400"), Ordering::Less);
    }

    #[test]
    fn all_notations_of_a_number_have_one_order() {
        let long = format!("1{}", "0".repeat(5000));
        let long_binary = format!("0x{}", "f".repeat(5000));
        let half = format!("0x1.{}8p-300", "0".repeat(13));
        // All digits of a midpoint between two floats, and a bit more.
        let half_decimal = format!("{}e-353", half_of_floats());
        let half_more = format!("{}1e-354", half_of_floats());
        let ascending: [&[&str]; 41] = [
            &["", "e5", "x", ".", "-"],
            &[
                "nan", "NaN", "+nan", "nan(", "nan(1", "nan()", "nan(0)", "nan(foo)", "nan(1x)",
                "nan(08)", "nan(0x)", "nan( 1)", "nan(-1)", "nanx",
            ],
            &["-nan", "-NaN", "-nan(0)", "-nan(x)"],
            &["nan(256)", "nan(0x100)", "nan(0X100)", "nan(0400)"],
            &["-nan(256)"],
            &["nan(1)", "NAN(1)", "nan(0x4000000000000001)"],
            &["-nan(1)"],
            &["nan(257)"],
            &["nan(7)"],
            &["nan(99999999999999999999999)", "nan(0x3fffffffffffffff)"],
            &["-inf", "-Infinity"],
            &["-0x1p3322000000"],
            &["-1e1000000000"],
            &["-1e400"],
            &["-0x20000000000001"],
            &["-9007199254740992", "-0x20000000000000"],
            &["-0x1p-1074"],
            &["-1e-400"],
            &["0", "-0", "0x0", "0x", "-0x.0p9", "0e99999999999999999999"],
            &["0x1p-3322000000"],
            &["1e-1000000000"],
            &["1e-400"],
            &["0x1p-1075"],
            &["5e-324"],
            &[&half, &half_decimal],
            &[&half_more],
            &["0.1"],
            &["0x1.999999999999ap-4"],
            &["12", "0x1.8p3", "0xC", "0XC.0P0", "1.2e1", "0x.00cp12"],
            &["9007199254740992", "0x20000000000000", "0x2p+52"],
            &["9007199254740993", "0x20000000000001"],
            &["9007199254740993.5", "0x20000000000001.8", "0x20000000000001.80"],
            &["18446744073709551616", "0x1p64", "0x10000000000000000"],
            &["0x10000000000000001", "18446744073709551617"],
            &["1e400", "0.00001e405"],
            &["1e500"],
            &[&long, "1e5000"],
            &[&long_binary],
            &["1e1000000000"],
            &["0x1p3322000000"],
            &["inf", "+INFINITY", "infx"],
        ];
        for (index, group) in ascending.iter().enumerate() {
            for (other_index, other_group) in ascending.iter().enumerate() {
                for (a, b) in group.iter().flat_map(|a| other_group.iter().map(move |b| (a, b))) {
                    let (x, y) =
                        (GeneralNumber::parse(a.as_bytes()), GeneralNumber::parse(b.as_bytes()));
                    assert_eq!(x.compare(&y), index.cmp(&other_index), "{a} {b}");
                    let prefixes = x.prefix().cmp(&y.prefix());
                    assert!(prefixes == index.cmp(&other_index) || prefixes.is_eq(), "{a} {b}");
                }
            }
        }
    }

    /// Returns the digits of (2^53 + 1) * 5^353: a midpoint between two floats, times 10^353.
    fn half_of_floats() -> String {
        let mut digits = vec![1u8];
        let mut multiply = |factor: u32, add: u32| {
            let mut carry = add;
            for digit in &mut digits {
                carry += u32::from(*digit) * factor;
                *digit = (carry % 10) as u8;
                carry /= 10;
            }
            while carry > 0 {
                digits.push((carry % 10) as u8);
                carry /= 10;
            }
        };
        (0..53).for_each(|_| multiply(2, 0));
        multiply(1, 1);
        (0..353).for_each(|_| multiply(5, 0));
        digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
    }

    #[test]
    fn months_are_known_by_three_letters() {
        for (text, number) in
            [("jan", 1), (" DECember", 12), ("Mayor", 5), ("", 0), ("de", 0), ("xmay", 0)]
        {
            assert_eq!(parse_month(text.as_bytes()), number, "{text}");
        }
    }

    fn number() -> impl Strategy<Value = String> {
        "[ ]{0,1}[-+]{0,1}([0-9]{0,4}|[1-9]{14,20})(\\.[0-9]{0,3}){0,1}([kKMGx]|e[0-9]|e-[0-9]|inf|nan|0x1p3){0,1}"
    }

    /// Generates a number near the values where floats become sparse, in one of its notations, with a
    /// multiple of its value that is whole.
    fn number_with_model_value() -> impl Strategy<Value = (String, i128)> {
        let (middle, high) = (1i128 << 53, 1i128 << 56);
        let near = prop_oneof![0..40i128, middle - 3..middle + 3, high - 9..high + 9];
        (near, any::<bool>(), 0..4u8, -3..3i32, -9..9i32).prop_map(|(m, minus, kind, ten, two)| {
            let sign = if minus { "-" } else { "" };
            let signed = if minus { -m } else { m };
            let scaled = |factor: i128| signed * factor;
            let (tens, twos) = (10i128.pow((ten + 3) as u32), 1i128 << (two + 9));
            match kind {
                0 => (format!("{sign}{m}e{ten}"), scaled(tens << 9)),
                1 => (format!("{sign}00{m}.000"), scaled(1000 << 9)),
                2 => (format!("{sign}0x{m:x}p{two}"), scaled(twos * 1000)),
                // A hexadecimal digit behind the point.
                _ => {
                    (format!("{sign}0X{:X}.{:x}0p{two}", m >> 4, m & 15), scaled(twos * 1000) / 16)
                }
            }
        })
    }

    /// Generates numbers of all sizes in all notations.
    fn any_general() -> impl Strategy<Value = String> {
        let digits = "[-+]{0,1}(0x){0,1}[0-9]{0,3}(1|0{20}|9007199254740992|20000000000000){0,1}[0-9]{0,1}(\\.[0-9]{0,2}){0,1}";
        let power = "[ep]-{0,1}[0-9]{1,2}([0-9]{1,12}){0,1}|";
        prop_oneof![
            (digits, power).prop_map(|(digits, power)| digits + &power),
            (0..70i32, -1080..1080i32).prop_map(|(m, p)| format!("0x{m:x}p{p}")),
            (0..70i32, -340..320i32).prop_map(|(m, p)| format!("{m}e{p}")),
            any::<f64>().prop_map(|value| format!("{value:e}")),
            any::<f64>().prop_map(|value| format!("{value}")),
            Just("inf".to_owned()),
            Just("-inf".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn general_numbers_are_in_the_order_of_their_values(a in number_with_model_value(), b in number_with_model_value()) {
            let (x, y) = (GeneralNumber::parse(a.0.as_bytes()), GeneralNumber::parse(b.0.as_bytes()));
            prop_assert_eq!(x.compare(&y), a.1.cmp(&b.1), "{} {}", &a.0, &b.0);
            prop_assert!(x.prefix() == y.prefix() || x.prefix().cmp(&y.prefix()) == a.1.cmp(&b.1));
        }

        #[test]
        fn the_order_of_general_numbers_is_total(texts in prop::collection::vec(any_general(), 3..7)) {
            let numbers: Vec<_> = texts.iter().map(|text| GeneralNumber::parse(text.as_bytes())).collect();
            for x in &numbers {
                prop_assert_eq!(x.compare(x), Ordering::Equal);
                for y in &numbers {
                    let compared = x.compare(y);
                    prop_assert_eq!(compared, y.compare(x).reverse());
                    prop_assert!(x.prefix() == y.prefix() || x.prefix().cmp(&y.prefix()) == compared, "{:?} {:?}", x, y);
                    for z in &numbers {
                        if compared.is_le() && y.compare(z).is_le() {
                            let all = compared.then(y.compare(z));
                            prop_assert_eq!(x.compare(z), all, "{:?} {:?} {:?}", x, y, z);
                        }
                    }
                }
            }
        }

        #[test]
        fn floats_are_the_nearest(value in any::<f64>(), m in any::<u64>(), p in -1200..1100i32) {
            // The standard library's parser gives the nearest float, and hexadecimal digits must, too.
            if value.is_finite() {
                let text = format!("{value:e}");
                let GeneralNumber::Finite(read, _) = GeneralNumber::parse(text.as_bytes()) else { panic!() };
                prop_assert_eq!(read, value);
                let bits = value.to_bits();
                let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
                let whole = fraction | u64::from(exponent > 0) << 52;
                let sign = if value < 0.0 { "-" } else { "" };
                let text = format!("{sign}0x{whole:x}p{}", exponent.max(1) - 1075);
                let GeneralNumber::Finite(read, _) = GeneralNumber::parse(text.as_bytes()) else { panic!() };
                prop_assert_eq!(read, value);
            }
            let text = format!("0x{m:x}p{p}");
            let GeneralNumber::Finite(read, _) = GeneralNumber::parse(text.as_bytes()) else { panic!() };
            if p > -1000 {
                let (a, b) = (p / 2, p - p / 2);
                prop_assert_eq!(read, m as f64 * 2f64.powi(a) * 2f64.powi(b));
            }
        }

        #[test]
        fn prefixes_agree_with_comparisons(a in number(), b in number()) {
            let (x, y) = (DecimalNumber::parse(a.as_bytes()), DecimalNumber::parse(b.as_bytes()));
            let agrees = |prefixes: Ordering, compared: Ordering| prefixes == compared || prefixes == Ordering::Equal;
            prop_assert!(agrees(x.prefix().cmp(&y.prefix()), x.compare(&y)));
            prop_assert!(agrees(x.human_prefix().cmp(&y.human_prefix()), x.compare_human(&y)));
            prop_assert_eq!(x.compare(&y), y.compare(&x).reverse());
            let (x, y) = (GeneralNumber::parse(a.as_bytes()), GeneralNumber::parse(b.as_bytes()));
            prop_assert!(agrees(x.prefix().cmp(&y.prefix()), x.compare(&y)), "{:?} {:?}", x, y);
            prop_assert_eq!(x.compare(&y), y.compare(&x).reverse());
        }

        #[test]
        fn hostile_text_is_some_number(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (DecimalNumber::parse(&text).human_prefix(), GeneralNumber::parse(&text).prefix(), parse_month(&text));
        }
    }
}
