//! Compares quantiles with a sorted `Vec`.

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{HistogramBar, Quantiles};

use crate::{grouping, in_random_groups};

/// Generates values of several distributions: all floats, small integers, neighbours, infinities, NaN.
fn values(max: usize) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        3 => any::<u64>().prop_map(f64::from_bits),
        3 => (-50i32..50).prop_map(f64::from),
        3 => -1e3..1e3f64,
        2 => (0u64..1000).prop_map(|ulps| f64::from_bits(1e9f64.to_bits() + ulps)),
        1 => prop_oneof![
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::NAN),
            Just(-0.0),
            Just(0.0),
            Just(5e-324),
            Just(f64::MAX),
            Just(f64::MIN),
        ],
    ];
    prop_oneof![vec(value, 0..max), vec(0.0..1.0f64, 0..max)]
}

fn of(max_bins: u32, values: &[f64]) -> Quantiles {
    let mut state = Quantiles::new(max_bins).unwrap();
    values.iter().for_each(|&value| state.add(value));
    state
}

fn bytes(state: &Quantiles) -> Vec<u8> {
    let mut out = Vec::new();
    state.encode(&mut out);
    out
}

/// Returns the values that quantiles are computed of, in order.
fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> =
        values.iter().filter(|value| !value.is_nan()).map(|value| value + 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the position of a quantile among sorted values, by the decimal notation of `q`.
fn position(q: f64, last: usize) -> (usize, f64) {
    let text = format!("{q}");
    let digits = text.split_once('.').map_or("", |(_, digits)| digits);
    if q == 1.0 || digits.len() > 30 {
        let position = q * last as f64;
        return (position.floor() as usize, position - position.floor());
    }
    let of = 10u128.pow(digits.len() as u32);
    let position = digits.parse::<u128>().unwrap_or(0) * last as u128;
    ((position / of) as usize, (position % of) as f64 / of as f64)
}

/// Returns numpy's default quantile and the two values that it interpolates between.
fn expected(sorted: &[f64], q: f64) -> (f64, f64, f64) {
    let (below, t) = position(q, sorted.len() - 1);
    let (a, b) = (sorted[below], sorted[(below + 1).min(sorted.len() - 1)]);
    let value = if t == 0.0 || a == b {
        a
    } else if a.is_infinite() && b.is_infinite() {
        if t < 0.5 { a } else { b }
    } else {
        // Halved, so that the difference of opposite extremes stays finite.
        let half = a / 2.0 + (b / 2.0 - a / 2.0) * t;
        if a.is_infinite() { a } else { half * 2.0 }
    };
    (a, b, value)
}

fn bins_budget() -> impl Strategy<Value = u32> {
    (4u32..9).prop_map(|log2| 1 << log2)
}

proptest! {
    #[test]
    fn order_and_grouping_leave_no_trace(
        max_bins in bins_budget(),
        values in values(1200),
        (cuts, picks) in grouping(),
    ) {
        let all = of(max_bins, &values);
        let grouped = in_random_groups(
            &values,
            &cuts,
            &picks,
            || Quantiles::new(max_bins).unwrap(),
            |state, &value| state.add(value),
            Quantiles::merge,
        );
        let descending: Vec<f64> = sorted(&values).into_iter().rev().collect();
        prop_assert_eq!(&all, &grouped);
        prop_assert_eq!(bytes(&all), bytes(&grouped));
        let mut descending = of(max_bins, &descending);
        descending.add_repeated(f64::NAN, all.nan_count());
        prop_assert_eq!(bytes(&all), bytes(&descending));
    }

    #[test]
    fn the_level_is_the_smallest_that_fits(
        max_bins in bins_budget(),
        values in values(1200),
    ) {
        let keys: Vec<u64> = sorted(&values)
            .iter()
            .map(|value| value.to_bits())
            .map(|bits| if bits >> 63 == 0 { bits | 1 << 63 } else { !bits })
            .collect();
        let fits = |level: u32| {
            keys.chunk_by(|a, b| a >> level == b >> level).count() <= max_bins as usize
        };
        let level = (0..).find(|&level| fits(level)).unwrap();
        prop_assert_eq!(u32::from(bytes(&of(max_bins, &values))[2]), level);
        prop_assert_eq!(of(max_bins, &values).is_exact(), level == 0);
    }

    #[test]
    fn every_interval_holds_the_true_quantile(
        max_bins in bins_budget(),
        values in values(1200),
        qs in vec(0.0..=1.0f64, 1..20),
    ) {
        let state = of(max_bins, &values);
        let sorted = sorted(&values);
        prop_assert_eq!(state.count(), sorted.len() as u64);
        prop_assert_eq!(state.nan_count(), (values.len() - sorted.len()) as u64);
        prop_assert_eq!(state.min(), sorted.first().copied());
        prop_assert_eq!(state.max(), sorted.last().copied());
        if sorted.is_empty() {
            prop_assert_eq!(state.quantile(0.5), None);
            prop_assert_eq!(state.quantile_interval(0.5), None);
            return Ok(());
        }
        for q in qs.into_iter().chain([0.0, 0.25, 0.5, 0.95, 1.0]) {
            let (a, b, value) = expected(&sorted, q);
            let (low, high) = state.quantile_interval(q).unwrap();
            let estimate = state.quantile(q).unwrap();
            prop_assert!(low <= estimate && estimate <= high, "{low} {estimate} {high}");
            prop_assert_eq!(state.quantiles(&[q])[0], Some(estimate));
            if state.is_exact() {
                prop_assert_eq!(low.to_bits(), estimate.to_bits());
                prop_assert_eq!(high.to_bits(), estimate.to_bits());
                // The model interpolates in another order of operations.
                let slack = 4.0 * f64::EPSILON * a.abs().max(b.abs()) + 2e-323;
                prop_assert!(
                    estimate == value || (estimate - value).abs() <= slack,
                    "{estimate} {value}"
                );
            } else {
                prop_assert!(low <= value && value <= high, "{low} {value} {high}");
                if a == b {
                    prop_assert!(low <= a && a <= high);
                }
            }
        }
        prop_assert_eq!(state.quantile(0.0), sorted.first().copied());
        prop_assert_eq!(state.quantile(1.0), sorted.last().copied());
    }

    #[test]
    fn adding_n_times_is_adding_n_times(
        max_bins in bins_budget(),
        weighted in vec((values(2), 0u64..40), 0..60),
    ) {
        let mut at_once = Quantiles::new(max_bins).unwrap();
        let mut one_by_one = Quantiles::new(max_bins).unwrap();
        for (values, count) in &weighted {
            for &value in values {
                at_once.add_repeated(value, *count);
                (0..*count).for_each(|_| one_by_one.add(value));
            }
        }
        prop_assert_eq!(bytes(&at_once), bytes(&one_by_one));
        prop_assert_eq!(at_once, one_by_one);
    }

    #[test]
    fn of_two_budgets_the_smaller_holds(
        left in bins_budget(),
        right in bins_budget(),
        values_left in values(600),
        values_right in values(600),
    ) {
        let mut merged = of(left, &values_left);
        merged.merge(&of(right, &values_right));
        let mut other_way = of(right, &values_right);
        other_way.merge(&of(left, &values_left));
        let both = [values_left, values_right].concat();
        prop_assert_eq!(bytes(&merged), bytes(&of(left.min(right), &both)));
        prop_assert_eq!(&merged, &other_way);
        let mut compacted = merged.clone();
        compacted.compact();
        prop_assert!(compacted.heap_bytes() <= merged.heap_bytes().max(16 * 512));
        prop_assert_eq!(compacted, merged);
    }
}

#[test]
fn fraction_outside_0_to_1_has_no_quantile() {
    let mut state = Quantiles::default();
    assert_eq!(state.quantile(0.5), None);
    state.add(f64::NAN);
    assert_eq!((state.quantile(0.5), state.count(), state.nan_count()), (None, 0, 1));
    state.add(1.0);
    for q in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(state.quantile(q), None);
        assert_eq!(state.quantile_interval(q), None);
    }
    assert_eq!(state.quantile(0.3), Some(1.0));
}

