//! Filter programs of the user's, and the files that they need.
//!
//! - `filter_program`: filter programs.
//! - `program_files`: files that filter programs find by name in their working folder.

pub mod filter_program;
pub mod program_files;
