//! The Poisson bootstrap: the sum of a column and its sampling error.
//!
//! The rows are a sample; another sample would have had another sum. The bootstrap draws many samples from
//! the one at hand (*replicates*) and measures how much their sums differ. Efron's bootstrap draws n of n
//! rows with replacement and needs to know n and all rows. The Poisson bootstrap gives each row its own count
//! in each replicate, drawn from Poisson(1), and needs neither: the states of several parts merge by
//! addition.
//!
//! Rows of one *unit* (a user, a session) belong together and are drawn together; otherwise the interval is
//! too narrow. The counts are a pure function of the unit's hash, a seed and the replicate, and the sums are
//! exact. **So the state is a function of the multiset of rows alone**, in any order and grouping.
//!
//! ```text
//! key        k = f(unit XOR f(seed + 0x9e3779b97f4a7c15))          f: MurmurHash3's finalizer of 64 bits
//! pair i     a = low half of k + (i + 1) · 0x9e3779b9               in 32 bits
//!            a ^= a >> 16;  a *= 0x85ebca6b;  a ^= high half of k
//!            a ^= a >> 13;  a *= 0xc2b2ae35;  a ^= a >> 16          ├─ 16 bits u ─┼─ 16 bits u ─┤
//! replicate  of 32 together, the first 16 have the low u of pair 16·⌊r/32⌋ + r mod 16, the others its high u
//! count      how many of 41427, 17317, 5263, 1244, 240, 39, 5, 1 are above u
//! ```
//!
//! These thresholds are 65,536 times the probabilities that Poisson(1) is at least 1, 2, …, 8, rounded so
//! that the mean is exactly 1; the variance is 0.99997. A count above 8 has a probability of one in a million
//! and does not occur here.
//!
//! **The cost of a row** is `replicates` draws and twice as many additions. Products are exact in integers: a
//! mantissa is cut into two pieces of 27 bits, which are shifted to the next exponent that is a multiple of 5
//! and then have 32 bits. Each such exponent that occurs has a *line* of 64-bit accumulators, one for each
//! replicate. A line takes 2^28 rows and is then flushed into one [`FloatSum`] per replicate. All loops run
//! over neighbouring replicates and become vector code where the processor supports it. With AVX2 and 200
//! replicates a row of prices takes 210 ns, and a row of whole numbers below 1,000 takes 158 ns: 88 ns for
//! the draws, the rest for the additions. (`--example speed -- bootstrap`, on a machine with other load.) An
//! alternative took 240 ns for the draws alone: 64-bit words, each from a 128-bit product, for four draws.
//! One [`FloatSum`] per replicate took 4 ns a draw.
//!
//! Sources: Chamandy, Muralidharan, Najmi and Naidu, *Estimating uncertainty for massive data streams*
//! (2012), who introduced the method for logs; Sawzall's table `bootstrapsum`, where the weight names the
//! unit. This implementation draws two counts from one word by thresholds; a generator seeded for each row
//! would draw them one by one.

use std::borrow::Cow;

use crate::SketchError;
use crate::float_sum::{FloatSum, split_mantissa};
use crate::murmur3::finalize_mix;
use crate::simd::run_vectorized;
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "bootstrap";
const HEADER: u8 = 0xa1;

const REPLICATES_DEFAULT: u16 = 200;
const REPLICATES_MIN: u16 = 2;

/// Maximum number of rows that a state keeps as a list.
const LISTED_ROWS_MAX: usize = 64;

/// Number of replicates whose counts are drawn together.
const BLOCK_REPLICATES: usize = 32;

/// 2^16 times the probabilities of a count of at least 1, 2, ….
const POISSON_THRESHOLDS: [i32; 8] = [41427, 17317, 5263, 1244, 240, 39, 5, 1];

/// Distance between the exponents of two neighbouring lines.
const LINE_SPACING_EXPONENTS: i32 = 5;

