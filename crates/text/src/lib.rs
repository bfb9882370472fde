//! Log text to Arrow columns, reading only what is asked for: CSV and TSV, JSON lines, access
//! logs, syslog, logfmt and plain lines.
//!
//! Every format has a decoder, which is told the columns, their types and simple predicates,
//! and is then handed blocks of whole records ([`Decode`]). It finds the structure of the text
//! with SIMD, skips what is not wanted without looking into it, and builds Arrow arrays from
//! the rest. What is skipped is still known to be whole: its quotes, its nesting, its UTF-8.
//! A record that is not is reported with the reason and its place, and decoding goes on with the next.
//!
//! ```text
//!   bytes ── cut ──► blocks of whole records ── format ──► spans ── leaf ──► arrays
//!            │ (splits, pieces from a socket)     │ simd              │ fast, values
//! ```
//!
//! The crate does no input or output and knows nothing of files, queries or threads.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::cast_possible_truncation
    )
)]

use std::sync::Arc;

pub mod access_log;
pub mod canonical;
mod column;
pub mod csv;
pub mod cut;
mod decoder;
mod describe;
mod dialect;
mod dictionary;
mod fast;
mod fault;
pub mod feed;
mod filter;
pub mod infer;
pub mod json;
mod keys;
mod leaf;
pub mod lines;
pub mod log_format;
pub mod logfmt;
mod mismatches;
mod separators;
mod simd;
mod span;
pub mod syslog;
pub mod values;
mod view;

pub use decoder::{Decode, Decoded};
pub use describe::{sql_name, sql_type};
pub use dialect::Dialect;
pub use fault::{Bad, Fault, FaultKind, shown};
pub use filter::{Among, Comparison, Constant, Predicate, Test, Tested};
pub use keys::{KnownKeys, UnknownKey};
pub use mismatches::ColumnMismatches;
pub use simd::instruction_set;

/// How to decode, whatever the format.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows of a batch at most. Default: 8192. A batch is smaller where a block ends, and where there are more than 128
    /// columns.
    pub batch_rows: usize,
    /// What rows must satisfy; those that do not are dropped before they are built.
    pub predicates: Vec<Predicate>,
    /// Whether a value that is not of its column's type is read as null, rather than having
    /// its record refused. Such values are counted; those in rows that a predicate drops may be left out.
    /// Default: false.
    pub mismatch_is_null: bool,
    /// Positions of the columns whose types a sample showed. In delimited text and logfmt their
    /// values must be [`canonical`], or a value is not of its column's type; in JSON, their numbers and
    /// Booleans must not be strings, a BIGINT takes no `-0`, a DOUBLE no integer that it would round and no
    /// number beyond its range, and a time of a zone must state its zone. Of other columns every spelling is read.
    /// Default: none.
    pub inferred: Vec<usize>,
    /// The keys of all columns that the source has, where records have keys: others are counted.
    /// Default: none, and nothing is counted.
    pub known: Option<Arc<KnownKeys>>,
    /// Whether the grammar of values that are not wanted is checked too. Default: false.
    pub strict: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_rows: 8192,
            predicates: Vec::new(),
            mismatch_is_null: false,
            inferred: Vec::new(),
            known: None,
            strict: false,
        }
    }
}

/// Whether text can be read as a column of this type, nested ones included.
#[must_use]
pub fn is_readable(data_type: &arrow_schema::DataType) -> bool {
    use arrow_schema::DataType;
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_readable(field.data_type())),
        DataType::List(item) => is_readable(item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => {
                pair.len() == 2
                    && matches!(pair[0].data_type(), DataType::Utf8 | DataType::Utf8View)
                    && is_readable(pair[1].data_type())
            }
            _ => false,
        },
        other => values::is_supported(other),
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
