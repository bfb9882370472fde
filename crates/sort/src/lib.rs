//! Sorting records of bytes beyond memory, with every disk operation large.
//!
//! Any number of tasks push records, which stay in memory as long as they fit. Otherwise the sort distributes
//! them to range partitions on disk, sorts each partition by itself, and returns the partitions in order. It
//! moves four bytes for each byte sorted (read, write, read, write). A merge sort with one merge moves as
//! many in smaller pieces, and one with two merges moves six. The algorithm is that of Quantcast's sort (Rus
//! et al., 2012), for one machine.
//!
//! | module | contents |
//! | --- | --- |
//! | crate root | [`Sorter`]: tasks, blocks, budgets |
//! | [`record_order`] | orders of records |
//! | [`key_encoder`] | several columns as one key |
//! | [`benchmark_records`] | generator and validator for the sort benchmark's records |
//! | [`cluster_cost_model`] | cost of a sort on a cluster |
//! | [`id_sets`] | sets of 64-bit ids |
//! | [`gnu`] | lines, with GNU sort's command line and order |
//!
//! This crate does not know what a record means, how files are read or who asks.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod benchmark_records;
mod block_feed;
mod cancel_flag;
mod checksum;
pub mod cluster_cost_model;
mod cut_points;
mod error;
pub mod gnu;
pub mod id_sets;
pub mod key_encoder;
mod limit_cutoff;
mod loser_tree;
mod options;
mod record_blocks;
pub mod record_order;
mod report;
mod sort_plan;
mod sorted_blocks;
mod sorter;
mod spill_frame;
mod spill_storage;

#[cfg(test)]
mod tests;

pub use cancel_flag::SortCancelFlag;
pub use checksum::RecordChecksum;
pub use error::{Error, Result};
pub use options::{MEMORY_BYTES_MIN, Options, PARTITIONS_MAX, SortBudget};
pub use record_blocks::RecordShape;
pub use record_order::{
    ByteOrder, ByteRangeOrder, EncodedKeyOrder, HashOrder, KeyBytesOrder, RecordOrder,
    ReverseOrder, U64Order,
};
pub use report::SortReport;
pub use sort_plan::{SortExplanation, SortPlan};
pub use sorted_blocks::{OutputFraming, SortedBlock, SortedBlocks};
pub use sorter::{SortTask, SortedRecords, Sorter};
pub use spill_storage::DiskCounts;
