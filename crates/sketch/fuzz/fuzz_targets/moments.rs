//! Checks that any bytes that decode as `Moments` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::{FOUR_POWER_SUMS, MomentValue, Moments, ONE_COLUMN_SUMS, TWO_COLUMN_SUMS};

fn check<N: MomentValue, const SUMS: usize>(bytes: &[u8], one: N) {
    let Ok(state) = Moments::<N, SUMS>::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = Moments::<N, SUMS>::default();
    merged.merge(&state);
    merged.merge(&state);
    let _ = merged.add(one, one);
    let _ =
        (merged.squared_deviations_x(), merged.squared_deviations_y(), merged.deviation_products());
}

fuzz_target!(|bytes: &[u8]| {
    check::<f64, ONE_COLUMN_SUMS>(bytes, 1.0);
    check::<f64, TWO_COLUMN_SUMS>(bytes, 1.0);
    check::<f64, FOUR_POWER_SUMS>(bytes, 1.0);
    check::<i64, ONE_COLUMN_SUMS>(bytes, 1);
    check::<i64, TWO_COLUMN_SUMS>(bytes, 1);
});
