//! Tests of small states at every size up to that of the large forms: for any way of adding the values,
//! the bytes and the answers are the same, and correct.

use std::collections::{HashMap, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{
    ExplicitThreshold, Hll, HllParams, QuantileLevel, Quantiles, TopK, hash_i64,
};

/// A number of values past every threshold of a small form.
const SIZE_MAX: usize = 600;

/// Operations that fill a state and convert it to another of the same content.
trait SmallState: Clone + PartialEq + std::fmt::Debug {
    type Value: Copy;
    fn add(&mut self, value: Self::Value);
    fn add_all(&mut self, values: &[Self::Value]);
    fn merge(&mut self, other: &Self);
    fn merge_owned(&mut self, other: Self);
    fn bytes(&self) -> Vec<u8>;
    fn back(&self) -> Self;
}

macro_rules! small {
    ($type:ty, $value:ty, $add:ident, $add_all:ident) => {
        impl SmallState for $type {
            type Value = $value;
            fn add(&mut self, value: $value) {
                self.$add(value);
            }
            fn add_all(&mut self, values: &[$value]) {
                self.$add_all(values);
            }
            fn merge(&mut self, other: &Self) {
                <$type>::merge(self, other);
            }
            fn merge_owned(&mut self, other: Self) {
                <$type>::merge_owned(self, other);
            }
            fn bytes(&self) -> Vec<u8> {
                let mut out = Vec::new();
                self.encode(&mut out);
                out
            }
            fn back(&self) -> Self {
                Self::decode(&self.bytes()).unwrap()
            }
        }
    };
}
small!(Hll, u64, add_hash, add_hashes);
small!(Quantiles, f64, add, add_all);

/// Adds of frequent words, while they are counted exactly and the order leaves no trace.
trait AddWordItem {
    fn add_word(&mut self, word: [u8; 8]);
}
impl AddWordItem for TopK {
    fn add_word(&mut self, word: [u8; 8]) {
        self.add(&word, 1);
    }
}
small!(TopK, [u8; 8], add_word, add_word_items);

/// Builds the states of `values` in many ways, and checks that all of them have the same bytes.
fn of_all_ways<S: SmallState>(empty: &S, values: &[S::Value], cuts: &[usize]) -> S {
    let singly = |values: &[S::Value]| {
        let mut state = empty.clone();
        values.iter().for_each(|value| state.add(*value));
        state
    };
    let expect = singly(values);
    let check = |state: S, how: &str| {
        assert_eq!(state.bytes(), expect.bytes(), "{how}, {} values", values.len());
        assert_eq!(state, expect, "{how}, {} values", values.len());
    };
    let mut at_once = empty.clone();
    at_once.add_all(values);
    check(at_once, "at once");
    check(expect.back(), "from bytes");
    for &cut in cuts {
        let (left, right) = values.split_at(cut.min(values.len()));
        let mut state = singly(left);
        state.add_all(right);
        check(state, "some, then the others at once");
        let mut state = singly(left).back();
        right.iter().for_each(|value| state.add(*value));
        check(state, "from bytes, then singly");
        let (left, right) = (singly(left), singly(right));
        let mut state = left.clone();
        state.merge(&right);
        check(state, "merged");
        let mut state = right.clone();
        state.merge(&left.back());
        check(state, "merged the other way, from bytes");
        let mut state = left.clone();
        state.merge_owned(right.clone());
        check(state, "merged, owned");
        let mut state = right.back();
        state.merge_owned(left);
        check(state, "merged the other way, owned, from bytes");
    }
    expect
}

fn check_hll(params: HllParams, hashes: &[u64], cuts: &[usize]) {
    let empty = Hll::new(params).unwrap();
    let state = of_all_ways(&empty, hashes, cuts);
    if state.is_exact() {
        assert_eq!(state.count(), hashes.iter().collect::<HashSet<_>>().len() as u64);
    }
}

fn check_quantiles(max_bins: u32, values: &[f64], cuts: &[usize]) {
    let state = of_all_ways(&Quantiles::new(max_bins).unwrap(), values, cuts);
    let mut sorted: Vec<f64> =
        values.iter().filter(|value| !value.is_nan()).map(|value| value + 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(state.count(), sorted.len() as u64);
    assert_eq!(state.nan_count(), (values.len() - sorted.len()) as u64);
    if !state.is_exact() || sorted.is_empty() {
        return;
    }
    let last = sorted.len() - 1;
    // A quarter of a quartile's position: whole, or the mean of neighbours or of one and such a mean.
    let expect = |quarters: usize| match (last * quarters / 4, last * quarters % 4) {
        (at, 0) => sorted[at],
        (at, 2) => sorted[at] / 2.0 + sorted[at + 1] / 2.0,
        _ => f64::NAN,
    };
    let qs = [0.0, 0.25, 0.5, 0.75, 1.0];
    let together = state.quantiles(&qs);
    let shares = qs.map(QuantileLevel::new);
    let mut at_shares = Vec::new();
    state.for_each_quantile(&shares, |answer| at_shares.push(answer));
    assert_eq!(together, at_shares);
    for (quarters, q) in qs.into_iter().enumerate() {
        let answer = state.quantile(q).unwrap();
        assert_eq!(together[quarters], Some(answer));
        assert_eq!(state.quantile_interval(q), Some((answer, answer)));
        let expect = expect(quarters);
        if expect.is_finite() {
            assert!((answer - expect).abs() <= 1e-12 * expect.abs(), "{answer} {expect}");
        }
    }
}

fn check_words(capacity: u32, words: &[[u8; 8]], cuts: &[usize]) {
    let empty = TopK::new(capacity).unwrap();
    let state = of_all_ways(&empty, words, cuts);
    check_counts(&state, words.iter().map(|word| &word[..]));
}

/// Checks that all counts of an exact state are those of `items`.
fn check_counts<'a>(state: &TopK, items: impl Iterator<Item = &'a [u8]>) {
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    assert!(state.is_exact());
    let mut expect: Vec<_> = counts.into_iter().collect();
    expect.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let top = state.top_items(usize::MAX);
    let found: Vec<_> = top.iter().map(|top| (top.item, top.lower_bound)).collect();
    assert_eq!(found, expect);
    assert!(top.iter().all(|top| top.lower_bound == top.upper_bound));
}

/// Adds the same values at every size: all different, a few that repeat, and in between.
#[test]
fn small_states_are_exact_at_every_size() {
    for size in 0..SIZE_MAX {
        for different in [1, 7, 16, 17, 100, 1000] {
            let numbers: Vec<i64> = (0..size as i64).map(|i| i * i % different).collect();
            let cuts = [size / 2, size.min(3), size / 10];
            let hashes: Vec<u64> = numbers.iter().map(|number| hash_i64(*number)).collect();
            check_hll(HllParams::default(), &hashes, &cuts);
            // Zero is a hash as well.
            let small: Vec<u64> = numbers.iter().map(|number| number.cast_unsigned()).collect();
            check_hll(HllParams::default(), &small, &cuts);
            let values: Vec<f64> =
                numbers.iter().map(|number| *number as f64 / 8.0 - 5.0).collect();
            check_quantiles(2048, &values, &cuts);
            if size % 3 == 0 {
                let words: Vec<_> = numbers.iter().map(|number| number.to_be_bytes()).collect();
                check_words(1024, &words, &cuts);
            }
        }
        if size % 7 == 0 {
            let hashes: Vec<u64> = (0..size as i64).map(hash_i64).collect();
            for n in 0..9 {
                let expthresh = ExplicitThreshold::PowerOfTwo(n);
                let params = HllParams { log2m: 8, regwidth: 5, expthresh, sparse: true };
                check_hll(params, &hashes, &[size / 2, size / 10]);
            }
            let values: Vec<f64> = (0..size).map(|i| (i as f64 * 0.7).sin()).collect();
            for max_bins in [16, 64, 256] {
                check_quantiles(max_bins, &values, &[size / 2, size / 10]);
            }
        }
    }
}

/// Repeats so often that the list is converted to a table.
#[test]
fn repeated_words_are_counted_exactly_in_a_table() {
    for different in [1, 8, 9, 20, 32, 33] {
        let words: Vec<[u8; 8]> = (0..5000u64).map(|i| (i * i % different).to_be_bytes()).collect();
        check_words(1024, &words, &[0, 1000, 1024, 3000]);
    }
}

fn params() -> impl Strategy<Value = HllParams> {
    let thresholds = prop_oneof![
        Just(ExplicitThreshold::Never),
        (0u8..9).prop_map(ExplicitThreshold::PowerOfTwo),
        Just(ExplicitThreshold::Automatic),
    ];
    (4u8..=14, 1u8..=8, thresholds, any::<bool>()).prop_map(
        |(log2m, regwidth, expthresh, sparse)| HllParams { log2m, regwidth, expthresh, sparse },
    )
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (-20i32..20).prop_map(f64::from),
        3 => -1e3..1e3f64,
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => prop_oneof![Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), Just(f64::MIN)],
    ]
}

