//! Checks that any bytes that decode as a `FloatSum` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::FloatSum;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = FloatSum::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = FloatSum::default();
    merged.merge(&state);
    merged.add(1.0);
    let _ = merged.value();
});
