//! Variance, covariance and correlation without loss: a row count and exact sums, either of one column's
//! values and squares or of two columns' values and products.
//!
//! The sum of squared distances from the mean is (n·Σx² − (Σx)²) / n. In floating point that difference
//! cancels to noise if the mean is large compared to the spread. Welford (*Note on a method for calculating
//! corrected sums of squares and products*, 1962) and his successors therefore carry means instead, and their
//! results depend on the order of rows and merges. Here the sums are integers, or floats summed exactly
//! ([`FloatSum`]), so digits cancel only where they should: the difference is exact, is rounded once, and is
//! the same in any order.
//!
//! | | memory of a state | an add |
//! | --- | --- | --- |
//! | integers, one column | 56 bytes | 2 ns |
//! | integers, two columns | 128 bytes | 5 ns |
//! | floats, one column | 88 bytes | 8 ns |
//! | floats, two columns | 208 bytes | 20 ns |
//! | floats, four powers | 168 bytes | 40 ns |
//!
//! Sums of floats far from 1 additionally own 304 bytes each, as documented at [`FloatSum`]; sums of products
//! do so below 2^−160 and above 2^95.

use std::fmt::Debug;

use crate::SketchError;
use crate::float_sum::FloatSum;
use crate::state_encoding::{StateReader, put_varint};

const STATE: &str = "moments";
const HEADER: u8 = 0x51;

/// Largest magnitude of a float whose square is summed. Squares of larger floats, or sums of many of them,
/// overflow.
const SQUARED_VALUE_MAX: f64 = 1e140;

/// Number of binary places by which sums of products are scaled up, so that more of them fit the inline form
/// of a [`FloatSum`]: squares of 10^−8 and below are more frequent than squares of 10^14 and above.
const PRODUCT_SCALE_EXPONENT: i32 = 32;

/// Number of sums in a state of one column: of values and of squares.
pub const ONE_COLUMN_SUMS: usize = 2;

/// Number of sums in a state of two columns: of x, y, x², y² and x·y.
pub const TWO_COLUMN_SUMS: usize = 5;

/// Number of sums in a state of one column's powers: of x, x², x³ and x⁴.
pub const FOUR_POWER_SUMS: usize = 4;

/// Largest magnitude of a float whose fourth power is summed. Fourth powers of larger floats, or sums of many
/// of them, overflow.
const FOURTH_POWER_VALUE_MAX: f64 = 1e70;

/// The type of the summed values: `i64` or `f64`.
pub trait MomentValue: Copy + Debug + Send + Sync + 'static + sealed::Sealed {
    /// An exact sum of values.
    type Sum: Clone + Debug + Default + PartialEq + Send + Sync;
    /// Code of the value type in encoded states.
    const KIND_CODE: u8;
    /// 0.
    const ZERO: Self;

    /// Returns true if the value is neither a NaN nor an infinity.
    fn is_finite(self) -> bool;
    /// Returns the nearest float.
    fn to_f64(self) -> f64;
    /// Returns the value to sum; `None` if its square is too large.
    fn summable_value(self) -> Option<Self>;
    /// Adds the value, or removes it. Returns the growth of heap memory in bytes.
    fn add_to_sum(sum: &mut Self::Sum, value: Self, is_back: bool) -> usize;
    /// Adds a product, or removes it. Returns the growth of heap memory in bytes.
    fn add_product_to_sum(sum: &mut Self::Sum, left: Self, right: Self, is_back: bool) -> usize;
    /// Adds the third and the fourth power, or removes them. Returns the growth of heap memory in bytes. Does
    /// nothing for integers.
    fn add_third_and_fourth_powers(
        third: &mut Self::Sum,
        fourth: &mut Self::Sum,
        value: Self,
        is_back: bool,
    ) -> usize;
    /// Returns the sums of the second, third and fourth powers of distances from the mean, computed from the
    /// sums of a [`FOUR_POWER_SUMS`] state. `variation` is the first of them. NaN for integers.
    fn central_power_sums(count: u64, sums: &[Self::Sum], variation: f64) -> [f64; 3];
    /// Adds another sum.
    fn merge_sums(sum: &mut Self::Sum, other: &Self::Sum);
    /// Returns the heap memory of a sum, in bytes.
    fn heap_bytes(sum: &Self::Sum) -> usize;
    /// Returns the sum, rounded to a float.
    fn rounded_sum(sum: &Self::Sum) -> f64;
    /// Returns `count · products − left · right`, rounded once.
    fn centered_product_sum(
        count: u64,
        products: &Self::Sum,
        left: &Self::Sum,
        right: &Self::Sum,
    ) -> f64;
    /// Appends a sum's bytes.
    fn encode(sum: &Self::Sum, out: &mut Vec<u8>);
    /// Reads a sum that [`MomentValue::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are not such a sum.
    fn decode(bytes: &[u8]) -> Result<Self::Sum, SketchError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for i64 {}
    impl Sealed for f64 {}
}

