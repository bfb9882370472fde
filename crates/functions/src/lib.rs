//! Scalar SQL functions that other databases have and DataFusion lacks.
//!
//! Each module holds the functions of one kind of value and states their names, the manual that they follow
//! and the departures from it. This crate knows neither files nor queries: a session registers the functions
//! that [`scalar_functions`] returns.

mod closure_function;
mod distinct_texts;
mod json;
mod list_reduce;
mod nested;
mod numbers;
#[cfg(test)]
mod reference_page_tests;
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

/// Returns all scalar functions of this crate.
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

/// Returns all higher-order functions of this crate, which take lambdas.
pub fn higher_order_functions() -> impl Iterator<Item = HigherOrderUDF> {
    list_reduce::functions().into_iter()
}

/// Wraps `to_timestamp` or `to_date` so that it accepts PostgreSQL's format patterns as well as its own
/// formats.
pub fn with_postgres_patterns(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    times::with_postgres_patterns(theirs)
}

/// Returns whether a format of the function of this name reads instants: it has an offset, a zone, or seconds
/// since 1970. Returns false for a function that reads no timestamps and for an invalid format.
pub fn is_instant_format(function: &str, format: &str) -> bool {
    times::is_instant_format(function, format)
}

/// Names of the DataFusion functions that [`deduplicate_functions`] wraps.
pub use distinct_texts::DEDUPLICATED_FUNCTIONS as ONCE_PER_TEXT;

/// Wraps those of the given DataFusion functions that are expensive per text, to run once per distinct text
/// of a batch.
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

/// Wraps those of the given DataFusion functions that return unsigned lengths or positions, to return signed
/// ones.
pub fn with_signed_length_functions<'a>(
    theirs: impl Iterator<Item = &'a Arc<ScalarUDF>>,
) -> Vec<ScalarUDF> {
    let unsigned = theirs
        .filter(|function| signed_lengths::UNSIGNED_LENGTH_FUNCTIONS.contains(&function.name()));
    let unsigned: std::collections::BTreeMap<&str, &Arc<ScalarUDF>> =
        unsigned.map(|function| (function.name(), function)).collect();
    unsigned.into_values().map(|theirs| signed_length_function(Arc::clone(theirs))).collect()
}

/// Wraps a DataFusion function that returns an unsigned length or unsigned positions, to return signed ones.
pub fn signed_length_function(theirs: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(signed_lengths::SignedLengthFunction { inner: theirs })
}

/// Returns `text_slice`, the function behind `x[first:last]` of a text.
pub fn text_slice_udf() -> Option<ScalarUDF> {
    texts::functions().into_iter().find(|function| function.name() == "text_slice")
}

/// Returns `date_field`, which reads the fields of a time in any year.
pub fn date_field_udf() -> ScalarUDF {
    times::date_field_udf()
}

/// Returns whether a name, in any case, is a field that `date_field` reads and DataFusion's `date_part` does
/// not: `century`, `weekday`, `timezone`.
pub fn is_date_field_name(name: &str) -> bool {
    times::is_date_field_name(name)
}

/// Returns the call syntax of a function of this crate from its documentation. Returns `None` for an unknown
/// or undocumented function.
pub fn function_syntax(name: &str) -> Option<String> {
    let function = scalar_functions().find(|function| {
        function.name() == name || function.aliases().iter().any(|alias| alias == name)
    })?;
    let calls: Vec<&str> = function.documentation()?.syntax_example.lines().collect();
    Some(calls.join(", "))
}
