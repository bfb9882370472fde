//! Functions of what stands in the logs of servers.
//!
//! - [`urls`]: URLs, and the targets of requests.
//! - [`addresses`]: IP addresses and their prefixes.
//! - [`agents`]: what `User-Agent` says.

mod addresses;
mod agents;
mod urls;

use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const SECTION: &str = "Web";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [urls::functions(), addresses::functions(), agents::functions()].into_iter().flatten().collect()
}
