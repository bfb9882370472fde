//! JSON lines are accepted strictly where `serde_json` accepts them, however they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::json(bytes));