/// The error for a value whose square is too large to be summed (magnitude above 10^140), or its fourth power
/// in a state of four powers (magnitude above 10^70).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MomentValueTooLarge;

/// The row count with exact sums of values and products: of one column ([`ONE_COLUMN_SUMS`]) or two columns
/// ([`TWO_COLUMN_SUMS`]) of `i64` or `f64`, or of four powers of one column of `f64` ([`FOUR_POWER_SUMS`]).
///
/// The state is the same in any order and grouping of adds and merges. A NaN or an infinity enters the plain
/// sum of its column, makes the column's other answers NaN, and does not affect the other column's answers.
///
/// ```
/// use tidemill_sketch::{Moments, ONE_COLUMN_SUMS};
/// let mut moments = Moments::<f64, ONE_COLUMN_SUMS>::default();
/// for x in [1e9, 1e9 + 1.0, 1e9 + 2.0] {
///     moments.add(x, 0.0)?;
/// }
/// assert_eq!(moments.squared_deviations_x() / 2.0, 1.0);
/// # Ok::<(), tidemill_sketch::MomentValueTooLarge>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Moments<N: MomentValue, const SUMS: usize> {
    count: u64,
    sums: [N::Sum; SUMS],
}

impl<N: MomentValue, const SUMS: usize> Default for Moments<N, SUMS> {
    fn default() -> Self {
        const { assert!(SUMS == ONE_COLUMN_SUMS || SUMS == TWO_COLUMN_SUMS || SUMS == FOUR_POWER_SUMS) };
        Moments { count: 0, sums: std::array::from_fn(|_| N::Sum::default()) }
    }
}

impl<N: MomentValue, const SUMS: usize> Moments<N, SUMS> {
    const SQUARES_X_INDEX: usize = if SUMS == TWO_COLUMN_SUMS { 2 } else { 1 };

    /// Adds a row; `y` is used only with two columns. Returns the growth of heap memory in bytes.
    ///
    /// # Errors
    /// [`MomentValueTooLarge`]; the row is not added.
    #[inline]
    pub fn add(&mut self, x: N, y: N) -> Result<usize, MomentValueTooLarge> {
        self.add_or_remove(x, y, false, true)
    }

    /// Adds a row that can be removed later. Values that are not finite are not summed; the caller must keep
    /// track of them.
    ///
    /// # Errors
    /// As [`Moments::add`].
    #[inline]
    pub fn add_finite(&mut self, x: N, y: N) -> Result<usize, MomentValueTooLarge> {
        self.add_or_remove(x, y, false, false)
    }

    /// Removes a row that [`Moments::add_finite`] added.
    ///
    /// # Errors
    /// [`MomentValueTooLarge`], as for the add of the same row.
    #[inline]
    pub fn remove_finite(&mut self, x: N, y: N) -> Result<usize, MomentValueTooLarge> {
        self.add_or_remove(x, y, true, false)
    }

