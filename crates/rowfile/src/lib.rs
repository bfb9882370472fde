//! A file of typed rows whose schema is written once: checksummed, splittable, appendable, read
//! as another schema by Avro's rules, to and from Arrow or serde.
//!
//! ```text
//!   batches ── columns ── encode ──► blocks ── codec, format ──► file          (writer)
//!   rows ─ typed ─┘         └ layout, statistics                   │
//!   batches ◄── decode ◄── plan (resolve: writer × reader) ◄───────┘          (reader)
//! ```
//!
//! The schema is compiled once into a record of bits and slots (`layout`), and a pair of schemas
//! into a [`Plan`]. Both directions take two passes over a block: lengths, then bytes, column by
//! column. `docs/formats/rowfile.md` has every byte.
//!
//! The crate knows nothing of queries or threads; it reads what implements [`ReadAt`] and
//! writes to what implements [`std::io::Write`].

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::cast_possible_truncation
    )
)]

mod block_statistics;
mod codec;
mod columns;
mod encoded_rows;
mod error;
mod file_format;
mod read_at;
mod reader;
mod row_decoder;
mod row_encoder;
mod row_layout;
mod scalar_arrays;
mod schema;
mod schema_resolution;
mod serde_rows;
mod writer;

pub use codec::Codec;
pub use error::{Error, FilePart, LastIntactBlock, Result, SchemaConflict, SchemaConflicts};
pub use read_at::ReadAt;
pub use reader::{BlockInfo, PerBlockStatistics, ReadOptions, Reader, RowfileBatches};
pub use schema::{
    FieldType, NESTING_DEPTH_MAX, Schema, SchemaField, StringLayout, TemporalUnit, metadata_keys,
};
pub use schema_resolution::RowDecodePlan;
pub use serde_rows::TypedRows;
pub use writer::{SalvageReport, WriteOptions, Writer, salvage};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
