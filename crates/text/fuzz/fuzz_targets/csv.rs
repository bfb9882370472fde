//! CSV is read as `csv-core` reads it, whatever the cuts into blocks.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::csv(bytes));
