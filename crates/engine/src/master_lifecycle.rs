//! What stays on a cluster: a master that is started, and ended, by way of a Python that has Ray.
//!
//! `python -m tidemill.ray up` takes what is asked as JSON on its standard input, and writes what came of it as JSON on its
//! standard output. The master creates the tokens. They pass through neither stream: that process writes them to the
//! state folder.

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

/// How often it is looked whether it is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How a master is started.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MasterOptions {
    /// The address and port to listen at. Default: 127.0.0.1 and a free port.
    pub listen: Option<String>,
    /// So many workers at most. Default: one for each four cores.
    pub workers: Option<usize>,
    /// What each worker may take, in bytes. Default: half of its machine's, by its share of the cores.
    pub memory: Option<u64>,
    /// The certificate, with those that vouch for it, and its key, as PEM. None where it listens to this machine alone.
    pub certificate: Option<PathBuf>,
    /// The key.
    pub key: Option<PathBuf>,
    /// File that receives the query token, in addition to the state folder.
    pub token_file: Option<PathBuf>,
    /// File that receives the admin token, in addition to the state folder.
    pub admin_token_file: Option<PathBuf>,
    /// Maximum number of jobs of one client address. Default: 32.
    pub max_jobs_per_peer: Option<usize>,
    /// Whether those who ask may name programs, which run as whoever started the cluster.
    pub allow_programs: bool,
    /// Folders of the machines whose files may be read by those who ask.
    pub allow_paths: Vec<PathBuf>,
}

/// What was started.
#[derive(Debug, Clone, Deserialize)]
pub struct StartedMaster {
    /// Where it listens.
    pub address: String,
    /// Machines, workers and threads.
    pub machines: usize,
    /// Processes.
    pub workers: usize,
    /// Threads of all of them.
    pub threads: usize,
}

/// Starts a master and its workers, which stay when this process ends.
///
/// # Errors
/// [`Error::Usage`] where there is no Python or no cluster, or one has a master already; what the cluster says.
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

/// Ends the master of a cluster and its workers, whether it answers or not; whether there was one.
///
/// # Errors
/// As [`up`].
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

/// Has a Python do something on a cluster.
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
    // Dropped, so that it knows that this is all.
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
    // What it has started may keep its pipe for words open; the answer's is its own.
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
