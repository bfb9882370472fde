//! Reader and writer of Avro object container files, from and to Arrow batches.
//!
//! ```text
//!   file:   Obj 01 ‖ metadata (a map: avro.schema, avro.codec) ‖ sync marker (16) ‖ block*
//!   block:  rows (varint) ‖ bytes (varint) ‖ rows one after another, compressed ‖ sync marker (16)
//!   row:    its columns in the schema's order, without names, lengths or padding
//! ```
//!
//! The reader decodes a row by walking the schema: nothing else tells where a value begins, so it steps over
//! unwanted columns value by value. Wanted values go straight into Arrow's
//! buffers, text into views. The writer writes blocks of about 64 KiB, whose sync marker is a hash of the
//! beginning of the file, so that the same rows give the same bytes.
//!
//! The reader does not trust a file: a length must be covered by existing bytes, items of an array
//! take a byte each or are few, and the reader counts the memory of nulls in place of wide values.
//!
//! The crate knows nothing of queries, files or threads. It reads from an implementation of
//! [`std::io::Read`] that begins at a block, and writes to an implementation of
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