proptest! {
    #[test]
    fn small_counts_are_the_same_however_they_came(
        params in params(),
        hashes in vec(prop_oneof![
            4 => (0i64..400).prop_map(hash_i64),
            1 => 0u64..4,
            1 => any::<u64>(),
        ], 0..SIZE_MAX),
        cuts in vec(0..SIZE_MAX, 1..4),
    ) {
        check_hll(params, &hashes, &cuts);
    }

    #[test]
    fn small_quantiles_are_the_same_however_they_came(
        max_bins in (4u32..12).prop_map(|log2| 1 << log2),
        values in vec(float(), 0..SIZE_MAX),
        cuts in vec(0..SIZE_MAX, 1..4),
    ) {
        check_quantiles(max_bins, &values, &cuts);
    }

    #[test]
    fn few_items_of_any_length_are_counted_exactly(
        items in vec(prop_oneof![
            4 => (0u64..40).prop_map(|item| item.to_be_bytes().to_vec()),
            1 => vec(0u8..2, 0..12),
            1 => (0usize..40).prop_map(|length| vec![b'x'; length]),
        ], 0..120),
        words in vec((0u64..50).prop_map(u64::to_be_bytes), 0..120),
        cut in 0usize..120,
    ) {
        let of = |items: &[Vec<u8>]| {
            let mut state = TopK::default();
            items.iter().for_each(|item| state.add(item, 1));
            state
        };
        let mut state = of(&items);
        state.add_word_items(&words);
        let all = || items.iter().map(Vec::as_slice).chain(words.iter().map(|word| &word[..]));
        check_counts(&state, all());
        let mut other = TopK::default();
        other.add_word_items(&words);
        let (left, right) = items.split_at(cut.min(items.len()));
        let mut merged = of(right);
        merged.merge(&other);
        merged.merge_owned(of(left).back());
        prop_assert_eq!(merged.bytes(), state.bytes());
        let mut merged = TopK::default();
        merged.merge_owned(other);
        merged.merge_owned(of(left));
        merged.merge(&of(right).back());
        prop_assert_eq!(merged.bytes(), state.bytes());
        prop_assert_eq!(merged, state);
    }

    /// Past the capacity the order matters: adding words together equals adding them one by one, and a merge
    /// into an empty state gives the merged state.
    #[test]
    fn words_at_once_are_words_one_by_one(
        capacity in 1u32..40,
        words in vec((0u64..100).prop_map(u64::to_be_bytes), 0..400),
        cut in 0usize..400,
    ) {
        let (left, right) = words.split_at(cut.min(words.len()));
        let mut at_once = TopK::new(capacity).unwrap();
        at_once.add_word_items(left);
        at_once.add_word_items(right);
        let mut singly = TopK::new(capacity).unwrap();
        words.iter().for_each(|word| singly.add(word, 1));
        prop_assert_eq!(at_once.bytes(), singly.bytes());
        let mut merged = TopK::new(capacity).unwrap();
        merged.merge_owned(singly.clone());
        prop_assert_eq!(merged.bytes(), singly.bytes());
        let mut by_words = TopK::new(capacity).unwrap();
        let mut by_states = by_words.clone();
        for words in words.chunks(cut.max(5)) {
            by_words.merge_occurrences(words.iter().map(|word| &word[..]));
            let mut state = TopK::new(capacity).unwrap();
            state.add_word_items(words);
            by_states.merge(&state);
        }
        prop_assert_eq!(by_words.bytes(), by_states.bytes());
        let mut smaller = TopK::new(7).unwrap();
        let mut by_reference = smaller.clone();
        smaller.merge_owned(singly.clone());
        by_reference.merge(&singly);
        prop_assert_eq!(smaller.bytes(), by_reference.bytes());
    }
}
