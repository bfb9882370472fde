//! One file or object, to be read at any place.
//!
//! ```text
//!  read at ─┬─ a file          at the place
//!           ├─ an object       its beginning, if it is here; else by a cursor, windows and all
//!           └─ a stream        a web server without ranges: on from where it is, or from the start again
//! ```
//!
//! A read that is larger than a block has its blocks told of before the first is waited for, so that they
//! come concurrently; one up to the end is declared, and fills the window.

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

/// A file on this machine is read in such pieces, with a look at `tick` between them.
const LOCAL_READ_BYTES: usize = 8 << 20;
/// What is told of beforehand is at most this share of the memory at once.
const CLAIM_MEMORY_DIVISOR: u64 = 4;

/// A file, or one version of an object, that is open. Several threads may read it at once.
#[derive(Debug)]
pub struct RandomAccessFile {
    found: FoundFile,
    backend: FileBackend,
    /// What came beside the cursor, and what of it was asked for.
    fetched_bytes: AtomicU64,
    asked_bytes: AtomicU64,
    requests: AtomicU64,
    /// What it shows of its server, where block or window are chosen by that.
    observation: Option<FileObservation>,
    _budget: PrefetchBudget,
}

#[derive(Debug)]
enum FileBackend {
    Local(fs::File),
    Object(Arc<Object>, ObjectCursor),
    Stream(Arc<Object>, Mutex<SequentialBody>),
}

/// A body that is read front to back.
#[derive(Debug, Default)]
struct SequentialBody {
    body: Option<StreamedBody>,
    /// The piece that came last, and where it begins.
    piece_start: u64,
    piece: Bytes,
    /// What the end turned out to be.
    end: Option<u64>,
}

/// Opens what a URL or path names by itself: no folder, and no pattern.
///
/// An object of a bucket costs a request for its size and version; a file of the web one that brings its
/// first MiB.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Usage`] for what is not one file, [`Error::Remote`], [`Error::Io`] and
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
            // How it will be read is not known; windows matter to who reads on.
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
    /// Its URL or path, without what may be secret in it.
    pub fn display_url(&self) -> String {
        self.found.url()
    }

    /// Whether it is on this machine, so that no thread is asked for it.
    pub fn is_local(&self) -> bool {
        matches!(self.backend, FileBackend::Local(_))
    }

    /// Its bytes; none of what a server does not say and a system does not know.
    pub fn size(&self) -> Option<u64> {
        let sure = |size: u64| Some(size).filter(|size| *size > 0);
        match &self.backend {
            // It may grow. What has no bytes by that may have some all the same, as under `/proc`.
            FileBackend::Local(file) => file.metadata().ok().and_then(|found| sure(found.len())),
            FileBackend::Object(object, _) => Some(object.size()),
            FileBackend::Stream(object, stream) => {
                // Not to be waited for: who reads has it.
                let end = stream.try_lock().and_then(|stream| stream.end);
                end.or_else(|| sure(object.size()))
            }
        }
    }

    /// What tells this version of an object from others, where its server says so.
    pub fn e_tag(&self) -> Option<&str> {
        self.found.e_tag()
    }

    /// Fills `out` from `at` on, calling `tick` 20 times a second while it waits; fewer bytes only at the end.
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

    /// Fills all of `out`, which lies within the object.
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
                    // It cannot be gone on with: who reads on begins again.
                    let end = stream.end;
                    *stream = SequentialBody { end, ..SequentialBody::default() };
                    return Err(error);
                }
            }
        }
        self.asked_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled)
    }

    /// Tells of ranges that will be read, which are fetched concurrently, neighbours together; they stay until
    /// the claims are dropped. As many of them, from the first on, as a quarter of the memory has room for: what
    /// is given back is how many.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
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

    /// What was asked for, fetched and waited for. Of files on this machine only what was asked for.
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

/// How much is told of beforehand at most.
fn claim_bytes_max() -> Result<u64> {
    Ok(prefetch_pool()?.memory_bytes() / CLAIM_MEMORY_DIVISOR)
}
