//! The sampling order of splits: random, and spread evenly over positions at any time.
//!
//! Splits near one another are alike: of one file, one hour, one key. A plain shuffle leaves gaps and
//! clusters, which widen the estimate's error. Here each prefix is spread over the positions *at every
//! scale*: among the first 2^j splits of 2^m, each of the 2^j aligned stretches of equal length has exactly
//! one. And the order is random: each split is equally likely to be at a given place, which the intervals of
//! [`crate::SplitSample`] rely on.
//!
//! ```text
//! i        0    1    2    3    4    5    6    7        counted up
//! bits   000  001  010  011  100  101  110  111
//! turned 000  100  010  110  001  101  011  111        the radical inverse: 0 4 2 6 1 5 3 7
//! flips  the highest bit by a coin; the next by one of two coins, as the bits above say; then of four, …
//! ```
//!
//! This is the radical inverse in base 2 (van der Corput 1935) with the nested uniform scramble of Owen (*Randomly
//! permuted (t,m,s)-nets and (t,s)-sequences*, 1995): a random (0,1)-sequence. A coin is a hash of the seed, the level
//! and the bits above, so that nothing is stored.
//!
//! If the count is no power of two, the sequence runs over the next one and skips indices beyond the count.
//! That alone would draw the splits of the truncated part too seldom at first. The whole circle is therefore
//! rotated by a random number of positions, after which each split has each place with the same probability.
//!
//! **The order is a function of the count and the seed for ever**: results name the seed, and runs repeat
//! with it.

use std::iter::FusedIterator;

/// 2^64 divided by the golden ratio: the distance between consecutive numbers before mixing.
const GOLDEN_RATIO_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): a bijection in which each bit depends on all.
pub(crate) const fn mix_bits(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns word `number` of a stream of random words.
pub(crate) const fn random_word(seed: u64, number: u64) -> u64 {
    mix_bits(seed.wrapping_add(GOLDEN_RATIO_STEP.wrapping_mul(number.wrapping_add(1))))
}

/// The indices `0..count` in a random order in which every prefix is spread evenly.
///
/// Equal counts and seeds give equal orders, on any machine and in any later version. Each index costs one
/// hash per binary digit of the count: about 50 ns for thousands of splits.
///
/// ```
/// use tidemill_sampling::SamplingOrder;
///
/// let order: Vec<usize> = SamplingOrder::new(8, 1).collect();
/// // One of the first two is in each half, of the first four in each quarter.
/// assert_ne!(order[0] / 4, order[1] / 4);
/// let mut quarters: Vec<usize> = order[..4].iter().map(|index| index / 2).collect();
/// quarters.sort_unstable();
/// assert_eq!(quarters, [0, 1, 2, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct SamplingOrder {
    count: usize,
    /// Number of binary digits of an index: the least for which 2^digits >= count.
    index_digits: u32,
    /// The random word of each level, which its coins are derived from.
    level_words: [u64; usize::BITS as usize],
    /// Number of positions by which the circle is rotated; 0 if the count is a power of two.
    rotation: usize,
    /// The next number whose radical inverse is tried.
    next_number: u64,
    /// Number of indices not yet returned.
    remaining: usize,
}

impl SamplingOrder {
    /// Creates the order of `count` splits for `seed`.
    pub fn new(count: usize, seed: u64) -> Self {
        let digits = if count < 2 { 0 } else { usize::BITS - (count - 1).leading_zeros() };
        let mut levels = [0; usize::BITS as usize];
        for (level, number) in levels.iter_mut().zip(0..) {
            *level = random_word(seed, number);
        }
        let turn =
            if count.is_power_of_two() { 0 } else { scale_below(random_word(!seed, 0), count) };
        Self {
            count,
            index_digits: digits,
            level_words: levels,
            rotation: turn,
            next_number: 0,
            remaining: count,
        }
    }

    /// Returns the scrambled radical inverse of `number`, below 2^digits.
    fn scramble_index(&self, number: u64) -> usize {
        // The most significant digit becomes the highest bit.
        let inverse = number.reverse_bits();
        let mut flips = 0;
        for (level, word) in (0..self.index_digits).zip(&self.level_words) {
            let above = inverse.checked_shr(u64::BITS - level).unwrap_or(0);
            flips |= (mix_bits(word ^ above) >> 63) << (u64::BITS - 1 - level);
        }
        let index = (inverse ^ flips).checked_shr(u64::BITS - self.index_digits).unwrap_or(0);
        // An index has at most as many digits as a usize.
        usize::try_from(index).unwrap_or(usize::MAX)
    }
}

