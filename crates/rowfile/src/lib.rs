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

mod codec;
mod columns;
mod decode;
mod encode;
mod error;
mod format;
mod layout;
mod reader;
mod resolve;
mod rows;
mod schema;
mod source;
mod statistics;
mod typed;
mod values;
mod writer;

pub use codec::Codec;
pub use error::{Conflict, Conflicts, Error, LastBlock, Part, Result};
pub use reader::{Batches, BlockInfo, ColumnStatistics, ReadOptions, Reader};
pub use resolve::Plan;
pub use schema::{DEPTH_MAX, Field, Schema, Strings, Type, Unit, keys};
pub use source::ReadAt;
pub use typed::TypedRows;
pub use writer::{Salvaged, WriteOptions, Writer, salvage};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
