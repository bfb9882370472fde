//! Reads files with correct checksums and invalid content.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_rowfile_fuzz::forged(bytes));