    #[inline]
    fn add_or_remove(
        &mut self,
        x: N,
        y: N,
        is_back: bool,
        is_noted: bool,
    ) -> Result<usize, MomentValueTooLarge> {
        let x = x.summable_value().ok_or(MomentValueTooLarge)?;
        if SUMS == FOUR_POWER_SUMS && x.is_finite() && x.to_f64().abs() > FOURTH_POWER_VALUE_MAX {
            return Err(MomentValueTooLarge);
        }
        let y = if SUMS == TWO_COLUMN_SUMS {
            y.summable_value().ok_or(MomentValueTooLarge)?
        } else {
            y
        };
        // Saturating, as a decoded state may claim any number of rows.
        self.count =
            if is_back { self.count.saturating_sub(1) } else { self.count.saturating_add(1) };
        let mut grown = 0;
        if x.is_finite() {
            grown += N::add_to_sum(&mut self.sums[0], x, is_back);
            grown += N::add_product_to_sum(&mut self.sums[Self::SQUARES_X_INDEX], x, x, is_back);
            if SUMS == FOUR_POWER_SUMS {
                let (lower, upper) = self.sums.split_at_mut(3);
                grown += N::add_third_and_fourth_powers(&mut lower[2], &mut upper[0], x, is_back);
            }
        } else if is_noted {
            grown += N::add_to_sum(&mut self.sums[0], x, is_back);
        }
        if SUMS == TWO_COLUMN_SUMS {
            if y.is_finite() {
                grown += N::add_to_sum(&mut self.sums[1], y, is_back);
                grown += N::add_product_to_sum(&mut self.sums[3], y, y, is_back);
                if x.is_finite() {
                    grown += N::add_product_to_sum(&mut self.sums[4], x, y, is_back);
                }
            } else if is_noted {
                grown += N::add_to_sum(&mut self.sums[1], y, is_back);
            }
        }
        Ok(grown)
    }

    /// Adds all rows of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            N::merge_sums(sum, other);
        }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of x, rounded once.
    pub fn sum_x(&self) -> f64 {
        N::rounded_sum(&self.sums[0])
    }

    /// Returns the sum of y, rounded once; NaN with one column.
    pub fn sum_y(&self) -> f64 {
        if SUMS == TWO_COLUMN_SUMS { N::rounded_sum(&self.sums[1]) } else { f64::NAN }
    }

    /// Returns Σ(x − mean of x)²; 0 without rows. Never negative.
    pub fn squared_deviations_x(&self) -> f64 {
        clamp_to_zero(self.centered_sum(Self::SQUARES_X_INDEX, 0, 0))
    }

    /// Returns Σ(x − mean)², Σ(x − mean)³ and Σ(x − mean)⁴ of a [`FOUR_POWER_SUMS`] state: zeros without
    /// rows, NaN if an x is not finite.
    ///
    /// They are exact up to the rounding of sums of powers of distances from a double next to the mean, at
    /// any magnitude of the mean. Cost: some microseconds.
    pub fn central_power_sums(&self) -> [f64; 3] {
        match self.count {
            _ if SUMS != FOUR_POWER_SUMS || self.has_nonfinite_x() => [f64::NAN; 3],
            0 => [0.0; 3],
            count => N::central_power_sums(count, &self.sums, self.squared_deviations_x()),
        }
    }

    /// Returns Σ(y − mean of y)²; NaN with one column.
    pub fn squared_deviations_y(&self) -> f64 {
        if SUMS == TWO_COLUMN_SUMS { clamp_to_zero(self.centered_sum(3, 1, 1)) } else { f64::NAN }
    }

    /// Returns Σ(x − mean of x)(y − mean of y); NaN with one column.
    pub fn deviation_products(&self) -> f64 {
        if SUMS == TWO_COLUMN_SUMS { self.centered_sum(4, 0, 1) } else { f64::NAN }
    }

    /// Returns true if an x was NaN or infinite.
    pub fn has_nonfinite_x(&self) -> bool {
        !self.sum_x().is_finite()
    }

    /// Returns true if there are two columns and a y was NaN or infinite.
    pub fn has_nonfinite_y(&self) -> bool {
        SUMS == TWO_COLUMN_SUMS && !self.sum_y().is_finite()
    }

    fn centered_sum(&self, products: usize, left: usize, right: usize) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let sums = &self.sums;
        N::centered_product_sum(self.count, &sums[products], &sums[left], &sums[right])
            / self.count as f64
    }

    /// Returns the heap memory that the state owns, in bytes. Cost: constant.
    pub fn heap_bytes(&self) -> usize {
        self.sums.iter().map(N::heap_bytes).sum()
    }

    /// Appends the state's canonical bytes, laid out in `docs/formats/states.md`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        out.push(Self::kind_code());
        put_varint(out, self.count);
        if self.count == 0 {
            return;
        }
        let mut bytes = Vec::new();
        for sum in &self.sums {
            bytes.clear();
            N::encode(sum, &mut bytes);
            put_varint(out, bytes.len() as u64);
            out.extend_from_slice(&bytes);
        }
    }

    const fn kind_code() -> u8 {
        let columns = match SUMS {
            TWO_COLUMN_SUMS => 2,
            FOUR_POWER_SUMS => 4,
            _ => 0,
        };
        N::KIND_CODE | columns
    }

    /// Reads a state that [`Moments::encode`] wrote.
    ///
    /// Accepts canonical bytes only: accepted bytes encode to the same bytes again.
    ///
    /// # Errors
    /// Any [`SketchError`] except `ParameterOutOfRange`. Memory is constant.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x51 (version 1)")?;
        if reader.read_u8()? != Self::kind_code() {
            return Err(reader.corrupt_error("it is of other columns than those asked for"));
        }
        let mut moments = Moments { count: reader.read_varint()?, ..Self::default() };
        if moments.count > 0 {
            for sum in &mut moments.sums {
                let length = reader.read_length(1)?;
                *sum = N::decode(reader.take_bytes(length)?)?;
            }
        }
        reader.expect_end()?;
        Ok(moments)
    }
}

