//! `cluster`: a master that stays on a cluster, and what it has.

use serde_json::Value;
use tidemill_engine::master_lifecycle::{self, MasterOptions};
use tidemill_engine::posted_query::master_client::{
    MasterClient, MasterStateFile, is_master_address,
};
use tidemill_engine::ray_workers::RayClusterOptions;
use tidemill_engine::{CancelFlag, Error, memory_budget};

use super::{Outcome, print};
use crate::args::{ClusterArgs, ClusterDownArgs, ClusterUpArgs, ClusterVerb, MasterArgs, Plain};
use crate::terminal;

/// `tidemill cluster`.
pub(super) fn cluster(args: ClusterArgs) -> anyhow::Result<Outcome> {
    let cancel = CancelFlag::new();
    terminal::watch_signals(&cancel)?;
    match args.verb {
        ClusterVerb::Up(args) => up(args, &cancel),
        ClusterVerb::Status(args) => {
            let MasterArgs { on, token_file } = &args.master;
            let master = MasterClient::find(on, token_file.as_deref())?;
            show(&master.fetch_status("status", &cancel)?, args.format, status)
        }
        ClusterVerb::Jobs(args) => {
            let MasterArgs { on, token_file } = &args.master;
            let admin_token_file = args.admin.admin_token_file.as_deref();
            let master = MasterClient::find_admin(on, token_file.as_deref(), admin_token_file)?;
            show(&master.fetch_status("jobs", &cancel)?, args.format, jobs)
        }
        ClusterVerb::Down(args) => down(args, &cancel),
        ClusterVerb::Token(args) => {
            let left = MasterStateFile::load()?.ok_or_else(no_master)?;
            let token = if args.admin { left.admin_token() } else { left.token.as_str() };
            print(format!("{token}\n").as_bytes())?;
            Ok(Outcome::Complete)
        }
    }
}

fn no_master() -> Error {
    Error::usage_with_hint(
        "no master was started on this machine",
        "tidemill cluster up starts one",
    )
}

/// The Ray cluster that is named.
fn ray(
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

fn up(args: ClusterUpArgs, cancel: &CancelFlag) -> anyhow::Result<Outcome> {
    let budget = |text: &str| memory_budget::resolve_memory_budget(Some(text), None);
    let on = ray(args.on, args.python)?;
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
    print(format!("{}\n", started.address).as_bytes())?;
    let of =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    terminal::note(&format!(
        "{} on {}, {}; --on master names it on this machine",
        of(started.workers, "worker"),
        of(started.machines, "machine"),
        of(started.threads, "thread"),
    ));
    Ok(Outcome::Complete)
}

fn down(args: ClusterDownArgs, cancel: &CancelFlag) -> anyhow::Result<Outcome> {
    if is_master_address(&args.on) {
        let admin_token_file = args.admin.admin_token_file.as_deref();
        let master =
            MasterClient::find_admin(&args.on, args.token_file.as_deref(), admin_token_file)?;
        master.shut_down(cancel)?;
        MasterStateFile::remove_for_master(&master)?;
        return Ok(Outcome::Complete);
    }
    let on = ray(args.on, args.python)?;
    match master_lifecycle::stop_master(&on, cancel)? {
        true => Ok(Outcome::Complete),
        false => Err(Error::usage_with_hint(
            format!("there is no master on `{}`", on.address),
            "tidemill cluster up starts one",
        )
        .into()),
    }
}

/// Prints a master's response as text or JSON.
fn show(
    told: &Value,
    format: Plain,
    text: impl FnOnce(&Value) -> String,
) -> anyhow::Result<Outcome> {
    let text = match (format, told) {
        (Plain::Text, told) => text(told),
        (Plain::Json, Value::Array(all)) => all.iter().map(|one| format!("{one}\n")).collect(),
        (Plain::Json, one) => format!("{one}\n"),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Complete)
}

/// A field as text.
fn field(of: &Value, name: &str) -> String {
    match &of[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn status(told: &Value) -> String {
    let lines = [
        ("address", field(told, "address")),
        ("release", field(told, "release")),
        ("up for", seconds(&told["up_seconds"])),
        ("machines", field(told, "machines")),
        ("workers", field(told, "workers")),
        ("threads", field(told, "threads")),
        ("running", field(told, "running")),
        ("suspended", field(told, "suspended")),
        ("waiting", field(told, "waiting")),
        ("ended", field(told, "ended")),
    ];
    lines.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
}

fn seconds(of: &Value) -> String {
    let Some(seconds) = of.as_f64() else { return "-".to_owned() };
    match seconds {
        0.0..60.0 => format!("{seconds:.1} s"),
        60.0..3600.0 => format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0),
        _ => format!("{:.0} h {:02.0} min", (seconds / 3600.0).floor(), seconds % 3600.0 / 60.0),
    }
}

fn jobs(told: &Value) -> String {
    let all = told.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows =
        vec![["job", "state", "priority", "for", "peer", "statement"].map(str::to_owned)];
    for job in all {
        let shown = field(job, "shown");
        let mut line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.chars().count() > 60 {
            line = line.chars().take(59).chain(['…']).collect();
        }
        rows.push([
            field(job, "id"),
            field(job, "state"),
            field(job, "priority"),
            seconds(&job["seconds"]),
            field(job, "peer"),
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
