//! Reads any bytes as encoded rows.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_rowfile_fuzz::rows(bytes));