/// Returns a sum of squares with negative values replaced by 0; only a decoded state that no rows produce has
/// them.
fn clamp_to_zero(squares: f64) -> f64 {
    if squares < 0.0 { 0.0 } else { squares }
}

// ── floats ───────────────────────────────────────────────────────────────────────────────

impl MomentValue for f64 {
    type Sum = FloatSum;
    const KIND_CODE: u8 = 1;
    const ZERO: f64 = 0.0;

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }

    fn to_f64(self) -> f64 {
        self
    }

    #[inline]
    fn summable_value(self) -> Option<f64> {
        (self.abs() <= SQUARED_VALUE_MAX || !self.is_finite()).then_some(self)
    }

    #[inline]
    fn add_to_sum(sum: &mut FloatSum, value: f64, is_back: bool) -> usize {
        let value = if is_back { -value } else { value };
        match sum.try_add_in_place(value) {
            true => 0,
            false => measure_heap_growth(sum, |sum| sum.add(value)),
        }
    }

    #[inline]
    fn add_product_to_sum(sum: &mut FloatSum, left: f64, right: f64, is_back: bool) -> usize {
        let left = if is_back { -left } else { left };
        if sum.try_add_product_in_place(left, right, PRODUCT_SCALE_EXPONENT) {
            return 0;
        }
        measure_heap_growth(sum, |sum| sum.add_product(left, right, PRODUCT_SCALE_EXPONENT))
    }

    fn add_third_and_fourth_powers(
        third: &mut FloatSum,
        fourth: &mut FloatSum,
        value: f64,
        is_back: bool,
    ) -> usize {
        // The square is a sum of two doubles, and products with each of them are exact too.
        let square = two_product(value, value);
        let mut grown = 0;
        for (part, other) in [(square.0, value), (square.1, value)] {
            grown += f64::add_product_to_sum(third, part, other, is_back);
        }
        for (part, other) in
            [(square.0, square.0), (2.0 * square.0, square.1), (square.1, square.1)]
        {
            grown += f64::add_product_to_sum(fourth, part, other, is_back);
        }
        grown
    }

    /// Moves the origin to a double next to the mean, where sums of powers no longer cancel: the binomial
    /// theorem over exact sums. The remaining distance between that double and the mean is below its last
    /// digit.
    fn central_power_sums(count: u64, sums: &[FloatSum], variation: f64) -> [f64; 3] {
        let [first, second, third, fourth] = sums else { return [f64::NAN; 3] };
        if variation == 0.0 {
            return [0.0; 3];
        }
        let rows = count as f64;
        let origin = first.value() / rows;
        let parts = |sum: &FloatSum| ExactParts::new(sum).collect::<Vec<f64>>();
        let counts: Vec<f64> = exact_count_parts(count).collect();
        let sums = [counts, parts(first), parts(second), parts(third), parts(fourth)];
        // Powers of −origin, each as doubles that add up to it.
        let opposite = vec![-origin];
        let power = |lower: &[f64]| -> Vec<f64> {
            let products = lower.iter().map(|part| two_product(*part, -origin));
            products.flat_map(|(high, low)| [high, low]).filter(|part| *part != 0.0).collect()
        };
        let square = power(&opposite);
        let cube = power(&square);
        let powers = [vec![1.0], opposite, square, cube.clone(), power(&cube)];
        let moved = |degree: usize| {
            let mut total = FloatSum::new();
            for (taken, binomial) in BINOMIALS[degree].iter().enumerate() {
                // The count and the first sum contain no products, which are scaled by
                // 2^PRODUCT_SCALE_EXPONENT.
                let exponent = if degree - taken > 1 { -PRODUCT_SCALE_EXPONENT } else { 0 };
                for part in &sums[degree - taken] {
                    for power in &powers[taken] {
                        // 6 times a double is the sum of two doubles, one for each factor.
                        for factor in *binomial {
                            total.add_product(*part, *factor * *power, exponent);
                        }
                    }
                }
            }
            total.value()
        };
        let (first, second, third, fourth) = (moved(1), moved(2), moved(3), moved(4));
        let rest = first / rows;
        [
            variation,
            third - 3.0 * rest * second + 2.0 * rows * rest.powi(3),
            fourth - 4.0 * rest * third + 6.0 * rest * rest * second - 3.0 * rows * rest.powi(4),
        ]
    }

    fn merge_sums(sum: &mut FloatSum, other: &FloatSum) {
        sum.merge(other);
    }

    fn heap_bytes(sum: &FloatSum) -> usize {
        sum.heap_bytes()
    }

    fn rounded_sum(sum: &FloatSum) -> f64 {
        sum.value()
    }

    fn centered_product_sum(
        count: u64,
        products: &FloatSum,
        left: &FloatSum,
        right: &FloatSum,
    ) -> f64 {
        if !left.value().is_finite() || !right.value().is_finite() {
            return f64::NAN;
        }
        let mut total = FloatSum::new();
        for part in ExactParts::new(products) {
            for half in exact_count_parts(count) {
                total.add_product(part, half, -PRODUCT_SCALE_EXPONENT);
            }
        }
        let right: Vec<f64> = ExactParts::new(right).collect();
        for left in ExactParts::new(left) {
            for right in &right {
                total.add_product(-left, *right, 0);
            }
        }
        total.value()
    }

    fn encode(sum: &FloatSum, out: &mut Vec<u8>) {
        sum.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<FloatSum, SketchError> {
        FloatSum::decode(bytes)
    }
}

