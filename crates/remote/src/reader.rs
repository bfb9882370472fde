//! Reading an object by position, with what comes next on its way.
//!
//! Whoever reads a split reads front to back: its bytes are declared, and a window of blocks is on its
//! way at once ([`tidemill_prefetch`] says which, and in which memory). The declared range takes
//! [`TAIL_BYTES`] more, in which the last record of a split nearly always ends. Who reads here and there has
//! windows where reading goes on. Of beginnings, of which nobody knows how much is read, just what is
//! asked for is fetched, in steps that grow.
//!
//! The memory is one for the whole process: the largest [`Budget`] that a run has given.
//!
//! Of the small files of a split, [`FILES_AHEAD`] are asked for while the one before is read, where the
//! files to come were not told of otherwise.

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

/// A file of at most so much is small: one request brings it.
pub const SMALL_FILE_BYTES_MAX: u64 = 4 << 20;
/// So many small files of a split are asked for early.
pub const SMALL_FILES_AHEAD: usize = 8;
/// Behind a split's end: room for the end of its last record.
const SPLIT_TAIL_BYTES: u64 = 64 << 10;
/// The least that is asked for.
const REQUEST_BYTES_MIN: u64 = 64 << 10;
/// A sample starts with so much.
pub const FIRST_SAMPLE_BYTES: u64 = 1 << 20;
/// The memory for what is read ahead where no run has said.
const MEMORY_BYTES_DEFAULT: u64 = 64 << 20;

/// The budgets of the runs that there are, and how many have each.
static LIVE_BUDGETS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static PREFETCH_POOL: OnceLock<PrefetchPool> = OnceLock::new();

fn largest_budget_bytes(budgets: &BTreeMap<u64, usize>) -> u64 {
    budgets.last_key_value().map_or(MEMORY_BYTES_DEFAULT, |(bytes, _)| *bytes)
}

/// What is read ahead of all objects, started with the first of them.
pub(crate) fn prefetch_pool() -> Result<&'static PrefetchPool> {
    if let Some(pool) = PREFETCH_POOL.get() {
        return Ok(pool);
    }
    let handle = super::runtime()?.handle().clone();
    let budgets = LIVE_BUDGETS.lock();
    Ok(PREFETCH_POOL.get_or_init(|| PrefetchPool::new(largest_budget_bytes(&budgets), handle)))
}

/// What was asked for, fetched and waited for, in all that this process has read of objects. Requests are
/// those for bytes: what lists, and asks for sizes, is not among them.
pub fn read_stats() -> ReadStats {
    let mut stats = PREFETCH_POOL.get().map(PrefetchPool::stats).unwrap_or_default();
    super::direct_request_stats::add_direct_requests(&mut stats);
    stats
}

/// The memory that a run's readers may fill ahead, in bytes, while it lives; cloning shares it. The
/// readers of all runs share the largest.
#[derive(Debug, Clone)]
pub struct PrefetchBudget(Arc<BudgetLimit>);

#[derive(Debug)]
struct BudgetLimit {
    bytes: u64,
    /// What counts: the same, if nothing else was asked for.
    prefetch_bytes: u64,
}

impl PrefetchBudget {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self::with_prefetch_bytes(bytes, None)
    }

    /// So many bytes, and for what is fetched ahead as many as were asked for, if they were.
    pub fn with_prefetch_bytes(bytes: u64, asked_bytes: Option<u64>) -> Self {
        let ahead_bytes = asked_bytes.unwrap_or(bytes);
        let mut budgets = LIVE_BUDGETS.lock();
        *budgets.entry(ahead_bytes).or_default() += 1;
        if let Some(pool) = PREFETCH_POOL.get() {
            pool.set_memory_bytes(largest_budget_bytes(&budgets));
        }
        PrefetchBudget(Arc::new(BudgetLimit { bytes, prefetch_bytes: ahead_bytes }))
    }

    /// How many bytes a run's readers may fill.
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
        // A run ends with its budget.
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

