//! Operators and loops that run a plan on this machine.
//!
//! - `background_execution`: runs a DataFusion plan on threads of its own, which send batches to a
//!   synchronous consumer.
//! - `buffered_answers`: answers of a finished table, produced ahead of their consumer.
//! - `finished_table`: A finished aggregate table as the input of the plan above the aggregation.
//! - `map`: the map of a query.
//! - `ordered_rows`: the runner of the row path.
//! - `partial_table_merge`: the merge of partial tables that earlier runs have written, and the result of
//!   the merged table.
//! - `result_columns`: names and types of the result's columns, as a user would write them.
//! - `results`: the result of a query.
//! - `row_calculation`: evaluates the expressions above a limit, for the rows that the limit lets through.
//! - `scan`: A source as a table that DataFusion can plan over, and its splits as partitions.
//! - `table_runner`: the runner of the table path.

pub(crate) mod background_execution;
pub(crate) mod buffered_answers;
pub(crate) mod finished_table;
pub(crate) mod map;
pub(crate) mod ordered_rows;
pub(crate) mod partial_table_merge;
pub(crate) mod result_columns;
pub(crate) mod results;
pub(crate) mod row_calculation;
pub(crate) mod scan;
pub(crate) mod table_runner;
