//! Reads object stores ahead: which bytes will be wanted next, and how many may be here before.
//!
//! ```text
//!  PrefetchReader (a file) · PrefetchStore (a store)
//!        │
//!  Cursor: windows, one a place that is read on from        which bytes are wanted next?
//!        │ reads                    │ claims
//!  Pool: blocks, queue, memory                              what is fetched, and when?
//!        │
//!  Buffer: a block while it arrives                         read without a lock
//!        ▲
//!  CachedOrigin ◄──► DiskTier: what was fetched before      where one is given
//!        ▲
//!  Origin: one version of one object, by ranges             resumed where a body ends early
//!        ▲
//!  Endpoint: as many requests as a server takes             where the HTTP client is its
//! ```
//!
//! - `origin`: how are the bytes of one version asked for?
//! - `cached`: which of them need not be asked for?
//! - `disk`: what is kept of them for the next process, and what is believed of it?
//! - `endpoint`, `gate`: how many requests may be on their way to a server, and whose?
//! - `patience`: when is one sent a second time?
//! - `met`: what was met by one that is repeated?
//! - `ticket`: for whom is one made?
//! - `measure`: what do its answers say of the line?
//! - `history`: what did those of past runs say?
//! - `tuner`: which block and window does that ask for?
//! - `buffer`: how are bytes read while they arrive?
//! - `pool`: which blocks are there, in which order are they fetched, in how much memory?
//! - `cursor`: which bytes will be wanted next?
//! - `course`: and which after those, in other objects?
//! - `ranges`: which of them are asked for together?
//! - `reader`, `store`: how does it look to programs?
//!
//! **What it costs.** A connection gives 25 to 100 MB/s after some 30 ms; a link of 400 MB/s takes 16 of
//! the slow ones at once. With blocks of 8 MiB a connection stands still for 30 ms of 365. Each byte is
//! copied once, from the connection's frames into its block, and a second time only where a caller brings
//! a buffer of its own or asks for bytes of two blocks in one piece. A read takes two locks, of its cursor and of
//! the pool's books, for some 100 ns each, and none while bytes are copied or waited for. What comes from the
//! disk is copied twice, and checked.
//!
//! **Memory.** What is on its way, there, or still looked at is within [`Options::memory_bytes`]. A
//! read that cannot wait is never refused: for it are taken back blocks that have been read, then what is wanted
//! last, and it begins when they have given their memory back. So there is more only
//! where the reads that wait at one moment, of at most a block each, and the bytes that callers were given
//! and keep, are more than that by themselves. What waits to be written to a disk is part of it, at most a
//! quarter.

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

/// How objects are read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The bytes that one request of a window fetches, at most a 16th of the memory. Default: 8 MiB.
    /// Minimum: 64 KiB.
    pub block_bytes: u64,
    /// How far ahead of a place blocks are fetched at most. Default: 256 MiB. Minimum: a block.
    pub window_bytes: u64,
    /// The memory of all that is fetched ahead, of all objects. Default: 512 MiB. Minimum: 1 MiB.
    pub memory_bytes: u64,
    /// The first window of a place that is read on from without being told of, which then doubles. Default:
    /// 1 MiB.
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
    /// Refuses values that make no sense.
    ///
    /// # Errors
    /// [`Error::Option`], with what is the least.
    pub fn validate(&self) -> Result<()> {
        prefetch_pool::check_options(self)
    }
}

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
