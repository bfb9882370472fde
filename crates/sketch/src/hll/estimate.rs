//! Estimation of the distinct count and its standard error from the registers.
//!
//! Both estimators use the number of registers that hold each value:
//! - [`CardinalityEstimator::Published`] is the one of Flajolet, Fusy, Gandouet and Meunier (2007), with
//!   linear counting below 2.5·m and the large-range correction, as in postgresql-hll and java-hll. Just
//!   above 2.5·m it is 2.4 % too high on average, at 3·m 1.1 %, at 4·m 0.2 %, for any m: with 1,024 registers
//!   that is 0.7 standard errors, with 4,096 1.5.
//! - [`CardinalityEstimator::Improved`] is Otmar Ertl's improved raw estimator (*New cardinality estimation
//!   algorithms for HyperLogLog sketches*, 2017, algorithm 6). It corrects the mean for registers
//!   at 0 and at their maximum instead of switching formulas, and has no such biased region. (With 16
//!   registers it is 4 to 7 % too high on average, with 256 up to 0.8 %, with 1,024 up to 0.3 %.)
//!
//! These figures are from a thousand runs: `cargo run --release --example accuracy`.
//!
//! The standard error comes from the distribution of the registers. At a load of λ = n/m a
//! register is at most k with probability exp(−λ/2^k). The Fisher information of all registers about ln λ
//! bounds the precision of any estimator: 0.71/√m while registers are mostly empty, 1.04/√m once they
//! are filled, and unlimited once they are too narrow for the number of values.

use std::f64::consts::LN_2;

use super::{HllParams, HllRepresentation};
use crate::Hll;

/// The formula that turns registers into an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CardinalityEstimator {
    /// The published estimator: the results of postgresql-hll and java-hll. The default. From 2.5·m to 4·m
    /// values it is up to 2.4 % too high on average, which its standard error includes.
    #[default]
    Published,
    /// Ertl's improved raw estimator: no biased region, at the same standard error.
    Improved,
}

/// An estimated number with its standard error.
///
/// ```
/// use tidemill_sketch::{CardinalityEstimator, Hll};
/// let mut hll = Hll::default();
/// hll.add_i64s(&(0..100_000).collect::<Vec<i64>>());
/// let estimate = hll.estimate(CardinalityEstimator::Improved);
/// let (low, high) = estimate.confidence_interval();
/// assert!(low < 100_000.0 && 100_000.0 < high);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SketchEstimate {
    /// The estimate; NaN for an undefined state, infinite if registers are too narrow.
    pub value: f64,
    /// One standard error, in the unit of the value; 0 if the value is exact.
    pub standard_error: f64,
    /// Upper limit of the true number, certain whatever the standard error; infinite if none is known.
    pub value_max: f64,
}

/// Number of standard errors on each side that contain 95 % of a normal distribution.
const Z_SCORE_95: f64 = 1.96;

impl SketchEstimate {
    pub(crate) fn from_exact(value: f64) -> Self {
        SketchEstimate { value, standard_error: 0.0, value_max: value }
    }

    pub(crate) fn with_standard_error(value: f64, standard_error: f64) -> Self {
        SketchEstimate { value, standard_error, value_max: f64::INFINITY }
    }

    /// Returns the margin of error at 95 %: in 19 cases of 20 the true number is within this distance of the
    /// value.
    #[must_use]
    pub fn margin_of_error(&self) -> f64 {
        if self.standard_error == 0.0 { 0.0 } else { Z_SCORE_95 * self.standard_error }
    }

    /// Returns the 95 % confidence interval, limited to 0 below and to
    /// [`value_max`](SketchEstimate::value_max) above.
    #[must_use]
    pub fn confidence_interval(&self) -> (f64, f64) {
        let high = self.value + self.margin_of_error();
        // `min` would replace NaN by a number.
        let high = if high > self.value_max { self.value_max } else { high };
        ((self.value - self.margin_of_error()).max(0.0), high)
    }

    /// Returns true if the value is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.standard_error == 0.0
    }
}

impl Hll {
    /// Estimates the number of distinct values with its standard error; exact while hashes are
    /// kept. Cost: a handful of additions for each possible register value; after a merge
    /// or a decode one pass over the registers. The standard error takes about a microsecond.
    #[must_use]
    pub fn estimate(&self, estimator: CardinalityEstimator) -> SketchEstimate {
        let value = self.cardinality_with(estimator);
        let standard_error = match self.form {
            HllRepresentation::Undefined => f64::NAN,
            HllRepresentation::Empty | HllRepresentation::Explicit(_) => 0.0,
            HllRepresentation::Sparse(_) | HllRepresentation::Dense(_) if value == 0.0 => 0.0,
            HllRepresentation::Sparse(_) | HllRepresentation::Dense(_) => {
                value * relative_standard_error_at(self.params, value, estimator)
            }
        };
        match standard_error == 0.0 {
            true => SketchEstimate::from_exact(value),
            false => SketchEstimate::with_standard_error(value, standard_error),
        }
    }