/// Binomial coefficients by degree and by power of the second term, each as a sum of powers of two.
const BINOMIALS: [&[&[f64]]; 5] = [
    &[&[1.0]],
    &[&[1.0], &[1.0]],
    &[&[1.0], &[2.0], &[1.0]],
    &[&[1.0], &[1.0, 2.0], &[1.0, 2.0], &[1.0]],
    &[&[1.0], &[4.0], &[2.0, 4.0], &[4.0], &[1.0]],
];

/// Returns a product as the sum of two doubles; exact unless the second one underflows.
fn two_product(left: f64, right: f64) -> (f64, f64) {
    let product = left * right;
    (product, left.mul_add(right, -product))
}

/// Returns doubles that add up to a count exactly; a count of more than 53 bits is no double itself.
fn exact_count_parts(count: u64) -> impl Iterator<Item = f64> {
    let halves = [(count >> 32) as f64 * 2f64.powi(32), (count & 0xffff_ffff) as f64];
    halves.into_iter().filter(|half| *half != 0.0)
}

#[cold]
fn measure_heap_growth(sum: &mut FloatSum, change: impl FnOnce(&mut FloatSum)) -> usize {
    let before = sum.heap_bytes();
    change(sum);
    sum.heap_bytes() - before
}

/// An iterator over doubles that add up to a sum exactly, the largest first: usually two or three.
struct ExactParts {
    rest: Option<FloatSum>,
}

impl ExactParts {
    fn new(sum: &FloatSum) -> Self {
        ExactParts { rest: Some(sum.clone()) }
    }
}

impl Iterator for ExactParts {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let rest = self.rest.as_mut()?;
        let part = rest.value();
        if part == 0.0 || !part.is_finite() {
            self.rest = None;
            return None;
        }
        rest.add(-part);
        Some(part)
    }
}

// ── integers ─────────────────────────────────────────────────────────────────────────────

/// An integer of 192 bits in two's complement, lowest limb first: 2^64 rows cannot overflow a sum of
/// products.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Int192([u64; 3]);

impl Int192 {
    #[inline]
    pub(crate) fn add(&mut self, value: i128) {
        let [low, high] = split_limbs(value);
        let extension = (value >> 127) as u64;
        let (limb0, carry) = self.0[0].overflowing_add(low);
        let (limb1, carry) = self.0[1].carrying_add(high, carry);
        let (limb2, _) = self.0[2].carrying_add(extension, carry);
        self.0 = [limb0, limb1, limb2];
    }

