//! Compares frequent items with a `HashMap`.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{TopItem, TopK, hash_i64};

use crate::{grouping, in_random_groups};

/// Generates short and long items with their numbers of occurrences, some frequent and most rare.
fn items(max: usize) -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let item = prop_oneof![
        3 => (0u8..6).prop_map(|letter| vec![b'A' + letter]),
        3 => (0u16..300).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (0usize..60).prop_map(|length| vec![b'x'; length]),
        1 => vec(any::<u8>(), 0..30),
    ];
    vec((item, prop_oneof![5 => Just(1u64), 2 => 0u64..20, 1 => 0u64..1000]), 0..max)
}

fn of(capacity: u32, items: &[(Vec<u8>, u64)]) -> TopK {
    let mut state = TopK::new(capacity).unwrap();
    items.iter().for_each(|(item, n)| state.add(item, *n));
    state
}

fn counted(items: &[(Vec<u8>, u64)]) -> HashMap<&[u8], u64> {
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    for (item, n) in items.iter().filter(|(_, n)| *n > 0) {
        *counts.entry(item).or_default() += n;
    }
    counts
}

fn bytes(state: &TopK) -> Vec<u8> {
    let mut out = Vec::new();
    state.encode(&mut out);
    out
}

/// Checks all guarantees of a state about its items.
fn check_bounds(state: &TopK, items: &[(Vec<u8>, u64)]) -> Result<(), TestCaseError> {
    let counts = counted(items);
    let total: u64 = counts.values().sum();
    prop_assert_eq!(state.total(), total);
    prop_assert!(state.count_error_max() <= total / (u64::from(state.capacity()) + 1));
    for (item, &count) in &counts {
        let (lower, upper) = state.count_bounds(item);
        prop_assert!(lower <= count && count <= upper, "{lower} {count} {upper}");
    }
    let top = state.top_items(usize::MAX);
    prop_assert!(top.len() <= 2 * state.capacity() as usize);
    for found in &top {
        prop_assert!(
            found.lower_bound <= counts[found.item] && counts[found.item] <= found.upper_bound
        );
        prop_assert_eq!(state.count_bounds(found.item), (found.lower_bound, found.upper_bound));
    }
    for pair in top.windows(2) {
        prop_assert!(
            (pair[1].lower_bound, pair[0].item) < (pair[0].lower_bound, pair[1].item)
                || pair[1].lower_bound < pair[0].lower_bound
        );
    }
    for k in [0, 1, 3, 10] {
        prop_assert_eq!(state.top_items(k), &top[..k.min(top.len())]);
    }
    // A frequent item is never lost.
    for (item, &count) in &counts {
        if count > state.count_error_max() {
            prop_assert!(top.iter().any(|found| found.item == *item));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn bounds_hold_under_any_merges(
        capacity in 1u32..60,
        items in items(1500),
        (cuts, picks) in grouping(),
    ) {
        let grouped = in_random_groups(
            &items,
            &cuts,
            &picks,
            || TopK::new(capacity).unwrap(),
            |state, (item, n)| state.add(item, *n),
            TopK::merge,
        );
        check_bounds(&grouped, &items)?;
        check_bounds(&of(capacity, &items), &items)?;
    }

    #[test]
    fn bounds_hold_between_capacities(
        left in 1u32..60,
        right in 1u32..60,
        items_left in items(600),
        items_right in items(600),
    ) {
        let mut merged = of(left, &items_left);
        merged.merge(&of(right, &items_right));
        prop_assert_eq!(merged.capacity(), left.min(right));
        check_bounds(&merged, &[items_left, items_right].concat())?;
    }

    /// Two tables hash with different seeds; the bytes must not depend on them.
    #[test]
    fn the_same_operations_give_the_same_bytes(
        capacity in 1u32..60,
        items in items(1500),
        (cuts, picks) in grouping(),
    ) {
        let run = || in_random_groups(
            &items,
            &cuts,
            &picks,
            || TopK::new(capacity).unwrap(),
            |state, (item, n)| state.add(item, *n),
            TopK::merge,
        );
        prop_assert_eq!(bytes(&run()), bytes(&run()));
    }

    #[test]
    fn up_to_the_capacity_counts_are_exact_in_any_order(
        items in items(200),
        (cuts, picks) in grouping(),
    ) {
        let distinct = counted(&items).len() as u32;
        let capacity = distinct.max(1);
        let all = of(capacity, &items);
        let grouped = in_random_groups(
            &items,
            &cuts,
            &picks,
            || TopK::new(capacity).unwrap(),
            |state, (item, n)| state.add(item, *n),
            TopK::merge,
        );
        prop_assert!(all.is_exact() && grouped.is_exact());
        prop_assert_eq!(bytes(&all), bytes(&grouped));
        let mut expect: Vec<TopItem<'_>> = counted(&items)
            .into_iter()
            .map(|(item, count)| TopItem { item, lower_bound: count, upper_bound: count })
            .collect();
        expect.sort_by(|a, b| b.lower_bound.cmp(&a.lower_bound).then(a.item.cmp(b.item)));
        prop_assert_eq!(all.top_items(usize::MAX), expect);
    }
}

#[test]
fn ties_are_listed_by_item() {
    let mut state = TopK::default();
    for item in ["pear", "apple", "fig", "apple", "fig", "pear", "kiwi"] {
        state.add(item.as_bytes(), 1);
    }
    let names: Vec<_> = state.top_items(3).iter().map(|found| found.item).collect();
    assert_eq!(names, [&b"apple"[..], b"fig", b"pear"]);
}

#[test]
fn a_skewed_stream_keeps_its_head() {
    // Zipf: item i occurs about 200,000 / i times.
    let mut state = TopK::new(256).unwrap();
    let harmonic: Vec<f64> = (1..=50_000)
        .scan(0.0, |sum, i| {
            *sum += 1.0 / f64::from(i);
            Some(*sum)
        })
        .collect();
    for draw in 0..1_000_000 {
        let share = (hash_i64(draw) >> 11) as f64 / 2f64.powi(53) * harmonic[49_999];
        let item = harmonic.partition_point(|&sum| sum <= share) as u32 + 1;
        state.add(&item.to_be_bytes(), 1);
    }
    assert!(!state.is_exact());
    assert!(state.count_error_max() <= 1_000_000 / 257);
    let head: Vec<u32> = state
        .top_items(10)
        .iter()
        .map(|found| u32::from_be_bytes(found.item.try_into().unwrap()))
        .collect();
    assert_eq!(head, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert!(state.heap_bytes() < 1024 * 40);
}

#[test]
fn counts_stop_at_their_limit() {
    let mut state = TopK::default();
    state.add(b"a", u64::MAX);
    state.add(b"b", 5);
    state.add(b"a", u64::MAX);
    assert_eq!(state.total(), u64::MAX);
    assert_eq!(TopK::decode(&bytes(&state)).unwrap(), state);
}
