//! Quantiles of floats from a histogram whose bins do not depend on the order of the values.
//!
//! A float's bits, with the sign folded in, are an integer that orders as the floats do: its
//! *key*. A histogram at level L counts the values by `key >> L`. Level 0 counts every distinct
//! value separately. When the bins exceed their budget, the level rises by one, which merges bins in
//! pairs, until they fit.
//!
//! ```text
//! key       sign ┊ exponent, 11 bits ┊ mantissa, 52 bits          −∞ < … < 0 < … < +∞
//! level 0   ├──────────────────────── 64 bits ─────────────────┤  one bin per value
//! level 1   ├──────────────────────── 63 bits ───────────────┤    one bin per 2 neighbouring floats
//! level 45  ├──────── 19 bits ────────┤                           a bin is 1/128 of an octave wide
//!
//! state     bins, ascending (key >> L, count) … ┊ buffer of raw keys >> L, unsorted
//! ```
//!
//! **The final state is a function of the multiset of values alone.** At a given level the bins are, by
//! definition, a function of the multiset. The final level is the smallest at which they fit: let d(S, L) be
//! the number of bins of multiset S at level L. It never grows with L, because a bin at L + 1 contains every
//! bin at L that it overlaps. While values arrive in any order and grouping, the level rises from L to L + 1
//! only if d(S, L) > budget for the values S seen by some part so far. S is a subset of the whole M, so d(M,
//! L) ≥ d(S, L) > budget: M does not fit at L either, and no part ever rises above M's level. The merged
//! state reaches that level, because M's bins must fit in the end. The same holds for merges of different
//! budgets, where the smaller one applies: bins that exceed the larger budget exceed the smaller one too. The
//! smallest and the largest value are stored separately and are functions of the multiset too.
//!
//! An answer therefore comes with an interval that *certainly* contains the exact one, without
//! a probability: the bounds of the bins that the quantile falls into. The width of a bin follows from
//! the data: 2,048 bins over a day of epoch seconds are 64 seconds wide; over a million values
//! spread evenly between 0 and 1 they are 0.8% of the value wide; over n octaves (powers of two)
//! between n/2048 and twice that.
//!
//! Values first enter a buffer that grows with the state. A full buffer is sorted and
//! folded into the bins in one pass over both. A bin takes 16 bytes and a key in the buffer 8, so
//! a state of up to 256 values has no bins at all, unless most of its values repeat. It is
//! a list: a merge concatenates two lists, and a query sorts or selects in a copy on the stack.
//!
//! Related: HdrHistogram (fixed precision over a fixed range), DDSketch (Masson, Rim and Lee
//! 2019: logarithmic bins of fixed relative width, collapsed at one end), UDDSketch (Epicoco
//! et al. 2020: collapses all bins in pairs, the same step as here). This sketch differs in that it
//! starts from exact values and that its bins are prefixes of the float itself: no
//! logarithm, one scheme for negative, zero, subnormal and infinite values, and no accuracy to
//! choose in advance.

use std::borrow::Cow;

use crate::SketchError;
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "quantiles";
const HEADER: u8 = 0x21;

const MAX_BINS_DEFAULT: u32 = 2048;
const MAX_BINS_LOG2_MIN: u8 = 4;
const MAX_BINS_LOG2_MAX: u8 = 20;

/// Maximum level: at 64 − 4 there are at most 16 bins, the smallest possible budget.
const LEVEL_MAX: u8 = 64 - MAX_BINS_LOG2_MIN;

/// Capacities of the buffer in keys: from the first value on, with few bins, and with no bins.
const BUFFER_KEYS_MIN: usize = 4;
const BUFFER_KEYS_FEW_BINS: usize = 64;
const BUFFER_KEYS_NO_BINS: usize = 256;

const KEY_NEGATIVE_INFINITY: u64 = key_from_float(f64::NEG_INFINITY);
const KEY_INFINITY: u64 = key_from_float(f64::INFINITY);
const KEY_ZERO: u64 = key_from_float(0.0);
/// Key of the smallest positive normal float.
const KEY_MIN_POSITIVE: u64 = key_from_float(f64::MIN_POSITIVE);
/// Key that −0.0 would have; −0.0 counts as 0.0.
const KEY_NEGATIVE_ZERO: u64 = key_from_float(0.0) - 1;

/// Rounds up to the next of 4, 6, 8, 12, 16, 24, …, so that growing states free buffers of sizes that other
/// growing states request.
fn round_up_to_size_class(size: usize) -> usize {
    let power = size.next_power_of_two();
    if size <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// Returns the integer that orders as the float does.
const fn key_from_float(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Returns the float of a key; −0.0 becomes 0.0.
const fn float_from_key(key: u64) -> f64 {
    let bits = if key >> 63 == 1 { key & !(1 << 63) } else { !key };
    f64::from_bits(bits) + 0.0
}

/// A bin: the values whose keys share their leading 64 − level bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QuantileBin {
    key: u64,
    count: u64,
}

/// Quantiles of floats: exact up to a number of distinct values, beyond that each within a guaranteed
/// interval.
///
/// The state is a function of the multiset of values: order and grouping of adds and merges
/// leave no trace. −0.0 counts as 0.0; infinities are values; NaNs are counted separately and are
/// part of no quantile. Up to 2^64 − 1 values.
///
/// Memory: none while empty, 32 bytes for up to four values, 8 to 12 a value up to 256, then at most
/// 22 a bin: 44 KiB with the default of 2,048 bins. Cost of an add: 10 to 20 ns; 1 to 2 ns for many values at
/// once added to a small state.
///
/// ```
/// use tidemill_sketch::Quantiles;
/// let mut latency_ms = Quantiles::default();
/// for request in 1..=1000 {
///     latency_ms.add(f64::from(request));
/// }
/// assert_eq!(latency_ms.quantile(0.5), Some(500.5));
/// assert_eq!(latency_ms.quantile_interval(0.5), Some((500.5, 500.5)));
/// assert!(latency_ms.is_exact());
/// ```
#[derive(Debug, Clone)]
pub struct Quantiles {
    /// Ascending by key, without duplicates; at most `1 << max_bins_log2`.
    bins: Vec<QuantileBin>,
    /// Keys at the current level that are not yet in the bins.
    buffer: Vec<u64>,
    /// Number of values in bins and buffer together.
    count: u64,
    nan_count: u64,
    /// Smallest and largest key, unshifted; meaningless while `count` is 0.
    min_key: u64,
    max_key: u64,
    max_bins_log2: u8,
    level: u8,
}

impl Default for Quantiles {
    fn default() -> Self {
        Quantiles {
            bins: Vec::new(),
            buffer: Vec::new(),
            count: 0,
            nan_count: 0,
            min_key: u64::MAX,
            max_key: 0,
            max_bins_log2: (MAX_BINS_DEFAULT.trailing_zeros() & 0xff) as u8,
            level: 0,
        }
    }
}

/// Two states are equal if they have the same budget and indistinguishable values.
impl PartialEq for Quantiles {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.folded_state(), other.folded_state());
        a.bins == b.bins
            && a.nan_count == b.nan_count
            && a.level == b.level
            && a.max_bins_log2 == b.max_bins_log2
            && (a.count == 0 || (a.min_key, a.max_key) == (b.min_key, b.max_key))
    }
}

