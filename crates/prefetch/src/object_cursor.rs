//! Which bytes will be wanted next, told from those that were read.
//!
//! ```text
//!            next            claimed_to
//!  ───────────▼──────────────────▼──────────────────► offset
//!      read   │  [ block ][ block ]
//!   released  └──── size ─────┘    doubles each time that the reader had to wait
//! ```
//!
//! A position that is read on from is a window. A read that is at no window's place opens one of size
//! zero: only its own bytes are fetched. The next one that goes on there makes it [`Options::first_bytes`](crate::Options::first_bytes), and
//! each one that had to wait doubles it, up to the limit. A range that is declared has all of its
//! window at once and nothing behind its end. Of [`WINDOWS_MAX`] windows the one that was left longest ago
//! makes room for a new place, so random reading soon has none that reaches anywhere; what is declared stays
//! until it has been read.
//!
//! A read that fails ends what is on its way for its window: what is read next is asked for then, and does not fail
//! for what was asked for before.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use crate::block_buffer::BlockBuffer;
use crate::error::{Error, Result};
use crate::prefetch_pool::{BlockClaim, BlockClaims, DemandedBlock, OpenedObject};
use crate::stats::{ReadCounters, ReadStats};
use crate::tuner::AccessOrder;

/// What is claimed of a window at once, if blocks are not smaller.
const CLAIM_GRAIN_BYTES: u64 = 1 << 20;
/// So many places of an object are followed at once.
const WINDOWS_MAX: usize = 16;
/// A block stays until reading is so far behind its end: who looks for where a record begins goes back to there.
const KEPT_BEHIND_BYTES: u64 = 64 << 10;
/// A step forward that is not longer than this still goes on at a place.
const FORWARD_SKIP_BYTES_MAX: u64 = 1 << 20;

/// Reads an object at any place, from several threads if need be; what lies ahead of each place is
/// fetched meanwhile.
#[derive(Debug)]
pub struct ObjectCursor {
    object: Arc<OpenedObject>,
    windows: Mutex<ReadWindows>,
    counters: Arc<ReadCounters>,
}

#[derive(Debug, Default)]
struct ReadWindows {
    windows: Vec<ReadWindow>,
    /// Counts the reads.
    read_count: u64,
    /// Those of them that were at no window's place.
    unmatched_reads: u64,
    has_declared: bool,
}

#[derive(Debug)]
struct ReadWindow {
    /// Where the last read ended.
    next_offset: u64,
    /// Where reading is going to end.
    end_offset: u64,
    /// So far ahead of `next` blocks are claimed.
    size_bytes: u64,
    /// Up to here they are.
    claimed_to: u64,
    claims: Vec<BlockClaim>,
    is_declared: bool,
    had_to_wait: bool,
    last_read: u64,
}

impl ReadWindow {
    fn new(at: u64, end: u64) -> ReadWindow {
        ReadWindow {
            next_offset: at,
            end_offset: end,
            size_bytes: 0,
            claimed_to: at,
            claims: Vec::new(),
            is_declared: false,
            had_to_wait: false,
            last_read: 0,
        }
    }

    /// How far a read at `at` is from where it would go on; none if it is elsewhere.
    fn distance_to(&self, at: u64) -> Option<u64> {
        let skip = if self.size_bytes > 0 { FORWARD_SKIP_BYTES_MAX } else { 0 };
        let low = self.claims.iter().map(|held| held.range.start).min().unwrap_or(self.next_offset);
        let high = self.next_offset.max(self.claimed_to).saturating_add(skip);
        (low.min(self.next_offset) <= at && at <= high).then(|| at.abs_diff(self.next_offset))
    }

    /// Grows as it should before a read.
    fn grow_before_read(&mut self, first: u64, limit: u64) {
        let waited = std::mem::take(&mut self.had_to_wait);
        let wanted = match self.size_bytes {
            _ if self.is_declared => limit,
            0 => first,
            size if waited => size.saturating_mul(2),
            size => size,
        };
        self.size_bytes = wanted.min(limit);
    }
}

