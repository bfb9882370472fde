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
