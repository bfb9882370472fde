//! Compares sets of ids with a `BTreeSet`.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tidemill_sketch::{SketchError, SortedIdSet, hash_i64};

use crate::{grouping, in_random_groups};

/// Generates ids close together, far apart and at both ends, with repetitions; some in order.
fn ids(max: usize) -> impl Strategy<Value = Vec<u64>> {
    let id = prop_oneof![
        4 => 0u64..600,
        2 => any::<u64>(),
        1 => (0u64..2000).prop_map(|i| i * 1000),
        1 => Just(u64::MAX),
    ];
    let ascending = (any::<u32>(), 0u64..40, 0..max).prop_map(|(start, step, count)| {
        (0..count as u64).map(|i| u64::from(start) + i * step).collect()
    });
    prop_oneof![3 => vec(id, 0..max), 1 => ascending]
}

fn of(ids: &[u64]) -> SortedIdSet {
    ids.iter().copied().collect()
}

fn bytes(state: &SortedIdSet) -> Vec<u8> {
    let mut out = Vec::new();
    state.encode(&mut out);
    out
}

fn listed(state: &SortedIdSet) -> Vec<u64> {
    state.iter().collect()
}

proptest! {
    #[test]
    fn the_state_is_the_set_of_ids_in_any_order(
        ids in ids(2000),
        (cuts, picks) in grouping(),
        is_owned in any::<bool>(),
    ) {
        let expect: BTreeSet<u64> = ids.iter().copied().collect();
        let state = of(&ids);
        prop_assert_eq!(state.len(), expect.len());
        prop_assert!(state.iter().eq(expect.iter().copied()));
        for id in ids.iter().take(50).flat_map(|id| [*id, id ^ 1]) {
            prop_assert_eq!(state.contains(id), expect.contains(&id));
        }
        let mut settled = state.clone();
        settled.merge_buffer();
        let mut at_once = SortedIdSet::new();
        let mut in_parts = SortedIdSet::new();
        at_once.add_all(&ids);
        ids.chunks(37).for_each(|part| in_parts.add_all(part));
        let backwards: SortedIdSet = ids.iter().rev().copied().collect();
        let grouped = in_random_groups(
            &ids,
            &cuts,
            &picks,
            SortedIdSet::new,
            |state, id| state.add(*id),
            |state, other| if is_owned { state.merge_owned(other.clone()) } else { state.merge(other) },
        );
        for other in [settled, at_once, in_parts, backwards, grouped, SortedIdSet::decode(&bytes(&state))?] {
            prop_assert_eq!(bytes(&other), bytes(&state));
            prop_assert_eq!(&other, &state);
        }
        let most = expect.len();
        prop_assert!(SortedIdSet::decode_with_max(&bytes(&state), most).is_ok());
        if let Some(fewer) = most.checked_sub(1) {
            let error = SortedIdSet::decode_with_max(&bytes(&state), fewer).unwrap_err();
            prop_assert!(matches!(error, SketchError::TooMany { .. }), "{}", error);
        }
    }

    #[test]
    fn operations_on_two_sets_are_those_of_sets(
        left in prop_oneof![ids(1000), ids(12)],
        right in prop_oneof![ids(1000), ids(12)],
    ) {
        let (a, b): (BTreeSet<u64>, BTreeSet<u64>) =
            (left.iter().copied().collect(), right.iter().copied().collect());
        let (x, y) = (of(&left), of(&right));
        let after = |work: fn(&mut SortedIdSet, &SortedIdSet)| {
            let mut set = x.clone();
            work(&mut set, &y);
            assert!(set.contains(5) == listed(&set).contains(&5));
            listed(&set)
        };
        prop_assert_eq!(after(SortedIdSet::union_with), a.union(&b).copied().collect::<Vec<_>>());
        prop_assert_eq!(after(SortedIdSet::intersect_with), a.intersection(&b).copied().collect::<Vec<_>>());
        prop_assert_eq!(after(SortedIdSet::subtract), a.difference(&b).copied().collect::<Vec<_>>());
        prop_assert_eq!(after(SortedIdSet::symmetric_difference_with), a.symmetric_difference(&b).copied().collect::<Vec<_>>());
        prop_assert_eq!(x.intersection_len(&y), a.intersection(&b).count());
        prop_assert_eq!(y.intersection_len(&x), a.intersection(&b).count());
    }

    #[test]
    fn a_claimed_count_takes_no_memory_that_the_bytes_do_not_bear_out(
        count in any::<u64>(),
        rest in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = vec![0x91];
        let mut left = count;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
        bytes.extend(&rest);
        if let Ok(set) = SortedIdSet::decode(&bytes) {
            prop_assert!(set.heap_bytes() <= 1024 * bytes.len());
        }
    }
}

#[test]
fn many_ids_in_any_order_are_sorted_once_each() {
    let ids: Vec<u64> = (0..300_000).map(|i| hash_i64(i % 200_000) >> (i % 3 * 20)).collect();
    let mut expect = ids.clone();
    expect.sort_unstable();
    expect.dedup();
    let state = of(&ids);
    assert_eq!(listed(&state), expect);
    assert!(state.heap_bytes() <= 12 * expect.len() + 64);
    let mut merged = of(&ids[..200_000]);
    merged.merge(&of(&ids[150_000..]));
    assert_eq!(bytes(&merged), bytes(&state));
}

#[test]
fn consecutive_ids_take_one_byte_per_block() {
    let state: SortedIdSet = (1000..1_000_000).collect();
    let bytes = bytes(&state);
    assert_eq!(bytes.len(), 1 + 3 + 2 + 999_000usize.div_ceil(128));
    assert_eq!(SortedIdSet::decode(&bytes), Ok(state));
}
