//! The order in which the splits of an input are read, and interval estimates from the splits read so far.
//!
//! An input is cut into *splits* of known sizes, of which some are read. [`SamplingOrder`] yields the next
//! split, so that the splits read at any time are a random sample, spread evenly. [`SplitSample`] records the
//! splits read. It turns sums over them into estimates of the totals, with intervals that contain the exact
//! answer with a stated probability, or a reason for the lack of an interval: [`ConfidenceInterval`].
//!
//! - Totals: [`SplitSample::estimate_total`]. Means and other ratios: [`SplitSample::estimate_ratio`]. Any
//!   smooth function of totals: [`SplitSample::estimate_function`]. Shares, and through them quantiles:
//!   [`SplitSample::share_interval`].
//! - Margins for splits unlike all those read, which a sample cannot show: [`UnlikeSplitMargin`].
//! - Groups that were not seen: [`unseen_group_share_max`]. Stopping at a target precision:
//!   [`splits_before_look`] and [`look_confidence`].
//!
//! The crate knows nothing of files, queries or threads. It does no I/O and reads no clock, and equal calls
//! give equal answers on every machine. Logarithms and exponentials are those of crate `libm`, because the
//! last digit of the C library's results depends on the processor.
//!
//! ```
//! use tidemill_sampling::{
//!     ConfidenceInterval, FormulaTotal, RowSet, SamplingOrder, SplitSample, SumsByCell, cell_of_split,
//! };
//!
//! // 1,000 splits, of 100 to 104 bytes; each has a row for every 8 to 10 bytes.
//! let bytes = |split: usize| 100.0 + (split % 5) as f64;
//! let rows = |split: usize| 10.0 + (split * 7 % 3) as f64;
//! let mut sample = SplitSample::new(1_000, (0..1_000).map(bytes).sum(), 0.95);
//! let mut sums_by_cell = SumsByCell::default();
//! for split in SamplingOrder::new(1_000, 7).take(100) {
//!     sample.add(split, bytes(split));
//!     sums_by_cell.add(cell_of_split(split, 1_000), rows(split));
//! }
//! let rows_read = sums_by_cell.sum();
//! let total = FormulaTotal {
//!     derivative: 1.0,
//!     sums_by_cell: &sums_by_cell,
//!     seen_splits: 100,
//!     value_summary: None,
//!     row_set: RowSet::default(),
//! };
//! let margin = sample.unlike_split_margin(&[total], rows_read).expect("100 splits suffice");
//! let estimate = sample.estimate_total(&sums_by_cell, 100, margin);
//! let exact: f64 = (0..1_000).map(rows).sum();
//! assert!((estimate.value / exact - 1.0).abs() < 0.02);
//! let ConfidenceInterval::Bounds { lower, upper } = estimate.interval else { panic!("100 splits suffice") };
//! assert!(lower < exact && exact < upper);
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

mod interim_looks;
mod interval_estimate;
mod sampling_order;
mod split_sample;
mod student_t;
mod unlike_splits;
mod values_by_cell;

pub use interim_looks::{look_confidence, splits_before_look, unseen_group_share_max};
pub use interval_estimate::{ConfidenceInterval, IntervalEstimate};
pub use sampling_order::SamplingOrder;
pub use split_sample::SplitSample;
pub use student_t::student_t_quantile;
pub use unlike_splits::{FormulaTotal, RowSet, UnlikeSplitMargin, ValueSummary};
pub use values_by_cell::{CELLS_MAX, SumsByCell, ValuesByCell, cell_of_split};

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
