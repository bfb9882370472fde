//! `jobs`: reports from the job log.

use std::fmt::Display;

use serde_json::Value;
use tidemill_engine::jobs::{
    self, DamagedRecords, JobLog, LOG_BYTES_MAX_DEFAULT, RunFilter, TimePeriod,
};
use tidemill_engine::{Error, StateFolder};

use super::{VerbOutcome, print_paged};
use crate::args::{JobsArgs, JobsListArgs, JobsVerb, TextOrJson};
use crate::terminal;

/// `tidemill jobs`.
pub(super) fn jobs(args: JobsArgs) -> anyhow::Result<VerbOutcome> {
    let log = JobLog::new(&StateFolder::locate()?, LOG_BYTES_MAX_DEFAULT);
    match args.verb {
        None => list_runs(&log, &args.list),
        Some(JobsVerb::List(args)) => list_runs(&log, &args),
        Some(JobsVerb::Show(args)) => {
            let shown = jobs::show_run(&log, &args.id).map_err(Error::from)?;
            print_report(&shown, args.format, &serde_json::to_value(&shown)?, &shown.damage)
        }
        Some(JobsVerb::Top(args)) => {
            let since = TimePeriod::parse_since(&args.since).map_err(Error::from)?;
            let top = jobs::top_cpu_consumers(&log, since, args.last).map_err(Error::from)?;
            print_report(&top, args.format, &serde_json::to_value(&top)?, &top.damage)
        }
        Some(JobsVerb::Compare(args)) => {
            let compared = jobs::compare_runs(&log, &args.a, &args.b).map_err(Error::from)?;
            print_report(
                &compared,
                args.format,
                &serde_json::to_value(&compared)?,
                &compared.damage,
            )
        }
    }
}

fn list_runs(log: &JobLog, args: &JobsListArgs) -> anyhow::Result<VerbOutcome> {
    let period = args.since.as_deref().map_or(Ok(TimePeriod::ALL_TIME), TimePeriod::parse_since);
    let period = period.map_err(Error::from)?;
    let filter = RunFilter { period, name: args.name.clone(), count_max: args.last };
    let listing = jobs::list_runs(log, &filter).map_err(Error::from)?;
    print_report(&listing, args.format, &serde_json::to_value(&listing.runs)?, &listing.damage)
}

/// Prints a report as text, or as JSON: an array as one line per run, anything else as one line.
fn print_report(
    text: &impl Display,
    format: TextOrJson,
    json: &Value,
    damage: &DamagedRecords,
) -> anyhow::Result<VerbOutcome> {
    if let Some(warning) = damage.warning() {
        terminal::print_warning(&warning);
    }
    let text = match (format, json) {
        (TextOrJson::Text, _) => text.to_string(),
        (TextOrJson::Json, Value::Array(runs)) => {
            runs.iter().map(|run| format!("{run}\n")).collect()
        }
        (TextOrJson::Json, one) => format!("{one}\n"),
    };
    print_paged(text.as_bytes())?;
    Ok(VerbOutcome::Complete)
}
