//! A self-describing file format of typed rows: checksummed, splittable, appendable, and readable with
//! another schema by Avro's rules. It converts to and from Arrow and serde.
//!
//! ```text
//!   batches ── columns ── row_encoder ──► blocks ── codec, file_format ──► file   (writer)
//!   rows ─ serde_rows ─┘       └ row_layout, block_statistics               │
//!   batches ◄── row_decoder ◄── plan (schema_resolution: writer × reader) ◄─┘     (reader)
//! ```
//!
//! The schema is compiled once into a record of bits and slots (`row_layout`), and a pair of schemas into a
//! [`RowDecodePlan`]. Both directions take two passes over a block, first the lengths, then the bytes, column
//! by column. `docs/formats/rowfile.md` documents every byte.
//!
//! The crate does not know queries or threads; it reads from any [`ReadAt`] and
//! writes to any [`std::io::Write`].

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
