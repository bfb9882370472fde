//! Prediction of the next bytes from those that were read.
//!
//! ```text
//!         next_offset        claimed_to
//!  ───────────▼──────────────────▼──────────────────► offset
//!      read   │  [ block ][ block ]
//!   released  └── size_bytes ┘    doubles each time that the reader had to wait
//! ```
//!
//! A window follows a position from which reading continues. A read that continues no window opens one of
//! size zero: it fetches only its own bytes. The next read that continues there sets the size to
//! [`Options::first_window_bytes`](crate::Options::first_window_bytes), and each one that had to wait doubles
//! it, up to the limit. A declared range has its full window at once and nothing beyond its end. Of
//! [`WINDOWS_MAX`] windows, the least recently read one makes room for a new one, so random reading soon has
//! no window with a size. A declared window stays until its range has been read.
//!
//! A failed read drops the blocks in flight for its window. The next read makes its own requests and does not
//! fail because of older ones.

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

/// Bytes that a window claims at once, unless blocks are smaller.
const CLAIM_GRAIN_BYTES: u64 = 1 << 20;
/// Maximum number of positions in an object that are followed at once.
const WINDOWS_MAX: usize = 16;
/// Distance behind its end at which a block is released: a search for a record's start steps back to there.
const KEPT_BEHIND_BYTES: u64 = 64 << 10;
/// Maximum forward step that still continues a window.
const FORWARD_SKIP_BYTES_MAX: u64 = 1 << 20;

/// Reads an object at any offset, from several threads if necessary, and prefetches ahead of each sequential
/// position.
#[derive(Debug)]
pub struct ObjectCursor {
    object: Arc<OpenedObject>,
    windows: Mutex<ReadWindows>,
    counters: Arc<ReadCounters>,
}

#[derive(Debug, Default)]
struct ReadWindows {
    windows: Vec<ReadWindow>,
    /// Number of reads.
    read_count: u64,
    /// Number of reads that continued no window.
    unmatched_reads: u64,
    has_declared: bool,
}

#[derive(Debug)]
struct ReadWindow {
    /// End of the last read.
    next_offset: u64,
    /// End of the range that will be read.
    end_offset: u64,
    /// Bytes claimed ahead of `next_offset`.
    size_bytes: u64,
    /// End of the claimed range.
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

    /// Returns the distance of a read at `at` from the window's position; `None` if it does not continue it.
    fn distance_to(&self, at: u64) -> Option<u64> {
        let skip = if self.size_bytes > 0 { FORWARD_SKIP_BYTES_MAX } else { 0 };
        let low = self.claims.iter().map(|held| held.range.start).min().unwrap_or(self.next_offset);
        let high = self.next_offset.max(self.claimed_to).saturating_add(skip);
        (low.min(self.next_offset) <= at && at <= high).then(|| at.abs_diff(self.next_offset))
    }

    /// Adjusts the size before a read.
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

    /// Adds a window. Removes the least recently read one if there are too many.
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
    /// Creates a cursor without any window.
    pub fn new(object: Arc<OpenedObject>) -> ObjectCursor {
        let counters = Arc::default();
        object.record_settings(&counters);
        ObjectCursor { object, windows: Mutex::default(), counters }
    }

    /// Returns the object that it reads.
    pub fn object(&self) -> &Arc<OpenedObject> {
        &self.object
    }

    /// Returns the reader's totals so far.
    pub fn stats(&self) -> ReadStats {
        self.counters.snapshot()
    }

    /// Returns the bytes currently claimed ahead of all positions together.
    pub fn window_bytes(&self) -> u64 {
        self.windows.lock().windows.iter().map(|window| window.size_bytes).sum()
    }

    /// Returns the order in which the object was read so far.
    pub fn access_order(&self) -> AccessOrder {
        let windows = self.windows.lock();
        match (windows.unmatched_reads, windows.read_count) {
            _ if windows.has_declared => AccessOrder::Declared,
            // Half of the reads continued another one.
            (opened, reads) if opened * 2 <= reads => AccessOrder::Sequential,
            _ => AccessOrder::Random,
        }
    }

    /// Announces that a range will be read from beginning to end. The pool fetches its blocks from now on, as
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

    /// Announces ranges that will be read, as [`OpenedObject::prefetch_ranges`] does. The fetched bytes count
    /// as this reader's.
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

    /// Finds the block with the byte at `at`, of which up to `bytes` are wanted, and claims the blocks behind
    /// it before anybody waits. If `is_followed` is false, only declared windows move on.
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
                    // Behind the declared range it is a window as any other.
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

    /// Returns what a window claims for a read of `at..ends`: the range, the end of earlier claims, and the
    /// list that keeps the claims.
    fn ahead_claim<'a>(
        &self,
        window: &'a mut ReadWindow,
        at: u64,
        ends: u64,
    ) -> Option<(Range<u64>, u64, &'a mut Vec<BlockClaim>)> {
        let from = if window.is_declared || window.claimed_to > at { at } else { ends };
        // Avoids slivers.
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

    /// Returns how many of the wanted bytes from `at` on one request may ask for.
    fn request_length(&self, at: u64, bytes: usize) -> usize {
        let left = self.object.size().saturating_sub(at).min(self.object.block_bytes());
        bytes.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Reads at least `least` bytes from `at` on into `out`, fewer only at the object's end. Waits on this
    /// thread and calls `tick` 20 times a second.
    ///
    /// # Errors
    /// Errors of the origin and of `tick`.
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

    /// Returns the bytes from `at` to the end of their block, without copying them. The result has at least
    /// `bytes` bytes if these lie in one block. Waits on this thread. For declared or claimed ranges: it
    /// prefetches nothing else.
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

    /// Returns the available bytes from `at` on in their block, without copying them: at most `bytes`, and at
    /// least one except at the object's end.
    ///
    /// # Errors
    /// Errors of the origin.
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

    /// Returns a range as far as the object reaches; copied only if it spans several blocks.
    ///
    /// # Errors
    /// Errors of the origin.
    pub async fn read_range(&self, range: Range<u64>) -> Result<Bytes> {
        let end = range.end.min(self.object.size());
        let length = usize::try_from(end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        // Several blocks arrive concurrently.
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

/// One read of one block, which holds a claim on it.
struct BlockRead<'a> {
    cursor: &'a ObjectCursor,
    start_offset: u64,
    /// End of the read if it gets all the bytes that it asked for.
    wanted_end: u64,
    buffer: Arc<BlockBuffer>,
    /// Offset of the read's first byte in the buffer.
    buffer_offset: usize,
    /// Number of wanted bytes in this block.
    wanted_bytes: usize,
    claim: BlockClaim,
}

impl BlockRead<'_> {
    /// Returns the number of bytes from the start of the read to the end of the block.
    fn bytes_to_block_end(&self) -> usize {
        usize::try_from(self.claim.range.end - self.start_offset).unwrap_or(usize::MAX)
    }

    /// Returns whether `count` bytes have arrived, and counts a hit if so.
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

    /// Records the length of the read, which may be less than requested: the next one continues there.
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

    /// Drops the window's claims after a failure: requests made earlier would most likely fail, too, and with
    /// them a later read that could succeed.
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
