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

use crate::ticket::Ticket;

/// So many requests go at once to a server of which nothing is known: what a line of 400 MB/s takes over
/// connections of 25.
const START: usize = 16;
/// So many at most.
const LIMIT_MAX: usize = 256;
/// How much rarer a step is where the last cut was made.
const PATIENCE: usize = 16;
/// This share of the slots is for who waits by now.
const SHARE_FOR_READS: usize = 8;
/// A server is not obeyed longer than this when it says how long to wait.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How many, told from what was answered.
#[derive(Debug)]
struct Rate {
    /// From 1 to [`LIMIT_MAX`].
    limit: usize,
    /// How many were answered since the limit was set.
    accepted: usize,
    /// How often it was cut.
    cuts: u64,
    /// How many were too many the last time; none where that has been passed since.
    refused_at: Option<usize>,
}

impl Rate {
    fn new() -> Rate {
        Rate { limit: START, accepted: 0, cuts: 0, refused_at: None }
    }

    /// A request that was sent after so many cuts was answered; others waited, or as many as may were on
    /// their way.
    fn accepted(&mut self, cuts: u64, is_full: bool) {
        if cuts != self.cuts || !is_full {
            return;
        }
        self.accepted += 1;
        let step = match self.refused_at {
            _ if self.cuts == 0 => 1,
            Some(many) if self.limit + 1 >= many => self.limit * PATIENCE,
            _ => self.limit,
        };
        if self.accepted >= step {
            self.accepted = 0;
            self.refused_at = self.refused_at.filter(|many| self.limit < *many);
            self.limit = (self.limit + 1).min(LIMIT_MAX);
        }
    }

    /// One was refused, of so many that were on their way.
    fn refused(&mut self, cuts: u64, flying: usize) {
        if cuts != self.cuts {
            return;
        }
        let many = flying.clamp(1, self.limit);
        *self = Rate {
            limit: (many / 2).max(1),
            accepted: 0,
            cuts: self.cuts + 1,
            refused_at: Some(many),
        };
    }
}

/// Where requests to an endpoint wait until they may be sent.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    rate: Rate,
    flying: usize,
    waiting: Vec<Waiting>,
    /// Counts those that came.
    count: u64,
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    /// By it those of one rank go in the order in which they came.
    number: u64,
    ticket: Option<Arc<Ticket>>,
    grant: oneshot::Sender<Permit>,
}

impl Waiting {
    fn rank(&self) -> u64 {
        self.ticket.as_ref().map_or(0, |ticket| ticket.rank())
    }
}

/// A slot of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    /// How many cuts there were when it was given.
    cuts: u64,
}

impl Permit {
    /// Says that the server has answered, and not that it was asked too much.
    pub(crate) fn accepted(&self) {
        {
            let mut state = self.gate.0.lock();
            let is_full = !state.waiting.is_empty() || state.flying >= state.rate.limit;
            state.rate.accepted(self.cuts, is_full);
        }
        self.gate.pump();
    }

    /// Says that it was asked too much, and when it wants to be asked again, if it has said so.
    pub(crate) fn refused(&self, pause: Option<Duration>) {
        let pause = pause.map(|pause| pause.min(PAUSE_MAX)).filter(|pause| !pause.is_zero());
        {
            let mut state = self.gate.0.lock();
            let flying = state.flying;
            state.rate.refused(self.cuts, flying);
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
                    gate.pump();
                }
            });
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.0.lock().flying -= 1;
        self.gate.pump();
    }
}

impl Gate {
    pub(crate) fn new() -> Arc<Gate> {
        Arc::new(Gate(Mutex::new(State {
            rate: Rate::new(),
            flying: 0,
            waiting: Vec::new(),
            count: 0,
            paused_until: None,
        })))
    }

    /// How many requests may be on their way.
    pub(crate) fn limit(&self) -> usize {
        self.0.lock().rate.limit
    }