    fn checked_i128(&self) -> Option<i128> {
        let value = (u128::from(self.0[1]) << 64 | u128::from(self.0[0])).cast_signed();
        ((value >> 127) as u64 == self.0[2]).then_some(value)
    }

    /// Returns the integer, saturated to 128 bits.
    pub(crate) fn saturating_i128(&self) -> i128 {
        let is_negative = self.0[2] >> 63 == 1;
        self.checked_i128().unwrap_or(if is_negative { i128::MIN } else { i128::MAX })
    }

    /// Returns doubles that add up to the integer exactly: its digits of 32 bits, the highest one signed.
    fn exact_parts(&self) -> impl Iterator<Item = f64> + Clone {
        let [limb0, limb1, limb2] = self.0;
        let low = [limb0, limb0 >> 32, limb1, limb1 >> 32, limb2];
        let low = low.map(|limb| (limb & 0xffff_ffff) as f64);
        let high = (limb2.cast_signed() >> 32) as f64;
        let digits = [low[0], low[1], low[2], low[3], low[4], high];
        let mut scale = 1.0;
        let scaled = digits.map(|digit| {
            let part = digit * scale;
            scale *= 2f64.powi(32);
            part
        });
        scaled.into_iter().filter(|part| *part != 0.0)
    }
}

