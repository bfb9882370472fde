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

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::pool::{Claims, Found, Held, Opened};
use crate::stats::{Counters, Stats};
use crate::tuner::Access;

/// What is claimed of a window at once, if blocks are not smaller.
const GRAIN_BYTES: u64 = 1 << 20;
/// So many places of an object are followed at once.
const WINDOWS_MAX: usize = 16;
/// A block stays until reading is so far behind its end: who looks for where a record begins goes back to there.
const BEHIND_BYTES: u64 = 64 << 10;
/// A step forward that is not longer than this still goes on at a place.
const SKIP_BYTES_MAX: u64 = 1 << 20;

/// Reads an object at any place, from several threads if need be; what lies ahead of each place is
/// fetched meanwhile.
#[derive(Debug)]
pub struct Cursor {
    object: Arc<Opened>,
    windows: Mutex<Windows>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Windows {
    all: Vec<Window>,
    /// Counts the reads.
    clock: u64,
    /// Those of them that were at no window's place.
    opened: u64,
    has_declared: bool,
}

#[derive(Debug)]
struct Window {
    /// Where the last read ended.
    next: u64,
    /// Where reading is going to end.
    end: u64,
    /// So far ahead of `next` blocks are claimed.
    size: u64,
    /// Up to here they are.
    claimed_to: u64,
    held: Vec<Held>,
    is_declared: bool,
    had_to_wait: bool,
    read_at: u64,
}

impl Window {
    fn new(at: u64, end: u64) -> Window {
        Window {
            next: at,
            end,
            size: 0,
            claimed_to: at,
            held: Vec::new(),
            is_declared: false,
            had_to_wait: false,
            read_at: 0,
        }
    }

    /// How far a read at `at` is from where it would go on; none if it is elsewhere.
    fn distance(&self, at: u64) -> Option<u64> {
        let skip = if self.size > 0 { SKIP_BYTES_MAX } else { 0 };
        let low = self.held.iter().map(|held| held.range.start).min().unwrap_or(self.next);
        let high = self.next.max(self.claimed_to).saturating_add(skip);
        (low.min(self.next) <= at && at <= high).then(|| at.abs_diff(self.next))
    }

    /// Grows as it should before a read.
    fn grow(&mut self, first: u64, limit: u64) {
        let waited = std::mem::take(&mut self.had_to_wait);
        let wanted = match self.size {
            _ if self.is_declared => limit,
            0 => first,
            size if waited => size.saturating_mul(2),
            size => size,
        };
        self.size = wanted.min(limit);
    }
}

impl Windows {
    fn at(&self, at: u64) -> Option<usize> {
        let near = |(index, window): (usize, &Window)| Some((window.distance(at)?, index));
        self.all.iter().enumerate().filter_map(near).min().map(|(_, index)| index)
    }

    /// Adds a window; the one that was left longest ago goes, if there are too many.
    fn add(&mut self, window: Window) -> (usize, Option<Window>) {
        let mut gone = None;
        if self.all.len() >= WINDOWS_MAX {
            let may_go = |window: &Window| !window.is_declared || window.next >= window.end;
            let all = self.all.iter().enumerate().filter(|(_, window)| may_go(window));
            let oldest = all.min_by_key(|(_, window)| window.read_at);
            gone = oldest.map(|(index, _)| index).map(|index| self.all.swap_remove(index));
        }
        self.all.push(window);
        (self.all.len() - 1, gone)
    }
}

impl Cursor {
    /// A reader of an object, of which nothing is known yet.
    pub fn new(object: Arc<Opened>) -> Cursor {
        let counters = Arc::default();
        object.tell(&counters);
        Cursor { object, windows: Mutex::default(), counters }
    }

