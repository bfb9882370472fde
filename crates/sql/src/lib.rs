//! The semantics of SQL in Tidemill: analyzer and optimizer rules, functions and sessions of DataFusion.
//!
//! Crate [`dialect`](tidemill_dialect) reads the text of SQL, and crate [`operators`](tidemill_operators) has the
//! operators with a memory budget. This crate adds both to a session, and corrects DataFusion:
//!
//! - `session`: DataFusion sessions with all rules, functions and operators. `statement_planning`: logical plans of
//!   statements, with distinct column names for casts and subqueries.
//! - `coercion`, `common_type`: coercion to a common type that keeps every value.
//! - `time_casts`, `numeric_conversions`, `local_times`: casts to and of times, nanoseconds and doubles.
//! - `opaque_casts`, `lenient_text_casts`: casts that DataFusion must not remove or rewrite, and texts that
//!   Arrow does not parse.
//! - `nested_casts`, `nested_text`, `json_casts`: lists, structs and maps as text and as JSON. `bytea`: BYTEA beside
//!   text. `empty_field_names`: access to fields with an empty name.
//! - `arithmetic`: operators that fail on overflow. `literal_arithmetic`: arithmetic of literals.
//!   `interval_multiplication`, `interval_parts`: intervals.
//! - `float_order`, `nested_order`: one order of floats, and of lists, structs and maps.
//! - `short_circuit_evaluation`: conditions that keep fallible expressions from rows for which they would
//!   fail.
//! - `in_lists`, `numeric_conditions`, `similar_to`, `text_subscripts`: single kinds of expressions.
//! - `date_functions`, `instant_functions`, `timezone_function`, `replacement_functions`, `percentiles`:
//!   functions in the place of DataFusion's.
//! - `random_values`: evaluation of each random call only once.
//! - `null_safe_joins`, `null_subquery_conditions`, `correlated_subqueries`: joins and subqueries with nulls,
//!   and correlated subqueries as joins.
//! - `asof_joins`: `ASOF JOIN` as a window function.
//! - `window_frames`, `computed_keys`, `grouping_sets`: window frames, computed sort keys and grouping sets.
//! - `filter_pushdown`, `projection_pushdown`, `sorted_unions`, `subquery_sorts`, `limit_barriers`, `large_limits`,
//!   `unnest_keys`: corrections of DataFusion's rules.
//! - `scan_statistics`, `join_memory`: row estimates of scans, and the choice between hash joins and
//!   sort-merge joins.

mod arithmetic;
mod asof_joins;
mod bytea;
mod coercion;
mod common_type;
mod computed_keys;
pub mod correlated_subqueries;
#[cfg(test)]
mod datafusion_names_tests;
mod date_functions;
mod empty_field_names;
mod filter_pushdown;
pub mod float_order;
mod grouping_sets;
mod in_lists;
mod instant_functions;
mod interval_multiplication;
mod interval_parts;
mod join_memory;
mod json_casts;
mod large_limits;
mod lenient_text_casts;
mod limit_barriers;
mod literal_arithmetic;
mod local_times;
mod nested_casts;
mod nested_order;
mod nested_text;
mod null_safe_joins;
mod null_subquery_conditions;
mod numeric_conditions;
mod numeric_conversions;
pub mod opaque_casts;
pub mod percentiles;
mod projection_pushdown;
pub mod random_values;
mod replacement_functions;
pub mod scan_statistics;
pub mod session;
mod short_circuit_evaluation;
mod similar_to;
mod sorted_unions;
pub mod statement_planning;
mod subquery_sorts;
mod text_subscripts;
mod time_casts;
mod timezone_function;
pub mod unnest_keys;
mod window_frames;

pub use tidemill_dialect::error_translation::IntoTidemillError;
pub use tidemill_operators::fan_out_sorts::convert_sort_error;
pub use tidemill_planning::error_carrier::into_datafusion_error;
