//! Execution paths, and what a query need not read.
//!
//! - `build_sides`: build sides.
//! - `dictionary_keys`: text group keys as dictionary codes.
//! - `execution_path`: the choice of a query's execution path.
//! - `pruning`: pruning.
//! - `row_sampling`: samples of a source's rows.
//! - `source_statistics`: source statistics for the join planner.
//! - `stand_in_tables`: stand-in tables.
//! - `unresolved_tables`: unresolved tables of a query.

pub(crate) mod build_sides;
pub(crate) mod dictionary_keys;
pub(crate) mod execution_path;
pub(crate) mod pruning;
pub(crate) mod row_sampling;
pub(crate) mod source_statistics;
pub(crate) mod stand_in_tables;
pub(crate) mod unresolved_tables;
