//! The concurrency limit of an endpoint.
//!
//! ```text
//!   limit
//!    32 │          ╱│        ____╱│
//!       │        ╱  │      ╱      │      one more a round trip, and much slower near the limit
//!    16 │──────╱    │    ╱        │      that was refused the last time
//!       │  doubles  │  ╱          │
//!     8 │           │╱   refused  │╱     half of the requests in flight
//! ```
//!
//! Additive increase and multiplicative decrease, as in TCP's congestion avoidance (Chiu and Jain 1989; RFC
//! 5681). After an answer 429, or 503 as S3 sends for `SlowDown`, the limit is half of the requests in
//! flight. It rises by one each time that as many requests as the limit have been answered. Until the first
//! refusal each answer raises it by one, which doubles it every round trip. Two things differ from TCP.
//! Refusals of requests sent before the last cut say nothing new, and cut nothing. Near the limit of the last
//! cut a step is [`CAUTIOUS_STEP_FACTOR`] times as rare (as CUBIC stays below its last maximum): a server
//! with a fixed limit refuses one request in some hundred instead of one in ten.
//!
//! A free slot goes to the request with the lowest rank at that moment. An eighth of the slots is reserved
//! for requests that a reader waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::request_context::RequestContext;

/// Initial limit for an unknown server: a line of 400 MB/s needs 16 connections of 25 MB/s.
const INITIAL_LIMIT: usize = 16;
/// Maximum limit.
const CONCURRENCY_LIMIT_MAX: usize = 256;
/// Factor by which a step is rarer near the limit of the last cut.
const CAUTIOUS_STEP_FACTOR: usize = 16;
/// Divisor of the share of slots that is reserved for awaited requests.
const READ_RESERVE_DIVISOR: usize = 8;
/// Maximum pause that a server's `Retry-After` can impose.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The number of concurrent requests, derived from the answers.
#[derive(Debug)]
struct ConcurrencyLimit {
    /// From 1 to [`CONCURRENCY_LIMIT_MAX`].
    limit: usize,
    /// Requests answered since the limit was changed.
    accepted_since_change: usize,
    /// Number of cuts so far.
    cut_count: u64,
    /// Number of requests that was too high the last time; `None` once the limit has exceeded it.
    last_refused_at: Option<usize>,
}

impl ConcurrencyLimit {
    fn new() -> ConcurrencyLimit {
        ConcurrencyLimit {
            limit: INITIAL_LIMIT,
            accepted_since_change: 0,
            cut_count: 0,
            last_refused_at: None,
        }
    }

    /// Records the answer to a request that was sent after `cuts` cuts. `is_full`: others waited, or the
    /// limit was reached.
    fn record_accepted(&mut self, cuts: u64, is_full: bool) {
        if cuts != self.cut_count || !is_full {
            return;
        }
        self.accepted_since_change += 1;
        let step = match self.last_refused_at {
            _ if self.cut_count == 0 => 1,
            Some(many) if self.limit + 1 >= many => self.limit * CAUTIOUS_STEP_FACTOR,
            _ => self.limit,
        };
        if self.accepted_since_change >= step {
            self.accepted_since_change = 0;
            self.last_refused_at = self.last_refused_at.filter(|many| self.limit < *many);
            self.limit = (self.limit + 1).min(CONCURRENCY_LIMIT_MAX);
        }
    }

    /// Records a refusal with `flying` requests in flight.
    fn record_refused(&mut self, cuts: u64, flying: usize) {
        if cuts != self.cut_count {
            return;
        }
        let many = flying.clamp(1, self.limit);
        *self = ConcurrencyLimit {
            limit: (many / 2).max(1),
            accepted_since_change: 0,
            cut_count: self.cut_count + 1,
            last_refused_at: Some(many),
        };
    }
}

