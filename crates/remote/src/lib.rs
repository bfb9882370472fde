//! Reads and writes remote files: `s3://`, `http://` and `https://`.
//!
//! ```text
//!  reader's thread ── ObjectReader ── window of blocks ◄─ GET ◄─ GET ◄─ GET      (prefetch)
//!                                                         │      │      │
//!  network threads ───────────────────────────────────────┴──────┴──────┴─       (tokio)
//! ```
//!
//! The public API is synchronous. A request is a task on a runtime of this crate ([`NetworkTask`]). The
//! reader's thread waits for the result on a channel and checks the [`CancelFlag`](tidemill_base::cancellation::CancelFlag) flag 20 times a second. No
//! thread of this crate blocks inside a runtime, so callers may use any thread, threads of a runtime
//! included.
//!
//! - `http_client`: the HTTP client of all stores, without redirects or other automatic steps.
//! - `storage_options`: names, values and secrecy of the store settings.
//! - `posted_options`: the rules for storage options of a posted query.
//! - `location`: parsing of URLs.
//! - `pattern`: globs and alternatives in paths and keys.
//! - `s3`, `http`: requests to buckets and web servers, and error messages for refused requests.
//! - `bucket_requests`: requests to a bucket that `object_store` does not offer.
//! - `address_guard`: refusal of addresses that are private to the machine.
//! - `silent_hosts`: hosts that have not answered for a while.
//! - `service_client`: requests to a service that streams its response while it works.
//! - `object`: one version of one object, read by ranges.
//! - `reader`: the read patterns of a reader; `prefetch` derives the blocks from them.
//! - `direct_request_stats`: counters of requests outside of the prefetch pool.
//! - `disk_cache`: the disk tiers that keep fetched blocks for later runs.
//! - `tuning`: block and window sizes chosen from the read history of a server.
//! - `upload`: uploads that make an object visible as a whole or not at all.
//! - `scratch`: storage for query data that is too large to send between workers.
//! - `files`: listing of files and objects, and copies between this machine and buckets.
//!
//! **Cost.** A listed file of at most 64 KiB takes one GET. A file of at most 4 MiB takes one GET, and
//! another for its header where files may differ. A larger file takes one GET per block of 8 MiB, whatever
//! its splits are. Each response is copied once, from the connection's frames into one buffer. A listing
//! takes one request per 1,000 keys and includes sizes and versions, so no object needs a request for them.
//!
//! **One version.** Every read of an object returns bytes of the listed version. Each GET carries the ETag as
//! `If-Match`, and the reader compares ETag and size of each response with the listing. An object that is
//! replaced during a run causes an error, never a mixture of versions.

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

/// Interval between checks of the cancel flag while a thread waits for the network.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of network threads. TLS on one thread reaches some 500 MB/s.
const NETWORK_THREADS: usize = 2;

/// Returns the runtime of all remote requests, which starts with the first request.
///
/// Fails in a forked process: the runtime's threads exist in the parent only.
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
        // The fork has no network threads, so a task would never finish.
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

/// A future that runs on the network threads, with a channel for its result. Dropping it aborts the future.
#[derive(Debug)]
pub struct NetworkTask<T, E = Error> {
    result_receiver: Receiver<Result<T, E>>,
    abort_handle: AbortHandle,
}

impl<T: Send + 'static, E: Send + 'static> NetworkTask<T, E> {
    /// Starts a future on the network threads.
    ///
    /// # Errors
    /// [`Error::Io`] if the network threads cannot be started.
    pub fn start(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<Self> {
        let (sender, answer) = sync_channel(1);
        let task = runtime()?.spawn(async move {
            // Sending fails if the receiver was dropped, which means that nobody wants the result.
            let _ = sender.send(work.await);
        });
        Ok(NetworkTask { result_receiver: answer, abort_handle: task.abort_handle() })
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The future's own errors, and [`Error::Interrupted`].
    pub fn wait(self, cancel: &CancelFlag) -> Result<T, E>
    where
        E: From<Error>,
    {
        self.wait_with_tick(&mut || cancel.check())
    }

    /// Waits for the result and calls `tick` every 50 ms.
    ///
    /// # Errors
    /// The future's own errors, and [`Error::Interrupted`].
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

/// Runs a future on the network threads and returns its result.
///
/// # Errors
/// The future's own errors, and [`Error::Interrupted`].
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