impl Eq for Quantiles {}

impl Quantiles {
    /// Creates an empty state of at most `max_bins` bins: a power of two from 16 to 1,048,576.
    /// [`Quantiles::default`] has 2,048.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(max_bins: u32) -> Result<Self, SketchError> {
        let log2 = (max_bins.trailing_zeros() & 0xff) as u8;
        if !max_bins.is_power_of_two() || !(MAX_BINS_LOG2_MIN..=MAX_BINS_LOG2_MAX).contains(&log2) {
            return Err(SketchError::ParameterOutOfRange {
                name: "max_bins",
                found: max_bins.into(),
                min: 1 << MAX_BINS_LOG2_MIN,
                max: 1 << MAX_BINS_LOG2_MAX,
                hint: "\nhint: it must be a power of two; 2048 is the default",
            });
        }
        Ok(Quantiles { max_bins_log2: log2, ..Quantiles::default() })
    }

    /// Returns the maximum number of bins, which a merge may have reduced.
    #[must_use]
    pub fn max_bins(&self) -> u32 {
        1 << self.max_bins_log2
    }

    /// Adds one value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        if value.is_nan() {
            self.nan_count = self.nan_count.saturating_add(1);
            return;
        }
        let key = key_from_float(value + 0.0);
        self.min_key = self.min_key.min(key);
        self.max_key = self.max_key.max(key);
        self.count = self.count.saturating_add(1);
        self.push_key(key);
    }

    /// Adds values: equivalent to a call of [`Quantiles::add`] for each.
    pub fn add_all(&mut self, mut values: &[f64]) {
        while !values.is_empty() {
            if self.buffer.len() == self.buffer.capacity() {
                self.make_room(values.len());
            }
            let room = self.buffer.capacity() - self.buffer.len();
            let (now, later) = values.split_at(room.min(values.len()));
            let count_before = self.buffer.len();
            let (level, mut min, mut max) = (self.level, self.min_key, self.max_key);
            self.buffer.extend(now.iter().filter(|value| !value.is_nan()).map(|value| {
                let key = key_from_float(value + 0.0);
                (min, max) = (min.min(key), max.max(key));
                key >> level
            }));
            (self.min_key, self.max_key) = (min, max);
            let added = self.buffer.len() - count_before;
            self.count = self.count.saturating_add(added as u64);
            self.nan_count = self.nan_count.saturating_add((now.len() - added) as u64);
            values = later;
        }
    }

    /// Adds one value `count` times: equivalent to `count` calls of [`Quantiles::add`].
    ///
    /// Cost: at most eight adds, or one insertion into the sorted bins: about 30 ns
    /// if the bin exists, otherwise up to a microsecond.
    pub fn add_repeated(&mut self, value: f64, count: u64) {
        if count <= 8 {
            for _ in 0..count {
                self.add(value);
            }
            return;
        }
        if value.is_nan() {
            self.nan_count = self.nan_count.saturating_add(count);
            return;
        }
        let key = key_from_float(value + 0.0);
        self.min_key = self.min_key.min(key);
        self.max_key = self.max_key.max(key);
        self.count = self.count.saturating_add(count);
        let key = key >> self.level;
        match self.bins.binary_search_by_key(&key, |bin| bin.key) {
            Ok(at) => self.bins[at].count = self.bins[at].count.saturating_add(count),
            Err(at) => {
                self.bins.insert(at, QuantileBin { key, count });
                self.raise_level_to_fit();
            }
        }
    }

    /// Appends a key of level 0 to the buffer.
    #[inline]
    fn push_key(&mut self, key: u64) {
        if self.buffer.len() == self.buffer.capacity() {
            self.make_room(1);
        }
        self.buffer.push(key >> self.level);
    }

    /// Appends keys of the given level, which is at most the state's own, to the buffer.
    fn extend_buffer(&mut self, mut keys: &[u64], level: u8) {
        while !keys.is_empty() {
            if self.buffer.len() == self.buffer.capacity() {
                self.make_room(keys.len());
            }
            let room = self.buffer.capacity() - self.buffer.len();
            let (now, later) = keys.split_at(room.min(keys.len()));
            let shift = self.level - level;
            self.buffer.extend(now.iter().map(|key| key >> shift));
            keys = later;
        }
    }

    /// Makes room in the full buffer, for `wanted` keys if possible. Grows the buffer while it is short
    /// compared to the number of bins that a fold would traverse; otherwise folds it.
    #[cold]
    fn make_room(&mut self, wanted: usize) {
        let room = self.buffer.len();
        let limit = match self.bins.len() {
            0 => BUFFER_KEYS_NO_BINS,
            bins => (bins / 4).max(BUFFER_KEYS_FEW_BINS),
        };
        if room < limit && !self.is_smaller_as_bins() {
            let longer =
                round_up_to_size_class((room + room / 4).max(room + wanted).max(BUFFER_KEYS_MIN));
            self.buffer.reserve_exact(longer.clamp(room + 1, limit) - room);
        } else {
            self.fold_buffer();
        }
    }

    /// Returns true if there are no bins, the buffer holds many keys, and bins would take less memory.
    fn is_smaller_as_bins(&mut self) -> bool {
        if !self.bins.is_empty() || self.buffer.len() < BUFFER_KEYS_FEW_BINS {
            return false;
        }
        // The buffer is sorted up to the previous check: the stable sort merges such runs efficiently.
        self.buffer.sort();
        let distinct = self.buffer.chunk_by(|a, b| a == b).count();
        distinct * size_of::<QuantileBin>() <= self.buffer.len() * size_of::<u64>()
    }

    /// Moves the buffer's keys into the bins.
    fn fold_buffer(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let are_first = self.bins.is_empty();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.sort_unstable();
        // Most keys find their bin; the others are collected at the buffer's front.
        let mut new = 0;
        let mut at = 0;
        for i in 0..buffer.len() {
            let key = buffer[i];
            while at < self.bins.len() && self.bins[at].key < key {
                at += 1;
            }
            match self.bins.get_mut(at) {
                Some(bin) if bin.key == key => bin.count = bin.count.saturating_add(1),
                _ => {
                    buffer[new] = key;
                    new += 1;
                }
            }
        }
        if new > 0 {
            let runs = buffer[..new].chunk_by(|a, b| a == b);
            let distinct = runs.clone().count();
            self.merge_bins(
                runs.map(|run| QuantileBin { key: run[0], count: run.len() as u64 }),
                distinct,
            );
        }
        buffer.clear();
        if are_first && buffer.capacity() > BUFFER_KEYS_FEW_BINS {
            buffer = Vec::with_capacity(BUFFER_KEYS_FEW_BINS);
        }
        self.buffer = buffer;
        self.raise_level_to_fit();
    }

    /// Merges `incoming`, ascending (equal keys allowed) and at the state's level, into the bins.
    /// `distinct` is an upper bound on the number of its keys without a bin.
    fn merge_bins(&mut self, incoming: impl Iterator<Item = QuantileBin>, distinct: usize) {
        let mut merged: Vec<QuantileBin> = Vec::with_capacity(self.bins.len() + distinct);
        let mut put = |bin: QuantileBin| match merged.last_mut() {
            Some(last) if last.key == bin.key => last.count = last.count.saturating_add(bin.count),
            _ => merged.push(bin),
        };
        let mut ours = self.bins.iter().copied().peekable();
        for bin in incoming {
            while let Some(earlier) = ours.next_if(|our| our.key <= bin.key) {
                put(earlier);
            }
            put(bin);
        }
        ours.for_each(put);
        self.bins = merged;
    }

    /// Raises the level until the bins fit.
    fn raise_level_to_fit(&mut self) {
        while self.bins.len() > 1 << self.max_bins_log2 {
            self.raise_level(self.level + 1);
        }
    }

    fn raise_level(&mut self, level: u8) {
        let shift = level - self.level;
        if shift == 0 {
            return;
        }
        self.level = level;
        for key in &mut self.buffer {
            *key >>= shift;
        }
        for bin in &mut self.bins {
            bin.key >>= shift;
        }
        self.bins.dedup_by(|bin, kept| {
            let same = bin.key == kept.key;
            if same {
                kept.count = kept.count.saturating_add(bin.count);
            }
            same
        });
    }

    /// Adds all values that `other` has seen. If the budgets differ, the smaller one applies.
    ///
    /// Cost: linear in the bins of both; for small states, in the values of the other.
    pub fn merge(&mut self, other: &Quantiles) {
        self.nan_count = self.nan_count.saturating_add(other.nan_count);
        self.max_bins_log2 = self.max_bins_log2.min(other.max_bins_log2);
        if self.count == 0 {
            let (nan_count, max_bins_log2) = (self.nan_count, self.max_bins_log2);
            *self = Quantiles { nan_count, max_bins_log2, ..other.clone() };
        } else if other.count > 0 {
            self.count = self.count.saturating_add(other.count);
            self.min_key = self.min_key.min(other.min_key);
            self.max_key = self.max_key.max(other.max_key);
            self.raise_level(self.level.max(other.level));
            if !other.bins.is_empty() {
                let shift = self.level - other.level;
                let incoming = other.bins.iter();
                self.merge_bins(
                    incoming.map(|bin| QuantileBin { key: bin.key >> shift, count: bin.count }),
                    other.bins.len(),
                );
            }
            self.extend_buffer(&other.buffer, other.level);
        }
        self.raise_level_to_fit();
    }

    /// Merges like [`Quantiles::merge`], in the memory of the state that owns more.
    pub fn merge_owned(&mut self, mut other: Quantiles) {
        if other.heap_bytes() > self.heap_bytes() {
            std::mem::swap(self, &mut other);
        }
        self.merge(&other);
    }

    /// Returns the number of values added, without NaNs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of NaNs added.
    #[must_use]
    pub fn nan_count(&self) -> u64 {
        self.nan_count
    }

    /// Returns the smallest value; `None` while empty.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then(|| float_from_key(self.min_key))
    }

    /// Returns the largest value; `None` while empty.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then(|| float_from_key(self.max_key))
    }

    /// Returns true if every quantile is exact: at most
    /// [`max_bins`](Quantiles::max_bins) distinct values were added.
    ///
    /// Cost: constant, occasionally one sort of the buffer.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.level == 0
            && (self.bins.len() + self.buffer.len() <= 1 << self.max_bins_log2
                || self.folded_state().level == 0)
    }

    /// Returns the value below which a share `q` of the values lies, from 0 (the smallest) to 1 (the
    /// largest).
    ///
    /// With the n values in order, the quantile is the value at position h = q·(n − 1), counted from 0,
    /// interpolated linearly between its two neighbours unless h is whole: numpy's default
    /// and SQL's `percentile_cont`. Once the state is not exact, a bin's values are assumed to be spread
    /// evenly between its bounds; [`Quantiles::quantile_interval`] bounds the error.
    /// Between −∞ and +∞ there is no number to interpolate; the nearer of the two is returned.
    ///
    /// `None` if there are no values, or `q` is not between 0 and 1. Cost: a pass over the bins;
    /// for several quantiles use [`Quantiles::quantiles`].
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let mut answer = None;
        self.for_each_quantile(&[QuantileLevel::new(q)], |quantile| answer = quantile);
        answer
    }

    /// Returns several quantiles in one pass over the bins: [`Quantiles::quantile`] of each.
    #[must_use]
    pub fn quantiles(&self, qs: &[f64]) -> Vec<Option<f64>> {
        let shares: Vec<_> = qs.iter().map(|&q| QuantileLevel::new(q)).collect();
        let mut answers = Vec::with_capacity(shares.len());
        self.for_each_quantile(&shares, |quantile| answers.push(quantile));
        answers
    }

    /// Calls `answer` with the [quantile](Quantiles::quantile) at each of `shares`. Meant for the same
    /// quantiles of many states: a small state needs no memory for it.
    pub fn for_each_quantile(
        &self,
        shares: &[Option<QuantileLevel>],
        mut answer: impl FnMut(Option<f64>),
    ) {
        let mut stack = [0; BUFFER_KEYS_NO_BINS];
        let Some(keys) = self.copy_buffered_keys(&mut stack) else {
            let folded = self.folded_state();
            let ranks = BinRanks::new(&folded);
            return shares.iter().for_each(|share| answer(ranks.quantile(*share)));
        };
        let last = keys.len() - 1;
        let place = |rank: u64| usize::try_from(rank).unwrap_or(last).min(last);
        if let &[share] = shares {
            return answer(neighbor_ranks(self.count, share).map(|(below, above, between)| {
                let (below, above) = (place(below), place(above));
                let (_, &mut a, larger) = keys.select_nth_unstable(below);
                let next = larger.iter().copied().min().filter(|_| above > below);
                interpolate(float_from_key(a), float_from_key(next.unwrap_or(a)), between)
            }));
        }
        keys.sort_unstable();
        for share in shares {
            answer(neighbor_ranks(self.count, *share).map(|(below, above, between)| {
                let (a, b) = (keys[place(below)], keys[place(above)]);
                interpolate(float_from_key(a), float_from_key(b), between)
            }));
        }
    }

    /// Copies the keys to `stack`, in any order, if there are any, all in the buffer, and they fit at level
    /// 0.
    fn copy_buffered_keys<'a>(
        &self,
        stack: &'a mut [u64; BUFFER_KEYS_NO_BINS],
    ) -> Option<&'a mut [u64]> {
        let are_few = (1..=1 << self.max_bins_log2).contains(&self.buffer.len());
        if self.level > 0 || !self.bins.is_empty() || !are_few {
            return None;
        }
        let keys = stack.get_mut(..self.buffer.len())?;
        keys.copy_from_slice(&self.buffer);
        Some(keys)
    }

    /// Returns the lowest and highest possible value of the exact quantile, which certainly lies
    /// between them, ends included.
    ///
    /// While exact, both are the quantile itself. `None` as for [`Quantiles::quantile`].
    ///
    /// ```
    /// use tidemill_sketch::Quantiles;
    /// let mut quantiles = Quantiles::new(1024)?;
    /// for i in 0..=100_000 {
    ///     quantiles.add(f64::from(i).sqrt());
    /// }
    /// let (low, high) = quantiles.quantile_interval(0.25).unwrap();
    /// assert!(low <= 25_000f64.sqrt() && 25_000f64.sqrt() <= high);
    /// assert!(high / low < 1.01);
    /// # Ok::<(), tidemill_sketch::SketchError>(())
    /// ```
    #[must_use]
    pub fn quantile_interval(&self, q: f64) -> Option<(f64, f64)> {
        let folded = self.folded_state();
        BinRanks::new(&folded).interval(QuantileLevel::new(q))
    }

    /// Returns the maximum rank error of [`Quantiles::quantile`] as a share of all values: the share of the
    /// bin that holds the quantile.
    ///
    /// 0 while exact, and for the smallest and the largest value. `None` as for [`Quantiles::quantile`].
    #[must_use]
    pub fn rank_error(&self, q: f64) -> Option<f64> {
        let folded = self.folded_state();
        let (below, above, between) = neighbor_ranks(folded.count, QuantileLevel::new(q))?;
        let ranks = BinRanks::new(&folded);
        let above = if between.numerator == 0 { below } else { above };
        let count = ranks.bin_count_at_rank(below).max(ranks.bin_count_at_rank(above));
        Some(count as f64 / folded.count as f64)
    }

    /// Returns the number of values that are at most `value`: exact while the state is. Beyond that, the
    /// values of the bin that `value` lies in are assumed to be spread evenly, so the error is at most the
    /// bin's count.
    ///
    /// 0 for a NaN. Cost: a pass over the bins.
    ///
    /// ```
    /// let mut latency_ms = tidemill_sketch::Quantiles::default();
    /// latency_ms.add_all(&[0.0, 1.0, 1.5, 4.0, 10.0]);
    /// assert_eq!(latency_ms.count_at_most(1.5), 3.0);
    /// ```
    #[must_use]
    pub fn count_at_most(&self, value: f64) -> f64 {
        if value.is_nan() || self.count == 0 {
            return 0.0;
        }
        let key = key_from_float(value + 0.0);
        let folded = self.folded_state();
        let mut count = 0.0;
        for bin in &folded.bins {
            let start = (bin.key << folded.level).max(folded.min_key);
            let end = bin_last_key(bin.key, folded.level).min(folded.max_key);
            if key < start {
                break;
            }
            let all = bin.count as f64;
            // Share of the bin by keys, which differ by one from float to float.
            let inside = (key.min(end) - start) as f64 + 1.0;
            count += if key >= end { all } else { all * inside / ((end - start) as f64 + 1.0) };
        }
        count
    }

    /// Returns a histogram: at most `bars_max` bars of about equal width from the smallest to the largest
    /// finite value, ascending, each beginning where the one before ends.
    ///
    /// A bar counts the values from its `low` on and below its `high`; the last one includes its `high`.
    /// **The counts are exact.** While the state is exact, the widths are equal. Beyond that each edge moves
    /// to the nearest edge of a bin, and bars without width are left out. (A bin is usually much narrower
    /// than a bar. For values close to 0 among large ones it is the other way round, and those edges stay in
    /// place.) Bars without values are included. If all finite values are equal, the single bar has that
    /// value as `low` and `high`.
    ///
    /// NaNs are left out ([`Quantiles::nan_count`] counts them). Infinities have bars of their own, beyond
    /// `bars_max`: before the first one with −∞ as its `low`, after the last one with ∞ as its `high`. The
    /// other end of these bars is infinite too, or the end of the bin if the spread is so large that a bin
    /// holds finite values with infinities.
    ///
    /// Empty without values; no bars of finite values if `bars_max` is 0. Cost: a pass over the bins and the
    /// bars.
    ///
    /// ```
    /// use tidemill_sketch::{HistogramBar, Quantiles};
    /// let mut latency_ms = Quantiles::default();
    /// latency_ms.add_all(&[0.0, 1.0, 1.5, 4.0, 10.0]);
    /// let bars = latency_ms.histogram(2);
    /// assert_eq!(bars[0], HistogramBar { low: 0.0, high: 5.0, count: 4 });
    /// assert_eq!(bars[1], HistogramBar { low: 5.0, high: 10.0, count: 1 });
    /// ```
    #[must_use]
    pub fn histogram(&self, bars_max: usize) -> Vec<HistogramBar> {
        let folded = self.folded_state();
        let state = &*folded;
        let level = state.level;
        let (mut bins, mut before, mut after) = (&state.bins[..], None, None);
        if state.count > 0
            && state.min_key == KEY_NEGATIVE_INFINITY
            && let Some((bin, rest)) = bins.split_first()
        {
            let high = float_from_key(bin_last_key(bin.key, level));
            before = Some(HistogramBar { low: f64::NEG_INFINITY, high, count: bin.count });
            bins = rest;
        }
        if state.count > 0
            && state.max_key == KEY_INFINITY
            && let Some((bin, rest)) = bins.split_last()
        {
            let low = float_from_key(bin.key << level);
            after = Some(HistogramBar { low, high: f64::INFINITY, count: bin.count });
            bins = rest;
        }
        let finite = self::build_bars(bins, level, (state.min_key, state.max_key), bars_max);
        before.into_iter().chain(finite).chain(after).collect()
    }

    /// Moves the buffer into the bins, so that queries need not do it each time.
    ///
    /// Changes no answer. Cost: one sort of at most a quarter as many keys as there are bins.
    pub fn compact(&mut self) {
        self.fold_buffer();
        self.buffer = Vec::new();
        self.bins.shrink_to_fit();
    }

    /// Returns the state with an empty buffer: itself, or a folded copy.
    fn folded_state(&self) -> Cow<'_, Self> {
        if self.buffer.is_empty() {
            Cow::Borrowed(self)
        } else {
            let mut folded = self.clone();
            folded.fold_buffer();
            Cow::Owned(folded)
        }
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.bins.capacity() * size_of::<QuantileBin>() + self.buffer.capacity() * size_of::<u64>()
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    ///
    /// A bin takes 2 to 5 bytes if values are small integers or the level is above 0, up to
    /// 11 for arbitrary floats.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut stack = [0; BUFFER_KEYS_NO_BINS];
        if let Some(keys) = self.copy_buffered_keys(&mut stack) {
            keys.sort_unstable();
            let runs = keys.chunk_by(|a, b| a == b);
            let bins = runs.map(|run| QuantileBin { key: run[0], count: run.len() as u64 });
            return self.write_bins(bins.clone(), bins.count(), out);
        }
        let state = self.folded_state();
        state.write_bins(state.bins.iter().copied(), state.bins.len(), out);
    }

    /// Appends the encoding of `bins`, which are the whole state at its level.
    fn write_bins(
        &self,
        mut bins: impl Iterator<Item = QuantileBin> + Clone,
        bin_count: usize,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&[HEADER, self.max_bins_log2, self.level]);
        put_varint(out, self.nan_count);
        put_varint(out, bin_count as u64);
        let Some(first) = bins.clone().next() else { return };
        // Floats that are small integers differ in their high bits only.
        let trailing_zeros = common_trailing_zeros(bins.clone());
        out.push(trailing_zeros);
        let (mut next, mut last) = (0, first);
        for bin in &mut bins {
            let key = bin.key >> trailing_zeros;
            put_varint(out, key - next);
            put_varint(out, bin.count);
            next = key + 1;
            last = bin;
        }
        if self.level > 0 {
            put_varint(out, self.min_key - (first.key << self.level));
            put_varint(out, bin_last_key(last.key, self.level) - self.max_key);
        }
    }

    /// Reads a state that [`Quantiles::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is bounded by eight times the input.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x21 (version 1)")?;
        let mut state = Quantiles { max_bins_log2: reader.read_u8()?, ..Quantiles::default() };
        if !(MAX_BINS_LOG2_MIN..=MAX_BINS_LOG2_MAX).contains(&state.max_bins_log2) {
            return Err(reader.corrupt_error("the number of bins allowed is not 2^4 to 2^20"));
        }
        state.level = reader.read_u8()?;
        if state.level > LEVEL_MAX {
            return Err(reader.corrupt_error("the level is above 60"));
        }
        state.nan_count = reader.read_varint()?;
        let bin_count = reader.read_length(2)?;
        if bin_count > 1 << state.max_bins_log2 {
            return Err(reader.corrupt_error("more bins than allowed"));
        }
        if bin_count > 0 {
            state.decode_bins(&mut reader, bin_count)?;
        } else if state.level > 0 {
            return Err(reader.corrupt_error("the level is above 0 without need"));
        }
        reader.expect_end()?;
        Ok(state)
    }

    /// Converts bins at level 0 back to a list of values in the buffer, if that takes no more memory.
    fn convert_to_buffer(&mut self) {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        if count <= BUFFER_KEYS_NO_BINS.min(2 * self.bins.len()) {
            self.buffer.reserve_exact(count);
            for bin in std::mem::take(&mut self.bins) {
                self.buffer.extend((0..bin.count).map(|_| bin.key));
            }
        }
    }

    fn decode_bins(
        &mut self,
        reader: &mut StateReader<'_>,
        bin_count: usize,
    ) -> Result<(), SketchError> {
        let trailing_zeros = reader.read_u8()?;
        if trailing_zeros > 63 {
            return Err(reader.corrupt_error("a shift of 64 or more"));
        }
        let key_max = KEY_INFINITY >> self.level >> trailing_zeros;
        self.bins.reserve_exact(bin_count);
        // Maximum number of distinct keys one level below.
        let mut distinct_before = 0;
        let mut next = Some(0u64);
        for _ in 0..bin_count {
            let gap = reader.read_varint()?;
            let key = next.and_then(|next| next.checked_add(gap));
            let Some(key) = key.filter(|&key| key <= key_max) else {
                return Err(reader.corrupt_error("a bin lies above all floats"));
            };
            next = key.checked_add(1);
            let key = key << trailing_zeros;
            if key < KEY_NEGATIVE_INFINITY >> self.level {
                return Err(reader.corrupt_error("a bin lies below all floats"));
            }
            if self.level == 0 && key == KEY_NEGATIVE_ZERO {
                return Err(reader.corrupt_error("a bin for negative zero"));
            }
            let count = reader.read_varint()?;
            if count == 0 {
                return Err(reader.corrupt_error("an empty bin"));
            }
            self.count = match self.count.checked_add(count) {
                Some(count) => count,
                None => return Err(reader.corrupt_error("more than 2^64 - 1 values")),
            };
            distinct_before += count.min(2);
            self.bins.push(QuantileBin { key, count });
        }
        if trailing_zeros != common_trailing_zeros(self.bins.iter().copied()) {
            return Err(reader.corrupt_error("keys are not shifted as far as they could be"));
        }
        let (first, last) = (self.bins[0].key, self.bins[bin_count - 1].key);
        if self.level == 0 {
            (self.min_key, self.max_key) = (first, last);
            self.convert_to_buffer();
            return Ok(());
        }
        if distinct_before <= 1 << self.max_bins_log2 {
            return Err(reader.corrupt_error("the level is above 0 without need"));
        }
        let (start, end) = (first << self.level, bin_last_key(last, self.level));
        self.min_key = start.saturating_add(reader.read_varint()?);
        self.max_key = end.saturating_sub(reader.read_varint()?);
        let holds = |bin: u64, key: u64| {
            key >> self.level == bin
                && (KEY_NEGATIVE_INFINITY..=KEY_INFINITY).contains(&key)
                && key != KEY_NEGATIVE_ZERO
        };
        if !holds(first, self.min_key) || !holds(last, self.max_key) {
            return Err(reader.corrupt_error("the smallest or largest value lies outside its bin"));
        }
        Ok(())
    }
}