/// A queue in which requests to an endpoint wait for a slot.
#[derive(Debug)]
pub(crate) struct RequestGate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    concurrency: ConcurrencyLimit,
    in_flight: usize,
    waiting: Vec<WaitingRequest>,
    /// Number of requests that have arrived.
    arrivals: u64,
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct WaitingRequest {
    /// Arrival number: orders requests of the same rank.
    arrival: u64,
    context: Option<Arc<RequestContext>>,
    permit_sender: oneshot::Sender<RequestPermit>,
}

impl WaitingRequest {
    fn rank(&self) -> u64 {
        self.context.as_ref().map_or(0, |ticket| ticket.rank())
    }
}

/// A slot of an endpoint, freed when dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    gate: Arc<RequestGate>,
    /// Number of cuts when it was granted.
    cuts_at_grant: u64,
}

impl RequestPermit {
    /// Records that the server answered without refusing.
    pub(crate) fn record_accepted(&self) {
        {
            let mut state = self.gate.0.lock();
            let is_full = !state.waiting.is_empty() || state.in_flight >= state.concurrency.limit;
            state.concurrency.record_accepted(self.cuts_at_grant, is_full);
        }
        self.gate.grant_free_slots();
    }

    /// Records that the server refused because of too many requests, and the pause that it asked for, if any.
    pub(crate) fn record_refused(&self, pause: Option<Duration>) {
        let pause = pause.map(|pause| pause.min(RETRY_AFTER_MAX)).filter(|pause| !pause.is_zero());
        {
            let mut state = self.gate.0.lock();
            let flying = state.in_flight;
            state.concurrency.record_refused(self.cuts_at_grant, flying);
            let Some(pause) = pause else { return };
            let until = Instant::now() + pause;
            if state.paused_until.is_some_and(|known| known >= until) {
                return;
            }
            state.paused_until = Some(until);
        }
        let gate = Arc::downgrade(&self.gate);
        if let (Some(pause), Ok(runtime)) = (pause, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                tokio::time::sleep(pause).await;
                if let Some(gate) = gate.upgrade() {
                    gate.grant_free_slots();
                }
            });
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.gate.0.lock().in_flight -= 1;
        self.gate.grant_free_slots();
    }
}

impl RequestGate {
    pub(crate) fn new() -> Arc<RequestGate> {
        Arc::new(RequestGate(Mutex::new(GateState {
            concurrency: ConcurrencyLimit::new(),
            in_flight: 0,
            waiting: Vec::new(),
            arrivals: 0,
            paused_until: None,
        })))
    }

    /// Returns the maximum number of concurrent requests.
    pub(crate) fn concurrency_limit(&self) -> usize {
        self.0.lock().concurrency.limit
    }

    /// Sets the limit if it still has its initial value.
    pub(crate) fn set_initial_limit(self: &Arc<Self>, limit: usize) {
        {
            let mut state = self.0.lock();
            if state.concurrency.cut_count > 0 || state.concurrency.limit != INITIAL_LIMIT {
                return;
            }
            state.concurrency.limit = limit.clamp(1, CONCURRENCY_LIMIT_MAX);
            state.concurrency.accepted_since_change = 0;
        }
        self.grant_free_slots();
    }

    /// Waits for a slot.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        ticket: Option<&Arc<RequestContext>>,
    ) -> RequestPermit {
        loop {
            let (grant, coming) = oneshot::channel();
            {
                let mut state = self.0.lock();
                state.arrivals += 1;
                let number = state.arrivals;
                state.waiting.push(WaitingRequest {
                    arrival: number,
                    context: ticket.cloned(),
                    permit_sender: grant,
                });
            }
            // From now on the context reports here when its rank falls.
            let _waits = ticket.map(|ticket| ticket.join_gate_queue(self));
            self.grant_free_slots();
            if let Ok(permit) = coming.await {
                return permit;
            }
        }
    }

    /// Returns a slot at once, whether one is free or not: for requests that undo work whose requests may
    /// hold all slots.
    pub(crate) fn acquire_unconditionally(self: &Arc<Self>) -> RequestPermit {
        self.0.lock().grant_slot(self)
    }

    /// Returns a slot if one is free and nobody waits.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<RequestPermit> {
        let mut state = self.0.lock();
        let is_free = state.waiting.is_empty() && state.has_free_slot(false);
        is_free.then(|| state.grant_slot(self))
    }

    /// Grants free slots to waiting requests that have not been cancelled.
    pub(crate) fn grant_free_slots(self: &Arc<Self>) {
        let mut unwanted = Vec::new();
        {
            let mut state = self.0.lock();
            state.waiting.retain(|waiting| !waiting.permit_sender.is_closed());
            while let Some((index, rank)) = state.first_waiting()
                && state.has_free_slot(rank > 0)
            {
                let waiting = state.waiting.swap_remove(index);
                let permit = state.grant_slot(self);
                unwanted.extend(waiting.permit_sender.send(permit).err());
            }
        }
        // Each frees its slot, which takes the lock.
        drop(unwanted);
    }
}

