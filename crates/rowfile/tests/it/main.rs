//! The format held to what it promises, as its users see it.

mod common;
mod crashes;
mod encoded_rows;
mod faults;
mod old_files;
mod resolution;
mod round_trip;
mod second_reader;
mod typed;
