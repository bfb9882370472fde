//! Set operations on two HyperLogLog states: overlap and differences with their standard errors.
//!
//! HyperLogLog supports unions directly. All other numbers follow by inclusion and exclusion,
//! |A∩B| = |A| + |B| − |A∪B|, and carry the errors of all three terms: a small overlap of large sets drowns in
//! them. So each number has its standard error, and a number that may consist of error alone is refused.
//!
//! The errors are correlated. A register of the union equals the left state's register if its largest value
//! came from there, which happens in a share |A|/|A∪B| of all registers, and then has the same error. A
//! register of both states is equal in a share |A∩B|/|A∪B|. With these shares as correlations, the variance
//! of a number is the variance of the sum of its correlated terms. With equal relative errors σ, the variance
//! of the intersection is σ²(|A∪B|² − |A|² − |B|² + 2|A||B||A∩B|/|A∪B|). The overlap in this formula is the
//! smallest likely one, where the variance is largest: an overlap estimated as zero may be one that was
//! missed. Sketches with different registers are folded to the smaller ones, and their errors are taken as
//! independent, which overestimates the error. Estimates use Ertl's estimator (see
//! [`CardinalityEstimator::Improved`]): the bias of the published one is small compared to a count, but large
//! compared to the difference of two counts.

use super::HllRepresentation;
use super::estimate::{CardinalityEstimator, SketchEstimate};
use crate::Hll;

/// The standard errors of two states' counts and of their union's count, with the correlations between them.
struct ComparisonErrors {
    /// Standard errors of the first state, the second state and the union.
    standard_errors: [f64; 3],
    /// Correlations of the first with the second state, and of each with the union.
    correlations: [f64; 3],
}

impl ComparisonErrors {
    fn from_estimates(
        a: SketchEstimate,
        b: SketchEstimate,
        u: SketchEstimate,
        are_alike: bool,
    ) -> Self {
        let relative =
            |of: SketchEstimate| if of.value > 0.0 { of.standard_error / of.value } else { 0.0 };
        if !are_alike {
            let errors = [a, b, u].map(|of| of.standard_error);
            return ComparisonErrors { standard_errors: errors, correlations: [0.0; 3] };
        }
        let at = |overlap: f64| {
            let union = (a.value + b.value - overlap).max(a.value).max(b.value);
            let share = |part: f64| if union > 0.0 { (part / union).clamp(0.0, 1.0) } else { 0.0 };
            let errors = [a.standard_error, b.standard_error, relative(u) * union];
            ComparisonErrors {
                standard_errors: errors,
                correlations: [share(overlap), share(a.value), share(b.value)],
            }
        };
        let overlap = (a.value + b.value - u.value).clamp(0.0, a.value.min(b.value).max(0.0));
        let widest = at(0.0).variance([1.0, 1.0, -1.0]).max(0.0).sqrt();
        at((overlap - 2.0 * widest).max(0.0))
    }

    /// Returns the variance of a weighted sum of the first count, the second count and the union's count.
    fn variance(&self, factors: [f64; 3]) -> f64 {
        let [a, b, u] = [0, 1, 2].map(|of| factors[of] * self.standard_errors[of]);
        let [ab, au, bu] = self.correlations;
        a * a + b * b + u * u + 2.0 * (ab * a * b + au * a * u + bu * b * u)
    }
}

/// The overlap and the differences of two states: all numbers, including uncertain ones.
///
/// Exact if both states still keep their hashes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HllComparison {
    /// Number of distinct values in the first state.
    pub left: SketchEstimate,
    /// Number of distinct values in the second state.
    pub right: SketchEstimate,
    /// Number of distinct values in either state.
    pub union: SketchEstimate,
    /// Number of distinct values in both states.
    pub intersection: SketchEstimate,
    /// Number of distinct values in the first state alone.
    pub left_only: SketchEstimate,
    /// Number of distinct values in the second state alone.
    pub right_only: SketchEstimate,
    /// Number of distinct values in exactly one of the states.
    pub symmetric_difference: SketchEstimate,
    /// The intersection as a share of the union, from 0 to 1; 0 for two empty states.
    pub jaccard: SketchEstimate,
}

/// The error for a number whose margin of error at 95 % exceeds the number itself.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the {what} cannot be told from nothing: {} ± {} (95 %)\n\
     hint: a larger `log2m` narrows it; ask for uncertain numbers to have it all the same",
    rounded(estimate.value),
    rounded(estimate.margin_of_error())
)]
pub struct UncertainEstimate {
    /// Name of the requested number.
    pub what: &'static str,
    /// The refused estimate.
    pub estimate: SketchEstimate,
}

/// Formats a number: without decimals from a hundred on, otherwise with three.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn require_certain(
    what: &'static str,
    estimate: SketchEstimate,
) -> Result<SketchEstimate, UncertainEstimate> {
    // The comparison is false for NaN, which is refused.
    if estimate.margin_of_error() <= estimate.value {
        Ok(estimate)
    } else {
        Err(UncertainEstimate { what, estimate })
    }
}

