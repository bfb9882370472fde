//! Query definitions, and answers that need no run: explanations, metadata, completion.
//!
//! - `completion_words`: SQL keywords and function names, for programs that complete what users type.
//! - `explain_analyze`: `EXPLAIN ANALYZE`.
//! - `explanation`: the description of a query plan that `--explain` prints and the JSON form serializes.
//! - `metadata_statements`: rewrites `DESCRIBE`, `EXPLAIN`, `SUMMARIZE` and `PIVOT` without listed values
//!   into plain `SELECT` statements.
//! - `query_definition`: the definition of a query.
//! - `sql_redaction`: removes passwords and signatures of URLs from SQL.

pub mod completion_words;
pub(crate) mod explain_analyze;
pub(crate) mod explanation;
pub(crate) mod metadata_statements;
pub(crate) mod query_definition;
pub(crate) mod sql_redaction;
