//! How many requests may be on their way to one endpoint.
//!
//! ```text
//!   limit
//!    32 │          ╱│        ____╱│
//!       │        ╱  │      ╱      │      one more a round trip, and much slower from there on where
//!    16 │──────╱    │    ╱        │      it was too much the last time
//!       │  doubles  │  ╱          │
//!     8 │           │╱   refused  │╱     half of what was on its way
//! ```
//!
//! Additive increase and multiplicative decrease, as congestion is avoided by TCP (Chiu and Jain 1989;
//! RFC 5681): a server that says 429, or 503 as S3 does for `SlowDown`, is asked by half as many
//! requests at once, and by one more each time that as many as are allowed have been answered. Until
//! the first refusal each answer allows one more, which doubles them every round trip. Two things
//! differ. Refusals of requests that were sent before the last cut say nothing new, and cut nothing.
//! And where the last cut was made the next step is [`PATIENCE`] times as rare (as CUBIC stays below
//! its last maximum): a server with a fixed limit refuses one request in some hundred instead of one in ten.
//!
//! The slots go to whoever wants bytes soonest, by the rank that each has when a slot is free. An eighth
//! of them is for who waits by now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::request_context::RequestContext;

/// So many requests go at once to a server of which nothing is known: what a line of 400 MB/s takes over
/// connections of 25.
const INITIAL_LIMIT: usize = 16;
/// So many at most.
const CONCURRENCY_LIMIT_MAX: usize = 256;
/// How much rarer a step is where the last cut was made.
const CAUTIOUS_STEP_FACTOR: usize = 16;
/// This share of the slots is for who waits by now.
const READ_RESERVE_DIVISOR: usize = 8;
/// A server is not obeyed longer than this when it says how long to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How many, told from what was answered.
#[derive(Debug)]
struct ConcurrencyLimit {
    /// From 1 to [`LIMIT_MAX`].
    limit: usize,
    /// How many were answered since the limit was set.
    accepted_since_change: usize,
    /// How often it was cut.
    cut_count: u64,
    /// How many were too many the last time; none where that has been passed since.
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

    /// A request that was sent after so many cuts was answered; others waited, or as many as may were on
    /// their way.
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

    /// One was refused, of so many that were on their way.
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

/// Where requests to an endpoint wait until they may be sent.
#[derive(Debug)]
pub(crate) struct RequestGate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    concurrency: ConcurrencyLimit,
    in_flight: usize,
    waiting: Vec<WaitingRequest>,
    /// Counts those that came.
    arrivals: u64,
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct WaitingRequest {
    /// By it those of one rank go in the order in which they came.
    arrival: u64,
    context: Option<Arc<RequestContext>>,
    permit_sender: oneshot::Sender<RequestPermit>,
}

impl WaitingRequest {
    fn rank(&self) -> u64 {
        self.context.as_ref().map_or(0, |ticket| ticket.rank())
    }
}

/// A slot of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    gate: Arc<RequestGate>,
    /// How many cuts there were when it was given.
    cuts_at_grant: u64,
}

impl RequestPermit {
    /// Says that the server has answered, and not that it was asked too much.
    pub(crate) fn record_accepted(&self) {
        {
            let mut state = self.gate.0.lock();
            let is_full = !state.waiting.is_empty() || state.in_flight >= state.concurrency.limit;
            state.concurrency.record_accepted(self.cuts_at_grant, is_full);
        }
        self.gate.grant_free_slots();
    }

    /// Says that it was asked too much, and when it wants to be asked again, if it has said so.
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

    /// How many requests may be on their way.
    pub(crate) fn concurrency_limit(&self) -> usize {
        self.0.lock().concurrency.limit
    }

    /// Has so many go at once, where nothing else is known yet than to begin with.
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
            // From now on who wants it sooner says so here.
            let _waits = ticket.map(|ticket| ticket.join_gate_queue(self));
            self.grant_free_slots();
            if let Ok(permit) = coming.await {
                return permit;
            }
        }
    }

    /// A slot at once, whether there is one or not: for what takes back what others have begun, which may
    /// hold all of them.
    pub(crate) fn acquire_unconditionally(self: &Arc<Self>) -> RequestPermit {
        self.0.lock().grant_slot(self)
    }

    /// A slot, if one is free and nobody waits.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<RequestPermit> {
        let mut state = self.0.lock();
        let is_free = state.waiting.is_empty() && state.has_free_slot(false);
        is_free.then(|| state.grant_slot(self))
    }

    /// Gives away the slots that are free, to whoever has not given up meanwhile.
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
        // Each gives its slot back, which takes the lock.
        drop(unwanted);
    }
}

impl GateState {
    /// Who is the first to go, and its rank.
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

    /// Rounds against a server that takes so many at once: how many it refused.
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

    /// What comes of a future when it is polled once.
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
            // Three slots of those for everybody are needed before the next may go, and then the sooner does.
            flying.truncate(INITIAL_LIMIT - 3);
            assert!(poll_once(&mut second).await.is_none());
            flying.push(poll_once(&mut first).await.unwrap());
            // Somebody waits for the other by now.
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
            // It has been given a slot when it is given up.
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
