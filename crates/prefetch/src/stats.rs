//! What reading ahead did, in numbers.
//!
//! As text they are three lines, of which the last has only what happened:
//!
//! ```text
//! 932 MB read: 932 MB in 112 requests, 0 B in 0 reads of the cache, 1.2 MB of them in vain
//! 14000 reads: 13600 at once, 400 waited 2.3 s in all
//! 3 requests repeated, 2 refused as too many, 1 sent twice (1 answered first), 5 blocks taken back
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What a reader, or all of a pool, did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that were asked for and served.
    pub asked_bytes: u64,
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
    pub throttled: u64,
    /// Requests that were sent a second time while the first was not answered.
    pub hedges: u64,
    /// Those of them that were answered first.
    pub hedges_won: u64,
    /// Blocks that were taken back for reads that could not wait.
    pub taken_back: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |count: u64| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{} read: {} in {} request{}, {} in {} read{} of the cache, {} of them in vain\n\
             {} read{}: {} at once, {} waited {:.1} s in all",
            bytes(self.asked_bytes),
            bytes(self.fetched_bytes),
            self.requests,
            s(self.requests),
            bytes(self.disk_bytes),
            self.disk_reads,
            s(self.disk_reads),
            bytes(self.wasted_bytes),
            self.reads,
            s(self.reads),
            self.hits,
            self.stalls,
            self.stall_time.as_secs_f64(),
        )?;
        let mut parts = Vec::new();
        if self.retries > 0 {
            parts.push(format!("{} request{} repeated", self.retries, s(self.retries)));
        }
        if self.throttled > 0 {
            parts.push(format!("{} refused as too many", self.throttled));
        }
        if self.hedges > 0 {
            parts.push(format!("{} sent twice ({} answered first)", self.hedges, self.hedges_won));
        }
        if self.taken_back > 0 {
            parts.push(format!("{} block{} taken back", self.taken_back, s(self.taken_back)));
        }
        if parts.is_empty() { Ok(()) } else { write!(f, "\n{}", parts.join(", ")) }
    }
}

/// Bytes for people, in powers of 1000: `18.1 kB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    // In tenths of the unit, of which there are fewer than 9995, or else the next one's.
    let mut scale = 100_u64;
    let mut names = UNITS.iter();
    let mut name = names.next();
    let rounded = |scale: u64| (u128::from(count) + u128::from(scale) / 2) / u128::from(scale);
    while rounded(scale) >= 10_000 && names.len() > 0 {
        scale *= 1000;
        name = names.next();
    }
    let (tenths, unit) = (rounded(scale), name.unwrap_or(&"EB"));
    match (tenths / 10, tenths % 10) {
        (whole @ 0..100, tenth @ 1..) => format!("{whole}.{tenth} {unit}"),
        (whole, _) => format!("{whole} {unit}"),
    }
}

impl Stats {
    /// What was done since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Stats) -> Stats {
        Stats {
            asked_bytes: self.asked_bytes.saturating_sub(before.asked_bytes),
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
            taken_back: self.taken_back.saturating_sub(before.taken_back),
            throttled: self.throttled.saturating_sub(before.throttled),
            hedges: self.hedges.saturating_sub(before.hedges),
            hedges_won: self.hedges_won.saturating_sub(before.hedges_won),
        }
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) asked_bytes: AtomicU64,
    pub(crate) fetched_bytes: AtomicU64,
    pub(crate) disk_bytes: AtomicU64,
    pub(crate) disk_reads: AtomicU64,
    pub(crate) wasted_bytes: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) taken_back: AtomicU64,
}

impl Counters {
    /// Those of a reader and those of its pool; what was claimed for no reader is its pool's alone.
    pub(crate) fn of(reader: &Arc<Counters>, pool: &Arc<Counters>) -> Vec<Arc<Counters>> {
        let own = (!Arc::ptr_eq(reader, pool)).then(|| Arc::clone(reader));
        own.into_iter().chain([Arc::clone(pool)]).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let (hits, stalls) = (of(&self.hits), of(&self.stalls));
        Stats {
            asked_bytes: of(&self.asked_bytes),
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
            throttled: of(&self.throttled),
            hedges: of(&self.hedges),
            hedges_won: of(&self.hedges_won),
            taken_back: of(&self.taken_back),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_powers_of_a_thousand() {
        for (count, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1 kB"),
            (18_123, "18.1 kB"),
            (932_400_000, "932 MB"),
            (999_949, "999 kB"),
            (999_960, "1 MB"),
            (1_234_567_890, "1.2 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(count), expected, "{count}");
        }
    }

    #[test]
    fn what_happened_is_told_in_a_few_lines_and_what_did_not_is_left_out() {
        let calm = Stats {
            asked_bytes: 932_000_000,
            fetched_bytes: 933_200_000,
            wasted_bytes: 1_200_000,
            requests: 1,
            reads: 14_000,
            hits: 13_600,
            stalls: 400,
            stall_time: Duration::from_millis(2_340),
            ..Stats::default()
        };
        assert_eq!(
            calm.to_string(),
            "932 MB read: 933 MB in 1 request, 0 B in 0 reads of the cache, 1.2 MB of them in vain\n\
             14000 reads: 13600 at once, 400 waited 2.3 s in all"
        );
        let wild = Stats {
            retries: 3,
            throttled: 2,
            hedges: 1,
            hedges_won: 1,
            taken_back: 5,
            ..Stats::default()
        };
        assert_eq!(
            wild.to_string().lines().nth(2),
            Some(
                "3 requests repeated, 2 refused as too many, 1 sent twice (1 answered first), \
                 5 blocks taken back"
            )
        );
    }
}
