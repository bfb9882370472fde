//! Checks that any bytes that decode as `Moments` are canonical.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::{FOUR_POWERS, Moments, Number, ONE_COLUMN, TWO_COLUMNS};

fn check<N: Number, const SUMS: usize>(bytes: &[u8], one: N) {
    let Ok(state) = Moments::<N, SUMS>::decode(bytes) else { return };
    let mut canonical = Vec::new();
    state.encode(&mut canonical);
    assert_eq!(canonical, bytes);
    let mut merged = Moments::<N, SUMS>::default();
    merged.merge(&state);
    merged.merge(&state);
    let _ = merged.add(one, one);
    let _ = (merged.squares_x(), merged.squares_y(), merged.products());
}

fuzz_target!(|bytes: &[u8]| {
    check::<f64, ONE_COLUMN>(bytes, 1.0);
    check::<f64, TWO_COLUMNS>(bytes, 1.0);
    check::<f64, FOUR_POWERS>(bytes, 1.0);
    check::<i64, ONE_COLUMN>(bytes, 1);
    check::<i64, TWO_COLUMNS>(bytes, 1);
});
