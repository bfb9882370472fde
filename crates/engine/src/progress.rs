//! How far a run is: counters that workers add to and a display reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a running job; cloning shares them.
///
/// Bytes are those of the files as stored (compressed bytes of a compressed file), so that
/// `bytes_done / bytes_total` is a fraction that never falls.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    rows_done: AtomicU64,
    spilled_bytes: AtomicU64,
}

impl Progress {
    /// Counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// States how many stored bytes the plan will read.
    pub fn set_bytes_total(&self, bytes: u64) {
        self.0.bytes_total.store(bytes, Ordering::Relaxed);
    }

    /// Adds stored bytes that were read.
    pub fn add_bytes(&self, bytes: u64) {
        self.0.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds rows that were decoded.
    pub fn add_rows(&self, rows: u64) {
        self.0.rows_done.fetch_add(rows, Ordering::Relaxed);
    }

    /// Adds bytes of tables that went to disk because they did not fit memory.
    pub fn add_spilled(&self, bytes: u64) {
        self.0.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Stored bytes that the plan will read; 0 until known.
    pub fn bytes_total(&self) -> u64 {
        self.0.bytes_total.load(Ordering::Relaxed)
    }

    /// Stored bytes read so far.
    pub fn bytes_done(&self) -> u64 {
        self.0.bytes_done.load(Ordering::Relaxed)
    }

    /// Rows decoded so far.
    pub fn rows_done(&self) -> u64 {
        self.0.rows_done.load(Ordering::Relaxed)
    }

    /// Bytes of tables that went to disk so far, each as often as it was written.
    pub fn spilled_bytes(&self) -> u64 {
        self.0.spilled_bytes.load(Ordering::Relaxed)
    }
}
