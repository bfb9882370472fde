//! Merging of chunks: in memory, with spills, from partial tables on disk, and by hash range.
//!
//! - `chunk_spills`: spill files of chunks and rows, for tables that are larger than memory.
//! - `hash_ranges`: ranges of key hashes, by which groups are distributed so that one worker merges all
//!   groups of a range.
//! - `merge`: the merge of all chunks into one table, in parallel and beyond memory.
//! - `partial_tables`: partial tables on disk.
//! - `sections`: checksummed sections, the framing of partial tables and of messages about tables.

pub mod chunk_spills;
pub mod hash_ranges;
pub mod merge;
pub mod partial_tables;
pub mod sections;
