//! The bytes of a block, readable while they arrive.
//!
//! ```text
//!   0            filled_bytes               length
//!   [ arrived     |  not yet written         ]
//!     any number     one writer, which advances
//!     of readers     `filled_bytes` after it has written
//! ```
//!
//! Nobody holds a lock while a byte is written, copied or awaited. `filled_bytes` only grows, bytes before it
//! are never written again, and a shared view ([`BlockBuffer::into_shared_bytes`]) keeps the whole buffer
//! alive instead of copying it. The one writer ([`BufferWriter`], which cannot be cloned) writes behind
//! `filled_bytes` only. The memory is allocated when the first byte arrives.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::origin::ByteSink;
use crate::prefetch_pool::MemoryReservation;
use crate::stats::ReadCounters;

/// Interval at which a waiting thread calls its tick function.
const WAIT_TICK_INTERVAL: Duration = Duration::from_millis(50);

const STATE_FILLING: u8 = 0;
const STATE_COMPLETE: u8 = 1;
const STATE_FAILED: u8 = 2;

/// A block of an object, during its arrival and afterwards.
pub(crate) struct BlockBuffer {
    /// Start of the memory that the buffer owns; null until the first byte arrives.
    memory: AtomicPtr<u8>,
    length: usize,
    /// Number of bytes that have arrived.
    filled_bytes: AtomicUsize,
    state: AtomicU8,
    error: OnceLock<Error>,
    waiters: Mutex<Vec<(usize, Waker)>>,
    /// Lowest byte count that a waiter needs: the writer takes the lock only when it is reached.
    least_awaited: AtomicUsize,
    /// Number of bytes served; bytes served twice count twice.
    pub(crate) served_bytes: AtomicU64,
    counters: Vec<Arc<ReadCounters>>,
    _memory: MemoryReservation,
}

impl BlockBuffer {
    /// Creates an empty buffer and its only writer.
    pub(crate) fn new(
        length: usize,
        share: MemoryReservation,
        counters: Vec<Arc<ReadCounters>>,
    ) -> (Arc<BlockBuffer>, BufferWriter) {
        let buffer = Arc::new(BlockBuffer {
            memory: AtomicPtr::default(),
            length,
            filled_bytes: AtomicUsize::new(0),
            state: AtomicU8::new(STATE_FILLING),
            error: OnceLock::new(),
            waiters: Mutex::default(),
            least_awaited: AtomicUsize::new(usize::MAX),
            served_bytes: AtomicU64::new(0),
            counters,
            _memory: share,
        });
        let counters = buffer.counters.clone();
        let inlet = BufferInlet(Arc::new(Mutex::new(Some(Arc::clone(&buffer)))));
        (buffer, BufferWriter { inlet, counters, received_bytes: 0 })
    }

    /// Returns the number of bytes that have arrived.
    pub(crate) fn filled_bytes(&self) -> usize {
        self.filled_bytes.load(Ordering::SeqCst)
    }

