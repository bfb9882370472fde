//! Functions of instants, dates and spans.

use datafusion_expr::ScalarUDF;

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    Vec::new()
}
