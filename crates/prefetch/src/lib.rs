//! Prefetching reads from object stores: predicts the next bytes and fetches them within a memory budget.
//!
//! ```text
//!  PrefetchReader (a file) · PrefetchStore (a store)
//!        │
//!  ObjectCursor: one window for each sequential position    predicts the next bytes
//!        │ reads                    │ claims
//!  PrefetchPool: blocks, queue, memory                      decides what is fetched, and when
//!        │
//!  BlockBuffer: a block while it arrives                    read without a lock
//!        ▲
//!  CachedOrigin ◄──► DiskTier: blocks fetched before        if one is given
//!        ▲
//!  Origin: one version of one object, by ranges             resumed if a body ends early
//!        ▲
//!  Endpoint: as many requests as a server accepts           if the HTTP client is the endpoint's
//! ```
//!
//! - `origin`: requests for the bytes of one object version
//! - `cached_origin`: an origin with the disk tier in front of it
//! - `disk`: the disk tier, whose blocks later processes read too
//! - `endpoint`, `request_gate`: concurrency limit of a server and priority of its requests
//! - `hedge_policy`: delay and budget of hedged requests
//! - `last_failure`: last failure of requests that the store retries by itself
//! - `request_context`: priority and counters of the task that makes a request
//! - `endpoint_meter`: latency and throughput of an endpoint
//! - `read_history`: measurements of past runs
//! - `tuner`: block and window sizes derived from that history
//! - `block_buffer`: bytes that are read while they arrive
//! - `prefetch_pool`: blocks, their fetch order and their memory
//! - `object_cursor`: prediction of the next bytes of an object
//! - `access_plan`: announced ranges of later objects
//! - `range_coalescing`: ranges that are fetched in one request
//! - `reader`, `store`: interface for programs
//!
//! **Cost.** A connection gives 25 to 100 MB/s after some 30 ms; a link of 400 MB/s takes 16 of the slow ones
//! at once. With blocks of 8 MiB a connection is idle for 30 ms of 365. Each byte is copied once, from the
//! connection's frames into its block. It is copied a second time only if the caller passes its own buffer or
//! asks for the bytes of two blocks in one piece. A read takes two locks, that of its cursor and that of the
//! pool's block table, for some 100 ns each. It holds no lock while it copies or waits. Bytes from the disk
//! tier are copied twice and checked.
//!
//! **Memory.** Blocks in flight, fetched blocks and blocks that callers still hold stay within
//! [`Options::memory_bytes`]. The pool never refuses a read that cannot wait: it first evicts blocks that
//! have been read, then those with the latest need, and starts the fetch once they have freed their memory.
//! The pool exceeds the limit only if concurrent reads, of at most a block each, and the bytes that callers
//! keep exceed it by themselves. Bytes that wait to be written to a disk tier count too, at most a quarter.

pub mod access_plan;
mod block_buffer;
mod cached_origin;
mod disk;
pub mod endpoint;
mod endpoint_meter;
pub mod error;
mod hedge_policy;
pub mod last_failure;
pub mod object_cursor;
pub mod origin;
pub mod prefetch_pool;
pub mod range_coalescing;
pub mod read_history;
mod reader;
mod request_context;
mod request_gate;
mod stats;
mod store;
pub mod tuner;

pub use cached_origin::CachedOrigin;
pub use disk::{DiskTier, DiskTierOptions, DiskTierStats};
pub use endpoint::Endpoint;
pub use endpoint_meter::EndpointMeasurements;
pub use error::{Error, Result};
pub use last_failure::LastFailure;
pub use object_cursor::ObjectCursor;
pub use origin::{ByteSink, Origin, StoreObject};
pub use prefetch_pool::{BlockClaims, OpenedObject, PrefetchPool};
pub use read_history::ReadHistory;
pub use reader::PrefetchReader;
pub use stats::ReadStats;
pub use store::PrefetchStore;

/// Sizes of blocks, windows and memory for prefetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes that one request of a window fetches, at most a 16th of the memory. Default: 8 MiB.
    /// Minimum: 64 KiB.
    pub block_bytes: u64,
    /// Maximum bytes fetched ahead of a position. Default: 256 MiB. Minimum: a block.
    pub window_bytes: u64,
    /// Memory of all prefetched blocks of all objects. Default: 512 MiB. Minimum: 1 MiB.
    pub memory_bytes: u64,
    /// First window of a position that is read sequentially without having been declared; the window then
    /// doubles. Default: 1 MiB.
    pub first_window_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            block_bytes: 8 << 20,
            window_bytes: 256 << 20,
            memory_bytes: 512 << 20,
            first_window_bytes: 1 << 20,
        }
    }
}

impl Options {
    /// Checks that the sizes are large enough and fit each other.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], with the minimum.
    pub fn validate(&self) -> Result<()> {
        prefetch_pool::check_options(self)
    }
}

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
