//! Checks that any decoded id set is written as an equal set, and takes part in operations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::IdSet;

fuzz_target!(|bytes: &[u8]| {
    let Ok(set) = IdSet::decode(bytes) else { return };
    let mut canonical = Vec::new();
    set.encode(&mut canonical);
    let back = IdSet::decode(&canonical).expect("canonical bytes are accepted");
    assert_eq!(back.len(), set.len());
    assert!(set.heap_bytes() <= 4 * bytes.len() + 64);
    let low: IdSet = (0..5000).collect();
    let both = &set & &low;
    assert_eq!(both.len(), set.intersection_len(&low));
    assert_eq!((&set | &low).len(), set.union_len(&low));
    assert_eq!((&set - &low).len(), set.len() - both.len());
    assert!(both.iter().all(|index| set.contains(index) && index < 5000));
});
