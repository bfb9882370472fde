//! The decoded access log does not depend on the cuts into blocks.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::access_log(bytes));
