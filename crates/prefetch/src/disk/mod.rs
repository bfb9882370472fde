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

mod folder;
mod piece;
mod pieces;

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
use folder::Folder;
use piece::{ObjectId, Piece, Unread};
use pieces::Pieces;

/// A longer piece is cut: what goes at once is no more, and a piece's header stays small.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// A piece is at most this share of the limit.
const PIECES_MIN: u64 = 8;
/// The least that there can be on the disk.
pub(crate) const LIMIT_BYTES_MIN: u64 = 1 << 20;
/// So many ranges are read at once, and as many small ones …
const READS_MAX: usize = 4;
/// … of no more than this, which do not wait behind large ones.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// So many runs of a piece are read before they are looked at.
const RUNS_AHEAD: usize = 8;
/// What other processes have written of an object is looked for at most so often.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// How much is kept, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// What all files may come to, each rounded up to 4 KiB and 4 KiB more. Minimum: 1 MiB.
    pub limit_bytes: u64,
    /// What may wait to be written: memory of what was read ahead that is not free meanwhile. Default: 64 MiB.
    pub queue_bytes: u64,
    /// How often at most it is written down of a file that it was read. Default: a minute.
    pub touch_interval: Duration,
}

impl DiskOptions {
    /// So many bytes, and the defaults.
    pub fn new(limit_bytes: u64) -> DiskOptions {
        let touch_interval = Duration::from_secs(60);
        DiskOptions { limit_bytes, queue_bytes: 64 << 20, touch_interval }
    }
}

/// What a tier did in this process so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStats {
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
    pub damaged: u64,
}

#[derive(Debug, Default)]
struct Counters {
    read_bytes: AtomicU64,
    reads: AtomicU64,
    written_bytes: AtomicU64,
    dropped_bytes: AtomicU64,
    damaged: AtomicU64,
}

/// A folder of what was fetched, with a limit; several processes share one. Cloning shares the tier.
/// When the last clone is dropped, its thread writes what waits and ends.
#[derive(Debug, Clone)]
pub struct DiskTier(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Tier>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

type Warn = Box<dyn Fn(&str) + Send + Sync>;

struct Tier {
    folder: Folder,
    shown: PathBuf,
    limit: AtomicU64,
    queue_limit: AtomicU64,
    touch_interval: Duration,
    objects: Mutex<HashMap<ObjectId, Weak<Kept>>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    reads: Arc<Semaphore>,
    small_reads: Arc<Semaphore>,
    is_read: AtomicBool,
    is_written: AtomicBool,
    has_warned: AtomicBool,
    warn: Warn,
    counters: Counters,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("folder", &self.shown).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: u64,
    /// Requests whose bytes will come here.
    coming: usize,
    is_writing: bool,
    is_closed: bool,
}

impl Queue {
    fn is_done(&self) -> bool {
        self.items.is_empty() && self.coming == 0 && !self.is_writing
    }
}

#[derive(Debug)]
struct Item {
    object: Arc<Kept>,
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
        options: DiskOptions,
        warn: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<DiskTier> {
        if options.limit_bytes < LIMIT_BYTES_MIN {
            return Err(Error::Option {
                message: format!("a read cache of {} bytes is too small", options.limit_bytes),
                hint: "at least 1 MiB".into(),
            });
        }
        let failed = |action, source: io::Error| Error::Disk {
            action,
            path: folder.display().to_string(),
            source: Arc::new(source),
        };
        let opened = Folder::open(folder).map_err(|error| failed("open", error))?;
        let tier = Arc::new(Tier {
            folder: opened,
            shown: folder.to_owned(),
            limit: AtomicU64::new(options.limit_bytes),
            queue_limit: AtomicU64::new(options.queue_bytes),
            touch_interval: options.touch_interval,
            objects: Mutex::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            small_reads: Arc::new(Semaphore::new(READS_MAX)),
            is_read: AtomicBool::new(true),
            is_written: AtomicBool::new(true),
            has_warned: AtomicBool::new(false),
            warn: Box::new(warn),
            counters: Counters::default(),
        });
        let writer = Arc::clone(&tier);
        let named = std::thread::Builder::new().name("tidemill-cache".into());
        named.spawn(move || writer.write()).map_err(|error| failed("start a thread for", error))?;
        Ok(DiskTier(Arc::new(Handle(tier))))
    }

    /// A version of an object, told from all others by what `identity` says: URL, ETag and whatever else
    /// differs between objects. No word of it reaches the disk, but for a SHA-256 of all of them.
    pub(crate) fn object(&self, identity: &[&str], size: u64) -> Arc<Kept> {
        let mut hash = Sha256::new();
        hash.update(size.to_le_bytes());
        for word in identity {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
        let id: ObjectId = hash.finalize().into();
        let mut objects = self.0.0.objects.lock();
        if let Some(known) = objects.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        if objects.len() == objects.capacity() {
            objects.retain(|_, object| object.strong_count() > 0);
        }
        let tier = Arc::clone(&self.0.0);
        let kept = Arc::new(Kept { tier, id, size, index: Mutex::default() });
        objects.insert(id, Arc::downgrade(&kept));
        kept
    }

    /// What the folder's files may come to from now on.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.0.0.limit.store(bytes.max(LIMIT_BYTES_MIN), Relaxed);
    }

    /// What they may come to.
    pub fn limit_bytes(&self) -> u64 {
        self.0.0.limit.load(Relaxed)
    }

    /// What may wait to be written from now on; one piece always may.
    pub fn set_queue_bytes(&self, bytes: u64) {
        self.0.0.queue_limit.store(bytes, Relaxed);
    }

    /// Waits until all that was asked for so far has come and is written; whether it is, after so long at
    /// most.
    pub fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut queue = self.0.0.queue.lock();
        while !queue.is_done() {
            if self.0.0.changed.wait_until(&mut queue, until).timed_out() {
                return queue.is_done();
            }
        }
        true
    }

    /// What it did in this process.
    pub fn stats(&self) -> DiskStats {
        let counters = &self.0.0.counters;
        DiskStats {
            read_bytes: counters.read_bytes.load(Relaxed),
            reads: counters.reads.load(Relaxed),
            written_bytes: counters.written_bytes.load(Relaxed),
            dropped_bytes: counters.dropped_bytes.load(Relaxed),
            evicted_bytes: self.0.0.folder.evicted.bytes.load(Relaxed),
            damaged: counters.damaged.load(Relaxed),
        }
    }
}

