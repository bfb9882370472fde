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

mod amplify;
mod arithmetic;
mod asof;
mod bytes;
mod cast_times;
pub mod casts;
mod coercion;
mod computed_keys;
mod constants;
pub mod copy_statement;
pub mod correlated;
pub mod datafusion_names;
pub mod dialects;
pub mod digits;
mod empty_names;
mod fan_out_sorts;
mod filters;
pub mod floats;
mod frames;
mod grouping_sets;
mod guards;
mod in_lists;
mod in_place;
pub mod input_order;
mod instants;
mod join_memory;
mod json_casts;
pub mod kept_casts;
pub mod known_rows;
mod large_limits;
mod limit_barriers;
mod map_types;
mod meeting;
pub mod messages;
mod multiples;
pub mod names;
mod nested;
mod nested_casts;
mod nested_text;
mod null_safe;
mod numeric_conditions;
pub mod parameters;
mod parse_hints;
mod patterns;
pub mod percentiles;
pub mod pool;
mod portions;
mod projections;
pub mod random_values;
mod replaced;
mod rewrite;
pub mod session;
mod sorted_unions;
mod spans;
pub mod spills;
pub mod statement;
mod subqueries;
mod subquery_sorts;
pub mod syntax;
mod text_parts;
mod text_spellings;
mod times;
mod unions_in_order;
pub mod unknown_functions;
pub mod unnested;
pub mod using;
mod utc_timestamps;
pub mod windows;
mod zone_calls;
mod zones;

pub use fan_out_sorts::sort_error;
pub use messages::{Told, external};
