//! Merging of chunks: in memory, with spills, from partial tables on disk, and by hash range.
//!
//! - `chunk_spills`: spill files of chunks and ungrouped rows, as Arrow IPC streams.
//! - `hash_ranges`: ranges of key hashes, each of which one worker merges.
//! - `merge`: merges all chunks into one table, in parallel and beyond memory.
//! - `partial_tables`: reader and writer of partial tables, the files that another run can merge.
//! - `sections`: checksummed sections, the framing of partial tables and of messages about tables.

pub mod chunk_spills;
pub mod hash_ranges;
pub mod merge;
pub mod partial_tables;
pub mod sections;
