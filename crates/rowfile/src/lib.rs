//! A file of typed rows whose schema is written once.
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
