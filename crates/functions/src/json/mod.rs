//! Functions of JSON in text.
//!
//! There is no type of JSON: it is a TEXT, and whoever asks for a part of it has that part as it is written.
//!
//! - [`scan`], [`paths`]: where in a text a value stands.
//! - [`reading`]: the functions that look into JSON.
//! - [`nested`]: the same of structs, lists and maps, which have fields of types.
//! - [`writing`]: values as JSON.
//! - [`entries`]: objects, structs and maps as lists of their keys and values.
//! - [`common_types`]: the one type that the values of such a list have.

mod common_types;
mod entries;
mod extraction;
mod json_encoder;
mod json_path;
mod json_scanner;
mod nested_paths;

use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const JSON_SECTION: &str = "JSON";

/// The section of the reference for functions of structs.
const STRUCT_SECTION: &str = "Struct";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [extraction::functions(), json_encoder::functions(), entries::functions()]
        .into_iter()
        .flatten()
        .collect()
}
