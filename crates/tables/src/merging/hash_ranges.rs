//! Ranges of key hashes, by which groups are distributed so that one worker merges all groups of a range.
//!
//! A range contains the hashes with the same first bits. Results of the ranges, concatenated in order, are
//! therefore in the order of all hashes, as those of a table that was merged as a whole.

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use tidemill_base::error::Result;

use crate::grouping::group_index;
use crate::grouping::hash_partitions::mix_hash;
use crate::value_encoding::compact_views;

/// Maximum number of bits; more would create ranges with hardly any groups.
pub const HASH_RANGE_BITS_MAX: u32 = 12;

/// A division of all hashes into ranges of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHashRanges {
    bits: u32,
}

impl KeyHashRanges {
    /// Creates at least `count` ranges, up to 2^[`HASH_RANGE_BITS_MAX`].
    pub fn with_count_at_least(count: usize) -> KeyHashRanges {
        KeyHashRanges::with_bits(count.max(1).next_power_of_two().trailing_zeros())
    }

    /// Creates the ranges of hashes with the same first `bits` bits.
    pub fn with_bits(bits: u32) -> KeyHashRanges {
        KeyHashRanges { bits: bits.min(HASH_RANGE_BITS_MAX) }
    }

    /// Returns the number of equal bits.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the number of ranges.
    pub fn count(self) -> usize {
        1 << self.bits
    }

    /// Partitions encoded groups, whose first `key_count` columns are the keys, by range. Ranges without
    /// groups are left out.
    ///
    /// # Errors
    /// Returns an error if a key's type cannot be hashed.
    pub fn partition_groups(
        self,
        groups: &RecordBatch,
        key_count: usize,
    ) -> Result<Vec<(usize, RecordBatch)>> {
        let row_count = groups.num_rows();
        let hashes = group_index::hash_keys(&groups.columns()[..key_count], row_count)?;
        let range = |hash: &u64| (mix_hash(*hash) >> 1 >> (63 - self.bits)) as usize;
        let mut rows: Vec<(usize, u32)> = hashes.iter().map(range).zip(0..).collect();
        let is_in_order = rows.is_sorted();
        rows.sort_unstable();
        let mut apart = Vec::new();
        let mut from = 0;
        for of_range in rows.chunk_by(|one, two| one.0 == two.0) {
            let (range, count) = (of_range[0].0, of_range.len());
            let own = match is_in_order {
                true => groups.slice(from, count),
                false => {
                    let rows = of_range.iter().map(|(_, row)| *row);
                    take_record_batch(groups, &UInt32Array::from_iter_values(rows))?
                }
            };
            let columns = own.columns().iter().map(compact_views).collect();
            apart.push((range, RecordBatch::try_new(own.schema(), columns)?));
            from += count;
        }
        Ok(apart)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    #[test]
    fn each_group_is_in_one_range_and_ranges_are_in_the_order_of_hashes() {
        let field = Field::new("key_0", DataType::Int64, false);
        let schema = Arc::new(Schema::new(vec![field]));
        let keys = Int64Array::from_iter_values(0..10_000);
        let groups = RecordBatch::try_new(schema, vec![Arc::new(keys)]).unwrap();
        for bits in [0, 1, 4, 12, 40] {
            let ranges = KeyHashRanges::with_bits(bits);
            let apart = ranges.partition_groups(&groups, 1).unwrap();
            assert!(apart.iter().all(|(range, _)| *range < ranges.count()));
            assert!(apart.windows(2).all(|pair| pair[0].0 < pair[1].0));
            let values = |(_, own): &(usize, RecordBatch)| {
                own.column(0).as_primitive::<Int64Type>().values().to_vec()
            };
            let mut all: Vec<i64> = apart.iter().flat_map(values).collect();
            let hashes = |own: &RecordBatch| {
                let hashes = group_index::hash_keys(own.columns(), own.num_rows()).unwrap();
                let mixed: Vec<u64> = hashes.into_iter().map(mix_hash).collect();
                (*mixed.iter().min().unwrap(), *mixed.iter().max().unwrap())
            };
            let ends: Vec<_> = apart.iter().map(|(_, own)| hashes(own)).collect();
            assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{bits} bits");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..10_000));
        }
        assert_eq!(KeyHashRanges::with_count_at_least(9).count(), 16);
        assert_eq!(KeyHashRanges::with_count_at_least(0).count(), 1);
    }
}
