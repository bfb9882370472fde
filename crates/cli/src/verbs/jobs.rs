//! `jobs`: the job log.

use std::fmt::Display;

use serde_json::Value;
use tidemill_engine::jobs::{
    self, DamagedRecords, JobLog, LOG_BYTES_MAX_DEFAULT, RunFilter, TimePeriod,
};
use tidemill_engine::{Error, StateFolder};

use super::{Outcome, print};
use crate::args::{JobsArgs, JobsListArgs, JobsVerb, Plain};
use crate::terminal;

/// `tidemill jobs`.
pub(super) fn jobs(args: JobsArgs) -> anyhow::Result<Outcome> {
    let log = JobLog::new(&StateFolder::locate()?, LOG_BYTES_MAX_DEFAULT);
    match args.verb {
        None => list(&log, &args.list),
        Some(JobsVerb::List(args)) => list(&log, &args),
        Some(JobsVerb::Show(args)) => {
            let shown = jobs::show_run(&log, &args.id).map_err(Error::from)?;
            say(&shown, args.format, &serde_json::to_value(&shown)?, &shown.damage)
        }
        Some(JobsVerb::Top(args)) => {
            let since = TimePeriod::parse_since(&args.since).map_err(Error::from)?;
            let top = jobs::top_cpu_consumers(&log, since, args.last).map_err(Error::from)?;
            say(&top, args.format, &serde_json::to_value(&top)?, &top.damage)
        }
        Some(JobsVerb::Compare(args)) => {
            let compared = jobs::compare_runs(&log, &args.a, &args.b).map_err(Error::from)?;
            say(&compared, args.format, &serde_json::to_value(&compared)?, &compared.damage)
        }
    }
}

fn list(log: &JobLog, args: &JobsListArgs) -> anyhow::Result<Outcome> {
    let period = args.since.as_deref().map_or(Ok(TimePeriod::ALL_TIME), TimePeriod::parse_since);
    let period = period.map_err(Error::from)?;
    let filter = RunFilter { period, name: args.name.clone(), count_max: args.last };
    let listing = jobs::list_runs(log, &filter).map_err(Error::from)?;
    say(&listing, args.format, &serde_json::to_value(&listing.runs)?, &listing.damage)
}

/// Prints a report: its text, or as JSON one line per run or one in all.
fn say(
    text: &impl Display,
    format: Plain,
    json: &Value,
    damage: &DamagedRecords,
) -> anyhow::Result<Outcome> {
    if let Some(warning) = damage.warning() {
        terminal::warn(&warning);
    }
    let text = match (format, json) {
        (Plain::Text, _) => text.to_string(),
        (Plain::Json, Value::Array(runs)) => runs.iter().map(|run| format!("{run}\n")).collect(),
        (Plain::Json, one) => format!("{one}\n"),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}
