//! What SQL means in Tidemill: DataFusion's planner and steps, with what differs.
//!
//! - `statement`, `syntax`, `digits`, `names`, `using`: what is asked? Text becomes a statement of which every
//!   clause is honoured, and columns are called as they are written.
//! - `parameters`: which values is a statement given beside its text?
//! - `copy_statement`: `COPY (SELECT …) TO 'file'`, taken apart into a query and an output.
//! - `dialects`: what do other databases' functions and clauses mean here? `numeric_conditions`, `map_types`: what they have that
//!   the planner has not.
//! - `coercion`, `meeting`, `instants`, `cast_times`, `casts`, `times`, `utc_timestamps`, `zone_calls`, `zones`, `spans`, `multiples`, `frames`,
//!   `grouping_sets`: which type do values of different types meet at, and no value is lost?
//! - `arithmetic`, `kept_casts`, `text_spellings`: what does an operator or a cast do at the ends of a type? `nested_casts`, `nested_text`, `json_casts`: how are lists and structs written as text, and as JSON? `constants`: what are
//!   numbers that are written out? `guards`: of which rows
//!   is it asked? `floats`, `nested`: which float, list, struct is larger? `bytes`: what is BYTEA beside text? `patterns`: what is SIMILAR TO what?
//! - `null_safe`, `subqueries`: where does null equal null, and what is neither true nor false? `correlated`: subqueries
//!   for each row as joins, where DataFusion plans none.
//! - `random_values`: which expressions would evaluate a random value twice?
//! - `replaced`, `percentiles`, `amplify`, `portions`: functions of our own in the place of DataFusion's, and the memory of
//!   expressions.
//! - `asof`: what was the last record of another source up to a time?
//! - `windows`, `computed_keys`, `in_place`: how are windows run, and within the budget?
//! - `filters`, `projections`, `sorted_unions`, `subquery_sorts`, `large_limits`, `in_lists`: where its plans are mended.
//! - `known_rows`, `join_memory`: how many rows are there, and which join holds a side of them in memory?
//! - `pool`, `spills`: how much memory do its steps have, and where do they spill? `fan_out_sorts`: how are rows sorted? `input_order`: and
//!   where in a source were they?
//! - `datafusion_names`: the names by which this crate recognises DataFusion's rules, functions and memory consumers.
//! - `session`: all of it together. `messages`, `parse_hints`, `unknown_functions`: what DataFusion
//!   says, in our words, and what to write instead.

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
pub mod unknown_functions;
pub mod unnest_keys;
pub mod using_columns;
mod window_frames;
pub mod windows;

pub use error_translation::{IntoTidemillError, into_datafusion_error};
pub use fan_out_sorts::convert_sort_error;
