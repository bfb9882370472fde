//! Aggregate functions: definitions, SQL signatures, rewrites, and accumulators for DataFusion's operators.
//!
//! - `accumulators`: DataFusion accumulators over the states of aggregate tables.
//! - `aggregate_calls`: maps aggregate calls in DataFusion's plans to mergeable functions.
//! - `aggregate_functions`: names, parameters, types and documentation of `unique`, `top_k`, `quantile` and
//!   others.
//! - `approximate_aggregates`: `approx_distinct` and similar DataFusion aggregates, computed with Tidemill's
//!   states.
//! - `distinct_rewrite`: an optimizer rule that turns `DISTINCT` aggregates into two aggregations.
//! - `first_rows`: an optimizer rule that turns `row_number() <= n` into an aggregation.
//! - `first_values`: DataFusion accumulators for each group's first values by an ORDER BY.
//! - `limited_lists`: keeps only the used values of lists such as `array_slice(array_agg(x), 1, 3)`.
//! - `median`: `median` on the engine path, exact and with the states of aggregate tables.
//! - `order_sensitive_aggregates`: `first_value`, `last_value`, `array_agg` and others as first rows by a
//!   total order.
//! - `precision_recorder`: collects the precision of a run's estimates on the engine path.
//! - `row_counter`: a row number for plans on one thread that keeps no rows.
//! - `sliding_bitwise`: `bool_or`, `bit_and` and similar aggregates over sliding window frames.
//! - `statistics`: variances, covariances, correlations and regressions from exact sums.
//! - `sum_udafs`: `sum` and `avg` on the engine path, checked and independent of order.
//! - `summary`: `SUMMARIZE` as one aggregate of all columns of a query.
//! - `tidemill_udafs`: the DataFusion declarations of Tidemill's aggregate functions.
//! - `wide_sums`: sums and means of intervals, durations, times and wide decimals.

pub(crate) mod accumulators;
pub mod aggregate_calls;
pub mod aggregate_functions;
pub(crate) mod approximate_aggregates;
pub(crate) mod distinct_rewrite;
pub mod first_rows;
pub(crate) mod first_values;
pub mod limited_lists;
pub(crate) mod median;
pub mod order_sensitive_aggregates;
pub mod precision_recorder;
pub(crate) mod row_counter;
pub(crate) mod sliding_bitwise;
pub mod statistics;
pub(crate) mod sum_udafs;
pub mod summary;
pub mod tidemill_udafs;
pub(crate) mod wide_sums;
