//! Checks that any bytes that decode as a `DistinctValues` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::DistinctValues;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = DistinctValues::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = DistinctValues::default();
    merged.add(b"item");
    merged.merge(&state);
    let mut other_way = state;
    other_way.add(b"item");
    other_way.merge_owned(DistinctValues::default());
    assert_eq!(merged, other_way);
});
