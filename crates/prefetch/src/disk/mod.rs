//! The disk tier: fetched bytes kept on a local disk for the next process.
//!
//! ```text
//!  CachedOrigin ── cached? ──► CachedObject: the known pieces of a version          (in memory)
//!       │                             │ read, checked
//!       │ fetched bytes               ▼
//!       └──► queue ──► writer ──► CacheFolder: pieces, a limit, eviction            (on the disk)
//!            bounded    one thread
//! ```
//!
//! - `piece_index`: the parts of an object that are cached
//! - `cached_piece`: the file of one piece and its checksums
//! - `cache_folder`: the files of all objects, their limit and their eviction
//!
//! A piece is a file: the bytes of one request, of whatever range, cut if longer than [`PIECE_BYTES_MAX`]. A
//! piece that lies within a later one is removed with it, so the parts of a block go when the whole block
//! arrives. Mountpoint for S3 also keeps blocks as files, but of one size, and empties its folder at start
//! and end. Here files outlive processes, so the folder itself records, locks and ages them.
//!
//! **Cost.** A hit costs a hop to another thread, an `open`, two reads and a CRC-32C. One thread writes,
//! beside all reads, and drops what exceeds its queue. In addition to the memory of the prefetch pool there
//! are twice [`CONCURRENT_READS_MAX`] concurrent reads of up to ten runs of 64 KiB.

mod cache_folder;
mod cached_piece;
mod piece_index;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, channel};

use crate::error::{Error, Result};
use cache_folder::CacheFolder;
use cached_piece::{CachedObjectId, CachedPiece, PieceReadError};
use piece_index::PieceIndex;

/// Maximum length of a piece: it limits the bytes evicted at once and keeps a piece's header small.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// Minimum number of pieces that fit the limit.
const LIMIT_PIECES_MIN: u64 = 8;
/// Minimum size limit of a tier.
pub(crate) const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// Number of concurrent reads of large ranges, and as many of small ones.
const CONCURRENT_READS_MAX: usize = 4;
/// Maximum length of a small read; small reads do not wait behind large ones.
const SMALL_READ_BYTES_MAX: u64 = 1 << 20;
/// Number of runs of a piece that are read ahead of the reader.
const READ_AHEAD_RUNS: usize = 8;
/// Minimum interval at which the files of an object that other processes wrote are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTierOptions {
    /// Maximum size of all files, each rounded up to 4 KiB and 4 KiB more. Minimum: 1 MiB.
    pub limit_bytes: u64,
    /// Maximum bytes that wait to be written, in memory of the prefetch pool. Default: 64 MiB.
    pub queue_bytes: u64,
    /// Minimum interval at which a file's last read is recorded. Default: a minute.
    pub touch_interval: Duration,
}

impl DiskTierOptions {
    /// Returns the defaults with this size limit.
    pub fn new(limit_bytes: u64) -> DiskTierOptions {
        let touch_interval = Duration::from_secs(60);
        DiskTierOptions { limit_bytes, queue_bytes: 64 << 20, touch_interval }
    }
}

/// Totals of a tier in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskTierStats {
    /// Object bytes read.
    pub read_bytes: u64,
    /// Reads: of a piece, or of several adjacent ones.
    pub reads: u64,
    /// Object bytes written.
    pub written_bytes: u64,
    /// Object bytes not written: the writer was behind, the disk refused, or the limit is too small for them.
    pub dropped_bytes: u64,
    /// Bytes of files that were evicted to keep the limit.
    pub evicted_bytes: u64,
    /// Damaged files, which were removed.
    pub damaged_files: u64,
}

#[derive(Debug, Default)]
struct DiskTierCounters {
    read_bytes: AtomicU64,
    reads: AtomicU64,
    written_bytes: AtomicU64,
    dropped_bytes: AtomicU64,
    damaged_files: AtomicU64,
}

/// A cache of fetched bytes in a folder, with a size limit; several processes share one. Clones share the
/// tier. When the last clone is dropped, its thread writes the queue and ends.
#[derive(Debug, Clone)]
pub struct DiskTier(Arc<TierHandle>);

#[derive(Debug)]
struct TierHandle(Arc<TierState>);

impl Drop for TierHandle {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.queue_changed.notify_all();
    }
}

type WarningCallback = Box<dyn Fn(&str) + Send + Sync>;

struct TierState {
    folder: CacheFolder,
    display_path: PathBuf,
    limit_bytes: AtomicU64,
    queue_limit_bytes: AtomicU64,
    touch_interval: Duration,
    objects: Mutex<HashMap<CachedObjectId, Weak<CachedObject>>>,
    queue: Mutex<WriteQueue>,
    queue_changed: Condvar,
    large_read_slots: Arc<Semaphore>,
    small_read_slots: Arc<Semaphore>,
    reads_enabled: AtomicBool,
    writes_enabled: AtomicBool,
    has_warned: AtomicBool,
    warn: WarningCallback,
    counters: DiskTierCounters,
}

