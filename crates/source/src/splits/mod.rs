//! Splits: boundaries, blocks of whole records, and the readers that turn them into batches.
//!
//! - `batch_assembly`: assembles the source's batches.
//! - `split`: splits.
//! - `split_boundaries`: boundaries of the splits of cut files.
//! - `split_reader`: reader of a split.
//! - `text_blocks`: cuts a byte stream into blocks of whole records.
//! - `text_stream`: A file's text as a stream of blocks from its first byte.

pub(crate) mod batch_assembly;
pub(crate) mod split;
pub(crate) mod split_boundaries;
pub(crate) mod split_reader;
pub(crate) mod text_blocks;
pub(crate) mod text_stream;
