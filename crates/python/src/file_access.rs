//! Reads an open file or object from Python as a file object. A buffer serves small reads and lines; larger
//! reads go straight into the object, or the buffer, that Python receives.
//!
//! Buffered bytes are returned with the interpreter's lock held, which takes less time than releasing it;
//! every other operation releases the lock. If another thread reads the same file, a read waits for it. A
//! seek applies to its own thread until that thread reads, so other threads do not move its position:
//! DuckDB's threads share a file, and each seeks and then reads.

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

use crate::errors::to_exception;
use crate::file_operations::{CopySummaryTuple, copy_summary_tuple, to_json_text};
use crate::interruptible_wait::{SIGNAL_CHECK_INTERVAL, SignalWaiter, run_on_thread};
use crate::options::parse_storage_options;
use crate::process_bound::ProcessBound;

/// Size of a file's buffer for small reads. Reads of this size or more bypass it.
const BUFFER_BYTES: usize = 64 << 10;
/// Size of the pieces in which a file of unknown size is read to its end.
const UNSIZED_READ_PIECE_BYTES: usize = 8 << 20;

/// A store: opens and lists files with one set of options and over shared connections.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawStore {
    storage_options: StorageOptions,
    connections: ProcessBound<StoreConnections>,
    is_literal: bool,
    /// Cancels all current and later operations of this store.
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
        let storage_options =
            parse_storage_options(&storage_options).map_err(|error| to_exception(py, error))?;
        let (connections, cancel) =
            (ProcessBound::new(StoreConnections::default()), CancelFlag::new());
        Ok(RawStore { storage_options, connections, is_literal, cancel })
    }

    /// Returns a store with the same options and connections that can be cancelled by itself.
    fn part(&self) -> RawStore {
        RawStore {
            storage_options: self.storage_options.clone(),
            connections: ProcessBound::new(self.process_connections()),
            is_literal: self.is_literal,
            cancel: CancelFlag::new(),
        }
    }

    /// Cancels all operations of this store and of the files opened with it, now and later.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Opens one file.
    fn open(&self, py: Python<'_>, url: String) -> PyResult<RawFile> {
        let file = self.run_on_store(py, move |settings| Ok(files::open_file(&url, settings)?))?;
        let name = file.display_url();
        Ok(RawFile {
            name,
            file: ProcessBound::new(Mutex::new(Some(Arc::new(file)))),
            place: Mutex::default(),
            sought: Mutex::default(),
            is_closed: AtomicBool::new(false),
            asked_bytes: AtomicU64::default(),
            last: Mutex::default(),
            cancel: self.cancel.clone(),
        })
    }

    /// Returns the entries of a listing as JSON texts.
    fn ls(&self, py: Python<'_>, url: String, recursive: bool) -> PyResult<Vec<String>> {
        self.run_on_store(py, move |settings| {
            let mut found = Vec::new();
            files::ls(&url, recursive, settings, &mut |entry| {
                found.push(to_json_text(&entry)?);
                Ok(())
            })?;
            Ok(found)
        })
    }

    /// Returns the metadata of a file as JSON.
    fn stat(&self, py: Python<'_>, url: String) -> PyResult<Option<String>> {
        self.run_on_store(py, move |settings| {
            let mut told = None;
            files::stat(&url, settings, &mut |stat| {
                told = Some(to_json_text(&stat)?);
                Ok(())
            })?;
            Ok(told)
        })
    }

    /// Fetches an object into a file, and replaces an existing one.
    fn get(&self, py: Python<'_>, url: String, output: String) -> PyResult<CopySummaryTuple> {
        let done = self.run_on_store(py, move |settings| {
            let defaults = DownloadOptions::default();
            let options = DownloadOptions { output: Some(output), overwrite: true, ..defaults };
            Ok(files::download_files(std::slice::from_ref(&url), &options, settings)?)
        })?;
        copy_summary_tuple(py, done)
    }
}

