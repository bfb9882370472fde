//! Numbers as GNU sort reads them: `-n`, `-h`, `-g` and `-M`, in the C locale.

use std::cmp::Ordering;

/// What GNU sort calls a blank in the C locale, the newline of `-z` included.
#[inline]
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

pub(super) fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    &text[start..]
}

/// A decimal number: blanks, a minus, digits, a point, digits. What is none of these ends it;
/// without digits it is zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal<'a> {
    negative: bool,
    /// Without zeros in front.
    whole: &'a [u8],
    fraction: &'a [u8],
    rest: &'a [u8],
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len())..]
}

impl<'a> Decimal<'a> {
    #[inline]
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let text = skip_blanks(text);
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        let (whole, rest) = digits(text);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => digits(rest),
            _ => (&[][..], rest),
        };
        let whole = without_zeros(whole);
        let zero = whole.is_empty() && fraction.iter().all(|digit| *digit == b'0');
        Decimal { negative: negative && !zero, whole, fraction, rest }
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.iter().all(|digit| *digit == b'0')
    }

    fn magnitude(&self, other: &Self) -> Ordering {
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
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
            (a, b) => b.cmp(&a),
        }
    }

    /// The first 15 digits of the magnitude and, above them, how many there are before the point.
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

    /// A number that orders as the value does.
    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        let positive = 1 << 63 | self.magnitude_prefix(13);
        if self.negative { !positive } else { positive }
    }

    /// The unit that follows, of a number that is not zero: 1 for K, 2 for M, …
    fn unit(&self) -> u8 {
        if self.is_zero() {
            return 0;
        }
        match self.rest.first() {
            Some(b'k' | b'K') => 1,
            Some(letter) => match b"MGTPEZYRQ".iter().position(|unit| unit == letter) {
                Some(index) => index as u8 + 2,
                None => 0,
            },
            None => 0,
        }
    }

    /// As `-h` has it: units first, whatever the number before them.
    pub(super) fn compare_human(&self, other: &Self) -> Ordering {
        let signed =
            |number: &Self| i16::from(number.unit()) * if number.negative { -1 } else { 1 };
        signed(self).cmp(&signed(other)).then_with(|| self.compare(other))
    }

    pub(super) fn prefix_human(&self) -> u64 {
        let positive = 1 << 63 | u64::from(self.unit()) << 59 | self.magnitude_prefix(9);
        if self.negative { !positive } else { positive }
    }
}

/// A number as `strtold` reads it; what does not begin with one is before all that do, and what is
/// no number (NaN) behind it.
#[derive(Debug, Clone, Copy)]
pub(super) enum General<'a> {
    None,
    NotANumber {
        negative: bool,
    },
    /// The value as near as 64 bits come, and the decimal digits that it was written as, if so.
    Number(f64, Option<Scientific<'a>>),
}

/// Digits, a point and a power of ten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scientific<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Scientific<'a> {
    /// Digits without zeros in front, and where their point is.
    fn normal(&self) -> (impl Iterator<Item = u8> + Clone + use<'a>, i64) {
        let (whole, fraction) = (self.whole, self.fraction);
        let zeros = whole.iter().chain(fraction).take_while(|digit| **digit == b'0').count();
        let all = whole.iter().chain(fraction).copied().skip(zeros);
        let point = (whole.len() as i64).saturating_sub(zeros as i64).saturating_add(self.exponent);
        (all, point)
    }

    fn is_zero(&self) -> bool {
        self.whole.iter().chain(self.fraction).all(|digit| *digit == b'0')
    }

    fn compare(&self, other: &Self) -> Ordering {
        let magnitude = |a: &Self, b: &Self| {
            let ((x, x_point), (y, y_point)) = (a.normal(), b.normal());
            let zero = |digits: &mut dyn Iterator<Item = u8>| digits.next().is_none();
            match (zero(&mut x.clone()), zero(&mut y.clone())) {
                (true, true) => return Ordering::Equal,
                (true, false) => return Ordering::Less,
                (false, true) => return Ordering::Greater,
                (false, false) => {}
            }
            let length = x.clone().count().max(y.clone().count());
            let padded =
                |digits| std::iter::Iterator::chain(digits, std::iter::repeat(b'0')).take(length);
            x_point.cmp(&y_point).then_with(|| {
                padded(x.collect::<Vec<_>>().into_iter())
                    .cmp(padded(y.collect::<Vec<_>>().into_iter()))
            })
        };
        match (self.negative, other.negative) {
            (false, false) => magnitude(self, other),
            (true, true) => magnitude(other, self),
            // A zero has no sign.
            _ if self.is_zero() && other.is_zero() => Ordering::Equal,
            (a, b) => b.cmp(&a),
        }
    }
}

