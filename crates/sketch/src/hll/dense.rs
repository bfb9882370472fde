//! All m registers, in exactly the bits they need.
//!
//! One byte a register would be simple and quick, and a third more memory than FULL's bytes at
//! the usual width of 6. Registers that follow one another bit by bit, as in FULL, are a chore
//! for a processor that works on 16 or 32 bytes at once. So they lie in *tiles* of 256, as eight
//! rows of 32 lanes: a lane's eight registers follow one another in the lane's own bytes, and
//! what is done to one lane is done to 32 by the same instructions.
//!
//! ```text
//! register i    tile i / 256, row i / 32 mod 8, lane i mod 32
//!               (m < 256: one tile of m / 8 lanes)
//! a tile        regwidth rows of bytes, each of 32 lanes
//! a lane        regwidth bytes, one in each byte row: register of row k at bit k · regwidth,
//!               from the lowest bit of the first byte on
//!
//! regwidth 6    byte row 0   │ 1 1 0 0 0 0 0 0 │   the digit is the register's row;
//!               byte row 1   │ 2 2 2 2 1 1 1 1 │   of each byte the lowest bit is on the right
//!               byte row 2   │ 3 3 3 3 3 3 2 2 │   and so on, with rows 4 to 7 in three more
//! ```
//!
//! The layout is FastLanes' (Afroozeh and Boncz, *The FastLanes Compression Layout*, 2023) with
//! lanes of eight bits. A merge of 2^14 registers of 6 bits takes about as long as to read and
//! write the 12 KiB; a register is read by two loads instead of one.
//!
//! Beside the registers stands how many of them hold each value, which is all that an estimate
//! needs. Adding keeps it up to date; a merge drops it, since counting costs more than the merge
//! itself, and the next estimate counts anew.

use std::sync::OnceLock;

use super::HllParams;
use crate::simd::vectorized;

/// Lanes of a tile, where there are registers enough.
const LANES: usize = 32;

/// Registers of a tile of so many lanes.
const TILE: usize = 8 * LANES;

/// The registers of one state, all of them within `2^regwidth − 1`.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    /// The tiles, and one row of zeros behind them, so that a register's second byte is always
    /// there to be read.
    bytes: Box<[u8]>,
    /// How many registers hold each value, 2^regwidth counts; none after a merge.
    counts: OnceLock<Box<[u32]>>,
    log2m: u8,
    regwidth: u8,
}

impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        (self.log2m, self.regwidth) == (other.log2m, other.regwidth) && self.bytes == other.bytes
    }
}

impl Eq for Registers {}

/// Where a register lies: its first byte, and the bit in it.
#[derive(Clone, Copy)]
struct Place {
    byte: usize,
    shift: usize,
}

/// The arithmetic of the layout, for one set of parameters.
#[derive(Clone, Copy)]
struct Layout {
    lane_bits: u32,
    regwidth: usize,
}

impl Layout {
    #[inline(always)]
    fn place(self, index: usize) -> Place {
        let lane = index & (self.lanes() - 1);
        let bit = (index >> self.lane_bits & 7) * self.regwidth;
        let row = (index >> (self.lane_bits + 3)) * self.regwidth + bit / 8;
        Place { byte: (row << self.lane_bits) + lane, shift: bit % 8 }
    }

    #[inline(always)]
    fn lanes(self) -> usize {
        1 << self.lane_bits
    }

    #[inline(always)]
    fn mask(self) -> u8 {
        u8::MAX >> (8 - self.regwidth)
    }
}

