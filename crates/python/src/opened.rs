//! How is a file or an object read in Python as a file? By position, with a piece of it held for small reads
//! and lines; what is larger goes straight into the object, or the buffer, that Python is given.
//!
//! What is held is read and handed out with the interpreter's lock held, as it takes less than letting go of
//! it; all else without. Where another thread reads the same file, its end is waited for. Where a thread has gone to
//! a place and not read yet, others do not move it: DuckDB's threads share a file, and each seeks and then reads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tidemill_engine::cancellation::Interrupted;
use tidemill_engine::remote::files::{
    self, DownloadOptions, FileAccessSettings, RandomAccessFile, StoreConnections,
};
use tidemill_engine::remote::{ReadStats, StorageOptions};
use tidemill_engine::{CancelFlag, Error, Result, RunProgress};

use crate::errors::raise;
use crate::files::{RawCopied, copied, json};
use crate::options::storage;
use crate::process::Own;
use crate::wait::{TICK, Waiter, on_a_thread};

/// What is held of a file for small reads. A read of as much goes past it.
const HELD_BYTES: usize = 64 << 10;
/// What has no size is read to its end in such pieces.
const PIECE_BYTES: usize = 8 << 20;

/// Where files are opened and listed by one set of options and over the same connections.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawStore {
    storage_options: StorageOptions,
    connections: Own<StoreConnections>,
    is_literal: bool,
    /// Ends what is done here, for good.
    cancel: CancelFlag,
}

#[pymethods]
impl RawStore {
    #[new]
    fn new(
        py: Python<'_>,
        storage_options: Vec<(String, String)>,
        is_literal: bool,
    ) -> PyResult<Self> {
        let storage_options = storage(&storage_options).map_err(|error| raise(py, error))?;
        let (connections, cancel) = (Own::new(StoreConnections::default()), CancelFlag::new());
        Ok(RawStore { storage_options, connections, is_literal, cancel })
    }

    /// The same once more, over the same connections, to be cancelled by itself.
    fn part(&self) -> RawStore {
        RawStore {
            storage_options: self.storage_options.clone(),
            connections: Own::new(self.connections()),
            is_literal: self.is_literal,
            cancel: CancelFlag::new(),
        }
    }

    /// Ends what is done here and with the files that were opened here, now and later.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Opens one file.
    fn open(&self, py: Python<'_>, url: String) -> PyResult<RawFile> {
        let file = self.does(py, move |settings| Ok(files::open_file(&url, settings)?))?;
        let name = file.display_url();
        Ok(RawFile {
            name,
            file: Own::new(Mutex::new(Some(Arc::new(file)))),
            place: Mutex::default(),
            sought: Mutex::default(),
            is_closed: AtomicBool::new(false),
            asked_bytes: AtomicU64::default(),
            last: Mutex::default(),
            cancel: self.cancel.clone(),
        })
    }

    /// A listing, each of it as JSON.
    fn ls(&self, py: Python<'_>, url: String, recursive: bool) -> PyResult<Vec<String>> {
        self.does(py, move |settings| {
            let mut found = Vec::new();
            files::ls(&url, recursive, settings, &mut |entry| {
                found.push(json(&entry)?);
                Ok(())
            })?;
            Ok(found)
        })
    }

    /// What is told of one, as JSON.
    fn stat(&self, py: Python<'_>, url: String) -> PyResult<Option<String>> {
        self.does(py, move |settings| {
            let mut told = None;
            files::stat(&url, settings, &mut |stat| {
                told = Some(json(&stat)?);
                Ok(())
            })?;
            Ok(told)
        })
    }

    /// Fetches an object into a file, over what is there.
    fn get(&self, py: Python<'_>, url: String, output: String) -> PyResult<RawCopied> {
        let done = self.does(py, move |settings| {
            let defaults = DownloadOptions::default();
            let options = DownloadOptions { output: Some(output), overwrite: true, ..defaults };
            Ok(files::download_files(std::slice::from_ref(&url), &options, settings)?)
        })?;
        copied(py, done)
    }
}

