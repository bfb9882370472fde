//! Checks that any bytes that decode as a `TopK` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::TopK;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = TopK::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = TopK::default();
    merged.merge(&state);
    merged.add(b"item", 1);
    let _ = merged.top_items(10);
});
