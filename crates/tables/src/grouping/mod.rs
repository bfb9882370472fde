//! Group keys: indexes from keys to groups, dictionary codes, hash partitions and scattered rows.
//!
//! - `batch_slices`: batch slices, between which the size of a table is checked.
//! - `cache_prefetch`: prefetching into the CPU cache.
//! - `gather_columns`: column buffers from which rows are gathered in another order.
//! - `group_codes`: keys as small integers.
//! - `group_index`: A hash table that maps the keys of rows to group numbers.
//! - `hash_partitions`: the hash partition of a key, at each depth of partitioning.
//! - `scatter`: scattering of rows to their hash partitions, for inputs in which hardly any two rows belong
//!   to one group.

pub mod batch_slices;
pub(crate) mod cache_prefetch;
pub(crate) mod gather_columns;
pub mod group_codes;
pub(crate) mod group_index;
pub(crate) mod hash_partitions;
pub(crate) mod scatter;
