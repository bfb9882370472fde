//! All m registers, in exactly the bits they need.
//!
//! One byte a register would be simple, and a third more memory than FULL's bytes at the usual
//! width of 6. Registers that follow one another bit by bit, as in FULL, have to be taken apart
//! before two states can be compared. So they lie in *planes*: one word holds the same bit of 64
//! registers, and what is computed of one bit is computed of 64 or, by vectors, of 256 at once.
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
//! The larger of two registers is found by going up the planes: where they differ, whose bit is
//! set is larger so far. That takes six operations a plane, and no register is ever taken out. A merge
//! took 54 ns at log2m 11 and regwidth 5, and 290 ns at 14 and 6, where a copy of as many bytes took 16 and
//! 140 (`cargo run --release --example speed -- hll`, on a machine that was busy otherwise). Lanes of
//! bytes, whose registers had to be shifted out and in, took 160 and 1,130. To read one register takes
//! a load from each plane; but once every register is filled, most values are seen to raise nothing
//! without it: they are at most as high as the lowest register.
//!
//! The layout is BitWeaving's vertical one (Li and Patel, *BitWeaving: Fast Scans for Main Memory
//! Data Processing*, 2013).
//!
//! Beside the registers stands how many of them hold each value, which is all that an estimate
//! needs. Adding keeps it up to date; a merge drops it, since counting costs more than the merge
//! itself, and the next estimate counts anew.

use std::sync::OnceLock;

use fearless_simd::prelude::{Select, Simd, SimdBase, SimdMask};
use fearless_simd::{Level, dispatch, mask8x32, u8x32, u64x4};

use super::HllParams;

/// Words of a tile's plane, where there are registers enough.
const ROW: usize = 4;
const ROW_BITS: u32 = ROW.trailing_zeros();

/// Registers of a tile, as a power of two.
const TILE_BITS: u8 = 8;

/// Hashes that are looked through together.
const TOGETHER: usize = 64;

/// One plane of a tile.
type Row = [u64; ROW];

/// The registers of one state, all of them within `2^regwidth − 1`.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    /// The planes of the first tile, then of the next. Where m is below 64, bits from m on are 0.
    words: Box<[u64]>,
    /// How many registers hold each value, 2^regwidth counts; none after a merge.
    counts: OnceLock<Box<[u32]>>,
    /// No register is below it; it may be too low.
    floor: u8,
    log2m: u8,
    regwidth: u8,
}

impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        (self.log2m, self.regwidth) == (other.log2m, other.regwidth) && self.words == other.words
    }
}

impl Eq for Registers {}

/// Calls `$body` with `$width` as a constant, so that loops over planes are straight code.
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

impl Registers {
    /// All registers at 0.
    pub(super) fn new(params: HllParams) -> Self {
        let registers = Registers::uncounted(params);
        let mut counts = vec![0; 1 << params.regwidth].into_boxed_slice();
        counts[0] = 1 << params.log2m;
        let _ = registers.counts.set(counts);
        registers
    }

    fn uncounted(params: HllParams) -> Self {
        let words_per_plane = params.register_count().div_ceil(64);
        Registers {
            words: vec![0; words_per_plane * usize::from(params.regwidth)].into_boxed_slice(),
            counts: OnceLock::new(),
            floor: 0,
            log2m: params.log2m,
            regwidth: params.regwidth,
        }
    }

