//! Checks that any bytes that decode as a `SortedIdSet` are canonical, and that the set takes part in
//! operations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::SortedIdSet;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = SortedIdSet::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    assert!(SortedIdSet::decode_with_max(bytes, state.len()).is_ok());
    let low: SortedIdSet = (0..300).rev().collect();
    let both = state.intersection_len(&low);
    let after = |work: fn(&mut SortedIdSet, &SortedIdSet)| {
        let mut set = state.clone();
        work(&mut set, &low);
        set.len()
    };
    assert_eq!(after(SortedIdSet::union_with), state.len() + 300 - both);
    assert_eq!(after(SortedIdSet::intersect_with), both);
    assert_eq!(after(SortedIdSet::subtract), state.len() - both);
    assert_eq!(after(SortedIdSet::symmetric_difference_with), state.len() + 300 - 2 * both);
});
