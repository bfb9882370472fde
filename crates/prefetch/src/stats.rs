//! Counters of prefetching.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Totals of a reader or of a whole pool since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// Bytes that callers requested and received.
    pub served_bytes: u64,
    /// Bytes fetched from the store.
    pub fetched_bytes: u64,
    /// Bytes read from the [disk tier](crate::DiskTier).
    pub disk_bytes: u64,
    /// Bytes from store or disk tier that were dropped before anybody read them.
    pub wasted_bytes: u64,
    /// Requests to the store, without retries and hedges.
    pub requests: u64,
    /// Reads from the disk tier.
    pub disk_reads: u64,
    /// Reads; a read that spans several blocks counts once for each.
    pub reads: u64,
    /// Reads whose bytes were there already.
    pub hits: u64,
    /// Reads that waited.
    pub stalls: u64,
    /// Total time that reads waited.
    pub stall_time: Duration,
    /// Repeated requests: after a refusal or a lost connection, or for the rest of a body that was cut off.
    pub retries: u64,
    /// Answers with status 429 or 503: too many requests.
    pub throttled_responses: u64,
    /// Hedged requests: sent while the first one had no answer yet.
    pub hedges: u64,
    /// Hedged requests that were answered first.
    pub hedges_won: u64,
    /// Blocks evicted for reads that could not wait.
    pub evicted_blocks: u64,
    /// Block size used for the object that was opened last, as the memory allows. A setting, not a counter:
    /// unchanged in a difference.
    pub block_bytes: u64,
    /// Maximum window used for that object.
    pub window_bytes: u64,
    /// Number of past runs that block and window were tuned from; 0 for given sizes and for the defaults.
    pub tuned_from_runs: u64,
}

impl ReadStats {
    /// Returns the difference to an earlier snapshot.
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

/// Atomic counters behind [`ReadStats`].
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
    /// Returns the counters of a reader and of its pool; those of the pool alone if no reader made the claim.
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

    /// Records block size, window and origin of the settings for an object.
    pub(crate) fn record_settings(&self, block_bytes: u64, window_bytes: u64, past_runs: u64) {
        self.block_bytes.store(block_bytes, Relaxed);
        self.window_bytes.store(window_bytes, Relaxed);
        self.tuned_from_runs.store(past_runs, Relaxed);
    }
}