impl fmt::Debug for TierState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("folder", &self.display_path).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct WriteQueue {
    items: VecDeque<QueuedWrite>,
    bytes: u64,
    /// Requests in flight whose bytes will be queued.
    pending_requests: usize,
    is_writing: bool,
    is_closed: bool,
}

impl WriteQueue {
    fn is_drained(&self) -> bool {
        self.items.is_empty() && self.pending_requests == 0 && !self.is_writing
    }
}

#[derive(Debug)]
struct QueuedWrite {
    object: Arc<CachedObject>,
    start: u64,
    bytes: Bytes,
}

impl DiskTier {
    /// Opens a tier in a folder, which is created if missing. Calls `warn` once if the disk fails later: the
    /// tier then stops writing, or reading, and callers read without it.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for an invalid limit; [`Error::Disk`] if the folder cannot be created, or does
    /// not belong to the user.
    pub fn open(
        folder: &Path,
        options: DiskTierOptions,
        warn: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<DiskTier> {
        if options.limit_bytes < LIMIT_BYTES_MIN {
            return Err(Error::InvalidOption {
                message: format!("a read cache of {} bytes is too small", options.limit_bytes),
                hint: "at least 1 MiB".into(),
            });
        }
        let failed = |action, source: io::Error| Error::Disk {
            action,
            path: folder.display().to_string(),
            source: Arc::new(source),
        };
        let opened = CacheFolder::open(folder).map_err(|error| failed("open", error))?;
        let tier = Arc::new(TierState {
            folder: opened,
            display_path: folder.to_owned(),
            limit_bytes: AtomicU64::new(options.limit_bytes),
            queue_limit_bytes: AtomicU64::new(options.queue_bytes),
            touch_interval: options.touch_interval,
            objects: Mutex::default(),
            queue: Mutex::default(),
            queue_changed: Condvar::new(),
            large_read_slots: Arc::new(Semaphore::new(CONCURRENT_READS_MAX)),
            small_read_slots: Arc::new(Semaphore::new(CONCURRENT_READS_MAX)),
            reads_enabled: AtomicBool::new(true),
            writes_enabled: AtomicBool::new(true),
            has_warned: AtomicBool::new(false),
            warn: Box::new(warn),
            counters: DiskTierCounters::default(),
        });
        let writer = Arc::clone(&tier);
        let named = std::thread::Builder::new().name("tidemill-cache".into());
        named
            .spawn(move || writer.run_writer())
            .map_err(|error| failed("start a thread for", error))?;
        Ok(DiskTier(Arc::new(TierHandle(tier))))
    }

    /// Returns a version of an object. `identity` distinguishes it from all others: URL, ETag and other
    /// differences between objects. Only a SHA-256 of these words reaches the disk.
    pub(crate) fn cached_object(&self, identity: &[&str], size: u64) -> Arc<CachedObject> {
        let mut hash = Sha256::new();
        hash.update(size.to_le_bytes());
        for word in identity {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let id: CachedObjectId = hash.finalize().into();
        let mut objects = self.0.0.objects.lock();
        if let Some(known) = objects.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        if objects.len() == objects.capacity() {
            objects.retain(|_, object| object.strong_count() > 0);
        }
        let tier = Arc::clone(&self.0.0);
        let kept = Arc::new(CachedObject { tier, id, size, index: Mutex::default() });
        objects.insert(id, Arc::downgrade(&kept));
        kept
    }

    /// Sets the maximum size of the folder's files.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.0.0.limit_bytes.store(bytes.max(LIMIT_BYTES_MIN), Relaxed);
    }

    /// Returns the maximum size of the folder's files.
    pub fn limit_bytes(&self) -> u64 {
        self.0.0.limit_bytes.load(Relaxed)
    }

    /// Sets the maximum bytes that wait to be written; one piece always may.
    pub fn set_queue_bytes(&self, bytes: u64) {
        self.0.0.queue_limit_bytes.store(bytes, Relaxed);
    }

    /// Waits until all bytes requested so far have arrived and are written. Returns `false` after the
    /// timeout.
    pub fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut queue = self.0.0.queue.lock();
        while !queue.is_drained() {
            if self.0.0.queue_changed.wait_until(&mut queue, until).timed_out() {
                return queue.is_drained();
            }
        }
        true
    }

