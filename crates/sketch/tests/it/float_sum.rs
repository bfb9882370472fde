//! Compares sums with exact integer arithmetic, rounded by the standard library's decimal parser.

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::FloatSum;

use crate::{grouping, in_random_groups};

/// A natural number, lowest digit first, in the simplest possible implementation.
#[derive(Clone, Default)]
struct Natural(Vec<u32>);

impl Natural {
    fn add_shifted(&mut self, mantissa: u64, shift: usize) {
        let mut rest = u128::from(mantissa) << (shift % 32);
        let mut at = shift / 32;
        while rest > 0 {
            self.0.resize(self.0.len().max(at + 1), 0);
            rest += u128::from(self.0[at]);
            self.0[at] = rest as u32;
            rest >>= 32;
            at += 1;
        }
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let mut digits = self.0.clone();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        digits.into_iter()
    }

    fn less_than(&self, other: &Natural) -> bool {
        let (a, b): (Vec<u32>, Vec<u32>) =
            (self.digits().rev().collect(), other.digits().rev().collect());
        (a.len(), a) < (b.len(), b)
    }

    fn minus(&self, other: &Natural) -> Natural {
        let mut borrow = 0i64;
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        Natural(
            self.0
                .iter()
                .zip(others)
                .map(|(&a, b)| {
                    let difference = i64::from(a) - i64::from(b) - borrow;
                    borrow = i64::from(difference < 0);
                    (difference + (borrow << 32)) as u32
                })
                .collect(),
        )
    }

    fn times(&mut self, factor: u32) {
        let mut carry = 0u64;
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        self.0.push(carry as u32);
    }

    fn decimal(mut self) -> String {
        let mut groups = Vec::new();
        while self.digits().next().is_some() {
            let mut rest = 0u64;
            for digit in self.0.iter_mut().rev() {
                rest = rest << 32 | u64::from(*digit);
                *digit = (rest / 1_000_000_000) as u32;
                rest %= 1_000_000_000;
            }
            groups.push(format!("{rest:09}"));
        }
        groups.reverse();
        groups.concat()
    }
}

/// Returns the exact sum of finite floats, rounded once: as an integer of 2^-1074ths, converted to
/// decimal digits and parsed.
fn expected(values: &[f64]) -> f64 {
    let (mut positive, mut negative) = (Natural::default(), Natural::default());
    for &value in values {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let side = if value.is_sign_negative() { &mut negative } else { &mut positive };
        match exponent {
            0 => side.add_shifted(fraction, 0),
            _ => side.add_shifted(fraction | 1 << 52, exponent - 1),
        }
    }
    let (sign, mut magnitude) = if positive.less_than(&negative) {
        ("-", negative.minus(&positive))
    } else {
        ("", positive.minus(&negative))
    };
    if magnitude.digits().next().is_none() {
        return 0.0;
    }
    (0..1074).for_each(|_| magnitude.times(5));
    format!("{sign}{}e-1074", magnitude.decimal()).parse().unwrap()
}

fn of(values: &[f64]) -> FloatSum {
    let mut sum = FloatSum::default();
    values.iter().for_each(|&value| sum.add(value));
    sum
}

fn bytes(sum: &FloatSum) -> Vec<u8> {
    let mut out = Vec::new();
    sum.encode(&mut out);
    out
}

fn finite() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite()),
        3 => -1e6..1e6f64,
        2 => (-1000i32..1000).prop_map(|hundredths| f64::from(hundredths) / 100.0),
        // Values of similar magnitude, at any magnitude: cancellation and ties.
        2 => (-1074i32..1024, any::<bool>()).prop_map(|(exponent, negative)| {
            let power = 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
            if negative { -power } else { power }
        }),
        1 => (0u64..1 << 53, any::<bool>()).prop_map(|(bits, negative)| {
            f64::from_bits(bits | u64::from(negative) << 63)
        }),
        1 => prop_oneof![
            Just(f64::MAX), Just(f64::MIN), Just(f64::MIN_POSITIVE), Just(0.0), Just(-0.0),
            Just(2f64.powi(126)), Just(-2f64.powi(127)), Just(2f64.powi(-128)), Just(3.0 * 2f64.powi(-128)),
        ],
    ]
}