impl GateState {
    /// Returns index and rank of the next request to be granted a slot.
    fn first_waiting(&self) -> Option<(usize, u64)> {
        let ranks = self.waiting.iter().enumerate();
        let first = ranks.map(|(index, one)| (one.rank(), one.arrival, index)).min();
        first.map(|(rank, _, index)| (index, rank))
    }

    fn has_free_slot(&mut self, is_ahead: bool) -> bool {
        if self.paused_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        self.paused_until = None;
        let limit = self.concurrency.limit;
        self.in_flight < if is_ahead { limit - limit / READ_RESERVE_DIVISOR } else { limit }
    }

    fn grant_slot(&mut self, gate: &Arc<RequestGate>) -> RequestPermit {
        self.in_flight += 1;
        RequestPermit { gate: Arc::clone(gate), cuts_at_grant: self.concurrency.cut_count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Simulates rounds against a server with this capacity and returns the number of refusals.
    fn run_rounds(rate: &mut ConcurrencyLimit, capacity: usize, count: usize) -> usize {
        let mut refused = 0;
        for _ in 0..count {
            let (sent, cuts) = (rate.limit, rate.cut_count);
            for _ in 0..sent.saturating_sub(capacity) {
                refused += 1;
                rate.record_refused(cuts, sent);
            }
            for _ in 0..sent.min(capacity) {
                rate.record_accepted(cuts, true);
            }
        }
        refused
    }

    #[test]
    fn the_limit_doubles_each_round_trip_until_it_is_refused() {
        let mut rate = ConcurrencyLimit::new();
        for expected in [32, 64, 128, 256, 256] {
            assert_eq!(run_rounds(&mut rate, usize::MAX, 1), 0);
            assert_eq!(rate.limit, expected);
        }
    }

    #[test]
    fn a_round_trip_cuts_once_and_earlier_requests_are_ignored() {
        let mut rate = ConcurrencyLimit::new();
        for _ in 0..12 {
            rate.record_refused(0, 16);
        }
        assert_eq!((rate.limit, rate.cut_count), (8, 1));
        for _ in 0..100 {
            rate.record_accepted(0, true);
        }
        assert_eq!(rate.limit, 8);
    }

    #[test]
    fn a_limit_that_is_not_reached_stays_unchanged() {
        let mut rate = ConcurrencyLimit::new();
        (0..1_000).for_each(|_| rate.record_accepted(0, false));
        assert_eq!(rate.limit, INITIAL_LIMIT);
    }

    #[test]
    fn a_server_that_takes_more_again_is_asked_more_again() {
        let mut rate = ConcurrencyLimit::new();
        run_rounds(&mut rate, 2, 100);
        assert!(rate.limit <= 3, "{rate:?}");
        run_rounds(&mut rate, usize::MAX, 150);
        assert!(rate.limit > 64, "{rate:?}");
    }

    proptest! {
        #[test]
        fn few_are_refused_and_most_of_what_a_server_takes_is_used(capacity in 1..200usize) {
            let mut rate = ConcurrencyLimit::new();
            run_rounds(&mut rate, capacity, 10);
            let (mut refused, mut sent) = (0, 0);
            for _ in 0..2_000 {
                sent += rate.limit;
                refused += run_rounds(&mut rate, capacity, 1);
                prop_assert!((1..=capacity + 1).contains(&rate.limit), "{rate:?}");
            }
            prop_assert!(refused * 12 <= sent, "{refused} of {sent}");
            prop_assert!(sent * 10 >= 2_000 * capacity * 6, "{sent} of {}", 2_000 * capacity);
        }
    }

    fn block_on(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
    }

    /// Returns the output of a future if one poll completes it.
    async fn poll_once<T>(work: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut *work).poll(context) {
            std::task::Poll::Ready(found) => std::task::Poll::Ready(Some(found)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    fn ticket(rank: u64) -> Arc<RequestContext> {
        RequestContext::new(rank, Vec::new())
    }

    #[test]
    fn awaited_reads_precede_prefetches_and_have_reserved_slots() {
        block_on(async {
            let gate = RequestGate::new();
            let (soon, later) = (ticket(5), ticket(9));
            let mut flying = Vec::new();
            for _ in 0..INITIAL_LIMIT - INITIAL_LIMIT / READ_RESERVE_DIVISOR {
                flying.push(gate.acquire(Some(&later)).await);
            }
            let mut second = Box::pin(gate.acquire(Some(&later)));
            let mut first = Box::pin(gate.acquire(Some(&soon)));
            assert!(
                poll_once(&mut second).await.is_none() && poll_once(&mut first).await.is_none()
            );
            flying.push(gate.acquire(None).await);
            flying.push(poll_once(&mut Box::pin(gate.acquire(None))).await.unwrap());
            let mut read = Box::pin(gate.acquire(None));
            assert!(poll_once(&mut read).await.is_none());
            flying.truncate(INITIAL_LIMIT - 1);
            flying.push(poll_once(&mut read).await.unwrap());
            // The next prefetch needs three free slots of the unreserved ones; then the lower rank goes
            // first.
            flying.truncate(INITIAL_LIMIT - 3);
            assert!(poll_once(&mut second).await.is_none());
            flying.push(poll_once(&mut first).await.unwrap());
            // A reader waits for the other one now.
            later.mark_awaited();
            flying.push(poll_once(&mut second).await.unwrap());
        });
    }

    #[test]
    fn a_request_that_is_given_up_leaves_its_slot_to_the_next() {
        block_on(async {
            let gate = RequestGate::new();
            let mut flying = Vec::new();
            for _ in 0..INITIAL_LIMIT {
                flying.push(gate.acquire(None).await);
            }
            let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(gate.acquire(None))).collect();
            for one in &mut waiting {
                assert!(poll_once(one).await.is_none());
            }
            let last = waiting.pop();
            drop(waiting);
            flying.pop();
            flying.push(poll_once(&mut last.unwrap()).await.unwrap());
            assert!(gate.try_acquire().is_none());
            let mut given = Box::pin(gate.acquire(None));
            assert!(poll_once(&mut given).await.is_none());
            // It is cancelled after a slot was granted.
            flying.pop();
            drop(given);
            assert!(gate.try_acquire().is_some());
        });
    }

    #[test]
    fn unconditional_permits_do_not_wait() {
        block_on(async {
            let gate = RequestGate::new();
            let mut flying = Vec::new();
            for _ in 0..INITIAL_LIMIT {
                flying.push(gate.acquire(None).await);
            }
            flying.push(gate.acquire_unconditionally());
            flying.pop();
            assert!(poll_once(&mut Box::pin(gate.acquire(None))).await.is_none());
        });
    }

    #[test]
    fn no_request_is_sent_before_retry_after_has_elapsed() {
        block_on(async {
            let gate = RequestGate::new();
            let permit = gate.acquire(None).await;
            let mut waiting = Box::pin(gate.acquire(None));
            let pause = Duration::from_millis(20);
            permit.record_refused(Some(pause));
            let until = gate.0.lock().paused_until.unwrap();
            drop(permit);
            waiting.as_mut().await;
            assert!(Instant::now() >= until);
        });
    }
}
