//! Checks that any bytes that decode as a `DistinctSample` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::{DistinctSample, SampleWeight, hash_bytes};

fn check<W: SampleWeight>(bytes: &[u8], one: W) {
    let Ok(state) = DistinctSample::<W>::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = DistinctSample::<W>::default();
    merged.add(hash_bytes(b"item", 0), b"item", one);
    merged.merge(&state);
    let _ = (merged.entries().len(), merged.distinct_estimate());
    let mut other_way = state;
    other_way.add(hash_bytes(b"item", 0), b"item", one);
    other_way.merge_owned(DistinctSample::default());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    merged.encode(&mut a);
    other_way.encode(&mut b);
    assert_eq!(a, b);
}

fuzz_target!(|bytes: &[u8]| {
    check::<i128>(bytes, 1);
    check::<f64>(bytes, 1.0);
});