/// Returns the lower and the upper half.
#[expect(clippy::cast_possible_truncation, reason = "the halves")]
fn split_limbs(value: i128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

impl MomentValue for i64 {
    type Sum = Int192;
    const KIND_CODE: u8 = 0;
    const ZERO: i64 = 0;

    fn is_finite(self) -> bool {
        true
    }

    fn to_f64(self) -> f64 {
        self as f64
    }

    #[inline]
    fn summable_value(self) -> Option<i64> {
        Some(self)
    }

    #[inline]
    fn add_to_sum(sum: &mut Int192, value: i64, is_back: bool) -> usize {
        let value = i128::from(value);
        sum.add(if is_back { -value } else { value });
        0
    }

    #[inline]
    fn add_product_to_sum(sum: &mut Int192, left: i64, right: i64, is_back: bool) -> usize {
        let product = i128::from(left) * i128::from(right);
        sum.add(if is_back { -product } else { product });
        0
    }

    fn add_third_and_fourth_powers(_: &mut Int192, _: &mut Int192, _: i64, _: bool) -> usize {
        0
    }

    fn central_power_sums(_: u64, _: &[Int192], _: f64) -> [f64; 3] {
        [f64::NAN; 3]
    }

    fn merge_sums(sum: &mut Int192, other: &Int192) {
        let (limb0, carry) = sum.0[0].overflowing_add(other.0[0]);
        let (limb1, carry) = sum.0[1].carrying_add(other.0[1], carry);
        let (limb2, _) = sum.0[2].carrying_add(other.0[2], carry);
        sum.0 = [limb0, limb1, limb2];
    }

    fn heap_bytes(_: &Int192) -> usize {
        0
    }

    fn rounded_sum(sum: &Int192) -> f64 {
        match sum.checked_i128() {
            Some(sum) => sum as f64,
            None => {
                let mut total = FloatSum::new();
                sum.exact_parts().for_each(|part| total.add(part));
                total.value()
            }
        }
    }

    fn centered_product_sum(count: u64, products: &Int192, left: &Int192, right: &Int192) -> f64 {
        let narrow = || {
            let products = i128::from(count).checked_mul(products.checked_i128()?)?;
            products.checked_sub(left.checked_i128()?.checked_mul(right.checked_i128()?)?)
        };
        if let Some(difference) = narrow() {
            return difference as f64;
        }
        let mut total = FloatSum::new();
        for part in products.exact_parts() {
            exact_count_parts(count).for_each(|half| total.add_product(part, half, 0));
        }
        for left in left.exact_parts() {
            right.exact_parts().for_each(|right| total.add_product(-left, right, 0));
        }
        total.value()
    }

    fn encode(sum: &Int192, out: &mut Vec<u8>) {
        let mut bytes = [0; 24];
        for (bytes, limb) in bytes.chunks_exact_mut(8).zip(sum.0) {
            bytes.copy_from_slice(&limb.to_le_bytes());
        }
        out.extend_from_slice(trim_sign_bytes(&bytes));
    }

    fn decode(bytes: &[u8]) -> Result<Int192, SketchError> {
        let reader = StateReader::new(STATE, bytes);
        if bytes.len() > 24 {
            return Err(reader.corrupt_error("a sum has more than 192 bits"));
        }
        let is_negative = bytes.last().is_some_and(|last| last >> 7 == 1);
        let mut whole = [if is_negative { 0xff } else { 0 }; 24];
        whole[..bytes.len()].copy_from_slice(bytes);
        if trim_sign_bytes(&whole).len() != bytes.len() {
            return Err(reader.corrupt_error("a sum is longer than it needs to be"));
        }
        let mut sum = Int192::default();
        for (limb, bytes) in sum.0.iter_mut().zip(whole.as_chunks().0) {
            *limb = u64::from_le_bytes(*bytes);
        }
        Ok(sum)
    }
}

/// Removes the bytes at the end of a two's complement number that only repeat its sign; 0 becomes empty.
fn trim_sign_bytes(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., last] = bytes {
        let sign = rest.last().map_or(0, |before| before >> 7);
        if *last != if sign == 1 { 0xff } else { 0 } {
            break;
        }
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn central_power_sums_stay_precise_at_any_mean() {
        // Central sums of 1, 2, 4 and 8, at scales that are powers of two.
        let expected = [28.75, 50.625, 392.828_125];
        for mean in [0.0, 10.0, -1e4, 1e9, 1e15] {
            for scale in [1.0, 2f64.powi(-60), 2f64.powi(180)] {
                let mut moments = Moments::<f64, FOUR_POWER_SUMS>::default();
                let mut halves = [moments.clone(), moments.clone()];
                for (place, x) in [1.0, 2.0, 4.0, 8.0].into_iter().enumerate() {
                    moments.add((mean + x) * scale, 0.0).unwrap();
                    halves[place % 2].add((mean + x) * scale, 0.0).unwrap();
                }
                let found = moments.central_power_sums();
                let [mut one, other] = halves;
                one.merge(&other);
                assert_eq!(one, moments);
                for (power, (found, expected)) in (2..).zip(found.into_iter().zip(expected)) {
                    let expected = expected * scale.powi(power);
                    let error = (found - expected).abs() / expected;
                    assert!(error < 1e-15, "{mean} {scale} {power}: {found}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn equal_values_have_zero_moments_and_large_values_are_refused() {
        let mut moments = Moments::<f64, FOUR_POWER_SUMS>::default();
        assert_eq!(moments.central_power_sums(), [0.0; 3]);
        for _ in 0..3 {
            moments.add(0.1, 0.0).unwrap();
        }
        assert_eq!(moments.central_power_sums(), [0.0; 3]);
        assert_eq!(moments.add(1.1e70, 0.0), Err(MomentValueTooLarge));
        moments.add_finite(7.0, 0.0).unwrap();
        moments.remove_finite(7.0, 0.0).unwrap();
        assert_eq!(moments.central_power_sums(), [0.0; 3]);
        moments.add(f64::INFINITY, 0.0).unwrap();
        assert!(moments.central_power_sums()[1].is_nan());
    }

    #[test]
    fn states_have_documented_sizes() {
        assert_eq!(size_of::<Moments<i64, ONE_COLUMN_SUMS>>(), 56);
        assert_eq!(size_of::<Moments<i64, TWO_COLUMN_SUMS>>(), 128);
        assert_eq!(size_of::<Moments<f64, ONE_COLUMN_SUMS>>(), 88);
        assert_eq!(size_of::<Moments<f64, TWO_COLUMN_SUMS>>(), 208);
    }

    #[test]
    fn squares_of_small_and_large_numbers_use_no_heap_memory() {
        let mut moments = Moments::<f64, ONE_COLUMN_SUMS>::default();
        for x in [1.1e-8, 0.3, 1e14 / 3.0] {
            assert_eq!(moments.add(x, 0.0), Ok(0), "{x}");
        }
        assert_eq!(moments.add(1e-9 / 3.0, 0.0), Ok(304));
        assert_eq!(moments.heap_bytes(), 304);
    }

    #[test]
    fn exact_parts_add_up_to_the_integer() {
        for value in [0, 1, -1, i128::MAX, i128::MIN, 1 << 64, -(1 << 64), 0x1234_5678_9abc_def0] {
            let mut whole = Int192::default();
            whole.add(value);
            assert_eq!(whole.checked_i128(), Some(value));
            assert_eq!(<i64 as MomentValue>::rounded_sum(&whole), value as f64);
            let mut sum = FloatSum::new();
            whole.exact_parts().for_each(|part| sum.add(part));
            assert_eq!(sum.value(), value as f64, "{value}");
            whole.add(value);
            whole.add(value);
            assert_eq!(<i64 as MomentValue>::rounded_sum(&whole), 3.0 * value as f64, "{value}");
        }
    }

    #[test]
    fn integer_sums_beyond_128_bits_are_exact() {
        // Σx² and (Σx)² of 2^40 times as many rows as are added here.
        let of = |values: &[i64]| {
            let mut moments = Moments::<i64, TWO_COLUMN_SUMS>::default();
            for value in values {
                moments.add(*value, value.wrapping_neg()).unwrap();
            }
            (0..40).for_each(|_| moments.merge(&moments.clone()));
            moments
        };
        let spread = of(&[i64::MAX, i64::MIN + 1]);
        let expected = 2f64.powi(40) * 2.0 * 2f64.powi(126);
        assert_eq!(
            (spread.squared_deviations_x(), spread.deviation_products()),
            (expected, -expected)
        );
        // The mean is large and the spread 1: the difference of sums near 2^170 is exact.
        let close = of(&[i64::MAX, i64::MAX - 2]);
        assert_eq!(
            (close.squared_deviations_x(), close.squared_deviations_y()),
            (2f64.powi(41), 2f64.powi(41))
        );
    }

    #[test]
    fn nonfinite_values_make_answers_nan_and_large_values_are_refused() {
        for (x, y) in [(f64::NAN, 5.0), (4.0, f64::INFINITY), (f64::NEG_INFINITY, f64::NAN)] {
            let mut moments = Moments::<f64, TWO_COLUMN_SUMS>::default();
            moments.add(2.0, 3.0).unwrap();
            moments.add(x, y).unwrap();
            let specials = (moments.has_nonfinite_x(), moments.has_nonfinite_y());
            assert_eq!(specials, (!x.is_finite(), !y.is_finite()));
            assert_eq!(moments.count(), 2);
            assert!(moments.deviation_products().is_nan(), "{x} {y}");
            let of_x = (moments.sum_x(), moments.squared_deviations_x());
            let of_y = (moments.sum_y(), moments.squared_deviations_y());
            match x.is_finite() {
                true => assert_eq!(of_x, (6.0, 2.0)),
                false => {
                    assert_eq!((of_x.0.is_nan(), of_x.0 == x), (x.is_nan(), !x.is_nan()));
                    assert!(of_x.1.is_nan());
                }
            }
            match y.is_finite() {
                true => assert_eq!(of_y, (8.0, 2.0)),
                false => {
                    assert_eq!((of_y.0.is_nan(), of_y.0 == y), (y.is_nan(), !y.is_nan()));
                    assert!(of_y.1.is_nan());
                }
            }
            // With removable rows, values that are not finite are not summed.
            let mut slides = Moments::<f64, TWO_COLUMN_SUMS>::default();
            slides.add_finite(x, y).unwrap();
            slides.add_finite(2.0, 3.0).unwrap();
            slides.remove_finite(x, y).unwrap();
            assert_eq!((slides.count(), slides.sum_x(), slides.sum_y()), (1, 2.0, 3.0));
            assert_eq!((slides.squared_deviations_x(), slides.deviation_products()), (0.0, 0.0));
        }
        let mut moments = Moments::<f64, TWO_COLUMN_SUMS>::default();
        assert_eq!(moments.add(1.0, -1e141), Err(MomentValueTooLarge));
        assert_eq!(moments, Moments::default());
        moments.add(1e140, -1e140).unwrap();
        moments.add(-1e140, 1e140).unwrap();
        assert_eq!(moments.squared_deviations_x(), 2e280);
        assert_eq!(moments.deviation_products(), -2e280);
    }

    #[test]
    fn sums_that_no_rows_produce_are_answered_without_panic() {
        let mut sums: [FloatSum; TWO_COLUMN_SUMS] = Default::default();
        for sum in &mut sums {
            sum.add(f64::MAX);
        }
        let mut moments = Moments::<f64, TWO_COLUMN_SUMS> { count: u64::MAX, sums };
        moments.merge(&moments.clone());
        for answer in [
            moments.squared_deviations_x(),
            moments.squared_deviations_y(),
            moments.deviation_products(),
        ] {
            assert!(!answer.is_finite() || answer == 0.0, "{answer}");
        }
    }
}
