//! A block assembler emits every byte once, in whole records, whatever the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::feed(bytes));