/// A bar of [`Quantiles::histogram`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramBar {
    /// Smallest value that the bar may hold.
    pub low: f64,
    /// Exclusive upper end; inclusive for the last bar and if `low` is equal.
    pub high: f64,
    /// Number of values in the bar.
    pub count: u64,
}

/// Returns the bars of bins without infinities. `min_key` and `max_key` apply if they lie within the bins.
fn build_bars(
    bins: &[QuantileBin],
    level: u8,
    (min_key, max_key): (u64, u64),
    bars_max: usize,
) -> Vec<HistogramBar> {
    let (Some(first), Some(last)) = (bins.first(), bins.last()) else { return Vec::new() };
    if bars_max == 0 {
        return Vec::new();
    }
    let min_key = (first.key << level).max(min_key);
    let max_key = bin_last_key(last.key, level).min(max_key);
    let (min, max) = (float_from_key(min_key), float_from_key(max_key));
    let mut bars = Vec::new();
    let (mut low, mut bins) = (min, bins.iter().peekable());
    for bar in 1..=bars_max {
        let is_last = bar == bars_max || min == max;
        let (edge, high) = if is_last {
            (u64::MAX, max)
        } else {
            let share = bar as f64 / bars_max as f64;
            let edge = nearest_edge(min * (1.0 - share) + max * share, level);
            (edge >> level, float_from_key(edge))
        };
        // Skip an edge outside the values and a bar without width.
        if !is_last && (high <= low || high >= max) {
            continue;
        }
        let mut count = 0u64;
        while let Some(bin) = bins.next_if(|bin| bin.key < edge) {
            count = count.saturating_add(bin.count);
        }
        bars.push(HistogramBar { low, high, count });
        if is_last {
            break;
        }
        low = high;
    }
    bars
}

