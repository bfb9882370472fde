//! The context in which a request is made: priority of its bytes, and counters for its retries.
//!
//! A store does not know either, so both bypass it in a task-local of the fetching task.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::request_gate::RequestGate;
use crate::stats::ReadCounters;

tokio::task_local! {
    static REQUEST_CONTEXT: Arc<RequestContext>;
}

/// Sends are not counted.
const NOT_TRACKED: u8 = 0;
/// The next send is the first one.
const NOT_SENT: u8 = 1;
/// The next send is a retry.
const SENT: u8 = 2;

/// Priority and counters of a task's requests.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// Priority of the bytes: 0 if a reader waits for them; otherwise lower ranks are needed earlier.
    rank: AtomicU64,
    counters: Vec<Arc<ReadCounters>>,
    send_state: AtomicU8,
    is_waiting: AtomicBool,
    /// The gate at which the request waits for a slot, if it waits.
    gate: Mutex<Weak<RequestGate>>,
}

impl RequestContext {
    pub(crate) fn new(rank: u64, counters: Vec<Arc<ReadCounters>>) -> Arc<RequestContext> {
        Arc::new(RequestContext {
            rank: AtomicU64::new(rank),
            counters,
            send_state: AtomicU8::new(NOT_TRACKED),
            is_waiting: AtomicBool::new(false),
            gate: Mutex::default(),
        })
    }

    /// Returns the context of the current task.
    pub(crate) fn current() -> Option<Arc<RequestContext>> {
        REQUEST_CONTEXT.try_with(Arc::clone).ok()
    }

    /// Runs `work` in this context. The work must read the bodies of its answers as fast as they arrive.
    pub(crate) async fn run_within<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        REQUEST_CONTEXT.scope(self, work).await
    }

    pub(crate) fn rank(&self) -> u64 {
        self.rank.load(Ordering::SeqCst)
    }

    /// Lowers the rank: the bytes are needed earlier, but nobody waits for them yet.
    pub(crate) fn lower_rank(&self, rank: u64) {
        self.rank.fetch_min(rank, Ordering::SeqCst);
    }

    /// Sets the rank to 0, because a reader waits for the bytes.
    pub(crate) fn mark_awaited(&self) {
        if self.rank.swap(0, Ordering::SeqCst) > 0 && self.is_waiting.load(Ordering::SeqCst) {
            let gate = self.gate.lock().upgrade();
            if let Some(gate) = gate {
                gate.grant_free_slots();
            }
        }
    }

    /// Registers the gate at which the request waits, until the guard is dropped.
    pub(crate) fn join_gate_queue(&self, gate: &Arc<RequestGate>) -> GateQueueGuard<'_> {
        *self.gate.lock() = Arc::downgrade(gate);
        self.is_waiting.store(true, Ordering::SeqCst);
        GateQueueGuard(self)
    }

    /// Starts to count sends: the store may retry the next request by itself.
    pub(crate) fn count_retries_of_next_request(&self) {
        self.send_state.store(NOT_SENT, Ordering::Relaxed);
    }

    /// Counts a send; each but the first is a retry.
    pub(crate) fn record_sent(&self) {
        match self.send_state.load(Ordering::Relaxed) {
            NOT_SENT => self.send_state.store(SENT, Ordering::Relaxed),
            SENT => self.increment(|counters| &counters.retries),
            _ => {}
        }
    }

    /// Increments a counter in all counter sets.
    pub(crate) fn increment(&self, counter: impl Fn(&ReadCounters) -> &AtomicU64) {
        for counters in &self.counters {
            counter(counters).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Marks a request as waiting at a gate until it is dropped.
pub(crate) struct GateQueueGuard<'a>(&'a RequestContext);

impl Drop for GateQueueGuard<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::SeqCst);
    }
}
