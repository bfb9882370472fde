//! Compares distinct items with a `BTreeSet`.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::DistinctValues;

use crate::{grouping, in_random_groups};

/// Generates short items, which fit words, and longer ones; zeros at the end are part of an item.
fn items(max: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let item = prop_oneof![
        4 => (0u8..12).prop_map(|letter| vec![b'A' + letter; 3]),
        1 => (0u16..100).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (0usize..40).prop_map(|length| vec![0; length]),
        1 => vec(any::<u8>(), 0..30),
    ];
    vec(item, 0..max)
}

fn of<'a>(most: u32, items: impl IntoIterator<Item = &'a Vec<u8>>) -> DistinctValues {
    let mut state = DistinctValues::new(most).unwrap();
    items.into_iter().for_each(|item| state.add(item));
    state
}

fn bytes(state: &DistinctValues) -> Vec<u8> {
    let mut out = Vec::new();
    state.encode(&mut out);
    out
}

proptest! {
    #[test]
    fn the_state_is_the_set_of_items_in_any_order(
        most in prop_oneof![1u32..20, 20u32..300],
        items in items(400),
        (cuts, picks) in grouping(),
        is_owned in any::<bool>(),
    ) {
        let expect: BTreeSet<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let state = of(most, &items);
        let is_given_up = expect.len() > most as usize;
        prop_assert_eq!(state.has_overflowed(), is_given_up);
        prop_assert_eq!(state.len(), (!is_given_up).then_some(expect.len()));
        prop_assert_eq!(state.items(), (!is_given_up).then(|| expect.iter().copied().collect()));
        if is_given_up {
            prop_assert_eq!(state.heap_bytes(), 0);
        }

        let grouped = in_random_groups(
            &items,
            &cuts,
            &picks,
            || DistinctValues::new(most).unwrap(),
            |state, item| state.add(item),
            |state, other| if is_owned { state.merge_owned(other.clone()) } else { state.merge(other) },
        );
        prop_assert_eq!(bytes(&grouped), bytes(&state));
        prop_assert_eq!(&grouped, &state);
        prop_assert_eq!(&of(most, items.iter().rev()), &state);
        prop_assert_eq!(of(most, expect.iter().map(|item| item.to_vec()).collect::<Vec<_>>().iter()), state);
    }

    #[test]
    fn of_different_limits_the_smaller_one_holds(
        left in 1u32..60,
        right in 1u32..60,
        items_left in items(120),
        items_right in items(120),
        is_owned in any::<bool>(),
    ) {
        let mut merged = of(left, &items_left);
        let other = of(right, &items_right);
        if is_owned { merged.merge_owned(other) } else { merged.merge(&other) }
        let all = [items_left, items_right].concat();
        let expect = of(left.min(right), &all);
        prop_assert_eq!(merged.items_max(), left.min(right));
        prop_assert_eq!(bytes(&merged), bytes(&expect));
        prop_assert_eq!(merged, expect);
    }
}

#[test]
fn overflowed_state_stays_overflowed() {
    let item = |number: u32| number.to_be_bytes().to_vec();
    let mut state = of(10, &(0..11).map(item).collect::<Vec<_>>());
    assert!(state.has_overflowed() && !state.is_empty());
    state.add(b"one more");
    state.merge(&DistinctValues::default());
    state.merge_owned(of(20, &[item(1)]));
    let mut other = of(10, &[item(1)]);
    other.merge_owned(state.clone());
    assert_eq!(other, state);
    assert!(state.has_overflowed());
    assert_eq!(DistinctValues::decode(&bytes(&state)), Ok(state));
}

#[test]
fn a_limit_beyond_32_bits_is_refused() {
    // A limit of 2^56 − 2^10 without items, a case that a fuzzer found.
    let bytes = [0x71, 0x80, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0x08, 0];
    assert!(DistinctValues::decode(&bytes).is_err());
    assert!(DistinctValues::decode(&[0x71, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]).is_ok());
    assert!(DistinctValues::decode(&[0x71, 0x80, 0x80, 0x80, 0x80, 0x10, 0]).is_err());
}

#[test]
fn merge_owned_of_tables_keeps_long_items_once() {
    let long = |number: u32| format!("{number:0>60}").into_bytes();
    let (left, right): (Vec<_>, Vec<_>) =
        ((0..500).map(long).collect(), (300..900).map(long).collect());
    let mut merged = of(1000, &left);
    merged.merge_owned(of(1000, &right));
    assert_eq!(merged.len(), Some(900));
    assert!(merged.heap_bytes() >= 900 * 84);
    assert_eq!(merged, of(1000, &(0..900).map(long).collect::<Vec<_>>()));
}
