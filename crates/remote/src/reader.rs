//! Reads objects by position, and fetches the next bytes ahead.
//!
//! The reader of a split reads front to back. It declares its range, so that a window of blocks is on its way
//! at once ([`tidemill_prefetch`] chooses blocks and memory). The declared range extends [`SPLIT_TAIL_BYTES`]
//! beyond the split, where its last record nearly always ends. A random reader has windows where it reads on.
//! A reader of samples does not know how much it will need, so it fetches only the requested bytes, in
//! growing steps.
//!
//! All readers of the process share one memory: the largest [`PrefetchBudget`] of the current runs.
//!
//! For a split of small files, [`SMALL_FILES_AHEAD`] files are requested while an earlier one is read, unless
//! the reader has announced the next files otherwise.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::error::Result;
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_prefetch::{
    BlockClaims, Error as PrefetchError, ObjectCursor, PrefetchPool, ReadStats,
};

use super::http::StreamedBody;
use super::object::Object;

/// Maximum size of a small file, which takes one request.
pub const SMALL_FILE_BYTES_MAX: u64 = 4 << 20;
/// Number of small files of a split that are requested ahead.
pub const SMALL_FILES_AHEAD: usize = 8;
/// Number of bytes behind the end of a split that are fetched for its last record.
const SPLIT_TAIL_BYTES: u64 = 64 << 10;
/// Minimum size of a request.
const REQUEST_BYTES_MIN: u64 = 64 << 10;
/// Initial size of a sample.
pub const FIRST_SAMPLE_BYTES: u64 = 1 << 20;
/// Prefetch memory if no run has set a budget.
const MEMORY_BYTES_DEFAULT: u64 = 64 << 20;

/// Number of live budgets, by their size.
static LIVE_BUDGETS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static PREFETCH_POOL: OnceLock<PrefetchPool> = OnceLock::new();

fn largest_budget_bytes(budgets: &BTreeMap<u64, usize>) -> u64 {
    budgets.last_key_value().map_or(MEMORY_BYTES_DEFAULT, |(bytes, _)| *bytes)
}

/// Returns the prefetch pool of this process, which starts with the first object.
pub(crate) fn prefetch_pool() -> Result<&'static PrefetchPool> {
    if let Some(pool) = PREFETCH_POOL.get() {
        return Ok(pool);
    }
    let handle = super::runtime()?.handle().clone();
    let budgets = LIVE_BUDGETS.lock();
    Ok(PREFETCH_POOL.get_or_init(|| PrefetchPool::new(largest_budget_bytes(&budgets), handle)))
}

/// Returns the statistics of all object reads in this process: bytes requested and fetched, and waits.
/// Requests are those for bytes; listings and metadata requests are not counted.
pub fn read_stats() -> ReadStats {
    let mut stats = PREFETCH_POOL.get().map(PrefetchPool::stats).unwrap_or_default();
    super::direct_request_stats::add_direct_requests(&mut stats);
    stats
}

/// The prefetch memory of a run, in bytes, while the run lives; clones share it. The readers of all runs
/// together use the largest budget.
#[derive(Debug, Clone)]
pub struct PrefetchBudget(Arc<BudgetLimit>);

#[derive(Debug)]
struct BudgetLimit {
    bytes: u64,
    /// Size that counts for the pool: `bytes`, unless `read_memory` sets another.
    prefetch_bytes: u64,
}

impl PrefetchBudget {
    /// Creates a budget of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self::with_prefetch_bytes(bytes, None)
    }

    /// Creates a budget of `bytes` bytes, whose prefetch memory is `asked_bytes` if given.
    pub fn with_prefetch_bytes(bytes: u64, asked_bytes: Option<u64>) -> Self {
        let ahead_bytes = asked_bytes.unwrap_or(bytes);
        let mut budgets = LIVE_BUDGETS.lock();
        *budgets.entry(ahead_bytes).or_default() += 1;
        if let Some(pool) = PREFETCH_POOL.get() {
            pool.set_memory_bytes(largest_budget_bytes(&budgets));
        }
        PrefetchBudget(Arc::new(BudgetLimit { bytes, prefetch_bytes: ahead_bytes }))
    }

    /// Returns the number of bytes that the readers of the run may fill.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Default for PrefetchBudget {
    fn default() -> Self {
        PrefetchBudget::new(MEMORY_BYTES_DEFAULT)
    }
}

