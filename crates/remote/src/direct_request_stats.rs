//! What is fetched by itself, beside the blocks of the pool: small objects, beginnings, what a web server says
//! first. Each is a request whose bytes are wanted as they are; they are counted for the whole process.

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

/// Adds all of it to what the pool did.
pub(crate) fn add_direct_requests(stats: &mut ReadStats) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    stats.served_bytes += of(&FETCHED_BYTES) + of(&DISK_BYTES);
    stats.fetched_bytes += of(&FETCHED_BYTES);
    stats.disk_bytes += of(&DISK_BYTES);
    stats.requests += of(&REQUESTS);
    stats.disk_reads += of(&DISK_READS);
    stats.retries += of(&RETRIES);
}

/// Counts a request that brought so many bytes.
pub(crate) fn count_answered_request(bytes: u64) {
    increment(&REQUESTS, 1);
    increment(&FETCHED_BYTES, bytes);
}

/// Bytes that are fetched by themselves.
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