    /// The counts are in it whether they are there or not: an estimate, behind `&self`, makes them.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words) + (size_of::<u32>() << self.regwidth)
    }

    fn mask(&self) -> u8 {
        u8::MAX >> (8 - self.regwidth)
    }

    /// Words of a tile's plane, as a power of two.
    fn row_bits(&self) -> u32 {
        u32::from(self.log2m).saturating_sub(6).min(ROW_BITS)
    }

    /// Where plane 0 has the word of 64 registers; that of the next plane is `1 << row_bits` on.
    fn place(&self, word: usize) -> usize {
        let row_bits = self.row_bits();
        let tile = (word >> row_bits) * usize::from(self.regwidth);
        (tile << row_bits) + (word & ((1 << row_bits) - 1))
    }

    /// How many words have the bits of a plane of all tiles together.
    fn word_count(&self) -> usize {
        (1usize << self.log2m).div_ceil(64)
    }

    /// How many registers a word has.
    fn registers_per_word(&self) -> usize {
        64.min(1 << self.log2m)
    }

    /// The bits of up to 64 registers, plane by plane.
    #[inline(always)]
    fn planes<const WIDTH: usize>(&self, word: usize) -> [u64; WIDTH] {
        let (first, row_bits) = (self.place(word), self.row_bits());
        let mut planes = [0; WIDTH];
        for (plane, bits) in planes.iter_mut().enumerate() {
            *bits = self.words[first + (plane << row_bits)];
        }
        planes
    }

    fn set_planes<const WIDTH: usize>(&mut self, word: usize, planes: [u64; WIDTH]) {
        let (first, row_bits) = (self.place(word), self.row_bits());
        for (plane, bits) in planes.into_iter().enumerate() {
            self.words[first + (plane << row_bits)] = bits;
        }
    }

    /// Raises a register to `value`, which is at most `2^regwidth − 1`.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, value: u8) {
        if value <= self.floor {
            return;
        }
        let (first, row_bits) = (self.place(index / 64), self.row_bits());
        let bit = index % 64;
        let mut before = 0;
        for plane in 0..self.regwidth {
            let word = self.words[first + (usize::from(plane) << row_bits)];
            before |= ((word >> bit & 1) as u8) << plane;
        }
        if value <= before {
            return;
        }
        for plane in 0..self.regwidth {
            let word = &mut self.words[first + (usize::from(plane) << row_bits)];
            *word = *word & !(1 << bit) | u64::from(value >> plane & 1) << bit;
        }
        if let Some(counts) = self.counts.get_mut() {
            counts[usize::from(before)] -= 1;
            counts[usize::from(value)] += 1;
            while counts[usize::from(self.floor)] == 0 {
                self.floor += 1;
            }
        }
    }

    /// Adds values by their hashes.
    pub(super) fn add_all(&mut self, hashes: &[u64]) {
        if self.log2m >= TILE_BITS {
            with_width!(self.regwidth, WIDTH => dispatch!(Level::new(), simd => {
                for hashes in hashes.chunks(TOGETHER) {
                    self.add_some::<_, WIDTH>(simd, hashes);
                }
            }));
        } else {
            let params =
                HllParams { log2m: self.log2m, regwidth: self.regwidth, ..HllParams::default() };
            for &hash in hashes {
                let (index, value) = params.locate(hash);
                self.raise(index, value);
            }
        }
    }

    /// From 1 to [`TOGETHER`] hashes.
    #[inline(always)]
    fn add_some<S: Simd, const WIDTH: usize>(&mut self, simd: S, hashes: &[u64]) {
        let log2m = u32::from(self.log2m);
        let index_mask = (1 << log2m) - 1;
        // A run of zeros ends here at the latest, so that it fits the register.
        let run_max = 1u64 << (self.mask() - 1).min(63);
        let mut mostly_empty = false;
        if let Some(counts) = self.counts.get() {
            while self.floor < self.mask() && counts[usize::from(self.floor)] == 0 {
                self.floor += 1;
            }
            mostly_empty = counts[0] > 1 << (log2m - 1);
        }

        // Whose run of zeros is shorter than `floor` raises nothing: no register is read for it.
        let mut wanted = u64::MAX >> (TOGETHER - hashes.len());
        if self.floor > 0 {
            let short = u64::MAX >> (64 - u32::from(self.floor).min(63)) << log2m;
            let (short, zero) = (u64x4::splat(simd, short), u64x4::splat(simd, 0));
            for (at, four) in hashes.as_chunks::<4>().0.iter().enumerate() {
                let short = !(u64x4::from_slice(simd, four) & short).simd_eq(zero);
                wanted &= !(short.to_bitmask() << (4 * at));
            }
        }

        // What raises a register is found before anything is raised, without a branch, which would be
        // misjudged too often.
        let tiles = tiles_mut::<WIDTH>(&mut self.words);
        let locate = |hash: u64| {
            #[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
            let index = (hash & index_mask) as usize;
            let value = (hash >> log2m | run_max).trailing_zeros() + 1;
            (index >> TILE_BITS, index / 64 % ROW, index % 64, value)
        };
        let mut raising = [0; TOGETHER];
        let mut raising = if mostly_empty {
            hashes
        } else {
            let mut found = 0;
            while wanted != 0 {
                let hash = hashes[wanted.trailing_zeros() as usize];
                wanted &= wanted - 1;
                let (tile, word, bit, value) = locate(hash);
                raising[found] = hash;
                found += usize::from(value > value_at(&tiles[tile], word, bit));
            }
            &raising[..found]
        };

        let mut counts = self.counts.get_mut();
        while let [hash, rest @ ..] = raising {
            raising = rest;
            let (tile, word, bit, value) = locate(*hash);
            let tile = &mut tiles[tile];
            // Raised by one before it, or all zeros above the index, which counts for nothing.
            let before = value_at(tile, word, bit);
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

    /// Raises each register to that of `other`, which has as many and none narrower.
    pub(super) fn raise_all(&mut self, other: &Registers) {
        if self.log2m < TILE_BITS || self.regwidth != other.regwidth {
            let max = self.mask();
            return other.for_each_filled(|index, value| self.raise(index, value.min(max)));
        }
        self.counts.take();
        self.floor = self.floor.max(other.floor);
        with_width!(self.regwidth, WIDTH => {
            let (tiles, others) = (tiles_mut::<WIDTH>(&mut self.words), tiles(&other.words));
            dispatch!(Level::new(), simd => raise_tiles(simd, tiles, others));
        });
    }

    /// Calls `take` with every register above 0, ascending by index.
    pub(super) fn for_each_filled(&self, mut take: impl FnMut(usize, u8)) {
        with_width!(self.regwidth, WIDTH => {
            for word in 0..self.word_count() {
                let planes = self.planes::<WIDTH>(word);
                let mut filled = planes.iter().fold(0, |any, plane| any | plane);
                while filled != 0 {
                    let bit = filled.trailing_zeros();
                    let value = |value: u8, plane: &u64| value << 1 | (plane >> bit & 1) as u8;
                    take(word * 64 + bit as usize, planes.iter().rev().fold(0, value));
                    filled &= filled - 1;
                }
            }
        });
    }

    /// How many registers hold each value. Cost: constant, after a merge or reading O(m) once.
    pub(super) fn counts(&self) -> &[u32] {
        self.counts.get_or_init(|| {
            let mut counts = vec![0u32; 1 << self.regwidth].into_boxed_slice();
            if self.log2m < TILE_BITS {
                counts[0] = 1 << self.log2m;
                self.for_each_filled(|_, value| {
                    counts[0] -= 1;
                    counts[usize::from(value)] += 1;
                });
            } else {
                with_width!(self.regwidth, WIDTH => {
                    let tiles = tiles::<WIDTH>(&self.words);
                    dispatch!(Level::new(), simd => count_tiles(simd, tiles, &mut counts));
                });
            }
            counts
        })
    }

    /// How many registers are above 0.
    pub(super) fn filled(&self) -> usize {
        if let Some(counts) = self.counts.get() {
            return (1usize << self.log2m) - counts[0] as usize;
        }
        with_width!(self.regwidth, WIDTH => {
            let filled = |word| self.planes::<WIDTH>(word).iter().fold(0, |any, plane| any | plane);
            (0..self.word_count()).map(|word| filled(word).count_ones() as usize).sum()
        })
    }

    /// Appends FULL's data: regwidth bits each, most significant first.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + (usize::from(self.regwidth) << self.log2m >> 3), 0);
        with_width!(self.regwidth, WIDTH => {
            let (eights, _) = out[start..].as_chunks_mut::<WIDTH>();
            dispatch!(Level::new(), simd => {
                for (word, eights) in eights.chunks_mut(8).enumerate() {
                    let values = values_of(simd, self.planes::<WIDTH>(word));
                    for (eight, values) in eights.iter_mut().zip(&values) {
                        *eight = packed(values);
                    }
                }
            });
        });
    }

    /// Reads FULL's data, exactly as many bytes as it has.
    pub(super) fn read(params: HllParams, data: &[u8]) -> Self {
        let mut registers = Registers::uncounted(params);
        with_width!(params.regwidth, WIDTH => {
            let per_word = registers.registers_per_word();
            let mut values = [[0; 8]; 8];
            dispatch!(Level::new(), simd => {
                for (word, data) in data.chunks_exact(per_word / 8 * WIDTH).enumerate() {
                    for (eight, packed) in values.iter_mut().zip(data.as_chunks::<WIDTH>().0) {
                        *eight = unpacked(packed);
                    }
                    registers.set_planes(word, planes_of::<_, WIDTH>(simd, &values));
                }
            });
        });
        registers
    }
}