/// Exponent of the lowest bit of any float, and of the first line.
const EXPONENT_MIN: i32 = -1074;

/// Number of bits in the lower piece of a mantissa.
const LOW_MANTISSA_BITS: i32 = 26;

/// Number of lines from the lowest exponent to the exponent of the largest float's upper piece.
const LINE_COUNT: usize =
    ((971 + LOW_MANTISSA_BITS - EXPONENT_MIN) / LINE_SPACING_EXPONENTS + 1) as usize;

/// Maximum number of lines in use at once.
const LINES_IN_USE_MAX: u8 = 24;

/// Number of rows after which the lines are flushed: below 2^63 / 2^31 / 8.
const ROWS_BEFORE_FLUSH_MAX: u32 = 1 << 28;

/// The key that draws a row's counts, and the bits of the row's value.
type KeyedRow = (u64, u64);

#[inline]
fn derive_row_key(unit_hash: u64, seed: u64) -> u64 {
    finalize_mix(unit_hash ^ finalize_mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// Draws the counts of a row for one block of replicates.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves, and the number of a pair")]
fn draw_counts(key: u64, block: usize) -> [u32; BLOCK_REPLICATES] {
    let (low, high) = (key as u32, (key >> 32) as u32);
    let mut counts = [0; BLOCK_REPLICATES];
    let (first, second) = counts.split_at_mut(BLOCK_REPLICATES / 2);
    for (pair, (first, second)) in first.iter_mut().zip(second).enumerate() {
        let number = (block * (BLOCK_REPLICATES / 2) + pair) as u32 + 1;
        let mut bits = low.wrapping_add(number.wrapping_mul(0x9e37_79b9));
        bits ^= bits >> 16;
        bits = bits.wrapping_mul(0x85eb_ca6b);
        bits ^= high;
        bits ^= bits >> 13;
        bits = bits.wrapping_mul(0xc2b2_ae35);
        bits ^= bits >> 16;
        for at_least in POISSON_THRESHOLDS {
            // Signed, as vectors are compared.
            *first += u32::from((bits & 0xffff).cast_signed() < at_least);
            *second += u32::from((bits >> 16).cast_signed() < at_least);
        }
    }
    counts
}

/// Adds `piece` times the counts to the accumulators of a line.
#[inline(always)]
fn add_weighted(line: &mut [i64; BLOCK_REPLICATES], counts: &[u32; BLOCK_REPLICATES], piece: i32) {
    for (sum, count) in line.iter_mut().zip(counts) {
        *sum += i64::from(*count) * i64::from(piece);
    }
}

/// Adds `piece` times the counts of a row to a line.
#[inline(always)]
fn add_to_one_line(line: &mut [[i64; BLOCK_REPLICATES]], key: u64, piece: i32) {
    for (block, sums) in line.iter_mut().enumerate() {
        add_weighted(sums, &draw_counts(key, block), piece);
    }
}

/// Adds two pieces of a row to two lines, drawing the counts once.
#[inline(always)]
fn add_to_two_lines(
    first_line: &mut [[i64; BLOCK_REPLICATES]],
    second_line: &mut [[i64; BLOCK_REPLICATES]],
    key: u64,
    first: i32,
    second: i32,
) {
    for (block, (first_sums, second_sums)) in first_line.iter_mut().zip(second_line).enumerate() {
        let counts = draw_counts(key, block);
        add_weighted(first_sums, &counts, first);
        add_weighted(second_sums, &counts, second);
    }
}

/// Integer accumulators for values that are not yet in the replicates' exact sums.
#[derive(Clone, Debug)]
struct AccumulatorLines {
    /// One line after another; a line has one accumulator for each replicate, rounded up to whole blocks.
    sums: Vec<i64>,
    /// Number of the line for each exponent, counted from 1; 0 where the exponent has no line.
    line_numbers: [u8; LINE_COUNT],
    count: u8,
    rows: u32,
}

/// Returns the line of an exponent and the left shift that aligns a piece with it.
#[inline]
fn locate_line(exponent: i32) -> (usize, u32) {
    let above = (exponent - EXPONENT_MIN).max(0).cast_unsigned();
    (
        (above / LINE_SPACING_EXPONENTS.cast_unsigned()) as usize,
        above % LINE_SPACING_EXPONENTS.cast_unsigned(),
    )
}

impl AccumulatorLines {
    fn new() -> Self {
        AccumulatorLines { sums: Vec::new(), line_numbers: [0; LINE_COUNT], count: 0, rows: 0 }
    }

    /// Returns the position of a line and adds the line if it is missing; `None` if all lines are in use.
    #[inline]
    fn find_or_add_line(&mut self, line: usize, length: usize) -> Option<usize> {
        let place = self.line_numbers.get_mut(line)?;
        if *place == 0 {
            if self.count >= LINES_IN_USE_MAX {
                return None;
            }
            self.count += 1;
            *place = self.count;
            let length = length * usize::from(self.count);
            self.sums.reserve_exact(length - self.sums.len());
            self.sums.resize(length, 0);
        }
        Some(usize::from(*place) - 1)
    }

    /// Adds a finite value. Returns false and adds nothing if the lines must be flushed first.
    #[inline]
    fn try_add(&mut self, key: u64, value: f64, replicates: usize) -> bool {
        if self.rows >= ROWS_BEFORE_FLUSH_MAX {
            return false;
        }
        let length = replicates.next_multiple_of(BLOCK_REPLICATES);
        let (mantissa, exponent) = split_mantissa(value);
        let low = mantissa & ((1 << LOW_MANTISSA_BITS) - 1);
        let ((high_line, high_shift), (low_line, low_shift)) =
            (locate_line(exponent + LOW_MANTISSA_BITS), locate_line(exponent));
        let Some(high_place) = self.find_or_add_line(high_line, length) else { return false };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "27 bits and the sign, shifted by at most 4"
        )]
        let (high, low) =
            (((mantissa >> LOW_MANTISSA_BITS) << high_shift) as i32, (low << low_shift) as i32);
        if low == 0 {
            // The usual case of small whole numbers.
            let (line, _) =
                self.sums[high_place * length..][..length].as_chunks_mut::<BLOCK_REPLICATES>();
            run_vectorized(
                #[inline(always)]
                || add_to_one_line(line, key, high),
            );
        } else {
            let Some(low_place) = self.find_or_add_line(low_line, length) else { return false };
            // The lines are never the same: their exponents are 26 apart.
            let (first, second) = (high_place.min(low_place), high_place.max(low_place));
            let (before, from) = self.sums.split_at_mut(second * length);
            let (first_line, _) =
                before[first * length..][..length].as_chunks_mut::<BLOCK_REPLICATES>();
            let (second_line, _) = from[..length].as_chunks_mut::<BLOCK_REPLICATES>();
            let (first, second) = if high_place < low_place { (high, low) } else { (low, high) };
            run_vectorized(
                #[inline(always)]
                || add_to_two_lines(first_line, second_line, key, first, second),
            );
        }
        self.rows += 1;
        true
    }

    /// Adds all accumulators to `sums`, which may cover fewer replicates.
    fn flush_into(&self, replicates: usize, sums: &mut [FloatSum]) {
        let length = replicates.next_multiple_of(BLOCK_REPLICATES);
        for (exponent, place) in (EXPONENT_MIN..)
            .step_by(LINE_SPACING_EXPONENTS.cast_unsigned() as usize)
            .zip(&self.line_numbers)
        {
            let Some(place) = place.checked_sub(1) else { continue };
            let line = &self.sums[usize::from(place) * length..][..length];
            for (sum, part) in sums.iter_mut().zip(line) {
                sum.add_scaled(*part, exponent);
            }
        }
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.line_numbers = [0; LINE_COUNT];
        self.count = 0;
        self.rows = 0;
    }
}