    /// What it reads.
    pub fn object(&self) -> &Arc<Opened> {
        &self.object
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// How far ahead of the places that are read on from blocks are claimed by now, in bytes, all windows
    /// together.
    pub fn window_bytes(&self) -> u64 {
        self.windows.lock().all.iter().map(|window| window.size).sum()
    }

    /// In which order it was read so far.
    pub fn access(&self) -> Access {
        let windows = self.windows.lock();
        match (windows.opened, windows.clock) {
            _ if windows.has_declared => Access::Declared,
            // Half of the reads went on where another one had ended.
            (opened, reads) if opened * 2 <= reads => Access::Sequential,
            _ => Access::Random,
        }
    }

    /// Says that a range will be read from its beginning to its end. Its blocks are fetched from now on, as
    /// far as a window reaches.
    pub fn declare(&self, range: Range<u64>) {
        let end = range.end.min(self.object.size());
        let mut window = Window::new(range.start, end);
        window.is_declared = true;
        let shared = &self.object.pool.0;
        shared.window_opened();
        window.size = self.object.window_bytes(shared.windows());
        let first = range.start..end.min(range.start.saturating_add(window.size));
        let gone = {
            let mut windows = self.windows.lock();
            windows.clock += 1;
            windows.has_declared = true;
            window.read_at = windows.clock;
            window.claimed_to = first.end;
            let left = Some(self.object.left(range.start, shared.windows()));
            window.held = self.object.claimed(first, true, true, left, &self.counters);
            windows.add(window).1
        };
        self.forget(gone);
    }

    /// Tells of ranges that will be read, as [`Opened::claim`] does; what is fetched for them counts as this
    /// reader's.
    pub fn claim(&self, ranges: &[Range<u64>]) -> Claims {
        self.object.claim_for(ranges, &self.counters)
    }

    fn forget(&self, window: Option<Window>) {
        let Some(window) = window else { return };
        if window.size > 0 {
            self.object.pool.0.window_closed();
        }
        self.object.pool.0.release(window.held.into_iter());
    }

    /// The block with the byte at `at`, of which up to `bytes` are wanted; what comes behind is claimed
    /// before anybody waits. Where reading is not followed, only windows that were declared move on.
    fn look(&self, at: u64, bytes: usize, is_followed: bool) -> Reading<'_> {
        let shared = &self.object.pool.0;
        let size = self.object.size();
        let ends = at.saturating_add(bytes as u64).min(size);
        let mut released = Vec::new();
        let mut gone = None;
        let found = {
            let mut windows = self.windows.lock();
            windows.clock += 1;
            let clock = windows.clock;
            let known = windows.at(at);
            let known = known.filter(|index| is_followed || windows.all[*index].is_declared);
            let mut unfollowed = Window::new(at, size);
            let window = match known {
                Some(index) => &mut windows.all[index],
                None if !is_followed => &mut unfollowed,
                None => {
                    windows.opened += 1;
                    let (index, oldest) = windows.add(Window::new(at, size));
                    gone = oldest;
                    &mut windows.all[index]
                }
            };
            window.read_at = clock;
            if known.is_some() {
                if window.is_declared && at >= window.end {
                    // Behind what was declared it is a place as any other.
                    (window.is_declared, window.end) = (false, size);
                }
                let before = window.size;
                let first = self.object.options.first_bytes;
                window.grow(first, self.object.window_bytes(shared.windows()));
                match (before, window.size) {
                    (0, 1..) => shared.window_opened(),
                    (1.., 0) => shared.window_closed(),
                    _ => {}
                }
                let behind = at.saturating_sub(BEHIND_BYTES);
                let is_passed = |held: &mut Held| held.range.end <= behind;
                released.extend(window.held.extract_if(.., is_passed));
            }
            window.next = ends;
            let ahead = if window.size == 0 { None } else { self.ahead(window, at, ends) };
            let counters = &self.counters;
            shared.demand(&self.object, at, ends - at, counters, &mut released, ahead)
        };
        self.forget(gone);
        let Found { buffer, skip, held } = found;
        let reach = usize::try_from(held.range.end - at).unwrap_or(usize::MAX).min(bytes);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Reading { cursor: self, at, ends, buffer, skip, reach, held }
    }

