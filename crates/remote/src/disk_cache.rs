//! Disk tiers of this process, one for each cache folder.
//!
//! A tier lives as long as the process. The first object of a source with `read_cache` opens it. If several
//! sources name one folder, the largest size applies. A disk error does not fail a run: it causes one warning
//! per folder, and the run reads without the tier.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_prefetch::{CachedOrigin, DiskTier, DiskTierOptions, DiskTierStats, Origin};

use super::reader::prefetch_pool;

/// Divisor of the prefetch memory that limits the queue of blocks to be written.
const WRITE_QUEUE_MEMORY_DIVISOR: u64 = 4;
/// Maximum size of that queue, whatever the memory.
const WRITE_QUEUE_BYTES_MAX: u64 = 64 << 20;

/// The open tiers by folder; `None` if the folder could not be opened.
static DISK_TIERS: Mutex<Option<HashMap<PathBuf, Option<DiskTier>>>> = Mutex::new(None);
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Folder and size of the disk tier that a source requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskTierSettings {
    /// The folder of the tier.
    pub(crate) folder: PathBuf,
    /// Maximum size of the tier, in bytes.
    pub(crate) limit_bytes: u64,
}

impl DiskTierSettings {
    /// Returns an origin that reads through the disk tier, or `inner` if the tier cannot be opened.
    pub(crate) fn wrap_origin(&self, inner: Arc<dyn Origin>, identity: &[&str]) -> Arc<dyn Origin> {
        match open_disk_tier(&self.folder, self.limit_bytes) {
            Some(tier) => Arc::new(CachedOrigin::new(inner, &tier, identity)),
            None => inner,
        }
    }
}

fn open_disk_tier(folder: &Path, limit_bytes: u64) -> Option<DiskTier> {
    let mut tiers = DISK_TIERS.lock();
    let tiers = tiers.get_or_insert_default();
    let known = match tiers.get(folder) {
        Some(known) => known,
        None => {
            let options = DiskTierOptions::new(limit_bytes);
            let opened =
                DiskTier::open(folder, options, |warning| push_warning(warning.to_owned()));
            let opened =
                opened.map_err(|error| push_warning(format!("{error}; reading goes on without")));
            tiers.entry(folder.to_owned()).or_insert(opened.ok())
        }
    };
    let tier = known.clone()?;
    if tier.limit_bytes() < limit_bytes {
        tier.set_limit_bytes(limit_bytes);
    }
    let memory = prefetch_pool().map_or(0, |pool| pool.memory_bytes());
    tier.set_queue_bytes((memory / WRITE_QUEUE_MEMORY_DIVISOR).min(WRITE_QUEUE_BYTES_MAX));
    Some(tier)
}

/// Adds a warning about the disk tiers or the read history.
pub(crate) fn push_warning(warning: String) {
    tracing::debug!(warning, "reading");
    WARNINGS.lock().push(warning);
}

fn all_disk_tiers() -> Vec<DiskTier> {
    DISK_TIERS.lock().iter().flat_map(HashMap::values).flatten().cloned().collect()
}

/// Takes the warnings since the last call, so that each is shown once.
pub fn take_warnings() -> Vec<String> {
    std::mem::take(&mut *WARNINGS.lock())
}

/// Waits up to `timeout` until the fetched blocks are written to disk. A process calls this before it ends. A
/// later run fetches the unwritten blocks again.
pub fn flush_disk_tiers(timeout: Duration) {
    let until = Instant::now() + timeout;
    for tier in all_disk_tiers() {
        tier.flush(until.saturating_duration_since(Instant::now()));
    }
}

/// Returns the sum of the statistics of all tiers in this process.
pub fn disk_stats() -> DiskTierStats {
    all_disk_tiers().iter().map(DiskTier::stats).fold(DiskTierStats::default(), |mut sum, stats| {
        sum.read_bytes += stats.read_bytes;
        sum.reads += stats.reads;
        sum.written_bytes += stats.written_bytes;
        sum.dropped_bytes += stats.dropped_bytes;
        sum.evicted_bytes += stats.evicted_bytes;
        sum.damaged_files += stats.damaged_files;
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use futures::future::BoxFuture;
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tidemill_prefetch::ByteSink;

    #[derive(Debug, Default)]
    struct CountingOrigin(AtomicUsize);

    impl Origin for CountingOrigin {
        fn size(&self) -> u64 {
            1_000
        }

        fn fetch<'a>(
            &'a self,
            range: Range<u64>,
            into: &'a mut dyn ByteSink,
        ) -> BoxFuture<'a, tidemill_prefetch::Result<()>> {
            Box::pin(async move {
                self.0.fetch_add(1, Ordering::SeqCst);
                let bytes: Vec<u8> = range.map(|at| at.to_le_bytes()[0]).collect();
                into.put(&bytes);
                Ok(())
            })
        }
    }

    fn read(origin: &Arc<dyn Origin>, range: Range<u64>) -> BytesMut {
        let mut bytes = BytesMut::new();
        let fetched = crate::runtime().unwrap().block_on(origin.fetch(range, &mut bytes));
        fetched.unwrap();
        bytes
    }

    #[test]
    fn cached_origin_is_fetched_once_and_unusable_folder_warns_once() {
        let folder = tempfile::tempdir().unwrap();
        let keeping =
            DiskTierSettings { folder: folder.path().join("kept"), limit_bytes: 16 << 20 };
        let counted = Arc::new(CountingOrigin::default());
        let origin = || keeping.wrap_origin(counted.clone(), &["https://u:hush-hush@h/a", "\"v\""]);
        let first = read(&origin(), 0..1_000);
        flush_disk_tiers(Duration::from_secs(60));
        assert_eq!(read(&origin(), 0..1_000), first);
        assert_eq!(counted.0.load(Ordering::SeqCst), 1);
        assert!(disk_stats().read_bytes >= 1_000);

        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let keeping = DiskTierSettings { folder: file.join("kept"), limit_bytes: 16 << 20 };
        for _ in 0..2 {
            assert_eq!(read(&keeping.wrap_origin(counted.clone(), &["a"]), 0..1_000), first);
        }
        let warnings = take_warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("cannot open the read cache"), "{warnings:?}");
    }
}
