//! All m registers in exactly the bits they need, as bit planes.
//!
//! One byte per register would be simple, but takes a third more memory than FULL's bytes at the usual
//! width of 6. Registers packed bit by bit, as in FULL, must be unpacked
//! before two states can be compared. So they are stored in *planes*: one word holds the same bit of 64
//! registers, and one operation processes that bit of 64 registers, or of 256 with vectors.
//!
//! ```text
//! register i    tile i / 256, bit i mod 256 of each plane   (m < 256: one tile of m bits a plane)
//! a tile        regwidth planes, from the lowest bit of the registers to the highest
//! a plane       four words of 64 bits: bit i mod 64 of word i / 64 mod 4
//!
//! regwidth 5    plane 0   │ bit 0 of registers 0 … 63 │ 64 … 127 │ 128 … 191 │ 192 … 255 │
//!               plane 1   │ bit 1 of the same         │          │           │           │
//!               …         to plane 4, then the next tile
//! ```
//!
//! To find the larger of two registers, the planes are compared upward: where they differ, the register whose
//! bit is set is the larger so far. That takes six operations a plane, and no register is ever unpacked. A
//! merge took 54 ns at log2m 11 and regwidth 5, and 290 ns at 14 and 6; a copy of as many bytes took 16 and
//! 140 ns (`cargo run --release --example speed -- hll`, on a machine with other load). Lanes of bytes, with
//! registers shifted out and in, took 160 and 1,130 ns. Reading one register takes a load from each plane.
//! But once every register is filled, most values are rejected without any load: they are at most as high as
//! the lowest register.
//!
//! The layout is BitWeaving's vertical one (Li and Patel, *BitWeaving: Fast Scans for Main Memory
//! Data Processing*, 2013).
//!
//! Beside the registers stands the number of registers that hold each value, which is all that an estimate
//! needs. Adding keeps these counts up to date. A merge drops them, since counting costs more than the merge
//! itself, and the next estimate counts again.

use std::sync::OnceLock;

use fearless_simd::prelude::{Select, Simd, SimdBase, SimdMask};
use fearless_simd::{Level, dispatch, mask8x32, u8x32, u64x4};

use super::HllParams;

/// Number of words in one plane of a tile, if there are enough registers.
const PLANE_WORDS: usize = 4;
const PLANE_WORDS_LOG2: u32 = PLANE_WORDS.trailing_zeros();

/// Base-2 logarithm of the number of registers in a tile.
const TILE_REGISTERS_LOG2: u8 = 8;

/// Number of hashes that are processed together.
const HASH_CHUNK_LEN: usize = 64;

/// One plane of a tile.
type Plane = [u64; PLANE_WORDS];

/// The registers of one state, all of them at most `2^regwidth − 1`.
#[derive(Debug, Clone)]
pub(super) struct DenseRegisters {
    /// The planes of the first tile, then those of the next. If m is below 64, bits from m on are 0.
    plane_words: Box<[u64]>,
    /// Number of registers that hold each value, 2^regwidth counts; unset after a merge.
    value_counts: OnceLock<Box<[u32]>>,
    /// Lower bound of all registers; it may be too low.
    register_floor: u8,
    log2m: u8,
    regwidth: u8,
}

impl PartialEq for DenseRegisters {
    fn eq(&self, other: &Self) -> bool {
        (self.log2m, self.regwidth) == (other.log2m, other.regwidth)
            && self.plane_words == other.plane_words
    }
}

impl Eq for DenseRegisters {}

/// Evaluates `$body` with `$width` as a constant, so that loops over planes are unrolled.
macro_rules! with_width {
    ($regwidth:expr, $width:ident => $body:expr) => {{
        macro_rules! of {
            ($value:literal) => {{
                const $width: usize = $value;
                $body
            }};
        }
        match $regwidth {
            1 => of!(1),
            2 => of!(2),
            3 => of!(3),
            4 => of!(4),
            5 => of!(5),
            6 => of!(6),
            7 => of!(7),
            _ => of!(8),
        }
    }};
}

