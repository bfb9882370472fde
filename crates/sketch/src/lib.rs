//! Mergeable summaries of a stream of values, and the hash they share.
//!
//! A summary here is a *state*: it starts empty, takes values one at a time, merges with
//! another state of its kind, answers, and turns into bytes and back. Two workers that each
//! saw half of the rows hold two states; their merge is the state of all the rows.
//!
//! | type | answers | while small | beyond that | depends on the order of rows and merges |
//! | --- | --- | --- | --- | --- |
//! | [`Hll`] | how many different values | exact | standard error 1.04/√m | never |
//! | [`Quantiles`] | median, 95th percentile, … | exact | a guaranteed interval | never |
//! | [`FloatSum`] | the sum, correctly rounded | exact | exact | never |
//! | [`Bootstrap`] | the sum, and its interval | exact; by a Poisson bootstrap | the same | never |
//! | [`Moments`] | variance, covariance, correlation | exact | exact | never |
//! | [`DistinctValues`] | which values there are | exact | nothing: it is given up | never |
//! | [`DistinctSample`] | some of the distinct items, how often each came | all of them | a uniform sample, standard error 1/√n | never |
//! | [`Ids`] | which 64-bit ids there are | exact | exact | never |
//! | [`TopK`] | the most frequent items | exact | a guaranteed interval per count | which items survive and how wide; never the guarantee |
//!
//! Beside them stand [`IdSpace`], which numbers 64-bit ids densely, and [`IdSet`], exact sets of such numbers with
//! union, intersection and difference by words.
//!
//! What the states have in common:
//! - `encode` writes a canonical, versioned form: equal states give equal bytes. `decode`
//!   takes bytes from anywhere: it refuses what is not a state with a [`SketchError`], never
//!   panics, and allocates in proportion to its input. The forms are laid out byte by byte
//!   in `docs/formats/states.md`.
//! - An empty state owns no heap memory, and `heap_bytes` says in constant time what a state
//!   owns, so that a table of millions of groups can be held to a budget.
//! - Nothing here does I/O, starts a thread or reads a clock.
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
