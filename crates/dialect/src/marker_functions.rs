//! Names of internal functions that the translation writes and that sessions register.

/// Name of the marker function around the comparison of times.
pub const ASOF_MARKER_FUNCTION: &str = "tidemill_asof";

/// Name of the function as which the cast is planned.
pub const JSON_CAST_FUNCTION: &str = "tidemill_as_json";
