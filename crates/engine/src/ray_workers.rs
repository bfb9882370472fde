//! Workers of a Ray cluster, through a bridge process in Python.
//!
//! The command line knows nothing of Ray. It starts `python -m tidemill.ray` and exchanges frames with it on
//! the process's standard input and output. A frame is the length of a head (4 bytes, little-endian), the
//! head (JSON), the length of a content (8 bytes) and the content. This side sends `start`, `begin`, `submit`
//! and `end`; the process answers with `ready`, `done` and `failed`. The process ends when its input is
//! closed, which also happens whenever this process ends.

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

/// Environment variable with the path of a Python.
const PYTHON_ENV_VAR: &str = "TIDEMILL_PYTHON";
/// Maximum number of frames that wait for the reader.
const QUEUED_FRAMES_MAX: usize = 256;
/// Interval at which a waiting caller checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that the process has to end by itself before it is killed.
const PROCESS_END_TIMEOUT: Duration = Duration::from_millis(500);

/// The options for reaching a Ray cluster.
#[derive(Debug, Clone)]
pub struct RayClusterOptions {
    /// Address of the cluster: `ray`, or `ray://` with host and port.
    pub address: String,
    /// Path of a Python that has Ray. Default: `TIDEMILL_PYTHON`, then an active virtual environment's, then
    /// `python3`.
    pub python_path: Option<PathBuf>,
    /// Memory budget of each worker, in bytes. Default: half of the machine's memory, divided by the worker's
    /// share of the cores.
    pub worker_memory_bytes: Option<u64>,
}

/// The workers of a Ray cluster. The first use starts the bridge process.
#[derive(Debug)]
pub struct RayWorkerPool {
    cluster_options: RayClusterOptions,
    cancel: CancelFlag,
    process: Mutex<Option<BridgeProcess>>,
}

/// The bridge process, whose workers are ready.
#[derive(Debug)]
struct BridgeProcess {
    worker_counts: WorkerCounts,
    child: Child,
    /// The process's standard input; `None` once closed.
    stdin: Option<BufWriter<ChildStdin>>,
    frames: Receiver<std::io::Result<BridgeFrame>>,
}

type BridgeFrame = (BridgeReply, Vec<u8>);

/// A message from the bridge process.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum BridgeReply {
    Ready(WorkerCounts),
    Done { number: usize, attempt: usize, worker: Option<String>, why: Option<String> },
    Failed { why: String },
}

/// A message to the bridge process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
enum BridgeCommand<'a> {
    Start { on: &'a str, memory: Option<u64> },
    Begin { secrets: &'a BTreeMap<String, String>, paths: &'a [String], files: &'a [ShippedFile] },
    Submit { number: usize, attempt: usize, bytes: u64, name: &'a str },
    End,
}

/// Returns the Python to start, and the reason for this choice.
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
    /// Creates the pool. Starts nothing yet.
    pub fn new(on: RayClusterOptions, cancel: &CancelFlag) -> RayWorkerPool {
        RayWorkerPool { cluster_options: on, cancel: cancel.clone(), process: Mutex::default() }
    }

    /// Returns the bridge process, and starts it first if necessary.
    ///
    /// # Errors
    /// [`Error::Usage`] with what to install if there is no Python, or it has no Ray; errors of the cluster.
    fn running_process(&self) -> Result<MappedMutexGuard<'_, BridgeProcess>> {
        let mut reached = self.process.lock();
        if reached.is_none() {
            *reached = Some(BridgeProcess::start(&self.cluster_options, &self.cancel)?);
        }
        MutexGuard::try_map(reached, Option::as_mut).map_err(|_| bridge_ended_error())
    }
}

impl BridgeProcess {
    /// Starts the process and waits until the workers are ready.
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
                // The sender is dropped with the thread, at the end of the stream.
                let _ends = ends;
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                    let mut kept = kept.lock();
                    kept.push_str(&String::from_utf8_lossy(&buffer[..count]));
                    // The last 8 KiB tell the cause of a failure.
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
        // A failure to send shows in the process's answer or its end.
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
                    // Standard error is another pipe, which processes that Python started may keep open.
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
    // Reserves no more than arrives, whatever size the frame claims.
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
        // A process that was not started has nothing to end, and one that cannot be reached has ended.
        if let Some(reached) = self.process.lock().as_mut() {
            let _ = reached.send_frame(&BridgeCommand::End, &[]);
        }
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        // The process ends when its input is closed.
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
