//! Functions of what stands in the logs of servers.
//!
//! - [`urls`]: URLs, and the targets of requests.
//! - [`addresses`]: IP addresses and their prefixes.

mod addresses;
mod urls;

use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const SECTION: &str = "Web";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [urls::functions(), addresses::functions()].into_iter().flatten().collect()
}