impl RawStore {
    /// Those of this process: in a fork's child, new ones.
    fn connections(&self) -> StoreConnections {
        match self.connections.is_here() {
            true => StoreConnections::clone(&self.connections),
            false => StoreConnections::default(),
        }
    }

    fn does<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&FileAccessSettings) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let cancel = self.cancel.child_flag();
        let settings = FileAccessSettings {
            storage_options: self.storage_options.clone(),
            cancel: cancel.clone(),
            progress: RunProgress::new(),
            connections: self.connections(),
            has_literal_names: self.is_literal,
        };
        on_a_thread(py, cancel, move || work(&settings))
    }
}

/// An open file.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawFile {
    name: String,
    /// None once it is closed.
    file: Own<Mutex<Option<Arc<RandomAccessFile>>>>,
    place: Mutex<Place>,
    /// Where threads have gone to and not read yet. Locked before the place, if both are.
    sought: Mutex<HashMap<ThreadId, u64>>,
    is_closed: AtomicBool,
    /// What Python was given.
    asked_bytes: AtomicU64,
    /// What it did, once it is closed.
    last: Mutex<ReadStats>,
    cancel: CancelFlag,
}

/// Where reading goes on, and what is held.
#[derive(Default)]
struct Place {
    at: u64,
    held: Vec<u8>,
    /// Where in the file it begins.
    held_at: u64,
}

impl Place {
    /// What is held from where reading goes on.
    fn here(&self) -> &[u8] {
        let skip = self.at.checked_sub(self.held_at).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.held.get(skip..)).unwrap_or_default()
    }

    /// Copies what is held, and goes on behind it.
    fn take(&mut self, out: &mut [u8]) -> usize {
        let here = self.here();
        let count = here.len().min(out.len());
        out[..count].copy_from_slice(&here[..count]);
        self.at += count as u64;
        count
    }

    /// Holds what is next.
    fn hold(&mut self, file: &RandomAccessFile, look: Look<'_>) -> Result<()> {
        let mut held = std::mem::take(&mut self.held);
        held.resize(HELD_BYTES, 0);
        let count = file.read_at(&mut held, self.at, look)?;
        held.truncate(count);
        (self.held, self.held_at) = (held, self.at);
        Ok(())
    }

    /// Fills all of `out`, as far as the file goes.
    fn fill(&mut self, out: &mut [u8], file: &RandomAccessFile, look: Look<'_>) -> Result<usize> {
        let mut filled = self.take(out);
        while filled < out.len() {
            let rest = &mut out[filled..];
            let count = if rest.len() < HELD_BYTES {
                self.hold(file, look)?;
                self.take(rest)
            } else {
                let count = file.read_at(rest, self.at, look)?;
                self.at += count as u64;
                count
            };
            filled += count;
            if count == 0 {
                break;
            }
        }
        Ok(filled)
    }
}

type Look<'a> = &'a mut dyn FnMut() -> std::result::Result<(), Interrupted>;

/// Memory of a buffer that Python holds meanwhile.
struct Memory(*mut u8, usize);

// SAFETY: it is memory, which one thread after another writes to.
unsafe impl Send for Memory {}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: who made it says that it is there, initialised, and nobody else's for as long as this lives.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

impl RawFile {
    /// The file, if it is open. What is elsewhere is fetched by threads of the process that opened it.
    fn file(&self, py: Python<'_>) -> PyResult<Arc<RandomAccessFile>> {
        let file = self.file.lock().clone().ok_or_else(closed)?;
        if !file.is_local() {
            let message = format!("`{}` was opened by another process", self.name);
            let hint = "what is fetched from a server does not survive a fork: open it in the process \
                        that reads it";
            self.file.refuse_elsewhere(py, &message, hint)?;
        }
        Ok(file)
    }