/// Returns the first key of the bin that holds `value`, or of the next bin, whichever is closer to `value`.
fn nearest_edge(value: f64, level: u8) -> u64 {
    let below = key_from_float(value + 0.0) >> level << level;
    let above = below.saturating_add(1 << level);
    let distance = |key: u64| (float_from_key(key) - value).abs();
    // A key above the largest float gives NaN, which compares as farther than any.
    if below < KEY_NEGATIVE_INFINITY || distance(above) < distance(below) { above } else { below }
}

/// Returns the last key of a bin.
fn bin_last_key(key: u64, level: u8) -> u64 {
    (key << level) | ((1 << level) - 1)
}

/// Returns the number of low bits that are zero in every bin's key; 0 if all bits are.
fn common_trailing_zeros(bins: impl Iterator<Item = QuantileBin>) -> u8 {
    match bins.fold(0, |bits, bin| bits | bin.key) {
        0 => 0,
        bits => (bits.trailing_zeros() & 0xff) as u8,
    }
}

/// Folded bins with cumulative counts, to find values by rank.
struct BinRanks<'a> {
    state: &'a Quantiles,
    ends: Vec<u64>,
}

impl<'a> BinRanks<'a> {
    fn new(state: &'a Quantiles) -> Self {
        let ends = state.bins.iter().scan(0u64, |end, bin| {
            *end = end.saturating_add(bin.count);
            Some(*end)
        });
        BinRanks { state, ends: ends.collect() }
    }

