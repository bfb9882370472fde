//! Reading an object by position, with the ranges that come next on their way.
//!
//! ```text
//!   offset ──────────────────────────────────────────────►
//!          [ window ][ range ][ range ][ range ]····· until
//!            being      arrived or on their way
//!            read
//! ```
//!
//! Whoever reads a split reads front to back. Its bytes are asked for in ranges of
//! [`RANGE_BYTES`], up to [`IN_FLIGHT`] at a time: a connection gives some 50 to 100 MB/s
//! after 20 to 50 ms, so that one range alone would leave the line idle a third of the time.
//! The last range takes [`TAIL_BYTES`] more, in which the last record of a split nearly always
//! ends. A reader always has one range; more of them it has while the run's [`Budget`] lasts.
//! A read elsewhere drops what is on its way.
//!
//! Of the small files of a split, [`FILES_AHEAD`] are asked for while the one before is read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;

use super::Fetch;
use super::http::Body;
use super::object::Object;

/// One request brings so much.
pub const RANGE_BYTES: u64 = 4 << 20;
/// So many requests of one reader are on their way at once.
const IN_FLIGHT: usize = 4;
/// So many small files of a split are asked for early.
pub const FILES_AHEAD: usize = 8;
/// Behind a split's end: room for the end of its last record.
const TAIL_BYTES: u64 = 64 << 10;
/// The least that is asked for.
const LEAST_BYTES: u64 = 64 << 10;
/// A sample starts with so much.
const SAMPLE_BYTES: u64 = 1 << 20;

/// The memory that a run's readers may fill ahead, in bytes; cloning shares it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    bytes: u64,
    used: AtomicU64,
}

impl Budget {
    /// So many bytes, beyond one range for each reader.
    pub fn new(bytes: u64) -> Self {
        Budget(Arc::new(Limit { bytes, used: AtomicU64::new(0) }))
    }

    /// How many bytes it is altogether.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// So many bytes of it, if they are left.
    fn take(&self, bytes: u64) -> Option<Share> {
        let limit = self.0.bytes;
        let more = |used: u64| Some(used + bytes).filter(|total| *total <= limit);
        let taken = self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Share { of: Arc::clone(&self.0), bytes })
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(64 << 20)
    }
}

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
struct Share {
    of: Arc<Limit>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a reader is going to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// From somewhere up to the end of a split, and little beyond.
    Until(u64),
    /// The beginning, nobody knows how much of it.
    Sample,
    /// The very beginning, in reads as small as are asked for; of a small object all of it, which
    /// may be kept.
    Beginning {
        /// Whether all of it may be kept.
        keeps: bool,
    },
    /// Here and there.
    Random,
}

/// An object that is being read.
#[derive(Debug)]
pub struct Reader {
    object: Arc<Object>,
    access: Access,
    cancel: Cancel,
    budget: Budget,
    state: Mutex<ReadAhead>,
}

#[derive(Debug, Default)]
struct ReadAhead {
    window: Window,
    coming: VecDeque<Coming>,
    /// Where the next request starts, if reading goes on as it did.
    next: u64,
    /// The size of the next range of a sample, or behind a split's end.
    step: u64,
    /// What can only be read whole.
    body: Option<Body>,
}

#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Bytes,
    _share: Option<Share>,
}

#[derive(Debug)]
struct Coming {
    range: Range<u64>,
    fetch: Fetch<Bytes>,
    share: Option<Share>,
}

impl Reader {
    /// A reader of an object from its beginning; what it asks for ahead is taken from `budget`.
    pub fn new(object: Arc<Object>, access: Access, cancel: Cancel, budget: Budget) -> Reader {
        Reader { object, access, cancel, budget, state: Mutex::default() }
    }

