//! Query definitions, and answers that need no run: explanations, metadata, completion.
//!
//! - `completion_words`: SQL keywords and function names, for programs that complete what users type.
//! - `explain_analyze`: `EXPLAIN ANALYZE`: runs a query and returns its plan with measurements.
//! - `explanation`: the description of a plan that `--explain` prints or writes as JSON.
//! - `metadata_statements`: rewrites `DESCRIBE`, `EXPLAIN`, `SUMMARIZE` and `PIVOT` without listed values
//!   into `SELECT` statements.
//! - `query_definition`: `Query`: a query's SQL, sources and settings.
//! - `sql_redaction`: removes passwords and signatures of URLs from SQL.

pub mod completion_words;
pub(crate) mod explain_analyze;
pub(crate) mod explanation;
pub(crate) mod metadata_statements;
pub(crate) mod query_definition;
pub(crate) mod sql_redaction;
