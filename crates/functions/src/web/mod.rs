//! Functions of values in server logs.
//!
//! - [`urls`]: URLs and request targets.
//! - [`ip_addresses`]: IP addresses and their prefixes.
//! - [`user_agents`]: browsers, systems, devices and robots in `User-Agent` headers.

mod ip_addresses;
mod urls;
mod user_agents;

use datafusion_expr::ScalarUDF;

/// Section of these functions in the reference.
const WEB_SECTION: &str = "Web";

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    [urls::functions(), ip_addresses::functions(), user_agents::functions()]
        .into_iter()
        .flatten()
        .collect()
}