/// The sums of a state with more than [`LISTED_ROWS_MAX`] rows.
#[derive(Clone, Debug)]
struct ReplicateSums {
    total: FloatSum,
    /// One sum for each replicate, without the contents of `lines`.
    replicates: Vec<FloatSum>,
    lines: AccumulatorLines,
    /// Heap memory of the sums in wide form, in bytes.
    wide_bytes: usize,
}

impl ReplicateSums {
    fn new(replicates: u16) -> Self {
        ReplicateSums {
            total: FloatSum::new(),
            replicates: vec![FloatSum::new(); replicates.into()],
            lines: AccumulatorLines::new(),
            wide_bytes: 0,
        }
    }

    #[inline]
    fn add(&mut self, key: u64, value: f64) {
        if !self.total.try_add_in_place(value) {
            self.wide_bytes -= self.total.heap_bytes();
            self.total.add(value);
            self.wide_bytes += self.total.heap_bytes();
        }
        if !value.is_finite() || !self.lines.try_add(key, value, self.replicates.len()) {
            self.add_slow(key, value);
        }
    }

    #[cold]
    fn add_slow(&mut self, key: u64, value: f64) {
        if value.is_finite() {
            self.flush_lines();
            // Fits: the lines are empty now.
            self.lines.try_add(key, value, self.replicates.len());
            return;
        }
        for (block, sums) in self.replicates.chunks_mut(BLOCK_REPLICATES).enumerate() {
            for (sum, count) in sums.iter_mut().zip(draw_counts(key, block)) {
                (0..count).for_each(|_| sum.add(value));
            }
        }
        self.update_wide_bytes();
    }

