//! Process-wide counters of direct requests: those outside of the prefetch pool, for small objects, first
//! bytes and probes of web servers.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tidemill_prefetch::{ByteSink, ReadStats};

static FETCHED_BYTES: AtomicU64 = AtomicU64::new(0);
static DISK_BYTES: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static DISK_READS: AtomicU64 = AtomicU64::new(0);
static RETRIES: AtomicU64 = AtomicU64::new(0);

fn increment(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Adds the counters of direct requests to the statistics of the prefetch pool.
pub(crate) fn add_direct_requests(stats: &mut ReadStats) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    stats.served_bytes += of(&FETCHED_BYTES) + of(&DISK_BYTES);
    stats.fetched_bytes += of(&FETCHED_BYTES);
    stats.disk_bytes += of(&DISK_BYTES);
    stats.requests += of(&REQUESTS);
    stats.disk_reads += of(&DISK_READS);
    stats.retries += of(&RETRIES);
}

/// Counts one request whose response had `bytes` bytes.
pub(crate) fn count_answered_request(bytes: u64) {
    increment(&REQUESTS, 1);
    increment(&FETCHED_BYTES, bytes);
}

/// A buffer for the bytes of a direct request, which counts them.
#[derive(Debug)]
pub(crate) struct CountingSink(pub(crate) BytesMut);

impl ByteSink for CountingSink {
    fn put(&mut self, bytes: &[u8]) {
        increment(&FETCHED_BYTES, bytes.len() as u64);
        self.0.put(bytes);
    }

    fn byte_count(&self) -> u64 {
        self.0.byte_count()
    }

    fn record_request(&mut self) {
        increment(&REQUESTS, 1);
    }

    fn record_retry(&mut self) {
        increment(&RETRIES, 1);
    }

    fn record_disk_read(&mut self) {
        increment(&DISK_READS, 1);
    }

    fn put_from_disk(&mut self, bytes: &[u8]) {
        increment(&DISK_BYTES, bytes.len() as u64);
        self.0.put(bytes);
    }

    fn bytes_from(&self, from: u64) -> Bytes {
        self.0.bytes_from(from)
    }
}