impl DenseRegisters {
    /// Creates registers that are all 0.
    pub(super) fn new(params: HllParams) -> Self {
        let registers = DenseRegisters::without_counts(params);
        let mut counts = vec![0; 1 << params.regwidth].into_boxed_slice();
        counts[0] = 1 << params.log2m;
        let _ = registers.value_counts.set(counts);
        registers
    }

    fn without_counts(params: HllParams) -> Self {
        let words_per_plane = params.register_count().div_ceil(64);
        DenseRegisters {
            plane_words: vec![0; words_per_plane * usize::from(params.regwidth)].into_boxed_slice(),
            value_counts: OnceLock::new(),
            register_floor: 0,
            log2m: params.log2m,
            regwidth: params.regwidth,
        }
    }

    /// Includes the counts even if they are unset, because an estimate sets them behind `&self`.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.plane_words) + (size_of::<u32>() << self.regwidth)
    }

    fn register_max(&self) -> u8 {
        u8::MAX >> (8 - self.regwidth)
    }

    /// Returns the base-2 logarithm of the number of words in one plane of a tile.
    fn plane_words_log2(&self) -> u32 {
        u32::from(self.log2m).saturating_sub(6).min(PLANE_WORDS_LOG2)
    }

    /// Returns the index of plane 0's word for 64 registers; the next plane's word is `1 << plane_words_log2`
    /// further.
    fn plane_offset(&self, word: usize) -> usize {
        let row_bits = self.plane_words_log2();
        let tile = (word >> row_bits) * usize::from(self.regwidth);
        (tile << row_bits) + (word & ((1 << row_bits) - 1))
    }

    /// Returns the number of words that one plane of all tiles takes.
    fn words_per_plane(&self) -> usize {
        (1usize << self.log2m).div_ceil(64)
    }

    /// Returns the number of registers in a word.
    fn registers_per_word(&self) -> usize {
        64.min(1 << self.log2m)
    }

    /// Returns the bits of up to 64 registers, plane by plane.
    #[inline(always)]
    fn planes_at_word<const WIDTH: usize>(&self, word: usize) -> [u64; WIDTH] {
        let (first, row_bits) = (self.plane_offset(word), self.plane_words_log2());
        let mut planes = [0; WIDTH];
        for (plane, bits) in planes.iter_mut().enumerate() {
            *bits = self.plane_words[first + (plane << row_bits)];
        }
        planes
    }

    fn set_planes<const WIDTH: usize>(&mut self, word: usize, planes: [u64; WIDTH]) {
        let (first, row_bits) = (self.plane_offset(word), self.plane_words_log2());
        for (plane, bits) in planes.into_iter().enumerate() {
            self.plane_words[first + (plane << row_bits)] = bits;
        }
    }

    /// Raises a register to `value`, which is at most `2^regwidth − 1`.
    #[inline]
    pub(super) fn raise_register(&mut self, index: usize, value: u8) {
        if value <= self.register_floor {
            return;
        }
        let (first, row_bits) = (self.plane_offset(index / 64), self.plane_words_log2());
        let bit = index % 64;
        let mut before = 0;
        for plane in 0..self.regwidth {
            let word = self.plane_words[first + (usize::from(plane) << row_bits)];
            before |= ((word >> bit & 1) as u8) << plane;
        }
        if value <= before {
            return;
        }
        for plane in 0..self.regwidth {
            let word = &mut self.plane_words[first + (usize::from(plane) << row_bits)];
            *word = *word & !(1 << bit) | u64::from(value >> plane & 1) << bit;
        }
        if let Some(counts) = self.value_counts.get_mut() {
            counts[usize::from(before)] -= 1;
            counts[usize::from(value)] += 1;
            while counts[usize::from(self.register_floor)] == 0 {
                self.register_floor += 1;
            }
        }
    }

    /// Adds values by their hashes.
    pub(super) fn add_hashes(&mut self, hashes: &[u64]) {
        if self.log2m >= TILE_REGISTERS_LOG2 {
            with_width!(self.regwidth, WIDTH => dispatch!(Level::new(), simd => {
                for hashes in hashes.chunks(HASH_CHUNK_LEN) {
                    self.add_hash_chunk::<_, WIDTH>(simd, hashes);
                }
            }));
        } else {
            let params =
                HllParams { log2m: self.log2m, regwidth: self.regwidth, ..HllParams::default() };
            for &hash in hashes {
                let (index, value) = params.locate_register(hash);
                self.raise_register(index, value);
            }
        }
    }

    /// Adds 1 to [`HASH_CHUNK_LEN`] hashes.
    #[inline(always)]
    fn add_hash_chunk<S: Simd, const WIDTH: usize>(&mut self, simd: S, hashes: &[u64]) {
        let log2m = u32::from(self.log2m);
        let index_mask = (1 << log2m) - 1;
        // A stop bit: a run of zeros ends here at the latest, so that it fits the register.
        let run_max = 1u64 << (self.register_max() - 1).min(63);
        let mut mostly_empty = false;
        if let Some(counts) = self.value_counts.get() {
            while self.register_floor < self.register_max()
                && counts[usize::from(self.register_floor)] == 0
            {
                self.register_floor += 1;
            }
            mostly_empty = counts[0] > 1 << (log2m - 1);
        }

        // Hashes with fewer zeros than `register_floor` raise nothing: no register is read for them.
        let mut wanted = u64::MAX >> (HASH_CHUNK_LEN - hashes.len());
        if self.register_floor > 0 {
            let short = u64::MAX >> (64 - u32::from(self.register_floor).min(63)) << log2m;
            let (short, zero) = (u64x4::splat(simd, short), u64x4::splat(simd, 0));
            for (at, four) in hashes.as_chunks::<4>().0.iter().enumerate() {
                let short = !(u64x4::from_slice(simd, four) & short).simd_eq(zero);
                wanted &= !(short.to_bitmask() << (4 * at));
            }
        }

        // Hashes that raise a register are selected before any is raised, without a branch, which would be
        // mispredicted too often.
        let tiles = as_tiles_mut::<WIDTH>(&mut self.plane_words);
        let locate = |hash: u64| {
            #[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
            let index = (hash & index_mask) as usize;
            let value = (hash >> log2m | run_max).trailing_zeros() + 1;
            (index >> TILE_REGISTERS_LOG2, index / 64 % PLANE_WORDS, index % 64, value)
        };
        let mut raising = [0; HASH_CHUNK_LEN];
        let mut raising = if mostly_empty {
            hashes
        } else {
            let mut found = 0;
            while wanted != 0 {
                let hash = hashes[wanted.trailing_zeros() as usize];
                wanted &= wanted - 1;
                let (tile, word, bit, value) = locate(hash);
                raising[found] = hash;
                found += usize::from(value > register_value(&tiles[tile], word, bit));
            }
            &raising[..found]
        };

        let mut counts = self.value_counts.get_mut();
        while let [hash, rest @ ..] = raising {
            raising = rest;
            let (tile, word, bit, value) = locate(*hash);
            let tile = &mut tiles[tile];
            // Skip if an earlier hash raised the register, or if all bits above the index are zero, which
            // counts for nothing.
            let before = register_value(tile, word, bit);
            if value <= before || hash >> log2m == 0 {
                continue;
            }
            let changed = u64::from(before ^ value);
            for (plane, row) in tile.iter_mut().enumerate() {
                row[word] ^= (changed >> plane & 1) << bit;
            }
            if let Some(counts) = &mut counts {
                counts[before as usize] -= 1;
                counts[value as usize] += 1;
            }
        }
    }

    /// Raises each register to that of `other`, which has as many registers of at least the same width.
    pub(super) fn raise_to_max(&mut self, other: &DenseRegisters) {
        if self.log2m < TILE_REGISTERS_LOG2 || self.regwidth != other.regwidth {
            let max = self.register_max();
            return other
                .for_each_filled(|index, value| self.raise_register(index, value.min(max)));
        }
        self.value_counts.take();
        self.register_floor = self.register_floor.max(other.register_floor);
        with_width!(self.regwidth, WIDTH => {
            let (as_tiles, others) = (as_tiles_mut::<WIDTH>(&mut self.plane_words), as_tiles(&other.plane_words));
            dispatch!(Level::new(), simd => raise_tiles_to_max(simd, as_tiles, others));
        });
    }

    /// Calls `take` with every register above 0, ascending by index.
    pub(super) fn for_each_filled(&self, mut take: impl FnMut(usize, u8)) {
        with_width!(self.regwidth, WIDTH => {
            for word in 0..self.words_per_plane() {
                let planes_at_word = self.planes_at_word::<WIDTH>(word);
                let mut filled = planes_at_word.iter().fold(0, |any, plane| any | plane);
                while filled != 0 {
                    let bit = filled.trailing_zeros();
                    let value = |value: u8, plane: &u64| value << 1 | (plane >> bit & 1) as u8;
                    take(word * 64 + bit as usize, planes_at_word.iter().rev().fold(0, value));
                    filled &= filled - 1;
                }
            }
        });
    }

    /// Returns the number of registers that hold each value. Cost: constant; after a merge or a decode O(m)
    /// once.
    pub(super) fn value_counts(&self) -> &[u32] {
        self.value_counts.get_or_init(|| {
            let mut counts = vec![0u32; 1 << self.regwidth].into_boxed_slice();
            if self.log2m < TILE_REGISTERS_LOG2 {
                counts[0] = 1 << self.log2m;
                self.for_each_filled(|_, value| {
                    counts[0] -= 1;
                    counts[usize::from(value)] += 1;
                });
            } else {
                with_width!(self.regwidth, WIDTH => {
                    let as_tiles = as_tiles::<WIDTH>(&self.plane_words);
                    dispatch!(Level::new(), simd => count_register_values(simd, as_tiles, &mut counts));
                });
            }
            counts
        })
    }

    /// Returns the number of registers above 0.
    pub(super) fn filled_count(&self) -> usize {
        if let Some(counts) = self.value_counts.get() {
            return (1usize << self.log2m) - counts[0] as usize;
        }
        with_width!(self.regwidth, WIDTH => {
            let filled = |word| self.planes_at_word::<WIDTH>(word).iter().fold(0, |any, plane| any | plane);
            (0..self.words_per_plane()).map(|word| filled(word).count_ones() as usize).sum()
        })
    }

    /// Appends FULL's data: regwidth bits each, most significant first.
    pub(super) fn write_full(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + (usize::from(self.regwidth) << self.log2m >> 3), 0);
        with_width!(self.regwidth, WIDTH => {
            let (eights, _) = out[start..].as_chunks_mut::<WIDTH>();
            dispatch!(Level::new(), simd => {
                for (word, eights) in eights.chunks_mut(8).enumerate() {
                    let values = transpose_to_values(simd, self.planes_at_word::<WIDTH>(word));
                    for (eight, values) in eights.iter_mut().zip(&values) {
                        *eight = pack_registers(values);
                    }
                }
            });
        });
    }

    /// Reads FULL's data, whose length must match exactly.
    pub(super) fn read_full(params: HllParams, data: &[u8]) -> Self {
        let mut registers = DenseRegisters::without_counts(params);
        with_width!(params.regwidth, WIDTH => {
            let per_word = registers.registers_per_word();
            let mut values = [[0; 8]; 8];
            dispatch!(Level::new(), simd => {
                for (word, data) in data.chunks_exact(per_word / 8 * WIDTH).enumerate() {
                    for (eight, packed) in values.iter_mut().zip(data.as_chunks::<WIDTH>().0) {
                        *eight = unpack_registers(packed);
                    }
                    registers.set_planes(word, transpose_to_planes::<_, WIDTH>(simd, &values));
                }
            });
        });
        registers
    }
}