/// Calls `$body` with `$width` as a constant, so that shifts are known to the compiler.
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
        let layout = Layout {
            lane_bits: u32::from(params.log2m - 3).min(LANES.trailing_zeros()),
            regwidth: params.regwidth.into(),
        };
        Registers {
            bytes: vec![0; params.full_bytes() + layout.lanes()].into_boxed_slice(),
            counts: OnceLock::new(),
            log2m: params.log2m,
            regwidth: params.regwidth,
        }
    }

    #[inline(always)]
    fn layout(&self) -> Layout {
        Layout {
            lane_bits: u32::from(self.log2m - 3).min(LANES.trailing_zeros()),
            regwidth: self.regwidth.into(),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.counts.get().map_or(0, |counts| size_of_val(&**counts))
    }

    /// Raises a register to `value`, which is at most `2^regwidth − 1`.
    #[inline]
    pub(super) fn raise(&mut self, index: usize, value: u8) {
        let layout = self.layout();
        raise(&mut self.bytes, layout, index, value, self.counts.get_mut());
    }

    /// Adds values by their hashes.
    #[inline]
    pub(super) fn add_all(&mut self, hashes: impl Iterator<Item = u64>) {
        if self.log2m >= 8 {
            with_width!(self.regwidth, WIDTH => vectorized(|| self.add_all_of::<WIDTH>(hashes)));
        } else {
            let params =
                HllParams { log2m: self.log2m, regwidth: self.regwidth, ..HllParams::default() };
            for hash in hashes {
                let (index, value) = params.locate(hash);
                self.raise(index, value);
            }
        }
    }

    #[inline(always)]
    fn add_all_of<const WIDTH: usize>(&mut self, hashes: impl Iterator<Item = u64>) {
        let layout = Layout { lane_bits: LANES.trailing_zeros(), regwidth: WIDTH };
        let log2m = u32::from(self.log2m);
        let index_mask = (1 << log2m) - 1;
        // A run of zeros ends here at the latest, so that it fits the register.
        let run_max = 1u64 << (layout.mask() - 1).min(63);
        let bytes = &mut *self.bytes;
        let mut counts = self.counts.get_mut();
        for hash in hashes {
            let rest = hash >> log2m;
            if rest == 0 {
                continue;
            }
            let value = (rest | run_max).trailing_zeros() + 1;
            #[expect(clippy::cast_possible_truncation, reason = "an index is below 2^31")]
            let index = (hash & index_mask) as usize;
            raise(bytes, layout, index, (value & 0xff) as u8, counts.as_deref_mut());
        }
    }

    /// Raises each register to that of `other`, which has as many and none narrower.
    pub(super) fn raise_all(&mut self, other: &Registers) {
        self.counts.take();
        let layout = self.layout();
        if layout.lanes() < LANES {
            other.for_each_filled(|index, value| {
                self.raise(index, value.min(layout.mask()));
            });
        } else if self.regwidth == other.regwidth {
            with_width!(self.regwidth, WIDTH => {
                let (rows, _) = self.bytes.as_chunks_mut::<LANES>();
                let (more, _) = other.bytes.as_chunks::<LANES>();
                let (tiles, _) = rows.as_chunks_mut::<WIDTH>();
                let (others, _) = more.as_chunks::<WIDTH>();
                vectorized(|| {
                    for (tile, other) in tiles.iter_mut().zip(others) {
                        raise_tile(tile, other);
                    }
                });
            });
        } else {
            let mut theirs = [0; TILE];
            for tile in 0..self.tile_count() {
                other.unpack(tile, &mut theirs);
                for (lane, value) in theirs.iter().enumerate() {
                    self.raise(tile * TILE + lane, (*value).min(layout.mask()));
                }
            }
        }
    }

    fn tile_count(&self) -> usize {
        (1usize << self.log2m).div_ceil(TILE)
    }

    /// The registers of a tile, in order; of fewer than a tile the rest is left as it is.
    fn unpack(&self, tile: usize, out: &mut [u8; TILE]) {
        let layout = self.layout();
        if layout.lanes() < LANES {
            for (index, value) in out.iter_mut().take(1 << self.log2m).enumerate() {
                let Place { byte, shift } = layout.place(index);
                *value = read(&self.bytes, layout, byte, shift).unwrap_or((0, 0)).1;
            }
            return;
        }
        let (rows, _) = self.bytes.as_chunks::<LANES>();
        with_width!(self.regwidth, WIDTH => {
            if let Some(rows) = rows.as_chunks::<WIDTH>().0.get(tile) {
                unpack_tile(rows, out);
            }
        });
    }

    /// Calls `take` with every tile's registers and the index of the first of them.
    fn for_each_tile(&self, mut take: impl FnMut(usize, &[u8])) {
        let mut values = [0; TILE];
        let in_tile = TILE.min(1 << self.log2m);
        for tile in 0..self.tile_count() {
            self.unpack(tile, &mut values);
            take(tile * TILE, &values[..in_tile]);
        }
    }

    /// Calls `take` with every register above 0, ascending by index.
    pub(super) fn for_each_filled(&self, mut take: impl FnMut(usize, u8)) {
        self.for_each_tile(|first, values| {
            for (at, &value) in values.iter().enumerate().filter(|&(_, &value)| value > 0) {
                take(first + at, value);
            }
        });
    }

    /// How many registers hold each value. Cost: constant, after a merge or reading O(m) once.
    pub(super) fn counts(&self) -> &[u32] {
        self.counts.get_or_init(|| {
            // Four of each: neighbours that are alike would wait for one another.
            let mut counts = [[0u32; 256]; 4];
            self.for_each_tile(|_, values| {
                let (fours, _) = values.as_chunks::<4>();
                for four in fours {
                    for (counts, value) in counts.iter_mut().zip(four) {
                        counts[usize::from(*value)] += 1;
                    }
                }
            });
            let sum = |value| counts.iter().map(|counts| counts[value]).sum();
            (0..1usize << self.regwidth).map(sum).collect()
        })
    }

    /// How many registers are above 0.
    pub(super) fn filled(&self) -> usize {
        let Some(counts) = self.counts.get() else {
            let mut filled = 0;
            self.for_each_tile(|_, values| {
                // At most 32 of 32, which fit a byte.
                for lanes in values.chunks(LANES) {
                    filled +=
                        usize::from(lanes.iter().map(|value| u8::from(*value > 0)).sum::<u8>());
                }
            });
            return filled;
        };
        (1usize << self.log2m) - counts[0] as usize
    }

    /// Appends FULL's data: regwidth bits each, most significant first.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        with_width!(self.regwidth, WIDTH => self.for_each_tile(|_, values| {
            let mut bytes = [0; TILE];
            let (eights, _) = values.as_chunks::<8>();
            for (eight, bytes) in eights.iter().zip(bytes.chunks_exact_mut(WIDTH)) {
                let word = eight.iter().fold(0, |word: u64, &value| word << WIDTH | u64::from(value));
                bytes.copy_from_slice(&word.to_be_bytes()[8 - WIDTH..]);
            }
            out.extend_from_slice(&bytes[..values.len() / 8 * WIDTH]);
        }));
    }

    /// Reads FULL's data, exactly as many bytes as it has.
    pub(super) fn read(params: HllParams, data: &[u8]) -> Self {
        let mut registers = Registers::uncounted(params);
        let mut values = [0; TILE];
        let in_tile = TILE.min(1 << params.log2m);
        with_width!(params.regwidth, WIDTH => {
            let tiles = data.chunks_exact(in_tile / 8 * WIDTH);
            for (tile, data) in tiles.enumerate() {
                let (eights, _) = values.as_chunks_mut::<8>();
                for (eight, bytes) in eights.iter_mut().zip(data.as_chunks::<WIDTH>().0) {
                    let mut word = [0; 8];
                    word[8 - WIDTH..].copy_from_slice(bytes);
                    let mut word = u64::from_be_bytes(word);
                    for value in eight.iter_mut().rev() {
                        *value = (word & ((1 << WIDTH) - 1)) as u8;
                        word >>= WIDTH;
                    }
                }
                registers.pack(tile, &values[..in_tile]);
            }
        });
        registers
    }

    /// Sets the registers of a tile, all 0 before.
    fn pack(&mut self, tile: usize, values: &[u8]) {
        let layout = self.layout();
        if let Ok(values) = <&[u8; TILE]>::try_from(values) {
            let (rows, _) = self.bytes.as_chunks_mut::<LANES>();
            with_width!(self.regwidth, WIDTH => {
                if let Some(rows) = rows.as_chunks_mut::<WIDTH>().0.get_mut(tile) {
                    vectorized(|| pack_tile(rows, values));
                }
            });
            return;
        }
        for (index, &value) in values.iter().enumerate() {
            raise(&mut self.bytes, layout, index, value, None);
        }
    }
}

