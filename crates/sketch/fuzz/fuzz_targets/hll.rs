//! Checks that any decoded `Hll` is written, in each dialect, as an equal state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::{Hll, HllStorageDialect};

fuzz_target!(|bytes: &[u8]| {
    let Ok(hll) = Hll::from_bytes(bytes) else { return };
    for dialect in [HllStorageDialect::default(), HllStorageDialect::Java] {
        let canonical = hll.to_bytes(dialect);
        let back = Hll::from_bytes(&canonical).expect("canonical bytes are accepted");
        assert_eq!(back.to_bytes(dialect), canonical);
        assert_eq!(back, hll);
        assert_eq!(hll.encoded_len(dialect), canonical.len());
    }
    let mut merged = Hll::default();
    merged.merge(&hll);
    merged.add_hash(1);
    let _ = merged.count();
    let _ = hll.compare(&merged);
    let _ = hll.fold_to_params(4, 1).map(|folded| folded.count());
});