    /// Moves the contents of the lines into the replicates' sums.
    fn flush_lines(&mut self) {
        self.lines.flush_into(self.replicates.len(), &mut self.replicates);
        self.lines.clear();
        self.update_wide_bytes();
    }

    fn update_wide_bytes(&mut self) {
        let wide = self.replicates.iter().map(FloatSum::heap_bytes).sum::<usize>();
        self.wide_bytes = wide + self.total.heap_bytes();
    }

    /// Drops all replicates beyond the first `replicates`.
    fn truncate(&mut self, replicates: u16) {
        if self.replicates.len() > replicates.into() {
            self.flush_lines();
            self.replicates.truncate(replicates.into());
            self.replicates.shrink_to_fit();
            self.update_wide_bytes();
        }
    }

    fn merge(&mut self, other: &ReplicateSums) {
        self.total.merge(&other.total);
        for (sum, more) in self.replicates.iter_mut().zip(&other.replicates) {
            sum.merge(more);
        }
        other.lines.flush_into(other.replicates.len(), &mut self.replicates);
        self.update_wide_bytes();
    }

    /// Returns the replicates' sums including the contents of the lines.
    fn flushed_sums(&self) -> Cow<'_, [FloatSum]> {
        if self.lines.count == 0 {
            return Cow::Borrowed(&self.replicates);
        }
        let mut sums = self.replicates.clone();
        self.lines.flush_into(sums.len(), &mut sums);
        Cow::Owned(sums)
    }
}

#[derive(Clone, Debug)]
enum BootstrapRows {
    List(Vec<KeyedRow>),
    Sums(Box<ReplicateSums>),
}

