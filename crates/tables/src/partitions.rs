//! Which partition a key's hash is of, at each depth of partitioning.

/// Of how many bits of a hash a partition is, at each depth.
pub(crate) const PARTITION_BITS: u32 = 4;
/// How many there are.
pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

/// The groups of each partition, at a depth of repartitioning.
pub(crate) fn partition_groups(hashes: &[u64], depth: u32) -> Vec<Vec<u32>> {
    let mut partitions = vec![Vec::new(); PARTITIONS];
    let shift = 64 - PARTITION_BITS * (depth + 1);
    for (row, hash) in hashes.iter().enumerate() {
        let partition = (mixed(*hash) >> shift) as usize & (PARTITIONS - 1);
        partitions[partition].push(row as u32);
    }
    partitions
}

/// A hash of which the highest bits are the first partition's.
pub(crate) fn mixed(hash: u64) -> u64 {
    // The low bits serve the hash tables inside; a multiplication spreads them upwards.
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