    /// Estimates the number of distinct values with one of the estimators: exact while their
    /// hashes are kept. [`Hll::cardinality`] uses the published one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    pub fn cardinality_with(&self, estimator: CardinalityEstimator) -> f64 {
        let few;
        let counts = match &self.form {
            HllRepresentation::Undefined => return f64::NAN,
            HllRepresentation::Empty => return 0.0,
            HllRepresentation::Explicit(set) => return set.len() as f64,
            HllRepresentation::Sparse(table) => {
                let mut counts = [0u32; 256];
                counts[0] = 1 << self.params.log2m;
                for (_, value) in table.iter() {
                    counts[0] -= 1;
                    counts[usize::from(value)] += 1;
                }
                few = counts;
                &few[..1 << self.params.regwidth]
            }
            HllRepresentation::Dense(registers) => registers.value_counts(),
        };
        match estimator {
            CardinalityEstimator::Published => published_cardinality(self.params, counts),
            CardinalityEstimator::Improved => improved_cardinality(self.params, counts),
        }
    }
}

fn published_cardinality(params: HllParams, counts: &[u32]) -> f64 {
    let m = register_count_f64(params);
    let zeros = f64::from(counts[0]);
    // Σ count · 2^−value, from the largest value down: exact, as every partial sum fits a float.
    let sum = counts.iter().rev().fold(0.0, |sum, &count| sum / 2.0 + f64::from(count));
    let alpha = match params.log2m {
        4 => 0.673,
        5 => 0.697,
        6 => 0.709,
        _ => 0.7213 / (1.0 + 1.079 / m),
    };
    let estimate = alpha * m * m / sum;
    if zeros > 0.0 && estimate < 2.5 * m {
        return m * (m / zeros).ln();
    }
    // Number of distinct (register, run) outcomes; near it, collisions hide values.
    let outcomes = 2f64.powi(i32::from(params.register_max()) - 1 + i32::from(params.log2m));
    if estimate <= outcomes / 30.0 {
        estimate
    } else if estimate < outcomes {
        -outcomes * (1.0 - estimate / outcomes).ln()
    } else {
        f64::INFINITY
    }
}

fn improved_cardinality(params: HllParams, counts: &[u32]) -> f64 {
    let m = register_count_f64(params);
    let last = usize::from(effective_register_max(params));
    // Decoded registers may hold values that no hash produces: they count as the maximum.
    let at_last: f64 = counts.iter().skip(last).copied().map(f64::from).sum();
    let mut sum = m * tau(1.0 - at_last / m);
    for &count in counts[1..last.min(counts.len())].iter().rev() {
        sum = (sum + f64::from(count)) / 2.0;
    }
    sum += m * sigma(f64::from(counts[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * sum)
}

/// Computes σ(x) = x + Σ x^(2^k) · 2^(k−1), for registers at 0.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight *= 2.0;
        if sum <= before {
            return sum;
        }
    }
}

/// Computes τ(x) = ⅓ (1 − x − Σ (1 − x^(2^−k))² · 2^−k), for registers at their maximum.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight /= 2.0;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

fn register_count_f64(params: HllParams) -> f64 {
    2f64.powi(params.log2m.into())
}

/// Returns the largest value that a register can reach: its maximum, or one more than
/// the longest run in the bits of a hash above the index.
fn effective_register_max(params: HllParams) -> u8 {
    params.register_max().min(65 - params.log2m)
}

/// Returns the standard error relative to `count`, for a state of that many values.
pub(super) fn relative_standard_error_at(
    params: HllParams,
    count: f64,
    estimator: CardinalityEstimator,
) -> f64 {
    let m = register_count_f64(params);
    let load = count / m;
    if load == 0.0 {
        return 0.0;
    }
    if !load.is_finite() {
        return f64::INFINITY;
    }
    // For each value: its probability, and the derivative of that by ln λ.
    let (mut information, mut harmonic) = (0.0, 0.0);
    let (mut below, mut below_slope) = (0.0, 0.0);
    let last = effective_register_max(params);
    for value in 0..=last {
        let exponent = load * 2f64.powi(-i32::from(value));
        let (at_most, slope) = if value == last {
            (1.0, 0.0)
        } else {
            ((-exponent).exp(), -exponent * (-exponent).exp())
        };
        let (probability, change): (f64, f64) = (at_most - below, slope - below_slope);
        if probability > 1e-300 {
            information += change * change / probability;
        }
        harmonic += probability * 2f64.powi(-i32::from(value));
        (below, below_slope) = (at_most, slope);
    }
    // The model's number of values is itself random (Poisson); a fixed number has that much less variance.
    // At a load near 0 the difference is dominated by rounding; its limit is a half.
    let variance = (information.recip() - load.recip()).max(0.4) / m;
    let bound = variance.sqrt();
    match estimator {
        // Below 2.5·m: Whang et al., *A linear-time probabilistic counting algorithm* (1990).
        CardinalityEstimator::Published if load < 2.5 => ((load.exp_m1() - load) / m).sqrt() / load,
        // The mean of the registers is unbiased once they are filled; before that it is too high by a
        // computed bias.
        CardinalityEstimator::Published => {
            let bias = if load < 8.0 { 0.5 / (LN_2 * load * harmonic) - 1.0 } else { 0.0 };
            bound.max(1.04 / m.sqrt()).hypot(bias)
        }
        // A simple mean is at most a hundredth above the bound.
        CardinalityEstimator::Improved => 1.01 * bound,
    }
}
