//! Random-access reads of one file or object.
//!
//! ```text
//!  read_at ─┬─ a file          pread at the offset
//!           ├─ an object       from its first bytes, if they are kept; else by a cursor with prefetch windows
//!           └─ a stream        a web server without ranges: on from its position, or from the start again
//! ```
//!
//! A read that is larger than a block claims its blocks before it waits for the first one, so that they
//! arrive concurrently. A read up to the end is declared to the cursor, which fills its window.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_base::cancellation::WaitCallback;
use tidemill_prefetch::range_coalescing::coalesce_ranges;
use tidemill_prefetch::tuner::AccessOrder;
use tidemill_prefetch::{BlockClaims, Error as PrefetchError, ObjectCursor, ReadStats};

use super::file_finder::{FileFinder, FileMatchKind, FoundFile, FoundLocation};
use super::{FileAccessSettings, open_regular_file};
use crate::error::{Error, Result};
use crate::http::StreamedBody;
use crate::object::Object;
use crate::reader::{PrefetchBudget, prefetch_pool};
use crate::tuning::FileObservation;

/// Maximum size of one read of a local file. Between reads, `tick` is called.
const LOCAL_READ_BYTES: usize = 8 << 20;
/// Divisor of the prefetch memory that limits the claimed bytes.
const CLAIM_MEMORY_DIVISOR: u64 = 4;

/// An open file, or one version of an object. Several threads may read it at once.
#[derive(Debug)]
pub struct RandomAccessFile {
    found: FoundFile,
    backend: FileBackend,
    /// Bytes that were fetched and requested outside of the cursor.
    fetched_bytes: AtomicU64,
    asked_bytes: AtomicU64,
    requests: AtomicU64,
    /// Observation of the server for the read history, if `auto` chooses the block or the window.
    observation: Option<FileObservation>,
    _budget: PrefetchBudget,
}

#[derive(Debug)]
enum FileBackend {
    Local(fs::File),
    Object(Arc<Object>, ObjectCursor),
    Stream(Arc<Object>, Mutex<SequentialBody>),
}

/// A response body that is read front to back.
#[derive(Debug, Default)]
struct SequentialBody {
    body: Option<StreamedBody>,
    /// Offset of `piece`, which is the piece received last.
    piece_start: u64,
    piece: Bytes,
    /// Size of the file, once the end is reached.
    end: Option<u64>,
}

/// Opens the single file that a URL or path names. Refuses folders and patterns.
///
/// Cost: one request for size and version of an object in a bucket. For a file on the web, one request that
/// also returns the first MiB.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Usage`] for anything but one file, [`Error::Remote`], [`Error::Io`] and
/// [`Error::Interrupted`].
pub fn open_file(url: &str, settings: &FileAccessSettings) -> Result<RandomAccessFile> {
    let shown = || tidemill_base::redaction::redact_url(url);
    let folder = || {
        Error::usage_with_hint(
            format!("`{}` is a folder", shown()),
            "name one of its files; `ls` lists them",
        )
    };
    let mut one = None;
    FileFinder::new(settings).find_files(url, &mut |found| match found.match_kind {
        FileMatchKind::Exact => {
            one = Some(found);
            Ok(())
        }
        FileMatchKind::InFolder => Err(folder()),
        FileMatchKind::ByPattern => Err(Error::usage_with_hint(
            format!("`{}` may stand for several files", shown()),
            "a file is opened by its own name; `ls` lists what a pattern matches",
        )),
    })?;
    let found = one.ok_or_else(folder)?;
    let (mut seen, mut watch) = ((0, 0), None);
    let place = match found.to_object()? {
        Some(object) if object.is_stream() => FileBackend::Stream(object, Mutex::default()),
        Some(object) => {
            let is_web = matches!(found.location, FoundLocation::WebObject(_));
            seen = if is_web { (object.kept_head_bytes(), 1) } else { seen };
            // The read order is unknown. Windows matter for sequential reads only, so assume these.
            let opened = object.opened_object_for(AccessOrder::Sequential)?;
            let pool = prefetch_pool()?;
            watch = object.tuning().map(|tuning| FileObservation::new(&tuning, pool, opened));
            let cursor = ObjectCursor::new(Arc::clone(opened));
            FileBackend::Object(object, cursor)
        }
        None => {
            let FoundLocation::LocalPath(path) = &found.location else {
                return Err(Error::Internal("a file that is nowhere".into()));
            };
            FileBackend::Local(open_regular_file(path)?)
        }
    };
    Ok(RandomAccessFile {
        found,
        backend: place,
        fetched_bytes: AtomicU64::new(seen.0),
        asked_bytes: AtomicU64::default(),
        requests: AtomicU64::new(seen.1),
        observation: watch,
        _budget: settings.budget(),
    })
}