impl<'a> General<'a> {
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
        let signed = |value: f64| if negative { -value } else { value };
        if begins(b"inf") {
            return General::Number(signed(f64::INFINITY), None);
        }
        if begins(b"nan") {
            return General::NotANumber { negative };
        }
        if begins(b"0x")
            && let Some(value) = hexadecimal(&text[2..])
        {
            return General::Number(signed(value), None);
        }
        let (whole, rest) = digits(text);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', rest)) => digits(rest),
            _ => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return General::None;
        }
        let exponent = exponent(rest, b"eE");
        let number = Scientific { negative, whole, fraction, exponent };
        // Digits beyond these do not change the nearest float; an exponent beyond has no float.
        let mut decimal = String::with_capacity(64);
        let (all, point) = number.normal();
        decimal.push_str("0.");
        decimal.extend(all.take(40).map(char::from));
        decimal.push_str(&format!("0e{}", point.clamp(-100_000, 100_000)));
        General::Number(signed(decimal.parse().unwrap_or(0.0)), Some(number))
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        use General::{None, NotANumber, Number};
        match (self, other) {
            (None, None) => Ordering::Equal,
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            (NotANumber { negative: a }, NotANumber { negative: b }) => b.cmp(a),
            (NotANumber { .. }, _) => Ordering::Less,
            (_, NotANumber { .. }) => Ordering::Greater,
            (Number(a, written_a), Number(b, written_b)) => a
                .partial_cmp(b)
                .unwrap_or(Ordering::Equal)
                .then_with(|| match (written_a, written_b) {
                    (Some(a), Some(b)) => a.compare(b),
                    _ => Ordering::Equal,
                }),
        }
    }

    pub(super) fn prefix(&self) -> u64 {
        match self {
            General::None => 0,
            General::NotANumber { .. } => 1,
            General::Number(value, _) => {
                let bits = (value + 0.0).to_bits();
                let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
                (ordered >> 1) + 2
            }
        }
    }
}

/// An exponent with its letter; 0 where there is none.
fn exponent(text: &[u8], letters: &[u8]) -> i64 {
    let Some((letter, rest)) = text.split_first() else { return 0 };
    if !letters.contains(letter) {
        return 0;
    }
    let (negative, rest) = match rest.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, rest),
    };
    let value = digits(rest)
        .0
        .iter()
        .fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1 << 40));
    if negative { -value } else { value }
}

fn hexadecimal(text: &[u8]) -> Option<f64> {
    let (mut value, mut scale, mut any, mut point) = (0f64, 0i64, false, false);
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        match char::from(*byte).to_digit(16) {
            Some(digit) => {
                any = true;
                value = value * 16.0 + f64::from(digit);
                scale -= if point { 4 } else { 0 };
            }
            None if *byte == b'.' && !point => point = true,
            None => break,
        }
        rest = after;
    }
    let scale = (scale + exponent(rest, b"pP")).clamp(-20_000, 20_000);
    any.then(|| value * 2f64.powi(i32::try_from(scale).unwrap_or(0)))
}

/// 1 for JAN to 12 for DEC, whatever follows, and 0 for the rest.
pub(super) fn month(text: &[u8]) -> u8 {
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
    use super::{Decimal, General, month};
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
                    let (a, b) = (Decimal::parse(a.as_bytes()), Decimal::parse(b.as_bytes()));
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
            let (x, y) = (General::parse(a.as_bytes()), General::parse(b.as_bytes()));
            assert_eq!(
                (x.compare(&y), y.compare(&x)),
                (Ordering::Equal, Ordering::Equal),
                "{a} {b}"
            );
            assert_eq!(x.prefix(), y.prefix(), "{a} {b}");
        }
        let order =
            |a: &str, b: &str| General::parse(a.as_bytes()).compare(&General::parse(b.as_bytes()));
        assert_eq!(order("-1e-400", "0"), Ordering::Less);
        assert_eq!(order("0", "1e-400"), Ordering::Less);
    }

    #[test]
    fn months_are_known_by_three_letters() {
        for (text, number) in
            [("jan", 1), (" DECember", 12), ("Mayor", 5), ("", 0), ("de", 0), ("xmay", 0)]
        {
            assert_eq!(month(text.as_bytes()), number, "{text}");
        }
    }

    fn number() -> impl Strategy<Value = String> {
        "[ ]{0,1}[-+]{0,1}([0-9]{0,4}|[1-9]{14,20})(\\.[0-9]{0,3}){0,1}([kKMGx]|e[0-9]|e-[0-9]|inf|nan|0x1p3){0,1}"
    }

    proptest! {
        #[test]
        fn prefixes_agree_with_comparisons(a in number(), b in number()) {
            let (x, y) = (Decimal::parse(a.as_bytes()), Decimal::parse(b.as_bytes()));
            let agrees = |prefixes: Ordering, compared: Ordering| prefixes == compared || prefixes == Ordering::Equal;
            prop_assert!(agrees(x.prefix().cmp(&y.prefix()), x.compare(&y)));
            prop_assert!(agrees(x.prefix_human().cmp(&y.prefix_human()), x.compare_human(&y)));
            prop_assert_eq!(x.compare(&y), y.compare(&x).reverse());
            let (x, y) = (General::parse(a.as_bytes()), General::parse(b.as_bytes()));
            prop_assert!(agrees(x.prefix().cmp(&y.prefix()), x.compare(&y)), "{:?} {:?}", x, y);
            prop_assert_eq!(x.compare(&y), y.compare(&x).reverse());
        }

        #[test]
        fn hostile_text_is_some_number(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (Decimal::parse(&text).prefix_human(), General::parse(&text).prefix(), month(&text));
        }
    }
}
