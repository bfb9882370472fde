//! Tests of the format's guarantees through the public interface.

mod common;
mod crashes;
mod encoded_rows;
mod faults;
mod old_files;
mod resolution;
mod round_trip;
mod second_reader;
mod typed;
