//! Output of `tracing` spans to standard error: `TIDEMILL_LOG=debug`.
//!
//! Splits, maps, merges, spills, requests and commits are spans of the crate `tracing`, which cost nothing
//! without a subscriber. A program with its own subscriber receives them like any other spans. The command
//! line and the Python package write each span to standard error when it ends, if the variable asks for it.

use std::io;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable with the log level.
const LOG_ENV_VAR: &str = "TIDEMILL_LOG";

/// Accepted values of the variable, and the level that each sets.
const LOG_LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Writes spans to standard error from now on, if `TIDEMILL_LOG` asks for it and no subscriber is set yet.
///
/// # Errors
/// [`Error::Usage`] for an unknown level.
pub fn init_tracing_from_environment() -> Result<()> {
    let Some(asked) = std::env::var_os(LOG_ENV_VAR).filter(|asked| !asked.is_empty()) else {
        return Ok(());
    };
    let asked = asked.to_string_lossy().to_lowercase();
    let Some((_, level)) = LOG_LEVELS.iter().find(|(name, _)| *name == asked) else {
        let names = LOG_LEVELS.map(|(name, _)| name);
        return Err(Error::usage(suggestions::unknown_name_message(LOG_ENV_VAR, &asked, &names)));
    };
    // Logs of other crates may contain anything, credentials too.
    let is_ours = filter_fn(|metadata| metadata.target().starts_with("tidemill"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_filter(is_ours)
        .with_filter(*level);
    // A subscriber that is already set keeps its place.
    let _ = tracing_subscriber::registry().with(lines).try_init();
    Ok(())
}
