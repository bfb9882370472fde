//! Decoders from log text to Arrow columns that read only the requested columns: CSV and TSV, JSON
//! lines, access logs, syslog, logfmt and plain lines.
//!
//! Every format has a decoder. The caller configures it with columns, their types and simple predicates,
//! and then hands it blocks of whole records ([`BlockDecoder`]). The decoder finds the structure of the text
//! with SIMD, skips the unwanted parts without looking into them, and builds Arrow arrays from
//! the rest. It still checks that the skipped parts are intact: their quotes, their nesting, their UTF-8.
//! It reports a malformed record with reason and position, and goes on with the next record.
//!
//! ```text
//!   bytes ── cut ──► blocks of whole records ── format ──► spans ── array builders ──► arrays
//!            │ (splits, pieces from a socket)     │ simd              │ fast and careful parsing
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

/// Options of all decoders.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum number of rows in a batch. Default: 8192. A batch is smaller where a block ends, and in a
    /// decoder of more than 128 columns.
    pub batch_rows: usize,
    /// Conditions on rows. The decoder drops rows that fail before it builds them.
    pub predicates: Vec<Predicate>,
    /// True to read a value that is not of its column's type as NULL; false to reject its record.
    /// The decoder counts such values, but may leave out those in rows that a predicate drops.
    /// Default: false.
    pub mismatch_is_null: bool,
    /// Positions of the columns whose types were inferred from a sample. In delimited text and logfmt their
    /// values must be [`canonical_spelling`], or a value is not of its column's type. In JSON, their numbers
    /// and Booleans must not be strings, a BIGINT takes no `-0`, a DOUBLE takes no integer that it would
    /// round and no number beyond its range, and a time in a column with a zone must state its zone. Other
    /// columns take every spelling. Default: none.
    pub inferred_columns: Vec<usize>,
    /// The keys of all columns of the source, for formats whose records have keys. The decoder counts other
    /// keys. Default: none; the decoder counts nothing.
    pub known_keys: Option<Arc<KnownKeys>>,
    /// True to check the grammar of skipped values too. Default: false.
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

/// Returns whether a decoder can read text as a column of this type, nested types included.
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