fn as_tiles<const WIDTH: usize>(words: &[u64]) -> &[[Plane; WIDTH]] {
    words.as_chunks::<PLANE_WORDS>().0.as_chunks().0
}

fn as_tiles_mut<const WIDTH: usize>(words: &mut [u64]) -> &mut [[Plane; WIDTH]] {
    words.as_chunks_mut::<PLANE_WORDS>().0.as_chunks_mut().0
}

#[inline(always)]
fn register_value<const WIDTH: usize>(tile: &[Plane; WIDTH], word: usize, bit: usize) -> u32 {
    let mut value = 0;
    for (plane, row) in tile.iter().enumerate() {
        value |= ((row[word] >> bit & 1) as u32) << plane;
    }
    value
}

/// Raises each register to that of `others`.
#[inline(always)]
fn raise_tiles_to_max<S: Simd, const WIDTH: usize>(
    simd: S,
    tiles: &mut [[Plane; WIDTH]],
    others: &[[Plane; WIDTH]],
) {
    for (tile, other) in tiles.iter_mut().zip(others) {
        let mut differing = [u64x4::splat(simd, 0); WIDTH];
        let mut lower = u64x4::splat(simd, 0);
        for (plane, differing) in differing.iter_mut().enumerate() {
            let other = u64x4::from_slice(simd, &other[plane]);
            *differing = u64x4::from_slice(simd, &tile[plane]) ^ other;
            // Where the bits differ, the other's bit decides; elsewhere the result of the lower planes stays.
            lower ^= *differing & (other ^ lower);
        }
        for (plane, differing) in differing.into_iter().enumerate() {
            let raised = u64x4::from_slice(simd, &tile[plane]) ^ (differing & lower);
            raised.store_slice(&mut tile[plane]);
        }
    }
}