impl ReadWindows {
    fn window_at(&self, at: u64) -> Option<usize> {
        let near = |(index, window): (usize, &ReadWindow)| Some((window.distance_to(at)?, index));
        self.windows.iter().enumerate().filter_map(near).min().map(|(_, index)| index)
    }

    /// Adds a window; the one that was left longest ago goes, if there are too many.
    fn add_window(&mut self, window: ReadWindow) -> (usize, Option<ReadWindow>) {
        let mut gone = None;
        if self.windows.len() >= WINDOWS_MAX {
            let may_go = |window: &ReadWindow| {
                !window.is_declared || window.next_offset >= window.end_offset
            };
            let all = self.windows.iter().enumerate().filter(|(_, window)| may_go(window));
            let oldest = all.min_by_key(|(_, window)| window.last_read);
            gone = oldest.map(|(index, _)| index).map(|index| self.windows.swap_remove(index));
        }
        self.windows.push(window);
        (self.windows.len() - 1, gone)
    }
}

impl ObjectCursor {
    /// A reader of an object, of which nothing is known yet.
    pub fn new(object: Arc<OpenedObject>) -> ObjectCursor {
        let counters = Arc::default();
        object.record_settings(&counters);
        ObjectCursor { object, windows: Mutex::default(), counters }
    }

    /// What it reads.
    pub fn object(&self) -> &Arc<OpenedObject> {
        &self.object
    }

    /// What it did so far.
    pub fn stats(&self) -> ReadStats {
        self.counters.snapshot()
    }

    /// How far ahead of the places that are read on from blocks are claimed by now, in bytes, all windows
    /// together.
    pub fn window_bytes(&self) -> u64 {
        self.windows.lock().windows.iter().map(|window| window.size_bytes).sum()
    }

    /// In which order it was read so far.
    pub fn access_order(&self) -> AccessOrder {
        let windows = self.windows.lock();
        match (windows.unmatched_reads, windows.read_count) {
            _ if windows.has_declared => AccessOrder::Declared,
            // Half of the reads went on where another one had ended.
            (opened, reads) if opened * 2 <= reads => AccessOrder::Sequential,
            _ => AccessOrder::Random,
        }
    }

    /// Says that a range will be read from its beginning to its end. Its blocks are fetched from now on, as
    /// far as a window reaches.
    pub fn declare_range(&self, range: Range<u64>) {
        let end = range.end.min(self.object.size());
        let mut window = ReadWindow::new(range.start, end);
        window.is_declared = true;
        let shared = &self.object.pool.0;
        shared.count_opened_window();
        window.size_bytes = self.object.window_bytes_max(shared.open_windows());
        let first = range.start..end.min(range.start.saturating_add(window.size_bytes));
        let gone = {
            let mut windows = self.windows.lock();
            windows.read_count += 1;
            windows.has_declared = true;
            window.last_read = windows.read_count;
            window.claimed_to = first.end;
            let left = Some(self.object.remaining_bytes(range.start, shared.open_windows()));
            window.claims = self.object.claim_range(first, true, true, left, &self.counters);
            windows.add_window(window).1
        };
        self.release_window(gone);
    }

    /// Tells of ranges that will be read, as [`Opened::claim`] does; what is fetched for them counts as this
    /// reader's.
    pub fn prefetch_ranges(&self, ranges: &[Range<u64>]) -> BlockClaims {
        self.object.prefetch_ranges_counted(ranges, &self.counters)
    }

    fn release_window(&self, window: Option<ReadWindow>) {
        let Some(window) = window else { return };
        if window.size_bytes > 0 {
            self.object.pool.0.count_closed_window();
        }
        self.object.pool.0.release_claims(window.claims.into_iter());
    }

