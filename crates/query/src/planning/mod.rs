//! Execution paths, and what a query need not read.
//!
//! - `build_side_extraction`: small join inputs, held in memory beside the stream that is read in splits.
//! - `dictionary_keys`: rewrites a map so that text group keys arrive as dictionary codes.
//! - `execution_path`: splits an optimised plan into map, tables and finish, or chooses the engine path.
//! - `pruning`: leaves out row groups, blocks, text rows and nested fields without use for a query.
//! - `table_sample`: `TABLESAMPLE` by hashes of row locations, the same for any number of threads.
//! - `source_statistics`: estimated row counts and value ranges of a source, for the join planner.
//! - `stand_in_tables`: tables with columns named by position that replace a part of a plan.
//! - `unresolved_tables`: table names that are neither sources nor files, for language bindings.

pub(crate) mod build_side_extraction;
pub(crate) mod dictionary_keys;
pub(crate) mod execution_path;
pub(crate) mod pruning;
pub(crate) mod source_statistics;
pub(crate) mod stand_in_tables;
pub(crate) mod table_sample;
pub(crate) mod unresolved_tables;