    /// Returns the number of values in the bin that holds a rank; 0 if the value of the rank is known
    /// exactly.
    fn bin_count_at_rank(&self, rank: u64) -> u64 {
        let state = self.state;
        if state.level == 0 || rank == 0 || rank == state.count - 1 {
            return 0;
        }
        let at = self.ends.partition_point(|&end| end <= rank).min(state.bins.len() - 1);
        state.bins[at].count
    }

    /// Returns the lowest and highest possible key of the value at a rank, and a representative key.
    fn key_range_at_rank(&self, rank: u64) -> (u64, u64, u64) {
        let state = self.state;
        if rank == 0 {
            return (state.min_key, state.min_key, state.min_key);
        }
        if rank == state.count - 1 {
            return (state.max_key, state.max_key, state.max_key);
        }
        let at = self.ends.partition_point(|&end| end <= rank).min(state.bins.len() - 1);
        let bin = state.bins[at];
        let low = (bin.key << state.level).max(state.min_key);
        let high = bin_last_key(bin.key, state.level).min(state.max_key);
        // The middle of the part of the bin that belongs to this rank. In keys, not values:
        // within an octave that is the same, and across octaves and up to infinity it is sound.
        let within = rank.saturating_sub(self.ends[at] - bin.count);
        let offset =
            u128::from(high - low) * (2 * u128::from(within) + 1) / (2 * u128::from(bin.count));
        #[expect(clippy::cast_possible_truncation, reason = "at most `high - low`")]
        let middle = match low {
            // Zeros, and subnormals that share their bin: a value of this size is taken as 0.
            KEY_ZERO if high < KEY_MIN_POSITIVE => low,
            _ => low + (offset as u64).min(high - low),
        };
        (low, high, middle)
    }

