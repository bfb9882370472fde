//! What the answers of an endpoint say of the line to it.
//!
//! Three numbers decide how far to read ahead: how long the first byte takes, how fast one connection is, and
//! how fast all are together. The first is the median of all answers. The second is what the fastest connections
//! reach, the [`FASTEST`]th of them: where the line is full each has a share of it, and only those that were
//! alone, as at the beginning, show what one can do. The third is all bytes over the time in which any request
//! was on its way.
//!
//! Times and rates are counted in steps of an eighth of an octave, so that what was before can be subtracted: a
//! run's own is a difference, as with [`Stats`](crate::Stats). It costs a lock a request, and none a byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Of the rates of connections the one that counts: so many are at least as fast.
const FASTEST: u64 = 8;
/// A shorter body says nothing of a connection's rate.
const BODY_BYTES_MIN: u64 = 256 << 10;
/// Each octave of values has so many steps.
const STEPS: u64 = 8;

/// How often there were values of each size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Histogram(Vec<u64>);

impl Histogram {
    /// The step of a value: those below [`STEPS`] have one each.
    fn step(value: u64) -> usize {
        let octave = u64::from(value.max(STEPS).ilog2() - STEPS.ilog2());
        let step = if value < STEPS { value } else { octave * STEPS + (value >> octave) };
        usize::try_from(step).unwrap_or(usize::MAX)
    }

    /// The least value of a step.
    fn value(step: usize) -> u64 {
        let step = step as u64;
        if step < 2 * STEPS {
            return step;
        }
        let octave = step / STEPS - 1;
        (step - octave * STEPS).checked_shl(u32::try_from(octave).unwrap_or(63)).unwrap_or(u64::MAX)
    }

    fn add(&mut self, value: u64) {
        let step = Self::step(value);
        if step >= self.0.len() {
            self.0.resize(step + 1, 0);
        }
        self.0[step] += 1;
    }

    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The value that so many are as large as or larger; none where there are fewer.
    fn largest(&self, rank: u64) -> Option<u64> {
        let mut left = rank.max(1);
        for (step, count) in self.0.iter().enumerate().rev() {
            match left.checked_sub(*count) {
                None | Some(0) => return Some(Self::value(step)),
                Some(rest) => left = rest,
            }
        }
        None
    }

    fn since(&self, before: &Histogram) -> Histogram {
        let old = before.0.iter().copied().chain(std::iter::repeat(0));
        Histogram(self.0.iter().zip(old).map(|(now, old)| now.saturating_sub(old)).collect())
    }
}

/// What was seen of an endpoint's answers so far; one taken from another is what was seen in between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// Requests for bytes that were answered with some.
    pub requests: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// For how long any of them was on its way.
    pub busy: Duration,
    /// Answers that it is asked too much.
    pub throttled: u64,
    /// To the first byte, in microseconds.
    firsts: Histogram,
    /// Of connections, in bytes a second.
    rates: Histogram,
}

impl Measured {
    /// What was seen since it was `before`.
    #[must_use]
    pub fn since(&self, before: &Measured) -> Measured {
        Measured {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            busy: self.busy.saturating_sub(before.busy),
            throttled: self.throttled.saturating_sub(before.throttled),
            firsts: self.firsts.since(&before.firsts),
            rates: self.rates.since(&before.rates),
        }
    }

    /// The median time to the first byte, an eighth too small at most; none where nothing came.
    pub fn first_byte(&self) -> Option<Duration> {
        let median = self.firsts.largest(self.firsts.count().div_ceil(2))?;
        Some(Duration::from_micros(median))
    }

    /// What one connection can do, in bytes a second; none where no body was long enough to tell.
    pub fn connection_rate(&self) -> Option<u64> {
        self.rates.largest((self.rates.count() / 10).clamp(1, FASTEST))
    }

    /// All bytes over the time in which any was on its way, in bytes a second.
    pub fn total_rate(&self) -> Option<u64> {
        rate(self.bytes, self.busy)
    }
}

fn rate(bytes: u64, time: Duration) -> Option<u64> {
    let per_second = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(per_second).ok().filter(|rate| *rate > 0)
}

/// Measures an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    measured: Measured,
    flying: usize,
    /// Since when there are any.
    busy_since: Option<Instant>,
}

impl Meter {
    pub(crate) fn measured(&self) -> Measured {
        let state = self.0.lock();
        let mut measured = state.measured.clone();
        measured.busy += state.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        measured
    }

    pub(crate) fn throttled(&self) {
        self.0.lock().measured.throttled += 1;
    }

    /// A request is sent.
    pub(crate) fn begin(self: &Arc<Self>) -> Flight {
        let sent = Instant::now();
        let mut state = self.0.lock();
        state.flying += 1;
        state.busy_since.get_or_insert(sent);
        Flight { meter: Arc::clone(self), sent, answered: None, bytes: 0 }
    }
}

/// A request from when it was sent until its last byte came.
#[derive(Debug)]
pub(crate) struct Flight {
    meter: Arc<Meter>,
    sent: Instant,
    answered: Option<Instant>,
    bytes: u64,
}

impl Flight {
    /// The answer has begun.
    pub(crate) fn answered(&mut self) {
        self.answered = Some(Instant::now());
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.meter.0.lock();
        state.flying -= 1;
        if state.flying == 0
            && let Some(since) = state.busy_since.take()
        {
            state.measured.busy += now.duration_since(since);
        }
        let Some(answered) = self.answered else { return };
        let first = answered.duration_since(self.sent).as_micros();
        state.measured.requests += 1;
        state.measured.bytes += self.bytes;
        state.measured.firsts.add(u64::try_from(first).unwrap_or(u64::MAX));
        let rate = rate(self.bytes, now.duration_since(answered));
        if let Some(rate) = rate.filter(|_| self.bytes >= BODY_BYTES_MIN) {
            state.measured.rates.add(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_found_again_within_an_eighth_by_its_rank_from_above(
            mut values in proptest::collection::vec(any::<u64>().prop_map(|v| v >> (v % 64)), 1..200),
            before in proptest::collection::vec(any::<u64>(), 0..50),
            rank in 1..250u64,
        ) {
            let mut all = Histogram::default();
            before.iter().for_each(|value| all.add(*value));
            let then = all.clone();
            values.iter().for_each(|value| all.add(*value));
            let own = all.since(&then);
            prop_assert_eq!(own.count(), values.len() as u64);
            values.sort_unstable_by_key(|value| std::cmp::Reverse(*value));
            let expected = values.get(usize::try_from(rank).unwrap() - 1);
            match (own.largest(rank), expected) {
                (Some(found), Some(expected)) => {
                    prop_assert!(found <= *expected, "{} of {}", found, expected);
                    prop_assert!(expected - found <= expected / 8, "{} of {}", found, expected);
                }
                (found, expected) => prop_assert_eq!(found, expected.copied()),
            }
        }
    }

    #[test]
    fn nothing_is_known_where_nothing_came() {
        let meter = Arc::new(Meter::default());
        drop(meter.begin());
        let measured = meter.measured();
        assert_eq!(
            (measured.requests, measured.first_byte(), measured.connection_rate()),
            (0, None, None)
        );
        let mut flight = meter.begin();
        flight.answered();
        flight.add(10);
        drop(flight);
        let measured = meter.measured();
        assert_eq!((measured.requests, measured.bytes), (1, 10));
        assert!(measured.first_byte().is_some() && measured.connection_rate().is_none());
        assert_eq!(measured.since(&measured.clone()).bytes, 0);
    }
}