/// What a reader is going to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPattern {
    /// From somewhere up to the end of a split, and little beyond.
    UntilSplitEnd(u64),
    /// The beginning, nobody knows how much of it.
    Sample,
    /// The very beginning, in reads as small as are asked for; of a small object all of it, which
    /// may be kept.
    Beginning {
        /// Whether all of it may be kept.
        may_keep: bool,
    },
    /// Here and there.
    Random,
}

/// An object that is being read.
#[derive(Debug)]
pub struct ObjectReader {
    object: Arc<Object>,
    pattern: ReadPattern,
    cancel: CancelFlag,
    /// As long as somebody reads by it, it counts.
    _budget: PrefetchBudget,
    cursor: OnceLock<ObjectCursor>,
    state: Mutex<ReaderState>,
}

/// What a reader has for itself.
#[derive(Debug, Default)]
struct ReaderState {
    buffer: ReadBuffer,
    /// Where the next piece of a body starts.
    next_piece_start: u64,
    /// The size of the next range of a beginning.
    step_bytes: u64,
    /// Whether the range up to the end of a split has been declared.
    is_declared: bool,
    /// What can only be read whole.
    body: Option<StreamedBody>,
}

#[derive(Debug, Default)]
struct ReadBuffer {
    start: u64,
    bytes: Bytes,
}

impl ObjectReader {
    /// A reader of an object from its beginning; what it asks for ahead is taken from `budget`.
    pub fn new(
        object: Arc<Object>,
        access: ReadPattern,
        cancel: CancelFlag,
        budget: PrefetchBudget,
    ) -> ObjectReader {
        let (cursor, state) = (OnceLock::new(), Mutex::default());
        ObjectReader { object, pattern: access, cancel, _budget: budget, cursor, state }
    }

    /// What it reads.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Says that reading up to the end of a split starts here: what is to come is on its way from now on.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
    pub fn start_split_at(&self, offset: u64) -> Result<()> {
        let ReadPattern::UntilSplitEnd(end) = self.pattern else { return Ok(()) };
        if self.object.is_stream() || std::mem::replace(&mut self.state.lock().is_declared, true) {
            return Ok(());
        }
        let range = offset.max(self.object.kept_head_bytes())..end.saturating_add(SPLIT_TAIL_BYTES);
        let range = range.start..range.end.min(self.object.size());
        // What comes early, or is here, needs no window.
        if range.start < range.end && !self.object.has_early_fetch() {
            self.cursor()?.declare_range(range);
        }
        Ok(())
    }

    /// Tells of ranges that will be read, in this order, each of which is fetched by itself; they stay
    /// until the claims are dropped.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
    pub fn prefetch_ranges(&self, ranges: &[Range<u64>]) -> Result<BlockClaims> {
        Ok(self.object.opened_object()?.prefetch_ranges(ranges))
    }

    /// Says that a range will be read front to back, together with others.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
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

    /// Fills `out` from `offset`; fewer bytes only at the object's end.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Remote`] and [`Error::Interrupted`].
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

    /// Some bytes behind the head.
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

    /// Makes the window hold the byte at `at` of a beginning.
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

    /// The bytes from `at` on to the end of the block that they are in, without copying them: `bytes`
    /// at least where they lie in one block.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn block_rest_at(&self, at: u64, bytes: usize) -> Result<Bytes> {
        Ok(self.cursor()?.block_rest_at(at, bytes, &mut self.cancel_tick())?)
    }

    /// Reads on in a body that has no ranges.
    fn read_stream(&self, state: &mut ReaderState, out: &mut [u8], offset: u64) -> Result<usize> {
        // What came last may be read piece by piece.
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
    /// Copies what it holds from `at` on.
    fn copy_to(&self, out: &mut [u8], at: u64) -> usize {
        copy_from(&self.bytes, self.start, out, at)
    }
}
