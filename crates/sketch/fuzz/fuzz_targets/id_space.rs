//! Checks that any opened id space answers, and that any decoded one is written as an equal space.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_sketch::{IdSpace, IdSpaceView};

fuzz_target!(|bytes: &[u8]| {
    let Ok(view) = IdSpaceView::open(bytes) else {
        assert!(IdSpace::decode(bytes).is_err());
        return;
    };
    for id in
        (0..view.len().min(1000)).filter_map(|index| view.id_of(index)).chain([0, 1, u64::MAX])
    {
        if let Some(index) = view.index_of(id) {
            assert_eq!(view.id_of(index), Some(id));
        }
    }
    let Ok(space) = IdSpace::decode(bytes) else { return };
    let mut canonical = Vec::new();
    space.encode(&mut canonical);
    assert_eq!(IdSpace::decode(&canonical), Ok(space));
});
