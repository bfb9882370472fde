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
mod array_builders;
pub mod block_assembly;
mod block_decoder;
pub mod canonical_spelling;
mod column_decoder;
pub mod csv;
mod csv_dialect;
mod dictionary_builder;
mod fast_value_parsing;
pub mod infer;
mod inline_views;
pub mod json;
pub mod lines;
pub mod log_format;
pub mod logfmt;
mod predicate_filter;
pub mod record_boundaries;
mod separator_scan;
mod simd;
mod sql_types;
pub mod syslog;
mod text_fault;
mod type_mismatches;
mod unknown_keys;
pub mod value_parsing;
mod value_span;

pub use block_decoder::{BlockDecoder, DecodedBlocks};
pub use csv_dialect::CsvDialect;
pub use predicate_filter::{
    ComparisonOperator, ConstantSet, ParsedValue, Predicate, PredicateConstant, ValueCondition,
};
pub use simd::instruction_set;
pub use sql_types::{quote_sql_name, sql_type_name};
pub use text_fault::{RejectedTextRecord, TextFault, TextFaultKind, value_excerpt};
pub use type_mismatches::BlockColumnMismatches;
pub use unknown_keys::{BlockUnknownKey, KnownKeys};

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
    pub inferred_columns: Vec<usize>,
    /// The keys of all columns that the source has, where records have keys: others are counted.
    /// Default: none, and nothing is counted.
    pub known_keys: Option<Arc<KnownKeys>>,
    /// Whether the grammar of values that are not wanted is checked too. Default: false.
    pub checks_skipped_values: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_rows: 8192,
            predicates: Vec::new(),
            mismatch_is_null: false,
            inferred_columns: Vec::new(),
            known_keys: None,
            checks_skipped_values: false,
        }
    }
}

/// Whether text can be read as a column of this type, nested ones included.
#[must_use]
pub fn is_readable_type(data_type: &arrow_schema::DataType) -> bool {
    use arrow_schema::DataType;
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_readable_type(field.data_type())),
        DataType::List(item) => is_readable_type(item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => {
                pair.len() == 2
                    && matches!(pair[0].data_type(), DataType::Utf8 | DataType::Utf8View)
                    && is_readable_type(pair[1].data_type())
            }
            _ => false,
        },
        other => value_parsing::is_supported_type(other),
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
