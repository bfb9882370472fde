//! A cluster that a program in Python reaches: which Python, and how tasks go to it and come back.
//!
//! The command line knows nothing of Ray. It starts `python -m tidemill.ray` and speaks with it in frames, on its
//! standard input and output: the length of a head (4 bytes, little-endian), the head (JSON), the length of a content (8
//! bytes) and the content. It says `start`, `begin`, `submit` and `end`, and is told `ready`, `done` and `failed`. The process
//! ends when its input is closed, as it is when this one ends, however that ends.

use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_query::{
    ShippedFile, SubmittedJob, SubmittedTask, TaskOutcome, WorkerCounts, WorkerPool,
};

/// The variable that names a Python.
const PYTHON_ENV_VAR: &str = "TIDEMILL_PYTHON";
/// So many frames wait to be taken.
const QUEUED_FRAMES_MAX: usize = 256;
/// How often somebody who waits looks whether the run is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A process that is told to end does so within this, or is ended.
const PROCESS_END_TIMEOUT: Duration = Duration::from_millis(500);

/// How a cluster is reached.
#[derive(Debug, Clone)]
pub struct RayClusterOptions {
    /// `ray`, or `ray://` and a host with its port.
    pub address: String,
    /// The Python that has Ray. Default: what `TIDEMILL_PYTHON` names, an active virtual environment's, then `python3`.
    pub python_path: Option<PathBuf>,
    /// What each worker may take, in bytes. Default: half of its machine's, by its share of the cores.
    pub worker_memory_bytes: Option<u64>,
}

/// Workers of a cluster, by way of a program in Python that is started when there is something for them to do.
#[derive(Debug)]
pub struct RayWorkerPool {
    cluster_options: RayClusterOptions,
    cancel: CancelFlag,
    process: Mutex<Option<BridgeProcess>>,
}

/// The program, once workers are ready.
#[derive(Debug)]
struct BridgeProcess {
    worker_counts: WorkerCounts,
    child: Child,
    /// None once it was closed.
    stdin: Option<BufWriter<ChildStdin>>,
    frames: Receiver<std::io::Result<BridgeFrame>>,
}

type BridgeFrame = (BridgeReply, Vec<u8>);

/// What the process says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum BridgeReply {
    Ready(WorkerCounts),
    Done { number: usize, attempt: usize, worker: Option<String>, why: Option<String> },
    Failed { why: String },
}

/// What it is told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum BridgeCommand<'a> {
    Start { on: &'a str, memory: Option<u64> },
    Begin { secrets: &'a BTreeMap<String, String>, paths: &'a [String], files: &'a [ShippedFile] },
    Submit { number: usize, attempt: usize, bytes: u64, name: &'a str },
    End,
}

/// The Python to be started, and what says so.
pub(crate) fn find_python(named: Option<&Path>) -> (PathBuf, &'static str) {
    if let Some(path) = named {
        return (path.to_owned(), "--python names it");
    }
    if let Some(path) = std::env::var_os(PYTHON_ENV_VAR).filter(|path| !path.is_empty()) {
        return (path.into(), "TIDEMILL_PYTHON names it");
    }
    if let Some(folder) = std::env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty()) {
        return (Path::new(&folder).join("bin/python"), "it is the active virtual environment's");
    }
    ("python3".into(), "it is the first on the path")
}

impl RayWorkerPool {
    /// A way to workers; nothing is started yet.
    pub fn new(on: RayClusterOptions, cancel: &CancelFlag) -> RayWorkerPool {
        RayWorkerPool { cluster_options: on, cancel: cancel.clone(), process: Mutex::default() }
    }

    /// The program, started if it is not.
    ///
    /// # Errors
    /// [`Error::Usage`] where there is no Python, or it has no Ray, with what to install; what the cluster says.
    fn running_process(&self) -> Result<MappedMutexGuard<'_, BridgeProcess>> {
        let mut reached = self.process.lock();
        if reached.is_none() {
            *reached = Some(BridgeProcess::start(&self.cluster_options, &self.cancel)?);
        }
        MutexGuard::try_map(reached, Option::as_mut).map_err(|_| bridge_ended_error())
    }
}

