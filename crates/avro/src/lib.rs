//! Avro object container files to and from Arrow batches.
//!
//! ```text
//!   file:   Obj 01 ‖ metadata (a map: avro.schema, avro.codec) ‖ sync marker (16) ‖ block*
//!   block:  rows (varint) ‖ bytes (varint) ‖ rows one after another, compressed ‖ sync marker (16)
//!   row:    its columns in the schema's order, without names, lengths or padding
//! ```
//!
//! A row is read by walking the schema: nothing else tells where a value begins, so columns that
//! are not wanted are stepped over value by value. What is wanted goes straight into Arrow's
//! buffers, text into views. Written are blocks of some 64 KiB, whose sync marker is a hash of what
//! the file begins with, so that the same rows are the same bytes.
//!
//! What a file says is not believed: a length is one of bytes that are there, items of an array
//! take a byte each or are few, and nulls that stand for wide values are counted.
//!
//! The crate knows nothing of queries, files or threads. It reads what implements
//! [`std::io::Read`] from a block's beginning on, and writes to what implements
//! [`std::io::Write`].

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
mod container;
mod error;
mod row_decoder;
mod row_encoder;
mod schema;
mod value_cursor;
mod view_builder;
mod writer;

pub use codec::Codec;
pub use container::{Header, Reader, SYNC_BYTES, block_length_from_head};
pub use error::{Error, Result};
pub use schema::{Schema, metadata_keys};
pub use writer::{Writer, check_schema};
