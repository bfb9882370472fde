//! Functions of JSON in text.
//!
//! There is no JSON type: JSON is a TEXT, and a part of it is returned as it is written.
//!
//! - [`json_scanner`], [`json_path`]: positions of values in a text.
//! - [`extraction`]: functions that extract from JSON.
//! - [`nested_paths`]: the same extraction from structs, lists and maps, whose fields have types.
//! - [`json_encoder`]: values as JSON.
//! - [`entries`]: objects, structs and maps as lists of their keys and values.
//! - [`common_types`]: the common type of the values in such a list.

mod common_types;
mod entries;
mod extraction;
mod json_encoder;
mod json_path;
mod json_scanner;
mod nested_paths;

use datafusion_expr::ScalarUDF;

/// Section of these functions in the reference.
const JSON_SECTION: &str = "JSON";

/// Section of the functions of structs in the reference.
const STRUCT_SECTION: &str = "Struct";

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [extraction::functions(), json_encoder::functions(), entries::functions()]
        .into_iter()
        .flatten()
        .collect()
}