/// The sum of a column with its sampling error, by a Poisson bootstrap over units.
///
/// The estimated quantity is the sum of a sample that includes each unit by chance and independently of the
/// others: the number of units varies as well as their values.
///
/// The state is a function of the multiset of rows: order and grouping of adds and merges leave no trace.
/// −0.0 counts as 0.0; infinities and NaN follow [`FloatSum`]'s rules in the replicates that drew them.
///
/// Memory: none while empty, 16 bytes a row up to 64 rows. Beyond that 40 bytes a replicate, and 8 bytes a
/// replicate for each line of accumulators, up to 24 lines. A line spans 5 binary places of the values;
/// values within three decimal orders need some 8 lines. Cost of an add: a nanosecond a replicate, 0.8 ns for
/// whole numbers; eight times as much where the exponents of the values are 100 or more places apart.
///
/// ```
/// use tidemill_sketch::{BootstrapSum, hash_i64};
/// let mut spent = BootstrapSum::default();
/// for order in 0..10_000 {
///     let user = order % 1000;
///     spent.add(hash_i64(user), 42, 9.5);
/// }
/// assert_eq!(spent.sum(), 95_000.0);
/// let (low, high) = spent.confidence_interval(0.95).unwrap();
/// // A thousand users, not ten thousand orders: a standard error of 3 %, not of 1.
/// assert!((87_000.0..91_500.0).contains(&low) && (98_500.0..103_000.0).contains(&high));
/// ```
#[derive(Clone, Debug)]
pub struct BootstrapSum {
    rows: BootstrapRows,
    /// Number of rows added.
    count: u64,
    replicates: u16,
}

impl Default for BootstrapSum {
    fn default() -> Self {
        BootstrapSum {
            rows: BootstrapRows::List(Vec::new()),
            count: 0,
            replicates: REPLICATES_DEFAULT,
        }
    }
}

/// Two states are equal if they have the same number of replicates and rows, and the same sums.
impl PartialEq for BootstrapSum {
    fn eq(&self, other: &Self) -> bool {
        (self.replicates, self.count) == (other.replicates, other.count)
            && match (&self.rows, &other.rows) {
                (BootstrapRows::List(a), BootstrapRows::List(b)) => {
                    sorted_rows(a) == sorted_rows(b)
                }
                (BootstrapRows::Sums(a), BootstrapRows::Sums(b)) => {
                    a.total == b.total && a.flushed_sums() == b.flushed_sums()
                }
                _ => false,
            }
    }
}

fn sorted_rows(rows: &[KeyedRow]) -> Vec<KeyedRow> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows
}

impl BootstrapSum {
    /// Creates an empty state with 2 to 65,535 replicates. [`BootstrapSum::default`] has 200.
    ///
    /// A standard error needs some 50 replicates, a 95 % interval 200, a 99 % interval 1,000.
    ///
    /// # Errors
    /// [`SketchError::ParameterOutOfRange`].
    pub fn new(replicates: u16) -> Result<Self, SketchError> {
        if replicates < REPLICATES_MIN {
            return Err(SketchError::ParameterOutOfRange {
                name: "replicates",
                found: replicates.into(),
                min: REPLICATES_MIN.into(),
                max: u16::MAX.into(),
                hint: "\nhint: 200 is the default",
            });
        }
        Ok(BootstrapSum { replicates, ..BootstrapSum::default() })
    }

    /// Returns the number of replicates, which a merge may have reduced.
    #[must_use]
    pub fn replicates(&self) -> u16 {
        self.replicates
    }

    /// Adds a row. `unit_hash` is a 64-bit hash of the unit that the row belongs to
    /// ([`hash_bytes`](crate::hash_bytes)). `seed` must be the same for all rows of a state and of the states
    /// it merges with; another seed draws other samples.
    #[inline]
    pub fn add(&mut self, unit_hash: u64, seed: u64, value: f64) {
        let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
        self.add_row((derive_row_key(unit_hash, seed), value.to_bits()));
    }

    #[inline]
    fn add_row(&mut self, (key, value): KeyedRow) {
        self.count = self.count.saturating_add(1);
        match &mut self.rows {
            BootstrapRows::Sums(sums) => sums.add(key, f64::from_bits(value)),
            BootstrapRows::List(rows) if rows.len() < LISTED_ROWS_MAX => {
                if rows.len() == rows.capacity() {
                    rows.reserve_exact(rows.len().max(1));
                }
                rows.push((key, value));
            }
            BootstrapRows::List(_) => {
                let mut sums = self.sum_listed_rows();
                sums.add(key, f64::from_bits(value));
                self.rows = BootstrapRows::Sums(sums);
            }
        }
    }