/// Checks the documented interval widths for common data.
#[test]
fn quantile_intervals_have_documented_widths() {
    let check =
        |name: &str, values: &mut dyn Iterator<Item = f64>, width_max: &dyn Fn(f64) -> f64| {
            let mut state = Quantiles::default();
            values.for_each(|value| state.add(value));
            assert!(!state.is_exact());
            for q in [0.01, 0.25, 0.5, 0.9, 0.99, 0.999] {
                let (low, high) = state.quantile_interval(q).unwrap();
                let width = high - low;
                assert!(width <= width_max(high.abs()), "{name} {q}: {low} to {high}");
            }
        };
    let hash = |i: i64| tidemill_sketch::hash_i64(i);
    let unit = |i: i64| (hash(i) >> 11) as f64 / (1u64 << 53) as f64;
    check("a day in seconds", &mut (0..86_400).map(|s| 1.7e9 + f64::from(s)), &|_| 64.5);
    check("evenly to one", &mut (0..1_000_000).map(unit), &|value| value * 0.008);
    check("exponential", &mut (0..1_000_000).map(|i| -50.0 * unit(i).ln()), &|value| value * 0.016);
    check(
        "both signs",
        &mut (0..1_000_000).map(|i| (unit(i) + unit(-i - 1) + unit(i << 32) - 1.5) * 1e3),
        &|value| value * 0.016,
    );
}

/// The smallest integers take one bin each, for any number of occurrences.
#[test]
fn integers_take_few_bytes() {
    let mut state = Quantiles::default();
    for i in 0..100_000 {
        state.add(f64::from(i % 1000));
    }
    assert!(state.is_exact());
    assert_eq!(state.quantile(0.5), Some(499.5));
    assert!(bytes(&state).len() < 3000, "{}", bytes(&state).len());
}

/// Returns the number of sorted values that lie in a bar.
fn in_bar(sorted: &[f64], bar: &HistogramBar, is_last: bool) -> u64 {
    let from = sorted.partition_point(|value| *value < bar.low);
    let to = if bar.low == f64::NEG_INFINITY || is_last || bar.low == bar.high {
        sorted.partition_point(|value| *value <= bar.high)
    } else {
        sorted.partition_point(|value| *value < bar.high)
    };
    (to - from) as u64
}

