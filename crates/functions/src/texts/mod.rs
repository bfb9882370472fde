//! Functions of text.
//!
//! - [`patterns`]: regular expressions, as DuckDB has them.
//! - [`splits`]: lists of the parts of a text.
//! - [`format`]: values written into a text, by braces or by percent signs.
//! - [`codes`]: text as it stands in URLs.

mod codes;
mod format;
mod patterns;
mod splits;

pub(crate) use codes::decoded;
use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const SECTION: &str = "Text";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [patterns::functions(), splits::functions(), format::functions(), codes::functions()]
        .into_iter()
        .flatten()
        .collect()
}