/// Adds to `counts` the number of registers that hold each value.
#[inline(always)]
fn count_register_values<S: Simd, const WIDTH: usize>(
    simd: S,
    tiles: &[[Plane; WIDTH]],
    counts: &mut [u32],
) {
    let low = const { if WIDTH < 4 { WIDTH } else { 4 } };
    for tile in tiles {
        // Groups of registers that agree in the planes above the lowest four (most groups are empty)
        // are split by those four planes without a branch.
        for (high, counts) in counts.chunks_exact_mut(1 << low).enumerate() {
            let mut parts = [u64x4::splat(simd, u64::MAX); 16];
            for (plane, row) in tile[low..].iter().enumerate() {
                let flip = if high >> plane & 1 == 0 { u64::MAX } else { 0 };
                parts[0] &= u64x4::from_slice(simd, row) ^ u64x4::splat(simd, flip);
            }
            if *parts[0] == [0; PLANE_WORDS] {
                continue;
            }
            for (plane, row) in tile[..low].iter().enumerate() {
                let bits = u64x4::from_slice(simd, row);
                for part in 0..1 << plane {
                    let ones = parts[part] & bits;
                    parts[part | 1 << plane] = ones;
                    parts[part] ^= ones;
                }
            }
            for (count, part) in counts.iter_mut().zip(&parts) {
                let [a, b, c, d] = **part;
                *count += a.count_ones() + b.count_ones() + c.count_ones() + d.count_ones();
            }
        }
    }
}