proptest! {
    #[test]
    fn bars_have_exactly_the_values_between_their_edges(
        max_bins in (4u32..12).prop_map(|log2| 1 << log2),
        values in values(1000),
        bars_max in 0usize..40,
    ) {
        let state = of(max_bins, &values);
        let sorted = sorted(&values);
        let bars = state.histogram(bars_max);
        let is_finite = |bar: &&HistogramBar| bar.low.is_finite() && bar.high.is_finite();
        let finite: Vec<&HistogramBar> = bars.iter().filter(is_finite).collect();
        prop_assert!(finite.len() <= bars_max);
        prop_assert!(bars.len() <= finite.len() + 2);
        for (at, bar) in bars.iter().enumerate() {
            let is_last = finite.last().is_some_and(|last| *last == bar) || at + 1 == bars.len();
            prop_assert!(bar.low <= bar.high, "{:?}", bar);
            prop_assert_eq!(in_bar(&sorted, bar, is_last), bar.count, "{:?}", bar);
        }
        for pair in finite.windows(2) {
            prop_assert!(pair[0].high == pair[1].low && pair[0].low < pair[0].high);
        }
        if bars_max > 0 {
            let total: u64 = bars.iter().map(|bar| bar.count).sum();
            prop_assert_eq!(total, sorted.len() as u64);
            if let (Some(min), Some(max)) = (state.min(), state.max()) {
                prop_assert_eq!(bars[0].low, min);
                prop_assert_eq!(bars[bars.len() - 1].high, max);
            }
        }
        if let (true, Some(first), Some(last)) = (state.is_exact(), finite.first(), finite.last()) {
            // Halves, as the whole width may overflow.
            let width = (last.high / 2.0 - first.low / 2.0) / bars_max as f64;
            let room = 1e-12 * last.high.abs().max(first.low.abs());
            for bar in finite.iter().filter(|_| finite.len() == bars_max) {
                let found = bar.high / 2.0 - bar.low / 2.0;
                prop_assert!((found - width).abs() <= room, "{:?} {}", bar, width);
            }
        }
    }

    #[test]
    fn no_more_values_lie_between_the_answer_and_the_truth_than_it_says(
        max_bins in (4u32..9).prop_map(|log2| 1 << log2),
        values in values(1000),
        q in prop_oneof![0.0..=1.0f64, (0u32..=100).prop_map(|q| f64::from(q) / 100.0)],
    ) {
        let (state, exact) = (of(max_bins, &values), of(1 << 20, &values));
        let sorted = sorted(&values);
        let Some(error) = state.rank_error(q) else {
            prop_assert!(sorted.is_empty());
            return Ok(());
        };
        if state.is_exact() {
            prop_assert_eq!(error, 0.0);
        }
        let (a, b) = (state.quantile(q).unwrap(), exact.quantile(q).unwrap());
        let (low, high) = (a.min(b), a.max(b));
        let between = sorted.iter().filter(|value| low < **value && **value < high).count();
        prop_assert!(between as f64 <= error * sorted.len() as f64 + 1e-9, "{} {}", between, error);
    }
}

#[test]
fn bars_of_a_large_state_are_about_equally_wide() {
    let state = of(1024, &(0..=100_000).map(|i| f64::from(i) / 100.0).collect::<Vec<_>>());
    assert!(!state.is_exact());
    let bars = state.histogram(20);
    assert_eq!(bars.len(), 20);
    for (at, bar) in bars.iter().enumerate() {
        assert!((bar.low - 50.0 * at as f64).abs() <= 4.0, "{bar:?}");
        assert!((bar.count as f64 - 5000.0).abs() <= 800.0, "{bar:?}");
    }
    assert_eq!((bars[0].low, bars[19].high), (0.0, 1000.0));
    let error = state.rank_error(0.5).unwrap();
    assert!(0.0 < error && error < 0.005, "{error}");
    assert_eq!(state.rank_error(1.0), Some(0.0));
    assert_eq!(state.rank_error(1.5), None);
}

#[test]
fn infinities_have_bars_of_their_own() {
    let bar = |low, high, count| HistogramBar { low, high, count };
    let state = of(16, &[f64::INFINITY, 1.0, 2.0, f64::NEG_INFINITY, f64::INFINITY, f64::NAN]);
    let (below, above) = (f64::NEG_INFINITY, f64::INFINITY);
    let expect = [bar(below, below, 1), bar(1.0, 1.5, 1), bar(1.5, 2.0, 1), bar(above, above, 2)];
    assert_eq!(state.histogram(2), expect);
    assert_eq!(of(16, &[3.0, 3.0]).histogram(5), [bar(3.0, 3.0, 2)]);
    assert_eq!(of(16, &[above]).histogram(5), [bar(above, above, 1)]);
    assert_eq!(of(16, &[]).histogram(5), []);
    assert_eq!(of(16, &[f64::MIN, f64::MAX]).histogram(2)[0], bar(f64::MIN, 0.0, 1));
}