impl RawStore {
    /// Returns the connections of this process; in the child of a fork, new ones.
    fn process_connections(&self) -> StoreConnections {
        match self.connections.is_in_owner_process() {
            true => StoreConnections::clone(&self.connections),
            false => StoreConnections::default(),
        }
    }

    fn run_on_store<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&FileAccessSettings) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let cancel = self.cancel.child_flag();
        let settings = FileAccessSettings {
            storage_options: self.storage_options.clone(),
            cancel: cancel.clone(),
            progress: RunProgress::new(),
            connections: self.process_connections(),
            has_literal_names: self.is_literal,
        };
        run_on_thread(py, cancel, move || work(&settings))
    }
}

/// An open file.
#[pyclass(frozen, module = "tidemill._tidemill")]
pub(crate) struct RawFile {
    name: String,
    /// `None` after the file was closed.
    file: ProcessBound<Mutex<Option<Arc<RandomAccessFile>>>>,
    place: Mutex<ReadPosition>,
    /// Positions to which threads have sought without reading yet. Locked before `position` if both are
    /// locked.
    sought: Mutex<HashMap<ThreadId, u64>>,
    is_closed: AtomicBool,
    /// Number of bytes returned to Python.
    asked_bytes: AtomicU64,
    /// The statistics at the time of closing.
    last: Mutex<ReadStats>,
    cancel: CancelFlag,
}

/// The read position, and a buffer of the bytes around it.
#[derive(Default)]
struct ReadPosition {
    offset: u64,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte in the file.
    buffer_offset: u64,
}

impl ReadPosition {
    /// Returns the buffered bytes from the read position on.
    fn buffered(&self) -> &[u8] {
        let skip =
            self.offset.checked_sub(self.buffer_offset).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default()
    }

    /// Copies buffered bytes, and advances the read position.
    fn copy_buffered(&mut self, out: &mut [u8]) -> usize {
        let here = self.buffered();
        let count = here.len().min(out.len());
        out[..count].copy_from_slice(&here[..count]);
        self.offset += count as u64;
        count
    }

    /// Fills the buffer with the bytes from the read position on.
    fn refill_buffer(&mut self, file: &RandomAccessFile, look: InterruptCheck<'_>) -> Result<()> {
        let mut held = std::mem::take(&mut self.buffer);
        held.resize(BUFFER_BYTES, 0);
        let count = file.read_at(&mut held, self.offset, look)?;
        held.truncate(count);
        (self.buffer, self.buffer_offset) = (held, self.offset);
        Ok(())
    }

