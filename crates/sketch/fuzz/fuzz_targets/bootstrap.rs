//! Checks that any bytes that decode as a `BootstrapSum` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::BootstrapSum;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = BootstrapSum::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = BootstrapSum::default();
    merged.add(1, 0, 1.0);
    merged.merge(&state);
    let _ = (merged.sum(), merged.confidence_interval(0.9), merged.standard_error());
    let mut other_way = state;
    other_way.add(1, 0, 1.0);
    other_way.merge_owned(BootstrapSum::default());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    merged.encode(&mut a);
    other_way.encode(&mut b);
    assert_eq!(a, b);
});