/// Scales a random word to a number below `count`, with probabilities equal to one in 2^64.
fn scale_below(word: u64, count: usize) -> usize {
    let wide = (u128::from(word) * count as u128) >> 64;
    usize::try_from(wide).unwrap_or(0)
}

impl Iterator for SamplingOrder {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.remaining == 0 {
            return None;
        }
        loop {
            let index = self.scramble_index(self.next_number);
            self.next_number = self.next_number.wrapping_add(1);
            if index < self.count {
                self.remaining -= 1;
                let until_end = self.count - self.rotation;
                return Some(if index < until_end {
                    index + self.rotation
                } else {
                    index - until_end
                });
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for SamplingOrder {}
impl FusedIterator for SamplingOrder {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_a_permutation(count in 0..3000_usize, seed: u64) {
            let mut order: Vec<usize> = SamplingOrder::new(count, seed).collect();
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn each_aligned_interval_has_one_index_of_a_power_of_two_prefix(digits in 0..11_u32, seed: u64) {
            let order: Vec<usize> = SamplingOrder::new(1 << digits, seed).collect();
            for level in 0..=digits {
                let mut met = vec![false; 1 << level];
                for index in &order[..1 << level] {
                    let interval = index >> (digits - level);
                    prop_assert!(!std::mem::replace(&mut met[interval], true));
                }
            }
        }

        /// Holds also if the count is no power of two: no stretch has far more or fewer than its share.
        #[test]
        fn prefixes_are_spread_evenly(
            count in 65..3000_usize, seed: u64, share in 0.05..1.0, from in 0.0..1.0, part in 0.0..1.0,
        ) {
            let read = (share * count as f64) as usize;
            let start = (from * count as f64) as usize;
            let end = start + (part * (count - start) as f64) as usize;
            let inside =
                SamplingOrder::new(count, seed).take(read).filter(|i| (start..end).contains(i)).count();
            let due = read as f64 * (end - start) as f64 / count as f64;
            prop_assert!((inside as f64 - due).abs() < 14.0, "{inside} where {due} are due");
        }

        #[test]
        fn remaining_length_is_known(count in 0..200_usize, taken in 0..200_usize) {
            let mut order = SamplingOrder::new(count, 3);
            let taken = order.by_ref().take(taken).count();
            prop_assert_eq!(order.len(), count - taken);
        }
    }

    /// Results name a seed and runs repeat with it, so this order must never change.
    #[test]
    fn the_order_of_a_seed_is_pinned() {
        let order = |count, seed| SamplingOrder::new(count, seed).collect::<Vec<_>>();
        assert_eq!(order(16, 42), [9, 1, 12, 7, 11, 2, 15, 5, 8, 0, 13, 6, 10, 3, 14, 4]);
        assert_eq!(order(13, 42), [9, 1, 12, 7, 11, 2, 5, 8, 0, 6, 10, 3, 4]);
        assert_eq!(order(1, 42), [0]);
        assert_eq!(order(0, 42), [0_usize; 0]);
        assert_eq!(
            SamplingOrder::new(1_000_000, 7).take(8).collect::<Vec<_>>(),
            [666_874, 463_515, 821_176, 121_489, 634_384, 340_151, 949_873, 309_770]
        );
    }

    /// Tests by chi-square over fixed seeds that each split has each place equally often.
    #[test]
    fn each_split_has_each_place_equally_often() {
        for count in [2, 3, 5, 8, 9, 11, 16, 17] {
            let runs = 4_000_u64;
            let mut times = vec![0_u32; count * count];
            for seed in 0..runs {
                for (place, index) in SamplingOrder::new(count, random_word(1, seed)).enumerate() {
                    times[index * count + place] += 1;
                }
            }
            let due = runs as f64 / count as f64;
            for index in 0..count {
                let chi_square: f64 = times[index * count..][..count]
                    .iter()
                    .map(|&times| (f64::from(times) - due).powi(2) / due)
                    .sum();
                // Five standard deviations above the mean; the largest quantile observed is below one in
                // 10,000.
                let limit = (count - 1) as f64 + 5.0 * (2.0 * (count - 1) as f64).sqrt() + 6.0;
                assert!(chi_square < limit, "{index} of {count}: {chi_square} of {limit}");
            }
        }
    }
}
