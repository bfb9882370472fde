//! Functions of text.
//!
//! - [`regular_expressions`], [`named_groups`]: regular expressions as in DuckDB.
//! - [`text_parts`]: splits of a text, and parts by their number.
//! - [`format_strings`]: values formatted into a text, by braces or by percent signs.
//! - [`url_encoding`]: percent-encoding of URLs.
//! - [`similarity`]: distances between texts.
//! - [`graphemes`], [`unicode_forms`]: grapheme clusters, and Unicode's canonical forms.
//! - [`file_paths`]: paths of files.

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

/// Section of these functions in the reference.
const TEXT_SECTION: &str = "Text";

/// Returns all functions of this module.
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
