//! How long an answer is waited for before it is asked for a second time.
//!
//! Of many requests to an object store a few take many times as long as the others, and a reader waits for
//! each. A second one, sent when the first is slower than all but a hundredth of those so far, is answered as
//! fast as any (Dean and Barroso, *The Tail at Scale*, 2013): hedging. Where everything becomes slow it would
//! double the load instead, so there is a budget: each request adds a fiftieth of a hedge, up to
//! [`HEDGES_SAVED_MAX`].
//!
//! Whoever has a deadline cannot wait until a hundred answers say what is slow, nor for a connection that was kept and whose
//! other end is gone: [`hurry`](Patience::hurry).

use std::time::Duration;

/// So many answers, the last ones, say what is slow …
const LATENCY_SAMPLES_MAX: usize = 512;
/// … once there are so many.
const LATENCY_SAMPLES_MIN: usize = 100;
/// What is slow is looked up anew after so many answers.
const LATENCY_UPDATE_SAMPLES: usize = 32;
/// What comes faster than this is never slow.
const HEDGE_DELAY_MIN: Duration = Duration::from_millis(100);
/// One of so many requests may be sent twice.
const REQUESTS_PER_HEDGE: u64 = 50;
/// So many hedges are saved up at most.
const HEDGES_SAVED_MAX: u64 = 10;
/// In a hurry so many are there to begin with …
const EARLY_HEDGES_MAX: u64 = 64;
/// … and what has no first byte after so long is slow as long as nothing else is known.
const EARLY_HEDGE_DELAY: Duration = Duration::from_millis(250);

/// The times to the first byte of an endpoint, and what they allow.
#[derive(Debug, Default)]
pub(crate) struct HedgePolicy {
    /// In microseconds; the oldest is at `next` once there are [`SAMPLES_MAX`].
    latency_samples_us: Vec<u32>,
    next_sample: usize,
    /// How many came since `limit` was looked up.
    samples_since_update: usize,
    /// The 99th percentile, once it is known.
    hedge_delay: Option<Duration>,
    /// Requests that no hedge has been made for.
    unhedged_requests: u64,
    hedges_early: bool,
}

impl HedgePolicy {
    /// Says that a request is made that may be sent twice; how long it is waited for before.
    pub(crate) fn begin_request(&mut self) -> Option<Duration> {
        let most = if self.hedges_early { EARLY_HEDGES_MAX } else { HEDGES_SAVED_MAX };
        self.unhedged_requests = (self.unhedged_requests + 1).min(most * REQUESTS_PER_HEDGE);
        self.hedge_delay.or(self.hedges_early.then_some(EARLY_HEDGE_DELAY))
    }

    /// Says that from now on somebody has a deadline.
    pub(crate) fn hedge_early(&mut self) {
        self.hedges_early = true;
        self.unhedged_requests = EARLY_HEDGES_MAX * REQUESTS_PER_HEDGE;
    }

    /// One was answered after so long.
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

    /// Takes a hedge from what was saved, if there is one.
    pub(crate) fn take_hedge(&mut self) -> bool {
        let left = self.unhedged_requests.checked_sub(REQUESTS_PER_HEDGE);
        self.unhedged_requests = left.unwrap_or(self.unhedged_requests);
        left.is_some()
    }

    /// Gives one back that was not made.
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
