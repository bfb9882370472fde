//! The decoded system log does not depend on the cuts into blocks, framed by lines or by octets.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::syslog(bytes));