    fn gave(&self, bytes: usize) {
        self.asked_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Where this thread has gone to and not read yet.
    fn sought(&self) -> Option<u64> {
        self.sought.lock().get(&std::thread::current().id()).copied()
    }

    /// The same, as it reads now. Who reads where the file is by now, takes the places of others for given up.
    fn reads_at(&self) -> Option<u64> {
        let mut sought = self.sought.lock();
        let own = sought.remove(&std::thread::current().id());
        if own.is_none() {
            sought.clear();
        }
        own
    }

    /// Reads at this thread's place, without the interpreter's lock; if it fails, the place is where it was.
    fn does<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Place, &RandomAccessFile, Look<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let from = self.reads_at();
        let done = self.does_from(py, from, work);
        if let (Err(_), Some(at)) = (&done, from) {
            self.sought.lock().insert(std::thread::current().id(), at);
        }
        done
    }

    /// Does something from a place, or where the file is by now.
    fn does_from<T: Send>(
        &self,
        py: Python<'_>,
        from: Option<u64>,
        work: impl FnOnce(&mut Place, &RandomAccessFile, Look<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file(py)?;
        let mut waiter = Waiter::new(CancelFlag::new(), None);
        let mut look = || {
            waiter.tick()?;
            let is_closed = self.is_closed.load(Ordering::Relaxed);
            let ends = waiter.is_raised() || is_closed || self.cancel.is_cancelled();
            if ends { Err(Interrupted) } else { Ok(()) }
        };
        let done = py.detach(|| {
            loop {
                if let Some(mut place) = self.place.try_lock_for(TICK) {
                    let before = place.at;
                    place.at = from.unwrap_or(before);
                    return work(&mut place, &file, &mut look).inspect_err(|_| place.at = before);
                }
                look()?;
            }
        });
        let was_closed = self.is_closed.load(Ordering::Relaxed) && !waiter.is_raised();
        match done {
            // The thread that closed it did not wait for this one.
            Err(Error::Interrupted) if was_closed => Err(closed()),
            done => waiter.done(py, done),
        }
    }

    /// An object of Python's of at most so many bytes, filled by `work`, which says how many there are.
    fn filled<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        work: impl FnOnce(&mut [u8], &mut Place, &RandomAccessFile, Look<'_>) -> Result<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.filled_by(py, size, |out| {
            self.does(py, |place, file, look| work(out, place, file, look))
        })
    }

    fn filled_by<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        work: impl FnOnce(&mut [u8]) -> PyResult<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut count = 0;
        let bytes = PyBytes::new_with(py, size, |out| {
            count = work(out)?;
            Ok(())
        })?;
        self.gave(count);
        if count == size {
            return Ok(bytes);
        }
        Ok(PyBytes::new(py, &bytes.as_bytes()[..count]))
    }

    /// What is held, if it is enough and nobody else is at it.
    fn held_bytes<'py>(
        &self,
        py: Python<'py>,
        count: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        let own = self.sought();
        let Some(mut place) = self.place.try_lock() else { return Ok(None) };
        let before = place.at;
        place.at = own.unwrap_or(before);
        let here = place.here();
        let Some(count) = count(here) else {
            place.at = before;
            return Ok(None);
        };
        let bytes = PyBytes::new(py, &here[..count]);
        place.at += count as u64;
        drop(place);
        self.reads_at();
        self.gave(count);
        Ok(Some(bytes))
    }

    /// How many bytes there are from the place on; none if nobody knows.
    fn left(&self, file: &RandomAccessFile) -> Option<u64> {
        let here = || self.place.try_lock().map_or(0, |place| place.at);
        let at = self.sought().unwrap_or_else(here);
        Some(file.size()?.saturating_sub(at))
    }

    fn to_the_end<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file(py)?;
        if let Some(left) = self.left(&file) {
            let size =
                usize::try_from(left).map_err(|_| PyOverflowError::new_err("too many bytes"))?;
            return self.filled(py, size, |out, place, file, look| place.fill(out, file, look));
        }
        self.up_to(py, usize::MAX)
    }

    /// So many bytes at most of what has no size.
    fn up_to<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let all = self.does(py, |place, file, look| {
            let mut all = Vec::new();
            while all.len() < most {
                let (end, more) = (all.len(), PIECE_BYTES.min(most - all.len()));
                let refused = |error| Error::io("read", &self.name, std::io::Error::other(error));
                all.try_reserve(more).map_err(refused)?;
                all.resize(end + more, 0);
                let count = place.fill(&mut all[end..], file, look)?;
                all.truncate(end + count);
                if count < more {
                    break;
                }
            }
            Ok(all)
        })?;
        self.gave(all.len());
        Ok(PyBytes::new(py, &all))
    }
}