    /// Fills `out` completely, or up to the end of the file.
    fn read_fully(
        &mut self,
        out: &mut [u8],
        file: &RandomAccessFile,
        look: InterruptCheck<'_>,
    ) -> Result<usize> {
        let mut filled = self.copy_buffered(out);
        while filled < out.len() {
            let rest = &mut out[filled..];
            let count = if rest.len() < BUFFER_BYTES {
                self.refill_buffer(file, look)?;
                self.copy_buffered(rest)
            } else {
                let count = file.read_at(rest, self.offset, look)?;
                self.offset += count as u64;
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

type InterruptCheck<'a> = &'a mut dyn FnMut() -> std::result::Result<(), Interrupted>;

/// The memory of a buffer that Python keeps alive during the read.
struct PythonBuffer(*mut u8, usize);

// SAFETY: it is plain memory, and only one thread at a time writes to it.
unsafe impl Send for PythonBuffer {}

impl PythonBuffer {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the creator guarantees that the memory is initialised and exclusive while this value lives.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

fn closed_file_exception() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

impl RawFile {
    /// Returns the file, if it is open. For remote files it requires the process that opened them, whose
    /// threads fetch.
    fn require_open_file(&self, py: Python<'_>) -> PyResult<Arc<RandomAccessFile>> {
        let file = self.file.lock().clone().ok_or_else(closed_file_exception)?;
        if !file.is_local() {
            let message = format!("`{}` was opened by another process", self.name);
            let hint = "what is fetched from a server does not survive a fork: open it in the process \
                        that reads it";
            self.file.require_owner_process(py, &message, hint)?;
        }
        Ok(file)
    }

    fn count_returned_bytes(&self, bytes: usize) {
        self.asked_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the position to which this thread has sought without reading yet.
    fn pending_seek(&self) -> Option<u64> {
        self.sought.lock().get(&std::thread::current().id()).copied()
    }

    /// Takes the pending seek of this thread, which now reads. A thread without one reads at the shared
    /// position, which discards the pending seeks of all threads.
    fn take_pending_seek(&self) -> Option<u64> {
        let mut sought = self.sought.lock();
        let own = sought.remove(&std::thread::current().id());
        if own.is_none() {
            sought.clear();
        }
        own
    }

    /// Reads at this thread's position, without the interpreter's lock; a failed read restores the pending
    /// seek.
    fn read_at_thread_position<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ReadPosition, &RandomAccessFile, InterruptCheck<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let from = self.take_pending_seek();
        let done = self.read_from(py, from, work);
        if let (Err(_), Some(at)) = (&done, from) {
            self.sought.lock().insert(std::thread::current().id(), at);
        }
        done
    }

    /// Calls `work` at the position `from`, or at the shared position.
    fn read_from<T: Send>(
        &self,
        py: Python<'_>,
        from: Option<u64>,
        work: impl FnOnce(&mut ReadPosition, &RandomAccessFile, InterruptCheck<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.require_open_file(py)?;
        let mut waiter = SignalWaiter::new(CancelFlag::new(), None);
        let mut look = || {
            waiter.check_signals()?;
            let is_closed = self.is_closed.load(Ordering::Relaxed);
            let ends = waiter.has_exception() || is_closed || self.cancel.is_cancelled();
            if ends { Err(Interrupted) } else { Ok(()) }
        };
        let done = py.detach(|| {
            loop {
                if let Some(mut place) = self.place.try_lock_for(SIGNAL_CHECK_INTERVAL) {
                    let before = place.offset;
                    place.offset = from.unwrap_or(before);
                    return work(&mut place, &file, &mut look)
                        .inspect_err(|_| place.offset = before);
                }
                look()?;
            }
        });
        let was_closed = self.is_closed.load(Ordering::Relaxed) && !waiter.has_exception();
        match done {
            // The closing thread did not wait for this one.
            Err(Error::Interrupted) if was_closed => Err(closed_file_exception()),
            done => waiter.finish(py, done),
        }
    }

    /// Returns bytes of at most `size` that `work` fills; `work` returns their count.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        work: impl FnOnce(
            &mut [u8],
            &mut ReadPosition,
            &RandomAccessFile,
            InterruptCheck<'_>,
        ) -> Result<usize>
        + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.read_bytes_with(py, size, |out| {
            self.read_at_thread_position(py, |place, file, look| work(out, place, file, look))
        })
    }

    fn read_bytes_with<'py>(
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
        self.count_returned_bytes(count);
        if count == size {
            return Ok(bytes);
        }
        Ok(PyBytes::new(py, &bytes.as_bytes()[..count]))
    }

    /// Returns buffered bytes if `count` accepts them and no other thread uses the position.
    fn take_buffered_bytes<'py>(
        &self,
        py: Python<'py>,
        count: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(closed_file_exception());
        }
        let own = self.pending_seek();
        let Some(mut place) = self.place.try_lock() else { return Ok(None) };
        let before = place.offset;
        place.offset = own.unwrap_or(before);
        let here = place.buffered();
        let Some(count) = count(here) else {
            place.offset = before;
            return Ok(None);
        };
        let bytes = PyBytes::new(py, &here[..count]);
        place.offset += count as u64;
        drop(place);
        self.take_pending_seek();
        self.count_returned_bytes(count);
        Ok(Some(bytes))
    }

    /// Returns the number of bytes after the position; `None` if the size is unknown.
    fn remaining_bytes(&self, file: &RandomAccessFile) -> Option<u64> {
        let here = || self.place.try_lock().map_or(0, |place| place.offset);
        let at = self.pending_seek().unwrap_or_else(here);
        Some(file.size()?.saturating_sub(at))
    }

    fn read_to_end<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.require_open_file(py)?;
        if let Some(left) = self.remaining_bytes(&file) {
            let size =
                usize::try_from(left).map_err(|_| PyOverflowError::new_err("too many bytes"))?;
            return self
                .read_bytes(py, size, |out, place, file, look| place.read_fully(out, file, look));
        }
        self.read_up_to(py, usize::MAX)
    }

