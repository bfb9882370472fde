//! Functions of text.
//!
//! - [`patterns`], [`named_groups`]: regular expressions, as DuckDB has them.
//! - [`splits`]: lists of the parts of a text.
//! - [`format`]: values written into a text, by braces or by percent signs.
//! - [`codes`]: text as it stands in URLs.
//! - [`similarity`]: distances between texts.
//! - [`graphemes`], [`accents`]: letters as readers see them, and Unicode's canonical forms.
//! - [`paths`]: paths of files.

mod file_paths;
mod format_strings;
mod graphemes;
mod named_groups;
mod regular_expressions;
mod similarity;
mod text_parts;
mod unicode_forms;
mod url_encoding;

use datafusion_expr::ScalarUDF;
pub(crate) use url_encoding::percent_decode;

/// How the reference calls these.
const TEXT_SECTION: &str = "Text";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [
        regular_expressions::functions(),
        named_groups::functions(),
        text_parts::functions(),
        format_strings::functions(),
        url_encoding::functions(),
        similarity::functions(),
        graphemes::functions(),
        unicode_forms::functions(),
        file_paths::functions(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
