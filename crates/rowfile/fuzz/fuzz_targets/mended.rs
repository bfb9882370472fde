//! Reads any bytes as a file with corrected checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_rowfile_fuzz::mended(bytes));
