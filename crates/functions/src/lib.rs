//! The functions of SQL that other databases have and DataFusion lacks, one value to each row.
//!
//! A room a kind of value; each says which functions it has, under which names, and what it departs from
//! in whose manual. This crate knows neither files nor queries: a session takes [`scalar_functions`] and
//! registers them.

mod call;
mod callable;
#[cfg(test)]
mod documents;
mod json;
mod nested;
mod numbers;
mod reduction;
mod repeated;
mod signed;
pub mod sketches;
mod texts;
mod times;
#[cfg(test)]
mod trial;
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
    reduction::functions().into_iter()
}

/// A function that takes formats, `to_timestamp` or `to_date`, as one that takes PostgreSQL's patterns too.
pub fn with_patterns(theirs: &Arc<ScalarUDF>) -> ScalarUDF {
    times::with_patterns(theirs)
}

/// Returns whether the function of this name reads instants by a format: one with an offset, a zone, or seconds since
/// 1970. False for a function that reads no timestamps, and for a format that is none.
pub fn reads_instants(function: &str, format: &str) -> bool {
    times::reads_instants(function, format)
}

/// Names of the DataFusion functions that [`once_per_text`] wraps.
pub use repeated::COSTLY as ONCE_PER_TEXT;

/// The functions of DataFusion's, among these, that are asked once for each text of a batch.
pub fn once_per_text<'a>(theirs: impl Iterator<Item = &'a Arc<ScalarUDF>>) -> Vec<ScalarUDF> {
    let costly = theirs.filter(|function| repeated::COSTLY.contains(&function.name()));
    let costly: std::collections::BTreeMap<&str, &Arc<ScalarUDF>> =
        costly.map(|function| (function.name(), function)).collect();
    let wrapped = |theirs: &Arc<ScalarUDF>| {
        ScalarUDF::from(repeated::OncePerText { theirs: Arc::clone(theirs) })
    };
    costly.into_values().map(wrapped).collect()
}

/// Returns the functions of DataFusion's, among these, that return unsigned lengths and places, with signed ones.
pub fn with_signed_lengths<'a>(theirs: impl Iterator<Item = &'a Arc<ScalarUDF>>) -> Vec<ScalarUDF> {
    let unsigned = theirs.filter(|function| signed::UNSIGNED.contains(&function.name()));
    let unsigned: std::collections::BTreeMap<&str, &Arc<ScalarUDF>> =
        unsigned.map(|function| (function.name(), function)).collect();
    unsigned.into_values().map(|theirs| with_signed_length(Arc::clone(theirs))).collect()
}

/// Returns a function of DataFusion's that returns an unsigned length, or places, with a signed one.
pub fn with_signed_length(theirs: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(signed::Signed { theirs })
}

/// What `x[first:last]` is of a text.
pub fn text_slice() -> Option<ScalarUDF> {
    texts::functions().into_iter().find(|function| function.name() == "text_slice")
}

/// Returns `date_field`, which reads the fields of a time of any year.
pub fn date_field() -> ScalarUDF {
    times::date_field()
}

/// Returns whether a name, in any case, is that of a field which `date_field` reads and DataFusion's `date_part` does
/// not: `century`, `weekday`, `timezone`.
pub fn is_date_field(name: &str) -> bool {
    times::is_date_field(name)
}

/// How a function of these is called, by its definition; none where there is no such function, or nothing is
/// said of it.
pub fn calls_of(name: &str) -> Option<String> {
    let function = scalar_functions().find(|function| {
        function.name() == name || function.aliases().iter().any(|alias| alias == name)
    })?;
    let calls: Vec<&str> = function.documentation()?.syntax_example.lines().collect();
    Some(calls.join(", "))
}
