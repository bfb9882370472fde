//! Tidemill's SQL: DataFusion's parser, planner and operators, with additions and corrections.
//!
//! Text and syntax:
//! - `statement`, `syntax`: parsing of SQL text into one statement, and checks that every clause is
//!   supported.
//! - `parameters`: substitution of parameter values into SQL text.
//! - `copy_statement`: parser of `COPY (SELECT …) TO 'file'`.
//! - `dialects`: functions and clauses of other databases.
//! - `column_names`, `using_columns`, `empty_field_names`: resolution of column and field names.
//! - `decimal_literals`, `literal_arithmetic`: exact values of numbers that are written in SQL.
//! - `statement_planning`: logical plans of statements, with distinct column names for casts and subqueries.
//!
//! Types:
//! - `coercion`, `common_type`: coercion to a common type that keeps every value.
//! - `time_casts`, `numeric_conversions`, `local_times`: casts to and of times, nanoseconds and doubles.
//! - `opaque_casts`, `lenient_text_casts`: casts that DataFusion must not remove or rewrite, and texts that
//!   Arrow does not parse.
//! - `nested_casts`, `nested_text`, `json_casts`: lists, structs and maps as text and as JSON.
//! - `bytea`, `map_types`: BYTEA beside text, and `MAP` as a type.
//!
//! Expressions:
//! - `arithmetic`: operators that fail on overflow. `interval_multiplication`, `interval_parts`: intervals.
//! - `float_order`, `nested_order`: one order of floats, and of lists, structs and maps.
//! - `short_circuit_evaluation`: conditions that keep fallible expressions from rows for which they would
//!   fail.
//! - `in_lists`, `numeric_conditions`, `similar_to`, `text_subscripts`: single kinds of expressions.
//! - `date_functions`, `instant_functions`, `timezone_function`, `replacement_functions`, `percentiles`:
//!   functions in the place of DataFusion's.
//! - `random_values`: evaluation of each random call only once.
//!
//! Plans:
//! - `null_safe_joins`, `null_subquery_conditions`, `correlated_subqueries`: joins and subqueries with nulls,
//!   and correlated subqueries as joins.
//! - `asof_joins`: `ASOF JOIN` as a window function.
//! - `windows`, `window_frames`, `computed_keys`, `grouping_sets`: window functions and grouping sets.
//! - `filter_pushdown`, `projection_pushdown`, `sorted_unions`, `ordered_unions`, `subquery_sorts`,
//!   `limit_barriers`, `large_limits`, `unnest_keys`: corrections of DataFusion's rules.
//! - `plan_rewriting`: helpers of rules that rewrite plans.
//!
//! Execution:
//! - `scan_statistics`, `join_memory`: row estimates of scans, and the choice between hash joins and
//!   sort-merge joins.
//! - `fan_out_sorts`, `batch_positions`: sorts beyond memory, and the position of a batch within its source.
//! - `memory_pool`, `spills`: memory and spill storage of operators.
//! - `amplifying_functions`, `expression_memory`: memory of expressions.
//! - `execution_override`: DataFusion operators with an execution of our own.
//! - `session`: DataFusion sessions with all of it. `datafusion_names`: DataFusion's names of rules,
//!   functions and memory consumers.
//!
//! Messages:
//! - `error_translation`, `parse_hints`, `unknown_functions`: DataFusion's errors in our words, with hints.

mod amplifying_functions;
mod arithmetic;
mod asof_joins;
pub mod batch_positions;
mod bytea;
mod coercion;
pub mod column_names;
mod common_type;
mod computed_keys;
pub mod copy_statement;
pub mod correlated_subqueries;
pub mod datafusion_names;
mod date_functions;
pub mod decimal_literals;
pub mod dialects;
mod empty_field_names;
pub mod error_carrier;
pub mod error_translation;
mod execution_override;
mod expression_memory;
mod fan_out_sorts;
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
mod map_types;
mod marker_functions;
pub mod memory_pool;
mod nested_casts;
mod nested_order;
mod nested_text;
mod null_safe_joins;
mod null_subquery_conditions;
mod numeric_conditions;
mod numeric_conversions;
pub mod opaque_casts;
mod ordered_unions;
pub mod parameters;
mod parse_hints;
pub mod percentiles;
mod plan_rewriting;
mod projection_pushdown;
pub mod random_values;
mod replacement_functions;
pub mod scan_statistics;
pub mod session;
mod short_circuit_evaluation;
mod similar_to;
mod sorted_unions;
pub mod spills;
pub mod statement;
pub mod statement_planning;
mod subquery_sorts;
pub mod syntax;
mod text_subscripts;
mod time_casts;
mod timezone_function;
mod type_planners;
pub mod unknown_functions;
pub mod unnest_keys;
pub mod using_columns;
mod window_frames;
pub mod windows;

pub use error_translation::{IntoTidemillError, into_datafusion_error};
pub use fan_out_sorts::convert_sort_error;
