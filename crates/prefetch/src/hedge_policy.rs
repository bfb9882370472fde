//! Hedging: the delay after which a slow request is sent a second time, and the budget of such requests.
//!
//! A few of many requests to an object store take many times as long as the others, and a reader waits for
//! each. A hedged request is sent when the first is slower than 99 % of those so far, and is answered as
//! fast as any (Dean and Barroso, *The Tail at Scale*, 2013). If everything becomes slow, hedging would
//! double the load, so there is a budget: each request adds a fiftieth of a hedge, up to
//! [`HEDGES_SAVED_MAX`].
//!
//! A caller with a deadline cannot wait for a hundred answers to learn the delay, nor for a pooled connection
//! whose other end is gone: it uses [`hedge_early`](HedgePolicy::hedge_early).

use std::time::Duration;

/// Number of latest latencies from which the delay is computed.
const LATENCY_SAMPLES_MAX: usize = 512;
/// Minimum number of latencies before a delay is known.
const LATENCY_SAMPLES_MIN: usize = 100;
/// Number of new latencies after which the delay is computed again.
const LATENCY_UPDATE_SAMPLES: usize = 32;
/// Minimum delay: faster answers are never slow.
const HEDGE_DELAY_MIN: Duration = Duration::from_millis(100);
/// Number of requests that allow one hedge.
const REQUESTS_PER_HEDGE: u64 = 50;
/// Maximum number of saved hedges.
const HEDGES_SAVED_MAX: u64 = 10;
/// Number of hedges available at once in early hedging.
const EARLY_HEDGES_MAX: u64 = 64;
/// Delay of early hedging as long as no percentile is known.
const EARLY_HEDGE_DELAY: Duration = Duration::from_millis(250);

/// First-byte latencies of an endpoint, and the hedges that they allow.
#[derive(Debug, Default)]
pub(crate) struct HedgePolicy {
    /// First-byte latencies in microseconds; the oldest is at `next_sample` once there are
    /// [`LATENCY_SAMPLES_MAX`].
    latency_samples_us: Vec<u32>,
    next_sample: usize,
    /// Latencies recorded since `hedge_delay` was computed.
    samples_since_update: usize,
    /// The 99th percentile, once it is known.
    hedge_delay: Option<Duration>,
    /// Requests without a hedge so far: the budget.
    unhedged_requests: u64,
    hedges_early: bool,
}

impl HedgePolicy {
    /// Counts a request that may be hedged and returns the delay before its hedge, if one is known.
    pub(crate) fn begin_request(&mut self) -> Option<Duration> {
        let most = if self.hedges_early { EARLY_HEDGES_MAX } else { HEDGES_SAVED_MAX };
        self.unhedged_requests = (self.unhedged_requests + 1).min(most * REQUESTS_PER_HEDGE);
        self.hedge_delay.or(self.hedges_early.then_some(EARLY_HEDGE_DELAY))
    }

    /// Switches to early hedging, because a caller has a deadline.
    pub(crate) fn hedge_early(&mut self) {
        self.hedges_early = true;
        self.unhedged_requests = EARLY_HEDGES_MAX * REQUESTS_PER_HEDGE;
    }

    /// Records the first-byte latency of an answer.
    pub(crate) fn record_latency(&mut self, after: Duration) {
        let sample = u32::try_from(after.as_micros()).unwrap_or(u32::MAX);
        match self.latency_samples_us.get_mut(self.next_sample) {
            Some(oldest) => *oldest = sample,
            None => self.latency_samples_us.push(sample),
        }
        self.next_sample = (self.next_sample + 1) % LATENCY_SAMPLES_MAX;
        self.samples_since_update += 1;
        if self.latency_samples_us.len() >= LATENCY_SAMPLES_MIN
            && self.samples_since_update >= LATENCY_UPDATE_SAMPLES
        {
            self.samples_since_update = 0;
            let mut samples = self.latency_samples_us.clone();
            let place = samples.len() * 99 / 100;
            let (_, found, _) = samples.select_nth_unstable(place);
            let found = Duration::from_micros((*found).into());
            self.hedge_delay = Some(found.max(HEDGE_DELAY_MIN));
        }
    }

    /// Takes a hedge from the budget; `false` if there is none.
    pub(crate) fn take_hedge(&mut self) -> bool {
        let left = self.unhedged_requests.checked_sub(REQUESTS_PER_HEDGE);
        self.unhedged_requests = left.unwrap_or(self.unhedged_requests);
        left.is_some()
    }

    /// Returns a hedge to the budget that was not sent.
    pub(crate) fn return_hedge(&mut self) {
        self.unhedged_requests += REQUESTS_PER_HEDGE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn hedge_delay_after(samples: impl IntoIterator<Item = Duration>) -> Option<Duration> {
        let mut patience = HedgePolicy::default();
        samples.into_iter().for_each(|sample| patience.record_latency(sample));
        patience.begin_request()
    }

    #[test]
    fn hedge_delay_is_a_percentile_of_enough_recent_latencies() {
        assert_eq!(hedge_delay_after((0..99).map(|_| MS)), None);
        assert_eq!(hedge_delay_after((0..200).map(|_| MS)), Some(HEDGE_DELAY_MIN));
        assert_eq!(hedge_delay_after((1..=1_000).map(|n| MS * n)), Some(MS * 991));
        let slow_before = (0..600).map(|_| 900 * MS).chain((0..600).map(|_| 200 * MS));
        assert_eq!(hedge_delay_after(slow_before), Some(200 * MS));
        assert!(hedge_delay_after((0..200).map(|_| Duration::MAX)).is_some());
    }

    #[test]
    fn early_hedging_has_a_delay_and_hedges_from_the_start() {
        let mut patience = HedgePolicy::default();
        assert!(!patience.take_hedge());
        patience.hedge_early();
        assert_eq!(patience.begin_request(), Some(EARLY_HEDGE_DELAY));
        assert_eq!((0..100).filter(|_| patience.take_hedge()).count() as u64, EARLY_HEDGES_MAX);
        (0..200).for_each(|_| patience.record_latency(MS));
        assert_eq!(patience.begin_request(), Some(HEDGE_DELAY_MIN));
    }

    proptest! {
        #[test]
        fn hedges_are_a_fiftieth_of_the_requests_at_most_and_few_at_once(
            steps in proptest::collection::vec(any::<bool>(), 0..2_000),
            idle in 0..5_000u64,
        ) {
            let mut patience = HedgePolicy::default();
            (0..idle).for_each(|_| assert_eq!(patience.begin_request(), None));
            let (mut requests, mut hedges) = (0, 0);
            for is_request in steps {
                if is_request {
                    patience.begin_request();
                    requests += 1;
                } else {
                    hedges += u64::from(patience.take_hedge());
                }
                prop_assert!(hedges * REQUESTS_PER_HEDGE <= idle + requests);
                prop_assert!(hedges <= HEDGES_SAVED_MAX + requests / REQUESTS_PER_HEDGE);
            }
        }
    }
}