impl RandomAccessFile {
    /// Returns the URL or path, without secrets.
    pub fn display_url(&self) -> String {
        self.found.url()
    }

    /// Returns true for a local file, which needs no network threads.
    pub fn is_local(&self) -> bool {
        matches!(self.backend, FileBackend::Local(_))
    }

    /// Returns the size in bytes; `None` if neither the server nor the file system reports it.
    pub fn size(&self) -> Option<u64> {
        let sure = |size: u64| Some(size).filter(|size| *size > 0);
        match &self.backend {
            // A file can grow. A file of size 0 can still have content, as under `/proc`.
            FileBackend::Local(file) => file.metadata().ok().and_then(|found| sure(found.len())),
            FileBackend::Object(object, _) => Some(object.size()),
            FileBackend::Stream(object, stream) => {
                // Do not wait for the lock: a concurrent reader holds it.
                let end = stream.try_lock().and_then(|stream| stream.end);
                end.or_else(|| sure(object.size()))
            }
        }
    }

    /// Returns the ETag that identifies this version of an object, if the server sends one.
    pub fn e_tag(&self) -> Option<&str> {
        self.found.e_tag()
    }

    /// Reads from offset `at` on until `out` is full or the file ends. Calls `tick` 20 times a second while
    /// it waits.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Remote`], [`Error::Io`] and [`Error::Interrupted`].
    pub fn read_at(&self, out: &mut [u8], at: u64, tick: WaitCallback<'_>) -> Result<usize> {
        match &self.backend {
            FileBackend::Local(file) => self.read_local(file, out, at, tick),
            FileBackend::Object(object, cursor) => {
                let left = object.size().saturating_sub(at);
                let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
                self.read_object(object, cursor, &mut out[..wanted], at, tick)
            }
            FileBackend::Stream(object, stream) => self.read_stream(object, stream, out, at, tick),
        }
    }

