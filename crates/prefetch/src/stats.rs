//! What reading ahead did, in numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a reader, or all of a pool, did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// Bytes that were asked for and served.
    pub served_bytes: u64,
    /// Bytes that came from the store.
    pub fetched_bytes: u64,
    /// Bytes that came from the [tier](crate::DiskTier) on the disk.
    pub disk_bytes: u64,
    /// Bytes that came, from either, and were dropped before anybody read them.
    pub wasted_bytes: u64,
    /// Requests to the store, retries and hedges apart.
    pub requests: u64,
    /// Reads of the tier on the disk.
    pub disk_reads: u64,
    /// Reads, or parts of one that lie in different blocks.
    pub reads: u64,
    /// Those of them whose bytes were there already.
    pub hits: u64,
    /// Those of them that waited.
    pub stalls: u64,
    /// For how long they did.
    pub stall_time: Duration,
    /// Requests that were made again: refused, lost, or cut off, and then from there.
    pub retries: u64,
    /// Answers that the server is asked too much: 429 and 503.
    pub throttled_responses: u64,
    /// Requests that were sent a second time while the first was not answered.
    pub hedges: u64,
    /// Those of them that were answered first.
    pub hedges_won: u64,
    /// Blocks that were taken back for reads that could not wait.
    pub evicted_blocks: u64,
    /// The block that was used for the object that was opened last: what there was memory for. Not counted, and
    /// the same in a difference.
    pub block_bytes: u64,
    /// How far a place was read ahead of at most there.
    pub window_bytes: u64,
    /// From how many past runs they were chosen; 0 where they were given, or are the defaults.
    pub tuned_from_runs: u64,
}

impl ReadStats {
    /// What was done since it was `before`.
    #[must_use]
    pub fn delta_since(&self, before: &ReadStats) -> ReadStats {
        ReadStats {
            served_bytes: self.served_bytes.saturating_sub(before.served_bytes),
            fetched_bytes: self.fetched_bytes.saturating_sub(before.fetched_bytes),
            disk_bytes: self.disk_bytes.saturating_sub(before.disk_bytes),
            wasted_bytes: self.wasted_bytes.saturating_sub(before.wasted_bytes),
            requests: self.requests.saturating_sub(before.requests),
            disk_reads: self.disk_reads.saturating_sub(before.disk_reads),
            reads: self.reads.saturating_sub(before.reads),
            hits: self.hits.saturating_sub(before.hits),
            stalls: self.stalls.saturating_sub(before.stalls),
            stall_time: self.stall_time.saturating_sub(before.stall_time),
            retries: self.retries.saturating_sub(before.retries),
            evicted_blocks: self.evicted_blocks.saturating_sub(before.evicted_blocks),
            throttled_responses: self
                .throttled_responses
                .saturating_sub(before.throttled_responses),
            hedges: self.hedges.saturating_sub(before.hedges),
            hedges_won: self.hedges_won.saturating_sub(before.hedges_won),
            block_bytes: self.block_bytes,
            window_bytes: self.window_bytes,
            tuned_from_runs: self.tuned_from_runs,
        }
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    pub(crate) served_bytes: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) disk_bytes: AtomicU64,
    pub(crate) disk_reads: AtomicU64,
    pub(crate) wasted_bytes: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) throttled_responses: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) evicted_blocks: AtomicU64,
    pub(crate) block_bytes: AtomicU64,
    pub(crate) window_bytes: AtomicU64,
    pub(crate) tuned_from_runs: AtomicU64,
}

impl ReadCounters {
    /// Those of a reader and those of its pool; what was claimed for no reader is its pool's alone.
    pub(crate) fn reader_and_pool(
        reader: &Arc<ReadCounters>,
        pool: &Arc<ReadCounters>,
    ) -> Vec<Arc<ReadCounters>> {
        let own = (!Arc::ptr_eq(reader, pool)).then(|| Arc::clone(reader));
        own.into_iter().chain([Arc::clone(pool)]).collect()
    }

    pub(crate) fn snapshot(&self) -> ReadStats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let (hits, stalls) = (of(&self.hits), of(&self.stalls));
        ReadStats {
            served_bytes: of(&self.served_bytes),
            fetched_bytes: of(&self.fetched_bytes),
            disk_bytes: of(&self.disk_bytes),
            disk_reads: of(&self.disk_reads),
            wasted_bytes: of(&self.wasted_bytes),
            requests: of(&self.requests),
            reads: hits + stalls,
            hits,
            stalls,
            stall_time: Duration::from_nanos(of(&self.stall_ns)),
            retries: of(&self.retries),
            throttled_responses: of(&self.throttled_responses),
            hedges: of(&self.hedges),
            hedges_won: of(&self.hedges_won),
            evicted_blocks: of(&self.evicted_blocks),
            block_bytes: of(&self.block_bytes),
            window_bytes: of(&self.window_bytes),
            tuned_from_runs: of(&self.tuned_from_runs),
        }
    }

    /// Notes how an object is read.
    pub(crate) fn record_settings(&self, block_bytes: u64, window_bytes: u64, past_runs: u64) {
        self.block_bytes.store(block_bytes, Relaxed);
        self.window_bytes.store(window_bytes, Relaxed);
        self.tuned_from_runs.store(past_runs, Relaxed);
    }
}
