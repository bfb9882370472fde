//! Tables for terminals, and estimates with their bounds as one column.
//!
//! - `estimate_display`: shows estimates to people.
//! - `terminal_table`: the layout of a result as a table on a terminal of a given width.

pub(crate) mod estimate_display;
pub mod terminal_table;