impl Tier {
    /// What the writer's thread does.
    fn write(&self) {
        if let Err(error) = self.folder.keep_to(self.limit.load(Relaxed)) {
            self.failed("write to", &error, &self.is_written);
        }
        loop {
            let item = {
                let mut queue = self.queue.lock();
                queue.is_writing = false;
                self.changed.notify_all();
                loop {
                    if let Some(item) = queue.items.pop_front() {
                        queue.is_writing = true;
                        break item;
                    }
                    if queue.is_closed {
                        return;
                    }
                    self.changed.wait(&mut queue);
                }
            };
            let count = item.bytes.len() as u64;
            self.write_item(&item);
            // Its memory is free before it is no longer counted.
            drop(item);
            self.queue.lock().bytes -= count;
        }
    }

    fn write_item(&self, Item { object, start, bytes }: &Item) {
        let longest = PIECE_BYTES_MAX.min(self.limit.load(Relaxed) / PIECES_MIN);
        let longest = usize::try_from(longest).unwrap_or(usize::MAX).max(1);
        let mut at = *start;
        for part in bytes.chunks(longest) {
            let range = at..at + part.len() as u64;
            at = range.end;
            let written = match self.is_written.load(Relaxed) {
                true => self.write_piece(object, &range, part),
                false => Ok(false),
            };
            let count = match written {
                Ok(true) => &self.counters.written_bytes,
                Ok(false) => &self.counters.dropped_bytes,
                Err(error) => {
                    self.failed("write to", &error, &self.is_written);
                    &self.counters.dropped_bytes
                }
            };
            count.fetch_add(part.len() as u64, Relaxed);
        }
    }

    /// Whether there is room for a piece, which is written then; one that is there already is, too.
    fn write_piece(&self, object: &Kept, range: &Range<u64>, bytes: &[u8]) -> io::Result<bool> {
        if object.index.lock().pieces.is_within_one(range) {
            return Ok(true);
        }
        let length = piece::file_bytes(bytes.len() as u64);
        let Some(mut made) = self.folder.take(length, self.limit.load(Relaxed))? else {
            return Ok(false);
        };
        piece::write(&mut made.file, &object.id, range.start, bytes)?;
        match self.folder.name(made, &object.id, &piece::name(range), SystemTime::now()) {
            Ok(()) => {}
            // Somebody has emptied the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        let within = object.index.lock().pieces.add(range);
        for piece in within.unwrap_or_default() {
            self.folder.remove(&object.id, &piece::name(&piece));
        }
        Ok(true)
    }

    fn failed(&self, action: &str, error: &io::Error, is_on: &AtomicBool) {
        is_on.store(false, Relaxed);
        if !self.has_warned.swap(true, Relaxed) {
            (self.warn)(&format!(
                "cannot {action} the read cache `{}`: {error}; reading goes on without it",
                self.shown.display()
            ));
        }
    }
}

/// A version of an object, and which pieces of it there are.
#[derive(Debug)]
pub(crate) struct Kept {
    tier: Arc<Tier>,
    id: ObjectId,
    size: u64,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    pieces: Pieces,
    listed_at: Option<Instant>,
}

impl Kept {
    /// What of a range is not there: all before it is, and all behind it.
    pub(crate) async fn missing(self: &Arc<Self>, range: &Range<u64>) -> Range<u64> {
        if !self.tier.is_read.load(Relaxed) {
            return range.clone();
        }
        let (missing, is_listed) = {
            let index = self.index.lock();
            let recent = index.listed_at.is_some_and(|listed| listed.elapsed() < LIST_INTERVAL);
            (index.pieces.missing(range), recent)
        };
        if missing.is_empty() || is_listed {
            return missing;
        }
        let own = Arc::clone(self);
        let listed = tokio::task::spawn_blocking(move || own.list()).await;
        match listed {
            Ok(()) => self.index.lock().pieces.missing(range),
            Err(_) => missing,
        }
    }