    /// Returns the totals of this process.
    pub fn stats(&self) -> DiskTierStats {
        let counters = &self.0.0.counters;
        DiskTierStats {
            read_bytes: counters.read_bytes.load(Relaxed),
            reads: counters.reads.load(Relaxed),
            written_bytes: counters.written_bytes.load(Relaxed),
            dropped_bytes: counters.dropped_bytes.load(Relaxed),
            evicted_bytes: self.0.0.folder.evicted.bytes.load(Relaxed),
            damaged_files: counters.damaged_files.load(Relaxed),
        }
    }
}

impl TierState {
    /// Runs the writer thread.
    fn run_writer(&self) {
        if let Err(error) = self.folder.evict_to_limit(self.limit_bytes.load(Relaxed)) {
            self.disable_after_error("write to", &error, &self.writes_enabled);
        }
        loop {
            let item = {
                let mut queue = self.queue.lock();
                queue.is_writing = false;
                self.queue_changed.notify_all();
                loop {
                    if let Some(item) = queue.items.pop_front() {
                        queue.is_writing = true;
                        break item;
                    }
                    if queue.is_closed {
                        return;
                    }
                    self.queue_changed.wait(&mut queue);
                }
            };
            let count = item.bytes.len() as u64;
            self.write_queued(&item);
            // The memory is freed before the count falls.
            drop(item);
            self.queue.lock().bytes -= count;
        }
    }

    fn write_queued(&self, QueuedWrite { object, start, bytes }: &QueuedWrite) {
        let longest = PIECE_BYTES_MAX.min(self.limit_bytes.load(Relaxed) / LIMIT_PIECES_MIN);
        let longest = usize::try_from(longest).unwrap_or(usize::MAX).max(1);
        let mut at = *start;
        for part in bytes.chunks(longest) {
            let range = at..at + part.len() as u64;
            at = range.end;
            let written = match self.writes_enabled.load(Relaxed) {
                true => self.write_piece(object, &range, part),
                false => Ok(false),
            };
            let count = match written {
                Ok(true) => &self.counters.written_bytes,
                Ok(false) => &self.counters.dropped_bytes,
                Err(error) => {
                    self.disable_after_error("write to", &error, &self.writes_enabled);
                    &self.counters.dropped_bytes
                }
            };
            count.fetch_add(part.len() as u64, Relaxed);
        }
    }

    /// Writes a piece unless it exists. Returns `false` if there is no room for it.
    fn write_piece(
        &self,
        object: &CachedObject,
        range: &Range<u64>,
        bytes: &[u8],
    ) -> io::Result<bool> {
        if object.index.lock().pieces.is_covered_by_one(range) {
            return Ok(true);
        }
        let length = cached_piece::file_bytes(bytes.len() as u64);
        let Some(mut made) = self.folder.reserve_file(length, self.limit_bytes.load(Relaxed))?
        else {
            return Ok(false);
        };
        cached_piece::write_piece(&mut made.file, &object.id, range.start, bytes)?;
        match self.folder.publish_piece(
            made,
            &object.id,
            &cached_piece::piece_file_name(range),
            SystemTime::now(),
        ) {
            Ok(()) => {}
            // Somebody emptied the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        let within = object.index.lock().pieces.add(range);
        for piece in within.unwrap_or_default() {
            self.folder.remove_piece(&object.id, &cached_piece::piece_file_name(&piece));
        }
        Ok(true)
    }

    fn disable_after_error(&self, action: &str, error: &io::Error, is_on: &AtomicBool) {
        is_on.store(false, Relaxed);
        if !self.has_warned.swap(true, Relaxed) {
            (self.warn)(&format!(
                "cannot {action} the read cache `{}`: {error}; reading goes on without it",
                self.display_path.display()
            ));
        }
    }
}

/// A version of an object and its known pieces.
#[derive(Debug)]
pub(crate) struct CachedObject {
    tier: Arc<TierState>,
    id: CachedObjectId,
    size: u64,
    index: Mutex<PieceListing>,
}

#[derive(Debug, Default)]
struct PieceListing {
    pieces: PieceIndex,
    listed_at: Option<Instant>,
}

impl CachedObject {
    /// Returns the part of a range that is not cached, without cached bytes at both ends.
    pub(crate) async fn missing_range(self: &Arc<Self>, range: &Range<u64>) -> Range<u64> {
        if !self.tier.reads_enabled.load(Relaxed) {
            return range.clone();
        }
        let (missing, is_listed) = {
            let index = self.index.lock();
            let recent = index.listed_at.is_some_and(|listed| listed.elapsed() < LIST_INTERVAL);
            (index.pieces.missing_range(range), recent)
        };
        if missing.is_empty() || is_listed {
            return missing;
        }
        let own = Arc::clone(self);
        let listed = tokio::task::spawn_blocking(move || own.list_pieces()).await;
        match listed {
            Ok(()) => self.index.lock().pieces.missing_range(range),
            Err(_) => missing,
        }
    }

