//! Checks that any bytes that decode as a `SortedIdSet` are canonical, and that the set takes part in
//! operations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::Ids;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = Ids::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    assert!(Ids::decode_within(bytes, state.len()).is_ok());
    let low: Ids = (0..300).rev().collect();
    let both = state.intersection_len(&low);
    let after = |work: fn(&mut Ids, &Ids)| {
        let mut set = state.clone();
        work(&mut set, &low);
        set.len()
    };
    assert_eq!(after(Ids::union_with), state.len() + 300 - both);
    assert_eq!(after(Ids::intersect_with), both);
    assert_eq!(after(Ids::subtract), state.len() - both);
    assert_eq!(after(Ids::toggle), state.len() + 300 - 2 * both);
});