    /// Has so many go at once, where nothing else is known yet than to begin with.
    pub(crate) fn start_with(self: &Arc<Self>, limit: usize) {
        {
            let mut state = self.0.lock();
            if state.rate.cuts > 0 || state.rate.limit != START {
                return;
            }
            state.rate.limit = limit.clamp(1, LIMIT_MAX);
            state.rate.accepted = 0;
        }
        self.pump();
    }

    /// Waits for a slot.
    pub(crate) async fn enter(self: &Arc<Self>, ticket: Option<&Arc<Ticket>>) -> Permit {
        loop {
            let (grant, coming) = oneshot::channel();
            {
                let mut state = self.0.lock();
                state.count += 1;
                let number = state.count;
                state.waiting.push(Waiting { number, ticket: ticket.cloned(), grant });
            }
            // From now on who wants it sooner says so here.
            let _waits = ticket.map(|ticket| ticket.waits_at(self));
            self.pump();
            if let Ok(permit) = coming.await {
                return permit;
            }
        }
    }

    /// A slot at once, whether there is one or not: for what takes back what others have begun, which may
    /// hold all of them.
    pub(crate) fn enter_now(self: &Arc<Self>) -> Permit {
        self.0.lock().take(self)
    }

    /// A slot, if one is free and nobody waits.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Permit> {
        let mut state = self.0.lock();
        let is_free = state.waiting.is_empty() && state.has_slot(false);
        is_free.then(|| state.take(self))
    }

    /// Gives away the slots that are free, to whoever has not given up meanwhile.
    pub(crate) fn pump(self: &Arc<Self>) {
        let mut unwanted = Vec::new();
        {
            let mut state = self.0.lock();
            state.waiting.retain(|waiting| !waiting.grant.is_closed());
            while let Some((index, rank)) = state.first()
                && state.has_slot(rank > 0)
            {
                let waiting = state.waiting.swap_remove(index);
                let permit = state.take(self);
                unwanted.extend(waiting.grant.send(permit).err());
            }
        }
        // Each gives its slot back, which takes the lock.
        drop(unwanted);
    }
}

impl State {
    /// Who is the first to go, and its rank.
    fn first(&self) -> Option<(usize, u64)> {
        let ranks = self.waiting.iter().enumerate();
        let first = ranks.map(|(index, one)| (one.rank(), one.number, index)).min();
        first.map(|(rank, _, index)| (index, rank))
    }

    fn has_slot(&mut self, is_ahead: bool) -> bool {
        if self.paused_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        self.paused_until = None;
        let limit = self.rate.limit;
        self.flying < if is_ahead { limit - limit / SHARE_FOR_READS } else { limit }
    }

