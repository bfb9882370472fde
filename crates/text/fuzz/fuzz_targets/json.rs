//! JSON lines are accepted where `serde_json` accepts them, whatever the cuts, if skipped values are checked.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::json(bytes));
