//! Tables for terminals, and estimates with their bounds as one column.
//!
//! - `estimate_display`: shows an estimate and its bounds as one column: `12,300 ± 210`.
//! - `terminal_table`: lays out a result as a table for a terminal of a given width.

pub(crate) mod estimate_display;
pub mod terminal_table;
