//! The hash partition of a key, at each depth of partitioning.

/// Number of hash bits that select a partition at each depth.
pub(crate) const PARTITION_BITS: u32 = 4;
/// Number of partitions at each depth.
pub(crate) const PARTITION_COUNT: usize = 1 << PARTITION_BITS;

/// Returns the indexes of each partition's groups. The partition is selected by the mixed hash's bits from
/// `first_bit` on, counted from the highest.
pub(crate) fn partition_groups(hashes: &[u64], first_bit: u32) -> Vec<Vec<u32>> {
    let mut partitions = vec![Vec::new(); PARTITION_COUNT];
    for (row, hash) in hashes.iter().enumerate() {
        let partition = (mix_hash(*hash) << first_bit >> (u64::BITS - PARTITION_BITS)) as usize;
        partitions[partition].push(row as u32);
    }
    partitions
}

/// Mixes a hash so that its highest bits can select a partition.
pub(crate) fn mix_hash(hash: u64) -> u64 {
    // The low bits index the hash tables of groups; a multiplication spreads them upwards.
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_a_range_are_spread_over_all_partitions_in_their_order() {
        for bits in [0, 1, 4, 7, 12] {
            let is_of_range = |hash: &u64| bits == 0 || mix_hash(*hash) >> (64 - bits) == 1;
            let hashes: Vec<u64> =
                (0..4_000_000).map(|n: u64| n.wrapping_mul(n + 7)).filter(is_of_range).collect();
            let partitions = partition_groups(&hashes, bits);
            assert!(partitions.iter().all(|rows| !rows.is_empty()), "{bits}");
            let bounds = partitions.iter().map(|rows| {
                let own = || rows.iter().map(|row| mix_hash(hashes[*row as usize]));
                (own().min(), own().max())
            });
            let bounds: Vec<_> = bounds.collect();
            assert!(bounds.windows(2).all(|pair| pair[0].1 < pair[1].0), "{bits}");
        }
    }
}