/// The two bytes that hold a register, as one number, and the register.
#[inline(always)]
fn read(bytes: &[u8], layout: Layout, byte: usize, shift: usize) -> Option<(u16, u8)> {
    let bytes = bytes.get(byte..=byte + layout.lanes())?;
    let pair = u16::from_le_bytes([*bytes.first()?, *bytes.last()?]);
    Some((pair, (pair >> shift & 0xff) as u8 & layout.mask()))
}

#[inline(always)]
fn raise(
    bytes: &mut [u8],
    layout: Layout,
    index: usize,
    value: u8,
    counts: Option<&mut Box<[u32]>>,
) {
    let Place { byte, shift } = layout.place(index);
    let Some((pair, before)) = read(bytes, layout, byte, shift) else { return };
    if value <= before {
        return;
    }
    let pair = pair & !(u16::from(layout.mask()) << shift) | u16::from(value) << shift;
    let [low, high] = pair.to_le_bytes();
    bytes[byte] = low;
    bytes[byte + layout.lanes()] = high;
    if let Some(counts) = counts {
        counts[usize::from(before)] -= 1;
        counts[usize::from(value)] += 1;
    }
}

/// The byte row and the bit at which a row's registers begin, and whether they end in the next.
const fn row_place(row: usize, width: usize) -> (usize, usize, bool) {
    let bit = row * width;
    (bit / 8, bit % 8, bit % 8 + width > 8)
}

