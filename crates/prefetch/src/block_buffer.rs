//! The bytes of a block, read while they arrive.
//!
//! ```text
//!   0            filled                     length
//!   [ arrived     |  not yet written         ]
//!     any number     one writer, which moves
//!     of readers     `filled` when it has written
//! ```
//!
//! Nobody holds a lock while a byte is written, copied or waited for: `filled` only grows, what lies
//! before it is never written again, and what is handed out of it ([`Buffer::view`]) keeps the whole
//! of it alive instead of being copied. The one writer ([`Writer`], which cannot be cloned) writes behind
//! `filled` only. Memory is taken when the first byte comes.

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

/// How often a thread that waits looks at whether it should go on to.
const WAIT_TICK_INTERVAL: Duration = Duration::from_millis(50);

const STATE_FILLING: u8 = 0;
const STATE_COMPLETE: u8 = 1;
const STATE_FAILED: u8 = 2;

/// A block while it arrives, and afterwards.
pub(crate) struct BlockBuffer {
    /// Where its memory begins, which is its own; null until the first byte comes.
    memory: AtomicPtr<u8>,
    length: usize,
    /// So many bytes are there.
    filled_bytes: AtomicUsize,
    state: AtomicU8,
    error: OnceLock<Error>,
    waiters: Mutex<Vec<(usize, Waker)>>,
    /// The least that somebody waits for: the writer takes the lock at that point alone.
    least_awaited: AtomicUsize,
    /// Of its bytes so many were served, those served twice counted twice.
    pub(crate) served_bytes: AtomicU64,
    counters: Vec<Arc<ReadCounters>>,
    _memory: MemoryReservation,
}

impl BlockBuffer {
    /// An empty one of this length, and the only way to fill it.
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

    /// What is there.
    pub(crate) fn filled_bytes(&self) -> usize {
        self.filled_bytes.load(Ordering::SeqCst)
    }

    /// Whether it will never be whole.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STATE_FAILED
    }

    /// Whether as many of its bytes were served as it has.
    pub(crate) fn is_fully_served(&self) -> bool {
        self.served_bytes.load(Ordering::Relaxed) >= self.length as u64
    }

    /// Whether anybody keeps it besides a pool and what fills it.
    pub(crate) fn is_referenced(self: &Arc<Self>) -> bool {
        let is_filling = self.state.load(Ordering::SeqCst) == STATE_FILLING;
        Arc::strong_count(self) > 1 + usize::from(is_filling)
    }

    /// Some bytes of it, all of which must be there.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        assert!(
            range.start <= range.end && range.end <= self.filled_bytes(),
            "bytes that are not there"
        );
        if range.is_empty() {
            return &[];
        }
        // SAFETY: the range lies before `filled`, where everything was written and nothing is
        // written any more. No reference to the whole is made, of which a part may be being written.
        unsafe {
            let start = self.memory.load(Ordering::SeqCst).add(range.start);
            std::slice::from_raw_parts(start, range.end - range.start)
        }
    }

    /// The same, to be kept: the whole buffer lives as long.
    pub(crate) fn into_shared_bytes(self: Arc<Self>, range: Range<usize>) -> Bytes {
        struct View(Arc<BlockBuffer>, Range<usize>);
        impl AsRef<[u8]> for View {
            fn as_ref(&self) -> &[u8] {
                self.0.slice(self.1.clone())
            }
        }
        Bytes::from_owner(View(self, range))
    }

    /// Whether so many bytes are there, or never will be.
    pub(crate) fn readiness(&self, count: usize) -> Option<Result<()>> {
        let state = self.state.load(Ordering::SeqCst);
        if self.filled_bytes() >= count {
            return Some(Ok(()));
        }
        match state {
            STATE_FILLING => None,
            STATE_FAILED => Some(Err(self.error.get().cloned().unwrap_or(Error::RuntimeEnded))),
            // Never more are asked for than it is long.
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
        // What came in between saw nobody waiting.
        self.readiness(count).map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits for so many bytes.
    pub(crate) async fn wait_for(&self, count: usize) -> Result<()> {
        poll_fn(|context| self.poll_readiness(count, context)).await
    }

    /// The same on a thread, which calls `tick` 20 times a second.
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

    /// Writes bytes behind those that are there; through its one [`Inlet`] alone.
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
        // SAFETY: this is the only writer, as the inlet is locked; there is room for so many bytes, and no reader
        // looks behind `filled`.
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
            // SAFETY: it came from a box of this length, and nobody looks at it any more.
            drop(unsafe { Box::from_raw(whole) });
        }
    }
}

/// The way into a buffer, open until it is [closed](Self::close): what fills it holds its memory through nothing
/// else.
#[derive(Clone)]
pub(crate) struct BufferInlet(Arc<Mutex<Option<Arc<BlockBuffer>>>>);

impl BufferInlet {
    /// Has it filled no further, and whoever waits for more told so. When this returns its memory is held by those
    /// alone who read it: a task that is aborted goes when its thread comes to it.
    pub(crate) fn close(&self) {
        self.finish_buffer(Err(Error::Evicted));
    }

    fn finish_buffer(&self, result: Result<()>) {
        // Held until it lets go of the buffer: whoever closes what is closed already waits for that, too.
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

/// What fills a buffer, front to back. Dropped before [`finish`](Self::finish), it has failed.
pub(crate) struct BufferWriter {
    inlet: BufferInlet,
    counters: Vec<Arc<ReadCounters>>,
    received_bytes: u64,
}

impl BufferWriter {
    /// Closes it from elsewhere.
    pub(crate) fn inlet(&self) -> BufferInlet {
        self.inlet.clone()
    }

    /// Says how it went.
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

    /// Puts bytes behind those that are there, as far as there is room, counts them and tells who waits.
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
            // Not a large block for the sake of a small part.
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
