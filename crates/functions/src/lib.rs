//! The functions of SQL that other databases have and DataFusion lacks, one value to each row.
//!
//! A room a kind of value; each says which functions it has, under which names, and what it departs from
//! in whose manual. This crate knows neither files nor queries: a session takes [`scalar_functions`] and
//! registers them.

mod call;
#[cfg(test)]
mod documents;
mod json;
mod numbers;
mod texts;
mod times;
mod web;

use datafusion_expr::ScalarUDF;

/// All of them.
pub fn scalar_functions() -> impl Iterator<Item = ScalarUDF> {
    [
        times::functions(),
        numbers::functions(),
        web::functions(),
        json::functions(),
        texts::functions(),
    ]
    .into_iter()
    .flatten()
}