    fn quantile(&self, share: Option<QuantileLevel>) -> Option<f64> {
        let (below, above, between) = neighbor_ranks(self.state.count, share)?;
        let (.., a) = self.key_range_at_rank(below);
        let (.., b) = self.key_range_at_rank(above);
        Some(interpolate(float_from_key(a), float_from_key(b), between))
    }

    fn interval(&self, share: Option<QuantileLevel>) -> Option<(f64, f64)> {
        let (below, above, between) = neighbor_ranks(self.state.count, share)?;
        let (low_a, high_a, _) = self.key_range_at_rank(below);
        let (low_b, high_b, _) = self.key_range_at_rank(above);
        let bounds = (
            interpolate(float_from_key(low_a), float_from_key(low_b), between),
            interpolate(float_from_key(high_a), float_from_key(high_b), between),
        );
        if self.state.level == 0 || between.numerator == 0 {
            return Some(bounds);
        }
        // Interpolation rounds, here and in the exact answer: leave room for both.
        let room = |a: u64, b: u64| {
            4.0 * f64::EPSILON * float_from_key(a).abs().max(float_from_key(b).abs())
        };
        let (low, high) = (bounds.0 - room(low_a, low_b), bounds.1 + room(high_a, high_b));
        // Infinite room around an infinite bound gives NaN, hence no `clamp`.
        Some((low.max(float_from_key(low_a)), high.min(float_from_key(high_b))))
    }
}

/// A quantile's level as an exact fraction from 0 to 1: the share of values below it, computed once for many
/// states.
///
/// ```
/// use tidemill_sketch::{QuantileLevel, Quantiles};
/// let median = QuantileLevel::new(0.5);
/// assert!(median.is_some() && QuantileLevel::new(1.5).is_none());
/// let mut latency_ms = Quantiles::default();
/// latency_ms.add_all(&[3.0, 1.0, 2.0]);
/// latency_ms.for_each_quantile(&[median], |quantile| assert_eq!(quantile, Some(2.0)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantileLevel {
    numerator: u64,
    /// Not 0.
    denominator: u64,
}