    /// Looks which pieces there are.
    fn list(&self) {
        match self.tier.folder.list(&self.id) {
            Ok(found) => {
                // What is known and not found may have been written meanwhile. What is gone shows when it
                // is read.
                let mut index = self.index.lock();
                for range in found.into_iter().filter(|range| range.end <= self.size) {
                    index.pieces.add(&range);
                }
                index.listed_at = Some(Instant::now());
            }
            Err(error) => self.cannot_read(&error),
        }
    }

    /// Reads a range, of which all is there, in order; how far that goes shows in what comes.
    pub(crate) async fn read(self: &Arc<Self>, range: Range<u64>) -> Option<Receiver<Bytes>> {
        let is_small = range.end - range.start <= SMALL_BYTES_MAX;
        let reads = if is_small { &self.tier.small_reads } else { &self.tier.reads };
        let permit = Arc::clone(reads).acquire_owned().await.ok()?;
        let (sender, receiver) = channel(RUNS_AHEAD);
        let own = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let counters = &own.tier.counters;
            counters.reads.fetch_add(1, Relaxed);
            own.read_here(range, &mut |bytes| {
                let count = bytes.len() as u64;
                let is_wanted = sender.blocking_send(bytes).is_ok();
                counters.read_bytes.fetch_add(count, Relaxed);
                is_wanted
            });
        });
        Some(receiver)
    }

    fn read_here(&self, range: Range<u64>, out: &mut dyn FnMut(Bytes) -> bool) {
        let mut at = range.start;
        while at < range.end {
            let Some(piece) = self.index.lock().pieces.holding(at) else { return };
            let end = piece.end.min(range.end);
            match self.read_piece(&piece, at..end, out) {
                Ok(()) => at = end,
                Err(unread) => return self.forget(&piece, &unread),
            }
        }
    }

    fn read_piece(
        &self,
        range: &Range<u64>,
        wanted: Range<u64>,
        out: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<(), Unread> {
        let path = self.tier.folder.of(&self.id).join(piece::name(range));
        let piece = Piece::open(&path, &self.id, range.clone())?;
        let now = SystemTime::now();
        let interval = self.tier.touch_interval;
        // One of the future is none.
        if now.duration_since(piece.touched).map_or(true, |age| age >= interval) {
            piece.touch(now);
        }
        piece.read(wanted, out)
    }

    /// A piece could not be read.
    fn forget(&self, range: &Range<u64>, unread: &Unread) {
        if matches!(unread, Unread::Unwanted) {
            return;
        }
        self.index.lock().pieces.remove(range);
        match unread {
            Unread::Missing | Unread::Unwanted => {}
            Unread::Damaged => {
                self.tier.counters.damaged.fetch_add(1, Relaxed);
                self.tier.folder.remove(&self.id, &piece::name(range));
            }
            Unread::Failed(error) => self.cannot_read(error),
        }
    }

    fn cannot_read(&self, error: &io::Error) {
        use rustix::io::Errno;
        let known = Errno::from_io_error(error);
        // That passes.
        if !matches!(known, Some(Errno::MFILE | Errno::NFILE | Errno::INTR | Errno::NOMEM)) {
            self.tier.failed("read from", error, &self.tier.is_read);
        }
    }

    /// Says that bytes of it are asked for, and will be kept or not.
    pub(crate) fn begin(&self) {
        self.tier.queue.lock().coming += 1;
    }

    /// Says that they have been.
    pub(crate) fn end(&self) {
        self.tier.queue.lock().coming -= 1;
        self.tier.changed.notify_all();
    }

    /// Writes bytes of it, which begin at `start`, when the writer comes to them, and not at all if
    /// there is too much before them.
    pub(crate) fn keep(self: &Arc<Self>, start: u64, bytes: Bytes) {
        let count = bytes.len() as u64;
        if count == 0 || start.saturating_add(count) > self.size {
            return;
        }
        let is_taken = self.tier.is_written.load(Relaxed) && {
            let mut queue = self.tier.queue.lock();
            let limit = self.tier.queue_limit.load(Relaxed);
            let has_room = queue.bytes == 0 || queue.bytes + count <= limit;
            if has_room && !queue.is_closed {
                queue.bytes += count;
                queue.items.push_back(Item { object: Arc::clone(self), start, bytes });
                self.tier.changed.notify_all();
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