    /// Lists the pieces in the folder.
    fn list_pieces(&self) {
        match self.tier.folder.list_pieces(&self.id) {
            Ok(found) => {
                // Known pieces that are not listed may have been written meanwhile. A removed piece is
                // noticed when it is read.
                let mut index = self.index.lock();
                for range in found.into_iter().filter(|range| range.end <= self.size) {
                    index.pieces.add(&range);
                }
                index.listed_at = Some(Instant::now());
            }
            Err(error) => self.record_read_error(&error),
        }
    }

    /// Streams a cached range in order; it ends early if a piece cannot be read.
    pub(crate) async fn stream_range(
        self: &Arc<Self>,
        range: Range<u64>,
    ) -> Option<Receiver<Bytes>> {
        let is_small = range.end - range.start <= SMALL_READ_BYTES_MAX;
        let reads =
            if is_small { &self.tier.small_read_slots } else { &self.tier.large_read_slots };
        let permit = Arc::clone(reads).acquire_owned().await.ok()?;
        let (sender, receiver) = channel(READ_AHEAD_RUNS);
        let own = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let counters = &own.tier.counters;
            counters.reads.fetch_add(1, Relaxed);
            own.read_range(range, &mut |bytes| {
                let count = bytes.len() as u64;
                let is_wanted = sender.blocking_send(bytes).is_ok();
                counters.read_bytes.fetch_add(count, Relaxed);
                is_wanted
            });
        });
        Some(receiver)
    }

    fn read_range(&self, range: Range<u64>, out: &mut dyn FnMut(Bytes) -> bool) {
        let mut at = range.start;
        while at < range.end {
            let Some(piece) = self.index.lock().pieces.piece_holding(at) else { return };
            let end = piece.end.min(range.end);
            match self.read_piece(&piece, at..end, out) {
                Ok(()) => at = end,
                Err(unread) => return self.forget_piece(&piece, &unread),
            }
        }
    }

    fn read_piece(
        &self,
        range: &Range<u64>,
        wanted: Range<u64>,
        out: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<(), PieceReadError> {
        let path =
            self.tier.folder.object_path(&self.id).join(cached_piece::piece_file_name(range));
        let piece = CachedPiece::open(&path, &self.id, range.clone())?;
        let now = SystemTime::now();
        let interval = self.tier.touch_interval;
        // A time in the future does not count.
        if now.duration_since(piece.last_read).map_or(true, |age| age >= interval) {
            piece.record_read_time(now);
        }
        piece.read_range(wanted, out)
    }

    /// Forgets a piece that could not be read.
    fn forget_piece(&self, range: &Range<u64>, unread: &PieceReadError) {
        if matches!(unread, PieceReadError::Unwanted) {
            return;
        }
        self.index.lock().pieces.remove(range);
        match unread {
            PieceReadError::Missing | PieceReadError::Unwanted => {}
            PieceReadError::Damaged => {
                self.tier.counters.damaged_files.fetch_add(1, Relaxed);
                self.tier.folder.remove_piece(&self.id, &cached_piece::piece_file_name(range));
            }
            PieceReadError::Failed(error) => self.record_read_error(error),
        }
    }

    fn record_read_error(&self, error: &io::Error) {
        use rustix::io::Errno;
        let known = Errno::from_io_error(error);
        // These errors are transient.
        if !matches!(known, Some(Errno::MFILE | Errno::NFILE | Errno::INTR | Errno::NOMEM)) {
            self.tier.disable_after_error("read from", error, &self.tier.reads_enabled);
        }
    }

    /// Counts a request whose bytes may be queued.
    pub(crate) fn begin_request(&self) {
        self.tier.queue.lock().pending_requests += 1;
    }

    /// Ends the count of a request.
    pub(crate) fn end_request(&self) {
        self.tier.queue.lock().pending_requests -= 1;
        self.tier.queue_changed.notify_all();
    }

    /// Queues bytes that begin at `start` for the writer, and drops them if the queue is too long.
    pub(crate) fn enqueue_write(self: &Arc<Self>, start: u64, bytes: Bytes) {
        let count = bytes.len() as u64;
        if count == 0 || start.saturating_add(count) > self.size {
            return;
        }
        let is_taken = self.tier.writes_enabled.load(Relaxed) && {
            let mut queue = self.tier.queue.lock();
            let limit = self.tier.queue_limit_bytes.load(Relaxed);
            let has_room = queue.bytes == 0 || queue.bytes + count <= limit;
            if has_room && !queue.is_closed {
                queue.bytes += count;
                queue.items.push_back(QueuedWrite { object: Arc::clone(self), start, bytes });
                self.tier.queue_changed.notify_all();
                true
            } else {
                false
            }
        };
        if !is_taken {
            self.tier.counters.dropped_bytes.fetch_add(count, Relaxed);
        }
    }
}