/// First bits of groups of two, four and eight registers, used between a byte per register and
/// FULL's data.
const PAIR_STARTS: u64 = 0x0001_0001_0001_0001;
const QUAD_STARTS: u64 = 0x0000_0001_0000_0001;
const OCTET_STARTS: u64 = 1;

/// Packs eight registers as FULL stores them. The first is the highest.
#[inline(always)]
fn pack_registers<const WIDTH: usize>(values: &[u8; 8]) -> [u8; WIDTH] {
    // The upper half of each group moves down to the lower one.
    let closed = |word: u64, starts: u64, registers: usize| {
        let (bits, half) = (registers / 2 * WIDTH, registers / 2 * 8);
        let low = starts * ((1 << bits) - 1);
        word & low | word >> (half - bits) & low << bits
    };
    let word = u64::from_be_bytes(*values);
    let word = closed(closed(closed(word, PAIR_STARTS, 2), QUAD_STARTS, 4), OCTET_STARTS, 8);
    let mut packed = [0; WIDTH];
    packed.copy_from_slice(&word.to_be_bytes()[8 - WIDTH..]);
    packed
}

#[inline(always)]
fn unpack_registers<const WIDTH: usize>(packed: &[u8; WIDTH]) -> [u8; 8] {
    let spread = |word: u64, starts: u64, registers: usize| {
        let (bits, half) = (registers / 2 * WIDTH, registers / 2 * 8);
        let low = starts * ((1 << bits) - 1);
        word & low | (word & low << bits) << (half - bits)
    };
    let mut word = [0; 8];
    word[8 - WIDTH..].copy_from_slice(packed);
    let word = u64::from_be_bytes(word);
    spread(spread(spread(word, OCTET_STARTS, 8), QUAD_STARTS, 4), PAIR_STARTS, 2).to_be_bytes()
}

