//! What is fetched by itself, beside the blocks of the pool: small objects, beginnings, what a web server says
//! first. Each is a request whose bytes are wanted as they are; they are counted for the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tidemill_prefetch::{Sink, Stats};

static FETCHED_BYTES: AtomicU64 = AtomicU64::new(0);
static DISK_BYTES: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static DISK_READS: AtomicU64 = AtomicU64::new(0);
static RETRIES: AtomicU64 = AtomicU64::new(0);

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Adds all of it to what the pool did.
pub(crate) fn add_to(stats: &mut Stats) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    stats.asked_bytes += of(&FETCHED_BYTES) + of(&DISK_BYTES);
    stats.fetched_bytes += of(&FETCHED_BYTES);
    stats.disk_bytes += of(&DISK_BYTES);
    stats.requests += of(&REQUESTS);
    stats.disk_reads += of(&DISK_READS);
    stats.retries += of(&RETRIES);
}

/// Counts a request that brought so many bytes.
pub(crate) fn answered(bytes: u64) {
    count(&REQUESTS, 1);
    count(&FETCHED_BYTES, bytes);
}

/// Bytes that are fetched by themselves.
#[derive(Debug)]
pub(crate) struct Counted(pub(crate) BytesMut);

impl Sink for Counted {
    fn put(&mut self, bytes: &[u8]) {
        count(&FETCHED_BYTES, bytes.len() as u64);
        self.0.put(bytes);
    }

    fn count(&self) -> u64 {
        self.0.count()
    }

    fn requested(&mut self) {
        count(&REQUESTS, 1);
    }

    fn retried(&mut self) {
        count(&RETRIES, 1);
    }

    fn read_from_disk(&mut self) {
        count(&DISK_READS, 1);
    }

    fn put_from_disk(&mut self, bytes: &[u8]) {
        count(&DISK_BYTES, bytes.len() as u64);
        self.0.put(bytes);
    }

    fn shared(&self, from: u64) -> Bytes {
        self.0.shared(from)
    }
}