impl Hll {
    /// Returns the union as a new state: [`Hll::merge`] of both.
    #[must_use]
    pub fn union(&self, other: &Hll) -> Hll {
        let mut union = self.clone();
        union.merge(other);
        union
    }

    /// Estimates the number of values that both states have seen.
    ///
    /// # Errors
    /// [`UncertainEstimate`], which contains the number, if its margin of error at 95 % exceeds it.
    /// [`Hll::compare`] returns the number in any case.
    ///
    /// ```
    /// use tidemill_sketch::Hll;
    /// let of = |ids: std::ops::Range<i64>| {
    ///     let mut hll = Hll::default();
    ///     hll.add_i64s(&ids.collect::<Vec<_>>());
    ///     hll
    /// };
    /// let (monday, tuesday) = (of(0..60_000), of(40_000..100_000));
    /// let both = monday.intersection(&tuesday)?;
    /// assert!((both.value - 20_000.0).abs() < 2.0 * both.margin_of_error());
    /// assert!(monday.intersection(&of(59_990..120_000)).is_err());
    /// # Ok::<(), tidemill_sketch::UncertainEstimate>(())
    /// ```
    pub fn intersection(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("intersection", self.compare(other).intersection)
    }

    /// Estimates the number of values that this state has seen and the other has not.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn difference(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("difference", self.compare(other).left_only)
    }

    /// Estimates the share of all values that both states have seen.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn jaccard(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("Jaccard index", self.compare(other).jaccard)
    }

    /// Returns all numbers of the comparison, however uncertain. If the parameters differ, the union has
    /// the smaller ones. Cost: a copy and a merge.
    #[must_use]
    pub fn compare(&self, other: &Hll) -> HllComparison {
        if let Some(comparison) = self.compare_exactly(other) {
            return comparison;
        }
        let [a, b, u] =
            [self, other, &self.union(other)].map(|of| of.estimate(CardinalityEstimator::Improved));
        // `min` and `max` would replace NaN, which undefined states have, by a number.
        let within = |value: f64, max: f64| {
            if value.is_nan() || max.is_nan() { f64::NAN } else { value.max(0.0).min(max) }
        };
        let high = |of: SketchEstimate| of.confidence_interval().1;
        let of = |value: f64, max: f64, most: f64, variance: f64| SketchEstimate {
            value: within(value, max),
            // The variance of an undefined state stays NaN.
            standard_error: if variance < 0.0 { 0.0 } else { variance.sqrt() },
            value_max: most,
        };
        let registers = |hll: &Hll| (hll.params.log2m, hll.params.regwidth);
        let errors = ComparisonErrors::from_estimates(a, b, u, registers(self) == registers(other));
        HllComparison {
            left: a,
            right: b,
            union: u,
            intersection: of(
                a.value + b.value - u.value,
                a.value.min(b.value),
                high(a).min(high(b)),
                errors.variance([1.0, 1.0, -1.0]),
            ),
            left_only: of(u.value - b.value, a.value, high(a), errors.variance([0.0, -1.0, 1.0])),
            right_only: of(u.value - a.value, b.value, high(b), errors.variance([-1.0, 0.0, 1.0])),
            symmetric_difference: of(
                2.0 * u.value - a.value - b.value,
                u.value,
                high(u),
                errors.variance([-1.0, -1.0, 2.0]),
            ),
            jaccard: {
                let ratio = (a.value + b.value) / u.value;
                let variance = errors.variance([1.0, 1.0, -ratio]);
                of(ratio - 1.0, 1.0, 1.0, variance / (u.value * u.value))
            },
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn compare_exactly(&self, other: &Hll) -> Option<HllComparison> {
        let sorted = |hll: &Hll| match &hll.form {
            HllRepresentation::Empty => Some(Vec::new()),
            HllRepresentation::Explicit(set) => Some(set.sorted_hashes()),
            HllRepresentation::Undefined
            | HllRepresentation::Sparse(_)
            | HllRepresentation::Dense(_) => None,
        };
        let (left, right) = (sorted(self)?, sorted(other)?);
        let shared = left.iter().filter(|hash| right.binary_search(hash).is_ok()).count();
        let union = left.len() + right.len() - shared;
        let exact = |count: usize| SketchEstimate::from_exact(count as f64);
        Some(HllComparison {
            left: exact(left.len()),
            right: exact(right.len()),
            union: exact(union),
            intersection: exact(shared),
            left_only: exact(left.len() - shared),
            right_only: exact(right.len() - shared),
            symmetric_difference: exact(union - shared),
            jaccard: SketchEstimate::from_exact(shared as f64 / union.max(1) as f64),
        })
    }
}
