//! For whom a request is made: how soon its bytes are wanted, and who counts what becomes of it.
//!
//! A store knows nothing of either, so it goes past it, with the task that fetches.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::gate::Gate;
use crate::stats::Counters;

tokio::task_local! {
    static TICKET: Arc<Ticket>;
}

/// Nobody counts how often a request is sent.
const UNCOUNTED: u8 = 0;
/// The next time is the first.
const FRESH: u8 = 1;
/// The next time is a repetition.
const SENT: u8 = 2;

/// What the requests of a task are made for.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// When the bytes will be wanted: 0 by now, of others the least comes first.
    rank: AtomicU64,
    counters: Vec<Arc<Counters>>,
    sent: AtomicU8,
    is_waiting: AtomicBool,
    /// Where it waits for its turn, if it does.
    gate: Mutex<Weak<Gate>>,
}

impl Ticket {
    pub(crate) fn new(rank: u64, counters: Vec<Arc<Counters>>) -> Arc<Ticket> {
        Arc::new(Ticket {
            rank: AtomicU64::new(rank),
            counters,
            sent: AtomicU8::new(UNCOUNTED),
            is_waiting: AtomicBool::new(false),
            gate: Mutex::default(),
        })
    }

    /// That of the task that asks.
    pub(crate) fn current() -> Option<Arc<Ticket>> {
        TICKET.try_with(Arc::clone).ok()
    }

    /// Does work whose requests are made for it, and whose answers' bodies are taken as fast as they come.
    pub(crate) async fn spend<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        TICKET.scope(self, work).await
    }

    pub(crate) fn rank(&self) -> u64 {
        self.rank.load(Ordering::SeqCst)
    }

    /// Says that it is wanted sooner, but not yet.
    pub(crate) fn nearer(&self, rank: u64) {
        self.rank.fetch_min(rank, Ordering::SeqCst);
    }

    /// Says that somebody waits for it.
    pub(crate) fn wanted(&self) {
        if self.rank.swap(0, Ordering::SeqCst) > 0 && self.is_waiting.load(Ordering::SeqCst) {
            let gate = self.gate.lock().upgrade();
            if let Some(gate) = gate {
                gate.pump();
            }
        }
    }

    /// Says where it waits, until what is returned is dropped.
    pub(crate) fn waits_at(&self, gate: &Arc<Gate>) -> Waits<'_> {
        *self.gate.lock() = Arc::downgrade(gate);
        self.is_waiting.store(true, Ordering::SeqCst);
        Waits(self)
    }

    /// Says that a request is about to be made, which whoever makes it may repeat unseen.
    pub(crate) fn begin(&self) {
        self.sent.store(FRESH, Ordering::Relaxed);
    }

    /// Says that it is sent.
    pub(crate) fn sent(&self) {
        match self.sent.load(Ordering::Relaxed) {
            FRESH => self.sent.store(SENT, Ordering::Relaxed),
            SENT => self.count(|counters| &counters.retries),
            _ => {}
        }
    }

    /// Counts one, for all who count.
    pub(crate) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        for counters in &self.counters {
            counter(counters).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waiting for a turn.
pub(crate) struct Waits<'a>(&'a Ticket);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.is_waiting.store(false, Ordering::SeqCst);
    }
}
