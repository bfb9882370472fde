//! Bytes that are not on this machine: `s3://`, `http://` and `https://`.
//!
//! ```text
//!  reader's thread ── Reader ── window of blocks ◄─ GET ◄─ GET ◄─ GET      (prefetch)
//!                                                   │      │      │
//!  network threads ─────────────────────────────────┴──────┴──────┴─       (tokio)
//! ```
//!
//! Readers are synchronous, and stay so: a request is a task on a runtime of its own
//! ([`Fetch`]), whose answer the reader's thread waits for on a channel, looking at the
//! [`Cancel`] flag 20 times a second. No thread of ours ever blocks inside a runtime, so it
//! does not matter which thread asks.
//!
//! - `client`: what does a request do by itself? It waits for its turn, and nothing else.
//! - `options`: which settings are there, and which of them are secret?
//! - `posted_options`: the rules for storage options of a posted query.
//! - `location`: what does a URL name?
//! - `pattern`: which names does a pattern stand for?
//! - `s3`, `http`: how is one asked, and what do its refusals mean?
//! - `requests`: what is asked of a bucket that `object_store` does not ask?
//! - `guard`: which addresses are not asked for somebody else?
//! - `silent_hosts`: which hosts have not answered for a while?
//! - `post`: how is a service asked that answers while it works?
//! - `object`: one version of one object, by ranges.
//! - `reader`: what is a reader going to read? Which blocks that means says `prefetch`.
//! - `counted`: what is fetched without its help?
//! - `cache`: which of the bytes are kept on a disk, for the next run?
//! - `tuning`: which block and window suit a server, as past runs saw it?
//! - `upload`: how does an object come to be, at once or not at all?
//! - `scratch`: where do the bytes of a query wait that are too many to be sent?
//! - `files`: which of them are there, and how are they copied from here to there?
//!
//! **What it costs.** A file of at most 64 KiB that was listed is one GET; one of at most 4 MiB too,
//! and another for its header where files may differ; a larger one is a GET per block of 8 MiB, whatever
//! the splits that it is read in. Each answer is copied once, from the connection's frames into one buffer. Listing is a request
//! per 1,000 keys and gives sizes and versions, so that no object is asked for them alone.
//!
//! **One version.** What is read of an object is of the version that was listed: every GET
//! carries its ETag as `If-Match`, and every answer's ETag and size are compared with it. An
//! object replaced in the middle of a run is an error, never a mixture.

pub mod address_guard;
pub mod bucket_requests;
mod direct_request_stats;
pub mod disk_cache;
pub mod error;
pub mod files;
pub mod http;
mod http_client;
pub mod location;
pub mod object;
pub mod pattern;
mod posted_options;
pub mod reader;
pub mod s3;
pub mod scratch;
pub mod service_client;
pub mod silent_hosts;
mod storage_options;
pub mod tuning;
pub mod upload;

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use tidemill_base::cancellation::{CancelFlag, WaitCallback};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

pub use error::{Error, Result};
pub use reader::{PrefetchBudget, read_stats};
pub use storage_options::StorageOptions;
pub use tidemill_prefetch::access_plan::{AccessPlan, ObjectRanges};
pub use tidemill_prefetch::{BlockClaims, DiskTierStats, Endpoint, ReadStats};

/// How often a thread that waits for the network looks at the flag.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Threads that talk to the network: TLS of one is some 500 MB/s.
const NETWORK_THREADS: usize = 2;

/// The runtime of everything remote, started with the first request; and the process that has its threads.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<(std::io::Result<Runtime>, u32)> = OnceLock::new();
    let (started, process) = RUNTIME.get_or_init(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("tidemill-net")
            .enable_all()
            .build();
        (runtime, std::process::id())
    });
    if *process != std::process::id() {
        // Nobody would answer.
        return Err(Error::Usage {
            message: "the network's threads are those of the process that this one is a fork of"
                .into(),
            hint: Some("start processes by multiprocessing's `spawn` or `forkserver`".into()),
        });
    }
    started.as_ref().map_err(|error| {
        let source = std::io::Error::new(error.kind(), error.to_string());
        Error::Io { action: "start", path: "threads for the network".into(), source }
    })
}

/// Work on the network's threads, and its answer when it is there. Dropped before, it is
/// given up.
#[derive(Debug)]
pub struct NetworkTask<T, E = Error> {
    result_receiver: Receiver<Result<T, E>>,
    abort_handle: AbortHandle,
}

impl<T: Send + 'static, E: Send + 'static> NetworkTask<T, E> {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for it.
    pub fn start(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<Self> {
        let (sender, answer) = sync_channel(1);
        let task = runtime()?.spawn(async move {
            // Nobody listening any more: the answer is not wanted.
            let _ = sender.send(work.await);
        });
        Ok(NetworkTask { result_receiver: answer, abort_handle: task.abort_handle() })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The work's own, and [`Error::Interrupted`].
    pub fn wait(self, cancel: &CancelFlag) -> Result<T, E>
    where
        E: From<Error>,
    {
        self.wait_with_tick(&mut || cancel.check())
    }

    /// Waits for the answer, calling `tick` every 50 ms.
    ///
    /// # Errors
    /// The work's own, and [`Error::Interrupted`].
    pub fn wait_with_tick(self, tick: WaitCallback<'_>) -> Result<T, E>
    where
        E: From<Error>,
    {
        loop {
            tick().map_err(Error::from)?;
            match self.result_receiver.recv_timeout(CANCEL_POLL_INTERVAL) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = "a network task ended without an answer";
                    return Err(Error::Internal(ended.into()).into());
                }
            }
        }
    }
}

impl<T, E> Drop for NetworkTask<T, E> {
    fn drop(&mut self) {
        self.abort_handle.abort();
    }
}

/// What `work` returns, run on the network's threads.
///
/// # Errors
/// The work's own, and [`Error::Interrupted`].
pub fn block_on<T: Send + 'static, E: From<Error> + Send + 'static>(
    cancel: &CancelFlag,
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    NetworkTask::start(work)?.wait(cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_never_ends_is_left_when_the_run_is_cancelled() {
        let cancel = CancelFlag::new();
        let other = cancel.clone();
        let thread =
            std::thread::spawn(move || block_on(&other, std::future::pending::<Result<()>>()));
        cancel.cancel();
        assert!(matches!(thread.join().unwrap(), Err(Error::Interrupted)));
    }

    #[test]
    fn block_on_works_on_the_runtimes_own_threads() {
        let inside = runtime()
            .unwrap()
            .spawn_blocking(|| block_on(&CancelFlag::new(), async { Result::Ok(7) }));
        let answer: Result<i32> = block_on(&CancelFlag::new(), async move {
            inside.await.map_err(|error| Error::Internal(error.to_string()))?
        });
        assert_eq!(answer.unwrap(), 7);
        let nested: Result<i32> =
            futures::executor::block_on(async { block_on(&CancelFlag::new(), async { Ok(8) }) });
        assert_eq!(nested.unwrap(), 8);
    }
}