fn tiles<const WIDTH: usize>(words: &[u64]) -> &[[Row; WIDTH]] {
    words.as_chunks::<ROW>().0.as_chunks().0
}

fn tiles_mut<const WIDTH: usize>(words: &mut [u64]) -> &mut [[Row; WIDTH]] {
    words.as_chunks_mut::<ROW>().0.as_chunks_mut().0
}

#[inline(always)]
fn value_at<const WIDTH: usize>(tile: &[Row; WIDTH], word: usize, bit: usize) -> u32 {
    let mut value = 0;
    for (plane, row) in tile.iter().enumerate() {
        value |= ((row[word] >> bit & 1) as u32) << plane;
    }
    value
}

/// Raises each register to that of `others`.
#[inline(always)]
fn raise_tiles<S: Simd, const WIDTH: usize>(
    simd: S,
    tiles: &mut [[Row; WIDTH]],
    others: &[[Row; WIDTH]],
) {
    for (tile, other) in tiles.iter_mut().zip(others) {
        let mut differing = [u64x4::splat(simd, 0); WIDTH];
        let mut lower = u64x4::splat(simd, 0);
        for (plane, differing) in differing.iter_mut().enumerate() {
            let other = u64x4::from_slice(simd, &other[plane]);
            *differing = u64x4::from_slice(simd, &tile[plane]) ^ other;
            // Where the bits differ, the other's tells; elsewhere it stays as it was.
            lower ^= *differing & (other ^ lower);
        }
        for (plane, differing) in differing.into_iter().enumerate() {
            let raised = u64x4::from_slice(simd, &tile[plane]) ^ (differing & lower);
            raised.store_slice(&mut tile[plane]);
        }
    }
}