    /// What a window claims when `at..ends` is read: the range, up to where it has been claimed before, and
    /// who keeps the claims.
    fn ahead<'a>(
        &self,
        window: &'a mut Window,
        at: u64,
        ends: u64,
    ) -> Option<(Range<u64>, u64, &'a mut Vec<Held>)> {
        let from = if window.is_declared || window.claimed_to > at { at } else { ends };
        // Not by slivers.
        let grain = GRAIN_BYTES.min(self.object.block_bytes());
        let to = ends.saturating_add(window.size).div_ceil(grain).saturating_mul(grain);
        let to = to.min(window.end);
        let known_to = window.claimed_to;
        window.claimed_to = known_to.max(to);
        (from < to).then_some((from..to, known_to, &mut window.held))
    }

    fn had_to_wait(&self, at: u64, since: Instant) {
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for counters in self.counted() {
            counters.stalls.fetch_add(1, Ordering::Relaxed);
            counters.stall_ns.fetch_add(waited, Ordering::Relaxed);
        }
        let mut windows = self.windows.lock();
        if let Some(index) = windows.at(at) {
            windows.all[index].had_to_wait = true;
        }
    }

    fn counted(&self) -> [&Counters; 2] {
        [&self.counters, &self.object.pool.0.counters]
    }

    /// How much of what is wanted from `at` on is asked for in one go.
    fn wanted(&self, at: u64, bytes: usize) -> usize {
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
            let wanted = self.wanted(at, out.len() - done);
            if wanted == 0 {
                break;
            }
            let reading = self.look(at, wanted, true);
            let least = least.saturating_sub(done).clamp(1, reading.reach);
            match reading.wait_here(least, tick) {
                Ok(()) => {}
                Err(Error::TakenBack) => continue,
                Err(error) => return Err(reading.failed(error)),
            }
            let there = reading.there();
            out[done..done + there.len()].copy_from_slice(there);
            let count = reading.served(there.len());
            reading.ended_after(count);
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
    pub fn rest_at(
        &self,
        at: u64,
        bytes: usize,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Bytes> {
        loop {
            let wanted = self.wanted(at, bytes);
            if wanted == 0 {
                return Ok(Bytes::new());
            }
            let mut reading = self.look(at, wanted, false);
            reading.reach = reading.rest();
            match reading.wait_here(reading.reach, tick) {
                Ok(()) => {
                    let count = reading.reach;
                    reading.served(count);
                    return Ok(reading.view(count));
                }
                Err(Error::TakenBack) => {}
                Err(error) => return Err(reading.failed(error)),
            }
        }
    }

    /// What is there from `at` on in the block that it is in, without copying it: `bytes` at most, and at
    /// least one, but for the object's end.
    ///
    /// # Errors
    /// Those of the origin.
    pub async fn read(&self, at: u64, bytes: usize) -> Result<Bytes> {
        self.part(at, bytes, false).await
    }

    async fn part(&self, at: u64, bytes: usize, is_whole: bool) -> Result<Bytes> {
        loop {
            let wanted = self.wanted(at, bytes);
            if wanted == 0 {
                return Ok(Bytes::new());
            }
            let reading = self.look(at, wanted, true);
            match reading.wait(if is_whole { reading.reach } else { 1 }).await {
                Ok(()) => {
                    let count = reading.there().len();
                    reading.served(count);
                    if !is_whole {
                        reading.ended_after(count);
                    }
                    return Ok(reading.view(count));
                }
                Err(Error::TakenBack) => {}
                Err(error) => return Err(reading.failed(error)),
            }
        }
    }

    /// A range, as far as there is so much; not copied if it lies in one block.
    ///
    /// # Errors
    /// Those of the origin.
    pub async fn range(&self, range: Range<u64>) -> Result<Bytes> {
        let end = range.end.min(self.object.size());
        let length = usize::try_from(end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        // More than one block comes concurrently.
        let claims = (length > self.wanted(range.start, length))
            .then(|| self.object.claim(std::slice::from_ref(&(range.start..end))));
        let first = self.part(range.start, length, true).await?;
        if first.len() == length {
            return Ok(first);
        }
        let mut all = BytesMut::with_capacity(length);
        all.extend_from_slice(&first);
        while all.len() < length {
            let at = range.start + all.len() as u64;
            all.extend_from_slice(&self.part(at, length - all.len(), true).await?);
        }
        drop(claims);
        Ok(all.freeze())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let all = std::mem::take(&mut self.windows.get_mut().all);
        all.into_iter().for_each(|window| self.forget(Some(window)));
    }
}

/// One read of one block, which stays meanwhile.
struct Reading<'a> {
    cursor: &'a Cursor,
    at: u64,
    /// Where it would end if it was given all that it asked for.
    ends: u64,
    buffer: Arc<Buffer>,
    /// Where in the buffer the byte at `at` is.
    skip: usize,
    /// How many bytes from there on are wanted and in this block.
    reach: usize,
    held: Held,
}

impl Reading<'_> {
    /// How many bytes there are from `at` to the block's end.
    fn rest(&self) -> usize {
        usize::try_from(self.held.range.end - self.at).unwrap_or(usize::MAX)
    }

    /// Whether so many bytes of it have to be waited for.
    fn is_there(&self, count: usize) -> Result<bool> {
        match self.buffer.look(self.skip + count) {
            Some(Ok(())) => {
                for counters in self.cursor.counted() {
                    counters.hits.fetch_add(1, Ordering::Relaxed);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        }
    }

    async fn wait(&self, count: usize) -> Result<()> {
        if !self.is_there(count)? {
            let since = Instant::now();
            self.buffer.wait(self.skip + count).await?;
            self.cursor.had_to_wait(self.at, since);
        }
        Ok(())
    }

    fn wait_here(&self, count: usize, tick: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        if !self.is_there(count)? {
            let since = Instant::now();
            self.buffer.wait_here(self.skip + count, tick)?;
            self.cursor.had_to_wait(self.at, since);
        }
        Ok(())
    }

    fn there(&self) -> &[u8] {
        let end = self.buffer.filled().min(self.skip + self.reach);
        self.buffer.slice(self.skip..end)
    }

    fn view(&self, count: usize) -> Bytes {
        Arc::clone(&self.buffer).view(self.skip..self.skip + count)
    }

    /// Says that it was given so much, which may be less than it asked for: the next one goes on there.
    fn ended_after(&self, count: usize) {
        let end = self.at + count as u64;
        if end < self.ends {
            let mut windows = self.cursor.windows.lock();
            let own = windows.all.iter_mut().find(|window| window.next == self.ends);
            if let Some(window) = own {
                window.next = end;
            }
        }
    }

    /// Ends what was asked for with it, after it has failed: requests that were made before would most likely fail,
    /// too, and with them a read that comes when all is well again.
    fn failed(self, error: Error) -> Error {
        self.ended_after(0);
        let dropped = {
            let mut windows = self.cursor.windows.lock();
            let own = windows.all.iter_mut().find(|window| window.next == self.at);
            own.map(|window| {
                window.claimed_to = window.claimed_to.min(self.at);
                std::mem::take(&mut window.held)
            })
        };
        self.cursor.object.pool.0.release(dropped.into_iter().flatten());
        error
    }

    fn served(&self, count: usize) -> usize {
        self.buffer.served.fetch_add(count as u64, Ordering::Relaxed);
        for counters in self.cursor.counted() {
            counters.asked_bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
        count
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.cursor.object.pool.0.was_read(&self.held);
    }
}
