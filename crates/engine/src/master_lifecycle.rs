//! Starts and stops a master on a cluster, through a Python that has Ray.
//!
//! `python -m tidemill.ray up` reads the request as JSON from its standard input, and writes the answer as
//! JSON to its standard output. The master creates the tokens. They pass through neither stream: that process
//! writes them to the state folder.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_base::CancelFlag;
use tidemill_base::error::{Error, Result};

use crate::ray_workers::{RayClusterOptions, cluster_error, find_python};

/// Poll interval for the answer and for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The options for starting a master.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MasterOptions {
    /// The address and port to listen at. Default: 127.0.0.1 and a free port.
    pub listen: Option<String>,
    /// Maximum number of workers. Default: one for each four cores.
    pub workers: Option<usize>,
    /// Memory budget of each worker, in bytes. Default: half of the machine's memory, divided by the worker's
    /// share of the cores.
    pub memory: Option<u64>,
    /// PEM file with the certificate and its chain. `None` if the master listens on this machine only.
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    pub key: Option<PathBuf>,
    /// File that receives the query token, in addition to the state folder.
    pub token_file: Option<PathBuf>,
    /// File that receives the admin token, in addition to the state folder.
    pub admin_token_file: Option<PathBuf>,
    /// Maximum number of jobs of one client address. Default: 32.
    pub max_jobs_per_peer: Option<usize>,
    /// True if clients may name programs, which run as the user who started the cluster.
    pub allow_programs: bool,
    /// Folders on the machines from which clients may read files.
    pub allow_paths: Vec<PathBuf>,
}

/// A master that was started.
#[derive(Debug, Clone, Deserialize)]
pub struct StartedMaster {
    /// Address on which the master listens.
    pub address: String,
    /// Number of machines.
    pub machines: usize,
    /// Number of worker processes.
    pub workers: usize,
    /// Number of threads of all workers.
    pub threads: usize,
}

/// Starts a master and its workers, which outlive this process.
///
/// # Errors
/// [`Error::Usage`] if there is no Python or no cluster, or if the cluster has a master already; errors of
/// the cluster.
pub fn start_master(
    on: &RayClusterOptions,
    up: &MasterOptions,
    cancel: &CancelFlag,
) -> Result<StartedMaster> {
    let mut asked = serde_json::to_value(up).map_err(invalid_answer_error)?;
    asked["on"] = on.address.clone().into();
    let told = run_cluster_command(on, "up", &asked, cancel)?;
    serde_json::from_value(told).map_err(invalid_answer_error)
}

/// Stops the master of a cluster and its workers, even if the master does not answer. Returns true if there
/// was one.
///
/// # Errors
/// The errors of [`start_master`].
pub fn stop_master(on: &RayClusterOptions, cancel: &CancelFlag) -> Result<bool> {
    let told = run_cluster_command(on, "down", &serde_json::json!({ "on": on.address }), cancel)?;
    Ok(told["was_there"].as_bool().unwrap_or(false))
}

fn invalid_answer_error(error: serde_json::Error) -> Error {
    Error::usage_with_hint(
        format!("what Python says of the cluster is not understood: {error}"),
        "the Python that --python names needs the same release of tidemill",
    )
}

/// Runs a command of `tidemill.ray` on a cluster, and returns its answer.
fn run_cluster_command(
    on: &RayClusterOptions,
    verb: &str,
    asked: &Value,
    cancel: &CancelFlag,
) -> Result<Value> {
    let (path, why) = find_python(on.python_path.as_deref());
    let shown = path.display().to_string();
    let started = Command::new(&path)
        .args(["-m", "tidemill.ray", verb])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(|error| {
        Error::usage_with_hint(
            format!("cannot start `{shown}` for the cluster: {error} ({why})"),
            "--python names a Python that has Ray: pip install 'tidemill[ray]'",
        )
    })?;
    // Dropping the pipe tells the process that the input is complete.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(asked.to_string().as_bytes());
    }
    let io = |source| Error::Io { action: "start", path: "a thread".into(), source };
    let (send, ended) = sync_channel(2);
    let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
        (true, child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
        (false, child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
    ];
    for (is_answer, pipe) in pipes {
        let send = send.clone();
        std::thread::Builder::new()
            .name("cluster".into())
            .spawn(move || {
                let mut said = Vec::new();
                if let Some(mut pipe) = pipe {
                    let _ = pipe.read_to_end(&mut said);
                }
                let _ = send.send((is_answer, said));
            })
            .map_err(io)?;
    }
    drop(send);
    let (mut answer, mut words) = (None, Vec::new());
    // Processes that Python started may keep its standard error open. Standard output is Python's own.
    while answer.is_none() {
        if let Err(interrupted) = cancel.check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted.into());
        }
        match ended.recv_timeout(POLL_INTERVAL) {
            Ok((true, said)) => answer = Some(said),
            Ok((false, said)) => words = said,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = child.wait();
    let answer = answer.unwrap_or_default();
    if answer.is_empty() {
        if words.is_empty()
            && let Ok((_, said)) = ended.recv_timeout(Duration::from_millis(500))
        {
            words = said;
        }
        let words = String::from_utf8_lossy(&words).into_owned();
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        return Err(Error::usage_with_hint(
            format!(
                "`{shown}` cannot reach a cluster ({why}): {}",
                last.unwrap_or("it ended without a word").trim()
            ),
            format!("{shown} -m pip install 'tidemill[ray]'; or name another by --python"),
        ));
    }
    let told: Value = serde_json::from_slice(&answer).map_err(invalid_answer_error)?;
    match told["failed"].as_str() {
        Some(why) => Err(cluster_error(why)),
        None => Ok(told),
    }
}
