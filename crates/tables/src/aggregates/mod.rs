//! Aggregate functions: definitions, SQL signatures, rewrites, and accumulators for DataFusion's operators.
//!
//! - `accumulators`: dataFusion accumulators over the states of aggregate tables.
//! - `aggregate_calls`: mapping of aggregate calls in DataFusion's plans to mergeable functions.
//! - `aggregate_functions`: the aggregate functions that Tidemill adds to SQL (`unique`, `top_k`,
//!   `quantile` and so on).
//! - `approximate_aggregates`: dataFusion's approximate aggregates, computed by Tidemill's states.
//! - `distinct_rewrite`: an optimizer rule that turns `DISTINCT` aggregates into two aggregations, whatever
//!   other aggregates stand beside them.
//! - `first_rows`: the first rows of each group.
//! - `first_values`: dataFusion accumulators for the first values of each group by an ORDER BY, or for all
//!   of them.
//! - `limited_lists`: lists of which a query uses only the first values.
//! - `median`: `median` on DataFusion's path, by the states of aggregate tables.
//! - `order_sensitive_aggregates`: aggregates over a group's first rows, or over all of them in order.
//! - `precision_recorder`: the precision of estimates on DataFusion's path.
//! - `row_counter`: A row counter for plans that run on one thread.
//! - `sliding_bitwise`: logical and bitwise aggregates over sliding window frames.
//! - `statistics`: variances, covariances, correlations and regressions, in aggregate tables and on
//!   DataFusion's path.
//! - `sum_udafs`: `sum` and `avg` (also called `mean`) on DataFusion's path.
//! - `summary`: `SUMMARIZE` as one aggregate of all columns of a query.
//! - `tidemill_udafs`: the DataFusion declarations of Tidemill's aggregate functions
//!   ([`TidemillAggregate`]).
//! - `wide_sums`: sums and means of types that the states of partial tables do not hold.

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