/// Generates floats of one magnitude, which overlap, cancel and carry far more often than arbitrary ones.
fn close() -> impl Strategy<Value = Vec<f64>> {
    (1u64..2046).prop_flat_map(|biased| {
        let float = (
            prop::sample::select(vec![0, 1, 26, 52, 53, 54]),
            0u64..3,
            any::<bool>(),
            any::<u64>(),
        )
            .prop_map(move |(up, habit, negative, random)| {
                let fraction = match habit {
                    0 => 0,
                    1 => (1 << 52) - 1,
                    _ => random >> 12,
                };
                let exponent = (biased + up).min(2046);
                f64::from_bits(u64::from(negative) << 63 | exponent << 52 | fraction)
            });
        vec(float, 0..40)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_sum_is_the_exact_one_rounded_once(values in prop_oneof![vec(finite(), 0..60), close()]) {
        let sum = of(&values);
        prop_assert_eq!(sum.value().to_bits(), expected(&values).to_bits());
    }

    #[test]
    fn order_and_grouping_leave_no_trace(
        values in prop_oneof![vec(finite(), 0..100), vec(any::<u64>().prop_map(f64::from_bits), 0..100), close()],
        (cuts, picks) in grouping(),
    ) {
        let all = of(&values);
        let grouped = in_random_groups(
            &values,
            &cuts,
            &picks,
            FloatSum::default,
            |sum, &value| sum.add(value),
            FloatSum::merge,
        );
        let backwards = of(&values.iter().rev().copied().collect::<Vec<_>>());
        prop_assert_eq!(bytes(&all), bytes(&grouped));
        prop_assert_eq!(bytes(&all), bytes(&backwards));
        prop_assert_eq!(&all, &grouped);
        let (a, b) = (all.value(), grouped.value());
        prop_assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
    }

    #[test]
    fn a_sum_that_plain_addition_has_exactly_is_that(values in vec(-1i64 << 40..1 << 40, 0..100)) {
        let floats: Vec<f64> = values.iter().map(|&value| value as f64 / 256.0).collect();
        prop_assert_eq!(of(&floats).value(), floats.iter().fold(0.0, |sum, value| sum + value));
    }

    #[test]
    fn what_is_taken_away_again_leaves_nothing(values in vec(finite(), 0..60)) {
        let opposite: Vec<f64> = values.iter().map(|value| -value).collect();
        let mut sum = of(&values);
        sum.merge(&of(&opposite));
        prop_assert_eq!(sum.value().to_bits(), 0);
        prop_assert_eq!(bytes(&sum), bytes(&FloatSum::default()));
        prop_assert_eq!(sum, FloatSum::default());
    }
}

#[test]
fn sums_of_extreme_floats_do_not_wrap() {
    let mut sum = FloatSum::default();
    sum.add(f64::MAX);
    // 2^63 of the largest float.
    for _ in 0..63 {
        let same = sum.clone();
        sum.merge(&same);
    }
    assert_eq!(sum.value(), f64::INFINITY);
    assert_eq!(FloatSum::decode(&bytes(&sum)).unwrap(), sum);
    let mut opposite = FloatSum::default();
    opposite.add(f64::MIN);
    for _ in 0..63 {
        let same = opposite.clone();
        opposite.merge(&same);
    }
    assert_eq!(opposite.value(), f64::NEG_INFINITY);
    assert_eq!(FloatSum::decode(&bytes(&opposite)).unwrap(), opposite);
    sum.merge(&opposite);
    assert_eq!(sum.value(), 0.0);
}