/// Adds to `counts` how many registers hold each value.
#[inline(always)]
fn count_tiles<S: Simd, const WIDTH: usize>(simd: S, tiles: &[[Row; WIDTH]], counts: &mut [u32]) {
    let low = const { if WIDTH < 4 { WIDTH } else { 4 } };
    for tile in tiles {
        // Registers that are alike in the planes above the lowest four, of which most have none,
        // are divided by those four without a branch.
        for (high, counts) in counts.chunks_exact_mut(1 << low).enumerate() {
            let mut parts = [u64x4::splat(simd, u64::MAX); 16];
            for (plane, row) in tile[low..].iter().enumerate() {
                let flip = if high >> plane & 1 == 0 { u64::MAX } else { 0 };
                parts[0] &= u64x4::from_slice(simd, row) ^ u64x4::splat(simd, flip);
            }
            if *parts[0] == [0; ROW] {
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

/// Where pieces of two, of four and of all eight registers start, between a byte a register and
/// FULL's data.
const PAIRS: u64 = 0x0001_0001_0001_0001;
const FOURS: u64 = 0x0000_0001_0000_0001;
const EIGHTS: u64 = 1;

/// Eight registers as FULL has them. The first is the highest.
#[inline(always)]
fn packed<const WIDTH: usize>(values: &[u8; 8]) -> [u8; WIDTH] {
    // The upper half of each piece moves down to the lower one.
    let closed = |word: u64, starts: u64, registers: usize| {
        let (bits, half) = (registers / 2 * WIDTH, registers / 2 * 8);
        let low = starts * ((1 << bits) - 1);
        word & low | word >> (half - bits) & low << bits
    };
    let word = u64::from_be_bytes(*values);
    let word = closed(closed(closed(word, PAIRS, 2), FOURS, 4), EIGHTS, 8);
    let mut packed = [0; WIDTH];
    packed.copy_from_slice(&word.to_be_bytes()[8 - WIDTH..]);
    packed
}

#[inline(always)]
fn unpacked<const WIDTH: usize>(packed: &[u8; WIDTH]) -> [u8; 8] {
    let spread = |word: u64, starts: u64, registers: usize| {
        let (bits, half) = (registers / 2 * WIDTH, registers / 2 * 8);
        let low = starts * ((1 << bits) - 1);
        word & low | (word & low << bits) << (half - bits)
    };
    let mut word = [0; 8];
    word[8 - WIDTH..].copy_from_slice(packed);
    let word = u64::from_be_bytes(word);
    spread(spread(spread(word, EIGHTS, 8), FOURS, 4), PAIRS, 2).to_be_bytes()
}

/// The planes of 64 registers.
#[inline(always)]
fn planes_of<S: Simd, const WIDTH: usize>(simd: S, values: &[[u8; 8]; 8]) -> [u64; WIDTH] {
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

/// The registers of 64 bits of each plane.
#[inline(always)]
fn values_of<S: Simd, const WIDTH: usize>(simd: S, planes: [u64; WIDTH]) -> [[u8; 8]; 8] {
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

    /// Registers of every shape against one byte each.
    #[test]
    fn packed_registers_are_what_bytes_would_be() {
        for log2m in [4, 5, 7, 8, 9, 11] {
            for regwidth in 1..=8 {
                let params = HllParams { log2m, regwidth, ..HllParams::default() };
                let max = params.register_max();
                let mut random = 1u64;
                let mut filled = |count: usize| {
                    let mut registers = Registers::new(params);
                    let mut bytes = vec![0u8; 1 << log2m];
                    for _ in 0..count {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        let index = (random >> 40) as usize & (bytes.len() - 1);
                        let value = (random >> 33) as u8 & max;
                        registers.raise(index, value);
                        bytes[index] = bytes[index].max(value);
                    }
                    (registers, bytes)
                };
                let check = |registers: &Registers, bytes: &[u8]| {
                    let mut found = vec![0; bytes.len()];
                    registers.for_each_filled(|index, value| found[index] = value);
                    assert_eq!(found, bytes);
                    let mut counts = vec![0u32; 1 << regwidth];
                    bytes.iter().for_each(|value| counts[usize::from(*value)] += 1);
                    assert_eq!(registers.counts(), counts);
                    assert_eq!(registers.filled(), bytes.len() - counts[0] as usize);
                    let mut data = Vec::new();
                    registers.write(&mut data);
                    let back = Registers::read(params, &data);
                    assert_eq!(back.filled(), registers.filled());
                    assert_eq!(&back, registers);
                    assert_eq!(back.counts(), counts);
                };
                let (mut left, mut left_bytes) = filled(1 << log2m);
                let (right, right_bytes) = filled(100);
                check(&left, &left_bytes);
                check(&right, &right_bytes);
                left.raise_all(&right);
                for (left, right) in left_bytes.iter_mut().zip(right_bytes) {
                    *left = right.max(*left);
                }
                check(&left, &left_bytes);
                assert!(left.heap_bytes() <= params.full_bytes() + 48 + 1024);
            }
        }
    }
}
