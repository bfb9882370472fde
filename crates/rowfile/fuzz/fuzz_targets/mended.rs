//! Any bytes as a file whose checksums are put right.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_rowfile_fuzz::mended(bytes));