impl Drop for BudgetLimit {
    fn drop(&mut self) {
        // The budget lives as long as the run, so the run has ended.
        super::tuning::record_finished_run();
        let stats = read_stats();
        if stats.requests + stats.disk_reads > 0 {
            let kept = super::disk_cache::disk_stats();
            tracing::debug!(
                asked_bytes = stats.served_bytes,
                fetched_bytes = stats.fetched_bytes,
                wasted_bytes = stats.wasted_bytes,
                requests = stats.requests,
                hits = stats.hits,
                stalls = stats.stalls,
                stall_ms = u64::try_from(stats.stall_time.as_millis()).unwrap_or(u64::MAX),
                retries = stats.retries,
                throttled = stats.throttled_responses,
                hedges = stats.hedges,
                hedges_won = stats.hedges_won,
                taken_back = stats.evicted_blocks,
                disk_bytes = kept.read_bytes,
                disk_reads = kept.reads,
                disk_written_bytes = kept.written_bytes,
                disk_dropped_bytes = kept.dropped_bytes,
                disk_evicted_bytes = kept.evicted_bytes,
                disk_damaged = kept.damaged_files,
                "read ahead so far"
            );
        }
        let mut budgets = LIVE_BUDGETS.lock();
        if let Some(count) = budgets.get_mut(&self.prefetch_bytes) {
            *count -= 1;
            if *count == 0 {
                budgets.remove(&self.prefetch_bytes);
            }
        }
        if let Some(pool) = PREFETCH_POOL.get() {
            pool.set_memory_bytes(largest_budget_bytes(&budgets));
        }
    }
}

/// The part of an object that a reader will read, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPattern {
    /// From some offset to the end of a split, and a little beyond it.
    UntilSplitEnd(u64),
    /// From the beginning, up to an unknown offset.
    Sample,
    /// The first bytes, in reads as small as requested. A small object is fetched whole if it may be kept.
    Beginning {
        /// True if the whole object may be kept.
        may_keep: bool,
    },
    /// At any offsets.
    Random,
}

/// A reader of one object.
#[derive(Debug)]
pub struct ObjectReader {
    object: Arc<Object>,
    pattern: ReadPattern,
    cancel: CancelFlag,
    /// Keeps the budget of the run alive.
    _budget: PrefetchBudget,
    cursor: OnceLock<ObjectCursor>,
    state: Mutex<ReaderState>,
}

/// Mutable state of a reader.
#[derive(Debug, Default)]
struct ReaderState {
    buffer: ReadBuffer,
    /// Offset of the next piece of the body.
    next_piece_start: u64,
    /// Size of the next range of a sample.
    step_bytes: u64,
    /// True once the range up to the end of the split is declared.
    is_declared: bool,
    /// Body of an object that can only be read whole.
    body: Option<StreamedBody>,
}

#[derive(Debug, Default)]
struct ReadBuffer {
    start: u64,
    bytes: Bytes,
}

impl ObjectReader {
    /// Creates a reader. It prefetches within `budget`.
    pub fn new(
        object: Arc<Object>,
        access: ReadPattern,
        cancel: CancelFlag,
        budget: PrefetchBudget,
    ) -> ObjectReader {
        let (cursor, state) = (OnceLock::new(), Mutex::default());
        ObjectReader { object, pattern: access, cancel, _budget: budget, cursor, state }
    }

    /// Returns the object.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Declares that the split will be read from `offset` to its end, so that its blocks are on their way
    /// from now on.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the network threads cannot be started.
    pub fn start_split_at(&self, offset: u64) -> Result<()> {
        let ReadPattern::UntilSplitEnd(end) = self.pattern else { return Ok(()) };
        if self.object.is_stream() || std::mem::replace(&mut self.state.lock().is_declared, true) {
            return Ok(());
        }
        let range = offset.max(self.object.kept_head_bytes())..end.saturating_add(SPLIT_TAIL_BYTES);
        let range = range.start..range.end.min(self.object.size());
        // Bytes that are kept or requested early need no window.
        if range.start < range.end && !self.object.has_early_fetch() {
            self.cursor()?.declare_range(range);
        }
        Ok(())
    }

    /// Starts to fetch ranges that will be read in this order, each by itself. They stay in memory until the
    /// claims are dropped.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the network threads cannot be started.
    pub fn prefetch_ranges(&self, ranges: &[Range<u64>]) -> Result<BlockClaims> {
        Ok(self.object.opened_object()?.prefetch_ranges(ranges))
    }

    /// Declares that a range will be read front to back, along with other ranges.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the network threads cannot be started.
    pub fn declare_range(&self, range: Range<u64>) -> Result<()> {
        self.cursor()?.declare_range(range);
        Ok(())
    }

    fn cursor(&self) -> Result<&ObjectCursor> {
        if let Some(cursor) = self.cursor.get() {
            return Ok(cursor);
        }
        let cursor = ObjectCursor::new(Arc::clone(self.object.opened_object()?));
        Ok(self.cursor.get_or_init(|| cursor))
    }

    fn cancel_tick(&self) -> impl FnMut() -> tidemill_prefetch::Result<()> {
        || self.cancel.check().map_err(|_| PrefetchError::Interrupted)
    }

