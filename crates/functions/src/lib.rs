//! The functions of SQL that other databases have and DataFusion lacks, one value to each row.
//!
//! A room a kind of value; each says which functions it has, under which names, and what it departs from
//! in whose manual. This crate knows neither files nor queries: a session takes [`scalar_functions`] and
//! registers them.

mod closure_function;
mod distinct_texts;
mod json;
mod list_reduce;
mod nested;
mod numbers;
#[cfg(test)]
mod reference_examples;
mod row_function;
mod signed_lengths;
pub mod sketches;
#[cfg(test)]
mod test_calls;
mod texts;
mod times;
mod web;

use std::sync::Arc;

use datafusion_expr::{HigherOrderUDF, ScalarUDF};

/// All of them.
pub fn scalar_functions() -> impl Iterator<Item = ScalarUDF> {
    [
        times::functions(),
        numbers::functions(),
        nested::functions(),
        web::functions(),
        json::functions(),
        texts::functions(),
        sketches::functions(),
    ]
    .into_iter()
    .flatten()
}

/// Returns all functions that take functions.
pub fn higher_order_functions() -> impl Iterator<Item = HigherOrderUDF> {
    list_reduce::functions().into_iter()
}

/// A function that takes formats, `to_timestamp` or `to_date`, as one that takes PostgreSQL's patterns too.
pub fn with_postgres_patterns(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    times::with_postgres_patterns(theirs)
}

/// Returns whether the function of this name reads instants by a format: one with an offset, a zone, or seconds since
/// 1970. False for a function that reads no timestamps, and for a format that is none.
pub fn is_instant_format(function: &str, format: &str) -> bool {
    times::is_instant_format(function, format)
}

/// Names of the DataFusion functions that [`once_per_text`] wraps.
pub use distinct_texts::DEDUPLICATED_FUNCTIONS as ONCE_PER_TEXT;

/// The functions of DataFusion's, among these, that are asked once for each text of a batch.
pub fn deduplicate_functions<'a>(
    theirs: impl Iterator<Item = &'a Arc<ScalarUDF>>,
) -> Vec<ScalarUDF> {
    let costly =
        theirs.filter(|function| distinct_texts::DEDUPLICATED_FUNCTIONS.contains(&function.name()));
    let costly: std::collections::BTreeMap<&str, &Arc<ScalarUDF>> =
        costly.map(|function| (function.name(), function)).collect();
    let wrapped = |theirs: &Arc<ScalarUDF>| {
        ScalarUDF::from(distinct_texts::DeduplicatedFunction { inner: Arc::clone(theirs) })
    };
    costly.into_values().map(wrapped).collect()
}

/// Returns the functions of DataFusion's, among these, that return unsigned lengths and places, with signed ones.
pub fn with_signed_length_functions<'a>(
    theirs: impl Iterator<Item = &'a Arc<ScalarUDF>>,
) -> Vec<ScalarUDF> {
    let unsigned = theirs
        .filter(|function| signed_lengths::UNSIGNED_LENGTH_FUNCTIONS.contains(&function.name()));
    let unsigned: std::collections::BTreeMap<&str, &Arc<ScalarUDF>> =
        unsigned.map(|function| (function.name(), function)).collect();
    unsigned.into_values().map(|theirs| signed_length_function(Arc::clone(theirs))).collect()
}

/// Returns a function of DataFusion's that returns an unsigned length, or places, with a signed one.
pub fn signed_length_function(theirs: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(signed_lengths::SignedLengthFunction { inner: theirs })
}

/// What `x[first:last]` is of a text.
pub fn text_slice_udf() -> Option<ScalarUDF> {
    texts::functions().into_iter().find(|function| function.name() == "text_slice")
}

/// Returns `date_field`, which reads the fields of a time of any year.
pub fn date_field_udf() -> ScalarUDF {
    times::date_field_udf()
}

/// Returns whether a name, in any case, is that of a field which `date_field` reads and DataFusion's `date_part` does
/// not: `century`, `weekday`, `timezone`.
pub fn is_date_field_name(name: &str) -> bool {
    times::is_date_field_name(name)
}

/// How a function of these is called, by its definition; none where there is no such function, or nothing is
/// said of it.
pub fn function_syntax(name: &str) -> Option<String> {
    let function = scalar_functions().find(|function| {
        function.name() == name || function.aliases().iter().any(|alias| alias == name)
    })?;
    let calls: Vec<&str> = function.documentation()?.syntax_example.lines().collect();
    Some(calls.join(", "))
}
