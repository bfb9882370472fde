//! Splits: boundaries, blocks of whole records, and the readers that turn them into batches.
//!
//! - `batch_assembly`: turns a file's batch into a batch of the source's schema.
//! - `split`: cuts large files into ranges and groups small files, by size alone.
//! - `split_boundaries`: guesses the first record of a split, or finds it by reading the file.
//! - `split_reader`: decodes a split to record batches and collects its rejected records.
//! - `text_blocks`: cuts a byte stream into blocks of whole records.
//! - `text_stream`: opens a file's text as blocks: decompressed, filtered, without byte-order mark.

pub(crate) mod batch_assembly;
pub(crate) mod split;
pub(crate) mod split_boundaries;
pub(crate) mod split_reader;
pub(crate) mod text_blocks;
pub(crate) mod text_stream;