#[pymethods]
impl RawFile {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.file(py)?.size())
    }

    #[getter]
    fn e_tag(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.file(py)?.e_tag().map(str::to_owned))
    }

    /// So many bytes, or all; fewer only at the end.
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let Ok(size) = usize::try_from(size) else { return self.to_the_end(py) };
        if let Some(bytes) = self.held_bytes(py, |here| (here.len() >= size).then_some(size))? {
            return Ok(bytes);
        }
        // Not more than there is: what is asked for may be anything.
        let file = self.file(py)?;
        let left = self.left(&file);
        let size = match left.and_then(|left| usize::try_from(left).ok()) {
            Some(left) => size.min(left),
            None if size > PIECE_BYTES => return self.up_to(py, size),
            None => size,
        };
        self.filled(py, size, |out, place, file, look| place.fill(out, file, look))
    }

    /// What is there without waiting twice: what is held, or the next piece.
    fn read1<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let size = usize::try_from(size).unwrap_or(HELD_BYTES);
        let some = |here: &[u8]| Some(here.len().min(size)).filter(|count| *count > 0 || size == 0);
        if let Some(bytes) = self.held_bytes(py, some)? {
            return Ok(bytes);
        }
        self.filled(py, size.min(HELD_BYTES), |out, place, file, look| {
            if place.here().is_empty() {
                place.hold(file, look)?;
            }
            Ok(place.take(out))
        })
    }

    /// What is held, at least a byte if there is one, without going on behind it.
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let here = self.does_from(py, self.sought(), |place, file, look| {
            if place.here().is_empty() {
                place.hold(file, look)?;
            }
            Ok(place.here().to_vec())
        })?;
        Ok(PyBytes::new(py, &here))
    }

    /// Fills memory that Python holds; how much of it.
    fn readinto(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<usize> {
        let mut memory = Memory(address as *mut u8, size);
        let count = self.does(py, move |place, file, look| {
            if memory.1 == 0 { Ok(0) } else { place.fill(memory.bytes(), file, look) }
        })?;
        self.gave(count);
        Ok(count)
    }

    /// A line with its end; of so many bytes at most.
    #[pyo3(signature = (size=-1))]
    fn readline<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let most = usize::try_from(size).unwrap_or(usize::MAX);
        let line = |here: &[u8]| {
            let end = here.iter().take(most).position(|byte| *byte == b'\n');
            end.map(|end| end + 1).or((here.len() >= most).then_some(most))
        };
        if let Some(bytes) = self.held_bytes(py, line)? {
            return Ok(bytes);
        }
        let bytes = self.does(py, |place, file, look| {
            let mut all = Vec::new();
            while all.len() < most {
                if place.here().is_empty() {
                    place.hold(file, look)?;
                }
                let here = place.here();
                let here = &here[..here.len().min(most - all.len())];
                let end = here.iter().position(|byte| *byte == b'\n');
                let count = end.map_or(here.len(), |end| end + 1);
                all.extend_from_slice(&here[..count]);
                place.at += count as u64;
                if end.is_some() || count == 0 {
                    break;
                }
            }
            Ok(all)
        })?;
        self.gave(bytes.len());
        Ok(PyBytes::new(py, &bytes))
    }

    /// Goes to a place: from the start, from where it is, from the end.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let end = match whence {
            0 | 1 => 0,
            2 => match self.file(py)?.size() {
                Some(size) => size,
                None => self.seek_to_the_end(py)?,
            },
            _ => {
                return Err(PyValueError::new_err(format!(
                    "invalid whence ({whence}, should be 0, 1 or 2)"
                )));
            }
        };
        let from = match whence {
            1 => self.tell(py)?,
            _ => end,
        };
        let to = from
            .checked_add_signed(offset)
            .ok_or_else(|| PyValueError::new_err(format!("negative seek value {offset}")))?;
        self.file(py)?;
        self.sought.lock().insert(std::thread::current().id(), to);
        // Who reads meanwhile ends where that ends.
        if let Some(mut place) = self.place.try_lock() {
            place.at = to;
        }
        Ok(to)
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.file(py)?;
        if let Some(at) = self.sought() {
            return Ok(at);
        }
        if let Some(place) = self.place.try_lock() {
            return Ok(place.at);
        }
        self.does_from(py, None, |place, _, _| Ok(place.at))
    }

    /// Ranges, each by itself, fetched concurrently. The place stays.
    fn ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let file = self.file(py)?;
        let size = file.size().unwrap_or(u64::MAX);
        let ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .map(|(start, end)| start.min(size)..end.min(size).max(start.min(size)))
            .collect();
        let mut all = Vec::with_capacity(ranges.len());
        let mut rest = ranges.as_slice();
        while !rest.is_empty() {
            let (count, claims) = py
                .detach(|| file.prefetch_ranges(rest))
                .map_err(|error| raise(py, error.into()))?;
            let (now, later) = rest.split_at(count);
            for range in now {
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let at = range.start;
                let bytes = self.filled_by(py, length, |out| {
                    self.does_from(py, None, move |_, file, look| Ok(file.read_at(out, at, look)?))
                })?;
                all.push(bytes);
            }
            rest = later;
            py.detach(|| drop(claims));
        }
        Ok(all)
    }

    /// What it did so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let is_open = self.file.lock().is_some();
        let mut stats = match is_open {
            true => self.file(py)?.stats(),
            false => *self.last.lock(),
        };
        stats.served_bytes = self.asked_bytes.load(Ordering::Relaxed);
        told(py, &stats)
    }

    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        let file = self.file.lock().take();
        match file {
            Some(file) if self.file.is_here() => {
                *self.last.lock() = file.stats();
                py.detach(|| drop(file));
            }
            // A copy that a fork has made.
            copy => std::mem::forget(copy),
        }
        if let Some(mut place) = self.place.try_lock() {
            place.held = Vec::new();
        }
    }
}