    /// Reads at most `most` bytes of a file of unknown size.
    fn read_up_to<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        let all = self.read_at_thread_position(py, |place, file, look| {
            let mut all = Vec::new();
            while all.len() < most {
                let (end, more) = (all.len(), UNSIZED_READ_PIECE_BYTES.min(most - all.len()));
                let refused = |error| Error::io("read", &self.name, std::io::Error::other(error));
                all.try_reserve(more).map_err(refused)?;
                all.resize(end + more, 0);
                let count = place.read_fully(&mut all[end..], file, look)?;
                all.truncate(end + count);
                if count < more {
                    break;
                }
            }
            Ok(all)
        })?;
        self.count_returned_bytes(all.len());
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
        Ok(self.require_open_file(py)?.size())
    }

    #[getter]
    fn e_tag(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.require_open_file(py)?.e_tag().map(str::to_owned))
    }

    /// Returns `size` bytes, or all if it is negative; fewer only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let Ok(size) = usize::try_from(size) else { return self.read_to_end(py) };
        if let Some(bytes) =
            self.take_buffered_bytes(py, |here| (here.len() >= size).then_some(size))?
        {
            return Ok(bytes);
        }
        // The request may be arbitrarily large, so it is limited to the remaining bytes.
        let file = self.require_open_file(py)?;
        let left = self.remaining_bytes(&file);
        let size = match left.and_then(|left| usize::try_from(left).ok()) {
            Some(left) => size.min(left),
            None if size > UNSIZED_READ_PIECE_BYTES => return self.read_up_to(py, size),
            None => size,
        };
        self.read_bytes(py, size, |out, place, file, look| place.read_fully(out, file, look))
    }

    /// Returns the buffered bytes, or else the bytes of one further read.
    fn read1<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let size = usize::try_from(size).unwrap_or(BUFFER_BYTES);
        let some = |here: &[u8]| Some(here.len().min(size)).filter(|count| *count > 0 || size == 0);
        if let Some(bytes) = self.take_buffered_bytes(py, some)? {
            return Ok(bytes);
        }
        self.read_bytes(py, size.min(BUFFER_BYTES), |out, place, file, look| {
            if place.buffered().is_empty() {
                place.refill_buffer(file, look)?;
            }
            Ok(place.copy_buffered(out))
        })
    }

    /// Returns the buffered bytes, at least one unless at the end, without advancing the position.
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let here = self.read_from(py, self.pending_seek(), |place, file, look| {
            if place.buffered().is_empty() {
                place.refill_buffer(file, look)?;
            }
            Ok(place.buffered().to_vec())
        })?;
        Ok(PyBytes::new(py, &here))
    }

    /// Fills memory that Python holds; returns the number of bytes.
    fn readinto(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<usize> {
        let mut memory = PythonBuffer(address as *mut u8, size);
        let count = self.read_at_thread_position(py, move |place, file, look| {
            if memory.1 == 0 { Ok(0) } else { place.read_fully(memory.as_mut_slice(), file, look) }
        })?;
        self.count_returned_bytes(count);
        Ok(count)
    }

    /// Returns a line with its line ending, cut to at most `size` bytes.
    #[pyo3(signature = (size=-1))]
    fn readline<'py>(&self, py: Python<'py>, size: i64) -> PyResult<Bound<'py, PyBytes>> {
        let most = usize::try_from(size).unwrap_or(usize::MAX);
        let line = |here: &[u8]| {
            let end = here.iter().take(most).position(|byte| *byte == b'\n');
            end.map(|end| end + 1).or((here.len() >= most).then_some(most))
        };
        if let Some(bytes) = self.take_buffered_bytes(py, line)? {
            return Ok(bytes);
        }
        let bytes = self.read_at_thread_position(py, |place, file, look| {
            let mut all = Vec::new();
            while all.len() < most {
                if place.buffered().is_empty() {
                    place.refill_buffer(file, look)?;
                }
                let here = place.buffered();
                let here = &here[..here.len().min(most - all.len())];
                let end = here.iter().position(|byte| *byte == b'\n');
                let count = end.map_or(here.len(), |end| end + 1);
                all.extend_from_slice(&here[..count]);
                place.offset += count as u64;
                if end.is_some() || count == 0 {
                    break;
                }
            }
            Ok(all)
        })?;
        self.count_returned_bytes(bytes.len());
        Ok(PyBytes::new(py, &bytes))
    }

    /// Seeks from the start, the position, or the end.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let end = match whence {
            0 | 1 => 0,
            2 => match self.require_open_file(py)?.size() {
                Some(size) => size,
                None => self.find_end(py)?,
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
        self.require_open_file(py)?;
        self.sought.lock().insert(std::thread::current().id(), to);
        // If another thread reads meanwhile, its read sets the shared position at its end.
        if let Some(mut place) = self.place.try_lock() {
            place.offset = to;
        }
        Ok(to)
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.require_open_file(py)?;
        if let Some(at) = self.pending_seek() {
            return Ok(at);
        }
        if let Some(place) = self.place.try_lock() {
            return Ok(place.offset);
        }
        self.read_from(py, None, |place, _, _| Ok(place.offset))
    }

    /// Fetches ranges concurrently and returns the bytes of each. The position does not change.
    fn ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let file = self.require_open_file(py)?;
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
                .map_err(|error| to_exception(py, error.into()))?;
            let (now, later) = rest.split_at(count);
            for range in now {
                let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let at = range.start;
                let bytes = self.read_bytes_with(py, length, |out| {
                    self.read_from(py, None, move |_, file, look| Ok(file.read_at(out, at, look)?))
                })?;
                all.push(bytes);
            }
            rest = later;
            py.detach(|| drop(claims));
        }
        Ok(all)
    }

    /// Returns the read statistics of the file so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let is_open = self.file.lock().is_some();
        let mut stats = match is_open {
            true => self.require_open_file(py)?.stats(),
            false => *self.last.lock(),
        };
        stats.served_bytes = self.asked_bytes.load(Ordering::Relaxed);
        stats_dict(py, &stats)
    }

    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        let file = self.file.lock().take();
        match file {
            Some(file) if self.file.is_in_owner_process() => {
                *self.last.lock() = file.stats();
                py.detach(|| drop(file));
            }
            // A copy made by a fork belongs to the other process.
            copy => std::mem::forget(copy),
        }
        if let Some(mut place) = self.place.try_lock() {
            place.buffer = Vec::new();
        }
    }
}

impl RawFile {
    /// Returns the end of a file of unknown size, for which it reads the whole file.
    fn find_end(&self, py: Python<'_>) -> PyResult<u64> {
        self.read_from(py, self.pending_seek(), |place, file, look| {
            let mut piece = vec![0; UNSIZED_READ_PIECE_BYTES];
            let mut end = place.offset;
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

/// Returns read statistics as a dictionary.
pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &ReadStats) -> PyResult<Bound<'py, PyDict>> {
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