    /// Returns whether the buffer will never be complete.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STATE_FAILED
    }

    /// Returns whether readers got as many bytes as the buffer has.
    pub(crate) fn is_fully_served(&self) -> bool {
        self.served_bytes.load(Ordering::Relaxed) >= self.length as u64
    }

    /// Returns whether anybody except the pool and the writer holds the buffer.
    pub(crate) fn is_referenced(self: &Arc<Self>) -> bool {
        let is_filling = self.state.load(Ordering::SeqCst) == STATE_FILLING;
        Arc::strong_count(self) > 1 + usize::from(is_filling)
    }

    /// Returns bytes, all of which must have arrived.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        assert!(
            range.start <= range.end && range.end <= self.filled_bytes(),
            "bytes that are not there"
        );
        if range.is_empty() {
            return &[];
        }
        // SAFETY: the range lies before `filled_bytes`, where everything was written and nothing is
        // written any more. No reference to the whole is made, because a part of it may be being written.
        unsafe {
            let start = self.memory.load(Ordering::SeqCst).add(range.start);
            std::slice::from_raw_parts(start, range.end - range.start)
        }
    }

    /// Returns bytes that keep the whole buffer alive.
    pub(crate) fn into_shared_bytes(self: Arc<Self>, range: Range<usize>) -> Bytes {
        struct View(Arc<BlockBuffer>, Range<usize>);
        impl AsRef<[u8]> for View {
            fn as_ref(&self) -> &[u8] {
                self.0.slice(self.1.clone())
            }
        }
        Bytes::from_owner(View(self, range))
    }

    /// Returns `Ok` if `count` bytes have arrived, an error if they never will, and `None` otherwise.
    pub(crate) fn readiness(&self, count: usize) -> Option<Result<()>> {
        let state = self.state.load(Ordering::SeqCst);
        if self.filled_bytes() >= count {
            return Some(Ok(()));
        }
        match state {
            STATE_FILLING => None,
            STATE_FAILED => Some(Err(self.error.get().cloned().unwrap_or(Error::RuntimeEnded))),
            // Nobody asks for more than the length.
            _ => Some(Err(Error::RuntimeEnded)),
        }
    }

    fn poll_readiness(&self, count: usize, context: &Context<'_>) -> Poll<Result<()>> {
        if let Some(found) = self.readiness(count) {
            return Poll::Ready(found);
        }
        {
            let mut waiting = self.waiters.lock();
            let mut known = waiting.iter_mut();
            match known.find(|(_, waker)| waker.will_wake(context.waker())) {
                Some((known, _)) => *known = count.min(*known),
                None => waiting.push((count, context.waker().clone())),
            }
            self.least_awaited.fetch_min(count, Ordering::SeqCst);
        }
        // Bytes that arrived in between saw no waiter.
        self.readiness(count).map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until `count` bytes have arrived.
    pub(crate) async fn wait_for(&self, count: usize) -> Result<()> {
        poll_fn(|context| self.poll_readiness(count, context)).await
    }

    /// Waits for `count` bytes on the current thread and calls `tick` 20 times a second.
    pub(crate) fn wait_blocking(
        &self,
        count: usize,
        tick: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(found) = self.poll_readiness(count, &Context::from_waker(&waker)) {
                return found;
            }
            tick()?;
            std::thread::park_timeout(WAIT_TICK_INTERVAL);
        }
    }

    /// Writes bytes behind `filled_bytes`; called through its one [`BufferInlet`] only.
    fn append(&self, bytes: &[u8], counter: impl Fn(&ReadCounters) -> &AtomicU64) {
        let at = self.filled_bytes.load(Ordering::Relaxed);
        let bytes = &bytes[..bytes.len().min(self.length - at)];
        if bytes.is_empty() {
            return;
        }
        let mut start = self.memory.load(Ordering::Relaxed);
        if start.is_null() {
            start = Box::into_raw(Box::<[u8]>::new_uninit_slice(self.length)).cast();
            self.memory.store(start, Ordering::SeqCst);
        }
        // SAFETY: this is the only writer, as the inlet is locked; there is room for the bytes, and no reader
        // looks behind `filled_bytes`.
        unsafe { start.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        for counters in &self.counters {
            counter(counters).fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        let filled = at + bytes.len();
        self.filled_bytes.store(filled, Ordering::SeqCst);
        if filled >= self.least_awaited.load(Ordering::SeqCst) {
            self.wake_waiters(filled);
        }
    }

    fn wake_waiters(&self, up_to: usize) {
        let woken: Vec<Waker> = {
            let mut waiting = self.waiters.lock();
            let (ready, rest) = std::mem::take(&mut *waiting)
                .into_iter()
                .partition(|(count, _): &(usize, Waker)| *count <= up_to);
            *waiting = rest;
            let least = waiting.iter().map(|(count, _)| *count).min();
            self.least_awaited.store(least.unwrap_or(usize::MAX), Ordering::SeqCst);
            let ready: Vec<(usize, Waker)> = ready;
            ready.into_iter().map(|(_, waker)| waker).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl std::fmt::Debug for BlockBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} there)", self.filled_bytes())
    }
}