impl QuantileLevel {
    /// Returns the decimal fraction that `q` is written as; `None` unless it is from 0 to 1.
    #[must_use]
    pub fn new(q: f64) -> Option<Self> {
        let (part, of) = if (0.0..=1.0).contains(&q) { decimal_fraction(q) } else { return None };
        Some(QuantileLevel { numerator: part, denominator: of })
    }

    /// Returns the same level counted from the other end: 1 minus this fraction.
    ///
    /// ```
    /// use tidemill_sketch::QuantileLevel;
    /// assert_eq!(QuantileLevel::new(0.1).map(QuantileLevel::complement), QuantileLevel::new(0.9));
    /// ```
    #[must_use]
    pub fn complement(self) -> Self {
        QuantileLevel {
            numerator: self.denominator - self.numerator,
            denominator: self.denominator,
        }
    }

    /// Returns the index of the discrete quantile among `count` sorted values: the first value that this
    /// share of all values does not exceed; `None` without values. It is exact: 0.55 of 100 values is the
    /// 55th.
    ///
    /// ```
    /// use tidemill_sketch::QuantileLevel;
    /// let share = QuantileLevel::new(0.55).unwrap();
    /// assert_eq!(share.discrete_index(100), Some(54));
    /// assert_eq!(share.discrete_index(0), None);
    /// ```
    #[must_use]
    pub fn discrete_index(self, count: u64) -> Option<u64> {
        let last = count.checked_sub(1)?;
        // Below 2^128: both are below 2^64.
        let place =
            (u128::from(self.numerator) * u128::from(count)).div_ceil(u128::from(self.denominator));
        Some(u64::try_from(place.max(1) - 1).unwrap_or(last).min(last))
    }

    /// Returns the quantile of ascending numbers, with NaN behind all others: the number at this share of the
    /// way from the first to the last, interpolated between two numbers and rounded once. `None` without
    /// numbers; NaN next to a NaN.
    ///
    /// ```
    /// use tidemill_sketch::QuantileLevel;
    /// let share = QuantileLevel::new(0.25).unwrap();
    /// assert_eq!(share.quantile_of_sorted(&[1.0, 2.0, 3.0, 4.0]), Some(1.75));
    /// ```
    #[must_use]
    pub fn quantile_of_sorted(self, sorted: &[f64]) -> Option<f64> {
        let (below, above, between) = neighbor_ranks(sorted.len() as u64, Some(self))?;
        let number = |index: u64| Some(sorted[usize::try_from(index).ok()?]);
        Some(interpolate_or_nan(number(below)?, number(above)?, between))
    }

    /// Returns [`QuantileLevel::quantile_of_sorted`] of numbers in any order, and reorders them. Cost: one
    /// selection, O(n).
    #[must_use]
    pub fn select_quantile(self, numbers: &mut [f64]) -> Option<f64> {
        let (below, above, between) = neighbor_ranks(numbers.len() as u64, Some(self))?;
        for number in numbers.iter_mut() {
            // Zeros of both signs, and NaNs of both signs, sort as one value.
            *number = if number.is_nan() { f64::NAN } else { *number + 0.0 };
        }
        let index = usize::try_from(below).ok()?;
        let (_, &mut low, larger) = numbers.select_nth_unstable_by(index, f64::total_cmp);
        let high = match above > below {
            true => larger.iter().copied().min_by(f64::total_cmp)?,
            false => low,
        };
        Some(interpolate_or_nan(low, high, between))
    }
}

/// Interpolates like [`interpolate`] between numbers of which one may be NaN.
fn interpolate_or_nan(low: f64, high: f64, share: QuantileLevel) -> f64 {
    match share.numerator > 0 && (low.is_nan() || high.is_nan()) {
        true => f64::NAN,
        false => interpolate(low, high, share),
    }
}

/// Returns the ranks below and above a quantile of `count` values, counted from 0, and the quantile's
/// position between them.
fn neighbor_ranks(count: u64, share: Option<QuantileLevel>) -> Option<(u64, u64, QuantileLevel)> {
    let last = count.checked_sub(1)?;
    let QuantileLevel { numerator: part, denominator: of } = share?;
    // Both are below 2^64: `part` is at most `of`, which is a power of 10 or of 2.
    let position = u128::from(part) * u128::from(last);
    let below = u64::try_from(position / u128::from(of)).unwrap_or(last).min(last);
    let rest = u64::try_from(position % u128::from(of)).unwrap_or(0);
    Some((
        below,
        below.saturating_add(1).min(last),
        QuantileLevel { numerator: rest, denominator: of },
    ))
}

/// Converts a number from 0 to 1 to the fraction that its decimal notation states: 95/100 for 0.95, whose
/// nearest double differs slightly. A number too close to 0 for 19 digits becomes a multiple of 2^-63.
fn decimal_fraction(q: f64) -> (u64, u64) {
    const DIGITS_MAX: usize = 19;
    let text = format!("{q}");
    let decimal = match text.split_once('.') {
        None => None,
        Some((_, digits)) if digits.len() > DIGITS_MAX => None,
        Some((whole, digits)) => {
            let of = 10u64.checked_pow(u32::try_from(digits.len()).unwrap_or(u32::MAX));
            let part = format!("{whole}{digits}").parse::<u64>();
            of.and_then(|of| Some((part.ok().filter(|part| *part <= of)?, of)))
        }
    };
    match decimal {
        Some(fraction) => fraction,
        None if q == 0.0 || q == 1.0 => (u64::from(q == 1.0), 1),
        None => {
            const WHOLE: u64 = 1 << 63;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a product with a power of two from 0 to 2^63 is exact but for its end"
            )]
            let part = (q * WHOLE as f64) as u64;
            (part.min(WHOLE), WHOLE)
        }
    }
}

/// Returns the double nearest to the value at `share` of the way from `a` to `b`; `b` is at least `a`.
///
/// Computed in pairs of doubles whose sum is exact to about 106 bits, and rounded once: 17/20 of
/// the way from 83 to 84 is 83.85.
fn interpolate(a: f64, b: f64, share: QuantileLevel) -> f64 {
    const LARGE: f64 = 1e280;
    #[expect(clippy::cast_precision_loss, reason = "only to tell which half, and where huge")]
    let t = share.numerator as f64 / share.denominator as f64;
    if share.numerator == 0 || a == b {
        a
    } else if a.is_infinite() || b.is_infinite() {
        match (a.is_infinite(), b.is_infinite()) {
            (true, false) => a,
            (false, true) => b,
            _ if t < 0.5 => a,
            _ => b,
        }
    } else if a.abs().max(b.abs()) > LARGE {
        // Products with the numerator might overflow.
        a * (1.0 - t) + b * t
    } else {
        let difference = two_sum(b, -a);
        let product = multiply(difference, double_double_from_u64(share.numerator));
        let way = divide(product, double_double_from_u64(share.denominator));
        let (high, low) = two_sum(a, way.0);
        // Rounding must not leave the range of the two.
        (high + (low + way.1)).clamp(a, b)
    }
}

