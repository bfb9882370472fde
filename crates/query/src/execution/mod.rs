//! Operators and loops that run a plan on this machine.
//!
//! - `background_execution`: runs a DataFusion plan on threads of its own, for a synchronous consumer.
//! - `buffered_answers`: produces the answers of a finished table ahead of their consumer, in bounded memory.
//! - `finished_table`: a finished aggregate table as the input of the finish plan.
//! - `map`: filters and computes the rows of each split, mostly without executing a DataFusion plan.
//! - `ordered_rows`: the runner of the row path: a lane per split, emptied in input order.
//! - `partial_table_merge`: merges partial tables of earlier runs and computes the result.
//! - `result_columns`: names and types of the result's columns, as a user would write them.
//! - `results`: an iterator over the batches of a result, with the coverage at its end.
//! - `row_calculation`: evaluates the expressions above a limit only for the rows within the limit.
//! - `scan`: a source as a DataFusion table whose partitions are its splits.
//! - `table_runner`: the runner of the table path: maps splits into tables, passes the gate, merges.

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
