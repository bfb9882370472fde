//! Group keys: indexes from keys to groups, dictionary codes, hash partitions and scattered rows.
//!
//! - `batch_slices`: cuts a batch so that the size of a table is checked often enough.
//! - `cache_prefetch`: CPU instructions that prefetch memory into the cache.
//! - `gather_columns`: reused column buffers from which rows are gathered in another order.
//! - `coded_keys`: finds groups by combinations of small integer keys, without hashing.
//! - `group_index`: a hash table that maps the keys of rows to group numbers.
//! - `hash_partitions`: selects the hash partition of a key, at each depth of partitioning.
//! - `scatter`: sends rows to hash partitions ungrouped, while hardly any share a group.

pub mod batch_slices;
pub(crate) mod cache_prefetch;
pub mod coded_keys;
pub(crate) mod gather_columns;
pub(crate) mod group_index;
pub(crate) mod hash_partitions;
pub(crate) mod scatter;