/// Converts 64 registers to planes.
#[inline(always)]
fn transpose_to_planes<S: Simd, const WIDTH: usize>(
    simd: S,
    values: &[[u8; 8]; 8],
) -> [u64; WIDTH] {
    let [low, high] =
        [0, 32].map(|half| u8x32::from_slice(simd, &values.as_flattened()[half..][..32]));
    let mut planes = [0; WIDTH];
    for (plane, bits) in planes.iter_mut().enumerate() {
        let of = u8x32::splat(simd, 1 << plane);
        let [low, high] = [low, high].map(|half| (half & of).simd_eq(of).to_bitmask());
        *bits = high << 32 | low;
    }
    planes
}

/// Converts planes of 64 bits to 64 registers.
#[inline(always)]
fn transpose_to_values<S: Simd, const WIDTH: usize>(simd: S, planes: [u64; WIDTH]) -> [[u8; 8]; 8] {
    let none = u8x32::splat(simd, 0);
    let (mut low, mut high) = (none, none);
    for (plane, bits) in planes.into_iter().enumerate() {
        let of = u8x32::splat(simd, 1 << plane);
        low |= mask8x32::from_bitmask(simd, bits).select(of, none);
        high |= mask8x32::from_bitmask(simd, bits >> 32).select(of, none);
    }
    let mut values = [[0; 8]; 8];
    low.store_slice(&mut values.as_flattened_mut()[..32]);
    high.store_slice(&mut values.as_flattened_mut()[32..]);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares registers of every width and count with one byte per register.
    #[test]
    fn bit_plane_registers_equal_byte_registers() {
        for log2m in [4, 5, 7, 8, 9, 11] {
            for regwidth in 1..=8 {
                let params = HllParams { log2m, regwidth, ..HllParams::default() };
                let max = params.register_max();
                let mut random = 1u64;
                let mut filled = |count: usize| {
                    let mut registers = DenseRegisters::new(params);
                    let mut bytes = vec![0u8; 1 << log2m];
                    for _ in 0..count {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        let index = (random >> 40) as usize & (bytes.len() - 1);
                        let value = (random >> 33) as u8 & max;
                        registers.raise_register(index, value);
                        bytes[index] = bytes[index].max(value);
                    }
                    (registers, bytes)
                };
                let check = |registers: &DenseRegisters, bytes: &[u8]| {
                    let mut found = vec![0; bytes.len()];
                    registers.for_each_filled(|index, value| found[index] = value);
                    assert_eq!(found, bytes);
                    let mut counts = vec![0u32; 1 << regwidth];
                    bytes.iter().for_each(|value| counts[usize::from(*value)] += 1);
                    assert_eq!(registers.value_counts(), counts);
                    assert_eq!(registers.filled_count(), bytes.len() - counts[0] as usize);
                    let mut data = Vec::new();
                    registers.write_full(&mut data);
                    let back = DenseRegisters::read_full(params, &data);
                    assert_eq!(back.filled_count(), registers.filled_count());
                    assert_eq!(&back, registers);
                    assert_eq!(back.value_counts(), counts);
                };
                let (mut left, mut left_bytes) = filled(1 << log2m);
                let (right, right_bytes) = filled(100);
                check(&left, &left_bytes);
                check(&right, &right_bytes);
                left.raise_to_max(&right);
                for (left, right) in left_bytes.iter_mut().zip(right_bytes) {
                    *left = right.max(*left);
                }
                check(&left, &left_bytes);
                assert!(left.heap_bytes() <= params.packed_register_bytes() + 48 + 1024);
            }
        }
    }
}
