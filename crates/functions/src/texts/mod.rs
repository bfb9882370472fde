//! Functions of text.
//!
//! - [`patterns`], [`named_groups`]: regular expressions, as DuckDB has them.
//! - [`splits`]: lists of the parts of a text.
//! - [`format`]: values written into a text, by braces or by percent signs.
//! - [`codes`]: text as it stands in URLs.
//! - [`similarity`]: distances between texts.
//! - [`graphemes`], [`accents`]: letters as readers see them, and Unicode's canonical forms.
//! - [`paths`]: paths of files.

mod accents;
mod codes;
mod format;
mod graphemes;
mod named_groups;
mod paths;
mod patterns;
mod similarity;
mod splits;

pub(crate) use codes::decoded;
use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const SECTION: &str = "Text";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [
        patterns::functions(),
        named_groups::functions(),
        splits::functions(),
        format::functions(),
        codes::functions(),
        similarity::functions(),
        graphemes::functions(),
        accents::functions(),
        paths::functions(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
