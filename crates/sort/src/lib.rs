//! Sorting records of bytes beyond memory, with every disk operation large.
//!
//! Records come from any number of tasks, are held in memory as long as they fit, and are otherwise
//! fanned out into range partitions on disk, each of which is sorted by itself and comes out behind
//! the one before it: four bytes are moved for each byte sorted (read, write, read, write), where a
//! merge sort with one merge moves as many in smaller pieces and one with two moves six. The
//! algorithm is that of Quantcast's sort (Rus et al., 2012), for one machine.
//!
//! | module | what |
//! | --- | --- |
//! | crate root | [`Sorter`]: tasks, blocks, budgets |
//! | [`order`] | in which order records are |
//! | [`key`] | several columns as one key |
//! | [`records`] | the sort benchmark's records, made and checked |
//! | [`model`] | what a cluster would need |
//! | [`ids`] | sets of 64-bit ids |
//! | [`gnu`] | lines, with GNU sort's command line and order |
//!
//! Nothing here knows what a record means, how files are read or who asks.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cancel;
mod checksum;
mod drain;
mod error;
mod feed;
mod frame;
pub mod gnu;
pub mod ids;
pub mod key;
mod limit;
pub mod model;
mod options;
pub mod order;
mod parts;
mod plan;
pub mod records;
mod report;
mod rows;
mod sorter;
mod space;
mod tree;

#[cfg(test)]
mod tests;

pub use cancel::Cancel;
pub use checksum::Checksum;
pub use drain::{Block, Blocks, Layout};
pub use error::{Error, Result};
pub use options::{MEMORY_BYTES_MIN, Options, PARTITIONS_MAX, Sizes};
pub use order::{ByteOrder, HashOrder, KeyBytes, KeyedOrder, Order, RangeOrder, Reverse, U64Order};
pub use plan::{Explained, Plan};
pub use report::Report;
pub use rows::Shape;
pub use sorter::{Sorted, Sorter, Task};
pub use space::DiskCounts;
