//! Format detection, type inference and the unification of columns across files.
//!
//! - `content_detection`: determines compression and format from a file's first bytes instead of its name.
//! - `distinct_map_keys`: keeps the last entry of each key in a map.
//! - `field_promotion`: turns the fields of a nested record into columns of the source.
//! - `column_layouts`: maps a source's columns to positions in files whose columns differ.
//! - `flag_distribution`: distributes command-line flags over the files of a query.
//! - `hidden_columns`: columns such as `filename` and `file_row_number`, which `*` leaves out.
//! - `log_detection`: detects the format of log files by their lines.
//! - `log_names`: recognizes the names of log files, including rotated ones.
//! - `low_cardinality`: detects low-cardinality text columns, which group keys read as dictionary codes.
//! - `nested_projection`: reads only the used fields of a nested column.
//! - `promoted_records`: extracts columns from structs, JSON in strings, and rowfile rows in bytes.
//! - `schema_compatibility`: compares schemas: can a reader with one read data of another?
//! - `source_sample`: reads the first records of some files, from which types are inferred.
//! - `text_options`: the options of text formats, and the formats that support each.
//! - `type_unification`: the common type of a column in several files, and casts to it.

pub(crate) mod column_layouts;
pub(crate) mod content_detection;
pub(crate) mod distinct_map_keys;
pub(crate) mod field_promotion;
pub mod flag_distribution;
pub(crate) mod hidden_columns;
pub(crate) mod log_detection;
pub(crate) mod log_names;
pub(crate) mod low_cardinality;
pub mod nested_projection;
pub(crate) mod promoted_records;
pub mod schema_compatibility;
pub(crate) mod source_sample;
pub(crate) mod text_options;
pub(crate) mod type_unification;