    /// Reads from `offset` on until `out` is full or the object ends.
    ///
    /// # Errors
    /// [`Error::Changed`](crate::error::Error::Changed), [`Error::Remote`](crate::error::Error::Remote) and
    /// [`Error::Interrupted`](crate::error::Error::Interrupted).
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        if self.object.is_stream() {
            return self.read_stream(&mut self.state.lock(), out, offset);
        }
        let left = self.object.size().saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let mut filled = 0;
        while filled < wanted {
            let (at, out) = (offset + filled as u64, &mut out[filled..wanted]);
            filled += match self.object.kept_head() {
                Some(head) if at < head.len() as u64 => copy_from(head, 0, out, at),
                _ => self.read_behind_head(out, at)?,
            };
        }
        Ok(filled)
    }

    /// Reads some bytes behind the kept first bytes. Returns 0 if it has filled the buffer instead.
    fn read_behind_head(&self, out: &mut [u8], at: u64) -> Result<usize> {
        let count = self.state.lock().buffer.copy_to(out, at);
        if count > 0 {
            return Ok(count);
        }
        match self.pattern {
            ReadPattern::UntilSplitEnd(_) => {
                if at == 0
                    && let Some((_, early)) = self.object.take_early_fetch()
                {
                    let bytes = early.wait(&self.cancel)?;
                    self.state.lock().buffer = ReadBuffer { start: 0, bytes };
                    return Ok(0);
                }
                self.start_split_at(at)?;
                Ok(self.cursor()?.read_at(out, at, out.len(), &mut self.cancel_tick())?)
            }
            ReadPattern::Random if out.len() as u64 >= REQUEST_BYTES_MIN => {
                Ok(self.cursor()?.read_at(out, at, out.len(), &mut self.cancel_tick())?)
            }
            ReadPattern::Random => {
                let left = self.object.size().saturating_sub(at).min(REQUEST_BYTES_MIN);
                let mut bytes = vec![0; usize::try_from(left).unwrap_or(0)];
                let least = bytes.len();
                self.cursor()?.read_at(&mut bytes, at, least, &mut self.cancel_tick())?;
                self.state.lock().buffer = ReadBuffer { start: at, bytes: bytes.into() };
                Ok(0)
            }
            ReadPattern::Sample | ReadPattern::Beginning { .. } => {
                self.read_beginning(at, out.len() as u64)?;
                Ok(0)
            }
        }
    }

    /// Fills the buffer from offset `at` of a sample.
    fn read_beginning(&self, at: u64, wanted: u64) -> Result<()> {
        let size = self.object.size();
        let (range, fetch) = match self.object.take_early_fetch().filter(|_| at == 0) {
            Some((end, fetch)) => (0..end, fetch),
            None => {
                let least = match self.pattern {
                    ReadPattern::Sample => FIRST_SAMPLE_BYTES,
                    ReadPattern::Beginning { may_keep: true } => size.min(SMALL_FILE_BYTES_MAX),
                    _ => wanted.min(SMALL_FILE_BYTES_MAX),
                };
                let mut state = self.state.lock();
                state.step_bytes =
                    (state.step_bytes * 2).clamp(least, SMALL_FILE_BYTES_MAX.max(least));
                let bytes = state.step_bytes.max(wanted.min(SMALL_FILE_BYTES_MAX));
                let range = at..at.saturating_add(bytes).min(size);
                (range.clone(), self.object.fetch_range(range)?)
            }
        };
        let bytes = fetch.wait(&self.cancel)?;
        let is_kept = match self.pattern {
            ReadPattern::Beginning { may_keep: keeps } => keeps && range.end == size,
            _ => true,
        };
        if range.start == 0 && is_kept {
            self.object.keep_head(&bytes);
        }
        self.state.lock().buffer = ReadBuffer { start: range.start, bytes };
        Ok(())
    }

    /// Returns the bytes from `at` to the end of their block, without a copy. These are at least `bytes`
    /// bytes if they lie within one block.
    ///
    /// # Errors
    /// As for [`read_at`](Self::read_at).
    pub fn block_rest_at(&self, at: u64, bytes: usize) -> Result<Bytes> {
        Ok(self.cursor()?.block_rest_at(at, bytes, &mut self.cancel_tick())?)
    }

    /// Continues to read a body that has no ranges.
    fn read_stream(&self, state: &mut ReaderState, out: &mut [u8], offset: u64) -> Result<usize> {
        // The buffer holds the last piece, which may be read in parts.
        if state.body.is_none() || offset < state.buffer.start {
            state.body = Some(self.object.open_stream()?);
            state.buffer = ReadBuffer::default();
            state.next_piece_start = 0;
        }
        let mut filled = 0;
        while filled < out.len() {
            let at = offset + filled as u64;
            let count = state.buffer.copy_to(&mut out[filled..], at);
            filled += count;
            if count > 0 {
                continue;
            }
            let Some(body) = &mut state.body else { break };
            let start = state.next_piece_start;
            match body.next(&self.cancel)? {
                Some(bytes) => {
                    state.next_piece_start += bytes.len() as u64;
                    state.buffer = ReadBuffer { start, bytes };
                }
                None => break,
            }
        }
        Ok(filled)
    }
}

fn copy_from(held: &[u8], start: u64, out: &mut [u8], at: u64) -> usize {
    let skip = at.checked_sub(start).and_then(|skip| usize::try_from(skip).ok());
    let held = skip.and_then(|skip| held.get(skip..)).unwrap_or_default();
    let count = held.len().min(out.len());
    out[..count].copy_from_slice(&held[..count]);
    count
}

impl ReadBuffer {
    /// Copies the held bytes from offset `at` on, and returns their number.
    fn copy_to(&self, out: &mut [u8], at: u64) -> usize {
        copy_from(&self.bytes, self.start, out, at)
    }
}