/// A number as the sum of two doubles, the second below half a unit in the first one's last place.
type DoubleDouble = (f64, f64);

fn two_sum(a: f64, b: f64) -> DoubleDouble {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

fn two_product(a: f64, b: f64) -> DoubleDouble {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

/// Returns a whole number exactly, as a pair of doubles.
#[expect(clippy::cast_precision_loss, reason = "each half has 32 bits")]
fn double_double_from_u64(number: u64) -> DoubleDouble {
    let (high, low) = (number >> 32, number & 0xFFFF_FFFF);
    two_sum(high as f64 * 4_294_967_296.0, low as f64)
}

fn multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble {
    let (high, low) = two_product(a.0, b.0);
    two_sum(high, low + (a.0 * b.1 + a.1 * b.0))
}

fn divide(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble {
    let first = a.0 / b.0;
    let (high, low) = multiply((first, 0.0), b);
    let rest = two_sum(a.0, -high);
    let rest = rest.0 + (rest.1 + (a.1 - low));
    two_sum(first, rest / b.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discrete_quantiles_of_exact_fractions_are_the_lower_value() {
        for (q, count, expected) in [
            (0.5, 4, 1),
            (0.25, 4, 0),
            (0.75, 4, 2),
            (0.0, 4, 0),
            (1.0, 4, 3),
            (0.5, 3, 1),
            (0.51, 4, 2),
            (0.1, 10, 0),
            (0.3, 10, 2),
            (0.7, 10, 6),
            (0.55, 100, 54),
            (0.07, 100, 6),
            (0.29, 100, 28),
            (1e-300, 4, 0),
            (1.0, u64::MAX, u64::MAX - 1),
        ] {
            let share = QuantileLevel::new(q).unwrap();
            assert_eq!(share.discrete_index(count), Some(expected), "{q} of {count}");
        }
    }

    #[test]
    fn quantiles_of_slices_equal_quantiles_of_a_state() {
        let numbers = [4.0, -0.0, 9.5, 1e300, -7.25, 0.0, 3.0];
        let mut state = Quantiles::default();
        state.add_all(&numbers);
        let mut sorted = numbers;
        sorted.sort_by(f64::total_cmp);
        for percent in 0..=100 {
            let q = f64::from(percent) / 100.0;
            let share = QuantileLevel::new(q).unwrap();
            assert_eq!(share.quantile_of_sorted(&sorted), state.quantile(q), "{q}");
            assert_eq!(share.select_quantile(&mut numbers.clone()), state.quantile(q), "{q}");
        }
        let half = QuantileLevel::new(0.5).unwrap();
        assert_eq!(half.select_quantile(&mut []), None);
        assert!(half.select_quantile(&mut [-f64::NAN, 1.0]).unwrap().is_nan());
        assert_eq!(half.select_quantile(&mut [-f64::NAN, 2.0, 1.0]), Some(2.0));
        assert_eq!(half.select_quantile(&mut [f64::INFINITY, 1.0]), Some(f64::INFINITY));
    }

    #[test]
    fn keys_order_as_floats_do() {
        let ascending = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -f64::MIN_POSITIVE,
            -5e-324,
            0.0,
            5e-324,
            1.0,
            f64::MAX,
            f64::INFINITY,
        ];
        for pair in ascending.windows(2) {
            assert!(key_from_float(pair[0]) < key_from_float(pair[1]), "{pair:?}");
        }
        for value in ascending {
            assert_eq!(float_from_key(key_from_float(value)).to_bits(), value.to_bits());
        }
        assert_eq!(float_from_key(KEY_NEGATIVE_ZERO).to_bits(), 0);
    }

    #[test]
    fn empty_state_owns_no_heap_memory_and_small_state_little() {
        let mut state = Quantiles::default();
        assert_eq!(state.heap_bytes(), 0);
        assert!(size_of::<Quantiles>() <= 88);
        state.add(1.0);
        assert_eq!(state.heap_bytes(), 32);
        for i in 0..1_000_000 {
            state.add(f64::from(i));
        }
        assert!(state.heap_bytes() <= (2048 + 512) * 16 + 512 * 8, "{}", state.heap_bytes());
    }

    #[test]
    fn interpolation_next_to_infinity_returns_an_endpoint() {
        let check = |a: f64, b: f64, t: f64, expect: f64| {
            let (part, of) = decimal_fraction(t);
            assert_eq!(
                interpolate(a, b, QuantileLevel { numerator: part, denominator: of }),
                expect,
                "{a} {b} {t}"
            );
        };
        let infinity = f64::INFINITY;
        check(-infinity, infinity, 0.25, -infinity);
        check(-infinity, infinity, 0.75, infinity);
        check(-infinity, 3.0, 0.99, -infinity);
        check(3.0, infinity, 0.01, infinity);
        check(3.0, infinity, 0.0, 3.0);
        check(f64::MIN, f64::MAX, 0.5, 0.0);
        check(1.0, 2.0, 0.5, 1.5);
    }

    #[test]
    fn fraction_is_the_decimal_that_is_written() {
        for (q, expect) in [
            (0.0, (0, 1)),
            (1.0, (1, 1)),
            (0.95, (95, 100)),
            (0.5, (5, 10)),
            (0.1 + 0.2, (30_000_000_000_000_004, 100_000_000_000_000_000)),
            (2f64.powi(-62), (2, 1 << 63)),
            (5e-324, (0, 1 << 63)),
        ] {
            assert_eq!(decimal_fraction(q), expect, "{q}");
        }
    }

    #[test]
    fn interpolation_between_integers_rounds_to_nearest_double() {
        for (last, q, expect) in [(99, 0.85, 84.15), (117, 0.95, 111.15), (3, 0.1, 0.3)] {
            let mut state = Quantiles::default();
            (0..=last).for_each(|value| state.add(f64::from(value)));
            assert_eq!(state.quantile(q), Some(expect));
        }
        let check = |a: f64, b: f64, part: u64, of: u64, expect: f64| {
            assert_eq!(
                interpolate(a, b, QuantileLevel { numerator: part, denominator: of }),
                expect,
                "{a} {b} {part}/{of}"
            );
        };
        check(83.0, 84.0, 85, 100, 83.85);
        check(-84.0, -83.0, 15, 100, -83.85);
        check(0.0, 5e-324, 5, 10, 0.0);
        check(9_007_199_254_740_991.0, 9_007_199_254_740_992.0, 1, 3, 9_007_199_254_740_991.0);
    }
}
