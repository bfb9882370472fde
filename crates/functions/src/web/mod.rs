//! Functions of what stands in the logs of servers.
//!
//! - [`urls`]: URLs, and the targets of requests.
//! - [`addresses`]: IP addresses and their prefixes.
//! - [`agents`]: what `User-Agent` says.

mod ip_addresses;
mod urls;
mod user_agents;

use datafusion_expr::ScalarUDF;

/// How the reference calls these.
const WEB_SECTION: &str = "Web";

/// All of them.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [urls::functions(), ip_addresses::functions(), user_agents::functions()]
        .into_iter()
        .flatten()
        .collect()
}
