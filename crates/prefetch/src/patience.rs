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
const SAMPLES_MAX: usize = 512;
/// … once there are so many.
const SAMPLES_MIN: usize = 100;
/// What is slow is looked up anew after so many answers.
const SAMPLES_STEP: usize = 32;
/// What comes faster than this is never slow.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// One of so many requests may be sent twice.
const REQUESTS_PER_HEDGE: u64 = 50;
/// So many hedges are saved up at most.
const HEDGES_SAVED_MAX: u64 = 10;
/// In a hurry so many are there to begin with …
const HURRIED_HEDGES: u64 = 64;
/// … and what has no first byte after so long is slow as long as nothing else is known.
const HURRIED_PATIENCE: Duration = Duration::from_millis(250);

/// The times to the first byte of an endpoint, and what they allow.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// In microseconds; the oldest is at `next` once there are [`SAMPLES_MAX`].
    samples: Vec<u32>,
    next: usize,
    /// How many came since `limit` was looked up.
    fresh: usize,
    /// The 99th percentile, once it is known.
    limit: Option<Duration>,
    /// Requests that no hedge has been made for.
    saved: u64,
    is_hurried: bool,
}

impl Patience {
    /// Says that a request is made that may be sent twice; how long it is waited for before.
    pub(crate) fn begin(&mut self) -> Option<Duration> {
        let most = if self.is_hurried { HURRIED_HEDGES } else { HEDGES_SAVED_MAX };
        self.saved = (self.saved + 1).min(most * REQUESTS_PER_HEDGE);
        self.limit.or(self.is_hurried.then_some(HURRIED_PATIENCE))
    }

    /// Says that from now on somebody has a deadline.
    pub(crate) fn hurry(&mut self) {
        self.is_hurried = true;
        self.saved = HURRIED_HEDGES * REQUESTS_PER_HEDGE;
    }

    /// One was answered after so long.
    pub(crate) fn answered(&mut self, after: Duration) {
        let sample = u32::try_from(after.as_micros()).unwrap_or(u32::MAX);
        match self.samples.get_mut(self.next) {
            Some(oldest) => *oldest = sample,
            None => self.samples.push(sample),
        }
        self.next = (self.next + 1) % SAMPLES_MAX;
        self.fresh += 1;
        if self.samples.len() >= SAMPLES_MIN && self.fresh >= SAMPLES_STEP {
            self.fresh = 0;
            let mut samples = self.samples.clone();
            let place = samples.len() * 99 / 100;
            let (_, found, _) = samples.select_nth_unstable(place);
            let found = Duration::from_micros((*found).into());
            self.limit = Some(found.max(PATIENCE_MIN));
        }
    }

    /// Takes a hedge from what was saved, if there is one.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.saved.checked_sub(REQUESTS_PER_HEDGE);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }

    /// Gives one back that was not made.
    pub(crate) fn give_back(&mut self) {
        self.saved += REQUESTS_PER_HEDGE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn limit_of(samples: impl IntoIterator<Item = Duration>) -> Option<Duration> {
        let mut patience = Patience::default();
        samples.into_iter().for_each(|sample| patience.answered(sample));
        patience.begin()
    }

    #[test]
    fn what_is_slow_is_told_from_enough_of_the_last_answers() {
        assert_eq!(limit_of((0..99).map(|_| MS)), None);
        assert_eq!(limit_of((0..200).map(|_| MS)), Some(PATIENCE_MIN));
        assert_eq!(limit_of((1..=1_000).map(|n| MS * n)), Some(MS * 991));
        let slow_before = (0..600).map(|_| 900 * MS).chain((0..600).map(|_| 200 * MS));
        assert_eq!(limit_of(slow_before), Some(200 * MS));
        assert!(limit_of((0..200).map(|_| Duration::MAX)).is_some());
    }

    #[test]
    fn in_a_hurry_there_is_a_limit_and_hedges_from_the_start() {
        let mut patience = Patience::default();
        assert!(!patience.spend());
        patience.hurry();
        assert_eq!(patience.begin(), Some(HURRIED_PATIENCE));
        assert_eq!((0..100).filter(|_| patience.spend()).count() as u64, HURRIED_HEDGES);
        (0..200).for_each(|_| patience.answered(MS));
        assert_eq!(patience.begin(), Some(PATIENCE_MIN));
    }

    proptest! {
        #[test]
        fn hedges_are_a_fiftieth_of_the_requests_at_most_and_few_at_once(
            steps in proptest::collection::vec(any::<bool>(), 0..2_000),
            idle in 0..5_000u64,
        ) {
            let mut patience = Patience::default();
            (0..idle).for_each(|_| assert_eq!(patience.begin(), None));
            let (mut requests, mut hedges) = (0, 0);
            for is_request in steps {
                if is_request {
                    patience.begin();
                    requests += 1;
                } else {
                    hedges += u64::from(patience.spend());
                }
                prop_assert!(hedges * REQUESTS_PER_HEDGE <= idle + requests);
                prop_assert!(hedges <= HEDGES_SAVED_MAX + requests / REQUESTS_PER_HEDGE);
            }
        }
    }
}
