//! Two states beside one another: what they share, and what only one has.
//!
//! HyperLogLog has unions; all else follows by inclusion and exclusion, |A∩B| = |A| + |B| − |A∪B|, and
//! carries the errors of all three: a small overlap of large sets drowns in them. So each
//! number has its standard error, and one that may be nothing but error is refused.
//!
//! The errors are taken as independent, which is on the safe side: those of a union and of its
//! parts go the same way, and the difference in which both stand is then off by less.
//! Estimates are Ertl's (see [`Estimator::Improved`]): a bias of the published one, small beside a
//! count, is large beside the difference of two.

use super::Repr;
use super::estimate::{Estimate, Estimator};
use crate::Hll;

/// What two states have in common, and what not: all numbers, uncertain ones included.
///
/// Exact where both states still keep their hashes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Different values in the first.
    pub left: Estimate,
    /// Different values in the second.
    pub right: Estimate,
    /// In either.
    pub union: Estimate,
    /// In both.
    pub intersection: Estimate,
    /// In the first alone.
    pub left_only: Estimate,
    /// In the second alone.
    pub right_only: Estimate,
    /// In exactly one of them.
    pub symmetric_difference: Estimate,
    /// The intersection as a share of the union, from 0 to 1; 0 of two empty states.
    pub jaccard: Estimate,
}

/// A number was refused, because its error at 95 % is larger than the number.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the {what} cannot be told from nothing: {} ± {} (95 %)\n\
     hint: a larger `log2m` narrows it; ask for uncertain numbers to have it all the same",
    rounded(estimate.value),
    rounded(estimate.error())
)]
pub struct Uncertain {
    /// What was asked for.
    pub what: &'static str,
    /// The number all the same.
    pub estimate: Estimate,
}

/// Whole from a hundred on, else three digits.
fn rounded(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn certain(what: &'static str, estimate: Estimate) -> Result<Estimate, Uncertain> {
    // Written so that NaN is refused.
    if estimate.error() <= estimate.value {
        Ok(estimate)
    } else {
        Err(Uncertain { what, estimate })
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
    pub fn intersection(&self, other: &Hll) -> Result<Estimate, Uncertain> {
        certain("intersection", self.compare(other).intersection)
    }

    /// How many values this state has seen and the other has not.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn difference(&self, other: &Hll) -> Result<Estimate, Uncertain> {
        certain("difference", self.compare(other).left_only)
    }

    /// The share of all values that both states have seen.
    ///
    /// # Errors
    /// As [`Hll::intersection`].
    pub fn jaccard(&self, other: &Hll) -> Result<Estimate, Uncertain> {
        certain("Jaccard index", self.compare(other).jaccard)
    }

    /// All numbers of two states, however uncertain. Parameters may differ: the union is then of
    /// the smaller ones. Cost: a copy and a merge.
    #[must_use]
    pub fn compare(&self, other: &Hll) -> Comparison {
        if let Some(comparison) = self.compare_exactly(other) {
            return comparison;
        }
        let [a, b, u] =
            [self, other, &self.union(other)].map(|of| of.estimate(Estimator::Improved));
        let error = |parts: &[(f64, Estimate)]| {
            let square = |(factor, of): &(f64, Estimate)| (factor * of.standard_error).powi(2);
            parts.iter().map(square).sum::<f64>().sqrt()
        };
        // `min` and `max` would make a number of NaN, which undefined states have.
        let within = |value: f64, max: f64| {
            if value.is_nan() || max.is_nan() { f64::NAN } else { value.max(0.0).min(max) }
        };
        let of =
            |value, max, standard_error| Estimate { value: within(value, max), standard_error };
        let share = error(&[(1.0, a), (1.0, b), ((a.value + b.value) / u.value, u)]) / u.value;
        Comparison {
            left: a,
            right: b,
            union: u,
            intersection: of(
                a.value + b.value - u.value,
                a.value.min(b.value),
                error(&[(1.0, a), (1.0, b), (1.0, u)]),
            ),
            left_only: of(u.value - b.value, a.value, error(&[(1.0, u), (1.0, b)])),
            right_only: of(u.value - a.value, b.value, error(&[(1.0, u), (1.0, a)])),
            symmetric_difference: of(
                2.0 * u.value - a.value - b.value,
                u.value,
                error(&[(2.0, u), (1.0, a), (1.0, b)]),
            ),
            jaccard: of((a.value + b.value) / u.value - 1.0, 1.0, share),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
    fn compare_exactly(&self, other: &Hll) -> Option<Comparison> {
        let sorted = |hll: &Hll| match &hll.repr {
            Repr::Empty => Some(Vec::new()),
            Repr::Explicit(set) => Some(set.sorted()),
            Repr::Undefined | Repr::Sparse(_) | Repr::Dense(_) => None,
        };
        let (left, right) = (sorted(self)?, sorted(other)?);
        let shared = left.iter().filter(|hash| right.binary_search(hash).is_ok()).count();
        let union = left.len() + right.len() - shared;
        let exact = |count: usize| Estimate::exact(count as f64);
        Some(Comparison {
            left: exact(left.len()),
            right: exact(right.len()),
            union: exact(union),
            intersection: exact(shared),
            left_only: exact(left.len() - shared),
            right_only: exact(right.len() - shared),
            symmetric_difference: exact(union - shared),
            jaccard: Estimate::exact(shared as f64 / union.max(1) as f64),
        })
    }
}