impl Drop for BlockBuffer {
    fn drop(&mut self) {
        let filled = self.filled_bytes() as u64;
        let wasted = filled.saturating_sub(self.served_bytes.load(Ordering::Relaxed));
        for counters in &self.counters {
            counters.wasted_bytes.fetch_add(wasted, Ordering::Relaxed);
        }
        let start = self.memory.get_mut().cast::<MaybeUninit<u8>>();
        if !start.is_null() {
            let whole = std::ptr::slice_from_raw_parts_mut(start, self.length);
            // SAFETY: it came from a box of this length, and nobody uses it any more.
            drop(unsafe { Box::from_raw(whole) });
        }
    }
}

/// The write access to a buffer, open until it is [closed](Self::close). The writer holds the buffer's memory
/// through nothing else.
#[derive(Clone)]
pub(crate) struct BufferInlet(Arc<Mutex<Option<Arc<BlockBuffer>>>>);

impl BufferInlet {
    /// Stops writing and fails the waiters for further bytes. When it returns, readers alone hold the
    /// memory: an aborted task may live until its thread polls it.
    pub(crate) fn close(&self) {
        self.finish_buffer(Err(Error::Evicted));
    }

    fn finish_buffer(&self, result: Result<()>) {
        // Held until the buffer is released: a caller that closes a closed inlet waits for that, too.
        let mut open = self.0.lock();
        let Some(buffer) = open.take() else { return };
        let state = if result.is_ok() { STATE_COMPLETE } else { STATE_FAILED };
        if let Err(error) = result {
            let _ = buffer.error.set(error);
        }
        buffer.state.store(state, Ordering::SeqCst);
        buffer.wake_waiters(usize::MAX);
    }
}

impl std::fmt::Debug for BufferInlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inlet")
    }
}

/// Fills a buffer front to back. The buffer fails if the writer is dropped before [`finish`](Self::finish).
pub(crate) struct BufferWriter {
    inlet: BufferInlet,
    counters: Vec<Arc<ReadCounters>>,
    received_bytes: u64,
}

impl BufferWriter {
    /// Returns the inlet, through which others can close the buffer.
    pub(crate) fn inlet(&self) -> BufferInlet {
        self.inlet.clone()
    }

    /// Completes or fails the buffer.
    pub(crate) fn finish(&mut self, result: Result<()>) {
        let length = self.inlet.0.lock().as_ref().map(|buffer| buffer.length as u64);
        let is_short = result.is_ok() && length.is_some_and(|length| length != self.received_bytes);
        self.inlet.finish_buffer(if is_short { Err(self.length_error()) } else { result });
    }

    fn length_error(&self) -> Error {
        Error::InvalidAnswer {
            path: String::new(),
            offset: self.received_bytes,
            reason: "the answer is not as long as was asked for".into(),
        }
    }

    /// Appends bytes as far as there is room, counts them and wakes the waiters.
    fn append_counted(&mut self, bytes: &[u8], counter: impl Fn(&ReadCounters) -> &AtomicU64) {
        self.received_bytes += bytes.len() as u64;
        if let Some(buffer) = self.inlet.0.lock().as_ref() {
            buffer.append(bytes, counter);
        }
    }
}

impl ByteSink for BufferWriter {
    fn put(&mut self, bytes: &[u8]) {
        self.append_counted(bytes, |counters| &counters.fetched_bytes);
    }

    fn byte_count(&self) -> u64 {
        self.received_bytes
    }

    fn record_request(&mut self) {
        for counters in &self.counters {
            counters.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record_retry(&mut self) {
        for counters in &self.counters {
            counters.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record_disk_read(&mut self) {
        for counters in &self.counters {
            counters.disk_reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put_from_disk(&mut self, bytes: &[u8]) {
        self.append_counted(bytes, |counters| &counters.disk_bytes);
    }

    fn bytes_from(&self, from: u64) -> Bytes {
        let Some(buffer) = self.inlet.0.lock().clone() else { return Bytes::new() };
        let filled = buffer.filled_bytes();
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(filled);
        if filled - from < buffer.length / 2 {
            // Avoids holding a large block for a small part.
            return Bytes::copy_from_slice(buffer.slice(from..filled));
        }
        buffer.into_shared_bytes(from..filled)
    }
}

impl Drop for BufferWriter {
    fn drop(&mut self) {
        self.inlet.close();
    }
}
