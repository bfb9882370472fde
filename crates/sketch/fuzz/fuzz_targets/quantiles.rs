//! Checks that any bytes that decode as `Quantiles` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::Quantiles;

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = Quantiles::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = Quantiles::default();
    merged.merge(&state);
    merged.add(1.0);
    let _ = merged.quantiles(&[0.0, 0.3, 1.0]);
    let _ = merged.quantile_interval(0.7);
    let _ = merged.rank_error(0.7);
    let bars = merged.histogram(10);
    assert!(bars.len() <= 12 && bars.iter().all(|bar| bar.low <= bar.high));
});
