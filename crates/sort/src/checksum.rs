//! A checksum of a set of records that no order changes: what went in is what came out.

/// Sums of hashes: equal for the same records in any order. It finds lost, doubled and changed
/// records, and is no defence against somebody who wants to deceive it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checksum {
    /// How many records.
    pub rows: u64,
    /// How many bytes they have, without what ends or announces them.
    pub bytes: u64,
    /// The sum of the records' hashes, modulo 2^64.
    pub sum: u64,
}

impl Checksum {
    /// Takes a record in.
    #[inline]
    pub fn add(&mut self, record: &[u8]) {
        self.rows += 1;
        self.bytes += record.len() as u64;
        self.sum = self.sum.wrapping_add(hash(record));
    }

    /// Takes the records of another checksum in.
    pub fn merge(&mut self, other: &Checksum) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

// Odd, random, and no more to them.
const KEYS: [u64; 3] = [0x9fb2_1c65_1e98_df25, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A 64-bit hash of some bytes: 16 of them at a time through a 64 × 64 bit product, as wyhash.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut state = KEYS[2] ^ (bytes.len() as u64).wrapping_mul(KEYS[0]);
    let (pieces, rest) = bytes.as_chunks::<16>();
    let one = |piece: &[u8; 16], state: u64| {
        let [a, b] = [piece.first_chunk::<8>(), piece.last_chunk::<8>()]
            .map(|half| half.map_or(0, |half| u64::from_le_bytes(*half)));
        fold(a ^ KEYS[0], b ^ KEYS[1] ^ state)
    };
    for piece in pieces {
        state = one(piece, state.rotate_left(29));
    }
    if !rest.is_empty() {
        let mut last = [0u8; 16];
        last[..rest.len()].copy_from_slice(rest);
        state = one(&last, state.rotate_left(29));
    }
    fold(state ^ KEYS[1], KEYS[0])
}

#[cfg(test)]
mod tests {
    use super::{Checksum, hash};
    use std::collections::HashSet;

    #[test]
    fn any_order_has_one_sum_and_any_change_another() {
        let records: Vec<Vec<u8>> =
            (0..2000u32).map(|n| n.to_string().repeat(n as usize % 7).into_bytes()).collect();
        let of = |records: &mut dyn Iterator<Item = &Vec<u8>>| {
            let mut sum = Checksum::default();
            records.for_each(|record| sum.add(record));
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
    fn lengths_and_places_tell() {
        let mut seen = HashSet::new();
        for length in 0..200 {
            let mut bytes = vec![0u8; length];
            assert!(seen.insert(hash(&bytes)));
            for place in 0..length {
                for bit in 0..8 {
                    bytes[place] ^= 1 << bit;
                    assert!(seen.insert(hash(&bytes)));
                    bytes[place] ^= 1 << bit;
                }
            }
        }
    }
}