    /// Returns the sums of the listed rows.
    #[cold]
    fn sum_listed_rows(&self) -> Box<ReplicateSums> {
        let mut sums = Box::new(ReplicateSums::new(self.replicates));
        if let BootstrapRows::List(rows) = &self.rows {
            rows.iter().for_each(|(key, value)| sums.add(*key, f64::from_bits(*value)));
        }
        sums
    }

    /// Adds all rows of `other`. If the numbers of replicates differ, the smaller number applies and the
    /// first replicates stay.
    ///
    /// Cost: some 10 ns a replicate; one add for each row if `other` has up to 64 rows.
    pub fn merge(&mut self, other: &BootstrapSum) {
        self.replicates = self.replicates.min(other.replicates);
        if let BootstrapRows::Sums(sums) = &mut self.rows {
            sums.truncate(self.replicates);
        }
        match &other.rows {
            BootstrapRows::List(rows) => rows.iter().for_each(|row| self.add_row(*row)),
            BootstrapRows::Sums(more) => {
                if let BootstrapRows::List(_) = &self.rows {
                    self.rows = BootstrapRows::Sums(self.sum_listed_rows());
                }
                if let BootstrapRows::Sums(sums) = &mut self.rows {
                    sums.merge(more);
                }
                self.count = self.count.saturating_add(other.count);
            }
        }
    }

    /// Merges like [`BootstrapSum::merge`], in the memory of the state with more rows.
    pub fn merge_owned(&mut self, mut other: BootstrapSum) {
        if other.count > self.count {
            std::mem::swap(self, &mut other);
        }
        self.merge(&other);
    }

