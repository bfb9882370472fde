//! In which order the parts of a whole are read, and how far off an answer is that rests on those that were.
//!
//! A whole is cut into *splits* of known sizes, of which some are read. [`DrawnOrder`] says which next, so that
//! whenever one stops those read are a random sample, spread evenly. [`Sample`] notes which were read, and turns sums over
//! them into estimates of the totals, with intervals that hold the exact answer with a stated probability, or a reason
//! why there is none: [`Interval`].
//!
//! - Totals: [`Sample::total`]. Means and other ratios: [`Sample::ratio`]. Any smooth function of totals:
//!   [`Sample::smooth`]. Shares, and by them quantiles: [`Sample::share_interval`].
//! - Room for splits unlike all that were read, which a sample cannot show: [`Room`].
//! - Groups that were not seen: [`unseen_share`]. Stopping when it is precise enough: [`look_splits`] and
//!   [`look_confidence`].
//!
//! It knows nothing of files, queries or threads; nothing here does I/O or reads a clock, and equal calls give equal
//! answers on every machine. Logarithms and exponentials are those of crate `libm`, because the last digit of the C
//! library's depends on the processor.
//!
//! ```
//! use tidemill_sampling::{DrawnOrder, Interval, Part, RowSet, Sample, Series, cell_of};
//!
//! // 1,000 splits, of 100 to 104 bytes; each has a row for every 8 to 10 bytes.
//! let bytes = |split: usize| 100.0 + (split % 5) as f64;
//! let rows = |split: usize| 10.0 + (split * 7 % 3) as f64;
//! let mut sample = Sample::new(1_000, (0..1_000).map(bytes).sum(), 0.95);
//! let mut series = Series::default();
//! for split in DrawnOrder::new(1_000, 7).take(100) {
//!     sample.add(split, bytes(split));
//!     series.add(cell_of(split, 1_000), rows(split));
//! }
//! let rows_read = series.sum();
//! let all = RowSet::default();
//! let part = Part { slope: 1.0, series: &series, seen_splits: 100, values: None, rows: all };
//! let room = sample.room(&[part], rows_read).expect("100 splits suffice");
//! let estimate = sample.total(&series, 100, room);
//! let exact: f64 = (0..1_000).map(rows).sum();
//! assert!((estimate.value / exact - 1.0).abs() < 0.02);
//! let Interval::Bounds { low, high } = estimate.interval else { panic!("100 splits suffice") };
//! assert!(low < exact && exact < high);
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