    /// The block with the byte at `at`, of which up to `bytes` are wanted; what comes behind is claimed
    /// before anybody waits. Where reading is not followed, only windows that were declared move on.
    fn begin_read(&self, at: u64, bytes: usize, is_followed: bool) -> BlockRead<'_> {
        let shared = &self.object.pool.0;
        let size = self.object.size();
        let ends = at.saturating_add(bytes as u64).min(size);
        let mut released = Vec::new();
        let mut gone = None;
        let found = {
            let mut windows = self.windows.lock();
            windows.read_count += 1;
            let clock = windows.read_count;
            let known = windows.window_at(at);
            let known = known.filter(|index| is_followed || windows.windows[*index].is_declared);
            let mut unfollowed = ReadWindow::new(at, size);
            let window = match known {
                Some(index) => &mut windows.windows[index],
                None if !is_followed => &mut unfollowed,
                None => {
                    windows.unmatched_reads += 1;
                    let (index, oldest) = windows.add_window(ReadWindow::new(at, size));
                    gone = oldest;
                    &mut windows.windows[index]
                }
            };
            window.last_read = clock;
            if known.is_some() {
                if window.is_declared && at >= window.end_offset {
                    // Behind what was declared it is a place as any other.
                    (window.is_declared, window.end_offset) = (false, size);
                }
                let before = window.size_bytes;
                let first = self.object.options.first_window_bytes;
                window.grow_before_read(first, self.object.window_bytes_max(shared.open_windows()));
                match (before, window.size_bytes) {
                    (0, 1..) => shared.count_opened_window(),
                    (1.., 0) => shared.count_closed_window(),
                    _ => {}
                }
                let behind = at.saturating_sub(KEPT_BEHIND_BYTES);
                let is_passed = |held: &mut BlockClaim| held.range.end <= behind;
                released.extend(window.claims.extract_if(.., is_passed));
            }
            window.next_offset = ends;
            let ahead =
                if window.size_bytes == 0 { None } else { self.ahead_claim(window, at, ends) };
            let counters = &self.counters;
            shared.demand_block(&self.object, at, ends - at, counters, &mut released, ahead)
        };
        self.release_window(gone);
        let DemandedBlock { buffer, buffer_offset: skip, claim: held } = found;
        let reach = usize::try_from(held.range.end - at).unwrap_or(usize::MAX).min(bytes);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        BlockRead {
            cursor: self,
            start_offset: at,
            wanted_end: ends,
            buffer,
            buffer_offset: skip,
            wanted_bytes: reach,
            claim: held,
        }
    }

    /// What a window claims when `at..ends` is read: the range, up to where it has been claimed before, and
    /// who keeps the claims.
    fn ahead_claim<'a>(
        &self,
        window: &'a mut ReadWindow,
        at: u64,
        ends: u64,
    ) -> Option<(Range<u64>, u64, &'a mut Vec<BlockClaim>)> {
        let from = if window.is_declared || window.claimed_to > at { at } else { ends };
        // Not by slivers.
        let grain = CLAIM_GRAIN_BYTES.min(self.object.block_bytes());
        let to = ends.saturating_add(window.size_bytes).div_ceil(grain).saturating_mul(grain);
        let to = to.min(window.end_offset);
        let known_to = window.claimed_to;
        window.claimed_to = known_to.max(to);
        (from < to).then_some((from..to, known_to, &mut window.claims))
    }

    fn record_stall(&self, at: u64, since: Instant) {
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for counters in self.all_counters() {
            counters.stalls.fetch_add(1, Ordering::Relaxed);
            counters.stall_ns.fetch_add(waited, Ordering::Relaxed);
        }
        let mut windows = self.windows.lock();
        if let Some(index) = windows.window_at(at) {
            windows.windows[index].had_to_wait = true;
        }
    }

    fn all_counters(&self) -> [&ReadCounters; 2] {
        [&self.counters, &self.object.pool.0.counters]
    }

    /// How much of what is wanted from `at` on is asked for in one go.
    fn request_length(&self, at: u64, bytes: usize) -> usize {
        let left = self.object.size().saturating_sub(at).min(self.object.block_bytes());
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Reads into `out` from `at` on, `least` bytes of it at least, waiting on this thread and calling
    /// `tick` 20 times a second; fewer only at the object's end.
    ///
    /// # Errors
    /// Those of the origin, and of `tick`.
    pub fn read_at(
        &self,
        out: &mut [u8],
        at: u64,
        least: usize,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<usize> {
        let mut done = 0;
        while done == 0 || done < least {
            let at = at + done as u64;
            let wanted = self.request_length(at, out.len() - done);
            if wanted == 0 {
                break;
            }
            let reading = self.begin_read(at, wanted, true);
            let least = least.saturating_sub(done).clamp(1, reading.wanted_bytes);
            match reading.wait_blocking(least, tick) {
                Ok(()) => {}
                Err(Error::Evicted) => continue,
                Err(error) => return Err(reading.cancel_ahead_claims(error)),
            }
            let there = reading.available_bytes();
            out[done..done + there.len()].copy_from_slice(there);
            let count = reading.record_served(there.len());
            reading.record_read_length(count);
            done += count;
        }
        Ok(done)
    }

    /// The bytes from `at` to the end of the block that they are in, without copying them, and all of them
    /// there: `bytes` at least, where they lie in one block. Waits on this thread. For what was declared or
    /// claimed: nothing else is fetched ahead for it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn block_rest_at(
        &self,
        at: u64,
        bytes: usize,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Bytes> {
        loop {
            let wanted = self.request_length(at, bytes);
            if wanted == 0 {
                return Ok(Bytes::new());
            }
            let mut reading = self.begin_read(at, wanted, false);
            reading.wanted_bytes = reading.bytes_to_block_end();
            match reading.wait_blocking(reading.wanted_bytes, tick) {
                Ok(()) => {
                    let count = reading.wanted_bytes;
                    reading.record_served(count);
                    return Ok(reading.shared_bytes(count));
                }
                Err(Error::Evicted) => {}
                Err(error) => return Err(reading.cancel_ahead_claims(error)),
            }
        }
    }

    /// What is there from `at` on in the block that it is in, without copying it: `bytes` at most, and at
    /// least one, but for the object's end.
    ///
    /// # Errors
    /// Those of the origin.
    pub async fn read(&self, at: u64, bytes: usize) -> Result<Bytes> {
        self.read_part(at, bytes, false).await
    }

    async fn read_part(&self, at: u64, bytes: usize, is_whole: bool) -> Result<Bytes> {
        loop {
            let wanted = self.request_length(at, bytes);
            if wanted == 0 {
                return Ok(Bytes::new());
            }
            let reading = self.begin_read(at, wanted, true);
            match reading.wait(if is_whole { reading.wanted_bytes } else { 1 }).await {
                Ok(()) => {
                    let count = reading.available_bytes().len();
                    reading.record_served(count);
                    if !is_whole {
                        reading.record_read_length(count);
                    }
                    return Ok(reading.shared_bytes(count));
                }
                Err(Error::Evicted) => {}
                Err(error) => return Err(reading.cancel_ahead_claims(error)),
            }
        }
    }

    /// A range, as far as there is so much; not copied if it lies in one block.
    ///
    /// # Errors
    /// Those of the origin.
    pub async fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        let end = range.end.min(self.object.size());
        let length = usize::try_from(end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        // More than one block comes concurrently.
        let claims = (length > self.request_length(range.start, length))
            .then(|| self.object.prefetch_ranges(std::slice::from_ref(&(range.start..end))));
        let first = self.read_part(range.start, length, true).await?;
        if first.len() == length {
            return Ok(first);
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&first);
        while all.len() < length {
            let at = range.start + all.len() as u64;
            all.extend_from_slice(&self.read_part(at, length - all.len(), true).await?);
        }
        drop(claims);
        Ok(all.freeze())
    }
}

impl Drop for ObjectCursor {
    fn drop(&mut self) {
        let all = std::mem::take(&mut self.windows.get_mut().windows);
        all.into_iter().for_each(|window| self.release_window(Some(window)));
    }
}

/// One read of one block, which stays meanwhile.
struct BlockRead<'a> {
    cursor: &'a ObjectCursor,
    start_offset: u64,
    /// Where it would end if it was given all that it asked for.
    wanted_end: u64,
    buffer: Arc<BlockBuffer>,
    /// Where in the buffer the byte at `at` is.
    buffer_offset: usize,
    /// How many bytes from there on are wanted and in this block.
    wanted_bytes: usize,
    claim: BlockClaim,
}

