//! `cluster`: starts, queries and ends a master on a Ray cluster.

use serde_json::Value;
use tidemill_engine::master_lifecycle::{self, MasterOptions};
use tidemill_engine::posted_query::master_client::{
    MasterClient, MasterStateFile, is_master_address,
};
use tidemill_engine::ray_workers::RayClusterOptions;
use tidemill_engine::{CancelFlag, Error, memory_budget};

use super::{VerbOutcome, print_paged};
use crate::args::{
    ClusterArgs, ClusterDownArgs, ClusterUpArgs, ClusterVerb, MasterArgs, TextOrJson,
};
use crate::terminal;

/// `tidemill cluster`.
pub(super) fn cluster(args: ClusterArgs) -> anyhow::Result<VerbOutcome> {
    let cancel = CancelFlag::new();
    terminal::watch_signals(&cancel)?;
    match args.verb {
        ClusterVerb::Up(args) => start_master(args, &cancel),
        ClusterVerb::Status(args) => {
            let MasterArgs { on, token_file } = &args.master;
            let master = MasterClient::find(on, token_file.as_deref())?;
            print_response(&master.fetch_status("status", &cancel)?, args.format, format_status)
        }
        ClusterVerb::Jobs(args) => {
            let MasterArgs { on, token_file } = &args.master;
            let admin_token_file = args.admin.admin_token_file.as_deref();
            let master = MasterClient::find_admin(on, token_file.as_deref(), admin_token_file)?;
            print_response(&master.fetch_status("jobs", &cancel)?, args.format, format_jobs)
        }
        ClusterVerb::Down(args) => end_master(args, &cancel),
        ClusterVerb::Token(args) => {
            let left = MasterStateFile::load()?.ok_or_else(no_master_error)?;
            let token = if args.admin { left.admin_token() } else { left.token.as_str() };
            print_paged(format!("{token}\n").as_bytes())?;
            Ok(VerbOutcome::Complete)
        }
    }
}

fn no_master_error() -> Error {
    Error::usage_with_hint(
        "no master was started on this machine",
        "tidemill cluster up starts one",
    )
}

/// Returns the Ray cluster that `--on` names.
fn parse_ray_target(
    address: String,
    python: Option<std::path::PathBuf>,
) -> tidemill_engine::Result<RayClusterOptions> {
    if address != "ray" && !address.starts_with("ray://") {
        return Err(Error::usage_with_hint(
            format!("`--on {address}` names no Ray cluster"),
            "ray, or ray:// with a host and its port",
        ));
    }
    Ok(RayClusterOptions { address, python_path: python, worker_memory_bytes: None })
}

fn start_master(args: ClusterUpArgs, cancel: &CancelFlag) -> anyhow::Result<VerbOutcome> {
    let budget = |text: &str| memory_budget::resolve_memory_budget(Some(text), None);
    let on = parse_ray_target(args.on, args.python)?;
    let up = MasterOptions {
        listen: args.listen,
        workers: args.workers,
        memory: args.memory.as_deref().map(budget).transpose()?,
        certificate: args.certificate,
        key: args.key,
        token_file: args.token_file,
        admin_token_file: args.admin_token_file,
        max_jobs_per_peer: args.max_jobs_per_peer,
        allow_programs: args.allow_programs,
        allow_paths: args.allow_paths,
    };
    let started = master_lifecycle::start_master(&on, &up, cancel)?;
    print_paged(format!("{}\n", started.address).as_bytes())?;
    let of =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    terminal::print_note(&format!(
        "{} on {}, {}; --on master names it on this machine",
        of(started.workers, "worker"),
        of(started.machines, "machine"),
        of(started.threads, "thread"),
    ));
    Ok(VerbOutcome::Complete)
}

fn end_master(args: ClusterDownArgs, cancel: &CancelFlag) -> anyhow::Result<VerbOutcome> {
    if is_master_address(&args.on) {
        let admin_token_file = args.admin.admin_token_file.as_deref();
        let master =
            MasterClient::find_admin(&args.on, args.token_file.as_deref(), admin_token_file)?;
        master.shut_down(cancel)?;
        MasterStateFile::remove_for_master(&master)?;
        return Ok(VerbOutcome::Complete);
    }
    let on = parse_ray_target(args.on, args.python)?;
    match master_lifecycle::stop_master(&on, cancel)? {
        true => Ok(VerbOutcome::Complete),
        false => Err(Error::usage_with_hint(
            format!("there is no master on `{}`", on.address),
            "tidemill cluster up starts one",
        )
        .into()),
    }
}

/// Prints a master's response as text or JSON.
fn print_response(
    told: &Value,
    format: TextOrJson,
    text: impl FnOnce(&Value) -> String,
) -> anyhow::Result<VerbOutcome> {
    let text = match (format, told) {
        (TextOrJson::Text, told) => text(told),
        (TextOrJson::Json, Value::Array(all)) => all.iter().map(|one| format!("{one}\n")).collect(),
        (TextOrJson::Json, one) => format!("{one}\n"),
    };
    print_paged(text.as_bytes())?;
    Ok(VerbOutcome::Complete)
}

/// Returns a field of a JSON object as text.
fn field_text(of: &Value, name: &str) -> String {
    match &of[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_status(told: &Value) -> String {
    let lines = [
        ("address", field_text(told, "address")),
        ("release", field_text(told, "release")),
        ("up for", format_duration(&told["up_seconds"])),
        ("machines", field_text(told, "machines")),
        ("workers", field_text(told, "workers")),
        ("threads", field_text(told, "threads")),
        ("running", field_text(told, "running")),
        ("suspended", field_text(told, "suspended")),
        ("waiting", field_text(told, "waiting")),
        ("ended", field_text(told, "ended")),
    ];
    lines.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
}

fn format_duration(of: &Value) -> String {
    let Some(seconds) = of.as_f64() else { return "-".to_owned() };
    match seconds {
        0.0..60.0 => format!("{seconds:.1} s"),
        60.0..3600.0 => format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0),
        _ => format!("{:.0} h {:02.0} min", (seconds / 3600.0).floor(), seconds % 3600.0 / 60.0),
    }
}

fn format_jobs(told: &Value) -> String {
    let all = told.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows =
        vec![["job", "state", "priority", "for", "peer", "statement"].map(str::to_owned)];
    for job in all {
        let shown = field_text(job, "shown");
        let mut line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().count() > 60 {
            line = line.chars().take(59).chain(['…']).collect();
        }
        rows.push([
            field_text(job, "id"),
            field_text(job, "state"),
            field_text(job, "priority"),
            format_duration(&job["seconds"]),
            field_text(job, "peer"),
            line,
        ]);
    }
    let widths: Vec<usize> = (0..5)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let text = rows.iter().map(|row| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        format!("{line}{}\n", row[5])
    });
    text.collect()
}
