//! Mergeable sketches of a stream of values, and the hash functions they share.
//!
//! A sketch is a *state*: it starts empty, takes values one at a time, merges with another state of its type,
//! answers queries, and converts to bytes and back. Two workers that each saw half of the rows hold two
//! states; the merge of both is the state of all rows.
//!
//! | type | answers | while small | beyond that | depends on the order of rows and merges |
//! | --- | --- | --- | --- | --- |
//! | [`Hll`] | number of distinct values | exact | standard error 1.04/√m | never |
//! | [`Quantiles`] | median, 95th percentile, … | exact | a guaranteed interval | never |
//! | [`FloatSum`] | the sum, correctly rounded | exact | exact | never |
//! | [`BootstrapSum`] | the sum with a confidence interval | exact; interval by a Poisson bootstrap | the same | never |
//! | [`Moments`] | variance, covariance, correlation | exact | exact | never |
//! | [`DistinctValues`] | the distinct values | exact | nothing: the set overflows | never |
//! | [`DistinctSample`] | distinct items with their occurrence counts | all of them | a uniform sample, standard error 1/√n | never |
//! | [`SortedIdSet`] | the distinct 64-bit ids | exact | exact | never |
//! | [`TopK`] | the most frequent items | exact | a guaranteed interval per count | the surviving items and the width of their intervals; never the guarantee |
//!
//! In addition, [`IdSpace`] assigns dense numbers to 64-bit ids, and [`IdSet`] is an exact set of such
//! numbers with word-wise union, intersection and difference.
//!
//! All states share these properties:
//! - `encode` writes a canonical, versioned form: equal states give equal bytes. `decode` accepts bytes from
//!   any source: it refuses invalid bytes with a [`SketchError`], never panics, and allocates in proportion
//!   to its input. `docs/formats/states.md` lays out the forms byte by byte.
//! - An empty state owns no heap memory, and `heap_bytes` returns in constant time how much memory a state
//!   owns, so that a table of millions of groups can respect a budget.
//! - This crate does no I/O, starts no thread and reads no clock.
//!
//! ```
//! use tidemill_sketch::{Hll, hash_bytes};
//!
//! let (mut monday, mut tuesday) = (Hll::default(), Hll::default());
//! for user in ["ana", "bo", "cy"] {
//!     monday.add_hash(hash_bytes(user.as_bytes(), 0));
//! }
//! for user in ["bo", "dee"] {
//!     tuesday.add_hash(hash_bytes(user.as_bytes(), 0));
//! }
//! monday.merge(&tuesday);
//! assert_eq!(monday.count(), 4);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap
    )
)]

mod bootstrap;
mod byte_item;
mod distinct_sample;
mod distinct_values;
mod error;
mod float_sum;
mod hll;
mod ids;
mod moments;
mod murmur3;
mod quantiles;
mod simd;
mod state_encoding;
mod top_k;

pub use bootstrap::BootstrapSum;
pub use distinct_sample::{DistinctSample, SampleWeight, SampledItem};
pub use distinct_values::DistinctValues;
pub use error::SketchError;
pub use float_sum::FloatSum;
pub use hll::{
    CardinalityEstimator, ExplicitThreshold, Hll, HllComparison, HllParams, HllStorageDialect,
    SketchEstimate, UncertainEstimate,
};
pub use ids::{IdSet, IdSetIter, IdSpace, IdSpaceFull, IdSpaceView, SortedIdSet, SortedIdSetIter};
pub use moments::{
    FOUR_POWER_SUMS, Int192, MomentValue, MomentValueTooLarge, Moments, ONE_COLUMN_SUMS,
    TWO_COLUMN_SUMS,
};
pub use murmur3::{hash_bytes, hash_f64, hash_i64, hash_i64s};
pub use quantiles::{HistogramBar, QuantileLevel, Quantiles};
pub use top_k::{TopItem, TopK};

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