    fn take(&mut self, gate: &Arc<Gate>) -> Permit {
        self.flying += 1;
        Permit { gate: Arc::clone(gate), cuts: self.rate.cuts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rounds against a server that takes so many at once: how many it refused.
    fn rounds(rate: &mut Rate, capacity: usize, count: usize) -> usize {
        let mut refused = 0;
        for _ in 0..count {
            let (sent, cuts) = (rate.limit, rate.cuts);
            for _ in 0..sent.saturating_sub(capacity) {
                refused += 1;
                rate.refused(cuts, sent);
            }
            for _ in 0..sent.min(capacity) {
                rate.accepted(cuts, true);
            }
        }
        refused
    }

    #[test]
    fn the_limit_doubles_each_round_trip_until_it_is_refused() {
        let mut rate = Rate::new();
        for expected in [32, 64, 128, 256, 256] {
            assert_eq!(rounds(&mut rate, usize::MAX, 1), 0);
            assert_eq!(rate.limit, expected);
        }
    }

    #[test]
    fn a_round_trip_cuts_once_and_what_was_sent_before_the_cut_counts_no_more() {
        let mut rate = Rate::new();
        for _ in 0..12 {
            rate.refused(0, 16);
        }
        assert_eq!((rate.limit, rate.cuts), (8, 1));
        for _ in 0..100 {
            rate.accepted(0, true);
        }
        assert_eq!(rate.limit, 8);
    }

    #[test]
    fn a_limit_that_is_not_reached_says_nothing_of_the_server() {
        let mut rate = Rate::new();
        (0..1_000).for_each(|_| rate.accepted(0, false));
        assert_eq!(rate.limit, START);
    }

    #[test]
    fn a_server_that_takes_more_again_is_asked_more_again() {
        let mut rate = Rate::new();
        rounds(&mut rate, 2, 100);
        assert!(rate.limit <= 3, "{rate:?}");
        rounds(&mut rate, usize::MAX, 150);
        assert!(rate.limit > 64, "{rate:?}");
    }

    proptest! {
        #[test]
        fn few_are_refused_and_most_of_what_a_server_takes_is_used(capacity in 1..200usize) {
            let mut rate = Rate::new();
            rounds(&mut rate, capacity, 10);
            let (mut refused, mut sent) = (0, 0);
            for _ in 0..2_000 {
                sent += rate.limit;
                refused += rounds(&mut rate, capacity, 1);
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
    async fn polled<T>(work: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut *work).poll(context) {
            std::task::Poll::Ready(found) => std::task::Poll::Ready(Some(found)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    fn ticket(rank: u64) -> Arc<Ticket> {
        Ticket::new(rank, Vec::new())
    }

    #[test]
    fn who_waits_by_now_goes_before_what_may_be_wanted_later_and_has_slots_of_his_own() {
        block_on(async {
            let gate = Gate::new();
            let (soon, later) = (ticket(5), ticket(9));
            let mut flying = Vec::new();
            for _ in 0..START - START / SHARE_FOR_READS {
                flying.push(gate.enter(Some(&later)).await);
            }
            let mut second = Box::pin(gate.enter(Some(&later)));
            let mut first = Box::pin(gate.enter(Some(&soon)));
            assert!(polled(&mut second).await.is_none() && polled(&mut first).await.is_none());
            flying.push(gate.enter(None).await);
            flying.push(polled(&mut Box::pin(gate.enter(None))).await.unwrap());
            let mut read = Box::pin(gate.enter(None));
            assert!(polled(&mut read).await.is_none());
            flying.truncate(START - 1);
            flying.push(polled(&mut read).await.unwrap());
            // Three slots of those for everybody are needed before the next may go, and then the sooner does.
            flying.truncate(START - 3);
            assert!(polled(&mut second).await.is_none());
            flying.push(polled(&mut first).await.unwrap());
            // Somebody waits for the other by now.
            later.wanted();
            flying.push(polled(&mut second).await.unwrap());
        });
    }

    #[test]
    fn a_request_that_is_given_up_leaves_its_slot_to_the_next() {
        block_on(async {
            let gate = Gate::new();
            let mut flying = Vec::new();
            for _ in 0..START {
                flying.push(gate.enter(None).await);
            }
            let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(gate.enter(None))).collect();
            for one in &mut waiting {
                assert!(polled(one).await.is_none());
            }
            let last = waiting.pop();
            drop(waiting);
            flying.pop();
            flying.push(polled(&mut last.unwrap()).await.unwrap());
            assert!(gate.try_enter().is_none());
            let mut given = Box::pin(gate.enter(None));
            assert!(polled(&mut given).await.is_none());
            // It has been given a slot when it is given up.
            flying.pop();
            drop(given);
            assert!(gate.try_enter().is_some());
        });
    }

    #[test]
    fn what_takes_something_back_waits_for_nobody() {
        block_on(async {
            let gate = Gate::new();
            let mut flying = Vec::new();
            for _ in 0..START {
                flying.push(gate.enter(None).await);
            }
            flying.push(gate.enter_now());
            flying.pop();
            assert!(polled(&mut Box::pin(gate.enter(None))).await.is_none());
        });
    }

    #[test]
    fn nobody_is_sent_before_the_server_wants_to_be_asked_again() {
        block_on(async {
            let gate = Gate::new();
            let permit = gate.enter(None).await;
            let mut waiting = Box::pin(gate.enter(None));
            let pause = Duration::from_millis(20);
            permit.refused(Some(pause));
            let until = gate.0.lock().paused_until.unwrap();
            drop(permit);
            waiting.as_mut().await;
            assert!(Instant::now() >= until);
        });
    }
}
