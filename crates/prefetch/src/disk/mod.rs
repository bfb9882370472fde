//! What was fetched, kept on a disk for the next process.
//!
//! ```text
//!  CachedOrigin ── is it there? ──► Kept: which pieces there are of a version      (in memory)
//!       │                             │ read, checked
//!       │ what came from elsewhere    ▼
//!       └──► queue ──► writer ──► Folder: pieces, a limit, the oldest go           (on the disk)
//!            bounded    one thread
//! ```
//!
//! - `pieces`: which parts of an object are there?
//! - `piece`: what of a file is believed?
//! - `folder`: where are pieces, how much may they take, and which of them go?
//!
//! A piece is a file: what one request brought, of whatever range, cut where it is longer than
//! [`PIECE_BYTES_MAX`]. A piece that lies within a later one is removed with it, so the parts of a block go when the
//! whole of it comes. Mountpoint for S3 keeps whole blocks of one size, one a file, too, and empties the folder
//! at its start and end; here files outlive processes, so they are listed, locked and aged in the folder itself.
//!
//! **What it costs.** A hit is a hop to another thread, an `open`, two reads and a CRC-32C. Writing
//! is one thread's work, beside all reads; what it cannot keep up with is not kept. Beyond the memory of
//! what is read ahead there are twice [`READS_MAX`] reads at once of up to ten runs of 64 KiB.

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

/// A longer piece is cut: what goes at once is no more, and a piece's header stays small.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// A piece is at most this share of the limit.
const LIMIT_PIECES_MIN: u64 = 8;
/// The least that there can be on the disk.
pub(crate) const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// So many ranges are read at once, and as many small ones …
const CONCURRENT_READS_MAX: usize = 4;
/// … of no more than this, which do not wait behind large ones.
const SMALL_READ_BYTES_MAX: u64 = 1 << 20;
/// So many runs of a piece are read before they are looked at.
const READ_AHEAD_RUNS: usize = 8;
/// What other processes have written of an object is looked for at most so often.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// How much is kept, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTierOptions {
    /// What all files may come to, each rounded up to 4 KiB and 4 KiB more. Minimum: 1 MiB.
    pub limit_bytes: u64,
    /// What may wait to be written: memory of what was read ahead that is not free meanwhile. Default: 64 MiB.
    pub queue_bytes: u64,
    /// How often at most it is written down of a file that it was read. Default: a minute.
    pub touch_interval: Duration,
}

impl DiskTierOptions {
    /// So many bytes, and the defaults.
    pub fn new(limit_bytes: u64) -> DiskTierOptions {
        let touch_interval = Duration::from_secs(60);
        DiskTierOptions { limit_bytes, queue_bytes: 64 << 20, touch_interval }
    }
}

/// What a tier did in this process so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskTierStats {
    /// Bytes of objects that were read.
    pub read_bytes: u64,
    /// Reads of them: of a piece, or of several that follow one another.
    pub reads: u64,
    /// Bytes of objects that were written.
    pub written_bytes: u64,
    /// Bytes that were not: the writer was behind, the disk refused, or the limit is too small for them.
    pub dropped_bytes: u64,
    /// Bytes of files that were removed to keep the limit.
    pub evicted_bytes: u64,
    /// Files that were not what was written, and were removed.
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

/// A folder of what was fetched, with a limit; several processes share one. Cloning shares the tier.
/// When the last clone is dropped, its thread writes what waits and ends.
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
    /// Requests whose bytes will come here.
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
    /// A tier in a folder, which is made if it is missing. `warn` is told once if the disk fails later on:
    /// then nothing is written any more, or read, and reading goes on without.
    ///
    /// # Errors
    /// [`Error::Option`] for a limit that makes no sense; [`Error::Disk`] if the folder cannot be made, or is not
    /// the user's own.
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

    /// A version of an object, told from all others by what `identity` says: URL, ETag and whatever else
    /// differs between objects. No word of it reaches the disk, but for a SHA-256 of all of them.
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

    /// What the folder's files may come to from now on.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.0.0.limit_bytes.store(bytes.max(LIMIT_BYTES_MIN), Relaxed);
    }

    /// What they may come to.
    pub fn limit_bytes(&self) -> u64 {
        self.0.0.limit_bytes.load(Relaxed)
    }

    /// What may wait to be written from now on; one piece always may.
    pub fn set_queue_bytes(&self, bytes: u64) {
        self.0.0.queue_limit_bytes.store(bytes, Relaxed);
    }

    /// Waits until all that was asked for so far has come and is written; whether it is, after so long at
    /// most.
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

    /// What it did in this process.
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
    /// What the writer's thread does.
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
            // Its memory is free before it is no longer counted.
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

    /// Whether there is room for a piece, which is written then; one that is there already is, too.
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
            // Somebody has emptied the folder.
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

/// A version of an object, and which pieces of it there are.
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
    /// What of a range is not there: all before it is, and all behind it.
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

    /// Looks which pieces there are.
    fn list_pieces(&self) {
        match self.tier.folder.list_pieces(&self.id) {
            Ok(found) => {
                // What is known and not found may have been written meanwhile. What is gone shows when it
                // is read.
                let mut index = self.index.lock();
                for range in found.into_iter().filter(|range| range.end <= self.size) {
                    index.pieces.add(&range);
                }
                index.listed_at = Some(Instant::now());
            }
            Err(error) => self.record_read_error(&error),
        }
    }

    /// Reads a range, of which all is there, in order; how far that goes shows in what comes.
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
        // One of the future is none.
        if now.duration_since(piece.last_read).map_or(true, |age| age >= interval) {
            piece.record_read_time(now);
        }
        piece.read_range(wanted, out)
    }

    /// A piece could not be read.
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
        // That passes.
        if !matches!(known, Some(Errno::MFILE | Errno::NFILE | Errno::INTR | Errno::NOMEM)) {
            self.tier.disable_after_error("read from", error, &self.tier.reads_enabled);
        }
    }

    /// Says that bytes of it are asked for, and will be kept or not.
    pub(crate) fn begin_request(&self) {
        self.tier.queue.lock().pending_requests += 1;
    }

    /// Says that they have been.
    pub(crate) fn end_request(&self) {
        self.tier.queue.lock().pending_requests -= 1;
        self.tier.queue_changed.notify_all();
    }

    /// Writes bytes of it, which begin at `start`, when the writer comes to them, and not at all if
    /// there is too much before them.
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