/// Calls `$body` for each of a tile's rows with `$row` as a constant.
macro_rules! for_each_row {
    ($row:ident => $body:expr) => {{
        macro_rules! of {
            ($value:literal) => {{
                const $row: usize = $value;
                $body
            }};
        }
        of!(0);
        of!(1);
        of!(2);
        of!(3);
        of!(4);
        of!(5);
        of!(6);
        of!(7);
    }};
}

#[inline(always)]
fn unpack_row<const WIDTH: usize, const ROW: usize>(tile: &[[u8; LANES]; WIDTH]) -> [u8; LANES] {
    let (byte, shift, straddles) = const { row_place(ROW, WIDTH) };
    let mut values = tile[byte];
    for value in &mut values {
        *value >>= shift;
    }
    if straddles {
        for (value, more) in values.iter_mut().zip(&tile[byte + 1]) {
            *value |= more << (8 - shift);
        }
    }
    for value in &mut values {
        *value &= const { u8::MAX >> (8 - WIDTH) };
    }
    values
}

/// Sets a row's registers where all bits are 0.
#[inline(always)]
fn pack_row<const WIDTH: usize, const ROW: usize>(
    tile: &mut [[u8; LANES]; WIDTH],
    values: &[u8; LANES],
) {
    let (byte, shift, straddles) = const { row_place(ROW, WIDTH) };
    for (place, value) in tile[byte].iter_mut().zip(values) {
        *place |= value << shift;
    }
    if straddles {
        for (place, value) in tile[byte + 1].iter_mut().zip(values) {
            *place |= value >> (8 - shift);
        }
    }
}

#[inline(always)]
fn unpack_tile<const WIDTH: usize>(tile: &[[u8; LANES]; WIDTH], out: &mut [u8; TILE]) {
    let (rows, _) = out.as_chunks_mut::<LANES>();
    for_each_row!(ROW => rows[ROW] = unpack_row::<WIDTH, ROW>(tile));
}

#[inline(always)]
fn pack_tile<const WIDTH: usize>(tile: &mut [[u8; LANES]; WIDTH], values: &[u8; TILE]) {
    let (rows, _) = values.as_chunks::<LANES>();
    // On the side: in place, every row would wait for what the one before has written.
    let mut packed = [[0; LANES]; WIDTH];
    for_each_row!(ROW => pack_row::<WIDTH, ROW>(&mut packed, &rows[ROW]));
    *tile = packed;
}

#[inline(always)]
fn raise_tile<const WIDTH: usize>(tile: &mut [[u8; LANES]; WIDTH], other: &[[u8; LANES]; WIDTH]) {
    let mut raised = [[0; LANES]; WIDTH];
    for_each_row!(ROW => {
        let mut values = unpack_row::<WIDTH, ROW>(tile);
        for (value, more) in values.iter_mut().zip(unpack_row::<WIDTH, ROW>(other)) {
            *value = more.max(*value);
        }
        pack_row::<WIDTH, ROW>(&mut raised, &values);
    });
    *tile = raised;
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
                assert!(left.heap_bytes() <= params.full_bytes() + LANES + 1024);
            }
        }
    }
}
