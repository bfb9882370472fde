//! Reads any bytes as a file: an error or rows, and no more memory than they justify.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_rowfile_fuzz::file(bytes));