impl BridgeProcess {
    /// Starts the program and waits until workers are ready.
    fn start(on: &RayClusterOptions, cancel: &CancelFlag) -> Result<BridgeProcess> {
        let (path, why) = find_python(on.python_path.as_deref());
        let shown = path.display().to_string();
        let started = Command::new(&path)
            .args(["-m", "tidemill.ray"])
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
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take();
        let (Some(stdin), Some(stdout), Some(mut stderr)) = (stdin, stdout, stderr) else {
            return Err(Error::Internal("a process without pipes".into()));
        };
        let (send, from) = sync_channel(QUEUED_FRAMES_MAX);
        let io = |source| Error::Io { action: "start", path: "a thread".into(), source };
        std::thread::Builder::new()
            .name("cluster".into())
            .spawn(move || {
                let mut stdout = BufReader::with_capacity(1 << 20, stdout);
                loop {
                    let frame = read_frame(&mut stdout);
                    let has_ended = frame.is_err();
                    if send.send(frame).is_err() || has_ended {
                        return;
                    }
                }
            })
            .map_err(io)?;
        let said = std::sync::Arc::new(Mutex::new(String::new()));
        let kept = std::sync::Arc::clone(&said);
        let (ends, has_ended) = sync_channel::<()>(0);
        std::thread::Builder::new()
            .name("cluster-said".into())
            .spawn(move || {
                // Dropped with the thread, when all has been said.
                let _ends = ends;
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                    let mut kept = kept.lock();
                    kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    // The last of it is what tells.
                    let over = kept.len().saturating_sub(8 << 10);
                    let cut = (over..kept.len()).find(|at| kept.is_char_boundary(*at));
                    kept.drain(..cut.unwrap_or(0));
                }
            })
            .map_err(io)?;
        let mut bridge = BridgeProcess {
            worker_counts: WorkerCounts { machines: 0, workers: 0, threads: 0, is_here: false },
            child,
            stdin: Some(BufWriter::new(stdin)),
            frames: from,
        };
        let start = BridgeCommand::Start { on: &on.address, memory: on.worker_memory_bytes };
        // What became of it is told by what it says, or by its end.
        let _ = bridge.send_frame(&start, &[]);
        loop {
            cancel.check()?;
            let next = bridge.frames.recv_timeout(POLL_INTERVAL);
            match next {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Ok((BridgeReply::Ready(reach), _))) => {
                    bridge.worker_counts = reach;
                    return Ok(bridge);
                }
                Ok(Ok((BridgeReply::Failed { why }, _))) => return Err(cluster_error(&why)),
                Ok(Ok((BridgeReply::Done { .. }, _))) => {}
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                    // Its words come by another pipe; what it has started may keep that open.
                    let _ = has_ended.recv_timeout(PROCESS_END_TIMEOUT);
                    let said = said.lock();
                    let last = said.lines().rev().find(|line| !line.trim().is_empty());
                    return Err(Error::usage_with_hint(
                        format!(
                            "`{shown}` cannot reach a cluster ({why}): {}",
                            last.unwrap_or("it ended without a word").trim()
                        ),
                        format!(
                            "{shown} -m pip install 'tidemill[ray]'; or name another by --python"
                        ),
                    ));
                }
            }
        }
    }

    fn send_frame(&mut self, head: &BridgeCommand<'_>, content: &[u8]) -> Result<()> {
        let json = serde_json::to_vec(head)
            .map_err(|error| Error::Internal(format!("a frame is no JSON: {error}")))?;
        let Some(to) = self.stdin.as_mut() else { return Err(bridge_ended_error()) };
        let length = u32::try_from(json.len()).map_err(|_| bridge_ended_error())?;
        let written = to
            .write_all(&length.to_le_bytes())
            .and_then(|()| to.write_all(&json))
            .and_then(|()| to.write_all(&(content.len() as u64).to_le_bytes()))
            .and_then(|()| to.write_all(content))
            .and_then(|()| to.flush());
        written.map_err(|_| bridge_ended_error())
    }
}

fn bridge_ended_error() -> Error {
    Error::Query("the process that reaches the cluster has ended".to_owned())
}

pub(crate) fn cluster_error(why: &str) -> Error {
    let (message, hint) = match why.split_once("\nhint: ") {
        Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
        None => (format!("the cluster failed: {why}"), None),
    };
    Error::Usage { message, hint }
}

/// Reads a frame.
fn read_frame(from: &mut impl Read) -> std::io::Result<BridgeFrame> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut head = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut head)?;
    let head = serde_json::from_slice(&head).map_err(std::io::Error::other)?;
    let mut size = [0; 8];
    from.read_exact(&mut size)?;
    let size = u64::from_le_bytes(size);
    let mut content = Vec::new();
    // No more is reserved than comes.
    from.by_ref().take(size).read_to_end(&mut content)?;
    match content.len() as u64 == size {
        true => Ok((head, content)),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

impl WorkerPool for RayWorkerPool {
    fn worker_counts(&self) -> Result<WorkerCounts> {
        Ok(self.running_process()?.worker_counts)
    }

    fn start_job(&self, job: SubmittedJob) -> Result<()> {
        let SubmittedJob {
            encoded_job: content,
            secrets,
            shared_paths: paths,
            shipped_files: files,
        } = job;
        let begin = BridgeCommand::Begin { secrets: &secrets, paths: &paths, files: &files };
        self.running_process()?.send_frame(&begin, &content)
    }

    fn submit_task(&self, task: SubmittedTask) -> Result<()> {
        let SubmittedTask {
            number,
            attempt,
            cost_bytes: bytes,
            display_name: name,
            encoded_task: content,
        } = task;
        self.running_process()?
            .send_frame(&BridgeCommand::Submit { number, attempt, bytes, name: &name }, &content)
    }

    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>> {
        self.cancel.check()?;
        let next = self.running_process()?.frames.recv_timeout(wait);
        match next {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(Ok((BridgeReply::Done { number, attempt, worker, why }, part))) => {
                let outcome = why.map_or(Ok(part), Err);
                Ok(Some(TaskOutcome { number, attempt, worker_name: worker, result: outcome }))
            }
            Ok(Ok((BridgeReply::Failed { why }, _))) => Err(cluster_error(&why)),
            Ok(Ok((BridgeReply::Ready(_), _))) => Ok(None),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(bridge_ended_error()),
        }
    }

    fn end_job(&self) {
        // Where it was not started there is nothing to end, and where it cannot be told, it has ended.
        if let Some(reached) = self.process.lock().as_mut() {
            let _ = reached.send_frame(&BridgeCommand::End, &[]);
        }
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        // Its input's end is its own.
        drop(self.stdin.take());
        let until = Instant::now() + PROCESS_END_TIMEOUT;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