    /// What it reads.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Fills `out` from `offset`; fewer bytes only at the object's end.
    ///
    /// # Errors
    /// Those of [`Object::get`], and [`Error::Interrupted`].
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        let mut state = self.state.lock();
        if self.object.is_stream() {
            return self.read_stream(&mut state, out, offset);
        }
        let left = self.object.size().saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let mut filled = 0;
        while filled < wanted {
            let at = offset + filled as u64;
            let count = state.window.copy(&mut out[filled..wanted], at);
            if count == 0 {
                self.move_window(&mut state, at, wanted - filled)?;
            }
            filled += count;
        }
        Ok(filled)
    }

    /// Makes the window hold the byte at `at`.
    fn move_window(&self, state: &mut ReadAhead, at: u64, wanted: usize) -> Result<()> {
        if let Some(head) = self.object.head().filter(|head| at < head.len() as u64) {
            state.window = Window { start: 0, bytes: head.clone(), _share: None };
            return Ok(());
        }
        while state.coming.front().is_some_and(|coming| coming.range.end <= at) {
            state.coming.pop_front();
        }
        if !state.coming.front().is_some_and(|coming| coming.range.contains(&at)) {
            state.coming.clear();
            state.next = at;
        }
        // The window's share goes back first: it may be what the next range needs.
        state.window = Window::default();
        self.ask(state, wanted as u64)?;
        let Some(coming) = state.coming.pop_front() else {
            return Err(Error::Internal("a read behind an object's end".into()));
        };
        let bytes = coming.fetch.wait(&self.cancel)?;
        let is_kept = match self.access {
            Access::Sample => true,
            Access::Beginning { keeps } => keeps && coming.range.end == self.object.size(),
            Access::Until(_) | Access::Random => false,
        };
        if coming.range.start == 0 && is_kept {
            self.object.set_head(&bytes);
        }
        state.window = Window { start: coming.range.start, bytes, _share: coming.share };
        // Others come while this one is read.
        self.ask(state, 0)
    }

    /// Sends requests as far as they are wanted; at least one if none is on its way and
    /// `wanted` says so.
    fn ask(&self, state: &mut ReadAhead, wanted: u64) -> Result<()> {
        let size = self.object.size();
        loop {
            let first = state.coming.is_empty() && wanted > 0;
            if state.next >= size || (!first && state.coming.len() >= IN_FLIGHT) {
                return Ok(());
            }
            let bytes = match self.access {
                Access::Until(end) if state.next < end => {
                    let left = end.saturating_add(TAIL_BYTES) - state.next;
                    // No sliver at the end.
                    if left <= RANGE_BYTES + 2 * TAIL_BYTES { left } else { RANGE_BYTES }
                }
                _ if !first => return Ok(()),
                Access::Random => wanted.max(LEAST_BYTES),
                Access::Until(_) | Access::Sample | Access::Beginning { .. } => {
                    let least = match self.access {
                        Access::Sample => SAMPLE_BYTES,
                        Access::Beginning { keeps: true } => self.object.size().min(RANGE_BYTES),
                        Access::Beginning { keeps: false } => wanted.min(RANGE_BYTES),
                        _ => LEAST_BYTES,
                    };
                    state.step = (state.step * 2).clamp(least, RANGE_BYTES);
                    state.step.max(wanted.min(RANGE_BYTES))
                }
            };
            let range = state.next..state.next.saturating_add(bytes).min(size);
            if range.start == 0
                && let Some((end, fetch)) = self.object.take_early()
            {
                state.next = end;
                state.coming.push_back(Coming { range: 0..end, fetch, share: None });
                continue;
            }
            let share = self.budget.take(range.end - range.start);
            if share.is_none() && !first {
                return Ok(());
            }
            let fetch = self.object.fetch(range.clone())?;
            state.next = range.end;
            state.coming.push_back(Coming { range, fetch, share });
        }
    }

    /// Reads on in a body that has no ranges.
    fn read_stream(&self, state: &mut ReadAhead, out: &mut [u8], offset: u64) -> Result<usize> {
        // What came last may be read piece by piece.
        if state.body.is_none() || offset < state.window.start {
            state.body = Some(self.object.stream()?);
            state.window = Window::default();
            state.next = 0;
        }
        let mut filled = 0;
        while filled < out.len() {
            let at = offset + filled as u64;
            let count = state.window.copy(&mut out[filled..], at);
            filled += count;
            if count > 0 {
                continue;
            }
            let Some(body) = &mut state.body else { break };
            let start = state.next;
            match body.next(&self.cancel)? {
                Some(bytes) => {
                    state.next += bytes.len() as u64;
                    state.window = Window { start, bytes, _share: None };
                }
                None => break,
            }
        }
        Ok(filled)
    }
}

impl Window {
    /// Copies what it holds from `at` on.
    fn copy(&self, out: &mut [u8], at: u64) -> usize {
        let Some(skip) = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok())
        else {
            return 0;
        };
        let held = self.bytes.get(skip..).unwrap_or_default();
        let count = held.len().min(out.len());
        out[..count].copy_from_slice(&held[..count]);
        count
    }
}
