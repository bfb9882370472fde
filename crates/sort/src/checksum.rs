//! A checksum of a set of records that does not depend on their order, to compare input and output.

/// Sums of hashes: equal for the same records in any order. It detects lost, duplicated and changed
/// records, and is no defence against deliberate manipulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordChecksum {
    /// Number of records.
    pub rows: u64,
    /// Bytes of the records, without terminators and length prefixes.
    pub bytes: u64,
    /// The sum of the records' hashes, modulo 2^64.
    pub hash_sum: u64,
}

impl RecordChecksum {
    /// Adds a record.
    #[inline]
    pub fn add_record(&mut self, record: &[u8]) {
        self.rows += 1;
        self.bytes += record.len() as u64;
        self.hash_sum = self.hash_sum.wrapping_add(hash_bytes(record));
    }

    /// Adds the records of another checksum.
    pub fn merge(&mut self, other: &RecordChecksum) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.hash_sum = self.hash_sum.wrapping_add(other.hash_sum);
    }
}

// Odd random numbers without further meaning.
const HASH_KEYS: [u64; 3] = [0x9fb2_1c65_1e98_df25, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

#[inline]
fn fold_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Returns a 64-bit hash of bytes: 16 of them at a time through a 64 × 64 bit product, as wyhash.
#[inline]
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = HASH_KEYS[2] ^ (bytes.len() as u64).wrapping_mul(HASH_KEYS[0]);
    let (pieces, rest) = bytes.as_chunks::<16>();
    let one = |piece: &[u8; 16], state: u64| {
        let [a, b] = [piece.first_chunk::<8>(), piece.last_chunk::<8>()]
            .map(|half| half.map_or(0, |half| u64::from_le_bytes(*half)));
        fold_product(a ^ HASH_KEYS[0], b ^ HASH_KEYS[1] ^ state)
    };
    for piece in pieces {
        state = one(piece, state.rotate_left(29));
    }
    if !rest.is_empty() {
        let mut last = [0u8; 16];
        last[..rest.len()].copy_from_slice(rest);
        state = one(&last, state.rotate_left(29));
    }
    fold_product(state ^ HASH_KEYS[1], HASH_KEYS[0])
}

#[cfg(test)]
mod tests {
    use super::{RecordChecksum, hash_bytes};
    use std::collections::HashSet;

    #[test]
    fn checksum_ignores_order_and_detects_any_change() {
        let records: Vec<Vec<u8>> =
            (0..2000u32).map(|n| n.to_string().repeat(n as usize % 7).into_bytes()).collect();
        let of = |records: &mut dyn Iterator<Item = &Vec<u8>>| {
            let mut sum = RecordChecksum::default();
            records.for_each(|record| sum.add_record(record));
            sum
        };
        let sum = of(&mut records.iter());
        assert_eq!(of(&mut records.iter().rev()), sum);
        for lost in (0..2000).step_by(97) {
            assert_ne!(of(&mut records.iter().take(lost).chain(&records[lost + 1..])), sum);
        }
        let mut parts = of(&mut records[..700].iter());
        parts.merge(&of(&mut records[700..].iter()));
        assert_eq!(parts, sum);
    }

    #[test]
    fn hash_depends_on_length_and_position() {
        let mut seen = HashSet::new();
        for length in 0..200 {
            let mut bytes = vec![0u8; length];
            assert!(seen.insert(hash_bytes(&bytes)));
            for place in 0..length {
                for bit in 0..8 {
                    bytes[place] ^= 1 << bit;
                    assert!(seen.insert(hash_bytes(&bytes)));
                    bytes[place] ^= 1 << bit;
                }
            }
        }
    }
}
