//! The text of SQL: parsing, translation from other databases, parameters, column names and messages.
//!
//! - `statement`: parses SQL text into one statement. `syntax`: refuses each clause that is not supported.
//! - `translation`: rewrites functions, operators and clauses of other databases into Tidemill's SQL.
//! - `parameters`: substitutes parameter values. `copy_statement`: parses `COPY (SELECT …) TO 'file'`.
//! - `column_names`, `using_columns`: respell columns as the source has them, and resolve columns of USING.
//! - `decimal_literals`: exact values of numbers that are written in SQL.
//! - `type_planners`, `map_types`: the types that SQL and schemas name.
//! - `error_translation`, `parse_hints`, `unknown_functions`: DataFusion's errors in Tidemill's words, with hints.
//! - `marker_functions`: names of internal functions that the translation writes and that sessions register.
//!
//! The crate produces syntax trees and messages. It knows no rule, no operator and no session of Tidemill.

pub mod column_names;
pub mod copy_statement;
pub mod decimal_literals;
pub mod error_translation;
mod map_types;
pub mod marker_functions;
pub mod parameters;
mod parse_hints;
pub mod statement;
pub mod syntax;
pub mod translation;
pub mod type_planners;
pub mod unknown_functions;
pub mod using_columns;
