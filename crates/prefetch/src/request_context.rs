//! For whom a request is made: how soon its bytes are wanted, and who counts what becomes of it.
//!
//! A store knows nothing of either, so it goes past it, with the task that fetches.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::request_gate::RequestGate;
use crate::stats::ReadCounters;

tokio::task_local! {
    static REQUEST_CONTEXT: Arc<RequestContext>;
}

/// Nobody counts how often a request is sent.
const NOT_TRACKED: u8 = 0;
/// The next time is the first.
const NOT_SENT: u8 = 1;
/// The next time is a repetition.
const SENT: u8 = 2;

/// What the requests of a task are made for.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// When the bytes will be wanted: 0 by now, of others the least comes first.
    rank: AtomicU64,
    counters: Vec<Arc<ReadCounters>>,
    send_state: AtomicU8,
    is_waiting: AtomicBool,
    /// Where it waits for its turn, if it does.
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

    /// That of the task that asks.
    pub(crate) fn current() -> Option<Arc<RequestContext>> {
        REQUEST_CONTEXT.try_with(Arc::clone).ok()
    }

    /// Does work whose requests are made for it, and whose answers' bodies are taken as fast as they come.
    pub(crate) async fn run_within<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        REQUEST_CONTEXT.scope(self, work).await
    }

    pub(crate) fn rank(&self) -> u64 {
        self.rank.load(Ordering::SeqCst)
    }

    /// Says that it is wanted sooner, but not yet.
    pub(crate) fn lower_rank(&self, rank: u64) {
        self.rank.fetch_min(rank, Ordering::SeqCst);
    }

    /// Says that somebody waits for it.
    pub(crate) fn mark_awaited(&self) {
        if self.rank.swap(0, Ordering::SeqCst) > 0 && self.is_waiting.load(Ordering::SeqCst) {
            let gate = self.gate.lock().upgrade();
            if let Some(gate) = gate {
                gate.grant_free_slots();
            }
        }
    }

    /// Says where it waits, until what is returned is dropped.
    pub(crate) fn join_gate_queue(&self, gate: &Arc<RequestGate>) -> GateQueueGuard<'_> {
        *self.gate.lock() = Arc::downgrade(gate);
        self.is_waiting.store(true, Ordering::SeqCst);
        GateQueueGuard(self)
    }

    /// Says that a request is about to be made, which whoever makes it may repeat unseen.
    pub(crate) fn track_next_request(&self) {
        self.send_state.store(NOT_SENT, Ordering::Relaxed);
    }

    /// Says that it is sent.
    pub(crate) fn record_sent(&self) {
        match self.send_state.load(Ordering::Relaxed) {
            NOT_SENT => self.send_state.store(SENT, Ordering::Relaxed),
            SENT => self.increment(|counters| &counters.retries),
            _ => {}
        }
    }

    /// Counts one, for all who count.
    pub(crate) fn increment(&self, counter: impl Fn(&ReadCounters) -> &AtomicU64) {
        for counters in &self.counters {
            counter(counters).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waiting for a turn.
pub(crate) struct GateQueueGuard<'a>(&'a RequestContext);

impl Drop for GateQueueGuard<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::SeqCst);
    }
}