    /// Returns the number of rows added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the rows, exact and rounded once.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.exact_total().value()
    }

    fn exact_total(&self) -> Cow<'_, FloatSum> {
        match &self.rows {
            BootstrapRows::Sums(sums) => Cow::Borrowed(&sums.total),
            BootstrapRows::List(rows) => {
                let mut total = FloatSum::new();
                rows.iter().for_each(|(_, value)| total.add(f64::from_bits(*value)));
                Cow::Owned(total)
            }
        }
    }

    /// Returns the sum in each replicate, exact and rounded once. Cost: up to 200 ns a replicate.
    #[must_use]
    pub fn replicate_sums(&self) -> Vec<f64> {
        let summed;
        let sums = match &self.rows {
            BootstrapRows::Sums(sums) => sums,
            BootstrapRows::List(_) => {
                summed = self.sum_listed_rows();
                &summed
            }
        };
        sums.flushed_sums().iter().map(FloatSum::value).collect()
    }

    /// Returns the standard error of the sum: the standard deviation of the replicates' sums, with divisor
    /// `replicates − 1`.
    ///
    /// 0 while empty; NaN if a sum is not finite.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let sums = self.replicate_sums();
        let count = sums.len() as f64;
        let mean = sums.iter().map(|sum| sum / count).sum::<f64>();
        let squares = sums.iter().map(|sum| (sum - mean) * (sum - mean)).sum::<f64>();
        (squares / (count - 1.0)).sqrt()
    }

    /// Returns the percentile interval that contains the middle `confidence` share of the replicates' sums:
    /// from percentile (1 − confidence)/2 to percentile (1 + confidence)/2.
    ///
    /// Percentile p is the sorted sum at position p · (replicates − 1), counted from 0, interpolated linearly
    /// between two sums. `None` unless `confidence` lies strictly between 0 and 1; NaN if a sum is NaN.
    #[must_use]
    pub fn confidence_interval(&self, confidence: f64) -> Option<(f64, f64)> {
        if !(confidence > 0.0 && confidence < 1.0) {
            return None;
        }
        let mut sums = self.replicate_sums();
        if sums.iter().any(|sum| sum.is_nan()) {
            return Some((f64::NAN, f64::NAN));
        }
        sums.sort_unstable_by(f64::total_cmp);
        let last = sums.len() - 1;
        let position = (1.0 - confidence) / 2.0 * last as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to half of the last"
        )]
        let below = (position as usize).min(last);
        let above = (below + 1).min(last);
        let part = position - below as f64;
        let between = |a: f64, b: f64| if a == b { a } else { a * (1.0 - part) + b * part };
        Some((between(sums[below], sums[above]), between(sums[last - below], sums[last - above])))
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.rows {
            BootstrapRows::List(rows) => rows.capacity() * size_of::<KeyedRow>(),
            BootstrapRows::Sums(sums) => {
                size_of::<ReplicateSums>()
                    + sums.replicates.capacity() * size_of::<FloatSum>()
                    + sums.lines.sums.capacity() * size_of::<i64>()
                    + sums.wide_bytes
            }
        }
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    ///
    /// Size: 16 bytes a row up to 64 rows, then some 8 to 14 bytes a replicate.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_varint(out, self.replicates.into());
        put_varint(out, self.count);
        match &self.rows {
            BootstrapRows::List(rows) => {
                for (key, value) in sorted_rows(rows) {
                    out.extend_from_slice(&key.to_le_bytes());
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            BootstrapRows::Sums(sums) => {
                let mut bytes = Vec::new();
                for sum in [&sums.total].into_iter().chain(sums.flushed_sums().iter()) {
                    bytes.clear();
                    sum.encode(&mut bytes);
                    put_varint(out, bytes.len() as u64);
                    out.extend_from_slice(&bytes);
                }
            }
        }
    }

    /// Reads a state that [`BootstrapSum::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is bounded by some sixty times the input plus
    /// two kilobytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0xa1 (version 1)")?;
        let replicates = u16::try_from(reader.read_varint()?).unwrap_or(0);
        let Ok(mut state) = BootstrapSum::new(replicates) else {
            return Err(reader.corrupt_error("the number of replicates is not 2 to 65535"));
        };
        state.count = reader.read_varint()?;
        if state.count <= LISTED_ROWS_MAX as u64 {
            state.rows = BootstrapRows::List(decode_rows(&mut reader, state.count)?);
        } else {
            // Each sum takes at least a length, a header and one byte.
            if reader.remaining() < 3 * (usize::from(replicates) + 1) {
                return Err(reader.truncated_error(3 * (usize::from(replicates) + 1)));
            }
            let mut decode_sum = || {
                let length = reader.read_length(1)?;
                FloatSum::decode(reader.take_bytes(length)?)
            };
            let total = decode_sum()?;
            let sums: Result<Vec<_>, _> = (0..replicates).map(|_| decode_sum()).collect();
            let mut sums = ReplicateSums {
                total,
                replicates: sums?,
                lines: AccumulatorLines::new(),
                wide_bytes: 0,
            };
            sums.update_wide_bytes();
            state.rows = BootstrapRows::Sums(Box::new(sums));
        }
        reader.expect_end()?;
        Ok(state)
    }
}

fn decode_rows(reader: &mut StateReader<'_>, count: u64) -> Result<Vec<KeyedRow>, SketchError> {
    let mut rows: Vec<KeyedRow> = Vec::new();
    for _ in 0..count {
        let mut word = || {
            let bytes = reader.take_bytes(8)?;
            Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
        };
        let row = (word()?, word()?);
        if rows.last().is_some_and(|before| *before > row) {
            return Err(reader.corrupt_error("rows do not ascend"));
        }
        let value = f64::from_bits(row.1);
        let is_another_nan = value.is_nan() && row.1 != f64::NAN.to_bits();
        if is_another_nan || row.1 == (-0.0f64).to_bits() {
            return Err(reader.corrupt_error("a value that would have been written as another"));
        }
        rows.push(row);
    }
    Ok(rows)
}
