//! Filter programs of the user's, and the files that they need.
//!
//! - `filter_program`: runs a user's program and passes bytes through its standard input and output.
//! - `companion_files`: provides a program with named files in a working folder of its own.

pub mod companion_files;
pub mod filter_program;