    fn read_local(
        &self,
        file: &fs::File,
        out: &mut [u8],
        at: u64,
        tick: WaitCallback<'_>,
    ) -> Result<usize> {
        let mut filled = 0;
        while filled < out.len() {
            if filled > 0 {
                tick()?;
            }
            let end = out.len().min(filled + LOCAL_READ_BYTES);
            let read = match file.read_at(&mut out[filled..end], at + filled as u64) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| Error::io("read", self.display_url(), error))?,
            };
            if read == 0 {
                break;
            }
            filled += read;
        }
        self.asked_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }

    /// Fills all of `out`. The range must lie within the object.
    fn read_object(
        &self,
        object: &Object,
        cursor: &ObjectCursor,
        out: &mut [u8],
        at: u64,
        tick: WaitCallback<'_>,
    ) -> Result<usize> {
        let mut filled = 0;
        if let Some(head) = object.kept_head()
            && let Some(here) = usize::try_from(at).ok().and_then(|at| head.get(at..))
        {
            filled = here.len().min(out.len());
            out[..filled].copy_from_slice(&here[..filled]);
            self.asked_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        }
        let rest = at + filled as u64..at + out.len() as u64;
        let _claims = match (rest.end - rest.start)
            .checked_sub(cursor.object().options().block_bytes)
        {
            None | Some(0) => None,
            Some(_) if rest.end == object.size() || rest.end - rest.start > claim_bytes_max()? => {
                cursor.declare_range(rest);
                None
            }
            Some(_) => Some(cursor.prefetch_ranges(&[rest])),
        };
        let mut ticking = || tick().map_err(|_| PrefetchError::Interrupted);
        while filled < out.len() {
            let (from, least) = (at + filled as u64, out.len() - filled);
            let count = cursor.read_at(&mut out[filled..], from, least, &mut ticking)?;
            if count == 0 {
                return Err(Error::Internal("an object ended before its end".into()));
            }
            filled += count;
        }
        Ok(filled)
    }

    fn read_stream(
        &self,
        object: &Arc<Object>,
        stream: &Mutex<SequentialBody>,
        out: &mut [u8],
        at: u64,
        tick: WaitCallback<'_>,
    ) -> Result<usize> {
        let mut stream = stream.lock();
        let mut filled = 0;
        while filled < out.len() {
            let at = at + filled as u64;
            if stream.end.is_some_and(|end| at >= end) {
                break;
            }
            let held = stream.piece_start..stream.piece_start + stream.piece.len() as u64;
            if held.contains(&at) {
                let skip = usize::try_from(at - held.start).unwrap_or(usize::MAX);
                let here = stream.piece.get(skip..).unwrap_or_default();
                let count = here.len().min(out.len() - filled);
                out[filled..filled + count].copy_from_slice(&here[..count]);
                filled += count;
                continue;
            }
            if stream.body.is_none() || at < held.start {
                let end = stream.end;
                *stream = SequentialBody {
                    body: Some(object.open_stream()?),
                    end,
                    ..SequentialBody::default()
                };
                self.requests.fetch_add(1, Ordering::Relaxed);
            } else {
                stream.piece_start = held.end;
                stream.piece = Bytes::new();
            }
            let Some(body) = &mut stream.body else { continue };
            match body.next_with_tick(tick) {
                Ok(Some(piece)) => {
                    self.fetched_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    stream.piece = piece;
                }
                Ok(None) => stream.end = Some(stream.piece_start),
                Err(error) => {
                    // The body cannot be resumed, so the next read starts again.
                    let end = stream.end;
                    *stream = SequentialBody { end, ..SequentialBody::default() };
                    return Err(error);
                }
            }
        }
        self.asked_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }

    /// Starts to fetch ranges that will be read. They are fetched concurrently, adjacent ones together, and
    /// stay in memory until the claims are dropped. Takes only as many ranges, from the first on, as fit into
    /// a quarter of the memory, and returns their number.
    ///
    /// # Errors
    /// [`Error::Io`] if the network threads cannot be started.
    pub fn prefetch_ranges(&self, ranges: &[Range<u64>]) -> Result<(usize, Option<BlockClaims>)> {
        let FileBackend::Object(object, cursor) = &self.backend else {
            return Ok((ranges.len(), None));
        };
        let most = claim_bytes_max()?;
        let mut total = 0u64;
        let fits = ranges.iter().take_while(|range| {
            let bytes = range.end.saturating_sub(range.start);
            total = total.saturating_add(bytes);
            total <= most
        });
        let count = fits.count().max(1).min(ranges.len());
        let behind = object.kept_head_bytes();
        let wanted: Vec<Range<u64>> = ranges[..count]
            .iter()
            .map(|range| range.start.max(behind)..range.end.min(object.size()))
            .filter(|range| range.start < range.end)
            .collect();
        Ok((count, Some(cursor.prefetch_ranges(&coalesce_ranges(&wanted)))))
    }

    /// Returns the bytes requested and fetched, and the time spent waiting. For local files, only the bytes
    /// requested.
    pub fn stats(&self) -> ReadStats {
        let mut stats = match &self.backend {
            FileBackend::Object(_, cursor) => cursor.stats(),
            _ => ReadStats::default(),
        };
        stats.served_bytes += self.asked_bytes.load(Ordering::Relaxed);
        stats.fetched_bytes += self.fetched_bytes.load(Ordering::Relaxed);
        stats.requests += self.requests.load(Ordering::Relaxed);
        stats
    }
}

impl Drop for RandomAccessFile {
    fn drop(&mut self) {
        if let (Some(watch), FileBackend::Object(_, cursor)) = (&self.observation, &self.backend) {
            watch.record_closed_file(cursor.access_order(), &cursor.stats());
        }
    }
}

/// Returns the maximum number of claimed bytes.
fn claim_bytes_max() -> Result<u64> {
    Ok(prefetch_pool()?.memory_bytes() / CLAIM_MEMORY_DIVISOR)
}
