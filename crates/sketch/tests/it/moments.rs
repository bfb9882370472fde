//! Compares moments with exact integer arithmetic: of integers, and of floats that are integers times 2^20.

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{MomentValue, Moments, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS};

use crate::{grouping, in_random_groups};

type Rows = Vec<(i64, i64)>;

fn of<N: MomentValue, const SUMS: usize>(rows: &[(N, N)]) -> Moments<N, SUMS> {
    let mut moments = Moments::default();
    for (x, y) in rows {
        moments.add(*x, *y).unwrap();
    }
    moments
}

/// Returns sums of squared distances and of products in 128 bits, each rounded at its division.
fn expected(rows: &Rows) -> [f64; 3] {
    let count = rows.len() as i128;
    let sum = |of: &dyn Fn(i128, i128) -> i128| -> i128 {
        rows.iter().map(|(x, y)| of((*x).into(), (*y).into())).sum()
    };
    let (x, y) = (sum(&|x, _| x), sum(&|_, y| y));
    let centered = |products: i128, left: i128, right: i128| match count {
        0 => 0.0,
        _ => (count * products - left * right) as f64 / count as f64,
    };
    [
        centered(sum(&|x, _| x * x), x, x),
        centered(sum(&|_, y| y * y), y, y),
        centered(sum(&|x, y| x * y), x, y),
    ]
}

fn answers<N: MomentValue>(moments: &Moments<N, TWO_COLUMN_SUMS>) -> [f64; 3] {
    [moments.squared_deviations_x(), moments.squared_deviations_y(), moments.deviation_products()]
}

fn as_floats(rows: &Rows, scale: i32) -> Vec<(f64, f64)> {
    let scaled = |value: i64| value as f64 * 2f64.powi(scale);
    rows.iter().map(|(x, y)| (scaled(*x), scaled(*y))).collect()
}

/// Generates values that are often far from 0 and close together, so that the squares cancel.
fn rows() -> impl Strategy<Value = Rows> {
    let value = 1i64 << 50;
    let any = (-value..value, -value..value);
    let close = (-value..value).prop_flat_map(|mean| vec((mean..mean + 100, -9i64..9), 0..50));
    prop_oneof![vec(any, 0..50), close]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn integers_and_floats_answer_as_exact_arithmetic_does(rows in rows()) {
        let expected = expected(&rows);
        let integers = of::<i64, TWO_COLUMN_SUMS>(&rows);
        prop_assert_eq!(answers(&integers), expected);
        prop_assert_eq!(of::<i64, ONE_COLUMN_SUMS>(&rows).squared_deviations_x(), expected[0]);
        // A power of two changes only the exponent, at any distance from 1.
        for scale in [0, -20, -400, 300] {
            let floats = as_floats(&rows, scale);
            let scaled = expected.map(|value| value * 2f64.powi(scale) * 2f64.powi(scale));
            prop_assert_eq!(answers(&of::<f64, TWO_COLUMN_SUMS>(&floats)), scaled);
            prop_assert_eq!(of::<f64, ONE_COLUMN_SUMS>(&floats).squared_deviations_x(), scaled[0]);
        }
        let sums = (integers.sum_x(), integers.sum_y());
        let sum = |of: fn(&(i64, i64)) -> i64| rows.iter().map(|row| i128::from(of(row))).sum::<i128>() as f64;
        prop_assert_eq!(sums, (sum(|row| row.0), sum(|row| row.1)));
    }

    #[test]
    fn order_and_grouping_leave_no_trace(rows in rows(), scale in -500i32..300, (cuts, picks) in grouping()) {
        let rows = as_floats(&rows, scale);
        let grouped = in_random_groups(
            &rows,
            &cuts,
            &picks,
            Moments::<f64, TWO_COLUMN_SUMS>::default,
            |moments, (x, y)| assert!(moments.add(*x, *y).is_ok()),
            Moments::merge,
        );
        let bytes = |moments: &Moments<f64, TWO_COLUMN_SUMS>| {
            let mut out = Vec::new();
            moments.encode(&mut out);
            out
        };
        let all = of(&rows);
        prop_assert_eq!(bytes(&all), bytes(&grouped));
        prop_assert_eq!(answers(&all), answers(&grouped));
    }

    #[test]
    fn what_is_removed_leaves_nothing(rows in rows(), scale in -500i32..300, kept in 0usize..10) {
        let rows = as_floats(&rows, scale);
        let mut moments = of::<f64, TWO_COLUMN_SUMS>(&rows);
        let kept = kept.min(rows.len());
        for (x, y) in &rows[kept..] {
            moments.remove_finite(*x, *y).unwrap();
        }
        prop_assert_eq!(moments, of(&rows[..kept]));
    }
}

#[test]
fn decoded_huge_count_does_not_overflow() {
    // More rows than 64 bits can count, a case that a fuzzer found.
    let mut bytes = vec![0x51, 1];
    bytes.extend([0xff; 9]);
    bytes.push(1);
    for _ in 0..2 {
        let mut sum = Vec::new();
        tidemill_sketch::FloatSum::default().encode(&mut sum);
        bytes.push(u8::try_from(sum.len()).unwrap());
        bytes.extend(sum);
    }
    let mut state = Moments::<f64, ONE_COLUMN_SUMS>::decode(&bytes).unwrap();
    state.add(1.0, 1.0).unwrap();
    state.merge(&state.clone());
    assert_eq!(state.count(), u64::MAX);
}