impl RawFile {
    /// Where the end is of what has no size: all of it is read for that.
    fn seek_to_the_end(&self, py: Python<'_>) -> PyResult<u64> {
        self.does_from(py, self.sought(), |place, file, look| {
            let mut piece = vec![0; PIECE_BYTES];
            let mut end = place.at;
            loop {
                let count = file.read_at(&mut piece, end, look)?;
                end += count as u64;
                if count < piece.len() {
                    return Ok(end);
                }
            }
        })
    }
}

/// Statistics by the names that Python has for them.
pub(crate) fn told<'py>(py: Python<'py>, stats: &ReadStats) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    for (name, value) in [
        ("asked_bytes", stats.served_bytes),
        ("fetched_bytes", stats.fetched_bytes),
        ("disk_bytes", stats.disk_bytes),
        ("wasted_bytes", stats.wasted_bytes),
        ("requests", stats.requests),
        ("disk_reads", stats.disk_reads),
        ("reads", stats.reads),
        ("hits", stats.hits),
        ("stalls", stats.stalls),
        ("retries", stats.retries),
        ("throttled", stats.throttled_responses),
        ("hedges", stats.hedges),
        ("hedges_won", stats.hedges_won),
        ("taken_back", stats.evicted_blocks),
        ("block_bytes", stats.block_bytes),
        ("window_bytes", stats.window_bytes),
        ("past_runs", stats.tuned_from_runs),
    ] {
        told.set_item(name, value)?;
    }
    told.set_item("stall_seconds", stats.stall_time.as_secs_f64())?;
    Ok(told)
}
