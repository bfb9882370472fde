//! Format detection, type inference and the unification of columns across files.
//!
//! - `content_detection`: content detection.
//! - `distinct_map_keys`: removal of repeated map keys.
//! - `field_promotion`: field promotion.
//! - `file_columns`: column layouts of sources whose files differ.
//! - `flag_distribution`: distributes command-line flags over the files of a query.
//! - `hidden_columns`: hidden columns, which every source has besides those of its files.
//! - `log_detection`: format detection for log files, whose names only show that they are logs.
//! - `log_names`: recognizes the names of log files, including rotated ones.
//! - `low_cardinality`: detects low-cardinality text columns, which are read as dictionary codes when they
//!   are group keys.
//! - `nested_projection`: projections of nested columns.
//! - `promoted_records`: extraction of promoted records.
//! - `schema_compatibility`: compatibility of schemas.
//! - `source_sample`: sampling of a source before its column types are known.
//! - `text_options`: text options.
//! - `type_unification`: type unification.

pub(crate) mod content_detection;
pub(crate) mod distinct_map_keys;
pub(crate) mod field_promotion;
pub(crate) mod file_columns;
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
