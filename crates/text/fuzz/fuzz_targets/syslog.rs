//! A system log is the same however it is cut into blocks, framed by lines or by octets.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_text_fuzz::syslog(bytes));