impl BlockRead<'_> {
    /// How many bytes there are from `at` to the block's end.
    fn bytes_to_block_end(&self) -> usize {
        usize::try_from(self.claim.range.end - self.start_offset).unwrap_or(usize::MAX)
    }

    /// Whether so many bytes of it have to be waited for.
    fn is_ready(&self, count: usize) -> Result<bool> {
        match self.buffer.readiness(self.buffer_offset + count) {
            Some(Ok(())) => {
                for counters in self.cursor.all_counters() {
                    counters.hits.fetch_add(1, Ordering::Relaxed);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        }
    }

    async fn wait(&self, count: usize) -> Result<()> {
        if !self.is_ready(count)? {
            let since = Instant::now();
            self.buffer.wait_for(self.buffer_offset + count).await?;
            self.cursor.record_stall(self.start_offset, since);
        }
        Ok(())
    }

    fn wait_blocking(&self, count: usize, tick: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        if !self.is_ready(count)? {
            let since = Instant::now();
            self.buffer.wait_blocking(self.buffer_offset + count, tick)?;
            self.cursor.record_stall(self.start_offset, since);
        }
        Ok(())
    }

    fn available_bytes(&self) -> &[u8] {
        let end = self.buffer.filled_bytes().min(self.buffer_offset + self.wanted_bytes);
        self.buffer.slice(self.buffer_offset..end)
    }

    fn shared_bytes(&self, count: usize) -> Bytes {
        Arc::clone(&self.buffer).into_shared_bytes(self.buffer_offset..self.buffer_offset + count)
    }

    /// Says that it was given so much, which may be less than it asked for: the next one goes on there.
    fn record_read_length(&self, count: usize) {
        let end = self.start_offset + count as u64;
        if end < self.wanted_end {
            let mut windows = self.cursor.windows.lock();
            let own =
                windows.windows.iter_mut().find(|window| window.next_offset == self.wanted_end);
            if let Some(window) = own {
                window.next_offset = end;
            }
        }
    }

    /// Ends what was asked for with it, after it has failed: requests that were made before would most likely fail,
    /// too, and with them a read that comes when all is well again.
    fn cancel_ahead_claims(self, error: Error) -> Error {
        self.record_read_length(0);
        let dropped = {
            let mut windows = self.cursor.windows.lock();
            let own =
                windows.windows.iter_mut().find(|window| window.next_offset == self.start_offset);
            own.map(|window| {
                window.claimed_to = window.claimed_to.min(self.start_offset);
                std::mem::take(&mut window.claims)
            })
        };
        self.cursor.object.pool.0.release_claims(dropped.into_iter().flatten());
        error
    }

    fn record_served(&self, count: usize) -> usize {
        self.buffer.served_bytes.fetch_add(count as u64, Ordering::Relaxed);
        for counters in self.cursor.all_counters() {
            counters.served_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        count
    }
}

impl Drop for BlockRead<'_> {
    fn drop(&mut self) {
        self.cursor.object.pool.0.finish_read(&self.claim);
    }
}
