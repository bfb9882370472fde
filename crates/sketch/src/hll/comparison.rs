//! Two states beside one another: what they share, and what only one has.
//!
//! HyperLogLog has unions; all else follows by inclusion and exclusion, |A∩B| = |A| + |B| − |A∪B|, and
//! carries the errors of all three: a small overlap of large sets drowns in them. So each
//! number has its standard error, and one that may be nothing but error is refused.
//!
//! The errors go together: a register of the union is the left one's wherever its largest value came from there,
//! which is a share |A|/|A∪B| of all, and is as far off as that one; a register of both is the same in a
//! share |A∩B|/|A∪B|. With these shares for correlations a number's variance is what those of its parts leave of one
//! another; of equal relative errors σ, that of the intersection is σ²(|A∪B|² − |A|² − |B|² + 2|A||B||A∩B|/|A∪B|). The overlap in
//! it is the least that is likely, where the variance is largest: none seen may be one that was not seen.
//! Sketches of other registers are folded to the smaller ones, and their errors taken as independent, which is on
//! the safe side. Estimates are Ertl's (see [`Estimator::Improved`]): a bias of the published one, small beside a
//! count, is large beside the difference of two.

use super::HllRepresentation;
use super::estimate::{CardinalityEstimator, SketchEstimate};
use crate::Hll;

/// The errors of two states' numbers and of their union's, and what these have to do with one another.
struct ComparisonErrors {
    /// Standard errors of both and of the union.
    standard_errors: [f64; 3],
    /// Correlations of the first with the second, and of each with the union.
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

    /// The variance of a sum of both numbers and the union's, each times a factor.
    fn variance(&self, factors: [f64; 3]) -> f64 {
        let [a, b, u] = [0, 1, 2].map(|of| factors[of] * self.standard_errors[of]);
        let [ab, au, bu] = self.correlations;
        a * a + b * b + u * u + 2.0 * (ab * a * b + au * a * u + bu * b * u)
    }
}

/// What two states have in common, and what not: all numbers, uncertain ones included.
///
/// Exact where both states still keep their hashes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HllComparison {
    /// Different values in the first.
    pub left: SketchEstimate,
    /// Different values in the second.
    pub right: SketchEstimate,
    /// In either.
    pub union: SketchEstimate,
    /// In both.
    pub intersection: SketchEstimate,
    /// In the first alone.
    pub left_only: SketchEstimate,
    /// In the second alone.
    pub right_only: SketchEstimate,
    /// In exactly one of them.
    pub symmetric_difference: SketchEstimate,
    /// The intersection as a share of the union, from 0 to 1; 0 of two empty states.
    pub jaccard: SketchEstimate,
}

/// A number was refused, because its error at 95 % is larger than the number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the {what} cannot be told from nothing: {} ± {} (95 %)\n\
     hint: a larger `log2m` narrows it; ask for uncertain numbers to have it all the same",
    rounded(estimate.value),
    rounded(estimate.margin_of_error())
)]
pub struct UncertainEstimate {
    /// What was asked for.
    pub what: &'static str,
    /// The number all the same.
    pub estimate: SketchEstimate,
}

/// Whole from a hundred on, else three digits.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn require_certain(
    what: &'static str,
    estimate: SketchEstimate,
) -> Result<SketchEstimate, UncertainEstimate> {
    // Written so that NaN is refused.
    if estimate.margin_of_error() <= estimate.value {
        Ok(estimate)
    } else {
        Err(UncertainEstimate { what, estimate })
    }
}

impl Hll {
    /// The union as a new state: [`Hll::merge`] of both.
    #[must_use]
    pub fn union(&self, other: &Hll) -> Hll {
        let mut union = self.clone();
        union.merge(other);
        union
    }

    /// How many values both states have seen.
    ///
    /// # Errors
    /// [`Uncertain`], with the number in it, if its error at 95 % exceeds it.
    /// [`Hll::compare`] has it without.
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
    /// assert!((both.value - 20_000.0).abs() < 2.0 * both.error());
    /// assert!(monday.intersection(&of(59_990..120_000)).is_err());
    /// # Ok::<(), tidemill_sketch::Uncertain>(())
    /// ```
    pub fn intersection(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("intersection", self.compare(other).intersection)
    }

    /// How many values this state has seen and the other has not.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn difference(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("difference", self.compare(other).left_only)
    }

    /// The share of all values that both states have seen.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn jaccard(&self, other: &Hll) -> Result<SketchEstimate, UncertainEstimate> {
        require_certain("Jaccard index", self.compare(other).jaccard)
    }

    /// All numbers of two states, however uncertain. Parameters may differ: the union is then of
    /// the smaller ones. Cost: a copy and a merge.
    #[must_use]
    pub fn compare(&self, other: &Hll) -> HllComparison {
        if let Some(comparison) = self.compare_exactly(other) {
            return comparison;
        }
        let [a, b, u] =
            [self, other, &self.union(other)].map(|of| of.estimate(CardinalityEstimator::Improved));
        // `min` and `max` would make a number of NaN, which undefined states have.
        let within = |value: f64, max: f64| {
            if value.is_nan() || max.is_nan() { f64::NAN } else { value.max(0.0).min(max) }
        };
        let high = |of: SketchEstimate| of.confidence_interval().1;
        let of = |value: f64, max: f64, most: f64, variance: f64| SketchEstimate {
            value: within(value, max),
            // That of an undefined state stays no number.
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
